/* Circles of sessions that wait for each other are refused, and nothing else is. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <time.h>

#include "base/check.h"
#include "queues.h"

static struct fixture world;
static void setup(void) { queues_open(&world, 12); }
static void teardown(void) { fixture_close(&world); }
TestSuite(lock_circles, .init = setup, .fini = teardown, .timeout = 300);

/* The last of `size` sessions, each of which holds one lock and waits for the next one's, closes the circle. */
static void circle_of(unsigned size) {
    char name[2] = "0";
    for (unsigned i = 0; i < size; i++) {
        name[0] = (char)('0' + i);
        cr_assert(LOCK(&world, name, (char)('a' + i)).held);
    }
    for (unsigned i = 0; i + 1 < size; i++) {
        name[0] = (char)('1' + i);
        cr_assert_eq(LOCK(&world, name, (char)('a' + i)).position, 1, "%u of %u", i, size);
    }
    char last = (char)('a' + size - 1);
    struct answer refused = LOCK(&world, "0", last);
    cr_assert_eq(refused.error, CO_CONFLICT, "%u: %s", size, refused.text);
    for (unsigned i = 0; i < size; i++) {
        char quoted[] = {'"', (char)('0' + i), '"', '\0'};
        cr_expect(strstr(refused.text, session_of((char)('a' + i))), "%u, session %u: %s", size, i, refused.text);
        cr_expect(strstr(refused.text, quoted), "%u, lock %u: %s", size, i, refused.text);
    }
    cr_expect_eq(LOCK(&world, "0", last, .asks = true).error, CO_OK, "who only asks does not wait");
    cr_expect_str_eq(lock_state(&world, "0"), "A|");
    cr_assert(lock_release(&world, "0", 'a').yes);
    cr_expect(LOCK(&world, "0", last).held, "what is free is no wait");
}

Test(lock_circles, of_two) { circle_of(2); }
Test(lock_circles, of_three) { circle_of(3); }
Test(lock_circles, of_ten) { circle_of(10); }

Test(lock_circles, the_text_tells_the_way) {
    cr_assert(LOCK(&world, "l1", 'a').held && LOCK(&world, "l2", 'b').held && !LOCK(&world, "l2", 'a').held);
    char expected[512];
    snprintf(expected, sizeof expected,
             "the wait would close a circle: session %s waits for lock \"l1\" of %s, which waits for \"l2\" of %s",
             session_of('b'), session_of('a'), session_of('b'));
    struct answer refused = LOCK(&world, "l1", 'b');
    cr_expect_str_eq(refused.text, expected, "%s", refused.text);
}

Test(lock_circles, none_where_somebody_at_the_end_waits_for_nothing) {
    cr_assert(LOCK(&world, "l1", 'b').held && LOCK(&world, "l2", 'c').held);
    cr_expect_eq(LOCK(&world, "l1", 'a').position, 1, "A waits for B");
    cr_expect_eq(LOCK(&world, "l2", 'b').position, 1, "B waits for C");
    cr_expect_eq(LOCK(&world, "l2", 'a').position, 2, "A waits for both");
    cr_expect_eq(LOCK(&world, "l1", 'd').position, 2);
}

Test(lock_circles, who_waits_in_front_counts_too) {
    cr_assert(LOCK(&world, "l1", 'c').held && LOCK(&world, "l2", 'b').held);
    cr_expect_eq(LOCK(&world, "l1", 'a').position, 1);
    cr_expect_eq(LOCK(&world, "l2", 'a').position, 1, "A waits for B, too");
    struct answer refused = LOCK(&world, "l1", 'b');
    cr_expect_eq(refused.error, CO_CONFLICT, "B would wait behind A, who waits for B: %s", refused.text);
}

Test(lock_circles, not_across_a_counting_lock) {
    cr_assert(LOCK(&world, "slots", 'a', .shared = true, .limit = 2).held);
    cr_assert(LOCK(&world, "slots", 'c', .shared = true, .limit = 2).held);
    cr_assert(LOCK(&world, "l", 'b').held);
    cr_expect_eq(LOCK(&world, "l", 'a').position, 1, "A waits for B");
    struct answer waits = LOCK(&world, "slots", 'b', .shared = true, .limit = 2);
    cr_expect(waits.error == CO_OK && waits.position == 1, "C may help B: %s", waits.text);
    cr_assert(LOCK(&world, "m", 'd').held && LOCK(&world, "more", 'e', .shared = true, .limit = 1).held);
    cr_expect_eq(LOCK(&world, "more", 'd', .shared = true, .limit = 1).position, 1);
    cr_expect_eq(LOCK(&world, "m", 'e').position, 1);
}

Test(lock_circles, shared_ones_that_come_together_do_not_wait_for_each_other) {
    cr_assert(LOCK(&world, "rw", 'c').held);
    cr_assert(LOCK(&world, "l", 'b').held);
    cr_expect_eq(LOCK(&world, "rw", 'a', .shared = true).position, 1);
    cr_expect_eq(LOCK(&world, "rw", 'b', .shared = true).position, 2);
    struct answer waits = LOCK(&world, "l", 'a');
    cr_expect(waits.error == CO_OK && waits.position == 1, "B waits for C alone: %s", waits.text);
    cr_assert(LOCK(&world, "m", 'd').held && LOCK(&world, "m", 'a').position == 1, "A waits for D");
    waits = LOCK(&world, "rw", 'd', .shared = true);
    cr_expect(waits.error == CO_OK && waits.position == 3, "and D for C alone: %s", waits.text);
}

Test(lock_circles, shared_ones_wait_for_each_other_across_an_exclusive_one) {
    cr_assert(LOCK(&world, "rw", 'a', .shared = true).held && LOCK(&world, "l", 'c').held);
    cr_expect_eq(LOCK(&world, "rw", 'b').position, 1, "B waits for A");
    cr_expect_eq(LOCK(&world, "l", 'a').position, 1, "A for C");
    struct answer refused = LOCK(&world, "rw", 'c', .shared = true);
    cr_expect_eq(refused.error, CO_CONFLICT, "C would wait for B: %s", refused.text);
    cr_assert(LOCK(&world, "m", 'd').held && LOCK(&world, "rw", 'd', .shared = true).position == 2);
    refused = LOCK(&world, "m", 'b');
    cr_expect_eq(refused.error, CO_CONFLICT, "D waits for B: %s", refused.text);
}

Test(lock_circles, a_lock_delay_is_nobody_to_wait_for) {
    cr_assert(session_on(&world, 'y', "n1", 5000000000).yes);
    cr_assert(LOCK(&world, "rw", 'a', .shared = true).held && LOCK(&world, "rw", 'y', .shared = true).held);
    cr_assert(LOCK(&world, "l", 'b').held && LOCK(&world, "l", 'a').position == 1);
    cr_assert(session_drop(&world, session_of('y')).yes);
    struct answer waits = LOCK(&world, "rw", 'b', .shared = true);
    cr_expect(waits.error == CO_OK && waits.position == 1, "B waits for the time, not for A: %s", waits.text);
    cr_expect_eq(LOCK(&world, "m", 'b').held, true);
    cr_expect_eq(LOCK(&world, "m", 'a').position, 1, "and A may wait for B");
}

#ifdef COORD_ASAN
#define LOOKS_MS 20000
#else
#define LOOKS_MS 2000
#endif

/* CPU of 200 looks for a circle. */
static double looks_ms(void) {
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (unsigned i = 0; i < 200; i++) {
        cr_assert_eq(LOCK(&world, "l", 'a').position, 1);
        cr_assert(lock_release(&world, "l", 'a').yes);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    return (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
}

/* Time is bounded; beyond the bound a circle may come to be, which the end of a session undoes. */
Test(lock_circles, thousands_that_wait_are_looked_at_within_bounds) {
    enum { CROWD = 3000 };
    char id[UUID_TEXT_SIZE + 1];
    cr_assert(LOCK(&world, "hot", 'a').held && LOCK(&world, "l", 'b').held);
    for (unsigned i = 0; i < CROWD; i++) {
        Pb__QueueAcquireCommand command = PB__QUEUE_ACQUIRE_COMMAND__INIT;
        Pb__SessionUse use = PB__SESSION_USE__INIT;
        session_id(100 + i, id);
        cr_assert(session_make(&world, id, &(struct session_plan){.node = "n1"}).yes);
        use.id = id, command.session = &use, command.name = (char *)(uintptr_t) "hot", command.enqueue = true;
        cr_assert_eq(queues_apply(&world, LOCK_ACQUIRE, &command.base).position, i + 1);
    }
    double ms = looks_ms();
    for (unsigned i = 0; i < 4 && ms >= LOOKS_MS; i++)
        ms = looks_ms(); /* who shares the core makes it slower, not quicker */
    cr_expect_lt(ms, LOOKS_MS, "200 times 500 rows at most: %.0f ms", ms);
    cr_assert_eq(LOCK(&world, "l", 'a').position, 1);
    cr_expect_eq(LOCK(&world, "hot", 'b').error, CO_CONFLICT, "a circle close by is still found");
}
