/* Inside the catalog: its commands. */
#ifndef COORD_REGISTRY_CATALOG_APPLY_H
#define COORD_REGISTRY_CATALOG_APPLY_H

#include "registry/catalog.h"

extern const struct module_command catalog_commands[];

#endif
