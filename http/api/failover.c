/* /v1/failover: the regions that answer for a service without healthy instances here, and an explanation of the present
 * answer (multi-dc/failover.h). */
#include <string.h>

#include "http/api/health_failover.h"
#include "http/api/region_views.h"
#include "http/api/topics.h"
#include "http/api/views.h"
#include "http/message_fill.h"

/* -- members of answers ------------------------------------------------------------------------------------------- */
static const Pb__FailoverState *shown_state(const ProtobufCMessage *message) {
    if (message->descriptor == &pb__failover_result__descriptor) return ((const Pb__FailoverResult *)message)->state;
    return (const Pb__FailoverState *)message;
}

static void write_state(struct json_out *json, const ProtobufCMessage *message, void *context) {
    (void)context;
    const Pb__FailoverState *state = shown_state(message);
    json_key(json, "Away"), json_bool(json, state->record->away_index != 0);
    json_key(json, "Healthy"), json_bool(json, state->healthy);
}

#define MEMBER(field_, flags_) \
    { .field = (field_), .flags = (flags_) }
static const struct message_member one_members[] = {MEMBER("state.record.service", 0),
                                                    MEMBER("state.record.targets", 0),
                                                    {.write = write_state},
                                                    MEMBER("state.record.away_index", MEMBER_OPTIONAL),
                                                    MEMBER("state.record.back_index", MEMBER_OPTIONAL),
                                                    MEMBER("state.record.rests", MEMBER_OPTIONAL),
                                                    MEMBER("state.record.modify_index", 0),
                                                    {0}};
static const struct message_member listed_members[] = {MEMBER("record.service", 0),
                                                       MEMBER("record.targets", 0),
                                                       {.write = write_state},
                                                       MEMBER("record.away_index", MEMBER_OPTIONAL),
                                                       MEMBER("record.back_index", MEMBER_OPTIONAL),
                                                       MEMBER("record.rests", MEMBER_OPTIONAL),
                                                       MEMBER("record.modify_index", 0),
                                                       {0}};

/* -- why ---------------------------------------------------------------------------------------------------------- */
static void write_counts(struct json_out *json, const Pb__ExplainCounts *counts) {
    json_key(json, "Passing"), json_u64(json, counts->passing);
    json_key(json, "Warning"), json_u64(json, counts->warning);
    json_key(json, "Critical"), json_u64(json, counts->critical);
    json_key(json, "Held"), json_u64(json, counts->held);
}

static void write_region(struct json_out *json, const Pb__ExplainCounts *counts, const Pb__PeerRegionsAnswer *seen) {
    region_write_origin(json, counts->region, seen);
    region_write_round_trip(json, region_seen(seen, counts->region));
    write_counts(json, counts);
}

static void view_explain(struct http_request *request, const struct regions_shown *shown) {
    const Pb__ExplainResult *why = (const Pb__ExplainResult *)shown->own;
    const Pb__Failover *record = why->record;
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "Service"), json_string(json, why->service);
    json_key(json, "Answer");
    json_object(json);
    json_key(json, "Service"), json_string(json, why->answer_service);
    write_region(json, why->answer, shown->seen);
    json_object_end(json);
    json_key(json, "NoneHere"), json_bool(json, why->none_here);
    json_key(json, "Away"), json_bool(json, record && record->away_index);
    json_key(json, "AwayIndex"), json_u64(json, record ? record->away_index : 0);
    json_key(json, "BackIndex"), json_u64(json, record ? record->back_index : 0);
    json_key(json, "Target"), json_u64(json, why->target);
    json_key(json, "Targets");
    message_json_list(json, record ? &record->base : NULL, "targets", NULL, NULL);
    json_key(json, "Rests");
    message_json_list(json, record ? &record->base : NULL, "rests", NULL, NULL);
    json_key(json, "PassedOver"), json_string(json, why->passed_over);
    json_key(json, "Regions");
    json_array(json);
    for (size_t i = 0; i < why->n_regions; i++) {
        json_object(json);
        write_region(json, why->regions[i], shown->seen);
        json_object_end(json);
    }
    json_array_end(json);
    json_object_end(json);
    http_reply_json(request, 200);
}

static void get_explain(struct http_request *request) {
    Pb__AnswerRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__answer_request__init(message);
    message->service = (char *)(uintptr_t)http_path_value(request, "service").data;
    message->own = failover_own(request);
    struct slice *tags;
    message->n_tags = http_parameters(request, "tag", &tags);
    message->tags = arena_alloc(http_arena(request), (message->n_tags + 1) * sizeof *message->tags);
    for (size_t i = 0; i < message->n_tags; i++) message->tags[i] = (char *)(uintptr_t)tags[i].data;
    http_show_regions(request, &query_explain, &message->base, view_explain);
}

/* -- rows --------------------------------------------------------------------------------------------------------- */
static const struct http_param target[] = {
    {"Service", HTTP_TEXT, .help = "another service; without it the same", .most = FAILOVER_NAME_MAX,
     .field = "service"},
    {"Tags", HTTP_TEXT, .help = "only instances with this tag; all of them", .repeats = true, .least = 1,
     .most = FAILOVER_NAME_MAX, .field = "tags"},
    {"Regions", HTTP_TEXT, .help = "only in this region, or the next one; without it the nearest", .repeats = true,
     .least = 1, .most = REGION_NAME_MAX, .field = "regions"},
    {0},
};
static const struct http_param order[] = {
    {"Targets", HTTP_OBJECT, .repeats = true, .required = true, .field = "targets", .group = target},
    {0},
};

#define NAME(field_)                                                                           \
    {                                                                                          \
        ":service", HTTP_TEXT, .help = "the service's name; a slash in it as %2F", .least = 1, \
                               .most = FAILOVER_NAME_MAX, .field = (field_)                    \
    }
const struct http_route http_routes_failover[] = {
    {HTTP_PUT, "/v1/failover/:service", http_declared, "operator:write", HTTP_PARAMS(NAME("service"), HTTP_DC),
     "Orders who answers for a service while it has no healthy instances here: the first target that has some. "
     "Without an order it is the nearest region",
     HTTP_OWN,
     .example = {"/v1/failover/db", "{\"Targets\":[{\"Regions\":[\"us\",\"ap\"]},{\"Service\":\"db-read-only\"}]}",
                 .status = 200},
     .endpoint = {.command = FAILOVER_SET, .body = order}},
    {HTTP_GET, "/v1/failover/:service", http_declared, "service:read", HTTP_PARAMS(NAME("service"), HTTP_READS),
     "A service's order, and whether other regions answer for it (Away). 404: there is no order, and they do not",
     HTTP_OWN, .example = {"/v1/failover/db", .status = 200},
     .endpoint = {.query = &query_failover,
                  .answer = one_members,
                  .watched = "service",
                  .missing = "has no order, and is not away"},
     .cli = {.command = "failover get"}},
    {HTTP_GET, "/v1/failover/:service/explain", get_explain, "service:read", HTTP_PARAMS(NAME(NULL), VIEW_TAG),
     "Why a service is answered from where it is: what each region has, who answers, by the how manieth target of the "
     "order (Target; 0: by distance)",
     HTTP_OWN | HTTP_LOCAL, .example = {"/v1/failover/db/explain", .status = 200, .depth = 3}},
    {HTTP_DELETE, "/v1/failover/:service", http_declared, "operator:write", HTTP_PARAMS(NAME("service"), HTTP_DC),
     "Takes the order back", HTTP_OWN, .example = {"/v1/failover/db", .status = 200},
     .endpoint = {.command = FAILOVER_SET}, .cli = {.command = "failover delete"}},
    {HTTP_GET, "/v1/failover", http_declared, "service:read rows", HTTP_PARAMS(HTTP_READS),
     "Services that have an order, and those that other regions answer for (Away). Healthy: they have healthy "
     "instances "
     "here, now",
     HTTP_OWN, .example = {"/v1/failover", .status = 200},
     .endpoint = {.query = &query_failovers, .answer = listed_members, .list = "failovers", .fresh = true},
     .cli = {"failover list", .columns = "Service Away Healthy AwayIndex BackIndex Targets"}},
    {0},
};
