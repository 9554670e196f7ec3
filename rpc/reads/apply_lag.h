/* Does this server miss entries because its disk is full? New reads find that out by themselves. Reads that wait here
 * for a change would wait in vain, because nothing is applied. So they are woken, ask again, and then wait at the
 * leader (rpc/reads/leader_read.h). */
#ifndef COORD_RPC_APPLY_LAG_H
#define COORD_RPC_APPLY_LAG_H

struct rpc;
void apply_lag_tick(struct rpc *rpc); /* loop thread, a few times a second */

#endif
