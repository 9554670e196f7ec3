/* /v1/acl/bootstrap, /v1/acl/token, /v1/acl/tokens. Statuses and texts are Consul's where those are about what a client did; where
 * Consul says 500 for a client's mistake this is a 4xx (docs/divergence.md). */
#include <string.h>

#include "base/clock.h"
#include "base/message.h"
#include "base/text.h"
#include "base/timestamp.h"
#include "http/api/acl_views.h"
#include "http/api/topics.h"

static const char *const known[] = {"AccessorID", "SecretID",          "Description",    "Policies",
                                    "Roles",      "ServiceIdentities", "NodeIdentities", "Local",
                                    "AuthMethod", "ExpirationTime",    "ExpirationTTL",  "CreateTime",
                                    "Hash",       "CreateIndex",       "ModifyIndex",    "Namespace",
                                    NULL};

/* -- reading -------------------------------------------------------------------------------------------------------- */
static int view_tokens(struct http_request *request, const struct query_result *result) {
    const Pb__AclTokensResult *list = (const Pb__AclTokensResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < list->n_tokens; i++) acl_write_token(json, list->tokens[i], NULL);
    json_array_end(json);
    return 200;
}

static char *parameter(struct http_request *request, const char *name) {
    struct slice value = http_parameter(request, name);
    return arena_strndup(http_arena(request), value.data ? value.data : "", value.size);
}

static void get_tokens(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclTokensRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_tokens_request__init(message);
    message->policy = parameter(request, "policy"), message->role = parameter(request, "role");
    message->auth_method = parameter(request, "authmethod");
    http_read(request, &query_acl_tokens, &message->base, view_tokens);
}

static int view_token(struct http_request *request, const struct query_result *result) {
    const Pb__AclTokenResult *found = (const Pb__AclTokenResult *)result->message;
    if (!result->found) {
        http_view_text(request, "ACL not found");
        return 403;
    }
    acl_write_token(http_out(request), found->token, found->hidden ? "<hidden>" : found->secret);
    return 200;
}

static void read_self(struct http_request *request) {
    const struct requester *requester = http_requester(request);
    Pb__AclTokenSelfRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_token_self_request__init(message);
    message->secret.data = (uint8_t *)(uintptr_t)requester->text, message->secret.len = requester->size;
    http_read_fresh(request, &query_acl_token_self, &message->base, view_token, NULL);
}

/* Of the path's ID, or of /v1/acl/token/self. Answers with a secret are not kept. */
static void get_token(struct http_request *request) {
    if (!acl_is_on(request)) return;
    if (!http_path_value(request, "id").size) {
        read_self(request);
        return;
    }
    Pb__AclTokenRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_token_request__init(message);
    message->accessor = acl_path_value(request, "id");
    http_read_fresh(request, &query_acl_token, &message->base, view_token, NULL);
}

/* -- writing -------------------------------------------------------------------------------------------------------- */
/* Within a day, and not before a minute is over. */
static void judge_end(struct acl_form *form, int64_t left_ms) {
    if (left_ms < (int64_t)ACL_TTL_LEAST_MS)
        fault_set(&form->fault, CO_INVALID, "expiration time cannot be less than 1m0s in the future");
    else if (left_ms > (int64_t)ACL_TTL_MOST_MS)
        fault_set(&form->fault, CO_INVALID, "expiration time cannot be more than 24h0m0s in the future");
}

static void form_end(struct acl_form *form, Pb__AclTokenSetCommand *command) {
    int64_t ttl_ns = 0;
    const char *time = acl_form_text(form, "ExpirationTime");
    json_get_duration(form->json, "ExpirationTTL", &ttl_ns, &form->fault);
    if (ttl_ns < 0)
        fault_set(&form->fault, CO_INVALID, "Token Expiration TTL '%lldns' should be > 0", (long long)ttl_ns);
    if (time[0] && timestamp_parse(slice_text(time), &command->token->expiration_ms) != CO_OK)
        fault_set(&form->fault, CO_INVALID, "ExpirationTime: a time as \"2026-11-26T10:00:00Z\" is wanted");
    if (ttl_ns && time[0])
        fault_set(&form->fault, CO_INVALID, "Token Expiration TTL and Expiration Time cannot both be set");
    command->ttl_ms = ttl_ns / 1000000;
    if (!command->create || form->fault.code) return;
    if (ttl_ns) judge_end(form, command->ttl_ms);
    else if (time[0]) judge_end(form, (int64_t)command->token->expiration_ms - clock_wall_ns() / 1000000);
}

static void form_token(struct acl_form *form, Pb__AclTokenSetCommand *command) {
    Pb__AclToken *token = command->token;
    bool local = token->local;
    token->description = acl_form_text(form, "Description");
    token->policies = acl_form_links(form, "Policies", &token->n_policies);
    token->roles = acl_form_links(form, "Roles", &token->n_roles);
    token->service_identities = acl_form_services(form, &token->n_service_identities);
    token->node_identities = acl_form_nodes(form, &token->n_node_identities);
    token->auth_method = acl_form_text(form, "AuthMethod");
    json_get_bool(form->json, "Local", &local, &form->fault);
    token->local = local;
    form_end(form, command);
}

static Pb__AclTokenSetCommand *new_command(struct http_request *request, bool create) {
    Pb__AclTokenSetCommand *command = arena_alloc(http_arena(request), sizeof *command);
    pb__acl_token_set_command__init(command);
    command->token = arena_alloc(http_arena(request), sizeof *command->token);
    pb__acl_token__init(command->token);
    command->create = create;
    return command;
}

static void put_token(struct http_request *request) {
    if (!acl_is_on(request)) return;
    struct acl_form form = acl_form_begin(request, known, false);
    if (!form.json) return;
    Pb__AclTokenSetCommand *command = new_command(request, true);
    form_token(&form, command);
    command->token->accessor = acl_form_text(&form, "AccessorID");
    const char *secret = acl_form_text(&form, "SecretID");
    if (acl_form_end(&form)) acl_call_server(request, RPC_ACL_TOKEN_SET, command, slice_text(secret));
}

static void put_token_id(struct http_request *request) {
    if (!acl_is_on(request)) return;
    struct acl_form form = acl_form_begin(request, known, false);
    if (!form.json) return;
    Pb__AclTokenSetCommand *command = new_command(request, false);
    form_token(&form, command);
    command->token->accessor = acl_form_same(&form, "AccessorID", acl_path_value(request, "id"));
    const char *secret = acl_form_text(&form, "SecretID");
    if (acl_form_end(&form)) acl_call_server(request, RPC_ACL_TOKEN_SET, command, slice_text(secret));
}

static void delete_token(struct http_request *request) {
    if (!acl_is_on(request)) return;
    Pb__AclTokenDeleteCommand command = PB__ACL_TOKEN_DELETE_COMMAND__INIT;
    command.accessor = acl_path_value(request, "id");
    http_write(request, ACL_TOKEN_DELETE, &command.base, NULL);
}

/* -- a clone -------------------------------------------------------------------------------------------------------- */
static void cloned_read(struct http_request *request, int error, const struct query_result *result) {
    const char *description = http_context(request);
    if (error) {
        http_reply_error(request, error);
        return;
    }
    if (!result->found) {
        http_reply_text(request, 403, "ACL not found");
        return;
    }
    Pb__AclTokenSetCommand *command = new_command(request, true);
    *command->token = *((const Pb__AclTokenResult *)result->message)->token;
    if (command->token->auth_method[0]) {
        http_reply_text(request, 400, "Cannot clone a token created from an auth method");
        return;
    }
    command->token->accessor = (char *)(uintptr_t) "";
    if (description[0]) command->token->description = (char *)(uintptr_t)description;
    for (size_t i = 0; i < command->token->n_policies; i++) command->token->policies[i]->name = (char *)(uintptr_t) "";
    for (size_t i = 0; i < command->token->n_roles; i++) command->token->roles[i]->name = (char *)(uintptr_t) "";
    acl_call_server(request, RPC_ACL_TOKEN_SET, command, slice_text(""));
}

static void put_clone(struct http_request *request) {
    if (!acl_is_on(request)) return;
    struct acl_form form = acl_form_begin(request, known, true);
    if (!form.json && http_body(request).size) return;
    const char *description = form.json ? acl_form_text(&form, "Description") : "";
    if (!acl_form_end(&form)) return;
    Pb__AclTokenRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__acl_token_request__init(message);
    message->accessor = acl_path_value(request, "id");
    http_set_context(request, description);
    http_read_once(request, &query_acl_token, &message->base, RPC_DEFAULT, cloned_read);
}

/* -- bootstrap ------------------------------------------------------------------------------------------------------ */
static void put_bootstrap(struct http_request *request) {
    static const char *const members[] = {"BootstrapSecret", NULL};
    if (!acl_is_on(request)) return;
    struct acl_form form = acl_form_begin(request, members, true);
    if (!form.json && http_body(request).size) return;
    const char *secret = form.json ? acl_form_text(&form, "BootstrapSecret") : "";
    if (secret[0] && !uuid_valid(slice_text(secret)))
        fault_set(&form.fault, CO_INVALID, "BootstrapSecret: a UUID is wanted");
    if (acl_form_end(&form))
        acl_call_server(request, RPC_ACL_BOOTSTRAP, new_command(request, true), slice_text(secret));
}

/* -- login ----------------------------------------------------------------------------------------------------------- */
#define META_MOST 64

/* "token created via login: {...}", as Consul says it. */
static char *login_description(struct acl_form *form) {
    struct json_object *meta = json_get_object(form->json, "Meta", &form->fault);
    static const char text[] = "token created via login";
    if (!meta || !json_object_object_length(meta)) return (char *)(uintptr_t)text;
    json_each(meta, key, value)
        if (!json_object_is_type(value, json_type_string))
            fault_set(&form->fault, CO_INVALID, "Meta.%.60s: a text is wanted", key);
    if (json_object_object_length(meta) > META_MOST)
        fault_set(&form->fault, CO_INVALID, "Meta has more than %d entries", META_MOST);
    static const int flags = JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE;
    return arena_printf(form->arena, "%s: %s", text, json_object_to_json_string_ext(meta, flags));
}

static void post_login(struct http_request *request) {
    static const char *const members[] = {"AuthMethod", "BearerToken", "Meta", "Namespace", NULL};
    if (!acl_is_on(request)) return;
    struct acl_form form = acl_form_begin(request, members, false);
    if (!form.json) return;
    Pb__AclTokenSetCommand *command = new_command(request, true);
    command->token->auth_method = acl_form_text(&form, "AuthMethod");
    command->token->description = login_description(&form);
    const char *shown = acl_form_text(&form, "BearerToken");
    if (!command->token->auth_method[0]) fault_set(&form.fault, CO_INVALID, "AuthMethod is wanted");
    if (acl_form_end(&form)) acl_call_login(request, command, slice_text(shown));
}

/* -- rows ----------------------------------------------------------------------------------------------------------- */
#define OFF .example = {.status = 401}
#define ID \
    { ":id", HTTP_TEXT, .help = "the token's AccessorID" }

const struct http_route http_routes_acl[] = {
    {HTTP_PUT, "/v1/acl/bootstrap", put_bootstrap, "none: it works once, before there is any token",
     HTTP_PARAMS(HTTP_DC),
     "Makes the first management token, once. 403 afterwards; `coord acl reset` on a server allows it again",
     .example = {.status = 401}},
    {HTTP_POST, "/v1/acl/login", post_login, "none: whoever logs in has no token yet", HTTP_PARAMS(HTTP_DC),
     "Makes a token by an auth method: AuthMethod, Meta, and BearerToken for type `jwt`. By `unix` it has to come over "
     "the "
     "agent's unix socket, by `certificate` over HTTPS with a client certificate. 403 when the method refuses, or no "
     "binding rule fits",
     OFF},
    {HTTP_GET, "/v1/acl/tokens", get_tokens, "acl:read",
     HTTP_PARAMS({"policy", HTTP_TEXT, .help = "only those that have this policy: its ID"},
                 {"role", HTTP_TEXT, .help = "only those that have this role: its ID"},
                 {"authmethod", HTTP_TEXT, .help = "only those that a login by this auth method made"}, HTTP_READS),
     "All tokens, without their secrets", OFF},
    {HTTP_PUT, "/v1/acl/token", put_token, "acl:write", HTTP_PARAMS(HTTP_DC),
     "Makes a token; Consul's members: Policies, Roles, ServiceIdentities, NodeIdentities, Description, Local, "
     "ExpirationTTL or ExpirationTime, AccessorID, SecretID",
     OFF},
    {HTTP_GET, "/v1/acl/token/self", get_token, "none: whoever asks has the token's secret", HTTP_PARAMS(HTTP_READS),
     "The token of the request", OFF},
    {HTTP_GET, "/v1/acl/token/:id", get_token, "acl:read", HTTP_PARAMS(ID, HTTP_READS),
     "A token; its secret only for those who have acl:write, else `<hidden>`. 403 when there is none", OFF},
    {HTTP_PUT, "/v1/acl/token/:id", put_token_id, "acl:write", HTTP_PARAMS(ID, HTTP_DC),
     "Changes a token: what the body leaves out is taken away. The secret, Local and the expiration cannot change",
     OFF},
    {HTTP_DELETE, "/v1/acl/token/:id", delete_token, "acl:write", HTTP_PARAMS(ID, HTTP_DC),
     "Deletes a token; true also when there is none", OFF},
    {HTTP_PUT, "/v1/acl/token/:id/clone", put_clone, "acl:write", HTTP_PARAMS(ID, HTTP_DC),
     "Makes another token with the same rights; the body may have a Description", OFF},
    {0},
};
