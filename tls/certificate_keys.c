/* Keys, trust domains and certificate requests. */
#include <gnutls/crypto.h>

#include "base/check.h"
#include "tls/certificate_inner.h"
#include "tls/key_import.h"

void tls_wipe(struct buffer *secret) {
    if (secret->data) gnutls_memset(secret->data, 0, secret->capacity);
    buffer_free(secret);
}

int tls_fault_of(struct fault *fault, const char *what, int gnutls_code) {
    return fault_set(fault, CO_INVALID, "%s: %s", what, gnutls_strerror(gnutls_code));
}

void tls_take(struct buffer *out, gnutls_datum_t *made) {
    buffer_reserve(out, made->size);
    buffer_append(out, made->data, made->size);
    gnutls_memset(made->data, 0, made->size);
    gnutls_free(made->data);
    *made = (gnutls_datum_t){0};
}

/* -- keys --------------------------------------------------------------------------------------------------------- */
int tls_key_make(struct buffer *key, struct fault *fault) {
    gnutls_x509_privkey_t made;
    CHECK(gnutls_x509_privkey_init(&made) == 0);
    int rv = gnutls_x509_privkey_generate(made, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    if (rv == 0) {
        gnutls_datum_t pem = {0};
        CHECK(gnutls_x509_privkey_export2(made, GNUTLS_X509_FMT_PEM, &pem) == 0);
        tls_take(key, &pem);
    }
    gnutls_x509_privkey_deinit(made);
    return rv == 0 ? CO_OK : fault_set(fault, CO_IO, "no key can be made: %s", gnutls_strerror(rv));
}

int tls_load_key(struct slice pem, gnutls_x509_privkey_t *key, struct fault *fault) {
    if (pem.size == 0) return fault_set(fault, CO_INVALID, "there is no private key: it is empty");
    CHECK(gnutls_x509_privkey_init(key) == 0);
    int rv = key_import(*key, pem);
    if (rv == 0) return CO_OK;
    gnutls_x509_privkey_deinit(*key);
    *key = NULL;
    if (memmem(pem.data, pem.size, "ENCRYPTED", 9))
        return fault_set(fault, CO_INVALID, "the private key is encrypted by a password; coord takes keys without one");
    return tls_fault_of(fault, "no private key in PEM", rv);
}

int tls_domain_make(char domain[TLS_DOMAIN_SIZE + 1], struct fault *fault) {
    uint8_t drawn[TLS_DOMAIN_SIZE / 2];
    int rv = gnutls_rnd(GNUTLS_RND_RANDOM, drawn, sizeof drawn);
    if (rv != 0) return fault_set(fault, CO_IO, "no random bytes: %s", gnutls_strerror(rv));
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof drawn; i++) {
        domain[2 * i] = digits[drawn[i] >> 4];
        domain[2 * i + 1] = digits[drawn[i] & 15];
    }
    domain[TLS_DOMAIN_SIZE] = '\0';
    return CO_OK;
}

/* -- requests ----------------------------------------------------------------------------------------------------- */
int tls_request_make(struct slice key, struct buffer *request, struct fault *fault) {
    gnutls_x509_privkey_t with;
    int rv = tls_load_key(key, &with, fault);
    if (rv != CO_OK) return rv;
    gnutls_x509_crq_t made;
    CHECK(gnutls_x509_crq_init(&made) == 0);
    gnutls_datum_t der = {0};
    int code = gnutls_x509_crq_set_version(made, 1);
    if (code == 0) code = gnutls_x509_crq_set_key(made, with);
    if (code == 0) code = gnutls_x509_crq_sign2(made, with, GNUTLS_DIG_SHA256, 0);
    if (code == 0) code = gnutls_x509_crq_export2(made, GNUTLS_X509_FMT_DER, &der);
    if (code == 0) tls_take(request, &der);
    gnutls_x509_crq_deinit(made);
    gnutls_x509_privkey_deinit(with);
    return code == 0 ? CO_OK : tls_fault_of(fault, "no request can be made with this key", code);
}

/* Before the signature is looked at: a large RSA key would take long. */
static int check_kind_of_key(gnutls_x509_crq_t request, struct fault *fault) {
    gnutls_pubkey_t key;
    gnutls_ecc_curve_t curve = GNUTLS_ECC_CURVE_INVALID;
    CHECK(gnutls_pubkey_init(&key) == 0);
    int rv = gnutls_x509_crq_get_pk_algorithm(request, NULL);
    const char *kind = rv > 0 ? gnutls_pk_get_name((gnutls_pk_algorithm_t)rv) : "unknown";
    bool ec = rv == GNUTLS_PK_ECDSA && gnutls_pubkey_import_x509_crq(key, request, 0) == 0 &&
              gnutls_pubkey_export_ecc_raw2(key, &curve, NULL, NULL, 0) == 0;
    gnutls_pubkey_deinit(key);
    if (ec && (curve == GNUTLS_ECC_CURVE_SECP256R1 || curve == GNUTLS_ECC_CURVE_SECP384R1)) return CO_OK;
    return fault_set(fault, CO_INVALID, "the key of a certificate request is EC, P-256 or P-384; this one is %s%s%s",
                     kind, ec ? ", " : "", ec ? gnutls_ecc_curve_get_name(curve) : "");
}

/* Bytes after the request, or a form that is not DER, are not the request that was signed. */
static bool is_exact(gnutls_x509_crq_t request, struct slice der) {
    gnutls_datum_t again = {0};
    if (gnutls_x509_crq_export2(request, GNUTLS_X509_FMT_DER, &again) != 0) return false;
    bool same = slice_equal(slice_make(again.data, again.size), der);
    gnutls_free(again.data);
    return same;
}

static int check_request(gnutls_x509_crq_t request, struct slice der, struct fault *fault) {
    if (!is_exact(request, der)) return fault_set(fault, CO_INVALID, "the certificate request is not in DER");
    int rv = check_kind_of_key(request, fault);
    if (rv != CO_OK) return rv;
    if (gnutls_x509_crq_verify(request, 0) < 0)
        return fault_set(fault, CO_INVALID,
                         "the signature of the certificate request is wrong: it was not made with "
                         "the key that it names");
    return CO_OK;
}

int tls_load_request(struct slice der, gnutls_x509_crq_t *request, struct fault *fault) {
    if (der.size > TLS_REQUEST_MAX)
        return fault_set(fault, CO_INVALID, "a certificate request of %zu bytes is too large, %d are the most",
                         der.size, TLS_REQUEST_MAX);
    CHECK(gnutls_x509_crq_init(request) == 0);
    gnutls_datum_t bytes = tls_datum(der);
    int code = gnutls_x509_crq_import(*request, &bytes, GNUTLS_X509_FMT_DER);
    int rv = code == 0 ? check_request(*request, der, fault) : tls_fault_of(fault, "no certificate request", code);
    if (rv == CO_OK) return CO_OK;
    gnutls_x509_crq_deinit(*request);
    *request = NULL;
    return rv;
}

int tls_request_check(struct slice request, uint8_t pin[TLS_PIN_SIZE], struct fault *fault) {
    gnutls_x509_crq_t loaded;
    int rv = tls_load_request(request, &loaded, fault);
    if (rv != CO_OK) return rv;
    size_t size = TLS_PIN_SIZE;
    int code = gnutls_x509_crq_get_key_id(loaded, GNUTLS_KEYID_USE_SHA256, pin, &size);
    CHECK(code == 0 && size == TLS_PIN_SIZE);
    gnutls_x509_crq_deinit(loaded);
    return CO_OK;
}
