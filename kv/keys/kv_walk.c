#include "kv/keys/kv_copied.h"
#include "kv/keys/kv_internal.h"

static void find(struct kv_walk *walk) {
    struct slice head = kv_prefix_head(walk->prefix);
    walk->valid = false;
    for (; walk->cursor.valid && slice_starts(walk->cursor.key, head); store_cursor_next(&walk->cursor)) {
        walk->error = kv_record_decode(walk->cursor.key, walk->cursor.value, &walk->record);
        if (walk->error) return;
        if (!slice_starts(walk->record.key, walk->prefix)) continue;
        walk->place = walk->cursor.key, walk->valid = true;
        return;
    }
}

void kv_walk_open(struct kv_walk *walk, struct store_txn *txn, struct slice prefix, struct slice after) {
    struct slice head = kv_prefix_head(prefix);
    *walk = (struct kv_walk){.prefix = prefix};
    store_cursor_open(&walk->cursor, txn, KV_TABLE_KEYS, slice_compare(after, head) > 0 ? after : head);
    if (after.size && walk->cursor.valid && slice_equal(walk->cursor.key, after)) store_cursor_next(&walk->cursor);
    find(walk);
}

void kv_walk_next(struct kv_walk *walk) {
    store_cursor_next(&walk->cursor);
    find(walk);
}

void kv_walk_close(struct kv_walk *walk) { store_cursor_close(&walk->cursor); }
