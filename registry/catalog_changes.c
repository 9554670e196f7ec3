/* The difference between two states of the catalog.
 *
 * From the history: the notes of its rows since `from` name the records that were changed. A change of a node, or of a
 * node's own check, counts as a change of all instances on it. The instances are then read as they are at present.
 * Those that are gone, or have another name now, are reported as removed under the name in the note.
 *
 * By walking: every change on a node marks the node (SPACE_NODE), also a removal. */
#include "registry/catalog_changes.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "registry/access_operator.h"
#include "registry/catalog_query.h"
#include "registry/history.h"
#include "registry/version.h"

#define SCRATCH_ENTRIES 256 /* unpacked at a time */

/* Something that a note names, or an instance. */
struct named {
    struct slice key;   /* sorted by it, and then by `order` */
    struct slice bytes; /* the record as it was; or the bytes to report */
    bool existed;
    size_t order;
};
struct named_list {
    struct named *items;
    size_t count, room;
};

struct changes {
    struct store_txn *txn;
    struct arena *arena;   /* of the result */
    struct arena *scratch; /* of one entry and its node */
    size_t scratched;
    struct query_entry_node node;
    struct named_list nodes, instances, checks; /* changed records, by their keys; checks with their former records */
    struct named_list gone;                     /* by key_instance; bytes: Service as it was */
    struct named_list entries;                  /* by key_instance; bytes: of the entry */
    Pb__CatalogChangesResult *result;
};

/* -- entries ------------------------------------------------------------------------------------------------------ */

static char *const nothing = (char *)protobuf_c_empty_string;

static void strip_check(Pb__Check *check) {
    check->node = check->notes = check->service_name = nothing;
    check->output = check->definition = (ProtobufCBinaryData){0};
    check->service_tags = NULL, check->n_service_tags = 0;
    check->create_index = check->modify_index = 0;
    check->by_agent = false;
}

void catalog_strip(Pb__ServiceEntry *entry) {
    entry->node->lease = entry->node->version = nothing;
    entry->service->node = entry->service->lease = nothing;
    entry->service->by_agent = entry->held = false;
    for (size_t i = 0; i < entry->n_checks; i++) strip_check(entry->checks[i]);
}

void catalog_unstrip(Pb__ServiceEntry *entry) {
    entry->service->node = entry->node->name;
    for (size_t i = 0; i < entry->n_checks; i++) {
        Pb__Check *check = entry->checks[i];
        check->node = entry->node->name;
        if (!check->service_id[0]) continue;
        check->service_name = entry->service->name;
        check->service_tags = entry->service->tags, check->n_service_tags = entry->service->n_tags;
    }
}

/* -- lists -------------------------------------------------------------------------------------------------------- */

static void list_add(struct named_list *list, struct arena *arena, struct slice key, struct slice bytes, bool existed) {
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        struct named *wider = arena_alloc(arena, room * sizeof *wider);
        if (list->count) memcpy(wider, list->items, list->count * sizeof *wider);
        list->items = wider, list->room = room;
    }
    list->items[list->count] = (struct named){key, bytes, existed, list->count};
    list->count++;
}

static int compare_named(const void *a, const void *b) {
    const struct named *one = a, *other = b;
    int order = slice_compare(one->key, other->key);
    return order ? order : (one->order > other->order) - (one->order < other->order);
}

/* Sorts; of each key it keeps the item that was added first. */
static void list_sort(struct named_list *list) {
    size_t count = 0;
    if (list->count) qsort(list->items, list->count, sizeof *list->items, compare_named);
    for (size_t i = 0; i < list->count; i++)
        if (i == 0 || !slice_equal(list->items[i].key, list->items[count - 1].key))
            list->items[count++] = list->items[i];
    list->count = count;
}

/* The first `parts` parts of a joined key. */
static struct slice first_parts(struct slice key, unsigned parts) {
    size_t at = 0;
    for (; parts > 0 && at < key.size; parts--) {
        const char *end = memchr(key.data + at, '\0', key.size - at);
        at = end ? (size_t)(end - key.data) + 1 : key.size;
    }
    return slice_make(key.data, at);
}

/* The instance's key in TABLE_INSTANCES. */
static struct slice instance_key(struct changes *changes, struct slice name, struct slice service_key) {
    char room[STORE_KEY_MAX];
    struct slice start = key_name(room, name);
    CHECK(start.size + service_key.size <= STORE_KEY_MAX);
    memcpy(room + start.size, service_key.data, service_key.size);
    return slice_copy(changes->arena, slice_make(room, start.size + service_key.size));
}

/* -- records that the history names ------------------------------------------------------------------------------- */

static void take_note(struct changes *changes, const struct store_before *before) {
    struct named_list *list = before->table == TABLE_NODES      ? &changes->nodes
                              : before->table == TABLE_CHECKS   ? &changes->checks
                              : before->table == TABLE_SERVICES ? &changes->instances
                                                                : NULL;
    if (!list) return;
    list_add(list, changes->arena, before->key, before->value, before->existed);
    if (list != &changes->instances || !before->existed) return;
    struct slice name = record_text(before->value, SERVICE_NAME_FIELD);
    list_add(&changes->gone, changes->arena, instance_key(changes, name, before->key), before->value, true);
}

static void read_history(struct changes *changes, uint64_t from) {
    struct history_walk walk;
    for (history_walk_open(&walk, changes->txn, HISTORY_CATALOG, from); walk.valid; history_walk_next(&walk)) {
        struct slice rest = walk.row.notes;
        struct store_before before;
        while (store_journal_next(&rest, &before)) take_note(changes, &before);
        if (rest.size) store_fail(changes->txn, CO_CORRUPT);
    }
    history_walk_close(&walk);
    list_sort(&changes->nodes);
    list_sort(&changes->checks);
}

static struct slice check_as_copied(struct changes *changes, struct slice bytes) {
    Pb__Check *check = record_check(changes->txn, changes->scratch, bytes);
    if (!check) return slice_make("", 0);
    strip_check(check);
    return message_pack(changes->scratch, &check->base);
}

/* Is the check, as a copy has it, the same as before? */
static bool check_same(struct changes *changes, const struct named *check) {
    struct slice now;
    bool there = store_get(changes->txn, TABLE_CHECKS, check->key, &now) == CO_OK;
    if (!there || !check->existed) return there == check->existed;
    bool same = slice_equal(check_as_copied(changes, check->bytes), check_as_copied(changes, now));
    arena_reset(changes->scratch);
    return same;
}

static void instances_of_node(struct changes *changes, struct slice node) {
    struct store_cursor cursor;
    STORE_PREFIX(&cursor, changes->txn, TABLE_SERVICES, node)
    list_add(&changes->instances, changes->arena, cursor.key, slice_make("", 0), true);
    store_cursor_close(&cursor);
}

static void spread(struct changes *changes) {
    for (size_t i = 0; i < changes->checks.count; i++) {
        const struct named *check = &changes->checks.items[i];
        if (check_same(changes, check)) continue;
        struct slice node = first_parts(check->key, 1), instance = first_parts(check->key, 2);
        bool of_node = instance.size == node.size + 1;
        struct named_list *list = of_node ? &changes->nodes : &changes->instances;
        list_add(list, changes->arena, of_node ? node : instance, slice_make("", 0), true);
    }
    list_sort(&changes->nodes);
    for (size_t i = 0; i < changes->nodes.count; i++) instances_of_node(changes, changes->nodes.items[i].key);
    list_sort(&changes->instances);
}

/* -- instances of the present ------------------------------------------------------------------------------------- */

/* Reports the instance's entry, if the instance is there. */
static int tell_entry(struct changes *changes, struct slice service_key) {
    static const Pb__ServiceRequest any = PB__SERVICE_REQUEST__INIT;
    struct slice bytes;
    Pb__ServiceEntry *entry;
    if (store_get(changes->txn, TABLE_SERVICES, service_key, &bytes) != CO_OK) return store_txn_error(changes->txn);
    if (changes->scratched++ % SCRATCH_ENTRIES == 0) {
        changes->node = (struct query_entry_node){.node = NULL};
        arena_reset(changes->scratch);
    }
    int error = query_load_entry(changes->txn, changes->scratch, service_key, false, &any, &changes->node, &entry);
    if (error) return error;
    catalog_strip(entry);
    list_add(&changes->entries, changes->arena, instance_key(changes, slice_text(entry->service->name), service_key),
             message_pack(changes->arena, &entry->base), true);
    return CO_OK;
}

static Pb__CatalogKey *new_key(struct changes *changes, struct slice service) {
    Pb__CatalogKey *key = arena_alloc(changes->arena, sizeof *key);
    pb__catalog_key__init(key);
    struct slice name = record_text(service, SERVICE_NAME_FIELD), node = record_text(service, SERVICE_NODE_FIELD),
                 id = record_text(service, SERVICE_ID_FIELD);
    key->service = arena_strndup(changes->arena, name.data, name.size);
    key->node = arena_strndup(changes->arena, node.data, node.size);
    key->id = arena_strndup(changes->arena, id.data, id.size);
    return key;
}

/* Reports the names under which an instance is no longer registered. */
static void tell_gone(struct changes *changes) {
    Pb__CatalogChangesResult *result = changes->result;
    list_sort(&changes->gone);
    result->removed = arena_alloc(changes->arena, (changes->gone.count + 1) * sizeof *result->removed);
    for (size_t i = 0; i < changes->gone.count; i++) {
        struct slice nothing_there;
        if (store_get(changes->txn, TABLE_INSTANCES, changes->gone.items[i].key, &nothing_there) != CO_OK)
            result->removed[result->n_removed++] = new_key(changes, changes->gone.items[i].bytes);
    }
}

static int by_history(struct changes *changes, uint64_t from) {
    read_history(changes, from);
    spread(changes);
    int error = store_txn_error(changes->txn);
    for (size_t i = 0; i < changes->instances.count && !error; i++)
        error = tell_entry(changes, changes->instances.items[i].key);
    tell_gone(changes);
    return error;
}

/* `from` 0: all. */
static int by_walking(struct changes *changes, uint64_t from) {
    struct slice all = slice_make("", 0), node = {0};
    struct pointers kept = {0};
    struct store_cursor cursor;
    bool changed = true;
    int error = CO_OK;
    STORE_PREFIX(&cursor, changes->txn, TABLE_SERVICES, all) {
        struct slice of = first_parts(cursor.key, 1);
        if (!slice_equal(of, node)) {
            node = of;
            struct slice name = record_text(cursor.value, SERVICE_NODE_FIELD);
            changed = machine_change_index(changes->txn, SPACE_NODE, name) > from;
        }
        if (changed || from == 0) error = tell_entry(changes, cursor.key);
        else pointers_add(&kept, changes->arena, new_key(changes, cursor.value));
        if (error) break;
    }
    store_cursor_close(&cursor);
    changes->result->complete = true;
    changes->result->kept = (Pb__CatalogKey **)kept.items, changes->result->n_kept = kept.count;
    return error;
}

/* -- the queries -------------------------------------------------------------------------------------------------- */

Pb__CatalogAt *catalog_at_now(struct store_txn *txn, struct arena *arena) {
    struct version_now now = {0};
    Pb__CatalogAt *at = arena_alloc(arena, sizeof *at);
    pb__catalog_at__init(at);
    (void)version_read(txn, &now);
    at->cluster_id = now.cluster_id;
    at->restored = machine_restored(txn);
    at->index = machine_index_in(txn);
    return at;
}

static uint64_t last_change(struct store_txn *txn, const Pb__CatalogAt *now) {
    uint64_t index = machine_change_index(txn, SPACE_TABLE, catalog_table_all);
    return index ? index : now->index;
}

static struct watch_key catalog_thing(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_TABLE, catalog_table_all};
}

static void take_entries(struct changes *changes) {
    Pb__CatalogChangesResult *result = changes->result;
    list_sort(&changes->entries);
    result->n_entries = changes->entries.count;
    result->entries = arena_alloc(changes->arena, (result->n_entries + 1) * sizeof *result->entries);
    for (size_t i = 0; i < result->n_entries; i++) result->entries[i] = message_bytes(changes->entries.items[i].bytes);
}

static int run_changes(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                       struct query_result *out) {
    const Pb__CatalogChangesRequest *request = (const Pb__CatalogChangesRequest *)message;
    Pb__CatalogChangesResult *result = arena_alloc(arena, sizeof *result);
    pb__catalog_changes_result__init(result);
    Pb__CatalogAt *now = result->to = catalog_at_now(txn, arena);
    uint64_t from = request->from ? request->from->index : 0, last = last_change(txn, now);
    bool same = request->from && request->from->cluster_id == now->cluster_id;
    if (same && from > now->index) { /* this server is behind: it does not know the changes that the asker knows */
        *out = (struct query_result){.index = last, .found = true, .message = &result->base};
        return CO_OK;
    }
    bool known = same && request->from->restored == now->restored && !request->all;
    struct arena scratch = {0};
    struct changes changes = {.txn = txn, .arena = arena, .scratch = &scratch, .result = result};
    bool noted = known && from >= history_floor(txn, HISTORY_CATALOG);
    int error = noted ? by_history(&changes, from) : by_walking(&changes, known ? from : 0);
    take_entries(&changes);
    arena_free(&scratch);
    if (!known && last <= from) last = from + 1; /* so that the query does not wait */
    *out = (struct query_result){.index = last, .found = true, .message = &result->base};
    return error;
}

static int run_position(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                        struct query_result *result) {
    (void)message;
    Pb__CatalogAt *at = catalog_at_now(txn, arena);
    at->index = last_change(txn, at);
    *result = (struct query_result){.index = at->index, .found = true, .message = &at->base};
    return CO_OK;
}

const struct query_type query_catalog_changes = {.number = 20,
                                                 .name = "catalog-changes",
                                                 .request = &pb__catalog_changes_request__descriptor,
                                                 .result = &pb__catalog_changes_result__descriptor,
                                                 .watched = catalog_thing,
                                                 .run = run_changes,
                                                 .show = access_operator_show};
const struct query_type query_catalog_position = {.number = 21,
                                                  .name = "catalog-position",
                                                  .request = &pb__table_request__descriptor,
                                                  .result = &pb__catalog_at__descriptor,
                                                  .watched = catalog_thing,
                                                  .run = run_position,
                                                  .show = access_operator_show};
