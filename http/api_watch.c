/* GET /v1/watch: a stream of changes as Server-Sent Events, until the client goes or the server stops.
 *
 * A stream asks for what changed (query_stream, by rpc_fetch, on servers and client agents alike), sends what it gets, and
 * when libmicrohttpd has taken all of it asks again from there:
 *
 *     first question --refused: an answer with a status--> over
 *          '--> sending --all taken--> waiting --events, or 10 s without any (a comment)--> sending
 *                                         '--no server answers: asks again a second later
 *
 * So a client that reads slowly holds nothing but the text of one answer; when it is ready for more, the history has what
 * it missed, or it is told of the gap. The worker owns all of it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "http/impl.h"
#include "http/stream_views.h"

#define BLOCK_OLD     4096  /* libmicrohttpd's buffer for a stream without chunks (HTTP/1.0) */
#define BLOCK_LEAST   64    /* with chunks it has another one, which the connection has anyway */
#define PROGRESS_MS   10000 /* without an event: a comment says how far the stream is */
#define AGAIN_MS      1000
#define WAIT_LEAST_MS 100
#define WINDOW_PART   4 /* of the history's window goes by, at most, before a stream looks how far the index is */

struct stream {
    struct operation operation;
    struct post post;
    struct timer timer; /* it asks again */
    struct worker *worker;
    struct http_request *request; /* NULL: it has ended */
    Pb__StreamRequest *question;  /* in the request's arena */
    struct slice cluster_wanted;  /* as its client wrote it; empty: whichever */
    uint64_t cluster;             /* that its position is of */
    Pb__StreamPosition position;
    bool response; /* libmicrohttpd still has it */
    bool asking, finish;
    uint64_t asked_ms, sent_ms; /* when it asked last; when it sent something last */
    uint64_t wait_ms;
    struct buffer text;
    size_t taken; /* of it, by libmicrohttpd */
    struct rpc_fetch fetch;
    int error;
    struct rpc_fetched fetched; /* a copy */
};

static void stream_release(struct stream *stream) {
    if (stream->request || stream->asking || stream->response) return;
    buffer_free(&stream->text);
    fetched_free(&stream->fetched);
    free(stream);
}

/* -- asking ------------------------------------------------------------------------------------------------------- */

/* Loop or another thread. */
static void fetch_done(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct stream *stream = CONTAINER_OF(fetch, struct stream, fetch);
    stream->error = error;
    if (!error) fetched_copy(&stream->fetched, fetched);
    worker_post(stream->worker, &stream->post);
}

static void ask(struct stream *stream, enum rpc_freshness freshness) {
    struct rpc_fetch *fetch = &stream->fetch;
    fetch->type = &query_stream;
    fetch->freshness = freshness;
    fetch->no_cache = true;
    fetch->done = fetch_done;
    fetch->index = stream->response ? stream->position.index - (stream->position.topic != 0) : 0;
    fetch->wait_ms = stream->wait_ms;
    if (stream->response) stream->question->from = &stream->position;
    stream->asking = true;
    stream->asked_ms = stream->worker->now_ms;
    stream->worker->tickets++;
    rpc_fetch(stream->worker->server->env.rpc, fetch, &stream->question->base);
}

static void ask_again(struct worker *worker, struct timer *timer) {
    struct stream *stream = CONTAINER_OF(timer, struct stream, timer);
    (void)worker;
    ask(stream, RPC_STALE);
}

/* While nothing of it changes a stream asks now and then all the same, so that its position is not left behind by the
 * history: the faster the index grows, the sooner. */
static uint64_t next_wait_ms(const struct stream *stream, const Pb__StreamResult *result) {
    uint64_t passed = result->index > stream->position.index ? result->index - stream->position.index : 0;
    uint64_t took_ms = stream->worker->now_ms - stream->asked_ms + 1, part = result->window / WINDOW_PART;
    uint64_t wait_ms = passed ? part * took_ms / passed : PROGRESS_MS;
    return wait_ms < WAIT_LEAST_MS ? WAIT_LEAST_MS : wait_ms > PROGRESS_MS ? PROGRESS_MS : wait_ms;
}

/* -- sending ------------------------------------------------------------------------------------------------------ */

static void resume(struct stream *stream) {
    struct http_request *request = stream->request;
    if (!request || !request->suspended) return;
    request->suspended = false;
    MHD_resume_connection(request->connection->mhd);
    shard_wake(request->connection->shard);
}

static ssize_t read_text(void *data, uint64_t at, char *out, size_t room) {
    struct stream *stream = data;
    struct http_request *request = stream->request;
    (void)at;
    if (!request) return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t left = stream->text.size - stream->taken, size = left < room ? left : room;
    if (size) {
        memcpy(out, stream->text.data + stream->taken, size);
        stream->taken += size;
        stream->sent_ms = stream->worker->now_ms;
        return (ssize_t)size;
    }
    if (stream->finish) return MHD_CONTENT_READER_END_OF_STREAM;
    buffer_free(&stream->text);
    stream->taken = 0;
    if (!stream->asking && stream->timer.place == 0) ask(stream, RPC_STALE);
    request->suspended = true;
    MHD_suspend_connection(request->connection->mhd);
    return 0;
}

static void response_gone(void *data) {
    struct stream *stream = data;
    stream->response = false;
    stream_release(stream);
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

static void go_on(struct stream *stream, const Pb__StreamResult *result) {
    stream->wait_ms = next_wait_ms(stream, result);
    stream->position = *result->position;
    bool quiet = stream->text.size == 0 && stream->worker->now_ms >= stream->sent_ms + PROGRESS_MS - PROGRESS_MS / 8;
    if (quiet) stream_progress_append(&stream->text, &stream->position);
    if (stream->text.size) resume(stream);
    else ask(stream, RPC_STALE);
}

static void start(struct stream *stream, const Pb__StreamResult *result) {
    struct http_request *request = stream->request;
    struct connection *connection = request->connection;
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, request->old_version ? BLOCK_OLD : BLOCK_LEAST, read_text, stream, response_gone);
    CHECK(response);
    stream->response = true;
    stream->position = *result->position;
    stream->wait_ms = PROGRESS_MS;
    response_header(response, "Content-Type", "text/event-stream");
    response_header(response, "Cache-Control", "no-store");
    response_header(response, "X-Accel-Buffering", "no"); /* proxies of the nginx family pass it on at once */
    response_header_u64(response, "X-Consul-Index", result->index);
    stream->cluster = result->cluster;
    request_answer(request, 200, response, 0);
    connection->stage = CONNECTION_WORK; /* it may take as long as it likes */
    MHD_destroy_response(response);
    connection_watch(connection);
}

static void forget(struct http_request *request) {
    struct stream *stream = CONTAINER_OF(request->operation, struct stream, operation);
    request->operation = NULL;
    stream->request = NULL;
    timer_clear(stream->worker, &stream->timer);
    watch_leave(stream->worker);
    if (stream->asking) rpc_fetch_cancel(stream->worker->server->env.rpc, &stream->fetch);
    stream_release(stream);
}

/* The cluster's id as a parameter: as the first comment says it. */
static bool other_cluster(const struct stream *stream, const Pb__StreamResult *result) {
    char id[24];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)result->cluster);
    return stream->cluster_wanted.size > 0 && !slice_is(stream->cluster_wanted, id);
}

/* Instead of a stream, an answer: why there is none. */
static bool refused(struct stream *stream, const Pb__StreamResult *result) {
    struct http_request *request = stream->request;
    const Pb__StreamPosition *from = stream->question->from;
    unsigned long long index = result->index, wanted = from ? from->index : 0;
    bool future = wanted > index, other = other_cluster(stream, result);
    if (!result->off && !future && !result->gap && !other) return false;
    forget(request);
    if (other)
        http_reply_text(request, 409,
                        "this is another cluster, %016llx: its indexes mean nothing to that one's clients",
                        (unsigned long long)result->cluster);
    else if (result->off)
        http_reply_text(request, 400, "no history is kept here: the setting coord.history_changes is 0");
    else if (future) http_reply_text(request, 400, "from: %llu is not there yet: the index is %llu", wanted, index);
    else
        http_reply_text(
            request, 410,
            "from: %llu is no longer kept, and something has changed since: read anew, and follow from %llu", wanted,
            index);
    return true;
}

static void answered(struct stream *stream) {
    struct query_result result;
    struct arena arena = {0};
    int error = fetched_result(&stream->fetched, &query_stream, &stream->question->base, &arena, &result);
    const Pb__StreamResult *news = error || !result.found ? NULL : (const Pb__StreamResult *)result.message;
    /* In a stream that runs: an agent's servers may be others now; and where no history is kept, changes pass unseen. */
    bool same = news && (!stream->response || (news->cluster == stream->cluster && !news->off));
    if (same && !stream->response) /* what a client has that gets no event: where it began */
        stream_begin_append(&stream->text, news->cluster,
                            stream->question->from ? stream->question->from : news->position);
    bool good = same && stream_events_append(&stream->text, news, stream->question->delta, &arena);
    fetched_free(&stream->fetched);
    if (!good && stream->response) {
        stream->finish = true; /* the client comes back, with the position that it has */
        resume(stream);
    } else if (!good) {
        struct http_request *request = stream->request;
        forget(request);
        if (error) request_fail_read(request, CO_CORRUPT, "what the server answered does not decode");
        else http_reply_text(request, 400, "the server does not know such subscriptions");
    } else if (stream->response) {
        go_on(stream, news);
    } else if (!refused(stream, news)) {
        start(stream, news);
    }
    arena_free(&arena);
}

static void failed(struct stream *stream) {
    struct http_request *request = stream->request;
    if (!stream->response) {
        int error = stream->error;
        forget(request);
        request_fail_read(request, error, NULL);
    } else if (stream->finish) {
        resume(stream);
    } else {
        timer_set(stream->worker, &stream->timer, stream->worker->now_ms + AGAIN_MS, ask_again);
    }
}

static void taken(void *taker, struct post *post) {
    struct worker *worker = taker;
    struct stream *stream = CONTAINER_OF(post, struct stream, post);
    worker->tickets--;
    stream->asking = false;
    if (!stream->request) stream_release(stream);
    else if (stream->error) failed(stream);
    else answered(stream);
}

/* -- the request -------------------------------------------------------------------------------------------------- */

static void stream_hurry(struct http_request *request) {
    struct stream *stream = CONTAINER_OF(request->operation, struct stream, operation);
    stream->finish = true;
    if (stream->asking) rpc_fetch_cancel(stream->worker->server->env.rpc, &stream->fetch);
    else resume(stream);
}

static bool subscriptions_read(struct http_request *request, Pb__StreamRequest *question) {
    struct arena *arena = http_arena(request);
    question->subscriptions = arena_alloc(arena, request->parameter_count * sizeof(Pb__StreamSubscription *));
    for (size_t kind = 0; kind < STREAM_KINDS; kind++) {
        struct slice *names;
        size_t count = http_parameters(request, stream_kinds[kind].parameter, &names);
        if (question->n_subscriptions + count > STREAM_SUBSCRIPTIONS_MAX) {
            http_reply_text(request, 400, "too many subscriptions in one stream: at most %d", STREAM_SUBSCRIPTIONS_MAX);
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            Pb__StreamSubscription *subscription = arena_alloc(arena, sizeof *subscription);
            pb__stream_subscription__init(subscription);
            subscription->kind = (Pb__StreamKind)kind;
            subscription->name = (ProtobufCBinaryData){names[i].size, (uint8_t *)(uintptr_t)names[i].data};
            question->subscriptions[question->n_subscriptions++] = subscription;
        }
    }
    if (question->n_subscriptions) return true;
    http_reply_text(request, 400, "nothing to follow: wanted: one or more of key, prefix, service, node, lock, quota");
    return false;
}

/* Who comes back says in a header what it has; the address is still the first one. */
static bool from_read(struct http_request *request, Pb__StreamRequest *question) {
    const char *last = MHD_lookup_connection_value(request->connection->mhd, MHD_HEADER_KIND, "Last-Event-ID");
    bool by_header = last && last[0];
    struct slice text = by_header ? slice_text(last) : http_parameter(request, "from");
    if (!by_header && !http_has(request, "from")) return true;
    question->from = arena_alloc(http_arena(request), sizeof *question->from);
    if (stream_position_parse(text, question->from)) return true;
    http_reply_text(request, 400, "%s: wanted: an index above 0, or the id of an event",
                    by_header ? "Last-Event-ID" : "from");
    return false;
}

static void get_watch(struct http_request *request) {
    Pb__StreamRequest *question = arena_alloc(http_arena(request), sizeof *question);
    pb__stream_request__init(question);
    if (!subscriptions_read(request, question) || !from_read(request, question)) return;
    question->delta = http_has(request, "delta");
    if (request->method == HTTP_HEAD) {
        http_reply_text(request, 200, "%s", "");
        return;
    }
    if (!watch_enter(request)) return;
    struct stream *stream = mem_zalloc(sizeof *stream);
    stream->operation = (struct operation){forget, stream_hurry};
    stream->post.taken = taken;
    stream->worker = request->worker, stream->request = request, stream->question = question;
    stream->cluster_wanted = http_parameter(request, "cluster");
    request->operation = &stream->operation;
    ask(stream, RPC_DEFAULT);
    connection_watch(request->connection);
}

const struct http_route http_routes_watch[] = {
    {HTTP_GET, "/v1/watch", get_watch, "key:read",
     HTTP_PARAMS(
         {"key", HTTP_TEXT, .repeats = true, .help = "changes of this key", .least = 1, .most = 8192},
         {"prefix", HTTP_TEXT, .repeats = true, .help = "of all keys that begin with this", .most = 8192},
         {"service", HTTP_TEXT, .repeats = true, .help = "of this service's instances", .least = 1, .most = 512},
         {"node", HTTP_TEXT, .repeats = true, .help = "of this node and what is on it", .least = 1, .most = 512},
         {"lock", HTTP_TEXT, .repeats = true, .help = "of this lock", .least = 1, .most = 256},
         {"quota", HTTP_TEXT, .repeats = true, .help = "of this budget", .least = 1, .most = 256},
         {"from", HTTP_TEXT, .help = "changes after this index, or after the event of this id; else: from now on"},
         {"cluster", HTTP_TEXT,
          .help = "only if the cluster has this id: the one that the first comment of a stream says; else 409"},
         {"delta", HTTP_FLAG, .help = "of services only the instances that changed"}, HTTP_DC),
     "A stream of Server-Sent Events: each change once, in order; it goes on at any server after the header "
     "Last-Event-ID (docs/streams.md)",
     HTTP_OWN, .no_example = "it goes on until the client hangs up"},
    {0},
};
