/* Hazards: their clients protect objects, clear and retire them, wait and look. The model has all protections at each
 * index. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "kv/hazard/hazard.h"
#include "kv/session/session.h"
#include "tests/sim/modules.h"
#include "tests/sim/versions.h"

#define P       PRIu64
#define OBJECTS 2
#define MOST    48 /* protections of one */

enum kind { PROTECT, CLEAR, RETIRE, WAIT, LOOK, LIST };
struct hazard_own {
    uint8_t object;
    bool again;      /* of a retire: with the epoch of the last */
    bool retired;    /* of a wait: what it saw */
    uint8_t waiting; /* likewise */
    uint64_t epoch;  /* of a retire or a wait */
    uint64_t sum;    /* of a look or a list: all that it saw */
};

static void object_name(uint8_t object, char name[8]) { snprintf(name, 8, "o%u", object); }

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct plan {
    unsigned registered; /* times */
    struct keep_plan keep;
};

static void hazard_op(struct op *op, enum kind kind, uint8_t object) {
    op->module = &sim_hazard;
    op->kind = kind;
    if (kind >= WAIT) op->way = OP_READ;
    OP_AS(struct hazard_own, op)->object = object;
}

static bool use_next(struct sim_turn *turn, struct op *op, bool has_session) {
    static const enum kind kinds[] = {PROTECT, PROTECT, CLEAR, CLEAR, RETIRE, RETIRE, WAIT, WAIT, LOOK, LIST};
    enum kind kind = kinds[turn_random(turn, has_session ? 0 : 4, ARRAY_COUNT(kinds) - 1)];
    hazard_op(op, kind, (uint8_t)turn_random(turn, 0, OBJECTS - 1));
    OP_AS(struct hazard_own, op)->again = kind == RETIRE && turn_chance(turn, 500);
    if (kind < WAIT) return true;
    op->stale = turn_chance(turn, 300);
    if (turn_chance(turn, 700)) op->wait_us = turn_random(turn, 50, 1000) * MS;
    return true;
}

static bool generate(struct sim_turn *turn, struct op *op) {
    struct plan *plan = turn->plan;
    uint32_t node = 1 + turn->client % SIM_NODES;
    if (catalog_next(turn, &plan->registered, op)) return true;
    switch (keep_step(turn, &plan->keep, 300, 700)) {
        case KEEP_MAKE: session_op(op, node_spelled(turn, node), plan->keep.ttl_ms, 0); return true;
        case KEEP_RENEW: renew_op(op, &sim_session); return true;
        case KEEP_USE: return use_next(turn, op, true);
        case KEEP_NOTHING: break;
    }
    return turn_chance(turn, 100) && use_next(turn, op, false);
}

struct known {
    struct keep_known keep;
    struct {
        uint64_t epoch, wait_index, look_index; /* epoch: of its last retire, or a moment later */
    } objects[OBJECTS];
    uint64_t list_index;
};

static bool complete(void *data, struct op *op) {
    struct known *known = data;
    struct hazard_own *own = OP_AS(struct hazard_own, op);
    if (op->module == &sim_catalog) return true;
    if (op->module != &sim_hazard || op->kind <= CLEAR) return keep_complete(&known->keep, op);
    if (op->kind == LIST) op->known_index = known->list_index;
    if (op->kind == LOOK) op->known_index = known->objects[own->object].look_index;
    if (op->kind == WAIT) op->known_index = known->objects[own->object].wait_index;
    if (op->known_index == 0) op->wait_us = 0;
    if (op->kind == WAIT || own->again) own->epoch = known->objects[own->object].epoch;
    return own->epoch || (op->kind != WAIT && !own->again);
}

static void learn(void *data, const struct op *op) {
    struct known *known = data;
    const struct hazard_own *own = OP_AS(const struct hazard_own, op);
    if (op->module != &sim_hazard || (op->kind == PROTECT && op->error == CO_NOTFOUND)) keep_learn(&known->keep, op);
    if (op->module != &sim_hazard || op->state != OP_DONE) return;
    if (op->kind == RETIRE && !own->again) known->objects[own->object].epoch = op->index;
    if (op->kind == LIST) known->list_index = op->seen_index;
    if (op->kind == LOOK) known->objects[own->object].look_index = op->seen_index;
    if (op->kind == WAIT) known->objects[own->object].wait_index = op->seen_index;
}

/* -- bytes ------------------------------------------------------------------------------------------------------------ */

static const ProtobufCMessage *protect_command(const struct op *op, struct arena *arena, char *object, char *session) {
    Pb__HazardProtectCommand *command = arena_alloc(arena, sizeof *command);
    Pb__SessionUse *use = arena_alloc(arena, sizeof *use);
    pb__hazard_protect_command__init(command);
    pb__session_use__init(use);
    use->id = session;
    command->session = use, command->object = object;
    op_label(&command->base, op->id, arena);
    return &command->base;
}

static const ProtobufCMessage *clear_command(const struct op *op, struct arena *arena, char *object, char *session) {
    Pb__HazardClearCommand *command = arena_alloc(arena, sizeof *command);
    pb__hazard_clear_command__init(command);
    command->object = object, command->session = session;
    op_label(&command->base, op->id, arena);
    return &command->base;
}

static const ProtobufCMessage *retire_command(const struct op *op, struct arena *arena, char *object) {
    const struct hazard_own *own = OP_AS(const struct hazard_own, op);
    Pb__HazardRetireCommand *command = arena_alloc(arena, sizeof *command);
    pb__hazard_retire_command__init(command);
    command->object = object, command->epoch = own->epoch, command->epoch_given = own->again;
    op_label(&command->base, op->id, arena);
    return &command->base;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    char *object = arena_alloc(arena, 8), *session = arena_alloc(arena, 40);
    object_name(OP_AS(const struct hazard_own, op)->object, object);
    session_name(op->owner, session);
    *number = op->kind == PROTECT ? HAZARD_PROTECT : op->kind == CLEAR ? HAZARD_CLEAR : HAZARD_RETIRE;
    return op->kind == PROTECT ? protect_command(op, arena, object, session)
           : op->kind == CLEAR ? clear_command(op, arena, object, session)
                               : retire_command(op, arena, object);
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    const struct hazard_own *own = OP_AS(const struct hazard_own, op);
    char *object = arena_alloc(arena, 8);
    object_name(own->object, object);
    if (op->kind == LOOK) {
        Pb__HazardRequest *look = arena_alloc(arena, sizeof *look);
        pb__hazard_request__init(look);
        look->object = object;
        *type = &query_hazard;
        return &look->base;
    }
    if (op->kind == LIST) {
        Pb__HazardListRequest *list = arena_alloc(arena, sizeof *list);
        pb__hazard_list_request__init(list);
        *type = &query_hazards;
        return &list->base;
    }
    Pb__HazardRetireRequest *wait = arena_alloc(arena, sizeof *wait);
    pb__hazard_retire_request__init(wait);
    wait->object = object, wait->epoch = own->epoch;
    *type = &query_hazard_retire;
    return &wait->base;
}

static uint64_t sum_on(uint64_t sum, uint64_t a, uint64_t b) {
    uint64_t all[3] = {sum, a, b};
    return hash64(all, sizeof all);
}

static void seen(struct op *op, const struct query_result *result) {
    struct hazard_own *own = OP_AS(struct hazard_own, op);
    own->sum = 0;
    if (op->kind == WAIT) {
        const Pb__HazardRetirement *stands = (const Pb__HazardRetirement *)result->message;
        own->retired = stands->retired, own->waiting = (uint8_t)stands->waiting;
    } else if (op->kind == LIST) {
        const Pb__HazardsResult *all = (const Pb__HazardsResult *)result->message;
        for (size_t i = 0; i < all->n_hazards; i++)
            own->sum = sum_on(sum_on(own->sum, (uint64_t)all->hazards[i]->object[1], all->hazards[i]->count),
                              all->hazards[i]->oldest, 0);
    } else if (result->found) {
        const Pb__HazardState *state = (const Pb__HazardState *)result->message;
        for (size_t i = 0; i < state->n_protections; i++)
            own->sum = sum_on(own->sum, session_maker(state->protections[i]->session), state->protections[i]->epoch);
    }
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

struct version { /* of an object, from `index` on */
    uint64_t index, oldest_since;
    size_t count;
    struct {
        uint64_t session, epoch;
    } protections[MOST]; /* the oldest first */
};
struct model {
    struct story_of_object {
        struct versions versions;
    } objects[OBJECTS];
};
static struct story_of_object *story_of(struct sim *sim, uint8_t object) {
    return &((struct model *)sim_model(sim, &sim_hazard))->objects[object];
}
static const struct version none;

static void end(struct sim *sim) {
    for (uint8_t i = 0; i < OBJECTS; i++) versions_free(&story_of(sim, i)->versions);
}

static const struct version *version_at(struct sim *sim, uint8_t object, uint64_t index) {
    return versions_at(&story_of(sim, object)->versions, sizeof none, index, &none);
}

static struct version *version_next(struct sim *sim, uint8_t object, uint64_t index) {
    return versions_next(&story_of(sim, object)->versions, sizeof none, index, &none);
}

/* Its place among the protections; their number: it does not protect. */
static size_t place_of(const struct version *version, uint64_t session) {
    size_t i = 0;
    while (i < version->count && version->protections[i].session != session) i++;
    return i;
}

/* So many are older. */
static size_t older_than(const struct version *version, uint64_t epoch) {
    size_t count = 0;
    for (size_t i = 0; i < version->count; i++) count += version->protections[i].epoch < epoch;
    return count;
}

static void goes(struct sim *sim, uint8_t object, uint64_t session, uint64_t index) {
    struct version *next = version_next(sim, object, index);
    size_t at = place_of(next, session);
    CHECK(at < next->count);
    memmove(&next->protections[at], &next->protections[at + 1], (--next->count - at) * sizeof next->protections[0]);
    if (at == 0) next->oldest_since = index;
}

static struct sim_expected protect(struct sim *sim, const struct sim_applied *applied) {
    const struct op *op = applied->op;
    uint8_t object = OP_AS(const struct hazard_own, op)->object;
    const Pb__HazardProtection *answer = (const Pb__HazardProtection *)applied->result->message;
    if (!expiring_alive(sim, op->owner)) return expect_error();
    const struct version *now = version_at(sim, object, applied->index);
    if (place_of(now, op->owner) == now->count) {
        struct version *next = version_next(sim, object, applied->index);
        CHECK(next->count < MOST);
        if (next->count == 0) next->oldest_since = applied->index;
        next->protections[next->count].session = op->owner;
        next->protections[next->count++].epoch = applied->index;
        now = next;
    }
    uint64_t epoch = now->protections[place_of(now, op->owner)].epoch;
    if (!answer || answer->epoch != epoch || session_maker(answer->session) != op->owner)
        sim_violation(sim, RULE_MODEL, "protect %" P " at %" P " is answered with epoch %" P ", not %" P, op->id,
                      applied->index, answer ? answer->epoch : 0, epoch);
    return expect_yes();
}

static struct sim_expected clear(struct sim *sim, const struct sim_applied *applied) {
    uint8_t object = OP_AS(const struct hazard_own, applied->op)->object;
    const struct version *now = version_at(sim, object, applied->index);
    if (place_of(now, applied->op->owner) == now->count) return expect_error();
    goes(sim, object, applied->op->owner, applied->index);
    return expect_yes();
}

/* Never while an older protection lives. */
static struct sim_expected retire(struct sim *sim, const struct sim_applied *applied) {
    const struct hazard_own *own = OP_AS(const struct hazard_own, applied->op);
    const Pb__HazardRetirement *answer = (const Pb__HazardRetirement *)applied->result->message;
    uint64_t epoch = own->again ? own->epoch : applied->index;
    size_t older = older_than(version_at(sim, own->object, applied->index), epoch);
    if (!answer || answer->retired != (older == 0) || answer->waiting != older || answer->epoch != epoch)
        sim_violation(sim, RULE_MODEL, "retire %" P " at %" P " for epoch %" P ": %s, %zu protections are older",
                      applied->op->id, applied->index, epoch, answer && answer->retired ? "retired" : "waits", older);
    return expect_yes();
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    if (!applied->op) return expect_any(applied);
    return applied->number == HAZARD_PROTECT ? protect(sim, applied)
           : applied->number == HAZARD_CLEAR ? clear(sim, applied)
                                             : retire(sim, applied);
}

static void on_notice(struct sim *sim, const struct sim_notice *notice) {
    for (uint8_t i = 0; notice->type == SIM_ENDED && i < OBJECTS; i++) {
        const struct version *now = version_at(sim, i, notice->index);
        if (place_of(now, notice->op->id) != now->count) goes(sim, i, notice->op->id, notice->index);
    }
}

/* -- what is read ----------------------------------------------------------------------------------------------------- */

static void judge_wait(struct sim *sim, const struct op *op) {
    const struct hazard_own *own = OP_AS(const struct hazard_own, op);
    const struct version *version = version_at(sim, own->object, op->index);
    size_t older = older_than(version, own->epoch);
    if (own->retired != (older == 0) || own->waiting != older || op->seen_index != version->oldest_since)
        sim_violation(sim, RULE_MODEL,
                      "wait %" P " at s%u, applied %" P ", for epoch %" P ": %u older at %" P "%s, expected %zu at %" P,
                      op->id, op->server + 1, op->index, own->epoch, own->waiting, op->seen_index,
                      own->retired ? ", retired" : "", older, version->oldest_since);
}

static void judge_read(struct sim *sim, const struct op *op) {
    const struct hazard_own *own = OP_AS(const struct hazard_own, op);
    uint64_t sum = 0, index = 0;
    bool found = op->kind == LIST;
    if (op->kind == WAIT) {
        judge_wait(sim, op);
        return;
    }
    for (uint8_t i = 0; i < OBJECTS; i++) {
        const struct version *version = version_at(sim, i, op->index);
        if (op->kind == LOOK && i != own->object) continue;
        if (version->index > index) index = version->index;
        if (version->count == 0) continue;
        found = true;
        if (op->kind == LIST)
            sum = sum_on(sum_on(sum, '0' + (uint64_t)i, version->count), version->protections[0].epoch, 0);
        for (size_t j = 0; op->kind == LOOK && j < version->count; j++)
            sum = sum_on(sum, version->protections[j].session, version->protections[j].epoch);
    }
    if (op->found != found || op->seen_index != index || own->sum != sum)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": hazards at %" P "%s, expected %" P "%s%s",
                      op->id, op->server + 1, op->index, op->seen_index, op->found ? "" : " (none)", index,
                      found ? "" : " (none)", own->sum == sum ? "" : ", and other protections");
}

/* All sessions have ended: nothing is protected. */
static void judge_end(struct sim *sim, struct server *server) {
    for (uint8_t i = 0; i < OBJECTS; i++) {
        struct op op = {0};
        hazard_op(&op, LOOK, i);
        op_judge(server, &op);
        if (op.found) sim_violation(sim, RULE_MODEL, "at the end object o%u is protected", i);
    }
}

const struct sim_module sim_hazard = {
    .name = "hazard",
    .module = &hazard_module,
    .pace = {.clients_least = 1, .clients_most = 3, .think_least_ms = 10, .think_most_ms = 80, .open_most = 2},
    .plan_size = sizeof(struct plan),
    .known_size = sizeof(struct known),
    .model_size = sizeof(struct model),
    .end = end,
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .command = command,
    .made_by = op_labelled,
    .request = request,
    .seen = seen,
    .check_read = judge_read,
    .apply = apply,
    .on_notice = on_notice,
    .check_end = judge_end,
};
