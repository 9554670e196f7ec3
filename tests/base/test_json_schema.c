#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/json_schema.h"

/* Texts are written with ' for ". */
static struct json_object *parse(const char *text) {
    struct buffer json = {0};
    struct fault fault = {0};
    for (; *text; text++) buffer_append_byte(&json, *text == '\'' ? '"' : *text);
    struct json_object *object = json_parse(buffer_slice(&json), &fault);
    cr_assert_not_null(object, "%.*s: %s", (int)json.size, json.data, fault.text);
    buffer_free(&json);
    return object;
}

static struct json_schema *compile(const char *text) {
    struct fault fault = {0};
    struct json_object *json = parse(text);
    struct json_schema *schema = json_schema_compile(json, &fault);
    cr_assert_not_null(schema, "%s: %s", text, fault.text);
    json_object_put(json); /* the schema keeps its own reference */
    return schema;
}

/* The fault's text; "" when the document fits. Until the next call. */
static const char *check(const struct json_schema *schema, const char *document) {
    static struct fault fault, again;
    struct json_object *json = parse(document);
    fault = again = (struct fault){0};
    cr_assert_eq(json_schema_check(schema, json, &fault), fault.code);
    cr_assert(fault.code == CO_OK || fault.code == CO_INVALID);
    cr_assert_eq(json_schema_check(schema, json, &again), fault.code);
    cr_assert_str_eq(fault.text, again.text);
    json_object_put(json);
    return fault.text;
}

#define SERVERS                                                                                                \
    "{'type': 'object', 'required': ['servers'], 'additionalProperties': false, 'properties': {"               \
    "  'servers': {'type': 'array', 'minItems': 1, 'items': {'$ref': '#/definitions/server'}},"                \
    "  'mode': {'enum': ['slow', 'fast', 3, null]},"                                                           \
    "  'tags': {'type': ['array', 'null'], 'uniqueItems': true, 'maxItems': 3, 'items': {'type': 'string'}}}," \
    " 'definitions': {'server': {'type': 'object', 'required': ['port'], 'properties': {"                      \
    "  'port': {'type': 'integer', 'minimum': 1, 'maximum': 65535},"                                           \
    "  'name': {'type': 'string', 'minLength': 1, 'maxLength': 5, 'pattern': '^[a-z]*$'},"                     \
    "  'share': {'exclusiveMinimum': 0, 'exclusiveMaximum': 1.5, 'multipleOf': 0.25}}}}}"

Test(json_schema, says_what_is_wanted_where) {
    static const struct {
        const char *document, *fault;
    } rows[] = {
        {"{'servers': [{'port': 80, 'name': 'web', 'share': 1.25}], 'mode': 3.0, 'tags': ['a', 'b']}", ""},
        {"[]", "the document: an object with \"servers\" is wanted, not an array of 0 items"},
        {"{}", "the document: the member \"servers\" is missing"},
        {"{'servers': []}", "/servers: an array of 1 or more items is wanted, not an array of 0 items"},
        {"{'servers': [{'port': 1}, {'port': 2}, {'port': 'http'}]}",
         "/servers/2/port: a whole number from 1 to 65535 is wanted, not \"http\""},
        {"{'servers': [{'port': 65536}]}", "/servers/0/port: a whole number from 1 to 65535 is wanted, not 65536"},
        {"{'servers': [{'port': 1.5}]}", "/servers/0/port: a whole number from 1 to 65535 is wanted, not 1.5"},
        {"{'servers': [{}]}", "/servers/0: the member \"port\" is missing"},
        {"{'servers': [{'port': 1, 'name': 'abcdef'}]}",
         "/servers/0/name: a string of 1 to 5 characters that matches \"^[a-z]*$\" is wanted, not \"abcdef\""},
        {"{'servers': [{'port': 1, 'name': 'A'}]}",
         "/servers/0/name: a string of 1 to 5 characters that matches \"^[a-z]*$\" is wanted, not \"A\""},
        {"{'servers': [{'port': 1, 'share': 1.5}]}",
         "/servers/0/share: a number above 0 below 1.5 that is a multiple of 0.25 is wanted, not 1.5"},
        {"{'servers': [{'port': 1}], 'mode': 'medium'}",
         "/mode: one of \"slow\", \"fast\", 3, null is wanted, not \"medium\""},
        {"{'servers': [{'port': 1}], 'tags': ['a', 'b', 'a']}",
         "/tags/2: an item that differs from all before is wanted, not one equal to item 0"},
        {"{'servers': [{'port': 1}], 'tags': {}}",
         "/tags: null or an array of at most 3 items without equal items is wanted, not an object of 0 members"},
        {"{'servers': [{'port': 1}], 'taggs': []}", "/taggs: no member of this name is allowed (nearest: \"tags\")"},
        {"{'servers': [{'port': 1}], 'a~b/c\\n': []}", "/a~0b~1c?: no member of this name is allowed"},
    };
    struct json_schema *schema = compile(SERVERS);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const char *fault = check(schema, rows[i].document);
        cr_expect_str_eq(fault, rows[i].fault, "%s: %s", rows[i].document, fault);
    }
    json_schema_free(schema);
}

Test(json_schema, says_which_alternative_is_meant) {
    static const struct {
        const char *schema, *document, *fault;
    } rows[] = {
        {"{'anyOf': [{'type': 'null'}, {'type': 'integer', 'minimum': 5}, {'type': 'string'}]}", "4",
         "the document: null or a whole number from 5 on or a string is wanted, not 4"},
        {"{'oneOf': [{'minimum': 2}, {'maximum': 4}, {'type': 'string'}]}", "3",
         "the document: exactly one of 3 alternatives is wanted, and both 0 and 1 fit"},
        {"{'oneOf': [{'minimum': 2}, {'maximum': 4}, {'type': 'string'}]}", "'a'",
         "the document: exactly one of 3 alternatives is wanted, and both 0 and 1 fit"},
        /* by the member that says it */
        {"{'items': {'oneOf': [{'properties': {'kind': {'const': 'a'}, 'x': {'type': 'string'}}},"
         " {'properties': {'kind': {'const': 'b'}, 'x': {'type': 'null'}}}]}}",
         "[{'kind': 'b', 'x': 'y'}]", "/0/x: null is wanted, not \"y\""},
        {"{'items': {'oneOf': [{'properties': {'kind': {'const': 'a'}, 'x': {'type': 'string'}}},"
         " {'properties': {'kind': {'const': 'b'}, 'x': {'type': 'null'}}}]}}",
         "[{'kind': 'a', 'x': null}]", "/0/x: a string is wanted, not null"},
        /* by how far it goes, also through alternatives within */
        {"{'anyOf': [{'type': 'string'}, {'anyOf': [{'type': 'null'}, {'items': {'items': {'minimum': 7}}}]}]}",
         "[[7, 8], [9, 6]]", "/1/1: a number from 7 on is wanted, not 6"},
        {"{'not': {'type': ['string', 'null']}}", "'a'",
         "the document: anything but null or a string is wanted, not \"a\""},
        {"{'not': {'not': {'type': 'string'}}}", "1",
         "the document: anything but anything but a string is wanted, not 1"},
        {"{'allOf': [{'minimum': 3}, {'maximum': 4}]}", "5", "the document: a number up to 4 is wanted, not 5"},
        {"{'properties': {'a': false}}", "{'a': 1}", "/a: nothing is allowed here"},
        {"{'additionalProperties': false}", "{'a': 1}", "/a: no member of this name is allowed"},
        {"{'patternProperties': {'^x-': {'type': 'string'}}, 'additionalProperties': {'type': 'null'}}",
         "{'x-a': 'b', 'y': null, 'x-c': null}", "/x-c: a string is wanted, not null"},
        {"{'patternProperties': {'^x-': {'type': 'string'}}, 'additionalProperties': {'type': 'null'}}",
         "{'x-a': 'b', 'y': 'b'}", "/y: null is wanted, not \"b\""},
        {"{'const': {'a': [1, null]}}", "{'a': [1]}",
         "the document: an object of 1 member is wanted, not an object of 1 member"},
        {"{'enum': []}", "1", "the document: nothing is wanted, not 1"},
        {"{'minLength': 2}", "'\u00e4'", "the document: a string of 2 or more characters is wanted, not \"\u00e4\""},
        {"{'maxLength': 1}", "'\u00e4'", ""},
        {"{'minItems': 2, 'maxItems': 2}", "[1]",
         "the document: an array of 2 items is wanted, not an array of 1 item"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct json_schema *schema = compile(rows[i].schema);
        const char *fault = check(schema, rows[i].document);
        cr_expect_str_eq(fault, rows[i].fault, "%s: %s", rows[i].schema, fault);
        json_schema_free(schema);
    }
}

Test(json_schema, refused) {
    static const struct {
        const char *schema, *fault;
    } rows[] = {
        {"{'properties': {'port': {'minimun': 1}}}",
         "#/properties/port: \"minimun\" is no keyword that is supported (nearest: \"minimum\")"},
        {"{'items': [true, {'format': 'date'}]}", "#/items/1: \"format\" is no keyword that is supported"},
        {"{'definitions': {'a/b': {'then': true}}}", "#/definitions/a~1b: \"then\" is no keyword that is supported"},
        {"3", "#: a schema (an object or a boolean) is wanted, not 3"},
        {"{'not': null}", "#/not: a schema (an object or a boolean) is wanted, not null"},
        {"{'type': 'int'}", "#/type: null, boolean, integer, number, string, array or object is wanted, not \"int\""},
        {"{'type': ['string', 1]}",
         "#/type/1: null, boolean, integer, number, string, array or object is wanted, not 1"},
        {"{'type': []}", "#/type: at least one type is wanted, not an array of 0 items"},
        {"{'enum': 1}", "#/enum: an array is wanted, not 1"},
        {"{'minimum': '1'}", "#/minimum: a number is wanted, not \"1\""},
        {"{'maximum': 1e999}",
         "#/maximum: a number within the range of doubles is wanted, not a number beyond all bounds"},
        {"{'exclusiveMinimum': true}", "#/exclusiveMinimum: a number is wanted, not true"},
        {"{'multipleOf': 0}", "#/multipleOf: a number above 0 is wanted, not 0"},
        {"{'multipleOf': -1}", "#/multipleOf: a number above 0 is wanted, not -1"},
        {"{'minLength': -1}", "#/minLength: a whole number from 0 on is wanted, not -1"},
        {"{'maxItems': 1.5}", "#/maxItems: a whole number from 0 on is wanted, not 1.5"},
        {"{'uniqueItems': 1}", "#/uniqueItems: a boolean is wanted, not 1"},
        {"{'required': 'a'}", "#/required: an array of names is wanted, not \"a\""},
        {"{'required': [1]}", "#/required/0: a string is wanted, not 1"},
        {"{'required': ['a\\u0000b']}", "#/required/0: holds a NUL character"},
        {"{'properties': []}", "#/properties: an object of schemas is wanted, not an array of 0 items"},
        {"{'anyOf': {}}", "#/anyOf: an array of schemas is wanted, not an object of 0 members"},
        {"{'oneOf': []}", "#/oneOf: at least one schema is wanted, not an array of 0 items"},
        {"{'pattern': 1}", "#/pattern: a string is wanted, not 1"},
        {"{'pattern': '(?=a)'}", "#/pattern: look-ahead is not supported, at byte 1"},
        {"{'patternProperties': {'[': {}}}", "#/patternProperties/[: \"]\" is missing, at byte 1"},
        {"{'not': {'$id': 'x'}}", "#/not/$id: \"$id\" is supported at the root only"},
        {"{'$ref': 1}", "#/$ref: a string is wanted, not 1"},
        {"{'$ref': 'other.json'}",
         "#/$ref: a reference within this document (\"#\" or \"#/...\") is wanted, not \"other.json\""},
        {"{'$ref': '#name'}", "#/$ref: a reference within this document (\"#\" or \"#/...\") is wanted, not \"#name\""},
        {"{'items': {'$ref': '#/definitions/b'}, 'definitions': {'a': {}}}",
         "#/items/$ref: \"#/definitions/b\" leads to no schema"},
        {"{'items': {'$ref': '#/definitions'}, 'definitions': {'a': {}}}",
         "#/items/$ref: \"#/definitions\" leads to no schema"},
        {"{'items': {'$ref': '#/const'}, 'const': {}}", "#/items/$ref: \"#/const\" leads to no schema"},
        {"{'items': {'$ref': '#/const'}, 'const': null}", "#/items/$ref: \"#/const\" leads to no schema"},
        {"{'items': {'$ref': '#/items/x'}}", "#/items/$ref: \"#/items/x\" leads to no schema"},
        {"{'not': {'$ref': '#/%2'}}", "#/not/$ref: \"#/%2\" leads to no schema"},
        {"{'not': {'items': [true, {'$ref': '#/not/items/2'}]}}",
         "#/not/items/1/$ref: \"#/not/items/2\" leads to no schema"},
        {"{'$ref': '#'}", "#/$ref: leads back to itself"},
        {"{'anyOf': [{'type': 'null'}, {'$ref': '#'}]}", "#/anyOf/1/$ref: leads back to itself"},
        {"{'items': {'$ref': '#/definitions/a'}, 'definitions': {'a': {'not': {'$ref': '#/definitions/b'}},"
         " 'b': {'allOf': [{'$ref': '#/definitions/a'}]}}}",
         "#/definitions/b/allOf/0/$ref: leads back to itself"},
        {"{'items': {'$ref': '#', 'minItems': 3}}",
         "#/items: \"minItems\" beside \"$ref\": draft 7 ignores it, later drafts do not; use \"allOf\", or name draft "
         "7 "
         "in \"$schema\""},
        {"{'$schema': 'https://json-schema.org/draft/2020-12/schema', 'items': {'minItems': 3, '$ref': '#'}}",
         "#/items: \"minItems\" beside \"$ref\": draft 7 ignores it, later drafts do not; use \"allOf\", or name draft "
         "7 "
         "in \"$schema\""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct json_object *json = parse(rows[i].schema);
        struct fault fault = {0};
        cr_expect_null(json_schema_compile(json, &fault), "%s", rows[i].schema);
        cr_expect_eq(fault.code, CO_INVALID, "%s", rows[i].schema);
        cr_expect_str_eq(fault.text, rows[i].fault, "%s: %s", rows[i].schema, fault.text);
        json_object_put(json);
    }
    struct fault fault = {0};
    cr_expect_null(json_schema_compile(NULL, &fault));
    cr_expect_str_eq(fault.text, "#: a schema (an object or a boolean) is wanted, not null");
}

Test(json_schema, what_has_no_effect) {
    struct json_schema *schema = compile(
        "{'$schema': 'http://json-schema.org/draft-07/schema#', '$id': 'https://example.com/a', '$comment': 1,"
        " 'title': {}, 'description': 'x', 'default': {'minimun': 1}, 'examples': [{'format': 1}],"
        " 'definitions': {'a': false}, '$defs': {'b': false}}");
    cr_expect_str_eq(check(schema, "1"), "");
    json_schema_free(schema);
}

Test(json_schema, references) {
    static const char *const rows[] = {
        "#/definitions/slash~1field",
        "#/definitions/tilda~0field",
        "#/definitions/percent%25field",
        "#/definitions/~01",
        "#/$defs/list/items/1",
        "#/%24defs/list/items/1",
        "#/$defs/",
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{'properties': {'a': {'$ref': '%s'}}, 'definitions': {'slash/field': {'$ref': '#/$defs/number'},"
                 " 'tilda~field': {'$ref': '#/$defs/number'}, 'percent%%field': {'$ref': '#/$defs/number'},"
                 " '~1': {'$ref': '#/$defs/number'}},"
                 " '$defs': {'number': {'type': 'number'}, 'list': {'items': [true, {'type': 'number'}]},"
                 " '': {'type': 'number'}}}",
                 rows[i]);
        struct json_schema *schema = compile(text);
        cr_expect_str_eq(check(schema, "{'a': 1}"), "", "%s", rows[i]);
        cr_expect_str_eq(check(schema, "{'a': 'b'}"), "/a: a number is wanted, not \"b\"", "%s", rows[i]);
        json_schema_free(schema);
    }
}

Test(json_schema, draft_7_ignores_what_stands_beside_a_reference) {
    struct json_schema *schema =
        compile("{'$schema': 'http://json-schema.org/draft-07/schema#', 'items': {'$ref': '#', 'maxItems': 1}}");
    cr_expect_str_eq(check(schema, "[[1, 2]]"), "");
    json_schema_free(schema);
}

/* ---- bounds ---- */

static int compile_error(const char *text) {
    struct json_object *json = parse(text);
    struct fault fault = {0};
    json_schema_free(json_schema_compile(json, &fault));
    json_object_put(json);
    return fault.code;
}

/* `before`, then `each` (with its number where it says %u) `count` times, commas between, then `behind`. */
static char *many(const char *before, const char *each, unsigned count, const char *behind) {
    struct buffer text = {0};
    buffer_append_text(&text, before);
    for (unsigned i = 0; i < count; i++) {
        if (i) buffer_append_byte(&text, ',');
        for (const char *at = each; *at; at++) {
            if (*at == '#' && at[1] == '#') buffer_append_u64(&text, i), at++;
            else if (*at == '+' && at[1] == '+') buffer_append_u64(&text, i + 1), at++;
            else buffer_append_byte(&text, *at);
        }
    }
    buffer_append_text(&text, behind);
    buffer_append_byte(&text, '\0');
    return buffer_take(&text, NULL);
}

static int many_error(const char *before, const char *each, unsigned count, const char *behind) {
    char *text = many(before, each, count, behind);
    int error = compile_error(text);
    free(text);
    return error;
}

Test(json_schema, bounds_when_it_is_compiled) {
    cr_expect_eq(many_error("{'allOf': [", "{}", JSON_SCHEMA_NODES_MOST - 1, "]}"), CO_OK);
    cr_expect_eq(many_error("{'allOf': [", "{}", JSON_SCHEMA_NODES_MOST, "]}"), CO_TOOLARGE);
    cr_expect_eq(many_error("{'enum': [", "1", JSON_SCHEMA_BYTES_MOST / 16 - 3, "]}"), CO_OK);
    cr_expect_eq(many_error("{'enum': [", "1", JSON_SCHEMA_BYTES_MOST / 16 - 2, "]}"), CO_TOOLARGE);
    cr_expect_eq(many_error("{'allOf': [", "{'pattern': 'a{2000}'}", 40, "]}"), CO_OK);
    cr_expect_eq(many_error("{'allOf': [", "{'pattern': 'a{2000}'}", 50, "]}"), CO_TOOLARGE);
    cr_expect_eq(compile_error("{'pattern': 'a{3000}'}"), CO_TOOLARGE);
    const char *chain = "'##': {'$ref': '#/definitions/++'}";
    cr_expect_eq(many_error("{'definitions': {", chain, JSON_SCHEMA_CHAIN_MOST - 1, ",'63': {}}}"), CO_OK);
    cr_expect_eq(many_error("{'definitions': {", chain, JSON_SCHEMA_CHAIN_MOST, ",'64': {}}}"), CO_TOOLARGE);
    cr_expect_eq(many_error("{'definitions': {", chain, 4000, ",'4000': {}}}"), CO_TOOLARGE);
}

static struct json_object *nested(unsigned depth) {
    struct json_object *json = json_object_new_object();
    for (unsigned i = 1; i < depth; i++) {
        struct json_object *above = json_object_new_object();
        json_object_object_add(above, "not", json);
        json = above;
    }
    return json;
}

Test(json_schema, depth) {
    struct fault fault = {0};
    struct json_object *fine = nested(65), *deep = nested(66);
    struct json_schema *schema = json_schema_compile(fine, &fault);
    cr_expect_not_null(schema);
    cr_expect_null(json_schema_compile(deep, &fault));
    cr_expect_eq(fault.code, CO_TOOLARGE);
    cr_expect_str_eq(fault.text, "#: the schema is nested too deeply");
    json_schema_free(schema);
    /* documents that json_parse would refuse */
    struct json_object *document = nested(JSON_SCHEMA_NESTED_MOST);
    schema = compile("{'additionalProperties': {'$ref': '#'}}");
    fault = (struct fault){0};
    cr_expect_eq(json_schema_check(schema, document, &fault), CO_OK);
    json_object_put(document);
    document = nested(JSON_SCHEMA_NESTED_MOST + 1);
    cr_expect_eq(json_schema_check(schema, document, &fault), CO_INVALID);
    cr_expect_not_null(strstr(fault.text, "nested too deeply for this schema"), "%s", fault.text);
    json_schema_free(schema);
    json_object_put(document);
    json_object_put(fine);
    json_object_put(deep);
}

/* Each level asks the next one twice: 2^levels. */
Test(json_schema, schemas_do_not_take_for_ever) {
    static const struct {
        const char *level, *last;
        unsigned levels;
    } rows[] = {
        {"'##': {'anyOf': [{'$ref': '#/definitions/++'}, {'$ref': '#/definitions/++'}]}", "{'type': 'null'}", 30},
        {"'##': {'allOf': [{'$ref': '#/definitions/++'}, {'$ref': '#/definitions/++'}]}", "true", 30},
        {"'##': {'oneOf': [{'$ref': '#/definitions/++'}, {'$ref': '#/definitions/++'}]}", "{'type': 'null'}", 30},
        {"'##': {'not': {'oneOf': [{'$ref': '#/definitions/++'}, {'$ref': '#/definitions/++'}]}}", "false", 20},
        {"'##': {'items': {'anyOf': [{'$ref': '#/definitions/++'}, {'$ref': '#/definitions/++'}]}}", "false", 40},
    };
    char document[128] = {0};
    memset(document, '[', 62);
    memset(document + 62, ']', 62);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char last[64];
        snprintf(last, sizeof last, ",'%u': %s}}", rows[i].levels, rows[i].last);
        char *text = many("{'$ref': '#/definitions/0', 'definitions': {", rows[i].level, rows[i].levels, last);
        struct json_schema *schema = compile(text);
        const char *fault = check(schema, document);
        cr_expect_not_null(strstr(fault, ": judging this document takes more than 1000000 steps"), "%s: %s", text,
                           fault);
        json_schema_free(schema);
        free(text);
    }
}

static const char *check_many(const char *schema_text, const char *before, const char *each, unsigned count,
                              const char *behind) {
    char *document = many(before, each, count, behind);
    struct json_schema *schema = compile(schema_text);
    const char *fault = check(schema, document);
    json_schema_free(schema);
    free(document);
    return fault;
}

Test(json_schema, documents_do_not_take_for_ever) {
    const char *too_much = ": judging this document takes more than 1000000 steps", *fault;
    cr_expect_str_eq(check_many("{'uniqueItems': true}", "[", "##", 1000, "]"), "");
    fault = check_many("{'uniqueItems': true}", "[", "##", 10000, "]");
    cr_expect(strstr(fault, too_much), "%s", fault);
    cr_expect_str_eq(check_many("{'items': {'multipleOf': 0.1}}", "[", "##.5", 1900, "]"), "");
    fault = check_many("{'items': {'multipleOf': 0.1}}", "[", "##.5", 2000, "]");
    cr_expect(strstr(fault, too_much), "%s", fault);
    fault =
        check_many("{'items': {'enum': [[0], [1], [2], [3], [4], [5], [6], [7], [8], [9]]}}", "[", "[9]", 100000, "]");
    cr_expect(strstr(fault, too_much), "%s", fault);
}

Test(json_schema, patterns_do_not_take_for_ever) {
    static const char *const schemas[] = {
        "{'properties': {'a': {'pattern': '^(([a-z])+.)+[A-Z]([a-z])+$'}}}",
        "{'not': {'not': {'properties': {'a': {'pattern': '^(([a-z])+.)+[A-Z]([a-z])+$'}}}}}",
        "{'oneOf': [true, {'properties': {'a': {'pattern': '^(([a-z])+.)+[A-Z]([a-z])+$'}}}]}",
    };
    const char *fault;
    cr_expect_str_eq(check_many("{'pattern': '^(([a-z])+.)+[A-Z]([a-z])+$'}", "'", "aaaaaaaa", 1000, "Ab'"), "");
    for (size_t i = 0; i < ARRAY_COUNT(schemas); i++) {
        fault = check_many(schemas[i], "{'a': '", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 5000, "'}");
        cr_expect_str_eq(fault,
                         "/a: the pattern \"^(([a-z])+.)+[A-Z]([a-z])+$\" takes too long here: more than 1000000 steps "
                         "for the document");
    }
    fault = check_many("{'patternProperties': {'(a{50}){20}b': true}}", "{'", "aaaaaaaaaaaaaaaaaaaa", 5000, "': 1}");
    cr_expect(strstr(fault, "the pattern \"(a{50}){20}b\" takes too long here"), "%s", fault);
}

Test(json_schema, faults_stay_one_whole_line) {
    char document[4096], key[1024];
    memset(key, 0, sizeof key);
    for (size_t i = 0; i < 300; i++) memcpy(key + 2 * i, "\u00e4", 2);
    snprintf(document, sizeof document, "{'%s': {'%s': ['%s']}}", key, key, key);
    struct json_schema *schema = compile(
        "{'additionalProperties': {'additionalProperties': {'items': {'enum': ['a', 'b', "
        "'cccccccccccccccccccccccccccccc',"
        " 'dddddddddddddddddddddddddddddddddddd', 'eeeeeeeeeeeeeeeeeeeeeeeeeeeeee', 'f']}}}}");
    const char *fault = check(schema, document);
    cr_expect(strncmp(fault, "...", 3) == 0 && strstr(fault, "/0: one of \"a\"") && strstr(fault, "...\""), "%s",
              fault);
    cr_expect(fault[strlen(fault) - 1] == '"', "%s", fault);
    json_schema_free(schema);
}
