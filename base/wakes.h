/* Wake-ups held back. Who hands many things to another thread, one after the other, wakes it when all are handed
 * over: woken by the first, it finds just that one, does a whole turn for it, and often takes the processor from who
 * has the rest.
 *
 * Per thread. What is held back waits for this thread, and so does what others put into the same mailbox meanwhile:
 * nothing that takes long, and nothing that waits for another thread, may be done between hold and release without
 * wakes_now(). */
#ifndef COORD_BASE_WAKES_H
#define COORD_BASE_WAKES_H

void wakes_hold(void); /* nests */
void wakes_release(void);
void wakes_now(void); /* those held back so far, before something long */
/* Calls `wake` with `target`: at once, or when the outermost hold is released; the target lives until then. */
void wakes_send(void (*wake)(void *target), void *target);

#endif
