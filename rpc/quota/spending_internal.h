/* Shared by the files of an agent's spending (rpc/quota/spending.h).
 *
 *     spending.c      takes that the spender decides; the loop's side; life
 *     errands.c       requests to the servers and to other agents, whose answers come back on any thread
 *     owners.c        owner mode: the keys that this agent counts, and its messages for that
 *     owner_takes.c   requests with takes in owner mode, perhaps beside others
 *
 * Nothing is sent while the lock is held: requests wait in `outgoing` until it is unlocked. */
#ifndef COORD_RPC_SPENDING_INTERNAL_H
#define COORD_RPC_SPENDING_INTERNAL_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "kv/quota/owning.h"
#include "rpc/api/ask.h"
#include "rpc/quota/spending.h"

#define SPENDING_MS UINT64_C(1000000)

/* -- errands (errands.c) ------------------------------------------------------------------------------------------ */

enum errand_kind {
    ERRAND_ASK,          /* the spender's */
    ERRAND_FOLLOW,       /* a notice, for the spender */
    ERRAND_OWNER_ASK,    /* the owning's */
    ERRAND_OWNER_FOLLOW, /* a notice, for the owning */
    ERRAND_OWNER_LIST,   /* which budgets are in owner mode */
    ERRAND_MESSAGE,      /* to another agent, of the owning */
    ERRAND_TAKE,         /* a take of this agent's client, to its owner */
};
/* A request. Its `done` may come on any thread, and after everything else has ended. */
struct errand {
    struct spending *spending; /* a reference */
    struct errand *next;       /* in spending->arrived, or outgoing */
    struct list link;          /* of a fetch: in spending->fetching; loop thread */
    enum errand_kind kind;
    /* the request */
    const Pb__QuotaAskCommand *command; /* the spender's, or the owning's */
    char *name;                         /* of the budget, for a notice; of the node that is asked */
    struct buffer payload;
    uint64_t message;              /* the owning's number; 0: nobody waits for the outcome */
    struct owned_request *request; /* the request that waits for it; NULL: none (any more). Under the lock */
    /* the outcome */
    int error;
    bool found;
    uint64_t index; /* before the answer: the index to wait after */
    struct buffer record;
    enum owning_reach reach;
    union {
        struct rpc_write write;
        struct rpc_fetch fetch;
        struct rpc_ask ask;
    };
};
/* With the lock held: it is sent when the lock is free again. */
struct errand *errand_add(struct spending *spending, enum errand_kind kind);
void errand_free(struct errand *errand);
/* Without the lock. Fetches: on the loop thread. */
void errands_send(struct errand *outgoing);
/* Loop thread: ends fetches soon. `all`: also those of records that the owning follows. */
void errands_cancel(struct spending *spending, bool all);

/* -- a spending --------------------------------------------------------------------------------------------------- */

/* A service whose instances' agents own keys. */
struct owners_service {
    char *name;
    bool passing; /* an instance on this node passes */
};

struct spending {
    struct rpc *rpc;
    bool (*passes)(void *data, const char *service);
    void *passes_data;
    _Atomic unsigned references; /* the loop's own, and one for each errand */
    uv_async_t wake;
    uv_timer_t timer;

    uv_mutex_t lock; /* for what follows */
    struct spender *spender;
    struct owning *owning;
    struct list parked;  /* spending_take that wait for the spender, the oldest first */
    struct list waiting; /* owned_request that wait for the owning */
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
    bool spender_asks, owning_asks;
    struct owners_service *services; /* sorted; those of budgets in owner mode */
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

static inline void spending_lock(struct spending *spending) { uv_mutex_lock(&spending->lock); }
static inline void spending_unlock(struct spending *spending) { uv_mutex_unlock(&spending->lock); }
/* With the lock held: takes the requests that errands_send shall send. */
struct errand *spending_outgoing(struct spending *spending);

/* With the lock held: the request has its answer (error, answer, rates); it is counted. */
void spending_decided(struct spending *spending, const struct spending_take *take);
/* With the lock held: it is tried again when the spender wakes it, and for the last time after SPENDING_WAIT_MS. */
void spending_park(struct spending *spending, struct spending_take *take, uint64_t now_ns);
struct owning_now spending_now(uint64_t now_ns);
void spending_release(struct spending *spending); /* a reference */

/* -- owners.c ----------------------------------------------------------------------------------------------------- */

void owners_start(struct spending *spending); /* on the loop thread, as what follows */
void owners_end(struct spending *spending);   /* from now on no other agent is answered */
void owners_look(struct spending *spending);  /* without the lock: checks the health of services */
/* With the lock held: takes the answer of an errand of the owning in. */
void owners_feed(struct spending *spending, struct errand *errand, struct owning_now now);
/* With the lock held: does everything that is due; requests that have their answer go to `answered`. Returns when to
 * look again. */
uint64_t owners_turn(struct spending *spending, struct owning_now now, struct list *answered);
/* With the lock held, while the agent ends: does something remain to be given back? */
bool owners_leave(struct spending *spending, struct owning_now now);

/* -- owner_takes.c; with the lock held ----------------------------------------------------------------------------- */

/* A request that has takes in owner mode. This agent or their owner decides these one after the other; then the spender
 * decides the others together. When one of them all is refused, the takes that owners have counted are given back. */
struct owned_request;
/* NULL: the request has no takes in owner mode, as far as is known. */
struct owned_request *owned_request_of(struct spending *spending, struct spending_take *take, uint64_t now_ns);
/* For a request whose take number `i` the spender knows to be in owner mode. */
struct owned_request *owned_request_at(struct spending_take *take, size_t i, uint64_t now_ns);
/* True: the request has its answer, and is freed. False: it waits for the owning, an owner, or the spender. */
bool owned_try(struct spending *spending, struct owned_request *request, struct owning_now now);
/* As owned_try, for a request that waited for the spender. `last`: it does not wait any more. */
bool owned_try_parked(struct spending *spending, struct spending_take *take, bool last, struct owning_now now);
struct spending_take *owned_request_take(const struct owned_request *request);
/* Takes the answer of a take's owner in. */
bool owned_served(struct spending *spending, struct errand *errand, struct owning_now now);
/* Tries all requests that wait for the owning; with `end` for the last time, and also those that are with their
 * owners. */
void owned_try_waiting(struct spending *spending, bool end, struct owning_now now, struct list *answered);

#endif
