/* Copied keys under faults (keys_world.h): a past state of their source whenever their rule says that they are whole, and
 * equal to it in the end; and a broken rule that this notices. COORD_SEED=N runs that seed alone. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "keys_world.h"

enum { STEPS = 1400 };

static const char *run(uint64_t seed, unsigned mutations, struct keys_world_counts *sum) {
    static char text[256];
    struct keys_world *world = keys_world_new(seed, mutations);
    keys_world_run(world, STEPS);
    if (!keys_world_violation(world)) keys_world_heal(world);
    struct keys_world_counts counts = keys_world_counts(world);
    for (size_t i = 0; i < sizeof counts / sizeof(size_t); i++) ((size_t *)sum)[i] += ((const size_t *)&counts)[i];
    const char *violation = keys_world_violation(world);
    if (violation) snprintf(text, sizeof text, "%s", violation);
    keys_world_free(world);
    return violation ? text : NULL;
}

Test(keys_story, whole_copies_are_past_states, .timeout = 300) {
    const char *only = getenv("COORD_SEED");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1, last = only ? first : 6;
    struct keys_world_counts sum = {0};
    for (uint64_t seed = first; seed <= last; seed++) {
        const char *violation = run(seed, 0, &sum);
        cr_assert_null(violation, "seed %d: %s", (int)seed, violation);
    }
    if (only) return;
    /* All of it has happened. */
    cr_assert(sum.listings > 15 && sum.changes > 150 && sum.whole > 80 && sum.refused > 10, "%zu %zu %zu %zu",
              sum.listings, sum.changes, sum.whole, sum.refused);
    cr_assert(sum.lost > 10 && sum.repeated > 10 && sum.lives > 5, "%zu %zu %zu", sum.lost, sum.repeated, sum.lives);
}

Test(keys_story, a_broken_rule_is_noticed, .timeout = 300) {
    struct keys_world_counts sum = {0};
    for (uint64_t seed = 1; seed <= 6; seed++)
        if (run(seed, MUTATE_KEYS_REPEATS, &sum)) return;
    cr_assert_fail("nobody noticed that steps of a copy count whatever came before them");
}
