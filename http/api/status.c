/* /v1/status: the leader and the voters. A client agent without servers does not know them: an error, as in Consul.
 *
 * Clients send this first to an agent that has just started, so the answer waits a little for a leader to be elected.
 * When there has been none for longer, it is given at once, because operators monitor clusters with it. */
#include "http/api/operator_views.h"
#include "http/api/topics.h"
#include "http/http.h"

#define WAIT_MOST_MS  1000 /* of one request */
#define LEADERLESS_MS 2000 /* of the cluster: after this time no request waits */
#define LOOK_MS       5

static bool known(struct http_request *request, struct rpc_status *status) {
    rpc_status(http_env(request)->rpc, status);
    if (status->unreachable) http_reply_error(request, CO_NOLEADER);
    return !status->unreachable;
}

static bool may_come(const struct rpc_status *status, uint64_t waited_ms) {
    return waited_ms < WAIT_MOST_MS && status->leaderless_ms < LEADERLESS_MS;
}

static void reply_leader(struct http_request *request, uint64_t waited_ms) {
    struct rpc_status status;
    if (!known(request, &status)) return;
    if (!status.leader_address[0] && may_come(&status, waited_ms)) {
        http_look_again(request, LOOK_MS, reply_leader);
        return;
    }
    json_string(http_out(request), status.leader_address);
    http_reply_json(request, 200);
}

static void reply_peers(struct http_request *request, uint64_t waited_ms) {
    struct rpc_status status;
    if (!known(request, &status)) return;
    const char **addresses = NULL;
    size_t count = rpc_peers(http_env(request)->rpc, http_arena(request), &addresses);
    if (!count && may_come(&status, waited_ms)) {
        http_look_again(request, LOOK_MS, reply_peers);
        return;
    }
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < count; i++) json_string(json, addresses[i]);
    json_array_end(json);
    http_reply_json(request, 200);
}

/* -- of another region -------------------------------------------------------------------------------------------- */
static void view_leader(struct http_request *request, int error, const struct rpc_cluster_state *state,
                        const void *context) {
    (void)context;
    if (error) {
        http_reply_error(request, error);
        return;
    }
    json_string(http_out(request), state->leader_address);
    http_reply_json(request, 200);
}

static void view_peers(struct http_request *request, int error, const struct rpc_cluster_state *state,
                       const void *context) {
    (void)context;
    if (error) {
        http_reply_error(request, error);
        return;
    }
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < state->count; i++)
        if (state->servers[i].voter) json_string(json, state->servers[i].address);
    json_array_end(json);
    http_reply_json(request, 200);
}

static void status_leader(struct http_request *request) {
    if (http_region(request)[0]) http_ask_cluster(request, false, view_leader, NULL);
    else reply_leader(request, 0);
}

static void status_peers(struct http_request *request) {
    if (http_region(request)[0]) http_ask_cluster(request, false, view_peers, NULL);
    else reply_peers(request, 0);
}

const struct http_route http_routes_status[] = {
    {HTTP_GET, "/v1/status/leader", status_leader, "none: who leads is known to all", HTTP_PARAMS(HTTP_DC),
     "Address of the server that leads, or an empty string", 0, .example = {.status = 200}},
    {HTTP_GET, "/v1/status/peers", status_peers, "none: who leads is known to all", HTTP_PARAMS(HTTP_DC),
     "Addresses of the servers that vote", 0, .example = {.status = 200}},
    {0},
};
