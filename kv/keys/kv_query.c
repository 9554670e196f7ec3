/* Queries on keys. The records of the results are slices of the map.
 *
 * The store keeps long keys that share their first STORE_KEY_PREFIX bytes in the order of their hashes. A walk gathers
 * such a run, sorts it by the full keys, and visits it then, so that every listing is sorted. */
#include <stdlib.h>

#include "base/message.h"
#include "kv/keys/kv_internal.h"

/* -- the walk ----------------------------------------------------------------------------------------------------- */

struct walk {
    struct slice prefix;
    void (*visit)(void *data, const struct kv_record *record);
    void *data;
    struct kv_record *run; /* long keys with one beginning that are not visited yet */
    size_t run_count, run_room;
};

static int record_compare(const void *a, const void *b) {
    return slice_compare(((const struct kv_record *)a)->key, ((const struct kv_record *)b)->key);
}

static void run_end(struct walk *walk) {
    if (walk->run_count > 1) qsort(walk->run, walk->run_count, sizeof *walk->run, record_compare);
    for (size_t i = 0; i < walk->run_count; i++) walk->visit(walk->data, &walk->run[i]);
    walk->run_count = 0;
}

static void run_add(struct walk *walk, const struct kv_record *record) {
    CHECK(record->key.size > STORE_KEY_PREFIX);
    if (walk->run_count != 0 && memcmp(walk->run[0].key.data, record->key.data, STORE_KEY_PREFIX) != 0) run_end(walk);
    if (walk->run_count == walk->run_room) {
        walk->run_room = walk->run_room ? 2 * walk->run_room : 16;
        walk->run = mem_realloc(walk->run, walk->run_room * sizeof *walk->run);
    }
    walk->run[walk->run_count++] = *record;
}

/* Visits every key with this prefix, sorted. CO_OK or CO_CORRUPT. */
static int walk_keys(struct store_txn *txn, struct slice prefix, void (*visit)(void *, const struct kv_record *),
                     void *data) {
    struct walk walk = {.prefix = prefix, .visit = visit, .data = data};
    struct slice head = kv_prefix_head(prefix);
    struct store_cursor cursor;
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, KV_TABLE_KEYS, head) {
        struct kv_record record;
        rv = kv_record_decode(cursor.key, cursor.value, &record);
        if (rv != CO_OK) break;
        if (!slice_starts(record.key, prefix)) continue;
        if (kv_is_long(cursor.key)) {
            run_add(&walk, &record);
        } else {
            if (walk.run_count != 0) run_end(&walk);
            visit(data, &record);
        }
    }
    store_cursor_close(&cursor);
    if (rv == CO_OK) run_end(&walk);
    free(walk.run);
    return rv;
}

/* -- one key ------------------------------------------------------------------------------------------------------ */

static struct slice request_key(const ProtobufCMessage *request) {
    const Pb__KvRequest *r = (const Pb__KvRequest *)request;
    return message_slice(r->key);
}

static void entry_fill(Pb__KvEntry *entry, const struct kv_record *record) {
    pb__kv_entry__init(entry);
    entry->key = message_bytes(record->key);
    entry->value = message_bytes(record->value);
    entry->flags = record->flags;
    entry->lock_index = record->lock_index;
    if (record->session.size != 0) entry->session = (char *)(uintptr_t)record->session.data; /* ends with a NUL */
    if (record->lease.size != 0) entry->lease = (char *)(uintptr_t)record->lease.data;       /* likewise */
    entry->create_index = record->create_index;
    entry->modify_index = record->modify_index;
}

static struct watch_key key_thing(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_KEY, request_key(request)};
}

static struct watch_key prefix_thing(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_KEY | WATCH_PREFIX_BIT, request_key(request)};
}

static int get_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                   struct query_result *result) {
    struct slice key = request_key(request);
    char room[KV_STORE_KEY_MAX];
    struct kv_record record;
    bool taken;
    *result = (struct query_result){0};
    if (key.size > KV_KEY_MAX || key.size == 0) return CO_OK; /* no key is like that */
    int rv = kv_record_get(txn, kv_store_key(key, room), key, &record, &taken);
    if (rv == CO_NOTFOUND) {
        result->index = machine_change_index(txn, SPACE_KEY, key);
        return CO_OK;
    }
    if (rv != CO_OK) return rv;
    Pb__KvEntry *entry = arena_alloc(arena, sizeof *entry);
    entry_fill(entry, &record);
    entry->key = message_bytes(key);
    result->index = record.modify_index;
    result->found = true;
    result->message = &entry->base;
    return CO_OK;
}

const struct query_type query_kv_get = {.number = 32,
                                        .name = "kv-get",
                                        .request = &pb__kv_request__descriptor,
                                        .result = &pb__kv_entry__descriptor,
                                        .watched = key_thing,
                                        .run = get_run,
                                        .show = kv_get_show};

/* -- below a prefix ----------------------------------------------------------------------------------------------- */

struct listing {
    struct arena *arena;
    struct slice prefix, separator;
    uint64_t index;
    void **entries;            /* list: Pb__KvEntry * */
    ProtobufCBinaryData *keys; /* keys */
    size_t count, room;
};

/* Makes room in the arena for one more element of `size` bytes. */
static void *listing_grow(struct listing *list, void *items, size_t size) {
    CHECK(list->count <= list->room);
    if (list->count < list->room) return items;
    list->room = list->room ? 2 * list->room : 16;
    void *wider = arena_alloc(list->arena, list->room * size);
    if (list->count != 0) memcpy(wider, items, list->count * size);
    return wider;
}

static void list_visit(void *data, const struct kv_record *record) {
    struct listing *list = data;
    if (record->modify_index > list->index) list->index = record->modify_index;
    Pb__KvEntry *entry = arena_alloc(list->arena, sizeof *entry);
    entry_fill(entry, record);
    list->entries = listing_grow(list, list->entries, sizeof *list->entries);
    list->entries[list->count++] = entry;
}

static int listing_run(struct listing *list, struct store_txn *txn, const ProtobufCMessage *request,
                       void (*visit)(void *, const struct kv_record *)) {
    const Pb__KvRequest *r = (const Pb__KvRequest *)request;
    list->prefix = request_key(request);
    list->separator = message_slice(r->separator);
    if (list->prefix.size > KV_KEY_MAX) return CO_OK;
    int rv = walk_keys(txn, list->prefix, visit, list);
    uint64_t removed = machine_removed_below(txn, SPACE_KEY, list->prefix);
    if (removed > list->index) list->index = removed;
    return rv;
}

static int list_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    struct listing list = {.arena = arena};
    *result = (struct query_result){0};
    int rv = listing_run(&list, txn, request, list_visit);
    if (rv != CO_OK) return rv;
    result->index = list.index;
    if (list.count == 0) return CO_OK;
    Pb__KvEntriesResult *entries = arena_alloc(arena, sizeof *entries);
    pb__kv_entries_result__init(entries);
    entries->n_entries = list.count;
    entries->entries = (Pb__KvEntry **)list.entries;
    result->found = true;
    result->message = &entries->base;
    return CO_OK;
}

const struct query_type query_kv_list = {.number = 33,
                                         .name = "kv-list",
                                         .request = &pb__kv_request__descriptor,
                                         .result = &pb__kv_entries_result__descriptor,
                                         .watched = prefix_thing,
                                         .run = list_run,
                                         .show = kv_list_show};

/* The key up to and with the first separator after the prefix. */
static struct slice key_cut(const struct listing *list, struct slice key) {
    CHECK(key.size >= list->prefix.size);
    if (list->separator.size == 0) return key;
    const char *after = key.data + list->prefix.size;
    const char *at = memmem(after, key.size - list->prefix.size, list->separator.data, list->separator.size);
    return at ? slice_make(key.data, (size_t)(at - key.data) + list->separator.size) : key;
}

static void keys_visit(void *data, const struct kv_record *record) {
    struct listing *list = data;
    if (record->modify_index > list->index) list->index = record->modify_index;
    struct slice key = key_cut(list, record->key);
    /* Keys that are cut alike follow one another. */
    if (list->count != 0 && list->separator.size != 0) {
        const ProtobufCBinaryData *last = &list->keys[list->count - 1];
        if (slice_equal(slice_make(last->data, last->len), key)) return;
    }
    list->keys = listing_grow(list, list->keys, sizeof *list->keys);
    list->keys[list->count++] = message_bytes(key);
}

static int keys_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    struct listing list = {.arena = arena};
    *result = (struct query_result){0};
    int rv = listing_run(&list, txn, request, keys_visit);
    if (rv != CO_OK) return rv;
    Pb__KvKeysResult *keys = arena_alloc(arena, sizeof *keys);
    pb__kv_keys_result__init(keys);
    keys->n_keys = list.count;
    keys->keys = list.keys;
    result->index = list.index;
    result->found = list.count != 0;
    result->message = &keys->base;
    return CO_OK;
}

const struct query_type query_kv_keys = {.number = 34,
                                         .name = "kv-keys",
                                         .request = &pb__kv_request__descriptor,
                                         .result = &pb__kv_keys_result__descriptor,
                                         .watched = prefix_thing,
                                         .run = keys_run,
                                         .show = kv_keys_show};
