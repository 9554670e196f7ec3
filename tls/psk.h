/* Shared keys (Consul's `encrypt`) as TLS 1.3 names them: an identity goes over the network in the clear and says which
 * key is meant. It is made of a keyed hash, so it tells nothing about the key but whether two are the same. Whoever has the
 * key may be any node. Pure; any thread. */
#ifndef COORD_TLS_PSK_H
#define COORD_TLS_PSK_H

#include "tls/context.h"

#define TLS_PSK_IDENTITY_SIZE 32 /* with the NUL */

void tls_psk_identity(struct slice key, char text[TLS_PSK_IDENTITY_SIZE]); /* "coord-" and 16 hex digits */
/* The key of the context that is meant; NULL: it has none of this identity. */
const struct slice *tls_psk_find(const struct tls_context *context, struct slice identity);

#endif
