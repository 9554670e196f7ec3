/* Connections of HTTPS from accept() until their handshake is over. They are in the worker's outer epoll, and enter a
 * shard afterwards.
 *
 * A handshake costs most of a millisecond of signing, so each turn gives handshakes a bounded time, at its end. When ten
 * thousand clients come back at once, answers on open connections wait for that time only, and the handshakes for each
 * other. The deadline of a handshake counts the time that we wait for the client, not the time that it waits for us. */
#include "http/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tls/session.h"

#define TURN_NS    2000000 /* of a worker's turn, for handshakes; at least one goes on */
#define FIRST_MOST 2048    /* bytes read to see what the client speaks */

struct handshake {
    struct connection *connection;
    struct list link; /* worker->handshakes; or empty: it waits for the client */
    struct timer deadline;
    uint64_t queued_ms;
    bool full; /* the kernel takes no more: the epoll tells when it does */
    struct sockaddr_storage address;
    socklen_t address_size;
};

static bool watch(struct connection *connection, int operation, bool full) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET | (full ? EPOLLOUT : 0u),
                                .data.ptr = &connection->source};
    connection->handshake->full = full;
    return epoll_ctl(connection->worker->epoll, operation, connection->fd, &event) == 0;
}

/* The connection leaves this stage; its descriptor stays open. */
static void leave(struct connection *connection) {
    struct handshake *handshake = connection->handshake;
    struct worker *worker = connection->worker;
    timer_clear(worker, &handshake->deadline);
    if (!list_empty(&handshake->link)) list_remove(&handshake->link);
    epoll_ctl(worker->epoll, EPOLL_CTL_DEL, connection->fd, NULL);
    connection->handshake = NULL;
    free(handshake);
}

static void end(struct connection *connection) {
    leave(connection);
    close(connection->fd);
    connection_gone(connection);
}

/* As end, but what was sent arrives although the client may have sent more than we read. */
static void end_told(struct connection *connection) {
    linger(connection->worker, connection->fd);
    end(connection);
}

static void enqueue(struct handshake *handshake) {
    struct worker *worker = handshake->connection->worker;
    if (!list_empty(&handshake->link)) return;
    handshake->queued_ms = worker->now_ms;
    list_append(&worker->handshakes, &handshake->link);
}

static void due(struct worker *worker, struct timer *timer) {
    struct handshake *handshake = CONTAINER_OF(timer, struct handshake, deadline);
    if (!list_empty(&handshake->link)) { /* it waits for us */
        timer_set(worker, timer, worker->now_ms + 1000, due);
        return;
    }
    if (handshake->connection->secure) worker->tally.handshakes[2]++;
    log_debug("http", "a handshake took too long: closed");
    end(handshake->connection);
}

void handshake_begin(struct connection *connection, const struct sockaddr_storage *address, socklen_t size) {
    struct worker *worker = connection->worker;
    struct handshake *handshake = connection->handshake = mem_zalloc(sizeof *handshake);
    handshake->connection = connection;
    handshake->address = *address;
    handshake->address_size = size;
    list_init(&handshake->link);
    timer_set(worker, &handshake->deadline, worker->now_ms + worker->server->config.handshake_timeout_ms, due);
    if (!watch(connection, EPOLL_CTL_ADD, false)) end(connection);
}

void handshake_event(struct connection *connection) { enqueue(connection->handshake); }

/* Looks at the first bytes. False: the connection has ended. */
static bool first_bytes(struct connection *connection) {
    char bytes[FIRST_MOST], answer[512];
    ssize_t got = plain_receive(connection->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) {
        end(connection);
        return false;
    }
    if (bytes[0] >= 'A' && bytes[0] <= 'Z') {
        size_t size =
            plain_answer(answer, sizeof answer, "400 Bad Request", "Client sent an HTTP request to an HTTPS server.");
        connection->worker->tally.answered[4] += plain_send(connection->fd, answer, size) > 0;
        end_told(connection);
        return false;
    }
    if (!tls_looks_like(slice_make(bytes, (size_t)got)) || !secure_begin(connection)) {
        log_debug("http", "a client speaks neither TLS nor HTTP, or there is no certificate yet: closed");
        end_told(connection);
        return false;
    }
    secure_feed(connection, bytes, (size_t)got);
    return true;
}

static void enter(struct connection *connection) {
    struct handshake *handshake = connection->handshake;
    struct sockaddr_storage address = handshake->address;
    socklen_t size = handshake->address_size;
    leave(connection);
    connection->began_ms = connection->worker->now_ms;
    shard_enter(connection, false, (const struct sockaddr *)&address, size);
}

static void step(struct connection *connection) {
    struct handshake *handshake = connection->handshake;
    struct worker *worker = connection->worker;
    uint64_t waited_ms = worker->now_ms - handshake->queued_ms;
    if (waited_ms) timer_set(worker, &handshake->deadline, handshake->deadline.at_ms + waited_ms, due);
    if (!connection->secure && !first_bytes(connection)) return;
    if (!connection->secure) return;
    switch (secure_handshake(connection)) {
        case SECURE_DONE: enter(connection); return;
        case SECURE_WAIT:
            if (handshake->full) watch(connection, EPOLL_CTL_MOD, false);
            return;
        case SECURE_FULL:
            if (!handshake->full && !watch(connection, EPOLL_CTL_MOD, true)) end(connection);
            return;
        case SECURE_FAILED:
            log_debug("http", "handshake failed: %s", secure_why(connection));
            end_told(connection);
            return;
    }
}

void handshakes_run(struct worker *worker) {
    if (list_empty(&worker->handshakes)) return;
    uint64_t end_ns = clock_mono_ns() + TURN_NS;
    do {
        struct handshake *handshake = LIST_ENTRY(worker->handshakes.next, struct handshake, link);
        list_remove(&handshake->link);
        list_init(&handshake->link);
        step(handshake->connection);
    } while (!list_empty(&worker->handshakes) && clock_mono_ns() < end_ns);
}

void handshakes_stop(struct worker *worker) {
    LIST_FOREACH_SAFE(link, next, &worker->connections) {
        struct connection *connection = LIST_ENTRY(link, struct connection, link);
        if (connection->handshake) end(connection);
    }
}
