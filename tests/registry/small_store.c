#include "small_store.h"

#include <stdio.h>

#include "base/check.h"

const struct store_table small_tables[3] = {{1, "one"}, {2, "two"}, {40, "forty"}};

struct store *open_at(const char *folder, bool *trusted) {
    struct store_config config = scratch_config(folder, small_tables, ARRAY_COUNT(small_tables));
    struct store *store = NULL;
    struct fault fault = {0};
    bool ignored;
    if (store_open(&config, &store, trusted ? trusted : &ignored, &fault) != CO_OK) fprintf(stderr, "%s\n", fault.text);
    CHECK(store);
    return store;
}

void put_text(struct store_txn *txn, uint8_t table, const char *key, const char *value) {
    store_put(txn, table, slice_text(key), slice_text(value));
}

void put_committed(struct store *store, const char *key, const char *value) {
    struct store_txn *txn = store_write(store);
    put_text(txn, 1, key, value);
    CHECK(store_commit(txn) == CO_OK);
}

bool has_text(struct store *store, uint8_t table, const char *key, const char *value) {
    struct store_reader *reader = store_reader_new(store);
    struct slice found;
    bool same = store_get(store_read(reader), table, slice_text(key), &found) == CO_OK && slice_is(found, value);
    store_read_done(reader);
    store_reader_free(reader);
    return same;
}

uint64_t sum_of(struct store *store) {
    struct store_reader *reader = store_reader_new(store);
    struct store_txn *txn = store_read(reader);
    uint64_t sum = store_sum(txn);
    CHECK(sum == store_scrub(txn));
    store_read_done(reader);
    store_reader_free(reader);
    return sum;
}
