#include "tls/session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "tls/psk.h"

#define WHY_SIZE      256
#define CHAIN_MAX     16
#define PROTOCOLS_MAX 8

struct tls_session {
    gnutls_session_t tls;
    struct tls_context *context;
    struct tls_session_config config; /* its pointers are this session's own */
    enum tls_state state;
    const char *in; /* the caller's bytes, during tls_session_feed */
    size_t in_left;
    struct buffer out;
    struct tls_certificate *peer;
    char *protocol;
    gnutls_psk_client_credentials_t psk_client;
    gnutls_psk_server_credentials_t psk_server;
    bool judged;      /* this time, not in the session that it resumes */
    bool by_psk;      /* valid when it is open */
    bool psk_unknown; /* the client named a key that the context does not have */
    bool psk_known;
    bool heard, strange;               /* the first bytes have come; they are no record */
    gnutls_alert_description_t refuse; /* the alert for `why`; 0: as GnuTLS chooses */
    char why[WHY_SIZE];
};

/* -- bytes ---------------------------------------------------------------------------------------------------------- */
static ssize_t push(gnutls_transport_ptr_t transport, const void *data, size_t size) {
    struct tls_session *session = transport;
    buffer_append(&session->out, data, size);
    return (ssize_t)size;
}

static ssize_t pull(gnutls_transport_ptr_t transport, void *data, size_t size) {
    struct tls_session *session = transport;
    if (session->in_left == 0) {
        gnutls_transport_set_errno(session->tls, EAGAIN);
        return -1;
    }
    if (size > session->in_left) size = session->in_left;
    memcpy(data, session->in, size);
    session->in += size, session->in_left -= size;
    return (ssize_t)size;
}

static int pull_ready(gnutls_transport_ptr_t transport, unsigned ms) {
    (void)ms;
    return ((struct tls_session *)transport)->in_left > 0;
}

/* -- the peer's certificate ----------------------------------------------------------------------------------------- */
static int refuse(struct tls_session *session, gnutls_alert_description_t alert, const char *why) {
    if (session->why[0]) return CO_DENIED;
    snprintf(session->why, sizeof session->why, "%s", why);
    session->refuse = alert;
    return CO_DENIED;
}

static gnutls_alert_description_t alert_of(enum tls_verdict verdict) {
    switch (verdict) {
        case TLS_UNKNOWN_CA: return GNUTLS_A_UNKNOWN_CA;
        case TLS_EXPIRED: return GNUTLS_A_CERTIFICATE_EXPIRED;
        case TLS_WRONG_USE: return GNUTLS_A_UNSUPPORTED_CERTIFICATE;
        case TLS_NOT_YET:
        case TLS_TRUSTED:
        case TLS_UNREADABLE: break;
    }
    return GNUTLS_A_BAD_CERTIFICATE;
}

/* The certificate of the chain that has the pin, as PEM; the last one that has it. A node's own counts only where it is all
 * that was shown. */
static bool pinned_one(const struct tls_session *session, const struct slice *chain, size_t count,
                       gnutls_datum_t *pem) {
    for (size_t i = count; i-- > (count > 1 ? 1 : 0);) {
        struct tls_certificate certificate;
        if (tls_certificate_read(chain[i], &certificate, NULL) != CO_OK) continue;
        if (memcmp(certificate.pin, session->config.pin, TLS_PIN_SIZE) != 0) continue;
        gnutls_datum_t der = {(void *)chain[i].data, (unsigned)chain[i].size};
        CHECK(gnutls_pem_base64_encode2("CERTIFICATE", &der, pem) == 0);
        return true;
    }
    return false;
}

static int judge_chain(struct tls_session *session, const struct slice *chain, size_t count) {
    const struct tls_session_config *config = &session->config;
    char why[160] = "";
    gnutls_datum_t pinned = {0};
    struct tls_rules rules = {.trust = tls_context_trust(session->context),
                              .now_s = clock_wall_ns() / 1000000000,
                              .grace_s = config->grace_s,
                              .as_server = !config->server};
    if (config->peer == TLS_PEER_PINNED) {
        if (!pinned_one(session, chain, count, &pinned))
            return refuse(session, GNUTLS_A_UNKNOWN_CA, "its CA is not the one with the expected fingerprint");
        rules.trust = NULL, rules.trusted = slice_make(pinned.data, pinned.size);
    }
    if (!session->peer) session->peer = mem_zalloc(sizeof *session->peer);
    enum tls_verdict verdict = tls_judge(&rules, chain, count, session->peer, why);
    gnutls_free(pinned.data);
    session->judged = true;
    if (verdict != TLS_TRUSTED) return refuse(session, alert_of(verdict), why);
    if (config->host && config->peer != TLS_PEER_PINNED && !tls_certificate_names(chain[0], config->host)) {
        snprintf(why, sizeof why, "its certificate is not for \"%.100s\"", config->host);
        return refuse(session, GNUTLS_A_BAD_CERTIFICATE, why);
    }
    return CO_OK;
}

/* The one place that judges who the other side is. */
static int judge(struct tls_session *session) {
    const struct tls_session_config *config = &session->config;
    if (config->psk) return refuse(session, GNUTLS_A_UNKNOWN_PSK_IDENTITY, "it does not know the shared key (encrypt)");
    if (config->peer == TLS_PEER_UNASKED) return CO_OK;
    unsigned count = 0;
    const gnutls_datum_t *shown = gnutls_certificate_get_peers(session->tls, &count);
    if (!shown || count == 0) {
        if (config->peer == TLS_PEER_ASKED) return CO_OK;
        return refuse(session, GNUTLS_A_CERTIFICATE_REQUIRED, "it shows no certificate");
    }
    if (count > CHAIN_MAX) return refuse(session, GNUTLS_A_BAD_CERTIFICATE, "its chain of certificates is too long");
    struct slice chain[CHAIN_MAX];
    for (unsigned i = 0; i < count; i++) chain[i] = slice_make(shown[i].data, shown[i].size);
    return judge_chain(session, chain, count);
}

static int verify(gnutls_session_t tls) {
    return judge(gnutls_session_get_ptr(tls)) == CO_OK ? 0 : GNUTLS_E_CERTIFICATE_ERROR;
}

/* -- shared keys ---------------------------------------------------------------------------------------------------- */
static int find_psk(gnutls_session_t tls, const gnutls_datum_t *identity, gnutls_datum_t *key) {
    struct tls_session *session = gnutls_session_get_ptr(tls);
    const struct slice *found = tls_psk_find(session->context, slice_make(identity->data, identity->size));
    session->psk_unknown = !found, session->psk_known = found;
    if (!found) return 1; /* GnuTLS goes on with random bytes, which do not fit */
    key->data = gnutls_malloc(found->size);
    if (!key->data) return -1;
    memcpy(key->data, found->data, found->size);
    key->size = (unsigned)found->size;
    return 0;
}

static int set_psk(struct tls_session *session) {
    const struct slice *keys;
    size_t count = tls_context_psk(session->context, &keys);
    if (session->config.server && count > 0) {
        int error = gnutls_psk_allocate_server_credentials(&session->psk_server);
        if (error != 0) return error;
        gnutls_psk_set_server_credentials_function2(session->psk_server, find_psk);
        return gnutls_credentials_set(session->tls, GNUTLS_CRD_PSK, session->psk_server);
    }
    if (!session->config.psk) return 0;
    if (count == 0) {
        refuse(session, 0, "this side has no shared key (encrypt)");
        return GNUTLS_E_INSUFFICIENT_CREDENTIALS;
    }
    char name[TLS_PSK_IDENTITY_SIZE];
    tls_psk_identity(keys[0], name);
    gnutls_datum_t identity = {(void *)name, (unsigned)strlen(name)};
    gnutls_datum_t key = {(void *)keys[0].data, (unsigned)keys[0].size};
    int error = gnutls_psk_allocate_client_credentials(&session->psk_client);
    if (error == 0)
        error = gnutls_psk_set_client_credentials2(session->psk_client, &identity, &key, GNUTLS_PSK_KEY_RAW);
    return error ? error : gnutls_credentials_set(session->tls, GNUTLS_CRD_PSK, session->psk_client);
}

/* A resumed session is as good as its key is today. */
static int judge_psk(struct tls_session *session) {
    if (!session->config.server) {
        session->by_psk = session->config.psk && gnutls_auth_get_type(session->tls) == GNUTLS_CRD_PSK;
        return session->config.psk && !session->by_psk ? judge(session) : CO_OK;
    }
    const char *identity = session->psk_server ? gnutls_psk_server_get_username(session->tls) : NULL;
    session->by_psk = identity;
    if (identity && !tls_psk_find(session->context, slice_text(identity)))
        return refuse(session, GNUTLS_A_UNKNOWN_PSK_IDENTITY, "its shared key is none of this side's any more");
    return CO_OK;
}

/* -- the handshake -------------------------------------------------------------------------------------------------- */
static void note_protocol(struct tls_session *session) {
    gnutls_datum_t chosen;
    free(session->protocol);
    session->protocol = NULL;
    if (gnutls_alpn_get_selected_protocol(session->tls, &chosen) == 0)
        session->protocol = mem_strndup((const char *)chosen.data, chosen.size);
}

static int require_protocol(struct tls_session *session) {
    if (session->protocol || !session->config.protocols || session->config.protocol_optional) return CO_OK;
    return refuse(session, GNUTLS_A_NO_APPLICATION_PROTOCOL, "there is no protocol in common (ALPN)");
}

static void ask_certificate(struct tls_session *session) {
    enum tls_peer_rule rule = session->config.peer;
    CHECK(rule != TLS_PEER_PINNED);
    gnutls_certificate_server_set_request(session->tls, rule == TLS_PEER_REQUIRED ? GNUTLS_CERT_REQUIRE
                                                        : rule == TLS_PEER_ASKED  ? GNUTLS_CERT_REQUEST
                                                                                  : GNUTLS_CERT_IGNORE);
}

/* GnuTLS 3.7 goes on with a hello of TLS 1.2 where only 1.3 is allowed, and finds no cipher suite for it. */
static bool takes_version(const struct tls_session *session) {
    const unsigned *allowed;
    int count = gnutls_priority_protocol_list(tls_context_priorities(session->context), &allowed);
    for (int i = 0; i < count; i++)
        if (allowed[i] == (unsigned)gnutls_protocol_get_version(session->tls)) return true;
    return false;
}

static int hello_came(gnutls_session_t tls) {
    struct tls_session *session = gnutls_session_get_ptr(tls);
    if (!takes_version(session)) return GNUTLS_E_UNSUPPORTED_VERSION_PACKET;
    note_protocol(session);
    if (require_protocol(session) != CO_OK) return GNUTLS_E_NO_APPLICATION_PROTOCOL;
    if (session->config.chosen) session->config.chosen(session->config.data, session->protocol, &session->config);
    ask_certificate(session);
    return 0;
}

/* In the words of somebody who reads a log of this side: "it" is the other side. */
static void explain(struct tls_session *session, int error) {
    char text[WHY_SIZE];
    const char *why = gnutls_strerror(error);
    if (error == GNUTLS_E_FATAL_ALERT_RECEIVED) {
        gnutls_alert_description_t told = gnutls_alert_get(session->tls);
        const char *alert = gnutls_alert_get_name(told);
        bool of_key = told == GNUTLS_A_ILLEGAL_PARAMETER || told == GNUTLS_A_UNKNOWN_PSK_IDENTITY;
        if (session->psk_client && of_key) alert = "it does not have the shared key (encrypt) of this side";
        snprintf(text, sizeof text, "it refuses this side: %s", alert ? alert : "no reason known");
        why = text;
    } else if (session->psk_unknown) {
        why = "its shared key (encrypt) is none of this side's";
    } else if (session->psk_known && error == GNUTLS_E_RECEIVED_ILLEGAL_PARAMETER) {
        why = "it does not have the shared key (encrypt) that it names";
    } else if (error == GNUTLS_E_UNSUPPORTED_VERSION_PACKET || error == GNUTLS_E_UNEXPECTED_PACKET_LENGTH ||
               error == GNUTLS_E_UNEXPECTED_PACKET || error == GNUTLS_E_RECORD_OVERFLOW) {
        why = session->strange ? "it does not speak TLS" : "it offers no version of TLS that this side takes";
    } else if (error == GNUTLS_E_NO_APPLICATION_PROTOCOL) {
        why = "there is no protocol in common (ALPN)";
    } else if (error == GNUTLS_E_CERTIFICATE_REQUIRED || error == GNUTLS_E_NO_CERTIFICATE_FOUND) {
        why = "it shows no certificate";
    } else if (error == GNUTLS_E_DECRYPTION_FAILED) {
        why = "a record was changed on its way";
    } else if (error == GNUTLS_E_REHANDSHAKE) {
        why = "it asks to negotiate anew";
    } else if (error == GNUTLS_E_NO_CIPHER_SUITES || error == GNUTLS_E_INSUFFICIENT_CREDENTIALS) {
        why = "there is no cipher suite in common, or no certificate to show";
    }
    (void)refuse(session, 0, why);
}

static void fail(struct tls_session *session, int error) {
    explain(session, error);
    session->state = TLS_FAILED;
    if (error == GNUTLS_E_FATAL_ALERT_RECEIVED) return;
    if (session->refuse) gnutls_alert_send(session->tls, GNUTLS_AL_FATAL, session->refuse);
    else if (error == GNUTLS_E_REHANDSHAKE)
        gnutls_alert_send(session->tls, GNUTLS_AL_WARNING, GNUTLS_A_NO_RENEGOTIATION);
    else if (gnutls_error_is_fatal(error)) gnutls_alert_send_appropriate(session->tls, error);
}

/* Whatever has to hold of an open session, held against this one; a resumed one has passed no verify function. */
static int finish(struct tls_session *session) {
    note_protocol(session);
    if (require_protocol(session) != CO_OK || judge_psk(session) != CO_OK) return CO_DENIED;
    return session->judged || session->by_psk ? CO_OK : judge(session);
}

static void shake(struct tls_session *session) {
    int error;
    do error = gnutls_handshake(session->tls);
    while (error == GNUTLS_E_INTERRUPTED || error == GNUTLS_E_WARNING_ALERT_RECEIVED ||
           (error == GNUTLS_E_AGAIN && session->in_left > 0));
    if (error == GNUTLS_E_AGAIN) return;
    if (error != 0) fail(session, error);
    else if (finish(session) != CO_OK) fail(session, GNUTLS_E_CERTIFICATE_ERROR);
    else session->state = TLS_OPEN;
}

/* -- making one ----------------------------------------------------------------------------------------------------- */
static void copy_config(struct tls_session *session, const struct tls_session_config *config) {
    session->config = *config;
    session->config.ticket = (struct slice){0};
    session->config.host = config->host ? mem_strdup(config->host) : NULL;
    if (!config->protocols) return;
    const char **protocols = mem_zalloc((PROTOCOLS_MAX + 1) * sizeof *protocols);
    for (size_t i = 0; config->protocols[i]; i++) {
        CHECK(i < PROTOCOLS_MAX);
        protocols[i] = mem_strdup(config->protocols[i]);
    }
    session->config.protocols = protocols;
}

static bool is_ip(const char *host) {
    uint8_t bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static int set_protocols(struct tls_session *session) {
    gnutls_datum_t protocols[PROTOCOLS_MAX];
    unsigned count = 0;
    for (const char *const *at = session->config.protocols; at && *at; at++)
        protocols[count++] = (gnutls_datum_t){(void *)*at, (unsigned)strlen(*at)};
    unsigned flags = GNUTLS_ALPN_MANDATORY | (session->config.server ? GNUTLS_ALPN_SERVER_PRECEDENCE : 0);
    return count > 0 ? gnutls_alpn_set_protocols(session->tls, protocols, count, flags) : 0;
}

static int set_up_server(struct tls_session *session) {
    const gnutls_datum_t *key = tls_context_ticket_key(session->context);
    int error = key ? gnutls_session_ticket_enable_server(session->tls, key) : 0;
    gnutls_handshake_set_post_client_hello_function(session->tls, hello_came);
    /* A list of the CAs would make a client that has a certificate of another one show none. */
    gnutls_certificate_send_x509_rdn_sequence(session->tls, 1);
    return error;
}

static int set_up_client(struct tls_session *session, struct slice ticket) {
    const char *host = session->config.host;
    int error = host && !is_ip(host) ? gnutls_server_name_set(session->tls, GNUTLS_NAME_DNS, host, strlen(host)) : 0;
    /* A ticket that GnuTLS does not read is a full handshake. */
    if (ticket.size > 0) (void)gnutls_session_set_data(session->tls, ticket.data, ticket.size);
    return error;
}

static int set_up(struct tls_session *session, struct slice ticket) {
    const struct tls_session_config *config = &session->config;
    bool tickets = config->server ? tls_context_ticket_key(session->context) != NULL : config->resumable;
    unsigned flags = (config->server ? GNUTLS_SERVER : GNUTLS_CLIENT | GNUTLS_KEY_SHARE_TOP) | GNUTLS_NONBLOCK |
                     (tickets ? 0 : GNUTLS_NO_TICKETS);
    int error = gnutls_init(&session->tls, flags);
    if (error != 0) {
        session->tls = NULL;
        return error;
    }
    gnutls_session_set_ptr(session->tls, session);
    gnutls_transport_set_ptr(session->tls, session);
    gnutls_transport_set_push_function(session->tls, push);
    gnutls_transport_set_pull_function(session->tls, pull);
    gnutls_transport_set_pull_timeout_function(session->tls, pull_ready);
    gnutls_handshake_set_timeout(session->tls, GNUTLS_INDEFINITE_TIMEOUT);
    gnutls_session_set_verify_function(session->tls, verify);
    error = gnutls_priority_set(session->tls, tls_context_priorities(session->context));
    if (error == 0)
        error = gnutls_credentials_set(
            session->tls, GNUTLS_CRD_CERTIFICATE,
            config->server ? tls_context_credentials(session->context) : tls_context_dials(session->context));
    if (error == 0) error = set_psk(session);
    if (error == 0) error = set_protocols(session);
    if (error == 0) error = config->server ? set_up_server(session) : set_up_client(session, ticket);
    return error;
}

struct tls_session *tls_session_new(struct tls_context *context, const struct tls_session_config *config) {
    struct tls_session *session = mem_zalloc(sizeof *session);
    session->context = tls_context_ref(context);
    copy_config(session, config);
    int error = set_up(session, config->ticket);
    if (error != 0) explain(session, error), session->state = TLS_FAILED;
    else if (!config->server) shake(session);
    return session;
}

void tls_session_free(struct tls_session *session) {
    if (!session) return;
    if (session->tls) gnutls_deinit(session->tls);
    if (session->psk_client) gnutls_psk_free_client_credentials(session->psk_client);
    if (session->psk_server) gnutls_psk_free_server_credentials(session->psk_server);
    tls_context_unref(session->context);
    for (const char *const *at = session->config.protocols; at && *at; at++) free((char *)*at);
    free((void *)session->config.protocols);
    free((char *)session->config.host);
    buffer_free(&session->out);
    free(session->peer);
    free(session->protocol);
    free(session);
}

/* -- an open one ---------------------------------------------------------------------------------------------------- */
static void receive(struct tls_session *session, struct buffer *plain) {
    while (session->state == TLS_OPEN) {
        buffer_reserve(plain, TLS_RECORD_MAX);
        ssize_t size = gnutls_record_recv(session->tls, plain->data + plain->size, TLS_RECORD_MAX);
        if (size > 0) plain->size += (size_t)size;
        else if (size == 0) session->state = TLS_ENDED;
        else if (size == GNUTLS_E_AGAIN && session->in_left == 0) return;
        else if (size != GNUTLS_E_AGAIN && size != GNUTLS_E_INTERRUPTED && size != GNUTLS_E_WARNING_ALERT_RECEIVED)
            fail(session, (int)size);
    }
}

enum tls_state tls_session_feed(struct tls_session *session, struct slice bytes, struct buffer *plain) {
    session->in = bytes.data, session->in_left = bytes.size;
    if (!session->heard && bytes.size > 0)
        session->heard = true, session->strange = (uint8_t)bytes.data[0] < 20 || (uint8_t)bytes.data[0] > 23;
    if (session->state == TLS_HANDSHAKE && bytes.size > 0) shake(session);
    if (session->state == TLS_OPEN) receive(session, plain);
    session->in = NULL, session->in_left = 0;
    return session->state;
}

void tls_session_write(struct tls_session *session, struct slice plain) {
    CHECK(session->state == TLS_OPEN || session->state == TLS_ENDED);
    buffer_reserve(&session->out, plain.size + (plain.size / TLS_RECORD_MAX + 1) * TLS_RECORD_OVERHEAD);
    while (plain.size > 0) {
        size_t part = plain.size < TLS_RECORD_MAX ? plain.size : TLS_RECORD_MAX;
        ssize_t size = gnutls_record_send(session->tls, plain.data, part);
        if (size == GNUTLS_E_AGAIN || size == GNUTLS_E_INTERRUPTED) continue;
        if (size < 0) {
            fail(session, (int)size);
            return;
        }
        plain.data += size, plain.size -= (size_t)size;
    }
}

void tls_session_goodbye(struct tls_session *session) {
    if (session->state == TLS_OPEN || session->state == TLS_ENDED) (void)gnutls_bye(session->tls, GNUTLS_SHUT_WR);
}

struct buffer *tls_session_out(struct tls_session *session) {
    return &session->out;
}
enum tls_state tls_session_state(const struct tls_session *session) { return session->state; }
const char *tls_session_why(const struct tls_session *session) { return session->why; }
const struct tls_certificate *tls_session_peer(const struct tls_session *session) { return session->peer; }
const char *tls_session_protocol(const struct tls_session *session) { return session->protocol; }
bool tls_session_by_psk(const struct tls_session *session) { return session->by_psk; }
bool tls_session_resumed(const struct tls_session *session) {
    return session->tls && gnutls_session_is_resumed(session->tls);
}

struct slice tls_session_peer_chain(const struct tls_session *session, size_t index) {
    unsigned count = 0;
    const gnutls_datum_t *shown = session->tls ? gnutls_certificate_get_peers(session->tls, &count) : NULL;
    return shown && index < count ? slice_make(shown[index].data, shown[index].size) : (struct slice){0};
}

struct slice tls_session_peer_der(const struct tls_session *session) {
    return tls_session_peer_chain(session, 0);
}

int tls_session_ticket(const struct tls_session *session, struct buffer *ticket) {
    if (!session->tls || !(gnutls_session_get_flags(session->tls) & GNUTLS_SFLAGS_SESSION_TICKET)) return CO_NOTFOUND;
    gnutls_datum_t data;
    if (gnutls_session_get_data2(session->tls, &data) != 0) return CO_NOTFOUND;
    buffer_append(ticket, data.data, data.size);
    gnutls_memset(data.data, 0, data.size);
    gnutls_free(data.data);
    return CO_OK;
}

int tls_session_export(struct tls_session *session, const char *label, uint8_t bytes[32]) {
    if (session->state != TLS_OPEN) return CO_INVALID;
    int error = gnutls_prf_rfc5705(session->tls, strlen(label), label, 0, NULL, 32, (char *)bytes);
    return error == 0 ? CO_OK : CO_UNSUPPORTED;
}

bool tls_looks_like(struct slice bytes) {
    const uint8_t *at = (const uint8_t *)bytes.data;
    return (bytes.size < 1 || at[0] == 22) && (bytes.size < 2 || at[1] == 3) &&
           (bytes.size < 3 || (at[2] >= 1 && at[2] <= 3));
}

bool tls_record_whole(struct slice bytes) {
    const uint8_t *at = (const uint8_t *)bytes.data;
    bool strange = (bytes.size >= 1 && (at[0] < 20 || at[0] > 23)) || (bytes.size >= 2 && at[1] != 3);
    if (strange || bytes.size < 5) return strange;
    size_t size = get_be16(at + 3);
    return size > TLS_RECORD_MAX + 256 || bytes.size >= 5 + size;
}
