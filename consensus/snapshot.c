/* Reading snapshots. Writing: snapshot_write.c; layout: snapshot_format.h. */
#include "consensus/snapshot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "consensus/snapshot_format.h"

#define NO_BLOCK UINT64_MAX

struct snapshot_reader {
    struct disk *disk;
    disk_file file;
    char name[DISK_NAME_MAX];
    uint64_t size;
    uint32_t head_chain;
    uint64_t block;                      /* the one in memory; NO_BLOCK */
    char around[4 + SNAPSHOT_BLOCK + 4]; /* the block, with the chain values before and after it */
};

static int corrupt(struct fault *fault, const char *name, uint64_t offset, const char *what) {
    return fault_set(fault, CO_CORRUPT, "%s: damaged at offset %" PRIu64 ": %s", name, offset, what);
}

static int io_fault(struct fault *fault, const char *name, int code) {
    return fault_set(fault, code, "%s: cannot read: %s", name, co_strerror(code));
}

/* -- opening -- */

static void newest(void *data, const char *name) {
    uint64_t index, *best = data;
    if (strlen(name) == 21 && snapshot_name_index(name, "snap-", &index) && index > *best) *best = index;
}

struct listing {
    uint64_t *indexes;
    size_t count, parts;
};

static void list_found(void *data, const char *name) {
    struct listing *listing = data;
    uint64_t index;
    listing->parts += snapshot_name_index(name, "part-", &index);
    if (strlen(name) != 21 || !snapshot_name_index(name, "snap-", &index)) return;
    listing->indexes = mem_realloc(listing->indexes, (listing->count + 1) * sizeof *listing->indexes);
    size_t at = listing->count++;
    for (; at > 0 && listing->indexes[at - 1] > index; at--) listing->indexes[at] = listing->indexes[at - 1];
    listing->indexes[at] = index;
}

int snapshot_list(struct disk *disk, uint64_t **indexes, size_t *count, size_t *parts) {
    struct listing listing = {0};
    int rv = disk->ops->list(disk, list_found, &listing);
    *indexes = listing.indexes, *count = listing.count, *parts = listing.parts;
    return rv;
}

static int read_head(struct snapshot_reader *reader, uint64_t index, struct raft_snapshot_meta *meta,
                     struct fault *fault) {
    char head[SNAPSHOT_HEAD_BYTES];
    size_t got;
    int rv = reader->disk->ops->read(reader->disk, reader->file, 0, head, sizeof head, &got);
    if (rv != CO_OK) return io_fault(fault, reader->name, rv);
    if (got < sizeof head) return corrupt(fault, reader->name, 0, "the head is cut off");
    rv = snapshot_head_decode(head, meta, &reader->head_chain);
    if (rv == CO_UNSUPPORTED)
        return fault_set(fault, rv, "%s: offset 8: written by a newer version of coord", reader->name);
    if (rv != CO_OK) return corrupt(fault, reader->name, 0, "the head's checksum does not match");
    return meta->index == index ? CO_OK : corrupt(fault, reader->name, 16, "it is a snapshot of another index");
}

/* Reads the trailer, which has to agree with the file's size and with the value behind the last block. */
static int read_trailer(struct snapshot_reader *reader, struct fault *fault) {
    char end[4 + SNAPSHOT_TRAILER_BYTES];
    uint64_t file_size;
    size_t got;
    int rv = reader->disk->ops->size(reader->disk, reader->file, &file_size);
    if (rv != CO_OK) return io_fault(fault, reader->name, rv);
    if (file_size < SNAPSHOT_HEAD_BYTES + SNAPSHOT_TRAILER_BYTES)
        return corrupt(fault, reader->name, file_size, "the end is cut off");
    uint64_t offset = file_size - sizeof end;
    rv = reader->disk->ops->read(reader->disk, reader->file, offset, end, sizeof end, &got);
    if (rv != CO_OK) return io_fault(fault, reader->name, rv);
    uint32_t chain;
    if (got < sizeof end || snapshot_trailer_decode(end + 4, &reader->size, &chain) != CO_OK)
        return corrupt(fault, reader->name, offset + 4, "no whole trailer: the end is cut off or overwritten");
    if (reader->size > file_size || snapshot_file_size(reader->size) != file_size)
        return corrupt(fault, reader->name, offset + 4, "the trailer does not fit the size of the file");
    if (get_le32(end) != chain) return corrupt(fault, reader->name, offset, "the last block does not fit the trailer");
    return CO_OK;
}

int snapshot_open(struct disk *disk, uint64_t index, struct snapshot_reader **out, struct raft_snapshot_meta *meta,
                  struct fault *fault) {
    *out = NULL;
    int rv;
    if (index == 0) {
        rv = disk->ops->list(disk, newest, &index);
        if (rv != CO_OK) return io_fault(fault, "snapshots", rv);
        if (index == 0) return fault_set(fault, CO_NOTFOUND, "no snapshot");
    }
    struct snapshot_reader *reader = mem_alloc(sizeof *reader);
    reader->disk = disk;
    reader->block = NO_BLOCK;
    snapshot_name(index, reader->name);
    rv = disk->ops->open(disk, reader->name, 0, &reader->file);
    if (rv != CO_OK) {
        fault_set(fault, rv, "%s: cannot open: %s", reader->name, co_strerror(rv));
        free(reader);
        return rv;
    }
    rv = read_head(reader, index, meta, fault);
    if (rv == CO_OK) rv = read_trailer(reader, fault);
    if (rv != CO_OK) {
        snapshot_close(reader);
        return rv;
    }
    meta->size = reader->size;
    *out = reader;
    return CO_OK;
}

void snapshot_close(struct snapshot_reader *reader) {
    if (!reader) return;
    reader->disk->ops->close(reader->disk, reader->file);
    free(reader);
}

/* -- reading -- */

static size_t block_size(const struct snapshot_reader *reader, uint64_t block) {
    CHECK(block * SNAPSHOT_BLOCK < reader->size);
    uint64_t left = reader->size - block * SNAPSHOT_BLOCK;
    return left < SNAPSHOT_BLOCK ? (size_t)left : SNAPSHOT_BLOCK;
}

static int block_load(struct snapshot_reader *reader, uint64_t block, struct fault *fault) {
    if (reader->block == block) return CO_OK;
    reader->block = NO_BLOCK;
    size_t size = block_size(reader, block), got;
    uint64_t offset = snapshot_block_offset(block);
    int rv = reader->disk->ops->read(reader->disk, reader->file, offset - 4, reader->around, size + 8, &got);
    if (rv != CO_OK) return io_fault(fault, reader->name, rv);
    if (got < size + 8) return corrupt(fault, reader->name, offset, "a block is cut off");
    uint32_t before = block == 0 ? reader->head_chain : get_le32(reader->around);
    if (crc32c(before, reader->around + 4, size) != get_le32(reader->around + 4 + size))
        return corrupt(fault, reader->name, offset, "a block's checksum does not match");
    reader->block = block;
    return CO_OK;
}

int snapshot_read(struct snapshot_reader *reader, uint64_t offset, void *data, size_t size, size_t *got,
                  struct fault *fault) {
    *got = 0;
    while (*got < size && offset + *got < reader->size) {
        uint64_t at = offset + *got;
        int rv = block_load(reader, at / SNAPSHOT_BLOCK, fault);
        if (rv != CO_OK) return rv;
        size_t in = at % SNAPSHOT_BLOCK, n = block_size(reader, at / SNAPSHOT_BLOCK) - in;
        if (n > size - *got) n = size - *got;
        memcpy((char *)data + *got, reader->around + 4 + in, n);
        *got += n;
    }
    return CO_OK;
}
