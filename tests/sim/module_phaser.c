/* Phasers: their clients have a session each, register with it, arrive, leave, wait, or just stop renewing it. */
#include <string.h>

#include "kv/session/session.h"
#include "tests/sim/phaser_model.h"

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct plan {
    unsigned registered; /* its node, times */
    struct keep_plan keep;
};
struct known {
    struct keep_known session;
    uint64_t state_index[PHASERS], phase[PHASERS];
    struct {
        uint64_t index, session; /* as it was read last, found, for this session */
    } waits[PHASERS];
};

static void read_next(struct sim_turn *turn, struct op *op, enum phaser_kind kind) {
    op->kind = kind;
    op->way = OP_READ;
    op->stale = kind == GET && turn_chance(turn, 300);
    if (turn_chance(turn, 600)) op->wait_us = turn_random(turn, 50, 1000) * MS;
}

/* p1 and p2 below p0, p3 below p1; p4 for itself. Now and then somebody says something else. */
static uint32_t parent_next(struct sim_turn *turn, uint32_t name) {
    static const uint32_t usual[PHASERS] = {NO_PHASER, 0, 0, 1, NO_PHASER};
    return turn_chance(turn, 120) ? (uint32_t)turn_random(turn, 0, PHASERS - 1) : usual[name];
}

static bool phaser_next(struct sim_turn *turn, struct op *op) {
    static const uint32_t modes[] = {PB__PHASER_MODE__PHASER_SIGNAL_WAIT, PB__PHASER_MODE__PHASER_SIGNAL_WAIT,
                                     PB__PHASER_MODE__PHASER_SIGNAL, PB__PHASER_MODE__PHASER_WAIT};
    struct phaser_own *own = own_of(op);
    uint64_t dice = turn_random(turn, 1, 1000);
    op->module = &sim_phaser;
    op->way = OP_WRITE;
    own->name = (uint32_t)turn_random(turn, 0, PHASERS - 1);
    own->parent = NO_PHASER;
    if (dice <= 300) {
        op->kind = REGISTER;
        own->mode = modes[turn_random(turn, 0, 3)];
        own->parent = parent_next(turn, own->name);
    } else if (dice <= 700) {
        op->kind = ARRIVE;
        own->has_phase = turn_chance(turn, 400);
        own->ahead = turn_chance(turn, 100);
    } else if (dice <= 760) {
        op->kind = DEREGISTER;
    } else {
        read_next(turn, op, dice <= 880 ? AWAIT : GET);
    }
    return true;
}

static bool generate(struct sim_turn *turn, struct op *op) {
    struct plan *plan = turn->plan;
    uint32_t node = 1 + turn->client % SIM_NODES;
    if (catalog_next(turn, &plan->registered, op)) return true;
    switch (keep_step(turn, &plan->keep, 200, 600)) {
        case KEEP_MAKE: session_op(op, node_spelled(turn, node), plan->keep.ttl_ms, 0); return true;
        case KEEP_RENEW: renew_op(op, &sim_session); return true;
        case KEEP_USE: return phaser_next(turn, op);
        case KEEP_NOTHING: break;
    }
    return false;
}

static bool complete(void *data, struct op *op) {
    struct known *known = data;
    if (op->module == &sim_catalog) return true;
    if (op->module != &sim_phaser || op->kind != GET) {
        if (!keep_complete(&known->session, op)) return false;
        if (op->module != &sim_phaser) return true;
    }
    struct phaser_own *own = own_of(op);
    if (op->kind == ARRIVE) own->phase = known->phase[own->name] + own->ahead;
    if (op->kind == GET) op->known_index = known->state_index[own->name];
    /* One who waits is registered, as far as it knows: others are told so at once, and do not wait. */
    if (op->kind == AWAIT && known->waits[own->name].session == op->owner)
        op->known_index = known->waits[own->name].index;
    if (op->known_index == 0) op->wait_us = 0;
    return true;
}

static void learn(void *data, const struct op *op) {
    struct known *known = data;
    if (op->module == &sim_session) keep_learn(&known->session, op);
    if (op->module != &sim_phaser || op->way != OP_READ || op->state != OP_DONE) return;
    const struct phaser_own *own = own_of(op);
    if (op->found) known->phase[own->name] = own->phase;
    if (op->kind == GET) known->state_index[own->name] = op->seen_index;
    if (op->kind != AWAIT) return;
    known->waits[own->name].index = op->found ? op->seen_index : 0;
    known->waits[own->name].session = op->owner;
}

/* -- bytes ------------------------------------------------------------------------------------------------------------- */

static char *name_of(const struct op *op, struct arena *arena) {
    char *name = arena_alloc(arena, 8);
    phaser_name(own_of(op)->name, name);
    return name;
}
static char *session_of(const struct op *op, struct arena *arena) {
    char *id = arena_alloc(arena, 40);
    session_name(op->owner, id);
    return id;
}

static ProtobufCMessage *registration(const struct op *op, struct arena *arena) {
    Pb__PhaserRegisterCommand *command = arena_alloc(arena, sizeof *command);
    Pb__SessionUse *use = arena_alloc(arena, sizeof *use);
    pb__phaser_register_command__init(command);
    pb__session_use__init(use);
    use->id = session_of(op, arena);
    command->session = use;
    command->name = name_of(op, arena);
    command->mode = (Pb__PhaserMode)own_of(op)->mode;
    phaser_name(own_of(op)->parent, command->parent = arena_alloc(arena, 8));
    return &command->base;
}

static ProtobufCMessage *arrival(const struct op *op, struct arena *arena) {
    Pb__PhaserArriveCommand *command = arena_alloc(arena, sizeof *command);
    pb__phaser_arrive_command__init(command);
    command->name = name_of(op, arena), command->session = session_of(op, arena);
    command->has_phase = own_of(op)->has_phase;
    if (command->has_phase) command->phase = own_of(op)->phase;
    return &command->base;
}

static ProtobufCMessage *departure(const struct op *op, struct arena *arena) {
    Pb__PhaserDeregisterCommand *command = arena_alloc(arena, sizeof *command);
    pb__phaser_deregister_command__init(command);
    command->name = name_of(op, arena), command->session = session_of(op, arena);
    return &command->base;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    ProtobufCMessage *message;
    switch ((enum phaser_kind)op->kind) {
        case REGISTER: *number = PHASER_REGISTER, message = registration(op, arena); break;
        case ARRIVE: *number = PHASER_ARRIVE, message = arrival(op, arena); break;
        default: *number = PHASER_DEREGISTER, message = departure(op, arena);
    }
    op_label(message, op->id, arena);
    return message;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    if (op->kind == GET) {
        Pb__PhaserRequest *state = arena_alloc(arena, sizeof *state);
        pb__phaser_request__init(state);
        state->name = name_of(op, arena);
        *type = &query_phaser;
        return &state->base;
    }
    Pb__PhaserAwaitRequest *await = arena_alloc(arena, sizeof *await);
    pb__phaser_await_request__init(await);
    await->name = name_of(op, arena), await->session = session_of(op, arena);
    phaser_await_key(await, arena);
    *type = &query_phaser_await;
    return &await->base;
}

/* -- what is seen ----------------------------------------------------------------------------------------------------- */

static void seen(struct op *op, const struct query_result *result) {
    struct phaser_own *own = own_of(op);
    if (!result->found) return;
    if (op->kind == AWAIT) {
        const Pb__PhaserAwait *await = (const Pb__PhaserAwait *)result->message;
        own->phase = await->phase;
        own->seen = sum_await(await->phase, await->registered, await->mode, await->create_index);
        return;
    }
    const Pb__PhaserState *state = (const Pb__PhaserState *)result->message;
    const Pb__Phaser *phaser = state->phaser;
    uint64_t sum = sum_phaser(phaser->phase, phaser_number(phaser->parent), phaser->registered, phaser->arrived,
                              phaser->descendants, phaser->create_index);
    for (size_t i = 0; i < state->n_members; i++)
        sum = on_member(sum, session_maker(state->members[i]->session), state->members[i]->mode,
                        state->members[i]->arrived, state->members[i]->create_index);
    for (size_t i = 0; i < state->n_children; i++)
        sum = on_child(sum, phaser_number(state->children[i]->name), state->children[i]->signals,
                       state->children[i]->arrived);
    own->phase = phaser->phase;
    own->seen = sum;
}

static void judge_end(struct sim *sim, struct server *server) {
    (void)sim;
    for (uint32_t name = 0; name < PHASERS; name++) {
        struct op op = {.module = &sim_phaser, .kind = GET, .way = OP_READ};
        own_of(&op)->name = name;
        op_judge(server, &op);
    }
}

const struct sim_module sim_phaser = {
    .name = "phaser",
    .module = &phaser_module,
    .pace = {.clients_least = 1, .clients_most = 3, .think_least_ms = 10, .think_most_ms = 60, .open_most = 3},
    .plan_size = sizeof(struct plan),
    .known_size = sizeof(struct known),
    .model_size = sizeof(struct phaser_model),
    .end = phaser_model_end,
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .command = command,
    .made_by = op_labelled,
    .request = request,
    .seen = seen,
    .check_read = phaser_model_read,
    .apply = phaser_model_apply,
    .on_notice = phaser_model_notice,
    .check_end = judge_end,
};
