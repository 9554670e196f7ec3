/* Views: the content as of one commit, read in short pieces.
 *
 * LMDB reuses no page that was freed since the oldest read transaction began. One that stays open for seconds beside a
 * busy writer leaves a list of free pages as long as everything that was written meanwhile, and LMDB uses free pages in
 * the order in which they were freed: from then on every commit goes to other pages, round and round through the list.
 * Measured (docs/decisions/short-reads.md): each operation costs twice as much, for ever.
 *
 * So a view holds no transaction. It hands out the records in order, some at a time, each piece from a transaction of
 * its own. While a view is open, the write transaction notes the former value of each record that it changes and that
 * the view has not handed out yet (store_notes.h). A piece then has the records that its transaction sees, except where
 * a note has the former value.
 *
 * (1) A view begins between two write transactions: the writer begins it, or the view does while nobody writes. So
 *     every later change is noted, and no earlier one.
 * (2) A piece's transaction begins before its notes are taken away. A change that the transaction sees was noted before
 *     it was committed, so its note is among them. A note of a later change has the same value that the transaction
 *     sees.
 * (3) Changes of records that were handed out are not noted any more, so notes are taken in order, and for good.
 * (4) A record that was made and deleted since the view began is not in the view. When no transaction of the view is
 *     open and the deletion is committed, its note is dropped, because every later piece sees no such record. If it is
 *     made once more, that is noted again.
 * (5) When the notes of a view need more than config.view_notes_bytes, it holds a transaction to the end, and nothing
 *     is noted any more: the transaction of the piece that is being read, or one that the writer begins for it, which
 *     sees the last commit. */
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "registry/store_file.h"
#include "registry/store_notes.h"

#define PIECE_BYTES   ((size_t)256 * 1024)
#define PIECE_RECORDS 1024

struct piece_record {
    MDB_val key;
    struct slice value;
    uint64_t hash;
};

struct store_view {
    struct list link; /* of store->views */
    struct store_reader *reader;
    struct store *store;
    /* under store->views_lock */
    bool begun, noting;
    bool reading, holds; /* a transaction is open; it stays open */
    struct store_notes notes;
    uint8_t table; /* handed out: all before this one, and of it up to `key`; key_size 0: nothing */
    size_t key_size;
    char key[STORE_KEY_MAX + 1];
    /* the view's thread */
    struct piece_record *records;
    size_t count;
    uint64_t kept, sum; /* the sum that was kept with the records; the sum of those that were handed out */
};

/* -- the writer --------------------------------------------------------------------------------------------------- */

static void begin(struct store_view *view) {
    (void)store_reader_begin(view->reader);
    view->begun = view->noting = view->reading = true;
}

/* By rule (4), when much of the notes is of such records. Each drop frees at least half of the notes that it walks over. */
static void drop_gone(struct store_view *view) {
    const struct store *store = view->store;
    struct store_notes *notes = &view->notes;
    CHECK(!view->reading);
    if (notes->gone_bytes < notes->bytes / 2 || notes->gone_bytes < store->config.view_notes_bytes / 16) return;
    store_notes_drop_gone(notes, store->write_open ? store->writes - 1 : store->writes);
}

static bool is_crowded(const struct store_view *view) {
    return view->notes.bytes > view->store->config.view_notes_bytes;
}

/* From now on the view holds its transaction, which sees no later changes. Its notes have the values before that. */
static void hold(struct store_view *view) {
    view->noting = false, view->holds = true;
    log_debug("store", "a copy holds a read, too much changes meanwhile file=%s", view->store->file->path);
}

static void begin_waiting(struct store *store) {
    bool any = false;
    store_compact_boundary(store);
    LIST_FOREACH(item, &store->views) {
        struct store_view *view = LIST_ENTRY(item, struct store_view, link);
        if (!view->begun) begin(view), any = true;
    }
    if (any) pthread_cond_broadcast(&store->view_begun);
}

bool store_views_write(struct store *store) {
    pthread_mutex_lock(&store->views_lock);
    begin_waiting(store);
    store->write_open = true, store->writes++;
    bool viewed = !list_empty(&store->views) || store_compact_collects(store);
    pthread_mutex_unlock(&store->views_lock);
    return viewed;
}

void store_views_written(struct store *store, bool committed) {
    pthread_mutex_lock(&store->views_lock);
    store->write_open = false;
    LIST_FOREACH(item, &store->views) {
        if (committed) break;
        store_notes_not_gone(&LIST_ENTRY(item, struct store_view, link)->notes, store->writes);
    }
    begin_waiting(store);
    pthread_mutex_unlock(&store->views_lock);
}

static bool handed_out(const struct store_view *view, uint8_t table, struct slice key) {
    if (table != view->table) return table < view->table;
    return view->key_size && slice_compare(key, slice_make(view->key, view->key_size)) <= 0;
}

void store_views_note(struct store *store, uint8_t table, const MDB_val *key, const MDB_val *old, bool deletes) {
    struct slice name = slice_make(key->mv_data, key->mv_size), before = slice_make(NULL, 0);
    if (old) before = slice_make(old->mv_data, old->mv_size);
    pthread_mutex_lock(&store->views_lock);
    store_compact_note(store, table, name);
    LIST_FOREACH(item, &store->views) {
        struct store_view *view = LIST_ENTRY(item, struct store_view, link);
        if (!view->noting || handed_out(view, table, name)) continue;
        struct store_note *note = store_notes_add(&view->notes, table, name, old != NULL, before);
        if (!note->existed) store_notes_set_gone(&view->notes, note, deletes ? store->writes : 0);
        if (is_crowded(view) && !view->reading) drop_gone(view);
        if (is_crowded(view) && !view->reading) begin(view), hold(view);
    }
    pthread_mutex_unlock(&store->views_lock);
}

/* -- the view ----------------------------------------------------------------------------------------------------- */

struct store_view *store_view_open(struct store *store) {
    struct store_view *view = mem_zalloc(sizeof *view);
    view->store = store;
    view->reader = store_long_reader_new(store);
    view->records = mem_alloc(PIECE_RECORDS * sizeof *view->records);
    store_reader_enter(view->reader);
    pthread_mutex_lock(&store->views_lock);
    list_append(&store->views, &view->link);
    if (!store->write_open) begin(view);
    while (!view->begun) pthread_cond_wait(&store->view_begun, &store->views_lock);
    pthread_mutex_unlock(&store->views_lock);
    view->kept = store_sum(store_reader_txn(view->reader));
    return view;
}

size_t store_view_noted(struct store_view *view) {
    pthread_mutex_lock(&view->store->views_lock);
    size_t bytes = view->notes.bytes;
    pthread_mutex_unlock(&view->store->views_lock);
    return bytes;
}

uint64_t store_view_sum(const struct store_view *view) { return view->kept; }

struct store_txn *store_view_first(struct store_view *view) {
    CHECK(view->reading && view->table == 0 && view->key_size == 0);
    return store_reader_txn(view->reader);
}

void store_view_close(struct store_view *view) {
    if (!view) return;
    struct store *store = view->store;
    pthread_mutex_lock(&store->views_lock);
    list_remove(&view->link);
    pthread_mutex_unlock(&store->views_lock);
    store_notes_free(&view->notes);
    store_read_done(view->reader);
    store_reader_free(view->reader);
    free(view->records);
    free(view);
}

/* The transaction of the next piece. */
static struct store_txn *piece_begin(struct store_view *view) {
    pthread_mutex_lock(&view->store->views_lock);
    if (!view->reading) begin(view);
    pthread_mutex_unlock(&view->store->views_lock);
    return store_reader_txn(view->reader);
}

static void piece_end(struct store_view *view) {
    pthread_mutex_lock(&view->store->views_lock);
    if (!view->holds) {
        store_reader_pause(view->reader), view->reading = false;
        drop_gone(view);
        if (is_crowded(view)) begin(view), hold(view);
    }
    pthread_mutex_unlock(&view->store->views_lock);
}

/* Goes to the first record of the table that was not handed out. */
static int seek(const struct store_view *view, MDB_cursor *cursor, MDB_val *key, MDB_val *data) {
    if (!view->key_size) return mdb_cursor_get(cursor, key, data, MDB_FIRST);
    struct slice last = slice_make(view->key, view->key_size);
    *key = (MDB_val){last.size, (void *)(uintptr_t)last.data};
    int rc = mdb_cursor_get(cursor, key, data, MDB_SET_RANGE);
    if (rc || !slice_equal(last, slice_make(key->mv_data, key->mv_size))) return rc;
    return mdb_cursor_get(cursor, key, data, MDB_NEXT);
}

/* Collects the records of a piece. *whole: the table has no more. */
static int collect(struct store_view *view, struct store_txn *txn, uint8_t table, bool *whole) {
    MDB_cursor *cursor;
    MDB_val key, data;
    size_t bytes = 0;
    struct slice last = slice_make(view->key, view->key_size);
    view->count = 0;
    int rc = mdb_cursor_open(txn->mdb, txn->file->tables[table], &cursor);
    if (rc) return store_error(rc);
    for (rc = seek(view, cursor, &key, &data); rc == 0; rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT)) {
        struct piece_record *record = &view->records[view->count];
        if (table == STORE_TABLE_META && *(const char *)key.mv_data != STORE_META_BYTE) break; /* tables' names */
        if (bytes > PIECE_BYTES || view->count == PIECE_RECORDS) {
            mdb_cursor_close(cursor);
            *whole = false;
            return CO_OK;
        }
        struct slice name = slice_make(key.mv_data, key.mv_size);
        *record = (struct piece_record){.key = key};
        if ((last.size && slice_compare(last, name) >= 0) ||
            !store_record_read(table, &key, &data, &record->value, &record->hash)) {
            mdb_cursor_close(cursor);
            store_damage(txn, table);
            return CO_CORRUPT;
        }
        last = name;
        bytes += key.mv_size + data.mv_size;
        view->count++;
    }
    mdb_cursor_close(cursor);
    *whole = true;
    return rc && rc != MDB_NOTFOUND ? store_error(rc) : CO_OK;
}

struct handing {
    struct store_view *view;
    uint8_t table;
    store_view_record each;
    void *data;
};

static void hand_out(const struct handing *to, const MDB_val *key, struct slice value, uint64_t hash) {
    size_t skip = to->table == STORE_TABLE_META ? 1 : 0;
    if (store_is_sum(to->table, key)) return;
    to->view->sum += hash;
    to->each(to->data, to->table, slice_make((const char *)key->mv_data + skip, key->mv_size - skip), value);
}

static int hand_out_note(const struct handing *to, struct store_txn *txn, const struct store_note *note) {
    struct slice name = store_note_key(note), raw = store_note_data(note), value;
    MDB_val key = {name.size, (void *)(uintptr_t)name.data}, data = {raw.size, (void *)(uintptr_t)raw.data};
    uint64_t hash;
    if (!note->existed) return CO_OK;
    if (!store_record_read(to->table, &key, &data, &value, &hash)) {
        store_damage(txn, to->table);
        return CO_CORRUPT;
    }
    hand_out(to, &key, value, hash);
    return CO_OK;
}

/* The records up to `last` are handed out now: their changes are not noted any more. Returns their notes. */
static struct store_note *move_on(struct store_view *view, struct slice last, bool whole) {
    struct store *store = view->store;
    pthread_mutex_lock(&store->views_lock);
    struct store_note *notes = store_notes_take(&view->notes, view->table, last, whole);
    if (whole) view->table++;
    view->key_size = whole ? 0 : last.size;
    if (!whole) memcpy(view->key, last.data, last.size);
    pthread_mutex_unlock(&store->views_lock);
    return notes;
}

/* Hands out the records that the piece's transaction sees, but the former value of those that have a note. */
static int merge(const struct handing *to, struct store_txn *txn, const struct store_note *note) {
    const struct piece_record *record = to->view->records, *end = record + to->view->count;
    int error = CO_OK;
    while (!error && (note || record < end)) {
        int order = record == end ? -1
                    : !note       ? 1
                            : slice_compare(store_note_key(note), slice_make(record->key.mv_data, record->key.mv_size));
        if (order <= 0) error = hand_out_note(to, txn, note);
        else hand_out(to, &record->key, record->value, record->hash);
        if (order >= 0) record++;
        if (order <= 0) note = note->next[0];
    }
    return error;
}

static int check_sum(const struct store_view *view, struct store_txn *txn) {
    if (view->sum == view->kept) return CO_NOTFOUND;
    log_error("store", "the records do not have the sum that was kept with them file=%s", txn->file->path);
    store_fail(txn, CO_CORRUPT);
    return CO_CORRUPT;
}

/* Hands out the rest of the table, or a piece of it. */
static int next_piece(const struct handing *to, struct store_txn *txn) {
    struct store_view *view = to->view;
    bool whole = false;
    int error = collect(view, txn, to->table, &whole);
    if (error) return error;
    MDB_val last = whole ? (MDB_val){0, NULL} : view->records[view->count - 1].key;
    struct store_note *notes = move_on(view, slice_make(last.mv_data, last.mv_size), whole);
    error = merge(to, txn, notes);
    for (struct store_note *next; notes; notes = next) next = notes->next[0], free(notes);
    return error;
}

int store_view_next(struct store_view *view, store_view_record each, void *data) {
    struct store_txn *txn = piece_begin(view);
    while (view->table < STORE_TABLES_MAX && !txn->file->known[view->table])
        CHECK(!move_on(view, slice_make(NULL, 0), true));
    struct handing to = {view, view->table, each, data};
    int error = txn->error ? txn->error : to.table == STORE_TABLES_MAX ? check_sum(view, txn) : next_piece(&to, txn);
    piece_end(view);
    return error;
}
