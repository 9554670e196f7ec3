/* Certificate requests: what a joiner sends, and what somebody else may send instead. */
#include <criterion/criterion.h>
#include <gnutls/abstract.h>
#include <gnutls/x509.h>
#include <stdio.h>

#include "base/check.h"
#include "tests/tls/pki.h"

static struct pair ca, node;
static struct buffer request;
static const struct tls_life life = {NOW - DAY, NOW + WEEK};
static const struct tls_subject subject = {
    .domain = pki_domain, .role = TLS_ROLE_AGENT, .node = "a", .datacenter = "dc1", .dns_domain = "coord"};

static void setup(void) {
    pki_ca(NULL, &ca);
    CHECK(tls_key_make(&node.key, NULL) == CO_OK);
    CHECK(tls_request_make(buffer_slice(&node.key), &request, NULL) == CO_OK);
}

static void teardown(void) {
    pair_free(&ca);
    pair_free(&node);
    buffer_free(&request);
}

TestSuite(certificate_request, .init = setup, .fini = teardown);

/* "": it is taken. Checking and issuing say the same. */
static const char *refusal(struct slice given) {
    static struct fault fault;
    struct fault of_issue = {0};
    uint8_t pin[TLS_PIN_SIZE];
    struct tls_issuer issuer = pair_issuer(&ca);
    struct buffer out = {0};
    fault = (struct fault){0};
    int rv = tls_request_check(given, pin, &fault);
    cr_assert_eq(rv, fault.code);
    cr_assert_eq(tls_issue(&issuer, given, &subject, life, &out, &of_issue), rv);
    cr_assert_str_eq(fault.text, of_issue.text);
    buffer_free(&out);
    return fault.text;
}

Test(certificate_request, its_pin_is_that_of_the_certificate) {
    uint8_t pin[TLS_PIN_SIZE];
    struct tls_certificate said;
    cr_assert_eq(tls_request_check(buffer_slice(&request), pin, NULL), CO_OK);
    cr_expect_lt(request.size, 300u);
    pki_node(&ca, TLS_ROLE_AGENT, "a", life, &node);
    cr_assert_eq(tls_certificate_read(buffer_slice(&node.chain), &said, NULL), CO_OK);
    cr_expect_eq(memcmp(pin, said.pin, sizeof pin), 0);
}

/* GnuTLS takes the first two bytes alone for a request; then its form is not the exact one. */
Test(certificate_request, every_cut_is_refused) {
    for (size_t size = 0; size < request.size; size++) {
        const char *said = refusal(slice_make(request.data, size));
        cr_assert(strncmp(said, "no certificate request: ", 24) == 0 ||
                      strcmp(said, "the certificate request is not in DER") == 0,
                  "%zu: %s", size, said);
    }
    cr_expect_str_eq(refusal(buffer_slice(&request)), "");
}

Test(certificate_request, every_changed_byte_is_refused) {
    for (size_t at = 0; at < request.size; at++) {
        request.data[at] ^= 1;
        cr_expect_neq(refusal(buffer_slice(&request))[0], '\0', "byte %zu", at);
        request.data[at] ^= 1;
    }
}

Test(certificate_request, bytes_behind_it_are_refused) {
    buffer_append(&request, "x", 1);
    cr_expect_neq(refusal(buffer_slice(&request))[0], '\0');
}

Test(certificate_request, a_large_one_is_refused_unread) {
    static char large[TLS_REQUEST_MAX + 1];
    memcpy(large, request.data, request.size);
    cr_expect_str_eq(refusal(slice_make(large, sizeof large)),
                     "a certificate request of 4097 bytes is too large, 4096 are the most");
    cr_expect_null(strstr(refusal(slice_make(large, sizeof large - 1)), "too large"));
}

/* With attributes, with a subject, or with neither. */
Test(certificate_request, those_of_openssl_are_taken) {
    static const char *const ways[] = {"-subj /", "-subj /CN=x/O=y", "-subj / -addext subjectAltName=DNS:a.b"};
    char line[256], der[4096];
    for (size_t i = 0; i < ARRAY_COUNT(ways); i++) {
        snprintf(
            line, sizeof line,
            "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /dev/null %s -outform DER "
            "2>/dev/null",
            ways[i]);
        FILE *pipe = popen(line, "r");
        CHECK(pipe);
        size_t size = fread(der, 1, sizeof der, pipe);
        if (pclose(pipe) != 0) cr_skip("no openssl");
        cr_expect_str_eq(refusal(slice_make(der, size)), "", "%s", ways[i]);
    }
}

/* -- by others ---------------------------------------------------------------------------------------------------- */
/* With this key, signed by that one; `dress` adds what it likes. */
static void make(struct slice key, struct slice signer, void (*dress)(gnutls_x509_crq_t), struct buffer *out) {
    gnutls_x509_crq_t crq;
    gnutls_x509_privkey_t own, with;
    gnutls_datum_t der, own_pem = {(unsigned char *)(uintptr_t)key.data, (unsigned)key.size};
    gnutls_datum_t with_pem = {(unsigned char *)(uintptr_t)signer.data, (unsigned)signer.size};
    CHECK(gnutls_x509_crq_init(&crq) == 0 && gnutls_x509_privkey_init(&own) == 0 &&
          gnutls_x509_privkey_init(&with) == 0);
    CHECK(gnutls_x509_privkey_import(own, &own_pem, GNUTLS_X509_FMT_PEM) == 0 &&
          gnutls_x509_privkey_import(with, &with_pem, GNUTLS_X509_FMT_PEM) == 0);
    CHECK(gnutls_x509_crq_set_version(crq, 1) == 0 && gnutls_x509_crq_set_key(crq, own) == 0);
    if (dress) dress(crq);
    CHECK(gnutls_x509_crq_sign2(crq, with, GNUTLS_DIG_SHA256, 0) == 0 &&
          gnutls_x509_crq_export2(crq, GNUTLS_X509_FMT_DER, &der) == 0);
    buffer_append(out, der.data, der.size);
    gnutls_free(der.data);
    gnutls_x509_crq_deinit(crq);
    gnutls_x509_privkey_deinit(own);
    gnutls_x509_privkey_deinit(with);
}

Test(certificate_request, a_key_that_the_sender_lacks_is_refused) {
    struct buffer other = {0}, forged = {0};
    CHECK(tls_key_make(&other, NULL) == CO_OK);
    make(buffer_slice(&node.key), buffer_slice(&other), NULL, &forged);
    cr_expect_str_eq(refusal(buffer_slice(&forged)),
                     "the signature of the certificate request is wrong: it was not made with the key that it names");
    buffer_free(&forged);
    buffer_free(&other);
}

Test(certificate_request, rsa_is_refused) {
    struct buffer rsa = {0}, of_rsa = {0};
    pki_rsa_key(2048, &rsa);
    cr_assert_eq(tls_request_make(buffer_slice(&rsa), &of_rsa, NULL), CO_OK);
    cr_expect_str_eq(refusal(buffer_slice(&of_rsa)),
                     "the key of a certificate request is EC, P-256 or P-384; this one is RSA");
    buffer_free(&rsa);
    buffer_free(&of_rsa);
}

Test(certificate_request, of_curves_two_are_taken) {
    static const struct {
        gnutls_ecc_curve_t curve;
        const char *said;
    } cases[] = {
        {GNUTLS_ECC_CURVE_SECP256R1, ""},
        {GNUTLS_ECC_CURVE_SECP384R1, ""},
        {GNUTLS_ECC_CURVE_SECP521R1,
         "the key of a certificate request is EC, P-256 or P-384; this one is EC/ECDSA, SECP521R1"},
        {GNUTLS_ECC_CURVE_ED25519,
         "the key of a certificate request is EC, P-256 or P-384; this one is EdDSA (Ed25519)"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        bool ed = cases[i].curve == GNUTLS_ECC_CURVE_ED25519;
        gnutls_x509_privkey_t key;
        gnutls_x509_crq_t crq;
        gnutls_datum_t der;
        CHECK(gnutls_x509_privkey_init(&key) == 0 && gnutls_x509_crq_init(&crq) == 0);
        CHECK(gnutls_x509_privkey_generate(key, ed ? GNUTLS_PK_EDDSA_ED25519 : GNUTLS_PK_ECDSA,
                                           GNUTLS_CURVE_TO_BITS(cases[i].curve), 0) == 0);
        CHECK(gnutls_x509_crq_set_version(crq, 1) == 0 && gnutls_x509_crq_set_key(crq, key) == 0 &&
              gnutls_x509_crq_sign2(crq, key, ed ? GNUTLS_DIG_SHA512 : GNUTLS_DIG_SHA256, 0) == 0 &&
              gnutls_x509_crq_export2(crq, GNUTLS_X509_FMT_DER, &der) == 0);
        cr_expect_str_eq(refusal(slice_make(der.data, der.size)), cases[i].said);
        gnutls_free(der.data);
        gnutls_x509_crq_deinit(crq);
        gnutls_x509_privkey_deinit(key);
    }
}

static void as_server(gnutls_x509_crq_t crq) {
    static const char uri[] = "spiffe://00112233445566778899aabbccddeeff/server/s1";
    CHECK(gnutls_x509_crq_set_dn(crq, "CN=s1,O=Evil", NULL) == 0);
    CHECK(gnutls_x509_crq_set_subject_alt_name(crq, GNUTLS_SAN_URI, uri, sizeof uri - 1, GNUTLS_FSAN_SET) == 0);
    CHECK(gnutls_x509_crq_set_subject_alt_name(crq, GNUTLS_SAN_DNSNAME, "server.dc1.coord", 16, GNUTLS_FSAN_APPEND) ==
          0);
    CHECK(gnutls_x509_crq_set_basic_constraints(crq, 1, -1) == 0);
    CHECK(gnutls_x509_crq_set_key_usage(crq, GNUTLS_KEY_KEY_CERT_SIGN) == 0);
}

/* The issuer decides about names, uses and everything else. */
Test(certificate_request, nothing_of_it_counts_but_the_key) {
    struct tls_certificate said;
    struct tls_issuer issuer = pair_issuer(&ca);
    struct buffer wishes = {0}, der = {0};
    make(buffer_slice(&node.key), buffer_slice(&node.key), as_server, &wishes);
    cr_assert_eq(tls_issue(&issuer, buffer_slice(&wishes), &subject, life, &node.chain, NULL), CO_OK);
    cr_assert_eq(tls_certificate_read(buffer_slice(&node.chain), &said, NULL), CO_OK);
    cr_expect(said.role == TLS_ROLE_AGENT && !said.is_ca);
    cr_expect_str_eq(said.node, "a");
    cr_expect_str_eq(said.common_name, "a");
    CHECK(tls_certificate_to_der(buffer_slice(&node.chain), &der, NULL) == CO_OK);
    cr_expect_not(tls_certificate_names(buffer_slice(&der), "server.dc1.coord"));
    cr_expect_null(memmem(der.data, der.size, "Evil", 4));
    buffer_free(&wishes);
    buffer_free(&der);
}
