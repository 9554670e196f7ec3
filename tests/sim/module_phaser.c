/* Phasers: their clients have a session each, register with it, arrive, leave, wait, or just stop renewing it. The
 * model knows who is registered where, and derives all else anew after each entry. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "kv/phaser/phaser.h"
#include "kv/session/session.h"
#include "tests/sim/modules.h"

#define P     PRIu64
#define NAMES 5  /* p0 ... p4 */
#define NONE  99 /* no name */

enum kind { REGISTER, ARRIVE, DEREGISTER, GET, AWAIT };
struct phaser_own {
    uint32_t name, parent, mode;
    bool has_phase, ahead, found_before;
    uint64_t phase; /* of an arrival; of a read: as it was seen */
    uint64_t seen;  /* hash of what a read saw */
};
static struct phaser_own *own_of(const struct op *op) { return OP_AS(struct phaser_own, (struct op *)(uintptr_t)op); }

static void phaser_name(uint32_t name, char room[8]) { snprintf(room, 8, name == NONE ? "" : "p%u", name); }
static uint32_t name_number(const char *name) { return name[0] == 'p' ? (uint32_t)strtoul(name + 1, NULL, 10) : NONE; }

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct plan {
    unsigned registered; /* its node, times */
    struct keep_plan keep;
};
struct known {
    struct keep_known session;
    uint64_t state_index[NAMES], phase[NAMES];
    struct {
        uint64_t index, session; /* as it was read last, found, for this session */
    } waits[NAMES];
};

static void read_next(struct sim_turn *turn, struct op *op, enum kind kind) {
    op->kind = kind;
    op->way = OP_READ;
    op->stale = kind == GET && turn_chance(turn, 300);
    if (turn_chance(turn, 600)) op->wait_us = turn_random(turn, 50, 1000) * MS;
}

/* p1 and p2 below p0, p3 below p1; p4 for itself. Now and then somebody says something else. */
static uint32_t parent_next(struct sim_turn *turn, uint32_t name) {
    static const uint32_t usual[NAMES] = {NONE, 0, 0, 1, NONE};
    return turn_chance(turn, 120) ? (uint32_t)turn_random(turn, 0, NAMES - 1) : usual[name];
}

static bool phaser_next(struct sim_turn *turn, struct op *op) {
    static const uint32_t modes[] = {PB__PHASER_MODE__PHASER_SIGNAL_WAIT, PB__PHASER_MODE__PHASER_SIGNAL_WAIT,
                                     PB__PHASER_MODE__PHASER_SIGNAL, PB__PHASER_MODE__PHASER_WAIT};
    struct phaser_own *own = own_of(op);
    uint64_t dice = turn_random(turn, 1, 1000);
    op->module = &sim_phaser;
    op->way = OP_WRITE;
    own->name = (uint32_t)turn_random(turn, 0, NAMES - 1);
    own->parent = NONE;
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
    if (plan->registered < 2 || turn_chance(turn, 10)) { /* without its node, by either name, there is no session */
        catalog_op(op, (turn->client + plan->registered++) % 2 ? node | SIM_CAPITALS : node);
        return true;
    }
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

/* -- bytes: a field that no program knows says which operation it is --------------------------------------------------- */

#define OP_TAG 1000

static ProtobufCMessage *marked(const struct op *op, struct arena *arena, ProtobufCMessage *message) {
    ProtobufCMessageUnknownField *field = arena_zalloc(arena, sizeof *field);
    *field = (ProtobufCMessageUnknownField){
        .tag = OP_TAG, .wire_type = PROTOBUF_C_WIRE_TYPE_64BIT, .len = 8, .data = arena_alloc(arena, 8)};
    memcpy(field->data, &op->id, 8);
    message->unknown_fields = field, message->n_unknown_fields = 1;
    return message;
}

static uint64_t made_by(uint8_t number, const ProtobufCMessage *command) {
    uint64_t op = 0;
    (void)number;
    for (unsigned i = 0; i < command->n_unknown_fields; i++)
        if (command->unknown_fields[i].tag == OP_TAG) memcpy(&op, command->unknown_fields[i].data, 8);
    return op;
}

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
    switch ((enum kind)op->kind) {
        case REGISTER: *number = PHASER_REGISTER; return marked(op, arena, registration(op, arena));
        case ARRIVE: *number = PHASER_ARRIVE; return marked(op, arena, arrival(op, arena));
        default: *number = PHASER_DEREGISTER; return marked(op, arena, departure(op, arena));
    }
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

static uint64_t on(uint64_t sum, uint64_t value) {
    uint64_t all[2] = {sum, value};
    return hash64(all, sizeof all);
}

static uint64_t sum_phaser(uint64_t phase, uint32_t parent, uint64_t registered, uint64_t arrived, uint64_t descendants,
                           uint64_t created) {
    return on(on(on(on(on(phase, parent), registered), arrived), descendants), created);
}
static uint64_t on_member(uint64_t sum, uint64_t session, unsigned mode, bool arrived, uint64_t created) {
    return on(on(on(on(sum, session), mode), arrived), created);
}
static uint64_t on_child(uint64_t sum, uint32_t name, bool signals, bool arrived) {
    return on(on(on(sum, name), signals), arrived);
}
static uint64_t sum_await(uint64_t phase, uint64_t registered, unsigned mode, uint64_t created) {
    return on(on(on(phase, registered), mode), created);
}

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
    uint64_t sum = sum_phaser(phaser->phase, name_number(phaser->parent), phaser->registered, phaser->arrived,
                              phaser->descendants, phaser->create_index);
    for (size_t i = 0; i < state->n_members; i++)
        sum = on_member(sum, session_maker(state->members[i]->session), state->members[i]->mode,
                        state->members[i]->arrived, state->members[i]->create_index);
    for (size_t i = 0; i < state->n_children; i++)
        sum = on_child(sum, name_number(state->children[i]->name), state->children[i]->signals,
                       state->children[i]->arrived);
    own->phase = phaser->phase;
    own->seen = sum;
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

struct member {
    uint64_t session; /* the operation that made it */
    unsigned mode;
    bool arrived;
    uint64_t created;
};
struct phaser {
    bool there;
    uint32_t parent;
    uint64_t phase, created, began; /* began: the phase */
    size_t count;
    struct member *members; /* by session */
};
/* What a read sees, from `index` on. */
struct version {
    uint64_t index, sum, registered;
    struct phaser phaser;
};
struct model {
    struct phaser now[NAMES];
    struct {
        struct version *all;
        size_t count;
    } versions[NAMES];
    struct {
        uint32_t name;
        uint64_t session, index;
    } * left;
    size_t left_count;
};
static struct model *model_of(struct sim *sim) { return sim_model(sim, &sim_phaser); }

static struct phaser phaser_copy(const struct phaser *phaser) {
    struct phaser copy = *phaser;
    copy.members = mem_alloc((phaser->count + 1) * sizeof *copy.members);
    if (phaser->count) memcpy(copy.members, phaser->members, phaser->count * sizeof *copy.members);
    return copy;
}

static void end(struct sim *sim) {
    struct model *model = model_of(sim);
    for (uint32_t name = 0; name < NAMES; name++) {
        for (size_t i = 0; i < model->versions[name].count; i++) free(model->versions[name].all[i].phaser.members);
        free(model->versions[name].all);
        free(model->now[name].members);
    }
    free(model->left);
}

static struct member *member_of(struct phaser *phaser, uint64_t session) {
    for (size_t i = 0; i < phaser->count; i++)
        if (phaser->members[i].session == session) return &phaser->members[i];
    return NULL;
}

/* What follows from who is registered. */
struct tally {
    uint32_t registered, arrived, below;
};
static bool signals(const struct member *member) { return member->mode != PB__PHASER_MODE__PHASER_WAIT; }
static bool is_complete(struct tally tally) { return tally.registered && tally.registered == tally.arrived; }
static bool is_child(const struct model *model, uint32_t child, uint32_t name) {
    return model->now[child].there && model->now[child].parent == name;
}

static struct tally tally_of(const struct model *model, uint32_t name) {
    struct tally tally = {0};
    const struct phaser *phaser = &model->now[name];
    for (size_t i = 0; i < phaser->count; i++) {
        if (!signals(&phaser->members[i])) continue;
        tally.registered++;
        tally.arrived += phaser->members[i].arrived;
    }
    for (uint32_t child = 0; child < NAMES; child++) {
        if (!is_child(model, child, name)) continue;
        struct tally its = tally_of(model, child);
        tally.registered += its.registered > 0;
        tally.arrived += is_complete(its);
        tally.below += 1 + its.below;
    }
    return tally;
}

static uint64_t sum_of(const struct model *model, uint32_t name) {
    const struct phaser *phaser = &model->now[name];
    struct tally tally = tally_of(model, name);
    uint64_t sum = sum_phaser(phaser->phase, phaser->parent, tally.registered, tally.arrived,
                              phaser->parent == NONE ? tally.below : 0, phaser->created);
    for (size_t i = 0; i < phaser->count; i++)
        sum = on_member(sum, phaser->members[i].session, phaser->members[i].mode,
                        phaser->members[i].arrived && signals(&phaser->members[i]), phaser->members[i].created);
    for (uint32_t child = 0; child < NAMES; child++) {
        if (!is_child(model, child, name)) continue;
        struct tally its = tally_of(model, child);
        sum = on_child(sum, child, its.registered > 0, is_complete(its));
    }
    return sum;
}

/* After an entry, or one of its parts. */
static void commit(struct model *model, uint64_t index) {
    for (uint32_t name = 0; name < NAMES; name++) {
        struct phaser *phaser = &model->now[name];
        size_t count = model->versions[name].count;
        struct version *last = count ? &model->versions[name].all[count - 1] : NULL;
        struct version next = {.index = index, .registered = tally_of(model, name).registered};
        next.sum = phaser->there ? sum_of(model, name) : 0;
        if (last ? last->phaser.there == phaser->there && last->sum == next.sum : !phaser->there) continue;
        next.phaser = phaser_copy(phaser);
        if (last && last->index == index) {
            free(last->phaser.members);
            *last = next;
            continue;
        }
        model->versions[name].all =
            mem_realloc(model->versions[name].all, (count + 1) * sizeof *model->versions[name].all);
        model->versions[name].all[model->versions[name].count++] = next;
    }
}

/* -- what commands do ------------------------------------------------------------------------------------------------- */

static uint32_t root_of(const struct model *model, uint32_t name) {
    while (model->now[name].parent != NONE) name = model->now[name].parent;
    return name;
}

static void advance(struct model *model, uint32_t name, uint64_t index) {
    struct phaser *phaser = &model->now[name];
    phaser->phase++, phaser->began = index;
    for (size_t i = 0; i < phaser->count; i++) phaser->members[i].arrived = false;
    for (uint32_t child = 0; child < NAMES; child++)
        if (is_child(model, child, name)) advance(model, child, index);
}

/* `before`: parties of the root that signalled before this. */
static bool advance_if_over(struct model *model, uint32_t root, uint32_t before, uint64_t index) {
    struct tally tally = tally_of(model, root);
    if (!model->now[root].there || !(is_complete(tally) || (before && !tally.registered))) return false;
    advance(model, root, index);
    return true;
}

static void leave(struct model *model, uint32_t name, uint64_t session, uint64_t index) {
    struct phaser *phaser = &model->now[name];
    struct member *member = member_of(phaser, session);
    uint32_t root = root_of(model, name), before = tally_of(model, root).registered;
    size_t at = (size_t)(member - phaser->members);
    memmove(member, member + 1, (--phaser->count - at) * sizeof *member);
    model->left = mem_realloc(model->left, (model->left_count + 1) * sizeof *model->left);
    model->left[model->left_count].name = name;
    model->left[model->left_count].session = session;
    model->left[model->left_count++].index = index;
    while (name != NONE && !model->now[name].count && !tally_of(model, name).below) {
        model->now[name].there = false;
        name = model->now[name].parent;
    }
    advance_if_over(model, root, before, index);
}

static void begin(struct model *model, uint32_t name, uint32_t parent, uint64_t index) {
    struct phaser *phaser = &model->now[name];
    uint64_t phase = parent == NONE ? 0 : model->now[parent].phase;
    *phaser = (struct phaser){
        .there = true, .parent = parent, .phase = phase, .created = index, .began = index, .members = phaser->members};
}

static void join(struct model *model, const struct op *op, uint64_t index) {
    struct phaser *phaser = &model->now[own_of(op)->name];
    phaser->members = mem_realloc(phaser->members, (phaser->count + 1) * sizeof *phaser->members);
    size_t at = phaser->count++;
    for (; at > 0 && phaser->members[at - 1].session > op->owner; at--) phaser->members[at] = phaser->members[at - 1];
    phaser->members[at] = (struct member){.session = op->owner, .mode = own_of(op)->mode, .created = index};
}

static bool is_above(const struct model *model, uint32_t name, uint32_t from) {
    for (; from != NONE; from = model->now[from].there ? model->now[from].parent : NONE)
        if (from == name) return true;
    return false;
}

static struct sim_expected registered(struct sim *sim, const struct sim_applied *applied) {
    struct model *model = model_of(sim);
    const struct phaser_own *own = own_of(applied->op);
    struct phaser *phaser = &model->now[own->name];
    bool there = phaser->there;
    if (own->parent != NONE && (is_above(model, own->name, own->parent) || (there && phaser->parent != own->parent)))
        return expect_error();
    struct member *member = there ? member_of(phaser, applied->op->owner) : NULL;
    if (member ? member->mode != own->mode : !expiring_alive(sim, applied->op->owner)) return expect_error();
    if (!there && own->parent != NONE && !model->now[own->parent].there)
        begin(model, own->parent, NONE, applied->index);
    if (!there) begin(model, own->name, own->parent, applied->index);
    if (!member) join(model, applied->op, applied->index);
    const Pb__PhaserRegistration *answer = (const Pb__PhaserRegistration *)applied->result->message;
    if (!answer || answer->phase != phaser->phase || answer->mode != own->mode ||
        session_maker(answer->session) != applied->op->owner)
        sim_violation(sim, RULE_MODEL, "registration %" P " at %" P " is answered with another one", applied->op->id,
                      applied->index);
    return expect_yes();
}

static void judge_arrival(struct sim *sim, const struct sim_applied *applied, const Pb__PhaserArrival *want) {
    const Pb__PhaserArrival *got = (const Pb__PhaserArrival *)applied->result->message;
    if (!got || got->phase != want->phase || got->now != want->now || got->arrived != want->arrived ||
        got->registered != want->registered || got->advanced != want->advanced)
        sim_violation(sim, RULE_MODEL,
                      "arrival %" P " at %" P " in phase %" P ": %u of %u%s, expected phase %" P ", %u of %u%s",
                      applied->op->id, applied->index, got ? got->phase : 0, got ? got->arrived : 0,
                      got ? got->registered : 0, got && got->advanced ? ", over" : "", want->phase, want->arrived,
                      want->registered, want->advanced ? ", over" : "");
}

static struct sim_expected arrived(struct sim *sim, const struct sim_applied *applied) {
    struct model *model = model_of(sim);
    const struct phaser_own *own = own_of(applied->op);
    const Pb__PhaserArriveCommand *command = (const Pb__PhaserArriveCommand *)applied->command;
    struct phaser *phaser = &model->now[own->name];
    struct member *member = phaser->there ? member_of(phaser, applied->op->owner) : NULL;
    if (!member || !signals(member) || (command->has_phase && command->phase > phaser->phase)) return expect_error();
    Pb__PhaserArrival want = PB__PHASER_ARRIVAL__INIT;
    bool late = command->has_phase && command->phase < phaser->phase;
    want.phase = late ? command->phase : phaser->phase;
    if (!late) member->arrived = true;
    struct tally tally = tally_of(model, own->name);
    want.registered = tally.registered;
    want.arrived = late ? tally.registered : tally.arrived;
    uint32_t root = root_of(model, own->name);
    want.advanced = late || advance_if_over(model, root, 0, applied->index);
    want.now = phaser->phase;
    judge_arrival(sim, applied, &want);
    return expect_yes();
}

static struct sim_expected deregistered(struct sim *sim, const struct sim_applied *applied) {
    struct model *model = model_of(sim);
    uint32_t name = own_of(applied->op)->name;
    if (!model->now[name].there || !member_of(&model->now[name], applied->op->owner)) return expect_no();
    leave(model, name, applied->op->owner, applied->index);
    return expect_yes();
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    if (!applied->op) return expect_any(applied);
    struct sim_expected want = applied->number == PHASER_REGISTER ? registered(sim, applied)
                               : applied->number == PHASER_ARRIVE ? arrived(sim, applied)
                                                                  : deregistered(sim, applied);
    commit(model_of(sim), applied->index);
    return want;
}

static void on_notice(struct sim *sim, const struct sim_notice *notice) {
    struct model *model = model_of(sim);
    if (notice->type != SIM_ENDED || notice->op->module != &sim_session) return;
    for (uint32_t name = 0; name < NAMES; name++) {
        if (!model->now[name].there || !member_of(&model->now[name], notice->op->id)) continue;
        leave(model, name, notice->op->id, notice->index);
        commit(model, notice->index);
    }
}

/* -- reads ------------------------------------------------------------------------------------------------------------ */

static const struct version *version_at(const struct model *model, uint32_t name, uint64_t index) {
    for (size_t i = model->versions[name].count; i > 0; i--)
        if (model->versions[name].all[i - 1].index <= index) return &model->versions[name].all[i - 1];
    return NULL;
}

static void judge(struct sim *sim, const struct op *op, bool found, uint64_t index, uint64_t sum) {
    char name[8];
    phaser_name(own_of(op)->name, name);
    if (op->found != found || op->seen_index != index)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": %s%s as of %" P ", expected%s as of %" P,
                      op->id, op->server + 1, op->index, name, op->found ? "" : " not found", op->seen_index,
                      found ? "" : " not found", index);
    else if (found && own_of(op)->seen != sum)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": %s is not as it should be", op->id,
                      op->server + 1, op->index, name);
}

static uint64_t left_at(const struct model *model, uint32_t name, uint64_t session, uint64_t index) {
    for (size_t i = model->left_count; i > 0; i--)
        if (model->left[i - 1].name == name && model->left[i - 1].session == session &&
            model->left[i - 1].index <= index)
            return model->left[i - 1].index;
    return 0;
}

static void judge_read(struct sim *sim, const struct op *op) {
    struct model *model = model_of(sim);
    uint32_t name = own_of(op)->name;
    const struct version *version = version_at(model, name, op->index);
    bool there = version && version->phaser.there;
    if (op->kind == GET) {
        judge(sim, op, there, version ? version->index : 0, there ? version->sum : 0);
        return;
    }
    struct phaser phaser = there ? version->phaser : (struct phaser){0};
    const struct member *member = there ? member_of(&phaser, op->owner) : NULL;
    if (!member) judge(sim, op, false, left_at(model, name, op->owner, op->index), 0);
    else
        judge(sim, op, true, phaser.began > member->created ? phaser.began : member->created,
              sum_await(phaser.phase, version->registered, member->mode, member->created));
}

static void judge_end(struct sim *sim, struct server *server) {
    (void)sim;
    for (uint32_t name = 0; name < NAMES; name++) {
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
    .model_size = sizeof(struct model),
    .end = end,
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .command = command,
    .made_by = made_by,
    .request = request,
    .seen = seen,
    .check_read = judge_read,
    .apply = apply,
    .on_notice = on_notice,
    .check_end = judge_end,
};
