/* One LMDB file: environment, tables, errors. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/lazy_unlink.h"
#include "base/log.h"
#include "base/memory.h"
#include "registry/store_file.h"

#define READERS_MAX 250
#define LOCK_BYTES  ((off_t)32 << 10) /* more than LMDB's slots for so many readers take */

/* No fsync: the log is the truth. Writing through the map makes a put cost a third, but the thread sanitizer reports
 * it (LMDB's readers look at pages that the writer cannot be changing, without telling the sanitizer why). */
#ifdef COORD_TSAN
#define ENV_FLAGS (MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD)
#else
#define ENV_FLAGS (MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD | MDB_WRITEMAP)
#endif

int store_error(int code) {
    switch (code) {
        case MDB_SUCCESS: return CO_OK;
        case MDB_NOTFOUND: return CO_NOTFOUND;
        case MDB_MAP_FULL: return CO_DISKFULL;
        case MDB_TXN_FULL: return CO_TOOLARGE;
        case MDB_READERS_FULL: return CO_BUSY;
        case MDB_PAGE_NOTFOUND:
        case MDB_CORRUPTED:
        case MDB_INVALID:
        case MDB_VERSION_MISMATCH:
        case MDB_INCOMPATIBLE:
        case MDB_PANIC:
        case MDB_PAGE_FULL: /* a page has less room than it says; a tree never ends */
        case MDB_CURSOR_FULL: return CO_CORRUPT;
        default: return code > 0 ? co_from_errno(code) : CO_IO;
    }
}

/* Codes that mean that the bytes on disk are not (or no longer) a store. */
int store_file_fault(struct fault *fault, const char *path, int code) {
    int error = store_error(code);
    return fault_set(fault, error, "store: %s: %s%s", path, error == CO_CORRUPT ? "damaged: " : "",
                     error == CO_DISKFULL ? co_strerror(error) : mdb_strerror(code));
}

/* Reserves the lock file's pages before LMDB writes to them through a map; otherwise a reader on a full disk would end
 * the process. */
static int lock_reserve(const struct store_file *file, struct fault *fault) {
    size_t size = strlen(file->path) + sizeof "-lock";
    char *path = mem_alloc(size);
    snprintf(path, size, "%s-lock", file->path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), error = CO_OK;
    if (fd < 0) error = co_from_errno(errno);
    int code = error ? 0 : posix_fallocate(fd, 0, LOCK_BYTES);
    if (code) error = co_from_errno(code);
    if (fd >= 0) close(fd);
    if (error) fault_set(fault, error, "store: %s: cannot be made: %s", path, co_strerror(error));
    free(path);
    return error;
}

/* Checks the file's length, because a page behind its end would read as zeros. `size`: 0: the file is new. */
int store_file_whole(struct store_file *file, uint64_t size, struct fault *fault) {
    MDB_stat stat;
    MDB_envinfo info;
    mdb_env_stat(file->env, &stat);
    mdb_env_info(file->env, &info);
    file->page_bytes = stat.ms_psize;
    uint64_t wanted = ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
    if (size == 0 || size >= wanted) return CO_OK;
    return fault_set(fault, CO_CORRUPT,
                     "store: %s: damaged at offset %" PRIu64 ": it ends there, and has pages up to %" PRIu64,
                     file->path, size, wanted);
}

/* With MDB_WRITEMAP LMDB makes the file as large as its map when it opens it. Cuts the file at the end of the reserved
 * space; it grows when more is reserved (store_space.c). */
static int cut_to_reserved(struct store_file *file, struct fault *fault) {
    struct stat info;
    if (fstat(file->fd, &info) == 0 &&
        ((uint64_t)info.st_size <= file->reserved_bytes || ftruncate(file->fd, (off_t)file->reserved_bytes) == 0))
        return CO_OK;
    int error = co_from_errno(errno);
    return fault_set(fault, error, "store: %s: cannot be cut to its size: %s", file->path, co_strerror(error));
}

/* An assertion of LMDB failed, and LMDB ends the process when this returns; that leaves the mark of a crash. */
static void on_assertion(MDB_env *env, const char *message) {
    (void)env;
    log_error("store", "LMDB: %s: the process ends, and examines the store when it is started again", message);
}

static int env_open(struct store_file *file, struct fault *fault) {
    int error = lock_reserve(file, fault);
    if (error) return error;
    struct stat info;
    uint64_t size = stat(file->path, &info) == 0 ? (uint64_t)info.st_size : 0; /* LMDB makes it as large as the map */
    int rc = mdb_env_create(&file->env);
    if (rc) {
        file->env = NULL;
        return store_file_fault(fault, file->path, rc);
    }
    (void)mdb_env_set_assert(file->env, on_assertion);
    rc = mdb_env_set_mapsize(file->env, (size_t)file->map_bytes);
    if (!rc) rc = mdb_env_set_maxdbs(file->env, STORE_TABLES_MAX);
    if (!rc) rc = mdb_env_set_maxreaders(file->env, READERS_MAX);
    if (!rc) rc = mdb_env_open(file->env, file->path, ENV_FLAGS, 0600);
    if (!rc) rc = mdb_env_get_fd(file->env, &file->fd);
    if (rc) return store_file_fault(fault, file->path, rc);
    return store_file_whole(file, size, fault);
}

/* Opens the table, or creates it, for which it reserves pages. */
static int table_open(struct store_file *file, MDB_txn *txn, const struct store_table *table) {
    int rc = mdb_dbi_open(txn, table->name, 0, &file->tables[table->number]);
    if (rc != MDB_NOTFOUND) return rc;
    return store_space_short(file) ? ENOSPC : mdb_dbi_open(txn, table->name, MDB_CREATE, &file->tables[table->number]);
}

static int tables_open(struct store_file *file, const struct store_config *config, struct fault *fault) {
    MDB_txn *txn;
    int rc = mdb_txn_begin(file->env, NULL, 0, &txn);
    if (rc) return store_file_fault(fault, file->path, rc);
    rc = mdb_dbi_open(txn, NULL, 0, &file->tables[STORE_TABLE_META]);
    file->known[STORE_TABLE_META] = true;
    for (size_t i = 0; i < config->table_count && !rc; i++) {
        const struct store_table *table = &config->tables[i];
        CHECK(table->number > 0 && table->number < STORE_TABLES_MAX && !file->known[table->number]);
        CHECK(config->topics[table->number] < STORE_TOPICS);
        rc = table_open(file, txn, table);
        file->known[table->number] = true;
        file->names[table->number] = table->name;
        file->topics[table->number] = config->topics[table->number];
    }
    if (rc) {
        mdb_txn_abort(txn);
        return store_file_fault(fault, file->path, rc);
    }
    rc = mdb_txn_commit(txn);
    return rc ? store_file_fault(fault, file->path, rc) : CO_OK;
}

int store_file_open(const char *path, const struct store_config *config, struct store_file **out, struct fault *fault) {
    struct store_file *file = mem_zalloc(sizeof *file);
    file->path = mem_strdup(path);
    file->map_bytes = config->map_bytes ? config->map_bytes : STORE_MAP_BYTES;
    file->step_bytes = config->reserve_step_bytes ? config->reserve_step_bytes : STORE_RESERVE_STEP_BYTES;
    pthread_mutex_init(&file->space_lock, NULL);
    int error = env_open(file, fault);
    if (!error) {
        store_space_open(file);
        if (file->reserved_bytes == 0) {
            error = fault_set(fault, CO_DISKFULL, "store: %s: no space on the disk", path);
        } else {
            error = cut_to_reserved(file, fault);
            if (!error) error = tables_open(file, config, fault);
        }
    }
    if (error) {
        store_file_discard(file, false);
        return error;
    }
    store_space_ahead(file);
    *out = file;
    return CO_OK;
}

static void file_free(struct store_file *file) {
    if (file->env) mdb_env_close(file->env);
    pthread_mutex_destroy(&file->space_lock);
    free(file->aside);
    free(file->path);
    free(file);
}

int store_file_close(struct store_file *file) {
    int error = store_error(mdb_env_sync(file->env, 1));
    if (!error && fsync(file->fd) != 0) error = co_from_errno(errno); /* its size as well */
    if (!error && file->aside) unlink(file->aside);
    file_free(file);
    return error;
}

void store_file_discard(struct store_file *file, bool unlink_too) {
    char *path = mem_strdup(file->path);
    file_free(file);
    if (unlink_too) {
        size_t size = strlen(path) + sizeof "-lock";
        char *lock = mem_alloc(size);
        snprintf(lock, size, "%s-lock", path);
        lazy_unlink(AT_FDCWD, path);
        unlink(lock);
        free(lock);
    }
    free(path);
}
