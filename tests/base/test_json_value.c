#include <criterion/criterion.h>
#include <math.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/json_value.h"

/* The item of an array: json_parse gives no null. */
static struct json_object *parse(const char *text) {
    struct buffer array = {0};
    struct fault fault = {0};
    buffer_printf(&array, "[%s]", text);
    struct json_object *json = json_parse(buffer_slice(&array), &fault);
    cr_assert_not_null(json, "%s: %s", text, fault.text);
    buffer_free(&array);
    struct json_object *item = json_object_get(json_object_array_get_idx(json, 0));
    json_object_put(json);
    return item;
}

Test(json_value, numbers_in_order) {
    static const char *const rows[] = {
        "-1e400",
        "-9223372036854775809.0e1",
        "-18446744073709551616.0",
        "-9223372036854775808",
        "-9223372036854775807",
        "-9007199254740993",
        "-9007199254740992.0",
        "-1.5",
        "-1",
        "-0.5",
        "0",
        "1e-300",
        "0.5",
        "1",
        "1.5",
        "2",
        "9007199254740992.0",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808.0",
        "9223372036854775809",
        "18446744073709551615",
        "18446744073709551616.0",
        "1e400",
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        for (size_t j = 0; j < ARRAY_COUNT(rows); j++) {
            struct json_object *a = parse(rows[i]), *b = parse(rows[j]);
            int order = json_number_compare(a, b);
            cr_expect_eq((order > 0) - (order < 0), (i > j) - (i < j), "%s %s", rows[i], rows[j]);
            json_object_put(a);
            json_object_put(b);
        }
    }
}

Test(json_value, whole) {
    static const struct {
        const char *text;
        bool whole;
    } rows[] = {{"1", true},     {"1.0", true},    {"1.5", false}, {"-2e0", true},
                {"1e300", true}, {"1e400", false}, {"-0.0", true}, {"1e-300", false}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct json_object *value = parse(rows[i].text);
        cr_expect_eq(json_is_whole(value), rows[i].whole, "%s", rows[i].text);
        json_object_put(value);
    }
}

Test(json_value, counts) {
    static const struct {
        const char *text;
        bool fine;
        uint64_t count;
    } rows[] = {{"0", true, 0},
                {"2.0", true, 2},
                {"9007199254740992", true, 1ull << 53},
                {"9007199254740993", false, 0},
                {"-1", false, 0},
                {"-1.0", false, 0},
                {"1.5", false, 0},
                {"1e300", false, 0},
                {"\"1\"", false, 0},
                {"true", false, 0},
                {"null", false, 0}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct json_object *value = parse(rows[i].text);
        uint64_t count = 0;
        cr_expect_eq(json_is_count(value, &count), rows[i].fine, "%s", rows[i].text);
        cr_expect_eq(count, rows[i].count, "%s", rows[i].text);
        json_object_put(value);
    }
}

Test(json_value, multiples) {
    static const struct {
        const char *number, *of;
        bool is;
    } rows[] = {
        {"10", "2", true},
        {"7", "2", false},
        {"0", "1.5", true},
        {"-0.0", "3", true},
        {"4.5", "1.5", true},
        {"-4.5", "1.5", true},
        {"35", "1.5", false},
        {"0.0075", "0.0001", true},
        {"0.00751", "0.0001", false},
        {"19.99", "0.01", true},
        {"0.3", "0.1", true},
        {"1e300", "3", false},
        {"3e300", "3", true},
        {"1e308", "0.123456789", false},
        {"1", "1e-300", true},
        {"1e-300", "1", false},
        {"1e-5", "1e-300", true},
        {"18446744073709551615", "5", true},
        {"18446744073709551615", "18446744073709551614", false},
        {"-9223372036854775808", "2", true},
        {"18446744073709551615", "1.8446744073709552e19", false},
        {"1e400", "2", false},
        {"1.5", "1e308", false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct json_object *number = parse(rows[i].number), *of = parse(rows[i].of);
        cr_expect_eq(json_number_is_multiple(number, of), rows[i].is, "%s %s", rows[i].number, rows[i].of);
        json_object_put(number);
        json_object_put(of);
    }
}

Test(json_value, same) {
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"1", "1.0", true},
        {"1", "1.00e0", true},
        {"0", "-0.0", true},
        {"9007199254740993", "9007199254740992.0", false},
        {"18446744073709551615", "-1", false},
        {"1", "true", false},
        {"0", "false", false},
        {"0", "null", false},
        {"null", "null", true},
        {"null", "false", false},
        {"\"a\"", "\"a\"", true},
        {"\"a\"", "\"b\"", false},
        {"\"a\\u0000b\"", "\"a\\u0000c\"", false},
        {"\"1\"", "1", false},
        {"[1,[2]]", "[1.0,[2]]", true},
        {"[1,2]", "[2,1]", false},
        {"[1]", "[1,1]", false},
        {"[]", "{}", false},
        {"{\"a\":1,\"b\":{\"c\":null}}", "{\"b\":{\"c\":null},\"a\":1.0}", true},
        {"{\"a\":null}", "{\"b\":null}", false},
        {"{\"a\":1}", "{\"a\":1,\"b\":1}", false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct json_object *a = parse(rows[i].a), *b = parse(rows[i].b);
        uint64_t steps = 100, again = 100, few = 1;
        cr_expect_eq(json_same(a, b, &steps), rows[i].same, "%s %s", rows[i].a, rows[i].b);
        cr_expect_eq(json_same(b, a, &again), rows[i].same, "%s %s", rows[i].a, rows[i].b);
        cr_expect(steps > 0 && steps < 100);
        cr_expect(!json_same(a, b, &few) && few == 0);
        json_object_put(a);
        json_object_put(b);
    }
}

static struct json_object *nested(unsigned depth) {
    struct json_object *json = json_object_new_array();
    for (unsigned i = 1; i < depth; i++) {
        struct json_object *above = json_object_new_array();
        json_object_array_add(above, json);
        json = above;
    }
    return json;
}

/* json_object_put would call itself as deep as it is. */
static void put_nested(struct json_object *json) {
    while (json) {
        struct json_object *item = json_object_get(json_object_array_get_idx(json, 0));
        if (item) json_object_array_del_idx(json, 0, 1);
        json_object_put(json);
        json = item;
    }
}

Test(json_value, same_ends_in_the_deep) {
    struct json_object *a = nested(64), *b = nested(64), *c = nested(100000), *d = nested(100000);
    uint64_t steps = 1000000;
    cr_expect(json_same(a, b, &steps));
    cr_expect_not(json_same(c, d, &steps));
    cr_expect_eq(steps, 0);
    json_object_put(a);
    json_object_put(b);
    put_nested(c);
    put_nested(d);
}

Test(json_value, shown) {
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"null", "null"},
        {"true", "true"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"18446744073709551615", "18446744073709551615"},
        {"1.50", "1.5"},
        {"1e400", "a number beyond all bounds"},
        {"\"http\"", "\"http\""},
        {"\"0123456789012345678901234567890123456789\"", "\"0123456789012345678901234567890123456789\""},
        {"\"01234567890123456789012345678901234567890\"", "\"0123456789012345678901234567890123456789...\""},
        {"\"012345678901234567890123456789012345678\u00e4\"", "\"012345678901234567890123456789012345678...\""},
        {"[]", "an array of 0 items"},
        {"[null]", "an array of 1 item"},
        {"{\"a\":1,\"b\":2}", "an object of 2 members"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct json_object *value = parse(rows[i].text);
        struct buffer out = {0};
        json_value_show(&out, value);
        cr_expect(slice_is(buffer_slice(&out), rows[i].shown), "%.*s", (int)out.size, out.data);
        buffer_free(&out);
        json_object_put(value);
    }
}
