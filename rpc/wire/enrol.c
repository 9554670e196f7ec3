#include "rpc/wire/enrol.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/message.h"
#include "rpc/wire/address.h"
#include "tls/session.h"

#define HEAD 5 /* of a frame (link.h) */

struct talk {
    const struct enrol *enrol;
    const char *address;
    int fd;
    uint64_t until_ms;
    struct tls_session *session;
    struct buffer plain;
    bool looks; /* without a pin: whoever answers */
    struct fault *fault;
};

static int fail(struct talk *talk, int error, const char *what) {
    return fault_set(talk->fault, error, "%s: %s", talk->address, what);
}

/* -- the socket ---------------------------------------------------------------------------------------------------- */
static int wait_for(struct talk *talk, short events) {
    for (;;) {
        uint64_t now_ms = clock_mono_ms();
        if (now_ms >= talk->until_ms) return fail(talk, CO_TIMEOUT, "no answer in time");
        struct pollfd item = {.fd = talk->fd, .events = events};
        int rv = poll(&item, 1, (int)(talk->until_ms - now_ms));
        if (rv > 0) return CO_OK;
        if (rv < 0 && errno != EINTR) return fail(talk, CO_IO, strerror(errno));
    }
}

static int dial(struct talk *talk, const struct addrinfo *to) {
    talk->fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (talk->fd < 0) return fail(talk, CO_IO, strerror(errno));
    struct sockaddr_storage from;
    if (talk->enrol->from && address_ip(talk->enrol->from, "0", &from) && from.ss_family == to->ai_family &&
        bind(talk->fd, (struct sockaddr *)&from,
             from.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)) != 0)
        return fail(talk, CO_IO, strerror(errno));
    if (connect(talk->fd, to->ai_addr, to->ai_addrlen) == 0) return CO_OK;
    if (errno != EINPROGRESS) return fail(talk, CO_IO, strerror(errno));
    int error = wait_for(talk, POLLOUT), status = 0;
    socklen_t size = sizeof status;
    if (error) return error;
    if (getsockopt(talk->fd, SOL_SOCKET, SO_ERROR, &status, &size) != 0) status = errno;
    return status ? fail(talk, CO_IO, strerror(status)) : CO_OK;
}

/* Tries the addresses of the name one after the other. */
static int dial_name(struct talk *talk, uint16_t port) {
    char complete[ADDRESS_MAX], host[ADDRESS_MAX], service[8];
    if (!address_complete(talk->address, port, complete) || !address_split(complete, host, service))
        return fail(talk, CO_INVALID, "not an address");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int rv = getaddrinfo(host, service, &hints, &found), error = CO_IO;
    if (rv != 0) return fail(talk, CO_IO, gai_strerror(rv));
    for (const struct addrinfo *at = found; at && error; at = at->ai_next) {
        struct fault fault = {0}, *outer = talk->fault;
        talk->fault = &fault;
        error = dial(talk, at);
        talk->fault = outer;
        if (error && talk->fd >= 0) close(talk->fd), talk->fd = -1;
        if (error && !at->ai_next) fault_set(talk->fault, error, "%s", fault.text);
    }
    freeaddrinfo(found);
    return error;
}

/* -- the session --------------------------------------------------------------------------------------------------- */
static int flush(struct talk *talk) {
    struct buffer *out = tls_session_out(talk->session);
    for (size_t at = 0; at < out->size;) {
        ssize_t n = send(talk->fd, out->data + at, out->size - at, MSG_NOSIGNAL);
        if (n > 0) at += (size_t)n;
        else if (errno == EAGAIN) {
            int error = wait_for(talk, POLLOUT);
            if (error) return error;
        } else if (errno != EINTR) return fail(talk, CO_IO, strerror(errno));
    }
    buffer_reset(out);
    return CO_OK;
}

/* A server that takes plain connections only closes at the first bytes of a handshake, without a word. */
static int ended(struct talk *talk) {
    if (tls_session_state(talk->session) == TLS_HANDSHAKE)
        return fail(talk, CO_CORRUPT, "it ended the connection; is it a server of a closed cluster?");
    return fail(talk, CO_IO, "it ended the connection");
}

/* Reads what is there, and waits for more. */
static int turn(struct talk *talk) {
    char bytes[16384];
    int error = flush(talk);
    if (!error) error = wait_for(talk, POLLIN);
    if (error) return error;
    ssize_t n = recv(talk->fd, bytes, sizeof bytes, 0);
    if (n == 0) return ended(talk);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? CO_OK : fail(talk, CO_IO, strerror(errno));
    enum tls_state state = tls_session_feed(talk->session, slice_make(bytes, (size_t)n), &talk->plain);
    if (state == TLS_FAILED) {
        (void)flush(talk); /* the alert; the reason is told here in any case */
        return fail(talk, CO_DENIED, tls_session_why(talk->session));
    }
    return state == TLS_ENDED && talk->plain.size == 0 ? ended(talk) : CO_OK;
}

static int shake_hands(struct talk *talk) {
    const char *protocols[] = {talk->enrol->protocol, NULL};
    struct tls_session_config config = {.protocols = protocols,
                                        .peer = talk->looks ? TLS_PEER_UNASKED : TLS_PEER_REQUIRED,
                                        /* after a long outage the servers' certificates have expired, too */
                                        .grace_s = talk->enrol->pin ? 0 : SECURITY_GRACE_S};
    if (talk->enrol->pin) {
        config.peer = TLS_PEER_PINNED;
        memcpy(config.pin, talk->enrol->pin, TLS_PIN_SIZE);
    }
    talk->session = tls_session_new(talk->enrol->context, &config);
    int error = CO_OK;
    while (!error && tls_session_state(talk->session) == TLS_HANDSHAKE) error = turn(talk);
    if (talk->looks) return error;
    const struct tls_certificate *peer = tls_session_peer(talk->session);
    if (!error && (!peer || peer->role != TLS_ROLE_SERVER))
        error = fail(talk, CO_DENIED, "its certificate is no server's");
    return error;
}

static void ask(struct talk *talk) {
    struct arena arena = {0};
    struct slice packed = message_pack(&arena, &talk->enrol->request->base);
    struct buffer frame = {0};
    char head[HEAD];
    CHECK(packed.size <= ENROL_FRAME_MAX);
    put_le32(head, (uint32_t)packed.size);
    head[4] = ENROL_REQUEST;
    buffer_append(&frame, head, sizeof head);
    buffer_append(&frame, packed.data, packed.size);
    tls_session_write(talk->session, buffer_slice(&frame));
    explicit_bzero((char *)(uintptr_t)packed.data, packed.size);
    tls_wipe(&frame);
    arena_free(&arena);
}

static int answer_of(struct talk *talk, struct arena *arena, Pb__EnrolAnswer **answer) {
    int error = CO_OK;
    for (;;) {
        uint32_t size = talk->plain.size >= HEAD ? get_le32(talk->plain.data) : 0;
        if (size > ENROL_FRAME_MAX || (talk->plain.size >= HEAD && talk->plain.data[4] != ENROL_ANSWER))
            return fail(talk, CO_CORRUPT, "its answer is none of a server of coord");
        if (talk->plain.size >= HEAD && talk->plain.size - HEAD >= size) {
            *answer = message_unpack(arena, &pb__enrol_answer__descriptor, slice_make(talk->plain.data + HEAD, size));
            break;
        }
        error = turn(talk);
        if (error) return error;
    }
    if (!*answer) return fail(talk, CO_CORRUPT, "its answer does not decode");
    if ((*answer)->outcome == CO_OK) return CO_OK;
    int outcome = (*answer)->outcome < CO_ERROR_COUNT ? (int)(*answer)->outcome : CO_CORRUPT;
    return fail(talk, outcome, (*answer)->text[0] ? (*answer)->text : co_strerror(outcome));
}

/* A server that is not told so in time takes it for not kept; the node renews once more before it is needed. */
static void tell_kept(struct talk *talk) {
    char frame[HEAD] = {[4] = ENROL_KEPT};
    tls_session_write(talk->session, slice_make(frame, sizeof frame));
    tls_session_goodbye(talk->session);
    (void)flush(talk);
}

int enrol_ask(const struct enrol *enrol, const char *address, uint16_t port, struct arena *arena,
              Pb__EnrolAnswer **answer, struct fault *fault) {
    struct talk talk = {.enrol = enrol, .address = address, .fd = -1, .fault = fault};
    CHECK(enrol->context && (enrol->pin || strcmp(enrol->protocol, SECURITY_RENEW) == 0));
    *answer = NULL;
    talk.until_ms = clock_mono_ms() + enrol->timeout_ms;
    int error = dial_name(&talk, port);
    if (!error) error = shake_hands(&talk);
    if (!error) ask(&talk), error = answer_of(&talk, arena, answer);
    if (!error && enrol->keep) {
        error = enrol->keep(enrol->data, *answer, fault);
        if (!error) tell_kept(&talk);
    }
    tls_session_free(talk.session);
    if (talk.fd >= 0) close(talk.fd);
    tls_wipe(&talk.plain);
    return error;
}

int enrol_look(const struct enrol *enrol, const char *address, uint16_t port, struct buffer *ca,
               struct tls_certificate *server, struct fault *fault) {
    struct talk talk = {.enrol = enrol, .address = address, .fd = -1, .fault = fault, .looks = true};
    talk.until_ms = clock_mono_ms() + enrol->timeout_ms;
    int error = dial_name(&talk, port);
    if (!error) error = shake_hands(&talk);
    struct slice issuer = tls_session_peer_chain(talk.session, 1); /* above it may stand a company's root */
    struct tls_certificate shown = {0};
    if (!error) error = tls_certificate_read(tls_session_peer_der(talk.session), server, fault);
    if (!error && issuer.size) error = tls_certificate_read(issuer, &shown, fault);
    if (!error && (server->role != TLS_ROLE_SERVER || !shown.is_ca))
        error = fail(&talk, CO_CORRUPT, "no server of a closed cluster of coord answers there");
    if (!error) buffer_append(ca, issuer.data, issuer.size);
    tls_session_free(talk.session);
    if (talk.fd >= 0) close(talk.fd);
    tls_wipe(&talk.plain);
    return error;
}

void enrol_wipe(Pb__EnrolAnswer *answer) {
    if (!answer) return;
    if (answer->ca_key.len) explicit_bzero(answer->ca_key.data, answer->ca_key.len);
    if (answer->secret_key.len) explicit_bzero(answer->secret_key.data, answer->secret_key.len);
}

bool enrol_may_repeat(int error) {
    return error == CO_IO || error == CO_TIMEOUT || error == CO_NOLEADER || error == CO_AGAIN || error == CO_BUSY ||
           error == CO_CLOSED || error == CO_UNKNOWN_OUTCOME || error == CO_NOTLEADER;
}
