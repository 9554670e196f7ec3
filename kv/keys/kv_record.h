/* The record of a key in the store: a fixed header, then session, lease, token, full key (long keys only) and value. So
 * a read returns slices of the map and unpacks nothing.
 *
 * Keys longer than STORE_KEY_PREFIX are stored under their first STORE_KEY_PREFIX bytes + a 128-bit hash. All keys
 * that are stored as they are end at STORE_KEY_PREFIX bytes, so that no short key can pose as a long one. Long keys
 * that share that prefix lie next to one another, in the order of their hashes. */
#ifndef COORD_KV_KV_RECORD_H
#define COORD_KV_KV_RECORD_H

#include "base/memory.h"
#include "base/text.h"
#include "registry/store.h"

#define KV_STORE_KEY_MAX (STORE_KEY_PREFIX + 16)
_Static_assert(KV_STORE_KEY_MAX <= STORE_KEY_MAX, "it is a key of the store");

struct kv_record {
    uint64_t create_index, modify_index, lock_index, flags;
    struct slice session; /* empty, or UUID_TEXT_SIZE bytes followed by a NUL */
    struct slice lease;   /* likewise */
    /* The fencing token of the session that holds the key: the index of the entry by which it took the lock. */
    uint64_t token;
    struct slice key; /* as the client wrote it */
    struct slice value;
};

/* The key's place in a table: `key` itself, or a hashed key that is built in `room`. */
struct slice kv_store_key(struct slice key, char room[KV_STORE_KEY_MAX]);
static inline bool kv_is_long(struct slice store_key) { return store_key.size > STORE_KEY_PREFIX; }

/* Slices point into `store_key` and `bytes`. CO_CORRUPT. */
int kv_record_decode(struct slice store_key, struct slice bytes, struct kv_record *record);
/* The record as new bytes in the arena. */
struct slice kv_record_encode(const struct kv_record *record, struct arena *arena);

/* The record of `key`. CO_NOTFOUND (also when another long key holds the place: then *taken is true),
 * CO_CORRUPT, CO_IO. */
int kv_record_get(struct store_txn *txn, struct slice store_key, struct slice key, struct kv_record *record,
                  bool *taken);

#endif
