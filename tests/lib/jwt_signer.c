#include "tests/lib/jwt_signer.h"

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/text.h"

struct jwt_signer {
    gnutls_privkey_t private;
    gnutls_pubkey_t public;
};

static const struct {
    int kind;
    unsigned bits;
    gnutls_sign_algorithm_t sign;
    size_t half; /* of an ECDSA signature */
} algs[JWT_ALGS] = {
    [JWT_RS256] = {GNUTLS_PK_RSA, 2048, GNUTLS_SIGN_RSA_SHA256, 0},
    [JWT_RS384] = {GNUTLS_PK_RSA, 2048, GNUTLS_SIGN_RSA_SHA384, 0},
    [JWT_RS512] = {GNUTLS_PK_RSA, 2048, GNUTLS_SIGN_RSA_SHA512, 0},
    [JWT_PS256] = {GNUTLS_PK_RSA, 2048, GNUTLS_SIGN_RSA_PSS_RSAE_SHA256, 0},
    [JWT_PS384] = {GNUTLS_PK_RSA, 2048, GNUTLS_SIGN_RSA_PSS_RSAE_SHA384, 0},
    [JWT_PS512] = {GNUTLS_PK_RSA, 2048, GNUTLS_SIGN_RSA_PSS_RSAE_SHA512, 0},
    [JWT_ES256] = {GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), GNUTLS_SIGN_ECDSA_SHA256, 32},
    [JWT_ES384] = {GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP384R1), GNUTLS_SIGN_ECDSA_SHA384, 48},
    [JWT_ES512] = {GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP521R1), GNUTLS_SIGN_ECDSA_SHA512, 66},
    [JWT_EDDSA] = {GNUTLS_PK_EDDSA_ED25519, 0, GNUTLS_SIGN_EDDSA_ED25519, 0},
};

struct jwt_signer *jwt_signer_new_bits(int kind, unsigned bits) {
    struct jwt_signer *signer = mem_zalloc(sizeof *signer);
    CHECK(gnutls_privkey_init(&signer->private) == 0 && gnutls_pubkey_init(&signer->public) == 0);
    CHECK(gnutls_privkey_generate(signer->private, (gnutls_pk_algorithm_t)kind, bits, 0) == 0);
    CHECK(gnutls_pubkey_import_privkey(signer->public, signer->private, 0, 0) == 0);
    return signer;
}

struct jwt_signer *jwt_signer_load(struct slice private_pem) {
    struct jwt_signer *signer = mem_zalloc(sizeof *signer);
    gnutls_datum_t pem = {(unsigned char *)(uintptr_t)private_pem.data, (unsigned)private_pem.size};
    CHECK(gnutls_privkey_init(&signer->private) == 0 && gnutls_pubkey_init(&signer->public) == 0);
    CHECK(gnutls_privkey_import_x509_raw(signer->private, &pem, GNUTLS_X509_FMT_PEM, NULL, 0) == 0);
    CHECK(gnutls_pubkey_import_privkey(signer->public, signer->private, 0, 0) == 0);
    return signer;
}

struct jwt_signer *jwt_signer_new(enum jwt_alg alg) {
    return jwt_signer_new_bits(algs[alg].kind, algs[alg].bits);
}

void jwt_signer_free(struct jwt_signer *signer) {
    gnutls_privkey_deinit(signer->private);
    gnutls_pubkey_deinit(signer->public);
    free(signer);
}

static void take(struct buffer *out, gnutls_datum_t *made) {
    buffer_append(out, made->data, made->size);
    gnutls_free(made->data);
}

void jwt_signer_pem(const struct jwt_signer *signer, struct buffer *out) {
    gnutls_datum_t pem;
    CHECK(gnutls_pubkey_export2(signer->public, GNUTLS_X509_FMT_PEM, &pem) == 0);
    take(out, &pem);
}

void jwt_signer_private_pem(const struct jwt_signer *signer, struct buffer *out) {
    gnutls_x509_privkey_t key;
    gnutls_datum_t pem;
    CHECK(gnutls_privkey_export_x509(signer->private, &key) == 0);
    CHECK(gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &pem) == 0);
    gnutls_x509_privkey_deinit(key);
    take(out, &pem);
}

void base64url_encode(struct buffer *out, const void *data, size_t size) {
    size_t before = out->size;
    base64_encode(out, data, size);
    while (out->size > before && out->data[out->size - 1] == '=') out->size--;
    for (size_t i = before; i < out->size; i++) {
        if (out->data[i] == '+') out->data[i] = '-';
        if (out->data[i] == '/') out->data[i] = '_';
    }
}

static void jwk_number(struct buffer *out, const char *name, gnutls_datum_t *number, size_t size) {
    struct buffer padded = {0};
    for (size_t i = number->size; i < size; i++) buffer_append_byte(&padded, 0);
    take(&padded, number);
    buffer_printf(out, ",\"%s\":\"", name);
    base64url_encode(out, padded.data, padded.size);
    buffer_append_byte(out, '"');
    buffer_free(&padded);
}

void jwt_signer_jwk(const struct jwt_signer *signer, const char *more, struct buffer *out) {
    static const struct {
        gnutls_ecc_curve_t curve;
        const char *name;
        size_t size;
    } curves[] = {{GNUTLS_ECC_CURVE_SECP256R1, "P-256", 32},
                  {GNUTLS_ECC_CURVE_SECP384R1, "P-384", 48},
                  {GNUTLS_ECC_CURVE_SECP521R1, "P-521", 66}};
    gnutls_datum_t x, y;
    gnutls_ecc_curve_t curve;
    int kind = gnutls_pubkey_get_pk_algorithm(signer->public, NULL);
    if (kind == GNUTLS_PK_RSA) {
        CHECK(gnutls_pubkey_export_rsa_raw2(signer->public, &x, &y, GNUTLS_EXPORT_FLAG_NO_LZ) == 0);
        buffer_append_text(out, "{\"kty\":\"RSA\"");
        jwk_number(out, "n", &x, 0);
        jwk_number(out, "e", &y, 0);
    } else {
        CHECK(gnutls_pubkey_export_ecc_raw2(signer->public, &curve, &x, &y, GNUTLS_EXPORT_FLAG_NO_LZ) == 0);
        if (kind == GNUTLS_PK_EDDSA_ED25519) {
            buffer_append_text(out, "{\"kty\":\"OKP\",\"crv\":\"Ed25519\"");
            jwk_number(out, "x", &x, 32);
        }
        for (size_t i = 0; i < ARRAY_COUNT(curves); i++) {
            if (curves[i].curve != curve) continue;
            buffer_printf(out, "{\"kty\":\"EC\",\"crv\":\"%s\"", curves[i].name);
            jwk_number(out, "x", &x, curves[i].size);
            jwk_number(out, "y", &y, curves[i].size);
        }
    }
    buffer_append_text(out, more);
    buffer_append_byte(out, '}');
}

/* RFC 7518, 3.4: r and s, each as long as the curve. */
static void append_halves(struct buffer *out, const gnutls_datum_t *both, size_t size) {
    gnutls_datum_t halves[2];
    CHECK(gnutls_decode_rs_value(both, &halves[0], &halves[1]) == 0);
    for (size_t i = 0; i < 2; i++) {
        size_t zeros = halves[i].size && halves[i].data[0] == 0 ? 1 : 0; /* a sign */
        for (size_t j = halves[i].size - zeros; j < size; j++) buffer_append_byte(out, 0);
        buffer_append(out, halves[i].data + zeros, halves[i].size - zeros);
        gnutls_free(halves[i].data);
    }
}

void jwt_sign(const struct jwt_signer *signer, enum jwt_alg alg, struct slice header, struct slice payload,
              struct buffer *token) {
    struct buffer bytes = {0};
    gnutls_datum_t made;
    size_t start = token->size;
    base64url_encode(token, header.data, header.size);
    buffer_append_byte(token, '.');
    base64url_encode(token, payload.data, payload.size);
    gnutls_datum_t input = {(unsigned char *)token->data + start, (unsigned)(token->size - start)};
    CHECK(gnutls_privkey_sign_data2(signer->private, algs[alg].sign, 0, &input, &made) == 0);
    if (algs[alg].half) append_halves(&bytes, &made, algs[alg].half);
    else buffer_append(&bytes, made.data, made.size);
    gnutls_free(made.data);
    buffer_append_byte(token, '.');
    base64url_encode(token, bytes.data, bytes.size);
    buffer_free(&bytes);
}
