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
    uint16_t port;
    struct dns_udp *udp[THREADS_MAX];
    size_t udp_count;
    struct dns_tcp *tcp;
};

/* Sockets that are open, and that no thread has taken over yet. */
struct opened {
    struct dns_address addresses[ADDRESSES_MAX];
    size_t address_count;
    int tcp[ADDRESSES_MAX], udp[THREADS_MAX];
    size_t tcp_count, udp_count;
    unsigned workers;
};

static void opened_close(struct opened *opened) {
    for (size_t i = 0; i < opened->tcp_count; i++) close(opened->tcp[i]);
    for (size_t i = 0; i < opened->udp_count; i++) close(opened->udp[i]);
    opened->tcp_count = opened->udp_count = 0;
}

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
static int sockets_open(struct opened *opened, uint16_t *port, size_t *failed) {
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

static int sockets_open_somewhere(struct opened *opened, const struct dns_config *config, uint16_t *port,
                                  struct fault *fault) {
    size_t failed = 0;
    int error = 0;
    for (unsigned i = 0; i < (config->port ? 1 : PORT_TRIES); i++) {
        *port = config->port;
        error = sockets_open(opened, port, &failed);
        if (error == 0) return CO_OK;
        opened_close(opened);
        if (error != EADDRINUSE) break;
    }
    char text[128];
    return fault_set(fault, co_from_errno(error), "cannot answer DNS on %s port %u: %s", config->addresses[failed],
                     (unsigned)config->port, strerror_r(error, text, sizeof(text)));
}

/* The threads start with all signals blocked, because the main thread handles signals. */
static int threads_start(struct dns_server *server, struct opened *opened, const struct dns_config *config,
                         struct rpc *rpc, struct fault *fault) {
    int rv = dns_tcp_start(&server->setup, rpc, opened->tcp, opened->tcp_count, config->tcp_connections_max,
                           &server->tcp, fault);
    opened->tcp_count = 0;
    size_t started = 0;
    for (; rv == CO_OK && started < opened->udp_count; started++) {
        bool wildcard = opened->addresses[started / opened->workers].wildcard;
        rv = dns_udp_start(&server->setup, rpc, opened->udp[started], wildcard, &server->udp[server->udp_count], fault);
        if (rv == CO_OK) server->udp_count++;
    }
    for (; started < opened->udp_count; started++) close(opened->udp[started]);
    opened->udp_count = 0;
    return rv;
}

int dns_start(const struct dns_config *config, struct rpc *rpc, struct dns_server **out, struct fault *fault) {
    struct dns_server *server = mem_zalloc(sizeof(*server));
    struct opened opened = {.workers = worker_count(config->workers)};
    int rv = dns_setup_make(&server->setup, config, fault);
    if (rv == CO_OK) rv = addresses_read(&opened, config, fault);
    if (rv == CO_OK) rv = sockets_open_somewhere(&opened, config, &server->port, fault);
    if (rv == CO_OK) {
        dns_metrics_register();
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        rv = threads_start(server, &opened, config, rpc, fault);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (rv != CO_OK) {
        dns_stop(server);
        return rv;
    }
    log_info("dns", "answering domain=%s port=%u workers=%u", config->domain, (unsigned)server->port, opened.workers);
    *out = server;
    return CO_OK;
}

void dns_stop(struct dns_server *server) {
    if (!server) return;
    for (size_t i = 0; i < server->udp_count; i++) dns_udp_stop(server->udp[i]);
    dns_tcp_stop(server->tcp);
    dns_setup_free(&server->setup);
    free(server);
}

uint16_t dns_port(const struct dns_server *server) { return server->port; }
