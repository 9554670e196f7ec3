#include <criterion/criterion.h>

#include "base/check.h"
#include "health/flap.h"

#define SECOND 1000000000ull
#define START  (100 * SECOND)

static const char letters[] = "pwc";

static Pb__Status status_of(char letter) { return (Pb__Status)(strchr(letters, letter) - letters); }

/* A row is a story: what the check says each second ('.': nothing), and what the world is told then. */
Test(flap, stories) {
    static const struct {
        const char *name;
        uint32_t limit, window;
        char first;
        const char *said, *told;
    } rows[] = {
        {"off", 0, 10, 'p', "cpcpcpcp", "cpcpcpcp"},
        {"as many as allowed", 4, 10, 'p', "cpcp", "cpcp"},
        {"one more is held as the worst", 4, 10, 'p', "cpcpcp", "cpcpcc"},
        {"the same again is no change", 2, 10, 'p', "ccccpppp", "ccccpppp"},
        {"a calm check comes back when the changes are old", 2, 5, 'p', "cpcp......", "cpccccpppp"},
        {"it stays while it goes on", 2, 5, 'p', "cpcpcpcpcpcp", "cpcccccccccc"},
        {"the worst leaves the window before the changes do", 2, 4, 'p', "cpwpwpwpwp", "cpcccwwwww"},
        {"warnings are held as warnings", 1, 10, 'p', "wpw.p.", "wwwwww"},
        {"worse than what is held goes through", 1, 10, 'p', "wpc", "wwc"},
        {"slow changes are none of its business", 1, 2, 'p', "c..p..c..p", "cccpppcccp"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct flap flap;
        flap_begin(&flap, rows[i].limit, rows[i].window * SECOND, status_of(rows[i].first));
        for (size_t at = 0; rows[i].said[at]; at++) {
            uint64_t now = START + at * SECOND;
            Pb__Status told =
                rows[i].said[at] == '.' ? flap_look(&flap, now) : flap_say(&flap, status_of(rows[i].said[at]), now);
            cr_assert_eq(letters[told], rows[i].told[at], "%s: second %zu: %c", rows[i].name, at, letters[told]);
        }
        flap_end(&flap);
    }
}

/* Whoever sleeps until flap_due_ns misses nothing: between two looks the answer does not change. */
Test(flap, due_is_when_it_changes) {
    struct flap flap;
    flap_begin(&flap, 2, 5 * SECOND, PB__STATUS__PASSING);
    cr_assert_eq(flap_due_ns(&flap, START), FLAP_NEVER);
    static const char said[] = "cpwpw";
    for (size_t i = 0; said[i]; i++) (void)flap_say(&flap, status_of(said[i]), START + i * SECOND);
    uint64_t now = START + 4 * SECOND;
    cr_assert(flap_holds(&flap, now));
    Pb__Status told = flap_look(&flap, now);
    cr_assert_eq(told, PB__STATUS__CRITICAL);
    unsigned turns = 0;
    for (; flap_due_ns(&flap, now) != FLAP_NEVER; turns++) {
        uint64_t due = flap_due_ns(&flap, now);
        cr_assert_gt(due, now);
        for (uint64_t between = now; between < due; between += SECOND / 10)
            cr_assert_eq(flap_look(&flap, between), told);
        told = flap_look(&flap, now = due);
        cr_assert_lt(turns, 10);
    }
    cr_assert_eq(told, PB__STATUS__WARNING, "what it says itself");
    cr_assert_not(flap_holds(&flap, now));
    flap_end(&flap);
}

Test(flap, a_zeroed_one_lets_all_through) {
    struct flap flap = {0};
    for (unsigned i = 0; i < 100; i++) {
        cr_assert_eq(flap_say(&flap, (Pb__Status)(i % 3), START + i), i % 3);
        cr_assert_not(flap_holds(&flap, START + i));
    }
    flap_end(&flap);
}
