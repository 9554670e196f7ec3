/* Does this server miss what its full disk has no room for? Reads that come find out by themselves; those that wait
 * here for a change would wait in vain, since nothing is applied: they are woken, ask, and are the leader's from
 * then on (rpc/reads/leader_read.h). */
#ifndef COORD_RPC_APPLY_LAG_H
#define COORD_RPC_APPLY_LAG_H

struct rpc;
void apply_lag_tick(struct rpc *rpc); /* loop thread, a few times a second */

#endif
