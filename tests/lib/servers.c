#include "tests/lib/servers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "base/clock.h"
#include "kv/keys/kv.h"
#include "lb/coordinate.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "rpc/api/access_control.h"
#include "tests/lib/free_ports.h"

/* Several servers in one process, and the sanitizer's: elections would replace leaders that are only slow. */
#if defined(COORD_TSAN) || defined(COORD_ASAN)
#define PATIENCE_LEAST 3
#else
#define PATIENCE_LEAST 1
#endif

static void on_closed(void *data) { uv_close((uv_handle_t *)&((struct server *)data)->stop, NULL); }

static void on_stop(uv_async_t *stop) {
    struct server *server = stop->data;
    rpc_server_stop(server->rpc, on_closed, server);
}

static void *server_main(void *data) {
    struct server *server = data;
    struct fault fault = {0};
    CHECK(uv_loop_init(&server->loop) == 0);
    CHECK(uv_async_init(&server->loop, &server->stop, on_stop) == 0);
    server->stop.data = server;
    if (rpc_server_start(&server->loop, &server->config, &server->rpc, &fault) != CO_OK) {
        fprintf(stderr, "a server does not start: %s\n", fault.text);
        exit(1);
    }
    if (server->control) rpc_access_control_set(server->rpc, server->control);
    uv_barrier_wait(&server->ready);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&server->loop) == 0);
    return NULL;
}

static bool all_have_a_leader(struct server *servers, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        if (!rpc_known_leader(servers[i].rpc)) return false;
    return true;
}

void (*servers_prepare)(struct server *server);

void servers_start(struct server *servers, unsigned count, unsigned patience) {
    signal(SIGPIPE, SIG_IGN); /* as the program does */
    static const char *join[SERVERS_MOST + 1];
    uint16_t ports[SERVERS_MOST];
    CHECK(count <= SERVERS_MOST);
    if (patience < PATIENCE_LEAST) patience = PATIENCE_LEAST;
    free_ports(count, ports);
    for (unsigned i = 0; i < count; i++) {
        struct server *server = &servers[i];
        *server = (struct server){.folder = "/tmp/coord-test-XXXXXX"};
        CHECK(mkdtemp(server->folder) != NULL);
        snprintf(server->address, sizeof server->address, "127.0.0.1:%u", ports[i]);
        snprintf(server->name, sizeof server->name, "server-%u", i + 1);
        join[i] = server->address, join[i + 1] = NULL;
    }
    for (unsigned i = 0; i < count; i++) {
        struct server *server = &servers[i];
        server->config = (struct rpc_server_config){.folder = server->folder,
                                                    .address = server->address,
                                                    .expect = count,
                                                    .bind = "127.0.0.1",
                                                    .port = count > 1 ? ports[i] : 0,
                                                    .cluster = "dc1",
                                                    .node_name = server->name,
                                                    .join = join,
                                                    .raft_multiplier = patience,
                                                    .map_bytes = 1u << 30,
                                                    .dns_domain = "coord",
                                                    .modules = agent_modules};
        if (servers_prepare) servers_prepare(server);
        uv_barrier_init(&server->ready, 2);
        CHECK(pthread_create(&server->thread, NULL, server_main, server) == 0);
        uv_barrier_wait(&server->ready);
    }
    uint64_t deadline = clock_mono_ms() + 60000;
    while (!all_have_a_leader(servers, count)) {
        CHECK(clock_mono_ms() < deadline);
        usleep(2000);
    }
}

void servers_stop(struct server *servers, unsigned count) {
    for (unsigned i = 0; i < count; i++) uv_async_send(&servers[i].stop);
    for (unsigned i = 0; i < count; i++) {
        char command[100];
        pthread_join(servers[i].thread, NULL);
        uv_barrier_destroy(&servers[i].ready);
        snprintf(command, sizeof command, "rm -r %s", servers[i].folder);
        CHECK(system(command) == 0);
    }
}

/* -- writes ------------------------------------------------------------------------------------------------------- */
struct put {
    struct rpc_write write;
    uv_sem_t done;
    int error;
};

bool server_elects(const struct server *server, int error) {
    bool of_elections = error == CO_NOLEADER || error == CO_UNKNOWN_OUTCOME || error == CO_TIMEOUT;
    return server->config.expect > 1 && of_elections;
}

static void on_written(struct rpc_write *write, int error, const struct machine_result *result) {
    struct put *put = CONTAINER_OF(write, struct put, write);
    CHECK(error != CO_OK || (result->error == CO_OK && result->yes));
    put->error = error;
    uv_sem_post(&put->done);
}

int server_write(struct server *server, uint8_t command, const ProtobufCMessage *message) {
    struct put put = {.write.done = on_written};
    CHECK(uv_sem_init(&put.done, 0) == 0);
    rpc_submit(server->rpc, &put.write, command, message);
    uv_sem_wait(&put.done);
    uv_sem_destroy(&put.done);
    return put.error;
}

static void write_wait(struct server *server, Pb__KvVerb verb, const char *key, struct slice value) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = verb;
    command.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)(uintptr_t)key};
    command.value = (ProtobufCBinaryData){value.size, (uint8_t *)(uintptr_t)value.data};
    uint64_t deadline = clock_mono_ms() + 60000;
    int error;
    while (server_elects(server, error = server_write(server, KV_APPLY, &command.base)) && clock_mono_ms() < deadline)
        fprintf(stderr, "%s: written again, after: %s\n", key, co_strerror(error));
    if (error) fprintf(stderr, "write of %s: %s\n", key, co_strerror(error));
    CHECK(error == CO_OK);
}

void server_put_bytes(struct server *server, const char *key, struct slice value) {
    write_wait(server, PB__KV_VERB__KV_SET, key, value);
}

void server_delete(struct server *server, const char *key) {
    write_wait(server, PB__KV_VERB__KV_DELETE, key, (struct slice){0});
}

void server_put(struct server *server, const char *key, const char *value) {
    server_put_bytes(server, key, slice_text(value));
}
