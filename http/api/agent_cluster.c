/* /v1/agent: joining, leaving, forcing others to leave, reloading the configuration. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "http/api/operator_views.h"
#include "http/api/topics.h"
#include "http/api/trust_views.h"
#include "http/http.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "registry/operator_queries.h"
#include "registry/trust.h"

/* -- requests to this process ------------------------------------------------------------------------------------- */
struct acting {
    struct http_call call;
    struct http_control act;
    char said[2048]; /* the warnings, in one line */
};

/* Loop thread. */
static void act_done(struct http_control *act, int error) {
    struct acting *acting = CONTAINER_OF(act, struct acting, act);
    size_t size = 0;
    for (const char **line = act->warnings; line && *line && size < sizeof acting->said; line++)
        size += (size_t)snprintf(acting->said + size, sizeof acting->said - size, "%s%s", size ? "; " : "", *line);
    http_called(&CONTAINER_OF(act, struct acting, act)->call, error);
}

static void view_act(struct http_request *request, struct http_call *call, int error) {
    const struct acting *acting = CONTAINER_OF(call, struct acting, call);
    const char *text = acting->said[0]             ? acting->said
                       : acting->act.fault.text[0] ? acting->act.fault.text
                                                   : co_strerror(error);
    if (error) http_reply_text(request, 500, "%s", text);
    else if (acting->act.kind == HTTP_CONTROL_LEAVE) http_reply_text(request, 200, "%s", acting->act.fault.text);
    else http_reply_text(request, 200, "%s", acting->said);
}

static void act(struct http_request *request, enum http_control_kind kind, const char *address) {
    const struct http_env *env = http_env(request);
    struct acting *acting = arena_zalloc(http_arena(request), sizeof *acting);
    acting->call.view = view_act;
    acting->act.kind = kind, acting->act.address = address, acting->act.done = act_done;
    http_call(request, &acting->call);
    env->act(env->act_data, &acting->act);
}

static void put_join(struct http_request *request) {
    struct slice address = http_path_value(request, "address");
    bool wan = slice_is(http_parameter(request, "wan"), "1");
    act(request, wan ? HTTP_CONTROL_JOIN_WAN : HTTP_CONTROL_JOIN,
        arena_strndup(http_arena(request), address.data, address.size));
}

static void put_leave(struct http_request *request) { act(request, HTTP_CONTROL_LEAVE, NULL); }
static void put_reload(struct http_request *request) { act(request, HTTP_CONTROL_RELOAD, NULL); }

/* -- others leave ------------------------------------------------------------------------------------------------- A
 * node whose agent lives stays, as with Consul, where its agent would undo it at once. A failed node is removed with
 * everything on it, and shown as `left`; a server is removed from Raft's configuration first. The status is 200 in both
 * cases, as in Consul; the body, which Consul does not have, says what was done.
 *
 * In a closed cluster ?prune also removes the node's certificate. Then it cannot come back, so it goes although its
 * agent lives. Its record is removed when its connection has ended, because it would register itself anew before. */
#define CUT_MS 500 /* servers end the connections of a removed node well within this time */

struct forcing {
    const Pb__Member *member; /* NULL: the catalog has none of that name */
    bool server;              /* it was removed from Raft's configuration */
    bool dead;                /* the leader is not connected with it, though its lease may stand yet */
    /* ?prune: it has a certificate in this role, which is to be removed; `removed`: it was */
    bool as_agent, as_server, removed;
    struct http_ticket *ticket;
};

static struct forcing *forcing_of(struct http_request *request) {
    return (struct forcing *)(uintptr_t)http_context(request);
}

static char *name_of(struct http_request *request) {
    struct slice name = http_path_value(request, "node");
    return arena_strndup(http_arena(request), name.data, name.size);
}

static void reply_left(struct http_request *request, bool left, const char *did) {
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Node"), json_string(json, name_of(request));
    json_key(json, "Left"), json_bool(json, left);
    json_key(json, "Did"), json_string(json, did);
    json_object_end(json);
    http_reply_json(request, 200);
}

static void reply_alive(struct http_request *request) {
    reply_left(
        request, false,
        "nothing: it is alive and would come back at once. `coord leave` on it makes it leave; what has died can "
        "be made to leave once it is failed");
}

static bool prunes(struct http_request *request) { return http_has(request, "prune"); }

static const char out_of_raft[] =
    "its server is out of Raft's configuration, and comes back with an empty data folder only";
static const char counts_no_more[] = "its certificate counts no more: it comes back with a join token only";

static const char *with_certificate(struct http_request *request, const struct forcing *forcing, const char *did) {
    return forcing->removed ? arena_printf(http_arena(request), "%s; %s", did, counts_no_more) : did;
}

static void node_left(struct http_request *request, const struct machine_result *result) {
    const struct forcing *forcing = http_context(request);
    const char *list = prunes(request) ? "it is listed no more" : "it is listed as left", *did = list;
    if (result->error == CO_CONFLICT && !forcing->removed) {
        reply_alive(request);
        return;
    }
    if (result->error) {
        http_reply_result(request, result);
        return;
    }
    if (!result->yes)
        did = forcing->server    ? out_of_raft
              : forcing->removed ? "it had left, or was removed, before"
                                 : "nothing: it had left, or was removed, before";
    else if (forcing->member && !forcing->member->left)
        did = arena_printf(http_arena(request), "its node, services, checks and sessions are removed; %s%s%s", list,
                           forcing->server ? "; " : "", forcing->server ? out_of_raft : "");
    reply_left(request, true, with_certificate(request, forcing, did));
}

static void leave_catalog(struct http_request *request) {
    const struct forcing *forcing = forcing_of(request);
    if (!forcing->member) {
        reply_left(request, true, forcing->server ? with_certificate(request, forcing, out_of_raft) : counts_no_more);
        return;
    }
    Pb__NodeLeaveCommand *command = arena_alloc(http_arena(request), sizeof *command);
    pb__node_leave_command__init(command);
    command->node = forcing->member->name;
    command->dead = forcing->dead || forcing->removed, command->prune = prunes(request);
    http_write(request, NODE_LEAVE, &command->base, node_left);
}

static void cut(struct http_request *request, int error) {
    (void)error; /* always CO_TIMEOUT */
    http_deferred(forcing_of(request)->ticket, CO_OK);
    leave_catalog(request);
}

/* -- its certificates, one role after the other */
static void remove_certificate(struct http_request *request);

static void certificate_removed(struct http_request *request, int error, const struct rpc_trust *trust,
                                const void *context) {
    (void)context;
    if (error) {
        http_refuse_trust(request, error, trust);
        return;
    }
    forcing_of(request)->removed = true;
    remove_certificate(request);
}

static void remove_certificate(struct http_request *request) {
    struct forcing *forcing = forcing_of(request);
    struct rpc_trust trust = {.verb = RPC_NODE_REMOVE, .node = name_of(request), .server = forcing->as_server};
    if (forcing->as_server) forcing->as_server = false;
    else if (forcing->as_agent) forcing->as_agent = false;
    else if (forcing->removed && forcing->member) {
        forcing->ticket = http_defer(request, CUT_MS, cut);
        return;
    } else {
        leave_catalog(request);
        return;
    }
    http_ask_trust(request, &trust, certificate_removed, NULL);
}

static void server_removed(struct http_request *request, const void *context) {
    http_set_context(request, context);
    remove_certificate(request);
}

static const struct rpc_server_state *server_named(const struct rpc_cluster_state *state, struct slice name) {
    for (size_t i = 0; i < state->count; i++)
        if (state->servers[i].node[0] && slice_equal_nocase(name, slice_text(state->servers[i].node)))
            return &state->servers[i];
    return NULL;
}

/* Only the leader can tell which servers have failed, because another server may be cut off from them itself. */
static void view_force_leave(struct http_request *request, int error, const struct rpc_cluster_state *state,
                             const void *context) {
    struct forcing *forcing = (struct forcing *)(uintptr_t)context;
    const Pb__Member *member = forcing->member;
    struct slice name = http_path_value(request, "node");
    if (error) {
        http_reply_error(request, error);
        return;
    }
    /* Another agent, which lives, may have taken the name of a dead server: then the node stays. */
    const struct rpc_server_state *server = member && !member->left ? http_server_of(state, member) : NULL;
    bool refused = forcing->as_agent || forcing->as_server; /* from now on */
    bool goes = member && (server || member->failed || member->left || refused);
    forcing->dead = server && !server->connected;
    if (!server) server = server_named(state, name);
    forcing->server = server && (!server->connected || refused);
    struct rpc_change change = {.type = RPC_REMOVE_SERVER, .id = server ? server->id : 0};
    if (!member && !server && !refused) {
        http_reply_text(request, 500, "agent: No node found with name '%.*s'", (int)(name.size < 150 ? name.size : 150),
                        name.data);
        return;
    }
    http_set_context(request, forcing);
    if (!goes) forcing->member = NULL;
    if (forcing->server) http_change_cluster(request, &change, server_removed, forcing);
    else if (!server && (goes || refused)) remove_certificate(request);
    else reply_alive(request);
}

static void members_known(struct http_request *request, int error, const struct query_result *result) {
    struct slice name = http_path_value(request, "node");
    struct forcing *forcing = forcing_of(request);
    const Pb__MembersResult *known = error ? NULL : (const Pb__MembersResult *)result->message;
    for (size_t i = 0; known && i < known->n_members; i++)
        if (slice_equal_nocase(name, slice_text(known->members[i]->name))) forcing->member = known->members[i];
    if (error) http_reply_error(request, error);
    else http_ask_cluster(request, true, view_force_leave, forcing);
}

static void read_members(struct http_request *request) {
    Pb__TableRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__table_request__init(message);
    http_read_once(request, &query_all_members, &message->base, RPC_DEFAULT, members_known);
}

static void certificates_known(struct http_request *request, int error, const struct query_result *result) {
    struct forcing *forcing = forcing_of(request);
    if (error) {
        http_reply_error(request, error);
        return;
    }
    struct trust_names names = trust_names_of(http_arena(request), (const Pb__CertificatesResult *)result->message);
    const char *name = name_of(request);
    bool here = slice_equal_nocase(slice_text(name), slice_text(http_env(request)->node_name));
    if (!here) forcing->as_agent = trust_has(&names, false, name), forcing->as_server = trust_has(&names, true, name);
    read_members(request);
}

static void put_force_leave(struct http_request *request) {
    http_set_context(request, arena_zalloc(http_arena(request), sizeof(struct forcing)));
    if (!prunes(request)) {
        read_members(request);
        return;
    }
    Pb__CertificatesRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__certificates_request__init(message);
    http_read_once(request, &query_certificates, &message->base, RPC_DEFAULT, certificates_known);
}

const struct http_route http_routes_agent_cluster[] = {
    {HTTP_PUT, "/v1/agent/join/*address", put_join, "agent:write of this agent",
     HTTP_PARAMS({"*address", HTTP_TEXT, .help = "of a member: IP, host name, with or without a port"},
                 {"wan", HTTP_CHOICE, .choices = "1",
                  .help = "the address is of a server of another region, and this agent a server"}),
     "One more address to join the cluster, or with ?wan=1 another region, by", HTTP_LOCAL,
     .no_example = "it needs a second agent"},
    {HTTP_PUT, "/v1/agent/reload", put_reload, "agent:write of this agent", NULL,
     "Reads the configuration files again; the answer names keys that differ and count only after a restart",
     HTTP_LOCAL, .example = {.status = 200}},
    {HTTP_PUT, "/v1/agent/force-leave/*node", put_force_leave, "operator:write",
     HTTP_PARAMS({"*node", HTTP_TEXT, .help = "the node's name"},
                 {"prune", HTTP_FLAG, .help = "it is not listed as left either; and its certificate counts no more"}),
     "Has a node leave whose agent has failed", HTTP_LOCAL, .no_example = "it needs a node whose agent has failed"},
    {HTTP_PUT, "/v1/agent/leave", put_leave, "agent:write of this agent", NULL, "Leaves the cluster in order, and ends",
     HTTP_LOCAL, .no_example = "it ends the agent"},
    {0},
};
