/* Elections: who leads, what is advertised, who is woken. Rules shared with locks: test_lock*.c; at random:
 * test_lock_model.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "queues.h"

static struct fixture world;
static void setup(void) { queues_open(&world, 8); }
static void teardown(void) { fixture_close(&world); }
TestSuite(election, .init = setup, .fini = teardown);

#define STATE(name, expected) \
    cr_expect_str_eq(election_state(&world, name), expected, "%s", election_state(&world, name))

static bool lives(char who) { return session_get_by(&world, session_of(who)).found; }

static const Pb__QueueView *leader_view(const char *name, uint64_t *index) {
    Pb__QueueRequest request = PB__QUEUE_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name;
    struct query_result result = fixture_ask(&world, &query_election_leader, &request.base);
    cr_assert(result.found);
    *index = result.index;
    return (const Pb__QueueView *)result.message;
}

/* "a: value", or "nobody". */
static const char *leader(const char *name) {
    static char text[100];
    uint64_t index;
    const Pb__QueueView *view = leader_view(name, &index);
    if (!view->n_holders) return "nobody";
    const Pb__QueueEntry *holder = view->holders[0];
    snprintf(text, sizeof text, "%c: %.*s", letter_of(holder->session), (int)holder->note.len, holder->note.data);
    return text;
}
#define LEADER(name, expected) cr_expect_str_eq(leader(name), expected, "%s", leader(name))

Test(election, the_first_leads_and_its_term_is_the_index) {
    struct answer a = CAMPAIGN(&world, "e", 'a', .note = "10.0.0.1:80");
    cr_assert(a.yes && a.held && a.token == a.index && a.who == 'a', "%s", a.text);
    cr_expect_eq(CAMPAIGN(&world, "e", 'b', .note = "10.0.0.2:80").position, 1);
    LEADER("e", "a: 10.0.0.1:80");
    STATE("e", "A|B");
    uint64_t index = election_resign(&world, "e", 'a', 0).index;
    LEADER("e", "b: 10.0.0.2:80");
    cr_expect_eq(queue_entry_of(&world, &query_election_entry, "e", 'b').token, index);
    cr_expect(election_resign(&world, "e", 0, index).yes, "by its term alone");
    LEADER("e", "nobody");
    cr_expect_gt(CAMPAIGN(&world, "e", 'c').token, index);
}

Test(election, the_highest_priority_goes_first_and_among_equals_the_first) {
    cr_assert(CAMPAIGN(&world, "e", 'a').held);
    cr_expect_eq(CAMPAIGN(&world, "e", 'b', .priority = 1).position, 1);
    cr_expect_eq(CAMPAIGN(&world, "e", 'c').position, 2);
    cr_expect_eq(CAMPAIGN(&world, "e", 'd', .priority = 2).position, 1);
    cr_expect_eq(CAMPAIGN(&world, "e", 'e', .priority = 1).position, 3);
    cr_expect_eq(CAMPAIGN(&world, "e", 'f', .priority = QUEUE_PRIORITY_MAX).position, 1);
    STATE("e", "A|FDBEC");
    cr_expect_eq(queue_entry_of(&world, &query_election_entry, "e", 'c').position, 5);
    static const char *const states[] = {"F|DBEC", "D|BEC", "B|EC", "E|C", "C|", "|"};
    for (size_t i = 0; i < ARRAY_COUNT(states); i++) {
        cr_assert(election_resign(&world, "e", "afdbec"[i], 0).yes);
        STATE("e", states[i]);
    }
}

Test(election, nobody_takes_the_lead_from_one_who_has_it) {
    cr_assert(CAMPAIGN(&world, "e", 'a').held);
    cr_expect_not(CAMPAIGN(&world, "e", 'b', .priority = 9).held);
    struct answer asks = CAMPAIGN(&world, "e", 'c', .priority = 10, .asks = true);
    cr_expect(asks.error == CO_OK && !asks.held && asks.position == 0);
    STATE("e", "A|B");
}

Test(election, campaigning_again_gives_the_same) {
    struct answer a = CAMPAIGN(&world, "e", 'a', .note = "one", .priority = 3), again;
    CAMPAIGN(&world, "e", 'b', .priority = 1);
    again = CAMPAIGN(&world, "e", 'a', .note = "two", .priority = 3);
    cr_expect(again.held && again.token == a.token);
    LEADER("e", "a: one");
    cr_expect_eq(CAMPAIGN(&world, "e", 'b', .priority = 1).position, 1);
    again = CAMPAIGN(&world, "e", 'b', .priority = 2);
    cr_expect(again.error == CO_CONFLICT && strstr(again.text, "priority"), "%s", again.text);
    again = CAMPAIGN(&world, "e", 0, .token = a.token);
    cr_expect(again.held && again.who == 'a');
    cr_expect_eq(CAMPAIGN(&world, "e", 0, .token = a.token + 1).error, CO_NOTFOUND);
    STATE("e", "A|B");
}

Test(election, the_leader_proclaims_another_value_in_the_same_term) {
    struct answer a = CAMPAIGN(&world, "e", 'a', .note = "one");
    CAMPAIGN(&world, "e", 'b', .note = "of b");
    cr_expect(election_proclaim(&world, "e", a.token, "two").yes);
    LEADER("e", "a: two");
    cr_expect_eq(queue_entry_of(&world, &query_election_entry, "e", 'a').token, a.token);
    cr_expect_eq(election_proclaim(&world, "e", a.token + 1, "three").error, CO_CONFLICT);
    cr_expect_eq(election_proclaim(&world, "e", 0, "three").error, CO_CONFLICT);
    cr_expect_eq(election_proclaim(&world, "none", a.token, "three").error, CO_CONFLICT);
    cr_expect_eq(election_proclaim(&world, "", a.token, "three").error, CO_INVALID);
    char *large = mem_zalloc(QUEUE_NOTE_MAX + 2);
    memset(large, 'v', QUEUE_NOTE_MAX + 1);
    cr_expect_eq(election_proclaim(&world, "e", a.token, large).error, CO_TOOLARGE);
    free(large);
    LEADER("e", "a: two");
    uint64_t term = election_resign(&world, "e", 'a', 0).index;
    cr_expect_eq(election_proclaim(&world, "e", a.token, "late").error, CO_CONFLICT, "a deposed leader");
    LEADER("e", "b: of b");
    cr_expect(election_proclaim(&world, "e", term, "").yes);
    LEADER("e", "b: ");
    fixture_reopen(&world);
    LEADER("e", "b: ");
}

Test(election, what_makes_no_sense_is_refused) {
    char name[QUEUE_NAME_MAX + 2];
    memset(name, 'n', sizeof name), name[QUEUE_NAME_MAX + 1] = '\0';
    struct answer refused = CAMPAIGN(&world, name, 'a');
    cr_expect(refused.error == CO_INVALID && strstr(refused.text, "election"), "%s", refused.text);
    cr_expect_eq(CAMPAIGN(&world, "e", 'a', .priority = QUEUE_PRIORITY_MAX + 1).error, CO_INVALID);
    cr_expect_eq(CAMPAIGN(&world, "e", 'a', .limit = 1).error, CO_INVALID);
    cr_expect_eq(CAMPAIGN(&world, "e", 'a', .shared = true).error, CO_INVALID);
    cr_expect_eq(CAMPAIGN(&world, "e", 'z').error, CO_NOTFOUND);
    cr_expect_eq(CAMPAIGN(&world, "e", 0).error, CO_INVALID);
    cr_expect_eq(election_resign(&world, "e", 'a', 0).error, CO_CONFLICT);
    LEADER("e", "nobody");
}

Test(election, ends_with_the_leaders_session_after_its_lock_delay) {
    cr_assert(session_on(&world, 'y', "n1", 5000000000).yes);
    uint64_t term = CAMPAIGN(&world, "e", 'y').token;
    CAMPAIGN(&world, "e", 'a', .priority = 1, .note = "a's");
    CAMPAIGN(&world, "e", 'b', .priority = 2, .note = "b's");
    struct buffer updates = {0};
    fixture_updates(&world, 1000000000, &updates), buffer_reset(&updates);
    uint64_t index = session_drop(&world, session_of('y')).index;
    fixture_updates(&world, 1000000000, &updates);
    cr_expect(strstr(updates.data, "delay of an election began e 5; "), "%s", updates.data);
    buffer_free(&updates);
    STATE("e", "|BA~");
    LEADER("e", "nobody");
    cr_expect_eq(CAMPAIGN(&world, "e", 'c', .priority = 3).position, 1);
    cr_assert(election_delay_over(&world, "e", index).yes);
    STATE("e", "C|BA");
    cr_expect_gt(queue_entry_of(&world, &query_election_entry, "e", 'c').token, term);
    session_drop(&world, session_of('c'));
    LEADER("e", "b: b's");
}

Test(election, a_session_of_its_own_ends_with_the_campaign) {
    struct answer x = CAMPAIGN(&world, "e", 0, .made = 'x');
    cr_assert(x.held && CAMPAIGN(&world, "e", 0, .made = 'y').position == 1);
    cr_assert(election_resign(&world, "e", 'y', 0).yes && !lives('y'));
    cr_assert(election_resign(&world, "e", 0, x.token).yes && !lives('x'));
}

/* Candidates come and go without waking those who follow the leader, and a change of leader wakes one candidate. */
Test(election, there_is_no_herd) {
    struct watcher observer, list, candidates[4];
    uint64_t term = CAMPAIGN(&world, "e", 'a').token, index, before;
    watcher_begin_at(&observer, &world, (struct watch_key){SPACE_ELECTION_LEADER, SLICE_LITERAL("e")});
    watcher_begin_at(&list, &world, (struct watch_key){SPACE_ELECTION, SLICE_LITERAL("e")});
    for (unsigned i = 0; i < 4; i++)
        watcher_begin_entry(&candidates[i], &world, SPACE_ELECTION_ENTRY, "e", (char)('b' + i));
    (void)leader_view("e", &before);
    for (unsigned i = 0; i < 4; i++) CAMPAIGN(&world, "e", (char)('b' + i), .priority = i);
    for (unsigned i = 0; i < 4; i++) (void)watcher_woken(&candidates[i]);
    cr_expect_eq(watcher_woken(&list), 4);
    cr_expect_eq(watcher_woken(&observer), 0);
    (void)leader_view("e", &index);
    cr_expect(index == before && before == term, "its index is of the leader alone");
    cr_assert(election_resign(&world, "e", 'c', 0).yes);
    cr_expect(watcher_woken(&observer) == 0 && watcher_woken(&candidates[1]) == 1 &&
              watcher_woken(&candidates[3]) == 0);
    uint64_t told = election_proclaim(&world, "e", term, "new").index;
    cr_expect_eq(watcher_woken(&observer), 1);
    for (unsigned i = 0; i < 4; i++) cr_expect_eq(watcher_woken(&candidates[i]), 0);
    (void)leader_view("e", &index);
    cr_expect_eq(index, told);
    uint64_t resigned = election_resign(&world, "e", 'a', 0).index;
    cr_expect_eq(watcher_woken(&observer), 1);
    for (unsigned i = 0; i < 4; i++) cr_expect_eq(watcher_woken(&candidates[i]), i == 3, "%u", i);
    const Pb__QueueView *view = leader_view("e", &index);
    cr_expect(index == resigned && view->n_waiters == 0 && view->n_transitions == 0 && view->n_holders == 1);
    watcher_end(&observer, &world);
    watcher_end(&list, &world);
    for (unsigned i = 0; i < 4; i++) watcher_end(&candidates[i], &world);
}

/* A and C lead one each, and stand by for each other. */
Test(election, leaders_stand_by_for_each_other) {
    cr_assert(CAMPAIGN(&world, "e", 'a').held && CAMPAIGN(&world, "other", 'c').held);
    cr_expect_eq(CAMPAIGN(&world, "e", 'c').position, 1);
    cr_expect_eq(CAMPAIGN(&world, "other", 'a').position, 1);
}

Test(election, is_no_lock) {
    cr_assert(CAMPAIGN(&world, "same", 'a').held);
    struct answer lock = LOCK(&world, "same", 'b');
    cr_expect(lock.held, "%s", lock.text);
    cr_expect_str_eq(lock_state(&world, "same"), "B|");
    STATE("same", "A|");
    cr_assert(session_drop(&world, session_of('a')).yes);
    STATE("same", "|");
    cr_expect_str_eq(lock_state(&world, "same"), "B|");
    struct store_txn *txn = (fixture_forget(&world), store_read(world.reader));
    cr_expect_eq(queue_holds(txn, &election_family, SLICE_LITERAL("same"), lock.token, &world.arena), CO_NOTFOUND);
    cr_expect_eq(queue_holds(txn, &lock_family, SLICE_LITERAL("same"), lock.token, &world.arena), CO_OK);
}
