#include "tls/key_import.h"

#include <gnutls/crypto.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

static void wipe(struct buffer *secret) {
    if (secret->data) gnutls_memset(secret->data, 0, secret->capacity);
    buffer_free(secret);
}

static const char *find(struct slice in, const char *text) { return memmem(in.data, in.size, text, strlen(text)); }

static struct slice from(struct slice text, const char *at) {
    return slice_make(at, (size_t)(text.data + text.size - at));
}

/* The text between the lines "-----BEGIN [EC |RSA ]PRIVATE KEY-----" and "-----END". */
static bool body_of(struct slice pem, struct slice *body) {
    static const char kind[] = "PRIVATE KEY-----";
    for (const char *begin; (begin = find(pem, "-----BEGIN ")) != NULL;) {
        pem = from(pem, begin + strlen("-----BEGIN "));
        const char *line = memchr(pem.data, '\n', pem.size);
        if (!line) return false;
        struct slice label = slice_make(pem.data, (size_t)(line - pem.data));
        while (label.size && label.data[label.size - 1] == '\r') label.size--;
        pem = from(pem, line);
        bool ends =
            label.size >= strlen(kind) && memcmp(label.data + label.size - strlen(kind), kind, strlen(kind)) == 0;
        if (!ends) continue;
        const char *end = find(pem, "-----END ");
        if (!end || find(label, "ENCRYPTED")) return false;
        *body = slice_make(pem.data, (size_t)(end - pem.data));
        return true;
    }
    return false;
}

bool key_der(struct slice pem, struct buffer *der) {
    struct slice body;
    struct buffer digits = {0};
    if (!body_of(pem, &body)) return false;
    buffer_reserve(&digits, body.size); /* never moved, because the old place would keep the text */
    for (size_t i = 0; i < body.size; i++)
        if (!strchr(" \t\r\n", body.data[i])) buffer_append(&digits, &body.data[i], 1);
    buffer_reserve(der, digits.size);
    bool decoded = base64_decode(der, buffer_slice(&digits)) == CO_OK && der->size > 0;
    wipe(&digits);
    return decoded;
}

int key_import(gnutls_x509_privkey_t key, struct slice pem) {
    struct buffer der = {0};
    bool decoded = key_der(pem, &der);
    gnutls_datum_t text = {(unsigned char *)(uintptr_t)pem.data, (unsigned)pem.size};
    if (decoded) text = (gnutls_datum_t){(unsigned char *)der.data, (unsigned)der.size};
    int rv = gnutls_x509_privkey_import2(key, &text, decoded ? GNUTLS_X509_FMT_DER : GNUTLS_X509_FMT_PEM, NULL,
                                         GNUTLS_PKCS_PLAIN);
    wipe(&der);
    return rv;
}
