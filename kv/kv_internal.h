/* Shared by the files of this folder only. */
#ifndef COORD_KV_KV_INTERNAL_H
#define COORD_KV_KV_INTERNAL_H

#include "base/check.h"
#include "kv/kv.h"
#include "kv/kv_record.h"
#include "kv/session.h"

enum kv_table {
    KV_TABLE_KEYS = 16,          /* store key -> record (kv_record.h) */
    KV_TABLE_LOCKS = 17,         /* session id, store key -> full key when it is long: what a session holds */
    KV_TABLE_DELAYS = 18,        /* store key -> lock-delay under way (struct kv_delay) */
    KV_TABLE_SESSIONS = 19,      /* id -> TTL in ns (8 bytes), then pb.Session */
    KV_TABLE_SESSION_INDEX = 20, /* node, check or nothing, id -> nothing */
};

#define LOCK_DELAY_MAX_NS 60000000000 /* longer ones are kept as written, and count as this */

/* -- commands: as module_command.apply ---------------------------------------------------------------------------- */
int kv_command_apply(struct machine_tx *tx, struct slice payload, struct machine_result *result);
int lock_delay_end_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int session_create_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int session_destroy_apply(struct machine_tx *tx, void *request, struct machine_result *result);
void session_on_event(struct machine_tx *tx, const struct machine_event *event);

/* -- what ends keys and locks: as module_binding.ended ------------------------------------------------------------ */
int key_lease_ended(struct machine_tx *tx, const struct binding_end *end);
int key_lock_ended(struct machine_tx *tx, const struct binding_end *end);
extern const struct module_binding key_lock_binding; /* of keys that sessions hold */

/* session_bindings.c: `ended` of everything that is bound to it. CO_OK, or the store failed. */
int session_end_bindings(struct machine_tx *tx, const Pb__Session *session);

/* -- lock-delays -------------------------------------------------------------------------------------------------- */
struct kv_delay {
    uint64_t index;
    int64_t delay_ns;
    struct slice key;
};
/* CO_CORRUPT. `key` points into the arguments. */
int kv_delay_decode(struct slice store_key, struct slice bytes, struct kv_delay *delay);

/* -- walking keys ------------------------------------------------------------------------------------------------- */
/* What store keys of the keys below `prefix` begin with; when it is shorter than the prefix, compare the full keys
 * too. */
static inline struct slice kv_prefix_head(struct slice prefix) {
    return slice_make(prefix.data, prefix.size < STORE_KEY_PREFIX ? prefix.size : STORE_KEY_PREFIX);
}

/* -- session records ---------------------------------------------------------------------------------------------- */
/* Record of a session, unpacked into the arena. CO_NOTFOUND, CO_CORRUPT. */
int session_get(struct store_txn *txn, struct slice id, struct arena *arena, Pb__Session **session);
int session_unpack(struct slice bytes, struct arena *arena, Pb__Session **session);
int64_t session_record_ttl_ns(struct slice bytes); /* -1: damaged */
/* Beginning of the index rows of a node (check empty) or of one of its checks; the session's id follows. */
struct slice session_index_prefix(struct store_txn *txn, struct slice node, struct slice check,
                                  char room[STORE_KEY_MAX]);

#endif
