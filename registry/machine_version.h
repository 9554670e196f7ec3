/* Inside the machine: the cluster version, between the module that keeps its record and the machine that publishes
 * it. */
#ifndef COORD_REGISTRY_MACHINE_VERSION_H
#define COORD_REGISTRY_MACHINE_VERSION_H

#include "registry/version.h"

/* Applier: it is this with the commit of the present batch. */
void machine_version_note(struct machine *machine, const struct version_now *now);

#endif
