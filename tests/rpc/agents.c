#include "agents.h"

#include "agent/modules.h"
#include "base/check.h"

static void on_closed(void *data) { uv_close((uv_handle_t *)&((struct agent *)data)->stop, NULL); }
static void on_stop(uv_async_t *stop) { rpc_client_stop(((struct agent *)stop->data)->rpc, on_closed, stop->data); }

static void *agent_main(void *data) {
    struct agent *agent = data;
    struct rpc_client_config config = {.cluster = "dc1",
                                       .node_name = agent->node,
                                       .address = "127.0.0.1",
                                       .node_id = "77777777-0000-4000-8000-000000000000",
                                       .modules = agent_modules,
                                       .port = 8300,
                                       .join = agent->join,
                                       .dns_queries = agent->dns_queries};
    CHECK(uv_loop_init(&agent->loop) == 0 && uv_async_init(&agent->loop, &agent->stop, on_stop) == 0);
    agent->stop.data = agent;
    agent->rpc = rpc_client_start(&agent->loop, &config);
    if (agent->started) agent->started(agent);
    uv_barrier_wait(&agent->ready);
    uv_run(&agent->loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&agent->loop) == 0);
    return NULL;
}

void agent_start(struct agent *agent, const char *node, const char *const *join, size_t dns_queries,
                 void (*started)(struct agent *agent)) {
    *agent = (struct agent){.node = node, .join = join, .dns_queries = dns_queries, .started = started};
    uv_barrier_init(&agent->ready, 2);
    CHECK(pthread_create(&agent->thread, NULL, agent_main, agent) == 0);
    uv_barrier_wait(&agent->ready);
}

void agent_begin_stop(struct agent *agent) { uv_async_send(&agent->stop); }

void agent_end(struct agent *agent) {
    pthread_join(agent->thread, NULL);
    uv_barrier_destroy(&agent->ready);
}
