/* Anti-entropy: the agent makes the catalog equal to what it knows itself. Only differences travel, as commands. The
 * code here decides only: answers and times are its arguments, the next action is its result. health/anti_entropy_run.c
 * carries the actions out; the simulator runs this code too (tests/sim/agents.h).
 *
 * One write is under way at a time, with everything that was dirty when it left (in one CATALOG_BATCH), so changes
 * arrive in order. The agent compares all its records with the catalog at the start, when an outcome is unknown, and
 * about once a minute. So it finds records that others changed or that were lost, and records that it once wrote there
 * and does not know any more, which it removes.
 *
 * A write of unknown outcome may arrive much later (its server stood still, the kernel sends again what a closed
 * connection still had), and would undo what was written after it. So the agent replaces the node lease first
 * (liveness_replace): the servers then refuse every write that names the lease before, and only then does the agent
 * compare the catalog. This costs one entry of the log for each such write.
 *
 * A record whose writes end in a lost connection again and again must not hold up the others: after the second loss
 * each record of the batch travels alone, and one whose write is lost even then is set aside, longer and longer (2 s to
 * 2 min; 10 s at most when it was changed since), while the others go on.
 *
 * With access control each record travels on behalf of the token that it was registered with (local.h), and a batch has
 * records of one requester only; the node's own record, and removals, are the agent's own work. A record that the servers
 * deny to its token stays dirty, and is tried again 5 s later, then less often, up to 60 s; at once when it is changed or
 * gets another token. The others go on.
 *
 * Ownership of records: while this agent holds its node lease (so no other agent is this node, and the cluster knows
 * the label), it labels all that it writes by_agent. Under its node it removes only labelled records. Records that
 * others registered there stay as they are, unless a service or check of the same id is registered here, which then
 * replaces them.
 *
 * Times are milliseconds of a monotonic clock. One thread, which holds local's lock when it calls anything but
 * anti_entropy_compare_soon and anti_entropy_compare_within. */
#ifndef COORD_HEALTH_ANTI_ENTROPY_H
#define COORD_HEALTH_ANTI_ENTROPY_H

#include "health/local_internal.h"

#define ANTI_ENTROPY_NEVER       UINT64_MAX
#define ANTI_ENTROPY_OWN_SERVICE "consul"

/* Rules that the simulator breaks, one at a time. */
enum anti_entropy_mutation {
    ANTI_ENTROPY_MUTATE_DROPS = 1,    /* a write that the servers did not get is not sent again */
    ANTI_ENTROPY_MUTATE_BLIND = 2,    /* a new node lease is no reason to compare */
    ANTI_ENTROPY_MUTATE_TOGETHER = 4, /* a record whose writes lose their connection travels with the others */
    ANTI_ENTROPY_MUTATE_ASIDE = 8     /* a record that was set aside never travels again */
};

enum anti_entropy_act {
    ANTI_ENTROPY_REST,
    ANTI_ENTROPY_READ, /* read the catalog's records of this node, then call anti_entropy_read */
    ANTI_ENTROPY_WRITE /* write `message`, then call anti_entropy_written */
};
struct anti_entropy_order {
    enum anti_entropy_act act;
    /* Of ANTI_ENTROPY_REST: look again then, or after an event; ANTI_ENTROPY_NEVER: after an event. */
    uint64_t until_ms;
    /* Of ANTI_ENTROPY_WRITE: in the arena, and points into records of local, which change under the lock only. */
    uint8_t command;
    const ProtobufCMessage *message;
    const struct requester *requester; /* on whose behalf, likewise; NULL: the agent's own work */
};
/* The outcome of a write. */
struct anti_entropy_answer {
    int error, refused;
    const char *text; /* of a refusal; never NULL */
};
/* The catalog's records of this node. */
struct anti_entropy_catalog {
    const Pb__NodeServicesResult *services; /* NULL: there is no such node */
    const Pb__ChecksResult *checks;
    uint64_t hidden; /* records that the agent's token may not read */
};

struct anti_entropy {
    struct local *local; /* its liveness says whether it may write, and is told of lost leases and unknown outcomes */
    struct arena arena;  /* of what is written or read now; the caller resets it when that is used */
    unsigned mutations;  /* enum anti_entropy_mutation; 0 outside of the simulator */
    /* Set by the caller before anti_entropy_next: is there access control, and on whose behalf services without a token
     * travel then (NULL: the agent's own work). */
    bool controlled;
    const struct requester *services;
    /* Its own. */
    struct item **batch; /* the items that are flying */
    size_t batch_count, batch_capacity, batch_units;
    bool writing, reading; /* under way */
    char lease[40];        /* that the write names; empty: none */
    bool node_dirty, node_flying, compare_wanted;
    uint64_t compare_ms, retry_ms, backoff_ms;
    unsigned node_lost; /* as item.lost, of the node's own record; that is tried again at node_due_ms */
    uint64_t node_due_ms;
    bool node_denied, read_denied, read_hides; /* that was logged */
    uint64_t aside_ms; /* when the next item that was set aside is due; ANTI_ENTROPY_NEVER: none */
    struct rng rng;
};

void anti_entropy_begin(struct anti_entropy *sync, struct local *local, uint64_t seed);
void anti_entropy_end(struct anti_entropy *sync); /* frees what it has */
/* Returns the next order for the caller to carry out; an order that was returned is not repeated. */
struct anti_entropy_order anti_entropy_next(struct anti_entropy *sync, uint64_t now_ms);

void anti_entropy_written(struct anti_entropy *sync, const struct anti_entropy_answer *answer, uint64_t now_ms);
/* The catalog, or an error. */
void anti_entropy_read(struct anti_entropy *sync, int error, const struct anti_entropy_catalog *catalog,
                       uint64_t now_ms);
/* The catalog may have changed (there is a new node lease: the node may have been removed meanwhile): the agent
 * compares it next. */
void anti_entropy_compare_soon(struct anti_entropy *sync);
/* All agents of the cluster have a reason to compare: each picks a random moment within `most_ms`. */
void anti_entropy_compare_within(struct anti_entropy *sync, uint64_t most_ms, uint64_t now_ms);

/* How long a record is set aside after `lost` writes of it in a row were lost. */
uint64_t anti_entropy_aside_period_ms(unsigned lost);
uint64_t anti_entropy_denied_period_ms(unsigned denied); /* after it was denied so often in a row */

/* -- for anti_entropy*.c ------------------------------------------------------------------------------------------- */
/* anti_entropy_compare.c: marks the items that differ; sets node_dirty. */
void anti_entropy_compare(struct anti_entropy *sync, const struct anti_entropy_catalog *catalog, uint64_t now_ms);
/* anti_entropy_gather.c: the message with the dirty items, in the arena, and its command; NULL: there are none. Fills
 * `batch`. */
const ProtobufCMessage *anti_entropy_gather(struct anti_entropy *sync, uint8_t *command, uint64_t now_ms);
/* The agent's registration of itself: the node, its service "consul" and its check; in the arena. */
Pb__RegisterCommand *anti_entropy_own(struct anti_entropy *sync);
uint64_t anti_entropy_aside_until_ms(const struct item *item); /* 0: it is not; also of one that was denied */
const struct requester *anti_entropy_requester(const struct anti_entropy *sync, const struct item *item);
void anti_entropy_item_arrived(struct item *item);         /* it travels like any other item again */
bool anti_entropy_labels(const struct anti_entropy *sync); /* the agent labels its records by_agent */

#endif
