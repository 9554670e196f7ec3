#include "http/audit_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/json_out.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/timestamp.h"

#define HIDDEN       "<hidden>"
#define SECRET_LEAST 4 /* bytes; every text has shorter ones in it */

/* -- targets ------------------------------------------------------------------------------------------------------ */
static bool holds(struct slice text, struct slice secret) {
    return secret.size >= SECRET_LEAST && memmem(text.data, text.size, secret.data, secret.size);
}

/* Without its escapes, where they are good ones; in memory of its own. */
static struct slice decoded(struct slice raw) {
    char *text = mem_alloc(raw.size + 1);
    size_t size;
    if (percent_decode(raw, false, text, &size) != CO_OK) memcpy(text, raw.data, size = raw.size);
    return slice_make(text, size);
}

static void append_bytes(struct buffer *out, struct slice raw) {
    for (size_t i = 0; i < raw.size; i++) {
        unsigned char byte = (unsigned char)raw.data[i];
        if (byte > ' ' && byte < 0x7f) buffer_append_byte(out, (char)byte);
        else buffer_printf(out, "%%%02X", byte);
    }
}

/* Paths of Consul's first tokens have the secret in them. */
static const char *secret_path(struct slice path) {
    static const char *const prefixes[] = {"/v1/acl/info/", "/v1/acl/destroy/", "/v1/acl/clone/"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (slice_starts(path, slice_text(prefixes[i]))) return prefixes[i];
    return NULL;
}

static void append_path(struct buffer *out, struct slice raw, struct slice secret) {
    struct slice path = decoded(raw);
    const char *prefix = secret_path(path);
    if (prefix) buffer_printf(out, "%s" HIDDEN, prefix);
    else if (holds(path, secret)) buffer_append_text(out, "/" HIDDEN);
    else append_bytes(out, raw);
    free((char *)(uintptr_t)path.data);
}

static void append_parameter(struct buffer *out, struct slice raw, struct slice secret) {
    const char *equals = memchr(raw.data, '=', raw.size);
    struct slice name = slice_make(raw.data, equals ? (size_t)(equals - raw.data) : raw.size);
    struct slice plain = decoded(name), value = decoded(raw);
    if (slice_equal_nocase(plain, SLICE_LITERAL("token"))) buffer_append_text(out, equals ? "token=" HIDDEN : "token");
    else if (holds(value, secret)) buffer_append_text(out, HIDDEN);
    else append_bytes(out, raw);
    free((char *)(uintptr_t)plain.data);
    free((char *)(uintptr_t)value.data);
}

/* A target of another form is one that was refused, and may have a password in it. */
static void append_target(struct buffer *out, struct slice target, struct slice secret) {
    if (!target.size || target.data[0] != '/') return;
    const char *mark = memchr(target.data, '?', target.size), *end = target.data + target.size;
    append_path(out, slice_make(target.data, (size_t)((mark ? mark : end) - target.data)), secret);
    while (mark) {
        const char *from = mark + 1;
        buffer_append_byte(out, *mark);
        mark = memchr(from, '&', (size_t)(end - from));
        append_parameter(out, slice_make(from, (size_t)((mark ? mark : end) - from)), secret);
    }
}

static void write_target(struct json_out *json, const struct audit_line *line) {
    struct buffer target = {0};
    append_target(&target, line->target, line->secret);
    if (target.size > AUDIT_TARGET_MAX) {
        target.size = AUDIT_TARGET_MAX;
        buffer_append_text(&target, "...");
    }
    json_slice(json, buffer_slice(&target));
    buffer_free(&target);
}

/* -- lines -------------------------------------------------------------------------------------------------------- */
void audit_line_write(struct buffer *out, const struct audit_line *line) {
    struct json_out json;
    char time[TIMESTAMP_ROOM];
    timestamp_format(line->unix_ms, time);
    json_out_init(&json, out, false);
    json_object(&json);
    json_key(&json, "time"), json_string(&json, time);
    json_key(&json, "kind"), json_string(&json, line->kind);
    json_key(&json, "request_id"), json_string(&json, line->id);
    json_key(&json, "accessor"), json_string(&json, line->accessor);
    json_key(&json, "token"), json_string(&json, line->token);
    json_key(&json, "slot"), json_string(&json, line->slot);
    if (line->certificate[0]) json_key(&json, "certificate"), json_string(&json, line->certificate);
    json_key(&json, "address"), json_string(&json, line->address);
    json_key(&json, "method"), json_string(&json, line->method);
    json_key(&json, "path"), write_target(&json, line);
    json_key(&json, "status"), json_i64(&json, line->status);
    if (line->denied) json_key(&json, "denied"), json_string(&json, line->denied);
    if (line->subject) json_key(&json, "subject"), json_string(&json, line->subject);
    if (line->index) json_key(&json, "index"), json_u64(&json, line->index);
    json_object_end(&json);
    buffer_append_byte(out, '\n');
}

size_t audit_line_estimate(struct slice target) {
    size_t size = target.size < AUDIT_TARGET_MAX ? target.size : AUDIT_TARGET_MAX;
    return 640 + 2 * size;
}

/* -- ids ---------------------------------------------------------------------------------------------------------- */
bool audit_id_valid(struct slice id, struct slice secret) {
    bool good = id.size >= 1 && id.size <= AUDIT_ID_MAX;
    for (size_t i = 0; good && i < id.size; i++) {
        char c = id.data[i];
        good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
               c == '-';
    }
    return good && !holds(id, secret);
}

void audit_id_draw(struct rng *rng, char id[AUDIT_ID_MAX + 1]) {
    snprintf(id, AUDIT_ID_MAX + 1, "%016" PRIx64, rng_next(rng));
}
