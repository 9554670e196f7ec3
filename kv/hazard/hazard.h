/* Hazards: may an owner reuse what others still read? Readers protect an object before they look at it, and clear it
 * afterwards; an owner makes the object's old version unreachable, then retires it: that is done once every protection
 * that was there before has gone. Later ones do not hold it up, because who protects later finds the new version. A
 * module of the state machine; hazard pointers and epochs, with sessions in place of threads.
 *
 *                   protect                     clear, its session's end
 *     no protection --------> protects, since e -------------------------> no protection
 *                              ^             |
 *                              '-------------'  protect again: keeps e
 *
 *     retire at r: waits while the oldest protection is older (e < r)
 *
 * - An epoch is the log index of a protection or of a retire, so that any two can be compared, and with the index of any
 *   other write too.
 * - Protecting again with the same session keeps the older epoch, because the session may still read what it found then;
 *   one clear ends it. So a repeat whose answer was lost changes nothing. Who has done with the old version and wants
 *   the new one clears first. Two readers of one process that come and go on their own need a session each.
 * - A retire is not kept: its epoch is all there is of it. Whoever asks for that epoch again goes on with the same
 *   retire. The index of the write that made the old version unreachable is an epoch as well, known before there is any
 *   answer.
 * - Who waits is woken when the oldest protection goes, and by nothing else. */
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
#define HAZARD_COUNTED_MOST     1000   /* what is waited for is not counted further */

extern const struct module hazard_module;
extern const struct query_type query_hazard;        /* HazardRequest -> HazardState; found=false */
extern const struct query_type query_hazard_retire; /* HazardRetireRequest -> HazardRetirement */
extern const struct query_type query_hazards;       /* HazardListRequest -> HazardsResult, without protections */

#endif
