/* Holds wake-ups back. A thread that hands many things to another one wakes it when all are handed over. If the first
 * one woke it, it would find only that, do a whole turn for it, and often take the processor from the thread that has
 * the rest.
 *
 * Per thread. Items that are held back wait for this thread, and so do items that others put into the same mailbox
 * meanwhile. So between begin and end the thread must call wakeup_batch_flush() before it does anything that takes long
 * or waits for another thread. */
#ifndef COORD_BASE_WAKEUP_BATCH_H
#define COORD_BASE_WAKEUP_BATCH_H

void wakeup_batch_begin(void); /* nests */
void wakeup_batch_end(void);
void wakeup_batch_flush(void); /* sends the wake-ups held back so far */
/* Calls `wake` with `target`: at once, or when the outermost batch ends; the target must live until then. */
void wakeup_batch_send(void (*wake)(void *target), void *target);

#endif
