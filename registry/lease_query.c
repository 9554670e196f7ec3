/* Queries on leases, and the reading of leases into the leader's table. */
#include <string.h>

#include "base/message.h"
#include "base/text.h"
#include "registry/catalog_records.h"
#include "registry/expiry.h"
#include "registry/lease_internal.h"
#include "registry/reconnect.h"
#include "registry/tables.h"

static const struct slice all = SLICE_LITERAL("");

/* -- one lease ---------------------------------------------------------------------------------------------------- */

static struct pointers bound(struct store_txn *txn, struct slice lease, enum lease_kind kind, struct arena *arena,
                             void *(*make)(struct arena *arena, struct slice name)) {
    char room[LEASE_BINDING_HEAD];
    struct slice head = lease_binding_head(lease, kind, room);
    struct pointers list = {0};
    struct store_cursor cursor;
    STORE_PREFIX(&cursor, txn, TABLE_LEASES, head) {
        pointers_add(&list, arena, make(arena, lease_binding_name(cursor.key, cursor.value)));
    }
    store_cursor_close(&cursor);
    return list;
}

static void *make_text(struct arena *arena, struct slice name) { return arena_strndup(arena, name.data, name.size); }

static void *make_slice(struct arena *arena, struct slice name) {
    struct slice *copy = arena_alloc(arena, sizeof *copy);
    *copy = slice_copy(arena, name);
    return copy;
}

static void *make_service(struct arena *arena, struct slice name) {
    Pb__LeaseService *service = arena_alloc(arena, sizeof *service);
    pb__lease_service__init(service);
    service->node = arena_strndup(arena, name.data, name.size); /* ends at the NUL between the two */
    size_t node_size = strlen(service->node);
    service->id = node_size < name.size ? service->node + node_size + 1 : service->node + node_size;
    return service;
}

static Pb__LeaseEntry *entry_of(struct store_txn *txn, Pb__Lease *lease, struct arena *arena) {
    Pb__LeaseEntry *entry = arena_alloc(arena, sizeof *entry);
    pb__lease_entry__init(entry);
    struct slice id = slice_text(lease->id);
    struct pointers keys = bound(txn, id, LEASE_BINDS_KEY, arena, make_slice),
                    services = bound(txn, id, LEASE_BINDS_SERVICE, arena, make_service),
                    nodes = bound(txn, id, LEASE_BINDS_NODE, arena, make_text);
    entry->lease = lease;
    entry->n_keys = keys.count;
    entry->keys = arena_alloc(arena, (keys.count + 1) * sizeof *entry->keys);
    for (size_t i = 0; i < keys.count; i++) {
        const struct slice *key = keys.items[i];
        entry->keys[i] = (ProtobufCBinaryData){key->size, (uint8_t *)(uintptr_t)key->data};
    }
    entry->n_services = services.count;
    entry->services = (Pb__LeaseService **)services.items;
    entry->n_nodes = nodes.count;
    entry->nodes = (char **)nodes.items;
    return entry;
}

static struct slice request_id(const ProtobufCMessage *request) {
    return slice_text(((const Pb__LeaseRequest *)request)->id);
}

static struct watch_key lease_thing(const ProtobufCMessage *request) {
    return (struct watch_key){SPACE_LEASE, request_id(request)};
}

static int lease_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                     struct query_result *result) {
    struct slice id = request_id(request);
    Pb__Lease *lease;
    *result = (struct query_result){.index = machine_change_index(txn, SPACE_LEASE, id)};
    int rv = lease_record(txn, id, arena, &lease);
    if (rv == CO_NOTFOUND) return CO_OK;
    if (rv != CO_OK) return rv;
    result->found = true;
    result->message = &entry_of(txn, lease, arena)->base;
    return CO_OK;
}

const struct query_type query_lease = {.number = 16,
                                       .name = "lease",
                                       .request = &pb__lease_request__descriptor,
                                       .result = &pb__lease_entry__descriptor,
                                       .watched = lease_thing,
                                       .run = lease_run,
                                       .show = lease_show};

/* -- lists -------------------------------------------------------------------------------------------------------- */

static struct watch_key leases_thing(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_LEASE_TABLE, all};
}

static int leases_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                      struct query_result *result) {
    (void)request;
    char room[1];
    struct slice head = lease_row_head(ROW_LEASE, room);
    struct pointers list = {0};
    struct store_cursor cursor;
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, TABLE_LEASES, head) {
        Pb__Lease *lease = message_unpack(arena, &pb__lease__descriptor, cursor.value);
        if (!lease) {
            rv = CO_CORRUPT;
            break;
        }
        pointers_add(&list, arena, entry_of(txn, lease, arena));
    }
    store_cursor_close(&cursor);
    Pb__LeaseEntriesResult *leases = arena_alloc(arena, sizeof *leases);
    pb__lease_entries_result__init(leases);
    leases->n_leases = list.count;
    leases->leases = (Pb__LeaseEntry **)list.items;
    *result = (struct query_result){machine_change_index(txn, SPACE_LEASE_TABLE, all), true, &leases->base};
    return rv;
}

const struct query_type query_leases = {.number = 17,
                                        .name = "leases",
                                        .request = &pb__lease_list_request__descriptor,
                                        .result = &pb__lease_entries_result__descriptor,
                                        .watched = leases_thing,
                                        .run = leases_run,
                                        .show = leases_show};

static struct watch_key dead_thing(const ProtobufCMessage *request) {
    (void)request;
    return (struct watch_key){SPACE_DEAD_NODES, all};
}

static int dead_run(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
                    struct query_result *result) {
    (void)request;
    char room[1];
    struct slice head = lease_row_head(ROW_DEAD, room);
    struct pointers list = {0};
    struct store_cursor cursor;
    int rv = CO_OK;
    STORE_PREFIX(&cursor, txn, TABLE_LEASES, head) {
        Pb__DeadNode *dead = message_unpack(arena, &pb__dead_node__descriptor, cursor.value);
        if (!dead) {
            rv = CO_CORRUPT;
            break;
        }
        if (!dead->left) pointers_add(&list, arena, dead);
    }
    store_cursor_close(&cursor);
    Pb__DeadNodesResult *nodes = arena_alloc(arena, sizeof *nodes);
    pb__dead_nodes_result__init(nodes);
    nodes->n_nodes = list.count;
    nodes->nodes = (Pb__DeadNode **)list.items;
    *result = (struct query_result){machine_change_index(txn, SPACE_DEAD_NODES, all), true, &nodes->base};
    return rv;
}

const struct query_type query_dead_nodes = {.number = 18,
                                            .name = "dead-nodes",
                                            .request = &pb__dead_nodes_request__descriptor,
                                            .result = &pb__dead_nodes_result__descriptor,
                                            .watched = dead_thing,
                                            .run = dead_run,
                                            .show = dead_nodes_show};
