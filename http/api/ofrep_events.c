/* GET /ofrep/v1/events: a stream (http/sse.h) that tells one caller to evaluate its flags again when they have changed.
 * The id of an event is the ETag of the evaluations that it leads to, so that a client that reconnects with it, to any
 * server, misses no change and gets none twice. A client without an id gets an event at once, because it fetched its
 * flags before it opened the stream, and they may have changed in between. */
#include <ctype.h>
#include <stdio.h>

#include "http/api/ofrep.h"
#include "http/fetched.h"
#include "http/sse.h"

#define QUIET_MS 15000 /* without an event: a comment keeps the connection open */

struct events {
    struct sse sse;
    Pb__RolloutCaller *caller; /* in the request's arena */
    uint64_t index;
    char tag[OFREP_TAG_SIZE]; /* of the evaluations that the client has; "": none */
};

/* -- where it is -------------------------------------------------------------------------------------------------- */

static void parameter(struct buffer *out, const char *name, const char *value) {
    if (!value[0]) return;
    buffer_append_byte(out, memchr(out->data, '?', out->size) ? '&' : '?');
    buffer_append_text(out, name);
    buffer_append_byte(out, '=');
    for (const char *at = value; *at; at++) {
        if (isalnum((unsigned char)*at) || strchr("-._~", *at)) buffer_append_byte(out, *at);
        else buffer_printf(out, "%%%02X", (unsigned char)*at);
    }
}

void ofrep_events_path(struct buffer *out, const Pb__RolloutCaller *caller) {
    buffer_append_text(out, "/ofrep/v1/events");
    parameter(out, "targetingKey", caller->id);
    parameter(out, "node", caller->node), parameter(out, "region", caller->region);
    for (size_t i = 0; i < caller->n_tags; i++) parameter(out, "tag", caller->tags[i]);
}

/* -- the stream --------------------------------------------------------------------------------------------------- */

static void ask(struct sse *sse, enum rpc_freshness freshness) {
    struct events *events = CONTAINER_OF(sse, struct events, sse);
    sse->fetch.freshness = freshness;
    sse->fetch.index = events->index;
    sse->fetch.wait_ms = QUIET_MS;
    sse_ask(sse, &query_rollout_all, &events->caller->base);
}

/* Appends an event when the client's evaluations have changed. */
static void compare(struct events *events, const Pb__RolloutResolutions *all) {
    char tag[OFREP_TAG_SIZE];
    ofrep_tag(all, tag);
    if (strcmp(tag, events->tag) == 0) return;
    buffer_printf(&events->sse.text,
                  "event: message\nid: %s\ndata: {\"type\":\"refetchEvaluation\",\"etag\":\"\\\"%.16s\\\"\"}\n\n", tag,
                  tag + 1);
    memcpy(events->tag, tag, sizeof tag);
}

static void answered(struct sse *sse) {
    struct events *events = CONTAINER_OF(sse, struct events, sse);
    struct query_result result;
    struct arena arena = {0};
    int error = fetched_result(&sse->fetched, &query_rollout_all, &events->caller->base, &arena, &result);
    events->index = sse->fetched.index ? sse->fetched.index : 1;
    if (!error) compare(events, (const Pb__RolloutResolutions *)result.message);
    fetched_free(&sse->fetched);
    arena_free(&arena);
    if (error && sse->response) {
        sse_finish(sse);
    } else if (error) {
        http_reply_read_error(sse_forget(sse), CO_CORRUPT, "what the server answered does not decode");
    } else if (sse->response) {
        bool quiet = !sse->text.size && sse_now_ms(sse) >= sse->sent_ms + QUIET_MS - QUIET_MS / 8;
        if (quiet) buffer_append_text(&sse->text, ":\n\n");
        sse_go_on(sse);
    } else {
        if (!sse->text.size)
            buffer_append_text(&sse->text, ":\n\n"); /* the client has the present ones: a comment begins the stream */
        sse_start(sse, events->index);
    }
}

static void failed(struct sse *sse, int error) { http_reply_read_error(sse_forget(sse), error, NULL); }

static const struct sse_kind kind = {.ask = ask, .answered = answered, .failed = failed};

/* -- the request -------------------------------------------------------------------------------------------------- */

static char *text_parameter(struct http_request *request, const char *name) {
    struct slice value = http_parameter(request, name);
    return (char *)(uintptr_t)(value.data ? value.data : "");
}

void ofrep_get_events(struct http_request *request) {
    Pb__RolloutCaller *caller = arena_alloc(http_arena(request), sizeof *caller);
    struct slice *tags;
    ofrep_cors(request);
    pb__rollout_caller__init(caller);
    caller->id = text_parameter(request, "targetingKey");
    caller->node = text_parameter(request, "node"), caller->region = text_parameter(request, "region");
    if (!caller->region[0]) caller->region = (char *)(uintptr_t)http_env(request)->datacenter;
    size_t count = http_parameters(request, "tag", &tags);
    caller->tags = arena_alloc(http_arena(request), (ROLLOUT_TAGS_MOST + 1) * sizeof *caller->tags);
    for (size_t i = 0; i < count && caller->n_tags < ROLLOUT_TAGS_MOST; i++)
        caller->tags[caller->n_tags++] = (char *)(uintptr_t)tags[i].data;
    if (!caller->id[0] || strlen(caller->id) > OFREP_KEY_MOST) {
        http_reply_text(request, 400, "targetingKey: 1 to %d bytes are wanted", OFREP_KEY_MOST);
        return;
    }
    if (http_method(request) == HTTP_HEAD) {
        http_reply_text(request, 200, "%s", "");
        return;
    }
    struct events *events = mem_zalloc(sizeof *events);
    const char *last = http_request_header(request, "Last-Event-ID");
    events->caller = caller;
    if (last && strlen(last) == OFREP_TAG_SIZE - 1) memcpy(events->tag, last, OFREP_TAG_SIZE);
    (void)sse_begin(request, &events->sse, &kind);
}
