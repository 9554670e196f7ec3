/* Backups at a client agent: a call whose pieces are pulled (backup_transfer.h).
 *
 *     begun --a piece came, or is wanted--> working (the pool has the file) --> the next piece, or done
 *
 * A backup that ends while the pool has it is finished when the pool is done. */
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

#define ARCHIVE_MOST (2 * TAR_SIZE_MAX) /* bytes that a server may send at most */

struct client_backup {
    struct loop_task task;
    struct call call;
    struct client *client;
    struct rpc_save *save; /* one of the two */
    struct rpc_restore *restore;
    struct fault *fault;          /* theirs */
    uint64_t offset, size, index; /* offset: of the piece under way; size 0: not known yet */
    bool working;
    int error; /* working: while working: it has ended with this error */
    /* The pool's, while working. */
    uv_work_t uv;
    int fd, work_error;
    struct fault work_fault;
    size_t piece_size;
    char piece[BACKUP_PIECE_BYTES];
};

static struct client_backup *backup_of(const struct call *call) {
    return CONTAINER_OF(call, struct client_backup, call);
}
static bool is_last(const struct client_backup *backup) { return backup->offset + backup->piece_size == backup->size; }

static void finish(struct client_backup *backup, int error) {
    struct client *client = backup->client;
    struct rpc_save *save = backup->save;
    struct rpc_restore *restore = backup->restore;
    const char *what = save ? "saved" : "restored";
    if (backup->call.peer) calls_cancel(client->rpc->calls, &backup->call);
    if (error == CO_OK)
        log_info("backup", "%s through a server index=%" PRIu64 " bytes=%" PRIu64, what, backup->index, backup->size);
    else log_warn("backup", "not %s: %s", what, backup->fault->code ? backup->fault->text : co_strerror(error));
    if (save && error == CO_OK) save->fd = backup->fd, save->size = backup->size, save->index = backup->index;
    else if (save && backup->fd >= 0) close(backup->fd);
    if (restore) restore->index = backup->index;
    free(backup);
    if (save) save->done(save, error);
    else restore->done(restore, error);
}

/* `text` NULL: the error needs no explanation. */
static void fail(struct client_backup *backup, int error, const char *text) {
    if (text) fault_set(backup->fault, error, "%s", text);
    backup->error = error;
    if (!backup->working) finish(backup, error);
}

/* -- frames ------------------------------------------------------------------------------------------------------- */
static ProtobufCMessage *build(struct call *call, struct arena *arena) {
    struct client_backup *backup = backup_of(call);
    Pb__PeerBackup *message = arena_alloc(arena, sizeof *message);
    pb__peer_backup__init(message);
    message->kind = backup->save ? BACKUP_SAVE : BACKUP_RESTORE, message->offset = backup->offset;
    if (backup->save) {
        message->stale = backup->save->stale;
        message->region = backup->save->region;
    } else {
        message->size = backup->size;
        message->region = backup->restore->region;
        message->data = (ProtobufCBinaryData){backup->piece_size, (uint8_t *)backup->piece};
    }
    message->token =
        (char *)(uintptr_t)requester_token(backup->save ? backup->save->requester : backup->restore->requester);
    return &message->base;
}

const struct call_method backup_method = {.name = "backup",
                                          .request_frame = PEER_BACKUP,
                                          .answer_frame = PEER_BACKUP_PIECE,
                                          .request = &pb__peer_backup__descriptor,
                                          .answer = &pb__peer_backup_piece__descriptor,
                                          .pulled = true,
                                          .answer_ms = UINT32_MAX, /* a silent connection is left by itself */
                                          .build = build};

/* Ends the backup and tells the server, which did not end it itself, to drop its file. */
static void give_up(struct client_backup *backup, int error, const char *text) {
    struct client_conn *conn = client_conn_of(backup->client, backup->call.peer);
    if (conn) {
        Pb__PeerBackup message = PB__PEER_BACKUP__INIT;
        message.number = backup->call.number, message.kind = BACKUP_END;
        link_tell(conn->wire, PEER_BACKUP, &message.base);
        link_flush(conn->wire);
    }
    fail(backup, error, text);
}

/* -- answers ------------------------------------------------------------------------------------------------------ */
static void work(struct client_backup *backup);

static void take_refusal(struct client_backup *backup, const Pb__PeerBackupPiece *piece) {
    int error = piece->outcome < CO_ERROR_COUNT ? (int)piece->outcome : CO_IO;
    char text[sizeof backup->fault->text];
    snprintf(text, sizeof text, "%s", piece->text[0] ? piece->text : co_strerror(error));
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
    fail(backup, error, text);
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

static bool piece_taken(struct call *call, const ProtobufCMessage *message) {
    struct client_backup *backup = backup_of(call);
    if (backup->save) take_save(backup, (const Pb__PeerBackupPiece *)message);
    else take_restore(backup, (const Pb__PeerBackupPiece *)message);
    return true;
}

static void lost(struct client_backup *backup) {
    if (backup->restore && !backup->working && is_last(backup))
        fail(backup, CO_UNKNOWN_OUTCOME,
             "the connection with the server ended while it restored: the backup may be restored or not");
    else if (backup->client->stopping) fail(backup, CO_CLOSED, NULL);
    else if (backup->save)
        fail(backup, CO_IO, "the backup is not saved: the connection with the server ended in the middle of it");
    else fail(backup, CO_IO, "nothing is restored: the connection with the server ended in the middle of the backup");
}

static void ended(struct call *call, int error, const ProtobufCMessage *message) {
    struct client_backup *backup = backup_of(call);
    if (error == CO_OK) take_refusal(backup, (const Pb__PeerBackupPiece *)message);
    else if (error == CO_UNKNOWN_OUTCOME) lost(backup);
    else fail(backup, error, NULL);
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
            backup->work_error = fault_set(&backup->work_fault, CO_CORRUPT, "%s", RPC_RESTORE_EMPTY);
            return;
        }
        backup->size = (uint64_t)file.st_size;
    }
    uint64_t left = backup->size - backup->offset;
    backup->piece_size = left < BACKUP_PIECE_BYTES ? (size_t)left : BACKUP_PIECE_BYTES;
    backup->work_error = file_in_all(backup->fd, backup->offset, backup->piece, backup->piece_size);
}

static void ask(struct client_backup *backup) {
    struct calls *calls = backup->client->rpc->calls;
    if (backup->call.method) {
        calls_next(calls, &backup->call, clock_mono_ms());
    } else {
        backup->call.done = ended, backup->call.piece = piece_taken;
        calls_begin(calls, &backup->call, &backup_method, client_wait_ms(backup->client), clock_mono_ms());
    }
}

static void over(uv_work_t *uv, int status) {
    (void)status;
    struct client_backup *backup = CONTAINER_OF(uv, struct client_backup, uv);
    struct rpc *rpc = backup->client->rpc;
    backup->working = false;
    if (backup->error) {
        finish(backup, backup->error);
    } else if (backup->work_error) {
        give_up(backup, backup->work_error, backup->work_fault.code ? backup->work_fault.text : NULL);
    } else if (backup->restore) {
        ask(backup);
    } else if (is_last(backup)) {
        finish(backup, CO_OK);
    } else {
        backup->offset += backup->piece_size;
        ask(backup);
    }
    rpc_job_over(rpc);
}

static void work(struct client_backup *backup) {
    backup->working = true;
    rpc_job_begin(backup->client->rpc);
    CHECK(uv_queue_work(backup->client->loop, &backup->uv, backup->save ? save_run : restore_run, over) == 0);
}

/* -- from other threads ------------------------------------------------------------------------------------------- */
static void taken(struct loop_task *task) {
    struct client *client = task->rpc->client;
    struct client_backup *backup = CONTAINER_OF(task, struct client_backup, task);
    if (client->stopping) finish(backup, CO_CLOSED);
    else if (backup->restore) work(backup);
    else ask(backup);
}

static void post(struct client *client, struct rpc_save *save, struct rpc_restore *restore) {
    struct client_backup *backup = mem_zalloc(sizeof *backup);
    backup->client = client;
    backup->save = save, backup->restore = restore, backup->fault = save ? &save->fault : &restore->fault;
    backup->fd = save ? -1 : restore->fd;
    rpc_on_loop(client->rpc, &backup->task, taken);
}

void client_save(struct client *client, struct rpc_save *save) { post(client, save, NULL); }
void client_restore(struct client *client, struct rpc_restore *restore) { post(client, NULL, restore); }
