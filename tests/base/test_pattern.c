#include <criterion/criterion.h>
#include <stdio.h>

#include "base/check.h"
#include "base/pattern.h"

#define MANY_STEPS 1000000

static bool matches(const char *pattern, struct slice text) {
    struct arena arena = {0};
    struct fault fault = {0};
    uint64_t steps = MANY_STEPS;
    struct pattern *compiled = pattern_compile(&arena, slice_text(pattern), &fault);
    cr_assert_not_null(compiled, "%s: %s", pattern, fault.text);
    bool answer = pattern_match(compiled, text, &steps);
    cr_assert(steps > 0 && steps < MANY_STEPS);
    arena_free(&arena);
    return answer;
}

Test(pattern, matches) {
    static const struct {
        const char *pattern, *yes[6], *no[6];
    } rows[] = {
        {"", {"", "a"}, {0}},
        {"a+", {"a", "xxaayy"}, {"", "b"}},
        {"^a*$", {"", "aaa"}, {"abc", "b", "a\n"}},
        {"^(ab|cd)+$", {"ab", "abcd"}, {"", "abc", "acd"}},
        {"^ab|cd$", {"abx", "xcd"}, {"xab", "cdx"}},
        {"^(a|)b$", {"ab", "b"}, {"aab"}},
        {"^(?:a?){3}a{3}$", {"aaa", "aaaaaa"}, {"aa", "aaaaaaa"}},
        {"^a{2}$", {"aa"}, {"a", "aaa"}},
        {"^a{2,}$", {"aa", "aaaaa"}, {"a"}},
        {"^a{0,}$", {"", "a"}, {"b"}},
        {"^a{1,3}$", {"a", "aaa"}, {"", "aaaa"}},
        {"^a{0}b$", {"b"}, {"ab"}},
        {"^(a*)*$", {"", "aa"}, {"b"}},
        {"^(a|b|cc)*?d$", {"d", "abccd"}, {"abcd"}},
        {"^(?<year>\\d{4})-\\d\\d$", {"2024-01"}, {"2024-1", "\u0662\u0660\u0662\u0664-01"}},
        {"^[a-z0-9-]+$", {"a-9"}, {"A", ""}},
        {"^[^a-z]$", {"A", "\u00e4", "\n"}, {"b", ""}},
        {"^[]$", {0}, {"", "]"}},
        {"^[^]$", {"a", "\n"}, {""}},
        {"^[\\]\\-\\\\]+$", {"]-\\"}, {"a"}},
        {"^[-a]$", {"-", "a"}, {"b"}},
        {"^[a-]$", {"-", "a"}, {"b"}},
        {"^[\\d-]$", {"-", "7"}, {"d"}},
        {"^[\\w.]+$", {"a_Z.9"}, {"\u00e4", "-"}},
        {"^[^\\W_]$", {"a"}, {"_", "-"}},
        {"^\\s\\S$", {" a", "\u00a0a", "\u2028a", "\ufeffa", "\na"}, {"aa", "a ", "  "}},
        {"^\\D\\W$", {"a-", "\u0661-"}, {"1-", "aa"}},
        {"^.$", {"a", "\u00e4", "\U0001f600"}, {"\n", "\r", "\u2028", "aa"}},
        {"\\bcat\\b", {"cat", "a cat.", "cat cat"}, {"concat", "cats"}},
        {"\\Bcat", {"concat"}, {"cat", "a cat"}},
        {"^\\b$", {0}, {""}},
        {"^\\t\\n\\v\\f\\r$", {"\t\n\v\f\r"}, {0}},
        {"^\\x41\\u0042\\u{1F600}\\cA$", {"AB\U0001f600\001"}, {0}},
        {"^\\uD83D\\uDE00$", {"\U0001f600"}, {0}},
        {"^\\ud83dx$", {0}, {"\U0001f600x"}},
        {"^\\/\\.\\*\\@\\_\\-\\{\\}\\]$", {"/.*@_-{}]"}, {0}},
        {"^\u00e1", {"\u00e1rm"}, {"\u00e9l"}},
        {"^[\u00e0-\u00ef]$", {"\u00e1"}, {"\u00f1", "\xc3"}},
        {"^(([a-z]+)\\.)*[a-z]{2,}$", {"api.service.coord"}, {"api..x"}},
        {"a$", {"ba"}, {"a\n", "ab"}},
        {"$^", {""}, {"a"}},
        {"x*", {"", "y"}, {0}},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        for (const char *const *text = rows[i].yes; text < rows[i].yes + 6 && *text; text++) {
            cr_expect(matches(rows[i].pattern, slice_text(*text)), "%s: %s", rows[i].pattern, *text);
        }
        for (const char *const *text = rows[i].no; text < rows[i].no + 6 && *text; text++) {
            cr_expect_not(matches(rows[i].pattern, slice_text(*text)), "%s: %s", rows[i].pattern, *text);
        }
    }
}

Test(pattern, nul_is_a_character) {
    cr_expect(matches("^a\\0b$", slice_make("a\0b", 3)));
    cr_expect_not(matches("^a$", slice_make("a\0", 2)));
    cr_expect(matches("^.$", slice_make("\0", 1)));
}

Test(pattern, refused) {
    static const struct {
        const char *pattern, *fault;
    } rows[] = {
        {"a(?=b)", "look-ahead is not supported, at byte 2"},
        {"(?!b)", "look-ahead is not supported, at byte 1"},
        {"(?<=b)", "look-behind is not supported, at byte 1"},
        {"(?<!b)", "look-behind is not supported, at byte 1"},
        {"(a)\\1", "\\1 is not supported, at byte 5"},
        {"\\k<a>", "\\k is not supported, at byte 2"},
        {"\\p{L}", "\\p is not supported, at byte 2"},
        {"a\\Z", "\\Z is not supported, at byte 3"},
        {"\\01", "\\0 is not supported, at byte 2"},
        {"\\c1", "\\c is not supported, at byte 2"},
        {"\\\u00e4", "\\? is not supported, at byte 2"},
        {"(?i)a", "what \"(?\" begins is not supported, at byte 1"},
        {"(?<a", "a name of a group that does not end, at byte 4"},
        {"a{", "a lone brace or bracket; write \\{ for a brace, at byte 2"},
        {"{1}", "a lone brace or bracket; write \\{ for a brace, at byte 0"},
        {"a}", "a lone brace or bracket; write \\{ for a brace, at byte 1"},
        {"a]", "a lone brace or bracket; write \\{ for a brace, at byte 1"},
        {"a{2,1}", "a count that ends before it begins, at byte 6"},
        {"a{1", "\"}\" is missing, at byte 3"},
        {"*", "nothing that could be repeated, at byte 0"},
        {"a**", "nothing that could be repeated, at byte 2"},
        {"a|*", "nothing that could be repeated, at byte 2"},
        {"^*", "nothing that could be repeated, at byte 1"},
        {"\\b+", "nothing that could be repeated, at byte 2"},
        {"(a", "\")\" is missing, at byte 2"},
        {"a)", "\")\" that nothing opens, at byte 1"},
        {"[a", "\"]\" is missing, at byte 2"},
        {"[b-a]", "a range that ends before it begins, at byte 4"},
        {"[\\w-z]", "a range from or to a set, at byte 5"},
        {"[a-\\d]", "a range from or to a set, at byte 5"},
        {"[\\B]", "\\B is not supported, at byte 3"},
        {"a\\", "a backslash at the end, at byte 2"},
        {"\\x4", "hexadecimal digits are wanted, at byte 3"},
        {"\\u{110000}", "\\u{...} is no character, at byte 9"},
        {"\\u{}", "hexadecimal digits are wanted, at byte 3"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct arena arena = {0};
        struct fault fault = {0};
        cr_expect_null(pattern_compile(&arena, slice_text(rows[i].pattern), &fault), "%s", rows[i].pattern);
        cr_expect_eq(fault.code, CO_INVALID, "%s", rows[i].pattern);
        cr_expect_str_eq(fault.text, rows[i].fault, "%s: %s", rows[i].pattern, fault.text);
        arena_free(&arena);
    }
}

static int compile_error(const char *pattern) {
    struct arena arena = {0};
    struct fault fault = {0};
    pattern_compile(&arena, slice_text(pattern), &fault);
    arena_free(&arena);
    return fault.code;
}

Test(pattern, bounds_when_it_is_compiled) {
    char text[PATTERN_TEXT_MOST + 2];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    cr_expect_eq(compile_error(text), CO_TOOLARGE);
    cr_expect_eq(compile_error(text + 1), CO_OK);
    memset(text, '(', sizeof text - 1);
    cr_expect_eq(compile_error(text + 1), CO_TOOLARGE);
    cr_expect_eq(compile_error("a{2047}"), CO_OK);
    cr_expect_eq(compile_error("a{2048}"), CO_TOOLARGE);
    cr_expect_eq(compile_error("(a{100}){100}"), CO_TOOLARGE);
    cr_expect_eq(compile_error("(((((){9999}){9999}){9999}){9999}){9999}"), CO_OK);
    cr_expect_eq(compile_error("((((a{9999}){0}){0}){0}){0}"), CO_TOOLARGE);
    cr_expect_eq(compile_error("a{99999999999999999999}"), CO_TOOLARGE);
    cr_expect_eq(compile_error("a{0,9999}"), CO_TOOLARGE);
    cr_expect_eq(compile_error("a{2046}|b"), CO_TOOLARGE);
}

/* Others take years for these. */
Test(pattern, takes_steps_in_proportion) {
    static const char *const patterns[] = {"^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(a*)*b", "^(.*a){12}$"};
    char text[2001];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 'c';
    for (size_t i = 0; i < ARRAY_COUNT(patterns); i++) {
        struct arena arena = {0};
        struct fault fault = {0};
        uint64_t steps = MANY_STEPS;
        struct pattern *pattern = pattern_compile(&arena, slice_text(patterns[i]), &fault);
        cr_expect_not(pattern_match(pattern, slice_make(text, sizeof text), &steps));
        cr_expect_gt(steps, MANY_STEPS - sizeof text * 64, "%s", patterns[i]);
        arena_free(&arena);
    }
}

Test(pattern, stops_without_steps) {
    struct arena arena = {0};
    struct fault fault = {0};
    struct pattern *pattern = pattern_compile(&arena, SLICE_LITERAL("^(a|b)*[c-e]$"), &fault);
    bool matched = false;
    for (uint64_t most = 1; !matched; most++) {
        uint64_t steps = most;
        matched = pattern_match(pattern, SLICE_LITERAL("abababe"), &steps);
        cr_assert_eq(matched, steps > 0);
        cr_assert_lt(most, 1000);
    }
    arena_free(&arena);
}
