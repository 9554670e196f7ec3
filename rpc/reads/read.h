/* The read engine: how a query of this server's state is answered, at once or when its result changes. Every read of
 * the replicated state on a server goes this way, those of the HTTP workers (http/blocking.c) and those of rpc_fetch
 * (rpc/reads/fetch_service.h). What differs is its owner's: the form of an answer, which answers it keeps, how its thread is
 * woken, and where its deadlines are.
 *
 *     read_begin --> confirmed --> read --> newer than what the client has, or it does not wait: answered
 *                                   '---> PARKED --fired--> confirmed --> read --> changed: answered, same: PARKED
 *                                           '--its time is up, or the engine stops--> confirmed --> read --> answered
 *
 * (1) A parked read is in the watch table under its watch key, and its owner has its deadline. (2) It entered the table
 * before its watch key's generation, taken before the read, was found unchanged: no change falls between reading and
 * waiting. (3) It is armed before it is read again: a change after that read fires again. (4) An answer that equals,
 * byte for byte, what the client has is not sent while the wait lasts. (5) A default read is answered only after a
 * question to the leader, asked after the read arrived or fired, has shown that this server is up to date.
 *
 * One engine per thread. Everything is called on that thread unless it says otherwise. */
#ifndef COORD_RPC_READ_H
#define COORD_RPC_READ_H

#include "base/list.h"
#include "base/mailbox.h"
#include "rpc/api/rpc.h"

#define READ_WALK_MOST (1u << 20) /* bytes of records that the thread walks for one read; more is for read_large.c */

/* What a read depends on: the watch key that wakes who waits for it; where its space is not 0, one that wakes nobody
 * but makes ready answers old (query_type.also); and those of `request` that wake too (query_type.own). */
struct depends {
    struct watch_key watched, also;
    const struct query_type *type;
    const ProtobufCMessage *request;
};
struct depends depends_of(const struct query_type *type, const ProtobufCMessage *request); /* points into it */
static inline struct watch_key depends_own(const struct depends *depends, size_t i) {
    return depends->type->own ? depends->type->own(depends->request, i) : (struct watch_key){0};
}
/* Equal before and after a read: its result is current. The sum of counters that only grow stays only if all of them
 * do. */
static inline uint64_t depends_generation(struct rpc *rpc, const struct depends *depends) {
    uint64_t generation = rpc_generation(rpc, depends->watched);
    if (depends->also.space) generation += rpc_generation(rpc, depends->also);
    struct watch_key own;
    for (size_t i = 0; (own = depends_own(depends, i)).space; i++) generation += rpc_generation(rpc, own);
    return generation;
}

/* A result in its owner's form, whose struct this is in. */
struct read_answer {
    uint64_t generation; /* of what it depends on, before it was read; the engine's */
    uint64_t index;      /* of the result */
    size_t size;         /* of its bytes */
    uint32_t tag;        /* what tells it from others of the same bytes (an HTTP status); not 0 */
};

/* In a struct of its owner's, zero but for `engine` and what says so. */
struct read {
    struct read_engine *engine;
    uint64_t index; /* what the client has; 0: it does not wait. Set before read_begin */
    bool alone;     /* neither taken from nor given to others, nor read elsewhere. Set before read_begin */
    /* The engine's. */
    bool stale, parked, expired, again; /* again: it fired while it was being read elsewhere */
    uint32_t seen_size, seen_tag;       /* what the client has, when that is known; tag 0: it is not */
    uint8_t seen_digest[16];
    struct list link; /* waits for a confirmation, or for `build`; else by itself */
    struct read_build *build;
    struct watch_waiter waiter;
    struct read_owns *owns; /* while it is parked, if its query has further watch keys */
};
static inline bool read_is_confirming(const struct read *read) { return !read->build && !list_empty(&read->link); }

/* One read that would keep the thread for long, on the thread of read_large.c: all that it needs, since those who
 * wait for it may end before it. In a struct of its owner's; what is here is the engine's. */
struct read_build {
    struct post post;
    struct read_build *next;
    struct list queued, joined; /* joined: reads */
    struct read_engine *engine;
    uint64_t generation;
    _Atomic bool dropped; /* nobody waits for it any more */
    int error;
    struct read_answer *answer;
};

struct read_owner {
    /* Any thread: post->taken(..., post) is to be called on the engine's thread, soon. */
    void (*post)(struct read_engine *engine, struct post *post);

    /* -- a read -- */
    struct depends (*depends)(struct read *read); /* its names stay until the next call, of any read */
    bool (*stale)(struct read *read);             /* it need not be confirmed. Asked before each look at the state */
    /* Its confirmation has come, which did not end at once: calls read_confirmed. */
    void (*confirmed)(struct read *read, int error);
    void (*waits)(struct read *read); /* it waits for a build. May be NULL */
    /* Sets its deadline, at which read_expired is called. False: too many wait; the read has been ended. */
    bool (*park)(struct read *read);
    void (*unpark)(struct read *read); /* takes the deadline back, if it has not come */
    watch_fire fired;                  /* applier thread: read_fired is to be called on the engine's thread */
    /* These two call read_end first. `answer` is lent; the index that the client is told is at least `least`. */
    void (*answer)(struct read *read, struct read_answer *answer, uint64_t least);
    void (*fail)(struct read *read, int error);

    /* -- answers -- */
    struct read_answer *(*find)(struct read *read, uint64_t generation); /* a ready one of just this generation */
    /* Reads (read_run), right after `depends` of it. CO_AGAIN: more than `limit`. */
    int (*run)(struct read *read, size_t limit, struct read_answer **answer);
    void (*keep)(struct read_engine *engine, struct read_answer *answer); /* for `find`, as long as it is current */
    void (*drop)(struct read_answer *answer);             /* who ran it, or found it, needs it no more */
    const uint8_t *(*digest)(struct read_answer *answer); /* 16 bytes */

    /* -- builds -- */
    struct read_build *(*build_new)(struct read *read);
    bool (*build_like)(const struct read_build *build, const struct read *read); /* is this what it asks? */
    /* The large reads' thread. */
    int (*build_run)(struct read_build *build, struct rpc_reader *reader, struct arena *arena,
                     struct read_answer **answer);
    void (*build_free)(struct read_build *build);
};

/* In a struct of its owner's, zero but for the first three. */
struct read_engine {
    struct rpc *rpc;
    const struct read_owner *owner;
    struct large_reads *large;
    bool stopping;      /* set by the owner: nothing waits any more */
    uint64_t unchanged; /* counts (4) */
    /* The engine's. */
    struct list confirming; /* reads that join the next confirmation */
    bool asked;             /* a confirmation was asked for in this turn and did not end at once */
    unsigned asked_after;   /* reads that came after it */
    struct read_gate *spare;
    unsigned gates; /* confirmations on their way: posts that will come */
    struct read_build *builds;
};
void read_engine_init(struct read_engine *engine);
/* Those of one turn share a confirmation, except for the first, which asks at once (alone, it is confirmed by that).
 * Those that the turn begins with wakeup_batch_begin mostly become one with it. */
void read_turn_end(struct read_engine *engine);
/* The thread has ended, or has no reads; no gates are on their way, and large_reads_stop was called. */
void read_engine_free(struct read_engine *engine);

void read_init(struct read *read, struct read_engine *engine);
/* `confirmed`: that has been done. */
void read_begin(struct read *read, bool confirmed);
/* CO_OK, or why not. CO_AGAIN: owner->confirmed will be called, unless the read ends before. */
int read_confirm(struct read *read);
void read_confirmed(struct read *read, int error);
void read_fired(struct read *read);   /* its waiter fired */
void read_expired(struct read *read); /* its time is up: read once more, and answered */
void read_hurry(struct read *read);   /* the same without a confirmation; nothing, unless it is parked */
/* It leaves the watch table and whatever it waits for. Nothing is called for it afterwards, but for a waiter that
 * fired before. */
void read_end(struct read *read);

/* Any thread with its own reader: runs the query, and `write` makes the answer of its result in the same transaction.
 * CO_AGAIN: it walked more than `limit` bytes (0: no limit). The arena is reset. */
typedef int (*read_write)(void *data, const struct query_result *result, struct read_answer **answer);
int read_run(const struct read_engine *engine, struct rpc_reader *reader, struct arena *arena,
             const struct query_type *type, const ProtobufCMessage *request, size_t limit, read_write write, void *data,
             struct read_answer **answer);

/* Into `text` what woke those who waited for an answer of this index (kv/stream/stream.h); "" when the history does not
 * tell. The reader has no read under way. */
void read_cause(struct rpc_reader *reader, const struct depends *depends, uint64_t index, char text[RPC_CAUSE_MAX]);

/* What a client is told as the index of an answer of this generation is at least this. */
uint64_t read_index_least(const struct read_engine *engine, const struct depends *depends, uint64_t generation);

/* -- read_large.c: a thread for large reads ----------------------------------------------------------------------- */
/* Large reads wait for each other, not others for them. Whoever asks for the same while it is being read joins it, as
 * long as what it depends on has not changed. The thread is started by the first. */
struct large_reads *large_reads_new(struct rpc *rpc, const char *thread_name); /* which lives as long */
/* Any thread but its own: what runs comes to its end, nothing else is begun. */
void large_reads_stop(struct large_reads *large);
void large_reads_free(struct large_reads *large);

/* Between read.c and read_large.c. */
bool large_join(struct read *read, uint64_t generation);
bool large_start(struct read *read, uint64_t generation); /* false: there is no thread */
void large_leave(struct read *read);
void large_forget(struct read_engine *engine); /* builds that nobody took */
/* Answers, parks, or goes on waiting. `own`: the answer is dropped as soon as it is not needed. */
void read_deliver(struct read *read, struct read_answer *answer, const struct depends *depends, bool own);

#endif
