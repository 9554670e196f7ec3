/* The store: opening and closing, trust, readers and the gate. */
#include "registry/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "registry/store_file.h"

#define DATA  "data.mdb"
#define ASIDE "data.mdb.aside"
#define LOCK  "lock"

static int fault_path(struct fault *fault, int code, const char *folder, const char *name, const char *what) {
    return fault_set(fault, code, "store: %s/%s: %s: %s", folder, name, what, co_strerror(code));
}

/* Locks the folder for one process at a time: LMDB would let several in, and our marker would not show that. */
static int lock_folder(struct store *store, struct fault *fault) {
    if (mkdir(store->folder, 0700) != 0 && errno != EEXIST) {
        return fault_path(fault, co_from_errno(errno), store->folder, "", "cannot be made");
    }
    char *path = store_path(store->folder, LOCK);
    store->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    free(path);
    if (store->lock_fd < 0) return fault_path(fault, co_from_errno(errno), store->folder, LOCK, "cannot be opened");
    if (flock(store->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return fault_set(fault, CO_BUSY, "store: %s: in use by another process", store->folder);
    }
    return CO_OK;
}

/* Decides whether to trust the data file that is there; moves it aside when not. */
static int judge(struct store *store, const char *path, bool *trusted, struct fault *fault) {
    struct stat info;
    *trusted = false;
    if (stat(path, &info) != 0) {
        return errno == ENOENT ? CO_OK : fault_path(fault, co_from_errno(errno), store->folder, DATA, "cannot be read");
    }
    *trusted = store_trust(store, path, &info, &store->examined);
    return CO_OK;
}

/* Cuts the hole off that the file may have behind its data, up to the end of the map: LMDB had made the file that long
 * when the process ended. */
static void cut_hole(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    off_t end = 0;
    for (off_t data; (data = lseek(fd, end, SEEK_DATA)) >= 0;) end = lseek(fd, data, SEEK_HOLE);
    if (errno != ENXIO || ftruncate(fd, end) != 0) log_warn("store", "cannot be cut to its size file=%s", path);
    close(fd);
}

static int put_aside(struct store *store, const char *path, struct fault *fault) {
    char *aside = store_path(store->folder, ASIDE);
    int error = rename(path, aside) == 0 || errno == ENOENT ? CO_OK : co_from_errno(errno);
    if (!error) cut_hole(aside);
    free(aside);
    return error ? fault_path(fault, error, store->folder, DATA, "cannot be put aside") : CO_OK;
}

/* Writes the marker before the first byte of data: the file exists (empty) by then, so that its inode is known. */
static int mark(struct store *store, const char *path, struct fault *fault) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        int error = co_from_errno(errno);
        if (fd >= 0) close(fd);
        return fault_path(fault, error, store->folder, DATA, "cannot be opened");
    }
    close(fd);
    return store_marker_write(store->folder, &info, fault);
}

/* Opens an empty store. On a full disk it removes the file that was put aside, to use its space. */
static int open_fresh(struct store *store, const char *path, struct fault *fault) {
    struct fault first = {0};
    int error = store_file_open(path, &store->config, &store->file, &first);
    if (error == CO_DISKFULL) {
        char *aside = store_path(store->folder, ASIDE);
        bool removed = unlink(aside) == 0;
        if (removed) log_warn("store", "space is short, removed file=%s", aside);
        free(aside);
        if (removed) return store_file_open(path, &store->config, &store->file, fault);
    }
    return error ? fault_set(fault, error, "%s", first.text) : CO_OK;
}

static int open_data(struct store *store, bool *trusted, struct fault *fault) {
    char *path = store_path(store->folder, DATA);
    int error = judge(store, path, trusted, fault);
    struct fault reason = {0};
    if (!error && *trusted) {
        error = mark(store, path, fault);
        if (!error) error = store_file_open(path, &store->config, &store->file, &reason);
        if (error == CO_CORRUPT) { /* it has to be rebuilt in any case */
            log_error("store", "not usable, to be rebuilt reason=\"%s\"", reason.text);
            *trusted = false;
            error = CO_OK;
        } else if (error) {
            fault_set(fault, error, "%s", reason.text);
        }
    }
    if (!error && !*trusted) {
        error = put_aside(store, path, fault);
        if (!error) error = mark(store, path, fault);
        if (!error) error = open_fresh(store, path, fault);
        if (!error) store_crashes_forget(store->folder);
        store->examined = true;
    }
    free(path);
    if (error) return error;
    char *aside = store_path(store->folder, ASIDE);
    if (access(aside, F_OK) == 0) store->file->aside = aside;
    else free(aside);
    return CO_OK;
}

static void store_free(struct store *store) {
    if (store->lock_fd >= 0) close(store->lock_fd);
    store_flush_free(store);
    pthread_mutex_destroy(&store->lock);
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->views_lock);
    pthread_cond_destroy(&store->view_begun);
    buffer_free(&store->write.undo.log);
    for (size_t i = 0; i < STORE_TOPICS; i++) buffer_free(&store->write.journal.topics[i]);
    free((void *)store->config.tables);
    free(store->folder);
    free(store);
}

struct store *store_make(const struct store_config *config) {
    struct store *store = mem_zalloc(sizeof *store);
    store->folder = mem_strdup(config->folder ? config->folder : "");
    store->lock_fd = -1;
    store->config = *config;
    store->config.folder = store->folder;
    struct store_table *tables = mem_alloc(config->table_count * sizeof *tables);
    if (config->table_count) memcpy(tables, config->tables, config->table_count * sizeof *tables);
    store->config.tables = tables;
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->changed, NULL);
    pthread_mutex_init(&store->views_lock, NULL);
    pthread_cond_init(&store->view_begun, NULL);
    store_flush_init(store);
    list_init(&store->readers);
    list_init(&store->views);
    if (!store->config.compact_free_bytes) store->config.compact_free_bytes = STORE_COMPACT_FREE_BYTES;
    if (!store->config.view_notes_bytes) store->config.view_notes_bytes = STORE_VIEW_NOTES_BYTES;
    return store;
}

bool store_has_table(const struct store *store, uint8_t table) {
    for (size_t i = 0; i < store->config.table_count; i++)
        if (store->config.tables[i].number == table) return true;
    return table == STORE_TABLE_META;
}

int store_open(const struct store_config *config, struct store **out, bool *trusted, struct fault *fault) {
    struct store *store = store_make(config);
    int error = lock_folder(store, fault);
    if (!error) store_compact_init(store);
    store_sizes_init();
    store_crash_opening(true);
    if (!error) error = open_data(store, trusted, fault);
    store_crash_opening(false);
    if (error) {
        store_free(store);
        return error;
    }
    *out = store;
    return CO_OK;
}

void store_close(struct store *store) {
    if (!store) return;
    store_compact_stop(store);
    CHECK(list_empty(&store->readers) && list_empty(&store->views) && !store->write_open);
    if (store->looking) {
        if (store->file) store_file_discard(store->file, false);
        store_free(store);
        return;
    }
    store_flush_stop(store);
    struct fault fault = {0};
    int error = store_file_close(store->file);
    if (error)
        log_error("store", "closing failed, it will be rebuilt after a crash of the machine error=\"%s\"",
                  co_strerror(error));
    else if (store_marker_close(store->folder, &fault) != CO_OK)
        log_error("store", "it will be rebuilt after a crash of the machine: %s", fault.text);
    else store_crashes_forget(store->folder);
    store_free(store);
}

bool store_examined(const struct store *store) { return store->examined; }

uint64_t store_bytes(struct store *store) {
    pthread_mutex_lock(&store->lock); /* the file may be switched */
    uint64_t bytes = store->file->used_bytes;
    pthread_mutex_unlock(&store->lock);
    return bytes;
}

bool store_has_room(struct store *store) {
    pthread_mutex_lock(&store->lock);
    bool room = store_space_retry(store->file);
    pthread_mutex_unlock(&store->lock);
    return room;
}

/* -- readers ------------------------------------------------------------------------------------------------------ */

struct store_reader *store_reader_new(struct store *store) {
    struct store_reader *reader = mem_zalloc(sizeof *reader);
    reader->store = store;
    pthread_mutex_lock(&store->lock);
    list_append(&store->readers, &reader->link);
    pthread_mutex_unlock(&store->lock);
    return reader;
}

struct store_reader *store_long_reader_new(struct store *store) {
    struct store_reader *reader = store_reader_new(store);
    reader->lengthy = true;
    return reader;
}

/* Ends the reader's LMDB transaction; it begins another one at its next read. */
static void end_mdb(struct store_txn *txn) {
    for (unsigned i = 0; i < STORE_TABLES_MAX; i++) {
        if (txn->cursors[i]) mdb_cursor_close(txn->cursors[i]);
        txn->cursors[i] = NULL;
    }
    if (txn->mdb) mdb_txn_abort(txn->mdb);
    txn->mdb = NULL;
}

void store_reader_free(struct store_reader *reader) {
    if (!reader) return;
    struct store *store = reader->store;
    CHECK(!reader->active);
    pthread_mutex_lock(&store->lock);
    list_remove(&reader->link);
    end_mdb(&reader->txn);
    pthread_mutex_unlock(&store->lock);
    free(reader);
}

/* `active` then `gate` here, `gate` then `active` in store_gate_close, all sequentially consistent: so at least one of
 * the two sees the other. */
static bool closed_for(const struct store_reader *reader) {
    return reader->lengthy ? reader->store->long_gate : reader->store->gate;
}

void store_reader_enter(struct store_reader *reader) {
    struct store *store = reader->store;
    reader->active = true;
    if (!closed_for(reader)) return;
    pthread_mutex_lock(&store->lock);
    reader->active = false;
    pthread_cond_broadcast(&store->changed);
    while (closed_for(reader)) pthread_cond_wait(&store->changed, &store->lock);
    reader->active = true;
    pthread_mutex_unlock(&store->lock);
}

struct store_txn *store_reader_txn(struct store_reader *reader) {
    return &reader->txn;
}

struct store_txn *store_reader_begin(struct store_reader *reader) {
    struct store_txn *txn = &reader->txn;
    txn->file = reader->store->file;
    txn->error = CO_OK;
    txn->limited = txn->limit_hit = false;
    txn->past = NULL;
    txn->placed = 0;
    int rc = txn->mdb ? mdb_txn_renew(txn->mdb) : mdb_txn_begin(txn->file->env, NULL, MDB_RDONLY, &txn->mdb);
    if (rc) {
        log_error("store", "a read cannot begin error=\"%s\"", mdb_strerror(rc));
        CHECK(rc == 0); /* no disk is involved, and there are READERS_MAX slots */
    }
    return txn;
}

struct store_txn *store_read(struct store_reader *reader) {
    CHECK(!reader->active);
    store_reader_enter(reader);
    return store_reader_begin(reader);
}

void store_reader_pause(struct store_reader *reader) {
    store_txn_end(&reader->txn);
    mdb_txn_reset(reader->txn.mdb);
}

void store_read_done(struct store_reader *reader) {
    if (!reader->active) return;
    store_reader_pause(reader);
    reader->active = false;
    if (!closed_for(reader)) return;
    pthread_mutex_lock(&reader->store->lock);
    pthread_cond_broadcast(&reader->store->changed);
    pthread_mutex_unlock(&reader->store->lock);
}

static void wait_for_readers(struct store *store, bool long_ones_only) {
    for (bool busy = true; busy;) {
        busy = false;
        LIST_FOREACH(item, &store->readers) {
            const struct store_reader *reader = LIST_ENTRY(item, struct store_reader, link);
            busy |= reader->active && (reader->lengthy || !long_ones_only);
        }
        if (busy) pthread_cond_wait(&store->changed, &store->lock);
    }
}

void store_gate_close(struct store *store) {
    pthread_mutex_lock(&store->lock);
    store->long_gate = true;
    wait_for_readers(store, true);
    store->gate = true;
    wait_for_readers(store, false);
    LIST_FOREACH(item, &store->readers) { end_mdb(&LIST_ENTRY(item, struct store_reader, link)->txn); }
    pthread_mutex_unlock(&store->lock);
}

static bool wait_until(struct store *store, const struct timespec *until) {
    for (;;) {
        bool busy = false;
        LIST_FOREACH(item, &store->readers) { busy |= LIST_ENTRY(item, struct store_reader, link)->active; }
        if (!busy) return true;
        if (pthread_cond_timedwait(&store->changed, &store->lock, until) == ETIMEDOUT) return false;
    }
}

static bool long_one_within(struct store *store) {
    bool any = false;
    LIST_FOREACH(item, &store->readers) {
        const struct store_reader *reader = LIST_ENTRY(item, struct store_reader, link);
        any |= reader->active && reader->lengthy;
    }
    return any;
}

bool store_gate_try_close(struct store *store, unsigned wait_ms) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)wait_ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&store->lock);
    store->long_gate = true;
    bool closed = !long_one_within(store);
    if (closed) {
        store->gate = true;
        closed = wait_until(store, &until);
    }
    if (closed) {
        LIST_FOREACH(item, &store->readers) { end_mdb(&LIST_ENTRY(item, struct store_reader, link)->txn); }
    } else {
        store->gate = store->long_gate = false;
        pthread_cond_broadcast(&store->changed);
    }
    pthread_mutex_unlock(&store->lock);
    return closed;
}

void store_gate_open(struct store *store) {
    pthread_mutex_lock(&store->lock);
    store->gate = store->long_gate = false;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}
