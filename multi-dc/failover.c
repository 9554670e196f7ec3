/* The records of services that other regions answer for, or may answer for. */
#include "multi-dc/failover.h"

#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/message.h"
#include "registry/access_operator.h"
#include "registry/catalog_access.h"
#include "registry/fold.h"

enum {
    FAILOVER_TABLE = 43,       /* service, folded -> Failover */
    FAILOVER_NAMED_TABLE = 62, /* other service, service -> service; the service's order names the other service */
};
_Static_assert(FAILOVER_SET >= 208 && FAILOVER_HOME < 224, "commands of multi-dc (registry/module.h)");
_Static_assert((int)SPACE_FAILOVER == (int)FOLD_SPACE_FAILOVER, "one list of numbers");

#define WITNESSES 16 /* each has half a KiB, for each thread */

static const struct slice everything = SLICE_LITERAL("");

/* Copies of names, because a change in between would move the cursor's slices. */
struct names {
    struct slice *items;
    size_t count, room;
};
static void names_add(struct names *names, struct arena *arena, struct slice name) {
    if (names->count == names->room) {
        size_t room = names->room ? 2 * names->room : 8;
        struct slice *wider = arena_alloc(arena, room * sizeof *wider);
        if (names->count) memcpy(wider, names->items, names->count * sizeof *wider);
        names->items = wider, names->room = room;
    }
    CHECK(names->count < names->room);
    names->items[names->count++] = slice_copy(arena, name);
}

/* -- records ------------------------------------------------------------------------------------------------------ */
int failover_record(struct store_txn *txn, struct slice service, struct arena *arena, Pb__Failover **record) {
    struct fold_name key;
    struct slice bytes;
    *record = NULL;
    if (!service.size || service.size > FAILOVER_NAME_MAX) return CO_NOTFOUND;
    fold_name_of(&key, service);
    int rv = store_get(txn, FAILOVER_TABLE, key.folded, &bytes);
    fold_name_free(&key);
    if (rv != CO_OK) return rv;
    *record = message_unpack(arena, &pb__failover__descriptor, bytes);
    if (*record) return CO_OK;
    store_fail(txn, CO_CORRUPT);
    return CO_CORRUPT;
}

/* Writes the record, or removes it when it has neither a note nor an order. */
static void record_put(struct machine_tx *tx, Pb__Failover *record) {
    struct fold_name key;
    bool stays = record->away_index || record->n_targets;
    fold_name_of(&key, slice_text(record->service));
    CHECK(!record->back_index || record->away_index);
    record->modify_index = tx->index;
    if (!record->away_index) record->n_rests = 0;
    if (stays) store_put(tx->store, FAILOVER_TABLE, key.folded, message_pack(tx->arena, &record->base));
    else (void)store_del(tx->store, FAILOVER_TABLE, key.folded);
    fold_name_free(&key);
    machine_changed(tx, SPACE_FAILOVER, slice_text(record->service), !stays);
    machine_changed(tx, SPACE_FAILOVER, everything, false);
}

static void set_away(struct machine_tx *tx, Pb__Failover *record, uint64_t away, uint64_t back) {
    CHECK(away <= tx->index && back <= tx->index && (!back || (away && away <= back)));
    record->away_index = away, record->back_index = back;
    record_put(tx, record);
}

/* The witness only says where the search begins, and the result does not depend on it, because witnesses are not part
 * of the state. */
static int healthy(struct store_txn *txn, struct slice service, size_t most, struct arena *arena) {
    static _Thread_local struct catalog_witness witnesses[WITNESSES];
    struct catalog_witness *witness = &witnesses[hash64(service.data, service.size) % WITNESSES];
    return catalog_service_healthy(txn, service, most, arena, witness);
}

/* Does the service have an order, or does another region have the service? */
static bool wanted(struct store_txn *txn, struct slice service, const Pb__Failover *record) {
    return (record && record->n_targets) || copy_service_anywhere(txn, service);
}

static bool is_full(struct store_txn *txn) { return store_count(txn, FAILOVER_TABLE) >= FAILOVER_SERVICES_MAX; }

/* -- going away and coming home ----------------------------------------------------------------------------------- */
/* Does another region have healthy instances? A store that failed fails the entry, whatever this returns. */
static bool others_answer(struct machine_tx *tx, const Pb__Failover *record) {
    if (tx->mutations & MUTATE_FAILOVER_LINGERS) return true;
    return failover_others(tx->store, record, tx->arena) == CO_OK;
}

static bool waits(const Pb__Failover *record) { return record->away_index && record->back_index; }

/* The entry took the service's last healthy instance away. */
static void went(struct machine_tx *tx, struct slice service, Pb__Failover *record) {
    Pb__Failover fresh = PB__FAILOVER__INIT;
    if (!record && is_full(tx->store)) return;
    if (!wanted(tx->store, service, record)) return;
    if (healthy(tx->store, service, 0, tx->arena) != CO_NOTFOUND) return;
    if (!record) fresh.service = arena_strndup(tx->arena, service.data, service.size), record = &fresh;
    set_away(tx, record, tx->index, 0);
}

/* The service is healthy again here. It waits to come home, if another region answers; else it is at home at once. */
static void came_back(struct machine_tx *tx, struct slice service, Pb__Failover *record) {
    if (healthy(tx->store, service, 0, tx->arena) != CO_OK) return;
    if (others_answer(tx, record)) set_away(tx, record, record->away_index, tx->index);
    else set_away(tx, record, 0, 0);
}

/* Another region or service may have lost its last healthy instance: a service that waits then comes home. */
static void others_turned(struct machine_tx *tx, struct slice service) {
    Pb__Failover *record;
    if (failover_record(tx->store, service, tx->arena, &record) != CO_OK || !waits(record)) return;
    if (!others_answer(tx, record)) set_away(tx, record, 0, 0);
}

/* The same for the services whose orders name this other service. */
static void others_turned_by_name(struct machine_tx *tx, struct slice other) {
    char room[STORE_KEY_MAX];
    struct names names = {0};
    struct store_cursor cursor;
    if (!store_count(tx->store, FAILOVER_NAMED_TABLE)) return;
    STORE_PREFIX(&cursor, tx->store, FAILOVER_NAMED_TABLE, fold_key(room, 1, &other))
    names_add(&names, tx->arena, cursor.value);
    store_cursor_close(&cursor);
    for (size_t i = 0; i < names.count; i++) others_turned(tx, names.items[i]);
}

static bool wants_turns(const struct machine_tx *tx) { return region_any(tx->store); }

static void on_turn(struct machine_tx *tx, const struct module_turn *turn) {
    struct slice service = turn->service;
    Pb__Failover *record = NULL;
    bool known = service.size && service.size <= FAILOVER_NAME_MAX;
    int rv = known ? failover_record(tx->store, service, tx->arena, &record) : CO_NOTFOUND;
    bool gone = record && record->away_index && !record->back_index;
    if (known && (rv == CO_OK || rv == CO_NOTFOUND)) {
        if (gone && turn->gained) came_back(tx, service, record);
        else if (!gone && turn->lost) went(tx, service, record);
    }
}

/* -- other regions ------------------------------------------------------------------------------------------------ */
/* The place of the region's rest; SIZE_MAX: it has none. */
static size_t rest_at(const Pb__Failover *record, const char *region) {
    for (size_t i = 0; i < record->n_rests; i++)
        if (strcmp(record->rests[i]->region, region) == 0) return i;
    return SIZE_MAX;
}

static Pb__FailoverRest *rest_add(struct machine_tx *tx, Pb__Failover *record, const char *region) {
    Pb__FailoverRest *rest = arena_alloc(tx->arena, sizeof *rest),
                     **wider = arena_alloc(tx->arena, (record->n_rests + 1) * sizeof(Pb__FailoverRest *));
    pb__failover_rest__init(rest);
    rest->region = (char *)(uintptr_t)region;
    if (record->n_rests) memcpy(wider, record->rests, record->n_rests * sizeof *wider);
    CHECK(record->n_rests < REGIONS_MAX);
    wider[record->n_rests++] = rest;
    record->rests = wider;
    return rest;
}

/* False: the rest is noted already, or there is no room. */
static bool rest_note(struct machine_tx *tx, Pb__Failover *record, const char *region) {
    size_t at = rest_at(record, region);
    Pb__FailoverRest *rest = at == SIZE_MAX ? NULL : record->rests[at];
    if (rest ? !rest->back_index : record->n_rests == REGIONS_MAX) return false;
    if (!rest) rest = rest_add(tx, record, region);
    CHECK(record->away_index && record->n_rests <= REGIONS_MAX);
    rest->away_index = tx->index, rest->back_index = 0;
    return true;
}

static void lost_there(struct machine_tx *tx, const char *region, Pb__Failover *record) {
    struct copy_wish all = {.service = slice_text(record->service)};
    bool none = copy_service_healthy(tx->store, region, &all, tx->arena, NULL) == CO_NOTFOUND,
         noted = none && rest_note(tx, record, region);
    bool may_end = waits(record) && (none || record->n_targets); /* an order may ask for certain tags */
    if (may_end && !others_answer(tx, record)) set_away(tx, record, 0, 0);
    else if (noted) record_put(tx, record);
}

void failover_lost_there(struct machine_tx *tx, const char *region, struct slice service) {
    Pb__Failover *record;
    if (failover_record(tx->store, service, tx->arena, &record) == CO_OK && record->away_index)
        lost_there(tx, region, record);
    others_turned_by_name(tx, service);
}

void failover_copy_turned(struct machine_tx *tx) {
    struct names names = {0};
    struct store_cursor cursor;
    STORE_PREFIX(&cursor, tx->store, FAILOVER_TABLE, everything) {
        const Pb__Failover *record = message_unpack(tx->arena, &pb__failover__descriptor, cursor.value);
        if (!record) store_fail(tx->store, CO_CORRUPT);
        else if (waits(record)) names_add(&names, tx->arena, slice_text(record->service));
    }
    store_cursor_close(&cursor);
    for (size_t i = 0; i < names.count; i++) others_turned(tx, names.items[i]);
}

/* CO_OK: the service is healthy there, or gone, which ends the rest too. CO_NOTFOUND: neither. */
static int rest_over(struct store_txn *txn, const char *region, struct slice service, struct arena *arena) {
    struct copy_wish all = {.service = service};
    bool there;
    int rv = copy_service_healthy(txn, region, &all, arena, &there);
    return rv == CO_NOTFOUND && !there ? CO_OK : rv;
}

/* -- commands ----------------------------------------------------------------------------------------------------- */
static const char *fault_of(const Pb__FailoverSetCommand *command) {
    if (!command->service[0] || strlen(command->service) > FAILOVER_NAME_MAX)
        return "the service has no name, or one that is too long";
    if (command->n_targets > FAILOVER_TARGETS_MAX) return "a service has 16 targets at most";
    for (size_t i = 0; i < command->n_targets; i++) {
        const Pb__FailoverTarget *target = command->targets[i];
        if (strlen(target->service) > FAILOVER_NAME_MAX || target->n_tags > FAILOVER_TAGS_MAX ||
            target->n_regions > REGIONS_MAX)
            return "a target has a name that is too long, or too many tags or regions";
        for (size_t k = 0; k < target->n_tags; k++)
            if (!target->tags[k][0] || strlen(target->tags[k]) > FAILOVER_NAME_MAX)
                return "a tag is empty, or too long";
        for (size_t k = 0; k < target->n_regions; k++)
            if (!region_name_good(target->regions[k])) return "a target's region is no name of a region";
    }
    return NULL;
}

/* Writes or removes a row for each other service that the order names, by which others_turned_by_name finds the
 * record. */
static void name_others(struct machine_tx *tx, const Pb__Failover *record, bool there) {
    char room[STORE_KEY_MAX];
    for (size_t i = 0; i < record->n_targets; i++) {
        if (!record->targets[i]->service[0]) continue;
        const struct slice both[] = {slice_text(record->targets[i]->service), slice_text(record->service)};
        struct slice key = fold_key(room, 2, both);
        if (there) store_put(tx->store, FAILOVER_NAMED_TABLE, key, both[1]);
        else (void)store_del(tx->store, FAILOVER_NAMED_TABLE, key);
    }
}

static int set(struct machine_tx *tx, void *request, struct machine_result *result) {
    Pb__FailoverSetCommand *command = request;
    struct slice service = slice_text(command->service);
    const char *fault = fault_of(command);
    if (fault) return machine_refuse(result, CO_INVALID, fault);
    Pb__Failover fresh = PB__FAILOVER__INIT, *record;
    int rv = failover_record(tx->store, service, tx->arena, &record);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    result->yes = true;
    if (!record && !command->n_targets) return CO_OK;
    if (!record && is_full(tx->store))
        return machine_refuse(result, CO_TOOLARGE, "10000 services are on record already");
    if (!record) fresh.service = command->service, record = &fresh;
    bool from_home = waits(record) && failover_names_home(tx->store, record, tx->arena);
    name_others(tx, record, false);
    record->targets = command->targets, record->n_targets = command->n_targets;
    name_others(tx, record, true);
    if (waits(record) && (from_home || !others_answer(tx, record))) record->away_index = record->back_index = 0;
    record_put(tx, record);
    return CO_OK;
}

static int home_there(struct machine_tx *tx, const Pb__FailoverHomeCommand *command, Pb__Failover *record,
                      struct machine_result *result) {
    size_t at = record ? rest_at(record, command->region) : SIZE_MAX;
    Pb__FailoverRest *rest = at == SIZE_MAX ? NULL : record->rests[at];
    if (!rest || rest->away_index != command->away_index || rest->back_index != command->back_index)
        return machine_refuse(result, CO_CONFLICT, "it is not at rest there, or went again");
    int rv = rest_over(tx->store, command->region, slice_text(command->service), tx->arena);
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_CONFLICT, "it has no healthy instances there");
    if (rv != CO_OK) return rv;
    result->yes = true;
    if (!rest->back_index) rest->back_index = tx->index;
    else record->rests[at] = record->rests[--record->n_rests];
    record_put(tx, record);
    return CO_OK;
}

static int home(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__FailoverHomeCommand *command = request;
    struct slice service = slice_text(command->service);
    Pb__Failover *record;
    int rv = failover_record(tx->store, service, tx->arena, &record);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (command->region[0]) return home_there(tx, command, record, result);
    if (!record || !record->away_index || record->away_index != command->away_index ||
        record->back_index != command->back_index)
        return machine_refuse(result, CO_CONFLICT, "it is not away, or went again");
    bool matters = wanted(tx->store, service, record);
    rv = matters ? healthy(tx->store, service, 0, tx->arena) : CO_OK;
    if (rv == CO_NOTFOUND) return machine_refuse(result, CO_CONFLICT, "it has no healthy instances here");
    if (rv != CO_OK) return rv;
    result->yes = true;
    set_away(tx, record, 0, 0);
    return CO_OK;
}

/* -- records in queries ------------------------------------------------------------------------------------------- */
static int state_of(struct store_txn *txn, struct arena *arena, Pb__Failover *record, Pb__FailoverState **out) {
    Pb__FailoverState *state = *out = arena_alloc(arena, sizeof *state);
    pb__failover_state__init(state);
    state->record = record;
    int rv = healthy(txn, slice_text(record->service), 0, arena);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    state->healthy = rv == CO_OK;
    state->wanted = wanted(txn, slice_text(record->service), record);
    return CO_OK;
}

static int rests_of(struct store_txn *txn, struct arena *arena, Pb__FailoverState *state) {
    const Pb__Failover *record = state->record;
    state->rests_over = arena_alloc(arena, (record->n_rests + 1) * sizeof *state->rests_over);
    for (size_t i = 0; i < record->n_rests; i++) {
        int rv = rest_over(txn, record->rests[i]->region, slice_text(record->service), arena);
        if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
        CHECK(state->n_rests_over < record->n_rests);
        state->rests_over[state->n_rests_over++] = rv == CO_OK;
    }
    return CO_OK;
}

void failover_show(struct access_check *check, Pb__Failover *record) {
    ACCESS_KEEP_ROWS(record->n_targets, record->targets,
                     !row->service[0] || access_shows(check, ACCESS_SERVICE, slice_text(row->service)));
}

static int failovers_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                          struct query_result *result) {
    Pb__FailoversResult *records = (Pb__FailoversResult *)(uintptr_t)result->message;
    (void)txn, (void)request;
    ACCESS_KEEP_ROWS(records->n_failovers, records->failovers,
                     access_shows(check, ACCESS_SERVICE, slice_text(row->record->service)));
    for (size_t i = 0; i < records->n_failovers; i++) failover_show(check, records->failovers[i]->record);
    return CO_OK;
}

/* One that is hidden is answered as one that is not there, because reads of instances ask for it first. */
static int failover_show_one(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                             struct query_result *result) {
    Pb__FailoverResult *records = (Pb__FailoverResult *)(uintptr_t)result->message;
    (void)txn;
    if (!catalog_shows_service(check, ((const Pb__FailoverRequest *)request)->service, result)) {
        records->state = NULL;
        result->found = false;
    }
    if (records->state) failover_show(check, records->state->record);
    return CO_OK;
}

static struct watch_key failovers_watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_FAILOVER, everything};
}

static int failovers_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                         struct query_result *result) {
    (void)request;
    Pb__FailoversResult *records = arena_alloc(arena, sizeof *records);
    pb__failovers_result__init(records);
    records->failovers = arena_alloc(arena, (store_count(txn, FAILOVER_TABLE) + 1) * sizeof *records->failovers);
    struct store_cursor cursor;
    int error = CO_OK;
    STORE_PREFIX(&cursor, txn, FAILOVER_TABLE, everything) {
        Pb__Failover *record = message_unpack(arena, &pb__failover__descriptor, cursor.value);
        Pb__FailoverState **state = &records->failovers[records->n_failovers];
        error = record ? state_of(txn, arena, record, state) : CO_CORRUPT;
        if (!error) error = rests_of(txn, arena, *state);
        if (error) break;
        records->n_failovers++;
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
                                           .run = failovers_run,
                                           .show = failovers_show};

static struct watch_key failover_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_FAILOVER, slice_text(((const Pb__FailoverRequest *)request)->service)};
}

/* `healthy` changes with the service. */
static struct watch_key failover_also(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_SERVICE, slice_text(((const Pb__FailoverRequest *)request)->service)};
}

static int failover_run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                        struct query_result *result) {
    const Pb__FailoverRequest *request = (const Pb__FailoverRequest *)message;
    Pb__FailoverResult *records = arena_alloc(arena, sizeof *records);
    Pb__Failover *record;
    pb__failover_result__init(records);
    struct watch_key key = failover_watched(message);
    int rv = failover_record(txn, slice_text(request->service), arena, &record);
    if (rv == CO_OK) rv = state_of(txn, arena, record, &records->state);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    *result = (struct query_result){
        .index = machine_change_index(txn, key.space, key.name), .found = records->state, .message = &records->base};
    return CO_OK;
}

const struct query_type query_failover = {.number = 219,
                                          .name = "failover",
                                          .discovery = true,
                                          .request = &pb__failover_request__descriptor,
                                          .result = &pb__failover_result__descriptor,
                                          .watched = failover_watched,
                                          .run = failover_run,
                                          .show = failover_show_one,
                                          .also = failover_also};

/* -- the table ---------------------------------------------------------------------------------------------------- */
static const struct module_command commands[] = {
    {.number = FAILOVER_SET,
     .name = "failover-set",
     .request = &pb__failover_set_command__descriptor,
     .may = access_operator_may,
     .apply = set},
    {.number = FAILOVER_HOME,
     .servers_only = true,
     .name = "failover-home",
     .request = &pb__failover_home_command__descriptor,
     .apply = home},
    {0},
};
static const struct store_table tables[] = {
    {FAILOVER_TABLE, "failovers"}, {FAILOVER_NAMED_TABLE, "failovers-named"}, {0}};
static const struct module_space spaces[] = {{SPACE_FAILOVER, "failover"}, {0}};
static const struct query_type *const queries[] = {&query_failovers, &query_failover, &query_answer, &query_explain,
                                                   NULL};

const struct module failover_module = {.name = "failover",
                                       .commands = commands,
                                       .tables = tables,
                                       .spaces = spaces,
                                       .queries = queries,
                                       .on_turn = on_turn,
                                       .wants_turns = wants_turns};
