/* /v1/election: of all sessions that campaign, one leads. */
#include "kv/election/election.h"
#include "http/api/queue_requests.h"
#include "http/api/topics.h"

/* -- work that rows cannot express -------------------------------------------------------------------------------- */

static const struct message_member campaigned[] = {{.field = "name"},
                                                   {.field = "held", .name = "Leader"},
                                                   {.field = "token", .name = "Term"},
                                                   {.field = "session"},
                                                   {.field = "position"},
                                                   {.field = "waiters", .name = "Candidates"},
                                                   {.write = queue_bounds_write},
                                                   {0}};

static bool campaign_prepare(struct http_request *request, ProtobufCMessage *message) {
    return queue_prepare(request, (Pb__QueueAcquireCommand *)(void *)message);
}

static const struct http_wait campaign_wait = QUEUE_WAIT(&query_election_entry);

static void election_renew(struct http_request *request) {
    queue_renew(request, &query_election_entry, &query_election_holder, "Term");
}

static bool resign_prepare(struct http_request *request, ProtobufCMessage *message) {
    (void)message;
    return queue_session_or_token(request);
}

static bool proclaim_prepare(struct http_request *request, ProtobufCMessage *message) {
    return queue_note_fits(request, ((Pb__QueueNoteCommand *)(void *)message)->note.len);
}

/* -- looking ------------------------------------------------------------------------------------------------------ */

static int own_view(struct http_request *request, const struct query_result *result) {
    return queue_own_view(request, result, campaigned);
}

/* With ?leader only the leader is read, so that candidates do not wake observers of the leader. */
static void election_get(struct http_request *request) {
    if (http_has(request, "session")) queue_own_read(request, &query_election_entry, own_view);
    else if (!http_has(request, "leader")) http_declared(request);
    else http_declared_query(request, &query_election_leader);
}

static const struct message_member leader_members[] = {{.field = "session"},
                                                       {.field = "node"},
                                                       {.field = "token", .name = "Term"},
                                                       {.field = "note", .name = "Value", .flags = MEMBER_TEXT},
                                                       {.field = "since_unix_ms"},
                                                       {0}};

static void leader_write(struct json_out *json, const ProtobufCMessage *message, void *context) {
    const Pb__QueueView *view = (const Pb__QueueView *)message;
    json_key(json, "Leader");
    if (view->n_holders) message_json(json, &view->holders[0]->base, leader_members, context);
    else json_null(json);
}

static void candidates_write(struct json_out *json, const ProtobufCMessage *message, void *request) {
    if (request && http_has(request, "leader")) return;
    queue_waiters_write(json, (const Pb__QueueView *)message, "Candidates", false);
}

static const struct message_member one[] = {
    {.field = "name"}, {.write = leader_write}, {.write = candidates_write}, {.write = queue_transitions_write}, {0}};

static void all_candidates_write(struct json_out *json, const ProtobufCMessage *message, void *request) {
    (void)request;
    candidates_write(json, message, NULL);
}
static const struct message_member any[] = {
    {.field = "name"}, {.write = leader_write}, {.write = all_candidates_write}, {0}};

/* -- rows --------------------------------------------------------------------------------------------------------- */

#define NAME                                                                                                     \
    {                                                                                                            \
        "+name", HTTP_TEXT, .help = "the election's name, slashes included", .least = 1, .most = QUEUE_NAME_MAX, \
                            .field = "name"                                                                      \
    }
#define SESSION(help_) \
    { "session", HTTP_UUID, .help = (help_), .field = "session" }
#define TERM(help_, ...) \
    { "token", HTTP_U64, .help = (help_), .least = 1, .field = "token", __VA_ARGS__ }
#define NOW \
    { .type = HTTP_NOW, .field = "now_unix_ms" }
#define VALUE                                                                                                       \
    &(const struct http_param) {                                                                                    \
        "value", HTTP_TEXT, .help = "the value that the leader advertises", .most = QUEUE_NOTE_MAX, .field = "note" \
    }
const struct http_route http_routes_election[] = {
    {HTTP_PUT, "/v1/election/+name/campaign", http_declared, "lock:write of +name",
     HTTP_PARAMS(NAME, HTTP_DC, HTTP_SESSION_USE_OR("session", "token"),
                 TERM("in place of a session: a term whose answer was lost"),
                 {"priority", HTTP_U64, .help = "of those that wait the highest goes first", .most = QUEUE_PRIORITY_MAX,
                  .field = "priority"},
                 HTTP_WAIT("how long it waits to lead; 0: not at all"),
                 {"enqueue", HTTP_FLAG, .help = "stands as a candidate also without wait", .field = "enqueue"}, NOW),
     "Campaigns: leads, or waits to; the body is the value that the leader advertises", HTTP_OWN | HTTP_BODY_RAW,
     .example = {"/v1/election/primary/campaign?ttl=1m", .body = "10.0.0.7:5432", .status = 200, .keep = "term=Term"},
     .endpoint = {.command = ELECTION_CAMPAIGN,
                  .raw = VALUE,
                  .prepare = campaign_prepare,
                  .answer = campaigned,
                  .then = &campaign_wait}},
    {HTTP_PUT, "/v1/election/+name/proclaim", http_declared, "lock:write of +name",
     HTTP_PARAMS(NAME, HTTP_DC, TERM("the leader's term", .required = true)),
     "The leader advertises another value, in the same term", HTTP_OWN | HTTP_BODY_RAW,
     .example = {"/v1/election/primary/proclaim?token={term}", .body = "10.0.0.7:5433", .status = 200},
     .endpoint = {.command = ELECTION_PROCLAIM, .raw = VALUE, .prepare = proclaim_prepare},
     .cli = {.command = "election proclaim"}},
    {HTTP_PUT, "/v1/election/+name/renew", election_renew, "lock:read of +name",
     HTTP_PARAMS({"+name", HTTP_TEXT, .help = "the election's name", .least = 1, .most = QUEUE_NAME_MAX}, HTTP_DC,
                 {"session", HTTP_UUID, .help = "of the leader"},
                 {"token", HTTP_U64, .help = "in place of the session: the term", .least = 1},
                 {"ttl", HTTP_DURATION, .help = "its session has this TTL (at least session_ttl_min) from now on",
                  .least = 1, .most = HTTP_TTL_MOST_NS}),
     "Renews the session of the leader, without an entry in the log unless ttl changes it; 404 when it does not lead",
     HTTP_OWN, .example = {"/v1/election/primary/renew?token={term}", .status = 200}},
    {HTTP_GET, "/v1/election/*name", election_get, "lock:read of *name",
     HTTP_PARAMS(
         {"*name", HTTP_TEXT, .help = "the election's name, slashes included", .least = 1, .most = QUEUE_NAME_MAX,
          .field = "name"},
         HTTP_READS, {"leader", HTTP_FLAG, .help = "the leader alone; with index: candidates wake nobody"},
         {"session", HTTP_UUID,
          .help = "only the entry of this session, as campaign answers it; with index changes of other "
                  "sessions do not wake the request"},
         {"transitions", HTTP_FLAG, .help = "also the newest changes of leader and candidates, with their causes"}),
     "The leader, and the other candidates", HTTP_OWN, .example = {"/v1/election/primary", .status = 200},
     .endpoint = {.query = &query_election, .answer = one, .watched = "election", .missing = "has no leader"}},
    {HTTP_GET, "/v1/elections", http_declared, "lock:read rows",
     HTTP_PARAMS(
         {"prefix", HTTP_TEXT, .help = "only names with this beginning", .most = QUEUE_NAME_MAX, .field = "prefix"},
         HTTP_READS),
     "All elections with a leader or a candidate", HTTP_OWN, .example = {.status = 200},
     .endpoint = {.query = &query_elections, .answer = any, .list = "queues"}},
    {HTTP_PUT, "/v1/election/+name/resign", http_declared, "lock:write of +name",
     HTTP_PARAMS(NAME, HTTP_DC, SESSION("of the leader, or of one that waits"),
                 TERM("in place of the session: the leader's term"), NOW),
     "The leader resigns, or a candidate waits no more; 409 when it is neither", HTTP_OWN,
     .example = {"/v1/election/primary/resign?token={term}", .status = 200},
     .endpoint = {.command = ELECTION_RESIGN, .prepare = resign_prepare}, .cli = {.command = "election resign"}},
    {0},
};
