/* Watches: who is woken by what, once; prefixes; generations. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "registry/watch.h"

enum { KEYS = 32, PREFIXES = KEYS | WATCH_PREFIX_BIT, OTHERS = 3 };

struct counter {
    struct watch_waiter waiter;
    unsigned fired;
};

static void count(struct watch_waiter *waiter) { CONTAINER_OF(waiter, struct counter, waiter)->fired++; }
static struct watch_key watched(uint8_t space, const char *name) { return (struct watch_key){space, slice_text(name)}; }
static void add(struct watch_table *table, struct counter *counter, uint8_t space, const char *name) {
    watch_add(table, &counter->waiter, watched(space, name), count);
}

/* One batch that touches these names. */
static void batch(struct watch_table *table, uint8_t space, const char *const *names, size_t name_count) {
    static struct watch_touched touched;
    for (size_t i = 0; i < name_count; i++) watch_touch(&touched, watched(space, names[i]));
    watch_bump(table, &touched);
    watch_wake(table, &touched);
    watch_touched_reset(&touched);
}
static void batch_of(struct watch_table *table, uint8_t space, const char *name) { batch(table, space, &name, 1); }

Test(watch, wakes_who_waits_for_the_thing_and_nobody_else) {
    struct watch_table *table = watch_table_new();
    struct counter a = {0}, a2 = {0}, b = {0}, other_space = {0};
    add(table, &a, KEYS, "a");
    add(table, &a2, KEYS, "a");
    add(table, &b, KEYS, "b");
    add(table, &other_space, OTHERS, "a");
    cr_assert_eq(watch_count(table), 4);
    batch_of(table, KEYS, "a");
    cr_assert(a.fired == 1 && a2.fired == 1 && b.fired == 0 && other_space.fired == 0);
    batch_of(table, KEYS, "a"); /* not armed again */
    cr_assert_eq(a.fired, 1);
    watch_arm(&a.waiter);
    batch_of(table, KEYS, "a");
    cr_assert(a.fired == 2 && a2.fired == 1);
    watch_remove(table, &a.waiter);
    watch_remove(table, &a.waiter); /* twice is once */
    watch_remove(table, &a2.waiter);
    watch_remove(table, &b.waiter);
    batch_of(table, KEYS, "a");
    cr_assert_eq(a.fired, 2);
    cr_assert_eq(watch_count(table), 1);
    watch_remove(table, &other_space.waiter);
    watch_table_free(table);
}

static void rearm(struct watch_waiter *waiter) {
    count(waiter);
    watch_arm(waiter);
}

Test(watch, one_firing_per_batch_even_when_armed_in_between) {
    struct watch_table *table = watch_table_new();
    struct counter waiting = {0};
    watch_add(table, &waiting.waiter, watched(KEYS, "hot"), rearm);
    const char *names[] = {"hot", "x", "hot", "y", "hot"};
    batch(table, KEYS, names, 5);
    cr_assert_eq(waiting.fired, 1);
    watch_remove(table, &waiting.waiter);
    watch_table_free(table);
}

Test(watch, prefixes_are_woken_by_the_keys_below_them) {
    struct watch_table *table = watch_table_new();
    const char *prefixes[] = {"", "a", "a/", "a/b", "a/b/c", "b", "a/bc"};
    struct counter waiting[7] = {0};
    for (int i = 0; i < 7; i++) add(table, &waiting[i], PREFIXES, prefixes[i]);
    struct counter exact = {0};
    add(table, &exact, KEYS, "a/b");
    batch_of(table, KEYS, "a/b");
    const unsigned expected[] = {1, 1, 1, 1, 0, 0, 0};
    for (int i = 0; i < 7; i++) cr_assert_eq(waiting[i].fired, expected[i], "%s", prefixes[i]);
    cr_assert_eq(exact.fired, 1);
    batch_of(table, OTHERS, "a/b/c"); /* another space: no prefix of it is waited for */
    cr_assert_eq(waiting[4].fired, 0);
    for (int i = 0; i < 7; i++) watch_remove(table, &waiting[i].waiter);
    watch_remove(table, &exact.waiter);
    watch_table_free(table);
}

Test(watch, everything_wakes_everybody) {
    struct watch_table *table = watch_table_new();
    struct counter waiting[100] = {0};
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i / 2);
        add(table, &waiting[i], i % 2 ? PREFIXES : OTHERS, name);
    }
    uint64_t before = watch_generation(table, watched(9, "whatever"));
    struct watch_touched touched = {0};
    watch_touched_all(&touched);
    watch_bump(table, &touched);
    watch_wake(table, &touched);
    cr_assert_gt(watch_generation(table, watched(9, "whatever")), before);
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(waiting[i].fired, 1);
        watch_remove(table, &waiting[i].waiter);
    }
    watch_touched_free(&touched);
    watch_table_free(table);
}

Test(watch, generations_rise_with_what_is_touched) {
    struct watch_table *table = watch_table_new();
    uint64_t key = watch_generation(table, watched(KEYS, "a")), other = watch_generation(table, watched(KEYS, "b"));
    uint64_t prefix = watch_generation(table, watched(PREFIXES, "zzz"));
    batch_of(table, KEYS, "a");
    cr_assert_eq(watch_generation(table, watched(KEYS, "a")), key + 1);
    cr_assert_eq(watch_generation(table, watched(KEYS, "b")), other);
    cr_assert_gt(watch_generation(table, watched(PREFIXES, "zzz")), prefix); /* the whole key space's */
    watch_table_free(table);
}

/* Against a plain list: random adds, removals and batches over names that are prefixes of one another. */
Test(watch, agrees_with_a_model) {
    enum { WAITERS = 200, NAMES = 40 };
    struct watch_table *table = watch_table_new();
    static struct counter waiting[WAITERS];
    static struct {
        bool added;
        uint8_t space;
        char name[32];
        unsigned expected;
    } model[WAITERS];
    struct rng rng;
    rng_seed(&rng, 5);
    char names[NAMES][32];
    for (int i = 0; i < NAMES; i++) {
        size_t size = rng_below(&rng, 12);
        for (size_t j = 0; j < size; j++) names[i][j] = "ab/"[rng_below(&rng, 3)];
        names[i][size] = '\0';
    }
    for (int step = 0; step < 20000; step++) {
        size_t at = rng_below(&rng, WAITERS);
        if (rng_below(&rng, 2) == 0) {
            if (model[at].added) {
                watch_remove(table, &waiting[at].waiter);
            } else {
                const uint8_t spaces[] = {KEYS, PREFIXES, OTHERS};
                model[at].space = spaces[rng_below(&rng, 3)];
                memcpy(model[at].name, names[rng_below(&rng, NAMES)], 32);
                add(table, &waiting[at], model[at].space, model[at].name);
            }
            model[at].added = !model[at].added;
            continue;
        }
        const char *touch[3];
        size_t touch_count = 1 + rng_below(&rng, 3);
        for (size_t i = 0; i < touch_count; i++) touch[i] = names[rng_below(&rng, NAMES)];
        for (int i = 0; i < WAITERS; i++) {
            bool hit = false;
            for (size_t j = 0; j < touch_count && model[i].added; j++) {
                if (model[i].space == KEYS) hit |= strcmp(touch[j], model[i].name) == 0;
                if (model[i].space == PREFIXES) hit |= strncmp(touch[j], model[i].name, strlen(model[i].name)) == 0;
            }
            if (hit) model[i].expected++;
        }
        batch(table, KEYS, touch, touch_count);
        for (int i = 0; i < WAITERS; i++) {
            cr_assert_eq(waiting[i].fired, model[i].expected, "step %d waiter %d", step, i);
            if (model[i].added) watch_arm(&waiting[i].waiter);
        }
    }
    for (int i = 0; i < WAITERS; i++) watch_remove(table, &waiting[i].waiter);
    cr_assert_eq(watch_count(table), 0);
    watch_table_free(table);
}

/* Sum of what was fired, after a batch that takes the second half of its touches back. */
Test(watch, what_is_taken_back_wakes_nobody) {
    enum { NAMES = 600 }; /* the table of what was seen grows meanwhile */
    struct watch_table *table = watch_table_new();
    struct counter *counters = mem_zalloc(NAMES * sizeof *counters);
    char names[NAMES][8];
    struct watch_touched touched = {0};
    for (unsigned i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof names[i], "n%u", i);
        add(table, &counters[i], KEYS, names[i]);
    }
    for (unsigned i = 0; i < 100; i++) watch_touch(&touched, watched(KEYS, names[i]));
    struct watch_mark mark = watch_touched_mark(&touched);
    for (unsigned i = 50; i < NAMES; i++) watch_touch(&touched, watched(KEYS, names[i]));
    watch_touched_back(&touched, mark);
    cr_assert_eq(touched.count, 100);
    for (unsigned i = 50; i < 120; i++) watch_touch(&touched, watched(KEYS, names[i])); /* once each, still */
    cr_assert_eq(touched.count, 120);
    mark = watch_touched_mark(&touched);
    watch_touched_all(&touched);
    watch_touched_back(&touched, mark);
    watch_bump(table, &touched);
    watch_wake(table, &touched);
    for (unsigned i = 0; i < NAMES; i++) cr_expect_eq(counters[i].fired, i < 120, "%u", i);
    watch_touched_free(&touched);
    for (unsigned i = 0; i < NAMES; i++) watch_remove(table, &counters[i].waiter);
    watch_table_free(table);
    free(counters);
}
