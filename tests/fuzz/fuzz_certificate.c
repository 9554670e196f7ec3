/* Any bytes as certificates: read as a file's text, and judged as a chain, which nobody trusts who did not trust it
 * before. The first byte says how many bytes the first certificate of the chain has. */
#include <ctype.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/text.h"
#include "tls/certificate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct buffer ca_key, ca;

static void make_ca(void) {
    static const struct tls_life life = {1000000000, 2000000000};
    CHECK(tls_key_make(&ca_key, NULL) == CO_OK);
    CHECK(tls_ca_make(buffer_slice(&ca_key), "00112233445566778899aabbccddeeff", life, &ca, NULL) == CO_OK);
}

static void check_said(const struct tls_certificate *said) {
    CHECK(strnlen(said->domain, sizeof said->domain) < sizeof said->domain);
    CHECK(strnlen(said->node, sizeof said->node) < sizeof said->node);
    CHECK(strnlen(said->common_name, sizeof said->common_name) < sizeof said->common_name);
    CHECK(strspn(said->serial, "0123456789abcdef") == strlen(said->serial));
    CHECK(said->domain[0] == '\0' || strlen(said->domain) == TLS_DOMAIN_SIZE);
    CHECK((said->role == TLS_ROLE_NONE) == (said->node[0] == '\0'));
    CHECK(said->role == TLS_ROLE_NONE || said->domain[0]);
}

static void judge(struct slice first, struct slice second, bool as_server) {
    struct slice chain[2] = {first, second};
    struct tls_rules rules = {.trusted = buffer_slice(&ca), .now_s = 1500000000, .as_server = as_server};
    struct tls_certificate said;
    char why[160];
    memset(why, 'x', sizeof why);
    enum tls_verdict verdict = tls_judge(&rules, chain, second.size ? 2 : 1, &said, why);
    CHECK(verdict != TLS_TRUSTED && strnlen(why, sizeof why) < sizeof why && why[0]);
    for (const char *at = why; *at; at++) CHECK((unsigned char)*at >= ' ' && *at != 0x7f);
    check_said(&said);
}

static void read_text(struct slice text) {
    struct tls_certificate said;
    struct fault fault = {0};
    struct buffer out = {0};
    int rv = tls_certificate_read(text, &said, &fault);
    CHECK(rv == fault.code);
    if (rv == CO_OK) CHECK(tls_certificate_to_der(text, &out, NULL) == CO_OK && out.size);
    check_said(&said);
    size_t count = tls_certificate_count(text);
    out.size = 0;
    CHECK((tls_certificate_at(text, 0, &out, NULL) == CO_OK) == (count > 0));
    CHECK(tls_certificate_at(text, count, &out, NULL) == CO_INVALID);
    (void)tls_certificate_names(text, "server.dc1.coord");
    (void)tls_certificate_names(text, "10.0.0.1");
    (void)tls_pair_check(buffer_slice(&ca_key), text, NULL);
    (void)tls_pair_check(text, buffer_slice(&ca), NULL);
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (ca.size == 0) make_ca();
    if (size == 0) return 0;
    size_t first = (size_t)data[0] * 8;
    data++, size--;
    if (first > size) first = size;
    char *one = malloc(first ? first : 1), *two = malloc(size - first ? size - first : 1),
         *all = malloc(size ? size : 1);
    if (first) memcpy(one, data, first);
    if (size - first) memcpy(two, data + first, size - first);
    if (size) memcpy(all, data, size);
    judge(slice_make(one, first), slice_make(two, size - first), size & 1);
    read_text(slice_make(all, size));
    free(one);
    free(two);
    free(all);
    return 0;
}
