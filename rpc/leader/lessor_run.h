/* Connects rpc/leader/lessor.h with the program: loop, timers and other threads' mail. Loop thread, unless noted. */
#ifndef COORD_RPC_LESSOR_RUN_H
#define COORD_RPC_LESSOR_RUN_H

#include "rpc/core/rpc_internal.h"

void lessor_run_start(struct rpc *rpc);
void lessor_run_role(struct rpc *rpc, uint64_t term, bool ready);
void lessor_run_stop(struct rpc *rpc);
void lessor_run_free(struct rpc *rpc);
void lessor_run_wake_cb(uv_async_t *async);
void lessor_run_timer_cb(uv_timer_t *timer);
void lessor_run_updates_wake(void *data);                            /* any thread */
void lessor_run_renew(struct rpc *rpc, struct rpc_renew *renew);     /* any thread: rpc_role.renew */
void lessor_run_renew_now(struct rpc *rpc, struct rpc_renew *renew); /* the same on the loop thread: no wake-up */
/* Answers CO_NOLEADER when this server does not lead. */
void lessor_run_renew_here(struct rpc *rpc, struct rpc_renew *renew);

#endif
