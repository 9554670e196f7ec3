/* Servers for HTTP/2 checks to meet, written by hand and mostly hostile: each connection has a thread that sends the
 * script's bytes and goes on as the script says. */
#ifndef COORD_TESTS_HEALTH_H2_PEER_H
#define COORD_TESTS_HEALTH_H2_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "certificate.h"

enum peer_then {
    PEER_HANGS, /* reads, and says no more */
    PEER_DEAF,  /* does not even read */
    PEER_CLOSES,
    PEER_RESETS,      /* RST */
    PEER_HALF_CLOSES, /* FIN, and goes on reading */
    PEER_DRIPS,       /* `bytes` one by one, 20 ms apart, again and again */
    PEER_FLOODS,      /* `again` for as long as the socket takes it; reads nothing */
    PEER_ANSWERS,     /* PING with its ACK, a request with `again` */
};
struct peer_script {
    struct slice bytes; /* sent at once */
    struct slice again;
    enum peer_then then;
    bool tls;
    const char *alpn; /* what it knows; NULL: it does not know ALPN */
};
struct peer;
struct peer *peer_start(const struct peer_script *script); /* 127.0.0.1, any free port; the script stays */
void peer_stop(struct peer *peer);
uint16_t peer_port(const struct peer *peer);
uint64_t peer_sent(const struct peer *peer); /* bytes that sockets took from it */
const struct certificate *peer_certificate(const struct peer *peer);

/* RFC 9113, section 4.1 */
void peer_frame(struct buffer *out, unsigned type, unsigned flags, uint32_t stream, struct slice payload);
void peer_frame_head(struct buffer *out, uint32_t size, unsigned type, unsigned flags, uint32_t stream);
/* RFC 7541, section 6.2.2, both below 127 bytes */
void peer_field(struct buffer *out, const char *name, const char *value);
/* SETTINGS, head, one message, trailers. */
void peer_grpc_answer(struct buffer *out, struct slice message, const char *grpc_status);

#endif
