/* Ranges. LMDB's cursors are kept within their transaction, so that one left open cannot outlive it. */
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/store_file.h"

struct store_cursor_impl {
    MDB_cursor *mdb;
    struct store_cursor_impl *next, **at; /* in txn->open */
    size_t last_size;                     /* in a write transaction: of the key under it, or that was */
    char last[STORE_KEY_MAX];
};

static struct store_cursor_impl *take(struct store_txn *txn, uint8_t table) {
    CHECK(table > 0 && table < STORE_TABLES_MAX && txn->file->known[table]);
    if (txn->error) return NULL;
    struct store_cursor_impl *impl = txn->spare;
    if (impl) txn->spare = impl->next;
    else impl = mem_alloc(sizeof *impl);
    int rc = mdb_cursor_open(txn->mdb, txn->file->tables[table], &impl->mdb);
    if (rc) {
        free(impl);
        store_fail(txn, store_error(rc));
        return NULL;
    }
    impl->next = txn->open;
    impl->at = &txn->open;
    if (impl->next) impl->next->at = &impl->next;
    txn->open = impl;
    return impl;
}

static void drop(struct store_cursor_impl *impl) {
    mdb_cursor_close(impl->mdb);
    *impl->at = impl->next;
    if (impl->next) impl->next->at = impl->at;
}

void store_txn_end(struct store_txn *txn) {
    while (txn->open) {
        struct store_cursor_impl *impl = txn->open;
        drop(impl);
        free(impl);
    }
    while (txn->spare) {
        struct store_cursor_impl *impl = txn->spare;
        txn->spare = impl->next;
        free(impl);
    }
}

#define RECORD_COST 256 /* a record counts so much against the limit, besides its bytes */

void store_read_limit(struct store_txn *txn, size_t bytes) {
    txn->limited = true;
    txn->limit = bytes;
}

void store_read_unlimited(struct store_txn *txn) { txn->limited = txn->limit_hit = false; }

bool store_read_limit_hit(const struct store_txn *txn) { return txn->limit_hit; }

/* Counts a record. True: the limit is exceeded. */
static bool limit_reached(struct store_txn *txn, size_t size) {
    size_t cost = size + RECORD_COST;
    txn->limit_hit = txn->limit_hit || cost > txn->limit;
    if (!txn->limit_hit) txn->limit -= cost;
    return txn->limit_hit;
}

/* Is the key in order? When pages are damaged LMDB may walk in circles, or through removed records. */
static bool in_order(struct slice key, struct slice before, MDB_cursor_op op) {
    if (op == MDB_NEXT) return slice_compare(before, key) < 0;
    if (op == MDB_PREV) return slice_compare(before, key) > 0;
    return op != MDB_SET_RANGE || slice_compare(before, key) <= 0;
}

/* Goes to the first record that is not before `key`. Proves, as store_find does, that it is the first one. */
static int seek(struct store_cursor *cursor, MDB_val *key, MDB_val *data) {
    MDB_cursor *mdb = ((struct store_cursor_impl *)cursor->impl)->mdb;
    MDB_val from = *key;
    int rc = mdb_cursor_get(mdb, key, data, MDB_SET_RANGE);
    bool exact = rc == 0 && key->mv_size == from.mv_size && memcmp(key->mv_data, from.mv_data, from.mv_size) == 0;
    if (exact || (rc != 0 && rc != MDB_NOTFOUND)) return rc;
    int before = store_check_before(cursor->txn, cursor->table, mdb, &from, rc != 0);
    if (before == 0 && rc == 0) return mdb_cursor_get(mdb, key, data, MDB_NEXT);
    return before == 0 || before == MDB_NOTFOUND ? rc : before;
}

/* Moves the cursor as `op` says; with MDB_SET_RANGE to the first record from `key` on. */
static int go(struct store_cursor *cursor, MDB_val *key, MDB_val *data, MDB_cursor_op op) {
    struct store_cursor_impl *impl = cursor->impl;
    if (!impl) return MDB_NOTFOUND;
    if (op == MDB_SET_RANGE) return seek(cursor, key, data);
    int rc = mdb_cursor_get(impl->mdb, key, data, op);
    bool empty = rc == MDB_NOTFOUND && (op == MDB_FIRST || op == MDB_LAST);
    return empty ? store_check_empty(cursor->txn, cursor->table) : rc;
}

/* Moves the cursor by one step. `from`: the key before, or where the range begins. */
static void step(struct store_cursor *cursor, struct slice from, MDB_cursor_op op) {
    struct store_cursor_impl *impl = cursor->impl;
    MDB_val key = {from.size, (void *)(uintptr_t)from.data}, data;
    uint64_t hash;
    int rc = go(cursor, &key, &data, op);
    cursor->key = slice_make(key.mv_data, key.mv_size);
    cursor->valid = rc == 0 && in_order(cursor->key, from, op) &&
                    store_record_read(cursor->table, &key, &data, &cursor->value, &hash);
    if (cursor->valid) {
        if (cursor->txn->limited && limit_reached(cursor->txn, cursor->key.size + cursor->value.size))
            cursor->valid = false;
        if (cursor->txn->writing) {
            memcpy(impl->last, key.mv_data, key.mv_size);
            impl->last_size = key.mv_size;
        }
    } else if (rc == 0) {
        store_damage(cursor->txn, cursor->table);
    } else if (rc != MDB_NOTFOUND) {
        store_fail(cursor->txn, store_error(rc));
    }
}

/* The key of the record under the cursor; in a write transaction the record and its bytes may be gone. */
static struct slice last_key(const struct store_cursor *cursor) {
    const struct store_cursor_impl *impl = cursor->impl;
    return cursor->txn->writing ? slice_make(impl->last, impl->last_size) : cursor->key;
}

static bool is_past(const struct store_txn *txn, uint8_t table) { return txn->past && txn->file->topics[table]; }

void store_cursor_open(struct store_cursor *cursor, struct store_txn *txn, uint8_t table, struct slice from) {
    if (!is_past(txn, table)) {
        store_cursor_open_present(cursor, txn, table, from);
        return;
    }
    *cursor = (struct store_cursor){.txn = txn, .table = table};
    store_past_open(cursor, from);
}

void store_cursor_open_present(struct store_cursor *cursor, struct store_txn *txn, uint8_t table, struct slice from) {
    CHECK(from.size <= STORE_KEY_MAX);
    *cursor = (struct store_cursor){.impl = take(txn, table), .txn = txn, .table = table};
    step(cursor, from, from.size ? MDB_SET_RANGE : MDB_FIRST);
}

void store_cursor_open_last(struct store_cursor *cursor, struct store_txn *txn, uint8_t table) {
    CHECK(!is_past(txn, table));
    *cursor = (struct store_cursor){.impl = take(txn, table), .txn = txn, .table = table};
    step(cursor, slice_make(NULL, 0), MDB_LAST);
}

void store_cursor_next(struct store_cursor *cursor) {
    if (cursor->past) store_past_next(cursor);
    else if (cursor->valid) step(cursor, last_key(cursor), MDB_NEXT);
}

void store_cursor_prev(struct store_cursor *cursor) {
    if (cursor->valid) step(cursor, last_key(cursor), MDB_PREV);
}

void store_cursor_del(struct store_cursor *cursor) {
    struct store_txn *txn = cursor->txn;
    CHECK(txn->writing && cursor->valid);
    struct store_cursor_impl *impl = cursor->impl;
    MDB_val key, data;
    struct slice value;
    uint64_t hash = 0;
    int error = txn->error;
    if (!error) error = store_error(mdb_cursor_get(impl->mdb, &key, &data, MDB_GET_CURRENT));
    if (!error && !store_record_parts(&data, &value, &hash)) error = CO_CORRUPT;
    if (!error) error = store_need_op(txn, txn->file->tables[cursor->table], 0);
    if (!error) {
        store_undo_note(txn, cursor->table, &key, &data, true);
        error = store_error(mdb_cursor_del(impl->mdb, 0));
        if (!error) txn->sum -= hash;
    }
    store_fail(txn, error);
    cursor->valid = false;
    if (!error)
        step(cursor, last_key(cursor), MDB_NEXT); /* LMDB: after a deletion this is the record that took its place */
}

void store_cursor_close(struct store_cursor *cursor) {
    if (cursor->past) store_past_close(cursor);
    struct store_cursor_impl *impl = cursor->impl;
    if (!impl) return;
    drop(impl);
    impl->next = cursor->txn->spare;
    cursor->txn->spare = impl;
    cursor->impl = NULL;
    cursor->valid = false;
}
