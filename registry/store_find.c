/* Looking a record up. LMDB finds its way by the separators of branch pages and by the keys of leaves, and does not
 * check them: when one is damaged, the search ends in a wrong place and misses the record. So a miss is proven by its
 * neighbours: the records before and after the place where the search ended must have keys before and after the wanted
 * one, and must not be damaged. LMDB walks from one to the other by the numbers of pages and not by keys, so no record
 * is between them. */
#include "base/check.h"
#include "registry/store_file.h"

MDB_cursor *store_txn_cursor(struct store_txn *txn, uint8_t table) {
    CHECK(table < STORE_TABLES_MAX && txn->file->known[table]);
    if (txn->error) return NULL;
    uint64_t bit = (uint64_t)1 << table;
    if (txn->placed & bit) return txn->cursors[table];
    int rc = txn->cursors[table] ? mdb_cursor_renew(txn->mdb, txn->cursors[table])
                                 : mdb_cursor_open(txn->mdb, txn->file->tables[table], &txn->cursors[table]);
    if (rc) {
        store_fail(txn, store_error(rc));
        return NULL;
    }
    txn->placed |= bit;
    return txn->cursors[table];
}

static int compare(const MDB_val *a, const MDB_val *b) {
    return slice_compare(slice_make(a->mv_data, a->mv_size), slice_make(b->mv_data, b->mv_size));
}

#define TABLE_SIZE 48 /* LMDB's description of a table: 40 bytes, then the number of its root page */
#define TABLE_ROOT 40

/* The descriptions of the other tables lie beside table 0, and have no checksum. A record of table 0 whose key was
 * damaged is not taken for one, because it ends with a hash, which is no page's number. */
static bool is_description(const struct store_txn *txn, const MDB_val *key, const MDB_val *data) {
    if (*(const char *)key->mv_data == STORE_META_BYTE || data->mv_size != TABLE_SIZE) return false;
    uint64_t root = get_le64((const char *)data->mv_data + TABLE_ROOT);
    return root == UINT64_MAX || root < txn->file->map_bytes / txn->file->page_bytes;
}

static bool is_whole(const struct store_txn *txn, uint8_t table, const MDB_val *key, const MDB_val *data) {
    struct slice value;
    uint64_t hash;
    if (table == STORE_TABLE_META && is_description(txn, key, data)) return true;
    return store_record_read(table, key, data, &value, &hash);
}

static int damaged(struct store_txn *txn, uint8_t table) {
    store_damage(txn, table);
    return MDB_CORRUPTED;
}

/* LMDB finds nothing in a table whose description it does not find, and its count is 0, too. So this looks for the
 * description. */
int store_check_empty(struct store_txn *txn, uint8_t table) {
    const char *name = table == STORE_TABLE_META ? "" : txn->file->names[table];
    MDB_val key = {strlen(name), (void *)(uintptr_t)name}, description;
    MDB_stat stat;
    int rc = key.mv_size ? mdb_get(txn->mdb, txn->file->tables[STORE_TABLE_META], &key, &description) : 0;
    if (rc == 0) rc = mdb_stat(txn->mdb, txn->file->tables[table], &stat);
    if (rc == MDB_NOTFOUND || (rc == 0 && stat.ms_entries > 0)) return damaged(txn, table);
    return rc ? rc : MDB_NOTFOUND;
}

int store_check_before(struct store_txn *txn, uint8_t table, MDB_cursor *cursor, const MDB_val *key, bool last) {
    MDB_val found, data;
    int rc = mdb_cursor_get(cursor, &found, &data, MDB_PREV);
    if (rc == MDB_NOTFOUND && last) return store_check_empty(txn, table);
    if (rc) return rc;
    return compare(&found, key) < 0 && is_whole(txn, table, &found, &data) ? 0 : damaged(txn, table);
}

int store_find(struct store_txn *txn, uint8_t table, const MDB_val *key, MDB_val *data) {
    MDB_cursor *cursor = store_txn_cursor(txn, table);
    if (!cursor) return txn->error;
    MDB_val found = *key;
    int rc = mdb_cursor_get(cursor, &found, data, MDB_SET_RANGE);
    int order = rc == 0 ? compare(&found, key) : 1;
    if (order == 0) return CO_OK;
    if (rc == 0 && (order < 0 || !is_whole(txn, table, &found, data))) rc = damaged(txn, table);
    if (rc == 0 || rc == MDB_NOTFOUND) rc = store_check_before(txn, table, cursor, key, rc != 0);
    if (rc == 0 || rc == MDB_NOTFOUND) return CO_NOTFOUND;
    store_fail(txn, store_error(rc));
    return txn->error;
}

int store_check_inserted(struct store_txn *txn, uint8_t table, MDB_cursor *cursor, const MDB_val *key) {
    MDB_val found, data;
    int rc = store_check_before(txn, table, cursor, key, false);
    if (rc == 0) rc = mdb_cursor_get(cursor, &found, &data, MDB_NEXT); /* back to it */
    if (rc != 0 && rc != MDB_NOTFOUND) return rc;
    rc = mdb_cursor_get(cursor, &found, &data, MDB_NEXT);
    if (rc != 0) return rc == MDB_NOTFOUND ? 0 : rc;
    return compare(&found, key) > 0 && is_whole(txn, table, &found, &data) ? 0 : damaged(txn, table);
}

/* LMDB searches for the record once more, in another way, so the table's size is compared afterwards. */
int store_replace_found(struct store_txn *txn, uint8_t table, MDB_cursor *cursor, MDB_val *key, MDB_val *data) {
    MDB_stat before, after;
    MDB_dbi dbi = txn->file->tables[table];
    int rc = mdb_stat(txn->mdb, dbi, &before);
    if (rc == 0) rc = mdb_cursor_put(cursor, key, data, MDB_RESERVE); /* MDB_CURRENT does not go with it */
    if (rc == 0) rc = mdb_stat(txn->mdb, dbi, &after);
    return rc != 0 || before.ms_entries == after.ms_entries ? rc : damaged(txn, table);
}
