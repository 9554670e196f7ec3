/* /v1/quota: budgets that many agents share (kv/quota/quota.h). Agents spend them by http/api/quota_take.c. */
#include "kv/quota/quota.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "http/api/quota_views.h"
#include "http/api/topics.h"
#include "http/declared.h"
#include "http/http.h"
#include "http/message_fill.h"

/* -- defining ----------------------------------------------------------------------------------------------------- */

#define ANY_AMOUNT .least = 1, .most = QUOTA_AMOUNT_MOST
#define PART       .least = 1, .most = QUOTA_WHOLE
#define TTL_BOUNDS .least = QUOTA_TTL_MIN_MS * UINT64_C(1000000), .most = QUOTA_TTL_MAX_MS * UINT64_C(1000000)

static const struct http_param refill[] = {
    {"Tokens", HTTP_U64, .help = "so many come back", ANY_AMOUNT, .field = "tokens"},
    {"Every", HTTP_DURATION, .help = "in each such period", .least = QUOTA_EVERY_MIN_MS * UINT64_C(1000000),
     .most = QUOTA_EVERY_MAX_MS * UINT64_C(1000000), .field = "every_ms"},
    {"Window", HTTP_CHOICE, .help = "in place of Tokens and Every: the whole budget comes back when a window begins",
     .choices = "minute|hour|day|month", .field = "window"},
    {"Offset", HTTP_OFFSET, .help = "of the windows' clock from UTC", .field = "offset_minutes"},
    {0},
};
static const struct http_param definition[] = {
    {"Budget", HTTP_U64, .help = "the amount that may be spent in a window, or at once", .required = true, ANY_AMOUNT,
     .field = "definition.budget"},
    {"Burst", HTTP_U64, .help = "the most that can be saved up, if other than the budget", ANY_AMOUNT,
     .field = "definition.burst"},
    {"Refill", HTTP_OBJECT, .group = refill, .field = "definition"},
    {"Mode", HTTP_CHOICE, .help = "how it is counted (default lease)", .choices = "lease|owner|bounded",
     .field = "definition.mode"},
    {"LeaseTTL", HTTP_DURATION, .help = "how long an agent may spend without hearing of the servers (default 10s)",
     TTL_BOUNDS, .field = "definition.lease_ttl_ms"},
    {"MaxLeaseFraction", HTTP_FRACTION, .help = "the part that one agent may hold (default 0.05)", PART,
     .field = "definition.max_lease"},
    {"Drift", HTTP_FRACTION, .help = "bounded: how much of it may be spent beyond it (default 0.01)", PART,
     .field = "definition.drift"},
    {"LowWatermark", HTTP_FRACTION, .help = "bounded: when so little is left each take asks the servers (default 0.1)",
     PART, .field = "definition.low_watermark"},
    {"UnknownSlack", HTTP_FRACTION,
     .help = "bounded: how much of an agent's slack takes without a key may use (default 1)", .most = QUOTA_WHOLE,
     .field = "definition.unknown_slack", .given = "definition.unknown_slack_given"},
    {"OnLoss", HTTP_CHOICE, .help = "the takes that an agent admits while no server answers (default closed: none)",
     .choices = "open|closed|last", .field = "definition.on_loss"},
    {"LocalCap", HTTP_U64, .help = "OnLoss open: so much, an agent and refill period", ANY_AMOUNT,
     .field = "definition.local_cap"},
    {"LastFor", HTTP_DURATION, .help = "OnLoss last: as much as was granted last, for so long (default 1m)",
     .least = 1000000, .most = UINT64_C(86400000000000), .field = "definition.last_for_ms"},
    {"Service", HTTP_TEXT, .help = "owner: the service whose healthy instances' agents own the keys", .least = 1,
     .most = 256, .field = "definition.service"},
    {"Split", HTTP_U64, .help = "owner: a hot key is split over so many owners", .least = 1, .most = 64,
     .field = "definition.split"},
    {0},
};

/* Stores the defaults in the budget, so that it keeps them when a later release has other ones. */
static bool put_prepare(struct http_request *request, ProtobufCMessage *message) {
    struct fault fault = {0};
    if (quota_definition_check(((Pb__QuotaPutCommand *)(void *)message)->definition, &fault) == CO_OK) return true;
    http_reply_text(request, 400, "%s", fault.text);
    return false;
}

/* -- leases, for clients that spend without an agent -------------------------------------------------------------- */

struct asked {
    uint64_t at_ms;
    bool made; /* a session, with ?ttl= */
    uint64_t token;
};

static void write_ttl(struct json_out *json, uint64_t ms) {
    struct buffer text = {0};
    duration_format(&text, (int64_t)ms * 1000000);
    json_key(json, "TTL");
    json_slice(json, buffer_slice(&text));
    buffer_free(&text);
}

/* The times between which the lease ends: its TTL counts from the log entry on, so from later than the request. But the
 * lease ends with its session, which is known here only when this request made it. */
static void write_bounds(struct http_request *request, struct json_out *json, uint64_t ttl_ms) {
    const struct asked *asked = http_context(request);
    struct http_bounds bounds;
    if (!asked->made) return;
    int64_t left_ms =
        (int64_t)(ttl_ms - ttl_ms * QUOTA_CLOCK_PPM / 1000000) - (int64_t)(clock_mono_ms() - asked->at_ms);
    struct http_bounds lease = http_bounds((int64_t)ttl_ms * 1000000, left_ms);
    if (http_made_bounds(request, &bounds) && bounds.not_before_ms < lease.not_before_ms) lease = bounds;
    http_bounds_write(json, lease);
}

static void granted(struct http_request *request, const struct machine_result *result) {
    const Pb__QuotaGrants *grants = (const Pb__QuotaGrants *)result->message;
    if (result->error || !grants || grants->n_grants != 1) {
        http_reply_result(request, result);
        return;
    }
    const Pb__QuotaGrant *grant = grants->grants[0];
    if (grant->error) {
        struct fault fault = {0};
        fault_set(&fault, (int)grant->error, "%s", grant->text[0] ? grant->text : co_strerror((int)grant->error));
        http_reply_fault(request, &fault);
        return;
    }
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Lease"), json_u64(json, grant->lease);
    json_key(json, "Token"), json_u64(json, ((const struct asked *)http_context(request))->token);
    json_key(json, "Granted"), json_u64(json, grant->granted);
    json_key(json, "Balance"), json_u64(json, grant->balance);
    write_ttl(json, grant->ttl_ms);
    json_key(json, "Remaining"), json_u64(json, grant->available > 0 ? (uint64_t)grant->available : 0);
    json_key(json, "Session"), json_string(json, grants->session);
    write_bounds(request, json, grant->ttl_ms);
    json_object_end(json);
    http_reply_json(request, 200);
}

static uint64_t number_of(struct http_request *request, const char *parameter) {
    uint64_t number = 0;
    CHECK(http_parameter_u64(request, parameter, &number)); /* the row has checked it */
    return number;
}

/* The token of a new lease. Knowing the token proves the ownership of the lease, because everybody who may read sees
 * lease and session. A client that asks again by lease and number must name the token itself, which it must know before
 * the answer comes. 0: it has replied. */
static uint64_t token_of(struct http_request *request) {
    enum { UNUSED_BITS = 64 - 53 }; /* as a number of JSON it is exact everywhere */
    uint64_t token = number_of(request, "token");
    if (!token && (http_has(request, "lease") || http_has(request, "seq"))) {
        http_reply_text(request, 400, "token: missing: with lease and seq, that of the lease");
        return 0;
    }
    while (!token) token = random_u64() >> UNUSED_BITS;
    return token;
}

static void quota_lease(struct http_request *request) {
    uint64_t token = token_of(request);
    if (!token) return;
    Pb__QuotaAskCommand *command =
        (Pb__QuotaAskCommand *)(void *)declared_message(request, &pb__quota_ask_command__descriptor);
    if (!command) return;
    struct arena *arena = http_arena(request);
    struct asked *asked = arena_zalloc(arena, sizeof *asked);
    Pb__QuotaAsk *ask = (Pb__QuotaAsk *)(void *)message_sub(&command->base, "asks", arena);
    asked->at_ms = clock_mono_ms(), asked->made = http_has(request, "ttl");
    http_set_context(request, asked);
    command->node = (char *)(uintptr_t)http_env(request)->node_name;
    ask->name = (char *)(uintptr_t)http_path_value(request, "name").data;
    ask->want = number_of(request, "want"), ask->lease = number_of(request, "lease");
    ask->spent = number_of(request, "spent"), ask->held = number_of(request, "held");
    ask->seq = number_of(request, "seq");
    ask->token = asked->token = token;
    ask->priority = http_has(request, "priority") ? (uint32_t)number_of(request, "priority")
                                                  : (uint32_t)http_env(request)->quota_priority;
    http_write(request, QUOTA_ASK, &command->base, granted);
}

/* -- rows --------------------------------------------------------------------------------------------------------- */

#define NAME(field_)                                                                                                \
    {                                                                                                               \
        ":name", HTTP_TEXT, .help = "the budget's name; a slash in it as %2F", .least = 1, .most = QUOTA_NAME_MOST, \
                            .field = (field_)                                                                       \
    }
#define AMOUNT(name_, help_) \
    { name_, HTTP_U64, .help = (help_), .most = QUOTA_AMOUNT_MOST }
#define UNKNOWN "is not known: no such budget"
const struct http_route http_routes_quota[] = {
    {HTTP_PUT, "/v1/quota/:name", http_declared, "quota:write of :name",
     HTTP_PARAMS(NAME("definition.name"), HTTP_DC,
                 {"cas", HTTP_U64, .help = "only if its DefinedIndex is this; 0: only if there is none", .field = "cas",
                  .given = "cas_given"},
                 {.type = HTTP_NOW, .field = "now_unix_ms"}),
     "Defines a budget, or defines it anew: what is spent stays, and leases, where Mode and the kind of Refill stay",
     HTTP_OWN,
     .example = {"/v1/quota/calls",
                 "{\"Budget\":1000,\"Refill\":{\"Tokens\":100,\"Every\":\"1s\"},\"LeaseTTL\":\"1m\"}", .status = 200},
     .endpoint = {.command = QUOTA_PUT, .body = definition, .prepare = put_prepare}, .cli = {.command = "quota put"}},
    {HTTP_GET, "/v1/quota/:name", http_declared, "quota:read of :name", HTTP_PARAMS(NAME("name"), HTTP_READS),
     "A budget, what is left of it, who holds leases, and what may be admitted beyond it at the worst", HTTP_OWN,
     .example = {"/v1/quota/calls", .status = 200},
     .endpoint = {.query = &query_quota, .answer = quota_members_one, .watched = "quota", .missing = UNKNOWN},
     .cli = {.command = "quota get"}},
    {HTTP_DELETE, "/v1/quota/:name", http_declared, "quota:write of :name", HTTP_PARAMS(NAME("name"), HTTP_DC),
     "Deletes a budget and its leases; agents that hold some of it stop spending when they hear of it", HTTP_OWN,
     .no_example = "the budget is used below", .endpoint = {.command = QUOTA_DELETE},
     .cli = {.command = "quota delete"}},
    {HTTP_GET, "/v1/quotas", http_declared, "quota:read rows",
     HTTP_PARAMS({"prefix", HTTP_TEXT, .help = "only names that begin so", .most = QUOTA_NAME_MOST, .field = "prefix"},
                 HTTP_READS),
     "All budgets, without their leases", HTTP_OWN, .example = {"/v1/quotas?prefix=ca", .status = 200},
     .endpoint = {.query = &query_quotas, .answer = quota_members_listed, .list = "quotas"},
     .cli = {"quota list", .columns = "Name Mode Budget Available Spent Leased Stranded WorstCaseOverAdmission"}},
    {HTTP_PUT, "/v1/quota/:name/lease", quota_lease, "quota:write of :name",
     HTTP_PARAMS(
         NAME(NULL), HTTP_DC, HTTP_SESSION_USE("session"),
         AMOUNT("want", "the amount that the lease is to hold; less may be granted"),
         {"lease", HTTP_U64, .help = "the lease that is renewed; without it a new one is made"},
         {"token", HTTP_U64, .least = 1,
          .help = "the lease's token, which only its holder knows; for a new lease the one that it is to have (else a "
                  "random one)"},
         AMOUNT("spent", "with lease: the amount spent of it since the last answer"),
         AMOUNT("held", "with lease: the amount that its owner goes on spending meanwhile; the rest goes back"),
         {"seq", HTTP_U64, .help = "a number that grows with each request; the last one again gives the same answer"},
         {"priority", HTTP_U64, .help = "when it is not enough for all, higher ones come first",
          .most = QUOTA_PRIORITIES - 1}),
     "Takes a part of a budget to spend it without asking, or renews that: as agents do for their clients. An "
     "amount that is not settled when the lease ends counts as spent until the next refill",
     HTTP_OWN,
     .example = {"/v1/quota/calls/lease?ttl=1m&want=40&token=7306482591734", .status = 200, .keep = "part=Lease"},
     .endpoint = {.command = QUOTA_ASK}},
    {HTTP_PUT, "/v1/quota/:name/settle", http_declared, "quota:write of :name",
     HTTP_PARAMS(NAME("name"), HTTP_DC,
                 {"lease", HTTP_U64, .help = "the lease", .required = true, .least = 1, .field = "lease"},
                 {"token", HTTP_U64, .help = "its token", .required = true, .least = 1, .field = "token"},
                 {"spent", HTTP_U64, .help = "the amount spent of it since the last answer", .required = true,
                  .most = QUOTA_AMOUNT_MOST, .field = "spent"}),
     "Ends a lease and gives the rest back; refused when it is settled already, or for more than it holds, or with "
     "another token",
     HTTP_OWN, .example = {"/v1/quota/calls/settle?lease={part}&token=7306482591734&spent=25", .status = 200},
     .endpoint = {.command = QUOTA_SETTLE}},
    {HTTP_GET, "/v1/quota/:name/audit", http_declared, "quota:read of :name",
     HTTP_PARAMS(
         NAME("name"), HTTP_READS,
         {"from", HTTP_U64, .help = "the first Number that is wanted; 0: the oldest that is kept", .field = "from"}),
     "The changes of a budget, the oldest first, 1000 at most: a row has the sums before it, and the amounts that it "
     "changed",
     HTTP_OWN, .example = {"/v1/quota/calls/audit", .status = 200},
     .endpoint = {.query = &query_quota_audit, .list = "entries", .watched = "quota", .missing = UNKNOWN},
     .cli = {.command = "quota audit"}},
    {0},
};
