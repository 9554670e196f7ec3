/* Writing the file out bit by bit.
 *
 * The store is never synced: the kernel writes pages that changed through the map when they are 30 s old, or when there
 * are too many, and then a gigabyte at once; the log's syncs on the same disk wait behind that (measured: 60 to 220
 * ms). So a thread of the store's own begins the writing (base/file_out.h) before that, piece by piece: it walks over
 * the file again and again, the faster the more is changed, so that about FLUSH_DIRTY_BYTES are waiting at a time (with
 * more than 16 MiB a second: the changes of ROUND_MS_LEAST). The kernel knows only the age of the file, and every 30 s
 * writes all changes that wait then, however young (measured with 40 MiB: 50 ms; with 4 MiB each of three stores on one
 * disk: a log write of 33 ms once). It makes nothing durable. A file below FLUSH_FILE_BYTES is left to the kernel, and
 * gets no thread. */
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file_out.h"
#include "base/log.h"
#include "registry/store_file.h"

#define FLUSH_FILE_BYTES  ((uint64_t)16 << 20)
#define FLUSH_DIRTY_BYTES ((uint64_t)2 << 20)
#define PIECE_BYTES       ((uint64_t)FILE_OUT_PIECE) /* is written out at a time */
#define PIECES            32                         /* a tick, about, when pieces can be large; two calls each */
#define TICK_MS           100
#define ROUND_MS_LEAST    125                   /* a page that changes all the time is not written more often */
#define ROUND_MS_MOST     20000                 /* below the kernel's 30 s */
#define RATE_MOST         ((uint64_t)256 << 20) /* for a file that changes faster than it can be written */

/* One round over the file takes so long while `rate` bytes a second are changed. */
uint64_t store_flush_round_ms(uint64_t file_bytes, uint64_t rate) {
    uint64_t ms = rate ? FLUSH_DIRTY_BYTES * 1000 / rate : ROUND_MS_MOST;
    if (ms < ROUND_MS_LEAST) ms = ROUND_MS_LEAST;
    if (ms > ROUND_MS_MOST) ms = ROUND_MS_MOST;
    uint64_t least = file_bytes * 1000 / RATE_MOST;
    return rate > RATE_MOST && ms < least ? least : ms;
}

/* The part of the file to write out in one go: if the waiting changes were spread evenly, it would hold PIECE_BYTES of
 * them. If they are not, it holds at most all of them: FLUSH_DIRTY_BYTES. */
uint64_t store_flush_piece(uint64_t file_bytes, uint64_t rate, uint64_t part) {
    double waiting = (double)(rate * store_flush_round_ms(file_bytes, rate)) / 1000;
    uint64_t most = part / PIECES / PIECE_BYTES * PIECE_BYTES;
    if (waiting * (double)most > (double)file_bytes * (double)PIECE_BYTES)
        most = (uint64_t)((double)file_bytes / waiting) * PIECE_BYTES;
    return most > PIECE_BYTES ? most : PIECE_BYTES;
}

/* Writes out [from, end) of the store's file, which may be another one next time. It goes piece by piece, so that a
 * sync of the log finds only one piece before it, not all of them. */
static int write_out(struct store *store, uint64_t from, uint64_t end, uint64_t piece) {
    if (from >= end) return CO_OK;
    pthread_mutex_lock(&store->lock);
    int fd = open(store->file->path, O_RDONLY | O_CLOEXEC), error = fd >= 0 ? CO_OK : co_from_errno(errno);
    pthread_mutex_unlock(&store->lock);
    for (; !error && from < end; from += piece) {
        uint64_t before = from > piece ? piece : from, size = end - from < piece ? end - from : piece;
        error = file_out(fd, from - before, before + size);
    }
    if (fd >= 0) close(fd);
    return error;
}

struct round {
    uint64_t at;    /* of the file */
    uint64_t size;  /* of the file, when it began */
    uint64_t grown; /* the file has grown from here on since the round before began, so all of that part waits */
    uint64_t rate;  /* bytes changed a second while there are changes, smoothed */
    uint64_t clean; /* bytes walked over since the last change */
    bool warned;
};

static void tick(struct store *store, struct round *round, uint64_t passed_ms) {
    uint64_t changed = atomic_exchange(&store->changed_bytes, 0), file_bytes = store_bytes(store);
    if (file_bytes == 0 || passed_ms == 0) return;
    if (changed) {
        round->rate = (round->rate * 7 + changed * 1000 / passed_ms) / 8;
        round->clean = 0;
    }
    uint64_t part = file_bytes * passed_ms / store_flush_round_ms(file_bytes, round->rate);
    if (round->at >= file_bytes) round->at = 0;
    if (round->at == 0) round->grown = round->size, round->size = file_bytes;
    if (part >= file_bytes - round->at) part = file_bytes - round->at;
    uint64_t from = round->at, end = from + part,
             old = round->grown < from  ? from
                   : round->grown < end ? round->grown
                                        : end;
    int error = write_out(store, from, old, store_flush_piece(file_bytes, round->rate, part));
    if (!error) error = write_out(store, old, end, PIECE_BYTES);
    if (error && !round->warned)
        log_warn("store", "cannot be written out ahead of the kernel, syncs of the log may wait for it error=\"%s\"",
                 co_strerror(error));
    round->warned |= error != CO_OK;
    round->at += part;
    round->clean += part;
}

/* Waits until the next tick; or, when everything is written, until something changes. False: the store is closed. */
static bool wait_tick(struct store *store, const struct round *round) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    bool idle = round->clean > store_bytes(store);
    pthread_mutex_lock(&store->flush_lock);
    store->flush_idle = idle;
    while (!store->flush_stop) {
        if (idle && atomic_load(&store->changed_bytes) > 0) idle = false;
        if (idle) pthread_cond_wait(&store->flush_wake, &store->flush_lock);
        else if (pthread_cond_timedwait(&store->flush_wake, &store->flush_lock, &until) == ETIMEDOUT) break;
    }
    store->flush_idle = false;
    bool stop = store->flush_stop;
    pthread_mutex_unlock(&store->flush_lock);
    return !stop;
}

static void *flush_main(void *arg) {
    struct store *store = arg;
    pthread_setname_np(pthread_self(), "store-flush");
    struct round round = {0};
    uint64_t last = clock_mono_ms();
    while (wait_tick(store, &round)) {
        uint64_t now = clock_mono_ms(), passed = now - last;
        last = now;
        tick(store, &round, passed < 10 * TICK_MS ? passed : TICK_MS);
    }
    return NULL;
}

void store_flush_init(struct store *store) {
    pthread_mutex_init(&store->flush_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&store->flush_wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void store_flush_note(struct store *store, uint64_t bytes) {
    atomic_fetch_add(&store->changed_bytes, bytes);
    if (!store->flush_runs) {
        if (store->file->used_bytes < FLUSH_FILE_BYTES) return;
        int error = pthread_create(&store->flush_thread, NULL, flush_main, store);
        if (error && !store->flush_warned)
            log_warn("store", "no thread to write it out ahead of the kernel, tried again error=\"%s\"",
                     strerror(error));
        store->flush_warned = error != 0;
        if (error) return;
        store->flush_runs = true;
    }
    if (!store->flush_idle) return;
    pthread_mutex_lock(&store->flush_lock);
    pthread_cond_signal(&store->flush_wake);
    pthread_mutex_unlock(&store->flush_lock);
}

void store_flush_stop(struct store *store) {
    if (!store->flush_runs) return;
    pthread_mutex_lock(&store->flush_lock);
    store->flush_stop = true;
    pthread_cond_signal(&store->flush_wake);
    pthread_mutex_unlock(&store->flush_lock);
    pthread_join(store->flush_thread, NULL);
    store->flush_runs = false;
}

void store_flush_free(struct store *store) {
    store_flush_stop(store);
    pthread_mutex_destroy(&store->flush_lock);
    pthread_cond_destroy(&store->flush_wake);
}

/* Begins to write out the pages loaded so far; the piece before is on the disk when this returns. */
int store_flush_behind(struct store_file *file) { return file_out(file->fd, 0, 0); }
