/* The copy of a region under faults (copy_world.h): always one past state of its source, and equal to it in the end; and
 * a broken rule that this notices. COORD_SEED=N runs that seed alone. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "copy_world.h"

enum { STEPS = 1400 };

static const char *run(uint64_t seed, unsigned mutations, struct world_counts *sum) {
    static char text[256];
    struct world *world = world_new(seed, mutations);
    world_run(world, STEPS);
    if (!world_violation(world)) world_heal(world);
    struct world_counts counts = world_counts(world);
    for (size_t i = 0; i < sizeof counts / sizeof(size_t); i++) ((size_t *)sum)[i] += ((const size_t *)&counts)[i];
    const char *violation = world_violation(world);
    if (violation) snprintf(text, sizeof text, "%s", violation);
    world_free(world);
    return violation ? text : NULL;
}

Test(copy_story, readers_see_one_past_state, .timeout = 300) {
    const char *only = getenv("COORD_SEED");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1, last = only ? first : 8;
    struct world_counts sum = {0};
    for (uint64_t seed = first; seed <= last; seed++) {
        const char *violation = run(seed, 0, &sum);
        cr_assert_null(violation, "seed %d: %s", (int)seed, violation);
    }
    if (only) return;
    /* All of it has happened. */
    cr_assert(sum.updates > 50 && sum.stages > 80 && sum.commits > 15 && sum.tidied > 30, "%zu %zu %zu %zu",
              sum.updates, sum.stages, sum.commits, sum.tidied);
    cr_assert(sum.refused > 20 && sum.flips > 5 && sum.lost > 10 && sum.repeated > 10 && sum.lives > 5,
              "%zu %zu %zu %zu %zu", sum.refused, sum.flips, sum.lost, sum.repeated, sum.lives);
}

Test(copy_story, a_broken_rule_is_noticed, .timeout = 300) {
    struct world_counts sum = {0};
    for (uint64_t seed = 1; seed <= 8; seed++)
        if (run(seed, MUTATE_COPY_MIXES, &sum)) return;
    cr_assert_fail("nobody noticed that changes of the copy count whatever they were made for");
}
