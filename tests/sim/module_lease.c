/* Leases, free ones and those of nodes: their clients are granted one, renew it or not, and bind keys to it. Now and
 * then somebody has a node leave, whose agent may live. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "registry/lease.h"
#include "tests/sim/agents.h"
#include "tests/sim/modules.h"

#define P PRIu64

struct lease_own {
    uint32_t node, owner; /* node 0: a free one */
    bool leaves;          /* no lease: the node is to leave */
};

static const char kind[] = "1ea50000";

void lease_name(uint64_t op, char id[40]) { expiring_name(kind, op, id); }

uint64_t lease_maker(const char *id) { return expiring_maker(kind, id); }

void lease_op(struct op *op, uint32_t node, uint32_t owner, uint64_t ttl_ms) {
    op->module = &sim_lease;
    op->ttl_ms = ttl_ms;
    *OP_AS(struct lease_own, op) = (struct lease_own){.node = node, .owner = owner};
}

static bool leaves(const struct op *op) {
    return op->module == &sim_lease && op->way == OP_WRITE && OP_AS(const struct lease_own, op)->leaves;
}

/* -- clients ---------------------------------------------------------------------------------------------------------- */

static bool grant_next(struct sim_turn *turn, struct op *op, uint64_t ttl_ms) {
    uint32_t node = node_spelled(turn, 1 + turn->client % SIM_NODES);
    lease_op(op, turn_chance(turn, 500) ? node : 0, turn->client + 1, ttl_ms);
    return true;
}

static bool leave_next(struct sim_turn *turn, struct op *op) {
    op->module = &sim_lease;
    *OP_AS(struct lease_own, op) =
        (struct lease_own){.node = (uint32_t)turn_random(turn, 1, SIM_NODES), .leaves = true};
    return true;
}

static bool generate(struct sim_turn *turn, struct op *op) {
    struct keep_plan *plan = turn->plan;
    if (turn_chance(turn, 40)) return leave_next(turn, op);
    switch (keep_step(turn, plan, 120, 200)) {
        case KEEP_MAKE: return grant_next(turn, op, plan->ttl_ms);
        case KEEP_RENEW: renew_op(op, &sim_lease); return true;
        case KEEP_USE: /* started again: another lease, perhaps of the same node; or a key is bound */
            if (turn_chance(turn, 100)) return grant_next(turn, op, plan->ttl_ms);
            kv_op(op, KV_LEASED, (uint32_t)turn_random(turn, 0, SIM_KEYS - SIM_LOCKS - 1), 30);
            return true;
        case KEEP_NOTHING: break;
    }
    return false;
}

static bool complete(void *known, struct op *op) { return leaves(op) || keep_complete(known, op); }
static void learn(void *known, const struct op *op) {
    if (!leaves(op)) keep_learn(known, op);
}

static const ProtobufCMessage *leave_command(const struct op *op, struct arena *arena, uint8_t *number) {
    Pb__NodeLeaveCommand *command = arena_alloc(arena, sizeof *command);
    pb__node_leave_command__init(command);
    node_name(OP_AS(const struct lease_own, op)->node, command->node = arena_alloc(arena, 8));
    op_label(&command->base, op->id, arena);
    *number = NODE_LEAVE;
    return &command->base;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    const struct lease_own *own = OP_AS(const struct lease_own, op);
    if (own->leaves) return leave_command(op, arena, number);
    Pb__LeaseGrantCommand *command = arena_alloc(arena, sizeof *command);
    Pb__Lease *lease = arena_alloc(arena, sizeof *lease);
    pb__lease_grant_command__init(command);
    pb__lease__init(lease);
    lease_name(op->id, lease->id = arena_alloc(arena, 40));
    lease->ttl_ns = (int64_t)op->ttl_ms * 1000000;
    lease->reconnect_timeout_ns = SIM_REAP_MS * INT64_C(1000000);
    if (own->node) {
        node_name(own->node, lease->node = arena_alloc(arena, 8));
        session_name(own->owner, lease->node_id = arena_alloc(arena, 40)); /* any UUID of its own */
    }
    command->lease = lease;
    *number = LEASE_GRANT;
    return &command->base;
}

static uint64_t made_by(uint8_t number, const ProtobufCMessage *command) {
    uint64_t labelled = op_labelled(number, command);
    if (labelled || number != LEASE_GRANT) return labelled;
    const Pb__Lease *lease = ((const Pb__LeaseGrantCommand *)command)->lease;
    return lease ? lease_maker(lease->id) : 0;
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

struct model {
    struct {
        uint64_t holder;              /* the newest lease of this name */
        uint64_t dead_index, dead_us; /* it expired, and the node is to be removed; 0: not */
        bool left;                    /* there is only the note that it left, which is to be removed */
    } nodes[SIM_NODES + 1];
};
static struct model *model_of(struct sim *sim) { return sim_model(sim, &sim_lease); }

uint64_t lease_dead_index(struct sim *sim, uint32_t node) { return model_of(sim)->nodes[node].dead_index; }

/* A node's name has one owner at a time; who has it may take it anew. */
static struct sim_expected granted(struct sim *sim, struct op *op, uint64_t index) {
    const struct lease_own *own = OP_AS(struct lease_own, op);
    uint32_t node = node_plain(own->node);
    uint64_t holder = node ? model_of(sim)->nodes[node].holder : 0;
    if (expiring_alive(sim, holder)) {
        struct op *other = op_get(sim, holder);
        if (OP_AS(struct lease_own, other)->owner != own->owner) return expect_error();
        expiring_ended(sim, other, index, true);
    }
    if (node) {
        model_of(sim)->nodes[node].holder = op->id;
        model_of(sim)->nodes[node].dead_index = 0;
    }
    expiring_began(op, index);
    return expect_yes();
}

static void expired(struct sim *sim, uint64_t made, uint64_t index) {
    if (!expiring_alive(sim, made)) return;
    struct op *op = op_get(sim, made);
    uint32_t node = node_plain(OP_AS(struct lease_own, op)->node);
    expiring_ended(sim, op, index, false);
    if (!node || !catalog_registered(sim, node)) return;
    model_of(sim)->nodes[node].dead_index = index;
    model_of(sim)->nodes[node].dead_us = sim->now_us;
    model_of(sim)->nodes[node].left = false;
}

/* No node leaves whose agent holds a lease. Else it does if it is there and known to be dead. */
static struct sim_expected made_to_leave(struct sim *sim, const struct sim_applied *applied) {
    uint32_t node = OP_AS(const struct lease_own, applied->op)->node;
    struct model *model = model_of(sim);
    if (expiring_alive(sim, model->nodes[node].holder)) return expect_error();
    if (!catalog_registered(sim, node)) return expect_no();
    if (!applied->result->yes) return expect_any(applied);
    model->nodes[node].dead_index = applied->index, model->nodes[node].dead_us = sim->now_us;
    model->nodes[node].left = true;
    sim_notify(sim, &(struct sim_notice){.type = SIM_NODE_REMOVED, .node = node, .index = applied->index});
    return expect_yes();
}

/* A node that has been dead for so long goes, and what is on it. */
static void reaped(struct sim *sim, const Pb__LeaseReapCommand *command, uint64_t index) {
    uint32_t node = node_number(command->node);
    struct model *model = model_of(sim);
    uint64_t died_us = model->nodes[node].dead_us;
    if (model->nodes[node].dead_index != command->index)
        sim_violation(sim, RULE_MODEL, "node n%u is removed at %" P ": it has not been dead since %" P, node, index,
                      command->index);
    if (died_us + period_us(sim, SIM_REAP_MS) > sim->now_us)
        sim_violation(sim, RULE_LEASE, "node n%u is removed %" P " ms after its lease expired", node,
                      (sim->now_us - died_us) / MS);
    model->nodes[node].dead_index = 0;
    if (!model->nodes[node].left)
        sim_notify(sim, &(struct sim_notice){.type = SIM_NODE_REMOVED, .node = node, .index = index});
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    if (agents_applied(sim, applied)) return expect_any(applied);
    if (applied->op && leaves(applied->op)) return made_to_leave(sim, applied);
    if (applied->op) return granted(sim, applied->op, applied->index);
    if (applied->result->yes && applied->number == LEASE_END)
        expired(sim, lease_maker(((const Pb__LeaseEndCommand *)applied->command)->id), applied->index);
    if (applied->result->yes && applied->number == LEASE_REAP)
        reaped(sim, (const Pb__LeaseReapCommand *)applied->command, applied->index);
    return expect_any(applied);
}

static bool over(struct sim *sim) {
    for (uint32_t node = 1; node <= SIM_NODES; node++)
        if (lease_dead_index(sim, node)) return false;
    return true;
}

static bool grants(const struct op *op) { return op->module == &sim_lease && !leaves(op); }

static void leases_seen(void *data, const struct query_result *result) {
    struct sim *sim = data;
    const Pb__LeaseEntriesResult *all = (const Pb__LeaseEntriesResult *)result->message;
    bool known = true;
    for (size_t i = 0; i < all->n_leases; i++)
        known = known && expiring_alive(sim, lease_maker(all->leases[i]->lease->id));
    expiring_judge(sim, &sim_lease, grants, all->n_leases, known);
}

static void judge_end(struct sim *sim, struct server *server) {
    Pb__LeaseListRequest request = PB__LEASE_LIST_REQUEST__INIT;
    sim_query(server, &query_leases, &request.base, leases_seen, sim);
}

const struct sim_module sim_lease = {
    .name = "lease",
    .module = &lease_module,
    .pace = {.clients_least = 1, .clients_most = 2, .think_least_ms = 10, .think_most_ms = 80, .open_most = 4},
    .plan_size = sizeof(struct keep_plan),
    .known_size = sizeof(struct keep_known),
    .model_size = sizeof(struct model),
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .command = command,
    .made_by = made_by,
    .apply = apply,
    .expiry = &lease_expiry,
    .name_of = lease_name,
    .over = over,
    .over_ms = SIM_REAP_MS,
    .check_end = judge_end,
};
