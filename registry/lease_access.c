/* Leases as a token may see and change them: a node's lease is granted and ended by node:write, another by session:write
 * on ""; session:read on its node's name, or "", shows it. Of the things that are bound to it only those are shown that
 * the token may read. */
#include "registry/access_operator.h"
#include "registry/catalog_access.h"
#include "registry/catalog_write.h"
#include "registry/lease_internal.h"

/* -- commands ----------------------------------------------------------------------------------------------------- */

static int may_write(struct access_check *check, const Pb__Lease *lease) {
    return access_require(check, lease->node[0] ? ACCESS_NODE : ACCESS_SESSION, slice_text(lease->node), ACCESS_WRITE);
}

int lease_grant_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    const Pb__LeaseGrantCommand *command = (const Pb__LeaseGrantCommand *)request;
    (void)txn;
    return command->lease ? may_write(check, command->lease) : CO_OK; /* `apply` refuses it */
}

int lease_end_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request) {
    Pb__Lease *lease;
    int error = lease_record(txn, slice_text(((const Pb__LeaseEndCommand *)request)->id), check->arena, &lease);
    if (error == CO_NOTFOUND) return store_txn_error(txn);
    return error ? error : may_write(check, lease);
}

int lease_renew_may(struct access_check *check, struct store_txn *txn, struct slice id, bool look) {
    Pb__Lease *lease;
    if (id.size == 0) return access_require_below(check, ACCESS_SESSION, id, ACCESS_READ); /* the time of all of them */
    int error = lease_record(txn, id, check->arena, &lease);
    if (error == CO_NOTFOUND) return store_txn_error(txn);
    if (error || !look) return error ? error : may_write(check, lease);
    return access_require(check, ACCESS_SESSION, slice_text(lease->node), ACCESS_READ);
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static bool shows_service(struct access_check *check, struct store_txn *txn, const Pb__LeaseService *bound) {
    Pb__Service *service;
    int error = catalog_service_get(txn, slice_text(bound->node), slice_text(bound->id), check->arena, &service);
    if (!error) return catalog_shows_instance(check, service->name, service->node);
    check->hidden++;
    return false;
}

static bool shows_key(struct access_check *check, ProtobufCBinaryData key) {
    return access_shows(check, ACCESS_KEY, slice_make(key.data, key.len));
}

static void show_bound(struct access_check *check, struct store_txn *txn, Pb__LeaseEntry *entry) {
    ACCESS_KEEP_ROWS(entry->n_keys, entry->keys, shows_key(check, row));
    ACCESS_KEEP_ROWS(entry->n_services, entry->services, shows_service(check, txn, row));
    ACCESS_KEEP_ROWS(entry->n_nodes, entry->nodes, access_shows(check, ACCESS_NODE, slice_text(row)));
}

int lease_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
               struct query_result *result) {
    Pb__LeaseEntry *entry = (Pb__LeaseEntry *)(uintptr_t)result->message;
    (void)request;
    if (!entry) return CO_OK; /* nobody's: its name would say whose it was */
    int error = access_require(check, ACCESS_SESSION, slice_text(entry->lease->node), ACCESS_READ);
    if (error) check->missing.name = slice_make("", 0);
    else show_bound(check, txn, entry);
    return error ? error : store_txn_error(txn);
}

int leases_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                struct query_result *result) {
    Pb__LeaseEntriesResult *records = (Pb__LeaseEntriesResult *)(uintptr_t)result->message;
    (void)request;
    ACCESS_KEEP_ROWS(records->n_leases, records->leases,
                     access_shows(check, ACCESS_SESSION, slice_text(row->lease->node)));
    for (size_t i = 0; i < records->n_leases; i++) show_bound(check, txn, records->leases[i]);
    return store_txn_error(txn);
}

int dead_nodes_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                    struct query_result *result) {
    Pb__DeadNodesResult *records = (Pb__DeadNodesResult *)(uintptr_t)result->message;
    (void)txn, (void)request;
    ACCESS_KEEP_ROWS(records->n_nodes, records->nodes, access_shows(check, ACCESS_NODE, slice_text(row->node)));
    return CO_OK;
}
