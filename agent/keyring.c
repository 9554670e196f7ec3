#include "agent/keyring.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json_in.h"
#include "base/text.h"
#include "tls/certificate.h"
#include "tls/folder.h"

/* -- keys --------------------------------------------------------------------------------------------------------- */
int keyring_key_of(struct slice bytes, struct keyring_key *key, struct fault *fault) {
    *key = (struct keyring_key){0};
    if (bytes.size != 16 && bytes.size != 24 && bytes.size != 32)
        return fault_set(fault, CO_INVALID, "a key has 16, 24 or 32 bytes, and this one has %zu", bytes.size);
    memcpy(key->bytes, bytes.data, bytes.size);
    key->size = (uint8_t)bytes.size;
    return CO_OK;
}

int keyring_key_parse(struct slice base64, struct keyring_key *key, struct fault *fault) {
    struct buffer bytes = {0};
    *key = (struct keyring_key){0};
    int rv = base64_decode(&bytes, base64) == CO_OK ? keyring_key_of(buffer_slice(&bytes), key, fault)
                                                    : fault_set(fault, CO_INVALID, "a key is text in base64");
    tls_wipe(&bytes);
    return rv;
}

void keyring_key_text(const struct keyring_key *key, char text[KEYRING_TEXT]) {
    struct buffer out = {0};
    base64_encode(&out, key->bytes, key->size);
    snprintf(text, KEYRING_TEXT, "%.*s", (int)out.size, out.data);
    tls_wipe(&out);
}

static bool same(const struct keyring_key *a, const struct keyring_key *b) {
    return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

/* `count`: it is not there. */
static size_t place_of(const struct keyring *ring, const struct keyring_key *key) {
    size_t at = 0;
    while (at < ring->count && !same(&ring->keys[at], key)) at++;
    return at;
}

/* -- the ring ----------------------------------------------------------------------------------------------------- */
int keyring_install(struct keyring *ring, const struct keyring_key *key, struct fault *fault) {
    if (place_of(ring, key) < ring->count) return CO_OK;
    if (ring->count == KEYRING_KEYS_MAX)
        return fault_set(fault, CO_INVALID, "there are %d keys, and no more fit: remove one first", KEYRING_KEYS_MAX);
    ring->keys[ring->count++] = *key;
    return CO_OK;
}

int keyring_use(struct keyring *ring, const struct keyring_key *key, struct fault *fault) {
    size_t at = place_of(ring, key);
    if (at == ring->count) return fault_set(fault, CO_INVALID, "the key is not in the keyring: install it first");
    struct keyring_key used = ring->keys[at];
    memmove(&ring->keys[1], &ring->keys[0], at * sizeof used);
    ring->keys[0] = used;
    explicit_bzero(&used, sizeof used);
    return CO_OK;
}

int keyring_remove(struct keyring *ring, const struct keyring_key *key, struct fault *fault) {
    size_t at = place_of(ring, key);
    if (at == ring->count) return CO_OK;
    if (at == 0) return fault_set(fault, CO_INVALID, "the key is the primary one, which is in use: use another first");
    ring->count--;
    memmove(&ring->keys[at], &ring->keys[at + 1], (ring->count - at) * sizeof ring->keys[0]);
    explicit_bzero(&ring->keys[ring->count], sizeof ring->keys[0]);
    return CO_OK;
}

void keyring_wipe(struct keyring *ring) { explicit_bzero(ring, sizeof *ring); }

/* -- the file ----------------------------------------------------------------------------------------------------- */
static int take_texts(struct json_object *list, struct keyring *ring, struct fault *fault) {
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0)
        return fault_set(fault, CO_CORRUPT, "an array of keys is wanted");
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *text = json_object_array_get_idx(list, i);
        struct keyring_key key = {0};
        if (!json_object_is_type(text, json_type_string))
            return fault_set(fault, CO_CORRUPT, "an array of keys is wanted");
        int rv = keyring_key_parse(slice_text(json_object_get_string(text)), &key, fault);
        if (rv == CO_OK) rv = keyring_install(ring, &key, fault);
        explicit_bzero(&key, sizeof key);
        if (rv != CO_OK) return rv;
    }
    return CO_OK;
}

int keyring_read(const char *path, struct keyring *ring, struct fault *fault) {
    struct buffer text = {0};
    struct fault inner = {0};
    struct json_object *list = NULL;
    *ring = (struct keyring){0};
    if (access(path, F_OK) != 0) return CO_NOTFOUND;
    int rv = tls_key_file_read(path, &text, fault); /* its faults name the file */
    if (rv != CO_OK) return rv;
    rv = json_parse_value(buffer_slice(&text), &list, &inner);
    if (rv == CO_OK) rv = take_texts(list, ring, &inner);
    if (list) json_object_put(list);
    tls_wipe(&text);
    if (rv != CO_OK) keyring_wipe(ring);
    return rv == CO_OK ? CO_OK : fault_set(fault, CO_CORRUPT, "%s: %s", path, inner.text);
}

int keyring_write(const char *path, const struct keyring *ring, struct fault *fault) {
    struct buffer out = {0};
    buffer_reserve(&out, KEYRING_KEYS_MAX * (KEYRING_TEXT + 8)); /* once, so that no copy of a key is left behind */
    buffer_append_text(&out, "[");
    for (size_t i = 0; i < ring->count; i++) {
        char text[KEYRING_TEXT];
        keyring_key_text(&ring->keys[i], text);
        buffer_printf(&out, "%s\n  \"%s\"", i ? "," : "", text);
        explicit_bzero(text, sizeof text);
    }
    buffer_append_text(&out, "\n]\n");
    int rv = tls_key_file_write(path, buffer_slice(&out), fault);
    tls_wipe(&out);
    return rv;
}
