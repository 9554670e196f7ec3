/* Comes to a certificate: joins with a token, renews, or takes part when an open cluster is closed. Each is one question
 * and one answer over a connection of its own, with a protocol of its own (security.h), so that somebody without a
 * certificate gets as far as this and no further.
 *
 *   join    The joiner compares the server's CA with the pin of its token before it sends anything.
 *   renew   Both sides show certificates. That of the node may have expired SECURITY_GRACE_S ago. It keeps its key.
 *   secure  The joiner knows the CA's pin from its open connection.
 *
 * All are safe to repeat: the key stays the same, and the answer is the same certificate or a later one. The server's
 * part is rpc/server/enrolment.h. Blocking; any thread that may wait. */
#ifndef COORD_RPC_ENROL_H
#define COORD_RPC_ENROL_H

#include "base/memory.h"
#include "rpc/wire/enrol.pb-c.h"
#include "rpc/wire/security.h"
#include "tls/join_token.h"

/* ENROL_KEPT, empty, of who renews: the answer is on its disk. The cluster notes the new certificate only then, because the
 * CA of the one before counts until nobody needs it. */
enum enrol_frame { ENROL_REQUEST = 1, ENROL_ANSWER = 2, ENROL_KEPT = 3 };
#define ENROL_FRAME_MAX     (64u << 10)
#define ENROL_ADDRESSES_MAX 8

struct enrol {
    const char *protocol;        /* SECURITY_JOIN, _RENEW or _SECURE */
    const uint8_t *pin;          /* join and secure: of the CA */
    struct tls_context *context; /* renew: the node's certificate, and whom it trusts. Else empty, not NULL */
    const Pb__EnrolRequest *request;
    /* renew: keeps the answer; then the server is told so. NULL: it is not */
    int (*keep)(void *data, const Pb__EnrolAnswer *answer, struct fault *fault);
    void *data;
    const char *from; /* IP to dial from: the node's own, because only that one comes into its certificate; NULL: any */
    uint64_t timeout_ms; /* of all of it */
};

/* Asks the server at `address` ("host", "host:port"; `port` where it names none). The answer is in the arena, the secrets
 * in it too: enrol_wipe before the arena is freed. Errors, with a line in `fault` that names the address: CO_IO: nobody
 * answers there; CO_TIMEOUT; CO_DENIED: the TLS handshake was refused by either side (a pin that does not fit is told as
 * such), or the server refuses; CO_CORRUPT: not a server of coord; and those of EnrolAnswer.outcome and of `keep`. */
int enrol_ask(const struct enrol *enrol, const char *address, uint16_t port, struct arena *arena,
              Pb__EnrolAnswer **answer, struct fault *fault);
/* Reads the CA that the server at `address` shows, without asking anything: its certificate as DER is in `ca`, and what it
 * says in `server` about the server. With `enrol->pin` only that CA counts; without, it is whoever answers there: a person has
 * to compare the pin. `enrol->protocol` is SECURITY_JOIN. */
int enrol_look(const struct enrol *enrol, const char *address, uint16_t port, struct buffer *ca,
               struct tls_certificate *server, struct fault *fault);
void enrol_wipe(Pb__EnrolAnswer *answer); /* NULL: nothing */
/* May the same question have another answer later, or elsewhere? Else it is refused for good. */
bool enrol_may_repeat(int error);

#endif
