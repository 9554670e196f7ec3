#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "dns/dns.h"
#include "dns/socket.h"

enum {
    ADDRESSES_MAX = 16,
    WORKERS_MAX = 8,
    THREADS_MAX = ADDRESSES_MAX * WORKERS_MAX,
    PORT_TRIES = 32, /* for a port that is free for both UDP and TCP, on all addresses */
};

struct dns_server {
    struct dns_setup setup;
    uint16_t port, tls_port;
    struct dns_udp *udp[THREADS_MAX];
    size_t udp_count;
    struct dns_tcp *tcp, *tls;
};

/* Sockets that are open, and that no thread has taken over yet. */
struct opened {
    struct dns_address addresses[ADDRESSES_MAX];
    size_t address_count;
    int tcp[ADDRESSES_MAX], udp[THREADS_MAX], tls[ADDRESSES_MAX];
    size_t tcp_count, udp_count, tls_count;
    unsigned workers;
};

static void close_all(const int *fds, size_t *count) {
    for (size_t i = 0; i < *count; i++) close(fds[i]);
    *count = 0;
}

static void plain_close(struct opened *opened) {
    close_all(opened->tcp, &opened->tcp_count);
    close_all(opened->udp, &opened->udp_count);
}

static void tls_close(struct opened *opened) { close_all(opened->tls, &opened->tls_count); }

static unsigned worker_count(unsigned wanted) {
    if (wanted == 0) {
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        wanted = processors > 2 ? (unsigned)processors / 2 : 1;
    }
    return wanted > WORKERS_MAX ? WORKERS_MAX : wanted;
}

static int addresses_read(struct opened *opened, const struct dns_config *config, struct fault *fault) {
    for (const char *const *text = config->addresses; *text; text++) {
        if (opened->address_count == ADDRESSES_MAX) {
            return fault_set(fault, CO_INVALID, "more than %d addresses for DNS", ADDRESSES_MAX);
        }
        int rv = dns_address_parse(&opened->addresses[opened->address_count], *text, config->port, fault);
        if (rv != CO_OK) return rv;
        opened->address_count++;
    }
    return opened->address_count ? CO_OK : fault_set(fault, CO_INVALID, "no address to answer DNS on");
}

/* TCP is bound first: it does not share its port, so a second server on the same port is noticed. Returns 0 or
 * errno, with the address that failed. */
static int plain_open(struct opened *opened, uint16_t *port, size_t *failed) {
    for (size_t i = 0; i < opened->address_count; i++) {
        *failed = i;
        struct dns_address *address = &opened->addresses[i];
        dns_address_set_port(address, *port);
        int fd = dns_socket_tcp(address);
        if (fd < 0) return errno;
        opened->tcp[opened->tcp_count++] = fd;
        if (dns_socket_port(fd, port) != CO_OK) return EIO;
        dns_address_set_port(address, *port);
        for (unsigned worker = 0; worker < opened->workers; worker++) {
            fd = dns_socket_udp(address);
            if (fd < 0) return errno;
            opened->udp[opened->udp_count++] = fd;
        }
    }
    return 0;
}

static int tls_open(struct opened *opened, uint16_t *port, size_t *failed) {
    for (size_t i = 0; i < opened->address_count; i++) {
        *failed = i;
        dns_address_set_port(&opened->addresses[i], *port);
        int fd = dns_socket_tcp(&opened->addresses[i]);
        if (fd < 0) return errno;
        opened->tls[opened->tls_count++] = fd;
        if (dns_socket_port(fd, port) != CO_OK) return EIO;
    }
    return 0;
}

/* Sockets of one kind. */
struct kind {
    const char *name;
    int (*open)(struct opened *opened, uint16_t *port, size_t *failed);
    void (*close)(struct opened *opened);
};
static const struct kind plain = {"DNS", plain_open, plain_close}, tls = {"DNS over TLS", tls_open, tls_close};

/* `wanted`: the port; 0: any that is free on all addresses. */
static int sockets_open_somewhere(struct opened *opened, const struct dns_config *config, const struct kind *kind,
                                  uint16_t wanted, uint16_t *port, struct fault *fault) {
    size_t failed = 0;
    int error = 0;
    for (unsigned i = 0; i < (wanted ? 1 : PORT_TRIES); i++) {
        *port = wanted;
        error = kind->open(opened, port, &failed);
        if (error == 0) return CO_OK;
        kind->close(opened);
        if (error != EADDRINUSE) break;
    }
    *port = 0;
    char text[128];
    return fault_set(fault, co_from_errno(error), "cannot answer %s on %s port %u: %s", kind->name,
                     config->addresses[failed], (unsigned)wanted, strerror_r(error, text, sizeof(text)));
}

static int sockets_open(struct dns_server *server, struct opened *opened, const struct dns_config *config,
                        struct fault *fault) {
    int rv = CO_OK;
    if (!config->tls_only) rv = sockets_open_somewhere(opened, config, &plain, config->port, &server->port, fault);
    if (rv == CO_OK && config->tls)
        rv = sockets_open_somewhere(opened, config, &tls, config->tls_port, &server->tls_port, fault);
    return rv;
}

/* The threads start with all signals blocked, because the main thread handles signals. */
static int threads_start(struct dns_server *server, struct opened *opened, const struct dns_config *config,
                         struct rpc *rpc, struct fault *fault) {
    int rv = CO_OK;
    if (opened->tcp_count) {
        rv = dns_tcp_start(&server->setup, rpc, opened->tcp, opened->tcp_count, config->tcp_connections_max, NULL,
                           &server->tcp, fault);
        opened->tcp_count = 0;
    }
    if (rv == CO_OK && opened->tls_count) {
        rv = dns_tcp_start(&server->setup, rpc, opened->tls, opened->tls_count, config->tcp_connections_max,
                           config->tls, &server->tls, fault);
        opened->tls_count = 0;
    }
    size_t started = 0;
    for (; rv == CO_OK && started < opened->udp_count; started++) {
        bool wildcard = opened->addresses[started / opened->workers].wildcard;
        rv = dns_udp_start(&server->setup, rpc, opened->udp[started], wildcard, &server->udp[server->udp_count], fault);
        if (rv == CO_OK) server->udp_count++;
    }
    for (; started < opened->udp_count; started++) close(opened->udp[started]);
    opened->udp_count = 0;
    tls_close(opened);
    return rv;
}

int dns_start(const struct dns_config *config, struct rpc *rpc, struct dns_server **out, struct fault *fault) {
    struct dns_server *server = mem_zalloc(sizeof(*server));
    struct opened opened = {.workers = worker_count(config->workers)};
    int rv = dns_setup_make(&server->setup, config, fault);
    if (rv == CO_OK) rv = addresses_read(&opened, config, fault);
    if (rv == CO_OK) rv = sockets_open(server, &opened, config, fault);
    if (rv == CO_OK) {
        dns_metrics_register();
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        rv = threads_start(server, &opened, config, rpc, fault);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (rv != CO_OK) {
        plain_close(&opened);
        tls_close(&opened);
        dns_stop(server);
        return rv;
    }
    if (!config->tls_only)
        log_info("dns", "answering domain=%s port=%u workers=%u", config->domain, (unsigned)server->port,
                 opened.workers);
    if (config->tls)
        log_info("dns", "answering over TLS domain=%s port=%u", config->domain, (unsigned)server->tls_port);
    *out = server;
    return CO_OK;
}

void dns_stop(struct dns_server *server) {
    if (!server) return;
    for (size_t i = 0; i < server->udp_count; i++) dns_udp_stop(server->udp[i]);
    dns_tcp_stop(server->tcp);
    dns_tcp_stop(server->tls);
    dns_setup_free(&server->setup);
    free(server);
}

uint16_t dns_port(const struct dns_server *server) { return server->port; }
uint16_t dns_tls_port(const struct dns_server *server) { return server->tls_port; }
