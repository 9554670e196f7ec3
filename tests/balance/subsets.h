/* Ways to give each caller a subset of the instances, side by side. */
#ifndef COORD_TESTS_BALANCE_SUBSETS_H
#define COORD_TESTS_BALANCE_SUBSETS_H

#include <stddef.h>
#include <stdint.h>

enum subset_way {
    SUBSET_DETERMINISTIC, /* as in "Site Reliability Engineering": callers are numbered, each round shuffled anew */
    SUBSET_CHANCE,        /* lb/subset.h for callers whose names end in no number */
    SUBSET_NUMBERED,      /* ... and for those whose names do */
    SUBSET_WAYS
};
extern const char *const subset_names[SUBSET_WAYS];

struct subset_outcome {
    double deviation;   /* of the callers of an instance, as a part of the mean */
    double least, most; /* callers of an instance, as parts of the mean */
    double moved;       /* part of the assignments that change when an instance leaves, the mean over all instances */
};
struct subset_outcome subsets_compare(enum subset_way way, size_t instances, size_t size, size_t callers);

#endif
