/* Fences: their clients show tokens, as those who write to a resource would; the highest of each resource never falls.
 * A list of versions for each resource, so that a read at any index can be judged. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/text.h"
#include "kv/fence/fence.h"
#include "tests/sim/modules.h"
#include "tests/sim/versions.h"

#define P PRIu64

enum { RESOURCES = 3 };
enum kind { CHECK_TOKEN, CHECK_LOCK, LOOK }; /* with a lock that nobody holds, it is never accepted */

struct fence_own {
    uint32_t resource, part; /* of the newest index that the client knows, in permille: the token is that */
    uint64_t token, highest; /* highest: as it was seen */
};
static const struct fence_own *own_of(const struct op *op) { return OP_AS(const struct fence_own, op); }

static void fence_op(struct op *op, enum kind kind, uint32_t resource) {
    op->module = &sim_fence;
    op->kind = kind;
    op->way = kind == LOOK ? OP_READ : OP_WRITE;
    OP_AS(struct fence_own, op)->resource = resource;
}

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct known {
    uint64_t newest, looked[RESOURCES]; /* indexes: of any answer; of each as it was read last */
};

static bool generate(struct sim_turn *turn, struct op *op) {
    uint32_t resource = (uint32_t)turn_random(turn, 0, RESOURCES - 1);
    if (turn_chance(turn, 650)) {
        fence_op(op, turn_chance(turn, 50) ? CHECK_LOCK : CHECK_TOKEN, resource);
        struct fence_own *own = OP_AS(struct fence_own, op);
        /* That of a holder of now, of one who has slept, or one that nobody can have yet. */
        own->part = turn_chance(turn, 400)   ? 1000
                    : turn_chance(turn, 950) ? (uint32_t)turn_random(turn, 0, 1000)
                                             : UINT32_MAX;
        return true;
    }
    fence_op(op, LOOK, resource);
    op->stale = turn_chance(turn, 300);
    if (turn_chance(turn, 500)) op->wait_us = turn_random(turn, 50, 1000) * MS;
    return true;
}

static bool complete(void *data, struct op *op) {
    const struct known *known = data;
    struct fence_own *own = OP_AS(struct fence_own, op);
    if (op->way == OP_WRITE) {
        own->token = own->part == UINT32_MAX ? UINT64_MAX / 2 : known->newest * own->part / 1000;
        return true;
    }
    op->known_index = known->looked[own->resource];
    if (op->known_index == 0) op->wait_us = 0;
    return true;
}

static void learn(void *data, const struct op *op) {
    struct known *known = data;
    if (op->state != OP_DONE) return;
    if (op->index > known->newest) known->newest = op->index;
    if (op->way == OP_READ) known->looked[own_of(op)->resource] = op->seen_index;
}

/* -- bytes ------------------------------------------------------------------------------------------------------------ */

static void resource_name(uint32_t resource, char name[16]) { snprintf(name, 16, "r%u", resource); }

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    static char nobody[] = "nobody";
    const struct fence_own *own = own_of(op);
    Pb__FenceCheckCommand *command = arena_alloc(arena, sizeof *command);
    pb__fence_check_command__init(command);
    op_label(&command->base, op->id, arena);
    resource_name(own->resource, command->resource = arena_alloc(arena, 16));
    command->token = own->token;
    if (op->kind == CHECK_LOCK) command->lock = nobody;
    *number = FENCE_CHECK;
    return &command->base;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    Pb__FenceRequest *request = arena_alloc(arena, sizeof *request);
    pb__fence_request__init(request);
    resource_name(own_of(op)->resource, request->resource = arena_alloc(arena, 16));
    *type = &query_fence;
    return &request->base;
}

static void seen(struct op *op, const struct query_result *result) {
    OP_AS(struct fence_own, op)->highest = result->found ? ((const Pb__FenceView *)result->message)->highest : 0;
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

struct version {
    uint64_t index, highest;
};
struct model {
    struct versions fences[RESOURCES];
};
static struct versions *story_of(struct sim *sim, uint32_t resource) {
    return &((struct model *)sim_model(sim, &sim_fence))->fences[resource];
}

static void end(struct sim *sim) {
    for (uint32_t resource = 0; resource < RESOURCES; resource++) versions_free(story_of(sim, resource));
}

static struct version version_at(struct sim *sim, uint32_t resource, uint64_t index) {
    static const struct version none;
    return *(const struct version *)versions_at(story_of(sim, resource), sizeof none, index, &none);
}

static void change(struct sim *sim, uint32_t resource, struct version version) {
    versions_add(story_of(sim, resource), sizeof version, &version);
}

static struct sim_expected checked(struct sim *sim, const struct sim_applied *applied) {
    const struct fence_own *own = own_of(applied->op);
    const Pb__FenceAnswer *answer = (const Pb__FenceAnswer *)applied->result->message;
    if (own->token == 0 || own->token >= applied->index) return expect_error();
    uint64_t highest = version_at(sim, own->resource, applied->index).highest;
    bool accepted = applied->op->kind == CHECK_TOKEN && own->token >= highest;
    if (answer && answer->accepted && own->token < highest)
        sim_violation(sim, RULE_FENCE, "resource %u accepts token %" P " at %" P ", %" P " was accepted before",
                      own->resource, own->token, applied->index, highest);
    if (accepted && own->token > highest) {
        highest = own->token;
        change(sim, own->resource, (struct version){applied->index, highest});
    }
    if (!answer || answer->highest != highest)
        sim_violation(sim, RULE_MODEL, "resource %u at %" P ": highest %" P ", expected %" P, own->resource,
                      applied->index, answer ? answer->highest : 0, highest);
    return accepted ? expect_yes() : expect_no();
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    return applied->op ? checked(sim, applied) : expect_any(applied);
}

static void judge_read(struct sim *sim, const struct op *op) {
    const struct fence_own *own = own_of(op);
    struct version version = version_at(sim, own->resource, op->index);
    if (op->seen_index != version.index || own->highest != version.highest || op->found != (version.index != 0))
        sim_violation(sim, RULE_FENCE,
                      "read %" P " at s%u, applied %" P ": resource %u has %" P " since %" P ", expected %" P
                      " since %" P,
                      op->id, op->server + 1, op->index, own->resource, own->highest, op->seen_index, version.highest,
                      version.index);
}

static void judge_end(struct sim *sim, struct server *server) {
    (void)sim;
    for (uint32_t resource = 0; resource < RESOURCES; resource++) {
        struct op op = {0};
        fence_op(&op, LOOK, resource);
        op_judge(server, &op);
    }
}

const struct sim_module sim_fence = {
    .name = "fence",
    .module = &fence_module,
    .pace = {.clients_least = 0, .clients_most = 2, .think_least_ms = 20, .think_most_ms = 300, .open_most = 1},
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
    .check_end = judge_end,
};
