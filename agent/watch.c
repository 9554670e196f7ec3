#include "agent/watch.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/memory.h"
#include "base/text.h"

static const char *const types[] = {"key", "keyprefix", "services", "nodes", "service", "checks", "event"};

void watch_free(struct watch *watch) {
    if (!watch) return;
    for (size_t i = 0; watch->argv && watch->argv[i]; i++) free(watch->argv[i]);
    for (size_t i = 0; watch->headers && watch->headers[i]; i++) free(watch->headers[i]);
    free(watch->argv), free(watch->headers), free(watch->what), free(watch->path), free(watch->token),
        free(watch->datacenter);
    free(watch->url), free(watch->method), free(watch);
}

/* -- the question ------------------------------------------------------------------------------------------------- */
struct asked {
    const char *type, *key, *prefix, *service, *state, *name;
    bool passing_only;
    struct json_object *tag; /* a string or a list */
};

static void append_tags(struct buffer *path, struct json_object *tag, struct fault *fault) {
    size_t count = json_object_is_type(tag, json_type_array) ? json_object_array_length(tag) : tag != NULL;
    for (size_t i = 0; i < count; i++) {
        struct json_object *one = json_object_is_type(tag, json_type_array) ? json_object_array_get_idx(tag, i) : tag;
        if (json_object_is_type(one, json_type_string)) client_parameter(path, "tag", json_object_get_string(one));
        else fault_set(fault, CO_INVALID, "tag: a string or a list of strings is wanted");
    }
}

static void append_path(struct buffer *path, enum watch_type type, const struct asked *asked, struct fault *fault) {
    switch (type) {
        case WATCH_KEY:
            if (!asked->key[0]) fault_set(fault, CO_INVALID, "Must specify a single key to watch");
            buffer_append_text(path, "/v1/kv/"), client_encode(path, asked->key, true);
            break;
        case WATCH_KEYPREFIX:
            if (!asked->prefix[0]) fault_set(fault, CO_INVALID, "Must specify a single prefix to watch");
            buffer_append_text(path, "/v1/kv/"), client_encode(path, asked->prefix, true),
                client_parameter(path, "recurse", NULL);
            break;
        case WATCH_SERVICES: buffer_append_text(path, "/v1/catalog/services"); break;
        case WATCH_NODES: buffer_append_text(path, "/v1/catalog/nodes"); break;
        case WATCH_SERVICE:
            if (!asked->service[0]) fault_set(fault, CO_INVALID, "Must specify a single service to watch");
            buffer_append_text(path, "/v1/health/service/"), client_encode(path, asked->service, false);
            if (asked->passing_only) client_parameter(path, "passing", NULL);
            append_tags(path, asked->tag, fault);
            break;
        case WATCH_CHECKS:
            if (asked->service[0] && asked->state[0]) fault_set(fault, CO_INVALID, "Cannot specify service and state");
            buffer_append_text(path, asked->service[0] ? "/v1/health/checks/" : "/v1/health/state/");
            client_encode(path, asked->service[0] ? asked->service : asked->state[0] ? asked->state : "any", false);
            break;
        case WATCH_EVENT:
            buffer_append_text(path, "/v1/event/list");
            if (asked->name[0]) client_parameter(path, "name", asked->name);
            break;
    }
}

static void parse_question(struct watch *watch, struct json_object *json, struct fault *fault) {
    struct asked asked = {.type = "", .key = "", .prefix = "", .service = "", .state = "", .name = ""};
    struct buffer path = {0};
    size_t type = 0;
    json_get_string(json, "type", &asked.type, fault), json_get_string(json, "key", &asked.key, fault);
    json_get_string(json, "prefix", &asked.prefix, fault), json_get_string(json, "service", &asked.service, fault);
    json_get_string(json, "state", &asked.state, fault), json_get_string(json, "name", &asked.name, fault);
    json_get_bool(json, "passingonly", &asked.passing_only, fault);
    asked.tag = json_get(json, "tag");
    while (type < ARRAY_COUNT(types) && strcmp(types[type], asked.type) != 0) type++;
    if (!asked.type[0]) fault_set(fault, CO_INVALID, "Watch type must be specified");
    else if (type == ARRAY_COUNT(types)) fault_set(fault, CO_INVALID, "Unsupported watch type: %.60s", asked.type);
    if (fault->code != CO_OK) return;
    watch->type = (enum watch_type)type;
    append_path(&path, watch->type, &asked, fault);
    buffer_append_byte(&path, '\0');
    watch->path = mem_strdup(path.data);
    buffer_reset(&path);
    const char *of = asked.key[0]       ? asked.key
                     : asked.prefix[0]  ? asked.prefix
                     : asked.service[0] ? asked.service
                                        : asked.name;
    buffer_printf(&path, "%s%s%.100s", asked.type, of[0] ? " " : "", of);
    buffer_append_byte(&path, '\0');
    watch->what = mem_strdup(path.data);
    buffer_free(&path);
}

/* -- the handler -------------------------------------------------------------------------------------------------- */
static char **texts_new(size_t count) { return mem_zalloc((count + 1) * sizeof(char *)); }

static void parse_args(struct watch *watch, struct json_object *args, struct fault *fault) {
    size_t count = json_object_array_length(args);
    if (count == 0) fault_set(fault, CO_INVALID, "args: it is empty");
    watch->argv = texts_new(count);
    for (size_t i = 0; i < count && fault->code == CO_OK; i++) {
        struct json_object *one = json_object_array_get_idx(args, i);
        if (json_object_is_type(one, json_type_string)) watch->argv[i] = mem_strdup(json_object_get_string(one));
        else fault_set(fault, CO_INVALID, "args: a list of strings is wanted");
    }
}

static void parse_shell(struct watch *watch, const char *line) {
    const char *shell = getenv("SHELL");
    watch->argv = texts_new(3);
    watch->argv[0] = mem_strdup(shell && shell[0] ? shell : "/bin/sh"), watch->argv[1] = mem_strdup("-c"),
    watch->argv[2] = mem_strdup(line);
}

static void parse_headers(struct watch *watch, struct json_object *headers, struct fault *fault) {
    size_t count = 0;
    json_each(headers, name, values) {
        (void)name;
        count += json_object_is_type(values, json_type_array) ? json_object_array_length(values) : 1;
    }
    watch->headers = texts_new(count);
    count = 0;
    json_each(headers, key, list) {
        for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++) {
            struct buffer line = {0};
            buffer_printf(&line, "%s: %s", key, json_object_get_string(json_object_array_get_idx(list, i)));
            if (memchr(line.data, '\r', line.size) || memchr(line.data, '\n', line.size))
                fault_set(fault, CO_INVALID, "http_handler_config.header: \"%.60s\" has a line break", key);
            buffer_append_byte(&line, '\0');
            watch->headers[count++] = line.data;
        }
        if (!json_object_is_type(list, json_type_array))
            fault_set(fault, CO_INVALID, "http_handler_config.header: \"%.60s\": a list of strings is wanted", key);
    }
}

static void parse_http(struct watch *watch, struct json_object *json, struct fault *fault) {
    static const char *const known[] = {"path", "method", "timeout", "header", "tls_skip_verify", NULL};
    const char *url = "", *method = "POST";
    watch->timeout_ns = 10000000000;
    json_only_known(json, known, fault);
    json_get_string(json, "path", &url, fault), json_get_string(json, "method", &method, fault);
    if (json_object_is_type(json_get(json, "timeout"), json_type_int))
        fault_set(fault, CO_INVALID,
                  "http_handler_config.timeout: a duration with its unit like \"10s\" is wanted, not a number");
    json_get_duration(json, "timeout", &watch->timeout_ns, fault);
    json_get_bool(json, "tls_skip_verify", &watch->tls_skip_verify, fault);
    struct json_object *headers = json_get_object(json, "header", fault);
    if (headers) parse_headers(watch, headers, fault);
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        fault_set(fault, CO_INVALID,
                  "Requires 'path' to be set: http_handler_config.path is a URL that begins with http:// or https://");
    if (watch->timeout_ns <= 0) watch->timeout_ns = 10000000000;
    watch->url = mem_strdup(url), watch->method = mem_strdup(method);
}

static void parse_handler(struct watch *watch, struct json_object *json, bool wanted, struct fault *fault) {
    const char *handler = "", *type = "";
    json_get_string(json, "handler", &handler, fault), json_get_string(json, "handler_type", &type, fault);
    struct json_object *args = json_get_array(json, "args", fault),
                       *http = json_get_object(json, "http_handler_config", fault);
    if (type[0] && strcmp(type, "script") != 0 && strcmp(type, "http") != 0)
        fault_set(fault, CO_INVALID, "Handler type '%.60s' not recognized", type);
    if (strcmp(type, "http") == 0) {
        if (http) parse_http(watch, http, fault);
        else fault_set(fault, CO_INVALID, "Handler type 'http' requires 'http_handler_config' to be set");
        return;
    }
    if (handler[0] && args) fault_set(fault, CO_INVALID, "Only one watch handler allowed: args or handler");
    else if (args) parse_args(watch, args, fault);
    else if (handler[0]) parse_shell(watch, handler);
    else if (wanted) fault_set(fault, CO_INVALID, "Must define a watch handler: args, handler, or handler_type http");
}

struct watch *watch_parse(struct json_object *json, bool handler, struct fault *fault) {
    static const char *const known[] = {"type",    "datacenter", "token",        "key",   "prefix",
                                        "service", "tag",        "passingonly",  "state", "name",
                                        "stale",   "handler",    "handler_type", "args",  "http_handler_config",
                                        NULL};
    struct watch *watch = mem_zalloc(sizeof *watch);
    const char *token = NULL, *datacenter = NULL;
    json_only_known(json, known, fault);
    if (fault->code == CO_OK) parse_question(watch, json, fault);
    if (fault->code == CO_OK) parse_handler(watch, json, handler, fault);
    json_get_string(json, "token", &token, fault), json_get_string(json, "datacenter", &datacenter, fault);
    json_get_bool(json, "stale", &watch->stale, fault);
    watch->token = token ? mem_strdup(token) : NULL, watch->datacenter = datacenter ? mem_strdup(datacenter) : NULL;
    if (fault->code == CO_OK) return watch;
    watch_free(watch);
    return NULL;
}

/* -- the result for the handler ----------------------------------------------------------------------------------- */
/* *since becomes at least the answer's index, even when none of its events is for this node. So an event that was not
 * for this node does not come later, when the service that it names is registered here. */
static void newer_events(struct json_object *list, uint64_t index, uint64_t *since, struct buffer *out) {
    struct json_object *kept = json_object_new_array();
    uint64_t newest = index > *since ? index : *since;
    for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++) {
        struct json_object *event = json_object_array_get_idx(list, i);
        uint64_t time = 0;
        json_get_u64(event, "LTime", UINT64_MAX, &time, NULL);
        if (time > *since) json_object_array_add(kept, json_object_get(event));
        if (time > newest) newest = time;
    }
    *since = newest;
    buffer_append_text(out,
                       json_object_to_json_string_ext(kept, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(kept);
}

void watch_result(const struct watch *watch, const struct client_answer *answer, uint64_t *since, struct buffer *out) {
    struct fault fault = {0};
    bool parsed = watch->type == WATCH_KEY || watch->type == WATCH_EVENT;
    struct json_object *json = parsed && answer->status == 200 ? json_parse(buffer_slice(&answer->body), &fault) : NULL;
    struct json_object *first = watch->type == WATCH_KEY && json_object_is_type(json, json_type_array)
                                    ? json_object_array_get_idx(json, 0)
                                    : NULL;
    if (answer->status == 404) buffer_append_text(out, "null");
    else if (!parsed) buffer_append(out, answer->body.data, answer->body.size);
    else if (watch->type == WATCH_EVENT) newer_events(json, answer->index, since, out);
    else
        buffer_append_text(
            out, first ? json_object_to_json_string_ext(first, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)
                       : "null");
    if (json) json_object_put(json);
}
