/* /v1/health/... */
#include "base/check.h"
#include "http/api/health_failover.h"
#include "http/api/health_lb.h"
#include "http/api/near.h"
#include "http/api/topics.h"
#include "http/api/views.h"

static int checks_view(struct http_request *request, const struct query_result *result) {
    const Pb__ChecksResult *found = (const Pb__ChecksResult *)result->message;
    view_checks(http_out(request), found ? found->checks : NULL, found ? found->n_checks : 0);
    return 200;
}

static void health_node(struct http_request *request) {
    Pb__NodeRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__node_request__init(message);
    if (!view_no_filter(request) || !view_path_text(request, "node", "node name", &message->node)) return;
    http_read(request, &query_node_checks, &message->base, checks_view);
}

/* The part of the request that checks/ and service/ share; NULL: it has replied. */
static Pb__ServiceRequest *service_request(struct http_request *request) {
    Pb__ServiceRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__service_request__init(message);
    if (!view_no_filter(request) || !view_path_text(request, "service", "service name", &message->service)) return NULL;
    message->n_node_meta = view_node_meta(request, &message->node_meta);
    return message;
}

static void health_checks(struct http_request *request) {
    Pb__ServiceRequest *message = service_request(request);
    if (message) http_read_near(request, &query_service_checks, &message->base, checks_view);
}

static int service_view(struct http_request *request, const struct query_result *result) {
    const Pb__ServiceEntriesResult *found = (const Pb__ServiceEntriesResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; found && i < found->n_entries; i++) view_service_entry(json, found->entries[i]);
    json_array_end(json);
    return 200;
}

/* Reads ?passing: without a value it is true; else the value must be one that Go's ParseBool accepts. */
static bool passing(struct http_request *request, protobuf_c_boolean *only) {
    static const char *const yes[] = {"", "1", "t", "T", "true", "TRUE", "True"};
    static const char *const no[] = {"0", "f", "F", "false", "FALSE", "False"};
    if (!http_has(request, "passing")) return true;
    struct slice value = http_parameter(request, "passing");
    for (size_t i = 0; i < ARRAY_COUNT(yes); i++) {
        if (slice_is(value, yes[i])) {
            *only = true;
            return true;
        }
    }
    for (size_t i = 0; i < ARRAY_COUNT(no); i++) {
        if (slice_is(value, no[i])) return true;
    }
    http_reply_text(request, 400, "Invalid value for ?passing");
    return false;
}

static void health_service(struct http_request *request) {
    Pb__ServiceRequest *message = service_request(request);
    if (!message || !passing(request, &message->passing_only)) return;
    message->held = true;
    struct slice *tags;
    message->n_tags = http_parameters(request, "tag", &tags);
    message->tags = arena_alloc(http_arena(request), (message->n_tags + 1) * sizeof(char *));
    for (size_t i = 0; i < message->n_tags; i++) message->tags[i] = (char *)tags[i].data;
    if (!health_failover_read(request, message) && !health_lb_read(request, message))
        http_read_near(request, &query_service_entries, &message->base, service_view);
}

static void health_state(struct http_request *request) {
    Pb__StateRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__state_request__init(message);
    if (!view_no_filter(request) || !view_path_text(request, "state", "check state", &message->state)) return;
    Pb__Status status;
    struct slice state = slice_text(message->state);
    /* "unknown" is a former state that clients still ask for: no check has it. */
    if (!slice_is(state, "any") && !slice_is(state, "unknown") &&
        (catalog_status_parse(state, &status) != CO_OK || status == PB__STATUS__MAINTENANCE)) {
        http_reply_text(request, 400, "Invalid check state \"%.40s\": one of any, passing, warning, critical",
                        message->state);
        return;
    }
    message->n_node_meta = view_node_meta(request, &message->node_meta);
    http_read_near(request, &query_state_checks, &message->base, checks_view);
}

const struct http_route http_routes_health[] = {
    {HTTP_GET, "/v1/health/node/*node", health_node, "node:read rows",
     HTTP_PARAMS({"*node", HTTP_TEXT, .help = "the node's name"}, HTTP_READS, VIEW_FILTER), "Checks of a node", 0,
     .example = {"/v1/health/node/db1", .status = 200}},
    {HTTP_GET, "/v1/health/checks/*service", health_checks, "service:read rows",
     HTTP_PARAMS(VIEW_SERVICE, HTTP_READS, VIEW_FILTER, VIEW_NEAR, VIEW_NODE_META), "Checks of a service", 0,
     .example = {"/v1/health/checks/db", .status = 200}},
    {HTTP_GET, "/v1/health/service/*service", health_service, "service:read rows",
     HTTP_PARAMS(
         VIEW_SERVICE, HTTP_READS, VIEW_FILTER,
         {"passing", HTTP_FLAG, .help = "only instances all of whose checks pass; also =true and =false"}, VIEW_NEAR,
         VIEW_TAG, VIEW_NODE_META,
         {"lb", HTTP_CHOICE, .choices = "p2c|hcl|weighted|nearest|ring",
          .help = "coord's own: the pick by this policy comes first, each entry has LB: Load, Weight, Age in ms"},
         {"key", HTTP_TEXT, .help = "with lb=ring: the key whose owner comes first"},
         {"subset", HTTP_U64, .help = "coord's own: only so many instances, always the same ones for the same id"},
         {"id", HTTP_TEXT, .help = "with subset: the caller's id, as `web-17`"},
         {"failover", HTTP_FLAG,
          .help =
              "coord's own: of the region that answers in place of this one, which X-Coord-Region names, and of the "
              "service that X-Coord-Service names where it is another one"}),
     "Instances of a service with their nodes and checks", 0,
     .example = {"/v1/health/service/db?passing", .status = 200, .depth = 3}},
    {HTTP_GET, "/v1/health/state/*state", health_state, "service:read rows",
     HTTP_PARAMS({"*state", HTTP_CHOICE, .choices = "any|passing|warning|critical", .help = "the state"}, HTTP_READS,
                 VIEW_FILTER, VIEW_NEAR, VIEW_NODE_META),
     "Checks in a state", 0, .example = {"/v1/health/state/critical", .status = 200}},
    {0},
};
