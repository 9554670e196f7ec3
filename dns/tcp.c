/* DNS over TCP or over TLS: one thread for each of the two, epoll. Messages carry their length in two bytes; a client may
 * send many without waiting.
 *
 * (1) A connection reads only while nothing waits to be sent on it, so a client that does not read stops being read.
 * (2) It is closed IDLE_MS after its last whole query, or after the client took PROGRESS more bytes of answers; a
 *     smaller progress does not extend this time. (3) Connections are listed by deadline. When there are too many, the
 *     one with the nearest deadline is closed. With no connection the thread sleeps without a timeout. (4) Connections that
 *     shake hands are in a list of their own, with a deadline of HANDSHAKE_MS. They get their turn after those that are
 *     open, and a bounded time of it (handshake.h). */
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
#include "base/metrics.h"
#include "dns/handshake.h"
#include "dns/socket.h"
#include "dns/stream.h"

enum {
    IDLE_MS = 10000,
    EVENTS = 64,
    LENGTH = 2,
    OUT_KEPT = 256 * 1024, /* answers gathered before they are sent */
    PROGRESS = 4096,
    LISTENERS_MAX = 16,
};

struct connection {
    struct list link; /* by deadline, in `handshakes` or `connections` */
    struct stream stream;
    bool wants_write, shakes; /* shakes: its handshake is not over */
    uint64_t deadline_ms;
};

struct dns_tcp {
    pthread_t thread;
    int epoll, wake, spare; /* spare: given up for a moment when descriptors run out */
    int listeners[LISTENERS_MAX];
    size_t listener_count;
    struct tls_slot *slot; /* NULL: plain */
    enum dns_transport transport;
    _Atomic bool stopping;
    struct dns_responder *responder;
    bool begun; /* dns_responder_begin was called in this turn */
    struct list connections, handshakes;
    size_t count, most, handshake_count;
    bool paused, behind; /* paused: new clients wait; behind: see handshake_admit */
    struct stream_room room;
    uint8_t *scratch; /* an answer with its length */
};

#define HANDSHAKES(label)                                                               \
    {                                                                                   \
        .name = "coord_dns_tls_handshakes_total",                                       \
        .help = "Handshakes of DNS over TLS, by outcome; resumed: by a session ticket", \
        .labels = "outcome=\"" label "\"", .type = METRIC_COUNTER                       \
    }
enum outcome { FULL, RESUMED, FAILED, OUTCOMES };
METRIC handshakes_total[OUTCOMES] = {HANDSHAKES("full"), HANDSHAKES("resumed"), HANDSHAKES("failed")};

/* -- connections -------------------------------------------------------------------------------------------------- */

static struct connection *first_of(const struct list *list) {
    return list_empty(list) ? NULL : LIST_ENTRY(list->next, struct connection, link);
}

/* The one with the nearest deadline; NULL: there is none. */
static struct connection *first_due(const struct dns_tcp *tcp) {
    struct connection *shakes = first_of(&tcp->handshakes), *open = first_of(&tcp->connections);
    if (!shakes || !open) return shakes ? shakes : open;
    return shakes->deadline_ms < open->deadline_ms ? shakes : open;
}

static void handshake_over(struct dns_tcp *tcp, struct connection *connection, enum outcome outcome) {
    if (!connection->shakes) return;
    connection->shakes = false;
    tcp->handshake_count--;
    if (connection->stream.session) metric_add(&handshakes_total[outcome], 1);
}

static void connection_close(struct dns_tcp *tcp, struct connection *connection) {
    handshake_over(tcp, connection, FAILED);
    list_remove(&connection->link);
    stream_close(&connection->stream); /* this removes it from the epoll too */
    free(connection);
    tcp->count--;
}

static void connection_extend(struct dns_tcp *tcp, struct connection *connection) {
    connection->deadline_ms = clock_mono_ms() + IDLE_MS;
    connection->stream.progress = 0;
    list_remove(&connection->link);
    list_append(&tcp->connections, &connection->link);
}

static void watch(struct dns_tcp *tcp, int fd, void *owner, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = owner};
    CHECK(epoll_ctl(tcp->epoll, operation, fd, &event) == 0);
}

static void connection_new(struct dns_tcp *tcp, int fd) {
    if (tcp->count >= tcp->most) connection_close(tcp, first_due(tcp));
    struct connection *connection = mem_zalloc(sizeof(*connection));
    stream_open(&connection->stream, fd, tcp->slot);
    list_init(&connection->link);
    if (tcp->slot) {
        connection->shakes = true;
        connection->deadline_ms = clock_mono_ms() + HANDSHAKE_MS;
        list_append(&tcp->handshakes, &connection->link);
        tcp->handshake_count++;
    } else {
        connection_extend(tcp, connection);
    }
    tcp->count++;
    watch(tcp, fd, connection, EPOLL_CTL_ADD, EPOLLIN);
}

/* -- new clients -------------------------------------------------------------------------------------------------- */

static void listen_or_not(struct dns_tcp *tcp, bool paused) {
    if (tcp->paused == paused) return;
    tcp->paused = paused;
    for (size_t i = 0; i < tcp->listener_count; i++) {
        watch(tcp, tcp->listeners[i], &tcp->listeners[i], EPOLL_CTL_MOD, paused ? 0 : EPOLLIN);
    }
}

static enum handshake_admission admission(const struct dns_tcp *tcp, uint64_t *wait_ms) {
    const struct connection *oldest = first_of(&tcp->handshakes);
    uint64_t left_ms = oldest ? oldest->deadline_ms : 0, now_ms = clock_mono_ms();
    left_ms = left_ms > now_ms ? left_ms - now_ms : 0;
    return handshake_admit(tcp->handshake_count, HANDSHAKE_MS - left_ms, tcp->behind, wait_ms);
}

/* May one more client begin? Else the listeners are not looked at for now. */
static bool make_room(struct dns_tcp *tcp) {
    if (!tcp->slot) return true;
    uint64_t wait_ms;
    enum handshake_admission admitted = admission(tcp, &wait_ms);
    if (admitted == HANDSHAKE_REPLACE) connection_close(tcp, first_of(&tcp->handshakes));
    if (admitted == HANDSHAKE_WAIT) listen_or_not(tcp, true);
    return admitted != HANDSHAKE_WAIT;
}

/* Descriptors have run out: closes the connection with the nearest deadline. When there is none, accepts the client
 * with the spare descriptor and closes it at once, because epoll would report the listener for ever otherwise. */
static void shed(struct dns_tcp *tcp, int listener) {
    if (tcp->count > 0) {
        connection_close(tcp, first_due(tcp));
        return;
    }
    if (tcp->spare >= 0) close(tcp->spare);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    tcp->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void accept_all(struct dns_tcp *tcp, int listener) {
    for (size_t i = 0; i < EVENTS && make_room(tcp); i++) {
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

/* Answers the whole queries at the front of the input, until enough is waiting to be sent, and cuts them off. */
static enum stream_state answer_all(struct dns_tcp *tcp, struct connection *connection, struct slice *input) {
    struct buffer *answers = stream_answers(&connection->stream, &tcp->room);
    const uint8_t *in = (const uint8_t *)input->data;
    size_t at = 0;
    while (input->size - at >= LENGTH && answers->size < OUT_KEPT) {
        size_t size = get_be16(in + at);
        if (size > PACKET_QUERY_MAX || size < PACKET_HEADER_SIZE) return STREAM_OVER;
        if (input->size - at < LENGTH + size) break;
        if (!tcp->begun) dns_responder_begin(tcp->responder);
        tcp->begun = true;
        size_t answer =
            dns_responder_answer(tcp->responder, tcp->transport, in + at + LENGTH, size, tcp->scratch + LENGTH);
        if (answer == 0) return STREAM_OVER;
        put_be16(tcp->scratch, (uint16_t)answer);
        buffer_append(answers, tcp->scratch, LENGTH + answer);
        at += LENGTH + size;
    }
    if (at == 0) return STREAM_GOES_ON;
    *input = slice_make(in + at, input->size - at);
    stream_seal(&connection->stream, &tcp->room);
    connection_extend(tcp, connection);
    return STREAM_GOES_ON;
}

/* Receives, and answers until something waits to be sent or no whole query is left. */
static enum stream_state exchange(struct dns_tcp *tcp, struct connection *connection, bool readable) {
    struct stream *stream = &connection->stream;
    struct slice input;
    enum stream_state state = STREAM_GOES_ON;
    if (readable) state = stream_receive(stream, &tcp->room, &input);
    else stream_resume(stream, &tcp->room, &input);
    if (state == STREAM_OVER) return state;
    if (connection->shakes && stream_is_open(stream)) {
        handshake_over(tcp, connection, tls_session_resumed(stream->session) ? RESUMED : FULL);
        connection_extend(tcp, connection);
    }
    size_t before;
    do {
        before = input.size;
        if (stream_is_open(stream)) state = answer_all(tcp, connection, &input);
        if (state == STREAM_OVER || stream_flush(stream) == STREAM_OVER) return STREAM_OVER;
    } while (!stream_waits(stream) && input.size < before);
    stream_keep(stream, input);
    return STREAM_GOES_ON;
}

static enum stream_state work(struct dns_tcp *tcp, struct connection *connection, bool readable) {
    struct stream *stream = &connection->stream;
    if (stream_flush(stream) == STREAM_OVER) return STREAM_OVER;
    if (stream->progress >= PROGRESS && !connection->shakes) connection_extend(tcp, connection);
    if (!stream_waits(stream) && exchange(tcp, connection, readable) == STREAM_OVER) return STREAM_OVER;
    return stream->ended && !stream_waits(stream) ? STREAM_OVER : STREAM_GOES_ON;
}

static void serve(struct dns_tcp *tcp, struct connection *connection, uint32_t events) {
    if (work(tcp, connection, events & ~(uint32_t)EPOLLOUT) == STREAM_OVER) {
        connection_close(tcp, connection);
        return;
    }
    bool wants_write = stream_waits(&connection->stream);
    if (wants_write == connection->wants_write) return;
    connection->wants_write = wants_write;
    watch(tcp, connection->stream.fd, connection, EPOLL_CTL_MOD, wants_write ? EPOLLOUT : EPOLLIN);
}

/* -- the thread --------------------------------------------------------------------------------------------------- */

/* Closes the connections whose deadline has passed, and returns the time until something is due, in ms; -1: nothing. */
static int expire(struct dns_tcp *tcp) {
    uint64_t now_ms = clock_mono_ms(), wait_ms;
    struct connection *first;
    while ((first = first_due(tcp)) && first->deadline_ms <= now_ms) connection_close(tcp, first);
    if (!first) return -1;
    int left_ms = (int)(first->deadline_ms - now_ms);
    if (!tcp->paused) return left_ms;
    if (admission(tcp, &wait_ms) != HANDSHAKE_WAIT) return 0;
    return (int)wait_ms < left_ms ? (int)wait_ms : left_ms;
}

static bool is_listener(const struct dns_tcp *tcp, const void *owner) {
    return (const int *)owner >= tcp->listeners && (const int *)owner < tcp->listeners + tcp->listener_count;
}

static void handle_open(struct dns_tcp *tcp, struct epoll_event *events, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct connection *connection = events[i].data.ptr;
        if (events[i].data.ptr == tcp || is_listener(tcp, connection) || connection->shakes) continue;
        events[i].data.ptr = tcp; /* it may be closed now */
        serve(tcp, connection, events[i].events);
    }
}

static void handle_handshakes(struct dns_tcp *tcp, const struct epoll_event *events, size_t count) {
    uint64_t end_ms = clock_mono_ms() + HANDSHAKE_TURN_MS;
    tcp->behind = count == EVENTS;
    for (size_t i = 0; i < count; i++) {
        void *owner = events[i].data.ptr;
        if (owner == tcp || is_listener(tcp, owner)) continue;
        serve(tcp, owner, events[i].events);
        if (clock_mono_ms() < end_ms) continue;
        tcp->behind = true; /* what is left is reported again */
        return;
    }
}

/* Handles connections before listeners, because accepting may close a connection, and its event must not be handled
 * after that. */
static void handle(struct dns_tcp *tcp, struct epoll_event *events, size_t count) {
    handle_open(tcp, events, count);
    if (tcp->slot) handle_handshakes(tcp, events, count);
    for (size_t i = 0; i < count; i++) {
        if (is_listener(tcp, events[i].data.ptr)) accept_all(tcp, *(const int *)events[i].data.ptr);
    }
    uint64_t wait_ms;
    if (tcp->paused && admission(tcp, &wait_ms) != HANDSHAKE_WAIT) listen_or_not(tcp, false);
}

static void *tcp_run(void *data) {
    struct dns_tcp *tcp = data;
    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(tcp->epoll, events, EVENTS, expire(tcp));
        if (atomic_load(&tcp->stopping)) return NULL;
        if (count < 0) continue;
        handle(tcp, events, (size_t)count);
        if (tcp->begun) dns_responder_end(tcp->responder);
        tcp->begun = false;
    }
}

/* -- life --------------------------------------------------------------------------------------------------------- */

static void tcp_free(struct dns_tcp *tcp) {
    for (struct connection *first; (first = first_due(tcp));) connection_close(tcp, first);
    for (size_t i = 0; i < tcp->listener_count; i++) close(tcp->listeners[i]);
    if (tcp->epoll >= 0) close(tcp->epoll);
    if (tcp->wake >= 0) close(tcp->wake);
    if (tcp->spare >= 0) close(tcp->spare);
    dns_responder_free(tcp->responder);
    stream_room_free(&tcp->room);
    free(tcp->scratch);
    free(tcp);
}

int dns_tcp_start(const struct dns_setup *setup, struct rpc *rpc, const int *listeners, size_t count,
                  unsigned connections_max, struct tls_slot *slot, struct dns_tcp **out, struct fault *fault) {
    CHECK(count > 0 && count <= LISTENERS_MAX);
    struct dns_tcp *tcp = mem_zalloc(sizeof(*tcp));
    list_init(&tcp->connections);
    list_init(&tcp->handshakes);
    tcp->slot = slot;
    tcp->transport = slot ? DNS_TLS : DNS_TCP;
    for (size_t i = 0; slot && i < OUTCOMES; i++) metric_register(&handshakes_total[i]);
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
        return fault_set(fault, co_from_errno(rv), "cannot start the DNS thread for %s", slot ? "TLS" : "TCP");
    }
    pthread_setname_np(tcp->thread, slot ? "dns-tls" : "dns-tcp");
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
