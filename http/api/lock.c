/* /v1/lock: fenced locks, first come, first served. */
#include "kv/lock/lock.h"
#include "http/api/kv_views.h"
#include "http/api/queue_requests.h"
#include "http/api/topics.h"

/* -- work that rows cannot express -------------------------------------------------------------------------------- */

static const struct message_member acquired[] = {{.field = "name"},
                                                 {.field = "held"},
                                                 {.field = "mode"},
                                                 {.field = "token", .name = "FencingToken"},
                                                 {.field = "session"},
                                                 {.field = "position"},
                                                 {.field = "waiters"},
                                                 {.write = queue_bounds_write},
                                                 {0}};

/* With a limit the mode is shared, unless the request names another. */
static bool acquire_prepare(struct http_request *request, ProtobufCMessage *message) {
    Pb__QueueAcquireCommand *command = (Pb__QueueAcquireCommand *)(void *)message;
    if (command->limit && !http_has(request, "mode")) command->mode = PB__QUEUE_MODE__QUEUE_SHARED;
    return queue_prepare(request, command);
}

static const struct http_wait acquire_wait = QUEUE_WAIT(&query_lock_entry);

static void lock_renew(struct http_request *request) {
    queue_renew(request, &query_lock_entry, &query_lock_holder, "FencingToken");
}

static bool release_prepare(struct http_request *request, ProtobufCMessage *message) {
    (void)message;
    return queue_session_or_token(request);
}

/* -- looking ------------------------------------------------------------------------------------------------------ */

static void queue_write(struct json_out *json, const ProtobufCMessage *message, void *context) {
    (void)context;
    queue_waiters_write(json, (const Pb__QueueView *)message, "Queue", true);
}

/* Writes the token of the newest grant; none for a lock that nobody holds. */
static void token_write(struct json_out *json, const ProtobufCMessage *message, void *context) {
    const Pb__Queue *queue = ((const Pb__QueueView *)message)->queue;
    (void)context;
    json_key(json, "FencingToken");
    json_u64(json, queue && queue->holders ? queue->token : 0);
}
static void mode_write(struct json_out *json, const ProtobufCMessage *message, void *context) {
    const Pb__Queue *queue = ((const Pb__QueueView *)message)->queue;
    char room[MESSAGE_NAME_MAX];
    (void)context;
    json_key(json, "Mode");
    json_string(json,
                queue && queue->holders ? message_enum_text(&pb__queue_mode__descriptor, (int)queue->mode, room) : "");
}

static const struct message_member holder_members[] = {{.field = "session"},
                                                       {.field = "node"},
                                                       {.field = "token", .name = "FencingToken"},
                                                       {.field = "note", .flags = MEMBER_TEXT},
                                                       {.field = "since_unix_ms"},
                                                       {0}};
#define VIEW_MEMBERS                                                                                              \
    {.field = "name"}, {.write = mode_write}, {.field = "queue.limit"}, {.write = token_write},                   \
        {.field = "holders", .members = holder_members}, {.field = "queue.waiters"}, {.field = "queue.delays"}, { \
        .write = queue_write                                                                                      \
    }
static const struct message_member one[] = {VIEW_MEMBERS, {.write = queue_transitions_write}, {0}};
static const struct message_member any[] = {VIEW_MEMBERS, {0}};

void http_lock_view(struct json_out *json, const ProtobufCMessage *view) { message_json(json, view, any, NULL); }

static int own_view(struct http_request *request, const struct query_result *result) {
    return queue_own_view(request, result, acquired);
}
static void lock_get(struct http_request *request) {
    if (http_has(request, "session")) queue_own_read(request, &query_lock_entry, own_view);
    else http_declared(request);
}

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
    {HTTP_PUT, "/v1/lock/+name/acquire", http_declared, "lock:write of +name",
     HTTP_PARAMS(NAME, HTTP_DC, HTTP_SESSION_USE_OR("session", "token"),
                 TOKEN("in place of a session: of a grant whose answer was lost"),
                 {"mode", HTTP_CHOICE, .help = "exclusive unless there is a limit", .choices = "exclusive|shared",
                  .field = "mode"},
                 {"limit", HTTP_U64, .help = "so many shared holders at most", .most = 1000000, .field = "limit"},
                 HTTP_WAIT("how long it waits for its turn; 0: not at all"),
                 {"enqueue", HTTP_FLAG, .help = "takes a place in the queue also without wait", .field = "enqueue"},
                 NOW),
     "Acquires a lock, or takes a place in its queue; the body is a note for others", HTTP_OWN | HTTP_BODY_RAW,
     .example = {"/v1/lock/nightly/acquire?ttl=1m", .body = "on web1", .status = 200, .keep = "token=FencingToken"},
     .endpoint = {.command = LOCK_ACQUIRE,
                  .raw = &(const struct http_param){"note", HTTP_TEXT, .help = "a note for others",
                                                    .most = QUEUE_NOTE_MAX, .field = "note"},
                  .prepare = acquire_prepare,
                  .answer = acquired,
                  .then = &acquire_wait}},
    {HTTP_PUT, "/v1/lock/+name/renew", lock_renew, "lock:read of +name",
     HTTP_PARAMS({"+name", HTTP_TEXT, .help = "the lock's name", .least = 1, .most = QUEUE_NAME_MAX}, HTTP_DC,
                 {"session", HTTP_UUID, .help = "of the holder"},
                 {"token", HTTP_U64, .help = "in place of the session: of the grant", .least = 1},
                 {"ttl", HTTP_DURATION, .help = "its session has this TTL (at least session_ttl_min) from now on",
                  .least = 1, .most = HTTP_TTL_MOST_NS}),
     "Renews the session of a holder, without an entry in the log unless ttl changes it; 404 when the lock is not held "
     "so",
     HTTP_OWN, .example = {"/v1/lock/nightly/renew?token={token}", .status = 200}},
    {HTTP_GET, "/v1/lock/*name", lock_get, "lock:read of *name",
     HTTP_PARAMS(
         {"*name", HTTP_TEXT, .help = "the lock's name, slashes included", .least = 1, .most = QUEUE_NAME_MAX,
          .field = "name"},
         HTTP_READS,
         {"session", HTTP_UUID,
          .help = "only the entry of this session, as acquire answers it; with index changes of other "
                  "sessions do not wake the request"},
         {"transitions", HTTP_FLAG, .help = "also the newest changes of holders and waiters, with their causes"}),
     "The holders of a lock, and its queue", HTTP_OWN, .example = {"/v1/lock/nightly?transitions", .status = 200},
     .endpoint = {.query = &query_lock, .answer = one, .watched = "lock", .missing = "is free"}},
    {HTTP_GET, "/v1/locks", http_declared, "lock:read rows",
     HTTP_PARAMS(
         {"prefix", HTTP_TEXT, .help = "only names with this beginning", .most = QUEUE_NAME_MAX, .field = "prefix"},
         HTTP_READS),
     "All locks that somebody holds or waits for", HTTP_OWN, .example = {.status = 200},
     .endpoint = {.query = &query_locks, .answer = any, .list = "queues"}},
    {HTTP_PUT, "/v1/lock/+name/release", http_declared, "lock:write of +name",
     HTTP_PARAMS(NAME, HTTP_DC, SESSION("of who holds it, or waits"), TOKEN("in place of the session: of the grant"),
                 NOW),
     "Releases a lock, or leaves its queue; 409 when it is not held so", HTTP_OWN,
     .example = {"/v1/lock/nightly/release?token={token}", .status = 200},
     .endpoint = {.command = LOCK_RELEASE, .prepare = release_prepare}},
    {0},
};
