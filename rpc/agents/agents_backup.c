/* Backups of client agents, at the server (backup_transfer.h). Backups that wait for the agent are in a list. The
 * others are with the pool, rpc_save or rpc_restore, and are freed when these are done. Jobs (rpc_job_begin) keep the
 * server from stopping meanwhile. */

#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_in.h"
#include "base/log.h"
#include "rpc/agents/agents_internal.h"
#include "rpc/api/access_control.h"
#include "rpc/backup/archive.h"
#include "rpc/backup/backup_transfer.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/frame_unpack.h"

struct agent_backup {
    struct agent_backup *next;
    struct agents *agents;
    uint64_t agent, number;
    enum backup_kind kind;
    uint64_t size, offset, last_seen_ms; /* offset: of the next piece */
    int fd;
    struct requester *requester;
    bool working, gone; /* gone: not in the list any more; freed when the work is done */
    /* The piece that is under way. */
    uv_work_t uv;
    int error;
    struct fault fault;
    size_t data_size;
    char *data; /* BACKUP_PIECE_BYTES */
    struct rpc_save save;
    struct rpc_restore restore;
};

static void backup_free(struct agent_backup *backup) {
    if (backup->fd >= 0) close(backup->fd);
    requester_release(backup->requester);
    free(backup->data);
    free(backup);
}

static void drop(struct agent_backup *backup) {
    for (struct agent_backup **at = &backup->agents->backups; *at; at = &(*at)->next)
        if (*at == backup) {
            *at = backup->next;
            break;
        }
    if (backup->working) backup->gone = true;
    else backup_free(backup);
}

/* -- answers ------------------------------------------------------------------------------------------------------ */
static void refuse(struct agents *agents, uint64_t agent, uint64_t number, int error, const char *text) {
    Pb__PeerBackupPiece answer = PB__PEER_BACKUP_PIECE__INIT;
    answer.number = number, answer.outcome = (uint32_t)error, answer.text = (char *)(uintptr_t)text;
    agents_tell(agents, agent, PEER_BACKUP_PIECE, &answer.base);
}

static void fail(struct agent_backup *backup, int error, const struct fault *fault) {
    refuse(backup->agents, backup->agent, backup->number, error, fault->code ? fault->text : "");
    drop(backup);
}

static void answer(struct agent_backup *backup, uint64_t offset, uint64_t index) {
    Pb__PeerBackupPiece piece = PB__PEER_BACKUP_PIECE__INIT;
    piece.number = backup->number, piece.offset = offset, piece.size = backup->size, piece.index = index;
    if (backup->kind == BACKUP_SAVE) piece.data = (ProtobufCBinaryData){backup->data_size, (uint8_t *)backup->data};
    agents_tell(backup->agents, backup->agent, PEER_BACKUP_PIECE, &piece.base);
}

/* The loop has the backup again. False: it has ended. */
static bool back(struct agent_backup *backup, int error, const struct fault *fault) {
    backup->working = false;
    backup->last_seen_ms = clock_mono_ms();
    if (backup->gone) backup_free(backup);
    else if (backup->agents->rpc->stopping) fail(backup, CO_CLOSED, &(struct fault){0});
    else if (error != CO_OK) fail(backup, error, fault);
    else return true;
    return false;
}

/* -- in the pool -------------------------------------------------------------------------------------------------- */
/* Opens a file for the archive. The restore will take several times as much space again (rpc/backup/backup.c), so an
 * archive that does not fit is refused at once. */
static int open_file(struct agent_backup *backup) {
    struct statvfs disk;
    const char *folder = backup->agents->folder;
    if (statvfs(folder, &disk) == 0 && backup->size > (uint64_t)disk.f_bavail * disk.f_frsize / 4)
        return fault_set(&backup->fault, CO_TOOLARGE, "the backup has %llu bytes, the server has no room for it",
                         (unsigned long long)backup->size);
    backup->fd = archive_temporary(folder, &backup->fault);
    return backup->fd < 0 ? backup->fault.code : CO_OK;
}

static void piece_run(uv_work_t *uv) {
    struct agent_backup *backup = CONTAINER_OF(uv, struct agent_backup, uv);
    if (backup->kind == BACKUP_SAVE) {
        backup->error = file_in_all(backup->fd, backup->offset, backup->data, backup->data_size);
        return;
    }
    backup->error = backup->fd < 0 ? open_file(backup) : CO_OK;
    if (backup->error == CO_OK)
        backup->error = backup_file_write(backup->fd, backup->data, backup->data_size, backup->offset);
}

static void restored(struct rpc_restore *restore, int error) {
    struct agent_backup *backup = CONTAINER_OF(restore, struct agent_backup, restore);
    /* The outcome is told also when the server stops. */
    backup->working = false;
    if (backup->gone) {
        backup_free(backup);
    } else if (error != CO_OK) {
        fail(backup, error, &restore->fault);
    } else {
        answer(backup, backup->size, restore->index);
        drop(backup);
    }
}

static void piece_over(uv_work_t *uv, int status) {
    (void)status;
    struct agent_backup *backup = CONTAINER_OF(uv, struct agent_backup, uv);
    struct rpc *rpc = backup->agents->rpc;
    if (back(backup, backup->error, &backup->fault)) {
        uint64_t offset = backup->offset;
        backup->offset += backup->data_size;
        bool last = backup->offset == backup->size;
        if (backup->kind == BACKUP_SAVE) {
            answer(backup, offset, backup->save.index);
            if (last) drop(backup);
        } else if (last) {
            backup->restore.done = restored, backup->restore.folder = backup->agents->folder,
            backup->restore.fd = backup->fd;
            backup->working = true;
            rpc_restore(rpc, &backup->restore);
        } else {
            answer(backup, backup->offset, 0);
        }
    }
    rpc_job_over(rpc);
}

static void work(struct agent_backup *backup, size_t size) {
    backup->data_size = size;
    backup->working = true;
    rpc_job_begin(backup->agents->rpc);
    CHECK(uv_queue_work(backup->agents->rpc->loop, &backup->uv, piece_run, piece_over) == 0);
}

/* -- on the loop -------------------------------------------------------------------------------------------------- */
static void read_piece(struct agent_backup *backup) {
    uint64_t left = backup->size - backup->offset;
    work(backup, left < BACKUP_PIECE_BYTES ? (size_t)left : BACKUP_PIECE_BYTES);
}

static void saved(struct rpc_save *save, int error) {
    struct agent_backup *backup = CONTAINER_OF(save, struct agent_backup, save);
    if (error == CO_OK) backup->fd = save->fd, backup->size = save->size;
    if (back(backup, error, &save->fault)) read_piece(backup);
}

static struct agent_backup *backup_of(struct agents *agents, uint64_t agent, uint64_t number, size_t *count) {
    *count = 0;
    for (struct agent_backup *backup = agents->backups; backup; backup = backup->next) {
        if (backup->agent == agent && backup->number == number) return backup;
        ++*count;
    }
    return NULL;
}

/* A backup has everything, so it needs the rights of management. */
static int judge(struct agent *agent, const Pb__PeerBackup *ask, struct requester **requester) {
    struct access_want want = {ACCESS_ACL, {0}, ACCESS_WRITE};
    return agent_may(agent, ask->token, region_is_here(agent->agents->rpc, ask->region) ? &want : NULL, requester);
}

static struct agent_backup *begin(struct agent *agent, const Pb__PeerBackup *ask, struct requester *requester) {
    struct agents *agents = agent->agents;
    struct agent_backup *backup = mem_zalloc(sizeof *backup);
    backup->agents = agents, backup->agent = agent->reader.number, backup->number = ask->number, backup->fd = -1;
    backup->kind = ask->kind == BACKUP_SAVE ? BACKUP_SAVE : BACKUP_RESTORE;
    backup->data = mem_alloc(BACKUP_PIECE_BYTES);
    backup->requester = requester, backup->save.requester = requester, backup->restore.requester = requester;
    backup->last_seen_ms = clock_mono_ms();
    backup->next = agents->backups;
    agents->backups = backup;
    memcpy(backup->save.region, ask->region, strlen(ask->region) + 1);
    memcpy(backup->restore.region, ask->region, strlen(ask->region) + 1);
    log_info("agents", "a client agent %s a backup node=%s", ask->kind == BACKUP_SAVE ? "wants" : "brings",
             agent->node);
    if (backup->kind == BACKUP_RESTORE) {
        backup->size = ask->size;
        return backup;
    }
    backup->save.done = saved, backup->save.folder = agents->folder, backup->save.stale = ask->stale;
    backup->working = true;
    rpc_save(agents->rpc, &backup->save);
    return backup;
}

static void take_piece(struct agent_backup *backup, const Pb__PeerBackup *ask) {
    bool fits = ask->data.len > 0 && ask->data.len <= BACKUP_PIECE_BYTES && ask->size == backup->size &&
                ask->size >= ask->offset && ask->data.len <= ask->size - ask->offset;
    if (!fits) {
        struct fault fault = {0};
        fail(backup, fault_set(&fault, CO_INVALID, "a piece of the backup does not fit"), &fault);
        return;
    }
    memcpy(backup->data, ask->data.data, ask->data.len);
    work(backup, ask->data.len);
}

static void take(struct agent *agent, const Pb__PeerBackup *ask) {
    size_t count;
    struct agents *agents = agent->agents;
    uint64_t number = agent->reader.number;
    struct agent_backup *backup = backup_of(agents, number, ask->number, &count);
    bool known = ask->kind == BACKUP_SAVE || ask->kind == BACKUP_RESTORE;
    if (ask->kind == BACKUP_END) {
        if (backup) drop(backup);
    } else if (agents->rpc->stopping) {
        refuse(agents, number, ask->number, CO_CLOSED, "the server stops");
    } else if (strlen(ask->region) > RPC_REGION_MAX) {
        refuse(agents, number, ask->number, CO_NOREGION, "");
    } else if (!known || (backup && (backup->kind != ask->kind || backup->working || backup->offset != ask->offset))) {
        refuse(agents, number, ask->number, CO_INVALID, "the server did not expect this piece of the backup");
        if (backup) drop(backup);
    } else if (!backup && ask->offset != 0) {
        refuse(agents, number, ask->number, CO_TIMEOUT,
               "the server has given up this backup: nothing came for a minute");
    } else if (!backup && count >= BACKUPS_MAX) {
        refuse(agents, number, ask->number, CO_BUSY,
               "the server has several backups of client agents under way: try again later");
    } else {
        struct requester *requester = NULL;
        int denied = backup ? CO_OK : judge(agent, ask, &requester);
        if (denied) {
            refuse(agents, number, ask->number, denied, rpc_denial(agents->reader));
            requester_release(requester);
            return;
        }
        if (!backup) backup = begin(agent, ask, requester);
        if (backup->kind == BACKUP_RESTORE) take_piece(backup, ask);
        else if (!backup->working) read_piece(backup);
    }
}

bool agents_backup_frame(struct agent *agent, uint8_t type, struct slice payload) {
    Pb__PeerBackup *ask = type == PEER_BACKUP ? frame_unpack(&pb__peer_backup__descriptor, payload, NULL) : NULL;
    if (!ask) return false;
    take(agent, ask);
    frame_drop(ask);
    return true;
}

void agents_backup_down(struct agent *agent) {
    for (struct agent_backup *backup = agent->agents->backups, *next; backup; backup = next) {
        next = backup->next;
        if (backup->agent == agent->reader.number) drop(backup);
    }
}

void agents_backup_tick(struct agents *agents, uint64_t now_ms) {
    for (struct agent_backup *backup = agents->backups, *next; backup; backup = next) {
        next = backup->next;
        if (!backup->working && now_ms - backup->last_seen_ms > BACKUP_IDLE_MS) drop(backup);
    }
}
