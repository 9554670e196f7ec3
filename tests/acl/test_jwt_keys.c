#include "acl/jwt_keys.h"

#include <criterion/criterion.h>
#include <gnutls/crypto.h>
#include <stdio.h>

#include "acl/jwt.h"
#include "base/check.h"
#include "tests/lib/jwt_signer.h"
#include "tls/certificate.h"

static int open_token(const struct jwt_keys *keys, const char *token) {
    struct buffer payload = {0};
    int rv = jwt_open(keys, 0, slice_text(token), &payload, NULL);
    buffer_free(&payload);
    return rv;
}

/* ---- algorithms and kinds of keys ---- */

#define HEADER "{\"alg\":\"%s\"}"

static void sign_text(const struct jwt_signer *signer, enum jwt_alg alg, const char *header, struct buffer *token) {
    token->size = 0;
    jwt_sign(signer, alg, slice_text(header), SLICE_LITERAL("{\"iat\":1}"), token);
    buffer_append_byte(token, '\0');
}

static struct jwt_keys *keys_of_signer(const struct jwt_signer *signer, bool pem, const char *more) {
    struct jwt_keys *keys = jwt_keys_new();
    struct buffer text = {0};
    struct fault fault = {0};
    if (pem) jwt_signer_pem(signer, &text);
    else {
        buffer_append_text(&text, "{\"keys\":[");
        jwt_signer_jwk(signer, more, &text);
        buffer_append_text(&text, "]}");
    }
    int rv = pem ? jwt_keys_add_pem(keys, buffer_slice(&text), &fault)
                 : jwt_keys_add_jwks(keys, buffer_slice(&text), &fault);
    cr_assert_eq(rv, CO_OK, "%s", fault.text);
    buffer_free(&text);
    return keys;
}

static bool same_kind(enum jwt_alg a, enum jwt_alg b) { return a == b || (a <= JWT_PS512 && b <= JWT_PS512); }

/* A signature counts only with the key that made it, under the algorithm that made it, whatever the header says. */
Test(jwt_keys, every_algorithm_with_its_own_keys_only) {
    struct jwt_signer *signers[JWT_ALGS];
    for (enum jwt_alg i = 0; i < JWT_ALGS; i++)
        signers[i] = i > JWT_RS256 && i <= JWT_PS512 ? signers[0] : jwt_signer_new(i);
    for (unsigned pem = 0; pem < 2; pem++) {
        for (enum jwt_alg key = 0; key < JWT_ALGS; key++) {
            struct jwt_keys *keys = keys_of_signer(signers[key], pem, "");
            for (enum jwt_alg alg = 0; alg < JWT_ALGS; alg++) {
                struct buffer token = {0};
                char header[64];
                for (enum jwt_alg said = 0; said < JWT_ALGS; said++) {
                    snprintf(header, sizeof header, HEADER, jwt_alg_name(said));
                    sign_text(signers[alg], alg, header, &token);
                    bool right = said == alg && same_kind(key, alg);
                    cr_expect_eq(open_token(keys, token.data), right ? CO_OK : CO_DENIED,
                                 "%s, said %s, with a key for %s", jwt_alg_name(alg), header, jwt_alg_name(key));
                }
                buffer_free(&token);
            }
            jwt_keys_free(keys);
        }
    }
    for (enum jwt_alg i = 0; i < JWT_ALGS; i++) {
        if (i == JWT_RS256 || i > JWT_PS512) jwt_signer_free(signers[i]);
    }
}

/* RFC 7518, 3.4: ES256 is P-256 with SHA-256, although other curves can be used with that hash. */
Test(jwt_keys, a_curve_has_one_algorithm) {
    struct jwt_signer *signer = jwt_signer_new(JWT_ES384);
    struct jwt_keys *keys = keys_of_signer(signer, true, "");
    struct buffer token = {0};
    sign_text(signer, JWT_ES256, "{\"alg\":\"ES256\"}", &token);
    cr_expect_eq(open_token(keys, token.data), CO_DENIED);
    sign_text(signer, JWT_ES384, "{\"alg\":\"ES384\"}", &token);
    cr_expect_eq(open_token(keys, token.data), CO_OK);
    buffer_free(&token);
    jwt_keys_free(keys);
    jwt_signer_free(signer);
}

/* The attack of key confusion: the text of a public key as the secret of an HMAC. */
Test(jwt_keys, a_public_key_is_no_secret) {
    struct jwt_signer *signer = jwt_signer_new(JWT_RS256);
    struct jwt_keys *keys = keys_of_signer(signer, true, "");
    static const struct {
        const char *header;
        gnutls_mac_algorithm_t mac;
        size_t size;
    } rows[] = {{"{\"alg\":\"HS256\"}", GNUTLS_MAC_SHA256, 32},
                {"{\"alg\":\"HS384\"}", GNUTLS_MAC_SHA384, 48},
                {"{\"alg\":\"HS512\"}", GNUTLS_MAC_SHA512, 64},
                {"{\"alg\":\"RS256\"}", GNUTLS_MAC_SHA256, 32}};
    struct buffer pem = {0};
    jwt_signer_pem(signer, &pem);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer token = {0};
        char mac[64];
        base64url_encode(&token, rows[i].header, strlen(rows[i].header));
        buffer_append_text(&token, ".e30");
        cr_assert_eq(gnutls_hmac_fast(rows[i].mac, pem.data, pem.size, token.data, token.size, mac), 0);
        buffer_append_byte(&token, '.');
        base64url_encode(&token, mac, rows[i].size);
        buffer_append_byte(&token, '\0');
        cr_expect_eq(open_token(keys, token.data), CO_DENIED, "%s", rows[i].header);
        buffer_free(&token);
    }
    buffer_free(&pem);
    jwt_keys_free(keys);
    jwt_signer_free(signer);
}

/* Other forms of a right signature, and those that some libraries took for one. */
Test(jwt_keys, signatures_of_another_form_are_refused) {
    struct jwt_signer *ec = jwt_signer_new(JWT_ES256), *rsa = jwt_signer_new(JWT_RS256);
    struct jwt_keys *ec_keys = keys_of_signer(ec, true, ""), *rsa_keys = keys_of_signer(rsa, true, "");
    struct buffer token = {0}, other = {0};
    char zeros[300] = {0};
    static const char *const ec_header = "{\"alg\":\"ES256\"}";
    for (size_t size = 0; size <= 130; size++) { /* r and s of zeros, of any length */
        other.size = 0;
        base64url_encode(&other, ec_header, strlen(ec_header));
        buffer_append_text(&other, ".e30.");
        base64url_encode(&other, zeros, size);
        buffer_append_byte(&other, '\0');
        cr_expect_neq(open_token(ec_keys, other.data), CO_OK, "%zu zeros", size);
    }
    sign_text(ec, JWT_ES256, ec_header, &token);
    cr_expect_eq(open_token(ec_keys, token.data), CO_OK);
    size_t signature = (size_t)(strrchr(token.data, '.') + 1 - token.data);
    for (size_t cut = 1; cut < token.size - signature; cut++) { /* too short */
        struct buffer shorter = {0};
        buffer_append(&shorter, token.data, token.size - 1 - cut);
        buffer_append_byte(&shorter, '\0');
        cr_expect_neq(open_token(ec_keys, shorter.data), CO_OK, "cut by %zu", cut);
        buffer_free(&shorter);
    }
    token.size--;
    buffer_append(&token, "AAAA", 5); /* too long */
    cr_expect_neq(open_token(ec_keys, token.data), CO_OK);
    sign_text(rsa, JWT_RS256, "{\"alg\":\"RS256\"}", &token);
    cr_expect_eq(open_token(rsa_keys, token.data), CO_OK);
    other.size = 0;
    signature = (size_t)(strrchr(token.data, '.') + 1 - token.data);
    buffer_append(&other, token.data, signature);
    buffer_append_text(&other, "AAAA"); /* the same number, with zeros before it */
    buffer_append(&other, token.data + signature, token.size - signature);
    cr_expect_eq(open_token(rsa_keys, other.data), CO_DENIED);
    buffer_free(&token);
    buffer_free(&other);
    jwt_keys_free(ec_keys);
    jwt_keys_free(rsa_keys);
    jwt_signer_free(ec);
    jwt_signer_free(rsa);
}

/* ---- which key ---- */

static int open_with(const struct jwt_signer *signer, const struct jwt_keys *keys, const char *header) {
    struct buffer token = {0};
    sign_text(signer, JWT_ES256, header, &token);
    int rv = open_token(keys, token.data);
    buffer_free(&token);
    return rv;
}

Test(jwt_keys, a_kid_is_only_compared) {
    struct jwt_signer *one = jwt_signer_new(JWT_ES256), *other = jwt_signer_new(JWT_ES256);
    struct buffer set = {0};
    struct jwt_keys *keys = jwt_keys_new(), *unnamed = keys_of_signer(one, true, "");
    buffer_append_text(&set, "{\"keys\":[");
    jwt_signer_jwk(one, ",\"kid\":\"one\"", &set);
    buffer_append_byte(&set, ',');
    jwt_signer_jwk(other, ",\"kid\":\"other\"", &set);
    buffer_append_text(&set, "]}");
    cr_assert_eq(jwt_keys_add_jwks(keys, buffer_slice(&set), NULL), CO_OK);
    cr_expect_eq(jwt_keys_count(keys), 2);
    cr_expect_eq(open_with(one, keys, "{\"alg\":\"ES256\",\"kid\":\"one\"}"), CO_OK);
    cr_expect_eq(open_with(other, keys, "{\"alg\":\"ES256\",\"kid\":\"other\"}"), CO_OK);
    cr_expect_eq(open_with(one, keys, "{\"alg\":\"ES256\",\"kid\":\"other\"}"), CO_DENIED);
    cr_expect_eq(open_with(one, keys, "{\"alg\":\"ES256\"}"), CO_OK);
    cr_expect_eq(open_with(other, keys, "{\"alg\":\"ES256\"}"), CO_OK);
    static const char *const kids[] = {"",
                                       "ONE",
                                       "one ",
                                       "on",
                                       "one\\u0000",
                                       "../../../../dev/null",
                                       "/dev/null",
                                       "' OR 1=1 --",
                                       "one|sh",
                                       "%n%s",
                                       "file:///etc/hosts",
                                       "https://a/",
                                       "{\\\"a\\\":1}",
                                       "\\ud83d\\ude00"};
    for (size_t i = 0; i < ARRAY_COUNT(kids); i++) {
        char header[128];
        snprintf(header, sizeof header, "{\"alg\":\"ES256\",\"kid\":\"%s\"}", kids[i]);
        cr_expect_eq(open_with(one, keys, header), CO_DENIED, "%s", header);
        cr_expect_eq(open_with(one, unnamed, header), CO_OK, "%s",
                     header); /* a key without one has nothing to compare */
    }
    static const char *const wrong[] = {"1", "null", "[\"one\"]", "{}", "true"};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        char header[128];
        snprintf(header, sizeof header, "{\"alg\":\"ES256\",\"kid\":%s}", wrong[i]);
        cr_expect_eq(open_with(one, unnamed, header), CO_INVALID, "%s", header);
    }
    buffer_free(&set);
    jwt_keys_free(keys);
    jwt_keys_free(unnamed);
    jwt_signer_free(one);
    jwt_signer_free(other);
}

/* A token that brings its own key along. */
Test(jwt_keys, keys_in_a_header_do_not_count) {
    struct jwt_signer *ours = jwt_signer_new(JWT_ES256), *theirs = jwt_signer_new(JWT_ES256);
    struct jwt_keys *keys = keys_of_signer(ours, false, "");
    struct buffer header = {0};
    buffer_append_text(&header,
                       "{\"alg\":\"ES256\",\"jku\":\"https://127.0.0.1:1/\",\"x5u\":\"https://127.0.0.1:1/\",\"jwk\":");
    jwt_signer_jwk(theirs, "", &header);
    buffer_append(&header, "}", 2);
    cr_expect_eq(open_with(theirs, keys, header.data), CO_DENIED);
    cr_expect_eq(open_with(ours, keys, header.data), CO_OK);
    buffer_free(&header);
    jwt_keys_free(keys);
    jwt_signer_free(ours);
    jwt_signer_free(theirs);
}

/* ---- keys that are taken, and those that are not ---- */

static void expect_jwk(const struct jwt_signer *signer, const char *more, const char *wanted) {
    struct jwt_keys *keys = jwt_keys_new();
    struct buffer set = {0};
    struct fault fault = {0};
    buffer_append_text(&set, "{\"keys\":[");
    jwt_signer_jwk(signer, more, &set);
    buffer_append_text(&set, "]}");
    int rv = jwt_keys_add_jwks(keys, buffer_slice(&set), &fault);
    cr_expect_eq(rv, wanted ? CO_INVALID : CO_OK, "%s: %s", more, fault.text);
    cr_expect_str_eq(fault.text, wanted ? wanted : "", "%s: %s", more, fault.text);
    cr_expect_eq(jwt_keys_count(keys), wanted ? 0 : 1);
    buffer_free(&set);
    jwt_keys_free(keys);
}

Test(jwt_keys, a_jwk_says_what_it_is_for) {
    static const char none[] = "JWK set: none of its keys verifies signatures";
    struct jwt_signer *signer = jwt_signer_new(JWT_ES256);
    expect_jwk(signer, "", NULL);
    expect_jwk(signer, ",\"use\":\"sig\",\"alg\":\"ES256\",\"key_ops\":[\"sign\",\"verify\"],\"x5t\":1,\"more\":{}",
               NULL);
    expect_jwk(signer, ",\"use\":\"enc\"", none);
    expect_jwk(signer, ",\"use\":1", none);
    expect_jwk(signer, ",\"key_ops\":[\"sign\"]", none);
    expect_jwk(signer, ",\"key_ops\":\"verify\"", none);
    expect_jwk(signer, ",\"alg\":\"ES384\"", none);
    expect_jwk(signer, ",\"alg\":\"ECDH-ES\"", none);
    expect_jwk(signer, ",\"alg\":\"none\"", none);
    expect_jwk(signer, ",\"d\":\"AAAA\"", "JWK 1: this is a private key");
    expect_jwk(signer, ",\"kid\":1", "JWK 1: \"kid\" is no text of up to 1024 bytes");
    expect_jwk(signer, ",\"kid\":\"a\",\"kid\":\"b\"",
               "JSON: the key \"kid\" stands a second time in its object, at line 1, column 146");
    jwt_signer_free(signer);
    signer = jwt_signer_new(JWT_RS256); /* "alg" also tells RS256 from PS256, whose keys are alike */
    struct jwt_keys *keys = keys_of_signer(signer, false, ",\"alg\":\"PS256\"");
    struct buffer token = {0};
    sign_text(signer, JWT_PS256, "{\"alg\":\"PS256\"}", &token);
    cr_expect_eq(open_token(keys, token.data), CO_OK);
    sign_text(signer, JWT_RS256, "{\"alg\":\"RS256\"}", &token);
    cr_expect_eq(open_token(keys, token.data), CO_DENIED);
    buffer_free(&token);
    jwt_keys_free(keys);
    jwt_signer_free(signer);
}

Test(jwt_keys, sets_that_are_refused) {
    static const struct {
        const char *set, *wanted;
    } rows[] = {
        {"", "JSON: the text is empty"},
        {"[]", "JWK set: \"keys\" is no array"},
        {"{}", "JWK set: \"keys\" is no array"},
        {"{\"Keys\":[]}", "JWK set: \"keys\" is no array"},
        {"{\"keys\":[]}", "JWK set: none of its keys verifies signatures"},
        {"{\"keys\":[{}]}", "JWK set: none of its keys verifies signatures"},
        {"{\"keys\":[1]}", "JWK 1: no object"},
        {"{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}", "JWK set: none of its keys verifies signatures"},
        {"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"secp256k1\",\"x\":\"AA\",\"y\":\"AA\"}]}",
         "JWK set: none of its keys verifies signatures"},
        {"{\"keys\":[{\"kty\":\"RSA\",\"e\":\"AQAB\"}]}", "JWK 1: it is broken (The request is invalid.)"},
        {"{\"keys\":[{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"AQAB\"}]}",
         "JWK 1: an RSA key of 17 bits; 2048 to 8192 are taken"},
        {"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\"}]}",
         "JWK 1: it is broken (The request is invalid.)"},
        {"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvR\",\"y\":"
         "\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}",
         "JWK 1: it is broken (The request is invalid.)"},
        {"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\",\"y\":"
         "\"y_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}",
         "JWK 1: its numbers make no key"},
        {"{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AAAA\"}]}",
         "JWK 1: it is broken (The request is invalid.)"},
        {"{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"X25519\",\"x\":\"3p7bfXt9wbTTW2HC7OQ1Nz-DQ8hbeGdNrfx-FG-IK08\"}]}",
         "JWK set: none of its keys verifies signatures"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct jwt_keys *keys = jwt_keys_new();
        struct fault fault = {0};
        cr_expect_eq(jwt_keys_add_jwks(keys, slice_text(rows[i].set), &fault), CO_INVALID, "%s", rows[i].set);
        cr_expect_str_eq(fault.text, rows[i].wanted, "%s: %s", rows[i].set, fault.text);
        cr_expect_eq(jwt_keys_count(keys), 0);
        jwt_keys_free(keys);
    }
}

/* RFC 7517, 5: what is not understood is passed over. */
Test(jwt_keys, a_set_keeps_the_keys_that_are_right) {
    struct jwt_signer *signer = jwt_signer_new(JWT_ES256);
    struct jwt_keys *keys = jwt_keys_new();
    struct buffer set = {0};
    struct fault fault = {0};
    buffer_append_text(&set,
                       "{\"more\":1,\"keys\":[{\"kty\":\"new\"},{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"AQAB\"},");
    jwt_signer_jwk(signer, "", &set);
    buffer_append_text(&set, ",{\"kty\":\"EC\",\"crv\":\"P-256\"}]}");
    cr_assert_eq(jwt_keys_add_jwks(keys, buffer_slice(&set), &fault), CO_OK, "%s", fault.text);
    cr_expect_eq(jwt_keys_count(keys), 1);
    cr_expect_eq(open_with(signer, keys, "{\"alg\":\"ES256\"}"), CO_OK);
    cr_expect_eq(jwt_keys_add_jwks(keys, SLICE_LITERAL("{\"keys\":[{\"kty\":\"RSA\",\"d\":\"\"}]}"), NULL), CO_INVALID);
    cr_expect_eq(jwt_keys_count(keys), 1);
    struct buffer private = {0}; /* a good key, then a private one: the document is refused as a whole */
    buffer_append_text(&private, "{\"keys\":[");
    jwt_signer_jwk(signer, "", &private);
    buffer_append_text(&private, ",{\"kty\":\"RSA\",\"d\":\"\"}]}");
    cr_expect_eq(jwt_keys_add_jwks(keys, buffer_slice(&private), NULL), CO_INVALID);
    cr_expect_eq(jwt_keys_count(keys), 1);
    buffer_free(&private);
    for (size_t i = 1; i < JWT_KEYS_MOST; i++) cr_assert_eq(jwt_keys_add_jwks(keys, buffer_slice(&set), NULL), CO_OK);
    cr_expect_eq(jwt_keys_add_jwks(keys, buffer_slice(&set), &fault), CO_TOOLARGE);
    cr_expect_str_eq(fault.text, "more than 64 public keys");
    cr_expect_eq(jwt_keys_count(keys), JWT_KEYS_MOST);
    while (set.size <= JWT_DOCUMENT_MOST) buffer_append_byte(&set, ' ');
    cr_expect_eq(jwt_keys_add_jwks(keys, buffer_slice(&set), NULL), CO_TOOLARGE);
    cr_expect_eq(jwt_keys_add_pem(keys, buffer_slice(&set), NULL), CO_TOOLARGE);
    buffer_free(&set);
    jwt_keys_free(keys);
    jwt_signer_free(signer);
}

static void expect_pem(struct slice pem, const char *wanted) {
    struct jwt_keys *keys = jwt_keys_new();
    struct fault fault = {0};
    int rv = jwt_keys_add_pem(keys, pem, &fault);
    cr_expect_eq(rv, wanted ? CO_INVALID : CO_OK, "%s", fault.text);
    cr_expect_str_eq(fault.text, wanted ? wanted : "", "%s", fault.text);
    cr_expect_eq(jwt_keys_count(keys), wanted ? 0 : 1);
    jwt_keys_free(keys);
}

Test(jwt_keys, pem) {
    struct jwt_signer *signer = jwt_signer_new(JWT_ES384), *rsa = jwt_signer_new_bits(GNUTLS_PK_RSA, 1024),
                      *ed448 = jwt_signer_new_bits(GNUTLS_PK_EDDSA_ED448, 0);
    struct buffer pem = {0};
    jwt_signer_pem(signer, &pem);
    expect_pem(buffer_slice(&pem), NULL);
    buffer_append_text(&pem, "\nand a comment\n");
    expect_pem(buffer_slice(&pem), NULL);
    jwt_signer_pem(signer, &pem);
    expect_pem(buffer_slice(&pem), "public key: PEM with one PUBLIC KEY or CERTIFICATE is needed, not with several");
    pem.size = 0;
    jwt_signer_private_pem(signer, &pem);
    expect_pem(buffer_slice(&pem), "public key: this is a private key");
    pem.size = 0;
    jwt_signer_pem(rsa, &pem);
    expect_pem(buffer_slice(&pem), "public key: an RSA key of 1024 bits; 2048 to 8192 are taken");
    pem.size = 0;
    jwt_signer_pem(ed448, &pem);
    expect_pem(buffer_slice(&pem), "public key: neither RSA nor P-256, P-384, P-521 or Ed25519");
    expect_pem(SLICE_LITERAL(""), "public key: PEM with one PUBLIC KEY or CERTIFICATE is needed");
    expect_pem(SLICE_LITERAL("ssh-ed25519 AAAA"), "public key: PEM with one PUBLIC KEY or CERTIFICATE is needed");
    buffer_free(&pem);
    jwt_signer_free(signer);
    jwt_signer_free(rsa);
    jwt_signer_free(ed448);
}

/* Of a certificate the key counts, also when its time is over. */
Test(jwt_keys, certificates) {
    static const struct tls_life life = {1000000000, 1000000001};
    struct buffer key = {0}, pem = {0};
    cr_assert_eq(tls_key_make(&key, NULL), CO_OK);
    cr_assert_eq(tls_ca_make(buffer_slice(&key), "00112233445566778899aabbccddeeff", life, &pem, NULL), CO_OK);
    struct jwt_signer *signer = jwt_signer_load(buffer_slice(&key));
    struct jwt_keys *keys = jwt_keys_new();
    cr_assert_eq(jwt_keys_add_pem(keys, buffer_slice(&pem), NULL), CO_OK);
    cr_expect_eq(open_with(signer, keys, "{\"alg\":\"ES256\"}"), CO_OK);
    size_t size = pem.size;
    buffer_append(&pem, key.data, key.size);
    expect_pem(buffer_slice(&pem), "public key: this is a private key");
    pem.size = size / 2;
    buffer_append_text(&pem, "\n-----END CERTIFICATE-----\n");
    struct fault fault = {0};
    cr_expect_eq(jwt_keys_add_pem(keys, buffer_slice(&pem), &fault), CO_INVALID);
    cr_expect(slice_starts(slice_text(fault.text), SLICE_LITERAL("public key: ")), "%s", fault.text);
    cr_expect_eq(jwt_keys_count(keys), 1);
    buffer_free(&key);
    buffer_free(&pem);
    jwt_keys_free(keys);
    jwt_signer_free(signer);
}
