/* The looks of `coord lock`: at what it holds while the command runs, and at those in its way while it waits. */
#include "hold_steps.h"

/* -- looking at what it holds ------------------------------------------------------------------------------------- */

static void run_watched(bool unbounded) {
    begin_as(&(struct hold_rules){
        .what = "lock \"x\"", .ttl_ms = TTL, .wait_ms = HOLD_FOREVER, .unbounded = unbounded, .watched = true});
    NEXT(HOLD_ASK);
    session();
    NEXT(HOLD_WAIT);
    granted();
    NEXT(HOLD_START);
    NEXT(HOLD_LOOK);
    cr_assert_eq(order.index, 7u, "for what is newer than its grant");
    cr_assert_gt(order.wait_ms, TTL / 4u);
    cr_assert_lt(order.wait_ms + order.wait_ms / 16, TTL / 3u, "the server adds up to a sixteenth; then it renews");
    cr_assert_leq(order.timeout_ms, TTL / 3u);
}
static void looks(bool held, bool shared, uint64_t token, uint64_t index) {
    answer(HOLD_LOOKING,
           &(struct hold_answer){
               .status = 200, .told = true, .held = held, .shared = shared, .token = token, .index = index});
}
static void ends_at_once(void) {
    NEXT(HOLD_KILL);
    SAYS("is lost");
    NEXT(HOLD_NOTHING);
    ended(SIGKILL);
    EXITS(HOLD_EXIT_LOST);
}

Test(hold_looks, kills_at_once_when_it_sees_that_it_is_lost) {
    for (int unbounded = 0; unbounded < 2; unbounded++) {
        run_watched(unbounded);
        now += 300;
        looks(false, false, 0, 9); /* its session has ended, or somebody released it */
        ends_at_once();
    }
}

Test(hold_looks, kills_when_it_was_granted_to_another_in_between) {
    run_watched(false);
    looks(true, false, 12, 12);
    ends_at_once();
}

Test(hold_looks, of_a_shared_lock_may_have_another_token_with_its_session) {
    run_watched(false);
    now += 2000;
    looks(true, true, 12, 12);
    NEXT(HOLD_LOOK);
    cr_assert_eq(order.index, 12u);
}

Test(hold_looks, looks_again_when_nothing_has_changed) {
    run_watched(false);
    uint64_t asked = now;
    now += 10;
    looks(true, false, 7, 7);
    IDLE(asked + 1000); /* it does not spin */
    NEXT(HOLD_LOOK);
    cr_assert_eq(order.index, 7u);
}

/* A holder has one connection. */
Test(hold_looks, never_looks_beside_a_renewal) {
    run_watched(false);
    IDLE(1000000 + TTL / 3); /* the server hangs */
    NEXT(HOLD_RENEW);
    cr_assert(!hold.requests[HOLD_LOOKING].under_way, "the renewal has its place");
    NEXT(HOLD_NOTHING);
    renewed();
    NEXT(HOLD_TELL);
    NEXT(HOLD_LOOK);
    now += TTL / 3 - 50;
    looks(true, false, 7, 7);
    IDLE(1000000 + 2 * (TTL / 3)); /* for so short it is not worth while */
    NEXT(HOLD_RENEW);
}

/* Nothing of that says that it is lost; as long as it is renewed, the command goes on. */
Test(hold_looks, goes_on_without_a_word_that_it_is_lost) {
    static const long statuses[] = {0, 500, 503, 404, 429, 200 /* not of this session, or no JSON */};
    run_watched(false);
    for (int round = 0; round < 200; round++) {
        if (order.act == HOLD_LOOK) fails(HOLD_LOOKING, statuses[(size_t)round % (sizeof statuses / sizeof *statuses)]);
        else if (order.act == HOLD_RENEW) renewed();
        else if (order.act == HOLD_NOTHING) now = order.until_ms;
        else cr_assert_eq(order.act, HOLD_TELL, "%d", (int)order.act);
        order = hold_next(&hold, now);
    }
    SAYS_NOTHING();
    cr_assert_gt(now, 1000000u + TTL, "for longer than its first grant");
}

/* It may be what keeps the agent from taking one more connection. */
Test(hold_looks, does_not_look_while_it_is_not_renewed) {
    run_watched(false);
    IDLE(1000000 + TTL / 3);
    NEXT(HOLD_RENEW);
    fails(HOLD_RENEWAL, 0);
    SAYS("is not renewed yet");
    cr_assert(!hold.requests[HOLD_LOOKING].under_way, "its connection is free");
    for (int i = 0; i < 3; i++) {
        NEXT(HOLD_NOTHING);
        now = order.until_ms;
        NEXT(HOLD_RENEW);
        fails(HOLD_RENEWAL, 500);
    }
    NEXT(HOLD_NOTHING);
    now = order.until_ms;
    NEXT(HOLD_RENEW);
    renewed();
    NEXT(HOLD_TELL);
    NEXT(HOLD_LOOK);
    looks(false, false, 0, 9); /* lost meanwhile */
    ends_at_once();
}

/* And it ends as ever when it is not: looks that succeed prolong nothing. */
Test(hold_looks, is_not_prolonged_by_looks) {
    run_watched(false);
    uint64_t sent = hold.sent_ms;
    for (int round = 0; round < 100; round++) {
        if (order.act == HOLD_LOOK) looks(true, false, 7, 7);
        else if (order.act == HOLD_RENEW) fails(HOLD_RENEWAL, 0);
        else if (order.act == HOLD_NOTHING) now = order.until_ms;
        else cr_assert_fail("%d", (int)order.act);
        order = hold_next(&hold, now);
    }
    cr_assert_eq(hold.sent_ms, sent);
}

Test(hold_looks, takes_no_word_of_what_it_has_released_itself) {
    run_watched(false);
    ended(exited(0));
    NEXT(HOLD_RELEASE);
    looks(false, false, 0, 9);
    released();
    SAYS_NOTHING();
    EXITS(0);
}

/* -- who is in the way -------------------------------------------------------------------------------------------- */

static void peek(long status, bool leaderless, const char *text) {
    answer(HOLD_LOOKING, &(struct hold_answer){.status = status, .leaderless = leaderless, .text = text});
}

Test(hold_looks, says_once_who_is_in_the_way_after_a_second) {
    wait_for_it(HOLD_FOREVER);
    NEXT(HOLD_NOTHING);
    cr_assert_eq(order.until_ms, 1001000u);
    now = order.until_ms;
    NEXT(HOLD_PEEK);
    now += 5;
    peek(200, false, "is held by web1 (backup.sh) for 5m2s, 2 before you");
    SAYS("lock \"x\" is held by web1 (backup.sh) for 5m2s, 2 before you");
    IDLE(1000000 + TTL / 3);
    NEXT(HOLD_RENEW_SESSION);
    renewed();
    for (int i = 0; i < 20; i++) { /* nothing more but renewals */
        order = hold_next(&hold, now);
        if (order.act == HOLD_NOTHING) now = order.until_ms;
        else if (order.act == HOLD_RENEW_SESSION) renewed();
        else cr_assert_fail("%d", (int)order.act);
    }
}

/* Time passes until it looks again. */
static void until_peek(void) {
    while ((order = hold_next(&hold, now)).act != HOLD_PEEK) {
        cr_assert_lt(now, 1100000u);
        if (order.act == HOLD_RENEW_SESSION) renewed();
        else if (order.act == HOLD_NOTHING) now = order.until_ms;
        else cr_assert_eq(order.act, HOLD_WAIT, "%d", (int)order.act);
    }
}

/* A wait that is over in a second is told why, too. */
Test(hold_looks, looks_halfway_when_it_waits_for_a_short_time) {
    begin(1000);
    NEXT(HOLD_ASK);
    NEXT(HOLD_NOTHING);
    cr_assert_eq(order.until_ms, 1000500u);
    now = order.until_ms;
    NEXT(HOLD_PEEK);
    peek(200, true, "no leader");
    SAYS("no leader");
}

Test(hold_looks, says_once_that_there_is_no_leader_and_then_who_is_in_the_way) {
    begin(HOLD_FOREVER);
    NEXT(HOLD_ASK);
    for (int i = 0; i < 3; i++) {
        until_peek();
        peek(i == 1 ? 500 : 200, true, "no leader");
        if (i == 0) SAYS("no leader");
        else SAYS_NOTHING();
    }
    session();
    until_peek();
    peek(500, false, "an error page"); /* nothing for people */
    SAYS_NOTHING();
    until_peek();
    peek(200, false, "");
    SAYS_NOTHING();
    until_peek();
    peek(200, false, "is held");
    SAYS("is held");
    for (now += 20000; now < 1060000; now += 1000)
        cr_assert_neq(hold_next(&hold, now).act, HOLD_PEEK, "it has said it");
}
