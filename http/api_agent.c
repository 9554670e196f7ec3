/* /v1/agent: who this agent is, and what it knows itself. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "health/local.h"
#include "http/agent_views.h"
#include "http/http.h"
#include "http/operator_views.h"
#include "http/views.h"
#include "rpc/server/coordinates.h"

/* ---- self ---- */

static void pair(struct json_out *json, const char *key, const char *value) {
    json_key_raw(json, key, strlen(key));
    json_string(json, value);
}

static void pair_number(struct json_out *json, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    pair(json, key, text);
}

static void pair_bool(struct json_out *json, const char *key, bool value) { pair(json, key, value ? "true" : "false"); }

static void self_config(struct json_out *json, const struct http_env *env) {
    json_key(json, "Config");
    json_object(json);
    pair(json, "Datacenter", env->datacenter);
    pair(json, "NodeName", env->node_name);
    pair(json, "NodeID", env->node_id);
    pair(json, "Revision", "");
    json_key(json, "Server");
    json_bool(json, env->is_server);
    pair(json, "Version", env->consul_version);
    pair(json, "CoordVersion", env->version);
    if (env->describe) env->describe(env->self_config_data, json, false);
    json_object_end(json);
    json_key(json, "DebugConfig");
    json_object(json);
    if (env->describe) env->describe(env->self_config_data, json, true);
    json_object_end(json);
}

static void self_coordinate(struct json_out *json, const struct http_env *env) {
    json_key(json, "Coord");
    if (env->no_coordinates) {
        json_null(json);
        return;
    }
    struct vivaldi_coordinate here = rpc_coordinate_here(env->rpc);
    view_coordinate(json, &here);
}

/* One member of the cluster. `version`: coord's own, of its program. */
struct member_view {
    const char *name, *address, *id, *version;
    unsigned port;
    enum { MEMBER_ALIVE = 1, MEMBER_FAILED = 4 } status; /* serf's numbers */
    bool is_server;
};

static void member_tags(struct json_out *json, const struct http_env *env, const struct member_view *view) {
    char port[8], build[80];
    snprintf(port, sizeof port, "%u", view->port);
    snprintf(build, sizeof build, "%.60s:", env->consul_version);
    json_key(json, "Tags");
    json_object(json);
    pair(json, "acls", "0");
    pair(json, "build", build); /* what clients compare */
    pair(json, "coord_version", view->version);
    pair(json, "dc", env->datacenter);
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

static void member(struct json_out *json, const struct http_env *env) {
    const struct member_view view = {.name = env->node_name,
                                     .address = env->address,
                                     .id = env->node_id,
                                     .status = MEMBER_ALIVE,
                                     .version = env->version,
                                     .port = local_configuration(env->local)->server_port,
                                     .is_server = env->is_server};
    member_write(json, env, &view);
}

static void stats_agent(struct json_out *json, struct http_request *request) {
    struct local *local = http_env(request)->local;
    Pb__Check **checks;
    Pb__Service **services;
    size_t check_count = local_checks(local, http_arena(request), &checks), ttls = 0, polled = 0;
    size_t service_count = local_services(local, http_arena(request), &services);
    for (size_t i = 0; i < check_count; i++) {
        bool ttl = strcmp(checks[i]->type, "ttl") == 0;
        ttls += ttl;
        polled += !ttl && strcmp(checks[i]->type, "maintenance") != 0;
    }
    json_key(json, "agent");
    json_object(json);
    pair_number(json, "check_monitors", polled);
    pair_number(json, "check_ttls", ttls);
    pair_number(json, "checks", check_count);
    pair_number(json, "services", service_count);
    json_object_end(json);
}

static void stats_server(struct json_out *json, const struct http_env *env) {
    struct rpc_status status;
    rpc_status(env->rpc, &status);
    json_key(json, "consul");
    json_object(json);
    pair(json, "acl", "disabled");
    pair_number(json, "known_datacenters", 1);
    pair_bool(json, "leader", status.is_leader);
    pair(json, "leader_addr", status.leader_address);
    pair_bool(json, "server", env->is_server);
    pair_number(json, "cluster_version", status.cluster_version);
    char id[20];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)status.cluster_id);
    pair(json, "cluster_id", status.cluster_id ? id : "");
    json_object_end(json);
    if (!env->is_server) return;
    json_key(json, "raft");
    json_object(json);
    pair_number(json, "applied_index", status.applied);
    pair_number(json, "commit_index", status.commit);
    pair_number(json, "last_contact", status.last_contact_ms);
    pair_number(json, "last_log_index", status.last_index);
    pair_number(json, "last_snapshot_index", status.snapshot_index);
    pair(json, "log_disk", status.disk_full ? "full" : status.disk_degraded ? "slow or failing" : "well");
    pair_number(json, "log_bytes", status.log_bytes);
    pair_number(json, "num_peers",
                status.voters - (status.is_voter && status.voters)); /* Consul's: the others that vote */
    pair_number(json, "recovered_index", status.recovered_index);
    pair(json, "state", status.is_leader ? "Leader" : status.known_leader ? "Follower" : "Candidate");
    pair_number(json, "term", status.term);
    pair_bool(json, "voter", status.is_voter);
    json_object_end(json);
}

static void self_stats(struct json_out *json, struct http_request *request) {
    const struct http_env *env = http_env(request);
    struct utsname host = {0};
    (void)uname(&host);
    json_key(json, "Stats");
    json_object(json);
    stats_agent(json, request);
    json_key(json, "build");
    json_object(json);
    pair(json, "coord_version", env->version);
    pair(json, "prerelease", "");
    pair(json, "revision", "");
    pair(json, "version", env->consul_version);
    json_object_end(json);
    stats_server(json, env);
    json_key(json, "runtime");
    json_object(json);
    pair(json, "arch", host.machine);
    pair_number(json, "cpu_count", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    pair(json, "os", "linux");
    json_object_end(json);
    json_object_end(json);
}

static void get_self(struct http_request *request) {
    const struct http_env *env = http_env(request);
    const Pb__Node *node = local_configuration(env->local)->node_record;
    struct json_out *json = http_out(request);
    json_object(json);
    self_config(json, env);
    self_coordinate(json, env);
    json_key(json, "Member");
    member(json, env);
    self_stats(json, request);
    json_key(json, "Meta");
    view_pairs(json, node->meta, node->n_meta);
    json_object_end(json);
    http_reply_json(request, 200);
}

/* -- all members: nodes with agents as the catalog has them, and of the servers what Raft knows ------------------- */
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

/* Agents of older programs say none in their node's record; servers among them say it in that of their service. */
static const char *member_version(const Pb__Member *known) {
    return known->version[0] ? known->version : known->server_version[0] ? known->server_version : "unknown";
}

/* Of the catalog. A server that is not connected with the one that was asked has failed before its check says so. */
static void member_known(struct json_out *json, const struct http_env *env, const Pb__Member *known,
                         const struct rpc_cluster_state *state) {
    const struct rpc_server_state *server = http_server_of(state, known);
    bool here = same_name(known->name, env->node_name),
         failed = !here && (known->failed || (server && !server->connected));
    struct member_view view = {.name = known->name,
                               .address = known->address,
                               .id = known->id,
                               .port = known->server_port,
                               .status = failed ? MEMBER_FAILED : MEMBER_ALIVE,
                               .is_server = server || known->server_port,
                               .version = here ? env->version : member_version(known)};
    member_write(json, env, &view);
}

/* Of Raft's configuration, and not in the catalog (yet). */
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

static void view_members(struct http_request *request, int error, const struct rpc_cluster_state *state,
                         const void *context) {
    const struct http_env *env = http_env(request);
    const Pb__MembersResult *known = context;
    struct json_out *json = http_out(request);
    if (error) state = NULL; /* then the catalog alone says it */
    json_array(json);
    for (size_t i = 0; known && i < known->n_members; i++) member_known(json, env, known->members[i], state);
    for (size_t i = 0; state && i < state->count; i++)
        if (!server_in_catalog(state, i, known) && !same_name(state->servers[i].node, env->node_name))
            member_of_raft(request, json, &state->servers[i]);
    if (!in_catalog(known, env->node_name)) member(json, env);
    json_array_end(json);
    http_reply_json(request, 200);
}

static void members_known(struct http_request *request, int error, const struct query_result *result) {
    const void *known = error ? NULL : result->message;
    struct rpc_status status;
    rpc_status(http_env(request)->rpc, &status);
    if (http_env(request)->is_server || status.last_contact_ms == 0)
        http_ask_cluster(request, false, view_members, known);
    else view_members(request, CO_NOLEADER, NULL, known);
}

static void get_members(struct http_request *request) {
    Pb__TableRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__table_request__init(message);
    http_fetch(request, &query_members, &message->base, RPC_STALE, members_known);
}

/* ---- what is registered here ---- */

static void get_services(struct http_request *request) {
    Pb__Service **services;
    if (!view_no_filter(request)) return;
    size_t count = local_services(http_env(request)->local, http_arena(request), &services);
    struct json_out *json = http_out(request);
    json_object(json);
    for (size_t i = 0; i < count; i++) {
        json_key_slice(json, slice_text(services[i]->id));
        agent_view_service(json, services[i], 0);
    }
    json_object_end(json);
    http_reply_json(request, 200);
}

static void get_checks(struct http_request *request) {
    Pb__Check **checks;
    if (!view_no_filter(request)) return;
    size_t count = local_checks(http_env(request)->local, http_arena(request), &checks);
    struct json_out *json = http_out(request);
    json_object(json);
    for (size_t i = 0; i < count; i++) {
        json_key_slice(json, slice_text(checks[i]->check_id));
        view_check(json, checks[i]);
    }
    json_object_end(json);
    http_reply_json(request, 200);
}

static void put_maintenance(struct http_request *request) {
    bool enable;
    if (!agent_parameter_enable(request, &enable)) return;
    local_node_maintenance(http_env(request)->local, enable, http_parameter(request, "reason"));
    agent_reply_synced(request);
}

/* ---- health of local services ---- */

static int code_of(const char *status) {
    return strcmp(status, "passing") == 0 ? 200 : strcmp(status, "warning") == 0 ? 429 : 503;
}

static bool wants_text(struct http_request *request) { return slice_is(http_parameter(request, "format"), "text"); }

static void reply_health(struct http_request *request, int code, const char *reason) {
    http_header(request, "X-Consul-Reason", reason);
    if (!wants_text(request)) {
        http_reply_json(request, code);
        return;
    }
    struct buffer *out = http_raw(request);
    buffer_reset(out);
    buffer_append_text(out, reason);
    http_reply_raw(request, code, "text/plain");
}

/* An id or name in a header: without what would end the header. */
static const char *one_line(struct http_request *request, const char *before, struct slice text, const char *after) {
    char *line = arena_printf(http_arena(request), "%s%.*s%s", before, (int)(text.size < 200 ? text.size : 200),
                              text.data, after);
    for (char *at = line; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
    }
    return line;
}

static void get_health_by_id(struct http_request *request) {
    struct slice id = http_path_value(request, "id");
    Pb__Service *service;
    Pb__Check **checks;
    size_t count;
    if (id.size == 0) {
        http_reply_text(request, 400, "Bad request: Missing serviceID");
        return;
    }
    if (!local_service(http_env(request)->local, id, http_arena(request), &service, &checks, &count)) {
        if (!wants_text(request)) agent_view_health(http_out(request), "critical", NULL, NULL, 0);
        reply_health(request, 404, one_line(request, "ServiceId ", id, " not found"));
        return;
    }
    const char *status = agent_worst_status(checks, count);
    if (!wants_text(request)) agent_view_health(http_out(request), status, service, checks, count);
    reply_health(request, code_of(status), status);
}

/* Worse comes later. */
static unsigned rank(const char *status) {
    static const char *const order[] = {"passing", "warning", "critical", "maintenance"};
    unsigned at = 0;
    while (strcmp(order[at], status) != 0) at++;
    return at;
}

static void get_health_by_name(struct http_request *request) {
    struct slice name = http_path_value(request, "name");
    struct local *local = http_env(request)->local;
    struct arena *arena = http_arena(request);
    const char *worst = NULL;
    Pb__Service **services;
    if (name.size == 0) {
        http_reply_text(request, 400, "Bad request: Missing service Name");
        return;
    }
    size_t count = local_services(local, arena, &services);
    bool text = wants_text(request);
    struct json_out *json = text ? NULL : http_out(request);
    if (!text) json_array(json);
    for (size_t i = 0; i < count; i++) {
        Pb__Service *service;
        Pb__Check **checks;
        size_t check_count;
        if (!slice_equal_nocase(name, slice_text(services[i]->name))) continue;
        if (!local_service(local, slice_text(services[i]->id), arena, &service, &checks, &check_count)) continue;
        const char *status = agent_worst_status(checks, check_count);
        if (!worst || rank(status) > rank(worst)) worst = status;
        if (!text) agent_view_health(json, status, service, checks, check_count);
    }
    if (!text) json_array_end(json);
    if (worst) {
        reply_health(request, code_of(worst), worst);
    } else {
        reply_health(request, 404, one_line(request, "ServiceName ", name, " Not Found"));
    }
}

#define ID \
    { "*id", HTTP_TEXT, .help = "the service's ID" }
#define NAME \
    { "*name", HTTP_TEXT, .help = "the service's name" }
#define FORMAT \
    { "format", HTTP_CHOICE, .choices = "text", .help = "text: the state alone, as a word; else JSON" }
const struct http_route http_routes_agent[] = {
    {HTTP_GET, "/v1/agent/self", get_self, "agent:read", NULL, "This agent: configuration, membership, figures",
     HTTP_LOCAL, .example = {.status = 200, .depth = 1}},
    {HTTP_GET, "/v1/agent/members", get_members, "node:read",
     HTTP_PARAMS({"wan", HTTP_FLAG, .help = "taken, and answered as without it"},
                 {"segment", HTTP_TEXT, .help = "taken, and answered as without it: there are no segments"}),
     "The members of the cluster that this agent knows", HTTP_LOCAL, .example = {.status = 200, .depth = 3}},
    {HTTP_GET, "/v1/agent/services", get_services, "service:read", HTTP_PARAMS(VIEW_FILTER),
     "Services registered with this agent", HTTP_LOCAL, .example = {.status = 200}},
    {HTTP_GET, "/v1/agent/checks", get_checks, "node:read", HTTP_PARAMS(VIEW_FILTER), "Checks of this agent",
     HTTP_LOCAL, .example = {.status = 200}},
    {HTTP_PUT, "/v1/agent/maintenance", put_maintenance, "node:write", HTTP_PARAMS(AGENT_ENABLE, AGENT_REASON),
     "Maintenance mode of this node, on or off", HTTP_LOCAL,
     .example = {"/v1/agent/maintenance?enable=false", .status = 200}},
    {HTTP_GET, "/v1/agent/health/service/id/*id", get_health_by_id, "service:read", HTTP_PARAMS(ID, FORMAT),
     "Health of one local service, also in the status code: 200 passing, 429 warning, 503 critical, 404 not there",
     HTTP_LOCAL, .example = {"/v1/agent/health/service/id/api?format=text", .status = 200}},
    {HTTP_GET, "/v1/agent/health/service/name/*name", get_health_by_name, "service:read", HTTP_PARAMS(NAME, FORMAT),
     "Health of all local instances of a name, also in the status code", HTTP_LOCAL,
     .example = {"/v1/agent/health/service/name/api?format=text", .status = 200}},
    {0},
};
