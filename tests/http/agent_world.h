/* An agent's own state on a loop of its own, and a server that shows it. */
#ifndef COORD_TESTS_HTTP_AGENT_WORLD_H
#define COORD_TESTS_HTTP_AGENT_WORLD_H

#include <pthread.h>

#include "health/local.h"
#include "rpc/api/access_control.h"
#include "web_world.h"

struct agent {
    struct world *world;
    struct local *local;
    struct http_server *http;
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    uv_barrier_t ready;
    struct {
        enum http_agent_token token;
        char secret[80];
    } set; /* the last token that was set */
};
struct agent *agent_new(void);
struct agent *agent_new_with(const struct rpc_access_control *control);
void agent_free(struct agent *agent);
/* Returns the status; answer and head are NUL-terminated. `token` NULL: none. */
long agent_ask(struct agent *agent, const char *token, const char *method, const char *target, const char *body,
               struct buffer *answer, struct buffer *head);

struct exchange {
    const char *method, *target, *body;
    long status;
    const char *answer; /* NULL: not looked at */
};
void agent_talk(struct agent *agent, const struct exchange *rows, size_t count);

#endif
