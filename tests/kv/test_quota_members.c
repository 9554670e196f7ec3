/* Owner mode: who is a member, when an epoch is active, which keys are hot or split. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/message.h"
#include "quotas.h"

static struct fixture world;
static char id[4][UUID_TEXT_SIZE + 1];
static const char *const nodes[] = {"n1", "n2", "n3"};

static struct outcome instance(const char *node, const char *check, Pb__Status status) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node record = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check of_service = PB__CHECK__INIT, *checks[] = {&of_service};
    record.name = text(node), record.address = text("10.0.0.1");
    service.id = service.name = text("api");
    of_service.check_id = text(check), of_service.name = text(check), of_service.status = status;
    of_service.service_id = text("api");
    command.node = &record, command.service = &service, command.checks = checks, command.n_checks = 1;
    return fixture_apply(&world, CATALOG_REGISTER, &command.base);
}

static void define(uint32_t split, bool window) {
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_OWNER);
    definition.split = split;
    if (window) definition.tokens = definition.every_ms = 0, definition.window = PB__QUOTA_WINDOW__QUOTA_HOUR;
    struct outcome outcome = quota_put(&world, &definition);
    cr_assert(outcome.yes, "%s", outcome.text);
}

static void setup(void) {
    quotas_open(&world);
    for (unsigned i = 0; i < ARRAY_COUNT(id); i++) {
        session_id(i, id[i]);
        cr_assert(session_make(&world, id[i], &(struct session_plan){.node = nodes[i % 3]}).yes);
    }
    for (unsigned i = 0; i < 3; i++) {
        struct outcome outcome = instance(nodes[i], "c", PB__STATUS__PASSING);
        cr_assert(outcome.yes, "%s", outcome.text);
    }
    define(0, false);
}
static void teardown(void) { fixture_close(&world); }
TestSuite(quota_members, .init = setup, .fini = teardown);

#define SAYS(who, ...) quota_ask(&world, id[who], ASK(.name = text("b"), .seq = ++seq, __VA_ARGS__))
static uint64_t seq;
static uint64_t epoch(void) { return quota_notice(&world, "b", NULL)->epoch; }

/* "n1 n2 | n1": the members, and those of the active epoch. */
static const char *members(void) {
    static struct buffer line;
    const Pb__QuotaNotice *notice = quota_notice(&world, "b", NULL);
    buffer_reset(&line);
    for (size_t i = 0; i < notice->n_members; i++) buffer_printf(&line, "%s ", notice->members[i]);
    buffer_append_text(&line, "|");
    for (size_t i = 0; i < notice->n_active_members; i++) buffer_printf(&line, " %s", notice->active_members[i]);
    if (notice->active == notice->epoch) buffer_append_text(&line, " .");
    buffer_append_byte(&line, '\0');
    return line.data;
}
#define MEMBERS(line) cr_expect_str_eq(members(), line)

Test(quota_members, a_new_member_counts_when_those_before_it_have_acknowledged) {
    MEMBERS("| .");
    const Pb__QuotaGrant *grant = SAYS(0, .want = 5);
    cr_expect(!grant->error && grant->lease && !grant->granted && !grant->balance && grant->epoch == grant->active);
    MEMBERS("n1 | n1 .");
    uint64_t epoch = SAYS(1)->epoch;
    MEMBERS("n1 n2 | n1");
    cr_expect_eq(SAYS(0, .acked = epoch + 1)->error, CO_INVALID, "it has not come");
    (void)SAYS(0), (void)SAYS(1, .acked = epoch);
    MEMBERS("n1 n2 | n1");
    grant = SAYS(0, .acked = epoch);
    cr_expect(grant->epoch == epoch && grant->active == epoch);
    MEMBERS("n1 n2 | n1 n2 .");
    /* Two come at once; one of those that must acknowledge goes instead. */
    (void)SAYS(2);
    uint64_t third = quota_notice(&world, "b", NULL)->epoch;
    (void)SAYS(0, .acked = third);
    MEMBERS("n1 n2 n3 | n1 n2");
    cr_expect(!SAYS(1, .close = true)->error);
    MEMBERS("n1 n3 | n1 n2");
    (void)SAYS(0, .acked = quota_notice(&world, "b", NULL)->epoch);
    MEMBERS("n1 n3 | n1 n3 .");
    cr_expect(!SAYS(0, .close = true)->error);
    MEMBERS("n3 | n3 .");
    cr_expect(!SAYS(2, .close = true)->error);
    MEMBERS("| .");
    quota_trail_check(&world, "b");
}

Test(quota_members, a_member_whose_session_ends_counts_until_its_time_is_over) {
    define(0, true);
    uint64_t lease = SAYS(0)->lease;
    (void)SAYS(1), (void)SAYS(0, .acked = quota_notice(&world, "b", NULL)->epoch);
    MEMBERS("n1 n2 | n1 n2 .");
    cr_expect(session_drop(&world, id[0]).yes);
    MEMBERS("n1 n2 | n1 n2 .");
    uint64_t index;
    (void)quota_notice(&world, "b", &index);
    cr_expect(quota_end(&world, "b", lease).yes);
    MEMBERS("n2 | n2 .");
    uint64_t after;
    (void)quota_notice(&world, "b", &after);
    cr_expect_gt(after, index);
    const Pb__QuotaRecord *record = quota_look(&world, "b")->record;
    cr_expect(record->unsettled_ends == 1 && record->refill_index, "until the window ends");
    cr_expect(quota_refill(&world, "b", 3600).yes && quota_refill(&world, "b", 7200).yes);
    record = quota_look(&world, "b")->record;
    cr_expect(record->unsettled_ends == 0 && !record->refill_index);
    cr_expect(session_drop(&world, id[1]).yes && quota_delete(&world, "b").yes);
    cr_expect(records_in(&world, 36) == 0 && records_in(&world, 37) == 0);
}

Test(quota_members, who_comes_while_an_epoch_is_pending_waits_until_it_is_active) {
    (void)SAYS(0), (void)SAYS(1);
    uint64_t index, pending = epoch();
    (void)quota_notice(&world, "b", &index);
    cr_expect(SAYS(2)->lease > pending && epoch() == pending);
    uint64_t after;
    (void)quota_notice(&world, "b", &after);
    cr_expect_eq(after, index, "nobody hears of it");
    MEMBERS("n1 n2 | n1");
    (void)SAYS(0, .acked = pending);
    MEMBERS("n1 n2 n3 | n1 n2");
    (void)SAYS(0, .acked = epoch());
    MEMBERS("n1 n2 n3 | n1 n2");
    (void)SAYS(1, .acked = epoch());
    MEMBERS("n1 n2 n3 | n1 n2 n3 .");
    /* Somebody who goes makes an epoch with those that wait. */
    (void)SAYS(2, .close = true), (void)SAYS(1, .close = true);
    (void)SAYS(1), (void)SAYS(2);
    MEMBERS("n1 n2 | n1");
    (void)SAYS(1, .close = true);
    MEMBERS("n1 n3 | n1");
    (void)SAYS(0, .close = true);
    MEMBERS("n3 | n3 .");
}

/* "n1 n2": the losses of the newest notice. */
static const char *losses(void) {
    static struct buffer line;
    const Pb__QuotaNotice *notice = quota_notice(&world, "b", NULL);
    buffer_reset(&line);
    for (size_t i = 0; i < notice->n_losses; i++) buffer_printf(&line, "%s ", notice->losses[i]->node);
    if (notice->losses_before) buffer_append_text(&line, "and before");
    buffer_append_byte(&line, '\0');
    return line.data;
}

Test(quota_members, owners_that_end_unsettled_are_listed_until_they_do_not_matter) {
    uint64_t first = SAYS(0)->lease;
    cr_expect_str_eq(losses(), "");
    uint64_t never_active = SAYS(1)->lease;
    cr_expect(quota_end(&world, "b", never_active).yes);
    cr_expect_str_eq(losses(), "", "it counted nothing");
    cr_expect_eq(SAYS(0, .unsettled = true)->error, CO_INVALID);
    cr_expect(quota_end(&world, "b", first).yes);
    cr_expect_str_eq(losses(), "n1 ");
    (void)SAYS(2);
    cr_expect(!SAYS(2, .close = true, .unsettled = true)->error);
    cr_expect_str_eq(losses(), "n1 n3 ");
    const Pb__QuotaNotice *notice = quota_notice(&world, "b", NULL);
    cr_expect_gt(notice->losses[1]->active, notice->losses[0]->active);
    uint64_t over = notice->losses[0]->index;
    (void)SAYS(2, .losses_over = over);
    (void)SAYS(2, .losses_over = over);
    cr_expect_str_eq(losses(), "n3 ");
    for (unsigned i = 0; i <= QUOTA_LOSSES_MOST; i++) {
        (void)SAYS(2, .close = true, .unsettled = true);
        (void)SAYS(2);
    }
    notice = quota_notice(&world, "b", NULL);
    cr_expect(notice->n_losses == QUOTA_LOSSES_MOST && notice->losses_before);
    (void)SAYS(2, .losses_over = notice->losses_before);
    cr_expect_eq(quota_notice(&world, "b", NULL)->losses_before, 0);
}

/* The newest lease of a node is the node's; of those that were active it is seen which have ended. */
Test(quota_members, notices_say_which_leases_are_members) {
    uint64_t old = SAYS(0)->lease, other = SAYS(1)->lease;
    (void)SAYS(0, .acked = epoch());
    uint64_t anew = SAYS(3)->lease;
    const Pb__QuotaNotice *notice = quota_notice(&world, "b", NULL);
    cr_expect(notice->n_member_leases == 2 && notice->member_leases[0] == anew && notice->member_leases[1] == other);
    cr_expect(notice->n_active_leases == 2 && notice->active_leases[0] == old && notice->active_leases[1] == other);
    cr_expect(quota_end(&world, "b", old).yes);
    notice = quota_notice(&world, "b", NULL);
    cr_expect(notice->active_leases[0] == 0 && notice->active_leases[1] == other && notice->epoch > notice->active);
    cr_expect_str_eq(losses(), "n1 ");
}

static const char *owned(uint64_t *index) {
    static struct buffer line;
    Pb__QuotaOwnedRequest request = PB__QUOTA_OWNED_REQUEST__INIT;
    struct query_result result = fixture_ask(&world, &query_quota_owned, &request.base);
    const Pb__QuotaOwnedResult *all = (const Pb__QuotaOwnedResult *)result.message;
    buffer_reset(&line);
    for (size_t i = 0; i < all->n_budgets; i++)
        buffer_printf(&line, "%s:%s ", all->budgets[i]->name, all->budgets[i]->service);
    buffer_append_byte(&line, '\0');
    *index = result.index;
    return line.data;
}

Test(quota_members, which_budgets_have_owners_can_be_followed) {
    uint64_t first, index;
    cr_expect_str_eq(owned(&first), "b:api ");
    Pb__QuotaDefinition other = quota_plain("a", PB__QUOTA_MODE__QUOTA_LEASE);
    cr_assert(quota_put(&world, &other).yes);
    define(3, false);
    (void)SAYS(0);
    cr_expect_str_eq(owned(&index), "b:api ");
    cr_expect_eq(index, first);
    other = quota_plain("a", PB__QUOTA_MODE__QUOTA_OWNER);
    other.service = text("web");
    cr_assert(quota_put(&world, &other).yes);
    cr_expect_str_eq(owned(&index), "a:web b:api ");
    cr_expect_gt(index, first);
    cr_assert(quota_delete(&world, "b").yes);
    cr_expect_str_eq(owned(&first), "a:web ");
    cr_expect_gt(first, index);
}

Test(quota_members, two_agents_of_a_node_are_one_member_until_both_are_gone) {
    (void)SAYS(0), (void)SAYS(3);
    MEMBERS("n1 | n1");
    (void)SAYS(0, .close = true);
    MEMBERS("n1 | n1 .");
    uint64_t lease = SAYS(3)->lease;
    cr_expect(quota_settle(&world, "b", lease, 0).yes);
    MEMBERS("| .");
}

Test(quota_members, an_agent_without_a_passing_instance_is_refused) {
    (void)SAYS(0);
    cr_assert(instance("n1", "c", PB__STATUS__CRITICAL).yes && instance("n2", "c", PB__STATUS__WARNING).yes);
    const Pb__QuotaGrant *grant = SAYS(0);
    cr_expect(grant->error == CO_CONFLICT && strstr(grant->text, "n1\" has no passing instance of service \"api\""));
    cr_expect_eq(SAYS(1)->error, CO_CONFLICT);
    cr_assert(check_register(&world, "n3", "of the node", PB__STATUS__CRITICAL).yes);
    cr_expect_eq(SAYS(2)->error, CO_CONFLICT);
    cr_assert(check_deregister(&world, "n3", "of the node").yes);
    cr_expect_eq(SAYS(2)->error, CO_OK);
    const Pb__QuotaAsk *ask = ASK(.name = text("b"), .want = 1);
    const struct asks elsewhere = {.session = id[0], .node = "n33"};
    cr_expect_eq(quota_asks(&world, &elsewhere, &ask, 1, NULL)->grants[0]->error, CO_CONFLICT);
    cr_expect_eq(SAYS(0, .close = true)->error, CO_OK, "it may go");
    MEMBERS("n3 | n3 .");
}

Test(quota_members, there_is_nothing_to_spend_of_the_servers) {
    cr_expect_eq(SAYS(0, .take = 1)->error, CO_INVALID);
    cr_expect_eq(SAYS(0, .held = 1)->error, CO_INVALID);
    cr_expect_eq(SAYS(0, .spent = 1)->error, CO_INVALID);
    MEMBERS("| .");
    cr_expect_str_eq(quota_sums(&world, "b"), "spent 0 stranded 0 leased 0 slack 0: 1000 of 1000");
}

static Pb__QuotaSplit split_of(const char *key, uint32_t parts) {
    Pb__QuotaSplit split = PB__QUOTA_SPLIT__INIT;
    split.key = message_bytes(slice_text(key)), split.parts = parts;
    return split;
}

/* "k:334+333+333 ". */
static const char *splits(void) {
    static struct buffer line;
    const Pb__QuotaNotice *notice = quota_notice(&world, "b", NULL);
    buffer_reset(&line);
    for (size_t i = 0; i < notice->n_splits; i++) {
        buffer_append(&line, notice->splits[i]->key.data, notice->splits[i]->key.len);
        for (size_t j = 0; j < notice->splits[i]->n_amounts; j++)
            buffer_printf(&line, "%c%lu", j ? '+' : ':', notice->splits[i]->amounts[j]);
        buffer_append_byte(&line, ' ');
    }
    buffer_append_byte(&line, '\0');
    return line.data;
}

Test(quota_members, a_hot_key_is_split_into_parts_that_add_up) {
    Pb__QuotaSplit a = split_of("a", 3), b = split_of("b", 2), none = split_of("a", 1), *list[] = {&a, &b};
    cr_expect_eq(SAYS(0, .acked = epoch(), .n_split = 1, .split = list)->error, CO_INVALID,
                 "the budget allows no splits");
    define(3, false);
    uint64_t index, after;
    cr_expect(!SAYS(0, .n_split = 2, .split = list)->split, "who joins counts nothing yet");
    cr_expect(!SAYS(0, .acked = epoch() - 1, .n_split = 2, .split = list)->split);
    cr_expect_str_eq(splits(), "");
    cr_expect(SAYS(0, .acked = epoch(), .n_split = 2, .split = list)->split);
    cr_expect_str_eq(splits(), "a:333+333+334 b:500+500 ");
    (void)quota_notice(&world, "b", &index);
    cr_expect(!SAYS(0, .acked = epoch(), .n_split = 2, .split = list)->error);
    (void)quota_notice(&world, "b", &after);
    cr_expect_eq(index, after, "they are split already");
    a.parts = 4;
    cr_expect_eq(SAYS(0, .acked = epoch(), .n_split = 2, .split = list)->error, CO_INVALID);
    define(2, false);
    cr_expect_str_eq(splits(), "a:500+500 b:500+500 ");
    list[0] = &none;
    cr_expect(!SAYS(0, .acked = epoch(), .n_split = 1, .split = list)->error);
    cr_expect_str_eq(splits(), "b:500+500 ");
    define(0, false);
    cr_expect_str_eq(splits(), "");
}

Test(quota_members, hot_keys_and_splits_are_bounded) {
    enum { MANY = 70 };
    static char large[MANY][QUOTA_KEY_MOST + 2];
    Pb__QuotaHotKey hot[MANY], *hots[MANY];
    Pb__QuotaSplit split[MANY], *list[MANY];
    define(2, false);
    (void)SAYS(0);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(large[i], sizeof large[i], "%u", i);
        pb__quota_hot_key__init(hots[i] = &hot[i]);
        hot[i].key = message_bytes(slice_text(large[i])), hot[i].rate = i;
        split[i] = split_of(large[i], 2);
        list[i] = &split[i];
    }
    cr_expect_eq(SAYS(0, .n_hot = QUOTA_HOT_MOST + 1, .hot = hots)->error, CO_INVALID);
    cr_expect_eq(SAYS(0, .n_hot = QUOTA_HOT_MOST, .hot = hots, .reported = 77)->error, CO_OK);
    const Pb__QuotaState *state = quota_look(&world, "b");
    cr_expect(state->leases[0]->n_hot == QUOTA_HOT_MOST && state->leases[0]->hot[3]->rate == 3 &&
              state->leases[0]->reported == 77);
    const double no_rates[] = {-1, NAN, INFINITY, 1e18};
    for (unsigned i = 0; i < ARRAY_COUNT(no_rates); i++) {
        hot[0].rate = no_rates[i];
        cr_expect_eq(SAYS(0, .n_hot = 1, .hot = hots)->error, CO_INVALID);
    }
    hot[0].rate = 0;
    cr_expect_eq(SAYS(0, .acked = epoch(), .n_split = QUOTA_SPLITS_MOST + 1, .split = list)->error, CO_INVALID);
    cr_expect_eq(SAYS(0, .acked = epoch(), .n_split = QUOTA_SPLITS_MOST, .split = list)->error, CO_OK);
    cr_expect_eq(SAYS(0, .acked = epoch(), .n_split = 1, .split = &list[MANY - 1])->error, CO_INVALID, "no more");
    memset(large[0], 'k', QUOTA_KEY_MOST + 1);
    hot[0].key = split[0].key = message_bytes(slice_make(large[0], QUOTA_KEY_MOST + 1));
    cr_expect_eq(SAYS(0, .n_hot = 1, .hot = hots)->error, CO_INVALID);
    cr_expect_eq(SAYS(0, .acked = epoch(), .n_split = 1, .split = list)->error, CO_INVALID);
    hot[0].key.len = split[0].key.len = 0;
    cr_expect_eq(SAYS(0, .n_hot = 1, .hot = hots)->error, CO_INVALID);
    cr_expect_eq(SAYS(0, .acked = epoch(), .n_split = 1, .split = list)->error, CO_INVALID);
    hot[0].key.len = QUOTA_KEY_MOST;
    cr_expect_eq(SAYS(0, .n_hot = 1, .hot = hots)->error, CO_OK);
    const Pb__QuotaAsk *ask = ASK(.name = text("l"), .want = 1, .n_split = 1, .split = &list[1]);
    Pb__QuotaDefinition other = quota_plain("l", PB__QUOTA_MODE__QUOTA_LEASE);
    cr_assert(quota_put(&world, &other).yes);
    cr_expect_eq(quota_ask(&world, id[0], ask)->error, CO_INVALID, "not in owner mode");
}

Test(quota_members, members_go_when_the_mode_changes) {
    (void)SAYS(0);
    Pb__QuotaDefinition definition = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    cr_assert(quota_put(&world, &definition).yes);
    cr_expect(quota_look(&world, "b")->n_leases == 0 && quota_look(&world, "b")->record->epoch == 0);
    cr_expect_eq(SAYS(0, .want = 300)->granted, 300);
    define(0, false);
    MEMBERS("| .");
    cr_expect_str_eq(quota_sums(&world, "b"), "spent 0 stranded 300 leased 0 slack 0: 1000 of 1000");
    (void)SAYS(1);
    MEMBERS("n2 | n2 .");
    quota_trail_check(&world, "b");
}
