/* Questions of a token about itself, and paths of /v1/acl that change nothing: /v1/internal/acl/authorize, logout,
 * replication, and the paths of Consul before 1.4. */
#include <string.h>
#include <strings.h>

#include "acl/warnings.h"
#include "base/text.h"
#include "http/api/acl_views.h"
#include "http/api/topics.h"
#include "rpc/api/access_control.h"

/* -- may I? --------------------------------------------------------------------------------------------------------- */
#define QUESTIONS_MOST 1024

struct question {
    const char *resource, *segment, *access;
    struct access_want want;
};
struct questions {
    struct question *items;
    size_t count;
};

static void answer_questions(struct http_request *request) {
    const struct questions *questions = http_context(request);
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < questions->count; i++) {
        const struct question *question = &questions->items[i];
        const struct access_want *want = &question->want;
        json_object(json);
        json_key(json, "Resource"), json_string(json, question->resource);
        json_key(json, "Segment"), json_string(json, question->segment);
        json_key(json, "Access"), json_string(json, question->access);
        json_key(json, "Allow"), json_bool(json, http_allows(request, want->resource, want->name, want->least));
        json_object_end(json);
    }
    json_array_end(json);
    http_reply_json(request, 200);
}

static void parse_question(struct json_object *item, size_t i, struct question *question, struct fault *fault) {
    static const char *const known[] = {"Resource", "Segment", "Access", NULL};
    if (!json_object_is_type(item, json_type_object)) {
        fault_set(fault, CO_INVALID, "[%zu]: an object is wanted", i);
        return;
    }
    *question = (struct question){.resource = "", .segment = "", .access = ""};
    json_only_known(item, known, fault);
    json_get_string(item, "Resource", &question->resource, fault);
    json_get_string(item, "Segment", &question->segment, fault);
    json_get_string(item, "Access", &question->access, fault);
    question->want.name = slice_text(question->segment);
    if (!access_resource_parse(slice_text(question->resource), &question->want.resource))
        fault_set(fault, CO_INVALID, "[%zu]: unknown Resource \"%.60s\"", i, question->resource);
    if (!access_level_parse(slice_text(question->access), &question->want.least) || question->want.least == ACCESS_DENY)
        fault_set(fault, CO_INVALID, "[%zu]: Access is \"read\", \"list\" or \"write\", not \"%.60s\"", i,
                  question->access);
}

static void post_authorize(struct http_request *request) {
    struct fault fault = {0};
    if (!acl_is_on(request)) return;
    struct json_object *list = http_json_of(request, json_type_array, "Failed to decode request body");
    if (!list) return;
    struct questions *questions = arena_zalloc(http_arena(request), sizeof *questions);
    questions->count = json_object_array_length(list);
    if (questions->count > QUESTIONS_MOST) fault_set(&fault, CO_TOOLARGE, "more than %d questions", QUESTIONS_MOST);
    else questions->items = arena_alloc(http_arena(request), (questions->count + 1) * sizeof *questions->items);
    for (size_t i = 0; i < questions->count && !fault.code; i++)
        parse_question(json_object_array_get_idx(list, i), i, &questions->items[i], &fault);
    http_set_context(request, questions);
    if (fault.code) http_reply_fault(request, &fault);
    else http_find_access(request, answer_questions);
}

/* -- status --------------------------------------------------------------------------------------------------------- */
struct status {
    bool has_default;
    const char *warnings[2];
    size_t count;
};

static void add_warning(struct status *status, const char *line) {
    if (line) status->warnings[status->count++] = line;
}

static void answer_status(struct http_request *request) {
    struct status *status = (struct status *)(uintptr_t)http_context(request);
    const struct http_env *env = http_env(request);
    struct json_out *json = http_out(request);
    if (http_rules(request)) add_warning(status, acl_warn_anonymous(http_rules(request), http_arena(request)));
    json_object(json);
    json_key(json, "DefaultPolicy"), json_string(json, env->default_level == ACCESS_DENY ? "deny" : "allow");
    json_key(json, "Agent"), json_string(json, env->own_rights ? env->own_rights(env->set_token_data) : "");
    json_key(json, "DefaultToken"), json_bool(json, status->has_default);
    json_key(json, "Warnings");
    json_array(json);
    for (size_t i = 0; i < status->count; i++) json_string(json, status->warnings[i]);
    json_array_end(json);
    json_object_end(json);
    http_reply_json(request, 200);
}

static void find_anonymous(struct http_request *request) {
    struct slice secret = SLICE_LITERAL(REQUESTER_ANONYMOUS_SECRET);
    struct status *status = (struct status *)(uintptr_t)http_context(request);
    if (status->has_default) add_warning(status, acl_warn_default(http_rules(request)));
    http_find_access_of(request, requester_new(REQUESTER_ANONYMOUS, secret), answer_status);
}

static void get_status(struct http_request *request) {
    if (!acl_is_on(request)) return;
    struct requester *requester = rpc_default_requester(http_env(request)->rpc);
    struct status *status = arena_zalloc(http_arena(request), sizeof *status);
    status->has_default = requester->slot == REQUESTER_DEFAULT;
    http_set_context(request, status);
    http_find_access_of(request, requester, find_anonymous);
}

/* -- logout --------------------------------------------------------------------------------------------------------- */
static void logged_out(struct http_request *request, const struct machine_result *result) {
    if (result->error == CO_NOTFOUND) http_reply_text(request, 403, "ACL not found");
    else http_reply_result(request, result);
}

static void log_out(struct http_request *request) {
    Pb__AclTokenDeleteCommand command = PB__ACL_TOKEN_DELETE_COMMAND__INIT;
    command.accessor = (char *)(uintptr_t)http_accessor(request);
    if (strcmp(command.accessor, ACL_ANONYMOUS_ID) == 0) http_reply_text(request, 403, "ACL not found");
    else http_write(request, ACL_LOGOUT, &command.base, logged_out);
}

static void post_logout(struct http_request *request) {
    if (acl_is_on(request)) http_find_access(request, log_out);
}

/* -- replication ---------------------------------------------------------------------------------------------------- */
static void get_replication(struct http_request *request) {
    if (!acl_is_on(request)) return;
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Enabled"), json_bool(json, false);
    json_key(json, "Running"), json_bool(json, false);
    json_key(json, "SourceDatacenter"), json_string(json, "");
    json_key(json, "ReplicationType"), json_string(json, "");
    json_key(json, "ReplicatedIndex"), json_u64(json, 0);
    json_key(json, "ReplicatedRoleIndex"), json_u64(json, 0);
    json_key(json, "ReplicatedTokenIndex"), json_u64(json, 0);
    json_key(json, "LastSuccess"), json_string(json, "0001-01-01T00:00:00Z");
    json_key(json, "LastError"), json_string(json, "0001-01-01T00:00:00Z");
    json_object_end(json);
    http_reply_json(request, 200);
}

/* -- before Consul 1.4 ---------------------------------------------------------------------------------------------- */
static void gone(struct http_request *request) {
    if (acl_is_on(request))
        http_reply_text(request, 410,
                        "this path went out of use with Consul 1.4; tokens are at /v1/acl/token, what they may do at "
                        "/v1/acl/policy");
}

/* -- rows ----------------------------------------------------------------------------------------------------------- */
#define OLD(methods, path, ...)                                                                                \
    {                                                                                                          \
        methods, path, gone, "none: it does nothing", HTTP_PARAMS(__VA_ARGS__),                                \
            "Of Consul before 1.4: always 410, or 401 without access control", HTTP_LOCAL | HTTP_BODY_RAW, OFF \
    }
#define OFF .example = {.status = 401}
#define ID \
    { "*id", HTTP_TEXT, .help = "any" }

const struct http_route http_routes_acl_request[] = {
    {HTTP_POST, "/v1/internal/acl/authorize", post_authorize, "none: it tells a token what it may do itself", NULL,
     "Answers for a list of `{\"Resource\": \"key\", \"Segment\": \"a/b\", \"Access\": \"read\"}` whether the "
     "request's "
     "token may do that: `Allow`",
     HTTP_LOCAL, OFF},
    {HTTP_GET, "/v1/internal/acl/status", get_status,
     "none: what it says of requests without a token, such a request finds out by itself", NULL,
     "How this agent has access control: `DefaultPolicy`; `Agent`, whose rights its own work has; `DefaultToken`, "
     "whether "
     "it has one for requests without a token; `Warnings`, of tokens that give away too much",
     HTTP_LOCAL, OFF},
    {HTTP_POST, "/v1/acl/logout", post_logout, "none: a token ends itself", HTTP_PARAMS(HTTP_DC),
     "Ends the token of the request, which a login made", HTTP_BODY_RAW, OFF},
    {HTTP_GET, "/v1/acl/replication", get_replication, "none: it tells no record", NULL,
     "The status of copying tokens to other datacenters, which does not happen: each region has its own", HTTP_LOCAL,
     OFF},
    OLD(HTTP_PUT, "/v1/acl/create", {0}),
    OLD(HTTP_PUT, "/v1/acl/update", {0}),
    OLD(HTTP_PUT, "/v1/acl/destroy/*id", ID),
    OLD(HTTP_GET, "/v1/acl/info/*id", ID),
    OLD(HTTP_PUT, "/v1/acl/clone/*id", ID),
    OLD(HTTP_GET, "/v1/acl/list", {0}),
    {0},
};
