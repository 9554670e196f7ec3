/* Copies and replacing. A copy is: "COORDST1"; each record as table (1 byte), key size, value size (4 bytes each,
 * little-endian), key, value, in the order of tables and keys; at the end 0xFF, the number of records and the state
 * sum (8 bytes each). It names no LMDB page, so it does not depend on LMDB's version, page size or history, and
 * equal states give equal bytes. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/background.h"
#include "base/check.h"
#include "base/file_out.h"
#include "base/lazy_unlink.h"
#include "base/log.h"
#include "base/memory.h"
#include "registry/store_file.h"

#define MAGIC             "COORDST1"
#define MAGIC_SIZE        8
#define HEAD_SIZE         9
#define END_TABLE         0xff
#define END_SIZE          17
#define BLOCK_BYTES       ((size_t)256 * 1024)
#define VALUE_MAX         ((size_t)256 << 20)
#define LOAD_COMMIT_BYTES ((size_t)FILE_OUT_PIECE)
#define NEXT              "next.mdb"

/* -- writing ------------------------------------------------------------------------------------------------------ */

struct copy_out {
    int fd;
    struct buffer block;
    uint64_t count;
};

static int flush_out(struct copy_out *out) {
    int error = CO_OK;
    for (size_t at = 0; at < out->block.size && !error;) {
        ssize_t done = write(out->fd, out->block.data + at, out->block.size - at);
        if (done >= 0) at += (size_t)done;
        else if (errno == EPIPE) error = CO_CLOSED;
        else if (errno != EINTR) error = co_from_errno(errno);
    }
    buffer_reset(&out->block);
    return error;
}

static void write_record(void *data, uint8_t table, struct slice key, struct slice value) {
    struct copy_out *out = data;
    char head[HEAD_SIZE] = {(char)table};
    put_le32(head + 1, (uint32_t)key.size);
    put_le32(head + 5, (uint32_t)value.size);
    buffer_append(&out->block, head, sizeof head);
    buffer_append(&out->block, key.data, key.size);
    buffer_append(&out->block, value.data, value.size);
    out->count++;
}

/* While a block waits for the pipe no read transaction is open. */
int store_copy_view(struct store_view *view, int fd) {
    struct copy_out out = {.fd = fd};
    uint64_t sum = store_view_sum(view);
    buffer_append(&out.block, MAGIC, MAGIC_SIZE);
    int error = store_view_next(view, write_record, &out);
    while (!error) {
        if (out.block.size >= BLOCK_BYTES) error = flush_out(&out);
        if (!error) error = store_view_next(view, write_record, &out);
    }
    if (error == CO_NOTFOUND) {
        char end[END_SIZE] = {(char)END_TABLE};
        put_le64(end + 1, out.count);
        put_le64(end + 9, sum);
        buffer_append(&out.block, end, sizeof end);
        error = flush_out(&out);
    }
    buffer_free(&out.block);
    return error;
}

int store_copy(struct store *store, int fd) {
    struct store_view *view = store_view_open(store);
    int error = store_copy_view(view, fd);
    store_view_close(view);
    return error;
}

/* -- reading ------------------------------------------------------------------------------------------------------ */

struct copy_in {
    int fd;
    uint64_t size, got; /* size 0: not known */
    char *block;
    size_t at, end;
    bool closed;
    struct buffer record;
    struct fault *fault;
};

static int fill(struct copy_in *in) {
    uint64_t left = in->size ? in->size - in->got : BLOCK_BYTES;
    size_t want = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
    ssize_t done = 0;
    while (want > 0 && (done = read(in->fd, in->block, want)) < 0 && errno == EINTR) continue;
    if (done < 0)
        return fault_set(in->fault, co_from_errno(errno), "store: a copy cannot be read: %s", strerror(errno));
    in->at = 0;
    in->end = (size_t)done;
    in->got += (uint64_t)done;
    in->closed = done == 0;
    return CO_OK;
}

static int read_bytes(struct copy_in *in, char *to, size_t size) {
    while (size > 0) {
        if (in->at == in->end) {
            int error = fill(in);
            if (error) return error;
            if (in->closed)
                return fault_set(in->fault, CO_CORRUPT, "store: a copy ends early, after %llu bytes",
                                 (unsigned long long)in->got);
        }
        size_t part = in->end - in->at < size ? in->end - in->at : size;
        memcpy(to, in->block + in->at, part);
        in->at += part;
        to += part;
        size -= part;
    }
    return CO_OK;
}

static int bad(struct copy_in *in, const char *what);

/* "COORDST" and the format's number. */
static int read_magic(struct copy_in *in) {
    char magic[MAGIC_SIZE];
    int error = read_bytes(in, magic, sizeof magic);
    if (error || memcmp(magic, MAGIC, MAGIC_SIZE) == 0) return error;
    if (memcmp(magic, MAGIC, MAGIC_SIZE - 1) == 0 && magic[MAGIC_SIZE - 1] > '1' && magic[MAGIC_SIZE - 1] <= '9')
        return fault_set(in->fault, CO_UNSUPPORTED, "store: a copy was written by a newer version of coord (format %c)",
                         magic[MAGIC_SIZE - 1]);
    return fault_set(
        in->fault, CO_CORRUPT,
        "store: this is no copy of coord's state, or its first bytes are damaged: another program may have "
        "written it");
}

static int bad(struct copy_in *in, const char *what) {
    return fault_set(in->fault, CO_CORRUPT, "store: a copy is damaged near byte %llu: %s",
                     (unsigned long long)(in->got - (in->end - in->at)), what);
}

struct loader {
    struct copy_in *in;
    struct store_file *file;
    struct store_txn txn;
    uint64_t count;
    size_t pending;
    store_edit edit;
    void *edit_data;
};

static int load_failed(struct loader *load) {
    return fault_set(load->in->fault, load->txn.error, "store: %s: a copy cannot be loaded: %s", load->file->path,
                     co_strerror(load->txn.error));
}

static int load_commit(struct loader *load) {
    load->pending = 0;
    if (store_txn_commit(&load->txn) != CO_OK) return load_failed(load);
    int error = store_flush_behind(load->file);
    if (error)
        return fault_set(load->in->fault, error, "store: %s: a copy cannot be written: %s", load->file->path,
                         co_strerror(error));
    return store_file_begin(load->file, &load->txn) == CO_OK ? CO_OK : load_failed(load);
}

static int load_record(struct loader *load, const char *head) {
    struct copy_in *in = load->in;
    uint8_t table = (uint8_t)head[0];
    uint32_t key_size, value_size;
    memcpy(&key_size, head + 1, 4);
    memcpy(&value_size, head + 5, 4);
    if (key_size == 0 || key_size > STORE_KEY_MAX || value_size > VALUE_MAX) return bad(in, "impossible size");
    if (table >= STORE_TABLES_MAX || !load->file->known[table]) {
        return fault_set(in->fault, CO_UNSUPPORTED, "store: a copy has table %u, which this version does not know",
                         table);
    }
    buffer_reset(&in->record);
    buffer_reserve(&in->record, (size_t)key_size + value_size);
    int error = read_bytes(in, in->record.data, (size_t)key_size + value_size);
    if (error) return error;
    store_txn_append(&load->txn, table, slice_make(in->record.data, key_size),
                     slice_make(in->record.data + key_size, value_size));
    if (load->txn.error) return load_failed(load);
    load->count++;
    load->pending += key_size + value_size;
    return load->pending > LOAD_COMMIT_BYTES ? load_commit(load) : CO_OK;
}

static int load_end(struct loader *load, const char *head) {
    char end[END_SIZE];
    memcpy(end, head, HEAD_SIZE);
    int error = read_bytes(load->in, end + HEAD_SIZE, END_SIZE - HEAD_SIZE);
    if (error) return error;
    if (get_le64(end + 1) != load->count) return bad(load->in, "records are missing");
    if (get_le64(end + 9) != load->txn.sum) return bad(load->in, "its records do not have the sum that it names");
    if (load->in->at != load->in->end || (load->in->size && load->in->got != load->in->size))
        return bad(load->in, "bytes after its end");
    return CO_OK;
}

static int load_all(struct loader *load) {
    char head[HEAD_SIZE];
    int error = read_magic(load->in);
    if (error) return error;
    if (store_file_begin(load->file, &load->txn) != CO_OK) return load_failed(load);
    for (;;) {
        error = read_bytes(load->in, head, sizeof head);
        if (!error && (uint8_t)head[0] == END_TABLE) {
            error = load_end(load, head);
            if (!error && load->edit) error = load->edit(&load->txn, load->edit_data, load->in->fault);
            break;
        }
        if (!error) error = load_record(load, head);
        if (error) break;
    }
    if (error) {
        if (load->txn.mdb) store_txn_abort(&load->txn);
    } else if (store_txn_commit(&load->txn) != CO_OK) {
        error = load_failed(load);
    }
    buffer_free(&load->txn.undo.log);
    return error;
}

/* -- replacing ---------------------------------------------------------------------------------------------------- */

static void unlink_next(struct store *store) {
    char *path = store_path(store->folder, NEXT), *lock = store_path(store->folder, NEXT "-lock");
    unlink(path);
    unlink(lock);
    free(path);
    free(lock);
}

struct load_job {
    struct store *store;
    struct loader load;
    uint64_t size;
    int fd, error;
    struct fault *fault;
};

static int load_file(struct load_job *job) {
    struct store *store = job->store;
    char *path = store_path(store->folder, NEXT);
    unlink_next(store);
    int error = store_file_open(path, &store->config, &job->load.file, job->fault);
    free(path);
    if (error) return error;
    struct copy_in in = {.fd = job->fd, .size = job->size, .block = mem_alloc(BLOCK_BYTES), .fault = job->fault};
    job->load.in = &in;
    /* Not synced: after a crash of the machine the store is not trusted anyway, and syncing a gigabyte at once would
     * hold up the log's disk. */
    error = load_all(&job->load);
    free(in.block);
    buffer_free(&in.record);
    if (error) store_file_discard(job->load.file, true);
    return error;
}

static void *load_main(void *arg) {
    struct load_job *job = arg;
    background_thread("store-load");
    job->error = load_file(job);
    return NULL;
}

/* Loads in a thread of low priority, because a gigabyte takes seconds of a processor. */
static int load_in_background(struct load_job *job) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, load_main, job) != 0) return load_file(job);
    pthread_join(thread, NULL);
    return job->error;
}

/* The marker names the new file before it takes the old one's name: after a crash between the two the store is not
 * trusted. */
static int take_name(struct store *store, struct store_file *next, struct fault *fault) {
    struct stat old, fresh;
    if (fstat(store->file->fd, &old) != 0 || fstat(next->fd, &fresh) != 0)
        return fault_set(fault, CO_IO, "store: %s: fstat failed", store->folder);
    int error = store_marker_write(store->folder, &fresh, fault);
    if (error) return error;
    if (rename(next->path, store->file->path) != 0) {
        error = fault_set(fault, co_from_errno(errno), "store: %s: cannot be renamed: %s", next->path, strerror(errno));
        (void)store_marker_write(store->folder, &old, NULL);
        return error;
    }
    (void)store_sync_folder(store->folder);
    return CO_OK;
}

struct store_file *store_switch(struct store *store, struct store_file *next) {
    struct store_file *old = store->file;
    pthread_mutex_lock(&store->lock);
    free(next->path);
    next->path = mem_strdup(old->path);
    next->aside = old->aside;
    old->aside = NULL;
    store->file = next;
    pthread_mutex_unlock(&store->lock);
    return old;
}

/* The store takes about as much space as the copy. A load that certainly does not fit is not begun, so that the log
 * keeps the space that is left. */
static bool has_room_for(const struct store *store, uint64_t size) {
    struct statvfs disk;
    return statvfs(store->folder, &disk) != 0 || (uint64_t)disk.f_bavail * disk.f_frsize >= size;
}

int store_replace_edited(struct store *store, int fd, uint64_t size, bool background, store_edit edit, void *data,
                         struct fault *fault) {
    CHECK(!store->write_open);
    store_compact_stop(store);
    struct load_job job = {
        .store = store, .load = {.edit = edit, .edit_data = data}, .size = size, .fd = fd, .fault = fault};
    int error = has_room_for(store, size) ? CO_OK
                                          : fault_set(fault, CO_DISKFULL, "store: no room for a state of %llu bytes",
                                                      (unsigned long long)size);
    if (!error) error = background ? load_in_background(&job) : load_file(&job);
    if (error == CO_DISKFULL) store_space_aside_gone(store->file); /* so that the next attempt has more space */
    if (error) return error;
    struct store_file *next = job.load.file;
    /* this handle keeps the old file's blocks, so that they can be freed slowly; if it fails they are freed at once */
    int gone = open(store->file->path, O_RDWR | O_CLOEXEC);
    store_gate_close(store);
    error = take_name(store, next, fault);
    if (!error) {
        store_file_discard(store_switch(store, next), false);
        if (gone >= 0) lazy_unlink_when_closed(gone);
    }
    store_gate_open(store);
    if (gone >= 0) close(gone);
    if (error) store_file_discard(next, true);
    unlink_next(store);
    return error;
}

int store_replace(struct store *store, int fd, uint64_t size, struct fault *fault) {
    return store_replace_edited(store, fd, size, false, NULL, NULL, fault);
}

int store_clear(struct store *store, struct fault *fault) {
    char bytes[MAGIC_SIZE + END_SIZE] = MAGIC;
    bytes[MAGIC_SIZE] = (char)END_TABLE;
    int ends[2];
    if (pipe(ends) != 0) return fault_set(fault, CO_IO, "store: no pipe");
    ssize_t done = write(ends[1], bytes, sizeof bytes);
    close(ends[1]);
    int error = done == (ssize_t)sizeof bytes ? store_replace(store, ends[0], sizeof bytes, fault) : CO_IO;
    close(ends[0]);
    return error;
}

/* -- checking ----------------------------------------------------------------------------------------------------- */

struct checker {
    struct copy_in in;
    struct store *store;
    uint64_t count, sum;
    uint8_t table; /* of the record before, and its key, to check that they rise */
    struct buffer last;
    store_seen seen;
    void *data;
};

/* The record's hash counts the key as LMDB has it. */
static int check_order(struct checker *check, uint8_t table, struct slice key, struct slice value) {
    struct buffer *last = &check->last;
    bool same = check->count > 0 && check->table == table;
    if (check->count > 0 && (table < check->table || (same && slice_compare(buffer_slice(last), key) >= 0)))
        return bad(&check->in, "its records are not in order");
    check->table = table;
    buffer_reset(last);
    buffer_append(last, key.data, key.size);
    char meta[STORE_KEY_MAX + 1];
    size_t skip = table == STORE_TABLE_META ? 1 : 0;
    meta[0] = STORE_META_BYTE;
    memcpy(meta + skip, key.data, key.size);
    MDB_val raw = {key.size + skip, meta};
    if (store_is_sum(table, &raw)) return bad(&check->in, "it holds a sum as a record");
    check->sum += store_record_hash(table, &raw, value);
    check->count++;
    check->seen(check->data, table, key, value);
    return CO_OK;
}

static int check_record(struct checker *check, const char *head) {
    struct copy_in *in = &check->in;
    uint8_t table = (uint8_t)head[0];
    uint32_t key_size = get_le32(head + 1), value_size = get_le32(head + 5);
    if (key_size == 0 || key_size > STORE_KEY_MAX || value_size > VALUE_MAX) return bad(in, "impossible size");
    if (in->size && value_size > in->size) return bad(in, "a record is larger than all of it");
    if (!store_has_table(check->store, table))
        return fault_set(in->fault, CO_UNSUPPORTED, "store: a copy has table %u, which this version does not know",
                         table);
    buffer_reset(&in->record);
    buffer_reserve(&in->record, (size_t)key_size + value_size);
    int error = read_bytes(in, in->record.data, (size_t)key_size + value_size);
    if (error) return error;
    return check_order(check, table, slice_make(in->record.data, key_size),
                       slice_make(in->record.data + key_size, value_size));
}

static int check_all(struct checker *check) {
    struct copy_in *in = &check->in;
    char end[END_SIZE];
    int error = read_magic(in);
    while (!error) {
        error = read_bytes(in, end, HEAD_SIZE);
        if (error || (uint8_t)end[0] == END_TABLE) break;
        error = check_record(check, end);
    }
    if (!error) error = read_bytes(in, end + HEAD_SIZE, END_SIZE - HEAD_SIZE);
    if (error) return error;
    if (get_le64(end + 1) != check->count) return bad(in, "records are missing");
    if (get_le64(end + 9) != check->sum) return bad(in, "its records do not have the sum that it names");
    if (in->at != in->end || (in->size && in->got != in->size)) return bad(in, "bytes after its end");
    return CO_OK;
}

int store_copy_check(struct store *store, int fd, uint64_t size, store_seen seen, void *data, struct fault *fault) {
    struct checker check = {.store = store, .seen = seen, .data = data};
    check.in = (struct copy_in){.fd = fd, .size = size, .block = mem_alloc(BLOCK_BYTES), .fault = fault};
    int error = check_all(&check);
    free(check.in.block);
    buffer_free(&check.in.record);
    buffer_free(&check.last);
    return error;
}
