/* The place of a value in a text of JSON. json-c does not keep places, and they are needed only for errors. */
#include <json-c/json_tokener.h>

#include "base/json_in.h"

#define DEPTH_MOST 64 /* as json_parse has it */

struct reading {
    struct slice text;
    size_t at;
};

static void blanks(struct reading *r) {
    while (r->at < r->text.size && strchr(" \t\r\n", r->text.data[r->at])) r->at++;
}

static char peek(struct reading *r) {
    blanks(r);
    return r->at < r->text.size ? r->text.data[r->at] : '\0';
}

/* Moves behind the closing quote. */
static void pass_string(struct reading *r) {
    for (r->at++; r->at < r->text.size && r->text.data[r->at] != '"'; r->at++)
        if (r->text.data[r->at] == '\\') r->at++;
    r->at = r->at < r->text.size ? r->at + 1 : r->text.size;
}

static void pass_value(struct reading *r) {
    size_t depth = 0;
    do {
        char c = peek(r);
        if (c == '"') {
            pass_string(r);
            continue;
        }
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && depth) depth--;
        if (strchr("{}[]:,", c)) r->at++; /* also at the end of the text */
        else
            while (r->at < r->text.size && !strchr(" \t\r\n{}[]:,\"", r->text.data[r->at])) r->at++;
    } while (depth > 0 && r->at < r->text.size);
}

/* Is the quoted text from `start` to where the reader is this name? */
static bool is_name(const struct reading *r, size_t start, const char *name) {
    size_t size = r->at - start;
    const char *quoted = r->text.data + start;
    if (size >= 2 && !memchr(quoted, '\\', size)) return slice_is(slice_make(quoted + 1, size - 2), name);
    struct buffer copy = {0};
    buffer_append(&copy, quoted, size);
    buffer_append_byte(&copy, '\0');
    struct json_object *text = json_tokener_parse(copy.data);
    bool same = json_object_is_type(text, json_type_string) && strcmp(json_object_get_string(text), name) == 0;
    json_object_put(text);
    buffer_free(&copy);
    return same;
}

/* Moves to the member's value and sets *place to its name; false: there is no such member. */
static bool enter_member(struct reading *r, const char *name, size_t *place) {
    size_t value = 0;
    if (peek(r) != '{') return false;
    r->at++;
    while (peek(r) == '"') {
        size_t start = r->at;
        pass_string(r);
        bool wanted = is_name(r, start, name);
        if (peek(r) != ':') return false;
        r->at++;
        blanks(r);
        if (wanted) *place = start, value = r->at;
        pass_value(r);
        if (peek(r) == ',') r->at++;
    }
    r->at = value;
    return value > 0;
}

static bool enter_item(struct reading *r, size_t index, size_t *place) {
    if (peek(r) != '[') return false;
    r->at++;
    for (; index > 0 && peek(r) != ']' && peek(r); index--) {
        pass_value(r);
        if (peek(r) == ',') r->at++;
    }
    char next = peek(r);
    *place = r->at;
    return index == 0 && next && next != ']';
}

size_t json_place(struct slice text, const struct json_step *step) {
    const struct json_step *steps[DEPTH_MOST];
    struct reading r = {.text = text};
    size_t count = 0, place = 0;
    for (; step && count < DEPTH_MOST; step = step->up) steps[count++] = step;
    while (count > 0) {
        const struct json_step *next = steps[--count];
        if (next->name ? !enter_member(&r, next->name, &place) : !enter_item(&r, next->index, &place)) return place;
    }
    return place;
}
