#include "fake_agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/log.h"
#include "looks.h"

static void on_local_closed(void *data) {
    struct agent *agent = data;
    uv_close((uv_handle_t *)&agent->stop, NULL);
}

static void on_left(void *data, int error) {
    struct agent *agent = data;
    agent->left_error = error;
    local_stop(agent->local, on_local_closed, agent);
}

static void on_stop(uv_async_t *stop) {
    struct agent *agent = stop->data;
    if (agent->leave) local_leave(agent->local, on_left, agent);
    else local_stop(agent->local, on_local_closed, agent);
}

static void register_file(struct agent *agent) {
    struct fault fault = {0};
    struct json_object *json = json_parse(slice_text(agent->file_service), &fault);
    CHECK(json != NULL);
    struct service_definition *definition = service_definition_parse(json, &fault);
    CHECK(definition && local_service_register(agent->local, definition, false, false, &fault) == CO_OK);
    json_object_put(json);
}

static void changed(void *data) { ((struct agent *)data)->changes++; }

static void *agent_main(void *data) {
    struct agent *agent = data;
    Pb__Node node = PB__NODE__INIT;
    Pb__Pair pair = PB__PAIR__INIT, *pairs[] = {&pair};
    pair.key = pair.value = (char *)"rack";
    node.name = (char *)FAKE_AGENT_NODE;
    node.id = (char *)FAKE_AGENT_ID;
    node.address = (char *)"10.0.0.9";
    node.datacenter = (char *)"dc1";
    node.meta = pairs;
    node.n_meta = 1;
    struct local_config config = {.node = FAKE_AGENT_NODE,
                                  .node_id = node.id,
                                  .address = node.address,
                                  .datacenter = "dc1",
                                  .node_record = &node,
                                  .folder = *agent->folder ? agent->folder : NULL,
                                  .is_server = true,
                                  .server_port = 8300,
                                  .version = "1",
                                  .sync_interval_ns = agent->sync_ns,
                                  .check_update_interval_ns = agent->update_ns,
                                  .permission = agent->permission,
                                  .flap_limit = agent->flap_limit,
                                  .flap_window_ns = agent->flap_window_ns,
                                  .changed = changed,
                                  .changed_data = agent,
                                  .lease_ttl_ns = agent->lease_ttl_ns,
                                  .alias_lost_ns = agent->alias_lost_ns};
    uv_loop_init(&agent->loop);
    agent->stop.data = agent;
    uv_async_init(&agent->loop, &agent->stop, on_stop);
    struct fault fault = {0};
    CHECK(local_start(&agent->loop, &config, agent->rpc, &agent->local, &fault) == CO_OK);
    if (agent->file_service) register_file(agent);
    uv_barrier_wait(&agent->ready);
    uv_run(&agent->loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&agent->loop) == 0);
    return NULL;
}

void agent_start(struct agent *agent) {
    uv_barrier_init(&agent->ready, 2);
    CHECK(pthread_create(&agent->thread, NULL, agent_main, agent) == 0);
    uv_barrier_wait(&agent->ready);
}

void agent_stop(struct agent *agent) {
    uv_async_send(&agent->stop);
    pthread_join(agent->thread, NULL);
    uv_barrier_destroy(&agent->ready);
}

struct agent *agent_new(bool keeps) {
    struct agent *agent = mem_zalloc(sizeof *agent);
    log_level_now = LOG_ERROR + 1;
    agent->rpc = fake_rpc_start(NULL);
    fake_rpc_found(agent->rpc);
    if (keeps) {
        strcpy(agent->folder, "/tmp/coord-test-XXXXXX");
        CHECK(mkdtemp(agent->folder) != NULL);
    }
    agent_start(agent);
    return agent;
}

void agent_free(struct agent *agent) {
    agent_stop(agent);
    fake_rpc_stop(agent->rpc);
    if (*agent->folder) {
        char command[100];
        snprintf(command, sizeof command, "rm -rf %s", agent->folder);
        CHECK(system(command) == 0);
    }
    free(agent);
}
