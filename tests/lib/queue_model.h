/* Queues (kv/lock/lock_queue.h) as a reader can check them at a glance: arrays, walked from end to end. Unit tests and
 * the simulator compare locks and elections with this model. Sessions are numbers, not 0. No memory of its own. */
#ifndef COORD_TESTS_LIB_QUEUE_MODEL_H
#define COORD_TESTS_LIB_QUEUE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_ENTRIES = 64, MODEL_DELAYS = 64 };
struct model_entry {
    uint64_t who;
    bool shared;
    uint32_t priority, note;
    uint64_t token, place; /* token 0: it waits */
    bool common;           /* others were granted with the same token */
};
struct model_queue {
    struct model_entry in[MODEL_ENTRIES]; /* holders, by token and place; then who waits, in turn */
    unsigned count;
    uint32_t limit;
    uint64_t delays[MODEL_DELAYS]; /* indexes of those that are under way, oldest first */
    unsigned delay_count;
    uint64_t changed, holder_changed, newest; /* indexes of the last change; newest: token */
};
/* All queues of a family: circles go from one to another. */
struct model_family {
    struct model_queue *queues;
    size_t count;
    bool is_election; /* who waits in one does not keep others from another */
};

unsigned model_holders(const struct model_queue *q);
static inline unsigned model_waiters(const struct model_queue *q) { return q->count - model_holders(q); }
struct model_entry *model_find(struct model_queue *q, uint64_t who);                    /* NULL: not there */
struct model_entry *model_holder(struct model_queue *q, uint64_t token, bool *several); /* NULL: nobody */
uint32_t model_position(const struct model_queue *q, const struct model_entry *entry);  /* as QueueAnswer.position */
unsigned model_queues_of(const struct model_family *family, uint64_t who);

struct model_wish {
    uint64_t who;
    bool made;  /* its session is made by the command; */
    bool there; /* it exists, or can be made */
    bool shared, asks;
    uint32_t limit, priority, note, waiters_max, of_session_max; /* 0: any number */
};
enum model_verdict {
    MODEL_HELD,
    MODEL_AGAIN, /* it is there already: *entry */
    MODEL_WAITS,
    MODEL_ASKED,     /* it is not free, and nothing is left behind */
    MODEL_DIFFERS,   /* in mode, limit or priority */
    MODEL_FULL,      /* too many wait, or the session is in too many */
    MODEL_CIRCLE,    /* it would wait for itself */
    MODEL_NO_SESSION /* no such session, or it cannot be made */
};
/* HELD, AGAIN, WAITS: *entry is its own. */
enum model_verdict model_acquire(const struct model_family *family, struct model_queue *q,
                                 const struct model_wish *wish, uint64_t index, struct model_entry **entry);
/* It leaves. `delay`: by the end of its session, which has a lock-delay. True: one begins. */
bool model_leave(struct model_queue *q, uint64_t who, uint64_t index, bool delay);
bool model_delay_over(struct model_queue *q, uint64_t delay, uint64_t index); /* false: there is none of this index */

#endif
