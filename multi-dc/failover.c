#include "multi-dc/failover.h"

#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/message.h"
#include "registry/fold.h"

enum { FAILOVER_TABLE = 43 }; /* service, folded -> Failover */
_Static_assert(FAILOVER_SET >= 208 && FAILOVER_HOME < 224, "commands of multi-dc (registry/module.h)");
_Static_assert(SPACE_FAILOVER >= 112 && SPACE_FAILOVER < 120, "a space of multi-dc");

#define NAME_BYTES 256
#define TAGS_MOST  16
#define WITNESSES  16 /* of half a KiB, for each thread */

static const struct slice everything = SLICE_LITERAL("");

/* -- records ------------------------------------------------------------------------------------------------------ */
static int record_get(struct store_txn *txn, struct slice service, struct arena *arena, Pb__Failover **record) {
    struct fold_name key;
    struct slice bytes;
    fold_name_of(&key, service);
    int rv = store_get(txn, FAILOVER_TABLE, key.folded, &bytes);
    fold_name_free(&key);
    if (rv != CO_OK) return rv;
    *record = message_unpack(arena, &pb__failover__descriptor, bytes);
    return *record ? CO_OK : CO_CORRUPT;
}

/* One that says nothing any more goes. */
static void record_put(struct machine_tx *tx, Pb__Failover *record) {
    struct fold_name key;
    fold_name_of(&key, slice_text(record->service));
    record->modify_index = tx->index;
    if (record->away || record->n_targets)
        store_put(tx->store, FAILOVER_TABLE, key.folded, message_pack(tx->arena, &record->base));
    else (void)store_del(tx->store, FAILOVER_TABLE, key.folded);
    fold_name_free(&key);
    machine_changed(tx, SPACE_FAILOVER, everything, false);
}

/* Whether it is healthy does not depend on where the search begins: what is remembered is not part of the state. */
static int healthy(struct store_txn *txn, struct slice service, struct arena *arena) {
    static _Thread_local struct catalog_witness witnesses[WITNESSES];
    return catalog_service_healthy(txn, service, arena, &witnesses[hash64(service.data, service.size) % WITNESSES]);
}

/* -- going away --------------------------------------------------------------------------------------------------- */
static void on_service(struct machine_tx *tx, struct slice service) {
    if (machine_tx_version(tx) < FAILOVER_SINCE || !region_any(tx->store)) return;
    if (!service.size || service.size >= NAME_BYTES) return;
    if (healthy(tx->store, service, tx->arena) != CO_NOTFOUND) return;
    Pb__Failover fresh = PB__FAILOVER__INIT, *record = &fresh;
    int rv = record_get(tx->store, service, tx->arena, &record);
    if (rv == CO_NOTFOUND && store_count(tx->store, FAILOVER_TABLE) >= FAILOVER_SERVICES_MAX) return;
    if (rv == CO_NOTFOUND) fresh.service = arena_strndup(tx->arena, service.data, service.size), record = &fresh;
    else if (rv != CO_OK) return;
    record->away = tx->index;
    record_put(tx, record);
}

/* -- commands ----------------------------------------------------------------------------------------------------- */
static const char *fault_of(const Pb__FailoverSetCommand *command) {
    if (!command->service[0] || strlen(command->service) >= NAME_BYTES)
        return "the service has no name, or one that is too long";
    if (command->n_targets > FAILOVER_TARGETS_MAX) return "a service has 16 targets at most";
    for (size_t i = 0; i < command->n_targets; i++) {
        const Pb__FailoverTarget *target = command->targets[i];
        if (strlen(target->service) >= NAME_BYTES || target->n_tags > TAGS_MOST || target->n_regions > REGIONS_MAX)
            return "a target has a name that is too long, or too many tags or regions";
        for (size_t k = 0; k < target->n_tags; k++)
            if (!target->tags[k][0] || strlen(target->tags[k]) >= NAME_BYTES) return "a tag is empty, or too long";
        for (size_t k = 0; k < target->n_regions; k++)
            if (!region_name_good(target->regions[k])) return "a target's region is no name of a region";
    }
    return NULL;
}

static int set(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__FailoverSetCommand *command = request;
    const char *fault = fault_of(command);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    Pb__Failover fresh = PB__FAILOVER__INIT, *record = &fresh;
    int rv = record_get(tx->store, slice_text(command->service), tx->arena, &record);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (rv == CO_NOTFOUND) fresh.service = command->service, record = &fresh;
    result->yes = true;
    record->targets = command->targets, record->n_targets = command->n_targets;
    record_put(tx, record);
    return CO_OK;
}

static int home(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__FailoverHomeCommand *command = request;
    Pb__Failover *record = NULL;
    int rv = record_get(tx->store, slice_text(command->service), tx->arena, &record);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (!record || !command->away || record->away != command->away)
        return machine_refuse(result, CO_CONFLICT, "it is not away, or went again");
    rv = healthy(tx->store, slice_text(command->service), tx->arena);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_CONFLICT, "it has no healthy instances here");
    if (rv != CO_OK) return rv;
    result->yes = true;
    record->away = 0;
    record_put(tx, record);
    return CO_OK;
}

/* -- what is on record -------------------------------------------------------------------------------------------- */
static struct watch_key failovers_watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_FAILOVER, everything};
}

static int add_state(struct store_txn *txn, struct arena *arena, struct slice bytes, Pb__FailoversResult *records) {
    Pb__FailoverState *state = arena_alloc(arena, sizeof *state);
    pb__failover_state__init(state);
    state->record = message_unpack(arena, &pb__failover__descriptor, bytes);
    if (!state->record) return CO_CORRUPT;
    int rv = state->record->away ? healthy(txn, slice_text(state->record->service), arena) : CO_OK;
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    state->healthy = rv == CO_OK;
    records->failovers[records->n_failovers++] = state;
    return CO_OK;
}

static int failovers_run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                         struct query_result *result) {
    const Pb__FailoversRequest *request = (const Pb__FailoversRequest *)message;
    Pb__FailoversResult *records = arena_alloc(arena, sizeof *records);
    pb__failovers_result__init(records);
    records->failovers = arena_alloc(arena, (store_count(txn, FAILOVER_TABLE) + 1) * sizeof *records->failovers);
    struct store_cursor cursor;
    int error = CO_OK;
    STORE_PREFIX(&cursor, txn, FAILOVER_TABLE, everything) {
        if (request->service[0] && !slice_equal_nocase(cursor.key, slice_text(request->service))) continue;
        error = add_state(txn, arena, cursor.value, records);
        if (error) break;
    }
    store_cursor_close(&cursor);
    *result = (struct query_result){
        .index = machine_change_index(txn, SPACE_FAILOVER, everything), .found = true, .message = &records->base};
    return error;
}

const struct query_type query_failovers = {.number = 217,
                                           .name = "failovers",
                                           .request = &pb__failovers_request__descriptor,
                                           .result = &pb__failovers_result__descriptor,
                                           .watched = failovers_watched,
                                           .run = failovers_run};

/* -- the answer --------------------------------------------------------------------------------------------------- */
static struct slice answer_service(const ProtobufCMessage *message) {
    return slice_text(((const Pb__AnswerRequest *)message)->service);
}
static struct watch_key answer_watched(const ProtobufCMessage *message) {
    return (struct watch_key){SPACE_SERVICE, answer_service(message)};
}
/* Targets of other names are not among them: what they have matters only when it is time to go, which an own key tells. */
static struct watch_key answer_own(const ProtobufCMessage *message, size_t i) {
    const struct watch_key keys[] = {{SPACE_COPY_SERVICE, answer_service(message)},
                                     {SPACE_COPY_FLIP, everything},
                                     {SPACE_FAILOVER, everything},
                                     {SPACE_REGIONS, everything}};
    return i < ARRAY_COUNT(keys) ? keys[i] : (struct watch_key){0};
}

static int ask_global(struct store_txn *txn, const Pb__AnswerRequest *request, const Pb__FailoverTarget *target,
                      char *const *regions, size_t count, struct arena *arena, Pb__GlobalServiceRegion **found,
                      uint64_t *index) {
    Pb__GlobalRequest ask = PB__GLOBAL_REQUEST__INIT;
    struct query_result result = {0};
    bool same = !target || !target->service[0];
    ask.service = same ? request->service : target->service;
    ask.tags = same && !(target && target->n_tags) ? request->tags : target->tags;
    ask.n_tags = same && !(target && target->n_tags) ? request->n_tags : target->n_tags;
    ask.passing_only = request->passing_only, ask.nearest = true;
    ask.regions = (char **)(uintptr_t)regions, ask.n_regions = count;
    int error = query_global.run(txn, &ask.base, arena, &result);
    if (error) return error;
    const Pb__GlobalServiceResult *records = (const Pb__GlobalServiceResult *)result.message;
    if (result.index > *index) *index = result.index;
    *found = records->n_regions ? records->regions[0] : NULL;
    return CO_OK;
}

/* The first target that has healthy instances. *service: its name of it. */
static int elsewhere(struct store_txn *txn, const Pb__AnswerRequest *request, const Pb__Failover *order,
                     struct arena *arena, Pb__GlobalServiceRegion **found, char **service, uint64_t *index) {
    int error = CO_OK;
    *service = request->service;
    if (!order || !order->n_targets) return ask_global(txn, request, NULL, NULL, 0, arena, found, index);
    for (size_t i = 0; i < order->n_targets && !error && !*found; i++) {
        const Pb__FailoverTarget *target = order->targets[i];
        *service = target->service[0] ? target->service : request->service;
        if (!target->n_regions) error = ask_global(txn, request, target, NULL, 0, arena, found, index);
        for (size_t k = 0; k < target->n_regions && !error && !*found; k++)
            error = ask_global(txn, request, target, &target->regions[k], 1, arena, found, index);
    }
    return error;
}

static int here(struct store_txn *txn, const Pb__AnswerRequest *request, struct arena *arena,
                Pb__GlobalServiceRegion **found, bool *any, uint64_t *index) {
    Pb__ServiceRequest ask = PB__SERVICE_REQUEST__INIT;
    struct query_result result = {0};
    ask.service = request->service, ask.tags = request->tags, ask.n_tags = request->n_tags;
    ask.passing_only = request->passing_only, ask.held = true;
    int error = query_service_entries.run(txn, &ask.base, arena, &result);
    if (error) return error;
    const Pb__ServiceEntriesResult *entries = (const Pb__ServiceEntriesResult *)result.message;
    *found = arena_alloc(arena, sizeof **found);
    pb__global_service_region__init(*found);
    (*found)->region = request->own;
    if (entries) (*found)->entries = entries->entries, (*found)->n_entries = entries->n_entries;
    *index = result.index;
    for (size_t i = 0; i < (*found)->n_entries && !*any; i++) {
        Pb__Status status = catalog_entry_status((*found)->entries[i]);
        *any = status == PB__STATUS__PASSING || status == PB__STATUS__WARNING;
    }
    return CO_OK;
}

static int answer_run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                      struct query_result *result) {
    const Pb__AnswerRequest *request = (const Pb__AnswerRequest *)message;
    Pb__AnswerResult *answer = arena_alloc(arena, sizeof *answer);
    pb__answer_result__init(answer);
    Pb__GlobalServiceRegion *own = NULL, *other = NULL;
    Pb__Failover *record = NULL;
    bool any = false;
    uint64_t index = 0, orders = machine_change_index(txn, SPACE_FAILOVER, everything);
    int error = here(txn, request, arena, &own, &any, &index);
    int rv = error ? error : record_get(txn, slice_text(request->service), arena, &record);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (orders > index) index = orders;
    answer->from = own, answer->service = request->service;
    answer->none_here = !any, answer->away = any && record && record->away;
    if (answer->none_here || answer->away) {
        char *service;
        error = elsewhere(txn, request, record, arena, &other, &service, &index);
        if (error) return error;
        if (other) answer->from = other, answer->service = service;
    }
    *result = (struct query_result){.index = index, .found = true, .message = &answer->base};
    return CO_OK;
}

const struct query_type query_answer = {.number = 218,
                                        .name = "answer",
                                        .discovery = true,
                                        .request = &pb__answer_request__descriptor,
                                        .result = &pb__answer_result__descriptor,
                                        .watched = answer_watched,
                                        .run = answer_run,
                                        .own = answer_own};

/* -- the table ---------------------------------------------------------------------------------------------------- */
static const struct module_command commands[] = {
    {.number = FAILOVER_SET,
     .since = FAILOVER_SINCE,
     .name = "failover-set",
     .request = &pb__failover_set_command__descriptor,
     .apply = set},
    {.number = FAILOVER_HOME,
     .since = FAILOVER_SINCE,
     .servers_only = true,
     .name = "failover-home",
     .request = &pb__failover_home_command__descriptor,
     .apply = home},
    {0},
};
static const struct store_table tables[] = {{FAILOVER_TABLE, "failovers"}, {0}};
static const struct module_space spaces[] = {{SPACE_FAILOVER, "failover"}, {0}};
static const struct query_type *const queries[] = {&query_failovers, &query_answer, NULL};

const struct module failover_module = {.name = "failover",
                                       .commands = commands,
                                       .tables = tables,
                                       .spaces = spaces,
                                       .queries = queries,
                                       .on_service = on_service};
