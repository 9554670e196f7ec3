/* One encrypted connection, without its socket: bytes from the network go in by tls_session_feed, bytes for the network
 * come out of tls_session_out. It never blocks, reads no clock but the wall's (for certificates), and holds no thread.
 * The caller moves bytes, bounds time and bounds how many sessions shake hands at once. One thread at a time.
 *
 * Certificates are judged by tls_judge (tls/certificate.h), in one place, with the rules below, also when a session is
 * resumed: a ticket keeps what the peer showed, and no verdict. A session with a shared key (PSK, with ECDHE; TLS 1.3
 * only) shows and asks none. The identity that it names is made of a hash of the key, because a server with several
 * keys has to know which one is meant.
 *
 * In TLS 1.3 a client's handshake is over before the server has judged the client's certificate. A refusal then comes as
 * TLS_FAILED at a later tls_session_feed. */
#ifndef COORD_TLS_SESSION_H
#define COORD_TLS_SESSION_H

#include "tls/certificate.h"
#include "tls/context.h"

enum tls_peer_rule {
    TLS_PEER_UNASKED,  /* shows no certificate, or is not judged */
    TLS_PEER_ASKED,    /* may show one; a wrong one ends the handshake */
    TLS_PEER_REQUIRED, /* has to show a trusted one */
    /* clients: the chain's last certificate, or a CA it comes from, has the pin. The chain is judged by this CA alone,
     * its time included; neither the context's CAs nor `host` count */
    TLS_PEER_PINNED,
};

struct tls_session_config {
    bool server;
    enum tls_peer_rule peer;
    int64_t grace_s;     /* an expired certificate of the peer is taken for so long (renewal) */
    const char *host;    /* clients: the name or IP that the certificate must have; NULL: any. Sent as SNI if a name */
    bool psk;            /* clients: by the shared key, and only by it. Servers take both when the context has keys */
    bool resumable;      /* clients: take a ticket, tls_session_ticket */
    struct slice ticket; /* clients: of an earlier session with this server or one of its kind; empty: none */
    const char *const
        *protocols;            /* ALPN, best first, NULL-terminated; NULL: none. Both sides must have one in common */
    bool protocol_optional;    /* servers: a client that offers no protocol at all is taken, too */
    uint8_t pin[TLS_PIN_SIZE]; /* TLS_PEER_PINNED */
    /* Servers with one port for several purposes: called with the chosen protocol (NULL: none) before the peer is asked
     * for a certificate; may change peer and grace_s of the copy that it is given. It may be called twice. NULL: never. */
    void (*chosen)(void *data, const char *protocol, struct tls_session_config *config);
    void *data;
};

enum tls_state {
    TLS_HANDSHAKE, /* feed and send on */
    TLS_OPEN,
    TLS_ENDED,  /* the other side has said goodbye (close_notify) */
    TLS_FAILED, /* tls_session_why says why; what is in tls_session_out (an alert) should still be sent */
};

struct tls_session;
/* Takes a reference of the context, and copies what the config points to, except `data`. Never NULL; a session that cannot
 * begin has failed. */
struct tls_session *tls_session_new(struct tls_context *context, const struct tls_session_config *config);
void tls_session_free(struct tls_session *session); /* NULL: nothing */

/* Takes bytes from the network (all of them) and appends what they decrypt to, to `plain`. Also what a session had
 * decrypted before it ended or failed is there. A session that has ended or failed takes bytes and ignores them. */
enum tls_state tls_session_feed(struct tls_session *session, struct slice bytes, struct buffer *plain);
/* Encrypts. Only when TLS_OPEN, or TLS_ENDED: who sends no more may still read. Adds TLS_RECORD_OVERHEAD bytes (TLS 1.3) to each TLS_RECORD_MAX bytes and to the rest. */
void tls_session_write(struct tls_session *session, struct slice plain);
void tls_session_goodbye(struct tls_session *session); /* close_notify; nothing in the handshake or after a failure */
/* Bytes for the network; the caller takes them (buffer_take, or sends and resets). A client's first bytes are there at
 * once after tls_session_new. */
struct buffer *tls_session_out(struct tls_session *session);

enum tls_state tls_session_state(const struct tls_session *session);
const char *tls_session_why(const struct tls_session *session); /* a line for a log; "" when it has not failed */
/* The other side: NULL when it showed no certificate, or none that was judged (TLS_PEER_UNASKED, by PSK). It is
 * there after a failure too, for logs. Valid while the session lives. */
const struct tls_certificate *tls_session_peer(const struct tls_session *session);
/* The certificate that it showed, judged or not. */
struct slice tls_session_peer_der(const struct tls_session *session);
/* The certificate at `index` of the chain that it showed (0: its own; the CA's is the last); empty: there are not so many. */
struct slice tls_session_peer_chain(const struct tls_session *session, size_t index);
const char *tls_session_protocol(const struct tls_session *session); /* ALPN; NULL: none */
bool tls_session_by_psk(const struct tls_session *session);
bool tls_session_resumed(const struct tls_session *session);
/* Clients: appends what resumes this session later. CO_NOTFOUND: no ticket has come yet. It is a secret (tls_wipe). */
int tls_session_ticket(const struct tls_session *session, struct buffer *ticket);
/* The keyed channel's own secret (RFC 5705/9266 tls-exporter), to bind a proof to this connection. */
int tls_session_export(struct tls_session *session, const char *label, uint8_t bytes[32]);

#define TLS_RECORD_MAX      16384u
#define TLS_RECORD_OVERHEAD 22u
/* Do these first bytes of a connection begin a TLS handshake? At least 3 bytes; less: true as long as they may. */
bool tls_looks_like(struct slice bytes);
/* Is there work for a session in these bytes, which begin with a record: a whole record, or none that can become one? */
bool tls_record_whole(struct slice bytes);

#endif
