/* The rules that hold for agents, their leases and the catalog, checked in the state of a server that has applied all
 * that any server has. */
#include <string.h>

#include "base/check.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "tests/sim/agents_internal.h"

#define P        PRIu64
#define END_US   (1500 * MS) /* an end is proposed at most 1 s after its period, and has 200 ms of grace */
#define CLOCK(x) ((x) + (x) / 100)

static uint64_t latest(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t ttl_us(const struct agents *all) { return CLOCK(all->plan.ttl_ms * MS); }

/* -- leases ------------------------------------------------------------------------------------------------------- */

bool agent_holds(const struct agent *agent) {
    const struct agents *all = agent->all;
    unsigned name = agent_name(agent);
    return all->lease_op[name] && !all->lease_ended_us[name] && all->lease_of[name] == agent->number;
}

static bool another_holds(const struct agent *agent) {
    const struct agents *all = agent->all;
    unsigned name = agent_name(agent);
    return all->lease_op[name] && !all->lease_ended_us[name] && all->lease_of[name] != agent->number;
}

static void granted(struct agents *all, struct op *op, uint64_t index) {
    const struct agent *agent = agent_of(op);
    unsigned name = agent_name(agent);
    if (another_holds(agent))
        sim_violation(all->sim, RULE_AGENTS, "agent %u is granted the lease of %s, which agent %u holds", agent->number,
                      agent->node, all->lease_of[name]);
    if (all->lease_op[name] && !all->lease_ended_us[name])
        expiring_ended(all->sim, op_get(all->sim, all->lease_op[name]), index, true);
    expiring_began(op, index);
    all->granted++;
    all->lease_op[name] = op->id, all->lease_of[name] = agent->number, all->lease_ended_us[name] = 0;
    all->node_left[name] = false;
}

/* Of an agent that lives and has been reached for all of a TTL no lease ends. */
static void judge_end(struct agents *all, const struct agent *agent) {
    uint64_t trouble_us = latest(latest(agent->trouble_us, all->trouble_us), agent->gone_us);
    if (agent_reached(agent) && all->sim->now_us > trouble_us + ttl_us(all) + END_US)
        sim_violation(all->sim, RULE_AGENTS,
                      "the lease of agent %u (%s) ends, and nothing has been wrong with it for %" P " ms",
                      agent->number, agent->node, (all->sim->now_us - trouble_us) / MS);
}

static void ended(struct agents *all, uint64_t made, uint64_t index, bool by_agent) {
    if (!made || !expiring_alive(all->sim, made)) return;
    struct op *op = op_get(all->sim, made);
    const struct agent *agent = agent_of(op);
    unsigned name = agent_name(agent);
    expiring_ended(all->sim, op, index, by_agent);
    if (all->lease_op[name] != made) return;
    all->lease_ended_us[name] = all->sim->now_us;
    all->ended++;
    all->node_left[name] = by_agent;
    if (!by_agent) judge_end(all, agent);
}

void agent_judge_left(const struct agent *agent) {
    if (agent_holds(agent) && agent_lease_maker(agent->liveness.id) == agent->all->lease_op[agent_name(agent)])
        sim_violation(agent->all->sim, RULE_AGENTS, "agent %u (%s) has left, and its lease stands", agent->number,
                      agent->node);
}

bool agents_applied(struct sim *sim, const struct sim_applied *applied) {
    struct agents *all = sim->agents;
    if (!all) return false;
    bool done = applied->result->error == CO_OK;
    if (applied->number == LEASE_GRANT && applied->op && applied->op->client == SIM_AGENT) {
        if (done) granted(all, applied->op, applied->index);
        return true;
    }
    if (applied->number == LEASE_END) {
        uint64_t made = agent_lease_maker(((const Pb__LeaseEndCommand *)applied->command)->id);
        if (done && applied->result->yes) ended(all, made, applied->index, applied->op != NULL);
        return made != 0;
    }
    return applied->number == LEASE_REAP && ((const Pb__LeaseReapCommand *)applied->command)->node[0] == 'a';
}

/* -- what is wrong with the servers ----------------------------------------------------------------------------------- */

static bool is_well(const struct sim *sim, const struct server *server) {
    if (!server->up || server->paused_until_us > sim->now_us || raft_leader(server->raft) == 0) return false;
    unsigned cut = 0;
    for (uint32_t i = 0; i < sim->server_count; i++) cut += sim->cut[server->slot][i] || sim->cut[i][server->slot];
    return cut == 0;
}

uint32_t agents_server(struct sim *sim) {
    uint32_t slot = (uint32_t)sim_random(sim, 0, sim->server_count - 1);
    for (uint32_t i = 0; i < sim->server_count && !is_well(sim, sim->servers[slot]); i++)
        slot = (slot + 1) % sim->server_count;
    return slot;
}

static void note_trouble(struct agents *all) {
    struct sim *sim = all->sim;
    const struct server *leader = sim_leader(sim);
    uint64_t term = leader ? raft_term(leader->raft) : 0;
    bool leads = leader && is_well(sim, leader) && raft_leader_ready(leader->raft);
    if (!leads || term != all->term) all->trouble_us = sim->now_us;
    all->term = term;
    for (unsigned i = 0; i < all->plan.agents; i++) {
        struct agent *agent = &all->agents[i];
        if (!is_well(sim, sim->servers[agent->server])) agent_troubled(agent, sim->now_us);
        if (another_holds(agent) || agent->leaving) agent_troubled(agent, sim->now_us);
    }
}

/* -- the catalog ------------------------------------------------------------------------------------------------------ */

struct view {
    const struct agent *agent;
    bool node, alive;
    bool there[AGENT_SERVICES], agrees[AGENT_SERVICES];
};

static int number_of(const char *id) {
    for (int i = 0; i < AGENT_SERVICES; i++)
        if (strcmp(id, agent_service_ids[i]) == 0) return i;
    return -1;
}

static void services_seen(void *data, const struct query_result *result) {
    struct view *view = data;
    const Pb__NodeServicesResult *all = (const Pb__NodeServicesResult *)result->message;
    view->node = result->found;
    for (size_t i = 0; result->found && i < all->n_services; i++) {
        int number = number_of(all->services[i]->id);
        if (number < 0) continue;
        view->there[number] = true;
        view->agrees[number] = all->services[i]->port == agent_port(view->agent, (unsigned)number);
    }
}

static void checks_seen(void *data, const struct query_result *result) {
    struct view *view = data;
    const Pb__ChecksResult *all = (const Pb__ChecksResult *)result->message;
    bool checked[AGENT_SERVICES] = {false};
    for (size_t i = 0; all && i < all->n_checks; i++) {
        const Pb__Check *check = all->checks[i];
        if (strcmp(check->check_id, "serfHealth") == 0) view->alive = check->status == PB__STATUS__PASSING;
        int number = strncmp(check->check_id, "of ", 3) == 0 ? number_of(check->check_id + 3) : -1;
        if (number >= 0) checked[number] = check->status == view->agent->services[number].status;
    }
    for (int i = 0; i < AGENT_SERVICES; i++) view->agrees[i] = view->agrees[i] && checked[i];
}

/* NULL: none that is up has applied all that any has. */
static struct server *best_server(const struct sim *sim) {
    const struct chronicle *chronicle = sim->chronicle;
    struct server *best = NULL;
    uint64_t applied = chronicle->committed_count;
    while (applied > 0 && !chronicle->committed[applied - 1].applied) applied--;
    for (uint32_t i = 0; i < sim->server_count; i++) {
        struct server *server = sim->servers[i];
        if (server->up && (!best || server->machine.applied > best->machine.applied)) best = server;
    }
    return best && best->machine.applied >= applied ? best : NULL;
}

static void look(const struct agent *agent, struct server *server, struct view *view) {
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    *view = (struct view){.agent = agent};
    request.node = (char *)(uintptr_t)agent->node;
    sim_query(server, &query_node_services, &request.base, services_seen, view);
    sim_query(server, &query_node_checks, &request.base, checks_seen, view);
    for (int i = 0; i < AGENT_SERVICES; i++)
        if (!agent->services[i].there) view->agrees[i] = !view->there[i];
}

/* -- agents that are there, and such as are not ------------------------------------------------------------------------ */

static uint64_t bound_us(const struct agents *all) { return all->plan.within_ms * MS; }

static void judge_differing(struct agent *agent, const char *what, uint64_t since_us) {
    struct agents *all = agent->all;
    uint64_t now_us = all->sim->now_us, from_us = latest(since_us, latest(agent->trouble_us, all->trouble_us));
    if (now_us <= from_us) return;
    if (now_us - from_us > all->longest_us) all->longest_us = now_us - from_us;
    if (now_us - from_us > bound_us(all))
        sim_violation(all->sim, RULE_AGENTS,
                      "of agent %u (%s) the catalog has said something else about %s than it does for %" P
                      " ms, and nothing was wrong",
                      agent->number, agent->node, what, (now_us - from_us) / MS);
}

static void judge_present(struct agent *agent, const struct view *view) {
    uint64_t now_us = agent->all->sim->now_us;
    agent->agrees = view->node && view->alive && agent_holds(agent);
    if (view->alive) agent->alive_us = now_us;
    judge_differing(agent, "its life", agent->alive_us);
    for (unsigned i = 0; i < AGENT_SERVICES; i++) {
        struct agent_service *service = &agent->services[i];
        if (view->agrees[i] || (i == 0 && agent->poisoned)) service->agreed_us = now_us;
        agent->agrees = agent->agrees && view->agrees[i];
        judge_differing(agent, agent_service_ids[i], latest(service->agreed_us, service->changed_us));
    }
}

static void judge_gone(const struct agent *agent) {
    const struct agents *all = agent->all;
    uint64_t gone_us = latest(latest(agent->gone_us, agent->late_us), all->trouble_us);
    if (!agent->up && agent_holds(agent) && all->sim->now_us > gone_us + ttl_us(all) + END_US)
        sim_violation(all->sim, RULE_AGENTS, "agent %u (%s) has been gone for %" P " ms, and its lease stands",
                      agent->number, agent->node, (all->sim->now_us - agent->gone_us) / MS);
}

/* No agent of its name is there. gone_us: when the last one went, or was heard of. */
static void judge_absent(const struct agent *agent, const struct view *view, uint64_t gone_us) {
    const struct agents *all = agent->all;
    uint64_t now_us = all->sim->now_us, silent_us = latest(gone_us, all->trouble_us);
    uint64_t ended_us = latest(all->lease_ended_us[agent_name(agent)], silent_us + ttl_us(all));
    if (!view->node) return;
    if (all->node_left[agent_name(agent)])
        sim_violation(all->sim, RULE_AGENTS, "%s has left, and is in the catalog", agent->node);
    if (now_us > ended_us + CLOCK(all->plan.reconnect_ms * MS) + END_US)
        sim_violation(all->sim, RULE_AGENTS, "%s is in the catalog, and was not heard of for %" P " ms", agent->node,
                      (now_us - gone_us) / MS);
}

/* Is an agent of this name up? *gone_us: when the last one went, or its last message came. */
static bool somebody(const struct agents *all, unsigned name, uint64_t *gone_us) {
    bool up = false;
    *gone_us = 0;
    for (unsigned i = 0; i < all->plan.agents; i++) {
        if (agent_name(&all->agents[i]) != name) continue;
        up |= all->agents[i].up;
        *gone_us = latest(*gone_us, latest(all->agents[i].gone_us, all->agents[i].late_us));
    }
    return up;
}

void agents_judge(struct agents *all) {
    struct server *server = best_server(all->sim);
    struct view view;
    note_trouble(all);
    for (unsigned i = 0; server && i < all->plan.agents; i++) {
        struct agent *agent = &all->agents[i];
        unsigned name = agent_name(agent);
        uint64_t gone_us;
        look(agent, server, &view);
        if (view.alive && (!all->lease_op[name] || all->lease_ended_us[name]))
            sim_violation(all->sim, RULE_AGENTS, "%s is alive in the catalog, and there is no lease of it",
                          agent->node);
        judge_gone(agent);
        if (agent->up) judge_present(agent, &view);
        else if (!somebody(all, name, &gone_us)) judge_absent(agent, &view, gone_us);
    }
}

bool agents_agree(const struct agents *all) {
    for (unsigned i = 0; i < all->plan.agents; i++) {
        const struct agent *agent = &all->agents[i];
        if (agent->up && !agent->agrees && !another_holds(agent)) return false;
    }
    return true;
}
