/* The JSON Schema Test Suite for draft 7, as Debian 12 packages it. Its groups are a schema and documents each. Every group
 * is compiled: one that is taken judges all its documents as the suite says, one that is not is refused for the reason
 * that stands here. The drafts differ in what stands beside $ref, so each schema is told that it is of draft 7. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/json_schema.h"
#include "base/memory.h"

#define SUITE "/usr/share/json-schema-test-suite/tests/draft7"

/* Files of keywords that are not supported, and single groups. */
static const struct exception {
    const char *file, *group, *reason;
} exceptions[] = {
    {"additionalItems.json", NULL, "\"additionalItems\" is no keyword that is supported"},
    {"contains.json", NULL, "\"contains\" is no keyword that is supported"},
    {"dependencies.json", NULL, "\"dependencies\" is no keyword that is supported"},
    {"if-then-else.json", "ignore if without then or else", "\"if\" is no keyword that is supported"},
    {"if-then-else.json", "ignore then without if", "\"then\" is no keyword that is supported"},
    {"if-then-else.json", "ignore else without if", "\"else\" is no keyword that is supported"},
    {"if-then-else.json", NULL, "\"if\" is no keyword that is supported"},
    {"maxProperties.json", NULL, "\"maxProperties\" is no keyword that is supported"},
    {"minProperties.json", NULL, "\"minProperties\" is no keyword that is supported"},
    {"propertyNames.json", NULL, "\"propertyNames\" is no keyword that is supported"},
    /* beyond the document */
    {"definitions.json", NULL, "a reference within this document"},
    {"ref.json", "remote ref, containing refs itself", "a reference within this document"},
    {"ref.json", "Recursive references between schemas", "a reference within this document"},
    {"refRemote.json", "base URI change - change folder", "\"$id\" is supported at the root only"},
    {"refRemote.json", "base URI change - change folder in subschema", "\"$id\" is supported at the root only"},
    {"refRemote.json", "base URI change", "\"$id\" is supported at the root only"},
    {"refRemote.json", NULL, "a reference within this document"},
    /* schemas in members that are no keywords; test_json_schema.c has them below "definitions" */
    {"ref.json", "escaped pointer ref", "\"tilda~field\" is no keyword that is supported"},
};

static const struct exception *exception_of(const char *file, const char *group) {
    for (size_t i = 0; i < ARRAY_COUNT(exceptions); i++) {
        if (strcmp(exceptions[i].file, file) != 0) continue;
        if (!exceptions[i].group || strcmp(exceptions[i].group, group) == 0) return &exceptions[i];
    }
    return NULL;
}

static struct json_object *member(struct json_object *object, const char *name) {
    struct json_object *value;
    cr_assert(json_object_object_get_ex(object, name, &value), "%s", name);
    return value;
}

static unsigned judge(const char *file, const char *group, struct json_object *schema_json, struct json_object *tests) {
    struct fault fault = {0};
    const struct exception *exception = exception_of(file, group);
    if (json_object_is_type(schema_json, json_type_object)) {
        json_object_object_add(schema_json, "$schema",
                               json_object_new_string("http://json-schema.org/draft-07/schema#"));
    }
    struct json_schema *schema = json_schema_compile(schema_json, &fault);
    if (!schema) {
        cr_expect(exception && strstr(fault.text, exception->reason), "%s: %s: %s", file, group, fault.text);
        return 0;
    }
    unsigned count = (unsigned)json_object_array_length(tests);
    for (unsigned i = 0; i < count; i++) {
        struct json_object *test = json_object_array_get_idx(tests, i);
        const char *name = json_object_get_string(member(test, "description"));
        int wanted = json_object_get_boolean(member(test, "valid")) ? CO_OK : CO_INVALID;
        struct fault why = {0};
        int error = json_schema_check(schema, member(test, "data"), &why);
        cr_expect_eq(error, wanted, "%s: %s: %s: %s", file, group, name, why.text);
        cr_expect_eq(error, why.code);
    }
    json_schema_free(schema);
    return count;
}

static struct json_object *read_file(const char *folder, const char *name) {
    char path[512];
    struct fault fault = {0};
    size_t size, most = 1 << 20;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    char *text = mem_alloc(most);
    cr_assert_lt(size = fread(text, 1, most, file), most);
    fclose(file);
    struct json_object *json;
    cr_assert_eq(json_parse_value(slice_make(text, size), &json, &fault), CO_OK, "%s: %s", path, fault.text);
    free(text);
    return json;
}

static void judge_file(const char *folder, const char *name, unsigned *groups, unsigned *cases) {
    struct json_object *json = read_file(folder, name);
    for (size_t i = 0; i < json_object_array_length(json); i++) {
        struct json_object *group = json_object_array_get_idx(json, i);
        const char *description = json_object_get_string(member(group, "description"));
        unsigned judged = judge(name, description, member(group, "schema"), member(group, "tests"));
        *groups += judged > 0;
        *cases += judged;
    }
    json_object_put(json);
}

Test(json_schema_suite, draft_7) {
    DIR *folder = opendir(SUITE);
    if (!folder) cr_skip_test("json-schema-test-suite is not installed");
    unsigned groups = 0, cases = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".json") == 0) judge_file(SUITE, entry->d_name, &groups, &cases);
    }
    closedir(folder);
    /* Of the optional ones; others are about keywords that are not supported. */
    judge_file(SUITE "/optional", "bignum.json", &groups, &cases);
    judge_file(SUITE "/optional", "zeroTerminatedFloats.json", &groups, &cases);
    fprintf(stderr, "%u cases of %u groups\n", cases, groups);
    cr_expect(groups >= 97 && cases >= 321, "%u groups, %u cases", groups, cases);
}
