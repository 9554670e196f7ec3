/* The instances of a service as the catalog has them at one moment, together with what is known of their load: what is
 * picked from, by HTTP and by DNS. Kept by whoever picks for as long as the catalog's generation of the service stands;
 * filling costs some 100 us for 1,000 instances, a pick less than one.
 *
 * Hints are looked at again when there are new ones, at most every 10 ms to 200 ms, less often the more instances there
 * are: 1,000 of them cost a thread 0.2 % of its time. Weights are filled anew while shares grow (slow start).
 *
 * One thread each. Times are nanoseconds of the monotonic clock. */
#ifndef COORD_LB_BALANCE_H
#define COORD_LB_BALANCE_H

#include "lb/hints.h"
#include "lb/pick.h"
#include "registry/catalog.h"

struct balance;
/* Copies what it needs of the entries; they are known by their index from then on. `hints` live longer. */
struct balance *balance_new(struct hints *hints, const Pb__ServiceEntriesResult *entries, uint64_t now_ns);
void balance_free(struct balance *balance); /* NULL allowed */
size_t balance_count(const struct balance *balance);
size_t balance_bytes(const struct balance *balance); /* memory that it holds, about */

/* `balance` comes after `before`, of the same service: what is new in it begins slowly, what is gone is forgotten. Only for
 * all the instances of a service, not for a part. */
void balance_follows(const struct balance *balance, const struct balance *before, uint64_t now_ns);

struct balance_ask {
    enum pick_policy policy;
    struct slice key;         /* ring */
    const struct slice *tags; /* only instances with all of them, without case */
    size_t tag_count;
    bool passing; /* none with warnings */
    struct rng *rng;
    uint64_t now_ns;
};
/* Indexes of entries, with how loaded they count (NAN: nobody has said anything). CO_NOTFOUND: there is nobody to be
 * picked, balance_why says why. */
struct balance_picked {
    size_t picked, considered[PICK_CONSIDERED_MAX], count;
    double loads[PICK_CONSIDERED_MAX];
};
int balance_pick(struct balance *balance, const struct balance_ask *ask, struct balance_picked *picked);
/* The owners of ask->key, the first one first; of `ask`, tags and passing count. Returns how many. */
size_t balance_owners(struct balance *balance, const struct balance_ask *ask, size_t most, size_t *owners);
void balance_why(struct balance *balance, const struct balance_ask *ask, struct buffer *out);

/* Is it one of those that are asked for, by tags and passing? */
bool balance_is_asked(struct balance *balance, const struct balance_ask *ask, size_t entry);
/* What ?lb= shows of an entry. load, age: NAN: nothing is known. */
struct balance_shown {
    double load, weight, age_ms; /* weight: with its share; 0: it is not picked */
};
struct balance_shown balance_show(struct balance *balance, const struct balance_ask *ask, size_t entry);

/* For policy nearest: distances are wanted, because there are none or they are old. Then for each instance's node. */
bool balance_wants_distances(const struct balance *balance, uint64_t now_ns);
void balance_distances(struct balance *balance, double (*of)(void *data, struct slice node), void *data,
                       uint64_t now_ns);

#endif
