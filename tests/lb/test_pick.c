/* The instance that each policy picks. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "lb/load.h"
#include "lb/pick.h"

enum { MOST = 100 };
#define MS UINT64_C(1000000)

static struct pick_set *set;
static struct rng rng;
static struct pick_candidate candidates[MOST];
static char names[MOST][16];

static void setup(void) {
    set = pick_set_new();
    rng_seed(&rng, 42);
    for (size_t i = 0; i < MOST; i++) {
        snprintf(names[i], sizeof names[i], "n%zu/api", i);
        candidates[i] = (struct pick_candidate){
            .name = slice_text(names[i]), .weight = 1, .share = 1, .distance_s = INFINITY, .hint = load_unknown()};
    }
}
static void teardown(void) { pick_set_free(set); }

static struct pick_result picked(struct pick_ask ask) {
    struct pick_result result = {.picked = SIZE_MAX};
    ask.rng = &rng;
    cr_assert_eq(pick(set, &ask, &result), CO_OK);
    cr_assert_geq(result.considered_count, 1);
    return result;
}
static size_t pick_by(enum pick_policy policy) { return picked((struct pick_ask){.policy = policy}).picked; }

/* How often each of `count` is picked in 10,000 times, as a part. */
static void parts(struct pick_ask ask, size_t count, double *out) {
    size_t counts[MOST] = {0};
    for (int i = 0; i < 10000; i++) counts[picked(ask).picked]++;
    for (size_t i = 0; i < count; i++) out[i] = (double)counts[i] / 10000;
}
static void expect_parts(struct pick_ask ask, size_t count, const double *expected) {
    double got[MOST];
    parts(ask, count, got);
    for (size_t i = 0; i < count; i++)
        cr_expect(fabs(got[i] - expected[i]) < 0.02, "%s: candidate %zu gets %.3f, not %.3f",
                  pick_policy_name(ask.policy), i, got[i], expected[i]);
}

Test(pick, names_of_policies) {
    enum pick_policy policy;
    struct fault fault = {0};
    for (enum pick_policy i = 0; i < PICK_POLICIES; i++) {
        cr_assert_eq(pick_policy_parse(slice_text(pick_policy_name(i)), &policy, &fault), CO_OK);
        cr_expect_eq(policy, i);
    }
    cr_expect_eq(pick_policy_parse(slice_text("P2C"), &policy, &fault), CO_INVALID);
    cr_expect_str_eq(fault.text, "policy: \"P2C\" is none of p2c, hcl, weighted, nearest, ring");
}

Test(pick, weighted_by_weight_and_share, .init = setup, .fini = teardown) {
    candidates[1].weight = 2, candidates[2].weight = 5, candidates[3].weight = 0;
    pick_set_fill(set, candidates, 4, false);
    expect_parts((struct pick_ask){.policy = PICK_WEIGHTED}, 4, (double[]){0.125, 0.25, 0.625, 0});
    candidates[2].share = 0.2; /* it is new */
    pick_set_fill(set, candidates, 4, false);
    expect_parts((struct pick_ask){.policy = PICK_WEIGHTED}, 4, (double[]){0.25, 0.5, 0.25, 0});
    candidates[0].weight = candidates[1].weight = candidates[2].weight = 0;
    candidates[2].share = 1;
    pick_set_fill(set, candidates, 4, false);
    expect_parts((struct pick_ask){.policy = PICK_WEIGHTED}, 4, (double[]){0.25, 0.25, 0.25, 0.25});
    for (int heavy = 0; heavy < 2; heavy++) {
        double got[MOST], total = 0;
        for (size_t i = 0; i < MOST; i++) total += candidates[i].weight = (double)(i % 7) * (i < 12 ? 10 : 0.1);
        if (heavy) candidates[50].weight = 1000, total += 1000 - 0.1;
        pick_set_fill(set, candidates, MOST, false);
        parts((struct pick_ask){.policy = PICK_WEIGHTED}, MOST, got);
        for (size_t i = 0; i < MOST; i++)
            cr_expect(fabs(got[i] - candidates[i].weight / total) < 0.015, "candidate %zu gets %.3f of %.3f", i, got[i],
                      candidates[i].weight / total);
    }
}

Test(pick, p2c_takes_the_less_loaded_of_two, .init = setup, .fini = teardown) {
    for (size_t i = 0; i < 10; i++) candidates[i].hint.load = (double)((i * 7) % 10) / 10;
    pick_set_fill(set, candidates, 10, false);
    for (int i = 0; i < 1000; i++) {
        struct pick_result result = picked((struct pick_ask){.policy = PICK_P2C});
        cr_assert_eq(result.considered_count, 2);
        size_t a = result.considered[0], b = result.considered[1];
        cr_assert(a != b && (result.picked == a || result.picked == b));
        cr_assert_leq(candidates[result.picked].hint.load, candidates[a].hint.load);
        cr_assert_leq(candidates[result.picked].hint.load, candidates[b].hint.load);
    }
    double got[10];
    parts((struct pick_ask){.policy = PICK_P2C}, 10, got);
    for (size_t i = 0; i < 10; i++) /* the k-th of ten is the better of (9 - k) pairs of 45 */
        cr_expect(fabs(got[i] - (9 - 10 * candidates[i].hint.load) / 45) < 0.02);
}

Test(pick, unknown_counts_as_the_mean, .init = setup, .fini = teardown) {
    candidates[0].hint.load = 0.2, candidates[1].hint.load = 0.6; /* candidate 2 says nothing: 0.4 */
    pick_set_fill(set, candidates, 3, false);
    cr_expect_float_eq(pick_load(set, 2), 0.4, 1e-9);
    expect_parts((struct pick_ask){.policy = PICK_P2C}, 3, (double[]){2 / 3.0, 0, 1 / 3.0});
    struct load_hint hint = candidates[1].hint;
    hint.load = 0;
    pick_set_hint(set, 1, &hint, 0);
    cr_expect_float_eq(pick_load(set, 2), 0.1, 1e-9);
    expect_parts((struct pick_ask){.policy = PICK_P2C}, 3, (double[]){0, 2 / 3.0, 1 / 3.0});
    hint = load_unknown();
    for (size_t i = 0; i < 3; i++) pick_set_hint(set, i, &hint, 0);
    cr_expect(isnan(pick_load(set, 2)), "nobody says anything");
    expect_parts((struct pick_ask){.policy = PICK_P2C}, 3, (double[]){1 / 3.0, 1 / 3.0, 1 / 3.0});
    expect_parts((struct pick_ask){.policy = PICK_HCL}, 3, (double[]){1 / 3.0, 1 / 3.0, 1 / 3.0});
}

Test(pick, own_requests_and_errors_count, .init = setup, .fini = teardown) {
    candidates[0].hint.load = 0.2, candidates[1].hint.load = 0.4;
    candidates[0].weight = candidates[1].weight = 10;
    pick_set_fill(set, candidates, 2, false);
    uint32_t own[2] = {3, 0};
    for (int i = 0; i < 20; i++) {
        cr_expect_eq(picked((struct pick_ask){.policy = PICK_P2C, .own = own}).picked, 1, "0.2 + 3/10 is above 0.4");
        cr_expect_eq(pick_by(PICK_P2C), 0);
    }
    candidates[0].hint.errors = 0.5, candidates[1].hint.errors = 0; /* it fails fast, and is idle therefore */
    pick_set_fill(set, candidates, 2, false);
    for (int i = 0; i < 20; i++) cr_expect_eq(pick_by(PICK_P2C), 1);
}

/* Two candidates, hints of 100 ms that say 10 ms: ten turnovers, so all have placed 10 times the mean load since. */
Test(pick, old_hints_decide_less, .init = setup, .fini = teardown) {
    candidates[0].hint.load = 0.4, candidates[1].hint.load = 0.6;
    candidates[0].hint.latency_ms = candidates[1].hint.latency_ms = 10;
    candidates[0].reported_ns = candidates[1].reported_ns = 5 * MS;
    pick_set_fill(set, candidates, 2, false);
    struct pick_ask ask = {.policy = PICK_P2C, .now_ns = 5 * MS};
    expect_parts(ask, 2, (double[]){1, 0});
    ask.now_ns += 4 * MS; /* 0.4 turnovers: 0.2 is placed, the difference is as much */
    expect_parts(ask, 2, (double[]){1, 0});
    ask.now_ns = 5 * MS + 8 * MS;
    expect_parts(ask, 2, (double[]){0.75, 0.25});
    ask.now_ns = 5 * MS + 100 * MS;
    expect_parts(ask, 2, (double[]){0.52, 0.48});
    struct load_hint hint = candidates[0].hint;
    pick_set_hint(set, 0, &hint, ask.now_ns), pick_set_hint(set, 1, &candidates[1].hint, ask.now_ns);
    expect_parts(ask, 2, (double[]){1, 0});
    hint.latency_ms = NAN; /* nobody says how long requests take: hints count as new */
    pick_set_hint(set, 0, &hint, 0);
    hint.load = 0.6;
    pick_set_hint(set, 1, &hint, 0);
    expect_parts(ask, 2, (double[]){1, 0});
}

/* Four candidates, so that hcl looks at all of them. */
Test(pick, hcl_prefers_cold_ones_of_least_latency, .init = setup, .fini = teardown) {
    static const struct load_hint hints[4] = {{0.5, 3, 20, NAN}, {0.5, 2, 30, NAN}, {0.5, 9, 1, NAN}, {0.5, 1, 40, 0}};
    for (size_t i = 0; i < 4; i++) candidates[i].hint = hints[i];
    pick_set_fill(set, candidates, 4, false); /* in flight: 1, 2, 3, 9; above 3 is hot */
    for (int i = 0; i < 50; i++) cr_expect_eq(pick_by(PICK_HCL), 0, "2 is faster, but hot");
    uint32_t own[4] = {9, 9, 9, 5};
    for (int i = 0; i < 50; i++)
        cr_expect_eq(picked((struct pick_ask){.policy = PICK_HCL, .own = own}).picked, 3, "all hot: fewest in flight");
    candidates[0].hint.errors = 0.9; /* 20 ms that lead to nothing nine times of ten */
    candidates[1].hint.errors = 0;
    pick_set_fill(set, candidates, 4, false);
    for (int i = 0; i < 50; i++) cr_expect_eq(pick_by(PICK_HCL), 1);
}

static int ascending(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* Many candidates with random hints that change: against the plain way. */
Test(pick, hcl_agrees_with_its_model, .init = setup, .fini = teardown) {
    for (int round = 0; round < 300; round++) {
        size_t count = 1 + (size_t)rng_below(&rng, MOST);
        double sorted[MOST];
        for (size_t i = 0; i < count; i++)
            candidates[i].hint = (struct load_hint){0.1, (double)rng_below(&rng, 1 + count / 2), rng_unit(&rng), NAN};
        pick_set_fill(set, candidates, count, false);
        for (size_t k = 0; k < 5; k++) {
            size_t changed = (size_t)rng_below(&rng, count);
            candidates[changed].hint.inflight = (double)rng_below(&rng, 20);
            pick_set_hint(set, changed, &candidates[changed].hint, 0);
            for (size_t i = 0; i < count; i++) sorted[i] = candidates[i].hint.inflight;
            qsort(sorted, count, sizeof *sorted, ascending);
            double hot = sorted[(size_t)(PICK_HCL_QUANTILE * (double)(count - 1))];
            struct pick_result result = picked((struct pick_ask){.policy = PICK_HCL});
            cr_assert_eq(result.considered_count, count < PICK_HCL_SAMPLE ? count : PICK_HCL_SAMPLE);
            size_t best = result.considered[0];
            for (size_t i = 1; i < result.considered_count; i++) {
                const struct load_hint *a = &candidates[result.considered[i]].hint, *b = &candidates[best].hint;
                bool cold = a->inflight <= hot && b->inflight <= hot;
                if (cold ? a->latency_ms < b->latency_ms : a->inflight < b->inflight) best = result.considered[i];
            }
            cr_assert_eq(result.picked, best);
        }
    }
}

Test(pick, nearest_is_nearest, .init = setup, .fini = teardown) {
    candidates[0].distance_s = 0.030, candidates[1].distance_s = 0.002, candidates[2].distance_s = 0.002;
    candidates[1].weight = 3, candidates[4].distance_s = NAN;
    pick_set_fill(set, candidates, 5, false);
    expect_parts((struct pick_ask){.policy = PICK_NEAREST}, 5, (double[]){0, 0.75, 0.25, 0, 0});
    candidates[1].status = candidates[2].status = PICK_CRITICAL;
    pick_set_fill(set, candidates, 5, false);
    for (int i = 0; i < 20; i++) cr_expect_eq(pick_by(PICK_NEAREST), 0);
    candidates[0].status = PICK_CRITICAL; /* of those that are left nothing is known */
    pick_set_fill(set, candidates, 5, false);
    expect_parts((struct pick_ask){.policy = PICK_NEAREST}, 5, (double[]){0, 0, 0, 0.5, 0.5});
}

Test(pick, ring_keeps_to_its_owner, .init = setup, .fini = teardown) {
    size_t owners[200], moved = 0;
    char key[16];
    pick_set_fill(set, candidates, 20, false);
    for (size_t i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "k%zu", i);
        struct pick_ask ask = {.policy = PICK_RING, .key = slice_text(key)};
        owners[i] = picked(ask).picked;
        cr_expect_eq(picked(ask).picked, owners[i]);
    }
    candidates[3].status = PICK_CRITICAL;
    candidates[4].share = 0.01; /* starting slowly does not move keys to and fro */
    pick_set_fill(set, candidates, 20, false);
    for (size_t i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "k%zu", i);
        size_t owner = picked((struct pick_ask){.policy = PICK_RING, .key = slice_text(key)}).picked;
        cr_expect(owner == owners[i] || owners[i] == 3);
        moved += owner != owners[i];
    }
    cr_expect(moved > 0 && moved < 30, "%zu keys moved", moved);
    candidates[3].status = PICK_PASSING;
    candidates[4].share = 1;
    for (size_t i = 0; i < 20; i++) candidates[i].kept = 1;
    candidates[owners[0]].kept = 0.01;
    pick_set_fill(set, candidates, 20, false);
    size_t away = 0, own = 0;
    for (size_t i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "k%zu", i);
        size_t owner = picked((struct pick_ask){.policy = PICK_RING, .key = slice_text(key)}).picked;
        cr_expect(owner == owners[i] || owners[i] == owners[0], "the others keep all");
        own += owners[i] == owners[0], away += owner != owners[i];
    }
    cr_expect(away >= own - 1 && own > 2, "%zu of %zu are given up", away, own);
    for (size_t i = 0; i < 20; i++) pick_set_kept(set, i, 0.01); /* nobody has room: no point in giving up any */
    for (size_t i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "k%zu", i);
        cr_expect_eq(picked((struct pick_ask){.policy = PICK_RING, .key = slice_text(key)}).picked, owners[i]);
    }
}

static void expect_why(const char *expected) {
    struct buffer out = {0};
    pick_why(set, &out);
    buffer_append_byte(&out, '\0');
    cr_expect_str_eq(out.data, expected);
    buffer_free(&out);
}

Test(pick, never_a_critical_one, .init = setup, .fini = teardown) {
    static const enum pick_status statuses[6] = {PICK_CRITICAL, PICK_PASSING, PICK_MAINTENANCE,
                                                 PICK_CRITICAL, PICK_WARNING, PICK_CRITICAL};
    for (size_t i = 0; i < 6; i++) {
        candidates[i].status = statuses[i];
        candidates[i].distance_s = 1 + (double)i;
        candidates[i].hint = (struct load_hint){(double)i, (double)i, (double)i, 0};
    }
    for (int passing = 0; passing < 2; passing++) {
        bool seen[6] = {false};
        pick_set_fill(set, candidates, 6, passing);
        cr_expect_eq(pick_count(set), passing ? 1 : 2);
        for (int i = 0; i < 1000; i++) {
            char key[16];
            snprintf(key, sizeof key, "%d", i);
            enum pick_policy policy = (enum pick_policy)(i % PICK_POLICIES);
            seen[picked((struct pick_ask){.policy = policy, .key = slice_text(key)}).picked] = true;
        }
        cr_expect(seen[1] && seen[4] == !passing && !seen[0] && !seen[2] && !seen[3] && !seen[5]);
    }
    cr_expect(isnan(pick_load(set, 0)));
    struct load_hint hint = {1, 1, 1, 1};
    pick_set_hint(set, 0, &hint, 0); /* of one that may not be picked: nothing happens */
    cr_expect_float_eq(pick_load(set, 1), 1, 1e-9);
    cr_expect_eq(pick_excluded(set, PICK_CRITICAL), 3);
    expect_why("3 critical, 1 in maintenance, 1 with warnings");
}

Test(pick, none, .init = setup, .fini = teardown) {
    struct pick_result result;
    for (int count = 0; count < 4; count++) {
        for (int i = 0; i < count; i++) candidates[i].status = i == 2 ? PICK_MAINTENANCE : PICK_CRITICAL;
        pick_set_fill(set, candidates, (size_t)count, false);
        for (enum pick_policy policy = 0; policy < PICK_POLICIES; policy++)
            cr_expect_eq(pick(set, &(struct pick_ask){.policy = policy, .rng = &rng}, &result), CO_NOTFOUND);
        static const char *const why[] = {"there are none", "1 critical", "2 critical", "2 critical, 1 in maintenance"};
        expect_why(why[count]);
    }
}

/* A new instance, idle and therefore always the less loaded one, still gets twice its share at most. */
Test(pick, a_new_instance_is_not_overrun, .init = setup, .fini = teardown) {
    for (size_t i = 0; i < 50; i++) candidates[i].hint.load = 0.8;
    candidates[7].hint.load = 0;
    double got[50];
    for (uint64_t age = 0; age <= LOAD_SLOW_START_NS; age += LOAD_SLOW_START_NS / 3) {
        candidates[7].share = load_share(age, LOAD_SLOW_START_NS);
        pick_set_fill(set, candidates, 50, false);
        parts((struct pick_ask){.policy = PICK_P2C}, 50, got);
        cr_expect_leq(got[7], 2 * candidates[7].share / 49 + 0.01, "%.3f at a share of %.2f", got[7],
                      candidates[7].share);
    }
    cr_expect_gt(got[7], 0.03);
}

/* Whatever the hints, and however they came there: the same as a set that is filled with them. */
Test(pick, exchanged_hints_are_as_good_as_filled_ones, .init = setup, .fini = teardown) {
    pick_set_fill(set, candidates, MOST, false);
    for (int i = 0; i < 20000; i++) {
        size_t at = (size_t)rng_below(&rng, MOST);
        struct load_hint hint = load_unknown();
        if (rng_below(&rng, 3)) hint.load = rng_unit(&rng) * (rng_below(&rng, 10) ? 1 : LOAD_MOST);
        if (rng_below(&rng, 3)) hint.errors = rng_unit(&rng);
        candidates[at].hint = hint;
        pick_set_hint(set, at, &hint, 0);
    }
    struct pick_set *filled = pick_set_new();
    pick_set_fill(filled, candidates, MOST, false);
    for (size_t i = 0; i < MOST; i++) cr_expect_float_eq(pick_load(set, i), pick_load(filled, i), 1e-6);
    pick_set_free(filled), pick_set_free(NULL);
}
