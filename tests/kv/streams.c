#include "streams.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "base/random.h"
#include "kv/txn/txn.h"
#include "registry/fold.h"
#include "tests/lib/with_access.h"

const struct stream_thing stream_things[] = {
    {PB__STREAM_KIND__STREAM_KEY, "a"},       {PB__STREAM_KIND__STREAM_KEY, "a/1"},
    {PB__STREAM_KIND__STREAM_KEY, "a/2"},     {PB__STREAM_KIND__STREAM_KEY, "a/2/x"},
    {PB__STREAM_KIND__STREAM_KEY, "ab"},      {PB__STREAM_KIND__STREAM_KEY, "A"},
    {PB__STREAM_KIND__STREAM_KEY, "b"},       {PB__STREAM_KIND__STREAM_KEY, "b/1"},
    {PB__STREAM_KIND__STREAM_SERVICE, "api"}, {PB__STREAM_KIND__STREAM_SERVICE, "web"},
    {PB__STREAM_KIND__STREAM_NODE, "n1"},     {PB__STREAM_KIND__STREAM_NODE, "n2"},
    {PB__STREAM_KIND__STREAM_NODE, "n3"},     {PB__STREAM_KIND__STREAM_LOCK, "l"},
    {PB__STREAM_KIND__STREAM_LOCK, "L"},      {PB__STREAM_KIND__STREAM_LOCK, "m"},
};
const size_t stream_things_count = ARRAY_COUNT(stream_things);
enum { KEYS = 8, SESSIONS = 4 };

static ProtobufCBinaryData binary(const char *text) {
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

/* -- the model ----------------------------------------------------------------------------------------------------- */

static struct query_result ask_thing(const struct stream_model *model, size_t thing) {
    struct fixture *world = model->world;
    const struct stream_kind *kind = &stream_kinds[stream_things[thing].kind];
    fixture_forget(world);
    if (!model->access)
        return fixture_query(world, kind->query, kind->request(slice_text(stream_things[thing].name), &world->arena));
    struct query_result result;
    struct access_check check;
    struct arena arena = {0};
    ProtobufCMessage *request = kind->request(slice_text(stream_things[thing].name), &arena);
    int error = fixture_ask_as(world, model->access, kind->query, request, &result, &check);
    cr_assert(error == CO_OK || error == CO_DENIED);
    arena_free(&arena);
    return error ? (struct query_result){0} : result;
}

static void look_at(struct stream_model *model, size_t thing, bool first) {
    struct query_result result = ask_thing(model, thing);
    /* the index also rises with what the token does not see */
    if (model->access && stream_kinds[stream_things[thing].kind].in_part) result.index = 0;
    bool service = stream_things[thing].kind == PB__STREAM_KIND__STREAM_SERVICE;
    bool gone = !result.found || (service && ((const Pb__ServiceEntriesResult *)result.message)->n_entries == 0);
    struct slice record = {0};
    if (!gone || (service && !model->access))
        record = slice_copy(&model->arena, message_pack(&model->world->arena, result.message));
    bool same = result.index == model->now[thing].index && gone == model->now[thing].gone &&
                slice_equal(record, model->now[thing].record);
    if (!same && !first) {
        if (model->count == model->room) {
            model->room = model->room ? 2 * model->room : 64;
            model->changes = mem_realloc(model->changes, model->room * sizeof *model->changes);
        }
        model->changes[model->count++] =
            (struct stream_change){machine_index(model->world->machine), thing, gone, record, model->now[thing].record};
    }
    model->now[thing].index = result.index, model->now[thing].gone = gone, model->now[thing].record = record;
}

void stream_model_look(struct stream_model *model) {
    for (size_t thing = 0; thing < stream_things_count; thing++) look_at(model, thing, false);
    fixture_forget(model->world);
}

const struct stream_change *stream_change_at(const struct stream_model *model, uint64_t index, size_t thing) {
    for (size_t i = 0; i < model->count; i++)
        if (model->changes[i].index == index && model->changes[i].thing == thing) return &model->changes[i];
    return NULL;
}

void stream_model_open(struct stream_model *model, struct fixture *world) { stream_model_open_as(model, world, NULL); }

void stream_model_open_as(struct stream_model *model, struct fixture *world, const struct access *access) {
    *model = (struct stream_model){.world = world, .access = access};
    CHECK(stream_things_count <= ARRAY_COUNT(model->now));
    for (size_t thing = 0; thing < stream_things_count; thing++) look_at(model, thing, true);
    fixture_forget(world);
}

void stream_model_close(struct stream_model *model) {
    free(model->changes);
    arena_free(&model->arena);
}

/* -- random commands ------------------------------------------------------------------------------------------------ */

static const char *any(struct rng *rng, const char *const *list, size_t count) { return list[rng_below(rng, count)]; }
#define ANY(rng, list) any(rng, list, ARRAY_COUNT(list))
static const char *const nodes[] = {"n1", "N1", "n2", "n3", "N3"},
                         *const names[] = {"api", "API", "Api", "web", "other"}, *const locks[] = {"l", "L", "m"},
                         *const values[] = {"", "1", "22", "a longer value than the others"};

static char *text(struct arena *arena, const char *from) { return arena_strndup(arena, from, strlen(from)); }

static Pb__Check *check_of(struct rng *rng, struct arena *arena, const Pb__Service *service) {
    Pb__Check *check = arena_alloc(arena, sizeof *check);
    pb__check__init(check);
    check->check_id = check->name = arena_printf(arena, "c%u", (unsigned)rng_below(rng, 2));
    if (service) check->service_id = service->id;
    check->status = (Pb__Status)rng_below(rng, 3);
    return check;
}

static Pb__RegisterCommand *registration(struct rng *rng, struct arena *arena) {
    Pb__RegisterCommand *command = arena_alloc(arena, sizeof *command);
    pb__register_command__init(command);
    command->node = arena_alloc(arena, sizeof *command->node);
    pb__node__init(command->node);
    command->node->name = text(arena, ANY(rng, nodes));
    command->node->address = arena_printf(arena, "10.0.0.%u", (unsigned)rng_below(rng, 3));
    if (rng_below(rng, 4)) {
        command->service = arena_alloc(arena, sizeof *command->service);
        pb__service__init(command->service);
        command->service->id = arena_printf(arena, "%u", (unsigned)rng_below(rng, 2));
        command->service->name = text(arena, ANY(rng, names));
        command->service->port = 80 + (uint32_t)rng_below(rng, 2);
    }
    command->checks = arena_alloc(arena, sizeof *command->checks);
    if (rng_below(rng, 2)) command->checks[command->n_checks++] = check_of(rng, arena, command->service);
    return command;
}

static Pb__DeregisterCommand *removal(struct rng *rng, struct arena *arena) {
    Pb__DeregisterCommand *command = arena_alloc(arena, sizeof *command);
    pb__deregister_command__init(command);
    command->node = text(arena, ANY(rng, nodes));
    unsigned dice = (unsigned)rng_below(rng, 8), number = (unsigned)rng_below(rng, 2);
    if (dice < 4) command->service_id = arena_printf(arena, "%u", number);
    else if (dice < 7) command->check_id = arena_printf(arena, "c%u", number);
    return command;
}

static void act_catalog(struct fixture *world, struct rng *rng) {
    struct arena arena = {0};
    unsigned dice = (unsigned)rng_below(rng, 10);
    if (dice < 5) {
        fixture_apply(world, CATALOG_REGISTER, &registration(rng, &arena)->base);
    } else if (dice < 7) {
        fixture_apply(world, CATALOG_DEREGISTER, &removal(rng, &arena)->base);
    } else {
        Pb__CatalogBatchCommand batch = PB__CATALOG_BATCH_COMMAND__INIT;
        Pb__RegisterCommand *registers[4];
        Pb__DeregisterCommand *removals[2];
        batch.registers = registers, batch.deregisters = removals;
        batch.n_registers = 1 + rng_below(rng, 4), batch.n_deregisters = rng_below(rng, 3);
        for (size_t i = 0; i < batch.n_registers; i++) registers[i] = registration(rng, &arena);
        for (size_t i = 0; i < batch.n_deregisters; i++) removals[i] = removal(rng, &arena);
        fixture_apply(world, CATALOG_BATCH, &batch.base);
    }
    arena_free(&arena);
}

static void act_kv(struct fixture *world, struct rng *rng, const char *session) {
    const char *key = stream_things[rng_below(rng, KEYS)].name;
    switch (rng_below(rng, 8)) {
        case 0: kv_del(world, key); break;
        case 1: kv_del_tree(world, rng_below(rng, 2) ? "a/" : key); break;
        case 2: kv_acquire(world, key, "held", session); break;
        case 3: kv_release(world, key, "free", session); break;
        case 4: kv_cas(world, key, "cas", 0); break;
        default: kv_put(world, key, ANY(rng, values));
    }
}

/* Several keys in one entry, some of them twice; now and then one that takes all of it back. */
static void act_txn(struct fixture *world, struct rng *rng) {
    enum { STEPS = 5 };
    Pb__TxnCommand txn = PB__TXN_COMMAND__INIT;
    Pb__TxnOp ops[STEPS], *list[STEPS];
    struct buffer bytes[STEPS] = {0};
    txn.ops = list, txn.n_ops = 1 + rng_below(rng, STEPS);
    for (size_t i = 0; i < txn.n_ops; i++) {
        Pb__KvCommand command = PB__KV_COMMAND__INIT;
        list[i] = &ops[i];
        pb__txn_op__init(&ops[i]);
        command.key = ops[i].key = binary(stream_things[rng_below(rng, KEYS)].name);
        command.value = binary(ANY(rng, values));
        unsigned dice = (unsigned)rng_below(rng, 12);
        command.verb = dice < 8 ? PB__KV_VERB__KV_SET : PB__KV_VERB__KV_DELETE;
        ops[i].verb = dice < 8 ? PB__TXN_VERB__TXN_SET : PB__TXN_VERB__TXN_DELETE;
        if (dice == 11) ops[i].verb = PB__TXN_VERB__TXN_CHECK_NOT_EXISTS;
        if (dice == 11) continue;
        machine_command(&bytes[i], KV_APPLY, &command.base);
        ops[i].command = (ProtobufCBinaryData){bytes[i].size, (uint8_t *)bytes[i].data};
    }
    fixture_apply(world, TXN_APPLY, &txn.base);
    for (size_t i = 0; i < txn.n_ops; i++) buffer_free(&bytes[i]);
}

void stream_model_act(struct stream_model *model, struct rng *rng) {
    struct fixture *world = model->world;
    char session[UUID_TEXT_SIZE + 1];
    session_id((unsigned)rng_below(rng, SESSIONS), session);
    switch (rng_below(rng, 11)) {
        case 10: act_txn(world, rng); break;
        case 0:
            session_make(world, session,
                         &(struct session_plan){.node = ANY(rng, nodes), .delete_keys = rng_below(rng, 2)});
            break;
        case 1:
            if (rng_below(rng, 3) == 0) session_drop(world, session);
            else lock_take(world, ANY(rng, locks), session, PB__QUEUE_MODE__QUEUE_EXCLUSIVE);
            break;
        case 2: lock_give(world, ANY(rng, locks), session); break;
        case 3:
        case 4:
        case 5: act_catalog(world, rng); break;
        default: act_kv(world, rng, session);
    }
    stream_model_look(model);
}

/* -- requests ------------------------------------------------------------------------------------------------------- */

void stream_ask_init(struct stream_ask *ask) {
    pb__stream_request__init(&ask->request);
    ask->request.subscriptions = ask->list;
}

void stream_ask_add(struct stream_ask *ask, Pb__StreamKind kind, const char *name) {
    size_t number = ask->request.n_subscriptions++;
    CHECK(number < ARRAY_COUNT(ask->list));
    pb__stream_subscription__init(&ask->subscriptions[number]);
    ask->subscriptions[number].kind = kind, ask->subscriptions[number].name = binary(name);
    ask->list[number] = &ask->subscriptions[number];
}

void stream_ask_from(struct stream_ask *ask, uint64_t index, uint32_t topic, uint32_t place) {
    pb__stream_position__init(&ask->from);
    ask->from.index = index, ask->from.topic = topic, ask->from.place = place;
    ask->request.from = &ask->from;
}

const Pb__StreamResult *stream_answer(struct fixture *world, const struct stream_ask *ask, uint64_t *index) {
    struct query_result result = fixture_ask(world, &query_stream, &ask->request.base);
    if (index) *index = result.index;
    cr_assert_eq(result.found, result.message != NULL);
    return (const Pb__StreamResult *)result.message;
}

size_t stream_thing_of(Pb__StreamKind kind, struct slice name) {
    for (size_t i = 0; i < stream_things_count; i++) {
        struct slice own = slice_text(stream_things[i].name);
        bool fold = fold_space(stream_kinds[kind].space);
        if (stream_things[i].kind == kind && (fold ? slice_equal_nocase(own, name) : slice_equal(own, name))) return i;
    }
    cr_assert(false, "an event of something else: %.*s", (int)name.size, name.data);
    return 0;
}

bool stream_follows(const struct stream_ask *ask, size_t thing) {
    struct slice own = slice_text(stream_things[thing].name);
    for (size_t i = 0; i < ask->request.n_subscriptions; i++) {
        const Pb__StreamSubscription *one = ask->request.subscriptions[i];
        struct slice name = slice_make(one->name.data, one->name.len);
        bool prefix = one->kind == PB__STREAM_KIND__STREAM_PREFIX, fold = fold_space(stream_kinds[one->kind].space);
        if (stream_kinds[one->kind].shown != stream_things[thing].kind) continue;
        if (prefix ? slice_starts(own, name) : fold ? slice_equal_nocase(own, name) : slice_equal(own, name))
            return true;
    }
    return false;
}

void stream_limits(struct fixture *world, uint64_t changes) {
    Pb__HistoryMarkCommand command = PB__HISTORY_MARK_COMMAND__INIT;
    Pb__HistoryLimits limits = PB__HISTORY_LIMITS__INIT;
    command.term = world->term, command.now_unix_ms = 1000;
    limits.changes = changes, limits.bytes = 1 << 30, limits.age_ms = 1000000;
    command.limits = &limits;
    cr_assert(fixture_apply(world, HISTORY_MARK, &command.base).yes);
}
