/* Anti-entropy: the catalog is made equal to what this agent knows. Only differences travel, as commands through rpc.
 *
 * One write is out at a time, with everything that was dirty when it left (in one CATALOG_BATCH), so changes arrive in order. A whole
 * comparison with the catalog is made at the start, when an outcome is unknown, and about once a minute; it finds what others
 * changed or lost, and what stands there under our node that we do not know (which goes).
 *
 * Loop thread only. */
#ifndef COORD_HEALTH_SYNC_H
#define COORD_HEALTH_SYNC_H

#include "health/local_internal.h"

struct sync *sync_new(struct local *local);
/* Something became dirty, or may have. */
void sync_kick(struct sync *sync);
/* Lets go of what is out, closes its timer, then calls local_part_closed. */
void sync_close(struct sync *sync);

/* -- for sync*.c ------------------------------------------------------------------------------------------------- */
struct sync_write;
struct sync_gate;
struct sync {
    struct local *local;
    uv_timer_t timer;
    struct rpc_reader *reader;
    struct arena arena;
    struct sync_write *out;              /* the write that is out */
    struct sync_gate *gate;              /* the confirmation that is out */
    struct item **batch;                 /* what flies */
    size_t batch_count, batch_capacity, batch_units;
    bool node_dirty, node_flying, compare_wanted;
    uint64_t compare_ms, retry_ms, backoff_ms;
    struct rng rng;
};
/* sync_compare.c: reads the catalog, marks what differs; sets node_dirty. False: it could not be read. */
bool sync_compare(struct sync *sync);
/* sync_gather.c: under the lock. The message for what is dirty, in the arena, and its command; NULL: nothing. Fills `batch`. */
const ProtobufCMessage *sync_gather(struct sync *sync, uint8_t *command);
/* The record of this node's own: node, its service "consul", its check; in the arena. */
Pb__RegisterCommand *sync_own(struct sync *sync);

#define SYNC_OWN_SERVICE "consul"
#define SYNC_OWN_CHECK "serfHealth"

#endif
