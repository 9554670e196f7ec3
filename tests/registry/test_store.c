/* The store: records, sums, ranges, savepoints, keys, reserved space. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "small_store.h"

Test(store, puts_gets_and_deletes) {
    const char *folder = scratch_folder();
    bool trusted = true;
    struct store *store = open_at(folder, &trusted);
    cr_assert_not(trusted);
    struct store_txn *txn = store_write(store);
    put_text(txn, 1, "a", "first");
    put_text(txn, 1, "a", "second, longer");
    put_text(txn, 2, "a", "");
    put_text(txn, STORE_TABLE_META, "m", "meta");
    cr_assert_eq(store_count(txn, 1), 1);
    cr_assert_eq(store_commit(txn), CO_OK);
    cr_assert(has_text(store, 1, "a", "second, longer"));
    cr_assert(has_text(store, 2, "a", ""));
    cr_assert(has_text(store, STORE_TABLE_META, "m", "meta"));
    cr_assert_not(has_text(store, 40, "a", ""));
    (void)sum_of(store);
    txn = store_write(store);
    cr_assert(store_del(txn, 1, slice_text("a")));
    cr_assert_not(store_del(txn, 1, slice_text("a")));
    cr_assert_not(store_del(txn, 1, slice_text("")));
    cr_assert_eq(store_commit(txn), CO_OK);
    cr_assert_not(has_text(store, 1, "a", "second, longer"));
    (void)sum_of(store);
    store_close(store);
    scratch_remove(folder);
}

Test(store, an_abort_leaves_nothing) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    put_committed(store, "kept", "1");
    struct store_txn *txn = store_write(store);
    put_text(txn, 1, "kept", "2");
    put_text(txn, 1, "gone", "3");
    store_abort(txn);
    cr_assert(has_text(store, 1, "kept", "1"));
    cr_assert_not(has_text(store, 1, "gone", "3"));
    (void)sum_of(store);
    store_close(store);
    scratch_remove(folder);
}

Test(store, equal_records_have_equal_sums_in_any_order) {
    const char *folders[2] = {scratch_folder(), scratch_folder()};
    uint64_t sums[2];
    for (int i = 0; i < 2; i++) {
        bool trusted;
        struct store *store = open_at(folders[i], &trusted);
        for (int j = 0; j < 50; j++) {
            char key[16];
            snprintf(key, sizeof key, "k%d", i ? 49 - j : j);
            put_committed(store, key, key);
        }
        if (i) {
            put_committed(store, "extra", "x");
            struct store_txn *txn = store_write(store);
            cr_assert(store_del(txn, 1, slice_text("extra")));
            cr_assert_eq(store_commit(txn), CO_OK);
        }
        struct store_reader *reader = store_reader_new(store);
        sums[i] = store_sum(store_read(reader));
        store_read_done(reader);
        store_reader_free(reader);
        store_close(store);
        scratch_remove(folders[i]);
    }
    cr_assert_eq(sums[0], sums[1]);
    cr_assert_neq(sums[0], 0);
}

Test(store, ranges_walk_both_ways_and_delete) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    struct store_txn *txn = store_write(store);
    const char *keys[] = {"a", "b1", "b2", "b3", "c"};
    for (int i = 0; i < 5; i++) put_text(txn, 1, keys[i], keys[i]);
    struct store_cursor cursor;
    int seen = 0;
    STORE_PREFIX(&cursor, txn, 1, slice_text("b")) {
        seen++;
        cr_assert(slice_is(cursor.value, keys[seen]));
    }
    store_cursor_close(&cursor);
    cr_assert_eq(seen, 3);
    for (store_cursor_open_last(&cursor, txn, 1); cursor.valid; store_cursor_prev(&cursor)) seen++;
    store_cursor_close(&cursor);
    cr_assert_eq(seen, 8);
    store_cursor_open(&cursor, txn, 1, slice_text("b"));
    while (cursor.valid && slice_starts(cursor.key, slice_text("b"))) store_cursor_del(&cursor);
    cr_assert(cursor.valid && slice_is(cursor.key, "c"));
    cr_assert_eq(store_count(txn, 1), 2);
    cr_assert_eq(store_commit(txn), CO_OK); /* the cursor was left open */
    (void)sum_of(store);
    store_close(store);
    scratch_remove(folder);
}

Test(store, a_limited_read_ends_early_and_says_so) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    struct store_txn *txn = store_write(store);
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%02d", i);
        put_text(txn, 1, key, "0123456789");
    }
    cr_assert_eq(store_commit(txn), CO_OK);
    struct store_reader *reader = store_reader_new(store);
    for (size_t limit = 0; limit < 60000; limit += 6000) {
        txn = store_read(reader);
        if (limit) store_read_limit(txn, limit);
        struct store_cursor cursor;
        size_t count = 0;
        STORE_PREFIX(&cursor, txn, 1, SLICE_LITERAL("k")) count++;
        store_cursor_close(&cursor);
        bool hit = store_read_limit_hit(txn);
        cr_expect(hit == (count < 100), "limit %zu: %zu", limit, count);
        if (limit)
            cr_expect(count * 13 <= limit && (count == 100 || count * 400 > limit), "limit %zu: %zu", limit, count);
        store_read_done(reader);
    }
    store_reader_free(reader);
    store_close(store);
    scratch_remove(folder);
}

Test(store, a_rollback_takes_back_exactly_what_followed_the_savepoint) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    struct store_txn *txn = store_write(store);
    put_text(txn, 1, "before", "1");
    put_text(txn, 1, "both", "1");
    put_text(txn, 2, "deleted", "1");
    uint64_t sum = store_sum(txn);
    store_savepoint(txn);
    put_text(txn, 1, "both", "two");
    put_text(txn, 1, "both", "three!");
    put_text(txn, 40, "new", "x");
    (void)store_del(txn, 2, slice_text("deleted"));
    put_text(txn, 2, "deleted", "again");
    struct store_cursor cursor;
    store_cursor_open(&cursor, txn, 1, slice_text("before"));
    store_cursor_del(&cursor);
    store_cursor_close(&cursor);
    store_rollback(txn);
    cr_assert_eq(store_sum(txn), sum);
    store_savepoint(txn);
    put_text(txn, 1, "after", "1");
    store_release(txn);
    cr_assert_eq(store_commit(txn), CO_OK);
    cr_assert(has_text(store, 1, "before", "1"));
    cr_assert(has_text(store, 1, "both", "1"));
    cr_assert(has_text(store, 2, "deleted", "1"));
    cr_assert(has_text(store, 1, "after", "1"));
    cr_assert_not(has_text(store, 40, "new", "x"));
    (void)sum_of(store);
    store_close(store);
    scratch_remove(folder);
}

Test(store, savepoints_nest) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    struct store_txn *txn = store_write(store);
    put_text(txn, 1, "before", "1");
    uint64_t sums[3] = {store_sum(txn)};
    store_savepoint(txn);
    put_text(txn, 1, "outer", "1");
    put_text(txn, 1, "before", "two");
    sums[1] = store_sum(txn);
    store_savepoint(txn); /* taken back: the outer one's changes stay */
    put_text(txn, 1, "outer", "changed");
    (void)store_del(txn, 1, slice_text("before"));
    store_rollback(txn);
    cr_assert_eq(store_sum(txn), sums[1]);
    store_savepoint(txn); /* released: the outer one's rollback takes it back all the same */
    put_text(txn, 2, "inner", "1");
    (void)store_del(txn, 1, slice_text("outer"));
    store_release(txn);
    put_text(txn, 1, "late", "1");
    store_rollback(txn);
    cr_assert_eq(store_sum(txn), sums[0]);
    put_text(txn, 1, "after", "1"); /* of no savepoint */
    store_savepoint(txn);
    put_text(txn, 1, "gone", "1");
    store_rollback(txn);
    cr_assert_eq(store_commit(txn), CO_OK);
    cr_assert(has_text(store, 1, "before", "1"));
    cr_assert(has_text(store, 1, "after", "1"));
    cr_assert_not(has_text(store, 1, "outer", "1"));
    cr_assert_not(has_text(store, 2, "inner", "1"));
    cr_assert_not(has_text(store, 1, "late", "1"));
    cr_assert_not(has_text(store, 1, "gone", "1"));
    (void)sum_of(store);
    store_close(store);
    scratch_remove(folder);
}

Test(store, long_keys_and_parts_stay_apart) {
    char room[STORE_KEY_MAX], other[STORE_KEY_MAX], text[2000];
    memset(text, 'x', sizeof text);
    cr_assert_eq(store_key_long(slice_make(text, STORE_KEY_WHOLE), room).size, STORE_KEY_WHOLE);
    cr_assert_eq(store_key_long(slice_make(text, STORE_KEY_WHOLE + 1), room).size, STORE_KEY_WHOLE + 1);
    cr_assert_not(slice_equal(store_key_long(slice_make(text, STORE_KEY_WHOLE + 1), room),
                              slice_make(text, STORE_KEY_WHOLE + 1)));
    struct slice a = store_key_long(slice_make(text, 512), room), b = store_key_long(slice_make(text, 513), other);
    cr_assert(a.size <= STORE_KEY_MAX && b.size <= STORE_KEY_MAX && !slice_equal(a, b));
    struct slice whole = store_key_join(room, 4, slice_make(text, 2000), slice_make(text, 1999), slice_make(text, 121),
                                        slice_make(text, 120));
    struct slice begin = store_key_join(other, 2, slice_make(text, 2000), slice_make(text, 1999));
    cr_assert(slice_starts(whole, begin));
    begin = store_key_join(other, 2, slice_make(text, 2000), slice_make(text, 1998));
    cr_assert_not(slice_starts(whole, begin));
    cr_assert(slice_equal(store_key_join(room, 2, slice_text("a"), slice_text("")), slice_make("a\0\0", 3)));
    cr_assert_not(slice_equal(store_key_join(room, 2, slice_text("ab"), slice_text("c")),
                              store_key_join(other, 2, slice_text("a"), slice_text("bc"))));
}

/* Against a model: many random transactions, some aborted, large and small values. */
Test(store, agrees_with_a_model) {
    enum { KEYS = 300 };
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    struct rng rng;
    rng_seed(&rng, 7);
    uint32_t model[KEYS] = {0}, draft[KEYS]; /* 0: absent; else size and content */
    char *value = mem_alloc(100000);
    for (int round = 0; round < 400; round++) {
        struct store_txn *txn = store_write(store);
        memcpy(draft, model, sizeof model);
        for (uint64_t i = rng_below(&rng, 30); i > 0; i--) {
            uint32_t key = (uint32_t)rng_below(&rng, KEYS);
            char name[16];
            snprintf(name, sizeof name, "%u", key);
            uint32_t size =
                rng_below(&rng, 20) == 0 ? (uint32_t)rng_below(&rng, 100000) : (uint32_t)rng_below(&rng, 300);
            if (rng_below(&rng, 3) == 0) {
                cr_assert_eq(store_del(txn, 1, slice_text(name)), draft[key] != 0);
                draft[key] = 0;
            } else {
                memset(value, (int)(size & 127), size);
                store_put(txn, 1, slice_text(name), slice_make(value, size));
                draft[key] = size + 1;
            }
        }
        cr_assert_eq(store_sum(txn), store_scrub(txn));
        if (rng_below(&rng, 5) == 0) {
            store_abort(txn);
        } else {
            cr_assert_eq(store_commit(txn), CO_OK);
            memcpy(model, draft, sizeof model);
        }
        cr_assert(store->file->used_bytes <= store->file->reserved_bytes);
    }
    struct store_reader *reader = store_reader_new(store);
    struct store_txn *txn = store_read(reader);
    uint64_t present = 0;
    for (uint32_t key = 0; key < KEYS; key++) {
        char name[16];
        snprintf(name, sizeof name, "%u", key);
        struct slice found;
        int error = store_get(txn, 1, slice_text(name), &found);
        cr_assert_eq(error, model[key] ? CO_OK : CO_NOTFOUND);
        if (error) continue;
        present++;
        cr_assert_eq(found.size, model[key] - 1);
        for (size_t i = 0; i < found.size; i++) cr_assert_eq(found.data[i], (char)((model[key] - 1) & 127));
    }
    cr_assert_eq(store_count(txn, 1), present);
    store_read_done(reader);
    store_reader_free(reader);
    free(value);
    store_close(store);
    scratch_remove(folder);
}

/* No page may lie outside of reserved space, whatever a transaction does: with WRITEMAP that would be a SIGBUS on a
 * full disk. */
Test(store, what_is_used_is_always_reserved_before) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store_config config = scratch_config(folder, small_tables, 3);
    config.reserve_step_bytes = 64 * 1024;
    struct store *store;
    struct fault fault = {0};
    cr_assert_eq(store_open(&config, &store, &trusted, &fault), CO_OK, "%s", fault.text);
    struct rng rng;
    rng_seed(&rng, 11);
    char value[4000];
    memset(value, 'v', sizeof value);
    for (int round = 0; round < 60; round++) {
        struct store_txn *txn = store_write(store);
        uint64_t kind = rng_below(&rng, 3), count = rng_below(&rng, 3000);
        for (uint64_t i = 0; i < count; i++) {
            char key[64];
            int size =
                snprintf(key, sizeof key, "%08llx-some-longer-key-text", (unsigned long long)rng_below(&rng, 20000));
            if (kind == 2) (void)store_del(txn, 1, slice_make(key, (size_t)size));
            else
                store_put(txn, 1, slice_make(key, (size_t)size), slice_make(value, rng_below(&rng, kind ? 4000 : 100)));
        }
        cr_assert_eq(store_commit(txn), CO_OK);
        cr_assert(store->file->used_bytes <= txn->need.covered_pages * store->file->page_bytes, "round %d", round);
    }
    store_close(store);
    scratch_remove(folder);
}
/* A disk without space: the batch fails as a whole, reads go on, and writes too once there is space again. */
Test(store, a_full_disk_is_an_error) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store_config config = scratch_config(folder, small_tables, 3);
    config.map_bytes = 4 << 20; /* the map's end stands for the disk's */
    struct store *store;
    struct fault fault = {0};
    cr_assert_eq(store_open(&config, &store, &trusted, &fault), CO_OK, "%s", fault.text);
    char *value = mem_zalloc(100000);
    int error = CO_OK, stored = 0;
    while (error == CO_OK && stored < 1000) {
        struct store_txn *txn = store_write(store);
        char key[16];
        snprintf(key, sizeof key, "%d", stored);
        store_put(txn, 1, slice_text(key), slice_make(value, 100000));
        error = store_commit(txn);
        if (!error) stored++;
    }
    cr_assert_eq(error, CO_DISKFULL);
    cr_assert(stored > 5);
    cr_assert_not(store_has_room(store));
    (void)sum_of(store);
    struct store_reader *reader = store_reader_new(store);
    cr_assert_eq(store_count(store_read(reader), 1), (uint64_t)stored);
    store_read_done(reader);
    store_reader_free(reader);
    free(value);
    store_close(store);
    scratch_remove(folder);
}
