/* Many agents that count a budget's keys together, in good and bad weather. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "owning_fleet.h"

static Pb__QuotaDefinition budget_of(uint64_t budget, uint64_t tokens, uint64_t every_ms) {
    Pb__QuotaDefinition definition = PB__QUOTA_DEFINITION__INIT;
    definition.name = (char *)(uintptr_t) "calls", definition.service = (char *)(uintptr_t) "api";
    definition.mode = PB__QUOTA_MODE__QUOTA_OWNER;
    definition.budget = budget, definition.tokens = tokens, definition.every_ms = every_ms;
    definition.lease_ttl_ms = 3000;
    return definition;
}

static Pb__QuotaDefinition minutes(uint64_t budget) {
    Pb__QuotaDefinition definition = budget_of(budget, 0, 0);
    definition.window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    return definition;
}

static double steady(void *data, unsigned agent, unsigned key, uint64_t now_ns) {
    (void)agent, (void)key, (void)now_ns;
    return *(const double *)data;
}

static void report(const struct own_fleet *fleet, const char *what) {
    uint64_t counted = 0, admitted = 0, refused = 0, undecided = 0, fallback = 0;
    double most = 0;
    for (unsigned i = 0; i < fleet->plan.keys; i++) {
        const struct own_key *key = &fleet->keys[i];
        counted += key->counted, admitted += key->admitted, refused += key->refused, undecided += key->undecided;
        fallback += key->fallback;
        if (key->most > most) most = key->most;
    }
    fprintf(
        stderr,
        "%s, seed %lu: counted %lu, admitted %lu (fallback %lu), refused %lu, nobody could say %lu (longest %lu ms), "
        "asks %lu, highest level %.1f of %lu, epoch %lu, losses %zu, splits %zu; beside %lu, over %lu\n",
        what, fleet->plan.seed, counted, admitted, fallback, refused, undecided, fleet->longest_ns / OWN_MS,
        fleet->asks, most, fleet->capacity, fleet->notice ? fleet->notice->epoch : 0,
        fleet->notice ? fleet->notice->n_losses : 0, fleet->notice ? fleet->notice->n_splits : 0, fleet->beside,
        fleet->over);
}

static uint64_t sum_of(const struct own_fleet *fleet, size_t field) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < fleet->plan.keys; i++) sum += *(const uint64_t *)((const char *)&fleet->keys[i] + field);
    return sum;
}
#define SUM(fleet, field) sum_of(fleet, offsetof(struct own_key, field))

Test(owning_fleet, keys_are_counted_by_their_owners) {
    Pb__QuotaDefinition definition = budget_of(20, 10, 1000);
    double rate = 5;
    struct own_plan plan = {
        .seed = 1, .agents = 6, .keys = 8, .members = 4, .definition = &definition, .rate = steady, .data = &rate};
    struct own_fleet *fleet = own_open(&plan);
    own_run(fleet, 5 * OWN_S);
    cr_assert_eq(own_members(fleet), 4);
    own_run(fleet, 30 * OWN_S);
    report(fleet, "steady");
    cr_assert_eq(SUM(fleet, counted), SUM(fleet, admitted));
    cr_assert_gt(SUM(fleet, admitted), 8 * (20 + 28 * 10) * 95 / 100);
    cr_assert_eq(SUM(fleet, undecided), 0);
    cr_assert_lt(fleet->asks, 4 * 30 / 2 * 3 / 2 + 20, "about two a TTL and member");
    own_close(fleet);
}

static uint64_t only_seed(void) {
    const char *only = getenv("COORD_SEED");
    return only ? strtoull(only, NULL, 10) : 0;
}

static void run_weather(const char *what, const struct own_plan *plan, bool orderly, uint64_t seconds) {
    struct own_fleet *fleet = own_open(plan);
    own_chaos(fleet, seconds * OWN_S, orderly);
    memset(fleet->cut, 0, sizeof fleet->cut);
    own_run(fleet, (seconds + 10) * OWN_S);
    report(fleet, what);
    own_close(fleet);
}

struct weather {
    const char *what;
    Pb__QuotaDefinition definition;
    double rate;
    unsigned lost, back;
    bool orderly;
    uint64_t take_most, skew_most_ms;
};

/* The first key is taken from a hundred times as often, now and then. */
static double one_is_hot(void *data, unsigned agent, unsigned key, uint64_t now_ns) {
    const struct weather *weather = data;
    (void)agent;
    if (!weather->definition.split) return weather->rate;
    return key ? weather->rate / 20 : now_ns / (20 * OWN_S) % 3 ? 4 * weather->rate : weather->rate / 10;
}

static void weathers(const struct weather *weather) {
    uint64_t only = only_seed();
    struct own_plan plan = {.agents = 6,
                            .keys = 8,
                            .members = 4,
                            .definition = &weather->definition,
                            .rate = one_is_hot,
                            .data = (void *)(uintptr_t)weather,
                            .lost_permille = weather->lost,
                            .back_permille = weather->back,
                            .skew_most_ms = weather->skew_most_ms,
                            .take_most = weather->take_most};
    if (weather->definition.split) plan.keys = 12;
    for (uint64_t seed = 1; seed <= (only ? 1 : 3); seed++) {
        plan.seed = only ? only : seed;
        run_weather(weather->what, &plan, weather->orderly, 100);
    }
}

Test(owning_fleet, members_come_and_go_in_order) {
    weathers(&(struct weather){"orderly", budget_of(50, 10, 1000), 5, .orderly = true, .take_most = 3});
}
Test(owning_fleet, the_bound_holds_in_bad_weather) {
    weathers(&(struct weather){"bad weather", budget_of(50, 10, 1000), 5, .lost = 30, .take_most = 3});
    weathers(&(struct weather){"slow refill", budget_of(200, 10, 10000), 5, .lost = 30, .back = 100, .take_most = 3});
}
Test(owning_fleet, the_bound_of_windows_holds_in_bad_weather) {
    weathers(
        &(struct weather){"windows", minutes(300), 5, .lost = 30, .take_most = 3, .back = 100, .skew_most_ms = 2000});
}
Test(owning_fleet, the_bound_of_split_keys_holds_in_bad_weather) {
    struct weather weather = {"split", budget_of(200, 30, 1000), 10, .lost = 30, .take_most = 2, .back = 50};
    weather.definition.split = 3;
    weathers(&weather);
    struct weather windows = {"split windows", minutes(700), 10, .lost = 30, .take_most = 2, .skew_most_ms = 1500};
    windows.definition.split = 3;
    weathers(&windows);
}
