/* /v1/kv: keys and values. */
#include <ctype.h>
#include <stdio.h>

#include "base/message.h"
#include "base/text.h"
#include "http/api/kv_views.h"
#include "http/api/lease.h"
#include "http/api/topics.h"
#include "http/http.h"
#include "kv/keys/kv.h"
#include "kv/lock/lock.h"

/* -- answers ------------------------------------------------------------------------------------------------------ */

void http_kv_entry(struct json_out *json, const Pb__KvEntry *entry) {
    json_object(json);
    json_key(json, "LockIndex");
    json_u64(json, entry->lock_index);
    json_key(json, "Key");
    json_slice(json, message_slice(entry->key));
    json_key(json, "Flags");
    json_u64(json, entry->flags);
    json_key(json, "Value");
    if (entry->value.len != 0) json_base64(json, message_slice(entry->value));
    else json_null(json);
    if (entry->session[0]) {
        json_key(json, "Session");
        json_string(json, entry->session);
    }
    if (entry->lease[0]) {
        json_key(json, "Lease");
        json_string(json, entry->lease);
    }
    json_key(json, "CreateIndex");
    json_u64(json, entry->create_index);
    json_key(json, "ModifyIndex");
    json_u64(json, entry->modify_index);
    json_object_end(json);
}

static int view_entry(struct http_request *request, const struct query_result *result) {
    if (!result->found) return 404;
    struct json_out *json = http_out(request);
    json_array(json);
    http_kv_entry(json, (const Pb__KvEntry *)result->message);
    json_array_end(json);
    return 200;
}

/* Anybody may have written the value, so a browser must neither guess its type nor run it. */
void http_kv_raw(struct http_request *request, const Pb__KvEntry *entry) {
    http_header(request, "X-Content-Type-Options", "nosniff");
    http_header(request, "Content-Security-Policy", "sandbox");
    buffer_append(http_raw(request), entry->value.data, entry->value.len);
}

static int view_raw(struct http_request *request, const struct query_result *result) {
    if (!result->found) return 404;
    http_kv_raw(request, (const Pb__KvEntry *)result->message);
    return 200;
}

static int view_entries(struct http_request *request, const struct query_result *result) {
    if (!result->found) return 404;
    const Pb__KvEntriesResult *entries = (const Pb__KvEntriesResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; i < entries->n_entries; i++) http_kv_entry(json, entries->entries[i]);
    json_array_end(json);
    return 200;
}

/* No keys below a prefix are a 404, except for the empty prefix. */
static int view_keys(struct http_request *request, const struct query_result *result) {
    if (!result->found && http_path_value(request, "key").size != 0) return 404;
    const Pb__KvKeysResult *keys = (const Pb__KvKeysResult *)result->message;
    struct json_out *json = http_out(request);
    json_array(json);
    for (size_t i = 0; keys && i < keys->n_keys; i++) json_slice(json, message_slice(keys->keys[i]));
    json_array_end(json);
    return 200;
}

/* -- requests ----------------------------------------------------------------------------------------------------- */

/* True when it has replied. */
static bool key_refused(struct http_request *request, struct slice key) {
    if (key.size == 0) http_reply_text(request, 400, "Missing key name");
    else if (key.size > KV_KEY_MAX)
        http_reply_text(request, 400, "Key too long: %zu bytes, at most %d", key.size, KV_KEY_MAX);
    else return false;
    return true;
}

/* Appends text escaped as in a query string. */
static void append_escaped(struct buffer *out, struct slice text) {
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (isalnum(c) || strchr("-_.~", c)) buffer_append_byte(out, (char)c);
        else if (c == ' ') buffer_append_byte(out, '+');
        else buffer_printf(out, "%%%02X", c);
    }
}

/* At most one of these parameters (NULL-terminated, sorted) may be given. True when it has replied. */
static bool conflicts(struct http_request *request, const char *const *names) {
    struct buffer text = {0};
    unsigned count = 0;
    for (; *names; names++) {
        if (!http_has(request, *names)) continue;
        if (count++) buffer_append_byte(&text, '&');
        buffer_append_text(&text, *names);
        buffer_append_byte(&text, '=');
        append_escaped(&text, http_parameter(request, *names));
    }
    if (count > 1) http_reply_text(request, 400, "Conflicting flags: %.*s", (int)text.size, text.data);
    buffer_free(&text);
    return count > 1;
}

static void kv_get(struct http_request *request) {
    struct slice key = http_path_value(request, "key");
    bool one = !http_has(request, "keys") && !http_has(request, "recurse");
    if (one && key_refused(request, key)) return;
    if (http_kv_past(request)) return;
    Pb__KvRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__kv_request__init(message);
    message->key = message_bytes(key);
    if (http_has(request, "keys")) {
        message->separator = message_bytes(http_parameter(request, "separator"));
        http_read(request, &query_kv_keys, &message->base, view_keys);
    } else if (http_has(request, "recurse")) {
        http_read(request, &query_kv_list, &message->base, view_entries);
    } else {
        http_read(request, &query_kv_get, &message->base, http_has(request, "raw") ? view_raw : view_entry);
    }
}

static Pb__KvCommand *command_new(struct http_request *request, struct slice key) {
    Pb__KvCommand *command = arena_alloc(http_arena(request), sizeof *command);
    pb__kv_command__init(command);
    command->key = message_bytes(key);
    return command;
}

/* A number parameter, which must have a value. When it is not given *value is unchanged: true. False when it has
 * replied. */
static bool number_parse(struct http_request *request, const char *name, uint64_t *value) {
    if (http_has(request, name) && http_parameter(request, name).size == 0) {
        http_reply_text(request, 400, "Invalid %s: a whole number is wanted", name);
        return false;
    }
    return http_parameter_u64(request, name, value);
}

/* A session that does not exist is a 500 with Consul's text, because clients look for that. */
static void lock_written(struct http_request *request, const struct machine_result *result) {
    const Pb__KvLockAnswer *answer = (const Pb__KvLockAnswer *)result->message;
    if (result->error == CO_INVALID) {
        http_reply_text(request, 500, "%s", result->text);
        return;
    }
    if (answer) http_header_u64(request, "X-Coord-Fencing-Token", answer->token);
    http_reply_result(request, result);
}

/* ?acquire=ID, ?release=ID. False when it has replied. */
static bool lock_parse(struct http_request *request, Pb__KvCommand *command) {
    bool acquire = http_has(request, "acquire");
    if (!acquire && !http_has(request, "release")) return true;
    struct slice session = http_parameter(request, acquire ? "acquire" : "release");
    if (session.size == 0) {
        http_reply_text(request, 400, "missing session");
        return false;
    }
    if (acquire && !uuid_valid(session)) { /* a release with such an id is harmless, because no session has it */
        http_reply_text(request, 400, "acquire: failed session lookup: not a UUID");
        return false;
    }
    command->verb = acquire ? PB__KV_VERB__KV_LOCK : PB__KV_VERB__KV_UNLOCK;
    command->want_token = 1;
    command->session = arena_strndup(http_arena(request), session.data, session.size);
    for (char *at = command->session; *at; at++) *at = (char)tolower((unsigned char)*at);
    return true;
}

/* Checks that a parameter is given once, with a value. False when it has replied. */
static bool given_once(struct http_request *request, const char *name, const char *wanted) {
    struct slice *values;
    size_t count = http_parameters(request, name, &values);
    if (count == 1 && values[0].size != 0) return true;
    http_reply_text(request, 400, count > 1 ? "%s: it is given twice" : "%s: %s is wanted", name, wanted);
    return false;
}

/* ?fence=LOCKNAME&token=N: another command. Without `fence` the token is one of Consul's
 * access control. False when it has replied. */
static bool fence_parse(struct http_request *request, Pb__KvCommand *command, uint8_t *number) {
    static const char token_wanted[] = "with fence, the fencing token of a lock's holder";
    struct slice name = http_parameter(request, "fence");
    *number = KV_APPLY;
    if (!http_has(request, "fence")) return true;
    if (!given_once(request, "fence", "the name of a lock") || !given_once(request, "token", token_wanted))
        return false;
    if (!queue_name_fits(name)) {
        http_reply_text(request, 400, "fence: the name of a lock has 1 to %d bytes, and no NUL", QUEUE_NAME_MAX);
        return false;
    }
    if (!http_parameter_u64(request, "token", &command->token)) return false;
    command->fence = arena_strndup(http_arena(request), name.data, name.size);
    *number = KV_APPLY_FENCED;
    return true;
}

/* Refuses parameters that must not be ignored, because the client wants something else than a write. */
static bool misplaced(struct http_request *request, const char *const *names, const char *where) {
    for (; *names; names++) {
        if (!http_has(request, *names)) continue;
        http_reply_text(request, 400, "%s goes with %s only: nothing was done", *names, where);
        return true;
    }
    return false;
}

static void kv_put(struct http_request *request) {
    static const char *const exclusive[] = {"acquire", "cas", "release", NULL};
    struct slice key = http_path_value(request, "key"), body = http_body(request);
    if (http_has(request, "restore") && (key.size == 0 || key.size <= KV_KEY_MAX)) {
        http_kv_restore(request);
        return;
    }
    static const char *const of_restore[] = {"at", "dry-run", "delete", NULL};
    if (misplaced(request, of_restore, "restore") || key_refused(request, key) || conflicts(request, exclusive)) return;
    Pb__KvCommand *command = command_new(request, key);
    if (!number_parse(request, "flags", &command->flags)) return;
    if (http_has(request, "cas")) {
        command->verb = PB__KV_VERB__KV_CAS;
        if (!number_parse(request, "cas", &command->index)) return;
    }
    if (!lock_parse(request, command)) return;
    if (http_has(request, "lease") && !lease_id(request, "lease", http_parameter(request, "lease"), &command->lease))
        return;
    uint8_t number;
    if (!fence_parse(request, command, &number)) return;
    uint64_t most = http_env(request)->kv_value_max;
    if (body.size > most) {
        http_reply_text(request, 413,
                        "Request body(%zu bytes) too large, max size: %llu bytes. See the setting "
                        "limits.kv_max_value_size.",
                        body.size, (unsigned long long)most);
        return;
    }
    command->value = message_bytes(body);
    bool lock = command->verb == PB__KV_VERB__KV_LOCK || command->verb == PB__KV_VERB__KV_UNLOCK;
    http_write(request, number, &command->base, lock ? lock_written : NULL);
}

static void kv_delete(struct http_request *request) {
    static const char *const exclusive[] = {"cas", "recurse", NULL};
    struct slice key = http_path_value(request, "key");
    static const char *const of_restore[] = {"restore", "at", "dry-run", "delete", NULL};
    if (misplaced(request, of_restore, "PUT and restore") || conflicts(request, exclusive)) return;
    bool recurse = http_has(request, "recurse");
    if ((key.size != 0 || !recurse) && key_refused(request, key)) return;
    Pb__KvCommand *command = command_new(request, key);
    command->verb = recurse ? PB__KV_VERB__KV_DELETE_TREE : PB__KV_VERB__KV_DELETE;
    if (http_has(request, "cas")) {
        command->verb = PB__KV_VERB__KV_DELETE_CAS;
        if (!number_parse(request, "cas", &command->index)) return;
    }
    uint8_t number;
    if (!fence_parse(request, command, &number)) return;
    http_write(request, number, &command->base, NULL);
}

#define KEY \
    { "*key", HTTP_TEXT, .help = "the key, slashes included", .most = KV_KEY_MAX }
#define CAS \
    { "cas", HTTP_U64, .help = "only while the key's ModifyIndex is this; 0: only if there is none" }
#define AT(help_)                                                                                                  \
    {                                                                                                              \
        "at", HTTP_TEXT,                                                                                           \
            .help = help_ ": an index, a time (2026-11-26T10:00:00Z), or how long ago (-5m); 410: no longer kept", \
            .most = 64                                                                                             \
    }
#define FENCE                                                                                            \
    {"fence", HTTP_TEXT, .help = "coord's own: only while `token` holds this lock (/v1/lock); else 412", \
     .most = QUEUE_NAME_MAX},                                                                            \
    {                                                                                                    \
        "token", HTTP_U64, .help = "with fence: the fencing token"                                       \
    }
#define REFUSED "refused: it belongs to a restore, which is a PUT"
const struct http_route http_routes_kv[] = {
    {HTTP_PUT, "/v1/kv/*key", kv_put, "key:write of *key",
     HTTP_PARAMS(
         KEY, HTTP_DC, {"flags", HTTP_U64, .help = "a number to store with the value"}, CAS,
         {"acquire", HTTP_UUID, .help = "takes the key's lock for this session"},
         {"release", HTTP_UUID, .help = "gives the lock of this session back"},
         {"lease", HTTP_UUID, .help = "coord's own: binds the key to this lease, whose end deletes it"}, FENCE,
         {"restore", HTTP_FLAG,
          .help = "coord's own: the key becomes what it was at `at`, value and flags; takes no body, and answers "
                  "with an object. 404 when it was not there then, and nothing is done"},
         AT("with restore: the moment"),
         {"recurse", HTTP_FLAG,
          .help = "with restore: all keys that begin with it, in one entry; what was not there then is deleted"},
         {"delete", HTTP_FLAG, .help = "with restore: deletes the one key if it was not there then"},
         {"dry-run", HTTP_FLAG, .help = "with restore: changes nothing, and says what would change"}),
     "Stores the body as the key's value; true, or false where cas or a lock says no. With acquire and release the "
     "header X-Coord-Fencing-Token: a number that grows from holder to holder",
     HTTP_BODY_RAW | HTTP_BODY_BIG, .example = {"/v1/kv/color?flags=7", .body = "blue", .status = 200}},
    {HTTP_GET, "/v1/kv/*key", kv_get, "key:read",
     HTTP_PARAMS(KEY, HTTP_READS, {"recurse", HTTP_FLAG, .help = "all entries whose keys begin with it"},
                 {"keys", HTTP_FLAG, .help = "only the keys that begin with it"},
                 {"separator", HTTP_TEXT, .help = "with keys: up to this, which may be of several bytes"},
                 {"raw", HTTP_FLAG, .help = "the value itself, as it was stored"}, AT("coord's own: as it was then"),
                 {"history", HTTP_FLAG, .help = "coord's own: the changes of the key, the oldest first"}),
     "One key, all entries below a prefix, or their names; 404 when there is none", 0,
     .example = {"/v1/kv/color", .status = 200}},
    {HTTP_DELETE, "/v1/kv/*key", kv_delete, "key:write",
     HTTP_PARAMS(KEY, HTTP_DC, {"recurse", HTTP_FLAG, .help = "all keys that begin with it"}, CAS, FENCE,
                 {"restore", HTTP_FLAG, .help = REFUSED}, {"at", HTTP_TEXT, .help = REFUSED},
                 {"dry-run", HTTP_FLAG, .help = REFUSED}, {"delete", HTTP_FLAG, .help = REFUSED}),
     "Removes a key, or all below a prefix", HTTP_BODY_RAW, .example = {"/v1/kv/color", .status = 200}},
    {0},
};
