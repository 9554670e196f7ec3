#include "acl/jwt_keys.h"

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_in.h"
#include "base/json_value.h"
#include "base/memory.h"
#include "base/text.h"

#define KID_MOST      1024
#define EXPONENT_MOST 8 /* bytes */

/* ---- algorithms ---- */

enum kind { KIND_RSA, KIND_P256, KIND_P384, KIND_P521, KIND_ED25519, KINDS };

static const struct {
    const char *name;
    enum kind kind;
    gnutls_sign_algorithm_t sign;
} algs[JWT_ALGS] = {
    [JWT_RS256] = {"RS256", KIND_RSA, GNUTLS_SIGN_RSA_SHA256},
    [JWT_RS384] = {"RS384", KIND_RSA, GNUTLS_SIGN_RSA_SHA384},
    [JWT_RS512] = {"RS512", KIND_RSA, GNUTLS_SIGN_RSA_SHA512},
    [JWT_PS256] = {"PS256", KIND_RSA, GNUTLS_SIGN_RSA_PSS_RSAE_SHA256},
    [JWT_PS384] = {"PS384", KIND_RSA, GNUTLS_SIGN_RSA_PSS_RSAE_SHA384},
    [JWT_PS512] = {"PS512", KIND_RSA, GNUTLS_SIGN_RSA_PSS_RSAE_SHA512},
    [JWT_ES256] = {"ES256", KIND_P256, GNUTLS_SIGN_ECDSA_SHA256},
    [JWT_ES384] = {"ES384", KIND_P384, GNUTLS_SIGN_ECDSA_SHA384},
    [JWT_ES512] = {"ES512", KIND_P521, GNUTLS_SIGN_ECDSA_SHA512},
    [JWT_EDDSA] = {"EdDSA", KIND_ED25519, GNUTLS_SIGN_EDDSA_ED25519},
};

static const struct {
    const char *name; /* "crv" of a JWK */
    gnutls_ecc_curve_t curve;
    size_t size; /* of a coordinate, and of each half of a signature */
} curves[KINDS] = {
    [KIND_P256] = {"P-256", GNUTLS_ECC_CURVE_SECP256R1, 32},
    [KIND_P384] = {"P-384", GNUTLS_ECC_CURVE_SECP384R1, 48},
    [KIND_P521] = {"P-521", GNUTLS_ECC_CURVE_SECP521R1, 66},
    [KIND_ED25519] = {"Ed25519", GNUTLS_ECC_CURVE_ED25519, 32},
};

const char *jwt_alg_name(enum jwt_alg alg) {
    CHECK(alg < JWT_ALGS);
    return algs[alg].name;
}

bool jwt_alg_parse(struct slice text, enum jwt_alg *alg) {
    for (*alg = 0; *alg < JWT_ALGS; ++*alg) {
        if (slice_is(text, algs[*alg].name)) return true;
    }
    return false;
}

/* ---- keys ---- */

struct key {
    gnutls_pubkey_t public;
    enum kind kind;
    size_t rsa_bits;
    bool only; /* only for this algorithm: a JWK's "alg" */
    enum jwt_alg alg;
    char *kid; /* NULL: none */
    size_t kid_size;
};
struct jwt_keys {
    struct key items[JWT_KEYS_MOST];
    size_t count;
};

struct jwt_keys *jwt_keys_new(void) {
    return mem_zalloc(sizeof(struct jwt_keys));
}

static void key_free(struct key *key) {
    gnutls_pubkey_deinit(key->public);
    free(key->kid);
}

static void cut(struct jwt_keys *keys, size_t count) {
    while (keys->count > count) key_free(&keys->items[--keys->count]);
}

/* Takes the key over, or frees it when there is no room. */
static void add(struct jwt_keys *keys, struct key *key, struct fault *fault) {
    if (keys->count < JWT_KEYS_MOST) {
        keys->items[keys->count++] = *key;
        return;
    }
    key_free(key);
    fault_set(fault, CO_TOOLARGE, "more than %d public keys", JWT_KEYS_MOST);
}

void jwt_keys_free(struct jwt_keys *keys) {
    if (!keys) return;
    cut(keys, 0);
    free(keys);
}

size_t jwt_keys_count(const struct jwt_keys *keys) { return keys->count; }

static gnutls_datum_t datum(struct slice bytes) {
    return (gnutls_datum_t){(unsigned char *)(uintptr_t)bytes.data, (unsigned)bytes.size};
}

/* Sets the kind of an imported key; CO_INVALID when no algorithm fits it. */
static int judge_key(struct key *key, const char *what, struct fault *fault) {
    unsigned bits = 0;
    if (gnutls_pubkey_verify_params(key->public) != 0)
        return fault_set(fault, CO_INVALID, "%s: its numbers make no key", what);
    gnutls_ecc_curve_t curve = GNUTLS_ECC_CURVE_INVALID;
    int kind = gnutls_pubkey_get_pk_algorithm(key->public, &bits);
    if (kind == GNUTLS_PK_RSA) {
        key->kind = KIND_RSA;
        key->rsa_bits = bits;
        if (bits < JWT_RSA_BITS_MIN || bits > JWT_RSA_BITS_MOST)
            return fault_set(fault, CO_INVALID, "%s: an RSA key of %u bits; %d to %d are taken", what, bits,
                             JWT_RSA_BITS_MIN, JWT_RSA_BITS_MOST);
        return CO_OK;
    }
    bool ec = kind == GNUTLS_PK_ECDSA || kind == GNUTLS_PK_EDDSA_ED25519;
    if (ec && gnutls_pubkey_export_ecc_raw2(key->public, &curve, NULL, NULL, 0) != 0) curve = GNUTLS_ECC_CURVE_INVALID;
    for (key->kind = KIND_P256; key->kind < KINDS; key->kind++) {
        if (ec && curves[key->kind].curve == curve) return CO_OK;
    }
    return fault_set(fault, CO_INVALID, "%s: neither RSA nor P-256, P-384, P-521 or Ed25519", what);
}

/* ---- PEM ---- */

static size_t count_of(struct slice text, struct slice part) {
    size_t count = 0;
    while (text.size) {
        const char *found = memmem(text.data, text.size, part.data, part.size);
        if (!found) break;
        count++;
        text = slice_make(found + part.size, text.size - (size_t)(found + part.size - text.data));
    }
    return count;
}

static int import_pem(gnutls_pubkey_t public, struct slice pem) {
    gnutls_datum_t text = datum(pem);
    if (count_of(pem, SLICE_LITERAL("-----BEGIN CERTIFICATE-----")) == 0)
        return gnutls_pubkey_import(public, &text, GNUTLS_X509_FMT_PEM);
    gnutls_x509_crt_t certificate;
    int rv = gnutls_x509_crt_init(&certificate);
    if (rv != 0) return rv;
    rv = gnutls_x509_crt_import(certificate, &text, GNUTLS_X509_FMT_PEM);
    if (rv == 0) rv = gnutls_pubkey_import_x509(public, certificate, 0);
    gnutls_x509_crt_deinit(certificate);
    return rv;
}

static int read_pem(struct key *key, struct slice pem, struct fault *fault) {
    size_t begins = count_of(pem, SLICE_LITERAL("-----BEGIN "));
    if (pem.size > JWT_DOCUMENT_MOST)
        return fault_set(fault, CO_TOOLARGE, "public key: more than %zu KiB", JWT_DOCUMENT_MOST >> 10);
    if (memmem(pem.data, pem.size, "PRIVATE KEY-----", 16))
        return fault_set(fault, CO_INVALID, "public key: this is a private key");
    if (begins != 1)
        return fault_set(fault, CO_INVALID, "public key: PEM with one PUBLIC KEY or CERTIFICATE is needed%s",
                         begins ? ", not with several" : "");
    int rv = import_pem(key->public, pem);
    if (rv != 0) return fault_set(fault, CO_INVALID, "public key: %s", gnutls_strerror(rv));
    return judge_key(key, "public key", fault);
}

int jwt_keys_add_pem(struct jwt_keys *keys, struct slice pem, struct fault *fault) {
    struct fault own = {0};
    struct key key = {0};
    CHECK(gnutls_pubkey_init(&key.public) == 0);
    if (read_pem(&key, pem, &own) == CO_OK) add(keys, &key, &own);
    else key_free(&key);
    return own.code == CO_OK ? CO_OK : fault_set(fault, own.code, "%s", own.text);
}

/* ---- JWK sets ---- */

/* JOSE's names have case: these look for the name as it is, unlike json_get. */
static struct json_object *member(struct json_object *object, const char *name) {
    struct json_object *value = NULL;
    json_object_object_get_ex(object, name, &value);
    return value;
}

/* The text of a member; data NULL: it is not there, or no text. */
static struct slice text_of(struct json_object *object, const char *name) {
    struct json_object *value = member(object, name);
    return json_object_is_type(value, json_type_string) ? json_text(value) : (struct slice){0};
}

/* Does the array have this text? */
static bool has_text(struct json_object *array, const char *text) {
    size_t count = json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_array_get_idx(array, i);
        if (json_object_is_type(item, json_type_string) && slice_is(json_text(item), text)) return true;
    }
    return false;
}

/* The bytes of a member in base64url, at most `most`; false: there are none, or more. */
static bool bytes_of(struct json_object *jwk, const char *name, size_t most, struct buffer *bytes) {
    struct slice text = text_of(jwk, name);
    return text.data && text.size / 4 * 3 <= most && base64url_decode(bytes, text) == CO_OK && bytes->size > 0 &&
           bytes->size <= most;
}

/* A big-endian number as GnuTLS takes it. */
static int import_rsa(struct key *key, struct json_object *jwk) {
    struct buffer modulus = {0}, exponent = {0};
    int rv = GNUTLS_E_INVALID_REQUEST;
    if (bytes_of(jwk, "n", JWT_RSA_BITS_MOST / 8, &modulus) && bytes_of(jwk, "e", EXPONENT_MOST, &exponent)) {
        gnutls_datum_t n = datum(buffer_slice(&modulus)), e = datum(buffer_slice(&exponent));
        /* 0 and 1 leave a message as it is; a right one is odd. */
        bool right = e.data[e.size - 1] % 2 == 1 && (e.data[e.size - 1] > 1 || e.size > 1) && e.data[0] != 0 &&
                     n.data[n.size - 1] % 2 == 1;
        if (right) rv = gnutls_pubkey_import_rsa_raw(key->public, &n, &e);
    }
    buffer_free(&modulus);
    buffer_free(&exponent);
    return rv;
}

static int import_curve(struct key *key, struct json_object *jwk, enum kind kind) {
    struct buffer x = {0}, y = {0};
    int rv = GNUTLS_E_INVALID_REQUEST;
    bool edwards = kind == KIND_ED25519;
    size_t size = curves[kind].size;
    if (bytes_of(jwk, "x", size, &x) && x.size == size &&
        (edwards || (bytes_of(jwk, "y", size, &y) && y.size == size))) {
        gnutls_datum_t first = datum(buffer_slice(&x)), second = datum(buffer_slice(&y));
        rv = gnutls_pubkey_import_ecc_raw(key->public, curves[kind].curve, &first, edwards ? NULL : &second);
    }
    buffer_free(&x);
    buffer_free(&y);
    return rv;
}

/* The kind by "kty" and "crv"; KINDS: none of ours. */
static enum kind kind_of(struct json_object *jwk) {
    struct slice type = text_of(jwk, "kty"), curve = text_of(jwk, "crv");
    if (slice_is(type, "RSA")) return KIND_RSA;
    for (enum kind kind = KIND_P256; kind < KINDS; kind++) {
        const char *wanted = kind == KIND_ED25519 ? "OKP" : "EC";
        if (slice_is(type, wanted) && slice_is(curve, curves[kind].name)) return kind;
    }
    return KINDS;
}

/* May it verify signatures of tokens, as far as it says so? Sets the algorithm that it is for. */
static bool is_ours(struct json_object *jwk, struct key *key) {
    struct json_object *use = member(jwk, "use"), *operations = member(jwk, "key_ops"), *alg = member(jwk, "alg");
    if (kind_of(jwk) == KINDS) return false;
    if (use && !slice_is(text_of(jwk, "use"), "sig")) return false;
    if (operations && !has_text(operations, "verify")) return false;
    key->only = alg != NULL;
    return !alg || (jwt_alg_parse(text_of(jwk, "alg"), &key->alg) && algs[key->alg].kind == kind_of(jwk));
}

static int read_jwk(struct key *key, struct json_object *jwk, const char *what, struct fault *fault) {
    enum kind kind = kind_of(jwk);
    struct slice kid = text_of(jwk, "kid");
    if ((member(jwk, "kid") && !kid.data) || kid.size > KID_MOST)
        return fault_set(fault, CO_INVALID, "%s: \"kid\" is no text of up to %d bytes", what, KID_MOST);
    if (kid.data) key->kid = mem_strndup(kid.data, kid.size);
    key->kid_size = kid.size;
    int rv = kind == KIND_RSA ? import_rsa(key, jwk) : import_curve(key, jwk, kind);
    if (rv != 0) return fault_set(fault, CO_INVALID, "%s: it is broken (%s)", what, gnutls_strerror(rv));
    return judge_key(key, what, fault);
}

/* Adds the key if it is one of ours; `passed` says why a broken one was passed over. */
static void take_jwk(struct jwt_keys *keys, struct json_object *jwk, size_t number, struct fault *passed,
                     struct fault *fault) {
    char what[32];
    struct key key = {0};
    snprintf(what, sizeof what, "JWK %zu", number + 1);
    if (!json_object_is_type(jwk, json_type_object)) {
        fault_set(fault, CO_INVALID, "%s: no object", what);
    } else if (member(jwk, "d")) {
        fault_set(fault, CO_INVALID, "%s: this is a private key", what);
    } else if (is_ours(jwk, &key)) {
        CHECK(gnutls_pubkey_init(&key.public) == 0);
        if (read_jwk(&key, jwk, what, passed) == CO_OK) add(keys, &key, fault);
        else key_free(&key);
    }
}

static void read_set(struct jwt_keys *keys, struct json_object *set, struct fault *fault) {
    struct json_object *list = member(set, "keys");
    struct fault passed = {0};
    size_t before = keys->count;
    if (!json_object_is_type(list, json_type_array)) {
        fault_set(fault, CO_INVALID, "JWK set: \"keys\" is no array");
        return;
    }
    for (size_t i = 0; i < json_object_array_length(list) && fault->code == CO_OK; i++)
        take_jwk(keys, json_object_array_get_idx(list, i), i, &passed, fault);
    if (keys->count > before) return;
    fault_set(fault, CO_INVALID, "%s", passed.code ? passed.text : "JWK set: none of its keys verifies signatures");
}

int jwt_keys_add_jwks(struct jwt_keys *keys, struct slice document, struct fault *fault) {
    struct fault own = {0};
    size_t before = keys->count;
    if (document.size > JWT_DOCUMENT_MOST)
        return fault_set(fault, CO_TOOLARGE, "JWK set: more than %zu KiB", JWT_DOCUMENT_MOST >> 10);
    struct json_object *set = json_parse(document, &own);
    if (set && json_refuse_duplicates(document, &own) == CO_OK) read_set(keys, set, &own);
    if (own.code != CO_OK) cut(keys, before);
    json_object_put(set);
    return own.code == CO_OK ? CO_OK : fault_set(fault, own.code, "%s", own.text);
}

/* ---- verifying ---- */

/* The halves r and s, as RFC 7518 has them, in the form that GnuTLS reads. */
static bool verify_halves(const struct key *key, gnutls_sign_algorithm_t sign, const gnutls_datum_t *input,
                          struct slice signature) {
    size_t size = curves[key->kind].size;
    if (signature.size != 2 * size) return false;
    gnutls_datum_t r = datum(slice_make(signature.data, size)), s = datum(slice_make(signature.data + size, size)),
                   both;
    if (gnutls_encode_rs_value(&both, &r, &s) != 0) return false;
    bool right = gnutls_pubkey_verify_data2(key->public, sign, 0, input, &both) >= 0;
    gnutls_free(both.data);
    return right;
}

static bool verify(const struct key *key, enum jwt_alg alg, struct slice input, struct slice signature) {
    gnutls_datum_t signed_data = datum(input), bytes = datum(signature);
    if (key->kind != KIND_RSA && key->kind != KIND_ED25519)
        return verify_halves(key, algs[alg].sign, &signed_data, signature);
    size_t size = key->kind == KIND_RSA ? (key->rsa_bits + 7) / 8 : 64;
    return signature.size == size &&
           gnutls_pubkey_verify_data2(key->public, algs[alg].sign, 0, &signed_data, &bytes) >= 0;
}

bool jwt_keys_verify(const struct jwt_keys *keys, enum jwt_alg alg, struct slice kid, struct slice input,
                     struct slice signature) {
    CHECK(alg < JWT_ALGS);
    for (size_t i = 0; i < keys->count; i++) {
        const struct key *key = &keys->items[i];
        bool named = key->kid && kid.data;
        if (key->kind != algs[alg].kind || (key->only && key->alg != alg)) continue;
        if (named && !slice_equal(kid, slice_make(key->kid, key->kid_size))) continue;
        if (verify(key, alg, input, signature)) return true;
    }
    return false;
}
