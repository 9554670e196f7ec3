/* The changes of the catalog since some index, for servers that keep a copy: the difference between two states of it.
 * It has neither each change in between nor their order: a service that came and went is not in it.
 *
 * Where the history (registry/history.h) reaches back to the index, only the records that it names are looked at: the
 * cost is that of the changes. Otherwise the catalog is walked: the answer has the records that were modified since,
 * and the keys of all others. Either way it is one read transaction, so that a copy that takes the answer equals one
 * state of the catalog.
 *
 * For each instance a copy has its node, its service, the node's checks and its own; of checks neither output nor notes
 * nor definitions (catalog_strip). A check whose output alone changes is no change. Self-preservation
 * (registry/self_preservation.h) does not change a copy: copies have the true statuses. */
#ifndef COORD_REGISTRY_CATALOG_CHANGES_H
#define COORD_REGISTRY_CATALOG_CHANGES_H

#include "registry/catalog.h"
#include "registry/catalog_changes.pb-c.h"

/* In SPACE_TABLE: each change of the catalog marks it. */
extern const struct slice catalog_table_all; /* "catalog" */

/* CatalogChangesRequest -> CatalogChangesResult. The result's index is that of the last change of the catalog: a query
 * with the index of `to` waits for the next change. Until the first change it is that of the state.
 *   from.cluster_id or from.restored is not ours: all of it, at once, and `complete`
 *   from.index is above this server's: nothing, with `to` below `from`; this server is behind */
extern const struct query_type query_catalog_changes;
/* TableRequest (no filter) -> CatalogAt: its index is that of the last change, as above. For checking now and then
 * whether a copy is still right. */
extern const struct query_type query_catalog_position;

/* The present moment of this state, in the arena. */
Pb__CatalogAt *catalog_at_now(struct store_txn *txn, struct arena *arena);

/* Clears the fields of an entry that copies do not have, and those that repeat others: the node's name in service and
 * checks, the service's name and tags in checks. */
void catalog_strip(Pb__ServiceEntry *entry);
/* Fills the repeated fields in again; in the arena. */
void catalog_unstrip(Pb__ServiceEntry *entry);

#endif
