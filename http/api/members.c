#include "http/api/members.h"

#include <stdlib.h>
#include <string.h>

#include "health/local.h"
#include "http/api/operator_views.h"
#include "http/api/region_views.h"
#include "registry/catalog.h"
#include "rpc/api/access_control.h"

static void pair(struct json_out *json, const char *key, const char *value) {
    json_key_raw(json, key, strlen(key));
    json_string(json, value);
}

/* One member of the cluster. `version`: coord's own, of its program. */
struct member_view {
    const char *name, *address, *id, *version;
    unsigned port;
    enum { MEMBER_ALIVE = 1, MEMBER_LEFT = 3, MEMBER_FAILED = 4 } status; /* serf's numbers */
    bool is_server;
    const char *region; /* NULL: this one */
};

static void member_tags(struct json_out *json, const struct http_env *env, const struct member_view *view) {
    char port[8], build[80];
    snprintf(port, sizeof port, "%u", view->port);
    snprintf(build, sizeof build, "%.60s:", env->consul_version);
    json_key(json, "Tags");
    json_object(json);
    pair(json, "acls", rpc_access_controlled(env->rpc) ? "1" : "0");
    pair(json, "build", build); /* clients compare it */
    pair(json, "coord_version", view->version);
    pair(json, "dc", view->region ? view->region : env->datacenter);
    pair(json, "id", view->id);
    if (view->is_server) pair(json, "port", port);
    if (view->is_server) pair(json, "raft_vsn", "3");
    pair(json, "role", view->is_server ? "consul" : "node");
    pair(json, "segment", "");
    pair(json, "vsn", "2");
    pair(json, "vsn_max", "3");
    pair(json, "vsn_min", "2");
    json_object_end(json);
}

static void member_write(struct json_out *json, const struct http_env *env, const struct member_view *view) {
    json_object(json);
    pair(json, "Name", view->name);
    pair(json, "Addr", view->address);
    json_key(json, "Port");
    json_u64(json, view->port);
    member_tags(json, env, view);
    const struct {
        const char *key;
        unsigned value;
    } numbers[] = {
        {"Status", view->status}, {"ProtocolMin", 1}, {"ProtocolMax", 5}, {"ProtocolCur", 2},
        {"DelegateMin", 2},       {"DelegateMax", 5}, {"DelegateCur", 4},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_key_raw(json, numbers[i].key, strlen(numbers[i].key));
        json_u64(json, numbers[i].value);
    }
    json_object_end(json);
}

void members_write_own(struct json_out *json, const struct http_env *env) {
    const struct member_view view = {.name = env->node_name,
                                     .address = env->address,
                                     .id = env->node_id,
                                     .status = MEMBER_ALIVE,
                                     .version = env->version,
                                     .port = local_configuration(env->local)->server_port,
                                     .is_server = env->is_server};
    member_write(json, env, &view);
}

/* -- all members: nodes with agents from the catalog, and servers of Raft's configuration ------------------------- */
/* "IP:port", "[IP]:port". */
static void member_address(struct arena *arena, const char *text, struct member_view *view) {
    const char *colon = strrchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : strlen(text);
    bool bracket = size > 2 && text[0] == '[' && text[size - 1] == ']';
    view->address = bracket ? arena_strndup(arena, text + 1, size - 2) : arena_strndup(arena, text, size);
    view->port = colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 0;
}

static bool same_name(const char *a, const char *b) { return slice_equal_nocase(slice_text(a), slice_text(b)); }

static bool in_catalog(const Pb__MembersResult *known, const char *name) {
    for (size_t i = 0; known && i < known->n_members; i++)
        if (same_name(known->members[i]->name, name)) return true;
    return false;
}

/* A node that was registered by hand has no version; a server also has it in the record of its service. */
static const char *member_version(const Pb__Member *known) {
    return known->version[0] ? known->version : known->server_version[0] ? known->server_version : "unknown";
}

/* Writes a member from the catalog. A server that has no connection to the answering server counts as failed, also
 * before its check says so. */
static void member_known(struct json_out *json, const struct http_env *env, const Pb__Member *known,
                         const struct rpc_cluster_state *state) {
    const struct rpc_server_state *server = http_server_of(state, known);
    bool here = same_name(known->name, env->node_name),
         failed = !here && (known->failed || (server && !server->connected));
    struct member_view view = {.name = known->name,
                               .address = known->address,
                               .id = known->id,
                               .port = known->server_port,
                               .status = known->left ? MEMBER_LEFT
                                         : failed    ? MEMBER_FAILED
                                                     : MEMBER_ALIVE,
                               .is_server = server || known->server_port,
                               .version = here ? env->version : member_version(known)};
    member_write(json, env, &view);
}

/* Writes a server of Raft's configuration that is not in the catalog (yet). */
static void member_of_raft(struct http_request *request, struct json_out *json, const struct rpc_server_state *server) {
    const struct http_env *env = http_env(request);
    struct member_view view = {.name = server->node[0] ? server->node : "(unknown)",
                               .status = server->connected ? MEMBER_ALIVE : MEMBER_FAILED,
                               .id = arena_printf(http_arena(request), "%016llx", (unsigned long long)server->id),
                               .is_server = true,
                               .version = "unknown"};
    member_address(http_arena(request), server->address, &view);
    member_write(json, env, &view);
}

static bool server_in_catalog(const struct rpc_cluster_state *state, size_t at, const Pb__MembersResult *known) {
    for (size_t i = 0; known && i < known->n_members; i++)
        if (http_server_of(state, known->members[i]) == &state->servers[at]) return true;
    return false;
}

/* Those that the catalog has are counted there when they are hidden. */
static bool sees(struct http_request *request, const char *node) {
    return http_allows(request, ACCESS_NODE, slice_text(node), ACCESS_READ);
}

static void view_members(struct http_request *request, int error, const struct rpc_cluster_state *state,
                         const void *context) {
    const struct http_env *env = http_env(request);
    const Pb__MembersResult *known = context;
    struct json_out *json = http_out(request);
    if (error) state = NULL; /* then only the catalog is used */
    json_array(json);
    for (size_t i = 0; known && i < known->n_members; i++) member_known(json, env, known->members[i], state);
    for (size_t i = 0; state && i < state->count; i++)
        if (!server_in_catalog(state, i, known) && !same_name(state->servers[i].node, env->node_name) &&
            sees(request, state->servers[i].node))
            member_of_raft(request, json, &state->servers[i]);
    if (!in_catalog(known, env->node_name) && sees(request, env->node_name)) members_write_own(json, env);
    json_array_end(json);
    http_reply_json(request, 200);
}

static void members_known(struct http_request *request, int error, const struct query_result *result) {
    const void *known = error ? NULL : result->message;
    struct rpc_status status;
    if (error == CO_DENIED || error == CO_NOTOKEN || error == CO_NOTREADY) {
        http_reply_error(request, error);
        return;
    }
    rpc_status(http_env(request)->rpc, &status);
    if (http_env(request)->is_server || status.last_contact_ms == 0)
        http_ask_cluster(request, false, view_members, known);
    else view_members(request, CO_NOLEADER, NULL, known);
}

/* -- of all regions ----------------------------------------------------------------------------------------------- */
static char *wan_name(struct http_request *request, const char *name, const char *region) {
    return arena_printf(http_arena(request), "%s.%s", name, region);
}

static void write_region(struct http_request *request, struct json_out *json, const Pb__Region *region,
                         bool reachable) {
    for (size_t i = 0; i < region->n_servers; i++) {
        const Pb__RegionServer *server = region->servers[i];
        struct member_view view = {
            .name = wan_name(request, server->node[0] ? server->node : server->address, region->name),
            .status = reachable ? MEMBER_ALIVE : MEMBER_FAILED,
            .id = "",
            .is_server = true,
            .version = server->version[0] ? server->version : "unknown",
            .region = region->name};
        member_address(http_arena(request), server->address, &view);
        member_write(json, http_env(request), &view);
    }
}

static void view_wan(struct http_request *request, const struct regions_shown *shown) {
    const struct http_env *env = http_env(request);
    const Pb__MembersResult *own = (const Pb__MembersResult *)shown->own;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < own->n_members; i++) {
        const Pb__Member *known = own->members[i];
        struct member_view view = {.name = wan_name(request, known->name, env->datacenter),
                                   .address = known->address,
                                   .id = known->id,
                                   .port = known->server_port,
                                   .status = known->left     ? MEMBER_LEFT
                                             : known->failed ? MEMBER_FAILED
                                                             : MEMBER_ALIVE,
                                   .is_server = true,
                                   .version = member_version(known)};
        if (known->server_port) member_write(json, env, &view);
    }
    if (env->is_server && !in_catalog(own, env->node_name) && sees(request, env->node_name)) { /* it has just started */
        struct member_view view = {.name = wan_name(request, env->node_name, env->datacenter),
                                   .address = env->address,
                                   .id = env->node_id,
                                   .port = local_configuration(env->local)->server_port,
                                   .status = MEMBER_ALIVE,
                                   .is_server = true,
                                   .version = env->version};
        member_write(json, env, &view);
    }
    for (size_t i = 0; i < shown->records->n_regions; i++) {
        const Pb__Region *record = shown->records->regions[i];
        const Pb__PeerRegion *region = region_seen(shown->seen, record->name);
        if (!record->removed) write_region(request, json, record, region && region->reachable);
    }
    json_array_end(json);
    http_reply_json(request, 200);
}

void members_get(struct http_request *request) {
    Pb__TableRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__table_request__init(message);
    bool wan = http_has(request, "wan") && !slice_is(http_parameter(request, "wan"), "0");
    if (wan) http_show_regions(request, &query_members, &message->base, view_wan);
    else http_read_once(request, &query_members, &message->base, RPC_STALE, members_known);
}
