/* ?subset=: how evenly instances are covered, and that nothing moves that need not. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "lb/subset.h"

enum { INSTANCES_MAX = 300 };

struct fleet {
    char names[INSTANCES_MAX][24];
    struct rendezvous_member members[INSTANCES_MAX];
    size_t count;
};

static void fill(struct fleet *fleet, size_t count) {
    fleet->count = count;
    for (size_t i = 0; i < count; i++) {
        snprintf(fleet->names[i], sizeof fleet->names[i], "host%zu/api", i * 7919 % 1000);
        fleet->members[i] = (struct rendezvous_member){slice_text(fleet->names[i]), 1};
    }
}

static struct slice caller_name(char room[64], const char *format, size_t number) {
    /* "web-%": numbered; "web-%x": the number stands before the end */
    const char *mark = strchr(format, '%');
    return slice_make(room, (size_t)snprintf(room, 64, "%.*s%zu%s", (int)(mark - format), format, number, mark + 1));
}

struct coverage {
    double deviation, by_chance; /* standard deviations of the callers of an instance; of a binomial distribution */
    double least, most;          /* callers of an instance, as parts of the mean */
    double common;               /* the mean part of a subset that is in another caller's as well */
};

static struct coverage measure(size_t instances, size_t size, size_t callers, const char *names) {
    struct fleet fleet;
    fill(&fleet, instances);
    struct rendezvous *set = rendezvous_new(fleet.members, instances);
    size_t counts[INSTANCES_MAX] = {0};
    bool *uses = mem_zalloc(callers * instances);
    char room[64];
    for (size_t caller = 0; caller < callers; caller++) {
        size_t chosen[INSTANCES_MAX];
        cr_assert_eq(subset_choose(set, caller_name(room, names, caller), size, chosen), size);
        for (size_t i = 0; i < size; i++) {
            cr_assert(!uses[caller * instances + chosen[i]], "an instance is in a subset once");
            uses[caller * instances + chosen[i]] = true;
            counts[chosen[i]]++;
        }
    }
    double mean = (double)(callers * size) / (double)instances, part = (double)size / (double)instances, sum = 0;
    struct coverage coverage = {.least = INFINITY, .by_chance = sqrt((double)callers * part * (1 - part))};
    for (size_t i = 0; i < instances; i++) {
        double count = (double)counts[i];
        sum += (count - mean) * (count - mean);
        coverage.least = fmin(coverage.least, count / mean);
        coverage.most = fmax(coverage.most, count / mean);
    }
    coverage.deviation = sqrt(sum / (double)instances);
    size_t pairs = 0, common = 0;
    for (size_t step = 1; step <= 256 && step < callers; step++) {
        for (size_t caller = 0; caller + step < callers; caller += 97, pairs++)
            for (size_t i = 0; i < instances; i++)
                common += uses[caller * instances + i] && uses[(caller + step) * instances + i];
    }
    coverage.common = (double)common / (double)(pairs * size);
    free(uses);
    rendezvous_free(set);
    return coverage;
}

static const struct row {
    size_t instances, size, callers;
} rows[] = {{100, 10, 1000}, {100, 10, 100}, {300, 20, 400}, {50, 20, 300}, {30, 3, 256}, {20, 5, 48}};

Test(subset, numbered_callers_cover_evenly) {
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        struct coverage got = measure(row->instances, row->size, row->callers, "web-%");
        cr_log_info("%zu of %zu for %zu: %.2f (%.2f by chance), %.2f to %.2f of the mean\n", row->size, row->instances,
                    row->callers, got.deviation, got.by_chance, got.least, got.most);
        cr_expect_leq(got.deviation, 0.75 * got.by_chance, "%zu of %zu for %zu: %.2f, by chance %.2f", row->size,
                      row->instances, row->callers, got.deviation, got.by_chance);
        double part = (double)row->size / (double)row->instances;
        cr_expect(fabs(got.common - part) < 0.15 * part, "two callers share %.3f instead of %.3f", got.common, part);
    }
    struct coverage large = measure(100, 10, 1000, "web-%");
    cr_expect_leq(large.deviation, 0.5 * large.by_chance);
    cr_expect(large.least > 0.87 && large.most < 1.13, "%.2f to %.2f", large.least, large.most);
}

Test(subset, other_callers_cover_as_chance_has_it) {
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        struct coverage got = measure(row->instances, row->size, row->callers, "web-%x");
        cr_expect(got.deviation > 0.6 * got.by_chance && got.deviation < 1.4 * got.by_chance,
                  "%zu of %zu for %zu: %.2f, by chance %.2f", row->size, row->instances, row->callers, got.deviation,
                  got.by_chance);
    }
}

/* Without an instance, those who used it use one more instead, and everybody else uses the same ones, in the same order
 * of choice. Seen from the other end that is an instance that comes. */
static size_t expect_minimal(const char *names, size_t gone) {
    struct fleet fleet;
    fill(&fleet, 60);
    struct rendezvous *set = rendezvous_new(fleet.members, fleet.count);
    fleet.members[gone].weight = 0;
    struct rendezvous *without = rendezvous_new(fleet.members, fleet.count);
    size_t moved = 0;
    for (size_t caller = 0; caller < 500; caller++) {
        char room[64];
        size_t before[9], after[8], at = 0;
        cr_assert_eq(subset_choose(set, caller_name(room, names, caller), 9, before), 9);
        cr_assert_eq(subset_choose(without, caller_name(room, names, caller), 8, after), 8);
        for (size_t i = 0; i < 9 && at < 8; i++) {
            if (before[i] == gone) moved += i < 8;
            else cr_assert_eq(before[i], after[at++]);
        }
    }
    rendezvous_free(set), rendezvous_free(without);
    return moved;
}

Test(subset, only_what_must_moves) {
    static const char *const names[] = {"web-%", "web-%x"};
    for (size_t i = 0; i < 2; i++) {
        size_t moved = 0;
        for (size_t gone = 0; gone < 60; gone++) moved += expect_minimal(names[i], gone);
        cr_expect_eq(moved, 500 * 8, "over all instances: each assignment moves once, a 1/n of them on average");
    }
}

Test(subset, edges) {
    struct fleet fleet;
    fill(&fleet, 5);
    struct rendezvous *set = rendezvous_new(fleet.members, 5), *none = rendezvous_new(NULL, 0);
    size_t a[8], b[8];
    cr_expect_eq(subset_choose(set, slice_text("web-1"), 0, a), 0);
    cr_expect_eq(subset_choose(set, slice_text("web-1"), 8, a), 5, "no more than there are");
    cr_expect_eq(subset_choose(none, slice_text("web-1"), 8, a), 0);
    static const char *const ids[] = {"", "0", "web", "99999999999999999999999999999999999999", "web-007", "\xff 5"};
    for (size_t i = 0; i < ARRAY_COUNT(ids); i++) {
        cr_expect_eq(subset_choose(set, slice_text(ids[i]), 2, a), 2);
        cr_expect_eq(subset_choose(set, slice_text(ids[i]), 2, b), 2);
        cr_expect(a[0] == b[0] && a[1] == b[1] && a[0] != a[1]);
    }
    rendezvous_free(set), rendezvous_free(none);
}
