/* Inside the machine: a backup that is kept aside becomes the state. */
#ifndef COORD_REGISTRY_MACHINE_RESTORE_H
#define COORD_REGISTRY_MACHINE_RESTORE_H

#include "registry/modules.h"

/* The number that is added to the log's index to get machine_index. */
uint64_t restore_offset(struct store_txn *txn);

/* The entry: its place in the log, the offset of indexes until now (restore_offset), and its time
 * (machine_tx.unix_ms). */
struct restore_at {
    uint64_t index, term, offset, unix_ms;
};

/* Applies a RestoreEndCommand at this place. CO_OK: the store holds the backup, with `index` applied. CO_AGAIN: the
 * command only gives up. CO_INVALID, CO_CORRUPT: refused, alike on every server. CO_UNSUPPORTED, CO_DISKFULL, CO_IO:
 * impossible now. On any error the old state stays. */
int restore_staged(struct store *store, const struct modules *modules, struct slice payload,
                   const struct restore_at *at, struct fault *fault);

/* See machine_copy_check. `version`: of the cluster that is to take it. */
int restore_check(struct store *store, int fd, uint64_t size, unsigned version, uint64_t *index, uint64_t *applied,
                  struct fault *fault);

#endif
