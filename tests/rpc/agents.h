/* Client agents in this process, each with its loop on a thread of its own. */
#ifndef COORD_TESTS_RPC_AGENTS_H
#define COORD_TESTS_RPC_AGENTS_H

#include <pthread.h>
#include <uv.h>

#include "rpc/client/client.h"

struct agent {
    struct rpc *rpc;
    uv_loop_t loop;
    uv_async_t stop;
    uv_barrier_t ready;
    pthread_t thread;
    const char *node;
    const char *const *join;
    size_t dns_queries;
    void (*started)(struct agent *agent);
};

/* `join`: NULL-terminated, as `node` the caller's as long as the agent runs. With one address it begins there.
 * `dns_queries` 0: as many as the program has. `started`: called on its loop's thread before the loop runs; or NULL. */
void agent_start(struct agent *agent, const char *node, const char *const *join, size_t dns_queries,
                 void (*started)(struct agent *agent));
void agent_begin_stop(struct agent *agent);
void agent_end(struct agent *agent); /* waits */

#endif
