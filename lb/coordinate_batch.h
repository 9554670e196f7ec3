/* Updates of coordinates on their way into the log. Thousands of agents report every 15 seconds or so, and nobody waits
 * for the result. So the updates of a period go into as few commands as possible, with only the newest update of a node
 * and segment. The number of updates in a period is bounded as in Consul (by default 5 batches of 128 every 5 s). More
 * updates are dropped and counted; their agents report again soon.
 *
 * Pure: time is an argument. Not thread-safe. */
#ifndef COORD_LB_COORDINATE_BATCH_H
#define COORD_LB_COORDINATE_BATCH_H

#include "lb/coordinate.h"

/* The values that count for 0 in the configuration. */
#define COORDINATE_BATCH_PERIOD_MS 5000
#define COORDINATE_BATCH_SIZE      128
#define COORDINATE_BATCH_COMMANDS  5

struct coordinate_batch_config {
    uint64_t period_ms;
    unsigned size;     /* updates in one command */
    unsigned commands; /* commands in a period */
};
#define COORDINATE_BATCH_SIZE_MAX     4096
#define COORDINATE_BATCH_COMMANDS_MAX 64

struct coordinate_batch;
/* Values above these maxima are our mistake. */
struct coordinate_batch *coordinate_batch_new(const struct coordinate_batch_config *config);
void coordinate_batch_free(struct coordinate_batch *batch);

/* Copies the record. Returns the result of coordinate_check, or CO_BUSY: the update was dropped. */
int coordinate_batch_put(struct coordinate_batch *batch, const Pb__Coordinate *record, uint64_t now_ms);
/* When the waiting updates are due: a period after the first of them came. UINT64_MAX: none waits. */
uint64_t coordinate_batch_deadline_ms(const struct coordinate_batch *batch);
/* To be called at the deadline: hands all updates to `send`, in the order in which the nodes came, at most
 * config.commands times. The command is valid during the call. */
void coordinate_batch_tick(struct coordinate_batch *batch, uint64_t now_ms,
                           void (*send)(void *data, const Pb__CoordinateUpdateCommand *command), void *data);
size_t coordinate_batch_waiting(const struct coordinate_batch *batch);
uint64_t coordinate_batch_dropped(const struct coordinate_batch *batch); /* updates that were dropped, since the batch
                                                                          * was made */

#endif
