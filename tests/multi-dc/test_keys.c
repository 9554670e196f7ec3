/* Rules of copied keys: what is refused, what a page and changes do, what the source tells; and names of other regions. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/message.h"
#include "keys_world.h"
#include "kv/barrier/barrier.h"
#include "kv/hazard/hazard.h"
#include "kv/keys/kv.h"
#include "kv/lock/lock.h"
#include "kv/phaser/phaser.h"
#include "kv/quota/quota.h"
#include "kv/session/session.h"
#include "kv/txn/txn.h"
#include "multi-dc/region.h"
#include "registry/catalog.h"

static struct fixture f;
static void setup(void) {
    fixture_open(&f);
    fixture_found(&f);
    region_becomes_known(&f, "us");
}
static void teardown(void) { fixture_close(&f); }

static char *text(const char *words) { return (char *)(uintptr_t)words; }

static struct outcome rule(const char *prefix, const char *region, bool replace) {
    Pb__KeysSetCommand command = PB__KEYS_SET_COMMAND__INIT;
    command.prefix = message_bytes(slice_text(prefix)), command.region = text(region), command.replace = replace;
    return fixture_apply(&f, KEYS_SET, &command.base);
}

static struct outcome no_rule(const char *prefix) {
    Pb__KeysUnsetCommand command = PB__KEYS_UNSET_COMMAND__INIT;
    command.prefix = message_bytes(slice_text(prefix));
    return fixture_apply(&f, KEYS_UNSET, &command.base);
}

static const Pb__KeysRule *only(void) {
    Pb__KeysRulesRequest request = PB__KEYS_RULES_REQUEST__INIT;
    const Pb__KeysRulesResult *rules =
        (const Pb__KeysRulesResult *)fixture_ask(&f, &query_keys_rules, &request.base).message;
    cr_assert_eq(rules->n_rules, 1);
    return rules->rules[0];
}

static const char *value(const char *key) {
    static char out[64];
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    request.key = message_bytes(slice_text(key));
    struct query_result result = fixture_ask(&f, &query_kv_get, &request.base);
    if (!result.found) return NULL;
    const Pb__KvEntry *entry = (const Pb__KvEntry *)result.message;
    snprintf(out, sizeof out, "%.*s%s", (int)entry->value.len, (const char *)entry->value.data,
             entry->session[0] ? " held" : "");
    return out;
}

static uint64_t modified(const char *key) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    request.key = message_bytes(slice_text(key));
    return fixture_ask(&f, &query_kv_get, &request.base).index;
}

static struct outcome verb(Pb__KvVerb which, const char *key, const char *session) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = which, command.key = message_bytes(slice_text(key)), command.session = text(session);
    command.value = message_bytes(slice_text("x"));
    return fixture_apply(&f, KV_APPLY, &command.base);
}

/* -- steps -------------------------------------------------------------------------------------------------------- */
struct step {
    uint64_t to, cluster, restored, revision; /* 0 of the last two: 7; that of the rule */
    const char *entries[8];                   /* "p/a=1"; without '=' it is the same */
    const char *removed[8];
    bool page, begin, last;
    const char *upto;
};

static struct outcome take(struct step step) {
    Pb__KeysTakeCommand command = PB__KEYS_TAKE_COMMAND__INIT;
    Pb__CatalogAt to = PB__CATALOG_AT__INIT;
    Pb__KeysEntry entries[8], *pointers[8];
    ProtobufCBinaryData removed[8];
    to.cluster_id = step.cluster ? step.cluster : 7, to.restored = step.restored, to.index = step.to;
    command.prefix = message_bytes(slice_text("p/")), command.to = &to;
    command.revision = step.revision ? step.revision : only()->revision;
    fixture_forget(&f);
    command.page = step.page, command.begin = step.begin, command.last = step.last;
    command.entries = pointers, command.removed = removed;
    for (; command.n_entries < 8 && step.entries[command.n_entries]; command.n_entries++) {
        const char *words = step.entries[command.n_entries], *value_at = strchr(words, '=');
        Pb__KeysEntry *entry = pointers[command.n_entries] = &entries[command.n_entries];
        pb__keys_entry__init(entry);
        entry->key = message_bytes(slice_make(words, value_at ? (size_t)(value_at - words) : strlen(words)));
        entry->same = !value_at;
        if (value_at) entry->value = message_bytes(slice_text(value_at + 1));
    }
    for (; command.n_removed < 8 && step.removed[command.n_removed]; command.n_removed++)
        removed[command.n_removed] = message_bytes(slice_text(step.removed[command.n_removed]));
    if (step.upto) command.upto = message_bytes(slice_text(step.upto));
    return fixture_apply(&f, KEYS_TAKE, &command.base);
}
#define TAKE(...) take((struct step){__VA_ARGS__})

Test(keys, rules_that_make_no_sense_are_refused, .init = setup, .fini = teardown) {
    char prefix[300] = "";
    memset(prefix, 'x', sizeof prefix - 1);
    cr_expect_eq(rule("", "us", false).error, CO_INVALID);
    cr_expect_eq(rule(prefix, "us", false).error, CO_INVALID);
    cr_expect_eq(rule("p/", "here", false).error, CO_INVALID);
    cr_expect_eq(rule("p/", "", false).error, CO_INVALID);
    (void)key_put(&f, "p/a", "1");
    cr_expect_eq(rule("p/", "us", false).error, CO_CONFLICT, "keys are here");
    cr_expect(rule("p/", "us", true).yes);
    uint64_t revision = only()->revision;
    cr_expect(rule("p/", "us", false).yes && only()->revision == revision, "it is there already");
    cr_expect_eq(rule("p", "us", true).error, CO_CONFLICT);
    cr_expect_eq(rule("p/sub", "us", true).error, CO_CONFLICT);
    cr_expect_eq(no_rule("p").error, CO_NOTFOUND);
    cr_expect(no_rule("p/").yes && strcmp(value("p/a"), "1") == 0, "the keys stay");
    for (int i = 0; i < KEYS_RULES_MAX; i++) {
        snprintf(prefix, sizeof prefix, "r%02d/", i);
        cr_expect(rule(prefix, "us", false).yes);
    }
    cr_expect_eq(rule("more/", "us", false).error, CO_TOOLARGE);
}

Test(keys, nobody_else_writes_below_the_prefix, .init = setup, .fini = teardown) {
    static const char line[] = "keys below \"p/\" are copied from region us: write them there, or with ?dc=us";
    cr_expect(rule("p/", "us", false).yes);
    for (int i = 0; i < PB__KV_VERB__KV_DELETE_TREE; i++) {
        struct outcome outcome = verb((Pb__KvVerb)i, "p/a", "");
        cr_expect(outcome.error == CO_DENIED && strcmp(outcome.text, line) == 0, "verb %d: %s", i, outcome.text);
    }
    cr_expect_eq(verb(PB__KV_VERB__KV_DELETE_TREE, "", "").error, CO_DENIED);
    cr_expect_eq(verb(PB__KV_VERB__KV_DELETE_TREE, "p/sub", "").error, CO_DENIED);
    cr_expect(verb(PB__KV_VERB__KV_DELETE_TREE, "q", "").yes && verb(PB__KV_VERB__KV_SET, "p", "").yes);
    cr_expect(no_rule("p/").yes && verb(PB__KV_VERB__KV_SET, "p/a", "").yes);
}

static struct outcome put(const char *key, const char *words) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.key = message_bytes(slice_text(key)), command.value = message_bytes(slice_text(words));
    return fixture_apply(&f, KV_APPLY, &command.base);
}

/* One key that may not be written, and none is restored; a dry run says so, too. */
Test(keys, they_are_not_restored_and_no_others_with_them, .init = setup, .fini = teardown) {
    Pb__KvRestoreCommand restore = PB__KV_RESTORE_COMMAND__INIT;
    Pb__KvMoment then = PB__KV_MOMENT__INIT;
    cr_assert(put("a/1", "x").yes && put("a/copied/2", "y").yes);
    then.index = machine_index(f.machine);
    cr_assert(put("a/1", "X").yes && put("a/copied/2", "Y").yes);
    cr_assert(rule("a/copied/", "us", true).yes);
    restore.at = &then, restore.recurse = true;
    restore.key = message_bytes(slice_text("a/"));
    for (int dry_run = 1; dry_run >= 0; dry_run--) {
        restore.dry_run = dry_run;
        struct outcome outcome = fixture_apply(&f, KV_RESTORE, &restore.base);
        cr_assert_eq(outcome.error, CO_DENIED);
        cr_assert_str_eq(outcome.text,
                         "a/copied/2: keys below \"a/copied/\" are copied from region us: write them there, or "
                         "with ?dc=us; nothing was restored");
        cr_assert_str_eq(value("a/1"), "X");
    }
    restore.key = message_bytes(slice_text("a/1"));
    cr_assert(fixture_apply(&f, KV_RESTORE, &restore.base).yes);
    cr_assert_str_eq(value("a/1"), "x");
}

Test(keys, pages_replace_what_is_here, .init = setup, .fini = teardown) {
    const char *gone[] = {"p/a", "p/c", "p/z"};
    for (size_t i = 0; i < 3; i++) (void)key_put(&f, gone[i], "ours");
    (void)key_put(&f, "q", "ours");
    cr_expect(rule("p/", "us", true).yes);
    cr_expect_eq(TAKE(.to = 9).error, CO_CONFLICT, "changes of nothing");
    cr_expect_eq(TAKE(.to = 9, .page = true).error, CO_CONFLICT, "the second page of no listing");
    cr_expect(TAKE(.to = 9, .page = true, .begin = true, .entries = {"p/a=1", "p/b=2"}, .upto = "p/b").yes);
    cr_expect(!keys_whole(only()) && strcmp(value("p/a"), "1") == 0 && value("p/c") != NULL);
    cr_expect_eq(TAKE(.to = 12, .cluster = 8, .page = true, .last = true).error, CO_CONFLICT, "another life");
    struct outcome last = TAKE(.to = 12, .page = true, .last = true, .entries = {"p/d=4"});
    cr_expect(last.yes && only()->revision == last.index);
    cr_expect(!value("p/c") && !value("p/z") && strcmp(value("p/d"), "4") == 0 && value("q") != NULL);
    cr_expect(only()->at->index == 9 && !keys_whole(only()) && only()->keys == 3, "until the changes are at 12");
    cr_expect_eq(TAKE(.to = 12, .revision = last.index - 1).error, CO_CONFLICT, "it comes late");
    cr_expect_eq(TAKE(.to = 12, .restored = 3).error, CO_CONFLICT, "another life");
    cr_expect(TAKE(.to = 12, .entries = {"p/b=3", "p/e=5"}, .removed = {"p/a", "p/never"}).yes);
    cr_expect(keys_whole(only()) && only()->keys == 3 && !value("p/a") && strcmp(value("p/b"), "3") == 0);
    cr_expect_eq(TAKE(.to = 11).error, CO_CONFLICT, "it would go back");
    cr_expect_eq(TAKE(.to = 13, .entries = {"q=1"}).error, CO_INVALID, "not below the prefix");
    uint64_t index = modified("p/b");
    cr_expect(TAKE(.to = 20, .page = true, .begin = true, .last = true, .entries = {"p/b=3", "p/d"}).yes);
    cr_expect(!value("p/e") && strcmp(value("p/d"), "4") == 0 && only()->keys == 2);
    cr_expect_eq(modified("p/b"), index, "what is the same wakes nobody");
}

Test(keys, a_page_takes_away_some_at_a_time, .init = setup, .fini = teardown) {
    char key[24];
    size_t count, steps = 1;
    for (int i = 0; i < 2500; i++) {
        snprintf(key, sizeof key, "p/%04d", i);
        (void)key_put(&f, key, "ours");
    }
    cr_expect(rule("p/", "us", true).yes);
    struct outcome step = TAKE(.to = 9, .page = true, .begin = true, .last = true, .entries = {"p/0000=1", "p/2400=2"});
    for (; !step.error && !step.yes; steps++)
        step = TAKE(.to = 9, .page = true, .last = true, .entries = {"p/0000=1", "p/2400=2"});
    cr_expect_eq(steps, 2500 / KEYS_STEP_ROWS + 1);
    (void)keys_hash(&f, "p/", &count);
    cr_expect(count == 2 && only()->keys == 2 && keys_whole(only()), "%zu", count);
}

Test(keys, locks_and_leases_are_not_copied, .init = setup, .fini = teardown) {
    static char id[] = "11111111-2222-3333-4444-555555555555";
    Pb__SessionCreateCommand create = PB__SESSION_CREATE_COMMAND__INIT;
    Pb__Session session = PB__SESSION__INIT;
    Pb__RegisterCommand node = PB__REGISTER_COMMAND__INIT;
    Pb__Node of = PB__NODE__INIT;
    of.name = text("n"), of.address = text("10.0.0.1"), node.node = &of;
    cr_assert(fixture_apply(&f, CATALOG_REGISTER, &node.base).error == CO_OK);
    session.id = id, session.node = text("n"), session.delete_behavior = true;
    create.session = &session;
    struct outcome made = fixture_apply(&f, SESSION_CREATE, &create.base);
    cr_assert_eq(made.error, CO_OK, "%s", made.text);
    cr_expect(verb(PB__KV_VERB__KV_LOCK, "p/a", id).yes);
    cr_expect_str_eq(value("p/a"), "x held");
    cr_expect(rule("p/", "us", true).yes);
    cr_expect(TAKE(.to = 9, .page = true, .begin = true, .last = true, .entries = {"p/a=1"}).yes);
    cr_expect_str_eq(value("p/a"), "1");
    Pb__SessionDestroyCommand destroy = PB__SESSION_DESTROY_COMMAND__INIT;
    destroy.id = id;
    cr_expect_eq(fixture_apply(&f, SESSION_DESTROY, &destroy.base).error, CO_OK);
    cr_expect_str_eq(value("p/a"), "1", "its session's end is no matter of it any more");
}

/* -- what the source tells ---------------------------------------------------------------------------------------- */
static const Pb__KeysChangesResult *told(uint64_t from, uint32_t most, uint64_t *index) {
    Pb__KeysChangesRequest request = PB__KEYS_CHANGES_REQUEST__INIT;
    static Pb__CatalogAt at;
    request.prefix = message_bytes(slice_text("p/")), request.rows_most = most;
    const Pb__KeysChangesResult *now =
        (const Pb__KeysChangesResult *)fixture_ask(&f, &query_keys_changes, &request.base).message;
    at = *now->to, at.index = from;
    if (from) request.from = &at;
    struct query_result result = fixture_ask(&f, &query_keys_changes, &request.base);
    *index = result.index;
    return (const Pb__KeysChangesResult *)result.message;
}

Test(keys, entries_of_the_source_are_never_divided, .init = setup, .fini = teardown) {
    uint64_t index, first = key_put(&f, "p/a", "1").index, second = key_put(&f, "p/b", "1").index;
    (void)key_put(&f, "p/a", "2");
    const Pb__KeysChangesResult *answer = told(first - 1, 1, &index);
    cr_expect(!answer->page && answer->more && answer->to->index == second - 1 && answer->n_entries == 1);
    cr_expect(memcmp(answer->entries[0]->value.data, "1", 1) == 0, "as it was then");
    cr_expect(verb(PB__KV_VERB__KV_DELETE_TREE, "p/", "").yes);
    answer = told(index, 1, &index);
    cr_expect(answer->page && answer->last && answer->n_entries == 0, "both went in one entry: a listing");
    answer = told(first - 1, 0, &index);
    cr_expect(!answer->page && !answer->more && answer->n_removed == 2 && answer->n_entries == 0);
    uint64_t last = index;
    (void)key_put(&f, "q", "1");
    answer = told(last, 0, &index);
    cr_expect(index == last && answer->to->index > last && !answer->n_removed, "who waits is not woken");
}

Test(keys, answers_have_a_bound, .init = setup, .fini = teardown) {
    static char big[KEYS_BYTES_MOST / 3 - 8];
    char key[24];
    uint64_t index, first = 0;
    memset(big, 'x', sizeof big - 1);
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "p/%d", i);
        uint64_t at = key_put(&f, key, big).index;
        if (!first) first = at;
    }
    const Pb__KeysChangesResult *answer = told(0, 0, &index);
    cr_expect(answer->page && !answer->last && answer->n_entries == 3, "%zu", answer->n_entries);
    answer = told(first - 1, 0, &index);
    cr_expect(!answer->page && answer->more && answer->n_entries == 3 && answer->to->index == first + 2);
}

/* -- names of other regions ----------------------------------------------------------------------------------------- */
static struct outcome lock(const char *name) {
    static Pb__Session session;
    static unsigned number;
    char id[40];
    snprintf(id, sizeof id, "11111111-2222-3333-4444-%012u", ++number);
    Pb__QueueAcquireCommand command = PB__QUEUE_ACQUIRE_COMMAND__INIT;
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    pb__session__init(&session);
    session.id = id, session.ttl_ns = 10000000000;
    use.create = &session, command.session = &use, command.name = text(name);
    return fixture_apply(&f, LOCK_ACQUIRE, &command.base);
}

Test(keys, names_of_another_region_are_refused, .init = setup, .fini = teardown) {
    struct outcome outcome = lock("db@us");
    cr_expect_eq(outcome.error, CO_DENIED);
    cr_expect_str_eq(outcome.text, "lock \"db@us\" belongs to region us: ask there, or with ?dc=us");
    Pb__BarrierEnterCommand enter = PB__BARRIER_ENTER_COMMAND__INIT;
    enter.name = text("b@us"), enter.parties = 1;
    cr_expect_eq(fixture_apply(&f, BARRIER_ENTER, &enter.base).error, CO_DENIED);
    Pb__PhaserRegisterCommand phaser = PB__PHASER_REGISTER_COMMAND__INIT;
    phaser.name = text("p"), phaser.parent = text("p@us");
    cr_expect_eq(fixture_apply(&f, PHASER_REGISTER, &phaser.base).error, CO_DENIED);
    Pb__HazardRetireCommand retire = PB__HAZARD_RETIRE_COMMAND__INIT;
    retire.object = text("h@us");
    cr_expect_eq(fixture_apply(&f, HAZARD_RETIRE, &retire.base).error, CO_DENIED);
    const char *ours[] = {"db@eu", "db@", "@", "us", "db@us@x", "db@us "};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) cr_expect_eq(lock(ours[i]).error, CO_OK, "%s", ours[i]);
    Pb__RegionRemoveCommand gone = PB__REGION_REMOVE_COMMAND__INIT;
    gone.name = text("us");
    cr_expect(fixture_apply(&f, REGION_REMOVE, &gone.base).yes);
    cr_expect_eq(lock("db@us").error, CO_OK, "a region that was removed has no names");
}
