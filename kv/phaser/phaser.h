/* Phasers: barriers whose parties come and go at any phase. A phase is over when every party that signals has arrived
 * in it; then the next begins, and those who wait for it are woken. What java.util.concurrent.Phaser and the phasers
 * of Habanero are, with sessions in place of threads.
 *
 * (1) Members in mode signal-wait or signal count for the advance, those in mode wait do not. A member that registers
 * in a phase counts in it, one that leaves or whose session ends does not any more. (2) When the last party that
 * signals leaves, the phase is over; the next one waits for somebody to register. (3) A child has its parent's phase,
 * and is one party of it while it has parties that signal: it has arrived when all of these have. When the root is
 * complete all phasers of the tree advance, in the same entry. (4) A phaser begins with its first member, or as the
 * parent of a first child, and ends with its last member or child; phases count from 0, or from the parent's. Nothing
 * is kept afterwards. (5) A member has a session and one place; who comes again finds it as it is. A wait belongs to
 * the registration that it began with.
 *
 * An advance writes one record for each phaser of the tree, none for members: a member has noted the phase in which it
 * arrived. */
#ifndef COORD_KV_PHASER_H
#define COORD_KV_PHASER_H

#include "kv/phaser/phaser.pb-c.h"
#include "registry/machine.h"

enum phaser_command { PHASER_REGISTER = 48, PHASER_ARRIVE = 49, PHASER_DEREGISTER = 50 };
enum phaser_space {
    SPACE_PHASER = 44,       /* a phaser's name: anything of it */
    SPACE_PHASER_PHASE = 45, /* its name: its phase. Name, NUL, session: that member comes or goes */
};
#define PHASER_NAME_MAX    256
#define PHASER_DEPTH_MAX   8     /* of a tree */
#define PHASER_TREE_MAX    1000  /* phasers below a root: what one entry writes when it advances */
#define PHASER_MEMBERS_MAX 10000 /* of one phaser */
#define PHASER_SESSION_MAX 100   /* phasers that a session is in: what has to be left when it ends */

extern const struct module phaser_module;
extern const struct query_type query_phaser;       /* PhaserRequest -> PhaserState */
extern const struct query_type query_phasers;      /* PhaserListRequest -> PhasersResult */
extern const struct query_type query_phaser_await; /* PhaserAwaitRequest -> PhaserAwait; none: no such member */

/* Fills in `member`; the bytes are in the arena. */
void phaser_await_key(Pb__PhaserAwaitRequest *request, struct arena *arena);

#endif
