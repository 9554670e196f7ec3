/* Inside the room of backups: backup.c and restore_abandoned.c. */
#ifndef COORD_RPC_BACKUP_INTERNAL_H
#define COORD_RPC_BACKUP_INTERNAL_H

#include "rpc/backup/backup.h"

/* The leader's observation of a restore that goes on, or was abandoned (restore_abandoned.c). */
struct restore_abandoned {
    uint8_t id[16];
    uint64_t size, since_ms, look_ms; /* since_ms: since when it is unchanged; 0: there is none */
    uint64_t last_index;              /* of the log, at the last look */
    struct rpc_write write;
    _Atomic bool writing; /* another thread clears it */
};

/* rpc->backups. Loop thread. */
struct backups {
    struct save_work *saves; /* the first is under way, the others wait for their turn */
    struct restore_abandoned left;
};

#endif
