/* A CA, and nodes with certificates of it, made for a test. */
#ifndef COORD_TESTS_LIB_IDENTITY_H
#define COORD_TESTS_LIB_IDENTITY_H

#include "tls/certificate.h"
#include "tls/context.h"

#define DAY_S 86400

struct test_ca {
    char domain[TLS_DOMAIN_SIZE + 1];
    struct buffer key, certificate;
};
void test_ca_make(struct test_ca *authority);
void test_ca_free(struct test_ca *authority);

/* A node's chain and key. */
struct identity {
    struct buffer key, chain;
};
/* from_s, to_s: from now. */
void identity_make(const struct test_ca *authority, enum tls_role role, const char *node, int64_t from_s, int64_t to_s,
                   struct identity *identity);
/* As `coord tls cert create` makes them, with these uses. */
void identity_make_plain(const struct test_ca *authority, bool server, bool client, struct identity *identity);
/* The pin of the CA. */
void test_ca_pin(const struct test_ca *authority, uint8_t pin[TLS_PIN_SIZE]);
void identity_free(struct identity *identity);
/* A context that shows `identity` (may be NULL) and trusts `authority` (may be NULL); others may be set in `config`. */
struct tls_context *context_of(const struct identity *identity, const struct test_ca *authority,
                               struct tls_context_config config);

#endif
