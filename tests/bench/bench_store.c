/* CPU of the store: looking up what is there and what is not, ranges, and changes. Prints one line each. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "registry/store.h"
#include "tests/bench/cpu.h"

enum { TABLE = 1, EMPTY = 2, RECORDS = 10000, VALUE = 140, TIMES = 500000, BATCH = 64 };

static struct store *store;
static struct rng rng;
static char value[VALUE];

static void print(const char *what, uint64_t spent, uint64_t count) {
    printf("%-48s %8.1f ns\n", what, (double)spent / (double)count);
}

/* Records have the even numbers. */
static struct slice key_of(uint64_t number, char key[32]) {
    return slice_make(key, (size_t)snprintf(key, 32, "app/config/%08" PRIu64, number));
}

static void bench_get(const char *what, uint8_t table, bool there, unsigned each) {
    struct store_reader *reader = store_reader_new(store);
    char keys[BATCH][32];
    uint64_t spent = 0;
    for (unsigned n = 0; n < TIMES; n += BATCH) {
        for (unsigned i = 0; i < BATCH; i++) (void)key_of(2 * rng_below(&rng, RECORDS) + !there, keys[i]);
        uint64_t before = cpu_ns();
        for (unsigned i = 0; i < BATCH; i += each) {
            struct store_txn *txn = store_read(reader);
            for (unsigned k = i; k < i + each; k++) {
                struct slice found;
                CHECK(store_get(txn, table, slice_text(keys[k]), &found) == (there ? CO_OK : CO_NOTFOUND));
            }
            store_read_done(reader);
        }
        spent += cpu_ns() - before;
    }
    print(what, spent, TIMES / BATCH * BATCH);
    store_reader_free(reader);
}

static void bench_range(const char *what, bool there) {
    struct store_reader *reader = store_reader_new(store);
    char key[32];
    uint64_t before = cpu_ns();
    for (unsigned n = 0; n < TIMES; n++) {
        struct store_cursor cursor;
        store_cursor_open(&cursor, store_read(reader), TABLE, key_of(2 * rng_below(&rng, RECORDS - 1) + !there, key));
        CHECK(cursor.valid);
        store_cursor_close(&cursor);
        store_read_done(reader);
    }
    print(what, cpu_ns() - before, TIMES);
    store_reader_free(reader);
}

/* `looks`: each after a get, as most commands do. */
static void bench_put(const char *what, bool there, bool looks) {
    char key[32];
    uint64_t spent = 0, count = 0;
    for (; count < TIMES / 5; count += BATCH) {
        uint64_t before = cpu_ns();
        struct store_txn *txn = store_write(store);
        for (unsigned i = 0; i < BATCH; i++) {
            struct slice found, name = key_of(2 * rng_below(&rng, RECORDS) + !there, key);
            put_le64(value, rng_next(&rng));
            if (looks) (void)store_get(txn, TABLE, name, &found);
            store_put(txn, TABLE, name, slice_make(value, VALUE));
        }
        if (there) {
            CHECK(store_commit(txn) == CO_OK);
        } else { /* they are always new */
            CHECK(store_txn_error(txn) == CO_OK);
            store_abort(txn);
        }
        spent += cpu_ns() - before;
    }
    print(what, spent, count);
}

/* A range of all in a write transaction, as what ends by itself is looked for. */
static void bench_walk(void) {
    uint64_t before = cpu_ns(), count = 0;
    struct store_txn *txn = store_write(store);
    struct store_cursor cursor;
    for (store_cursor_open(&cursor, txn, TABLE, slice_make("", 0)); cursor.valid; store_cursor_next(&cursor)) count++;
    store_cursor_close(&cursor);
    store_abort(txn);
    CHECK(count == RECORDS);
    print("a step of a writer's range", cpu_ns() - before, count);
}

static void fill(void) {
    char key[32];
    struct store_txn *txn = store_write(store);
    for (uint64_t i = 0; i < RECORDS; i++) store_put(txn, TABLE, key_of(2 * i, key), slice_make(value, VALUE));
    CHECK(store_commit(txn) == CO_OK);
}

int main(int argc, char **argv) {
    static const struct store_table tables[] = {{TABLE, "table"}, {EMPTY, "empty"}};
    static const char *const names[] = {"data.mdb", "data.mdb-lock", "lock", "marker"};
    char folder[256], path[320];
    snprintf(folder, sizeof folder, "%s/bench-store-XXXXXX", argc > 1 ? argv[1] : "/tmp");
    CHECK(mkdtemp(folder));
    struct store_config config = {.folder = folder, .tables = tables, .table_count = 2};
    struct fault fault = {0};
    bool trusted;
    CHECK(store_open(&config, &store, &trusted, &fault) == CO_OK);
    rng_seed(&rng, 1);
    fill();
    bench_get("get, one a transaction", TABLE, true, 1);
    bench_get("get, 16 a transaction", TABLE, true, 16);
    bench_get("miss, one a transaction", TABLE, false, 1);
    bench_get("miss, 16 a transaction", TABLE, false, 16);
    bench_get("miss in an empty table, one a transaction", EMPTY, false, 1);
    bench_get("miss in an empty table, 16 a transaction", EMPTY, false, 16);
    bench_range("range from a record", true);
    bench_range("range from between records", false);
    bench_put("put, 64 a transaction", true, false);
    bench_put("put after a get, 64 a transaction", true, true);
    bench_put("put of a new record, 64 a transaction", false, false);
    bench_put("put of a new one after a get, 64 a transaction", false, true);
    bench_walk();
    store_close(store);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    return 0;
}
