/* Keys, sessions and what they hang on, for the tests of this folder. */
#ifndef COORD_TESTS_KV_COMMANDS_H
#define COORD_TESTS_KV_COMMANDS_H

#include "base/text.h"
#include "kv/keys/kv.h"
#include "kv/lock/lock.h"
#include "kv/session/session.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "tests/lib/fixture.h"

/* Keys. NULL session or value: none. */
struct outcome kv_do(struct fixture *world, Pb__KvVerb verb, const char *key, const char *value, uint64_t number,
                     const char *session);
#define kv_put(world, key, value)         kv_do(world, PB__KV_VERB__KV_SET, key, value, 0, NULL)
#define kv_cas(world, key, value, index)  kv_do(world, PB__KV_VERB__KV_CAS, key, value, index, NULL)
#define kv_acquire(world, key, value, id) kv_do(world, PB__KV_VERB__KV_LOCK, key, value, 0, id)
#define kv_release(world, key, value, id) kv_do(world, PB__KV_VERB__KV_UNLOCK, key, value, 0, id)
#define kv_del(world, key)                kv_do(world, PB__KV_VERB__KV_DELETE, key, NULL, 0, NULL)
#define kv_del_cas(world, key, index)     kv_do(world, PB__KV_VERB__KV_DELETE_CAS, key, NULL, index, NULL)
#define kv_del_tree(world, key)           kv_do(world, PB__KV_VERB__KV_DELETE_TREE, key, NULL, 0, NULL)

/* The same, while `token` holds `lock`. */
struct outcome kv_fenced(struct fixture *world, const char *lock, uint64_t token, Pb__KvVerb verb, const char *key,
                         const char *value, uint64_t number, const char *session);

/* Locks (kv/lock/lock.h); the outcome has the token. */
struct outcome lock_take(struct fixture *world, const char *name, const char *session, Pb__QueueMode mode);
struct outcome lock_give(struct fixture *world, const char *name, const char *session);

/* Sessions and what they hang on. */
void session_id(unsigned number, char id[UUID_TEXT_SIZE + 1]);
struct session_plan {
    const char *node, *node_check, *service_check, *old_check;
    int64_t lock_delay_ns, ttl_ns;
    bool delete_keys;
};
struct outcome session_make(struct fixture *world, const char *id, const struct session_plan *plan);
struct outcome session_drop(struct fixture *world, const char *id);
struct outcome node_register(struct fixture *world, const char *node);
struct outcome check_register(struct fixture *world, const char *node, const char *check, Pb__Status status);
struct outcome check_deregister(struct fixture *world, const char *node, const char *check);
struct outcome node_remove(struct fixture *world, const char *node);

/* Queries; the result is valid until the next one. */
struct query_result kv_get(struct fixture *world, const char *key);
struct query_result kv_list(struct fixture *world, const char *prefix);
struct query_result kv_keys(struct fixture *world, const char *prefix, const char *separator);
struct query_result session_get_by(struct fixture *world, const char *id);
struct query_result session_list(struct fixture *world, const char *node);

static inline const Pb__KvEntry *entry_of(const struct query_result *result) {
    return (const Pb__KvEntry *)result->message;
}
bool bytes_are(ProtobufCBinaryData data, const char *text);

#endif
