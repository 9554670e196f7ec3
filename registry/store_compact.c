/* Compaction: copies the content into a new file, which replaces the old one.
 *
 * LMDB never makes its file smaller, and uses free pages in the order in which they were freed. After much was removed,
 * or after a long read beside a busy writer, the list of free pages is long: every commit goes to other pages, round and
 * round, which costs about twice as much (store_view.c says where lists of seconds are avoided). Only a new file has a
 * short list again.
 *
 *     COPYING --a round had few changes--> READY --the applier, between two transactions--> SWITCHED
 *        ^------------more has changed--------|                                        any --> GIVEN UP
 *
 * (1) From before the view that is copied begins (store_view.h) until the end the writer notes the key of each record
 *     that it changes. So the new file differs from the store at most in the noted records.
 * (2) Notes are taken at a boundary of write transactions, so a read that begins afterwards sees those changes.
 * (3) The applier itself carries the last notes over, while nobody writes. Then both files have the same state sum, or
 *     the new one is thrown away.
 * (4) The switch does not wait: while a long read is under way it is put off. It is a rename; nothing is synced,
 *     because a store is not trusted after a crash of the machine. Before it the marker names both files, so that
 *     either is trusted when the process is killed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/background.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file_out.h"
#include "base/lazy_unlink.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "registry/store_file.h"
#include "registry/store_notes.h"

#define COMPACT      "compact.mdb"
#define COMMIT_BYTES ((size_t)FILE_OUT_PIECE)
#define CROWDED_MS   10000 /* compaction is due when too much has been free for so long */
#define DUE_MS       60000 /* at least so long between two compactions, */
#define DUE_TIMES    60    /* and at least so many times as long as one takes */
#define FEW_KEYS     2000  /* at most so many are left to the applier */
#define ROUNDS_MOST  200
#define NOTES_MOST   ((size_t)64 << 20)
#define RETRY_MS     100  /* the thread waits so long for the applier to take a READY file, */
#define IDLE_MS      1000 /* and so long when nothing has changed */
#define READY_MOST   600  /* given up when the applier has not taken it so many times */
#define GATE_MS      5    /* the applier waits so long for readers */
#define SPARE_BYTES  ((uint64_t)64 << 20)

METRIC compactions = {.name = "coord_store_compactions_total",
                      .type = METRIC_COUNTER,
                      .help = "Times the store's file was made anew, because too much of it was free"};

enum stage { COPYING, READY, SWITCHED, GIVEN_UP };

struct store_compact {
    struct store *store;
    pthread_t thread;
    uint64_t begun_ms, before_bytes;
    atomic_bool stop, ended; /* `ended`: the thread has nothing more to do */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    enum stage stage; /* with `lock` */
    /* with store->views_lock */
    bool wanted;              /* the thread wants the notes at the next boundary */
    bool over;                /* there were too many notes */
    struct store_notes notes; /* keys that changed, without data */
    struct store_note *taken;
    /* The thread's; while the stage is READY the applier's */
    struct store_file *next, *old;
    struct store_txn txn; /* of `next` */
    size_t pending;       /* bytes in it */
    uint64_t sum;         /* the state sum of what was committed to it */
    int gone;             /* a handle of the old file, to free its blocks; -1: none */
    bool marked;          /* the marker names both */
    const char *why;      /* why it was given up; NULL: it was stopped */
};

/* -- the writer's side -------------------------------------------------------------------------------------------- */

bool store_compact_collects(const struct store *store) { return store->compact != NULL; }

void store_compact_note(struct store *store, uint8_t table, struct slice key) {
    struct store_compact *compact = store->compact;
    if (!compact || compact->over) return;
    store_notes_add(&compact->notes, table, key, false, slice_make(NULL, 0));
    compact->over = compact->notes.bytes > NOTES_MOST;
}

void store_compact_boundary(struct store *store) {
    struct store_compact *compact = store->compact;
    if (!compact || !compact->wanted) return;
    compact->taken = store_notes_take(&compact->notes, STORE_TABLES_MAX, slice_make(NULL, 0), true);
    compact->wanted = false;
    pthread_cond_broadcast(&store->view_begun);
}

/* -- carrying over ------------------------------------------------------------------------------------------------ */

static void free_notes(struct store_note *notes) {
    for (struct store_note *next; notes; notes = next) next = notes->next[0], free(notes);
}

static int commit(struct store_compact *compact) {
    compact->sum = compact->txn.sum; /* a commit counts the record of the sum as well */
    int error = store_txn_commit(&compact->txn);
    compact->pending = 0;
    return error ? error : store_flush_behind(compact->next);
}

static int commit_some(struct store_compact *compact) {
    if (compact->pending <= COMMIT_BYTES) return compact->txn.error;
    int error = commit(compact);
    return error ? error : store_file_begin(compact->next, &compact->txn);
}

static void append(void *data, uint8_t table, struct slice key, struct slice value) {
    struct store_compact *compact = data;
    store_txn_append(&compact->txn, table, key, value);
    compact->pending += key.size + value.size;
}

static int end(struct store_compact *compact, int error) {
    if (!error) return commit(compact);
    if (compact->txn.mdb) store_txn_abort(&compact->txn);
    return error;
}

static int copy(struct store_compact *compact) {
    struct store_view *view = store_view_open(compact->store);
    int error = store_file_begin(compact->next, &compact->txn);
    while (!error && !compact->stop) {
        error = store_view_next(view, append, compact);
        if (!error) error = commit_some(compact);
    }
    store_view_close(view);
    if (error == CO_NOTFOUND) error = CO_OK;
    else if (!error) error = CO_AGAIN;
    return end(compact, error);
}

/* Copies the present record of each noted key to the new file, or deletes it there when it is gone. */
static int carry(struct store_compact *compact, struct store_txn *from, const struct store_note *note) {
    int error = store_file_begin(compact->next, &compact->txn);
    for (; note && !error; note = note->next[0]) {
        struct slice key = store_note_key(note), value;
        size_t skip = note->table == STORE_TABLE_META ? 1 : 0;
        key = slice_make(key.data + skip, key.size - skip);
        int found = store_get(from, note->table, key, &value);
        if (found == CO_OK) store_put(&compact->txn, note->table, key, value);
        else if (found == CO_NOTFOUND) (void)store_del(&compact->txn, note->table, key);
        else error = found;
        compact->pending += key.size + (found == CO_OK ? value.size : 0);
        if (!error) error = commit_some(compact);
    }
    return end(compact, error);
}

static struct store_note *take(struct store_compact *compact, bool *over) {
    struct store *store = compact->store;
    pthread_mutex_lock(&store->views_lock);
    compact->wanted = true;
    if (!store->write_open) store_compact_boundary(store);
    while (compact->wanted && !compact->stop) pthread_cond_wait(&store->view_begun, &store->views_lock);
    compact->wanted = false;
    struct store_note *taken = compact->taken;
    compact->taken = NULL;
    *over = compact->over;
    pthread_mutex_unlock(&store->views_lock);
    return taken;
}

/* One round; *count: the keys that were carried over. */
static int catch_up(struct store_compact *compact, struct store_reader *reader, size_t *count) {
    bool over;
    struct store_note *taken = take(compact, &over);
    *count = 0;
    for (const struct store_note *note = taken; note; note = note->next[0]) ++*count;
    int error = over ? CO_TOOLARGE : CO_OK;
    if (!error && taken) {
        error = carry(compact, store_read(reader), taken);
        store_read_done(reader);
    }
    free_notes(taken);
    return error;
}

/* -- the thread --------------------------------------------------------------------------------------------------- */

static int mark(struct store_compact *compact, struct fault *fault) {
    struct store *store = compact->store;
    struct stat now, next;
    pthread_mutex_lock(&store->lock);
    bool known = fstat(store->file->fd, &now) == 0 && fstat(compact->next->fd, &next) == 0;
    compact->gone = open(store->file->path, O_RDWR | O_CLOEXEC);
    pthread_mutex_unlock(&store->lock);
    if (!known) return fault_set(fault, CO_IO, "fstat failed");
    compact->marked = true;
    return store_marker_write_both(store->folder, &now, &next, fault);
}

/* Stays READY until the applier has taken the file. False: it has not, and more has changed meanwhile. */
static bool offer(struct store_compact *compact, unsigned wait_ms) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += wait_ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&compact->lock);
    compact->stage = READY;
    while (compact->stage == READY && !compact->stop)
        if (pthread_cond_timedwait(&compact->moved, &compact->lock, &until) == ETIMEDOUT) break;
    bool taken = compact->stage != READY;
    if (!taken) compact->stage = COPYING;
    pthread_mutex_unlock(&compact->lock);
    return taken;
}

static int run(struct store_compact *compact, struct store_reader *reader) {
    struct fault fault = {0};
    char *path = store_path(compact->store->folder, COMPACT);
    int error = store_file_open(path, &compact->store->config, &compact->next, &fault);
    free(path);
    if (!error) error = copy(compact);
    size_t changed = FEW_KEYS + 1, refused = 0;
    for (unsigned i = 0; !error && changed > FEW_KEYS && !compact->stop; i++)
        error = i < ROUNDS_MOST ? catch_up(compact, reader, &changed) : CO_BUSY;
    if (!error && !compact->stop) error = mark(compact, &fault);
    while (!error && !compact->stop && !offer(compact, changed ? RETRY_MS : IDLE_MS)) {
        error = catch_up(compact, reader, &changed);
        refused += changed > 0;
        if (!error && refused > READY_MOST) error = CO_BUSY;
    }
    return error;
}

/* Removes the file that was not taken, or that was replaced. */
static void clean_up(struct store_compact *compact, bool switched) {
    struct store *store = compact->store;
    struct stat now;
    char *lock = store_path(store->folder, COMPACT "-lock");
    if (switched) {
        store_file_discard(compact->old, false);
        if (compact->gone >= 0) lazy_unlink_when_closed(compact->gone);
        unlink(lock);
    } else if (compact->next) {
        store_file_discard(compact->next, true);
    }
    free(lock);
    if (compact->gone >= 0) close(compact->gone);
    pthread_mutex_lock(&store->lock);
    bool known = fstat(store->file->fd, &now) == 0;
    pthread_mutex_unlock(&store->lock);
    struct fault fault = {0};
    if (compact->marked && (!known || store_marker_write(store->folder, &now, &fault) != CO_OK))
        log_warn("store", "the marker goes on naming two files: %s", fault.text);
}

static void *compact_main(void *arg) {
    struct store_compact *compact = arg;
    struct store_reader *reader = store_reader_new(compact->store);
    background_thread("store-compact");
    int error = run(compact, reader);
    store_reader_free(reader);
    pthread_mutex_lock(&compact->lock);
    bool switched = compact->stage == SWITCHED;
    if (!switched) {
        compact->stage = GIVEN_UP;
        if (error && !compact->why && !compact->stop) compact->why = co_strerror(error);
    }
    pthread_mutex_unlock(&compact->lock);
    clean_up(compact, switched);
    compact->ended = true;
    return NULL;
}

/* -- the applier -------------------------------------------------------------------------------------------------- */

static bool sums_agree(struct store_compact *compact, struct store_txn *from) {
    if (store_sum(from) == compact->sum && store_txn_error(from) == CO_OK) return true;
    compact->why = "the copy has another sum";
    return false;
}

/* Everything is in the new file now. It gets the old one's name, and the store uses it. */
static enum stage switch_files(struct store_compact *compact) {
    struct store *store = compact->store;
    if (!store_gate_try_close(store, GATE_MS)) return READY;
    int failed = rename(compact->next->path, store->file->path);
    if (failed) compact->why = strerror(errno);
    else compact->old = store_switch(store, compact->next);
    store_gate_open(store);
    return failed ? GIVEN_UP : SWITCHED;
}

/* The stage that follows READY. */
static enum stage finish(struct store_compact *compact) {
    struct store *store = compact->store;
    pthread_mutex_lock(&store->views_lock);
    bool many = compact->over || compact->notes.count > FEW_KEYS;
    struct store_note *notes =
        many ? NULL : store_notes_take(&compact->notes, STORE_TABLES_MAX, slice_make(NULL, 0), true);
    pthread_mutex_unlock(&store->views_lock);
    if (many) return READY;
    struct store_reader *reader = store_reader_new(store);
    struct store_txn *from = store_read(reader);
    int error = carry(compact, from, notes);
    bool same = !error && sums_agree(compact, from);
    store_read_done(reader);
    store_reader_free(reader);
    free_notes(notes);
    if (error) compact->why = co_strerror(error);
    return same ? switch_files(compact) : GIVEN_UP;
}

static void over(struct store *store) {
    struct store_compact *compact = store->compact;
    CHECK(pthread_join(compact->thread, NULL) == 0);
    pthread_mutex_lock(&store->views_lock);
    store->compact = NULL;
    pthread_mutex_unlock(&store->views_lock);
    uint64_t now_ms = clock_mono_ms(), took_ms = now_ms - compact->begun_ms, rest_ms = took_ms * DUE_TIMES;
    store->compact_due_ms = now_ms + (rest_ms > DUE_MS ? rest_ms : DUE_MS);
    store->crowded_ms = 0;
    if (compact->stage == SWITCHED) {
        metric_add(&compactions, 1);
        log_info("store", "made anew, too much of it was free bytes=%llu before=%llu ms=%llu",
                 (unsigned long long)store->file->used_bytes, (unsigned long long)compact->before_bytes,
                 (unsigned long long)took_ms);
    } else if (compact->why) {
        log_warn("store", "much of it is free, and it cannot be made anew error=\"%s\"", compact->why);
    }
    store_notes_free(&compact->notes);
    free_notes(compact->taken);
    buffer_free(&compact->txn.undo.log);
    pthread_mutex_destroy(&compact->lock);
    pthread_cond_destroy(&compact->moved);
    free(compact);
}

void store_compact_turn(struct store *store) {
    struct store_compact *compact = store->compact;
    CHECK(!store->write_open);
    if (!compact) return;
    if (compact->ended) {
        over(store);
        return;
    }
    if (pthread_mutex_trylock(&compact->lock) != 0) return;
    if (compact->stage == READY) {
        compact->stage = finish(compact);
        if (compact->stage != READY) pthread_cond_signal(&compact->moved);
    }
    pthread_mutex_unlock(&compact->lock);
}

void store_compact_stop(struct store *store) {
    struct store_compact *compact = store->compact;
    if (!compact) return;
    pthread_mutex_lock(&store->views_lock);
    compact->stop = true;
    pthread_cond_broadcast(&store->view_begun);
    pthread_mutex_unlock(&store->views_lock);
    pthread_mutex_lock(&compact->lock);
    pthread_cond_signal(&compact->moved);
    pthread_mutex_unlock(&compact->lock);
    over(store);
}

static bool disk_has(const struct store *store, uint64_t bytes) {
    struct statvfs disk;
    return statvfs(store->folder, &disk) == 0 && (uint64_t)disk.f_bavail * disk.f_frsize >= bytes;
}

bool store_compact_begin(struct store *store) {
    if (store->compact) return true;
    struct store_compact *compact = mem_zalloc(sizeof *compact);
    compact->store = store;
    compact->gone = -1;
    compact->begun_ms = clock_mono_ms();
    compact->before_bytes = store->file->used_bytes;
    pthread_mutex_init(&compact->lock, NULL);
    pthread_cond_init(&compact->moved, NULL);
    pthread_mutex_lock(&store->views_lock);
    store->compact = compact; /* changes are noted from here on, and the thread's view begins later */
    pthread_mutex_unlock(&store->views_lock);
    if (pthread_create(&compact->thread, NULL, compact_main, compact) == 0) return true;
    pthread_mutex_lock(&store->views_lock);
    store->compact = NULL;
    pthread_mutex_unlock(&store->views_lock);
    pthread_mutex_destroy(&compact->lock);
    pthread_cond_destroy(&compact->moved);
    free(compact);
    return false;
}

void store_compact_judge(struct store *store, uint64_t now_ms, uint64_t file_bytes, uint64_t live_bytes) {
    uint64_t most =
        live_bytes / 16 > store->config.compact_free_bytes ? live_bytes / 16 : store->config.compact_free_bytes;
    if (file_bytes <= live_bytes + most) {
        store->crowded_ms = 0;
        return;
    }
    if (!store->crowded_ms) store->crowded_ms = now_ms;
    if (store->compact || now_ms - store->crowded_ms < CROWDED_MS || now_ms < store->compact_due_ms) return;
    bool begun = disk_has(store, live_bytes + live_bytes / 4 + SPARE_BYTES) && store_compact_begin(store);
    if (!begun) store->compact_due_ms = now_ms + DUE_MS;
}

void store_compact_init(const struct store *store) {
    metric_register(&compactions);
    char *path = store_path(store->folder, COMPACT), *lock = store_path(store->folder, COMPACT "-lock");
    (void)unlink(path);
    (void)unlink(lock);
    free(path);
    free(lock);
}
