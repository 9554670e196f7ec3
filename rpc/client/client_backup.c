/* Backups at a client agent: over its connection, piece by piece (backup_transfer.h).
 *
 *     WAITING --a connection--> ASKED <--> WORKING (the pool has the file) --> done
 *
 * What ends while the pool has it ends when the pool is done. */
#include "rpc/backup/backup_transfer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_in.h"
#include "base/log.h"
#include "base/tar.h"
#include "rpc/backup/archive.h"
#include "rpc/client/client_internal.h"
#include "rpc/wire/frame_unpack.h"

#define ARCHIVE_MOST (2 * TAR_SIZE_MAX) /* bytes; of what a server may send */

struct client_backup {
    struct loop_task task;
    struct list link; /* client->backups */
    struct client *client;
    struct rpc_save *save; /* one of the two */
    struct rpc_restore *restore;
    struct fault *fault; /* theirs */
    enum { BACKUP_WAITING, BACKUP_ASKED, BACKUP_WORKING } step;
    uint64_t number, conn, deadline_ms;
    uint64_t offset, size, index; /* offset: of the piece under way; size 0: not known yet */
    int error;                    /* WORKING: it is over, with this */
    /* The pool's, while WORKING. */
    uv_work_t uv;
    int fd, work_error;
    struct fault work_fault;
    size_t piece_size;
    char piece[BACKUP_PIECE_BYTES];
};

static struct client_backup *backup_at(struct list *item) { return LIST_ENTRY(item, struct client_backup, link); }
static bool is_last(const struct client_backup *backup) { return backup->offset + backup->piece_size == backup->size; }

static void finish(struct client_backup *backup, int error) {
    struct client *client = backup->client;
    struct rpc_save *save = backup->save;
    struct rpc_restore *restore = backup->restore;
    const char *what = save ? "saved" : "restored";
    list_remove(&backup->link);
    if (error == CO_OK)
        log_info("backup", "%s through a server index=%" PRIu64 " bytes=%" PRIu64, what, backup->index, backup->size);
    else log_warn("backup", "not %s: %s", what, backup->fault->code ? backup->fault->text : co_strerror(error));
    if (save && error == CO_OK) save->fd = backup->fd, save->size = backup->size, save->index = backup->index;
    else if (save && backup->fd >= 0) close(backup->fd);
    if (restore) restore->index = backup->index;
    free(backup);
    if (save) save->done(save, error);
    else restore->done(restore, error);
    client_finish_stop(client);
}

/* `text` NULL: the error says it all. */
static void fail(struct client_backup *backup, int error, const char *text) {
    if (backup->step == BACKUP_WORKING && backup->error) return;
    if (text) fault_set(backup->fault, error, "%s", text);
    backup->error = error;
    if (backup->step != BACKUP_WORKING) finish(backup, error);
}

/* -- frames ------------------------------------------------------------------------------------------------------- */
static void tell(struct client_backup *backup, enum backup_kind kind) {
    struct client_conn *conn = client_conn_of(backup->client, backup->conn);
    if (!conn) return;
    Pb__PeerBackup message = PB__PEER_BACKUP__INIT;
    message.number = backup->number, message.kind = kind, message.offset = backup->offset;
    if (kind == BACKUP_SAVE) message.stale = backup->save->stale;
    if (kind == BACKUP_RESTORE) {
        message.size = backup->size;
        message.data = (ProtobufCBinaryData){backup->piece_size, (uint8_t *)backup->piece};
    }
    link_tell(conn->wire, PEER_BACKUP, &message.base);
    link_flush(conn->wire);
    if (kind != BACKUP_END) backup->step = BACKUP_ASKED;
}

/* The server has not said it itself: it need not keep anything. */
static void give_up(struct client_backup *backup, int error, const char *text) {
    tell(backup, BACKUP_END);
    fail(backup, error, text);
}

/* -- in the pool -------------------------------------------------------------------------------------------------- */
static void save_run(uv_work_t *uv) {
    struct client_backup *backup = CONTAINER_OF(uv, struct client_backup, uv);
    if (backup->fd < 0 && (backup->fd = archive_temporary(backup->save->folder, &backup->work_fault)) < 0) {
        backup->work_error = backup->work_fault.code;
        return;
    }
    backup->work_error = backup_file_write(backup->fd, backup->piece, backup->piece_size, backup->offset);
    if (backup->work_error)
        fault_set(&backup->work_fault, backup->work_error, "the backup cannot be stored here: %s",
                  co_strerror(backup->work_error));
}

static void restore_run(uv_work_t *uv) {
    struct client_backup *backup = CONTAINER_OF(uv, struct client_backup, uv);
    struct stat file;
    if (backup->size == 0) {
        if (fstat(backup->fd, &file) != 0 || file.st_size <= 0) {
            backup->work_error = fault_set(&backup->work_fault, CO_CORRUPT, "not a backup, or damaged: it is empty");
            return;
        }
        backup->size = (uint64_t)file.st_size;
    }
    uint64_t left = backup->size - backup->offset;
    backup->piece_size = left < BACKUP_PIECE_BYTES ? (size_t)left : BACKUP_PIECE_BYTES;
    backup->work_error = file_in_all(backup->fd, backup->offset, backup->piece, backup->piece_size);
}

static void over(uv_work_t *uv, int status) {
    (void)status;
    struct client_backup *backup = CONTAINER_OF(uv, struct client_backup, uv);
    backup->step = BACKUP_ASKED;
    if (backup->error) {
        finish(backup, backup->error);
    } else if (backup->work_error) {
        give_up(backup, backup->work_error, backup->work_fault.code ? backup->work_fault.text : NULL);
    } else if (backup->restore) {
        tell(backup, BACKUP_RESTORE);
    } else if (is_last(backup)) {
        finish(backup, CO_OK);
    } else {
        backup->offset += backup->piece_size;
        tell(backup, BACKUP_SAVE);
    }
}

static void work(struct client_backup *backup) {
    backup->step = BACKUP_WORKING;
    CHECK(uv_queue_work(backup->client->loop, &backup->uv, backup->save ? save_run : restore_run, over) == 0);
}

/* -- answers ------------------------------------------------------------------------------------------------------ */
static void take_refusal(struct client_backup *backup, const Pb__PeerBackupPiece *piece) {
    int error = piece->outcome < CO_ERROR_COUNT ? (int)piece->outcome : CO_IO;
    for (char *at = piece->text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
    fail(backup, error, piece->text[0] ? piece->text : co_strerror(error));
}

static bool save_fits(const struct client_backup *backup, const Pb__PeerBackupPiece *piece) {
    size_t size = piece->data.len;
    return piece->offset == backup->offset && size > 0 && size <= BACKUP_PIECE_BYTES && piece->size <= ARCHIVE_MOST &&
           piece->size >= piece->offset && size <= piece->size - piece->offset &&
           (backup->size == 0 || piece->size == backup->size);
}

static void take_save(struct client_backup *backup, const Pb__PeerBackupPiece *piece) {
    if (!save_fits(backup, piece)) {
        give_up(backup, CO_IO, "the backup is not saved: a piece of it does not fit");
        return;
    }
    if (backup->size == 0) backup->size = piece->size, backup->index = piece->index;
    backup->piece_size = piece->data.len;
    memcpy(backup->piece, piece->data.data, piece->data.len);
    work(backup);
}

static void take_restore(struct client_backup *backup, const Pb__PeerBackupPiece *piece) {
    if (piece->offset != backup->offset + backup->piece_size) {
        if (is_last(backup)) fail(backup, CO_UNKNOWN_OUTCOME, NULL);
        else give_up(backup, CO_IO, "nothing is restored: the server wants another piece than the next");
    } else if (is_last(backup)) {
        backup->index = piece->index;
        finish(backup, CO_OK);
    } else {
        backup->offset = piece->offset;
        work(backup);
    }
}

bool client_backup_answered(struct client *client, uint64_t conn, struct slice payload) {
    Pb__PeerBackupPiece *piece = frame_unpack(&pb__peer_backup_piece__descriptor, payload, NULL);
    if (!piece) {
        client_backup_down(client, conn);
        return false;
    }
    LIST_FOREACH_SAFE(item, next, &client->backups) {
        struct client_backup *backup = backup_at(item);
        if (backup->step != BACKUP_ASKED || backup->conn != conn || backup->number != piece->number) continue;
        if (piece->outcome != CO_OK) take_refusal(backup, piece);
        else if (backup->save) take_save(backup, piece);
        else take_restore(backup, piece);
        break;
    }
    frame_drop(piece);
    return true;
}

/* -- events ------------------------------------------------------------------------------------------------------- */
static void begin(struct client_backup *backup) {
    struct client *client = backup->client;
    if (client->current->protocol < HELLO_VERSION_BACKUP) {
        fail(backup, CO_UNSUPPORTED,
             "the server of this client agent is of an older version, without backups through client agents: ask a "
             "server itself");
        return;
    }
    backup->conn = client->current->number, backup->number = ++client->backup_number;
    if (backup->restore) work(backup);
    else tell(backup, BACKUP_SAVE);
}

void client_backup_up(struct client *client) {
    LIST_FOREACH_SAFE(item, next, &client->backups)
        if (backup_at(item)->step == BACKUP_WAITING) begin(backup_at(item));
}

void client_backup_down(struct client *client, uint64_t conn) {
    LIST_FOREACH_SAFE(item, next, &client->backups) {
        struct client_backup *backup = backup_at(item);
        if (backup->step == BACKUP_WAITING || backup->conn != conn) continue;
        if (backup->save)
            fail(backup, CO_IO, "the backup is not saved: the connection with the server ended in the middle of it");
        else if (backup->step == BACKUP_ASKED && is_last(backup))
            fail(backup, CO_UNKNOWN_OUTCOME,
                 "the connection with the server ended while it restored: the backup may be restored or not");
        else
            fail(backup, CO_IO,
                 "nothing is restored: the connection with the server ended in the middle of the backup");
    }
}

bool client_backup_on(struct client *client, uint64_t conn) {
    LIST_FOREACH(item, &client->backups)
        if (backup_at(item)->step != BACKUP_WAITING && backup_at(item)->conn == conn) return true;
    return false;
}

void client_backup_tick(struct client *client, uint64_t now_ms) {
    LIST_FOREACH_SAFE(item, next, &client->backups)
        if (backup_at(item)->step == BACKUP_WAITING && now_ms >= backup_at(item)->deadline_ms)
            fail(backup_at(item), CO_NOLEADER, NULL);
}

void client_backup_stop(struct client *client) {
    LIST_FOREACH_SAFE(item, next, &client->backups) {
        struct client_backup *backup = backup_at(item);
        bool unknown = backup->restore && backup->step == BACKUP_ASKED && is_last(backup);
        fail(backup, unknown ? CO_UNKNOWN_OUTCOME : CO_CLOSED, NULL);
    }
}

/* -- from other threads ------------------------------------------------------------------------------------------- */
static void taken(struct loop_task *task) {
    struct client *client = task->rpc->client;
    struct client_backup *backup = CONTAINER_OF(task, struct client_backup, task);
    list_append(&client->backups, &backup->link);
    if (client->stopping) fail(backup, CO_CLOSED, NULL);
}

static void post(struct client *client, struct rpc_save *save, struct rpc_restore *restore) {
    struct client_backup *backup = mem_zalloc(sizeof *backup);
    backup->client = client;
    backup->save = save, backup->restore = restore, backup->fault = save ? &save->fault : &restore->fault;
    backup->fd = save ? -1 : restore->fd;
    backup->deadline_ms = clock_mono_ms() + RPC_LEADER_WAIT_MS;
    rpc_on_loop(client->rpc, &backup->task, taken);
}

void client_save(struct client *client, struct rpc_save *save) { post(client, save, NULL); }
void client_restore(struct client *client, struct rpc_restore *restore) { post(client, NULL, restore); }
