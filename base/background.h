/* Threads whose work may take its time: taking and installing snapshots, the scrub, giving back the blocks of removed
 * files. */
#ifndef COORD_BASE_BACKGROUND_H
#define COORD_BASE_BACKGROUND_H

/* For the calling thread, and those it starts from here on: whoever answers others gets a processor first, where
 * there are not enough of them. For good, so for threads that do nothing else: only root could take it back. Names
 * the thread as well (15 characters at most). */
void background_thread(const char *name);

#endif
