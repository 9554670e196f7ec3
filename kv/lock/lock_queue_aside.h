/* The family's table `aside`: names of free queues (the QUEUE_FREE_KEPT that were freed last), and lock-delays that are
 * under way. */
#ifndef COORD_KV_LOCK_QUEUE_ASIDE_H
#define COORD_KV_LOCK_QUEUE_ASIDE_H

#include "kv/lock/lock_queue.h"

void queue_free_put(struct machine_tx *tx, const struct queue_family *family, struct slice name, uint64_t freed);
void queue_free_del(struct machine_tx *tx, const struct queue_family *family, struct slice name, uint64_t freed);
/* Removes the name that has been free for longest, if there are too many; the name is in the tx arena. */
bool queue_free_oldest(struct machine_tx *tx, const struct queue_family *family, struct slice *name);

/* A delay begins with the entry that is applied. False: this entry has begun one of this name already; the longer one
 * counts. */
bool queue_delay_put(struct machine_tx *tx, const struct queue_family *family, struct slice name, int64_t delay_ns);
/* *over: a delay of this name began at this index, and is gone. CO_OK, or why the store failed. */
int queue_delay_del(struct machine_tx *tx, const struct queue_family *family, struct slice name, uint64_t index,
                    bool *over);

#endif
