/* Connects rpc/forward/forwarding.h, which has the rules, with the program. Loop thread only. */
#ifndef COORD_RPC_FORWARD_H
#define COORD_RPC_FORWARD_H

#include "consensus/node.h"
#include "rpc/api/rpc.h"
#include "rpc/cluster/peers.h"

struct forward;
struct forward *forward_new(struct rpc *rpc, struct node *node, struct peers *peers);
/* The node has ended: sends its last answers to others, and ends requests under way with CO_UNKNOWN_OUTCOME. */
void forward_end(struct forward *forward);
void forward_free(struct forward *forward); /* nobody serves others any more */

/* For node_callbacks. */
bool forward_writes(struct forward *forward, uint64_t leader, struct node_proposal *list);
bool forward_read(struct forward *forward, uint64_t leader, uint64_t context, uint64_t term);
/* A renewal; `renew->done` is called with the leader's answer. False: cannot be reached now. */
bool forward_renew(struct forward *forward, uint64_t leader, struct rpc_renew *renew);
/* outside of a turn of the node: sends answers, and renewals gathered for one frame */
void forward_flush(struct forward *forward);
/* queues the answers to others; called with the flush that ends each turn of the node */
void forward_answers(struct forward *forward);

/* false: another frame, or one that does not decode */
bool forward_frame(struct forward *forward, uint64_t from, uint8_t type, struct slice payload);
void forward_down(struct forward *forward, uint64_t peer);
void forward_leader(struct forward *forward, uint64_t leader, bool cut_off); /* a few times a second */

#endif
