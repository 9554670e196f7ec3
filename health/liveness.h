/* This agent's node lease (registry/lease.h), which tells the cluster that this node is alive. The agent asks for it
 * under the node's name, renews it three times in each TTL and every 10 s at least, and asks for a new one when it has
 * ended (this host was cut off, or stood still, for longer than the TTL). The answer to a renewal tells whether the
 * servers have taken in a backup: then the agent compares the catalog. The code here decides only: answers and times
 * are its arguments, the next action is its result. health/liveness_run.c carries the actions out; the simulator runs
 * this code too (tests/sim/agents.h).
 *
 *     ASKING --granted--> HELD --ended--> ASKING
 *      |                 '--replaced--> ASKING: writes that name the lease before become void
 *        '--another agent has the name--> WAITING: asks every 1 to 3 s, logs that once a minute
 *
 * Another agent is one with another node id, or with the same one at another address (registry/lease.h). Two agents on
 * one host with the same id and address take the lease from each other: an agent that loses it again and again soon
 * after it was granted asks later and later, up to 30 s.
 *
 * While it is ASKING or WAITING the agent writes nothing of this node to the catalog (anti_entropy.h), because another
 * agent may have the name.
 *
 * Times are milliseconds of a monotonic clock. One question is under way at a time. One thread. */
#ifndef COORD_HEALTH_LIVENESS_H
#define COORD_HEALTH_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"

#define LIVENESS_NEVER    UINT64_MAX
#define LIVENESS_ID_SIZE  40
#define LIVENESS_LEAVE_MS 5000

/* Rules that the simulator breaks, one at a time. */
enum liveness_mutation {
    LIVENESS_MUTATE_NEVER_AGAIN = 1,  /* a renewal that was lost is not sent again */
    LIVENESS_MUTATE_KEEPS_LOST = 2,   /* a lease that has ended is not asked for anew */
    LIVENESS_MUTATE_KEEPS_VOID = 4,   /* after a write of unknown outcome the lease is not replaced */
    LIVENESS_MUTATE_STAYS = 8,        /* leaving does not end the lease */
    LIVENESS_MUTATE_TAKEN_WRITES = 16 /* it writes while another agent has the name */
};

enum liveness_act {
    LIVENESS_REST,
    LIVENESS_GRANT,   /* ask for a lease, with an id that was never used */
    LIVENESS_RENEW,   /* `lease` */
    LIVENESS_END,     /* `lease`: the node leaves */
    LIVENESS_CHANGED, /* liveness_lease or liveness_may_write may have changed: call anti_entropy_compare_soon */
    LIVENESS_COMPARE, /* the servers have taken in a backup: call anti_entropy_compare_within */
    LIVENESS_LEFT     /* liveness_leave is done, with `error` */
};
struct liveness_order {
    enum liveness_act act;
    uint64_t until_ms;  /* of LIVENESS_REST: look again then, or after an event; LIVENESS_NEVER: after an event */
    uint64_t within_ms; /* of LIVENESS_COMPARE */
    const char *lease;
    int error;
};

/* The answer to LIVENESS_GRANT, LIVENESS_RENEW or LIVENESS_END. */
struct liveness_answer {
    int error, refused;
    const char *text;  /* of a refusal; never NULL */
    const char *id;    /* of LIVENESS_GRANT: the id that was asked for */
    uint64_t restored; /* of LIVENESS_RENEW: index of the entry by which the servers took in a backup last; 0: none */
};

struct liveness_rules {
    const char *node; /* for messages */
    int64_t ttl_ns;
    uint64_t seed;
    unsigned mutations; /* enum liveness_mutation; 0 outside of the simulator */
};

struct liveness {
    struct liveness_rules rules;
    /* Its own. */
    enum liveness_state { LIVENESS_ASKING, LIVENESS_WAITING, LIVENESS_HELD, LIVENESS_GONE } state;
    char id[LIVENESS_ID_SIZE];
    enum liveness_act asked; /* the question that is under way; LIVENESS_REST: none */
    uint64_t next_ms, again_ms, told_ms, leave_by_ms, restored, taken_ms, granted_ms;
    unsigned lost; /* how often in a row the lease was lost soon after it was granted */
    bool granted;  /* at least once */
    bool stands;   /* ASKING, but `id` may still be held: the new lease replaces it */
    bool leaves, has_left, changed, compares;
    bool denied; /* to the agent's token, and that was logged */
    int left_error;
    struct rng rng;
};

/* The texts of `rules` have to outlive `liveness`. */
void liveness_begin(struct liveness *liveness, const struct liveness_rules *rules, uint64_t now_ms);
/* Returns the next order. The caller carries it out and calls again, until the order is LIVENESS_REST; an order that
 * was returned is not repeated. known_leader: this process has heard of a leader. */
struct liveness_order liveness_next(struct liveness *liveness, bool known_leader, uint64_t now_ms);

void liveness_answered(struct liveness *liveness, const struct liveness_answer *answer, uint64_t now_ms);
/* The servers refused a write because the lease is over. */
void liveness_lost(struct liveness *liveness, uint64_t now_ms);
/* A write that names this lease may still arrive, at an unknown time. If the agent holds the lease, it asks for a new
 * one in its place, so that the servers refuse the late write. The node stays alive meanwhile, but the agent writes
 * nothing until the new lease is granted. */
void liveness_replace(struct liveness *liveness, const char *lease);
/* The node leaves in order: the servers remove it from the catalog at once. LIVENESS_LEFT follows within
 * LIVENESS_LEAVE_MS. CO_OK: the node has left, or held no lease; another error: the servers refused, or it is unknown
 * whether they have removed the node. Afterwards the agent neither renews a lease nor asks for one. */
void liveness_leave(struct liveness *liveness, uint64_t now_ms);

bool liveness_may_write(const struct liveness *liveness);
/* The id of the lease that is held; NULL: none, and nothing may be written. */
const char *liveness_lease(const struct liveness *liveness);

uint64_t liveness_period_ms(int64_t ttl_ns); /* from one renewal to the next */
/* How long the agent waits before it asks again, after it lost the lease `lost` times in a row, each time soon after it
 * was granted. */
uint64_t liveness_lost_wait_ms(unsigned lost);

#endif
