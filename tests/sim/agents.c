/* The life of agents: their clocks, what they register, and what their code wants done. */
#include "tests/sim/agents.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message.h"
#include "health/definition.h"
#include "registry/lease.h"
#include "tests/sim/agents_internal.h"
#include "tests/sim/story.h"

#define NAME(text) ((char *)(uintptr_t)(text))
#define JUDGE_US   (100 * MS)
#define JUDGE      UINT64_MAX /* an event's number */

const char *const agent_service_ids[AGENT_SERVICES] = {"first", "s1", "s2", "s3", "s4"};

/* -- clocks -------------------------------------------------------------------------------------------------------------- */

uint64_t agent_now_ms(const struct agent *agent) {
    return (agent->offset_us + agent->all->sim->now_us / 1000 * agent->rate_ppm / 1000) / 1000;
}

static uint64_t true_us(const struct agent *agent, uint64_t ms) {
    if (ms >= UINT64_MAX / 4) return NEVER;
    if (ms * 1000 <= agent->offset_us) return 0;
    return (ms * 1000 - agent->offset_us) * 1000 / agent->rate_ppm * 1000 + 1000;
}

/* Half of them are as far apart as may be. */
static uint64_t clock_rate(struct sim *sim) {
    if (sim_chance(sim, 500)) return sim_chance(sim, 500) ? 995000 : 1005000;
    return sim_random(sim, 995000, 1005000);
}

/* -- what is registered --------------------------------------------------------------------------------------------------- */

unsigned agent_port(const struct agent *agent, unsigned service) {
    return 1 + agent->number * 2000 + agent->services[service].version % 2000;
}

static void register_service(struct agent *agent, unsigned number) {
    const struct agent_service *service = &agent->services[number];
    struct fault fault = {0};
    struct buffer text = {0};
    buffer_printf(&text,
                  "{\"ID\":\"%s\",\"Name\":\"%s\",\"Port\":%u,\"Check\":{\"CheckID\":\"of %s\",\"TTL\":\"1h\","
                  "\"Status\":\"%s\"}}",
                  agent_service_ids[number], number ? agent_service_ids[number] : "web", agent_port(agent, number),
                  agent_service_ids[number], catalog_status_text(service->status));
    struct json_object *json = json_parse(buffer_slice(&text), &fault);
    struct service_definition *definition = json ? service_definition_parse(json, &fault) : NULL;
    CHECK(definition && local_service_register(agent->local, definition, true, true, &fault) == CO_OK);
    json_object_put(json);
    buffer_free(&text);
}

static void report(struct agent *agent, unsigned number) {
    char id[16];
    struct fault fault = {0};
    Pb__Status status = agent->services[number].status;
    snprintf(id, sizeof id, "of %s", agent_service_ids[number]);
    CHECK(local_check_update(agent->local, slice_text(id), status, slice_text(catalog_status_text(status)), &fault) ==
          CO_OK);
}

static void changed(struct agent *agent, unsigned number) {
    agent->services[number].changed_us = agent->all->sim->now_us;
    if (agent->up) sim_schedule(agent->all->sim, 1, EVENT_AGENT, agent->number, 0, NULL), agent->wake_us = 0;
}

void agent_put(struct agent *agent, unsigned number, Pb__Status status) {
    struct agent_service *service = &agent->services[number];
    service->there = true, service->status = status, service->version++;
    if (agent->up) register_service(agent, number), report(agent, number);
    changed(agent, number);
}

void agent_drop(struct agent *agent, unsigned number) {
    if (agent->services[number].there && agent->up)
        CHECK(local_service_deregister(agent->local, slice_text(agent_service_ids[number])) == CO_OK);
    agent->services[number].there = false;
    changed(agent, number);
}

void agent_report(struct agent *agent, unsigned number, Pb__Status status) {
    struct agent_service *service = &agent->services[number];
    if (!service->there) return;
    service->status = status;
    if (agent->up) report(agent, number);
    changed(agent, number);
}

void agents_interfere(struct agent *agent, bool node) {
    struct agents *all = agent->all;
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = agent->node;
    if (!node) command.service_id = NAME(agent_service_ids[sim_random(all->sim, 0, AGENT_SERVICES - 1)]);
    TRACE(all->sim, "somebody removes %s of %s", node ? "all" : command.service_id, agent->node);
    agent_call_send(agent_call_new(agent, AGENT_CALL_OTHER, false, 0), CATALOG_DEREGISTER, &command.base);
    for (unsigned i = 0; i < all->plan.agents; i++) /* the next comparison finds it */
        if (agent_name(&all->agents[i]) == agent_name(agent))
            agent_troubled(&all->agents[i], all->sim->now_us + all->plan.sync_ms * 5 / 4 * 101 / 100 * MS);
}

/* -- life ---------------------------------------------------------------------------------------------------------------- */

unsigned agent_name(const struct agent *agent) {
    unsigned first = agent->all->plan.agents - agent->all->plan.twins;
    return agent->number < first ? agent->number : agent->number - first;
}

bool agent_reached(const struct agent *agent) {
    uint64_t now_us = agent->all->sim->now_us;
    return agent->up && agent->paused_us <= now_us && agent->cut_us <= now_us;
}

void agent_troubled(struct agent *agent, uint64_t until_us) {
    if (until_us > agent->trouble_us) agent->trouble_us = until_us;
}

static void wake_after(struct agent *agent, uint64_t us) {
    uint64_t at_us = agent->all->sim->now_us + us;
    if (at_us >= agent->wake_us) return;
    agent->wake_us = at_us;
    sim_schedule(agent->all->sim, us, EVENT_AGENT, agent->number, 0, NULL);
}

void agent_start(struct agent *agent) {
    struct agents *all = agent->all;
    struct sim *sim = all->sim;
    if (agent->up) return;
    TRACE(sim, "agent %u (%s) starts", agent->number, agent->node);
    struct local_config config = {.node = agent->node,
                                  .node_id = agent->node_id,
                                  .address = agent->address,
                                  .datacenter = "dc1",
                                  .node_record = &agent->record,
                                  .lease_ttl_ns = (int64_t)all->plan.ttl_ms * 1000000,
                                  .reconnect_timeout_ns = (int64_t)all->plan.reconnect_ms * 1000000,
                                  .sync_interval_ns = (int64_t)all->plan.sync_ms * 1000000};
    agent->local = local_new(&config, rng_next(&sim->rng));
    struct liveness_rules rules = {.node = agent->node,
                                   .ttl_ns = config.lease_ttl_ns,
                                   .seed = rng_next(&sim->rng),
                                   .mutations = sim->options.liveness_mutations};
    liveness_begin(&agent->liveness, &rules, agent_now_ms(agent));
    anti_entropy_begin(&agent->anti_entropy, agent->local, rng_next(&sim->rng));
    agent->anti_entropy.mutations = sim->options.anti_entropy_mutations;
    agent->local->liveness = &agent->liveness;
    agent->process = rng_next(&sim->rng) | 1;
    agent->up = true, agent->leaving = agent->left = false;
    agent->life++;
    agent->paused_us = 0;
    agent->wake_us = NEVER;
    agent->reads_left = 0;
    agent->server = agents_server(sim);
    for (unsigned i = 0; i < AGENT_SERVICES; i++)
        if (agent->services[i].there) register_service(agent, i), report(agent, i);
    agent_troubled(agent, sim->now_us);
    wake_after(agent, 1);
}

static void gone(struct agent *agent) {
    if (!agent->up) return;
    anti_entropy_end(&agent->anti_entropy);
    local_free(agent->local);
    agent->local = NULL;
    agent->up = false;
    agent->gone_us = agent->all->sim->now_us;
}

void agent_kill(struct agent *agent) {
    if (!agent->up) return;
    TRACE(agent->all->sim, "agent %u (%s) is killed", agent->number, agent->node);
    gone(agent);
}

void agent_pause(struct agent *agent, uint64_t us) {
    TRACE(agent->all->sim, "agent %u stands still for %" PRIu64 " ms", agent->number, us / MS);
    agent->paused_us = agent->all->sim->now_us + us;
    agent_troubled(agent, agent->paused_us);
}

void agent_cut(struct agent *agent, uint64_t us) {
    TRACE(agent->all->sim, "agent %u is cut off for %" PRIu64 " ms", agent->number, us / MS);
    agent->cut_us = agent->all->sim->now_us + us;
    agent_troubled(agent, agent->cut_us);
}

void agent_leave(struct agent *agent) {
    if (!agent->up || agent->leaving) return;
    TRACE(agent->all->sim, "agent %u (%s) leaves", agent->number, agent->node);
    agent->leaving = true;
    liveness_leave(&agent->liveness, agent_now_ms(agent));
    wake_after(agent, 1);
}

/* -- what its code wants done --------------------------------------------------------------------------------------------- */

static void ask_grant(struct agent *agent) {
    Pb__LeaseGrantCommand command = PB__LEASE_GRANT_COMMAND__INIT;
    Pb__Lease lease = PB__LEASE__INIT;
    char id[40];
    struct agent_call *call = agent_call_new(agent, AGENT_CALL_LEASE, false, 0);
    op_get(agent->all->sim, call->op)->ttl_ms = agent->all->plan.ttl_ms;
    agent_lease_name(call->op, id);
    lease.id = id, lease.name = NAME("node"), lease.ttl_ns = agent->local->config.lease_ttl_ns;
    lease.node = agent->node, lease.node_id = agent->node_id, lease.address = agent->address;
    lease.process = agent->process, lease.reconnect_timeout_ns = agent->local->config.reconnect_timeout_ns;
    command.lease = &lease;
    agent_call_send(call, LEASE_GRANT, &command.base);
}

static void ask_end(struct agent *agent, const char *lease) {
    Pb__LeaseEndCommand command = PB__LEASE_END_COMMAND__INIT;
    command.id = NAME(lease), command.leave = true;
    agent_call_send(agent_call_new(agent, AGENT_CALL_LEASE, false, 0), LEASE_END, &command.base);
}

static bool holds_poison(const struct agent *agent, const ProtobufCMessage *message) {
    struct arena arena = {0};
    struct slice bytes = message_pack(&arena, message);
    bool yes = agent->poisoned && memmem(bytes.data, bytes.size, agent_service_ids[0], strlen(agent_service_ids[0]));
    arena_free(&arena);
    return yes;
}

static void begin_write(struct agent *agent, const struct anti_entropy_order *order) {
    bool poisoned = holds_poison(agent, order->message);
    agent_call_send(agent_call_new(agent, AGENT_CALL_WRITE, poisoned, 0), order->command, order->message);
    arena_reset(&agent->anti_entropy.arena);
}

static void begin_read(struct agent *agent) {
    const struct query_type *const queries[] = {&query_node_services, &query_node_checks};
    agent->reads_left = 2, agent->read_error = CO_OK;
    agent->all->compared++;
    for (unsigned i = 0; i < 2; i++) {
        agent->reads[i] = agent_call_new(agent, AGENT_CALL_READ, false, 0);
        agent_call_query(agent->reads[i], queries[i]);
    }
}

static bool drive_liveness(struct agent *agent, uint64_t *until_ms) {
    uint64_t now_ms = agent_now_ms(agent);
    struct liveness_order order = liveness_next(&agent->liveness, sim_leader(agent->all->sim) != NULL, now_ms);
    switch (order.act) {
        case LIVENESS_GRANT: ask_grant(agent); break;
        case LIVENESS_RENEW:
            agent_call_send(agent_call_new(agent, AGENT_CALL_RENEW, false, agent_lease_maker(order.lease)), 0, NULL);
            break;
        case LIVENESS_END: ask_end(agent, order.lease); break;
        case LIVENESS_CHANGED: anti_entropy_compare_soon(&agent->anti_entropy); break;
        case LIVENESS_COMPARE: anti_entropy_compare_within(&agent->anti_entropy, order.within_ms, now_ms); break;
        case LIVENESS_LEFT:
            agent->left = true;
            if (order.error == CO_OK) agent_judge_left(agent);
            break;
        case LIVENESS_REST: *until_ms = order.until_ms; return false;
    }
    return true;
}

static bool drive_anti_entropy(struct agent *agent, uint64_t *until_ms) {
    struct anti_entropy_order order = anti_entropy_next(&agent->anti_entropy, agent_now_ms(agent));
    if (order.act == ANTI_ENTROPY_REST) *until_ms = order.until_ms;
    else if (order.act == ANTI_ENTROPY_WRITE) begin_write(agent, &order);
    else begin_read(agent);
    return order.act != ANTI_ENTROPY_REST;
}

/* As the loop of a process does that runs the checks (health/local_watch.c): here none runs. */
static void look_after_checks(struct local *local) {
    LIST_FOREACH_SAFE(link, next, &local->restarts) {
        struct local_check *check = LIST_ENTRY(link, struct local_check, restart);
        list_remove(&check->restart);
        item_release(local, &check->item);
    }
}

static void drive(struct agent *agent) {
    look_after_checks(agent->local);
    uint64_t until_ms[2] = {LIVENESS_NEVER, ANTI_ENTROPY_NEVER}, now_us = agent->all->sim->now_us;
    while (drive_liveness(agent, &until_ms[0]) || drive_anti_entropy(agent, &until_ms[1])) continue;
    if (agent->left) {
        TRACE(agent->all->sim, "agent %u has left", agent->number);
        gone(agent);
        return;
    }
    uint64_t at_us = true_us(agent, until_ms[0] < until_ms[1] ? until_ms[0] : until_ms[1]);
    if (at_us != NEVER) wake_after(agent, at_us > now_us ? at_us - now_us : 1);
}

/* -- what comes back ------------------------------------------------------------------------------------------------------ */

static const ProtobufCMessage *unpack(struct agent *agent, const struct agent_call *call) {
    return message_unpack(&agent->anti_entropy.arena, call->query->result, buffer_slice(&call->reply));
}

static void both_read(struct agent *agent) {
    struct anti_entropy_catalog catalog = {0};
    if (agent->read_error == CO_OK) {
        catalog.services = (const Pb__NodeServicesResult *)unpack(agent, agent->reads[0]);
        catalog.checks = (const Pb__ChecksResult *)unpack(agent, agent->reads[1]);
        CHECK(catalog.services && catalog.checks);
        if (!agent->reads[0]->found) catalog.services = NULL;
    }
    anti_entropy_read(&agent->anti_entropy, agent->read_error, &catalog, agent_now_ms(agent));
    arena_reset(&agent->anti_entropy.arena);
}

void agent_answered(struct agent *agent, struct agent_call *call) {
    uint64_t now_ms = agent_now_ms(agent);
    char id[40];
    agent_lease_name(call->op, id);
    struct liveness_answer answer = {.error = call->error, .refused = call->refused, .text = call->text, .id = id};
    switch (call->kind) {
        case AGENT_CALL_LEASE: liveness_answered(&agent->liveness, &answer, now_ms); break;
        case AGENT_CALL_RENEW:
            if (answer.error == CO_UNKNOWN_OUTCOME) answer.error = CO_NOLEADER;
            liveness_answered(&agent->liveness, &answer, now_ms);
            break;
        case AGENT_CALL_WRITE:
            TRACE(agent->all->sim, "agent %u: a write: %s %s", agent->number,
                  call->error     ? co_strerror(call->error)
                  : call->refused ? "refused:"
                                  : "done",
                  call->text);
            anti_entropy_written(&agent->anti_entropy,
                                 &(struct anti_entropy_answer){call->error, call->refused, call->text}, now_ms);
            break;
        case AGENT_CALL_READ:
            if (call->error == CO_UNKNOWN_OUTCOME) call->error = CO_TIMEOUT;
            if (call->error) agent->read_error = call->error;
            if (--agent->reads_left == 0) both_read(agent);
            break;
        case AGENT_CALL_OTHER: break;
    }
}

/* number: of a call and what happens to it; 0: it wakes. One that stands still sees all of it later, in order. */
void agents_event(struct sim *sim, uint32_t number, uint64_t what) {
    struct agents *all = sim->agents;
    struct agent *agent = &all->agents[number];
    if (all->stopped) return;
    if (what == JUDGE) {
        agents_judge(all);
        sim_schedule(sim, JUDGE_US, EVENT_AGENT, 0, JUDGE, NULL);
        return;
    }
    if (agent->up && agent->paused_us > sim->now_us) {
        sim_schedule(sim, agent->paused_us - sim->now_us, EVENT_AGENT, number, what, NULL);
        return;
    }
    if (what) agent_call_event(all, what);
    else if (sim->now_us < agent->wake_us) return;
    else agent->wake_us = NEVER;
    sim_mix(sim, what << 8 | number);
    if (agent->up) drive(agent);
}

/* -- begin and end --------------------------------------------------------------------------------------------------------- */

static void agent_init(struct agents *all, unsigned number) {
    struct sim *sim = all->sim;
    struct agent *agent = &all->agents[number];
    *agent = (struct agent){.all = all, .number = number, .wake_us = NEVER};
    unsigned name = agent_name(agent), identity = all->plan.copied ? name : number;
    snprintf(agent->node, sizeof agent->node, "a%u", name);
    snprintf(agent->node_id, sizeof agent->node_id, "aaaaaaaa-0000-4000-8000-%012u", identity);
    snprintf(agent->address, sizeof agent->address, "10.1.0.%u", number + 1);
    pb__node__init(&agent->record);
    agent->record.name = agent->node, agent->record.id = agent->node_id, agent->record.address = agent->address;
    agent->record.datacenter = NAME("dc1");
    agent->rate_ppm = clock_rate(sim);
    agent->offset_us = sim_random(sim, 1, 1000) * 1000000;
    for (unsigned i = 0; i < all->plan.services; i++)
        agent->services[i] = (struct agent_service){.there = true, .status = PB__STATUS__PASSING};
}

struct agents *agents_begin(struct sim *sim, const struct agents_plan *plan) {
    struct agents *all = sim->agents = mem_zalloc(sizeof *all);
    CHECK(plan->agents <= AGENTS_MOST && plan->twins * 2 <= plan->agents && plan->services <= AGENT_SERVICES);
    all->sim = sim;
    all->plan = *plan;
    if (!sim->options.verbose) log_level_set(LOG_ERROR);
    for (unsigned i = 0; i < plan->agents; i++) agent_init(all, i);
    for (unsigned i = 0; i < plan->agents; i++) agent_start(&all->agents[i]);
    sim_schedule(sim, JUDGE_US, EVENT_AGENT, 0, JUDGE, NULL);
    return all;
}

void agents_stop(struct sim *sim) {
    struct agents *all = sim->agents;
    for (unsigned i = 0; i < all->plan.agents; i++) gone(&all->agents[i]);
    all->stopped = true;
}

void agents_free(struct sim *sim) {
    struct agents *all = sim->agents;
    if (!all) return;
    agents_stop(sim);
    agent_calls_free(all);
    free(all);
    sim->agents = NULL;
}
