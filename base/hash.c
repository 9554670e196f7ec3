#include "base/hash.h"

#include <pthread.h>
#include <string.h>
#include <xxhash.h>

#include "base/buffer.h"

#define CASTAGNOLI 0x82f63b78u /* the polynomial, bits reversed */

static uint32_t tables[8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

/* tables[n][b]: the checksum of byte b followed by n zero bytes, so that eight bytes take eight look-ups. */
static void tables_fill(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ CASTAGNOLI : crc >> 1;
        tables[0][byte] = crc;
    }
    for (int n = 1; n < 8; n++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t shorter = tables[n - 1][byte];
            tables[n][byte] = shorter >> 8 ^ tables[0][shorter & 255];
        }
    }
}

uint32_t crc32c_table(uint32_t crc, const void *data, size_t size) {
    pthread_once(&tables_once, tables_fill);
    const unsigned char *at = data;
    crc = ~crc;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word = get_le64(at) ^ crc;
        crc = 0;
        for (int i = 0; i < 8; i++) crc ^= tables[7 - i][word >> 8 * i & 255];
    }
    for (; size > 0; size--, at++) crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
    return ~crc;
}

#ifdef __x86_64__

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data, size_t size) {
    const unsigned char *at = data;
    uint64_t wide = ~crc;
    for (; size >= 8; size -= 8, at += 8) wide = __builtin_ia32_crc32di(wide, get_le64(at));
    uint32_t narrow = (uint32_t)wide;
    for (; size > 0; size--, at++) narrow = __builtin_ia32_crc32qi(narrow, *at);
    return ~narrow;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t size) {
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(crc, data, size) : crc32c_table(crc, data, size);
}

#else

uint32_t crc32c(uint32_t crc, const void *data, size_t size) { return crc32c_table(crc, data, size); }

#endif

uint64_t hash64(const void *data, size_t size) { return XXH3_64bits(data, size); }

uint64_t hash64_seed(const void *data, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(data, size, seed); }

void hash128(const void *data, size_t size, uint8_t out[16]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
    memcpy(out, canonical.digest, 16);
}
