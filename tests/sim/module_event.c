/* Events: their clients fire some and follow the list; the newest EVENTS_MAX are kept, in the order of the log. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "kv/event/event.h"
#include "tests/sim/modules.h"

#define P PRIu64

enum kind { FIRE, LIST };
struct event_own {
    uint32_t payload, count; /* of a list: how many events it has seen, */
    uint64_t sum;            /* and the sum of their operations and indexes, in order */
};

void event_op(struct op *op, uint32_t payload) {
    op->module = &sim_event;
    op->kind = FIRE;
    OP_AS(struct event_own, op)->payload = payload;
}

void event_list_op(struct op *op) {
    op->module = &sim_event;
    op->kind = LIST;
    op->way = OP_READ;
}

size_t event_kept(const struct op *op) { return OP_AS(const struct event_own, op)->count; }

/* -- clients ---------------------------------------------------------------------------------------------------------- */

static bool generate(struct sim_turn *turn, struct op *op) {
    if (turn_chance(turn, 600)) { /* now and then one that is too large */
        event_op(op, turn_chance(turn, 30) ? EVENT_SIZE_MAX : (uint32_t)turn_random(turn, 0, 200));
        return true;
    }
    event_list_op(op);
    op->stale = turn_chance(turn, 300);
    if (turn_chance(turn, 500)) op->wait_us = turn_random(turn, 50, 1000) * MS;
    return true;
}

struct known {
    uint64_t index; /* of the list as it was read last */
};

static bool complete(void *data, struct op *op) {
    op->known_index = ((struct known *)data)->index;
    if (op->known_index == 0) op->wait_us = 0;
    return true;
}

static void learn(void *data, const struct op *op) {
    if (op->way == OP_READ && op->state == OP_DONE) ((struct known *)data)->index = op->seen_index;
}

/* -- bytes: the event's name says which operation fired it ------------------------------------------------------------ */

static uint64_t firer(const char *name) { return name[0] == 'e' ? strtoull(name + 1, NULL, 10) : 0; }

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    size_t size = OP_AS(const struct event_own, op)->payload;
    Pb__EventFireCommand *command = arena_alloc(arena, sizeof *command);
    Pb__Event *event = arena_alloc(arena, sizeof *event);
    pb__event_fire_command__init(command);
    pb__event__init(event);
    event->name = arena_alloc(arena, 24);
    snprintf(event->name, 24, "e%" PRIu64, op->id);
    session_name(op->id, event->id = arena_alloc(arena, 40));
    event->payload = (ProtobufCBinaryData){size, arena_zalloc(arena, size + 1)};
    command->event = event;
    *number = EVENT_FIRE;
    return &command->base;
}

static uint64_t made_by(uint8_t number, const ProtobufCMessage *command) {
    const Pb__Event *event = ((const Pb__EventFireCommand *)command)->event;
    return number == EVENT_FIRE && event ? firer(event->name) : 0;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    (void)op;
    Pb__EventsRequest *request = arena_alloc(arena, sizeof *request);
    pb__events_request__init(request);
    *type = &query_events;
    return &request->base;
}

static uint64_t sum_on(uint64_t sum, uint64_t op, uint64_t index) {
    uint64_t all[3] = {sum, op, index};
    return hash64(all, sizeof all);
}

static void seen(struct op *op, const struct query_result *result) {
    struct event_own *own = OP_AS(struct event_own, op);
    const Pb__EventsResult *events = (const Pb__EventsResult *)result->message;
    own->count = (uint32_t)events->n_events;
    own->sum = 0;
    for (size_t i = 0; i < events->n_events; i++)
        own->sum = sum_on(own->sum, firer(events->events[i]->name), events->events[i]->index);
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

struct model {
    struct {
        uint64_t op, index;
    } * events; /* all that were fired */
    size_t count, capacity;
};
static struct model *model_of(struct sim *sim) { return sim_model(sim, &sim_event); }

static void end(struct sim *sim) { free(model_of(sim)->events); }

static struct sim_expected fired(struct sim *sim, const struct sim_applied *applied) {
    struct model *model = model_of(sim);
    const Pb__Event *event = (const Pb__Event *)applied->result->message;
    char name[24];
    snprintf(name, sizeof name, "e%" PRIu64, applied->op->id);
    if (strlen(name) + OP_AS(struct event_own, applied->op)->payload > EVENT_SIZE_MAX) return expect_error();
    if (!event || event->index != applied->index || firer(event->name) != applied->op->id)
        sim_violation(sim, RULE_MODEL, "event %" P " at %" P " is answered with another one", applied->op->id,
                      applied->index);
    if (model->count == model->capacity) {
        model->capacity = model->capacity ? 2 * model->capacity : 32;
        model->events = mem_realloc(model->events, model->capacity * sizeof *model->events);
    }
    model->events[model->count].op = applied->op->id;
    model->events[model->count++].index = applied->index;
    return expect_yes();
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    return applied->op ? fired(sim, applied) : expect_any(applied);
}

/* At any index there is one list: the newest up to it. */
static void judge_read(struct sim *sim, const struct op *op) {
    const struct model *model = model_of(sim);
    const struct event_own *own = OP_AS(const struct event_own, op);
    size_t last = model->count;
    while (last > 0 && model->events[last - 1].index > op->index) last--;
    size_t first = last > EVENTS_MAX ? last - EVENTS_MAX : 0;
    uint64_t sum = 0, index = last ? model->events[last - 1].index : 0;
    for (size_t i = first; i < last; i++) sum = sum_on(sum, model->events[i].op, model->events[i].index);
    if (own->count != last - first || op->seen_index != index)
        sim_violation(sim, RULE_MODEL,
                      "read %" P " at s%u, applied %" P ": %u events up to %" P ", expected %zu up to %" P, op->id,
                      op->server + 1, op->index, own->count, op->seen_index, last - first, index);
    else if (own->sum != sum)
        sim_violation(sim, RULE_MODEL, "read %" P " at s%u, applied %" P ": other events than were fired", op->id,
                      op->server + 1, op->index);
}

static void judge_end(struct sim *sim, struct server *server) {
    struct op op = {0};
    (void)sim;
    event_list_op(&op);
    op_judge(server, &op);
}

const struct sim_module sim_event = {
    .name = "event",
    .module = &event_module,
    .pace = {.clients_least = 0, .clients_most = 1, .think_least_ms = 50, .think_most_ms = 400, .open_most = 1},
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
    .check_end = judge_end,
};
