/* Hazards: may an owner reuse what others still read? Readers protect an object before they look at it, and clear it
 * afterwards. An owner makes the object's old version unreachable, and then retires it. The retire is done when every
 * protection that is older than it has gone. Later protections do not delay it, because a reader that protects later
 * finds the new version. A module of the state machine: hazard pointers and epochs, with sessions in place of threads.
 *
 *                   protect                     clear, its session's end
 *     no protection --------> protects, since e -------------------------> no protection
 *                              ^             |
 *                              '-------------'  protect again: keeps e
 *
 *     retire at r: waits while the oldest protection is older (e < r)
 *
 * - An epoch is the log index of a protection or of a retire. So epochs can be compared with each other, and with the
 *   index of any other write.
 * - A session that protects again keeps the older epoch, because it may still read what it found then; one clear ends
 *   the protection. So a request that is repeated because its answer was lost changes nothing. A reader that is done
 *   with the old version and wants the new one clears first. Two readers of one process that come and go on their own
 *   need a session each.
 * - The state keeps no record of a retire, so its epoch identifies it. An owner that asks for the same epoch again
 *   continues the same retire. The index of the write that made the old version unreachable serves as an epoch too, and
 *   is known before there is any answer.
 * - Only the end of the oldest protection wakes an owner that waits for a retire. */
#ifndef COORD_KV_HAZARD_H
#define COORD_KV_HAZARD_H

#include "kv/hazard/hazard.pb-c.h"
#include "registry/machine.h"

enum hazard_command { HAZARD_PROTECT = 51, HAZARD_CLEAR = 52, HAZARD_RETIRE = 53 };
enum hazard_space {
    SPACE_HAZARD = 46,        /* object: any change */
    SPACE_HAZARD_OLDEST = 47, /* object: another protection is the oldest, or none is left */
};
#define HAZARD_OBJECT_MOST      256
#define HAZARD_PROTECTIONS_MOST 100000 /* of one object */
#define HAZARD_SESSION_MOST     10000  /* of one session: its end ends all of them in one entry */
#define HAZARD_COUNTED_MOST     1000   /* protections that a retire waits for are not counted further */

extern const struct module hazard_module;
extern const struct query_type query_hazard;        /* HazardRequest -> HazardState; found=false */
extern const struct query_type query_hazard_retire; /* HazardRetireRequest -> HazardRetirement */
extern const struct query_type query_hazards;       /* HazardListRequest -> HazardsResult, without protections */

#endif
