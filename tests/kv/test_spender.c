/* An agent's side of quotas: what it refuses, budgets that come and go, several at once, bounded mode, RateLimit fields. */
#include <stdio.h>
#include <stdlib.h>

#include "spender_calls.h"

TestSuite(spender, .init = begin, .fini = end);

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
    char names[SPENDER_TAKES_MOST + 1][16];
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

Test(spender, several_keys_of_a_budget_go_in_one_request_if_there_is_enough_for_all) {
    hold(&s, &plain, 10);
    const struct spender_take takes[] = {{.name = slice_text("calls"), .key = SLICE_LITERAL("a"), .n = 4},
                                         {.name = slice_text("calls"), .key = SLICE_LITERAL("b"), .n = 4},
                                         {.name = slice_text("calls"), .key = SLICE_LITERAL("a"), .n = 1}};
    cr_assert_eq(take_as(&s, takes, 3, false, false), CO_INVALID, "the same key");
    cr_assert_eq(take_as(&s, takes, 2, false, false), CO_OK);
    cr_assert_eq(take_as(&s, takes, 2, false, false), CO_AGAIN, "2 are left, for 8");
    const Pb__QuotaAskCommand *command = ask_within(&s, 1000);
    cr_assert(command && command->asks[0]->want >= 8);
    cr_assert_eq(take(&s, "calls", 2), CO_OK, "nothing was spent of it");
}

Test(spender, knows_so_many_budgets_and_no_more_but_made_up_names_make_room) {
    char name[32];
    for (int i = 0; i < SPENDER_BUDGETS_MOST; i++) {
        snprintf(name, sizeof name, "b%d", i);
        cr_assert_eq(take(&s, name, 1), CO_AGAIN);
    }
    cr_assert_eq(take(&s, "one more", 1), CO_BUSY, "nobody knows yet which of them there are");
    cr_assert_eq(take(&s, "b17", 1), CO_AGAIN);
    const char *of;
    uint64_t index;
    while (spender_follow(s.spender, &of, &index)) spender_followed(s.spender, of, CO_OK, NULL, 3, s.now_ns);
    cr_assert_eq(take(&s, "one more", 1), CO_AGAIN);
    cr_assert_eq(take(&s, "b17", 1), CO_NOTFOUND);
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
    takes[1] = (struct spender_take){SLICE_LITERAL("calls"), SLICE_LITERAL(""), 0};
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

/* Otherwise it would hear only at its next ask how much others have spent. */
Test(spender, slack_is_not_spent_after_it_has_heard_that_little_is_left) {
    Pb__QuotaDefinition bounded = budget_plain("calls", PB__QUOTA_MODE__QUOTA_BOUNDED);
    Pb__QuotaNotice notice = PB__QUOTA_NOTICE__INIT;
    bounded.drift = 100000;
    hold(&s, &bounded, 50);
    cr_assert_eq(take(&s, "calls", 1), CO_OK);
    notice.definition = &bounded, notice.defined_index = 5, notice.low = true;
    spender_followed(s.spender, "calls", CO_OK, &notice, 99, s.now_ns);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    const Pb__QuotaAskCommand *command = ask_within(&s, 1000);
    cr_assert(command && command->asks[0]->take == 1);
}

/* With what the servers spent for it slack came, too. */
Test(spender, what_the_servers_spent_is_not_lost_beside_slack) {
    plain = budget_plain("calls", PB__QUOTA_MODE__QUOTA_BOUNDED);
    hold(&s, &plain, 9);
    cr_assert_eq(take(&s, "calls", 50), CO_AGAIN);
    cr_assert(ask_within(&s, SPENDER_ASK_MS));
    cr_assert_eq(asked()->take, 50);
    GIVE(&s, .granted = 90, .balance = 100, .available = 900, .taken = true);
    cr_assert_eq(take_again(&s, "calls", 50), CO_OK);
    cr_assert_eq(admits("calls"), 100, "all of the slack is there");
}

/* The drift of a small budget is nothing: all that is taken of it the servers spend, from the first take on. */
static void first_is_spent(uint64_t budget, uint32_t drift, uint64_t n) {
    end(), begin();
    plain = budget_plain("calls", PB__QUOTA_MODE__QUOTA_BOUNDED);
    plain.budget = budget, plain.drift = drift;
    cr_assert_eq(take(&s, "calls", n), CO_AGAIN);
    budget_follow(&s, &plain, false);
    cr_assert_eq(take_again(&s, "calls", n), CO_AGAIN);
    cr_assert(ask_within(&s, 0), "of %lu", budget);
    cr_assert_eq(asked()->take, n);
    GIVE(&s, .taken = true, .available = (int64_t)(budget - n), .leases = 1);
    cr_assert_eq(take_again(&s, "calls", n), CO_OK);
}
Test(spender, where_there_is_no_slack_the_servers_spend) {
    first_is_spent(5, 10000, 1);
    first_is_spent(20, 10000, 7);
    first_is_spent(1000, 10000, 50); /* more than the slack */
}

Test(spender, where_there_is_no_slack_any_more_the_servers_spend) {
    plain = budget_plain("calls", PB__QUOTA_MODE__QUOTA_BOUNDED);
    hold(&s, &plain, 50);
    for (bool closed = false; !closed;) {
        cr_assert(ask_within(&s, 20000));
        closed = asked()->close;
        GIVE(&s, .balance = asked()->held, .available = 900);
    }
    plain.budget = 20, plain.drift = 10000; /* nothing is held */
    NOTICE(&s, &plain, .anew = true);
    cr_assert_eq(take(&s, "calls", 1), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    cr_assert_eq(asked()->take, 1);
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
    cr_assert_eq(take(&s, "calls", 1), CO_BUSY);
}

Test(spender, says_what_it_may_admit_while_it_does_not_ask) {
    plain.max_lease = 200000;
    hold(&s, &plain, 20);
    cr_assert_eq(take(&s, "calls", 50), CO_AGAIN);
    cr_assert(ask_within(&s, 100));
    GIVE(&s, .balance = 20, .available = 15, .starving = true, .level = 20);
    cr_assert_eq(rate_of("calls", 0).remaining, 20, "not 35: for more than it has the servers have not enough");
    cr_assert_eq(take(&s, "calls", 21), CO_BUSY);
    cr_assert_eq(take(&s, "calls", 20), CO_OK);
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
