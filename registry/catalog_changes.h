/* What changed of the catalog since some index: the difference between two states of it, for who keeps a copy. Not each
 * change in between, and not their order: a service that came and went is not in it.
 *
 * Where the history (registry/history.h) reaches back to the index, only the records that it names are looked at: the
 * cost is that of the changes. Else the catalog is walked: what was modified since is told, and of all else that it is
 * there. Either is one read transaction, so that a copy which takes an answer equals one state of the catalog.
 *
 * A copy has of each instance its node, its service, the node's checks and its own; of checks not what they print, nor
 * their notes and definitions (catalog_strip). A check that prints something else is no change. What self-preservation
 * shows (registry/self_preservation.h) is not in it: copies have the truth. */
#ifndef COORD_REGISTRY_CATALOG_CHANGES_H
#define COORD_REGISTRY_CATALOG_CHANGES_H

#include "registry/catalog.h"
#include "registry/catalog_changes.pb-c.h"

/* In SPACE_TABLE: each change of the catalog marks it. */
extern const struct slice catalog_table_all; /* "catalog" */

/* CatalogChangesRequest -> CatalogChangesResult. The result's index is that of the last change of the catalog: whoever
 * asks with the index of `to` waits until there is one. Until the first change it is that of the
 * state.
 *   from.cluster_id or from.restored is not ours: all of it, at once, and `complete`
 *   from.index is above this server's: nothing, with `to` below `from`; this server is behind */
extern const struct query_type query_catalog_changes;
/* TableRequest (no filter) -> CatalogAt: its index is that of the last change, as above. For asking now and then whether a
 * copy is still the same. */
extern const struct query_type query_catalog_position;

/* The present moment of this state, in the arena. */
Pb__CatalogAt *catalog_at_now(struct store_txn *txn, struct arena *arena);

/* Takes away of an entry what copies do not have; and what its service says already: the node's name in service and
 * checks, the service's name and tags in checks. */
void catalog_strip(Pb__ServiceEntry *entry);
/* Puts back what it says already; in the arena. */
void catalog_unstrip(Pb__ServiceEntry *entry);

#endif
