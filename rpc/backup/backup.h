/* Saving the state into an archive, and restoring it from one, on a server. Only threads of libuv's pool use the
 * disk. */
#ifndef COORD_RPC_BACKUP_H
#define COORD_RPC_BACKUP_H

#include "rpc/core/rpc_internal.h"

struct backups *backups_new(void);
void backups_free(struct backups *backups); /* no job is under way, and the node has stopped */

/* Any thread: as in rpc_role. */
void backup_save(struct rpc *rpc, struct rpc_save *save);
void backup_restore(struct rpc *rpc, struct rpc_restore *restore);

/* restore_abandoned.c; loop thread, a few times a second */
void restore_abandoned_look(struct rpc *rpc, bool leads);

#endif
