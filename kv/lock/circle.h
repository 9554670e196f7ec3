/* Circles of sessions that wait for each other. */
#ifndef COORD_KV_LOCK_CIRCLE_H
#define COORD_KV_LOCK_CIRCLE_H

#include "kv/lock/queue.h"

#define CIRCLE_MOST 500 /* rows that are looked at; beyond that the wait is let in */

/* Would a session wait for itself, if `entry` took its place in the queue of `name`? Looks from the session on for who
 * waits for it, over any number of names: somebody who waits behind it, or for what it holds, and so on; one for
 * whom it would wait closes the circle. Shared ones that are granted together do not wait for each other.
 * Names with a limit are left out, because any of their holders may help whoever waits; do not ask for one, nor for an
 * election: candidates stand by for each other, and a leader who waits for another name keeps nobody from anything.
 * CO_OK: *text is NULL, or names the circle, in the arena; or the store failed. */
int circle_find(struct store_txn *txn, const struct queue_family *family, const Pb__QueueEntry *entry,
                struct slice name, const Pb__Queue *queue, struct arena *arena, const char **text);

#endif
