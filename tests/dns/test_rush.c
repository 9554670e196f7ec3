/* When a worker is in a rush: by the rate of queries and how many come at once. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "dns/rush.h"

static struct rush rush;
static uint64_t now_ns = 5000000000;

static void set_up(void) {
    rush = (struct rush){0};
    rush_note(&rush, now_ns, 1);
}
TestSuite(rush, .init = set_up);

/* Batches of `queries` at a rate for `ms`; returns how often it changed. */
static unsigned come(uint64_t rate_hz, unsigned queries, uint64_t ms) {
    unsigned changes = 0;
    for (uint64_t end_ns = now_ns + ms * 1000000; now_ns < end_ns;) {
        now_ns += (uint64_t)queries * 1000000000 / rate_hz;
        changes += rush_note(&rush, now_ns, queries);
    }
    return changes;
}

Test(rush, begins_and_ends_with_the_rate) {
    cr_expect(come(29000, 3, 300) == 0 && !rush.on);
    cr_expect(come(31000, 3, 300) == 1 && rush.on);
    cr_expect(come(21000, 3, 300) == 0 && rush.on, "no to and fro in between");
    cr_expect(come(19000, 3, 300) == 1 && !rush.on);
    cr_expect(come(29000, 64, 300) == 0 && !rush.on);
}

Test(rush, only_of_several_at_once) {
    cr_expect(come(90000, 1, 300) == 0 && !rush.on, "one after the other");
    cr_expect(come(90000, 2, 300) == 1 && rush.on);
    cr_expect(come(90000, 1, 300) == 1 && !rush.on, "only one is left");
    cr_expect(come(40000, 64, 300) == 1 && rush.on);
    cr_expect(come(5000, 64, 300) == 1 && !rush.on);
}

/* One full batch after silence is no rush, and ends one; also after months. */
Test(rush, silence) {
    static const uint64_t silences_ns[] = {1000000000, 100 * 86400 * (uint64_t)1000000000};
    for (int i = 0; i < 2; i++) {
        now_ns += silences_ns[i];
        cr_expect(not(rush_note(&rush, now_ns, 64)));
        cr_expect(not(rush.on));
        cr_expect(come(40000, 2, 100) == 1 && rush.on);
        now_ns += silences_ns[i];
        cr_expect(rush_note(&rush, now_ns, 64));
        cr_expect(not(rush.on));
    }
}

Test(rush, takes_a_window) {
    cr_expect(eq(uint, come(100000, 2, RUSH_WINDOW_MS - 1), 0));
    cr_expect(eq(uint, come(100000, 2, 2), 1));
}
