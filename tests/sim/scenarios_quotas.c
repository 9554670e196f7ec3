/* Agents that spend a budget while servers, agents and the network between them fail. The seed chooses the kind of
 * budget. */
#include "tests/sim/gateways.h"
#include "tests/sim/story.h"

struct kind {
    Pb__QuotaMode mode;
    Pb__QuotaLoss on_loss;
    bool windows;
    uint32_t rate, take_most;
};
static const struct kind kinds[] = {
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, false, 20, 1},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_OPEN, false, 20, 3},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_LAST, false, 20, 1},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, true, 20, 20},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_OPEN, true, 20, 1},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_LAST, true, 20, 1},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_CLOSED, false, 20, 1},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_OPEN, false, 20, 3},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_LAST, false, 20, 1},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_CLOSED, true, 20, 1},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_OPEN, true, 20, 1},
};
static const struct kind owner_kinds[] = {
    {PB__QUOTA_MODE__QUOTA_OWNER, PB__QUOTA_LOSS__QUOTA_CLOSED, false, 20, 2},
    {PB__QUOTA_MODE__QUOTA_OWNER, PB__QUOTA_LOSS__QUOTA_OPEN, false, 20, 1},
    {PB__QUOTA_MODE__QUOTA_OWNER, PB__QUOTA_LOSS__QUOTA_LAST, false, 20, 1},
    {PB__QUOTA_MODE__QUOTA_OWNER, PB__QUOTA_LOSS__QUOTA_CLOSED, true, 20, 1},
    {PB__QUOTA_MODE__QUOTA_OWNER, PB__QUOTA_LOSS__QUOTA_OPEN, true, 20, 2},
};

/* -- what happens ---------------------------------------------------------------------------------------------------- */

static void to_a_server(struct sim *s) {
    struct server *server = s->servers[sim_random(s, 0, s->server_count - 1)], *leader = sim_leader(s);
    if (leader && sim_chance(s, 600)) server = leader;
    uint64_t for_us = sim_random(s, 50, 1500) * MS;
    if (!server->up) return;
    switch (sim_random(s, 0, 4)) {
        case 0:
            server_crash(server, sim_chance(s, 500) ? CRASH_KILL : CRASH_POWER);
            server_restart_after(server, for_us);
            break;
        case 1: server->paused_until_us = s->now_us + for_us; break;
        case 2: story_isolate(s, server); break;
        case 3:
            if (leader) (void)transfer_to(leader, story_other(s, leader, NULL));
            break;
        default: network_heal(s); break;
    }
}

static void to_a_gateway(struct sim *s) {
    struct gateways *all = s->gateways;
    struct gateway *gateway = &all->gateways[sim_random(s, 0, all->plan.gateways - 1)];
    uint64_t for_us = sim_random(s, 50, sim_chance(s, 300) ? 8000 : 1500) * MS;
    switch (sim_random(s, 0, all->owned ? 7 : 5)) {
        case 0: gateway_cut(gateway, for_us); break;
        case 1: gateway_pause(gateway, for_us); break;
        case 2: gateway_crash(gateway, sim_chance(s, 500)); break;
        case 3: gateway_leave(gateway); break;
        case 6:
        case 7: gateway_passes(gateway, !gateway->passing); break;
        default: gateway_start(gateway); break;
    }
}

/* They begin again, so that the next bad time finds all of them. */
static void heal(struct sim *s) {
    struct gateways *all = s->gateways;
    cluster_heal(s);
    for (unsigned i = 0; i < all->plan.gateways; i++) {
        struct gateway *gateway = &all->gateways[i];
        gateway->cut_us = 0;
        gateway_start(gateway);
        gateway_passes(gateway, i < all->plan.members);
    }
}

static void weather(struct sim *s, uint64_t ms) {
    uint64_t end_us = s->now_us + ms * MS;
    while (!s->failed && s->now_us < end_us) {
        sim_run(s, sim_random(s, 20, sim_chance(s, 500) ? 300 : 2000) * MS);
        if (sim_chance(s, 350)) to_a_server(s);
        else to_a_gateway(s);
    }
}

static void play(struct sim *s, const struct kind *kind, unsigned budget) {
    Pb__QuotaDefinition definition = PB__QUOTA_DEFINITION__INIT;
    struct gateways_plan plan = {.definition = &definition,
                                 .gateways = 6,
                                 .rate = kind->rate,
                                 .take_most = kind->take_most,
                                 .lost_permille = 20};
    bool owned = kind->mode == PB__QUOTA_MODE__QUOTA_OWNER;
    definition.mode = kind->mode, definition.on_loss = kind->on_loss;
    definition.budget = budget * kind->take_most;
    if (kind->windows) definition.window = PB__QUOTA_WINDOW__QUOTA_MINUTE, definition.budget *= 4;
    else definition.tokens = definition.budget / 5, definition.every_ms = 1000;
    definition.local_cap = kind->on_loss == PB__QUOTA_LOSS__QUOTA_OPEN ? 20 : 0;
    definition.lease_ttl_ms = sim_random(s, 1, 3) * 1000;
    definition.last_for_ms = 6000;
    definition.max_lease = 200000, definition.drift = 50000;
    if (owned) plan.keys = 6, plan.members = 4;
    EXPECT(s, gateways_begin(s, &plan) != NULL);
    sim_run(s, 3000 * MS);
    for (unsigned round = 0; round < 2 && !s->failed; round++) {
        weather(s, 12000);
        heal(s);
        sim_run(s, sim_random(s, 5000, 9000) * MS);
    }
    const struct gateways *all = s->gateways;
    TRACE(s,
          "mode %d, on_loss %d, %s: %" PRIu64 " admitted (%" PRIu64 " by themselves, %" PRIu64
          " after an ask), %" PRIu64 " refused, %" PRIu64 " undecided, %" PRIu64 " asks; longest %" PRIu64 " ms",
          kind->mode, kind->on_loss, kind->windows ? "windows" : "continuous", all->admitted, all->fell_back,
          all->renewed, all->refused, all->undecided, all->asks, all->longest_us / MS);
    EXPECT(s, all->admitted > 100);
}

static void scene(struct sim *s, const struct kind *kind, unsigned budget) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL);
    for (uint32_t i = 0; i < s->server_count; i++) EXPECT(s, story_founded(s, s->servers[i]));
    play(s, kind, budget);
    if (s->gateways) gateways_stop(s);
    story_end(s);
}

void scenario_gateways_spend_within_the_bound(struct sim *s) {
    scene(s, &kinds[s->options.seed % (sizeof kinds / sizeof kinds[0])], 400);
}

void scenario_owners_count_alone(struct sim *s) {
    scene(s, &owner_kinds[s->options.seed % (sizeof owner_kinds / sizeof owner_kinds[0])], 40);
}

/* -- clients that obey ----------------------------------------------------------------------------------------------- */

struct obeyed {
    Pb__QuotaMode mode;
    Pb__QuotaLoss on_loss;
    uint64_t budget, tokens, every_ms; /* tokens 0: by the minute */
    unsigned gateways, clients;
    bool modest;
    unsigned leavers;
};
static const struct obeyed obeyed[] = {
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, 5, 0, 0, 1, 1, false, 0},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, 2, 2, 1000, 1, 1, false, 0},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_CLOSED, 5, 0, 0, 1, 1, false, 0},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_OPEN, 5, 0, 0, 6, 1, false, 0},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, 4, 4, 1000, 8, 2, false, 0},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_CLOSED, 4, 4, 1000, 8, 1, false, 0},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, 60, 6, 1000, 8, 1, false, 0},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_LAST, 30, 0, 0, 6, 2, false, 0},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_LAST, 12, 0, 0, 3, 4, true, 0},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, 3, 3, 5000, 4, 2, false, 0},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_CLOSED, 10, 1, 300, 4, 1, false, 0},
    {PB__QUOTA_MODE__QUOTA_OWNER, PB__QUOTA_LOSS__QUOTA_CLOSED, 5, 0, 0, 4, 2, true, 0},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_CLOSED, 6, 6, 1000, 6, 1, true, 0},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, 6, 6, 1000, 6, 1, true, 0},
    {PB__QUOTA_MODE__QUOTA_OWNER, PB__QUOTA_LOSS__QUOTA_CLOSED, 4, 4, 1000, 4, 1, false, 0},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, 1, 1, 1000, 2, 1, false, 1},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, 2, 2, 1000, 2, 1, false, 1},
    {PB__QUOTA_MODE__QUOTA_LEASE, PB__QUOTA_LOSS__QUOTA_CLOSED, 3, 3, 1000, 8, 1, false, 5},
    {PB__QUOTA_MODE__QUOTA_BOUNDED, PB__QUOTA_LOSS__QUOTA_CLOSED, 2, 2, 1000, 3, 1, false, 2},
};

static struct gateways *obeyed_begin(struct sim *s, const struct obeyed *kind) {
    static Pb__QuotaDefinition definition;
    struct gateways_plan plan = {.definition = &definition,
                                 .gateways = kind->gateways,
                                 .take_most = 1,
                                 .clients = kind->clients,
                                 .modest = kind->modest,
                                 .leavers = kind->leavers,
                                 .skew_ms = sim_chance(s, 500) ? 0 : 300};
    pb__quota_definition__init(&definition);
    definition.mode = kind->mode, definition.on_loss = kind->on_loss;
    definition.budget = kind->budget, definition.tokens = kind->tokens, definition.every_ms = kind->every_ms;
    if (!kind->tokens) definition.window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    if (kind->on_loss == PB__QUOTA_LOSS__QUOTA_OPEN) definition.local_cap = 1;
    definition.lease_ttl_ms = sim_chance(s, 500) ? 60000 : 3000;
    definition.max_lease = sim_chance(s, 500) ? QUOTA_WHOLE : 0;
    if (kind->mode == PB__QUOTA_MODE__QUOTA_OWNER) plan.keys = 2, plan.members = kind->gateways;
    return gateways_begin(s, &plan);
}

/* Tokens that come without a refill end a refusal: the budget is raised, or somebody gives back. Another leader does
 * not end one. */
static void obeyed_change(struct sim *s) {
    struct gateways *all = s->gateways;
    struct server *leader = sim_leader(s);
    struct gateway *gateway = &all->gateways[all->plan.gateways - 1];
    switch (sim_random(s, 0, 3)) {
        case 0: gateways_raise(all, all->definition.budget * 5); break;
        case 1:
            if (leader) (void)transfer_to(leader, story_other(s, leader, NULL));
            all->trouble_us = s->now_us; /* refills wait for the next one */
            break;
        case 2:
            if (all->plan.gateways == 1) break;
            gateway_leave(gateway);
            sim_run(s, 3000 * MS);
            gateway_start(gateway);
            break;
        default: break;
    }
}

/* A client of a budget that nobody else takes from, or nobody else any more, gets what comes: all of it, but for what its
 * sleep in whole seconds costs, and the turns of those whose leases are there still. */
static void expect_all_served(struct sim *s, uint64_t admitted, uint64_t us, const struct obeyed *kind) {
    uint64_t due = kind->tokens ? kind->tokens * us / (kind->every_ms * MS) : 0;
    if (admitted * 10 < due * (kind->leavers ? 8 : 9))
        sim_violation(s, RULE_QUOTA, "%" PRIu64 " served of %" PRIu64 " due", admitted, due);
}

void scenario_clients_that_obey_are_served(struct sim *s) {
    const struct obeyed *kind = &obeyed[s->options.seed % (sizeof obeyed / sizeof obeyed[0])];
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL);
    for (uint32_t i = 0; i < s->server_count; i++) EXPECT(s, story_founded(s, s->servers[i]));
    struct gateways *all = obeyed_begin(s, kind);
    EXPECT(s, all != NULL);
    sim_run(s, 10000 * MS);
    bool alone = kind->gateways - kind->leavers == 1 && all->left == kind->leavers * kind->clients &&
                 all->left_us + 5000 * MS < s->now_us;
    uint64_t before = all->admitted, from_us = s->now_us;
    sim_run(s, 15000 * MS);
    if (alone) expect_all_served(s, all->admitted - before, s->now_us - from_us, kind);
    if (!s->failed) obeyed_change(s);
    sim_run(s, (kind->tokens ? 15000 : 45000) * MS); /* a minute ends */
    TRACE(s,
          "mode %d: %" PRIu64 " admitted, %" PRIu64 " refused, %" PRIu64 " asks in %" PRIu64 " s; %" PRIu64
          " refusals in a row, %" PRIu64 " refills, %" PRIu64 " ms at most",
          kind->mode, all->admitted, all->refused, all->asks, s->now_us / 1000 / MS, all->most_refusals,
          all->most_refills, all->longest_wait_us / MS);
    EXPECT(s, all->admitted > 0);
    for (unsigned i = 0; i < kind->gateways; i++) gateway_leave(&all->gateways[i]);
    sim_run(s, 5000 * MS);
    gateways_stop(s);
    story_end(s);
}
