/* Reads a store that nobody has open, without changing anything: first reads it to its end without LMDB, then opens it
 * with LMDB read-only and without its lock file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/store_file.h"

#define DATA "data.mdb"
#define LOCK "lock"

#define LOOK_FLAGS (MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS | MDB_NORDAHEAD)

/* Takes the store's own lock, which keeps an agent from starting meanwhile. A folder without a store has no lock. */
static int lock_look(struct store *store, struct fault *fault) {
    char *path = store_path(store->folder, LOCK);
    store->lock_fd = open(path, O_RDONLY | O_CLOEXEC);
    int error = store->lock_fd < 0 && errno != ENOENT ? co_from_errno(errno) : CO_OK;
    if (error) fault_set(fault, error, "store: %s: %s", path, co_strerror(error));
    free(path);
    if (error || store->lock_fd < 0 || flock(store->lock_fd, LOCK_EX | LOCK_NB) == 0) return error;
    return fault_set(fault, CO_BUSY, "store: %s: in use by another process", store->folder);
}

/* -- opening ------------------------------------------------------------------------------------------------------ */

static bool is_ours(const struct store_config *config, const MDB_val *name) {
    for (size_t i = 0; i < config->table_count; i++) {
        const char *own = config->tables[i].name;
        if (strlen(own) == name->mv_size && memcmp(own, name->mv_data, name->mv_size) == 0) return true;
    }
    return false;
}

/* Refuses tables of a newer version. LMDB keeps the tables' names in its main table, beside table 0. */
static int refuse_unknown(struct store_file *file, MDB_txn *txn, const struct store_config *config,
                          struct fault *fault) {
    MDB_cursor *cursor;
    MDB_val key, value;
    int rc = mdb_cursor_open(txn, file->tables[STORE_TABLE_META], &cursor);
    if (rc) return store_file_fault(fault, file->path, rc);
    for (rc = mdb_cursor_get(cursor, &key, &value, MDB_FIRST); rc == 0;
         rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        if (key.mv_size == 0 || *(const char *)key.mv_data == STORE_META_BYTE || is_ours(config, &key)) continue;
        mdb_cursor_close(cursor);
        return fault_set(fault, CO_UNSUPPORTED,
                         "store: %s: written by a newer version of coord: it has a table \"%.*s\"", file->path,
                         key.mv_size < 40 ? (int)key.mv_size : 40, (const char *)key.mv_data);
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? CO_OK : store_file_fault(fault, file->path, rc);
}

static int tables_look(struct store_file *file, const struct store_config *config, struct fault *fault) {
    MDB_txn *txn;
    int rc = mdb_txn_begin(file->env, NULL, MDB_RDONLY, &txn);
    if (rc) return store_file_fault(fault, file->path, rc);
    rc = mdb_dbi_open(txn, NULL, 0, &file->tables[STORE_TABLE_META]);
    file->known[STORE_TABLE_META] = true;
    for (size_t i = 0; i < config->table_count && !rc; i++) {
        const struct store_table *table = &config->tables[i];
        rc = mdb_dbi_open(txn, table->name, 0, &file->tables[table->number]);
        file->known[table->number] = rc == 0;
        file->names[table->number] = table->name;
        file->topics[table->number] = config->topics[table->number];
        if (rc == MDB_NOTFOUND) rc = 0; /* of a version that did not have it yet */
    }
    int error = rc ? store_file_fault(fault, file->path, rc) : refuse_unknown(file, txn, config, fault);
    if (error) mdb_txn_abort(txn);
    else (void)mdb_txn_commit(txn); /* keeps the tables open */
    return error;
}

/* Checks all pages before LMDB sees them, because pages that make no sense lead LMDB to crash, or to walk them for
 * ever. */
static int file_examine(struct store *store, const char *path, struct fault *fault) {
    struct fault found = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fault_set(fault, co_from_errno(errno), "store: %s: cannot be read: %s", path, strerror(errno));
    int error = store_examine_file(fd, &store->config, 0, NULL, NULL, &store->looked, &found);
    close(fd);
    if (!error) return CO_OK;
    return fault_set(fault, error, "store: %s: %s%s", path, error == CO_CORRUPT ? "damaged: " : "", found.text);
}

static int file_look(struct store *store, const char *path, uint64_t size, struct fault *fault) {
    int error = file_examine(store, path, fault);
    if (error) return error;
    struct store_file *file = mem_zalloc(sizeof *file);
    file->path = mem_strdup(path);
    pthread_mutex_init(&file->space_lock, NULL);
    int rc = mdb_env_create(&file->env);
    if (!rc) rc = mdb_env_set_maxdbs(file->env, STORE_TABLES_MAX);
    if (!rc) rc = mdb_env_set_mapsize(file->env, size);
    if (!rc) rc = mdb_env_open(file->env, path, LOOK_FLAGS, 0600);
    if (!rc) rc = mdb_env_get_fd(file->env, &file->fd);
    if (rc) error = store_file_fault(fault, path, rc);
    if (!error) error = store_file_whole(file, size, fault);
    if (!error) error = tables_look(file, &store->config, fault);
    if (error) store_file_discard(file, false);
    else store->file = file;
    return error;
}

static int data_look(struct store *store, bool *trusted, struct fault *fault) {
    char *path = store_path(store->folder, DATA);
    struct stat info;
    bool clean;
    int error = CO_OK;
    if (stat(path, &info) == 0 && info.st_size > 0) {
        bool fits = store_marker_fits(store->folder, &info, &clean);
        *trusted = fits || clean;
        if (store_marker_foreign(store->folder))
            error = fault_set(fault, CO_CORRUPT, "store: %s: of another version's format", path);
        else error = file_look(store, path, (uint64_t)info.st_size, fault);
        if (error && store_crashes(store->folder) > 0) *trusted = false; /* the next start will find the same */
    } else if (errno != ENOENT && errno != ENOTDIR && errno != 0) {
        error = fault_set(fault, co_from_errno(errno), "store: %s: cannot be read: %s", path, strerror(errno));
    }
    free(path);
    return error;
}

int store_look(const struct store_config *config, struct store **out, bool *there, bool *trusted, struct fault *fault) {
    struct store *store = store_make(config);
    store->looking = true;
    *there = *trusted = false;
    errno = 0;
    int error = config->folder ? lock_look(store, fault) : CO_OK;
    if (!error && config->folder) error = data_look(store, trusted, fault);
    if (error) {
        store_close(store);
        return error;
    }
    *there = store->file != NULL;
    *out = store;
    return CO_OK;
}

const struct store_scrubbed *store_looked(const struct store *store) { return &store->looked; }
