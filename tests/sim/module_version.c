/* The cluster version: raised once, early or late; what came later is refused before. */
#include "registry/version.h"

#include "tests/sim/modules.h"

void version_op(struct op *op) { op->module = &sim_version; }

struct plan {
    unsigned asked;
};

/* A few times at the start, since the first ones may be in vain; then hardly any more. */
static bool generate(struct sim_turn *turn, struct op *op) {
    struct plan *plan = turn->plan;
    version_op(op);
    return turn_chance(turn, plan->asked++ < 10 ? 500 : 20);
}

/* Its cluster id says which operation it is. */
static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    Pb__ClusterVersionCommand *command = arena_alloc(arena, sizeof *command);
    pb__cluster_version_command__init(command);
    command->version = MACHINE_VERSION_NEWEST;
    command->cluster_id = op->id;
    *number = CLUSTER_VERSION;
    return &command->base;
}

static uint64_t made_by(uint8_t number, const ProtobufCMessage *command) {
    return number == CLUSTER_VERSION ? ((const Pb__ClusterVersionCommand *)command)->cluster_id : 0;
}

struct model {
    bool raised;
};
static struct model *model_of(struct sim *sim) { return sim_model(sim, &sim_version); }

bool version_raised(struct sim *sim) { return model_of(sim)->raised; }

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    if (!applied->op) return expect_any(applied);
    if (version_raised(sim)) return expect_error();
    sim_notify(sim, &(struct sim_notice){.type = SIM_FOLDING, .index = applied->index});
    model_of(sim)->raised = true;
    return expect_yes();
}

static void judge_end(struct sim *sim, struct server *server) {
    unsigned version = machine_version(server->machine.machine),
             wanted = version_raised(sim) ? MACHINE_VERSION_NEWEST : 1;
    if (version != wanted) sim_violation(sim, RULE_MODEL, "the cluster version is %u, expected %u", version, wanted);
}

const struct sim_module sim_version = {
    .name = "version",
    .module = &version_module,
    .pace = {.clients_least = 1, .clients_most = 1, .think_least_ms = 5, .think_most_ms = 300, .open_most = 1},
    .plan_size = sizeof(struct plan),
    .model_size = sizeof(struct model),
    .generate = generate,
    .command = command,
    .made_by = made_by,
    .apply = apply,
    .check_end = judge_end,
};
