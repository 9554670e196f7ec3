/* Many agents that count a budget's keys together, in good and bad weather. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "owner_fleet.h"

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

Test(owner_fleet, keys_are_counted_by_their_owners) {
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

/* -- what calm weather shows --------------------------------------------------------------------------------------------- */

static double one_of_many(void *data, unsigned agent, unsigned key, uint64_t now_ns) {
    (void)agent, (void)now_ns;
    return key ? 0.5 : *(const double *)data;
}

/* All that there is of it is admitted, by its parts together, and no more. */
Test(owner_fleet, a_hot_key_is_split_into_parts_that_are_spent_together) {
    Pb__QuotaDefinition definition = budget_of(300, 150, 1000);
    definition.split = 3;
    double rate = 60;
    struct own_plan plan = {.seed = 1,
                            .agents = 6,
                            .keys = 12,
                            .members = 5,
                            .definition = &definition,
                            .rate = one_of_many,
                            .data = &rate};
    struct own_fleet *fleet = own_open(&plan);
    own_run(fleet, 15 * OWN_S);
    const Pb__QuotaState *state = quota_servers_look(&fleet->servers, "calls");
    double hottest = 0;
    for (size_t i = 0; i < state->n_leases; i++)
        for (size_t j = 0; j < state->leases[i]->n_hot; j++)
            if (state->leases[i]->hot[j]->rate > hottest) hottest = state->leases[i]->hot[j]->rate;
    cr_assert(hottest > 250 && hottest < 400, "it is 360 a second: %f", hottest);
    own_run(fleet, 25 * OWN_S);
    cr_assert_eq(fleet->notice->n_splits, 1);
    cr_assert_eq(memcmp(fleet->notice->splits[0]->key.data, "key 0", 5), 0);
    uint64_t before = fleet->keys[0].admitted;
    own_run(fleet, 45 * OWN_S);
    report(fleet, "hot");
    cr_assert_gt(fleet->keys[0].admitted - before, 20 * 150 * 97 / 100);
    cr_assert_eq(SUM(fleet, undecided), 0);
    own_close(fleet);
}

/* While members come and go in order nothing is lost: all that a window has is admitted. */
Test(owner_fleet, windows_are_admitted_whole_while_members_come_and_go) {
    Pb__QuotaDefinition definition = minutes(300);
    double rate = 3;
    struct own_plan plan = {
        .seed = 3, .agents = 6, .keys = 8, .members = 2, .definition = &definition, .rate = steady, .data = &rate};
    struct own_fleet *fleet = own_open(&plan);
    own_run(fleet, 5 * OWN_S);
    for (unsigned i = 2; i < 6; i++) own_passes(fleet, i, true), own_run(fleet, fleet->now_ns + 2 * OWN_S);
    for (unsigned i = 0; i < 4; i++) own_passes(fleet, i, false), own_run(fleet, fleet->now_ns + 2 * OWN_S);
    own_passes(fleet, 0, true);
    own_run(fleet, 59 * OWN_S);
    report(fleet, "whole windows");
    cr_assert_eq(own_members(fleet), 3);
    for (unsigned i = 0; i < 8; i++) cr_assert_eq(fleet->keys[i].counted, 300);
    cr_assert_eq(fleet->notice->n_losses, 0);
    own_close(fleet);
}

/* Each agent that reaches no owner admits local_cap in a refill period, and no more. */
Test(owner_fleet, an_agent_that_is_cut_off_admits_what_on_loss_says) {
    Pb__QuotaDefinition definition = budget_of(100, 100, 10000);
    definition.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN, definition.local_cap = 7;
    double rate = 1;
    struct own_plan plan = {
        .seed = 1, .agents = 4, .keys = 4, .members = 2, .definition = &definition, .rate = steady, .data = &rate};
    struct own_fleet *fleet = own_open(&plan);
    own_run(fleet, 5 * OWN_S);
    cr_assert_eq(SUM(fleet, fallback), 0);
    own_cut_off(fleet, 3, 25 * OWN_S);
    own_run(fleet, 30 * OWN_S);
    report(fleet, "cut off");
    cr_assert(fleet->agents[3].fallbacks >= 2 * 7 && fleet->agents[3].fallbacks <= 3 * 7);
    cr_assert_eq(SUM(fleet, fallback), fleet->agents[3].fallbacks);
    own_close(fleet);
}

/* The last one that goes has nobody to give its keys to: who comes after it begins with nothing. */
Test(owner_fleet, the_last_member_begins_anew_with_nothing) {
    Pb__QuotaDefinition definition = budget_of(100, 1, 10000);
    double rate = 40;
    struct own_plan plan = {
        .seed = 1, .agents = 2, .keys = 2, .members = 1, .definition = &definition, .rate = steady, .data = &rate};
    struct own_fleet *fleet = own_open(&plan);
    own_run(fleet, 4 * OWN_S);
    own_end(fleet, 0);
    own_run(fleet, 7 * OWN_S);
    cr_assert(fleet->agents[0].gone);
    cr_assert_eq(fleet->notice->n_losses, 1);
    own_begin(fleet, 0);
    own_run(fleet, 12 * OWN_S);
    report(fleet, "the last one");
    cr_assert_eq(own_members(fleet), 1);
    cr_assert_leq(SUM(fleet, counted), 2 * 101);
    own_close(fleet);
}

/* -- rules that are broken are noticed ----------------------------------------------------------------------------------- */

static struct own_fleet *broken(const Pb__QuotaDefinition *definition, unsigned mutations, unsigned broken_rules,
                                double *rate) {
    struct own_plan plan = {.seed = 5,
                            .agents = 6,
                            .keys = 12,
                            .members = 4,
                            .definition = definition,
                            .rate = definition->split ? one_of_many : steady,
                            .data = rate,
                            .mutations = mutations,
                            .broken = broken_rules,
                            .latency_most_ms = 20,
                            .lenient = true};
    struct own_fleet *fleet = own_open(&plan);
    own_run(fleet, 5 * OWN_S);
    for (unsigned i = 4; i < 6; i++) own_passes(fleet, i, true), own_run(fleet, fleet->now_ns + OWN_S);
    own_passes(fleet, 0, false), own_run(fleet, fleet->now_ns + OWN_S);
    own_cut_off(fleet, 1, 6 * OWN_S);
    own_run(fleet, 16 * OWN_S);
    return fleet;
}

Test(owner_fleet, broken_rules_are_noticed) {
    Pb__QuotaDefinition definition = budget_of(100, 1, 10000), split = budget_of(100, 10, 1000);
    double rate = 20;
    split.split = 3;
    struct own_fleet *fleet = broken(&definition, 0, 0, &rate);
    cr_assert(fleet->beside == 0 && fleet->over == 0);
    own_close(fleet);
    fleet = broken(&split, 0, 0, &rate);
    own_run(fleet, 40 * OWN_S);
    cr_assert(fleet->beside == 0 && fleet->over == 0 && fleet->notice->n_splits == 1);
    own_close(fleet);
    fleet = broken(&definition, OWNER_MUTATE_COUNTS_EARLY, 0, &rate);
    cr_assert_gt(fleet->beside, 0);
    own_close(fleet);
    fleet = broken(&definition, OWNER_MUTATE_SKIPS_HAND_OVER, 0, &rate);
    cr_assert(fleet->over > 0 && fleet->beside == 0);
    own_close(fleet);
    fleet = broken(&definition, OWNER_MUTATE_OVERSTAYS, 0, &rate);
    cr_assert_gt(fleet->beside, 0);
    own_close(fleet);
    fleet = broken(&split, 0, MUTATE_QUOTA_SPLIT_EXCEEDS, &rate); /* what nobody takes for a while fills all parts */
    rate = 0.01;
    own_run(fleet, 30 * OWN_S);
    rate = 100;
    own_run(fleet, 33 * OWN_S);
    cr_assert_gt(fleet->over, 0);
    own_close(fleet);
}

/* -- bad weather --------------------------------------------------------------------------------------------------------- */

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
    for (uint64_t seed = 1; seed <= (only ? 1 : 2); seed++) {
        plan.seed = only ? only : seed;
        run_weather(weather->what, &plan, weather->orderly, only ? 100 : 60);
    }
}

Test(owner_fleet, members_come_and_go_in_order) {
    weathers(&(struct weather){"orderly", budget_of(50, 10, 1000), 5, .orderly = true, .take_most = 3});
}
Test(owner_fleet, the_bound_holds_in_bad_weather) {
    weathers(&(struct weather){"bad weather", budget_of(50, 10, 1000), 5, .lost = 30, .take_most = 3});
    weathers(&(struct weather){"slow refill", budget_of(200, 10, 10000), 5, .lost = 30, .back = 100, .take_most = 3});
}
Test(owner_fleet, the_bound_of_windows_holds_in_bad_weather) {
    weathers(
        &(struct weather){"windows", minutes(300), 5, .lost = 30, .take_most = 3, .back = 100, .skew_most_ms = 2000});
}
Test(owner_fleet, the_bound_of_split_keys_holds_in_bad_weather) {
    struct weather weather = {"split", budget_of(200, 30, 1000), 10, .lost = 30, .take_most = 2, .back = 50};
    weather.definition.split = 3;
    weathers(&weather);
    struct weather windows = {"split windows", minutes(700), 10, .lost = 30, .take_most = 2, .skew_most_ms = 1500};
    windows.definition.split = 3;
    weathers(&windows);
}
