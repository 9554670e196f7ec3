/* A request that waits has a place, in all and of its address and token (http/parked_limits.h), and gives it back when its wait
 * ends. And the answer to a write that the leader refused above limits.cluster_write_rate. */
#include "base/metrics.h"
#include "http/impl.h"

#define AGAIN_S 1

/* The counters of http/rate_limit_requests.c go on here. */
#define LIMITED_HELP "Requests above a limit"
METRIC above_parked[PARKED_LIMITS] = {
#define LIMITED(limit, text)                       \
    [limit] = {.name = "coord_http_limited_total", \
               .help = LIMITED_HELP,               \
               .labels = "limit=\"" text "\"",     \
               .type = METRIC_COUNTER}
    LIMITED(PARKED_ADDRESS, "client_parked"),
    LIMITED(PARKED_TOKEN, "token_parked"),
};
METRIC above_cluster = {.name = "coord_http_limited_total",
                        .help = LIMITED_HELP,
                        .labels = "limit=\"cluster_write_rate\"",
                        .type = METRIC_COUNTER};

void parked_begin(void) {
    for (int i = 0; i < PARKED_LIMITS; i++) metric_register(&above_parked[i]);
    metric_register(&above_cluster);
}

const char *watch_enter(struct http_request *request) {
    struct http_server *server = request->worker->server;
    const struct requester *requester = request->requester;
    uint64_t clients[PARKED_LIMITS] = {0};
    enum parked_limit over;
    CHECK(!request->parked);
    if (atomic_fetch_add(&server->watches, 1) >= server->config.watches_max) {
        atomic_fetch_sub(&server->watches, 1);
        return arena_printf(&request->arena, "too many blocking queries and streams (limit %llu)",
                            (unsigned long long)server->config.watches_max);
    }
    if (server->parked) {
        clients[PARKED_ADDRESS] = address_hash(request->connection->address);
        if (requester && requester->slot == REQUESTER_REQUEST) clients[PARKED_TOKEN] = requester->hash;
    }
    request->parked = parked_limits_take(server->parked, clients, &request->place, &over);
    if (over != PARKED_LIMITS) metric_add(&above_parked[over], 1);
    if (request->parked) return NULL;
    atomic_fetch_sub(&server->watches, 1);
    return arena_printf(&request->arena, "too many blocking queries and streams: %s is %llu for %s",
                        parked_limit_names[over], (unsigned long long)server->config.parked.most[over],
                        parked_limit_owners[over]);
}

void watch_leave(struct http_request *request) {
    if (!request->parked) return;
    request->parked = false;
    parked_limits_give(request->worker->server->parked, &request->place);
    atomic_fetch_sub(&request->worker->server->watches, 1);
}

void watch_refuse(struct http_request *request, const char *line) {
    http_header_u64(request, "Retry-After", AGAIN_S);
    http_reply_text(request, 429, "%s", line);
}

bool http_parks(struct http_request *request) {
    const char *line = watch_enter(request);
    if (line) watch_refuse(request, line);
    return !line;
}

void limited_by_cluster(struct http_request *request) {
    metric_add(&above_cluster, 1);
    http_header_u64(request, "Retry-After", AGAIN_S);
}
