/* Shared by the files of certificate.h: the objects of GnuTLS, and the text of the URI. Functions that take a fault set
 * it and return its code. */
#ifndef COORD_TLS_CERTIFICATE_INNER_H
#define COORD_TLS_CERTIFICATE_INNER_H

#include <gnutls/abstract.h>
#include <gnutls/x509.h>

#include "tls/certificate.h"

#define TLS_LAST_SECOND 253402300799 /* of the year 9999: a certificate knows none after it */

static inline gnutls_datum_t tls_datum(struct slice bytes) {
    return (gnutls_datum_t){(unsigned char *)(uintptr_t)bytes.data, (unsigned)bytes.size};
}
/* CO_INVALID: "WHAT: " and the library's words. */
int tls_fault_of(struct fault *fault, const char *what, int gnutls_code);
/* Appends what GnuTLS has allocated, wipes and frees it. */
void tls_take(struct buffer *out, gnutls_datum_t *made);

/* The caller deinits what it got. A key that others than coord made may be RSA, or of another curve. */
int tls_load_key(struct slice pem, gnutls_x509_privkey_t *key, struct fault *fault);
/* The first certificate of a PEM text, or a DER one. */
int tls_load_certificate(struct slice text, gnutls_x509_crt_t *certificate, struct fault *fault);
/* All of a PEM text; free with tls_free_all. False: there is none, or one of them is broken. */
bool tls_load_all(struct slice pem, gnutls_x509_crt_t **all, unsigned *count);
void tls_free_all(gnutls_x509_crt_t *all, unsigned count);
int tls_load_request(struct slice der, gnutls_x509_crq_t *request, struct fault *fault);

/* -1: now_s is before it, 0: within, 1: after it. */
static inline int tls_life_has(struct tls_life life, int64_t now_s) {
    return now_s < life.from_s ? -1 : now_s > life.to_s;
}
struct tls_life tls_life_of(gnutls_x509_crt_t certificate);

struct tls_trust {
    gnutls_x509_crt_t *cas;
    unsigned count;
    struct tls_life *lives; /* of each */
    gnutls_datum_t *der;
    struct tls_life life; /* while it lasts all of them count */
    gnutls_x509_trust_list_t all;
};
/* The CAs whose time it is; give it back with tls_trust_leave. */
gnutls_x509_trust_list_t tls_trust_at(const struct tls_trust *trust, int64_t now_s);
void tls_trust_leave(const struct tls_trust *trust, gnutls_x509_trust_list_t list);
/* The CA of these bytes, which stays the trust's; NULL: it is none of them. */
gnutls_x509_crt_t tls_trust_find(const struct tls_trust *trust, struct slice der);

/* May the CA sign all names of the certificate, which was read, not made? NULL: it may; else the kind of those that it may not
 * ("DNS names"). */
const char *tls_names_forbidden(gnutls_x509_crt_t ca, gnutls_x509_crt_t certificate);

void tls_pin_of_certificate(gnutls_x509_crt_t certificate, uint8_t pin[TLS_PIN_SIZE]);
void tls_describe(gnutls_x509_crt_t from, struct tls_certificate *certificate);
/* "2026-11-02 10:00:00 UTC" */
#define TLS_TIME_ROOM 32
void tls_time_write(int64_t unix_s, char text[TLS_TIME_ROOM]);

bool tls_domain_valid(struct slice domain); /* lower-case hex digits, as many as there must be */
/* The node may have any bytes but NUL. */
void tls_uri_write(struct buffer *out, const char *domain, enum tls_role role, const char *node);
/* Takes nothing but what tls_uri_write writes: two texts never mean the same node. */
bool tls_uri_read(struct slice uri, char domain[TLS_DOMAIN_SIZE + 1], enum tls_role *role, char node[TLS_NODE_MAX + 1]);

#endif
