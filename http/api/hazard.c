/* /v1/hazard: readers that protect what they read, owners that retire it. */
#include "kv/hazard/hazard.h"
#include "http/api/topics.h"
#include "http/http.h"

/* -- retire, then wait -------------------------------------------------------------------------------------------- */

static void reply(struct http_request *request, const ProtobufCMessage *message) {
    message_json(http_out(request), message, NULL, request);
    http_reply_json(request, 200);
}

static const ProtobufCMessage *ask(struct http_request *request, const struct machine_result *written) {
    const Pb__HazardRetirement *stands = (const Pb__HazardRetirement *)written->message;
    if (written->error) {
        http_reply_result(request, written);
        return NULL;
    }
    if (stands->retired || !http_waits(request)) {
        reply(request, &stands->base);
        return NULL;
    }
    Pb__HazardRetireRequest *wait = arena_alloc(http_arena(request), sizeof *wait);
    pb__hazard_retire_request__init(wait);
    wait->object = (char *)(uintptr_t)http_path_value(request, "object").data, wait->epoch = stands->epoch;
    return &wait->base;
}

static bool holds(struct http_request *request, const struct query_result *result) {
    (void)request;
    return ((const Pb__HazardRetirement *)result->message)->retired;
}

static void waited(struct http_request *request, const struct query_result *result, bool held) {
    (void)held;
    reply(request, result->message);
}

static const struct http_wait wait_retired = {
    .query = &query_hazard_retire, .ask = ask, .holds = holds, .reply = waited, .after_write = true};

/* -- rows --------------------------------------------------------------------------------------------------------- */

static const struct message_member protection[] = {
    {.field = "epoch"}, {.field = "session"}, {.write = http_write_made_bounds}, {0}};
static const struct message_member of_list[] = {
    {.field = "object"}, {.field = "count"}, {.field = "oldest"}, {.field = "modify_index"}, {0}};

#define OBJECT(segment) \
    { segment, HTTP_TEXT, .help = "the object's name", .least = 1, .most = HAZARD_OBJECT_MOST, .field = "object" }
const struct http_route http_routes_hazard[] = {
    {HTTP_PUT, "/v1/hazard/+object/protect", http_declared, "lock:write of +object",
     HTTP_PARAMS(OBJECT("+object"), HTTP_DC, HTTP_SESSION_USE("session")),
     "Protects an object before it is read; a session that does so already keeps its epoch", HTTP_OWN,
     .example = {"/v1/hazard/index/v42/protect?ttl=1m", .status = 200, .keep = "reader=Session"},
     .endpoint = {.command = HAZARD_PROTECT, .answer = protection}, .cli = {"hazard protect", .defaults = "ttl=15s"}},
    {HTTP_GET, "/v1/hazard/*object", http_declared, "lock:read of *object", HTTP_PARAMS(OBJECT("*object"), HTTP_READS),
     "The protections of an object, the oldest first", HTTP_OWN, .example = {"/v1/hazard/index/v42", .status = 200},
     .endpoint = {.query = &query_hazard, .watched = "object", .missing = "is not protected"},
     .cli = {.command = "hazard get"}},
    {HTTP_GET, "/v1/hazards", http_declared, "lock:read rows",
     HTTP_PARAMS(
         {"prefix", HTTP_TEXT, .help = "only names that begin so", .most = HAZARD_OBJECT_MOST, .field = "prefix"},
         HTTP_READS),
     "All objects that are protected, and by how many", HTTP_OWN,
     .example = {"/v1/hazards?prefix=index/", .status = 200},
     .endpoint = {.query = &query_hazards, .answer = of_list, .list = "hazards"}, .cli = {.command = "hazard list"}},
    {HTTP_PUT, "/v1/hazard/+object/retire", http_declared, "lock:write of +object",
     HTTP_PARAMS(
         OBJECT("+object"), HTTP_DC,
         {"epoch", HTTP_U64,
          .help = "in place of now: the Epoch of an earlier answer, which goes on with that retire, or the index "
                  "of the write that made the object unreachable",
          .least = 1, .field = "epoch", .given = "epoch_given"},
         HTTP_WAIT("how long it waits for older protections")),
     "Retires an object: Retired when all protections from before are cleared, or their sessions ended", HTTP_OWN,
     .example = {"/v1/hazard/index/v42/retire", .status = 200},
     .endpoint = {.command = HAZARD_RETIRE, .then = &wait_retired}, .cli = {"hazard retire", .defaults = "wait=10m"}},
    {HTTP_PUT, "/v1/hazard/+object/clear", http_declared, "lock:write of +object",
     HTTP_PARAMS(OBJECT("+object"), HTTP_DC,
                 {"session", HTTP_UUID, .help = "the session that protects it", .required = true, .field = "session"}),
     "Ends a session's protection of an object; 404 when there is none", HTTP_OWN,
     .example = {"/v1/hazard/index/v42/clear?session={reader}", .status = 200}, .endpoint = {.command = HAZARD_CLEAR},
     .cli = {.command = "hazard clear"}},
    {0},
};
