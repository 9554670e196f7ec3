#include "tests/tls/pki.h"

#include <gnutls/x509.h>

#include "base/check.h"

const char pki_domain[] = "00112233445566778899aabbccddeeff";

void pair_free(struct pair *pair) {
    tls_wipe(&pair->key);
    buffer_free(&pair->chain);
}

struct tls_issuer pair_issuer(const struct pair *pair) {
    return (struct tls_issuer){buffer_slice(&pair->chain), buffer_slice(&pair->key)};
}

void pki_ca(const struct pair *by, struct pair *ca) {
    struct tls_life life = {NOW - 365 * DAY, NOW + 3650 * DAY};
    struct buffer own = {0};
    if (ca->key.size == 0) CHECK(tls_key_make(&ca->key, NULL) == CO_OK);
    CHECK(tls_ca_make(buffer_slice(&ca->key), pki_domain, life, by ? &own : &ca->chain, NULL) == CO_OK);
    if (!by) return;
    struct tls_issuer issuer = pair_issuer(by);
    CHECK(tls_ca_cross(buffer_slice(&own), life, &issuer, &ca->chain, NULL) == CO_OK);
    buffer_free(&own);
}

void pki_issue(const struct pair *ca, const struct tls_subject *subject, struct tls_life life, struct pair *made) {
    struct tls_issuer issuer = pair_issuer(ca);
    struct buffer request = {0};
    if (made->key.size == 0) CHECK(tls_key_make(&made->key, NULL) == CO_OK);
    CHECK(tls_request_make(buffer_slice(&made->key), &request, NULL) == CO_OK);
    CHECK(tls_issue(&issuer, buffer_slice(&request), subject, life, &made->chain, NULL) == CO_OK);
    buffer_free(&request);
}

void pki_node(const struct pair *ca, enum tls_role role, const char *node, struct tls_life life, struct pair *made) {
    struct tls_subject subject = {
        .domain = pki_domain, .role = role, .node = node, .datacenter = "dc1", .dns_domain = "coord"};
    pki_issue(ca, &subject, life, made);
}

void pki_rsa_key(unsigned bits, struct buffer *key) {
    gnutls_x509_privkey_t made;
    gnutls_datum_t pem;
    CHECK(gnutls_x509_privkey_init(&made) == 0 && gnutls_x509_privkey_generate(made, GNUTLS_PK_RSA, bits, 0) == 0 &&
          gnutls_x509_privkey_export2(made, GNUTLS_X509_FMT_PEM, &pem) == 0);
    buffer_append(key, pem.data, pem.size);
    gnutls_free(pem.data);
    gnutls_x509_privkey_deinit(made);
}

void chain_add(struct chain *chain, struct slice pem) {
    size_t count = tls_certificate_count(pem);
    CHECK(count > 0);
    for (size_t i = 0; i < count; i++) {
        CHECK(chain->count < CHAIN_ROOM);
        struct buffer one = {0}, *der = &chain->der[chain->count];
        CHECK(tls_certificate_at(pem, i, &one, NULL) == CO_OK);
        CHECK(tls_certificate_to_der(buffer_slice(&one), der, NULL) == CO_OK);
        chain->slices[chain->count++] = buffer_slice(der);
        buffer_free(&one);
    }
}

void chain_free(struct chain *chain) {
    for (size_t i = 0; i < chain->count; i++) buffer_free(&chain->der[i]);
    *chain = (struct chain){0};
}
