#include <criterion/criterion.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"

/* RFC 3720 B.4 */
Test(crc32c, known) {
    unsigned char data[32];
    memset(data, 0, sizeof data);
    cr_expect_eq(crc32c(0, data, 32), 0x8a9136aa);
    memset(data, 0xff, sizeof data);
    cr_expect_eq(crc32c(0, data, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++) data[i] = (unsigned char)i;
    cr_expect_eq(crc32c(0, data, 32), 0x46dd794e);
    for (int i = 0; i < 32; i++) data[i] = (unsigned char)(31 - i);
    cr_expect_eq(crc32c(0, data, 32), 0x113fdb5c);
    cr_expect_eq(crc32c(0, "123456789", 9), 0xe3069283);
    cr_expect_eq(crc32c(0, NULL, 0), 0);
}

Test(crc32c, tables_agree_and_parts_join) {
    unsigned char data[1024];
    struct rng rng;
    rng_seed(&rng, 3);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)rng_next(&rng);
    for (int round = 0; round < 2000; round++) {
        size_t from = rng_below(&rng, sizeof data), size = rng_below(&rng, sizeof data - from + 1);
        size_t cut = rng_between(&rng, 0, size);
        uint32_t whole = crc32c(0, data + from, size);
        cr_assert_eq(crc32c_table(0, data + from, size), whole);
        cr_assert_eq(crc32c(crc32c(0, data + from, cut), data + from + cut, size - cut), whole);
    }
}

Test(hash, xxh3) {
    /* From the XXH3 specification: the empty input. */
    cr_expect_eq(hash64("", 0), 0x2d06800538d394c2);
    cr_expect_eq(hash64_seed("abc", 3, 0), hash64("abc", 3));
    cr_expect_neq(hash64_seed("abc", 3, 1), hash64("abc", 3));
    uint8_t digest[16];
    hash128("", 0, digest);
    static const uint8_t empty[16] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                                      0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
    cr_expect_arr_eq(digest, empty, 16);
}
