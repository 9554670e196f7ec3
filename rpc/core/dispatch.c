/* rpc/api/rpc.h and rpc/api/operator.h: each call goes to the role of this process (rpc/core/role.h). */
#include <stdlib.h>

#include "base/memory.h"
#include "rpc/core/rpc_internal.h"

/* -- writes ------------------------------------------------------------------------------------------------------- */
struct raft_data *rpc_command(uint8_t command, const ProtobufCMessage *message) {
    size_t size = protobuf_c_message_get_packed_size(message);
    struct raft_data *data = raft_data_new(NULL, 2 + size);
    data->bytes[0] = (char)command;
    data->bytes[1] = 1;
    protobuf_c_message_pack(message, (uint8_t *)data->bytes + 2);
    return data;
}

/* A write for a region that is not known ends on the loop. */
static void write_nowhere(struct loop_task *task) {
    struct rpc_write *write = CONTAINER_OF((char *)task, struct rpc_write, impl);
    write->done(write, CO_NOREGION, NULL);
}
static void renew_nowhere(struct loop_task *task) {
    struct rpc_renew *renew = CONTAINER_OF((char *)task, struct rpc_renew, impl);
    renew->done(renew, CO_NOREGION);
}
static void fetch_nowhere(struct loop_task *task) {
    struct rpc_fetch *fetch = CONTAINER_OF((char *)task, struct rpc_fetch, impl);
    fetch->done(fetch, CO_NOREGION, NULL);
}
static void save_nowhere(struct loop_task *task) {
    struct rpc_save *save = CONTAINER_OF((char *)task, struct rpc_save, impl);
    save->done(save, CO_NOREGION);
}
static void restore_nowhere(struct loop_task *task) {
    struct rpc_restore *restore = CONTAINER_OF((char *)task, struct rpc_restore, impl);
    restore->done(restore, CO_NOREGION);
}

/* The rpc for a region. A client agent leaves the look-up to its server. */
static struct rpc *target(struct rpc *rpc, const char *region) {
    return region[0] && rpc->machine ? region_find(rpc, region) : rpc;
}

void rpc_submit(struct rpc *rpc, struct rpc_write *write, uint8_t command, const ProtobufCMessage *message) {
    struct rpc *there = target(rpc, write->region);
    if (there) there->role->submit(there, write, command, message);
    else rpc_on_loop(rpc, (struct loop_task *)(void *)write->impl, write_nowhere);
}
void rpc_renew(struct rpc *rpc, struct rpc_renew *renew) {
    struct rpc *there = target(rpc, renew->region);
    if (there) there->role->renew(there, renew);
    else rpc_on_loop(rpc, (struct loop_task *)(void *)renew->impl, renew_nowhere);
}
int rpc_coordinate_put(struct rpc *rpc, const Pb__Coordinate *record) { return rpc->role->coordinate_put(rpc, record); }

/* -- reads -------------------------------------------------------------------------------------------------------- */
int rpc_read_index(struct rpc *rpc, enum rpc_freshness freshness, struct rpc_read_index *gate) {
    return rpc->role->read_index(rpc, freshness, gate);
}
void rpc_fetch(struct rpc *rpc, struct rpc_fetch *fetch, const ProtobufCMessage *request) {
    struct rpc *there = target(rpc, fetch->region);
    if (there) there->role->fetch(there, fetch, request);
    else rpc_on_loop(rpc, (struct loop_task *)(void *)fetch->impl, fetch_nowhere);
}
/* When the region is not known, or its link is gone, the fetch has ended, or is about to. */
void rpc_fetch_cancel(struct rpc *rpc, struct rpc_fetch *fetch) {
    struct rpc *there = target(rpc, fetch->region);
    if (there) there->role->fetch_cancel(there, fetch);
}
const struct modules *rpc_modules(const struct rpc *rpc) { return rpc->role->modules(rpc); }
bool rpc_has_copy(const struct rpc *rpc) { return rpc->machine != NULL; }

struct watch_table *rpc_watches(struct rpc *rpc) {
    return rpc->role->watches(rpc);
}
uint64_t rpc_generation(struct rpc *rpc, struct watch_key watched) {
    return watch_generation(rpc_watches(rpc), watched);
}
uint64_t rpc_applied(struct rpc *rpc) { return rpc->role->applied(rpc); }
uint64_t rpc_floor(struct rpc *rpc) { return rpc->role->floor(rpc); }

int rpc_serves(struct rpc *rpc) { return rpc->role->serves(rpc); }
void rpc_fenced_why(struct rpc *rpc, char line[160]) { rpc->role->fenced_why(rpc, line); }
void rpc_met_damage(struct rpc *rpc) { rpc->role->met_damage(rpc); }
struct vivaldi_coordinate rpc_coordinate_here(struct rpc *rpc) {
    return rpc->role->coordinate_here(rpc);
}

/* -- load balancing ----------------------------------------------------------------------------------------------- */
struct hints *rpc_hints(const struct rpc *rpc) {
    return rpc->hints;
}
void rpc_hints_follow(struct rpc *rpc, struct slice service) { rpc->role->hints_follow(rpc, service); }
void rpc_hot(struct rpc *rpc, struct rpc_hot *hot) { rpc->role->hot(rpc, hot); }

/* -- the cluster and its operators -------------------------------------------------------------------------------- */
bool rpc_known_leader(struct rpc *rpc) { return rpc->role->known_leader(rpc); }
void rpc_status(struct rpc *rpc, struct rpc_status *status) { rpc->role->status(rpc, status); }
size_t rpc_peers(struct rpc *rpc, struct arena *arena, const char ***addresses) {
    return rpc->role->peers(rpc, arena, addresses);
}
size_t rpc_servers(struct rpc *rpc, struct arena *arena, const char ***addresses) {
    return rpc->role->servers(rpc, arena, addresses);
}

void rpc_save(struct rpc *rpc, struct rpc_save *save) {
    save->fd = -1, save->size = save->index = 0, save->fault = (struct fault){0};
    struct rpc *there = target(rpc, save->region);
    if (there) there->role->save(there, save);
    else rpc_on_loop(rpc, (struct loop_task *)(void *)save->impl, save_nowhere);
}
void rpc_restore(struct rpc *rpc, struct rpc_restore *restore) {
    restore->index = 0, restore->fault = (struct fault){0};
    struct rpc *there = target(rpc, restore->region);
    if (there) there->role->restore(there, restore);
    else rpc_on_loop(rpc, (struct loop_task *)(void *)restore->impl, restore_nowhere);
}

void rpc_job_begin(struct rpc *rpc) { rpc->jobs++; }
void rpc_job_over(struct rpc *rpc) {
    if (--rpc->jobs == 0 && rpc->jobs_over) rpc->jobs_over(rpc);
}

void rpc_on_loop(struct rpc *rpc, struct loop_task *task, void (*run)(struct loop_task *task)) {
    task->rpc = rpc, task->run = run;
    rpc->role->post(rpc, task);
}
