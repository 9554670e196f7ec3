#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

#define MS     INT64_C(1000000)
#define SECOND INT64_C(1000000000)

Test(duration, parse) {
    static const struct {
        const char *text;
        int error;
        int64_t value;
    } rows[] = {
        {"0", CO_OK, 0},
        {"-0", CO_OK, 0},
        {"0s", CO_OK, 0},
        {"10s", CO_OK, 10 * SECOND},
        {"+10s", CO_OK, 10 * SECOND},
        {"-1s", CO_OK, -SECOND},
        {"200ms", CO_OK, 200 * MS},
        {"1h30m", CO_OK, 5400 * SECOND},
        {"1h0m0.5s", CO_OK, 3600 * SECOND + 500 * MS},
        {"1.880957841873169s", CO_OK, 1880957841},
        {".5s", CO_OK, 500 * MS},
        {"1.s", CO_OK, SECOND},
        {"3us", CO_OK, 3000},
        {"3\u00b5s", CO_OK, 3000},
        {"3\u03bcs", CO_OK, 3000},
        {"7ns", CO_OK, 7},
        {"0.0000000000000000000000001s", CO_OK, 0},
        {"0.9999999999999999999999999s", CO_OK, 999999999},
        {"9223372036854775807ns", CO_OK, INT64_MAX},
        {"2562047h47m16.854775807s", CO_OK, INT64_MAX},
        {"9223372036854775808ns", CO_TOOLARGE, 0},
        {"99999999999999999999s", CO_TOOLARGE, 0},
        {"2562048h", CO_TOOLARGE, 0},
        {"2562047h60m", CO_TOOLARGE, 0},
        {"", CO_INVALID, 0},
        {"-", CO_INVALID, 0},
        {"10", CO_INVALID, 0},
        {"00", CO_INVALID, 0},
        {"s", CO_INVALID, 0},
        {".s", CO_INVALID, 0},
        {"1.2.3s", CO_INVALID, 0},
        {"10 s", CO_INVALID, 0},
        {" 10s", CO_INVALID, 0},
        {"10s ", CO_INVALID, 0},
        {"10S", CO_INVALID, 0},
        {"1d", CO_INVALID, 0},
        {"--1s", CO_INVALID, 0},
        {"1s-1s", CO_INVALID, 0},
        {"1e3s", CO_INVALID, 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        int64_t value = 77;
        int error = duration_parse(slice_text(rows[i].text), &value);
        cr_expect_eq(error, rows[i].error, "\"%s\": %s", rows[i].text, co_strerror(error));
        cr_expect_eq(value, rows[i].error ? 77 : rows[i].value, "\"%s\": %ld", rows[i].text, (long)value);
    }
}

Test(duration, format) {
    static const struct {
        int64_t value;
        const char *text;
    } rows[] = {
        {0, "0s"},
        {1, "1ns"},
        {1100, "1.1\u00b5s"},
        {2200000, "2.2ms"},
        {200 * MS, "200ms"},
        {SECOND, "1s"},
        {1500 * MS, "1.5s"},
        {10 * SECOND, "10s"},
        {60 * SECOND, "1m0s"},
        {90 * SECOND, "1m30s"},
        {3600 * SECOND, "1h0m0s"},
        {3661 * SECOND + 1, "1h1m1.000000001s"},
        {-SECOND, "-1s"},
        {INT64_MAX, "2562047h47m16.854775807s"},
        {INT64_MIN, "-2562047h47m16.854775808s"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer out = {0};
        duration_format(&out, rows[i].value);
        cr_expect(slice_is(buffer_slice(&out), rows[i].text), "%.*s is not %s", (int)out.size, out.data, rows[i].text);
        buffer_free(&out);
    }
}

Test(duration, round_trip) {
    struct rng rng;
    rng_seed(&rng, 1);
    struct buffer out = {0};
    for (int i = 0; i < 20000; i++) {
        int64_t value = (int64_t)(rng_next(&rng) >> rng_between(&rng, 1, 62)), back = -1;
        buffer_reset(&out);
        duration_format(&out, value);
        cr_assert_eq(duration_parse(buffer_slice(&out), &back), CO_OK);
        cr_assert_eq(back, value);
    }
    buffer_free(&out);
}

Test(number, u64) {
    static const struct {
        const char *text;
        uint64_t most;
        int error;
        uint64_t value;
    } rows[] = {
        {"0", 10, CO_OK, 0},
        {"007", 10, CO_OK, 7},
        {"10", 10, CO_OK, 10},
        {"11", 10, CO_TOOLARGE, 0},
        {"18446744073709551615", UINT64_MAX, CO_OK, UINT64_MAX},
        {"18446744073709551616", UINT64_MAX, CO_TOOLARGE, 0},
        {"99999999999999999999999", UINT64_MAX, CO_TOOLARGE, 0},
        {"99999999999999999999999x", UINT64_MAX, CO_INVALID, 0},
        {"", 10, CO_INVALID, 0},
        {"-1", 10, CO_INVALID, 0},
        {"+1", 10, CO_INVALID, 0},
        {" 1", 10, CO_INVALID, 0},
        {"1 ", 10, CO_INVALID, 0},
        {"0x1", 10, CO_INVALID, 0},
        {"1.0", 10, CO_INVALID, 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        uint64_t value = 77;
        cr_expect_eq(u64_parse(slice_text(rows[i].text), rows[i].most, &value), rows[i].error, "\"%s\"", rows[i].text);
        cr_expect_eq(value, rows[i].error ? 77 : rows[i].value, "\"%s\"", rows[i].text);
    }
}

Test(number, decimal) {
    static const struct {
        const char *text;
        int error;
        double value;
    } rows[] = {
        {"0", CO_OK, 0},
        {"0.42", CO_OK, 0.42},
        {"-1.5", CO_OK, -1.5},
        {"+2", CO_OK, 2},
        {"1e3", CO_OK, 1000},
        {".5", CO_OK, 0.5},
        {"5.", CO_OK, 5},
        {"1e300", CO_OK, 1e300},
        {"1e309", CO_INVALID, 0},
        {"", CO_INVALID, 0},
        {"nan", CO_INVALID, 0},
        {"inf", CO_INVALID, 0},
        {"0x1p3", CO_INVALID, 0},
        {"1,5", CO_INVALID, 0},
        {" 1", CO_INVALID, 0},
        {"1 ", CO_INVALID, 0},
        {"e", CO_INVALID, 0},
        {"1.2.3", CO_INVALID, 0},
        {"--1", CO_INVALID, 0},
        {".", CO_INVALID, 0},
        {"1111111111111111111111111111111111111111111111111111111111111111", CO_INVALID, 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        double value = 77;
        cr_expect_eq(decimal_parse(slice_text(rows[i].text), &value), rows[i].error, "\"%s\"", rows[i].text);
        cr_expect_eq(value, rows[i].error ? 77 : rows[i].value, "\"%s\"", rows[i].text);
    }
}

Test(base64, known) {
    static const struct {
        const char *plain, *coded;
    } rows[] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xff\xef\xbe", "/+++"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer out = {0};
        base64_encode(&out, rows[i].plain, strlen(rows[i].plain));
        cr_expect(slice_is(buffer_slice(&out), rows[i].coded), "row %zu", i);
        buffer_reset(&out);
        cr_expect_eq(base64_decode(&out, slice_text(rows[i].coded)), CO_OK);
        cr_expect(slice_is(buffer_slice(&out), rows[i].plain), "row %zu", i);
        buffer_free(&out);
    }
}

Test(base64, refused) {
    static const char *const rows[] = {"Z",    "Zg",   "Zg=",  "Zh==",  "Zm9=",     "Zg==Zg==", "=",     "====",
                                       "Z===", "Zm9-", "Zm9_", "Zm9v ", "Zm9v\nZg", "Zm=v",     "Zm9v=", "Zg==="};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer out = {0};
        buffer_append_text(&out, "kept");
        cr_expect_eq(base64_decode(&out, slice_text(rows[i])), CO_INVALID, "\"%s\"", rows[i]);
        cr_expect(slice_is(buffer_slice(&out), "kept"), "\"%s\"", rows[i]);
        buffer_free(&out);
    }
}

Test(base64, round_trip) {
    struct rng rng;
    rng_seed(&rng, 2);
    struct buffer coded = {0}, plain = {0};
    char data[300];
    for (size_t size = 0; size < sizeof data; size++) {
        for (size_t i = 0; i < size; i++) data[i] = (char)rng_next(&rng);
        buffer_reset(&coded);
        buffer_reset(&plain);
        base64_encode(&coded, data, size);
        cr_assert_eq(base64_decode(&plain, buffer_slice(&coded)), CO_OK);
        cr_assert(slice_equal(buffer_slice(&plain), slice_make(data, size)));
    }
    buffer_free(&coded);
    buffer_free(&plain);
}

Test(base64, url) {
    static const struct {
        const char *coded, *plain; /* NULL: refused */
    } rows[] = {
        {"", ""},        {"Zg", "f"},     {"Zm8", "fo"}, {"Zm9v", "foo"}, {"Zm9vYg", "foob"}, {"_--_", "\xff\xef\xbf"},
        {"Z", NULL},     {"Zg==", NULL},  {"Zh", NULL},  {"Zm9", NULL},   {"Zm9vY", NULL},    {"/++/", NULL},
        {"Zm9v=", NULL}, {"Zm 9v", NULL}, {"Zg.", NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer out = {0};
        buffer_append_text(&out, "<");
        cr_expect_eq(base64url_decode(&out, slice_text(rows[i].coded)), rows[i].plain ? CO_OK : CO_INVALID, "%s",
                     rows[i].coded);
        cr_expect(slice_is(slice_make(out.data + 1, out.size - 1), rows[i].plain ? rows[i].plain : ""), "%s",
                  rows[i].coded);
        buffer_free(&out);
    }
}

Test(percent, decode) {
    static const struct {
        const char *text;
        bool plus;
        const char *decoded; /* NULL: refused */
    } rows[] = {
        {"", false, ""},      {"abc", false, "abc"},   {"a%20b", false, "a b"},     {"a+b", false, "a+b"},
        {"a+b", true, "a b"}, {"%2F%2f", false, "//"}, {"%C3%A4", false, "\u00e4"}, {"%25", false, "%"},
        {"%2B", true, "+"},   {"%", false, NULL},      {"%4", false, NULL},         {"abc%", false, NULL},
        {"%zz", false, NULL}, {"%4g", false, NULL},    {"%00", false, NULL},        {"a%00b", false, NULL},
        {"%-1", false, NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char out[16];
        size_t size = 77;
        int error = percent_decode(slice_text(rows[i].text), rows[i].plus, out, &size);
        cr_expect_eq(error, rows[i].decoded ? CO_OK : CO_INVALID, "\"%s\"", rows[i].text);
        if (rows[i].decoded) cr_expect(slice_is(slice_make(out, size), rows[i].decoded), "\"%s\"", rows[i].text);
    }
    char out[3];
    size_t size;
    cr_expect_eq(percent_decode(slice_make("a\0b", 3), false, out, &size), CO_INVALID);
}

Test(utf8, valid) {
    static const struct {
        const char *text;
        bool valid;
    } rows[] = {
        {"", true},
        {"plain ascii of some length", true},
        {"12345678\u00e4", true},
        {"\u00e4\u20ac\U0001f600", true},
        {"\x7f", true},
        {"\xc2\x80", true},
        {"\xed\x9f\xbf", true},
        {"\xee\x80\x80", true},
        {"\xf4\x8f\xbf\xbf", true},
        {"\x80", false},
        {"\xbf", false},
        {"\xc0\x80", false},
        {"\xc1\xbf", false},
        {"\xc2", false},
        {"\xc2 ", false},
        {"\xe0\x80\x80", false},
        {"\xe0\x9f\xbf", false},
        {"\xe2\x82", false},
        {"\xe2\x82 ", false},
        {"\xed\xa0\x80", false},
        {"\xf0\x8f\xbf\xbf", false},
        {"\xf4\x90\x80\x80", false},
        {"\xf5\x80\x80\x80", false},
        {"\xff", false},
        {"1234567\xff", false},
        {"12345678\xff", false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        cr_expect_eq(utf8_valid(slice_text(rows[i].text)), rows[i].valid, "row %zu", i);
    }
    cr_expect_eq(utf8_next(SLICE_LITERAL("\u20acx")), 3);
    cr_expect_eq(utf8_next(SLICE_LITERAL("x")), 1);
    cr_expect_eq(utf8_next(SLICE_LITERAL("")), 0);
    cr_expect_eq(utf8_next(SLICE_LITERAL("\x80")), 0);
}

Test(utf8, taken_and_cut) {
    struct slice text = slice_text("a\u00e4\u20ac\U0001f600\xff!");
    static const uint32_t wanted[] = {'a', 0xe4, 0x20ac, 0x1f600, 0xfffd, '!'};
    static const size_t cuts[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 12, 12};
    for (size_t most = 0; most < sizeof cuts / sizeof *cuts; most++) {
        cr_expect_eq(utf8_cut(text, most).size, cuts[most], "%zu", most);
    }
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        cr_assert(text.size > 0);
        cr_expect_eq(utf8_take(&text), wanted[i], "%zu", i);
    }
    cr_expect_eq(text.size, 0);
}

Test(uuid, both_ways) {
    static const uint8_t bytes[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 1, 2, 3, 4, 5, 6, 0xff};
    char text[UUID_TEXT_SIZE];
    uuid_format(bytes, text);
    cr_expect(slice_is(slice_make(text, sizeof text), "01234567-89ab-cdef-0001-0203040506ff"));
    cr_expect(uuid_valid(slice_make(text, sizeof text)));
    static const char *const wrong[] = {"",
                                        "01234567-89ab-cdef-0001-0203040506f",
                                        "01234567-89ab-cdef-0001-0203040506fff",
                                        "01234567089ab-cdef-0001-0203040506f-",
                                        "g1234567-89ab-cdef-0001-0203040506ff",
                                        "01234567-89ab-cdef-0001_0203040506ff"};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) cr_expect_not(uuid_valid(slice_text(wrong[i])), "%s", wrong[i]);
}

Test(edit_distance, table) {
    static const struct {
        const char *a, *b;
        unsigned distance;
    } rows[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"abc", "", 3},
        {"abc", "abc", 0},
        {"kitten", "sitting", 3},
        {"server", "sevrer", 1},
        {"datacenter", "datacentre", 1},
        {"ab", "ba", 1},
        {"-htpp-port", "-http-port", 1},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        cr_expect_eq(edit_distance(slice_text(rows[i].a), slice_text(rows[i].b)), rows[i].distance, "%s", rows[i].a);
    }
    char longer[1000];
    memset(longer, 'x', sizeof longer);
    cr_expect_eq(edit_distance(slice_make(longer, sizeof longer), SLICE_LITERAL("")), 64);
}
