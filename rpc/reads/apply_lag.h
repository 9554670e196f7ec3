/* Does this server miss entries because its disk is full? New reads find that out by themselves. Reads that wait here
 * for a change would wait in vain, because nothing is applied. So they are woken, ask again, and then wait at the
 * leader (rpc/reads/leader_read.h). */
#ifndef COORD_RPC_APPLY_LAG_H
#define COORD_RPC_APPLY_LAG_H

/* Loop thread. */
struct rpc;
struct apply_lag;
struct apply_lag *apply_lag_new(struct rpc *rpc);
void apply_lag_tick(struct apply_lag *behind); /* a few times a second */
void apply_lag_free(struct apply_lag *behind); /* the node has stopped */

#endif
