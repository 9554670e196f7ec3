/* The simulated modules, and what they and the told scenarios know of each other. A new module is its file and a line
 * here. */
#ifndef COORD_TESTS_SIM_MODULES_H
#define COORD_TESTS_SIM_MODULES_H

#include "kv/keys/kv.h"
#include "tests/sim/module.h"

/* The order is that in which they hear of each other. */
#define SIM_MODULES(X) \
    X(catalog)         \
    X(lease)           \
    X(session)         \
    X(kv)              \
    X(version)         \
    X(later)           \
    X(event)           \
    X(barrier)         \
    X(hazard)          \
    X(fence)           \
    X(phaser)          \
    X(lock)            \
    X(election)        \
    X(txn)             \
    X(rollout)         \
    X(history)         \
    X(stream)          \
    X(quota)           \
    X(copy)            \
    X(acl)
#define SIM_EXTERN(name) extern const struct sim_module sim_##name;
SIM_MODULES(SIM_EXTERN)
#undef SIM_EXTERN

/* An operation is made of each by these; `op` is zeroed. */
void renew_op(struct op *op, const struct sim_module *module); /* of `owner`, which that module's operation made */

/* -- keys ----------------------------------------------------------------------------------------------------------- */

#define SIM_KEYS  12 /* k0 ..., then */
#define SIM_LOCKS 4  /* of them: only locked and unlocked */
enum kv_kind { KV_PUT, KV_CAS, KV_DELETE, KV_LOCK, KV_UNLOCK, KV_LEASED, KV_BACK, KV_GET };
void kv_op(struct op *op, enum kv_kind kind, uint32_t key, uint32_t size); /* size: of the value */
/* Takes a target back (no locks: their LockIndex would begin anew). `remove`, `dry_run`: as KvRestoreCommand has them. When
 * to is said before it is sent: an index, or 0 and a time. */
void kv_back_op(struct op *op, uint32_t target, bool remove, bool dry_run);
void kv_back_to(struct op *op, uint64_t index, uint64_t unix_ms);
uint32_t kv_key(const struct op *op);
struct key_version { /* of a key, from `index` on */
    uint64_t index, writer, lock_index, token, holder, lease;
    bool gone;
};
const struct key_version *kv_now(struct sim *sim, uint32_t key);
const struct key_version *kv_at(struct sim *sim, uint32_t key, uint64_t index);    /* as of that index */
const struct key_version *kv_after(struct sim *sim, uint32_t key, uint64_t index); /* the next; NULL: there is none */
void kv_key_name(uint32_t key, char name[16]);
/* The index that is meant by an index, or with 0 by a time, when `present` was applied last and the history reaches back to
 * `floor`. 0: it is not kept, or not there yet. */
uint64_t history_meant(struct sim *sim, uint64_t index, uint64_t unix_ms, uint64_t floor, uint64_t present,
                       uint64_t present_ms);
uint64_t kv_version_sum(uint32_t key, const struct key_version *version);
uint64_t kv_entry_sum(const Pb__KvEntry *entry); /* the same of what was read */
uint32_t kv_key_number(struct slice name);       /* SIM_KEYS: none of them */
/* Targets: keys, and from SIM_KEYS on prefixes of them. */
#define SIM_PREFIXES 5
void kv_target_name(uint32_t target, char name[16]);
bool kv_is_target(uint32_t target, uint32_t key);

/* -- sessions ------------------------------------------------------------------------------------------------------- */

struct session_wish { /* the own part of an operation that makes a session begins with it */
    uint32_t node;
    uint64_t delay_ms;
};
void session_op(struct op *op, uint32_t node, uint64_t ttl_ms, uint64_t delay_ms);
bool session_makes(const struct op *op); /* may have made one, of whatever module it is */
uint64_t session_delay_ms(const struct op *op);
void session_name(uint64_t op, char id[40]);
uint64_t session_maker(const char *id); /* 0: not one of ours */

/* -- leases --------------------------------------------------------------------------------------------------------- */

#define SIM_REAP_MS 1500 /* reconnect timeout */
/* `node`: its lease, asked for by `owner`; 0: a free one. */
void lease_op(struct op *op, uint32_t node, uint32_t owner, uint64_t ttl_ms);
void lease_name(uint64_t op, char id[40]);
uint64_t lease_maker(const char *id);
uint64_t lease_dead_index(struct sim *sim, uint32_t node); /* it expired, and the node is to be removed; 0: not */

/* -- nodes ---------------------------------------------------------------------------------------------------------- */

#define SIM_NODES    3                         /* n1 ... */
#define SIM_CAPITALS 8u                        /* added to a node's number: N1 ..., the same node (registry/fold.h) */
void catalog_op(struct op *op, uint32_t node); /* registers it with a service and a check */
/* For a client that needs its node, by either name, for its sessions: registers it twice at first, and now and then
 * again. False: nothing to do now. *registered: how often it has. */
bool catalog_next(struct sim_turn *turn, unsigned *registered, struct op *op);
bool catalog_registered(struct sim *sim, uint32_t node);
void node_name(uint32_t node, char name[8]);
uint32_t node_number(const char *name); /* of either name */
uint32_t node_plain(uint32_t node);     /* without SIM_CAPITALS */
bool node_same(uint32_t a, uint32_t b);
/* As the client writes it now: half of them in capitals, and all change their mind now and then. */
uint32_t node_spelled(struct sim_turn *turn, uint32_t node);

/* -- locks and elections (queues.h) ----------------------------------------------------------------------------------- */

#define SIM_QUEUES 3 /* of each family; with limit 2 the last lock */
enum queue_kind { QUEUE_ACQUIRE, QUEUE_RELEASE, QUEUE_PROCLAIM, QUEUE_ENTRY, QUEUE_VIEW, QUEUE_LEADER };
/* `owner`: the session; of an entry read, too. module: sim_lock or sim_election. */
void queue_op(struct op *op, const struct sim_module *module, enum queue_kind kind, uint32_t queue);
void queue_op_wishes(struct op *op, bool shared, bool asks, uint32_t limit, uint32_t priority); /* of an acquire */
void queue_op_makes(struct op *op, uint32_t node, uint64_t ttl_ms, uint64_t delay_ms); /* in place of a session */
void queue_op_token(struct op *op, uint64_t token);                                    /* the same */
bool queue_makes_session(const struct op *op);
uint64_t queue_token(const struct op *entry_read); /* that it saw; 0: none */
uint64_t queue_token_now(struct sim *sim, const struct sim_module *module, uint32_t queue, uint64_t session);
bool queue_waits_now(struct sim *sim, const struct sim_module *module, uint32_t queue, uint64_t session);

/* -- the cluster version -------------------------------------------------------------------------------------------- */

void version_op(struct op *op);        /* founds the cluster */
bool version_founded(struct sim *sim); /* it has an id, and its history has begun */

/* -- events --------------------------------------------------------------------------------------------------------- */

void event_op(struct op *op, uint32_t payload);
void event_list_op(struct op *op);
size_t event_kept(const struct op *op); /* how many a list has seen */

/* -- copies of the catalog ------------------------------------------------------------------------------------------ */

/* One that leads, and follows the cluster's own catalog; freed at the end of the run. rows_most: in a command. */
struct follower;
struct follower *copy_follower(uint32_t rows_most);
/* copy_op turns the follower's next wish into the operation, which has its id already (false: it wants nothing now).
 * copy_learn takes the answer. */
bool copy_op(struct follower *follower, struct op *op);
void copy_learn(struct follower *follower, const struct op *op);
bool copy_is_current(struct sim *sim, struct server *server); /* there the copy is what the catalog is; judges it too */

#endif
