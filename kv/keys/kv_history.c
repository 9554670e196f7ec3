/* Queries on keys as they were, and on how they changed (registry/history.h). */
#include "base/message.h"
#include "kv/keys/kv_internal.h"
#include "registry/history.h"

static struct slice request_key(const Pb__KvPastRequest *request) { return message_slice(request->key); }

/* -- as of an index ----------------------------------------------------------------------------------------------- */

/* Runs the query of the present on a past state. */
static int ask_past(struct store_txn *txn, const Pb__KvPastRequest *request, struct arena *arena,
                    Pb__KvPastResult *answer, bool *found) {
    const struct query_type *types[] = {
        [PB__KV_PAST_FORM__PAST_ENTRY] = &query_kv_get,
        [PB__KV_PAST_FORM__PAST_ENTRIES] = &query_kv_list,
        [PB__KV_PAST_FORM__PAST_KEYS] = &query_kv_keys,
    };
    Pb__KvRequest *present = arena_alloc(arena, sizeof *present);
    pb__kv_request__init(present);
    present->key = request->key, present->separator = request->separator;
    struct query_result result;
    int rv = types[request->form]->run(txn, &present->base, arena, &result);
    *found = rv == CO_OK && result.found;
    if (!*found || !result.message) return rv;
    if (request->form == PB__KV_PAST_FORM__PAST_ENTRY) {
        answer->entries = arena_alloc(arena, sizeof *answer->entries);
        answer->entries[0] = (Pb__KvEntry *)result.message;
        answer->n_entries = 1;
    } else if (request->form == PB__KV_PAST_FORM__PAST_ENTRIES) {
        const Pb__KvEntriesResult *list = (const Pb__KvEntriesResult *)result.message;
        answer->entries = list->entries, answer->n_entries = list->n_entries;
    } else {
        const Pb__KvKeysResult *list = (const Pb__KvKeysResult *)result.message;
        answer->keys = list->keys, answer->n_keys = list->n_keys;
    }
    return CO_OK;
}

struct history_moment kv_moment(const Pb__KvMoment *moment) {
    if (!moment) return (struct history_moment){0};
    return (struct history_moment){moment->index, moment->unix_ms, moment->now_unix_ms};
}

Pb__KvMomentVerdict kv_moment_verdict(int error) {
    if (error == CO_GONE) return PB__KV_MOMENT_VERDICT__MOMENT_GONE;
    return error == CO_INVALID ? PB__KV_MOMENT_VERDICT__MOMENT_TO_COME : PB__KV_MOMENT_VERDICT__MOMENT_KEPT;
}

static int run_at(struct store_txn *txn, const Pb__KvPastRequest *request, struct arena *arena,
                  Pb__KvPastResult *answer, bool *found) {
    struct store_past *past;
    struct history_moment moment = kv_moment(request->at);
    const struct history_place present = {answer->index, answer->unix_ms};
    int rv = history_moment(txn, HISTORY_KEYS, &moment, present, &answer->at);
    answer->verdict = kv_moment_verdict(rv);
    if (rv == CO_GONE || rv == CO_INVALID) return CO_OK;
    if (rv == CO_OK) rv = history_read_past(txn, HISTORY_KEYS, answer->at, &past);
    if (rv != CO_OK) return rv;
    rv = ask_past(txn, request, arena, answer, found);
    history_past_end(txn, past);
    return rv;
}

/* -- changes ------------------------------------------------------------------------------------------------------ */

/* A change of the key, with its record before the change, if it existed. */
struct change {
    uint64_t index, unix_ms;
    uint8_t command;
    bool existed;
    struct kv_record before;
    struct change *next;
};

/* True: a client's command removed the key. False: the session or lease that it was bound to has ended. */
static bool by_client(uint8_t command) {
    return command == KV_APPLY || command == KV_APPLY_FENCED || command == KV_RESTORE || command == KV_BY_TRANSACTION ||
           command == KV_BY_COPY;
}

static Pb__KvChange *change_record(const struct change *change, const struct kv_record *after, struct arena *arena) {
    Pb__KvChange *record = arena_alloc(arena, sizeof *record);
    pb__kv_change__init(record);
    record->index = change->index, record->unix_ms = change->unix_ms;
    CHECK(after || change->existed); /* else nothing has changed */
    const struct kv_record *shown = after ? after : &change->before;
    bool held = change->existed && change->before.session.size, holds = after && after->session.size;
    bool same = held && holds && slice_equal(change->before.session, after->session);
    if (!after)
        record->kind =
            by_client(change->command) ? PB__KV_CHANGE_KIND__CHANGE_DELETE : PB__KV_CHANGE_KIND__CHANGE_EXPIRE;
    else if (holds && !same) record->kind = PB__KV_CHANGE_KIND__CHANGE_LOCK;
    else if (held && !holds) record->kind = PB__KV_CHANGE_KIND__CHANGE_UNLOCK;
    const struct kv_record *holder = record->kind == PB__KV_CHANGE_KIND__CHANGE_UNLOCK ? &change->before : shown;
    if (holder->session.size) record->session = (char *)(uintptr_t)slice_copy(arena, holder->session).data;
    if (!after) return record;
    record->value = message_bytes(after->value);
    record->flags = after->flags;
    return record;
}

/* Finds the entry's first note of this key, which has the key's record before the entry. */
static bool key_noted(const struct history_row *row, struct slice store_key, struct slice key, struct change *change,
                      struct store_txn *txn) {
    struct slice rest = row->notes;
    struct store_before note;
    while (store_journal_next(&rest, &note)) {
        if (note.table != KV_TABLE_KEYS || !slice_equal(note.key, store_key)) continue;
        *change = (struct change){
            .index = row->index, .unix_ms = row->unix_ms, .command = row->command, .existed = note.existed};
        if (note.existed && kv_record_decode(note.key, note.value, &change->before) != CO_OK) {
            store_fail(txn, CO_CORRUPT);
            return false;
        }
        return !note.existed || slice_equal(change->before.key, key);
    }
    return false;
}

static struct change *changes_collect(struct store_txn *txn, struct slice store_key, struct slice key, uint64_t floor,
                                      struct arena *arena, size_t *count) {
    struct change *first = NULL, **end = &first, change;
    struct history_walk walk;
    *count = 0;
    for (history_walk_open(&walk, txn, HISTORY_KEYS, floor); walk.valid; history_walk_next(&walk)) {
        if (!key_noted(&walk.row, store_key, key, &change, txn)) continue;
        *end = arena_alloc(arena, sizeof change);
        **end = change;
        end = &(*end)->next;
        ++*count;
    }
    history_walk_close(&walk);
    return first;
}

/* The index of the key's last change, as the query of the present answers it. A client that waits for the next change
 * waits for a higher one. */
static int present_index(struct store_txn *txn, struct slice key, struct arena *arena, uint64_t *index) {
    Pb__KvRequest *present = arena_alloc(arena, sizeof *present);
    struct query_result result = {0};
    pb__kv_request__init(present);
    present->key = message_bytes(key);
    int rv = query_kv_get.run(txn, &present->base, arena, &result);
    *index = result.index;
    return rv;
}

static int run_changes(struct store_txn *txn, struct slice key, struct arena *arena, Pb__KvPastResult *answer,
                       bool *found) {
    char room[KV_STORE_KEY_MAX];
    if (key.size == 0 || key.size > KV_KEY_MAX) return CO_OK;
    struct slice store_key = kv_store_key(key, room);
    struct kv_record now;
    bool taken;
    int rv = kv_record_get(txn, store_key, key, &now, &taken);
    if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
    bool there = rv == CO_OK;
    size_t count;
    const struct change *change = changes_collect(txn, store_key, key, answer->floor, arena, &count);
    if (store_txn_error(txn)) return store_txn_error(txn);
    answer->changes = arena_alloc(arena, (count + 1) * sizeof *answer->changes);
    for (; change; change = change->next) {
        const struct change *next = change->next;
        const struct kv_record *after = next ? (next->existed ? &next->before : NULL) : there ? &now : NULL;
        if (!change->existed && !after) continue; /* the key came and went in one entry */
        CHECK(answer->n_changes < count);
        answer->changes[answer->n_changes++] = change_record(change, after, arena);
    }
    *found = there || answer->n_changes;
    return CO_OK;
}

/* -- the query ---------------------------------------------------------------------------------------------------- */

static struct watch_key past_watched(const ProtobufCMessage *message) {
    const Pb__KvPastRequest *request = (const Pb__KvPastRequest *)message;
    bool one = request->form == PB__KV_PAST_FORM__PAST_ENTRY || request->form == PB__KV_PAST_FORM__PAST_CHANGES;
    return (struct watch_key){one ? SPACE_KEY : SPACE_KEY | WATCH_PREFIX_BIT, request_key(request)};
}

/* A kept answer also says which moments can be asked for, so it is stale when a row is appended or the floor rises. */
static struct watch_key past_also(const ProtobufCMessage *message) {
    (void)message;
    return (struct watch_key){SPACE_HISTORY, slice_make("", 0)};
}

/* Any entry may bring an index that is not there yet, so an answer about such an index is never kept. Nobody waits for
 * the past. */
static struct watch_key past_own(const ProtobufCMessage *message, size_t i) {
    bool changes = ((const Pb__KvPastRequest *)message)->form == PB__KV_PAST_FORM__PAST_CHANGES;
    return changes || i > 0 ? (struct watch_key){0} : past_also(message);
}

static int past_run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                    struct query_result *result) {
    const Pb__KvPastRequest *request = (const Pb__KvPastRequest *)message;
    Pb__KvPastResult *answer = arena_alloc(arena, sizeof *answer);
    pb__kv_past_result__init(answer);
    *result = (struct query_result){.message = &answer->base};
    struct history_place floor = history_floor_place(txn, HISTORY_KEYS);
    answer->off = floor.index == UINT64_MAX;
    if (!answer->off) answer->floor = floor.index, answer->floor_unix_ms = floor.unix_ms;
    answer->index = machine_index_in(txn), answer->unix_ms = machine_unix_ms_in(txn);
    if (request->form == PB__KV_PAST_FORM__PAST_CHANGES) {
        int rv = present_index(txn, request_key(request), arena, &result->index);
        return rv != CO_OK || answer->off ? rv : run_changes(txn, request_key(request), arena, answer, &result->found);
    }
    if (answer->off || request->form > PB__KV_PAST_FORM__PAST_CHANGES) return CO_OK;
    int rv = run_at(txn, request, arena, answer, &result->found);
    result->index = answer->at;
    return rv;
}

const struct query_type query_kv_past = {.number = 130,
                                         .name = "kv-past",
                                         .request = &pb__kv_past_request__descriptor,
                                         .result = &pb__kv_past_result__descriptor,
                                         .watched = past_watched,
                                         .run = past_run,
                                         .show = kv_past_show,
                                         .also = past_also,
                                         .own = past_own};
