/* DNS over TCP: one thread, epoll. Messages carry their length in two bytes; a client may send many without waiting.
 *
 * (1) A connection reads only while nothing waits to be sent on it, so a client that does not read stops being read.
 * (2) It is closed IDLE_MS after its last whole query, or after the client took PROGRESS more bytes of answers; a
 *     smaller progress does not extend this time. (3) Connections are listed by deadline. When there are too many, the
 *     one with the nearest deadline is closed. With no connection the thread sleeps without a timeout. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/memory.h"
#include "dns/socket.h"

enum {
    IDLE_MS = 10000,
    EVENTS = 64,
    LENGTH = 2,
    READ_ROOM = LENGTH + PACKET_QUERY_MAX,
    OUT_KEPT = 256 * 1024, /* answers gathered before they are sent */
    PROGRESS = 4096,
    LISTENERS_MAX = 16,
};

struct connection {
    struct list link; /* by deadline */
    int fd;
    bool wants_write, ended; /* ended: the client will send no more */
    uint64_t deadline_ms;
    size_t in_size;
    struct buffer out;         /* answers that the socket did not take yet */
    size_t out_sent, progress; /* progress: bytes sent since the deadline was last moved */
    uint8_t in[READ_ROOM];
};

struct dns_tcp {
    pthread_t thread;
    int epoll, wake, spare; /* spare: given up for a moment when descriptors run out */
    int listeners[LISTENERS_MAX];
    size_t listener_count;
    _Atomic bool stopping;
    struct dns_responder *responder;
    struct list connections;
    size_t count, most;
    uint8_t *scratch; /* an answer with its length */
};

/* -- connections -------------------------------------------------------------------------------------------------- */

static void connection_close(struct dns_tcp *tcp, struct connection *connection) {
    list_remove(&connection->link);
    close(connection->fd); /* this removes it from the epoll too */
    buffer_free(&connection->out);
    free(connection);
    tcp->count--;
}

static void connection_extend(struct dns_tcp *tcp, struct connection *connection) {
    connection->deadline_ms = clock_mono_ms() + IDLE_MS;
    connection->progress = 0;
    list_remove(&connection->link);
    list_append(&tcp->connections, &connection->link);
}

static void watch(struct dns_tcp *tcp, int fd, void *owner, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = owner};
    CHECK(epoll_ctl(tcp->epoll, operation, fd, &event) == 0);
}

static void connection_new(struct dns_tcp *tcp, int fd) {
    if (tcp->count >= tcp->most) { connection_close(tcp, LIST_ENTRY(tcp->connections.next, struct connection, link)); }
    struct connection *connection = mem_alloc(sizeof(*connection));
    connection->fd = fd;
    connection->wants_write = connection->ended = false;
    connection->in_size = connection->out_sent = 0;
    connection->out = (struct buffer){0};
    list_init(&connection->link);
    connection_extend(tcp, connection);
    tcp->count++;
    watch(tcp, fd, connection, EPOLL_CTL_ADD, EPOLLIN);
}

/* Descriptors have run out: closes the connection with the nearest deadline. When there is none, accepts the client
 * with the spare descriptor and closes it at once, because epoll would report the listener for ever otherwise. */
static void shed(struct dns_tcp *tcp, int listener) {
    if (tcp->count > 0) {
        connection_close(tcp, LIST_ENTRY(tcp->connections.next, struct connection, link));
        return;
    }
    if (tcp->spare >= 0) close(tcp->spare);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    tcp->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void accept_all(struct dns_tcp *tcp, int listener) {
    for (size_t i = 0; i < EVENTS; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            connection_new(tcp, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            shed(tcp, listener);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/* -- queries and answers ------------------------------------------------------------------------------------------ */

enum state { STATE_OPEN, STATE_CLOSED };

/* Sends the answers that wait. */
static enum state flush(struct connection *connection) {
    while (connection->out_sent < connection->out.size) {
        ssize_t n = send(connection->fd, connection->out.data + connection->out_sent,
                         connection->out.size - connection->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? STATE_OPEN : STATE_CLOSED;
        connection->out_sent += (size_t)n;
        connection->progress += (size_t)n;
    }
    connection->out_sent = 0;
    if (connection->out.capacity > OUT_KEPT) buffer_free(&connection->out);
    else buffer_reset(&connection->out);
    return STATE_OPEN;
}

/* Answers the whole queries in the input, until enough is waiting to be sent. */
static enum state answer_all(struct dns_tcp *tcp, struct connection *connection) {
    size_t at = 0;
    while (connection->in_size - at >= LENGTH && connection->out.size < OUT_KEPT) {
        size_t size = get_be16(connection->in + at);
        if (size > PACKET_QUERY_MAX || size < PACKET_HEADER_SIZE) return STATE_CLOSED;
        if (connection->in_size - at < LENGTH + size) break;
        size_t answer =
            dns_responder_answer(tcp->responder, DNS_TCP, connection->in + at + LENGTH, size, tcp->scratch + LENGTH);
        if (answer == 0) return STATE_CLOSED;
        put_be16(tcp->scratch, (uint16_t)answer);
        buffer_append(&connection->out, tcp->scratch, LENGTH + answer);
        at += LENGTH + size;
    }
    if (at == 0) return STATE_OPEN;
    connection->in_size -= at;
    memmove(connection->in, connection->in + at, connection->in_size);
    connection_extend(tcp, connection);
    return STATE_OPEN;
}

/* True when there is something new. */
static enum state receive(struct connection *connection) {
    ssize_t n;
    do n = recv(connection->fd, connection->in + connection->in_size, READ_ROOM - connection->in_size, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0) connection->in_size += (size_t)n;
    else if (n == 0) connection->ended = true;
    else if (errno != EAGAIN) return STATE_CLOSED;
    return STATE_OPEN;
}

static enum state work(struct dns_tcp *tcp, struct connection *connection, bool readable) {
    if (flush(connection) == STATE_CLOSED) return STATE_CLOSED;
    if (connection->progress >= PROGRESS) connection_extend(tcp, connection);
    if (connection->out.size == 0) {
        if (readable && receive(connection) == STATE_CLOSED) return STATE_CLOSED;
        size_t before;
        do {
            before = connection->in_size;
            if (answer_all(tcp, connection) == STATE_CLOSED || flush(connection) == STATE_CLOSED) return STATE_CLOSED;
        } while (connection->out.size == 0 && connection->in_size < before);
    }
    return connection->ended && connection->out.size == 0 ? STATE_CLOSED : STATE_OPEN;
}

static void serve(struct dns_tcp *tcp, struct connection *connection, uint32_t events) {
    if (work(tcp, connection, events & ~(uint32_t)EPOLLOUT) == STATE_CLOSED) {
        connection_close(tcp, connection);
        return;
    }
    bool wants_write = connection->out.size > 0;
    if (wants_write == connection->wants_write) return;
    connection->wants_write = wants_write;
    watch(tcp, connection->fd, connection, EPOLL_CTL_MOD, wants_write ? EPOLLOUT : EPOLLIN);
}

/* -- the thread --------------------------------------------------------------------------------------------------- */

/* Closes the connections whose deadline has passed, and returns the time until the next deadline, in ms; -1: none. */
static int expire(struct dns_tcp *tcp) {
    uint64_t now_ms = clock_mono_ms();
    while (!list_empty(&tcp->connections)) {
        struct connection *first = LIST_ENTRY(tcp->connections.next, struct connection, link);
        if (first->deadline_ms > now_ms) return (int)(first->deadline_ms - now_ms);
        connection_close(tcp, first);
    }
    return -1;
}

static bool is_listener(const struct dns_tcp *tcp, const void *owner) {
    return (const int *)owner >= tcp->listeners && (const int *)owner < tcp->listeners + tcp->listener_count;
}

/* Handles connections before listeners, because accepting may close a connection, and its event must not be handled
 * after that. */
static void handle(struct dns_tcp *tcp, const struct epoll_event *events, size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *owner = events[i].data.ptr;
        if (owner != tcp && !is_listener(tcp, owner)) serve(tcp, owner, events[i].events);
    }
    for (size_t i = 0; i < count; i++) {
        if (is_listener(tcp, events[i].data.ptr)) accept_all(tcp, *(const int *)events[i].data.ptr);
    }
}

static void *tcp_run(void *data) {
    struct dns_tcp *tcp = data;
    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(tcp->epoll, events, EVENTS, expire(tcp));
        if (atomic_load(&tcp->stopping)) return NULL;
        if (count <= 0) continue;
        dns_responder_begin(tcp->responder);
        handle(tcp, events, (size_t)count);
        dns_responder_end(tcp->responder);
    }
}

/* -- life --------------------------------------------------------------------------------------------------------- */

static void tcp_free(struct dns_tcp *tcp) {
    while (!list_empty(&tcp->connections)) {
        connection_close(tcp, LIST_ENTRY(tcp->connections.next, struct connection, link));
    }
    for (size_t i = 0; i < tcp->listener_count; i++) close(tcp->listeners[i]);
    if (tcp->epoll >= 0) close(tcp->epoll);
    if (tcp->wake >= 0) close(tcp->wake);
    if (tcp->spare >= 0) close(tcp->spare);
    dns_responder_free(tcp->responder);
    free(tcp->scratch);
    free(tcp);
}

int dns_tcp_start(const struct dns_setup *setup, struct rpc *rpc, const int *listeners, size_t count,
                  unsigned connections_max, struct dns_tcp **out, struct fault *fault) {
    CHECK(count > 0 && count <= LISTENERS_MAX);
    struct dns_tcp *tcp = mem_zalloc(sizeof(*tcp));
    list_init(&tcp->connections);
    memcpy(tcp->listeners, listeners, count * sizeof(*listeners));
    tcp->listener_count = count;
    tcp->most = connections_max ? connections_max : DNS_TCP_CONNECTIONS_MAX;
    tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
    tcp->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    tcp->responder = dns_responder_new(setup, rpc);
    tcp->scratch = mem_alloc(LENGTH + DNS_TCP_ROOM);
    int rv = tcp->epoll < 0 || tcp->wake < 0 ? errno : 0;
    if (rv == 0) {
        watch(tcp, tcp->wake, tcp, EPOLL_CTL_ADD, EPOLLIN);
        for (size_t i = 0; i < count; i++) watch(tcp, tcp->listeners[i], &tcp->listeners[i], EPOLL_CTL_ADD, EPOLLIN);
        rv = pthread_create(&tcp->thread, NULL, tcp_run, tcp);
    }
    if (rv != 0) {
        tcp_free(tcp);
        return fault_set(fault, co_from_errno(rv), "cannot start the DNS thread for TCP");
    }
    pthread_setname_np(tcp->thread, "dns-tcp");
    *out = tcp;
    return CO_OK;
}

void dns_tcp_stop(struct dns_tcp *tcp) {
    if (!tcp) return;
    atomic_store(&tcp->stopping, true);
    uint64_t one = 1;
    (void)!write(tcp->wake, &one, sizeof(one));
    pthread_join(tcp->thread, NULL);
    tcp_free(tcp);
}
