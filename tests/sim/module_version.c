/* The cluster version. The first command founds the cluster, early or late; one more raises it to a version that is made up
 * for this, for the product has none yet that came later. A command that comes with it is refused before. */
#include "tests/lib/later.h"
#include "tests/sim/modules.h"

struct version_own {
    unsigned version;
};

void version_op(struct op *op) {
    op->module = &sim_version;
    OP_AS(struct version_own, op)->version = MACHINE_VERSION_NEWEST;
}

struct plan {
    unsigned asked;
};

/* A few times at the start, since the first ones may be in vain; then hardly any more. */
static bool generate(struct sim_turn *turn, struct op *op) {
    struct plan *plan = turn->plan;
    version_op(op);
    if (turn_chance(turn, 300)) OP_AS(struct version_own, op)->version = LATER_VERSION;
    return turn_chance(turn, plan->asked++ < 10 ? 500 : 20);
}

/* Its cluster id says which operation it is. */
static const ProtobufCMessage *version_command(const struct op *op, struct arena *arena, unsigned version) {
    Pb__ClusterVersionCommand *command = arena_alloc(arena, sizeof *command);
    pb__cluster_version_command__init(command);
    command->version = version;
    command->cluster_id = op->id;
    return &command->base;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    *number = CLUSTER_VERSION;
    return version_command(op, arena, OP_AS(const struct version_own, op)->version);
}

static uint64_t made_by(uint8_t number, const ProtobufCMessage *command) {
    (void)number;
    return ((const Pb__ClusterVersionCommand *)command)->cluster_id;
}

struct model {
    unsigned version; /* 0: the cluster is not founded */
};
static struct model *model_of(struct sim *sim) { return sim_model(sim, &sim_version); }

bool version_founded(struct sim *sim) { return model_of(sim)->version != 0; }

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    if (!applied->op) return expect_any(applied);
    unsigned wanted = OP_AS(struct version_own, applied->op)->version;
    if (wanted <= model_of(sim)->version) return expect_error();
    if (!version_founded(sim)) sim_notify(sim, &(struct sim_notice){.type = SIM_FOUNDED, .index = applied->index});
    model_of(sim)->version = wanted;
    return expect_yes();
}

static void judge_end(struct sim *sim, struct server *server) {
    unsigned version = machine_version(server->machine.machine),
             wanted = version_founded(sim) ? model_of(sim)->version : MACHINE_VERSION_OLDEST;
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

/* -- the command that comes with the made-up version ------------------------------------------------------------------ */

static bool later_generate(struct sim_turn *turn, struct op *op) {
    op->module = &sim_later;
    return turn_chance(turn, 500);
}

static const ProtobufCMessage *later_command(const struct op *op, struct arena *arena, uint8_t *number) {
    *number = LATER;
    return version_command(op, arena, LATER_VERSION);
}

static struct sim_expected later_applied(struct sim *sim, const struct sim_applied *applied) {
    if (model_of(sim)->version < LATER_VERSION)
        sim_violation(sim, RULE_MODEL, "a command of version %u is in the log before that version", LATER_VERSION);
    return applied->op ? expect_yes() : expect_any(applied);
}

const struct sim_module sim_later = {
    .name = "later",
    .module = &later_module,
    .pace = {.clients_least = 1, .clients_most = 1, .think_least_ms = 100, .think_most_ms = 2000, .open_most = 1},
    .generate = later_generate,
    .command = later_command,
    .made_by = made_by,
    .apply = later_applied,
};
