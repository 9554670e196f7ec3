/* The CA as far as this server has it: the keys that sign certificates, and the key of the hashes of join tokens. They
 * live in DATA/tls (tls/folder.h) and in this process, and go to another server only over an encrypted connection that
 * its certificate or its join token opened. Never in the log, a snapshot, a backup, or a core dump (the pages are marked
 * MADV_DONTDUMP and locked where the limits allow it). Any thread. */
#ifndef COORD_TLS_AUTHORITY_H
#define COORD_TLS_AUTHORITY_H

#include "tls/certificate.h"
#include "tls/folder.h"
#include "tls/join_token.h"

struct authority;
struct authority *authority_new(void); /* without keys: it signs nothing */
void authority_free(struct authority *authority);
/* Reads DATA/tls: ca.key, its certificate in ca.pem, secret.key. CO_OK also when there are none (a client agent, an open
 * cluster), or when the cluster has dropped the CA of this key while the server was away. */
int authority_load(struct authority *authority, const char *data_dir, struct fault *fault);
/* Writes and takes new ones. CO_INVALID: the key is not the certificate's. */
int authority_store(struct authority *authority, const char *data_dir, const struct tls_issuer *issuer,
                    struct slice secret, struct fault *fault);

void authority_forget(struct authority *authority); /* its keys; the files are the caller's to remove */

bool authority_can_sign(struct authority *authority);
/* The CA that it signs by; false: none. */
bool authority_pin(struct authority *authority, uint8_t pin[TLS_PIN_SIZE]);
/* CO_NOTFOUND: it has no key. As tls_issue. */
int authority_sign(struct authority *authority, struct slice request, const struct tls_subject *subject,
                   struct tls_life life, struct buffer *chain, struct fault *fault);
/* Signs another CA by this one (tls_ca_cross), for a rotation. */
int authority_cross_sign(struct authority *authority, struct slice ca, struct tls_life life, struct buffer *certificate,
                         struct fault *fault);
/* Another certificate of the key that it has, because the one of before ends. CO_INVALID: it is not of this key. */
int authority_take_certificate(struct authority *authority, struct slice certificate, struct fault *fault);
bool authority_hash(struct authority *authority, const struct join_token *token, uint8_t hash[JOIN_TOKEN_HASH_SIZE]);
/* For handing them to another server: copies, to be freed by tls_wipe. False: there are none. */
bool authority_copy(struct authority *authority, struct buffer *certificate, struct buffer *key, struct buffer *secret);

#endif
