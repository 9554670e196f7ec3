#include "rpc/backup/backup_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/file_in.h"
#include "base/log.h"
#include "base/random.h"
#include "base/tar.h"
#include "registry/operator.h"
#include "rpc/api/operator.h"
#include "rpc/backup/archive.h"
#include "rpc/backup/backup_transfer.h"

/* The common part of saving and restoring; it goes between loop and pool. */
struct work {
    uv_work_t uv;
    struct rpc *rpc;
    int error;
};

/* -- saving ------------------------------------------------------------------------------------------------------- */
struct save_impl {
    struct loop_task task;
    struct work *work;
    struct rpc_read_index gate;
};
_Static_assert(sizeof(struct save_impl) <= sizeof(((struct rpc_save *)0)->impl), "rpc_save.impl is too small");
static struct save_impl *save_impl(struct rpc_save *save) { return (struct save_impl *)(void *)save->impl; }
static struct rpc_save *save_of(struct save_impl *impl) { return CONTAINER_OF((char *)impl, struct rpc_save, impl); }
struct save_work {
    struct work work;
    struct rpc_save *save;
    struct save_work *next;
};

static uint64_t live_bytes(struct rpc *rpc) {
    struct store_reader *reader = store_reader_new(machine_store(rpc->machine));
    uint64_t bytes = store_live_bytes(store_read(reader));
    store_read_done(reader);
    store_reader_free(reader);
    return bytes;
}

static int copy_state(struct rpc *rpc, struct rpc_save *save, int state, struct archive_meta *meta) {
    uint64_t index, most = live_bytes(rpc), room = archive_room(state);
    if (room < most || room - most < ARCHIVE_ROOM_LEFT)
        return fault_set(&save->fault, CO_DISKFULL,
                         "disk full: a backup takes a copy of the state first, up to %" PRIu64 " bytes, and %" PRIu64
                         " are free",
                         most, room);
    int rv = machine_copy(rpc->machine, state, &index, &meta->term);
    off_t size = lseek(state, 0, SEEK_CUR);
    if (rv != CO_OK || size <= 0 || lseek(state, 0, SEEK_SET) != 0)
        return fault_set(&save->fault, rv ? rv : CO_IO, "the state cannot be copied: %s", co_strerror(rv ? rv : CO_IO));
    meta->version = 1, meta->size = (uint64_t)size;
    /* The copy is read again before it is handed out, because a backup that cannot be restored is none. */
    rv = machine_copy_check(rpc->machine, state, meta->size, &meta->index, &save->fault);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(meta->id, sizeof meta->id, "%" PRIu64 "-%" PRIu64 "-%lld", meta->term, meta->index,
             (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    return rv;
}

static int save_archive(struct rpc *rpc, struct rpc_save *save) {
    struct archive_meta meta = {0};
    int state = archive_temporary(save->folder, &save->fault);
    if (state < 0) return save->fault.code;
    int rv = copy_state(rpc, save, state, &meta);
    if (rv == CO_OK && (save->fd = archive_temporary(save->folder, &save->fault)) < 0) rv = save->fault.code;
    if (rv == CO_OK) rv = archive_write(save->fd, &meta, state, &save->fault);
    close(state);
    if (rv == CO_OK) {
        save->size = (uint64_t)lseek(save->fd, 0, SEEK_CUR), save->index = meta.index;
        if (lseek(save->fd, 0, SEEK_SET) != 0) rv = CO_IO;
    }
    if (rv != CO_OK && save->fd >= 0) close(save->fd), save->fd = -1;
    return rv;
}

static void save_run(uv_work_t *uv) {
    struct save_work *work = CONTAINER_OF(CONTAINER_OF(uv, struct work, uv), struct save_work, work);
    work->work.error = save_archive(work->work.rpc, work->save);
}

static void save_end(struct rpc *rpc, struct rpc_save *save, int error) {
    if (error == CO_OK) log_info("backup", "saved index=%" PRIu64 " bytes=%" PRIu64, save->index, save->size);
    else log_warn("backup", "not saved: %s", save->fault.code ? save->fault.text : co_strerror(error));
    save->done(save, error);
    rpc_job_over(rpc);
}

static void save_over(uv_work_t *uv, int status);

#define SAVES_MOST 16 /* the bound for clients that ask and do not wait for the answer */

/* Begins the next save. One runs at a time, because each takes disk space for copies, and a thread of the pool, which
 * others need. */
static void save_next(struct rpc *rpc) {
    for (struct save_work *work; (work = rpc->backups->saves) != NULL;) {
        if (!rpc->stopping) {
            CHECK(uv_queue_work(rpc->loop, &work->work.uv, save_run, save_over) == 0);
            return;
        }
        rpc->backups->saves = work->next;
        struct rpc_save *save = work->save;
        free(work);
        save_end(rpc, save, CO_CLOSED);
    }
}

static void save_over(uv_work_t *uv, int status) {
    (void)status;
    struct save_work *work = CONTAINER_OF(CONTAINER_OF(uv, struct work, uv), struct save_work, work);
    struct rpc *rpc = work->work.rpc;
    struct rpc_save *save = work->save;
    int error = work->work.error;
    rpc->backups->saves = work->next;
    free(work);
    save_next(rpc);
    save_end(rpc, save, error); /* a stopping server may wait for the last one */
}

static void save_confirmed(struct rpc_read_index *gate, int error) {
    struct save_impl *impl = CONTAINER_OF(gate, struct save_impl, gate);
    struct rpc *rpc = impl->task.rpc;
    struct rpc_save *save = save_of(impl);
    if (error == CO_OK && rpc->stopping) error = CO_CLOSED;
    if (error != CO_OK) {
        save_end(rpc, save, error);
        return;
    }
    struct save_work *work = mem_zalloc(sizeof *work);
    work->work.rpc = rpc, work->save = save;
    struct save_work **last = &rpc->backups->saves;
    unsigned waiting = 0;
    for (; *last; last = &(*last)->next) waiting++;
    if (waiting >= SAVES_MOST) {
        free(work);
        fault_set(&save->fault, CO_BUSY, "%u backups are wanted already: try again later", waiting);
        save_end(rpc, save, CO_BUSY);
        return;
    }
    *last = work;
    if (rpc->backups->saves == work) save_next(rpc);
}

static void save_taken(struct loop_task *task) {
    struct save_impl *impl = CONTAINER_OF(task, struct save_impl, task);
    struct rpc *rpc = task->rpc;
    struct rpc_save *save = save_of(impl);
    if (rpc->stopping) {
        save->done(save, CO_CLOSED);
        return;
    }
    rpc_job_begin(rpc);
    impl->gate.done = save_confirmed;
    int rv = rpc_read_index(rpc, save->stale ? RPC_STALE : RPC_DEFAULT, &impl->gate);
    if (rv != CO_AGAIN) save_confirmed(&impl->gate, rv);
}

void backup_save(struct rpc *rpc, struct rpc_save *save) { rpc_on_loop(rpc, &save_impl(save)->task, save_taken); }

/* -- restoring ----------------------------------------------------------------------------------------------------- */
/* The pool unpacks and checks the archive. Then, piece by piece, the pool reads it, the loop submits it, and the
 * applier tells the result. At last comes the command that makes it the state. */
struct restore_impl {
    struct loop_task task;
};
_Static_assert(sizeof(struct restore_impl) <= sizeof(((struct rpc_restore *)0)->impl), "rpc_restore.impl is too small");

struct restore_work {
    struct work work;
    struct rpc_restore *restore;
    int state;
    uint64_t size, at;
    bool ending, giving_up; /* the last command, or that to give up, is on its way */
    int failed;             /* why it is given up */
    size_t piece_size;
    uint8_t id[OPERATOR_RESTORE_ID];
    struct loop_task written;
    struct rpc_write write;
    uint8_t piece[OPERATOR_CHUNK_MAX];
};

static void restore_end(struct restore_work *work, int error) {
    struct rpc *rpc = work->work.rpc;
    struct rpc_restore *restore = work->restore;
    if (error != CO_OK)
        log_warn("backup", "not restored: %s", restore->fault.code ? restore->fault.text : co_strerror(error));
    if (work->state >= 0) close(work->state);
    free(work);
    restore->done(restore, error);
    rpc_job_over(rpc);
}

/* The largest state for which there is room: the log takes it, the store keeps it aside, and a new store is filled with
 * it. */
static uint64_t room_for(int fd) {
    uint64_t room = archive_room(fd) / 4;
    return room < TAR_SIZE_MAX ? room : TAR_SIZE_MAX;
}

static int unpack(struct restore_work *work) {
    struct rpc_restore *restore = work->restore;
    struct archive_meta meta;
    uint64_t index;
    work->state = archive_temporary(restore->folder, &restore->fault);
    if (work->state < 0) return restore->fault.code;
    int rv = archive_read(restore->fd, work->state, room_for(work->state), &meta, &restore->fault);
    if (rv == CO_OK && lseek(work->state, 0, SEEK_SET) != 0) rv = CO_IO;
    if (rv == CO_OK) rv = machine_copy_check(work->work.rpc->machine, work->state, meta.size, &index, &restore->fault);
    work->size = meta.size;
    return rv;
}

static int read_piece(struct restore_work *work) {
    work->piece_size =
        work->size - work->at < OPERATOR_CHUNK_MAX ? (size_t)(work->size - work->at) : OPERATOR_CHUNK_MAX;
    return file_in_all(work->state, work->at, work->piece, work->piece_size);
}

static void restore_run(uv_work_t *uv) {
    struct restore_work *work = CONTAINER_OF(CONTAINER_OF(uv, struct work, uv), struct restore_work, work);
    if (work->state < 0) work->work.error = unpack(work);
    if (work->work.error == CO_OK) work->work.error = read_piece(work);
}

static void submit_end(struct restore_work *work, bool give_up) {
    Pb__RestoreEndCommand command = PB__RESTORE_END_COMMAND__INIT;
    command.id = (ProtobufCBinaryData){sizeof work->id, work->id};
    command.size = work->size, command.give_up = give_up;
    work->ending = true, work->giving_up = give_up;
    rpc_submit(work->work.rpc, &work->write, OPERATOR_RESTORE_END, &command.base);
}

static void restore_ran(uv_work_t *uv, int status) {
    (void)status;
    struct restore_work *work = CONTAINER_OF(CONTAINER_OF(uv, struct work, uv), struct restore_work, work);
    int error = work->work.rpc->stopping ? CO_CLOSED : work->work.error;
    if (error != CO_OK && work->at > 0 && error != CO_CLOSED) {
        fault_set(&work->restore->fault, error, "a backup cannot be read: %s", co_strerror(error));
        work->failed = error;
        submit_end(work, true);
        return;
    }
    if (error != CO_OK) {
        restore_end(work, error);
        return;
    }
    Pb__RestoreChunkCommand command = PB__RESTORE_CHUNK_COMMAND__INIT;
    command.id = (ProtobufCBinaryData){sizeof work->id, work->id};
    command.offset = work->at;
    command.data = (ProtobufCBinaryData){work->piece_size, work->piece};
    rpc_submit(work->work.rpc, &work->write, OPERATOR_RESTORE_CHUNK, &command.base);
}

/* May the servers have kept pieces of this restore, which are of no use now? Pieces of another restore are not ours. */
static bool may_have_left_something(const struct restore_work *work, int error) {
    bool never = error == CO_NOLEADER || error == CO_DISKFULL || error == CO_BUSY || error == CO_FENCED;
    return !(never && work->at == 0) && error != CO_CLOSED && error != CO_CONFLICT && !work->work.rpc->stopping;
}

static void written_taken(struct loop_task *task) {
    struct restore_work *work = CONTAINER_OF(task, struct restore_work, written);
    int error = work->restore->fault.code ? work->restore->fault.code : work->work.error;
    if (work->giving_up || (work->ending && error == CO_OK)) {
        restore_end(work, work->giving_up ? work->failed : error);
        return;
    }
    if (error != CO_OK) {
        if (!may_have_left_something(work, error)) {
            restore_end(work, error);
            return;
        }
        work->failed = error;
        submit_end(work, true);
        return;
    }
    work->at += work->piece_size;
    if (work->work.rpc->stopping) restore_end(work, CO_CLOSED);
    else if (work->at == work->size) submit_end(work, false);
    else CHECK(uv_queue_work(work->work.rpc->loop, &work->work.uv, restore_run, restore_ran) == 0);
}

/* Applier or loop thread. */
static void written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct restore_work *work = CONTAINER_OF(write, struct restore_work, write);
    work->work.error = error;
    if (error == CO_OK && result->error != CO_OK && !work->giving_up) {
        work->work.error = result->error;
        fault_set(&work->restore->fault, result->error, "%s", result->text ? result->text : co_strerror(result->error));
    }
    if (error == CO_OK) work->restore->index = result->index;
    rpc_on_loop(work->work.rpc, &work->written, written_taken);
}

static void restore_taken(struct loop_task *task) {
    struct rpc *rpc = task->rpc;
    struct rpc_restore *restore = CONTAINER_OF((char *)task, struct rpc_restore, impl);
    if (rpc->stopping) {
        restore->done(restore, CO_CLOSED);
        return;
    }
    rpc_job_begin(rpc);
    struct restore_work *work = mem_zalloc(sizeof *work);
    work->work.rpc = rpc, work->restore = restore, work->state = -1, work->write.done = written;
    for (size_t i = 0; i < sizeof work->id; i += 8) {
        uint64_t part = random_u64();
        memcpy(work->id + i, &part, sizeof part);
    }
    CHECK(uv_queue_work(rpc->loop, &work->work.uv, restore_run, restore_ran) == 0);
}

void backup_restore(struct rpc *rpc, struct rpc_restore *restore) {
    rpc_on_loop(rpc, &((struct restore_impl *)(void *)restore->impl)->task, restore_taken);
}

/* -- life ---------------------------------------------------------------------------------------------------------- */
struct backups *backups_new(void) {
    return mem_zalloc(sizeof(struct backups));
}

void backups_free(struct backups *backups) {
    CHECK(!backups->saves);
    free(backups);
}
