/* Adds, changes and removes nodes, services and checks. */
#include "registry/catalog_write.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/message.h"
#include "registry/catalog_changes.h"
#include "registry/catalog_leases.h"
#include "registry/catalog_turns.h"
#include "registry/self_preservation.h"

const struct slice catalog_table_nodes = SLICE_LITERAL("nodes"), catalog_table_services = SLICE_LITERAL("services"),
                   catalog_table_checks = SLICE_LITERAL("checks"),
                   catalog_table_service_nodes = SLICE_LITERAL("service-nodes"),
                   catalog_table_service_addresses = SLICE_LITERAL("service-addresses"),
                   catalog_table_all = SLICE_LITERAL("catalog");

void change_event(struct change *change, enum machine_event_type type, struct slice node, struct slice id) {
    struct arena *arena = change->tx->arena;
    struct machine_event *event = arena_alloc(arena, sizeof *event);
    *event = (struct machine_event){type, slice_copy(arena, node), slice_copy(arena, id)};
    pointers_add(&change->events, arena, event);
}

void change_tell(struct change *change) {
    for (size_t i = 0; i < change->events.count; i++) {
        const struct machine_event *event = change->events.items[i];
        machine_emit(change->tx, event->type, event->node, event->id);
    }
}

/* Marks a change of the node, and so of the catalog. */
static void mark_node(struct machine_tx *tx, struct slice node, bool removed) {
    machine_changed(tx, SPACE_NODE, node, removed);
    machine_changed(tx, SPACE_TABLE, catalog_table_all, false);
}

/* -- looking up --------------------------------------------------------------------------------------------------- */

int catalog_node_bytes(struct store_txn *txn, struct slice node, struct slice *bytes) {
    char room[STORE_KEY_MAX];
    return store_get(txn, TABLE_NODES, key_node(room, node), bytes);
}

int catalog_service_bytes(struct store_txn *txn, struct slice node, struct slice id, struct slice *bytes) {
    char room[STORE_KEY_MAX];
    return store_get(txn, TABLE_SERVICES, key_service(room, node, id), bytes);
}

int catalog_check_bytes(struct store_txn *txn, struct slice node, struct slice check_id, struct slice *bytes) {
    char room[STORE_KEY_MAX];
    struct slice service_id;
    int error = store_get(txn, TABLE_CHECK_IDS, key_check_id(room, node, check_id), &service_id);
    if (error) return error;
    return store_get(txn, TABLE_CHECKS, key_check(room, node, service_id, check_id), bytes);
}

/* -- nodes -------------------------------------------------------------------------------------------------------- */

static bool has_any(struct store_txn *txn, uint8_t table, struct slice prefix) {
    struct store_cursor cursor;
    store_cursor_open(&cursor, txn, table, prefix);
    bool any = cursor.valid && slice_starts(cursor.key, prefix);
    store_cursor_close(&cursor);
    return any;
}

static bool same_meta(const Pb__Node *a, const Pb__Node *b) {
    if (a->n_meta != b->n_meta) return false;
    for (size_t i = 0; i < a->n_meta; i++) {
        if (strcmp(a->meta[i]->key, b->meta[i]->key) != 0 || strcmp(a->meta[i]->value, b->meta[i]->value) != 0)
            return false;
    }
    return true;
}

static void set_node_id(struct change *change, const char *before, const char *after, struct slice name) {
    char room[STORE_KEY_MAX];
    struct store_txn *store = change->tx->store;
    if (strcmp(before, after) == 0) return;
    struct slice holder;
    if (before[0] && store_get(store, TABLE_NODE_IDS, key_node_id(room, slice_text(before)), &holder) == CO_OK &&
        slice_equal_nocase(holder, name)) {
        (void)store_del(store, TABLE_NODE_IDS, key_node_id(room, slice_text(before)));
    }
    if (after[0]) store_put(store, TABLE_NODE_IDS, key_node_id(room, slice_text(after)), name);
}

/* Marks the results of queries that filter by the node's meta. */
static void mark_meta(struct change *change, struct slice name) {
    char room[STORE_KEY_MAX];
    struct slice prefix = key_node(room, name);
    bool services = has_any(change->tx->store, TABLE_SERVICES, prefix),
         checks = has_any(change->tx->store, TABLE_CHECKS, prefix);
    if (services) machine_changed(change->tx, SPACE_TABLE, catalog_table_service_nodes, false);
    if (checks) machine_changed(change->tx, SPACE_TABLE, catalog_table_checks, false);
}

/* Updates the tables that find the node by its ID and by its name in another case, and its binding to a lease. */
static void name_node(struct change *change, const Pb__Node *before, const Pb__Node *after) {
    if (before && after && strcmp(before->name, after->name) != 0) {
        name_node(change, before, NULL);
        before = NULL;
    }
    CHECK(before || after);
    struct slice name = slice_text((after ? after : before)->name);
    set_node_id(change, before ? before->id : "", after ? after->id : "", name);
    catalog_rebind(change->tx, LEASE_BINDS_NODE, before ? before->lease : "", after ? after->lease : "", name);
    if (!before || !after) change_spelling(change, SPELLING_NODE, name, after);
}

void change_node(struct change *change, Pb__Node *node, uint64_t base) {
    struct machine_tx *tx = change->tx;
    struct slice name = slice_text(node->name), stored;
    CHECK(name.size > 0 && tx->index > 0);
    Pb__Node *old = NULL;
    if (catalog_node_bytes(tx->store, name, &stored) == CO_OK) {
        old = record_node(tx->store, tx->arena, stored);
        if (!old) return;
        node->create_index = old->create_index;
        node->modify_index = old->modify_index;
        if (slice_equal(message_pack(tx->arena, &node->base), stored)) return;
    }
    node->create_index = base ? base : old ? old->create_index : tx->index;
    node->modify_index = tx->index;
    char room[STORE_KEY_MAX];
    store_put(tx->store, TABLE_NODES, key_node(room, name), message_pack(tx->arena, &node->base));
    name_node(change, old, node);
    mark_node(tx, name, false);
    machine_changed(tx, SPACE_TABLE, catalog_table_nodes, false);
    if (!old) return;
    change_mark_services_of_node(change, name);
    if (!same_meta(old, node)) mark_meta(change, name);
}

/* -- checks ------------------------------------------------------------------------------------------------------- */

static void set_stray(struct change *change, const Pb__Check *check, bool there) {
    char room[STORE_KEY_MAX];
    struct store_txn *store = change->tx->store;
    struct slice key =
        key_stray(room, slice_text(check->service_name), slice_text(check->node), slice_text(check->check_id));
    if (there) store_put(store, TABLE_STRAYS, key, slice_text(check->service_id));
    else (void)store_del(store, TABLE_STRAYS, key);
}

/* The name of the service that the check belongs to now; "" when that is gone, or for a node's check. */
static struct slice service_name_of(struct change *change, const Pb__Check *check) {
    struct slice bytes;
    if (!check->service_id[0]) return slice_make("", 0);
    if (catalog_service_bytes(change->tx->store, slice_text(check->node), slice_text(check->service_id), &bytes) !=
        CO_OK) {
        return slice_make("", 0);
    }
    return slice_copy(change->tx->arena, record_text(bytes, SERVICE_NAME_FIELD));
}

/* Marks that a check came, changed or went. `name`: of its service. */
static void mark_check(struct change *change, const Pb__Check *check, struct slice name) {
    struct machine_tx *tx = change->tx;
    mark_node(tx, slice_text(check->node), false);
    machine_changed(tx, SPACE_TABLE, catalog_table_checks, false);
    if (!check->service_id[0]) {
        change_mark_services_of_node(change, slice_text(check->node));
        return;
    }
    if (name.size) change_mark_service(change, name);
    struct slice carried = slice_text(check->service_name);
    if (!slice_equal_nocase(name, carried)) change_mark_service(change, carried);
}

static bool is_well(const Pb__Check *check) { return !check || check->status <= PB__STATUS__WARNING; }

/* Call it before the check is written: its instance may turn, or all instances on its node. */
static void turn_of_check(struct change *change, const Pb__Check *check, struct slice name) {
    struct slice node = slice_text(check->node);
    if (check->service_id[0]) turn_instance(change->tx, name, node, slice_text(check->service_id));
    else turn_node(change->tx, node);
}

static void turns_of_change(struct change *change, const Pb__Check *old, const Pb__Check *check) {
    bool moved = old && strcmp(old->service_id, check->service_id) != 0;
    if (moved && !is_well(old)) turn_of_check(change, old, service_name_of(change, old));
    if (moved ? !is_well(check) : is_well(old) != is_well(check))
        turn_of_check(change, check, slice_text(check->service_name));
}

/* Removes the record, with its indexes. */
static void delete_check(struct change *change, const Pb__Check *check, struct slice name) {
    struct store_txn *store = change->tx->store;
    char room[STORE_KEY_MAX];
    struct slice node = slice_text(check->node), id = slice_text(check->check_id);
    (void)store_del(store, TABLE_CHECKS, key_check(room, node, slice_text(check->service_id), id));
    (void)store_del(store, TABLE_CHECK_IDS, key_check_id(room, node, id));
    if (!slice_equal_nocase(name, slice_text(check->service_name))) set_stray(change, check, false);
}

void change_check(struct change *change, Pb__Check *check) {
    struct machine_tx *tx = change->tx;
    struct slice node = slice_text(check->node), id = slice_text(check->check_id), stored;
    Pb__Service *service = NULL;
    check->service_name = (char *)protobuf_c_empty_string;
    check->service_tags = NULL;
    check->n_service_tags = 0;
    if (check->service_id[0]) {
        if (catalog_service_bytes(tx->store, node, slice_text(check->service_id), &stored) != CO_OK) return;
        service = record_service(tx->store, tx->arena, stored);
        if (!service) return;
        check->service_name = service->name;
        check->service_tags = service->tags;
        check->n_service_tags = service->n_tags;
    }
    check->create_index = check->modify_index = tx->index;
    Pb__Check *old = NULL;
    if (catalog_check_bytes(tx->store, node, id, &stored) == CO_OK) {
        check->create_index = record_number(stored, CHECK_CREATE_FIELD);
        check->modify_index = record_number(stored, CHECK_MODIFY_FIELD);
        if (slice_equal(message_pack(tx->arena, &check->base), stored)) return;
        check->modify_index = tx->index;
        old = record_check(tx->store, tx->arena, stored);
        if (!old) return;
    }
    turns_of_change(change, old, check);
    if (old) {
        bool moved = strcmp(old->service_id, check->service_id) != 0;
        if (moved || strcmp(old->service_name, check->service_name) != 0) {
            struct slice name = service_name_of(change, old);
            delete_check(change, old, name);
            mark_check(change, old, name);
        }
    }
    char room[STORE_KEY_MAX];
    store_put(tx->store, TABLE_CHECKS, key_check(room, node, slice_text(check->service_id), id),
              message_pack(tx->arena, &check->base));
    store_put(tx->store, TABLE_CHECK_IDS, key_check_id(room, node, id), slice_text(check->service_id));
    mark_check(change, check, slice_text(check->service_name));
    bool was_critical = old && old->status == PB__STATUS__CRITICAL;
    if (check->status == PB__STATUS__CRITICAL && !was_critical) change_event(change, MACHINE_CHECK_CRITICAL, node, id);
}

/* All checks of the node, or those under a prefix of its keys, unpacked. */
static struct pointers collect_checks(struct change *change, struct slice prefix) {
    struct pointers checks = {0};
    (void)record_checks_below(change->tx->store, change->tx->arena, prefix, &checks);
    return checks;
}

static void remove_check(struct change *change, const Pb__Check *check) {
    struct slice name = service_name_of(change, check);
    if (!is_well(check)) turn_of_check(change, check, name);
    delete_check(change, check, name);
    mark_check(change, check, name);
    change_event(change, MACHINE_CHECK_REMOVED, slice_text(check->node), slice_text(check->check_id));
}

void change_remove_check(struct change *change, struct slice node, struct slice check_id) {
    struct slice stored;
    if (catalog_check_bytes(change->tx->store, node, check_id, &stored) != CO_OK) return;
    Pb__Check *check = record_check(change->tx->store, change->tx->arena, stored);
    if (check) remove_check(change, check);
}

/* -- services ----------------------------------------------------------------------------------------------------- */

/* The service has another name from now on: its checks keep the old one until they are registered again. */
static void rename_checks(struct change *change, const Pb__Service *before, const Pb__Service *after) {
    char room[STORE_KEY_MAX];
    struct slice prefix = key_service(room, slice_text(before->node), slice_text(before->id));
    struct pointers checks = collect_checks(change, prefix);
    for (size_t i = 0; i < checks.count; i++) {
        const Pb__Check *check = checks.items[i];
        set_stray(change, check, !slice_equal_nocase(slice_text(check->service_name), slice_text(after->name)));
    }
}

/* Touches the table of addresses; it has no index, because nobody asks for one. NULL: the service was not there, or is
 * gone. */
static void touch_addresses(struct change *change, const Pb__Service *before, const Pb__Service *after) {
    const char *was = before ? before->address : "", *is = after ? after->address : "";
    if (!was[0] && !is[0]) return;
    if (before && after && strcmp(was, is) == 0 && strcmp(before->name, after->name) == 0) return;
    machine_touch(change->tx, SPACE_TABLE, catalog_table_service_addresses);
}

static void rebind_service(struct change *change, const Pb__Service *before, const Pb__Service *after) {
    const char *was = before ? before->lease : "", *is = after ? after->lease : "";
    if (!was[0] && !is[0]) return;
    if (before && after && (strcmp(before->node, after->node) != 0 || strcmp(before->id, after->id) != 0)) {
        rebind_service(change, before, NULL); /* its name or ID is spelled differently now */
        rebind_service(change, NULL, after);
        return;
    }
    const Pb__Service *service = after ? after : before;
    struct slice name = lease_service_name(change->tx->arena, slice_text(service->node), slice_text(service->id));
    catalog_rebind(change->tx, LEASE_BINDS_SERVICE, was, is, name);
}

void change_service(struct change *change, Pb__Service *service) {
    struct machine_tx *tx = change->tx;
    struct slice node = slice_text(service->node), id = slice_text(service->id), stored;
    Pb__Service *old = NULL;
    service->create_index = service->modify_index = tx->index;
    if (catalog_service_bytes(tx->store, node, id, &stored) == CO_OK) {
        service->create_index = record_number(stored, SERVICE_CREATE_FIELD);
        service->modify_index = record_number(stored, SERVICE_MODIFY_FIELD);
        if (slice_equal(message_pack(tx->arena, &service->base), stored)) return;
        service->modify_index = tx->index;
        old = record_service(tx->store, tx->arena, stored);
        if (!old) return;
    }
    struct slice was = slice_text(old ? old->name : service->name);
    bool renamed = !slice_equal_nocase(was, slice_text(service->name));
    CHECK(old || !renamed);
    if (renamed) turn_instance(tx, was, node, id);
    if (renamed || !old) turn_instance(tx, slice_text(service->name), node, id);
    if (renamed) preservation_instance_gone(change, old);
    char room[STORE_KEY_MAX];
    store_put(tx->store, TABLE_SERVICES, key_service(room, node, id), message_pack(tx->arena, &service->base));
    change_names(change, old, service);
    rebind_service(change, old, service);
    touch_addresses(change, old, service);
    mark_node(tx, node, false);
    change_mark_service(change, slice_text(service->name));
    if (!renamed) return;
    rename_checks(change, old, service);
    change_mark_service(change, was);
}

static void remove_service(struct change *change, const Pb__Service *service) {
    struct machine_tx *tx = change->tx;
    char room[STORE_KEY_MAX];
    struct slice node = slice_text(service->node), id = slice_text(service->id);
    turn_instance(tx, slice_text(service->name), slice_text(service->node), slice_text(service->id));
    struct pointers checks = collect_checks(change, key_service(room, node, id));
    for (size_t i = 0; i < checks.count; i++) remove_check(change, checks.items[i]);
    preservation_instance_gone(change, service);
    (void)store_del(tx->store, TABLE_SERVICES, key_service(room, node, id));
    change_names(change, service, NULL);
    rebind_service(change, service, NULL);
    touch_addresses(change, service, NULL);
    mark_node(tx, node, false);
    change_mark_service(change, slice_text(service->name));
    change_event(change, MACHINE_SERVICE_REMOVED, node, id);
}

void change_remove_service(struct change *change, struct slice node, struct slice id) {
    struct slice stored;
    if (catalog_service_bytes(change->tx->store, node, id, &stored) != CO_OK) return;
    Pb__Service *service = record_service(change->tx->store, change->tx->arena, stored);
    if (service) remove_service(change, service);
}

/* Removes the services first, each with its checks, so that removing the node's own checks does not have to mark
 * services. */
void change_remove_node(struct change *change, struct slice name) {
    struct machine_tx *tx = change->tx;
    struct slice stored;
    if (catalog_node_bytes(tx->store, name, &stored) != CO_OK) return;
    Pb__Node *node = record_node(tx->store, tx->arena, stored);
    if (!node) return;
    name = slice_text(node->name); /* as it is spelled in the record */
    char room[STORE_KEY_MAX];
    struct slice prefix = key_node(room, name);
    struct pointers services = {0};
    (void)record_services_below(tx->store, tx->arena, prefix, &services);
    for (size_t i = 0; i < services.count; i++) remove_service(change, services.items[i]);
    struct pointers checks = collect_checks(change, key_node(room, name));
    for (size_t i = 0; i < checks.count; i++) remove_check(change, checks.items[i]);
    (void)store_del(tx->store, TABLE_NODES, key_node(room, name));
    name_node(change, node, NULL);
    mark_node(tx, name, true);
    machine_changed(tx, SPACE_TABLE, catalog_table_nodes, false);
    change_event(change, MACHINE_NODE_REMOVED, name, slice_make("", 0));
}
