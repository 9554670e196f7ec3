#include "fleets.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "lb/keep.h"
#include "lb/load.h"

enum { MOST = 16, HISTORY = 4 };
#define SECOND_NS UINT64_C(1000000000)
#define BEYOND    (1.1 * KEEP_BOUND)
#define SWINGS    0.002

const char *const fleets_names[FLEETS_KINDS] = {"use, at most 1",
                                                "work",
                                                "queues",
                                                "queues, reports of 3 s ago",
                                                "load that is not of keys",
                                                "reports wrong by 0.3",
                                                "reports every 10 s",
                                                "means over 5 s"};

struct fleet {
    enum fleets_kind kind;
    struct rng rng;
    size_t count;
    double cost[MOST], own[MOST], kept[MOST], mean[MOST], history[HISTORY][MOST];
    size_t keys[MOST];
    char ids[MOST][8];
    uint8_t order[FLEETS_KEYS][MOST], owner[FLEETS_KEYS];
    float hash[FLEETS_KEYS][MOST]; /* it is kept where this is less than the share */
    struct load_table *table;
    uint64_t now_ns;
};

static struct load_instance name_of(const struct fleet *fleet, size_t i) {
    return (struct load_instance){SLICE_LITERAL("n"), slice_text(fleet->ids[i]), SLICE_LITERAL("cache")};
}

/* In random order: as rendezvous hashing does for equal weights. */
static void begin(struct fleet *fleet) {
    fleet->table = load_table_new(0), fleet->now_ns = 1000 * SECOND_NS;
    for (size_t i = 0; i < fleet->count; i++)
        snprintf(fleet->ids[i], sizeof fleet->ids[i], "i%zu", i), fleet->mean[i] = NAN, fleet->kept[i] = NAN;
    for (size_t k = 0; k < FLEETS_KEYS; k++)
        for (size_t i = 0; i < fleet->count; i++) {
            size_t other = rng_below(&fleet->rng, i + 1);
            fleet->order[k][i] = fleet->order[k][other], fleet->order[k][other] = (uint8_t)i;
            fleet->hash[k][i] = (float)rng_unit(&fleet->rng);
        }
}

static void draw(struct fleet *fleet, enum fleets_kind kind, uint64_t seed) {
    rng_seed(&fleet->rng, seed);
    fleet->kind = kind, fleet->count = 2 + rng_below(&fleet->rng, 9);
    double busy = 0.3 + 0.6 * rng_unit(&fleet->rng), sum = 0;
    for (size_t i = 0; i < fleet->count; i++) sum += fleet->cost[i] = exp(2.6 * (rng_unit(&fleet->rng) - 0.5));
    for (size_t i = 0; i < fleet->count; i++) {
        fleet->cost[i] *= busy * (double)fleet->count / sum;
        if (kind == FLEETS_OWN && rng_unit(&fleet->rng) < 0.4) fleet->own[i] = rng_unit(&fleet->rng);
    }
    begin(fleet);
}

/* Returns how many keys have moved. */
static size_t place(struct fleet *fleet) {
    double most = 0;
    bool same = true;
    for (size_t i = 0; i < fleet->count; i++) {
        struct load_entry entry;
        double kept = load_get(fleet->table, name_of(fleet, i), fleet->now_ns, &entry) ? entry.kept : 1;
        same &= kept == fleet->kept[i], fleet->kept[i] = kept, most = fmax(most, kept);
    }
    if (same) return 0;
    size_t moved = 0;
    memset(fleet->keys, 0, sizeof fleet->keys);
    for (size_t k = 0; k < FLEETS_KEYS; k++) {
        size_t at = 0, before = fleet->owner[k];
        while (at < fleet->count && fleet->hash[k][fleet->order[k][at]] >= fleet->kept[fleet->order[k][at]] / most)
            at++;
        fleet->owner[k] = fleet->order[k][at < fleet->count ? at : 0];
        fleet->keys[fleet->owner[k]]++;
        moved += fleet->owner[k] != before;
    }
    return moved;
}

static double load_of(const struct fleet *fleet, size_t i) {
    double use = fleet->cost[i] * (double)fleet->count * (double)fleet->keys[i] / FLEETS_KEYS;
    if (fleet->kind == FLEETS_USE) return fmin(use, 1);
    if (fleet->kind == FLEETS_QUEUE || fleet->kind == FLEETS_LATE) return use < 0.98 ? use / (1 - use) : 49;
    return use + fleet->own[i];
}

/* Returns the greatest load over the mean. */
static double report(struct fleet *fleet, unsigned second) {
    double sum = 0, most = 0, part = fleet->kind == FLEETS_MEANS ? 0.2 : 1;
    size_t every = fleet->kind == FLEETS_RARE ? 10 : 1, late = fleet->kind == FLEETS_LATE ? 3 : 1;
    for (size_t i = 0; i < fleet->count; i++) {
        double load = load_of(fleet, i), noise = fleet->kind == FLEETS_NOISE ? 0.3 : 0;
        sum += load, most = fmax(most, load);
        fleet->mean[i] = isnan(fleet->mean[i]) ? load : fleet->mean[i] + part * (load - fleet->mean[i]);
        fleet->history[second % HISTORY][i] = fleet->mean[i];
        if (second < late || (second + i * every / fleet->count) % every) continue;
        struct load_hint hint = load_unknown();
        hint.load = fleet->history[(second - late) % HISTORY][i] * (1 + noise * (2 * rng_unit(&fleet->rng) - 1));
        CHECK(load_report(fleet->table, name_of(fleet, i), &hint, fleet->now_ns + i) == CO_OK);
    }
    load_decide(fleet->table, fleet->now_ns + MOST);
    return most / sum * (double)fleet->count;
}

static void watch(struct fleet *fleet, struct fleets_seen *seen) {
    double judged = FLEETS_SECONDS - FLEETS_SETTLED;
    *seen = (struct fleets_seen){.within_s = UINT32_MAX};
    for (unsigned second = 0; second < FLEETS_SECONDS; second++) {
        double moved = (double)place(fleet) / FLEETS_KEYS, load = report(fleet, second);
        if (load <= BEYOND && second < seen->within_s) seen->within_s = second;
        if (second >= FLEETS_SETTLED) seen->moved += moved / judged, seen->load += load / judged;
        fleet->now_ns += SECOND_NS;
    }
    load_table_free(fleet->table);
}

/* Can all be within the bound? Of load that is not of keys not too much may be in one place. */
static bool is_reachable(const struct fleet *fleet) {
    double most = 0, sum = 0;
    for (size_t i = 0; i < fleet->count; i++) most = fmax(most, fleet->own[i]), sum += load_of(fleet, i);
    return most < sum / (double)fleet->count;
}

void fleets_run(enum fleets_kind kind, unsigned count, struct fleets_outcome *outcome) {
    *outcome = (struct fleets_outcome){0};
    for (uint64_t seed = 1; seed <= count; seed++) {
        struct fleet *fleet = mem_zalloc(sizeof *fleet);
        struct fleets_seen seen;
        draw(fleet, kind, seed);
        watch(fleet, &seen);
        bool reachable = is_reachable(fleet);
        bool overloaded = reachable && seen.load > BEYOND, swinging = seen.moved > SWINGS;
        bool slow = reachable && seen.within_s > FLEETS_SETTLED;
        outcome->overloaded += overloaded / (double)count, outcome->swinging += swinging / (double)count;
        outcome->slow += slow / (double)count;
        if (overloaded || swinging || slow) outcome->seed = seed;
        free(fleet);
    }
}

void fleets_one(enum fleets_kind kind, const double *costs, size_t count, struct fleets_seen *seen) {
    struct fleet *fleet = mem_zalloc(sizeof *fleet);
    CHECK(count <= MOST);
    rng_seed(&fleet->rng, 1);
    fleet->kind = kind, fleet->count = count;
    memcpy(fleet->cost, costs, count * sizeof *costs);
    begin(fleet);
    watch(fleet, seen);
    free(fleet);
}
