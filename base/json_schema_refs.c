/* Resolves references. Then makes sure that none leads back to itself without going into the document, and that chains
 * are short. */
#include <stdlib.h>

#include "base/json_schema_inner.h"
#include "base/json_value.h"
#include "base/text.h"

#define POINTER_MOST 1024 /* bytes of a reference */

/* ---- references ---- */

static int by_json(const void *a, const void *b) {
    const struct known *one = a, *other = b;
    return one->json < other->json ? -1 : one->json > other->json;
}

/* The next token of a JSON pointer that begins with "/", unescaped. */
static struct slice take_token(struct slice *pointer, char *token) {
    size_t size = 0, at = 1;
    for (; at < pointer->size && pointer->data[at] != '/'; at++) {
        char c = pointer->data[at], next = at + 1 < pointer->size ? pointer->data[at + 1] : '\0';
        bool escaped = c == '~' && (next == '0' || next == '1');
        token[size++] = !escaped ? c : next == '0' ? '~' : '/';
        at += escaped;
    }
    token[size] = '\0';
    *pointer = slice_make(pointer->data + at, pointer->size - at);
    return slice_make(token, size);
}

/* The value that a JSON pointer leads to; NULL: there is none, or it is null. */
static struct json_object *follow(struct json_object *json, struct slice pointer) {
    char token[POINTER_MOST + 1];
    while (pointer.size && json) {
        uint64_t index;
        if (pointer.data[0] != '/') return NULL;
        struct slice name = take_token(&pointer, token);
        if (json_object_is_type(json, json_type_array)) {
            if (u64_parse(name, INT32_MAX, &index) != CO_OK) return NULL;
            json = json_object_array_get_idx(json, index);
        } else if (!json_object_is_type(json, json_type_object) || !json_object_object_get_ex(json, token, &json)) {
            return NULL;
        }
    }
    return json;
}

static bool resolve(const struct places *p, struct json_object *json, const struct reference *reference,
                    struct fault *fault) {
    char pointer[POINTER_MOST + 1];
    size_t size;
    struct known *found = NULL;
    if (reference->to.size <= POINTER_MOST && percent_decode(reference->to, false, pointer, &size) == CO_OK) {
        const struct known key = {.json = follow(json, slice_make(pointer, size))};
        found = bsearch(&key, p->known, p->known_count, sizeof *p->known, by_json);
    }
    if (found) {
        reference->from->ref = found->node;
        return true;
    }
    struct buffer shown = {0};
    json_text_show(&shown, slice_make(reference->to.data - 1, reference->to.size + 1));
    fault_set(fault, CO_INVALID, "%s: %.*s leads to no schema", reference->from->path, (int)shown.size, shown.data);
    buffer_free(&shown);
    return false;
}

/* ---- no reference leads back to itself, and chains are short ---- */

static bool measure(struct node *node, unsigned depth, const char *path, struct fault *fault);

static bool measure_below(struct node *node, struct node *below, unsigned depth, const char *path,
                          struct fault *fault) {
    if (!below) return true;
    if (!measure(below, depth + 1, path, fault)) return false;
    if (node->height <= below->height) node->height = below->height + 1;
    if (node->height <= JSON_SCHEMA_CHAIN_MOST) return true;
    fault_set(fault, CO_TOOLARGE, "%s: more than %d schemas for one place of a document", path, JSON_SCHEMA_CHAIN_MOST);
    return false;
}

static bool measure_list(struct node *node, const struct nodes *list, unsigned depth, const char *path,
                         struct fault *fault) {
    for (size_t i = 0; i < list->count; i++) {
        if (!measure_below(node, list->items[i], depth, path, fault)) return false;
    }
    return true;
}

/* `path`: the reference that led here. */
static bool measure(struct node *node, unsigned depth, const char *path, struct fault *fault) {
    if (node->is_open) {
        fault_set(fault, CO_INVALID, "%s: leads back to itself", path);
        return false;
    }
    if (node->height) return true;
    if (depth > JSON_SCHEMA_CHAIN_MOST) {
        fault_set(fault, CO_TOOLARGE, "%s: more than %d schemas for one place of a document", path,
                  JSON_SCHEMA_CHAIN_MOST);
        return false;
    }
    node->is_open = true;
    node->height = 1;
    bool fine = node->ref ? measure_below(node, node->ref, depth, node->path, fault)
                          : measure_list(node, &node->all, depth, path, fault) &&
                                measure_list(node, &node->any, depth, path, fault) &&
                                measure_list(node, &node->one, depth, path, fault) &&
                                measure_below(node, node->not, depth, path, fault);
    node->is_open = false;
    return fine;
}

/* Works in the order of the text, not of addresses, so that every server reports the same fault. */
bool json_schema_resolve(struct places *places, struct json_object *json, struct fault *fault) {
    qsort(places->known, places->known_count, sizeof *places->known, by_json);
    for (size_t i = 0; i < places->reference_count; i++) {
        if (!resolve(places, json, &places->references[i], fault)) return false;
    }
    for (size_t i = 0; i < places->reference_count; i++) {
        struct node *node = places->references[i].from;
        if (!measure(node, 1, node->path, fault)) return false;
    }
    return true;
}
