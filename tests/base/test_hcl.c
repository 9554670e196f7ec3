#include <criterion/criterion.h>

#include "base/check.h"
#include "base/hcl.h"
#include "base/json_in.h"
#include "base/text.h"

static struct json_object *parse(const char *text) {
    struct fault fault = {0};
    struct json_object *tree = hcl_parse(slice_text(text), &fault);
    cr_assert_not_null(tree, "%s: %s", text, fault.text);
    return tree;
}

struct row {
    const char *text, *json;
};

static void expect_same(const struct row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct fault fault = {0};
        struct json_object *tree = parse(rows[i].text), *wanted = json_parse(slice_text(rows[i].json), &fault);
        cr_assert_not_null(wanted, "row %zu: %s", i, fault.text);
        cr_expect(json_object_equal(tree, wanted), "%s\nis     %s\nwanted %s", rows[i].text,
                  json_object_to_json_string(tree), rows[i].json);
        json_object_put(tree);
        json_object_put(wanted);
    }
}

Test(hcl, values) {
    static const struct row rows[] = {
        {"", "{}"},
        {"\n \t\r\n", "{}"},
        {"a = \"b\"", "{\"a\":\"b\"}"},
        {"a=1 b=-2", "{\"a\":1,\"b\":-2}"},
        {"a = 1,\nb = 2,\n", "{\"a\":1,\"b\":2}"},
        {"a = true\nb = false", "{\"a\":true,\"b\":false}"},
        {"a = 0\nb = 007\nc = 042\nd = -010", "{\"a\":0,\"b\":7,\"c\":34,\"d\":-8}"},
        {"a = 0x1F\nb = -0Xff\nc = 0x0", "{\"a\":31,\"b\":-255,\"c\":0}"},
        {"a = 9223372036854775807\nb = -9223372036854775808", "{\"a\":9223372036854775807,\"b\":-9223372036854775808}"},
        {"a = 1.5\nb = -0.25\nc = .5\nd = 3.\ne = 01.5", "{\"a\":1.5,\"b\":-0.25,\"c\":0.5,\"d\":3.0,\"e\":1.5}"},
        {"a = 1e3\nb = 1E+3\nc = 25e-1\nd = 1.2e2", "{\"a\":1e3,\"b\":1e3,\"c\":2.5,\"d\":120.0}"},
        {"a-b = 1\nc.d = 2\n_e = 3\n\"f g\" = 4\n\"\" = 5\ngr\xc3\xbc\xc3\x9f = 6",
         "{\"a-b\":1,\"c.d\":2,\"_e\":3,\"f g\":4,\"\":5,\"gr\xc3\xbc\xc3\x9f\":6}"},
        {"trueish = 1", "{\"trueish\":1}"},
        {"\"true\" = 1", "{\"true\":1}"},
        {"a = []", "{\"a\":[]}"},
        {"a = [1, \"b\", true, [2.5], []]", "{\"a\":[1,\"b\",true,[2.5],[]]}"},
        {"a = [\n  1, # one\n  2,\n]", "{\"a\":[1,2]}"},
        {"a = [{ b = 1 }, {}]", "{\"a\":[{\"b\":1},{}]}"},
        {"a = [{ b = { c = [{}] } }]", "{\"a\":[{\"b\":[{\"c\":[{}]}]}]}"},
        {"a = [1,\n<<E\nx\nE\n]", "{\"a\":[1,\"x\\n\"]}"},
    };
    expect_same(rows, ARRAY_COUNT(rows));
}

Test(hcl, blocks) {
    static const struct row rows[] = {
        {"a {}", "{\"a\":[{}]}"},
        {"a = {}", "{\"a\":[{}]}"},
        {"a { b = 1, c = 2 }", "{\"a\":[{\"b\":1,\"c\":2}]}"},
        {"a { b = 1 } a { c = 2 } a = { }", "{\"a\":[{\"b\":1},{\"c\":2},{}]}"},
        {"a \"b\" { c = 1 }", "{\"a\":[{\"b\":[{\"c\":1}]}]}"},
        {"a b \"c\" d {}", "{\"a\":[{\"b\":[{\"c\":[{\"d\":[{}]}]}]}]}"},
        {"a \"b\" {}\na \"c\" {}\na \"b\" {}", "{\"a\":[{\"b\":[{}]},{\"c\":[{}]},{\"b\":[{}]}]}"},
        {"a \"\" {}", "{\"a\":[{\"\":[{}]}]}"},
        {"a { b { c = 1 } b \"x\" { c = 2 } }", "{\"a\":[{\"b\":[{\"c\":1},{\"x\":[{\"c\":2}]}]}]}"},
        {"\"a\" b {}", "{\"a\":[{\"b\":[{}]}]}"},
        {"a = { \"b\" = { c = 1 } }", "{\"a\":[{\"b\":[{\"c\":1}]}]}"},
        {"A {} a {}", "{\"A\":[{}],\"a\":[{}]}"},
    };
    expect_same(rows, ARRAY_COUNT(rows));
}

Test(hcl, comments) {
    static const struct row rows[] = {
        {"# a = 1", "{}"},
        {"//", "{}"},
        {"/**/", "{}"},
        {"/* /* a = 1 */ b = 2", "{\"b\":2}"},
        {"a = 1 # b\n// c\nd /* e */ = /* f\n*/ 2 // g", "{\"a\":1,\"d\":2}"},
        {"a = \"# no comment // /* */\"", "{\"a\":\"# no comment // /* */\"}"},
        {"a {\r\n  # b\r\n  c = 1 // d\r\n}\r\n", "{\"a\":[{\"c\":1}]}"},
    };
    expect_same(rows, ARRAY_COUNT(rows));
}

Test(hcl, quoted_text) {
    static const struct row rows[] = {
        {"a = \"\"", "{\"a\":\"\"}"},
        {"a = \"\\a\\b\\f\\n\\r\\t\\v\\\\\\\"\"", "{\"a\":\"\\u0007\\b\\f\\n\\r\\t\\u000b\\\\\\\"\"}"},
        {"a = \"\\101\\x41\\u0041\\U00000041\"", "{\"a\":\"AAAA\"}"},
        {"a = \"\\303\\274 \\u00fc \\U0001F600 \\u20ac\"", "{\"a\":\"\xc3\xbc \xc3\xbc \\ud83d\\ude00 \\u20ac\"}"},
        {"a = \"x\\000y\"", "{\"a\":\"x\\u0000y\"}"},
        {"\"\\x41\" = 1", "{\"A\":1}"},
        {"a = \"$ $$ $x { } %{x}\"", "{\"a\":\"$ $$ $x { } %{x}\"}"},
        /* Inside of ${} stands everything as it is written: quotes, escapes, ends of lines. */
        {"a = \"${b}\"", "{\"a\":\"${b}\"}"},
        {"a = \"\\t${f(\"x\\t\", \"\\\\.\")}\\t\"", "{\"a\":\"\\t${f(\\\"x\\\\t\\\", \\\"\\\\\\\\.\\\")}\\t\"}"},
        {"a = \"${b { c } d} e\"", "{\"a\":\"${b { c } d} e\"}"},
        {"a = \"${b\r\n c}\"", "{\"a\":\"${b\\n c}\"}"},
        {"a = \"$${b}\"", "{\"a\":\"$${b}\"}"},
    };
    expect_same(rows, ARRAY_COUNT(rows));
}

Test(hcl, heredocs) {
    static const struct row rows[] = {
        {"a = <<EOF\nb\n c\nEOF\n", "{\"a\":\"b\\n c\\n\"}"},
        {"a = <<EOF\nEOF\nb = 1", "{\"a\":\"\",\"b\":1}"},
        {"a = <<X1\nEOF\n${\"x\\t\nX1 \nX1", "{\"a\":\"EOF\\n${\\\"x\\\\t\\nX1 \\n\"}"},
        {"a = <<EOF\r\nb\r\n\r\nEOF\r\n", "{\"a\":\"b\\n\\n\"}"},
        {"a = <<EOF\n  b\n  EOF\n", "{\"a\":\"  b\\n\"}"},
        /* Indented: all lines have what stands before the last one, or nothing is taken away. */
        {"a = <<-EOF\n    b\n     c\n    EOF\n", "{\"a\":\"b\\n c\\n\"}"},
        {"a = <<-EOF\n\tb\n\tEOF\n", "{\"a\":\"b\\n\"}"},
        {"a = <<-EOF\n  b\n c\n  EOF\n", "{\"a\":\"  b\\n c\\n\"}"},
        {"a = <<-EOF\n  b\n\n  EOF\n", "{\"a\":\"  b\\n\\n\"}"},
        {"a = <<-EOF\n  b\nEOF\n", "{\"a\":\"  b\\n\"}"},
        {"a = <<EOF\nb\nEOF,\nEOF\n", "{\"a\":\"b\\nEOF,\\n\"}"},
    };
    expect_same(rows, ARRAY_COUNT(rows));
}

Test(hcl, refused) {
    static const struct row rows[] = {
        {"a", "HCL: neither \"=\" nor \"{\" behind the name \"a\" at line 1, column 1"},
        {"x = 1\na []", "HCL: neither \"=\" nor \"{\" behind the name \"a\" at line 2, column 1"},
        {"a {\n  b\n}", "HCL: neither \"=\" nor \"{\" behind the name \"b\" at line 2, column 3"},
        {"a =", "HCL: a value is missing before at line 1, column 4"},
        {"a {\n  b =\n}", "HCL: a value is missing before \"}\" at line 3, column 1"},
        {"a = b", "HCL: text without quotes: \"b\" at line 1, column 5"},
        {"a {\n b =\n c = 7\n}", "HCL: text without quotes: \"c\" at line 3, column 2"},
        {"= 1", "HCL: a name is missing before \"=\" at line 1, column 1"},
        {"a {{}}", "HCL: a name is missing before \"{\" at line 1, column 4"},
        {"12 {}", "HCL: a name is missing before \"12\" at line 1, column 1"},
        {"true = 1", "HCL: a name is missing before \"true\" at line 1, column 1"},
        {"a b", "HCL: a name is missing before at line 1, column 4"},
        {"a b = {}", "HCL: \"{\" is missing: behind labels stands no \"=\" at line 1, column 5"},
        {"a 1 {}", "HCL: neither \"=\" nor \"{\" behind the name \"a\" at line 1, column 1"},
        {"a b 1 {}", "HCL: a name is missing before \"1\" at line 1, column 5"},
        {"a = \"x\" {}", "HCL: a name is missing before \"{\" at line 1, column 9"},
        {"a { b = 1", "HCL: \"{\" without its \"}\" at line 1, column 3"},
        {"a { a { a {\n b = 1\n\nc {\n}", "HCL: \"{\" without its \"}\" at line 1, column 11"},
        {"a {}}", "HCL: a name is missing before \"}\" at line 1, column 5"},
        {"a = [1", "HCL: a list without its \"]\" at line 1, column 5"},
        {"a = [1,", "HCL: a list without its \"]\" at line 1, column 5"},
        {"a = [1 2]", "HCL: a comma is missing before \"2\" at line 1, column 8"},
        {"a = [[1] [2]]", "HCL: a comma is missing before \"[\" at line 1, column 10"},
        {"a = [{}\n{}]", "HCL: a comma is missing before \"{\" at line 2, column 1"},
        {"a = [1,,2]", "HCL: a value is missing before \",\" at line 1, column 8"},
        {"a = [,]", "HCL: a value is missing before \",\" at line 1, column 6"},
        {"a = 1,,", "HCL: a name is missing before \",\" at line 1, column 7"},
        {"a = 1\na = 2", "HCL: this name stands a second time: \"a\" at line 2, column 1"},
        {"a = [1]\na = [2]", "HCL: this name stands a second time: \"a\" at line 2, column 1"},
        {"a {}\na = 1", "HCL: this name stands a second time: \"a\" at line 2, column 1"},
        {"a = [{}]\na {}", "HCL: this name stands a second time: \"a\" at line 2, column 1"},
        {"a: 1", "HCL: a value stands behind \"=\", not \":\" at line 1, column 2"},
        {"a = 1;", "HCL: unexpected character \";\" at line 1, column 6"},
        {"a = 'b'", "HCL: unexpected character \"'\" at line 1, column 5"},
        {"a = /b", "HCL: unexpected character \"/\" at line 1, column 5"},
        {"a = -b", "HCL: unexpected character \"-\" at line 1, column 5"},
        {"\xef\xbb\xbf"
         "a = 1",
         "HCL: a byte order mark at line 1, column 1"},
        {"a = \"\xff\"", "HCL: bytes that are not UTF-8 at line 1, column 6"},
        {"/* a", "HCL: a comment without its end at line 1, column 1"},
        {"a = 1 /*/", "HCL: a comment without its end at line 1, column 7"},
        {"a = \"b", "HCL: text without a closing quote at line 1, column 5"},
        {"a = \"b\nc\"", "HCL: text without a closing quote at line 1, column 5"},
        {"a = \"b\\", "HCL: unknown escape \"\\\" at line 1, column 7"},
        {"a = \"\\q\"", "HCL: unknown escape \"\\q\" at line 1, column 6"},
        {"a = \"\\'\"", "HCL: unknown escape \"\\'\" at line 1, column 6"},
        {"a = \"\\400\"", "HCL: unknown escape \"\\4\" at line 1, column 6"},
        {"a = \"\\08\"", "HCL: unknown escape \"\\0\" at line 1, column 6"},
        {"a = \"\\x1\"", "HCL: unknown escape \"\\x\" at line 1, column 6"},
        {"a = \"\\ud800\"", "HCL: unknown escape \"\\u\" at line 1, column 6"},
        {"a = \"\\U00110000\"", "HCL: unknown escape \"\\U\" at line 1, column 6"},
        {"a = \"\\xff\"", "HCL: escapes that make no UTF-8 at line 1, column 5"},
        {"\"a\\x00\" = 1", "HCL: NUL in a name at line 1, column 1"},
        {"a = \"${b\"", "HCL: \"${\" without its \"}\" at line 1, column 6"},
        {"a = \"${b{}\"", "HCL: \"${\" without its \"}\" at line 1, column 6"},
        {"a = \"${\\q}\"", "HCL: unknown escape \"\\q\" at line 1, column 8"},
        {"a = <EOF\nb\nEOF\n", "HCL: a heredoc begins with <<NAME and the end of the line at line 1, column 5"},
        {"a = <<\nb\n", "HCL: a heredoc begins with <<NAME and the end of the line at line 1, column 5"},
        {"a = <<-\nb\n", "HCL: a heredoc begins with <<NAME and the end of the line at line 1, column 5"},
        {"a = <<E F\nb\n", "HCL: a heredoc begins with <<NAME and the end of the line at line 1, column 5"},
        {"a = <<EOF", "HCL: a heredoc begins with <<NAME and the end of the line at line 1, column 5"},
        {"a = <<EOF\nb\nEO\n", "HCL: a heredoc without its last line \"EOF\" at line 1, column 5"},
        {"<<EOF\na\nEOF\n {}", "HCL: a name is missing before \"<<EOF?a?EOF?\" at line 1, column 1"},
        {"a = 10kb", "HCL: malformed number \"10kb\" at line 1, column 5"},
        {"a = 0t", "HCL: malformed number \"0t\" at line 1, column 5"},
        {"a = 08", "HCL: malformed number \"08\" at line 1, column 5"},
        {"a = 0x", "HCL: malformed number \"0x\" at line 1, column 5"},
        {"a = 0xg", "HCL: malformed number \"0xg\" at line 1, column 5"},
        {"a = 1.2.3", "HCL: malformed number \"1.2.3\" at line 1, column 5"},
        {"a = 1e", "HCL: malformed number \"1e\" at line 1, column 5"},
        {"a = 1e400", "HCL: malformed number \"1e400\" at line 1, column 5"},
        {"a = 9223372036854775808", "HCL: number out of range: \"9223372036854775808\" at line 1, column 5"},
        {"a = -9223372036854775809", "HCL: number out of range: \"-9223372036854775809\" at line 1, column 5"},
        {"a = 99999999999999999999", "HCL: number out of range: \"99999999999999999999\" at line 1, column 5"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        struct json_object *tree = hcl_parse(slice_text(rows[i].text), &fault);
        cr_expect_null(tree, "%s: taken as %s", rows[i].text, json_object_to_json_string(tree));
        cr_expect_eq(fault.code, CO_INVALID, "%s", rows[i].text);
        cr_expect_str_eq(fault.text, rows[i].json, "%s", rows[i].text);
        json_object_put(tree);
    }
    struct fault fault = {0};
    cr_expect_null(hcl_parse(SLICE_LITERAL("a = \0"), &fault));
    cr_expect_str_eq(fault.text, "HCL: NUL byte at line 1, column 5");
}

static void repeat(struct buffer *out, const char *text, size_t times) {
    for (size_t i = 0; i < times; i++) buffer_append_text(out, text);
}

/* `before` and `behind` so many times, around a value: taken up to `most` times. */
static void expect_depth(const char *name, const char *before, const char *value, const char *behind, size_t most) {
    for (size_t times = most; times <= 4000; times += times == most ? 1 : 1000) {
        struct buffer text = {0};
        struct fault fault = {0};
        buffer_append_text(&text, name);
        repeat(&text, before, times);
        buffer_append_text(&text, value);
        repeat(&text, behind, times);
        struct json_object *tree = hcl_parse(buffer_slice(&text), &fault);
        cr_expect_eq(tree != NULL, times == most, "%s, %zu times: %s", before, times, fault.text);
        if (tree) {
            const char *json = json_object_to_json_string_ext(tree, JSON_C_TO_STRING_PLAIN);
            struct json_object *again = json_parse(slice_text(json), &fault);
            cr_expect(again && json_object_equal(tree, again), "%s: %s", before, fault.text);
            json_object_put(again);
        } else {
            cr_expect_eq(fault.code, CO_TOOLARGE);
            cr_expect(strstr(fault.text, "nested too deeply at line"), "%s", fault.text);
        }
        json_object_put(tree);
        buffer_free(&text);
    }
}

Test(hcl, is_bounded_in_depth) {
    expect_depth("", "a {", "b = 1", "}", 31);
    expect_depth("", "a = {", "b = 1", "}", 31);
    expect_depth("a = ", "[", "1", "]", 62);
    expect_depth("a ", "b ", "{}", "", 30);
    expect_depth("a = ", "[{b = ", "1", "}]", 31);
}

Test(hcl, is_bounded_in_size) {
    struct buffer text = {0};
    struct fault fault = {0};
    repeat(&text, "1234567890abcdef", HCL_SIZE_MOST / 16);
    buffer_append_byte(&text, 'x');
    cr_expect_null(hcl_parse(buffer_slice(&text), &fault));
    cr_expect_eq(fault.code, CO_TOOLARGE);
    cr_expect_str_eq(fault.text, "HCL: more than 16 MiB");
    fault = (struct fault){0};
    buffer_reset(&text);
    buffer_append_text(&text, "a = [");
    repeat(&text, "1,", HCL_VALUES_MOST - 1); /* the list is a value, too */
    size_t size = text.size;
    buffer_append_text(&text, "]");
    struct json_object *tree = hcl_parse(buffer_slice(&text), &fault);
    cr_expect_not_null(tree, "%s", fault.text);
    json_object_put(tree);
    text.size = size;
    buffer_append_text(&text, "1]");
    cr_expect_null(hcl_parse(buffer_slice(&text), &fault));
    cr_expect_eq(fault.code, CO_TOOLARGE);
    cr_expect(strstr(fault.text, "too many values at line 1, column"), "%s", fault.text);
    buffer_free(&text);
}

/* Many blocks of one name, and many names, take time that grows with their number only. */
Test(hcl, many_blocks) {
    struct buffer text = {0};
    for (int i = 0; i < 50000; i++) buffer_printf(&text, "a \"%d\" {}\nb%d = 1\n", i, i);
    struct json_object *tree = hcl_parse(buffer_slice(&text), NULL);
    cr_assert_not_null(tree);
    cr_expect_eq(json_object_array_length(json_object_object_get(tree, "a")), 50000);
    cr_expect_eq(json_object_object_length(tree), 50001);
    json_object_put(tree);
    buffer_free(&text);
}

static void expect_place(const char *text, struct json_object *value, size_t line, size_t column) {
    size_t is_line, is_column;
    cr_assert_not_null(value);
    text_place(slice_text(text), hcl_place(value), &is_line, &is_column);
    cr_expect(is_line == line && is_column == column, "%s: %zu:%zu, not %zu:%zu", json_object_to_json_string(value),
              is_line, is_column, line, column);
}

static struct json_object *item(struct json_object *array, size_t index) {
    struct json_object *value = json_object_array_get_idx(array, index);
    cr_assert_not_null(value);
    return value;
}

Test(hcl, places) {
    static const char text[] =
        "a = 1\n"
        "b \"c\" d { e = [1, [2]] }\n"
        "  b {}\n"
        "f = [\n"
        "  { g = \"h\" }, <<E\nE\n"
        "]\n";
    struct json_object *tree = parse(text), *b = json_object_object_get(tree, "b"),
                       *c = json_object_object_get(item(b, 0), "c"), *d = json_object_object_get(item(c, 0), "d"),
                       *e = json_object_object_get(item(d, 0), "e"), *f = json_object_object_get(tree, "f");
    expect_place(text, tree, 1, 1);
    expect_place(text, json_object_object_get(tree, "a"), 1, 1);
    expect_place(text, b, 2, 1);
    expect_place(text, item(b, 0), 2, 1);
    expect_place(text, item(b, 1), 3, 3);
    expect_place(text, c, 2, 3);
    expect_place(text, item(c, 0), 2, 3);
    expect_place(text, d, 2, 7);
    expect_place(text, e, 2, 11);
    expect_place(text, item(e, 0), 2, 16);
    expect_place(text, item(e, 1), 2, 19);
    expect_place(text, item(item(e, 1), 0), 2, 20);
    expect_place(text, f, 4, 1);
    expect_place(text, item(f, 0), 5, 3);
    expect_place(text, json_object_object_get(item(f, 0), "g"), 5, 5);
    expect_place(text, item(f, 1), 5, 16);
    /* A value that is put elsewhere keeps its place. */
    struct json_object *kept = json_object_get(e);
    json_object_put(tree);
    expect_place(text, kept, 2, 11);
    json_object_put(kept);
}
