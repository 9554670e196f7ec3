/* coord api: the routing table as JSON, for docs/api.md (tests/e2e/test_api_docs.py). The list of commands does not
 * show it. */
#include "agent/cmd.h"
#include "agent/modules.h"
#include "base/check.h"
#include "base/json_out.h"
#include "http/declared.h"
#include "registry/machine.h"

static const struct {
    unsigned method;
    const char *name;
} methods[] = {
    {HTTP_GET, "GET"}, {HTTP_PUT, "PUT"}, {HTTP_POST, "POST"}, {HTTP_DELETE, "DELETE"}, {HTTP_OPTIONS, "OPTIONS"}};

static void text(struct json_out *json, const char *key, const char *value) {
    if (!value) return;
    json_key_raw(json, key, strlen(key));
    json_string(json, value);
}

static void param_json(struct json_out *json, const struct http_param *param) {
    struct buffer wanted = {0};
    json_object(json);
    text(json, "Name", param->name);
    text(json, "Help", param->help);
    text(json, "Default", param->otherwise);
    declared_wanted(param, &wanted);
    json_key(json, "Wanted");
    json_slice(json, buffer_slice(&wanted));
    json_key(json, "Required"), json_bool(json, param->required);
    json_key(json, "Repeats"), json_bool(json, param->repeats);
    buffer_free(&wanted);
    if (param->group) {
        json_key(json, "Group");
        json_array(json);
        for (const struct http_param *of = param->group; of->name; of++) param_json(json, of);
        json_array_end(json);
    }
    json_object_end(json);
}

static void params_json(struct json_out *json, const char *key, const struct http_param *params) {
    json_key_raw(json, key, strlen(key));
    json_array(json);
    for (; params && (params->name || params->field); params++)
        if (params->name) param_json(json, params);
    json_array_end(json);
}

static void example_json(struct json_out *json, const struct http_route *route) {
    const struct http_example *example = &route->example;
    text(json, "NoExample", route->no_example);
    if (route->no_example) return;
    json_key(json, "Example");
    json_object(json);
    unsigned method = example->method ? example->method : route->methods;
    size_t i = 0;
    while (!(method & methods[i].method)) i++;
    text(json, "Method", methods[i].name);
    text(json, "Target", example->target ? example->target : route->path);
    text(json, "Body", example->body);
    text(json, "Keep", example->keep);
    json_key(json, "Status"), json_i64(json, example->status);
    json_key(json, "Depth"), json_u64(json, example->depth ? example->depth : 4);
    json_object_end(json);
}

static void route_json(struct json_out *json, const struct http_route *route, const struct modules *modules) {
    const struct module_command *command =
        route->endpoint.command ? modules_command(modules, route->endpoint.command) : NULL;
    json_object(json);
    json_key(json, "Methods");
    json_array(json);
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++)
        if (route->methods & methods[i].method) json_string(json, methods[i].name);
    json_array_end(json);
    text(json, "Path", route->path);
    text(json, "Permission", route->permission);
    text(json, "Summary", route->summary);
    json_key(json, "Own"), json_bool(json, (route->flags & HTTP_OWN) != 0);
    json_key(json, "Since"), json_u64(json, command ? command->since : 0);
    text(json, "Command", route->cli.command);
    params_json(json, "Parameters", route->params);
    params_json(json, "Members", route->endpoint.body);
    if (route->endpoint.raw) json_key(json, "Body"), param_json(json, route->endpoint.raw);
    example_json(json, route);
    json_object_end(json);
}

int cmd_api(int argc, char **argv) {
    (void)argc, (void)argv;
    struct buffer out = {0};
    struct json_out json;
    struct modules *modules = modules_new(agent_modules, MACHINE_VERSION_NEWEST);
    declared_verify(modules);
    json_out_init(&json, &out, true);
    json_array(&json);
    for (const struct http_topic *topic = http_topics; topic->title; topic++) {
        json_object(&json);
        text(&json, "Title", topic->title);
        json_key(&json, "Endpoints");
        json_array(&json);
        for (const struct http_route *route = topic->rows; route->path; route++) route_json(&json, route, modules);
        json_array_end(&json);
        json_object_end(&json);
    }
    json_array_end(&json);
    printf("%.*s\n", (int)out.size, out.data);
    buffer_free(&out);
    modules_free(modules);
    return 0;
}
