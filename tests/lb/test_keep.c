/* The share of its keys that an owner keeps: steps, pauses, and where they end. */
#include <criterion/criterion.h>
#include <math.h>

#include "lb/keep.h"

#define SECOND UINT64_C(1000000000)

static struct keep keep;
static uint64_t now;

static void setup(void) { keep = keep_new(), now = 100 * SECOND; }

static bool decide(double mean, bool anew) {
    struct keep_others others = {.mean = mean, .most = 1, .anew = anew};
    return keep_decide(&keep, &others, now);
}

/* A second with one report, the mean being 1. True: the share changed. */
static bool second(double load) {
    now += SECOND;
    keep_report(&keep, load, 0, now);
    return decide(1, false);
}

/* The greatest and the least share of some seconds in which the load follows the share as `load_of` says. Returns how
 * often it changed. */
static unsigned seconds(unsigned count, double (*load_of)(double share), double *least, double *most) {
    unsigned changes = 0;
    *least = *most = keep.share;
    for (unsigned i = 0; i < count; i++) {
        changes += second(load_of(keep.share));
        *least = fmin(*least, keep.share), *most = fmax(*most, keep.share);
    }
    return changes;
}

Test(keep, gives_up_what_is_too_much, .init = setup) {
    cr_expect_not(decide(1, false), "nothing has been said");
    cr_expect_not(second(1.25), "the bound is not beyond itself");
    setup();
    cr_assert(second(1.3));
    cr_expect_float_eq(keep.share, 1.25 / 1.3, 1e-9);
    setup();
    cr_assert(second(5));
    cr_expect_float_eq(keep.share, 0.7, 1e-9, "at most three tenths at once");
}

/* Reports come one after the other: what was decided by the first few is decided anew when there are more. */
Test(keep, a_step_is_made_anew_when_more_have_spoken, .init = setup) {
    keep_report(&keep, 0.9, 0, now);
    cr_assert(decide(1.9 / 3, true));
    cr_expect_float_eq(keep.share, 1.25 * 1.9 / 3 / 0.9, 1e-9);
    now += SECOND;
    keep_report(&keep, 0.9, 0, now);
    cr_assert(decide(0.7, true));
    cr_expect_float_eq(keep.share, 1.25 * 0.7 / 0.9, 1e-9);
    cr_assert(decide(0.9, true), "nor is it beyond the bound any more");
    cr_expect_eq(keep.share, 1);
    now += 60 * SECOND;
    cr_expect_not(decide(0.1, true), "later it takes reports");
    setup();
    keep_report(&keep, 2.4, 0, now);
    cr_assert(decide(1.1, true));
    cr_expect_not(decide(0.9, true), "it is the same step");
    for (int i = 0; i < 4; i++) now += SECOND, keep_report(&keep, 1.68, 0, now);
    cr_expect(decide(0.77, false), "which has helped, compared with the mean of all");
}

Test(keep, waits_until_the_step_shows, .init = setup) {
    cr_assert(second(2));
    for (int i = 0; i < 3; i++) cr_expect_not(second(1.6));
    cr_assert(second(1.6));
    cr_expect_float_eq(keep.share, 0.7 * 1.25 / 1.6, 1e-9);
    for (int i = 0; i < 30; i++) cr_expect_not(second(1.2), "under the bound, and not far");
    setup();
    cr_assert(second(2));
    now += 60 * SECOND;
    keep_report(&keep, 1.6, 0, now), keep_report(&keep, 1.6, 0, now);
    cr_expect_not(decide(1, false), "two reports are few");
}

Test(keep, gives_back_in_small_steps, .init = setup) {
    for (int i = 0; i < 10; i++) second(2 * keep.share);
    double least = keep.share;
    cr_expect(2 * least <= 1.25 * 1.01 && 2 * least > 1.1, "%g", least);
    double before = least;
    for (int i = 0; i < 200; i++) {
        second(keep.share);
        cr_expect_leq(keep.share, before * 1.1 + 0.005);
        before = keep.share;
    }
    cr_expect_eq(keep.share, 1);
}

static double full(double share) { return fmin(3 * share, 1) / 0.4; } /* compared with a mean of 0.4 */
static double twofold(double share) { return 2 + 0 * share; }
static double queue(double share) { return 0.85 * share / (1 - 0.85 * share) / 3; }

/* It is full before a step and after it. */
Test(keep, a_full_owner_goes_on, .init = setup) {
    double least, most;
    seconds(60, full, &least, &most);
    cr_expect(full(keep.share) <= 1.26, "%g", keep.share);
    cr_expect_eq(seconds(600, full, &least, &most), 0, "and then nothing moves");
}

/* A report of 1 is the end of the scale: that it stays there says nothing, however long. */
Test(keep, the_end_of_the_scale_is_no_proof, .init = setup) {
    for (int i = 0; i < 600; i++) now += SECOND, keep_report(&keep, 1, 0, now), decide(0.4, false);
    cr_expect_float_eq(keep.share, KEEP_LEAST, 1e-9, "%g", keep.share);
}

Test(keep, what_does_not_come_from_the_keys_leaves_them, .init = setup) {
    double least, most;
    seconds(300, twofold, &least, &most);
    cr_expect(least < 0.125 && least > 0.05, "an eighth of the keys was tried, but hardly less: %g", least);
    cr_expect_eq(keep.share, 1, "they come back");
    cr_expect_eq(seconds(250, twofold, &least, &most), 0);
    cr_expect_gt(seconds(900, twofold, &least, &most), 0, "later it is tried again");
    cr_expect_eq(keep.share, 1);
    cr_expect_eq(seconds(400, twofold, &least, &most), 0, "not as soon as the first time");
    cr_assert(second(20) || second(20) || second(20), "it is worse than that");
    setup();
    cr_assert(second(1e9));
    for (int i = 0; i < 10000; i++) second(1e9 * pow(0.99, i));
    cr_expect(keep.share >= KEEP_LEAST);
}

/* A tenth more of its keys is half as much load again. */
Test(keep, steps_that_overshoot_become_small, .init = setup) {
    double least, most;
    seconds(240, queue, &least, &most);
    seconds(600, queue, &least, &most);
    cr_expect_lt(most / least, 1.03, "%g to %g", least, most);
    cr_expect(queue(keep.share) < 1.3 && queue(keep.share) > 1, "%g", queue(keep.share));
}

Test(keep, keys_come_back_when_nobody_has_anything_to_do, .init = setup) {
    for (int i = 0; i < 20; i++) second(2 * keep.share);
    cr_assert_lt(keep.share, 0.7);
    for (int i = 0; i < 200; i++) now += SECOND, keep_report(&keep, 0, 0, now), decide(0, false);
    cr_expect_eq(keep.share, 1);
    cr_expect_not(decide(NAN, false), "nobody says anything");
}

Test(keep, one_report_of_errors_moves_nothing, .init = setup) {
    for (int i = 0; i < 10; i++) second(1);
    now += SECOND, keep_report(&keep, 1, 1, now);
    cr_expect_not(decide(1, false));
    for (int i = 0; i < 20; i++) cr_expect_not(second(1));
    for (int i = 0; i < 60; i++) now += SECOND, keep_report(&keep, 0, 1, now), decide(1, false);
    cr_expect_lt(keep.share, 0.1, "one that fails for long is not owner of much");
    for (int i = 0; i < 600; i++) second(keep.share);
    cr_expect_eq(keep.share, 1);
}

/* Only ratios count, so the least share is one as well. */
Test(keep, shares_are_parts_of_the_greatest, .init = setup) {
    struct keep_others others = {.mean = 0.4, .most = 0.1};
    keep.share = 0.1;
    for (int i = 0; i < 600; i++) now += SECOND, keep_report(&keep, 1, 0, now), keep_decide(&keep, &others, now);
    cr_expect_float_eq(keep.share, 0.1 * KEEP_LEAST, 1e-9, "%g", keep.share);
    keep_scale(&keep, 10);
    cr_expect_float_eq(keep.share, KEEP_LEAST, 1e-9);
}

Test(keep, takes_what_others_decided, .init = setup) {
    cr_expect(keep_take(&keep, 0.5, now));
    cr_expect_eq(keep.share, 0.5);
    cr_expect_not(keep_take(&keep, 0.5, now));
    cr_expect_not(keep_take(&keep, NAN, now));
    cr_expect_not(keep_take(&keep, 0, now));
    cr_expect_not(keep_take(&keep, 2, now));
    keep_report(&keep, 2, 0, now);
    cr_expect_eq(keep.load, 2, "the first report counts for the others at once");
    for (int i = 0; i < 3; i++) cr_expect_not(second(2), "whoever decides from now on waits as well");
    cr_expect(second(2));
}
