/* Log lines: "2026-01-02T03:04:05.678Z [INFO] raft: became leader term=3 index=17". Level, subsystem, one message, then
 * key=value pairs (values with blanks are quoted). Any thread. One write(2) a line, to standard error;
 * base/log_targets.h has the log's other targets. */
#ifndef COORD_BASE_LOG_H
#define COORD_BASE_LOG_H

#include "base/buffer.h"

enum log_level { LOG_TRACE, LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

extern _Atomic int log_level_now;       /* lines below it cost one load */
int log_level_parse(struct slice text); /* trace debug info warn err error (any case); -1: not a level */
/* Redirects lines (tests; /v1/agent/monitor later). NULL: standard error. `line` ends with a newline. */
void log_set_sink(void (*sink)(void *data, enum log_level level, const char *line, size_t size), void *data);

/* The same lines, for base/log_targets.h. `target` is called within the log, on any thread: it neither waits nor logs.
 * After log_set_target returns, the one before is not called any more. */
void log_set_target(void (*target)(enum log_level level, const char *line, size_t size));
/* Standard error gets JSON. */
void log_set_json(bool json);

#define LOG_LINE_MOST 2048
/* A line of the log, as log_write makes it, into `line` (room bytes, LOG_LINE_MOST is enough): its size. */
size_t log_line(char *line, size_t room, enum log_level level, const char *subsystem, const char *text);
/* Appends a line of the log as JSON with Consul's names, and a line feed: {"@level":"info","@message":"became leader",
 * "@module":"raft","@timestamp":"2026-...","term":"3","index":"17"}. Pairs at its end are members. */
void log_line_json(struct buffer *out, struct slice line);

/* A tap gets the lines from its level on, also of levels that the log itself leaves out. `line` is called within the
 * log, on any thread: it neither waits nor logs. Any thread; after log_tap_remove it is not called any more. */
struct log_tap {
    enum log_level level;
    void (*line)(struct log_tap *tap, const char *line, size_t size);
    struct log_tap *next; /* the log's */
};
void log_tap_add(struct log_tap *tap);
void log_tap_remove(struct log_tap *tap);
/* Sets the log's own level; taps keep theirs. */
void log_level_set(int level);
void log_write(enum log_level level, const char *subsystem, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define LOG_AT(level, ...)                                             \
    do {                                                               \
        if ((level) >= log_level_now) log_write((level), __VA_ARGS__); \
    } while (0)
/* log_info("raft", "became leader term=%" PRIu64, term); */
#define log_trace(...) LOG_AT(LOG_TRACE, __VA_ARGS__)
#define log_debug(...) LOG_AT(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  LOG_AT(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  LOG_AT(LOG_WARN, __VA_ARGS__)
#define log_error(...) LOG_AT(LOG_ERROR, __VA_ARGS__)

#endif
