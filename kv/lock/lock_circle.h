/* Circles of sessions that wait for each other. */
#ifndef COORD_KV_LOCK_CIRCLE_H
#define COORD_KV_LOCK_CIRCLE_H

#include "kv/lock/lock_queue.h"

#define CIRCLE_MOST 500 /* rows that are looked at; when there are more the wait is let in */

/* Would a session wait for itself, if `entry` took its place in the queue of `name`? The search begins at the session
 * and follows those that wait for it, over any number of names: sessions that wait behind it, or for a name that it
 * holds, and so on. When it reaches a session for which the entry would wait, the circle is closed. Shared entries that
 * are granted together do not wait for each other. Names with a limit are left out, because any of their holders may
 * let the next one in. Do not ask for a name with a limit, nor for an election: candidates stand by for each other, and
 * a leader that waits for another name delays nobody. CO_OK: *text is NULL, or names the circle, in the arena; or the
 * store failed. */
int circle_find(struct store_txn *txn, const struct queue_family *family, const Pb__QueueEntry *entry,
                struct slice name, const Pb__Queue *queue, struct arena *arena, const char **text);

#endif
