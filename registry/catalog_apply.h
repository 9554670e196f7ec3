/* Inside the catalog: its commands. */
#ifndef COORD_REGISTRY_CATALOG_APPLY_H
#define COORD_REGISTRY_CATALOG_APPLY_H

#include "registry/catalog.h"

extern const struct module_command catalog_commands[];
/* Sorts the node's maps, because their order is not part of a registration. */
void catalog_sort_node(Pb__Node *node);

#endif
