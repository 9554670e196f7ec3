/* Keys: what each command answers and leaves behind, as a real Consul 1.8.7 does it; exact indexes; long keys. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "commands.h"
#include "kv/keys/kv_record.h"

static struct fixture world;
static char sessions[3][UUID_TEXT_SIZE + 1];
static void setup(void) {
    fixture_open(&world);
    cr_assert_eq(node_register(&world, "n1").error, CO_OK);
    for (unsigned i = 0; i < 3; i++) {
        session_id(i + 1, sessions[i]);
        cr_assert(session_make(&world, sessions[i], &(struct session_plan){.node = "n1"}).yes);
    }
}
static void teardown(void) { fixture_close(&world); }

/* Entry as the API shows it; `session` is a number of `sessions`, 0: none. */
static void expect_entry(const char *key, const char *value, uint64_t flags, uint64_t lock_index, unsigned session,
                         uint64_t create, uint64_t modify, unsigned line) {
    struct query_result result = kv_get(&world, key);
    cr_assert(result.found, "line %u", line);
    const Pb__KvEntry *e = entry_of(&result);
    cr_expect(bytes_are(e->key, key) && bytes_are(e->value, value), "line %u: value %.*s", line, (int)e->value.len,
              e->value.data);
    cr_expect_eq(e->flags, flags, "line %u", line);
    cr_expect_eq(e->lock_index, lock_index, "line %u: LockIndex %lu", line, e->lock_index);
    cr_expect_str_eq(e->session, session ? sessions[session - 1] : "", "line %u", line);
    cr_expect_eq(e->create_index, create, "line %u", line);
    cr_expect_eq(e->modify_index, modify, "line %u: ModifyIndex %lu, not %lu", line, e->modify_index, modify);
    cr_expect_eq(result.index, modify, "line %u", line);
}

/* A story of one key: each row is a command, its answer, and the entry after it. */
struct row {
    Pb__KvVerb verb;
    const char *value;
    uint64_t number; /* flags; cas: 0 absent, 1 the present ModifyIndex, 2 another */
    unsigned session;
    bool yes, changes;
    uint64_t lock_index; /* afterwards */
    unsigned holder;
    bool gone; /* afterwards there is no such key */
};
#define SET        PB__KV_VERB__KV_SET
#define CAS        PB__KV_VERB__KV_CAS
#define LOCK       PB__KV_VERB__KV_LOCK
#define UNLOCK     PB__KV_VERB__KV_UNLOCK
#define DELETE     PB__KV_VERB__KV_DELETE
#define DELETE_CAS PB__KV_VERB__KV_DELETE_CAS

static const struct row story[] = {
    {CAS, "x", 2, 0, false, false, 0, 0, true}, /* no key: only cas=0 makes one */
    {CAS, "a", 0, 0, true, true, 0, 0, false},
    {CAS, "b", 0, 0, false, false, 0, 0, false},
    {SET, "a", 0, 0, true, false, 0, 0, false}, /* the same again changes no index */
    {SET, "a", 7, 0, true, true, 0, 0, false},  /* flags alone do */
    {CAS, "b", 2, 0, false, false, 0, 0, false},
    {CAS, "b", 1, 0, true, true, 0, 0, false},
    {SET, "b", UINT64_MAX, 0, true, true, 0, 0, false},
    {LOCK, "l", 0, 1, true, true, 1, 1, false},
    {LOCK, "l", 0, 1, true, false, 1, 1, false},  /* again, same value: nothing changes */
    {LOCK, "m", 3, 1, true, true, 1, 1, false},   /* again, other value: LockIndex stays */
    {LOCK, "n", 0, 2, false, false, 1, 1, false}, /* held by another */
    {UNLOCK, "n", 0, 2, false, false, 1, 1, false},
    {SET, "p", 0, 0, true, true, 0, 1, false}, /* plain write: keeps Session, LockIndex 0 */
    {SET, "p", 0, 0, true, false, 0, 1, false},
    {LOCK, "p", 0, 1, true, false, 0, 1, false}, /* the holder again: LockIndex stays 0 */
    {UNLOCK, "u", 0, 1, true, true, 0, 0, false},
    {UNLOCK, "u", 0, 1, false, false, 0, 0, false},
    {LOCK, "u", 0, 2, true, true, 1, 2, false},
    {UNLOCK, "u", 0, 2, true, true, 1, 0, false}, /* LockIndex stays over a release */
    {LOCK, "u", 0, 3, true, true, 2, 3, false},   /* and rises with the next holder */
    {CAS, "u", 1, 0, true, true, 0, 3, false},    /* cas writes like a plain one, same value or not */
    {DELETE_CAS, NULL, 2, 0, false, false, 0, 3, false},
    {DELETE_CAS, NULL, 0, 0, false, false, 0, 3, false},
    {DELETE, NULL, 0, 0, true, true, 0, 0, true}, /* a lock does not protect from deletion */
    {DELETE, NULL, 0, 0, true, false, 0, 0, true},
    {DELETE_CAS, NULL, 2, 0, true, false, 0, 0, true},
    {UNLOCK, "u", 0, 3, false, false, 0, 0, true},
    {LOCK, "v", 0, 1, true, true, 1, 1, false}, /* LockIndex begins anew with the key */
    {DELETE_CAS, NULL, 1, 0, true, true, 0, 0, true},
};

Test(kv, story_of_a_key, .init = setup, .fini = teardown) {
    uint64_t create = 0, modify = 0, flags = 0;
    const char *value = "";
    for (unsigned i = 0; i < ARRAY_COUNT(story); i++) {
        const struct row *row = &story[i];
        bool existed = kv_get(&world, "story").found;
        uint64_t number = row->number;
        if (row->verb == CAS || row->verb == DELETE_CAS)
            number = number == 1 ? modify : number == 2 ? modify + 1000 : 0;
        struct outcome outcome =
            kv_do(&world, row->verb, "story", row->value, number, row->session ? sessions[row->session - 1] : NULL);
        cr_assert_eq(outcome.error, CO_OK, "row %u: %s", i, outcome.text);
        cr_assert_eq(outcome.yes, row->yes, "row %u", i);
        if (row->changes) {
            if (!existed) create = outcome.index;
            modify = outcome.index;
            value = row->value;
            flags = row->verb == CAS ? 0 : row->number;
        }
        if (!row->gone) expect_entry("story", value, flags, row->lock_index, row->holder, create, modify, i);
        else cr_assert(!kv_get(&world, "story").found, "row %u", i);
        cr_assert_eq(kv_get(&world, "story").index, modify, "row %u", i); /* a removal counts as a change */
    }
}

Test(kv, refused, .init = setup, .fini = teardown) {
    char nobody[UUID_TEXT_SIZE + 1], long_key[KV_KEY_MAX + 2];
    session_id(99, nobody);
    struct outcome outcome = kv_acquire(&world, "k", "v", nobody);
    cr_expect_eq(outcome.error, CO_INVALID);
    cr_expect(strncmp(outcome.text, "invalid session \"", 17) == 0, "%s", outcome.text);
    cr_expect_eq(kv_acquire(&world, "k", "v", "not a uuid").error, CO_INVALID);
    cr_expect_str_eq(kv_acquire(&world, "k", "v", NULL).text, "missing session");
    cr_expect_str_eq(kv_release(&world, "k", "v", NULL).text, "missing session");
    cr_expect_eq(kv_put(&world, "", "v").error, CO_INVALID);
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = '\0';
    cr_expect_eq(kv_put(&world, long_key, "v").error, CO_TOOLARGE);
    cr_expect_not(kv_get(&world, long_key).found);
    long_key[KV_KEY_MAX] = '\0';
    cr_expect(kv_put(&world, long_key, "v").yes);
    cr_expect_eq(fixture_apply_bytes(&world, SLICE_LITERAL("\x20\x01\x12\x7f"
                                                           "cut"))
                     .error,
                 CO_INVALID);
    cr_expect_eq(fixture_apply_bytes(&world, SLICE_LITERAL("\x20\x01\x12\x03"
                                                           "a\0b"))
                     .error,
                 CO_INVALID);
    cr_expect_eq(fixture_apply_bytes(&world, SLICE_LITERAL("\x21\x01\xff")).error, CO_INVALID);
    cr_expect_eq(fixture_apply_bytes(&world, SLICE_LITERAL("\x22\x01\xff")).error, CO_INVALID);
    cr_expect_eq(fixture_apply_bytes(&world, SLICE_LITERAL("\x23\x01\xff")).error, CO_INVALID);
    struct query_result list = kv_list(&world, "");
    cr_expect_eq(((const Pb__KvEntriesResult *)list.message)->n_entries, 1);
}

Test(kv, a_verb_of_a_newer_version_stops_the_applier, .init = setup, .fini = teardown) {
    struct slice command = SLICE_LITERAL("\x20\x01\x08\x63\x12\x01k");
    struct machine_input input = {
        .index = machine_applied(world.machine) + 1, .term = 1, .command = command, .is_command = true};
    uint64_t stopped_at = 0;
    cr_expect_eq(machine_apply(world.machine, &input, 1, NULL, NULL, &stopped_at), CO_UNSUPPORTED);
    cr_expect_eq(stopped_at, input.index);
}

/* -- below prefixes ----------------------------------------------------------------------------------------------- */

static void expect_keys(const char *prefix, const char *separator, const char *expected, unsigned line) {
    struct query_result result = kv_keys(&world, prefix, separator);
    const Pb__KvKeysResult *keys = (const Pb__KvKeysResult *)result.message;
    struct buffer text = {0};
    for (size_t i = 0; i < keys->n_keys; i++) buffer_printf(&text, "%.*s ", (int)keys->keys[i].len, keys->keys[i].data);
    buffer_append_byte(&text, '\0');
    cr_expect_str_eq(text.data, expected, "line %u: %s", line, text.data);
    cr_expect_eq(result.found, expected[0] != '\0', "line %u", line);
    buffer_free(&text);
}

Test(kv, keys_and_separators, .init = setup, .fini = teardown) {
    static const char *const keys[] = {"x/z", "b", "x/y", "a", "x", "x/y/1", "x/y/2", "xy", "x//", "\xc3\xa4", "x/"};
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) cr_assert(kv_put(&world, keys[i], "1").yes);
    expect_keys("", "", "a b x x/ x// x/y x/y/1 x/y/2 x/z xy \xc3\xa4 ", __LINE__);
    expect_keys("", "/", "a b x x/ xy \xc3\xa4 ", __LINE__);
    expect_keys("x", "/", "x x/ xy ", __LINE__);
    expect_keys("x/", "/", "x/ x// x/y x/y/ x/z ", __LINE__);
    expect_keys("x/", "", "x/ x// x/y x/y/1 x/y/2 x/z ", __LINE__);
    expect_keys("x/y", "/", "x/y x/y/ ", __LINE__);
    expect_keys("", "/y", "a b x x/ x// x/y x/z xy \xc3\xa4 ", __LINE__);
    expect_keys("c", "/", "", __LINE__);
    cr_assert(kv_del_tree(&world, "x/").yes);
    expect_keys("", "", "a b x xy \xc3\xa4 ", __LINE__);
    cr_assert(kv_del_tree(&world, "").yes);
    expect_keys("", "", "", __LINE__);
}

Test(kv, indexes_are_exact, .init = setup, .fini = teardown) {
    cr_expect_eq(kv_get(&world, "a/1").index, 0);
    cr_expect_eq(kv_list(&world, "a/").index, 0);
    uint64_t first = kv_put(&world, "a/1", "1").index, second = kv_put(&world, "a/2", "1").index;
    cr_expect_eq(kv_get(&world, "a/1").index, first);
    cr_expect_eq(kv_list(&world, "a/").index, second);
    uint64_t other = kv_put(&world, "b/1", "1").index;
    cr_expect_eq(kv_list(&world, "a/").index, second);
    cr_expect_eq(kv_keys(&world, "a/", "/").index, second);
    cr_expect_eq(kv_list(&world, "").index, other);
    uint64_t removed = kv_del(&world, "a/1").index;
    cr_expect_eq(kv_get(&world, "a/1").index, removed);
    cr_expect_eq(kv_get(&world, "a/2").index, second);
    cr_expect_eq(kv_list(&world, "a/").index, removed);
    cr_expect_eq(kv_list(&world, "a/2").index, second);
    cr_expect_eq(kv_list(&world, "b").index, other);
    (void)kv_del(&world, "a/1"); /* nothing there: nothing changes */
    cr_expect_eq(kv_get(&world, "a/1").index, removed);
    uint64_t tree = kv_del_tree(&world, "a").index;
    cr_expect_eq(kv_list(&world, "a/").index, tree);
    cr_expect_not(kv_list(&world, "a/").found);
    cr_expect_eq(kv_get(&world, "a/1").index, removed);
    cr_expect_eq(kv_get(&world, "a/2").index, tree);
    cr_expect_eq(kv_list(&world, "b").index, other);
    uint64_t again = kv_put(&world, "a/1", "2").index;
    cr_expect_eq(kv_get(&world, "a/1").index, again);
    struct query_result result = kv_get(&world, "a/1");
    cr_expect_eq(entry_of(&result)->create_index, again);
}

/* -- watches ------------------------------------------------------------------------------------------------------ */

struct watcher {
    struct watch_waiter waiter;
    unsigned fired;
};
static void on_fire(struct watch_waiter *waiter) { CONTAINER_OF(waiter, struct watcher, waiter)->fired++; }

/* Did the last command wake it? */
static bool woken(struct watcher *watcher) {
    bool fired = watcher->fired != 0;
    watcher->fired = 0;
    watch_arm(&watcher->waiter);
    return fired;
}

Test(kv, only_those_concerned_wake_up, .init = setup, .fini = teardown) {
    struct watch_table *table = machine_watches(world.machine);
    struct watcher key = {.fired = 0}, prefix = {.fired = 0}, missing = {.fired = 0};
    watch_add(table, &key.waiter, (struct watch_key){SPACE_KEY, SLICE_LITERAL("w/a")}, on_fire);
    watch_add(table, &prefix.waiter, (struct watch_key){SPACE_KEY | WATCH_PREFIX_BIT, SLICE_LITERAL("w/")}, on_fire);
    watch_add(table, &missing.waiter, (struct watch_key){SPACE_KEY, SLICE_LITERAL("w/c")}, on_fire);
    (void)kv_put(&world, "w/a", "1");
    cr_expect(woken(&key) && woken(&prefix) && !woken(&missing));
    (void)kv_put(&world, "w/a", "1");
    cr_expect(!woken(&key) && !woken(&prefix) && !woken(&missing), "nothing changed");
    (void)kv_put(&world, "w/b", "1");
    cr_expect(!woken(&key) && woken(&prefix) && !woken(&missing));
    (void)kv_put(&world, "v", "1");
    (void)kv_del(&world, "w/c");
    (void)kv_cas(&world, "w/a", "2", 0);
    (void)kv_release(&world, "w/a", "2", sessions[0]);
    cr_expect(!woken(&key) && !woken(&prefix) && !woken(&missing), "nothing changed");
    (void)kv_acquire(&world, "w/a", "1", sessions[0]);
    cr_expect(woken(&key) && woken(&prefix) && !woken(&missing));
    (void)session_drop(&world, sessions[0]);
    cr_expect(woken(&key) && woken(&prefix) && !woken(&missing), "a session's end releases");
    (void)kv_del_tree(&world, "w/a");
    cr_expect(woken(&key) && woken(&prefix) && !woken(&missing));
    watch_remove(table, &key.waiter);
    watch_remove(table, &prefix.waiter);
    watch_remove(table, &missing.waiter);
}

/* -- long keys ---------------------------------------------------------------------------------------------------- */

/* `size` bytes: a common beginning, then the number, then more of the same. */
static char *long_key(size_t size, unsigned number) {
    char *key = mem_alloc(size + 1);
    memset(key, 'k', size);
    key[size] = '\0';
    if (size > 411) {
        char digits[12];
        snprintf(digits, sizeof digits, "%08u", number);
        memcpy(key + size - 8, digits, 8);
    }
    return key;
}

/* Such a record comes with a backup that no server has made. */
static int decode_with(struct slice store_key, size_t key_size, unsigned parts) {
    char *bytes = mem_zalloc(40 + key_size);
    bytes[0] = 1, bytes[1] = (char)parts, bytes[2] = (char)(key_size & 255), bytes[3] = (char)(key_size >> 8);
    struct kv_record record;
    int rv = kv_record_decode(store_key, slice_make(bytes, 40 + key_size), &record);
    free(bytes);
    return rv;
}

Test(kv, a_record_whose_key_can_not_be_is_damaged) {
    enum { PART_KEY = 2 };
    char *bytes = long_key(STORE_KEY_MAX, 0);
    struct slice whole = slice_make(bytes, KV_STORE_KEY_MAX), longer = slice_make(bytes, KV_STORE_KEY_MAX + 1),
                 plain = slice_make(bytes, STORE_KEY_PREFIX);
    cr_expect_eq(decode_with(whole, STORE_KEY_PREFIX + 1, PART_KEY), CO_OK);
    cr_expect_eq(decode_with(whole, KV_KEY_MAX, PART_KEY), CO_OK);
    cr_expect_eq(decode_with(plain, 0, 0), CO_OK);
    cr_expect_eq(decode_with(whole, STORE_KEY_PREFIX, PART_KEY), CO_CORRUPT, "not a long one");
    cr_expect_eq(decode_with(whole, KV_KEY_MAX + 1, PART_KEY), CO_CORRUPT, "longer than any");
    cr_expect_eq(decode_with(longer, STORE_KEY_PREFIX + 1, PART_KEY), CO_CORRUPT, "nor is its place");
    cr_expect_eq(decode_with(longer, 0, 0), CO_CORRUPT);
    free(bytes);
}

static void expect_sorted(const char *prefix, size_t expected) {
    struct query_result result = kv_list(&world, prefix);
    const Pb__KvEntriesResult *list = (const Pb__KvEntriesResult *)result.message;
    cr_assert(result.found);
    cr_expect_eq(list->n_entries, expected, "prefix of %zu: %zu entries, not %zu", strlen(prefix), list->n_entries,
                 expected);
    for (size_t i = 1; i < list->n_entries; i++) {
        const Pb__KvEntry *a = list->entries[i - 1], *b = list->entries[i];
        cr_expect(slice_compare(slice_make(a->key.data, a->key.len), slice_make(b->key.data, b->key.len)) < 0,
                  "place %zu", i);
    }
}

Test(kv, long_keys_are_found_listed_in_order_and_removed, .init = setup, .fini = teardown) {
    static const size_t alone[] = {1, 399, 400, 401},
                        many[] = {415, 416, 417, 510, 511, 512, 513, 600, 1000, 8191, 8192};
    for (size_t i = 0; i < ARRAY_COUNT(alone); i++) {
        char *key = long_key(alone[i], 0);
        cr_assert(kv_put(&world, key, "v").yes);
        free(key);
    }
    for (size_t i = 0; i < 5 * ARRAY_COUNT(many); i++) {
        char *key = long_key(many[i % ARRAY_COUNT(many)], (unsigned)(i * 7919 % 100000));
        cr_assert(kv_put(&world, key, key + strlen(key) - 8).yes);
        struct query_result result = kv_get(&world, key);
        cr_assert(result.found && bytes_are(entry_of(&result)->value, key + strlen(key) - 8));
        free(key);
    }
    char *prefix = long_key(405, 0);
    expect_sorted("", 4 + 5 * ARRAY_COUNT(many));
    expect_sorted("kk", 3 + 5 * ARRAY_COUNT(many));
    expect_sorted(prefix, 5 * ARRAY_COUNT(many));
    uint64_t removed = kv_del_tree(&world, prefix).index;
    cr_expect_not(kv_list(&world, prefix).found);
    cr_expect_eq(kv_list(&world, prefix).index, removed);
    expect_sorted("", 4);
    free(prefix);
}

/* The name under which a long key is stored can be a key too, and must not be taken for the long one. */
Test(kv, a_short_key_cannot_pose_as_a_long_one, .init = setup, .fini = teardown) {
    char stored[STORE_KEY_MAX + 1], *key = NULL;
    for (unsigned number = 0; !key; number++) { /* until the hash has no NUL, so that a client could write it */
        char *try = long_key(1000, number);
        cr_assert(kv_put(&world, try, "long").yes);
        struct store_cursor cursor;
        store_cursor_open(&cursor, store_read(world.reader), 16, SLICE_LITERAL("k"));
        cr_assert(cursor.valid && cursor.key.size <= STORE_KEY_MAX);
        memset(stored, 0, sizeof stored);
        memcpy(stored, cursor.key.data, cursor.key.size);
        if (strlen(stored) == cursor.key.size) key = try;
        store_cursor_close(&cursor);
        store_read_done(world.reader);
        if (key) break;
        cr_assert(kv_del(&world, try).yes);
        free(try);
    }
    cr_assert(kv_put(&world, stored, "short").yes);
    struct query_result result = kv_get(&world, stored);
    cr_assert(result.found && bytes_are(entry_of(&result)->value, "short"));
    result = kv_get(&world, key);
    cr_assert(result.found && bytes_are(entry_of(&result)->value, "long"));
    expect_sorted("", 2);
    free(key);
}

Test(kv, what_was_applied_is_there_after_reopening, .init = setup, .fini = teardown) {
    struct outcome put = kv_put(&world, "kept", "1"), removal;
    (void)kv_put(&world, "gone", "1");
    removal = kv_del(&world, "gone");
    (void)kv_acquire(&world, "held", "1", sessions[1]);
    fixture_reopen(&world);
    expect_entry("kept", "1", 0, 0, 0, put.index, put.index, __LINE__);
    cr_expect_eq(kv_get(&world, "gone").index, removal.index);
    cr_expect_not(kv_acquire(&world, "held", "1", sessions[0]).yes);
    cr_expect(session_drop(&world, sessions[1]).yes);
    cr_expect(kv_acquire(&world, "held", "1", sessions[0]).yes);
}
