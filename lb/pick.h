/* Which instance of a service a request goes to.
 *
 * A set is filled with the candidates and their hints; picks are then made from it: O(1) for p2c, weighted and, unless
 * some are equally near, nearest; O(n) for ring, and for the first pick by hcl after hints have changed. Filling is
 * O(n log n) and done again when instances or their health change, or shares grow (load_share); a hint alone is
 * exchanged in O(1). Critical instances and those in maintenance are never picked.
 *
 * p2c       two random candidates, by weight; the less loaded one wins
 * hcl       hot-cold lexicographic (Wydrowski, Kleinberg, Rumble, Archer, "Load is not what you should balance", NSDI
 *           2024): of some random candidates those are hot whose requests in flight are above a quantile of all; the
 *           cold one of least latency wins; where all are hot, the one with the fewest requests in flight
 * weighted  one random candidate, by weight
 * nearest   the one at the least distance; a random one of those, by weight
 * ring      the owner of a key (base/rendezvous.h); one beyond 1.25 times the mean load gives up a share of them (lb/keep.h)
 *
 * Old hints herd: what everybody takes for idle is overrun until the next report. So where p2c and hcl compare, the
 * better one wins for sure only while its hint is of now, or the difference is larger than what all have placed since,
 * which is about the mean times age / latency. Below that it wins more often, in proportion. Where nobody says how long
 * requests take (latency_ms), hints count as being of now; of two that are compared, what they say themselves counts.
 *
 * How loaded a candidate is: load + own requests / weight, and with errors more than that: an instance that fails fast
 * has nothing to do otherwise, and would draw all requests to itself (figure_with_errors; latency and requests in flight
 * alike). One that fails everything loses against any other one. Nothing that is not said counts as zero or as an error:
 * it counts as the mean of those that say it (lb/figure.h), errors as none. Where hcl finds no difference, because nobody
 * says what it compares, the load decides.
 *
 * Randomness is the caller's, so a run replays. A set is for one thread, or is locked. */
#ifndef COORD_LB_PICK_H
#define COORD_LB_PICK_H

#include "base/random.h"
#include "lb/load_hint.h"

enum pick_policy { PICK_P2C, PICK_HCL, PICK_WEIGHTED, PICK_NEAREST, PICK_RING, PICK_POLICIES };
const char *pick_policy_name(enum pick_policy policy);
int pick_policy_parse(struct slice name, enum pick_policy *policy, struct fault *fault); /* CO_INVALID, names all */

enum pick_status { PICK_PASSING, PICK_WARNING, PICK_CRITICAL, PICK_MAINTENANCE, PICK_STATUSES };
struct pick_candidate {
    struct slice name;       /* unique; for ring; read while the set is filled only */
    enum pick_status status; /* the worst of its checks; maintenance before critical */
    double weight;           /* at least 0; none at all above 0: all count alike */
    double share;            /* the part of it that counts so far (load_share), above 0 to 1 */
    double distance_s;       /* INFINITY: not known */
    struct load_hint hint;   /* load_unknown(): none */
    double kept;             /* the share of its keys that it keeps, above 0 to 1; for ring */
    uint64_t reported_ns;    /* when the hint was true; monotonic */
};

#define PICK_HCL_SAMPLE     4    /* candidates that hcl looks at */
#define PICK_HCL_QUANTILE   0.84 /* of all candidates, the part that is not hot: Prequal's */
#define PICK_CONSIDERED_MAX 4

struct pick_set;
struct pick_set *pick_set_new(void);
void pick_set_free(struct pick_set *set);
/* Candidates are known by their index from then on. `passing`: neither those with warnings. */
void pick_set_fill(struct pick_set *set, const struct pick_candidate *candidates, size_t count, bool passing);
/* Another hint for a candidate. */
void pick_set_hint(struct pick_set *set, size_t candidate, const struct load_hint *hint, uint64_t reported_ns);

/* Another share of its keys. Shares count beside each other: the one that keeps most of those that may be picked keeps all. */
void pick_set_kept(struct pick_set *set, size_t candidate, double kept);

struct pick_ask {
    enum pick_policy policy;
    struct slice key; /* ring */
    struct rng *rng;  /* the others */
    uint64_t now_ns;
    const uint32_t *own; /* requests that the asker itself has in flight, by candidate; NULL: not known */
};
struct pick_result {
    size_t picked;
    size_t considered[PICK_CONSIDERED_MAX]; /* what it was compared with, itself too */
    size_t considered_count;
};
/* CO_NOTFOUND: there is nobody to be picked; pick_excluded says why. */
int pick(struct pick_set *set, const struct pick_ask *ask, struct pick_result *result);

/* The owners of a key, as ring has them, the first one first: as many as `most` or as there are. Returns how many. */
size_t pick_owners(struct pick_set *set, struct slice key, size_t most, size_t *owners);

size_t pick_count(const struct pick_set *set); /* that may be picked */
/* How many were left out because of this status. */
size_t pick_excluded(const struct pick_set *set, enum pick_status status);
/* Appends why nobody can be picked: "12 critical, 3 in maintenance", "there are none". */
void pick_why(const struct pick_set *set, struct buffer *out);

/* How loaded a candidate counts, by itself: what ?lb= shows; at most LOAD_MOST, for one that fails everything. NAN: nobody
 * has said anything. */
double pick_load(const struct pick_set *set, size_t candidate);

#endif
