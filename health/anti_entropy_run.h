/* Keeps the catalog equal to what this agent knows: carries out the decisions of health/anti_entropy.h, with commands
 * and fetches through rpc, and a timer. Loop thread only. */
#ifndef COORD_HEALTH_ANTI_ENTROPY_RUN_H
#define COORD_HEALTH_ANTI_ENTROPY_RUN_H

#include "health/local_internal.h"

struct anti_entropy_run *anti_entropy_run_new(struct local *local);
/* Abandons the requests under way, closes its timer, then calls local_part_closed. */
void anti_entropy_run_close(struct anti_entropy_run *run);
/* An item may have become dirty, or an answer may have come. */
void anti_entropy_run_kick(struct anti_entropy_run *run);
void anti_entropy_run_compare_soon(struct anti_entropy_run *run);
void anti_entropy_run_compare_within(struct anti_entropy_run *run, uint64_t most_ms);

#endif
