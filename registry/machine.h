/* The state machine: modules apply commands to the store, one write transaction per batch. A function of (store, index,
 * command): no clock, no randomness, no configuration.
 *
 * What a module is, and its commands: registry/module.h.
 *
 * A command's bytes: one byte type, one byte format version (1), then the module's protobuf message. A command of
 * unknown type or format stops applying (CO_UNSUPPORTED): the server says so and waits for its upgrade. A command
 * that is known but does not decode is refused alike on every server (result CO_INVALID). A command checks
 * everything before its first write. A leader appends a command only when the cluster version has reached the one
 * that introduced it (registry/version.h). */
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
    /* When the entry was proposed, by the clock of the leader that did; never below that of an entry before. 0: no entry
     * had a time yet. */
    uint64_t unix_ms;
    int64_t now_unix_ms; /* as the entry's command says it, for what hangs on its events; 0: it says nothing */
};
/* It changes: who waits for it wakes, and the history has it. */
void machine_touch(struct machine_tx *tx, uint8_t space, struct slice name);
/* The cluster version as of the entry being applied. A field that changes what an older command does counts only
 * from the version on that introduced it: programs that do not know the field have to come to the same state. */
unsigned machine_tx_version(const struct machine_tx *tx);
void machine_emit(struct machine_tx *tx, enum machine_event_type type, struct slice node, struct slice id);
/* module.forbids: why a client may not change this; NULL: no module minds. */
const char *machine_forbids(struct machine_tx *tx, const struct machine_thing *thing);
/* The same, and refuses the command (CO_DENIED). */
bool machine_refuses(struct machine_tx *tx, struct machine_thing thing, struct machine_result *result);

/* All or nothing within an entry. What commands do to the store, what they touch, and what they say begins or ends by
 * itself counts from the point on only when it is kept; taken back, it leaves nothing: no index, no tombstone, nobody
 * woken, no deadline, nothing counted (metrics count what was committed). Points nest (STORE_SAVEPOINTS_MAX), and end
 * in the order in which they were set, each by one of the two. No cursor may be open over taking back. What lies in the
 * tx arena stays. */
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
 * machine_changed also touches it. `removed`: it ceased to exist: a tombstone, counted, dropped oldest
 * first beyond the limit (1,000,000), raising `floor`. */
void machine_changed(struct machine_tx *tx, uint8_t space, struct slice name, bool removed);
uint64_t machine_change_index(struct store_txn *txn, uint8_t space, struct slice name); /* 0: never */
/* Highest removal index among names in `space` that begin with `prefix` (KV prefix queries). */
uint64_t machine_removed_below(struct store_txn *txn, uint8_t space, struct slice prefix);
uint64_t machine_floor(struct store_txn *txn);

struct machine_config {
    struct store_config store;          /* tables are filled in from the modules */
    const struct module_entry *modules; /* until one without a module (registry/modules.h) */
    struct expiry_updates *updates;     /* what begins and ends by itself goes there; NULL: nobody counts it */
    uint64_t tombstones_max;            /* 0: 1,000,000 */
    unsigned version_newest;            /* 0: MACHINE_VERSION_NEWEST; tests play programs of other versions */
    unsigned mutations;                 /* enum module_mutation: rules that are broken; 0 outside of the simulator */
};
/* CO_UNSUPPORTED: the store is of a cluster version that this program does not know. */
int machine_open(const struct machine_config *config, struct machine **out, struct fault *fault);
void machine_close(struct machine *machine);
/* A machine to look at what a stopped server has (store_look; store.folder NULL: without a store). Nothing can be
 * applied; machine_knows and machine_copy_check work, and when *there what reads the store. */
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

/* Applies one command within a transaction that the caller has begun and ends: as part of another command, or to look
 * what it would do. `tx` as in a batch. CO_OK, CO_UNSUPPORTED, or the store's error. */
int machine_apply_command(struct machine_tx *tx, struct slice command, struct machine_result *result);

/* Any thread. Its row; NULL: it has no type that is known here. */
const struct module_command *machine_command_row(const struct machine *machine, struct slice command);
/* Any thread. Could this command be applied here? A leader appends no other: once committed it would stop every
 * server. */
bool machine_knows(const struct machine *machine, struct slice command);
/* Any thread. The cluster version that introduced this command; 0: it is not known here. */
unsigned machine_needs(const struct machine *machine, struct slice command);
unsigned machine_version(const struct machine *machine); /* any thread: the cluster version, as applied here */
unsigned machine_newest(const struct machine *machine);  /* any thread: the newest that this program supports */
/* any thread: the cluster's id; 0: nothing is applied yet */
uint64_t machine_cluster(const struct machine *machine);
uint64_t machine_applied(const struct machine *machine); /* any thread; acquire */
/* The same as clients see it: the index of what was applied last, as it stands in records and answers. It is
 * machine_applied until a backup of a cluster that was further on has been restored (registry/operator.h). */
uint64_t machine_index(const struct machine *machine);
/* The same as of a transaction. */
uint64_t machine_index_in(struct store_txn *txn);
/* The time of what was applied last, as of a transaction: of the entries up to it the highest. */
uint64_t machine_unix_ms_in(struct store_txn *txn);
/* The index at which a backup became the state last; 0: never. */
uint64_t machine_restored(struct store_txn *txn);
uint64_t machine_restores(const struct machine *machine); /* any thread: how often the whole state was replaced */
uint64_t machine_applied_term(const struct machine *machine);
/* any thread: machine_floor as published with the applied index */
uint64_t machine_floor_now(const struct machine *machine);
struct store *machine_store(struct machine *machine);
struct watch_table *machine_watches(struct machine *machine);
const struct modules *machine_modules(const struct machine *machine); /* any thread; lives as long */

/* Snapshot: (copier thread) copies the state, says as of when; (applier) replaces it, floor and marks included, and
 * wakes every waiter; loading gives way to other threads (base/background.h), since a server that is behind serves
 * nobody. On an error the old state stays. */
int machine_copy(struct machine *machine, int fd, uint64_t *index, uint64_t *term);
int machine_restore(struct machine *machine, int fd, uint64_t size, struct fault *fault);
/* Is this such a copy, fit for OPERATOR_RESTORE_END (registry/operator.h)? *index: the highest index in it. Any
 * thread. CO_CORRUPT, CO_UNSUPPORTED. */
int machine_copy_check(struct machine *machine, int fd, uint64_t size, uint64_t *index, struct fault *fault);
/* The same, and as of which entry of its log it is. */
int machine_copy_look(struct machine *machine, int fd, uint64_t size, uint64_t *applied, struct fault *fault);

/* Applier. Empties the state, as if nothing had ever been applied. On an error the old state stays. */
int machine_reset(struct machine *machine, struct fault *fault);

/* The self-audit's notes (registry/audit.h) since the state was opened or replaced. Any thread. Setting: those of
 * the server that a state was copied from are the copy's too. */
struct audit_ring;
void machine_sums(struct machine *machine, struct audit_ring *ring);
void machine_sums_set(struct machine *machine, const struct audit_ring *ring);

/* Encodes a command into fresh bytes: type, version, message. */
void machine_command(struct buffer *out, uint8_t type, const ProtobufCMessage *message);
/* A module's message, into the arena. NULL: it does not decode, or would not again once it was packed into a record. */
void *machine_decode(const ProtobufCMessageDescriptor *type, struct slice bytes, struct arena *arena);

#endif
