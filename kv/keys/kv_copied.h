/* For the copies of other regions' keys (multi-dc/keys.h): writes that no client makes, and a walk in the order of the
 * store, which is the same in each cluster. */
#ifndef COORD_KV_KV_COPIED_H
#define COORD_KV_KV_COPIED_H

#include "kv/keys/kv.h"
#include "kv/keys/kv_record.h"

/* Applier thread. Gives the key this value and these flags, and neither lock nor lease. When it has them already
 * nothing changes, and nobody is woken. *made: the key is new. The caller has checked `key` (KV_KEY_MAX, no NUL);
 * slices do not point into the map. CO_OK, or the store's error. A long key whose place another long key has is left
 * out. */
int kv_copied_set(struct machine_tx *tx, struct slice key, struct slice value, uint64_t flags, bool *made);
int kv_copied_remove(struct machine_tx *tx, struct slice key, bool *removed);

/* Keys with this prefix behind `after`, a place in the store (kv_store_key; empty: from the first on), in the order of
 * their places: not quite that of the keys (kv_record.h). */
struct kv_walk {
    struct store_cursor cursor;
    struct slice prefix;
    bool valid;
    int error;          /* CO_CORRUPT: a record does not decode; valid is false */
    struct slice place; /* of the present key; both point into the map */
    struct kv_record record;
};
void kv_walk_open(struct kv_walk *walk, struct store_txn *txn, struct slice prefix, struct slice after);
void kv_walk_next(struct kv_walk *walk);
void kv_walk_close(struct kv_walk *walk);

#endif
