/* Keys that stand twice in one object: json-c keeps the last one and says nothing. */
#include <stdlib.h>

#include "base/json_in.h"
#include "base/memory.h"

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

static int twice(struct slice text, const struct key *key, struct fault *fault) {
    size_t line = 1;
    for (const char *at = text.data; at < key->at; at++) line += *at == '\n';
    return fault_set(fault, CO_INVALID, "JSON: the key \"%.*s\" stands a second time in its object, at line %zu",
                     key->size < 60 ? (int)key->size : 60, key->at, line);
}

/* The innermost object ends. */
static int object_end(struct keys *keys, struct slice text, struct fault *fault) {
    if (keys->depth == 0) return CO_OK;
    size_t start = keys->starts[--keys->depth], count = keys->count - start;
    if (count < 2) {
        keys->count = start;
        return CO_OK;
    }
    struct key *items = keys->items + start; /* two keys at least: items is there */
    qsort(items, count, sizeof *items, by_text);
    keys->count = start;
    for (size_t i = 1; i < count; i++) {
        if (items[i].size == items[i - 1].size && memcmp(items[i].at, items[i - 1].at, items[i].size) == 0)
            return twice(text, &items[i], fault);
    }
    return CO_OK;
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

int json_refuse_duplicates(struct slice text, struct fault *fault) {
    struct keys keys = {0};
    int error = CO_OK;
    for (size_t at = 0; at < text.size && !error;) {
        char c = text.data[at];
        if (c == '"') {
            at = string_end(&keys, text, at);
            continue;
        }
        if (c == '{' && keys.depth <= DEPTH_MOST) keys.starts[keys.depth++] = keys.count;
        if (c == '}') error = object_end(&keys, text, fault);
        at++;
    }
    free(keys.items);
    return error;
}
