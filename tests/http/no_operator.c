/* Operators' calls, for tests that stand in for rpc (web_world.c): one server that leads, and nothing to save or
 * restore. */
#include "rpc/operator.h"

void rpc_ask_cluster(struct rpc *rpc, struct rpc_ask_cluster *ask) {
    (void)rpc;
    struct rpc_server_state server = {.id = 1,
                                      .address = "127.0.0.1:8300",
                                      .node = "n1",
                                      .leader = true,
                                      .voter = true,
                                      .connected = true,
                                      .match = 5,
                                      .last_index = 5,
                                      .last_term = 1,
                                      .stable_ms = UINT64_MAX};
    struct rpc_cluster_state state = {.index = 1,
                                      .committed = true,
                                      .here_leads = true,
                                      .leader_address = "127.0.0.1:8300",
                                      .servers = &server,
                                      .count = 1};
    ask->done(ask, CO_OK, &state);
}

void rpc_change(struct rpc *rpc, struct rpc_change *change) {
    (void)rpc;
    change->done(change, CO_INVALID);
}

void rpc_save(struct rpc *rpc, struct rpc_save *save) {
    (void)rpc;
    save->fd = -1;
    save->done(save, CO_UNSUPPORTED);
}

void rpc_restore(struct rpc *rpc, struct rpc_restore *restore) {
    (void)rpc;
    restore->done(restore, CO_UNSUPPORTED);
}
