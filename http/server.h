/* The HTTP server: libmicrohttpd under our own threads.
 *
 * Each worker thread has one outer epoll with: the listening sockets (EPOLLEXCLUSIVE), an eventfd for its mailbox, a
 * set of listen-less MHD daemons (external epoll, `shards`, filled one after the other by MHD_add_connection, because
 * resuming one connection walks all suspended ones of its daemon), and the descriptors of parked connections (for
 * EPOLLRDHUP, because libmicrohttpd does not watch suspended sockets). Suspend and resume happen on the worker's thread
 * only. Wake-ups that come from other threads (applier, loop) go through the mailbox and are resumed in one walk per
 * turn.
 *
 * HTTPS listens beside it. libmicrohttpd sees plain bytes there, too: TLS is below it, where it calls recv() and send()
 * (secure.c). A session costs about 11 KiB more.
 *
 * A parked query costs: the connection's memory pool + the request (one block), a waiter, a deadline in the worker's
 * timer heap: together at most 12 KiB. A connection with a long header has a larger pool. */
#ifndef COORD_HTTP_SERVER_H
#define COORD_HTTP_SERVER_H

#include "http/http.h"
#include "http/parked_limits.h"
#include "http/rate_limits.h"

struct tls_slot;

/* The defaults, for settings that are 0. */
#define HTTP_CONNECTION_MEMORY           9728
#define HTTP_HEADER_MAX                  (32 << 10)
#define HTTP_CONNECTIONS_PER_ADDRESS_MAX 200
#define HTTP_BODY_MAX                    (1 << 20)
#define HTTP_IDLE_TIMEOUT_MS             120000
#define HTTP_WAIT_DEFAULT_MS             300000
#define HTTP_WAIT_MAX_MS                 600000
#define HTTP_WATCHES_MAX                 100000
#define HTTP_CACHE_BYTES                 (16 << 20)
#define HTTP_KV_VALUE_MAX                (512 << 10)
#define HTTP_TXN_BODY_MAX                (512 << 10)
#define HTTP_TXN_OPS_MAX                 64
#define HTTP_HANDSHAKE_TIMEOUT_MS        5000
#define HTTP_SOCKET_MODE                 0660

/* The file of a Unix socket. */
struct http_socket_file {
    const char *user, *group; /* names or numbers; NULL: this process's */
    unsigned mode;            /* 0: HTTP_SOCKET_MODE */
};

/* Certificates of clients of HTTPS. Asked for: whoever shows one that is not good is served as one who shows none. */
enum http_certificates { HTTP_CERTIFICATES_UNASKED, HTTP_CERTIFICATES_ASKED, HTTP_CERTIFICATES_REQUIRED };

struct http_config {
    /* Where plain HTTP is spoken, and where HTTPS: NULL-terminated, "127.0.0.1", "::", "unix:///path"; NULL: nowhere.
     * A socket's file must not be another process's; it is removed by http_stop. */
    const char *const *addresses, *const *https_addresses;
    uint16_t port, https_port; /* 0: any free one (tests); see http_port, https_port */
    struct http_socket_file socket_file;
    struct tls_slot *tls; /* the credentials of HTTPS, taken anew for each connection; outlives the server */
    enum http_certificates certificates;
    uint64_t handshake_timeout_ms;
    unsigned workers; /* 0: half the processors, 1..8 */
    /* most MHD daemons per worker, made as needed, 64 connections each; one more for long headers. 0: no limit */
    unsigned shards;
    size_t connection_memory;             /* a connection with a long header gets more (long_headers.c) */
    size_t header_max;                    /* request line and headers. More is a 414 or 431 */
    unsigned connections_per_address_max; /* as Consul's http_max_conns_per_client */
    unsigned connections_max;             /* 0: from RLIMIT_NOFILE */
    struct limits_config limits;
    struct parked_config parked;
    bool limits_permissive; /* what is above them is counted, and served */
    size_t body_max;        /* KV has its own */
    /* for connections without a request. Headers get at most 10 s, bodies 30 s and one more for each 64
     * KiB; looked at every 5 s */
    uint64_t idle_timeout_ms;
    uint64_t wait_default_ms; /* of a query without ?wait= */
    uint64_t wait_max_ms;     /* + up to wait/16 */
    uint64_t watches_max;
    size_t cache_bytes; /* ready answers, across workers */
};

struct http_server;
int http_start(const struct http_config *config, const struct http_env *env, struct http_server **out,
               struct fault *fault);
void http_stop(struct http_server *server);            /* answers waiting queries, closes, joins; at most 1 s */
uint16_t http_port(const struct http_server *server);  /* 0: no TCP */
uint16_t https_port(const struct http_server *server); /* the same */

#endif
