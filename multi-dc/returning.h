/* Decides on the leader when a service comes home from another region, and when the rest of a region ends
 * (multi-dc/failover.h). The leader looks at the records of what is away every RETURNING_LOOK_MS. A record says since
 * which entry instances here are healthy again; a relapse takes that note away, so what counts is for how long the note has stood.
 * No clock, no I/O. One thread. */
#ifndef COORD_MULTI_DC_RETURNING_H
#define COORD_MULTI_DC_RETURNING_H

#include "multi-dc/failover.h"

#define RETURNING_LOOK_MS 500

struct returning;
struct returning *returning_new(uint64_t return_ms);
void returning_free(struct returning *returning); /* accepts NULL */
/* Another leads now: what was seen does not count. */
void returning_forget(struct returning *returning);
/* What query_failovers says now. */
void returning_look(struct returning *returning, const Pb__FailoversResult *now, uint64_t now_ms);
/* A step of a service: it has been healthy again for return_ms on end, and comes home; or nobody else knows it any more. Of a
 * region at rest, which the command names: that it is healthy again is to be noted; or its rest ends. Each is told once until the next
 * look. False: there is none. The command's text is valid until then. */
bool returning_next(struct returning *returning, uint64_t now_ms, Pb__FailoverHomeCommand *command);

#endif
