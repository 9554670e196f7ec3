/* What is asked of the running process: joining, leaving, reloading. Asked from any thread, done on the loop, one
 * after the other. */
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
    const struct config *config; /* as started; stays */
    int argc;
    char **argv;
    void (*leave)(void *data); /* loop thread: the agent leaves, then acts_left */
    void *data;
};
struct acts;
struct acts *acts_new(const struct acts_config *config);
/* Any thread; http_env.act. `acts`: what acts_new gave. */
void acts_take(void *acts, struct http_control *act);
/* Loop thread: the watches of the configuration begin; `address`: of the own API, "host:port". */
void acts_watch(struct acts *acts, const char *address);
/* Loop thread: nothing is read again from now on. Then, on any thread but the loop: all watches have ended. NULL:
 * nothing. */
/* What came of config.leave: who asked for it is told. `note`: what else is to be said, where there is no fault. */
void acts_left(struct acts *acts, const struct fault *fault, const char *note);
void acts_hurry(struct acts *acts);
void acts_unwatch(struct acts *acts);
/* SIGHUP: as PUT /v1/agent/reload, the outcome goes to the log. */
void acts_reload(struct acts *acts);
/* Loop thread, once nobody calls acts_take any more: what waits is refused. Then `closed`. NULL: at once. */
void acts_stop(struct acts *acts, void (*closed)(void *data), void *data);

#endif
