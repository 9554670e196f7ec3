#include "consensus/snapshot_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

#define VERSION 1u
static const char head_magic[8] = {'c', 'o', 'o', 'r', 'd', 's', 'n', 'p'};
static const char trailer_magic[8] = {'s', 'n', 'a', 'p', 'e', 'n', 'd', '.'};

/* -- names -- */

_Static_assert(sizeof "part-0123456789abcdef-0123456789abcdef" <= DISK_NAME_MAX, "both names fit");

void snapshot_name(uint64_t index, char name[DISK_NAME_MAX]) {
    snprintf(name, DISK_NAME_MAX, "snap-%016" PRIx64, index);
}

void snapshot_part_name(uint64_t index, uint64_t term, char name[DISK_NAME_MAX]) {
    snprintf(name, DISK_NAME_MAX, "part-%016" PRIx64 "-%016" PRIx64, index, term);
}

bool snapshot_name_index(const char *name, const char *kind, uint64_t *index) {
    size_t length = strlen(kind);
    if (strncmp(name, kind, length) != 0 || strspn(name + length, "0123456789abcdef") != 16) return false;
    *index = strtoull(name + length, NULL, 16);
    return true;
}

/* -- head and trailer -- */

uint32_t snapshot_head_encode(const struct raft_snapshot_meta *meta, char head[SNAPSHOT_HEAD_BYTES]) {
    struct buffer members = {0};
    raft_members_encode(&meta->members, &members);
    CHECK(members.size <= SNAPSHOT_HEAD_BYTES - 52);
    memset(head, 0, SNAPSHOT_HEAD_BYTES);
    memcpy(head, head_magic, sizeof head_magic);
    put_le32(head + 8, VERSION);
    put_le32(head + 12, (uint32_t)members.size);
    put_le64(head + 16, meta->index);
    put_le64(head + 24, meta->term);
    put_le64(head + 32, meta->members_index);
    put_le64(head + 40, meta->size);
    if (members.size) memcpy(head + 48, members.data, members.size);
    buffer_free(&members);
    uint32_t sum = crc32c(0, head, SNAPSHOT_HEAD_BYTES - 4);
    put_le32(head + SNAPSHOT_HEAD_BYTES - 4, sum);
    return sum;
}

int snapshot_head_decode(const char head[SNAPSHOT_HEAD_BYTES], struct raft_snapshot_meta *meta, uint32_t *chain) {
    if (memcmp(head, head_magic, sizeof head_magic) != 0) return CO_CORRUPT;
    *chain = get_le32(head + SNAPSHOT_HEAD_BYTES - 4);
    if (*chain != crc32c(0, head, SNAPSHOT_HEAD_BYTES - 4)) return CO_CORRUPT;
    if (get_le32(head + 8) != VERSION) return CO_UNSUPPORTED;
    memset(meta, 0, sizeof *meta);
    meta->index = get_le64(head + 16);
    meta->term = get_le64(head + 24);
    meta->members_index = get_le64(head + 32);
    meta->size = get_le64(head + 40);
    uint32_t size = get_le32(head + 12);
    if (size > SNAPSHOT_HEAD_BYTES - 52) return CO_CORRUPT;
    return raft_members_decode(slice_make(head + 48, size), &meta->members);
}

void snapshot_trailer_encode(uint64_t size, uint32_t chain, char trailer[SNAPSHOT_TRAILER_BYTES]) {
    memcpy(trailer, trailer_magic, sizeof trailer_magic);
    put_le64(trailer + 8, size);
    put_le32(trailer + 16, chain);
    put_le32(trailer + 20, crc32c(0, trailer, 20));
}

int snapshot_trailer_decode(const char trailer[SNAPSHOT_TRAILER_BYTES], uint64_t *size, uint32_t *chain) {
    if (memcmp(trailer, trailer_magic, sizeof trailer_magic) != 0) return CO_CORRUPT;
    if (get_le32(trailer + 20) != crc32c(0, trailer, 20)) return CO_CORRUPT;
    *size = get_le64(trailer + 8);
    *chain = get_le32(trailer + 16);
    return CO_OK;
}
