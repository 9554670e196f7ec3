/* Shared by the files that act for an agent's quotas (rpc/quota/spender_run.h).
 *
 *     spender_run.c      takes that the spender decides; the loop's side; life
 *     errands.c          requests to the servers and to other agents, whose answers come back on any thread
 *     owner_run.c        owner mode: the keys that this agent counts, and its messages for that
 *     owner_run_takes.c  requests with takes in owner mode, perhaps beside others
 *
 * Nothing is sent while the lock is held: requests wait in `outgoing` until it is unlocked. */
#ifndef COORD_RPC_SPENDER_RUN_INTERNAL_H
#define COORD_RPC_SPENDER_RUN_INTERNAL_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "kv/quota_owner/owner.h"
#include "rpc/api/ask.h"
#include "rpc/quota/spender_run.h"

#define SPENDER_RUN_MS UINT64_C(1000000)

/* -- errands (errands.c) ------------------------------------------------------------------------------------------ */

enum errand_kind {
    ERRAND_ASK,          /* the spender's */
    ERRAND_FOLLOW,       /* a notice, for the spender */
    ERRAND_OWNER_ASK,    /* of `owner` */
    ERRAND_OWNER_FOLLOW, /* a notice, for `owner` */
    ERRAND_OWNER_LIST,   /* which budgets are in owner mode */
    ERRAND_MESSAGE,      /* to another agent, of `owner` */
    ERRAND_TAKE,         /* a take of this agent's client, to its owner */
};
/* A request. Its `done` may come on any thread, and after everything else has ended. */
struct errand {
    struct spender_run *run; /* a reference */
    struct errand *next;     /* in run->arrived, or outgoing */
    struct list link;        /* of a fetch: in run->fetching; loop thread */
    enum errand_kind kind;
    /* the request */
    const Pb__QuotaAskCommand *command; /* the spender's, or the owner's */
    char *name;                         /* of the budget, for a notice; of the node that is asked */
    struct buffer payload;
    uint64_t message;              /* the owner's number; 0: nobody waits for the outcome */
    struct owned_request *request; /* the request that waits for it; NULL: none (any more). Under the lock */
    /* the outcome */
    int error;
    bool found;
    uint64_t index; /* before the answer: the index to wait after */
    struct buffer record;
    enum owner_reach reach;
    union {
        struct rpc_write write;
        struct rpc_fetch fetch;
        struct rpc_ask ask;
    };
};
/* With the lock held: it is sent when the lock is free again. */
struct errand *errand_add(struct spender_run *run, enum errand_kind kind);
void errand_free(struct errand *errand);
/* Without the lock. Fetches: on the loop thread. */
void errands_send(struct errand *outgoing);
/* Loop thread: ends fetches soon. `all`: also those of records that the owner follows. */
void errands_cancel(struct spender_run *run, bool all);

/* -- the struct -------------------------------------------------------------------------------------------------- */

/* A service whose instances' agents own keys. */
struct owner_run_service {
    char *name;
    bool passing; /* an instance on this node passes */
};

struct spender_run {
    struct rpc *rpc;
    bool (*passes)(void *data, const char *service);
    void *passes_data;
    _Atomic unsigned references; /* the loop's own, and one for each errand */
    uv_async_t wake;
    uv_timer_t timer;

    uv_mutex_t lock; /* for what follows */
    struct spender *spender;
    struct owner *owner;
    struct list parked;  /* spender_run_take that wait for the spender, the oldest first */
    struct list waiting; /* owned_request that wait for `owner` */
    struct list asking;  /* owned_request whose take is with its owner */
    struct errand *arrived, **arrived_last;
    struct errand *outgoing, **outgoing_last;
    /* Since they were added to the metrics. sent_on, stale: takes that went to their owner; takes that have to go
     * again. */
    uint64_t allowed, refused, waited, asked, sent_on, stale;
    uint64_t due_ns; /* the loop looks then, or earlier */
    bool taken;      /* since the loop looked last */
    bool watched;    /* the loop looks again within PACE_NS, or has been woken */
    bool hurry, leaving, closed;

    /* Loop thread. */
    struct list fetching; /* errands */
    bool spender_asks, owner_asks;
    struct owner_run_service *services; /* sorted; those of budgets in owner mode */
    size_t service_count;
    Pb__QuotaOwnedResult *owned; /* the last list; NULL: none has come */
    struct arena owned_arena;
    bool listing; /* the list is being fetched */
    bool relist;  /* the list is new, and the health of its services was not checked yet */
    uint64_t list_index, list_due_ns;
    uint64_t leave_by_ns;
    void (*left)(void *data);
    void *left_data;
    void (*stopped)(void *data);
    void *stopped_data;
    unsigned closing;
};

static inline void spender_run_lock(struct spender_run *run) { uv_mutex_lock(&run->lock); }
static inline void spender_run_unlock(struct spender_run *run) { uv_mutex_unlock(&run->lock); }
/* With the lock held: takes the requests that errands_send shall send. */
struct errand *spender_run_outgoing(struct spender_run *run);

/* With the lock held: the request has its answer (error, answer, rates); it is counted. */
void spender_run_decided(struct spender_run *run, const struct spender_run_take *take);
/* With the lock held: it is tried again when the spender wakes it, and for the last time after SPENDER_RUN_WAIT_MS. */
void spender_run_park(struct spender_run *run, struct spender_run_take *take, uint64_t now_ns);
struct owner_now spender_run_now(uint64_t now_ns);
void spender_run_release(struct spender_run *run); /* a reference */

/* -- owner_run.c -------------------------------------------------------------------------------------------------- */

void owner_run_start(struct spender_run *run); /* on the loop thread, as what follows */
void owner_run_end(struct spender_run *run);   /* from now on no other agent is answered */
void owner_run_look(struct spender_run *run);  /* without the lock: checks the health of services */
/* With the lock held: takes the answer of an errand of the owner in. */
void owner_run_feed(struct spender_run *run, struct errand *errand, struct owner_now now);
/* With the lock held: does everything that is due; requests that have their answer go to `answered`. Returns when to
 * look again. */
uint64_t owner_run_turn(struct spender_run *run, struct owner_now now, struct list *answered);
/* With the lock held, while the agent ends: does something remain to be given back? */
bool owner_run_leave(struct spender_run *run, struct owner_now now);

/* -- owner_run_takes.c; with the lock held ------------------------------------------------------------------------- */

/* A request that has takes in owner mode. This agent or their owner decides these one after the other; then the spender
 * decides the others together. When one of them all is refused, the takes that owners have counted are given back. */
struct owned_request;
/* NULL: the request has no takes in owner mode, as far as is known. */
struct owned_request *owned_request_of(struct spender_run *run, struct spender_run_take *take, uint64_t now_ns);
/* For a request whose take number `i` the spender knows to be in owner mode. */
struct owned_request *owned_request_at(struct spender_run_take *take, size_t i, uint64_t now_ns);
/* True: the request has its answer, and is freed. False: it waits for `owner`, the agent that owns its key, or the spender. */
bool owned_try(struct spender_run *run, struct owned_request *request, struct owner_now now);
/* As owned_try, for a request that waited for the spender. `last`: it does not wait any more. */
bool owned_try_parked(struct spender_run *run, struct spender_run_take *take, bool last, struct owner_now now);
struct spender_run_take *owned_request_take(const struct owned_request *request);
/* Takes the answer of a take's owner in. */
bool owned_served(struct spender_run *run, struct errand *errand, struct owner_now now);
/* Tries all requests that wait for the owner; with `end` for the last time, and also those that are with their
 * owners. */
void owned_try_waiting(struct spender_run *run, bool end, struct owner_now now, struct list *answered);

#endif
