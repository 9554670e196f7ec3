#include "dns/endings.h"

#include <stdlib.h>

#include "base/hash.h"
#include "dns/name.h"

/* Endings are hashed with their dot. So they differ from all names that DNS can ask for, because none begins with a
 * dot. */
static uint64_t hash_of(const char *name, size_t size) {
    uint8_t lower[PACKET_NAME_MAX + 1];
    wire_name_lower(lower, (const uint8_t *)name, size);
    return hash64(lower, size);
}

void endings_add(struct buffer *hashes, struct slice name) {
    if (name.size > PACKET_NAME_MAX) return;
    for (size_t at = 0; at < name.size; at++) {
        if (at > 0 && name.data[at] != '.') continue;
        uint64_t hash = hash_of(name.data + at, name.size - at);
        buffer_append(hashes, &hash, sizeof(hash));
    }
}

static int compare(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

void endings_sort(struct buffer *hashes) {
    uint64_t *items = (uint64_t *)(void *)hashes->data;
    size_t count = hashes->size / sizeof(*items), kept = 0;
    if (count) qsort(items, count, sizeof(*items), compare);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || items[kept - 1] != items[i]) items[kept++] = items[i];
    }
    hashes->size = kept * sizeof(*items);
}

static bool has(const uint64_t *hashes, size_t count, const char *name, size_t size) {
    uint64_t hash = hash_of(name, size);
    return count && bsearch(&hash, hashes, count, sizeof(hash), compare) != NULL;
}

enum endings_found endings_find(const uint64_t *hashes, size_t count, struct slice name) {
    char ending[PACKET_NAME_MAX + 1] = ".";
    if (name.size == 0 || name.size > PACKET_NAME_MAX) return ENDINGS_NONE;
    if (has(hashes, count, name.data, name.size)) return ENDINGS_NAME;
    memcpy(ending + 1, name.data, name.size);
    return has(hashes, count, ending, name.size + 1) ? ENDINGS_BELOW : ENDINGS_NONE;
}
