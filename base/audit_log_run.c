#include "base/audit_log_run.h"

#include <errno.h>
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/audit_log.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/memory.h"
#include "base/metrics.h"

#define STOP_MS  2000
#define STALL_MS 200          /* a wait for a slow reader, before looking whether the process ends */
#define CHUNK    (64u << 10u) /* written at once: a failure repeats no more than that */

METRIC lines_total = {
    .name = "coord_audit_log_lines_total", .help = "Lines that the audit log has written", .type = METRIC_COUNTER};
METRIC lost_total = {.name = "coord_audit_log_lost_total",
                     .help = "Lines that the audit log has lost, because they could not be written",
                     .type = METRIC_COUNTER};
METRIC refused_total = {.name = "coord_audit_log_refused_total",
                        .help = "Requests that were refused because they could not be recorded",
                        .type = METRIC_COUNTER};
METRIC failing = {.name = "coord_audit_log_failing",
                  .help = "1 while nothing can be written to the audit log's file or socket",
                  .type = METRIC_GAUGE};

struct audit_log_run {
    pthread_t thread;
    pthread_mutex_t lock; /* for what follows, up to `done` */
    pthread_cond_t more, over;
    struct audit_log log;
    bool reopen, end, done;
    uint64_t end_ms;
    /* used by the thread only */
    struct log_file file; /* no path: it is a socket */
    struct sockaddr_un address;
    int socket; /* -1: not connected */
    bool datagrams;
    size_t sent; /* bytes of the present line that this connection has */
};

/* -- the file ----------------------------------------------------------------------------------------------------- */
static int judge_folder(const char *file, struct fault *fault) {
    struct stat status;
    char *copy = mem_strdup(file), *folder = dirname(copy);
    int rv = CO_OK;
    if (stat(folder, &status) != 0) rv = fault_set(fault, CO_IO, "audit.file: %.180s: %s", folder, strerror(errno));
    else if (!S_ISDIR(status.st_mode)) rv = fault_set(fault, CO_INVALID, "audit.file: %.180s is no folder", folder);
    else if (status.st_mode & S_IWOTH)
        rv = fault_set(fault, CO_INVALID, "audit.file: others may write its folder: chmod o-w %.180s", folder);
    else if (status.st_uid != 0 && status.st_uid != geteuid())
        rv = fault_set(fault, CO_INVALID, "audit.file: its folder %.180s is another user's", folder);
    free(copy);
    return rv;
}

int audit_log_check(const char *file, struct fault *fault) {
    struct stat status;
    int rv = judge_folder(file, fault);
    if (rv != CO_OK || stat(file, &status) != 0) return rv;
    if (S_ISDIR(status.st_mode)) return fault_set(fault, CO_INVALID, "audit.file: %.180s is a folder", file);
    if (S_ISREG(status.st_mode) && status.st_mode & 077)
        return fault_set(fault, CO_INVALID, "audit.file: others may read or write it: chmod 600 %.180s", file);
    return CO_OK;
}

static int file_write(struct audit_log_run *run, struct slice lines, size_t *done) {
    struct log_file *file = &run->file;
    while (*done < lines.size) {
        size_t room = CHUNK, full = file->rotate_bytes;
        if (full) room = file->size < full ? full - file->size : full;
        struct slice rest = slice_make(lines.data + *done, lines.size - *done);
        size_t chunk = audit_log_chunk(rest, room < CHUNK ? room : CHUNK);
        int error = log_file_write(file, rest.data, chunk, clock_wall_ns());
        if (error) return error;
        *done += chunk;
    }
    return 0;
}

/* -- the socket --------------------------------------------------------------------------------------------------- */
static void socket_close(struct audit_log_run *run) {
    if (run->socket >= 0) close(run->socket);
    run->socket = -1;
    run->sent = 0; /* the next connection gets the whole line */
}

static int socket_connect(struct audit_log_run *run) {
    for (int datagrams = 0; run->socket < 0; datagrams++) {
        int fd = socket(AF_UNIX, (datagrams ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) return errno;
        run->datagrams = datagrams;
        if (connect(fd, (struct sockaddr *)&run->address, sizeof run->address) == 0) {
            run->socket = fd;
            return 0;
        }
        int error = errno;
        close(fd);
        if (error != EPROTOTYPE || datagrams) return error;
    }
    return 0;
}

/* EAGAIN: the reader is slow, and the process may end meanwhile. */
static int socket_write(struct audit_log_run *run, struct slice lines, size_t *done) {
    int error = socket_connect(run);
    while (!error && *done < lines.size) {
        const char *line = lines.data + *done;
        size_t size = audit_log_chunk(slice_make(line, lines.size - *done), 0);
        size_t last = run->datagrams ? size - 1 : size; /* a datagram has no line feed */
        ssize_t sent = send(run->socket, line + run->sent, last - run->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) run->sent += (size_t)sent;
        if (sent >= 0 && run->sent == last) *done += size, run->sent = 0;
        if (sent >= 0 || errno == EINTR) continue;
        error = errno == ENOBUFS ? EAGAIN : errno;
        struct pollfd ready = {.fd = run->socket, .events = POLLOUT};
        if (error == EAGAIN && poll(&ready, 1, STALL_MS) > 0) error = 0;
    }
    if (error && error != EAGAIN) socket_close(run);
    return error;
}

/* -- the thread --------------------------------------------------------------------------------------------------- */
static uint64_t count_lines(const char *lines, size_t size) {
    uint64_t count = 0;
    for (size_t i = 0; i < size; i++) count += lines[i] == '\n';
    return count;
}

/* Without the lock. *done: bytes of whole lines. An errno, 0: all was written, or the reader is slow. */
static int deliver(struct audit_log_run *run, struct buffer *batch, size_t *done) {
    struct slice lines = buffer_slice(batch);
    int error = run->file.path ? file_write(run, lines, done) : socket_write(run, lines, done);
    metric_add(&lines_total, count_lines(lines.data, *done));
    if (*done) memmove(batch->data, batch->data + *done, batch->size - *done);
    batch->size -= *done;
    if (!batch->size && batch->capacity > 2 * CHUNK) buffer_free(batch);
    error = error == EAGAIN ? 0 : error;
    metric_set(&failing, error != 0);
    return error;
}

static void file_reopen(struct audit_log_run *run) {
    struct fault fault = {0};
    if (!run->file.path) return;
    int error = audit_log_check(run->file.path, &fault) == CO_OK ? log_file_reopen(&run->file, clock_wall_ns()) : EPERM;
    if (error) log_warn("audit", "the file cannot be opened anew: %s", fault.code ? fault.text : strerror(error));
}

static void warn(int error, uint64_t lost, uint64_t refused) {
    log_warn("audit", "the audit log %s: %s lost=%llu refused=%llu",
             error ? "cannot be written" : "is written too slowly",
             error ? strerror(error) : "lines come faster than they are taken", (unsigned long long)lost,
             (unsigned long long)refused);
}

/* With the lock, which is given up meanwhile. */
static void step(struct audit_log_run *run, struct buffer *batch) {
    bool reopen = run->reopen;
    size_t done = 0;
    run->reopen = false;
    audit_log_take(&run->log, batch);
    pthread_mutex_unlock(&run->lock);
    if (reopen) file_reopen(run);
    int error = deliver(run, batch, &done);
    pthread_mutex_lock(&run->lock);
    bool warns = audit_log_warns(&run->log, error, clock_mono_ms());
    uint64_t lost = run->log.lost, refused = run->log.refused;
    audit_log_written(&run->log, done, error, clock_mono_ms(), (uint64_t)(clock_wall_ns() / 1000000));
    if (!warns) return;
    pthread_mutex_unlock(&run->lock);
    warn(error, lost, refused);
    pthread_mutex_lock(&run->lock);
}

static void wait_more(struct audit_log_run *run, uint64_t wait_ms) {
    struct timespec until;
    if (wait_ms == UINT64_MAX) {
        pthread_cond_wait(&run->more, &run->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(wait_ms / 1000);
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&run->more, &run->lock, &until);
}

static bool ends(const struct audit_log_run *run, const struct buffer *batch) {
    return run->end && ((!batch->size && !run->log.lines.size) || clock_mono_ms() >= run->end_ms);
}

static void *run_thread(void *data) {
    struct audit_log_run *run = data;
    struct buffer batch = {0};
    pthread_setname_np(pthread_self(), "audit-log");
    pthread_mutex_lock(&run->lock);
    while (!ends(run, &batch)) {
        uint64_t wait_ms = run->reopen ? 0 : audit_log_wait_ms(&run->log, clock_mono_ms());
        if (wait_ms && run->end && wait_ms > STALL_MS) wait_ms = STALL_MS;
        if (wait_ms) wait_more(run, wait_ms);
        else step(run, &batch);
    }
    uint64_t left = count_lines(batch.data, batch.size) + count_lines(run->log.lines.data, run->log.lines.size);
    run->done = true;
    pthread_cond_signal(&run->over);
    pthread_mutex_unlock(&run->lock);
    if (left)
        log_warn("audit", "lines of the audit log are lost, because it could not be written lines=%llu",
                 (unsigned long long)left);
    buffer_free(&batch);
    return NULL;
}

/* -- for everybody ------------------------------------------------------------------------------------------------ */
bool audit_log_run_reserve(struct audit_log_run *run, size_t size, size_t *reserved) {
    *reserved = 0;
    if (!run->log.refuse) return true; /* constant */
    pthread_mutex_lock(&run->lock);
    bool good = audit_log_reserve(&run->log, size, reserved);
    if (!good) metric_add(&refused_total, 1);
    pthread_mutex_unlock(&run->lock);
    return good;
}

void audit_log_run_release(struct audit_log_run *run, size_t reserved) {
    if (!reserved) return;
    pthread_mutex_lock(&run->lock);
    audit_log_release(&run->log, reserved);
    pthread_mutex_unlock(&run->lock);
}

void audit_log_run_put(struct audit_log_run *run, struct slice line, size_t reserved) {
    pthread_mutex_lock(&run->lock);
    bool first = !run->log.lines.size;
    if (!audit_log_put(&run->log, line, reserved)) metric_add(&lost_total, 1);
    if (first) pthread_cond_signal(&run->more);
    pthread_mutex_unlock(&run->lock);
}

void audit_log_reopen(struct audit_log_run *run) {
    if (!run) return;
    pthread_mutex_lock(&run->lock);
    run->reopen = true;
    pthread_cond_signal(&run->more);
    pthread_mutex_unlock(&run->lock);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
static int open_file(struct audit_log_run *run, const struct audit_log_config *config, struct fault *fault) {
    int rv = audit_log_check(config->file, fault);
    if (rv != CO_OK) return rv;
    run->file = (struct log_file){.path = mem_strdup(config->file),
                                  .mode = 0600,
                                  .rotate_bytes = config->rotate_bytes,
                                  .rotate_ns = config->rotate_ns,
                                  .rotate_files = config->rotate_files};
    int error = log_file_open(&run->file, clock_wall_ns());
    if (!error) return CO_OK;
    free(run->file.path);
    return fault_set(fault, CO_IO, "audit.file: %.180s: %s", config->file, strerror(error));
}

static int open_socket(struct audit_log_run *run, const struct audit_log_config *config, struct fault *fault) {
    run->address.sun_family = AF_UNIX;
    if (strlen(config->socket) >= sizeof run->address.sun_path)
        return fault_set(fault, CO_INVALID, "audit.socket: the path is longer than %zu bytes",
                         sizeof run->address.sun_path - 1);
    strcpy(run->address.sun_path, config->socket);
    run->log.error = socket_connect(run); /* the thread tries again */
    if (run->log.error) log_warn("audit", "%s: %s (it is tried again)", config->socket, strerror(run->log.error));
    return CO_OK;
}

void audit_log_register(void) {
    struct metric *metrics[] = {&lines_total, &lost_total, &refused_total, &failing};
    for (size_t i = 0; i < ARRAY_COUNT(metrics); i++) metric_register(metrics[i]);
}

int audit_log_start(const struct audit_log_config *config, struct audit_log_run **out, struct fault *fault) {
    struct audit_log_run *run = mem_zalloc(sizeof *run);
    run->log.most = config->buffer_bytes;
    run->log.refuse = config->refuse;
    run->socket = -1;
    int rv = config->file ? open_file(run, config, fault) : open_socket(run, config, fault);
    if (rv != CO_OK) {
        free(run);
        return rv;
    }
    CHECK(pthread_mutex_init(&run->lock, NULL) == 0 && pthread_cond_init(&run->more, NULL) == 0 &&
          pthread_cond_init(&run->over, NULL) == 0 && pthread_create(&run->thread, NULL, run_thread, run) == 0);
    *out = run;
    return CO_OK;
}

void audit_log_stop(struct audit_log_run *run) {
    if (!run) return;
    pthread_mutex_lock(&run->lock);
    run->end = true;
    run->end_ms = clock_mono_ms() + STOP_MS;
    pthread_cond_signal(&run->more);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STOP_MS / 1000 + 1;
    while (!run->done && pthread_cond_timedwait(&run->over, &run->lock, &until) == 0) continue;
    bool done = run->done;
    pthread_mutex_unlock(&run->lock);
    if (!done) return; /* the disk hangs: the process ends without waiting for it */
    pthread_join(run->thread, NULL);
    log_file_close(&run->file);
    socket_close(run);
    buffer_free(&run->log.lines);
    pthread_mutex_destroy(&run->lock);
    pthread_cond_destroy(&run->more);
    pthread_cond_destroy(&run->over);
    free(run);
}
