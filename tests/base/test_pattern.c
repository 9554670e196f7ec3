#include "base/pattern.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

static bool found(const char *text, const char *in) {
    struct pattern *pattern;
    struct fault fault = {0};
    cr_assert_eq(pattern_new(slice_text(text), &pattern, &fault), CO_OK, "%s: %s", text, fault.text);
    bool yes = pattern_found(pattern, slice_text(in));
    pattern_free(pattern);
    return yes;
}

Test(pattern, what_fits_and_what_does_not) {
    static const struct {
        const char *pattern, *fits, *fits_not;
    } rows[] = {
        {"a", "xax", "xbx"},
        {"^a$", "a", "aa"},
        {"^a*$", "aaa", "aab"},
        {"^a+$", "a", ""},
        {"^ab?c$", "ac", "abbc"},
        {"^(ab|cd)+$", "abcdab", "abc"},
        {"^(a|)$", "", "b"},
        {"^a{2}$", "aa", "aaa"},
        {"^a{2,}$", "aaaa", "a"},
        {"^a{1,3}$", "aaa", "aaaa"},
        {"^(a{0}b)$", "b", "ab"},
        {"^(a{0,0}b)$", "b", "ab"},
        {"^a{,3}$", "a{,3}", "aa"},
        {"^[a-c]+$", "abc", "abd"},
        {"^[^a-c]+$", "xyz", "xyb"},
        {"^[]$", NULL, "]"},
        {"^[-a]+$", "a-a", "b"},
        {"^[a-]+$", "-a", "b"},
        {"^[\\d-x]+$", "1-x", "y"},
        {"^\\d{3}-\\d{4}$", "555-1234", "5551234"},
        {"^\\w+$", "a_1", "a-1"},
        {"^\\W+$", "-+", "a"},
        {"^\\S+\\s\\S+$", "a b", "ab"},
        {"^[\\s\\S]$", "\n", "ab"},
        {"^.$", "\xc3\xa9", "\n"},
        {"^\xc3\xa9$", "\xc3\xa9", "e"},
        {"^\\u00e9\\x41$",
         "\xc3\xa9"
         "A",
         "eA"},
        {"\\bfoo\\b", "a foo b", "afoo"},
        {"^a\\.b\\/c$", "a.b/c", "axb/c"},
        {"^(?:a|b)c$", "bc", "ab"},
        {"^a*?b+?$", "aab", "aa"},
        {"^(a*)*$", "aaa", "b"},
        {"x*", "", NULL},
        {"^\\^\\$$", "^$", "a"},
        {"^a|b$", "ax", "xa"},
        {"", "anything", NULL},
        {"^[\\b]$", "\b", "b"},
        {"^\\cJ$", "\n", "J"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        if (rows[i].fits) cr_expect(found(rows[i].pattern, rows[i].fits), "%s in %s", rows[i].pattern, rows[i].fits);
        if (rows[i].fits_not)
            cr_expect(!found(rows[i].pattern, rows[i].fits_not), "%s in %s", rows[i].pattern, rows[i].fits_not);
    }
}

Test(pattern, what_is_none) {
    static const struct {
        const char *pattern, *word;
    } rows[] = {{"(", "')'"},
                {")", "')' too many"},
                {"[a", "']'"},
                {"*a", "nothing to repeat"},
                {"a\\", "backslash"},
                {"(?=a)", "look-ahead"},
                {"(a)\\1", "back references"},
                {"[b-a]", "backwards"},
                {"a{3,2}", "backwards"},
                {"\\q", "this escape"},
                {"\\x4", "hexadecimal"},
                {"a{2000}", "1000"},
                {"(((a{500}){500}){500})", "more than 4096 steps"},
                {"\xff", "UTF-8"},
                {"[\\", "backslash"}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct pattern *pattern;
        struct fault fault = {0};
        cr_expect_neq(pattern_new(slice_text(rows[i].pattern), &pattern, &fault), CO_OK, "%s", rows[i].pattern);
        cr_expect(strstr(fault.text, rows[i].word), "%s: %s", rows[i].pattern, fault.text);
        cr_expect_null(pattern);
    }
}

/* Patterns that make a program which tries one way after the other run for years. */
Test(pattern, no_pattern_is_slow) {
    char text[2001];
    memset(text, 'a', 2000), text[2000] = '\0';
    uint64_t began_ms = clock_mono_ms();
    cr_expect(!found("^(a+)+$x", text));
    cr_expect(!found("^(a|aa)+$b", text));
    cr_expect(!found("(a*)*(a*)*(a*)*b", text));
    cr_expect(clock_mono_ms() - began_ms < 2000);
}
