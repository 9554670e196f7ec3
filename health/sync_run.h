/* Keeps the catalog equal to what this agent knows: what health/sync.h decides is done here, with commands and fetches
 * through rpc, and a timer. Loop thread only. */
#ifndef COORD_HEALTH_SYNC_RUN_H
#define COORD_HEALTH_SYNC_RUN_H

#include "health/local_internal.h"

struct sync_run *sync_run_new(struct local *local);
/* Lets go of what is out, closes its timer, then calls local_part_closed. */
void sync_run_close(struct sync_run *run);
void sync_run_kick(struct sync_run *run); /* something became dirty or was answered, or may have been */
void sync_run_compare_soon(struct sync_run *run);
void sync_run_compare_within(struct sync_run *run, uint64_t most_ms);

#endif
