#include "subsets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "lb/subset.h"

const char *const subset_names[SUBSET_WAYS] = {"deterministic subsetting", "coord, callers by name",
                                               "coord, callers numbered"};

/* uses[caller][instance], for all instances but the one that is gone (SIZE_MAX: none is). */
struct uses {
    bool *bits;
    size_t callers, instances;
};

/* The rounds of the book: in each, the instances are shuffled, by its number, and cut into subsets. */
static void deterministic(struct uses *uses, size_t size, size_t gone) {
    size_t *order = mem_alloc(uses->instances * sizeof *order), there = 0;
    for (size_t i = 0; i < uses->instances; i++)
        if (i != gone) order[there++] = i;
    size_t subsets = there / size;
    for (size_t caller = 0; caller < uses->callers; caller++) {
        if (caller % subsets == 0) {
            struct rng rng;
            rng_seed(&rng, caller / subsets);
            for (size_t i = 0, at = 0; i < uses->instances; i++)
                if (i != gone) order[at++] = i;
            for (size_t i = there - 1; i > 0; i--) {
                size_t other = rng_below(&rng, i + 1), moved = order[i];
                order[i] = order[other], order[other] = moved;
            }
        }
        for (size_t i = 0; i < size; i++)
            uses->bits[caller * uses->instances + order[caller % subsets * size + i]] = true;
    }
    free(order);
}

static void by_rendezvous(struct uses *uses, size_t size, size_t gone, const char *format) {
    struct rendezvous_member *members = mem_alloc(uses->instances * sizeof *members);
    char(*names)[24] = mem_alloc(uses->instances * sizeof *names), id[32];
    size_t *chosen = mem_alloc(size * sizeof *chosen);
    for (size_t i = 0; i < uses->instances; i++) {
        int length = snprintf(names[i], sizeof names[i], "host%zu/api", i);
        members[i] = (struct rendezvous_member){slice_make(names[i], (size_t)length), i != gone};
    }
    struct rendezvous *set = rendezvous_new(members, uses->instances);
    for (size_t caller = 0; caller < uses->callers; caller++) {
        int length = snprintf(id, sizeof id, format, caller);
        CHECK(subset_choose(set, slice_make(id, (size_t)length), size, chosen) == size);
        for (size_t i = 0; i < size; i++) uses->bits[caller * uses->instances + chosen[i]] = true;
    }
    rendezvous_free(set);
    free(members), free(names), free(chosen);
}

static struct uses assign(enum subset_way way, size_t instances, size_t size, size_t callers, size_t gone) {
    struct uses uses = {mem_zalloc(callers * instances), callers, instances};
    if (way == SUBSET_DETERMINISTIC) deterministic(&uses, size, gone);
    if (way == SUBSET_CHANCE) by_rendezvous(&uses, size, gone, "web-%zu-a");
    if (way == SUBSET_NUMBERED) by_rendezvous(&uses, size, gone, "web-%zu");
    return uses;
}

static void cover(const struct uses *uses, size_t size, struct subset_outcome *outcome) {
    double mean = (double)(uses->callers * size) / (double)uses->instances, sum = 0;
    outcome->least = INFINITY;
    for (size_t i = 0; i < uses->instances; i++) {
        double count = 0;
        for (size_t caller = 0; caller < uses->callers; caller++) count += uses->bits[caller * uses->instances + i];
        sum += (count / mean - 1) * (count / mean - 1);
        outcome->least = fmin(outcome->least, count / mean);
        outcome->most = fmax(outcome->most, count / mean);
    }
    outcome->deviation = sqrt(sum / (double)uses->instances);
}

struct subset_outcome subsets_compare(enum subset_way way, size_t instances, size_t size, size_t callers) {
    struct subset_outcome outcome = {0};
    struct uses before = assign(way, instances, size, callers, SIZE_MAX);
    size_t moved = 0;
    cover(&before, size, &outcome);
    for (size_t gone = 0; gone < instances; gone++) {
        struct uses after = assign(way, instances, size, callers, gone);
        for (size_t i = 0; i < callers * instances; i++) moved += before.bits[i] && !after.bits[i];
        free(after.bits);
    }
    outcome.moved = (double)moved / (double)(instances * callers * size);
    free(before.bits);
    return outcome;
}
