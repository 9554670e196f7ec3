/* The callbacks of forwarding.h in the program: frames go over the links of peers.h, served requests go to the node. */
#include "rpc/leader/forward.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/forward/forwarding.h"
#include "rpc/leader/leases.h"

struct forward {
    struct rpc *rpc;
    struct node *node; /* NULL: it has ended */
    struct peers *peers;
    struct forwarding *core;
};

static bool reach(void *data, uint64_t peer) {
    struct forward *forward = data;
    return peers_link(forward->peers, peer) != NULL;
}

static void send_message(void *data, uint64_t peer, uint8_t type, const ProtobufCMessage *message) {
    struct forward *forward = data;
    struct link *link = peers_link(forward->peers, peer);
    if (link) link_tell(link, type, message);
}

/* Asks for a turn of the node, which ends with a flush: questions are asked in such a turn, and answers wait for
 * one. */
static void wake(void *data) {
    struct forward *forward = data;
    if (forward->node) node_wake(forward->node);
}

static bool knows(void *data, struct slice command) {
    struct forward *forward = data;
    return machine_knows(forward->rpc->machine, command);
}

static void command(void *data, struct node_proposal *proposal) {
    struct forward *forward = data;
    if (forward->rpc->stopping) { /* the node does not answer any more, and may be gone */
        raft_data_unref(proposal->data);
        proposal->data = NULL;
        proposal->done(proposal, CO_NOLEADER, NULL);
        return;
    }
    node_propose_again(forward->node, proposal);
}

static void ask_read(void *data, struct node_read *read) {
    struct forward *forward = data;
    node_read(forward->node, read);
}

static void read_answer(void *data, uint64_t context, uint64_t index, int error) {
    struct forward *forward = data;
    node_read_answer(forward->node, context, index, error);
}

static void renew_here(void *data, struct rpc_renew *renew) {
    struct forward *forward = data;
    leases_renew_here(forward->rpc, renew);
}

struct forward *forward_new(struct rpc *rpc, struct node *node, struct peers *peers) {
    struct forward *forward = mem_zalloc(sizeof *forward);
    forward->rpc = rpc, forward->node = node, forward->peers = peers;
    struct forwarding_callbacks callbacks = {.data = forward,
                                             .reach = reach,
                                             .send = send_message,
                                             .wake = wake,
                                             .knows = knows,
                                             .command = command,
                                             .read = ask_read,
                                             .read_answer = read_answer,
                                             .renew = renew_here};
    forward->core = forwarding_new(&callbacks, random_u64() >> 1);
    return forward;
}

void forward_answers(struct forward *forward) { forwarding_woken(forward->core); }

void forward_end(struct forward *forward) {
    forward->node = NULL;
    forward_flush(forward);
    forwarding_stop(forward->core);
}

void forward_free(struct forward *forward) {
    forwarding_stop(forward->core);
    forwarding_free(forward->core);
    free(forward);
}

bool forward_writes(struct forward *forward, uint64_t leader, struct node_proposal *list) {
    return forwarding_writes(forward->core, leader, list);
}
bool forward_read(struct forward *forward, uint64_t leader, uint64_t context, uint64_t term) {
    return forwarding_read(forward->core, leader, context, term);
}
bool forward_renew(struct forward *forward, uint64_t leader, struct rpc_renew *renew) {
    return forwarding_renew(forward->core, leader, renew);
}

void forward_flush(struct forward *forward) {
    forwarding_woken(forward->core);
    peers_flush(forward->peers);
}

bool forward_frame(struct forward *forward, uint64_t from, uint8_t type, struct slice payload) {
    return forwarding_frame(forward->core, from, type, payload, clock_mono_ms());
}

void forward_down(struct forward *forward, uint64_t peer) { forwarding_down(forward->core, peer); }
void forward_leader(struct forward *forward, uint64_t leader, bool cut_off) {
    forwarding_leader(forward->core, leader, cut_off, clock_mono_ms());
}
