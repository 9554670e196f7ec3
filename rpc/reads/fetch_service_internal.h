/* Inside the fetch service: fetch_service.c (life, boxes, the thread), fetch_service_wait.c (deadlines, the end of a read),
 * fetch_service_read.c (reading, answers), leader_read.c (reads by the leader). Included by these only. Only the fetch thread
 * uses these, unless noted otherwise. */
#ifndef COORD_RPC_FETCH_SERVICE_INTERNAL_H
#define COORD_RPC_FETCH_SERVICE_INTERNAL_H

#include "base/check.h"
#include "base/list.h"
#include "base/random.h"
#include "rpc/reads/fetch_service.h"
#include "rpc/reads/read.h"

#define FETCH_RESULT_MOST (512u << 20) /* packed */
#define FETCH_TURN_MOST   1024         /* taken from a box in one turn */
#define FETCH_SLOTS       256
#define FETCH_KEPT_MOST   (32u << 20) /* bytes of answers that a turn keeps for equal requests */

enum fetch_flag { FETCH_NEW = 1, FETCH_FIRED = 2, FETCH_CANCELLED = 4 };

/* rpc_fetch.impl. */
struct fetch {
    /* Under the lock, until `done`. */
    struct list box; /* arrived or fired; alone when it is in none */
    uint8_t flags;   /* enum fetch_flag: what happened since it was taken out of a box */
    bool over;       /* `done` has been, or is being called */

    struct read read;
    uint32_t place; /* in the heap, from 1; 0: not in it */
    uint32_t request_size;
    uint64_t deadline_ms; /* the end of the wait; 0: it was neither parked yet nor with the leader */
    struct list all;
    struct leader_read *leader_read; /* the leader has it: it is neither parked nor waits here */
    uint8_t *request;                /* packed; `room`, or its own */
    uint8_t room[64];
};
_Static_assert(sizeof(struct fetch) <= sizeof(((struct rpc_fetch *)0)->impl), "rpc_fetch.impl is too small");

static inline struct fetch *fetch_of(struct rpc_fetch *outer) { return (struct fetch *)(void *)outer->impl; }
static inline struct rpc_fetch *fetch_outer(struct fetch *fetch) {
    return CONTAINER_OF((char *)fetch, struct rpc_fetch, impl);
}

/* The answer of a read; equal requests share it. */
struct fetch_answer {
    unsigned references;
    const struct query_type *type;
    struct read_answer read; /* its size is that of the records */
    bool found, none, digested;
    uint8_t digest[16];
    char *cause; /* NULL: no read that had waited has asked for it yet */
    size_t request_size;
    uint8_t bytes[]; /* the records, then the request */
};

struct fetch_service {
    struct rpc *rpc;
    uv_mutex_t lock;
    /* Under the lock. */
    struct list arrived, fired;    /* fired: they can be many, and must not keep others waiting */
    bool started, stopping, ended; /* ended: nobody may wake the thread any more */

    struct mailbox posts; /* any thread */

    uv_thread_t thread;
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t timer;
    struct rpc_reader *reader;
    struct read_engine engine;
    struct arena arena, request_arena; /* results; the request of the read in hand */
    const ProtobufCMessage *request;
    struct rng rng;
    struct list all;
    struct fetch **heap; /* of those that are parked, by deadline */
    uint32_t heap_count, heap_room;
    uint64_t timer_ms; /* when the timer is due; 0: it is not set */
    unsigned parked;
    struct fetch_answer *slots[FETCH_SLOTS];
    size_t kept_bytes;
    bool kept;
    struct leader_reads *leader_reads;
};

static inline struct fetch *fetch_of_read(const struct read *read) { return CONTAINER_OF(read, struct fetch, read); }
static inline struct fetch_service *fetch_service_of(const struct fetch *fetch) {
    return CONTAINER_OF(fetch->read.engine, struct fetch_service, engine);
}

/* -- fetch_service.c -- */
void fetch_wake(struct fetch_service *fetches); /* under the lock. Asks for another turn */
void fetch_finish(struct fetch *fetch, int error, const struct rpc_fetched *fetched);

/* -- fetch_service_wait.c: of the read owner -- */
bool fetch_park(struct read *read);
void fetch_unpark(struct read *read);
void fetch_answer(struct read *read, struct read_answer *answer, uint64_t least);
void fetch_fail(struct read *read, int error);
void fetch_due(struct fetch_service *fetches);                /* ends the waits whose time is up */
uint64_t fetch_next_due(const struct fetch_service *fetches); /* UINT64_MAX: none */

/* -- fetch_service_read.c: of the read owner -- */
struct slice fetch_request(const struct fetch *fetch);
struct depends fetch_depends(struct read *read);
struct read_answer *fetch_find(struct read *read, uint64_t generation, uint64_t view);
int fetch_run(struct read *read, size_t limit, struct read_answer **answer);
void fetch_keep(struct read_engine *engine, struct read_answer *answer);
void fetch_drop(struct read_answer *answer);
const uint8_t *fetch_digest(struct read_answer *answer);
struct read_build *fetch_build_new(struct read *read);
bool fetch_build_like(const struct read_build *build, const struct read *read);
int fetch_build_run(struct read_build *build, struct rpc_reader *reader, struct arena *arena,
                    struct read_answer **answer);
void fetch_build_free(struct read_build *build);
void fetch_kept_clear(struct fetch_service *fetches); /* the turn ends */

/* -- leader_read.c -- */
void leader_read_begin(struct fetch *fetch);          /* the fetch may be gone afterwards */
void leader_read_drop(struct fetch *fetch);           /* it ends */
void leader_read_back(struct fetch_service *fetches); /* takes those that came back */
void leader_read_new(struct fetch_service *fetches);
void leader_read_stop(struct fetch_service *fetches); /* loop thread; the fetch thread has ended */
void leader_read_free(struct fetch_service *fetches);

#endif
