/* Public keys that verify the signatures of JSON Web Tokens (RFC 7515, 7517, 7518, 8037): RS, PS, ES and EdDSA (Ed25519).
 * Pure; nothing is fetched. Keys do not change once they are added: then any thread may verify with them.
 *
 * A key fits an algorithm by its own kind: RSA for RS and PS, P-256 for ES256 alone, and so on. A token never decides
 * how a key's bytes are used, so that an RSA key is no secret of an HS256. Symmetric keys are never used. */
#ifndef COORD_ACL_JWT_KEYS_H
#define COORD_ACL_JWT_KEYS_H

#include "base/buffer.h"
#include "base/error.h"

#define JWT_KEYS_MOST     64
#define JWT_DOCUMENT_MOST ((size_t)256 << 10)
#define JWT_RSA_BITS_MIN  2048 /* RFC 7518, 3.3 */
#define JWT_RSA_BITS_MOST 8192

enum jwt_alg {
    JWT_RS256,
    JWT_RS384,
    JWT_RS512,
    JWT_PS256,
    JWT_PS384,
    JWT_PS512,
    JWT_ES256,
    JWT_ES384,
    JWT_ES512,
    JWT_EDDSA,
    JWT_ALGS
};
const char *jwt_alg_name(enum jwt_alg alg);               /* "RS256" */
bool jwt_alg_parse(struct slice text, enum jwt_alg *alg); /* false: none, HS256, and all others */

struct jwt_keys;
struct jwt_keys *jwt_keys_new(void);
void jwt_keys_free(struct jwt_keys *keys); /* accepts NULL */
size_t jwt_keys_count(const struct jwt_keys *keys);

/* Adds one key: a PEM text with one PUBLIC KEY, or with one CERTIFICATE, of which nothing counts but the key. A private
 * key, another kind, or a short RSA key is CO_INVALID with a line. */
int jwt_keys_add_pem(struct jwt_keys *keys, struct slice pem, struct fault *fault);

/* Adds the keys of a JWK Set (RFC 7517, 5). Keys that verify no signature are passed over: of another "use", "key_ops",
 * "alg" or kind, broken or short ones. A document with none that does, with a private key, or with a name twice in an
 * object, is CO_INVALID. After a fault the keys are as before. */
int jwt_keys_add_jwks(struct jwt_keys *keys, struct slice document, struct fault *fault);

/* Is it a signature of `input` by one of the keys? `kid`: the token's (data NULL: none). It is compared, nothing else: a
 * key that has a kid verifies tokens with the same one, and tokens without. */
bool jwt_keys_verify(const struct jwt_keys *keys, enum jwt_alg alg, struct slice kid, struct slice input,
                     struct slice signature);

#endif
