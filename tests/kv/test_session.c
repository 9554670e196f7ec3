/* Sessions: what they may be bound to, what ends them, and what their end does to the keys they hold. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "commands.h"

static struct fixture world;
static char id[8][UUID_TEXT_SIZE + 1];
static void setup(void) {
    fixture_open(&world);
    for (unsigned i = 0; i < ARRAY_COUNT(id); i++) session_id(i, id[i]);
    cr_assert_eq(check_register(&world, "n1", "serfHealth", PB__STATUS__PASSING).error, CO_OK);
    cr_assert_eq(check_register(&world, "n1", "c1", PB__STATUS__PASSING).error, CO_OK);
    cr_assert_eq(check_register(&world, "n1", "bad", PB__STATUS__CRITICAL).error, CO_OK);
    cr_assert_eq(check_register(&world, "n1", "warn", PB__STATUS__WARNING).error, CO_OK);
    cr_assert_eq(check_register(&world, "n2", "c1", PB__STATUS__PASSING).error, CO_OK);
}
static void teardown(void) { fixture_close(&world); }

static size_t session_count(const char *node) {
    struct query_result result = session_list(&world, node);
    return ((const Pb__SessionsResult *)result.message)->n_sessions;
}

static bool lives(unsigned number) { return session_get_by(&world, id[number]).found; }

/* -- create ------------------------------------------------------------------------------------------------------- */

static const struct {
    struct session_plan plan;
    const char *refusal;
} create_rows[] = {
    {{.node = "n1"}, NULL},
    {{.node = "n1", .node_check = "serfHealth"}, NULL},
    {{.node = "n1", .node_check = "warn"}, NULL},
    {{.node = "n1", .service_check = "c1", .node_check = "serfHealth", .old_check = "c1"}, NULL},
    {{.node = "n9"}, "Missing node registration"},
    {{.node = ""}, "Must provide Node"},
    {{.node = "n1", .node_check = "none"}, "Missing check 'none' registration"},
    {{.node = "n1", .service_check = "none"}, "Missing check 'none' registration"},
    {{.node = "n1", .old_check = "none"}, "Missing check 'none' registration"},
    {{.node = "n1", .node_check = ""}, "Missing check '' registration"},
    {{.node = "n2", .node_check = "serfHealth"}, "Missing check 'serfHealth' registration"},
    {{.node = "n1", .node_check = "bad"}, "Check 'bad' is in critical state"},
    {{.node = "n1", .node_check = "c1", .service_check = "bad"}, "Check 'bad' is in critical state"},
    {{.node = "n1", .ttl_ns = -1}, "negative duration"},
};

Test(session, create, .init = setup, .fini = teardown) {
    for (unsigned i = 0; i < ARRAY_COUNT(create_rows); i++) {
        char name[UUID_TEXT_SIZE + 1];
        session_id(100 + i, name);
        uint64_t before = session_list(&world, NULL).index;
        struct outcome outcome = session_make(&world, name, &create_rows[i].plan);
        if (create_rows[i].refusal) {
            cr_expect_eq(outcome.error, CO_INVALID, "row %u", i);
            cr_expect_str_eq(outcome.text, create_rows[i].refusal, "row %u: %s", i, outcome.text);
            cr_expect_not(session_get_by(&world, name).found, "row %u", i);
            cr_expect_eq(session_list(&world, NULL).index, before, "row %u", i);
        } else {
            cr_expect(outcome.error == CO_OK && outcome.yes, "row %u: %s", i, outcome.text);
            cr_expect_str_eq(outcome.id, name, "row %u", i);
            struct query_result result = session_get_by(&world, name);
            cr_assert(result.found, "row %u", i);
            cr_expect_eq(result.index, outcome.index);
            cr_expect_eq(((const Pb__Session *)result.message)->create_index, outcome.index);
            cr_expect_eq(session_list(&world, NULL).index, outcome.index);
        }
    }
    cr_expect_eq(session_make(&world, "not a uuid", &(struct session_plan){.node = "n1"}).error, CO_INVALID);
    cr_expect(session_make(&world, id[0], &(struct session_plan){.node = "n1"}).yes);
    cr_expect_eq(session_make(&world, id[0], &(struct session_plan){.node = "n1"}).error, CO_EXISTS);
}

/* Of somebody in another region, whose node is not known here. */
Test(session, one_without_a_node_ends_with_its_ttl, .init = setup, .fini = teardown) {
    const struct session_plan ends = {.node = "", .ttl_ns = 10000000000}, stays = {.node = ""},
                              checked = {.node = "", .ttl_ns = 10000000000, .node_check = "serfHealth"};
    cr_expect_eq(session_make(&world, id[0], &stays).error, CO_INVALID);
    cr_expect_eq(session_make(&world, id[0], &checked).error, CO_INVALID);
    cr_expect(session_make(&world, id[0], &ends).yes && lives(0));
}

/* protobuf-c unpacks 85 00 as an unknown field of number 0, packs it as 05, and does not unpack that. */
Test(session, one_that_would_become_an_unreadable_record_is_refused, .init = setup, .fini = teardown) {
    struct buffer session = {0}, command = {0};
    Pb__Session plain = PB__SESSION__INIT;
    char node[] = "n1";
    plain.id = id[0], plain.node = node;
    size_t size = pb__session__get_packed_size(&plain);
    buffer_reserve(&session, size);
    pb__session__pack(&plain, (uint8_t *)session.data);
    session.size = size;
    buffer_append(&session,
                  "\x85\x00"
                  "1234",
                  6);
    buffer_append_byte(&command, SESSION_CREATE);
    buffer_append(&command, "\x01\x0a", 2);
    buffer_append_byte(&command, (char)session.size);
    buffer_append(&command, session.data, session.size);
    struct outcome outcome = fixture_apply_bytes(&world, buffer_slice(&command));
    cr_expect_eq(outcome.error, CO_INVALID);
    cr_expect_eq(session_count("n1"), 0);
    cr_expect_eq(node_remove(&world, "n1").error, CO_OK);
    buffer_free(&session);
    buffer_free(&command);
}

Test(session, everything_given_is_kept, .init = setup, .fini = teardown) {
    Pb__SessionCreateCommand command = PB__SESSION_CREATE_COMMAND__INIT;
    Pb__Session session = PB__SESSION__INIT;
    char name[] = "na\xc3\xafve", node[] = "n1", ttl[] = "15.0s", *node_checks[] = {"serfHealth", "c1"},
         *service_checks[] = {"warn"};
    session.id = id[3], session.name = name, session.node = node, session.ttl = ttl, session.ttl_ns = 15000000000;
    session.node_checks = node_checks, session.n_node_checks = 2;
    session.service_checks = service_checks, session.n_service_checks = 1;
    session.lock_delay_ns = 90000000000, session.delete_behavior = true;
    session.create_index = 77; /* not the client's to say */
    command.session = &session;
    uint64_t index = fixture_apply(&world, SESSION_CREATE, &command.base).index;
    fixture_reopen(&world);
    struct query_result result = session_get_by(&world, id[3]);
    cr_assert(result.found);
    const Pb__Session *kept = (const Pb__Session *)result.message;
    cr_expect_str_eq(kept->name, name);
    cr_expect_str_eq(kept->node, "n1");
    cr_expect_str_eq(kept->ttl, "15.0s");
    cr_expect_eq(kept->ttl_ns, 15000000000);
    cr_expect_eq(kept->lock_delay_ns, 90000000000);
    cr_expect(kept->delete_behavior);
    cr_assert(kept->n_node_checks == 2 && kept->n_service_checks == 1);
    cr_expect_str_eq(kept->node_checks[1], "c1");
    cr_expect_str_eq(kept->service_checks[0], "warn");
    cr_expect(kept->create_index == index && kept->modify_index == index);
}

/* -- lists and indexes -------------------------------------------------------------------------------------------- */

Test(session, lists_and_indexes, .init = setup, .fini = teardown) {
    cr_expect_eq(session_list(&world, NULL).index, 0);
    cr_expect_eq(session_list(&world, "n1").index, 0);
    cr_expect_eq(session_get_by(&world, id[5]).index, 0);
    cr_expect_eq(session_get_by(&world, "short").index, 0);
    (void)session_make(&world, id[5], &(struct session_plan){.node = "n1"});
    (void)session_make(&world, id[2], &(struct session_plan){.node = "n1", .node_check = "c1"});
    uint64_t on_n1 = session_make(&world, id[4], &(struct session_plan){.node = "n1"}).index;
    uint64_t on_n2 = session_make(&world, id[3], &(struct session_plan){.node = "n2"}).index;
    cr_expect_eq(session_list(&world, NULL).index, on_n2);
    cr_expect_eq(session_list(&world, "n1").index, on_n1);
    cr_expect_eq(session_list(&world, "n2").index, on_n2);
    struct query_result result = session_list(&world, NULL);
    const Pb__SessionsResult *list = (const Pb__SessionsResult *)result.message;
    cr_assert_eq(list->n_sessions, 4);
    for (size_t i = 0; i < 4; i++) cr_expect_str_eq(list->sessions[i]->id, id[2 + i]);
    cr_expect_eq(session_count("n1"), 3);
    cr_expect_eq(session_count("n2"), 1);
    cr_expect_eq(session_count("n"), 0);
    uint64_t ended = session_drop(&world, id[3]).index;
    cr_expect_eq(session_count("n2"), 0);
    cr_expect_eq(session_list(&world, "n2").index, ended);
    cr_expect_eq(session_list(&world, "n1").index, on_n1);
    cr_expect_eq(session_list(&world, NULL).index, ended);
    cr_expect_eq(session_get_by(&world, id[3]).index, ended);
    cr_expect_not(lives(3));
    struct outcome again = session_drop(&world, id[3]);
    cr_expect(again.error == CO_OK && again.yes, "destroying what is not there is fine");
    cr_expect_eq(session_list(&world, NULL).index, ended);
}

/* -- what ends them ----------------------------------------------------------------------------------------------- */

Test(session, a_critical_check_ends_those_bound_to_it, .init = setup, .fini = teardown) {
    (void)session_make(&world, id[0], &(struct session_plan){.node = "n1"});
    (void)session_make(&world, id[1], &(struct session_plan){.node = "n1", .node_check = "c1"});
    (void)session_make(&world, id[2],
                       &(struct session_plan){.node = "n1", .node_check = "serfHealth", .service_check = "c1"});
    (void)session_make(&world, id[3],
                       &(struct session_plan){.node = "n1", .node_check = "serfHealth", .old_check = "c1"});
    (void)session_make(&world, id[4], &(struct session_plan){.node = "n1", .node_check = "serfHealth"});
    (void)session_make(&world, id[5], &(struct session_plan){.node = "n2", .node_check = "c1"});
    (void)kv_acquire(&world, "held", "1", id[2]);
    (void)check_register(&world, "n1", "c1", PB__STATUS__WARNING);
    cr_expect(lives(1) && lives(2) && lives(3), "a warning ends nothing");
    uint64_t index = check_register(&world, "n1", "c1", PB__STATUS__CRITICAL).index;
    cr_expect(lives(0) && !lives(1) && !lives(2) && !lives(3) && lives(4) && lives(5));
    cr_expect_eq(session_get_by(&world, id[2]).index, index);
    struct query_result held = kv_get(&world, "held");
    cr_expect_eq(held.index, index, "in the same entry");
    cr_expect_str_eq(entry_of(&held)->session, "");
    cr_expect_eq(session_make(&world, id[1], &(struct session_plan){.node = "n1", .node_check = "c1"}).error,
                 CO_INVALID);
    (void)check_register(&world, "n1", "c1", PB__STATUS__PASSING);
    cr_expect(session_make(&world, id[1], &(struct session_plan){.node = "n1", .node_check = "c1"}).yes);
}

Test(session, a_removed_check_ends_those_bound_to_it, .init = setup, .fini = teardown) {
    (void)session_make(&world, id[0], &(struct session_plan){.node = "n1", .node_check = "serfHealth"});
    (void)session_make(&world, id[1], &(struct session_plan){.node = "n1", .node_check = "c1"});
    (void)session_make(&world, id[2], &(struct session_plan){.node = "n1", .service_check = "c1"});
    (void)check_deregister(&world, "n1", "c1");
    cr_expect(lives(0) && !lives(1) && !lives(2));
}

Test(session, a_removed_node_ends_all_of_its_sessions, .init = setup, .fini = teardown) {
    (void)session_make(&world, id[0], &(struct session_plan){.node = "n1"});
    (void)session_make(&world, id[1], &(struct session_plan){.node = "n1", .node_check = "c1"});
    (void)session_make(&world, id[2], &(struct session_plan){.node = "n2"});
    uint64_t index = node_remove(&world, "n1").index;
    cr_expect(!lives(0) && !lives(1) && lives(2));
    cr_expect_eq(session_count("n1"), 0);
    cr_expect_eq(session_list(&world, "n1").index, index);
    cr_expect_eq(session_list(&world, NULL).index, index);
}

/* Names are cut in index keys; they must not be mixed up. */
Test(session, long_names_of_nodes_and_checks, .init = setup, .fini = teardown) {
    char node[2][300], check[2][300];
    for (unsigned i = 0; i < 2; i++) {
        memset(node[i], 'n', sizeof node[i]);
        memset(check[i], 'c', sizeof check[i]);
        snprintf(node[i] + 250, 10, "%u", i);
        snprintf(check[i] + 250, 10, "%u", i);
    }
    for (unsigned i = 0; i < 4; i++) {
        cr_assert_eq(check_register(&world, node[i / 2], check[i % 2], PB__STATUS__PASSING).error, CO_OK);
        cr_assert(
            session_make(&world, id[i], &(struct session_plan){.node = node[i / 2], .node_check = check[i % 2]}).yes);
    }
    cr_expect_eq(session_count(node[0]), 2);
    cr_expect_eq(session_count(node[1]), 2);
    (void)check_register(&world, node[0], check[1], PB__STATUS__CRITICAL);
    cr_expect(lives(0) && !lives(1) && lives(2) && lives(3));
    (void)node_remove(&world, node[1]);
    cr_expect(lives(0) && !lives(2) && !lives(3));
    cr_expect_eq(session_count(node[0]), 1);
    cr_expect_eq(session_count(node[1]), 0);
}

Test(session, a_proposal_of_another_term_ends_nothing, .init = setup, .fini = teardown) {
    (void)session_make(&world, id[0], &(struct session_plan){.node = "n1"});
    Pb__SessionDestroyCommand command = PB__SESSION_DESTROY_COMMAND__INIT;
    command.id = id[0];
    command.term = 4;
    world.term = 5;
    struct outcome outcome = fixture_apply(&world, SESSION_DESTROY, &command.base);
    cr_expect_eq(outcome.error, CO_CONFLICT);
    cr_expect(lives(0));
    command.term = 5;
    cr_expect(fixture_apply(&world, SESSION_DESTROY, &command.base).yes);
    cr_expect_not(lives(0));
}

/* -- what the end does to keys ------------------------------------------------------------------------------------ */

Test(session, release, .init = setup, .fini = teardown) {
    (void)session_make(&world, id[0], &(struct session_plan){.node = "n1"});
    (void)session_make(&world, id[1], &(struct session_plan){.node = "n1"});
    uint64_t create = kv_put(&world, "a", "0").index;
    (void)kv_acquire(&world, "a", "1", id[0]);
    (void)kv_acquire(&world, "b", "2", id[0]);
    uint64_t other = kv_acquire(&world, "c", "3", id[1]).index;
    (void)kv_acquire(&world, "freed", "4", id[0]);
    uint64_t freed = kv_release(&world, "freed", "4", id[0]).index;
    uint64_t ended = session_drop(&world, id[0]).index;
    struct query_result a = kv_get(&world, "a");
    cr_expect(bytes_are(entry_of(&a)->value, "1"));
    cr_expect_str_eq(entry_of(&a)->session, "");
    cr_expect_eq(entry_of(&a)->lock_index, 1);
    cr_expect_eq(entry_of(&a)->create_index, create);
    cr_expect_eq(entry_of(&a)->modify_index, ended);
    cr_expect_eq(kv_get(&world, "b").index, ended);
    cr_expect_eq(kv_get(&world, "c").index, other);
    cr_expect_eq(kv_get(&world, "freed").index, freed);
    cr_expect(kv_acquire(&world, "a", "5", id[1]).yes, "no lock-delay was asked for");
    a = kv_get(&world, "a");
    cr_expect_eq(entry_of(&a)->lock_index, 2);
}

Test(session, delete, .init = setup, .fini = teardown) {
    char long_key[2001];
    memset(long_key, 'k', 2000);
    long_key[2000] = '\0';
    (void)session_make(&world, id[0], &(struct session_plan){.node = "n1", .delete_keys = true});
    (void)kv_acquire(&world, "a", "1", id[0]);
    (void)kv_acquire(&world, long_key, "1", id[0]);
    (void)kv_acquire(&world, "gone", "1", id[0]);
    uint64_t gone = kv_del(&world, "gone").index, again = kv_put(&world, "gone", "2").index;
    (void)kv_put(&world, "ab", "1");
    uint64_t ended = session_drop(&world, id[0]).index;
    cr_expect_gt(again, gone);
    cr_expect_not(kv_get(&world, "a").found);
    cr_expect_eq(kv_get(&world, "a").index, ended);
    cr_expect_not(kv_get(&world, long_key).found);
    cr_expect_eq(kv_get(&world, long_key).index, ended);
    cr_expect(kv_get(&world, "ab").found);
    cr_expect(kv_get(&world, "gone").found, "deleting a key ended its lock");
}

static struct outcome delay_end(const char *key, uint64_t index, uint64_t term) {
    Pb__LockDelayEndCommand command = PB__LOCK_DELAY_END_COMMAND__INIT;
    command.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)(uintptr_t)key};
    command.index = index;
    command.term = term;
    return fixture_apply(&world, LOCK_DELAY_END, &command.base);
}

Test(session, lock_delay, .init = setup, .fini = teardown) {
    char long_key[1001], other_long[1001];
    memset(long_key, 'k', 1000), memset(other_long, 'k', 1000);
    long_key[1000] = other_long[1000] = '\0';
    other_long[999] = 'l';
    const char *const keys[] = {"a", long_key};
    (void)session_make(&world, id[1], &(struct session_plan){.node = "n1"});
    for (unsigned i = 0; i < 2; i++) {
        const char *key = keys[i];
        for (unsigned deletes = 0; deletes < 2; deletes++) {
            cr_assert(session_make(&world, id[0],
                                   &(struct session_plan){.node = "n1", .lock_delay_ns = 5, .delete_keys = deletes})
                          .yes);
            cr_assert(kv_acquire(&world, key, "1", id[0]).yes);
            uint64_t ended = session_drop(&world, id[0]).index;
            cr_expect_not(kv_acquire(&world, key, "2", id[1]).yes);
            cr_expect(kv_acquire(&world, i ? other_long : "b", "2", id[1]).yes, "another key");
            cr_expect(kv_put(&world, key, "3").yes, "only locking waits");
            cr_expect_eq(delay_end(key, ended, 9).error, CO_CONFLICT);
            cr_expect_not(delay_end(key, ended - 1, world.term).yes);
            cr_expect_not(delay_end(i ? other_long : "b", ended, world.term).yes);
            cr_expect_not(kv_acquire(&world, key, "2", id[1]).yes);
            cr_expect(delay_end(key, ended, world.term).yes);
            cr_expect_not(delay_end(key, ended, world.term).yes, "once");
            cr_expect(kv_acquire(&world, key, "2", id[1]).yes);
            cr_expect(kv_release(&world, key, "2", id[1]).yes);
        }
    }
}

/* -- news and leases ---------------------------------------------------------------------------------------------- */

static void expect_news(const char *expected, unsigned line) {
    struct buffer text = {0};
    fixture_updates(&world, 1, &text);
    cr_expect_str_eq(text.data, expected, "line %u: %s", line, text.data);
    buffer_free(&text);
}

Test(session, news, .init = setup, .fini = teardown) {
    expect_news("", __LINE__);
    (void)session_make(&world, id[1], &(struct session_plan){.node = "n1", .ttl_ns = 7, .lock_delay_ns = 61000000000});
    cr_expect_eq(world.wakes, 1);
    (void)kv_acquire(&world, "a", "1", id[1]);
    (void)kv_acquire(&world, "b", "1", id[1]);
    uint64_t ended = session_drop(&world, id[1]).index;
    cr_expect_eq(world.wakes, 1, "the box was not empty");
    expect_news(
        "session began 00000001 7; lock-delay began a 60000000000; lock-delay began b 60000000000; session ended "
        "00000001 0; ",
        __LINE__);
    (void)delay_end("a", ended, 1);
    (void)delay_end("a", ended, 1);
    cr_expect_eq(world.wakes, 2);
    expect_news("lock-delay ended a 0; ", __LINE__);
    (void)session_make(&world, id[2], &(struct session_plan){.node = "n1", .node_check = "c1"});
    (void)session_make(&world, "bad", &(struct session_plan){.node = "n1"});
    (void)node_remove(&world, "n1");
    expect_news("session began 00000002 0; session ended 00000002 0; ", __LINE__);
}

/* A leader that begins drops the news that there are and reads the store. So whoever could hear of something must
 * find it there; and as long as it is not applied, no renewal is confirmed by it. */
static unsigned looked;
static void look_while_woken(void) {
    struct arena arena = {0};
    struct query_result result = {0};
    Pb__SessionRequest request = PB__SESSION_REQUEST__INIT;
    request.id = id[1];
    looked++;
    cr_expect_eq(query_session.run(store_read(world.reader), &request.base, &arena, &result), CO_OK);
    cr_expect(result.found, "heard of before it is committed");
    store_read_done(world.reader);
    arena_free(&arena);
    cr_expect_lt(machine_applied(world.machine), result.index, "applied before it is heard of");
}

static Pb__SessionTtlCommand ttl_of(unsigned number, int64_t ttl_ns) {
    Pb__SessionTtlCommand command = PB__SESSION_TTL_COMMAND__INIT;
    static char text[] = "as it was written";
    command.id = id[number], command.ttl = text, command.ttl_ns = ttl_ns;
    return command;
}

Test(session, another_ttl_is_counted_from_its_command_on, .init = setup, .fini = teardown) {
    fixture_found(&world);
    uint64_t made = session_make(&world, id[1], &(struct session_plan){.node = "n1", .ttl_ns = 7}).index;
    expect_news("session began 00000001 7; ", __LINE__);
    Pb__SessionTtlCommand longer = ttl_of(1, 9000000000), nobody = ttl_of(2, 9), none = ttl_of(1, 0);
    struct outcome changed = fixture_apply(&world, SESSION_TTL, &longer.base);
    cr_expect(changed.yes && changed.error == CO_OK, "%s", changed.text);
    expect_news("session ended 00000001 0; session began 00000001 9000000000; ", __LINE__);
    struct query_result result = session_get_by(&world, id[1]);
    const Pb__Session *kept = (const Pb__Session *)result.message;
    cr_expect(result.index == changed.index && kept->create_index == made && kept->ttl_ns == 9000000000);
    cr_expect_str_eq(kept->ttl, "as it was written");
    cr_expect_eq(fixture_apply(&world, SESSION_TTL, &nobody.base).error, CO_NOTFOUND);
    cr_expect_eq(fixture_apply(&world, SESSION_TTL, &none.base).error, CO_INVALID);
    expect_news("", __LINE__);
    fixture_reopen(&world); /* a new leader finds it in the store */
    struct expiry *timers = expiry_new();
    struct expiry_leader leader = {.term = 3, .now_ms = 1000};
    expiry_lead(timers, 3, 1000);
    cr_assert_eq(session_expiry.read(store_read(world.reader), &leader, timers), CO_OK);
    store_read_done(world.reader);
    int64_t ttl_ns = 0;
    cr_expect_eq(expiry_renew(timers, &session_expiry, slice_text(id[1]), 1000, &ttl_ns), CO_OK);
    cr_expect_eq(ttl_ns, 9000000000);
    expiry_free(timers);
}

Test(session, news_come_with_the_commit, .init = setup, .fini = teardown) {
    world.on_wake = look_while_woken;
    cr_expect(session_make(&world, id[1], &(struct session_plan){.node = "n1", .ttl_ns = 7}).yes);
    cr_expect_eq(looked, 1);
    expiry_updates_put(world.updates, &session_expiry, true, slice_text(id[2]), 0, 0);
    expiry_updates_batch_end(world.updates, false);
    expiry_updates_batch_end(world.updates, true);
    expect_news("session began 00000001 7; ", __LINE__);
}

static unsigned due_count;
static void on_due(void *data, const struct expiry_due *item) {
    (void)data;
    cr_expect(item->kind == &session_expiry ? slice_is(item->name, id[1]) : slice_is(item->name, "held"));
    due_count++;
}

/* A new leader begins with what is in the store. */
Test(session, a_new_leader_reads_leases_from_the_store, .init = setup, .fini = teardown) {
    (void)session_make(&world, id[0], &(struct session_plan){.node = "n1", .lock_delay_ns = 2000000000});
    (void)session_make(&world, id[1], &(struct session_plan){.node = "n1", .ttl_ns = 10000000000});
    (void)session_make(&world, id[2], &(struct session_plan){.node = "n1"});
    (void)kv_acquire(&world, "held", "1", id[0]);
    (void)session_drop(&world, id[0]);
    fixture_reopen(&world);
    struct expiry *timers = expiry_new();
    int64_t ttl_ns = -1;
    expiry_lead(timers, 3, 1000);
    struct expiry_leader leader = {.term = 3, .now_ms = 1000};
    cr_assert_eq(session_expiry.read(store_read(world.reader), &leader, timers), CO_OK);
    store_read_done(world.reader);
    cr_assert_eq(lock_delay_expiry.read(store_read(world.reader), &leader, timers), CO_OK);
    store_read_done(world.reader);
    cr_expect_eq(expiry_renew(timers, &session_expiry, slice_text(id[0]), 1000, &ttl_ns), CO_NOTFOUND);
    cr_expect_eq(expiry_renew(timers, &session_expiry, slice_text(id[1]), 1000, &ttl_ns), CO_OK);
    cr_expect_eq(expiry_renew(timers, &session_expiry, slice_text(id[2]), 1000, &ttl_ns), CO_OK);
    unsigned expected = 0;
    for (uint64_t at_ms; (at_ms = expiry_deadline_ms(timers)) < 100000;) {
        expiry_tick(timers, at_ms, on_due, NULL);
        if (due_count == expected) continue;
        uint64_t least_ms = due_count == 1 ? 3000 : 11000;
        cr_expect(at_ms > least_ms && at_ms <= least_ms + 1000);
        expected = due_count;
    }
    cr_expect_eq(due_count, 2);
    expiry_free(timers);
}
