/* Listening sockets, and the limits of connections: one for each address and one for all. Above them a client gets a
 * plain 429 and a moment to read it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "http/impl.h"

#define BACKLOG        4096
#define ACCEPT_MOST    128 /* in a turn, so that other requests are served too */
#define PAUSE_MS       100 /* without descriptors */
#define LINGER_MS      1000
#define LINGER_MOST    64
#define ADDRESS_CHAINS 4096

/* ---- connections per address ---- */

struct address_entry {
    struct address_entry *next;
    uint8_t address[16];
    unsigned count;
};
struct address_table {
    pthread_mutex_t lock;
    struct address_entry *chains[ADDRESS_CHAINS];
};

struct address_table *address_table_new(void) {
    struct address_table *table = mem_zalloc(sizeof *table);
    pthread_mutex_init(&table->lock, NULL);
    return table;
}

void address_table_free(struct address_table *table) {
    if (!table) return;
    for (size_t i = 0; i < ADDRESS_CHAINS; i++) {
        for (struct address_entry *entry = table->chains[i], *next; entry; entry = next) {
            next = entry->next;
            free(entry);
        }
    }
    pthread_mutex_destroy(&table->lock);
    free(table);
}

static struct address_entry **address_chain(struct address_table *table, const uint8_t address[16]) {
    return &table->chains[hash64(address, 16) % ADDRESS_CHAINS];
}

struct address_entry *address_enter(struct address_table *table, const uint8_t address[16], unsigned most) {
    pthread_mutex_lock(&table->lock);
    struct address_entry **chain = address_chain(table, address), *entry = *chain;
    while (entry && memcmp(entry->address, address, 16) != 0) entry = entry->next;
    if (!entry) {
        entry = mem_zalloc(sizeof *entry);
        memcpy(entry->address, address, 16);
        entry->next = *chain;
        *chain = entry;
    }
    bool room = entry->count < most;
    if (room) entry->count++;
    pthread_mutex_unlock(&table->lock);
    return room ? entry : NULL;
}

void address_leave(struct address_table *table, struct address_entry *entry) {
    pthread_mutex_lock(&table->lock);
    if (--entry->count == 0) {
        struct address_entry **at = address_chain(table, entry->address);
        while (*at != entry) at = &(*at)->next;
        *at = entry->next;
        free(entry);
    }
    pthread_mutex_unlock(&table->lock);
}

uint64_t address_hash(const struct address_entry *entry) { return hash64(entry->address, sizeof entry->address); }

/* ---- listening ---- */

static int parse_address(const char *text, uint16_t port, struct sockaddr_storage *out, socklen_t *size) {
    *out = (struct sockaddr_storage){0};
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        *size = sizeof *four;
        return CO_OK;
    }
    if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
        *size = sizeof *six;
        return CO_OK;
    }
    return CO_INVALID;
}

/* Accepted sockets inherit these. They find a peer that vanished without closing the connection within two minutes. */
static void socket_options(int fd, int family) {
    int on = 1, idle = 60, interval = 15, count = 4;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
}

/* `port`: 0 any free one; afterwards the listener's. */
static int listen_tcp(struct listener *listener, const char *text, uint16_t *port, struct fault *fault) {
    struct sockaddr_storage address;
    socklen_t size;
    if (parse_address(text, *port, &address, &size) != CO_OK) {
        return fault_set(fault, CO_INVALID, "http: \"%s\" is not an IP address", text);
    }
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return fault_set(fault, CO_IO, "http: cannot open a socket for %s: %s", text, strerror(errno));
    socket_options(fd, address.ss_family);
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        int error = errno;
        close(fd);
        return fault_set(fault, error == EADDRINUSE ? CO_EXISTS : CO_IO, "http: cannot listen on %s port %u: %s", text,
                         *port, strerror(error));
    }
    if (!*port) {
        *port = ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                                   : ((struct sockaddr_in6 *)&address)->sin6_port);
    }
    listener->fd = fd;
    return CO_OK;
}

/* Port 0: the other addresses get the port of the first. */
static int listen_all(struct http_server *server, const struct http_config *config, bool tls, struct fault *fault) {
    static const char unix_scheme[] = "unix://";
    const char *const *addresses = tls ? config->https_addresses : config->addresses;
    uint16_t given = tls ? config->https_port : config->port, *port = tls ? &server->https_port : &server->port;
    for (size_t i = 0; addresses && addresses[i]; i++) {
        struct listener listener = {.source = {SOURCE_LISTENER}, .tls = tls};
        bool path = strncmp(addresses[i], unix_scheme, sizeof unix_scheme - 1) == 0;
        uint16_t used = given ? given : *port;
        int error =
            path ? listen_unix(&listener, addresses[i] + sizeof unix_scheme - 1, &config->socket_file, BACKLOG, fault)
                 : listen_tcp(&listener, addresses[i], &used, fault);
        if (error) return error;
        if (!path) *port = used;
        server->listeners[server->listener_count++] = listener;
    }
    return CO_OK;
}

int listen_open(struct http_server *server, const struct http_config *config, struct fault *fault) {
    size_t count = 0;
    for (size_t i = 0; config->addresses && config->addresses[i]; i++) count++;
    for (size_t i = 0; config->https_addresses && config->https_addresses[i]; i++) count++;
    if (!count) return fault_set(fault, CO_INVALID, "http: no address to listen on");
    server->listeners = mem_zalloc(count * sizeof *server->listeners);
    int error = listen_all(server, config, false, fault);
    return error ? error : listen_all(server, config, true, fault);
}

void listen_close(struct http_server *server) {
    for (unsigned i = 0; i < server->listener_count; i++) {
        listen_unix_remove(&server->listeners[i]);
        close(server->listeners[i].fd);
        free(server->listeners[i].path);
    }
    free(server->listeners);
    server->listeners = NULL;
    server->listener_count = 0;
}

int listen_watch(struct worker *worker, bool on) {
    struct http_server *server = worker->server;
    for (unsigned i = 0; i < server->listener_count; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = &server->listeners[i].source};
        int fd = server->listeners[i].fd;
        if (epoll_ctl(worker->epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event) != 0) return co_from_errno(errno);
    }
    return CO_OK;
}

/* ---- refusing ---- */

struct refused {
    struct source source;
    struct list link;
    int fd;
    uint64_t until_ms;
};

static void linger_close(struct worker *worker, struct refused *client) {
    list_remove(&client->link);
    worker->lingering_count--;
    epoll_ctl(worker->epoll, EPOLL_CTL_DEL, client->fd, NULL); /* libmicrohttpd may still have the socket open */
    close(client->fd);
    free(client);
}

static bool drain(int fd) {
    char away[4096];
    ssize_t size;
    while ((size = recv(fd, away, sizeof away, MSG_DONTWAIT)) > 0) continue;
    return size == 0 || (errno != EAGAIN && errno != EINTR);
}

void linger_event(struct source *source) {
    struct refused *client = CONTAINER_OF(source, struct refused, source);
    if (drain(client->fd)) client->until_ms = 0; /* linger_tick closes it: this turn may have more events */
}

void linger_tick(struct worker *worker, bool all) {
    LIST_FOREACH_SAFE(link, next, &worker->lingering) {
        struct refused *client = LIST_ENTRY(link, struct refused, link);
        if (all || client->until_ms <= worker->now_ms) linger_close(worker, client);
    }
}

uint64_t linger_deadline_ms(const struct worker *worker) {
    uint64_t at = UINT64_MAX;
    LIST_FOREACH(link, &worker->lingering) {
        struct refused *client = LIST_ENTRY(link, struct refused, link);
        if (client->until_ms < at) at = client->until_ms;
    }
    return at;
}

static void linger_on(struct worker *worker, int fd) {
    struct refused *client = mem_zalloc(sizeof *client);
    *client = (struct refused){.source = {SOURCE_LINGER}, .fd = fd, .until_ms = worker->now_ms + LINGER_MS};
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = &client->source};
    list_append(&worker->lingering, &client->link);
    worker->lingering_count++;
    if (epoll_ctl(worker->epoll, EPOLL_CTL_ADD, fd, &event) != 0) linger_close(worker, client);
}

void linger(struct worker *worker, int fd) {
    shutdown(fd, SHUT_WR);
    int again = worker->lingering_count < LINGER_MOST ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (again >= 0) linger_on(worker, again);
}

/* A client of HTTPS gets no words: a handshake would cost what the limit is to save. */
static void refuse(struct worker *worker, const struct listener *listener, int fd, const char *why) {
    char text[512];
    size_t size = listener->tls ? 0 : plain_answer(text, sizeof text, "429 Too Many Requests", why);
    worker->tally.refused_connections++;
    bool gone = drain(fd) || plain_send(fd, text, size) != (ssize_t)size;
    shutdown(fd, SHUT_WR);
    if (gone || worker->lingering_count >= LINGER_MOST) {
        close(fd);
    } else {
        linger_on(worker, fd);
    }
}

/* ---- accepting ---- */

/* Only the addresses are compared, IPv4 in its IPv6 form. Clients of a Unix socket count by user, at 100::, which is
 * nobody's address (RFC 6666). */
static void address_key(int fd, const struct sockaddr_storage *address, uint8_t key[16]) {
    struct ucred who = {0};
    socklen_t size = sizeof who;
    memset(key, 0, 16);
    if (address->ss_family == AF_UNIX || address->ss_family == AF_UNSPEC) {
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
        key[0] = 1;
        memcpy(key + 12, &who.uid, 4);
        return;
    }
    if (address->ss_family == AF_INET6) {
        memcpy(key, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
        return;
    }
    key[10] = key[11] = 0xff;
    memcpy(key + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
}

static void admit(struct worker *worker, const struct listener *listener, int fd,
                  const struct sockaddr_storage *address, socklen_t size) {
    struct http_server *server = worker->server;
    char why[160];
    if (atomic_fetch_add(&server->connections, 1) >= server->config.connections_max) {
        atomic_fetch_sub(&server->connections, 1);
        snprintf(why, sizeof why, "too many connections (limit %u)", server->config.connections_max);
        refuse(worker, listener, fd, why);
        return;
    }
    uint8_t key[16];
    address_key(fd, address, key);
    unsigned most = server->config.connections_per_address_max;
    struct address_entry *entry = address_enter(server->addresses, key, most);
    if (!entry) {
        atomic_fetch_sub(&server->connections, 1);
        snprintf(why, sizeof why, "too many connections from this address (limit %u, limits.http_max_conns_per_client)",
                 most);
        refuse(worker, listener, fd, why);
        return;
    }
    struct connection *connection = connection_new(worker, fd, entry);
    if (address->ss_family == AF_UNIX || address->ss_family == AF_UNSPEC)
        connection->credentials = credentials_read(worker, fd);
    if (listener->tls) handshake_begin(connection, address, size);
    else shard_enter(connection, false, (const struct sockaddr *)address, size);
}

void listen_ready(struct worker *worker, struct listener *listener) {
    for (unsigned i = 0; i < ACCEPT_MOST; i++) {
        struct sockaddr_storage address = {0};
        socklen_t size = sizeof address;
        int fd = accept4(listener->fd, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            admit(worker, listener, fd, &address, size);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            log_warn("http", "cannot accept connections for a moment error=\"%s\"", strerror(errno));
            if (!worker->listen_again_ms) listen_watch(worker, false);
            worker->listen_again_ms = worker->now_ms + PAUSE_MS;
            return;
        }
        if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) return;
    }
}
