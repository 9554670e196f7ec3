/* Inside the machine: where beginnings and ends of things that end by themselves go. */
#ifndef COORD_REGISTRY_MACHINE_POINT_H
#define COORD_REGISTRY_MACHINE_POINT_H

#include "registry/machine.h"

struct expiry_updates *machine_updates(const struct machine *machine); /* NULL: nobody counts */

#endif
