/* Transactions, get and put, the state sum, savepoints. */
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "registry/store_file.h"

#define MEASURE_MS 1000

static const char sum_key[] = {STORE_META_BYTE, 's', 'u', 'm'};

/* A key in LMDB: those of table 0 get a byte in front. */
struct raw_key {
    MDB_val val;
    char room[STORE_KEY_MAX];
};

static MDB_val *raw_key(struct raw_key *raw, uint8_t table, struct slice key) {
    CHECK(key.size > 0 && key.size <= STORE_KEY_MAX);
    if (table != STORE_TABLE_META) {
        raw->val = (MDB_val){key.size, (void *)(uintptr_t)key.data};
    } else {
        CHECK(key.size < STORE_KEY_MAX);
        raw->room[0] = STORE_META_BYTE;
        memcpy(raw->room + 1, key.data, key.size);
        raw->val = (MDB_val){key.size + 1, raw->room};
    }
    return &raw->val;
}

bool store_is_sum(uint8_t table, const MDB_val *key) {
    return table == STORE_TABLE_META && key->mv_size == sizeof sum_key &&
           memcmp(key->mv_data, sum_key, sizeof sum_key) == 0;
}

void store_fail(struct store_txn *txn, int code) {
    if (txn->error || code == CO_OK) return;
    txn->error = code;
    if (code == CO_CORRUPT) txn->file->damaged = true;
    log_error("store", "%s file=%s error=\"%s\"",
              txn->writing ? "a change failed, its batch will not be applied" : "a read failed", txn->file->path,
              co_strerror(code));
}

int store_txn_error(const struct store_txn *txn) { return txn->error; }

void store_damage(struct store_txn *txn, uint8_t table) {
    if (!txn->error) log_error("store", "a record is damaged table=%u file=%s", table, txn->file->path);
    store_fail(txn, CO_CORRUPT);
}

/* As store_get */
static int read_record(struct store_txn *txn, uint8_t table, const MDB_val *key, struct slice *value) {
    MDB_val data;
    uint64_t hash;
    int error = store_find(txn, table, key, &data);
    if (error || store_record_read(table, key, &data, value, &hash)) return error;
    store_damage(txn, table);
    return CO_CORRUPT;
}

static uint64_t kept_sum(struct store_txn *txn) {
    MDB_val key = {sizeof sum_key, (void *)(uintptr_t)sum_key};
    struct slice value;
    return read_record(txn, STORE_TABLE_META, &key, &value) == CO_OK && value.size == 8 ? get_be64(value.data) : 0;
}

uint64_t store_sum(struct store_txn *txn) { return txn->writing ? txn->sum : kept_sum(txn); }

int store_file_begin(struct store_file *file, struct store_txn *txn) {
    struct buffer log = txn->undo.log;
    struct store_journal journal = txn->journal;
    *txn = (struct store_txn){.file = file};
    txn->undo.log = log;
    txn->journal = journal, txn->journal.on = false;
    buffer_reset(&txn->undo.log);
    txn->error = store_error(mdb_txn_begin(file->env, NULL, 0, &txn->mdb));
    if (txn->error) {
        txn->mdb = NULL;
        if (txn->error == CO_CORRUPT) file->damaged = true;
        log_error("store", "a transaction cannot begin file=%s error=\"%s\"", file->path, co_strerror(txn->error));
    } else {
        txn->sum = kept_sum(txn);
        store_need_begin(txn);
    }
    txn->writing = true;
    return txn->error;
}

struct store_txn *store_write(struct store *store) {
    CHECK(!store->write_open);
    if (store->compact) store_compact_turn(store);
    bool viewed = store_views_write(store);
    (void)store_file_begin(store->file, &store->write);
    store->write.viewed = viewed;
    return &store->write;
}

/* Notes what a rollback needs: table, whether there was a record, sizes, key, LMDB's data; and the size of the note, to
 * walk back. */
void store_undo_note(struct store_txn *txn, uint8_t table, const MDB_val *key, const MDB_val *old, bool deletes) {
    if (txn->viewed && !store_is_sum(table, key))
        store_views_note(CONTAINER_OF(txn, struct store, write), table, key, old, deletes);
    if (txn->journal.on) store_journal_note(txn, table, key, old);
    if (!txn->undo.on) return;
    struct buffer *log = &txn->undo.log;
    size_t value_size = old ? old->mv_size : 0;
    char head[10], tail[8];
    head[0] = (char)table;
    head[1] = old ? 1 : 0;
    put_le32(head + 2, (uint32_t)key->mv_size);
    put_le32(head + 6, (uint32_t)value_size);
    put_le64(tail, sizeof head + key->mv_size + value_size);
    buffer_append(log, head, sizeof head);
    buffer_append(log, key->mv_data, key->mv_size);
    if (value_size) buffer_append(log, old->mv_data, value_size);
    buffer_append(log, tail, sizeof tail);
}

/* `hash` NULL: to be computed. The old record's hash is not checked, because the record is replaced. */
static void put_raw(struct store_txn *txn, uint8_t table, MDB_val *key, struct slice value, const uint64_t *hash) {
    CHECK(txn->writing);
    MDB_val data;
    bool looked = txn->placed >> table & 1;
    MDB_cursor *cursor = store_txn_cursor(txn, table);
    if (!looked) (void)store_find(txn, table, key, &data); /* LMDB crashes on a put to a table that it does not find */
    if (txn->error) return;
    data = (MDB_val){value.size + STORE_HASH_BYTES, NULL};
    int error = store_need_op(txn, txn->file->tables[table], data.mv_size);
    if (error) {
        store_fail(txn, error);
        return;
    }
    int rc = mdb_cursor_put(cursor, key, &data, MDB_NOOVERWRITE | MDB_RESERVE);
    if (rc == MDB_KEYEXIST) { /* the cursor stands on the existing record, and `data` is its data */
        struct slice old;
        uint64_t old_hash;
        if (!store_record_parts(&data, &old, &old_hash)) {
            store_damage(txn, table);
            return;
        }
        if (slice_equal(old, value)) return;
        txn->sum -= old_hash;
        store_undo_note(txn, table, key, &data, false);
        data = (MDB_val){value.size + STORE_HASH_BYTES, NULL};
        rc = store_replace_found(txn, table, cursor, key, &data);
    } else if (rc == 0) {
        store_undo_note(txn, table, key, NULL, false);
        rc = store_check_inserted(txn, table, cursor, key);
    }
    if (rc) {
        store_fail(txn, store_error(rc));
        return;
    }
    uint64_t fresh = hash ? *hash : store_record_hash(table, key, value);
    store_record_write(data.mv_data, value, fresh);
    txn->sum += fresh;
}

/* Puts the record of the sum, which is not part of the sum; it is the last change. */
static void put_sum(struct store_txn *txn) {
    char bytes[8];
    put_be64(bytes, txn->sum);
    MDB_val key = {sizeof sum_key, (void *)(uintptr_t)sum_key};
    put_raw(txn, STORE_TABLE_META, &key, slice_make(bytes, sizeof bytes), NULL);
}

/* LMDB frees the cursors of a write transaction with it. */
static void forget(struct store_txn *txn) {
    memset(txn->cursors, 0, sizeof txn->cursors);
    txn->placed = 0;
    txn->mdb = NULL;
    txn->undo.on = false, txn->undo.depth = 0;
}

int store_txn_commit(struct store_txn *txn) {
    CHECK(txn->writing && txn->undo.depth == 0);
    store_txn_end(txn);
    if (!txn->error) put_sum(txn);
    if (txn->error) {
        if (txn->mdb) mdb_txn_abort(txn->mdb);
    } else {
        store_fail(txn, store_error(mdb_txn_commit(txn->mdb)));
    }
    forget(txn);
    if (!txn->error) store_space_ahead(txn->file);
    return txn->error;
}

static struct store *store_of(struct store_txn *txn) {
    struct store *store = CONTAINER_OF(txn, struct store, write);
    CHECK(store->write_open);
    return store;
}

/* -- how large it is ---------------------------------------------------------------------------------------------- */

METRIC file_bytes = {
    .name = "coord_store_bytes", .type = METRIC_GAUGE, .help = "Of the store's file, without what is reserved ahead"};
METRIC live_bytes = {
    .name = "coord_store_live_bytes", .type = METRIC_GAUGE, .help = "Of the store's file, pages that hold records"};

void store_sizes_init(void) {
    metric_register(&file_bytes);
    metric_register(&live_bytes);
}

/* Sets the gauges once a second, because counting pages walks over all tables. */
static void measure(struct store *store) {
    uint64_t now_ms = clock_mono_ms();
    if (now_ms - store->measured_ms < MEASURE_MS) return;
    store->measured_ms = now_ms;
    metric_set(&file_bytes, store->file->used_bytes);
    uint64_t live = store_live_bytes(&store->write);
    metric_set(&live_bytes, live);
    if (store->write.error == CO_OK) store_compact_judge(store, now_ms, store->file->used_bytes, live);
}

int store_commit(struct store_txn *txn) {
    struct store *store = store_of(txn);
    measure(store);
    int error = store_txn_commit(txn);
    store_views_written(store, !error);
    if (!error) store_flush_note(store, txn->need.changed_bytes);
    return error;
}

void store_txn_abort(struct store_txn *txn) {
    store_txn_end(txn);
    if (txn->mdb) mdb_txn_abort(txn->mdb);
    forget(txn);
}

void store_abort(struct store_txn *txn) {
    struct store *store = store_of(txn);
    store_txn_abort(txn);
    store_views_written(store, false);
}

/* -- get and put -------------------------------------------------------------------------------------------------- */

int store_get(struct store_txn *txn, uint8_t table, struct slice key, struct slice *value) {
    if (key.size == 0 || txn->error) return CO_NOTFOUND;
    struct raw_key raw;
    const struct store_before *before = txn->past ? store_past_find(txn, table, key) : NULL;
    if (before) {
        *value = before->value;
        return before->existed ? CO_OK : CO_NOTFOUND;
    }
    return read_record(txn, table, raw_key(&raw, table, key), value);
}

uint64_t store_hash(struct store_txn *txn, uint8_t table, struct slice key) {
    struct slice value;
    return store_get(txn, table, key, &value) == CO_OK ? get_be64(value.data + value.size) : 0;
}

void store_put(struct store_txn *txn, uint8_t table, struct slice key, struct slice value) {
    struct raw_key raw;
    put_raw(txn, table, raw_key(&raw, table, key), value, NULL);
}

void store_txn_append(struct store_txn *txn, uint8_t table, struct slice key, struct slice value) {
    struct raw_key raw;
    MDB_val *name = raw_key(&raw, table, key), data = {value.size + STORE_HASH_BYTES, NULL};
    MDB_cursor *cursor = store_txn_cursor(txn, table);
    if (!cursor) return;
    CHECK(txn->writing);
    int error = store_need_op(txn, txn->file->tables[table], data.mv_size);
    if (!error) {
        int rc = mdb_cursor_put(cursor, name, &data, MDB_RESERVE | (table == STORE_TABLE_META ? 0 : MDB_APPEND));
        error = rc == MDB_KEYEXIST ? CO_CORRUPT : store_error(rc); /* not in order */
    }
    if (error) {
        store_fail(txn, error);
        return;
    }
    uint64_t hash = store_record_hash(table, name, value);
    store_record_write(data.mv_data, value, hash);
    txn->sum += hash;
}

static bool del_raw(struct store_txn *txn, uint8_t table, MDB_val *key) {
    CHECK(txn->writing);
    MDB_val data;
    int error = store_find(txn, table, key, &data);
    if (error == CO_NOTFOUND) return false;
    struct slice value;
    uint64_t hash = 0;
    if (!error && !store_record_parts(&data, &value, &hash)) error = CO_CORRUPT;
    if (!error) error = store_need_op(txn, txn->file->tables[table], 0);
    if (!error) {
        txn->sum -= hash;
        store_undo_note(txn, table, key, &data, true);
        error = store_error(mdb_cursor_del(txn->cursors[table], 0));
    }
    store_fail(txn, error);
    return error == CO_OK;
}

bool store_del(struct store_txn *txn, uint8_t table, struct slice key) {
    if (key.size == 0) return false;
    struct raw_key raw;
    return del_raw(txn, table, raw_key(&raw, table, key));
}

uint64_t store_count(struct store_txn *txn, uint8_t table) {
    CHECK(!txn->past || !txn->file->topics[table]);
    return store_count_now(txn, table);
}

uint64_t store_count_now(struct store_txn *txn, uint8_t table) {
    CHECK(table > 0 && table < STORE_TABLES_MAX && txn->file->known[table]);
    MDB_stat stat;
    if (!txn->mdb || mdb_stat(txn->mdb, txn->file->tables[table], &stat) != 0) return 0;
    return stat.ms_entries;
}

uint64_t store_live_bytes(struct store_txn *txn) {
    uint64_t pages = 0;
    for (unsigned i = 0; txn->mdb && i < STORE_TABLES_MAX; i++) {
        MDB_stat stat;
        if (!txn->file->known[i] || mdb_stat(txn->mdb, txn->file->tables[i], &stat) != 0) continue;
        pages += stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
    }
    return pages * txn->file->page_bytes;
}

static uint64_t scrub_table(struct store_txn *txn, uint8_t table) {
    MDB_cursor *cursor;
    uint64_t sum = 0, hash;
    int rc = mdb_cursor_open(txn->mdb, txn->file->tables[table], &cursor);
    if (rc) return 0;
    MDB_val key, data;
    struct slice value;
    for (rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST); rc == 0;
         rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT)) {
        if (table == STORE_TABLE_META && *(const char *)key.mv_data != STORE_META_BYTE)
            break; /* tables' names follow */
        if (!store_record_read(table, &key, &data, &value, &hash)) store_damage(txn, table);
        else if (!store_is_sum(table, &key)) sum += hash;
    }
    mdb_cursor_close(cursor);
    return sum;
}

uint64_t store_scrub(struct store_txn *txn) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < STORE_TABLES_MAX; i++) {
        if (txn->file->known[i]) sum += scrub_table(txn, (uint8_t)i);
    }
    return sum;
}

/* -- savepoints --------------------------------------------------------------------------------------------------- */

void store_savepoint(struct store_txn *txn) {
    struct store_undo *undo = &txn->undo;
    CHECK(txn->writing && undo->depth < STORE_SAVEPOINTS_MAX);
    if (undo->depth == 0) buffer_reset(&undo->log);
    typeof(&undo->marks[0]) mark = &undo->marks[undo->depth++];
    mark->log = undo->log.size;
    for (size_t i = 0; i < STORE_TOPICS; i++) mark->topics[i] = txn->journal.topics[i].size;
    memcpy(mark->over, txn->journal.over, sizeof mark->over);
    undo->on = true;
}

/* The innermost savepoint is over. */
static void undo_end(struct store_undo *undo) {
    undo->on = --undo->depth > 0;
    if (!undo->on && undo->log.capacity > 1 << 20) buffer_free(&undo->log);
}

void store_release(struct store_txn *txn) {
    CHECK(txn->undo.depth > 0);
    undo_end(&txn->undo);
}

void store_rollback(struct store_txn *txn) {
    CHECK(txn->undo.depth > 0);
    struct buffer *log = &txn->undo.log;
    typeof(&txn->undo.marks[0]) mark = &txn->undo.marks[txn->undo.depth - 1];
    size_t begin = mark->log;
    txn->undo.on = false; /* the changes of the rollback are not noted */
    for (size_t end = log->size; end > begin;) {
        size_t size = (size_t)get_le64(log->data + end - 8), start = end - 8 - size;
        const char *note = log->data + start;
        uint32_t key_size = get_le32(note + 2), data_size = get_le32(note + 6);
        MDB_val key = {key_size, (void *)(uintptr_t)(note + 10)};
        MDB_val data = {data_size, (void *)(uintptr_t)(note + 10 + key_size)};
        struct slice value;
        uint64_t hash; /* the old hash: a record that was damaged before is damaged afterwards */
        if (note[1] && store_record_parts(&data, &value, &hash)) put_raw(txn, (uint8_t)note[0], &key, value, &hash);
        else if (!note[1]) (void)del_raw(txn, (uint8_t)note[0], &key);
        end = start;
    }
    log->size = begin;
    for (size_t i = 0; i < STORE_TOPICS; i++) txn->journal.topics[i].size = mark->topics[i];
    memcpy(txn->journal.over, mark->over, sizeof mark->over);
    undo_end(&txn->undo);
}
