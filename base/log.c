#include "base/log.h"

#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

_Atomic int log_level_now = LOG_INFO;

static const char *const level_names[] = {
    [LOG_TRACE] = "TRACE", [LOG_DEBUG] = "DEBUG", [LOG_INFO] = "INFO", [LOG_WARN] = "WARN", [LOG_ERROR] = "ERROR",
};

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*sink_now)(void *data, enum log_level level, const char *line, size_t size);
static void *sink_data;
static void (*target_now)(enum log_level level, const char *line, size_t size);
static struct buffer json_line; /* under the lock */
static bool as_json;
static struct log_tap *taps;
static int own_level; /* used while there are taps; otherwise log_level_now is the log's level */

int log_level_parse(struct slice text) {
    if (slice_equal_nocase(text, SLICE_LITERAL("err"))) return LOG_ERROR;
    for (size_t i = 0; i < ARRAY_COUNT(level_names); i++) {
        if (slice_equal_nocase(text, slice_text(level_names[i]))) return (int)i;
    }
    return -1;
}

void log_set_sink(void (*sink)(void *data, enum log_level level, const char *line, size_t size), void *data) {
    pthread_mutex_lock(&sink_lock);
    sink_now = sink;
    sink_data = data;
    pthread_mutex_unlock(&sink_lock);
}

void log_set_target(void (*target)(enum log_level level, const char *line, size_t size)) {
    pthread_mutex_lock(&sink_lock);
    target_now = target;
    pthread_mutex_unlock(&sink_lock);
}

void log_set_json(bool json) {
    pthread_mutex_lock(&sink_lock);
    as_json = json;
    buffer_free(&json_line);
    pthread_mutex_unlock(&sink_lock);
}

/* Under the lock. */
static void levels_again(void) {
    int least = own_level;
    for (const struct log_tap *tap = taps; tap; tap = tap->next)
        if ((int)tap->level < least) least = (int)tap->level;
    log_level_now = least;
}

void log_tap_add(struct log_tap *tap) {
    pthread_mutex_lock(&sink_lock);
    if (!taps) own_level = log_level_now;
    tap->next = taps;
    taps = tap;
    levels_again();
    pthread_mutex_unlock(&sink_lock);
}

void log_tap_remove(struct log_tap *tap) {
    pthread_mutex_lock(&sink_lock);
    struct log_tap **at = &taps;
    while (*at && *at != tap) at = &(*at)->next;
    CHECK(*at);
    *at = tap->next;
    levels_again();
    pthread_mutex_unlock(&sink_lock);
}

void log_level_set(int level) {
    pthread_mutex_lock(&sink_lock);
    if (taps) {
        own_level = level;
        levels_again();
    } else {
        log_level_now = level;
    }
    pthread_mutex_unlock(&sink_lock);
}

static size_t line_start(char *line, size_t room, enum log_level level, const char *subsystem) {
    int64_t now = clock_wall_ns();
    time_t seconds = (time_t)(now / 1000000000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    int size = snprintf(line, room, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ [%s] %s: ", utc.tm_year + 1900, utc.tm_mon + 1,
                        utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (int)(now / 1000000 % 1000),
                        level_names[level], subsystem);
    CHECK(size > 0 && (size_t)size < room);
    return (size_t)size;
}

/* A line may quote text of a client, which must not be able to begin a line of its own. */
static size_t line_end(char *line, size_t start, size_t room, size_t written) {
    bool cut = written >= room;
    size_t size = start + (cut ? room - 1 : written);
    if (cut) memcpy(line + size - 3, "...", 3);
    for (size_t i = start; i < size; i++) {
        if (iscntrl((unsigned char)line[i])) line[i] = '?';
    }
    line[size++] = '\n';
    return size;
}

size_t log_line(char *line, size_t room, enum log_level level, const char *subsystem, const char *text) {
    size_t start = line_start(line, room, level, subsystem);
    int written = snprintf(line + start, room - start - 1, "%s", text);
    CHECK(written >= 0);
    return line_end(line, start, room - start - 1, (size_t)written);
}

/* Under the lock: the log's own lines. */
static void put(enum log_level level, const char *line, size_t size) {
    struct slice out = slice_make(line, size);
    if (sink_now) {
        sink_now(sink_data, level, line, size);
        return;
    }
    if (target_now) target_now(level, line, size);
    if (as_json) {
        json_line.size = 0;
        log_line_json(&json_line, out);
        out = buffer_slice(&json_line);
    }
    ssize_t ignored = write(STDERR_FILENO, out.data, out.size); /* an error cannot be reported anywhere */
    (void)ignored;
}

void log_write(enum log_level level, const char *subsystem, const char *format, ...) {
    char line[LOG_LINE_MOST];
    size_t start = line_start(line, sizeof line, level, subsystem), room = sizeof line - start - 1;
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(line + start, room, format, arguments);
    va_end(arguments);
    CHECK(written >= 0);
    size_t size = line_end(line, start, room, (size_t)written);

    pthread_mutex_lock(&sink_lock);
    for (struct log_tap *tap = taps; tap; tap = tap->next)
        if (level >= tap->level) tap->line(tap, line, size);
    if (!taps || (int)level >= own_level) put(level, line, size); /* otherwise only the taps want it */
    pthread_mutex_unlock(&sink_lock);
}
