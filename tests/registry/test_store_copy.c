/* Copies of the store, and replacing its content by one. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "small_store.h"

static int copy_to_file(struct store *store, const char *folder, const char *name) {
    char *path = store_path(folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    free(path);
    cr_assert(fd >= 0);
    cr_assert_eq(store_copy(store, fd), CO_OK);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static void fill_some(struct store *store, int count) {
    struct store_txn *txn = store_write(store);
    char key[32], *value = mem_zalloc(20000);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "key-%d", i * 7919 % count);
        store_put(txn, i % 2 ? 1 : 40, slice_text(key), slice_make(value, (size_t)(i * 37 % (i % 50 ? 300 : 20000))));
    }
    put_text(txn, STORE_TABLE_META, "applied", "x");
    cr_assert_eq(store_commit(txn), CO_OK);
    free(value);
}
Test(store_copy, a_copy_brings_the_same_state) {
    const char *from_folder = scratch_folder(), *to_folder = scratch_folder();
    bool trusted;
    struct store *from = open_at(from_folder, &trusted), *to = open_at(to_folder, &trusted);
    fill_some(from, 20000);
    put_committed(to, "old", "gone");
    struct store_reader *reader = store_reader_new(to); /* one from before, in use after */
    (void)store_read(reader);
    store_read_done(reader);
    int fd = copy_to_file(from, from_folder, "copy");
    struct stat info;
    fstat(fd, &info);
    struct fault fault = {0};
    cr_assert_eq(store_replace(to, fd, (uint64_t)info.st_size, &fault), CO_OK, "%s", fault.text);
    close(fd);
    cr_assert_eq(sum_of(to), sum_of(from));
    struct store_txn *txn = store_read(reader);
    struct slice value;
    cr_assert_eq(store_get(txn, 1, slice_text("old"), &value), CO_NOTFOUND);
    cr_assert_eq(store_get(txn, STORE_TABLE_META, slice_text("applied"), &value), CO_OK);
    store_read_done(reader);
    store_reader_free(reader);
    (void)sum_of(to);
    put_committed(to, "more", "1");
    (void)sum_of(to);
    cr_assert(to->file->used_bytes <= to->file->reserved_bytes);
    store_close(to);
    to = open_at(to_folder, &trusted);
    cr_assert(trusted);
    cr_assert(has_text(to, 1, "more", "1"));
    store_close(from);
    store_close(to);
    scratch_remove(from_folder);
    scratch_remove(to_folder);
}

struct replacing {
    struct store *store;
    int fd, error;
};

static void *replace_it(void *arg) {
    struct replacing *job = arg;
    job->error = store_replace(job->store, job->fd, 0, NULL);
    return NULL;
}

/* A snapshot's copy, say: what waits for it would stand still for seconds. */
Test(store_copy, others_read_on_while_a_long_read_keeps_the_store_from_being_replaced, .timeout = 300) {
    const char *folder = scratch_folder(), *other = scratch_folder();
    struct store *store = open_at(folder, NULL), *empty = open_at(other, NULL);
    put_committed(store, "k", "before");
    struct store_reader *slow = store_long_reader_new(store), *quick = store_reader_new(store);
    (void)store_read(slow);
    struct replacing job = {store, copy_to_file(empty, other, "copy"), -1};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, replace_it, &job), 0);
    while (!store->long_gate) usleep(1000);
    struct slice value;
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(store_get(store_read(quick), 1, slice_text("k"), &value), CO_OK);
        store_read_done(quick);
    }
    store_read_done(slow);
    pthread_join(thread, NULL);
    cr_assert_eq(job.error, CO_OK);
    cr_assert_eq(store_get(store_read(quick), 1, slice_text("k"), &value), CO_NOTFOUND);
    store_read_done(quick);
    (void)store_read(slow);
    store_read_done(slow);
    store_reader_free(slow), store_reader_free(quick);
    close(job.fd);
    store_close(store), store_close(empty);
    scratch_remove(folder), scratch_remove(other);
}

/* All of them in one go keep the log's disk busy for a tenth of a second. */
Test(store_copy, the_blocks_of_what_was_replaced_go_little_by_little) {
    const char *folder = scratch_folder(), *other = scratch_folder();
    struct store *store = open_at(folder, NULL), *empty = open_at(other, NULL);
    fill_some(store, 40000);
    int old = open(store->file->path, O_RDONLY), fd = copy_to_file(empty, other, "copy");
    struct stat info;
    fstat(old, &info);
    cr_assert_gt(info.st_blocks * 512, 6 << 20);
    struct fault fault = {0};
    cr_assert_eq(store_replace(store, fd, 0, &fault), CO_OK, "%s", fault.text);
    for (int i = 0; i < 30000 && info.st_blocks > 0; i++) usleep(1000), fstat(old, &info);
    cr_expect_eq(info.st_blocks, 0, "this handle kept them");
    close(old), close(fd);
    store_close(store), store_close(empty);
    scratch_remove(folder), scratch_remove(other);
}

Test(store_copy, a_newer_format_and_a_newer_table_are_told_apart_from_damage) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    put_committed(store, "k", "value");
    int fd = copy_to_file(store, folder, "copy");
    struct fault fault = {0};
    cr_assert_eq(pwrite(fd, "2", 1, 7), 1);
    lseek(fd, 0, SEEK_SET);
    cr_assert_eq(store_replace(store, fd, 0, &fault), CO_UNSUPPORTED);
    cr_assert_str_eq(fault.text, "store: a copy was written by a newer version of coord (format 2)");
    fault = (struct fault){0};
    cr_assert_eq(pwrite(fd, "1\x3e", 2, 7), 2);
    lseek(fd, 0, SEEK_SET);
    cr_assert_eq(store_replace(store, fd, 0, &fault), CO_UNSUPPORTED);
    cr_assert_str_eq(fault.text, "store: a copy has table 62, which this version does not know");
    cr_assert(has_text(store, 1, "k", "value"), "the old content stays");
    close(fd);
    store_close(store);
    scratch_remove(folder);
}

/* Each byte of a copy matters: cut short or changed anywhere, it is refused, and the old content stays. */
Test(store_copy, a_damaged_copy_is_refused) {
    const char *folder = scratch_folder();
    bool trusted;
    struct store *store = open_at(folder, &trusted);
    struct store_txn *txn = store_write(store);
    put_text(txn, 1, "k", "value");
    put_text(txn, 2, "l", "other");
    cr_assert_eq(store_commit(txn), CO_OK);
    int fd = copy_to_file(store, folder, "copy");
    char good[512];
    ssize_t size = read(fd, good, sizeof good);
    cr_assert(size > 0 && size < 512);
    struct fault fault = {0};
    for (ssize_t i = 0; i < size; i++) {
        for (int cut = 0; cut < 2; cut++) {
            char bad[512];
            memcpy(bad, good, sizeof bad);
            bad[i] ^= 4;
            cr_assert_eq(ftruncate(fd, 0), 0);
            cr_assert_eq(pwrite(fd, cut ? good : bad, (size_t)(cut ? i : size), 0), cut ? i : size);
            lseek(fd, 0, SEEK_SET);
            fault = (struct fault){0};
            cr_assert_neq(store_replace(store, fd, 0, &fault), CO_OK, "byte %zd", i);
            cr_assert_neq(fault.code, CO_OK);
        }
    }
    close(fd);
    cr_assert(has_text(store, 1, "k", "value"));
    put_committed(store, "still", "works");
    (void)sum_of(store);
    store_close(store);
    scratch_remove(folder);
}
