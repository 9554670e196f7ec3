/* A CA, and nodes with certificates of it, made for a test. */
#ifndef COORD_TESTS_LIB_IDENTITY_H
#define COORD_TESTS_LIB_IDENTITY_H

#include "tls/certificate.h"
#include "tls/context.h"

#define DAY_S 86400

struct authority {
    char domain[TLS_DOMAIN_SIZE + 1];
    struct buffer key, certificate;
};
void authority_make(struct authority *authority);
void authority_free(struct authority *authority);

/* A node's chain and key. */
struct identity {
    struct buffer key, chain;
};
/* from_s, to_s: from now. */
void identity_make(const struct authority *authority, enum tls_role role, const char *node, int64_t from_s,
                   int64_t to_s, struct identity *identity);
/* As `coord tls cert create` makes them, with these uses. */
void identity_make_plain(const struct authority *authority, bool server, bool client, struct identity *identity);
/* The pin of the CA. */
void authority_pin(const struct authority *authority, uint8_t pin[TLS_PIN_SIZE]);
void identity_free(struct identity *identity);
/* A context that shows `identity` (may be NULL) and trusts `authority` (may be NULL); others may be set in `config`. */
struct tls_context *context_of(const struct identity *identity, const struct authority *authority,
                               struct tls_context_config config);

#endif
