/* Until the folder's own files are there. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "tls/certificate.h"
#include "tls/context.h"
#include "tls/folder.h"
#include "tls/session.h"

struct tls_context {
    _Atomic unsigned references;
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priorities;
    struct buffer trusted, chain;
    gnutls_datum_t ticket;
};

int tls_context_make(const struct tls_context_config *config, struct tls_context **out, struct fault *fault) {
    struct tls_context *context = mem_zalloc(sizeof *context);
    atomic_store(&context->references, 1);
    gnutls_certificate_allocate_credentials(&context->credentials);
    int rv = 0;
    if (config->chain.size) {
        gnutls_datum_t chain = {(unsigned char *)(uintptr_t)config->chain.data, (unsigned)config->chain.size};
        gnutls_datum_t key = {(unsigned char *)(uintptr_t)config->key.data, (unsigned)config->key.size};
        rv = gnutls_certificate_set_x509_key_mem(context->credentials, &chain, &key, GNUTLS_X509_FMT_PEM);
        if (rv < 0) {
            tls_context_unref(context);
            return fault_set(fault, CO_INVALID, "certificate and key do not fit: %s", gnutls_strerror(rv));
        }
    }
    if (config->trusted.size) {
        gnutls_datum_t ca = {(unsigned char *)(uintptr_t)config->trusted.data, (unsigned)config->trusted.size};
        rv = gnutls_certificate_set_x509_trust_mem(context->credentials, &ca, GNUTLS_X509_FMT_PEM);
        if (rv <= 0) {
            tls_context_unref(context);
            return fault_set(fault, CO_INVALID, "no CA certificate");
        }
    }
    const char *version = config->least_version ? config->least_version : "tls12";
    bool only13 = strstr(version, "13") || strstr(version, "1_3");
    char text[256];
    snprintf(text, sizeof text,
             "NORMAL:-VERS-ALL:+VERS-TLS1.3%s:%%SERVER_PRECEDENCE:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305",
             only13 ? "" : ":+VERS-TLS1.2");
    if (gnutls_priority_init(&context->priorities, text, NULL) < 0) abort();
    buffer_append(&context->trusted, config->trusted.data, config->trusted.size);
    buffer_append(&context->chain, config->chain.data, config->chain.size);
    if (config->ticket_key.size) {
        context->ticket.data = gnutls_malloc(config->ticket_key.size);
        context->ticket.size = (unsigned)config->ticket_key.size;
        memcpy(context->ticket.data, config->ticket_key.data, config->ticket_key.size);
    }
    *out = context;
    return CO_OK;
}
struct tls_context *tls_context_ref(struct tls_context *context) {
    atomic_fetch_add(&context->references, 1);
    return context;
}
void tls_context_unref(struct tls_context *context) {
    if (!context || atomic_fetch_sub(&context->references, 1) != 1) return;
    gnutls_certificate_free_credentials(context->credentials);
    if (context->priorities) gnutls_priority_deinit(context->priorities);
    gnutls_free(context->ticket.data);
    buffer_free(&context->trusted);
    buffer_free(&context->chain);
    free(context);
}
gnutls_certificate_credentials_t tls_context_credentials(const struct tls_context *context) {
    return context->credentials;
}
gnutls_priority_t tls_context_priorities(const struct tls_context *context) { return context->priorities; }
struct slice tls_context_trusted(const struct tls_context *context) { return buffer_slice(&context->trusted); }
struct slice tls_context_chain(const struct tls_context *context) { return buffer_slice(&context->chain); }
const gnutls_datum_t *tls_context_ticket_key(const struct tls_context *context) {
    return context->ticket.size ? &context->ticket : NULL;
}

struct tls_slot {
    pthread_mutex_t lock;
    struct tls_context *context;
};
struct tls_slot *tls_slot_new(void) {
    struct tls_slot *slot = mem_zalloc(sizeof *slot);
    pthread_mutex_init(&slot->lock, NULL);
    return slot;
}
void tls_slot_free(struct tls_slot *slot) {
    if (!slot) return;
    tls_context_unref(slot->context);
    pthread_mutex_destroy(&slot->lock);
    free(slot);
}
void tls_slot_set(struct tls_slot *slot, struct tls_context *context) {
    pthread_mutex_lock(&slot->lock);
    struct tls_context *was = slot->context;
    slot->context = context;
    pthread_mutex_unlock(&slot->lock);
    tls_context_unref(was);
}
struct tls_context *tls_slot_get(struct tls_slot *slot) {
    pthread_mutex_lock(&slot->lock);
    struct tls_context *context = slot->context ? tls_context_ref(slot->context) : NULL;
    pthread_mutex_unlock(&slot->lock);
    return context;
}

bool tls_looks_like(struct slice bytes) {
    static const unsigned char begin[] = {0x16, 0x03};
    for (size_t i = 0; i < bytes.size && i < 2; i++)
        if ((unsigned char)bytes.data[i] != begin[i]) return false;
    return bytes.size < 3 || (unsigned char)bytes.data[2] <= 4;
}
void tls_wipe(struct buffer *secret) {
    if (secret->data) gnutls_memset(secret->data, 0, secret->capacity);
    buffer_free(secret);
}
static int read_file(const char *path, struct buffer *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return CO_IO;
    for (;;) {
        buffer_reserve(out, 4096);
        ssize_t got = read(fd, out->data + out->size, 4096);
        if (got <= 0) break;
        out->size += (size_t)got;
    }
    close(fd);
    return CO_OK;
}
int tls_key_file_read(const char *path, struct buffer *key, struct fault *fault) {
    struct stat info;
    if (stat(path, &info) != 0) return fault_set(fault, CO_NOTFOUND, "%s: no such file", path);
    if (info.st_mode & 077) return fault_set(fault, CO_DENIED, "%s: others may read it: chmod 600 %s", path, path);
    return read_file(path, key);
}
int tls_pair_check(struct slice key, struct slice chain, struct fault *fault) {
    (void)key, (void)chain, (void)fault;
    return CO_OK;
}
size_t tls_certificate_count(struct slice text) {
    size_t count = 0;
    const char *at = text.data, *end = text.data + text.size;
    while ((at = memmem(at, (size_t)(end - at), "BEGIN CERTIFICATE", 17)) != NULL) count++, at += 17;
    return count;
}
static int read_crt(gnutls_x509_crt_t crt, struct tls_certificate *certificate) {
    size_t size = sizeof certificate->common_name;
    *certificate = (struct tls_certificate){0};
    gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, certificate->common_name, &size);
    certificate->life.from_s = gnutls_x509_crt_get_activation_time(crt);
    certificate->life.to_s = gnutls_x509_crt_get_expiration_time(crt);
    return 0;
}
int tls_certificate_read(struct slice text, struct tls_certificate *certificate, struct fault *fault) {
    gnutls_x509_crt_t crt;
    gnutls_datum_t datum = {(unsigned char *)(uintptr_t)text.data, (unsigned)text.size};
    gnutls_x509_crt_init(&crt);
    int rv = gnutls_x509_crt_import(crt, &datum, GNUTLS_X509_FMT_PEM);
    if (rv < 0) rv = gnutls_x509_crt_import(crt, &datum, GNUTLS_X509_FMT_DER);
    if (rv >= 0) read_crt(crt, certificate);
    gnutls_x509_crt_deinit(crt);
    return rv < 0 ? fault_set(fault, CO_INVALID, "no certificate") : CO_OK;
}
enum tls_verdict tls_judge(const struct tls_rules *rules, const struct slice *chain, size_t count,
                           struct tls_certificate *certificate, char why[160]) {
    gnutls_x509_trust_list_t list;
    gnutls_x509_crt_t crts[8];
    unsigned status = 0, n = 0;
    enum tls_verdict verdict = TLS_TRUSTED;
    gnutls_datum_t ca = {(unsigned char *)(uintptr_t)rules->trusted.data, (unsigned)rules->trusted.size};
    gnutls_x509_trust_list_init(&list, 0);
    if (ca.size) gnutls_x509_trust_list_add_trust_mem(list, &ca, NULL, GNUTLS_X509_FMT_PEM, 0, 0);
    for (; n < count && n < 8; n++) {
        gnutls_datum_t der = {(unsigned char *)(uintptr_t)chain[n].data, (unsigned)chain[n].size};
        gnutls_x509_crt_init(&crts[n]);
        if (gnutls_x509_crt_import(crts[n], &der, GNUTLS_X509_FMT_DER) < 0) verdict = TLS_UNREADABLE;
    }
    if (verdict == TLS_TRUSTED) {
        read_crt(crts[0], certificate);
        gnutls_x509_trust_list_verify_crt(list, crts, n, 0, &status, NULL);
        if (status & GNUTLS_CERT_EXPIRED) verdict = TLS_EXPIRED;
        else if (status & GNUTLS_CERT_NOT_ACTIVATED) verdict = TLS_NOT_YET;
        else if (status) verdict = TLS_UNKNOWN_CA;
    }
    snprintf(why, 160, verdict == TLS_EXPIRED ? "its certificate expired" : "its CA is not trusted");
    while (n) gnutls_x509_crt_deinit(crts[--n]);
    gnutls_x509_trust_list_deinit(list, 1);
    return verdict;
}
const char *tls_role_name(enum tls_role role) { return role == TLS_ROLE_SERVER ? "server" : role == TLS_ROLE_AGENT ? "agent" : "none"; }
int tls_folder_recover(const char *data_dir, struct fault *fault) {
    (void)data_dir, (void)fault;
    return CO_OK;
}
const char *tls_file_name(enum tls_file file) {
    static const char *const names[] = {"ca.pem", "cert.pem", "key.pem", "ca.key", "secret.key"};
    return names[file];
}
int tls_folder_read(const char *data_dir, enum tls_file file, struct buffer *content, struct fault *fault) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tls/%s", data_dir, tls_file_name(file));
    return tls_key_file_read(path, content, fault);
}
