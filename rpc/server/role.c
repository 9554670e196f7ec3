/* The functions of rpc/api/rpc.h on a server: they use its own node, machine and store. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "rpc/audit/audit.h"
#include "rpc/backup/backup.h"
#include "rpc/leader/leases_run.h"
#include "rpc/reads/fetch_service.h"
#include "rpc/server/acl_admin.h"
#include "rpc/server/coordinates.h"
#include "rpc/server/server_internal.h"

struct write_impl {
    struct node_proposal proposal;
    struct judged judged;
};
_Static_assert(sizeof(struct write_impl) <= sizeof(((struct rpc_write *)0)->impl), "rpc_write.impl is too small");
struct gate_impl {
    struct node_read read;
};
_Static_assert(sizeof(struct gate_impl) <= sizeof(((struct rpc_read_index *)0)->impl),
               "rpc_read_index.impl is too small");

static void write_done(struct node_proposal *proposal, int error, const void *result) {
    struct rpc_write *write =
        CONTAINER_OF((char *)CONTAINER_OF(proposal, struct write_impl, proposal), struct rpc_write, impl);
    write->done(write, error, result);
}

static void submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message) {
    struct write_impl *impl = (struct write_impl *)(void *)write->impl;
    struct node_proposal *proposal = &impl->proposal;
    impl->judged = (struct judged){.requester = write->requester, .generation = write->judged, .client = write->client};
    *proposal = (struct node_proposal){.done = write_done,
                                       .deadline_ms = clock_mono_ms() + RPC_LEADER_WAIT_MS,
                                       .data = rpc_command(command, message),
                                       .tag = &impl->judged};
    node_propose(rpc->node, proposal);
}

static void gate_done(struct node_read *read, int error) {
    struct rpc_read_index *gate =
        CONTAINER_OF((char *)CONTAINER_OF(read, struct gate_impl, read), struct rpc_read_index, impl);
    gate->done(gate, error);
}

static int read_index(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate) {
    if (audit_serves(rpc) != CO_OK) return CO_FENCED;
    if (freshness == RPC_STALE || atomic_load_explicit(&node_view(rpc->node)->alone, memory_order_acquire))
        return CO_OK;
    struct node_read *read = &((struct gate_impl *)(void *)gate->impl)->read;
    *read = (struct node_read){.done = gate_done, .deadline_ms = clock_mono_ms() + RPC_LEADER_WAIT_MS};
    node_read(rpc->node, read);
    return CO_AGAIN;
}

static void hints_follow(struct rpc *rpc, struct slice service) { (void)rpc, (void)service; }

static void fetch(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    fetch_service_take(rpc->server->fetches, fetch, request);
}
static void fetch_cancel(struct rpc *rpc, struct rpc_fetch *fetch) {
    fetch_service_cancel(rpc->server->fetches, fetch);
}
static const struct modules *modules(const struct rpc *rpc) { return machine_modules(rpc->machine); }
static struct watch_table *watches(struct rpc *rpc) { return machine_watches(rpc->machine); }
static uint64_t applied(struct rpc *rpc) { return machine_index(rpc->machine); }
static uint64_t floor_now(struct rpc *rpc) { return machine_floor_now(rpc->machine); }

/* -- the cluster -------------------------------------------------------------------------------------------------- */
/* The leader as clients see it: one that cannot serve yet does not count. */
static uint64_t serving_leader(const struct node_view *view) {
    uint64_t leader = atomic_load_explicit(&view->leader, memory_order_relaxed);
    bool own = leader == atomic_load_explicit(&view->id, memory_order_relaxed);
    return own && !atomic_load_explicit(&view->ready, memory_order_acquire) ? 0 : leader;
}

static bool known_leader(struct rpc *rpc) { return serving_leader(node_view(rpc->node)) != 0; }

static void fill_members(struct rpc *rpc, uint64_t leader, struct rpc_status *status) {
    struct server *server = rpc->server;
    uv_mutex_lock(&server->members_lock);
    const struct raft_member *member = leader ? raft_members_find(&server->members, leader) : NULL;
    if (member) snprintf(status->leader_address, sizeof status->leader_address, "%s", member->address);
    const struct raft_member *self = raft_members_find(&server->members, atomic_load(&node_view(rpc->node)->id));
    status->is_voter = self && self->voter;
    status->voters = raft_members_voters(&server->members);
    status->recovered_index = server->members.recovered_index;
    uv_mutex_unlock(&server->members_lock);
}

static void status_now(struct rpc *rpc, struct rpc_status *status) {
    const struct node_view *view = node_view(rpc->node);
    uint64_t leader = serving_leader(view), contact = atomic_load(&view->last_contact_ms), now = clock_mono_ms();
    bool heard = contact != 0;
    if (!heard) contact = rpc->server->started_ms;
    *status = (struct rpc_status){.is_server = true,
                                  .is_leader = leader != 0 && leader == atomic_load(&view->id),
                                  .known_leader = leader != 0,
                                  .leader_heard = heard || (leader != 0 && leader == atomic_load(&view->id)),
                                  .term = atomic_load(&view->term),
                                  .commit = atomic_load(&view->commit),
                                  .applied = machine_applied(rpc->machine),
                                  .last_index = atomic_load(&view->last_index),
                                  .snapshot_index = atomic_load(&view->snapshot_index),
                                  .cluster_version = machine_version(rpc->machine),
                                  .cluster_id = machine_cluster(rpc->machine),
                                  .log_bytes = atomic_load(&view->log_bytes),
                                  .disk_degraded = atomic_load(&view->disk_degraded),
                                  .disk_full = atomic_load(&view->disk_full)};
    status->last_contact_ms = status->is_leader || now < contact ? 0 : now - contact;
    /* Not since the last contact: a leader is taken for lost only when it has been silent for seconds. */
    uint64_t leaderless = atomic_load(&view->leaderless_ms);
    status->leaderless_ms = status->known_leader || !leaderless || now < leaderless ? 0 : now - leaderless;
    fill_members(rpc, leader, status);
}

static size_t peers(struct rpc *rpc, struct arena *arena, const char ***addresses) {
    struct server *server = rpc->server;
    uv_mutex_lock(&server->members_lock);
    size_t count = 0;
    *addresses = arena_alloc(arena, RAFT_MEMBERS_MAX * sizeof **addresses);
    for (uint32_t i = 0; i < server->members.count; i++)
        if (server->members.member[i].voter) {
            const char *address = server->members.member[i].address;
            (*addresses)[count++] = arena_strndup(arena, address, strlen(address));
        }
    uv_mutex_unlock(&server->members_lock);
    return count;
}

static struct rpc_self self(const struct rpc *rpc) {
    return (struct rpc_self){.cluster = rpc->cluster,
                             .address = rpc->server->address,
                             .node_name = rpc->node_name,
                             .cluster_id = machine_cluster(rpc->machine),
                             .loop = rpc->loop,
                             .security = rpc->server->security,
                             .alone = rpc->others == NULL};
}

static size_t other_servers(struct rpc *rpc, uint64_t *ids, size_t room) {
    const struct raft_members *members = node_members(rpc->node);
    uint64_t self = atomic_load(&node_view(rpc->node)->id);
    size_t count = 0;
    for (uint32_t i = 0; i < members->count && count < room; i++)
        if (members->member[i].id != self) ids[count++] = members->member[i].id;
    return count;
}

static void know_server(struct rpc *rpc, const char *address) { peers_know(rpc->others, address); }

static void trust(struct rpc *rpc, struct rpc_trust *asked) { trust_admin_do(rpc->server->trust, asked); }
static void acl(struct rpc *rpc, struct rpc_acl *asked) { acl_admin_do(rpc, asked); }

const struct rpc_role server_role = {.submit = submit,
                                     .read_index = read_index,
                                     .fetch = fetch,
                                     .fetch_cancel = fetch_cancel,
                                     .modules = modules,
                                     .watches = watches,
                                     .applied = applied,
                                     .floor = floor_now,
                                     .renew = lessor_run_renew,
                                     .serves = audit_serves,
                                     .fenced_why = audit_fenced_why,
                                     .met_damage = audit_look,
                                     .coordinate_put = coordinates_put,
                                     .coordinate_here = coordinates_here,
                                     .hints_follow = hints_follow,
                                     .hot = hot_here,
                                     .known_leader = known_leader,
                                     .status = status_now,
                                     .peers = peers,
                                     .servers = peers,
                                     .self = self,
                                     .know_server = know_server,
                                     .other_servers = other_servers,
                                     .ask = operator_ask,
                                     .ask_here = operator_ask_here,
                                     .change_here = operator_change_here,
                                     .trust = trust,
                                     .acl = acl,
                                     .save = backup_save,
                                     .restore = backup_restore,
                                     .post = operator_post,
                                     .calls_begun = operator_poll};
