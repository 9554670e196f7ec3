/* One HTTP/2 connection (RFC 9113) for one attempt: it connects, does a TLS handshake if wanted, sends preface and
 * SETTINGS, and then the frames of the kind of check. nghttp2 speaks HTTP/2, GnuTLS TLS, libuv moves the bytes.
 *
 * A peer may send whatever it likes, as slowly as it likes: an attempt takes H2_RECEIVE_MOST bytes from it, header
 * fields of H2_HEADERS_MOST in all, and ends at its deadline. Loop thread only. */
#ifndef COORD_HEALTH_CHECK_H2_H
#define COORD_HEALTH_CHECK_H2_H

#include <nghttp2/nghttp2.h>

#include "health/check_net.h"
#include "health/check_tls.h"

#define H2_RECEIVE_MOST ((size_t)256 << 10)
#define H2_HEADERS_MOST ((size_t)16 << 10)
#define H2_READ_SIZE    ((size_t)8 << 10)

/* First member of the kind's own struct. */
struct h2_run {
    struct net_run net;
    const struct h2_kind *kind;
    struct net_target target;
    struct net_connect connect;
    char *server_name; /* of the certificate; NULL: plain text */
    bool skip_verify;
    uv_tcp_t *tcp; /* once connected */
    struct tls *tls;
    nghttp2_session *session; /* once TLS is done */
    size_t received, header_size;
    struct fault complaint; /* nghttp2's complaint about the peer */
    bool writing;
    uv_write_t write;
    struct buffer plain, out, flying;
    bool decided;
    Pb__Status status;
    struct buffer output;
    char read[H2_READ_SIZE];
};

/* The functions of a kind of check. All of them but `describe` and `free` may call h2_decide. */
struct h2_kind {
    int (*begin)(struct h2_run *h2);                              /* submits; an error of nghttp2 */
    void (*frame)(struct h2_run *h2, const nghttp2_frame *frame); /* whole, without headers and data */
    void (*header)(struct h2_run *h2, int32_t stream, struct slice name, struct slice value); /* may be NULL, */
    void (*data)(struct h2_run *h2, int32_t stream, struct slice bytes);                      /* as may this */
    void (*stream_closed)(struct h2_run *h2, int32_t stream, uint32_t error_code);            /* and this */
    /* There was no answer: appends the reason in the kind's words. `net.fault` has it (CO_TIMEOUT: no answer in time;
     * CO_INVALID: the definition is wrong). */
    void (*describe)(struct h2_run *h2, struct buffer *text);
    void (*free)(struct h2_run *h2); /* frees the kind's own parts, and the struct */
};

/* `h2` is zeroed. `target`: "host:port". `server_name`: verified instead of the host; "" for the host. */
struct run *h2_start(struct h2_run *h2, const struct h2_kind *kind, struct runners *runners,
                     const struct check_definition *definition, struct slice target, bool use_tls);
/* The attempt's result, reported when nghttp2 has returned. The first one counts; `output` is the text so far. */
void h2_decide(struct h2_run *h2, Pb__Status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
