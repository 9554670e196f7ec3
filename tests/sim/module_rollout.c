/* Rollouts: operators publish versions, give them to everybody or in stages, with steps and guards; callers ask and wait for
 * what they get, and acknowledge it. The model has, for each index, who gets which version since when. Stages here are by
 * percentage alone, so that whoever is woken has got another version. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "kv/rollout/rollout.h"
#include "tests/sim/modules.h"
#include "tests/sim/versions.h"

#define P        PRIu64
#define VERSIONS 3
#define CALLERS  5
#define STEPS    3

static char name[] = "r";
static const uint32_t percents[STEPS] = {20, 60, 90};

enum kind { PUBLISH, FLIP, STAGE, PROMOTE, ROLLBACK, PAUSE, RESUME, DELETE, ACK, ASK };
struct rollout_own {
    uint8_t version, caller, percent;
    bool steps, guard, back; /* of a stage; back: its guard rolls back */
    bool ok;                 /* of an acknowledgement */
    uint16_t hold_ms;
    int8_t seen; /* the version that it was given; -1: none */
};
static const struct rollout_own *own_of(const struct op *op) { return OP_AS(const struct rollout_own, op); }

/* -- clients ---------------------------------------------------------------------------------------------------------- */

static bool generate(struct sim_turn *turn, struct op *op) {
    static const enum kind kinds[] = {PUBLISH,  FLIP,  STAGE,  STAGE,  STAGE, PROMOTE,
                                      ROLLBACK, PAUSE, RESUME, RESUME, DELETE};
    struct rollout_own *own = OP_AS(struct rollout_own, op);
    op->module = &sim_rollout;
    own->version = (uint8_t)turn_random(turn, 0, VERSIONS - 1);
    own->caller = (uint8_t)turn_random(turn, 0, CALLERS - 1);
    if (turn_chance(turn, 700)) {
        op->kind = turn_chance(turn, 600) ? ACK : ASK;
        own->ok = turn_chance(turn, 300);
        if (op->kind == ACK) return true;
        op->way = OP_READ;
        op->stale = turn_chance(turn, 300);
        if (turn_chance(turn, 700)) op->wait_us = turn_random(turn, 50, 1500) * MS;
        return true;
    }
    op->kind = kinds[turn_random(turn, 0, ARRAY_COUNT(kinds) - 1)];
    own->percent = (uint8_t)turn_random(turn, 0, 99);
    own->steps = turn_chance(turn, 600), own->guard = turn_chance(turn, 700), own->back = turn_chance(turn, 500);
    own->hold_ms = (uint16_t)turn_random(turn, 20, 300);
    return true;
}

struct known {
    uint64_t index[CALLERS];
};

static bool complete(void *data, struct op *op) {
    if (op->kind != ASK) return true;
    op->known_index = ((struct known *)data)->index[own_of(op)->caller];
    if (op->known_index == 0) op->wait_us = 0;
    return true;
}

static void learn(void *data, const struct op *op) {
    if (op->kind == ASK && op->state == OP_DONE) ((struct known *)data)->index[own_of(op)->caller] = op->seen_index;
}

/* -- bytes ------------------------------------------------------------------------------------------------------------ */

static char *version_name(uint8_t version, struct arena *arena) { return arena_printf(arena, "v%u", version); }
static char *caller_name(uint8_t caller, struct arena *arena) { return arena_printf(arena, "caller-%u", caller); }

static const ProtobufCMessage *publish_command(const struct op *op, struct arena *arena) {
    Pb__RolloutPublishCommand *command = arena_alloc(arena, sizeof *command);
    pb__rollout_publish_command__init(command);
    command->name = name, command->version = version_name(own_of(op)->version, arena);
    command->document.data = (uint8_t *)command->version, command->document.len = strlen(command->version);
    op_label(&command->base, op->id, arena);
    return &command->base;
}

static void steps_fill(Pb__RolloutSetCommand *command, uint16_t hold_ms, struct arena *arena) {
    command->steps = arena_alloc(arena, STEPS * sizeof *command->steps);
    for (command->n_steps = 0; command->n_steps < STEPS; command->n_steps++) {
        Pb__RolloutStep *step = arena_alloc(arena, sizeof *step);
        pb__rollout_step__init(step);
        step->percent = percents[command->n_steps], step->hold_ns = hold_ms * INT64_C(1000000);
        command->steps[command->n_steps] = step;
    }
}

static const ProtobufCMessage *set_command(const struct op *op, struct arena *arena) {
    const struct rollout_own *own = own_of(op);
    Pb__RolloutSetCommand *command = arena_alloc(arena, sizeof *command);
    pb__rollout_set_command__init(command);
    command->name = name, command->version = version_name(own->version, arena);
    op_label(&command->base, op->id, arena);
    if (op->kind == FLIP) return &command->base;
    if (own->steps) steps_fill(command, own->hold_ms, arena);
    else command->percent = own->percent, command->percent_given = true;
    if (!own->guard) return &command->base;
    command->guard = arena_alloc(arena, sizeof *command->guard);
    pb__rollout_guard__init(command->guard);
    command->guard->max_failing = 0.4, command->guard->min_samples = 1;
    if (own->back) command->guard->on_fail = PB__ROLLOUT_ON_FAIL__ROLLOUT_ON_FAIL_ROLLBACK;
    return &command->base;
}

static const ProtobufCMessage *ack_command(const struct op *op, struct arena *arena) {
    Pb__RolloutAckCommand *command = arena_alloc(arena, sizeof *command);
    pb__rollout_ack_command__init(command);
    command->name = name, command->version = version_name(own_of(op)->version, arena);
    command->id = caller_name(own_of(op)->caller, arena);
    if (!own_of(op)->ok) command->ok = PB__ROLLOUT_VERDICT__ROLLOUT_VERDICT_FALSE;
    op_label(&command->base, op->id, arena);
    return &command->base;
}

/* With its keys: what comes after it takes nothing over. */
static const ProtobufCMessage *delete_command(const struct op *op, struct arena *arena) {
    Pb__RolloutDeleteCommand *command = arena_alloc(arena, sizeof *command);
    pb__rollout_delete_command__init(command);
    command->name = name, command->with_keys = true;
    op_label(&command->base, op->id, arena);
    return &command->base;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    static const uint8_t numbers[] = {ROLLOUT_PUBLISH, ROLLOUT_SET,      ROLLOUT_SET,
                                      ROLLOUT_PROMOTE, ROLLOUT_ROLLBACK, ROLLOUT_PAUSE,
                                      ROLLOUT_RESUME,  ROLLOUT_DELETE,   ROLLOUT_ACK};
    *number = numbers[op->kind];
    if (op->kind == PUBLISH) return publish_command(op, arena);
    if (op->kind == ACK) return ack_command(op, arena);
    if (op->kind == DELETE) return delete_command(op, arena);
    if (op->kind <= STAGE) return set_command(op, arena);
    Pb__RolloutChangeCommand *change = arena_alloc(arena, sizeof *change);
    pb__rollout_change_command__init(change);
    change->name = name;
    op_label(&change->base, op->id, arena);
    return &change->base;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    Pb__RolloutCaller *caller = arena_alloc(arena, sizeof *caller);
    pb__rollout_caller__init(caller);
    caller->name = name, caller->id = caller_name(own_of(op)->caller, arena);
    rollout_caller_keys(caller, arena);
    *type = &query_rollout;
    return &caller->base;
}

static void seen(struct op *op, const struct query_result *result) {
    const Pb__RolloutResolution *found = (const Pb__RolloutResolution *)result->message;
    OP_AS(struct rollout_own, op)->seen = result->found ? (int8_t)(found->version[1] - '0') : -1;
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

struct version { /* of the rollout, from `index` on */
    uint64_t index;
    uint64_t gone;          /* where a rollout with a current version was deleted last */
    int8_t current, staged; /* -1: none */
    uint8_t published;      /* bits */
    uint8_t before_count, before[ROLLOUT_BEFORE_MOST];
    uint32_t buckets;
    bool steps, paused, guard, back, spent;
    uint8_t position;
    uint16_t hold_ms;
    uint64_t began, armed, armed_us; /* armed 0: no hold counts */
    struct {
        int8_t version; /* that it gets */
        uint64_t since;
        int8_t said; /* the version that it has acknowledged last; -1: none */
        bool ok;
        uint64_t epoch;
    } callers[CALLERS];
};
static const struct version none = {
    .current = -1, .staged = -1, .callers = {[0 ... CALLERS - 1] = {.version = -1, .said = -1}}};

struct model {
    struct versions versions;
    uint32_t buckets[CALLERS];
};
static struct model *model_of(struct sim *sim) { return sim_model(sim, &sim_rollout); }

static void end(struct sim *sim) { versions_free(&model_of(sim)->versions); }

static const struct version *version_at(struct sim *sim, uint64_t index) {
    return versions_at(&model_of(sim)->versions, sizeof none, index, &none);
}

static uint32_t bucket_of(struct sim *sim, uint8_t caller) {
    uint32_t *bucket = &model_of(sim)->buckets[caller];
    char id[16];
    snprintf(id, sizeof id, "caller-%u", caller);
    if (*bucket == 0) *bucket = 1 + rollout_bucket(slice_text(name), slice_text(id));
    return *bucket - 1;
}

/* Decides the version that each caller gets from now on. */
static void settle(struct sim *sim, struct version *now) {
    for (uint8_t i = 0; i < CALLERS; i++) {
        int8_t version = now->staged >= 0 && bucket_of(sim, i) < now->buckets ? now->staged : now->current;
        if (version == now->callers[i].version) continue;
        now->callers[i].version = version, now->callers[i].since = now->index;
    }
}

static void arm(struct sim *sim, struct version *now) {
    now->armed = now->steps && !now->paused ? now->index : 0;
    now->armed_us = sim->now_us;
}

static void stage_ends(struct version *now) {
    now->staged = -1, now->buckets = 0, now->armed = 0;
    now->steps = now->paused = now->guard = now->spent = false;
}

static void becomes_current(struct version *now, int8_t version) {
    if (now->current >= 0 && now->current != version) {
        if (now->before_count == ROLLOUT_BEFORE_MOST) memmove(now->before, now->before + 1, --now->before_count);
        now->before[now->before_count++] = (uint8_t)now->current;
    }
    now->current = version;
    stage_ends(now);
}

static struct sim_expected stage_begins(struct sim *sim, struct version *now, const struct rollout_own *own) {
    if (now->current < 0 || now->current == own->version) return expect_error();
    uint64_t began = now->staged == own->version ? now->began : now->index;
    stage_ends(now);
    now->staged = (int8_t)own->version, now->began = began;
    now->steps = own->steps, now->position = 0, now->hold_ms = own->hold_ms;
    now->buckets = 100 * (own->steps ? percents[0] : own->percent);
    now->guard = own->guard, now->back = own->back;
    arm(sim, now);
    return expect_yes();
}

static struct sim_expected acknowledged(struct version *now, const struct rollout_own *own) {
    if (!(now->published >> own->version & 1)) return expect_error();
    now->callers[own->caller].said = (int8_t)own->version, now->callers[own->caller].ok = own->ok;
    now->callers[own->caller].epoch = now->staged == own->version ? now->began : 0;
    return expect_yes();
}

static struct sim_expected rolled_back(struct version *now) {
    if (now->staged < 0 && now->before_count == 0) return expect_error();
    if (now->staged < 0) now->current = (int8_t)now->before[--now->before_count];
    stage_ends(now);
    return expect_yes();
}

static struct sim_expected paused(struct sim *sim, struct version *now, bool pause) {
    if (now->staged < 0 || now->paused == pause) return expect_error();
    now->paused = pause;
    if (!pause) now->spent = false;
    arm(sim, now);
    return expect_yes();
}

static struct sim_expected deleted(struct version *now) {
    if (now->staged >= 0) return expect_error();
    if (now->current >= 0) now->gone = now->index;
    now->current = -1, now->published = now->before_count = 0;
    for (uint8_t i = 0; i < CALLERS; i++) now->callers[i].said = -1;
    return expect_yes();
}

static struct sim_expected asked_for(struct sim *sim, const struct op *op, struct version *now) {
    const struct rollout_own *own = own_of(op);
    bool there = now->published >> own->version & 1;
    switch ((enum kind)op->kind) {
        case PUBLISH: now->published |= (uint8_t)(1 << own->version); return expect_yes();
        case FLIP:
            if (!there) return expect_error();
            becomes_current(now, (int8_t)own->version);
            return expect_yes();
        case STAGE: return there ? stage_begins(sim, now, own) : expect_error();
        case PROMOTE:
            if (now->staged < 0) return expect_error();
            becomes_current(now, now->staged);
            return expect_yes();
        case ROLLBACK: return rolled_back(now);
        case PAUSE: return paused(sim, now, true);
        case RESUME: return paused(sim, now, false);
        case DELETE: return deleted(now);
        default: return acknowledged(now, own);
    }
}

/* -- what follows by itself ------------------------------------------------------------------------------------------- */

/* True: the guard has acted. */
static bool judged(struct version *now, bool hold_over) {
    unsigned samples = 0, refused = 0;
    if (now->staged < 0 || !now->guard || now->spent) return false;
    for (uint8_t i = 0; i < CALLERS; i++) {
        if (now->callers[i].said != now->staged || now->callers[i].epoch != now->began) continue;
        samples++, refused += !now->callers[i].ok;
    }
    bool fails = samples && refused > 0.4 * samples;
    if (fails && now->back) {
        stage_ends(now);
        return true;
    }
    if (!fails && !(hold_over && samples == 0)) return false;
    now->paused = now->spent = true, now->armed = 0;
    return true;
}

static struct sim_expected advanced(struct sim *sim, struct version *now, const Pb__RolloutDueCommand *command) {
    if (!now->armed || now->armed != command->index) return expect_no();
    if (now->armed_us + period_us(sim, now->hold_ms) > sim->now_us)
        sim_violation(sim, RULE_LEASE, "the hold of %u ms from %" P " is over at %" P " after %" P " ms", now->hold_ms,
                      now->armed, now->index, (sim->now_us - now->armed_us) / MS);
    if (judged(now, true)) return expect_yes();
    if (now->position + 1 == STEPS) {
        becomes_current(now, now->staged);
    } else {
        now->buckets = 100 * percents[++now->position];
        arm(sim, now);
    }
    return expect_yes();
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    bool proposed = !applied->op, other_term = proposed && applied->result->error;
    if (other_term || (proposed && applied->number < ROLLOUT_ADVANCE)) return expect_any(applied);
    struct version next = *version_at(sim, applied->index);
    struct sim_expected want;
    next.index = applied->index;
    if (!proposed) want = asked_for(sim, applied->op, &next);
    else if (applied->number == ROLLOUT_ADVANCE)
        want = advanced(sim, &next, (const Pb__RolloutDueCommand *)applied->command);
    else want = judged(&next, false) ? expect_yes() : expect_no();
    settle(sim, &next);
    if (!want.error) versions_add(&model_of(sim)->versions, sizeof next, &next);
    return want;
}

/* -- what is read ----------------------------------------------------------------------------------------------------- */

static void judge_read(struct sim *sim, const struct op *op) {
    const struct rollout_own *own = own_of(op);
    const struct version *version = version_at(sim, op->index);
    int8_t wanted = version->callers[own->caller].version;
    uint64_t since = wanted >= 0 ? version->callers[own->caller].since : version->gone;
    if (own->seen != wanted || op->seen_index != since)
        sim_violation(sim, RULE_MODEL,
                      "read %" P " at s%u, applied %" P ": caller %u gets v%d since %" P ", expected v%d since %" P,
                      op->id, op->server + 1, op->index, own->caller, own->seen, op->seen_index, wanted, since);
}

static void judge_end(struct sim *sim, struct server *server) {
    (void)sim;
    for (uint8_t i = 0; i < CALLERS; i++) {
        struct op op = {.module = &sim_rollout, .kind = ASK, .way = OP_READ};
        OP_AS(struct rollout_own, &op)->caller = i;
        op_judge(server, &op);
    }
}

/* No hold is forgotten. */
static bool over(struct sim *sim) { return !version_at(sim, UINT64_MAX)->armed; }

const struct sim_module sim_rollout = {
    .name = "rollout",
    .module = &rollout_module,
    .pace = {.clients_least = 1, .clients_most = 3, .think_least_ms = 10, .think_most_ms = 60, .open_most = 4},
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
    .over = over,
    .over_ms = STEPS * 500 + 1000,
    .check_end = judge_end,
};
