/* Shares of keys in the table of load hints: what one instance says, and what becomes of the others. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "lb/load.h"

#define SECOND UINT64_C(1000000000)
enum { MOST = 8 };

static struct load_table *table;
static uint64_t now;
static size_t count;

static void setup(void) { table = load_table_new(0), now = 1000 * SECOND; }
static void teardown(void) { load_table_free(table); }

static struct load_instance name_of(size_t i) {
    static char ids[MOST][8];
    snprintf(ids[i], sizeof ids[i], "i%zu", i);
    return (struct load_instance){SLICE_LITERAL("n"), slice_text(ids[i]), SLICE_LITERAL("cache")};
}

static double kept(size_t i) {
    struct load_entry entry;
    return load_get(table, name_of(i), now, &entry) ? entry.kept : NAN;
}

static void say(size_t i, double load, double errors) {
    struct load_hint hint = load_unknown();
    hint.load = load, hint.errors = errors;
    cr_assert_eq(load_report(table, name_of(i), &hint, now), CO_OK);
}

/* All report in each of these seconds: `costs` times the share that they keep, of the greatest. */
static void seconds(unsigned how_many, const double *costs) {
    for (unsigned second = 0; second < how_many; second++, now += SECOND) {
        double most = 0;
        for (size_t i = 0; i < count; i++) most = isnan(kept(i)) ? 1 : fmax(most, kept(i));
        for (size_t i = 0; i < count; i++) say(i, costs[i] * (isnan(kept(i)) ? 1 : kept(i) / most), NAN);
        load_decide(table, now);
    }
}

/* One report of errors says little of its instance, and nothing of the others. */
Test(load_keys, one_report_of_errors, .init = setup, .fini = teardown) {
    static const double costs[] = {0.4, 0.4, 0.4, 1.2};
    count = ARRAY_COUNT(costs);
    seconds(60, costs);
    double before = kept(3);
    cr_assert(before < 0.7 && kept(0) == 1, "%g", before);
    for (unsigned second = 0; second < 30; second++, now += SECOND) {
        for (size_t i = 0; i < count; i++) say(i, costs[i] * kept(i), i == 0 && second == 0);
        load_decide(table, now);
        cr_expect_eq(kept(0), 1, "second %u: %g", second, kept(0));
        cr_expect_leq(kept(3), before, "second %u: the other one gets nothing back", second);
    }
    for (unsigned second = 0; second < 60; second++, now += SECOND) {
        for (size_t i = 0; i < count; i++) say(i, i == 0 ? 0 : costs[i] * kept(i), i == 0);
        load_decide(table, now);
        cr_expect_leq(kept(3), before);
    }
    cr_expect_lt(kept(0), 0.1, "one that fails for long gives up its keys");
}

Test(load_keys, keys_come_back_when_all_are_idle, .init = setup, .fini = teardown) {
    static const double costs[] = {0.4, 0.4, 0.4, 1.2}, idle[MOST] = {0};
    count = ARRAY_COUNT(costs);
    seconds(60, costs);
    cr_assert_lt(kept(3), 0.7);
    double settled[] = {0.4, 0.4, 0.4, 0.5 / kept(3)}; /* between the limits: nothing moves */
    seconds(60, settled);
    double before = kept(3);
    cr_assert_lt(before, 0.7);
    seconds(12, idle);
    cr_expect_gt(kept(3), before, "soon");
    seconds(60, idle);
    cr_expect_eq(kept(3), 1);
}

/* Of two one is busier than the other one in turn: their shares do not fall together. */
Test(load_keys, shares_do_not_fall_together, .init = setup, .fini = teardown) {
    static const double first[] = {1, 0.2}, second[] = {0.2, 1};
    count = 2;
    for (int i = 0; i < 20; i++) {
        seconds(30, i % 2 ? first : second);
        cr_expect_eq(fmax(kept(0), kept(1)), 1, "%g, %g", kept(0), kept(1));
    }
}

/* Another process decides for the other one, and may do the same: then nobody does. */
Test(load_keys, only_one_that_decides_for_all_scales, .init = setup, .fini = teardown) {
    struct load_entry other = {.instance = name_of(0), .hint = load_unknown(), .interval_ns = SECOND, .kept = 0.5};
    for (int i = 0; i < 20; i++, now += SECOND) {
        other.hint.load = 0.1;
        cr_assert_eq(load_merge(table, &other, now), CO_OK);
        say(1, 0.9, NAN);
        load_decide(table, now);
    }
    cr_expect_eq(kept(0), 0.5);
    cr_expect_lt(kept(1), 0.7);
}
