/* The log on disk: append-only segment files of batches.
 *
 * A *batch* is what one append call brings: one write, one sync. Its header holds a magic, format version, sequence
 * number (per log, +1 each), the checksum of the batch before it (the chain), byte length and record count, its own
 * CRC32C; each record has a CRC32C of its own over (index, term, type, size, data). A batch may begin with a
 * truncation mark ("entries from index I on are gone"): conflicting suffixes are never overwritten in place, so old
 * records cannot come back to life. Hard state (term, vote) travels in batches too, as a record of its own type, so
 * that a vote costs one sync; every segment begins with a header batch that repeats the hard state, the first index
 * and the chain's state, so that older segments can be deleted.
 *
 * Segments: "log-SSSSSSSSSSSSSSSS" (hex sequence number of the first batch). The first one has 1 MiB, later ones
 * eight times the one before up to `segment_bytes`, prepared (allocated and prewritten, so that fdatasync writes no
 * metadata) by wal_prepare() in the background.
 *
 * Opening: a bad *last* batch (torn by power loss: any subset of its sectors) is cut off; a bad batch that has a
 * valid successor - or bytes after it that prove it was once synced - is damage: CO_CORRUPT, fault names file and
 * offset. The recovered tail is rewritten and synced before wal_open returns (after a kill it may be in the page
 * cache only).
 *
 * Threads: one writer (log writer thread) calls append/prepare/drop; wal_read may be called by another thread
 * at the same time for entries below the durable end (own file handles, a small lock on the index).
 * Memory: the index keeps one u64 position per ~64 entries plus one per segment, not one per entry. */
#ifndef COORD_CONSENSUS_WAL_H
#define COORD_CONSENSUS_WAL_H

#include "base/error.h"
#include "consensus/disk.h"
#include "consensus/entry.h"

struct wal;
struct wal_config {
    uint64_t segment_bytes;       /* 0: 64 MiB */
    uint64_t first_segment_bytes; /* 0: 1 MiB */
    /* kept free on the disk: appends of commands that would take from it are refused (CO_DISKFULL); hard state and
     * other entries may. 0: first_segment_bytes */
    uint64_t reserve_bytes;
    uint64_t start_term; /* of the snapshot that the caller has at start_after; 0: not checked */
    uint64_t log_id;     /* given to a new log; 0: random. The simulator sets it, so that runs replay */
};

/* The result of recovery. Entries start right after the caller's snapshot. */
struct wal_recovered {
    uint64_t term, vote;
    struct raft_entry *entries; /* (start_after, last]; caller owns array and one reference each */
    size_t entry_count;
    uint64_t first_index, last_index; /* of the entries in the log; last < first: empty */
    uint64_t torn_bytes;              /* cut off at the end; 0: clean */
};

/* Opens or creates. `start_after`: index of the snapshot that the caller has; entries up to it are not returned. A
 * log that ends before it, or has another term there (config.start_term), is emptied and continues after it. A log
 * that does not reach back to it lacks entries: CO_CORRUPT. CO_CORRUPT with a fault naming file and offset;
 * CO_UNSUPPORTED: of a newer format; CO_IO, CO_DISKFULL. */
int wal_open(struct disk *disk, const struct wal_config *config, uint64_t start_after, struct wal **out,
             struct wal_recovered *recovered, struct fault *fault);
void wal_close(struct wal *wal);
/* Reads a whole log as wal_open does, and changes nothing: a torn end stays (recovered->torn_bytes), files without any
 * batch are passed over. All entries are in `recovered`, which the caller frees. CO_NOTFOUND: there is no log. */
struct wal_looked {
    size_t segments;
    uint64_t bytes; /* of batches */
};
int wal_look(struct disk *disk, struct wal_looked *looked, struct wal_recovered *recovered, struct fault *fault);
void wal_recovered_free(struct wal_recovered *recovered);

/* One batch: optional hard state, optional truncation, entries in order. Durable when it returns CO_OK. On an error
 * nothing of it counts, the log refuses all further appends (CO_IO; or CO_DISKFULL when space ran out *before*
 * anything was written, in which case the log stays usable), and is to be reopened. */
struct wal_batch {
    bool hard_state;
    uint64_t term, vote;
    uint64_t truncate_from; /* 0: none */
    const struct raft_entry *entries;
    size_t entry_count;
};
/* Several batches of the core (group commit): in order, one write and one sync (and again for each that takes back
 * entries of an earlier one, and for every 4 MiB). After a crash during the call, some of the first ones are found
 * whole; of a batch that alone has 4 MiB, a part may be found. */
int wal_append(struct wal *wal, const struct wal_batch *batches, size_t count, struct fault *fault);

/* Empties the log so that it continues after `index` (an installed snapshot), keeping hard state. Durable on return. */
int wal_reset(struct wal *wal, uint64_t index, struct fault *fault);
/* Deletes the first of the segments that hold only entries <= index (all are in a snapshot), with one sync of the
 * folder. CO_AGAIN: there are more; call again, when appends had their turn. */
int wal_drop(struct wal *wal, uint64_t index);
/* Background: makes the next segment ready when the current one is more than half full. Cheap when there is nothing
 * to do. One call writes and syncs at most 256 KiB: CO_AGAIN means call again, when there is time. By one thread,
 * which need not be the log writer (an append that needs the segment meanwhile waits for the slice at hand). An
 * error (CO_DISKFULL, CO_IO) harms nothing: the next append makes its segment itself. */
int wal_prepare(struct wal *wal);
#define WAL_PREPARE_QUARTERS 2
/* The number of the current segment when it is more than so many quarters full; 0: it is not. Any thread. */
uint64_t wal_fuller_than(struct wal *wal, unsigned quarters);

/* Reads entries from..to (inclusive), at least one and then up to bytes_max of data. CO_NOTFOUND: below the first
 * kept. Caller gets array (free) and one reference each. */
int wal_read(struct wal *wal, uint64_t from, uint64_t to, size_t bytes_max, struct raft_entry **entries, size_t *count);

uint64_t wal_first_index(struct wal *wal);
uint64_t wal_last_index(struct wal *wal);
uint64_t wal_droppable_bytes(struct wal *wal, uint64_t index); /* that wal_drop would remove */
uint64_t wal_bytes(struct wal *wal); /* of batches written, in all segments kept (not the room made ready) */
/* True while `bytes` more of entries (all that are on their way) fit into the segments that are ready, or into the free
 * space without the reserve. The leader accepts and a follower appends only then. Any thread; asks the file system only
 * when the ready segments do not suffice. */
bool wal_has_room(struct wal *wal, uint64_t bytes);
/* The same for commands that nobody has accepted yet. Entries that are on their way from a leader to others, or to this
 * server, must still fit afterwards. So this leaves an eighth of a segment, 4 MiB at most, to them. */
bool wal_may_accept(struct wal *wal, uint64_t bytes);
/* True while a term or a vote fits, into the margin and the reserve too. Any thread; asks the file system only when the
 * ready segments do not suffice. */
bool wal_takes_votes(struct wal *wal);

#endif
