/* Two ends of an encrypted connection without a network, and a plain GnuTLS client that does things that a session of coord
 * never does. */
#ifndef COORD_TESTS_TLS_ENDS_H
#define COORD_TESTS_TLS_ENDS_H

#include "tests/lib/identity.h"
#include "tls/session.h"

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
