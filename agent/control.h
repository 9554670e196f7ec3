/* Requests to the running process: joining, leaving, reloading. Any thread may make them; the loop handles one after
 * the other. */
#ifndef COORD_AGENT_ACTS_H
#define COORD_AGENT_ACTS_H

#include <uv.h>

#include "agent/config.h"
#include "health/local.h"
#include "http/http.h"
#include "rpc/api/rpc.h"

struct acts_config {
    uv_loop_t *loop;
    struct rpc *rpc;
    struct local *local;
    struct links *links;         /* multi-dc/links_run.h; NULL: this agent has none */
    const struct config *config; /* that of the start; outlives this */
    int argc;
    char **argv;
    void (*leave)(void *data); /* loop thread: the agent leaves, then acts_left */
    /* loop thread: the configuration was read again, and counts; it is not kept */
    void (*reloaded)(void *data, const struct config *config);
    void *data;
};
struct acts;
struct acts *acts_new(const struct acts_config *config);
/* Any thread; http_env.act. `acts`: from acts_new. */
void acts_take(void *acts, struct http_control *act);
/* Loop thread: starts the watches of the configuration; `address`: of this agent's API, "host:port". */
void acts_watch(struct acts *acts, const char *address);
/* The outcome of config.leave, for the client that asked for it. `note`: a message besides, when there is no fault. */
void acts_left(struct acts *acts, const struct fault *fault, const char *note);
/* Loop thread: the agent stops. Refuses requests from now on, and the one that waits for acts_left. NULL: nothing. */
void acts_hurry(struct acts *acts);
/* After acts_hurry, on any thread but the loop: ends all watches, and waits for that. NULL: nothing. */
void acts_unwatch(struct acts *acts);
/* For SIGHUP: as PUT /v1/agent/reload, but the outcome is only logged. */
void acts_reload(struct acts *acts);
/* Loop thread, when nobody calls acts_take any more: refuses the waiting requests, then calls `closed`. `acts` NULL:
 * calls it at once. */
void acts_stop(struct acts *acts, void (*closed)(void *data), void *data);

#endif
