/* Snapshot files: "snap-IIIIIIIIIIIIIIII" (hex index). A header (magic, version, meta, CRC32C), the state machine's
 * bytes in blocks of 64 KiB each followed by its CRC32C chain value, and a trailer (length, CRC). Written under a
 * temporary name "part-...", synced, renamed, folder synced: a name that exists is whole. One newest is kept, plus
 * the one being received. Offsets in this interface count the state machine's bytes only. Same disk interface as the
 * log, so that the simulator drives it. */
#ifndef COORD_CONSENSUS_SNAPSHOT_H
#define COORD_CONSENSUS_SNAPSHOT_H

#include "base/error.h"
#include "consensus/disk.h"
#include "consensus/entry.h"

struct snapshot_writer;
/* Starts a file for `meta` (size: 0 when it is not known yet). Resumable receiving: with `resume`, a part file of the
 * same index, term and size left from before is continued (whole blocks that check out); snapshot_written() says from
 * where. Two servers' snapshots of one index need not be the same bytes: resume only from the same file of the same
 * sender. */
int snapshot_create(struct disk *disk, const struct raft_snapshot_meta *meta, bool resume,
                    struct snapshot_writer **out);
int snapshot_write(struct snapshot_writer *writer, const void *data, size_t size);
uint64_t snapshot_written(const struct snapshot_writer *writer);
/* Finishes (sync, rename, folder sync), then removes older snapshots. The writer is gone afterwards, whatever the
 * result. meta->size is filled in. */
int snapshot_commit(struct snapshot_writer *writer, struct raft_snapshot_meta *meta);
void snapshot_abort(struct snapshot_writer *writer, bool keep_part);
/* Removes the parts of other snapshots than this one that have arrived (only of indexes above `above`: this server is
 * taking those below itself). *bytes: how much of this one has arrived. */
void snapshot_parts_keep(struct disk *disk, uint64_t index, uint64_t term, uint64_t above, uint64_t *bytes);

struct snapshot_reader;
/* The newest whole snapshot (index 0: any newest), checked at its header and trailer. CO_NOTFOUND; CO_CORRUPT with
 * file and offset. */
int snapshot_open(struct disk *disk, uint64_t index, struct snapshot_reader **out, struct raft_snapshot_meta *meta,
                  struct fault *fault);
/* Random access; block checksums are verified. *got < size only at the end. */
int snapshot_read(struct snapshot_reader *reader, uint64_t offset, void *data, size_t size, size_t *got,
                  struct fault *fault);
void snapshot_close(struct snapshot_reader *reader);
/* The indexes of the snapshots that are there, rising; the caller frees them. *parts: the number of part files. */
int snapshot_list(struct disk *disk, uint64_t **indexes, size_t *count, size_t *parts);

#endif
