/* A document against a schema. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_schema_internal.h"
#include "base/memory.h"
#include "base/pattern.h"
#include "base/text.h"

#define STEPS_MOST 2000000
#define PATH_MOST  160

/* A judgement under way. */
struct judge {
    const struct json_schema *schema;
    struct fault *fault; /* NULL: only whether it fits is asked */
    unsigned depth;
    uint64_t *steps;
    char *path; /* PATH_MOST bytes, NUL-terminated */
    int *error; /* CO_TOOLARGE: it takes too long */
};

static bool fits(const struct judge *judge, struct json_object *schema, struct json_object *value);

/* -- values ------------------------------------------------------------------------------------------------------- */

bool schema_is_number(struct json_object *value) {
    return json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double);
}

/* A long double has 64 bits where coord runs, so that all integers of JSON are exact. */
long double schema_number(struct json_object *value) {
    if (json_object_is_type(value, json_type_double)) return (long double)json_object_get_double(value);
    int64_t number = json_object_get_int64(value);
    return number < INT64_MAX ? (long double)number : (long double)json_object_get_uint64(value);
}

bool schema_is_whole(struct json_object *value) {
    if (json_object_is_type(value, json_type_int)) return true;
    double number = json_object_is_type(value, json_type_double) ? json_object_get_double(value) : 0.5;
    return isfinite(number) && floor(number) == number;
}

struct slice schema_text(struct json_object *value) {
    return slice_make(json_object_get_string(value), (size_t)json_object_get_string_len(value));
}

static bool same(struct json_object *a, struct json_object *b);

static bool same_arrays(struct json_object *a, struct json_object *b) {
    size_t count = json_object_array_length(a);
    bool equal = count == json_object_array_length(b);
    for (size_t i = 0; equal && i < count; i++)
        equal = same(json_object_array_get_idx(a, i), json_object_array_get_idx(b, i));
    return equal;
}

static bool same_objects(struct json_object *a, struct json_object *b) {
    if (json_object_object_length(a) != json_object_object_length(b)) return false;
    json_each(a, key, value) {
        struct json_object *other;
        if (!json_object_object_get_ex(b, key, &other) || !same(value, other)) return false;
    }
    return true;
}

static bool same(struct json_object *a, struct json_object *b) {
    if (schema_is_number(a) && schema_is_number(b)) return schema_number(a) == schema_number(b);
    if (json_object_get_type(a) != json_object_get_type(b)) return false;
    switch (json_object_get_type(a)) {
        case json_type_null: return true;
        case json_type_boolean: return json_object_get_boolean(a) == json_object_get_boolean(b);
        case json_type_string: return slice_equal(schema_text(a), schema_text(b));
        case json_type_array: return same_arrays(a, b);
        default: return same_objects(a, b);
    }
}

static size_t characters(struct slice text) {
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++) count += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return count;
}

/* -- faults ------------------------------------------------------------------------------------------------------- */

/* False, for `return refuse(...)`. */
static bool refuse(const struct judge *judge, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(const struct judge *judge, const char *format, ...) {
    char text[200];
    va_list arguments;
    if (!judge->fault) return false;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fault_set(judge->fault, CO_INVALID, "%s: %s", judge->path[0] ? judge->path : "the document", text);
    return false;
}

/* A value as a fault shows it. */
static const char *shown(struct json_object *value, char room[64]) {
    const char *text = json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);
    (void)snprintf(room, 64, strlen(text) > 60 ? "%.57s..." : "%s", text);
    return room;
}

/* -- keywords ----------------------------------------------------------------------------------------------------- */

static bool type_is(struct json_object *value, const char *name) {
    switch (json_object_get_type(value)) {
        case json_type_null: return strcmp(name, "null") == 0;
        case json_type_boolean: return strcmp(name, "boolean") == 0;
        case json_type_string: return strcmp(name, "string") == 0;
        case json_type_array: return strcmp(name, "array") == 0;
        case json_type_object: return strcmp(name, "object") == 0;
        default: return strcmp(name, "number") == 0 || (strcmp(name, "integer") == 0 && schema_is_whole(value));
    }
}

static bool type_fits(const struct judge *judge, struct json_object *rule, struct json_object *value) {
    char room[64];
    bool found = false;
    if (!json_object_is_type(rule, json_type_array)) found = type_is(value, json_object_get_string(rule));
    for (size_t i = 0; json_object_is_type(rule, json_type_array) && i < json_object_array_length(rule); i++)
        found = found || type_is(value, json_object_get_string(json_object_array_get_idx(rule, i)));
    return found || refuse(judge, "%s is wanted, not %s", shown(rule, room), json_kind(value));
}

static bool enum_fits(const struct judge *judge, struct json_object *rule, struct json_object *value) {
    char one[64], all[64];
    for (size_t i = 0; i < json_object_array_length(rule); i++)
        if (same(json_object_array_get_idx(rule, i), value)) return true;
    return refuse(judge, "%s is none of %s", shown(value, one), shown(rule, all));
}

static bool const_fits(const struct judge *judge, struct json_object *rule, struct json_object *value) {
    char one[64], other[64];
    return same(rule, value) || refuse(judge, "%s is not %s", shown(value, one), shown(rule, other));
}

static bool number_fits(const struct judge *judge, const char *keyword, struct json_object *rule,
                        struct json_object *value) {
    char one[64], bound[64];
    if (!schema_is_number(value)) return true;
    long double number = schema_number(value), limit = schema_number(rule);
    bool least = strstr(keyword, "inimum") != NULL, strict = keyword[0] == 'e';
    bool fine = least ? (strict ? number > limit : number >= limit) : (strict ? number < limit : number <= limit);
    return fine || refuse(judge, "%s is %s the %s, %s", shown(value, one),
                          strict  ? (least ? "not above" : "not below")
                          : least ? "below"
                                  : "above",
                          keyword, shown(rule, bound));
}

/* minLength, maxItems, ...: `count` of what. */
static bool count_fits(const struct judge *judge, const char *keyword, struct json_object *rule,
                       struct json_object *value) {
    static const struct {
        json_type type;
        const char *end, *what;
    } kinds[] = {{json_type_string, "Length", "characters"},
                 {json_type_array, "Items", "items"},
                 {json_type_object, "Properties", "properties"}};
    char bound[64];
    size_t kind = 0;
    while (strcmp(keyword + 3, kinds[kind].end) != 0) CHECK(++kind < ARRAY_COUNT(kinds));
    if (!json_object_is_type(value, kinds[kind].type)) return true;
    size_t count = kind == 0   ? characters(schema_text(value))
                   : kind == 1 ? json_object_array_length(value)
                               : (size_t)json_object_object_length(value);
    bool most = keyword[1] == 'a';
    bool fine = most ? (long double)count <= schema_number(rule) : (long double)count >= schema_number(rule);
    return fine || refuse(judge, "%zu %s: at %s %s are wanted", count, kinds[kind].what, most ? "most" : "least",
                          shown(rule, bound));
}

static bool pattern_fits(const struct judge *judge, struct json_object *rule, struct json_object *value) {
    char one[64], other[64];
    struct pattern *pattern;
    if (!json_object_is_type(value, json_type_string)) return true;
    if (pattern_new(schema_text(rule), &pattern, NULL) != CO_OK) return refuse(judge, "the schema's pattern is none");
    bool found = pattern_found(pattern, schema_text(value));
    pattern_free(pattern);
    return found || refuse(judge, "%s does not fit the pattern %s", shown(value, one), shown(rule, other));
}

/* The same one level deeper: at a member, or at an item. */
static bool fits_below(const struct judge *judge, struct json_object *schema, const char *name, size_t item,
                       struct json_object *value) {
    size_t size = strlen(judge->path);
    if (name) (void)snprintf(judge->path + size, PATH_MOST - size, "%s%s", size ? "." : "", name);
    else (void)snprintf(judge->path + size, PATH_MOST - size, "[%zu]", item);
    bool fine = fits(judge, schema, value);
    judge->path[size] = '\0';
    return fine;
}

static bool items_fit(const struct judge *judge, struct json_object *rule, struct json_object *value) {
    bool each = json_object_is_type(rule, json_type_array), fine = true;
    size_t count = json_object_is_type(value, json_type_array) ? json_object_array_length(value) : 0;
    if (each && json_object_array_length(rule) < count) count = json_object_array_length(rule);
    for (size_t i = 0; fine && i < count; i++)
        fine = fits_below(judge, each ? json_object_array_get_idx(rule, i) : rule, NULL, i,
                          json_object_array_get_idx(value, i));
    return fine;
}

static bool properties_fit(const struct judge *judge, struct json_object *rule, struct json_object *value) {
    if (!json_object_is_type(value, json_type_object)) return true;
    json_each(rule, name, schema) {
        struct json_object *member;
        if (!json_object_object_get_ex(value, name, &member)) continue;
        if (!fits_below(judge, schema, name, 0, member)) return false;
    }
    return true;
}

static bool required_fits(const struct judge *judge, struct json_object *rule, struct json_object *value) {
    if (!json_object_is_type(value, json_type_object)) return true;
    for (size_t i = 0; i < json_object_array_length(rule); i++) {
        const char *name = json_object_get_string(json_object_array_get_idx(rule, i));
        if (!json_object_object_get_ex(value, name, NULL)) return refuse(judge, "\"%.80s\" is missing", name);
    }
    return true;
}

static bool others_fit(const struct judge *judge, struct json_object *schema, struct json_object *rule,
                       struct json_object *value) {
    struct json_object *known = NULL;
    if (!json_object_is_type(value, json_type_object)) return true;
    (void)json_object_object_get_ex(schema, "properties", &known);
    json_each(value, name, member) {
        if (known && json_object_object_get_ex(known, name, NULL)) continue;
        if (json_object_is_type(rule, json_type_boolean) && !json_object_get_boolean(rule))
            return refuse(judge, "\"%.80s\" is not one of its properties", name);
        if (!fits_below(judge, rule, name, 0, member)) return false;
    }
    return true;
}

/* Of the schemas in the list: how many it fits. A single one says itself what is wrong. */
static size_t fitting(const struct judge *judge, struct json_object *rule, struct json_object *value) {
    struct judge quiet = *judge;
    size_t count = 0;
    if (json_object_array_length(rule) > 1) quiet.fault = NULL;
    for (size_t i = 0; i < json_object_array_length(rule); i++)
        count += fits(&quiet, json_object_array_get_idx(rule, i), value);
    return count;
}

static bool all_fit(const struct judge *judge, struct json_object *rule, struct json_object *value) {
    for (size_t i = 0; i < json_object_array_length(rule); i++)
        if (!fits(judge, json_object_array_get_idx(rule, i), value)) return false;
    return true;
}

static bool not_fits(const struct judge *judge, struct json_object *rule, struct json_object *value) {
    struct judge quiet = *judge;
    quiet.fault = NULL;
    return !fits(&quiet, rule, value) || refuse(judge, "it fits what \"not\" excludes");
}

static bool keyword_fits(const struct judge *judge, struct json_object *schema, const char *keyword,
                         struct json_object *rule, struct json_object *value) {
    if (strcmp(keyword, "type") == 0) return type_fits(judge, rule, value);
    if (strcmp(keyword, "enum") == 0) return enum_fits(judge, rule, value);
    if (strcmp(keyword, "const") == 0) return const_fits(judge, rule, value);
    if (strcmp(keyword, "pattern") == 0) return pattern_fits(judge, rule, value);
    if (strcmp(keyword, "items") == 0) return items_fit(judge, rule, value);
    if (strcmp(keyword, "properties") == 0) return properties_fit(judge, rule, value);
    if (strcmp(keyword, "required") == 0) return required_fits(judge, rule, value);
    if (strcmp(keyword, "additionalProperties") == 0) return others_fit(judge, schema, rule, value);
    if (strcmp(keyword, "allOf") == 0) return all_fit(judge, rule, value);
    if (strcmp(keyword, "not") == 0) return not_fits(judge, rule, value);
    if (strcmp(keyword, "anyOf") == 0)
        return fitting(judge, rule, value) > 0 || refuse(judge, "it fits none of \"anyOf\"");
    if (strcmp(keyword, "oneOf") == 0) {
        size_t count = fitting(judge, rule, value);
        return count == 1 || refuse(judge, "it fits %zu of \"oneOf\", not one", count);
    }
    if (strstr(keyword, "inimum") || strstr(keyword, "aximum")) return number_fits(judge, keyword, rule, value);
    if (strncmp(keyword, "min", 3) == 0 || strncmp(keyword, "max", 3) == 0)
        return count_fits(judge, keyword, rule, value);
    return true; /* it says nothing about documents */
}

/* -- references --------------------------------------------------------------------------------------------------- */

/* One part of a JSON pointer: "a~1b" is "a/b". */
static void unescape(char *part) {
    char *out = part;
    for (const char *at = part; *at; at++) {
        *out++ = at[0] == '~' && at[1] == '1' ? '/' : at[0];
        if (at[0] == '~' && (at[1] == '0' || at[1] == '1')) at++;
    }
    *out = '\0';
}

/* False: it leads nowhere. */
bool schema_follow(struct json_object *root, const char *reference, struct json_object **out) {
    char *text = mem_alloc(strlen(reference) + 1);
    size_t size;
    bool found = reference[0] == '#' && percent_decode(slice_text(reference + 1), false, text, &size) == CO_OK;
    if (found) text[size] = '\0', found = !text[0] || text[0] == '/';
    *out = root;
    for (char *part = text; found && *part;) {
        char *next = strchr(++part, '/'), *end;
        if (next) *next = '\0';
        unescape(part);
        unsigned long item = strtoul(part, &end, 10);
        if (json_object_is_type(*out, json_type_array)) {
            found = *part && !*end && item < json_object_array_length(*out);
            if (found) *out = json_object_array_get_idx(*out, item);
        } else {
            found = json_object_is_type(*out, json_type_object) && json_object_object_get_ex(*out, part, out);
        }
        if (next) *next = '/';
        part = next ? next : part + strlen(part);
        if (!next) break;
    }
    free(text);
    return found;
}

static bool fits(const struct judge *judge, struct json_object *schema, struct json_object *value) {
    struct json_object *reference, *target;
    struct judge deeper = *judge;
    if (*judge->error) return false;
    if (++*judge->steps > STEPS_MOST || ++deeper.depth > SCHEMA_DEPTH_MOST) {
        *judge->error = CO_TOOLARGE;
        return false;
    }
    if (json_object_is_type(schema, json_type_boolean))
        return json_object_get_boolean(schema) || refuse(judge, "nothing is allowed here");
    if (json_object_object_get_ex(schema, "$ref", &reference)) {
        CHECK(schema_follow(judge->schema->root, json_object_get_string(reference), &target)); /* as it was checked */
        return fits(&deeper, target, value);
    }
    json_each(schema, keyword, rule) {
        if (!keyword_fits(&deeper, schema, keyword, rule, value)) return false;
    }
    return true;
}

int json_schema_check(const struct json_schema *schema, struct json_object *document, struct fault *fault) {
    uint64_t steps = 0;
    int error = CO_OK;
    char path[PATH_MOST] = "";
    struct fault wrong = {0};
    struct judge judge = {.schema = schema, .fault = &wrong, .steps = &steps, .path = path, .error = &error};
    bool fine = fits(&judge, schema->root, document);
    if (error) return fault_set(fault, error, "the schema takes too many steps for this document");
    if (fine) return CO_OK;
    return fault_set(fault, CO_INVALID, "%s", wrong.code ? wrong.text : "the document does not fit the schema");
}

void json_schema_free(struct json_schema *schema) {
    if (!schema) return;
    json_object_put(schema->root);
    free(schema);
}
