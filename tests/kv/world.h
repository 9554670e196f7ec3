/* A state machine on a real store in a temporary folder, with catalog, keys and sessions; shared by the tests of
 * this folder. */
#ifndef COORD_TESTS_KV_WORLD_H
#define COORD_TESTS_KV_WORLD_H

#include "base/text.h"
#include "kv/kv.h"
#include "kv/session.h"
#include "registry/catalog.h"
#include "registry/lease.h"

struct world {
    char folder[256];
    struct machine *machine;
    struct expiry_updates *box;
    struct store_reader *reader;
    struct arena arena; /* of requests and results: until the next world_query */
    uint64_t term;
    struct module_entry modules[16]; /* the program's, and one of a test's own */
    unsigned wakes;                  /* of the box */
    void (*on_wake)(void);           /* may be NULL */
};

void world_open(struct world *world);
void world_open_with(struct world *world, const struct module *more); /* NULL: none */
void world_close(struct world *world);
/* Closes and opens the store again; what was applied is there. */
void world_reopen(struct world *world);

struct outcome {
    int error;
    bool yes;
    uint64_t index;
    char text[200];
    char session[UUID_TEXT_SIZE + 1];
};
/* Applies commands in one batch. */
struct command {
    uint8_t type;
    const ProtobufCMessage *message;
};
void world_apply(struct world *world, const struct command *commands, size_t count, struct outcome *outcomes);
struct outcome world_do(struct world *world, uint8_t type, const ProtobufCMessage *message);
/* Its error is expected: machine_apply's. */
int world_try(struct world *world, uint8_t type, const ProtobufCMessage *message);
struct outcome world_raw(struct world *world, struct slice command);

/* Keys. NULL session or value: none. */
struct outcome kv_do(struct world *world, Pb__KvVerb verb, const char *key, const char *value, uint64_t number,
                     const char *session);
#define kv_put(world, key, value)         kv_do(world, PB__KV_VERB__KV_SET, key, value, 0, NULL)
#define kv_cas(world, key, value, index)  kv_do(world, PB__KV_VERB__KV_CAS, key, value, index, NULL)
#define kv_acquire(world, key, value, id) kv_do(world, PB__KV_VERB__KV_LOCK, key, value, 0, id)
#define kv_release(world, key, value, id) kv_do(world, PB__KV_VERB__KV_UNLOCK, key, value, 0, id)
#define kv_del(world, key)                kv_do(world, PB__KV_VERB__KV_DELETE, key, NULL, 0, NULL)
#define kv_del_cas(world, key, index)     kv_do(world, PB__KV_VERB__KV_DELETE_CAS, key, NULL, index, NULL)
#define kv_del_tree(world, key)           kv_do(world, PB__KV_VERB__KV_DELETE_TREE, key, NULL, 0, NULL)

/* Sessions and what they hang on. */
void session_id(unsigned number, char id[UUID_TEXT_SIZE + 1]);
struct session_plan {
    const char *node, *node_check, *service_check, *old_check;
    int64_t lock_delay_ns, ttl_ns;
    bool delete_keys;
};
struct outcome session_make(struct world *world, const char *id, const struct session_plan *plan);
struct outcome session_drop(struct world *world, const char *id);
struct outcome node_register(struct world *world, const char *node);
struct outcome check_register(struct world *world, const char *node, const char *check, Pb__Status status);
struct outcome check_remove(struct world *world, const char *node, const char *check);
struct outcome node_remove(struct world *world, const char *node);

/* Queries; the result is valid until the next one. */
struct query_result world_query(struct world *world, const struct query_type *type, const ProtobufCMessage *request);
struct query_result kv_get(struct world *world, const char *key);
struct query_result kv_list(struct world *world, const char *prefix);
struct query_result kv_keys(struct world *world, const char *prefix, const char *separator);
struct query_result session_get_by(struct world *world, const char *id);
struct query_result session_list(struct world *world, const char *node);

static inline const Pb__KvEntry *entry_of(const struct query_result *result) {
    return (const Pb__KvEntry *)result->message;
}
bool bytes_are(ProtobufCBinaryData data, const char *text);

#endif
