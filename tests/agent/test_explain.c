/* Why the first one in a lock's queue waits. */
#include <criterion/criterion.h>

#include "agent/cmd_explain.h"

static void expect(const struct lock_standing *of, const char *wanted) {
    struct buffer text = {0};
    lock_reason(of, &text);
    buffer_append_byte(&text, '\0');
    cr_expect_str_eq(text.data, wanted);
    buffer_free(&text);
}

Test(explain, says_why_the_first_one_waits) {
    expect(&(struct lock_standing){.mode = "exclusive", .holder = "a", .holders = 1, .wanted = "exclusive"},
           "it is held exclusively by a");
    expect(&(struct lock_standing){.mode = "exclusive", .holder = "a", .holders = 1, .limit = 3, .wanted = "shared"},
           "it is held exclusively by a");
    expect(&(struct lock_standing){.mode = "shared", .holder = "a", .holders = 2, .wanted = "exclusive"},
           "it wants to hold it exclusively, and 2 hold it shared");
    expect(&(struct lock_standing){.mode = "shared", .holder = "a", .holders = 2, .limit = 2, .wanted = "shared"},
           "the limit of 2 shared holders is reached");
    expect(&(struct lock_standing){.mode = "", .holder = "", .delays = 1, .wanted = "shared"},
           "the session of a holder has ended, and its lock-delay is under way");
    expect(&(struct lock_standing){.mode = "shared", .holder = "a", .holders = 1, .limit = 2, .wanted = "shared"},
           "its turn is coming just now");
}
