/* The last transitions of a queue, for people who ask why it is held as it is. The newest ones are packed into the
 * queue's record, the oldest first: for each the index (8 bytes, big-endian), the cause (1), the session (16). */
#ifndef COORD_KV_LOCK_TRANSITIONS_H
#define COORD_KV_LOCK_TRANSITIONS_H

#include "base/buffer.h"
#include "kv/lock/lock_queue.pb-c.h"

#define TRANSITIONS_MOST 20

void transition_add(Pb__Queue *queue, struct arena *arena, uint64_t index, Pb__QueueCause cause, struct slice session);
/* Unpacks them into the view, in the arena. CO_CORRUPT. */
int transitions_unpack(const Pb__Queue *queue, struct arena *arena, Pb__QueueView *view);

#endif
