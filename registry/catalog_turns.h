/* Tells modules that want to know (module.on_turn) when an entry turns services between healthy and not healthy.
 *
 * An instance is healthy when DNS would give it out: passing or warning, or held (registry/self_preservation.h). Code
 * that is about to change that names the instance before the first write, so that its former health is noted. At the
 * end of the entry the instance is examined again: only the difference that the whole entry made counts.
 *
 * It costs nothing while no module wants to know (module.wants_turns). Otherwise an entry that adds or removes an
 * instance, or changes the status of one of its checks, reads the instance's checks twice. A check whose output alone
 * changes costs nothing. */
#ifndef COORD_REGISTRY_CATALOG_TURNS_H
#define COORD_REGISTRY_CATALOG_TURNS_H

#include "registry/catalog_write.h"

/* -- before the first write (applier) ----------------------------------------------------------------------------- */
/* This instance may turn. It need not exist. */
void turn_instance(struct machine_tx *tx, struct slice service, struct slice node, struct slice id);
void turn_node(struct machine_tx *tx, struct slice node); /* any instance on the node may turn */
/* Instances of the service may turn that are not named one by one: the whole service is examined. */
void turn_service(struct machine_tx *tx, struct slice service);

/* -- at the end of the entry -------------------------------------------------------------------------------------- */
void turns_tell(struct machine_tx *tx);

/* Is this instance healthy? `instance`: its key (key_instance), which need not be there. CO_OK, CO_NOTFOUND, or the store failed. */
int catalog_instance_healthy(struct store_txn *txn, struct slice service, struct slice instance, struct arena *arena);

#endif
