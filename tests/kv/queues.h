/* Locks and elections, for the tests of this folder: commands in one line, and a queue as a line of text. Sessions are
 * letters: 'a' is session_id(0). */
#ifndef COORD_TESTS_KV_QUEUES_H
#define COORD_TESTS_KV_QUEUES_H

#include "answers.h"
#include "kv/election/election.h"
#include "kv/lock/lock.h"

/* The answer to a command. */
struct answer {
    int error;
    bool yes, held;
    uint64_t index, token;
    uint32_t position, waiters;
    Pb__QueueMode mode;
    char who;        /* of the answer's session; '-': none */
    char text[1024]; /* "": none */
};
struct answer queues_apply(struct fixture *world, uint8_t type, const ProtobufCMessage *message);

const char *session_of(char who); /* its id; valid for the next 15 calls */
char letter_of(const char *session);
/* A cluster of the newest version with node "n1"; sessions 'a' to 'a' + `sessions` - 1 on it, without lock-delay. */
void queues_open(struct fixture *world, unsigned sessions);
struct outcome session_on(struct fixture *world, char who, const char *node, int64_t delay_ns);

/* An exclusive wish waits in the queue; a capital letter: for nothing, it asks. `limit`: of a shared one. */
struct acquire {
    const char *name;
    char who;  /* a session; 0: */
    char made; /* is made, on n1, with this lock-delay; 0: */
    int64_t made_delay_ns;
    uint64_t token;
    bool shared, asks; /* asks: takes no place */
    uint32_t limit, priority;
    const char *note;
    size_t note_size; /* 0: the note's text */
    uint32_t waiters_max, of_session_max;
};
struct answer lock_acquire(struct fixture *world, const struct acquire *wish);
#define LOCK(world, name_, who_, ...) \
    lock_acquire(world, &(struct acquire){.name = (name_), .who = (who_), __VA_ARGS__})
struct answer lock_release(struct fixture *world, const char *name, char who);
struct answer lock_release_by(struct fixture *world, const char *name, uint64_t token);
struct answer lock_delay_over(struct fixture *world, const char *name, uint64_t index, uint64_t term);

struct answer election_campaign(struct fixture *world, const struct acquire *wish);
#define CAMPAIGN(world, name_, who_, ...) \
    election_campaign(world, &(struct acquire){.name = (name_), .who = (who_), __VA_ARGS__})
struct answer election_resign(struct fixture *world, const char *name, char who, uint64_t term);
struct answer election_proclaim(struct fixture *world, const char *name, uint64_t term, const char *value);
struct answer election_delay_over(struct fixture *world, const char *name, uint64_t index);

/* The holders, '|', the waiters in turn; exclusive ones in capitals; then a '~' for each lock-delay: "A|Bcd", "|~".
 * Valid until the next call. */
const char *queue_state(struct fixture *world, const struct query_type *view, const char *name);
#define lock_state(world, name)     queue_state(world, &query_lock, name)
#define election_state(world, name) queue_state(world, &query_election, name)
/* The newest transitions, oldest first: "taken a, queued b, released a, passed-on b". */
const char *lock_transitions(struct fixture *world, const char *name);
/* The session's token there; 0: it waits or is not there. *index: of the result. */
struct answer queue_entry_of(struct fixture *world, const struct query_type *entry, const char *name, char who);
#define lock_entry(world, name, who) queue_entry_of(world, &query_lock_entry, name, who)

void watcher_begin_entry(struct watcher *watcher, struct fixture *world, uint8_t space, const char *name, char who);
/* How often it was woken since the last call. */
unsigned watcher_woken(struct watcher *watcher);

#endif
