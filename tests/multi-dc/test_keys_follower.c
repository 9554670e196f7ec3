/* The follower of copied keys, question by question: where a listing goes on, whose answers are passed over, when it
 * marks. Its behaviour under faults: test_keys_story.c. */
#include <criterion/criterion.h>

#include "base/message.h"
#include "multi-dc/keys_follower.h"

static struct keys_follower *follower;
static struct keys_effect effect;
static uint64_t now_ms = 1000;

static void setup(void) {
    follower = keys_follower_new(slice_text("p/"));
    keys_follower_linked(follower, true, now_ms);
    keys_follower_leads(follower, true, now_ms);
}
static void teardown(void) { keys_follower_free(follower); }

static enum keys_wish next(void) {
    keys_follower_next(follower, now_ms, &effect);
    if (effect.wish == KEYS_RESTS && effect.until_ms != UINT64_MAX) {
        now_ms = effect.until_ms;
        keys_follower_next(follower, now_ms, &effect);
    }
    return effect.wish;
}

static Pb__CatalogAt at(uint64_t cluster, uint64_t index) {
    Pb__CatalogAt made = PB__CATALOG_AT__INIT;
    made.cluster_id = cluster, made.index = index;
    return made;
}

/* Our rule: 0: nowhere. */
static void read_rule(uint64_t position, uint64_t whole, uint64_t listing, const char *after) {
    Pb__KeysRule rule = PB__KEYS_RULE__INIT;
    Pb__CatalogAt is = at(7, position), lists = at(7, listing);
    rule.revision = 50, rule.whole = whole;
    if (position) rule.at = &is;
    if (listing) rule.listing = &lists, rule.after = message_bytes(slice_text(after));
    cr_assert_eq(next(), KEYS_READS);
    keys_follower_read(follower, effect.ticket, CO_OK, &rule, now_ms);
}

static void answer(Pb__CatalogAt to, bool page, bool last, const char *key) {
    Pb__KeysChangesResult result = PB__KEYS_CHANGES_RESULT__INIT;
    Pb__KeysEntry entry = PB__KEYS_ENTRY__INIT, *entries[] = {&entry};
    struct arena arena = {0};
    result.to = &to, result.page = page, result.last = last;
    if (key) {
        entry.key = result.upto = message_bytes(slice_text(key));
        result.entries = entries, result.n_entries = 1;
    }
    keys_follower_answered(follower, effect.ticket, CO_OK, message_pack(&arena, &result.base), now_ms, now_ms);
    arena_free(&arena);
}

static void proposed(uint64_t index) {
    cr_assert_eq(next(), KEYS_PROPOSES);
    keys_follower_proposed(follower, effect.ticket, CO_OK, CO_OK, true, index, now_ms);
}

Test(keys_follower, a_listing_goes_on_where_it_was, .init = setup, .fini = teardown) {
    read_rule(0, 0, 20, "p/m");
    cr_assert_eq(next(), KEYS_ASKS);
    cr_expect(effect.ask.listing && slice_is(message_slice(effect.ask.after), "p/m") && !effect.ask.from);
    answer(at(7, 19), true, false, "p/n"); /* a server that is behind */
    cr_assert_eq(next(), KEYS_ASKS);
    answer(at(7, 25), true, true, "p/n");
    cr_assert_eq(next(), KEYS_PROPOSES);
    cr_expect(effect.take.page && effect.take.last && !effect.take.begin && effect.take.revision == 50);
    keys_follower_proposed(follower, effect.ticket, CO_OK, CO_OK, true, 60, now_ms);
    cr_assert_eq(next(), KEYS_ASKS);
    cr_expect(!effect.ask.listing && effect.ask.from->index == 20 && effect.index == 20, "from when it began");
    answer(at(7, 26), false, false, NULL); /* no news: now it is whole, which is noted down at once */
    cr_assert_eq(next(), KEYS_PROPOSES);
    cr_expect(!effect.take.page && effect.take.to->index == 26 && effect.take.revision == 60);
}

Test(keys_follower, a_listing_of_another_life_begins_anew, .init = setup, .fini = teardown) {
    read_rule(0, 0, 20, "p/m");
    cr_assert_eq(next(), KEYS_ASKS);
    answer(at(8, 5), true, false, "p/n");
    cr_assert_eq(next(), KEYS_ASKS);
    cr_expect(!effect.ask.listing && effect.ask.after.len == 0);
    answer(at(8, 6), true, false, "p/b");
    cr_assert_eq(next(), KEYS_PROPOSES);
    cr_expect(effect.take.begin && effect.take.page);
}

Test(keys_follower, who_is_behind_is_passed_over, .init = setup, .fini = teardown) {
    read_rule(30, 30, 0, NULL);
    cr_assert_eq(next(), KEYS_ASKS);
    answer(at(7, 29), false, false, "p/a");
    cr_assert_eq(next(), KEYS_ASKS);
    answer(at(0, 31), true, true, "p/a"); /* it does not know its cluster yet */
    cr_assert_eq(next(), KEYS_ASKS);
    answer(at(7, 31), false, false, "p/a");
    proposed(70);
    struct keys_follower_state state;
    keys_follower_state(follower, &state);
    cr_expect(state.taken == 1 && state.error == CO_OK && state.confirmed_ms == now_ms && state.newest == 31);
}

Test(keys_follower, no_news_are_marked_now_and_then, .init = setup, .fini = teardown) {
    read_rule(30, 30, 0, NULL);
    uint64_t begun_ms = now_ms, index = 31;
    while (next() == KEYS_ASKS) answer(at(7, index++), false, false, NULL), now_ms += 1000;
    cr_assert_eq(effect.wish, KEYS_PROPOSES);
    cr_expect(now_ms - begun_ms >= KEYS_MARK_MS && now_ms - begun_ms < 2 * KEYS_MARK_MS);
    cr_expect(effect.take.n_entries == 0 && effect.take.to->index == index - 1);
}

Test(keys_follower, what_was_refused_is_read_anew, .init = setup, .fini = teardown) {
    read_rule(30, 30, 0, NULL);
    cr_assert_eq(next(), KEYS_ASKS);
    answer(at(7, 31), false, false, "p/a");
    cr_assert_eq(next(), KEYS_PROPOSES);
    uint64_t ticket = effect.ticket;
    keys_follower_proposed(follower, ticket, CO_OK, CO_CONFLICT, false, 70, now_ms);
    keys_follower_proposed(follower, ticket, CO_OK, CO_OK, true, 71, now_ms); /* nobody waits for it any more */
    cr_assert_eq(next(), KEYS_READS);
    keys_follower_read(follower, effect.ticket, CO_OK, NULL, now_ms); /* the rule is gone */
    cr_assert_eq(next(), KEYS_READS);
    keys_follower_leads(follower, false, now_ms);
    cr_expect_eq(next(), KEYS_RESTS);
}
