#include "tests/fuzz/still_web.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/text.h"
#include "kv/keys/kv.h"
#include "tests/fuzz/still_machine.h"
#include "tests/lib/fake_rpc.h"

#define BODY_MOST  4096
#define VALUE_MOST 2048
#define LINE_MOST  1024 /* of an answer in text */

/* ---- libmicrohttpd: what request.c, headers.c and reply.c call ---- */

struct MHD_Response {
    unsigned references;
    const char *data;
    size_t size;
    MHD_ContentReaderFreeCallback release;
    void *release_data;
    bool is_json, is_text, is_gzip, has_index;
    uint64_t index;
};
struct MHD_Connection {
    const struct still_request *request;
    bool suspended;
    int status;
    struct MHD_Response *response;
};

struct MHD_Response *MHD_create_response_from_buffer_with_free_callback_cls(size_t size, void *buffer,
                                                                            MHD_ContentReaderFreeCallback release,
                                                                            void *data) {
    struct MHD_Response *response = mem_zalloc(sizeof *response);
    *response =
        (struct MHD_Response){.references = 1, .data = buffer, .size = size, .release = release, .release_data = data};
    return response;
}

struct MHD_Response *MHD_create_response_from_fd64(uint64_t size, int fd) {
    (void)size, (void)fd;
    return NULL; /* nothing is ever saved here */
}

void MHD_destroy_response(struct MHD_Response *response) {
    CHECK(response->references > 0);
    if (--response->references) return;
    response->release(response->release_data);
    free(response);
}

enum MHD_Result MHD_add_response_header(struct MHD_Response *response, const char *header, const char *content) {
    if (!*header || !*content || strpbrk(header, "\t\r\n") || strpbrk(content, "\t\r\n")) return MHD_NO;
    if (strcmp(header, "Content-Type") == 0) {
        response->is_json = strcmp(content, "application/json") == 0;
        response->is_text = strcmp(content, "text/plain; charset=utf-8") == 0;
    }
    if (strcmp(header, "Content-Encoding") == 0) response->is_gzip = strcmp(content, "gzip") == 0;
    if (strcmp(header, "X-Consul-Index") == 0) {
        CHECK(u64_parse(slice_text(content), UINT64_MAX, &response->index) == CO_OK);
        response->has_index = true;
    }
    return MHD_YES;
}

enum MHD_Result MHD_queue_response(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response) {
    CHECK(!connection->response);
    connection->status = (int)status;
    connection->response = response;
    response->references++;
    return MHD_YES;
}

void MHD_suspend_connection(struct MHD_Connection *connection) {
    CHECK(!connection->suspended && !connection->response);
    connection->suspended = true;
}

void MHD_resume_connection(struct MHD_Connection *connection) {
    CHECK(connection->suspended);
    connection->suspended = false;
}

static char *text_copy(struct slice text) { return mem_strndup(text.size ? text.data : "", text.size); }

/* Copies of their size, so that a read past the end is seen; kept until the request is over. */
static char *held[128];
static size_t held_count;

static const char *hold(struct slice text) {
    CHECK(held_count < ARRAY_COUNT(held));
    return held[held_count++] = text_copy(text);
}

static void let_go(void) {
    while (held_count) free(held[--held_count]);
}

int MHD_get_connection_values_n(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                                MHD_KeyValueIteratorN iterator, void *data) {
    CHECK(kind == MHD_HEADER_KIND);
    const struct still_request *request = connection->request;
    for (size_t i = 0; i < request->header_count; i++) {
        const struct still_header *header = &request->headers[i];
        iterator(data, kind, hold(header->name), header->name.size, hold(header->value), header->value.size);
    }
    return (int)request->header_count;
}

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *connection,
                                                        enum MHD_ConnectionInfoType type, ...) {
    static union MHD_ConnectionInfo info;
    CHECK(type == MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const struct still_request *request = connection->request;
    info.header_size = request->method.size + request->target.size + sizeof "  HTTP/1.1\r\n\r\n";
    for (size_t i = 0; i < request->header_count; i++) {
        info.header_size += request->headers[i].name.size + request->headers[i].value.size + sizeof ":\r\n";
    }
    return &info;
}

/* ---- the worker ---- */

static struct rpc *rpc;
static struct MHD_Connection mhd;
static struct worker worker;
static struct shard shard;
static struct connection connection;

static void worker_start(void) {
    static struct http_server server = {
        .config = {.body_max = BODY_MOST,
                   .header_max = 1 << 20,
                   .wait_max_ms = 600000,
                   .watches_max = 10,
                   .cache_bytes = 1 << 20},
        .env = {.datacenter = "dc1",
                .node_name = "n1",
                .node_id = "00000000-0000-4000-8000-000000000001",
                .version = "0",
                .address = "10.0.0.1",
                .is_server = true,
                .kv_value_max = VALUE_MOST,
                .txn_body_max = BODY_MOST,
                .txn_ops_max = 8,
                .session_ttl_min_ns = 10000000000},
        .workers = &worker,
        .worker_count = 1,
    };
    rpc = fake_rpc_start(&(struct fake_rpc_options){.at_once = true, .machine = still_machine(), .apply = still_apply});
    server.env.rpc = rpc;
    routes_init();
    worker = (struct worker){.server = &server, .epoll = -1, .wake_fd = -1, .now_ms = 1000};
    for (size_t i = 0; i < BULK_GROUPS; i++) worker.bulk[i].end = &worker.bulk[i].first;
    list_init(&worker.runnable);
    list_init(&worker.late);
    list_init(&worker.connections);
    list_init(&worker.closed);
    list_init(&worker.lingering);
    worker.engine = (struct read_engine){.rpc = rpc, .owner = &http_reads, .large = NULL};
    read_engine_init(&worker.engine);
    worker.cache = cache_new(server.config.cache_bytes);
    worker.reader = worker.engine.reader = rpc_reader_new(rpc);
    rng_seed(&worker.rng, 1);
    shard = (struct shard){.worker = &worker, .connections = 1};
    list_init(&shard.link);
    connection = (struct connection){.worker = &worker, .shard = &shard, .fd = -1, .mhd = &mhd, .watched = true};
    list_init(&connection.link);
}

/* Handles all that comes from other threads, until nothing does. */
static void pump(void) {
    for (;;) {
        struct mail *mail = mailbox_take(&worker.box);
        if (!mail && fake_rpc_round(rpc)) continue;
        if (!mail && list_empty(&worker.engine.confirming)) break;
        for (struct mail *next; mail; mail = next) {
            next = mail->next;
            struct post *post = CONTAINER_OF(mail, struct post, mail);
            post->taken(&worker, post);
        }
        read_turn_end(&worker.engine);
    }
    worker.engine.asked = false;
}

/* ---- one request ---- */

/* Only the agent's own services and checks could answer it. */
static bool is_agents(const struct http_route *route) {
    return strncmp(route->path, "/v1/agent/", 10) == 0 && strcmp(route->path, "/v1/agent/metrics") != 0;
}

static void send_body(struct http_request *request, struct slice body) {
    size_t first = body.size / 2;
    char *copy = text_copy(body);
    if (first) request_body(request, copy, first);
    if (body.size > first) request_body(request, copy + first, body.size - first);
    free(copy);
}

/* As libmicrohttpd does: a declared length is what comes, no more; "chunked" ends by itself. False: it is waited
 * for. */
static bool body_comes(struct http_request *request, struct slice body) {
    if (request->chunked) {
        send_body(request, body);
    } else if (request->body_length > body.size) {
        return false;
    } else if (request->body_length) {
        send_body(request, slice_make(body.data, (size_t)request->body_length));
    }
    return true;
}

static void run(struct http_request *request, const struct still_request *asked) {
    if (asked->parsed && !request->refusal) {
        bool routed = request->route || (parameters_parse(request) && route_find(request));
        if (routed) asked->parsed(request);
    }
    if (!request->refusal && request->route && is_agents(request->route)) {
        http_reply_text(request, 501, "not here");
        return;
    }
    request_run(request);
    if (request->stage == REQUEST_WORK) connection_wait(&connection);
    pump();
    if (request->stage == REQUEST_WORK) { /* it waits for a change; none will come */
        reading_hurry(request);
        if (request->operation && request->operation->hurry) request->operation->hurry(request);
        pump();
    }
}

static void check_idle(void) {
    CHECK(!mhd.suspended && shard.held == 0 && list_empty(&worker.late));
    list_remove(&shard.link);
    CHECK(worker.active == 0 && worker.orphans == 0 && worker.heap_size == 0 && worker.engine.gates == 0 &&
          worker.tickets == 0);
    CHECK(worker.server->watches == 0 && watch_count(rpc_watches(rpc)) == 0 && list_empty(&worker.engine.confirming));
}

/* ---- the answer ---- */

static struct slice unpacked(const struct MHD_Response *response) {
    static char plain[1 << 20];
    if (!response->is_gzip) return slice_make(response->data, response->size);
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)response->data,
                       .avail_in = (uInt)response->size,
                       .next_out = (Bytef *)plain,
                       .avail_out = sizeof plain};
    CHECK(inflateInit2(&stream, 15 + 16) == Z_OK);
    CHECK(inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.avail_in == 0);
    CHECK(inflateEnd(&stream) == Z_OK);
    return slice_make(plain, stream.total_out);
}

static void check_line(struct slice text) {
    CHECK(text.size < LINE_MOST);
    for (size_t i = 0; i < text.size; i++) CHECK((unsigned char)text.data[i] >= ' ' && text.data[i] != 0x7f);
}

static void check_json(struct slice text) {
    struct fault fault = {0};
    struct json_object *json = json_parse(text, &fault);
    CHECK(json || slice_starts(text, SLICE_LITERAL("null")));
    json_object_put(json);
}

static struct still_reply take_reply(void) {
    static struct buffer body;
    struct MHD_Response *response = mhd.response;
    struct still_reply reply = {
        .status = mhd.status, .is_json = response->is_json, .is_read = response->has_index, .index = response->index};
    CHECK(reply.status >= 200 && reply.status < 600);
    struct slice plain = unpacked(response);
    buffer_reset(&body);
    buffer_append(&body, plain.data, plain.size);
    reply.body = buffer_slice(&body);
    if (response->is_json) check_json(reply.body);
    if (reply.status >= 400) {
        CHECK(response->is_text || response->is_json || reply.body.size == 0);
        CHECK(reply.body.size || reply.status == 404);
        if (!response->is_json) check_line(reply.body);
    }
    MHD_destroy_response(response);
    return reply;
}

struct still_reply still_ask(const struct still_request *asked) {
    if (!worker.server) worker_start();
    fake_rpc_alone(rpc, !asked->shared_rounds);
    mhd = (struct MHD_Connection){.request = asked};
    connection.stage = CONNECTION_IDLE;
    /* The version follows the target in libmicrohttpd's buffer, with a NUL between. */
    struct buffer line = {0};
    buffer_append(&line, asked->target.data, asked->target.size);
    buffer_append_byte(&line, '\0');
    buffer_append_text(&line, asked->old_version ? "HTTP/1.0" : "HTTP/1.1");
    const char *at = hold(buffer_slice(&line)), *method = hold(asked->method);
    buffer_free(&line);

    struct http_request *request = request_new(&connection, at);
    request_head(request, at, method, at + asked->target.size + 1);
    bool answered = mhd.response != NULL;
    CHECK(!answered || request->close || request->expects);
    if (!answered && body_comes(request, asked->body)) {
        run(request, asked);
        answered = true;
        CHECK(request->stage == REQUEST_ANSWERED && mhd.response);
    }
    connection.request = NULL;
    request_end(request);
    check_idle();
    let_go();
    return answered ? take_reply() : (struct still_reply){0};
}

struct still_reply still_put(const char *method, const char *target, struct slice body) {
    char length[24];
    snprintf(length, sizeof length, "%zu", body.size);
    struct still_header headers[] = {{SLICE_LITERAL("Host"), SLICE_LITERAL("x")},
                                     {SLICE_LITERAL("Content-Length"), slice_text(length)}};
    struct still_request request = {.method = slice_text(method),
                                    .target = slice_text(target),
                                    .headers = headers,
                                    .header_count = ARRAY_COUNT(headers),
                                    .body = body};
    return still_ask(&request);
}
