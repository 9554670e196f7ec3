/* Queries of checks. */
#include <stdlib.h>

#include "registry/catalog_access.h"
#include "registry/catalog_query.h"

static int compare_names(const char *one, const char *other) {
    int order = slice_compare_nocase(slice_text(one), slice_text(other));
    return order ? order : strcmp(one, other);
}

static int compare_checks(const void *a, const void *b) {
    const Pb__Check *one = *(Pb__Check *const *)a, *other = *(Pb__Check *const *)b;
    int order = compare_names(one->node, other->node);
    return order ? order : compare_names(one->check_id, other->check_id);
}

static int checks_done(struct store_txn *txn, struct arena *arena, struct watch_key watched, struct pointers *checks,
                       struct query_result *result) {
    if (checks->count > 1) qsort(checks->items, checks->count, sizeof *checks->items, compare_checks);
    Pb__ChecksResult *records = arena_alloc(arena, sizeof *records);
    pb__checks_result__init(records);
    records->checks = (Pb__Check **)checks->items;
    records->n_checks = checks->count;
    return query_done(txn, watched, &records->base, true, result);
}

/* Keeps the checks whose node has the meta. Checks of one node follow one another. */
static int filter_by_meta(struct store_txn *txn, struct arena *arena, Pb__Pair *const *wanted, size_t wanted_count,
                          struct pointers *checks) {
    const char *node = NULL;
    bool fits = false;
    size_t kept = 0;
    for (size_t i = 0; i < checks->count && wanted_count > 0; i++) {
        const Pb__Check *check = checks->items[i];
        if (!node || strcmp(node, check->node) != 0) {
            struct slice bytes;
            Pb__Node *record;
            node = check->node;
            if (catalog_node_bytes(txn, slice_text(node), &bytes) != CO_OK ||
                !(record = record_node(txn, arena, bytes)))
                return CO_CORRUPT;
            fits = query_meta_fits(record, wanted, wanted_count);
        }
        if (fits) checks->items[kept++] = checks->items[i];
    }
    if (wanted_count > 0) checks->count = kept;
    return CO_OK;
}

/* -- of a node ---------------------------------------------------------------------------------------------------- */

static struct watch_key node_thing(const ProtobufCMessage *message) {
    return (struct watch_key){SPACE_NODE, slice_text(((const Pb__NodeRequest *)message)->node)};
}

static int run_node_checks(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                           struct query_result *result) {
    char room[STORE_KEY_MAX];
    struct pointers checks = {0};
    struct watch_key watched = node_thing(message);
    int error = record_checks_below(txn, arena, key_node(room, watched.name), &checks);
    return error ? error : checks_done(txn, arena, watched, &checks, result);
}

/* -- of a service ------------------------------------------------------------------------------------------------- */

/* The checks of the service's instances, except those that still carry another name. */
static int checks_of_instances(struct store_txn *txn, struct arena *arena, struct slice name, struct pointers *checks) {
    char room[STORE_KEY_MAX];
    struct slice prefix = key_name(room, name);
    struct pointers found = {0};
    struct store_cursor cursor;
    int error = CO_OK;
    STORE_PREFIX(&cursor, txn, TABLE_INSTANCES, prefix) {
        error = record_checks_below(txn, arena,
                                    slice_make(cursor.key.data + prefix.size, cursor.key.size - prefix.size), &found);
        if (error) break;
    }
    store_cursor_close(&cursor);
    for (size_t i = 0; i < found.count; i++) {
        if (slice_equal_nocase(name, slice_text(((const Pb__Check *)found.items[i])->service_name)))
            pointers_add(checks, arena, found.items[i]);
    }
    return error;
}

/* The checks that carry the service's name although their service has another one now. A stray's key ends with node and
 * check id. */
static int checks_astray(struct store_txn *txn, struct arena *arena, struct slice name, struct pointers *checks) {
    char room[STORE_KEY_MAX];
    struct slice prefix = key_name(room, name), bytes;
    struct store_cursor cursor;
    int error = CO_OK;
    STORE_PREFIX(&cursor, txn, TABLE_STRAYS, prefix) {
        struct slice rest = slice_make(cursor.key.data + prefix.size, cursor.key.size - prefix.size), service_id;
        const char *end = memchr(rest.data, '\0', rest.size);
        char key[STORE_KEY_MAX], service_room[STORE_KEY_MAX];
        error = end && store_get(txn, TABLE_CHECK_IDS, rest, &service_id) == CO_OK ? CO_OK : CO_CORRUPT;
        if (error) break;
        size_t node_size = (size_t)(end - rest.data) + 1;
        struct slice middle = fold_key(service_room, 1, &service_id);
        error = rest.size + middle.size <= sizeof key ? CO_OK : CO_CORRUPT;
        if (error) break;
        memcpy(key, rest.data, node_size);
        memcpy(key + node_size, middle.data, middle.size);
        memcpy(key + node_size + middle.size, rest.data + node_size, rest.size - node_size);
        error = store_get(txn, TABLE_CHECKS, slice_make(key, rest.size + middle.size), &bytes);
        Pb__Check *check = error ? NULL : record_check(txn, arena, bytes);
        if (!check) error = CO_CORRUPT;
        if (error) break;
        pointers_add(checks, arena, check);
    }
    store_cursor_close(&cursor);
    return error;
}

static int run_service_checks(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                              struct query_result *result) {
    const Pb__ServiceRequest *request = (const Pb__ServiceRequest *)message;
    struct watch_key watched = query_service_thing(message);
    struct pointers checks = {0};
    int error = checks_of_instances(txn, arena, watched.name, &checks);
    if (!error) error = checks_astray(txn, arena, watched.name, &checks);
    if (!error) error = filter_by_meta(txn, arena, request->node_meta, request->n_node_meta, &checks);
    return error ? error : checks_done(txn, arena, watched, &checks, result);
}

/* -- by state ----------------------------------------------------------------------------------------------------- */

static struct watch_key checks_thing(const ProtobufCMessage *message) {
    (void)message;
    return (struct watch_key){SPACE_TABLE, catalog_table_checks};
}

static int run_state_checks(struct store_txn *txn, const ProtobufCMessage *message, struct arena *arena,
                            struct query_result *result) {
    const Pb__StateRequest *request = (const Pb__StateRequest *)message;
    bool any = strcmp(request->state, "any") == 0;
    Pb__Status status = PB__STATUS__PASSING;
    bool known = any || catalog_status_parse(slice_text(request->state), &status) == CO_OK;
    struct pointers checks = {0};
    struct store_cursor cursor;
    struct slice all = slice_make("", 0);
    int error = CO_OK;
    STORE_PREFIX(&cursor, txn, TABLE_CHECKS, all) {
        if (!known) break;
        if (!any && record_number(cursor.value, CHECK_STATUS_FIELD) != (uint64_t)status) continue;
        Pb__Check *check = record_check(txn, arena, cursor.value);
        if (check) pointers_add(&checks, arena, check);
        else error = CO_CORRUPT;
    }
    store_cursor_close(&cursor);
    if (!error) error = filter_by_meta(txn, arena, request->node_meta, request->n_node_meta, &checks);
    return error ? error : checks_done(txn, arena, checks_thing(message), &checks, result);
}

const struct query_type query_service_checks = {.number = 5,
                                                .name = "service-checks",
                                                .discovery = true,
                                                .request = &pb__service_request__descriptor,
                                                .result = &pb__checks_result__descriptor,
                                                .watched = query_service_thing,
                                                .run = run_service_checks,
                                                .show = catalog_show_service_checks};
const struct query_type query_node_checks = {.number = 6,
                                             .name = "node-checks",
                                             .discovery = true,
                                             .request = &pb__node_request__descriptor,
                                             .result = &pb__checks_result__descriptor,
                                             .watched = node_thing,
                                             .run = run_node_checks,
                                             .show = catalog_show_node_checks};
const struct query_type query_state_checks = {.number = 7,
                                              .name = "state-checks",
                                              .discovery = true,
                                              .request = &pb__state_request__descriptor,
                                              .result = &pb__checks_result__descriptor,
                                              .watched = checks_thing,
                                              .run = run_state_checks,
                                              .show = catalog_show_state_checks};
