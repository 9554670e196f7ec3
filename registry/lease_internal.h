/* Shared by the files of leases only. */
#ifndef COORD_REGISTRY_LEASE_INTERNAL_H
#define COORD_REGISTRY_LEASE_INTERNAL_H

#include "registry/lease.h"
#include "registry/store.h"

/* The record, unpacked into the arena. CO_NOTFOUND, CO_CORRUPT. */
int lease_record(struct store_txn *txn, struct slice id, struct arena *arena, Pb__Lease **lease);
/* The rows of TABLE_LEASES by their first byte. One table: each costs every transaction a little. */
enum lease_row {
    ROW_BINDING = 'b', /* lease_bindings.c */
    ROW_DEAD = 'd',    /* node in lower case -> DeadNode: it died, or left */
    ROW_LEASE = 'l',   /* id -> Lease */
    ROW_NODE = 'n',    /* node in lower case -> id of the lease that stands under this name */
};
/* Keys in `room`, of STORE_KEY_MAX bytes. Ids have UUID_TEXT_SIZE bytes. */
struct slice lease_key(struct slice id, char *room);
struct slice lease_node_key(enum lease_row row, struct slice node, char *room);
static inline struct slice lease_row_head(enum lease_row row, char *room) {
    room[0] = (char)row;
    return slice_make(room, 1);
}

/* -- commands (lease_apply.c): as module_command.apply */
int lease_grant_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int lease_end_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int lease_reap_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int node_leave_apply(struct machine_tx *tx, void *request, struct machine_result *result);
void lease_on_event(struct machine_tx *tx, const struct machine_event *event);

/* -- access (lease_access.c): as module_command.may, query_type.show */
int lease_grant_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
/* expiry_kind.may */
int lease_renew_may(struct access_check *check, struct store_txn *txn, struct slice id, bool look);
int lease_end_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
int lease_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
               struct query_result *result);
int leases_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                struct query_result *result);
int dead_nodes_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                    struct query_result *result);

/* -- bindings (lease_bindings.c) */
/* Beginning of the rows of one lease and kind; `room`: LEASE_BINDING_HEAD bytes. */
#define LEASE_BINDING_HEAD 38
struct slice lease_binding_head(struct slice lease, enum lease_kind kind, char *room);
/* The name in a row. */
struct slice lease_binding_name(struct slice key, struct slice value);

#endif
