/* Shared by the files of kv/keys/ only. */
#ifndef COORD_KV_KV_INTERNAL_H
#define COORD_KV_KV_INTERNAL_H

#include "base/check.h"
#include "kv/keys/kv.h"
#include "kv/keys/kv_record.h"
#include "kv/lock/lock_delay.h"
#include "kv/session/session.h"
#include "registry/history.h"

enum kv_table {
    KV_TABLE_KEYS = 16,   /* store key -> record (kv_record.h) */
    KV_TABLE_LOCKS = 17,  /* session id, store key -> the full key when it is long; keys that a session holds */
    KV_TABLE_DELAYS = 18, /* store key -> lock-delay under way (kv/lock/lock_delay.h) */
};

_Static_assert(KV_TABLE_KEYS >= 16 && KV_TABLE_DELAYS < 32, "tables of kv (registry/module.h)");
_Static_assert(KV_APPLY >= 32 && KV_APPLY_FENCED < 64, "commands of kv");
_Static_assert(SPACE_KEY >= 32 && SPACE_KEY < 64, "a space of kv");
_Static_assert(UUID_TEXT_SIZE + KV_STORE_KEY_MAX <= STORE_KEY_MAX, "a row of KV_TABLE_LOCKS fits");

/* -- commands: as module_command.apply ---------------------------------------------------------------------------- */
int kv_command_apply(struct machine_tx *tx, struct slice payload, struct machine_result *result);
int kv_fenced_apply(struct machine_tx *tx, struct slice payload, struct machine_result *result);
int lock_delay_end_apply(struct machine_tx *tx, void *request, struct machine_result *result);

/* -- what ends keys and locks: as module_binding.ended ------------------------------------------------------------ */
int key_lease_ended(struct machine_tx *tx, const struct binding_end *end);
int key_lock_ended(struct machine_tx *tx, const struct binding_end *end);
extern const struct module_binding key_lock_binding; /* of keys that sessions hold */
extern const struct lock_delays key_lock_delays;     /* rows: store keys; names: keys */

/* -- the past ----------------------------------------------------------------------------------------------------- */
struct history_moment kv_moment(const Pb__KvMoment *moment); /* NULL: as an empty field */
Pb__KvMomentVerdict kv_moment_verdict(int error);            /* of history_moment */
int kv_restore_apply(struct machine_tx *tx, void *request, struct machine_result *result);
/* As KV_SET and KV_DELETE of a client; the slices do not point into the map. CO_OK (see the result), or the store's
 * error. */
int kv_restore_set(struct machine_tx *tx, struct slice key, struct slice value, uint64_t flags,
                   struct machine_result *result);
int kv_restore_remove(struct machine_tx *tx, struct slice key, struct machine_result *result);

/* -- access: as module_command.may and query_type.show (kv_access.c) ---------------------------------------------- */
int kv_command_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
int kv_restore_may(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
int kv_get_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                struct query_result *result);
int kv_list_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                 struct query_result *result);
int kv_keys_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                 struct query_result *result);
int kv_past_show(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *message,
                 struct query_result *result);

/* -- walking keys ------------------------------------------------------------------------------------------------- */
/* The beginning of the store keys of all keys below `prefix`. When it is shorter than the prefix, compare the full keys
 * too. */
static inline struct slice kv_prefix_head(struct slice prefix) {
    return slice_make(prefix.data, prefix.size < STORE_KEY_PREFIX ? prefix.size : STORE_KEY_PREFIX);
}

#endif
