/* The source's answers about copied keys: a page of a listing, or the changes.
 *
 * Changes come from the history (registry/history.h): its rows name the keys that were touched. An answer takes as many
 * rows as touch no more keys than one step may have, and has the keys as they were after the last of these rows. So a
 * copy that takes the answer equals the keys at that index. */
#include "base/message.h"
#include "kv/keys/kv_copied.h"
#include "multi-dc/copy.h"
#include "multi-dc/keys.h"
#include "registry/history.h"

struct touched {
    struct slice key;
    uint64_t index; /* of the first row that touches the key */
};
struct source {
    struct store_txn *txn;
    struct arena *arena;
    const Pb__KeysChangesRequest *request;
    struct slice prefix;
    Pb__KeysChangesResult *result;
    struct touched touched[KEYS_ROWS_MOST];
    size_t count, most;
    uint64_t upto; /* the answer's index */
};

/* -- a page ------------------------------------------------------------------------------------------------------- */
static Pb__KeysEntry *add_entry(struct source *source, struct slice key, struct slice value, uint64_t flags) {
    Pb__KeysChangesResult *result = source->result;
    CHECK(result->n_entries < KEYS_ROWS_MOST);
    Pb__KeysEntry *entry = result->entries[result->n_entries++] = arena_alloc(source->arena, sizeof *entry);
    pb__keys_entry__init(entry);
    entry->key = message_bytes(key), entry->value = message_bytes(value), entry->flags = flags;
    return entry;
}

static void rows_new(struct source *source) {
    Pb__KeysChangesResult *result = source->result;
    result->entries = arena_alloc(source->arena, KEYS_ROWS_MOST * sizeof *result->entries);
    result->removed = arena_alloc(source->arena, KEYS_ROWS_MOST * sizeof *result->removed);
    result->n_entries = result->n_removed = 0;
}

/* Keys that were not modified after `since` come without their values. */
static int page(struct source *source, struct slice after, uint64_t since) {
    Pb__KeysChangesResult *result = source->result;
    struct kv_walk walk;
    size_t bytes = 0;
    rows_new(source);
    result->page = true;
    for (kv_walk_open(&walk, source->txn, source->prefix, after); walk.valid; kv_walk_next(&walk)) {
        bool same = walk.record.modify_index <= since;
        size_t size = walk.record.key.size + (same ? 0 : walk.record.value.size);
        if (result->n_entries == source->most || (result->n_entries && bytes + size > KEYS_BYTES_MOST)) break;
        bytes += size;
        struct slice nothing = slice_make("", 0);
        Pb__KeysEntry *entry = add_entry(source, walk.record.key, same ? nothing : walk.record.value, 0);
        if (!same) entry->flags = walk.record.flags;
        entry->same = same;
        result->upto = message_bytes(walk.place);
    }
    result->last = !walk.valid;
    int error = walk.error;
    if (result->n_entries) result->upto = message_bytes(slice_copy(source->arena, message_slice(result->upto)));
    kv_walk_close(&walk);
    return error;
}

/* -- changes ------------------------------------------------------------------------------------------------------ */
/* False: there is no room for the key. */
static bool touch(struct source *source, struct slice key, uint64_t index) {
    for (size_t i = 0; i < source->count; i++)
        if (slice_equal(source->touched[i].key, key)) return true;
    CHECK(source->count <= source->most && source->most <= KEYS_ROWS_MOST);
    if (source->count == source->most) return false;
    source->touched[source->count++] = (struct touched){slice_copy(source->arena, key), index};
    return true;
}

/* Drops the keys that this row touched, and later ones. */
static void cut(struct source *source, uint64_t index) {
    CHECK(index > 0);
    while (source->count && source->touched[source->count - 1].index >= index) source->count--;
    source->upto = index - 1;
}

static void read_rows(struct source *source, uint64_t from) {
    struct history_walk walk;
    bool room = true;
    for (history_walk_open(&walk, source->txn, HISTORY_KEYS, from); walk.valid && room; history_walk_next(&walk)) {
        struct slice rest = walk.row.touches;
        struct history_touch touched;
        while (room && history_touch_next(&rest, &touched))
            if (touched.space == SPACE_KEY && slice_starts(touched.name, source->prefix))
                room = touch(source, touched.name, walk.row.index);
        if (!room) cut(source, walk.row.index);
        if (source->request->look && source->count) break;
    }
    history_walk_close(&walk);
}

/* Reads the values as of source->upto, and cuts off the rows that do not fit. CO_TOOLARGE: no row would be left. */
static int read_values(struct source *source) {
    size_t bytes = 0;
    rows_new(source);
    for (size_t i = 0; i < source->count; i++) {
        struct slice key = source->touched[i].key;
        struct kv_record record;
        char room[KV_STORE_KEY_MAX];
        bool taken;
        int rv = kv_record_get(source->txn, kv_store_key(key, room), key, &record, &taken);
        if (rv != CO_OK && rv != CO_NOTFOUND) return rv;
        CHECK(source->touched[i].index <= source->upto);
        bytes += key.size + (rv == CO_OK ? record.value.size : 0);
        if (bytes > KEYS_BYTES_MOST && source->count > 1) {
            uint64_t index = source->touched[i].index, first = source->touched[0].index;
            bool alone = index == first;
            if (alone && source->touched[1].index == first) return CO_TOOLARGE;
            cut(source, alone ? source->touched[1].index : index);
            return CO_AGAIN;
        }
        if (rv == CO_OK) add_entry(source, key, slice_copy(source->arena, record.value), record.flags);
        else source->result->removed[source->result->n_removed++] = message_bytes(key);
    }
    return CO_OK;
}

static int by_history(struct source *source, uint64_t from) {
    int error = CO_AGAIN;
    read_rows(source, from);
    if (source->request->look) {
        source->result->more = source->count != 0;
        return store_txn_error(source->txn);
    }
    if (!source->count && source->upto < source->result->to->index) return CO_TOOLARGE;
    while (error == CO_AGAIN) {
        struct store_past *past = NULL;
        bool present = source->upto == source->result->to->index;
        error =
            present ? store_txn_error(source->txn) : history_read_past(source->txn, HISTORY_KEYS, source->upto, &past);
        if (error) break;
        error = read_values(source);
        if (past) history_past_end(source->txn, past);
    }
    source->result->more = source->upto < source->result->to->index;
    source->result->to->index = source->upto;
    return error;
}

/* The history does not reach back: may anything have changed? */
static bool may_have_changed(struct source *source, uint64_t from, int *error) {
    struct kv_walk walk;
    bool changed =
        machine_floor(source->txn) > from || machine_removed_below(source->txn, SPACE_KEY, source->prefix) > from;
    kv_walk_open(&walk, source->txn, source->prefix, slice_make("", 0));
    for (; walk.valid && !changed; kv_walk_next(&walk)) changed = walk.record.modify_index > from;
    *error = walk.error;
    kv_walk_close(&walk);
    return changed;
}

/* -- the query ---------------------------------------------------------------------------------------------------- */
/* *news: there are changes. */
static int tell(struct source *source, uint64_t from, bool known, bool *news) {
    const Pb__KeysChangesRequest *request = source->request;
    Pb__KeysChangesResult *result = source->result;
    struct slice beginning = slice_make("", 0);
    int error = CO_OK;
    *news = true;
    if (request->listing) return page(source, message_slice(request->after), known ? from : 0);
    if (!known) {
        result->more = request->look;
        return request->look ? CO_OK : page(source, beginning, 0);
    }
    if (from >= history_floor(source->txn, HISTORY_KEYS)) {
        uint64_t newest = result->to->index;
        error = by_history(source, from);
        *news = source->count || result->more;
        if (error != CO_TOOLARGE) return error;
        result->to->index = newest, result->more = false;
        *news = true;
    } else {
        *news = may_have_changed(source, from, &error);
        result->more = request->look && *news;
        if (error || request->look || !*news) return error;
    }
    return page(source, beginning, from);
}

static int run(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena, struct query_result *out) {
    struct source *source = arena_zalloc(arena, sizeof *source);
    *source = (struct source){.txn = txn, .arena = arena, .request = (const Pb__KeysChangesRequest *)message};
    source->prefix = message_slice(source->request->prefix);
    Pb__KeysChangesResult *result = source->result = arena_alloc(arena, sizeof *result);
    pb__keys_changes_result__init(result);
    result->to = catalog_at_now(txn, arena);
    source->upto = result->to->index;
    uint32_t most = source->request->rows_most;
    source->most = most && most < KEYS_ROWS_MOST ? most : KEYS_ROWS_MOST;
    const Pb__CatalogAt *at = source->request->from;
    uint64_t from = at ? at->index : 0, newest = result->to->index;
    bool news = false, behind = at && at->cluster_id == result->to->cluster_id && from > newest;
    bool nonsense =
        !source->prefix.size || source->prefix.size > KEYS_PREFIX_MAX || source->request->after.len > KV_STORE_KEY_MAX;
    int error = behind || nonsense ? CO_OK : tell(source, from, copy_same_life(at, result->to), &news);
    if (news && newest <= from) newest = from + 1; /* the request does not wait */
    *out = (struct query_result){.index = news || !from ? newest : from, .found = !nonsense, .message = &result->base};
    return error;
}

static struct watch_key watched(const ProtobufCMessage *message) {
    return (struct watch_key){SPACE_KEY | WATCH_PREFIX_BIT,
                              message_slice(((const Pb__KeysChangesRequest *)message)->prefix)};
}

/* It shows all keys below the prefix, with their values. */
static int show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                struct query_result *result) {
    (void)txn, (void)result;
    return access_require_below(check, ACCESS_KEY, message_slice(((const Pb__KeysChangesRequest *)message)->prefix),
                                ACCESS_READ);
}

const struct query_type query_keys_changes = {.number = 214,
                                              .name = "keys-changes",
                                              .request = &pb__keys_changes_request__descriptor,
                                              .result = &pb__keys_changes_result__descriptor,
                                              .watched = watched,
                                              .run = run,
                                              .show = show};
