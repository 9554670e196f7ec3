/* Any bytes as a batch of the log: as they are, and with the head's sums made right so that the records are reached. */
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "consensus/wal_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const char *batch, size_t size) {
    struct wal_head head;
    if (size < WAL_HEAD_BYTES || wal_head_decode(batch, &head) != WAL_HEAD_OK || head.size > size) return;
    size_t padding = 0;
    bool whole = wal_batch_check(&head, batch, &padding) == NULL;
    struct wal_cursor cursor = wal_cursor_make(&head, batch);
    struct wal_record record;
    uint64_t count = 0, bytes = WAL_HEAD_BYTES;
    int more;
    while ((more = wal_cursor_next(&cursor, &record)) == 1) {
        CHECK(record.data.data >= batch && record.data.data + record.data.size <= batch + head.size);
        bytes += WAL_RECORD_BYTES + record.data.size;
        count++;
    }
    CHECK(bytes <= head.size && count <= head.record_count);
    if (whole) CHECK(more == 0 && count == head.record_count && bytes + padding == head.size && padding < WAL_SECTOR);
}

/* Sums and counts that fit, as far as the bytes make records. */
static void mend(char *batch, size_t size) {
    size_t at = WAL_HEAD_BYTES;
    uint32_t count = 0, sum = 0;
    while (at + WAL_RECORD_BYTES <= size) {
        size_t record = WAL_RECORD_BYTES + (size_t)(uint8_t)batch[at + 4];
        if (record > size - at) break;
        memset(batch + at + 5, 0, 3);
        put_le32(batch + at, crc32c(0, batch + at + 4, record - 4));
        sum = crc32c(sum, batch + at, 4);
        at += record;
        count++;
    }
    memcpy(batch, "cwal\1\0\0\0", 8);
    put_le32(batch + 32, (uint32_t)(size / WAL_SECTOR * WAL_SECTOR));
    put_le32(batch + 36, count);
    put_le32(batch + 52, sum);
    put_le32(batch + 56, crc32c(0, batch, 56));
    put_le32(batch + 60, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* A copy of just this size, so that a read past the end is seen. */
    char *exact = malloc(size ? size : 1);
    if (size) memcpy(exact, data, size);
    walk(exact, size);
    if (size >= WAL_HEAD_BYTES) {
        mend(exact, size);
        walk(exact, size);
    }
    free(exact);
    return 0;
}
