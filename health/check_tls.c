#include "health/check_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "health/check_trust.h"

#define PROTOCOL "h2" /* RFC 9113, section 3.2 */

struct tls {
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
    char *host;
    bool skip_verify, ready;
    bool starved;       /* during a call: it asked for more than has come */
    struct slice in;    /* not read yet; empty between calls */
    struct buffer *out; /* during a call */
};

static ssize_t pull(gnutls_transport_ptr_t pointer, void *to, size_t size) {
    struct tls *tls = pointer;
    if (tls->in.size == 0) {
        tls->starved = true;
        gnutls_transport_set_errno(tls->session, EAGAIN);
        return -1;
    }
    if (size > tls->in.size) size = tls->in.size;
    memcpy(to, tls->in.data, size);
    tls->in = slice_make(tls->in.data + size, tls->in.size - size);
    return (ssize_t)size;
}

static ssize_t push(gnutls_transport_ptr_t pointer, const void *from, size_t size) {
    struct tls *tls = pointer;
    if (tls->out) buffer_append(tls->out, from, size);
    return (ssize_t)size;
}

/* Never waited for: there is something to read, or pull says EAGAIN. */
static int pull_timeout(gnutls_transport_ptr_t pointer, unsigned milliseconds) {
    struct tls *tls = pointer;
    (void)milliseconds;
    return tls->in.size > 0;
}

static bool is_address(const char *host) {
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

struct tls *tls_new(const char *host, bool skip_verify) {
    static const gnutls_datum_t protocol = {(unsigned char *)(uintptr_t)PROTOCOL, sizeof PROTOCOL - 1};
    struct tls *tls = mem_zalloc(sizeof *tls);
    tls->host = mem_strdup(host);
    tls->skip_verify = skip_verify;
    CHECK(gnutls_init(&tls->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) == 0);
    CHECK(gnutls_certificate_allocate_credentials(&tls->credentials) == 0);
    CHECK(gnutls_credentials_set(tls->session, GNUTLS_CRD_CERTIFICATE, tls->credentials) == 0);
    CHECK(gnutls_set_default_priority_append(tls->session, "-VERS-TLS1.0:-VERS-TLS1.1", NULL, 0) == 0);
    CHECK(gnutls_alpn_set_protocols(tls->session, &protocol, 1, 0) == 0);
    if (!is_address(host)) (void)gnutls_server_name_set(tls->session, GNUTLS_NAME_DNS, host, strlen(host));
    gnutls_transport_set_ptr(tls->session, tls);
    gnutls_transport_set_pull_function(tls->session, pull);
    gnutls_transport_set_push_function(tls->session, push);
    gnutls_transport_set_pull_timeout_function(tls->session, pull_timeout);
    return tls;
}

void tls_free(struct tls *tls) {
    if (!tls) return;
    gnutls_deinit(tls->session);
    gnutls_certificate_free_credentials(tls->credentials);
    free(tls->host);
    free(tls);
}

static bool waits(int result) { return result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED; }

/* GnuTLS says "again" after a session ticket or an update of keys too, with more to read: it waits only once it has
 * asked for bytes that are not there. */
static bool waits_for_more(const struct tls *tls, int result) { return waits(result) && tls->starved; }

static int failed(struct tls *tls, int error, struct fault *fault) {
    if (error == GNUTLS_E_FATAL_ALERT_RECEIVED) {
        const char *alert = gnutls_alert_get_name(gnutls_alert_get(tls->session));
        return fault_set(fault, CO_IO, "tls: the server says \"%s\"", alert ? alert : "unknown alert");
    }
    return fault_set(fault, CO_IO, "tls: %s", gnutls_strerror(error));
}

/* Servers that do not know ALPN choose nothing, and may yet speak HTTP/2. */
static int check_protocol(struct tls *tls, struct fault *fault) {
    gnutls_datum_t chosen;
    if (gnutls_alpn_get_selected_protocol(tls->session, &chosen) != 0) return CO_OK;
    if (slice_is(slice_make(chosen.data, chosen.size), PROTOCOL)) return CO_OK;
    return fault_set(fault, CO_DENIED, "tls: the server chose the protocol \"%.*s\", not %s",
                     (int)(chosen.size > 40 ? 40 : chosen.size), (const char *)chosen.data, PROTOCOL);
}

static int handshake(struct tls *tls, struct fault *fault) {
    int result;
    do result = gnutls_handshake(tls->session);
    while (result < 0 && !gnutls_error_is_fatal(result) && !waits_for_more(tls, result));
    if (waits(result)) return CO_OK;
    if (result < 0) return failed(tls, result, fault);
    if (!tls->skip_verify && !trust_verify(tls->session, tls->host, fault)) return fault->code;
    int rv = check_protocol(tls, fault);
    tls->ready = rv == CO_OK;
    return rv;
}

static int receive(struct tls *tls, struct buffer *plain, struct fault *fault) {
    char block[4096];
    for (;;) {
        ssize_t got = gnutls_record_recv(tls->session, block, sizeof block);
        if (got > 0) {
            buffer_append(plain, block, (size_t)got);
        } else if (got == 0) {
            return CO_CLOSED;
        } else if (waits_for_more(tls, (int)got)) {
            return CO_OK;
        } else if (gnutls_error_is_fatal((int)got) || got == GNUTLS_E_REHANDSHAKE) {
            return failed(tls, (int)got, fault);
        } /* else a warning: on with what follows */
    }
}

int tls_receive(struct tls *tls, struct slice came, struct buffer *plain, struct buffer *out, struct fault *fault) {
    tls->in = came;
    tls->starved = false;
    tls->out = out;
    int rv = tls->ready ? CO_OK : handshake(tls, fault);
    if (rv == CO_OK && tls->ready) rv = receive(tls, plain, fault);
    tls->in = slice_make(NULL, 0);
    tls->out = NULL;
    return rv;
}

bool tls_ready(const struct tls *tls) { return tls->ready; }

int tls_send(struct tls *tls, struct slice plain, struct buffer *out, struct fault *fault) {
    int rv = CO_OK;
    tls->out = out;
    while (plain.size > 0 && rv == CO_OK) {
        ssize_t sent = gnutls_record_send(tls->session, plain.data, plain.size);
        if (sent > 0) {
            plain = slice_make(plain.data + sent, plain.size - (size_t)sent);
        } else if (!waits((int)sent)) { /* pushing never waits */
            rv = failed(tls, (int)sent, fault);
        }
    }
    tls->out = NULL;
    return rv;
}

void tls_goodbye(struct tls *tls, struct buffer *out) {
    tls->out = out;
    if (tls->ready) (void)gnutls_bye(tls->session, GNUTLS_SHUT_WR);
    tls->out = NULL;
}
