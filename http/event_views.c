#include "http/event_views.h"

#include <regex.h>
#include <string.h>

#include "health/local.h"

void view_event(struct json_out *json, const Pb__Event *event) {
    json_object(json);
    json_key(json, "ID"), json_string(json, event->id);
    json_key(json, "Name"), json_string(json, event->name);
    json_key(json, "Payload");
    if (event->payload.len) json_base64(json, slice_make(event->payload.data, event->payload.len));
    else json_null(json);
    json_key(json, "NodeFilter"), json_string(json, event->node_filter);
    json_key(json, "ServiceFilter"), json_string(json, event->service_filter);
    json_key(json, "TagFilter"), json_string(json, event->tag_filter);
    json_key(json, "Version"), json_u64(json, 1);
    json_key(json, "LTime"), json_u64(json, event->index);
    json_object_end(json);
}

/* Bounds within bounds ("(a{200}){200}") would take the library's memory. */
static bool is_modest(const char *filter) {
    const char *first = strchr(filter, '{');
    return !first || !strchr(first + 1, '{');
}

static int compile(regex_t *regex, const char *filter) { return is_modest(filter) ? regcomp(regex, filter, REG_EXTENDED | REG_NOSUB) : REG_ESPACE; }

int view_event_filter_check(const char *what, const char *filter, struct fault *fault) {
    regex_t regex;
    char why[100];
    if (strlen(filter) > EVENT_FILTER_MAX) return fault_set(fault, CO_INVALID, "Invalid %s filter: longer than %d bytes", what, EVENT_FILTER_MAX);
    int rv = compile(&regex, filter);
    if (rv == 0) {
        regfree(&regex);
        return CO_OK;
    }
    regerror(rv, &regex, why, sizeof why);
    return fault_set(fault, CO_INVALID, "Invalid %s filter: error parsing regexp: %s: `%s`", what, why, filter);
}

static bool takes(const char *filter, const char *text) {
    regex_t regex;
    if (strlen(filter) > EVENT_FILTER_MAX || compile(&regex, filter) != 0) return false;
    bool yes = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return yes;
}

static bool takes_service(const Pb__Event *event, const Pb__Service *service) {
    if (!takes(event->service_filter, service->name)) return false;
    for (size_t i = 0; i < service->n_tags && event->tag_filter[0]; i++)
        if (takes(event->tag_filter, service->tags[i])) return true;
    return !event->tag_filter[0];
}

bool view_event_is_ours(const Pb__Event *event, const char *node, struct local *local) {
    if (event->node_filter[0] && !takes(event->node_filter, node)) return false;
    if (!event->service_filter[0]) return true;
    struct arena arena = {0};
    Pb__Service **services;
    bool ours = false;
    for (size_t i = 0, count = local_services(local, &arena, &services); i < count && !ours; i++) ours = takes_service(event, services[i]);
    arena_free(&arena);
    return ours;
}
