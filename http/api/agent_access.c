#include "http/api/agent_access.h"

static struct local *local_of(struct http_request *request) { return http_env(request)->local; }
static struct slice this_node(struct http_request *request) { return slice_text(http_env(request)->node_name); }

/* `owner`: a service's name; "": this node. `id`: is shown in place of a name that may not be read. */
static bool may(struct http_request *request, const char *owner, struct slice id, enum access_level level) {
    if (!*owner) return http_require(request, ACCESS_NODE, this_node(request), level);
    struct slice name = slice_text(owner);
    if (http_allows(request, ACCESS_SERVICE, name, level)) return true;
    http_deny(request, ACCESS_SERVICE, http_allows(request, ACCESS_SERVICE, name, ACCESS_READ) ? name : id, level);
    return false;
}

bool agent_may_service(struct http_request *request, struct slice id, enum access_level level) {
    const char *name = local_service_name(local_of(request), id, http_arena(request));
    if (name) return may(request, name, id, level);
    if (http_allows_some(request, ACCESS_SERVICE, level)) return true;
    http_deny(request, ACCESS_SERVICE, id, level);
    return false;
}

bool agent_may_check(struct http_request *request, struct slice id, enum access_level level) {
    const char *owner = local_check_owner(local_of(request), id, http_arena(request));
    if (owner) return may(request, owner, id, level);
    if (http_allows_some(request, ACCESS_SERVICE, level) ||
        http_allows(request, ACCESS_NODE, this_node(request), level))
        return true;
    http_deny(request, ACCESS_SERVICE, id, level);
    return false;
}

/* What has the check's id now. */
static bool may_take(struct http_request *request, const char *check_id) {
    struct slice id = slice_text(check_id);
    const char *owner = local_check_owner(local_of(request), id, http_arena(request));
    return !owner || may(request, owner, id, ACCESS_WRITE);
}

/* An alias shows the output of its target: of this agent's; others are read with the token. */
static bool may_alias(struct http_request *request, const struct check_definition *definition,
                      const struct service_definition *with) {
    struct slice target = slice_text(definition->alias_service), node = slice_text(definition->alias_node);
    if (definition->kind != CHECK_ALIAS || (node.size && !slice_equal_nocase(node, this_node(request)))) return true;
    if (with && target.size && slice_equal_nocase(target, slice_text(with->service->id))) return true;
    return target.size ? agent_may_service(request, target, ACCESS_READ)
                       : http_require(request, ACCESS_NODE, this_node(request), ACCESS_READ);
}

bool agent_may_register(struct http_request *request, const struct service_definition *definition) {
    struct slice id = slice_text(definition->service->id);
    if (!http_require(request, ACCESS_SERVICE, slice_text(definition->service->name), ACCESS_WRITE)) return false;
    const char *now = local_service_name(local_of(request), id, http_arena(request));
    if (now && !may(request, now, id, ACCESS_WRITE)) return false;
    for (size_t i = 0; i < definition->check_count; i++)
        if (!may_take(request, definition->checks[i]->check_id) ||
            !may_alias(request, definition->checks[i], definition))
            return false;
    return true;
}

bool agent_may_register_check(struct http_request *request, const struct check_definition *definition) {
    struct slice id = slice_text(definition->service_id);
    bool fine = id.size ? agent_may_service(request, id, ACCESS_WRITE)
                        : http_require(request, ACCESS_NODE, this_node(request), ACCESS_WRITE);
    return fine && may_take(request, definition->check_id) && may_alias(request, definition, NULL);
}

bool agent_shows_check(struct http_request *request, const Pb__Check *check) {
    if (!check->service_id[0]) return http_shows(request, ACCESS_NODE, this_node(request));
    return http_shows(request, ACCESS_SERVICE, slice_text(check->service_name));
}
