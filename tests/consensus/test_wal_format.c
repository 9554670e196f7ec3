#include <criterion/criterion.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"
#include "consensus/entry.h"
#include "consensus/wal_format.h"

static struct wal_encoder encoder;

static char *batch_of_three(struct wal_head *head) {
    wal_encode_begin(&encoder);
    struct wal_record records[] = {{.type = WAL_RECORD_HARD_STATE, .index = 2, .term = 9},
                                   {.type = RAFT_ENTRY_COMMAND,
                                    .index = 70,
                                    .term = 8,
                                    .data = SLICE_LITERAL("something"),
                                    .unix_ms = 0x123456789abc},
                                   {.type = RAFT_ENTRY_EMPTY, .index = 71, .term = 9}};
    for (int i = 0; i < 3; i++) wal_encode_record(&encoder, &records[i]);
    uint32_t sum = wal_encode_end(&encoder, 0x1122334455667788, 17, 5120, 0xabcdef01);
    cr_assert_eq(wal_head_decode(encoder.bytes.data, head), WAL_HEAD_OK);
    cr_assert_eq(head->sum, sum);
    return encoder.bytes.data;
}

static void end(void) { buffer_free(&encoder.bytes); }

TestSuite(wal_format, .fini = end);

Test(wal_format, the_layout_is_the_documented_one) {
    struct wal_head head;
    const char *bytes = batch_of_three(&head);
    cr_assert_eq(encoder.bytes.size, 512);
    cr_assert_eq(memcmp(bytes, "cwal\1\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11", 16), 0);
    cr_assert_eq(get_le64(bytes + 16), 17);
    cr_assert_eq(get_le64(bytes + 24), 5120);
    cr_assert_eq(get_le32(bytes + 32), 512);
    cr_assert_eq(get_le32(bytes + 36), 3);
    cr_assert_eq(get_le64(bytes + 40), 70, "the first entry, not the vote");
    cr_assert_eq(get_le32(bytes + 48), 0xabcdef01);
    cr_assert_eq(get_le32(bytes + 56), crc32c(0, bytes, 56));
    const char *second = bytes + 64 + 32;
    cr_assert_eq(get_le32(second), crc32c(0, second + 4, 28 + 9));
    cr_assert_eq(get_le32(second + 4), 9);
    cr_assert_eq(get_le64(second + 8), 70);
    cr_assert_eq(get_le64(second + 16), 8);
    cr_assert_eq(memcmp(second + 24, "\0\0\xbc\x9a\x78\x56\x34\x12", 8), 0, "the type, and when it was proposed");
    cr_assert_eq(memcmp(second + 32, "something", 9), 0);
    size_t end_of_records = 64 + 3 * 32 + 9;
    cr_assert(wal_is_zero(bytes + end_of_records, 512 - end_of_records));
}

Test(wal_format, what_was_put_in_comes_out) {
    struct wal_head head;
    char *bytes = batch_of_three(&head);
    cr_assert(head.log_id == 0x1122334455667788 && head.seq == 17 && head.offset == 5120 && head.chain == 0xabcdef01);
    size_t padding;
    cr_assert_null(wal_batch_check(&head, bytes, &padding));
    cr_assert_eq(padding, 512 - 64 - 3 * 32 - 9);
    struct wal_cursor cursor = wal_cursor_make(&head, bytes);
    struct wal_record record;
    cr_assert_eq(wal_cursor_next(&cursor, &record), 1);
    cr_assert(record.type == WAL_RECORD_HARD_STATE && record.index == 2 && record.term == 9 && record.data.size == 0);
    cr_assert_eq(wal_cursor_next(&cursor, &record), 1);
    cr_assert(record.index == 70 && record.unix_ms == 0x123456789abc && slice_is(record.data, "something"));
    cr_assert_eq(wal_cursor_next(&cursor, &record), 1);
    cr_assert(record.type == RAFT_ENTRY_EMPTY && record.index == 71);
    cr_assert_eq(wal_cursor_next(&cursor, &record), 0);
}

/* A sector of another batch that lay at the same place: each record is sound, but they do not belong together. */
Test(wal_format, a_record_of_another_batch_does_not_pass) {
    struct wal_head head;
    char *bytes = batch_of_three(&head), *second = bytes + 64 + 32;
    memcpy(second + 32, "otherwise", 9);
    put_le32(second, crc32c(0, second + 4, 28 + 9));
    size_t padding;
    const char *what = wal_batch_check(&head, bytes, &padding);
    cr_assert(what && strstr(what, "not those"), "%s", what ? what : "passed");
}

Test(wal_format, a_head_that_cannot_be_is_none) {
    struct {
        unsigned at;
        uint32_t value;
    } bad[] = {{32, 0}, {32, 513}, {32, 512 + 256}, {32, 0x80000000}, {36, 0}, {36, 17}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct wal_head head;
        char *bytes = batch_of_three(&head);
        put_le32(bytes + bad[i].at, bad[i].value);
        put_le32(bytes + 56, crc32c(0, bytes, 56));
        cr_assert_eq(wal_head_decode(bytes, &head), WAL_HEAD_NONE, "%u at %u", bad[i].value, bad[i].at);
    }
}

Test(wal_format, any_flipped_bit_but_in_padding_is_noticed) {
    for (unsigned bit = 0; bit < 512 * 8; bit++) {
        struct wal_head head;
        char *bytes = batch_of_three(&head);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        size_t padding;
        bool good = wal_head_decode(bytes, &head) == WAL_HEAD_OK && !wal_batch_check(&head, bytes, &padding);
        cr_assert_eq(good, bit / 8 >= 512 - 343, "bit %u", bit);
    }
}

/* With the sums made right again, so that the walk over the records is reached. */
Test(wal_format, any_bytes_are_survived) {
    struct rng rng;
    rng_seed(&rng, 1);
    unsigned walked = 0;
    for (int round = 0; round < 100000; round++) {
        struct wal_head head;
        char bytes[512];
        memcpy(bytes, batch_of_three(&head), 512);
        for (uint64_t n = rng_between(&rng, 1, 3); n > 0; n--) bytes[rng_below(&rng, 180)] = (char)rng_next(&rng);
        put_le32(bytes + 56, crc32c(0, bytes, 56));
        if (wal_head_decode(bytes, &head) != WAL_HEAD_OK || head.size > sizeof bytes) continue;
        struct wal_cursor cursor = wal_cursor_make(&head, bytes);
        struct wal_record record;
        uint64_t total = 0;
        while (wal_cursor_next(&cursor, &record) == 1) {
            cr_assert(record.data.data >= bytes && record.data.data + record.data.size <= bytes + 512);
            total += record.data.size;
        }
        cr_assert(total <= 512);
        walked++;
    }
    cr_assert(walked > 10000, "%u", walked);
}
