/* /v1/agent/quota: takes of budgets, answered by this agent (rpc/quota/spender_run.h). Gateways ask for each request that
 * they admit, so the usual case, in which the agent holds enough, is answered within the call. */
#include "base/check.h"
#include "base/json_in.h"
#include "http/api/topics.h"
#include "http/http.h"
#include "multi-dc/region.h"
#include "rpc/quota/spender_run.h"

/* -- RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers) ----------------------------------------- */

#define FIELD_MOST  2048                      /* bytes of one header field, which has as many takes as fit */
#define NUMBER_MOST UINT64_C(999999999999999) /* the largest integer of a structured field */

struct field {
    char text[FIELD_MOST];
    size_t size;
    bool full;
};

static void append(struct field *field, const char *text, size_t size) {
    field->full = field->full || field->size + size >= FIELD_MOST;
    if (field->full) return;
    memcpy(field->text + field->size, text, size);
    field->size += size;
}

static void append_number(struct field *field, const char *before, uint64_t number) {
    char text[24], *at = text + sizeof text;
    if (number > NUMBER_MOST) number = NUMBER_MOST;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    append(field, before, 3);
    append(field, at, (size_t)(text + sizeof text - at));
}

/* An item; one that does not fit as a whole is left out. A budget's name needs no escapes (quota_definition_check). */
static void item(struct field *field, struct slice name, const char *first, uint64_t first_value, const char *second,
                 uint64_t second_value) {
    size_t before = field->size;
    if (field->full) return;
    if (before) append(field, ", ", 2);
    append(field, "\"", 1);
    append(field, name.data, name.size);
    append(field, "\"", 1);
    append_number(field, first, first_value);
    append_number(field, second, second_value);
    if (field->full) field->size = before;
}

static void say(struct http_request *request, const char *name, struct field *field) {
    if (!field->size) return;
    field->text[field->size] = '\0';
    http_header(request, name, field->text);
}

static void rate_fields(struct http_request *request, const struct spender_run_take *take) {
    struct field policy, rest;
    policy.size = rest.size = 0, policy.full = rest.full = false;
    for (size_t i = 0; i < take->count; i++) {
        const struct spender_rate *rate = &take->rates[i];
        if (!rate->quota) continue;
        item(&policy, take->takes[i].name, ";q=", rate->quota, ";w=", rate->window_s);
        item(&rest, take->takes[i].name, ";r=", rate->remaining, ";t=", rate->reset_s);
    }
    say(request, "RateLimit-Policy", &policy);
    say(request, "RateLimit", &rest);
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

struct taking {
    struct http_call call;
    struct spender_run_take take;
    bool several;
    struct spender_take takes[];
};

static void write_answer(struct http_request *request, const struct taking *taking, bool allowed) {
    static const char *const sources[] = {"local", "renewed", "owner", "fallback"};
    const struct spender_answer *answer = &taking->take.answer;
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Allowed"), json_bool(json, allowed);
    json_key(json, "Source"), json_string(json, sources[answer->source]);
    if (!allowed && taking->several) json_key(json, "Refused"), json_slice(json, taking->takes[answer->failed].name);
    json_object_end(json);
}

/* Whole seconds, and at least one, because a client that reads 0 would ask again at once. */
static void retry_after(struct http_request *request, uint64_t retry_ms) {
    uint64_t seconds = (retry_ms + 999) / 1000;
    http_header_u64(request, "Retry-After", seconds ? seconds : 1);
}

static void refuse(struct http_request *request, const struct taking *taking, int error) {
    const struct spender_answer *answer = &taking->take.answer;
    struct slice name = taking->takes[answer->failed].name;
    const char *why = answer->text           ? answer->text
                      : error == CO_NOTFOUND ? "is not known: no such budget"
                      : error == CO_NOLEADER ? "no server can say, and OnLoss does not allow it without them"
                      : error == CO_TOOLARGE ? "that is more than the budget can ever hold"
                      : error == CO_CLOSED   ? "this agent ends"
                                             : co_strerror(error);
    int status = error == CO_NOTFOUND                                                     ? 404
                 : error == CO_NOLEADER || error == CO_CLOSED                             ? 503
                 : error == CO_INVALID || error == CO_TOOLARGE || error == CO_UNSUPPORTED ? 400
                                                                                          : 500;
    if (status == 503) retry_after(request, answer->retry_ms);
    http_reply_text(request, status, "quota \"%.*s\": %s", (int)name.size, name.data, why);
}

/* Is it a request that spends nothing, and is one of its budgets used up? */
static bool is_look_at_nothing(const struct taking *taking) {
    bool spends = false, spent = false;
    for (size_t i = 0; i < taking->take.count; i++) {
        spends |= taking->takes[i].n > 0;
        spent |= taking->take.rates[i].quota && !taking->take.rates[i].remaining;
    }
    return spent && !spends;
}

/* The time until more of the budget is there. RateLimit (t) has the same time, for the budget that refused. */
static uint64_t refused_for_ms(struct taking *taking) {
    const struct spender_answer *answer = &taking->take.answer;
    struct spender_rate *rate = &taking->take.rates[answer->failed];
    if (!answer->retry_ms) return rate->quota ? rate->reset_s * 1000 : 0;
    rate->reset_s = (answer->retry_ms + 999) / 1000;
    return answer->retry_ms;
}

static void reply(struct http_request *request, struct taking *taking) {
    int error = taking->take.error;
    uint64_t retry_ms = error == CO_BUSY ? refused_for_ms(taking) : 0;
    rate_fields(request, &taking->take);
    if (error != CO_OK && error != CO_BUSY) {
        refuse(request, taking, error);
        return;
    }
    if (error == CO_BUSY) retry_after(request, retry_ms);
    write_answer(request, taking, error == CO_OK && !is_look_at_nothing(taking));
    http_reply_json(request, error == CO_OK ? 200 : 429);
}

/* There is no such budget here. A budget whose name ends with the name of another region belongs to that region. */
static void regions_known(struct http_request *request, int error, const struct query_result *result) {
    struct taking *taking = (struct taking *)(uintptr_t)http_context(request);
    struct slice name = taking->takes[taking->take.answer.failed].name, region = region_of_name(name);
    const Pb__RegionsResult *records = error ? NULL : (const Pb__RegionsResult *)result->message;
    for (size_t i = 0; records && i < records->n_regions; i++) {
        if (records->regions[i]->removed || !slice_is(region, records->regions[i]->name)) continue;
        http_reply_text(
            request, 403,
            "budget \"%.*s\" belongs to region %.*s: take of it at an agent there, or lease a part of it with ?dc=%.*s",
            (int)name.size, name.data, (int)region.size, region.data, (int)region.size, region.data);
        return;
    }
    reply(request, taking);
}

static void answered(struct http_request *request, struct http_call *call, int error) {
    struct taking *taking = CONTAINER_OF(call, struct taking, call);
    (void)error;
    bool unknown = taking->take.error == CO_NOTFOUND;
    if (!unknown || !region_of_name(taking->takes[taking->take.answer.failed].name).size) {
        reply(request, taking);
        return;
    }
    Pb__RegionsRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__regions_request__init(message);
    http_set_context(request, taking);
    http_read_once(request, &query_regions, &message->base, RPC_STALE, regions_known);
}

/* Loop thread. */
static void done(struct spender_run_take *take) { http_called(&CONTAINER_OF(take, struct taking, take)->call, CO_OK); }

/* -- taking ------------------------------------------------------------------------------------------------------- */

static struct taking *taking_new(struct http_request *request, size_t count) {
    struct taking *taking = arena_zalloc(http_arena(request), sizeof *taking + count * sizeof taking->takes[0]);
    taking->take = (struct spender_run_take){.takes = taking->takes, .count = count, .done = done};
    taking->take.rates = arena_zalloc(http_arena(request), count * sizeof *taking->take.rates);
    return taking;
}

#define NO_PART "this agent has no part in quotas"

/* Begins the take. True: the outcome is known; else `view` is called with it later. The request is parked before,
 * because the outcome may come at once on another thread. */
static bool begin(struct http_request *request, struct taking *taking,
                  void (*view)(struct http_request *request, struct http_call *call, int error)) {
    taking->call.view = view;
    http_call(request, &taking->call);
    bool over = spender_run_take(http_env(request)->spender_run, &taking->take);
    if (over) http_uncall(request);
    return over;
}

static void take(struct http_request *request, struct taking *taking) {
    if (!http_env(request)->spender_run) http_reply_text(request, 503, NO_PART);
    else if (begin(request, taking, answered)) reply(request, taking);
}

static void take_one(struct http_request *request) {
    struct taking *taking = taking_new(request, 1);
    taking->takes[0] =
        (struct spender_take){.name = http_path_value(request, "name"), .key = http_parameter(request, "key"), .n = 1};
    if (http_parameter_u64(request, "n", &taking->takes[0].n)) take(request, taking);
}

/* -- the owner of a key ------------------------------------------------------------------------------------------- */

static void write_owner(struct json_out *json, const char *node, const struct spender_run_view *seen) {
    const struct owner_view *view = &seen->view;
    json_object(json);
    json_key(json, "Node"), json_string(json, node);
    json_key(json, "Owner");
    if (seen->owned) json_string(json, seen->owner);
    else json_null(json);
    json_key(json, "Counts"), json_bool(json, view->counts);
    if (view->counts) json_key(json, "Remaining"), json_u64(json, view->left);
    json_key(json, "Epoch"), json_u64(json, view->epoch);
    json_key(json, "ActiveEpoch"), json_u64(json, view->active);
    json_key(json, "Moves"), json_bool(json, view->moves);
    if (view->parts) json_key(json, "Parts"), json_u64(json, view->parts);
    if (view->parts) json_key(json, "Part"), json_u64(json, view->part);
    json_object_end(json);
}

/* Replies after a look, which makes the agent fetch the budget. The outcome of the look matters only when the budget is
 * still unknown. */
static void reply_owner(struct http_request *request, const struct taking *taking) {
    const struct spender_take *take = &taking->takes[0];
    struct spender_run_view seen;
    if (spender_run_look(http_env(request)->spender_run, take->name, take->key, &seen)) {
        write_owner(http_out(request), http_env(request)->node_name, &seen);
        http_reply_json(request, 200);
    } else if (taking->take.error == CO_OK || taking->take.error == CO_BUSY) {
        http_reply_text(request, 400, "quota \"%.*s\": its keys have no owners, Mode is another one",
                        (int)take->name.size, take->name.data);
    } else {
        refuse(request, taking, taking->take.error);
    }
}

static void looked(struct http_request *request, struct http_call *call, int error) {
    (void)error;
    reply_owner(request, CONTAINER_OF(call, struct taking, call));
}

static void owner_of(struct http_request *request) {
    struct taking *taking = taking_new(request, 1);
    taking->takes[0] =
        (struct spender_take){.name = http_path_value(request, "name"), .key = http_parameter(request, "key")};
    if (!http_env(request)->spender_run) http_reply_text(request, 503, NO_PART);
    else if (begin(request, taking, looked)) reply_owner(request, taking);
}

static void one_parse(struct json_object *json, struct spender_take *one, size_t i, struct fault *fault) {
    static const char *const known[] = {"Name", "Key", "N", NULL};
    struct fault inner = {0};
    one->n = 1;
    if (!json_object_is_type(json, json_type_object))
        fault_set(&inner, CO_INVALID, "an object is wanted, not %s", json_kind(json));
    else json_only_known(json, known, &inner);
    json_get_slice(json, "Name", &one->name, &inner);
    json_get_slice(json, "Key", &one->key, &inner);
    json_get_u64(json, "N", QUOTA_AMOUNT_MOST, &one->n, &inner);
    if (!inner.code && (!one->name.size || one->name.size > QUOTA_NAME_MOST))
        fault_set(&inner, CO_INVALID, "Name: text of 1 to %d bytes is wanted", QUOTA_NAME_MOST);
    if (!inner.code && one->key.size > SPENDER_KEY_MOST)
        fault_set(&inner, CO_INVALID, "Key: it has %zu bytes, at most %d are allowed", one->key.size, SPENDER_KEY_MOST);
    if (inner.code) fault_set(fault, inner.code, "[%zu]: %s", i, inner.text);
}

static bool may_take(struct http_request *request, const struct taking *taking) {
    for (size_t i = 0; i < taking->take.count; i++)
        if (!http_require(request, ACCESS_QUOTA, taking->takes[i].name, ACCESS_WRITE)) return false;
    return true;
}

static void take_several(struct http_request *request) {
    struct json_object *list = http_json_of(request, json_type_array, "Request decode failed");
    struct fault fault = {0};
    if (!list) return;
    size_t count = json_object_array_length(list);
    if (!count || count > SPENDER_TAKES_MOST) {
        http_reply_text(request, 400, "the body has %zu takes, 1 to %d are wanted", count, SPENDER_TAKES_MOST);
        return;
    }
    struct taking *taking = taking_new(request, count);
    taking->several = true;
    json_refuse_duplicates(http_body(request), &fault);
    for (size_t i = 0; i < count && !fault.code; i++)
        one_parse(json_object_array_get_idx(list, i), &taking->takes[i], i, &fault);
    if (fault.code) http_reply_text(request, 400, "%s", fault.text);
    else if (may_take(request, taking)) take(request, taking);
}

/* -- rows --------------------------------------------------------------------------------------------------------- */

#define SAYS "RateLimit-Policy and RateLimit say what this agent may admit"
const struct http_route http_routes_quota_take[] = {
    {HTTP_PUT, "/v1/agent/quota/:name/take", take_one, "quota:write of :name",
     HTTP_PARAMS(
         {":name", HTTP_TEXT, .help = "the budget's name; a slash in it as %2F", .least = 1, .most = QUOTA_NAME_MOST},
         {"n", HTTP_U64, .help = "how much (default 1); 0 only looks: Allowed says whether something is left",
          .most = QUOTA_AMOUNT_MOST},
         {"key", HTTP_TEXT, .help = "the key to charge; in Mode owner each key has the budget, and a key is required",
          .most = SPENDER_KEY_MOST}),
     "Spends of a budget: 200, or 429 with Retry-After when it is spent; 503 when no server can say and OnLoss does "
     "not allow it. " SAYS,
     HTTP_OWN | HTTP_LOCAL, .example = {"/v1/agent/quota/calls/take?n=5", .status = 200}},
    {HTTP_PUT, "/v1/agent/quota/take", take_several, "quota:write", NULL,
     "Spends of several budgets, all or nothing, 64 at most; when refused, Refused names the first that is spent. A "
     "Key may have 8 KiB",
     HTTP_OWN | HTTP_LOCAL, .example = {.body = "[{\"Name\":\"calls\",\"N\":2}]", .status = 200}},
    {HTTP_GET, "/v1/agent/quota/:name/owner", owner_of, "quota:read of :name",
     HTTP_PARAMS(
         {":name", HTTP_TEXT, .help = "the budget's name; a slash in it as %2F", .least = 1, .most = QUOTA_NAME_MOST},
         {"key", HTTP_TEXT, .help = "the key", .required = true, .least = 1, .most = SPENDER_KEY_MOST}),
     "The agent that counts a key of a budget in Mode owner (Owner), as far as this agent knows. Counts: it is this "
     "agent, and Remaining is the rest. Moves: another agent counts it when the newest Epoch is active. Part and "
     "Parts: the key is split into Parts, and this agent takes from Part",
     HTTP_OWN | HTTP_LOCAL, .no_example = "the budget of the example has no owners"},
    {0},
};
