/* Holds this node's lease: what health/liveness.h decides is done here, with questions to the servers, a timer and the
 * comparisons of the catalog (health/sync_run.h) that it wants. Loop thread only. */
#ifndef COORD_HEALTH_LIVENESS_RUN_H
#define COORD_HEALTH_LIVENESS_RUN_H

#include "health/local_internal.h"

/* Sets local->liveness, for as long as this one is there. */
struct liveness_run *liveness_run_new(struct local *local);
/* Lets go of what is under way; then local_part_closed. */
void liveness_run_close(struct liveness_run *run);
/* local->liveness was told something. */
void liveness_run_kick(struct liveness_run *run);
/* As liveness_leave; `done` on the loop, when it has left. */
void liveness_run_leave(struct liveness_run *run, void (*done)(void *data, int error), void *data);

#endif
