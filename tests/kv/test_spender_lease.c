/* An agent's part of one budget: how it asks for it, spends it and gives it back, and how much the servers spend for
 * it. */
#include "base/text.h"
#include "spender_calls.h"

TestSuite(spender_lease, .init = begin, .fini = end);

/* -- a lease ------------------------------------------------------------------------------------------------------ */

Test(spender_lease, the_first_ask_makes_a_session_and_the_next_ones_use_it) {
    cr_assert_eq(take(&s, "calls", 3), CO_AGAIN);
    budget_follow(&s, &plain, false);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "calls", 3), CO_AGAIN);
    cr_assert(ask_within(&s, 0));
    const Pb__SessionUse *use = s.command->session;
    cr_assert_str_eq(s.command->node, "n1");
    cr_assert_str_eq(use->id, "");
    cr_assert(uuid_valid(slice_text(use->create->id)));
    cr_assert_str_eq(use->create->node, "n1");
    cr_assert_eq(use->create->n_node_checks, 1);
    cr_assert_str_eq(use->create->node_checks[0], "serfHealth");
    char session[40];
    strcpy(session, use->create->id);
    cr_assert_str_eq(asked()->name, "calls");
    cr_assert_eq(asked()->lease, 0);
    cr_assert_gt(asked()->seq, 0);
    cr_assert_geq(asked()->want, 3);
    cr_assert_eq(asked()->priority, 3);
    cr_assert_eq(asked()->held + asked()->spent + asked()->take, 0);
    uint64_t seq = asked()->seq;
    const Pb__QuotaAskCommand *another;
    cr_assert_not(spender_ask(s.spender, s.now_ns + 60 * S, &another)); /* one at a time */
    GIVE(&s, .granted = 20, .balance = 20, .available = 980);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "calls", 3), CO_OK);
    cr_assert_eq(s.answer.source, SPENDER_RENEWED);
    cr_assert_eq(take(&s, "calls", 4), CO_OK);
    cr_assert_eq(s.answer.source, SPENDER_LOCAL);

    cr_assert_not(ask_within(&s, 4900)); /* not before half of its time */
    cr_assert(ask_within(&s, 5000));
    cr_assert_str_eq(s.command->session->id, session);
    cr_assert_null(s.command->session->create);
    cr_assert_eq(asked()->lease, 77);
    cr_assert_gt(asked()->seq, seq);
    cr_assert_eq(asked()->spent, 7);
    cr_assert_eq(asked()->held, 13);
}

Test(spender_lease, it_spends_on_while_the_answer_is_on_its_way) {
    hold(&s, &plain, 100);
    cr_assert_eq(take(&s, "calls", 40), CO_OK);
    cr_assert(ask_within(&s, 9000));
    cr_assert_eq(asked()->spent, 41);
    cr_assert_eq(asked()->held, 60);
    cr_assert_eq(take(&s, "calls", 50), CO_OK);
    cr_assert_eq(take(&s, "calls", 20), CO_AGAIN); /* 10 are left */
    pass_ms(20);
    GIVE(&s, .granted = 30, .balance = 90, .available = 900);
    cr_assert_eq(take_again(&s, "calls", 20), CO_OK);
    cr_assert_eq(admits("calls"), 20); /* 90 less 50 and 20 */
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(asked()->spent, 90);
    cr_assert_eq(asked()->held, 0);
}

Test(spender_lease, what_was_certainly_not_applied_is_said_again) {
    hold(&s, &plain, 100);
    cr_assert_eq(take(&s, "calls", 40), CO_OK);
    cr_assert(ask_within(&s, 9000));
    uint64_t seq = asked()->seq;
    cr_assert_eq(take(&s, "calls", 5), CO_OK);
    answer_error(&s, CO_NOLEADER);
    cr_assert_eq(take(&s, "calls", 5), CO_OK);
    cr_assert(ask_within(&s, 1500));
    cr_assert_gt(asked()->seq, seq);
    cr_assert_eq(asked()->spent, 51);
    cr_assert_eq(asked()->held, 50);
}

Test(spender_lease, what_nobody_knows_of_is_sent_again_as_it_was) {
    hold(&s, &plain, 100);
    cr_assert_eq(take(&s, "calls", 40), CO_OK);
    cr_assert(ask_within(&s, 9000));
    Pb__QuotaAsk first = *asked();
    answer_error(&s, CO_UNKNOWN_OUTCOME);
    cr_assert_eq(take(&s, "calls", 5), CO_OK);
    cr_assert(ask_within(&s, 1500));
    answer_error(&s, CO_NOLEADER); /* which says nothing of the first one */
    cr_assert(ask_within(&s, 1500));
    cr_assert_eq(asked()->seq, first.seq);
    cr_assert_eq(asked()->spent, first.spent);
    cr_assert_eq(asked()->held, first.held);
    cr_assert_eq(asked()->want, first.want);
    GIVE(&s, .granted = 40, .balance = 100, .available = 900);
    cr_assert_eq(admits("calls"), 95);
}

Test(spender_lease, a_session_that_is_gone_takes_all_leases_with_it) {
    hold(&s, &plain, 100);
    char session[40] = "";
    cr_assert(ask_within(&s, 9000));
    strcpy(session, s.command->session->id);
    cr_assert_neq(session[0], '\0');
    answer_error(&s, CO_NOTFOUND);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_neq(strcmp(s.command->session->create->id, session), 0);
    cr_assert_eq(asked()->lease, 0);
    cr_assert_eq(asked()->spent + asked()->held, 0);
}

Test(spender_lease, a_lease_that_is_gone_begins_anew) {
    hold(&s, &plain, 100);
    cr_assert(ask_within(&s, 9000));
    GIVE(&s, .error = CO_NOTFOUND);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(asked()->lease, 0);
    cr_assert_eq(asked()->spent + asked()->held, 0);
}

Test(spender_lease, what_the_servers_refuse_counts_as_spent) {
    hold(&s, &plain, 100);
    cr_assert_eq(take(&s, "calls", 40), CO_OK);
    cr_assert(ask_within(&s, 9000));
    GIVE(&s, .error = CO_INVALID);
    cr_assert_eq(take(&s, "calls", 1), CO_BUSY);
    cr_assert(ask_within(&s, 10000));
    cr_assert_eq(asked()->lease, 77);
    cr_assert(asked()->close);
    cr_assert_eq(asked()->spent, 101);
    cr_assert_eq(asked()->held, 0);
}

/* The clock may be slow by 1 %, and counts from the sending on. */
Test(spender_lease, it_stops_before_the_lease_ends) {
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    budget_follow(&s, &plain, false);
    cr_assert_eq(take_again(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 0));
    uint64_t end_ns = s.now_ns + 9900 * MS - SPENDER_MARGIN_MS * MS;
    pass_ms(300);
    GIVE(&s, .granted = 100, .balance = 100, .available = 900);
    s.now_ns = end_ns - 1;
    cr_assert_eq(take(&s, "calls", 1), CO_OK);
    s.now_ns = end_ns;
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    /* The servers may still have it: then it settles what it spent, and goes on. */
    cr_assert(ask_within(&s, 0));
    cr_assert_eq(asked()->lease, 77);
    cr_assert_eq(asked()->spent, 1);
}

Test(spender_lease, an_agent_that_breaks_the_rule_overstays) {
    spender_mutate(s.spender, SPENDER_MUTATE_OVERSTAYS);
    hold(&s, &plain, 100);
    pass_ms(60000);
    cr_assert_eq(take(&s, "calls", 1), CO_OK);
}

Test(spender_lease, it_closes_a_lease_that_nobody_takes_from) {
    hold(&s, &plain, 100);
    cr_assert(ask_within(&s, 9000));
    cr_assert_not(asked()->close);
    GIVE(&s, .balance = asked()->held, .available = 900);
    cr_assert(ask_within(&s, 9000));
    cr_assert(asked()->close);
    cr_assert_eq(asked()->want + asked()->held, 0);
    GIVE(&s, .available = 1000);
    cr_assert_not(ask_within(&s, 100000));
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 0));
    cr_assert_eq(asked()->lease, 0);
}

Test(spender_lease, an_agent_that_ends_gives_everything_back) {
    cr_assert_not(spender_leave(s.spender));
    spender_case_end(&s);
    begin();
    hold(&s, &plain, 100);
    cr_assert(spender_leave(s.spender));
    cr_assert(ask_within(&s, 100));
    cr_assert(asked()->close);
    cr_assert_eq(asked()->spent, 1);
    cr_assert_eq(take(&s, "calls", 1), CO_NOLEADER);
    cr_assert(spender_leave(s.spender));
    GIVE(&s, .available = 999);
    cr_assert_not(spender_leave(s.spender));
}

/* -- how much ----------------------------------------------------------------------------------------------------- */

Test(spender_lease, it_asks_in_time_before_it_runs_out) {
    plain.budget = 1000000;
    hold(&s, &plain, 10000);
    for (int i = 0; i < 1000; i++) { /* 1,000 a second */
        pass_ms(1);
        cr_assert_eq(take(&s, "calls", 1), CO_OK);
        cr_assert_not(ask_within(&s, 0));
    }
    cr_assert_eq(take(&s, "calls", 7900), CO_OK);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    cr_assert_gt(asked()->want, 10000);
    cr_assert_gt(asked()->held, 1000); /* nothing is refused meanwhile */
}

Test(spender_lease, it_gives_back_what_others_need) {
    hold(&s, &plain, 500);
    for (int i = 0; i < 50; i++) { /* 10 a second */
        pass_ms(100);
        cr_assert_eq(take(&s, "calls", 1), CO_OK);
    }
    cr_assert_not(ask_within(&s, 0));
    budget_follow(&s, &plain, true);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    cr_assert_eq(asked()->spent, 51);
    cr_assert_lt(asked()->held, 250);
    cr_assert_gt(asked()->held, 70); /* which it needs for itself */
    uint64_t held = asked()->held;
    GIVE(&s, .balance = held, .available = 500, .starving = true, .level = 50);
    cr_assert(ask_within(&s, SPENDER_ASK_MS)); /* its fair part is less */
    cr_assert_eq(asked()->held, 50);
    GIVE(&s, .balance = 50, .available = 500, .starving = true, .level = 50);
    cr_assert_not(ask_within(&s, 1000));
}

Test(spender_lease, what_an_agent_may_never_hold_the_servers_spend) {
    plain.max_lease = 50000; /* 50 of 1000 */
    hold(&s, &plain, 49);
    cr_assert_eq(take(&s, "calls", 300), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(asked()->take, 300);
    cr_assert_leq(asked()->want, 50);
    cr_assert_eq(take(&s, "calls", 10), CO_OK);
    GIVE(&s, .balance = 49, .available = 600, .taken = true);
    cr_assert_eq(take(&s, "calls", 300), CO_AGAIN); /* it did not wait for it */
    cr_assert_eq(take_again(&s, "calls", 300), CO_OK);
    cr_assert_eq(s.answer.source, SPENDER_RENEWED);
    cr_assert_eq(take_again(&s, "calls", 300), CO_AGAIN); /* once */
}

Test(spender_lease, what_the_servers_spent_for_nobody_is_spent) {
    plain.max_lease = 50000;
    hold(&s, &plain, 49);
    cr_assert_eq(take(&s, "calls", 300), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    GIVE(&s, .balance = 49, .available = 600, .taken = true);
    pass_ms(2000); /* who waited has gone */
    cr_assert_eq(take_again(&s, "calls", 300), CO_AGAIN);
}

Test(spender_lease, large_takes_get_what_is_left_for_them) {
    plain.max_lease = 50000;
    hold(&s, &plain, 49);
    cr_assert_eq(take(&s, "calls", 300), CO_AGAIN);
    cr_assert_eq(take(&s, "calls", 300), CO_AGAIN);
    cr_assert_eq(take(&s, "calls", 60), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(asked()->take, 660);
    GIVE(&s, .balance = 50, .available = 400);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "calls", 300), CO_AGAIN);
    cr_assert_eq(take_again(&s, "calls", 300), CO_BUSY);
    cr_assert_eq(take_again(&s, "calls", 60), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(asked()->take, 360);
    cr_assert_eq(asked()->held, 0); /* it needs all that there is */
}

Test(spender_lease, more_waits_than_the_servers_could_spend) {
    plain.max_lease = 50000;
    hold(&s, &plain, 49);
    for (int i = 0; i < 10; i++) cr_assert_eq(take(&s, "calls", 300), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(asked()->take, 1000);
    GIVE(&s, .balance = 0, .available = 0, .taken = true);
    for (int i = 0; i < 3; i++) cr_assert_eq(take_again(&s, "calls", 300), CO_OK);
    cr_assert_neq(take_again(&s, "calls", 300), CO_OK);
}
