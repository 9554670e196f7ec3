/* A private key for handshakes that is in no core dump: GnuTLS gets functions instead of the key, and they load it from a
 * tls_secret for each signature. */
#ifndef COORD_TLS_GUARDED_KEY_H
#define COORD_TLS_GUARDED_KEY_H

#include <gnutls/abstract.h>

#include "base/buffer.h"
#include "base/error.h"

/* Of a private key as PEM; gnutls_privkey_deinit frees it. */
int guarded_key_make(struct slice pem, gnutls_privkey_t *key, struct fault *fault);

#endif
