/* Verifies the peer of a TLS session. */
#ifndef COORD_HEALTH_CHECK_TRUST_H
#define COORD_HEALTH_CHECK_TRUST_H

#include <gnutls/gnutls.h>
#include <stdbool.h>

#include "base/error.h"

/* `session`: its handshake is done. True: the server is `host` (a name or an address) according to the trusted
 * certificates, which are those of the file that the environment names in SSL_CERT_FILE, or the system's, read again
 * after an hour. False: with a fault. Loop thread. */
bool trust_verify(gnutls_session_t session, const char *host, struct fault *fault);

#endif
