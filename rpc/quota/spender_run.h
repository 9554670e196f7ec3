/* Puts an agent's two sides of quotas (kv/quota/spender.h, and for budgets in owner mode kv/quota_owner/owner.h) to work: their
 * clock, their asks (rpc_submit), what they follow (rpc_fetch), what they say to other agents (rpc_ask), takes of any
 * thread, and those that wait for an answer.
 *
 * Servers and client agents alike have one. A lock guards both sides. A take that the agent can answer by itself costs
 * that lock and nothing else; one that has to wait is tried again on the loop when an answer is there. */
#ifndef COORD_RPC_SPENDER_RUN_H
#define COORD_RPC_SPENDER_RUN_H

#include <uv.h>

#include "base/list.h"
#include "kv/quota/spender.h"
#include "kv/quota_owner/owner.h"
#include "rpc/api/rpc.h"

#define QUOTA_PRIORITY      5    /* of an agent's asks, unless it is configured otherwise */
#define SPENDER_RUN_WAIT_MS 1000 /* how long a take waits for the servers; then what the agent knows decides */
#define SPENDER_RUN_LEAVE_MS \
    1000 /* how long giving back takes at most, when the agent ends; beside handing over keys */
#define SPENDER_RUN_NODE_MOST 512

struct spender_run_config {
    const char *node;  /* copied */
    uint32_t priority; /* of its asks: 0 to 9 */
    /* Has this node a passing instance of the service? Then its agent owns keys of budgets in owner mode that name it. On
     * the loop, without the lock; short. NULL: it owns none, and answers no other agent; else at most one spender_run of an
     * rpc has it, which is started before anybody asks. */
    bool (*passes)(void *data, const char *service);
    void *passes_data;
};

struct spender_run;
/* Loop thread. `rpc` outlives what comes after spender_run_stop's `stopped`, not more. */
struct spender_run *spender_run_start(uv_loop_t *loop, struct rpc *rpc, const struct spender_run_config *config);
/* Loop thread: the process ends. Takes wait no more from now on, and those that wait are answered. */
void spender_run_hurry(struct spender_run *run); /* accepts NULL */
/* Loop thread: gives back what it holds, for SPENDER_RUN_LEAVE_MS at most; takes end with CO_CLOSED from now on. Then `left`,
 * on the loop, once. To be done before the node leaves the catalog, because the leases would end with it. NULL: at
 * once. */
void spender_run_leave(struct spender_run *run, void (*left)(void *data), void *data);
/* Loop thread, when nobody calls spender_run_take any more: the same, unless it was done, then `stopped`, on the loop;
 * `run` is gone. What is still on its way then ends with the rpc. NULL: at once. */
void spender_run_stop(struct spender_run *run, void (*stopped)(void *data), void *data);

/* Loop thread: what `passes` says may have changed. NULL: nothing. */
void spender_run_health_changed(struct spender_run *run);

/* One request. The caller's until its answer is there. */
struct owned_request;
struct spender_run_take {
    /* in */
    const struct spender_take *takes;
    size_t count;
    /* Once, after CO_AGAIN: `error` and what follows are set. On the loop; short: hand over to your own thread. */
    void (*done)(struct spender_run_take *take);
    /* out */
    int error; /* as of spender_take and owner_take, never CO_AGAIN */
    struct spender_answer answer;
    struct spender_rate *rates; /* the caller's room for `count`, or NULL; quota 0: it is not known */
    /* its own */
    struct list link;
    uint64_t deadline_ns;
    struct owned_request *owned;
};
/* Any thread. False: `done` will be called. */
bool spender_run_take(struct spender_run *run, struct spender_run_take *take);

/* Who owns a key, as far as this agent knows (owner_look). False: it does not know such a budget in owner mode; a take of
 * n = 0 that is answered before makes it known. Any thread. */
struct spender_run_view {
    struct owner_view view; /* owner: that of below */
    bool owned;
    char owner[SPENDER_RUN_NODE_MOST + 1];
};
bool spender_run_look(struct spender_run *run, struct slice name, struct slice key, struct spender_run_view *out);

#endif
