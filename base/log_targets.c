#include "base/log_targets.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log_file.h"
#include "base/memory.h"

#define CLOSE_WAIT_S 2

/* A line that waits: this record, followed by its bytes. */
struct record {
    enum log_level level;
    uint32_t size;
};

static struct {
    pthread_t thread;
    pthread_mutex_t lock; /* for what follows, up to `done` */
    pthread_cond_t more, over;
    struct buffer pending;
    uint64_t left_out; /* lines that found no room since the last one that did */
    bool reopen, end, done;
    /* used by the thread only */
    struct log_file file;
    struct buffer json;
    struct sockaddr_un syslog_address;
    int syslog_fd, facility;
    bool as_json, syslog;
} targets = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};
static _Atomic bool is_open;

/* As RFC 5424 numbers them; <syslog.h> has names of levels that are the log's own here. */
static const char *const facilities[24] = {
    "kern", "user", "mail", "daemon", "auth",   "syslog", "lpr",    "news",   "uucp",   "cron",   "authpriv", "ftp",
    NULL,   NULL,   NULL,   NULL,     "local0", "local1", "local2", "local3", "local4", "local5", "local6",   "local7"};

int log_facility(const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(facilities); i++)
        if (facilities[i] && slice_equal_nocase(slice_text(name), slice_text(facilities[i]))) return (int)i;
    return -1;
}

/* -- syslog: datagrams (RFC 3164), never sent twice --------------------------------------------------------------- */

static int syslog_connect(void) {
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    if (connect(fd, (struct sockaddr *)&targets.syslog_address, sizeof targets.syslog_address) < 0) {
        int error = errno;
        close(fd);
        return error;
    }
    targets.syslog_fd = fd;
    return 0;
}

static void syslog_write(enum log_level level, const char *line, size_t size) {
    static const int priorities[] = {[LOG_TRACE] = 7, [LOG_DEBUG] = 7, [LOG_INFO] = 6, [LOG_WARN] = 4, [LOG_ERROR] = 3};
    char text[2200], date[32];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(date, sizeof date, "%b %e %H:%M:%S", &local);
    const char *message = memchr(line, ']', size); /* after the time and the level, which the datagram has already */
    message = message ? message + 2 : line;
    size_t left = size - (size_t)(message - line) - 1;
    int written = snprintf(text, sizeof text, "<%d>%s coord[%d]: %.*s", targets.facility * 8 + priorities[level], date,
                           (int)getpid(), (int)left, message);
    size_t bytes = written < (int)sizeof text ? (size_t)written : sizeof text - 1;
    if (targets.syslog_fd >= 0 && send(targets.syslog_fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return;
    if (targets.syslog_fd >= 0 && (errno == EAGAIN || errno == ENOBUFS)) return; /* it is too slow */
    if (targets.syslog_fd >= 0) close(targets.syslog_fd);
    targets.syslog_fd = -1; /* syslog was restarted, or is gone: connect again */
    if (syslog_connect() == 0) (void)!send(targets.syslog_fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* -- the file ----------------------------------------------------------------------------------------------------- */

static int file_put(const char *line, size_t size) {
    if (!targets.as_json) return log_file_write(&targets.file, line, size, clock_wall_ns());
    targets.json.size = 0;
    log_line_json(&targets.json, slice_make(line, size));
    return log_file_write(&targets.file, targets.json.data, targets.json.size, clock_wall_ns());
}

static int file_note(uint64_t missing, const char *why) {
    char line[LOG_LINE_MOST], text[160];
    snprintf(text, sizeof text, "%llu lines are missing here: %s", (unsigned long long)missing, why);
    return file_put(line, log_line(line, sizeof line, LOG_WARN, "log", text));
}

static void file_write(const char *line, size_t size) {
    struct log_file *file = &targets.file;
    int error = file->missing ? file_note(file->missing, strerror(file->error)) : 0;
    if (!error) file->missing = 0, error = file_put(line, size);
    bool first = error && !file->error;
    file->error = error;
    if (error) file->missing++;
    if (first) log_warn("log", "lines are left out of the file: %s path=%s", strerror(error), file->path);
}

static void file_reopen(void) {
    int error = log_file_reopen(&targets.file, clock_wall_ns());
    if (error) log_warn("log", "the file cannot be opened anew: %s path=%s", strerror(error), targets.file.path);
}

/* -- the thread --------------------------------------------------------------------------------------------------- */

static void write_all(const struct buffer *lines, uint64_t left_out) {
    for (size_t at = 0; at < lines->size;) {
        struct record record;
        memcpy(&record, lines->data + at, sizeof record);
        const char *line = lines->data + at + sizeof record;
        if (targets.file.path) file_write(line, record.size);
        if (targets.syslog) syslog_write(record.level, line, record.size);
        at += sizeof record + record.size;
    }
    if (left_out && targets.file.path) file_note(left_out, "they came too fast to be written");
}

static void *run(void *nothing) {
    struct buffer lines = {0};
    pthread_setname_np(pthread_self(), "log-targets");
    pthread_mutex_lock(&targets.lock);
    while (!targets.end || targets.pending.size) {
        if (!targets.pending.size && !targets.reopen) {
            pthread_cond_wait(&targets.more, &targets.lock);
            continue;
        }
        struct buffer taken = targets.pending;
        uint64_t left_out = targets.left_out;
        bool reopen = targets.reopen && targets.file.path;
        targets.pending = lines, targets.left_out = 0, targets.reopen = false;
        pthread_mutex_unlock(&targets.lock);
        if (reopen) file_reopen(); /* first: lines that came after it are not for the file of before */
        write_all(&taken, left_out);
        lines = taken;
        lines.size = 0;
        pthread_mutex_lock(&targets.lock);
    }
    targets.done = true;
    pthread_cond_signal(&targets.over);
    pthread_mutex_unlock(&targets.lock);
    buffer_free(&lines);
    return nothing;
}

/* Called within the log, on any thread. */
static void on_line(enum log_level level, const char *line, size_t size) {
    struct record record = {level, (uint32_t)size};
    pthread_mutex_lock(&targets.lock);
    if (targets.pending.size + sizeof record + size > LOG_PENDING_MAX) {
        targets.left_out++;
    } else {
        buffer_append(&targets.pending, &record, sizeof record);
        buffer_append(&targets.pending, line, size);
    }
    pthread_cond_signal(&targets.more);
    pthread_mutex_unlock(&targets.lock);
}

/* -- life --------------------------------------------------------------------------------------------------------- */

static int open_file(const struct log_targets_config *config, struct fault *fault) {
    struct buffer path = {0};
    if (!config->file) return CO_OK;
    log_file_path(config->file, &path);
    buffer_append_byte(&path, '\0');
    targets.file = (struct log_file){.path = path.data,
                                     .rotate_bytes = config->rotate_bytes,
                                     .rotate_ns = config->rotate_ns,
                                     .rotate_files = config->rotate_files};
    int error = log_file_open(&targets.file, clock_wall_ns());
    if (!error) return CO_OK;
    fault_set(fault, CO_IO, "log_file: %.180s: %s", path.data, strerror(error));
    free(targets.file.path);
    targets.file = (struct log_file){0};
    return CO_IO;
}

static int open_syslog(const struct log_targets_config *config, struct fault *fault) {
    const char *path = config->syslog_socket ? config->syslog_socket : "/dev/log";
    targets.syslog_fd = -1;
    targets.syslog = config->syslog;
    if (!config->syslog) return CO_OK;
    targets.facility = log_facility(config->facility);
    targets.syslog_address.sun_family = AF_UNIX;
    CHECK(strlen(path) < sizeof targets.syslog_address.sun_path);
    strcpy(targets.syslog_address.sun_path, path);
    int error = syslog_connect();
    return error ? fault_set(fault, CO_IO, "enable_syslog: %s: %s", path, strerror(error)) : CO_OK;
}

int log_targets_open(const struct log_targets_config *config, struct fault *fault) {
    CHECK(!is_open);
    if (open_file(config, fault) != CO_OK) return CO_IO;
    if (open_syslog(config, fault) != CO_OK) {
        log_file_close(&targets.file);
        return CO_IO;
    }
    log_set_json(config->json);
    targets.as_json = config->json;
    if (!config->file && !config->syslog) return CO_OK;
    targets.end = targets.done = targets.reopen = false;
    CHECK(pthread_create(&targets.thread, NULL, run, NULL) == 0);
    is_open = true;
    log_set_target(on_line);
    return CO_OK;
}

void log_targets_reopen(void) {
    if (!is_open) return;
    pthread_mutex_lock(&targets.lock);
    targets.reopen = true;
    pthread_cond_signal(&targets.more);
    pthread_mutex_unlock(&targets.lock);
}

void log_targets_close(void) {
    struct timespec until;
    log_set_json(false);
    if (!is_open) return;
    log_set_target(NULL);
    is_open = false;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CLOSE_WAIT_S;
    pthread_mutex_lock(&targets.lock);
    targets.end = true;
    pthread_cond_signal(&targets.more);
    while (!targets.done && pthread_cond_timedwait(&targets.over, &targets.lock, &until) == 0) continue;
    bool done = targets.done;
    pthread_mutex_unlock(&targets.lock);
    if (!done) return; /* the disk hangs: the process ends without waiting for it */
    pthread_join(targets.thread, NULL);
    log_file_close(&targets.file);
    if (targets.syslog_fd >= 0) close(targets.syslog_fd);
    buffer_free(&targets.pending);
    buffer_free(&targets.json);
}
