#include <criterion/criterion.h>
#include <stdio.h>

#include "base/check.h"
#include "base/json_in.h"

static struct json_object *parse(const char *text) {
    struct fault fault = {0};
    struct json_object *object = json_parse(slice_text(text), &fault);
    cr_assert_not_null(object, "%s: %s", text, fault.text);
    return object;
}

Test(json_parse, accepted) {
    static const char *const rows[] = {
        "{}",
        " {} ",
        "\n[1,2]\t\r\n",
        "123",
        "-0",
        "0",
        "1.5",
        "1e5",
        "1E+2",
        "-1.25e-3",
        "true",
        "false",
        "\"x\"",
        "\"\\/\"",
        "\"\\u0000\"",
        "\"\\ud83d\\ude00\"",
        "{\"a\":null}",
        "{\"a\":{\"b\":[{}]}}",
        "18446744073709551615",
        "-9223372036854775808",
        "{\"-1x\":\"01 NaN\"}",
        "\"\xef\xbb\xbf\"",
        "[\"\\\\\",\"\\\"\"]",
        "\"\\\\u0000\"",
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) json_object_put(parse(rows[i]));
}

Test(json_parse, refused) {
    static const struct {
        const char *text, *fault;
    } rows[] = {
        {"", "JSON: the text is empty"},
        {"  \n", "JSON: the text is empty"},
        {"null", "JSON: null where a value is wanted"},
        {"{\"abc\": 1, x}", "JSON: quoted object property name expected at line 1, column 12"},
        {"{\n  \"a\": 1,\n  \"b\": tru\n}", "JSON: boolean expected at line 3, column 11"},
        {"{} x", NULL},
        {"{}{}", NULL},
        {"1 2", NULL},
        {"[1,]", NULL},
        {"{\"a\":1,}", NULL},
        {"{a:1}", NULL},
        {"{\"a\" 1}", NULL},
        {"[1 2]", NULL},
        {"{\"a\":1", NULL},
        {"[", NULL},
        {"\"", NULL},
        {"\"\\", NULL},
        {"'a'", NULL},
        {"/*c*/1", NULL},
        {"True", NULL},
        {"nul", NULL},
        {"\"\\x\"", NULL},
        {"NaN", "JSON: unexpected character at line 1, column 1"},
        {"{'a':1}", "JSON: unexpected character at line 1, column 2"},
        {"['a']", "JSON: unexpected character at line 1, column 2"},
        {"[Infinity]", "JSON: unexpected character at line 1, column 2"},
        {"-Infinity", "JSON: malformed number at line 1, column 1"},
        {"-", "JSON: malformed number at line 1, column 1"},
        {"1.", "JSON: malformed number at line 1, column 1"},
        {"[1.]", "JSON: malformed number at line 1, column 2"},
        {"01", "JSON: malformed number at line 1, column 1"},
        {"-01", "JSON: malformed number at line 1, column 1"},
        {".5", NULL},
        {"1e", "JSON: malformed number at line 1, column 1"},
        {"1e+", "JSON: malformed number at line 1, column 1"},
        {"1-2", NULL},
        {"1.5.2", NULL},
        {"0x10", NULL},
        {"[1,18446744073709551616]", "JSON: number out of range at line 1, column 4"},
        {"-9223372036854775809", "JSON: number out of range at line 1, column 1"},
        {"\"a\nb\"", "JSON: control character in a string at line 1, column 3"},
        {"\"a\tb\"", "JSON: control character in a string at line 1, column 3"},
        {"{\"a\\u0000b\":1}", "JSON: NUL in a key at line 1, column 2"},
        {"{\"a\\u0000b\"  :1}", "JSON: NUL in a key at line 1, column 2"},
        {"\"\xff\"", "JSON: bytes that are not UTF-8 at line 1, column 2"},
        {"\"\xc0\x80\"", "JSON: bytes that are not UTF-8 at line 1, column 2"},
        {"\"\xed\xa0\x80\"", "JSON: bytes that are not UTF-8 at line 1, column 2"},
        {"\xef\xbb\xbf{}", NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        cr_expect_null(json_parse(slice_text(rows[i].text), &fault), "%s", rows[i].text);
        cr_expect_eq(fault.code, CO_INVALID, "%s", rows[i].text);
        if (rows[i].fault) cr_expect_str_eq(fault.text, rows[i].fault, "%s: %s", rows[i].text, fault.text);
        cr_expect_eq(strncmp(fault.text, "JSON: ", 6), 0, "%s", fault.text);
    }
    struct fault fault = {0};
    cr_expect_null(json_parse(slice_make("{\0}", 3), &fault));
    cr_expect_str_eq(fault.text, "JSON: NUL byte at line 1, column 2");
    cr_expect_null(json_parse(slice_make("{}\0", 3), NULL));
    /* The text need not end with a NUL byte. */
    cr_expect_null(json_parse(slice_make("[1]", 2), NULL));
}

Test(json_parse, null_is_a_value_where_one_may_be_missing) {
    struct fault fault = {0};
    struct json_object *value = NULL;
    cr_expect_eq(json_parse_value(SLICE_LITERAL(" null "), &value, &fault), CO_OK);
    cr_expect(!value && !fault.code);
    cr_expect_null(json_parse(SLICE_LITERAL("null"), &fault));
    cr_expect_eq(fault.code, CO_INVALID);
    fault = (struct fault){0};
    cr_expect_eq(json_parse_value(SLICE_LITERAL("nul"), &value, &fault), CO_INVALID);
    cr_expect(!value && fault.code == CO_INVALID);
}

Test(json_parse, integers_beyond_64_bits_are_doubles_where_any_value_may_stand) {
    struct json_object *value;
    struct fault fault = {0};
    cr_assert_eq(json_parse_value(SLICE_LITERAL("[18446744073709551615, 18446744073709551616,-9223372036854775809 ,"
                                                "123456789012345678901234567890, \"18446744073709551616\", 1]"),
                                  &value, &fault),
                 CO_OK, "%s", fault.text);
    cr_expect_eq(json_object_get_uint64(json_object_array_get_idx(value, 0)), UINT64_MAX);
    static const double wide[] = {0x1p64, -0x1p63, 123456789012345678901234567890.0};
    for (size_t i = 0; i < 3; i++) {
        struct json_object *item = json_object_array_get_idx(value, 1 + i);
        cr_expect(json_object_is_type(item, json_type_double));
        cr_expect_eq(json_object_get_double(item), wide[i]);
    }
    cr_expect_str_eq(json_object_get_string(json_object_array_get_idx(value, 4)), "18446744073709551616");
    cr_expect_eq(json_object_get_int64(json_object_array_get_idx(value, 5)), 1);
    json_object_put(value);
    cr_assert_eq(json_parse_value(SLICE_LITERAL("18446744073709551616"), &value, &fault), CO_OK);
    json_object_put(value);
    cr_expect_eq(json_parse_value(SLICE_LITERAL("[18446744073709551616, 18446744073709551616 x]"), &value, &fault),
                 CO_INVALID);
    cr_expect_str_eq(fault.text, "JSON: array value separator ',' expected at line 1, column 45", "%s", fault.text);
}

Test(json_parse, depth) {
    char text[400];
    for (int depth = 1; depth <= 200; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        struct fault fault = {0};
        struct json_object *object = json_parse(slice_make(text, (size_t)depth * 2), &fault);
        if (depth <= 60) cr_assert_not_null(object, "depth %d: %s", depth, fault.text);
        if (depth > 64) {
            cr_assert_null(object, "depth %d", depth);
            cr_assert_not_null(strstr(fault.text, "nested too deeply"), "%s", fault.text);
        }
        json_object_put(object);
    }
}

Test(json_get, spellings) {
    struct json_object *object =
        parse("{\"service_id\":\"a\",\"NODE\":\"b\",\"Check\":null,\"x\":1,\"X\":2,\"deep\":[]}");
    const char *text = NULL;
    json_get_string(object, "ServiceID", &text, NULL);
    cr_expect_str_eq(text, "a");
    json_get_string(object, "serviceid", &text, NULL);
    cr_expect_str_eq(text, "a");
    json_get_string(object, "Node", &text, NULL);
    cr_expect_str_eq(text, "b");
    cr_expect_null(json_get(object, "Service"));
    cr_expect_null(json_get(object, "Check"));
    cr_expect_null(json_get(json_get(object, "deep"), "Check"));
    cr_expect_null(json_get(NULL, "Check"));
    uint64_t number = 0;
    json_get_u64(object, "X", 10, &number, NULL);
    cr_expect_eq(number, 2, "the last one counts");
    json_object_put(object);
}

Test(json_get, absent_leaves_out_alone) {
    struct json_object *object = parse("{\"n\":null}");
    struct fault fault = {0};
    const char *text = "kept";
    struct slice slice = SLICE_LITERAL("kept");
    bool flag = true;
    uint64_t u = 7;
    int64_t i = 7, d = 7;
    static const char *const names[] = {"n", "absent"};
    for (int k = 0; k < 2; k++) {
        json_get_string(object, names[k], &text, &fault);
        json_get_slice(object, names[k], &slice, &fault);
        json_get_bool(object, names[k], &flag, &fault);
        json_get_u64(object, names[k], 1, &u, &fault);
        json_get_i64(object, names[k], &i, &fault);
        json_get_duration(object, names[k], &d, &fault);
        cr_expect_null(json_get_object(object, names[k], &fault));
        cr_expect_null(json_get_array(object, names[k], &fault));
    }
    cr_expect_eq(fault.code, CO_OK);
    cr_expect_str_eq(text, "kept");
    cr_expect(slice_is(slice, "kept"));
    cr_expect(flag && u == 7 && i == 7 && d == 7);
    json_object_put(object);
}

Test(json_get, unsigned_numbers) {
    static const struct {
        const char *text;
        uint64_t most;
        const char *fault; /* NULL: accepted */
        uint64_t value;
    } rows[] = {
        {"{\"p\":0}", 65535, NULL, 0},
        {"{\"p\":65535}", 65535, NULL, 65535},
        {"{\"p\":18446744073709551615}", UINT64_MAX, NULL, UINT64_MAX},
        {"{\"p\":3304740253564472344}", UINT64_MAX, NULL, 3304740253564472344u},
        {"{\"p\":9223372036854775807}", UINT64_MAX, NULL, INT64_MAX},
        {"{\"p\":9223372036854775808}", UINT64_MAX, NULL, (uint64_t)INT64_MAX + 1},
        {"{\"p\":70000}", 65535, "p: 70000 is above 65535", 0},
        {"{\"p\":18446744073709551615}", 65535, "p: 18446744073709551615 is above 65535", 0},
        {"{\"p\":-1}", 65535, "p: -1 is negative", 0},
        {"{\"p\":1.5}", 65535, "p: a whole number is wanted, not 1.5", 0},
        {"{\"p\":80.0}", 65535, "p: a whole number is wanted, not 80.0", 0},
        {"{\"p\":\"80\"}", 65535, "p: a whole number is wanted, not a string", 0},
        {"{\"p\":true}", 65535, "p: a whole number is wanted, not a boolean", 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct json_object *object = parse(rows[i].text);
        struct fault fault = {0};
        uint64_t value = 77;
        json_get_u64(object, "p", rows[i].most, &value, &fault);
        cr_expect_str_eq(fault.text, rows[i].fault ? rows[i].fault : "", "%s: %s", rows[i].text, fault.text);
        cr_expect_eq(value, rows[i].fault ? 77 : rows[i].value, "%s", rows[i].text);
        json_object_put(object);
    }
}

Test(json_get, signed_numbers) {
    static const struct {
        const char *text;
        bool fine;
        int64_t value;
    } rows[] = {
        {"{\"p\":-5}", true, -5},
        {"{\"p\":-9223372036854775808}", true, INT64_MIN},
        {"{\"p\":9223372036854775807}", true, INT64_MAX},
        {"{\"p\":9223372036854775808}", false, 0},
        {"{\"p\":1e3}", false, 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct json_object *object = parse(rows[i].text);
        struct fault fault = {0};
        int64_t value = 77;
        json_get_i64(object, "p", &value, &fault);
        cr_expect_eq(fault.code == CO_OK, rows[i].fine, "%s: %s", rows[i].text, fault.text);
        cr_expect_eq(value, rows[i].fine ? rows[i].value : 77, "%s", rows[i].text);
        json_object_put(object);
    }
}

Test(json_get, durations) {
    static const struct {
        const char *text, *fault;
        int64_t value;
    } rows[] = {
        {"{\"d\":\"10s\"}", NULL, 10000000000},
        {"{\"d\":\"0\"}", NULL, 0},
        {"{\"d\":15000000000}", NULL, 15000000000},
        {"{\"d\":\"10\"}", "d: invalid duration \"10\" (write it like 10s, 1m30s, 200ms)", 0},
        {"{\"d\":\"\"}", "d: invalid duration \"\" (write it like 10s, 1m30s, 200ms)", 0},
        {"{\"d\":\"9999999999h\"}", "d: too long a duration \"9999999999h\" (write it like 10s, 1m30s, 200ms)", 0},
        {"{\"d\":1.5}", "d: a duration like \"10s\" is wanted, not a number", 0},
        {"{\"d\":[]}", "d: a duration like \"10s\" is wanted, not an array", 0},
        {"{\"d\":\"10s\\u0000\"}", "d: invalid duration \"10s\" (write it like 10s, 1m30s, 200ms)", 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct json_object *object = parse(rows[i].text);
        struct fault fault = {0};
        int64_t value = 77;
        json_get_duration(object, "d", &value, &fault);
        cr_expect_str_eq(fault.text, rows[i].fault ? rows[i].fault : "", "%s: %s", rows[i].text, fault.text);
        cr_expect_eq(value, rows[i].fault ? 77 : rows[i].value, "%s", rows[i].text);
        json_object_put(object);
    }
}

Test(json_get, texts_and_types) {
    struct json_object *object = parse("{\"nul\":\"a\\u0000b\",\"n\":1,\"o\":{},\"a\":[],\"s\":\"x\"}");
    struct fault fault = {0};
    struct slice slice = {NULL, 0};
    json_get_slice(object, "nul", &slice, &fault);
    cr_expect(slice_equal(slice, slice_make("a\0b", 3)));
    cr_expect_not_null(json_get_object(object, "o", &fault));
    cr_expect_not_null(json_get_array(object, "a", &fault));
    cr_expect_eq(fault.code, CO_OK);
    const char *text = NULL;
    json_get_string(object, "nul", &text, &fault);
    cr_expect_null(text);
    cr_expect_str_eq(fault.text, "nul: holds a NUL character");
    fault = (struct fault){0};
    json_get_string(object, "n", &text, &fault);
    cr_expect_str_eq(fault.text, "n: a string is wanted, not a number");
    fault = (struct fault){0};
    bool flag = true;
    json_get_bool(object, "s", &flag, &fault);
    cr_expect_str_eq(fault.text, "s: a boolean is wanted, not a string");
    fault = (struct fault){0};
    cr_expect_null(json_get_array(object, "o", &fault));
    cr_expect_str_eq(fault.text, "o: an array is wanted, not an object");
    json_object_put(object);
}

Test(json_get, only_known) {
    static const char *const known[] = {"Name", "ServicePort", "Tags", NULL};
    struct json_object *object = parse("{\"name\":1,\"service_port\":2,\"Tags\":null}");
    struct fault fault = {0};
    json_only_known(object, known, &fault);
    cr_expect_eq(fault.code, CO_OK);
    json_object_put(object);
    object = parse("{\"Name\":1,\"Servce_Port\":2}");
    json_only_known(object, known, &fault);
    cr_expect_str_eq(fault.text, "unknown key \"Servce_Port\" (nearest: \"ServicePort\")");
    json_object_put(object);
}

Test(json_duplicates, keys_that_stand_twice) {
    static const struct {
        const char *text, *key;
        int line;
    } rows[] = {
        {"{}", NULL, 0},
        {"[1,{\"a\":1},{\"a\":2}]", NULL, 0},
        {"{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1}]}", NULL, 0},
        {"{\"a\":\"\\\"a\\\":1\",\"A\":\"a\",\"b\":\"a\"}", NULL, 0},
        {"{\"x{\":1,\"x}\":2,\"}\":3,\"{\":4}", NULL, 0},
        {"{\"a\":1,\"a\":1}", "\"a\"", 1},
        {"{\"a\":1,\n\"b\":{\"c\":1},\n\"a\" \t:2}", "\"a\"", 3},
        {"[{\"b\":[{\"x\":{},\"y\":[],\"x\":1}]}]", "\"x\"", 1},
        {"{\"q\\\"\":1,\"z\":{\"q\\\"\":2},\"q\\\"\":3}", "\"q\\\"\"", 1},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        json_object_put(parse(rows[i].text));
        int error = json_refuse_duplicates(slice_text(rows[i].text), &fault);
        cr_assert_eq(error, rows[i].key ? CO_INVALID : CO_OK, "%s: %s", rows[i].text, fault.text);
        if (!rows[i].key) continue;
        char line[32];
        snprintf(line, sizeof line, "at line %d", rows[i].line);
        cr_assert(strstr(fault.text, rows[i].key) && strstr(fault.text, line), "%s: %s", rows[i].text, fault.text);
    }
}
