/* Inside the catalog: from exact names to folded ones (registry/fold.h). Applier thread, within fold_apply. */
#ifndef COORD_REGISTRY_CATALOG_FOLD_H
#define COORD_REGISTRY_CATALOG_FOLD_H

#include "registry/catalog_write.h"

/* MACHINE_FOLD_MERGE. Of nodes whose names differ in case only one stays: that whose agent holds the node lease, else
 * one that is not dead, else the one that was changed last. What is on the others moves to it, but not: what is on a
 * dead node (serfHealth critical), a service or check whose ID it has itself, serfHealth. Sessions of the others end.
 * Then of services and checks of one node whose IDs differ in case only the one that was changed last stays,
 * "serfHealth" before others; checks of a service that goes belong to the one that stays. Between equals the smaller
 * name in bytes decides.
 *
 * MACHINE_FOLD_KEYS. Nothing collides any more: keys move. */
void catalog_on_event(struct machine_tx *tx, const struct machine_event *event);

#endif
