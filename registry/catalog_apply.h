/* Inside the catalog: its commands. */
#ifndef COORD_REGISTRY_CATALOG_APPLY_H
#define COORD_REGISTRY_CATALOG_APPLY_H

#include "registry/catalog.h"

/* As machine_module.apply. */
int catalog_apply(struct machine_tx *tx, uint8_t type, struct slice payload, struct machine_result *result);

#endif
