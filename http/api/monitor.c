/* GET /v1/agent/monitor: the log's lines as they come (http/feed.h), until the client goes or the server stops. Lines
 * that a slow client has not taken yet lie in the feed; lines that do not fit are counted, and the client is told how
 * many it missed. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "http/api/topics.h"
#include "http/feed.h"

#define MONITOR_BYTES 65536
#define MONITORS_MAX  32

struct monitor {
    struct log_tap tap;
    struct http_feed *feed;
    bool json;
    /* Within the log: one thread at a time. */
    struct buffer object; /* the last line, as JSON */
    uint64_t missed;
};

static _Atomic unsigned monitors;

/* Any thread, within the log. */
static void on_line(struct log_tap *tap, const char *text, size_t size) {
    struct monitor *monitor = CONTAINER_OF(tap, struct monitor, tap);
    struct slice line = slice_make(text, size);
    char note[96];
    if (monitor->json) {
        monitor->object.size = 0;
        log_line_json(&monitor->object, line);
        line = buffer_slice(&monitor->object);
    }
    size_t note_size =
        monitor->missed
            ? (size_t)snprintf(note, sizeof note,
                               monitor->json
                                   ? "{\"@level\":\"warn\",\"@message\":\"%llu lines were not taken in time\"}\n"
                                   : "[%llu lines were not taken in time]\n",
                               (unsigned long long)monitor->missed)
            : 0;
    if (http_feed_put(monitor->feed, slice_make(note, note_size), line)) monitor->missed = 0;
    else monitor->missed++;
}

static void ended(void *data) {
    struct monitor *monitor = data;
    log_tap_remove(&monitor->tap);
    buffer_free(&monitor->object);
    free(monitor);
    atomic_fetch_sub(&monitors, 1);
}

static void start(struct http_request *request, enum log_level level, bool json) {
    struct monitor *monitor = mem_zalloc(sizeof *monitor);
    monitor->json = json;
    monitor->tap = (struct log_tap){.level = level, .line = on_line};
    struct http_feed *feed = monitor->feed = http_feed_new(request, MONITOR_BYTES, ended, monitor);
    log_tap_add(&monitor->tap);
    http_feed_answer(feed, "text/plain; charset=utf-8");
}

static void get_monitor(struct http_request *request) {
    struct slice text = http_parameter(request, "loglevel");
    int level = text.size ? log_level_parse(text) : LOG_INFO;
    if (level < 0) {
        http_reply_text(request, 400, "Bad request: Unknown log level: %.*s", (int)(text.size < 60 ? text.size : 60),
                        text.data);
    } else if (http_method(request) == HTTP_HEAD) {
        http_reply_text(request, 200, "%s", "");
    } else if (atomic_fetch_add(&monitors, 1) >= MONITORS_MAX) {
        atomic_fetch_sub(&monitors, 1);
        http_reply_text(request, 429, "too many monitors: there are %d", MONITORS_MAX);
    } else if (!http_parks(request)) {
        atomic_fetch_sub(&monitors, 1);
    } else {
        struct slice json = http_parameter(request, "logjson");
        start(request, (enum log_level)level, http_has(request, "logjson") && !slice_is(json, "false"));
    }
}

const struct http_route http_routes_monitor[] = {
    {HTTP_GET, "/v1/agent/monitor", get_monitor, "agent:read of this agent",
     HTTP_PARAMS({"loglevel", HTTP_CHOICE, .choices = "trace|debug|info|warn|err", .otherwise = "info",
                  .help = "lines of this level and above"},
                 {"logjson", HTTP_FLAG, .help = "each line is a JSON object"}),
     "The lines of the log, as they come", HTTP_LOCAL, .no_example = "it goes on until the client hangs up"},
    {0},
};
