/* The follower of copied keys, question by question: where a listing goes on, whose answers are passed over, when it
 * marks. Its behaviour under faults: test_keys_story.c. */
#include <criterion/criterion.h>

#include "base/message.h"
#include "multi-dc/follower.h"

static struct follower *follower;
static struct follower_effect effect;
static uint64_t now_ms = 1000;

static void setup(void) {
    follower = follow_keys(slice_text("p/"), 0);
    follower_leads(follower, true, now_ms);
}
static void teardown(void) { follower_free(follower); }

static enum follower_wish next(void) {
    follower_next(follower, now_ms, &effect);
    if (effect.wish == FOLLOWER_RESTS && effect.until_ms != UINT64_MAX) {
        now_ms = effect.until_ms;
        follower_next(follower, now_ms, &effect);
    }
    return effect.wish;
}

static Pb__CatalogAt at(uint64_t cluster, uint64_t index) {
    Pb__CatalogAt made = PB__CATALOG_AT__INIT;
    made.cluster_id = cluster, made.index = index;
    return made;
}

static const Pb__KeysChangesRequest *asked(void) {
    cr_assert_eq(effect.query, &query_keys_changes);
    return (const Pb__KeysChangesRequest *)effect.message;
}
static const Pb__KeysTakeCommand *taken(void) {
    cr_assert_eq(effect.command, KEYS_TAKE);
    return (const Pb__KeysTakeCommand *)effect.message;
}

static void told(const ProtobufCMessage *result) {
    struct arena arena = {0};
    struct follower_answer answer = {.records = message_pack(&arena, result), .as_of_ms = now_ms};
    follower_answered(follower, effect.ticket, &answer, now_ms);
    arena_free(&arena);
}
static void told_rule(Pb__KeysRule *rule) {
    Pb__KeysRulesResult result = PB__KEYS_RULES_RESULT__INIT;
    result.rules = &rule, result.n_rules = rule != NULL;
    cr_assert_eq(effect.query, &query_keys_rules);
    told(&result.base);
}

/* Our rule: 0: nowhere. */
static void read_rule(uint64_t position, uint64_t whole, uint64_t listing, const char *after) {
    Pb__KeysRule rule = PB__KEYS_RULE__INIT;
    Pb__CatalogAt is = at(7, position), lists = at(7, listing);
    rule.prefix = message_bytes(slice_text("p/")), rule.revision = 50, rule.whole = whole;
    if (position) rule.at = &is;
    if (listing) rule.listing = &lists, rule.after = message_bytes(slice_text(after));
    cr_assert_eq(next(), FOLLOWER_READS);
    told_rule(&rule);
}

static void answer(Pb__CatalogAt to, bool page, bool last, const char *key) {
    Pb__KeysChangesResult result = PB__KEYS_CHANGES_RESULT__INIT;
    Pb__KeysEntry entry = PB__KEYS_ENTRY__INIT, *entries[] = {&entry};
    result.to = &to, result.page = page, result.last = last;
    if (key) {
        entry.key = result.upto = message_bytes(slice_text(key));
        result.entries = entries, result.n_entries = 1;
    }
    told(&result.base);
}

static void proposed(uint64_t index) {
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    follower_proposed(follower, effect.ticket, CO_OK, CO_OK, true, index, now_ms);
}

Test(follow_keys, a_listing_goes_on_where_it_was, .init = setup, .fini = teardown) {
    read_rule(0, 0, 20, "p/m");
    cr_assert_eq(next(), FOLLOWER_ASKS);
    cr_expect(asked()->listing && slice_is(message_slice(asked()->after), "p/m") && !asked()->from);
    answer(at(7, 19), true, false, "p/n"); /* a server that is behind */
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(7, 25), true, true, "p/n");
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    cr_expect(taken()->page && taken()->last && !taken()->begin && taken()->revision == 50);
    follower_proposed(follower, effect.ticket, CO_OK, CO_OK, true, 60, now_ms);
    cr_assert_eq(next(), FOLLOWER_ASKS);
    cr_expect(!asked()->listing && asked()->from->index == 20 && effect.index == 20, "from when it began");
    answer(at(7, 26), false, false, NULL); /* no news: now it is whole, which is noted down at once */
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    cr_expect(!taken()->page && taken()->to->index == 26 && taken()->revision == 60);
}

Test(follow_keys, a_listing_of_another_life_begins_anew, .init = setup, .fini = teardown) {
    read_rule(0, 0, 20, "p/m");
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(8, 5), true, false, "p/n");
    cr_assert_eq(next(), FOLLOWER_ASKS);
    cr_expect(!asked()->listing && asked()->after.len == 0);
    answer(at(8, 6), true, false, "p/b");
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    cr_expect(taken()->begin && taken()->page);
}

Test(follow_keys, who_is_behind_is_passed_over, .init = setup, .fini = teardown) {
    read_rule(30, 30, 0, NULL);
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(7, 29), false, false, "p/a");
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(0, 31), true, true, "p/a"); /* it does not know its cluster yet */
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(7, 31), false, false, "p/a");
    proposed(70);
    struct follower_state state;
    follower_state(follower, &state);
    cr_expect(state.taken == 1 && state.error == CO_OK && state.confirmed_ms == now_ms && state.newest == 31);
}

Test(follow_keys, no_news_are_marked_now_and_then, .init = setup, .fini = teardown) {
    read_rule(30, 30, 0, NULL);
    uint64_t begun_ms = now_ms, index = 31;
    while (next() == FOLLOWER_ASKS) answer(at(7, index++), false, false, NULL), now_ms += 1000;
    cr_assert_eq(effect.wish, FOLLOWER_PROPOSES);
    cr_expect(now_ms - begun_ms >= FOLLOWER_MARK_MS && now_ms - begun_ms < 2 * FOLLOWER_MARK_MS);
    cr_expect(taken()->n_entries == 0 && taken()->to->index == index - 1);
}

Test(follow_keys, what_was_refused_is_read_anew, .init = setup, .fini = teardown) {
    read_rule(30, 30, 0, NULL);
    cr_assert_eq(next(), FOLLOWER_ASKS);
    answer(at(7, 31), false, false, "p/a");
    cr_assert_eq(next(), FOLLOWER_PROPOSES);
    uint64_t ticket = effect.ticket;
    follower_proposed(follower, ticket, CO_OK, CO_CONFLICT, false, 70, now_ms);
    follower_proposed(follower, ticket, CO_OK, CO_OK, true, 71, now_ms); /* nobody waits for it any more */
    cr_assert_eq(next(), FOLLOWER_READS);
    told_rule(NULL); /* the rule is gone */
    cr_assert_eq(next(), FOLLOWER_READS);
    follower_leads(follower, false, now_ms);
    cr_expect_eq(next(), FOLLOWER_RESTS);
}

/* -- looks of a server that does not lead -------------------------------------------------------------------------- */

static bool look(void) {
    follower_look(follower, now_ms, &effect);
    return effect.wish == FOLLOWER_ASKS;
}

Test(follow_keys, who_does_not_lead_asks_whether_anything_has_changed, .init = setup, .fini = teardown) {
    Pb__KeysRule rule = PB__KEYS_RULE__INIT;
    Pb__CatalogAt is = at(7, 30), to = at(7, 40);
    Pb__KeysChangesResult result = PB__KEYS_CHANGES_RESULT__INIT;
    struct follower_state state;
    cr_expect_not(look(), "the leader asks for the changes themselves");
    follower_leads(follower, false, now_ms);
    cr_expect_not(look(), "there is no copy");
    rule.at = &is, result.to = &to;
    follow_keys_know(follower, &rule);
    for (int more = 1; more >= 0; more--) {
        cr_assert(look() && asked()->look && asked()->from->index == 30);
        result.more = more;
        told(&result.base);
        follower_state(follower, &state);
        cr_expect_eq(state.confirmed_ms, more ? 0 : now_ms);
        cr_expect_not(look(), "not again at once");
        now_ms += FOLLOW_KEYS_LOOK_MS;
    }
    follower_set_back(follower, now_ms);
    follower_state(follower, &state);
    cr_expect_eq(state.confirmed_ms, 0, "our region was restored");
}
