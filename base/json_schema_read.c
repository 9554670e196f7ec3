/* A schema is read: every keyword is known, and has the form that it needs. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_schema_internal.h"
#include "base/memory.h"
#include "base/pattern.h"

/* -- the schema itself -------------------------------------------------------------------------------------------- */

enum form {
    FORM_ANY,
    FORM_SCHEMA,
    FORM_ITEMS,   /* a schema, or a list of them */
    FORM_SCHEMAS, /* a list of them */
    FORM_NAMED,   /* by names */
    FORM_TYPE,
    FORM_LIST,
    FORM_TEXTS,
    FORM_NUMBER,
    FORM_COUNT,
    FORM_PATTERN,
    FORM_REFERENCE
};
static const struct {
    const char *name;
    enum form form;
} keywords[] = {
    {"type", FORM_TYPE},           {"enum", FORM_LIST},
    {"const", FORM_ANY},           {"minimum", FORM_NUMBER},
    {"maximum", FORM_NUMBER},      {"exclusiveMinimum", FORM_NUMBER},
    {"minLength", FORM_COUNT},     {"exclusiveMaximum", FORM_NUMBER},
    {"maxLength", FORM_COUNT},     {"pattern", FORM_PATTERN},
    {"items", FORM_ITEMS},         {"minItems", FORM_COUNT},
    {"maxItems", FORM_COUNT},      {"properties", FORM_NAMED},
    {"required", FORM_TEXTS},      {"additionalProperties", FORM_SCHEMA},
    {"minProperties", FORM_COUNT}, {"maxProperties", FORM_COUNT},
    {"allOf", FORM_SCHEMAS},       {"anyOf", FORM_SCHEMAS},
    {"oneOf", FORM_SCHEMAS},       {"not", FORM_SCHEMA},
    {"$ref", FORM_REFERENCE},      {"definitions", FORM_NAMED},
    {"$defs", FORM_NAMED},         {"title", FORM_ANY},
    {"description", FORM_ANY},     {"default", FORM_ANY},
    {"examples", FORM_ANY},        {"$comment", FORM_ANY},
    {"$schema", FORM_ANY},
};

/* `schemas`: all that were read as one, `targets`: where references lead, which have to be among them. */
struct found {
    struct json_object **schemas, **targets;
    size_t schema_count, target_count;
};
struct reader {
    struct json_object *root;
    unsigned depth;
    struct found *found;
    struct fault *fault;
};

static void found_add(struct json_object ***list, size_t *count, struct json_object *item) {
    if ((*count & (*count - 1)) == 0) *list = mem_realloc(*list, (*count ? 2 * *count : 1) * sizeof **list);
    (*list)[(*count)++] = item;
}

static int schema_read(const struct reader *reader, struct json_object *schema, const char *where);

static int wrong(const struct reader *reader, const char *where, const char *what) {
    return fault_set(reader->fault, CO_INVALID, "schema: %.100s: %s", where, what);
}

static int schemas_read(const struct reader *reader, struct json_object *list, const char *where, bool some) {
    if (!json_object_is_type(list, json_type_array)) return wrong(reader, where, "a list of schemas is wanted");
    if (some && json_object_array_length(list) == 0) return wrong(reader, where, "the list is empty");
    int rv = CO_OK;
    for (size_t i = 0; rv == CO_OK && i < json_object_array_length(list); i++)
        rv = schema_read(reader, json_object_array_get_idx(list, i), where);
    return rv;
}

static int named_read(const struct reader *reader, struct json_object *object, const char *where) {
    int rv = CO_OK;
    if (!json_object_is_type(object, json_type_object)) return wrong(reader, where, "an object is wanted");
    json_each(object, name, schema) {
        char below[120];
        (void)snprintf(below, sizeof below, "%.60s/%.50s", where, name);
        if (rv == CO_OK) rv = schema_read(reader, schema, below);
    }
    return rv;
}

static bool is_type_name(struct json_object *value) {
    static const char *const names[] = {"null", "boolean", "object", "array", "number", "string", "integer"};
    for (size_t i = 0; json_object_is_type(value, json_type_string) && i < ARRAY_COUNT(names); i++)
        if (slice_is(schema_text(value), names[i])) return true;
    return false;
}

static int texts_read(const struct reader *reader, struct json_object *list, const char *where, bool types) {
    bool fine = json_object_is_type(list, json_type_array);
    for (size_t i = 0; fine && i < json_object_array_length(list); i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        fine = types ? is_type_name(item) : json_object_is_type(item, json_type_string);
    }
    return fine ? CO_OK : wrong(reader, where, types ? "names of types are wanted" : "a list of names is wanted");
}

static int pattern_read(const struct reader *reader, struct json_object *rule, const char *where) {
    struct pattern *pattern;
    struct fault fault = {0};
    if (!json_object_is_type(rule, json_type_string)) return wrong(reader, where, "text is wanted");
    if (pattern_new(schema_text(rule), &pattern, &fault) != CO_OK) return wrong(reader, where, fault.text);
    pattern_free(pattern);
    return CO_OK;
}

static int reference_read(const struct reader *reader, struct json_object *rule, const char *where) {
    struct json_object *target;
    if (!json_object_is_type(rule, json_type_string)) return wrong(reader, where, "text is wanted");
    const char *text = json_object_get_string(rule);
    if (text[0] != '#') return wrong(reader, where, "only places in the schema itself, as in \"#/definitions/port\"");
    if (!schema_follow(reader->root, text, &target)) return wrong(reader, where, "it leads nowhere");
    found_add(&reader->found->targets, &reader->found->target_count, target);
    return CO_OK;
}

static int rule_read(const struct reader *reader, enum form form, struct json_object *rule, const char *where) {
    switch (form) {
        case FORM_ANY: return CO_OK;
        case FORM_SCHEMA: return schema_read(reader, rule, where);
        case FORM_ITEMS:
            return json_object_is_type(rule, json_type_array) ? schemas_read(reader, rule, where, false)
                                                              : schema_read(reader, rule, where);
        case FORM_SCHEMAS: return schemas_read(reader, rule, where, true);
        case FORM_NAMED: return named_read(reader, rule, where);
        case FORM_TYPE: return is_type_name(rule) ? CO_OK : texts_read(reader, rule, where, true);
        case FORM_LIST:
            return json_object_is_type(rule, json_type_array) ? CO_OK : wrong(reader, where, "a list is wanted");
        case FORM_TEXTS: return texts_read(reader, rule, where, false);
        case FORM_NUMBER: return schema_is_number(rule) ? CO_OK : wrong(reader, where, "a number is wanted");
        case FORM_COUNT:
            return schema_is_number(rule) && schema_is_whole(rule) && schema_number(rule) >= 0
                       ? CO_OK
                       : wrong(reader, where, "a whole number from 0 on is wanted");
        case FORM_PATTERN: return pattern_read(reader, rule, where);
        case FORM_REFERENCE: return reference_read(reader, rule, where);
    }
    return CO_OK;
}

static int schema_read(const struct reader *reader, struct json_object *schema, const char *where) {
    struct reader deeper = *reader;
    bool only_reference =
        json_object_is_type(schema, json_type_object) &&
        json_object_object_get_ex(schema, "$ref", NULL); /* draft 7: what is beside it is passed over */
    found_add(&reader->found->schemas, &reader->found->schema_count, schema);
    if (json_object_is_type(schema, json_type_boolean)) return CO_OK;
    if (!json_object_is_type(schema, json_type_object))
        return wrong(reader, where, "a schema is an object, true or false");
    if (++deeper.depth > SCHEMA_DEPTH_MOST) return wrong(reader, where, "it is too deep");
    json_each(schema, keyword, rule) {
        char below[120];
        size_t i = 0;
        (void)snprintf(below, sizeof below, "%.60s%s%.50s", where, where[0] ? "/" : "", keyword);
        while (i < ARRAY_COUNT(keywords) && strcmp(keywords[i].name, keyword) != 0) i++;
        if (i == ARRAY_COUNT(keywords)) return wrong(reader, below, "this keyword is not supported");
        if (only_reference && keywords[i].form != FORM_REFERENCE && keywords[i].form != FORM_NAMED) continue;
        int rv = rule_read(&deeper, keywords[i].form, rule, below);
        if (rv != CO_OK) return rv;
    }
    return CO_OK;
}

/* What was not read as a schema may have any form. */
static void targets_check(const struct reader *reader) {
    const struct found *found = reader->found;
    for (size_t i = 0; i < found->target_count; i++) {
        bool known = false;
        for (size_t j = 0; j < found->schema_count && !known; j++) known = found->schemas[j] == found->targets[i];
        if (!known) (void)wrong(reader, "$ref", "it leads to what is no schema");
    }
}

int json_schema_new(struct slice text, struct json_schema **out, struct fault *fault) {
    struct fault found = {0};
    struct json_schema *schema = mem_zalloc(sizeof *schema);
    *out = NULL;
    schema->root = json_parse(text, &found);
    if (!found.code) json_refuse_duplicates(text, &found);
    struct found places = {0};
    struct reader reader = {schema->root, 0, &places, &found};
    if (!found.code) (void)schema_read(&reader, schema->root, "");
    if (!found.code) targets_check(&reader);
    free(places.schemas);
    free(places.targets);
    if (found.code) {
        json_schema_free(schema);
        return fault_set(fault, found.code, "%s", found.text);
    }
    *out = schema;
    return CO_OK;
}
