/* The bytes of the log: how a batch is laid out, written and checked. Pure: no I/O, nothing kept. Whatever the bytes
 * are, decoding them is safe (fuzzed).
 *
 * A segment file is a row of batches, each beginning at a multiple of 512 bytes and padded with zeros to one; behind
 * the last one there are zeros. All numbers are little-endian.
 *
 *   batch   0  u32  magic "cwal"
 *           4  u16  version: 1
 *           6  u16  0
 *           8  u64  log id: chosen when the log is made, so that bytes of another log, or of a client's, never fit
 *          16  u64  sequence number, +1 for each batch of the log
 *          24  u64  own offset in the file
 *          32  u32  size, head and padding included
 *          36  u32  number of records, at least 1
 *          40  u64  index of the first entry in it; 0: none
 *          48  u32  the chain: `sum` of the batch before (0 for the first)
 *          52  u32  CRC32C over the CRCs of the records in order (4 bytes each)
 *          56  u32  sum: CRC32C over bytes 0 to 55
 *          60  u32  0, checked
 *          64  records, one directly after the other
 *
 *   record  0  u32  CRC32C over all that follows
 *           4  u32  size of the data
 *           8  u64  index
 *          16  u64  term
 *          24  u16  type
 *          26  u48  of a command: when it was proposed, ms since 1970; 0: not known
 *          32  data
 *
 * In a batch truncations and resets come before entries, so that an index stands for one entry of it. Since `sum`
 * covers the records' checksums and the chain, it stands for the whole log up to here.
 *
 * Why 512: that is what a power loss tears (a sector is old or new, never half). A batch has its sectors to itself,
 * so no sector with acknowledged records in it is ever written with other bytes. 4096 would cost eight times the
 * space for the single small write, and snapshots eight times as often, for no more safety: writing part of a page
 * writes the neighbours again as they were. */
#ifndef COORD_CONSENSUS_WAL_FORMAT_H
#define COORD_CONSENSUS_WAL_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

#define WAL_SECTOR          512u
#define WAL_HEAD_BYTES      64u
#define WAL_RECORD_BYTES    32u /* before the data */
#define WAL_BATCH_BYTES_MAX (1u << 30)
#define WAL_VERSION         1u

/* Types of records: those of entries (enum raft_entry_type) are below 16. */
enum wal_record_type {
    WAL_RECORD_SEGMENT = 16,    /* first of a file: index = last index so far; data: le64 term, le64 vote */
    WAL_RECORD_HARD_STATE = 17, /* term = term, index = vote */
    WAL_RECORD_TRUNCATE = 18,   /* entries from index on are gone */
    WAL_RECORD_RESET = 19,      /* all entries are gone, the log goes on behind index */
};
#define WAL_SEGMENT_DATA 16u

struct wal_head {
    uint64_t log_id, seq, offset;
    uint32_t size, record_count;
    uint64_t first_index;
    uint32_t chain, body_sum, sum;
};
struct wal_record {
    uint32_t type;
    uint64_t index, term;
    struct slice data; /* points into the batch */
    uint64_t unix_ms;  /* below 2^48 */
};

static inline uint64_t wal_round_up(uint64_t size) { return (size + WAL_SECTOR - 1) / WAL_SECTOR * WAL_SECTOR; }

/* -- writing: begin, records, end. One batch per encoder; the memory is kept for the next. -- */
struct wal_encoder {
    struct buffer bytes; /* the batch; whole after wal_encode_end */
    uint32_t record_count, body_sum;
    uint64_t first_index;
};
void wal_encode_begin(struct wal_encoder *encoder);
void wal_encode_record(struct wal_encoder *encoder, const struct wal_record *record);
/* Fills in the head (size, counts and sums included) and pads. Returns the batch's sum. */
uint32_t wal_encode_end(struct wal_encoder *encoder, uint64_t log_id, uint64_t seq, uint64_t offset, uint32_t chain);

/* -- reading -- */
enum wal_head_state {
    WAL_HEAD_NONE, /* not a head, or a damaged one */
    WAL_HEAD_OK,
    WAL_HEAD_NEWER, /* whole, but of a version that this program does not know */
};
/* Looks at WAL_HEAD_BYTES bytes. WAL_HEAD_OK promises: size a multiple of the sector that holds at least head and
 * records' heads, at most WAL_BATCH_BYTES_MAX; at least one record. */
enum wal_head_state wal_head_decode(const void *bytes, struct wal_head *head);

/* Walks the records of a batch (head->size bytes); each is checked against its CRC32C. */
struct wal_cursor {
    const char *at, *end;
    uint32_t left; /* records to come */
};
struct wal_cursor wal_cursor_make(const struct wal_head *head, const void *batch);
/* 1: *record is the next one. 0: no more. -1: damaged. */
int wal_cursor_next(struct wal_cursor *cursor, struct wal_record *record);

/* All of a batch: its records, their number, and the sum over them. NULL when it is whole, else a text with the fault.
 * *padding: how many bytes at its end are padding; whether they are zeros is another question. */
const char *wal_batch_check(const struct wal_head *head, const void *batch, size_t *padding);

bool wal_is_zero(const void *bytes, size_t size);

#endif
