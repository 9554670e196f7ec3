/* Endpoints that are served from their row: the message of a command or a query is made from the request, and its
 * answer is written as JSON. */
#include <string.h>

#include "base/clock.h"
#include "base/json_in.h"
#include "base/random.h"
#include "base/text.h"
#include "http/declared.h"
#include "http/impl.h"
#include "kv/session/session.h"

/* -- fields that no client gives ---------------------------------------------------------------------------------- */

const struct http_endpoint *http_endpoint(const struct http_request *request) { return &request->route->endpoint; }

char *http_new_uuid(struct http_request *request) {
    uint8_t bytes[16];
    char *text = arena_zalloc(http_arena(request), UUID_TEXT_SIZE + 1);
    random_bytes(bytes, sizeof bytes);
    uuid_format(bytes, text);
    return text;
}

static void made_fill(struct http_request *request, const struct http_param *param, ProtobufCMessage *message) {
    struct message_value value = {.type = VALUE_NS};
    if (param->type == HTTP_NEW_UUID)
        value = (struct message_value){.type = VALUE_TEXT, .text = slice_text(http_new_uuid(request))};
    else value.number = (uint64_t)clock_wall_ns();
    message_set(message, param->field, &value, http_arena(request));
}

/* -- ?session=, ?ttl= --------------------------------------------------------------------------------------------- */

/* Makes a session of this agent's node (in another region: of none). Only its TTL ends it, so that NotBefore holds also
 * when the agent dies earlier. */
static void session_make(struct http_request *request, Pb__Session *session, struct slice ttl, int64_t ttl_ns) {
    session->id = http_new_uuid(request);
    session->node = (char *)(uintptr_t)(http_region(request)[0] ? "" : http_env(request)->node_name);
    session->ttl = (char *)(uintptr_t)ttl.data, session->ttl_ns = ttl_ns;
}

bool http_session_ttl(struct http_request *request, int64_t *ttl_ns) {
    struct http_param row = *declared_find(http_params_session, SLICE_LITERAL("ttl"));
    struct message_value value;
    struct fault fault = {0};
    row.least = (uint64_t)http_env(request)->session_ttl_min_ns;
    if (declared_parse(&row, http_parameter(request, "ttl"), true, &value, &fault) == CO_OK) {
        *ttl_ns = (int64_t)value.number;
        return true;
    }
    http_reply_text(request, 400, "%s", fault.text);
    return false;
}

static bool session_fill(struct http_request *request, const struct http_param *param, ProtobufCMessage *message) {
    struct arena *arena = http_arena(request);
    struct slice session = http_parameter(request, "session"), ttl = http_parameter(request, "ttl");
    int64_t ttl_ns = 0;
    if (param->choices && http_has(request, param->choices)) return true;
    Pb__SessionUse *use = (Pb__SessionUse *)(void *)message_sub(message, param->field, arena);
    if (session.size) {
        use->id = (char *)(uintptr_t)session.data;
        return true;
    }
    if (!http_session_ttl(request, &ttl_ns)) return false;
    http_granted(request, ttl_ns);
    use->create = (Pb__Session *)(void *)message_new(&pb__session__descriptor, arena);
    session_make(request, use->create, ttl, ttl_ns);
    request->granted.session = use->create->id;
    return true;
}

/* -- parameters --------------------------------------------------------------------------------------------------- */

static void value_fill(struct http_request *request, const struct http_param *param, ProtobufCMessage *message,
                       struct slice text, bool has_value) {
    struct message_value value;
    CHECK(declared_parse(param, text, has_value, &value, NULL) == CO_OK); /* declared_check has checked it */
    message_set(message, param->field, &value, http_arena(request));
    if (param->given)
        message_set(message, param->given, &(struct message_value){.type = VALUE_BOOL, .number = 1},
                    http_arena(request));
}

static void param_fill(struct http_request *request, const struct http_param *param, ProtobufCMessage *message) {
    if (declared_in_path(param)) {
        value_fill(request, param, message, http_path_value(request, param->name + 1), true);
        return;
    }
    bool found = false;
    for (unsigned i = 0; i < request->parameter_count; i++) {
        const struct parameter *given = &request->parameters[i];
        if (!slice_is(given->name, param->name)) continue;
        value_fill(request, param, message, given->value, given->has_value);
        found = true;
    }
    if (!found && param->otherwise) value_fill(request, param, message, slice_text(param->otherwise), true);
}

static bool params_fill(struct http_request *request, ProtobufCMessage *message) {
    struct declared_walk walk = declared_begin(request->route->params);
    for (const struct http_param *param; (param = declared_next(&walk));) {
        if (!param->field) continue;
        if (param->type == HTTP_SESSION) {
            if (!session_fill(request, param, message)) return false;
        } else if (!declared_is_given(param)) {
            made_fill(request, param, message);
        } else {
            param_fill(request, param, message);
        }
    }
    return true;
}

/* -- a JSON body -------------------------------------------------------------------------------------------------- */

static void members_fill(struct arena *arena, const struct http_param *members, struct json_object *object,
                         const char *where, ProtobufCMessage *message, struct fault *fault);

/* The JSON type that a row wants, and its text for declared_parse. */
static bool scalar_text(const struct http_param *param, struct json_object *value, struct slice *text,
                        struct fault *fault) {
    json_type type = json_object_get_type(value);
    bool number = type == json_type_int, decimal = number || type == json_type_double;
    bool fine = param->type == HTTP_FLAG       ? type == json_type_boolean
                : param->type == HTTP_U64      ? number
                : param->type == HTTP_DECIMAL  ? decimal
                : param->type == HTTP_FRACTION ? decimal
                : param->type == HTTP_DURATION ? number || type == json_type_string
                                               : type == json_type_string;
    if (!fine) {
        struct buffer wanted = {0};
        if (param->type == HTTP_FLAG) buffer_append_text(&wanted, "a boolean");
        else declared_wanted(param, &wanted);
        fault_set(fault, CO_INVALID, "%s: %.*s is wanted, not %s", param->name, (int)wanted.size, wanted.data,
                  json_kind(value));
        buffer_free(&wanted);
        return false;
    }
    if (type == json_type_string)
        *text = slice_make(json_object_get_string(value), (size_t)json_object_get_string_len(value));
    else *text = slice_text(json_object_get_string(value));
    return true;
}

static void scalar_fill(struct arena *arena, const struct http_param *param, struct json_object *json,
                        ProtobufCMessage *message, struct fault *fault) {
    struct slice text;
    struct message_value value = {0};
    if (!scalar_text(param, json, &text, fault)) return;
    text = slice_copy(arena, text);
    if (param->type == HTTP_FLAG)
        value = (struct message_value){.type = VALUE_BOOL, .number = json_object_get_boolean(json)};
    else if (param->type == HTTP_DURATION && json_object_is_type(json, json_type_int))
        text = slice_text(arena_printf(arena, "%sns", text.data));
    if (param->type != HTTP_FLAG && declared_parse(param, text, true, &value, fault) != CO_OK) return;
    message_set(message, param->field, &value, arena);
    if (param->given)
        message_set(message, param->given, &(struct message_value){.type = VALUE_BOOL, .number = 1}, arena);
}

static void item_fill(struct arena *arena, const struct http_param *param, struct json_object *json,
                      ProtobufCMessage *message, struct fault *fault) {
    if (param->type != HTTP_OBJECT) scalar_fill(arena, param, json, message, fault);
    else if (!json_object_is_type(json, json_type_object))
        fault_set(fault, CO_INVALID, "%s: an object is wanted, not %s", param->name, json_kind(json));
    else
        members_fill(arena, param->group, json, arena_printf(arena, "%s.", param->name),
                     message_sub(message, param->field, arena), fault);
}

/* `where`: the prefix of names in errors: "", "Steps[2]." */
static void member_fill(struct arena *arena, const struct http_param *param, struct json_object *object,
                        const char *where, ProtobufCMessage *message, struct fault *fault) {
    struct json_object *value = json_get(object, param->name);
    struct http_param named = *param;
    struct slice text = slice_text(param->otherwise ? param->otherwise : "");
    struct message_value otherwise;
    named.name = arena_printf(arena, "%s%s", where, param->name);
    if (!value && param->required) {
        struct buffer wanted = {0};
        declared_wanted(param, &wanted);
        fault_set(fault, CO_INVALID, "%s: it is missing; wanted: %.*s", named.name, (int)wanted.size, wanted.data);
        buffer_free(&wanted);
    } else if (!value && param->otherwise) {
        CHECK(declared_parse(param, text, true, &otherwise, NULL) == CO_OK);
        message_set(message, param->field, &otherwise, arena);
    } else if (value && !param->repeats) {
        item_fill(arena, &named, value, message, fault);
    } else if (value && !json_object_is_type(value, json_type_array)) {
        fault_set(fault, CO_INVALID, "%s: an array is wanted, not %s", named.name, json_kind(value));
    } else if (value) {
        for (size_t i = 0; i < json_object_array_length(value) && !fault->code; i++) {
            struct http_param item = *param;
            item.name = arena_printf(arena, "%s[%zu]", named.name, i);
            item_fill(arena, &item, json_object_array_get_idx(value, i), message, fault);
        }
    }
}

static void only_known(struct arena *arena, const struct http_param *members, struct json_object *object,
                       struct fault *fault) {
    size_t count = 0;
    while (members[count].name) count++;
    const char **names = arena_zalloc(arena, (count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++) names[i] = members[i].name;
    json_only_known(object, names, fault);
}

static void members_fill(struct arena *arena, const struct http_param *members, struct json_object *object,
                         const char *where, ProtobufCMessage *message, struct fault *fault) {
    only_known(arena, members, object, fault);
    for (; !fault->code && members->name; members++) member_fill(arena, members, object, where, message, fault);
}

static bool body_fill(struct http_request *request, const struct http_param *members, ProtobufCMessage *message) {
    struct fault fault = {0};
    struct json_object *json = http_body(request).size ? http_json(request) : NULL; /* an empty body: no members */
    if (http_body(request).size && !json) return false;
    if (json) json_refuse_duplicates(http_body(request), &fault);
    if (!fault.code) members_fill(http_arena(request), members, json, "", message, &fault);
    if (fault.code) http_reply_text(request, 400, "%s", fault.text);
    return !fault.code;
}

/* The whole body is one value, borrowed from the request. */
static bool raw_fill(struct http_request *request, const struct http_param *raw, ProtobufCMessage *message) {
    struct slice body = http_body(request);
    bool text = message_field(message->descriptor, raw->field)->type == PROTOBUF_C_TYPE_STRING;
    if (text) body = slice_copy(http_arena(request), body);
    if (body.size < raw->least || (raw->most && body.size > raw->most) ||
        (text && body.size && memchr(body.data, '\0', body.size))) {
        struct buffer wanted = {0};
        declared_wanted(raw, &wanted);
        http_reply_text(request, 400, "%s: a body of %zu bytes is not %.*s", raw->name, body.size, (int)wanted.size,
                        wanted.data);
        buffer_free(&wanted);
        return false;
    }
    message_set(message, raw->field, &(struct message_value){.type = VALUE_TEXT, .text = body}, http_arena(request));
    return true;
}

ProtobufCMessage *declared_message(struct http_request *request, const ProtobufCMessageDescriptor *type) {
    const struct http_endpoint *endpoint = &request->route->endpoint;
    ProtobufCMessage *message = message_new(type, http_arena(request));
    if (!params_fill(request, message)) return NULL;
    bool reads = request->method & (HTTP_GET | HTTP_HEAD);
    if (!reads && !endpoint->raw && !endpoint->body && http_body(request).size) {
        http_reply_text(request, 400, "this endpoint takes no body");
        return NULL;
    }
    if (endpoint->raw && !raw_fill(request, endpoint->raw, message)) return NULL;
    if (endpoint->body && !body_fill(request, endpoint->body, message)) return NULL;
    return endpoint->prepare && !endpoint->prepare(request, message) ? NULL : message;
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

static int answer_write(struct http_request *request, const ProtobufCMessage *answer) {
    const struct http_endpoint *endpoint = &request->route->endpoint;
    struct json_out *json = http_out(request);
    if (endpoint->list) message_json_list(json, answer, endpoint->list, endpoint->answer, request);
    else message_json(json, answer, endpoint->answer, request);
    return endpoint->status ? endpoint->status(answer) : 200;
}

static int view(struct http_request *request, const struct query_result *result) {
    const struct http_endpoint *endpoint = &request->route->endpoint;
    if (result->found || (endpoint->list && !endpoint->missing)) return answer_write(request, result->message);
    struct slice value = request->value_count ? request->values[0].value : SLICE_LITERAL("");
    http_view_text(request, "%s \"%.*s\" %s", endpoint->watched, (int)value.size, value.data, endpoint->missing);
    return 404;
}

static void written(struct http_request *request, const struct machine_result *result) {
    if (result->error || !result->message) http_reply_result(request, result);
    else http_reply_json(request, answer_write(request, result->message));
}

static void then_wait(struct http_request *request, const ProtobufCMessage *message) {
    const struct http_endpoint *endpoint = &request->route->endpoint;
    struct http_wait wait = *endpoint->then;
    int64_t wait_ns = 0;
    CHECK(http_parameter_duration(request, "wait", &wait_ns)); /* declared_check has checked it */
    wait.wait_ms = (uint64_t)wait_ns / 1000000;
    if (endpoint->command) http_write_then_wait(request, endpoint->command, message, &wait);
    else http_wait_for(request, &wait, message);
}

void http_declared_with(struct http_request *request, const void *context) {
    const struct http_endpoint *endpoint = &request->route->endpoint;
    const struct modules *modules = rpc_modules(http_env(request)->rpc);
    const ProtobufCMessageDescriptor *type =
        endpoint->query ? endpoint->query->request : modules_command(modules, endpoint->command)->request;
    const ProtobufCMessage *message = declared_message(request, type);
    if (!message) return;
    if (endpoint->then) then_wait(request, message);
    else if (!endpoint->query) http_write(request, endpoint->command, message, written);
    else if (endpoint->fresh || context) http_read_fresh(request, endpoint->query, message, view, context);
    else http_read(request, endpoint->query, message, view);
}

void http_declared_query(struct http_request *request, const struct query_type *query) {
    const ProtobufCMessage *message = declared_message(request, query->request);
    if (message) http_read(request, query, message, view);
}

void http_declared(struct http_request *request) { http_declared_with(request, NULL); }
