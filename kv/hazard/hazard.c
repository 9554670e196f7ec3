#include "kv/hazard/hazard.h"

#include "base/check.h"
#include "base/text.h"
#include "kv/session/session.h"
#include "registry/module_access.h"

enum hazard_table {
    HAZARD_TABLE = 34,          /* 'h', object -> pb.HazardRecord; 'p', object, NUL, epoch, session -> nothing;
                        * 's', session -> how many it has; numbers of 8 bytes, big-endian */
    HAZARD_TABLE_SESSIONS = 35, /* session, object -> epoch */
};
_Static_assert(HAZARD_PROTECT >= 32 && HAZARD_RETIRE < 64, "commands of kv (registry/module.h)");
_Static_assert(HAZARD_TABLE >= 16 && HAZARD_TABLE_SESSIONS < 40, "tables of kv");
_Static_assert(SPACE_HAZARD >= 32 && SPACE_HAZARD_OLDEST < 64, "spaces of kv");

static int ended(struct machine_tx *tx, const struct binding_end *end);
static const struct module_binding binding = {.number = HAZARD_TABLE_SESSIONS, .ended = ended};

/* -- keys --------------------------------------------------------------------------------------------------------- */

static struct slice head_key(char kind, struct slice name, char room[STORE_KEY_MAX]) {
    CHECK(name.size <= HAZARD_OBJECT_MOST);
    room[0] = kind;
    memcpy(room + 1, name.data, name.size);
    return slice_make(room, 1 + name.size);
}

static struct slice protections_prefix(struct slice object, char room[STORE_KEY_MAX]) {
    size_t size = head_key('p', object, room).size;
    room[size] = '\0';
    return slice_make(room, size + 1);
}

static struct slice protection_key(struct slice object, uint64_t epoch, struct slice session,
                                   char room[STORE_KEY_MAX]) {
    _Static_assert(2 + HAZARD_OBJECT_MOST + 8 + UUID_TEXT_SIZE <= STORE_KEY_MAX, "it fits");
    size_t size = protections_prefix(object, room).size;
    CHECK(session.size == UUID_TEXT_SIZE);
    put_be64(room + size, epoch);
    memcpy(room + size + 8, session.data, session.size);
    return slice_make(room, size + 8 + session.size);
}

/* Reads epoch and session of a row below the prefix. False: no server writes such a row. */
static bool protection_read(const struct store_cursor *cursor, struct slice prefix, uint64_t *epoch,
                            struct slice *session) {
    if (cursor->key.size != prefix.size + 8 + UUID_TEXT_SIZE) return false;
    *epoch = get_be64(cursor->key.data + prefix.size);
    *session = slice_make(cursor->key.data + prefix.size + 8, UUID_TEXT_SIZE);
    return true;
}

/* -- records ------------------------------------------------------------------------------------------------------ */

static int record_decode(struct slice bytes, struct arena *arena, Pb__HazardRecord **record) {
    *record = machine_decode(&pb__hazard_record__descriptor, bytes, arena);
    bool fits = *record && (*record)->object[0] && strlen((*record)->object) <= HAZARD_OBJECT_MOST;
    return fits ? CO_OK : CO_CORRUPT;
}

static int record_get(struct store_txn *txn, struct slice object, struct arena *arena, Pb__HazardRecord **record) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    if (object.size == 0 || object.size > HAZARD_OBJECT_MOST) return CO_NOTFOUND;
    int rv = store_get(txn, HAZARD_TABLE, head_key('h', object, room), &bytes);
    return rv == CO_OK ? record_decode(bytes, arena, record) : rv;
}

static void record_put(struct machine_tx *tx, Pb__HazardRecord *record) {
    char room[STORE_KEY_MAX];
    struct slice object = slice_text(record->object);
    record->modify_index = tx->index;
    CHECK(record->count > 0 && record->oldest > 0); /* the last protection removes the record */
    size_t size = pb__hazard_record__get_packed_size(record);
    uint8_t *bytes = arena_alloc(tx->arena, size);
    pb__hazard_record__pack(record, bytes);
    store_put(tx->store, HAZARD_TABLE, head_key('h', object, room), slice_make(bytes, size));
    machine_touch(tx, SPACE_HAZARD, object);
}

/* How many protections a session has. */
static int session_count(struct store_txn *txn, struct slice session, uint64_t *count) {
    char room[STORE_KEY_MAX];
    struct slice bytes;
    *count = 0;
    int rv = store_get(txn, HAZARD_TABLE, head_key('s', session, room), &bytes);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    if (bytes.size != 8) return CO_CORRUPT;
    *count = get_be64(bytes.data);
    return CO_OK;
}

static void session_count_put(struct machine_tx *tx, struct slice session, uint64_t count) {
    char room[STORE_KEY_MAX], bytes[8];
    struct slice key = head_key('s', session, room);
    put_be64(bytes, count);
    if (count) store_put(tx->store, HAZARD_TABLE, key, slice_make(bytes, sizeof bytes));
    else (void)store_del(tx->store, HAZARD_TABLE, key);
}

/* The epoch at which a session protects an object. CO_NOTFOUND: it does not protect it. */
static int epoch_get(struct store_txn *txn, struct slice session, struct slice object, uint64_t *epoch) {
    struct slice bytes;
    int rv = session_bound(txn, &binding, session, object, &bytes);
    if (rv != CO_OK) return rv;
    if (bytes.size != 8) return CO_CORRUPT;
    *epoch = get_be64(bytes.data);
    return CO_OK;
}

/* -- protect ------------------------------------------------------------------------------------------------------ */

static bool object_fits(const char *object, struct machine_result *result) {
    if (object[0] && strlen(object) <= HAZARD_OBJECT_MOST) return true;
    (void)machine_refuse(result, CO_INVALID, "an object's name has 1 to 256 bytes");
    return false;
}

static bool elsewhere(struct machine_tx *tx, const char *object, struct machine_result *result) {
    return machine_refuses(tx, (struct machine_thing){SPACE_HAZARD, "hazard", slice_text(object)}, result);
}

static int protect_answer(struct machine_tx *tx, struct machine_result *result, uint64_t epoch, char *session) {
    Pb__HazardProtection *protection = arena_alloc(tx->arena, sizeof *protection);
    pb__hazard_protection__init(protection);
    protection->epoch = epoch, protection->session = session;
    result->yes = true;
    result->message = &protection->base;
    return CO_OK;
}

static void protection_put(struct machine_tx *tx, Pb__HazardRecord *record, struct slice session, uint64_t count) {
    char room[STORE_KEY_MAX], epoch[8];
    struct slice object = slice_text(record->object);
    if (record->count++ == 0) {
        record->oldest = record->oldest_since = tx->index;
        machine_touch(tx, SPACE_HAZARD_OLDEST, object);
    }
    CHECK(record->count <= HAZARD_PROTECTIONS_MOST && record->oldest <= tx->index && count < HAZARD_SESSION_MOST);
    put_be64(epoch, tx->index);
    store_put(tx->store, HAZARD_TABLE, protection_key(object, tx->index, session, room), slice_make("", 0));
    session_bind(tx, &binding, session, object, slice_make(epoch, sizeof epoch));
    session_count_put(tx, session, count + 1);
    record_put(tx, record);
}

static int protect_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__HazardProtectCommand *command = request;
    struct slice object = slice_text(command->object);
    bool makes = command->session && command->session->create;
    Pb__Session *session = NULL;
    Pb__HazardRecord *record;
    uint64_t epoch, count = 0;
    if (!object_fits(command->object, result) || elsewhere(tx, command->object, result)) return CO_OK;
    int rv = makes ? CO_OK : session_ensure(tx, command->session, result, &session);
    if (rv != CO_OK || result->error) return rv;
    if (session) {
        rv = epoch_get(tx->store, slice_text(session->id), object, &epoch);
        if (rv == CO_OK) return protect_answer(tx, result, epoch, session->id);
        if (rv == CO_NOTFOUND) rv = session_count(tx->store, slice_text(session->id), &count);
        if (rv != CO_OK) return rv;
    }
    rv = record_get(tx->store, object, tx->arena, &record);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    if (rv == CO_NOTFOUND) {
        record = arena_alloc(tx->arena, sizeof *record);
        pb__hazard_record__init(record);
        record->object = command->object;
    }
    if (record->count >= HAZARD_PROTECTIONS_MOST)
        return machine_refuse(result, CO_BUSY,
                              arena_printf(tx->arena, "object \"%s\" has %d protections: clear some", command->object,
                                           HAZARD_PROTECTIONS_MOST));
    if (count >= HAZARD_SESSION_MOST)
        return machine_refuse(result, CO_BUSY, "the session protects 10000 objects: clear some, or use another one");
    rv = makes ? session_ensure(tx, command->session, result, &session) : CO_OK;
    if (rv != CO_OK || result->error) return rv;
    protection_put(tx, record, slice_text(session->id), count);
    return protect_answer(tx, result, tx->index, session->id);
}

/* -- clear, and the end of a session ------------------------------------------------------------------------------ */

/* The first of the remaining protections is the oldest. */
static int oldest_move(struct machine_tx *tx, Pb__HazardRecord *record) {
    char room[STORE_KEY_MAX];
    struct slice object = slice_text(record->object), prefix = protections_prefix(object, room), session;
    struct store_cursor cursor;
    uint64_t epoch = 0;
    store_cursor_open(&cursor, tx->store, HAZARD_TABLE, prefix);
    bool found = cursor.valid && slice_starts(cursor.key, prefix) && protection_read(&cursor, prefix, &epoch, &session);
    store_cursor_close(&cursor);
    if (!found) return CO_CORRUPT;
    if (epoch == record->oldest) return CO_OK;
    record->oldest = epoch, record->oldest_since = tx->index;
    machine_touch(tx, SPACE_HAZARD_OLDEST, object);
    return CO_OK;
}

static int protection_remove(struct machine_tx *tx, struct slice object, struct slice session, uint64_t epoch) {
    char room[STORE_KEY_MAX];
    Pb__HazardRecord *record;
    uint64_t count;
    int rv = record_get(tx->store, object, tx->arena, &record);
    if (rv == CO_OK) rv = session_count(tx->store, session, &count);
    if (rv == CO_NOTFOUND || (rv == CO_OK && (record->count == 0 || count == 0))) rv = CO_CORRUPT;
    if (rv != CO_OK) return rv;
    (void)store_del(tx->store, HAZARD_TABLE, protection_key(object, epoch, session, room));
    session_unbind(tx, &binding, session, object);
    CHECK(count > 0 && record->count > 0);
    session_count_put(tx, session, count - 1);
    if (--record->count == 0) {
        (void)store_del(tx->store, HAZARD_TABLE, head_key('h', object, room));
        machine_changed(tx, SPACE_HAZARD, object, true);
        machine_changed(tx, SPACE_HAZARD_OLDEST, object, true);
        return CO_OK;
    }
    rv = epoch == record->oldest ? oldest_move(tx, record) : CO_OK;
    if (rv == CO_OK) record_put(tx, record);
    return rv;
}

static int ended(struct machine_tx *tx, const struct binding_end *end) {
    if (end->value.size != 8) return CO_CORRUPT;
    return protection_remove(tx, end->name, end->owner, get_be64(end->value.data));
}

static int clear_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__HazardClearCommand *command = request;
    struct slice session = slice_text(command->session), object = slice_text(command->object);
    uint64_t epoch;
    if (!object_fits(command->object, result)) return CO_OK;
    int rv = session_exists(tx->store, session);
    if (rv == CO_NOTFOUND)
        return machine_refuse(result, CO_NOTFOUND,
                              arena_printf(tx->arena, "invalid session \"%.64s\"", command->session));
    if (rv == CO_OK) rv = epoch_get(tx->store, session, object, &epoch);
    if (rv == CO_NOTFOUND)
        return machine_refuse(
            result, CO_NOTFOUND,
            arena_printf(tx->arena, "the session does not protect \"%s\": it has not, or has cleared it",
                         command->object));
    if (rv == CO_OK) rv = protection_remove(tx, object, session, epoch);
    if (rv != CO_OK) return rv;
    result->yes = true;
    return session_end_idle(tx, session);
}

/* -- retire ------------------------------------------------------------------------------------------------------- */

/* Answers a retire at `epoch`: done, or how many protections it still waits for. `record` NULL: nobody protects the
 * object. `passed`: treats so many of the oldest protections as gone. */
static int retirement(struct store_txn *txn, const Pb__HazardRecord *record, uint64_t epoch, unsigned passed,
                      Pb__HazardRetirement *out) {
    pb__hazard_retirement__init(out);
    out->epoch = epoch;
    out->retired = !record || record->oldest >= epoch;
    if (out->retired) return CO_OK;
    char room[STORE_KEY_MAX];
    struct slice prefix = protections_prefix(slice_text(record->object), room), session;
    struct store_cursor cursor;
    bool whole = true;
    STORE_PREFIX(&cursor, txn, HAZARD_TABLE, prefix) {
        uint64_t at = 0;
        whole = protection_read(&cursor, prefix, &at, &session);
        if (!whole || at >= epoch || out->waiting == HAZARD_COUNTED_MOST) break;
        out->waiting++;
    }
    store_cursor_close(&cursor);
    CHECK(out->waiting <= HAZARD_COUNTED_MOST);
    if (out->waiting <= passed) out->retired = true, out->waiting = 0;
    return whole ? CO_OK : CO_CORRUPT;
}

static int retire_apply(struct machine_tx *tx, void *request, struct machine_result *result) {
    const Pb__HazardRetireCommand *command = request;
    uint64_t epoch = command->epoch_given ? command->epoch : tx->index;
    Pb__HazardRecord *record = NULL;
    Pb__HazardRetirement *out = arena_alloc(tx->arena, sizeof *out);
    if (!object_fits(command->object, result) || elsewhere(tx, command->object, result)) return CO_OK;
    if (epoch > tx->index)
        return machine_refuse(result, CO_INVALID,
                              "epoch: it is above every index: it is the Epoch of an answer, or an index");
    int rv = record_get(tx->store, slice_text(command->object), tx->arena, &record);
    if (rv == CO_NOTFOUND) record = NULL;
    else if (rv != CO_OK) return rv;
    rv = retirement(tx->store, record, epoch, tx->mutations & MUTATE_HAZARD_FORGETS ? 1 : 0, out);
    result->yes = true;
    result->message = &out->base;
    return rv;
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static struct slice retire_object(const ProtobufCMessage *request) {
    return slice_text(((const Pb__HazardRetireRequest *)request)->object);
}
static struct watch_key retire_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_HAZARD_OLDEST, retire_object(request)};
}
/* The answer shows how many protections are waited for when the time is up; a change of that number wakes nobody. */
static struct watch_key retire_also(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_HAZARD, retire_object(request)};
}

static int retire_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    struct slice object = retire_object(request);
    Pb__HazardRecord *record = NULL;
    Pb__HazardRetirement *out = arena_alloc(arena, sizeof *out);
    *result = (struct query_result){.found = true, .message = &out->base};
    int rv = record_get(txn, object, arena, &record);
    if (rv == CO_OK) result->index = record->oldest_since;
    else if (rv == CO_NOTFOUND && object.size <= HAZARD_OBJECT_MOST)
        result->index = machine_change_index(txn, SPACE_HAZARD_OLDEST, object);
    if (rv != CO_OK) record = NULL;
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    return retirement(txn, record, ((const Pb__HazardRetireRequest *)request)->epoch, 0, out);
}

static Pb__HazardState *state_of(const Pb__HazardRecord *record, struct arena *arena) {
    Pb__HazardState *state = arena_alloc(arena, sizeof *state);
    pb__hazard_state__init(state);
    state->object = record->object, state->count = record->count, state->oldest = record->oldest;
    state->modify_index = record->modify_index;
    return state;
}

static int protections_read(struct store_txn *txn, const Pb__HazardRecord *record, struct arena *arena,
                            Pb__HazardState *state) {
    char room[STORE_KEY_MAX];
    struct slice prefix = protections_prefix(slice_text(record->object), room), session;
    struct store_cursor cursor;
    uint64_t epoch, most = record->count <= HAZARD_PROTECTIONS_MOST ? record->count : 0;
    state->protections = arena_alloc(arena, (most + 1) * sizeof *state->protections);
    STORE_PREFIX(&cursor, txn, HAZARD_TABLE, prefix) {
        if (state->n_protections == most || !protection_read(&cursor, prefix, &epoch, &session)) break;
        Pb__HazardProtection *protection = arena_alloc(arena, sizeof *protection);
        pb__hazard_protection__init(protection);
        protection->epoch = epoch;
        protection->session = arena_strndup(arena, session.data, session.size);
        state->protections[state->n_protections++] = protection;
    }
    bool all = state->n_protections == record->count && !(cursor.valid && slice_starts(cursor.key, prefix));
    store_cursor_close(&cursor);
    return all || store_read_limit_hit(txn) ? CO_OK : CO_CORRUPT;
}

static struct slice request_object(const ProtobufCMessage *request) {
    return slice_text(((const Pb__HazardRequest *)request)->object);
}
static struct watch_key hazard_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_HAZARD, request_object(request)};
}

static int hazard_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    struct slice object = request_object(request);
    Pb__HazardRecord *record;
    *result = (struct query_result){0};
    int rv = record_get(txn, object, arena, &record);
    if (rv == CO_NOTFOUND && object.size <= HAZARD_OBJECT_MOST)
        result->index = machine_change_index(txn, SPACE_HAZARD, object);
    if (rv != CO_OK) return rv == CO_NOTFOUND ? CO_OK : rv;
    Pb__HazardState *state = state_of(record, arena);
    *result = (struct query_result){.index = record->modify_index, .found = true, .message = &state->base};
    return protections_read(txn, record, arena, state);
}

static struct slice list_prefix(const ProtobufCMessage *request) {
    return slice_text(((const Pb__HazardListRequest *)request)->prefix);
}
static struct watch_key list_watched(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_HAZARD | WATCH_PREFIX_BIT, list_prefix(request)};
}

static int list_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    struct slice prefix = list_prefix(request);
    char room[STORE_KEY_MAX];
    Pb__HazardsResult *all = arena_alloc(arena, sizeof *all);
    size_t capacity = 0;
    struct store_cursor cursor;
    int rv = CO_OK;
    pb__hazards_result__init(all);
    *result = (struct query_result){.found = true, .message = &all->base};
    if (prefix.size > HAZARD_OBJECT_MOST) return CO_OK;
    struct slice head = head_key('h', prefix, room);
    STORE_PREFIX(&cursor, txn, HAZARD_TABLE, head) {
        Pb__HazardRecord *record;
        rv = record_decode(cursor.value, arena, &record);
        if (rv != CO_OK) break;
        if (all->n_hazards == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            Pb__HazardState **wider = arena_alloc(arena, capacity * sizeof *wider);
            if (all->n_hazards) memcpy(wider, all->hazards, all->n_hazards * sizeof *wider);
            all->hazards = wider;
        }
        all->hazards[all->n_hazards++] = state_of(record, arena);
        if (record->modify_index > result->index) result->index = record->modify_index;
    }
    store_cursor_close(&cursor);
    uint64_t removed = machine_removed_below(txn, SPACE_HAZARD, prefix);
    if (removed > result->index) result->index = removed;
    return rv;
}

/* -- access: by the rules `lock` for the object's name ------------------------------------------------------------- */

static int protect_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__HazardProtectCommand *command = (const Pb__HazardProtectCommand *)request;
    (void)txn;
    int rv = access_require(check, ACCESS_LOCK, slice_text(command->object), ACCESS_WRITE);
    return rv == CO_OK ? session_may_use(check, command->session) : rv;
}
ACCESS_MAY(clear_may, LOCK, WRITE, Pb__HazardClearCommand, object)
ACCESS_MAY(retire_may, LOCK, WRITE, Pb__HazardRetireCommand, object)
ACCESS_SHOW_ONE(hazard_show, LOCK, Pb__HazardRequest, object)
ACCESS_SHOW_ONE(retire_show, LOCK, Pb__HazardRetireRequest, object)
ACCESS_SHOW_LIST(list_show, LOCK, Pb__HazardsResult, hazards, object)

/* -- the table ---------------------------------------------------------------------------------------------------- */

const struct query_type query_hazard = {.number = 50,
                                        .name = "hazard",
                                        .request = &pb__hazard_request__descriptor,
                                        .result = &pb__hazard_state__descriptor,
                                        .watched = hazard_watched,
                                        .run = hazard_run,
                                        .show = hazard_show};
const struct query_type query_hazard_retire = {.number = 51,
                                               .name = "hazard-retire",
                                               .request = &pb__hazard_retire_request__descriptor,
                                               .result = &pb__hazard_retirement__descriptor,
                                               .watched = retire_watched,
                                               .also = retire_also,
                                               .run = retire_run,
                                               .show = retire_show};
const struct query_type query_hazards = {.number = 55,
                                         .name = "hazards",
                                         .request = &pb__hazard_list_request__descriptor,
                                         .result = &pb__hazards_result__descriptor,
                                         .watched = list_watched,
                                         .run = list_run,
                                         .show = list_show};

static const struct module_command commands[] = {
    {.number = HAZARD_PROTECT,
     .name = "hazard-protect",
     .request = &pb__hazard_protect_command__descriptor,
     .result = &pb__hazard_protection__descriptor,
     .may = protect_may,
     .apply = protect_apply},
    {.number = HAZARD_CLEAR,
     .name = "hazard-clear",
     .request = &pb__hazard_clear_command__descriptor,
     .may = clear_may,
     .apply = clear_apply},
    {.number = HAZARD_RETIRE,
     .name = "hazard-retire",
     .request = &pb__hazard_retire_command__descriptor,
     .result = &pb__hazard_retirement__descriptor,
     .may = retire_may,
     .apply = retire_apply},
    {0},
};
static const struct store_table tables[] = {{HAZARD_TABLE, "hazards"}, {HAZARD_TABLE_SESSIONS, "hazard-sessions"}, {0}};
static const struct module_space spaces[] = {{SPACE_HAZARD, "hazard"}, {SPACE_HAZARD_OLDEST, "hazard-oldest"}, {0}};
static const struct query_type *const queries[] = {&query_hazard, &query_hazard_retire, &query_hazards, NULL};
static const struct module_binding session_bindings[] = {{.number = HAZARD_TABLE_SESSIONS, .ended = ended}, {0}};

const struct module hazard_module = {.name = "hazard",
                                     .commands = commands,
                                     .tables = tables,
                                     .spaces = spaces,
                                     .queries = queries,
                                     .session_bindings = session_bindings};
