/* Takes that an agent admits while no server answers it. */
#include "spender_calls.h"

TestSuite(spender_loss, .init = begin, .fini = end);

/* Time goes by, and all that is asked fails. */
static void fail_for(uint64_t ms) {
    for (uint64_t end_ns = s.now_ns + ms * MS; s.now_ns < end_ns;)
        if (ask_within(&s, (end_ns - s.now_ns + MS - 1) / MS)) answer_error(&s, CO_NOLEADER);
    spender_woken(s.spender);
}

/* How many takes of 1 it admits now; what has to be asked for fails. */
static uint64_t admits_at_all(void) {
    uint64_t count = 0;
    for (;;) {
        int rv = take(&s, "calls", 1);
        if (rv == CO_OK) count++;
        if (rv == CO_AGAIN) fail_for(1);
        if (rv != CO_OK && rv != CO_AGAIN) return count;
    }
}

Test(spender_loss, what_is_held_is_spent_until_its_end) {
    hold(&s, &plain, 100);
    fail_for(9000);
    cr_assert_eq(take(&s, "calls", 60), CO_OK);
    cr_assert_eq(s.answer.source, SPENDER_LOCAL);
    fail_for(1000);
    cr_assert_eq(admits_at_all(), 0); /* OnLoss is closed */
    cr_assert_eq(take(&s, "calls", 1), CO_NOLEADER);
    cr_assert_not_null(s.answer.text);
}

Test(spender_loss, an_answer_that_does_not_come_is_a_loss) {
    hold(&s, &plain, 10);
    cr_assert_eq(take(&s, "calls", 100), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(spender_deadline_ns(s.spender), s.now_ns + SPENDER_LOSS_MS * MS);
    pass_ms(SPENDER_LOSS_MS - 1);
    cr_assert_eq(take(&s, "calls", 100), CO_AGAIN);
    pass_ms(1);
    spender_tick(s.spender, s.now_ns);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "calls", 100), CO_NOLEADER);
    GIVE(&s, .granted = 190, .balance = 200, .available = 700);
    cr_assert_eq(take(&s, "calls", 100), CO_OK);
}

Test(spender_loss, a_last_try_waits_no_longer) {
    hold(&s, &plain, 10);
    struct spender_take one = {.name = SLICE_LITERAL("calls"), .n = 100};
    cr_assert_eq(take_as(&s, &one, 1, false, false), CO_AGAIN);
    cr_assert_eq(take_as(&s, &one, 1, true, true), CO_NOLEADER);
}

Test(spender_loss, open_admits_so_much_in_any_period) {
    plain.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN;
    plain.local_cap = 30;
    plain.every_ms = 60000;
    plain.tokens = 600;
    hold(&s, &plain, 10);
    fail_for(59000);
    cr_assert_eq(take(&s, "calls", 1), CO_BUSY); /* the one before it on this node may have admitted 30 since */
    cr_assert_lt(s.answer.retry_ms, 3000);
    fail_for(2000);
    cr_assert_eq(take(&s, "calls", 20), CO_OK);
    cr_assert_eq(s.answer.source, SPENDER_FALLBACK);
    cr_assert_eq(take(&s, "calls", 11), CO_BUSY);
    cr_assert_gt(s.answer.retry_ms, 0);
    fail_for(30000);
    cr_assert_eq(admits_at_all(), 10);
    fail_for(29000);
    cr_assert_eq(admits_at_all(), 0); /* no minute has more than 30 */
    fail_for(10000);
    cr_assert_eq(admits_at_all(), 20);
    fail_for(3600000);
    cr_assert_eq(admits_at_all(), 30);
}

Test(spender_loss, last_admits_what_was_granted_last) {
    plain.on_loss = PB__QUOTA_LOSS__QUOTA_LAST;
    plain.last_for_ms = 25000;
    plain.every_ms = 10000;
    plain.tokens = 1000;
    hold(&s, &plain, 19); /* 20 were granted */
    fail_for(10200);
    cr_assert_eq(admits_at_all(), 20);
    cr_assert_eq(take(&s, "calls", 1), CO_BUSY);
    fail_for(10200);
    cr_assert_eq(admits_at_all(), 20);
    fail_for(30000);
    cr_assert_eq(admits_at_all(), 0); /* its time is over */
    cr_assert_eq(take(&s, "calls", 1), CO_NOLEADER);
}

Test(spender_loss, an_agent_that_was_never_granted_anything_admits_nothing) {
    plain.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN;
    plain.local_cap = 30;
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    budget_follow(&s, &plain, false);
    cr_assert_eq(admits_at_all(), 0);
}

Test(spender_loss, the_servers_come_back) {
    plain.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN;
    plain.local_cap = 5;
    hold(&s, &plain, 10);
    fail_for(20000);
    cr_assert_eq(admits_at_all(), 5);
    cr_assert(ask_within(&s, 1500));
    cr_assert_eq(s.command->asks[0]->lease, 77);
    GIVE(&s, .error = CO_NOTFOUND);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    GIVE(&s, .granted = 50, .balance = 50, .available = 900);
    cr_assert_eq(take_again(&s, "calls", 1), CO_OK);
    cr_assert_eq(s.answer.source, SPENDER_RENEWED);
}
