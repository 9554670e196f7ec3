/* Anti-entropy: the catalog is made equal to what this agent knows. Only differences travel, as commands through rpc.
 *
 * One write is out at a time, with everything that was dirty when it left (in one CATALOG_BATCH), so changes arrive
 * in order. A whole comparison with the catalog is made at the start, when an outcome is unknown, and about once a
 * minute; it finds what others changed or lost, and what this agent wrote there and does not know any more (which
 * goes).
 *
 * A write of unknown outcome may arrive much later (its server stood still, the kernel sends again what a closed
 * connection still had), and would undo what was written after it. So the node lease is replaced first
 * (liveness_replace): then all that names the one before is refused, and only then is the catalog compared. That is
 * one entry for each such write.
 *
 * A record whose writes end in a lost connection again and again must not hold the others: the second time each of
 * the batch travels alone, and one that is lost alone then is set aside, longer and longer (2 s to 2 min; 10 s at
 * most when it was changed since), while the others go on.
 *
 * Whose a record is: while this agent holds its node lease (so nobody else is this node, and the cluster knows the
 * label) all that it writes is labelled by_agent. Under its node it removes only what is labelled; what others
 * registered there stays as they left it, unless a service or check of the same id is registered here: then that one
 * stands.
 *
 * Loop thread only. */
#ifndef COORD_HEALTH_SYNC_H
#define COORD_HEALTH_SYNC_H

#include "health/local_internal.h"

struct sync *sync_new(struct local *local);
/* The catalog may hold something else than it did (a new node lease: it may have been reaped meanwhile): it is
 * compared next. */
void sync_compare_soon(struct sync *sync);
/* Every agent has reason to compare: each does at a moment of its own within so long. */
void sync_compare_within(struct sync *sync, uint64_t most_ms);
/* Something became dirty, or may have. */
void sync_kick(struct sync *sync);
/* Lets go of what is out, closes its timer, then calls local_part_closed. */
void sync_close(struct sync *sync);

/* -- for sync*.c -------------------------------------------------------------------------------------------------- */
struct sync_write;
struct sync_read;
struct sync {
    struct local *local;
    uv_timer_t timer;
    struct arena arena;
    struct sync_write *out; /* the write that is out */
    struct sync_read *read; /* the reading of the catalog that is out */
    struct item **batch;    /* what flies */
    size_t batch_count, batch_capacity, batch_units;
    bool node_dirty, node_flying, compare_wanted, lease_lost;
    uint64_t compare_ms, retry_ms, backoff_ms;
    unsigned node_lost; /* as item.lost, of the node's own record; that is tried again at node_due_ms */
    uint64_t node_due_ms;
    uint64_t aside_ms; /* the next that was set aside is due; UINT64_MAX: none */
    struct rng rng;
};
/* sync_read.c: what the catalog has under this node, wherever it is (rpc_fetch). Once it is there, local_wake. */
void sync_read_begin(struct sync *sync);
/* CO_AGAIN: it is not there yet. Else it has ended: CO_OK and the records, in the arena, or an error. */
struct sync_catalog {
    const Pb__NodeServicesResult *services; /* NULL: there is no such node */
    const Pb__ChecksResult *checks;
};
int sync_read_take(struct sync *sync, struct sync_catalog *catalog);
void sync_read_drop(struct sync *sync); /* nobody wants it any more */
/* sync_compare.c: marks what differs; sets node_dirty. */
void sync_compare(struct sync *sync, const struct sync_catalog *catalog);
/* sync_gather.c: under the lock. The message for what is dirty, in the arena, and its command; NULL: nothing. Fills
 * `batch`. */
const ProtobufCMessage *sync_gather(struct sync *sync, uint8_t *command);
/* The record of this node's own: node, its service "consul", its check; in the arena. */
Pb__RegisterCommand *sync_own(struct sync *sync);
/* How long a record is set aside that was lost so often. Pure. */
uint64_t sync_aside_period_ms(unsigned lost);
uint64_t sync_aside_until_ms(const struct item *item); /* 0: it is not */
void sync_item_arrived(struct item *item);             /* it travels as any other again */
bool sync_labels(const struct sync *sync);             /* what is written carries by_agent */

#define SYNC_OWN_SERVICE "consul"

#endif
