/* Budgets in the replicated state: what refills bring back and when, what changes with a definition, what is read. */
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
TestSuite(quota_changes, .init = setup, .fini = teardown);

#define SUMS(line)                    cr_expect_str_eq(quota_sums(&world, "b"), line)
#define REFUSED(who, code, part, ...) quota_refused(&world, id[who], ASK(.name = text("b"), __VA_ARGS__), code, part)
#define GRANTED(who, expected, ...)   quota_granted(&world, id[who], ASK(.name = text("b"), __VA_ARGS__), expected)
static void define(const char *name, Pb__QuotaMode mode) { quota_define(&world, name, mode); }

/* -- refills ------------------------------------------------------------------------------------------------------ */

Test(quota_changes, a_refill_counts_once_in_its_term_and_for_its_arming) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 500))->taken);
    uint64_t armed = quota_look(&world, "b")->record->refill_index;
    cr_expect_eq(quota_refill_as(&world, "b", armed, world.term + 1, 0).error, CO_CONFLICT);
    cr_expect_eq(quota_refill_as(&world, "b", armed - 1, world.term, 0).error, CO_CONFLICT);
    cr_expect_eq(quota_refill_as(&world, "b", 0, world.term, 0).error, CO_CONFLICT);
    SUMS("spent 500 stranded 0 leased 0 slack 0: 500 of 1000");
    cr_expect(quota_refill_as(&world, "b", armed, world.term, 0).yes);
    cr_expect_eq(quota_refill_as(&world, "b", armed, world.term, 0).error, CO_CONFLICT, "twice");
    world.term = 2; /* what the leader before has proposed for the next one */
    cr_expect_eq(quota_refill_as(&world, "b", quota_look(&world, "b")->record->refill_index, 1, 0).error, CO_CONFLICT);
    SUMS("spent 400 stranded 0 leased 0 slack 0: 600 of 1000");
    cr_expect_eq(quota_refill_as(&world, "no such", 1, 2, 0).error, CO_NOTFOUND);
}

static void updates_now(struct buffer *updates) {
    buffer_reset(updates);
    fixture_updates(&world, SECOND, updates);
}

Test(quota_changes, what_ends_by_itself_is_told_to_the_leader) {
    struct buffer updates = {0};
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    updates_now(&updates);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 150))->taken);
    (void)quota_ask(&world, NULL, ASK(.name = text("b"), .take = 1)); /* it is armed already */
    updates_now(&updates);
    cr_expect_str_eq(updates.data, "quota refill began b 1; ");
    cr_expect(quota_refill(&world, "b", 0).yes);
    updates_now(&updates);
    cr_expect_str_eq(updates.data, "quota refill began b 1; ");
    cr_expect(quota_refill(&world, "b", 0).yes);
    updates_now(&updates);
    cr_expect_str_eq(updates.data, "quota refill ended b 0; ");
    uint64_t lease = GRANTED(0, 5, .want = 5);
    char name[40];
    snprintf(name, sizeof name, "quota lease began b/%lu 10; ", lease);
    updates_now(&updates);
    cr_expect_str_eq(updates.data, name);
    cr_expect(quota_settle(&world, "b", lease, 0).yes);
    snprintf(name, sizeof name, "quota lease ended b/%lu 0; ", lease);
    updates_now(&updates);
    cr_expect_str_eq(updates.data, name);
    buffer_free(&updates);
}

static int64_t period_of(const char *name, int64_t unix_ms) {
    const struct expiry_leader leader = {.term = 1, .now_ms = 5000, .unix_ms = unix_ms};
    size_t size = strlen(name);
    struct expiry_update *began = calloc(1, sizeof *began + size + 1);
    began->size = size, began->period_ns = 77;
    memcpy(began->name, name, size);
    store_read_done(world.reader);
    int64_t period = quota_refill_expiry.period_ns(store_read(world.reader), began, &leader);
    store_read_done(world.reader);
    free(began);
    return period;
}

static void define_window(const char *name, Pb__QuotaWindow window) {
    Pb__QuotaDefinition definition = quota_plain(name, PB__QUOTA_MODE__QUOTA_LEASE);
    definition.tokens = definition.every_ms = 0, definition.window = window;
    cr_assert(quota_put(&world, &definition).yes);
}

Test(quota_changes, a_window_begins_once_by_the_leaders_clock) {
    enum { HOUR = 3600 };
    define_window("b", PB__QUOTA_WINDOW__QUOTA_HOUR);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 400))->taken);
    cr_expect(quota_refill(&world, "b", 10 * HOUR + 5).yes, "the leader says which window it is");
    SUMS("spent 400 stranded 0 leased 0 slack 0: 600 of 1000");
    cr_expect_eq(quota_look(&world, "b")->record->window_start, 10 * HOUR);
    cr_expect(quota_refill(&world, "b", 11 * HOUR - 1).yes, "too early: nothing but another time for it");
    SUMS("spent 400 stranded 0 leased 0 slack 0: 600 of 1000");
    (void)GRANTED(0, 100, .want = 100);
    cr_expect(quota_refill(&world, "b", 11 * HOUR).yes);
    SUMS("spent 0 stranded 0 leased 100 slack 0: 900 of 1000");
    cr_expect_eq(quota_look(&world, "b")->record->refill_index, 0);
    /* It is spent from again in the same window, and the next leader's clock is behind. */
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 1))->taken);
    cr_expect(quota_refill(&world, "b", 11 * HOUR - 2).yes && quota_refill(&world, "b", 11 * HOUR).yes);
    SUMS("spent 1 stranded 0 leased 100 slack 0: 899 of 1000");
    cr_expect(quota_refill(&world, "b", 12 * HOUR + 9).yes);
    SUMS("spent 0 stranded 0 leased 100 slack 0: 900 of 1000");
    /* The clock of a leader is ahead: that window begins early, once. The next leader begins none before the one after it. */
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 2))->taken);
    cr_expect(quota_refill(&world, "b", 12 * HOUR + 10).yes && quota_refill(&world, "b", 15 * HOUR).yes);
    SUMS("spent 0 stranded 0 leased 100 slack 0: 900 of 1000");
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 3))->taken);
    for (int64_t hour = 12; hour <= 15; hour++) cr_expect(quota_refill(&world, "b", hour * HOUR + 1).yes);
    cr_expect_eq(quota_look(&world, "b")->record->window_start, 15 * HOUR);
    SUMS("spent 3 stranded 0 leased 100 slack 0: 897 of 1000");
    cr_expect(quota_refill(&world, "b", 16 * HOUR).yes);
    SUMS("spent 0 stranded 0 leased 100 slack 0: 900 of 1000");
    quota_trail_check(&world, "b");
}

/* Leaders change, and none of them stays for as long as a token takes. */
Test(quota_changes, a_new_leader_goes_on_with_the_time_until_a_refill) {
    const int64_t piece = INT64_C(5400) * SECOND;
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    definition.tokens = 1, definition.every_ms = 86400000;
    cr_assert(quota_put(&world, &definition).yes);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 7))->taken);
    for (unsigned i = 1; i < QUOTA_REFILL_WAITS; i++) {
        world.term++;
        cr_expect_eq(period_of("b", 0), piece);
        cr_expect(quota_refill(&world, "b", 0).yes);
        cr_expect_eq(quota_look(&world, "b")->record->waited_ms, i * UINT64_C(5400000));
    }
    SUMS("spent 7 stranded 0 leased 0 slack 0: 993 of 1000");
    cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 6 stranded 0 leased 0 slack 0: 994 of 1000");
    cr_expect_eq(quota_look(&world, "b")->record->waited_ms, 0);
    /* Time that was waited counts only for the refill that it was waited for. */
    cr_expect(quota_refill(&world, "b", 0).yes);
    definition.tokens = 2;
    cr_assert(quota_put(&world, &definition).yes);
    cr_expect_eq(quota_look(&world, "b")->record->waited_ms, 0);
    quota_trail_check(&world, "b");
}

Test(quota_changes, a_lease_that_ends_in_the_next_window_counts_in_that) {
    define_window("b", PB__QUOTA_WINDOW__QUOTA_MINUTE);
    uint64_t lease = GRANTED(0, 700, .want = 700);
    uint64_t renewed = quota_lease_of(quota_look(&world, "b"), lease)->renew_index;
    cr_expect(session_drop(&world, id[0]).yes && quota_refill(&world, "b", 0).yes);
    cr_expect(quota_refill(&world, "b", 60).yes);
    SUMS("spent 0 stranded 700 leased 0 slack 0: 300 of 1000");
    cr_expect(quota_end_as(&world, "b", lease, renewed, world.term).yes);
    SUMS("spent 0 stranded 700 leased 0 slack 0: 300 of 1000");
    cr_expect(quota_refill(&world, "b", 120).yes);
    SUMS("spent 0 stranded 0 leased 0 slack 0: 1000 of 1000");
    quota_trail_check(&world, "b");
}

/* The deadlines that the leader counts. */
static struct { char text[200]; } told;
static void see(void *data, uint8_t command, const ProtobufCMessage *message) {
    (void)data;
    if (command == QUOTA_REFILL) {
        const Pb__QuotaRefillCommand *refill = (const Pb__QuotaRefillCommand *)message;
        snprintf(told.text, sizeof told.text, "refill %s %lu %lu %ld", refill->name, refill->index, refill->term,
                 refill->now_unix_ms);
    } else {
        const Pb__QuotaLeaseEndCommand *end = (const Pb__QuotaLeaseEndCommand *)message;
        snprintf(told.text, sizeof told.text, "end %s %lu %lu %lu", end->name, end->lease, end->index, end->term);
    }
}
static void due(void *data, const struct expiry_due *item) {
    const struct expiry_leader leader = {.term = 7, .now_ms = 0, .unix_ms = 99};
    (void)data;
    item->kind->end(item, &leader, see, NULL);
}

Test(quota_changes, a_leader_reads_what_ends_and_proposes_it) {
    char expected[200];
    define("b", PB__QUOTA_MODE__QUOTA_LEASE), define("a/1", PB__QUOTA_MODE__QUOTA_LEASE);
    define_window("w", PB__QUOTA_WINDOW__QUOTA_DAY);
    cr_expect(period_of("b", 0) == SECOND && period_of("no such", 0) == 77);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("w"), .take = 1))->taken);
    cr_expect_eq(period_of("w", INT64_C(86400000) * 3 + 1000), 1, "the window is to be noted");
    cr_expect(quota_refill(&world, "w", 86400 * 3 + 1).yes);
    cr_expect_eq(period_of("w", INT64_C(86400000) * 3 + 1000), INT64_C(86399) * SECOND);
    cr_expect_eq(period_of("w", INT64_C(86400000) * 9), 1, "it is long over");
    cr_expect_eq(period_of("w", INT64_C(86400000) * 2 + 1000), INT64_C(86399) * SECOND, "a clock that is behind");
    uint64_t lease = quota_granted(&world, id[0], ASK(.name = text("a/1"), .want = 5), 5);
    struct expiry *expiry = expiry_new();
    const struct expiry_leader leader = {.term = 7, .now_ms = 1000, .unix_ms = 0};
    expiry_lead(expiry, 7, 1000);
    store_read_done(world.reader);
    struct store_txn *txn = store_read(world.reader);
    cr_expect_eq(quota_refill_expiry.read(txn, &leader, expiry), CO_OK);
    cr_expect_eq(quota_lease_expiry.read(txn, &leader, expiry), CO_OK);
    store_read_done(world.reader);
    cr_expect(expiry_count(expiry, &quota_refill_expiry) == 1 && expiry_count(expiry, &quota_lease_expiry) == 1);
    while (expiry_deadline_ms(expiry) < 11001) expiry_tick(expiry, expiry_deadline_ms(expiry), due, NULL);
    cr_expect_str_eq(told.text, "", "not before its time");
    expiry_tick(expiry, 11001, due, NULL);
    snprintf(expected, sizeof expected, "end a/1 %lu %lu 7", lease,
             quota_lease_of(quota_look(&world, "a/1"), lease)->renew_index);
    cr_expect_str_eq(told.text, expected);
    expiry_free(expiry);
}

/* -- definitions that change, and go ------------------------------------------------------------------------------ */

Test(quota_changes, a_budget_that_is_lowered_below_what_is_leased_grants_nothing_until_it_is_back) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 800, .want = 800), other = GRANTED(1, 100, .want = 100);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 50))->taken);
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    definition.budget = 500;
    cr_assert(quota_put(&world, &definition).yes);
    SUMS("spent 50 stranded 0 leased 900 slack 0: 0 of 500");
    const Pb__QuotaGrant *grant =
        quota_ask(&world, id[1], ASK(.name = text("b"), .lease = other, .held = 100, .want = 200));
    cr_expect(grant->granted == 0 && grant->available == 0 && grant->level == 250, "%lu", grant->level);
    cr_expect(!quota_ask(&world, NULL, ASK(.name = text("b"), .take = 1))->taken);
    GRANTED(0, 0, .lease = lease, .spent = 400, .held = 400, .want = 500); /* what it holds stays its */
    SUMS("spent 450 stranded 0 leased 500 slack 0: 0 of 500");
    cr_expect(session_drop(&world, id[0]).yes);
    SUMS("spent 450 stranded 400 leased 100 slack 0: 0 of 500");
    for (unsigned i = 0; i < 5; i++) cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 0 stranded 400 leased 100 slack 0: 0 of 500");
    quota_trail_check(&world, "b");
}

Test(quota_changes, the_same_definition_changes_nothing_and_another_one_only_with_the_right_index) {
    Pb__QuotaPutCommand command = PB__QUOTA_PUT_COMMAND__INIT;
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    command.definition = &definition, command.cas_given = true, command.cas = 5;
    cr_expect_eq(fixture_apply(&world, QUOTA_PUT, &command.base).error, CO_CONFLICT, "there is none");
    command.cas = 0;
    uint64_t index = fixture_apply(&world, QUOTA_PUT, &command.base).index;
    cr_expect(quota_put(&world, &definition).yes);
    cr_expect_eq(quota_look(&world, "b")->record->defined_index, index);
    definition.budget = 2000;
    struct outcome outcome = fixture_apply(&world, QUOTA_PUT, &command.base);
    cr_expect(outcome.error == CO_CONFLICT && strstr(outcome.text, "was defined at"), "%s", outcome.text);
    command.cas = index;
    cr_expect(fixture_apply(&world, QUOTA_PUT, &command.base).yes && quota_look(&world, "b")->capacity == 2000);
    command.definition = NULL;
    cr_expect_eq(fixture_apply(&world, QUOTA_PUT, &command.base).error, CO_INVALID);
    definition.budget = 0;
    outcome = quota_put(&world, &definition);
    cr_expect(outcome.error == CO_INVALID && strstr(outcome.text, "Budget"));
    cr_expect_eq(quota_look(&world, "b")->capacity, 2000);
}

Test(quota_changes, a_refill_that_stays_the_same_comes_when_it_was_due) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    cr_expect(quota_ask(&world, NULL, ASK(.name = text("b"), .take = 500))->taken);
    uint64_t armed = quota_look(&world, "b")->record->refill_index;
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    definition.budget = 3000;
    cr_expect(quota_put(&world, &definition).yes);
    cr_expect_eq(quota_look(&world, "b")->record->refill_index, armed);
    definition.tokens = 50;
    cr_expect(quota_put(&world, &definition).yes);
    cr_expect_gt(quota_look(&world, "b")->record->refill_index, armed);
    cr_expect_eq(quota_refill_as(&world, "b", armed, world.term, 0).error, CO_CONFLICT);
    cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 450 stranded 0 leased 0 slack 0: 2550 of 3000");
    definition.tokens = definition.every_ms = 0, definition.window = PB__QUOTA_WINDOW__QUOTA_DAY;
    cr_expect(quota_put(&world, &definition).yes && quota_refill(&world, "b", 86400).yes);
    SUMS("spent 450 stranded 0 leased 0 slack 0: 2550 of 3000");
    cr_expect(quota_refill(&world, "b", 2 * 86400).yes);
    SUMS("spent 0 stranded 0 leased 0 slack 0: 3000 of 3000");
}

Test(quota_changes, leases_end_when_the_mode_changes_and_what_they_held_is_held_back) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 300, .want = 300);
    uint64_t renewed = quota_lease_of(quota_look(&world, "b"), lease)->renew_index;
    Pb__QuotaDefinition bounded = quota_plain("b", PB__QUOTA_MODE__QUOTA_BOUNDED);
    bounded.drift = 100000;
    cr_assert(quota_put(&world, &bounded).yes);
    SUMS("spent 0 stranded 300 leased 0 slack 0: 700 of 1000");
    REFUSED(0, CO_NOTFOUND, "is not known", .lease = lease, .held = 300);
    uint64_t other = GRANTED(0, 80, .want = 80);
    cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 0 stranded 300 leased 0 slack 80: 700 of 1000");
    cr_expect(quota_end_as(&world, "b", lease, renewed, world.term).yes && quota_refill(&world, "b", 0).yes);
    SUMS("spent 200 stranded 0 leased 0 slack 80: 800 of 1000");
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    SUMS("spent 200 stranded 80 leased 0 slack 0: 720 of 1000");
    cr_expect_eq(quota_look(&world, "b")->n_leases, 0);
    (void)other;
    quota_trail_check(&world, "b");
}

Test(quota_changes, a_budget_that_is_deleted_takes_its_leases_and_all_its_records_along) {
    struct watcher looks, follows;
    Pb__QuotaRequest look = PB__QUOTA_REQUEST__INIT;
    Pb__QuotaNoticeRequest follow = PB__QUOTA_NOTICE_REQUEST__INIT;
    look.name = follow.name = text("b");
    define("b", PB__QUOTA_MODE__QUOTA_LEASE), define("b2", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 300, .want = 300);
    (void)GRANTED(1, 300, .want = 300, .seq = 1),
        (void)quota_granted(&world, id[1], ASK(.name = text("b2"), .want = 5), 5);
    cr_expect(session_drop(&world, id[0]).yes);
    watcher_begin(&looks, &world, &query_quota, &look.base),
        watcher_begin(&follows, &world, &query_quota_notice, &follow.base);
    cr_expect_eq(quota_delete(&world, "c").error, CO_NOTFOUND);
    struct outcome outcome = quota_delete(&world, "b");
    cr_expect(outcome.yes && looks.woken == 1 && follows.woken == 1);
    uint64_t index;
    cr_expect(!quota_look(&world, "b") && !quota_notice(&world, "b", &index) && index == outcome.index);
    cr_expect(!quota_trail(&world, "b", 0));
    REFUSED(1, CO_NOTFOUND, "no budget", .seq = 2, .want = 1);
    cr_expect_eq(quota_settle(&world, "b", lease, 0).error, CO_NOTFOUND);
    watcher_end(&looks, &world), watcher_end(&follows, &world);
    cr_expect(session_drop(&world, id[1]).yes, "its binding is gone");
    cr_expect_eq(quota_delete(&world, "b2").error, CO_OK);
    cr_expect(records_in(&world, 36) == 0 && records_in(&world, 37) == 0);
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    SUMS("spent 0 stranded 0 leased 0 slack 0: 1000 of 1000");
}

/* -- reads -------------------------------------------------------------------------------------------------------- */

Test(quota_changes, budgets_are_listed_by_prefix_with_their_bounds) {
    Pb__QuotaListRequest request = PB__QUOTA_LIST_REQUEST__INIT;
    Pb__QuotaDefinition definition = quota_plain("api/b", PB__QUOTA_MODE__QUOTA_LEASE);
    definition.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN, definition.local_cap = 7;
    cr_assert(quota_put(&world, &definition).yes);
    define("api/a", PB__QUOTA_MODE__QUOTA_LEASE), define("db", PB__QUOTA_MODE__QUOTA_LEASE);
    (void)quota_granted(&world, id[0], ASK(.name = text("api/a"), .want = 5), 5);
    uint64_t index = quota_look(&world, "api/a")->modify_index;
    request.prefix = text("api/");
    struct query_result result = fixture_ask(&world, &query_quotas, &request.base);
    const Pb__QuotaListResult *all = (const Pb__QuotaListResult *)result.message;
    cr_assert(all->n_quotas == 2 && result.index == index);
    cr_expect_str_eq(all->quotas[0]->record->definition->name, "api/a");
    cr_expect(all->quotas[0]->n_leases == 0 && all->quotas[0]->record->leased == 5);
    cr_expect(all->quotas[1]->worst_case == 21 && all->quotas[1]->bound->local_caps == 21 &&
              all->quotas[1]->agents == 3);
    index = quota_delete(&world, "api/b").index;
    cr_expect_eq(fixture_ask(&world, &query_quotas, &request.base).index, index);
    request.prefix = text("");
    result = fixture_ask(&world, &query_quotas, &request.base);
    cr_expect_eq(((const Pb__QuotaListResult *)result.message)->n_quotas, 2);
}

Test(quota_changes, the_trail_is_read_in_pages_and_forgets_its_beginning) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 1, .want = 1);
    for (unsigned i = 0; i < 1250; i++) GRANTED(0, 1, .lease = lease, .want = 1); /* two rows each */
    const Pb__QuotaAuditResult *page = quota_trail(&world, "b", 0);
    cr_expect(page->n_entries == QUOTA_AUDIT_PAGE && page->first == 1 && page->next == QUOTA_AUDIT_PAGE + 1);
    page = quota_trail(&world, "b", 2501);
    cr_expect(page->n_entries == 2 && page->next == 2503 && page->entries[1]->kind == PB__QUOTA_KIND__QUOTA_GRANTED);
    cr_expect_str_eq(page->entries[1]->node, "n1");
    page = quota_trail(&world, "b", 9000);
    cr_expect(page->n_entries == 0 && page->next == 9000);
    quota_trail_check(&world, "b");
    for (unsigned i = 0; i < 4000; i++) GRANTED(0, 1, .lease = lease, .want = 1);
    page = quota_trail(&world, "b", 0);
    cr_expect(page->first == 503 && page->entries[0]->number == 503, "%lu", page->first);
    quota_trail_check(&world, "b");
}

Test(quota_changes, amounts_of_ten_to_the_fifteenth_do_not_run_over) {
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    definition.budget = definition.tokens = QUOTA_AMOUNT_MOST;
    cr_assert(quota_put(&world, &definition).yes);
    uint64_t lease = GRANTED(0, QUOTA_AMOUNT_MOST, .want = QUOTA_AMOUNT_MOST);
    for (unsigned i = 0; i < 30; i++) (void)GRANTED(1, 0, .want = QUOTA_AMOUNT_MOST);
    const Pb__QuotaGrant *grant = quota_ask(
        &world, id[0], ASK(.name = text("b"), .lease = lease, .held = QUOTA_AMOUNT_MOST, .want = QUOTA_AMOUNT_MOST));
    cr_expect(grant->level == QUOTA_AMOUNT_MOST / 31 + 1, "%lu", grant->level);
    cr_expect(quota_settle(&world, "b", lease, QUOTA_AMOUNT_MOST).yes);
    SUMS("spent 1000000000000000 stranded 0 leased 0 slack 0: 0 of 1000000000000000");
    cr_expect(quota_refill(&world, "b", 0).yes);
    SUMS("spent 0 stranded 0 leased 0 slack 0: 1000000000000000 of 1000000000000000");
    definition.mode = PB__QUOTA_MODE__QUOTA_BOUNDED, definition.drift = QUOTA_WHOLE;
    cr_assert(quota_put(&world, &definition).yes);
    lease = GRANTED(0, QUOTA_AMOUNT_MOST, .want = QUOTA_AMOUNT_MOST);
    GRANTED(0, QUOTA_AMOUNT_MOST, .lease = lease, .spent = QUOTA_AMOUNT_MOST, .want = QUOTA_AMOUNT_MOST);
    cr_expect(quota_settle(&world, "b", lease, QUOTA_AMOUNT_MOST).yes);
    SUMS("spent 2000000000000000 stranded 0 leased 0 slack 0: -1000000000000000 of 1000000000000000");
    quota_trail_check(&world, "b");
}

Test(quota_changes, a_restart_changes_nothing) {
    define("b", PB__QUOTA_MODE__QUOTA_LEASE);
    uint64_t lease = GRANTED(0, 300, .want = 300, .seq = 4);
    uint64_t sum = fixture_sum(&world);
    fixture_reopen(&world);
    cr_expect_eq(fixture_sum(&world), sum);
    cr_expect_eq(GRANTED(0, 300, .want = 300, .seq = 4), lease);
}
