/* Keys that fit LMDB's 511 bytes. */
#include <stdarg.h>

#include "base/check.h"
#include "base/hash.h"
#include "registry/store.h"

#define HASH_BYTES     16
#define PART_COUNT_MAX 4
#define PART_MARK      '\x01'
#define PART_KEEP      (STORE_PART_MAX - 2 * HASH_BYTES) /* a shortened part is one byte longer than any other */

struct slice store_key_long(struct slice key, char *room) {
    _Static_assert(STORE_KEY_PREFIX + HASH_BYTES == STORE_KEY_WHOLE + 1, "shortened keys are longer than whole ones");
    if (key.size <= STORE_KEY_WHOLE) return key;
    memcpy(room, key.data, STORE_KEY_PREFIX);
    hash128(key.data, key.size, (uint8_t *)room + STORE_KEY_PREFIX);
    return slice_make(room, STORE_KEY_PREFIX + HASH_BYTES);
}

static char *join_part(char *at, struct slice part) {
    static const char digits[] = "0123456789abcdef";
    if (part.size <= STORE_PART_MAX) {
        if (part.size) memcpy(at, part.data, part.size);
        at += part.size;
    } else {
        uint8_t hash[HASH_BYTES];
        hash128(part.data, part.size, hash);
        memcpy(at, part.data, PART_KEEP);
        at += PART_KEEP;
        *at++ = PART_MARK;
        for (size_t i = 0; i < HASH_BYTES; i++) {
            *at++ = digits[hash[i] >> 4];
            *at++ = digits[hash[i] & 15];
        }
    }
    *at++ = '\0';
    return at;
}

struct slice store_key_join(char *room, size_t part_count, ...) {
    _Static_assert(PART_COUNT_MAX * (STORE_PART_MAX + 2) <= STORE_KEY_MAX, "a key of the longest parts fits");
    CHECK(part_count > 0 && part_count <= PART_COUNT_MAX);
    va_list parts;
    va_start(parts, part_count);
    char *at = room;
    for (size_t i = 0; i < part_count; i++) at = join_part(at, va_arg(parts, struct slice));
    va_end(parts);
    return slice_make(room, (size_t)(at - room));
}
