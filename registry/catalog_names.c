/* Names of services: their instances, the union of their tags, their spellings and marks.
 *
 * TABLE_TAGS counts: for a name it has the number of instances, for a name and a tag the number of instances with that
 * tag. The union of a service's tags are the tags that have a count; it changes when a count leaves or reaches 0. */
#include <stdlib.h>

#include "base/check.h"
#include "registry/catalog_write.h"

#define COUNT_BYTES 8

/* Moves a count; `text` is stored with it, because the key may be shortened. True when it left or reached 0. */
static bool count_move(struct change *change, struct slice key, struct slice text, int by) {
    CHECK(by == 1 || by == -1);
    struct store_txn *store = change->tx->store;
    struct slice value;
    uint64_t count = store_get(store, TABLE_TAGS, key, &value) == CO_OK ? get_be64(value.data) : 0;
    uint64_t now = by > 0 ? count + 1 : count - (count > 0);
    if (now == 0) {
        (void)store_del(store, TABLE_TAGS, key);
    } else {
        char *bytes = arena_alloc(change->tx->arena, COUNT_BYTES + text.size);
        put_be64(bytes, now);
        if (text.size) memcpy(bytes + COUNT_BYTES, text.data, text.size);
        store_put(store, TABLE_TAGS, key, slice_make(bytes, COUNT_BYTES + text.size));
    }
    return (now == 0) != (count == 0);
}

static int compare_texts(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* A service's tags, sorted, each once. */
struct tag_set {
    char **tags;
    size_t count;
};

static struct tag_set tag_set(struct arena *arena, const Pb__Service *service) {
    struct tag_set set = {0};
    if (!service || service->n_tags == 0) return set;
    set.tags = arena_alloc(arena, service->n_tags * sizeof *set.tags);
    memcpy(set.tags, service->tags, service->n_tags * sizeof *set.tags);
    qsort(set.tags, service->n_tags, sizeof *set.tags, compare_texts);
    for (size_t i = 0; i < service->n_tags; i++) {
        if (set.count == 0 || strcmp(set.tags[set.count - 1], set.tags[i]) != 0) set.tags[set.count++] = set.tags[i];
    }
    return set;
}

static bool tag_move(struct change *change, struct slice name, const char *tag, int by) {
    char room[STORE_KEY_MAX];
    return count_move(change, key_tag(room, name, slice_text(tag)), slice_text(tag), by);
}

/* Counts the tags that only one of the two has, by merging. True when the union changed; *differ: when the sets do. */
static bool tags_change(struct change *change, struct slice name, struct tag_set before, struct tag_set after,
                        bool *differ) {
    bool changed = false;
    size_t i = 0, j = 0;
    while (i < before.count || j < after.count) {
        int order = i == before.count ? 1 : j == after.count ? -1 : strcmp(before.tags[i], after.tags[j]);
        if (order < 0) changed |= tag_move(change, name, before.tags[i++], -1);
        else if (order > 0) changed |= tag_move(change, name, after.tags[j++], 1);
        else i++, j++;
        if (order != 0) *differ = true;
    }
    return changed;
}

/* An instance comes to (by 1) or leaves (by -1) a name. */
static bool instance_move(struct change *change, const Pb__Service *service, int by) {
    struct store_txn *store = change->tx->store;
    char room[STORE_KEY_MAX];
    struct slice name = slice_text(service->name);
    struct slice key = key_instance(room, name, slice_text(service->node), slice_text(service->id));
    if (by > 0) store_put(store, TABLE_INSTANCES, key, slice_make("", 0));
    else (void)store_del(store, TABLE_INSTANCES, key);
    bool changed = count_move(change, key_count(room, name), name, by);
    if (changed) change_spelling(change, SPELLING_SERVICE, name, by > 0);
    bool differ = false;
    struct tag_set tags = tag_set(change->tx->arena, service), none = {0};
    changed |= tags_change(change, name, by > 0 ? none : tags, by > 0 ? tags : none, &differ);
    return changed;
}

void change_names(struct change *change, const Pb__Service *before, const Pb__Service *after) {
    CHECK(before || after);
    bool changed = false, differ = true;
    if (before && after && strcmp(before->name, after->name) == 0) {
        differ = false;
        struct arena *arena = change->tx->arena;
        changed = tags_change(change, slice_text(after->name), tag_set(arena, before), tag_set(arena, after), &differ);
    } else {
        if (before) changed |= instance_move(change, before, -1);
        if (after) changed |= instance_move(change, after, 1);
    }
    if (changed) machine_changed(change->tx, SPACE_TABLE, catalog_table_services, false);
    if (differ) machine_changed(change->tx, SPACE_TABLE, catalog_table_service_nodes, false);
}

static uint64_t count_of(struct store_txn *txn, struct slice name) {
    char room[STORE_KEY_MAX];
    struct slice value;
    return store_get(txn, TABLE_TAGS, key_count(room, name), &value) == CO_OK ? get_be64(value.data) : 0;
}

/* Of all ways in which the name is written. */
uint64_t catalog_service_instances(struct store_txn *txn, struct slice name) {
    char room[STORE_KEY_MAX];
    struct slice prefix = key_spellings(room, SPELLING_SERVICE, name);
    struct store_cursor cursor;
    uint64_t count = 0;
    STORE_PREFIX(&cursor, txn, TABLE_SPELLINGS, prefix) count += count_of(txn, cursor.value);
    store_cursor_close(&cursor);
    return count;
}

bool catalog_service_exists(struct store_txn *txn, struct slice name) {
    return catalog_service_instances(txn, name) != 0;
}

void change_spelling(struct change *change, enum spelling_kind kind, struct slice name, bool there) {
    char room[STORE_KEY_MAX];
    struct slice key = key_spelling(room, kind, name);
    if (there) store_put(change->tx->store, TABLE_SPELLINGS, key, name);
    else (void)store_del(change->tx->store, TABLE_SPELLINGS, key);
}

/* -- marks -------------------------------------------------------------------------------------------------------- */

void change_mark_service(struct change *change, struct slice name) {
    machine_changed(change->tx, SPACE_SERVICE, name, !catalog_service_exists(change->tx->store, name));
}

void change_mark_services_of_node(struct change *change, struct slice node) {
    struct machine_tx *tx = change->tx;
    char room[STORE_KEY_MAX];
    struct pointers names = {0}; /* copied first: marking changes the bytes of the cursor's slices */
    struct slice prefix = key_node(room, node);
    struct store_cursor cursor;
    STORE_PREFIX(&cursor, tx->store, TABLE_SERVICES, prefix) {
        struct slice name = record_text(cursor.value, SERVICE_NAME_FIELD);
        pointers_add(&names, tx->arena, arena_strndup(tx->arena, name.data, name.size));
    }
    store_cursor_close(&cursor);
    for (size_t i = 0; i < names.count; i++) { machine_changed(tx, SPACE_SERVICE, slice_text(names.items[i]), false); }
}
