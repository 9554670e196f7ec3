/* /v1/kv/...?at= and ?history: the former values of keys. */
#include "base/check.h"
#include "base/message.h"
#include "base/text.h"
#include "http/api/kv_views.h"
#include "http/http.h"
#include "kv/keys/kv.h"

static const char *const kinds[] = {
    [PB__KV_CHANGE_KIND__CHANGE_SET] = "set",       [PB__KV_CHANGE_KIND__CHANGE_DELETE] = "delete",
    [PB__KV_CHANGE_KIND__CHANGE_LOCK] = "lock",     [PB__KV_CHANGE_KIND__CHANGE_UNLOCK] = "unlock",
    [PB__KV_CHANGE_KIND__CHANGE_EXPIRE] = "expire",
};

static void write_change(struct json_out *json, const Pb__KvChange *change) {
    CHECK((size_t)change->kind < ARRAY_COUNT(kinds));
    bool gone = change->kind == PB__KV_CHANGE_KIND__CHANGE_DELETE || change->kind == PB__KV_CHANGE_KIND__CHANGE_EXPIRE;
    json_object(json);
    json_key(json, "Index");
    json_u64(json, change->index);
    http_kv_time(json, change->unix_ms);
    json_key(json, "Kind");
    json_string(json, kinds[change->kind]);
    if (!gone) {
        json_key(json, "Value");
        if (change->value.len) json_base64(json, message_slice(change->value));
        else json_null(json);
        json_key(json, "Flags");
        json_u64(json, change->flags);
    }
    if (change->session[0]) {
        json_key(json, "Session");
        json_string(json, change->session);
    }
    json_object_end(json);
}

/* Returns 0 when it is not refused. */
static int view_refused(struct http_request *request, const Pb__KvPastResult *past) {
    const struct http_kv_window window = {.off = past->off,
                                          .verdict = past->verdict,
                                          .floor = past->floor,
                                          .floor_unix_ms = past->floor_unix_ms,
                                          .index = past->index,
                                          .unix_ms = past->unix_ms};
    char text[256];
    int status = http_kv_moment_refused(&window, http_parameter(request, "at"), text, sizeof text);
    if (status) http_view_text(request, "%s", text);
    return status;
}

static int view_past(struct http_request *request, const struct query_result *result) {
    const Pb__KvPastResult *past = (const Pb__KvPastResult *)result->message;
    int refused = view_refused(request, past);
    if (refused) return refused;
    bool keys = http_has(request, "keys");
    if (!result->found && !(keys && http_path_value(request, "key").size == 0)) return 404;
    if (http_has(request, "raw") && past->n_entries == 1 && !http_has(request, "recurse")) {
        http_kv_raw(request, past->entries[0]);
        return 200;
    }
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < past->n_entries; i++) http_kv_entry(json, past->entries[i]);
    for (size_t i = 0; i < past->n_keys; i++) json_slice(json, message_slice(past->keys[i]));
    json_array_end(json);
    return 200;
}

static int view_changes(struct http_request *request, const struct query_result *result) {
    const Pb__KvPastResult *past = (const Pb__KvPastResult *)result->message;
    int refused = view_refused(request, past);
    if (refused) return refused;
    if (!result->found) return 404;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < past->n_changes; i++) write_change(json, past->changes[i]);
    json_array_end(json);
    return 200;
}

bool http_kv_past(struct http_request *request) {
    bool history = http_has(request, "history");
    if (!history && !http_has(request, "at")) return false;
    Pb__KvPastRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__kv_past_request__init(message);
    struct slice key = http_path_value(request, "key"), separator = http_parameter(request, "separator");
    message->key = message_bytes(key);
    message->separator = message_bytes(separator);
    bool keys = http_has(request, "keys"), recurse = http_has(request, "recurse");
    if (history && (http_has(request, "at") || keys || recurse || http_has(request, "raw"))) {
        http_reply_text(request, 400,
                        "history: it lists the changes of one key, and goes with none of at, keys, recurse, raw");
        return true;
    }
    if (!history && !(message->at = http_kv_moment(request))) return true;
    if (!history && http_has(request, "index")) {
        http_reply_text(request, 400, "at: the past does not change, so there is nothing to wait for with index");
        return true;
    }
    message->form = history   ? PB__KV_PAST_FORM__PAST_CHANGES
                    : keys    ? PB__KV_PAST_FORM__PAST_KEYS
                    : recurse ? PB__KV_PAST_FORM__PAST_ENTRIES
                              : PB__KV_PAST_FORM__PAST_ENTRY;
    http_read(request, &query_kv_past, &message->base, history ? view_changes : view_past);
    return true;
}
