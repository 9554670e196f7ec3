/* Connects rpc/leader/lessor.h with the program: loop, timers and other threads' mail. Loop thread, unless noted. */
#ifndef COORD_RPC_LEASES_H
#define COORD_RPC_LEASES_H

#include "rpc/core/rpc_internal.h"

void leases_start(struct rpc *rpc);
void leases_role(struct rpc *rpc, uint64_t term, bool ready);
void leases_stop(struct rpc *rpc);
void leases_free(struct rpc *rpc);
void leases_wake_cb(uv_async_t *async);
void leases_timer_cb(uv_timer_t *timer);
void leases_updates_wake(void *data);                            /* any thread */
void leases_renew(struct rpc *rpc, struct rpc_renew *renew);     /* any thread: rpc_role.renew */
void leases_renew_now(struct rpc *rpc, struct rpc_renew *renew); /* the same on the loop thread: no wake-up */
/* Answers CO_NOLEADER when this server does not lead. */
void leases_renew_here(struct rpc *rpc, struct rpc_renew *renew);

#endif
