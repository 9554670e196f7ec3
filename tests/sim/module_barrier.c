/* Barriers: their clients have a session each, enter, leave, wait and look. The model has every session's place as a
 * person would say it, at each index. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "kv/barrier/barrier.h"
#include "kv/session/session.h"
#include "tests/sim/modules.h"
#include "tests/sim/versions.h"

#define P        PRIu64
#define BARRIERS 3
#define PLACES   48 /* sessions that are at one barrier */

enum kind { ENTER, LEAVE, WAIT, LOOK, LIST };
struct barrier_own {
    uint8_t barrier, parties;
    bool doubled, after_given, leave;
    bool released, gone;    /* of a wait: what it saw */
    uint8_t entered;        /* likewise */
    uint64_t after;         /* of an enter */
    uint64_t round;         /* of a wait: which one; of a look: the one that gathers */
    uint64_t working, last; /* of a look */
    uint64_t sum;           /* of a look or a list: all that it saw */
};

static void barrier_name(uint8_t barrier, char name[8]) { snprintf(name, 8, "b%u", barrier); }

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct plan {
    unsigned registered; /* times */
    struct keep_plan keep;
};

static void look_op(struct op *op, enum kind kind, uint8_t barrier) {
    op->module = &sim_barrier;
    op->kind = kind, op->way = OP_READ;
    OP_AS(struct barrier_own, op)->barrier = barrier;
}

static uint8_t parties_of(uint8_t barrier) { return barrier == 2 ? 3 : 2; } /* mostly */

static bool look_next(struct sim_turn *turn, struct op *op, enum kind kind) {
    struct barrier_own *own = OP_AS(struct barrier_own, op);
    look_op(op, kind, (uint8_t)turn_random(turn, 0, BARRIERS - 1));
    own->leave = kind == WAIT && turn_chance(turn, 300);
    own->parties = parties_of(own->barrier);
    op->stale = turn_chance(turn, 300);
    if (turn_chance(turn, 600)) op->wait_us = turn_random(turn, 50, 1000) * MS;
    return true;
}

static bool use_next(struct sim_turn *turn, struct op *op) {
    struct barrier_own *own = OP_AS(struct barrier_own, op);
    if (turn_chance(turn, 250)) return look_next(turn, op, WAIT);
    if (turn_chance(turn, 150)) return look_next(turn, op, turn_chance(turn, 700) ? LOOK : LIST);
    op->module = &sim_barrier;
    op->kind = turn_chance(turn, 650) ? ENTER : LEAVE;
    own->barrier = (uint8_t)turn_random(turn, 0, BARRIERS - 1);
    own->parties = parties_of(own->barrier), own->doubled = own->barrier == 1;
    if (turn_chance(turn, 60)) own->parties = (uint8_t)turn_random(turn, 1, 3);
    if (turn_chance(turn, 60)) own->doubled = !own->doubled;
    own->after_given = turn_chance(turn, 500);
    return true;
}

static bool generate(struct sim_turn *turn, struct op *op) {
    struct plan *plan = turn->plan;
    uint32_t node = 1 + turn->client % SIM_NODES;
    if (catalog_next(turn, &plan->registered, op)) return true;
    switch (keep_step(turn, &plan->keep, 300, 700)) {
        case KEEP_MAKE: session_op(op, node_spelled(turn, node), plan->keep.ttl_ms, 0); return true;
        case KEEP_RENEW: renew_op(op, &sim_session); return true;
        case KEEP_USE: return use_next(turn, op);
        case KEEP_NOTHING: break;
    }
    return turn_chance(turn, 50) && look_next(turn, op, LOOK);
}

struct known {
    struct keep_known keep;
    struct {
        uint64_t gathering, working, last, look_index;
        uint64_t waiter, wait_index; /* of the session that waited last */
    } barriers[BARRIERS];
    uint64_t list_index;
};

static bool complete(void *data, struct op *op) {
    struct known *known = data;
    struct barrier_own *own = OP_AS(struct barrier_own, op);
    if (op->module == &sim_catalog) return true;
    if (op->module == &sim_barrier && (op->kind == LOOK || op->kind == LIST)) {
        op->known_index = op->kind == LIST ? known->list_index : known->barriers[own->barrier].look_index;
    } else {
        if (!keep_complete(&known->keep, op)) return false;
        if (op->module != &sim_barrier) return true;
        own->after = own->after_given ? known->barriers[own->barrier].last : 0;
        if (op->kind != WAIT) return true;
        own->round = own->leave ? known->barriers[own->barrier].working : known->barriers[own->barrier].gathering;
        if (known->barriers[own->barrier].waiter == op->owner)
            op->known_index = known->barriers[own->barrier].wait_index;
    }
    if (op->known_index == 0) op->wait_us = 0;
    return true;
}

static void learn(void *data, const struct op *op) {
    struct known *known = data;
    const struct barrier_own *own = OP_AS(const struct barrier_own, op);
    if (op->module != &sim_barrier || (op->kind == ENTER && op->error == CO_NOTFOUND)) keep_learn(&known->keep, op);
    if (op->module != &sim_barrier || op->way != OP_READ || op->state != OP_DONE) return;
    if (op->kind == LIST) {
        known->list_index = op->seen_index;
    } else if (op->kind == WAIT) {
        known->barriers[own->barrier].waiter = op->owner;
        known->barriers[own->barrier].wait_index = op->seen_index;
    } else {
        known->barriers[own->barrier].look_index = op->seen_index;
        known->barriers[own->barrier].gathering = own->round, known->barriers[own->barrier].working = own->working;
        known->barriers[own->barrier].last = own->last;
    }
}

/* -- bytes ------------------------------------------------------------------------------------------------------------ */

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    const struct barrier_own *own = OP_AS(const struct barrier_own, op);
    char *name = arena_alloc(arena, 8), *session = arena_alloc(arena, 40);
    barrier_name(own->barrier, name);
    session_name(op->owner, session);
    if (op->kind == LEAVE) {
        Pb__BarrierLeaveCommand *command = arena_alloc(arena, sizeof *command);
        pb__barrier_leave_command__init(command);
        command->name = name, command->session = session;
        op_label(&command->base, op->id, arena);
        *number = BARRIER_LEAVE;
        return &command->base;
    }
    Pb__BarrierEnterCommand *command = arena_alloc(arena, sizeof *command);
    Pb__SessionUse *use = arena_alloc(arena, sizeof *use);
    pb__barrier_enter_command__init(command);
    pb__session_use__init(use);
    use->id = session;
    command->session = use, command->name = name;
    command->parties = own->parties, command->doubled = own->doubled;
    command->after = own->after, command->after_given = own->after_given;
    op_label(&command->base, op->id, arena);
    *number = BARRIER_ENTER;
    return &command->base;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    const struct barrier_own *own = OP_AS(const struct barrier_own, op);
    char *name = arena_alloc(arena, 8), session[40], *room = arena_alloc(arena, BARRIER_WHO_MOST);
    barrier_name(own->barrier, name);
    if (op->kind == LOOK) {
        Pb__BarrierRequest *look = arena_alloc(arena, sizeof *look);
        pb__barrier_request__init(look);
        look->name = name;
        *type = &query_barrier;
        return &look->base;
    }
    if (op->kind == LIST) {
        Pb__BarrierListRequest *list = arena_alloc(arena, sizeof *list);
        pb__barrier_list_request__init(list);
        *type = &query_barriers;
        return &list->base;
    }
    Pb__BarrierWaitRequest *wait = arena_alloc(arena, sizeof *wait);
    pb__barrier_wait_request__init(wait);
    session_name(op->owner, session);
    struct slice who = barrier_who(slice_text(name), slice_text(session), room);
    wait->who = (ProtobufCBinaryData){who.size, (uint8_t *)(uintptr_t)who.data};
    wait->round = own->round, wait->parties = own->parties, wait->leave = own->leave;
    *type = &query_barrier_wait;
    return &wait->base;
}

static uint64_t sum_on(uint64_t sum, uint64_t a, uint64_t b, uint64_t c) {
    uint64_t all[4] = {sum, a, b, c};
    return hash64(all, sizeof all);
}

static uint64_t state_sum(uint64_t sum, const Pb__BarrierState *state) {
    sum = sum_on(sum, state->round, state->round ? state->parties : 0, state->doubled);
    for (size_t i = 0; i < state->n_entered; i++)
        sum = sum_on(sum, session_maker(state->entered[i]->session), state->entered[i]->index, 0);
    sum = sum_on(sum, state->working_round, state->released_round, 0);
    for (size_t i = 0; i < state->n_working; i++)
        sum = sum_on(sum, session_maker(state->working[i]->session), state->working[i]->index, 1);
    return sum;
}

static void seen(struct op *op, const struct query_result *result) {
    struct barrier_own *own = OP_AS(struct barrier_own, op);
    own->sum = 0;
    if (op->kind == WAIT) {
        const Pb__BarrierAnswer *answer = (const Pb__BarrierAnswer *)result->message;
        own->released = answer->released, own->gone = answer->gone, own->entered = (uint8_t)answer->entered;
    } else if (op->kind == LIST) {
        const Pb__BarriersResult *all = (const Pb__BarriersResult *)result->message;
        for (size_t i = 0; i < all->n_barriers; i++)
            own->sum = state_sum(sum_on(own->sum, (uint64_t)all->barriers[i]->name[1], 0, 0), all->barriers[i]);
    } else {
        const Pb__BarrierState *state = (const Pb__BarrierState *)result->message;
        own->round = result->found ? state->round : 0, own->working = result->found ? state->working_round : 0;
        own->last = result->found ? state->released_round : 0;
        if (result->found) own->sum = state_sum(0, state);
    }
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

enum standing { WAITING, RELEASED, INSIDE, LEFT, OVER, GONE };
struct place {
    uint64_t session, round, index, since;
    uint32_t parties;
    enum standing standing;
};
struct version { /* of a barrier, from `index` on */
    uint64_t index;
    uint64_t gathering, working, last; /* rounds; 0: none */
    uint32_t parties;                  /* of what gathers */
    bool doubled;
    size_t count;
    struct place places[PLACES]; /* in the order in which they entered */
};
struct model {
    struct story_of_barrier {
        struct versions versions;
        struct {
            uint64_t session, index;
        } * gone; /* sessions that were at it and are not, in the order of indexes */
        size_t gone_count, gone_capacity;
    } barriers[BARRIERS];
};
static struct story_of_barrier *story_of(struct sim *sim, uint8_t barrier) {
    return &((struct model *)sim_model(sim, &sim_barrier))->barriers[barrier];
}
static const struct version none;

static void end(struct sim *sim) {
    for (uint8_t i = 0; i < BARRIERS; i++) versions_free(&story_of(sim, i)->versions), free(story_of(sim, i)->gone);
}

static const struct version *version_at(struct sim *sim, uint8_t barrier, uint64_t index) {
    return versions_at(&story_of(sim, barrier)->versions, sizeof none, index, &none);
}

static struct version *version_next(struct sim *sim, uint8_t barrier, uint64_t index) {
    return versions_next(&story_of(sim, barrier)->versions, sizeof none, index, &none);
}

static struct place *place_of(const struct version *version, uint64_t session) {
    for (size_t i = 0; i < version->count; i++)
        if (version->places[i].session == session) return (struct place *)(uintptr_t)&version->places[i];
    return NULL;
}

static uint32_t count_of(const struct version *version, enum standing standing) {
    uint32_t count = 0;
    for (size_t i = 0; i < version->count; i++) count += version->places[i].standing == standing;
    return count;
}

static void move_all(struct version *version, enum standing from, enum standing to) {
    for (size_t i = 0; i < version->count; i++)
        if (version->places[i].standing == from)
            version->places[i].standing = to, version->places[i].since = version->index;
}

/* Ends the gathering or the work when the states of all parties allow it. */
static void settle(struct version *version) {
    if (count_of(version, WAITING) == 0) version->gathering = 0;
    if (version->working && count_of(version, INSIDE) == 0) {
        move_all(version, LEFT, OVER);
        version->working = 0;
    }
    if (!version->gathering || version->working || count_of(version, WAITING) < version->parties) return;
    move_all(version, WAITING, version->doubled ? INSIDE : RELEASED);
    version->last = version->gathering;
    if (version->doubled) version->working = version->gathering;
    version->gathering = 0;
}

static void place_remove(struct version *version, struct place *place) {
    size_t at = (size_t)(place - version->places);
    memmove(place, place + 1, (--version->count - at) * sizeof *place);
}

static void goes(struct sim *sim, uint8_t barrier, uint64_t session, uint64_t index) {
    struct story_of_barrier *story = story_of(sim, barrier);
    struct version *next = version_next(sim, barrier, index);
    place_remove(next, place_of(next, session));
    settle(next);
    if (next->count == 0) next->last = 0;
    if (story->gone_count == story->gone_capacity) {
        story->gone_capacity = story->gone_capacity ? 2 * story->gone_capacity : 32;
        story->gone = mem_realloc(story->gone, story->gone_capacity * sizeof *story->gone);
    }
    story->gone[story->gone_count].session = session;
    story->gone[story->gone_count++].index = index;
}

/* The answer that was given is this one. */
static struct sim_expected answered(struct sim *sim, const struct sim_applied *applied, bool released, uint64_t round,
                                    uint32_t entered) {
    const Pb__BarrierAnswer *answer = (const Pb__BarrierAnswer *)applied->result->message;
    if (!answer || answer->released != released || answer->round != round || answer->entered != entered)
        sim_violation(sim, RULE_MODEL,
                      "command %" P " at %" P " is answered with round %" P ", %u entered%s, not round %" P ", %u%s",
                      applied->op->id, applied->index, answer ? answer->round : 0, answer ? answer->entered : 0,
                      answer && answer->released ? ", released" : "", round, entered, released ? ", released" : "");
    return expect_yes();
}

static struct sim_expected enter(struct sim *sim, const struct sim_applied *applied) {
    const struct op *op = applied->op;
    const struct barrier_own *own = OP_AS(const struct barrier_own, op);
    const struct version *now = version_at(sim, own->barrier, applied->index);
    const struct place *place = place_of(now, op->owner);
    if (!expiring_alive(sim, op->owner)) return expect_error();
    bool waits = place && place->standing == WAITING, inside = place && place->standing == INSIDE;
    if (place && !waits && (own->after_given ? own->after < place->round : inside))
        return answered(sim, applied, true, place->round, place->parties);
    if (inside) return expect_error();
    if (now->gathering && (now->parties != own->parties || now->doubled != own->doubled)) return expect_error();
    if (waits) return answered(sim, applied, false, place->round, count_of(now, WAITING));
    if (now->gathering && count_of(now, WAITING) == now->parties) return expect_error();
    struct version *next = version_next(sim, own->barrier, applied->index);
    if ((place = place_of(next, op->owner)) != NULL) place_remove(next, place_of(next, op->owner));
    if (!next->gathering) next->gathering = applied->index, next->parties = own->parties, next->doubled = own->doubled;
    CHECK(next->count < PLACES);
    next->places[next->count++] = (struct place){.session = op->owner,
                                                 .round = next->gathering,
                                                 .index = applied->index,
                                                 .since = applied->index,
                                                 .parties = next->parties};
    uint64_t round = next->gathering;
    uint32_t entered = count_of(next, WAITING);
    settle(next);
    return answered(sim, applied, next->last == round, round, entered);
}

static struct sim_expected leave(struct sim *sim, const struct sim_applied *applied) {
    const struct op *op = applied->op;
    uint8_t barrier = OP_AS(const struct barrier_own, op)->barrier;
    const struct version *now = version_at(sim, barrier, applied->index);
    const struct place *place = place_of(now, op->owner);
    if (!place || !expiring_alive(sim, op->owner)) return expect_error();
    uint64_t round = place->round;
    if (place->standing == INSIDE) {
        struct version *next = version_next(sim, barrier, applied->index);
        place_of(next, op->owner)->standing = LEFT, place_of(next, op->owner)->since = applied->index;
        settle(next);
    } else if (place->standing == WAITING || place->standing == RELEASED) {
        goes(sim, barrier, op->owner, applied->index);
    }
    now = version_at(sim, barrier, applied->index);
    bool works = now->working == round;
    return answered(sim, applied, !works, round, works ? count_of(now, INSIDE) : 0);
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    if (!applied->op) return expect_any(applied);
    return applied->number == BARRIER_ENTER ? enter(sim, applied) : leave(sim, applied);
}

static void on_notice(struct sim *sim, const struct sim_notice *notice) {
    for (uint8_t i = 0; notice->type == SIM_ENDED && i < BARRIERS; i++)
        if (place_of(version_at(sim, i, notice->index), notice->op->id)) goes(sim, i, notice->op->id, notice->index);
}

/* -- what is read ----------------------------------------------------------------------------------------------------- */

static uint64_t version_sum(uint64_t sum, const struct version *version) {
    sum = sum_on(sum, version->gathering, version->gathering ? version->parties : 0,
                 version->gathering && version->doubled);
    for (size_t i = 0; i < version->count; i++)
        if (version->places[i].standing == WAITING)
            sum = sum_on(sum, version->places[i].session, version->places[i].index, 0);
    sum = sum_on(sum, version->working, version->last, 0);
    for (size_t i = 0; i < version->count; i++)
        if (version->places[i].standing == INSIDE)
            sum = sum_on(sum, version->places[i].session, version->places[i].index, 1);
    return sum;
}

/* As a wait says it: who has come, or has not left yet. */
static uint32_t entered_of(const struct version *version, const struct barrier_own *own, bool released) {
    if (released) return own->leave ? 0 : own->parties;
    uint64_t round = own->leave ? version->working : version->gathering;
    return round == own->round ? count_of(version, own->leave ? INSIDE : WAITING) : 0;
}

static void judge_wait(struct sim *sim, const struct op *op) {
    const struct barrier_own *own = OP_AS(const struct barrier_own, op);
    const struct story_of_barrier *story = story_of(sim, own->barrier);
    const struct version *version = version_at(sim, own->barrier, op->index);
    const struct place *place = place_of(version, op->owner);
    uint64_t index = place ? place->since : 0;
    for (size_t i = story->gone_count; !place && i > 0 && !index; i--)
        if (story->gone[i - 1].session == op->owner && story->gone[i - 1].index <= op->index)
            index = story->gone[i - 1].index;
    bool through = place && (own->leave ? place->standing == OVER : place->standing != WAITING);
    bool released = place && (place->round > own->round || (place->round == own->round && through));
    uint32_t entered = place ? entered_of(version, own, released) : 0;
    if (own->gone == (place != NULL) || own->released != released || own->entered != entered || op->seen_index != index)
        sim_violation(sim, RULE_MODEL,
                      "wait %" P " at s%u, applied %" P ", for round %" P ": %s%s, %u entered at %" P
                      ", expected %s%s, %u at %" P,
                      op->id, op->server + 1, op->index, own->round, own->gone ? "gone" : "there",
                      own->released ? ", released" : "", own->entered, op->seen_index, place ? "there" : "gone",
                      released ? ", released" : "", entered, index);
}

static void judge_read(struct sim *sim, const struct op *op) {
    const struct barrier_own *own = OP_AS(const struct barrier_own, op);
    uint64_t sum = 0, index = 0;
    bool found = op->kind == LIST;
    if (op->kind == WAIT) {
        judge_wait(sim, op);
        return;
    }
    for (uint8_t i = 0; i < BARRIERS; i++) {
        const struct version *version = version_at(sim, i, op->index);
        if (op->kind == LOOK && i != own->barrier) continue;
        if (version->index > index) index = version->index;
        if (version->count == 0) continue;
        found = true;
        sum = version_sum(op->kind == LIST ? sum_on(sum, '0' + (uint64_t)i, 0, 0) : 0, version);
    }
    if (op->found != found || op->seen_index != index || own->sum != sum)
        sim_violation(sim, RULE_MODEL,
                      "read %" P " at s%u, applied %" P ": barriers at %" P "%s, expected at %" P "%s%s", op->id,
                      op->server + 1, op->index, op->seen_index, op->found ? "" : " (empty)", index,
                      found ? "" : " (empty)", own->sum == sum ? "" : ", and other parties");
}

/* All sessions have ended: nobody is left waiting. */
static void judge_end(struct sim *sim, struct server *server) {
    for (uint8_t i = 0; i < BARRIERS; i++) {
        struct op op = {0};
        look_op(&op, LOOK, i);
        op_judge(server, &op);
        if (op.found) sim_violation(sim, RULE_MODEL, "at the end somebody is at barrier b%u", i);
    }
}

const struct sim_module sim_barrier = {
    .name = "barrier",
    .module = &barrier_module,
    .pace = {.clients_least = 2, .clients_most = 4, .think_least_ms = 10, .think_most_ms = 80, .open_most = 2},
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
