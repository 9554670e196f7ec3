#include "tls/psk.h"

#include <gnutls/crypto.h>
#include <stdio.h>

#include "base/check.h"

void tls_psk_identity(struct slice key, char text[TLS_PSK_IDENTITY_SIZE]) {
    static const char purpose[] = "coord shared key";
    uint8_t hash[32];
    CHECK(gnutls_hmac_fast(GNUTLS_MAC_SHA256, key.data, key.size, purpose, sizeof purpose - 1, hash) == 0);
    snprintf(text, TLS_PSK_IDENTITY_SIZE, "coord-%016llx", (unsigned long long)get_be64(hash));
}

const struct slice *tls_psk_find(const struct tls_context *context, struct slice identity) {
    const struct slice *keys;
    size_t count = tls_context_psk(context, &keys);
    for (size_t i = 0; i < count; i++) {
        char text[TLS_PSK_IDENTITY_SIZE];
        tls_psk_identity(keys[i], text);
        if (slice_is(identity, text)) return &keys[i];
    }
    return NULL;
}
