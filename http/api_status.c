/* /v1/status: who leads, who votes. A client agent without servers does not know: an error, as in Consul. */
#include "http/http.h"

static bool known(struct http_request *request, struct rpc_status *status) {
    rpc_status(http_env(request)->rpc, status);
    if (status->unreachable) http_reply_error(request, CO_NOLEADER);
    return !status->unreachable;
}

static void status_leader(struct http_request *request) {
    struct rpc_status status;
    if (!known(request, &status)) return;
    json_string(http_out(request), status.leader_address);
    http_reply_json(request, 200);
}

static void status_peers(struct http_request *request) {
    struct rpc_status status;
    if (!known(request, &status)) return;
    const char **addresses = NULL;
    size_t count = rpc_peers(http_env(request)->rpc, http_arena(request), &addresses);
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < count; i++) json_string(json, addresses[i]);
    json_array_end(json);
    http_reply_json(request, 200);
}

const struct http_route http_routes_status[] = {
    {HTTP_GET, "/v1/status/leader", status_leader, "status:read", HTTP_PARAMS(HTTP_DC),
     "Address of the server that leads, or an empty string", 0, .example = {.status = 200}},
    {HTTP_GET, "/v1/status/peers", status_peers, "status:read", HTTP_PARAMS(HTTP_DC),
     "Addresses of the servers that vote", 0, .example = {.status = 200}},
    {0},
};
