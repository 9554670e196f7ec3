/* Many agents of one cluster: what they ask the servers, what they admit, and what holds in bad weather. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
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

/* With COORD_SEED in the environment, which is also the seed of the weather. */
static void report(const struct fleet *fleet, const char *what) {
    if (!getenv("COORD_SEED")) return;
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

/* -- what it costs ------------------------------------------------------------------------------------------------ */

static double asks_a_second(const struct fleet *fleet) {
    return (double)fleet_asks(fleet) / ((double)(fleet->now_ns - fleet->counted_ns) / 1e9);
}
static double admitted_a_second(const struct fleet *fleet) {
    return (double)fleet_admitted(fleet) / ((double)(fleet->now_ns - fleet->counted_ns) / 1e9);
}
static uint64_t refused(const struct fleet *fleet) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < fleet->plan.agents; i++) sum += fleet->agents[i].refused;
    return sum;
}
static uint64_t waited_too_long(const struct fleet *fleet) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < fleet->plan.agents; i++) sum += fleet->agents[i].last_tries;
    return sum;
}

/* Twenty agents take 100,000 a second, of four budgets: about an ask a TTL each, for all budgets together. */
Test(fleet, steady_takes_cost_about_an_ask_a_ttl) {
    Pb__QuotaDefinition definitions[4];
    static const char *const names[] = {"a", "b", "c", "d"};
    double rate = 1250;
    struct fleet_plan plan = {.seed = 1, .agents = 20, .rate = steady, .data = &rate};
    for (size_t i = 0; i < 4; i++) {
        definitions[i] = continuous(names[i], 1000000, 50000, 1000);
        plan.definitions[i] = &definitions[i];
    }
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 20 * FLEET_S);
    cr_assert_lt(fleet_asks(fleet), 20 * 20);
    fleet_count_anew(fleet);
    fleet_run(fleet, 40 * FLEET_S);
    report(fleet, "steady");
    cr_assert_lt(asks_a_second(fleet), 1.5 * 20 / 10);
    cr_assert_gt(admitted_a_second(fleet), 99000);
    cr_assert_eq(refused(fleet), 0);
    cr_assert_eq(waited_too_long(fleet), 0);
    fleet_close(fleet);
}

static double jumps(void *data, unsigned agent, size_t budget, uint64_t now_ns) {
    (void)data, (void)agent, (void)budget;
    return now_ns < 20 * FLEET_S ? 50 : 5000;
}

Test(fleet, demand_that_jumps_settles_after_a_few_asks) {
    Pb__QuotaDefinition definition = continuous("calls", 4000000, 200000, 1000);
    struct fleet_plan plan = {.seed = 1, .agents = 20, .definitions = {&definition}, .rate = jumps};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 20 * FLEET_S);
    fleet_count_anew(fleet);
    fleet_run(fleet, 22 * FLEET_S);
    report(fleet, "jump");
    cr_assert_leq(fleet_asks(fleet), 20 * 5);
    fleet_count_anew(fleet);
    fleet_run(fleet, 62 * FLEET_S);
    report(fleet, "after it");
    cr_assert_lt(asks_a_second(fleet), 1.5 * 20 / 10);
    cr_assert_eq(refused(fleet), 0);
    fleet_close(fleet);
}

/* Ten times more is wanted than there is: it is all spent, and the asks are few. */
static void overload(Pb__QuotaMode mode, double least) {
    Pb__QuotaDefinition definition = continuous("calls", 20000, 10000, 1000);
    definition.mode = mode;
    double rate = 5000;
    struct fleet_plan plan = {.seed = 1, .agents = 20, .definitions = {&definition}, .rate = steady, .data = &rate};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 10 * FLEET_S);
    fleet_count_anew(fleet);
    fleet_run(fleet, 20 * FLEET_S);
    report(fleet, mode ? "bounded overload" : "overload");
    cr_assert_lt(asks_a_second(fleet), 500);
    cr_assert_gt(admitted_a_second(fleet), least);
    fleet_close(fleet);
}

Test(fleet, more_is_wanted_than_there_is) {
    overload(PB__QUOTA_MODE__QUOTA_LEASE, 9500);
    overload(PB__QUOTA_MODE__QUOTA_BOUNDED, 9500);
}

/* A window is spent, and all are asked for more: nobody hammers the servers, and all are served when the next one begins. */
static void spent(Pb__QuotaMode mode) {
    Pb__QuotaDefinition definition = continuous("calls", 2000, 0, 0);
    definition.window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    definition.mode = mode;
    double rate = 50;
    struct fleet_plan plan = {.seed = 1, .agents = 20, .definitions = {&definition}, .rate = steady, .data = &rate};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 10 * FLEET_S);
    cr_assert_geq(fleet_admitted(fleet), 1900);
    fleet_count_anew(fleet);
    fleet_run(fleet, 50 * FLEET_S);
    report(fleet, "spent");
    cr_assert_lt(asks_a_second(fleet), 1.2 * 20 / 6, "%f", asks_a_second(fleet));
    cr_assert_eq(fleet_admitted(fleet), 0);
    fleet_run(fleet, 70 * FLEET_S);
    cr_assert_geq(fleet_admitted(fleet), 1900);
    cr_assert_leq(fleet->longest_refusal_ns, 1100 * FLEET_MS);
    fleet_close(fleet);
}

Test(fleet, a_budget_that_is_spent_costs_few_asks) {
    spent(PB__QUOTA_MODE__QUOTA_LEASE);
    spent(PB__QUOTA_MODE__QUOTA_BOUNDED);
}

/* Twenty agents want ten times more than comes back: each gets something at least once in a TTL and a second. */
static void contended(uint64_t tokens, uint64_t every_ms, double each, uint64_t ttl_ms) {
    Pb__QuotaDefinition definition = continuous("calls", 3 * tokens, tokens, every_ms);
    definition.lease_ttl_ms = ttl_ms, definition.max_lease = QUOTA_WHOLE;
    struct fleet_plan plan = {.seed = 1, .agents = 20, .definitions = {&definition}, .rate = steady, .data = &each};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 10 * FLEET_S);
    fleet_count_anew(fleet);
    fleet_run(fleet, 40 * FLEET_S);
    report(fleet, "contended");
    cr_expect_leq(fleet->longest_hunger_ns, (ttl_ms + 1000) * FLEET_MS, "%lu each %lu ms: %lu ms", tokens, every_ms,
                  fleet->longest_hunger_ns / FLEET_MS);
    cr_expect_gt(admitted_a_second(fleet), 0.95 * (double)tokens / (double)every_ms * 1000);
    fleet_close(fleet);
}

Test(fleet, nobody_is_left_behind_where_many_want_more_than_there_is) {
    contended(20, 1000, 10, 5000);
    contended(100, 1000, 50, 5000);
    contended(20, 2000, 10, 5000);
}

Test(fleet, bounded_budgets_cost_few_asks) {
    Pb__QuotaDefinition definition = continuous("calls", 1000000, 200000, 1000);
    definition.mode = PB__QUOTA_MODE__QUOTA_BOUNDED;
    double rate = 5000;
    struct fleet_plan plan = {.seed = 1, .agents = 20, .definitions = {&definition}, .rate = steady, .data = &rate};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 10 * FLEET_S);
    fleet_count_anew(fleet);
    fleet_run(fleet, 15 * FLEET_S);
    report(fleet, "bounded");
    cr_assert_lt(asks_a_second(fleet), 500);
    cr_assert_gt(admitted_a_second(fleet), 99000);
    fleet_close(fleet);
}

/* -- sharing ------------------------------------------------------------------------------------------------------ */

/* The first takes all it can get, and is idle from 10 s on; then the second wants it. */
static double hand_over(void *data, unsigned agent, size_t budget, uint64_t now_ns) {
    (void)data, (void)budget;
    if (agent == 0) return now_ns < 10 * FLEET_S ? 100 : 0;
    return agent == 1 && now_ns >= 10 * FLEET_S ? 100 : 0;
}

Test(fleet, what_an_idle_agent_holds_comes_to_those_who_starve) {
    Pb__QuotaDefinition definition = continuous("calls", 3000, 0, 0);
    definition.window = PB__QUOTA_WINDOW__QUOTA_HOUR;
    definition.max_lease = QUOTA_WHOLE;
    struct fleet_plan plan = {.seed = 1, .agents = 3, .definitions = {&definition}, .rate = hand_over};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 10 * FLEET_S);
    uint64_t first = fleet_admitted(fleet);
    fleet_count_anew(fleet);
    fleet_run(fleet, 35 * FLEET_S);
    report(fleet, "handed over");
    cr_assert_gt(first + fleet_admitted(fleet), 2950); /* nothing stays with who does not use it */
    fleet_close(fleet);
}

/* Tokens spent in a window count there, and not in the next one, which would lack them. */
static double first_minute(void *data, unsigned agent, size_t budget, uint64_t now_ns) {
    (void)data, (void)agent, (void)budget;
    return now_ns < 60 * FLEET_S ? 100 : 0;
}

Test(fleet, what_is_spent_in_a_window_is_told_before_it_ends) {
    Pb__QuotaDefinition definition = continuous("calls", 100000, 0, 0);
    definition.window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    struct fleet_plan plan = {.seed = 1, .agents = 6, .definitions = {&definition}, .rate = first_minute};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 90 * FLEET_S); /* all have told what they had not told then */
    const Pb__QuotaState *state = quota_servers_look(&fleet->servers, "calls");
    cr_assert_eq(state->record->leased, 0);
    cr_assert_leq(state->record->spent, 6 * 100 * (SPENDER_WINDOW_MS + 50) / 1000, "%lu", state->record->spent);
    fleet_close(fleet);
}

/* Refused for most of a minute, it is served soon after the next one has begun (spender_fleet.c judges how soon). */
Test(fleet, a_new_window_is_noticed_in_time) {
    Pb__QuotaDefinition definition = continuous("calls", 3000, 0, 0);
    definition.window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    definition.lease_ttl_ms = 4000;
    double rate = 30;
    struct fleet_plan plan = {.seed = 1, .agents = 6, .definitions = {&definition}, .rate = steady, .data = &rate};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 200 * FLEET_S);
    report(fleet, "windows");
    cr_assert_gt(fleet_admitted(fleet), 4 * 3000 - 600);
    cr_assert_gt(refused(fleet), 0);
    cr_assert_leq(fleet->longest_refusal_ns, 1100 * FLEET_MS);
    cr_assert_eq(waited_too_long(fleet), 0);
    fleet_close(fleet);
}

static double big_takes(void *data, unsigned agent, size_t budget, uint64_t now_ns) {
    (void)data, (void)agent, (void)budget, (void)now_ns;
    return 2;
}

/* Each take is more than an agent's fair share: parts that agents hold on to must not stop all of them. */
Test(fleet, large_takes_do_not_block_each_other) {
    Pb__QuotaDefinition definition = continuous("calls", 1000, 200, 1000);
    definition.max_lease = QUOTA_WHOLE;
    struct fleet_plan plan = {
        .seed = 1, .agents = 20, .definitions = {&definition}, .rate = big_takes, .take_most = 300};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 20 * FLEET_S);
    fleet_count_anew(fleet);
    fleet_run(fleet, 80 * FLEET_S);
    report(fleet, "large takes");
    cr_assert_gt(admitted_a_second(fleet), 160);
    fleet_close(fleet);
}

static double for_a_while(void *data, unsigned agent, size_t budget, uint64_t now_ns) {
    (void)data, (void)agent, (void)budget;
    return now_ns < 10 * FLEET_S ? 10 : 0;
}

Test(fleet, who_takes_nothing_holds_nothing) {
    Pb__QuotaDefinition definitions[2] = {continuous("a", 1000, 1000, 1000), continuous("b", 1000, 1000, 1000)};
    definitions[1].mode = PB__QUOTA_MODE__QUOTA_BOUNDED;
    struct fleet_plan plan = {
        .seed = 1, .agents = 10, .definitions = {&definitions[0], &definitions[1]}, .rate = for_a_while};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 10 * FLEET_S);
    for (int i = 0; i < 2; i++) cr_assert_eq(quota_servers_look(&fleet->servers, definitions[i].name)->n_leases, 10);
    fleet_run(fleet, 32 * FLEET_S);
    for (int i = 0; i < 2; i++) {
        const Pb__QuotaState *state = quota_servers_look(&fleet->servers, definitions[i].name);
        cr_assert_eq(state->n_leases, 0);
        cr_assert_eq(state->available, 1000);
    }
    fleet_count_anew(fleet);
    fleet_run(fleet, 100 * FLEET_S);
    cr_assert_eq(fleet_asks(fleet), 0);
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
        run_weather(&weathers[i], only ? strtoull(only, NULL, 10) : i + 1);
}

/* The first agent is alone in the first minute; then the others take all that they can get. */
static double first_alone(void *data, unsigned agent, size_t budget, uint64_t now_ns) {
    (void)budget;
    if (agent == 0) return now_ns < *(const uint64_t *)data * FLEET_S ? 0 : 50;
    return now_ns < 60 * FLEET_S ? 0 : 2000;
}

/* How often more was admitted in the second minute than there was, when the first agent is cut off before. */
static uint64_t over_after_a_cut(unsigned mutations, uint64_t begin_s) {
    Pb__QuotaDefinition definition = continuous("calls", 6000, 0, 0);
    definition.window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    definition.max_lease = 500000;
    definition.lease_ttl_ms = 20000;
    struct fleet_plan plan = {.seed = 1,
                              .agents = 6,
                              .definitions = {&definition},
                              .rate = first_alone,
                              .data = &begin_s,
                              .mutations = mutations,
                              .lenient = true};
    struct fleet *fleet = fleet_open(&plan);
    fleet_run(fleet, 40 * FLEET_S);
    fleet_cut(fleet, 0, 100 * FLEET_S);
    fleet_run(fleet, 75 * FLEET_S);
    uint64_t over = fleet->budgets[0].over;
    fleet_close(fleet);
    return over;
}

Test(fleet, spending_beyond_the_end_of_a_lease_is_noticed) {
    unsigned noticed = 0; /* where its lease ends in the first minute, and lasts into the second one */
    for (uint64_t begin_s = 2; begin_s < 20; begin_s += 3) {
        cr_assert_eq(over_after_a_cut(0, begin_s), 0);
        noticed += over_after_a_cut(SPENDER_MUTATE_OVERSTAYS, begin_s) > 0;
    }
    cr_assert_geq(noticed, 2);
}
