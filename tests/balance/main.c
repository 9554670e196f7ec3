/* The simulation of load balancing (balance.h) as a program: `balance check` asserts what must hold, at a small size;
 * `balance docs DOCS` writes tables and plots; `balance run` and `balance keys` print one table; `balance plot` draws what was measured
 * elsewhere (`balance` alone explains). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balance.h"
#include "base/check.h"
#include "fleets.h"
#include "keys.h"
#include "subsets.h"

static int failures;

static void expect(bool holds, const char *what, double got, double limit) {
    printf("%-4s %s: %.3g, limit %.3g\n", holds ? "ok" : "FAIL", what, got, limit);
    failures += !holds;
}

/* A fleet with fewer servers, and as many requests for each. */
static struct outcome small(const struct fleet *fleet, size_t clients, enum policy policy, double hint_ms) {
    struct run run = {.fleet = *fleet, .policy = policy, .hint_ms = hint_ms, .load = 0.9, .seed = 1};
    run.fleet.servers = 30;
    run.fleet.clients = clients;
    run.requests = fleet->requests * run.fleet.servers / fleet->servers;
    struct outcome outcome;
    balance_run(&run, &outcome);
    return outcome;
}

static void expect_part(const struct fleet *fleet, enum policy policy, double hint_ms, double limit) {
    static const struct fleet *last;
    static double random_ms; /* of the last fleet */
    char what[100];
    if (fleet != last) random_ms = small(fleet, 100, RANDOM, 0).p99_ms;
    last = fleet;
    double got = small(fleet, 100, policy, hint_ms).p99_ms / random_ms;
    snprintf(what, sizeof what, "%s fleet, %s with hints of %g ms: 99 %%, as a part of random's", fleet->name,
             policy_names[policy], hint_ms);
    expect(got <= limit, what, got, limit);
}

static void expect_herd(enum policy policy, double hint_ms, double least, double most) {
    char what[100];
    double got = small(&mixed_fleet, 1000, policy, hint_ms).herd;
    snprintf(what, sizeof what, "1,000 clients, %s with hints of %g ms: most requests in 100 ms, times the mean",
             policy_names[policy], hint_ms);
    expect(got >= least && got <= most, what, got, got < least ? least : most);
}

static void expect_subsets(void) {
    struct subset_outcome numbered = subsets_compare(SUBSET_NUMBERED, 40, 8, 320);
    struct subset_outcome chance = subsets_compare(SUBSET_CHANCE, 40, 8, 320);
    struct subset_outcome book = subsets_compare(SUBSET_DETERMINISTIC, 40, 8, 320);
    expect(numbered.moved < 1.0001 / 40, "numbered callers: part that moves", numbered.moved, 1.0 / 40);
    expect(chance.moved < 1.0001 / 40, "named callers: part that moves", chance.moved, 1.0 / 40);
    expect(book.moved > 0.5, "deterministic subsetting: part that moves, at least", book.moved, 0.5);
    expect(numbered.deviation < 0.6 * chance.deviation, "deviation of coverage, numbered", numbered.deviation,
           0.6 * chance.deviation);
}

/* Owners of keys, whose loads follow their keys. */
struct keys_row {
    const char *what;
    struct keys_run run;
    double most_moved, most_load, within_s; /* limits */
};

static void expect_keys(const struct keys_row *row) {
    struct keys_outcome got;
    char what[120];
    keys_run(&row->run, &got);
    snprintf(what, sizeof what, "%s: part of the keys that moves in a second", row->what);
    expect(got.most_moved <= row->most_moved, what, got.most_moved, row->most_moved);
    snprintf(what, sizeof what, "%s: greatest load, times the mean", row->what);
    expect(got.most_load <= row->most_load, what, got.most_load, row->most_load);
    snprintf(what, sizeof what, "%s: seconds until it is within the bound", row->what);
    expect(got.within_s <= row->within_s, what, got.within_s, row->within_s);
    snprintf(what, sizeof what, "%s: part of the keys that not all agree on", row->what);
    expect(got.apart <= 0.002, what, got.apart, 0.002);
}

static void expect_owners(void) {
    static const struct keys_row rows[] = {
        {"one of four 2.2 times as slow",
         {.instances = 4, .slow = 1, .slowness = 2.2, .report_s = 1, .delay_s = 0.2, .seconds = 120, .settled = 30},
         0.001,
         1.27,
         8},
        {"hints of 0.4 s",
         {.instances = 8, .slow = 2, .slowness = 2.2, .report_s = 0.4, .delay_s = 0.2, .seconds = 120, .settled = 30},
         0.001,
         1.27,
         10},
        {"hints of 5 s",
         {.instances = 8, .slow = 2, .slowness = 2.2, .report_s = 5, .delay_s = 2.5, .seconds = 240, .settled = 120},
         0.005,
         1.28,
         60},
        {"means over 5 s",
         {.instances = 8,
          .slow = 2,
          .slowness = 2.2,
          .report_s = 1,
          .delay_s = 0.4,
          .mean_s = 5,
          .seconds = 240,
          .settled = 60},
         0.005,
         1.28,
         40},
        {"means over 10 s",
         {.instances = 8,
          .slow = 2,
          .slowness = 2.2,
          .report_s = 1,
          .delay_s = 0.4,
          .mean_s = 10,
          .seconds = 240,
          .settled = 90},
         0.01,
         1.31,
         60},
        {"reports wrong by a fifth",
         {.instances = 8,
          .slow = 2,
          .slowness = 2.2,
          .report_s = 1,
          .delay_s = 0.4,
          .noise = 0.2,
          .seconds = 240,
          .settled = 60},
         0.02,
         1.31,
         240},
        {"two instances",
         {.instances = 2, .slow = 1, .slowness = 2.2, .report_s = 1, .delay_s = 0.4, .seconds = 120, .settled = 30},
         0.001,
         1.27,
         10},
        {"six times as slow",
         {.instances = 4, .slow = 1, .slowness = 6, .report_s = 1, .delay_s = 0.4, .seconds = 120, .settled = 60},
         0.001,
         1.27,
         40},
        {"one goes and comes",
         {.instances = 8,
          .slow = 2,
          .slowness = 2.2,
          .report_s = 1,
          .delay_s = 0.4,
          .seconds = 180,
          .settled = 150,
          .dies = 60,
          .comes = 110},
         0.001,
         1.27,
         130},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) expect_keys(&rows[i]);
    struct keys_run run = rows[0].run;
    struct keys_outcome got;
    run.recovers = 60, run.seconds = 180, run.settled = 150;
    keys_run(&run, &got);
    expect(got.away == 0 && got.moved == 0, "it is as fast as the others again: part of the keys elsewhere", got.away,
           0);
    run = (struct keys_run){.instances = 8, .report_s = 1, .delay_s = 0.4, .noise = 0.1, .seconds = 120};
    keys_run(&run, &got);
    expect(got.most_moved == 0, "equals, reports wrong by a tenth: part of the keys that moves", got.most_moved, 0);
    run = rows[0].run, run.way = KEYS_ALL;
    keys_run(&run, &got);
    expect(got.most_moved > 0.3, "all given up: part of the keys that moves, at least", got.most_moved, 0.3);
}

/* Random fleets (fleets.h), and the two that were found first: one of eight that is full before and after a step, and two
 * whose load is five times as sensitive as their keys. */
static void expect_fleet(const char *name, enum fleets_kind kind, const double *costs, size_t count) {
    struct fleets_seen got;
    char what[120];
    fleets_one(kind, costs, count, &got);
    snprintf(what, sizeof what, "%s: greatest load, times the mean", name);
    expect(got.load <= 1.3, what, got.load, 1.3);
    snprintf(what, sizeof what, "%s: part of the keys that moves in a second", name);
    expect(got.moved <= 0.001, what, got.moved, 0.001);
}

static void expect_fleets(void) {
    static const double full[] = {.18, .40, .57, .42, .59, .51, .42, 1.6}, two[] = {1.06, .59};
    expect_fleet("one of eight is full", FLEETS_USE, full, ARRAY_COUNT(full));
    expect_fleet("two with queues", FLEETS_LATE, two, ARRAY_COUNT(two));
    for (enum fleets_kind kind = 0; kind < FLEETS_KINDS; kind++) {
        struct fleets_outcome got;
        char what[120];
        fleets_run(kind, 150, &got);
        snprintf(what, sizeof what, "random fleets, %s: part that stays overloaded", fleets_names[kind]);
        expect(got.overloaded <= 0.01, what, got.overloaded, 0.01);
        snprintf(what, sizeof what, "random fleets, %s: part that swings", fleets_names[kind]);
        expect(got.swinging <= 0.01, what, got.swinging, 0.01);
        snprintf(what, sizeof what, "random fleets, %s: part that needs more than %d s", fleets_names[kind],
                 FLEETS_SETTLED);
        expect(got.slow <= 0.01, what, got.slow, 0.01);
    }
}

static int print_fleets(unsigned count) {
    for (enum fleets_kind kind = 0; kind < FLEETS_KINDS; kind++) {
        struct fleets_outcome got;
        fleets_run(kind, count, &got);
        printf("%-27s of %u fleets: overloaded %5.1f %%, swinging %5.1f %%, slow %5.1f %%; seed %llu\n",
               fleets_names[kind], count, 100 * got.overloaded, 100 * got.swinging, 100 * got.slow,
               (unsigned long long)got.seed);
    }
    return 0;
}

/* The same seed gives the same run; another one does not. */
static void expect_replay(void) {
    struct run run = {.fleet = mixed_fleet, .policy = P2C, .hint_ms = 100, .load = 0.9, .requests = 5000, .seed = 7};
    struct outcome first, again, other;
    balance_run(&run, &first), balance_run(&run, &again);
    run.seed = 8;
    balance_run(&run, &other);
    expect(memcmp(&first, &again, sizeof first) == 0, "the same seed, the same mean", again.mean_ms, first.mean_ms);
    expect(first.mean_ms != other.mean_ms, "another seed, another mean", other.mean_ms, first.mean_ms);
}

/* One server that works on one request at a time, all of them equally long, is a queue of the textbook (M/D/1), whose
 * mean is known. */
static void expect_textbook(void) {
    struct run run = {.fleet = {"one", 1, 1, 1, 10, 0, 0, 1, 0, 1, 0}, .load = 0.8, .requests = 400000, .seed = 3};
    struct outcome got;
    balance_run(&run, &got);
    double mean = 10 + 10 * 0.8 / (2 * (1 - 0.8));
    expect(fabs(got.mean_ms / mean - 1) < 0.03, "a queue of the textbook: the mean, ms", got.mean_ms, mean);
}

static int check(void) {
    expect_textbook();
    expect_replay();
    expect_part(&mixed_fleet, P2C, 0, 1.0 / 5);
    expect_part(&mixed_fleet, P2C, 100, 1.0 / 3);
    expect_part(&mixed_fleet, HCL, 0, 1.0 / 5);
    expect_part(&mixed_fleet, HCL, 100, 1.0 / 3);
    expect_part(&equal_fleet, P2C, 0, 1.0 / 5);
    expect_part(&equal_fleet, P2C, 100, 1.0 / 3);
    expect_part(&equal_fleet, HCL, 0, 1.0 / 5);
    expect_part(&equal_fleet, P2C, 1000, 1.1); /* old hints do no harm */
    expect_part(&equal_fleet, HCL, 1000, 1.1);
    for (int i = 0; i < 2; i++) {
        double hint_ms = i ? 1000 : 100;
        expect_herd(P2C, hint_ms, 0, 3.5);
        expect_herd(HCL, hint_ms, 0, 3.5);
        expect_herd(LEAST_LOADED, hint_ms, 10, INFINITY); /* the measure notices a herd */
    }
    expect_subsets();
    expect_owners();
    expect_fleets();
    return failures ? 1 : 0;
}

static int print(int count, char **values) {
    struct run run = {.fleet = count > 0 && strcmp(values[0], "equal") == 0 ? equal_fleet : mixed_fleet,
                      .load = count > 1 ? atof(values[1]) / 100 : 0.9,
                      .hint_ms = count > 2 ? atof(values[2]) : 100,
                      .seed = count > 4 ? strtoull(values[4], NULL, 10) : 1};
    run.requests = run.fleet.requests;
    if (count > 3) run.fleet.clients = strtoull(values[3], NULL, 10);
    for (run.policy = 0; run.policy < POLICIES; run.policy++) {
        struct outcome got;
        balance_run(&run, &got);
        printf("%-13s mean %8.1f  50 %% %8.1f  90 %% %8.1f  99 %% %8.1f  99.9 %% %8.1f ms, herd %5.1f, fullest %5.0f\n",
               policy_names[run.policy], got.mean_ms, got.p50_ms, got.p90_ms, got.p99_ms, got.p999_ms, got.herd,
               got.fullest);
    }
    return 0;
}

static int print_keys(int count, char **values) {
    struct keys_run run = {
        .instances = 4, .slow = 1, .slowness = 2.2, .report_s = 1, .delay_s = 0.2, .seconds = 300, .settled = 60};
    double *numbers[] = {&run.report_s, &run.delay_s, &run.mean_s, &run.noise, &run.slowness};
    if (count > 0) run.instances = strtoull(values[0], NULL, 10);
    if (count > 1) run.slow = strtoull(values[1], NULL, 10);
    for (int i = 2; i < count && i < 7; i++) *numbers[i - 2] = atof(values[i]);
    for (run.way = 0; run.way < KEYS_WAYS; run.way++) {
        struct keys_outcome got;
        keys_run(&run, &got);
        printf(
            "%-20s moved in 1 s: most %5.2f %%, mean %6.3f %%; load %.3f of the mean, within after %3.0f s; apart "
            "%5.2f %%, "
            "away %4.1f %%\n",
            keys_way_names[run.way], 100 * got.most_moved, 100 * got.moved, got.most_load, got.within_s,
            100 * got.apart, 100 * got.away);
        for (unsigned i = 0; i < 60; i += 2) printf(" %.2f", got.loads[i]);
        printf("\n");
    }
    return 0;
}

static int plot(void) {
    struct buffer out = {0};
    int failed = plot_text(stdin, &out);
    if (!failed) fwrite(out.data, 1, out.size, stdout);
    buffer_free(&out);
    return failed;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "check") == 0) return check();
    if (argc == 2 && strcmp(argv[1], "plot") == 0) return plot();
    if (argc == 3 && strcmp(argv[1], "docs") == 0) return report_write(argv[2]);
    if (argc >= 2 && argc <= 7 && strcmp(argv[1], "run") == 0) return print(argc - 2, argv + 2);
    if (argc >= 2 && strcmp(argv[1], "keys") == 0) return print_keys(argc - 2, argv + 2);
    if ((argc == 2 || argc == 3) && strcmp(argv[1], "fleets") == 0)
        return print_fleets(argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 300);
    fprintf(stderr,
            "usage: balance check | docs DOCS | plot < TEXT | run [mixed|equal [LOAD %% [HINT ms [CLIENTS [SEED]]]]]\n"
            "       | keys [INSTANCES [SLOW [REPORT s [DELAY s [MEAN s [NOISE [SLOWNESS]]]]]]] | fleets [COUNT]\n");
    return 2;
}
