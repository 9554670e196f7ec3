/* Locks: exclusive, shared and counting ones, first come, first served, each grant with a fencing token. A module of
 * the state machine; how they are queued and passed on: kv/lock/lock_queue.h.
 *
 * A lock with a limit has at most that many shared holders. An exclusive holder is always alone. */
#ifndef COORD_KV_LOCK_H
#define COORD_KV_LOCK_H

#include "kv/lock/lock_queue.h"

enum lock_command { LOCK_ACQUIRE = 37, LOCK_RELEASE = 38, LOCK_DELAY_OVER = 39 }; /* QueueAcquireCommand etc. */
enum lock_space {
    SPACE_LOCK = 37,       /* a name; with WATCH_PREFIX_BIT: prefixes of names */
    SPACE_LOCK_ENTRY = 38, /* a session in a lock: queue_entry_name */
};

extern const struct module lock_module;
extern const struct queue_family lock_family;
extern const struct query_type query_lock;        /* QueueRequest -> QueueView */
extern const struct query_type query_lock_entry;  /* QueueEntryRequest -> QueueAnswer; found=false: the session is not
                                                   * in the queue */
extern const struct query_type query_lock_holder; /* QueueRequest -> QueueAnswer; found=false: nobody holds it */
extern const struct query_type query_locks;       /* QueueListRequest -> QueueListResult */

#endif
