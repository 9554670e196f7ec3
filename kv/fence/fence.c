#include "kv/fence/fence.h"

#include "base/check.h"
#include "base/message.h"
#include "kv/lock/lock.h"
#include "registry/module_access.h"

enum { FENCE_TABLE = 28 }; /* resource -> pb.Fence */
_Static_assert(FENCE_CHECK >= 32 && FENCE_CHECK < 64, "a command of kv (registry/module.h)");
_Static_assert(FENCE_TABLE >= 16 && FENCE_TABLE < 40, "a table of kv");
_Static_assert(SPACE_FENCE >= 32 && SPACE_FENCE < 64, "a space of kv");
_Static_assert(FENCE_NAME_MAX <= STORE_KEY_MAX, "a key of the store");

/* All zero: the resource has accepted no token yet. */
static int fence_get(struct store_txn *txn, struct slice resource, struct arena *arena, Pb__Fence **fence) {
    struct slice bytes;
    int rv = store_get(txn, FENCE_TABLE, resource, &bytes);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    *fence = message_unpack(arena, &pb__fence__descriptor, rv == CO_OK ? bytes : SLICE_LITERAL(""));
    return *fence ? CO_OK : CO_CORRUPT;
}

static uint64_t greater(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* -- the command -------------------------------------------------------------------------------------------------- */

/* The lock that the token has to hold, if the command names one. */
struct holding {
    const char *name; /* "": none */
    const struct queue_family *family;
};
static struct holding holding_of(const Pb__FenceCheckCommand *command) {
    return (struct holding){command->lock, &lock_family};
}

static bool name_fits(const char *name) { return name[0] && strlen(name) <= FENCE_NAME_MAX; }

static int refuse_command(struct machine_tx *tx, const Pb__FenceCheckCommand *command, struct machine_result *result) {
    const struct holding holding = holding_of(command);
    if (!name_fits(command->resource))
        return machine_refuse(result, CO_INVALID,
                              arena_printf(tx->arena, "a resource has a name of 1 to %d bytes", FENCE_NAME_MAX));
    if (holding.name[0] && !queue_name_fits(slice_text(holding.name)))
        return machine_refuse(
            result, CO_INVALID,
            arena_printf(tx->arena, "a %s has a name of 1 to %d bytes", holding.family->noun, QUEUE_NAME_MAX));
    if (!command->token || command->token >= tx->index)
        return machine_refuse(
            result, CO_INVALID,
            arena_printf(tx->arena, "token: %llu was never granted: tokens are log indexes, and the newest is %llu",
                         (unsigned long long)command->token, (unsigned long long)tx->index - 1));
    return CO_OK;
}

/* By (2) of fence.h. */
static int judge_holding(struct machine_tx *tx, const struct holding *holding, uint64_t token,
                         Pb__FenceAnswer *answer) {
    struct slice name = slice_text(holding->name);
    const char *text;
    int rv = queue_holds(tx->store, holding->family, name, token, tx->arena);
    answer->accepted = rv == CO_OK;
    if (rv != CO_NOTFOUND) return rv;
    rv = queue_not_held_text(tx->store, holding->family, name, token, tx->arena, &text);
    if (rv == CO_OK) answer->reason = (char *)(uintptr_t)text;
    return rv;
}

/* By (1). */
static void judge_token(struct machine_tx *tx, const Pb__Fence *fence, uint64_t token, Pb__FenceAnswer *answer) {
    uint64_t restored = machine_restored(tx->store);
    answer->accepted = token >= fence->highest && token >= restored;
    if (answer->accepted) return;
    if (tx->mutations & MUTATE_FENCE_LOWERS) answer->accepted = true;
    answer->reason =
        token < fence->highest
            ? arena_printf(tx->arena, "token %llu is below %llu, which was accepted before", (unsigned long long)token,
                           (unsigned long long)fence->highest)
            : arena_printf(tx->arena, "token %llu is of before a backup was restored: acquire the lock anew",
                           (unsigned long long)token);
}

static void fence_put(struct machine_tx *tx, const char *resource, Pb__Fence *fence, uint64_t token) {
    fence->highest = token, fence->modify_index = tx->index;
    store_put(tx->store, FENCE_TABLE, slice_text(resource), message_pack(tx->arena, &fence->base));
    machine_touch(tx, SPACE_FENCE, slice_text(resource));
}

static int check_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__FenceCheckCommand *command = request;
    const struct holding holding = holding_of(command);
    Pb__Fence *fence;
    Pb__FenceAnswer *answer = arena_alloc(tx->arena, sizeof *answer);
    pb__fence_answer__init(answer);
    int rv = refuse_command(tx, command, result);
    if (rv != CO_OK || result->error) return rv;
    rv = fence_get(tx->store, slice_text(command->resource), tx->arena, &fence);
    if (rv != CO_OK) return rv;
    if (holding.name[0]) rv = judge_holding(tx, &holding, command->token, answer);
    else judge_token(tx, fence, command->token, answer);
    if (rv != CO_OK) return rv;
    bool lowers = tx->mutations & MUTATE_FENCE_LOWERS;
    if (answer->accepted && (command->token > fence->highest || (lowers && command->token < fence->highest)))
        fence_put(tx, command->resource, fence, command->token);
    answer->highest = greater(fence->highest, machine_restored(tx->store));
    result->yes = answer->accepted;
    result->message = &answer->base;
    return CO_OK;
}

/* The answer tells whether, and with which token, the lock is held. */
static int may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__FenceCheckCommand *command = (const Pb__FenceCheckCommand *)request;
    (void)txn;
    int rv = access_require(check, ACCESS_LOCK, slice_text(command->resource), ACCESS_WRITE);
    if (rv != CO_OK || !command->lock[0]) return rv;
    return access_require(check, ACCESS_LOCK, slice_text(command->lock), ACCESS_READ);
}

/* -- the query ---------------------------------------------------------------------------------------------------- */

static struct slice resource_of(const ProtobufCMessage *request) {
    return slice_text(((const Pb__FenceRequest *)request)->resource);
}

static struct watch_key watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_FENCE, resource_of(request)};
}

/* A restore changes the answers for all resources, see (5). */
static int run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
               struct query_result *result) {
    struct slice resource = resource_of(request);
    Pb__Fence *fence;
    *result = (struct query_result){0};
    if (!resource.size || resource.size > FENCE_NAME_MAX) return CO_OK; /* no resource has such a name */
    int rv = fence_get(txn, resource, arena, &fence);
    if (rv != CO_OK || !fence->highest) return rv;
    uint64_t restored = machine_restored(txn);
    Pb__FenceView *view = arena_alloc(arena, sizeof *view);
    pb__fence_view__init(view);
    view->resource = arena_strndup(arena, resource.data, resource.size);
    view->highest = greater(fence->highest, restored);
    view->modify_index = greater(fence->modify_index, restored);
    *result = (struct query_result){.index = view->modify_index, .found = true, .message = &view->base};
    return CO_OK;
}

ACCESS_SHOW_ONE(show, LOCK, Pb__FenceRequest, resource)

const struct query_type query_fence = {.number = 45,
                                       .name = "fence",
                                       .request = &pb__fence_request__descriptor,
                                       .result = &pb__fence_view__descriptor,
                                       .watched = watched,
                                       .run = run,
                                       .show = show};

/* -- the table ---------------------------------------------------------------------------------------------------- */
static const struct module_command commands[] = {
    {.number = FENCE_CHECK,
     .name = "fence-check",
     .request = &pb__fence_check_command__descriptor,
     .result = &pb__fence_answer__descriptor,
     .may = may,
     .apply = check_apply},
    {0},
};
static const struct store_table tables[] = {{FENCE_TABLE, "fences"}, {0}};
static const struct module_space spaces[] = {{SPACE_FENCE, "fence"}, {0}};
static const struct query_type *const queries[] = {&query_fence, NULL};

const struct module fence_module = {
    .name = "fence", .commands = commands, .tables = tables, .spaces = spaces, .queries = queries};
