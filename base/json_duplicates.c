/* Keys that stand twice in one object: json-c keeps the last one and says nothing. */
#include <stdlib.h>

#include "base/json_in.h"
#include "base/memory.h"
#include "base/text.h"

#define DEPTH_MOST 64 /* as json_parse has it */

struct key {
    const char *at;
    size_t size;
};

struct keys {
    struct key *items; /* of all objects that are open, the outermost's first */
    size_t count, capacity;
    size_t starts[DEPTH_MOST + 1];
    size_t depth;
};

static int by_text(const void *a, const void *b) {
    const struct key *one = a, *other = b;
    int order = slice_compare(slice_make(one->at, one->size), slice_make(other->at, other->size));
    return order ? order : one->at < other->at ? -1 : 1;
}

static void key_add(struct keys *keys, const char *at, size_t size) {
    if (keys->count == keys->capacity) {
        keys->capacity = keys->capacity ? keys->capacity * 2 : 64;
        keys->items = mem_realloc(keys->items, keys->capacity * sizeof *keys->items);
    }
    keys->items[keys->count++] = (struct key){at, size};
}

/* The innermost object ends; true, when it has a key twice. */
static bool object_end(struct keys *keys, struct slice *twice) {
    if (keys->depth == 0) return false;
    size_t start = keys->starts[--keys->depth], count = keys->count - start;
    if (count < 2) {
        keys->count = start;
        return false;
    }
    struct key *items = keys->items + start; /* two keys at least: items is there */
    qsort(items, count, sizeof *items, by_text);
    keys->count = start;
    for (size_t i = 1; i < count; i++) {
        if (items[i].size == items[i - 1].size && memcmp(items[i].at, items[i - 1].at, items[i].size) == 0) {
            *twice = slice_make(items[i].at, items[i].size);
            return true;
        }
    }
    return false;
}

/* A string from its opening quote on; a key when a colon follows. Returns where it ends. */
static size_t string_end(struct keys *keys, struct slice text, size_t at) {
    size_t start = ++at;
    while (at < text.size && text.data[at] != '"') at += text.data[at] == '\\' ? 2 : 1;
    size_t end = at < text.size ? at : text.size, next = end + 1;
    while (next < text.size && strchr(" \t\r\n", text.data[next])) next++;
    if (next < text.size && text.data[next] == ':') key_add(keys, text.data + start, end - start);
    return end + 1;
}

bool json_duplicate(struct slice text, struct slice *key) {
    struct keys keys = {0};
    bool found = false;
    for (size_t at = 0; at < text.size && !found;) {
        char c = text.data[at];
        if (c == '"') {
            at = string_end(&keys, text, at);
            continue;
        }
        if (c == '{' && keys.depth <= DEPTH_MOST) keys.starts[keys.depth++] = keys.count;
        if (c == '}') found = object_end(&keys, key);
        at++;
    }
    free(keys.items);
    return found;
}

int json_refuse_duplicates(struct slice text, struct fault *fault) {
    struct slice key;
    size_t line, column;
    if (!json_duplicate(text, &key)) return CO_OK;
    text_place(text, (size_t)(key.data - text.data) - 1, &line, &column);
    return fault_set(fault, CO_INVALID,
                     "JSON: the key \"%.*s\" stands a second time in its object, at line %zu, column %zu",
                     key.size < 60 ? (int)key.size : 60, key.data, line, column);
}
