/* The state machine: modules apply commands to the store, one write transaction per batch. A function of (store, index,
 * command): no clock, no randomness, no configuration.
 *
 * Modules and their commands: registry/module.h.
 *
 * A command's bytes: one byte type, one byte format version (1), then the module's protobuf message. A command of
 * unknown type or format stops applying (CO_UNSUPPORTED): the server logs that and waits for its upgrade. A command
 * that is known but does not decode is refused alike on every server (result CO_INVALID). A command checks everything
 * before its first write. A leader appends a command only when the cluster version has reached the one that introduced
 * it (registry/version.h). */
#ifndef COORD_REGISTRY_MACHINE_H
#define COORD_REGISTRY_MACHINE_H

#include "registry/modules.h"

/* The cluster versions that this program can be a member at (registry/version.h). */
#define MACHINE_VERSION_OLDEST 1
#define MACHINE_VERSION_NEWEST 1
_Static_assert(MACHINE_VERSION_OLDEST >= 1 && MACHINE_VERSION_OLDEST <= MACHINE_VERSION_NEWEST, "some version");

/* One batch being applied. */
struct machine_tx {
    struct machine *machine;
    struct store_txn *store;
    struct arena *arena;  /* reset after the batch's results are delivered */
    uint64_t index, term; /* of the entry being applied (as machine_index counts) */
    struct watch_touched touched;
    struct history *history; /* registry/history.h; NULL: outside of a batch */
    unsigned mutations;      /* as in machine_config */
    struct pointers *turns;  /* registry/catalog_turns.h; NULL: nothing may have turned */
    /* When the entry was proposed, by the clock of the leader that proposed it; never below the time of an earlier
     * entry. 0: no entry had a time yet. */
    uint64_t unix_ms;
    int64_t now_unix_ms; /* the time in the entry's command, for handlers of its events; 0: it has none */
};
/* The thing changes: its waiters wake, and the history notes it. */
void machine_touch(struct machine_tx *tx, uint8_t space, struct slice name);
/* The cluster version as of the entry being applied. A field that changes what an older command does counts only
 * from the version on that introduced it: programs that do not know the field have to come to the same state. */
unsigned machine_tx_version(const struct machine_tx *tx);
void machine_emit(struct machine_tx *tx, enum machine_event_type type, struct slice node, struct slice id);
/* module.forbids: why a client may not change this; NULL: no module forbids it. */
const char *machine_forbids(struct machine_tx *tx, const struct machine_thing *thing);
/* The same, and refuses the command (CO_DENIED). */
bool machine_refuses(struct machine_tx *tx, struct machine_thing thing, struct machine_result *result);

/* A savepoint: all or nothing within an entry. The effects of commands after the point count only when they are kept:
 * changes of the store, touches, and beginnings and ends of things that end by themselves. Going back leaves nothing of
 * them: no index, no tombstone, no wake-up, no deadline, no count (metrics count committed effects). Points nest
 * (STORE_SAVEPOINTS_MAX); the innermost ends first, each by machine_point_keep or machine_point_back. No cursor may be
 * open over going back. Memory in the tx arena stays. */
struct machine_point {
    struct watch_mark touched;
    struct expiry_update **updates;
    int64_t now_unix_ms;
    size_t followed[HISTORY_TOPICS]; /* history_touches_mark */
};
struct machine_point machine_point_set(struct machine_tx *tx);
void machine_point_keep(struct machine_tx *tx);
void machine_point_back(struct machine_tx *tx, const struct machine_point *point);

/* Indexes of things that are not records themselves (tables, service names, nodes): last change, removals included.
 * machine_changed also touches the thing. `removed`: it ceased to exist and leaves a tombstone. Beyond the limit
 * (1,000,000) the oldest tombstones are dropped, which raises `floor`. */
void machine_changed(struct machine_tx *tx, uint8_t space, struct slice name, bool removed);
uint64_t machine_change_index(struct store_txn *txn, uint8_t space, struct slice name); /* 0: never */
/* Highest removal index among names in `space` that begin with `prefix` (KV prefix queries). */
uint64_t machine_removed_below(struct store_txn *txn, uint8_t space, struct slice prefix);
uint64_t machine_floor(struct store_txn *txn);

struct machine_config {
    struct store_config store;          /* tables are filled in from the modules */
    const struct module_entry *modules; /* ends with one without a module (registry/modules.h) */
    struct expiry_updates *updates;     /* gets what begins and ends by itself; NULL: nobody counts */
    uint64_t tombstones_max;            /* 0: 1,000,000 */
    unsigned version_newest;            /* 0: MACHINE_VERSION_NEWEST; tests play programs of other versions */
    unsigned mutations;                 /* enum module_mutation: rules that are broken; 0 outside of the simulator */
};
/* CO_UNSUPPORTED: the store is of a cluster version that this program does not know. */
int machine_open(const struct machine_config *config, struct machine **out, struct fault *fault);
void machine_close(struct machine *machine);
/* A machine for reading the data of a stopped server (store_look; store.folder NULL: without a store). It applies
 * nothing; machine_knows and machine_copy_check work, and when *there the functions that read the store. */
int machine_look(const struct machine_config *config, struct machine **out, bool *there, bool *trusted,
                 struct fault *fault);

struct machine_input {
    uint64_t index, term;
    struct slice command;
    bool is_command;
    void *origin;
    uint64_t unix_ms; /* the clock of the leader that proposed it, which may go back; 0: not known */
};
/* Applier thread. Entries in order, index = applied + 1 each. One transaction; commit; bump; publish; fire; then
 * `done` for each input, in order. Returns CO_UNSUPPORTED (stopped before the entry at *stopped_at),
 * CO_DISKFULL/CO_IO when the store failed (nothing of the batch was applied). */
int machine_apply(struct machine *machine, const struct machine_input *inputs, size_t count,
                  void (*done)(void *data, void *origin, const struct machine_result *result), void *data,
                  uint64_t *stopped_at);

/* Applies one command within a transaction that the caller has begun and ends: as part of another command, or to see
 * what it would do. `tx` as in a batch. CO_OK, CO_UNSUPPORTED, or the store's error. */
int machine_apply_command(struct machine_tx *tx, struct slice command, struct machine_result *result);

/* Any thread. The command's row; NULL: this program does not know its type. */
const struct module_command *machine_command_row(const struct machine *machine, struct slice command);
/* Any thread. Could this command be applied here? A leader appends no others, because once committed they would stop
 * every server. */
bool machine_knows(const struct machine *machine, struct slice command);
/* Any thread. The cluster version that introduced this command; 0: it is not known here. */
unsigned machine_needs(const struct machine *machine, struct slice command);
unsigned machine_version(const struct machine *machine); /* any thread: the cluster version, as applied here */
unsigned machine_newest(const struct machine *machine);  /* any thread: the newest that this program supports */
/* any thread: the cluster's id; 0: nothing is applied yet */
uint64_t machine_cluster(const struct machine *machine);
uint64_t machine_applied(const struct machine *machine); /* any thread; acquire */
/* The same as clients see it: the index of the last applied entry in records and answers. It equals machine_applied
 * until a backup of a cluster with higher indexes is restored (registry/operator.h). */
uint64_t machine_index(const struct machine *machine);
/* The same as of a transaction. */
uint64_t machine_index_in(struct store_txn *txn);
/* The time of the last applied entry, as of a transaction: the highest time of all entries up to it. */
uint64_t machine_unix_ms_in(struct store_txn *txn);
/* The index at which a backup last became the state; 0: never. */
uint64_t machine_restored(struct store_txn *txn);
uint64_t machine_replacements(const struct machine *machine); /* any thread: how often the whole state was replaced */
uint64_t machine_applied_term(const struct machine *machine);
/* any thread: machine_floor as published with the applied index */
uint64_t machine_floor_now(const struct machine *machine);
struct store *machine_store(struct machine *machine);
struct watch_table *machine_watches(struct machine *machine);
const struct modules *machine_modules(const struct machine *machine); /* any thread; lives as long */

/* Snapshot: machine_copy (copier thread) copies the state and gives its index and term. machine_install (applier)
 * replaces it, floor and marks included, and wakes every waiter; it loads with low priority (base/background.h),
 * because a server that is behind serves nobody. On an error the old state stays. */
int machine_copy(struct machine *machine, int fd, uint64_t *index, uint64_t *term);
int machine_install(struct machine *machine, int fd, uint64_t size, struct fault *fault);
/* Is this a copy that OPERATOR_RESTORE_END (registry/operator.h) would take? *index: the highest index in it. Any
 * thread. CO_CORRUPT, CO_UNSUPPORTED. */
int machine_copy_check(struct machine *machine, int fd, uint64_t size, uint64_t *index, struct fault *fault);
/* The same; *applied: the entry of its log as of which the copy is. */
int machine_copy_look(struct machine *machine, int fd, uint64_t size, uint64_t *applied, struct fault *fault);

/* Applier. Empties the state, as if nothing had ever been applied. On an error the old state stays. */
int machine_reset(struct machine *machine, struct fault *fault);

/* The self-audit's notes (registry/audit.h) since the state was opened or replaced. Any thread. machine_sums_set: a
 * state that was copied from another server has the notes of that server. */
struct audit_ring;
void machine_sums(struct machine *machine, struct audit_ring *ring);
void machine_sums_set(struct machine *machine, const struct audit_ring *ring);

/* Encodes a command into fresh bytes: type, version, message. */
void machine_command(struct buffer *out, uint8_t type, const ProtobufCMessage *message);
/* A module's message, into the arena. NULL: it does not decode, or would not decode again after it was packed into a
 * record. */
void *machine_decode(const ProtobufCMessageDescriptor *type, struct slice bytes, struct arena *arena);

#endif
