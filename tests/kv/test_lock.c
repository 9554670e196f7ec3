/* Locks: who is granted, when, and with which token; what is refused. How sessions end, circles and reads:
 * test_lock_ends.c, test_lock_circle.c, test_lock_reads.c; all of it at random: test_lock_model.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "queues.h"

static struct fixture world;
static void setup(void) { queues_open(&world, 8); }
static void teardown(void) { fixture_close(&world); }
TestSuite(lock, .init = setup, .fini = teardown);

#define STATE(name, expected) cr_expect_str_eq(lock_state(&world, name), expected, "%s", lock_state(&world, name))

static bool lives(char who) { return session_get_by(&world, session_of(who)).found; }

/* -- the queue ---------------------------------------------------------------------------------------------------- */

Test(lock, a_free_one_is_granted_with_the_index_of_the_entry) {
    struct answer a = LOCK(&world, "l", 'a', .note = "on web1", .asks = true);
    cr_assert(a.yes && a.held && a.who == 'a' && a.mode == PB__QUEUE_MODE__QUEUE_EXCLUSIVE, "%s", a.text);
    cr_expect(a.token == a.index && a.position == 0 && a.waiters == 0);
    STATE("l", "A|");
    Pb__QueueRequest request = PB__QUEUE_REQUEST__INIT;
    request.name = (char *)(uintptr_t) "l";
    struct query_result result = fixture_ask(&world, &query_lock, &request.base);
    const Pb__QueueView *view = (const Pb__QueueView *)result.message;
    cr_expect(bytes_are(view->holders[0]->note, "on web1") && view->holders[0]->since_unix_ms == 1000);
}

Test(lock, first_come_first_served) {
    cr_assert(LOCK(&world, "l", 'a').held);
    for (char who = 'b'; who <= 'e'; who++) {
        struct answer waits = LOCK(&world, "l", who);
        cr_expect(!waits.yes && !waits.held && waits.token == 0 && waits.who == who);
        cr_expect_eq(waits.position, (uint32_t)(who - 'a'));
        cr_expect_eq(waits.waiters, (uint32_t)(who - 'a'));
    }
    STATE("l", "A|BCDE");
    uint64_t before = lock_entry(&world, "l", 'a').token;
    for (char who = 'a'; who < 'e'; who++) {
        struct answer released = lock_release(&world, "l", who);
        cr_assert(released.yes, "%s", released.text);
        struct answer next = lock_entry(&world, "l", (char)(who + 1));
        cr_expect(next.held && next.token == released.index && next.token > before, "the grant is in the entry");
        before = next.token;
    }
    cr_assert(lock_release(&world, "l", 'e').yes);
    STATE("l", "|");
}

Test(lock, nobody_overtakes_the_queue_not_even_who_would_fit) {
    cr_assert(LOCK(&world, "l", 'a', .shared = true).held);
    cr_expect_not(LOCK(&world, "l", 'b').held);
    struct answer asked = LOCK(&world, "l", 'c', .shared = true, .asks = true);
    cr_expect(asked.error == CO_OK && !asked.held && asked.position == 0 && asked.waiters == 1 && asked.token == 0);
    STATE("l", "a|B");
    cr_expect_eq(LOCK(&world, "l", 'c', .shared = true).position, 2, "the writer is not starved");
    STATE("l", "a|Bc");
    cr_assert(lock_release(&world, "l", 'a').yes);
    STATE("l", "B|c");
    cr_assert(lock_release(&world, "l", 'b').yes);
    STATE("l", "c|");
}

Test(lock, adjacent_shared_waiters_are_granted_together) {
    cr_assert(LOCK(&world, "l", 'a').held);
    for (char who = 'b'; who <= 'd'; who++) LOCK(&world, "l", who, .shared = true);
    LOCK(&world, "l", 'e');
    LOCK(&world, "l", 'f', .shared = true);
    STATE("l", "A|bcdEf");
    uint64_t index = lock_release(&world, "l", 'a').index;
    STATE("l", "bcd|Ef");
    for (char who = 'b'; who <= 'd'; who++) cr_expect_eq(lock_entry(&world, "l", who).token, index, "one token");
    cr_assert(lock_release(&world, "l", 'c').yes && lock_release(&world, "l", 'b').yes);
    STATE("l", "d|Ef");
    cr_assert(lock_release(&world, "l", 'd').yes);
    STATE("l", "E|f");
}

Test(lock, shared_ones_that_came_one_by_one_have_tokens_of_their_own) {
    struct answer a = LOCK(&world, "l", 'a', .shared = true), b = LOCK(&world, "l", 'b', .shared = true);
    cr_expect(a.held && b.held && b.token > a.token);
    cr_expect(lock_release_by(&world, "l", a.token).yes);
    STATE("l", "b|");
    cr_expect_not(LOCK(&world, "l", 'c').held);
}

Test(lock, a_limit_makes_it_a_counting_semaphore) {
    for (char who = 'a'; who <= 'b'; who++) cr_expect(LOCK(&world, "l", who, .shared = true, .limit = 2).held);
    for (char who = 'c'; who <= 'e'; who++) cr_expect_not(LOCK(&world, "l", who, .shared = true, .limit = 2).held);
    STATE("l", "ab|cde");
    cr_assert(lock_release(&world, "l", 'a').yes);
    STATE("l", "bc|de");
    cr_assert(lock_release(&world, "l", 'd').yes, "a waiter leaves");
    STATE("l", "bc|e");
    cr_assert(lock_release(&world, "l", 'b').yes);
    STATE("l", "ce|");
}

Test(lock, a_shared_one_with_a_limit_waits_behind_an_exclusive_one_and_comes_up_to_the_limit) {
    cr_assert(LOCK(&world, "l", 'a', .limit = 2).held);
    for (char who = 'b'; who <= 'd'; who++) cr_expect_not(LOCK(&world, "l", who, .shared = true, .limit = 2).held);
    cr_assert(lock_release(&world, "l", 'a').yes);
    STATE("l", "bc|d");
    cr_expect_not(LOCK(&world, "l", 'e', .limit = 2).held, "an exclusive one is alone, whatever the limit");
    cr_assert(lock_release(&world, "l", 'c').yes);
    STATE("l", "bd|E");
    cr_assert(lock_release(&world, "l", 'b').yes);
    STATE("l", "d|E");
    cr_assert(lock_release(&world, "l", 'd').yes);
    STATE("l", "E|");
}

Test(lock, a_waiter_that_leaves_moves_the_queue_on_too) {
    cr_assert(LOCK(&world, "l", 'a', .shared = true).held);
    LOCK(&world, "l", 'b');
    LOCK(&world, "l", 'c', .shared = true);
    LOCK(&world, "l", 'd', .shared = true);
    STATE("l", "a|Bcd");
    uint64_t index = lock_release(&world, "l", 'b').index;
    STATE("l", "acd|");
    cr_expect(lock_entry(&world, "l", 'c').token == index && lock_entry(&world, "l", 'd').token == index);
    cr_expect_lt(lock_entry(&world, "l", 'a').token, index);
}

/* -- again -------------------------------------------------------------------------------------------------------- */

Test(lock, acquiring_again_gives_the_same) {
    struct answer first = LOCK(&world, "l", 'a', .note = "one"), place = LOCK(&world, "l", 'b');
    LOCK(&world, "l", 'c');
    struct answer again = LOCK(&world, "l", 'a', .note = "two");
    cr_expect(again.yes && again.held && again.token == first.token && again.index > first.index && again.who == 'a');
    again = LOCK(&world, "l", 'a', .asks = true);
    cr_expect(again.held && again.token == first.token);
    again = LOCK(&world, "l", 'b', .asks = true);
    cr_expect(again.error == CO_OK && !again.held && again.position == place.position && again.waiters == 2);
    cr_expect_eq(LOCK(&world, "l", 'c').position, 2);
    STATE("l", "A|BC");
    cr_assert(lock_release(&world, "l", 'a').yes);
    struct answer granted = LOCK(&world, "l", 'b');
    cr_expect(granted.held && granted.token == lock_entry(&world, "l", 'b').token, "who lost the news asks again");
}

Test(lock, acquiring_again_by_the_token_alone) {
    struct answer made = LOCK(&world, "l", 0, .made = 'x');
    struct answer again = LOCK(&world, "l", 0, .token = made.token);
    cr_expect(again.yes && again.held && again.token == made.token && again.who == 'x');
    again = LOCK(&world, "l", 0, .token = made.token + 1);
    cr_expect(again.error == CO_NOTFOUND && strstr(again.text, "token"), "%s", again.text);
    cr_assert(lock_release_by(&world, "l", made.token).yes);
    cr_expect_eq(LOCK(&world, "l", 0, .token = made.token).error, CO_NOTFOUND);
    cr_expect_eq(LOCK(&world, "never", 0, .token = 1).error, CO_NOTFOUND);
    STATE("l", "|");
}

Test(lock, another_mode_or_limit_is_refused) {
    static const struct {
        struct acquire wish;
        const char *text;
    } rows[] = {
        {{.who = 'a'}, "another mode"},
        {{.who = 'a', .shared = true, .limit = 3}, "another mode or with another limit"},
        {{.who = 'b'}, "another mode"},
        {{.who = 'c', .shared = true}, "limit"},
        {{.who = 'c', .shared = true, .limit = 3}, "limit"},
        {{.who = 'c', .shared = true, .limit = 3, .asks = true}, "limit"},
        {{.who = 'c'}, "limit"},
        {{.made = 'x'}, "limit"},
    };
    cr_assert(LOCK(&world, "l", 'a', .shared = true, .limit = 1).held);
    cr_assert_eq(LOCK(&world, "l", 'b', .shared = true, .limit = 1).position, 1);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct acquire wish = rows[i].wish;
        wish.name = "l";
        struct answer refused = lock_acquire(&world, &wish);
        cr_expect(refused.error == CO_CONFLICT && strstr(refused.text, rows[i].text), "row %zu: %s", i, refused.text);
        cr_expect(strstr(refused.text, "\"l\"") != NULL, "row %zu: %s", i, refused.text);
    }
    STATE("l", "a|b");
    cr_expect_not(lives('x'));
    cr_assert(lock_release(&world, "l", 'a').yes && lock_release(&world, "l", 'b').yes);
    cr_expect(LOCK(&world, "l", 'c').held, "nobody is there any more: it has no limit");
}

/* -- what is left behind ------------------------------------------------------------------------------------------ */

Test(lock, who_only_asks_leaves_no_place_and_no_session_behind) {
    cr_assert(LOCK(&world, "l", 'a').held);
    struct answer asked = LOCK(&world, "l", 0, .made = 'x', .asks = true);
    cr_expect(asked.error == CO_OK && !asked.yes && !asked.held && asked.who == '-' && asked.position == 0);
    cr_expect_not(lives('x'));
    cr_expect(!LOCK(&world, "l", 'b', .asks = true).held && lives('b'));
    STATE("l", "A|");
    struct answer both = LOCK(&world, "l", 'z', .made = 'x', .asks = true);
    cr_expect_not(both.held);
    cr_expect_not(lives('x'), "a command that names a session and makes one: %s", both.text);
}

Test(lock, a_session_of_its_own_comes_and_goes_with_the_lock) {
    struct answer held = LOCK(&world, "l", 0, .made = 'x', .asks = true);
    cr_assert(held.held && held.who == 'x' && lives('x'));
    cr_assert(LOCK(&world, "l", 0, .made = 'y').position == 1 && lives('y'));
    cr_assert(LOCK(&world, "l", 0, .made = 'z').position == 2 && lives('z'));
    cr_assert(lock_release(&world, "l", 'y').yes, "a waiter");
    cr_expect_not(lives('y'));
    cr_assert(lock_release_by(&world, "l", held.token).yes, "a holder, by its token alone");
    cr_expect_not(lives('x'));
    STATE("l", "Z|");
    cr_expect(lives('z'));
}

Test(lock, a_session_of_its_own_stays_while_something_else_hangs_on_it) {
    cr_assert(LOCK(&world, "l", 0, .made = 'x').held && LOCK(&world, "m", 'x').held);
    cr_assert(kv_acquire(&world, "key", "v", session_of('x')).yes);
    cr_assert(CAMPAIGN(&world, "e", 'x').held);
    cr_assert(lock_release(&world, "l", 'x').yes);
    cr_expect(lives('x'));
    cr_assert(lock_release(&world, "m", 'x').yes);
    cr_expect(lives('x'), "a key and an election");
    cr_assert(election_resign(&world, "e", 'x', 0).yes);
    cr_expect(lives('x'), "a key that it locks");
    cr_assert(LOCK(&world, "n", 'a').held && lock_release(&world, "n", 'a').yes);
    cr_expect(lives('a'), "a session that its client made is the client's");
}

/* -- releasing ---------------------------------------------------------------------------------------------------- */

Test(lock, what_is_not_held_so_is_not_released) {
    struct answer held = LOCK(&world, "l", 'a');
    LOCK(&world, "l", 'b');
    struct answer refused = lock_release(&world, "l", 'c');
    cr_expect(refused.error == CO_CONFLICT && strstr(refused.text, "\"l\""), "%s", refused.text);
    cr_expect_eq(lock_release(&world, "other", 'a').error, CO_CONFLICT);
    cr_expect_eq(lock_release_by(&world, "l", held.token + 1).error, CO_CONFLICT);
    cr_expect_eq(lock_release_by(&world, "l", held.token - 1).error, CO_CONFLICT);
    cr_expect_eq(lock_release_by(&world, "l", 0).error, CO_CONFLICT);
    cr_expect_eq(lock_release_by(&world, "l", UINT64_MAX).error, CO_CONFLICT, "how those who wait are kept");
    cr_expect_eq(lock_release_by(&world, "other", held.token).error, CO_CONFLICT);
    cr_expect_eq(lock_release_by(&world, "", held.token).error, CO_INVALID);
    STATE("l", "A|B");
    cr_assert(lock_release(&world, "l", 'a').yes);
    cr_expect_eq(lock_release_by(&world, "l", held.token).error, CO_CONFLICT, "a token of before");
    STATE("l", "B|");
}

Test(lock, a_token_that_several_share_names_nobody) {
    cr_assert(LOCK(&world, "l", 'a').held);
    for (char who = 'b'; who <= 'd'; who++) LOCK(&world, "l", who, .shared = true);
    uint64_t token = lock_release(&world, "l", 'a').index;
    STATE("l", "bcd|");
    struct answer refused = lock_release_by(&world, "l", token);
    cr_expect(refused.error == CO_CONFLICT && strstr(refused.text, "name the session"), "%s", refused.text);
    refused = LOCK(&world, "l", 0, .token = token);
    cr_expect(refused.error == CO_CONFLICT && strstr(refused.text, "name the session"), "%s", refused.text);
    STATE("l", "bcd|");
    cr_assert(lock_release(&world, "l", 'b').yes && lock_release(&world, "l", 'd').yes);
    cr_expect_eq(LOCK(&world, "l", 0, .token = token).error, CO_CONFLICT, "nor does it name the last one");
    cr_expect_eq(lock_release_by(&world, "l", token).error, CO_CONFLICT,
                 "another one may be paused, and believe in it");
    struct answer own = LOCK(&world, "l", 'c', .shared = true);
    cr_expect(own.held && own.token > token && LOCK(&world, "l", 'c', .shared = true).token == own.token);
    cr_expect_eq(LOCK(&world, "l", 0, .token = own.token).who, 'c');
    cr_expect(lock_release_by(&world, "l", own.token).yes);
    STATE("l", "|");
}

/* -- refused ------------------------------------------------------------------------------------------------------ */

Test(lock, what_makes_no_sense_is_refused) {
    char name[QUEUE_NAME_MAX + 2], *note = mem_zalloc(QUEUE_NOTE_MAX + 1);
    memset(name, 'n', sizeof name), name[QUEUE_NAME_MAX + 1] = '\0';
    struct answer refused = LOCK(&world, name, 'a');
    cr_expect(refused.error == CO_INVALID && strstr(refused.text, "256"), "%s", refused.text);
    cr_expect_eq(LOCK(&world, "", 'a').error, CO_INVALID);
    cr_expect_eq(LOCK(&world, "l", 'a', .note = note, .note_size = QUEUE_NOTE_MAX + 1).error, CO_TOOLARGE);
    refused = LOCK(&world, "l", 'z');
    cr_expect(refused.error == CO_NOTFOUND && strstr(refused.text, session_of('z')), "%s", refused.text);
    cr_expect_eq(LOCK(&world, "l", 'z', .asks = true).error, CO_NOTFOUND);
    cr_expect_eq(LOCK(&world, "l", 0).error, CO_INVALID);
    cr_expect_eq(LOCK(&world, "l", 0, .asks = true).error, CO_INVALID);
    cr_expect_eq(LOCK(&world, "l", 'a', .priority = 1).error, CO_INVALID, "only elections have one");
    STATE("l", "|");
    name[QUEUE_NAME_MAX] = '\0';
    cr_expect(LOCK(&world, name, 'a', .note = note, .note_size = QUEUE_NOTE_MAX).held, "the longest");
    cr_expect(LOCK(&world, name, 'b').position == 1 && lock_release(&world, name, 'a').yes);
    cr_expect_str_eq(lock_state(&world, name), "B|");
    cr_expect_eq(LOCK(&world, name, 'z').error, CO_NOTFOUND, "also where it would wait");
    cr_expect_eq(LOCK(&world, name, 'z', .asks = true).error, CO_NOTFOUND);
    cr_expect_eq(LOCK(&world, name, 0, .asks = true).error, CO_INVALID);
    free(note);
}

Test(lock, how_many_wait_is_bounded) {
    cr_assert(LOCK(&world, "l", 'a').held);
    cr_assert(!LOCK(&world, "l", 'b', .waiters_max = 2).held && !LOCK(&world, "l", 'c', .waiters_max = 2).held);
    struct answer refused = LOCK(&world, "l", 'd', .waiters_max = 2);
    cr_expect(refused.error == CO_BUSY && strstr(refused.text, "at most 2"), "%s", refused.text);
    refused = LOCK(&world, "l", 0, .made = 'x', .waiters_max = 2);
    cr_expect(refused.error == CO_BUSY && !lives('x'));
    cr_expect_eq(LOCK(&world, "l", 'c', .waiters_max = 2).position, 2, "who waits already keeps its place");
    cr_expect_eq(LOCK(&world, "l", 'd', .waiters_max = 2, .asks = true).error, CO_OK, "who asks does not wait");
    cr_expect_eq(LOCK(&world, "l", 'd').position, 3, "another server allows more");
    STATE("l", "A|BCD");
}

Test(lock, how_many_locks_a_session_is_in_is_bounded) {
    cr_assert(LOCK(&world, "taken", 'b').held);
    cr_assert(LOCK(&world, "l1", 'a', .of_session_max = 2).held);
    cr_assert_eq(LOCK(&world, "taken", 'a', .of_session_max = 2).position, 1);
    struct answer refused = LOCK(&world, "l2", 'a', .of_session_max = 2);
    cr_expect(refused.error == CO_BUSY && strstr(refused.text, "at most 2"), "%s", refused.text);
    cr_expect(LOCK(&world, "l1", 'a', .of_session_max = 2).held, "again is not one more");
    STATE("l2", "|");
    cr_assert(lock_release(&world, "l1", 'a').yes);
    cr_expect(LOCK(&world, "l2", 'a', .of_session_max = 2).held);
}

Test(lock, names_do_not_meet) {
    static const char *const names[] = {"l", "l/", "l/1", "l\x01", "l\xff", "L", "\x01"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) cr_expect(LOCK(&world, names[i], 'a').held, "%zu", i);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        cr_expect_eq(LOCK(&world, names[i], (char)('b' + i)).position, 1, "%zu", i);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        cr_expect(lock_release(&world, names[i], 'a').yes);
        char expected[] = {(char)('B' + i), '|', '\0'};
        STATE(names[i], expected);
    }
}

Test(lock, survives_a_restart) {
    struct answer held = LOCK(&world, "l", 'a');
    LOCK(&world, "l", 'b', .shared = true);
    LOCK(&world, "l", 'c', .shared = true);
    uint64_t sum = fixture_sum(&world);
    fixture_reopen(&world);
    cr_expect_eq(fixture_sum(&world), sum);
    STATE("l", "A|bc");
    cr_expect(LOCK(&world, "l", 'a').token == held.token && lock_release(&world, "l", 'a').yes);
    STATE("l", "bc|");
}
