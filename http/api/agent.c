/* /v1/agent: the identity of this agent, and its own services and checks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "health/local.h"
#include "http/api/agent_access.h"
#include "http/api/agent_views.h"
#include "http/api/members.h"
#include "http/api/topics.h"
#include "http/api/views.h"
#include "http/http.h"
#include "rpc/api/access_control.h"
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
    pair(json, "acl", rpc_access_controlled(env->rpc) ? "enabled" : "disabled");
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
                status.voters - (status.is_voter && status.voters)); /* as in Consul: the number of other voters */
    pair_number(json, "recovered_index", status.recovered_index);
    pair(json, "state", status.is_leader ? "Leader" : status.known_leader ? "Follower" : "Candidate");
    pair_number(json, "term", status.term);
    pair_bool(json, "voter", status.is_voter);
    json_object_end(json);
}

/* In the words of the line that the agent logs when it starts. */
static void stats_protection(struct json_out *json, const struct http_env *env) {
    struct http_protection protection = {0};
    if (!env->protection) return;
    env->protection(env->protection_data, &protection);
    json_key(json, "tls");
    json_object(json);
    json_key(json, "not_protected"), json_slice(json, buffer_slice(&protection.open));
    json_key(json, "protected"), json_slice(json, buffer_slice(&protection.safe));
    json_object_end(json);
    buffer_free(&protection.safe);
    buffer_free(&protection.open);
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
    stats_protection(json, env);
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
    members_write_own(json, env);
    self_stats(json, request);
    json_key(json, "Meta");
    view_pairs(json, node->meta, node->n_meta);
    json_object_end(json);
    http_reply_json(request, 200);
}

/* ---- local services and checks ---- */

static void get_services(struct http_request *request) {
    Pb__Service **services;
    if (!view_no_filter(request)) return;
    size_t count = local_services(http_env(request)->local, http_arena(request), &services);
    struct json_out *json = http_out(request);
    json_object(json);
    for (size_t i = 0; i < count; i++) {
        if (!http_shows(request, ACCESS_SERVICE, slice_text(services[i]->name))) continue;
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
        if (!agent_shows_check(request, checks[i])) continue;
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

/* The state counts all checks; shown are those that may be read. */
static size_t shown_checks(struct http_request *request, Pb__Check **checks, size_t count) {
    size_t shown = 0;
    for (size_t i = 0; i < count; i++)
        if (agent_shows_check(request, checks[i])) checks[shown++] = checks[i];
    return shown;
}

/* An id or name for a header, without characters that would end the header. */
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
    if (!agent_may_service(request, id, ACCESS_READ)) return;
    if (!local_service(http_env(request)->local, id, http_arena(request), &service, &checks, &count)) {
        if (!wants_text(request)) agent_view_health(http_out(request), "critical", NULL, NULL, 0);
        reply_health(request, 404, one_line(request, "ServiceId ", id, " not found"));
        return;
    }
    const char *status = agent_worst_status(checks, count);
    if (!wants_text(request))
        agent_view_health(http_out(request), status, service, checks, shown_checks(request, checks, count));
    reply_health(request, code_of(status), status);
}

/* A higher rank is worse. */
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
        if (!text) agent_view_health(json, status, service, checks, shown_checks(request, checks, check_count));
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
    {HTTP_GET, "/v1/agent/self", get_self, "agent:read of this agent", NULL,
     "This agent: configuration, membership, figures", HTTP_LOCAL, .example = {.status = 200, .depth = 1}},
    {HTTP_GET, "/v1/agent/members", members_get, "node:read rows",
     HTTP_PARAMS({"wan", HTTP_FLAG, .help = "the servers of all regions, as NAME.REGION"},
                 {"segment", HTTP_TEXT, .help = "taken, and answered as without it: there are no segments"}),
     "The members of the cluster, or of all regions the servers", HTTP_LOCAL, .example = {.status = 200, .depth = 3}},
    {HTTP_GET, "/v1/agent/services", get_services, "service:read rows", HTTP_PARAMS(VIEW_FILTER),
     "Services registered with this agent", HTTP_LOCAL, .example = {.status = 200}},
    {HTTP_GET, "/v1/agent/checks", get_checks, "service:read rows", HTTP_PARAMS(VIEW_FILTER), "Checks of this agent",
     HTTP_LOCAL, .example = {.status = 200}},
    {HTTP_PUT, "/v1/agent/maintenance", put_maintenance, "node:write of this agent",
     HTTP_PARAMS(AGENT_ENABLE, AGENT_REASON), "Maintenance mode of this node, on or off", HTTP_LOCAL,
     .example = {"/v1/agent/maintenance?enable=false", .status = 200}},
    {HTTP_GET, "/v1/agent/health/service/id/*id", get_health_by_id, "service:read", HTTP_PARAMS(ID, FORMAT),
     "Health of one local service, also in the status code: 200 passing, 429 warning, 503 critical, 404 not there",
     HTTP_LOCAL, .example = {"/v1/agent/health/service/id/api?format=text", .status = 200}},
    {HTTP_GET, "/v1/agent/health/service/name/*name", get_health_by_name, "service:read of *name",
     HTTP_PARAMS(NAME, FORMAT), "Health of all local instances of a name, also in the status code", HTTP_LOCAL,
     .example = {"/v1/agent/health/service/name/api?format=text", .status = 200}},
    {0},
};
