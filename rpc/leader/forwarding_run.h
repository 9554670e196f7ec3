/* Connects rpc/forward/forwarding.h, which has the rules, with the program. Loop thread only. */
#ifndef COORD_RPC_FORWARDING_RUN_H
#define COORD_RPC_FORWARDING_RUN_H

#include "consensus/node.h"
#include "rpc/api/rpc.h"
#include "rpc/cluster/peers.h"

struct forwarding_run;
struct forwarding_run *forwarding_run_new(struct rpc *rpc, struct node *node, struct peers *peers);
/* The node has ended: sends its last answers to others, and ends requests under way with CO_UNKNOWN_OUTCOME. */
void forwarding_run_end(struct forwarding_run *run);
void forwarding_run_free(struct forwarding_run *run); /* nobody serves others any more */

/* For node_callbacks. */
bool forwarding_run_writes(struct forwarding_run *run, uint64_t leader, struct node_proposal *list);
bool forwarding_run_read(struct forwarding_run *run, uint64_t leader, uint64_t context, uint64_t term);
/* A renewal; `renew->done` is called with the leader's answer. False: cannot be reached now. */
bool forwarding_run_renew(struct forwarding_run *run, uint64_t leader, struct rpc_renew *renew);
/* outside of a turn of the node: sends answers, and renewals gathered for one frame */
void forwarding_run_flush(struct forwarding_run *run);
/* queues the answers to others; called with the flush that ends each turn of the node */
void forwarding_run_answers(struct forwarding_run *run);

/* false: another frame, or one that does not decode */
bool forwarding_run_frame(struct forwarding_run *run, uint64_t from, uint8_t type, struct slice payload);
void forwarding_run_down(struct forwarding_run *run, uint64_t peer);
void forwarding_run_leader(struct forwarding_run *run, uint64_t leader, bool cut_off); /* a few times a second */

#endif
