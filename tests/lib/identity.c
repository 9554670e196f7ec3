#include "tests/lib/identity.h"

#include "base/check.h"
#include "base/clock.h"

static int64_t now_s(void) { return clock_wall_ns() / 1000000000; }

void test_ca_make(struct test_ca *authority) {
    struct fault fault = {0};
    struct tls_life life = {now_s() - 1000 * DAY_S, now_s() + 1000 * DAY_S};
    CHECK(tls_domain_make(authority->domain, &fault) == CO_OK);
    CHECK(tls_key_make(&authority->key, &fault) == CO_OK);
    CHECK(tls_ca_make(buffer_slice(&authority->key), authority->domain, life, &authority->certificate, &fault) ==
          CO_OK);
}

void test_ca_free(struct test_ca *authority) {
    tls_wipe(&authority->key);
    buffer_free(&authority->certificate);
}

void identity_make(const struct test_ca *authority, enum tls_role role, const char *node, int64_t from_s, int64_t to_s,
                   struct identity *identity) {
    struct fault fault = {0};
    struct buffer request = {0};
    struct tls_issuer issuer = {buffer_slice(&authority->certificate), buffer_slice(&authority->key)};
    struct tls_subject subject = {
        .domain = authority->domain, .role = role, .node = node, .datacenter = "dc1", .dns_domain = "coord"};
    struct tls_life life = {now_s() + from_s, now_s() + to_s};
    CHECK(tls_key_make(&identity->key, &fault) == CO_OK);
    CHECK(tls_request_make(buffer_slice(&identity->key), &request, &fault) == CO_OK);
    CHECK(tls_issue(&issuer, buffer_slice(&request), &subject, life, &identity->chain, &fault) == CO_OK);
    buffer_free(&request);
}

void identity_make_plain(const struct test_ca *authority, bool server, bool client, struct identity *identity) {
    struct fault fault = {0};
    struct tls_issuer issuer = {buffer_slice(&authority->certificate), buffer_slice(&authority->key)};
    struct tls_plain_subject subject = {.common_name = "plain", .server = server, .client = client};
    struct tls_life life = {now_s() - DAY_S, now_s() + DAY_S};
    CHECK(tls_key_make(&identity->key, &fault) == CO_OK);
    CHECK(tls_issue_plain(&issuer, buffer_slice(&identity->key), &subject, life, &identity->chain, &fault) == CO_OK);
}

void test_ca_pin(const struct test_ca *authority, uint8_t pin[TLS_PIN_SIZE]) {
    struct tls_certificate certificate;
    CHECK(tls_certificate_read(buffer_slice(&authority->certificate), &certificate, NULL) == CO_OK);
    memcpy(pin, certificate.pin, TLS_PIN_SIZE);
}

void identity_free(struct identity *identity) {
    tls_wipe(&identity->key);
    buffer_free(&identity->chain);
}

struct tls_context *context_of(const struct identity *identity, const struct test_ca *authority,
                               struct tls_context_config config) {
    struct tls_context *context;
    struct fault fault = {0};
    if (identity) config.chain = buffer_slice(&identity->chain), config.key = buffer_slice(&identity->key);
    if (authority) config.trusted = buffer_slice(&authority->certificate);
    CHECK(tls_context_make(&config, &context, &fault) == CO_OK);
    return context;
}
