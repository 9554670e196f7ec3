/* Threads whose work may take its time: taking and installing snapshots, the scrub, giving back the blocks of removed
 * files. */
#ifndef COORD_BASE_BACKGROUND_H
#define COORD_BASE_BACKGROUND_H

/* Lowers the priority of the calling thread, and of those that it starts from here on, so that threads that answer
 * requests get a processor first. Only root could raise it again, so this is for threads that do nothing else. Names
 * the thread as well (15 characters at most). */
void background_thread(const char *name);

#endif
