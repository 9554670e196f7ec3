/* The last look at a command before it goes into the log (node_callbacks.refuse): does the cluster's version have it, and may
 * its requester still send it, and does the rate of clients' writes allow it? A command is judged when it arrives (rpc_may_write); here it is judged anew if access control
 * has changed since, because it may have waited for a leader. */
#ifndef COORD_RPC_JUDGE_H
#define COORD_RPC_JUDGE_H

#include "consensus/node.h"

struct rpc;
struct rpc_reader *judge_reader(
    struct rpc *rpc); /* of the loop thread, for questions about rights; lives as long as the server */
const void *judge_refuse(void *rpc, uint64_t leader, const struct node_proposal *proposal); /* loop thread */

#endif
