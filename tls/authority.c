#include "tls/authority.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "tls/folder.h"
#include "tls/secret.h"

struct authority {
    pthread_mutex_t lock;
    struct buffer certificate;
    struct tls_secret key, hash_key;
};

void authority_forget(struct authority *authority) {
    pthread_mutex_lock(&authority->lock);
    tls_secret_free(&authority->key);
    tls_secret_free(&authority->hash_key);
    buffer_reset(&authority->certificate);
    pthread_mutex_unlock(&authority->lock);
}

struct authority *authority_new(void) {
    struct authority *authority = mem_zalloc(sizeof *authority);
    CHECK(pthread_mutex_init(&authority->lock, NULL) == 0);
    return authority;
}

void authority_free(struct authority *authority) {
    if (!authority) return;
    tls_secret_free(&authority->key);
    tls_secret_free(&authority->hash_key);
    buffer_free(&authority->certificate);
    pthread_mutex_destroy(&authority->lock);
    free(authority);
}

/* The certificate of ca.pem that the key belongs to: during a rotation it need not be the first. CO_NOTFOUND */
static int own_certificate(struct slice key, struct slice certificates, struct buffer *own) {
    for (size_t i = 0; i < tls_certificate_count(certificates); i++) {
        struct buffer one = {0};
        bool fits = tls_certificate_at(certificates, i, &one, NULL) == CO_OK &&
                    tls_pair_check(key, buffer_slice(&one), NULL) == CO_OK;
        if (fits) buffer_append(own, one.data, one.size);
        buffer_free(&one);
        if (fits) return CO_OK;
    }
    return CO_NOTFOUND;
}

/* With the lock. */
static int take(struct authority *authority, const struct tls_issuer *issuer, struct slice secret,
                struct fault *fault) {
    int error = tls_pair_check(issuer->key, issuer->certificate, fault);
    if (!error) error = tls_secret_set(&authority->key, issuer->key, fault);
    if (!error && secret.size) error = tls_secret_set(&authority->hash_key, secret, fault);
    if (error) return error;
    buffer_reset(&authority->certificate);
    return tls_certificate_at(issuer->certificate, 0, &authority->certificate, fault);
}

int authority_load(struct authority *authority, const char *data_dir, struct fault *fault) {
    struct buffer ca = {0}, own = {0}, key = {0}, secret = {0};
    int error = tls_folder_read(data_dir, TLS_FILE_CA_KEY, &key, fault);
    if (!error) error = tls_folder_read(data_dir, TLS_FILE_CA, &ca, fault);
    if (!error) error = tls_folder_read(data_dir, TLS_FILE_SECRET, &secret, fault);
    if (!error && secret.size != TLS_SECRET_SIZE)
        error =
            fault_set(fault, CO_INVALID, "%s/tls/%s does not have 32 bytes", data_dir, tls_file_name(TLS_FILE_SECRET));
    if (!error) error = own_certificate(buffer_slice(&key), buffer_slice(&ca), &own);
    if (!error) {
        struct tls_issuer issuer = {buffer_slice(&own), buffer_slice(&key)};
        pthread_mutex_lock(&authority->lock);
        error = take(authority, &issuer, buffer_slice(&secret), fault);
        pthread_mutex_unlock(&authority->lock);
    }
    buffer_free(&ca);
    buffer_free(&own);
    tls_wipe(&key);
    tls_wipe(&secret);
    return error == CO_NOTFOUND ? CO_OK : error;
}

int authority_store(struct authority *authority, const char *data_dir, const struct tls_issuer *issuer,
                    struct slice secret, struct fault *fault) {
    CHECK(!secret.size || secret.size == TLS_SECRET_SIZE);
    int error = tls_pair_check(issuer->key, issuer->certificate, fault);
    if (!error) error = tls_folder_make(data_dir, fault);
    if (!error && secret.size) error = tls_folder_write(data_dir, TLS_FILE_SECRET, secret, fault);
    if (!error) error = tls_folder_write(data_dir, TLS_FILE_CA_KEY, issuer->key, fault);
    if (error) return error;
    pthread_mutex_lock(&authority->lock);
    error = take(authority, issuer, secret, fault);
    pthread_mutex_unlock(&authority->lock);
    return error;
}

bool authority_can_sign(struct authority *authority) {
    pthread_mutex_lock(&authority->lock);
    bool can = authority->key.size > 0;
    pthread_mutex_unlock(&authority->lock);
    return can;
}

bool authority_pin(struct authority *authority, uint8_t pin[TLS_PIN_SIZE]) {
    struct tls_certificate certificate;
    pthread_mutex_lock(&authority->lock);
    bool there = authority->key.size > 0 &&
                 tls_certificate_read(buffer_slice(&authority->certificate), &certificate, NULL) == CO_OK;
    pthread_mutex_unlock(&authority->lock);
    if (there) memcpy(pin, certificate.pin, TLS_PIN_SIZE);
    return there;
}

int authority_sign(struct authority *authority, struct slice request, const struct tls_subject *subject,
                   struct tls_life life, struct buffer *chain, struct fault *fault) {
    pthread_mutex_lock(&authority->lock);
    struct tls_issuer issuer = {buffer_slice(&authority->certificate), tls_secret_slice(&authority->key)};
    int error = issuer.key.size ? tls_issue(&issuer, request, subject, life, chain, fault)
                                : fault_set(fault, CO_NOTFOUND, "this server does not have the CA's key");
    pthread_mutex_unlock(&authority->lock);
    return error;
}

int authority_cross_sign(struct authority *authority, struct slice ca, struct tls_life life, struct buffer *certificate,
                         struct fault *fault) {
    pthread_mutex_lock(&authority->lock);
    struct tls_issuer issuer = {buffer_slice(&authority->certificate), tls_secret_slice(&authority->key)};
    int error = issuer.key.size ? tls_ca_cross(ca, life, &issuer, certificate, fault)
                                : fault_set(fault, CO_NOTFOUND, "this server does not have the CA's key");
    pthread_mutex_unlock(&authority->lock);
    return error;
}

int authority_take_certificate(struct authority *authority, struct slice certificate, struct fault *fault) {
    struct buffer taken = {0};
    pthread_mutex_lock(&authority->lock);
    int error = tls_pair_check(tls_secret_slice(&authority->key), certificate, fault);
    if (!error) error = tls_certificate_at(certificate, 0, &taken, fault);
    if (!error) {
        buffer_reset(&authority->certificate);
        buffer_append(&authority->certificate, taken.data, taken.size);
    }
    pthread_mutex_unlock(&authority->lock);
    buffer_free(&taken);
    return error;
}

bool authority_hash(struct authority *authority, const struct join_token *token, uint8_t hash[JOIN_TOKEN_HASH_SIZE]) {
    pthread_mutex_lock(&authority->lock);
    bool there = authority->hash_key.size > 0;
    if (there) join_token_hash(token, tls_secret_slice(&authority->hash_key), hash);
    pthread_mutex_unlock(&authority->lock);
    return there;
}

bool authority_copy(struct authority *authority, struct buffer *certificate, struct buffer *key,
                    struct buffer *secret) {
    pthread_mutex_lock(&authority->lock);
    bool there = authority->key.size > 0 && authority->hash_key.size > 0;
    if (there) {
        buffer_append(certificate, authority->certificate.data, authority->certificate.size);
        buffer_append(key, authority->key.data, authority->key.size);
        buffer_append(secret, authority->hash_key.data, authority->hash_key.size);
    }
    pthread_mutex_unlock(&authority->lock);
    return there;
}
