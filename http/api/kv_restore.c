/* PUT /v1/kv/KEY?restore&at=: gives keys their former values. */
#include "base/message.h"
#include "http/api/kv_views.h"
#include "http/http.h"
#include "kv/keys/kv.h"

static void write_change(struct json_out *json, const Pb__KvRestoreChange *change) {
    json_object(json);
    json_key(json, "Key");
    json_slice(json, message_slice(change->key));
    json_key(json, "Kind");
    json_string(json, change->remove ? "delete" : "set");
    if (!change->remove) {
        json_key(json, "Value");
        if (change->value.len) json_base64(json, message_slice(change->value));
        else json_null(json);
        json_key(json, "Flags");
        json_u64(json, change->flags);
    }
    json_object_end(json);
}

static void reply_answer(struct http_request *request, const Pb__KvRestoreAnswer *answer) {
    struct json_out *json = http_out(request);
    json_object(json);
    json_key(json, "At");
    json_u64(json, answer->at);
    json_key(json, "Set");
    json_u64(json, answer->set);
    json_key(json, "Deleted");
    json_u64(json, answer->removed);
    if (http_has(request, "dry-run")) {
        json_key(json, "Changes");
        json_array(json);
        for (size_t i = 0; i < answer->n_changes; i++) write_change(json, answer->changes[i]);
        json_array_end(json);
    }
    json_object_end(json);
    http_reply_json(request, 200);
}

static void restored(struct http_request *request, const struct machine_result *result) {
    const Pb__KvRestoreAnswer *answer = (const Pb__KvRestoreAnswer *)result->message;
    if (result->error || !answer) {
        http_reply_result(request, result);
        return;
    }
    const struct http_kv_window window = {.off = answer->off,
                                          .verdict = answer->verdict,
                                          .floor = answer->floor,
                                          .floor_unix_ms = answer->floor_unix_ms,
                                          .index = answer->index,
                                          .unix_ms = answer->unix_ms};
    char text[256];
    int status = http_kv_moment_refused(&window, http_parameter(request, "at"), text, sizeof text);
    if (status) http_reply_text(request, status, "%s", text);
    else if (answer->too_large)
        http_reply_text(request, 413,
                        "restore: more has changed since than one entry may take back (%d keys, %d MiB): nothing was "
                        "restored; restore longer prefixes one after the other",
                        KV_RESTORE_KEYS_MAX, (int)(KV_RESTORE_BYTES_MAX >> 20));
    else if (answer->absent && !http_has(request, "delete"))
        http_reply_text(request, 404,
                        "restore: the key was not there at index %llu: nothing was done; with delete it is deleted",
                        (unsigned long long)answer->at);
    else reply_answer(request, answer);
}

/* A given parameter that belongs to other writes. NULL: there is none. */
static const char *stranger(struct http_request *request) {
    static const char *const others[] = {"acquire", "cas", "fence", "flags", "lease", "release"};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++)
        if (http_has(request, others[i])) return others[i];
    return http_body(request).size ? "a body" : NULL;
}

void http_kv_restore(struct http_request *request) {
    struct slice key = http_path_value(request, "key");
    bool recurse = http_has(request, "recurse"), remove = http_has(request, "delete");
    const char *other = stranger(request);
    if (other) {
        http_reply_text(request, 400, "restore: it goes with at, recurse, delete and dry-run alone, and not with %s",
                        other);
        return;
    }
    if (recurse && remove) {
        http_reply_text(request, 400, "restore: recurse deletes what was not there anyway, and goes without delete");
        return;
    }
    if (key.size == 0 && !recurse) {
        http_reply_text(request, 400, "Missing key name");
        return;
    }
    Pb__KvRestoreCommand *command = arena_alloc(http_arena(request), sizeof *command);
    pb__kv_restore_command__init(command);
    command->key = message_bytes(key);
    command->recurse = recurse, command->remove = remove, command->dry_run = http_has(request, "dry-run");
    command->at = http_kv_moment(request);
    if (command->at) http_write(request, KV_RESTORE, &command->base, restored);
}
