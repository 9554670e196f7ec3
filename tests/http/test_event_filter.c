/* Filters of events: what is compiled, what is refused because of what it costs, and that the rest costs little. */
#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "http/api/event_filter.h"

Test(event_filter, what_people_write_is_taken) {
    static const struct {
        const char *filter, *text;
        bool takes;
    } rows[] = {
        {"^web-[0-9]{1,3}$", "web-12", true},
        {"^web-[0-9]{1,3}$", "web-1234", false},
        {"(eu|us)-(west|east)-[0-9]+", "a.eu-west-1.b", true},
        {"", "anything", true},
        {"a", "bab", true},
        {"^$", "", true},
        {"[]+]{2}", "x]+", true},
        {"[[:alpha:]\\]{2,}x", "ab\\x", true},
        {"v1\\.2(\\.[0-9]+)?$", "v1.2.33", true},
        {"[\\1]", "1", true},
        {".{100}", "short", false},
        {"a|b", "b", true},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        regex_t regex;
        cr_assert_eq(event_filter_compile(rows[i].filter, &regex, &fault), CO_OK, "%s: %s", rows[i].filter, fault.text);
        cr_expect_eq(event_filter_takes(&regex, rows[i].text), rows[i].takes, "%s of %s", rows[i].filter, rows[i].text);
        regfree(&regex);
    }
}

Test(event_filter, what_costs_much_is_refused_unread) {
    char bulk[128] = "(";
    memset(bulk + 1, 'a', 117), memcpy(bulk + 118, "){32767}", 9);
    const struct {
        const char *filter, *says;
    } rows[] = {
        {bulk, "too large"},
        {"(a{200}){200}", "too large"},
        {"(((((((((a+)+)+)+)+)+)+)+)+)+", "too large"},
        {"a++++++++++", "too large"},
        {"a{1000}", "too large"},
        {"a{1000,}", "too large"},
        {"a{,1000}", "too large"},
        {"a{99999999999999999999}", "too large"},
        {"x)(a{200}){200}", "too large"},
        {"(a*)*", "too large"},
        {"^(){5}{15}", "too large"},
        {"(.*)(.*)(.*)(.*)(.*)(.*)\\6\\5\\4\\3\\2\\1x", "back-reference"},
        {"[[:alpha:]](\\B\\b(.a\\b.)?)*", "not POSIX's"},
        {"^^^^^^^^^", "anchors"},
        {"a(", "error parsing regexp"},
        {"[a", "error parsing regexp"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct fault fault = {0};
        regex_t regex;
        cr_expect_eq(event_filter_compile(rows[i].filter, &regex, &fault), CO_INVALID, "%s", rows[i].filter);
        cr_expect(strstr(fault.text, rows[i].says), "%s: %s", rows[i].filter, fault.text);
    }
}

/* Parts at random, from a fixed seed: whatever is let in is compiled and asked soon, by this thread's own clock. */
Test(event_filter, what_is_let_in_costs_little) {
    static const char *const parts[] = {"a",    ".", "(", ")",    "*",    "+",    "?",   "|",   "{2}", "{0,3}",
                                        "{1,}", "^", "$", "[ab]", "{15}", "{,4}", "\\w", "\\b", "\\1", "()"};
    char text[EVENT_FILTER_TEXT + 1];
    unsigned let_in = 0, seed = 1;
    struct timespec begin, end;
    memset(text, 'a', EVENT_FILTER_TEXT), text[EVENT_FILTER_TEXT] = '\0';
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (unsigned i = 0; i < 3000; i++) {
        char filter[129] = "";
        regex_t regex;
        for (size_t length = 0, wanted = 5 + i % 118; length < wanted; length = strlen(filter)) {
            seed = seed * 1103515245 + 12345;
            strcat(filter, parts[(seed >> 16) % ARRAY_COUNT(parts)]);
        }
        if (event_filter_compile(filter, &regex, NULL) != CO_OK) continue;
        let_in++;
        (void)event_filter_takes(&regex, text);
        regfree(&regex);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    cr_expect(let_in > 10, "%u", let_in);
    cr_expect(end.tv_sec - begin.tv_sec < 20, "%ld s", (long)(end.tv_sec - begin.tv_sec));
}

Test(event_filter, long_texts_are_not_taken) {
    static char text[EVENT_FILTER_TEXT + 2];
    regex_t regex;
    memset(text, 'a', EVENT_FILTER_TEXT);
    cr_assert_eq(event_filter_compile("a", &regex, NULL), CO_OK);
    cr_expect(event_filter_takes(&regex, text));
    text[EVENT_FILTER_TEXT] = 'a';
    cr_expect_not(event_filter_takes(&regex, text));
    regfree(&regex);
}
