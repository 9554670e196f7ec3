/* TLS of a connection (impl.h). The bytes of a call are gathered in the worker's room: what GnuTLS sends leaves in one
 * send(), and what the kernel has is received by one recv(). A connection keeps bytes of its own only while the kernel
 * takes no more, or while libmicrohttpd has no room for all that came.
 *
 * libmicrohttpd works with edges of epoll, so secure_receive returns less than it was asked for only when the kernel
 * has no more, and secure_send only when the kernel takes no more. */
#include "http/impl.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tls/context.h"
#include "tls/session.h"

#define RECORD_MOST    16384 /* plain bytes of one record */
#define SEND_STEP      65536 /* plain bytes encrypted before the kernel is asked to take them */
#define RECEIVE_STEP   32768
#define HANDSHAKE_MOST 32768 /* bytes of a client's message in a handshake */
#define CHAIN_MOST     8     /* certificates of a client */

struct secure_room {
    struct buffer out; /* encrypted in this call */
    char plain[SEND_STEP];
    char received[RECEIVE_STEP];
};

struct secure {
    gnutls_session_t session;
    struct tls_context *context;
    struct buffer in, out; /* received, not decrypted yet; encrypted, not sent yet */
    size_t in_taken, out_sent;
    size_t owed;               /* plain bytes that are encrypted, but not yet reported as sent */
    const char *now, *now_end; /* received in this call */
    bool drained;              /* the kernel had no more in this call */
    bool failed, said_goodbye, ended;
    struct tls_certificate *peer;
    char why[192];
};

static struct secure_room *room_of(struct worker *worker) {
    if (!worker->room) worker->room = mem_zalloc(sizeof *worker->room);
    return worker->room;
}

void secure_room_free(struct worker *worker) {
    if (!worker->room) return;
    buffer_free(&worker->room->out);
    free(worker->room);
    worker->room = NULL;
}

/* ---- bytes from and to the kernel ---- */

static size_t take(struct secure *secure, void *data, size_t size) {
    size_t left = secure->in.size - secure->in_taken, now = (size_t)(secure->now_end - secure->now);
    if (left) {
        size = size < left ? size : left;
        memcpy(data, secure->in.data + secure->in_taken, size);
        secure->in_taken += size;
        if (secure->in_taken == secure->in.size) buffer_free(&secure->in), secure->in_taken = 0;
        return size;
    }
    size = size < now ? size : now;
    if (size) memcpy(data, secure->now, size);
    secure->now += size;
    return size;
}

/* GnuTLS asks for the five bytes before a record, and then for the record. */
static ssize_t pull(gnutls_transport_ptr_t transport, void *data, size_t size) {
    struct connection *connection = transport;
    struct secure *secure = connection->secure;
    size_t taken = take(secure, data, size);
    if (taken) return (ssize_t)taken;
    char *received = room_of(connection->worker)->received;
    ssize_t got = -1;
    errno = EAGAIN;
    while (!secure->drained && (got = plain_receive(connection->fd, received, RECEIVE_STEP, MSG_DONTWAIT)) < 0 &&
           errno == EINTR) {
        continue;
    }
    if (got <= 0) {
        secure->drained = true;
        if (got == 0) secure->ended = true; /* GnuTLS, told of the end, would send no answer any more */
        gnutls_transport_set_errno(secure->session, got == 0 ? EAGAIN : errno);
        return -1;
    }
    secure->drained = got < RECEIVE_STEP;
    secure->now = received;
    secure->now_end = received + got;
    return (ssize_t)take(secure, data, size);
}

static int pull_timeout(gnutls_transport_ptr_t transport, unsigned ms) {
    (void)transport, (void)ms;
    return 1; /* pull never blocks */
}

static ssize_t push(gnutls_transport_ptr_t transport, const void *data, size_t size) {
    struct connection *connection = transport;
    buffer_append(&room_of(connection->worker)->out, data, size);
    return (ssize_t)size;
}

static void call_begin(struct secure *secure) { secure->drained = false; }

/* Keeps what was received and not decrypted. */
static void call_end(struct secure *secure) {
    if (secure->now < secure->now_end) buffer_append(&secure->in, secure->now, (size_t)(secure->now_end - secure->now));
    secure->now = secure->now_end = NULL;
}

void secure_feed(struct connection *connection, const char *data, size_t size) {
    buffer_append(&connection->secure->in, data, size);
}

/* Sends `bytes` from *at on. False: the kernel takes no more (EAGAIN), or the client is gone. */
static bool send_from(struct connection *connection, const struct buffer *bytes, size_t *at) {
    while (*at < bytes->size) {
        ssize_t sent = plain_send(connection->fd, bytes->data + *at, bytes->size - *at);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return false;
        *at += (size_t)sent;
    }
    return true;
}

/* Sends what was kept, then what this call has encrypted, and keeps the rest. False: as above. */
static bool flush(struct connection *connection) {
    struct secure *secure = connection->secure;
    struct buffer *fresh = &room_of(connection->worker)->out;
    size_t sent = 0;
    if (secure->out.size) {
        if (fresh->size) buffer_append(&secure->out, fresh->data, fresh->size);
        fresh->size = 0;
        if (!send_from(connection, &secure->out, &secure->out_sent)) return false;
        buffer_free(&secure->out);
        secure->out_sent = 0;
        return true;
    }
    bool all = send_from(connection, fresh, &sent);
    int error = errno;
    if (!all && error == EAGAIN) buffer_append(&secure->out, fresh->data + sent, fresh->size - sent);
    fresh->size = 0;
    if (fresh->capacity > 2 * SEND_STEP) buffer_free(fresh);
    errno = error;
    return all;
}

/* ---- beginning ---- */

static int64_t wall_s(void) { return clock_wall_ns() / 1000000000; }

static gnutls_alert_description_t alert_of(enum tls_verdict verdict) {
    switch (verdict) {
        case TLS_UNKNOWN_CA: return GNUTLS_A_UNKNOWN_CA;
        case TLS_EXPIRED: return GNUTLS_A_CERTIFICATE_EXPIRED;
        case TLS_WRONG_USE: return GNUTLS_A_UNSUPPORTED_CERTIFICATE;
        default: return GNUTLS_A_BAD_CERTIFICATE;
    }
}

/* GnuTLS calls this when the client has shown its certificates, or none. */
static int judge(gnutls_session_t session) {
    struct connection *connection = gnutls_session_get_ptr(session);
    struct secure *secure = connection->secure;
    unsigned count = 0;
    const gnutls_datum_t *shown = gnutls_certificate_get_peers(session, &count);
    bool required = connection->worker->server->config.certificates == HTTP_CERTIFICATES_REQUIRED;
    if (!shown || !count) { /* GnuTLS itself refuses a client without one, where one is required */
        return required ? GNUTLS_E_CERTIFICATE_REQUIRED : 0;
    }
    struct slice chain[CHAIN_MOST];
    struct tls_certificate certificate = {0};
    struct tls_rules rules = {.trust = tls_context_trust(secure->context), .now_s = wall_s()};
    char why[160] = "";
    if (count > CHAIN_MOST) count = CHAIN_MOST;
    for (unsigned i = 0; i < count; i++) chain[i] = slice_make(shown[i].data, shown[i].size);
    enum tls_verdict verdict = tls_judge(&rules, chain, count, &certificate, why);
    if (verdict != TLS_TRUSTED && !required) return 0;
    if (verdict != TLS_TRUSTED) {
        snprintf(secure->why, sizeof secure->why, "the client \"%.60s\" is refused: %.100s", certificate.common_name,
                 why);
        gnutls_alert_send(session, GNUTLS_AL_FATAL, alert_of(verdict));
        return GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR;
    }
    if (!secure->peer) secure->peer = mem_alloc(sizeof *secure->peer);
    *secure->peer = certificate;
    return 0;
}

/* A session that is resumed by a ticket shows no certificate. So there are no tickets where one is required. Where clients are
 * only asked, those that showed none get a ticket (offer_ticket); a session of TLS 1.2 that is resumed proves nothing. */
static void settle_clients(struct secure *secure, enum http_certificates certificates) {
    const gnutls_datum_t *ticket_key = tls_context_ticket_key(secure->context);
    bool required = certificates == HTTP_CERTIFICATES_REQUIRED;
    if (ticket_key && !required) gnutls_session_ticket_enable_server(secure->session, ticket_key);
    if (certificates == HTTP_CERTIFICATES_UNASKED) return;
    gnutls_certificate_server_set_request(secure->session, required ? GNUTLS_CERT_REQUIRE : GNUTLS_CERT_REQUEST);
    /* Names of CAs would keep clients from showing a certificate of one that only an auth method knows. */
    if (!required) gnutls_certificate_send_x509_rdn_sequence(secure->session, 1);
    gnutls_session_set_verify_function(secure->session, judge);
}

/* When the handshake is done: GnuTLS does not offer one by itself where clients are asked for certificates. */
static void offer_ticket(struct connection *connection) {
    gnutls_session_t session = connection->secure->session;
    bool asked = connection->worker->server->config.certificates == HTTP_CERTIFICATES_ASKED;
    unsigned count = 0;
    if (!asked || !tls_context_ticket_key(connection->secure->context)) return;
    if (gnutls_protocol_get_version(session) != GNUTLS_TLS1_3 || gnutls_certificate_get_peers(session, &count)) return;
    gnutls_session_ticket_send(session, 1, 0);
}

bool secure_begin(struct connection *connection) {
    static const gnutls_datum_t http = {(unsigned char *)(uintptr_t) "http/1.1", 8};
    const struct http_config *config = &connection->worker->server->config;
    struct tls_context *context = tls_slot_get(config->tls);
    if (!context) return false;
    struct secure *secure = connection->secure = mem_zalloc(sizeof *secure);
    secure->context = context;
    bool tickets = config->certificates != HTTP_CERTIFICATES_REQUIRED && tls_context_ticket_key(context);
    unsigned flags = GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL | (tickets ? 0 : GNUTLS_NO_TICKETS);
    if (config->certificates == HTTP_CERTIFICATES_ASKED) flags |= GNUTLS_NO_AUTO_SEND_TICKET;
    CHECK(gnutls_init(&secure->session, flags) == 0);
    gnutls_session_t session = secure->session;
    CHECK(gnutls_priority_set(session, tls_context_priorities(context)) == 0);
    CHECK(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, tls_context_credentials(context)) == 0);
    CHECK(gnutls_alpn_set_protocols(session, &http, 1, 0) == 0);
    gnutls_session_set_ptr(session, connection);
    gnutls_handshake_set_max_packet_length(session, HANDSHAKE_MOST);
    settle_clients(secure, config->certificates);
    gnutls_transport_set_ptr(session, connection);
    gnutls_transport_set_pull_function(session, pull);
    gnutls_transport_set_pull_timeout_function(session, pull_timeout);
    gnutls_transport_set_push_function(session, push);
    return true;
}

void secure_free(struct connection *connection) {
    struct secure *secure = connection->secure;
    if (!secure) return;
    connection->secure = NULL;
    gnutls_deinit(secure->session);
    tls_context_unref(secure->context);
    buffer_free(&secure->in);
    buffer_free(&secure->out);
    free(secure->peer);
    free(secure);
}

const struct tls_certificate *connection_peer(const struct connection *connection) {
    return connection->secure ? connection->secure->peer : NULL;
}

size_t secure_certificates(const struct connection *connection, struct slice *chain, size_t room) {
    unsigned count = 0;
    if (!connection->secure || gnutls_session_is_resumed(connection->secure->session)) return 0;
    const gnutls_datum_t *shown = gnutls_certificate_get_peers(connection->secure->session, &count);
    if (!shown) return 0;
    for (size_t i = 0; i < count && i < room; i++) chain[i] = slice_make(shown[i].data, shown[i].size);
    return count < room ? count : room;
}

const char *secure_why(const struct connection *connection) {
    return connection->secure ? connection->secure->why : "";
}

/* Tells the client, and the log, why the handshake failed. */
static void explain(struct secure *secure, int rv) {
    if (rv == GNUTLS_E_FATAL_ALERT_RECEIVED) {
        const char *alert = gnutls_alert_get_name(gnutls_alert_get(secure->session));
        snprintf(secure->why, sizeof secure->why, "the client gave up: %s", alert ? alert : "?");
    } else if (rv == GNUTLS_E_NO_CERTIFICATE_FOUND) { /* TLS 1.2; GnuTLS would send "decode error" */
        snprintf(secure->why, sizeof secure->why, "the client shows no certificate");
        gnutls_alert_send(secure->session, GNUTLS_AL_FATAL, GNUTLS_A_HANDSHAKE_FAILURE);
    } else {
        snprintf(secure->why, sizeof secure->why, "%s", gnutls_strerror(rv));
        gnutls_alert_send_appropriate(secure->session, rv);
    }
}

enum secure_step secure_handshake(struct connection *connection) {
    struct secure *secure = connection->secure;
    struct tally *tally = &connection->worker->tally;
    int rv;
    call_begin(secure);
    while ((rv = gnutls_handshake(secure->session)) == GNUTLS_E_INTERRUPTED || rv == GNUTLS_E_WARNING_ALERT_RECEIVED) {
        continue;
    }
    if (rv == 0) offer_ticket(connection);
    if (rv < 0 && rv != GNUTLS_E_AGAIN) {
        secure->failed = true;
        tally->handshakes[2]++;
        if (!secure->why[0]) explain(secure, rv);
    }
    call_end(secure);
    bool sent = flush(connection);
    if (secure->failed) return SECURE_FAILED;
    if (!sent && errno != EAGAIN) {
        secure->failed = true;
        snprintf(secure->why, sizeof secure->why, "the client is gone");
        return SECURE_FAILED;
    }
    if (!sent) return SECURE_FULL;
    if (rv < 0 && secure->ended) {
        secure->failed = true;
        tally->handshakes[2]++;
        snprintf(secure->why, sizeof secure->why, "the client is gone");
        return SECURE_FAILED;
    }
    if (rv < 0) return SECURE_WAIT;
    tally->handshakes[gnutls_session_is_resumed(secure->session) ? 1 : 0]++;
    return SECURE_DONE;
}

/* ---- moving bytes ---- */

/* The meaning of what GnuTLS returned in place of bytes. True: ask it again. */
static bool go_on(struct secure *secure, ssize_t rv) {
    if (rv == GNUTLS_E_INTERRUPTED || rv == GNUTLS_E_WARNING_ALERT_RECEIVED) return true;
    if (rv == GNUTLS_E_AGAIN) return false;
    if (rv == 0 || rv == GNUTLS_E_PREMATURE_TERMINATION) {
        secure->ended = true;
        return false;
    }
    if (rv == GNUTLS_E_REHANDSHAKE) { /* TLS 1.2: a client may ask for it, and is told no */
        gnutls_alert_send(secure->session, GNUTLS_AL_WARNING, GNUTLS_A_NO_RENEGOTIATION);
        return true;
    }
    secure->failed = true;
    if (rv != GNUTLS_E_FATAL_ALERT_RECEIVED && rv != GNUTLS_E_PULL_ERROR)
        gnutls_alert_send_appropriate(secure->session, (int)rv);
    return false;
}

ssize_t secure_receive(struct connection *connection, void *data, size_t size) {
    struct secure *secure = connection->secure;
    size_t got = 0;
    call_begin(secure);
    while (got < size && !secure->failed && !secure->ended) {
        ssize_t rv = gnutls_record_recv(secure->session, (char *)data + got, size - got);
        if (rv > 0) got += (size_t)rv;
        else if (!go_on(secure, rv)) break;
    }
    call_end(secure);
    (void)flush(connection); /* alerts, answers to new keys; what is kept goes with the next bytes */
    if (got) return (ssize_t)got;
    if (secure->failed) {
        errno = ECONNRESET;
        return -1;
    }
    if (secure->ended) return 0; /* by its goodbye, or without one: a body has its length */
    errno = EAGAIN;
    return -1;
}

/* A part of the answer's bytes as they lie in `parts`, gathered where they lie in several. */
static struct slice gather(struct connection *connection, const struct iovec *parts, size_t count, size_t from,
                           size_t most) {
    struct secure_room *room = room_of(connection->worker);
    size_t size = 0;
    for (size_t i = 0; i < count && size < most; i++) {
        if (from >= parts[i].iov_len) {
            from -= parts[i].iov_len;
            continue;
        }
        size_t here = parts[i].iov_len - from, wanted = most - size;
        const char *at = (const char *)parts[i].iov_base + from;
        if (size == 0 && (here >= wanted || i == count - 1)) return slice_make(at, here < wanted ? here : wanted);
        if (here > wanted) here = wanted;
        memcpy(room->plain + size, at, here);
        size += here;
        from = 0;
    }
    return slice_make(room->plain, size);
}

static bool encrypt(struct secure *secure, struct slice bytes) {
    while (bytes.size) {
        ssize_t done =
            gnutls_record_send(secure->session, bytes.data, bytes.size < RECORD_MOST ? bytes.size : RECORD_MOST);
        if (done == GNUTLS_E_INTERRUPTED) continue;
        if (done <= 0) return false;
        bytes = slice_make(bytes.data + done, bytes.size - (size_t)done);
    }
    return true;
}

static ssize_t cut_off(struct secure *secure, size_t done) {
    secure->failed = true;
    errno = ECONNRESET;
    return done ? (ssize_t)done : -1;
}

ssize_t secure_send(struct connection *connection, const struct iovec *parts, size_t count) {
    struct secure *secure = connection->secure;
    size_t total = 0;
    for (size_t i = 0; i < count; i++) total += parts[i].iov_len;
    if (secure->failed || secure->said_goodbye) {
        errno = EPIPE;
        return -1;
    }
    if (secure->out.size && !flush(connection)) return errno == EAGAIN ? -1 : cut_off(secure, 0);
    size_t done = secure->owed < total ? secure->owed : total;
    secure->owed -= done;
    while (done < total) {
        struct slice step = gather(connection, parts, count, done, SEND_STEP);
        if (!encrypt(secure, step)) return cut_off(secure, done);
        if (!flush(connection)) {
            if (errno != EAGAIN) return cut_off(secure, done);
            secure->owed = step.size;
            errno = EAGAIN;
            return done ? (ssize_t)done : -1;
        }
        done += step.size;
    }
    return (ssize_t)done;
}

ssize_t secure_send_file(struct connection *connection, int from, off64_t *offset, size_t size) {
    char *bytes = mem_alloc(SEND_STEP); /* the same bytes again, after EAGAIN */
    size_t done = 0;
    ssize_t sent = 0;
    while (done < size) {
        size_t step = size - done < SEND_STEP ? size - done : SEND_STEP;
        ssize_t got = pread64(from, bytes, step, *offset);
        struct iovec part = {bytes, got > 0 ? (size_t)got : 0};
        sent = got > 0 ? secure_send(connection, &part, 1) : got;
        if (sent <= 0) break;
        *offset += sent;
        done += (size_t)sent;
        connection->worker->progress++;
        if (sent < got) break;
    }
    free(bytes);
    return done ? (ssize_t)done : sent;
}

bool secure_ended(const struct connection *connection) { return connection->secure && connection->secure->ended; }

bool secure_unread(const struct connection *connection) {
    const struct secure *secure = connection->secure;
    return secure && (secure->in.size || gnutls_record_check_pending(secure->session));
}

bool secure_silent(const struct connection *connection) {
    const struct secure *secure = connection->secure;
    return secure->failed || secure->said_goodbye || secure->out.size || secure->owed;
}

void secure_goodbye(struct connection *connection) {
    struct secure *secure = connection->secure;
    if (!secure || secure_silent(connection)) return;
    secure->said_goodbye = true;
    gnutls_bye(secure->session, GNUTLS_SHUT_WR);
    (void)flush(connection); /* a client that does not read learns of the end by the socket's */
}

/* ---- plain or TLS ---- */

ssize_t connection_say(struct connection *connection, const char *data, size_t size) {
    struct iovec part = {(void *)(uintptr_t)data, size};
    connection->spoke = true;
    if (!connection->secure) return plain_send(connection->fd, data, size);
    return secure_send(connection, &part, 1);
}

/* A client that speaks TLS to a port of plain HTTP would not understand an answer, so the connection just ends. */
static bool begins_tls(const struct connection *connection, const char *bytes, ssize_t size) {
    return !connection->heard && !connection->completed_run && size >= 3 &&
           tls_looks_like(slice_make(bytes, (size_t)size));
}

ssize_t connection_receive(struct connection *connection, void *data, size_t size, int flags) {
    ssize_t got =
        connection->secure ? secure_receive(connection, data, size) : plain_receive(connection->fd, data, size, flags);
    if (got <= 0) return got;
    if (!connection->secure && begins_tls(connection, data, got)) {
        log_debug("http", "a client speaks TLS to a port without: closed");
        connection->hung_up = true;
        connection_linger(connection);
        errno = ECONNRESET;
        return -1;
    }
    connection->heard = true;
    return got;
}

void connection_linger(struct connection *connection) {
    secure_goodbye(connection);
    linger(connection->worker, connection->fd);
}
