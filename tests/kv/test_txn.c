/* Transactions: what every operation does and answers, how each fails, that a failure leaves nothing, fences,
 * comparisons, limits. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/check.h"
#include "kv/election/election.h"
#include "kv/fence/fence.h"
#include "queues.h"
#include "txns.h"

#define VERB(name) PB__TXN_VERB__TXN_##name
#define MODE       PB__QUEUE_MODE__QUEUE_EXCLUSIVE

static struct fixture world;
static struct txn txn;
static char one[UUID_TEXT_SIZE + 1], two[UUID_TEXT_SIZE + 1];

static void setup(void) {
    fixture_open(&world);
    fixture_found(&world);
    session_id(1, one), session_id(2, two);
    cr_assert_eq(node_register(&world, "n1").error, CO_OK);
    cr_assert(session_make(&world, one, &(struct session_plan){.node = "n1"}).yes);
    cr_assert(session_make(&world, two, &(struct session_plan){.node = "n1", .ttl_ns = 10000000000}).yes);
    txn_begin(&txn);
}
static void teardown(void) {
    (void)fixture_sum(&world);
    txn_free(&txn);
    fixture_close(&world);
}

static struct store_txn *read_store(void) {
    store_read_done(world.reader);
    return store_read(world.reader);
}

/* Of everything but which entry was the last. */
static uint64_t state_sum(void) {
    struct store_txn *store = read_store();
    uint64_t sum = store_sum(store) - store_hash(store, STORE_TABLE_META, SLICE_LITERAL("applied"));
    store_read_done(world.reader);
    return sum;
}

static uint64_t modified(const char *key) {
    struct query_result result = kv_get(&world, key);
    return result.found ? entry_of(&result)->modify_index : 0;
}

static bool is(const char *answer, const char *expected) {
    bool same = strcmp(answer, expected) == 0;
    if (!same) fprintf(stderr, "answer:   %s\nexpected: %s\n", answer, expected);
    txn_begin(&txn);
    return same;
}
#define EXPECT(expected) cr_expect(is(txn_do(&world, &txn), expected))
#define ASKED(expected)  cr_expect(is(txn_ask(&world, &txn), expected))

TestSuite(txn, .init = setup, .fini = teardown);

/* -- keys --------------------------------------------------------------------------------------------------------- */

Test(txn, each_verb_of_keys_does_and_answers_what_consul_says) {
    KEY_SET(&txn, "a", "1"), KEY_SET(&txn, "b/x", "2"), KEY_SET(&txn, "b/y", "3");
    EXPECT("ok a b/x b/y");
    KEY_GET(&txn, "a"), txn_key(&txn, VERB(GET_TREE), "b/", NULL, 0, NULL);
    EXPECT("ok a=1 b/x=2 b/y=3");
    uint64_t index = modified("a");
    txn_key(&txn, VERB(CHECK_INDEX), "a", NULL, index, NULL);
    txn_key(&txn, VERB(CAS), "a", "4", index, NULL), txn_key(&txn, VERB(CAS), "new", "5", 0, NULL);
    txn_key(&txn, VERB(CHECK_NOT_EXISTS), "none", NULL, 0, NULL);
    EXPECT("ok a a new");
    txn_key(&txn, VERB(ACQUIRE), "l", "v", 0, one), txn_key(&txn, VERB(CHECK_SESSION), "l", NULL, 0, one);
    KEY_GET(&txn, "l");
    EXPECT("ok l l l=v");
    txn_key(&txn, VERB(RELEASE), "l", "w", 0, one), KEY_GET(&txn, "l");
    EXPECT("ok l l=w");
    txn_key(&txn, VERB(DELETE), "a", NULL, 0, NULL), txn_key(&txn, VERB(DELETE), "none", NULL, 0, NULL);
    txn_key(&txn, VERB(DELETE_TREE), "b/", NULL, 0, NULL);
    txn_key(&txn, VERB(DELETE_CAS), "new", NULL, modified("new"), NULL);
    txn_key(&txn, VERB(DELETE_CAS), "none", NULL, 7, NULL);
    EXPECT("ok");
    struct query_result left = kv_keys(&world, "", "");
    cr_expect_eq(((const Pb__KvKeysResult *)left.message)->n_keys, 1); /* l */
}

/* Each sees what came before it, and all have the entry's index. */
Test(txn, operations_see_those_before_them) {
    KEY_SET(&txn, "a", "1"), KEY_GET(&txn, "a"), KEY_SET(&txn, "a", "2"), KEY_GET(&txn, "a");
    txn_key(&txn, VERB(DELETE), "a", NULL, 0, NULL);
    txn_key(&txn, VERB(CHECK_NOT_EXISTS), "a", NULL, 0, NULL);
    txn_key(&txn, VERB(CAS), "a", "3", 0, NULL), KEY_SET(&txn, "b", "1");
    EXPECT("ok a a=1 a a=2 a b");
    cr_expect_eq(modified("a"), machine_index(world.machine));
    cr_expect_eq(modified("b"), machine_index(world.machine));
}

static void add_failing(unsigned which, char *expected, size_t room) {
    static const struct {
        Pb__TxnVerb verb;
        const char *key;
        uint64_t number;
        const char *session, *what;
    } cases[] = {
        {VERB(GET), "no\"ne", 0, NULL, "key \"no\\\"ne\" doesn't exist"},
        {VERB(CAS), "k", 1, NULL, "failed to set key \"k\", index is stale"},
        {VERB(CAS), "k", 0, NULL, "failed to set key \"k\", index is stale"},
        {VERB(CAS), "none", 1, NULL, "failed to set key \"none\", index is stale"},
        {VERB(ACQUIRE), "held", 0, two, "failed to lock key \"held\", lock is already held"},
        {VERB(ACQUIRE), "k", 0, "", "missing session"},
        {VERB(ACQUIRE), "k", 0, "x", "invalid session \"x\""},
        {VERB(RELEASE), "held", 0, two,
         "failed to unlock key \"held\", lock isn't held, or is held by another session"},
        {VERB(RELEASE), "none", 0, one,
         "failed to unlock key \"none\", lock isn't held, or is held by another session"},
        {VERB(CHECK_INDEX), "none", 1, NULL, "failed to check index, key \"none\" doesn't exist"},
        {VERB(CHECK_SESSION), "none", 0, one, "failed to check session, key \"none\" doesn't exist"},
        {VERB(CHECK_NOT_EXISTS), "k", 0, NULL, "key \"k\" exists"},
        {VERB(DELETE_CAS), "k", 1, NULL, "failed to delete key \"k\", index is stale"},
        {VERB(SET), "", 0, NULL, "Must provide key"},
    };
    cr_assert(which < ARRAY_COUNT(cases));
    txn_key(&txn, cases[which].verb, cases[which].key, "x", cases[which].number, cases[which].session);
    snprintf(expected, room, "failed 1: %s", cases[which].what);
}

/* Between two that would have worked: nothing of them stays. */
Test(txn, each_failure_is_named_and_leaves_nothing) {
    char expected[300];
    cr_assert(kv_put(&world, "k", "before").yes);
    cr_assert(kv_acquire(&world, "held", "v", one).yes);
    for (unsigned i = 0; i < 14; i++) {
        uint64_t sum = state_sum();
        KEY_SET(&txn, "k", "changed");
        add_failing(i, expected, sizeof expected);
        KEY_SET(&txn, "late", "1");
        EXPECT(expected);
        cr_expect_eq(state_sum(), sum, "%u", i);
        struct query_result k = kv_get(&world, "k");
        cr_expect(bytes_are(entry_of(&k)->value, "before"), "%u", i);
        cr_expect_not(kv_get(&world, "late").found, "%u", i);
    }
    txn_key(&txn, VERB(CHECK_INDEX), "k", NULL, 1, NULL);
    snprintf(expected, sizeof expected, "failed 0: failed index check for key \"k\", current modify index %llu != 1",
             (unsigned long long)modified("k"));
    EXPECT(expected);
    txn_key(&txn, VERB(CHECK_SESSION), "held", NULL, 0, two);
    snprintf(expected, sizeof expected,
             "failed 0: failed session check for key \"held\", current session \"%s\" != \"%s\"", one, two);
    EXPECT(expected);
}

Test(txn, all_failures_are_named) {
    KEY_SET(&txn, "a", "1"), KEY_GET(&txn, "x"), KEY_GET(&txn, "a"), KEY_GET(&txn, "y");
    EXPECT("failed 1: key \"x\" doesn't exist; 3: key \"y\" doesn't exist");
    cr_expect_not(kv_get(&world, "a").found);
}

/* -- what a failure leaves ---------------------------------------------------------------------------------------- */

/* Everything that can be told to others: marks, tombstones, watches, deadlines, indexes. */
static void change_everything(void) {
    KEY_SET(&txn, "tree/new", "1");
    txn_key(&txn, VERB(DELETE_TREE), "tree/", NULL, 0, NULL);
    txn_key(&txn, VERB(ACQUIRE), "l", "v", 0, one);
    txn_session_end(&txn, two);
    txn_session_end(&txn, one);
    txn_node(&txn, VERB(SET), "n2", "10.0.0.2", 0);
    txn_service(&txn, VERB(SET), "n2", "web", 80, 0);
    txn_check(&txn, VERB(SET), "n2", "c", PB__STATUS__CRITICAL, 0);
    txn_node(&txn, VERB(DELETE), "n1", NULL, 0);
    txn_fence(&txn, "disk", 3, NULL);
}

Test(txn, a_failure_takes_everything_back) {
    enum { WATCHERS = 6 };
    struct watcher watchers[WATCHERS];
    const struct watch_key watched[WATCHERS] = {
        {SPACE_KEY, SLICE_LITERAL("tree/a")},     {SPACE_KEY | WATCH_PREFIX_BIT, SLICE_LITERAL("")},
        {SPACE_SESSION_TABLE, SLICE_LITERAL("")}, {SPACE_TABLE, SLICE_LITERAL("nodes")},
        {SPACE_SERVICE, SLICE_LITERAL("web")},    {SPACE_FENCE, SLICE_LITERAL("disk")}};
    struct buffer told = {0};
    cr_assert(kv_put(&world, "tree/a", "1").yes && kv_put(&world, "tree/b", "1").yes);
    uint64_t sum = state_sum(), keys = kv_keys(&world, "", "").index;
    fixture_updates(&world, 1, &told);
    buffer_reset(&told);
    for (unsigned i = 0; i < WATCHERS; i++) watcher_begin_at(&watchers[i], &world, watched[i]);
    change_everything();
    KEY_GET(&txn, "none");
    EXPECT("failed 10: key \"none\" doesn't exist");
    fixture_updates(&world, 1, &told);
    cr_expect_str_empty(told.data);
    for (unsigned i = 0; i < WATCHERS; i++) cr_expect_eq(watcher_woken(&watchers[i]), 0, "%u", i);
    cr_expect_eq(kv_keys(&world, "", "").index, keys);
    cr_expect(kv_get(&world, "tree/a").found && session_get_by(&world, one).found && session_get_by(&world, two).found);
    cr_expect_eq(state_sum(), sum);
    uint64_t before = machine_index(world.machine);
    change_everything(); /* the same, and it counts */
    cr_expect_eq(strncmp(txn_do(&world, &txn), "ok", 2), 0);
    txn_begin(&txn);
    buffer_reset(&told);
    fixture_updates(&world, 1000000000, &told);
    cr_expect_neq(strstr(told.data, "session ended 00000002"), NULL, "%s", told.data);
    for (unsigned i = 0; i < WATCHERS; i++)
        cr_expect_geq(watcher_woken(&watchers[i]), 1, "%u", i); /* a prefix: for each key */
    cr_expect_eq(kv_keys(&world, "tree/", "").index, before + 1);
    cr_expect_not(session_get_by(&world, one).found);
    for (unsigned i = 0; i < WATCHERS; i++) watcher_end(&watchers[i], &world);
    buffer_free(&told);
}

/* The same entries, with failing transactions between: the same state but for indexes that nobody changed. */
Test(txn, a_failure_in_a_batch_touches_no_neighbour) {
    struct txn good = {0}, bad = {0};
    struct outcome outcomes[4];
    struct watcher a, b;
    watcher_begin_at(&a, &world, (struct watch_key){SPACE_KEY, SLICE_LITERAL("a")});
    watcher_begin_at(&b, &world, (struct watch_key){SPACE_KEY, SLICE_LITERAL("b")});
    txn_begin(&good), txn_begin(&bad);
    KEY_SET(&good, "a", "1");
    KEY_SET(&bad, "a", "2"), KEY_SET(&bad, "b", "2"), KEY_GET(&bad, "none");
    const struct command commands[] = {{TXN_APPLY, &bad.command.base},
                                       {TXN_APPLY, &good.command.base},
                                       {TXN_APPLY, &bad.command.base},
                                       {TXN_APPLY, &bad.command.base}};
    fixture_apply_all(&world, commands, 4, outcomes);
    cr_expect(!outcomes[0].yes && outcomes[1].yes && !outcomes[2].yes && !outcomes[3].yes);
    cr_expect_eq(watcher_woken(&a), 1);
    cr_expect_eq(watcher_woken(&b), 0);
    struct query_result result = kv_get(&world, "a");
    cr_expect(bytes_are(entry_of(&result)->value, "1") && entry_of(&result)->modify_index == outcomes[1].index);
    watcher_end(&a, &world), watcher_end(&b, &world);
    txn_free(&good), txn_free(&bad);
}

/* -- the catalog and sessions ------------------------------------------------------------------------------------- */

static uint64_t catalog_index(Pb__TxnThing thing, const char *id) {
    struct store_txn *store = read_store();
    Pb__Node *node;
    Pb__Service *service;
    Pb__Check *check;
    uint64_t index = 0;
    if (thing == PB__TXN_THING__TXN_NODE && catalog_node_get(store, slice_text(id), &world.arena, &node) == CO_OK)
        index = node->modify_index;
    if (thing == PB__TXN_THING__TXN_SERVICE &&
        catalog_service_get(store, SLICE_LITERAL("n2"), slice_text(id), &world.arena, &service) == CO_OK)
        index = service->modify_index;
    if (thing == PB__TXN_THING__TXN_CHECK &&
        catalog_check_get(store, SLICE_LITERAL("n2"), slice_text(id), &world.arena, &check) == CO_OK)
        index = check->modify_index;
    store_read_done(world.reader);
    return index;
}

Test(txn, each_verb_of_the_catalog_does_and_answers_what_consul_says) {
    txn_node(&txn, VERB(SET), "n2", "10.0.0.2", 0), txn_service(&txn, VERB(SET), "n2", "web", 80, 0);
    txn_check(&txn, VERB(SET), "n2", "c", PB__STATUS__PASSING, 0);
    txn_node(&txn, VERB(CAS), "n3", "10.0.0.3", 0), txn_service(&txn, VERB(CAS), "n2", "api", 81, 0);
    txn_check(&txn, VERB(CAS), "n2", "d", PB__STATUS__WARNING, 0);
    EXPECT(
        "ok node n2 10.0.0.2 service n2/web:80 check n2/c:passing node n3 10.0.0.3 service n2/api:81 check "
        "n2/d:warning");
    txn_node(&txn, VERB(GET), "N2", NULL, 0), txn_service(&txn, VERB(GET), "n2", "web", 0, 0);
    txn_check(&txn, VERB(GET), "n2", "c", 0, 0);
    ASKED("ok node n2 10.0.0.2 service n2/web:80 check n2/c:passing");
    txn_node(&txn, VERB(CAS), "n2", "10.0.0.9", catalog_index(PB__TXN_THING__TXN_NODE, "n2"));
    txn_service(&txn, VERB(CAS), "n2", "web", 82, catalog_index(PB__TXN_THING__TXN_SERVICE, "web"));
    txn_check(&txn, VERB(CAS), "n2", "c", PB__STATUS__CRITICAL, catalog_index(PB__TXN_THING__TXN_CHECK, "c"));
    EXPECT("ok node n2 10.0.0.9 service n2/web:82 check n2/c:critical");
    txn_check(&txn, VERB(DELETE_CAS), "n2", "c", 0, catalog_index(PB__TXN_THING__TXN_CHECK, "c"));
    txn_service(&txn, VERB(DELETE_CAS), "n2", "web", 0, catalog_index(PB__TXN_THING__TXN_SERVICE, "web"));
    txn_node(&txn, VERB(DELETE_CAS), "n3", NULL, catalog_index(PB__TXN_THING__TXN_NODE, "n3"));
    txn_check(&txn, VERB(DELETE), "n2", "d", 0, 0), txn_service(&txn, VERB(DELETE), "n2", "none", 0, 0);
    EXPECT("ok");
    txn_node(&txn, VERB(DELETE), "n2", NULL, 0), txn_session_end(&txn, one), txn_session_end(&txn, one);
    EXPECT("ok");
    cr_expect_eq(catalog_index(PB__TXN_THING__TXN_NODE, "n2"), 0);
    cr_expect_not(session_get_by(&world, one).found);
}

Test(txn, failures_of_the_catalog_are_named) {
    txn_node(&txn, VERB(SET), "n2", "10.0.0.2", 0), txn_service(&txn, VERB(SET), "n2", "web", 80, 0);
    txn_check(&txn, VERB(SET), "n2", "c", PB__STATUS__PASSING, 0);
    cr_assert_eq(strncmp(txn_do(&world, &txn), "ok", 2), 0);
    txn_begin(&txn);
    txn_node(&txn, VERB(GET), "x", NULL, 0), txn_service(&txn, VERB(GET), "n2", "x", 0, 0);
    txn_check(&txn, VERB(GET), "n2", "x", 0, 0);
    ASKED(
        "failed 0: node \"x\" doesn't exist; 1: service \"x\" on node \"n2\" doesn't exist; 2: check \"x\" on node "
        "\"n2\" doesn't exist");
    txn_node(&txn, VERB(CAS), "n2", "10.0.0.2", 1), txn_service(&txn, VERB(CAS), "n2", "web", 80, 0);
    txn_check(&txn, VERB(CAS), "n2", "none", PB__STATUS__PASSING, 5);
    EXPECT(
        "failed 0: failed to set node \"n2\", index is stale; 1: failed to set service \"web\" on node \"n2\", index "
        "is stale; 2: failed to set check \"none\" on node \"n2\", index is stale");
    txn_node(&txn, VERB(DELETE_CAS), "none", NULL, 0), txn_service(&txn, VERB(DELETE_CAS), "n2", "web", 0, 1);
    txn_check(&txn, VERB(DELETE_CAS), "n2", "c", 0, 1);
    EXPECT(
        "failed 0: failed to delete node \"none\", index is stale; 1: failed to delete service \"web\" on node "
        "\"n2\", index is stale; 2: failed to delete check \"c\" on node \"n2\", index is stale");
    txn_service(&txn, VERB(SET), "none", "web", 80, 0), txn_check(&txn, VERB(SET), "none", "c", 0, 0);
    txn_node(&txn, VERB(SET), "n4", NULL, 0);
    EXPECT(
        "failed 0: Missing node registration; 1: Missing node registration; 2: Must provide address if "
        "SkipNodeUpdate is not set");
}

Test(txn, a_node_is_found_by_its_id) {
    txn_node(&txn, VERB(GET), NULL, NULL, 0)->id = (char *)"11111111-2222-3333-4444-555555555555";
    ASKED("failed 0: node \"\" doesn't exist");
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    char name[] = "n5", address[] = "10.0.0.5", id[] = "11111111-2222-3333-4444-555555555555";
    node.name = name, node.address = address, node.id = id;
    command.node = &node;
    cr_assert(fixture_apply(&world, CATALOG_REGISTER, &command.base).yes);
    txn_node(&txn, VERB(GET), NULL, NULL, 0)->id = id;
    ASKED("ok node n5 10.0.0.5");
}

/* -- fences ------------------------------------------------------------------------------------------------------- */

Test(txn, a_key_under_a_fence_is_written_only_while_the_token_holds) {
    struct outcome lock = lock_take(&world, "l", one, MODE);
    KEY_SET(&txn, "a", "1"), KEY_SET(&txn, "b", "1");
    txn.command.ops[1]->fence = (char *)"l", txn.command.ops[1]->token = lock.token;
    EXPECT("ok a b");
    cr_assert(lock_give(&world, "l", one).yes);
    KEY_SET(&txn, "a", "2"), KEY_SET(&txn, "b", "2");
    txn.command.ops[1]->fence = (char *)"l", txn.command.ops[1]->token = lock.token;
    char expected[200];
    snprintf(expected, sizeof expected, "failed 1: fence: token %llu does not hold lock \"l\": nobody does",
             (unsigned long long)lock.token);
    EXPECT(expected);
    struct query_result a = kv_get(&world, "a");
    cr_expect(bytes_are(entry_of(&a)->value, "1"));
    KEY_GET(&txn, "a"); /* a read may have one, too */
    txn.command.ops[0]->fence = (char *)"l", txn.command.ops[0]->token = lock.token;
    expected[7] = '0';
    ASKED(expected);
}

Test(txn, a_fence_of_the_whole_is_judged_within_it) {
    for (unsigned i = 0; i < 10; i++) cr_assert(kv_put(&world, "filler", i % 2 ? "a" : "b").yes);
    txn_fence(&txn, "disk", 5, NULL), KEY_SET(&txn, "a", "1");
    EXPECT("ok a");
    txn_fence(&txn, "disk", 4, NULL), KEY_SET(&txn, "a", "2");
    EXPECT("failed 0: fence \"disk\": token 4 is below 5, which was accepted before");
    txn_fence(&txn, "disk", 7, NULL), KEY_GET(&txn, "none"); /* what failed has raised nothing */
    EXPECT("failed 1: key \"none\" doesn't exist");
    txn_fence(&txn, "disk", 6, NULL), KEY_SET(&txn, "a", "3");
    EXPECT("ok a");
    txn_fence(&txn, "disk", 1000000, NULL);
    cr_expect_neq(strstr(txn_do(&world, &txn), "failed 0: token: 1000000 was never granted"), NULL);
    txn_begin(&txn);
    struct outcome lock = lock_take(&world, "l", one, MODE);
    txn_fence(&txn, "disk", lock.token, "l");
    EXPECT("ok");
    txn_fence(&txn, "disk", lock.token, "other");
    cr_expect_neq(strstr(txn_do(&world, &txn), "does not hold lock \"other\": nobody does"), NULL);
}

/* -- comparisons -------------------------------------------------------------------------------------------------- */

#define FIELD(name)    PB__TXN_FIELD__TXN_##name
#define RELATION(name) PB__TXN_RELATION__TXN_##name

static void expect_compare(bool holds, const char *key, Pb__TxnField field, Pb__TxnRelation relation, uint64_t number,
                           const char *than, unsigned line) {
    txn_compare_key(&txn, key, field, relation, number, than);
    cr_expect_str_eq(txn_ask(&world, &txn), holds ? "then: ok" : "else: ok", "line %u", line);
    txn_begin(&txn);
}
#define HOLDS(key, field, relation, number, than) \
    expect_compare(true, key, FIELD(field), RELATION(relation), number, than, __LINE__)
#define FAILS(key, field, relation, number, than) \
    expect_compare(false, key, FIELD(field), RELATION(relation), number, than, __LINE__)

Test(txn, comparisons_of_keys) {
    cr_assert(kv_put(&world, "a", "v").yes);
    uint64_t index = modified("a");
    HOLDS("a", EXISTS, EQUAL, 1, NULL), FAILS("a", EXISTS, EQUAL, 0, NULL), FAILS("a", EXISTS, UNEQUAL, 1, NULL);
    HOLDS("x", EXISTS, EQUAL, 0, NULL), FAILS("x", EXISTS, EQUAL, 1, NULL);
    HOLDS("a", VALUE, EQUAL, 0, "v"), FAILS("a", VALUE, EQUAL, 0, "w"), HOLDS("a", VALUE, UNEQUAL, 0, "w");
    FAILS("x", VALUE, EQUAL, 0, ""), HOLDS("x", VALUE, UNEQUAL, 0, "");
    HOLDS("a", MODIFY_INDEX, EQUAL, index, NULL), FAILS("a", MODIFY_INDEX, UNEQUAL, index, NULL);
    HOLDS("a", MODIFY_INDEX, LESS, index + 1, NULL), FAILS("a", MODIFY_INDEX, LESS, index, NULL);
    HOLDS("a", MODIFY_INDEX, GREATER, index - 1, NULL), FAILS("a", MODIFY_INDEX, GREATER, index, NULL);
    HOLDS("a", CREATE_INDEX, EQUAL, index, NULL), HOLDS("x", CREATE_INDEX, EQUAL, 0, NULL);
    HOLDS("a", LOCK_INDEX, EQUAL, 0, NULL), HOLDS("a", SESSION_OF, EQUAL, 0, ""), HOLDS("x", LEASE_OF, EQUAL, 0, "");
    FAILS("a", VALUE, LESS, 0, "z"); /* values have no order */
    cr_assert(kv_acquire(&world, "a", "v", one).yes);
    HOLDS("a", LOCK_INDEX, EQUAL, 1, NULL), HOLDS("a", SESSION_OF, EQUAL, 0, one);
    HOLDS("a", SESSION_OF, UNEQUAL, 0, two);
}

Test(txn, comparisons_of_locks_elections_and_the_catalog) {
    struct outcome lock = lock_take(&world, "l", one, MODE);
    struct answer led = election_campaign(&world, &(struct acquire){.name = "e", .made = 'x'});
    cr_assert(led.held);
    const struct {
        Pb__TxnThing thing;
        const char *node, *id;
        Pb__TxnField field;
        uint64_t number;
        bool holds;
    } cases[] = {
        {PB__TXN_THING__TXN_LOCK, NULL, "l", FIELD(HELD), lock.token, true},
        {PB__TXN_THING__TXN_LOCK, NULL, "l", FIELD(HELD), lock.token - 1, false},
        {PB__TXN_THING__TXN_LOCK, NULL, "e", FIELD(HELD), led.token, false},
        {PB__TXN_THING__TXN_LOCK, NULL, "", FIELD(HELD), lock.token, false},
        {PB__TXN_THING__TXN_ELECTION, NULL, "e", FIELD(HELD), led.token, true},
        {PB__TXN_THING__TXN_ELECTION, NULL, "l", FIELD(HELD), lock.token, false},
        {PB__TXN_THING__TXN_NODE, "n1", NULL, FIELD(EXISTS), 1, true},
        {PB__TXN_THING__TXN_NODE, "n9", NULL, FIELD(EXISTS), 1, false},
        {PB__TXN_THING__TXN_SERVICE, "n1", "web", FIELD(EXISTS), 0, true},
        {PB__TXN_THING__TXN_CHECK, "n1", "c", FIELD(EXISTS), 1, false},
        {PB__TXN_THING__TXN_CHECK, "n1", "c", FIELD(MODIFY_INDEX), 0, true},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        txn_compare_thing(&txn, cases[i].thing, cases[i].node, cases[i].id, cases[i].field, cases[i].number);
        cr_expect_str_eq(txn_ask(&world, &txn), cases[i].holds ? "then: ok" : "else: ok", "case %zu", i);
        txn_begin(&txn);
    }
}

static void swap_if(const char *expected) {
    txn_compare_key(&txn, "a", FIELD(VALUE), RELATION(EQUAL), 0, "1");
    txn_compare_key(&txn, "b", FIELD(EXISTS), RELATION(EQUAL), 0, NULL);
    KEY_SET(&txn, "a", "2"), KEY_SET(&txn, "c", "then");
    txn.otherwise = true;
    KEY_SET(&txn, "c", "else"), KEY_GET(&txn, "c");
    EXPECT(expected);
}

Test(txn, comparisons_choose_one_list) {
    swap_if("else: ok c c=else");
    cr_assert(kv_put(&world, "a", "1").yes);
    swap_if("then: ok a c");
    swap_if("else: ok c c=else"); /* a is 2 now */
    cr_assert(kv_put(&world, "a", "1").yes && kv_put(&world, "b", "1").yes);
    swap_if("else: ok c c=else"); /* all of them have to hold */
    txn_compare_key(&txn, "a", FIELD(EXISTS), RELATION(EQUAL), 1, NULL);
    KEY_SET(&txn, "d", "1"), KEY_GET(&txn, "none");
    EXPECT("then: failed 1: key \"none\" doesn't exist");
    cr_expect_not(kv_get(&world, "d").found);
    txn.command.conditional = true; /* without comparisons: they all hold */
    KEY_SET(&txn, "d", "1");
    EXPECT("then: ok d");
}

/* -- limits and nonsense ------------------------------------------------------------------------------------------ */

Test(txn, an_empty_one_does_nothing) {
    EXPECT("ok");
    ASKED("ok");
}

Test(txn, the_number_of_operations_is_bounded) {
    for (unsigned i = 0; i < TXN_OPS_MAX; i++) KEY_SET(&txn, "a", i % 2 ? "1" : "2");
    KEY_SET(&txn, "b", "1");
    cr_expect_str_eq(txn_do(&world, &txn), "refused: too many operations in a transaction");
    cr_expect_not(kv_get(&world, "b").found);
    txn.command.n_ops--;
    cr_expect_eq(strncmp(txn_do(&world, &txn), "ok a a a", 8), 0);
}

Test(txn, the_results_of_one_that_writes_are_bounded) {
    char *value = mem_alloc((1 << 20) + 1);
    memset(value, 'v', 1 << 20), value[1 << 20] = 0;
    cr_assert(kv_put(&world, "big", value).yes);
    for (unsigned i = 0; i < 5; i++) KEY_GET(&txn, "big");
    cr_expect_eq(strncmp(txn_ask(&world, &txn), "ok", 2), 0); /* reading alone may give more */
    KEY_SET(&txn, "a", "1");
    const char *answer = txn_do(&world, &txn);
    cr_expect_neq(strstr(answer, "the results of a transaction that writes have at most"), NULL, "%s", answer);
    cr_expect_not(kv_get(&world, "a").found);
    txn_begin(&txn);
    for (unsigned i = 0; i < 65; i++) KEY_GET(&txn, "big");
    answer = txn_ask(&world, &txn);
    cr_expect_neq(strstr(answer, "the results of a transaction have at most"), NULL, "%.200s", answer);
    free(value);
}

/* The log waits for it: a list of very much is not walked to its end. */
Test(txn, a_list_within_one_that_writes_is_bounded) {
    char *value = mem_alloc(500001), key[16];
    memset(value, 'v', 500000), value[500000] = 0;
    for (unsigned i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "t/%02u", i);
        cr_assert(kv_put(&world, key, value).yes);
    }
    txn_key(&txn, PB__TXN_VERB__TXN_GET_TREE, "t/", NULL, 0, NULL);
    KEY_SET(&txn, "a", "1");
    const char *answer = txn_do(&world, &txn);
    cr_expect_neq(strstr(answer, "the results of a transaction that writes have at most"), NULL, "%.200s", answer);
    cr_expect_not(kv_get(&world, "a").found);
    cr_assert(kv_put(&world, "s/1", "small").yes);
    txn_begin(&txn); /* the bound is that of one list, not of what comes behind it */
    txn_key(&txn, PB__TXN_VERB__TXN_GET_TREE, "s/", NULL, 0, NULL);
    txn_key(&txn, PB__TXN_VERB__TXN_DELETE_TREE, "t/", NULL, 0, NULL);
    cr_expect_eq(strncmp(txn_do(&world, &txn), "ok", 2), 0);
    cr_expect_not(kv_list(&world, "t/").found);
    free(value);
}

Test(txn, what_no_program_of_ours_makes_fails) {
    KEY_SET(&txn, "a", "1");
    ASKED("failed 0: the operation cannot be done here"); /* a query writes nothing */
    KEY_SET(&txn, "a", "1")->command.len = 1;
    cr_expect_eq(strncmp(txn_do(&world, &txn), "failed 0: ", 10), 0);
    txn_begin(&txn);
    KEY_SET(&txn, "a", "1")->thing = PB__TXN_THING__TXN_SESSION; /* another module's command */
    EXPECT("failed 0: the operation cannot be done here");
    KEY_SET(&txn, "a", "1")->thing = PB__TXN_THING__TXN_LOCK;
    EXPECT("failed 0: the operation cannot be done here");
    KEY_GET(&txn, "a")->verb = (Pb__TxnVerb)99;
    EXPECT("failed 0: the operation cannot be done here");
    txn_compare_key(&txn, "a", (Pb__TxnField)99, RELATION(EQUAL), 0, NULL);
    EXPECT("else: ok");
    txn_compare_key(&txn, "a", FIELD(CREATE_INDEX), (Pb__TxnRelation)99, 0, NULL);
    EXPECT("else: ok");
    KEY_GET(&txn, "a")->refused = (char *)"unknown KV verb \"x\"";
    EXPECT("failed 0: unknown KV verb \"x\"");
    cr_expect_not(kv_get(&world, "a").found);
}
