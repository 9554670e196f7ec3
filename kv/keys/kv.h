/* Keys and values: commands (kv/keys/kv.proto), queries, and the module for the state machine, as Consul's KV behaves:
 * a plain PUT to a locked key keeps Session and sets LockIndex to 0. */
#ifndef COORD_KV_KV_H
#define COORD_KV_KV_H

#include "kv/keys/kv.pb-c.h"
#include "registry/machine.h"

enum kv_command { KV_APPLY = 32, LOCK_DELAY_END = 35, KV_RESTORE = 62, KV_APPLY_FENCED = 63 };
/* The number of TXN_APPLY (kv/txn/txn.h, which lies above this folder): rows of the history name it as the command that
 * changed a key. */
#define KV_BY_TRANSACTION 128
#define KV_BY_COPY        215 /* likewise of KEYS_TAKE (multi-dc/keys.h) */
enum kv_space {
    SPACE_KEY = 32, /* keys; SPACE_KEY | WATCH_PREFIX_BIT: prefixes */
};
#define KV_KEY_MAX 8192

/* Limits of one KV_RESTORE: keys; bytes of their names and of their values, both old and present ones. */
#define KV_RESTORE_KEYS_MAX  10000
#define KV_RESTORE_BYTES_MAX ((size_t)4 << 20)

/* Setting acl.enable_key_list_policy: who lists the keys below a prefix needs key:list on it. To be set before the first
 * query. */
extern bool kv_key_list_policy;

extern const struct module kv_module;
extern const struct expiry_kind lock_delay_expiry; /* kind 2; name: the key; index: of the entry that began the
                                                    * lock-delay */
extern const struct query_type query_kv_get;       /* KvRequest -> KvEntry */
extern const struct query_type query_kv_list; /* KvRequest -> KvEntriesResult (recurse); found=false: there is no key
                                               * below the prefix */
extern const struct query_type query_kv_keys; /* KvRequest -> KvKeysResult */
/* KvPastRequest -> KvPastResult; found=false: there was nothing then, or `at` is not between floor and index (see
 * `verdict`). The result's index: for a list of changes that of the key's last change, as query_kv_get has it; else
 * that of the moment. */
extern const struct query_type query_kv_past;

#endif
