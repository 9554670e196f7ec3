#include "h2_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"

#define PREFACE_SIZE 24
#define HEAD_SIZE    9

struct peer {
    const struct peer_script *script;
    int listener, stop_pipe[2];
    uint16_t port;
    pthread_t thread;
    _Atomic uint64_t sent;
    struct certificate certificate;
};

struct guest {
    struct peer *peer;
    int fd;
    gnutls_session_t session;
};

/* -- frames
 * ----------------------------------------------------------------------------------------------------------- */

void peer_frame_head(struct buffer *out, uint32_t size, unsigned type, unsigned flags, uint32_t stream) {
    char head[HEAD_SIZE];
    put_be32(head, size << 8 | type);
    head[4] = (char)flags;
    put_be32(head + 5, stream);
    buffer_append(out, head, sizeof head);
}

void peer_frame(struct buffer *out, unsigned type, unsigned flags, uint32_t stream, struct slice payload) {
    peer_frame_head(out, (uint32_t)payload.size, type, flags, stream);
    buffer_append(out, payload.data, payload.size);
}

void peer_field(struct buffer *out, const char *name, const char *value) {
    CHECK(strlen(name) < 127 && strlen(value) < 127);
    buffer_append_byte(out, 0);
    buffer_append_byte(out, (char)strlen(name));
    buffer_append_text(out, name);
    buffer_append_byte(out, (char)strlen(value));
    buffer_append_text(out, value);
}

void peer_grpc_answer(struct buffer *out, struct slice message, const char *grpc_status) {
    struct buffer head = {0}, trailers = {0}, body = {0};
    char prefix[5] = {0};
    put_be32(prefix + 1, (uint32_t)message.size);
    peer_field(&head, ":status", "200");
    peer_field(&head, "content-type", "application/grpc");
    peer_field(&trailers, "grpc-status", grpc_status);
    buffer_append(&body, prefix, sizeof prefix);
    buffer_append(&body, message.data, message.size);
    peer_frame(out, 1, 4, 1, buffer_slice(&head));
    peer_frame(out, 0, 0, 1, buffer_slice(&body));
    peer_frame(out, 1, 5, 1, buffer_slice(&trailers));
    buffer_free(&head);
    buffer_free(&trailers);
    buffer_free(&body);
}

/* -- one connection
 * --------------------------------------------------------------------------------------------------- */

static ssize_t guest_read(struct guest *guest, void *to, size_t size) {
    return guest->session ? gnutls_record_recv(guest->session, to, size) : recv(guest->fd, to, size, 0);
}

static bool guest_write(struct guest *guest, struct slice bytes) {
    while (bytes.size > 0) {
        ssize_t sent = guest->session ? gnutls_record_send(guest->session, bytes.data, bytes.size)
                                      : send(guest->fd, bytes.data, bytes.size, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        atomic_fetch_add(&guest->peer->sent, (uint64_t)sent);
        bytes = slice_make(bytes.data + sent, bytes.size - (size_t)sent);
    }
    return true;
}

/* False: the peer is to stop. */
static bool may_go_on(struct guest *guest, short events, int milliseconds, bool *ready) {
    struct pollfd fds[2] = {{.fd = guest->fd, .events = events}, {.fd = guest->peer->stop_pipe[0], .events = POLLIN}};
    (void)poll(fds, 2, milliseconds);
    if (ready) *ready = fds[0].revents != 0;
    return fds[1].revents == 0;
}

static void read_until_end(struct guest *guest) {
    char block[4096];
    bool ready;
    while (may_go_on(guest, POLLIN, -1, &ready)) {
        if (ready && guest_read(guest, block, sizeof block) <= 0) return;
    }
}

static void answer(struct guest *guest) {
    struct buffer in = {0};
    size_t at = PREFACE_SIZE;
    for (bool open = true; open;) {
        while (in.size >= at + HEAD_SIZE) {
            const uint8_t *head = (const uint8_t *)in.data + at;
            size_t size = get_be32(head) >> 8;
            if (in.size < at + HEAD_SIZE + size) break;
            if (head[3] == 6 && !(head[4] & 1)) {
                struct buffer pong = {0};
                peer_frame(&pong, 6, 1, 0, slice_make(head + HEAD_SIZE, size));
                guest_write(guest, buffer_slice(&pong));
                buffer_free(&pong);
            } else if (head[3] == 0 && (head[4] & 1)) {
                guest_write(guest, guest->peer->script->again);
            }
            at += HEAD_SIZE + size;
        }
        bool ready = false;
        buffer_reserve(&in, 4096);
        open = may_go_on(guest, POLLIN, -1, &ready);
        ssize_t got = open && ready ? guest_read(guest, in.data + in.size, 4096) : 0;
        open = got > 0;
        in.size += open ? (size_t)got : 0;
    }
    buffer_free(&in);
}

static void drip(struct guest *guest) {
    struct slice bytes = guest->peer->script->bytes;
    for (size_t i = 0; may_go_on(guest, 0, 20, NULL); i = (i + 1) % bytes.size) {
        if (!guest_write(guest, slice_make(bytes.data + i, 1))) return;
    }
}

static void play(struct guest *guest) {
    const struct peer_script *script = guest->peer->script;
    struct linger at_once = {.l_onoff = 1};
    if (script->then == PEER_DRIPS) {
        drip(guest);
        return;
    }
    if (!guest_write(guest, script->bytes)) return;
    switch (script->then) {
        case PEER_DEAF:
            while (may_go_on(guest, 0, -1, NULL)) continue;
            break;
        case PEER_RESETS: setsockopt(guest->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once); break;
        case PEER_HALF_CLOSES:
            shutdown(guest->fd, SHUT_WR);
            read_until_end(guest);
            break;
        case PEER_FLOODS:
            while (may_go_on(guest, 0, 0, NULL) && guest_write(guest, script->again)) continue;
            break;
        case PEER_ANSWERS: answer(guest); break;
        case PEER_HANGS: read_until_end(guest); break;
        case PEER_CLOSES:
        case PEER_DRIPS: break;
    }
}

static bool greet(struct guest *guest) {
    const struct peer_script *script = guest->peer->script;
    if (!script->tls) return true;
    CHECK(gnutls_init(&guest->session, GNUTLS_SERVER) == 0);
    gnutls_set_default_priority(guest->session);
    gnutls_credentials_set(guest->session, GNUTLS_CRD_CERTIFICATE, guest->peer->certificate.credentials);
    gnutls_transport_set_int(guest->session, guest->fd);
    if (script->alpn) {
        gnutls_datum_t known = {(unsigned char *)(uintptr_t)script->alpn, (unsigned)strlen(script->alpn)};
        gnutls_alpn_set_protocols(guest->session, &known, 1, 0);
    }
    int result;
    do result = gnutls_handshake(guest->session);
    while (result < 0 && !gnutls_error_is_fatal(result));
    return result == 0;
}

static void *guest_main(void *data) {
    struct guest *guest = data;
    struct timeval patience = {.tv_sec = 20};
    setsockopt(guest->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(guest->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (greet(guest)) play(guest);
    if (guest->session) gnutls_deinit(guest->session);
    close(guest->fd);
    free(guest);
    return NULL;
}

/* -- the server
 * ------------------------------------------------------------------------------------------------------- */

static void *peer_main(void *data) {
    struct peer *peer = data;
    pthread_t threads[1000];
    size_t count = 0;
    for (;;) {
        struct pollfd fds[2] = {{.fd = peer->listener, .events = POLLIN}, {.fd = peer->stop_pipe[0], .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno == EINTR) continue;
        if (fds[1].revents) break;
        int fd = accept(peer->listener, NULL, NULL);
        if (fd < 0) continue;
        struct guest *guest = mem_zalloc(sizeof *guest);
        guest->peer = peer;
        guest->fd = fd;
        CHECK(count < ARRAY_COUNT(threads));
        CHECK(pthread_create(&threads[count++], NULL, guest_main, guest) == 0);
    }
    for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    return NULL;
}

struct peer *peer_start(const struct peer_script *script) {
    struct peer *peer = mem_zalloc(sizeof *peer);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    peer->script = script;
    if (script->tls) certificate_make(&peer->certificate);
    peer->listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(peer->listener >= 0 && bind(peer->listener, (struct sockaddr *)&address, size) == 0);
    CHECK(listen(peer->listener, 64) == 0);
    CHECK(getsockname(peer->listener, (struct sockaddr *)&address, &size) == 0);
    peer->port = ntohs(address.sin_port);
    CHECK(pipe(peer->stop_pipe) == 0);
    CHECK(pthread_create(&peer->thread, NULL, peer_main, peer) == 0);
    return peer;
}

void peer_stop(struct peer *peer) {
    close(peer->stop_pipe[1]);
    pthread_join(peer->thread, NULL);
    close(peer->stop_pipe[0]);
    close(peer->listener);
    certificate_free(&peer->certificate);
    free(peer);
}

uint16_t peer_port(const struct peer *peer) { return peer->port; }
uint64_t peer_sent(const struct peer *peer) { return peer->sent; }
const struct certificate *peer_certificate(const struct peer *peer) { return &peer->certificate; }
