/* The read engine: answers queries of this server's state, at once or when the result changes. Every read of the
 * replicated state on a server goes this way, those of the HTTP workers (http/blocking.c) and those of rpc_fetch
 * (rpc/reads/fetch_service.h). The owner of an engine decides the differences: the form of an answer, the answers that it
 * keeps, the way its thread is woken, and the place of its deadlines.
 *
 *     read_begin --> confirmed --> read --> newer than what the client has, or it does not wait: answered
 *                                   '---> PARKED --fired--> confirmed --> read --> changed: answered, same: PARKED
 *                                           '--its time is up, or the engine stops--> confirmed --> read --> answered
 *
 * (1) A parked read is in the watch table under its watch key, and its owner has its deadline.
 * (2) It entered the table before its watch key's generation, taken before the read, was found unchanged: no change
 *     falls between reading and waiting.
 * (3) It is armed before it is read again: a change after that read fires again.
 * (4) An answer that equals, byte for byte, the one that the client has is not sent while the wait lasts.
 * (5) A read shows what its requester may see by the state that it reads. When the state of access control changes, parked
 *     reads look again; one whose rules are others now is answered, or fails. So is one that comes after the change with the
 *     view of an answer from before it.
 * (6) A default read is answered only after a question to the leader, asked after the read arrived or fired, has shown
 *     that this server is up to date.
 *
 * One engine per thread. Everything is called on that thread unless it says otherwise. */
#ifndef COORD_RPC_READ_H
#define COORD_RPC_READ_H

#include "base/list.h"
#include "base/mailbox.h"
#include "rpc/api/access_control.h"
#include "rpc/api/rpc.h"

#define READ_WALK_MOST (1u << 20) /* bytes of records that the thread walks for one read; more is for read_large.c */

/* The watch keys that a read depends on: one that wakes its waiters (watched); one that wakes nobody, but makes ready
 * answers old (also: query_type.also; space 0: none); and those of `request` that wake, too (query_type.own). */
struct depends {
    struct watch_key watched, also;
    const struct query_type *type;
    const ProtobufCMessage *request;
};
struct depends depends_of(const struct query_type *type, const ProtobufCMessage *request); /* points into it */
static inline struct watch_key depends_own(const struct depends *depends, size_t i) {
    return depends->type->own ? depends->type->own(depends->request, i) : (struct watch_key){0};
}
/* When it is equal before and after a read, the result is current. It is a sum of counters that only grow, so it is
 * unchanged only if all of them are. */
static inline uint64_t depends_generation(struct rpc *rpc, const struct depends *depends) {
    uint64_t generation = rpc_generation(rpc, depends->watched);
    if (depends->also.space) generation += rpc_generation(rpc, depends->also);
    struct watch_key own;
    for (size_t i = 0; (own = depends_own(depends, i)).space; i++) generation += rpc_generation(rpc, own);
    return generation;
}

/* A result in the owner's form; a member of the owner's struct. */
struct read_answer {
    uint64_t generation; /* depends_generation before it was read; set by the engine, as what follows */
    uint64_t view;       /* access_view of the rules by which it was reduced: it is shown to nobody with others */
    size_t hidden;       /* rows that these rules hide */
    uint64_t index;      /* of the result */
    size_t size;         /* of its bytes */
    uint32_t tag;        /* distinguishes it from other answers with the same bytes (an HTTP status); not 0 */
};

/* A member of the owner's struct; zero at first, except `engine` and the members that are set before read_begin. */
struct read {
    struct read_engine *engine;
    uint64_t index; /* the client's index; 0: it does not wait. Set before read_begin */
    bool alone;     /* its answer is not shared with other reads, nor read by another thread. Set before read_begin */
    const struct requester *requester; /* on whose behalf; the owner's reference. Set before read_begin */
    /* Of the rules of the answer that the client has; 0: not known. Set before read_begin; then of its rules, when it was
     * read last. */
    uint64_t view;
    /* The engine's. */
    bool stale, parked, expired, again; /* again: it fired while another thread was reading it */
    uint32_t seen_size, seen_tag;       /* of the answer that the client has; tag 0: not known */
    uint8_t seen_digest[16];
    uint64_t access_generation; /* of access control, before it was read last */
    struct list link;           /* in the list of those that wait for a confirmation, or for `build`; else alone */
    struct read_build *build;
    struct watch_waiter waiter;
    struct read_owns *owns; /* while it is parked, if its query has further watch keys */
};
static inline bool read_is_confirming(const struct read *read) { return !read->build && !list_empty(&read->link); }

/* A read that would keep the thread for long and is done on the thread of read_large.c. It has everything that it needs
 * itself, because the reads that wait for it may end earlier. A member of the owner's struct; the engine uses the
 * members here. */
struct read_build {
    struct post post;
    struct read_build *next;
    struct list queued, joined; /* joined: reads */
    struct read_engine *engine;
    uint64_t generation, access_generation; /* the second: of access control */
    _Atomic bool dropped;                   /* nobody waits for it any more */
    int error;
    struct read_answer *answer;
};

struct read_owner {
    /* Any thread: has post->taken(..., post) called on the engine's thread, soon. */
    void (*post)(struct read_engine *engine, struct post *post);

    /* -- a read -- */
    struct depends (*depends)(struct read *read); /* its names stay valid until the next call, for any read */
    bool (*stale)(struct read *read);             /* need it not be confirmed? Asked before each look at the state */
    /* Its confirmation has come, after a wait: calls read_confirmed. */
    void (*confirmed)(struct read *read, int error);
    void (*waits)(struct read *read); /* it begins to wait for a build. May be NULL */
    /* Sets its deadline, at which read_expired is called. False: too many wait; the read has been ended. */
    bool (*park)(struct read *read);
    void (*unpark)(struct read *read); /* takes the deadline back, if it has not come */
    watch_fire fired;                  /* applier thread: read_fired is to be called on the engine's thread */
    /* These two call read_end first. `answer` is borrowed; tell the client at least `least` as its index. With CO_DENIED and
     * CO_NOTOKEN engine->denial says why. */
    void (*answer)(struct read *read, struct read_answer *answer, uint64_t least);
    void (*fail)(struct read *read, int error);

    /* -- answers -- */
    /* a ready answer of exactly this generation and these rules */
    struct read_answer *(*find)(struct read *read, uint64_t generation, uint64_t view);
    /* Reads (read_run), right after `depends` of it. CO_AGAIN: more than `limit`. */
    int (*run)(struct read *read, size_t limit, struct read_answer **answer);
    void (*keep)(struct read_engine *engine, struct read_answer *answer); /* for `find`, as long as it is current */
    void (*drop)(struct read_answer *answer);                             /* drops a reference of `run` or `find` */
    const uint8_t *(*digest)(struct read_answer *answer);                 /* 16 bytes */

    /* -- builds -- */
    struct read_build *(*build_new)(struct read *read);
    bool (*build_like)(const struct read_build *build, const struct read *read); /* does it answer this read, too? */
    /* The large reads' thread. */
    int (*build_run)(struct read_build *build, struct rpc_reader *reader, struct arena *arena,
                     struct read_answer **answer);
    void (*build_free)(struct read_build *build);
};

/* A member of the owner's struct; zero at first, except the first three members. */
struct read_engine {
    struct rpc *rpc;
    const struct read_owner *owner;
    struct large_reads *large;
    struct rpc_reader *reader; /* of its thread; set by the owner before the first read */
    const char *denial;        /* for owner->fail: one line */
    bool stopping;             /* set by the owner: nothing waits any more */
    uint64_t unchanged;        /* counts (4) */
    /* The engine's. */
    struct list confirming; /* reads that join the next confirmation */
    bool asked;             /* a confirmation was asked for in this turn and did not end at once */
    unsigned asked_after;   /* reads that came after it */
    struct read_gate *spare;
    unsigned gates; /* confirmations on their way: posts that will come */
    struct read_build *builds;
};
void read_engine_init(struct read_engine *engine);
/* Reads of one turn share a confirmation, except for the first, which asks at once (a server that is alone confirms it
 * by that). If the turn begins with wakeup_batch_begin, mostly both questions become one. */
void read_turn_end(struct read_engine *engine);
/* Call it when the thread has ended, or has no reads, no gates are on their way, and large_reads_stop was called. */
void read_engine_free(struct read_engine *engine);

void read_init(struct read *read, struct read_engine *engine);
/* `confirmed`: it needs no confirmation any more. */
void read_begin(struct read *read, bool confirmed);
/* CO_OK, or an error. CO_AGAIN: owner->confirmed will be called, unless the read ends before. */
int read_confirm(struct read *read);
void read_confirmed(struct read *read, int error);
void read_fired(struct read *read);   /* its waiter fired */
void read_expired(struct read *read); /* its time is up: reads once more, and answers */
void read_hurry(struct read *read);   /* the same without a confirmation; does nothing unless it is parked */
/* Takes the read out of the watch table and out of every list. Nothing is called for it afterwards, except for a waiter
 * that fired before. */
void read_end(struct read *read);

/* Any thread with its own reader: runs the query, takes out of its result what the requester may not see, and `write` makes
 * the answer of the rest, all in one transaction. CO_AGAIN: it walked more than `limit` bytes (0: no limit). The arena is
 * reset. */
typedef int (*read_write)(void *data, const struct query_result *result, struct read_answer **answer);
int read_run(const struct read_engine *engine, struct rpc_reader *reader, struct arena *arena,
             const struct query_type *type, const ProtobufCMessage *request, const struct requester *requester,
             size_t limit, read_write write, void *data, struct read_answer **answer);

/* Writes into `text` which change woke the reads of this access that waited for an answer of this index
 * (kv/stream/stream.h); "" when the history does not tell. The reader must have no read under way. */
void read_cause(struct rpc_reader *reader, const struct requester *requester, const struct depends *depends,
                uint64_t index, char text[RPC_CAUSE_MAX]);

/* The least index that a client is told for an answer of this generation. */
uint64_t read_index_least(const struct read_engine *engine, const struct depends *depends, uint64_t generation);

/* -- read_large.c: a thread for large reads ----------------------------------------------------------------------- */
/* Large reads wait for each other, and other reads do not wait for them. An equal request that comes during a large
 * read joins it, as long as nothing that it depends on has changed. The first large read starts the thread. */
struct large_reads *large_reads_new(struct rpc *rpc, const char *thread_name); /* which lives as long */
/* Any thread but its own: the present read is finished, and no other is begun. */
void large_reads_stop(struct large_reads *large);
void large_reads_free(struct large_reads *large);

/* Between read.c and read_large.c. */
bool large_join(struct read *read, uint64_t generation);
bool large_start(struct read *read, uint64_t generation); /* false: there is no thread */
void large_leave(struct read *read);
void large_forget(struct read_engine *engine); /* builds that nobody took */
/* Answers, parks, or goes on waiting. `own`: it drops the answer as soon as it does not need it any more. */
void read_deliver(struct read *read, struct read_answer *answer, const struct depends *depends, bool own);

#endif
