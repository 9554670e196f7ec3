/* The certificates that a process shows and trusts: immutable, reference-counted. A session keeps the context that it began
 * with, so a new certificate is taken (tls_slot_set) without dropping connections. Any thread. */
#ifndef COORD_TLS_CONTEXT_H
#define COORD_TLS_CONTEXT_H

#include <gnutls/gnutls.h>

#include "base/buffer.h"
#include "base/error.h"
#include "tls/certificate.h"

#define TLS_PSK_KEYS_MAX    8
#define TLS_TICKET_KEY_SIZE 64

struct tls_context_config {
    struct slice chain, key; /* PEM; both empty: shows no certificate */
    struct slice trusted;    /* PEM, the CAs; empty: nobody is trusted by certificate */
    /* Shared keys (Consul's `encrypt`), 16, 24 or 32 bytes. The first one is used for what this process dials, all are
     * accepted. */
    struct slice psk[TLS_PSK_KEYS_MAX];
    size_t psk_count;
    /* Servers: the secret of session tickets, so that a client resumes at any server. 64 bytes; empty: no tickets. */
    struct slice ticket_key;
    const char *least_version; /* "tls10" ... "tls13" as Consul says it, or "TLSv1_2"; NULL: tls12 */
    /* Consul's names, comma-separated, the best first; those of TLS 1.3 too. GnuTLS takes their ciphers, hashes and key
     * exchanges one by one, so also a suite that combines those of two others. NULL or "": ECDHE with AES-GCM first, then
     * ChaCha20. Shared keys need one with AEAD and SHA-256 among them. */
    const char *cipher_suites;
    bool only_tls13; /* between processes of coord */
};

struct tls_context;
/* Everything is copied. CO_INVALID: the fault says which part does not fit. */
int tls_context_make(const struct tls_context_config *config, struct tls_context **context, struct fault *fault);
struct tls_context *tls_context_ref(struct tls_context *context);
void tls_context_unref(struct tls_context *context); /* NULL: nothing */
gnutls_certificate_credentials_t tls_context_credentials(const struct tls_context *context);
/* The same for who dials: without the CAs of the chain that signed themselves. A server that trusts them has them, and a
 * thousand agents that come back do not show theirs. The other side has to see them where it joins, for the pin of its token. */
gnutls_certificate_credentials_t tls_context_dials(const struct tls_context *context);
gnutls_priority_t tls_context_priorities(const struct tls_context *context);
struct slice tls_context_trusted(const struct tls_context *context);             /* PEM */
const struct tls_trust *tls_context_trust(const struct tls_context *context);    /* the same, for tls_judge */
struct slice tls_context_chain(const struct tls_context *context);               /* PEM, without the key */
const gnutls_datum_t *tls_context_ticket_key(const struct tls_context *context); /* NULL: none */
size_t tls_context_psk(const struct tls_context *context, const struct slice **keys);

/* The present context of a process. A slot begins empty. */
struct tls_slot;
struct tls_slot *tls_slot_new(void);
void tls_slot_free(struct tls_slot *slot); /* NULL: nothing */
void tls_slot_set(struct tls_slot *slot,
                  struct tls_context *context);          /* takes over the caller's reference; NULL: empty */
struct tls_context *tls_slot_get(struct tls_slot *slot); /* a new reference; NULL: empty */

#endif
