/* Backups through a client agent: the server that it is connected with saves and restores (rpc/backup/backup.c), the
 * archive crosses their connection in pieces. Both sides keep it in a file without a name (archive_temporary), so
 * neither its size nor a slow HTTP client holds memory or the connection: each backup has at most one piece of
 * BACKUP_PIECE_BYTES under way, and the next one is asked for, or sent, when that one is in the file. So other frames
 * of the connection wait for one piece at most.
 *
 *     agent                                              server
 *     SAVE     number, stale, offset 0     --->          makes the archive (rpc_save), keeps the file
 *              offset, data, size, index   <---          its first piece
 *     SAVE     number, offset              --->          ... and so on; after the last piece the file is gone
 *
 *     RESTORE  number, size, offset, data  --->          writes it to a file
 *              offset                      <---          wants what follows
 *     RESTORE  ... the last piece          --->          the archive is checked and restored (rpc_restore) ...
 *              index, or why not           <---          ... before this is answered
 *
 *     END      number                      --->          not wanted any more; not answered
 *
 * Offsets follow each other; a frame that does not fit is refused, and the server forgets the backup. It also forgets
 * it when the connection ends, or when nothing was asked for in BACKUP_IDLE_MS. There are at most BACKUPS_MAX at a
 * time, of all agents together. A restore begins when the whole archive is there: before that nothing is in the log,
 * and afterwards the server goes on whatever happens to the agent (and gives up what it staged as it does for its own
 * clients, rpc/backup/backup.c). An agent whose connection ends reports that, and does not try another server: nothing
 * was saved, nothing was restored, or, after the last piece, the outcome is unknown.
 *
 * Frames PEER_BACKUP and PEER_BACKUP_PIECE (rpc/wire/peer.proto). The answer has no time limit but the connection's: an archive may take minutes. */
#ifndef COORD_RPC_BACKUP_TRANSFER_H
#define COORD_RPC_BACKUP_TRANSFER_H

#include "rpc/api/operator.h"

#define BACKUP_PIECE_BYTES ((size_t)128 * 1024) /* a millisecond at 1 Gbit/s */
#define BACKUP_IDLE_MS     60000
#define BACKUPS_MAX        4 /* each is a file of the archive's size on the server's disk */

enum backup_kind { BACKUP_SAVE = 1, BACKUP_RESTORE, BACKUP_END };

/* All of `data` at `offset` of a file, or CO_IO, CO_DISKFULL; blocks on the disk. */
int backup_file_write(int fd, const char *data, size_t size, uint64_t offset);

#endif
