/* /v1/agent/service: registering with this agent. The agent owns these definitions; health/ delivers them to the
 * servers. */
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/text.h"
#include "health/local.h"
#include "http/api/agent_access.h"
#include "http/api/agent_views.h"
#include "http/api/catalog.h"
#include "http/api/lease.h"
#include "http/api/topics.h"
#include "http/http.h"
#include "registry/lease.h"

#define WAIT_DEFAULT_NS (INT64_C(300) * 1000000000)
#define WAIT_MOST_NS    (INT64_C(600) * 1000000000)

/* NULL: it has replied. */
static struct service_definition *definition_of(struct http_request *request) {
    struct fault fault = {0};
    struct json_object *json = http_json(request);
    struct service_definition *definition = json ? service_definition_parse(json, &fault) : NULL;
    if (json && !definition) http_reply_fault(request, &fault);
    if (!definition) return NULL;
    service_definition_token(definition, http_token(request));
    if (agent_may_register(request, definition)) return definition;
    service_definition_free(definition);
    return NULL;
}

/* Takes over the definition. */
static void register_it(struct http_request *request, struct service_definition *definition) {
    struct fault fault = {0};
    struct slice value = http_parameter(request, "replace-existing-checks");
    bool replace = http_has(request, "replace-existing-checks") && (value.size == 0 || slice_is(value, "true"));
    catalog_warn(request, NULL, definition->service);
    int error = local_service_register(http_env(request)->local, definition, replace, true, &fault);
    if (error == CO_DENIED) { /* scripts are not allowed; clients of this API expect 500 */
        http_reply_text(request, 500, "%s", fault.text);
    } else if (error != CO_OK) {
        http_reply_fault(request, &fault);
    }
    if (error != CO_OK) return;
    agent_reply_synced(request);
}

static void lease_looked(struct http_request *request, int error, const struct rpc_renew *renew) {
    if (error != CO_OK) {
        lease_refuse(request, error, renew->id);
        return;
    }
    struct service_definition *definition = definition_of(request);
    if (definition) register_it(request, definition);
}

/* When the service is bound to a lease, asks the leader whether the lease exists, before anything is changed here. When
 * the lease ends meanwhile, the service is removed by that. */
static void put_register(struct http_request *request) {
    struct service_definition *definition = definition_of(request);
    if (!definition) return;
    if (!*definition->service->lease) {
        register_it(request, definition);
        return;
    }
    char *id;
    bool fine = lease_id(request, "Lease", slice_text(definition->service->lease), &id);
    service_definition_free(definition);
    if (fine) http_renew(request, &lease_expiry, true, slice_text(id), lease_looked);
}

/* An unknown id is no error, because the service is not registered, as wanted. */
static void put_deregister(struct http_request *request) {
    struct slice id = http_path_value(request, "id");
    if (id.size == 0) {
        http_reply_text(request, 500, "ServiceID missing");
        return;
    }
    if (!agent_may_service(request, id, ACCESS_WRITE)) return;
    (void)local_service_deregister(http_env(request)->local, id);
    agent_reply_synced(request);
}

static void put_maintenance(struct http_request *request) {
    struct slice id = http_path_value(request, "id");
    bool enable;
    if (id.size == 0) {
        http_reply_text(request, 400, "Missing service ID");
        return;
    }
    if (!agent_parameter_enable(request, &enable) || !agent_may_service(request, id, ACCESS_WRITE)) return;
    int error = local_service_maintenance(http_env(request)->local, id, enable, http_parameter(request, "reason"));
    if (error == CO_OK) {
        agent_reply_synced(request);
    } else {
        http_reply_text(request, 404, "No service registered with ID \"%.*s\"", (int)(id.size < 150 ? id.size : 150),
                        id.data);
    }
}

/* ---- load ---- */

/* A number parameter, which the row has checked. */
static double number(struct http_request *request, const char *name) {
    double value = NAN;
    if (http_has(request, name)) (void)decimal_parse(http_parameter(request, name), &value);
    return value;
}

static void put_load(struct http_request *request) {
    struct slice id = http_path_value(request, "id");
    struct load_hint hint = {.load = number(request, "load"),
                             .inflight = number(request, "inflight"),
                             .latency_ms = number(request, "latency_ms"),
                             .errors = number(request, "errors")};
    struct fault fault = {0};
    if (!agent_may_service(request, id, ACCESS_WRITE)) return;
    int error = load_check(&hint, &fault);
    if (error == CO_OK) error = local_service_load(http_env(request)->local, id, &hint);
    if (error == CO_NOTFOUND)
        http_reply_text(request, 404, "No service registered with ID \"%.*s\"", (int)(id.size < 150 ? id.size : 150),
                        id.data);
    else if (error == CO_BUSY) http_reply_text(request, 503, "the load of too many instances is known already");
    else if (fault.code) http_reply_fault(request, &fault);
    else if (error != CO_OK) http_reply_error(request, error);
    else http_reply_text(request, 200, "%s", "");
}

/* ---- one service, and blocking by its hash ---- */

static void reply_service(struct http_request *request) {
    struct slice id = http_path_value(request, "id");
    struct local *local = http_env(request)->local;
    struct arena *arena = http_arena(request);
    Pb__Service *service;
    Pb__Check **checks;
    size_t count;
    if (!agent_may_service(request, id, ACCESS_READ)) return;
    uint64_t hash = local_service_hash(local, id);
    if (!hash || !local_service(local, id, arena, &service, &checks, &count)) {
        http_reply_text(request, 404, "unknown service ID: %.*s", (int)(id.size < 150 ? id.size : 150), id.data);
        return;
    }
    http_header(request, "X-Consul-ContentHash", agent_hash_text(arena, hash));
    agent_view_service(http_out(request), service, hash);
    http_reply_json(request, 200);
}

struct change {
    struct local_waiter waiter;
    struct http_ticket *ticket;
};

static void on_change(struct local_waiter *waiter, int error) {
    struct change *change = CONTAINER_OF(waiter, struct change, waiter);
    http_deferred(change->ticket, error);
    free(change);
}

static void after_change(struct http_request *request, int error) {
    (void)error; /* changed or not: replies the present state */
    http_access_again(request, reply_service);
}

static void get_service(struct http_request *request) {
    struct local *local = http_env(request)->local;
    struct slice id = http_path_value(request, "id"), given = http_parameter(request, "hash");
    int64_t wait_ns = 0;
    if (!http_parameter_duration(request, "wait", &wait_ns) || !agent_may_service(request, id, ACCESS_READ)) return;
    uint64_t hash = given.size ? local_service_hash(local, id) : 0;
    if (!hash || !slice_is(given, agent_hash_text(http_arena(request), hash))) {
        reply_service(request);
        return;
    }
    if (wait_ns <= 0) wait_ns = WAIT_DEFAULT_NS;
    if (wait_ns > WAIT_MOST_NS) wait_ns = WAIT_MOST_NS;
    uint64_t wait_ms = (uint64_t)wait_ns / 1000000;
    if (!http_parks(request)) return;
    struct change *change = mem_zalloc(sizeof *change);
    change->waiter.done = on_change;
    change->ticket = http_defer(request, wait_ms + 1000, after_change);
    local_on_service_change(local, &change->waiter, id, hash, wait_ms);
}

#define ID \
    { "*id", HTTP_TEXT, .help = "the service's ID" }
const struct http_route http_routes_agent_service[] = {
    {HTTP_PUT, "/v1/agent/service/register", put_register, "service:write",
     HTTP_PARAMS(
         {"replace-existing-checks", HTTP_FLAG, .help = "checks of the service that are not in the body are removed"}),
     "Registers a service, with its checks, with this agent", HTTP_LOCAL,
     .example =
         {.body =
              "{\"Name\":\"api\",\"Port\":9000,\"Tags\":[\"v1\"],\"Check\":{\"TTL\":\"1h\",\"Status\":\"passing\"}}",
          .status = 200}},
    {HTTP_GET, "/v1/agent/service/*id", get_service, "service:read",
     HTTP_PARAMS(ID, {"hash", HTTP_TEXT, .help = "waits until the service's ContentHash is another"},
                 {"wait", HTTP_DURATION, .help = "how long it waits at most; more than 10m is 10m (default 5m)"}),
     "One local service; blocks on its hash", HTTP_LOCAL, .example = {"/v1/agent/service/api", .status = 200}},
    {HTTP_PUT, "/v1/agent/service/load/*id", put_load, "service:write",
     HTTP_PARAMS(
         ID,
         {"load", HTTP_DECIMAL, .help = "a part of what it can do: 0 idle, 1 busy, above 1 overloaded",
          .most = (uint64_t)LOAD_MOST, .required = true},
         {"inflight", HTTP_DECIMAL, .help = "requests that it works on, or that wait in it",
          .most = (uint64_t)LOAD_INFLIGHT_MOST},
         {"latency_ms", HTTP_DECIMAL, .help = "how long a request took lately", .most = (uint64_t)LOAD_LATENCY_MOST},
         {"errors", HTTP_DECIMAL, .help = "part of the requests that failed lately", .most = 1}),
     "An instance says how loaded it is, for those who pick one. It is forgotten when three reports do not come",
     HTTP_LOCAL | HTTP_OWN,
     .example = {"/v1/agent/service/load/api?load=0.42&inflight=17&latency_ms=3.5", .status = 200}},
    {HTTP_PUT, "/v1/agent/service/maintenance/*id", put_maintenance, "service:write",
     HTTP_PARAMS(ID, AGENT_ENABLE, AGENT_REASON), "Maintenance mode of a service, on or off", HTTP_LOCAL,
     .example = {"/v1/agent/service/maintenance/api?enable=false", .status = 200}},
    {HTTP_PUT, "/v1/agent/service/deregister/*id", put_deregister, "service:write", HTTP_PARAMS(ID),
     "Removes a service and its checks; one that is not there is no error", HTTP_LOCAL,
     .example = {"/v1/agent/service/deregister/old", .status = 200}},
    {0},
};
