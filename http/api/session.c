/* /v1/session: sessions. Texts and statuses are Consul's; a body that does not parse is a 400. */
#include <ctype.h>

#include "base/clock.h"
#include "base/text.h"
#include "http/api/kv_views.h"
#include "http/api/topics.h"
#include "http/http.h"
#include "kv/holding/holding.h"
#include "kv/session/session.h"

#define LOCK_DELAY_DEFAULT_NS 15000000000
#define NODE_CHECK            "serfHealth"

/* -- answers ------------------------------------------------------------------------------------------------------ */

static void names_write(struct json_out *json, char *const *names, size_t count) {
    json_array(json);
    for (size_t i = 0; i < count; i++) json_string(json, names[i]);
    json_array_end(json);
}

static void service_checks_write(struct json_out *json, const Pb__Session *session) {
    if (session->n_service_checks == 0) {
        json_null(json);
        return;
    }
    json_array(json);
    for (size_t i = 0; i < session->n_service_checks; i++) {
        json_object(json);
        json_key(json, "ID");
        json_string(json, session->service_checks[i]);
        json_key(json, "Namespace");
        json_string(json, "");
        json_object_end(json);
    }
    json_array_end(json);
}

void http_session(struct json_out *json, const Pb__Session *session) {
    json_object(json);
    json_key(json, "ID");
    json_string(json, session->id);
    json_key(json, "Name");
    json_string(json, session->name);
    json_key(json, "Node");
    json_string(json, session->node);
    json_key(json, "LockDelay");
    json_i64(json, session->lock_delay_ns);
    json_key(json, "Behavior");
    json_string(json, session->delete_behavior ? "delete" : "release");
    json_key(json, "TTL");
    json_string(json, session->ttl);
    json_key(json, "NodeChecks");
    names_write(json, session->node_checks, session->n_node_checks);
    json_key(json, "ServiceChecks");
    service_checks_write(json, session);
    if (session->n_checks != 0) {
        json_key(json, "Checks");
        names_write(json, session->checks, session->n_checks);
    }
    json_key(json, "CreateIndex");
    json_u64(json, session->create_index);
    json_key(json, "ModifyIndex");
    json_u64(json, session->modify_index);
    json_object_end(json);
}

/* Writes a list of one session, or an empty one: never a 404. */
static int view_session(struct http_request *request, const struct query_result *result) {
    struct json_out *json = http_out(request);
    json_array(json);
    if (result->found) http_session(json, (const Pb__Session *)result->message);
    json_array_end(json);
    return 200;
}

static int view_sessions(struct http_request *request, const struct query_result *result) {
    const Pb__SessionsResult *sessions = (const Pb__SessionsResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < sessions->n_sessions; i++) http_session(json, sessions->sessions[i]);
    json_array_end(json);
    return 200;
}

/* -- the id in the path ------------------------------------------------------------------------------------------- */

/* The id in lower case, in the arena; NULL when it has replied. */
static char *path_id(struct http_request *request) {
    struct slice id = http_path_value(request, "id");
    if (id.size == 0) {
        http_reply_text(request, 400, "Missing session");
        return NULL;
    }
    if (id.size != UUID_TEXT_SIZE) {
        http_reply_text(request, 400, "failed session lookup: index error: UUID must be 36 characters");
        return NULL;
    }
    if (!uuid_valid(id)) {
        http_reply_text(request, 400, "failed session lookup: index error: Invalid UUID");
        return NULL;
    }
    char *text = arena_strndup(http_arena(request), id.data, id.size);
    for (char *at = text; *at; at++) *at = (char)tolower((unsigned char)*at);
    return text;
}

static Pb__SessionRequest *request_of(struct http_request *request, char *id) {
    Pb__SessionRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__session_request__init(message);
    message->id = id;
    return message;
}

static void session_info(struct http_request *request) {
    char *id = path_id(request);
    if (id) http_read(request, &query_session, &request_of(request, id)->base, view_session);
}

static void sessions_read(struct http_request *request, struct slice node) {
    Pb__SessionListRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__session_list_request__init(message);
    message->node = arena_strndup(http_arena(request), node.data, node.size);
    http_read(request, &query_sessions, &message->base, view_sessions);
}

static void session_list(struct http_request *request) { sessions_read(request, slice_make("", 0)); }

static void session_node(struct http_request *request) {
    struct slice node = http_path_value(request, "node");
    if (node.size == 0) http_reply_text(request, 400, "Missing node name");
    else sessions_read(request, node);
}

static void destroy_session(struct http_request *request) {
    char *id = path_id(request);
    if (!id) return;
    Pb__SessionDestroyCommand *command = arena_alloc(http_arena(request), sizeof *command);
    pb__session_destroy_command__init(command);
    command->id = id;
    command->now_unix_ms = clock_wall_ns() / 1000000;
    http_write(request, SESSION_DESTROY, &command->base, NULL);
}

/* -- bounds ------------------------------------------------------------------------------------------------------- */

/* Only such a session gets bounds, because a check or the node may end another one long before its TTL does. */
static bool ends_by_ttl_alone(const Pb__Session *session) {
    return session->ttl_ns && !session->n_checks && !session->n_node_checks && !session->n_service_checks;
}

/* -- renew -------------------------------------------------------------------------------------------------------- */

struct renewal {
    int64_t left_ms;
    uint64_t since_ms;
};

static void reply_gone(struct http_request *request) {
    struct slice id = http_path_value(request, "id");
    http_reply_text(request, 404, "Session id '%.*s' not found", (int)id.size, id.data);
}

/* The session may have ended between the renewal and this read. */
static int view_renewed(struct http_request *request, const struct query_result *result) {
    if (result->found) {
        const struct renewal *renewal = http_context(request);
        const Pb__Session *session = (const Pb__Session *)result->message;
        int64_t left_ms = renewal->left_ms - (int64_t)(clock_mono_ms() - renewal->since_ms);
        if (ends_by_ttl_alone(session)) http_bounds_headers(request, http_bounds(session->ttl_ns, left_ms));
        return view_session(request, result);
    }
    struct slice id = http_path_value(request, "id");
    http_view_text(request, "Session id '%.*s' not found", (int)id.size, id.data);
    return 404;
}

static void renewed(struct http_request *request, int error, const struct rpc_renew *renew) {
    if (error == CO_NOTFOUND) {
        reply_gone(request);
    } else if (error != CO_OK) {
        http_reply_error(request, error);
    } else {
        struct renewal *renewal = arena_alloc(http_arena(request), sizeof *renewal);
        *renewal = (struct renewal){.left_ms = renew->left_ms, .since_ms = clock_mono_ms()};
        http_read_fresh(request, &query_session, &request_of(request, path_id(request))->base, view_renewed, renewal);
    }
}

static void session_renew(struct http_request *request) {
    const char *id = path_id(request);
    if (id) http_renew(request, &session_expiry, false, slice_text(id), renewed);
}

/* -- create ------------------------------------------------------------------------------------------------------- */

/* Consul's rule: a string is a duration, a number nanoseconds, and a result below 1000 ns is taken as seconds. A value
 * above a minute is stored as it is, and has the effect of a minute. */
static void lock_delay_parse(struct json_object *json, int64_t *ns, struct fault *fault) {
    struct json_object *value = json_get(json, "LockDelay");
    int64_t delay;
    if (!value) return;
    if (json_object_is_type(value, json_type_string)) {
        struct slice text = slice_make(json_object_get_string(value), (size_t)json_object_get_string_len(value));
        if (duration_parse(text, &delay) != CO_OK) {
            fault_set(fault, CO_INVALID, "LockDelay: invalid duration \"%.*s\" (write it like 10s, 1m30s, 200ms)",
                      text.size < 40 ? (int)text.size : 40, text.data);
            return;
        }
    } else if (json_object_is_type(value, json_type_int)) {
        delay = json_object_get_int64(value);
    } else if (json_object_is_type(value, json_type_double) && json_object_get_double(value) < 9e18) {
        delay = json_object_get_double(value) < 0 ? -1 : (int64_t)json_object_get_double(value);
    } else {
        fault_set(fault, CO_INVALID, "LockDelay: a duration is wanted, as \"15s\" or in nanoseconds");
        return;
    }
    if (delay < 0) {
        fault_set(fault, CO_INVALID, "LockDelay: must not be negative");
        return;
    }
    *ns = delay < 1000 ? delay * 1000000000 : delay;
}

/* The text of a list's item, or of its "ID" when the list holds objects. */
static char *check_name(struct http_request *request, struct json_object *item, const char *name, bool objects,
                        struct fault *fault) {
    const char *text = NULL;
    if (objects) {
        if (!json_object_is_type(item, json_type_object)) {
            fault_set(fault, CO_INVALID, "%s: objects with ID are wanted", name);
            return NULL;
        }
        text = "";
        json_get_string(item, "ID", &text, fault);
    } else if (!json_object_is_type(item, json_type_string)) {
        fault_set(fault, CO_INVALID, "%s: strings are wanted", name);
        return NULL;
    } else {
        text = json_object_get_string(item);
        if (strlen(text) != (size_t)json_object_get_string_len(item))
            fault_set(fault, CO_INVALID, "%s: NUL in a name", name);
    }
    return arena_strndup(http_arena(request), text, strlen(text));
}

/* Is the key given, also with null? In Go null empties a list, and clients that write null want no checks. */
static bool is_given(struct json_object *json, const char *name) {
    json_each(json, key, value) {
        (void)value;
        if (slice_equal_nocase(slice_text(key), slice_text(name))) return true;
    }
    return false;
}

/* *names and *count do not change when the key is absent. */
static void checks_parse(struct http_request *request, struct json_object *json, const char *name, bool objects,
                         char ***names, size_t *count, struct fault *fault) {
    struct json_object *array = json_get_array(json, name, fault);
    if (fault->code != CO_OK || (!array && !is_given(json, name))) return;
    size_t length = array ? json_object_array_length(array) : 0;
    *names = arena_zalloc(http_arena(request), (length + 1) * sizeof **names);
    *count = length;
    for (size_t i = 0; i < length && fault->code == CO_OK; i++)
        (*names)[i] = check_name(request, json_object_array_get_idx(array, i), name, objects, fault);
}

/* Consul 1.8 has two lists, and the default of both is the node's own check. An empty list empties the other one, and a
 * list that equals the default is replaced by the other one. */
static void checks_settle(Pb__Session *session) {
    if (session->n_checks == 0) {
        session->n_node_checks = 0;
    } else if (session->n_node_checks == 0 || (session->n_checks == 1 && strcmp(session->checks[0], NODE_CHECK) == 0)) {
        session->n_checks = 0;
    }
}

static bool has_default_checks(const Pb__Session *session) {
    size_t count = session->n_node_checks + session->n_checks + session->n_service_checks;
    const char *only = session->n_node_checks ? session->node_checks[0] : session->n_checks ? session->checks[0] : "";
    return count == 1 && strcmp(only, NODE_CHECK) == 0;
}

static void session_parse(struct http_request *request, struct json_object *json, Pb__Session *session,
                          const char **behavior, struct fault *fault) {
    const char *node = session->node, *name = "", *ttl = "";
    json_get_string(json, "Node", &node, fault);
    json_get_string(json, "Name", &name, fault);
    json_get_string(json, "TTL", &ttl, fault);
    json_get_string(json, "Behavior", behavior, fault);
    lock_delay_parse(json, &session->lock_delay_ns, fault);
    checks_parse(request, json, "NodeChecks", false, &session->node_checks, &session->n_node_checks, fault);
    checks_parse(request, json, "Checks", false, &session->checks, &session->n_checks, fault);
    checks_parse(request, json, "ServiceChecks", true, &session->service_checks, &session->n_service_checks, fault);
    session->node = (char *)(uintptr_t)node;
    session->name = (char *)(uintptr_t)name;
    session->ttl = (char *)(uintptr_t)ttl;
}

/* Refuses a session that parses but is not allowed. True when it has replied. */
static bool session_refused(struct http_request *request, Pb__Session *session, const char *behavior) {
    int64_t least = http_env(request)->session_ttl_min_ns;
    bool afar = http_region(request)[0] && session->ttl[0];
    if (session->node[0] == '\0' && !afar) {
        http_reply_text(request, 500, "Must provide Node");
        return true;
    }
    if (strcmp(behavior, "delete") == 0) {
        session->delete_behavior = true;
    } else if (behavior[0] && strcmp(behavior, "release") != 0) {
        http_reply_text(request, 500, "Invalid Behavior setting '%.40s'", behavior);
        return true;
    }
    if (session->ttl[0] == '\0') return false;
    if (duration_parse(slice_text(session->ttl), &session->ttl_ns) != CO_OK) {
        http_reply_text(
            request, 500,
            "Session TTL '%.40s' invalid: time: invalid duration \"%.40s\" (write it like 10s, 1m30s, 200ms)",
            session->ttl, session->ttl);
        return true;
    }
    if (session->ttl_ns == 0 || (session->ttl_ns >= least && session->ttl_ns <= HTTP_TTL_MOST_NS)) return false;
    struct buffer bounds = {0};
    buffer_append_byte(&bounds, '"');
    duration_format(&bounds, session->ttl_ns);
    buffer_append_text(&bounds, "\", must be between ");
    duration_format(&bounds, least);
    buffer_append_text(&bounds, " and ");
    duration_format(&bounds, HTTP_TTL_MOST_NS);
    http_reply_text(request, 500, "Invalid Session TTL %.*s", (int)bounds.size, bounds.data);
    buffer_free(&bounds);
    return true;
}

static void created(struct http_request *request, const struct machine_result *result) {
    if (result->error != CO_OK) {
        http_reply_text(request, 500, "%s", result->text ? result->text : co_strerror(result->error));
        return;
    }
    const Pb__Session *session = (const Pb__Session *)result->message;
    struct json_out *json = http_out(request);
    struct http_bounds bounds;
    if (ends_by_ttl_alone(session) && http_made_bounds(request, &bounds)) http_bounds_headers(request, bounds);
    json_object(json);
    json_key(json, "ID");
    json_string(json, session->id);
    json_object_end(json);
    http_reply_json(request, 200);
}

/* The default node of a session. Another region does not know this node, so a session there has none unless the request
 * names one, and ends only with its TTL. */
static char *own_node(struct http_request *request) {
    return (char *)(uintptr_t)(http_region(request)[0] ? "" : http_env(request)->node_name);
}

static void create_session(struct http_request *request) {
    static char node_check[] = NODE_CHECK, *default_checks[] = {node_check};
    Pb__Session *session = arena_alloc(http_arena(request), sizeof *session);
    pb__session__init(session);
    session->node = own_node(request);
    session->node_checks = session->checks = default_checks;
    session->n_node_checks = session->n_checks = 1;
    session->lock_delay_ns = LOCK_DELAY_DEFAULT_NS;
    const char *behavior = "";
    if (http_body(request).size != 0) {
        struct fault fault = {0};
        struct json_object *json = http_json(request);
        if (!json) return;
        session_parse(request, json, session, &behavior, &fault);
        if (fault.code != CO_OK) {
            http_reply_text(request, 400, "Request decode failed: %s", fault.text);
            return;
        }
    }
    checks_settle(session);
    if (!session->node[0] && has_default_checks(session)) session->n_node_checks = session->n_checks = 0;
    if (session_refused(request, session, behavior)) return;
    session->id = http_new_uuid(request);
    http_granted(request, session->ttl_ns);
    Pb__SessionCreateCommand *command = arena_alloc(http_arena(request), sizeof *command);
    pb__session_create_command__init(command);
    command->session = session;
    http_write(request, SESSION_CREATE, &command->base, created);
}

/* -- coord's own: the holdings of a session, and its remaining time ----------------------------------------------- */

static void explain_write(struct json_out *json, const ProtobufCMessage *message, void *context) {
    (void)context;
    json_key(json, "Session");
    http_session(json, ((const Pb__HoldingsResult *)message)->session);
}

/* Tells whether a command made the session with ?ttl=; such a session ends with the last thing that it holds. */
static void made_write(struct json_out *json, const ProtobufCMessage *message, void *context) {
    (void)context;
    json_key(json, "Made");
    json_bool(json, ((const Pb__HoldingsResult *)message)->session->made);
}

/* Writes the remaining time, which the leader knows; left out when there is no TTL, or the end is proposed. */
static void remaining_write(struct json_out *json, const ProtobufCMessage *message, void *request) {
    const struct rpc_renew *looked = http_context(request);
    struct buffer text = {0};
    (void)message;
    if (!looked || !looked->ttl_ns) return;
    duration_format(&text, looked->left_ms * 1000000);
    json_key(json, "Remaining");
    json_slice(json, buffer_slice(&text));
    buffer_free(&text);
}

static const struct message_member holding[] = {{.field = "kind"},
                                                {.field = "name", .flags = MEMBER_TEXT},
                                                {.field = "standing"},
                                                {.field = "token", .flags = MEMBER_OPTIONAL},
                                                {.field = "position", .flags = MEMBER_OPTIONAL},
                                                {0}};
static const struct message_member explained[] = {{.write = explain_write},
                                                  {.write = made_write},
                                                  {.write = remaining_write},
                                                  {.field = "holdings", .members = holding},
                                                  {.field = "more", .flags = MEMBER_OPTIONAL},
                                                  {0}};

static void explain_looked(struct http_request *request, int error, const struct rpc_renew *renew) {
    if (error != CO_OK && error != CO_NOTFOUND) http_reply_error(request, error);
    else http_declared_with(request, error ? NULL : renew);
}

static void session_explain(struct http_request *request) {
    http_renew(request, &session_expiry, true, http_path_value(request, "id"), explain_looked);
}

#define ID \
    { "*id", HTTP_UUID, .help = "the session's ID" }
const struct http_route http_routes_session[] = {
    {HTTP_PUT, "/v1/session/create", create_session, "session:write", HTTP_PARAMS(HTTP_DC),
     "Begins a session; answers its ID", 0,
     .example = {.body = "{\"Name\":\"worker\",\"TTL\":\"30s\",\"LockDelay\":\"0s\"}",
                 .status = 200,
                 .keep = "session=ID"}},
    {HTTP_PUT, "/v1/session/renew/*id", session_renew, "session:write", HTTP_PARAMS(ID, HTTP_READS),
     "Renews a session's TTL; 404 once it has ended", 0, .example = {"/v1/session/renew/{session}", .status = 200}},
    {HTTP_GET, "/v1/session/info/*id", session_info, "session:read rows", HTTP_PARAMS(ID, HTTP_READS),
     "One session, or an empty list", 0, .example = {"/v1/session/info/{session}", .status = 200}},
    {HTTP_GET, "/v1/session/node/*node", session_node, "session:read rows",
     HTTP_PARAMS({"*node", HTTP_TEXT, .help = "the node's name"}, HTTP_READS), "The sessions of a node", 0,
     .example = {"/v1/session/node/web1", .status = 200, .depth = 1}},
    {HTTP_GET, "/v1/session/list", session_list, "session:read rows", HTTP_PARAMS(HTTP_READS), "All sessions", 0,
     .example = {.status = 200, .depth = 1}},
    {HTTP_GET, "/v1/session/explain/:id", session_explain, "session:read",
     HTTP_PARAMS({":id", HTTP_UUID, .help = "the session's ID", .field = "id"}, HTTP_READS),
     "A session, how much of its TTL is left as the leader knows, and the first 100 of each kind that it holds or "
     "waits for",
     HTTP_OWN, .example = {"/v1/session/explain/{session}", .status = 200},
     .endpoint = {.query = &query_holdings,
                  .answer = explained,
                  .fresh = true,
                  .watched = "session",
                  .missing = "has ended, or there never was one"}},
    {HTTP_PUT, "/v1/session/destroy/*id", destroy_session, "session:write", HTTP_PARAMS(ID, HTTP_DC),
     "Ends a session; its keys are released or deleted", 0,
     .example = {"/v1/session/destroy/{session}", .status = 200}},
    {0},
};
