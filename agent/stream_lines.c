#include "agent/stream_lines.h"

#include <string.h>

static void set(struct buffer *to, struct slice text) {
    buffer_reset(to);
    buffer_append(to, text.data, text.size);
}

static struct slice after(struct slice text, const char *prefix) {
    size_t size = strlen(prefix);
    return slice_starts(text, slice_text(prefix)) ? slice_make(text.data + size, text.size - size) : (struct slice){0};
}

static void take_comment(struct stream_lines *lines, struct slice text) {
    struct slice index = after(text, "index "), cluster = after(text, "cluster ");
    if (index.size) set(&lines->position, index);
    if (cluster.size) set(&lines->cluster, cluster);
}

static void take_field(struct stream_lines *lines, struct slice name, struct slice value) {
    if (slice_is(name, "event")) set(&lines->event, value);
    else if (slice_is(name, "id")) set(&lines->id, value);
    else if (slice_is(name, "data")) {
        if (lines->data.size) buffer_append_byte(&lines->data, '\n');
        buffer_append(&lines->data, value.data, value.size);
    }
}

static void event_forget(struct stream_lines *lines) {
    buffer_reset(&lines->event), buffer_reset(&lines->id), buffer_reset(&lines->data);
}

static void take_line(struct stream_lines *lines, void (*each)(void *data, const struct stream_lines *lines),
                      void *data) {
    struct slice line = buffer_slice(&lines->line);
    if (line.size && line.data[line.size - 1] == '\r') line.size--;
    if (line.size == 0) {
        if (lines->id.size) set(&lines->position, buffer_slice(&lines->id));
        if (lines->data.size) each(data, lines);
        event_forget(lines);
        return;
    }
    const char *colon = memchr(line.data, ':', line.size);
    size_t size = colon ? (size_t)(colon - line.data) : line.size, from = size + (colon != NULL);
    if (from < line.size && line.data[from] == ' ') from++;
    struct slice name = slice_make(line.data, size), value = slice_make(line.data + from, line.size - from);
    if (size == 0) take_comment(lines, value);
    else take_field(lines, name, value);
}

void stream_lines_feed(struct stream_lines *lines, struct slice bytes,
                       void (*each)(void *data, const struct stream_lines *lines), void *data) {
    while (bytes.size) {
        const char *end = memchr(bytes.data, '\n', bytes.size);
        size_t size = end ? (size_t)(end - bytes.data) : bytes.size;
        buffer_append(&lines->line, bytes.data, size);
        if (!end) return;
        take_line(lines, each, data);
        buffer_reset(&lines->line);
        bytes = slice_make(end + 1, bytes.size - size - 1);
    }
}

void stream_lines_cut(struct stream_lines *lines) {
    buffer_reset(&lines->line);
    event_forget(lines);
}

void stream_lines_anew(struct stream_lines *lines) {
    stream_lines_cut(lines);
    buffer_reset(&lines->position), buffer_reset(&lines->cluster);
}

void stream_lines_free(struct stream_lines *lines) {
    buffer_free(&lines->line), buffer_free(&lines->event), buffer_free(&lines->id), buffer_free(&lines->data);
    buffer_free(&lines->position), buffer_free(&lines->cluster);
}
