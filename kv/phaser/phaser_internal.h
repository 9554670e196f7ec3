/* Shared by the files of kv/phaser/ only. */
#ifndef COORD_KV_PHASER_INTERNAL_H
#define COORD_KV_PHASER_INTERNAL_H

#include "base/check.h"
#include "base/text.h"
#include "kv/phaser/phaser.h"
#include "kv/session/session.h"

enum phaser_table {
    PHASER_TABLE = 31,         /* name -> pb.Phaser */
    PHASER_TABLE_MEMBERS = 39, /* name, NUL, 'm', session -> pb.PhaserMember; name, NUL, 'c', child -> pb.PhaserChild */
    PHASER_TABLE_SESSIONS = 33, /* session, name -> nothing */
};
_Static_assert(PHASER_TABLE >= 16 && PHASER_TABLE_MEMBERS < 40, "tables of kv (registry/module.h)");
_Static_assert(PHASER_REGISTER >= 32 && PHASER_DEREGISTER < 64, "commands of kv");
_Static_assert(SPACE_PHASER >= 32 && SPACE_PHASER_PHASE < 64, "spaces of kv");

/* -- phaser_store.c: records -------------------------------------------------------------------------------------- */

/* CO_OK, in the arena; CO_NOTFOUND; CO_CORRUPT. */
int phaser_get(struct store_txn *txn, struct slice name, struct arena *arena, Pb__Phaser **phaser);
int phaser_member_get(struct store_txn *txn, struct slice name, struct slice session, struct arena *arena,
                      Pb__PhaserMember **member);
/* Sets modify_index to the entry's, and wakes the readers. */
void phaser_put(struct machine_tx *tx, Pb__Phaser *phaser);
void phaser_member_put(struct machine_tx *tx, const Pb__Phaser *phaser, const Pb__PhaserMember *member);
void phaser_member_del(struct machine_tx *tx, struct slice name, struct slice session);
void phaser_child_put(struct machine_tx *tx, const Pb__Phaser *parent, const Pb__Phaser *child);
void phaser_child_del(struct machine_tx *tx, const Pb__Phaser *parent, const Pb__Phaser *child);
/* The beginning of the keys of its members, or of its children, in PHASER_TABLE_MEMBERS. `room`: STORE_KEY_MAX
 * bytes. */
enum phaser_row { PHASER_ROW_MEMBER = 'm', PHASER_ROW_CHILD = 'c' };
struct slice phaser_rows(struct slice name, enum phaser_row row, char *room);
/* Names of the children, at most `most` of them; more: CO_CORRUPT. */
int phaser_children(struct store_txn *txn, struct slice name, struct arena *arena, const char **names, size_t most,
                    size_t *count);
/* The watch key of a member's end. */
struct slice phaser_member_key(struct slice name, struct slice session, struct arena *arena);

/* -- phaser_tree.c: a phaser and its ancestors, while an entry changes them --------------------------------------- */

struct phaser_chain {
    unsigned count;
    Pb__Phaser *at[PHASER_DEPTH_MAX]; /* the phaser itself first, the root last */
    bool changed[PHASER_DEPTH_MAX];
    bool signalled; /* the root had parties that signal, before this entry */
};
int phaser_chain_load(struct machine_tx *tx, struct slice name, struct phaser_chain *chain); /* as phaser_get */
/* Changes the counts of registered and arrived parties of the first phaser (by 1 or -1), and carries the change on to
 * its ancestors. CO_OK. CO_CORRUPT: a count would fall below 0. */
int phaser_chain_count(struct phaser_chain *chain, int registered, int arrived);
/* Removes phasers without members and children, writes the changed ones, and advances the tree if the root is
 * complete. */
int phaser_chain_settle(struct machine_tx *tx, struct phaser_chain *chain, bool *advanced);

/* -- phaser_apply.c: as module_command.apply ---------------------------------------------------------------------- */

int phaser_register_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int phaser_arrive_apply(struct machine_tx *tx, void *request, struct machine_result *result);
int phaser_deregister_apply(struct machine_tx *tx, void *request, struct machine_result *result);
extern const struct module_binding phaser_bindings[];

static inline bool phaser_signals(Pb__PhaserMode mode) { return mode != PB__PHASER_MODE__PHASER_WAIT; }
static inline bool phaser_is_complete(const Pb__Phaser *phaser) {
    return phaser->registered > 0 && phaser->arrived == phaser->registered;
}

#endif
