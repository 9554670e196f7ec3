/* /v1/lb: picks the instance for a request, and tells the owners of a key, and the hot keys (lb/pick.h,
 * docs/load-balancing.md). */
#include <math.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "http/api/picks.h"
#include "http/api/topics.h"
#include "http/api/views.h"

#define AGAIN_MS        5 /* pause while a client agent waits for its copy */
#define REPLICAS_MAX    64
#define READY_INSTANCES 12 /* a larger service has too many pairs */

METRIC picks_total = {.name = "coord_lb_picks_total",
                      .type = METRIC_COUNTER,
                      .help = "Picks and owners of keys that were asked for over HTTP"};

static struct slice service_of(struct http_request *request) { return http_path_value(request, "service"); }

/* -- finding the instances ---------------------------------------------------------------------------------------- */
/* Answers the request, when its instances are here. */
typedef void (*answer_from)(struct http_request *request, const struct picks_kept *kept, uint64_t now_ns);

static void find(struct http_request *request, answer_from answer, void (*again)(struct http_request *, uint64_t)) {
    const struct picks_kept *kept;
    uint64_t now_ns = clock_mono_ns();
    int error = picks_find(request, service_of(request), now_ns, &kept);
    if (error == CO_AGAIN) http_look_again(request, AGAIN_MS, again);
    else if (error != CO_OK) http_reply_error(request, error);
    else answer(request, kept, now_ns);
}

static void nobody(struct http_request *request, const struct picks_kept *kept, const struct balance_ask *ask) {
    struct buffer why = {0};
    struct slice service = service_of(request);
    balance_why(kept->balance, ask, &why);
    http_reply_text(request, 503, "no instance of service \"%.*s\" can be picked: %.*s",
                    (int)(service.size < 150 ? service.size : 150), service.data, (int)why.size, why.data);
    buffer_free(&why);
}

/* Parses the request's parameters into its context. False: it has replied. */
static bool asked(struct http_request *request, const char *parameter) {
    struct balance_ask *ask = arena_alloc(http_arena(request), sizeof *ask);
    if (!picks_ask(request, parameter, ask)) return false;
    ask->passing = http_has(request, "passing");
    http_set_context(request, ask);
    return true;
}

/* -- pick --------------------------------------------------------------------------------------------------------- */
static void write_pick(struct http_request *request, const struct picks_kept *kept, const struct balance_ask *ask,
                       const struct balance_picked *picked) {
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Picked");
    json_raw(json, kept->entries[picked->picked]);
    json_key(json, "Considered");
    json_array(json);
    for (size_t i = 0; i < picked->count; i++) {
        json_raw(json, kept->heads[picked->considered[i]]);
        buffer_append_text(json->out, ",\"Load\":");
        json->after_key = true;
        picks_write_load(json, kept, picked->considered[i], picked->loads[i]);
        buffer_append_byte(json->out, '}');
    }
    json_array_end(json);
    json_key(json, "Policy");
    json_string(json, pick_policy_name(ask->policy));
    json_object_end(json);
    if (picked->count == 1 || balance_count(kept->balance) <= READY_INSTANCES) http_reply_json_again(request);
    else http_reply_json(request, 200);
}

static void answer_pick(struct http_request *request, const struct picks_kept *kept, uint64_t now_ns) {
    struct balance_ask ask = *(const struct balance_ask *)http_context(request);
    struct balance_picked picked;
    ask.now_ns = now_ns;
    if (ask.policy == PICK_NEAREST) picks_measure(request, kept->balance, service_of(request), now_ns);
    if (ask.policy == PICK_RING) hints_key(rpc_hints(http_env(request)->rpc), service_of(request), ask.key, now_ns);
    metric_add(&picks_total, 1);
    if (balance_pick(kept->balance, &ask, &picked) == CO_OK) write_pick(request, kept, &ask, &picked);
    else nobody(request, kept, &ask);
}

static void pick_again(struct http_request *request, uint64_t waited_ms) {
    (void)waited_ms;
    find(request, answer_pick, pick_again);
}

static void pick_confirmed(struct http_request *request, int error) {
    if (error != CO_OK) http_reply_error(request, error);
    else find(request, answer_pick, pick_again);
}

static void get_pick(struct http_request *request) {
    if (asked(request, "policy")) http_confirm(request, pick_confirmed);
}

/* -- owners ------------------------------------------------------------------------------------------------------- */
static void answer_owner(struct http_request *request, const struct picks_kept *kept, uint64_t now_ns) {
    struct balance_ask ask = *(const struct balance_ask *)http_context(request);
    size_t owners[REPLICAS_MAX];
    uint64_t replicas = 1;
    if (!http_parameter_u64(request, "replicas", &replicas)) return;
    ask.now_ns = now_ns;
    hints_key(rpc_hints(http_env(request)->rpc), service_of(request), ask.key, now_ns);
    metric_add(&picks_total, 1);
    size_t count = balance_owners(kept->balance, &ask, replicas < REPLICAS_MAX ? replicas : REPLICAS_MAX, owners);
    if (count == 0) {
        nobody(request, kept, &ask);
        return;
    }
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Owners");
    json_array(json);
    for (size_t i = 0; i < count; i++) json_raw(json, kept->entries[owners[i]]);
    json_array_end(json);
    json_key(json, "Epoch");
    json_u64(json, kept->index);
    json_object_end(json);
    http_reply_json_again(request);
}

static void owner_again(struct http_request *request, uint64_t waited_ms) {
    (void)waited_ms;
    find(request, answer_owner, owner_again);
}

static void owner_confirmed(struct http_request *request, int error) {
    if (error != CO_OK) http_reply_error(request, error);
    else find(request, answer_owner, owner_again);
}

static void get_owner(struct http_request *request) {
    if (asked(request, NULL)) http_confirm(request, owner_confirmed);
}

/* -- hot keys ----------------------------------------------------------------------------------------------------- */
struct hot_asked {
    struct http_call call;
    struct rpc_hot hot;
    struct buffer json; /* written on the thread that got the answer */
    bool pretty;
};

static void hot_number(struct json_out *json, double number) { json_double(json, round(number * 1000) / 1000); }

static void hot_write(struct json_out *json, const Pb__PeerHotAnswer *answer) {
    json_object(json);
    json_key(json, "Keys");
    json_array(json);
    for (size_t i = 0; i < answer->n_hot; i++) {
        json_object(json);
        json_key(json, "Key");
        json_slice(json, slice_make(answer->hot[i]->key.data, answer->hot[i]->key.len));
        json_key(json, "Rate");
        hot_number(json, isfinite(answer->hot[i]->rate) ? answer->hot[i]->rate : 0);
        json_object_end(json);
    }
    json_array_end(json);
    json_key(json, "Rate");
    hot_number(json, isfinite(answer->rate) ? answer->rate : 0);
    json_key(json, "MeanRate");
    hot_number(json, isfinite(answer->mean) ? answer->mean : 0);
    json_key(json, "DifferentKeys");
    json_u64(json, answer->keys >= 0 && answer->keys < 1e15 ? (uint64_t)(answer->keys + 0.5) : 0);
    json_object_end(json);
}

/* Loop thread. */
static void hot_done(struct rpc_hot *hot, int error, const Pb__PeerHotAnswer *answer) {
    struct hot_asked *asked = CONTAINER_OF(hot, struct hot_asked, hot);
    struct json_out json;
    json_out_init(&json, &asked->json, asked->pretty);
    if (error == CO_OK) hot_write(&json, answer);
    http_called(&asked->call, error);
}

static void hot_view(struct http_request *request, struct http_call *call, int error) {
    struct hot_asked *asked = CONTAINER_OF(call, struct hot_asked, call);
    if (error != CO_OK) {
        http_reply_error(request, error);
    } else {
        json_raw(http_out(request), buffer_slice(&asked->json));
        http_reply_json(request, 200);
    }
    buffer_free(&asked->json);
}

static void hot_drop(struct http_call *call, int error) {
    (void)error;
    buffer_free(&CONTAINER_OF(call, struct hot_asked, call)->json);
}

static void get_hot(struct http_request *request) {
    struct hot_asked *asked = arena_zalloc(http_arena(request), sizeof *asked);
    struct slice service = service_of(request);
    asked->call.view = hot_view, asked->call.drop = hot_drop;
    asked->hot.service = arena_strndup(http_arena(request), service.data, service.size);
    asked->hot.done = hot_done;
    asked->pretty = http_has(request, "pretty");
    http_call(request, &asked->call);
    asked->hot.requester = http_requester(request);
    rpc_hot(http_env(request)->rpc, &asked->hot);
}

void lb_metrics(void) { metric_register(&picks_total); }

#define SERVICE \
    { "*service", HTTP_TEXT, .help = "the service's name", .least = 1, .most = LOAD_NAME_SIZE }
#define TAG \
    { "tag", HTTP_TEXT, .repeats = true, .help = "only instances with this tag; all of them" }
#define PASSING \
    { "passing", HTTP_FLAG, .help = "none with warnings either" }
#define STALE \
    { "stale", HTTP_FLAG, .help = "the server that is asked need not make sure that its catalog is the newest" }
const struct http_route http_routes_lb[] = {
    {HTTP_GET, "/v1/lb/pick/*service", get_pick, "service:read rows",
     HTTP_PARAMS(SERVICE, HTTP_DC,
                 {"policy", HTTP_CHOICE, .choices = "p2c|hcl|weighted|nearest|ring", .otherwise = "p2c",
                  .help = "how it is picked"},
                 {"key", HTTP_TEXT, .help = "with ring: the key whose owner is picked"}, TAG, PASSING, STALE),
     "Picks the instance of a service that a request should go to: never a critical one. 503 when there is none, with "
     "why",
     HTTP_OWN, .example = {"/v1/lb/pick/db?policy=p2c", .status = 200, .depth = 2}},
    {HTTP_GET, "/v1/lb/owner/*service", get_owner, "service:read rows",
     HTTP_PARAMS(SERVICE, HTTP_DC, {"key", HTTP_TEXT, .help = "the key", .required = true},
                 {"replicas", HTTP_U64, .help = "how many owners", .least = 1, .most = REPLICAS_MAX, .otherwise = "1"},
                 TAG, PASSING, STALE),
     "Owners of a key among the healthy instances, the first one first. They change little when instances come or go; "
     "one beyond 1.25 times the mean load gives up as many keys as bring it under that",
     HTTP_OWN, .example = {"/v1/lb/owner/db?key=user-17&replicas=2", .status = 200, .depth = 2}},
    {HTTP_GET, "/v1/lb/hot/*service", get_hot, "service:read of *service", HTTP_PARAMS(SERVICE, HTTP_DC),
     "Keys that are looked up (by ring or as owner) more than 10 times as often as the mean, in the last 10 s",
     HTTP_OWN, .example = {"/v1/lb/hot/db", .status = 200}},
    {0},
};
