/* The instances of a service as the catalog has them at one moment, together with the hints of their load. HTTP and DNS
 * pick from it. A thread that picks keeps a balance for as long as the catalog's generation of the service stands;
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
/* Copies the fields that it needs from the entries; later calls name an entry by its index. `hints` has to live
 * longer. */
struct balance *balance_new(struct hints *hints, const Pb__ServiceEntriesResult *entries, uint64_t now_ns);
void balance_free(struct balance *balance); /* NULL allowed */
size_t balance_count(const struct balance *balance);
size_t balance_bytes(const struct balance *balance); /* the memory that it holds, about */

/* `balance` follows `before`, of the same service: its new instances start slowly, and hints of missing ones are
 * forgotten. Both have to have all the instances of the service. */
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
/* Picks: indexes of entries, with the load that counts for them (NAN: nobody has reported any). CO_NOTFOUND: no
 * instance can be picked; balance_why has the reason. */
struct balance_picked {
    size_t picked, considered[PICK_CONSIDERED_MAX], count;
    double loads[PICK_CONSIDERED_MAX];
};
int balance_pick(struct balance *balance, const struct balance_ask *ask, struct balance_picked *picked);
/* The owners of ask->key, the first one first; of `ask`, tags and passing count. Returns how many. */
size_t balance_owners(struct balance *balance, const struct balance_ask *ask, size_t most, size_t *owners);
void balance_why(struct balance *balance, const struct balance_ask *ask, struct buffer *out);

/* Is the instance one that `ask` asks for, by tags and passing? */
bool balance_is_asked(struct balance *balance, const struct balance_ask *ask, size_t entry);
/* The figures of an entry that ?lb= shows. load, age: NAN: not known. */
struct balance_shown {
    double load, weight, age_ms; /* weight: multiplied by its share; 0: it is never picked */
};
struct balance_shown balance_show(struct balance *balance, const struct balance_ask *ask, size_t entry);

/* For policy nearest. True: the distances are missing or old, and the caller sets that of each instance's node. */
bool balance_wants_distances(const struct balance *balance, uint64_t now_ns);
void balance_distances(struct balance *balance, double (*of)(void *data, struct slice node), void *data,
                       uint64_t now_ns);

#endif
