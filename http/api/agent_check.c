/* /v1/agent/check: checks of this agent, and updates of TTL checks. */
#include "base/text.h"
#include "health/local.h"
#include "http/api/agent_access.h"
#include "http/api/agent_views.h"
#include "http/api/topics.h"
#include "http/api/views.h"
#include "http/http.h"

static void put_register(struct http_request *request) {
    struct fault fault = {0};
    struct json_object *json = http_json(request);
    if (!json) return;
    struct check_definition *definition = check_definition_parse(json, &fault);
    if (!definition) {
        http_reply_fault(request, &fault);
        return;
    }
    if (!agent_may_register_check(request, definition)) {
        check_definition_free(definition);
        return;
    }
    check_definition_token(definition, http_token(request));
    int error = local_check_register(http_env(request)->local, definition, true, &fault);
    if (error == CO_OK) {
        agent_reply_synced(request);
    } else if (error == CO_NOTFOUND || error == CO_DENIED) { /* the service does not exist; scripts are not allowed */
        http_reply_text(request, 500, "%s", fault.text);
    } else {
        http_reply_fault(request, &fault);
    }
}

static void put_deregister(struct http_request *request) {
    struct slice id = http_path_value(request, "id");
    if (id.size == 0) {
        http_reply_text(request, 500, "CheckID missing");
        return;
    }
    if (!agent_may_check(request, id, ACCESS_WRITE)) return;
    (void)local_check_deregister(http_env(request)->local, id);
    agent_reply_synced(request);
}

/* Clients recognise the text and the status 500 of an unknown check, and register again. */
static void update(struct http_request *request, Pb__Status status, struct slice output) {
    struct fault fault = {0};
    struct slice id = http_path_value(request, "id");
    if (!agent_may_check(request, id, ACCESS_WRITE)) return;
    if (local_check_update(http_env(request)->local, id, status, output, &fault) == CO_OK) {
        agent_reply_synced(request);
    } else {
        http_reply_text(request, 500, "%s", fault.text);
    }
}

static void put_pass(struct http_request *request) {
    update(request, PB__STATUS__PASSING, http_parameter(request, "note"));
}
static void put_warn(struct http_request *request) {
    update(request, PB__STATUS__WARNING, http_parameter(request, "note"));
}
static void put_fail(struct http_request *request) {
    update(request, PB__STATUS__CRITICAL, http_parameter(request, "note"));
}

static void put_update(struct http_request *request) {
    static const char *const keys[] = {"Status", "Output", NULL};
    struct fault fault = {0};
    struct slice text = slice_text(""), output = slice_text("");
    struct json_object *json = http_json(request);
    if (!json) return;
    json_only_known(json, keys, &fault);
    json_get_slice(json, "Status", &text, &fault);
    json_get_slice(json, "Output", &output, &fault);
    Pb__Status status;
    if (fault.code == CO_OK && (catalog_status_parse(text, &status) != CO_OK || status == PB__STATUS__MAINTENANCE)) {
        fault_set(&fault, CO_INVALID, "Invalid check status: '%.*s'", (int)(text.size < 100 ? text.size : 100),
                  text.data);
    }
    if (fault.code == CO_OK) {
        update(request, status, output);
    } else {
        http_reply_fault(request, &fault);
    }
}

/* -- coord's own: how a check stands ------------------------------------------------------------------------------ */

static void time_write(struct json_out *json, const char *key, int64_t ns) {
    struct buffer text = {0};
    if (ns == LOCAL_NO_TIME) return;
    duration_format(&text, ns);
    json_key_slice(json, slice_text(key));
    json_slice(json, buffer_slice(&text));
    buffer_free(&text);
}
static void set_time_write(struct json_out *json, const char *key, int64_t ns) {
    if (ns) time_write(json, key, ns);
}
static void count_write(struct json_out *json, const char *key, uint64_t count) {
    json_key_slice(json, slice_text(key));
    json_u64(json, count);
}

static void standing_write(struct json_out *json, const struct local_check_standing *standing) {
    json_object(json);
    json_key(json, "Check");
    view_check(json, standing->record);
    json_key(json, "Target");
    json_string(json, standing->target);
    set_time_write(json, "Interval", standing->interval_ns);
    set_time_write(json, "Timeout", standing->timeout_ns);
    set_time_write(json, "TTL", standing->ttl_ns);
    time_write(json, "DeregisterAfter", standing->deregister_ns);
    count_write(json, "SuccessBeforePassing", standing->to_passing);
    count_write(json, "FailuresBeforeWarning", standing->to_warning);
    count_write(json, "FailuresBeforeCritical", standing->to_critical);
    count_write(json, "Successes", standing->successes);
    count_write(json, "Failures", standing->failures);
    time_write(json, "StatusAge", standing->since_ns);
    time_write(json, "ResultAge", standing->last_ns);
    time_write(json, "NextIn", standing->next_ns);
    json_key(json, "Runs");
    json_bool(json, standing->runs);
    json_key(json, "Told");
    json_bool(json, standing->told);
    json_key(json, "Held");
    json_bool(json, standing->held);
    json_key(json, "Maintenance");
    json_bool(json, standing->maintenance);
    json_object_end(json);
}

static void get_explain(struct http_request *request) {
    struct local_check_standing standing;
    struct slice id = http_path_value(request, "id");
    if (!agent_may_check(request, id, ACCESS_READ)) return;
    if (!local_check_explain(http_env(request)->local, id, http_arena(request), &standing)) {
        http_reply_text(request, 404, "this agent has no check \"%.*s\"", (int)id.size, id.data);
        return;
    }
    standing_write(http_out(request), &standing);
    http_reply_json(request, 200);
}

#define ID \
    { "*id", HTTP_TEXT, .help = "the check's ID" }
#define NOTE \
    { "note", HTTP_TEXT, .help = "the check's new output" }
const struct http_route http_routes_agent_check[] = {
    {HTTP_PUT, "/v1/agent/check/register", put_register, "service:write", NULL,
     "Registers a check of this node or of one of its services", HTTP_LOCAL,
     .example = {.body = "{\"Name\":\"disk\",\"TTL\":\"10m\"}", .status = 200}},
    {HTTP_PUT, "/v1/agent/check/pass/*id", put_pass, "service:write", HTTP_PARAMS(ID, NOTE),
     "Tells a TTL check that all is well", HTTP_LOCAL,
     .example = {"/v1/agent/check/pass/disk?note=17%25+used", .status = 200}},
    {HTTP_PUT, "/v1/agent/check/warn/*id", put_warn, "service:write", HTTP_PARAMS(ID, NOTE),
     "Tells a TTL check to warn", HTTP_LOCAL, .example = {"/v1/agent/check/warn/disk", .status = 200}},
    {HTTP_PUT, "/v1/agent/check/fail/*id", put_fail, "service:write", HTTP_PARAMS(ID, NOTE),
     "Tells a TTL check that it is critical", HTTP_LOCAL, .example = {"/v1/agent/check/fail/disk", .status = 200}},
    {HTTP_PUT, "/v1/agent/check/update/*id", put_update, "service:write", HTTP_PARAMS(ID),
     "Sets status and output of a TTL check", HTTP_LOCAL,
     .example = {"/v1/agent/check/update/disk", .body = "{\"Status\":\"passing\",\"Output\":\"18% used\"}",
                 .status = 200}},
    {HTTP_GET, "/v1/agent/check/explain/*id", get_explain, "service:read",
     HTTP_PARAMS({"*id", HTTP_TEXT, .help = "the check's ID", .least = 1, .most = 512}),
     "How a check of this agent stands: since when, its thresholds and how many results there were in a row, its last "
     "result, and when the next one comes or its TTL is over",
     HTTP_LOCAL | HTTP_OWN, .example = {"/v1/agent/check/explain/disk", .status = 200}},
    {HTTP_PUT, "/v1/agent/check/deregister/*id", put_deregister, "service:write", HTTP_PARAMS(ID), "Removes a check",
     HTTP_LOCAL, .example = {"/v1/agent/check/deregister/disk", .status = 200}},
    {0},
};
