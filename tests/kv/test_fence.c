/* Fences: which tokens a resource accepts, what it keeps, and over a restore; keys that are written under a fence; the
 * tokens of keys' locks. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/check.h"
#include "commands.h"
#include "kv/fence/fence.h"
#include "kv/keys/kv_internal.h"
#include "registry/operator.h"

#define EXCLUSIVE PB__QUEUE_MODE__QUEUE_EXCLUSIVE
#define SHARED    PB__QUEUE_MODE__QUEUE_SHARED
#define SET       PB__KV_VERB__KV_SET

static struct fixture world;
static char id[4][UUID_TEXT_SIZE + 1];
static void make_sessions(void) {
    cr_assert_eq(node_register(&world, "n1").error, CO_OK);
    for (unsigned i = 0; i < 4; i++) {
        session_id(i + 1, id[i]);
        cr_assert(session_make(&world, id[i], &(struct session_plan){.node = "n1"}).yes);
    }
}
static void setup(void) {
    fixture_open(&world);
    fixture_found(&world);
    make_sessions();
    for (unsigned i = 0; i < 40; i++) cr_assert(kv_put(&world, "filler", i % 2 ? "a" : "b").yes); /* plain tokens */
}
static void teardown(void) {
    (void)fixture_sum(&world);
    fixture_close(&world);
}

static struct outcome check_by(const char *resource, uint64_t token, const char *lock) {
    Pb__FenceCheckCommand command = PB__FENCE_CHECK_COMMAND__INIT;
    command.resource = (char *)(uintptr_t)resource, command.token = token, command.lock = (char *)(uintptr_t)lock;
    return fixture_apply(&world, FENCE_CHECK, &command.base);
}
static struct outcome check(const char *resource, uint64_t token) { return check_by(resource, token, ""); }

static struct query_result look(const char *resource) {
    Pb__FenceRequest request = PB__FENCE_REQUEST__INIT;
    request.resource = (char *)(uintptr_t)resource;
    return fixture_ask(&world, &query_fence, &request.base);
}

static void expect_highest(const char *resource, uint64_t highest, uint64_t modify_index, unsigned line) {
    struct query_result result = look(resource);
    cr_assert(result.found, "line %u", line);
    const Pb__FenceView *view = (const Pb__FenceView *)result.message;
    cr_expect_str_eq(view->resource, resource, "line %u", line);
    cr_expect(view->highest == highest && view->modify_index == modify_index && result.index == modify_index,
              "line %u: %lu at %lu, index %lu", line, view->highest, view->modify_index, result.index);
}

static bool has(const struct outcome *outcome, const char *text) { return strstr(outcome->text, text) != NULL; }

/* -- /v1/fence: plain tokens -------------------------------------------------------------------------------------- */

Test(fence, the_highest_token_only_rises, .init = setup, .fini = teardown) {
    cr_expect(!look("r").found && look("r").index == 0);
    struct outcome first = check("r", 10);
    cr_expect(first.yes && first.token == 10 && !first.text[0]);
    expect_highest("r", 10, first.index, __LINE__);
    cr_expect(check("r", 10).yes, "the same holder writes again");
    expect_highest("r", 10, first.index, __LINE__); /* and nothing was written */
    struct outcome below = check("r", 9);
    cr_expect(below.error == CO_OK && !below.yes && below.token == 10);
    cr_expect(has(&below, "token 9 is below 10"), "%s", below.text);
    expect_highest("r", 10, first.index, __LINE__);
    struct outcome next = check("r", 30);
    cr_expect(next.yes && next.token == 30);
    expect_highest("r", 30, next.index, __LINE__);
    cr_expect_not(check("r", 10).yes, "what was accepted is not any more");
    cr_expect(check("other", 1).yes, "each resource has its own");
    expect_highest("r", 30, next.index, __LINE__);
    fixture_reopen(&world);
    cr_expect_not(check("r", 29).yes);
}

Test(fence, tokens_that_cannot_be, .init = setup, .fini = teardown) {
    cr_expect_eq(check("r", 0).error, CO_INVALID);
    uint64_t now = machine_index(world.machine);
    struct outcome future = check("r", now + 1); /* its own entry, which is no grant */
    cr_assert_eq(future.index, now + 1);
    cr_expect(future.error == CO_INVALID && has(&future, "never granted"), "%s", future.text);
    cr_expect_eq(check("r", UINT64_MAX).error, CO_INVALID);
    cr_expect_not(look("r").found, "nothing of that counts");
    cr_expect(check("r", machine_index(world.machine)).yes, "the newest entry that there is");
}

static char *name_of(size_t size) {
    static char name[1000];
    memset(name, 'n', sizeof name);
    name[size] = '\0';
    return name;
}

Test(fence, names, .init = setup, .fini = teardown) {
    cr_expect_eq(check("", 1).error, CO_INVALID);
    cr_expect_eq(check(name_of(FENCE_NAME_MAX + 1), 1).error, CO_INVALID);
    cr_expect(!look(name_of(FENCE_NAME_MAX + 1)).found && !look("").found);
    cr_expect(check(name_of(FENCE_NAME_MAX), 1).yes);
    cr_expect(look(name_of(FENCE_NAME_MAX)).found);
    cr_expect_eq(check_by("r", 1, name_of(QUEUE_NAME_MAX + 1)).error, CO_INVALID);
    cr_expect(check("a/b\xff", 1).yes && look("a/b\xff").found && !look("a/b").found);
}

/* -- with a lock -------------------------------------------------------------------------------------------------- */

Test(fence, only_while_the_token_holds_the_lock, .init = setup, .fini = teardown) {
    struct outcome first = lock_take(&world, "l", id[0], EXCLUSIVE);
    cr_assert(first.yes && first.token == first.index);
    cr_assert_not(lock_take(&world, "l", id[1], EXCLUSIVE).yes, "it waits");
    struct outcome accepted = check_by("r", first.token, "l");
    cr_expect(accepted.yes && accepted.token == first.token);
    struct outcome none = check_by("r", first.token - 1, "l");
    cr_expect(!none.yes && none.error == CO_OK && none.token == first.token);
    cr_expect(has(&none, "lock \"l\": it is held with token"), "%s", none.text);
    struct outcome passed = lock_give(&world, "l", id[0]); /* passes on: the token of the next is that index */
    cr_expect_not(check_by("r", first.token, "l").yes, "also where no higher one was seen yet");
    cr_expect(check("r", first.token).yes, "which a fence without lock cannot know");
    cr_expect(check_by("r", passed.index, "l").yes);
    expect_highest("r", passed.index, machine_index(world.machine), __LINE__);
    cr_expect_not(check("r", first.token).yes);
    cr_assert(session_drop(&world, id[1]).yes);
    none = check_by("r", passed.index, "l");
    cr_expect(!none.yes && has(&none, "nobody does"), "%s", none.text);
    cr_expect_not(check_by("r", 5, "never/was").yes);
}

Test(fence, shared_holders_have_tokens_in_any_order, .init = setup, .fini = teardown) {
    uint64_t older = lock_take(&world, "l", id[0], SHARED).token, newer = lock_take(&world, "l", id[1], SHARED).token;
    cr_assert(older && newer > older);
    struct outcome high = check_by("r", newer, "l");
    cr_assert(high.yes);
    struct outcome low = check_by("r", older, "l");
    cr_expect(low.yes && low.token == newer, "it holds the lock as well");
    expect_highest("r", newer, high.index, __LINE__);
    struct outcome none = check_by("r", 5, "l");
    cr_expect(!none.yes && has(&none, "shared by 2"), "%s", none.text);
    cr_assert(lock_give(&world, "l", id[0]).yes);
    cr_expect_not(check_by("r", older, "l").yes);
    cr_expect(check_by("r", newer, "l").yes);
}

/* -- over a restore ----------------------------------------------------------------------------------------------- */

/* Its own copy, as of now, to be restored later. */
static void backup_take(struct buffer *bytes) {
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    uint64_t index, term;
    cr_assert(fd >= 0 && machine_copy(world.machine, fd, &index, &term) == CO_OK);
    off_t size = lseek(fd, 0, SEEK_END);
    buffer_reserve(bytes, (size_t)size);
    cr_assert(pread(fd, bytes->data, (size_t)size, 0) == size);
    bytes->size = (size_t)size;
    close(fd);
}

static uint64_t backup_restore(struct buffer *bytes) {
    static uint8_t restore[OPERATOR_RESTORE_ID] = "0123456789abcde";
    Pb__RestoreChunkCommand chunk = PB__RESTORE_CHUNK_COMMAND__INIT;
    Pb__RestoreEndCommand end = PB__RESTORE_END_COMMAND__INIT;
    chunk.id = end.id = (ProtobufCBinaryData){OPERATOR_RESTORE_ID, restore};
    chunk.data = (ProtobufCBinaryData){bytes->size, (uint8_t *)bytes->data};
    end.size = bytes->size;
    cr_assert(fixture_apply(&world, OPERATOR_RESTORE_CHUNK, &chunk.base).error == CO_OK);
    struct outcome outcome = fixture_apply(&world, OPERATOR_RESTORE_END, &end.base);
    cr_assert_eq(outcome.error, CO_OK, "%s", outcome.text);
    buffer_free(bytes);
    return outcome.index;
}

Test(fence, what_was_accepted_since_a_backup_stays_refused, .init = setup, .fini = teardown) {
    struct buffer backup = {0};
    uint64_t kept = lock_take(&world, "l", id[0], EXCLUSIVE).token;
    cr_assert(check("r", kept).yes);
    backup_take(&backup);
    cr_assert(lock_give(&world, "l", id[0]).yes);
    uint64_t newer = lock_take(&world, "l", id[1], EXCLUSIVE).token;
    cr_assert(check("r", newer).yes && check("since", newer).yes);
    uint64_t restored = backup_restore(&backup);
    cr_assert_gt(restored, newer);
    expect_highest("r", restored, restored, __LINE__);
    struct outcome old = check("r", kept);
    cr_expect(!old.yes && old.token == restored && has(&old, "acquire the lock anew"), "%s", old.text);
    cr_expect(!check("r", newer).yes && !check("since", kept).yes && !check("since", newer).yes);
    cr_expect_not(check_by("r", kept, "l").yes, "it has to acquire the lock of the backup again");
    cr_expect_not(check_by("r", newer, "l").yes);
    cr_expect_not(check("r", kept).yes, "which changes nothing of the others");
    cr_assert(lock_give(&world, "l", id[0]).yes);
    uint64_t anew = lock_take(&world, "l", id[0], EXCLUSIVE).token;
    struct outcome accepted = check("r", anew);
    cr_expect(anew > restored && accepted.yes && accepted.token == anew);
    expect_highest("r", anew, accepted.index, __LINE__);
}

/* -- keys under a fence ------------------------------------------------------------------------------------------- */

static bool is_there(const char *key) { return kv_get(&world, key).found; }
static const Pb__KvEntry *entry(const char *key) {
    struct query_result result = kv_get(&world, key);
    cr_assert(result.found);
    return entry_of(&result);
}

Test(fence, of_keys, .init = setup, .fini = teardown) {
    uint64_t first = lock_take(&world, "l", id[0], EXCLUSIVE).token;
    (void)lock_take(&world, "l", id[1], EXCLUSIVE);
    struct outcome written = kv_fenced(&world, "l", first, SET, "a", "1", 7, NULL);
    cr_assert(written.yes && entry("a")->flags == 7);
    cr_assert(kv_fenced(&world, "l", first, SET, "t/a", "1", 0, NULL).yes);
    uint64_t second = lock_give(&world, "l", id[0]).index;
    static const Pb__KvVerb verbs[] = {SET,
                                       PB__KV_VERB__KV_CAS,
                                       PB__KV_VERB__KV_LOCK,
                                       PB__KV_VERB__KV_UNLOCK,
                                       PB__KV_VERB__KV_DELETE,
                                       PB__KV_VERB__KV_DELETE_CAS,
                                       PB__KV_VERB__KV_DELETE_TREE};
    for (size_t i = 0; i < ARRAY_COUNT(verbs); i++) {
        struct outcome late = kv_fenced(&world, "l", first, verbs[i], "a", "late", written.index, id[2]);
        cr_expect(late.error == CO_PRECONDITION && !late.yes && has(&late, "it is held with token"), "verb %zu: %s", i,
                  late.text);
        cr_expect(bytes_are(entry("a")->value, "1"), "verb %zu", i);
    }
    cr_expect(kv_get(&world, "a").index == written.index && is_there("t/a"));
    cr_expect(kv_fenced(&world, "l", second, PB__KV_VERB__KV_CAS, "a", "2", written.index, NULL).yes);
    cr_expect(kv_fenced(&world, "l", second, PB__KV_VERB__KV_CAS, "a", "3", written.index, NULL).error == CO_OK,
              "the fence holds, cas says no");
    struct outcome taken = kv_fenced(&world, "l", second, PB__KV_VERB__KV_LOCK, "k", "", 0, id[2]);
    cr_expect(taken.yes && taken.token == taken.index);
    cr_expect(kv_fenced(&world, "l", second, PB__KV_VERB__KV_UNLOCK, "k", "", 0, id[2]).yes);
    cr_expect(kv_fenced(&world, "l", second, PB__KV_VERB__KV_DELETE_TREE, "t/", NULL, 0, NULL).yes && !is_there("t/a"));
    cr_expect(kv_fenced(&world, "l", second, PB__KV_VERB__KV_DELETE, "a", NULL, 0, NULL).yes && !is_there("a"));
}

Test(fence, of_keys_that_cannot_be, .init = setup, .fini = teardown) {
    cr_expect_eq(kv_fenced(&world, "", 1, SET, "a", "1", 0, NULL).error, CO_INVALID);
    cr_expect_eq(kv_fenced(&world, name_of(QUEUE_NAME_MAX + 1), 1, SET, "a", "1", 0, NULL).error, CO_INVALID);
    cr_expect_eq(kv_fenced(&world, "l", 0, SET, "a", "1", 0, NULL).error, CO_PRECONDITION);
    cr_expect_eq(kv_fenced(&world, "l", UINT64_MAX, SET, "a", "1", 0, NULL).error, CO_PRECONDITION);
    uint64_t token = lock_take(&world, "l", id[0], EXCLUSIVE).token;
    cr_expect_eq(kv_fenced(&world, "l", token, SET, "", "1", 0, NULL).error, CO_INVALID);
    cr_expect_eq(fixture_apply_bytes(&world, slice_make("\x3f\x01\xff", 3)).error, CO_INVALID);
    cr_expect_not(is_there("a"));
}

/* -- tokens of keys' locks ---------------------------------------------------------------------------------------- */

static uint64_t take(unsigned who, const char *value) {
    struct outcome outcome = kv_acquire(&world, "k", value, id[who]);
    cr_assert(outcome.yes, "%s", outcome.text);
    return outcome.token;
}

Test(key_token, grows_from_holder_to_holder, .init = setup, .fini = teardown) {
    struct outcome first = kv_acquire(&world, "k", "a", id[0]);
    cr_expect(first.yes && first.token == first.index);
    cr_expect_eq(take(0, "a"), first.token);
    cr_expect_eq(take(0, "b"), first.token, "the same holder, another value");
    cr_expect_eq(kv_acquire(&world, "k", "a", id[1]).token, 0, "no");
    cr_assert(kv_put(&world, "k", "plain").yes); /* LockIndex is 0 from here on */
    cr_expect_eq(take(0, "b"), first.token);
    struct outcome given = kv_release(&world, "k", "c", id[0]);
    cr_expect(given.yes && given.token == first.token);
    cr_expect_eq(kv_release(&world, "k", "c", id[0]).token, 0);
    uint64_t second = take(1, "d");
    cr_expect_gt(second, first.token);
    cr_assert(session_drop(&world, id[1]).yes);
    uint64_t third = take(2, "d");
    cr_expect_gt(third, second, "the session before has ended");
    cr_assert(kv_del(&world, "k").yes);
    uint64_t fourth = take(3, "d");
    cr_expect_gt(fourth, third, "the key is a new one");
    cr_expect_eq(entry("k")->lock_index, 1, "LockIndex begins again");
    fixture_reopen(&world);
    cr_expect_eq(take(3, "d"), fourth);
    Pb__KvCommand command = PB__KV_COMMAND__INIT; /* of a program that knows of no tokens */
    command.verb = PB__KV_VERB__KV_LOCK, command.key = (ProtobufCBinaryData){1, (uint8_t *)"k"},
    command.session = id[3];
    struct outcome unasked = fixture_apply(&world, KV_APPLY, &command.base);
    cr_expect(unasked.yes && unasked.token == 0);
}

Test(key_token, grows_over_a_restore, .init = setup, .fini = teardown) {
    struct buffer backup = {0};
    uint64_t first = take(0, "a");
    backup_take(&backup);
    cr_assert(kv_release(&world, "k", "a", id[0]).yes);
    uint64_t second = take(1, "b");
    uint64_t restored = backup_restore(&backup), again = take(0, "a");
    cr_expect(first < second && second < restored && restored < again, "it held it once, and others since");
    cr_expect_eq(entry("k")->lock_index, 1, "it holds it all the same");
    cr_expect_eq(take(0, "b"), again, "from now on it keeps this one");
    cr_assert(kv_release(&world, "k", "a", id[0]).yes);
    cr_expect_gt(take(1, "b"), again);
}

/* -- the record --------------------------------------------------------------------------------------------------- */

Test(key_token, in_the_record) {
    struct arena arena = {0};
    char room[KV_STORE_KEY_MAX], key[700];
    memset(key, 'k', sizeof key);
    session_id(7, id[0]);
    for (unsigned parts = 0; parts < 8; parts++) {
        struct kv_record record = {.flags = 5, .value = slice_text("value")}, again;
        record.key = slice_make(key, parts & 1 ? sizeof key : 3);
        if (parts & 2) record.session = slice_text(id[0]), record.token = UINT64_MAX - 7;
        if (parts & 4) record.lease = slice_text(id[0]);
        struct slice store_key = kv_store_key(record.key, room), bytes = kv_record_encode(&record, &arena);
        cr_assert_eq(kv_record_decode(store_key, bytes, &again), CO_OK);
        cr_expect(again.token == record.token && slice_equal(again.session, record.session) &&
                  slice_equal(again.lease, record.lease) && slice_equal(again.key, record.key) &&
                  slice_is(again.value, "value"));
        for (size_t size = 0; size < bytes.size - 5; size++)
            cr_expect_eq(kv_record_decode(store_key, slice_make(bytes.data, size), &again), CO_CORRUPT);
    }
    struct kv_record record = {.key = slice_text("k"), .session = slice_text(id[0]), .token = 1}, again;
    struct slice bytes = kv_record_encode(&record, &arena);
    char *at = (char *)(uintptr_t)bytes.data;
    at[bytes.size - 8] = 0;
    cr_expect_eq(kv_record_decode(record.key, bytes, &again), CO_CORRUPT, "a token of 0 is none");
    at[bytes.size - 8] = 1, at[1] &= ~1;
    cr_expect_eq(kv_record_decode(record.key, bytes, &again), CO_CORRUPT, "nobody's token");
    arena_free(&arena);
}
