/* Private keys in each form of PEM that operators have. That none stays in freed memory is judged by cluster/test_closed_cluster. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "tls/key_import.h"

static gnutls_x509_privkey_t made;

static struct buffer as_pem(bool rsa, bool pkcs8) {
    struct buffer pem = {0};
    gnutls_datum_t text = {0};
    CHECK(gnutls_x509_privkey_init(&made) == 0);
    CHECK(gnutls_x509_privkey_generate(made, rsa ? GNUTLS_PK_RSA : GNUTLS_PK_ECDSA,
                                       rsa ? 2048 : GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0) == 0);
    CHECK((pkcs8 ? gnutls_x509_privkey_export2_pkcs8(made, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &text)
                 : gnutls_x509_privkey_export2(made, GNUTLS_X509_FMT_PEM, &text)) == 0);
    buffer_append(&pem, text.data, text.size);
    gnutls_free(text.data);
    return pem;
}

static void same_key(struct slice pem) {
    unsigned char expected[64], got[64];
    size_t size = sizeof expected, other = sizeof got;
    gnutls_x509_privkey_t key;
    CHECK(gnutls_x509_privkey_init(&key) == 0);
    cr_assert_eq(key_import(key, pem), 0);
    CHECK(gnutls_x509_privkey_get_key_id(made, GNUTLS_KEYID_USE_SHA256, expected, &size) == 0);
    CHECK(gnutls_x509_privkey_get_key_id(key, GNUTLS_KEYID_USE_SHA256, got, &other) == 0);
    cr_assert(size == other && memcmp(expected, got, size) == 0);
    gnutls_x509_privkey_deinit(key);
}

Test(key_import, each_form_of_pem_is_taken) {
    for (int form = 0; form < 4; form++) {
        struct buffer pem = as_pem(form & 1, form & 2), with = {0}, lines = {0}, der = {0};
        same_key(buffer_slice(&pem));
        cr_assert(key_der(buffer_slice(&pem), &der));
        /* As `openssl ecparam -genkey` writes it: the parameters first. */
        buffer_append_text(&with,
                           "a comment\n-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n");
        buffer_append(&with, pem.data, pem.size);
        same_key(buffer_slice(&with));
        buffer_reset(&der);
        cr_assert(key_der(buffer_slice(&with), &der), "it is not left to GnuTLS's reader");
        for (size_t i = 0; i < pem.size; i++) {
            if (pem.data[i] == '\n') buffer_append_text(&lines, "\r");
            buffer_append(&lines, &pem.data[i], 1);
        }
        same_key(buffer_slice(&lines));
        buffer_reset(&der);
        cr_assert(key_der(buffer_slice(&lines), &der));
        gnutls_x509_privkey_deinit(made);
        buffer_free(&pem), buffer_free(&with), buffer_free(&lines), buffer_free(&der);
    }
}

Test(key_import, what_is_no_key_is_refused) {
    struct buffer pem = as_pem(false, false), der = {0};
    static const char *const texts[] = {
        "",
        "x",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nAA*A\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        gnutls_x509_privkey_t key;
        CHECK(gnutls_x509_privkey_init(&key) == 0);
        cr_assert_not(key_der(slice_text(texts[i]), &der), "%s", texts[i]);
        cr_assert_neq(key_import(key, slice_text(texts[i])), 0, "%s", texts[i]);
        gnutls_x509_privkey_deinit(key);
    }
    for (size_t size = 0; size < pem.size - 30; size++) /* cut before its end */
        cr_assert_not(key_der(slice_make(pem.data, size), &der), "%zu bytes", size);
    gnutls_x509_privkey_deinit(made);
    buffer_free(&pem), buffer_free(&der);
}
