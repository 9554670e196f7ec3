/* Logs on a fake disk, as a small program says: four bytes an instruction, a letter and three operands (a digit
 * stands for its value).
 *
 *   Written by wal_append and its like:
 *     a n t .   n entries (1 to 8), of a term t higher
 *     h t v .   hard state: term t higher, vote v
 *     t n m .   the last n entries are gone, m others come
 *     r n . .   emptied, goes on n behind the last
 *     d n . .   a snapshot has n more, segments go
 *     p . . .   the next segment is prepared
 *
 *   Made up, with sums that are right (operands 0xfc to 0xff are near 2^63 and 2^64):
 *     E i t n   a command with n * 5 bytes; N, M: the other types of entries
 *     S i t v   the beginning of a segment
 *     H t v .   hard state
 *     T i . .   truncation
 *     R i . .   reset
 *     U k i t   a record of a kind that is not known
 *     | s c o   the batch ends: its sequence number, chain and offset are off by so much
 *     + s p .   the file, too: the next one's name is off by s; p bytes of padding are not zero
 *     I n . .   id of the log from here on
 *
 *   The log has ended; only these count from the first of them on:
 *     F l h x   byte l + 256 h of file x / 8 is changed in bit x % 8
 *     C l h x   ... is where that file ends
 *     Z n . x   its sector n is zeros
 *     A i t .   the caller has a snapshot at index i, of term t (0: not said) */
#ifndef COORD_TESTS_FUZZ_LOG_WRITER_H
#define COORD_TESTS_FUZZ_LOG_WRITER_H

#include "consensus/wal.h"
#include "tests/lib/fake_disk.h"

#define LOG_ENTRIES_MOST 512

struct log_writer {
    struct fake_disk *fake;
    struct wal_config config;
    uint64_t start_after; /* as the log was reset or dropped, or as the program says */
    bool other_snapshot;  /* the program says */
    /* Every entry that was ever put into a batch, with one reference. */
    struct raft_entry written[LOG_ENTRIES_MOST];
    size_t written_count;
    bool made_up;              /* there are instructions of the second kind */
    uint64_t last_index, term; /* of what was appended */
    unsigned damages;
    bool must_refuse; /* the only damage is a flip in a batch that is not the last */
};

void log_writer_run(struct log_writer *writer, struct slice program);
void log_writer_free(struct log_writer *writer);

#endif
