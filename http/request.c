/* The life of a request: made when its target is known, ended when the answer is out or the client is gone.
 *
 *     HEAD -> BODY -> WORK -> ANSWERED   the usual way; WORK is left out when the handler answers at once
 *                       '---> ABORT      the client hung up: the connection is closed without an answer
 *     any  -> ORPHAN                     the client is gone, but another thread still has to report; freed then */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/lazy_unlink.h"
#include "base/text.h"
#include "base/wakeup_batch.h"
#include "http/declared.h"
#include "http/impl.h"

#define SPARE_MOST 256
#define BODY_FIRST 65536 /* allocated for a declared length; more only as bytes come */

/* ---- making and ending ---- */

static void arena_embed(struct http_request *request) {
    request->arena = (struct arena){.at = request->room, .end = request->room + sizeof request->room};
}

struct http_request *request_new(struct connection *connection, const char *target) {
    struct worker *worker = connection->worker;
    struct http_request *request = worker->spare;
    if (request) {
        worker->spare = request->next_spare;
        worker->spare_count--;
    } else {
        request = mem_alloc(sizeof *request);
    }
    memset(request, 0, offsetof(struct http_request, room));
    arena_embed(request);
    request->worker = worker;
    request->output = &worker->output;
    request->connection = connection;
    connection->request = request;
    list_init(&request->late);
    worker->active++;
    size_t size = target ? strlen(target) : 0;
    request->target = slice_make(arena_strndup(&request->arena, target, size), size);
    return request;
}

void request_free(struct http_request *request) {
    struct worker *worker = request->worker;
    CHECK(!request->parked);
    if (request->audited) audit_end(request);
    requester_release(request->requester);
    access_release(request->access);
    arena_free(&request->arena);
    buffer_free(&request->body);
    if (request->spool) close(request->spool - 1);
    if (request->json) json_object_put(request->json);
    if (worker->spare_count >= SPARE_MOST) {
        free(request);
        return;
    }
    request->next_spare = worker->spare;
    worker->spare = request;
    worker->spare_count++;
}

struct http_request *request_copy(const struct http_request *request) {
    struct http_request *copy = mem_alloc(sizeof *copy);
    memset(copy, 0, offsetof(struct http_request, room));
    arena_embed(copy);
    copy->worker = request->worker;
    copy->method = request->method;
    copy->target = slice_copy(&copy->arena, request->target);
    bool good = parameters_parse(copy) && route_find(copy);
    CHECK(good);
    copy->key_hash = request->key_hash;
    return copy;
}

void request_copy_free(struct http_request *copy) {
    requester_release(copy->requester);
    arena_free(&copy->arena);
    free(copy);
}

void request_end(struct http_request *request) {
    struct worker *worker = request->worker;
    worker->active--;
    list_remove(&request->late);
    if (request->reading) reading_end(request);
    if (request->operation && request->operation->end) request->operation->end(request);
    request->connection = NULL;
    request->suspended = false;
    request->stage = REQUEST_ORPHAN;
    if (request->busy || atomic_load_explicit(&request->mailed, memory_order_relaxed)) {
        worker->orphans++;
    } else {
        request_free(request);
    }
}

void request_hung_up(struct http_request *request) {
    /* A command that was handed to the cluster cannot be withdrawn: wait for the outcome, unless the server stops. */
    if (request->busy && !request->worker->stop) return;
    if (request->stage == REQUEST_ANSWERED && request->suspended) { /* api/monitor.c: it waits for more to send */
        if (request->operation) request->operation->end(request);
        request->suspended = false;
        MHD_resume_connection(request->connection->mhd);
        shard_wake(request->connection->shard);
        return;
    }
    if (request->stage != REQUEST_WORK && request->stage != REQUEST_BODY) return;
    request->stage = REQUEST_ABORT;
    if (request->reading) reading_end(request);
    if (request->operation && request->operation->end) request->operation->end(request);
    struct connection *connection = request->connection;
    if (!request->suspended && !request->held) return;
    if (request->suspended) MHD_resume_connection(connection->mhd);
    request->suspended = false;
    connection_unhold(connection);
    shard_wake(connection->shard);
}

void request_refuse(struct http_request *request, int status, const char *format, ...) {
    if (request->refusal) return;
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size < 0) size = 0;
    if (size >= (int)sizeof text) size = sizeof text - 1;
    request->refusal = status;
    request->refusal_text = arena_strndup(&request->arena, text, (size_t)size);
}

/* ---- head ---- */

static enum http_method method_parse(const char *text) {
    static const struct {
        const char *text;
        enum http_method method;
    } methods[] = {
        {"GET", HTTP_GET},       {"PUT", HTTP_PUT},   {"POST", HTTP_POST},
        {"DELETE", HTTP_DELETE}, {"HEAD", HTTP_HEAD}, {"OPTIONS", HTTP_OPTIONS},
    };
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++) {
        if (strcmp(text, methods[i].text) == 0) return methods[i].method;
    }
    return HTTP_OTHER;
}

#define DRAIN_MOST (4u << 20) /* of a body that is refused */

static void refuse(struct http_request *request) {
    for (const struct http_topic *topic = http_topics; topic->title; topic++) {
        if (topic->prefix && slice_starts(request->path, slice_text(topic->prefix))) topic->refused(request);
    }
    http_reply_text(request, request->refusal, "%s", request->refusal_text);
}

static void refuse_now(struct http_request *request) {
    request->close = true;
    refuse(request);
}

/* The most bytes of a body that may go into a file, because it must not be held in memory. (Writing goes to the page
 * cache, so it does not wait for the disk.) Half of the free space is left for the log, and for the data that is made
 * from the body. */
static uint64_t spool_room(int fd) {
    struct statvfs disk;
    return fstatvfs(fd, &disk) == 0 ? (uint64_t)disk.f_bavail * disk.f_frsize / 2 : UINT64_MAX;
}

static void spool_open(struct http_request *request) {
    const char *folder = request->worker->server->env.spool_folder;
    if (!folder) folder = "/tmp";
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) request_refuse(request, 500, "the body cannot be stored: %s: %s", folder, strerror(errno));
    else lazy_unlink_when_closed(fd);
    request->spool = fd + 1;
    request->body_most = fd < 0 ? UINT64_MAX : spool_room(fd);
}

/* While the body comes, the free space is checked again, because others may fill the disk. */
#define SPOOL_LOOK_BYTES (1u << 20)
#define SPOOL_LEFT_BYTES (32u << 20)
static bool spool_full(const struct http_request *request, size_t size) {
    uint64_t had = request->body_size - size;
    return had / SPOOL_LOOK_BYTES != request->body_size / SPOOL_LOOK_BYTES &&
           2 * spool_room(request->spool - 1) < SPOOL_LEFT_BYTES;
}

static void spool_write(struct http_request *request, const char *data, size_t size) {
    wakeup_batch_flush(); /* writing may block */
    if (spool_full(request, size)) {
        request_refuse(request, 503, "disk full: the body cannot be stored");
        close(request->spool - 1);
        request->spool = 0;
        return;
    }
    while (size > 0) {
        ssize_t done = write(request->spool - 1, data, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            request_refuse(request, errno == ENOSPC ? 503 : 500, "the body cannot be stored: %s", strerror(errno));
            close(request->spool - 1);
            request->spool = 0;
            return;
        }
        data += done;
        size -= (size_t)done;
    }
}

static void refuse_size(struct http_request *request) {
    const char *setting = "coord.http_body_max";
    if (request->route && request->route->flags & HTTP_BODY_TXN) setting = "limits.txn_max_req_len";
    char size[40] = "";
    if (request->route && request->route->flags & HTTP_BODY_BIG) setting = "limits.kv_max_value_size";
    if (request->route && request->route->flags & HTTP_BODY_FILE) setting = "half of what is free on the disk";
    if (request->body_length) snprintf(size, sizeof size, "(%llu bytes)", (unsigned long long)request->body_length);
    request_refuse(request, 413, "Request body%s too large, max size: %llu bytes (%s)", size,
                   (unsigned long long)request->body_most, setting);
}

static void body_limit(struct http_request *request) {
    const struct http_server *server = request->worker->server;
    unsigned flags = request->route ? request->route->flags : 0;
    request->body_most = flags & HTTP_BODY_BIG   ? server->env.kv_value_max
                         : flags & HTTP_BODY_TXN ? server->env.txn_body_max
                                                 : server->config.body_max;
    if (!request->refusal && request->route && request->route->flags & HTTP_BODY_FILE) spool_open(request);
    if (request->body_length > request->body_most) refuse_size(request);
}

static const char *refuse_head(struct http_request *request) {
    char line[200];
    bool url = request->target.size > request->worker->server->config.header_max;
    header_limit(request->connection, url ? "URL" : "header", line, sizeof line);
    request_refuse(request, url ? 414 : 431, "%s", line);
    return request->refusal_text;
}

void request_head(struct http_request *request, const char *url, const char *method, const char *version) {
    struct connection *connection = request->connection;
    request->stage = REQUEST_BODY;
    request->method = method_parse(method);
    request->method_text = method;
    request->old_version = strcmp(version, "HTTP/1.0") == 0;
    const char *doubtful = headers_read(request, version);
    if (doubtful) request_refuse(request, 400, "%s", doubtful);
    if (request->head_size > request->worker->server->config.header_max) doubtful = refuse_head(request);
    if (request->encodings && !request->chunked) {
        request_refuse(request, 501, "Unsupported transfer encoding");
        doubtful = request->refusal_text;
    }
    if (request->worker->stop) {
        request_refuse(request, 503, "shutting down");
        doubtful = request->refusal_text;
    }
    if (doubtful) {
        refuse_now(request);
        return;
    }
    target_take(request, url, version);
    if (!request->body_length && !request->chunked) return;
    /* The route sets the limit of the body. */
    connection->stage = CONNECTION_BODY;
    connection->began_ms = request->worker->now_ms;
    if (!request->refusal && parameters_parse(request)) route_find(request);
    body_limit(request);
    /* Refuses before the body is sent, when the client waits for "100 Continue", or when the body is too large to drain
     * it. */
    bool much = request->body_length > request->body_most && request->body_length - request->body_most > DRAIN_MOST;
    if (request->refusal == 413 && (request->expects || much)) refuse_now(request);
}

/* ---- body ---- */

void request_body(struct http_request *request, const char *data, size_t size) {
    request->body_size += size;
    if (request->refusal) return; /* drained, so that the client can read why */
    if (request->body_size > request->body_most) {
        buffer_free(&request->body);
        refuse_size(request);
        return;
    }
    if (request->spool) {
        spool_write(request, data, size);
        return;
    }
    struct buffer *body = &request->body;
    if (!body->data && !request->chunked) {
        size_t whole = (size_t)request->body_length;
        buffer_reserve(body, whole < BODY_FIRST ? whole : BODY_FIRST);
    }
    buffer_append(body, data, size);
}

/* ---- handling ---- */

static void run_permitted(struct http_request *request) {
    if (request->route->flags & HTTP_OWN && !declared_check(request)) return; /* it has replied */
    request->route->handler(request);
}

static void run_recorded(struct http_request *request) {
    if (request->refusal) {
        refuse(request);
    } else if (request->route->flags & HTTP_LOCAL || http_region_set(request, http_parameter(request, "dc"))) {
        permission_check(request, run_permitted);
    }
}

void request_run_parsed(struct http_request *request) {
    if (!request->refusal && !request->route && parameters_parse(request)) route_find(request);
    if (!request->refusal) token_parse(request);
    if (!request->refusal) requester_set(request); /* ?token= is known now */
    limits_pass(request);
    if (request->worker->server->env.audit && audit_due(request)) {
        if (!audit_admit(request)) return;
        if (audit_asks(request)) {
            access_learn(request, run_recorded);
            return;
        }
    }
    run_recorded(request);
}

void request_run(struct http_request *request) {
    request->connection->stage = CONNECTION_WORK;
    request->stage = REQUEST_WORK;
    bool read = request->method & (HTTP_GET | HTTP_HEAD) && !request->refusal && !request->route;
    if (read) requester_set(request);
    if (request->requester && memmem(request->target.data, request->target.size, "token=", 6)) read = false;
    if (read) limits_pass(request);
    if (read && !request->refusal && request->worker->server->env.audit_reads && !audit_admit(request)) return;
    if (!read || request->refusal || !reading_fast(request)) request_run_parsed(request);
}

/* ---- for handlers ---- */

const struct http_env *http_env(const struct http_request *request) { return &request->worker->server->env; }
struct arena *http_arena(struct http_request *request) {
    return &request->arena;
}
enum http_method http_method(const struct http_request *request) { return request->method; }
struct slice http_body(const struct http_request *request) {
    return buffer_slice(&request->body);
}

int http_body_file(const struct http_request *request) {
    return request->spool && lseek(request->spool - 1, 0, SEEK_SET) == 0 ? request->spool - 1 : -1;
}

const char *http_request_header(const struct http_request *request, const char *name) {
    return MHD_lookup_connection_value(request->connection->mhd, MHD_HEADER_KIND, name);
}

void *http_api_kept(const struct http_request *request) { return request->worker->api; }
struct rng *http_rng(struct http_request *request) {
    return &request->worker->rng;
}

struct json_object *http_json_any(struct http_request *request, struct fault *fault) {
    if (!request->json) request->json = json_parse(http_body(request), fault);
    return request->json;
}

struct json_object *http_json_of(struct http_request *request, json_type type, const char *failed) {
    struct fault fault = {0};
    (void)http_json_any(request, &fault);
    if (!json_object_is_type(request->json, type))
        fault_set(&fault, CO_INVALID, "JSON: %s is wanted", type == json_type_array ? "an array" : "an object");
    if (!fault.code) return request->json;
    http_reply_text(request, 400, "%s: %s", failed, fault.text);
    return NULL;
}

struct json_object *http_json(struct http_request *request) {
    return http_json_of(request, json_type_object, "Request decode failed");
}
