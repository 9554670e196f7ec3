/* The journal of a write transaction, and reads of the past that are made of it, against a model that keeps every state
 * there was. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "registry/store.h"
#include "tests/lib/scratch.h"

/* Two tables share a topic, one has another, and one has none. */
enum { ONE = 1, TWO = 2, OTHER = 3, PLAIN = 40, TOPIC = 1, OTHER_TOPIC = 2 };
static const struct store_table tables[] = {{ONE, "one"}, {TWO, "two"}, {OTHER, "other"}, {PLAIN, "plain"}};

static const char *folder;
static struct store *store;
static struct store_reader *reader;
static struct store_txn *txn; /* the write transaction of a test */

static void setup(void) {
    folder = scratch_folder();
    struct store_config config = scratch_config(folder, tables, ARRAY_COUNT(tables));
    config.topics[ONE] = config.topics[TWO] = TOPIC, config.topics[OTHER] = OTHER_TOPIC;
    struct fault fault = {0};
    bool trusted;
    cr_assert_eq(store_open(&config, &store, &trusted, &fault), CO_OK, "%s", fault.text);
    reader = store_reader_new(store);
}

static void teardown(void) {
    store_reader_free(reader);
    store_close(store);
    scratch_remove(folder);
}

static void put(uint8_t table, const char *key, const char *value) {
    store_put(txn, table, slice_text(key), slice_text(value));
}

/* "1:a=x 1:b 2:c= ": table, key, and what was there. */
static const char *notes_of(uint8_t topic) {
    static char text[1024];
    struct slice rest;
    cr_assert(store_journal_end(txn, topic, &rest));
    struct store_before before;
    size_t size = 0;
    text[0] = '\0';
    while (store_journal_next(&rest, &before)) {
        size += (size_t)snprintf(text + size, sizeof text - size, "%u:%.*s", before.table, (int)before.key.size,
                                 before.key.data);
        if (before.existed)
            size +=
                (size_t)snprintf(text + size, sizeof text - size, "=%.*s", (int)before.value.size, before.value.data);
        size += (size_t)snprintf(text + size, sizeof text - size, " ");
    }
    cr_assert_eq(rest.size, 0, "notes decode to their end");
    return text;
}

/* -- notes -------------------------------------------------------------------------------------------------------- */

Test(store_journal, notes_say_what_each_change_took_away, .init = setup, .fini = teardown) {
    txn = store_write(store);
    put(ONE, "a", "before"), put(PLAIN, "p", "before");
    store_journal_begin(txn, SIZE_MAX);
    put(ONE, "a", "first"), put(ONE, "a", "second"), put(TWO, "n", ""), put(ONE, "n", "new");
    put(TWO, "n", "full");
    cr_assert(store_del(txn, ONE, SLICE_LITERAL("n")));
    cr_assert_not(store_del(txn, ONE, SLICE_LITERAL("n")), "what is not there leaves no note");
    put(OTHER, "o", "x"), put(PLAIN, "p", "after");
    cr_assert_str_eq(notes_of(TOPIC), "1:a=before 1:a=first 2:n 1:n 2:n= 1:n=new ");
    cr_assert_str_eq(notes_of(OTHER_TOPIC), "3:o ");
    cr_assert_str_eq(notes_of(3), "");
    put(ONE, "a", "third");
    cr_assert_str_eq(notes_of(TOPIC), "1:a=before 1:a=first 2:n 1:n 2:n= 1:n=new ", "nothing is noted after its end");
    store_journal_begin(txn, SIZE_MAX);
    cr_assert_str_eq(notes_of(TOPIC), "", "it begins empty");
    cr_assert_eq(store_commit(txn), CO_OK);
}

Test(store_journal, it_is_off_when_a_transaction_begins, .init = setup, .fini = teardown) {
    txn = store_write(store);
    store_journal_begin(txn, SIZE_MAX);
    put(ONE, "a", "x");
    store_abort(txn);
    txn = store_write(store);
    put(ONE, "b", "x");
    store_journal_begin(txn, SIZE_MAX);
    put(ONE, "a", "y");
    cr_assert_str_eq(notes_of(TOPIC), "1:a ", "of what was aborted nothing is left");
    cr_assert_eq(store_commit(txn), CO_OK);
}

Test(store_journal, a_cursor_that_deletes_is_noted, .init = setup, .fini = teardown) {
    txn = store_write(store);
    put(ONE, "a", "1"), put(ONE, "b", "2"), put(ONE, "c", "3");
    store_journal_begin(txn, SIZE_MAX);
    struct store_cursor cursor;
    store_cursor_open(&cursor, txn, ONE, SLICE_LITERAL("b"));
    while (cursor.valid) store_cursor_del(&cursor);
    store_cursor_close(&cursor);
    cr_assert_str_eq(notes_of(TOPIC), "1:b=2 1:c=3 ");
    cr_assert_eq(store_commit(txn), CO_OK);
}

/* It holds so many bytes for each topic, and says when there was more; not of what was taken back. */
Test(store_journal, is_bounded, .init = setup, .fini = teardown) {
    struct slice notes;
    txn = store_write(store);
    put(ONE, "a", "12345678901234567890"), put(ONE, "b", "12345678901234567890"), put(OTHER, "o", "1");
    store_journal_begin(txn, 40);
    put(ONE, "a", "x"), put(OTHER, "o", "2");
    store_savepoint(txn);
    put(ONE, "b", "x");
    store_rollback(txn);
    cr_assert(store_journal_end(txn, TOPIC, &notes));
    cr_assert_str_eq(notes_of(TOPIC), "1:a=12345678901234567890 ");
    store_journal_begin(txn, 30);
    put(ONE, "a", "12345678901234567890"), put(ONE, "b", "y"), put(OTHER, "o", "3");
    cr_assert_not(store_journal_end(txn, TOPIC, &notes));
    cr_assert_leq(notes.size, 30);
    cr_assert(store_journal_end(txn, OTHER_TOPIC, &notes), "another topic's is whole");
    store_journal_begin(txn, 40);
    put(ONE, "a", "z");
    cr_assert(store_journal_end(txn, TOPIC, &notes), "and so is the next entry's");
    cr_assert_eq(store_commit(txn), CO_OK);
}

Test(store_journal, what_a_rollback_takes_back_does_not_show, .init = setup, .fini = teardown) {
    txn = store_write(store);
    put(ONE, "a", "old"), put(ONE, "gone", "old");
    store_journal_begin(txn, SIZE_MAX);
    store_savepoint(txn);
    put(ONE, "a", "never"), put(ONE, "b", "never"), store_del(txn, ONE, SLICE_LITERAL("gone"));
    store_rollback(txn);
    put(ONE, "b", "new");
    cr_assert_str_eq(notes_of(TOPIC), "1:b ");
    struct store_past *past = store_past_new();
    struct slice rest, value;
    cr_assert(store_journal_end(txn, TOPIC, &rest));
    struct store_before before;
    while (store_journal_next(&rest, &before)) store_past_add(past, 7, &before);
    cr_assert_eq(store_commit(txn), CO_OK);
    struct store_txn *read = store_read(reader);
    store_read_past(read, past, 6);
    cr_assert(store_get(read, ONE, SLICE_LITERAL("a"), &value) == CO_OK && slice_is(value, "old"));
    cr_assert(store_get(read, ONE, SLICE_LITERAL("gone"), &value) == CO_OK && slice_is(value, "old"));
    cr_assert_eq(store_get(read, ONE, SLICE_LITERAL("b"), &value), CO_NOTFOUND);
    store_read_past(read, past, 7);
    cr_assert(store_get(read, ONE, SLICE_LITERAL("b"), &value) == CO_OK && slice_is(value, "new"));
    store_read_past(read, NULL, 0);
    store_read_done(reader);
    store_past_free(past);
}

Test(store_journal, notes_that_are_cut_short_do_not_decode) {
    struct slice whole = SLICE_LITERAL("\x81\x03key\x05value"); /* table 1, there was a record */
    struct store_before before;
    struct slice rest = whole;
    cr_assert(store_journal_next(&rest, &before) && rest.size == 0);
    cr_assert(before.table == 1 && before.existed && slice_is(before.key, "key") && slice_is(before.value, "value"));
    for (size_t size = 1; size < whole.size; size++) {
        rest = slice_make(whole.data, size);
        cr_expect_not(store_journal_next(&rest, &before), "%zu bytes", size);
    }
    rest = SLICE_LITERAL("\x01\x03key"); /* there was none */
    cr_assert(store_journal_next(&rest, &before) && !before.existed && slice_is(before.key, "key"));
    rest = slice_make("", 0);
    cr_assert_not(store_journal_next(&rest, &before));
}

/* -- the past, against a model ------------------------------------------------------------------------------------ */

#define KEYS    48
#define INDEXES 260

static struct slice keys[KEYS]; /* sorted, 1 to STORE_KEY_MAX bytes */
static struct buffer notes[INDEXES + 1];
static uint32_t states[INDEXES + 1][2][KEYS]; /* by index and table: the number of the value; 0: none */
static uint32_t others[INDEXES + 1][KEYS];    /* of the table of another topic */
static uint32_t next_value;
static struct rng rng;

static int in_order(const void *a, const void *b) {
    return slice_compare(*(const struct slice *)a, *(const struct slice *)b);
}

/* Many share their beginnings: some are the beginning of others. */
static void make_keys(struct arena *arena) {
    for (size_t i = 0; i < KEYS; i++) {
        size_t size = i == 0 ? 1 : i == 1 ? STORE_KEY_MAX : (size_t)rng_between(&rng, 1, i % 3 ? 12 : STORE_KEY_MAX);
        char *bytes = arena_alloc(arena, size);
        for (size_t at = 0; at < size; at++) bytes[at] = (char)(rng_below(&rng, 10) ? 'a' : rng_below(&rng, 256));
        keys[i] = slice_make(bytes, size);
        for (size_t before = 0; before < i; before++)
            if (slice_equal(keys[before], keys[i])) i--, before = i; /* once more */
    }
    qsort(keys, KEYS, sizeof *keys, in_order);
}

/* Some are empty. */
static struct slice value_of(uint32_t number, char room[300]) {
    size_t size = number % 7 ? (size_t)snprintf(room, 300, "%u", number) : 0;
    for (; number % 7 && size < number % 250; size++) room[size] = '.';
    return slice_make(room, size);
}

static void change(uint8_t table, size_t key, uint32_t value) {
    char room[300];
    if (value) store_put(txn, table, keys[key], value_of(value, room));
    else (void)store_del(txn, table, keys[key]);
}

static void change_some(uint32_t state[2][KEYS], uint32_t *other, unsigned most) {
    for (uint64_t left = rng_between(&rng, 0, most); left > 0; left--) {
        size_t key = (size_t)rng_below(&rng, KEYS);
        uint8_t table = (uint8_t)rng_below(&rng, 3);
        uint32_t value = rng_below(&rng, 5) < 2 ? 0 : ++next_value;
        change((uint8_t)(ONE + table), key, value);
        *(table < 2 ? &state[table][key] : &other[key]) = value;
    }
}

static void delete_range(uint32_t state[2][KEYS]) {
    size_t from = (size_t)rng_below(&rng, KEYS), to = from + (size_t)rng_below(&rng, 8);
    struct store_cursor cursor;
    store_cursor_open(&cursor, txn, ONE, keys[from]);
    while (cursor.valid && to < KEYS && slice_compare(cursor.key, keys[to]) < 0) store_cursor_del(&cursor);
    store_cursor_close(&cursor);
    for (size_t i = from; i < to && to < KEYS; i++) state[0][i] = 0;
}

/* One entry; now and then a part of it is taken back. */
static void apply_entry(size_t index) {
    uint32_t undone[2][KEYS], undone_other[KEYS];
    memcpy(states[index], states[index - 1], sizeof states[index]);
    memcpy(others[index], others[index - 1], sizeof others[index]);
    store_journal_begin(txn, SIZE_MAX);
    if (rng_below(&rng, 4) == 0) {
        store_savepoint(txn);
        memcpy(undone, states[index], sizeof undone), memcpy(undone_other, others[index], sizeof undone_other);
        change_some(undone, undone_other, 4);
        store_rollback(txn);
    }
    change_some(states[index], others[index], 5);
    if (rng_below(&rng, 6) == 0) delete_range(states[index]);
    if (rng_below(&rng, 40) == 0) { /* a table that is empty */
        for (size_t key = 0; key < KEYS; key++) change(TWO, key, 0), states[index][1][key] = 0;
    }
    struct slice taken;
    cr_assert(store_journal_end(txn, TOPIC, &taken));
    buffer_reset(&notes[index]);
    buffer_append(&notes[index], taken.data, taken.size);
}

/* Batches of entries, as the machine makes them. */
static void apply_entries(void) {
    memset(states[0], 0, sizeof states[0]), memset(others[0], 0, sizeof others[0]);
    for (size_t index = 1; index <= INDEXES;) {
        txn = store_write(store);
        for (uint64_t batch = rng_between(&rng, 1, 9); batch > 0 && index <= INDEXES; batch--) apply_entry(index++);
        cr_assert_eq(store_commit(txn), CO_OK);
    }
}

static struct store_past *past_since(size_t index) {
    struct store_past *past = store_past_new();
    struct store_before before;
    for (size_t i = index + 1; i <= INDEXES; i++) {
        struct slice rest = buffer_slice(&notes[i]);
        while (store_journal_next(&rest, &before)) store_past_add(past, i, &before);
    }
    return past;
}

static bool value_is(struct slice value, uint32_t number) {
    char room[300];
    return slice_equal(value, value_of(number, room));
}

static void check_gets(struct store_txn *read, uint8_t table, const uint32_t *state, size_t at) {
    for (size_t key = 0; key < KEYS; key++) {
        struct slice value;
        int error = store_get(read, table, keys[key], &value);
        cr_assert_eq(error, state[key] ? CO_OK : CO_NOTFOUND, "table %u key %zu at %zu", table, key, at);
        cr_assert(error || value_is(value, state[key]), "table %u key %zu at %zu", table, key, at);
    }
}

/* From `from` on, `most` records. */
static void check_range(struct store_cursor *cursor, const uint32_t *state, struct slice from, size_t most, size_t at) {
    size_t key = 0;
    while (key < KEYS && slice_compare(keys[key], from) < 0) key++;
    for (; most > 0; most--, key++, store_cursor_next(cursor)) {
        while (key < KEYS && !state[key]) key++;
        cr_assert_eq(cursor->valid, key < KEYS, "at %zu, from %zu bytes, stands on %zu bytes", at, from.size,
                     cursor->key.size);
        if (!cursor->valid) return;
        cr_assert(slice_equal(cursor->key, keys[key]), "key %zu at %zu", key, at);
        cr_assert(value_is(cursor->value, state[key]), "key %zu at %zu", key, at);
    }
}

/* A key, or what lies between two, or nothing. */
static struct slice random_from(char room[STORE_KEY_MAX]) {
    struct slice key = keys[rng_below(&rng, KEYS)];
    memcpy(room, key.data, key.size);
    switch (rng_below(&rng, 4)) {
        case 0: return slice_make(room, (size_t)rng_below(&rng, key.size + 1));
        case 1: room[key.size - 1]++; return slice_make(room, key.size);
        default: return key;
    }
}

static void check_ranges(struct store_txn *read, uint8_t table, const uint32_t *state, size_t at) {
    struct store_cursor cursors[3];
    char room[STORE_KEY_MAX];
    for (size_t i = 0; i < ARRAY_COUNT(cursors); i++) { /* several at once, one of them read to its end */
        struct slice from = i ? random_from(room) : slice_make("", 0);
        store_cursor_open(&cursors[i], read, table, from);
        check_range(&cursors[i], state, from, i ? (size_t)rng_below(&rng, 6) : KEYS + 1, at);
    }
    /* closed in another order than they were opened in; one is left open now and then */
    store_cursor_close(&cursors[1]);
    store_cursor_close(&cursors[0]);
    if (rng_below(&rng, 3)) store_cursor_close(&cursors[2]);
}

static void check_at(struct store_txn *read, size_t at) {
    check_gets(read, ONE, states[at][0], at);
    check_gets(read, TWO, states[at][1], at);
    check_ranges(read, ONE, states[at][0], at);
    check_ranges(read, TWO, states[at][1], at);
    check_gets(read, OTHER, others[INDEXES], at); /* of these there are no notes */
}

static void empty_tables(void) {
    txn = store_write(store);
    for (size_t key = 0; key < KEYS; key++)
        for (uint8_t table = ONE; table <= OTHER; table++) (void)store_del(txn, table, keys[key]);
    cr_assert_eq(store_commit(txn), CO_OK);
}

static void one_world(uint64_t seed) {
    struct arena arena = {0};
    rng_seed(&rng, seed);
    make_keys(&arena);
    apply_entries();
    for (size_t at = 0; at <= INDEXES; at++) {
        size_t floor = (size_t)rng_between(&rng, 0, at); /* notes of what was before do not matter */
        struct store_past *past = past_since(floor);
        struct store_txn *read = store_read(reader);
        store_read_past(read, past, at);
        check_at(read, at);
        store_read_past(read, NULL, 0);
        check_gets(read, ONE, states[INDEXES][0], at); /* the present again */
        store_read_done(reader);
        store_past_free(past);
    }
    /* One past shows each of its indexes, in any order. */
    struct store_past *past = past_since(0);
    for (unsigned i = 0; i < 60; i++) {
        size_t at = (size_t)rng_between(&rng, 0, INDEXES);
        struct store_txn *read = store_read(reader);
        store_read_past(read, past, at);
        check_gets(read, ONE, states[at][0], at);
        store_read_done(reader); /* and the transaction forgets it */
        read = store_read(reader);
        check_gets(read, ONE, states[INDEXES][0], at);
        store_read_done(reader);
    }
    store_past_free(past);
    empty_tables();
    arena_free(&arena);
}

Test(store_journal, the_past_is_what_it_was, .init = setup, .fini = teardown) {
    for (uint64_t seed = 1; seed <= 4; seed++) one_world(seed);
    for (size_t i = 0; i <= INDEXES; i++) buffer_free(&notes[i]);
}

Test(store_journal, a_past_without_notes_is_the_present, .init = setup, .fini = teardown) {
    txn = store_write(store);
    put(ONE, "a", "1");
    cr_assert_eq(store_commit(txn), CO_OK);
    struct store_past *past = store_past_new();
    struct store_txn *read = store_read(reader);
    store_read_past(read, past, 5);
    struct slice value;
    cr_assert(store_get(read, ONE, SLICE_LITERAL("a"), &value) == CO_OK && slice_is(value, "1"));
    struct store_cursor cursor;
    store_cursor_open(&cursor, read, ONE, slice_make("", 0));
    cr_assert(cursor.valid && slice_is(cursor.key, "a"));
    store_cursor_next(&cursor);
    cr_assert_not(cursor.valid);
    store_cursor_next(&cursor);
    cr_assert_not(cursor.valid, "nor afterwards");
    store_cursor_close(&cursor);
    store_cursor_open(&cursor, read, TWO, slice_make("", 0));
    cr_assert_not(cursor.valid, "an empty table");
    store_cursor_close(&cursor);
    store_read_done(reader);
    store_past_free(past);
}
