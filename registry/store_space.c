/* File space reserved ahead of use.
 *
 * The map is far larger than the file, which ends where the reserved space ends. A page behind that end, or one that
 * the disk cannot back, is a SIGBUS when it is first touched, not an error. So no page outside the reserved space is
 * ever used: before each change (store_need_op) an upper bound of the pages that the transaction may have taken by then
 * is computed, and that much is reserved, in steps.
 *
 * The estimate. LMDB takes pages from its free list or from the end of the file; suppose always the end. A transaction
 * takes
 *  - for a value that does not fit into a leaf: its pages, per put (value_pages);
 *  - single pages of trees: each change copies or splits at most a few pages per level (op_pages). But a page taken in
 *    this transaction is part of a tree, or loose and then taken again first; so never more than all trees together had
 *    at their largest (peak_pages). Their size is looked at every LOOK_PAGES of op_pages, the first time also as it was
 *    at the beginning. Between two looks it cannot have grown by more than the changes in between took (since_pages);
 *  - at commit, for the list of freed pages: 8 bytes for each, rewritten a few times (the slack in need_pages). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "registry/store_file.h"

#define RETRY_MS    250
#define SMALL_VALUE 1000 /* surely fits into a leaf */
#define SLACK_PAGES 64
#define LOOK_PAGES  1024

static uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

/* Space is reserved a quarter of a step at a time, and three quarters ahead of use, so the file is at most one step
 * longer than its content. */
static uint64_t unit_of(const struct store_file *file) {
    uint64_t quarter = file->step_bytes / 4;
    return quarter > file->page_bytes ? quarter : file->page_bytes;
}

static uint64_t ahead_of(const struct store_file *file) { return 3 * unit_of(file); }

/* For file systems without fallocate: writes real zeros behind the last page in use. */
static int write_zeros(struct store_file *file, uint64_t from, uint64_t to) {
    static const char zeros[64 * 1024];
    uint64_t used = round_up(file->used_bytes, file->page_bytes);
    if (from < used) from = used;
    while (from < to) {
        size_t part = to - from < sizeof zeros ? (size_t)(to - from) : sizeof zeros;
        ssize_t done = pwrite(file->fd, zeros, part, (off_t)from);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        from += (uint64_t)done;
    }
    return 0;
}

static int reserve_range(struct store_file *file, uint64_t from, uint64_t to) {
#ifdef COORD_TSAN
    int mode = FALLOC_FL_KEEP_SIZE; /* without MDB_WRITEMAP the file ends at its last page */
#else
    int mode = 0;
#endif
    for (;;) {
        if (fallocate(file->fd, mode, (off_t)from, (off_t)(to - from)) == 0) return 0;
        if (errno == EINTR) continue;
        if (errno == EOPNOTSUPP || errno == ENOSYS) return write_zeros(file, from, to);
        return errno;
    }
}

/* Removes the old file that is kept aside only for investigation. False: there is none. */
static bool aside_gone(struct store_file *file) {
    if (!file->aside) return false;
    log_warn("store", "space is short, removing file=%s", file->aside);
    unlink(file->aside);
    free(file->aside);
    file->aside = NULL;
    return true;
}

static int cover_locked(struct store_file *file, uint64_t bytes) {
    uint64_t have = file->reserved_bytes;
    if (bytes <= have) return CO_OK;
    if (bytes > file->map_bytes) return CO_DISKFULL;
    uint64_t target = round_up(bytes, unit_of(file));
    if (target > file->map_bytes) target = file->map_bytes;
    int code = reserve_range(file, have, target);
    if (code && aside_gone(file)) code = reserve_range(file, have, target);
    if (code) {
        target = round_up(bytes, file->page_bytes);
        code = reserve_range(file, have, target);
    }
    if (code) return co_from_errno(code);
    file->reserved_bytes = target;
    return CO_OK;
}

int store_space_cover(struct store_file *file, uint64_t bytes) {
    pthread_mutex_lock(&file->space_lock);
    int error = cover_locked(file, bytes);
    pthread_mutex_unlock(&file->space_lock);
    return error;
}

void store_space_aside_gone(struct store_file *file) {
    pthread_mutex_lock(&file->space_lock);
    (void)aside_gone(file);
    pthread_mutex_unlock(&file->space_lock);
}

static void learn_used(struct store_file *file) {
    MDB_envinfo info;
    mdb_env_info(file->env, &info);
    file->used_bytes = ((uint64_t)info.me_last_pgno + 1) * file->page_bytes;
}

/* On a full disk this finds the space that an earlier process reserved for the file: reserving it again costs
 * nothing. */
void store_space_open(struct store_file *file) {
    learn_used(file);
    uint64_t ahead = SLACK_PAGES * file->page_bytes;
    if (ahead < ahead_of(file)) ahead = ahead_of(file);
    while (store_space_cover(file, file->used_bytes + ahead) != CO_OK && ahead > 0) ahead /= 2;
}

bool store_space_short(struct store_file *file) {
    return file->reserved_bytes < file->used_bytes + SLACK_PAGES * file->page_bytes;
}

static void say_full(struct store_file *file) {
    file->tried_ms = clock_mono_ms();
    if (!atomic_exchange(&file->full, true))
        log_error("store", "the disk has no more space, writes are refused file=%s", file->path);
}

void store_space_ahead(struct store_file *file) {
    learn_used(file);
    file->wanted_bytes = 0;
    if (file->full) /* so it stays full until there is more than just enough */
        (void)store_space_retry(file);
    else if (store_space_cover(file, file->used_bytes + ahead_of(file)) != CO_OK) say_full(file);
}

bool store_space_retry(struct store_file *file) {
    if (!file->full) return true;
    uint64_t now = clock_mono_ms(), tried = file->tried_ms;
    if (now - tried < RETRY_MS || !atomic_compare_exchange_strong(&file->tried_ms, &tried, now)) return false;
    uint64_t bytes = file->used_bytes + ahead_of(file);
    if (bytes < file->wanted_bytes) bytes = file->wanted_bytes;
    bytes += unit_of(file) / 2; /* otherwise the next commit would find it full again */
    if (store_space_cover(file, bytes) != CO_OK) return false;
    file->full = false;
    log_info("store", "the disk has space again file=%s", file->path);
    return true;
}

/* -- the need of the running transaction -------------------------------------------------------------------------- */

static uint64_t tree_pages(struct store_file *file, MDB_txn *mdb) {
    uint64_t pages = 0;
    for (unsigned i = 0; i < STORE_TABLES_MAX; i++) {
        MDB_stat stat;
        if (!file->known[i] || mdb_stat(mdb, file->tables[i], &stat) != 0) continue;
        pages += stat.ms_branch_pages + stat.ms_leaf_pages + 2;
    }
    return pages;
}

/* The pages of all trees at the beginning of the write transaction, as a reader sees them. UINT32_MAX: unknown. */
static uint64_t tree_pages_before(struct store_file *file) {
    MDB_txn *mdb;
    if (mdb_txn_begin(file->env, NULL, MDB_RDONLY, &mdb) != 0) return UINT32_MAX;
    uint64_t pages = tree_pages(file, mdb);
    mdb_txn_abort(mdb);
    return pages;
}

static void look(struct store_txn *txn) {
    struct store_need *need = &txn->need;
    if (!need->looked) need->last_pages = tree_pages_before(txn->file);
    need->looked = true;
    uint64_t now = tree_pages(txn->file, txn->mdb);
    uint64_t most = (now > need->last_pages ? now : need->last_pages) + need->since_pages;
    if (most > need->peak_pages) need->peak_pages = most;
    need->last_pages = now;
    need->since_pages = 0;
}

static uint64_t need_pages(const struct store_need *need) {
    uint64_t single = need->op_pages;
    if (need->looked) {
        uint64_t most = need->last_pages + need->since_pages;
        if (most < need->peak_pages) most = need->peak_pages;
        if (most < single) single = most;
    }
    uint64_t pages = need->base_pages + need->value_pages + single;
    return pages + SLACK_PAGES + pages / 64;
}

void store_need_begin(struct store_txn *txn) {
    struct store_file *file = txn->file;
    txn->need = (struct store_need){
        .base_pages = file->used_bytes / file->page_bytes,
        .covered_pages = file->reserved_bytes / file->page_bytes,
    };
}

int store_need_op(struct store_txn *txn, MDB_dbi table, size_t value_bytes) {
    struct store_need *need = &txn->need;
    struct store_file *file = txn->file;
    if (need->since_pages > LOOK_PAGES) look(txn);
    MDB_stat stat;
    unsigned depth = mdb_stat(txn->mdb, table, &stat) == 0 ? stat.ms_depth : 16;
    uint64_t pages = 4 * ((uint64_t)depth + 1) + 4;
    need->op_pages += pages;
    need->since_pages += pages;
    need->changed_bytes += file->page_bytes + (value_bytes > SMALL_VALUE ? value_bytes : 0);
    if (value_bytes > SMALL_VALUE) need->value_pages += value_bytes / file->page_bytes + 2;
    if (need_pages(need) <= need->covered_pages) return CO_OK;
    uint64_t bytes = need_pages(need) * file->page_bytes;
    int error = store_space_cover(file, bytes);
    need->covered_pages = file->reserved_bytes / file->page_bytes;
    if (error) { /* refuse commands until this batch can be applied */
        file->wanted_bytes = bytes;
        say_full(file);
    }
    return error;
}
