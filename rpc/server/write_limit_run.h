/* limits.cluster_write_rate in the program: rpc/leader/write_limit.h decides. Loop thread. */
#ifndef COORD_RPC_WRITE_LIMIT_RUN_H
#define COORD_RPC_WRITE_LIMIT_RUN_H

#include "rpc/forward/forwarding.h"
#include "rpc/leader/write_limit.h"

struct rpc;
void write_limit_start(struct rpc *rpc, const struct write_limit_config *config);
/* As node_callbacks.refuse: the result of a write that is refused here, NULL if it may go on. */
const void *write_limit_refuse(struct rpc *rpc, uint64_t leader, struct judged *judged);

#endif
