/* Snapshot files from the inside; for consensus/snapshot*.c only.
 *
 *   head     4096 bytes:
 *               0  magic "coordsnp"
 *               8  u32 version
 *              12  u32 size of the members
 *              16  u64 index
 *              24  u64 term
 *              32  u64 members_index
 *              40  u64 size announced by the sender (0: not known)
 *              48  members (raft_members_encode), zeros
 *            4092  u32 CRC32C of all before
 *   blocks   65536 bytes each (the last one: the rest), each followed by a u32: the CRC32C over the block, continued
 *            from the value before it (for the first block: that of the head)
 *   trailer     0  magic "snapend."
 *               8  u64 size
 *              16  u32 value of the last block (or the head)
 *              20  u32 CRC32C of all before
 *
 * So a block is checked with the 4 bytes on both of its sides, and the trailer vouches for all of them. Numbers are
 * little-endian. */
#ifndef COORD_CONSENSUS_SNAPSHOT_FORMAT_H
#define COORD_CONSENSUS_SNAPSHOT_FORMAT_H

#include <stdbool.h>

#include "consensus/snapshot.h"

#define SNAPSHOT_HEAD_BYTES    4096u
#define SNAPSHOT_BLOCK         65536u
#define SNAPSHOT_TRAILER_BYTES 24u

static inline uint64_t snapshot_block_offset(uint64_t block) {
    return SNAPSHOT_HEAD_BYTES + block * (SNAPSHOT_BLOCK + 4);
}
static inline uint64_t snapshot_file_size(uint64_t size) {
    uint64_t blocks = (size + SNAPSHOT_BLOCK - 1) / SNAPSHOT_BLOCK;
    return SNAPSHOT_HEAD_BYTES + size + 4 * blocks + SNAPSHOT_TRAILER_BYTES;
}

void snapshot_name(uint64_t index, char name[DISK_NAME_MAX]);
void snapshot_part_name(uint64_t index, uint64_t term, char name[DISK_NAME_MAX]);
/* The index in a name of the given kind ("snap-", "part-"). */
bool snapshot_name_index(const char *name, const char *kind, uint64_t *index);

/* Returns the value that the chain of blocks begins with. */
uint32_t snapshot_head_encode(const struct raft_snapshot_meta *meta, char head[SNAPSHOT_HEAD_BYTES]);
/* meta->size is the announced one. CO_CORRUPT, CO_UNSUPPORTED (a newer version). */
int snapshot_head_decode(const char head[SNAPSHOT_HEAD_BYTES], struct raft_snapshot_meta *meta, uint32_t *chain);
void snapshot_trailer_encode(uint64_t size, uint32_t chain, char trailer[SNAPSHOT_TRAILER_BYTES]);
int snapshot_trailer_decode(const char trailer[SNAPSHOT_TRAILER_BYTES], uint64_t *size, uint32_t *chain);

#endif
