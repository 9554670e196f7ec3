/* JSON Schema: the cases of Debian's json-schema-test-suite (draft 7), and what people are told. */
#include "base/json_schema.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

static struct json_object *parse(const char *text) {
    struct fault fault = {0};
    struct json_object *json = json_parse(slice_text(text), &fault);
    cr_assert(!fault.code, "%s: %s", text, fault.text);
    return json;
}

/* The fault's text; "": it fits. */
static const char *judged(const char *schema_text, const char *document) {
    static struct fault fault;
    struct json_schema *schema;
    fault = (struct fault){0};
    cr_assert_eq(json_schema_new(slice_text(schema_text), &schema, &fault), CO_OK, "%s", fault.text);
    struct json_object *json = parse(document);
    (void)json_schema_check(schema, json, &fault);
    json_object_put(json);
    json_schema_free(schema);
    return fault.text;
}

static const char *refused(const char *text) {
    static struct fault fault;
    struct json_schema *schema;
    fault = (struct fault){0};
    cr_assert_neq(json_schema_new(slice_text(text), &schema, &fault), CO_OK, "%s", text);
    return fault.text;
}

/* -- the suite ---------------------------------------------------------------------------------------------------- */

#define SUITE "/usr/share/json-schema-test-suite/tests/draft7"
/* Of these keywords; all others are refused by name. */
static const char *const files[] = {"type",
                                    "enum",
                                    "const",
                                    "minimum",
                                    "maximum",
                                    "exclusiveMinimum",
                                    "exclusiveMaximum",
                                    "minLength",
                                    "maxLength",
                                    "pattern",
                                    "items",
                                    "minItems",
                                    "maxItems",
                                    "properties",
                                    "required",
                                    "additionalProperties",
                                    "minProperties",
                                    "maxProperties",
                                    "allOf",
                                    "anyOf",
                                    "oneOf",
                                    "not",
                                    "ref",
                                    "boolean_schema",
                                    "default",
                                    "infinite-loop-detection"};

struct tally {
    unsigned cases, refused;
};

static void run_group(struct json_object *group, const char *file, struct tally *tally) {
    struct json_object *schema_json = NULL, *tests = NULL;
    struct json_schema *schema;
    struct fault fault = {0};
    cr_assert(json_object_object_get_ex(group, "schema", &schema_json) &&
              json_object_object_get_ex(group, "tests", &tests));
    const char *text = json_object_to_json_string_ext(schema_json, JSON_C_TO_STRING_PLAIN);
    if (json_schema_new(slice_text(text), &schema, &fault) != CO_OK) {
        bool by_name = strstr(fault.text, "not supported") || strstr(fault.text, "only places in the schema itself");
        cr_expect(by_name, "%s: %s: %s", file, text, fault.text);
        tally->refused++;
        return;
    }
    for (size_t i = 0; i < json_object_array_length(tests); i++) {
        struct json_object *test = json_object_array_get_idx(tests, i), *data = NULL, *valid = NULL, *what = NULL;
        struct fault found = {0};
        (void)json_object_object_get_ex(test, "data", &data), (void)json_object_object_get_ex(test, "valid", &valid);
        (void)json_object_object_get_ex(test, "description", &what);
        int rv = json_schema_check(schema, data, &found);
        cr_expect_eq(rv == CO_OK, json_object_get_boolean(valid), "%s: %s: %s, %s: %s", file, text,
                     json_object_get_string(what), json_object_to_json_string(data), found.text);
        cr_expect(rv == CO_OK || found.text[0]);
        tally->cases++;
    }
    json_schema_free(schema);
}

static char *read_whole(const char *path) {
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    if (!file) return NULL;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    return text;
}

Test(json_schema, every_case_of_the_suite) {
    struct tally tally = {0};
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        char path[200];
        snprintf(path, sizeof path, SUITE "/%s.json", files[i]);
        const char *text = read_whole(path);
        if (!text && i == 0) cr_skip("no " SUITE ": apt-get install json-schema-test-suite");
        if (!text) continue; /* a newer suite's */
        struct json_object *groups = parse(text);
        for (size_t j = 0; j < json_object_array_length(groups); j++)
            run_group(json_object_array_get_idx(groups, j), files[i], &tally);
        json_object_put(groups);
    }
    cr_expect(tally.cases > 250 && tally.refused < 20, "%u cases, %u schemas refused", tally.cases, tally.refused);
}

/* -- what people are told ----------------------------------------------------------------------------------------- */

#define SERVERS                                                                                                      \
    "{\"type\":\"object\",\"required\":[\"servers\"],\"additionalProperties\":false,\"properties\":{\"servers\":{"   \
    "\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#/definitions/"                                         \
    "server\"}},\"mode\":{\"enum\":[\"a\",\"b\"]}},"                                                                 \
    "\"definitions\":{\"server\":{\"type\":\"object\",\"properties\":{\"port\":{\"type\":\"integer\",\"minimum\":1," \
    "\"maximum\":65535},\"host\":{\"pattern\":\"^[a-z0-9.]+$\",\"maxLength\":5}}}}}"

Test(json_schema, faults_name_the_path) {
    static const struct {
        const char *document, *fault;
    } rows[] = {
        {"{\"servers\":[{\"port\":80,\"host\":\"a.b\"}],\"mode\":\"b\"}", ""},
        {"{\"servers\":[{\"port\":80},{\"port\":70000}]}", "servers[1].port: 70000 is above the maximum, 65535"},
        {"{\"servers\":[{\"port\":\"80\"}]}", "servers[0].port: \"integer\" is wanted, not a string"},
        {"{\"servers\":[{\"port\":1.5}]}", "servers[0].port: \"integer\" is wanted, not a number"},
        {"{\"servers\":[{\"host\":\"A\"}]}", "servers[0].host: \"A\" does not fit the pattern \"^[a-z0-9.]+$\""},
        {"{\"servers\":[{\"host\":\"abcdef\"}]}", "servers[0].host: 6 characters: at most 5 are wanted"},
        {"{\"servers\":[]}", "servers: 0 items: at least 1 are wanted"},
        {"{}", "the document: \"servers\" is missing"},
        {"{\"servers\":[{}],\"sevrers\":1}", "the document: \"sevrers\" is not one of its properties"},
        {"{\"servers\":[{}],\"mode\":\"c\"}", "mode: \"c\" is none of [\"a\",\"b\"]"},
        {"[]", "the document: \"object\" is wanted, not an array"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) cr_expect_str_eq(judged(SERVERS, rows[i].document), rows[i].fault);
}

Test(json_schema, what_is_no_schema) {
    static const struct {
        const char *text, *word;
    } rows[] = {
        {"{\"uniqueItems\":true}", "uniqueItems: this keyword is not supported"},
        {"{\"properties\":{\"a\":{\"format\":\"date\"}}}", "properties/a/format: this keyword"},
        {"{\"typ\":\"object\"}", "typ: this keyword"},
        {"{\"type\":\"text\"}", "type: names of types"},
        {"{\"minimum\":\"1\"}", "minimum: a number"},
        {"{\"minLength\":-1}", "minLength: a whole number"},
        {"{\"required\":[1]}", "required: a list of names"},
        {"{\"items\":3}", "items: a schema is an object"},
        {"{\"anyOf\":[]}", "anyOf: the list is empty"},
        {"{\"$ref\":\"http://x/y\"}", "only places in the schema itself"},
        {"{\"$ref\":\"#/definitions/a\"}", "it leads nowhere"},
        {"{\"$ref\":\"#/title\",\"title\":{\"required\":3}}", "it leads to what is no schema"},
        {"{\"pattern\":\"(\"}", "pattern: pattern: ')' is missing"},
        {"{\"pattern\":\"(?=a)\"}", "look-ahead"},
        {"[1]", "a schema is an object"},
        {"{\"type\":\"object\",\"type\":\"array\"}", ""},
        {"{", ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        cr_expect(strstr(refused(rows[i].text), rows[i].word), "%s: %s", rows[i].text, refused(rows[i].text));
}

/* A schema that refers to itself, or multiplies itself, ends all the same. */
Test(json_schema, schemas_that_go_in_circles) {
    cr_expect(strstr(judged("{\"$ref\":\"#\"}", "1"), "too many steps"));
    cr_expect(strstr(judged("{\"allOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}", "1"), "too many steps"));
    struct buffer text = {0};
    buffer_append_text(&text, "{\"definitions\":{\"d0\":false");
    for (int i = 1; i < 60; i++)
        buffer_printf(&text, ",\"d%d\":{\"anyOf\":[{\"$ref\":\"#/definitions/d%d\"},{\"$ref\":\"#/definitions/d%d\"}]}",
                      i, i - 1, i - 1);
    buffer_append_text(&text, "},\"$ref\":\"#/definitions/d59\"}");
    buffer_append_byte(&text, '\0');
    cr_expect(strstr(judged(text.data, "1"), "too many steps"));
    buffer_free(&text);
}

/* -- well-formed -------------------------------------------------------------------------------------------------- */

Test(json_schema, json_valid_says_what_json_parse_says) {
    static const char *const good[] = {"1",    " -0.5e+10 ", "\"a\\u00e9\\n\"",
                                       "[]",   "[1,[2],{}]", "{\"a\":{\"b\":null}}",
                                       "true", "false",      "{\"a\":1}\n"},
                             *const bad[] = {"",    " ",          "01",     "1.",   ".5",       "+1",    "1e",
                                             "\"a", "\"\\x\"",    "\"\t\"", "[1,]", "{\"a\"}",  "{a:1}", "{\"a\":1,}",
                                             "nul", "true false", "'a'",    "[",    "\"\xff\"", "NaN",   "\"\\u12g4\""};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) cr_expect(json_valid(slice_text(good[i])), "%s", good[i]);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        cr_expect(!json_valid(slice_text(bad[i])), "%s", bad[i]);
        cr_expect_null(json_parse(slice_text(bad[i]), NULL), "%s", bad[i]);
    }
    char deep[200];
    memset(deep, '[', 65), memset(deep + 65, ']', 65);
    cr_expect(!json_valid(slice_make(deep, 130)));
    memset(deep, '[', 60), memset(deep + 60, ']', 60);
    cr_expect(json_valid(slice_make(deep, 120)));
}
