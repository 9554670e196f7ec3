/* When a command that is held under a lock gets TERM, and KILL. */
#include <criterion/criterion.h>

#include "agent/supervisor.h"

static struct supervision of;
static uint64_t until;

static void begin(uint64_t sent_ms, uint64_t not_before_ms) {
    of = (struct supervision){.times = supervisor_times(sent_ms, not_before_ms)};
}
#define NEXT(now, wanted) cr_assert_eq(supervision_next(&of, (now), &until), (wanted))

Test(supervisor, ends_before_the_lock_may_be_anothers) {
    for (uint64_t ttl = 1; ttl < 86400000; ttl = ttl * 2 + 7) {
        struct supervisor_times times = supervisor_times(5000, ttl);
        cr_assert(times.term_ms >= 5000 + ttl / 2 && times.term_ms <= times.kill_ms, "%llu", (unsigned long long)ttl);
        cr_assert(times.kill_ms <= 5000 + ttl - ttl / 5 || times.kill_ms == 5000 + ttl - 2000);
    }
    begin(0, 15000);
    NEXT(9999, SUPERVISOR_NOTHING);
    cr_assert_eq(until, 10000u);
    NEXT(10000, SUPERVISOR_TERM);
    NEXT(12999, SUPERVISOR_NOTHING);
    cr_assert_eq(until, 13000u);
    NEXT(13000, SUPERVISOR_KILL);
    NEXT(20000, SUPERVISOR_NOTHING);
    cr_assert_eq(until, SUPERVISOR_NEVER);
}

Test(supervisor, kills_when_it_wakes_too_late_for_anything_else) {
    begin(0, 15000);
    NEXT(60000, SUPERVISOR_KILL);
    NEXT(60000, SUPERVISOR_NOTHING);
    cr_assert(of.ending);
}

Test(supervisor, takes_later_deadlines_until_it_has_begun_to_end) {
    begin(0, 15000);
    supervision_deadline(&of, 5000, 15000);
    NEXT(14999, SUPERVISOR_NOTHING);
    NEXT(15000, SUPERVISOR_TERM);
    supervision_deadline(&of, 15000, 15000); /* the command has been told, so it is not given more time */
    NEXT(18000, SUPERVISOR_KILL);
}

Test(supervisor, ends_what_its_parent_left_behind) {
    begin(0, 15000);
    supervision_orphaned(&of, 1000);
    NEXT(1000, SUPERVISOR_TERM);
    NEXT(1000, SUPERVISOR_NOTHING);
    cr_assert_eq(until, 11000u, "after a grace");
    begin(0, 15000);
    supervision_orphaned(&of, 9000);
    NEXT(9000, SUPERVISOR_TERM);
    NEXT(9000, SUPERVISOR_NOTHING);
    cr_assert_eq(until, 13000u, "but before the deadline");
    begin(0, SUPERVISOR_NEVER);
    NEXT(1u << 30, SUPERVISOR_NOTHING);
    supervision_orphaned(&of, 1u << 30);
    NEXT(1u << 30, SUPERVISOR_TERM);
    NEXT((1u << 30) + SUPERVISOR_GRACE_MS, SUPERVISOR_KILL);
}

Test(supervisor, kills_at_once_when_its_parent_was_killed_after_a_term) {
    begin(0, 15000);
    of.term_passed_on = true;
    supervision_orphaned(&of, 1000);
    NEXT(1000, SUPERVISOR_KILL);
}

Test(supervisor, kills_at_once_when_told) {
    begin(0, 15000);
    supervision_kill(&of, 100);
    NEXT(100, SUPERVISOR_KILL);
}
