/* Damage of every kind to a store's file is found without LMDB, and nothing else is. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "small_store.h"

/* Some thousand records of all sizes, in several transactions with deletions, three levels deep. */
static void fill(struct store *store) {
    struct rng rng;
    rng_seed(&rng, 7);
    char value[9000];
    memset(value, 'x', sizeof value);
    for (int round = 0; round < 10; round++) {
        struct store_txn *txn = store_write(store);
        for (int i = 0; i < 1500; i++) {
            char key[64];
            int size = snprintf(key, sizeof key, "some-key-with-a-long-name/%06" PRIu64, rng_below(&rng, 9000));
            size_t bytes = i % 100 == 0 ? 1 + rng_below(&rng, sizeof value) : 1 + rng_below(&rng, 200);
            if (i % 5 == 4) (void)store_del(txn, 1, slice_make(key, (size_t)size));
            else store_put(txn, (uint8_t)(i % 7 ? 1 : 2), slice_make(key, (size_t)size), slice_make(value, bytes));
        }
        put_text(txn, STORE_TABLE_META, "applied", "0123456789abcdef");
        cr_assert_eq(store_commit(txn), CO_OK);
    }
}

static int examine(struct store *store, struct store_scrubbed *out, struct fault *fault) {
    *fault = (struct fault){0};
    return store_examine(store, NULL, NULL, out, fault);
}

Test(store_examine, a_whole_store_is_whole) {
    const char *folder = scratch_folder();
    struct store *store = open_at(folder, NULL);
    struct store_scrubbed seen;
    struct fault fault = {0};
    cr_assert_eq(examine(store, &seen, &fault), CO_OK, "%s", fault.text);
    cr_assert_eq(seen.records, 0);
    fill(store);
    cr_assert_eq(examine(store, &seen, &fault), CO_OK, "%s", fault.text);
    cr_assert_eq(seen.found, sum_of(store));
    struct store_reader *reader = store_reader_new(store);
    struct store_txn *txn = store_read(reader);
    cr_assert_eq(seen.records, store_count(txn, 1) + store_count(txn, 2) + 1);
    store_read_done(reader);
    store_reader_free(reader);
    store_close(store);
    scratch_remove(folder);
}

static bool at_once(void *data) {
    (void)data;
    return true;
}

Test(store_examine, it_can_be_stopped) {
    const char *folder = scratch_folder();
    struct store *store = open_at(folder, NULL);
    fill(store);
    struct store_scrubbed seen;
    struct fault fault = {0};
    cr_assert_eq(store_examine(store, at_once, NULL, &seen, &fault), CO_AGAIN);
    store_close(store);
    scratch_remove(folder);
}

/* One byte of one page, in a running store; then it is put right again. Nothing that a stray write may do to a page
 * in use crashes the examination or stays unseen, except in bytes that no record is in. Each page of the file gets a
 * flip somewhere in its used parts. */
Test(store_examine, flipped_bytes_are_found) {
    const char *folder = scratch_folder();
    struct store *store = open_at(folder, NULL);
    fill(store);
    char *path = store_path(folder, "data.mdb");
    int fd = open(path, O_RDWR);
    cr_assert(fd >= 0);
    struct rng rng;
    rng_seed(&rng, 11);
    struct store_scrubbed seen;
    struct fault fault;
    uint64_t pages = store_bytes(store) / 4096, found = 0;
    for (int i = 0; i < 600; i++) {
        char byte, flipped;
        off_t at = (off_t)(rng_below(&rng, pages) * 4096 + rng_below(&rng, 4096));
        cr_assert_eq(pread(fd, &byte, 1, at), 1);
        flipped = (char)(byte ^ (char)(1 << rng_below(&rng, 8)));
        cr_assert_eq(pwrite(fd, &flipped, 1, at), 1);
        int error = examine(store, &seen, &fault);
        cr_assert(error == CO_OK || error == CO_CORRUPT || error == CO_UNSUPPORTED, "byte %lld: %d %s", (long long)at,
                  error, fault.text);
        found += error == CO_CORRUPT;
        cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    }
    cr_assert_eq(examine(store, &seen, &fault), CO_OK, "%s", fault.text);
    cr_assert(found > 150, "%lu of 600", (unsigned long)found); /* the rest: free pages, and room in pages */
    close(fd);
    free(path);
    store_close(store);
    scratch_remove(folder);
}

/* Every key and value of a record: found by what it is. */
Test(store_examine, every_byte_of_a_value_counts) {
    const char *folder = scratch_folder();
    struct store *store = open_at(folder, NULL);
    fill(store);
    put_committed(store, "needle-key", "needle-value-in-a-haystack");
    char *path = store_path(folder, "data.mdb");
    int fd = open(path, O_RDWR);
    uint64_t size = store_bytes(store);
    char *bytes = malloc(size);
    cr_assert(fd >= 0 && pread(fd, bytes, size, 0) == (ssize_t)size);
    char *at = memmem(bytes, size, "needle-keyneedle-value", 22);
    cr_assert(at);
    struct store_scrubbed seen;
    struct fault fault;
    for (size_t i = 0; i < 36; i++) {
        char flipped = (char)(at[i] ^ 4);
        cr_assert_eq(pwrite(fd, &flipped, 1, at - bytes + (off_t)i), 1);
        cr_assert_eq(examine(store, &seen, &fault), CO_CORRUPT, "byte %zu", i);
        cr_assert_eq(pwrite(fd, at + i, 1, at - bytes + (off_t)i), 1);
    }
    cr_assert_eq(examine(store, &seen, &fault), CO_OK);
    free(bytes);
    close(fd);
    free(path);
    store_close(store);
    scratch_remove(folder);
}

/* Pages of zeros and of noise: never a crash, and found whenever the page was in use. */
Test(store_examine, wiped_pages_are_found) {
    const char *folder = scratch_folder();
    struct store *store = open_at(folder, NULL);
    fill(store);
    char *path = store_path(folder, "data.mdb"), page[4096], other[4096];
    int fd = open(path, O_RDWR);
    cr_assert(fd >= 0);
    struct rng rng;
    rng_seed(&rng, 12);
    struct store_scrubbed seen;
    struct fault fault;
    uint64_t pages = store_bytes(store) / 4096, found = 0;
    for (uint64_t i = 2; i < pages; i++) {
        cr_assert_eq(pread(fd, page, sizeof page, (off_t)(i * 4096)), 4096);
        for (size_t b = 0; b < sizeof other; b++) other[b] = i % 2 ? 0 : (char)rng_next(&rng);
        if (i % 4 == 2) memcpy(other, page, 12); /* the noise begins where LMDB would believe it */
        cr_assert_eq(pwrite(fd, other, sizeof other, (off_t)(i * 4096)), 4096);
        int error = examine(store, &seen, &fault);
        cr_assert(error == CO_OK || error == CO_CORRUPT, "page %lu: %d %s", (unsigned long)i, error, fault.text);
        found += error == CO_CORRUPT;
        cr_assert_eq(pwrite(fd, page, sizeof page, (off_t)(i * 4096)), 4096);
    }
    cr_assert_eq(examine(store, &seen, &fault), CO_OK, "%s", fault.text);
    cr_assert(found * 3 > pages, "%lu of %lu", (unsigned long)found, (unsigned long)pages);
    close(fd);
    free(path);
    store_close(store);
    scratch_remove(folder);
}

/* -- marks -------------------------------------------------------------------------------------------------------- */

Test(store_fence, a_fenced_store_is_put_aside_until_the_mark_goes) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    put_committed(store, "k", "v");
    struct fault fault = {0};
    char text[100];
    cr_assert(!store_fenced(folder, text, sizeof text));
    cr_assert_eq(store_fence(folder, "index 7", &fault), CO_OK);
    cr_assert(store_fenced(folder, text, sizeof text));
    cr_assert_str_eq(text, "index 7");
    store_close(store);
    store = open_at(folder, &trusted);
    cr_assert(!trusted);
    cr_assert(!has_text(store, 1, "k", "v"));
    put_committed(store, "k", "w");
    cr_assert_eq(store_unfence(folder), CO_OK);
    store_close(store);
    store = open_at(folder, &trusted);
    cr_assert(trusted);
    cr_assert(has_text(store, 1, "k", "w"));
    store_close(store);
    scratch_remove(folder);
}

/* A process that dies of a signal; what it does to the store first is up to `damage`. */
static void die(const char *folder, bool damage) {
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 2; i++) signal(i ? SIGABRT : SIGSEGV, SIG_DFL);
        struct store *store = open_at(folder, NULL);
        fill(store);
        store_watch_crashes(folder);
        char *path = store_path(folder, "data.mdb"), page[4096] = "";
        int fd = open(path, O_RDWR);
        for (uint64_t i = 2; damage && i < store_bytes(store) / 4096; i++)
            if (pwrite(fd, page, sizeof page, (off_t)(i * 4096)) != 4096) _exit(3);
        abort();
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%x", status);
}

Test(store_fence, after_a_crash_a_whole_store_is_trusted_and_a_damaged_one_is_not) {
    for (int damage = 0; damage < 2; damage++) {
        const char *folder = scratch_folder();
        die(folder, damage);
        char *suspect = store_path(folder, "suspect");
        cr_assert_eq(access(suspect, F_OK), 0);
        bool trusted;
        struct store *store = open_at(folder, &trusted);
        cr_assert_eq(trusted, !damage);
        put_committed(store, "k", "w");
        store_close(store);
        store = open_at(folder, &trusted);
        cr_assert(trusted);
        cr_assert(has_text(store, 1, "k", "w"));
        cr_assert_neq(access(suspect, F_OK), 0);
        store_close(store);
        free(suspect);
        scratch_remove(folder);
    }
}
