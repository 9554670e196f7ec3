/* Answers: bodies, headers, status codes. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "http/impl.h"

#define TAKE_OVER 65536 /* larger bodies are not copied to fit */
#define TEXT_TYPE "text/plain; charset=utf-8"

/* ---- bodies ---- */

static _Atomic size_t held;

size_t bytes_held(void) { return atomic_load_explicit(&held, memory_order_relaxed); }

struct bytes *bytes_copy(const void *data, size_t size) {
    atomic_fetch_add_explicit(&held, size, memory_order_relaxed);
    struct bytes *bytes = mem_alloc(sizeof *bytes + size);
    *bytes = (struct bytes){.references = 1, .size = size, .data = (char *)(bytes + 1)};
    if (size) memcpy(bytes->data, data, size);
    return bytes;
}

struct bytes *bytes_take(struct buffer *buffer) {
    if (buffer->size < TAKE_OVER) {
        struct bytes *bytes = bytes_copy(buffer->data, buffer->size);
        buffer_reset(buffer);
        return bytes;
    }
    struct bytes *bytes = mem_alloc(sizeof *bytes);
    *bytes = (struct bytes){.references = 1};
    bytes->data = mem_realloc(buffer->data, buffer->size);
    bytes->size = buffer->size;
    atomic_fetch_add_explicit(&held, bytes->size, memory_order_relaxed);
    *buffer = (struct buffer){0};
    return bytes;
}

struct bytes *bytes_keep(struct bytes *bytes) {
    bytes->references++;
    return bytes;
}

void bytes_release(struct bytes *bytes) {
    if (!bytes || --bytes->references) return;
    atomic_fetch_sub_explicit(&held, bytes->size, memory_order_relaxed);
    if (bytes->data != (char *)(bytes + 1)) free(bytes->data);
    free(bytes);
}

const uint8_t *bytes_digest(struct bytes *bytes) {
    if (!bytes->has_digest) hash128(bytes->data, bytes->size, bytes->digest);
    bytes->has_digest = true;
    return bytes->digest;
}

/* ---- responses ---- */

static void release(void *bytes) { bytes_release(bytes); }

void response_header(struct MHD_Response *response, const char *name, const char *value) {
    CHECK(MHD_add_response_header(response, name, value) == MHD_YES);
}

void response_header_u64(struct MHD_Response *response, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    response_header(response, name, text);
}

struct MHD_Response *response_new(struct bytes *bytes, const char *content_type) {
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback_cls(bytes->size, bytes->data, release, bytes_keep(bytes));
    if (!response) {
        bytes_release(bytes);
        CHECK(response);
    }
    if (content_type) response_header(response, "Content-Type", content_type);
    response_header(response, "Vary", "Accept-Encoding");
    return response;
}

void request_answer(struct http_request *request, int status, struct MHD_Response *response, size_t size) {
    struct worker *worker = request->worker;
    CHECK(request->stage != REQUEST_ANSWERED);
    if (request->stage == REQUEST_ORPHAN || request->stage == REQUEST_ABORT) return;
    if (worker->server->env.audit) audit_answered(request, status);
    struct connection *connection = request->connection;
    worker->tally.answered[status / 100 < 6 ? status / 100 : 5]++;
    request->stage = REQUEST_ANSWERED;
    connection->stage = CONNECTION_SEND;
    connection->began_ms = worker->now_ms;
    connection->sending = size;
    bool suspended = request->suspended, waited = suspended || request->held;
    request->suspended = false;
    connection_unhold(connection);
    /* libmicrohttpd accepts the response both in the handler and between its runs. In the latter case the request may
     * be gone afterwards. */
    bool queued = MHD_queue_response(connection->mhd, (unsigned)status, response) == MHD_YES;
    if (!queued && connection->request == request) request->stage = REQUEST_ABORT;
    if (suspended) MHD_resume_connection(connection->mhd);
    if (suspended) shard_owes_answer(connection->shard);
    else if (waited) shard_wake(connection->shard);
}

void response_hidden(struct MHD_Response *response, uint64_t hidden) {
    if (!hidden) return;
    response_header(response, "X-Consul-Results-Filtered-By-ACLs", "true");
    response_header_u64(response, "X-Coord-Filtered", hidden);
}

void response_extra(struct MHD_Response *response, const struct header *headers) {
    for (; headers; headers = headers->next) {
        /* Names are ours; a header whose value is not allowed is left out. */
        if (MHD_add_response_header(response, headers->name, headers->value) != MHD_YES) continue;
    }
}

void request_answer_bytes(struct http_request *request, int status, struct bytes *bytes, const char *content_type) {
    struct bytes *packed = request->gzip ? gzip_bytes(request->worker, bytes) : NULL;
    if (packed) {
        bytes_release(bytes);
        bytes = packed;
    }
    struct MHD_Response *response = response_new(bytes, content_type);
    if (packed) response_header(response, "Content-Encoding", "gzip");
    if (request->close) response_header(response, "Connection", "close");
    response_hidden(response, request->hidden);
    response_extra(response, request->headers);
    request_answer(request, status, response, bytes->size);
    MHD_destroy_response(response);
    bytes_release(bytes);
}

/* ---- the usual bodies ---- */

static struct MHD_Response *constant(const char *text) {
    struct bytes *bytes = bytes_copy(text, strlen(text));
    struct MHD_Response *response = response_new(bytes, JSON_TYPE);
    bytes_release(bytes);
    return response;
}

void request_answer_yes(struct http_request *request, bool yes) {
    struct worker *worker = request->worker;
    if (request->pretty || request->headers) {
        json_bool(http_out(request), yes);
        http_reply_json(request, 200);
        return;
    }
    struct MHD_Response **response = yes ? &worker->yes : &worker->no;
    if (!*response) *response = constant(yes ? "true" : "false");
    request_answer(request, 200, *response, 5);
}

struct json_out *http_out(struct http_request *request) {
    struct output *output = request->output;
    buffer_reset(&output->out);
    json_out_init(&output->json, &output->out, request->pretty);
    request->raw = false;
    return &output->json;
}

struct buffer *http_raw(struct http_request *request) {
    buffer_reset(&request->output->out);
    request->raw = true;
    return &request->output->out;
}

const char *request_content_type(const struct http_request *request) {
    if (request->output->out.size == 0 && !request->raw) return NULL;
    if (request->content_type) return request->content_type;
    return request->raw ? "text/plain" : JSON_TYPE;
}

void http_content_type(struct http_request *request, const char *content_type) { request->content_type = content_type; }

void http_reply_json(struct http_request *request, int status) {
    struct buffer *out = &request->output->out;
    if (request->pretty) buffer_append_byte(out, '\n');
    request_answer_bytes(request, status, bytes_take(out), JSON_TYPE);
}

void http_reply_raw(struct http_request *request, int status, const char *content_type) {
    request_answer_bytes(request, status, bytes_take(&request->output->out), content_type);
}

void http_reply_file(struct http_request *request, int status, int fd, uint64_t size, const char *content_type) {
    struct MHD_Response *response = MHD_create_response_from_fd64(size, fd); /* closes it */
    if (!response) {
        close(fd);
        http_reply_text(request, 500, "the answer's file cannot be sent");
        return;
    }
    response_header(response, "Content-Type", content_type);
    response_extra(response, request->headers);
    request_answer(request, status, response, size);
    MHD_destroy_response(response);
}

/* Keeps the text on one line, whatever it repeats of a client's text. */
static void make_one_line(char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
    }
}

#define LINE_MOST 1024
static struct slice one_line(char room[LINE_MOST], const char *format, va_list arguments) {
    int size = vsnprintf(room, LINE_MOST, format, arguments);
    if (size < 0) room[size = 0] = '\0';
    if (size >= LINE_MOST) size = LINE_MOST - 1;
    make_one_line(room);
    return slice_make(room, (size_t)size);
}

void http_reply_text(struct http_request *request, int status, const char *format, ...) {
    struct buffer text = {0};
    va_list arguments;
    char room[LINE_MOST + AUDIT_DENIAL_ROOM];
    va_start(arguments, format);
    struct slice line = one_line(room, format, arguments);
    va_end(arguments);
    if (status == 403 && request->requester) { /* a denial */
        if (!audit_denial(request, room, sizeof room)) return;
        line = slice_text(room);
    }
    buffer_append(&text, line.data, line.size);
    request->gzip = false;
    request_answer_bytes(request, status, bytes_take(&text), line.size ? TEXT_TYPE : NULL);
    buffer_free(&text);
}

void http_view_text(struct http_request *request, const char *format, ...) {
    va_list arguments;
    char room[LINE_MOST];
    va_start(arguments, format);
    struct slice line = one_line(room, format, arguments);
    va_end(arguments);
    buffer_append(http_raw(request), line.data, line.size);
    http_content_type(request, TEXT_TYPE);
}

void http_header(struct http_request *request, const char *name, const char *value) {
    struct header *header = arena_alloc(&request->arena, sizeof *header), **end = &request->headers;
    *header = (struct header){NULL, arena_strndup(&request->arena, name, strlen(name)),
                              arena_strndup(&request->arena, value, strlen(value))};
    while (*end) end = &(*end)->next;
    *end = header;
}

void http_header_u64(struct http_request *request, const char *name, uint64_t value) {
    http_header(request, name, arena_printf(&request->arena, "%llu", (unsigned long long)value));
}

/* ---- errors ---- */

int reply_status(int error) {
    switch (error) {
        case CO_OK: return 200;
        case CO_INVALID:
        case CO_UNSUPPORTED: return 400;
        case CO_DENIED:
        case CO_NOTOKEN: return 403;
        case CO_NOTFOUND: return 404;
        case CO_EXISTS:
        case CO_CONFLICT: return 409;
        case CO_GONE: return 410;
        case CO_PRECONDITION: return 412;
        case CO_TOOLARGE: return 413;
        case CO_BUSY:
        case CO_LIMITED: return 429;
        case CO_DISKFULL:
        case CO_CLOSED:
        case CO_FENCED: return 503;
        default: return 500;
    }
}

/* `line` has room for 160 bytes. */
static const char *why(struct http_request *request, int error, char *line) {
    if (error == CO_NOLEADER && request->region) {
        snprintf(line, 160, "No path to datacenter \"%s\": it cannot be reached now, or has no leader",
                 request->region);
        return line;
    }
    if ((error == CO_DENIED || error == CO_NOTOKEN || error == CO_NOTREADY) && http_denial(request)[0])
        return http_denial(request);
    if (error != CO_FENCED) return co_strerror(error);
    rpc_fenced_why(request->worker->server->env.rpc, line);
    return line;
}

void http_reply_error(struct http_request *request, int error) {
    char line[160];
    http_reply_text(request, reply_status(error), "%s", why(request, error, line));
}

void http_reply_fault(struct http_request *request, const struct fault *fault) {
    if (fault->code == CO_LIMITED) limited_by_cluster(request);
    http_reply_text(request, reply_status(fault->code), "%s", fault->text[0] ? fault->text : co_strerror(fault->code));
}

void http_reply_result(struct http_request *request, const struct machine_result *result) {
    if (result->error == CO_LIMITED) limited_by_cluster(request);
    if (result->error)
        http_reply_text(request, reply_status(result->error), "%s",
                        result->text ? result->text : co_strerror(result->error));
    else request_answer_yes(request, result->yes);
}

void http_reply_read_error(struct http_request *request, int error, const char *text) {
    uint64_t last_contact_ms;
    bool known = worker_known_leader(request->worker, &last_contact_ms);
    http_header(request, "X-Consul-Index", "1");
    http_header(request, "X-Consul-KnownLeader", known ? "true" : "false");
    http_header_u64(request, "X-Consul-LastContact", last_contact_ms);
    int status = error == CO_NOTFOUND ? 500 : reply_status(error); /* a missing record is an answer and no error */
    char line[160];
    if (error == CO_DISKFULL && !text)
        text =
            "disk full: the server is behind and has no room for what is newer, and no leader answered in its place "
            "(?stale reads what it has)";
    http_reply_text(request, status, "%s", text ? text : why(request, error, line));
}
