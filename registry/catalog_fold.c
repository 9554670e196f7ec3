#include "registry/catalog_fold.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "registry/catalog_leases.h"
#include "registry/self_preservation.h"

#define SERF_HEALTH "serfHealth"
_Static_assert((int)SPACE_NODE == (int)FOLD_SPACE_NODE, "one list of numbers");
_Static_assert((int)SPACE_SERVICE == (int)FOLD_SPACE_SERVICE, "one list of numbers");

#define LOG_MOST 100 /* lines about what was merged */

/* -- which are one ------------------------------------------------------------------------------------------------ */

/* A thing whose name another has in another case. */
struct twin {
    const char *node, *id; /* id NULL: the node itself */
    uint64_t modified;
};

/* Two that are one once names are folded. */
struct merge {
    struct twin stays, goes;
};

/* Those of one node, and what was found so far (struct merge). */
struct search {
    struct machine_tx *tx;
    struct arena arena;
    const char *node;
    struct pointers twins, merges;
};

static int by_id(const void *a, const void *b) {
    const struct twin *one = *(struct twin *const *)a, *other = *(struct twin *const *)b;
    int order = slice_compare_nocase(slice_text(one->id), slice_text(other->id));
    return order ? order : strcmp(one->id, other->id);
}

static bool beats(const struct twin *one, const struct twin *other) {
    bool serf = strcmp(one->id, SERF_HEALTH) == 0, other_serf = strcmp(other->id, SERF_HEALTH) == 0;
    return serf != other_serf ? serf : one->modified > other->modified; /* equal: the smaller, which comes first */
}

static struct twin *twin_copy(struct arena *arena, const struct twin *twin) {
    struct twin *copy = arena_alloc(arena, sizeof *copy);
    *copy = (struct twin){.node = arena_strndup(arena, twin->node, strlen(twin->node)),
                          .id = arena_strndup(arena, twin->id, strlen(twin->id)),
                          .modified = twin->modified};
    return copy;
}

static void add_merge(struct search *search, const struct twin *stays, const struct twin *goes) {
    struct arena *arena = search->tx->arena;
    struct merge *merge = arena_alloc(arena, sizeof *merge);
    *merge = (struct merge){*twin_copy(arena, stays), *twin_copy(arena, goes)};
    pointers_add(&search->merges, arena, merge);
}

/* The node's last one was seen. */
static void search_node(struct search *search) {
    struct twin **twins = (struct twin **)search->twins.items;
    size_t count = search->twins.count;
    if (count > 1) qsort(twins, count, sizeof(struct twin *), by_id);
    for (size_t first = 0, end; first < count; first = end) {
        const struct twin *stays = twins[first];
        for (end = first + 1; end < count; end++) {
            if (!slice_equal_nocase(slice_text(twins[end]->id), slice_text(stays->id))) break;
            if (beats(twins[end], stays)) stays = twins[end];
        }
        for (size_t i = first; i < end; i++)
            if (twins[i] != stays) add_merge(search, stays, twins[i]);
    }
    search->twins = (struct pointers){0};
    search->node = NULL;
    arena_reset(&search->arena);
}

/* Services or checks of every node: their fields of the ID and of the last change. */
static struct pointers search_ids(struct machine_tx *tx, uint8_t table, unsigned id_field, unsigned modified_field) {
    enum { NODE_FIELD = 1 };
    struct search search = {.tx = tx};
    struct slice all = slice_make("", 0);
    struct store_cursor cursor;
    STORE_PREFIX(&cursor, tx->store, table, all) {
        struct slice node = record_text(cursor.value, NODE_FIELD), id = record_text(cursor.value, id_field);
        if (search.node && !slice_is(node, search.node)) search_node(&search);
        if (!search.node) search.node = arena_strndup(&search.arena, node.data, node.size);
        struct twin *twin = arena_alloc(&search.arena, sizeof *twin);
        *twin = (struct twin){search.node, arena_strndup(&search.arena, id.data, id.size),
                              record_number(cursor.value, modified_field)};
        pointers_add(&search.twins, &search.arena, twin);
    }
    store_cursor_close(&cursor);
    if (search.node) search_node(&search);
    arena_free(&search.arena);
    return search.merges;
}

/* Groups of names that differ in case only, each ended by NULL. */
static struct pointers same_spellings(struct machine_tx *tx, enum spelling_kind kind) {
    char head = (char)kind;
    struct slice prefix = slice_make(&head, 1);
    struct pointers groups = {0};
    struct store_cursor cursor;
    char *before = NULL;
    bool open = false;
    struct arena arena = {0};
    STORE_PREFIX(&cursor, tx->store, TABLE_SPELLINGS, prefix) {
        struct slice name = cursor.value;
        bool same = before && slice_equal_nocase(name, slice_text(before));
        if (same && !open) pointers_add(&groups, tx->arena, arena_strndup(tx->arena, before, strlen(before)));
        if (same) pointers_add(&groups, tx->arena, arena_strndup(tx->arena, name.data, name.size));
        if (!same && open) pointers_add(&groups, tx->arena, NULL);
        open = same;
        arena_reset(&arena);
        before = arena_strndup(&arena, name.data, name.size);
    }
    store_cursor_close(&cursor);
    if (open) pointers_add(&groups, tx->arena, NULL);
    CHECK(groups.count == 0 || !groups.items[groups.count - 1]);
    arena_free(&arena);
    return groups;
}

/* -- nodes -------------------------------------------------------------------------------------------------------- */

static Pb__Node *node_of(struct machine_tx *tx, const char *name) {
    struct slice bytes;
    return catalog_node_bytes(tx->store, slice_text(name), &bytes) == CO_OK ? record_node(tx->store, tx->arena, bytes)
                                                                            : NULL;
}

static bool node_beats(struct machine_tx *tx, const Pb__Node *one, const Pb__Node *other) {
    struct slice name = slice_text(one->name), other_name = slice_text(other->name);
    bool holds = lease_stands_for(tx, name), other_holds = lease_stands_for(tx, other_name);
    bool alive = catalog_node_alive(tx, name), other_alive = catalog_node_alive(tx, other_name);
    if (holds != other_holds) return holds;
    if (alive != other_alive) return alive;
    return one->modify_index > other->modify_index;
}

static struct pointers services_of(struct machine_tx *tx, const char *node) {
    char room[STORE_KEY_MAX];
    struct pointers services = {0};
    (void)record_services_below(tx->store, tx->arena, key_node(tx->store, room, slice_text(node)), &services);
    return services;
}

static struct pointers checks_of(struct machine_tx *tx, const char *node) {
    char room[STORE_KEY_MAX];
    struct pointers checks = {0};
    (void)record_checks_below(tx->store, tx->arena, key_node(tx->store, room, slice_text(node)), &checks);
    return checks;
}

static int compare_ids(const void *a, const void *b) {
    return slice_compare_nocase(slice_text(*(const char *const *)a), slice_text(*(const char *const *)b));
}

/* IDs for look-ups without case. */
static struct pointers sorted(struct pointers ids) {
    if (ids.count > 1) qsort(ids.items, ids.count, sizeof *ids.items, compare_ids);
    return ids;
}

static bool has(const struct pointers *ids, const char *id) {
    return ids->count && bsearch(&id, ids->items, ids->count, sizeof *ids->items, compare_ids);
}

static void merge_node(struct machine_tx *tx, const Pb__Node *stays, const Pb__Node *goes) {
    CHECK(strcmp(stays->name, goes->name) != 0);
    struct change change = {.tx = tx};
    bool alive = catalog_node_alive(tx, slice_text(goes->name));
    struct pointers services = services_of(tx, goes->name), checks = checks_of(tx, goes->name), left = {0};
    struct pointers own_services = {0}, own_checks = {0}, there = services_of(tx, stays->name);
    for (size_t i = 0; i < there.count; i++)
        pointers_add(&own_services, tx->arena, ((Pb__Service *)there.items[i])->id);
    there = checks_of(tx, stays->name);
    for (size_t i = 0; i < there.count; i++)
        pointers_add(&own_checks, tx->arena, ((Pb__Check *)there.items[i])->check_id);
    own_services = sorted(own_services), own_checks = sorted(own_checks);
    change_remove_node(&change, slice_text(goes->name));
    for (size_t i = 0; alive && i < services.count; i++) {
        Pb__Service *service = services.items[i];
        if (has(&own_services, service->id)) {
            pointers_add(&left, tx->arena, service->id);
            continue;
        }
        service->node = stays->name;
        change_service(&change, service);
    }
    for (size_t i = 0; alive && i < checks.count; i++) {
        Pb__Check *check = checks.items[i];
        bool stays_behind = has(&own_checks, check->check_id) || strcmp(check->check_id, SERF_HEALTH) == 0;
        for (size_t j = 0; j < left.count && !stays_behind; j++)
            stays_behind = strcmp(left.items[j], check->service_id) == 0;
        if (stays_behind) continue;
        check->node = stays->name;
        change_check(&change, check);
    }
    change_tell(&change);
}

static size_t merge_nodes(struct machine_tx *tx) {
    struct pointers groups = same_spellings(tx, SPELLING_NODE);
    size_t merged = 0;
    for (size_t first = 0, end; first < groups.count; first = end + 1) {
        const Pb__Node *stays = NULL;
        for (end = first; groups.items[end]; end++) {
            const Pb__Node *node = node_of(tx, groups.items[end]);
            if (node && (!stays || node_beats(tx, node, stays))) stays = node;
        }
        for (size_t i = first; i < end && stays; i++) {
            const Pb__Node *goes = node_of(tx, groups.items[i]);
            if (!goes || strcmp(goes->name, stays->name) == 0) continue;
            if (merged++ < LOG_MOST)
                log_warn("registry", "two nodes are one now, names are compared without case stays=\"%s\" goes=\"%s\"",
                         stays->name, goes->name);
            merge_node(tx, stays, goes);
        }
    }
    return merged;
}

/* -- services and checks ------------------------------------------------------------------------------------------ */

static void tell_merge(const char *what, const struct merge *merge, size_t number) {
    if (number < LOG_MOST)
        log_warn("registry", "two %s are one now, IDs are compared without case node=\"%s\" stays=\"%s\" goes=\"%s\"",
                 what, merge->goes.node, merge->stays.id, merge->goes.id);
}

static size_t merge_checks(struct machine_tx *tx) {
    enum { CHECK_ID_FIELD = 2 };
    struct pointers merges = search_ids(tx, TABLE_CHECKS, CHECK_ID_FIELD, CHECK_MODIFY_FIELD);
    for (size_t i = 0; i < merges.count; i++) {
        const struct merge *merge = merges.items[i];
        struct change change = {.tx = tx};
        tell_merge("checks", merge, i);
        change_remove_check(&change, slice_text(merge->goes.node), slice_text(merge->goes.id));
        change_tell(&change);
    }
    return merges.count;
}

static size_t merge_services(struct machine_tx *tx) {
    struct pointers merges = search_ids(tx, TABLE_SERVICES, SERVICE_ID_FIELD, SERVICE_MODIFY_FIELD);
    for (size_t i = 0; i < merges.count; i++) {
        const struct merge *merge = merges.items[i];
        struct change change = {.tx = tx};
        char room[STORE_KEY_MAX];
        struct slice node = slice_text(merge->goes.node), id = slice_text(merge->goes.id);
        struct pointers checks = {0};
        (void)record_checks_below(tx->store, tx->arena, key_service(tx->store, room, node, id), &checks);
        tell_merge("services", merge, i);
        for (size_t j = 0; j < checks.count; j++) {
            Pb__Check *check = checks.items[j];
            check->service_id = (char *)(uintptr_t)merge->stays.id;
            change_check(&change, check);
        }
        change_remove_service(&change, node, id);
        change_tell(&change);
    }
    return merges.count;
}

static void fold_merge(struct machine_tx *tx) {
    struct pointers names = same_spellings(tx, SPELLING_SERVICE);
    struct change change = {.tx = tx};
    for (size_t i = 0; i < names.count; i++)
        if (names.items[i]) preservation_fold_merge(&change, slice_text(names.items[i]));
    change_tell(&change);
    size_t nodes = merge_nodes(tx), checks = merge_checks(tx), services = merge_services(tx);
    if (nodes || checks || services)
        log_warn("registry", "names that differed in case only were merged nodes=%zu services=%zu checks=%zu", nodes,
                 services, checks);
}

/* -- keys --------------------------------------------------------------------------------------------------------- */

/* A record's key as it was and as it is to be. */
#define FOLD_MOVE(table, value, ...)                                                                              \
    do {                                                                                                          \
        const struct slice names_[] = {__VA_ARGS__};                                                              \
        char from_[STORE_KEY_MAX], to_[STORE_KEY_MAX];                                                            \
        size_t count_ = sizeof names_ / sizeof names_[0];                                                         \
        fold_move(tx, (table), fold_key_as(false, from_, count_, names_), fold_key_as(true, to_, count_, names_), \
                  (value));                                                                                       \
    } while (0)

static void fold_node(struct machine_tx *tx, struct slice key, struct slice value, struct arena *arena) {
    (void)key, (void)arena;
    FOLD_MOVE(TABLE_NODES, value, record_text(value, NODE_NAME_FIELD));
}

static void fold_service(struct machine_tx *tx, struct slice key, struct slice value, struct arena *arena) {
    (void)key;
    const Pb__Service *service = record_service(tx->store, arena, value);
    if (!service) return;
    struct slice node = slice_text(service->node), id = slice_text(service->id), name = slice_text(service->name);
    FOLD_MOVE(TABLE_SERVICES, value, node, id);
    FOLD_MOVE(TABLE_INSTANCES, slice_make("", 0), name, node, id);
    preservation_fold_instance(tx, service);
}

static void fold_check(struct machine_tx *tx, struct slice key, struct slice value, struct arena *arena) {
    (void)key;
    const Pb__Check *check = record_check(tx->store, arena, value);
    if (!check) return;
    struct slice node = slice_text(check->node), id = slice_text(check->check_id),
                 service_id = slice_text(check->service_id), carried = slice_text(check->service_name), bytes;
    FOLD_MOVE(TABLE_CHECKS, value, node, service_id, id);
    FOLD_MOVE(TABLE_CHECK_IDS, service_id, node, id);
    char room[STORE_KEY_MAX];
    const struct slice names[] = {carried, node, id};
    if (!store_del(tx->store, TABLE_STRAYS, fold_key_as(false, room, ARRAY_COUNT(names), names))) return;
    fold_set(tx->store, true);
    if (catalog_service_bytes(tx->store, node, service_id, &bytes) == CO_OK &&
        !fold_same(tx->store, record_text(bytes, SERVICE_NAME_FIELD), carried))
        store_put(tx->store, TABLE_STRAYS, key_stray(tx->store, room, carried, node, id), service_id);
}

static void fold_name(struct machine_tx *tx, struct slice key, struct slice value, struct arena *arena) {
    (void)key;
    preservation_fold_service(tx, slice_text(arena_strndup(arena, value.data, value.size)));
}

static void fold_keys(struct machine_tx *tx) {
    char head = SPELLING_SERVICE;
    struct slice all = slice_make("", 0);
    fold_walk(tx, TABLE_NODES, all, fold_node);
    fold_walk(tx, TABLE_SPELLINGS, slice_make(&head, 1), fold_name);
    fold_walk(tx, TABLE_SERVICES, all, fold_service);
    fold_walk(tx, TABLE_CHECKS, all, fold_check);
}

void catalog_on_event(struct machine_tx *tx, const struct machine_event *event) {
    if (event->type == MACHINE_FOLD_MERGE) fold_merge(tx);
    if (event->type == MACHINE_FOLD_KEYS) fold_keys(tx);
}
