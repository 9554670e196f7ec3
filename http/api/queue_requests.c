#include "http/api/queue_requests.h"

#include "base/text.h"
#include "http/message_fill.h"
#include "kv/session/session.h"

/* -- acquiring ---------------------------------------------------------------------------------------------------- */

void queue_bounds_write(struct json_out *json, const ProtobufCMessage *message, void *request) {
    if (((const Pb__QueueAnswer *)message)->session[0]) http_write_made_bounds(json, message, request);
}

static void reply_answer(struct http_request *request, const ProtobufCMessage *answer) {
    message_json(http_out(request), answer, http_endpoint(request)->answer, request);
    http_reply_json(request, 200);
}

bool queue_note_fits(struct http_request *request, size_t size) {
    uint64_t most = http_env(request)->lock_note_max;
    if (size <= most) return true;
    http_reply_text(request, 400, "the body has %zu bytes, at most %llu are allowed (coord.lock_note_max)", size,
                    (unsigned long long)most);
    return false;
}

bool queue_prepare(struct http_request *request, Pb__QueueAcquireCommand *command) {
    const struct http_env *env = http_env(request);
    int64_t wait_ns = 0;
    if (!http_parameter_duration(request, "wait", &wait_ns) || !queue_note_fits(request, command->note.len))
        return false;
    if (wait_ns > 0) command->enqueue = true;
    command->limits = (Pb__QueueLimits *)(void *)message_new(&pb__queue_limits__descriptor, http_arena(request));
    command->limits->waiters = (uint32_t)env->lock_waiters_max;
    command->limits->of_session = (uint32_t)env->lock_session_max;
    return true;
}

static Pb__QueueEntryRequest *entry_request(struct http_request *request, struct slice name, struct slice session) {
    Pb__QueueEntryRequest *message = arena_alloc(http_arena(request), sizeof *message);
    char *room = arena_alloc(http_arena(request), QUEUE_ENTRY_NAME_MAX);
    pb__queue_entry_request__init(message);
    struct slice entry = queue_entry_name(name, session, room);
    message->session_name = (ProtobufCBinaryData){entry.size, (uint8_t *)room};
    return message;
}

const ProtobufCMessage *queue_ask(struct http_request *request, const struct machine_result *written) {
    const Pb__QueueAnswer *answer = (const Pb__QueueAnswer *)written->message;
    if (written->error || !answer) {
        http_reply_result(request, written);
        return NULL;
    }
    if (answer->held || !answer->position || !http_waits(request)) {
        reply_answer(request, &answer->base);
        return NULL;
    }
    return &entry_request(request, slice_text(answer->name), slice_text(answer->session))->base;
}

bool queue_wait_over(struct http_request *request, const struct query_result *result) {
    (void)request;
    return !result->found || ((const Pb__QueueAnswer *)result->message)->held;
}

void queue_reply(struct http_request *request, const struct query_result *result, bool holds) {
    (void)holds;
    struct slice name = http_path_value(request, "name");
    if (result->found) reply_answer(request, result->message);
    else
        http_reply_text(request, 404, "\"%.*s\": the session waits no more, it has ended or left the queue",
                        (int)name.size, name.data);
}

/* -- renewing ----------------------------------------------------------------------------------------------------- */

/* The session that is renewed; the request's context. */
struct renewal {
    const char *token_name;
    const Pb__QueueAnswer *holder;
};

static void renewed_reply(struct http_request *request, int64_t ttl_ns, int64_t left_ms) {
    const struct renewal *renewal = http_context(request);
    struct json_out *json = http_out(request);
    struct buffer ttl = {0};
    duration_format(&ttl, ttl_ns);
    json_object(json);
    json_key_slice(json, slice_text(renewal->token_name));
    json_u64(json, renewal->holder->token);
    json_key(json, "TTL");
    json_slice(json, buffer_slice(&ttl));
    if (ttl_ns) http_bounds_write(json, http_bounds(ttl_ns, left_ms));
    json_object_end(json);
    buffer_free(&ttl);
    http_reply_json(request, 200);
}

static void reply_lost(struct http_request *request) {
    struct slice name = http_path_value(request, "name");
    http_reply_text(request, 404, "\"%.*s\" is not held so any more: the session has ended, or released it",
                    (int)name.size, name.data);
}

static void renewed(struct http_request *request, int error, const struct rpc_renew *renew) {
    if (error == CO_NOTFOUND) reply_lost(request);
    else if (error) http_reply_error(request, error);
    else renewed_reply(request, renew->ttl_ns, renew->left_ms);
}

static void ttl_changed(struct http_request *request, const struct machine_result *result) {
    const Pb__Session *session = (const Pb__Session *)result->message;
    if (result->error == CO_NOTFOUND) reply_lost(request);
    else if (result->error || !session) http_reply_result(request, result);
    else renewed_reply(request, session->ttl_ns, session->ttl_ns / 1000000);
}

static void renew_holder(struct http_request *request, const Pb__QueueAnswer *holder) {
    ((struct renewal *)(uintptr_t)http_context(request))->holder = holder;
    if (!http_has(request, "ttl")) {
        http_renew(request, &session_expiry, false, slice_text(holder->session), renewed);
        return;
    }
    Pb__SessionTtlCommand *command = arena_alloc(http_arena(request), sizeof *command);
    pb__session_ttl_command__init(command);
    if (!http_session_ttl(request, &command->ttl_ns)) return;
    command->id = holder->session;
    command->ttl = (char *)(uintptr_t)http_parameter(request, "ttl").data;
    http_write(request, SESSION_TTL, &command->base, ttl_changed);
}

static void holder_found(struct http_request *request, int error, const struct query_result *result) {
    const Pb__QueueAnswer *holder = error || !result->found ? NULL : (const Pb__QueueAnswer *)result->message;
    if (error) http_reply_error(request, error);
    else if (!holder || !holder->held) reply_lost(request);
    else if (!holder->session[0])
        http_reply_text(request, 409,
                        "token: several shared holders were granted together and have it: name the session");
    else renew_holder(request, holder);
}

bool queue_session_or_token(struct http_request *request) {
    if (http_has(request, "session") != http_has(request, "token")) return true;
    http_reply_text(request, 400, "session, token: one of them is wanted, and not both");
    return false;
}

void queue_renew(struct http_request *request, const struct query_type *entry, const struct query_type *holder,
                 const char *token_name) {
    struct slice name = http_path_value(request, "name"), session = http_parameter(request, "session");
    struct renewal *renewal = arena_zalloc(http_arena(request), sizeof *renewal);
    if (!queue_session_or_token(request)) return;
    renewal->token_name = token_name;
    http_set_context(request, renewal);
    if (session.size) {
        http_read_once(request, entry, &entry_request(request, name, session)->base, RPC_DEFAULT, holder_found);
        return;
    }
    Pb__QueueRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__queue_request__init(message);
    message->name = arena_strndup(http_arena(request), name.data, name.size);
    if (http_parameter_u64(request, "token", &message->token))
        http_read_once(request, holder, &message->base, RPC_DEFAULT, holder_found);
}

/* -- the entry of one session ------------------------------------------------------------------------------------- */

/* The place in the queue changes without a wake-up, so ready bytes would be stale and are not kept. */
void queue_own_read(struct http_request *request, const struct query_type *entry, http_view own) {
    struct slice name = http_path_value(request, "name"), session = http_parameter(request, "session");
    http_read_fresh(request, entry, &entry_request(request, name, session)->base, own, NULL);
}

int queue_own_view(struct http_request *request, const struct query_result *result,
                   const struct message_member *members) {
    Pb__QueueAnswer nothing = PB__QUEUE_ANSWER__INIT;
    nothing.name = (char *)(uintptr_t)http_path_value(request, "name").data;
    nothing.session = (char *)(uintptr_t)http_parameter(request, "session").data;
    message_json(http_out(request), result->found ? result->message : &nothing.base, members, request);
    return 200;
}

/* -- looking ------------------------------------------------------------------------------------------------------ */

void queue_waiters_write(struct json_out *json, const Pb__QueueView *view, const char *key, bool mode) {
    json_key_slice(json, slice_text(key));
    json_array(json);
    for (size_t i = 0; i < view->n_waiters; i++) {
        const Pb__QueueEntry *entry = view->waiters[i];
        char room[MESSAGE_NAME_MAX];
        json_object(json);
        json_key(json, "Session");
        json_string(json, entry->session);
        json_key(json, "Node");
        json_string(json, entry->node);
        json_key_slice(json, slice_text(mode ? "Mode" : "Priority"));
        if (mode) json_string(json, message_enum_text(&pb__queue_mode__descriptor, (int)entry->mode, room));
        else json_u64(json, entry->priority);
        json_key(json, "Position");
        json_u64(json, i + 1);
        json_object_end(json);
    }
    json_array_end(json);
}

void queue_transitions_write(struct json_out *json, const ProtobufCMessage *message, void *request) {
    static const struct message_member row[] = {
        {.field = "index"}, {.field = "cause"}, {.field = "session", .flags = MEMBER_OPTIONAL}, {0}};
    if (!http_has(request, "transitions")) return;
    json_key(json, "Transitions");
    message_json_list(json, message, "transitions", row, request);
}
