/* Many agents of one cluster: what they ask the servers, what they admit, and what holds in bad weather. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "spender_fleet.h"

static Pb__QuotaDefinition continuous(const char *name, uint64_t budget, uint64_t tokens, uint64_t every_ms) {
    Pb__QuotaDefinition definition = PB__QUOTA_DEFINITION__INIT;
    definition.name = (char *)(uintptr_t)name;
    definition.budget = budget;
    definition.tokens = tokens;
    definition.every_ms = every_ms;
    return definition;
}

static double steady(void *data, unsigned agent, size_t budget, uint64_t now_ns) {
    (void)agent, (void)budget, (void)now_ns;
    return *(const double *)data;
}

static void report(const struct fleet *fleet, const char *what) {
    double seconds = (double)(fleet->now_ns - fleet->counted_ns) / 1e9;
    uint64_t tries = 0, refused = 0, fallback = 0, last = 0, renewed = 0;
    for (unsigned i = 0; i < fleet->plan.agents; i++) {
        const struct fleet_agent *agent = &fleet->agents[i];
        tries += agent->tries, refused += agent->refused, fallback += agent->fallback, last += agent->last_tries;
        renewed += agent->renewed;
    }
    fprintf(stderr,
            "%s: in %.0f s: %.1f asks/s; admitted %.1f/s (fallback %llu, renewed %llu), refused %llu, last tries %llu, "
            "tries %llu; "
            "longest refusal %llu ms\n",
            what, seconds, (double)fleet_asks(fleet) / seconds, (double)fleet_admitted(fleet) / seconds,
            (unsigned long long)fallback, (unsigned long long)renewed, (unsigned long long)refused,
            (unsigned long long)last, (unsigned long long)tries,
            (unsigned long long)(fleet->longest_refusal_ns / FLEET_MS));
}

/* Twenty agents take 100,000 a second: about an ask a TTL each. */
Test(fleet, steady_state_costs_about_an_ask_a_ttl) {
    Pb__QuotaDefinition definition = continuous("calls", 4000000, 200000, 1000);
    double rate = 5000;
    struct fleet_plan plan = {.seed = 1, .agents = 20, .definitions = {&definition}, .rate = steady, .data = &rate};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 20 * FLEET_S);
    report(fleet, "start");
    fleet_count_anew(fleet);
    fleet_run(fleet, 60 * FLEET_S);
    report(fleet, "steady");
    fleet_close(fleet);
}

/* -- bad weather -------------------------------------------------------------------------------------------------- */

struct weather {
    const char *what;
    Pb__QuotaMode mode;
    Pb__QuotaLoss on_loss;
    Pb__QuotaWindow window;
    double rate; /* of each agent */
    uint64_t take_most;
};

static double bursts(void *data, unsigned agent, size_t budget, uint64_t now_ns) {
    const struct weather *weather = data;
    uint64_t phase = (now_ns / (3 * FLEET_S) + 7 * agent + 3 * budget) % 8;
    return phase == 0 ? 0 : phase == 1 ? 20 * weather->rate : weather->rate;
}

static void run_weather(const struct weather *weather, uint64_t seed) {
    Pb__QuotaDefinition definitions[2];
    static const char *const names[] = {"first", "second/one"};
    for (size_t i = 0; i < 2; i++) {
        definitions[i] = continuous(names[i], i ? 3000 : 1000, 200, 2000);
        Pb__QuotaDefinition *definition = &definitions[i];
        definition->window = weather->window;
        if (weather->window) definition->tokens = definition->every_ms = 0, definition->budget *= 5;
        definition->mode = weather->mode;
        definition->on_loss = weather->on_loss;
        definition->local_cap = weather->on_loss == PB__QUOTA_LOSS__QUOTA_OPEN ? 30 : 0;
        definition->lease_ttl_ms = i ? 3000 : 6000;
        definition->last_for_ms = 10000;
        definition->max_lease = 100000;
        definition->drift = 50000;
    }
    struct fleet_plan plan = {.seed = seed,
                              .agents = 6,
                              .definitions = {&definitions[0], &definitions[1]},
                              .rate = bursts,
                              .data = (void *)(uintptr_t)weather,
                              .take_most = weather->take_most,
                              .keyless_permille = 300,
                              /* of several budgets nobody learns which one fell back */
                              .together_permille = weather->on_loss ? 0 : 100,
                              .lost_permille = 50,
                              .give_up_permille = 20};
    struct fleet *fleet = fleet_open(&plan);
    fleet_chaos(fleet, 150 * FLEET_S);
    char what[100];
    snprintf(what, sizeof what, "%s, seed %llu, most %llu and %llu", weather->what, (unsigned long long)seed,
             (unsigned long long)fleet->budgets[0].most, (unsigned long long)fleet->budgets[1].most);
    report(fleet, what);
    fleet_close(fleet);
}

static const struct weather weathers[] = {
    {"lease closed", PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, 0, 20, 1},
    {"lease open", PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_OPEN, 0, 20, 5},
    {"lease last", PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_LAST, 0, 5, 1},
    {"lease window closed", PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, PB__QUOTA_WINDOW__QUOTA_MINUTE,
     20, 150},
    {"lease window open", PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_OPEN, PB__QUOTA_WINDOW__QUOTA_MINUTE, 20,
     1},
    {"lease window last", PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_LAST, PB__QUOTA_WINDOW__QUOTA_MINUTE, 5,
     3},
    {"bounded closed", PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_CLOSED, 0, 20, 1},
    {"bounded open", PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_OPEN, 0, 5, 5},
    {"bounded window", PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_CLOSED, PB__QUOTA_WINDOW__QUOTA_MINUTE, 20,
     1},
    {"bounded window last", PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_LAST, PB__QUOTA_WINDOW__QUOTA_MINUTE,
     20, 3},
};

Test(fleet, the_bound_holds_in_bad_weather) {
    const char *only = getenv("COORD_SEED");
    for (size_t i = 0; i < sizeof weathers / sizeof weathers[0]; i++)
        for (uint64_t seed = 1; seed <= 3; seed++) run_weather(&weathers[i], only ? strtoull(only, NULL, 10) : seed);
}

/* The first agent takes a lot, and then a little; the others wait for the next minute, and take all that they can get. */
static double one_little(void *data, unsigned agent, size_t budget, uint64_t now_ns) {
    (void)data, (void)budget;
    if (agent) return now_ns < 60 * FLEET_S ? 0 : 100;
    return now_ns < 55 * FLEET_S ? 0 : now_ns < 56 * FLEET_S ? 100 : 3;
}

/* How often more was admitted in a minute than there was, when the first agent is cut off with what it holds. */
static uint64_t over_after_a_cut(unsigned mutations) {
    Pb__QuotaDefinition definition = continuous("calls", 1000, 0, 0);
    definition.window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    definition.max_lease = 500000;
    definition.lease_ttl_ms = 3000;
    struct fleet_plan plan = {.seed = 1,
                              .agents = 6,
                              .definitions = {&definition},
                              .rate = one_little,
                              .mutations = mutations,
                              .lenient = true};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 56 * FLEET_S);
    fleet_cut(fleet, 0, 200 * FLEET_S);
    fleet_run(fleet, 170 * FLEET_S);
    uint64_t over = fleet->budgets[0].over;
    fleet_close(fleet);
    return over;
}

Test(fleet, spending_beyond_the_end_of_a_lease_is_noticed) {
    cr_assert_eq(over_after_a_cut(0), 0);
    cr_assert_gt(over_after_a_cut(SPENDER_MUTATE_OVERSTAYS), 0);
}
