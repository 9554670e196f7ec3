/* Decides before the handler runs, where the row names the thing or its resource has no names. Everything else is decided where
 * the records are (query_type.show, module_command.may). */
#include "http/permission.h"

#include <string.h>

#include "http/impl.h"

bool permission_parse(const char *text, struct permission *permission) {
    *permission = (struct permission){0};
    if (strncmp(text, "none", 4) == 0) return text[4] == '\0' || strncmp(text + 4, ": ", 2) == 0;
    const char *colon = strchr(text, ':'), *end = text + strcspn(text, " ");
    if (!colon || colon > end) return false;
    permission->needed = true;
    if (!access_resource_parse(slice_make(text, (size_t)(colon - text)), &permission->resource) ||
        !access_level_parse(slice_make(colon + 1, (size_t)(end - colon) - 1), &permission->level))
        return false;
    if (strcmp(end, " rows") == 0) permission->rows = true;
    else if (strncmp(end, " of ", 4) == 0) permission->of = end + 4;
    else if (*end) return false;
    return !permission->of || access_resource_named(permission->resource);
}

/* The thing that the row names, which is in the path, in the query string, or this agent. */
static struct slice name_of(const struct http_request *request, const struct permission *permission) {
    if (strcmp(permission->of, "this agent") == 0) return slice_text(http_env(request)->node_name);
    if (permission->of[0] == '?') return http_parameter(request, permission->of + 1);
    return http_path_value(request, permission->of + 1);
}

static void check(struct http_request *request) {
    struct permission permission;
    bool valid = permission_parse(request->route->permission, &permission);
    CHECK(valid);
    bool named = access_resource_named(permission.resource);
    struct slice name = permission.of && named ? name_of(request, &permission) : slice_make("", 0);
    if (named && !permission.of) request->permitted(request);
    else if (http_require(request, permission.resource, name, permission.level)) request->permitted(request);
}

bool permission_holds(struct http_request *request, uint64_t generation) {
    struct worker *worker = request->worker;
    struct rpc *rpc = worker->server->env.rpc;
    const struct access *access;
    struct permission permission;
    if (!request->requester) return true;
    if (!rpc_has_copy(rpc)) return rpc_access_generation(rpc) == generation;
    bool valid = permission_parse(request->route->permission, &permission);
    CHECK(valid && permission.needed && permission.of);
    return rpc_access(worker->reader, request->requester, &access) == CO_OK &&
           access_allows(access, permission.resource, name_of(request, &permission), permission.level);
}

void permission_check(struct http_request *request, void (*then)(struct http_request *request)) {
    bool local =
        request->route->flags & HTTP_LOCAL || (!request->region && rpc_has_copy(request->worker->server->env.rpc));
    bool open = strncmp(request->route->permission, "none", 4) == 0;
    request->permitted = then;
    if (!request->requester || open || !local) then(request);
    else access_find(request, check);
}
