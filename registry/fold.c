#include "registry/fold.h"

#include <stdlib.h>

#include "base/check.h"
#include "registry/machine_changes.h"
#include "registry/version.h"

enum { PARTS = 3 }; /* of a key */

/* What a transaction's note says. */
enum { FOLD_NOT_ASKED = 0, FOLD_EXACT, FOLD_FOLDED };

bool fold_on(struct store_txn *txn) {
    uint8_t *note = store_note(txn);
    if (*note == FOLD_NOT_ASKED) *note = version_number(txn) >= FOLD_SINCE ? FOLD_FOLDED : FOLD_EXACT;
    return *note == FOLD_FOLDED;
}

void fold_set(struct store_txn *txn, bool on) { *store_note(txn) = on ? FOLD_FOLDED : FOLD_EXACT; }

bool fold_same(struct store_txn *txn, struct slice a, struct slice b) {
    return slice_equal(a, b) || (a.size == b.size && fold_on(txn) && slice_equal_nocase(a, b));
}

void fold_name_of(struct fold_name *name, struct slice text) {
    name->own = NULL;
    name->folded = text;
    if (!slice_has_upper(text)) return;
    char *to = name->room;
    if (text.size > sizeof name->room) to = name->own = mem_alloc(text.size);
    memcpy(to, text.data, text.size);
    bytes_lower(to, text.size);
    name->folded.data = to;
}

void fold_name_free(struct fold_name *name) { free(name->own); }

/* A part that is shortened by its hash has to be folded before that. */
static struct slice long_key(char *room, size_t count, const struct slice *names) {
    struct slice parts[PARTS] = {0};
    struct fold_name folded[PARTS];
    for (size_t i = 0; i < count; i++) {
        fold_name_of(&folded[i], names[i]);
        parts[i] = folded[i].folded;
    }
    struct slice key = store_key_join(room, count, parts[0], parts[1], parts[2]);
    for (size_t i = 0; i < count; i++) fold_name_free(&folded[i]);
    return key;
}

/* The others are folded where they stand. */
struct slice fold_key_as(bool fold, char *room, size_t count, const struct slice *names) {
    CHECK(count > 0 && count <= PARTS);
    bool long_part = false;
    for (size_t i = 0; i < count; i++) long_part |= names[i].size > STORE_PART_MAX;
    if (fold && long_part) return long_key(room, count, names);
    struct slice none = {0};
    struct slice key = store_key_join(room, count, names[0], count > 1 ? names[1] : none, count > 2 ? names[2] : none);
    if (fold) bytes_lower(room, key.size);
    return key;
}

struct slice fold_key(struct store_txn *txn, char *room, size_t count, const struct slice *names) {
    return fold_key_as(fold_on(txn), room, count, names);
}

/* -- moving ------------------------------------------------------------------------------------------------------- */

#define WALK_RECORDS 256 /* copied at a time */

struct walked {
    struct slice key, value;
};

/* From the record after `last` on (empty: the first). */
static size_t walk_some(struct store_txn *txn, uint8_t table, struct slice prefix, struct slice last,
                        struct walked *records, struct arena *arena) {
    struct store_cursor cursor;
    size_t count = 0;
    store_cursor_open(&cursor, txn, table, last.size ? last : prefix);
    if (cursor.valid && last.size && slice_equal(cursor.key, last)) store_cursor_next(&cursor);
    for (; cursor.valid && slice_starts(cursor.key, prefix) && count < WALK_RECORDS; store_cursor_next(&cursor))
        records[count++] = (struct walked){slice_copy(arena, cursor.key), slice_copy(arena, cursor.value)};
    store_cursor_close(&cursor);
    return count;
}

void fold_walk(struct machine_tx *tx, uint8_t table, struct slice prefix, fold_each each) {
    struct walked records[WALK_RECORDS];
    struct arena arena = {0};
    char room[STORE_KEY_MAX] = "";
    struct slice last = slice_make(room, 0);
    for (size_t count; (count = walk_some(tx->store, table, prefix, last, records, &arena)) > 0; arena_reset(&arena)) {
        for (size_t i = 0; i < count; i++) each(tx, records[i].key, records[i].value, &arena);
        last.size = records[count - 1].key.size;
        CHECK(last.size > 0 && last.size <= sizeof room);
        memcpy(room, records[count - 1].key.data, last.size);
    }
    arena_free(&arena);
}

void fold_move(struct machine_tx *tx, uint8_t table, struct slice from, struct slice to, struct slice value) {
    if (slice_equal(from, to)) return;
    (void)store_del(tx->store, table, from);
    store_put(tx->store, table, to, value);
}

void fold_apply(struct machine_tx *tx) {
    struct slice nothing = slice_make("", 0);
    fold_set(tx->store, false);
    machine_emit(tx, MACHINE_FOLD_MERGE, nothing, nothing);
    machine_emit(tx, MACHINE_FOLD_KEYS, nothing, nothing);
    fold_set(tx->store, true);
    machine_changes_fold(tx);
}
