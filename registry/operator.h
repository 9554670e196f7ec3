/* The state machine's own commands: operators' settings (autopilot, removed servers) and the restore of a backup. Every
 * machine has them, without being named in machine_config.modules.
 *
 * A backup is a copy (store_copy.c) taken from any cluster. It is written into the log in pieces
 * (OPERATOR_RESTORE_CHUNK), which the machine keeps aside in a table, and OPERATOR_RESTORE_END makes it the state, in
 * one step and at one place of the log on every server. So a restore is committed, or not, like any other command: no
 * crash and no change of leader in between leaves servers with different states. Indexes and fencing tokens never
 * shrink, also when the backup comes from a cluster with higher indexes. From then on the machine adds an offset to the
 * log's index (machine_index), so that the next index is above all that either of the two clusters ever used; `floor`
 * is raised to it. */
#ifndef COORD_REGISTRY_OPERATOR_H
#define COORD_REGISTRY_OPERATOR_H

#include "registry/machine.h"
#include "registry/operator.pb-c.h"

enum operator_command {
    OPERATOR_AUTOPILOT = 8,
    OPERATOR_SERVER_REMOVED = 9,
    OPERATOR_RESTORE_CHUNK = 10,
    OPERATOR_RESTORE_END = 11
};

enum { SPACE_OPERATOR = 8 }; /* watched: "autopilot" */

_Static_assert(OPERATOR_AUTOPILOT >= 1 && OPERATOR_RESTORE_END < 32, "commands of the registry (registry/module.h)");
_Static_assert(SPACE_OPERATOR >= 1 && SPACE_OPERATOR < 32, "a space of the registry");

#define OPERATOR_RESTORE_ID 16                  /* bytes: random, made for each restore */
#define OPERATOR_CHUNK_MAX  (1u << 20)          /* bytes of one RestoreChunkCommand.data */
#define OPERATOR_INDEX_MAX  ((uint64_t)1 << 62) /* backups have lower indexes */

extern const struct module operator_module;
/* AutopilotRequest -> AutopilotConfig. Gives the defaults when nothing was set. */
extern const struct query_type query_autopilot;

void operator_autopilot_default(Pb__AutopilotConfig *config);
bool operator_server_removed(struct store_txn *txn, uint64_t id); /* true also when the list cannot be read */
/* Copies the record of removed servers to another store: the first appends it to `out` (nothing: there are none), the
 * second puts it. */
void operator_removed_copy(struct store_txn *txn, struct buffer *out);
void operator_removed_place(struct store_txn *txn, struct slice record);

/* -- for the machine ---------------------------------------------------------------------------------------------- */
/* May this end a restore? NULL, or why not (then the command is refused, and the pieces kept aside are dropped). */
const char *operator_restore_refused(struct store_txn *txn, const Pb__RestoreEndCommand *command);
/* Are pieces of a restore kept aside? Its id, and their size. */
bool operator_staged(struct store_txn *txn, uint8_t id[OPERATOR_RESTORE_ID], uint64_t *size);
/* Writes the pieces kept aside to fd, in order. */
int operator_staged_write(struct store_txn *txn, int fd);
void operator_staged_clear(struct store_txn *txn);

#endif
