#include "spender_fleet.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"

/* -- life --------------------------------------------------------------------------------------------------------- */

static uint64_t local_ns(const struct fleet *fleet, const struct fleet_agent *agent) {
    return agent->offset_ns + (uint64_t)((unsigned __int128)fleet->now_ns * agent->rate_ppm / 1000000);
}

static void agent_begin(struct fleet *fleet, struct fleet_agent *agent) {
    struct spender_config config = {.node = agent->node, .seed = rng_next(&fleet->rng)};
    agent->spender = spender_new(&config);
    spender_mutate(agent->spender, fleet->plan.mutations);
    agent->life++;
    agent->waiting = 0;
    for (size_t i = 0; i < FLEET_BUDGETS; i++) {
        agent->follows[i].out = false;
        agent->fallback_count[i] = 0;
        agent->refused_ns[i] = 0;
    }
}

static void refilled(void *data, const char *name, uint64_t amount) {
    struct fleet *fleet = data;
    for (size_t i = 0; i < fleet->budget_count; i++) {
        struct fleet_budget *budget = &fleet->budgets[i];
        if (strcmp(budget->definition->name, name) != 0) continue;
        budget->level = budget->level > amount ? budget->level - amount : 0;
        if (amount) budget->window = 0;
    }
}

struct fleet *fleet_open(const struct fleet_plan *plan) {
    struct fleet *fleet = mem_zalloc(sizeof *fleet);
    fleet->plan = *plan;
    rng_seed(&fleet->rng, plan->seed);
    quota_servers_open(&fleet->servers, plan->agents);
    fleet->servers.refilled = refilled;
    fleet->servers.data = fleet;
    for (size_t i = 0; i < FLEET_BUDGETS && plan->definitions[i]; i++) {
        Pb__QuotaDefinition *definition = &fleet->definitions[i];
        *definition = *plan->definitions[i];
        CHECK(quota_definition_check(definition, NULL) == CO_OK); /* with the defaults */
        quota_servers_define(&fleet->servers, definition);
        fleet->budgets[i].definition = definition;
        fleet->budgets[i].capacity = quota_capacity(definition);
        fleet->budget_count++;
    }
    fleet->now_ns = FLEET_S;
    for (unsigned i = 0; i < plan->agents; i++) {
        struct fleet_agent *agent = &fleet->agents[i];
        agent->number = i;
        snprintf(agent->node, sizeof agent->node, "a%u", i);
        agent->rate_ppm = rng_between(&fleet->rng, 1000000 - QUOTA_CLOCK_PPM + 100, 1000000 + QUOTA_CLOCK_PPM);
        agent->offset_ns = rng_below(&fleet->rng, 1000 * FLEET_S);
        agent_begin(fleet, agent);
    }
    return fleet;
}

void fleet_close(struct fleet *fleet) {
    for (unsigned i = 0; i < fleet->plan.agents; i++) {
        spender_free(fleet->agents[i].spender);
        for (size_t b = 0; b < FLEET_BUDGETS; b++) free(fleet->agents[i].fallbacks[b]);
    }
    for (size_t i = 0; i < fleet->budget_count; i++) arena_free(&fleet->budgets[i].arena);
    while (fleet->messages) {
        struct fleet_message *message = fleet->messages;
        fleet->messages = message->next;
        buffer_free(&message->command);
        buffer_free(&message->grants);
        free(message);
    }
    quota_servers_close(&fleet->servers);
    free(fleet);
}

void fleet_count_anew(struct fleet *fleet) {
    fleet->counted_ns = fleet->now_ns;
    fleet->longest_refusal_ns = fleet->longest_hunger_ns = 0;
    for (unsigned i = 0; i < fleet->plan.agents; i++) {
        struct fleet_agent *agent = &fleet->agents[i];
        agent->asks = agent->tries = agent->admitted = agent->refused = agent->last_tries = agent->fallback =
            agent->renewed = 0;
    }
    for (size_t i = 0; i < fleet->budget_count; i++) fleet->budgets[i].most = 0;
}

uint64_t fleet_asks(const struct fleet *fleet) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < fleet->plan.agents; i++) sum += fleet->agents[i].asks;
    return sum;
}

uint64_t fleet_admitted(const struct fleet *fleet) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < fleet->plan.agents; i++) sum += fleet->agents[i].admitted;
    return sum;
}

/* -- what must hold ----------------------------------------------------------------------------------------------- */

static void must(struct fleet *fleet, struct fleet_budget *budget, uint64_t sum, uint64_t most, const char *what) {
    if (sum <= most) return;
    budget->over++;
    if (!fleet->plan.lenient)
        cr_assert_fail("seed %llu, at %llu ms: %s of %s: %llu admitted, of %llu", (unsigned long long)fleet->plan.seed,
                       (unsigned long long)(fleet->now_ns / FLEET_MS), what, budget->definition->name,
                       (unsigned long long)sum, (unsigned long long)most);
}

static uint64_t period_ns(const struct fleet_budget *budget) {
    if (!budget->definition->window) return budget->definition->every_ms * FLEET_MS;
    return (uint64_t)(quota_window_end(budget->definition, 0) - quota_window_start(budget->definition, 0)) * FLEET_S;
}

/* Checks that one agent admits at most its cap by itself in any refill period. */
static void fell_back(struct fleet *fleet, struct fleet_agent *agent, size_t i, uint64_t n) {
    struct fleet_budget *budget = &fleet->budgets[i];
    size_t *count = &agent->fallback_count[i];
    agent->fallbacks[i] = mem_realloc(agent->fallbacks[i], (*count + 1) * sizeof *agent->fallbacks[i]);
    agent->fallbacks[i][(*count)++] = (struct fleet_fallback){fleet->now_ns, n};
    uint64_t sum = 0;
    for (size_t j = *count; j-- > 0;) {
        if (agent->fallbacks[i][j].at_ns + period_ns(budget) <= fleet->now_ns) break;
        sum += agent->fallbacks[i][j].n;
    }
    struct quota_bound bound = quota_bound_of(budget->definition, 1);
    must(fleet, budget, sum, bound.local_caps + bound.last, "fallback");
}

static void admit(struct fleet *fleet, struct fleet_agent *agent, size_t i, uint64_t n, enum spender_source source) {
    struct fleet_budget *budget = &fleet->budgets[i];
    struct quota_bound bound = quota_bound_of(budget->definition, fleet->plan.agents);
    agent->admitted += n;
    if (n) agent->refused_ns[i] = 0;
    if (source == SPENDER_RENEWED) agent->renewed += n;
    if (source == SPENDER_FALLBACK) {
        agent->fallback += n;
        fell_back(fleet, agent, i, n);
    } else {
        budget->level += n;
    }
    budget->window += n;
    if (budget->level > budget->most) budget->most = budget->level;
    must(fleet, budget, budget->level, budget->capacity + bound.drift, "the budget");
    if (budget->definition->window) must(fleet, budget, budget->window, budget->capacity + bound.sum, "a window");
}

/* Nothing is refused for longer than 1.1 s, or after trouble a TTL and a second, while there is enough for it. */
static void refuse(struct fleet *fleet, struct fleet_agent *agent, size_t i) {
    struct fleet_budget *budget = &fleet->budgets[i];
    agent->refused++;
    if (!agent->refused_ns[i]) agent->refused_ns[i] = fleet->now_ns;
    uint64_t since_ns = agent->refused_ns[i];
    if (fleet->now_ns - since_ns > fleet->longest_hunger_ns) fleet->longest_hunger_ns = fleet->now_ns - since_ns;
    if (budget->poor_ns == UINT64_MAX) return;
    if (since_ns < budget->poor_ns) since_ns = budget->poor_ns;
    if (since_ns < agent->trouble_ns) since_ns = agent->trouble_ns;
    uint64_t for_ns = fleet->now_ns - since_ns, ttl_ms = budget->definition->lease_ttl_ms;
    if (for_ns > fleet->longest_refusal_ns) fleet->longest_refusal_ns = for_ns;
    /* Where nothing was wrong for a while the refusal ends as soon as its reason. */
    bool calm = !fleet->plan.lost_permille && agent->trouble_ns + 3 * FLEET_S < since_ns;
    if (for_ns > (calm ? 1100 : ttl_ms + 1000) * FLEET_MS)
        cr_assert_fail("seed %llu, at %llu ms: agent %u refuses %s for %llu ms", (unsigned long long)fleet->plan.seed,
                       (unsigned long long)(fleet->now_ns / FLEET_MS), agent->number, budget->definition->name,
                       (unsigned long long)(for_ns / FLEET_MS));
}

/* -- takes -------------------------------------------------------------------------------------------------------- */

/* False: it waits on. */
static bool try(struct fleet *fleet, struct fleet_agent *agent, const struct fleet_waiter *waiter, bool waited,
                bool last_try) {
    struct spender_answer answer;
    agent->tries++;
    int rv =
        spender_take(agent->spender, waiter->takes, waiter->count, waited, last_try, local_ns(fleet, agent), &answer);
    switch (rv) {
        case CO_OK:
            for (size_t i = 0; i < waiter->count; i++)
                admit(fleet, agent, waiter->budgets[i], waiter->takes[i].n, answer.source);
            return true;
        case CO_AGAIN: cr_assert(!last_try); return false;
        case CO_BUSY: refuse(fleet, agent, waiter->budgets[answer.failed]); return true;
        case CO_NOLEADER: agent->refused++; return true;
        default: cr_assert_fail("%s: %s", co_strerror(rv), answer.text); return true;
    }
}

static void retry_all(struct fleet *fleet, struct fleet_agent *agent) {
    size_t kept = 0;
    for (size_t i = 0; i < agent->waiting; i++) {
        bool late = fleet->now_ns >= agent->waiters[i].since_ns + FLEET_WAIT_S * FLEET_S;
        if (!try(fleet, agent, &agent->waiters[i], true, late)) agent->waiters[kept++] = agent->waiters[i];
    }
    agent->waiting = kept;
}

/* Those whose time is over are the first. */
static void end_waits(struct fleet *fleet, struct fleet_agent *agent) {
    size_t over = 0, kept = 0;
    while (over < agent->waiting && fleet->now_ns >= agent->waiters[over].since_ns + FLEET_WAIT_S * FLEET_S) {
        cr_assert(try(fleet, agent, &agent->waiters[over++], true, true));
        agent->last_tries++;
    }
    for (size_t i = over; i < agent->waiting; i++) {
        if (fleet->plan.give_up_permille && rng_below(&fleet->rng, 100000) < fleet->plan.give_up_permille) continue;
        agent->waiters[kept++] = agent->waiters[i];
    }
    agent->waiting = kept;
}

static void take_one(struct fleet *fleet, struct fleet_agent *agent, size_t budget) {
    const struct fleet_plan *plan = &fleet->plan;
    struct fleet_waiter waiter = {.since_ns = fleet->now_ns};
    bool together = rng_below(&fleet->rng, 1000) < plan->together_permille;
    for (size_t i = 0; i < fleet->budget_count; i++) {
        if (!together && i != budget) continue;
        struct spender_take *take = &waiter.takes[waiter.count];
        waiter.budgets[waiter.count++] = i;
        take->name = slice_text(fleet->budgets[i].definition->name);
        if (rng_below(&fleet->rng, 1000) >= plan->keyless_permille) take->key = SLICE_LITERAL("k");
        take->n = plan->take_most ? rng_between(&fleet->rng, 1, plan->take_most) : 1;
    }
    if (!try(fleet, agent, &waiter, false, false) && agent->waiting < FLEET_WAITERS)
        agent->waiters[agent->waiting++] = waiter;
}

static void takes(struct fleet *fleet, struct fleet_agent *agent) {
    for (size_t i = 0; i < fleet->budget_count; i++) {
        double rate = fleet->plan.rate(fleet->plan.data, agent->number, i, fleet->now_ns);
        agent->due[i] += rate / 1000 * ((double)rng_below(&fleet->rng, 2000001) / 1e6);
        for (; agent->due[i] >= 1; agent->due[i]--) take_one(fleet, agent, i);
    }
}

/* -- messages ----------------------------------------------------------------------------------------------------- */

static uint64_t latency(struct fleet *fleet) {
    uint64_t most_ms = fleet->plan.latency_most_ms ? fleet->plan.latency_most_ms : 5;
    return rng_between(&fleet->rng, 1, most_ms) * FLEET_MS;
}

static bool chance(struct fleet *fleet, unsigned permille) { return rng_below(&fleet->rng, 1000) < permille; }

static void send(struct fleet *fleet, struct fleet_agent *agent, const Pb__QuotaAskCommand *command) {
    struct fleet_message *message = mem_zalloc(sizeof *message);
    message->agent = agent->number;
    message->life = agent->life;
    size_t size = protobuf_c_message_get_packed_size(&command->base);
    buffer_reserve(&message->command, size + 1);
    message->command.size = protobuf_c_message_pack(&command->base, (uint8_t *)message->command.data);
    message->arrives_ns = fleet->now_ns + latency(fleet);
    message->gives_up_ns = UINT64_MAX;
    bool cut = agent->cut_ns > fleet->now_ns;
    if (cut || chance(fleet, fleet->plan.lost_permille)) {
        message->gives_up_ns = fleet->now_ns + rng_between(&fleet->rng, 200, 3000) * FLEET_MS;
        message->error = CO_UNKNOWN_OUTCOME;
        unsigned what = (unsigned)rng_below(&fleet->rng, cut ? 3 : 4);
        if (what == 0) message->arrives_ns = UINT64_MAX, message->error = CO_NOLEADER;
        else if (what == 1) message->arrives_ns = UINT64_MAX;
        else if (what == 2) message->arrives_ns = fleet->now_ns + rng_between(&fleet->rng, 100, 5000) * FLEET_MS;
        message->deaf = true; /* else only the answer is lost */
    }
    message->next = fleet->messages;
    fleet->messages = message;
    agent->asks++;
}

static void arrive(struct fleet *fleet, struct fleet_message *message) {
    struct arena arena = {0};
    if (!fleet->servers.led) { /* they wait for one for a while */
        if (message->deaf || fleet->now_ns < message->arrives_ns + 2 * FLEET_S) return;
        message->error = CO_NOLEADER;
    } else {
        const Pb__QuotaGrants *grants = NULL;
        Pb__QuotaAskCommand *command =
            message_unpack(&arena, &pb__quota_ask_command__descriptor, buffer_slice(&message->command));
        CHECK(command);
        int error = quota_servers_ask(&fleet->servers, command, &grants);
        if (!message->deaf) message->error = error;
        /* An agent's claims add up; only late ones may be out of date. */
        for (size_t i = 0; grants && !message->deaf && i < grants->n_grants; i++)
            cr_assert(grants->grants[i]->error == CO_OK || grants->grants[i]->error == CO_NOTFOUND, "seed %llu: %s",
                      (unsigned long long)fleet->plan.seed, grants->grants[i]->text);
        if (grants) {
            size_t size = protobuf_c_message_get_packed_size(&grants->base);
            buffer_reserve(&message->grants, size + 1);
            message->grants.size = protobuf_c_message_pack(&grants->base, (uint8_t *)message->grants.data);
        }
    }
    message->applied = true;
    if (!message->deaf) message->answers_ns = fleet->now_ns + latency(fleet);
    arena_free(&arena);
}

static void hear(struct fleet *fleet, struct fleet_message *message) {
    struct fleet_agent *agent = &fleet->agents[message->agent];
    if (agent->life != message->life) return;
    struct arena arena = {0};
    Pb__QuotaGrants *grants = NULL;
    if (message->error == CO_OK) {
        grants = message_unpack(&arena, &pb__quota_grants__descriptor, buffer_slice(&message->grants));
        CHECK(grants);
    }
    if (message->error != CO_OK) agent->trouble_ns = fleet->now_ns;
    spender_asked(agent->spender, message->error, grants, local_ns(fleet, agent));
    arena_free(&arena);
}

static void messages_go(struct fleet *fleet) {
    for (struct fleet_message **at = &fleet->messages; *at;) {
        struct fleet_message *message = *at;
        bool paused = fleet->agents[message->agent].paused_ns > fleet->now_ns;
        if (!message->applied && fleet->now_ns >= message->arrives_ns) arrive(fleet, message);
        bool answered = !message->deaf && message->applied && fleet->now_ns >= message->answers_ns;
        bool given_up = fleet->now_ns >= message->gives_up_ns;
        if ((answered || given_up) && !paused) {
            hear(fleet, message);
            message->gives_up_ns = UINT64_MAX;
            message->life = 0; /* heard once */
            if (answered) message->applied = true;
            answered = true;
        }
        bool heard = message->life == 0, over = message->applied || message->arrives_ns == UINT64_MAX;
        if (!heard || !over) {
            at = &message->next;
            continue;
        }
        *at = message->next;
        buffer_free(&message->command);
        buffer_free(&message->grants);
        free(message);
    }
}

/* -- notices ------------------------------------------------------------------------------------------------------ */

static void look(struct fleet *fleet, struct fleet_budget *budget) {
    uint64_t applied = machine_applied(fleet->servers.world.machine);
    const char *name = budget->definition->name;
    uint64_t fits = fleet->plan.take_most ? fleet->plan.take_most : 1;
    if (budget->seen != applied) {
        uint64_t index;
        const Pb__QuotaNotice *notice = quota_servers_notice(&fleet->servers, name, &index);
        arena_reset(&budget->arena);
        budget->notice = notice ? (Pb__QuotaNotice *)message_copy(&budget->arena, &notice->base) : NULL;
        budget->notice_index = index;
        budget->seen = applied;
        const Pb__QuotaState *state = quota_servers_look(&fleet->servers, name);
        bool enough = state && state->available - (int64_t)state->record->kept >= (int64_t)fits;
        if (!enough) budget->poor_ns = UINT64_MAX;
        else if (budget->poor_ns == UINT64_MAX) budget->poor_ns = fleet->now_ns;
    }
}

static void begin_follows(struct fleet *fleet, struct fleet_agent *agent) {
    const char *name;
    uint64_t index;
    while (spender_follow(agent->spender, &name, &index)) {
        size_t i = 0;
        while (i < fleet->budget_count && strcmp(fleet->budgets[i].definition->name, name) != 0) i++;
        CHECK(i < fleet->budget_count && !agent->follows[i].out);
        agent->follows[i].out = true;
        agent->follows[i].index = index;
        agent->follows[i].sent_ns = fleet->now_ns + latency(fleet);
    }
}

static void follow(struct fleet *fleet, struct fleet_agent *agent) {
    for (size_t i = 0; i < fleet->budget_count; i++) {
        struct fleet_follow *follow = &agent->follows[i];
        struct fleet_budget *budget = &fleet->budgets[i];
        if (!follow->out || fleet->now_ns < follow->sent_ns) continue;
        bool cut = agent->cut_ns > fleet->now_ns, long_ago = fleet->now_ns > follow->sent_ns + 3 * FLEET_S;
        if (cut ? !long_ago : follow->index && budget->notice_index <= follow->index && !long_ago) continue;
        follow->out = false;
        spender_followed(agent->spender, budget->definition->name, cut ? CO_NOLEADER : CO_OK,
                         cut ? NULL : budget->notice, budget->notice_index, local_ns(fleet, agent));
    }
}

/* -- time goes on ------------------------------------------------------------------------------------------------- */

/* As the contract says: what waits is tried again before anything else is asked. */
static void drive(struct fleet *fleet, struct fleet_agent *agent) {
    const Pb__QuotaAskCommand *command;
    for (unsigned turn = 0;; turn++) {
        uint64_t now_ns = local_ns(fleet, agent);
        cr_assert_lt(turn, 1000, "it has something to do for ever");
        if (spender_woken(agent->spender)) retry_all(fleet, agent);
        if (spender_deadline_ns(agent->spender) > now_ns) return;
        spender_wall(agent->spender, now_ns, QUOTA_SERVERS_UNIX_S * 1000 + (int64_t)(fleet->now_ns / FLEET_MS));
        spender_tick(agent->spender, now_ns);
        if (spender_woken(agent->spender)) retry_all(fleet, agent);
        begin_follows(fleet, agent);
        if (spender_ask(agent->spender, now_ns, &command)) send(fleet, agent, command);
    }
}

static void step(struct fleet *fleet) {
    if (!fleet->servers.led && fleet->now_ns >= fleet->unled_ns) quota_servers_lead(&fleet->servers, fleet->now_ns);
    quota_servers_tick(&fleet->servers, fleet->now_ns);
    messages_go(fleet);
    for (size_t i = 0; i < fleet->budget_count; i++) look(fleet, &fleet->budgets[i]);
    for (unsigned i = 0; i < fleet->plan.agents; i++) {
        struct fleet_agent *agent = &fleet->agents[i];
        bool paused = agent->paused_ns > fleet->now_ns;
        if (paused || agent->cut_ns > fleet->now_ns || !fleet->servers.led) agent->trouble_ns = fleet->now_ns;
        if (paused) continue;
        follow(fleet, agent);
        drive(fleet, agent);
        end_waits(fleet, agent);
        takes(fleet, agent);
        drive(fleet, agent);
    }
}

void fleet_run(struct fleet *fleet, uint64_t until_ns) {
    for (; fleet->now_ns < until_ns; fleet->now_ns += FLEET_MS) step(fleet);
}

/* -- weather ------------------------------------------------------------------------------------------------------ */

void fleet_cut(struct fleet *fleet, unsigned agent, uint64_t for_ns) {
    fleet->agents[agent].cut_ns = fleet->now_ns + for_ns;
}
void fleet_pause(struct fleet *fleet, unsigned agent, uint64_t for_ns) {
    fleet->agents[agent].paused_ns = fleet->now_ns + for_ns;
}

void fleet_crash(struct fleet *fleet, unsigned agent, bool noticed) {
    spender_free(fleet->agents[agent].spender);
    agent_begin(fleet, &fleet->agents[agent]);
    fleet->agents[agent].trouble_ns = fleet->now_ns;
    if (!noticed) return;
    quota_servers_node(&fleet->servers, fleet->agents[agent].node, false);
    quota_servers_node(&fleet->servers, fleet->agents[agent].node, true);
}

void fleet_new_leader(struct fleet *fleet, uint64_t after_ns) {
    quota_servers_unled(&fleet->servers);
    fleet->unled_ns = fleet->now_ns + after_ns;
}

void fleet_chaos(struct fleet *fleet, uint64_t until_ns) {
    while (fleet->now_ns < until_ns) {
        fleet_run(fleet, fleet->now_ns + rng_between(&fleet->rng, 50, 1500) * FLEET_MS);
        unsigned agent = (unsigned)rng_below(&fleet->rng, fleet->plan.agents);
        uint64_t for_ns = rng_between(&fleet->rng, 100, chance(fleet, 300) ? 20000 : 2000) * FLEET_MS;
        switch (rng_below(&fleet->rng, 5)) {
            case 0: fleet_cut(fleet, agent, for_ns); break;
            case 1: fleet_pause(fleet, agent, for_ns); break;
            case 2: fleet_crash(fleet, agent, chance(fleet, 500)); break;
            case 3: fleet_new_leader(fleet, rng_between(&fleet->rng, 100, 2500) * FLEET_MS); break;
            default:
                for (unsigned i = 0; i < fleet->plan.agents; i++) fleet_cut(fleet, i, for_ns);
                break;
        }
    }
}
