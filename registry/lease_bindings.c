/* The things that are bound to each lease. A row is ROW_BINDING, the lease's id, the kind, and the name: shortened as a
 * key of the store when it is long; names of nodes and services are folded (registry/fold.h). The value has the whole
 * name, unless the key has it. */
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "registry/fold.h"
#include "registry/lease_internal.h"
#include "registry/tables.h"

struct slice lease_binding_head(struct slice lease, enum lease_kind kind, char *room) {
    CHECK(lease.size == UUID_TEXT_SIZE);
    _Static_assert(LEASE_BINDING_HEAD == 1 + UUID_TEXT_SIZE + 1, "row, id, kind");
    room[0] = ROW_BINDING;
    memcpy(room + 1, lease.data, UUID_TEXT_SIZE);
    room[1 + UUID_TEXT_SIZE] = (char)kind;
    return slice_make(room, LEASE_BINDING_HEAD);
}

struct slice lease_binding_name(struct slice key, struct slice value) {
    return value.size ? value : slice_make(key.data + LEASE_BINDING_HEAD, key.size - LEASE_BINDING_HEAD);
}

/* Names of nodes and services are found without case. */
static bool is_of_catalog(enum lease_kind kind) { return kind == LEASE_BINDS_SERVICE || kind == LEASE_BINDS_NODE; }

/* *value: the row's value. */
static struct slice row(struct slice lease, enum lease_kind kind, struct slice name, char *room, struct slice *value) {
    char tail[STORE_KEY_MAX];
    struct fold_name folded = {.folded = name};
    if (is_of_catalog(kind)) fold_name_of(&folded, name);
    struct slice head = lease_binding_head(lease, kind, room), key = store_key_long(folded.folded, tail);
    CHECK(name.size > 0 && head.size + key.size <= STORE_KEY_MAX);
    memcpy(room + head.size, key.data, key.size);
    *value = name.size > STORE_KEY_WHOLE || folded.folded.data != name.data ? name : slice_make("", 0);
    fold_name_free(&folded);
    return slice_make(room, head.size + key.size);
}

/* Touches the lease, unless it is ending: the end wakes its watchers already. */
static void changed(struct machine_tx *tx, struct slice lease) {
    char room[STORE_KEY_MAX];
    struct slice ignored;
    if (store_get(tx->store, TABLE_LEASES, lease_key(lease, room), &ignored) != CO_OK) return;
    machine_changed(tx, SPACE_LEASE, lease, false);
    machine_changed(tx, SPACE_LEASE_TABLE, slice_make("", 0), false);
}

void lease_bind(struct machine_tx *tx, struct slice lease, enum lease_kind kind, struct slice name) {
    CHECK(kind >= LEASE_BINDS_KEY && kind <= LEASE_BINDS_NODE);
    char room[STORE_KEY_MAX];
    struct slice value, ignored, key = row(lease, kind, name, room, &value);
    if (store_get(tx->store, TABLE_LEASES, key, &ignored) == CO_OK) return;
    store_put(tx->store, TABLE_LEASES, key, value);
    changed(tx, lease);
}

void lease_unbind(struct machine_tx *tx, struct slice lease, enum lease_kind kind, struct slice name) {
    char room[STORE_KEY_MAX];
    struct slice value;
    if (store_del(tx->store, TABLE_LEASES, row(lease, kind, name, room, &value))) changed(tx, lease);
}

bool lease_first(struct machine_tx *tx, struct slice lease, enum lease_kind kind, struct slice *name) {
    char room[LEASE_BINDING_HEAD];
    struct slice head = lease_binding_head(lease, kind, room);
    struct store_cursor cursor;
    store_cursor_open(&cursor, tx->store, TABLE_LEASES, head);
    bool found = cursor.valid && slice_starts(cursor.key, head);
    if (found) {
        struct slice at = lease_binding_name(cursor.key, cursor.value);
        *name = slice_make(arena_strndup(tx->arena, at.data, at.size), at.size);
    }
    store_cursor_close(&cursor);
    return found;
}

struct slice lease_service_name(struct arena *arena, struct slice node, struct slice id) {
    char *name = arena_alloc(arena, node.size + 1 + id.size);
    memcpy(name, node.data, node.size);
    name[node.size] = '\0';
    if (id.size) memcpy(name + node.size + 1, id.data, id.size);
    return slice_make(name, node.size + 1 + id.size);
}
