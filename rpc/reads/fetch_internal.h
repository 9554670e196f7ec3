/* Inside the fetch service: fetch.c (life, boxes, the thread), fetch_wait.c (what is done with a fetch, and
 * waiting), fetch_confirm.c (confirmations), fetch_read.c (reading, answers), fetch_large.c (reads on the pool),
 * leader_read.c (reads by the leader). Included by fetch*.c only. Everything is the fetch thread's unless said
 * otherwise. */
#ifndef COORD_RPC_FETCH_INTERNAL_H
#define COORD_RPC_FETCH_INTERNAL_H

#include "base/check.h"
#include "base/list.h"
#include "base/random.h"
#include "rpc/reads/fetch.h"

#define FETCH_WALK_MOST   (1u << 20)   /* bytes of records that the thread reads at a time; more is for the pool */
#define FETCH_RESULT_MOST (512u << 20) /* packed */
#define FETCH_TURN_MOST   1024         /* taken from a box in one turn */
#define FETCH_SLOTS       256
#define FETCH_KEPT_MOST   (32u << 20) /* bytes of answers that a turn keeps for those who ask the same */

enum fetch_flag { FETCH_NEW = 1, FETCH_FIRED = 2, FETCH_CANCELLED = 4 };

/* rpc_fetch.impl. */
struct fetch {
    struct fetches *fetches;
    /* Under the lock, until `done`. */
    struct list box; /* arrived or fired; in none: by itself */
    uint8_t flags;   /* enum fetch_flag: since it was taken out of a box */
    bool over;       /* `done` has been, or is being called */

    bool parked, expired, again;      /* again: it fired while it was being read on the pool */
    bool building;                    /* in the queue for the pool, or there */
    bool seen, seen_found, seen_none; /* what the client has, when that is known */
    uint32_t seen_size;
    uint8_t seen_digest[16];
    uint32_t place; /* in the heap, from 1; 0: not in it */
    uint32_t request_size;
    uint64_t deadline_ms; /* the end of the wait; 0: it was not parked yet, nor with the leader */
    struct list all;
    struct list queue; /* waits for a confirmation, to be read, or for the pool */
    struct watch_waiter waiter;
    struct leader_read *far; /* it is with the leader: neither parked nor in a queue */
    uint8_t *request;        /* packed; `room`, or its own */
    uint8_t room[96];
};
_Static_assert(sizeof(struct fetch) <= sizeof(((struct rpc_fetch *)0)->impl), "rpc_fetch.impl is too small");

static inline struct fetch *fetch_of(struct rpc_fetch *outer) { return (struct fetch *)(void *)outer->impl; }
static inline struct rpc_fetch *fetch_outer(struct fetch *fetch) {
    return CONTAINER_OF((char *)fetch, struct rpc_fetch, impl);
}

/* What a read gave; shared by those who asked the same. */
struct fetch_answer {
    unsigned references;
    const struct query_type *type;
    uint64_t generation, index; /* of the thing before the read; of the result, not below the floor then */
    bool found, none, digested;
    uint8_t digest[16];
    size_t size, request_size;
    uint8_t bytes[]; /* the records, then the request */
};

struct fetch_job;
struct fetches {
    struct rpc *rpc;
    uv_mutex_t lock;
    /* Under the lock. */
    struct list arrived, fired;    /* fired: can be many, so they do not keep others waiting */
    struct list gates_open;        /* confirmations that came */
    unsigned gates;                /* on their way */
    bool started, stopping, ended; /* ended: nobody may wake the thread any more */

    uv_thread_t thread;
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t timer;
    struct rpc_reader *reader;
    struct arena arena;
    struct rng rng;
    struct list all;
    struct list unasked, confirming; /* to be read at the end of the turn: as they are, once confirmed */
    struct list large;               /* for the pool */
    struct fetch_job *job;           /* there */
    struct fetch **heap;             /* of those that are parked, by deadline */
    uint32_t heap_count, heap_room;
    uint64_t timer_ms; /* it is set for; 0: not */
    unsigned parked;
    struct fetch_answer *slots[FETCH_SLOTS];
    size_t kept_bytes;
    bool kept;
    struct leader_reads *fars;
};

/* -- fetch.c -- */
void fetch_wake(struct fetches *fetches); /* under the lock. Another turn comes */
void fetch_finish(struct fetch *fetch, int error, const struct rpc_fetched *fetched);
void fetch_turn_end(struct fetches *fetches); /* at the end of each callback of the loop */
void fetch_try_end(struct fetches *fetches);  /* stopping, and the pool may be done */

/* -- fetch_wait.c -- */
void fetch_wish(struct fetch *fetch);  /* to be read at the end of the turn */
void fetch_again(struct fetch *fetch); /* parked: the same, once */
void fetch_confirmed(struct fetch *fetch, int error);
/* `thing`: what it depends on. The fetch may be gone afterwards. */
void fetch_deliver(struct fetch *fetch, struct fetch_answer *answer, struct watch_thing thing);
void fetch_unpark(struct fetch *fetch);
void fetch_due(struct fetches *fetches);                /* those whose time is up */
uint64_t fetch_next_due(const struct fetches *fetches); /* UINT64_MAX: none */

/* -- fetch_confirm.c -- */
void fetch_confirm_all(struct fetches *fetches);  /* what is in `confirming` shares one */
void fetch_confirm_open(struct fetches *fetches); /* those that came */

/* -- fetch_read.c -- */
/* Any thread with its own reader. `limit` 0: none, else CO_AGAIN beyond it. `thing` lies in the arena. */
int fetch_read(struct rpc *rpc, struct rpc_reader *reader, struct arena *arena, const struct query_type *type,
               struct slice request, size_t limit, struct watch_thing *thing, struct fetch_answer **answer);
struct slice fetch_request(const struct fetch *fetch);
const uint8_t *fetch_digest(struct fetch_answer *answer);
bool fetch_asks(struct fetch *fetch, const struct fetch_answer *answer); /* just this? */
void fetch_answer_drop(struct fetch_answer *answer);
struct fetch_answer *fetch_kept(struct fetch *fetch); /* of this turn; NULL: none */
void fetch_keep(struct fetches *fetches, struct fetch_answer *answer);
void fetch_kept_clear(struct fetches *fetches);
struct watch_thing fetch_thing(const struct query_type *type, struct slice request, struct arena *arena);

/* -- fetch_large.c -- */
void fetch_large_add(struct fetch *fetch);
void fetch_large_next(struct fetches *fetches);
void fetch_large_forget(struct fetch *fetch);
void fetch_large_stop(struct fetches *fetches);

/* -- leader_read.c -- */
void leader_read_begin(struct fetch *fetch);    /* the fetch may be gone afterwards */
void leader_read_drop(struct fetch *fetch);     /* it ends */
void leader_read_back(struct fetches *fetches); /* those that came back */
void leader_read_new(struct fetches *fetches);
void leader_read_stop(struct fetches *fetches); /* loop thread; the fetch thread has ended */
void leader_read_free(struct fetches *fetches);

#endif
