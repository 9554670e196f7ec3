/* Runs an agent's two sides of quotas (kv/quota/spender.h, and for budgets in owner mode kv/quota_owner/owner.h): their
 * clock, their asks (rpc_submit), the records that they follow (rpc_fetch), their messages to other agents (rpc_ask),
 * takes of any thread, and takes that wait for an answer.
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

#define QUOTA_PRIORITY        5    /* of an agent's asks, unless it is configured otherwise */
#define SPENDER_RUN_WAIT_MS   1000 /* a take waits so long for the servers; then the agent decides by what it knows */
#define SPENDER_RUN_LEAVE_MS  1000 /* the most time for giving back when the agent ends, besides handing over keys */
#define SPENDER_RUN_NODE_MOST 512

struct spender_run_config {
    const char *node;  /* copied */
    uint32_t priority; /* of its asks: 0 to 9 */
    /* Has this node a passing instance of the service? Then its agent owns keys of budgets in owner mode that name it.
     * On the loop, without the lock; short. NULL: it owns none, and answers no other agent; otherwise at most one
     * spender_run of an rpc may have it, and it has to be started before other agents ask. */
    bool (*passes)(void *data, const char *service);
    void *passes_data;
};

struct spender_run;
/* Loop thread. `rpc` has to live until spender_run_stop has called `stopped`. */
struct spender_run *spender_run_start(uv_loop_t *loop, struct rpc *rpc, const struct spender_run_config *config);
/* Loop thread: the process ends. From now on takes do not wait, and those that wait are answered. */
void spender_run_hurry(struct spender_run *run); /* accepts NULL */
/* Loop thread: gives back everything that it holds, for SPENDER_RUN_LEAVE_MS at most; takes end with CO_CLOSED from now
 * on. Then calls `left` on the loop, once. Call it before the node leaves the catalog, because the leases would end
 * with the node. With NULL `left` is called at once. */
void spender_run_leave(struct spender_run *run, void (*left)(void *data), void *data);
/* Loop thread, when nobody calls spender_run_take any more: the same, unless it was done; then calls `stopped` on the
 * loop, and `run` is gone. Requests that are still on their way end with the rpc. With NULL `stopped` is called at
 * once. */
void spender_run_stop(struct spender_run *run, void (*stopped)(void *data), void *data);

/* Loop thread: the answers of `passes` may have changed. Accepts NULL. */
void spender_run_health_changed(struct spender_run *run);

/* One request. The caller keeps it until it has its answer. */
struct owned_request;
struct spender_run_take {
    /* in */
    const struct spender_take *takes;
    size_t count;
    /* Once, after CO_AGAIN: `error` and the members below are set. On the loop; short: hand over to your own thread. */
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

/* The owner of a key, as far as this agent knows (owner_look). False: it does not know such a budget in owner mode; a
 * take of n = 0 makes it known, once it is answered. Any thread. */
struct spender_run_view {
    struct owner_view view; /* its owner points to `owner` below */
    bool owned;
    char owner[SPENDER_RUN_NODE_MOST + 1];
};
bool spender_run_look(struct spender_run *run, struct slice name, struct slice key, struct spender_run_view *out);

#endif
