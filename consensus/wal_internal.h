/* The log from the inside; for consensus/wal_*.c only.
 *
 *   wal_format.c   the bytes of a batch (pure)
 *   wal_index.c    where entries are: segments and marks; the views of wal.h
 *   wal_segment.c  segment files: made, prepared, switched to, dropped
 *   wal_append.c   batches written
 *   wal_recover.c  opening: what is whole, what is torn, what is damaged
 *   wal_read.c     entries read again
 *
 * Invariants:
 * (1) One batch outstanding: batch n+1 is written only after n was synced. So any trace of n+1 proves that n was
 *     durable once.
 * (2) Behind the last batch a segment holds zeros, durably: segments begin as zeros, and recovery zeroes the part that
 *     it cuts off before anything is appended. So at most one batch (the last) is ever found in pieces.
 * (3) A file "log-Q" exists only when all batches before Q are durable, and no other batch Q was begun elsewhere.
 * (4) Within a batch all truncation comes before all entries, and entries follow each other without a gap. */
#ifndef COORD_CONSENSUS_WAL_INTERNAL_H
#define COORD_CONSENSUS_WAL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/check.h"
#include "consensus/wal.h"
#include "consensus/wal_format.h"

#define WAL_SPARE "log-spare" /* the next segment, not in use yet; worth nothing after a restart */

#define WAL_MARGIN (64u << 10)
_Static_assert(WAL_MARGIN % WAL_SECTOR == 0, "batches end at sectors");

/* Entries from `index` up to the next mark's are found by walking the batches from `offset` on. */
struct wal_mark {
    uint64_t index, offset;
};
struct wal_segment {
    uint64_t seq;           /* of its first batch; its name */
    uint64_t size;          /* of the file */
    uint64_t used;          /* the offset of the next batch */
    struct wal_mark *marks; /* of entries that live, indexes rising over all segments */
    size_t mark_count, mark_capacity;
    uint64_t since_mark; /* entries behind the last mark */
};

struct wal {
    /* Constant. */
    struct disk *disk;
    struct wal_config config; /* no zeros left */
    uint64_t log_id;

    /* Writer thread. */
    disk_file file; /* the last segment, the one appended to; -1: none yet */
    struct wal_encoder encoder;
    uint64_t next_seq;
    uint32_t chain; /* sum of the last batch */
    uint64_t term, vote;
    bool failed; /* a write or sync failed: what is on disk is unknown */

    pthread_mutex_t lock;         /* never held over I/O */
    struct wal_segment *segments; /* in order */
    size_t segment_count;
    uint64_t first_index, last_index;
    bool mark_next;       /* entries were cut off: the next ones need a mark */
    uint64_t spare_bytes; /* = spare_size, for wal_has_room */

    pthread_mutex_t spare_lock; /* held over I/O on the spare; before `lock` */
    disk_file spare;            /* -1: none */
    uint64_t spare_size, spare_zeroed;
};

/* -- wal_index.c; the lock is held by the caller -- */
void wal_segment_name(uint64_t seq, char name[DISK_NAME_MAX]);
struct wal_segment *wal_segment_add(struct wal *wal, uint64_t seq, uint64_t size);
void wal_segment_forget(struct wal *wal, size_t n);
static inline struct wal_segment *wal_segment_last(struct wal *wal) {
    CHECK(wal->segment_count > 0);
    return &wal->segments[wal->segment_count - 1];
}
/* The last segment has a batch at `offset` with entries first .. first + count - 1. */
void wal_note_entries(struct wal *wal, uint64_t offset, uint64_t first, uint64_t count);
void wal_note_truncate(struct wal *wal, uint64_t from);
void wal_note_reset(struct wal *wal, uint64_t index);
/* Finds an entry: its segment, the mark at or before it, and the last index that can be found from there. False: it is
 * not in the log. */
bool wal_locate(const struct wal *wal, uint64_t index, uint64_t *seq, uint64_t *offset, uint64_t *until);
/* Segments from the front that hold no living entry above `index`; never the last with a batch in it. */
size_t wal_droppable(const struct wal *wal, uint64_t index);

/* Commands leave this much free at a segment's end, for terms, votes and the first entries of leaders. So when the disk
 * has no room for another segment, elections go on for a while, and therefore reads. */
static inline uint64_t wal_margin(const struct wal_segment *segment) {
    return segment->size >= 16 * WAL_MARGIN ? WAL_MARGIN : 0;
}

/* -- wal_segment.c; writer thread -- */
int wal_first_segment(struct wal *wal, uint64_t seq, struct fault *fault);
/* Makes a new segment the last one, with room for `need` bytes, leaving `reserve` bytes free on the disk.
 * CO_DISKFULL: nothing has changed. CO_IO: the log has failed. */
int wal_switch_segment(struct wal *wal, uint64_t need, uint64_t reserve, struct fault *fault);
int wal_fill_zeros(struct disk *disk, disk_file file, uint64_t from, uint64_t to);
int wal_drop_segments(struct wal *wal, size_t count);
int wal_fail(struct wal *wal, struct fault *fault, int code, const char *what);

/* -- a part of a file in memory -- */
struct wal_window {
    struct disk *disk;
    disk_file file;
    size_t read_ahead;
    char *data;
    size_t capacity, got;
    uint64_t start;
};
/* `size` bytes at `offset`; valid until the next call. *out NULL: the file ends before. */
int wal_window_get(struct wal_window *window, uint64_t offset, size_t size, const char **out);
void wal_window_move(struct wal_window *window, disk_file file); /* to another file */
void wal_window_free(struct wal_window *window);

#endif
