/* How an agent leaves in order, so that everybody knows it at once: what it holds of quotas goes back, its node goes
 * from the catalog and is shown as `left`; a server leaves Raft's configuration too, where the others can spare it, and
 * is not taken in again as long as it has its data folder. Loop thread. */
#ifndef COORD_AGENT_LEAVING_H
#define COORD_AGENT_LEAVING_H

#include <stdbool.h>

#include "base/error.h"

struct arena;
struct local;
struct rpc;
struct spender_run;

struct leaving_config {
    struct arena *arena; /* outlives the rpc; what was begun is in it */
    struct rpc *rpc;
    struct local *local;
    struct spender_run *spender_run;
    const char *address; /* of a server among others; NULL: none. Valid while the arena is */
    bool must; /* the process ends whatever comes of it (a signal): a server that cannot be spared stays a member */
    /* Once. `stays`: nothing has changed, and fault says why. Else it has left; with a fault not all of it. `note`: what
     * else is to be said; "" nothing. */
    void (*done)(void *data, bool stays, const struct fault *fault, const char *note);
    void *data;
};
struct leaving;
struct leaving *leaving_begin(const struct leaving_config *config);
/* The process stops: `done` is not called any more. May be NULL. */
void leaving_forget(struct leaving *leaving);

#endif
