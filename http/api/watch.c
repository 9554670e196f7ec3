/* GET /v1/watch: a stream of changes as Server-Sent Events (http/sse.h).
 *
 * The stream queries the changes (query_stream) after its position, each time when the client is ready for more. The
 * history has the changes that the client missed; when it no longer has them, the client is told of the gap. */
#include <stdio.h>

#include "base/text.h"
#include "http/api/stream_views.h"
#include "http/api/topics.h"
#include "http/fetched.h"
#include "http/sse.h"

#define PROGRESS_MS   10000 /* without an event: a comment tells the position */
#define WAIT_LEAST_MS 100
#define WINDOW_PART   4 /* a stream queries the index before this part of the history's window has passed */

struct stream {
    struct sse sse;
    Pb__StreamRequest *question; /* in the request's arena */
    struct slice cluster_wanted; /* as the client wrote it; empty: any */
    uint64_t cluster;            /* to which the position belongs */
    Pb__StreamPosition position;
    uint64_t wait_ms;
};
static struct stream *stream_of(struct sse *sse) { return CONTAINER_OF(sse, struct stream, sse); }

/* -- asking ------------------------------------------------------------------------------------------------------- */

static void ask(struct sse *sse, enum rpc_freshness freshness) {
    struct stream *stream = stream_of(sse);
    sse->fetch.freshness = freshness;
    sse->fetch.index = sse->response ? stream->position.index - (stream->position.topic != 0) : 0;
    sse->fetch.wait_ms = stream->wait_ms;
    if (sse->response) stream->question->from = &stream->position;
    sse_ask(sse, &query_stream, &stream->question->base);
}

/* A stream without changes queries from time to time, so that the history still has its position: the sooner, the
 * faster the index grows. */
static uint64_t next_wait_ms(const struct stream *stream, const Pb__StreamResult *result) {
    uint64_t passed = result->index > stream->position.index ? result->index - stream->position.index : 0;
    uint64_t took_ms = sse_now_ms(&stream->sse) - stream->sse.asked_ms + 1, part = result->window / WINDOW_PART;
    uint64_t wait_ms = passed ? part * took_ms / passed : PROGRESS_MS;
    return wait_ms < WAIT_LEAST_MS ? WAIT_LEAST_MS : wait_ms > PROGRESS_MS ? PROGRESS_MS : wait_ms;
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

static void go_on(struct stream *stream, const Pb__StreamResult *result) {
    struct sse *sse = &stream->sse;
    stream->wait_ms = next_wait_ms(stream, result);
    stream->position = *result->position;
    bool quiet = sse->text.size == 0 && sse_now_ms(sse) >= sse->sent_ms + PROGRESS_MS - PROGRESS_MS / 8;
    if (quiet) stream_progress_append(&sse->text, &stream->position);
    sse_go_on(sse);
}

static void start(struct stream *stream, const Pb__StreamResult *result) {
    stream->position = *result->position;
    stream->wait_ms = PROGRESS_MS;
    stream->cluster = result->cluster;
    sse_start(&stream->sse, result->index);
}

/* The parameter has the cluster's id as the first comment of a stream writes it. */
static bool other_cluster(const struct stream *stream, const Pb__StreamResult *result) {
    char id[24];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)result->cluster);
    return stream->cluster_wanted.size > 0 && !slice_is(stream->cluster_wanted, id);
}

/* Replies the reason when there can be no stream. */
static bool refused(struct stream *stream, const Pb__StreamResult *result) {
    const Pb__StreamPosition *from = stream->question->from;
    unsigned long long index = result->index, wanted = from ? from->index : 0;
    bool future = wanted > index, other = other_cluster(stream, result);
    if (!result->off && !future && !result->gap && !other) return false;
    struct http_request *request = sse_forget(&stream->sse);
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

static void answered(struct sse *sse) {
    struct stream *stream = stream_of(sse);
    struct query_result result;
    struct arena arena = {0};
    int error = fetched_result(&sse->fetched, &query_stream, &stream->question->base, &arena, &result);
    const Pb__StreamResult *news = error || !result.found ? NULL : (const Pb__StreamResult *)result.message;
    /* For a running stream: the agent may have servers of another cluster now; and without a history changes would go
     * unnoticed. */
    bool same = news && (!sse->response || (news->cluster == stream->cluster && !news->off));
    if (same && !sse->response) /* a client without any event reconnects with this position */
        stream_begin_append(&sse->text, news->cluster,
                            stream->question->from ? stream->question->from : news->position);
    bool good = same && stream_events_append(&sse->text, news, stream->question->delta, &arena);
    fetched_free(&sse->fetched);
    if (!good && sse->response) {
        sse_finish(sse);
    } else if (!good) {
        struct http_request *request = sse_forget(sse);
        if (error) http_reply_read_error(request, CO_CORRUPT, "what the server answered does not decode");
        else http_reply_text(request, 400, "the server does not know such subscriptions");
    } else if (sse->response) {
        go_on(stream, news);
    } else if (!refused(stream, news)) {
        start(stream, news);
    }
    arena_free(&arena);
}

static void failed(struct sse *sse, int error) { http_reply_read_error(sse_forget(sse), error, NULL); }

static const struct sse_kind changes = {.ask = ask, .answered = answered, .failed = failed};

/* -- the request -------------------------------------------------------------------------------------------------- */

static bool subscriptions_read(struct http_request *request, Pb__StreamRequest *question) {
    struct arena *arena = http_arena(request);
    question->subscriptions = arena_alloc(arena, STREAM_SUBSCRIPTIONS_MAX * sizeof(Pb__StreamSubscription *));
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

/* A client that reconnects names its position in a header; its URL still has the first position. */
static bool from_read(struct http_request *request, Pb__StreamRequest *question) {
    const char *last = http_request_header(request, "Last-Event-ID");
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
    if (http_method(request) == HTTP_HEAD) {
        http_reply_text(request, 200, "%s", "");
        return;
    }
    struct stream *stream = mem_zalloc(sizeof *stream);
    stream->question = question;
    stream->cluster_wanted = http_parameter(request, "cluster");
    (void)sse_begin(request, &stream->sse, &changes);
}

const struct http_route http_routes_watch[] = {
    {HTTP_GET, "/v1/watch", get_watch, "none: each event is judged by itself",
     HTTP_PARAMS(
         {"key", HTTP_TEXT, .repeats = true, .help = "changes of this key", .least = 1, .most = 8192},
         {"prefix", HTTP_TEXT, .repeats = true, .help = "of all keys that begin with this", .most = 8192},
         {"service", HTTP_TEXT, .repeats = true, .help = "of this service's instances", .least = 1, .most = 512},
         {"node", HTTP_TEXT, .repeats = true, .help = "of this node, its services and its checks", .least = 1,
          .most = 512},
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
