/* The limits of requests (http/rate_limits.h), for each request as it comes. */
#include "base/clock.h"
#include "base/metrics.h"
#include "http/impl.h"

#define LIMITED_HELP "Requests above a limit"
METRIC limited[LIMITS] = {
#define LIMITED(limit, text)                       \
    [limit] = {.name = "coord_http_limited_total", \
               .help = LIMITED_HELP,               \
               .labels = "limit=\"" text "\"",     \
               .type = METRIC_COUNTER}
    LIMITED(LIMIT_READS, "read_rate"),
    LIMITED(LIMIT_WRITES, "write_rate"),
    LIMITED(LIMIT_ADDRESS_READS, "client_read_rate"),
    LIMITED(LIMIT_ADDRESS_WRITES, "client_write_rate"),
    LIMITED(LIMIT_TOKEN_READS, "token_read_rate"),
    LIMITED(LIMIT_TOKEN_WRITES, "token_write_rate"),
};

void limits_begin(void) {
    for (int i = 0; i < LIMITS; i++) metric_register(&limited[i]);
}

void limits_pass(struct http_request *request) {
    struct http_server *server = request->worker->server;
    enum limit over;
    if (!server->limits || request->counted || request->refusal) return;
    request->counted = true;
    const struct requester *requester = request->requester;
    struct limit_client client = {.address = address_hash(request->connection->address),
                                  .token = requester && requester->slot == REQUESTER_REQUEST ? requester->hash : 0};
    bool write = !(request->method & (HTTP_GET | HTTP_HEAD | HTTP_OPTIONS));
    uint64_t wait_ns = limits_take(server->limits, &client, write, clock_mono_ns(), &over);
    if (!wait_ns) return;
    metric_add(&limited[over], 1);
    if (server->config.limits_permissive) return;
    http_header_u64(request, "Retry-After", (wait_ns + 999999999) / 1000000000);
    request_refuse(request, 429, "too many requests: %s is %llu a second for %s", limit_names[over],
                   (unsigned long long)server->config.limits.rates[over], limit_owners[over]);
}
