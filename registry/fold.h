/* Names without regard to case. From cluster version FOLD_SINCE on, names of nodes and services, and IDs of services
 * and checks, are one when they differ in the case of ASCII letters only (docs/decisions/names-and-case.md says why
 * ASCII). They are *folded* in the keys of the store, in tombstones and in what is watched; records keep them as
 * they were written last.
 *
 * Below that version names are compared byte by byte. A transaction knows which it is: fold_on. The command that
 * raises the version moves what is there (fold_apply), as does the restore of a backup that was taken below it. */
#ifndef COORD_REGISTRY_FOLD_H
#define COORD_REGISTRY_FOLD_H

#include "registry/machine.h"

#define FOLD_SINCE 4 /* cluster version */
_Static_assert(FOLD_SINCE <= MACHINE_VERSION_NEWEST, "a version that there is");

/* Are names folded in this transaction? Asks the store once a transaction. */
bool fold_on(struct store_txn *txn);
/* From now on in this transaction. For those who move keys. */
void fold_set(struct store_txn *txn, bool on);
/* Do the two name the same thing? */
bool fold_same(struct store_txn *txn, struct slice a, struct slice b);
/* The key of 1 to 3 names, as store_key_join makes it. `room`: STORE_KEY_MAX bytes. */
struct slice fold_key(struct store_txn *txn, char *room, size_t count, const struct slice *names);
/* The same whatever the transaction says. */
struct slice fold_key_as(bool fold, char *room, size_t count, const struct slice *names);

/* A name as it is compared: itself, or folded in `room` or in memory of its own. */
struct fold_name {
    char room[256], *own;
    struct slice folded;
};
void fold_name_of(struct fold_name *name, struct slice text);
void fold_name_free(struct fold_name *name);

/* Are the things of this space (registry/watch.h) named after nodes or services? */
enum {
    FOLD_SPACE_NODE = 2,
    FOLD_SPACE_SERVICE = 3,
    FOLD_SPACE_SESSION_NODE = 35,
    FOLD_SPACE_COORDINATE_NODE = 65,
    FOLD_SPACE_COPY_SERVICE = 112,
    FOLD_SPACE_FAILOVER = 117
};
static inline bool fold_space(uint8_t space) {
    return space == FOLD_SPACE_NODE || space == FOLD_SPACE_SERVICE || space == FOLD_SPACE_SESSION_NODE ||
           space == FOLD_SPACE_COORDINATE_NODE || space == FOLD_SPACE_COPY_SERVICE || space == FOLD_SPACE_FAILOVER;
}

/* For those who move keys: shows every record of the table whose key begins with `prefix`, as a copy; `each` may
 * change any table. What it puts behind the present record may be shown too. `arena` is for `each`, and emptied now
 * and then. */
typedef void (*fold_each)(struct machine_tx *tx, struct slice key, struct slice value, struct arena *arena);
void fold_walk(struct machine_tx *tx, uint8_t table, struct slice prefix, fold_each each);
/* Moves a record. `value` does not point into the map. */
void fold_move(struct machine_tx *tx, uint8_t table, struct slice from, struct slice to, struct slice value);

/* Applier. Moves the whole state from exact names to folded ones, within the entry being applied: first what
 * collides is merged (MACHINE_FOLD_MERGE), then every module moves its keys (MACHINE_FOLD_KEYS), then the marks
 * move. Whatever is named after a node or a service counts as changed at this index: under a name in another case
 * there may be more to see than before. */
void fold_apply(struct machine_tx *tx);

#endif
