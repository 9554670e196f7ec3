/* The ends of sessions, and lock-delays: what they hold passes on, and their places in queues are gone, in the entry of
 * the end. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "queues.h"

#define SECOND INT64_C(1000000000)

static struct fixture world;
static void setup(void) {
    queues_open(&world, 6);
    cr_assert(check_register(&world, "n2", "c1", PB__STATUS__PASSING).error == CO_OK);
}
static void teardown(void) { fixture_close(&world); }
TestSuite(lock_ends, .init = setup, .fini = teardown);

#define STATE(name, expected) cr_expect_str_eq(lock_state(&world, name), expected, "%s", lock_state(&world, name))

static uint64_t drop(char who) { return session_drop(&world, session_of(who)).index; }

/* -- ends --------------------------------------------------------------------------------------------------------- */

static uint64_t by_destroy(void) { return drop('y'); }
static uint64_t by_node(void) { return node_remove(&world, "n2").index; }
static uint64_t by_check(void) { return check_register(&world, "n2", "c1", PB__STATUS__CRITICAL).index; }
static uint64_t by_check_removal(void) { return check_deregister(&world, "n2", "c1").index; }
static uint64_t by_ttl(void) {
    Pb__SessionDestroyCommand command = PB__SESSION_DESTROY_COMMAND__INIT;
    command.id = (char *)(uintptr_t)session_of('y'), command.term = world.term + 1;
    cr_expect_eq(fixture_apply(&world, SESSION_DESTROY, &command.base).error, CO_CONFLICT);
    STATE("l", "Y|ab");
    command.term = world.term;
    return fixture_apply(&world, SESSION_DESTROY, &command.base).index;
}

static void hands_over(uint64_t (*end)(void)) {
    cr_assert(session_make(&world, session_of('y'),
                           &(struct session_plan){.node = "n2", .node_check = "c1", .ttl_ns = 10 * SECOND})
                  .yes);
    cr_assert(LOCK(&world, "l", 'y').held && LOCK(&world, "other", 'c').held);
    LOCK(&world, "l", 'a', .shared = true);
    LOCK(&world, "l", 'b', .shared = true);
    LOCK(&world, "other", 'y');
    LOCK(&world, "other", 'd');
    STATE("other", "C|YD");
    uint64_t index = end();
    STATE("l", "ab|");
    STATE("other", "C|D");
    cr_expect(lock_entry(&world, "l", 'a').token == index && lock_entry(&world, "l", 'b').token == index);
    cr_expect(!lock_entry(&world, "l", 'y').yes && !lock_entry(&world, "other", 'y').yes);
    (void)fixture_sum(&world);
}
Test(lock_ends, destroyed) { hands_over(by_destroy); }
Test(lock_ends, its_node_is_removed) { hands_over(by_node); }
Test(lock_ends, its_check_is_critical) { hands_over(by_check); }
Test(lock_ends, its_check_is_removed) { hands_over(by_check_removal); }
Test(lock_ends, its_ttl_is_over) { hands_over(by_ttl); }

Test(lock_ends, a_shared_holder_makes_room_under_the_limit) {
    for (char who = 'a'; who <= 'd'; who++) LOCK(&world, "l", who, .shared = true, .limit = 2);
    STATE("l", "ab|cd");
    uint64_t index = drop('b');
    STATE("l", "ac|d");
    cr_expect_eq(lock_entry(&world, "l", 'c').token, index);
    drop('d');
    STATE("l", "ac|");
}

Test(lock_ends, a_writer_that_dies_in_front_lets_the_readers_behind_it_pass) {
    LOCK(&world, "l", 'a', .shared = true);
    LOCK(&world, "l", 'b');
    LOCK(&world, "l", 'c', .shared = true);
    STATE("l", "a|Bc");
    drop('b');
    STATE("l", "ac|");
}

/* The one that is granted in between never knew; its lock-delay does not count. */
Test(lock_ends, holder_and_next_die_in_one_entry) {
    cr_assert(session_on(&world, 'x', "n2", 0).yes && session_on(&world, 'y', "n2", 5 * SECOND).yes);
    LOCK(&world, "l", 'x');
    LOCK(&world, "l", 'y');
    LOCK(&world, "l", 'a');
    STATE("l", "X|YA");
    uint64_t index = node_remove(&world, "n2").index;
    STATE("l", "A|");
    cr_expect_eq(lock_entry(&world, "l", 'a').token, index);
    cr_assert(lock_release(&world, "l", 'a').yes && session_on(&world, 'z', "n1", 0).yes);
    cr_expect_gt(LOCK(&world, "l", 'z').token, index);
}

/* -- lock-delays -------------------------------------------------------------------------------------------------- */

static void updates_are(const char *expected) {
    struct buffer text = {0};
    fixture_updates(&world, SECOND, &text);
    cr_expect_str_eq(text.data, expected, "%s", text.data);
    buffer_free(&text);
}
static void updates_forget(void) {
    struct buffer text = {0};
    fixture_updates(&world, SECOND, &text);
    buffer_free(&text);
}

Test(lock_ends, with_a_lock_delay_the_queue_moves_on_when_the_leader_says_so) {
    cr_assert(session_on(&world, 'y', "n2", 5 * SECOND).yes);
    uint64_t token = LOCK(&world, "l", 'y').token;
    LOCK(&world, "l", 'a');
    updates_forget();
    uint64_t index = drop('y');
    STATE("l", "|A~");
    updates_are("delay of a lock began l 5; session ended 00000018 0; ");
    struct answer asks = LOCK(&world, "l", 'b', .asks = true);
    cr_expect(!asks.held && asks.waiters == 1);
    cr_expect_eq(LOCK(&world, "l", 'b').position, 2);
    cr_expect_eq(lock_delay_over(&world, "l", index, world.term + 1).error, CO_CONFLICT, "another leader's");
    cr_expect_eq(lock_delay_over(&world, "l", index - 1, world.term).error, CO_OK);
    cr_expect_eq(lock_delay_over(&world, "other", index, world.term).error, CO_OK);
    cr_expect_eq(lock_delay_over(&world, "", index, world.term).error, CO_OK);
    STATE("l", "|AB~");
    updates_are("");
    uint64_t over = lock_delay_over(&world, "l", index, world.term).index;
    STATE("l", "A|B");
    updates_are("delay of a lock ended l 0; ");
    struct answer granted = lock_entry(&world, "l", 'a');
    cr_expect(granted.token == over && over > token);
    cr_expect_eq(lock_delay_over(&world, "l", index, world.term).error, CO_OK, "twice");
    STATE("l", "A|B");
}

Test(lock_ends, a_lock_delay_is_of_holders_that_die_only) {
    for (char who = 'x'; who <= 'z'; who++) cr_assert(session_on(&world, who, "n1", 5 * SECOND).yes);
    LOCK(&world, "l", 'x');
    LOCK(&world, "l", 'y');
    LOCK(&world, "l", 'z');
    drop('y');
    STATE("l", "X|Z");
    cr_assert(lock_release(&world, "l", 'x').yes);
    STATE("l", "Z|");
    drop('z');
    STATE("l", "|~");
}

Test(lock_ends, during_a_lock_delay_waiters_come_and_go_and_the_limit_is_new) {
    cr_assert(session_on(&world, 'y', "n1", 5 * SECOND).yes);
    LOCK(&world, "l", 'y');
    uint64_t index = drop('y');
    STATE("l", "|~");
    cr_expect_eq(LOCK(&world, "l", 'a', .shared = true, .limit = 1).position, 1);
    cr_expect_eq(LOCK(&world, "l", 'b').error, CO_CONFLICT);
    cr_expect_eq(LOCK(&world, "l", 'b', .shared = true, .limit = 1).position, 2);
    cr_assert(lock_release(&world, "l", 'a').yes);
    STATE("l", "|b~");
    fixture_reopen(&world);
    lock_delay_over(&world, "l", index, world.term);
    STATE("l", "b|");
}

Test(lock_ends, of_two_holders_that_die_in_one_entry_the_longer_delay_counts) {
    for (unsigned first_is_longer = 0; first_is_longer < 2; first_is_longer++) {
        char name[] = {(char)('0' + first_is_longer), '\0'};
        cr_assert(node_register(&world, "n3").yes);
        cr_assert(session_on(&world, 'x', "n3", first_is_longer ? 5 * SECOND : 3 * SECOND).yes);
        cr_assert(session_on(&world, 'y', "n3", first_is_longer ? 3 * SECOND : 5 * SECOND).yes);
        LOCK(&world, name, 'x', .shared = true);
        LOCK(&world, name, 'y', .shared = true);
        LOCK(&world, name, 'a');
        updates_forget();
        uint64_t index = node_remove(&world, "n3").index;
        STATE(name, "|A~");
        updates_are(first_is_longer
                        ? "delay of a lock began 1 5; session ended 00000017 0; session ended 00000018 0; "
                        : "delay of a lock began 0 3; session ended 00000017 0; "
                          "delay of a lock ended 0 0; delay of a lock began 0 5; session ended 00000018 0; ");
        lock_delay_over(&world, name, index, world.term);
        STATE(name, "A|");
    }
}

/* -- as the leader counts them ------------------------------------------------------------------------------------ */

static struct expiry *table;
static uint64_t now_ms;

static void count_updates(void) {
    for (struct expiry_update *update = expiry_updates_take(world.updates), *next; update; update = next) {
        struct slice name = slice_make(update->name, update->size);
        next = update->next;
        if (update->ended) expiry_ended(table, update->kind, name, update->index);
        else expiry_began(table, update->kind, name, update->index, update->period_ns, now_ms);
        free(update);
    }
}

static void propose(void *data, uint8_t command, const ProtobufCMessage *message) {
    unsigned *ends = data;
    cr_assert_eq(fixture_apply(&world, command, message).error, CO_OK);
    (*ends)++;
}

static void is_due(void *data, const struct expiry_due *due) {
    struct expiry_leader leader = {.term = world.term, .now_ms = now_ms, .unix_ms = 7000};
    due->kind->end(due, &leader, propose, data);
}

/* Until then; how many ends it has proposed. */
static unsigned leader_until(uint64_t ms) {
    unsigned ends = 0;
    for (count_updates(); now_ms < ms; count_updates()) {
        now_ms = expiry_deadline_ms(table) < ms ? expiry_deadline_ms(table) : ms;
        expiry_tick(table, now_ms, is_due, &ends);
    }
    return ends;
}

static void leader_begins(void) {
    if (!table) table = expiry_new();
    expiry_lead(table, world.term, now_ms);
    for (const struct module_entry *entry = world.modules; entry->module; entry++)
        for (const struct expiry_kind *const *kind = entry->module->expiries; kind && *kind; kind++) {
            struct expiry_leader leader = {.term = world.term, .now_ms = now_ms, .settings = entry->settings};
            if (strncmp((*kind)->name, "delay of", 8) == 0)
                cr_assert_eq((*kind)->read(store_read(world.reader), &leader, table), CO_OK);
            store_read_done(world.reader);
        }
}

static void two_delays(void) {
    cr_assert(session_on(&world, 'x', "n1", 3 * SECOND).yes && session_on(&world, 'y', "n1", 9 * SECOND).yes);
    cr_assert(session_on(&world, 'z', "n1", 2 * SECOND).yes);
    for (char who = 'x'; who <= 'z'; who++) LOCK(&world, "l", who, .shared = true);
    LOCK(&world, "l", 'a');
    STATE("l", "xyz|A");
}

Test(lock_ends, several_delays_of_one_lock_are_counted_each) {
    leader_begins();
    two_delays();
    drop('y');
    cr_expect_eq(leader_until(1000), 0);
    drop('x');
    drop('z');
    STATE("l", "|A~~~");
    cr_expect_eq(leader_until(3000), 0);
    cr_expect_eq(leader_until(3100), 1, "z's");
    cr_expect_eq(leader_until(4100), 1, "x's");
    STATE("l", "|A~");
    cr_expect_eq(leader_until(9000), 0);
    STATE("l", "|A~");
    cr_expect_eq(leader_until(9100), 1, "y's, which began first");
    STATE("l", "A|");
    expiry_free(table), table = NULL;
}

Test(lock_ends, a_new_leader_counts_all_of_them_anew) {
    leader_begins();
    two_delays();
    drop('y');
    drop('x');
    fixture_reopen(&world);
    world.term++;
    leader_begins();
    cr_expect_eq(leader_until(3000), 0);
    cr_expect_eq(leader_until(3100), 1);
    STATE("l", "z|A~");
    cr_expect_eq(leader_until(9100), 1);
    STATE("l", "z|A");
    cr_assert(lock_release(&world, "l", 'z').yes);
    STATE("l", "A|");
    expiry_free(table), table = NULL;
}

Test(lock_ends, a_delay_beyond_the_longest_counts_as_that) {
    cr_assert(session_on(&world, 'y', "n1", INT64_MAX).yes);
    LOCK(&world, "l", 'y');
    updates_forget();
    drop('y');
    updates_are("delay of a lock began l 60; session ended 00000018 0; ");
}

Test(lock_ends, names_with_delays_are_many, .timeout = 300) {
    enum { OF_EACH = 900, EACH = 12 };
    char name[16];
    cr_assert_gt(OF_EACH * EACH, QUEUE_FREE_KEPT);
    for (char who = 'g'; who < 'g' + EACH; who++) {
        cr_assert(session_on(&world, who, "n1", 5 * SECOND).yes);
        for (unsigned i = 0; i < OF_EACH; i++) {
            snprintf(name, sizeof name, "%c%u", who, i);
            cr_assert(LOCK(&world, name, who).held);
        }
    }
    cr_assert(LOCK(&world, "free", 'a').held && lock_release(&world, "free", 'a').yes);
    uint64_t last = 0;
    for (char who = 'g'; who < 'g' + EACH; who++) last = drop(who);
    STATE("r899", "|~");
    uint64_t token = LOCK(&world, "l", 'a').token;
    cr_assert(lock_release(&world, "l", 'a').yes, "nothing is remembered of it");
    STATE("l", "|");
    cr_assert(LOCK(&world, "l", 'a').token > token);
    cr_assert(LOCK(&world, "free", 'b').held);
    lock_delay_over(&world, "r899", last, world.term);
    STATE("r899", "|");
    cr_expect(LOCK(&world, "r899", 'b').held);
    (void)fixture_sum(&world);
}
