/* Budgets in the replicated state: what asks are granted, what leases leave behind when they end, what refills bring back,
 * what is refused, and who is woken. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "quotas.h"

enum { SECOND = 1000000000, SESSIONS = 4 };

static struct fixture world;
static char id[SESSIONS][UUID_TEXT_SIZE + 1];

static void setup(void) {
    quotas_open(&world);
    for (unsigned i = 0; i < SESSIONS; i++) {
        session_id(i, id[i]);
        cr_assert(session_make(&world, id[i], &(struct session_plan){.node = i == 1 ? "n2" : "n1"}).yes);
    }
}
static void teardown(void) { fixture_close(&world); }
TestSuite(quota, .init = setup, .fini = teardown);

#define SUMS(line)                    cr_expect_str_eq(quota_sums(&world, "b"), line)
#define REFUSED(who, code, part, ...) quota_refused(&world, id[who], ASK(.name = text("b"), __VA_ARGS__), code, part)
#define GRANTED(who, expected, ...)   quota_granted(&world, id[who], ASK(.name = text("b"), __VA_ARGS__), expected)
static void define(const char *name, Pb__QuotaMode mode) { quota_define(&world, name, mode); }

/* -- grants and settlements --------------------------------------------------------------------------------------- */

Test(quota, a_lease_is_taken_out_of_the_budget_spent_settled_and_refilled) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    SUMS("spent 0 stranded 0 leased 0 slack 0: 1000 of 1000");
    const Pb__QuotaGrant *grant = quota_ask(&world, id[0], ASK(.name = text("b"), .want = 300));
    uint64_t lease = grant->lease;
    cr_expect(grant->granted == 300 && grant->balance == 300 && grant->available == 700 && grant->capacity == 1000);
    cr_expect(grant->ttl_ms == 10000 && !grant->starving && lease > 0 && grant->defined_index > 0);
    SUMS("spent 0 stranded 0 leased 300 slack 0: 700 of 1000");
    GRANTED(0, 150, .lease = lease, .spent = 100, .held = 150, .want = 300); /* 50 came back */
    SUMS("spent 100 stranded 0 leased 300 slack 0: 600 of 1000");
    cr_expect(quota_settle(&world, "b", lease, 250).yes);
    SUMS("spent 350 stranded 0 leased 0 slack 0: 650 of 1000");
    cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 250 stranded 0 leased 0 slack 0: 750 of 1000");
    for (unsigned i = 0; i < 3; i++) cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 0 stranded 0 leased 0 slack 0: 1000 of 1000");
    cr_expect_eq(quota_look(&world, "b")->record->refill_index, 0, "it is full: no refill is due");
    quota_trail_check(&world, "b");
}

Test(quota, a_grant_is_at_most_what_is_wanted_what_one_may_hold_and_what_there_is) {
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    definition.max_lease = 400000;
    cr_assert(quota_put(&world, &definition).yes);
    GRANTED(0, 400, .want = 401), GRANTED(1, 400, .want = QUOTA_AMOUNT_MOST);
    GRANTED(2, 200, .want = 300);
    cr_expect(quota_look(&world, "b")->record->starving);
    GRANTED(3, 0, .want = 1);
    SUMS("spent 0 stranded 0 leased 1000 slack 0: 0 of 1000");
    quota_trail_check(&world, "b");
}

Test(quota, all_or_nothing) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 600, .want = 600, .all = true);
    REFUSED(1, CO_BUSY, "wanted are 401, of which 400", .want = 401, .all = true);
    REFUSED(0, CO_BUSY, "wanted are 1001", .lease = lease, .spent = 5, .held = 500, .want = 1001, .all = true);
    SUMS("spent 0 stranded 0 leased 600 slack 0: 400 of 1000");
    GRANTED(1, 400, .want = 400, .all = true);
}

Test(quota, what_is_taken_of_the_servers_is_all_or_nothing_and_needs_no_session) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 900))->taken);
    const Pb__QuotaGrant *grant = quota_ask(&world, NULL, ASK(.name = text("b"), .take = 101));
    cr_expect(!grant->taken && !grant->error && grant->available == 100 && !grant->lease && !grant->ttl_ms);
    grant = quota_ask(&world, NULL, ASK(.name = text("b")));
    cr_expect(!grant->error && grant->available == 100 && grant->capacity == 1000, "a look");
    SUMS("spent 900 stranded 0 leased 0 slack 0: 100 of 1000");
    /* Settle, take, grant: what comes back can be taken, and what is taken is not granted. */
    uint64_t lease = GRANTED(0, 100, .want = 100);
    grant = quota_ask(&world, id[0],
                      ASK(.name = text("b"), .lease = lease, .spent = 30, .held = 10, .want = 100, .take = 60));
    cr_expect(grant->taken && grant->granted == 0 && grant->balance == 10 && grant->available == 0);
    SUMS("spent 990 stranded 0 leased 10 slack 0: 0 of 1000");
    quota_trail_check(&world, "b");
}

Test(quota, what_is_claimed_beyond_the_lease_is_refused_and_changes_nothing) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 100, .want = 100);
    REFUSED(0, CO_INVALID, "the lease holds 100", .lease = lease, .spent = 101);
    REFUSED(0, CO_INVALID, "the lease holds 100", .lease = lease, .spent = 50, .held = 51);
    REFUSED(0, CO_INVALID, "the lease holds 100", .lease = lease, .held = 101);
    REFUSED(0, CO_INVALID, "holds", .lease = lease, .spent = UINT64_MAX, .held = 2);
    REFUSED(0, CO_INVALID, "holds 0", .want = 5, .held = 1);
    REFUSED(0, CO_INVALID, "want, take", .lease = lease, .want = QUOTA_AMOUNT_MOST + 1);
    REFUSED(0, CO_INVALID, "want, take", .take = UINT64_MAX);
    REFUSED(0, CO_INVALID, "priority", .want = 1, .priority = QUOTA_PRIORITIES);
    REFUSED(0, CO_INVALID, "close", .lease = lease, .close = true, .want = 1);
    REFUSED(0, CO_INVALID, "owner mode", .lease = lease, .acked = 5);
    REFUSED(0, CO_NOTFOUND, "lease 77", .lease = 77, .want = 1);
    REFUSED(1, CO_NOTFOUND, "is not known", .lease = lease, .want = 1); /* another session's */
    REFUSED(0, CO_NOTFOUND, "is not known", .close = true);
    cr_expect_eq(quota_ask(&world, id[0], ASK(.name = text("no such"), .want = 1))->error, CO_NOTFOUND);
    cr_expect_eq(quota_ask(&world, id[0], ASK(.name = text("")))->error, CO_NOTFOUND);
    SUMS("spent 0 stranded 0 leased 100 slack 0: 900 of 1000");
    cr_expect_eq(quota_look(&world, "b")->record->leases, 1);
    struct outcome outcome = quota_settle(&world, "b", lease, 101);
    cr_expect(outcome.error == CO_INVALID && strstr(outcome.text, "101 is more than the 100"), "%s", outcome.text);
    cr_expect(quota_settle(&world, "b", lease, 100).yes);
    cr_expect_eq(quota_settle(&world, "b", lease, 100).error, CO_NOTFOUND, "twice");
    cr_expect_eq(quota_settle(&world, "no such", lease, 0).error, CO_NOTFOUND);
    SUMS("spent 100 stranded 0 leased 0 slack 0: 900 of 1000");
    quota_trail_check(&world, "b");
}

Test(quota, a_lease_is_known_by_its_token_whoever_knows_its_session) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 100, .want = 100, .seq = 1, .token = 7);
    cr_expect_eq(quota_lease_of(quota_look(&world, "b"), lease)->token, 0, "no query shows it");
    REFUSED(0, CO_DENIED, "another token", .seq = 1, .want = 100);
    REFUSED(0, CO_DENIED, "another token", .lease = lease, .seq = 2, .close = true, .token = 8);
    cr_expect_eq(quota_settle(&world, "b", lease, 0).error, CO_DENIED);
    SUMS("spent 0 stranded 0 leased 100 slack 0: 900 of 1000");
    (void)GRANTED(0, 0, .lease = lease, .seq = 2, .token = 7, .spent = 30, .held = 70, .want = 70);
    SUMS("spent 30 stranded 0 leased 70 slack 0: 900 of 1000");
}

Test(quota, asks_of_a_command_are_granted_or_refused_each_by_itself) {
    define("a", PB__QUOTA_MODE__QUOTA_LEASE), define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    const struct asks by = {.session = id[0]};
    const Pb__QuotaAsk *list[QUOTA_ASKS_MOST + 1] = {ASK(.name = text("a"), .want = 100),
                                                     ASK(.name = text("gone"), .want = 1),
                                                     ASK(.name = text("b"), .want = 2000, .all = true),
                                                     ASK(.name = text("b"), .want = 5),
                                                     ASK(.name = text("b"), .want = 6),
                                                     ASK(.name = text("b"), .take = 7)};
    const Pb__QuotaGrants *grants = quota_asks(&world, &by, list, 6, NULL);
    cr_assert(grants && grants->n_grants == 6);
    cr_expect(grants->grants[0]->granted == 100 && grants->grants[1]->error == CO_NOTFOUND);
    cr_expect(grants->grants[2]->error == CO_BUSY && grants->grants[3]->granted == 5);
    cr_expect(grants->grants[4]->error == CO_INVALID && strstr(grants->grants[4]->text, "one lease"));
    cr_expect(grants->grants[5]->taken);
    cr_expect_str_eq(grants->session, id[0]);
    SUMS("spent 7 stranded 0 leased 5 slack 0: 988 of 1000");
    struct outcome outcome;
    cr_expect(!quota_asks(&world, &by, list, 0, &outcome) && outcome.error == CO_INVALID);
    for (unsigned i = 0; i < ARRAY_COUNT(list); i++) list[i] = list[0];
    cr_expect(!quota_asks(&world, &by, list, QUOTA_ASKS_MOST + 1, &outcome) && outcome.error == CO_INVALID);
    cr_expect(
        !quota_asks(&world, &(struct asks){.session = "11111111-2222-3333-4444-555555555555"}, list, 1, &outcome) &&
            outcome.error == CO_NOTFOUND,
        "no such session");
    cr_expect(!quota_asks(&world, &(struct asks){0}, list, 1, &outcome) && outcome.error == CO_INVALID, "no session");
}

/* -- numbers: answers that are lost ------------------------------------------------------------------------------- */

Test(quota, the_same_number_again_gets_the_same_answer_and_changes_nothing_but_the_time) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 100, .seq = 1, .want = 100, .take = 3);
    cr_expect_eq(GRANTED(0, 100, .seq = 1, .want = 100, .take = 3), lease, "the lease that the session has");
    SUMS("spent 3 stranded 0 leased 100 slack 0: 897 of 1000");
    uint64_t renewed = quota_lease_of(quota_look(&world, "b"), lease)->renew_index;
    const Pb__QuotaGrant *grant = quota_ask(&world, id[0], ASK(.name = text("b"), .lease = lease, .seq = 1));
    cr_expect(grant->taken && grant->granted == 100 && grant->ttl_ms == 10000);
    cr_expect_gt(quota_lease_of(quota_look(&world, "b"), lease)->renew_index, renewed);
    GRANTED(0, 70, .seq = 2, .spent = 60, .held = 30, .want = 100);
    GRANTED(0, 70, .lease = lease, .seq = 2, .spent = 60, .held = 30, .want = 100);
    SUMS("spent 63 stranded 0 leased 100 slack 0: 837 of 1000");
    REFUSED(0, CO_CONFLICT, "seq: 1 is older than 2", .lease = lease, .seq = 1);
    cr_expect_neq(GRANTED(0, 10, .want = 10), lease, "without a number it is another lease");
    cr_expect_eq(GRANTED(0, 0, .seq = 9, .held = 100, .want = 100), lease);
    cr_expect_neq(GRANTED(1, 10, .seq = 9, .want = 10), lease, "another session's");
    cr_expect(quota_look(&world, "b")->record->leases == 3 && quota_look(&world, "b")->n_leases == 3);
    /* A number alone keeps the answer to a take. */
    cr_expect(quota_ask(&world, id[2], ASK(.name = text("b"), .seq = 1, .take = 7))->taken);
    cr_expect(quota_ask(&world, id[2], ASK(.name = text("b"), .seq = 1, .take = 7))->taken);
    SUMS("spent 70 stranded 0 leased 120 slack 0: 810 of 1000");
    quota_trail_check(&world, "b");
}

Test(quota, a_closed_lease_is_gone_and_its_close_is_not_known_again) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 100, .seq = 1, .want = 100);
    const Pb__QuotaGrant *grant =
        quota_ask(&world, id[0], ASK(.name = text("b"), .lease = lease, .seq = 2, .spent = 40, .close = true));
    cr_expect(!grant->error && !grant->lease && !grant->balance && grant->available == 960);
    REFUSED(0, CO_NOTFOUND, "is not known", .lease = lease, .seq = 2, .spent = 40, .close = true);
    SUMS("spent 40 stranded 0 leased 0 slack 0: 960 of 1000");
    cr_expect(session_get_by(&world, id[0]).found, "a session that was there before stays");
    quota_trail_check(&world, "b");
}

/* -- sessions ----------------------------------------------------------------------------------------------------- */

Test(quota, a_session_that_an_ask_made_ends_with_its_last_lease) {
    char made[UUID_TEXT_SIZE + 1];
    session_id(9, made);
    const struct asks by = {.session = made, .make = true};
    define("a", PB__QUOTA_MODE__QUOTA_LEASE), define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    const Pb__QuotaAsk *both[] = {ASK(.name = text("a"), .want = 10, .seq = 1),
                                  ASK(.name = text("b"), .want = 10, .seq = 1)};
    const Pb__QuotaGrants *grants = quota_asks(&world, &by, both, 2, NULL);
    cr_expect_str_eq(grants->session, made);
    uint64_t lease = grants->grants[1]->lease;
    grants = quota_asks(&world, &by, both, 2, NULL);
    cr_expect(grants->grants[1]->lease == lease && grants->grants[1]->granted == 10, "asked again as it was");
    cr_expect(quota_settle(&world, "b", lease, 0).yes && session_get_by(&world, made).found);
    const Pb__QuotaAsk *close = ASK(.name = text("a"), .seq = 2, .close = true);
    grants = quota_asks(&world, &(struct asks){.session = made}, &close, 1, NULL);
    cr_expect(!grants->grants[0]->error && !grants->session[0]);
    cr_expect(!session_get_by(&world, made).found);
    /* Nothing of an ask that is refused stays, nor of one that has no lease. */
    const Pb__QuotaAsk *vain[] = {ASK(.name = text("c"), .want = 1), ASK(.name = text("b"), .want = 1, .held = 1)};
    grants = quota_asks(&world, &by, vain, 2, NULL);
    cr_expect(!grants->session[0] && !session_get_by(&world, made).found);
    const Pb__QuotaAsk *take = ASK(.name = text("b"), .take = 1);
    cr_expect(quota_asks(&world, &by, &take, 1, NULL)->grants[0]->taken && !session_get_by(&world, made).found);
    cr_expect_str_eq(quota_asks(&world, &(struct asks){.session = id[0]}, &take, 1, NULL)->session, id[0]);
    cr_expect_str_eq(quota_asks(&world, &(struct asks){.session = made}, &take, 1, NULL)->session, "");
    /* By its TTL, and with its budget. */
    grants = quota_asks(&world, &by, both, 2, NULL);
    lease = grants->grants[0]->lease;
    cr_expect(quota_end(&world, "a", lease).yes && session_get_by(&world, made).found);
    cr_expect(quota_delete(&world, "b").yes && !session_get_by(&world, made).found);
    cr_expect_eq(records_in(&world, 37), 0, "nothing is bound to it");
}

Test(quota, what_a_session_held_is_stranded_when_it_ends_and_held_back_until_the_ttl_is_over) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 300, .want = 300);
    uint64_t renewed = quota_lease_of(quota_look(&world, "b"), lease)->renew_index;
    GRANTED(1, 100, .want = 100);
    cr_expect(session_drop(&world, id[0]).yes);
    SUMS("spent 0 stranded 300 leased 100 slack 0: 600 of 1000");
    const Pb__QuotaState *state = quota_look(&world, "b");
    cr_expect(state->n_leases == 1 && state->record->leases == 1 && state->record->held == 300);
    cr_expect_eq(quota_settle(&world, "b", lease, 0).error, CO_NOTFOUND);
    cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 0 stranded 300 leased 100 slack 0: 600 of 1000");
    cr_expect(quota_end_as(&world, "b", lease, renewed, world.term).yes);
    SUMS("spent 0 stranded 300 leased 100 slack 0: 600 of 1000");
    cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 200 stranded 0 leased 100 slack 0: 700 of 1000");
    cr_expect_eq(quota_look(&world, "b")->record->held, 0);
    quota_trail_check(&world, "b");
    /* The node's end is the session's. */
    cr_expect(node_remove(&world, "n2").yes);
    SUMS("spent 200 stranded 100 leased 0 slack 0: 700 of 1000");
    quota_trail_check(&world, "b");
}

Test(quota, a_lease_whose_time_is_over_is_stranded_until_the_next_refill) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 250, .want = 250);
    uint64_t index = quota_lease_of(quota_look(&world, "b"), lease)->renew_index;
    cr_expect_eq(quota_end_as(&world, "b", lease, index, world.term + 1).error, CO_CONFLICT, "of another term");
    GRANTED(0, 0, .lease = lease, .held = 250, .want = 250);
    cr_expect_eq(quota_end_as(&world, "b", lease, index, world.term).error, CO_CONFLICT, "it was renewed meanwhile");
    SUMS("spent 0 stranded 0 leased 250 slack 0: 750 of 1000");
    cr_expect(quota_end(&world, "b", lease).yes);
    SUMS("spent 0 stranded 250 leased 0 slack 0: 750 of 1000");
    cr_expect(quota_end_as(&world, "b", lease, index, world.term).yes, "it has ended");
    REFUSED(0, CO_NOTFOUND, "has ended", .lease = lease, .held = 250);
    cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 150 stranded 0 leased 0 slack 0: 850 of 1000");
    quota_trail_check(&world, "b");
}

/* -- bounded mode ------------------------------------------------------------------------------------------------- */

static void define_bounded(uint32_t drift) {
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_BOUNDED);
    definition.drift = drift;
    cr_assert(quota_put(&world, &definition).yes);
}

Test(quota, slack_is_granted_out_of_the_drift_and_reports_are_spent) {
    define_bounded(100000);
    uint64_t lease = GRANTED(0, 60, .want = 60), other = GRANTED(1, 40, .want = 40);
    SUMS("spent 0 stranded 0 leased 0 slack 100: 1000 of 1000");
    cr_expect_eq(quota_look(&world, "b")->worst_case, 100);
    /* It reports, and has the same slack afterwards, whichever way it says so. */
    GRANTED(0, 50, .lease = lease, .spent = 50, .held = 10, .want = 60);
    SUMS("spent 50 stranded 0 leased 0 slack 100: 950 of 1000");
    GRANTED(0, 50, .lease = lease, .spent = 50, .held = 60, .want = 60);
    SUMS("spent 100 stranded 0 leased 0 slack 100: 900 of 1000");
    REFUSED(0, CO_INVALID, "holds 60", .lease = lease, .spent = 61);
    REFUSED(0, CO_INVALID, "holds 60", .lease = lease, .held = 61);
    cr_expect(session_drop(&world, id[1]).yes);
    SUMS("spent 100 stranded 40 leased 0 slack 60: 860 of 1000");
    cr_expect_eq(quota_settle(&world, "b", other, 0).error, CO_NOTFOUND);
    cr_expect(quota_settle(&world, "b", lease, 60).yes);
    SUMS("spent 160 stranded 40 leased 0 slack 0: 800 of 1000");
    cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 60 stranded 40 leased 0 slack 0: 900 of 1000");
    quota_trail_check(&world, "b");
}

Test(quota, who_follows_hears_when_little_is_left_of_a_bounded_budget) {
    struct watcher waits;
    Pb__QuotaNoticeRequest request = PB__QUOTA_NOTICE_REQUEST__INIT;
    define_bounded(100000);
    request.name = text("b");
    watcher_begin(&waits, &world, &query_quota_notice, &request.base);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 899))->taken);
    cr_expect(!quota_notice(&world, "b", NULL)->low && waits.woken == 0);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 1))->taken);
    cr_expect(quota_notice(&world, "b", NULL)->low && waits.woken == 1);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 1))->taken);
    cr_expect(quota_refill(&world, "b", 0).yes && waits.woken == 1);
    cr_expect(!quota_notice(&world, "b", NULL)->low);
    watcher_end(&waits, &world);
}

Test(quota, whatever_owners_report_no_more_than_the_drift_is_spent_beyond_the_budget) {
    define_bounded(100000);
    uint64_t lease = GRANTED(0, 100, .want = 100);
    for (unsigned i = 0; i < 10; i++) GRANTED(0, 100, .lease = lease, .spent = 100, .held = 100, .want = 100);
    SUMS("spent 1000 stranded 0 leased 0 slack 100: 0 of 1000");
    cr_expect(!quota_ask(&world, NULL, ASK(.name = text("b"), .take = 1))->taken);
    GRANTED(0, 0, .lease = lease, .spent = 30, .held = 100, .want = 100); /* the last of the drift */
    SUMS("spent 1030 stranded 0 leased 0 slack 70: -30 of 1000");
    GRANTED(0, 0, .lease = lease, .spent = 70, .held = 70, .want = 100);
    GRANTED(0, 0, .lease = lease, .want = 100);
    SUMS("spent 1100 stranded 0 leased 0 slack 0: -100 of 1000");
    cr_expect(quota_refill(&world, "b", 0).yes);
    GRANTED(0, 100, .lease = lease, .want = 100);
    cr_expect(quota_refill(&world, "b", 0).yes);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 100))->taken);
    SUMS("spent 1000 stranded 0 leased 0 slack 100: 0 of 1000");
    quota_trail_check(&world, "b");
}

/* -- fair shares -------------------------------------------------------------------------------------------------- */

Test(quota, who_starves_wakes_the_others_and_gets_its_share_of_what_they_give_back) {
    struct watcher waits;
    Pb__QuotaNoticeRequest request = PB__QUOTA_NOTICE_REQUEST__INIT;
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    request.name = text("b");
    watcher_begin(&waits, &world, &query_quota_notice, &request.base);
    uint64_t greedy = GRANTED(0, 900, .want = 900), index, now;
    cr_expect(!quota_notice(&world, "b", &index)->starving && waits.woken == 0);
    const Pb__QuotaGrant *grant = quota_ask(&world, id[1], ASK(.name = text("b"), .want = 800));
    uint64_t other = grant->lease;
    cr_expect(grant->granted == 100 && grant->starving && grant->level == 500);
    cr_expect(quota_notice(&world, "b", &now)->starving && now > index && waits.woken == 1);
    grant = quota_ask(&world, id[1], ASK(.name = text("b"), .lease = other, .held = 100, .want = 800));
    cr_expect(grant->granted == 0 && grant->starving && waits.woken == 1, "they know");
    grant = quota_ask(&world, id[0], ASK(.name = text("b"), .lease = greedy, .spent = 100, .held = 350, .want = 450));
    cr_expect(grant->granted == 100 && grant->level == 500, "what it wants is below the level");
    const Pb__QuotaNotice *notice = quota_notice(&world, "b", &now);
    cr_expect(!notice->starving && !notice->denied && notice->came == now && waits.woken == 2, "something came back");
    grant = quota_ask(&world, id[1], ASK(.name = text("b"), .lease = other, .held = 100, .want = 800));
    cr_expect(grant->granted == 350 && grant->level == 450, "900 for 450 and 800: %lu %lu", grant->granted,
              grant->level);
    cr_expect(waits.woken == 3 && quota_notice(&world, "b", NULL)->denied);
    SUMS("spent 100 stranded 0 leased 900 slack 0: 0 of 1000");
    watcher_end(&waits, &world);
    quota_trail_check(&world, "b");
}

/* Says the notice that something was denied, and by which entry something came after that? */
static bool news(bool denied, bool came) {
    uint64_t index;
    const Pb__QuotaNotice *notice = quota_notice(&world, "b", &index);
    return notice->denied == denied && (notice->came == machine_index(world.machine)) == came;
}

Test(quota, who_was_denied_something_hears_when_something_comes) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    cr_expect(news(false, true), "defined");
    uint64_t lease = GRANTED(0, 900, .want = 900);
    cr_expect(news(false, false));
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 100))->taken && news(false, false));
    const Pb__QuotaGrant *grant = quota_ask(&world, NULL, ASK(.name = text("b"), .take = 100));
    cr_expect(!grant->taken && grant->owed == 100 && grant->came < machine_index(world.machine) && news(true, false),
              "by a take");
    GRANTED(0, 0, .lease = lease, .held = 800, .want = 800);
    cr_expect(news(false, true), "given back");
    cr_expect(quota_ask(&world, id[1], ASK(.name = text("b"), .want = 500))->granted && news(true, false),
              "by a lease");
    cr_expect(quota_refill(&world, "b", 0).yes && news(false, true), "refilled");
    GRANTED(0, 0, .lease = lease, .held = 800, .want = 800);
    cr_expect(news(false, false), "nobody was denied anything since");
    cr_expect(!quota_ask(&world, NULL, ASK(.name = text("b"), .take = 900))->taken && news(true, false));
    Pb__QuotaDefinition more = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    more.budget = 5000;
    cr_expect(quota_put(&world, &more).yes && news(false, true), "raised");
}

Test(quota, who_got_nothing_comes_first_when_something_comes_back) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t quick = GRANTED(0, 1000, .want = 1000), slow = GRANTED(1, 0, .want = 60);
    GRANTED(0, 0, .lease = quick, .spent = 1000);
    cr_expect(quota_refill(&world, "b", 0).yes); /* 100 */
    const Pb__QuotaGrant *grant = quota_ask(&world, id[0], ASK(.name = text("b"), .lease = quick, .want = 100));
    cr_expect(grant->granted == 40 && grant->available == 0, "%lu %ld", grant->granted, grant->available);
    cr_expect(!quota_ask(&world, NULL, ASK(.name = text("b"), .take = 1))->taken);
    /* An agent that does not come for its share lets the others wait for two seconds of refills. */
    cr_expect(quota_look(&world, "b")->record->kept == 60 && quota_refill(&world, "b", 0).yes);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 150))->taken);
    GRANTED(1, 10, .lease = slow, .want = 60);
    quota_trail_check(&world, "b");
}

Test(quota, higher_priorities_come_first) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t low = GRANTED(0, 1000, .want = 1000, .priority = 2);
    const Pb__QuotaGrant *grant = quota_ask(&world, id[1], ASK(.name = text("b"), .want = 700, .priority = 7));
    uint64_t high = grant->lease;
    cr_expect(grant->granted == 0 && grant->starving && grant->level == 1000);
    grant = quota_ask(&world, id[0], ASK(.name = text("b"), .lease = low, .held = 1000, .want = 1000, .priority = 2));
    cr_expect_eq(grant->level, 300);
    GRANTED(0, 0, .lease = low, .held = 300, .want = 1000, .priority = 2);
    GRANTED(1, 700, .lease = high, .want = 700, .priority = 7);
    const Pb__QuotaRecord *record = quota_look(&world, "b")->record;
    cr_assert_eq(record->n_classes, 2);
    cr_expect(record->classes[0]->priority == 7 && record->classes[0]->leases == 1 && record->classes[0]->wants == 700);
    cr_expect(record->classes[1]->priority == 2 && record->classes[1]->level == 300);
}
