/* When a service comes home (multi-dc/failover.h): on the leader, which looks once a second which services are away and
 * whether they have healthy instances here again. No clock, no I/O. One thread. */
#ifndef COORD_MULTI_DC_RETURNING_H
#define COORD_MULTI_DC_RETURNING_H

#include "multi-dc/failover.h"

#define RETURNING_LOOK_MS 1000

struct returning;
struct returning *returning_new(uint64_t return_ms);
void returning_free(struct returning *returning); /* accepts NULL */
/* Another leads now: what was seen does not count. */
void returning_forget(struct returning *returning);
/* What query_failovers says now. What is not away, unhealthy, or away since another index begins anew. */
void returning_look(struct returning *returning, const Pb__FailoversResult *now, uint64_t now_ms);
/* One that was seen healthy for return_ms on end; it is told once until it is looked at again. False: there is none. The
 * command's text is valid until the next look. */
bool returning_next(struct returning *returning, uint64_t now_ms, Pb__FailoverHomeCommand *command);

#endif
