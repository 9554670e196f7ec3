/* Checksums and hashes. CRC32C (Castagnoli, RFC 3720 B.4) for data on disk; XXH3 for tables and state sums. */
#ifndef COORD_BASE_HASH_H
#define COORD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (start with 0). SSE4.2 where the processor has it. */
uint32_t crc32c(uint32_t crc, const void *data, size_t size);

uint32_t crc32c_table(uint32_t crc, const void *data, size_t size); /* the same, by tables; for tests */

uint64_t hash64(const void *data, size_t size);
uint64_t hash64_seed(const void *data, size_t size, uint64_t seed);
void hash128(const void *data, size_t size, uint8_t out[16]); /* canonical (big-endian) bytes */

#endif
