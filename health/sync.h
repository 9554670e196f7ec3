/* Anti-entropy: the catalog is made equal to what this agent knows. Only differences travel, as commands. Decides only:
 * answers and times are its arguments, what is to be done its result. The acting part is health/sync_run.c; the simulator
 * runs this too (tests/sim/agents.h).
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
 * Times are milliseconds of a monotonic clock. One thread, which holds local's lock when it calls anything but
 * sync_compare_soon and sync_compare_within. */
#ifndef COORD_HEALTH_SYNC_H
#define COORD_HEALTH_SYNC_H

#include "health/local_internal.h"

#define SYNC_NEVER       UINT64_MAX
#define SYNC_OWN_SERVICE "consul"

/* Rules that the simulator breaks, one at a time. */
enum sync_mutation {
    SYNC_MUTATE_DROPS = 1,    /* what the servers did not get is not sent again */
    SYNC_MUTATE_BLIND = 2,    /* a new node lease is no reason to compare */
    SYNC_MUTATE_TOGETHER = 4, /* a record whose writes lose their connection travels with the others */
    SYNC_MUTATE_ASIDE = 8     /* what was set aside never travels again */
};

enum sync_act {
    SYNC_REST,
    SYNC_READ, /* what the catalog has under this node: sync_read */
    SYNC_WRITE /* sync_written */
};
struct sync_order {
    enum sync_act act;
    uint64_t until_ms; /* of SYNC_REST: look again then, or after an event; SYNC_NEVER: after an event */
    /* Of SYNC_WRITE: in the arena, and points into records of local, which change under the lock only. */
    uint8_t command;
    const ProtobufCMessage *message;
};
/* What came of a write. */
struct sync_answer {
    int error, refused;
    const char *text; /* of a refusal; never NULL */
};
/* What the catalog has under this node. */
struct sync_catalog {
    const Pb__NodeServicesResult *services; /* NULL: there is no such node */
    const Pb__ChecksResult *checks;
};

struct sync {
    struct local *local; /* its liveness says whether it may write, and is told of lost leases and unknown outcomes */
    struct arena arena;  /* of what is written or read now; the caller resets it when that is used */
    unsigned mutations;  /* enum sync_mutation; 0 outside of the simulator */
    /* Its own. */
    struct item **batch; /* what flies */
    size_t batch_count, batch_capacity, batch_units;
    bool writing, reading; /* under way */
    char lease[40];        /* that the write goes by; empty: none */
    bool node_dirty, node_flying, compare_wanted;
    uint64_t compare_ms, retry_ms, backoff_ms;
    unsigned node_lost; /* as item.lost, of the node's own record; that is tried again at node_due_ms */
    uint64_t node_due_ms;
    uint64_t aside_ms; /* the next that was set aside is due; SYNC_NEVER: none */
    struct rng rng;
};

void sync_begin(struct sync *sync, struct local *local, uint64_t seed);
void sync_end(struct sync *sync); /* frees what it has */
/* What is to be done now. What it orders counts as done. */
struct sync_order sync_next(struct sync *sync, uint64_t now_ms);

void sync_written(struct sync *sync, const struct sync_answer *answer, uint64_t now_ms);
void sync_read(struct sync *sync, int error, const struct sync_catalog *catalog, uint64_t now_ms); /* or an error */
/* The catalog may hold something else than it did (a new node lease: it may have been reaped meanwhile): it is
 * compared next. */
void sync_compare_soon(struct sync *sync);
/* Every agent has reason to compare: each does at a moment of its own within so long. */
void sync_compare_within(struct sync *sync, uint64_t most_ms, uint64_t now_ms);

/* How long a record is set aside that was lost so often. */
uint64_t sync_aside_period_ms(unsigned lost);

/* -- for sync*.c -------------------------------------------------------------------------------------------------- */
/* sync_compare.c: marks what differs; sets node_dirty. */
void sync_compare(struct sync *sync, const struct sync_catalog *catalog, uint64_t now_ms);
/* sync_gather.c: the message for what is dirty, in the arena, and its command; NULL: nothing. Fills `batch`. */
const ProtobufCMessage *sync_gather(struct sync *sync, uint8_t *command, uint64_t now_ms);
/* The record of this node's own: node, its service "consul", its check; in the arena. */
Pb__RegisterCommand *sync_own(struct sync *sync);
uint64_t sync_aside_until_ms(const struct item *item); /* 0: it is not */
void sync_item_arrived(struct item *item);             /* it travels as any other again */
bool sync_labels(const struct sync *sync);             /* what is written carries by_agent */

#endif
