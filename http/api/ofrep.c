/* /ofrep/v1: OpenFeature's remote evaluation protocol 0.3. A flag is a rollout, its variants are versions, its value is
 * the document; the targeting key is the caller's id. The members node, region and tags of the context tell where the
 * caller is, as the parameters of /v1/rollout do.
 *
 * Browsers send requests from pages of other origins, and these paths answer them (CORS). They disclose only data that
 * every program that reaches the API may read. */
#include <stdio.h>

#include "base/hash.h"
#include "http/api/ofrep.h"
#include "http/api/rollout_views.h"
#include "http/api/topics.h"

void ofrep_cors(struct http_request *request) {
    http_header(request, "Access-Control-Allow-Origin", "*");
    http_header(request, "Access-Control-Expose-Headers", "ETag");
}

/* -- failures ----------------------------------------------------------------------------------------------------- */

/* Replies an error. `key`: of one flag; NULL: of all. */
static void fail(struct http_request *request, int status, const char *key, const char *code, const char *details) {
    struct json_out *json = http_out(request);
    json_object(json);
    if (key) json_key(json, "key"), json_string(json, key);
    if (code) json_key(json, "errorCode"), json_string(json, code);
    json_key(json, "errorDetails"), json_string(json, details);
    json_object_end(json);
    http_reply_json(request, status);
}

static const char *key_of(const struct http_request *request) {
    struct slice key = http_path_value(request, "key");
    return key.size ? key.data : NULL;
}

/* -- the context -------------------------------------------------------------------------------------------------- */

static char *member(struct json_object *context, const char *name) {
    struct json_object *value = NULL;
    bool text = json_object_object_get_ex(context, name, &value) && json_object_is_type(value, json_type_string);
    return text ? (char *)(uintptr_t)json_object_get_string(value) : (char *)"";
}

static void tags_take(struct http_request *request, Pb__RolloutCaller *caller, struct json_object *context) {
    struct json_object *tags = NULL;
    size_t count = json_object_object_get_ex(context, "tags", &tags) && json_object_is_type(tags, json_type_array)
                       ? json_object_array_length(tags)
                       : 0;
    caller->tags = arena_alloc(http_arena(request), (ROLLOUT_TAGS_MOST + 1) * sizeof *caller->tags);
    for (size_t i = 0; i < count && caller->n_tags < ROLLOUT_TAGS_MOST; i++) {
        struct json_object *tag = json_object_array_get_idx(tags, i);
        if (json_object_is_type(tag, json_type_string))
            caller->tags[caller->n_tags++] = (char *)(uintptr_t)json_object_get_string(tag);
    }
}

/* NULL: it has replied. The texts belong to the request's JSON. */
static Pb__RolloutCaller *caller_of(struct http_request *request) {
    const char *key = key_of(request);
    struct fault fault = {0};
    struct json_object *body = http_json_any(request, &fault);
    if (fault.code) {
        fail(request, 400, key, "PARSE_ERROR", fault.text);
        return NULL;
    }
    struct json_object *context = NULL, *targeting = NULL;
    bool object = json_object_is_type(body, json_type_object) && json_object_object_get_ex(body, "context", &context) &&
                  json_object_is_type(context, json_type_object);
    if (!object) {
        fail(request, 400, key, "INVALID_CONTEXT", "an object \"context\" is wanted");
        return NULL;
    }
    (void)json_object_object_get_ex(context, "targetingKey", &targeting);
    Pb__RolloutCaller *caller = arena_alloc(http_arena(request), sizeof *caller);
    pb__rollout_caller__init(caller);
    caller->id = member(context, "targetingKey");
    if (!caller->id[0]) {
        bool other = targeting && !json_object_is_type(targeting, json_type_string);
        fail(request, 400, key, other ? "INVALID_CONTEXT" : "TARGETING_KEY_MISSING",
             other ? "targetingKey: text is wanted" : "the context has no targetingKey");
        return NULL;
    }
    if (strlen(caller->id) > OFREP_KEY_MOST) {
        fail(request, 400, key, "INVALID_CONTEXT", "targetingKey: at most 1024 bytes");
        return NULL;
    }
    caller->node = member(context, "node"), caller->region = member(context, "region");
    if (!caller->region[0]) caller->region = (char *)(uintptr_t)http_env(request)->datacenter;
    tags_take(request, caller, context);
    return caller;
}

/* -- one flag ----------------------------------------------------------------------------------------------------- */

static void evaluated(struct http_request *request, int error, const struct query_result *result) {
    const char *key = key_of(request);
    if (error) {
        fail(request, error == CO_DENIED || error == CO_NOTOKEN ? 403 : 500, NULL, NULL,
             http_denial(request)[0] ? http_denial(request) : co_strerror(error));
    } else if (!result->found) {
        fail(request, 404, key, "FLAG_NOT_FOUND", "there is no such rollout, or it has no current version");
    } else {
        const Pb__RolloutResolution *resolution = (const Pb__RolloutResolution *)result->message;
        bool fails = resolution->missing ||
                     document_form(slice_make(resolution->document.data, resolution->document.len)) == DOCUMENT_BASE64;
        ofrep_evaluation_write(http_out(request), resolution);
        http_reply_json(request, fails ? 400 : 200);
    }
}

static void post_flag(struct http_request *request) {
    ofrep_cors(request);
    Pb__RolloutCaller *caller = caller_of(request);
    if (!caller) return;
    caller->name = (char *)(uintptr_t)http_path_value(request, "key").data;
    http_read_once(request, &query_rollout, &caller->base, RPC_DEFAULT, evaluated);
}

/* -- all of them -------------------------------------------------------------------------------------------------- */

/* Is the tag among those of If-None-Match? */
static bool is_known(const struct http_request *request, const char *tag) {
    const char *known = http_request_header(request, "If-None-Match");
    return known && (strcmp(known, "*") == 0 || strstr(known, tag));
}

/* The tag depends on values and variants, not on reasons: a stage of one percent changes the reason for every caller,
 * and those that keep their version would fetch the same values again. */
void ofrep_tag(const Pb__RolloutResolutions *all, char tag[OFREP_TAG_SIZE]) {
    uint64_t sum = 0;
    for (size_t i = 0; i < all->n_rollouts; i++) {
        const Pb__RolloutResolution *one = all->rollouts[i];
        sum = hash64_seed(one->name, strlen(one->name), sum);
        sum = hash64_seed(one->version, strlen(one->version), sum);
        sum = hash64_seed(one->document.data, one->document.len, sum + one->missing);
    }
    (void)snprintf(tag, OFREP_TAG_SIZE, "\"%016llx\"", (unsigned long long)sum);
}

static void streams_write(struct json_out *json, const Pb__RolloutCaller *caller) {
    struct buffer path = {0};
    ofrep_events_path(&path, caller);
    json_key(json, "eventStreams"), json_array(json), json_object(json);
    json_key(json, "type"), json_string(json, "sse");
    json_key(json, "endpoint"), json_object(json);
    json_key(json, "requestUri"), json_slice(json, buffer_slice(&path));
    json_object_end(json), json_object_end(json), json_array_end(json);
    buffer_free(&path);
}

static void all_evaluated(struct http_request *request, int error, const struct query_result *result) {
    if (error) {
        fail(request, error == CO_DENIED || error == CO_NOTOKEN ? 403 : 500, NULL, NULL,
             http_denial(request)[0] ? http_denial(request) : co_strerror(error));
        return;
    }
    const Pb__RolloutResolutions *all = (const Pb__RolloutResolutions *)result->message;
    http_tell_hidden(request);
    if (all->too_much) {
        fail(request, 400, NULL, "GENERAL", "all documents together have more than 16 MiB: ask for single flags");
        return;
    }
    struct json_out *json = http_out(request);
    char tag[OFREP_TAG_SIZE];
    json_object(json);
    json_key(json, "flags"), json_array(json);
    for (size_t i = 0; i < all->n_rollouts; i++) ofrep_evaluation_write(json, all->rollouts[i]);
    json_array_end(json);
    ofrep_tag(all, tag);
    streams_write(json, http_context(request));
    json_object_end(json);
    http_header(request, "ETag", tag);
    if (!is_known(request, tag)) {
        http_reply_json(request, 200);
        return;
    }
    (void)http_raw(request);
    http_reply_raw(request, 304, NULL);
}

static void post_flags(struct http_request *request) {
    ofrep_cors(request);
    Pb__RolloutCaller *caller = caller_of(request);
    if (!caller) return;
    http_set_context(request, caller);
    http_read_once(request, &query_rollout_all, &caller->base, RPC_DEFAULT, all_evaluated);
}

/* -- browsers ------------------------------------------------------------------------------------------------------ */

static void allow(struct http_request *request, const char *methods, const char *headers) {
    ofrep_cors(request);
    http_header(request, "Access-Control-Allow-Methods", methods);
    http_header(request, "Access-Control-Allow-Headers", headers);
    http_header(request, "Access-Control-Max-Age", "86400");
    (void)http_raw(request);
    http_reply_raw(request, 204, NULL);
}

static void preflight(struct http_request *request) {
    allow(request, "POST", "Content-Type, If-None-Match, Authorization, X-API-Key");
}

/* EventSource needs no preflight; a client that sends headers of its own does. */
static void preflight_events(struct http_request *request) {
    allow(request, "GET", "Last-Event-ID, Cache-Control, Authorization, X-API-Key");
}

/* Unknown members and headers are ignored, as the protocol demands. */
#define KEY \
    { ":key", HTTP_TEXT, .help = "the rollout's name" }
#define HINTS                                                                                            \
    {"flagConfigEtag", HTTP_TEXT, .help = "of the event that the request follows; not needed"}, {        \
        "flagConfigLastModified", HTTP_TEXT, .help = "of the event that the request follows; not needed" \
    }
const struct http_route http_routes_ofrep[] = {
    {HTTP_POST, "/ofrep/v1/evaluate/flags/:key", post_flag, "rollout:read", HTTP_PARAMS(KEY, HTTP_DC),
     "OpenFeature's remote evaluation protocol 0.3: one flag, which is the rollout of this name (docs/rollouts.md)", 0,
     .example = {"/ofrep/v1/evaluate/flags/web", .body = "{\"context\":{\"targetingKey\":\"web-17\"}}", .status = 200}},
    {HTTP_POST, "/ofrep/v1/evaluate/flags", post_flags, "rollout:read rows", HTTP_PARAMS(HTTP_DC, HINTS),
     "All flags; with the ETag of an earlier answer as If-None-Match 304, when they are the same", 0,
     .example = {"/ofrep/v1/evaluate/flags", .body = "{\"context\":{\"targetingKey\":\"web-17\"}}", .status = 200}},
    {HTTP_GET, "/ofrep/v1/events", ofrep_get_events, "rollout:read rows",
     HTTP_PARAMS({"targetingKey", HTTP_TEXT, .help = "the caller's id"},
                 {"node", HTTP_TEXT, .help = "where the caller runs"}, {"region", HTTP_TEXT, .help = "where it is"},
                 {"tag", HTTP_TEXT, .repeats = true, .help = "that it has"}, HTTP_DC),
     "A stream of Server-Sent Events: each says that this caller's flags have changed. The bulk answer names it", 0,
     .no_example = "it goes on until the client hangs up"},
    {HTTP_OPTIONS, "/ofrep/v1/evaluate/flags/:key", preflight, "none: it shows nothing", HTTP_PARAMS(KEY),
     "The preflight of a browser (CORS) for one flag", HTTP_LOCAL, .no_example = "its answer is a few headers"},
    {HTTP_OPTIONS, "/ofrep/v1/evaluate/flags", preflight, "none: it shows nothing", NULL,
     "The preflight of a browser (CORS) for all flags", HTTP_LOCAL, .no_example = "its answer is a few headers"},
    {HTTP_OPTIONS, "/ofrep/v1/events", preflight_events, "none: it shows nothing", NULL,
     "The preflight of a browser (CORS) for the stream", HTTP_LOCAL, .no_example = "its answer is a few headers"},
    {0},
};
