/* From JSON to nodes, one for each schema within the schema. References are resolved at the end, when all places are
 * known; then it is made sure that none leads back to itself without going into the document. */
#include "base/json_schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/json_schema_inner.h"
#include "base/json_value.h"
#include "base/text.h"

#define DEPTH_MOST   64 /* as json_parse has it */
#define VALUE_WEIGHT 16

struct compiling {
    struct json_schema *schema;
    struct arena *arena;
    struct fault *fault;
    bool is_draft_7; /* its "$schema" says so */
    size_t weight, pattern_weight;
    struct places places;
};

/* ---- faults ---- */

static __attribute__((format(printf, 4, 5))) bool refuse(struct compiling *c, int code, const struct place *place,
                                                         const char *format, ...) {
    struct buffer path = {0};
    va_list arguments;
    char what[200];
    buffer_append_byte(&path, '#');
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    json_place_show(&path, place);
    fault_set(c->fault, code, "%.*s: %s", (int)path.size, path.data, what);
    buffer_free(&path);
    return false;
}

static bool wanted(struct compiling *c, const struct place *place, const char *what, struct json_object *value) {
    struct buffer shown = {0};
    json_value_show(&shown, value);
    refuse(c, CO_INVALID, place, "%s is wanted, not %.*s", what, (int)shown.size, shown.data);
    buffer_free(&shown);
    return false;
}

/* ---- values of keywords ---- */

static struct node *compile(struct compiling *c, struct json_object *json, const struct place *place);

/* Reads a keyword's value into the node; `field` is the member of the node that the table names. */
typedef bool read_keyword(struct compiling *c, struct node *node, void *field, struct json_object *value,
                          const struct place *place);

static bool read_nothing(struct compiling *c, struct node *node, void *field, struct json_object *value,
                         const struct place *place) {
    (void)c, (void)node, (void)field, (void)value, (void)place;
    return true;
}

static bool read_number(struct compiling *c, struct node *node, void *field, struct json_object *value,
                        const struct place *place) {
    (void)node;
    if (!json_is_number(value)) return wanted(c, place, "a number", value);
    if (!isfinite(json_object_get_double(value)))
        return wanted(c, place, "a number within the range of doubles", value);
    *(struct json_object **)field = value;
    return true;
}

static bool read_divisor(struct compiling *c, struct node *node, void *field, struct json_object *value,
                         const struct place *place) {
    if (!read_number(c, node, field, value, place)) return false;
    return json_object_get_double(value) > 0 || wanted(c, place, "a number above 0", value);
}

static bool read_count(struct compiling *c, struct node *node, void *field, struct json_object *value,
                       const struct place *place) {
    (void)node;
    return json_is_count(value, field) || wanted(c, place, "a whole number from 0 on", value);
}

static bool read_bool(struct compiling *c, struct node *node, void *field, struct json_object *value,
                      const struct place *place) {
    (void)node;
    if (!json_object_is_type(value, json_type_boolean)) return wanted(c, place, "a boolean", value);
    *(bool *)field = json_object_get_boolean(value);
    return true;
}

static bool read_constant(struct compiling *c, struct node *node, void *field, struct json_object *value,
                          const struct place *place) {
    (void)c, (void)field, (void)place;
    node->constant = value;
    return node->has_constant = true;
}

static bool read_choices(struct compiling *c, struct node *node, void *field, struct json_object *value,
                         const struct place *place) {
    (void)node;
    if (!json_object_is_type(value, json_type_array)) return wanted(c, place, "an array", value);
    *(struct json_object **)field = value;
    return true;
}

static bool add_type(struct compiling *c, struct node *node, struct json_object *value, const struct place *place) {
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    _Static_assert(ARRAY_COUNT(names) == TYPE_COUNT, "one for each bit");
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (!json_object_is_type(value, json_type_string) || !slice_is(json_text(value), names[i])) continue;
        node->types |= (uint8_t)(1u << i);
        return true;
    }
    return wanted(c, place, "null, boolean, integer, number, string, array or object", value);
}

static bool read_type(struct compiling *c, struct node *node, void *field, struct json_object *value,
                      const struct place *place) {
    (void)field;
    if (!json_object_is_type(value, json_type_array)) return add_type(c, node, value, place);
    size_t count = json_object_array_length(value);
    for (size_t i = 0; i < count; i++) {
        if (!add_type(c, node, json_object_array_get_idx(value, i), &PLACE_ITEM(place, i))) return false;
    }
    return count > 0 || wanted(c, place, "at least one type", value);
}

static bool read_required(struct compiling *c, struct node *node, void *field, struct json_object *value,
                          const struct place *place) {
    (void)field;
    if (!json_object_is_type(value, json_type_array)) return wanted(c, place, "an array of names", value);
    size_t count = json_object_array_length(value);
    node->required = arena_zalloc(c->arena, (count + 1) * sizeof *node->required);
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_array_get_idx(value, i);
        const struct place here = PLACE_ITEM(place, i);
        if (!json_object_is_type(item, json_type_string)) return wanted(c, &here, "a string", item);
        struct slice name = json_text(item);
        if (memchr(name.data, '\0', name.size)) return refuse(c, CO_INVALID, &here, "holds a NUL character");
        node->required[node->required_count++].name = name;
    }
    return true;
}

static struct pattern *compile_pattern(struct compiling *c, struct slice text, const struct place *place) {
    struct fault fault = {0};
    struct pattern *pattern = pattern_compile(c->arena, text, &fault);
    if (!pattern) {
        refuse(c, fault.code, place, "%s", fault.text);
        return NULL;
    }
    c->pattern_weight += pattern_weight(pattern);
    if (c->pattern_weight <= JSON_SCHEMA_PATTERNS_MOST) return pattern;
    refuse(c, CO_TOOLARGE, place, "all patterns together are too large");
    return NULL;
}

static bool read_pattern(struct compiling *c, struct node *node, void *field, struct json_object *value,
                         const struct place *place) {
    (void)field;
    if (!json_object_is_type(value, json_type_string)) return wanted(c, place, "a string", value);
    node->pattern_text = json_text(value);
    node->pattern = compile_pattern(c, node->pattern_text, place);
    return node->pattern != NULL;
}

static bool read_node(struct compiling *c, struct node *node, void *field, struct json_object *value,
                      const struct place *place) {
    (void)node;
    *(struct node **)field = compile(c, value, place);
    return *(struct node **)field != NULL;
}

static bool read_nodes(struct compiling *c, struct node *node, void *field, struct json_object *value,
                       const struct place *place) {
    (void)node;
    if (!json_object_is_type(value, json_type_array)) return wanted(c, place, "an array of schemas", value);
    struct nodes *nodes = field;
    size_t count = json_object_array_length(value);
    nodes->items = arena_zalloc(c->arena, (count + 1) * sizeof(struct node *));
    for (; nodes->count < count; nodes->count++) {
        struct json_object *item = json_object_array_get_idx(value, nodes->count);
        nodes->items[nodes->count] = compile(c, item, &PLACE_ITEM(place, nodes->count));
        if (!nodes->items[nodes->count]) return false;
    }
    return true;
}

static bool read_alternatives(struct compiling *c, struct node *node, void *field, struct json_object *value,
                              const struct place *place) {
    if (!read_nodes(c, node, field, value, place)) return false;
    return ((struct nodes *)field)->count > 0 || wanted(c, place, "at least one schema", value);
}

static bool read_items(struct compiling *c, struct node *node, void *field, struct json_object *value,
                       const struct place *place) {
    if (json_object_is_type(value, json_type_array)) return read_nodes(c, node, &node->first_items, value, place);
    return read_node(c, node, field, value, place);
}

static bool read_members(struct compiling *c, struct node *node, void *field, struct json_object *value,
                         const struct place *place) {
    (void)node;
    if (!json_object_is_type(value, json_type_object)) return wanted(c, place, "an object of schemas", value);
    struct members *members = field;
    members->items = arena_zalloc(c->arena, ((size_t)json_object_object_length(value) + 1) * sizeof *members->items);
    json_each(value, key, schema) {
        struct member *member = &members->items[members->count++];
        member->name = slice_text(key);
        member->node = compile(c, schema, &PLACE_KEY(place, key));
        if (!member->node) return false;
    }
    return true;
}

static bool read_properties(struct compiling *c, struct node *node, void *field, struct json_object *value,
                            const struct place *place) {
    node->properties = value;
    return read_members(c, node, field, value, place);
}

static bool read_pattern_members(struct compiling *c, struct node *node, void *field, struct json_object *value,
                                 const struct place *place) {
    if (!read_members(c, node, field, value, place)) return false;
    struct members *members = field;
    for (size_t i = 0; i < members->count; i++) {
        struct member *member = &members->items[i];
        member->pattern = compile_pattern(c, member->name, &PLACE_KEY(place, member->name.data));
        if (!member->pattern) return false;
    }
    return true;
}

/* Only references lead into "definitions", so it is not compiled as part of the node. */
static bool read_definitions(struct compiling *c, struct node *node, void *field, struct json_object *value,
                             const struct place *place) {
    (void)field;
    struct members members = {0};
    return read_members(c, node, &members, value, place);
}

static bool read_id(struct compiling *c, struct node *node, void *field, struct json_object *value,
                    const struct place *place) {
    (void)node, (void)field, (void)value;
    return place->depth == 1 || refuse(c, CO_INVALID, place, "\"$id\" is supported at the root only");
}

static bool read_reference(struct compiling *c, struct node *node, void *field, struct json_object *value,
                           const struct place *place) {
    (void)field;
    if (!json_object_is_type(value, json_type_string)) return wanted(c, place, "a string", value);
    struct slice text = json_text(value);
    if (!slice_is(text, "#") && !slice_starts(text, SLICE_LITERAL("#/"))) {
        return wanted(c, place, "a reference within this document (\"#\" or \"#/...\")", value);
    }
    struct buffer path = {0};
    buffer_append_byte(&path, '#');
    json_place_show(&path, place);
    node->path = arena_strndup(c->arena, path.data, path.size);
    buffer_free(&path);
    c->places.references[c->places.reference_count++] =
        (struct reference){node, slice_make(text.data + 1, text.size - 1)};
    return true;
}

/* ---- keywords ---- */

#define FIELD(name) offsetof(struct node, name)

static const struct keyword {
    const char *name;
    read_keyword *read;
    size_t field;
    bool beside_ref; /* draft 7 and later ones agree on what it means there */
} keywords[] = {
    {"$ref", read_reference, 0, true},
    {"$schema", read_nothing, 0, true},
    {"$id", read_id, 0, true},
    {"$comment", read_nothing, 0, true},
    {"title", read_nothing, 0, true},
    {"description", read_nothing, 0, true},
    {"default", read_nothing, 0, true},
    {"examples", read_nothing, 0, true},
    {"definitions", read_definitions, 0, true},
    {"$defs", read_definitions, 0, true},
    {"type", read_type, 0, false},
    {"enum", read_choices, FIELD(choices), false},
    {"const", read_constant, 0, false},
    {"minimum", read_number, FIELD(minimum), false},
    {"maximum", read_number, FIELD(maximum), false},
    {"exclusiveMinimum", read_number, FIELD(above), false},
    {"exclusiveMaximum", read_number, FIELD(below), false},
    {"multipleOf", read_divisor, FIELD(multiple_of), false},
    {"minLength", read_count, FIELD(least_length), false},
    {"maxLength", read_count, FIELD(most_length), false},
    {"pattern", read_pattern, 0, false},
    {"minItems", read_count, FIELD(least_items), false},
    {"maxItems", read_count, FIELD(most_items), false},
    {"uniqueItems", read_bool, FIELD(unique), false},
    {"items", read_items, FIELD(each_item), false},
    {"required", read_required, 0, false},
    {"properties", read_properties, FIELD(members), false},
    {"patternProperties", read_pattern_members, FIELD(pattern_members), false},
    {"additionalProperties", read_node, FIELD(other_members), false},
    {"allOf", read_alternatives, FIELD(all), false},
    {"anyOf", read_alternatives, FIELD(any), false},
    {"oneOf", read_alternatives, FIELD(one), false},
    {"not", read_node, FIELD(not ), false},
};

static const struct keyword *keyword_find(const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(keywords); i++) {
        if (strcmp(keywords[i].name, name) == 0) return &keywords[i];
    }
    return NULL;
}

static bool unknown_keyword(struct compiling *c, const char *name, const struct place *place) {
    struct suggest nearest = suggest_for(slice_text(name));
    for (size_t i = 0; i < ARRAY_COUNT(keywords); i++) suggest_try(&nearest, slice_text(keywords[i].name));
    struct buffer shown = {0};
    json_text_show(&shown, slice_text(name));
    buffer_append_text(&shown, " is no keyword that is supported");
    json_nearest_show(&shown, &nearest);
    refuse(c, CO_INVALID, place, "%.*s", (int)shown.size, shown.data);
    buffer_free(&shown);
    return false;
}

static bool compile_members(struct compiling *c, struct node *node, struct json_object *json,
                            const struct place *place) {
    bool has_ref = json_object_object_get_ex(json, "$ref", NULL);
    json_each(json, key, value) {
        const struct keyword *keyword = keyword_find(key);
        if (!keyword) return unknown_keyword(c, key, place);
        if (has_ref && !keyword->beside_ref && !c->is_draft_7) {
            return refuse(c, CO_INVALID, place,
                          "\"%s\" beside \"$ref\": draft 7 ignores it, later drafts do not; use \"allOf\", or name "
                          "draft 7 in \"$schema\"",
                          key);
        }
        void *field = (char *)node + keyword->field;
        if (!keyword->read(c, node, field, value, &PLACE_KEY(place, key))) return false;
    }
    return true;
}

static struct node *compile(struct compiling *c, struct json_object *json, const struct place *place) {
    if (c->places.known_count == JSON_SCHEMA_NODES_MOST) {
        refuse(c, CO_TOOLARGE, place, "more than %d schemas within one", JSON_SCHEMA_NODES_MOST);
        return NULL;
    }
    struct node *node = arena_zalloc(c->arena, sizeof *node);
    node->most_length = node->most_items = UINT64_MAX;
    c->places.known[c->places.known_count++] = (struct known){json, node};
    if (json_object_is_type(json, json_type_boolean)) {
        node->never = !json_object_get_boolean(json);
    } else if (!json_object_is_type(json, json_type_object)) {
        wanted(c, place, "a schema (an object or a boolean)", json);
        return NULL;
    } else if (!compile_members(c, node, json, place)) {
        return NULL;
    }
    return node;
}

/* ---- the whole ---- */

/* Adds up the size of the schema, before anything is compiled. */
static bool weigh(struct compiling *c, struct json_object *json, unsigned depth) {
    c->weight += VALUE_WEIGHT;
    if (json_object_is_type(json, json_type_string)) c->weight += json_text(json).size;
    if (c->weight > JSON_SCHEMA_BYTES_MOST || depth > DEPTH_MOST) {
        fault_set(c->fault, CO_TOOLARGE, "#: the schema is %s", depth > DEPTH_MOST ? "nested too deeply" : "too large");
        return false;
    }
    if (json_object_is_type(json, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(json); i++) {
            if (!weigh(c, json_object_array_get_idx(json, i), depth + 1)) return false;
        }
    } else if (json_object_is_type(json, json_type_object)) {
        json_each(json, key, value) {
            c->weight += strlen(key);
            if (!weigh(c, value, depth + 1)) return false;
        }
    }
    return true;
}

static bool names_draft_7(struct json_object *json) {
    struct json_object *draft;
    if (!json_object_is_type(json, json_type_object) || !json_object_object_get_ex(json, "$schema", &draft))
        return false;
    return json_object_is_type(draft, json_type_string) &&
           (slice_starts(json_text(draft), SLICE_LITERAL("http://json-schema.org/draft-07/schema")) ||
            slice_starts(json_text(draft), SLICE_LITERAL("https://json-schema.org/draft-07/schema")));
}

static bool compile_all(struct compiling *c) {
    const struct place root = {0};
    if (!weigh(c, c->schema->json, 0)) return false;
    c->is_draft_7 = names_draft_7(c->schema->json);
    c->schema->root = compile(c, c->schema->json, &root);
    return c->schema->root && json_schema_resolve(&c->places, c->schema->json, c->fault);
}

struct json_schema *json_schema_compile(struct json_object *json, struct fault *fault) {
    struct fault own = {0};
    struct json_schema *schema = mem_zalloc(sizeof *schema);
    schema->json = json_object_get(json);
    struct compiling c = {.schema = schema, .arena = &schema->arena, .fault = &own};
    c.places.known = mem_alloc(JSON_SCHEMA_NODES_MOST * sizeof *c.places.known);
    c.places.references = mem_alloc(JSON_SCHEMA_NODES_MOST * sizeof *c.places.references);
    bool fine = compile_all(&c);
    free(c.places.known);
    free(c.places.references);
    if (fine) return schema;
    fault_set(fault, own.code, "%s", own.text);
    json_schema_free(schema);
    return NULL;
}

void json_schema_free(struct json_schema *schema) {
    if (!schema) return;
    arena_free(&schema->arena);
    json_object_put(schema->json);
    free(schema);
}
