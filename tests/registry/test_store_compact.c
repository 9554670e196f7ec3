/* A new file takes the place of one that is mostly free, while the writer goes on. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/registry/small_store.h"

enum { KEYS = 4000, VALUE = 900 };

static char model[KEYS]; /* the letter that the record's value is made of; 0: there is none */

static void set(struct store_txn *txn, size_t k, char letter) {
    char key[16], value[VALUE];
    int size = snprintf(key, sizeof key, "k%05zu", k);
    memset(value, letter, sizeof value);
    if (letter) store_put(txn, 2, slice_make(key, (size_t)size), slice_make(value, sizeof value));
    else (void)store_del(txn, 2, slice_make(key, (size_t)size));
    model[k] = letter;
}

static void expect_model(struct store *store) {
    struct store_reader *reader = store_reader_new(store);
    struct store_txn *txn = store_read(reader);
    for (size_t k = 0; k < KEYS; k++) {
        char key[16];
        struct slice value;
        int size = snprintf(key, sizeof key, "k%05zu", k);
        int rv = store_get(txn, 2, slice_make(key, (size_t)size), &value);
        cr_assert_eq(rv, model[k] ? CO_OK : CO_NOTFOUND, "%s", key);
        if (model[k]) cr_assert(value.size == VALUE && value.data[0] == model[k] && value.data[VALUE - 1] == model[k]);
    }
    store_read_done(reader);
    store_reader_free(reader);
    (void)sum_of(store);
}

static void fill(struct store *store) {
    struct store_txn *txn = store_write(store);
    for (size_t k = 0; k < KEYS; k++) set(txn, k, 'a');
    cr_assert_eq(store_commit(txn), CO_OK);
}

static void remove_most(struct store *store) {
    struct store_txn *txn = store_write(store);
    for (size_t k = 0; k < KEYS; k++)
        if (k % 10) set(txn, k, 0);
    cr_assert_eq(store_commit(txn), CO_OK);
}

static void change_some(struct store *store, struct rng *rng) {
    struct store_txn *txn = store_write(store);
    for (int i = 0; i < 20; i++)
        set(txn, 10 * rng_below(rng, KEYS / 10), rng_below(rng, 4) ? (char)('b' + rng_below(rng, 20)) : 0);
    cr_assert_eq(store_commit(txn), CO_OK);
}

static ino_t inode_of(const char *folder) {
    char path[256];
    struct stat info;
    snprintf(path, sizeof path, "%s/data.mdb", folder);
    cr_assert_eq(stat(path, &info), 0);
    return info.st_ino;
}

/* Writes until it is over. */
static void compact(struct store *store, struct rng *rng) {
    cr_assert(store_compact_begin(store));
    while (store->compact) change_some(store, rng);
}

Test(store_compact, the_file_becomes_small_and_holds_what_it_held, .timeout = 300) {
    const char *folder = scratch_folder();
    struct rng rng;
    rng_seed(&rng, 1);
    struct store *store = open_at(folder, NULL);
    struct store_reader *reader = store_reader_new(store); /* one from before, in use after */
    fill(store);
    (void)store_get(store_read(reader), 2, slice_text("k00000"), &(struct slice){0});
    store_read_done(reader);
    remove_most(store);
    uint64_t before = store_bytes(store);
    ino_t inode = inode_of(folder);
    compact(store, &rng);
    cr_expect_lt(store_bytes(store), before / 2, "%zu of %zu", (size_t)store_bytes(store), (size_t)before);
    cr_expect_neq(inode_of(folder), inode);
    expect_model(store);
    struct slice value;
    cr_expect_eq(store_get(store_read(reader), 2, slice_text("k00010"), &value), model[10] ? CO_OK : CO_NOTFOUND);
    store_read_done(reader);
    store_reader_free(reader);
    change_some(store, &rng);
    expect_model(store);
    store_close(store);
    bool trusted;
    store = open_at(folder, &trusted);
    cr_expect(trusted);
    expect_model(store);
    store_close(store);
    scratch_remove(folder);
}

Test(store_compact, much_that_is_free_is_reason_enough_but_not_at_once) {
    const char *folder = scratch_folder();
    struct store_config config = scratch_config(folder, small_tables, ARRAY_COUNT(small_tables));
    struct store *store;
    struct fault fault = {0};
    bool trusted;
    config.compact_free_bytes = 1 << 20;
    cr_assert_eq(store_open(&config, &store, &trusted, &fault), CO_OK);
    struct {
        uint64_t at_ms, file, live;
        bool begins;
    } turns[] = {
        {1000, 10 << 20, 10 << 20, false},  {2000, 12 << 20, 10 << 20, false},  {11000, 12 << 20, 10 << 20, false},
        {11500, 10 << 20, 10 << 20, false}, {12500, 12 << 20, 10 << 20, false}, {22400, 12 << 20, 10 << 20, false},
        {22500, 12 << 20, 10 << 20, true},
    };
    for (size_t i = 0; i < ARRAY_COUNT(turns); i++) {
        store_compact_judge(store, turns[i].at_ms, turns[i].file, turns[i].live);
        cr_assert_eq(store->compact != NULL, turns[i].begins, "turn %zu", i);
    }
    store_compact_stop(store);
    uint64_t now = clock_mono_ms(); /* soon after one no other begins */
    store_compact_judge(store, now + 1, 12 << 20, 10 << 20);
    store_compact_judge(store, now + 20000, 12 << 20, 10 << 20);
    cr_expect_null(store->compact);
    store_compact_judge(store, now + 70000, 12 << 20, 10 << 20);
    cr_expect_not_null(store->compact);
    store_compact_judge(store, now + 70000, (uint64_t)1 << 40, 0); /* one at a time */
    while (list_empty(&store->readers)) sched_yield();
    store_close(store); /* ends it, with its reader */
    scratch_remove(folder);
}

Test(store_compact, a_large_store_may_have_more_that_is_free) {
    const char *folder = scratch_folder();
    struct store *store = open_at(folder, NULL);
    uint64_t gib = (uint64_t)1 << 30;
    store_compact_judge(store, 1000, gib + gib / 17, gib);
    cr_expect_eq(store->crowded_ms, 0);
    store_compact_judge(store, 1000, gib + gib / 15, gib);
    cr_expect_eq(store->crowded_ms, 1000);
    store_close(store);
    scratch_remove(folder);
}

/* While it is there, the switch is put off, and nobody waits for it. */
Test(store_compact, a_long_read_puts_the_switch_off, .timeout = 300) {
    const char *folder = scratch_folder();
    struct rng rng;
    rng_seed(&rng, 2);
    struct store *store = open_at(folder, NULL);
    fill(store);
    remove_most(store);
    struct store_view *view = store_view_open(store);
    ino_t inode = inode_of(folder);
    cr_assert(store_compact_begin(store));
    for (uint64_t begun = clock_mono_ms(); clock_mono_ms() - begun < 500;) change_some(store, &rng);
    cr_expect_eq(inode_of(folder), inode);
    store_view_close(view);
    while (store->compact) change_some(store, &rng);
    cr_expect_neq(inode_of(folder), inode);
    expect_model(store);
    store_close(store);
    scratch_remove(folder);
}

Test(store_compact, a_store_that_is_replaced_meanwhile_is_the_replaced_one, .timeout = 300) {
    const char *folder = scratch_folder();
    struct store *store = open_at(folder, NULL);
    fill(store);
    remove_most(store);
    cr_assert(store_compact_begin(store));
    struct fault fault = {0};
    cr_assert_eq(store_clear(store, &fault), CO_OK, "%s", fault.text);
    cr_expect_null(store->compact);
    memset(model, 0, sizeof model);
    expect_model(store);
    store_close(store);
    scratch_remove(folder);
}

/* A process that is killed at any time leaves a store that is trusted, and holds all that was committed. The child tells
 * by a pipe which turn it has committed last. */
static void killed_after(unsigned ms) {
    const char *folder = scratch_folder();
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct store *store = open_at(folder, NULL);
        fill(store);
        remove_most(store);
        char turn[16];
        for (unsigned i = 1;; i++) {
            if (!store->compact && !store_compact_begin(store)) _exit(1);
            snprintf(turn, sizeof turn, "%015u", i);
            put_committed(store, "turn", turn);
            if (write(ends[1], turn, sizeof turn) != sizeof turn) _exit(1);
        }
    }
    close(ends[1]);
    char told[16], last[16] = "";
    uint64_t begun = clock_mono_ms();
    while (read(ends[0], told, sizeof told) == sizeof told) {
        memcpy(last, told, sizeof last);
        if (clock_mono_ms() - begun >= ms) kill(child, SIGKILL);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
    close(ends[0]);
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    cr_expect(trusted);
    struct store_reader *reader = store_reader_new(store);
    struct slice value;
    cr_assert_eq(store_get(store_read(reader), 1, slice_text("turn"), &value), CO_OK);
    cr_expect(slice_compare(value, slice_text(last)) >= 0, "%.15s, %s was told", value.data, last);
    store_read_done(reader);
    store_reader_free(reader);
    (void)sum_of(store);
    store_close(store);
    scratch_remove(folder);
}

Test(store_compact, killed_at_any_time_it_is_whole, .timeout = 300) {
    for (unsigned ms = 20; ms < 400; ms += 19) killed_after(ms);
}
