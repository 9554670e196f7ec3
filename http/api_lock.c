/* /v1/lock: fenced locks, first come, first served. */
#include "base/text.h"
#include "http/http.h"
#include "http/message_fill.h"
#include "http/message_json.h"
#include "kv/lock/lock.h"
#include "kv/session/session.h"

/* -- acquiring ---------------------------------------------------------------------------------------------------- */

static void bounds_write(struct json_out *json, struct http_bounds bounds) {
    json_key(json, "NotBefore");
    json_i64(json, bounds.not_before_ms);
    json_key(json, "NotAfter");
    json_i64(json, bounds.not_after_ms);
}

/* Of the session that the request made, while it is there. */
static void made_bounds(struct json_out *json, const ProtobufCMessage *message, void *request) {
    struct http_bounds bounds;
    if (((const Pb__LockAnswer *)message)->session[0] && http_made_bounds(request, &bounds)) bounds_write(json, bounds);
}

static const struct message_member acquired[] = {{.field = "name"},
                                                 {.field = "held"},
                                                 {.field = "mode"},
                                                 {.field = "token", .name = "FencingToken"},
                                                 {.field = "session"},
                                                 {.field = "position"},
                                                 {.field = "waiters"},
                                                 {.write = made_bounds},
                                                 {0}};

static void reply_answer(struct http_request *request, const ProtobufCMessage *answer) {
    message_json(http_out(request), answer, acquired, request);
    http_reply_json(request, 200);
}

/* What the rows cannot say: with a limit it is shared, unless it is told otherwise; whoever waits takes a place. */
static bool acquire_prepare(struct http_request *request, ProtobufCMessage *message) {
    const struct http_env *env = http_env(request);
    Pb__LockAcquireCommand *command = (Pb__LockAcquireCommand *)(void *)message;
    int64_t wait_ns = 0;
    if (!http_parameter_duration(request, "wait", &wait_ns)) return false;
    if (wait_ns > 0) command->enqueue = true;
    if (command->limit && !http_has(request, "mode")) command->mode = PB__QUEUE_MODE__QUEUE_SHARED;
    if (command->note.len > env->lock_note_max) {
        http_reply_text(request, 400, "the note has %zu bytes, at most %llu are allowed (coord.lock_note_max)",
                        command->note.len, (unsigned long long)env->lock_note_max);
        return false;
    }
    command->limits = (Pb__QueueLimits *)(void *)message_new(&pb__queue_limits__descriptor, http_arena(request));
    command->limits->waiters = (uint32_t)env->lock_waiters_max;
    command->limits->of_session = (uint32_t)env->lock_session_max;
    return true;
}

static const ProtobufCMessage *acquire_ask(struct http_request *request, const struct machine_result *written) {
    const Pb__LockAnswer *answer = (const Pb__LockAnswer *)written->message;
    int64_t wait_ns = 0;
    if (written->error || !answer) {
        http_reply_result(request, written);
        return NULL;
    }
    if (answer->held || !answer->position || !http_parameter_duration(request, "wait", &wait_ns) || !wait_ns) {
        reply_answer(request, &answer->base);
        return NULL;
    }
    Pb__LockEntryRequest *message = arena_alloc(http_arena(request), sizeof *message);
    char *room = arena_alloc(http_arena(request), QUEUE_ENTRY_NAME_MAX);
    pb__lock_entry_request__init(message);
    struct slice entry = queue_entry_name(slice_text(answer->name), slice_text(answer->session), room);
    message->session_name = (ProtobufCBinaryData){entry.size, (uint8_t *)room};
    return &message->base;
}

static bool acquire_holds(struct http_request *request, const struct query_result *result) {
    (void)request;
    return !result->found || ((const Pb__LockAnswer *)result->message)->held;
}

static void acquire_reply(struct http_request *request, const struct query_result *result, bool holds) {
    (void)holds;
    struct slice name = http_path_value(request, "name");
    if (result->found) reply_answer(request, result->message);
    else
        http_reply_text(request, 404, "the session waits for lock \"%.*s\" no more: it has ended, or was released",
                        (int)name.size, name.data);
}

static const struct http_wait acquire_wait = {.query = &query_lock_entry,
                                              .ask = acquire_ask,
                                              .holds = acquire_holds,
                                              .reply = acquire_reply,
                                              .after_write = true};

/* -- renewing ----------------------------------------------------------------------------------------------------- */

static void renewed_reply(struct http_request *request, const Pb__LockAnswer *holder, int64_t ttl_ns, int64_t left_ms) {
    struct json_out *json = http_out(request);
    struct buffer ttl = {0};
    duration_format(&ttl, ttl_ns);
    json_object(json);
    json_key(json, "FencingToken");
    json_u64(json, holder->token);
    json_key(json, "TTL");
    json_slice(json, buffer_slice(&ttl));
    if (ttl_ns) bounds_write(json, http_bounds(ttl_ns, left_ms));
    json_object_end(json);
    buffer_free(&ttl);
    http_reply_json(request, 200);
}

static void reply_lost(struct http_request *request) {
    struct slice name = http_path_value(request, "name");
    http_reply_text(request, 404, "lock \"%.*s\" is not held so any more: its session has ended, or it was released",
                    (int)name.size, name.data);
}

static void renewed(struct http_request *request, int error, const struct rpc_renew *renew) {
    if (error == CO_NOTFOUND) reply_lost(request);
    else if (error) http_reply_error(request, error);
    else renewed_reply(request, http_context(request), renew->ttl_ns, renew->left_ms);
}

static void ttl_changed(struct http_request *request, const struct machine_result *result) {
    const Pb__Session *session = (const Pb__Session *)result->message;
    if (result->error == CO_NOTFOUND) reply_lost(request);
    else if (result->error || !session) http_reply_result(request, result);
    else renewed_reply(request, http_context(request), session->ttl_ns, session->ttl_ns / 1000000);
}

/* Who holds it is the request's context. The lock is held so: its session is renewed, or gets another TTL. */
static void holder_found(struct http_request *request, int error, const struct query_result *result) {
    const Pb__LockAnswer *holder = error || !result->found ? NULL : (const Pb__LockAnswer *)result->message;
    if (error) {
        http_reply_error(request, error);
    } else if (!holder || !holder->held) {
        reply_lost(request);
    } else if (!http_has(request, "ttl")) {
        http_set_context(request, holder);
        http_renew(request, &session_expiry, false, slice_text(holder->session), renewed);
    } else {
        Pb__SessionTtlCommand *command = arena_alloc(http_arena(request), sizeof *command);
        pb__session_ttl_command__init(command);
        if (!http_session_ttl(request, &command->ttl_ns)) return;
        command->id = holder->session;
        command->ttl = (char *)(uintptr_t)http_parameter(request, "ttl").data;
        http_set_context(request, holder);
        http_write(request, SESSION_TTL, &command->base, ttl_changed);
    }
}

static bool session_or_token(struct http_request *request) {
    if (http_has(request, "session") != http_has(request, "token")) return true;
    http_reply_text(request, 400, "session, token: one of them is wanted, and not both");
    return false;
}

static void lock_renew(struct http_request *request) {
    struct slice name = http_path_value(request, "name"), session = http_parameter(request, "session");
    if (!session_or_token(request)) return;
    if (session.size) {
        Pb__LockEntryRequest *message = arena_alloc(http_arena(request), sizeof *message);
        char *room = arena_alloc(http_arena(request), QUEUE_ENTRY_NAME_MAX);
        pb__lock_entry_request__init(message);
        struct slice entry = queue_entry_name(name, session, room);
        message->session_name = (ProtobufCBinaryData){entry.size, (uint8_t *)room};
        http_fetch(request, &query_lock_entry, &message->base, RPC_DEFAULT, holder_found);
    } else {
        Pb__LockHolderRequest *message = arena_alloc(http_arena(request), sizeof *message);
        pb__lock_holder_request__init(message);
        message->name = arena_strndup(http_arena(request), name.data, name.size);
        if (!http_parameter_u64(request, "token", &message->token)) return;
        http_fetch(request, &query_lock_holder, &message->base, RPC_DEFAULT, holder_found);
    }
}

static bool release_prepare(struct http_request *request, ProtobufCMessage *message) {
    (void)message;
    return session_or_token(request);
}

/* -- looking ------------------------------------------------------------------------------------------------------ */

static void queue_write(struct json_out *json, const ProtobufCMessage *message, void *context) {
    const Pb__LockView *view = (const Pb__LockView *)message;
    (void)context;
    json_key(json, "Queue");
    json_array(json);
    for (size_t i = 0; i < view->n_waiters; i++) {
        char room[MESSAGE_NAME_MAX];
        json_object(json);
        json_key(json, "Session");
        json_string(json, view->waiters[i]->session);
        json_key(json, "Mode");
        json_string(json, message_enum_text(&pb__queue_mode__descriptor, (int)view->waiters[i]->mode, room));
        json_key(json, "Position");
        json_u64(json, i + 1);
        json_object_end(json);
    }
    json_array_end(json);
}

/* The newest grant's: of a lock that nobody holds it says nothing. */
static void token_write(struct json_out *json, const ProtobufCMessage *message, void *context) {
    const Pb__Queue *queue = ((const Pb__LockView *)message)->queue;
    (void)context;
    json_key(json, "FencingToken");
    json_u64(json, queue && queue->holders ? queue->token : 0);
}
static void mode_write(struct json_out *json, const ProtobufCMessage *message, void *context) {
    const Pb__Queue *queue = ((const Pb__LockView *)message)->queue;
    char room[MESSAGE_NAME_MAX];
    (void)context;
    json_key(json, "Mode");
    json_string(json,
                queue && queue->holders ? message_enum_text(&pb__queue_mode__descriptor, (int)queue->mode, room) : "");
}

static void transitions_write(struct json_out *json, const ProtobufCMessage *message, void *request) {
    static const struct message_member row[] = {
        {.field = "index"}, {.field = "cause"}, {.field = "session", .flags = MEMBER_OPTIONAL}, {0}};
    if (!http_has(request, "transitions")) return;
    json_key(json, "Transitions");
    message_json_list(json, message, "transitions", row, request);
}

static const struct message_member holder_members[] = {{.field = "session"},
                                                       {.field = "token", .name = "FencingToken"},
                                                       {.field = "note", .flags = MEMBER_TEXT},
                                                       {.field = "since_unix_ms"},
                                                       {0}};
#define VIEW_MEMBERS                                                                                              \
    {.field = "name"}, {.write = mode_write}, {.field = "queue.limit"}, {.write = token_write},                   \
        {.field = "holders", .members = holder_members}, {.field = "queue.waiters"}, {.field = "queue.delays"}, { \
        .write = queue_write                                                                                      \
    }
static const struct message_member one[] = {VIEW_MEMBERS, {.write = transitions_write}, {0}};
static const struct message_member any[] = {VIEW_MEMBERS, {0}};

/* -- rows --------------------------------------------------------------------------------------------------------- */

#define NAME                                                                                                 \
    {                                                                                                        \
        "+name", HTTP_TEXT, .help = "the lock's name, slashes included", .least = 1, .most = QUEUE_NAME_MAX, \
                            .field = "name"                                                                  \
    }
#define SESSION(help_) \
    { "session", HTTP_UUID, .help = (help_), .field = "session" }
#define TOKEN(help_) \
    { "token", HTTP_U64, .help = (help_), .least = 1, .field = "token" }
#define NOW \
    { .type = HTTP_NOW, .field = "now_unix_ms" }
const struct http_route http_routes_lock[] = {
    {HTTP_PUT, "/v1/lock/+name/acquire", http_declared, "lock:write",
     HTTP_PARAMS(NAME, HTTP_DC, HTTP_SESSION_USE_OR("session", "token"),
                 TOKEN("in place of a session: of a grant whose answer was lost"),
                 {"mode", HTTP_CHOICE, .help = "exclusive unless there is a limit", .choices = "exclusive|shared",
                  .field = "mode"},
                 {"limit", HTTP_U64, .help = "so many shared holders at most", .most = 1000000, .field = "limit"},
                 HTTP_WAIT("how long it waits for its turn; 0: not at all"),
                 {"enqueue", HTTP_FLAG, .help = "takes a place in the queue also without wait", .field = "enqueue"},
                 NOW),
     "Acquires a lock, or takes a place in its queue; the body is a note for others", HTTP_OWN | HTTP_BODY_RAW,
     .example = {"/v1/lock/nightly/acquire?session={session}", .body = "on web1", .status = 200},
     .endpoint = {.command = LOCK_ACQUIRE,
                  .raw = &(const struct http_param){"note", HTTP_TEXT, .help = "a note for others",
                                                    .most = QUEUE_NOTE_MAX, .field = "note"},
                  .prepare = acquire_prepare,
                  .then = &acquire_wait}},
    {HTTP_PUT, "/v1/lock/+name/renew", lock_renew, "lock:write",
     HTTP_PARAMS(
         {"+name", HTTP_TEXT, .help = "the lock's name", .least = 1, .most = QUEUE_NAME_MAX}, HTTP_DC,
         {"session", HTTP_UUID, .help = "of the holder"},
         {"token", HTTP_U64, .help = "in place of the session: of the grant", .least = 1},
         {"ttl", HTTP_DURATION, .help = "its session has this TTL from now on", .least = 1, .most = 86400000000000}),
     "Renews the session of a holder, without an entry in the log; 404 when the lock is not held so", HTTP_OWN,
     .example = {"/v1/lock/nightly/renew?session={session}", .status = 200}, .since = LOCK_SINCE},
    {HTTP_GET, "/v1/lock/*name", http_declared, "lock:read",
     HTTP_PARAMS({"*name", HTTP_TEXT, .help = "the lock's name, slashes included", .least = 1, .most = QUEUE_NAME_MAX,
                  .field = "name"},
                 HTTP_READS,
                 {"transitions", HTTP_FLAG, .help = "the newest changes of who holds and waits, with their causes"}),
     "Who holds a lock, and who waits for it", HTTP_OWN, .example = {"/v1/lock/nightly?transitions", .status = 200},
     .since = LOCK_SINCE, .endpoint = {.query = &query_lock, .answer = one, .watched = "lock", .missing = "is free"}},
    {HTTP_GET, "/v1/locks", http_declared, "lock:read",
     HTTP_PARAMS(
         {"prefix", HTTP_TEXT, .help = "only names with this beginning", .most = QUEUE_NAME_MAX, .field = "prefix"},
         HTTP_READS),
     "All locks that somebody holds or waits for", HTTP_OWN, .example = {.status = 200}, .since = LOCK_SINCE,
     .endpoint = {.query = &query_locks, .answer = any, .list = "locks"}},
    {HTTP_PUT, "/v1/lock/+name/release", http_declared, "lock:write",
     HTTP_PARAMS(NAME, HTTP_DC, SESSION("of who holds it, or waits"), TOKEN("in place of the session: of the grant"),
                 NOW),
     "Releases a lock, or leaves its queue; 409 when it is not held so", HTTP_OWN,
     .example = {"/v1/lock/nightly/release?session={session}", .status = 200},
     .endpoint = {.command = LOCK_RELEASE, .prepare = release_prepare}},
    {0},
};
