#include "acl/key.h"

#include <gnutls/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "tls/certificate.h"
#include "tls/folder.h"
#include "tls/secret.h"

#define NONCE_SIZE 12
#define TAG_SIZE   16
_Static_assert(ACL_SEALED_MORE == NONCE_SIZE + TAG_SIZE, "a sealed secret: nonce, cipher text, tag");

/* The key, and behind it the keys that are derived from it. */
enum part { PART_KEY, PART_LOOKUP, PART_SEAL, PARTS };
#define PART_SIZE 32

struct acl_key {
    _Atomic unsigned references;
    struct tls_secret parts;
    uint8_t id[ACL_KEY_ID_SIZE];
};

static gnutls_datum_t datum(struct slice bytes) {
    return (gnutls_datum_t){(unsigned char *)(uintptr_t)bytes.data, (unsigned)bytes.size};
}

static struct slice part(const struct acl_key *key, enum part which) {
    return slice_make(key->parts.data + which * PART_SIZE, PART_SIZE);
}

/* -- making one --------------------------------------------------------------------------------------------------- */
static void derive(struct slice secret, const char *purpose, uint8_t out[PART_SIZE]) {
    gnutls_datum_t key = datum(secret), info = datum(slice_text(purpose));
    CHECK(gnutls_hkdf_expand(GNUTLS_MAC_SHA256, &key, &info, out, PART_SIZE) == 0);
}

static void fill(uint8_t parts[PARTS * PART_SIZE], struct slice bytes, uint8_t id[ACL_KEY_ID_SIZE]) {
    uint8_t secret[PART_SIZE];
    gnutls_datum_t key = datum(bytes), salt = datum(SLICE_LITERAL("coord acl"));
    CHECK(gnutls_hkdf_extract(GNUTLS_MAC_SHA256, &key, &salt, secret) == 0);
    struct slice extracted = slice_make(secret, sizeof secret);
    memcpy(parts + PART_KEY * PART_SIZE, bytes.data, PART_SIZE);
    derive(extracted, "look-up", parts + PART_LOOKUP * PART_SIZE);
    derive(extracted, "seal", parts + PART_SEAL * PART_SIZE);
    derive(extracted, "id", id);
    explicit_bzero(secret, sizeof secret);
}

int acl_key_take(struct slice bytes, struct acl_key **out, struct fault *fault) {
    uint8_t parts[PARTS * PART_SIZE];
    *out = NULL;
    if (bytes.size != ACL_KEY_SIZE)
        return fault_set(fault, CO_INVALID, "the key of the tokens has %d bytes, not %zu", ACL_KEY_SIZE, bytes.size);
    struct acl_key *key = mem_zalloc(sizeof *key);
    atomic_init(&key->references, 1);
    fill(parts, bytes, key->id);
    int error = tls_secret_set(&key->parts, slice_make(parts, sizeof parts), fault);
    explicit_bzero(parts, sizeof parts);
    if (error) free(key);
    else *out = key;
    return error;
}

int acl_key_make(struct acl_key **key, struct fault *fault) {
    char bytes[ACL_KEY_SIZE];
    *key = NULL;
    int rv = gnutls_rnd(GNUTLS_RND_KEY, bytes, sizeof bytes);
    if (rv != 0) return fault_set(fault, CO_IO, "no random bytes: %s", gnutls_strerror(rv));
    rv = acl_key_take(slice_make(bytes, sizeof bytes), key, fault);
    explicit_bzero(bytes, sizeof bytes);
    return rv;
}

struct acl_key *acl_key_keep(struct acl_key *key) {
    atomic_fetch_add(&key->references, 1);
    return key;
}

void acl_key_release(struct acl_key *key) {
    if (!key || atomic_fetch_sub(&key->references, 1) != 1) return;
    tls_secret_free(&key->parts);
    free(key);
}

struct slice acl_key_bytes(const struct acl_key *key) {
    return part(key, PART_KEY);
}
struct slice acl_key_id(const struct acl_key *key) {
    return slice_make(key->id, sizeof key->id);
}
bool acl_key_is(const struct acl_key *key, struct slice id) {
    return key && id.size == sizeof key->id && gnutls_memcmp(key->id, id.data, sizeof key->id) == 0;
}

/* -- the file ----------------------------------------------------------------------------------------------------- */
static char *path_of(struct arena *arena, const char *data_dir, const char *name) {
    return arena_printf(arena, "%s/acl%s", data_dir, name);
}

int acl_key_load(const char *data_dir, struct acl_key **key, struct fault *fault) {
    struct arena arena = {0};
    struct buffer bytes = {0};
    struct fault why = {0};
    const char *path = path_of(&arena, data_dir, "/key");
    *key = NULL;
    int error = tls_key_file_read(path, &bytes, &why);
    if (error && error != CO_NOTFOUND) fault_set(fault, error, "%s", why.text);
    if (!error && bytes.size != ACL_KEY_SIZE)
        error = fault_set(fault, CO_CORRUPT, "%s: it has %zu bytes instead of %d", path, bytes.size, ACL_KEY_SIZE);
    if (!error) error = acl_key_take(buffer_slice(&bytes), key, fault);
    tls_wipe(&bytes);
    arena_free(&arena);
    return error;
}

int acl_key_store(const struct acl_key *key, const char *data_dir, struct fault *fault) {
    struct arena arena = {0};
    int error = tls_secret_folder_make(path_of(&arena, data_dir, ""), fault);
    if (!error) error = tls_key_file_write(path_of(&arena, data_dir, "/key"), acl_key_bytes(key), fault);
    arena_free(&arena);
    return error;
}

/* -- secrets ------------------------------------------------------------------------------------------------------ */
void acl_key_hash(const struct acl_key *key, struct slice secret, uint8_t hash[ACL_HASH_SIZE]) {
    struct slice lookup = part(key, PART_LOOKUP);
    CHECK(gnutls_hmac_fast(GNUTLS_MAC_SHA256, lookup.data, lookup.size, secret.data, secret.size, hash) == 0);
}

static gnutls_aead_cipher_hd_t cipher_of(const struct acl_key *key) {
    gnutls_aead_cipher_hd_t cipher;
    gnutls_datum_t seal = datum(part(key, PART_SEAL));
    CHECK(gnutls_aead_cipher_init(&cipher, GNUTLS_CIPHER_AES_256_GCM, &seal) == 0);
    return cipher;
}

void acl_key_seal(const struct acl_key *key, struct slice accessor, struct slice secret, struct buffer *sealed) {
    CHECK(secret.size <= ACL_SECRET_MAX);
    size_t size = secret.size + TAG_SIZE;
    buffer_reserve(sealed, NONCE_SIZE + size);
    char *nonce = sealed->data + sealed->size;
    CHECK(gnutls_rnd(GNUTLS_RND_NONCE, nonce, NONCE_SIZE) == 0);
    gnutls_aead_cipher_hd_t cipher = cipher_of(key);
    CHECK(gnutls_aead_cipher_encrypt(cipher, nonce, NONCE_SIZE, accessor.data, accessor.size, TAG_SIZE, secret.data,
                                     secret.size, nonce + NONCE_SIZE, &size) == 0);
    gnutls_aead_cipher_deinit(cipher);
    sealed->size += NONCE_SIZE + size;
}

int acl_key_open(const struct acl_key *key, struct slice accessor, struct slice sealed, struct buffer *secret) {
    if (sealed.size < ACL_SEALED_MORE || sealed.size > ACL_SEALED_MORE + ACL_SECRET_MAX) return CO_CORRUPT;
    size_t size = sealed.size - ACL_SEALED_MORE;
    buffer_reserve(secret, size + 1);
    gnutls_aead_cipher_hd_t cipher = cipher_of(key);
    int rv = gnutls_aead_cipher_decrypt(cipher, sealed.data, NONCE_SIZE, accessor.data, accessor.size, TAG_SIZE,
                                        sealed.data + NONCE_SIZE, sealed.size - NONCE_SIZE, secret->data + secret->size,
                                        &size);
    gnutls_aead_cipher_deinit(cipher);
    if (rv == 0) secret->size += size;
    return rv == 0 ? CO_OK : CO_CORRUPT;
}

/* -- the key of this process -------------------------------------------------------------------------------------- */
static pthread_mutex_t used_lock = PTHREAD_MUTEX_INITIALIZER;
static struct acl_key *used;

void acl_key_use(struct acl_key *key) {
    pthread_mutex_lock(&used_lock);
    struct acl_key *before = used;
    used = key;
    pthread_mutex_unlock(&used_lock);
    acl_key_release(before);
}

struct acl_key *acl_key_used(void) {
    pthread_mutex_lock(&used_lock);
    struct acl_key *key = used ? acl_key_keep(used) : NULL;
    pthread_mutex_unlock(&used_lock);
    return key;
}
