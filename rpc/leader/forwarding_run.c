/* The callbacks of forwarding.h in the program: frames go over the links of peers.h, served requests go to the node. */
#include "rpc/leader/forwarding_run.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/forward/forwarding.h"
#include "rpc/leader/leases_run.h"

struct forwarding_run {
    struct rpc *rpc;
    struct node *node; /* NULL: it has ended */
    struct peers *peers;
    struct forwarding *core;
};

static bool reach(void *data, uint64_t peer) {
    struct forwarding_run *run = data;
    return peers_link(run->peers, peer) != NULL;
}

static void send_message(void *data, uint64_t peer, uint8_t type, const ProtobufCMessage *message) {
    struct forwarding_run *run = data;
    struct link *link = peers_link(run->peers, peer);
    if (link) link_tell(link, type, message);
}

/* Asks for a turn of the node, which ends with a flush: questions are asked in such a turn, and answers wait for
 * one. */
static void wake(void *data) {
    struct forwarding_run *run = data;
    if (run->node) node_wake(run->node);
}

static bool knows(void *data, struct slice command) {
    struct forwarding_run *run = data;
    return machine_knows(run->rpc->machine, command);
}

static void command(void *data, struct node_proposal *proposal) {
    struct forwarding_run *run = data;
    if (run->rpc->stopping) { /* the node does not answer any more, and may be gone */
        raft_data_unref(proposal->data);
        proposal->data = NULL;
        proposal->done(proposal, CO_NOLEADER, NULL);
        return;
    }
    node_propose_again(run->node, proposal);
}

static void ask_read(void *data, struct node_read *read) {
    struct forwarding_run *run = data;
    node_read(run->node, read);
}

static void read_answer(void *data, uint64_t context, uint64_t index, int error) {
    struct forwarding_run *run = data;
    node_read_answer(run->node, context, index, error);
}

static void renew_here(void *data, struct rpc_renew *renew) {
    struct forwarding_run *run = data;
    lessor_run_renew_here(run->rpc, renew);
}

struct forwarding_run *forwarding_run_new(struct rpc *rpc, struct node *node, struct peers *peers) {
    struct forwarding_run *run = mem_zalloc(sizeof *run);
    run->rpc = rpc, run->node = node, run->peers = peers;
    struct forwarding_callbacks callbacks = {.data = run,
                                             .reach = reach,
                                             .send = send_message,
                                             .wake = wake,
                                             .knows = knows,
                                             .command = command,
                                             .read = ask_read,
                                             .read_answer = read_answer,
                                             .renew = renew_here};
    run->core = forwarding_new(&callbacks, random_u64() >> 1);
    return run;
}

void forwarding_run_answers(struct forwarding_run *run) { forwarding_woken(run->core); }

void forwarding_run_end(struct forwarding_run *run) {
    run->node = NULL;
    forwarding_run_flush(run);
    forwarding_stop(run->core);
}

void forwarding_run_free(struct forwarding_run *run) {
    forwarding_stop(run->core);
    forwarding_free(run->core);
    free(run);
}

bool forwarding_run_writes(struct forwarding_run *run, uint64_t leader, struct node_proposal *list) {
    return forwarding_writes(run->core, leader, list);
}
bool forwarding_run_read(struct forwarding_run *run, uint64_t leader, uint64_t context, uint64_t term) {
    return forwarding_read(run->core, leader, context, term);
}
bool forwarding_run_renew(struct forwarding_run *run, uint64_t leader, struct rpc_renew *renew) {
    return forwarding_renew(run->core, leader, renew);
}

void forwarding_run_flush(struct forwarding_run *run) {
    forwarding_woken(run->core);
    peers_flush(run->peers);
}

bool forwarding_run_frame(struct forwarding_run *run, uint64_t from, uint8_t type, struct slice payload) {
    return forwarding_frame(run->core, from, type, payload, clock_mono_ms());
}

void forwarding_run_down(struct forwarding_run *run, uint64_t peer) { forwarding_down(run->core, peer); }
void forwarding_run_leader(struct forwarding_run *run, uint64_t leader, bool cut_off) {
    forwarding_leader(run->core, leader, cut_off, clock_mono_ms());
}
