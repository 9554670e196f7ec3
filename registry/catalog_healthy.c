/* Has a service a healthy instance? This is asked for each service that an entry changes. So only the status of checks
 * is read, and records are decoded only when self-preservation holds an instance. */
#include <string.h>

#include "base/check.h"
#include "registry/catalog_query.h"
#include "registry/catalog_turns.h"
#include "registry/self_preservation.h"

struct looking {
    struct store_txn *txn;
    struct arena *arena;
    struct slice prefix; /* of the service's instances */
    Pb__HeldService *held;
    size_t most, looked;
};

static bool any_fails(struct store_txn *txn, struct slice prefix) {
    struct store_cursor cursor;
    bool fails = false;
    STORE_PREFIX(&cursor, txn, TABLE_CHECKS, prefix) {
        fails = record_number(cursor.value, CHECK_STATUS_FIELD) > PB__STATUS__WARNING;
        if (fails) break;
    }
    store_cursor_close(&cursor);
    return fails;
}

/* `rest`: the instance's key without the service's name: node, NUL, id, NUL. The node's own checks have an empty id. */
static bool checks_fail(struct store_txn *txn, struct slice rest) {
    char node[STORE_KEY_MAX];
    const char *end = memchr(rest.data, '\0', rest.size);
    if (!end) {
        store_fail(txn, CO_CORRUPT);
        return true;
    }
    size_t size = (size_t)(end - rest.data) + 1;
    CHECK(size < sizeof node);
    memcpy(node, rest.data, size);
    node[size] = '\0';
    return any_fails(txn, rest) || any_fails(txn, slice_make(node, size + 1));
}

static int healthy_held(struct looking *looking, struct slice rest) {
    static const Pb__ServiceRequest any = PB__SERVICE_REQUEST__INIT;
    struct query_entry_node node = {.node = NULL};
    Pb__ServiceEntry *entry;
    int error = query_load_entry(looking->txn, looking->arena, rest, true, &any, &node, &entry);
    if (error) return error;
    return catalog_entry_status(entry) > PB__STATUS__WARNING ? CO_NOTFOUND : CO_OK;
}

static int look(struct looking *looking, struct slice key) {
    struct slice rest = slice_make(key.data + looking->prefix.size, key.size - looking->prefix.size);
    if (!checks_fail(looking->txn, rest)) return store_txn_error(looking->txn);
    bool held = looking->held && preservation_holds(looking->txn, looking->held, key);
    return held ? healthy_held(looking, rest) : CO_NOTFOUND;
}

int catalog_instance_healthy(struct store_txn *txn, struct slice service, struct slice instance, struct arena *arena) {
    char room[STORE_KEY_MAX];
    struct slice nothing;
    struct looking looking = {.txn = txn, .arena = arena, .prefix = key_name(room, service)};
    int error = store_get(txn, TABLE_INSTANCES, instance, &nothing);
    if (!error) error = preservation_held(txn, service, arena, &looking.held);
    return error ? error : look(&looking, instance);
}

/* Searches the instances from `from` on, up to `end` (empty: to the last). */
static int search(struct looking *looking, struct slice from, struct slice end, struct catalog_witness *witness) {
    struct store_cursor cursor;
    int found = CO_NOTFOUND;
    for (store_cursor_open(&cursor, looking->txn, TABLE_INSTANCES, from);
         cursor.valid && slice_starts(cursor.key, looking->prefix); store_cursor_next(&cursor)) {
        if (end.size && slice_compare(cursor.key, end) >= 0) break;
        if (looking->most && looking->looked++ == looking->most) {
            found = CO_AGAIN;
            break;
        }
        found = look(looking, cursor.key);
        if (found == CO_NOTFOUND) continue;
        if (found != CO_OK) break;
        CHECK(cursor.key.size <= sizeof witness->key);
        memcpy(witness->key, cursor.key.data, cursor.key.size);
        witness->size = cursor.key.size;
        break;
    }
    store_cursor_close(&cursor);
    return found;
}

int catalog_service_healthy(struct store_txn *txn, struct slice service, size_t most, struct arena *arena,
                            struct catalog_witness *witness) {
    char room[STORE_KEY_MAX], last[STORE_KEY_MAX];
    struct looking looking = {.txn = txn, .arena = arena, .most = most, .prefix = key_name(room, service)};
    int error = preservation_held(txn, service, arena, &looking.held);
    if (error) return error;
    memcpy(last, witness->key, witness->size);
    struct slice from = slice_make(last, witness->size);
    if (!slice_starts(from, looking.prefix)) from = looking.prefix;
    int found = search(&looking, from, slice_make("", 0), witness);
    if (found == CO_NOTFOUND && from.size > looking.prefix.size)
        found = search(&looking, looking.prefix, from, witness);
    return found == CO_NOTFOUND && store_txn_error(txn) ? store_txn_error(txn) : found;
}
