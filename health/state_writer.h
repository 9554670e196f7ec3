/* Keeps DATA/local/states (health/check_state.h) as the checks are. A change of a status goes into the page cache at
 * once; the time of a report alone is written together with all others of a tenth of a second. A killed agent loses no
 * more than that, and then takes a report for older than it is. libuv's threads write, one write at a time. After the
 * start, and after a write that failed, the writer makes the file anew under another name, and renames it.
 *
 * A file that cannot be read, or not be written, keeps no agent from running: the log says so, and TTL checks without
 * a state are critical after the next restart. */
#ifndef COORD_HEALTH_STATE_WRITER_H
#define COORD_HEALTH_STATE_WRITER_H

#include "health/local_internal.h"

/* Before definitions are loaded: sets local->states and local->state_writer. */
void state_writer_open(struct local *local);
/* Under the lock, any thread: the check has changed, or a client reported its status (`told`). */
void state_note(struct local *local, struct local_check *check, bool told);
/* Loop thread: writes what is due, unless a write is under way. */
void state_writer_kick(struct state_writer *writer);
/* Loop thread: writes the rest, then calls local_part_closed; the struct is gone. */
void state_writer_close(struct state_writer *writer);

#endif
