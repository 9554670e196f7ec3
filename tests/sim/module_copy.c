/* Copies of a region's catalog. The region is the simulated cluster itself: its clients follow its own catalog, as the
 * leader of another region would (multi-dc/follower.h), several of them at once, through whatever servers there are, and
 * some of their commands arrive long after they were given up. The model is the catalog's history: on each server readers
 * of the copy see the catalog as it was at the index that the copy says, and that index does not go back. */
#include "multi-dc/copy.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/message.h"
#include "multi-dc/follower.h"
#include "registry/history.h"
#include "tests/sim/modules.h"

#define P PRIu64

#define REGION  "self"
#define SERVICE "web"

enum { COPY_TURN, COPY_READ, COPY_ASK, COPY_PROPOSE }; /* kinds of operations; the first: not decided yet */
struct copy_own {
    bool leads; /* its client believes so */
    uint64_t ticket;
};

/* -- what is on its way: requests, commands and answers, by operation ------------------------------------------------ */

enum { CARRIED = 256 }; /* more than are ever under way */
static struct carried {
    uint64_t op, index;
    uint8_t number;
    struct buffer sent, answer;
} carried[CARRIED];

static struct carried *carried_of(uint64_t op) {
    struct carried *place = &carried[op % CARRIED];
    return place->op == op && op ? place : NULL;
}

static void carry(uint64_t op, uint8_t number, const ProtobufCMessage *message) {
    struct carried *place = &carried[op % CARRIED];
    struct arena arena = {0};
    struct slice packed = message_pack(&arena, message);
    buffer_reset(&place->sent), buffer_reset(&place->answer);
    buffer_append(&place->sent, packed.data, packed.size);
    place->op = op, place->number = number;
    arena_free(&arena);
}

/* -- clients --------------------------------------------------------------------------------------------------------- */

struct known {
    struct follower *follower;
};
static struct follower **followers; /* of this run */
static size_t follower_count;

struct follower *copy_follower(uint32_t rows_most) {
    struct follower *follower = follow_catalog(REGION);
    followers = mem_realloc(followers, (follower_count + 1) * sizeof(struct follower *));
    followers[follower_count++] = follower;
    follower_rows_most(follower, rows_most);
    follower_leads(follower, true, 0);
    return follower;
}

/* In turns, a while each; each client takes over before the one before it knows. */
static bool leads(const struct sim_turn *turn) {
    enum { WHILE_MS = 2000, EARLIER_MS = 300, CLIENTS = 3 };
    return (turn->now_us / MS + EARLIER_MS * turn->client) / WHILE_MS % CLIENTS == turn->client;
}

/* Now and then the catalog changes, so that there is something to follow. */
static bool generate(struct sim_turn *turn, struct op *op) {
    if (turn_chance(turn, 300)) {
        catalog_op(op, node_spelled(turn, (uint32_t)turn_random(turn, 1, SIM_NODES)));
        return true;
    }
    op->module = &sim_copy;
    op->way = OP_READ;
    op->kind = COPY_TURN;
    op->stale = turn_chance(turn, 700);
    OP_AS(struct copy_own, op)->leads = leads(turn);
    return true;
}

bool copy_op(struct follower *follower, struct op *op) {
    struct follower_effect effect;
    follower_next(follower, op->invoked_us / MS, &effect);
    if (effect.wish == FOLLOWER_RESTS) return false;
    OP_AS(struct copy_own, op)->ticket = effect.ticket;
    if (effect.wish == FOLLOWER_READS) {
        op->kind = COPY_READ, op->stale = false;
        carry(op->id, 0, effect.message);
    } else if (effect.wish == FOLLOWER_ASKS) {
        op->kind = COPY_ASK, op->known_index = effect.index;
        op->wait_us = effect.index ? 200 * MS : 0;
        carry(op->id, 0, effect.message);
    } else {
        op->kind = COPY_PROPOSE, op->way = OP_WRITE;
        carry(op->id, effect.command, effect.message);
    }
    return true;
}

static bool complete(void *data, struct op *op) {
    struct known *known = data;
    if (op->module != &sim_copy) return true;
    if (!known->follower) known->follower = copy_follower(op->id % 2 ? 2 : 6);
    follower_leads(known->follower, OP_AS(struct copy_own, op)->leads, op->invoked_us / MS);
    return copy_op(known->follower, op);
}

void copy_learn(struct follower *follower, const struct op *op) {
    static const int failures[] = {[OP_DONE] = CO_OK, [OP_REFUSED] = CO_NOLEADER, [OP_UNKNOWN] = CO_UNKNOWN_OUTCOME};
    const struct carried *place = carried_of(op->id);
    uint64_t ticket = OP_AS(const struct copy_own, op)->ticket, now_ms = op->done_us / MS;
    int error = place ? failures[op->state] : CO_TIMEOUT;
    struct follower_answer answer = {.error = error};
    if (op->kind == COPY_PROPOSE) {
        follower_proposed(follower, ticket, error, op->error, op->yes, op->index, now_ms);
        return;
    }
    if (!error) {
        answer.records = buffer_slice(&place->answer), answer.index = place->index;
        answer.as_of_ms = op->invoked_us / MS;
    }
    follower_answered(follower, ticket, &answer, now_ms);
}

/* One that got no answer does not wait for long: it takes itself for a new leader. */
static void learn(void *data, const struct op *op) {
    struct follower *follower = ((struct known *)data)->follower;
    if (op->module != &sim_copy) return;
    copy_learn(follower, op);
    if (op->state != OP_DONE) follower_leads(follower, false, op->done_us / MS);
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    const struct carried *place = carried_of(op->id);
    CHECK(place && op->kind == COPY_PROPOSE);
    const struct module_command *row = copy_module.commands;
    while (row->number != place->number) row++;
    ProtobufCMessage *message = message_unpack(arena, row->request, buffer_slice(&place->sent));
    op_label(message, op->id, arena);
    *number = place->number;
    return message;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    const struct carried *place = carried_of(op->id);
    *type = op->kind == COPY_ASK ? &query_catalog_changes : &query_copy;
    /* NULL: its client has given up long ago */
    return message_unpack(arena, (*type)->request, place ? buffer_slice(&place->sent) : slice_make("", 0));
}

static void seen(struct op *op, const struct query_result *result) {
    struct carried *place = carried_of(op->id);
    struct arena arena = {0};
    if (!place) return;
    struct slice packed = message_pack(&arena, result->message);
    buffer_reset(&place->answer);
    buffer_append(&place->answer, packed.data, packed.size);
    place->index = result->index;
    arena_free(&arena);
}

/* -- judging --------------------------------------------------------------------------------------------------------- */

struct model {
    uint64_t applied, position; /* what a server that had applied so much showed; the furthest of all */
};

static uint64_t entries_sum(Pb__ServiceEntry **entries, size_t count) {
    struct arena arena = {0};
    uint64_t sum = count;
    for (size_t i = 0; i < count; i++) {
        catalog_strip(entries[i]);
        struct slice packed = message_pack(&arena, &entries[i]->base);
        sum = hash64_seed(packed.data, packed.size, sum);
    }
    arena_free(&arena);
    return sum;
}

/* A sum over all that readers see of the copy; 0: there is none. */
static uint64_t copy_sum(struct store_txn *txn, struct arena *arena, uint64_t *position) {
    Pb__GlobalServiceRequest request = PB__GLOBAL_SERVICE_REQUEST__INIT;
    struct query_result result;
    char *region = (char *)(uintptr_t)REGION;
    request.service = (char *)(uintptr_t)SERVICE, request.regions = &region, request.n_regions = 1;
    CHECK(query_global_service.run(txn, &request.base, arena, &result) == CO_OK);
    const Pb__GlobalServiceResult *found = (const Pb__GlobalServiceResult *)result.message;
    if (found->n_regions == 0) return 0;
    *position = found->regions[0]->at->index;
    return entries_sum(found->regions[0]->entries, found->regions[0]->n_entries);
}

static uint64_t catalog_sum(struct store_txn *txn, struct arena *arena) {
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    struct query_result result;
    request.service = (char *)(uintptr_t)SERVICE;
    CHECK(query_service_entries.run(txn, &request.base, arena, &result) == CO_OK);
    const Pb__ServiceEntriesResult *found = (const Pb__ServiceEntriesResult *)result.message;
    return entries_sum(found->entries, found->n_entries);
}

static void judge_position(struct sim *sim, const struct server *server, uint64_t position) {
    struct model *model = sim_model(sim, &sim_copy);
    uint64_t applied = server->machine.applied;
    bool later = applied >= model->applied;
    if (later ? position < model->position : position > model->position)
        sim_violation(sim, RULE_MODEL, "s%" P ": the copy is at %" P " with %" P " applied, and at %" P " with %" P,
                      server->id, position, applied, model->position, model->applied);
    if (later) model->applied = applied, model->position = position;
}

/* Does the copy show, right now, what the cluster's own catalog shows? */
static bool judge(struct sim *sim, struct server *server) {
    struct arena arena = {0};
    struct store_past *past = NULL;
    struct store_txn *txn = store_read(server->machine.reader);
    uint64_t position = 0, copied = copy_sum(txn, &arena, &position), now = catalog_sum(txn, &arena);
    if (copied && history_read_past(txn, HISTORY_CATALOG, position, &past) == CO_OK) {
        if (catalog_sum(txn, &arena) != copied)
            sim_violation(sim, RULE_MODEL, "s%" P ", applied %" P ": the copy is not the catalog as it was at %" P,
                          server->id, server->machine.applied, position);
        history_past_end(txn, past);
    }
    store_read_done(server->machine.reader);
    arena_free(&arena);
    if (copied) judge_position(sim, server, position);
    return copied == now;
}

bool copy_is_current(struct sim *sim, struct server *server) { return judge(sim, server); }

static void check_copy_read(struct sim *sim, const struct op *op) { (void)judge(sim, sim->servers[op->server]); }
static void judge_end(struct sim *sim, struct server *server) { (void)judge(sim, server); }
static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    (void)sim;
    return expect_any(applied);
}

static void end(struct sim *sim) {
    (void)sim;
    for (size_t i = 0; i < follower_count; i++) follower_free(followers[i]);
    for (size_t i = 0; i < CARRIED; i++) {
        buffer_free(&carried[i].sent), buffer_free(&carried[i].answer);
        carried[i].op = 0;
    }
    free(followers);
    followers = NULL, follower_count = 0;
}

const struct sim_module sim_copy = {
    .name = "copy",
    .module = &copy_module,
    .pace = {.clients_least = 2, .clients_most = 3, .think_least_ms = 10, .think_most_ms = 40, .open_most = 1},
    .known_size = sizeof(struct known),
    .model_size = sizeof(struct model),
    .generate = generate,
    .complete = complete,
    .learn = learn,
    .command = command,
    .made_by = op_labelled,
    .request = request,
    .seen = seen,
    .check_read = check_copy_read,
    .apply = apply,
    .check_end = judge_end,
    .end = end,
};
