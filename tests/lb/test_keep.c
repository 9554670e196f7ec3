/* Which share of its keys an owner keeps: steps, pauses, and where they end. */
#include <criterion/criterion.h>
#include <math.h>

#include "lb/keep.h"

#define SECOND UINT64_C(1000000000)

static struct keep keep;
static uint64_t now;

static void setup(void) { keep = keep_new(), now = 100 * SECOND; }

/* A second with one report, the mean being 1. True: the share changed. */
static bool second(double load) {
    now += SECOND;
    keep_report(&keep, load, now);
    return keep_decide(&keep, 1, false, now);
}

Test(keep, gives_up_what_is_too_much, .init = setup) {
    cr_expect_not(keep_decide(&keep, 1, false, now), "nothing has been said");
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
    keep_report(&keep, 0.9, now);
    cr_assert(keep_decide(&keep, 1.9 / 3, true, now));
    cr_expect_float_eq(keep.share, 1.25 * 1.9 / 3 / 0.9, 1e-9);
    now += SECOND;
    keep_report(&keep, 0.9, now);
    cr_assert(keep_decide(&keep, 0.7, true, now));
    cr_expect_float_eq(keep.share, 1.25 * 0.7 / 0.9, 1e-9);
    cr_assert(keep_decide(&keep, 0.9, true, now), "nor is it beyond the bound any more");
    cr_expect_eq(keep.share, 1);
    now += 60 * SECOND;
    cr_expect_not(keep_decide(&keep, 0.1, true, now), "later it takes reports");
    setup();
    keep_report(&keep, 2.4, now);
    cr_assert(keep_decide(&keep, 1.1, true, now));
    cr_expect_not(keep_decide(&keep, 0.9, true, now), "it is the same step");
    for (int i = 0; i < 4; i++) now += SECOND, keep_report(&keep, 1.68, now);
    cr_expect(keep_decide(&keep, 0.77, false, now), "which has helped, compared with the mean of all");
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
    keep_report(&keep, 1.6, now), keep_report(&keep, 1.6, now);
    cr_expect_not(keep_decide(&keep, 1, false, now), "two reports are few");
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

Test(keep, a_step_that_does_not_help_is_the_last, .init = setup) {
    cr_assert(second(2));
    for (int i = 0; i < 100; i++) cr_expect_not(second(2), "its load does not come from its keys");
    bool again = false;
    for (int i = 0; i < 10; i++) again |= second(3);
    cr_expect(again, "it is worse than that");
    setup();
    cr_assert(second(1e9));
    for (int i = 0; i < 10000; i++) second(1e9 * pow(0.99, i));
    cr_expect(keep.share >= KEEP_LEAST);
}

Test(keep, takes_what_others_decided, .init = setup) {
    cr_expect(keep_take(&keep, 0.5, now));
    cr_expect_eq(keep.share, 0.5);
    cr_expect_not(keep_take(&keep, 0.5, now));
    cr_expect_not(keep_take(&keep, NAN, now));
    cr_expect_not(keep_take(&keep, 0, now));
    cr_expect_not(keep_take(&keep, 2, now));
    keep_report(&keep, 2, now);
    cr_expect_eq(keep.load, 2, "the first report counts for the others at once");
    for (int i = 0; i < 3; i++) cr_expect_not(second(2), "whoever decides from now on waits as well");
    cr_expect(second(2));
}
