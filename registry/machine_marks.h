/* Inside the machine: removal marks. */
#ifndef COORD_REGISTRY_MACHINE_MARKS_H
#define COORD_REGISTRY_MACHINE_MARKS_H

#include "registry/machine.h"

/* Drops the oldest removal marks beyond `max`, raising the floor. */
void machine_marks_limit(struct store_txn *txn, uint64_t max);
/* Names are folded from now on (registry/fold.h). */
void machine_marks_fold(struct machine_tx *tx);
uint64_t machine_marks_max(const struct machine *machine);

#endif
