/* A client of DNS over TLS for the tests of dns/. Blocking; whatever goes wrong ends the program. */
#ifndef COORD_TESTS_DNS_TLS_HELP_H
#define COORD_TESTS_DNS_TLS_HELP_H

#include "tests/lib/identity.h"
#include "tls/session.h"

struct help_tls {
    int fd;
    struct tls_session *session;
    struct buffer plain;
    size_t taken;
};
/* Shakes hands at 127.0.0.1. `context` trusts the server. False: the server, or this client, refused. */
bool help_tls_dial(struct help_tls *client, uint16_t port, struct tls_context *context);
/* Sends all that the session has for the network. */
void help_tls_flush(struct help_tls *client);
void help_tls_send(struct help_tls *client, const void *data, size_t size);
/* The next answer; its size, 0 when the server has ended the connection. */
size_t help_tls_hear(struct help_tls *client, uint8_t *to, size_t room);
void help_tls_close(struct help_tls *client);

#endif
