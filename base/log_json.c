/* A line of the log as JSON. */
#include "base/json_out.h"
#include "base/log.h"

static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/* Takes `name=value` or `name="a value"`, and the blank after it, from the front of *text. */
static bool take_pair(struct slice *text, struct slice *name, struct slice *value) {
    size_t at = 0;
    while (at < text->size && is_name_character(text->data[at])) at++;
    if (at == 0 || at == text->size || text->data[at] != '=') return false;
    *name = slice_make(text->data, at++);
    size_t start = at, end;
    if (at < text->size && text->data[at] == '"') {
        const char *close = memchr(text->data + at + 1, '"', text->size - at - 1);
        if (!close) return false;
        start++, end = (size_t)(close - text->data), at = end + 1;
    } else {
        while (at < text->size && text->data[at] != ' ') at++;
        end = at;
    }
    if (at < text->size && text->data[at] != ' ') return false;
    *value = slice_make(text->data + start, end - start);
    at += at < text->size;
    *text = slice_make(text->data + at, text->size - at);
    return true;
}

static bool all_pairs(struct slice text) {
    struct slice name, value;
    while (text.size)
        if (!take_pair(&text, &name, &value)) return false;
    return true;
}

/* The place where the pairs at the end begin. */
static size_t message_end(struct slice text) {
    for (size_t at = 0; at < text.size; at++)
        if (text.data[at] == ' ' && all_pairs(slice_make(text.data + at + 1, text.size - at - 1))) return at;
    return text.size;
}

static struct slice cut_at(struct slice *text, const char *mark) {
    size_t size = strlen(mark);
    for (size_t at = 0; at + size <= text->size; at++) {
        if (memcmp(text->data + at, mark, size) != 0) continue;
        struct slice before = slice_make(text->data, at);
        *text = slice_make(text->data + at + size, text->size - at - size);
        return before;
    }
    return slice_make(text->data, 0);
}

void log_line_json(struct buffer *out, struct slice line) {
    struct json_out json;
    struct slice name, value;
    if (line.size && line.data[line.size - 1] == '\n') line.size--;
    struct slice time = cut_at(&line, " ["), level = cut_at(&line, "] "), module = cut_at(&line, ": ");
    char lower[8] = "";
    for (size_t i = 0; i < level.size && i + 1 < sizeof lower; i++) lower[i] = (char)(level.data[i] | 0x20);
    size_t end = message_end(line);
    json_out_init(&json, out, false);
    json_object(&json);
    json_key(&json, "@level"), json_string(&json, lower);
    json_key(&json, "@message"), json_slice(&json, slice_make(line.data, end));
    json_key(&json, "@module"), json_slice(&json, module);
    json_key(&json, "@timestamp"), json_slice(&json, time);
    for (struct slice pairs = slice_make(line.data + end, line.size - end); pairs.size > 0;) {
        if (pairs.data[0] == ' ') pairs = slice_make(pairs.data + 1, pairs.size - 1);
        if (!take_pair(&pairs, &name, &value)) break;
        json_key_raw(&json, name.data, name.size);
        json_slice(&json, value);
    }
    json_object_end(&json);
    buffer_append_byte(out, '\n');
}
