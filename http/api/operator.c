/* /v1/operator: the members of the cluster, removing one, transferring the leadership, autopilot and its health. Any
 * server answers: it asks the leader when only that knows. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/text.h"
#include "http/api/operator_views.h"
#include "http/api/topics.h"
#include "http/api/trust_views.h"
#include "http/http.h"
#include "registry/operator.h"
#include "registry/trust.h"
#include "rpc/api/operator.h"

static void id_string(struct json_out *json, uint64_t id) {
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)id);
    json_string(json, text);
}

/* -- raft: configuration ------------------------------------------------------------------------------------------ */
static void raft_server(struct json_out *json, const struct rpc_server_state *server) {
    json_object(json);
    json_key(json, "ID"), id_string(json, server->id);
    json_key(json, "Node"), json_string(json, server->node[0] ? server->node : "(unknown)");
    json_key(json, "Address"), json_string(json, server->address);
    json_key(json, "Leader"), json_bool(json, server->leader);
    json_key(json, "ProtocolVersion"), json_string(json, "3");
    json_key(json, "Voter"), json_bool(json, server->voter);
    json_object_end(json);
}

static void view_raft(struct http_request *request, int error, const struct rpc_cluster_state *state,
                      const void *context) {
    (void)context;
    if (error) {
        http_reply_error(request, error);
        return;
    }
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Servers");
    json_array(json);
    for (size_t i = 0; i < state->count; i++) raft_server(json, &state->servers[i]);
    json_array_end(json);
    json_key(json, "Index"), json_u64(json, state->index);
    if (state->waiting) json_key(json, "Waiting"), json_string(json, state->waiting);
    json_object_end(json);
    http_reply_json(request, 200);
}

static void get_raft(struct http_request *request) {
    http_ask_cluster(request, !http_has(request, "stale"), view_raft, NULL);
}

/* -- raft: changes ------------------------------------------------------------------------------------------------ */
/* Facts about a server, read before it is removed. */
struct removing {
    struct rpc_change change;
    char *node;  /* NULL: unknown */
    bool closed; /* the cluster has certificates */
};

static void view_certificate(struct http_request *request, int error, const struct rpc_trust *trust,
                             const void *context) {
    (void)context;
    if (error) http_refuse_trust(request, error, trust);
    else http_reply_text(request, 200, "%s", "");
}

/* The server's certificate counts no more. */
static void view_removed(struct http_request *request, const void *context) {
    const struct removing *removing = context;
    struct rpc_trust trust = {.verb = RPC_NODE_REMOVE, .server = true, .node = removing->node};
    if (!removing->closed) http_reply_text(request, 200, "%s", "");
    else if (!removing->node || http_region(request)[0])
        http_reply_text(request, 200,
                        "its certificate still counts, because %s: `coord force-leave -prune NAME` ends that",
                        removing->node ? "it is of another region" : "the name of its node is not known");
    else http_ask_trust(request, &trust, view_certificate, NULL);
}

static void view_transferred(struct http_request *request, const void *context) {
    (void)context;
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Success"), json_bool(json, true);
    json_object_end(json);
    http_reply_json(request, 200);
}

/* An id as we print it; false: it has replied. */
static bool parse_id(struct http_request *request, struct slice text, uint64_t *id) {
    *id = 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        int digit = c >= '0' && c <= '9'                     ? c - '0'
                    : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                             : -1;
        if (digit < 0 || text.size > 16) {
            http_reply_text(request, 400, "id: not the id of a server (16 hexadecimal digits)");
            return false;
        }
        *id = *id * 16 + (uint64_t)digit;
    }
    if (text.size && *id == 0) http_reply_text(request, 400, "id: no server has the id 0");
    return !text.size || *id != 0;
}

static void server_known(struct http_request *request, int error, const struct rpc_cluster_state *state,
                         const void *context) {
    struct removing *removing = (struct removing *)(uintptr_t)context;
    const struct rpc_change *change = &removing->change;
    for (size_t i = 0; !error && i < state->count; i++) {
        const struct rpc_server_state *server = &state->servers[i];
        bool it = change->id ? server->id == change->id : strcmp(server->address, change->address) == 0;
        if (it && server->node[0])
            removing->node = arena_strndup(http_arena(request), server->node, strlen(server->node));
    }
    if (error) http_reply_error(request, error);
    else http_change_cluster(request, change, view_removed, removing);
}

static void trust_known(struct http_request *request, int error, const struct query_result *result) {
    struct removing *removing = (struct removing *)(uintptr_t)http_context(request);
    if (!error) removing->closed = result->found;
    if (error) http_reply_error(request, error);
    else if (removing->closed) http_ask_cluster(request, true, server_known, removing);
    else http_change_cluster(request, &removing->change, view_removed, removing);
}

static void change_servers(struct http_request *request, bool removal) {
    struct slice id = http_parameter(request, "id"), address = http_parameter(request, "address");
    struct rpc_change change = {.type = removal ? RPC_REMOVE_SERVER : RPC_TRANSFER_LEADER};
    if (!parse_id(request, id, &change.id)) return;
    if (removal && !id.size && !address.size) {
        http_reply_text(request, 400,
                        "Must specify either ?id with the server's ID or ?address with IP:port of peer to remove");
        return;
    }
    if (id.size && address.size) {
        http_reply_text(request, 400, "Must specify only one of ?id or ?address");
        return;
    }
    if (address.size >= sizeof change.address) {
        http_reply_text(request, 400, "address: too long");
        return;
    }
    if (address.size) memcpy(change.address, address.data, address.size);
    if (!removal) {
        http_change_cluster(request, &change, view_transferred, NULL);
        return;
    }
    struct removing *removing = arena_zalloc(http_arena(request), sizeof *removing);
    Pb__TrustRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__trust_request__init(message);
    removing->change = change;
    http_set_context(request, removing);
    http_read_once(request, &query_trust, &message->base, RPC_DEFAULT, trust_known);
}

static void delete_peer(struct http_request *request) { change_servers(request, true); }
static void put_transfer(struct http_request *request) { change_servers(request, false); }

/* -- autopilot: configuration ------------------------------------------------------------------------------------- */
static void duration(struct http_request *request, struct json_out *json, int64_t nanoseconds) {
    struct buffer text = {0};
    duration_format(&text, nanoseconds);
    json_string(json, arena_strndup(http_arena(request), text.data, text.size));
    buffer_free(&text);
}

static int view_autopilot(struct http_request *request, const struct query_result *result) {
    const Pb__AutopilotConfig *config = (const Pb__AutopilotConfig *)result->message;
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "CleanupDeadServers"), json_bool(json, config->cleanup_dead_servers);
    json_key(json, "LastContactThreshold"), duration(request, json, config->last_contact_threshold_ns);
    json_key(json, "MaxTrailingLogs"), json_u64(json, config->max_trailing_logs);
    json_key(json, "MinQuorum"), json_u64(json, config->min_quorum);
    json_key(json, "ServerStabilizationTime"), duration(request, json, config->server_stabilization_ns);
    json_key(json, "RedundancyZoneTag"), json_string(json, "");
    json_key(json, "DisableUpgradeMigration"), json_bool(json, false);
    json_key(json, "UpgradeVersionTag"), json_string(json, "");
    json_key(json, "CreateIndex"), json_u64(json, config->create_index);
    json_key(json, "ModifyIndex"), json_u64(json, config->modify_index);
    json_object_end(json);
    return 200;
}

static void get_autopilot(struct http_request *request) {
    Pb__AutopilotRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__autopilot_request__init(message);
    http_read(request, &query_autopilot, &message->base, view_autopilot);
}

/* A member that is left out gets its default; Consul 1.8 sets it to zero (with thresholds of 0s no server would be
 * healthy). Features of Consul's enterprise edition are refused. */
static bool parse_autopilot(struct json_object *json, Pb__AutopilotConfig *config, struct fault *fault) {
    static const char *const known[] = {"CleanupDeadServers",
                                        "LastContactThreshold",
                                        "MaxTrailingLogs",
                                        "MinQuorum",
                                        "ServerStabilizationTime",
                                        "RedundancyZoneTag",
                                        "DisableUpgradeMigration",
                                        "UpgradeVersionTag",
                                        "CreateIndex",
                                        "ModifyIndex",
                                        NULL};
    const char *zone = "", *version = "";
    bool disable = false;
    json_only_known(json, known, fault);
    bool cleanup = config->cleanup_dead_servers;
    json_get_bool(json, "CleanupDeadServers", &cleanup, fault);
    config->cleanup_dead_servers = cleanup;
    json_get_duration(json, "LastContactThreshold", &config->last_contact_threshold_ns, fault);
    json_get_u64(json, "MaxTrailingLogs", UINT64_MAX, &config->max_trailing_logs, fault);
    json_get_u64(json, "MinQuorum", 15, &config->min_quorum, fault);
    json_get_duration(json, "ServerStabilizationTime", &config->server_stabilization_ns, fault);
    json_get_string(json, "RedundancyZoneTag", &zone, fault);
    json_get_bool(json, "DisableUpgradeMigration", &disable, fault);
    json_get_string(json, "UpgradeVersionTag", &version, fault);
    if (zone[0]) fault_set(fault, CO_INVALID, "RedundancyZoneTag: there are no redundancy zones in this version");
    if (version[0]) fault_set(fault, CO_INVALID, "UpgradeVersionTag: there are no upgrade migrations in this version");
    if (config->last_contact_threshold_ns < 0 || config->server_stabilization_ns < 0)
        fault_set(fault, CO_INVALID, "a duration is negative");
    return fault->code == CO_OK;
}

static void put_autopilot(struct http_request *request) {
    Pb__AutopilotSetCommand *command = arena_alloc(http_arena(request), sizeof *command);
    pb__autopilot_set_command__init(command);
    command->config = arena_alloc(http_arena(request), sizeof *command->config);
    operator_autopilot_default(command->config);
    struct json_object *json = http_json(request);
    if (!json) return;
    struct fault fault = {0};
    if (!parse_autopilot(json, command->config, &fault)) {
        http_reply_text(request, 400, "Error parsing autopilot config: %s", fault.text);
        return;
    }
    command->has_cas = http_has(request, "cas");
    if (!http_parameter_u64(request, "cas", &command->cas)) return;
    http_write(request, OPERATOR_AUTOPILOT, &command->base, NULL);
}

/* -- autopilot: health -------------------------------------------------------------------------------------------- */
static bool healthy(const struct rpc_cluster_state *state, const struct rpc_server_state *server, uint64_t last_index,
                    const Pb__AutopilotConfig *config) {
    if (server->unhealthy) return false;
    if (server->stable_ms == UINT64_MAX && server->leader && state->here_leads) return true;
    bool near = last_index <= server->match || last_index - server->match <= config->max_trailing_logs;
    return server->connected && near &&
           server->last_contact_ms <= (uint64_t)config->last_contact_threshold_ns / 1000000;
}

static void health_server(struct http_request *request, struct json_out *json, const struct rpc_server_state *server,
                          bool good) {
    json_object(json);
    json_key(json, "ID"), id_string(json, server->id);
    json_key(json, "Name"), json_string(json, server->node);
    json_key(json, "Address"), json_string(json, server->address);
    json_key(json, "SerfStatus"), json_string(json, server->connected ? "alive" : "failed");
    json_key(json, "Version"), json_string(json, http_env(request)->consul_version);
    json_key(json, "CoordVersion"), json_string(json, server->build);
    json_key(json, "Leader"), json_bool(json, server->leader);
    uint64_t contact_ms = server->last_contact_ms > 1000000000 ? 1000000000 : server->last_contact_ms;
    json_key(json, "LastContact"), duration(request, json, (int64_t)contact_ms * 1000000);
    json_key(json, "LastTerm"), json_u64(json, server->last_term);
    json_key(json, "LastIndex"), json_u64(json, server->last_index);
    json_key(json, "Healthy"), json_bool(json, good);
    json_key(json, "Voter"), json_bool(json, server->voter);
    time_t since = time(NULL) - (server->stable_ms == UINT64_MAX ? 0 : (time_t)(server->stable_ms / 1000));
    char text[32] = "";
    struct tm tm;
    if (gmtime_r(&since, &tm)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_key(json, "StableSince"), json_string(json, text);
    json_object_end(json);
}

static void view_health(struct http_request *request, int error, const struct rpc_cluster_state *state,
                        const void *context) {
    const Pb__AutopilotConfig *config = context;
    if (error) {
        http_reply_error(request, error);
        return;
    }
    uint64_t last_index = 0;
    size_t voters = 0, good_voters = 0, good_all = 0;
    for (size_t i = 0; i < state->count; i++)
        if (state->servers[i].leader) last_index = state->servers[i].last_index;
    for (size_t i = 0; i < state->count; i++) {
        bool good = healthy(state, &state->servers[i], last_index, config);
        voters += state->servers[i].voter, good_voters += state->servers[i].voter && good, good_all += good;
    }
    size_t quorum = voters / 2 + 1;
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Healthy"), json_bool(json, good_all == state->count);
    json_key(json, "FailureTolerance"), json_u64(json, good_voters > quorum ? good_voters - quorum : 0);
    json_key(json, "Servers");
    json_array(json);
    for (size_t i = 0; i < state->count; i++)
        health_server(request, json, &state->servers[i], healthy(state, &state->servers[i], last_index, config));
    json_array_end(json);
    json_object_end(json);
    http_reply_json(request, good_all == state->count ? 200 : 429);
}

/* Health needs settings and state: the settings are read first, and stay in the arena. */
static void health_settings(struct http_request *request, int error, const struct query_result *result) {
    if (error) http_reply_error(request, error);
    else http_ask_cluster(request, true, view_health, result->message);
}

static void get_health(struct http_request *request) {
    Pb__AutopilotRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__autopilot_request__init(message);
    http_read_once(request, &query_autopilot, &message->base, RPC_STALE, health_settings);
}

const struct http_route http_routes_operator[] = {
    {HTTP_GET, "/v1/operator/raft/configuration", get_raft, "operator:read",
     HTTP_PARAMS(HTTP_DC, {"stale", HTTP_FLAG, .help = "from the asked server's own state"}),
     "The servers of the cluster, as Raft counts them", 0, .example = {.status = 200}},
    {HTTP_DELETE, "/v1/operator/raft/peer", delete_peer, "operator:write",
     HTTP_PARAMS(HTTP_DC, {"id", HTTP_TEXT, .help = "the server's ID: 16 hexadecimal digits"},
                 {"address", HTTP_TEXT, .help = "in place of id: its IP:port"}),
     "Removes a server, and its certificate; it is not taken in again with its data folder", 0,
     .no_example = "it removes a server"},
    {HTTP_PUT | HTTP_POST, "/v1/operator/raft/transfer-leader", put_transfer, "operator:write",
     HTTP_PARAMS(HTTP_DC, {"id", HTTP_TEXT, .help = "of the server that is to lead"},
                 {"address", HTTP_TEXT, .help = "in place of id: its IP:port"}),
     "Hands leadership to the named server, or to the one that is furthest", 0,
     .no_example = "it needs a second server"},
    {HTTP_GET, "/v1/operator/autopilot/configuration", get_autopilot, "operator:read", HTTP_PARAMS(HTTP_READS),
     "When a server counts as healthy", 0, .example = {.status = 200}},
    {HTTP_PUT, "/v1/operator/autopilot/configuration", put_autopilot, "operator:write",
     HTTP_PARAMS(HTTP_DC, {"cas", HTTP_U64, .help = "only while the ModifyIndex of the settings is this"}),
     "Sets when a server counts as healthy; what is not named gets its default", 0,
     .example = {.body = "{\"LastContactThreshold\":\"300ms\"}", .status = 200}},
    {HTTP_GET, "/v1/operator/autopilot/health", get_health, "operator:read", HTTP_PARAMS(HTTP_DC),
     "Is each server healthy; 429 when one is not", 0, .example = {.status = 200}},
    {0},
};
