/* Wake-ups held back. Who hands many things to another thread, one after the other, wakes it when all are handed
 * over: woken by the first, it finds just that one, does a whole turn for it, and often takes the processor from who
 * has the rest.
 *
 * Per thread. What is held back waits for this thread, and so does what others put into the same mailbox meanwhile:
 * nothing that takes long, and nothing that waits for another thread, may be done between hold and release without
 * wakeup_batch_flush(). */
#ifndef COORD_BASE_WAKEUP_BATCH_H
#define COORD_BASE_WAKEUP_BATCH_H

void wakeup_batch_begin(void); /* nests */
void wakeup_batch_end(void);
void wakeup_batch_flush(void); /* those held back so far, before something long */
/* Calls `wake` with `target`: at once, or when the outermost hold is released; the target lives until then. */
void wakeup_batch_send(void (*wake)(void *target), void *target);

#endif
