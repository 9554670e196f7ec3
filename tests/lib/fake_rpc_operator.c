/* The rest of the stand-in for rpc/: coordinates, and operators' calls. */
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "rpc/api/acl_admin.h"
#include "rpc/api/operator.h"
#include "rpc/server/coordinates.h"
#include "tests/lib/fake_rpc.h"

/* -- coordinates ------------------------------------------------------------------------------------------------------ */

struct waited {
    struct rpc_write write;
    _Atomic bool done;
};
static void waited_done(struct rpc_write *write, int error, const struct machine_result *result) {
    (void)error, (void)result;
    atomic_store(&CONTAINER_OF(write, struct waited, write)->done, true);
}

/* Without a batch: applied before it returns. */
int rpc_coordinate_put(struct rpc *rpc, const Pb__Coordinate *record) {
    int rv = coordinate_check(record);
    if (rv != CO_OK) return rv;
    Pb__CoordinateUpdateCommand command = PB__COORDINATE_UPDATE_COMMAND__INIT;
    Pb__Coordinate *updates[] = {(Pb__Coordinate *)(uintptr_t)record};
    command.updates = updates, command.n_updates = 1;
    struct waited waited = {.write.done = waited_done};
    rpc_submit(rpc, &waited.write, COORDINATE_UPDATE, &command.base);
    while (!atomic_load(&waited.done)) usleep(100);
    return CO_OK;
}

struct vivaldi_coordinate rpc_coordinate_here(struct rpc *rpc) {
    (void)rpc;
    return vivaldi_origin();
}

/* -- operators: a cluster of one, which nobody changes -------------------------------------------------------------- */

void rpc_ask_cluster(struct rpc *rpc, struct rpc_ask_cluster *cluster) {
    uint64_t applied = rpc_applied(rpc);
    struct rpc_server_state server = {.id = 1,
                                      .address = "10.0.0.1:8300",
                                      .node = "n1",
                                      .leader = rpc_known_leader(rpc),
                                      .voter = true,
                                      .connected = true,
                                      .match = applied,
                                      .last_index = applied,
                                      .last_term = 1,
                                      .stable_ms = UINT64_MAX};
    struct rpc_cluster_state state = {.index = 1,
                                      .committed = true,
                                      .here_leads = server.leader,
                                      .leader_address = "10.0.0.1:8300",
                                      .servers = &server,
                                      .count = 1};
    cluster->done(cluster, CO_OK, &state);
}
void rpc_change(struct rpc *rpc, struct rpc_change *change) {
    (void)rpc;
    CHECK(memchr(change->address, 0, sizeof change->address));
    change->done(change, CO_INVALID);
}
void rpc_save(struct rpc *rpc, struct rpc_save *save) {
    (void)rpc;
    save->fd = -1;
    save->done(save, CO_UNSUPPORTED);
}
void rpc_restore(struct rpc *rpc, struct rpc_restore *restore) {
    (void)rpc;
    CHECK(restore->fd >= 0);
    restore->done(restore, CO_UNSUPPORTED);
}

/* -- regions: this one alone ------------------------------------------------------------------------------------------ */

void rpc_ask_regions(struct rpc *rpc, struct rpc_regions *regions) {
    (void)rpc;
    Pb__PeerRegion own = PB__PEER_REGION__INIT, *pointers[] = {&own};
    Pb__PeerRegionsAnswer seen = PB__PEER_REGIONS_ANSWER__INIT;
    own.name = (char *)"dc1", own.own = own.reachable = true, own.cluster_id = 1, own.leader = (char *)"10.0.0.1:8300";
    seen.regions = pointers, seen.n_regions = 1;
    regions->done(regions, CO_OK, &seen);
}

/* There is no server that has a key. */
void rpc_acl(struct rpc *rpc, struct rpc_acl *acl) {
    (void)rpc;
    acl->text[0] = '\0';
    acl->done(acl, CO_NOTREADY);
}
