/* Inside the machine: tombstones. */
#ifndef COORD_REGISTRY_MACHINE_CHANGES_H
#define COORD_REGISTRY_MACHINE_CHANGES_H

#include "registry/machine.h"

/* Drops the oldest tombstones beyond `max`, raising the floor. */
void machine_tombstones_limit(struct store_txn *txn, uint64_t max);
uint64_t machine_tombstones_max(const struct machine *machine);

#endif
