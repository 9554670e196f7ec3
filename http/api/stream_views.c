#include "http/api/stream_views.h"

#include "base/check.h"
#include "base/json_out.h"
#include "base/message.h"
#include "base/text.h"
#include "http/api/kv_views.h"
#include "http/api/quota_views.h"
#include "http/api/views.h"

/* -- ids ---------------------------------------------------------------------------------------------------------- */

void stream_position_append(struct buffer *out, const Pb__StreamPosition *position) {
    buffer_append_u64(out, position->index);
    if (position->topic) buffer_printf(out, ".%u.%u", position->topic, position->place);
}

bool stream_position_parse(struct slice text, Pb__StreamPosition *position) {
    uint64_t parts[3] = {0};
    size_t count = 0, begin = 0;
    for (size_t i = 0; i <= text.size; i++) {
        if (i < text.size && text.data[i] != '.') continue;
        uint64_t most = count ? UINT32_MAX : UINT64_MAX - 1;
        if (count == 3 || u64_parse(slice_make(text.data + begin, i - begin), most, &parts[count]) != CO_OK)
            return false;
        count++;
        begin = i + 1;
    }
    bool inside = count == 3 && parts[1] > 0 && parts[1] < HISTORY_TOPICS && parts[2] > 0;
    if (parts[0] == 0 || (count != 1 && !inside)) return false;
    pb__stream_position__init(position);
    position->index = parts[0], position->topic = (uint32_t)parts[1], position->place = (uint32_t)parts[2];
    return true;
}

/* -- the data of an event ----------------------------------------------------------------------------------------- */

static void write_gone(struct json_out *json, const char *member, struct slice name) {
    json_object(json);
    json_key_slice(json, slice_text(member));
    json_slice(json, name);
    json_key(json, "Deleted");
    json_bool(json, true);
    json_object_end(json);
}

static void write_entries(struct json_out *json, const Pb__ServiceEntriesResult *list) {
    json_array(json);
    for (size_t i = 0; i < list->n_entries; i++) view_service_entry(json, list->entries[i]);
    json_array_end(json);
}

static void write_delta(struct json_out *json, const Pb__StreamEvent *event, const Pb__ServiceEntriesResult *changed) {
    json_object(json);
    json_key(json, "Service");
    json_slice(json, message_slice(event->name));
    json_key(json, "Changed");
    write_entries(json, changed);
    json_key(json, "Removed");
    json_array(json);
    for (size_t i = 0; i < event->n_removed; i++) {
        json_object(json);
        json_key(json, "Node");
        json_string(json, event->removed[i]->node);
        json_key(json, "ID");
        json_string(json, event->removed[i]->id);
        json_object_end(json);
    }
    json_array_end(json);
    json_object_end(json);
}

static const char *const gone_members[STREAM_KINDS] = {
    [PB__STREAM_KIND__STREAM_KEY] = "Key",    [PB__STREAM_KIND__STREAM_SERVICE] = "Service",
    [PB__STREAM_KIND__STREAM_NODE] = "Node",  [PB__STREAM_KIND__STREAM_LOCK] = "Name",
    [PB__STREAM_KIND__STREAM_QUOTA] = "Name",
};

static void write_record(struct json_out *json, const Pb__StreamEvent *event, const ProtobufCMessage *record,
                         bool delta) {
    switch (event->kind) {
        case PB__STREAM_KIND__STREAM_KEY: http_kv_entry(json, (const Pb__KvEntry *)record); break;
        case PB__STREAM_KIND__STREAM_NODE: view_node_services(json, (const Pb__NodeServicesResult *)record); break;
        case PB__STREAM_KIND__STREAM_LOCK: http_lock_view(json, record); break;
        case PB__STREAM_KIND__STREAM_QUOTA: message_json(json, record, quota_members_one, NULL); break;
        default:
            if (delta) write_delta(json, event, (const Pb__ServiceEntriesResult *)record);
            else write_entries(json, (const Pb__ServiceEntriesResult *)record);
    }
}

static bool append_event(struct buffer *out, const Pb__StreamEvent *event, bool delta, struct arena *arena) {
    if ((size_t)event->kind >= STREAM_KINDS || !gone_members[event->kind] || !event->position) return false;
    const struct stream_kind *kind = &stream_kinds[event->kind];
    bool service_delta = delta && event->kind == PB__STREAM_KIND__STREAM_SERVICE, gone = event->gone && !service_delta;
    const ProtobufCMessage *record = NULL;
    if (!gone) record = message_unpack(arena, kind->query->result, message_slice(event->record));
    if (!gone && !record) return false;
    struct json_out json;
    buffer_printf(out, "event: %s\nid: ", kind->event);
    stream_position_append(out, event->position);
    buffer_append_text(out, "\ndata: ");
    json_out_init(&json, out, false);
    if (gone) write_gone(&json, gone_members[event->kind], message_slice(event->name));
    else write_record(&json, event, record, delta);
    buffer_append_text(out, "\n\n");
    return true;
}

static void append_break(struct buffer *out, const char *event, const Pb__StreamPosition *position) {
    buffer_printf(out, "event: %s\nid: ", event);
    stream_position_append(out, position);
    buffer_printf(out, "\ndata: {\"Index\":%llu}\n\n", (unsigned long long)position->index);
}

bool stream_events_append(struct buffer *out, const Pb__StreamResult *result, bool delta, struct arena *arena) {
    if (!result->position) return false;
    if (result->gap) append_break(out, "gap", result->position);
    if (result->reset) append_break(out, "reset", result->position);
    for (size_t i = 0; i < result->n_events; i++)
        if (!append_event(out, result->events[i], delta, arena)) return false;
    return true;
}

void stream_progress_append(struct buffer *out, const Pb__StreamPosition *position) {
    buffer_append_text(out, ": index ");
    stream_position_append(out, position);
    buffer_append_text(out, "\n\n");
}

void stream_begin_append(struct buffer *out, uint64_t cluster, const Pb__StreamPosition *position) {
    if (cluster) buffer_printf(out, ": cluster %016llx\n", (unsigned long long)cluster);
    stream_progress_append(out, position);
}
