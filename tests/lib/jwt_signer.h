/* Signs JSON Web Tokens for tests, with keys made anew; whatever goes wrong here ends the test. */
#ifndef COORD_TESTS_LIB_JWT_SIGNER_H
#define COORD_TESTS_LIB_JWT_SIGNER_H

#include "acl/jwt_keys.h"

struct jwt_signer;
struct jwt_signer *jwt_signer_new(enum jwt_alg alg);             /* a key that fits the algorithm; RSA of 2048 bits */
struct jwt_signer *jwt_signer_new_bits(int kind, unsigned bits); /* as gnutls_privkey_generate has them */
struct jwt_signer *jwt_signer_load(struct slice private_pem);
void jwt_signer_free(struct jwt_signer *signer);

/* The public key as PEM; the private one. */
void jwt_signer_pem(const struct jwt_signer *signer, struct buffer *out);
void jwt_signer_private_pem(const struct jwt_signer *signer, struct buffer *out);
/* The public key as a JWK; `more`: further members, as `,"kid":"a"`. */
void jwt_signer_jwk(const struct jwt_signer *signer, const char *more, struct buffer *out);

/* Appends HEADER.PAYLOAD.SIGNATURE of these texts; the header need not name the algorithm. */
void jwt_sign(const struct jwt_signer *signer, enum jwt_alg alg, struct slice header, struct slice payload,
              struct buffer *token);
void base64url_encode(struct buffer *out, const void *data, size_t size);

#endif
