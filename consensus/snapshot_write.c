/* Writing snapshots: a part file, whole blocks at a time, written out bit by bit, so that the sync at the end has
 * little left to do and the log's own syncs do not wait behind it. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file_out.h"
#include "base/hash.h"
#include "base/memory.h"
#include "consensus/snapshot_format.h"

struct snapshot_writer {
    struct disk *disk;
    disk_file file;
    char name[DISK_NAME_MAX];
    struct raft_snapshot_meta meta;
    uint64_t blocks; /* whole ones, in the file */
    uint32_t chain;
    uint64_t waiting; /* bytes since the last write_out */
    int error;        /* the first; nothing is written after it */
    size_t have;      /* in `block` */
    char block[SNAPSHOT_BLOCK + 4];
};

/* -- beginning, and going on -- */

static bool same_snapshot(const struct raft_snapshot_meta *a, const struct raft_snapshot_meta *b) {
    return a->index == b->index && a->term == b->term && a->size == b->size;
}

static int written(struct snapshot_writer *writer, size_t size) {
    writer->waiting += size;
    if (writer->waiting < FILE_OUT_PIECE) return CO_OK;
    writer->waiting = 0;
    return writer->disk->ops->write_out(writer->disk, writer->file);
}

/* Counts the whole blocks that the part has, as far as their checksums fit. They are written again: after a failed
 * sync they may be in the page cache only, and not be dirty there. */
static int part_verify(struct snapshot_writer *writer) {
    const struct disk_ops *ops = writer->disk->ops;
    char head[SNAPSHOT_HEAD_BYTES];
    struct raft_snapshot_meta meta;
    size_t got;
    int rv = ops->read(writer->disk, writer->file, 0, head, sizeof head, &got);
    if (rv != CO_OK) return rv;
    if (got < sizeof head || snapshot_head_decode(head, &meta, &writer->chain) != CO_OK) return CO_NOTFOUND;
    if (!same_snapshot(&meta, &writer->meta)) return CO_NOTFOUND;
    rv = ops->write(writer->disk, writer->file, 0, head, sizeof head);
    if (rv != CO_OK) return rv;
    while (true) {
        uint64_t offset = snapshot_block_offset(writer->blocks);
        rv = ops->read(writer->disk, writer->file, offset, writer->block, sizeof writer->block, &got);
        if (rv != CO_OK) return rv;
        if (got < sizeof writer->block) return CO_OK;
        uint32_t chain = crc32c(writer->chain, writer->block, SNAPSHOT_BLOCK);
        if (chain != get_le32(writer->block + SNAPSHOT_BLOCK)) return CO_OK;
        rv = ops->write(writer->disk, writer->file, offset, writer->block, sizeof writer->block);
        if (rv == CO_OK) rv = written(writer, sizeof writer->block);
        if (rv != CO_OK) return rv;
        writer->chain = chain;
        writer->blocks++;
    }
}

/* CO_NOTFOUND: there is nothing to continue. */
static int part_resume(struct snapshot_writer *writer) {
    const struct disk_ops *ops = writer->disk->ops;
    int rv = ops->open(writer->disk, writer->name, 0, &writer->file);
    if (rv != CO_OK) return rv;
    rv = part_verify(writer);
    if (rv == CO_OK) rv = ops->truncate(writer->disk, writer->file, snapshot_block_offset(writer->blocks));
    if (rv != CO_OK) ops->close(writer->disk, writer->file);
    return rv;
}

static int part_make(struct snapshot_writer *writer) {
    const struct disk_ops *ops = writer->disk->ops;
    writer->blocks = 0;
    int rv = ops->open(writer->disk, writer->name, 1, &writer->file);
    if (rv == CO_EXISTS) {
        rv = ops->remove(writer->disk, writer->name);
        if (rv == CO_OK) rv = ops->open(writer->disk, writer->name, 1, &writer->file);
    }
    if (rv != CO_OK) return rv;
    char head[SNAPSHOT_HEAD_BYTES];
    writer->chain = snapshot_head_encode(&writer->meta, head);
    rv = ops->write(writer->disk, writer->file, 0, head, sizeof head);
    if (rv != CO_OK) {
        ops->close(writer->disk, writer->file);
        ops->remove(writer->disk, writer->name);
    }
    return rv;
}

int snapshot_create(struct disk *disk, const struct raft_snapshot_meta *meta, bool resume,
                    struct snapshot_writer **out) {
    CHECK(meta->index > 0);
    struct snapshot_writer *writer = mem_zalloc(sizeof *writer);
    writer->disk = disk;
    writer->meta = *meta;
    snapshot_part_name(meta->index, meta->term, writer->name);
    int rv = resume ? part_resume(writer) : CO_NOTFOUND;
    if (rv == CO_NOTFOUND) rv = part_make(writer);
    if (rv != CO_OK) {
        free(writer);
        return rv;
    }
    *out = writer;
    return CO_OK;
}

/* -- writing -- */

static int block_flush(struct snapshot_writer *writer) {
    CHECK(writer->have > 0 && writer->have <= SNAPSHOT_BLOCK);
    const struct disk_ops *ops = writer->disk->ops;
    uint32_t chain = crc32c(writer->chain, writer->block, writer->have);
    put_le32(writer->block + writer->have, chain);
    uint64_t offset = snapshot_block_offset(writer->blocks);
    int rv = ops->write(writer->disk, writer->file, offset, writer->block, writer->have + 4);
    if (rv == CO_OK) rv = written(writer, writer->have + 4);
    if (rv != CO_OK) return rv;
    writer->chain = chain;
    if (writer->have == SNAPSHOT_BLOCK) {
        writer->blocks++;
        writer->have = 0;
    }
    return CO_OK;
}

int snapshot_write(struct snapshot_writer *writer, const void *data, size_t size) {
    for (size_t done = 0; done < size && writer->error == CO_OK;) {
        CHECK(writer->have < SNAPSHOT_BLOCK);
        size_t n = SNAPSHOT_BLOCK - writer->have;
        if (n > size - done) n = size - done;
        memcpy(writer->block + writer->have, (const char *)data + done, n);
        writer->have += n;
        done += n;
        if (writer->have == SNAPSHOT_BLOCK) writer->error = block_flush(writer);
    }
    return writer->error;
}

uint64_t snapshot_written(const struct snapshot_writer *writer) {
    return writer->blocks * SNAPSHOT_BLOCK + writer->have;
}

/* -- the end -- */

struct outdated {
    struct disk *disk;
    uint64_t index;
    char (*names)[DISK_NAME_MAX];
    size_t count;
};

static void outdated_found(void *data, const char *name) {
    struct outdated *outdated = data;
    uint64_t index;
    bool old = (snapshot_name_index(name, "snap-", &index) && index < outdated->index) ||
               (snapshot_name_index(name, "part-", &index) && index <= outdated->index);
    if (!old || strlen(name) >= DISK_NAME_MAX) return;
    outdated->names = mem_realloc(outdated->names, (outdated->count + 1) * sizeof *outdated->names);
    strcpy(outdated->names[outdated->count++], name);
}

struct parts {
    const char *keep;
    uint64_t above;
    struct outdated others;
};

static void part_found(void *data, const char *name) {
    struct parts *parts = data;
    uint64_t index;
    if (!snapshot_name_index(name, "part-", &index) || index <= parts->above || strcmp(name, parts->keep) == 0 ||
        strlen(name) >= DISK_NAME_MAX)
        return;
    struct outdated *others = &parts->others;
    others->names = mem_realloc(others->names, (others->count + 1) * sizeof *others->names);
    strcpy(others->names[others->count++], name);
}

void snapshot_parts_keep(struct disk *disk, uint64_t index, uint64_t term, uint64_t above, uint64_t *bytes) {
    char keep[DISK_NAME_MAX];
    snapshot_part_name(index, term, keep);
    struct parts parts = {.keep = keep, .above = above};
    disk->ops->list(disk, part_found, &parts);
    for (size_t i = 0; i < parts.others.count; i++) disk->ops->remove(disk, parts.others.names[i]);
    free(parts.others.names);
    disk_file file;
    *bytes = 0;
    if (disk->ops->open(disk, keep, 0, &file) != CO_OK) return;
    if (disk->ops->size(disk, file, bytes) != CO_OK) *bytes = 0;
    disk->ops->close(disk, file);
}

/* A file that stays because of an error is removed next time. */
static void remove_outdated(struct disk *disk, uint64_t index) {
    struct outdated outdated = {.disk = disk, .index = index};
    disk->ops->list(disk, outdated_found, &outdated);
    for (size_t i = 0; i < outdated.count; i++) disk->ops->remove(disk, outdated.names[i]);
    free(outdated.names);
}

static int finish(struct snapshot_writer *writer, struct raft_snapshot_meta *meta) {
    const struct disk_ops *ops = writer->disk->ops;
    if (writer->error != CO_OK) return writer->error;
    uint64_t size = snapshot_written(writer);
    uint64_t offset = snapshot_file_size(size) - SNAPSHOT_TRAILER_BYTES;
    int rv = writer->have > 0 ? block_flush(writer) : CO_OK;
    char trailer[SNAPSHOT_TRAILER_BYTES], name[DISK_NAME_MAX];
    snapshot_trailer_encode(size, writer->chain, trailer);
    if (rv == CO_OK) rv = ops->write(writer->disk, writer->file, offset, trailer, sizeof trailer);
    if (rv == CO_OK) rv = ops->sync(writer->disk, writer->file);
    snapshot_name(writer->meta.index, name);
    if (rv == CO_OK) rv = ops->rename(writer->disk, writer->name, name);
    if (rv == CO_OK) rv = ops->sync_folder(writer->disk);
    if (rv != CO_OK) return rv;
    meta->size = size;
    return CO_OK;
}

int snapshot_commit(struct snapshot_writer *writer, struct raft_snapshot_meta *meta) {
    int rv = finish(writer, meta);
    writer->disk->ops->close(writer->disk, writer->file);
    if (rv == CO_OK) remove_outdated(writer->disk, writer->meta.index);
    else writer->disk->ops->remove(writer->disk, writer->name); /* gone already when only the folder's sync failed */
    free(writer);
    return rv;
}

void snapshot_abort(struct snapshot_writer *writer, bool keep_part) {
    if (!writer) return;
    if (keep_part && writer->error == CO_OK) writer->disk->ops->sync(writer->disk, writer->file);
    writer->disk->ops->close(writer->disk, writer->file);
    if (!keep_part || writer->error != CO_OK) writer->disk->ops->remove(writer->disk, writer->name);
    free(writer);
}
