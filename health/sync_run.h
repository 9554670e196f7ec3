/* Keeps the catalog equal to what this agent knows: carries out the decisions of health/sync.h, with commands and
 * fetches through rpc, and a timer. Loop thread only. */
#ifndef COORD_HEALTH_SYNC_RUN_H
#define COORD_HEALTH_SYNC_RUN_H

#include "health/local_internal.h"

struct sync_run *sync_run_new(struct local *local);
/* Abandons the requests under way, closes its timer, then calls local_part_closed. */
void sync_run_close(struct sync_run *run);
void sync_run_kick(struct sync_run *run); /* an item may have become dirty, or an answer may have come */
void sync_run_compare_soon(struct sync_run *run);
void sync_run_compare_within(struct sync_run *run, uint64_t most_ms);

#endif
