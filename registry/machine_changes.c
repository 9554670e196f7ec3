/* Last changes of things that are not records themselves, and the tombstones that removals leave.
 *
 * TABLE_CHANGES:    space, name -> index (8), removed (1); then the name, when the key had to be shortened.
 * TABLE_TOMBSTONES: index (8), space, name -> nothing; or the key in TABLE_CHANGES, when this one had to be
 * shortened. Each tombstone has its record in both, others in the first only. */
#include "registry/machine_changes.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/fold.h"
#include "registry/tables.h"

#define INDEX_BYTES   8
#define MARK_BYTES    (INDEX_BYTES + 1)
#define NAME_ON_STACK 1024
_Static_assert(STORE_KEY_WHOLE <= STORE_KEY_MAX && STORE_KEY_WHOLE < NAME_ON_STACK, "what is not shortened fits");

static const struct slice floor_key = SLICE_LITERAL("floor");

/* head + name as a key of LMDB in `room`; *shortened: by hash. */
static struct slice head_key(const char *head, size_t head_size, struct slice name, char *room, bool *shortened) {
    char stack[NAME_ON_STACK], *whole = stack;
    size_t size = head_size + name.size;
    if (size <= STORE_KEY_WHOLE) whole = room;
    else if (size > sizeof stack) whole = mem_alloc(size);
    memcpy(whole, head, head_size);
    if (name.size) memcpy(whole + head_size, name.data, name.size);
    struct slice key = store_key_long(slice_make(whole, size), room);
    *shortened = size > STORE_KEY_WHOLE;
    CHECK(key.data == room && key.size <= STORE_KEY_MAX);
    if (whole != stack && whole != room) free(whole);
    return key;
}

static struct slice mark_key(uint8_t space, struct slice name, char *room, bool *shortened) {
    char head = (char)space;
    if (!fold_space(space)) return head_key(&head, 1, name, room, shortened);
    struct fold_name folded;
    fold_name_of(&folded, name);
    struct slice key = head_key(&head, 1, folded.folded, room, shortened);
    fold_name_free(&folded);
    return key;
}

/* The key in TABLE_TOMBSTONES; *value: the row's value. */
static struct slice removal_key(uint64_t index, struct slice mark, char *room, struct slice *value) {
    char head[INDEX_BYTES];
    bool shortened;
    put_be64(head, index);
    struct slice key = head_key(head, sizeof head, mark, room, &shortened);
    *value = shortened ? mark : slice_make("", 0);
    return key;
}

static bool is_removed(struct slice mark_value) { return mark_value.data[INDEX_BYTES] != 0; }

void machine_changed(struct machine_tx *tx, uint8_t space, struct slice name, bool removed) {
    machine_touch(tx, space, name);
    char key_room[STORE_KEY_MAX], removal_room[STORE_KEY_MAX], head[MARK_BYTES];
    bool shortened;
    struct slice key = mark_key(space, name, key_room, &shortened), old, value;
    put_be64(head, tx->index);
    head[INDEX_BYTES] = removed ? 1 : 0;
    if (store_get(tx->store, TABLE_CHANGES, key, &old) == CO_OK) {
        if (memcmp(old.data, head, sizeof head) == 0) return;
        if (is_removed(old))
            (void)store_del(tx->store, TABLE_TOMBSTONES, removal_key(get_be64(old.data), key, removal_room, &value));
    }
    if (shortened) {
        struct buffer whole = {0};
        buffer_append(&whole, head, sizeof head);
        buffer_append(&whole, name.data, name.size);
        store_put(tx->store, TABLE_CHANGES, key, buffer_slice(&whole));
        buffer_free(&whole);
    } else {
        store_put(tx->store, TABLE_CHANGES, key, slice_make(head, sizeof head));
    }
    if (!removed) return;
    struct slice removal = removal_key(tx->index, key, removal_room, &value);
    store_put(tx->store, TABLE_TOMBSTONES, removal, value);
    machine_tombstones_limit(tx->store, machine_tombstones_max(tx->machine));
}

uint64_t machine_change_index(struct store_txn *txn, uint8_t space, struct slice name) {
    char room[STORE_KEY_MAX];
    bool shortened;
    struct slice value;
    if (store_get(txn, TABLE_CHANGES, mark_key(space, name, room, &shortened), &value) != CO_OK) return 0;
    return get_be64(value.data);
}

uint64_t machine_floor(struct store_txn *txn) {
    struct slice value;
    return store_get(txn, STORE_TABLE_META, floor_key, &value) == CO_OK ? get_be64(value.data) : 0;
}

void machine_tombstones_limit(struct store_txn *txn, uint64_t max) {
    uint64_t count = store_count(txn, TABLE_TOMBSTONES), index = 0;
    if (count <= max) return;
    struct store_cursor oldest;
    store_cursor_open(&oldest, txn, TABLE_TOMBSTONES, slice_make("", 0));
    for (; count > max && oldest.valid; count--) {
        char mark[STORE_KEY_MAX];
        if (oldest.key.size < INDEX_BYTES || oldest.value.size > sizeof mark) { /* in a forged backup */
            store_fail(txn, CO_CORRUPT);
            break;
        }
        struct slice key =
            oldest.value.size ? oldest.value : slice_make(oldest.key.data + INDEX_BYTES, oldest.key.size - INDEX_BYTES);
        memcpy(mark, key.data, key.size);
        size_t size = key.size;
        index = get_be64(oldest.key.data);
        store_cursor_del(&oldest);
        (void)store_del(txn, TABLE_CHANGES, slice_make(mark, size));
    }
    store_cursor_close(&oldest);
    if (index <= machine_floor(txn)) return;
    char bytes[INDEX_BYTES];
    put_be64(bytes, index);
    store_put(txn, STORE_TABLE_META, floor_key, slice_make(bytes, sizeof bytes));
}

/* -- the newest removal below a prefix ---------------------------------------------------------------------------- */

/* Does the removal under the cursor concern a name that begins with `prefix`? */
static bool removal_below(struct store_txn *txn, const struct store_cursor *cursor, uint8_t space,
                          struct slice prefix) {
    struct slice mark = slice_make(cursor->key.data + INDEX_BYTES, cursor->key.size - INDEX_BYTES), value;
    if ((uint8_t)mark.data[0] != space) return false;
    if (cursor->value.size) mark = cursor->value;
    struct slice name = slice_make(mark.data + 1, mark.size - 1);
    /* When the key is shortened and does not suffice, the mark has the whole name. */
    if (prefix.size + 1 > STORE_KEY_PREFIX) {
        if (store_get(txn, TABLE_CHANGES, mark, &value) != CO_OK) return false;
        if (value.size > MARK_BYTES) name = slice_make(value.data + MARK_BYTES, value.size - MARK_BYTES);
    }
    return slice_starts(name, prefix);
}

static uint64_t mark_below(const struct store_cursor *cursor, struct slice prefix) {
    if (!is_removed(cursor->value)) return 0;
    struct slice name = slice_make(cursor->key.data + 1, cursor->key.size - 1);
    if (cursor->value.size > MARK_BYTES)
        name = slice_make(cursor->value.data + MARK_BYTES, cursor->value.size - MARK_BYTES);
    return slice_starts(name, prefix) ? get_be64(cursor->value.data) : 0;
}

/* Two searches run side by side, until one has the answer: one goes through all marks below the prefix, by name; the
 * other through all removals of anything, newest first, and ends at the first that fits. The first is quick when there
 * are few marks below the prefix, the second when there is a recent removal. */
uint64_t machine_removed_below(struct store_txn *txn, uint8_t space, struct slice prefix) {
    char from[STORE_KEY_PREFIX];
    from[0] = (char)space;
    size_t kept =
        prefix.size < sizeof from - 1 ? prefix.size : sizeof from - 1; /* so much of a shortened key is plain text */
    if (kept) memcpy(from + 1, prefix.data, kept);
    struct slice start = slice_make(from, kept + 1);
    struct store_cursor by_name, by_age;
    uint64_t newest = 0;
    store_cursor_open_last(&by_age, txn, TABLE_TOMBSTONES);
    if (by_age.valid) store_cursor_open(&by_name, txn, TABLE_CHANGES, start);
    else by_name = by_age;
    while (by_age.valid && by_name.valid && slice_starts(by_name.key, start)) {
        if (removal_below(txn, &by_age, space, prefix)) {
            newest = get_be64(by_age.key.data);
            break;
        }
        uint64_t index = mark_below(&by_name, prefix);
        if (index > newest) newest = index;
        store_cursor_prev(&by_age);
        store_cursor_next(&by_name);
    }
    if (by_name.impl != by_age.impl) store_cursor_close(&by_name);
    store_cursor_close(&by_age);
    return newest;
}
