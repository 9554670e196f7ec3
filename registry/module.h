/* A module of the replicated state, as one table: its commands, store tables, watch spaces, queries, expiry kinds,
 * bindings to leases, and gauges. Everything that lists modules reads these tables (registry/modules.h): a new module
 * is its own files and one line in the list that the process hands over at start (agent/modules.c).
 *
 * Numbers are part of the log, of the store, of its copies and of the wire: never reused, never changed. Each is
 * unique among all modules; opening the list checks that.
 *
 *            commands       store tables    watch spaces    queries
 *   registry   1-31          1-15, 48-55       1-31            1-31
 *   kv         32-63,        16-31, 33-39      32-63,          32-63,
 *              128-207                         96-111          128-207
 *   lb         64-127        32, 40-41         64-95           64-127
 *   multi-dc   208-223       42-47, 62-63      112-119         208-223
 *   acl        224-239       56-61             120-127         224-239
 *
 * Applying is a function of (store, index, command): no clock, no randomness, no configuration. */
#ifndef COORD_REGISTRY_MODULE_H
#define COORD_REGISTRY_MODULE_H

#include <protobuf-c/protobuf-c.h>

#include "base/memory.h"
#include "registry/access.h"
#include "registry/expiry.h"
#include "registry/store.h"
#include "registry/watch.h"

struct machine;
struct machine_tx;
struct metric;

/* -- commands ----------------------------------------------------------------------------------------------------- */

/* Result of one command. Valid until the batch's results are delivered (copy what you keep). */
struct machine_result {
    int error;        /* CO_OK, or why it was refused; `text` says more */
    uint64_t index;   /* its index, as machine_index counts */
    bool yes;         /* the API's true/false */
    const char *text; /* NULL, or one line (the tx arena, or static) */
    /* Set by `apply`: NULL, or a message of the command's result type, in the tx arena. The machine packs it once, into
     * `record`, and everybody else gets that; code that shows it decodes it with the command's row. */
    const ProtobufCMessage *message;
    struct slice record;
    const char *record_type; /* full name of its message; NULL: there is no record */
};

/* Refuses the command that is being applied, alike on every server. `text`: static, or in the tx arena. CO_OK. */
static inline int machine_refuse(struct machine_result *result, int error, const char *text) {
    result->error = error, result->yes = false, result->text = text;
    return CO_OK;
}

struct module_command {
    uint8_t number; /* first byte of the command's bytes */
    uint8_t since;  /* the cluster version that it came with (registry/version.h); 0: it was there from the first on */
    bool servers_only; /* client agents may not send it: only servers propose it */
    const char *name;  /* in the log and in docs: "lease-grant" */
    const ProtobufCMessageDescriptor *request;
    const ProtobufCMessageDescriptor *result; /* of its result's record; NULL: it answers yes or no */
    /* May the request's token send it? Any thread of a server, before the command is proposed; `txn` reads the state as of
     * then, for names that the request does not say (the service of an ID). CO_OK; CO_DENIED: check->missing says why; the
     * store's errors. A thing that is not there is nobody's: CO_OK, and `apply` answers. Of a request with several parts it
     * may mark those that are denied (TxnOp.refused, QuotaAsk.denied), or that its refusals have to be short
     * (QueueAcquireCommand.nameless), and answer CO_OK: what is proposed is the request as it is afterwards
     * (`marks`). NULL: servers_only. */
    bool marks;
    int (*may)(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request);
    /* Applier thread. Checks everything before its first write; sets error/yes/text/message of `result`. `request` is
     * decoded into the tx arena; one that does not decode has been refused before (CO_INVALID). CO_OK unless the
     * *store* failed; CO_UNSUPPORTED: the command is a newer program's, and nothing more is applied here. */
    int (*apply)(struct machine_tx *tx, void *request, struct machine_result *result);
    /* In place of `apply`, for the hottest command: reads the payload itself. */
    int (*apply_bytes)(struct machine_tx *tx, struct slice payload, struct machine_result *result);
};

/* Rules of modules that the simulator breaks, to show that its models and checkers notice it. */
enum module_mutation {
    MUTATE_LOCK_OVERTAKES = 1 << 0,        /* a session takes a free slot although others wait */
    MUTATE_LOCK_FORGETS = 1 << 1,          /* the queue does not move on when a session ends */
    MUTATE_ELECTION_PRIORITY = 1 << 2,     /* the first goes first, whatever its priority */
    MUTATE_FENCE_LOWERS = 1 << 3,          /* a token below the highest is accepted */
    MUTATE_BARRIER_EARLY = 1 << 4,         /* it opens with one party missing */
    MUTATE_PHASER_KEEPS_DEAD = 1 << 5,     /* a party whose session has ended is still waited for */
    MUTATE_HAZARD_FORGETS = 1 << 6,        /* retire does not wait for the oldest protection */
    MUTATE_TXN_HALF = 1 << 7,              /* a transaction that fails keeps the effects of its other operations */
    MUTATE_HISTORY_SKIPS = 1 << 8,         /* of an entry that changed several records one is left out */
    MUTATE_STREAM_SKIPS = 1 << 9,          /* a stream skips the change right after its position */
    MUTATE_QUOTA_RECLAIMS_EARLY = 1 << 10, /* a lease's part comes back although its time is not over */
    MUTATE_QUOTA_REFILL_TWICE = 1 << 11,   /* a refill counts whatever state and term it was proposed for */
    MUTATE_QUOTA_SPLIT_EXCEEDS = 1 << 12,  /* the parts of a split key are rounded up */
    MUTATE_ROLLOUT_REPEATS = 1 << 13,      /* the end of a hold counts also when another entry has armed it since */
    MUTATE_ROLLOUT_SLEEPS = 1 << 14,       /* a change of the values that clients get wakes nobody */
    MUTATE_ROLLOUT_BLIND = 1 << 15,        /* the guard does not see refusals */
    MUTATE_KEYS_REPEATS = 1 << 17,         /* a step of a copy of keys counts whatever state it was made for */
    MUTATE_COPY_MIXES = 1 << 16,           /* a change of a copy counts for any state, or a part is missing */
    MUTATE_FAILOVER_LINGERS = 1 << 18,     /* a service waits to come home although nobody else could answer */
    MUTATE_TURNS_FORGET = 1 << 19,         /* an instance counts as healthy before the entry, whatever it was */
    MUTATE_TOKEN_OUTLIVES = 1 << 20,       /* a token that was changed since it was made does not end with its time */
};

/* -- events within an entry --------------------------------------------------------------------------------------- */

/* Events in the catalog, for modules that depend on it (sessions depend on nodes and checks). */
enum machine_event_type {
    MACHINE_NODE_REMOVED,
    MACHINE_SERVICE_REMOVED,
    MACHINE_CHECK_REMOVED,
    MACHINE_CHECK_CRITICAL,        /* its status became critical */
    MACHINE_PRESERVATION_RELEASED, /* `id`: the service, held no longer (registry/self_preservation.h) */
};
struct machine_event {
    enum machine_event_type type;
    struct slice node, id; /* id: service id or check id */
};

/* A service of which instances turned between healthy and not healthy (registry/catalog_turns.h). */
struct module_turn {
    struct slice service;
    bool lost, gained; /* lost: an instance is healthy no more; gained: one is healthy that was not */
};

/* A thing that a client's command is about to change, for modules that may forbid that. */
struct machine_thing {
    uint8_t space;    /* its module's watch space; with WATCH_PREFIX_BIT: all things whose names begin with `name` */
    const char *noun; /* "lock" */
    struct slice name;
};

/* -- bindings to leases and sessions ------------------------------------------------------------------------------ */

struct binding_end {
    struct slice owner, name, value; /* the owner's id; the bound thing, and its value; in the tx arena */
    const ProtobufCMessage *session; /* of sessions: the record (pb.Session); of leases NULL */
};
/* Things of one kind that are bound to owners of one sort: leases (registry/lease.h) or sessions (kv/session/session.h). The
 * module that owns the things binds and unbinds them; when the owner ends, `ended` is called for each, in the entry
 * of the end. It removes or releases the thing and unbinds it: afterwards the binding must be gone. */
struct module_binding {
    uint8_t number; /* of leases: in the row's key. Of sessions: the store table that the rows are in */
    int (*ended)(struct machine_tx *tx, const struct binding_end *end);
};

/* -- queries ------------------------------------------------------------------------------------------------------ */

/* A query: a read of the store for a request, giving records (rpc/api/rpc.h runs them). */
struct query_result {
    uint64_t index;                  /* last change of anything in the result, removals included; 0: never */
    bool found;                      /* false: a single thing that is not there (HTTP 404) */
    const ProtobufCMessage *message; /* records: in the arena, strings may point into the map (valid while txn lives) */
};
struct query_type {
    uint16_t number; /* unique, stable: it goes over the wire */
    const char *name;
    /* a read of the catalog, health or coordinates: client agents keep its last answers for the time when no server
     * can be reached (rpc/client/client_cache.c) */
    bool discovery;
    /* of the request; of query_result.message (NULL: result_of says it) */
    const ProtobufCMessageDescriptor *request, *result;
    /* The one watch key that the result depends on. The slice points into the request. */
    struct watch_key (*watched)(const ProtobufCMessage *request);
    int (*run)(struct store_txn *txn, const ProtobufCMessage *request, struct arena *arena,
               struct query_result *result);
    /* Takes out of the result what the request's token may not read, in the transaction of `run`, and counts it in
     * check->hidden. A list loses rows; of a single thing the answer is CO_DENIED, whether it is there or not. Everything that
     * the result tells must pass, because waits, streams and agents show it as it is. The message is the arena's own, so it
     * may be changed in place. Not called for access_all. */
    int (*show)(struct access_check *check, struct store_txn *txn, const ProtobufCMessage *request,
                struct query_result *result);
    /* NULL, or another watch key on which the result depends: its change wakes nobody, but cached answers are no longer
     * current. */
    struct watch_key (*also)(const ProtobufCMessage *request);
    /* NULL, or more watch keys, which wake as `watched` does, the i-th from 0; space 0: there are no more. For a query
     * of several things, and for a wait that many clients share and that can end for one of them alone. Answers of such
     * queries are not cached. */
    struct watch_key (*own)(const ProtobufCMessage *request, size_t i);
    /* Of queries that wrap others: NULL for a request that wraps none. */
    const ProtobufCMessageDescriptor *(*result_of)(const ProtobufCMessage *request);
};
static inline const ProtobufCMessageDescriptor *query_result_type(const struct query_type *type,
                                                                  const ProtobufCMessage *request) {
    return type->result_of ? type->result_of(request) : type->result;
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

/* A part of the state whose history is kept together, with a window of its own (registry/history.h). */
enum history_topic { HISTORY_NONE, HISTORY_KEYS, HISTORY_CATALOG, HISTORY_LOCKS, HISTORY_QUOTAS, HISTORY_TOPICS };

struct module_space {
    uint8_t number;
    const char *name;
};

/* A gauge whose value is read from the store: at start, and soon after something of the module's expiry kinds began
 * or ended. */
struct module_gauge {
    struct metric *metric;
    uint64_t (*value)(struct store_txn *txn);
};

/* Lists end with an entry of zeroes (NULL); a list that is NULL is empty. */
struct module {
    const char *name;
    const struct module_command *commands; /* the last has number 0 */
    const struct store_table *tables;      /* the last has number 0 */
    const struct module_space *spaces;     /* the last has number 0 */
    const struct query_type *const *queries;
    const struct expiry_kind *const *expiries;
    const struct module_binding *lease_bindings, *session_bindings; /* the last has number 0 */
    /* For its history: the tables that its queries of the past read, and the spaces whose names are followed. Each list
     * ends with 0. */
    enum history_topic topic;
    const uint8_t *topic_tables, *topic_spaces;
    const struct module_gauge *gauges; /* the last has no metric */
    struct metric *const *metrics;     /* its other metrics; registered at start */
    void (*on_event)(struct machine_tx *tx, const struct machine_event *event); /* may be NULL */
    /* At the end of an entry, on_turn is called for each service of which the entry turned an instance, if any module
     * wants that. wants_turns is asked before each change of an instance, so it has to be cheap. Both NULL, or none. */
    void (*on_turn)(struct machine_tx *tx, const struct module_turn *turn);
    bool (*wants_turns)(const struct machine_tx *tx);
    /* Why clients may not change this thing here: one line, in the tx arena; NULL: they may. It is asked for each of
     * their commands on keys, locks, elections, barriers, phasers, hazards and budgets (machine_forbids), so it has to
     * be quick. May be NULL. */
    const char *(*forbids)(struct machine_tx *tx, const struct machine_thing *thing);
    /* A restore of a backup: do the module's tables stay as they are (`txn`: before the restore), and the backup's do not
     * come back? NULL: the backup's come. */
    bool (*stays)(struct store_txn *txn);
};

#endif
