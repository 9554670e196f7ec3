/* Readers, views and the thread that writes the file out beside the writer, and while the file under them is replaced: each
 * transaction sees one state, and none goes back. A plain main: runs under tsan. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/store_file.h"
#include "tests/lib/scratch.h"

enum { READERS = 3, KEYS = 20, TURNS = 10000, REPLACE_EVERY = 1000 };

static const struct store_table tables[] = {{1, "one"}};
static struct store *store;
static atomic_bool stopping;
static _Atomic uint64_t committed, reads, views;

static void *read_thread(void *argument) {
    (void)argument;
    struct store_reader *reader = store_reader_new(store);
    uint64_t last = 0;
    while (!atomic_load(&stopping)) {
        uint64_t least = atomic_load(&committed), first = 0;
        struct store_txn *txn = store_read(reader);
        for (char key = 'a'; key < 'a' + KEYS; key++) {
            struct slice value;
            CHECK(store_get(txn, 1, slice_make(&key, 1), &value) == CO_OK && value.size == 8);
            if (key == 'a') first = get_be64(value.data);
            CHECK(get_be64(value.data) == first);
        }
        struct store_cursor cursor;
        size_t seen = 0;
        for (store_cursor_open(&cursor, txn, 1, slice_make("", 0)); cursor.valid; store_cursor_next(&cursor)) seen++;
        store_cursor_close(&cursor);
        CHECK(seen == KEYS && store_sum(txn) == store_scrub(txn));
        store_read_done(reader);
        CHECK(first >= least && first >= last);
        last = first;
        atomic_fetch_add(&reads, 1);
        (void)store_has_room(store);
    }
    store_reader_free(reader);
    return NULL;
}

static void write_turn(uint64_t turn) {
    struct store_txn *txn = store_write(store);
    char bytes[8];
    put_be64(bytes, turn);
    for (char key = 'a'; key < 'a' + KEYS; key++)
        store_put(txn, 1, slice_make(&key, 1), slice_make(bytes, sizeof bytes));
    CHECK(store_commit(txn) == CO_OK);
    atomic_store(&committed, turn);
}

/* A file that is no longer left to the kernel (store_flush.c). */
static void grow_file(void) {
    size_t size = (size_t)17 << 20;
    char *value = mem_zalloc(size);
    struct store_txn *txn = store_write(store);
    store_put(txn, 1, slice_make("large", 5), slice_make(value, size));
    CHECK(store_commit(txn) == CO_OK);
    txn = store_write(store);
    CHECK(store_del(txn, 1, slice_make("large", 5)) && store_commit(txn) == CO_OK);
    CHECK(store->flush_runs);
    free(value);
}

/* All records that a view hands out are of one turn. */
struct viewed {
    uint64_t turn, keys;
};

static void view_record(void *data, uint8_t table, struct slice key, struct slice value) {
    struct viewed *viewed = data;
    if (table != 1 || key.size != 1) return;
    CHECK(value.size == 8 && (!viewed->keys || viewed->turn == get_be64(value.data)));
    viewed->turn = get_be64(value.data);
    viewed->keys++;
}

static void *view_thread(void *argument) {
    (void)argument;
    while (!atomic_load(&stopping)) {
        uint64_t least = atomic_load(&committed);
        struct viewed viewed = {0};
        struct store_view *view = store_view_open(store);
        int rv;
        while ((rv = store_view_next(view, view_record, &viewed)) == CO_OK) sched_yield();
        store_view_close(view);
        CHECK(rv == CO_NOTFOUND && viewed.keys == KEYS && viewed.turn >= least);
        atomic_fetch_add(&views, 1);
        usleep(1000); /* a file is not switched while there is a view */
    }
    return NULL;
}

static void replace_by_copy(void) {
    int fd = memfd_create("copy", MFD_CLOEXEC);
    CHECK(fd >= 0 && store_copy(store, fd) == CO_OK);
    lseek(fd, 0, SEEK_SET);
    struct fault fault = {0};
    CHECK(store_replace(store, fd, 0, &fault) == CO_OK);
    close(fd);
}

int main(void) {
    const char *folder = scratch_folder();
    struct store_config config = scratch_config(folder, tables, 1);
    struct fault fault = {0};
    bool trusted;
    CHECK(store_open(&config, &store, &trusted, &fault) == CO_OK);
    grow_file();
    write_turn(1);
    pthread_t threads[READERS], viewer;
    for (int i = 0; i < READERS; i++) CHECK(pthread_create(&threads[i], NULL, read_thread, NULL) == 0);
    CHECK(pthread_create(&viewer, NULL, view_thread, NULL) == 0);
    unsigned compacted = 0;
    for (uint64_t turn = 2; turn <= TURNS || atomic_load(&reads) < 100 || atomic_load(&views) < 20 || compacted < 3;
         turn++) {
        bool compacts = store->compact;
        write_turn(turn);
        compacted += compacts && !store->compact;
        if (turn % REPLACE_EVERY == 0) replace_by_copy();
        else if (turn % 100 == 10) CHECK(store_compact_begin(store));
    }
    atomic_store(&stopping, true);
    for (int i = 0; i < READERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(pthread_join(viewer, NULL) == 0);
    printf("%llu reads and %llu views, each of one state, with %u files made anew\n",
           (unsigned long long)atomic_load(&reads), (unsigned long long)atomic_load(&views), compacted);
    store_close(store);
    scratch_remove(folder);
    return 0;
}
