/* Former values of records: the journal of a write transaction, and reads of a past state.
 *
 * A note: the table's number, 0x80 added if there was a record; the key's size as a varint, the key; and if there was
 * one, the value's size and the value. */
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/varint.h"
#include "registry/store_file.h"

#define NOTE_EXISTED 0x80

#define ROOM_KEPT (1u << 20) /* a buffer of at most this size is kept for the next entry */

void store_journal_begin(struct store_txn *txn, size_t most) {
    struct store_journal *journal = &txn->journal;
    CHECK(txn->writing);
    journal->on = true;
    journal->most = most;
    for (size_t i = 1; i < STORE_TOPICS; i++) {
        if (journal->topics[i].capacity > ROOM_KEPT) buffer_free(&journal->topics[i]);
        else buffer_reset(&journal->topics[i]);
        journal->over[i] = false;
    }
}

bool store_journal_end(struct store_txn *txn, uint8_t topic, struct slice *notes) {
    CHECK(txn->writing && topic > 0 && topic < STORE_TOPICS);
    txn->journal.on = false;
    *notes = buffer_slice(&txn->journal.topics[topic]);
    return !txn->journal.over[topic];
}

void store_journal_note(struct store_txn *txn, uint8_t table, const MDB_val *key, const MDB_val *old) {
    uint8_t topic = txn->file->topics[table];
    if (!topic) return;
    struct buffer *notes = &txn->journal.topics[topic];
    size_t size = key->mv_size + (old ? old->mv_size : 0);
    if (txn->journal.over[topic] || notes->size + size > txn->journal.most) {
        txn->journal.over[topic] = true;
        return;
    }
    buffer_append_byte(notes, (char)(table | (old ? NOTE_EXISTED : 0)));
    varint_append(notes, key->mv_size);
    buffer_append(notes, key->mv_data, key->mv_size);
    if (!old) return;
    CHECK(old->mv_size >= STORE_HASH_BYTES);
    varint_append(notes, old->mv_size - STORE_HASH_BYTES);
    buffer_append(notes, old->mv_data, old->mv_size - STORE_HASH_BYTES);
}

bool store_journal_next(struct slice *rest, struct store_before *before) {
    if (rest->size == 0) return false;
    uint8_t head = (uint8_t)rest->data[0];
    *rest = slice_make(rest->data + 1, rest->size - 1);
    *before = (struct store_before){.table = head & ~NOTE_EXISTED, .existed = head & NOTE_EXISTED};
    if (!varint_slice(rest, &before->key)) return false;
    return !before->existed || varint_slice(rest, &before->value);
}

/* -- the past ----------------------------------------------------------------------------------------------------- */

struct past_note {
    struct store_before before;
    uint64_t index;
    size_t order; /* in which the notes were added */
};

struct past_cursor {
    struct past_cursor *next;
    struct store_cursor now;    /* ranges over the present records; stands on one that was not handed out yet */
    const struct past_note *at; /* likewise over the notes: the first note of a key; the table's end: none is left */
    const struct past_note *end;
};

struct store_past {
    struct past_note *notes; /* sorted by table, key, index, order once `sorted` */
    size_t count, room;
    bool sorted;
    struct past_cursor *open;
};

struct store_past *store_past_new(void) {
    return mem_zalloc(sizeof(struct store_past));
}

void store_past_free(struct store_past *past) {
    if (!past) return;
    for (struct past_cursor *cursor = past->open, *next; cursor; cursor = next) next = cursor->next, free(cursor);
    free(past->notes);
    free(past);
}

void store_past_add(struct store_past *past, uint64_t index, const struct store_before *before) {
    CHECK(!past->open);
    if (past->count == past->room) {
        past->room = past->room ? 2 * past->room : 64;
        past->notes = mem_realloc(past->notes, past->room * sizeof *past->notes);
    }
    past->notes[past->count] = (struct past_note){.before = *before, .index = index, .order = past->count};
    past->count++;
    past->sorted = false;
}

static int compare_record(const struct past_note *note, uint8_t table, struct slice key) {
    if (note->before.table != table) return note->before.table < table ? -1 : 1;
    return slice_compare(note->before.key, key);
}

static int compare_notes(const void *a, const void *b) {
    const struct past_note *one = a, *other = b;
    int order = compare_record(one, other->before.table, other->before.key);
    if (order) return order;
    if (one->index != other->index) return one->index < other->index ? -1 : 1;
    return one->order < other->order ? -1 : one->order > other->order;
}

void store_read_past(struct store_txn *txn, struct store_past *past, uint64_t at) {
    CHECK(!txn->writing && (!past || !txn->open));
    if (past && !past->sorted) {
        if (past->count) qsort(past->notes, past->count, sizeof *past->notes, compare_notes);
        past->sorted = true;
    }
    txn->past = past;
    txn->past_at = at;
}

/* The first note that is not before (table, key, index). */
static const struct past_note *bound(const struct store_past *past, uint8_t table, struct slice key, uint64_t index) {
    size_t low = 0, high = past->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct past_note *note = &past->notes[middle];
        int order = compare_record(note, table, key);
        if (order < 0 || (order == 0 && note->index < index)) low = middle + 1;
        else high = middle;
    }
    return past->notes + low;
}

const struct store_before *store_past_find(const struct store_txn *txn, uint8_t table, struct slice key) {
    const struct store_past *past = txn->past;
    const struct past_note *note = bound(past, table, key, txn->past_at + 1);
    bool found = note < past->notes + past->count && compare_record(note, table, key) == 0;
    return found ? &note->before : NULL;
}

/* -- ranges of the past ------------------------------------------------------------------------------------------- */

/* The first note behind those of the same key. */
static const struct past_note *skip_key(const struct past_note *at, const struct past_note *end) {
    const struct past_note *first = at;
    while (at < end && slice_equal(at->before.key, first->before.key)) at++;
    return at;
}

static void hand_out(struct store_cursor *cursor, struct slice key, struct slice value) {
    cursor->key = key;
    cursor->value = value;
    cursor->valid = true;
}

/* Sets the cursor to the next record of both: the present one, unless a note has its former value. */
static void merge(struct store_cursor *cursor) {
    struct past_cursor *both = cursor->past;
    struct store_cursor *now = &both->now;
    cursor->valid = false;
    while (!cursor->valid && (now->valid || both->at < both->end)) {
        int order = both->at == both->end ? 1 : !now->valid ? -1 : slice_compare(both->at->before.key, now->key);
        struct slice key = order <= 0 ? both->at->before.key : now->key;
        const struct store_before *before = order <= 0 ? store_past_find(cursor->txn, cursor->table, key) : NULL;
        if (before && before->existed) hand_out(cursor, key, before->value);
        else if (!before && order >= 0) hand_out(cursor, key, now->value);
        if (order <= 0) both->at = skip_key(both->at, both->end);
        if (order >= 0) store_cursor_next(now);
    }
    if (!cursor->valid) cursor->key = cursor->value = slice_make("", 0);
}

void store_past_open(struct store_cursor *cursor, struct slice from) {
    struct store_past *past = cursor->txn->past;
    struct past_cursor *both = mem_zalloc(sizeof *both);
    both->next = past->open;
    past->open = both;
    both->at = bound(past, cursor->table, from, 0);
    both->end = bound(past, (uint8_t)(cursor->table + 1), slice_make("", 0), 0);
    cursor->past = both;
    store_cursor_open_present(&both->now, cursor->txn, cursor->table, from);
    merge(cursor);
}

void store_past_next(struct store_cursor *cursor) { merge(cursor); }

void store_past_close(struct store_cursor *cursor) {
    struct past_cursor *both = cursor->past, **at = &cursor->txn->past->open;
    while (*at != both) at = &(*at)->next;
    *at = both->next;
    store_cursor_close(&both->now);
    free(both);
    cursor->past = NULL;
    cursor->valid = false;
}
