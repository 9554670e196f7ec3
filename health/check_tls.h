/* TLS for the runners' own connections, as a client, over memory: what came in, what is to go out. Loop thread only. */
#ifndef COORD_HEALTH_CHECK_TLS_H
#define COORD_HEALTH_CHECK_TLS_H

#include "base/buffer.h"
#include "base/error.h"

struct tls;
/* Offers HTTP/2 by ALPN. `host`: the name, or address, that the server has to prove; sent to it when it is a name. */
struct tls *tls_new(const char *host, bool skip_verify);
void tls_free(struct tls *tls); /* NULL allowed */

/* Takes all of `came` (nothing: begins the handshake), appends its plain text to `plain`, no more than came in, and the
 * bytes to send to `out`. CO_OK; CO_CLOSED: the server has said goodbye; CO_DENIED, CO_IO and a fault. */
int tls_receive(struct tls *tls, struct slice came, struct buffer *plain, struct buffer *out, struct fault *fault);
/* The handshake is done, the server is verified (unless that is to be skipped) and has not chosen anything but
 * HTTP/2. */
bool tls_ready(const struct tls *tls);
/* Once it is ready. CO_OK or CO_IO and a fault. */
int tls_send(struct tls *tls, struct slice plain, struct buffer *out, struct fault *fault);
void tls_goodbye(struct tls *tls, struct buffer *out);

#endif
