/* Takes that an agent refuses, and until when: a refusal ends with its reason, and says when that is. */
#include "spender_calls.h"

#define MINUTE_S INT64_C(1699999980) /* one begins */

TestSuite(spender_refusal, .init = begin, .fini = end);

static void tick_after_ms(uint64_t ms) {
    s.now_ns += ms * MS;
    spender_tick(s.spender, s.now_ns);
}
static void tick(void) { spender_tick(s.spender, s.now_ns); }

static void windowed(void) {
    plain.window = PB__QUOTA_WINDOW__QUOTA_MINUTE;
    plain.tokens = plain.every_ms = 0;
}
/* So many seconds of the minute are over by this agent's clock. */
static void wall_at(int64_t second) { spender_wall(s.spender, s.now_ns, (MINUTE_S + second) * 1000); }

/* All of it is spent, and the servers have said so. */
static void spend_all(const struct given *given) {
    hold(&s, &plain, 10);
    for (int i = 0; i < 10; i++) cr_assert_eq(take(&s, "calls", 1), CO_OK);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    answer_given(&s, given);
    cr_assert(spender_woken(s.spender));
}
#define SPENT(...) spend_all(&(const struct given){.starving = true, .level = 10, .owed = 1000, __VA_ARGS__})

static void refused_for(uint64_t least_ms, uint64_t most_ms) {
    cr_assert_eq(take(&s, "calls", 1), CO_BUSY);
    cr_assert(s.answer.retry_ms >= least_ms && s.answer.retry_ms <= most_ms, "%lu ms", s.answer.retry_ms);
}

/* -- when more comes ---------------------------------------------------------------------------------------------- */

Test(spender_refusal, until_the_next_refill_nothing_is_asked) {
    SPENT(.leases = 1);
    for (int i = 0; i < 94; i++, tick_after_ms(10)) {
        refused_for(1000 - 10 * (uint64_t)i, 1000 - 10 * (uint64_t)i);
        cr_assert_not(ask_within(&s, 0));
    }
    tick_after_ms(20); /* it comes at any moment, so that who comes now waits for it */
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert_not(ask_within(&s, 60));
    NOTICE(&s, &plain, .came = 50, .leases = 1);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 0));
    GIVE(&s, .granted = 5, .balance = 5, .starving = true, .level = 5, .came = 50, .leases = 1);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "calls", 1), CO_OK);
}

Test(spender_refusal, a_refill_that_is_half_way_is_said_to_come_sooner) {
    plain.every_ms = 60000, plain.tokens = 1;
    SPENT(.waited_ms = 37000, .leases = 1);
    refused_for(23000, 23000);
}

/* When it has seen one it knows when the next one comes, whenever it was refused. */
Test(spender_refusal, refills_that_were_seen_tell_when_the_next_one_comes) {
    SPENT(.leases = 1);
    tick_after_ms(990);
    NOTICE(&s, &plain, .came = 50, .leases = 1, .period = 50);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    tick_after_ms(400);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    GIVE(&s, .starving = true, .level = 5, .came = 50, .leases = 1, .owed = 1000, .period = 50);
    refused_for(560, 600);
}

Test(spender_refusal, until_the_next_window_nothing_is_said_to_come) {
    windowed();
    wall_at(20);
    SPENT(.window_s = MINUTE_S, .leases = 1);
    refused_for(39000, 40000);
    cr_assert_not(ask_within(&s, 5000));
    cr_assert(ask_within(&s, 2000)); /* others may have given something back, and no notice came */
    wall_at(59);
    GIVE(&s, .starving = true, .level = 10, .window_s = MINUTE_S);
    tick_after_ms(200);
    refused_for(800, 1000);
    struct spender_rate rate;
    cr_assert(spender_rate(s.spender, SLICE_LITERAL("calls"), SLICE_LITERAL("k"), s.now_ns, MINUTE_S + 59, &rate));
    cr_assert_eq(rate.reset_s, 1);
    tick_after_ms(800);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN, "it begins");
    NOTICE(&s, &plain, .came = 50, .leases = 1);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
}

/* The servers' clock is behind: their window goes on when this agent's has ended. */
Test(spender_refusal, a_window_that_is_late_is_waited_for_and_then_asked_for) {
    windowed();
    wall_at(60); /* by this clock the next minute has begun */
    SPENT(.window_s = MINUTE_S, .leases = 1);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    tick_after_ms(1100);
    struct spender_take one = {.name = SLICE_LITERAL("calls"), .key = SLICE_LITERAL("k"), .n = 1};
    cr_assert_eq(take_as(&s, &one, 1, true, true), CO_BUSY);
    cr_assert_eq(s.answer.retry_ms, 1000, "not 60,000");
    cr_assert_eq(take_again(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 500));
}

Test(spender_refusal, no_more_wait_than_what_comes_is_for) {
    SPENT(.leases = 1);
    tick_after_ms(970);
    for (int i = 0; i < 100; i++) cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    refused_for(1030, 1031); /* the refill after that one is for it */
    cr_assert_eq(take(&s, "calls", 500), CO_BUSY);
}

/* -- the reason is over ------------------------------------------------------------------------------------------- */

Test(spender_refusal, what_comes_back_early_is_asked_for_at_once) {
    windowed();
    wall_at(20);
    SPENT(.window_s = MINUTE_S, .leases = 1);
    refused_for(39000, 40000);
    NOTICE(&s, &plain, .came = 50, .leases = 1);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
}

Test(spender_refusal, a_budget_that_is_raised_serves_at_once) {
    windowed();
    wall_at(20);
    SPENT(.window_s = MINUTE_S, .leases = 1);
    refused_for(39000, 40000);
    plain.budget *= 5;
    NOTICE(&s, &plain, .anew = true, .leases = 1);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
}

/* The notice of what came was here before the answer that knew nothing of it. */
Test(spender_refusal, a_refusal_that_is_older_than_the_notice_is_none) {
    windowed();
    wall_at(20);
    hold(&s, &plain, 10);
    for (int i = 0; i < 10; i++) cr_assert_eq(take(&s, "calls", 1), CO_OK);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    NOTICE(&s, &plain, .came = 50, .leases = 1);
    GIVE(&s, .starving = true, .level = 10, .window_s = MINUTE_S, .came = 20, .leases = 1);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
}

Test(spender_refusal, without_a_notice_it_asks_soon_after_more_was_expected) {
    SPENT(.leases = 1);
    refused_for(1000, 1000);
    tick_after_ms(1000);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    uint64_t from_ns = s.now_ns;
    while (!spender_woken(s.spender)) {
        s.now_ns = spender_deadline_ns(s.spender);
        tick();
    }
    cr_assert_eq(take_again(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 0));
    cr_assert(s.now_ns >= from_ns + 200 * MS && s.now_ns <= from_ns + 400 * MS, "%lu ms", (s.now_ns - from_ns) / MS);
}

/* -- many that wait ----------------------------------------------------------------------------------------------- */

Test(spender_refusal, others_have_taken_it_all_and_it_does_not_ask) {
    SPENT(.leases = 20);
    tick_after_ms(990);
    NOTICE(&s, &plain, .came = 50, .leases = 20, .period = 50);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert_not(ask_within(&s, 10)); /* its turn comes later */
    NOTICE(&s, &plain, .came = 50, .leases = 20, .denied = true);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "calls", 1), CO_BUSY);
    cr_assert(s.answer.retry_ms >= 980 && s.answer.retry_ms <= 1000);
    cr_assert_not(ask_within(&s, 400));
}

/* When its turn is, after so many that it missed. */
static uint64_t turn_after(unsigned missed) {
    uint64_t came = 50;
    SPENT(.leases = 10);
    for (unsigned i = 0; i < missed; i++) {
        tick_after_ms(1000);
        NOTICE(&s, &plain, .came = ++came, .leases = 10, .left = 5);
        cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
        uint64_t from_ns = s.now_ns;
        cr_assert_not(ask_within(&s, 0));
        cr_assert_not(spender_woken(s.spender));
        while (!spender_woken(s.spender)) {
            s.now_ns = spender_deadline_ns(s.spender);
            tick();
        }
        cr_assert_eq(take_again(&s, "calls", 1), CO_AGAIN);
        cr_assert(ask_within(&s, 0));
        if (i + 1 == missed) return (s.now_ns - from_ns) / MS;
        GIVE(&s, .starving = true, .level = 5, .came = came, .leases = 10, .owed = 1000);
        cr_assert(spender_woken(s.spender));
    }
    return 0;
}

Test(spender_refusal, who_has_waited_longer_asks_earlier) {
    uint64_t before_ms = 1000;
    for (unsigned missed = 1; missed < 15; missed++) {
        uint64_t ms = turn_after(missed);
        cr_assert(ms <= before_ms && ms <= 320, "%u: %lu ms, %lu before", missed, ms, before_ms);
        before_ms = ms;
        end(), begin();
    }
    cr_assert_leq(before_ms, 40);
}

/* -- what the servers do not know is not refilled ----------------------------------------------------------------- */

Test(spender_refusal, it_says_what_it_spent_before_it_refuses_when_the_refill_would_miss_that) {
    hold(&s, &plain, 10);
    cr_assert_eq(take(&s, "calls", 20), CO_AGAIN);
    cr_assert(ask_within(&s, 1000));
    GIVE(&s, .granted = 5, .balance = 5, .starving = true, .level = 5, .leases = 1, .owed = 40);
    for (int i = 0; i < 5; i++) cr_assert_eq(take(&s, "calls", 1), CO_OK);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    cr_assert_eq(asked()->spent, 5);
    GIVE(&s, .starving = true, .level = 5, .leases = 1, .owed = 45);
    refused_for(1000, 1000);
}

/* -- who does not come again -------------------------------------------------------------------------------------- */

/* Of a token a second: it was refused, told to come in a second, and this agent has got the next one. */
static void got_one(uint64_t leases) {
    plain.budget = plain.tokens = 1;
    hold(&s, &plain, 0);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    GIVE(&s, .starving = true, .level = 1, .owed = 1, .leases = leases);
    cr_assert(spender_woken(s.spender));
    refused_for(1000, 1000);
    cr_assert(ask_within(&s, 1500));
    cr_assert_eq(asked()->want, 1);
    GIVE(&s, .granted = 1, .balance = 1, .level = 1, .came = 50, .leases = leases);
    cr_assert(spender_woken(s.spender));
}

Test(spender_refusal, what_came_for_who_stays_away_goes_to_those_who_starve) {
    got_one(2);
    NOTICE(&s, &plain, .came = 50, .leases = 2, .denied = true, .starving = true);
    cr_assert_not(ask_within(&s, SPENDER_REST_MS - 1), "who was refused comes at any moment");
    cr_assert(ask_within(&s, 1000));
    cr_assert(asked()->close);
    cr_assert_eq(asked()->held + asked()->spent + asked()->want, 0);
    GIVE(&s, .came = 60, .starving = true, .leases = 1);
    cr_assert_not(ask_within(&s, 60000), "nobody comes");
}

Test(spender_refusal, what_came_for_who_comes_again_is_there) {
    got_one(2);
    NOTICE(&s, &plain, .came = 50, .leases = 2, .denied = true, .starving = true);
    tick_after_ms(1000); /* it was refused longer ago than that */
    cr_assert_eq(take(&s, "calls", 1), CO_OK);
    cr_assert_eq(s.answer.source, SPENDER_LOCAL);
}

Test(spender_refusal, what_lies_idle_is_given_back_when_somebody_begins_to_starve) {
    plain.lease_ttl_ms = 60000;
    got_one(2);
    cr_assert_not(ask_within(&s, 5000), "nobody needs it");
    cr_assert_eq(take(&s, "calls", 0), CO_OK, "a look is nothing that is wanted");
    NOTICE(&s, &plain, .came = 50, .leases = 2, .denied = true, .starving = true);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    cr_assert(asked()->close);
    cr_assert_eq(asked()->held, 0);
}

Test(spender_refusal, nobody_else_is_there_to_give_it_to) {
    plain.lease_ttl_ms = 60000;
    got_one(1);
    NOTICE(&s, &plain, .came = 50, .leases = 1, .denied = true, .starving = true);
    cr_assert_not(ask_within(&s, 4000));
    cr_assert_eq(take(&s, "calls", 1), CO_OK);
}

/* The agent's rest is too little for one take and enough for others; a client that was told a minute comes after
 * that. */
Test(spender_refusal, it_stays_in_line_until_who_was_refused_has_come) {
    plain.lease_ttl_ms = 600000;
    windowed();
    wall_at(20);
    SPENT(.window_s = MINUTE_S, .leases = 3);
    refused_for(39000, 40000);
    while (ask_within(&s, 20000)) {
        cr_assert_not(asked()->close);
        GIVE(&s, .starving = true, .level = 10, .owed = 1000, .window_s = MINUTE_S, .leases = 3);
    }
}

/* -- takes of more ------------------------------------------------------------------------------------------------ */

Test(spender_refusal, a_take_of_more_is_told_when_so_much_has_come) {
    plain.budget = 5, plain.tokens = 1;
    hold(&s, &plain, 4);
    cr_assert_eq(take(&s, "calls", 4), CO_OK);
    cr_assert_eq(take(&s, "calls", 5), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    GIVE(&s, .starving = true, .level = 5, .owed = 5, .leases = 1);
    cr_assert_eq(take_again(&s, "calls", 5), CO_BUSY);
    cr_assert_eq(s.answer.retry_ms, 5000);
    cr_assert_eq(take(&s, "calls", 3), CO_BUSY);
    cr_assert_eq(s.answer.retry_ms, 3000);
    refused_for(1000, 1000);
}

Test(spender_refusal, what_is_there_of_it_comes_no_more) {
    plain.budget = 100, plain.tokens = 10, plain.max_lease = 10000;
    hold(&s, &plain, 0);
    cr_assert_eq(take(&s, "calls", 50), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    GIVE(&s, .starving = true, .level = 1, .available = 25, .owed = 75, .leases = 1);
    cr_assert_eq(take_again(&s, "calls", 50), CO_BUSY);
    cr_assert_eq(s.answer.retry_ms, 3000, "25 are missing, of 10 a second");
    tick_after_ms(1000);
    NOTICE(&s, &plain, .came = 50, .left = 35, .leases = 1, .period = 50);
    cr_assert(ask_within(&s, 1000));
    GIVE(&s, .starving = true, .level = 1, .available = 35, .owed = 65, .leases = 1, .came = 50, .period = 50);
    cr_assert_eq(take(&s, "calls", 50), CO_BUSY);
    cr_assert(s.answer.retry_ms > 1500 && s.answer.retry_ms <= 2000, "15 are: %lu ms", s.answer.retry_ms);
}
