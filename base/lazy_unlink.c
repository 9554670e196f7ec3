#include "base/lazy_unlink.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#define SMALL_BYTES ((off_t)4 << 20) /* not worth it */
#define STEP_BYTES  ((off_t)1 << 20)
/* from here on larger steps: what takes the time on a slow disk is the commit */
#define MUCH_BYTES   ((uint64_t)4 << 30)
#define STEP_OF_MUCH (4 * STEP_BYTES)
#define SPREAD_NS    60000000000u /* what waits goes in so long, so that it does not become ever more; */
#define REST_NS      10000000u    /* if little waits no faster than a step in this time, */
#define RESTS        4            /* or in so many times what it took: whoever else uses a slow disk comes first; */
#define LOOK_NS      50000000u    /* at those that are still in use */

struct gone {
    struct gone *next;
    int fd;
    off_t at, filled; /* what is left of it; `filled` -1: as much as it has by then */
    bool nameless;    /* from the beginning: much of it may never have been written out */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gone *waiting, *in_use; /* in_use: looked at again and again */
static bool running;
static uint64_t most_waiting; /* bytes, since nothing did; the thread's */

int file_hold(int fd) {
    int rv;
    do rv = flock(fd, LOCK_SH | LOCK_NB);
    while (rv != 0 && errno == EINTR);
    if (rv != 0) return errno == EWOULDBLOCK ? CO_NOTFOUND : co_from_errno(errno);
    struct stat info; /* the remover may have come and be done */
    if (fstat(fd, &info) != 0) return co_from_errno(errno);
    return info.st_nlink ? CO_OK : CO_NOTFOUND;
}

static void rest(uint64_t ns) {
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, NULL);
}

/* Without the hole behind it: a store's file is mapped far larger than it is. */
static off_t filled(const struct stat *info) {
    off_t blocks = (off_t)info->st_blocks * 512;
    return blocks < info->st_size ? blocks : info->st_size;
}

/* Nobody reads or fills it any more. False: not worth it, or it has got a name. */
static bool measure(struct gone *gone) {
    struct stat info;
    if (fstat(gone->fd, &info) != 0 || info.st_nlink > 0) return false;
    gone->filled = filled(&info);
    return gone->filled > SMALL_BYTES;
}

/* It cannot be told: it is, for now. */
static bool busy(const struct gone *gone) { return flock(gone->fd, LOCK_EX | LOCK_NB) != 0; }

/* As far as it is filled: its blocks from `at` on, `size` at most. From the front: what is discarded with freed
 * blocks is all that is free behind them as well (ext4_try_to_trim_range; seen with Linux 6.18), which, from the
 * end, were all that went before. */
static bool give_back_piece(struct gone *gone, off_t size) {
    if (fallocate(gone->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, gone->at, size) == 0) {
        gone->at += size;
    } else { /* this file system makes no holes */
        gone->filled -= size;
        if (ftruncate(gone->fd, gone->filled) != 0) return false;
    }
    /* Committed before the next: pieces that gather until somebody's sync has the journal commit would come back in
     * one go. Nobody needs the file: it does not matter whether that failed. Not where it would write out, in one
     * go, what has no blocks yet. */
    if (!gone->nameless) (void)!fdatasync(gone->fd);
    return true;
}

/* Of those that nobody uses. */
static uint64_t backlog(const struct gone *own) {
    uint64_t bytes = (uint64_t)(own->filled - own->at);
    pthread_mutex_lock(&lock);
    for (const struct gone *gone = waiting; gone; gone = gone->next)
        if (gone->filled > 0) bytes += (uint64_t)(gone->filled - gone->at);
    pthread_mutex_unlock(&lock);
    return bytes;
}

static uint64_t rest_after(uint64_t took, off_t step) {
    uint64_t most = RESTS * took > REST_NS ? RESTS * took : REST_NS;
    uint64_t due = (uint64_t)step * SPREAD_NS / (most_waiting + 1);
    uint64_t ns = due > 2 * took ? due - took : took;
    return ns < most ? ns : most;
}

/* False: done with. */
static bool give_back_some(struct gone *gone) {
    if (gone->filled < 0 && !measure(gone)) return false;
    uint64_t bytes = backlog(gone), begun = clock_mono_ns();
    if (bytes > most_waiting) most_waiting = bytes;
    off_t left = gone->filled - gone->at, step = most_waiting > MUCH_BYTES ? STEP_OF_MUCH : STEP_BYTES;
    if (left < step) step = left;
    if (!give_back_piece(gone, step)) return false;
    rest(rest_after(clock_mono_ns() - begun, step));
    return gone->at < gone->filled;
}

static void append(struct gone **list, struct gone *gone) {
    while (*list) list = &(*list)->next;
    gone->next = NULL;
    *list = gone;
}

static void push(struct gone **list, struct gone *gone) {
    gone->next = *list;
    *list = gone;
}

static struct gone *take(struct gone **list) {
    struct gone *first = *list;
    if (first) *list = first->next;
    return first;
}

static void done_with(struct gone *gone) {
    close(gone->fd);
    free(gone);
}

/* Those that are in use no longer, to the others; small ones go at once, they need not wait for these. */
static void look_again(void) {
    pthread_mutex_lock(&lock);
    struct gone *all = in_use;
    in_use = NULL;
    for (struct gone *gone; (gone = take(&all));) {
        if (busy(gone)) push(&in_use, gone);
        else if (gone->filled < 0 && !measure(gone)) done_with(gone);
        else append(&waiting, gone);
    }
    pthread_mutex_unlock(&lock);
}

/* NULL: none that can be worked on; `over`: none at all, and whoever brings one starts a thread again. */
static struct gone *next_one(bool *over) {
    pthread_mutex_lock(&lock);
    struct gone *gone = take(&waiting);
    running = gone || in_use;
    if (!gone) most_waiting = 0;
    *over = !running;
    pthread_mutex_unlock(&lock);
    return gone;
}

static void put_back(struct gone *gone, struct gone **list) {
    pthread_mutex_lock(&lock);
    push(list, gone);
    pthread_mutex_unlock(&lock);
}

/* The oldest first, until it is gone: the one made after it often lies behind it on the disk, and what is free there
 * already would be discarded again. */
static void step(struct gone *gone) {
    if (busy(gone)) {
        put_back(gone, &in_use);
    } else if (give_back_some(gone)) {
        put_back(gone, &waiting);
    } else {
        done_with(gone);
    }
}

static void *gone_main(void *arg) {
    (void)arg;
    background_thread("lazy-unlink");
    uint64_t looked_ns = clock_mono_ns();
    for (bool over = false; !over;) {
        struct gone *gone = next_one(&over);
        if (gone) step(gone);
        else if (!over) rest(LOOK_NS);
        if (clock_mono_ns() - looked_ns < LOOK_NS) continue;
        look_again();
        looked_ns = clock_mono_ns();
    }
    return NULL;
}

/* False: no thread; all at once then. */
static bool gone_start(void) {
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attr, gone_main, NULL);
    pthread_attr_destroy(&attr);
    return error == 0;
}

static void give_back(int fd, off_t size) {
    struct gone *gone = mem_zalloc(sizeof *gone);
    gone->fd = fd, gone->filled = size, gone->nameless = size < 0;
    pthread_mutex_lock(&lock);
    bool started = running || gone_start();
    if (started) {
        running = true;
        append(&waiting, gone);
    }
    pthread_mutex_unlock(&lock);
    if (started) return;
    close(fd);
    free(gone);
}

int lazy_unlink(int folder, const char *name) {
    struct stat info;
    int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool large =
        fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 && filled(&info) > SMALL_BYTES;
    int error = unlinkat(folder, name, 0) == 0 ? CO_OK : co_from_errno(errno);
    if (large && !error) give_back(fd, filled(&info));
    else if (fd >= 0) close(fd);
    return error;
}

void lazy_unlink_when_closed(int fd) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (flock(fd, LOCK_SH | LOCK_NB) != 0) return;
    int own = open(path, O_RDWR | O_CLOEXEC);
    if (own >= 0) give_back(own, -1);
}
