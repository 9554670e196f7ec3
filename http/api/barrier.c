/* /v1/barrier: sessions that wait for each other. */
#include "kv/barrier/barrier.h"
#include "base/message.h"
#include "http/api/topics.h"
#include "http/http.h"

/* -- write, then wait --------------------------------------------------------------------------------------------- */

static const struct message_member answer[] = {{.field = "released"},
                                               {.field = "round"},
                                               {.field = "parties"},
                                               {.field = "entered"},
                                               {.field = "session"},
                                               {.write = http_write_made_bounds},
                                               {0}};

static void reply(struct http_request *request, const ProtobufCMessage *message) {
    message_json(http_out(request), message, answer, request);
    http_reply_json(request, 200);
}

static const ProtobufCMessage *ask(struct http_request *request, const struct machine_result *written, bool leave) {
    const Pb__BarrierAnswer *there = (const Pb__BarrierAnswer *)written->message;
    if (written->error) {
        http_reply_result(request, written);
        return NULL;
    }
    if (there->released || !http_waits(request)) {
        reply(request, &there->base);
        return NULL;
    }
    Pb__BarrierWaitRequest *wait = arena_alloc(http_arena(request), sizeof *wait);
    struct slice who = barrier_who(http_path_value(request, "name"), slice_text(there->session),
                                   arena_alloc(http_arena(request), BARRIER_WHO_MOST));
    pb__barrier_wait_request__init(wait);
    wait->who = message_bytes(who);
    wait->round = there->round, wait->parties = there->parties, wait->leave = leave;
    return &wait->base;
}
static const ProtobufCMessage *ask_enter(struct http_request *request, const struct machine_result *written) {
    return ask(request, written, false);
}
static const ProtobufCMessage *ask_leave(struct http_request *request, const struct machine_result *written) {
    return ask(request, written, true);
}

static bool holds(struct http_request *request, const struct query_result *result) {
    const Pb__BarrierAnswer *there = (const Pb__BarrierAnswer *)result->message;
    (void)request;
    return there->released || there->gone;
}

static void waited(struct http_request *request, const struct query_result *result, bool held) {
    const Pb__BarrierAnswer *there = (const Pb__BarrierAnswer *)result->message;
    (void)held;
    if (there->gone)
        http_reply_text(request, 404, "session \"%s\" is no longer in barrier \"%s\": it has left, or it has ended",
                        there->session, http_path_value(request, "name").data);
    else reply(request, &there->base);
}

static const struct http_wait wait_released = {
    .query = &query_barrier_wait, .ask = ask_enter, .holds = holds, .reply = waited, .after_write = true};
static const struct http_wait wait_all_left = {
    .query = &query_barrier_wait, .ask = ask_leave, .holds = holds, .reply = waited, .after_write = true};

/* -- where one session stands ------------------------------------------------------------------------------------- */

/* A missing session is answered with 200 too, so that a client that waits for the end of its session is told. */
static int view_seat(struct http_request *request, const struct query_result *result) {
    Pb__BarrierSeat outside = PB__BARRIER_SEAT__INIT;
    outside.name = (char *)(uintptr_t)http_path_value(request, "name").data;
    outside.session = (char *)(uintptr_t)http_parameter(request, "session").data;
    outside.standing = PB__BARRIER_STANDING__BARRIER_OUTSIDE;
    message_json(http_out(request), result->found ? result->message : &outside.base, NULL, request);
    return 200;
}

static void barrier_get_row(struct http_request *request) {
    if (!http_has(request, "session")) {
        http_declared(request);
        return;
    }
    Pb__BarrierPlaceRequest *place = arena_alloc(http_arena(request), sizeof *place);
    pb__barrier_place_request__init(place);
    place->who = message_bytes(barrier_who(http_path_value(request, "name"), http_parameter(request, "session"),
                                           arena_alloc(http_arena(request), BARRIER_WHO_MOST)));
    http_read(request, &query_barrier_place, &place->base, view_seat);
}

/* -- rows --------------------------------------------------------------------------------------------------------- */

static const struct message_member party[] = {{.field = "session"}, {.field = "index"}, {0}};
static const struct message_member state[] = {{.field = "name"},
                                              {.field = "round"},
                                              {.field = "parties"},
                                              {.name = "Double", .field = "doubled"},
                                              {.field = "entered", .members = party},
                                              {.field = "working_round"},
                                              {.field = "working", .members = party},
                                              {.field = "released_round"},
                                              {.field = "modify_index"},
                                              {0}};

#define NAME(segment) \
    { segment, HTTP_TEXT, .help = "the barrier's name", .least = 1, .most = BARRIER_NAME_MOST, .field = "name" }
const struct http_route http_routes_barrier[] = {
    {HTTP_PUT, "/v1/barrier/+name/enter", http_declared, "lock:write of +name",
     HTTP_PARAMS(
         NAME("+name"), HTTP_DC, HTTP_SESSION_USE("session"),
         {"parties", HTTP_U64, .help = "so many have to enter; all of a round say the same", .least = 1,
          .most = BARRIER_PARTIES_MOST, .required = true, .field = "parties"},
         {"double", HTTP_FLAG, .help = "the round is over only when all have left; all of a round say the same",
          .field = "doubled"},
         {"after", HTTP_U64,
          .help = "the Round that the session was released from last, 0 at first: a request that is repeated because "
                  "the answer was lost then does not enter the next round",
          .field = "after", .given = "after_given"},
         HTTP_WAIT("how long it waits for the others")),
     "Enters a barrier: Released when all parties of the round have entered; without that the session stays entered",
     HTTP_OWN,
     .example = {"/v1/barrier/nightly/load/enter?parties=2&ttl=1m&double", .status = 200, .keep = "party=Session"},
     .endpoint = {.command = BARRIER_ENTER, .then = &wait_released, .answer = answer},
     .cli = {"barriers enter", .defaults = "wait=10m"}},
    {HTTP_GET, "/v1/barrier/*name", barrier_get_row, "lock:read of *name",
     HTTP_PARAMS(
         NAME("*name"), HTTP_READS,
         {"session", HTTP_UUID,
          .help = "only where this session stands (Standing: waiting, released, inside, left, over, or outside); "
                  "with index nobody else's coming and going wakes it"}),
     "One barrier: the sessions that wait (Entered), and those of a double round that have not left (Working)",
     HTTP_OWN, .example = {"/v1/barrier/nightly/load", .status = 200},
     .endpoint = {.query = &query_barrier, .answer = state, .watched = "barrier", .missing = "is empty"},
     .cli = {.command = "barriers get"}},
    {HTTP_GET, "/v1/barriers", http_declared, "lock:read rows",
     HTTP_PARAMS(
         {"prefix", HTTP_TEXT, .help = "only names that begin so", .most = BARRIER_NAME_MOST, .field = "prefix"},
         HTTP_READS),
     "All barriers with a party", HTTP_OWN, .example = {"/v1/barriers?prefix=nightly/", .status = 200, .depth = 2},
     .endpoint = {.query = &query_barriers, .answer = state, .list = "barriers"},
     .cli = {"barriers list", .columns = "Name Round Parties Double Entered Working ReleasedRound"}},
    {HTTP_PUT, "/v1/barrier/+name/leave", http_declared, "lock:write of +name",
     HTTP_PARAMS(NAME("+name"), HTTP_DC,
                 {"session", HTTP_UUID, .help = "the session that entered", .required = true, .field = "session"},
                 HTTP_WAIT("how long it waits for the others of a double barrier's round")),
     "Leaves a barrier: Released when all who entered a double barrier's round have left, or ended; else at once",
     HTTP_OWN, .example = {"/v1/barrier/nightly/load/leave?session={party}", .status = 200},
     .endpoint = {.command = BARRIER_LEAVE, .then = &wait_all_left, .answer = answer},
     .cli = {"barriers leave", .defaults = "wait=10m"}},
    {0},
};
