/* The HTTP server: libmicrohttpd under our own threads.
 *
 * Each worker thread has one outer epoll over: the listening sockets (EPOLLEXCLUSIVE), an eventfd for its mailbox, a
 * set of listen-less MHD daemons (external epoll, `shards`, filled one after the other by MHD_add_connection,
 * because resuming one connection walks all suspended ones of its daemon), and the descriptors of parked connections
 * (EPOLLRDHUP: libmicrohttpd does not look at suspended sockets). Suspend and resume happen on the worker's thread
 * only. Wake-ups that come from other threads (applier, loop) go through the mailbox and are resumed in one walk per
 * turn.
 *
 * A parked query costs: the connection's memory pool + the request (one block), a waiter, a deadline in the worker's
 * timer heap: together at most 12 KiB. Whoever sent a long header has a larger pool. */
#ifndef COORD_HTTP_SERVER_H
#define COORD_HTTP_SERVER_H

#include "http/http.h"

struct http_config {
    const char *const *addresses; /* NULL-terminated, "127.0.0.1", "::", "unix:///path" later */
    uint16_t port;                /* 0: any free one (tests); see http_port */
    unsigned workers;             /* 0: half the processors, 1..8 */
    /* most MHD daemons per worker, made as needed, 64 connections each; one more for long headers. 0: no limit */
    unsigned shards;
    size_t connection_memory;             /* 0: 9.5 KiB; a connection with a long header gets more (long_headers.c) */
    size_t header_max;                    /* request line and headers; 0: 32 KiB. More is a 414 or 431 */
    unsigned connections_per_address_max; /* 0: 200, as Consul's http_max_conns_per_client */
    unsigned connections_max;             /* 0: from RLIMIT_NOFILE */
    size_t body_max;                      /* 0: 1 MiB; KV has its own */
    /* 0: 120 s for connections without a request. Headers get at most 10 s, bodies 30 s and one more for each 64
     * KiB; looked at every 5 s */
    uint64_t idle_timeout_ms;
    uint64_t wait_default_ms; /* of a query that names none; 0: 5 min */
    uint64_t wait_max_ms;     /* 0: 10 min; + up to wait/16 */
    uint64_t watches_max;     /* 0: 100,000 */
    size_t cache_bytes;       /* ready answers; 0: 16 MiB across workers */
};

struct http_server;
int http_start(const struct http_config *config, const struct http_env *env, struct http_server **out,
               struct fault *fault);
void http_stop(struct http_server *server); /* answers waiting queries, closes, joins; at most 1 s */
uint16_t http_port(const struct http_server *server);

#endif
