#include "http/sse.h"

#include <stdlib.h>

#include "http/impl.h"

#define BLOCK_OLD   4096 /* libmicrohttpd's buffer for a stream without chunks (HTTP/1.0) */
#define BLOCK_LEAST 64   /* with chunks libmicrohttpd uses another buffer, which the connection has anyway */
#define AGAIN_MS    1000

struct sse_engine {
    struct sse *sse;
    struct worker *worker;
    struct operation operation;
    struct post post;
    struct timer timer; /* of the next query */
    bool asking, finish;
    size_t taken; /* of the text, by libmicrohttpd */
    struct requester *requester;
    int error;
};

static void release(struct sse *sse) {
    if (sse->request || sse->engine->asking || sse->response) return;
    requester_release(sse->engine->requester);
    free(sse->engine);
    buffer_free(&sse->text);
    fetched_free(&sse->fetched);
    free(sse);
}

/* -- asking ------------------------------------------------------------------------------------------------------- */

/* Loop or another thread. */
static void fetch_done(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct sse *sse = CONTAINER_OF(fetch, struct sse, fetch);
    sse->engine->error = error;
    if (!error) fetched_copy(&sse->fetched, fetched);
    worker_post(sse->engine->worker, &sse->engine->post);
}

void sse_ask(struct sse *sse, const struct query_type *type, const ProtobufCMessage *message) {
    sse->fetch.type = type;
    sse->fetch.no_cache = true;
    sse->fetch.done = fetch_done;
    sse->fetch.requester = sse->engine->requester;
    http_region_name(sse->request, sse->fetch.region);
    sse->engine->asking = true;
    sse->asked_ms = sse->engine->worker->now_ms;
    sse->engine->worker->tickets++;
    rpc_fetch(sse->engine->worker->server->env.rpc, &sse->fetch, message);
}

uint64_t sse_now_ms(const struct sse *sse) { return sse->engine->worker->now_ms; }

static void ask_again(struct worker *worker, struct timer *timer) {
    struct sse *sse = CONTAINER_OF(timer, struct sse_engine, timer)->sse;
    (void)worker;
    sse->kind->ask(sse, RPC_STALE);
}

/* -- sending ------------------------------------------------------------------------------------------------------ */

static void resume(struct sse *sse) {
    struct http_request *request = sse->request;
    if (!request || !request->suspended) return;
    request->suspended = false;
    MHD_resume_connection(request->connection->mhd);
    shard_wake(request->connection->shard);
}

static ssize_t read_text(void *data, uint64_t at, char *out, size_t room) {
    struct sse *sse = data;
    struct http_request *request = sse->request;
    (void)at;
    if (!request) return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t left = sse->text.size - sse->engine->taken, size = left < room ? left : room;
    if (size) {
        memcpy(out, sse->text.data + sse->engine->taken, size);
        sse->engine->taken += size;
        sse->sent_ms = sse->engine->worker->now_ms;
        return (ssize_t)size;
    }
    if (sse->engine->finish) return MHD_CONTENT_READER_END_OF_STREAM;
    buffer_free(&sse->text);
    sse->engine->taken = 0;
    if (!sse->engine->asking && sse->engine->timer.place == 0) sse->kind->ask(sse, RPC_STALE);
    request->suspended = true;
    MHD_suspend_connection(request->connection->mhd);
    return 0;
}

static void response_gone(void *data) {
    struct sse *sse = data;
    sse->response = false;
    release(sse);
}

void sse_go_on(struct sse *sse) {
    if (sse->text.size) resume(sse);
    else sse->kind->ask(sse, RPC_STALE);
}

void sse_finish(struct sse *sse) {
    sse->engine->finish = true;
    resume(sse);
}

void sse_start(struct sse *sse, uint64_t index) {
    struct http_request *request = sse->request;
    struct connection *connection = request->connection;
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, request->old_version ? BLOCK_OLD : BLOCK_LEAST, read_text, sse, response_gone);
    CHECK(response);
    sse->response = true;
    response_header(response, "Content-Type", "text/event-stream");
    response_header(response, "Cache-Control", "no-store");
    response_header(response, "X-Accel-Buffering", "no"); /* makes proxies like nginx pass it on at once */
    response_header_u64(response, "X-Consul-Index", index);
    response_extra(response, request->headers);
    request_answer(request, 200, response, 0);
    connection->stage = CONNECTION_WORK; /* so that no time limit of answers applies */
    MHD_destroy_response(response);
    connection_watch(connection);
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

static void failed(struct sse *sse) {
    bool refused = sse->engine->error == CO_DENIED || sse->engine->error == CO_NOTOKEN;
    if (!sse->response) sse->kind->failed(sse, sse->engine->error);
    else if (refused) sse_finish(sse); /* its token, or its rules, have changed */
    else if (sse->engine->finish) resume(sse);
    else timer_set(sse->engine->worker, &sse->engine->timer, sse->engine->worker->now_ms + AGAIN_MS, ask_again);
}

static void taken(void *taker, struct post *post) {
    struct worker *worker = taker;
    struct sse *sse = CONTAINER_OF(post, struct sse_engine, post)->sse;
    worker->tickets--;
    sse->engine->asking = false;
    if (!sse->request) release(sse);
    else if (sse->engine->error) failed(sse);
    else sse->kind->answered(sse);
}

/* -- beginning and end -------------------------------------------------------------------------------------------- */

static void forget(struct http_request *request) {
    (void)sse_forget(CONTAINER_OF(request->operation, struct sse_engine, operation)->sse);
}

struct http_request *sse_forget(struct sse *sse) {
    struct http_request *request = sse->request;
    request->operation = NULL;
    sse->request = NULL;
    timer_clear(sse->engine->worker, &sse->engine->timer);
    watch_leave(request);
    if (sse->engine->asking) rpc_fetch_cancel(sse->engine->worker->server->env.rpc, &sse->fetch);
    release(sse);
    return request;
}

static void hurry(struct http_request *request) {
    struct sse *sse = CONTAINER_OF(request->operation, struct sse_engine, operation)->sse;
    sse->engine->finish = true;
    if (sse->engine->asking) rpc_fetch_cancel(sse->engine->worker->server->env.rpc, &sse->fetch);
    else resume(sse);
}

bool sse_begin(struct http_request *request, struct sse *sse, const struct sse_kind *kind) {
    if (!http_parks(request)) {
        free(sse);
        return false;
    }
    struct sse_engine *engine = sse->engine = mem_zalloc(sizeof *engine);
    engine->sse = sse;
    engine->operation = (struct operation){forget, hurry};
    engine->post.taken = taken;
    engine->worker = request->worker;
    engine->requester = requester_keep(request->requester);
    sse->kind = kind, sse->request = request;
    request->operation = &engine->operation;
    kind->ask(sse, RPC_DEFAULT);
    connection_watch(request->connection);
    return true;
}
