/* Secrets that stay in memory: in pages of their own, which the kernel leaves out of core dumps and, where the limits of the
 * process allow it, does not swap out. Zero-initialise. One thread at a time. */
#ifndef COORD_TLS_SECRET_H
#define COORD_TLS_SECRET_H

#include "base/buffer.h"
#include "base/error.h"

struct tls_secret {
    char *data;
    size_t size, mapped;
};

int tls_secret_set(struct tls_secret *secret, struct slice bytes, struct fault *fault); /* replaces; CO_NOMEM */
void tls_secret_free(struct tls_secret *secret);
static inline struct slice tls_secret_slice(const struct tls_secret *secret) {
    return slice_make(secret->data, secret->size);
}

#endif
