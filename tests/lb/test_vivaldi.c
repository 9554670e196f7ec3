/* Coordinates find their place: on networks made up of points and access links, where every round trip is known. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "lb/vivaldi.h"

#define NODES 30

/* A made-up network: nodes in space, each behind an access link. */
struct network {
    double at[NODES][3], access[NODES]; /* seconds */
    double noise;                       /* a round trip takes up to so much longer, as a part of it */
    double spikes;                      /* so many of them, as a part of all, take 20 times as long */
    struct rng rng;
    struct vivaldi *node[NODES];
};

static double uniform(struct rng *rng, double most) { return rng_unit(rng) * most; }

static double truth(const struct network *net, int a, int b) {
    double sum = 0;
    for (int i = 0; i < 3; i++) sum += (net->at[a][i] - net->at[b][i]) * (net->at[a][i] - net->at[b][i]);
    return sqrt(sum) + net->access[a] + net->access[b];
}

static void network_open(struct network *net, uint64_t seed) {
    *net = (struct network){.noise = 0};
    rng_seed(&net->rng, seed);
    for (int n = 0; n < NODES; n++) {
        for (int i = 0; i < 3; i++) net->at[n][i] = uniform(&net->rng, 0.080);
        net->access[n] = 0.0002 + uniform(&net->rng, 0.004);
        net->node[n] = vivaldi_new(seed + (uint64_t)n);
    }
}

static void network_close(struct network *net) {
    for (int n = 0; n < NODES; n++) vivaldi_free(net->node[n]);
}

/* Each node measures one other, `rounds` times. */
static void run(struct network *net, int rounds) {
    for (int round = 0; round < rounds; round++) {
        for (int a = 0; a < NODES; a++) {
            int b = (a + 1 + (int)rng_below(&net->rng, NODES - 1)) % NODES;
            double rtt = truth(net, a, b) * (1 + uniform(&net->rng, net->noise));
            if (uniform(&net->rng, 1) < net->spikes) rtt *= 20;
            struct vivaldi_coordinate there = *vivaldi_here(net->node[b]);
            cr_assert_eq(vivaldi_sample(net->node[a], slice_make(&b, sizeof b), &there, rtt), CO_OK);
        }
    }
}

static int ascending(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

struct errors {
    double median, worst_tenth; /* relative */
};
static struct errors errors_of(const struct network *net) {
    static double all[NODES * NODES];
    size_t count = 0;
    for (int a = 0; a < NODES; a++)
        for (int b = 0; b < a; b++) {
            double predicted = vivaldi_distance(vivaldi_here(net->node[a]), vivaldi_here(net->node[b])),
                   real = truth(net, a, b);
            all[count++] = fabs(predicted - real) / real;
        }
    qsort(all, count, sizeof *all, ascending);
    return (struct errors){all[count / 2], all[count * 9 / 10]};
}

Test(vivaldi, finds_the_network_that_is_there) {
    struct network net;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        network_open(&net, seed);
        struct errors before = errors_of(&net);
        run(&net, 300);
        struct errors after = errors_of(&net);
        cr_expect_gt(before.median, 0.9, "seed %d: at the origin nothing is known", (int)seed);
        cr_expect_lt(after.median, 0.03, "seed %d: median error %f", (int)seed, after.median);
        cr_expect_lt(after.worst_tenth, 0.10, "seed %d: the worst tenth is off by %f", (int)seed, after.worst_tenth);
        for (int n = 0; n < NODES; n++) {
            const struct vivaldi_coordinate *here = vivaldi_here(net.node[n]);
            cr_expect(vivaldi_valid(here) && here->height >= VIVALDI_HEIGHT_MIN);
            cr_expect_lt(here->error, 0.3, "it trusts itself by now: %f", here->error);
            cr_expect_eq(vivaldi_resets(net.node[n]), 0);
        }
        network_close(&net);
    }
}

/* All at one place behind links of their own: no point in space can say that, heights can. */
Test(vivaldi, access_links_become_heights) {
    struct network net;
    network_open(&net, 11);
    for (int n = 0; n < NODES; n++) {
        for (int i = 0; i < 3; i++) net.at[n][i] = 0;
        net.access[n] = n % 2 ? 0.001 : 0.040;
    }
    run(&net, 500);
    struct errors errors = errors_of(&net);
    cr_expect_lt(errors.median, 0.05, "median error %f", errors.median);
    cr_expect_gt(vivaldi_here(net.node[0])->height, 10 * vivaldi_here(net.node[1])->height, "%f and %f",
                 vivaldi_here(net.node[0])->height, vivaldi_here(net.node[1])->height);
    network_close(&net);
}

/* Each of the last samples adds half of what it was off by to the mean. */
Test(vivaldi, the_adjustment_is_half_of_what_the_last_samples_were_off_by) {
    struct vivaldi *vivaldi = vivaldi_new(1);
    struct vivaldi_coordinate there = vivaldi_origin();
    double window[VIVALDI_WINDOW] = {0}, sum = 0;
    there.vec[0] = 0.010;
    for (int i = 0; i < 3 * VIVALDI_WINDOW; i++) {
        double rtt = 0.010 + 0.002 * (i / 10);
        cr_assert_eq(vivaldi_sample(vivaldi, SLICE_LITERAL("p"), &there, rtt), CO_OK);
        vivaldi_forget(vivaldi, SLICE_LITERAL("p"));
        struct vivaldi_coordinate here = *vivaldi_here(vivaldi), flat = here;
        flat.adjustment = 0;
        sum -= window[i % VIVALDI_WINDOW];
        sum += window[i % VIVALDI_WINDOW] = rtt - vivaldi_distance(&flat, &there);
        cr_expect(fabs(here.adjustment - sum / (2 * VIVALDI_WINDOW)) < 1e-7, "sample %d: %.9f, not %.9f", i,
                  here.adjustment, sum / (2 * VIVALDI_WINDOW));
    }
    vivaldi_free(vivaldi);
}

Test(vivaldi, noise_and_spikes_do_not_throw_it_off) {
    struct network net;
    network_open(&net, 7);
    net.noise = 0.10, net.spikes = 0.02;
    run(&net, 500);
    struct errors errors = errors_of(&net);
    cr_expect_lt(errors.median, 0.15, "median error %f", errors.median);
    cr_expect_lt(errors.worst_tenth, 0.40, "worst tenth %f", errors.worst_tenth);
    network_close(&net);
}

Test(vivaldi, a_newcomer_finds_its_place_and_does_not_disturb_the_others) {
    struct network net;
    network_open(&net, 9);
    run(&net, 300);
    double before = errors_of(&net).median;
    vivaldi_free(net.node[0]);
    net.node[0] = vivaldi_new(99);
    run(&net, 60);
    struct errors errors = errors_of(&net);
    cr_expect_lt(errors.median, before + 0.03, "%f, then %f", before, errors.median);
    double off = 0;
    for (int b = 1; b < NODES; b++)
        off += fabs(vivaldi_distance(vivaldi_here(net.node[0]), vivaldi_here(net.node[b])) - truth(&net, 0, b)) /
               truth(&net, 0, b) / (NODES - 1);
    cr_expect_lt(off, 0.15, "the newcomer is off by %f", off);
    network_close(&net);
}

/* Only distances are measured: nothing but gravity keeps the whole from wandering. */
Test(vivaldi, the_network_stays_around_the_origin) {
    struct network net;
    network_open(&net, 3);
    net.noise = 0.3;
    run(&net, 5000);
    double centre = 0;
    for (int i = 0; i < VIVALDI_DIMENSIONS; i++) {
        double sum = 0;
        for (int n = 0; n < NODES; n++) sum += vivaldi_here(net.node[n])->vec[i];
        centre += (sum / NODES) * (sum / NODES);
    }
    cr_expect_lt(sqrt(centre), 0.2, "the centre is %f s from the origin", sqrt(centre));
    network_close(&net);
}

Test(vivaldi, two_nodes_at_one_place_agree_on_their_distance) {
    struct vivaldi *a = vivaldi_new(1), *b = vivaldi_new(2);
    for (int i = 0; i < 200; i++) {
        struct vivaldi_coordinate there = *vivaldi_here(b);
        cr_assert_eq(vivaldi_sample(a, SLICE_LITERAL("b"), &there, 0.020), CO_OK);
        there = *vivaldi_here(a);
        cr_assert_eq(vivaldi_sample(b, SLICE_LITERAL("a"), &there, 0.020), CO_OK);
    }
    double distance = vivaldi_distance(vivaldi_here(a), vivaldi_here(b));
    cr_expect(fabs(distance - 0.020) < 0.001, "%f", distance);
    cr_expect_eq(vivaldi_distance(vivaldi_here(a), vivaldi_here(b)),
                 vivaldi_distance(vivaldi_here(b), vivaldi_here(a)));
    vivaldi_free(a), vivaldi_free(b);
}

/* -- what is refused ---------------------------------------------------------------------------------------------- */
Test(vivaldi, bad_samples_change_nothing) {
    struct vivaldi *vivaldi = vivaldi_new(1);
    struct vivaldi_coordinate origin = vivaldi_origin();
    cr_assert_eq(vivaldi_sample(vivaldi, SLICE_LITERAL("p"), &origin, 0.05), CO_OK);
    struct vivaldi_coordinate before = *vivaldi_here(vivaldi);
    static const double bad_rtts[] = {-1e-9, -5, NAN, -NAN, INFINITY, -INFINITY, 10.000001, 1e300};
    for (size_t i = 0; i < ARRAY_COUNT(bad_rtts); i++)
        cr_expect_eq(vivaldi_sample(vivaldi, SLICE_LITERAL("p"), &origin, bad_rtts[i]), CO_INVALID, "row %zu", i);
    static const double bad_numbers[] = {NAN, INFINITY, -INFINITY, 1e7, -1e7, 1e300};
    for (size_t i = 0; i < ARRAY_COUNT(bad_numbers); i++) {
        struct vivaldi_coordinate bad[4] = {origin, origin, origin, origin};
        bad[0].vec[7] = bad[1].error = bad[2].adjustment = bad[3].height = bad_numbers[i];
        for (int k = 0; k < 4; k++) {
            cr_expect_not(vivaldi_valid(&bad[k]));
            cr_expect_eq(vivaldi_sample(vivaldi, SLICE_LITERAL("p"), &bad[k], 0.05), CO_INVALID, "row %zu.%d", i, k);
        }
    }
    struct vivaldi_coordinate negative[2] = {origin, origin};
    negative[0].error = negative[1].height = -1e-9;
    cr_expect(!vivaldi_valid(&negative[0]) && !vivaldi_valid(&negative[1]));
    cr_expect_arr_eq(&before, vivaldi_here(vivaldi), sizeof before);
    cr_expect_eq(vivaldi_sample(vivaldi, SLICE_LITERAL("p"), &origin, 0), CO_OK,
                 "no time at all is measured on one host");
    cr_expect_eq(vivaldi_sample(vivaldi, SLICE_LITERAL("p"), &origin, 10), CO_OK);
    vivaldi_free(vivaldi);
}

/* Whoever says the worst that is still valid: the numbers stay valid, and honest peers bring it back. */
Test(vivaldi, liars_do_not_break_it) {
    struct vivaldi *vivaldi = vivaldi_new(5);
    struct vivaldi_coordinate far = {.error = 0, .adjustment = -1e6, .height = 1e6}, honest = vivaldi_origin();
    for (int i = 0; i < VIVALDI_DIMENSIONS; i++) far.vec[i] = i % 2 ? 1e6 : -1e6;
    for (int i = 0; i < 2000; i++) {
        cr_assert_eq(vivaldi_sample(vivaldi, SLICE_LITERAL("liar"), &far, i % 3 ? 0 : 10), CO_OK);
        cr_assert(vivaldi_valid(vivaldi_here(vivaldi)), "after %d", i);
    }
    honest.error = 0.1;
    for (int i = 0; i < 2000; i++)
        cr_assert_eq(vivaldi_sample(vivaldi, SLICE_LITERAL("honest"), &honest, 0.010), CO_OK);
    double distance = vivaldi_distance(vivaldi_here(vivaldi), &honest);
    cr_expect(fabs(distance - 0.010) < 0.005, "%f", distance);
    vivaldi_free(vivaldi);
}

/* -- the latency filter ------------------------------------------------------------------------------------------- */
/* The first sample after a forgotten peer counts alone; otherwise one slow round trip among quick ones does not. */
static double moved_by(bool forget) {
    struct vivaldi *vivaldi = vivaldi_new(1);
    struct vivaldi_coordinate there = vivaldi_origin();
    there.vec[0] = 0.010;
    for (int i = 0; i < 50; i++) cr_assert_eq(vivaldi_sample(vivaldi, SLICE_LITERAL("p"), &there, 0.010), CO_OK);
    if (forget) vivaldi_forget(vivaldi, SLICE_LITERAL("p"));
    double before = vivaldi_distance(vivaldi_here(vivaldi), &there);
    cr_assert_eq(vivaldi_sample(vivaldi, SLICE_LITERAL("p"), &there, 5), CO_OK);
    double after = vivaldi_distance(vivaldi_here(vivaldi), &there);
    vivaldi_free(vivaldi);
    return fabs(after - before);
}

Test(vivaldi, one_slow_round_trip_is_filtered_out) {
    cr_expect_lt(moved_by(false), 0.001, "%f", moved_by(false));
    cr_expect_gt(moved_by(true), 0.01, "%f", moved_by(true));
}

Test(vivaldi, peers_are_bounded) {
    struct vivaldi *vivaldi = vivaldi_new(1);
    struct vivaldi_coordinate there = vivaldi_origin();
    for (int i = 0; i < 10 * VIVALDI_PEERS_MAX; i++) {
        char name[32];
        int size = snprintf(name, sizeof name, "peer-%d", i);
        cr_assert_eq(vivaldi_sample(vivaldi, slice_make(name, (size_t)size), &there, 0.001), CO_OK);
        if (i % 7 == 0) vivaldi_forget(vivaldi, slice_make(name, (size_t)size));
    }
    vivaldi_forget(vivaldi, SLICE_LITERAL("nobody"));
    vivaldi_free(vivaldi);
}

/* -- distances ---------------------------------------------------------------------------------------------------- */
Test(vivaldi, distances) {
    struct vivaldi_coordinate a = vivaldi_origin(), b = vivaldi_origin();
    cr_expect(fabs(vivaldi_distance(&a, &b) - 0.00002) < 1e-12, "two heights");
    b.vec[0] = 3, b.vec[7] = 4;
    cr_expect(fabs(vivaldi_distance(&a, &b) - 5.00002) < 1e-9);
    a.adjustment = 0.5, b.adjustment = -0.25;
    cr_expect(fabs(vivaldi_distance(&a, &b) - 5.25002) < 1e-9);
    a.adjustment = -100;
    cr_expect(fabs(vivaldi_distance(&a, &b) - 5.00002) < 1e-9, "adjustments never make a time negative");
}
