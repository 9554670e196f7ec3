/* Picks the instance of a service for a request.
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
 * ring      the owner of a key (base/rendezvous.h); one beyond 1.25 times the mean load gives up a share of them
 *           (lb/keep.h)
 *
 * Old hints cause herding: an instance that all take for idle is overrun until its next report. So in the comparisons
 * of p2c and hcl the better instance wins for sure only while its hint is of now, or while the difference is larger
 * than the requests that all have placed since, which is about the mean times age / latency. A smaller difference wins
 * more often, in proportion. When no instance reports the duration of requests (latency_ms), hints count as being of
 * now; in a comparison the two instances' own reports count.
 *
 * How loaded a candidate is: load + own requests / weight, and with errors more than that: an instance that fails fast
 * looks idle, and would draw all requests to itself (figure_with_errors; latency and requests in flight alike). An
 * instance that fails all requests loses against any other one. A figure that is not reported never counts as zero: it
 * counts as the mean of the reports (lb/figure.h). Errors that are not reported count as none. When hcl finds no
 * difference, because no instance reports the figures that it compares, the load decides.
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
    enum pick_status status; /* the worst status of its checks; maintenance is worse than critical */
    double weight;           /* at least 0; when all are 0 all count alike */
    double share;            /* the part of it that counts so far (load_share), above 0 to 1 */
    double distance_s;       /* INFINITY: not known */
    struct load_hint hint;   /* load_unknown(): there is none */
    double kept;             /* the share of its keys that it keeps, above 0 to 1; for ring */
    uint64_t reported_ns;    /* when the hint was true; monotonic */
};

#define PICK_HCL_SAMPLE     4    /* candidates that hcl looks at */
#define PICK_HCL_QUANTILE   0.84 /* part of all candidates that is not hot, as in Prequal */
#define PICK_CONSIDERED_MAX 4

struct pick_set;
struct pick_set *pick_set_new(void);
void pick_set_free(struct pick_set *set);
/* Later calls name a candidate by its index. `passing`: leaves out candidates with warnings too. */
void pick_set_fill(struct pick_set *set, const struct pick_candidate *candidates, size_t count, bool passing);
/* Replaces the hint of a candidate. */
void pick_set_hint(struct pick_set *set, size_t candidate, const struct load_hint *hint, uint64_t reported_ns);

/* Replaces its share of keys. Only ratios of shares count: the pickable candidate with the greatest share keeps all its
 * keys. */
void pick_set_kept(struct pick_set *set, size_t candidate, double kept);

struct pick_ask {
    enum pick_policy policy;
    struct slice key; /* ring */
    struct rng *rng;  /* other policies than ring */
    uint64_t now_ns;
    const uint32_t *own; /* requests in flight of the picking program itself, by candidate; NULL: not known */
};
struct pick_result {
    size_t picked;
    size_t considered[PICK_CONSIDERED_MAX]; /* the compared candidates, itself included */
    size_t considered_count;
};
/* CO_NOTFOUND: no candidate may be picked; pick_excluded has the reasons. */
int pick(struct pick_set *set, const struct pick_ask *ask, struct pick_result *result);

/* The owners of a key by the ring, in their order; at most `most`. Returns how many. */
size_t pick_owners(struct pick_set *set, struct slice key, size_t most, size_t *owners);

size_t pick_count(const struct pick_set *set); /* candidates that may be picked */
/* How many were left out because of this status. */
size_t pick_excluded(const struct pick_set *set, enum pick_status status);
/* Appends the reason why none can be picked: "12 critical, 3 in maintenance", "there are none". */
void pick_why(const struct pick_set *set, struct buffer *out);

/* The load for which a candidate counts by itself, as ?lb= shows it; LOAD_MOST, if it fails all requests. NAN: no
 * candidate reports any. */
double pick_load(const struct pick_set *set, size_t candidate);

#endif
