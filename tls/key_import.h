/* A private key from PEM into GnuTLS, without a copy that stays in freed memory: GnuTLS's own reader of PEM frees the text
 * between the lines "BEGIN" and "END" without overwriting it, so that it would be in core dumps. */
#ifndef COORD_TLS_KEY_IMPORT_H
#define COORD_TLS_KEY_IMPORT_H

#include <gnutls/x509.h>
#include <stdbool.h>

#include "base/buffer.h"

/* The bytes of the first private key in `pem`; the caller wipes them. False: there is none, it is encrypted, or it is
 * malformed. */
bool key_der(struct slice pem, struct buffer *der);
/* Into a key that gnutls_x509_privkey_init made. 0, or GnuTLS's error. */
int key_import(gnutls_x509_privkey_t key, struct slice pem);

#endif
