#include "http/api/event_views.h"

#include "base/message.h"
#include "base/text.h"
#include "http/api/event_filter.h"

/* Consul's clients take the halves of an ID, one xor the other, for the index of the list that ends with this event
 * (IDToIndex in Go); `consul watch -type=event` finds by it which events are new. The shown ID has the first half of
 * the stored one; the second half is computed from that and the index. */
static void view_id(struct json_out *json, const Pb__Event *event) {
    uint8_t bytes[16];
    char text[UUID_TEXT_SIZE];                /* without a NUL */
    if (!uuid_valid(slice_text(event->id))) { /* an agent gave another text, which is shown as it is */
        json_string(json, event->id);
        return;
    }
    uuid_parse(slice_text(event->id), bytes);
    put_be64((char *)bytes + 8, get_be64((const char *)bytes) ^ event->index);
    uuid_format(bytes, text);
    json_slice(json, slice_make(text, sizeof text));
}

void view_event(struct json_out *json, const Pb__Event *event) {
    json_object(json);
    json_key(json, "ID"), view_id(json, event);
    json_key(json, "Name"), json_string(json, event->name);
    json_key(json, "Payload");
    if (event->payload.len) json_base64(json, message_slice(event->payload));
    else json_null(json);
    json_key(json, "NodeFilter"), json_string(json, event->node_filter);
    json_key(json, "ServiceFilter"), json_string(json, event->service_filter);
    json_key(json, "TagFilter"), json_string(json, event->tag_filter);
    json_key(json, "Version"), json_u64(json, 1);
    json_key(json, "LTime"), json_u64(json, event->index);
    json_object_end(json);
}

int view_event_filter_check(const char *what, const char *filter, struct fault *fault) {
    struct fault inner = {0};
    regex_t regex;
    if (event_filter_compile(filter, &regex, &inner) != CO_OK)
        return fault_set(fault, CO_INVALID, "Invalid %s filter: %s", what, inner.text);
    regfree(&regex);
    return CO_OK;
}

static bool takes_service(const regex_t *name, const regex_t *tag, const Pb__Service *service) {
    if (!event_filter_takes(name, service->name)) return false;
    for (size_t i = 0; tag && i < service->n_tags; i++)
        if (event_filter_takes(tag, service->tags[i])) return true;
    return !tag;
}

static bool takes_node(const char *filter, const char *node) {
    regex_t regex;
    if (!filter[0]) return true;
    if (event_filter_compile(filter, &regex, NULL) != CO_OK) return false;
    bool yes = event_filter_takes(&regex, node);
    regfree(&regex);
    return yes;
}

bool view_event_is_ours(const Pb__Event *event, const char *node, Pb__Service *const *services, size_t count) {
    regex_t name, tag;
    bool ours = false, by_tag = event->tag_filter[0];
    if (!takes_node(event->node_filter, node)) return false;
    if (!event->service_filter[0]) return true;
    if (event_filter_compile(event->service_filter, &name, NULL) != CO_OK) return false;
    if (!by_tag || event_filter_compile(event->tag_filter, &tag, NULL) == CO_OK) {
        for (size_t i = 0; i < count && !ours; i++) ours = takes_service(&name, by_tag ? &tag : NULL, services[i]);
        if (by_tag) regfree(&tag);
    }
    regfree(&name);
    return ours;
}
