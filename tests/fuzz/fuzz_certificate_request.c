/* Any bytes as a certificate request: one that is taken was signed by its key, whose certificate can be issued, and no
 * other byte of it counts. */
#include <stdlib.h>

#include "base/check.h"
#include "tls/certificate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct buffer ca_key, ca;

static void make_ca(void) {
    static const struct tls_life life = {1000000000, 2000000000};
    CHECK(tls_key_make(&ca_key, NULL) == CO_OK);
    CHECK(tls_ca_make(buffer_slice(&ca_key), "00112233445566778899aabbccddeeff", life, &ca, NULL) == CO_OK);
}

static void check_taken(struct slice request, const uint8_t pin[TLS_PIN_SIZE]) {
    struct tls_issuer issuer = {buffer_slice(&ca), buffer_slice(&ca_key)};
    struct tls_subject subject = {.domain = "00112233445566778899aabbccddeeff",
                                  .role = TLS_ROLE_AGENT,
                                  .node = "a",
                                  .datacenter = "dc1",
                                  .dns_domain = "coord"};
    struct buffer chain = {0};
    struct tls_certificate said;
    CHECK(tls_issue(&issuer, request, &subject, (struct tls_life){1500000000, 1600000000}, &chain, NULL) == CO_OK);
    CHECK(tls_certificate_read(buffer_slice(&chain), &said, NULL) == CO_OK);
    CHECK(said.role == TLS_ROLE_AGENT && strcmp(said.node, "a") == 0 && !said.is_ca);
    CHECK(strcmp(said.common_name, "a") == 0 && memcmp(said.pin, pin, TLS_PIN_SIZE) == 0);
    buffer_free(&chain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (ca.size == 0) make_ca();
    char *exact = malloc(size ? size : 1);
    if (size) memcpy(exact, data, size);
    struct slice request = slice_make(exact, size);
    uint8_t pin[TLS_PIN_SIZE];
    struct fault fault = {0};
    int rv = tls_request_check(request, pin, &fault);
    CHECK(rv == fault.code && (rv == CO_OK || (rv == CO_INVALID && fault.text[0])));
    if (rv == CO_OK) check_taken(request, pin);
    free(exact);
    return 0;
}
