/* What queues keep aside: names that nobody is in any more (the newest QUEUE_FREE_KEPT), and lock-delays that are under
 * way. Rows of the family's table `aside`. */
#ifndef COORD_KV_LOCK_QUEUE_ASIDE_H
#define COORD_KV_LOCK_QUEUE_ASIDE_H

#include "kv/lock/queue.h"

void queue_free_put(struct machine_tx *tx, const struct queue_family *family, struct slice name, uint64_t freed);
void queue_free_del(struct machine_tx *tx, const struct queue_family *family, struct slice name, uint64_t freed);
/* Takes out the one that is free for longest, if there are too many; its name in the tx arena. */
bool queue_free_oldest(struct machine_tx *tx, const struct queue_family *family, struct slice *name);

/* One begins with the entry that is applied. False: there is one of this entry already; the longer one counts. */
bool queue_delay_put(struct machine_tx *tx, const struct queue_family *family, struct slice name, int64_t delay_ns);
/* False: there is none of this index. */
bool queue_delay_del(struct machine_tx *tx, const struct queue_family *family, struct slice name, uint64_t index);

#endif
