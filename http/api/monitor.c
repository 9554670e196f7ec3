/* GET /v1/agent/monitor: the log's lines as they come, until the client goes or the server stops.
 *
 *     parked --a line--> resumed --all sent--> parked
 *
 * Any thread may log a line, and never waits: lines that a slow client has not taken yet lie in a ring of
 * MONITOR_BYTES; lines that do not fit are counted, and the client is told how many it missed. The worker owns
 * everything else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/wakeup_batch.h"
#include "http/api/topics.h"
#include "http/impl.h"

#define MONITOR_BYTES 65536
#define MONITORS_MAX  32

struct monitor {
    struct operation operation;
    struct post post;
    struct log_tap tap;
    struct worker *worker;
    struct http_request *request; /* NULL: it has ended */
    bool response, finish;        /* libmicrohttpd still has the response; no more lines are to come */
    bool json;
    pthread_mutex_t lock; /* protects the following members */
    bool parked, posted;
    struct buffer object; /* the last line, as JSON */
    uint64_t missed;
    size_t first, size;
    char ring[MONITOR_BYTES];
};

static _Atomic unsigned monitors;

static void monitor_release(struct monitor *monitor) {
    if (monitor->request || monitor->posted || monitor->response) return;
    pthread_mutex_destroy(&monitor->lock);
    buffer_free(&monitor->object);
    atomic_fetch_sub(&monitors, 1);
    free(monitor);
}

/* -- lines come --------------------------------------------------------------------------------------------------- */
static void ring_put(struct monitor *monitor, const char *bytes, size_t size) {
    size_t at = (monitor->first + monitor->size) % MONITOR_BYTES,
           head = MONITOR_BYTES - at < size ? MONITOR_BYTES - at : size;
    memcpy(monitor->ring + at, bytes, head);
    memcpy(monitor->ring, bytes + head, size - head);
    monitor->size += size;
}

/* Any thread, within the log. */
static void on_line(struct log_tap *tap, const char *line, size_t size) {
    struct monitor *monitor = CONTAINER_OF(tap, struct monitor, tap);
    char note[96];
    pthread_mutex_lock(&monitor->lock);
    if (monitor->json) {
        monitor->object.size = 0;
        log_line_json(&monitor->object, slice_make(line, size));
        line = monitor->object.data, size = monitor->object.size;
    }
    size_t note_size =
        monitor->missed
            ? (size_t)snprintf(note, sizeof note,
                               monitor->json
                                   ? "{\"@level\":\"warn\",\"@message\":\"%llu lines were not taken in time\"}\n"
                                   : "[%llu lines were not taken in time]\n",
                               (unsigned long long)monitor->missed)
            : 0;
    if (monitor->size + note_size + size > MONITOR_BYTES) {
        monitor->missed++;
    } else {
        ring_put(monitor, note, note_size);
        ring_put(monitor, line, size);
        monitor->missed = 0;
    }
    bool wake = monitor->parked && !monitor->posted;
    if (wake) monitor->posted = true;
    pthread_mutex_unlock(&monitor->lock);
    if (!wake) return;
    worker_post(monitor->worker, &monitor->post);
    wakeup_batch_flush(); /* the logging thread may be in a long task */
}

/* -- and go ------------------------------------------------------------------------------------------------------- */
static void resume(struct monitor *monitor) {
    struct http_request *request = monitor->request;
    pthread_mutex_lock(&monitor->lock);
    monitor->parked = false;
    pthread_mutex_unlock(&monitor->lock);
    if (!request || !request->suspended) return;
    request->suspended = false;
    MHD_resume_connection(request->connection->mhd);
    shard_wake(request->connection->shard);
}

static void taken(void *taker, struct post *post) {
    struct worker *worker = taker;
    struct monitor *monitor = CONTAINER_OF(post, struct monitor, post);
    pthread_mutex_lock(&monitor->lock);
    monitor->posted = false;
    pthread_mutex_unlock(&monitor->lock);
    if (!monitor->request) worker->tickets--;
    resume(monitor);
    monitor_release(monitor);
}

static ssize_t read_ring(void *data, uint64_t position, char *out, size_t room) {
    struct monitor *monitor = data;
    struct http_request *request = monitor->request;
    (void)position;
    if (!request) return MHD_CONTENT_READER_END_WITH_ERROR;
    pthread_mutex_lock(&monitor->lock);
    size_t size = monitor->size < room ? monitor->size : room,
           head = MONITOR_BYTES - monitor->first < size ? MONITOR_BYTES - monitor->first : size;
    memcpy(out, monitor->ring + monitor->first, head);
    memcpy(out + head, monitor->ring, size - head);
    monitor->first = (monitor->first + size) % MONITOR_BYTES, monitor->size -= size;
    bool wait = size == 0 && !monitor->finish;
    monitor->parked = wait;
    pthread_mutex_unlock(&monitor->lock);
    if (size) return (ssize_t)size;
    if (!wait) return MHD_CONTENT_READER_END_OF_STREAM;
    request->suspended = true;
    MHD_suspend_connection(request->connection->mhd);
    return 0;
}

/* -- life --------------------------------------------------------------------------------------------------------- */
static void monitor_end(struct http_request *request) {
    struct monitor *monitor = CONTAINER_OF(request->operation, struct monitor, operation);
    request->operation = NULL;
    log_tap_remove(&monitor->tap); /* nothing is posted any more */
    monitor->request = NULL;
    if (!monitor->posted) monitor->worker->tickets--;
    monitor_release(monitor);
}

static void monitor_hurry(struct http_request *request) {
    struct monitor *monitor = CONTAINER_OF(request->operation, struct monitor, operation);
    monitor->finish = true;
    resume(monitor);
}

static void response_gone(void *data) {
    struct monitor *monitor = data;
    monitor->response = false;
    monitor_release(monitor);
}

static void start(struct http_request *request, enum log_level level, bool json) {
    struct monitor *monitor = mem_zalloc(sizeof *monitor);
    struct connection *connection = request->connection;
    monitor->operation = (struct operation){monitor_end, monitor_hurry};
    monitor->post.taken = taken;
    monitor->worker = request->worker, monitor->request = request, monitor->response = true;
    monitor->json = json;
    monitor->tap = (struct log_tap){.level = level, .line = on_line};
    CHECK(pthread_mutex_init(&monitor->lock, NULL) == 0);
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_ring, monitor, response_gone);
    CHECK(response);
    response_header(response, "Content-Type", "text/plain; charset=utf-8");
    request->operation = &monitor->operation;
    request->worker->tickets++;
    log_tap_add(&monitor->tap);
    request_answer(request, 200, response, 0);
    connection->stage = CONNECTION_WORK; /* so that no time limit of answers applies */
    MHD_destroy_response(response);
    connection_watch(connection);
}

static void get_monitor(struct http_request *request) {
    struct slice text = http_parameter(request, "loglevel");
    int level = text.size ? log_level_parse(text) : LOG_INFO;
    if (level < 0) {
        http_reply_text(request, 400, "Bad request: Unknown log level: %.*s", (int)(text.size < 60 ? text.size : 60),
                        text.data);
    } else if (request->method == HTTP_HEAD) {
        http_reply_text(request, 200, "%s", "");
    } else if (atomic_fetch_add(&monitors, 1) >= MONITORS_MAX) {
        atomic_fetch_sub(&monitors, 1);
        http_reply_text(request, 429, "too many monitors: there are %d", MONITORS_MAX);
    } else {
        struct slice json = http_parameter(request, "logjson");
        start(request, (enum log_level)level, http_has(request, "logjson") && !slice_is(json, "false"));
    }
}

const struct http_route http_routes_monitor[] = {
    {HTTP_GET, "/v1/agent/monitor", get_monitor, "agent:read",
     HTTP_PARAMS({"loglevel", HTTP_CHOICE, .choices = "trace|debug|info|warn|err", .otherwise = "info",
                  .help = "lines of this level and above"},
                 {"logjson", HTTP_FLAG, .help = "each line is a JSON object"}),
     "The lines of the log, as they come", HTTP_LOCAL, .no_example = "it goes on until the client hangs up"},
    {0},
};
