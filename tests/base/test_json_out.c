#include <criterion/criterion.h>
#include <float.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/random.h"

static struct buffer out;
static struct json_out json;

static void begin(bool pretty) {
    buffer_reset(&out);
    json_out_init(&json, &out, pretty);
}

static void expect(const char *text) {
    cr_expect(slice_is(buffer_slice(&out), text), "%.*s\n  is not\n%s", (int)out.size, out.data, text);
}

static void write_sample(void) {
    json_object(&json);
    json_key(&json, "Node");
    json_string(&json, "a");
    json_key(&json, "Tags");
    json_array(&json);
    json_string(&json, "x");
    json_string(&json, NULL);
    json_array_end(&json);
    json_key(&json, "Meta");
    json_object(&json);
    json_object_end(&json);
    json_key(&json, "None");
    json_array(&json);
    json_array_end(&json);
    json_key_slice(&json, SLICE_LITERAL("a\"b"));
    json_array(&json);
    json_object(&json);
    json_key(&json, "Port");
    json_u64(&json, 80);
    json_object_end(&json);
    json_object(&json);
    json_key(&json, "OK");
    json_bool(&json, true);
    json_key(&json, "Raw");
    json_raw(&json, SLICE_LITERAL("[1,2]"));
    json_object_end(&json);
    json_null(&json);
    json_array_end(&json);
    json_object_end(&json);
}

Test(json_out, compact) {
    begin(false);
    write_sample();
    expect(
        "{\"Node\":\"a\",\"Tags\":[\"x\",\"\"],\"Meta\":{},\"None\":[],\"a\\\"b\":[{\"Port\":80},"
        "{\"OK\":true,\"Raw\":[1,2]},null]}");
    buffer_free(&out);
}

Test(json_out, pretty) {
    begin(true);
    write_sample();
    expect(
        "{\n    \"Node\": \"a\",\n    \"Tags\": [\n        \"x\",\n        \"\"\n    ],\n    \"Meta\": {},\n"
        "    \"None\": [],\n    \"a\\\"b\": [\n        {\n            \"Port\": 80\n        },\n        {\n"
        "            \"OK\": true,\n            \"Raw\": [1,2]\n        },\n        null\n    ]\n}");
    buffer_free(&out);
}

Test(json_out, strings) {
    static const struct {
        const char *text, *written;
    } rows[] = {
        {"", "\"\""},
        {"plain", "\"plain\""},
        {"a longer text without anything to escape", "\"a longer text without anything to escape\""},
        {"0123456789abcde\"f", "\"0123456789abcde\\\"f\""},
        {"0123456789abcdef<", "\"0123456789abcdef\\u003c\""},
        {"0123456789abcdefghijklmnopqrstu\\", "\"0123456789abcdefghijklmnopqrstu\\\\\""},
        {"0123456789ab\x01"
         "0123456789",
         "\"0123456789ab\\u00010123456789\""},
        {"<a href=\"x\">&</a>", "\"\\u003ca href=\\\"x\\\"\\u003e\\u0026\\u003c/a\\u003e\""},
        {"\b\f\n\r\t\x1f\x7f", "\"\\u0008\\u000c\\n\\r\\t\\u001f\x7f\""},
        {"\u00e4\u20ac\U0001f600", "\"\u00e4\u20ac\U0001f600\""},
        {"a\u2028b\u2029c\u2027\u202a", "\"a\\u2028b\\u2029c\u2027\u202a\""},
        {"\xff", "\"\\ufffd\""},
        {"\xe2\x82", "\"\\ufffd\\ufffd\""},
        {"\xe2\x82z", "\"\\ufffd\\ufffdz\""},
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},
        {"\xef\xbf\xbd", "\"\xef\xbf\xbd\""},
        {"0123456789abcdef\xc3\xa4\xc3", "\"0123456789abcdef\u00e4\\ufffd\""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        begin(false);
        json_string(&json, rows[i].text);
        expect(rows[i].written);
    }
    begin(false);
    json_slice(&json, slice_make("a\0b", 3));
    expect("\"a\\u0000b\"");
    buffer_free(&out);
}

/* Every byte at every place of a block: what is written reads back. */
Test(json_out, strings_read_back) {
    char text[40];
    for (int byte = 0; byte < 128; byte++) {
        for (size_t at = 0; at < sizeof text; at++) {
            memset(text, 'x', sizeof text);
            text[at] = (char)byte;
            begin(false);
            json_array(&json);
            json_slice(&json, slice_make(text, sizeof text));
            json_array_end(&json);
            struct json_object *back = json_parse(buffer_slice(&out), NULL);
            cr_assert_not_null(back, "byte %d at %zu", byte, at);
            struct json_object *value = json_object_array_get_idx(back, 0);
            struct slice read = slice_make(json_object_get_string(value), (size_t)json_object_get_string_len(value));
            cr_assert(slice_equal(read, slice_make(text, sizeof text)), "byte %d at %zu", byte, at);
            json_object_put(back);
        }
    }
    buffer_free(&out);
}

Test(json_out, numbers) {
    begin(false);
    json_array(&json);
    json_u64(&json, UINT64_MAX);
    json_i64(&json, INT64_MIN);
    json_i64(&json, INT64_MAX);
    json_i64(&json, 0);
    json_i64(&json, -7);
    json_bool(&json, false);
    json_array_end(&json);
    expect("[18446744073709551615,-9223372036854775808,9223372036854775807,0,-7,false]");
    buffer_free(&out);
}

Test(json_out, doubles) {
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {-1.5, "-1.5"},
        {0.1, "0.1"},
        {100, "100"},
        {123456.789, "123456.789"},
        {1.0 / 3, "0.3333333333333333"},
        {1e20, "100000000000000000000"},
        {1e21, "1e+21"},
        {1.5e300, "1.5e+300"},
        {1e-6, "0.000001"},
        {1e-7, "1e-7"},
        {1.25e-9, "1.25e-9"},
        {1e-10, "1e-10"},
        {123e-20, "1.23e-18"},
        {5e-324, "5e-324"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {0.30000000000000004, "0.30000000000000004"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        begin(false);
        json_double(&json, rows[i].value);
        expect(rows[i].text);
    }
    struct rng rng;
    rng_seed(&rng, 5);
    for (int i = 0; i < 5000; i++) {
        double value = (double)rng_next(&rng) / (double)(rng_next(&rng) >> rng_below(&rng, 60));
        if (value > DBL_MAX) continue;
        begin(false);
        json_double(&json, value);
        buffer_append_byte(&out, '\0');
        cr_assert_eq(strtod(out.data, NULL), value);
    }
    buffer_free(&out);
}

Test(json_out, base64) {
    begin(false);
    json_array(&json);
    json_base64(&json, SLICE_LITERAL("foob"));
    json_base64(&json, SLICE_LITERAL(""));
    json_array_end(&json);
    expect("[\"Zm9vYg==\",\"\"]");
    buffer_free(&out);
}
