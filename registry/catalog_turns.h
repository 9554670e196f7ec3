/* Which services an entry turned between healthy and not, for modules that want to know (module.on_turn).
 *
 * Healthy is an instance that DNS would give out: passing or warning, or held (registry/self_preservation.h). Whoever is about
 * to change what that depends on names the instance before the first write, so that it is looked at as it still is. At the
 * end of the entry it is looked at again: what counts is the difference that the whole entry made, not what stood in between.
 *
 * Cost: nothing while no module wants to know (module.wants_turns). Else two looks at the checks of an instance, for entries that
 * bring it or take it away, or turn one of its checks; none for a check that stays as it is and says something else. */
#ifndef COORD_REGISTRY_CATALOG_TURNS_H
#define COORD_REGISTRY_CATALOG_TURNS_H

#include "registry/catalog_write.h"

/* -- before the first write (applier) ----------------------------------------------------------------------------- */
/* This instance may turn. It need not be there. */
void turn_instance(struct machine_tx *tx, struct slice service, struct slice node, struct slice id);
void turn_node(struct machine_tx *tx, struct slice node); /* any on the node may */
/* Instances of it may turn that nobody has named: all of it is looked at. */
void turn_service(struct machine_tx *tx, struct slice service);

/* -- at the end of the entry -------------------------------------------------------------------------------------- */
void turns_tell(struct machine_tx *tx);

/* Is this instance healthy? `instance`: its key (key_instance), which need not be there. CO_OK, CO_NOTFOUND, or the store failed. */
int catalog_instance_healthy(struct store_txn *txn, struct slice service, struct slice instance, struct arena *arena);

#endif
