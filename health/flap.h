/* Flap damping: a state that changes too often is held. Pure: time (monotonic nanoseconds) is an argument.
 *
 * The input is the state that a check reports, the output is the state that the catalog shows. After more than `limit`
 * changes within the last `window_ns` the output is held: it is the worst state of that window, until enough of the
 * changes are older than the window. So a service whose check flaps stays out of the answers, instead of going in and
 * out of them; one whose check settles comes back a window later at most. */
#ifndef COORD_HEALTH_FLAP_H
#define COORD_HEALTH_FLAP_H

#include <stdbool.h>
#include <stdint.h>

#include "registry/catalog.h"

#define FLAP_LIMIT_MOST 1000
#define FLAP_NEVER      UINT64_MAX

struct flap {
    uint32_t limit; /* 0: off, the output is the input */
    uint64_t window_ns;
    Pb__Status said, reported; /* in, out */
    uint64_t *changes;         /* ring of the times of the last limit + 1 changes of `said` */
    uint64_t count;            /* all changes so far */
    uint64_t left_ns[3];       /* by state: when `said` last changed from it to another; FLAP_NEVER: never */
};

/* A zeroed struct is off. Owns memory from here on where limit > 0 (at most FLAP_LIMIT_MOST). */
void flap_begin(struct flap *flap, uint32_t limit, uint64_t window_ns, Pb__Status status);
void flap_end(struct flap *flap);
/* The check reports `status`; returns the state to show. */
Pb__Status flap_say(struct flap *flap, Pb__Status status, uint64_t now_ns);
/* Returns the state to show now, without a new report. */
Pb__Status flap_look(struct flap *flap, uint64_t now_ns);
bool flap_holds(const struct flap *flap, uint64_t now_ns);
/* When flap_look may return another state; FLAP_NEVER: nothing is held. */
uint64_t flap_due_ns(const struct flap *flap, uint64_t now_ns);

#endif
