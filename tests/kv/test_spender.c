/* An agent's side of quotas: what it asks, what it answers, and what it spends. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "spenders.h"

static struct spending s;
static Pb__QuotaDefinition plain;

static void begin(void) {
    spending_begin(&s);
    plain = budget_plain("calls", PB__QUOTA_MODE__QUOTA_LEASE);
}
static void end(void) { spending_end(&s); }
TestSuite(spender, .init = begin, .fini = end);

static const Pb__QuotaAsk *asked(void) { return s.command->asks[0]; }
static void pass_ms(uint64_t ms) { s.now_ns += ms * MS; }

/* How many takes of 1 it admits now. */
static uint64_t admits(const char *name) {
    uint64_t count = 0;
    while (take(&s, name, 1) == CO_OK) count++;
    return count;
}

/* -- what cannot be ----------------------------------------------------------------------------------------------- */

static int take_named(const char *name, size_t size) {
    struct spender_take one = {.name = slice_make(name, size), .n = 1};
    return take_as(&s, &one, 1, false, false);
}

Test(spender, refuses_names_and_keys_that_cannot_be) {
    char longest[QUOTA_NAME_MOST + 1], *key = calloc(1, SPENDER_KEY_MOST + 1);
    memset(longest, 'n', sizeof longest);
    cr_assert_eq(take_named("", 0), CO_INVALID);
    cr_assert_not_null(s.answer.text);
    cr_assert_eq(take_named("a\0b", 3), CO_INVALID);
    cr_assert_eq(take_named("a\nb", 3), CO_INVALID);
    cr_assert_eq(take_named("a\"b", 3), CO_INVALID);
    cr_assert_eq(take_named("\xc3\xa4", 2), CO_INVALID);
    cr_assert_eq(take_named(longest, QUOTA_NAME_MOST + 1), CO_INVALID);
    cr_assert_eq(take_named(longest, QUOTA_NAME_MOST), CO_AGAIN);
    struct spender_take keyed = {.name = SLICE_LITERAL("calls"), .key = slice_make(key, SPENDER_KEY_MOST + 1), .n = 1};
    cr_assert_eq(take_as(&s, &keyed, 1, false, false), CO_INVALID);
    keyed.key.size = SPENDER_KEY_MOST;
    cr_assert_eq(take_as(&s, &keyed, 1, false, false), CO_AGAIN);
    free(key);
}

Test(spender, refuses_more_than_there_can_ever_be) {
    cr_assert_eq(take(&s, "calls", UINT64_C(1000000000000000000)), CO_TOOLARGE);
    hold(&s, &plain, 10);
    cr_assert_eq(take(&s, "calls", 1001), CO_TOOLARGE);
    cr_assert_neq(take(&s, "calls", 1000), CO_TOOLARGE);
}

Test(spender, refuses_requests_that_cannot_be) {
    struct spender_take takes[SPENDER_TAKES_MOST + 1];
    char names[SPENDER_TAKES_MOST + 1][8];
    for (int i = 0; i <= SPENDER_TAKES_MOST; i++) {
        snprintf(names[i], sizeof names[i], "b%d", i);
        takes[i] = (struct spender_take){.name = slice_text(names[i]), .n = 1};
    }
    cr_assert_eq(take_as(&s, takes, 0, false, false), CO_INVALID);
    cr_assert_eq(take_as(&s, takes, SPENDER_TAKES_MOST + 1, false, false), CO_INVALID);
    cr_assert_eq(take_as(&s, takes, SPENDER_TAKES_MOST, false, false), CO_AGAIN);
    takes[5].name = takes[3].name;
    cr_assert_eq(take_as(&s, takes, 6, false, false), CO_INVALID);
    cr_assert_eq(s.answer.failed, 5);
}

Test(spender, knows_so_many_budgets_and_no_more) {
    char name[32];
    for (int i = 0; i < SPENDER_BUDGETS_MOST; i++) {
        snprintf(name, sizeof name, "b%d", i);
        cr_assert_eq(take(&s, name, 1), CO_AGAIN);
    }
    cr_assert_eq(take(&s, "one more", 1), CO_BUSY);
    cr_assert_eq(take(&s, "b17", 1), CO_AGAIN);
    const char *of;
    uint64_t index;
    while (spender_follow(s.spender, &of, &index)) spender_followed(s.spender, of, CO_OK, NULL, 3, s.now_ns);
    pass_ms(3000); /* those that do not exist are forgotten */
    spender_tick(s.spender, s.now_ns);
    cr_assert_eq(take(&s, "one more", 1), CO_AGAIN);
}

Test(spender, does_not_spend_of_budgets_with_owners_yet) {
    Pb__QuotaDefinition owned = budget_plain("calls", PB__QUOTA_MODE__QUOTA_OWNER);
    owned.service = "gateway";
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    budget_follow(&s, &owned, false);
    cr_assert_eq(take_again(&s, "calls", 1), CO_UNSUPPORTED);
    cr_assert_not_null(s.answer.text);
}

/* -- budgets that are not known ----------------------------------------------------------------------------------- */

Test(spender, a_budget_that_does_not_exist) {
    const char *name;
    uint64_t index;
    cr_assert_eq(take(&s, "nothing", 1), CO_AGAIN);
    cr_assert(spender_follow(s.spender, &name, &index));
    cr_assert_str_eq(name, "nothing");
    cr_assert_eq(index, 0);
    cr_assert_not(spender_follow(s.spender, &name, &index));
    spender_followed(s.spender, name, CO_OK, NULL, 9, s.now_ns);
    cr_assert(spender_woken(s.spender));
    cr_assert_not(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "nothing", 1), CO_NOTFOUND);
    cr_assert_not(spender_follow(s.spender, &name, &index));
    pass_ms(1000);
    cr_assert_eq(take(&s, "nothing", 1), CO_AGAIN); /* perhaps it does by now */
    cr_assert(spender_follow(s.spender, &name, &index));
}

Test(spender, nobody_can_say_whether_a_budget_exists) {
    const char *name;
    uint64_t index;
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(spender_follow(s.spender, &name, &index));
    spender_followed(s.spender, name, CO_NOLEADER, NULL, 0, s.now_ns);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "calls", 1), CO_NOLEADER);
    cr_assert_leq(spender_deadline_ns(s.spender), s.now_ns + 1000 * MS);
    pass_ms(1000);
    spender_tick(s.spender, s.now_ns);
    cr_assert(spender_follow(s.spender, &name, &index));
}

Test(spender, takes_do_not_wait_for_ever_for_a_notice) {
    const char *name;
    uint64_t index;
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(spender_follow(s.spender, &name, &index));
    cr_assert_eq(spender_deadline_ns(s.spender), s.now_ns + SPENDER_LOSS_MS * MS);
    struct spender_take one = {.name = SLICE_LITERAL("calls"), .n = 1};
    cr_assert_eq(take_as(&s, &one, 1, true, true), CO_NOLEADER);
    pass_ms(SPENDER_LOSS_MS);
    spender_tick(s.spender, s.now_ns);
    cr_assert(spender_woken(s.spender));
    cr_assert_eq(take_again(&s, "calls", 1), CO_NOLEADER);
}

Test(spender, a_budget_is_forgotten_when_nobody_takes_from_it) {
    const char *name;
    uint64_t index;
    hold(&s, &plain, 10);
    cr_assert(ask_within(&s, 20000));
    GIVE(&s, .balance = 10, .available = 990);
    cr_assert(ask_within(&s, 20000)); /* it closes the lease */
    cr_assert(asked()->close);
    GIVE(&s, .available = 1000);
    pass_ms(SPENDER_IDLE_MS);
    spender_followed(s.spender, "calls", CO_NOLEADER, NULL, 0, s.now_ns);
    spender_tick(s.spender, s.now_ns + 2000 * MS);
    cr_assert_eq(spender_deadline_ns(s.spender), UINT64_MAX);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(spender_follow(s.spender, &name, &index));
    cr_assert_eq(index, 0);
}

/* -- a lease ------------------------------------------------------------------------------------------------------ */

Test(spender, the_first_ask_makes_a_session_and_the_next_ones_use_it) {
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

Test(spender, it_spends_on_while_the_answer_is_on_its_way) {
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

Test(spender, what_was_certainly_not_applied_is_said_again) {
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

Test(spender, what_nobody_knows_of_is_sent_again_as_it_was) {
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

Test(spender, a_session_that_is_gone_takes_all_leases_with_it) {
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

Test(spender, a_lease_that_is_gone_begins_anew) {
    hold(&s, &plain, 100);
    cr_assert(ask_within(&s, 9000));
    GIVE(&s, .error = CO_NOTFOUND);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(asked()->lease, 0);
    cr_assert_eq(asked()->spent + asked()->held, 0);
}

Test(spender, what_the_servers_refuse_counts_as_spent) {
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
Test(spender, it_stops_before_the_lease_ends) {
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

Test(spender, an_agent_that_breaks_the_rule_overstays) {
    spender_mutate(s.spender, SPENDER_MUTATE_OVERSTAYS);
    hold(&s, &plain, 100);
    pass_ms(60000);
    cr_assert_eq(take(&s, "calls", 1), CO_OK);
}

Test(spender, it_closes_a_lease_that_nobody_takes_from) {
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

Test(spender, an_agent_that_ends_gives_everything_back) {
    cr_assert_not(spender_leave(s.spender));
    spending_end(&s);
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

Test(spender, it_asks_in_time_before_it_runs_out) {
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

Test(spender, it_gives_back_what_others_need) {
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

Test(spender, what_is_refused_is_not_asked_again_at_once) {
    hold(&s, &plain, 10);
    cr_assert_eq(admits("calls"), 10);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    GIVE(&s, .balance = 0, .available = 0, .starving = true, .level = 10);
    unsigned refused = 0;
    for (int i = 0; i < 99; i++, pass_ms(10)) {
        int rv = take(&s, "calls", 1);
        cr_assert_eq(rv, CO_BUSY);
        cr_assert_leq(s.answer.retry_ms, 1000);
        cr_assert_gt(s.answer.retry_ms, 0);
        cr_assert_not(ask_within(&s, 0));
        refused++;
    }
    cr_assert_eq(refused, 99);
    cr_assert(ask_within(&s, 20)); /* a refill has come */
    GIVE(&s, .granted = 5, .balance = 5, .available = 0, .starving = true, .level = 5);
    cr_assert_eq(admits("calls"), 5);
}

Test(spender, refusals_last_for_half_of_a_ttl_and_a_second_at_most) {
    plain.window = PB__QUOTA_WINDOW__QUOTA_DAY;
    plain.tokens = plain.every_ms = 0;
    hold(&s, &plain, 10);
    cr_assert_eq(admits("calls"), 10);
    for (int i = 0; i < 5; i++) {
        cr_assert(ask_within(&s, 6000));
        GIVE(&s, .balance = 0, .available = 0, .starving = true, .level = 10);
        cr_assert_eq(take(&s, "calls", 1), CO_BUSY);
        cr_assert_leq(s.answer.retry_ms, 6000);
    }
}

Test(spender, what_an_agent_may_never_hold_the_servers_spend) {
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

Test(spender, what_the_servers_spent_for_nobody_is_spent) {
    plain.max_lease = 50000;
    hold(&s, &plain, 49);
    cr_assert_eq(take(&s, "calls", 300), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    GIVE(&s, .balance = 49, .available = 600, .taken = true);
    pass_ms(2000); /* who waited has gone */
    cr_assert_eq(take_again(&s, "calls", 300), CO_AGAIN);
}

Test(spender, large_takes_get_what_is_left_for_them) {
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

Test(spender, more_waits_than_the_servers_could_spend) {
    plain.max_lease = 50000;
    hold(&s, &plain, 49);
    for (int i = 0; i < 10; i++) cr_assert_eq(take(&s, "calls", 300), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(asked()->take, 1000);
    GIVE(&s, .balance = 0, .available = 0, .taken = true);
    for (int i = 0; i < 3; i++) cr_assert_eq(take_again(&s, "calls", 300), CO_OK);
    cr_assert_neq(take_again(&s, "calls", 300), CO_OK);
}

/* -- several budgets ---------------------------------------------------------------------------------------------- */

Test(spender, several_takes_are_all_or_nothing) {
    Pb__QuotaDefinition other = budget_plain("bytes", PB__QUOTA_MODE__QUOTA_LEASE);
    hold(&s, &plain, 10);
    hold(&s, &other, 5);
    struct spender_take takes[] = {{SLICE_LITERAL("calls"), SLICE_LITERAL(""), 10},
                                   {SLICE_LITERAL("bytes"), SLICE_LITERAL(""), 6}};
    cr_assert_eq(take_as(&s, takes, 2, false, false), CO_AGAIN);
    cr_assert_eq(s.answer.failed, 1);
    cr_assert(ask_within(&s, 100));
    cr_assert_str_eq(asked()->name, "bytes");
    GIVE(&s, .balance = 5, .available = 0, .starving = true, .level = 5);
    cr_assert_eq(take_as(&s, takes, 2, true, false), CO_BUSY);
    cr_assert_eq(s.answer.failed, 1);
    takes[1].n = 5;
    cr_assert_eq(take_as(&s, takes, 2, false, false), CO_OK); /* nothing was spent before */
    takes[0].n = 0, takes[1].n = 0;
    cr_assert_eq(take_as(&s, takes, 2, false, false), CO_OK);
    takes[1] = (struct spender_take){SLICE_LITERAL("calls"), SLICE_LITERAL("x"), 0};
    cr_assert_eq(take_as(&s, takes, 2, false, false), CO_INVALID);
}

Test(spender, asks_of_all_budgets_go_together) {
    enum { BUDGETS = QUOTA_ASKS_MOST + 44 };
    char names[BUDGETS][16];
    for (int i = 0; i < BUDGETS; i++) {
        snprintf(names[i], sizeof names[i], "b%d", i);
        cr_assert_eq(take(&s, names[i], 1), CO_AGAIN);
    }
    for (int i = 0; i < BUDGETS; i++) {
        Pb__QuotaNotice notice = PB__QUOTA_NOTICE__INIT;
        const char *name;
        uint64_t index;
        cr_assert(spender_follow(s.spender, &name, &index));
        plain.name = (char *)(uintptr_t)name;
        notice.definition = &plain;
        notice.defined_index = 3;
        spender_followed(s.spender, name, CO_OK, &notice, 3, s.now_ns);
    }
    cr_assert(spender_woken(s.spender));
    for (int i = 0; i < BUDGETS; i++) cr_assert_eq(take_again(&s, names[i], 1), CO_AGAIN);
    cr_assert(ask_within(&s, 0));
    cr_assert_eq(s.command->n_asks, QUOTA_ASKS_MOST);
    static Pb__QuotaGrant rows[QUOTA_ASKS_MOST], *pointers[QUOTA_ASKS_MOST];
    Pb__QuotaGrants grants = PB__QUOTA_GRANTS__INIT;
    grants.grants = pointers;
    grants.n_grants = s.command->n_asks;
    for (size_t i = 0; i < s.command->n_asks; i++) {
        pb__quota_grant__init(&rows[i]);
        rows[i].name = s.command->asks[i]->name;
        pointers[i] = &rows[i];
    }
    spender_asked(s.spender, CO_OK, &grants, s.now_ns);
    cr_assert(ask_within(&s, 0)); /* those that did not fit */
    cr_assert_eq(s.command->n_asks, 44);
}

/* -- bounded mode ------------------------------------------------------------------------------------------------- */

Test(spender, slack_is_reported_when_half_of_it_is_used) {
    plain = budget_plain("calls", PB__QUOTA_MODE__QUOTA_BOUNDED);
    hold(&s, &plain, 99);
    cr_assert_eq(take(&s, "calls", 40), CO_OK);
    cr_assert_not(ask_within(&s, 1000));
    cr_assert_eq(take(&s, "calls", 20), CO_OK);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    cr_assert_eq(asked()->spent, 61);
    cr_assert_eq(asked()->held, 39);
    cr_assert_leq(asked()->want, 100); /* the drift */
    cr_assert_eq(take(&s, "calls", 39), CO_OK);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN); /* all that is not counted is 100 */
    GIVE(&s, .granted = 61, .balance = 100, .available = 900);
    cr_assert_eq(admits("calls"), 61);
}

Test(spender, below_the_low_watermark_the_servers_spend) {
    plain = budget_plain("calls", PB__QUOTA_MODE__QUOTA_BOUNDED);
    hold(&s, &plain, 99);
    cr_assert_eq(take(&s, "calls", 60), CO_OK);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    GIVE(&s, .granted = 60, .balance = 100, .available = 120); /* low: 100 */
    cr_assert_eq(admits("calls"), 20);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    GIVE(&s, .granted = 20, .balance = 100, .available = 100);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert_eq(take(&s, "calls", 2), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    cr_assert_eq(asked()->take, 3);
    GIVE(&s, .balance = 100, .available = 97, .taken = true);
    cr_assert_eq(take_again(&s, "calls", 1), CO_OK);
    cr_assert_eq(take_again(&s, "calls", 2), CO_OK);
    cr_assert_eq(take_again(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    GIVE(&s, .balance = 100, .available = 0);
    cr_assert_eq(take_again(&s, "calls", 1), CO_BUSY);
}

Test(spender, takes_without_a_key_have_a_part_of_the_slack) {
    plain = budget_plain("calls", PB__QUOTA_MODE__QUOTA_BOUNDED);
    plain.unknown_slack = 250000;
    plain.unknown_slack_given = true;
    hold(&s, &plain, 99);
    struct spender_take one = {.name = SLICE_LITERAL("calls"), .n = 1};
    for (int i = 0; i < 25; i++) cr_assert_eq(take_as(&s, &one, 1, false, false), CO_OK);
    cr_assert_eq(take_as(&s, &one, 1, false, false), CO_AGAIN);
    cr_assert_eq(take(&s, "calls", 1), CO_OK);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    cr_assert_eq(asked()->spent, 27);
    GIVE(&s, .granted = 27, .balance = 100, .available = 900);
    cr_assert_eq(take_as(&s, &one, 1, true, false), CO_OK);
    plain.unknown_slack = 0;
    budget_follow(&s, &plain, false);
    cr_assert(ask_within(&s, 9000));
    GIVE(&s, .granted = 1, .balance = 100, .available = 900);
    cr_assert_eq(take_as(&s, &one, 1, false, false), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    cr_assert_eq(asked()->take, 1);
}

/* -- changes ------------------------------------------------------------------------------------------------------ */

Test(spender, a_budget_that_is_deleted_under_its_lease) {
    hold(&s, &plain, 100);
    spender_followed(s.spender, "calls", CO_OK, NULL, 99, s.now_ns);
    cr_assert_eq(take(&s, "calls", 1), CO_NOTFOUND);
    cr_assert_not(ask_within(&s, 900));
}

Test(spender, a_mode_that_changes_ends_what_is_held) {
    hold(&s, &plain, 100);
    cr_assert(ask_within(&s, 9000));
    plain = budget_plain("calls", PB__QUOTA_MODE__QUOTA_BOUNDED);
    budget_follow(&s, &plain, false);
    GIVE(&s, .balance = 100, .available = 900); /* the answer to the ask of before */
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(asked()->spent + asked()->held, 0);
}

/* -- RateLimit fields --------------------------------------------------------------------------------------------- */

static struct spender_rate rate_of(const char *name, int64_t unix_s) {
    struct spender_rate rate = {0};
    cr_assert(spender_rate(s.spender, slice_text(name), SLICE_LITERAL("k"), s.now_ns, unix_s, &rate));
    return rate;
}

Test(spender, says_what_is_left) {
    struct spender_rate rate;
    cr_assert_not(spender_rate(s.spender, slice_text("calls"), SLICE_LITERAL("k"), s.now_ns, 0, &rate));
    plain.max_lease = 200000;
    hold(&s, &plain, 99);
    rate = rate_of("calls", 0);
    cr_assert_eq(rate.quota, 100);
    cr_assert_eq(rate.window_s, 1);
    cr_assert_eq(rate.remaining, 200); /* at most what one agent may hold */
    cr_assert_eq(rate.reset_s, 1);
    cr_assert_eq(admits("calls"), 99);
    cr_assert(ask_within(&s, 100));
    GIVE(&s, .balance = 0, .available = 0, .starving = true, .level = 1);
    cr_assert_eq(rate_of("calls", 0).remaining, 0);
}

Test(spender, says_what_is_left_of_a_window) {
    plain.window = PB__QUOTA_WINDOW__QUOTA_HOUR;
    plain.tokens = plain.every_ms = 0;
    hold(&s, &plain, 99);
    struct spender_rate rate = rate_of("calls", 7200 + 600);
    cr_assert_eq(rate.quota, 1000);
    cr_assert_eq(rate.window_s, 3600);
    cr_assert_eq(rate.reset_s, 3000);
}
