/* Keys and values: commands (kv/keys/kv.proto), queries, and the module for the state machine, as Consul's KV behaves:
 * a plain PUT to a locked key keeps Session and sets LockIndex to 0. */
#ifndef COORD_KV_KV_H
#define COORD_KV_KV_H

#include "kv/keys/kv.pb-c.h"
#include "registry/machine.h"

enum kv_command { KV_APPLY = 32, LOCK_DELAY_END = 35, KV_RESTORE = 62, KV_APPLY_FENCED = 63 };
/* TXN_APPLY of kv/txn/txn.h, a floor above: rows of the history name it as the command by which a key changed. */
#define KV_BY_TRANSACTION 128
#define KV_BY_COPY        215 /* KEYS_TAKE of multi-dc/keys.h, likewise */
enum kv_space {
    SPACE_KEY = 32, /* keys; SPACE_KEY | WATCH_PREFIX_BIT: prefixes */
};
#define KV_KEY_MAX 8192

/* Of one KV_RESTORE at most: keys; bytes of their names and of their values, as they were and as they are. */
#define KV_RESTORE_KEYS_MAX  10000
#define KV_RESTORE_BYTES_MAX ((size_t)4 << 20)

extern const struct module kv_module;
extern const struct expiry_kind lock_delay_expiry; /* 2: key; index: of the entry that began it */
extern const struct query_type query_kv_get;       /* KvRequest -> KvEntry */
extern const struct query_type query_kv_list; /* KvRequest -> KvEntriesResult (recurse); found=false: nothing there */
extern const struct query_type query_kv_keys; /* KvRequest -> KvKeysResult */
/* KvPastRequest -> KvPastResult; found=false: nothing was there, or `at` is not between floor and index (verdict).
 * Its index: of a list of changes that of the key's last, as query_kv_get has it; else the moment's. */
extern const struct query_type query_kv_past;

#endif
