/* Two ends of an encrypted connection without a network, a CA with its certificates, and a plain GnuTLS client that does
 * things that a session of coord never does. */
#ifndef COORD_TESTS_TLS_ENDS_H
#define COORD_TESTS_TLS_ENDS_H

#include "tls/session.h"

#define DAY_S 86400

struct authority {
    char domain[TLS_DOMAIN_SIZE + 1];
    struct buffer key, certificate;
};
void authority_make(struct authority *authority);
void authority_free(struct authority *authority);

/* A node's chain and key. */
struct identity {
    struct buffer key, chain;
};
/* from_s, to_s: from now. */
void identity_make(const struct authority *authority, enum tls_role role, const char *node, int64_t from_s,
                   int64_t to_s, struct identity *identity);
/* The pin of the CA. */
void authority_pin(const struct authority *authority, uint8_t pin[TLS_PIN_SIZE]);
void identity_free(struct identity *identity);
/* A context that shows `identity` (may be NULL) and trusts `authority` (may be NULL); others may be set in `config`. */
struct tls_context *context_of(const struct identity *identity, const struct authority *authority,
                               struct tls_context_config config);

struct ends {
    struct tls_session *client, *server;
    struct buffer client_got, server_got; /* plain */
    size_t to_server, to_client;          /* bytes that went there */
};
void ends_open(struct ends *ends, struct tls_context *client, struct tls_session_config client_config,
               struct tls_context *server, struct tls_session_config server_config);
/* Moves bytes between the two until nobody has any, at most `step` at once (0: all). */
void ends_move(struct ends *ends, size_t step);
void ends_close(struct ends *ends);
bool ends_are_open(const struct ends *ends);

/* A client of GnuTLS alone, against a session that is a server. It trusts everybody. */
struct bare {
    gnutls_session_t tls;
    gnutls_certificate_credentials_t credentials;
    struct buffer in, out;
    size_t taken;
};
void bare_open(struct bare *bare, const char *priorities);
/* One round: the client's handshake as far as it goes, its bytes to the server, the answer back. GnuTLS's result. */
int bare_shake(struct bare *bare, struct tls_session *server, struct buffer *got);
void bare_close(struct bare *bare);

#endif
