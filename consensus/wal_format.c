#include "consensus/wal_format.h"

#include "base/check.h"
#include "base/hash.h"

#define MAGIC        0x6c617763u /* "cwal" */
#define UNIX_MS_MOST (UINT64_MAX >> 16)
_Static_assert((WAL_SECTOR & (WAL_SECTOR - 1)) == 0 && WAL_HEAD_BYTES <= WAL_SECTOR, "a head is never torn");
_Static_assert(WAL_BATCH_BYTES_MAX <= UINT32_MAX && WAL_BATCH_BYTES_MAX % WAL_SECTOR == 0, "its size has 32 bits");

static void put_le16(void *to, uint16_t value) { memcpy(to, &value, 2); }
static uint16_t get_le16(const void *from) {
    uint16_t value;
    memcpy(&value, from, 2);
    return value;
}

/* -- writing -- */

void wal_encode_begin(struct wal_encoder *encoder) {
    buffer_reset(&encoder->bytes);
    buffer_reserve(&encoder->bytes, WAL_SECTOR);
    encoder->bytes.size = WAL_HEAD_BYTES;
    encoder->record_count = 0;
    encoder->body_sum = 0;
    encoder->first_index = 0;
}

void wal_encode_record(struct wal_encoder *encoder, const struct wal_record *record) {
    size_t size = WAL_RECORD_BYTES + record->data.size;
    CHECK(encoder->bytes.size >= WAL_HEAD_BYTES && record->data.size <= UINT32_MAX);
    buffer_reserve(&encoder->bytes, size);
    char *to = encoder->bytes.data + encoder->bytes.size;
    put_le32(to + 4, (uint32_t)record->data.size);
    put_le64(to + 8, record->index);
    put_le64(to + 16, record->term);
    CHECK(record->type <= UINT16_MAX && record->unix_ms <= UNIX_MS_MOST);
    put_le64(to + 24, record->type | record->unix_ms << 16);
    if (record->data.size) memcpy(to + WAL_RECORD_BYTES, record->data.data, record->data.size);
    put_le32(to, crc32c(0, to + 4, size - 4));
    encoder->body_sum = crc32c(encoder->body_sum, to, 4);
    encoder->bytes.size += size;
    encoder->record_count++;
    if (encoder->first_index == 0 && record->type < WAL_RECORD_SEGMENT) encoder->first_index = record->index;
}

uint32_t wal_encode_end(struct wal_encoder *encoder, uint64_t log_id, uint64_t seq, uint64_t offset, uint32_t chain) {
    struct buffer *bytes = &encoder->bytes;
    size_t size = wal_round_up(bytes->size), padding = size - bytes->size;
    CHECK(size <= WAL_BATCH_BYTES_MAX && encoder->record_count > 0);
    CHECK(offset % WAL_SECTOR == 0);
    buffer_reserve(bytes, padding);
    memset(bytes->data + bytes->size, 0, padding);
    bytes->size = size;

    char *head = bytes->data;
    put_le32(head, MAGIC);
    put_le16(head + 4, WAL_VERSION);
    put_le16(head + 6, 0);
    put_le64(head + 8, log_id);
    put_le64(head + 16, seq);
    put_le64(head + 24, offset);
    put_le32(head + 32, (uint32_t)size);
    put_le32(head + 36, encoder->record_count);
    put_le64(head + 40, encoder->first_index);
    put_le32(head + 48, chain);
    put_le32(head + 52, encoder->body_sum);
    uint32_t sum = crc32c(0, head, 56);
    put_le32(head + 56, sum);
    put_le32(head + 60, 0);
    return sum;
}

/* -- reading -- */

enum wal_head_state wal_head_decode(const void *bytes, struct wal_head *head) {
    const char *from = bytes;
    if (get_le32(from) != MAGIC || get_le32(from + 56) != crc32c(0, from, 56)) return WAL_HEAD_NONE;
    if (get_le32(from + 60) != 0) return WAL_HEAD_NONE;
    if (get_le16(from + 4) != WAL_VERSION) return WAL_HEAD_NEWER;
    *head = (struct wal_head){
        .log_id = get_le64(from + 8),
        .seq = get_le64(from + 16),
        .offset = get_le64(from + 24),
        .size = get_le32(from + 32),
        .record_count = get_le32(from + 36),
        .first_index = get_le64(from + 40),
        .chain = get_le32(from + 48),
        .body_sum = get_le32(from + 52),
        .sum = get_le32(from + 56),
    };
    if (head->size % WAL_SECTOR != 0 || head->size > WAL_BATCH_BYTES_MAX || head->record_count == 0)
        return WAL_HEAD_NONE;
    uint64_t least = WAL_HEAD_BYTES + (uint64_t)head->record_count * WAL_RECORD_BYTES;
    return head->size >= least ? WAL_HEAD_OK : WAL_HEAD_NONE;
}

struct wal_cursor wal_cursor_make(const struct wal_head *head, const void *batch) {
    const char *from = batch;
    return (struct wal_cursor){from + WAL_HEAD_BYTES, from + head->size, head->record_count};
}

int wal_cursor_next(struct wal_cursor *cursor, struct wal_record *record) {
    if (cursor->left == 0) return 0;
    CHECK(cursor->at <= cursor->end);
    size_t room = (size_t)(cursor->end - cursor->at);
    if (room < WAL_RECORD_BYTES) return -1;
    const char *at = cursor->at;
    size_t size = get_le32(at + 4);
    if (size > room - WAL_RECORD_BYTES) return -1;
    if (get_le32(at) != crc32c(0, at + 4, WAL_RECORD_BYTES - 4 + size)) return -1;
    record->index = get_le64(at + 8);
    record->term = get_le64(at + 16);
    record->type = (uint16_t)get_le64(at + 24);
    record->unix_ms = get_le64(at + 24) >> 16;
    record->data = slice_make(at + WAL_RECORD_BYTES, size);
    cursor->at += WAL_RECORD_BYTES + size;
    cursor->left--;
    return 1;
}

const char *wal_batch_check(const struct wal_head *head, const void *batch, size_t *padding) {
    struct wal_cursor cursor = wal_cursor_make(head, batch);
    struct wal_record record;
    uint32_t sum = 0;
    int rv;
    while (true) {
        const char *at = cursor.at;
        rv = wal_cursor_next(&cursor, &record);
        if (rv <= 0) break;
        sum = crc32c(sum, at, 4);
    }
    if (rv < 0) return "a record's checksum does not match";
    if (sum != head->body_sum) return "the records are not those that the batch was written with";
    *padding = (size_t)(cursor.end - cursor.at);
    return *padding < WAL_SECTOR ? NULL : "its size does not fit its records";
}

bool wal_is_zero(const void *bytes, size_t size) {
    const char *at = bytes;
    return size == 0 || (at[0] == 0 && memcmp(at, at + 1, size - 1) == 0);
}
