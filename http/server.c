/* Start and stop of the server. */
#include "http/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "http/declared.h"
#include "http/impl.h"

#define KEEP_DESCRIPTORS 256 /* of the process, for everything but HTTP connections */
#define HEADER_MOST_MS   10000
#define BODY_MOST_MS     30000
#define CHECK_MS         5000 /* the interval of checks of a connection */

#define DEFAULT(field, value)                \
    do {                                     \
        if ((field) == 0) (field) = (value); \
    } while (0)

static unsigned connections_default(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 100000;
    uint64_t most = limit.rlim_cur > 2 * KEEP_DESCRIPTORS ? limit.rlim_cur - KEEP_DESCRIPTORS : limit.rlim_cur / 2;
    /* Each shard has an epoll of its own. */
    most -= most / (SHARD_CONNECTIONS + 1);
    return most > 1000000 ? 1000000 : (unsigned)most;
}

static void fill_defaults(struct http_server *server) {
    struct http_config *config = &server->config;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    DEFAULT(config->workers, processors >= 16 ? 8 : processors > 3 ? (unsigned)processors / 2 : 1);
    DEFAULT(config->connection_memory, HTTP_CONNECTION_MEMORY);
    DEFAULT(config->header_max, HTTP_HEADER_MAX);
    server->roomy_memory = header_roomy_memory(config);
    DEFAULT(config->connections_per_address_max, HTTP_CONNECTIONS_PER_ADDRESS_MAX);
    DEFAULT(config->connections_max, connections_default());
    DEFAULT(config->body_max, HTTP_BODY_MAX);
    DEFAULT(config->idle_timeout_ms, HTTP_IDLE_TIMEOUT_MS);
    DEFAULT(config->wait_default_ms, HTTP_WAIT_DEFAULT_MS);
    DEFAULT(config->wait_max_ms, HTTP_WAIT_MAX_MS);
    DEFAULT(config->watches_max, HTTP_WATCHES_MAX);
    DEFAULT(config->cache_bytes, HTTP_CACHE_BYTES);
    DEFAULT(config->handshake_timeout_ms, HTTP_HANDSHAKE_TIMEOUT_MS);
    DEFAULT(server->env.kv_value_max, HTTP_KV_VALUE_MAX);
    DEFAULT(server->env.txn_body_max, HTTP_TXN_BODY_MAX);
    DEFAULT(server->env.txn_ops_max, HTTP_TXN_OPS_MAX);
    if (server->env.txn_body_max < server->env.kv_value_max) server->env.txn_body_max = server->env.kv_value_max;
    uint64_t idle = config->idle_timeout_ms;
    server->header_timeout_ms = idle < HEADER_MOST_MS ? idle : HEADER_MOST_MS;
    server->body_timeout_ms = idle < BODY_MOST_MS ? idle : BODY_MOST_MS;
    server->check_interval_ms = idle < 2 * CHECK_MS ? idle / 2 + 1 : CHECK_MS;
}

static void worker_init(struct http_server *server, struct worker *worker) {
    worker->server = server;
    list_init(&worker->runnable);
    list_init(&worker->later);
    list_init(&worker->late);
    list_init(&worker->connections);
    list_init(&worker->closed);
    list_init(&worker->lingering);
    list_init(&worker->handshakes);
    worker->engine = (struct read_engine){.rpc = server->env.rpc, .owner = &http_reads, .large = server->large};
    read_engine_init(&worker->engine);
    for (size_t i = 0; i < BULK_GROUPS; i++) worker->bulk[i].end = &worker->bulk[i].first;
    worker->epoll = epoll_create1(EPOLL_CLOEXEC);
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    worker->cache = cache_new(server->config.cache_bytes / server->worker_count);
}

static int start_workers(struct http_server *server, struct fault *fault) {
    for (unsigned i = 0; i < server->worker_count; i++) worker_init(server, &server->workers[i]);
    for (unsigned i = 0; i < server->worker_count; i++) {
        struct worker *worker = &server->workers[i];
        if (worker->epoll < 0 || worker->wake_fd < 0) {
            return fault_set(fault, CO_IO, "http: no descriptor left for a worker: %s", strerror(errno));
        }
        int error = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (error) return fault_set(fault, CO_IO, "http: cannot start a worker: %s", strerror(error));
        worker->started = true;
    }
    return CO_OK;
}

int http_start(const struct http_config *config, const struct http_env *env, struct http_server **out,
               struct fault *fault) {
    struct http_server *server = mem_zalloc(sizeof *server);
    server->config = *config;
    server->config.addresses = server->config.https_addresses = NULL;
    server->config.socket_file = (struct http_socket_file){0};
    server->env = *env;
    fill_defaults(server);
    server->old_library = strncmp(MHD_get_version(), "0.", 2) == 0;
    routes_init();
    declared_verify(rpc_modules(env->rpc));
    server->addresses = address_table_new();
    server->limits = limits_new(&config->limits);
    server->parked = parked_limits_new(&config->parked);
    limits_begin();
    parked_begin();
    server->large = large_reads_new(env->rpc, "http-large");
    int error = listen_open(server, config, fault);
    if (!error) {
        server->worker_count = server->config.workers;
        server->workers = mem_zalloc(server->worker_count * sizeof *server->workers);
        error = start_workers(server, fault);
    }
    if (error) {
        http_stop(server);
        return error;
    }
    *out = server;
    return CO_OK;
}

/* Keeps the memory of a server for ever, because other threads still hold requests of it, and will report to their
 * worker. */
static void abandon(struct http_server *server) {
    static struct http_server *_Atomic abandoned;
    server->next_abandoned = atomic_load(&abandoned);
    while (!atomic_compare_exchange_weak(&abandoned, &server->next_abandoned, server)) continue;
}

void http_stop(struct http_server *server) {
    if (!server) return;
    for (unsigned i = 0; i < server->worker_count; i++) {
        struct worker *worker = &server->workers[i];
        if (!worker->started) continue;
        atomic_store_explicit(&worker->stop, true, memory_order_release);
        uint64_t one = 1;
        ssize_t written = write(worker->wake_fd, &one, sizeof one);
        CHECK(written == sizeof one);
    }
    unsigned orphans = 0;
    for (unsigned i = 0; i < server->worker_count; i++) {
        if (server->workers[i].started) pthread_join(server->workers[i].thread, NULL);
        orphans += server->workers[i].orphans + server->workers[i].engine.gates + server->workers[i].tickets;
    }
    large_reads_stop(server->large);
    listen_close(server);
    if (orphans) {
        log_warn("http", "stopped before all outcomes were known requests=%u", orphans);
        abandon(server);
        return;
    }
    for (unsigned i = 0; i < server->worker_count; i++) worker_free(&server->workers[i]);
    free(server->workers);
    large_reads_free(server->large);
    address_table_free(server->addresses);
    limits_free(server->limits);
    parked_limits_free(server->parked);
    free(server);
}

uint16_t http_port(const struct http_server *server) { return server->port; }

uint16_t https_port(const struct http_server *server) { return server->https_port; }
