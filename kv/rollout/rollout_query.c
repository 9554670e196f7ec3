/* Queries of callers, for their version, and of operators. */
#include <stdlib.h>
#include <string.h>

#include "kv/rollout/rollout_internal.h"
#include "registry/catalog.h"
#include "registry/module_access.h"

static struct slice request_name(const ProtobufCMessage *request) {
    return slice_text(((const Pb__RolloutRequest *)request)->name);
}

static uint64_t newer(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* -- the version of a caller -------------------------------------------------------------------------------------- */

static struct watch_key caller_key(const ProtobufCMessage *request, size_t i) {
    const Pb__RolloutCaller *caller = (const Pb__RolloutCaller *)request;
    if (i >= caller->n_keys) return (struct watch_key){0};
    return (struct watch_key){i ? SPACE_ROLLOUT_MATCH : SPACE_ROLLOUT_CALLER, message_slice(caller->keys[i])};
}
/* A request without keys waits for a key that nothing touches. */
static struct watch_key caller_watched(const ProtobufCMessage *request) {
    struct watch_key key = caller_key(request, 0);
    return key.space ? key : (struct watch_key){SPACE_ROLLOUT_CALLER, slice_make("", 0)};
}
static struct watch_key caller_own(const ProtobufCMessage *request, size_t i) { return caller_key(request, i + 1); }

/* A percentage splits callers by chance, so the reason is a split on both sides of it. */
static Pb__RolloutReason reason_of(const Pb__RolloutStage *stage, bool in_stage) {
    const Pb__RolloutMatch *match = stage ? stage->match : NULL;
    bool matches = match && (match->n_tags || match->n_nodes || match->n_regions);
    if (!stage || (matches && !in_stage)) return PB__ROLLOUT_REASON__ROLLOUT_REASON_STATIC;
    return matches ? PB__ROLLOUT_REASON__ROLLOUT_REASON_MATCH : PB__ROLLOUT_REASON__ROLLOUT_REASON_SPLIT;
}

static void stage_seen(Pb__RolloutResolution *out, const Pb__RolloutStage *stage, struct arena *arena) {
    out->stage = arena_alloc(arena, sizeof *out->stage);
    pb__rollout_seen__init(out->stage);
    out->stage->version = stage->version, out->stage->percent = rollout_percent(stage->buckets);
    out->stage->paused = stage->paused;
}

/* CO_NOTFOUND: there is no current version. */
static int resolve(struct store_txn *txn, const Pb__RolloutRecord *record, const Pb__RolloutCaller *caller,
                   struct arena *arena, Pb__RolloutResolution *out) {
    const Pb__KvEntry *document;
    struct slice name = slice_text(record->name);
    bool in_stage = rollout_in_stage(record->stage, caller);
    pb__rollout_resolution__init(out);
    if (!record->current[0]) return CO_NOTFOUND;
    out->name = record->name;
    out->version = in_stage ? record->stage->version : record->current;
    out->reason = reason_of(record->stage, in_stage);
    if (in_stage) stage_seen(out, record->stage, arena);
    out->index = rollout_seen_since(record, caller);
    int rv = rollout_document(txn, arena, name, slice_text(out->version), &document);
    if (rv != CO_OK) return rv;
    out->missing = !document;
    if (document) out->document = document->value;
    /* A client may have written the key since. */
    uint64_t written =
        document ? document->modify_index
                 : machine_change_index(txn, SPACE_KEY, rollout_document_key(arena, name, slice_text(out->version)));
    out->index = newer(out->index, written);
    return CO_OK;
}

static int caller_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    Pb__RolloutCaller caller = *(const Pb__RolloutCaller *)request;
    Pb__RolloutRecord *record;
    Pb__RolloutResolution *out = arena_alloc(arena, sizeof *out);
    *result = (struct query_result){0};
    int rv = rollout_get(txn, slice_text(caller.name), arena, &record);
    if (rv == CO_OK) rv = resolve(txn, record, &caller, arena, out);
    if (rv == CO_NOTFOUND) result->index = machine_change_index(txn, SPACE_ROLLOUT_CALLER, slice_text(caller.name));
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    *result = (struct query_result){.index = out->index, .found = true, .message = &out->base};
    return CO_OK;
}

ACCESS_SHOW_ONE(caller_show, ROLLOUT, Pb__RolloutCaller, name)

const struct query_type query_rollout = {.number = 144,
                                         .name = "rollout",
                                         .request = &pb__rollout_caller__descriptor,
                                         .result = &pb__rollout_resolution__descriptor,
                                         .watched = caller_watched,
                                         .run = caller_run,
                                         .show = caller_show,
                                         .own = caller_own};

/* -- all versions of a caller ------------------------------------------------------------------------------------- */

/* Pointers in an arena, grown by doubling. */
struct items {
    void **items;
    size_t count, room;
};

static void list_add(struct items *list, struct arena *arena, void *item) {
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 16;
        void **wider = arena_alloc(arena, list->room * sizeof *wider);
        if (list->count) memcpy(wider, list->items, list->count * sizeof *wider);
        list->items = wider;
    }
    list->items[list->count++] = item;
}

static int record_decode(struct slice bytes, struct arena *arena, Pb__RolloutRecord **record) {
    *record = machine_decode(&pb__rollout_record__descriptor, bytes, arena);
    return *record ? CO_OK : CO_CORRUPT;
}

static struct watch_key list_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_ROLLOUT | WATCH_PREFIX_BIT,
                              slice_text(((const Pb__RolloutListRequest *)request)->prefix)};
}

static struct watch_key all_watched(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_ROLLOUT | WATCH_PREFIX_BIT, slice_make("", 0)};
}

/* `check`: NULL, or only the rollouts that it shows. */
static int all_read(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct access_check *check, struct query_result *result) {
    Pb__RolloutCaller caller = *(const Pb__RolloutCaller *)request;
    Pb__RolloutResolutions *all = arena_alloc(arena, sizeof *all);
    struct items found = {0};
    struct store_cursor cursor;
    struct slice head = SLICE_LITERAL("r");
    size_t bytes = 0;
    int rv = CO_OK;
    pb__rollout_resolutions__init(all);
    *result = (struct query_result){
        .found = true, .message = &all->base, .index = machine_change_index(txn, SPACE_ROLLOUT, slice_make("", 0))};
    STORE_PREFIX(&cursor, txn, ROLLOUT_TABLE, head) {
        Pb__RolloutRecord *record;
        Pb__RolloutResolution *out = arena_alloc(arena, sizeof *out);
        rv = record_decode(cursor.value, arena, &record);
        if (rv != CO_OK) break;
        caller.name = record->name;
        result->index = newer(result->index, record->modify_index);
        if (check && !access_shows(check, ACCESS_ROLLOUT, slice_text(record->name))) continue;
        rv = resolve(txn, record, &caller, arena, out);
        if (rv == CO_NOTFOUND) continue;
        if (rv != CO_OK) break;
        bytes += out->document.len;
        all->too_much = bytes > ROLLOUT_BULK_MOST;
        if (all->too_much) break;
        list_add(&found, arena, out);
    }
    store_cursor_close(&cursor);
    all->rollouts = (Pb__RolloutResolution **)found.items, all->n_rollouts = found.count;
    return rv == CO_NOTFOUND ? CO_OK : rv;
}

static int all_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                   struct query_result *result) {
    return all_read(txn, request, arena, NULL, result);
}

/* Reads anew: documents that may not be read do not count for the size of the answer. */
static int all_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                    struct query_result *result) {
    return all_read(txn, request, check->arena, check, result);
}

const struct query_type query_rollout_all = {.number = 145,
                                             .name = "rollout-all",
                                             .request = &pb__rollout_caller__descriptor,
                                             .result = &pb__rollout_resolutions__descriptor,
                                             .watched = all_watched,
                                             .run = all_run,
                                             .show = all_show};

/* -- the state ---------------------------------------------------------------------------------------------------- */

/* The stage goes on by itself when its hold is over. */
static Pb__RolloutNext *next_of(const Pb__RolloutStage *stage, struct arena *arena) {
    if (!stage->armed || stage->position >= stage->n_steps) return NULL;
    Pb__RolloutNext *next = arena_alloc(arena, sizeof *next);
    bool last = stage->position + 1 == stage->n_steps;
    pb__rollout_next__init(next);
    next->percent = last ? 100 : stage->steps[stage->position + 1]->percent;
    next->time_unix_ms = stage->armed_unix_ms + stage->steps[stage->position]->hold_ns / 1000000;
    return next;
}

static Pb__RolloutStageView *stage_view(const Pb__RolloutStage *stage, struct arena *arena) {
    Pb__RolloutStageView *view = arena_alloc(arena, sizeof *view);
    pb__rollout_stage_view__init(view);
    view->version = stage->version, view->percent = rollout_percent(stage->buckets);
    view->match = stage->match, view->steps = stage->steps, view->n_steps = stage->n_steps;
    view->position = stage->position, view->paused = stage->paused, view->reason = stage->reason;
    view->guard = stage->guard, view->began = stage->began, view->comment = stage->comment;
    view->began_unix_ms = stage->began_unix_ms, view->since_unix_ms = stage->since_unix_ms;
    view->paused_unix_ms = stage->paused_unix_ms, view->next = next_of(stage, arena);
    return view;
}

Pb__RolloutState *rollout_state(const Pb__RolloutRecord *record, struct arena *arena) {
    Pb__RolloutState *state = arena_alloc(arena, sizeof *state);
    pb__rollout_state__init(state);
    state->name = record->name, state->current = record->current, state->comment = record->comment;
    if (record->n_before) state->previous = record->before[record->n_before - 1];
    if (record->stage) state->stage = stage_view(record->stage, arena);
    state->current_unix_ms = record->current_unix_ms;
    state->create_index = record->create_index, state->modify_index = record->modify_index;
    return state;
}

static int pointer_read(struct store_txn *txn, struct arena *arena, Pb__RolloutState *state) {
    const Pb__KvEntry *pointer;
    int rv = rollout_document(txn, arena, slice_text(state->name), SLICE_LITERAL("current"), &pointer);
    if (rv != CO_OK) return rv;
    struct slice says = pointer ? message_slice(pointer->value) : slice_make("", 0);
    static char removed[] = "somebody has removed it", invalid[] = "what it says is no version's name";
    bool wrong = state->current[0] && !slice_is(says, state->current);
    if (wrong && !pointer) state->pointer_fault = removed;
    else if (wrong && !rollout_name_fits(says, true)) state->pointer_fault = invalid;
    else if (wrong) state->pointer = (char *)(uintptr_t)slice_copy(arena, says).data;
    return CO_OK;
}

static Pb__RolloutVersionCount *count_of(struct items *counts, struct arena *arena, struct slice version) {
    for (size_t i = 0; i < counts->count; i++) {
        Pb__RolloutVersionCount *count = counts->items[i];
        if (slice_is(version, count->version)) return count;
    }
    Pb__RolloutVersionCount *count = arena_alloc(arena, sizeof *count);
    pb__rollout_version_count__init(count);
    count->version = arena_strndup(arena, version.data, version.size);
    list_add(counts, arena, count);
    return count;
}

static int counts_read(struct store_txn *txn, struct slice name, struct arena *arena, Pb__RolloutState *state) {
    char room[STORE_KEY_MAX];
    struct slice prefix = rollout_rows(ROW_COUNT, name, room);
    struct items counts = {0};
    struct store_cursor cursor;
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, ROLLOUT_TABLE, prefix) {
        Pb__RolloutCount *count = machine_decode(&pb__rollout_count__descriptor, cursor.value, arena);
        if (!count || cursor.key.size <= prefix.size + 8) {
            rv = CO_CORRUPT;
            break;
        }
        struct slice version = slice_make(cursor.key.data + prefix.size + 8, cursor.key.size - prefix.size - 8);
        Pb__RolloutVersionCount *sum = count_of(&counts, arena, version);
        sum->ok += count->ok, sum->refused += count->refused;
    }
    store_cursor_close(&cursor);
    state->versions = (Pb__RolloutVersionCount **)counts.items, state->n_versions = counts.count;
    return rv;
}

static bool any_refused(const Pb__RolloutState *state, const char *version) {
    for (size_t i = 0; i < state->n_versions; i++)
        if (strcmp(state->versions[i]->version, version) == 0) return state->versions[i]->refused > 0;
    return false;
}

/* Counts of the stage's version, or without a stage of the current one. */
static int refusals_read(struct store_txn *txn, struct slice name, struct arena *arena, Pb__RolloutState *state) {
    char room[STORE_KEY_MAX];
    struct slice prefix = rollout_rows(ROW_ACK, name, room);
    const char *version = state->stage ? state->stage->version : state->current;
    struct items refusals = {0};
    struct store_cursor cursor;
    int rv = CO_OK;
    if (!any_refused(state, version)) return CO_OK;
    STORE_PREFIX(&cursor, txn, ROLLOUT_TABLE, prefix) {
        Pb__RolloutAck *ack = machine_decode(&pb__rollout_ack__descriptor, cursor.value, arena);
        if (!ack) rv = CO_CORRUPT;
        if (!ack || refusals.count == ROLLOUT_SHOWN_MOST) break;
        if (!ack->ok && strcmp(ack->version, version) == 0) list_add(&refusals, arena, ack);
    }
    store_cursor_close(&cursor);
    state->refusals = (Pb__RolloutAck **)refusals.items, state->n_refusals = refusals.count;
    return rv;
}

static int silent_add(struct store_txn *txn, struct items *silent, struct arena *arena, Pb__RolloutState *state,
                      const char *node) {
    uint64_t running;
    bool any;
    int rv = rollout_on_node(txn, slice_text(state->name), slice_text(node), 0, &running, &any);
    if (rv != CO_OK || any) return rv;
    state->silent++;
    if (silent->count < ROLLOUT_SHOWN_MOST) list_add(silent, arena, (char *)(uintptr_t)node);
    return CO_OK;
}

/* Nodes of the match on which no caller has ever acknowledged anything. */
static int silent_read(struct store_txn *txn, struct arena *arena, Pb__RolloutState *state) {
    const Pb__RolloutStageView *stage = state->stage;
    Pb__ServiceRequest request = PB__SERVICE_REQUEST__INIT;
    struct query_result result;
    struct items silent = {0};
    int rv = CO_OK;
    if (!stage) return CO_OK;
    for (size_t i = 0; stage->match && i < stage->match->n_nodes && rv == CO_OK; i++)
        rv = silent_add(txn, &silent, arena, state, stage->match->nodes[i]);
    bool by_service =
        rv == CO_OK && stage->guard && stage->guard->service[0] && !(stage->match && stage->match->n_nodes);
    if (by_service) {
        request.service = stage->guard->service;
        rv = query_service_entries.run(txn, &request.base, arena, &result);
        const Pb__ServiceEntriesResult *all = rv == CO_OK ? (const Pb__ServiceEntriesResult *)result.message : NULL;
        for (size_t i = 0; all && i < all->n_entries && rv == CO_OK; i++)
            if (!i || strcmp(all->entries[i]->node->name, all->entries[i - 1]->node->name) != 0)
                rv = silent_add(txn, &silent, arena, state, all->entries[i]->node->name);
    }
    state->silent_nodes = (char **)silent.items, state->n_silent_nodes = silent.count;
    return rv;
}

static struct watch_key state_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_ROLLOUT, request_name(request)};
}
static struct watch_key state_own(const ProtobufCMessage *request, size_t i) {
    return i ? (struct watch_key){0} : (struct watch_key){SPACE_ROLLOUT_ACKS, request_name(request)};
}

static int state_fill(struct store_txn *txn, const Pb__RolloutRecord *record, struct arena *arena,
                      Pb__RolloutState *state) {
    struct slice name = slice_text(record->name);
    int rv = pointer_read(txn, arena, state);
    if (rv == CO_OK) rv = counts_read(txn, name, arena, state);
    if (rv == CO_OK) rv = refusals_read(txn, name, arena, state);
    if (rv == CO_OK) rv = silent_read(txn, arena, state);
    if (rv != CO_OK || !record->stage || !record->stage->guard) return rv;
    state->judgement = arena_alloc(arena, sizeof *state->judgement);
    return rollout_judge(txn, record, state->judgement);
}

static int state_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    char room[STORE_KEY_MAX];
    struct slice name = request_name(request);
    Pb__RolloutRecord *record;
    Pb__RolloutTally *tally;
    *result = (struct query_result){0};
    int rv = rollout_get(txn, name, arena, &record);
    if (rv == CO_NOTFOUND) result->index = machine_change_index(txn, SPACE_ROLLOUT, name);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    Pb__RolloutState *state = rollout_state(record, arena);
    *result = (struct query_result){.index = record->modify_index, .found = true, .message = &state->base};
    rv = rollout_row(txn, rollout_key(ROW_TALLY, name, room), &pb__rollout_tally__descriptor, arena, &tally);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (rv == CO_OK) state->callers = tally->callers, result->index = newer(result->index, tally->modify_index);
    return state_fill(txn, record, arena, state);
}

/* The nodes of a stage's service are those of the catalog. */
static int state_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                      struct query_result *result) {
    Pb__RolloutState *state = (Pb__RolloutState *)result->message;
    (void)txn;
    int rv = access_require(check, ACCESS_ROLLOUT, request_name(request), ACCESS_READ);
    if (rv != CO_OK || !state) return rv;
    ACCESS_KEEP_ROWS(state->n_silent_nodes, state->silent_nodes, access_shows(check, ACCESS_NODE, slice_text(row)));
    return CO_OK;
}

const struct query_type query_rollout_state = {.number = 146,
                                               .name = "rollout-state",
                                               .request = &pb__rollout_request__descriptor,
                                               .result = &pb__rollout_state__descriptor,
                                               .watched = state_watched,
                                               .run = state_run,
                                               .show = state_show,
                                               .own = state_own};

/* -- lists -------------------------------------------------------------------------------------------------------- */

static int list_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    struct slice prefix = slice_text(((const Pb__RolloutListRequest *)request)->prefix);
    char room[STORE_KEY_MAX];
    Pb__RolloutsResult *all = arena_alloc(arena, sizeof *all);
    struct items found = {0};
    struct store_cursor cursor;
    int rv = CO_OK;
    pb__rollouts_result__init(all);
    *result = (struct query_result){
        .found = true, .message = &all->base, .index = machine_change_index(txn, SPACE_ROLLOUT, slice_make("", 0))};
    if (prefix.size > ROLLOUT_NAME_MOST) return CO_OK;
    struct slice head = rollout_key(ROW_RECORD, prefix, room);
    STORE_PREFIX(&cursor, txn, ROLLOUT_TABLE, head) {
        Pb__RolloutRecord *record;
        rv = record_decode(cursor.value, arena, &record);
        if (rv != CO_OK) break;
        list_add(&found, arena, rollout_state(record, arena));
        result->index = newer(result->index, record->modify_index);
    }
    store_cursor_close(&cursor);
    all->rollouts = (Pb__RolloutState **)found.items, all->n_rollouts = found.count;
    return rv;
}

ACCESS_SHOW_LIST(list_show, ROLLOUT, Pb__RolloutsResult, rollouts, name)

const struct query_type query_rollouts = {.number = 147,
                                          .name = "rollouts",
                                          .request = &pb__rollout_list_request__descriptor,
                                          .result = &pb__rollouts_result__descriptor,
                                          .watched = list_watched,
                                          .run = list_run,
                                          .show = list_show};

static struct watch_key history_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_ROLLOUT_HISTORY, slice_text(((const Pb__RolloutHistoryRequest *)request)->name)};
}

static int history_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                       struct query_result *result) {
    struct watch_key watched = history_watched(request);
    char room[STORE_KEY_MAX];
    Pb__RolloutHistory *all = arena_alloc(arena, sizeof *all);
    Pb__RolloutRecord *record;
    struct store_cursor cursor;
    pb__rollout_history__init(all);
    *result = (struct query_result){0};
    int rv = rollout_get(txn, watched.name, arena, &record);
    if (rv == CO_NOTFOUND) result->index = machine_change_index(txn, watched.space, watched.name);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    *result = (struct query_result){
        .index = machine_change_index(txn, watched.space, watched.name), .found = true, .message = &all->base};
    struct slice prefix = rollout_rows(ROW_HISTORY, watched.name, room);
    size_t most = (size_t)(record->history_next - record->history_first);
    if (most > ROLLOUT_HISTORY_MOST) return CO_CORRUPT;
    all->changes = arena_alloc(arena, (most + 1) * sizeof *all->changes);
    STORE_PREFIX(&cursor, txn, ROLLOUT_TABLE, prefix) {
        Pb__RolloutChange *change = machine_decode(&pb__rollout_change__descriptor, cursor.value, arena);
        if (!change || all->n_changes == most) {
            rv = CO_CORRUPT;
            break;
        }
        all->changes[most - ++all->n_changes] = change; /* the newest first */
    }
    store_cursor_close(&cursor);
    if (all->n_changes != most && !store_read_limit_hit(txn)) rv = CO_CORRUPT;
    return rv;
}

ACCESS_SHOW_ONE(history_show, ROLLOUT, Pb__RolloutHistoryRequest, name)

const struct query_type query_rollout_history = {.number = 148,
                                                 .name = "rollout-history",
                                                 .request = &pb__rollout_history_request__descriptor,
                                                 .result = &pb__rollout_history__descriptor,
                                                 .watched = history_watched,
                                                 .run = history_run,
                                                 .show = history_show};

/* -- the schema --------------------------------------------------------------------------------------------------- */

static struct watch_key schema_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_ROLLOUT_SCHEMA, request_name(request)};
}

static int schema_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    char room[STORE_KEY_MAX];
    struct slice name = request_name(request);
    Pb__RolloutSchema *schema;
    *result = (struct query_result){0};
    if (!rollout_name_fits(name, false)) return CO_OK;
    result->index = machine_change_index(txn, SPACE_ROLLOUT_SCHEMA, name);
    int rv = rollout_row(txn, rollout_key(ROW_SCHEMA, name, room), &pb__rollout_schema__descriptor, arena, &schema);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    result->found = true, result->message = &schema->base;
    return CO_OK;
}

ACCESS_SHOW_ONE(schema_show, ROLLOUT, Pb__RolloutRequest, name)

const struct query_type query_rollout_schema = {.number = 149,
                                                .name = "rollout-schema",
                                                .request = &pb__rollout_request__descriptor,
                                                .result = &pb__rollout_schema__descriptor,
                                                .watched = schema_watched,
                                                .run = schema_run,
                                                .show = schema_show};
