/* Writes and reads, as the rest of the process asks for them. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "rpc/client_internal.h"

struct write_impl {
    struct node_proposal proposal;
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

struct raft_data *rpc_command(uint8_t command, const ProtobufCMessage *message) {
    size_t size = protobuf_c_message_get_packed_size(message);
    struct raft_data *data = raft_data_new(NULL, 2 + size);
    data->bytes[0] = (char)command;
    data->bytes[1] = 1;
    protobuf_c_message_pack(message, (uint8_t *)data->bytes + 2);
    return data;
}

void rpc_submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message) {
    if (rpc->client) {
        client_submit(rpc->client, write, command, message);
        return;
    }
    struct node_proposal *proposal = &((struct write_impl *)(void *)write->impl)->proposal;
    *proposal = (struct node_proposal){
        .done = write_done, .deadline_ms = clock_mono_ms() + RPC_LEADER_WAIT_MS, .data = rpc_command(command, message)};
    node_propose(rpc->node, proposal);
}

static void gate_done(struct node_read *read, int error) {
    struct rpc_read_index *gate =
        CONTAINER_OF((char *)CONTAINER_OF(read, struct gate_impl, read), struct rpc_read_index, impl);
    gate->done(gate, error);
}

int rpc_read_index(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate) {
    if (rpc->client) return CO_OK; /* what is read there is confirmed by the server that is asked */
    if (rpc_serves(rpc) != CO_OK) return CO_FENCED;
    if (freshness == RPC_STALE || atomic_load_explicit(&node_view(rpc->node)->alone, memory_order_acquire))
        return CO_OK;
    struct node_read *read = &((struct gate_impl *)(void *)gate->impl)->read;
    *read = (struct node_read){.done = gate_done, .deadline_ms = clock_mono_ms() + RPC_LEADER_WAIT_MS};
    node_read(rpc->node, read);
    return CO_AGAIN;
}

void rpc_fetch(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    if (rpc->client) client_fetch_begin(rpc->client, fetch, request);
    else fetches_take(rpc->fetches, fetch, request);
}
void rpc_fetch_cancel(struct rpc *rpc, struct rpc_fetch *fetch) {
    if (rpc->client) client_fetch_cancel(rpc->client, fetch);
    else fetches_cancel(rpc->fetches, fetch);
}
const struct modules *rpc_modules(const struct rpc *rpc) {
    return rpc->client ? rpc->client->modules : machine_modules(rpc->machine);
}

bool rpc_has_copy(const struct rpc *rpc) { return rpc->machine != NULL; }

/* -- readers ------------------------------------------------------------------------------------------------------ */
struct rpc_reader {
    struct store_reader *reader;
    struct dns_subscriptions *subscriptions;
};

struct rpc_reader *rpc_reader_new(struct rpc *rpc) {
    struct rpc_reader *reader = mem_zalloc(sizeof *reader);
    if (rpc->client) reader->subscriptions = rpc->client->subscriptions;
    else reader->reader = store_reader_new(machine_store(rpc->machine));
    return reader;
}
void rpc_reader_free(struct rpc_reader *reader) {
    if (!reader) return;
    if (reader->reader) store_reader_free(reader->reader);
    free(reader);
}
struct store_txn *rpc_read_begin(struct rpc_reader *reader) {
    CHECK(reader->reader);
    return store_read(reader->reader);
}
void rpc_read_end(struct rpc_reader *reader) {
    if (reader->reader) store_read_done(reader->reader);
}

int rpc_query(struct rpc_reader *reader, const struct query_type *type, const ProtobufCMessage *request,
              struct arena *arena, struct query_result *result) {
    if (reader->subscriptions) return dns_subscriptions_query(reader->subscriptions, type, request, arena, result);
    struct store_txn *txn = rpc_read_begin(reader);
    int error = type->run(txn, request, arena, result);
    return error ? error : store_txn_error(txn);
}

struct watch_table *rpc_watches(struct rpc *rpc) {
    return rpc->client ? dns_subscriptions_watches(rpc->client->subscriptions) : machine_watches(rpc->machine);
}
uint64_t rpc_generation(struct rpc *rpc, struct watch_thing thing) { return watch_generation(rpc_watches(rpc), thing); }
uint64_t rpc_applied(struct rpc *rpc) { return rpc->client ? 1 : machine_index(rpc->machine); }
uint64_t rpc_floor(struct rpc *rpc) { return rpc->client ? 0 : machine_floor_now(rpc->machine); }

/* -- the cluster -------------------------------------------------------------------------------------------------- */
/* A leader that cannot serve yet is none for clients. */
static uint64_t serving_leader(const struct node_view *view) {
    uint64_t leader = atomic_load_explicit(&view->leader, memory_order_relaxed);
    bool own = leader == atomic_load_explicit(&view->id, memory_order_relaxed);
    return own && !atomic_load_explicit(&view->ready, memory_order_acquire) ? 0 : leader;
}

bool rpc_known_leader(struct rpc *rpc) {
    if (!rpc->client) return serving_leader(node_view(rpc->node)) != 0;
    return atomic_load(&rpc->client->connected) && atomic_load(&rpc->client->known_leader);
}

static void fill_members(struct rpc *rpc, uint64_t leader, struct rpc_status *status) {
    uv_mutex_lock(&rpc->peers_lock);
    const struct raft_member *member = leader ? raft_members_find(&rpc->peers, leader) : NULL;
    if (member) snprintf(status->leader_address, sizeof status->leader_address, "%s", member->address);
    const struct raft_member *self = raft_members_find(&rpc->peers, atomic_load(&node_view(rpc->node)->id));
    status->is_voter = self && self->voter;
    status->voters = raft_members_voters(&rpc->peers);
    status->recovered_index = rpc->peers.recovered_index;
    uv_mutex_unlock(&rpc->peers_lock);
}

void rpc_status(struct rpc *rpc, struct rpc_status *status) {
    if (rpc->client) {
        client_status(rpc->client, status);
        return;
    }
    const struct node_view *view = node_view(rpc->node);
    uint64_t leader = serving_leader(view), contact = atomic_load(&view->last_contact_ms), now = clock_mono_ms();
    bool heard = contact != 0;
    if (!heard) contact = rpc->started_ms;
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
    status->leaderless_ms = status->known_leader ? 0 : status->last_contact_ms;
    fill_members(rpc, leader, status);
}

size_t rpc_peers(struct rpc *rpc, struct arena *arena, const char ***addresses) {
    if (rpc->client) return client_peers(rpc->client, arena, addresses);
    uv_mutex_lock(&rpc->peers_lock);
    size_t count = 0;
    *addresses = arena_alloc(arena, RAFT_MEMBERS_MAX * sizeof **addresses);
    for (uint32_t i = 0; i < rpc->peers.count; i++)
        if (rpc->peers.member[i].voter) {
            const char *address = rpc->peers.member[i].address;
            (*addresses)[count++] = arena_strndup(arena, address, strlen(address));
        }
    uv_mutex_unlock(&rpc->peers_lock);
    return count;
}
