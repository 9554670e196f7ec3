/* The key of the secrets of tokens. It lies in DATA/acl/key of every server (32 random bytes, mode 0600) and in memory that
 * is in no core dump (tls/secret.h); never in the log, the store, a snapshot or a backup. From it come three keys (HKDF,
 * SHA-256): for hashes by which a token is found, for the encryption of secrets, and for the key's id, which the replicated
 * state has, so that a server knows whether its key is the right one.
 *
 * A key does not change, and is counted: any thread may use it. */
#ifndef COORD_ACL_KEY_H
#define COORD_ACL_KEY_H

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"

#define ACL_KEY_SIZE    32
#define ACL_KEY_ID_SIZE 32
#define ACL_HASH_SIZE   32
#define ACL_SECRET_MAX  256
#define ACL_SEALED_MORE 28 /* bytes that a sealed secret is longer */

struct acl_key;
int acl_key_make(struct acl_key **key, struct fault *fault); /* draws one; CO_IO, CO_NOMEM */
/* CO_INVALID: it has not ACL_KEY_SIZE bytes. */
int acl_key_take(struct slice bytes, struct acl_key **key, struct fault *fault);
struct acl_key *acl_key_keep(struct acl_key *key);
void acl_key_release(struct acl_key *key); /* accepts NULL */

struct slice acl_key_bytes(const struct acl_key *key); /* for another server */
struct slice acl_key_id(const struct acl_key *key);
bool acl_key_is(const struct acl_key *key, struct slice id); /* constant time; false for NULL */

/* -- the file; blocking --------------------------------------------------------------------------------------------- */
/* CO_NOTFOUND without a fault's text: there is none. CO_INVALID: others may read or write it; CO_CORRUPT; CO_IO. */
int acl_key_load(const char *data_dir, struct acl_key **key, struct fault *fault);
/* Whole or not at all, and durable. */
int acl_key_store(const struct acl_key *key, const char *data_dir, struct fault *fault);

/* -- secrets -------------------------------------------------------------------------------------------------------- */
void acl_key_hash(const struct acl_key *key, struct slice secret, uint8_t hash[ACL_HASH_SIZE]);
/* Appended to `sealed`; AES-256-GCM with a random nonce; it opens for the same accessor only. */
void acl_key_seal(const struct acl_key *key, struct slice accessor, struct slice secret, struct buffer *sealed);
/* Appended to `secret`. CO_CORRUPT: sealed with another key, or for another accessor, or damaged. */
int acl_key_open(const struct acl_key *key, struct slice accessor, struct slice sealed, struct buffer *secret);

/* -- the key of this process ------------------------------------------------------------------------------------------ */
/* For queries, which run on many threads and get nothing but a request. Any thread. */
void acl_key_use(struct acl_key *key); /* takes the reference; NULL: none from now on */
struct acl_key *acl_key_used(void);    /* to be released; NULL: there is none (yet) */

#endif
