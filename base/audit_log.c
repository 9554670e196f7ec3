#include "base/audit_log.h"

#include "base/json_out.h"
#include "base/timestamp.h"

static bool has_room(const struct audit_log *log, size_t size) {
    return log->lines.size + log->writing + log->reserved + size <= log->most;
}

bool audit_log_reserve(struct audit_log *log, size_t size, size_t *reserved) {
    *reserved = 0;
    if (!log->refuse) return true;
    if (log->error || !has_room(log, size)) {
        log->refused++;
        return false;
    }
    log->reserved += size;
    *reserved = size;
    return true;
}

void audit_log_release(struct audit_log *log, size_t reserved) { log->reserved -= reserved; }

bool audit_log_put(struct audit_log *log, struct slice line, size_t reserved) {
    audit_log_release(log, reserved);
    if (!reserved && !has_room(log, line.size)) {
        log->lost++;
        return false;
    }
    buffer_append(&log->lines, line.data, line.size);
    return true;
}

uint64_t audit_log_wait_ms(const struct audit_log *log, uint64_t now_ms) {
    if (log->error) return log->again_ms > now_ms ? log->again_ms - now_ms : 0;
    return log->lines.size || log->writing || log->lost || log->refused ? 0 : UINT64_MAX;
}

void audit_log_take(struct audit_log *log, struct buffer *batch) {
    if (batch->size) return;
    struct buffer empty = *batch;
    *batch = log->lines;
    log->lines = empty;
    log->writing = batch->size;
}

/* Also beyond the room: it is the only way to learn of the loss. */
static void tell(struct audit_log *log, uint64_t now_unix_ms) {
    struct json_out json;
    char time[TIMESTAMP_ROOM];
    timestamp_format(now_unix_ms, time);
    json_out_init(&json, &log->lines, false);
    json_object(&json);
    json_key(&json, "time"), json_string(&json, time);
    json_key(&json, "kind"), json_string(&json, "missing");
    json_key(&json, "lost"), json_u64(&json, log->lost);
    json_key(&json, "refused"), json_u64(&json, log->refused);
    json_object_end(&json);
    buffer_append_byte(&log->lines, '\n');
    log->lost = log->refused = 0;
}

void audit_log_written(struct audit_log *log, size_t size, int error, uint64_t now_ms, uint64_t now_unix_ms) {
    log->writing -= size;
    log->error = error;
    log->again_ms = now_ms + AUDIT_LOG_AGAIN_MS;
    if (!error && !log->writing && (log->lost || log->refused)) tell(log, now_unix_ms);
}

bool audit_log_warns(struct audit_log *log, int error, uint64_t now_ms) {
    bool wrong = error || log->lost || log->refused;
    if (!wrong || (log->warned_ms && now_ms - log->warned_ms < AUDIT_LOG_WARN_MS)) return false;
    log->warned_ms = now_ms ? now_ms : 1;
    return true;
}

size_t audit_log_chunk(struct slice lines, size_t room) {
    const char *end = memrchr(lines.data, '\n', room < lines.size ? room : lines.size);
    if (!end) end = memchr(lines.data, '\n', lines.size);
    return end ? (size_t)(end - lines.data) + 1 : lines.size;
}
