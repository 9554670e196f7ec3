/* Nodes with a service and a check: registered by clients, removed when they have been dead for long. Names are written
 * in capitals and in small letters, and are one. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "registry/catalog.h"
#include "tests/sim/agents.h"
#include "tests/sim/gateways.h"
#include "tests/sim/modules.h"

struct catalog_own {
    uint32_t node;
};

uint32_t node_plain(uint32_t node) { return node & ~SIM_CAPITALS; }

void node_name(uint32_t node, char name[8]) {
    snprintf(name, 8, "%c%u", node & SIM_CAPITALS ? 'N' : 'n', node_plain(node) % 10);
}

uint32_t node_number(const char *name) {
    CHECK((name[0] == 'n' || name[0] == 'N') && name[1] >= '1' && name[1] <= '0' + SIM_NODES);
    return (uint32_t)(name[1] - '0');
}

bool node_same(uint32_t a, uint32_t b) { return node_plain(a) == node_plain(b); }

uint32_t node_spelled(struct sim_turn *turn, uint32_t node) {
    bool capitals = (turn->client + turn->now_us / (2000 * MS)) % 2;
    return node | (capitals != turn_chance(turn, 200) ? SIM_CAPITALS : 0);
}

void catalog_op(struct op *op, uint32_t node) {
    op->module = &sim_catalog;
    OP_AS(struct catalog_own, op)->node = node;
}

bool catalog_next(struct sim_turn *turn, unsigned *registered, struct op *op) {
    uint32_t node = 1 + turn->client % SIM_NODES;
    if (*registered >= 2 && !turn_chance(turn, 10)) return false;
    catalog_op(op, (turn->client + (*registered)++) % 2 ? node | SIM_CAPITALS : node);
    return true;
}

static bool generate(struct sim_turn *turn, struct op *op) {
    catalog_op(op, node_spelled(turn, (uint32_t)turn_random(turn, 1, SIM_NODES)));
    return true;
}

/* The service's port says which operation it is. */
static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    struct registration {
        Pb__RegisterCommand command;
        Pb__Node node;
        Pb__Service service;
        Pb__Check check, *checks[1];
        char name[8], address[32], service_id[16];
    } *all = arena_zalloc(arena, sizeof *all);
    pb__register_command__init(&all->command);
    pb__node__init(&all->node);
    pb__service__init(&all->service);
    pb__check__init(&all->check);
    node_name(OP_AS(const struct catalog_own, op)->node, all->name);
    snprintf(all->address, sizeof all->address, "10.0.0.%u", (unsigned)(op->id % 200));
    snprintf(all->service_id, sizeof all->service_id, "%s%u", op->id % 5 ? "web" : "Web", (unsigned)(op->id / 2 % 2));
    all->node.name = all->name;
    all->node.address = all->address;
    all->service.id = all->service_id;
    all->service.name = (char *)(uintptr_t)(op->id % 7 ? "web" : "WEB");
    all->service.port = (uint32_t)op->id;
    all->check.check_id = (char *)(uintptr_t)(op->id % 11 ? "c" : "C");
    all->check.status = op->id % 3 ? PB__STATUS__PASSING : PB__STATUS__CRITICAL;
    all->checks[0] = &all->check;
    all->command.node = &all->node;
    all->command.service = &all->service;
    all->command.checks = all->checks;
    all->command.n_checks = 1;
    *number = CATALOG_REGISTER;
    return &all->command.base;
}

static uint64_t made_by(uint8_t number, const ProtobufCMessage *command) {
    uint64_t labelled = op_labelled(number, command);
    if (labelled || number != CATALOG_REGISTER) return labelled;
    const Pb__Service *service = ((const Pb__RegisterCommand *)command)->service;
    return service ? service->port : 0;
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

struct model {
    bool registered[SIM_NODES + 1];
};

static bool *registered(struct sim *sim, uint32_t node) {
    struct model *model = sim_model(sim, &sim_catalog);
    return &model->registered[node_plain(node)];
}

bool catalog_registered(struct sim *sim, uint32_t node) { return *registered(sim, node); }

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    bool others = applied->op && (applied->op->client == SIM_GATEWAY || applied->op->client == SIM_AGENT);
    if (!applied->op || others) return expect_any(applied);
    *registered(sim, OP_AS(struct catalog_own, applied->op)->node) = true;
    return expect_yes();
}

static void on_notice(struct sim *sim, const struct sim_notice *notice) {
    if (notice->type == SIM_NODE_REMOVED) *registered(sim, notice->node) = false;
}

/* Of a gateway or an agent. */
static bool is_others(const char *name) { return name[0] == 'g' || name[0] == 'a'; }

static bool seen_once(const Pb__NodesResult *all, uint32_t node) {
    size_t times = 0;
    for (size_t i = 0; i < all->n_nodes; i++) {
        const char *name = all->nodes[i]->name;
        if (is_others(name)) continue;
        times += node_number(name) == node;
    }
    return times == 1;
}

static void nodes_seen(void *data, const struct query_result *result) {
    struct sim *sim = data;
    const Pb__NodesResult *all = (const Pb__NodesResult *)result->message;
    size_t wanted = 0, there = 0, seen = 0;
    for (size_t i = 0; i < all->n_nodes; i++) seen += !is_others(all->nodes[i]->name);
    for (uint32_t node = 1; node <= SIM_NODES; node++) {
        wanted += catalog_registered(sim, node);
        there += catalog_registered(sim, node) && seen_once(all, node);
    }
    if (seen != wanted || there != wanted)
        sim_violation(sim, RULE_MODEL, "at the end there are %zu nodes, %zu of those that are expected, which are %zu",
                      seen, there, wanted);
}

static void judge_end(struct sim *sim, struct server *server) {
    Pb__TableRequest request = PB__TABLE_REQUEST__INIT;
    sim_query(server, &query_nodes, &request.base, nodes_seen, sim);
}

const struct sim_module sim_catalog = {
    .name = "catalog",
    .module = &catalog_module,
    .pace = {.clients_least = 1, .clients_most = 1, .think_least_ms = 200, .think_most_ms = 2000, .open_most = 1},
    .model_size = sizeof(struct model),
    .generate = generate,
    .command = command,
    .made_by = made_by,
    .apply = apply,
    .on_notice = on_notice,
    .check_end = judge_end,
};
