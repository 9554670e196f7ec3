/* /v1/phaser: barriers whose parties may register and leave in any phase. */
#include "kv/phaser/phaser.h"
#include "http/api/topics.h"
#include "http/http.h"

/* -- register ----------------------------------------------------------------------------------------------------- */

static const struct message_member registered[] = {
    {.field = "phase"}, {.field = "mode"}, {.field = "session"}, {.write = http_write_made_bounds}, {0}};

/* -- waiting for the advance -------------------------------------------------------------------------------------- */

static const Pb__PhaserAwaitRequest *asked(struct http_request *request) { return http_context(request); }

static const Pb__PhaserAwait *seen(const struct query_result *result) {
    return (const Pb__PhaserAwait *)result->message;
}

/* Has the registration with which the wait began ended? */
static bool is_over(struct http_request *request, const struct query_result *result) {
    uint64_t began = asked(request)->create_index;
    return !result->found || (began && began != seen(result)->create_index);
}

static bool cannot_wait(struct http_request *request, const struct query_result *result) {
    return seen(result)->mode == PB__PHASER_MODE__PHASER_SIGNAL || asked(request)->phase > seen(result)->phase;
}

static bool holds(struct http_request *request, const struct query_result *result) {
    if (is_over(request, result) || cannot_wait(request, result)) return true;
    ((Pb__PhaserAwaitRequest *)(uintptr_t)asked(request))->create_index = seen(result)->create_index;
    return seen(result)->phase > asked(request)->phase;
}

static void reply_await(struct http_request *request, uint64_t phase, bool advanced, uint32_t parties) {
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Phase");
    json_u64(json, phase);
    json_key(json, "Advanced");
    json_bool(json, advanced);
    json_key(json, "Registered");
    json_u64(json, parties);
    json_object_end(json);
    http_reply_json(request, 200);
}

static void reply(struct http_request *request, const struct query_result *result, bool holds) {
    const Pb__PhaserAwaitRequest *await = asked(request);
    if (is_over(request, result))
        http_reply_text(request, 404,
                        "session \"%s\" is not registered with phaser \"%s\": it has ended, has deregistered or never "
                        "registered",
                        await->session, await->name);
    else if (seen(result)->mode == PB__PHASER_MODE__PHASER_SIGNAL)
        http_reply_text(request, 409, "the session is registered to signal only: it cannot wait");
    else if (cannot_wait(request, result))
        http_reply_text(request, 409, "phase: %llu is ahead, the phaser is in phase %llu",
                        (unsigned long long)await->phase, (unsigned long long)seen(result)->phase);
    else reply_await(request, seen(result)->phase, holds, seen(result)->registered);
}

static bool await_prepare(struct http_request *request, ProtobufCMessage *message) {
    phaser_await_key((Pb__PhaserAwaitRequest *)(void *)message, http_arena(request));
    return true;
}

static const struct http_wait await_wait = {.query = &query_phaser_await, .holds = holds, .reply = reply};

/* -- arrive ------------------------------------------------------------------------------------------------------- */

static bool arrive_prepare(struct http_request *request, ProtobufCMessage *message) {
    ((Pb__PhaserArriveCommand *)(void *)message)->waits = http_has(request, "wait");
    return true;
}

static const struct message_member arrived[] = {
    {.field = "phase"}, {.field = "arrived"}, {.field = "registered"}, {.field = "advanced"}, {0}};

/* With ?wait= the request goes on as an await of the phase in which it has arrived. */
static const ProtobufCMessage *arrive_ask(struct http_request *request, const struct machine_result *written) {
    const Pb__PhaserArrival *arrival = (const Pb__PhaserArrival *)written->message;
    if (written->error) {
        http_reply_result(request, written);
    } else if (!http_has(request, "wait")) {
        message_json(http_out(request), &arrival->base, arrived, request);
        http_reply_json(request, 200);
    } else if (arrival->advanced || !http_waits(request)) {
        reply_await(request, arrival->now, arrival->advanced, arrival->registered);
    } else {
        Pb__PhaserAwaitRequest *message = arena_alloc(http_arena(request), sizeof *message);
        pb__phaser_await_request__init(message);
        message->name = (char *)(uintptr_t)http_path_value(request, "name").data;
        message->session = (char *)(uintptr_t)http_parameter(request, "session").data;
        message->phase = arrival->phase;
        message->create_index = arrival->create_index;
        phaser_await_key(message, http_arena(request));
        return &message->base;
    }
    return NULL;
}

static const struct http_wait arrive_wait = {
    .query = &query_phaser_await, .ask = arrive_ask, .holds = holds, .reply = reply, .after_write = true};

/* -- rows --------------------------------------------------------------------------------------------------------- */

static const struct message_member summary[] = {{.field = "name"},         {.field = "phase"},
                                                {.field = "parent"},       {.field = "registered"},
                                                {.field = "arrived"},      {.field = "members"},
                                                {.field = "children"},     {.field = "create_index"},
                                                {.field = "modify_index"}, {0}};
static const struct message_member member[] = {
    {.field = "session"}, {.field = "mode"}, {.field = "arrived"}, {.field = "create_index"}, {0}};
static const struct message_member state[] = {{.field = "phaser.name"},
                                              {.field = "phaser.phase"},
                                              {.field = "phaser.parent"},
                                              {.field = "phaser.registered"},
                                              {.field = "phaser.arrived"},
                                              {.field = "members", .members = member},
                                              {.field = "children"},
                                              {.field = "phaser.descendants"},
                                              {.field = "phaser.create_index"},
                                              {.field = "phaser.modify_index"},
                                              {0}};

#define NAME(kind) \
    { kind "name", HTTP_TEXT, .help = "the phaser's name", .least = 1, .most = PHASER_NAME_MAX, .field = "name" }
#define SESSION \
    { "session", HTTP_UUID, .help = "the member's session", .required = true, .field = "session" }
const struct http_route http_routes_phaser[] = {
    {HTTP_PUT, "/v1/phaser/+name/register", http_declared, "lock:write of +name",
     HTTP_PARAMS(NAME("+"), HTTP_DC, HTTP_SESSION_USE("session"),
                 {"mode", HTTP_CHOICE, .choices = "signal-wait|signal|wait", .otherwise = "signal-wait",
                  .help = "the member's mode: the others wait only for members that signal", .field = "mode"},
                 {"parent", HTTP_TEXT, .least = 1, .most = PHASER_NAME_MAX, .field = "parent",
                  .help = "the phaser that this one is a party of, from its first member on"}),
     "Joins a phaser in its present phase; again: answers what is registered", HTTP_OWN,
     .example = {"/v1/phaser/steps/register?ttl=1m", .status = 200, .keep = "phaser=Session"},
     .endpoint = {.command = PHASER_REGISTER, .answer = registered}, .cli = {.command = "phaser register"}},
    {HTTP_PUT, "/v1/phaser/+name/arrive", http_declared, "lock:write of +name",
     HTTP_PARAMS(NAME("+"), HTTP_DC, SESSION,
                 {"phase", HTTP_U64, .help = "the phase that it arrives in: once that is over, nothing is done",
                  .field = "phase", .given = "has_phase"},
                 HTTP_WAIT("then waits for the advance, and answers as await does")),
     "Arrives, at most once in a phase; the last one's arrival begins the next phase", HTTP_OWN,
     .example = {"/v1/phaser/steps/arrive?session={phaser}&phase=0&wait=10s", .status = 200},
     .endpoint = {.command = PHASER_ARRIVE, .prepare = arrive_prepare, .then = &arrive_wait},
     .cli = {.command = "phaser arrive"}},
    {HTTP_PUT, "/v1/phaser/+name/await", http_declared, "lock:read of +name",
     HTTP_PARAMS(NAME("+"), HTTP_DC, SESSION,
                 {"phase", HTTP_U64, .help = "the phase whose end is waited for", .required = true, .field = "phase"},
                 HTTP_WAIT("how long it waits at most; without it, it answers at once")),
     "Waits until a phase is over; 404 when the member's session ends meanwhile", HTTP_OWN,
     .example = {"/v1/phaser/steps/await?session={phaser}&phase=0&wait=10s", .status = 200},
     .endpoint = {.query = &query_phaser_await, .prepare = await_prepare, .then = &await_wait},
     .cli = {.command = "phaser await"}},
    {HTTP_GET, "/v1/phaser/*name", http_declared, "lock:read of *name", HTTP_PARAMS(NAME("*"), HTTP_READS),
     "One phaser, its members and its children", HTTP_OWN, .example = {"/v1/phaser/steps", .status = 200},
     .endpoint = {.query = &query_phaser,
                  .answer = state,
                  .watched = "phaser",
                  .missing = "does not exist: nobody is registered"},
     .cli = {.command = "phaser get"}},
    {HTTP_GET, "/v1/phasers", http_declared, "lock:read rows",
     HTTP_PARAMS(HTTP_READS,
                 {"prefix", HTTP_TEXT, .most = PHASER_NAME_MAX, .help = "only names that begin so", .field = "prefix"}),
     "All phasers", HTTP_OWN, .example = {.status = 200},
     .endpoint = {.query = &query_phasers, .answer = summary, .list = "phasers"},
     .cli = {"phaser list", .columns = "Name Phase Registered Arrived Members Children Parent"}},
    {HTTP_PUT, "/v1/phaser/+name/deregister", http_declared, "lock:write of +name",
     HTTP_PARAMS(NAME("+"), HTTP_DC, SESSION), "Leaves, which may end the phase; false: it was not registered",
     HTTP_OWN, .example = {"/v1/phaser/steps/deregister?session={phaser}", .status = 200},
     .endpoint = {.command = PHASER_DEREGISTER}, .cli = {.command = "phaser deregister"}},
    {0},
};
