/* PUT /v1/agent/token: the tokens of this agent, set while it runs (agent/agent_tokens.h). */
#include "base/check.h"
#include "http/api/topics.h"
#include "http/http.h"
#include "rpc/api/access_control.h"

static const struct {
    const char *name;
    enum http_agent_token token;
} names[] = {
    {"default", HTTP_AGENT_TOKEN_DEFAULT},
    {"agent", HTTP_AGENT_TOKEN_AGENT},
    {"agent_master", HTTP_AGENT_TOKEN_MASTER},
    {"master", HTTP_AGENT_TOKEN_MASTER},
    /* of older clients */
    {"acl_token", HTTP_AGENT_TOKEN_DEFAULT},
    {"acl_agent_token", HTTP_AGENT_TOKEN_AGENT},
    {"acl_agent_master_token", HTTP_AGENT_TOKEN_MASTER},
};

static bool find(struct slice name, enum http_agent_token *token) {
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        *token = names[i].token;
        if (slice_is(name, names[i].name)) return true;
    }
    return false;
}

/* The secret of the body, "" takes the token back. False: it has replied. */
static bool secret_read(struct http_request *request, struct slice *secret) {
    static const char *const known[] = {"Token", NULL};
    struct fault fault = {0};
    struct json_object *json = http_json(request);
    *secret = slice_make("", 0);
    if (!json) return false;
    json_only_known(json, known, &fault);
    json_get_slice(json, "Token", secret, &fault);
    if (!fault.code && secret->size > REQUESTER_TOKEN_MOST)
        fault_set(&fault, CO_INVALID, "Token: it has %zu bytes, at most %d are allowed", secret->size,
                  REQUESTER_TOKEN_MOST);
    if (!fault.code && memchr(secret->data, 0, secret->size)) fault_set(&fault, CO_INVALID, "Token: it has a NUL");
    if (fault.code) http_reply_text(request, 400, "Request decode failed: %s", fault.text);
    return !fault.code;
}

static void put_token(struct http_request *request) {
    const struct http_env *env = http_env(request);
    struct slice name = http_path_value(request, "kind"), secret;
    struct fault fault = {0};
    enum http_agent_token token;
    if (!rpc_access_controlled(env->rpc)) {
        http_reply_text(request, 401, "ACL support disabled");
    } else if (slice_is(name, "replication") || slice_is(name, "acl_replication_token")) {
        http_reply_text(request, 400, "this version copies no tokens from other regions, so nothing would use it");
    } else if (!find(name, &token)) {
        http_reply_text(request, 404, "Token \"%.*s\" is unknown", (int)(name.size < 100 ? name.size : 100), name.data);
    } else if (secret_read(request, &secret)) {
        if (env->set_token(env->set_token_data, token, secret, &fault) == CO_OK)
            http_reply_text(request, 200, "%s", "");
        else http_reply_text(request, 500, "%s", fault.text);
    }
}

const struct http_route http_routes_agent_token[] = {
    {HTTP_PUT, "/v1/agent/token/*kind", put_token, "agent:write of this agent",
     HTTP_PARAMS({"*kind", HTTP_CHOICE, .choices = "default|agent|agent_master|master",
                  .help =
                      "default: of requests that have none, and of DNS; agent: of the agent's own work; agent_master: "
                      "one for this agent alone"}),
     "Sets a token of this agent; an empty one takes it back. It counts at once, and is kept over a restart with "
     "acl.enable_token_persistence",
     HTTP_LOCAL, .example = {"/v1/agent/token/default", .body = "{\"Token\":\"\"}", .status = 401}},
    {0},
};
