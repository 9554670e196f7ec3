/* Connects rpc/leader/leases.h with the program: loop, timers and other threads' mail. Its state is rpc->leases. Loop
 * thread, unless noted. */
#ifndef COORD_RPC_LEASES_RUN_H
#define COORD_RPC_LEASES_RUN_H

#include "rpc/core/rpc_internal.h"

/* The updates for the machine's configuration, which are this room's; they wake the loop, so nothing may be applied
 * before lessor_run_start. */
struct expiry_updates *lessor_run_new(struct rpc *rpc);
void lessor_run_start(struct rpc *rpc); /* uses machine and loop_reader */
void lessor_run_role(struct rpc *rpc, uint64_t term, bool ready);
void lessor_run_replaced(struct rpc *rpc); /* any thread, after the start: the leases are to be read again */
void lessor_run_stop(struct rpc *rpc);
/* Closes LESSOR_RUN_HANDLES handles, whose data is `rpc`; `closed` is called for each. */
#define LESSOR_RUN_HANDLES 2
void lessor_run_close(struct rpc *rpc, uv_close_cb closed);
void lessor_run_free(struct rpc *rpc);                               /* they are closed, or were never started */
void lessor_run_renew(struct rpc *rpc, struct rpc_renew *renew);     /* any thread: rpc_role.renew */
void lessor_run_renew_now(struct rpc *rpc, struct rpc_renew *renew); /* the same on the loop thread: no wake-up */
/* Answers CO_NOLEADER when this server does not lead. */
void lessor_run_renew_here(struct rpc *rpc, struct rpc_renew *renew);

#endif
