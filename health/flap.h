/* Flap damping: a state that changes too often is held. Pure: time (monotonic nanoseconds) is an argument.
 *
 * What a check says goes in, what the world is told comes out. Of more than `limit` changes within the last
 * `window_ns` the world hears nothing: it is told the worst state that was seen within that window, until enough of
 * the changes are older than it. So a check that flaps is out of the answers, and not in and out of them; and one
 * that settles comes back a window later at most. */
#ifndef COORD_HEALTH_FLAP_H
#define COORD_HEALTH_FLAP_H

#include <stdbool.h>
#include <stdint.h>

#include "registry/catalog.h"

#define FLAP_LIMIT_MOST 1000
#define FLAP_NEVER      UINT64_MAX

struct flap {
    uint32_t limit; /* 0: off; what goes in comes out */
    uint64_t window_ns;
    Pb__Status said, reported; /* in, out */
    uint64_t *changes;         /* ring of the times of the last limit + 1 changes of `said` */
    uint64_t count;            /* all changes so far */
    uint64_t left_ns[3];       /* by state: when `said` was last left for another; FLAP_NEVER: it was not */
};

/* A zeroed struct is off. Owns memory from here on where limit > 0 (at most FLAP_LIMIT_MOST). */
void flap_begin(struct flap *flap, uint32_t limit, uint64_t window_ns, Pb__Status status);
void flap_end(struct flap *flap);
/* The check says so; returns what the world is told. */
Pb__Status flap_say(struct flap *flap, Pb__Status status, uint64_t now_ns);
/* What the world is told, now that time has passed. */
Pb__Status flap_look(struct flap *flap, uint64_t now_ns);
bool flap_holds(const struct flap *flap, uint64_t now_ns);
/* When flap_look may say something else; FLAP_NEVER: nothing is held. */
uint64_t flap_due_ns(const struct flap *flap, uint64_t now_ns);

#endif
