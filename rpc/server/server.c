/* Life of a server: its machine and node, and the callbacks between them. */
#include "rpc/server/server.h"
#include "rpc/server/judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/wakeup_batch.h"
#include "registry/trust.h"
#include "rpc/agents/agents.h"
#include "rpc/audit/audit.h"
#include "rpc/backup/backup.h"
#include "rpc/cluster/last_seen.h"
#include "rpc/core/asks_run.h"
#include "rpc/leader/forwarding_run.h"
#include "rpc/leader/leases_run.h"
#include "rpc/reads/fetch_service.h"
#include "rpc/server/coordinates.h"
#include "rpc/server/server_hints.h"
#include "rpc/server/server_internal.h"
#include "rpc/server/version.h"
#include "rpc/server/write_limit_run.h"

METRIC applied_total = {.name = "coord_raft_applied_total", .type = METRIC_COUNTER, .help = "Entries applied"};
METRIC batches_total = {.name = "coord_raft_apply_batches_total",
                        .type = METRIC_COUNTER,
                        .help = "Batches applied, one store transaction each"};

METRIC recovered_index = {.name = "coord_raft_recovered_index",
                          .type = METRIC_GAUGE,
                          .help = "Log index at which an operator recovered the cluster last; 0: never"};

/* -- applier thread ----------------------------------------------------------------------------------------------- */
static void input_done(void *data, void *origin, const struct machine_result *result) {
    (void)data;
    if (origin) node_apply_done(origin, result);
}

/* The whole state was replaced: the things that end by themselves have to be read from it again. */
static void note_replacements(struct rpc *rpc) {
    uint64_t replacements = machine_replacements(rpc->machine);
    if (replacements == rpc->server->replacements) return;
    rpc->server->replacements = replacements;
    if (rpc->node) lessor_run_replaced(rpc); /* else it starts, and there are no leases yet */
}

/* The number of entries that the state machine has not applied yet. */
static uint64_t not_applied(struct rpc *rpc, const struct machine_input *inputs, size_t count, size_t *first) {
    uint64_t applied = machine_applied(rpc->machine);
    for (*first = 0; *first < count && inputs[*first].index <= applied; ++*first) continue;
    return applied;
}

static void note_full(struct rpc *rpc, bool full) {
    atomic_store(&rpc->server->store_full, full);
    if (rpc->node) node_out_of_space(rpc->node, full);
}

static uint64_t apply(void *data, struct node_apply *items, size_t count) {
    struct rpc *rpc = data;
    struct machine_input inputs[1024];
    CHECK(count <= ARRAY_COUNT(inputs));
    for (size_t i = 0; i < count; i++) {
        const struct raft_entry *entry = &items[i].entry;
        inputs[i] = (struct machine_input){.index = entry->index,
                                           .term = entry->term,
                                           .command = raft_entry_bytes(entry),
                                           .is_command = entry->type == RAFT_ENTRY_COMMAND,
                                           .origin = items[i].proposal,
                                           .unix_ms = entry->unix_ms};
    }
    for (size_t first = 0;; (void)not_applied(rpc, inputs, count, &first)) {
        if (!audit_may_apply(rpc)) {
            note_full(rpc, false);
            return inputs[first].index - 1;
        }
        uint64_t stopped_at = 0;
        int rv = machine_apply(rpc->machine, inputs + first, count - first, input_done, NULL, &stopped_at);
        audit_applied(rpc);
        note_full(rpc, rv == CO_DISKFULL);
        if (rv == CO_OK) break;
        if (rv == CO_UNSUPPORTED) {
            log_error(
                "raft",
                "entry %llu holds a command of a newer version: nothing more is applied until this server is upgraded",
                (unsigned long long)stopped_at);
            return stopped_at - 1;
        }
        if (rv == CO_CORRUPT) {
            audit_fence(rpc, "a batch cannot be applied: the store is damaged");
            continue;
        }
        log_error("store", "a batch cannot be applied, trying again: %s", co_strerror(rv));
        wakeup_batch_flush(); /* proposals of the applied part have their results */
        if (atomic_load(&rpc->server->quit)) return not_applied(rpc, inputs, count, &first);
        if (rv != CO_DISKFULL) audit_look(rpc);
        sleep(1);
    }
    metric_add(&applied_total, count);
    metric_add(&batches_total, 1);
    note_replacements(rpc);
    version_applied(rpc);
    return inputs[count - 1].index;
}

static int install(void *data, int fd, const struct raft_snapshot_meta *meta, struct fault *fault) {
    struct rpc *rpc = data;
    int rv = machine_install(rpc->machine, fd, meta->size, fault);
    if (rv == CO_OK) note_replacements(rpc), version_applied(rpc), audit_installed(rpc);
    return rv;
}

static int rebuild(void *data, bool own, uint64_t *applied, struct fault *fault) {
    int rv = audit_rebuild(data, own, applied, fault);
    if (rv == CO_OK) note_replacements(data), version_applied(data);
    return rv;
}

/* -- other threads ------------------------------------------------------------------------------------------------ */
static int copy(void *data, int fd, uint64_t *index, uint64_t *term) {
    struct rpc *rpc = data;
    return machine_copy(rpc->machine, fd, index, term);
}

/* Is there room for writes? A restored backup makes a new store, which may have none while the old one had. */
static bool room(void *data) {
    struct rpc *rpc = data;
    return !atomic_load(&rpc->server->store_full) && store_has_room(machine_store(rpc->machine));
}

void server_members_note(struct rpc *rpc) {
    struct server *server = rpc->server;
    uv_mutex_lock(&server->members_lock);
    server->members = *node_members(rpc->node);
    uv_mutex_unlock(&server->members_lock);
    metric_set(&recovered_index, server->members.recovered_index);
}

static void role(void *data, enum raft_role role, uint64_t term, uint64_t leader, bool ready) {
    struct rpc *rpc = data;
    (void)leader;
    if (rpc->node) server_members_note(rpc);
    lessor_run_role(rpc, term, role == RAFT_LEADER && ready);
    bool leads = role == RAFT_LEADER && ready;
    if (!leads) rpc->server->lead_since_ms = 0;
    else if (rpc->server->lead_since_ms == 0) rpc->server->lead_since_ms = clock_mono_ms();
    version_role(rpc);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
static int open_machine(struct rpc *rpc, const struct rpc_server_config *config, struct expiry_updates *updates,
                        bool distrust, struct fault *fault) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/store", config->folder);
    struct machine_config machine = {.store = {.folder = folder,
                                               .map_bytes = config->map_bytes,
                                               .reserve_step_bytes = config->reserve_step_bytes,
                                               .distrust = distrust},
                                     .modules = config->modules,
                                     .updates = updates};
    return machine_open(&machine, &rpc->machine, fault);
}

static int open_node(struct rpc *rpc, const struct rpc_server_config *config, struct fault *fault) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/raft", config->folder);
    struct buffer first = {0};
    version_first_command(machine_newest(rpc->machine), &first);
    struct node_config node = {.folder = folder,
                               .address = config->address,
                               .bootstrap = config->expect == 1,
                               .raft_multiplier = config->raft_multiplier,
                               .applied = machine_applied(rpc->machine),
                               .applied_term = machine_applied_term(rpc->machine),
                               .snapshot_log_bytes = config->snapshot_log_bytes,
                               .snapshot_rate = config->snapshot_rate,
                               .first_command = buffer_slice(&first)};
    struct node_callbacks callbacks = {.data = rpc,
                                       .apply = apply,
                                       .snapshot_copy = copy,
                                       .snapshot_install = install,
                                       .has_room = room,
                                       .role = role,
                                       .refuse = judge_refuse,
                                       .held = audit_held,
                                       .rebuild = rebuild,
                                       .rebuilt = audit_rebuilt};
    server_peers_callbacks(rpc, &callbacks);
    int rv = node_start(rpc->loop, &node, &callbacks, &rpc->node, fault);
    buffer_free(&first);
    return rv;
}

static int open_replica(struct rpc *rpc, const struct rpc_server_config *config, struct expiry_updates *updates,
                        bool distrust, struct fault *fault) {
    int rv = open_machine(rpc, config, updates, distrust, fault);
    if (rv != CO_OK) return rv;
    version_applied(rpc);
    rv = open_node(rpc, config, fault);
    if (rv == CO_OK) version_applied(rpc);
    if (rv == CO_OK) return CO_OK;
    machine_close(rpc->machine);
    return rv;
}

/* Makes `rpc` and the rooms that the machine and the node call while they open. */
static struct rpc *server_new(uv_loop_t *loop, const struct rpc_server_config *config) {
    struct rpc *rpc = mem_zalloc(sizeof *rpc);
    struct server *server = rpc->server = mem_zalloc(sizeof *server);
    rpc->role = &server_role;
    rpc->loop = loop;
    rpc->hints = hints_new(config->slow_start_ns);
    hints_decides(rpc->hints);
    rpc->node_name = mem_strdup(config->node_name), rpc->cluster = mem_strdup(config->cluster);
    rpc->last_seen = last_seen_new();
    rpc->backups = backups_new();
    rpc->audit = audit_new(rpc, config->folder, config->scrub_interval_ms);
    server->started_ms = clock_mono_ms();
    server->expect = config->expect;
    write_limit_start(rpc, &config->write_limit);
    server->address = mem_strdup(config->address);
    server->build = config->build ? config->build : "";
    CHECK(uv_mutex_init(&server->members_lock) == 0);
    version_new(rpc);
    server->security = config->security;
    struct trust_admin_config trust = {
        .authority = config->authority, .data_dir = config->folder, .dns_domain = config->dns_domain};
    server->trust = trust_admin_new(rpc, &trust);
    server->acl_keys = acl_keys_new(rpc, &config->acl, config->folder);
    server->coordinates = coordinates_new(rpc, &config->coordinates, config->node_name);
    return rpc;
}

/* Frees all that server_new made, after everything else was freed. */
static void server_free(struct rpc *rpc) {
    struct server *server = rpc->server;
    audit_free(rpc->audit);
    backups_free(rpc->backups);
    last_seen_free(rpc->last_seen);
    coordinates_free(server->coordinates);
    version_free(rpc);
    trust_admin_free(server->trust);
    acl_keys_free(server->acl_keys);
    hints_free(rpc->hints);
    uv_mutex_destroy(&server->members_lock);
    free(server->address), free(rpc->node_name), free(rpc->cluster);
    free(server);
    rpc_access_control_end(rpc);
    free(rpc);
}

/* A server of a closed cluster whose certificate is gone must not open its port for everybody. */
static int judge_start(struct rpc *rpc, const struct rpc_server_config *config, struct fault *fault) {
    struct security_rules rules;
    struct arena arena = {0};
    if (!config->security || config->port == 0) return CO_OK;
    security_get(config->security, &rules);
    const Pb__Trust *trust = trust_read(store_read(rpc->loop_reader), &arena);
    bool closed = trust && trust->mode == TRUST_CLOSED;
    store_read_done(rpc->loop_reader);
    arena_free(&arena);
    if (!closed || rules.kind == SECURITY_CLUSTER) return CO_OK;
    return fault_set(
        fault, CO_DENIED,
        "the cluster is closed, and %s/tls has no certificate of this server: put it back, or empty the data "
        "folder and join anew",
        config->folder);
}

int rpc_server_start(uv_loop_t *loop, const struct rpc_server_config *config, struct rpc **out, struct fault *fault) {
    metric_register(&applied_total);
    metric_register(&batches_total);
    metric_register(&recovered_index);
    CHECK(config->folder && config->address && config->node_name && config->cluster && config->dns_domain);
    struct rpc *rpc = server_new(loop, config);
    struct expiry_updates *updates = lessor_run_new(rpc);
    int rv = open_replica(rpc, config, updates, false, fault);
    if (rv == CO_CONFLICT) { /* entries were applied that are no longer in the log: the log is the truth */
        log_warn("store", "%s: it is rebuilt from the log", fault->text);
        *fault = (struct fault){0};
        rv = open_replica(rpc, config, updates, true, fault);
    }
    if (rv != CO_OK) {
        lessor_run_free(rpc);
        server_free(rpc);
        return rv;
    }
    rpc->loop_reader = store_reader_new(machine_store(rpc->machine));
    lessor_run_start(rpc);
    operator_start(rpc);
    version_start(rpc);
    coordinates_start(rpc);
    asks_run_start(rpc, loop, config->node_name);
    server_hints_start(rpc);
    server_members_note(rpc);
    rpc->server->fetches = fetch_service_new(rpc);
    audit_start(rpc);
    *out = rpc;
    rv = acl_keys_start(rpc, fault);
    if (rv == CO_OK) rv = judge_start(rpc, config, fault);
    return rv ? rv : server_peers_start(rpc, config, fault);
}

static void handle_closed(uv_handle_t *handle) {
    struct rpc *rpc = handle->data;
    struct server *server = rpc->server;
    if (--server->closing > 0) return;
    void (*closed)(void *) = server->closed;
    void *data = server->closed_data;
    lessor_run_free(rpc);
    store_reader_free(rpc->loop_reader);
    rpc_reader_free(rpc->server->judge);
    asks_run_free(rpc);
    operator_free(rpc);
    fetch_service_free(server->fetches);
    server_peers_free(rpc);
    server_hints_free(rpc);
    machine_close(rpc->machine);
    server_free(rpc);
    closed(data);
}

static void peers_closed(void *data) {
    struct rpc *rpc = data;
    rpc->server->closing = ASKS_RUN_HANDLES + LESSOR_RUN_HANDLES + 4;
    asks_run_close(rpc, handle_closed, rpc);
    lessor_run_close(rpc, handle_closed);
    server_hints_close(rpc, handle_closed);
    version_close(rpc, handle_closed);
    coordinates_close(rpc, handle_closed);
    acl_keys_close(rpc, handle_closed);
}

static void operator_closed(void *data) { server_peers_stop(data, peers_closed); }

static void audit_closed(void *data) { operator_stop(data, operator_closed); }

/* Ends the requests that were sent to a leader, too: a restore may wait for one, and the stopping server waits for the
 * restore. */
static void node_closed(void *data) {
    struct rpc *rpc = data;
    if (rpc->forwarding) forwarding_run_end(rpc->forwarding);
    audit_stop(rpc, audit_closed);
}

void rpc_server_stop(struct rpc *rpc, void (*closed)(void *data), void *data) {
    rpc->server->closed = closed, rpc->server->closed_data = data;
    rpc->stopping = true;
    lessor_run_stop(rpc);
    asks_run_stop(rpc);
    atomic_store(&rpc->server->quit, true);
    fetch_service_stop(rpc->server->fetches);
    audit_quit(rpc);
    node_stop(rpc->node, node_closed, rpc);
    /* send its last answers to others now, because a snapshot may delay the node's end for long */
    if (rpc->forwarding) forwarding_run_flush(rpc->forwarding);
}
