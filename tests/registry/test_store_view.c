/* Views: the content as of one commit, while the writer goes on. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "registry/store_notes.h"
#include "tests/registry/small_store.h"

enum { KEYS = 6000 };

struct told { /* what a view has handed out, or is to */
    struct buffer text;
    size_t records;
};

static void tell(void *data, uint8_t table, struct slice key, struct slice value) {
    struct told *told = data;
    buffer_append_byte(&told->text, (char)table);
    buffer_append(&told->text, key.data, key.size);
    buffer_append_byte(&told->text, '=');
    buffer_append(&told->text, value.data, value.size);
    buffer_append_byte(&told->text, '\n');
    told->records++;
}

/* The same, as a read transaction sees it. Table 0 has no ranges. */
static struct told told_now(struct store *store) {
    struct store_reader *reader = store_reader_new(store);
    struct store_txn *txn = store_read(reader);
    struct told told = {0};
    for (unsigned i = 0; i < KEYS; i++) {
        char key[32];
        struct slice name = slice_make(key, (size_t)snprintf(key, sizeof key, "k%06u", i)), value;
        if (store_get(txn, STORE_TABLE_META, name, &value) == CO_OK) tell(&told, STORE_TABLE_META, name, value);
    }
    for (size_t i = 0; i < ARRAY_COUNT(small_tables); i++) {
        struct store_cursor cursor;
        for (store_cursor_open(&cursor, txn, small_tables[i].number, slice_make("", 0)); cursor.valid;
             store_cursor_next(&cursor))
            tell(&told, small_tables[i].number, cursor.key, cursor.value);
        store_cursor_close(&cursor);
    }
    store_read_done(reader);
    store_reader_free(reader);
    return told;
}

static const uint8_t numbers[] = {STORE_TABLE_META, 1, 2, 40};

static void change(struct store_txn *txn, struct rng *random) {
    uint8_t table = numbers[rng_below(random, 4)];
    char key[32], value[400];
    int size = snprintf(key, sizeof key, "k%06llu", (unsigned long long)rng_below(random, KEYS));
    if (rng_below(random, 3) == 0) {
        (void)store_del(txn, table, slice_make(key, (size_t)size));
        return;
    }
    memset(value, 'a' + (int)rng_below(random, 26), sizeof value);
    store_put(txn, table, slice_make(key, (size_t)size), slice_make(value, 1 + rng_below(random, sizeof value)));
}

static void write_some(struct store *store, struct rng *random, size_t count) {
    struct store_txn *txn = store_write(store);
    bool aborted = rng_below(random, 8) == 0;
    for (size_t i = 0; i < count; i++) {
        bool point = rng_below(random, 5) == 0;
        if (point) store_savepoint(txn);
        change(txn, random);
        if (point) {
            change(txn, random);
            if (rng_below(random, 2)) store_rollback(txn);
            else store_release(txn);
        }
    }
    if (aborted) store_abort(txn);
    else cr_assert_eq(store_commit(txn), CO_OK);
}

static struct store *filled(const char *folder, uint64_t notes_bytes, struct rng *random) {
    struct store_config config = scratch_config(folder, small_tables, 3);
    struct fault fault = {0};
    struct store *store;
    bool trusted;
    config.view_notes_bytes = notes_bytes;
    cr_assert_eq(store_open(&config, &store, &trusted, &fault), CO_OK, "%s", fault.text);
    for (int i = 0; i < 40; i++) write_some(store, random, 400);
    return store;
}

/* The writer changes much between the pieces of two views, which began at different commits. */
static void views_keep(uint64_t notes_bytes, uint64_t seed) {
    const char *folder = scratch_folder();
    struct rng random;
    rng_seed(&random, seed);
    struct store *store = filled(folder, notes_bytes, &random);
    struct told wanted[2], seen[2] = {{{0}, 0}, {{0}, 0}};
    struct store_view *views[2];
    int ends[2] = {CO_OK, CO_OK};
    for (int i = 0; i < 2; i++) {
        wanted[i] = told_now(store);
        views[i] = store_view_open(store);
        write_some(store, &random, 300);
    }
    while (ends[0] == CO_OK || ends[1] == CO_OK) {
        int which = (int)rng_below(&random, 2);
        if (ends[which] == CO_OK) ends[which] = store_view_next(views[which], tell, &seen[which]);
        if (rng_below(&random, 3)) write_some(store, &random, 200);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(ends[i], CO_NOTFOUND);
        cr_assert_eq(seen[i].records, wanted[i].records);
        cr_assert(slice_equal(buffer_slice(&seen[i].text), buffer_slice(&wanted[i].text)), "seed %llu",
                  (unsigned long long)seed);
        store_view_close(views[i]);
        buffer_free(&seen[i].text);
        buffer_free(&wanted[i].text);
    }
    (void)sum_of(store);
    store_close(store);
    scratch_remove(folder);
}

Test(store_view, a_view_is_the_content_as_of_its_commit, .timeout = 300) {
    for (uint64_t seed = 1; seed <= 12; seed++) views_keep(0, seed);
}

Test(store_view, a_view_whose_notes_are_too_many_holds_a_read, .timeout = 300) {
    for (uint64_t seed = 1; seed <= 6; seed++) views_keep(20000, seed);
}

/* Records that are written anew all the time, beside a reader that takes its time: in the middle of the table a view
 * has handed out one piece of three. */
static uint64_t growth(struct store *store, bool held) {
    struct store_view *view = held ? NULL : store_view_open(store);
    struct store_reader *reader = held ? store_long_reader_new(store) : NULL;
    struct told told = {0};
    if (held) (void)store_read(reader);
    else cr_assert_eq(store_view_next(view, tell, &told), CO_OK);
    uint64_t before = store_bytes(store);
    for (int i = 0; i < 400; i++) {
        struct store_txn *txn = store_write(store);
        char key[32], value[64];
        for (int k = 0; k < 20; k++) {
            snprintf(key, sizeof key, "hot%04d", k);
            snprintf(value, sizeof value, "%d", i);
            put_text(txn, 1, key, value);
        }
        cr_assert_eq(store_commit(txn), CO_OK);
    }
    uint64_t after = store_bytes(store);
    if (held) store_read_done(reader);
    store_reader_free(reader);
    store_view_close(view);
    buffer_free(&told.text);
    return after - before;
}

Test(store_view, the_file_does_not_grow_beside_a_slow_view) {
    const char *folder = scratch_folder();
    struct rng random;
    rng_seed(&random, 7);
    struct store *store = filled(folder, 0, &random);
    uint64_t beside_view = growth(store, false), beside_read = growth(store, true);
    cr_expect_lt(beside_view, 256 * 1024);
    cr_expect_gt(beside_read, 4 * 1024 * 1024); /* what the view is for */
    store_close(store);
    scratch_remove(folder);
}

/* Locks and sessions come and go while a view is read: their notes are dropped, and the view needs no read. */
Test(store_view, records_that_come_and_go_do_not_crowd_a_view) {
    const char *folder = scratch_folder();
    struct rng random;
    rng_seed(&random, 11);
    struct store *store = filled(folder, 200000, &random);
    struct told wanted = told_now(store), seen = {0};
    struct store_view *view = store_view_open(store);
    int rv = store_view_next(view, tell, &seen);
    uint64_t before = store_bytes(store);
    for (unsigned i = 0; i < 60; i++) {
        for (unsigned step = 0; step < 2; step++) { /* made in one transaction, deleted in the next */
            struct store_txn *txn = store_write(store);
            for (unsigned k = 0; k < 100; k++) {
                char key[32];
                snprintf(key, sizeof key, "z%02u%04u", k, i);
                if (step == 0) put_text(txn, 40, key, "here for a moment");
                else cr_assert(store_del(txn, 40, slice_text(key)));
            }
            cr_assert_eq(store_commit(txn), CO_OK);
        }
        cr_assert_lt(store_view_noted(view), 100000, "%u: %zu bytes", i, store_view_noted(view));
        if (rv == CO_OK && i % 8 == 0) rv = store_view_next(view, tell, &seen);
    }
    cr_expect_lt(store_bytes(store) - before, 256 * 1024);
    while (rv == CO_OK) rv = store_view_next(view, tell, &seen);
    cr_expect_eq(rv, CO_NOTFOUND);
    cr_expect(slice_equal(buffer_slice(&seen.text), buffer_slice(&wanted.text)));
    store_view_close(view);
    buffer_free(&seen.text);
    buffer_free(&wanted.text);
    store_close(store);
    scratch_remove(folder);
}

/* Records of a few names come, go and come again, in transactions that are committed, rolled back in part or aborted,
 * and pieces are read before, within and after them. */
static void come_and_go(uint64_t seed) {
    const char *folder = scratch_folder();
    struct rng random;
    rng_seed(&random, seed);
    struct store *store = filled(folder, 150000, &random);
    struct told wanted = told_now(store), seen = {0};
    struct store_view *view = store_view_open(store);
    int rv = CO_OK;
    for (unsigned i = 0; rv == CO_OK; i++) {
        struct store_txn *txn = store_write(store);
        unsigned stop = (unsigned)rng_below(&random, 200);
        for (unsigned step = 0; step < 200; step++) {
            char key[32];
            snprintf(key, sizeof key, "z%03u", (unsigned)rng_below(&random, 600));
            bool point = rng_below(&random, 10) == 0;
            if (point) store_savepoint(txn);
            if (rng_below(&random, 5) < 2) put_text(txn, 40, key, "here for a moment");
            else (void)store_del(txn, 40, slice_text(key));
            if (point && rng_below(&random, 2)) store_rollback(txn);
            else if (point) store_release(txn);
            if ((step == stop || step == 199) && rv == CO_OK && i % 8 == 0) rv = store_view_next(view, tell, &seen);
        }
        if (rng_below(&random, 4) == 0) store_abort(txn);
        else cr_assert_eq(store_commit(txn), CO_OK);
        if (rv == CO_OK && i % 8 == 4) rv = store_view_next(view, tell, &seen);
    }
    cr_expect_eq(rv, CO_NOTFOUND);
    cr_expect_eq(seen.records, wanted.records, "seed %llu", (unsigned long long)seed);
    cr_expect(slice_equal(buffer_slice(&seen.text), buffer_slice(&wanted.text)), "seed %llu", (unsigned long long)seed);
    store_view_close(view);
    buffer_free(&seen.text);
    buffer_free(&wanted.text);
    store_close(store);
    scratch_remove(folder);
}

Test(store_view, a_view_never_has_records_that_came_later, .timeout = 300) {
    for (uint64_t seed = 1; seed <= 25; seed++) come_and_go(seed);
}

/* One entry may change more than all that may be noted. */
Test(store_view, notes_are_bounded_within_one_transaction) {
    const char *folder = scratch_folder();
    struct rng rng;
    rng_seed(&rng, 5);
    struct store *store = filled(folder, 20000, &rng);
    struct told wanted = told_now(store), seen = {0};
    struct store_view *view = store_view_open(store);
    cr_assert_eq(store_view_next(view, tell, &seen), CO_OK);
    struct store_txn *txn = store_write(store);
    for (unsigned i = 0; i < KEYS; i++) {
        char key[32];
        snprintf(key, sizeof key, "k%06u", i);
        for (size_t t = 1; t < ARRAY_COUNT(numbers); t++) (void)store_del(txn, numbers[t], slice_text(key));
        cr_assert_lt(store_view_noted(view), 25000);
    }
    cr_assert_eq(store_commit(txn), CO_OK);
    int rv;
    while ((rv = store_view_next(view, tell, &seen)) == CO_OK) continue;
    cr_expect_eq(rv, CO_NOTFOUND);
    cr_expect(slice_equal(buffer_slice(&seen.text), buffer_slice(&wanted.text)));
    store_view_close(view);
    buffer_free(&seen.text);
    buffer_free(&wanted.text);
    store_close(store);
    scratch_remove(folder);
}

Test(store_view, damage_is_noticed) {
    const char *folder = scratch_folder();
    struct rng random;
    rng_seed(&random, 9);
    struct store *store = filled(folder, 0, &random);
    struct store_view *view = store_view_open(store);
    struct told told = {0};
    struct store_txn *txn = store_write(store); /* a record whose checksum is another's: a copy must not take it */
    MDB_val key = {7, (void *)(uintptr_t) "k999999"}, data = {20, (void *)(uintptr_t) "value with no hash.."};
    cr_assert_eq(mdb_put(txn->mdb, txn->file->tables[40], &key, &data, 0), 0);
    cr_assert_eq(store_commit(txn), CO_OK);
    int rv;
    while ((rv = store_view_next(view, tell, &told)) == CO_OK) continue;
    cr_expect_eq(rv, CO_CORRUPT);
    cr_expect(store_damaged(store));
    store_view_close(view);
    buffer_free(&told.text);
    store_close(store);
    scratch_remove(folder);
}

Test(store_view, notes_keep_the_first_of_a_record_in_order) {
    struct store_notes notes = {0};
    struct rng random;
    rng_seed(&random, 3);
    static const char *first[300];
    char key[8];
    for (int i = 0; i < 3000; i++) {
        size_t k = rng_below(&random, 300);
        const char *text = i % 2 ? "odd" : "even";
        snprintf(key, sizeof key, "%03zu", k);
        if (!first[k]) first[k] = text;
        store_notes_add(&notes, (uint8_t)(k / 100), slice_text(key), true, slice_text(text));
    }
    cr_expect_eq(notes.count, 300);
    struct store_note *some = store_notes_take(&notes, 0, slice_text("049"), false);
    size_t at = 0;
    for (struct store_note *note = some, *next; note; note = next, at++) {
        snprintf(key, sizeof key, "%03zu", at);
        cr_expect(slice_equal(store_note_key(note), slice_text(key)));
        cr_expect(slice_equal(store_note_data(note), slice_text(first[at])));
        next = note->next[0];
        free(note);
    }
    cr_expect_eq(at, 50);
    some = store_notes_take(&notes, 1, slice_text(""), true);
    for (struct store_note *next; some; some = next, at++) next = some->next[0], free(some);
    cr_expect_eq(at, 200);
    cr_expect_eq(notes.count, 100);
    cr_expect_null(store_notes_take(&notes, 1, slice_text("zzz"), false));
    store_notes_free(&notes);
    cr_expect_eq(notes.bytes, 0);
}
