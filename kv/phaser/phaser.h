/* Phasers: barriers whose parties come and go at any phase. A phase is over when every party that signals has arrived
 * in it; then the next phase begins, and the sessions that wait for it are woken. They are java.util.concurrent.Phaser
 * and the phasers of Habanero, with sessions in place of threads.
 *
 * (1) The advance waits for members in mode signal-wait or signal, not for members in mode wait. A member that
 * registers in a phase counts in it; a member that leaves, or whose session ends, no longer counts. (2) When the last
 * party that signals leaves, the phase is over, and the next one waits until somebody registers. (3) A child has its
 * parent's phase, and is one party of the parent while it has parties that signal; it has arrived when all of these
 * have. When the root is complete all phasers of the tree advance in the same entry. (4) A phaser begins with its first
 * member, or as the parent of a first child, and ends with its last member or child. Phases count from 0, or from the
 * parent's. The state keeps nothing afterwards. (5) A member is a session, with one place in a phaser; a session that
 * registers again finds its place unchanged. A wait belongs to the registration with which it began.
 *
 * An advance writes one record for each phaser of the tree and none for members, because each member's record has the
 * phase in which it arrived. */
#ifndef COORD_KV_PHASER_H
#define COORD_KV_PHASER_H

#include "kv/phaser/phaser.pb-c.h"
#include "registry/machine.h"

enum phaser_command { PHASER_REGISTER = 48, PHASER_ARRIVE = 49, PHASER_DEREGISTER = 50 };
enum phaser_space {
    SPACE_PHASER = 44,       /* a phaser's name: any change */
    SPACE_PHASER_PHASE = 45, /* its name: its phase. Name, NUL, session: the member registers or leaves */
};
#define PHASER_NAME_MAX    256
#define PHASER_DEPTH_MAX   8     /* levels of a tree */
#define PHASER_TREE_MAX    1000  /* phasers below a root: an advance writes all of them in one entry */
#define PHASER_MEMBERS_MAX 10000 /* of one phaser */
#define PHASER_SESSION_MAX 100   /* phasers that a session is in: the entry of its end leaves all of them */

extern const struct module phaser_module;
extern const struct query_type query_phaser;       /* PhaserRequest -> PhaserState */
extern const struct query_type query_phasers;      /* PhaserListRequest -> PhasersResult */
extern const struct query_type query_phaser_await; /* PhaserAwaitRequest -> PhaserAwait; found=false: no such member */

/* Fills in `member`; the bytes are in the arena. */
void phaser_await_key(Pb__PhaserAwaitRequest *request, struct arena *arena);

#endif
