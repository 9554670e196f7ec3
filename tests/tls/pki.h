/* CAs and certificates for the tests of tls/. Whatever goes wrong here ends the test. */
#ifndef COORD_TESTS_TLS_PKI_H
#define COORD_TESTS_TLS_PKI_H

#include "tls/certificate.h"

#define NOW  INT64_C(1800000000) /* 2027-01-15 08:00:00 UTC */
#define DAY  INT64_C(86400)
#define WEEK (7 * DAY)

extern const char pki_domain[]; /* of all of them */

/* A key and its certificate, or chain, in PEM. */
struct pair {
    struct buffer key, chain;
};
void pair_free(struct pair *pair);
struct tls_issuer pair_issuer(const struct pair *pair);

/* A CA from a year ago, for ten years. `by`: signed by this one; NULL: by itself. */
void pki_ca(const struct pair *by, struct pair *ca);
/* A node in dc1, with this life. */
void pki_node(const struct pair *ca, enum tls_role role, const char *node, struct tls_life life, struct pair *made);
/* The node's certificate with names of its own. */
void pki_issue(const struct pair *ca, const struct tls_subject *subject, struct tls_life life, struct pair *made);
void pki_rsa_key(unsigned bits, struct buffer *key);

/* A chain as a handshake has it. */
#define CHAIN_ROOM 16
struct chain {
    struct buffer der[CHAIN_ROOM];
    struct slice slices[CHAIN_ROOM];
    size_t count;
};
void chain_add(struct chain *chain, struct slice pem); /* all certificates of the text */
void chain_free(struct chain *chain);

#endif
