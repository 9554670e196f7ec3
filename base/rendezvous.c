/* Each pair of a key and a member has a hash: a number v, evenly spread over (0, 1). Its cost, -ln(1 - v) / weight, is
 * then spread exponentially, at the rate of the weight, and the member of least cost owns the key: each of such numbers
 * is the least with a probability in proportion to its rate. A member's cost does not depend on other members, so
 * nothing moves between the others.
 *
 * Members of one weight lie together. Among them the least hash has the least cost, so a bound on hashes is kept, and a
 * logarithm is computed only for a member below it. */
#include "base/rendezvous.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"

struct member {
    uint64_t hash; /* of its name */
    size_t index;  /* the caller's */
};
struct weight_class {
    double weight;
    size_t first, count; /* of the members */
};
struct rendezvous {
    struct member *members; /* by weight, then by name, so that ties are decided alike in every process */
    struct weight_class *classes;
    size_t count, class_count;
};

static int heavier_first(const void *a, const void *b) {
    const struct rendezvous_member *one = *(const struct rendezvous_member *const *)a;
    const struct rendezvous_member *other = *(const struct rendezvous_member *const *)b;
    if (one->weight != other->weight) return one->weight > other->weight ? -1 : 1;
    return slice_compare(one->name, other->name);
}

struct rendezvous *rendezvous_new(const struct rendezvous_member *members, size_t count) {
    struct rendezvous *set = mem_zalloc(sizeof *set);
    const struct rendezvous_member **sorted = mem_alloc((count + 1) * sizeof(struct rendezvous_member *));
    for (size_t i = 0; i < count; i++) {
        if (members[i].weight > 0 && isfinite(members[i].weight)) sorted[set->count++] = &members[i];
    }
    qsort(sorted, set->count, sizeof *sorted, heavier_first);
    set->members = mem_alloc((set->count + 1) * sizeof *set->members);
    set->classes = mem_alloc((set->count + 1) * sizeof *set->classes);
    for (size_t i = 0; i < set->count; i++) {
        if (i == 0 || sorted[i]->weight != sorted[i - 1]->weight)
            set->classes[set->class_count++] = (struct weight_class){.weight = sorted[i]->weight, .first = i};
        set->classes[set->class_count - 1].count++;
        struct slice name = sorted[i]->name;
        set->members[i] = (struct member){hash64(name.data, name.size), (size_t)(sorted[i] - members)};
    }
    free(sorted);
    return set;
}

void rendezvous_free(struct rendezvous *set) {
    if (!set) return;
    free(set->members);
    free(set->classes);
    free(set);
}

/* -- the least costs ---------------------------------------------------------------------------------------------- */

/* The finish of splitmix64. */
static inline uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t z = a ^ b;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t rendezvous_mix(uint64_t a, uint64_t b) { return mix(a, b); }

static double cost_of(uint64_t hash, double weight) { return -log1p(-((double)(hash >> 11) + 0.5) * 0x1p-53) / weight; }

/* No hash above this one costs less than `cost`. */
static uint64_t highest_hash(double cost, double weight) {
    double part = -expm1(-cost * weight) * (1 + 1e-9); /* so that rounding excludes no candidate */
    return part < 1 ? (uint64_t)(part * 0x1p64) : UINT64_MAX;
}

struct ranking {
    double *costs; /* ascending */
    size_t *owners;
    size_t count, most;
};

/* Inserts a member by its cost, unless `most` others are cheaper. Of equal costs the earlier one stays before. */
static void rank(struct ranking *ranking, double cost, size_t owner) {
    if (ranking->count == ranking->most && cost >= ranking->costs[ranking->count - 1]) return;
    size_t at = ranking->count < ranking->most ? ranking->count++ : ranking->count - 1;
    for (; at > 0 && ranking->costs[at - 1] > cost; at--) {
        ranking->costs[at] = ranking->costs[at - 1];
        ranking->owners[at] = ranking->owners[at - 1];
    }
    ranking->costs[at] = cost;
    ranking->owners[at] = owner;
}

static uint64_t bound(const struct ranking *ranking, double weight) {
    if (ranking->count < ranking->most) return UINT64_MAX;
    return highest_hash(ranking->costs[ranking->count - 1], weight);
}

/* The second hash is made of the first one, which is spread evenly for each member. */
static bool keeps(uint64_t hash, double part) {
    return part >= 1 || (double)(mix(hash, UINT64_C(0x9e3779b97f4a7c15)) >> 11) * 0x1p-53 < part;
}

/* Ranks the members that keep the key (`wanted`), or those that do not. Without `kept`, all keep it. */
static void rank_all(const struct rendezvous *set, const struct rendezvous_ask *ask, bool wanted,
                     struct ranking *ranking) {
    if (ranking->most == 0) return;
    uint64_t key = ask->hash ? 0 : hash64(ask->key.data, ask->key.size);
    for (const struct weight_class *class = set->classes; class < set->classes + set->class_count; class ++) {
        uint64_t highest = bound(ranking, class->weight);
        const struct member *member = set->members + class->first;
        for (const struct member *end = member + class->count; member < end; member++) {
            uint64_t hash = ask->hash ? ask->hash(ask->data, member->hash) : mix(key, member->hash);
            if (hash > highest) continue;
            if (ask->kept && keeps(hash, ask->kept[member->index]) != wanted) continue;
            rank(ranking, cost_of(hash, class->weight), member->index);
            highest = bound(ranking, class->weight);
        }
    }
}

size_t rendezvous_owners(const struct rendezvous *set, const struct rendezvous_ask *ask, size_t *owners) {
    double few[16];
    size_t most = ask->most < set->count ? ask->most : set->count;
    double *costs = most <= ARRAY_COUNT(few) ? few : mem_alloc(most * sizeof *costs);
    struct ranking ranking = {.costs = costs, .owners = owners, .most = most};
    rank_all(set, ask, true, &ranking);
    size_t found = ranking.count;
    if (ask->kept && found < most) { /* those that do not keep it come last, in their own order */
        struct ranking rest = {.costs = costs, .owners = owners + found, .most = most - found};
        rank_all(set, ask, false, &rest);
        found += rest.count;
    }
    if (costs != few) free(costs);
    return found;
}

size_t rendezvous_owner(const struct rendezvous *set, struct slice key) {
    size_t owner = SIZE_MAX;
    rendezvous_owners(set, &(struct rendezvous_ask){.key = key, .most = 1}, &owner);
    return owner;
}
