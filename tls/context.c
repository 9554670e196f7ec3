#include "tls/context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "tls/certificate_inner.h"
#include "tls/guarded_key.h"

struct tls_context {
    atomic_uint refs;
    gnutls_certificate_credentials_t credentials, dials; /* dials: NULL: the same */
    struct tls_trust *trust;
    gnutls_priority_t priorities;
    struct buffer chain, trusted;
    struct buffer psk[TLS_PSK_KEYS_MAX];
    struct slice psk_keys[TLS_PSK_KEYS_MAX];
    size_t psk_count;
    struct buffer ticket_key;
    gnutls_datum_t ticket_datum;
};

/* -- versions and cipher suites, as GnuTLS's priority string says them --------------------------------------------- */
static const struct {
    const char *name, *other_name, *priority;
} versions[] = {
    {"tls10", "TLSv1_0", "+VERS-TLS1.0"},
    {"tls11", "TLSv1_1", "+VERS-TLS1.1"},
    {"tls12", "TLSv1_2", "+VERS-TLS1.2"},
    {"tls13", "TLSv1_3", "+VERS-TLS1.3"},
};
enum { TLS10, TLS11, TLS12, TLS13 };

static int version_of(const char *name, struct fault *fault) {
    if (!name || !name[0] || strcmp(name, "TLS_AUTO") == 0) return TLS12;
    for (size_t i = 0; i < ARRAY_COUNT(versions); i++)
        if (strcmp(name, versions[i].name) == 0 || strcmp(name, versions[i].other_name) == 0) return (int)i;
    fault_set(fault, CO_INVALID, "\"%.40s\" is no version of TLS: tls10, tls11, tls12 or tls13", name);
    return -1;
}

/* A suite's name is the key exchange, "_WITH_", and the cipher with its hash; of TLS 1.3 only the latter. */
struct part {
    const char *name, *priority;
};
static const struct part exchanges[] = {
    {"ECDHE_ECDSA", "+ECDHE-ECDSA"},
    {"ECDHE_RSA", "+ECDHE-RSA"},
    {"RSA", "+RSA"},
};
static const struct cipher {
    const char *name, *cipher, *mac;
    bool sha256, aead;
} ciphers[] = {
    {"AES_128_GCM_SHA256", "+AES-128-GCM", "+AEAD", true, true},
    {"AES_256_GCM_SHA384", "+AES-256-GCM", "+AEAD", false, true},
    {"CHACHA20_POLY1305_SHA256", "+CHACHA20-POLY1305", "+AEAD", true, true},
    {"CHACHA20_POLY1305", "+CHACHA20-POLY1305", "+AEAD", true, true},
    {"AES_128_CBC_SHA256", "+AES-128-CBC", "+SHA256", true, false},
    {"AES_128_CBC_SHA", "+AES-128-CBC", "+SHA1", false, false},
    {"AES_256_CBC_SHA", "+AES-256-CBC", "+SHA1", false, false},
};

static void add(struct buffer *priority, const char *part) {
    char text[64];
    snprintf(text, sizeof text, ":%s:", part);
    buffer_append_byte(priority, '\0'); /* for strstr */
    bool there = strstr(priority->data, text);
    priority->size--;
    if (there) return;
    buffer_append_text(priority, part);
    buffer_append_byte(priority, ':');
}

static const struct cipher *cipher_of(const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(ciphers); i++)
        if (strcmp(name, ciphers[i].name) == 0) return &ciphers[i];
    return NULL;
}

static const struct part *exchange_of(const char *name, size_t size) {
    for (size_t i = 0; i < ARRAY_COUNT(exchanges); i++)
        if (slice_is(slice_make(name, size), exchanges[i].name)) return &exchanges[i];
    return NULL;
}

struct suites {
    bool any, sha256_aead, aead;
};

static int add_suite(struct buffer *priority, const char *name, struct suites *suites, struct fault *fault) {
    const char *rest = strncmp(name, "TLS_", 4) == 0 ? name + 4 : "", *with = strstr(rest, "_WITH_");
    const struct part *exchange = with ? exchange_of(rest, (size_t)(with - rest)) : NULL;
    const struct cipher *cipher = cipher_of(with ? with + 6 : rest);
    if (!cipher || (with ? !exchange : !cipher->aead))
        return fault_set(fault, CO_INVALID, "\"%.60s\" is no cipher suite that is supported", name);
    if (exchange) add(priority, exchange->priority);
    add(priority, cipher->cipher);
    add(priority, cipher->mac);
    suites->any = true;
    suites->aead = suites->aead || cipher->aead;
    suites->sha256_aead = suites->sha256_aead || (cipher->aead && cipher->sha256);
    return CO_OK;
}

static int add_suites(struct buffer *priority, const char *list, struct suites *suites, struct fault *fault) {
    int rv = CO_OK;
    char *copy = mem_strdup(list ? list : ""), *left = NULL;
    for (char *name = strtok_r(copy, ", ", &left); name && rv == CO_OK; name = strtok_r(NULL, ", ", &left))
        rv = add_suite(priority, name, suites, fault);
    free(copy);
    return rv;
}

/* AES-GCM first: ChaCha20 costs several times as much where the processor has AES, and is for clients that have none. */
static void add_default_suites(struct buffer *priority, int least) {
    static const char *const parts[] = {"+ECDHE-ECDSA", "+ECDHE-RSA",         "+AES-128-GCM",
                                        "+AES-256-GCM", "+CHACHA20-POLY1305", "+AEAD"};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++) add(priority, parts[i]);
    if (least >= TLS12) return; /* the earlier ones know no others */
    add(priority, "+AES-128-CBC");
    add(priority, "+AES-256-CBC");
    add(priority, "+SHA1");
}

static int judge_suites(const struct tls_context_config *config, int least, const struct suites *suites,
                        struct fault *fault) {
    if (!suites->any) return CO_OK;
    if (least == TLS13 && !suites->aead)
        return fault_set(fault, CO_INVALID, "none of the cipher suites is one of TLS 1.3, the least version here");
    if (config->psk_count > 0 && !suites->sha256_aead)
        return fault_set(fault, CO_INVALID,
                         "shared keys need AES_128_GCM_SHA256 or CHACHA20_POLY1305_SHA256 among the "
                         "cipher suites");
    return CO_OK;
}

static int make_priorities(struct tls_context *context, const struct tls_context_config *config, struct fault *fault) {
    int least = config->only_tls13 ? TLS13 : version_of(config->least_version, fault);
    if (least < 0) return CO_INVALID;
    struct buffer priority = {0};
    struct suites suites = {0};
    buffer_append_text(&priority, "NORMAL:-VERS-ALL:-KX-ALL:-CIPHER-ALL:-MAC-ALL:-GROUP-ALL:");
    for (int i = TLS13; i >= least; i--) add(&priority, versions[i].priority);
    int rv = add_suites(&priority, config->cipher_suites, &suites, fault);
    if (rv == CO_OK) rv = judge_suites(config, least, &suites, fault);
    if (!suites.any) add_default_suites(&priority, least);
    if (config->psk_count > 0) add(&priority, "+ECDHE-PSK");
    /* DHE is off: it costs a hundred times as much. */
    buffer_append_text(&priority,
                       "+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:+GROUP-SECP521R1:"
                       "%SERVER_PRECEDENCE");
    buffer_append_byte(&priority, '\0');
    if (rv == CO_OK) {
        int error = gnutls_priority_init2(&context->priorities, priority.data, NULL, 0);
        if (error != 0) rv = fault_set(fault, CO_INVALID, "cipher suites: %s", gnutls_strerror(error));
    }
    buffer_free(&priority);
    return rv;
}

/* -- certificates and keys ------------------------------------------------------------------------------------------ */
static gnutls_datum_t datum_of(struct slice bytes) {
    return (gnutls_datum_t){(void *)bytes.data, (unsigned)bytes.size};
}

/* Gives the credentials the chain, without the CAs that signed themselves where `roots` is false, and the key. */
static int show(gnutls_certificate_credentials_t credentials, const struct tls_context_config *config, bool roots,
                struct fault *fault) {
    gnutls_x509_crt_t *all;
    gnutls_privkey_t key;
    unsigned count, kept = 0;
    if (!tls_load_all(config->chain, &all, &count)) return fault_set(fault, CO_INVALID, "no certificates in PEM");
    gnutls_pcert_st *shown = mem_zalloc((count + 1) * sizeof *shown);
    int error = CO_OK;
    for (unsigned i = 0; i < count && !error; i++) {
        if (i > 0 && !roots && gnutls_x509_crt_check_issuer(all[i], all[i])) continue;
        if (gnutls_pcert_import_x509(&shown[kept], all[i], 0) == 0) kept++;
        else error = fault_set(fault, CO_INVALID, "the certificates cannot be used");
    }
    tls_free_all(all, count);
    if (!error) error = guarded_key_make(config->key, &key, fault);
    int rv = error ? 0 : gnutls_certificate_set_key(credentials, NULL, 0, shown, (int)kept, key);
    if (rv < 0) {
        gnutls_privkey_deinit(key);
        error = fault_set(fault, CO_INVALID, "certificate and key: %s", gnutls_strerror(rv));
    }
    for (unsigned i = 0; error && i < kept; i++) gnutls_pcert_deinit(&shown[i]);
    free(shown); /* GnuTLS keeps what is in it */
    return error;
}

static int load_pair(struct tls_context *context, const struct tls_context_config *config, struct fault *fault) {
    if (config->chain.size == 0 && config->key.size == 0) return CO_OK;
    if (config->chain.size == 0) return fault_set(fault, CO_INVALID, "there is a key, and no certificate");
    if (config->key.size == 0) return fault_set(fault, CO_INVALID, "there is a certificate, and no key");
    int error = tls_pair_check(config->key, config->chain, fault);
    if (!error) error = show(context->credentials, config, true, fault);
    if (error) return error;
    CHECK(gnutls_certificate_allocate_credentials(&context->dials) == 0);
    return show(context->dials, config, false, fault);
}

static int load_trusted(struct tls_context *context, const struct tls_context_config *config, struct fault *fault) {
    if (config->trusted.size == 0) return CO_OK;
    gnutls_datum_t trusted = datum_of(config->trusted);
    int count = gnutls_certificate_set_x509_trust_mem(context->credentials, &trusted, GNUTLS_X509_FMT_PEM);
    if (count > 0) return CO_OK;
    return fault_set(fault, CO_INVALID, "the trusted CAs: %s", count == 0 ? "no certificate" : gnutls_strerror(count));
}

static int load_secrets(struct tls_context *context, const struct tls_context_config *config, struct fault *fault) {
    CHECK(config->psk_count <= TLS_PSK_KEYS_MAX);
    for (size_t i = 0; i < config->psk_count; i++) {
        size_t size = config->psk[i].size;
        if (size != 16 && size != 24 && size != 32)
            return fault_set(fault, CO_INVALID, "a shared key has %zu bytes; it needs 16, 24 or 32", size);
        buffer_append(&context->psk[i], config->psk[i].data, size);
        context->psk_keys[i] = buffer_slice(&context->psk[i]);
    }
    context->psk_count = config->psk_count;
    if (config->ticket_key.size == 0) return CO_OK;
    if (config->ticket_key.size != TLS_TICKET_KEY_SIZE)
        return fault_set(fault, CO_INVALID, "the key of session tickets has %zu bytes; it needs %d",
                         config->ticket_key.size, TLS_TICKET_KEY_SIZE);
    buffer_append(&context->ticket_key, config->ticket_key.data, config->ticket_key.size);
    context->ticket_datum = datum_of(buffer_slice(&context->ticket_key));
    return CO_OK;
}

int tls_context_make(const struct tls_context_config *config, struct tls_context **out, struct fault *fault) {
    struct tls_context *context = mem_zalloc(sizeof *context);
    atomic_init(&context->refs, 1);
    CHECK(gnutls_certificate_allocate_credentials(&context->credentials) == 0);
    int rv = make_priorities(context, config, fault);
    if (rv == CO_OK) rv = load_pair(context, config, fault);
    if (rv == CO_OK) rv = load_trusted(context, config, fault);
    if (rv == CO_OK) rv = load_secrets(context, config, fault);
    if (rv != CO_OK) {
        tls_context_unref(context);
        return rv;
    }
    buffer_append(&context->chain, config->chain.data, config->chain.size);
    buffer_append(&context->trusted, config->trusted.data, config->trusted.size);
    context->trust = tls_trust_make(config->trusted);
    *out = context;
    return CO_OK;
}

struct tls_context *tls_context_ref(struct tls_context *context) {
    atomic_fetch_add(&context->refs, 1);
    return context;
}

void tls_context_unref(struct tls_context *context) {
    if (!context || atomic_fetch_sub(&context->refs, 1) > 1) return;
    gnutls_certificate_free_credentials(context->credentials);
    if (context->dials) gnutls_certificate_free_credentials(context->dials);
    tls_trust_free(context->trust);
    if (context->priorities) gnutls_priority_deinit(context->priorities);
    buffer_free(&context->chain);
    buffer_free(&context->trusted);
    for (size_t i = 0; i < TLS_PSK_KEYS_MAX; i++) tls_wipe(&context->psk[i]);
    tls_wipe(&context->ticket_key);
    free(context);
}

gnutls_certificate_credentials_t tls_context_credentials(const struct tls_context *context) {
    return context->credentials;
}
gnutls_certificate_credentials_t tls_context_dials(const struct tls_context *context) {
    return context->dials ? context->dials : context->credentials;
}
gnutls_priority_t tls_context_priorities(const struct tls_context *context) { return context->priorities; }
struct slice tls_context_trusted(const struct tls_context *context) {
    return buffer_slice(&context->trusted);
}
struct slice tls_context_chain(const struct tls_context *context) {
    return buffer_slice(&context->chain);
}
const struct tls_trust *tls_context_trust(const struct tls_context *context) { return context->trust; }
const gnutls_datum_t *tls_context_ticket_key(const struct tls_context *context) {
    return context->ticket_datum.size > 0 ? &context->ticket_datum : NULL;
}
size_t tls_context_psk(const struct tls_context *context, const struct slice **keys) {
    *keys = context->psk_keys;
    return context->psk_count;
}

/* -- slots ---------------------------------------------------------------------------------------------------------- */
struct tls_slot {
    pthread_mutex_t lock; /* a reference is to be taken before the context can go */
    struct tls_context *context;
};

struct tls_slot *tls_slot_new(void) {
    struct tls_slot *slot = mem_zalloc(sizeof *slot);
    CHECK(pthread_mutex_init(&slot->lock, NULL) == 0);
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
    struct tls_context *before = slot->context;
    slot->context = context;
    pthread_mutex_unlock(&slot->lock);
    tls_context_unref(before);
}

struct tls_context *tls_slot_get(struct tls_slot *slot) {
    pthread_mutex_lock(&slot->lock);
    struct tls_context *context = slot->context ? tls_context_ref(slot->context) : NULL;
    pthread_mutex_unlock(&slot->lock);
    return context;
}
