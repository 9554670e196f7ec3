/* The program's edge of rpc/forwarding.h, where the rules stand. Loop thread only. */
#ifndef COORD_RPC_FORWARD_H
#define COORD_RPC_FORWARD_H

#include "consensus/node.h"
#include "rpc/peers.h"
#include "rpc/rpc.h"

struct forward;
struct forward *forward_new(struct rpc *rpc, uv_loop_t *loop, struct node *node, struct peers *peers);
/* Everything pending is answered with CO_UNKNOWN_OUTCOME. `closed` is called from the loop. */
void forward_end(struct forward *forward);        /* after the node: what is under way ends (CO_UNKNOWN_OUTCOME) */
void forward_stop(struct forward *forward, void (*closed)(void *data), void *data);

/* For node_callbacks. */
bool forward_writes(struct forward *forward, uint64_t leader, struct node_proposal *list);
bool forward_read(struct forward *forward, uint64_t leader, uint64_t context);
/* A renewal; `renew->done` is called with the leader's answer. False: cannot be reached now. */
bool forward_renew(struct forward *forward, uint64_t leader, struct rpc_renew *renew);
void forward_flush(struct forward *forward);           /* renewals of one turn go out together */

void forward_frame(struct forward *forward, uint64_t from, uint8_t type, struct slice payload);
void forward_down(struct forward *forward, uint64_t peer);
void forward_leader(struct forward *forward, uint64_t leader, bool cut_off);      /* a few times a second */

#endif
