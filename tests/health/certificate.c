#include "certificate.h"

#include <gnutls/x509.h>
#include <stdio.h>
#include <time.h>

#include "base/check.h"

void certificate_make(struct certificate *made) {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t certificate;
    unsigned char serial = 1;
    CHECK(gnutls_x509_privkey_init(&key) == 0 && gnutls_x509_crt_init(&certificate) == 0);
    CHECK(gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0) == 0);
    CHECK(gnutls_x509_crt_set_version(certificate, 3) == 0);
    CHECK(gnutls_x509_crt_set_serial(certificate, &serial, 1) == 0);
    CHECK(gnutls_x509_crt_set_activation_time(certificate, time(NULL) - 3600) == 0);
    CHECK(gnutls_x509_crt_set_expiration_time(certificate, time(NULL) + 36000) == 0);
    CHECK(gnutls_x509_crt_set_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, "check.test", 10) == 0);
    CHECK(gnutls_x509_crt_set_subject_alt_name(certificate, GNUTLS_SAN_DNSNAME, "check.test", 10, GNUTLS_FSAN_SET) ==
          0);
    CHECK(gnutls_x509_crt_set_key(certificate, key) == 0);
    CHECK(gnutls_x509_crt_sign2(certificate, certificate, key, GNUTLS_DIG_SHA256, 0) == 0);
    CHECK(gnutls_certificate_allocate_credentials(&made->credentials) == 0);
    CHECK(gnutls_certificate_set_x509_key(made->credentials, &certificate, 1, key) == 0);
    CHECK(gnutls_x509_crt_export2(certificate, GNUTLS_X509_FMT_PEM, &made->pem) == 0);
    CHECK(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &made->key_pem) == 0);
    gnutls_x509_crt_deinit(certificate);
    gnutls_x509_privkey_deinit(key);
}

void certificate_free(struct certificate *made) {
    if (made->credentials) gnutls_certificate_free_credentials(made->credentials);
    gnutls_free(made->pem.data);
    gnutls_free(made->key_pem.data);
}

static void write_file(const char *path, const gnutls_datum_t *pem) {
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(pem->data, pem->size, 1, file) == 1 && fclose(file) == 0);
}

void certificate_write(const struct certificate *made, const char *path, const char *key_path) {
    if (path) write_file(path, &made->pem);
    if (key_path) write_file(key_path, &made->key_pem);
}
