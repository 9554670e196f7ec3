/* One bit is flipped in a store that is open: in a separator of a branch page, or in a key of a leaf. LMDB finds its
 * way by those. A read then gives the right record or an error: none is missed, and none is put a second time. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "small_store.h"

#define PAGE    ((size_t)4096)
#define SHORT   300 /* in table 1; a branch above their leaves */
#define LONG    120 /* in table 40, with long keys: branches above branches */
#define KEYS    (SHORT + LONG)
#define FEW     3 /* in table 2: one leaf, no branch */
#define ROOM    6000
#define APPLIED "0123456789abcdef"
#if defined(COORD_ASAN) || defined(COORD_TSAN)
#define STRIDE 37
#else
#define STRIDE 1
#endif

static const char *folder;
static struct store *store;
static struct store_reader *reader;
static char *bytes; /* the file, as LMDB sees it */
static size_t pages;
static uint64_t sum;

/* -- what is in it ------------------------------------------------------------------------------------------------ */

static uint8_t table_of(size_t i) { return i < SHORT ? 1 : i < KEYS ? 40 : 2; }

/* Records have the even numbers; `beside`: the odd one behind, which is not there. */
static struct slice key_of(size_t i, size_t beside, char key[STORE_KEY_MAX]) {
    bool is_long = table_of(i) == 40;
    int size = snprintf(key, STORE_KEY_MAX, is_long ? "key/%0*zu/%0200d" : "key/%0*zu", 4, 2 * i + beside, 0);
    return slice_make(key, (size_t)size);
}

/* Some have pages of their own. */
static struct slice value_of(size_t i, char value[ROOM]) {
    size_t size = i % 50 == 7 ? ROOM : 20 + i * 7 % 90;
    memset(value, (int)('a' + i % 26), size);
    return slice_make(value, size);
}

static void make(void) {
    char key[STORE_KEY_MAX];
    static char value[ROOM];
    folder = scratch_folder();
    store = open_at(folder, NULL);
    struct store_txn *txn = store_write(store);
    for (size_t i = 0; i < KEYS + FEW; i++) store_put(txn, table_of(i), key_of(i, 0, key), value_of(i, value));
    put_text(txn, STORE_TABLE_META, "applied", APPLIED);
    cr_assert_eq(store_commit(txn), CO_OK);
    reader = store_reader_new(store);
    sum = sum_of(store);
    pages = store_bytes(store) / PAGE;
    char *path = store_path(folder, "data.mdb");
    int fd = open(path, O_RDWR);
    bytes = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert(fd >= 0 && bytes != MAP_FAILED);
    close(fd);
    free(path);
    int nowhere = open("/dev/null", O_WRONLY); /* what the store says of each damage */
    CHECK(nowhere >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
    close(nowhere);
}

static void unmake(void) {
    munmap(bytes, pages * PAGE);
    store_reader_free(reader);
    store_close(store);
    scratch_remove(folder);
}
TestSuite(store_find, .init = make, .fini = unmake, .timeout = 600);

/* -- what may be said of it --------------------------------------------------------------------------------------- */

static size_t met; /* how often damage was */

/* Each in a transaction of its own, which ends with the first damage. NULL: right, or an error. */
static const char *wrong_get(size_t i, size_t beside) {
    char key[STORE_KEY_MAX];
    static char value[ROOM];
    struct slice found;
    struct store_txn *txn = store_read(reader);
    const char *why = NULL;
    int rv = store_get(txn, table_of(i), key_of(i, beside, key), &found);
    if (rv == CO_OK && beside) why = "a record that was never put";
    else if (rv == CO_OK && !slice_equal(found, value_of(i, value))) why = "another value";
    else if (rv == CO_NOTFOUND && !beside && !store_txn_error(txn)) why = "it is missed";
    met += store_txn_error(txn) == CO_CORRUPT;
    store_read_done(reader);
    return why;
}

static const char *wrong_range(size_t i, size_t beside) {
    char key[STORE_KEY_MAX], first[STORE_KEY_MAX];
    size_t from = i + beside, end = i < SHORT ? SHORT : i < KEYS ? KEYS : KEYS + FEW;
    struct store_txn *txn = store_read(reader);
    const char *why = NULL;
    struct store_cursor cursor;
    store_cursor_open(&cursor, txn, table_of(i), key_of(i, beside, key));
    if (cursor.valid && (from == end || !slice_equal(cursor.key, key_of(from, 0, first)))) why = "it begins elsewhere";
    else if (!cursor.valid && from < end && !store_txn_error(txn)) why = "it has no beginning";
    store_cursor_close(&cursor);
    met += store_txn_error(txn) == CO_CORRUPT;
    store_read_done(reader);
    return why;
}

/* Changes, taken back. None of them looks before; of every other LMDB's cursor is elsewhere. */
static const char *wrong_change(size_t i) {
    char key[STORE_KEY_MAX];
    struct store_txn *txn = store_write(store);
    uint64_t before = store_count(txn, table_of(i));
    const char *why = NULL;
    struct slice ignored;
    if (i % 2) (void)store_get(txn, table_of(i), slice_text("a"), &ignored);
    store_put(txn, table_of(i), key_of(i, 0, key), slice_text("new"));
    if (!store_txn_error(txn) && store_count(txn, table_of(i)) != before) why = "it is put a second time";
    store_put(txn, table_of(i), key_of(i, 1, key), slice_text("new"));
    if (!store_txn_error(txn) && store_count(txn, table_of(i)) != before + 1) why = "one that was not there is";
    if (!store_del(txn, table_of(i), key_of(i, 0, key)) && !store_txn_error(txn)) why = "it is not there to remove";
    met += store_txn_error(txn) == CO_CORRUPT;
    store_abort(txn);
    return why;
}

static void ask(const char *where, size_t i, bool changes) {
    for (size_t beside = 0; beside < 2; beside++) {
        const char *why = wrong_get(i, beside);
        cr_assert_null(why, "%s: get %zu+%zu: %s", where, i, beside, why);
        why = wrong_range(i, beside);
        cr_assert_null(why, "%s: range %zu+%zu: %s", where, i, beside, why);
    }
    const char *why = changes ? wrong_change(i) : NULL;
    cr_assert_null(why, "%s: change %zu: %s", where, i, why);
}

static void ask_of_table_0(const char *where) {
    struct store_txn *txn = store_read(reader);
    struct slice found;
    int rv = store_get(txn, STORE_TABLE_META, slice_text("applied"), &found);
    cr_assert(rv == CO_CORRUPT || (rv == CO_OK && slice_is(found, APPLIED)), "%s: %d", where, rv);
    uint64_t kept = store_sum(txn);
    cr_assert(store_txn_error(txn) == CO_CORRUPT || kept == sum, "%s: the sum", where);
    met += store_txn_error(txn) == CO_CORRUPT;
    store_read_done(reader);
}

/* The questions after each flip: for the record itself, and for each `stride`-th. */
struct asked {
    size_t stride;
    bool changes;
};

static void ask_all(const char *where, size_t itself, size_t turn, struct asked asked) {
    ask_of_table_0(where);
    if (itself < KEYS + FEW) ask(where, itself, asked.changes);
    for (size_t i = turn % asked.stride; i < KEYS + FEW; i += asked.stride) ask(where, i, asked.changes);
}

/* -- damage ------------------------------------------------------------------------------------------------------- */

static size_t u16(const char *at) { return (unsigned char)at[0] | (size_t)(unsigned char)at[1] << 8; }

enum { BRANCH = 1, LEAF = 2 };

/* The number of the record that has this key. */
static size_t number_of(struct slice key) {
    size_t number = 0;
    if (!slice_starts(key, slice_text("key/"))) return KEYS + FEW;
    for (size_t at = 4; at < 8; at++) number = number * 10 + (size_t)(key.data[at] - '0');
    return number / 2;
}

/* Each `stride`-th bit of the keys that begin with `prefix` in all pages of one kind (every eleventh of those of long
 * keys). */
static void flip_each(size_t kind, struct slice prefix, size_t stride, struct asked asked) {
    size_t flips = 0, before = met;
    for (size_t number = 2; number < pages; number++) {
        char *page = bytes + number * PAGE, where[80];
        if (u16(page + 10) != kind) continue;
        for (size_t n = 0; n < (u16(page + 12) - 16) / 2; n++) {
            char *node = page + u16(page + 16 + 2 * n);
            struct slice key = slice_make(node + 8, u16(node + 6));
            if (!slice_starts(key, prefix)) continue;
            size_t itself = number_of(key), step = key.size > 32 ? 11 * stride : stride;
            for (size_t bit = n % step; bit < key.size * 8; bit += step, flips++) {
                snprintf(where, sizeof where, "page %zu, node %zu, bit %zu", number, n, bit);
                node[8 + bit / 8] ^= (char)(1 << bit % 8);
                ask_all(where, itself, flips, asked);
                node[8 + bit / 8] ^= (char)(1 << bit % 8);
            }
        }
    }
    cr_log_info("%zu flips, damage was met %zu times", flips, met - before);
    cr_assert_gt(flips, 4);
    cr_assert_gt(met - before, flips);
}

Test(store_find, of_a_store_that_is_whole) {
    ask_all("whole", 0, 0, (struct asked){1, true});
    cr_assert_eq(met, 0);
    cr_assert_not(store_damaged(store));
}

Test(store_find, after_a_bit_of_a_separator_was_flipped) {
    flip_each(BRANCH, slice_text("key/"), STRIDE, (struct asked){1, false});
}

Test(store_find, after_a_bit_of_a_key_was_flipped) {
    flip_each(LEAF, slice_text("key/"), STRIDE, (struct asked){29, false});
}

Test(store_find, and_then_it_is_changed) {
    flip_each(BRANCH, slice_text("key/"), 7 * STRIDE, (struct asked){7, true});
    flip_each(LEAF, slice_text("key/"), 7 * STRIDE, (struct asked){61, true});
}

/* They lie in one tree. */
Test(store_find, after_a_bit_of_a_table_s_name_or_of_a_key_of_table_0_was_flipped) {
    struct asked asked = {1, true};
    for (size_t i = 0; i < ARRAY_COUNT(small_tables); i++) flip_each(LEAF, slice_text(small_tables[i].name), 1, asked);
    flip_each(LEAF, SLICE_LITERAL("\0applied"), 1, asked);
    flip_each(LEAF, SLICE_LITERAL("\0sum"), 1, asked);
}
