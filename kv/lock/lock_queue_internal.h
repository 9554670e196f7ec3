/* Shared by the files of queues only. Keys, and rows. */
#ifndef COORD_KV_LOCK_QUEUE_INTERNAL_H
#define COORD_KV_LOCK_QUEUE_INTERNAL_H

#include "base/check.h"
#include "kv/lock/lock_queue.h"
#include "kv/session/session.h"

/* The position of an entry: the token of its grant, or QUEUE_WAITS; its priority, highest first; its place. The numbers
 * are big-endian, so that the rows of a name are in the order of the queue, the holders first. An exclusive holder has
 * no row: it is in the queue's record. */
#define QUEUE_WAITS UINT64_MAX
enum { POSITION_SIZE = 8 + 4 + 8, QUEUE_KEY_MAX = QUEUE_NAME_MAX + 1 + POSITION_SIZE };
_Static_assert(QUEUE_KEY_MAX + UUID_TEXT_SIZE <= STORE_KEY_MAX, "a key of the store, with a session too");

struct position {
    uint64_t token; /* QUEUE_WAITS */
    uint32_t priority;
    uint64_t place;
};
struct position position_of(const Pb__QueueEntry *entry);
/* POSITION_SIZE bytes. */
void position_put(char *to, struct position position);
int position_get(struct slice bytes, struct position *position); /* CO_CORRUPT */

/* The name and a NUL, to which a position may be appended. */
struct slice queue_rows(struct slice name, char room[QUEUE_KEY_MAX]);
/* The same for the rows of waiters. */
struct slice queue_waiting_rows(struct slice name, char room[QUEUE_KEY_MAX]);
/* The entry at a position. */
int queue_entry_at(struct store_txn *txn, const struct queue_family *family, struct slice name,
                   struct position position, struct arena *arena, Pb__QueueEntry **entry);
/* The name in a QueueRequest or QueueEntryRequest; "" when it has none. */
struct slice queue_request_name(const ProtobufCMessage *request);
/* As queue_holder, but looks among the rows of shared holders only. */
int queue_shared_holder(struct store_txn *txn, const struct queue_family *family, struct slice name, uint64_t token,
                        struct arena *arena, Pb__QueueEntry **entry, bool *several);
/* Is the binding that of a waiting session? */
static inline bool position_waits(struct position position) { return position.token == QUEUE_WAITS; }

#endif
