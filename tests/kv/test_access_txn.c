/* Transactions of tokens: each operation as if it were alone, in transactions that write and in those that only read. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "access_kv.h"
#include "base/check.h"
#include "base/message.h"
#include "kv/election/election.h"
#include "kv/fence/fence.h"
#include "queues.h"
#include "tests/lib/with_access.h"
#include "txns.h"

#define VERB(name) PB__TXN_VERB__TXN_##name

static struct fixture world;
static struct txn txn;
static char one[UUID_TEXT_SIZE + 1];

static void setup(void) {
    fixture_open(&world);
    fixture_found(&world);
    session_id(1, one);
    cr_assert(node_register(&world, "n1").yes && node_register(&world, "n2").yes);
    cr_assert(session_make(&world, one, &(struct session_plan){.node = "n1"}).yes);
    txn_begin(&txn);
}
static void teardown(void) {
    txn_free(&txn);
    fixture_close(&world);
}
TestSuite(access_txn, .init = setup, .fini = teardown);

/* As a server does it: judges the transaction, and sends what is left of it. "403": it is denied as a whole. */
static const char *written_as(const char *rules) {
    struct arena arena = {0};
    struct access *access = access_of(rules);
    struct access_check check = {.access = access, .arena = &arena};
    struct txn marked = {.command = txn.command};
    store_read_done(world.reader); /* of the query before */
    int rv = txn_module.commands[0].may(&check, store_read(world.reader), &marked.command.base);
    store_read_done(world.reader);
    const char *text = rv == CO_DENIED ? "403" : txn_do(&world, &marked);
    cr_assert(rv == CO_OK || rv == CO_DENIED);
    access_release(access);
    arena_free(&arena);
    txn_begin(&txn);
    return text;
}

static const char *read_as(const char *rules) {
    struct access *access = access_of(rules);
    struct query_result result;
    struct access_check check;
    int rv = fixture_ask_as(&world, access, &query_txn, &txn.command.base, &result, &check);
    cr_assert(rv == CO_OK || rv == CO_DENIED);
    const char *text =
        rv == CO_DENIED ? "403" : txn_answer_text((const Pb__TxnAnswer *)result.message, txn.command.conditional);
    access_release(access);
    txn_begin(&txn);
    return text;
}

static bool is(const char *answer, const char *expected) {
    bool same = strcmp(answer, expected) == 0;
    if (!same) fprintf(stderr, "answer:   %s\nexpected: %s\n", answer, expected);
    return same;
}
#define WRITTEN(rules, expected) cr_expect(is(written_as(rules), expected))
#define READ(rules, expected)    cr_expect(is(read_as(rules), expected))

#define DENIED(level, name) "Permission denied: key:" level " on \"" name "\" is needed"

/* -- keys --------------------------------------------------------------------------------------------------------- */

/* Whether it is there or not: as Consul, neither a result nor an error. */
Test(access_txn, a_get_that_is_denied_gives_nothing) {
    cr_assert(kv_put(&world, "a", "1").yes && kv_put(&world, "secret", "2").yes);
    KEY_GET(&txn, "secret"), KEY_GET(&txn, "none"), KEY_GET(&txn, "a");
    READ("key:read=a", "ok a=1");
    KEY_GET(&txn, "secret"), KEY_GET(&txn, "none"), KEY_GET(&txn, "a"), KEY_SET(&txn, "b", "3");
    WRITTEN("key:read=a key:write=b", "ok a=1 b");
    KEY_GET(&txn, "none");
    READ("key:read=none", "failed 0: key \"none\" doesn't exist");
}

/* All that are denied are named, and nothing is done. */
Test(access_txn, writes_and_checks_that_are_denied_fail_by_themselves) {
    cr_assert(kv_put(&world, "a", "1").yes && kv_put(&world, "t/x", "1").yes);
    KEY_SET(&txn, "ok", "1"), KEY_SET(&txn, "a", "2");
    txn_key(&txn, VERB(CHECK_NOT_EXISTS), "none", NULL, 0, NULL);
    txn_key(&txn, VERB(DELETE_TREE), "t/", NULL, 0, NULL);
    WRITTEN("key:write=ok key:read=a key_prefix:write=t/ key:read=t/deep",
            "failed 1: " DENIED("write", "a") "; 2: " DENIED("read", "none") "; 3: Permission denied: key:write on "
                                                                              "everything below \"t/\" is needed");
    cr_expect_not(kv_get(&world, "ok").found);
    for (Pb__TxnVerb verb = VERB(CHECK_INDEX); verb <= VERB(CHECK_NOT_EXISTS); verb++) {
        txn_key(&txn, verb, "a", NULL, 1, one), KEY_GET(&txn, "a");
        READ("key:read=b", "failed 0: " DENIED("read", "a"));
    }
    KEY_SET(&txn, "a", "2"), txn_key(&txn, VERB(DELETE_TREE), "t/", NULL, 0, NULL);
    WRITTEN("key:write=a key_prefix:write=t/", "ok a");
}

Test(access_txn, a_tree_gives_the_keys_that_may_be_read) {
    cr_assert(kv_put(&world, "t/a", "1").yes && kv_put(&world, "t/b", "2").yes && kv_put(&world, "t/b/c", "3").yes);
    const char *rules = "key_prefix:write= key_prefix:deny=t/b key:read=t/b/c key:deny=u/x";
    txn_key(&txn, VERB(GET_TREE), "t/", NULL, 0, NULL);
    READ(rules, "ok t/a=1 t/b/c=3");
    txn_key(&txn, VERB(GET_TREE), "t/", NULL, 0, NULL), KEY_SET(&txn, "w", "1"), KEY_GET(&txn, "t/b");
    WRITTEN(rules, "ok t/a=1 t/b/c=3 w");
    /* It sees what the transaction itself writes, and hides that as well. */
    KEY_SET(&txn, "t/new", "1"), txn_key(&txn, VERB(GET_TREE), "t/", NULL, 0, NULL);
    WRITTEN("key_prefix:write=t/ key_prefix:deny=t/b", "ok t/new t/a=1 t/new=1");
    txn_key(&txn, VERB(GET_TREE), "", NULL, 0, NULL);
    READ("otherwise:read key_prefix:deny=t/ key:read=t/b", "ok t/b=2 w=1");
    kv_key_list_policy = true;
    txn_key(&txn, VERB(GET_TREE), "t/", NULL, 0, NULL);
    READ("key_prefix:read=t/", "failed 0: " DENIED("list", "t/"));
    kv_key_list_policy = false;
}

Test(access_txn, a_fence_needs_its_lock) {
    uint64_t token = lock_take(&world, "l", one, PB__QUEUE_MODE__QUEUE_EXCLUSIVE).token;
    Pb__TxnOp *op = KEY_SET(&txn, "a", "1");
    op->fence = (char *)"l", op->token = token + 1;
    WRITTEN("key_prefix:write=", "failed 0: Permission denied: lock:read on \"l\" is needed");
    op = KEY_SET(&txn, "a", "1");
    op->fence = (char *)"l", op->token = token;
    WRITTEN("key_prefix:write= lock:read=l", "ok a");
}

/* The fields of an operation and its command come from another process, and may differ. */
Test(access_txn, an_operation_is_its_command) {
    cr_assert(kv_put(&world, "secret", "2").yes);
    Pb__TxnOp *op = KEY_SET(&txn, "secret", "1");
    op->key = message_bytes(slice_text("mine"));
    WRITTEN("key:write=mine", "failed 0: " DENIED("write", "secret"));
    op = KEY_SET(&txn, "mine", "1"); /* its result would be that of the other key */
    op->key = message_bytes(slice_text("secret"));
    WRITTEN("key:write=mine", "ok");
    op = KEY_SET(&txn, "mine", "1");
    op->command.data[0] = (uint8_t)LOCK_DELAY_END;
    WRITTEN("key:write=mine", "failed 0: the operation cannot be done here");
}

/* -- other things ------------------------------------------------------------------------------------------------- */

Test(access_txn, the_catalog) {
    txn_service(&txn, VERB(SET), "n1", "web", 80, 0), txn_check(&txn, VERB(SET), "n1", "c", PB__STATUS__PASSING, 0);
    WRITTEN("otherwise:write", "ok service n1/web:80 check n1/c:passing");
    txn_service(&txn, VERB(GET), "n1", "web", 0, 0), txn_check(&txn, VERB(GET), "n1", "c", 0, 0);
    txn_node(&txn, VERB(GET), "n1", NULL, 0), txn_node(&txn, VERB(GET), "n2", NULL, 0);
    READ("service:read=web node:read=n1", "ok service n1/web:80 check n1/c:passing node n1 127.0.0.1");
    txn_service(&txn, VERB(GET), "n1", "web", 0, 0), txn_check(&txn, VERB(GET), "n1", "c", 0, 0);
    READ("service:read=web node:read=n2", "ok");
    txn_service(&txn, VERB(SET), "n1", "web", 81, 0), txn_check(&txn, VERB(SET), "n1", "c", PB__STATUS__CRITICAL, 0);
    WRITTEN("service:write=web", "failed 1: Permission denied: node:write on \"n1\" is needed");
    txn_service(&txn, VERB(SET), "n1", "web", 81, 0); /* the result has its node */
    WRITTEN("service:write=web", "ok");
    txn_service(&txn, VERB(CAS), "n1", "web", 82, 1); /* whether the index is right is not told */
    WRITTEN("service:write=web", "failed 0: Permission denied: node:read on \"n1\" is needed");
    txn_service(&txn, VERB(CAS), "n1", "web", 82, 1);
    WRITTEN("service:write=web node:read=n1", "failed 0: failed to set service \"web\" on node \"n1\", index is stale");
}

Test(access_txn, sessions_and_fences) {
    txn_fence(&txn, "f", 2, "");
    WRITTEN("", "failed 0: Permission denied: lock:write on \"f\" is needed");
    txn_session_end(&txn, one);
    WRITTEN("session:write=n2", "failed 0: Permission denied: session:write on \"n1\" is needed");
    txn_fence(&txn, "f", 2, ""), txn_session_end(&txn, one);
    WRITTEN("session:write=n1 lock:write=f", "ok");
}

/* -- comparisons -------------------------------------------------------------------------------------------------- */

/* The choice would tell what was compared. */
Test(access_txn, a_comparison_with_something_hidden_denies_all) {
    cr_assert(kv_put(&world, "a", "1").yes);
    for (unsigned reads = 0; reads < 2; reads++)
        for (unsigned may = 0; may < 2; may++) {
            txn.command.conditional = true;
            txn_compare_key(&txn, "a", PB__TXN_FIELD__TXN_EXISTS, PB__TXN_RELATION__TXN_EQUAL, 1, NULL);
            if (reads) KEY_GET(&txn, "b");
            else KEY_SET(&txn, "b", "1");
            const char *rules = may ? "key:write=b key:read=a" : "key:write=b";
            if (reads) READ(rules, may ? "then: ok b=1" : "403");
            else WRITTEN(rules, may ? "then: ok b" : "403");
            if (!reads && !may) cr_assert(kv_put(&world, "b", "1").yes);
        }
    const Pb__TxnThing things[] = {PB__TXN_THING__TXN_LOCK, PB__TXN_THING__TXN_ELECTION, PB__TXN_THING__TXN_NODE};
    for (size_t i = 0; i < ARRAY_COUNT(things); i++)
        for (unsigned may = 0; may < 2; may++) {
            bool node = things[i] == PB__TXN_THING__TXN_NODE;
            txn.command.conditional = true;
            txn_compare_thing(&txn, things[i], node ? "n1" : NULL, node ? NULL : "l",
                              node ? PB__TXN_FIELD__TXN_EXISTS : PB__TXN_FIELD__TXN_HELD, 1);
            READ(may ? "lock:read=l node:read=n1" : "lock:read=m node:read=n2", !may   ? "403"
                                                                                : node ? "then: ok"
                                                                                       : "else: ok");
        }
}

/* The right that is missing for it; "": it may be asked. */
static const char *compare_lacks(const char *rules, Pb__TxnThing thing, const char *node, const char *id) {
    static char text[256];
    struct arena arena = {0};
    struct buffer out = {0};
    struct access *access = access_of(rules);
    struct access_check check = {.access = access, .arena = &arena};
    txn.command.conditional = true;
    txn_compare_thing(&txn, thing, node, id, PB__TXN_FIELD__TXN_EXISTS, 1);
    store_read_done(world.reader);
    if (txn_module.commands[0].may(&check, store_read(world.reader), &txn.command.base) == CO_DENIED)
        access_missing_print(&check.missing, &out);
    store_read_done(world.reader);
    snprintf(text, sizeof text, "%.*s", (int)out.size, out.size ? out.data : "");
    buffer_free(&out);
    access_release(access);
    arena_free(&arena);
    txn_begin(&txn);
    return text;
}

/* Neither who is behind an ID, nor which nodes there are. */
Test(access_txn, a_comparison_that_is_denied_tells_no_name) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
    const ProtobufCMessage *message;
    const Pb__TxnThing things[] = {PB__TXN_THING__TXN_SERVICE, PB__TXN_THING__TXN_CHECK};
    node.name = (char *)"m1", node.id = (char *)"40e4a748-2192-161a-0510-9bf59fe950b5",
    node.address = (char *)"10.0.0.1";
    service.name = (char *)"hidden", service.id = check.service_id = (char *)"x1";
    service.weight_passing = service.weight_warning = 1;
    check.node = node.name, check.check_id = check.name = (char *)"x1";
    command.node = &node, command.service = &service, command.checks = checks, command.n_checks = 1;
    cr_assert(answer_of(&world, CATALOG_REGISTER, &command.base, &message).error == CO_OK);
    for (size_t i = 0; i < ARRAY_COUNT(things); i++) {
        cr_expect(is(compare_lacks("node:read=m1", things[i], "m1", "x1"), "service:read on \"x1\""));
        cr_expect(is(compare_lacks("service:read=hidden", things[i], "m1", "x1"), "node:read on \"m1\""));
        cr_expect(is(compare_lacks("service:read=hidden", things[i], "m1", "none"), "node:read on \"m1\""));
        cr_expect(is(compare_lacks("service:read=hidden", things[i], "none", "x1"), "node:read on \"none\""));
        cr_expect(is(compare_lacks("node:read=m1 service:read=hidden", things[i], "m1", "x1"), ""));
    }
    for (unsigned there = 0; there < 2; there++)
        cr_expect(is(compare_lacks("", PB__TXN_THING__TXN_NODE, there ? "m1" : "m2", NULL),
                     there ? "node:read on \"m1\"" : "node:read on \"m2\""));
    cr_expect(is(compare_lacks("", PB__TXN_THING__TXN_NODE, NULL, node.id),
                 "node:read on \"40e4a748-2192-161a-0510-9bf59fe950b5\""));
}

/* Another process can send any comparison: what it judges is what it compares. */
Test(access_txn, a_forged_comparison_never_holds) {
    const Pb__TxnThing things[] = {PB__TXN_THING__TXN_SESSION, PB__TXN_THING__TXN_FENCE};
    txn_check(&txn, VERB(SET), "n1", "c", PB__STATUS__PASSING, 0);
    WRITTEN("otherwise:write", "ok check n1/c:passing");
    for (size_t i = 0; i < ARRAY_COUNT(things); i++) {
        txn.command.conditional = true;
        txn_compare_thing(&txn, things[i], "n1", "c", PB__TXN_FIELD__TXN_EXISTS, 1);
        READ("", "else: ok");
        txn.command.conditional = true;
        txn_compare_thing(&txn, things[i], NULL, "l", PB__TXN_FIELD__TXN_HELD, 1);
        READ("", "else: ok");
    }
}

/* -- random ------------------------------------------------------------------------------------------------------- */

/* The keys of a transaction that only reads are those that the token may read, in the same order. */
Test(access_txn, random_reads_are_filtered, .timeout = 120) {
    struct known_things known;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        teardown();
        known_open(&known, &world, seed);
        txn_begin(&txn);
        static const char *const prefixes[] = {"", "g", "h/", "i/1/"};
        for (unsigned i = 0; i < 6; i++) {
            const char *prefix = prefixes[rng_below(&known.rng, ARRAY_COUNT(prefixes))];
            if (rng_below(&known.rng, 2)) txn_key(&txn, VERB(GET_TREE), prefix, NULL, 0, NULL);
            else {
                const char *key = known_any(&known, ACCESS_KEY);
                if (kv_get(&world, key).found) KEY_GET(&txn, key);
            }
        }
        struct query_result result = fixture_ask(&world, &query_txn, &txn.command.base);
        const Pb__TxnAnswer *all = (const Pb__TxnAnswer *)message_copy(&known.arena, result.message);
        cr_assert_eq(all->n_errors, 0);
        for (unsigned token = 0; token < 6; token++) {
            struct access *access = known_access(&known);
            struct access_check check;
            struct access_check may = {.access = access, .arena = &known.arena};
            cr_assert_eq(fixture_ask_as(&world, access, &query_txn, &txn.command.base, &result, &check), CO_OK);
            const Pb__TxnAnswer *shown = (const Pb__TxnAnswer *)message_copy(&known.arena, result.message);
            /* the same within a transaction that writes */
            Pb__TxnCommand *marked = (Pb__TxnCommand *)message_copy(&known.arena, &txn.command.base);
            fixture_forget(&world);
            cr_assert_eq(txn_module.commands[0].may(&may, store_read(world.reader), &marked->base), CO_OK);
            store_read_done(world.reader);
            const ProtobufCMessage *written;
            cr_assert(answer_of(&world, TXN_APPLY, &marked->base, &written).yes);
            const Pb__TxnAnswer *applied = (const Pb__TxnAnswer *)written;
            size_t at = 0;
            for (size_t i = 0; i < all->n_results; i++) {
                const Pb__KvEntry *entry = all->results[i]->kv;
                if (!access_allows(access, ACCESS_KEY, message_slice(entry->key), ACCESS_READ)) continue;
                cr_assert(at < shown->n_results && at < applied->n_results, "seed %lu", seed);
                struct slice bytes = message_pack(&known.arena, &entry->base);
                cr_assert(slice_equal(bytes, message_pack(&known.arena, &shown->results[at]->kv->base)));
                cr_assert(slice_equal(bytes, message_pack(&known.arena, &applied->results[at++]->kv->base)));
            }
            cr_assert(at == shown->n_results && at == applied->n_results, "seed %lu", seed);
            access_release(access);
        }
        known_close(&known);
        setup();
    }
}
