/* The life of gateways: their clocks, their takes, and what their code wants done. */
#include "tests/sim/gateways.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/message.h"
#include "registry/catalog.h"
#include "tests/sim/gateways_internal.h"
#include "tests/sim/story.h"

static char service_name[] = "api", budget_name[] = "budget";

/* -- clocks -------------------------------------------------------------------------------------------------------------- */

static uint64_t local_ns(const struct gateway *gateway) {
    return gateway->offset_ns + (uint64_t)((unsigned __int128)gateway->all->sim->now_us * gateway->rate_ppm / 1000);
}

static uint64_t true_us(const struct gateway *gateway, uint64_t ns) {
    if (ns == UINT64_MAX) return NEVER;
    if (ns < gateway->offset_ns) return 0;
    return (uint64_t)((unsigned __int128)(ns - gateway->offset_ns) * 1000 / gateway->rate_ppm) + 1;
}

static int64_t gateway_unix_ms(const struct gateway *gateway) {
    return GATEWAY_UNIX_S * 1000 + (int64_t)(gateway->all->sim->now_us / MS) + gateway->skew_ms;
}

struct owner_now gateway_now(const struct gateway *gateway) {
    return (struct owner_now){.ns = local_ns(gateway), .unix_s = gateway_unix_ms(gateway) / 1000};
}

/* Half of them are as far apart as may be. */
static uint64_t clock_rate(struct sim *sim) {
    if (sim_chance(sim, 500)) return sim_chance(sim, 500) ? 995000 : 1005000;
    return sim_random(sim, 995000, 1005000);
}

/* -- life ---------------------------------------------------------------------------------------------------------------- */

bool gateway_reached(const struct gateway *gateway) {
    uint64_t now_us = gateway->all->sim->now_us;
    return gateway->up && gateway->paused_us <= now_us && gateway->cut_us <= now_us;
}

void gateway_troubled(struct gateway *gateway, uint64_t until_us) {
    if (until_us > gateway->trouble_us) gateway->trouble_us = until_us;
    if (gateway->all->owned && until_us > gateway->all->trouble_us) gateway->all->trouble_us = until_us;
}

void gateways_trouble(struct gateways *all) {
    struct sim *sim = all->sim;
    const struct server *leader = sim_leader(sim);
    bool trouble = !leader || !raft_leader_ready(leader->raft);
    for (uint32_t i = 0; i < sim->server_count; i++) {
        trouble |= !sim->servers[i]->up || sim->servers[i]->paused_until_us > sim->now_us;
        for (uint32_t j = 0; j < sim->server_count; j++) trouble |= sim->cut[i][j];
    }
    for (unsigned i = 0; all->owned && i < all->plan.gateways; i++)
        trouble |= all->gateways[i].up && !gateway_reached(&all->gateways[i]);
    if (trouble && sim->now_us > all->trouble_us) all->trouble_us = sim->now_us;
}

static void wake_after(struct gateway *gateway, uint64_t us) {
    uint64_t at_us = gateway->all->sim->now_us + us;
    if (at_us >= gateway->wake_us) return;
    gateway->wake_us = at_us;
    sim_schedule(gateway->all->sim, us, EVENT_GATEWAY, gateway->number, 0, NULL);
}

void gateway_start(struct gateway *gateway) {
    struct gateways *all = gateway->all;
    struct sim *sim = all->sim;
    if (gateway->up) return;
    TRACE(sim, "%s starts", gateway->node);
    gateway->up = true;
    gateway->life++;
    gateway->waiting = 0;
    gateway->following = gateway->leaving = false;
    gateway->refused_us = gateway->wake_us = NEVER;
    gateway->paused_us = gateway->on_its_way = 0;
    gateway->server = (uint32_t)sim_random(sim, 0, sim->server_count - 1);
    gateway->take_us = all->plan.clients ? NEVER : sim->now_us + sim_random(sim, 1, 100) * MS;
    clients_begin(gateway);
    gateway_troubled(gateway, gateway->all->sim->now_us);
    if (all->owned) {
        Pb__QuotaOwned owned = PB__QUOTA_OWNED__INIT, *list[] = {&owned};
        Pb__QuotaOwnedResult result = PB__QUOTA_OWNED_RESULT__INIT;
        struct owner_config config = {.node = gateway->node, .seed = rng_next(&sim->rng)};
        owned.name = budget_name, owned.service = service_name;
        result.budgets = list, result.n_budgets = 1;
        gateway->owner = owner_new(&config);
        owner_mutate(gateway->owner, sim->options.owner_mutations);
        owner_listed(gateway->owner, &result, gateway_now(gateway));
        if (gateway->passing) owner_serves(gateway->owner, budget_name, true, gateway_now(gateway));
    } else {
        struct spender_config config = {.node = gateway->node, .seed = rng_next(&sim->rng)};
        gateway->spender = spender_new(&config);
        spender_mutate(gateway->spender, sim->options.spender_mutations);
    }
    wake_after(gateway, 1);
}

static void gone(struct gateway *gateway) {
    spender_free(gateway->spender);
    owner_free(gateway->owner);
    gateway->spender = NULL, gateway->owner = NULL;
    gateway->up = false;
    gateway->waiting = 0;
}

/* The node with its health and its instance. */
static void register_node(struct gateway *gateway) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check health = PB__CHECK__INIT, check = PB__CHECK__INIT, *checks[] = {&health, &check};
    node.name = gateway->node, node.address = (char *)(uintptr_t) "10.0.0.1";
    service.id = service.name = check.check_id = check.name = check.service_id = service_name;
    health.check_id = health.name = (char *)(uintptr_t) "serfHealth";
    health.status = gateway->sick ? PB__STATUS__CRITICAL : PB__STATUS__PASSING;
    check.status = gateway->passing ? PB__STATUS__PASSING : PB__STATUS__CRITICAL;
    command.node = &node, command.service = &service, command.checks = checks, command.n_checks = 2;
    call_server(gateway, CALL_COMMAND, CATALOG_REGISTER, &command.base, 0);
}

/* It is registered again until that is done, and well, as others see to it. */
void gateway_registered(struct gateway *gateway, int error) {
    if (!error && !gateway->sick) return;
    gateway->sick = false;
    gateway->server = (uint32_t)sim_random(gateway->all->sim, 0, gateway->all->sim->server_count - 1);
    register_node(gateway);
}

/* -- faults -------------------------------------------------------------------------------------------------------------- */

void gateway_crash(struct gateway *gateway, bool noticed) {
    if (!gateway->up) return;
    TRACE(gateway->all->sim, "%s crashes%s", gateway->node, noticed ? ", and that is noticed" : "");
    gone(gateway);
    gateway_troubled(gateway, gateway->all->sim->now_us);
    gateway->sick = noticed;
    if (noticed) register_node(gateway);
}

void gateway_pause(struct gateway *gateway, uint64_t us) {
    TRACE(gateway->all->sim, "%s stands still for %" PRIu64 " ms", gateway->node, us / MS);
    gateway->paused_us = gateway->all->sim->now_us + us;
    gateway_troubled(gateway, gateway->paused_us);
}

void gateway_cut(struct gateway *gateway, uint64_t us) {
    TRACE(gateway->all->sim, "%s is cut off for %" PRIu64 " ms", gateway->node, us / MS);
    gateway->cut_us = gateway->all->sim->now_us + us;
    gateway_troubled(gateway, gateway->cut_us);
}

void gateway_passes(struct gateway *gateway, bool passing) {
    if (gateway->passing == passing) return;
    TRACE(gateway->all->sim, "%s's instance %s", gateway->node, passing ? "passes" : "fails");
    gateway->passing = passing;
    register_node(gateway);
    if (gateway->owner) owner_serves(gateway->owner, budget_name, passing, gateway_now(gateway));
    gateway_troubled(gateway, gateway->all->sim->now_us);
    wake_after(gateway, 1);
}

void gateway_leave(struct gateway *gateway) {
    if (!gateway->up) return;
    TRACE(gateway->all->sim, "%s is to end", gateway->node);
    gateway->leaving = true;
    gateway_troubled(gateway, gateway->all->sim->now_us);
    wake_after(gateway, 1);
}

/* -- what comes back -------------------------------------------------------------------------------------------------- */

static void asked(struct gateway *gateway, struct gateway_call *call, struct arena *arena) {
    Pb__QuotaGrants *grants = NULL;
    struct sim *sim = gateway->all->sim;
    if (call->error == CO_OK) {
        grants = message_unpack(arena, &pb__quota_grants__descriptor, buffer_slice(&call->reply));
        CHECK(grants);
        gateway->on_its_way = 0; /* it asks one at a time */
    }
    for (size_t i = 0; grants && i < grants->n_grants; i++)
        TRACE(sim, "%s hears: granted %" PRIu64 ", balance %" PRIu64 "%s, available %" PRId64 ", level %" PRIu64,
              gateway->node, grants->grants[i]->granted, grants->grants[i]->balance,
              grants->grants[i]->taken ? ", taken" : "", grants->grants[i]->available, grants->grants[i]->level);
    if (!grants) TRACE(sim, "%s hears: %s", gateway->node, co_strerror(call->error));
    /* A gateway's claims add up; in owner mode the servers may not know of its instance yet. */
    for (size_t i = 0; grants && !gateway->owner && i < grants->n_grants; i++)
        if (grants->grants[i]->error && grants->grants[i]->error != CO_NOTFOUND)
            sim_violation(sim, RULE_QUOTA, "an ask of %s: %s", gateway->node, grants->grants[i]->text);
    if (gateway->owner) owner_asked(gateway->owner, call->error, grants, gateway_now(gateway));
    else spender_asked(gateway->spender, call->error, grants, local_ns(gateway));
}

static void followed(struct gateway *gateway, struct gateway_call *call, struct arena *arena) {
    Pb__QuotaNotice *notice = NULL;
    if (call->error == CO_OK && call->found)
        notice = message_unpack(arena, &pb__quota_notice__descriptor, buffer_slice(&call->reply));
    gateway->following = false;
    if (gateway->owner)
        owner_followed(gateway->owner, budget_name, call->error, notice, call->index, gateway_now(gateway));
    else spender_followed(gateway->spender, budget_name, call->error, notice, call->index, local_ns(gateway));
}

void gateway_answered(struct gateway *gateway, struct gateway_call *call, bool given_up) {
    struct sim *sim = gateway->all->sim;
    struct arena arena = {0};
    enum owner_reach reach = given_up ? (enum owner_reach)call->error : OWNER_ANSWERED;
    bool failed = call->kind < CALL_TAKE ? call->error != CO_OK : given_up;
    if (failed) {
        gateway_troubled(gateway, gateway->all->sim->now_us);
        if (call->kind < CALL_TAKE) gateway->server = (uint32_t)sim_random(sim, 0, sim->server_count - 1);
    }
    if (call->kind == CALL_ASK) asked(gateway, call, &arena);
    if (call->kind == CALL_FOLLOW) followed(gateway, call, &arena);
    if (call->kind == CALL_TAKE) gateway_owner_said(gateway, call, reach);
    if (call->kind == CALL_MESSAGE)
        owner_sent(gateway->owner, call->message, reach, buffer_slice(&call->reply), gateway_now(gateway));
    arena_free(&arena);
}

/* The owner's answer tells how much it counted, also when the answer is lost. */
void gateway_serves(struct gateway *gateway, struct gateway_call *call) {
    struct gateways *all = gateway->all;
    struct arena arena = {0};
    struct slice asked_bytes = buffer_slice(&call->request);
    CHECK(owner_serve(gateway->owner, asked_bytes, gateway_now(gateway), &call->reply) == CO_OK);
    const Pb__QuotaPeer *peer = message_unpack(&arena, &pb__quota_peer__descriptor, asked_bytes);
    const Pb__QuotaPeerAnswer *answer =
        message_unpack(&arena, &pb__quota_peer_answer__descriptor, buffer_slice(&call->reply));
    CHECK(peer && answer);
    for (unsigned i = 0; peer->take && answer->verdict == PB__QUOTA_VERDICT__QUOTA_DONE && i < all->plan.keys; i++)
        if (slice_is(message_slice(peer->take->key), all->keys[i].text))
            judge_counted(gateway, &all->keys[i], peer->take->n);
    arena_free(&arena);
}

/* -- what its code wants done ---------------------------------------------------------------------------------------------- */

static void follow(struct gateway *gateway) {
    const char *name;
    uint64_t index;
    if (gateway->following || !(gateway->owner ? owner_follow(gateway->owner, &name, &index)
                                               : spender_follow(gateway->spender, &name, &index)))
        return;
    gateway->following = true;
    call_server(gateway, CALL_FOLLOW, 0, NULL, index);
}

static void ask_servers(struct gateway *gateway) {
    const Pb__QuotaAskCommand *command;
    if (!(gateway->owner ? owner_ask(gateway->owner, gateway_now(gateway), &command)
                         : spender_ask(gateway->spender, local_ns(gateway), &command)))
        return;
    gateway->all->asks++;
    for (size_t i = 0; i < command->n_asks; i++)
        TRACE(gateway->all->sim, "%s asks: spent %" PRIu64 ", held %" PRIu64 ", want %" PRIu64 ", take %" PRIu64,
              gateway->node, command->asks[i]->spent, command->asks[i]->held, command->asks[i]->want,
              command->asks[i]->take);
    call_server(gateway, CALL_ASK, QUOTA_ASK, &command->base, 0);
}

static bool woken(struct gateway *gateway) {
    return gateway->owner ? owner_woken(gateway->owner) : spender_woken(gateway->spender);
}

static uint64_t deadline_ns(const struct gateway *gateway) {
    return gateway->owner ? owner_deadline_ns(gateway->owner) : spender_deadline_ns(gateway->spender);
}

static void drive_owner(struct gateway *gateway) {
    struct owner_message message;
    owner_tick(gateway->owner, gateway_now(gateway));
    follow(gateway);
    ask_servers(gateway);
    while (owner_send(gateway->owner, gateway_now(gateway), &message))
        call_gateway(gateway, CALL_MESSAGE, message.node, message.payload, message.id);
}

/* As the contract says: what waits is tried again before anything else is asked. */
static void drive_spender(struct gateway *gateway) {
    spender_wall(gateway->spender, local_ns(gateway), gateway_unix_ms(gateway));
    spender_tick(gateway->spender, local_ns(gateway));
    if (spender_woken(gateway->spender)) gateway_retry(gateway);
    follow(gateway);
    ask_servers(gateway);
}

static void drive(struct gateway *gateway) {
    for (unsigned turn = 0;; turn++) {
        CHECK(turn < 1000); /* it has something to do for ever */
        if (woken(gateway)) gateway_retry(gateway);
        if (deadline_ns(gateway) > local_ns(gateway)) return;
        if (gateway->owner) drive_owner(gateway);
        else drive_spender(gateway);
    }
}

static void leave(struct gateway *gateway) {
    bool more = gateway->owner ? owner_leave(gateway->owner, gateway_now(gateway)) : spender_leave(gateway->spender);
    if (!more) gone(gateway);
    else drive(gateway);
}

static void arm(struct gateway *gateway) {
    uint64_t now_us = gateway->all->sim->now_us, at_us = true_us(gateway, deadline_ns(gateway));
    if (!gateway->leaving && gateway->take_us < at_us) at_us = gateway->take_us;
    if (!gateway->leaving && clients_next_us(gateway) < at_us) at_us = clients_next_us(gateway);
    if (gateway->spender && gateway->waiting && gateway->waiters[0].since_us + gateway_wait_us(gateway) < at_us)
        at_us = gateway->waiters[0].since_us + gateway_wait_us(gateway);
    if (gateway->leaving && now_us + 20 * MS < at_us) at_us = now_us + 20 * MS;
    if (at_us != NEVER) wake_after(gateway, at_us > now_us ? at_us - now_us : 1);
}

static void goes_on(struct gateway *gateway) {
    struct sim *sim = gateway->all->sim;
    drive(gateway);
    gateway_end_waits(gateway);
    while (!gateway->leaving && gateway->take_us <= sim->now_us) {
        gateway_take(gateway);
        gateway->take_us = sim->now_us + gateway_next_take_us(gateway);
    }
    if (!gateway->leaving) clients_go(gateway);
    drive(gateway);
    if (gateway->leaving) leave(gateway);
    if (gateway->up) arm(gateway);
}

/* number: of a call and what happens to it; 0: it wakes. One that stands still sees all of it later, in order. */
void gateways_event(struct sim *sim, uint32_t number, uint64_t what) {
    struct gateways *all = sim->gateways;
    struct gateway *gateway = &all->gateways[number];
    if (all->stopped) return;
    if (gateway->up && gateway->paused_us > sim->now_us) {
        sim_schedule(sim, gateway->paused_us - sim->now_us, EVENT_GATEWAY, number, what, NULL);
        if (what == 0 && gateway->wake_us <= sim->now_us) gateway->wake_us = gateway->paused_us;
        return;
    }
    if (what) call_event(all, what);
    else if (sim->now_us < gateway->wake_us) return;
    else gateway->wake_us = NEVER;
    sim_mix(sim, what << 8 | number);
    if (gateway->up) goes_on(gateway);
}

/* -- begin and end --------------------------------------------------------------------------------------------------------- */

static void define(struct gateways *all) {
    Pb__QuotaPutCommand command = PB__QUOTA_PUT_COMMAND__INIT;
    command.definition = &all->definition;
    call_server(&all->gateways[0], CALL_COMMAND, QUOTA_PUT, &command.base, 0);
}

void gateways_raise(struct gateways *all, uint64_t budget) {
    all->definition.budget = budget;
    if (all->definition.burst) all->definition.burst = budget;
    all->capacity = quota_capacity(&all->definition);
    define(all);
}

int64_t gateways_unix_ms(const struct sim *sim, uint32_t server) {
    const struct gateways *all = sim->gateways;
    int64_t skew_ms = (int64_t)(all->plan.skew_ms * (server % 3) / 2);
    return GATEWAY_UNIX_S * 1000 + (int64_t)(sim->now_us / MS) + skew_ms;
}

static bool all_commanded(const struct gateways *all) {
    for (size_t i = 0; i < all->call_count; i++)
        if (!all->calls[i]->over) return false;
    return true;
}

static void gateway_init(struct gateways *all, unsigned number) {
    struct sim *sim = all->sim;
    struct gateway *gateway = &all->gateways[number];
    *gateway = (struct gateway){.all = all, .number = number, .passing = number < all->plan.members};
    snprintf(gateway->node, sizeof gateway->node, "g%u", number);
    gateway->rate_ppm = clock_rate(sim);
    gateway->offset_ns = sim_random(sim, 0, 1000) * 1000000000;
    gateway->skew_ms = (int64_t)sim_random(sim, 0, all->plan.clients ? all->plan.skew_ms : 2000);
    gateway->wake_us = gateway->refused_us = NEVER;
    register_node(gateway);
}

struct gateways *gateways_begin(struct sim *sim, const struct gateways_plan *plan) {
    struct gateways *all = sim->gateways = mem_zalloc(sizeof *all);
    CHECK(plan->gateways <= GATEWAYS_MOST && plan->keys <= GATEWAY_KEYS);
    all->sim = sim;
    all->plan = *plan;
    all->plan.lost_permille = 0;
    all->definition = *plan->definition;
    all->definition.name = budget_name;
    all->owned = all->definition.mode == PB__QUOTA_MODE__QUOTA_OWNER;
    if (all->owned) all->definition.service = service_name;
    CHECK(quota_definition_check(&all->definition, NULL) == CO_OK); /* with the defaults */
    all->capacity = quota_capacity(&all->definition);
    all->poor_us = NEVER;
    for (unsigned i = 0; i < plan->keys; i++) {
        snprintf(all->keys[i].text, sizeof all->keys[i].text, "key %u", i);
        all->keys[i].nobody_us = NEVER;
    }
    for (unsigned i = 0; i < plan->gateways; i++) gateway_init(all, i);
    define(all);
    if (!WITHIN(sim, 5000, all_commanded(all))) sim_violation(sim, RULE_STORY, "nodes are not registered");
    for (size_t i = 0; i < all->call_count; i++)
        if (all->calls[i]->error)
            sim_violation(sim, RULE_STORY, "command %zu: %s", i, co_strerror(all->calls[i]->error));
    all->plan.lost_permille = plan->lost_permille;
    for (unsigned i = 0; i < plan->gateways; i++) gateway_start(&all->gateways[i]);
    return sim->failed ? NULL : all;
}

void gateways_stop(struct sim *sim) {
    struct gateways *all = sim->gateways;
    for (unsigned i = 0; i < all->plan.gateways; i++) gone(&all->gateways[i]);
    all->stopped = true;
}

void gateways_free(struct sim *sim) {
    struct gateways *all = sim->gateways;
    if (!all) return;
    gateways_stop(sim);
    gateway_calls_free(all);
    free(all->fallbacks);
    free(all->over);
    free(all);
    sim->gateways = NULL;
}
