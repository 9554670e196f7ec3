/* Schemas and places in words. */
#include "base/check.h"
#include "base/json_schema_inner.h"
#include "base/json_value.h"
#include "base/text.h"

#define PATH_MOST  80 /* so that a path, a description, a value and the words between them fit into a fault */
#define SHOWN_MOST 80

/* ---- places ---- */

static void show_key(struct buffer *out, const char *key) {
    for (; *key; key++) {
        if (*key == '~' || *key == '/') {
            buffer_append_text(out, *key == '~' ? "~0" : "~1");
        } else {
            buffer_append_byte(out, *key);
        }
    }
}

static void show_steps(struct buffer *out, const struct place *place) {
    if (!place->up) return;
    show_steps(out, place->up);
    buffer_append_byte(out, '/');
    if (place->key) {
        show_key(out, place->key);
    } else {
        buffer_append_u64(out, place->index);
    }
}

void json_place_show(struct buffer *out, const struct place *place) {
    struct buffer path = {0};
    if (!place->up) return;
    show_steps(&path, place);
    size_t start = path.size > PATH_MOST ? path.size - PATH_MOST : 0;
    while (start > 0 && start < path.size && (path.data[start] & 0xc0) == 0x80) start++;
    if (start) buffer_append_text(out, "...");
    buffer_append(out, path.data + start, path.size - start);
    buffer_free(&path);
}

/* ---- suggestions ---- */

void json_nearest_show(struct buffer *out, const struct suggest *suggest) {
    if (!suggest->count) return;
    buffer_append_text(out, " (nearest: ");
    json_text_show(out, suggest->found[0]);
    buffer_append_byte(out, ')');
}

/* ---- descriptions of schemas ---- */

static void show_number(struct buffer *out, const char *before, struct json_object *number) {
    if (!number) return;
    buffer_append_text(out, before);
    json_value_show(out, number);
}

static void show_bounds(struct buffer *out, const struct node *node) {
    show_number(out, " from ", node->minimum);
    show_number(out, node->minimum ? " to " : " up to ", node->maximum);
    if (node->minimum && !node->maximum) buffer_append_text(out, " on");
    show_number(out, " above ", node->above);
    show_number(out, " below ", node->below);
    show_number(out, " that is a multiple of ", node->multiple_of);
}

static void show_counts(struct buffer *out, uint64_t least, uint64_t most, const char *what) {
    unsigned long from = least, to = most;
    if (least == 0 && most == UINT64_MAX) return;
    if (least == most) {
        buffer_printf(out, " of %lu", to);
    } else if (most == UINT64_MAX) {
        buffer_printf(out, " of %lu or more", from);
    } else if (least == 0) {
        buffer_printf(out, " of at most %lu", to);
    } else {
        buffer_printf(out, " of %lu to %lu", from, to);
    }
    buffer_printf(out, " %s%s", what, most == 1 ? "" : "s");
}

static void show_required(struct buffer *out, const struct node *node) {
    for (size_t i = 0; i < node->required_count && out->size < SHOWN_MOST; i++) {
        buffer_append_text(out, i == 0 ? " with " : ", ");
        json_text_show(out, node->required[i].name);
    }
}

/* Appends a type, with the node's rules for values of this type. */
static void show_type(struct buffer *out, const struct node *node, unsigned bit) {
#define TYPE_SHOWN(name, shown) [TYPE_BIT_##name] = (shown),
    static const char *const names[] = {JSON_SCHEMA_TYPES(TYPE_SHOWN)};
#undef TYPE_SHOWN
    buffer_append_text(out, names[bit]);
    if (bit == TYPE_BIT_INTEGER || bit == TYPE_BIT_NUMBER) show_bounds(out, node);
    if (bit == TYPE_BIT_OBJECT) show_required(out, node);
    if (bit == TYPE_BIT_STRING) {
        show_counts(out, node->least_length, node->most_length, "character");
        if (node->pattern) {
            buffer_append_text(out, " that matches ");
            json_text_show(out, node->pattern_text);
        }
    }
    if (bit == TYPE_BIT_ARRAY) {
        show_counts(out, node->least_items, node->most_items, "item");
        if (node->unique) buffer_append_text(out, " without equal items");
    }
}

static unsigned bit_of(struct json_object *value) {
    switch (json_object_get_type(value)) {
        case json_type_null: return TYPE_BIT_NULL;
        case json_type_boolean: return TYPE_BIT_BOOLEAN;
        case json_type_int:
        case json_type_double: return TYPE_BIT_NUMBER;
        case json_type_string: return TYPE_BIT_STRING;
        case json_type_array: return TYPE_BIT_ARRAY;
        case json_type_object: return TYPE_BIT_OBJECT;
    }
    UNREACHABLE();
}

static bool has_bounds(const struct node *node, unsigned bit) {
    switch (bit) {
        case TYPE_BIT_NUMBER: return node->minimum || node->maximum || node->above || node->below || node->multiple_of;
        case TYPE_BIT_STRING: return node->least_length > 0 || node->most_length < UINT64_MAX || node->pattern;
        case TYPE_BIT_ARRAY: return node->least_items > 0 || node->most_items < UINT64_MAX || node->unique;
        case TYPE_BIT_OBJECT: return node->required_count > 0;
        default: return false;
    }
}

static void show_choices(struct buffer *out, struct json_object *choices) {
    size_t count = json_object_array_length(choices);
    if (count == 0) buffer_append_text(out, "nothing");
    if (count > 1) buffer_append_text(out, "one of ");
    for (size_t i = 0; i < count && out->size < SHOWN_MOST; i++) {
        if (i) buffer_append_text(out, ", ");
        json_value_show(out, json_object_array_get_idx(choices, i));
    }
}

static void show_types(struct buffer *out, const struct node *node) {
    const char *between = "";
    for (unsigned bit = 0; bit < TYPE_COUNT && out->size < SHOWN_MOST; bit++) {
        if (!(node->types & (1u << bit))) continue;
        buffer_append_text(out, between);
        show_type(out, node, bit);
        between = " or ";
    }
}

static void show(struct buffer *out, const struct node *node, struct json_object *value);

static void show_any(struct buffer *out, const struct nodes *nodes, struct json_object *value) {
    for (size_t i = 0; i < nodes->count && out->size < SHOWN_MOST; i++) {
        if (i) buffer_append_text(out, " or ");
        show(out, nodes->items[i], value);
    }
}

static void show(struct buffer *out, const struct node *node, struct json_object *value) {
    while (node->ref) node = node->ref;
    if (node->never) {
        buffer_append_text(out, "nothing");
    } else if (node->has_constant) {
        json_value_show(out, node->constant);
    } else if (node->choices) {
        show_choices(out, node->choices);
    } else if (node->types) {
        show_types(out, node);
    } else if (has_bounds(node, bit_of(value))) {
        show_type(out, node, bit_of(value));
    } else if (node->any.count || node->one.count) {
        show_any(out, node->any.count ? &node->any : &node->one, value);
    } else if (node->all.count) {
        show(out, node->all.items[0], value);
    } else if (node->not ) {
        buffer_append_text(out, "anything but ");
        show(out, node->not, value);
    } else {
        buffer_append_text(out, "any value");
    }
}

static void append_cut(struct buffer *out, struct buffer *text) {
    struct slice shown = utf8_cut(buffer_slice(text), SHOWN_MOST);
    buffer_append(out, shown.data, shown.size);
    if (shown.size < text->size) buffer_append_text(out, "...");
    buffer_free(text);
}

void json_schema_show(struct buffer *out, const struct node *node, struct json_object *value) {
    struct buffer text = {0};
    show(&text, node, value);
    append_cut(out, &text);
}

void json_schema_show_any(struct buffer *out, const struct nodes *nodes, struct json_object *value) {
    struct buffer text = {0};
    show_any(&text, nodes, value);
    append_cut(out, &text);
}
