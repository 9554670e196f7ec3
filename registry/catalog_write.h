/* Inside the catalog: changes of records, with everything that depends on them (indexes, marks, events). The callers
 * have checked the records (catalog_apply.c). */
#ifndef COORD_REGISTRY_CATALOG_WRITE_H
#define COORD_REGISTRY_CATALOG_WRITE_H

#include "registry/catalog_records.h"

extern const struct slice catalog_table_nodes, catalog_table_services, catalog_table_checks,
    catalog_table_service_nodes, catalog_table_service_addresses;

/* A command being applied. Modules get its events at the end, when the catalog is as it will be, and only if the
 * command succeeded. */
struct change {
    struct machine_tx *tx;
    struct pointers events; /* struct machine_event */
};
void change_event(struct change *change, enum machine_event_type type, struct slice node, struct slice id);
void change_tell(struct change *change);

/* The stored bytes; they point into the map. CO_NOTFOUND. */
int catalog_node_bytes(struct store_txn *txn, struct slice node, struct slice *bytes);
int catalog_service_bytes(struct store_txn *txn, struct slice node, struct slice id, struct slice *bytes);
int catalog_check_bytes(struct store_txn *txn, struct slice node, struct slice check_id, struct slice *bytes);

/* Stores the record when it differs from the stored one. `base`: index of creation to keep, 0: that of the record of
 * the same name, or now. Index fields of the given records are overwritten. */
void change_node(struct change *change, Pb__Node *node, uint64_t base);
void change_service(struct change *change, Pb__Service *service);
void change_check(struct change *change, Pb__Check *check); /* its service exists; copies name and tags from it */

/* Removes it with everything on it. Does nothing when it is not there. */
void change_remove_node(struct change *change, struct slice node);
void change_remove_service(struct change *change, struct slice node, struct slice id);
void change_remove_check(struct change *change, struct slice node, struct slice check_id);

/* catalog_names.c: instances, names and tags. `before` or `after` is NULL when the instance comes or goes. */
void change_names(struct change *change, const Pb__Service *before, const Pb__Service *after);
uint64_t catalog_service_instances(struct store_txn *txn, struct slice name);
void change_spelling(struct change *change, enum spelling_kind kind, struct slice name, bool there);
/* Marks the service as changed, or as gone when it has no instances. */
void change_mark_service(struct change *change, struct slice name);
void change_mark_services_of_node(struct change *change, struct slice node);

#endif
