/* Checks the routing table against itself and against the modules. A mismatch is a bug, which this finds at start,
 * before a client does. */
#include <string.h>

#include "base/check.h"
#include "http/declared.h"
#include "http/http.h"
#include "http/permission.h"
#include "kv/session/session.h"

static int value_type_of(const struct http_param *param) {
    switch (param->type) {
        case HTTP_FLAG: return VALUE_BOOL;
        case HTTP_U64:
        case HTTP_FRACTION: return VALUE_U64;
        case HTTP_OFFSET: return VALUE_SIGNED;
        case HTTP_DECIMAL: return VALUE_DECIMAL;
        case HTTP_DURATION:
        case HTTP_NOW: return VALUE_NS;
        default: return VALUE_TEXT;
    }
}

static void verify_fits(const struct http_param *param, const ProtobufCFieldDescriptor *field) {
    CHECK(message_takes(field, value_type_of(param)));
    CHECK((field->label == PROTOBUF_C_LABEL_REPEATED) == param->repeats);
    bool number = param->type == HTTP_U64 || param->type == HTTP_FRACTION;
    if (number && message_element_size(field) == 4) CHECK(param->most && param->most <= INT32_MAX);
    if (field->type != PROTOBUF_C_TYPE_ENUM) return;
    CHECK(param->type == HTTP_CHOICE);
    for (const char *at = param->choices; *at; at += at[0] == '|') {
        int value;
        size_t size = strcspn(at, "|");
        CHECK(message_enum_parse(field->descriptor, slice_make(at, size), &value) == CO_OK);
        at += size;
    }
}

static void verify_param(const struct http_param *param, const ProtobufCMessageDescriptor *request) {
    CHECK(param->type == HTTP_SESSION || (param->type == HTTP_CHOICE) == (param->choices != NULL));
    CHECK(!declared_is_given(param) || param->type == HTTP_OBJECT || param->help);
    if (param->otherwise) {
        struct message_value value;
        CHECK(declared_parse(param, slice_text(param->otherwise), true, &value, NULL) == CO_OK);
    }
    if (!param->field) return;
    CHECK(request);
    const ProtobufCFieldDescriptor *field = message_field(request, param->field);
    CHECK(field);
    if (param->type == HTTP_SESSION) CHECK(field->descriptor == &pb__session_use__descriptor);
    else if (param->type != HTTP_OBJECT) verify_fits(param, field);
    if (param->given) CHECK(message_takes(message_field(request, param->given), VALUE_BOOL));
}

static void verify_members(const struct http_param *members, const ProtobufCMessageDescriptor *request) {
    for (; members && members->name; members++) {
        CHECK(members->field && declared_is_given(members));
        verify_param(members, request);
        if (members->type == HTTP_OBJECT)
            verify_members(members->group, message_field(request, members->field)->descriptor);
    }
}

/* Each value of the path is declared. */
static void verify_path(const struct http_route *route) {
    for (const char *at = route->path; *at; at++) {
        if (*at != ':' && *at != '*' && *at != '+') continue;
        struct slice name = slice_make(at, strcspn(at, "/"));
        CHECK(declared_find(route->params, name));
    }
}

static const ProtobufCMessageDescriptor *request_of(const struct http_route *route, const struct modules *modules) {
    const struct http_endpoint *endpoint = &route->endpoint;
    CHECK(!endpoint->message || (!endpoint->command && !endpoint->query));
    if (!endpoint->command && !endpoint->query) return endpoint->message;
    CHECK(route->flags & HTTP_OWN && !endpoint->command != !endpoint->query);
    if (endpoint->query) {
        bool shows = endpoint->list || (endpoint->watched && endpoint->missing);
        CHECK(endpoint->query->request && (shows || endpoint->then));
        return endpoint->query->request;
    }
    const struct module_command *command = modules_command(modules, endpoint->command);
    CHECK(command && command->request);
    return command->request;
}

static void verify_permission(const struct http_route *route) {
    struct permission permission;
    bool valid = permission_parse(route->permission, &permission);
    CHECK(valid);
    if (!permission.of || strcmp(permission.of, "this agent") == 0) return;
    const char *name = permission.of[0] == '?' ? permission.of + 1 : permission.of;
    CHECK(declared_find(route->params, slice_text(name)));
}

static void verify_route(const struct http_route *route, const struct modules *modules) {
    const ProtobufCMessageDescriptor *request = request_of(route, modules);
    CHECK(route->handler && route->permission && route->summary);
    verify_permission(route);
    CHECK(route->example.status ? !route->no_example : route->no_example != NULL);
    verify_path(route);
    struct declared_walk walk = declared_begin(route->params);
    for (const struct http_param *param; (param = declared_next(&walk));) verify_param(param, request);
    verify_members(route->endpoint.body, request);
    CHECK(!route->endpoint.then || declared_find(route->params, SLICE_LITERAL("wait")));
    CHECK(!route->endpoint.then || route->endpoint.command || route->endpoint.then->query == route->endpoint.query);
    CHECK(!route->endpoint.raw || route->flags & HTTP_BODY_RAW);
    if (route->endpoint.raw) verify_param(route->endpoint.raw, request);
    CHECK(route->flags & HTTP_LOCAL || declared_find(route->params, SLICE_LITERAL("dc")));
}

void declared_verify(const struct modules *modules) {
    for (const struct http_topic *topic = http_topics; topic->title; topic++)
        for (const struct http_route *route = topic->rows; route->path; route++) verify_route(route, modules);
}
