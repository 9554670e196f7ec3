/* Decides on the leader when a service comes home from another region, and when the rest of a region ends
 * (multi-dc/failover.h). The leader looks at the records of what is away every RETURNING_LOOK_MS. A record has the
 * entry since which instances here are healthy again, and the loss of the last one removes that note; so the time for
 * which the note has stood counts. It has no clock and does no I/O. One thread. */
#ifndef COORD_MULTI_DC_RETURNING_H
#define COORD_MULTI_DC_RETURNING_H

#include "multi-dc/failover.h"

#define RETURNING_LOOK_MS 500

struct returning;
struct returning *returning_new(uint64_t return_ms);
void returning_free(struct returning *returning); /* accepts NULL */
/* To be called when another server leads: forgets all looks. */
void returning_forget(struct returning *returning);
/* Takes in the present result of query_failovers. */
void returning_look(struct returning *returning, const Pb__FailoversResult *now, uint64_t now_ms);
/* Returns the next command. For a service: it has been healthy again for return_ms without a break and comes home, or
 * no other region has it any more. For a region at rest, which the command names: notes that it is healthy again, or
 * ends its rest. Each command is returned once until the next look, and its text is valid until then. False: there is
 * none. */
bool returning_next(struct returning *returning, uint64_t now_ms, Pb__FailoverHomeCommand *command);

#endif
