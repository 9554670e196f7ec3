/* /v1/event: sends events to all agents, and lists those for this agent. */
#include "base/message.h"
#include "http/api/event_views.h"
#include "http/api/topics.h"
#include "http/http.h"

/* -- firing ------------------------------------------------------------------------------------------------------- */
static void view_fired(struct http_request *request, const struct machine_result *result) {
    if (result->error) {
        http_reply_text(request, 500, "%s", result->text ? result->text : co_strerror(result->error));
        return;
    }
    view_event(http_out(request), (const Pb__Event *)result->message);
    http_reply_json(request, 200);
}

static char *text_of(struct http_request *request, const char *parameter) {
    struct slice text = http_parameter(request, parameter);
    return arena_strndup(http_arena(request), text.size ? text.data : "", text.size);
}

/* Refuses the same events as Consul, but filters are POSIX regular expressions. */
static int judge(const Pb__Event *event, struct fault *fault) {
    static const char *const names[] = {"node", "service", "tag"};
    const char *const filters[] = {event->node_filter, event->service_filter, event->tag_filter};
    if (event->tag_filter[0] && !event->service_filter[0])
        return fault_set(fault, CO_INVALID, "Cannot provide tag filter without service filter");
    for (size_t i = 0; i < 3; i++)
        if (view_event_filter_check(names[i], filters[i], fault) != CO_OK) return fault->code;
    if (event_check(event) != CO_OK)
        return fault_set(fault, CO_INVALID, "user event exceeds configured limit of %d bytes before encoding",
                         EVENT_SIZE_MAX);
    return CO_OK;
}

static void put_fire(struct http_request *request) {
    struct slice name = http_path_value(request, "name"), body = http_body(request);
    Pb__EventFireCommand *command = arena_alloc(http_arena(request), sizeof *command);
    Pb__Event *event = arena_alloc(http_arena(request), sizeof *event);
    struct fault fault = {0};
    pb__event_fire_command__init(command);
    pb__event__init(event);
    command->event = event;
    if (!name.size) {
        http_reply_text(request, 400, "Missing name");
        return;
    }
    event->id = http_new_uuid(request), event->name = arena_strndup(http_arena(request), name.data, name.size);
    event->payload = message_bytes(body);
    event->node_filter = text_of(request, "node"), event->service_filter = text_of(request, "service"),
    event->tag_filter = text_of(request, "tag");
    if (judge(event, &fault) != CO_OK) http_reply_text(request, 500, "%s", fault.text);
    else http_write(request, EVENT_FIRE, &command->base, view_fired);
}

/* -- answers of the query ----------------------------------------------------------------------------------------- */
static int view_list(struct http_request *request, const struct query_result *result) {
    const struct http_env *env = http_env(request);
    const Pb__EventsResult *records = (const Pb__EventsResult *)result->message;
    struct slice name = http_parameter(request, "name");
    struct json_out *json = http_out(request);
    struct arena arena = {0};
    Pb__Service **services;
    size_t count = local_services(env->local, &arena, &services);
    json_array(json);
    for (size_t i = 0; i < records->n_events; i++) {
        const Pb__Event *event = records->events[i];
        if (name.size && !slice_is(name, event->name)) continue;
        if (view_event_is_ours(event, env->node_name, services, count)) view_event(json, event);
    }
    json_array_end(json);
    arena_free(&arena);
    return 200;
}

static void get_list(struct http_request *request) {
    Pb__EventsRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__events_request__init(message);
    http_read_fresh(request, &query_events, &message->base, view_list, NULL);
}

const struct http_route http_routes_event[] = {
    {HTTP_PUT, "/v1/event/fire/*name", put_fire, "event:write of *name",
     HTTP_PARAMS({"*name", HTTP_TEXT, .help = "the event's name"}, HTTP_DC,
                 {"node", HTTP_TEXT, .help = "for these nodes alone: a regular expression"},
                 {"service", HTTP_TEXT, .help = "for nodes with such a service: a regular expression"},
                 {"tag", HTTP_TEXT, .help = "and with such a tag of it: a regular expression"}),
     "Fires an event for all agents; the body is its payload", HTTP_BODY_RAW,
     .example = {"/v1/event/fire/deploy?service=api", .body = "v43", .status = 200}},
    {HTTP_GET, "/v1/event/list", get_list, "event:read rows",
     HTTP_PARAMS(HTTP_READS, {"name", HTTP_TEXT, .help = "only events of this name"},
                 {"node", HTTP_TEXT, .help = "taken, and answered as without it"},
                 {"service", HTTP_TEXT, .help = "taken, and answered as without it"},
                 {"tag", HTTP_TEXT, .help = "taken, and answered as without it"}),
     "The newest events that are for this agent", 0, .example = {.status = 200}},
    {0},
};
