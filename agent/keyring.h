/* The shared keys of a process (Consul's `encrypt`): the first one, the primary, is used for what it dials, all are
 * accepted. DATA/keyring.json keeps them: an array of base64 texts, the primary first, mode 0600. Pure but for
 * keyring_read and keyring_write, which block. */
#ifndef COORD_AGENT_KEYRING_H
#define COORD_AGENT_KEYRING_H

#include "base/buffer.h"
#include "base/error.h"
#include "tls/context.h"

#define KEYRING_KEYS_MAX TLS_PSK_KEYS_MAX
#define KEYRING_KEY_MAX  32
#define KEYRING_TEXT     48 /* base64 of a key, and a NUL */
#define KEYRING_FILE     "keyring.json"

struct keyring {
    struct keyring_key {
        uint8_t bytes[KEYRING_KEY_MAX];
        uint8_t size; /* 16, 24 or 32 */
    } keys[KEYRING_KEYS_MAX];
    size_t count; /* 0: none */
};

/* CO_INVALID: not a key. */
int keyring_key_parse(struct slice base64, struct keyring_key *key, struct fault *fault);
int keyring_key_of(struct slice bytes, struct keyring_key *key, struct fault *fault);
void keyring_key_text(const struct keyring_key *key, char text[KEYRING_TEXT]);

/* Done twice they are done. CO_INVALID: refused (an unknown key, the primary, no room), and nothing is changed. */
int keyring_install(struct keyring *ring, const struct keyring_key *key, struct fault *fault);
int keyring_use(struct keyring *ring, const struct keyring_key *key, struct fault *fault);
int keyring_remove(struct keyring *ring, const struct keyring_key *key, struct fault *fault);

/* CO_NOTFOUND without a fault's text: there is no such file. A file that others may read is refused. */
int keyring_read(const char *path, struct keyring *ring, struct fault *fault);
int keyring_write(const char *path, const struct keyring *ring, struct fault *fault); /* whole or not at all */
void keyring_wipe(struct keyring *ring);

#endif
