/* Figures that instances do not report: they count neither as zero nor as an error, and an instance gains only by the
 * value of its report, not by reporting. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "lb/pick.h"

enum { MOST = 8, PICKS = 2000 };
#define MS    UINT64_C(1000000)
#define CLOSE 0.045 /* of a share, in PICKS picks */

static const enum pick_policy by_hints[] = {PICK_P2C, PICK_HCL};
static struct pick_set *set;
static struct pick_candidate candidates[MOST];
static uint32_t own[MOST];
static char names[MOST][8];

static void setup(void) {
    set = pick_set_new();
    for (size_t i = 0; i < MOST; i++) {
        snprintf(names[i], sizeof names[i], "i%zu", i);
        candidates[i] = (struct pick_candidate){
            .name = slice_text(names[i]), .weight = 1, .share = 1, .distance_s = INFINITY, .hint = load_unknown()};
    }
}
static void teardown(void) { pick_set_free(set); }

static void shares(enum pick_policy policy, size_t count, uint64_t now_ns, double *out) {
    struct rng rng;
    struct pick_result result;
    rng_seed(&rng, 5);
    pick_set_fill(set, candidates, count, false);
    for (size_t i = 0; i < count; i++) out[i] = 0;
    for (int i = 0; i < PICKS; i++) {
        struct pick_ask ask = {.policy = policy, .rng = &rng, .now_ns = now_ns, .own = own};
        cr_assert_eq(pick(set, &ask, &result), CO_OK);
        out[result.picked] += 1.0 / PICKS;
    }
}

static void expect_shares(size_t count, const double *expected) {
    for (size_t k = 0; k < ARRAY_COUNT(by_hints); k++) {
        double got[MOST];
        shares(by_hints[k], count, 0, got);
        for (size_t i = 0; i < count; i++)
            cr_expect(fabs(got[i] - expected[i]) < CLOSE, "%s: %zu gets %.3f, not %.3f", pick_policy_name(by_hints[k]),
                      i, got[i], expected[i]);
    }
}

/* Three that say their load alone, and one that is idle because it fails. */
Test(pick_unsaid, errors_that_one_alone_says_are_its_own, .init = setup, .fini = teardown) {
    for (size_t i = 0; i < 3; i++) candidates[i].hint.load = 0.5;
    candidates[3].hint.load = 0.01, candidates[3].hint.errors = 1;
    expect_shares(4, (double[]){1 / 3.0, 1 / 3.0, 1 / 3.0, 0});
    cr_expect_float_eq(pick_load(set, 0), 0.5, 1e-9);
    cr_expect_eq(pick_load(set, 3), LOAD_MOST);
    for (size_t i = 0; i < 3; i++) candidates[i].hint.latency_ms = 10, candidates[i].hint.inflight = 5;
    candidates[3].hint.latency_ms = 0.01, candidates[3].hint.inflight = 0; /* failing is quick */
    expect_shares(4, (double[]){1 / 3.0, 1 / 3.0, 1 / 3.0, 0});
    candidates[3].hint.errors = 0.6;
    expect_shares(4, (double[]){1 / 3.0, 1 / 3.0, 1 / 3.0, 0});
    for (size_t i = 0; i < 3; i++)
        candidates[i].hint.load = 300, own[i] = 7; /* whatever the unit, whatever is placed */
    candidates[3].hint.errors = 1;
    expect_shares(4, (double[]){1 / 3.0, 1 / 3.0, 1 / 3.0, 0});
}

/* The report of a failing instance does not stand for the silent ones: the second one is not less loaded than the
 * third. */
Test(pick_unsaid, one_that_fails_is_no_measure_for_the_silent, .init = setup, .fini = teardown) {
    candidates[0].hint = (struct load_hint){0.01, 0, 0.1, 1};
    candidates[2].hint = (struct load_hint){0.5, 5, 10, NAN};
    expect_shares(3, (double[]){0, 0.5, 0.5});
}

/* Requests in flight are many for who can do many: the silent one of weight 1 is not ten times as full. */
Test(pick_unsaid, requests_in_flight_are_for_a_weight, .init = setup, .fini = teardown) {
    candidates[0].weight = 10, candidates[0].hint.load = 0.5, candidates[0].hint.inflight = 100;
    candidates[1].hint.load = candidates[2].hint.load = 0.5;
    double got[MOST];
    shares(PICK_HCL, 3, 0, got);
    cr_expect_gt(got[1] + got[2], 0.1, "%.3f", got[1] + got[2]);
}

/* Of a busy one and an idle one that say their load alone the idle one wins, whatever a third one says of its latency. */
Test(pick_unsaid, a_latency_that_one_alone_says_is_its_own, .init = setup, .fini = teardown) {
    double got[MOST];
    candidates[0].hint.load = 0.9, candidates[1].hint.load = 0.1, candidates[2].hint.load = 2;
    for (double latency_ms = 0.001; latency_ms < 1e8; latency_ms *= 100) {
        candidates[2].hint.latency_ms = latency_ms;
        shares(PICK_P2C, 3, 500 * MS, got);
        cr_expect_lt(got[0], 1 / 3.0 + CLOSE, "latency %g ms: the busy one gets %.3f", latency_ms, got[0]);
        cr_expect_gt(got[1], 0.45, "latency %g ms: the idle one gets %.3f", latency_ms, got[1]);
    }
}

static double some(struct rng *rng, double most) {
    static const double sizes[] = {0, 0.01, 0.3, 1};
    return rng_below(rng, 2) ? NAN : most * sizes[rng_below(rng, ARRAY_COUNT(sizes))] * rng_unit(rng);
}

/* Returns how many there are. */
static size_t random_fleet(struct rng *rng) {
    size_t count = 2 + (size_t)rng_below(rng, MOST - 1);
    double scale = rng_below(rng, 3) ? 1 : 100;
    for (size_t i = 0; i < count; i++) {
        struct pick_candidate *candidate = &candidates[i];
        candidate->weight = (double)(1 + rng_below(rng, 3));
        candidate->share = rng_below(rng, 4) ? 1 : 0.3;
        candidate->hint = load_unknown(), candidate->reported_ns = 0;
        own[i] = (uint32_t)rng_below(rng, 3);
        if (rng_below(rng, 4) == 0) continue;
        candidate->hint =
            (struct load_hint){scale * rng_unit(rng), some(rng, 50 * scale), some(rng, 100), some(rng, 0.5)};
    }
    return count;
}

Test(pick_unsaid, one_that_fails_never_gets_more_than_its_share, .init = setup, .fini = teardown) {
    struct rng rng;
    double got[MOST];
    rng_seed(&rng, 11);
    for (int round = 0; round < 120; round++) {
        size_t count = random_fleet(&rng), failing = (size_t)rng_below(&rng, count);
        struct load_hint *hint = &candidates[failing].hint;
        if (isnan(hint->load) || round % 2) hint->load = 0;
        if (round % 3 == 0) hint->latency_ms = 0.01, hint->inflight = 0;
        hint->errors = 1;
        double weight = 0, age_ms = (double)rng_below(&rng, 3) * 100;
        for (size_t i = 0; i < count; i++) weight += candidates[i].weight * candidates[i].share;
        for (enum pick_policy policy = PICK_P2C; policy <= PICK_NEAREST; policy++) {
            shares(policy, count, (uint64_t)age_ms * MS, got);
            double most = candidates[failing].weight * candidates[failing].share / weight;
            cr_expect_leq(got[failing], most + CLOSE, "round %d, %s: %.3f, its share is %.3f", round,
                          pick_policy_name(policy), got[failing], most);
        }
    }
}

Test(pick_unsaid, more_errors_never_raise_a_share, .init = setup, .fini = teardown) {
    struct rng rng;
    double got[MOST];
    rng_seed(&rng, 12);
    for (int round = 0; round < 60; round++) {
        size_t count = random_fleet(&rng), failing = (size_t)rng_below(&rng, count);
        struct load_hint *hint = &candidates[failing].hint;
        uint64_t now_ns = rng_below(&rng, 3) * 100 * MS;
        if (isnan(hint->load)) hint->load = 0.2;
        for (size_t k = 0; k < ARRAY_COUNT(by_hints); k++) {
            double before = 1;
            static const double levels[] = {NAN, 0.05, 0.2, 0.5, 0.9, 1};
            for (size_t i = 0; i < ARRAY_COUNT(levels); i++) {
                hint->errors = levels[i];
                shares(by_hints[k], count, now_ns, got);
                cr_expect_leq(got[failing], before + CLOSE, "round %d, %s, errors %g: %.3f after %.3f", round,
                              pick_policy_name(by_hints[k]), levels[i], got[failing], before);
                before = fmin(before, got[failing]);
            }
        }
    }
}

/* "No errors" is what silence about them counts as; and a figure that nobody else says tells nothing about the others. */
Test(pick_unsaid, a_figure_that_one_alone_says_changes_nobodys_share, .init = setup, .fini = teardown) {
    struct rng rng;
    double before[MOST], got[MOST];
    rng_seed(&rng, 13);
    for (int round = 0; round < 60; round++) {
        size_t count = random_fleet(&rng), one = (size_t)rng_below(&rng, count);
        for (size_t i = 0; i < count; i++) {
            struct load_hint *hint = &candidates[i].hint;
            hint->inflight = hint->latency_ms = hint->errors = NAN, own[i] = 0;
        }
        for (size_t k = 0; k < ARRAY_COUNT(by_hints); k++) {
            shares(by_hints[k], count, 0, before);
            if (round % 3 == 0) candidates[one].hint.errors = 0;
            if (round % 3 == 1) candidates[one].hint.inflight = 1000 * rng_unit(&rng);
            if (round % 3 == 2) candidates[one].hint.latency_ms = 1000 * rng_unit(&rng);
            shares(by_hints[k], count, 0, got);
            for (size_t i = 0; i < count; i++)
                cr_expect(fabs(got[i] - before[i]) < CLOSE, "round %d, %s: %zu gets %.3f after %.3f", round,
                          pick_policy_name(by_hints[k]), i, got[i], before[i]);
        }
    }
}
