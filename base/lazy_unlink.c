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

#define SMALL_BYTES ((off_t)4 << 20) /* smaller files are removed at once */
#define STEP_BYTES  ((off_t)1 << 20)
/* larger files are freed in larger steps: on a slow disk it is the commit of each step that takes the time */
#define MUCH_BYTES   ((uint64_t)4 << 30)
#define STEP_OF_MUCH (4 * STEP_BYTES)
/* after each step the thread rests, so that all that waits is freed within SPREAD_NS; but no longer than REST_NS, or
 * RESTS times as long as the step took, because others that use a slow disk come first */
#define SPREAD_NS 60000000000u
#define REST_NS   10000000u
#define RESTS     4
#define LOOK_NS   50000000u /* between looks at files that are still in use */

struct gone {
    struct gone *next;
    int fd;
    off_t at, filled; /* the part that is not freed yet; filled -1: measured when work on the file begins */
    bool nameless;    /* it never had a name: much of it may never have been written out */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gone *waiting, *in_use; /* in_use: checked every LOOK_NS */
static bool running;
static uint64_t most_waiting; /* the largest backlog in bytes since there was none; the thread's */

int file_hold(int fd) {
    int rv;
    do rv = flock(fd, LOCK_SH | LOCK_NB);
    while (rv != 0 && errno == EINTR);
    if (rv != 0) return errno == EWOULDBLOCK ? CO_NOTFOUND : co_from_errno(errno);
    struct stat info; /* in the meantime the remover may have removed it */
    if (fstat(fd, &info) != 0) return co_from_errno(errno);
    return info.st_nlink ? CO_OK : CO_NOTFOUND;
}

static void rest(uint64_t ns) {
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, NULL);
}

/* The size without the hole at the end: a store's file is far longer than the part that has blocks. */
static off_t filled(const struct stat *info) {
    off_t blocks = (off_t)info->st_blocks * 512;
    return blocks < info->st_size ? blocks : info->st_size;
}

/* Measures a file that nobody reads or fills any more. False: it is too small for this, or it has been given a name. */
static bool measure(struct gone *gone) {
    struct stat info;
    if (fstat(gone->fd, &info) != 0 || info.st_nlink > 0) return false;
    gone->filled = filled(&info);
    return gone->filled > SMALL_BYTES;
}

/* Does somebody else still hold the file? An error of flock counts as yes, for now. */
static bool busy(const struct gone *gone) { return flock(gone->fd, LOCK_EX | LOCK_NB) != 0; }

/* Frees the blocks from `at` on, `size` bytes at most. It goes from the front to the end, because with freed blocks the
 * file system also discards all free blocks behind them (ext4_try_to_trim_range; seen with Linux 6.18); from the end,
 * it would discard all earlier pieces again. */
static bool give_back_piece(struct gone *gone, off_t size) {
    if (fallocate(gone->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, gone->at, size) == 0) {
        gone->at += size;
    } else { /* this file system makes no holes */
        gone->filled -= size;
        if (ftruncate(gone->fd, gone->filled) != 0) return false;
    }
    /* Commits this piece before the next one: otherwise pieces would gather until somebody's sync commits the journal,
     * and then be freed in one go. Nobody needs the file, so an error does not matter. A file that never had a name is
     * not synced, because that would write out everything that has no blocks yet. */
    if (!gone->nameless) (void)!fdatasync(gone->fd);
    return true;
}

/* The bytes that are still to be freed, of files that nobody uses. */
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

/* Frees one piece. False: the file is finished. */
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

/* Moves the files that are no longer in use to those that wait; small ones are freed at once. */
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

/* NULL: there is none that can be freed now. *over: there is none at all, and the next caller has to start a thread
 * again. */
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

/* Frees the oldest file first and completely: the next one often lies behind it on the disk, and if its blocks were
 * free already they would be discarded again. */
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

/* False: the thread could not be started, so the caller frees everything at once. */
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
