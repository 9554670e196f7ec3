/* Holds this node's lease: carries out the decisions of health/liveness.h, with questions to the servers, a timer, and
 * comparisons of the catalog (health/anti_entropy_run.h). Loop thread only. */
#ifndef COORD_HEALTH_LIVENESS_RUN_H
#define COORD_HEALTH_LIVENESS_RUN_H

#include "health/local_internal.h"

/* Sets local->liveness, until this is closed. */
struct liveness_run *liveness_run_new(struct local *local);
/* Abandons the question under way, then calls local_part_closed. */
void liveness_run_close(struct liveness_run *run);
/* To be called after local->liveness was told of an event. */
void liveness_run_kick(struct liveness_run *run);
/* As liveness_leave; calls `done` on the loop when LIVENESS_LEFT comes. */
void liveness_run_leave(struct liveness_run *run, void (*done)(void *data, int error), void *data);

#endif
