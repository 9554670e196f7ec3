/* The first byte says what the others are: a token as it is, a JWK set, a PEM text, or a header, an end of line and a
 * payload, which are signed and verified. A signed token is accepted again as it is, and refused with any one bit changed;
 * nothing that this program has not signed is ever accepted. */
#include <stdlib.h>

#include "acl/jwt.h"
#include "base/check.h"
#include "tests/lib/jwt_signer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct jwt_signer *signer;
static struct jwt_keys *keys;

static void make_keys(void) {
    struct buffer pem = {0};
    signer = jwt_signer_new(JWT_EDDSA);
    keys = jwt_keys_new();
    jwt_signer_pem(signer, &pem);
    CHECK(jwt_keys_add_pem(keys, buffer_slice(&pem), NULL) == CO_OK);
    buffer_free(&pem);
}

static void check_fault(int error, const struct fault *fault) {
    CHECK(fault->code == error);
    if (error == CO_OK) return;
    CHECK(error == CO_INVALID || error == CO_DENIED || error == CO_TOOLARGE);
    CHECK(fault->text[0]);
    for (const char *at = fault->text; *at; at++) CHECK((unsigned char)*at >= ' ' && *at != 0x7f);
}

static void map(struct json_object *claims) {
    static const struct jwt_mapping mappings[] = {
        {"sub", "a"}, {"/a/b/0", "b"}, {"/", "c"}, {"groups", "d"}, {"/~01/x", "e"}};
    for (size_t i = 0; i < ARRAY_COUNT(mappings); i++) {
        struct arena arena = {0};
        struct jwt_variables variables;
        struct fault fault = {0};
        check_fault(jwt_map(claims, &mappings[i], 1, NULL, 0, &arena, &variables, &fault), &fault);
        CHECK(variables.value_count <= 1);
        fault = (struct fault){0};
        check_fault(jwt_map(claims, NULL, 0, &mappings[i], 1, &arena, &variables, &fault), &fault);
        CHECK(variables.list_count <= 1);
        arena_free(&arena);
    }
}

static int verify(struct slice token, int64_t now_s) {
    static const struct slice audiences[] = {{"a", 1}};
    struct jwt_rules rules = {.now_s = now_s};
    struct json_object *claims;
    struct fault fault = {0};
    int error = jwt_verify(keys, &rules, token, &claims, &fault);
    check_fault(error, &fault);
    CHECK((claims != NULL) == (error == CO_OK));
    if (claims) map(claims);
    json_object_put(claims);
    rules.audiences = audiences;
    rules.audience_count = 1;
    fault = (struct fault){0};
    check_fault(jwt_verify(keys, &rules, token, &claims, &fault), &fault);
    json_object_put(claims);
    return error;
}

static void read_token(struct slice token) {
    struct buffer payload = {0};
    struct fault fault = {0};
    int error = jwt_open(keys, 0, token, &payload, &fault);
    check_fault(error, &fault);
    CHECK(error != CO_OK && payload.size == 0);
    CHECK(verify(token, 1000) != CO_OK);
    buffer_free(&payload);
}

static void read_keys(struct slice text, bool pem) {
    struct jwt_keys *read = jwt_keys_new();
    struct fault fault = {0};
    int error = pem ? jwt_keys_add_pem(read, text, &fault) : jwt_keys_add_jwks(read, text, &fault);
    check_fault(error, &fault);
    CHECK((error == CO_OK) == (jwt_keys_count(read) > 0));
    for (enum jwt_alg alg = 0; alg < JWT_ALGS; alg++) {
        char zeros[512] = {0};
        static const size_t sizes[] = {64, 96, 132, 256, 512};
        for (size_t i = 0; i < ARRAY_COUNT(sizes) && error == CO_OK; i++)
            CHECK(!jwt_keys_verify(read, alg, SLICE_LITERAL("a"), text, slice_make(zeros, sizes[i])));
    }
    jwt_keys_free(read);
}

static void sign(struct slice text) {
    const char *line = text.size ? memchr(text.data, '\n', text.size) : NULL;
    if (!line) return;
    struct slice header = slice_make(text.data, (size_t)(line - text.data));
    struct buffer token = {0};
    jwt_sign(signer, JWT_EDDSA, header, slice_make(line + 1, text.size - header.size - 1), &token);
    struct buffer payload = {0};
    int opened = jwt_open(keys, 0, buffer_slice(&token), &payload, NULL);
    CHECK((payload.size > 0) == (opened == CO_OK && text.size > header.size + 1));
    CHECK(opened != CO_OK || slice_equal(buffer_slice(&payload), slice_make(line + 1, payload.size)));
    for (int64_t now_s = 0; now_s <= 2000000000; now_s += 500000000) verify(buffer_slice(&token), now_s);
    for (size_t i = 0; i < token.size && opened == CO_OK; i += 1 + token.size / 16) {
        token.data[i] ^= 1;
        CHECK(verify(buffer_slice(&token), 1000) != CO_OK);
        token.data[i] ^= 1;
    }
    buffer_free(&payload);
    buffer_free(&token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!signer) make_keys();
    if (size == 0) return 0;
    struct slice rest = slice_make(data + 1, size - 1);
    switch (data[0] % 4) {
        case 0: read_token(rest); break;
        case 1: read_keys(rest, false); break;
        case 2: read_keys(rest, true); break;
        default: sign(rest); break;
    }
    return 0;
}
