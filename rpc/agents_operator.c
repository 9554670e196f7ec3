/* What operators ask and want at client agents: done here as if they had come to this server itself. Operators'
 * wishes are all answered before the agents' connections are stopped (rpc/server.c), so nothing of this outlives
 * `agents`. */
#include <stdlib.h>

#include "rpc/frame_unpack.h"
#include "rpc/operator_frames.h"
#include "rpc/rpc_internal.h"

struct agent_wish {
    struct rpc *rpc;
    uint64_t agent, number;
    struct rpc_ask_cluster ask;
    struct rpc_change change;
};

/* Loop thread, as what follows. */
static void cluster_known(struct rpc_ask_cluster *ask, int error, const struct rpc_cluster_state *state) {
    struct agent_wish *wish = CONTAINER_OF(ask, struct agent_wish, ask);
    struct arena arena = {0};
    Pb__PeerClusterAnswer answer = PB__PEER_CLUSTER_ANSWER__INIT;
    answer.number = wish->number, answer.outcome = (uint32_t)error;
    if (error == CO_OK) operator_state_pack(state, &arena, &answer);
    agents_tell(wish->rpc->agents, wish->agent, PEER_CLUSTER_ANSWER, &answer.base);
    arena_free(&arena);
    free(wish);
}

static void changed(struct rpc_change *change, int error) {
    struct agent_wish *wish = CONTAINER_OF(change, struct agent_wish, change);
    Pb__PeerChangeAnswer answer = PB__PEER_CHANGE_ANSWER__INIT;
    answer.number = wish->number, answer.outcome = (uint32_t)error;
    agents_tell(wish->rpc->agents, wish->agent, PEER_CHANGE_ANSWER, &answer.base);
    free(wish);
}

static struct agent_wish *wish_new(struct rpc *rpc, uint64_t agent, uint64_t number) {
    struct agent_wish *wish = mem_zalloc(sizeof *wish);
    wish->rpc = rpc, wish->agent = agent, wish->number = number;
    wish->ask.done = cluster_known, wish->change.done = changed;
    return wish;
}

bool agents_operator_frame(struct rpc *rpc, uint64_t agent, uint8_t type, struct slice payload) {
    if (type == PEER_CLUSTER) {
        Pb__PeerCluster *asked = frame_unpack(&pb__peer_cluster__descriptor, payload, NULL);
        if (!asked) return false;
        struct agent_wish *wish = wish_new(rpc, agent, asked->number);
        wish->ask.of_leader = !asked->as_known;
        if (rpc->stopping) cluster_known(&wish->ask, CO_CLOSED, NULL);
        else rpc_ask_cluster(rpc, &wish->ask);
        frame_drop(asked);
        return true;
    }
    Pb__PeerChange *wanted = type == PEER_CHANGE ? frame_unpack(&pb__peer_change__descriptor, payload, NULL) : NULL;
    if (!wanted) return false;
    struct agent_wish *wish = wish_new(rpc, agent, wanted->number);
    int rv = rpc->stopping ? CO_CLOSED : operator_change_unpack(wanted, &wish->change);
    if (rv != CO_OK) changed(&wish->change, rv);
    else rpc_change(rpc, &wish->change);
    frame_drop(wanted);
    return true;
}
