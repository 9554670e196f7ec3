/* Makes an agent leave in order, so that everybody knows at once: it gives back its shares of quotas, and its node is
 * removed from the catalog and shown as `left`. A server also leaves Raft's configuration if the others can spare it,
 * and is not taken in again as long as it has its data folder. Loop thread. */
#ifndef COORD_AGENT_LEAVING_H
#define COORD_AGENT_LEAVING_H

#include <stdbool.h>

#include "base/error.h"

struct arena;
struct local;
struct rpc;
struct spender_run;

struct leaving_config {
    struct arena *arena; /* outlives the rpc; requests under way are in it */
    struct rpc *rpc;
    struct local *local;
    struct spender_run *spender_run;
    const char *address; /* of a server among others; NULL: none. Valid while the arena is */
    bool must;           /* the process ends in any case (a signal): a server that cannot be spared stays a member */
    /* Called once. `stays`: nothing has changed, and the fault says why. Else the agent has left, but with a fault some
     * step failed. `note`: a message besides, "": none. */
    void (*done)(void *data, bool stays, const struct fault *fault, const char *note);
    void *data;
};
struct leaving;
struct leaving *leaving_begin(const struct leaving_config *config);
/* The process stops: `done` is not called any more. May be NULL. */
void leaving_forget(struct leaving *leaving);

#endif
