/* Segment files. The next one is made ready under another name, so that appends do not wait for it: fdatasync of blocks
 * that were allocated and written before takes less than half the time, because no metadata changes. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "consensus/wal_internal.h"

#define PREPARE_SLICE (256u << 10) /* one wal_prepare() writes and syncs so much: about a millisecond */
#define GROWTH \
    8 /* a segment is at most this many times as large as the one before it, so that the \
       * next one is ready in time also while the first ones fill quickly */

static char zeros[64 * 1024];
_Static_assert(PREPARE_SLICE % WAL_SECTOR == 0 && sizeof zeros % WAL_SECTOR == 0, "whole sectors");

int wal_fail(struct wal *wal, struct fault *fault, int code, const char *what) {
    wal->failed = true;
    return fault_set(fault, CO_IO, "log: %s: %s", what, co_strerror(code));
}

int wal_fill_zeros(struct disk *disk, disk_file file, uint64_t from, uint64_t to) {
    while (from < to) {
        size_t size = to - from < sizeof zeros ? (size_t)(to - from) : sizeof zeros;
        int rv = disk->ops->write(disk, file, from, zeros, size);
        if (rv != CO_OK) return rv;
        from += size;
    }
    return CO_OK;
}

/* -- the spare; spare_lock is held -- */

static void spare_publish(struct wal *wal) {
    pthread_mutex_lock(&wal->lock);
    wal->spare_bytes = wal->spare >= 0 ? wal->spare_size : 0;
    pthread_mutex_unlock(&wal->lock);
}

static void spare_discard(struct wal *wal) {
    if (wal->spare < 0) return;
    wal->disk->ops->close(wal->disk, wal->spare);
    wal->disk->ops->remove(wal->disk, WAL_SPARE);
    wal->spare = -1;
    spare_publish(wal);
}

static int spare_make(struct wal *wal, uint64_t size) {
    CHECK(wal->spare < 0 && size > 0 && size % WAL_SECTOR == 0);
    const struct disk_ops *ops = wal->disk->ops;
    disk_file file;
    int rv = ops->open(wal->disk, WAL_SPARE, 1, &file);
    if (rv == CO_EXISTS) { /* an old one whose removal failed */
        ops->remove(wal->disk, WAL_SPARE);
        rv = ops->open(wal->disk, WAL_SPARE, 1, &file);
    }
    if (rv != CO_OK) return rv;
    wal->spare = file;
    wal->spare_size = size;
    wal->spare_zeroed = 0;
    rv = ops->allocate(wal->disk, file, size);
    if (rv != CO_OK) spare_discard(wal);
    else spare_publish(wal);
    return rv;
}

static uint64_t next_size(struct wal *wal) {
    pthread_mutex_lock(&wal->lock);
    uint64_t grown = wal_segment_last(wal)->size * GROWTH;
    pthread_mutex_unlock(&wal->lock);
    if (grown < wal->config.first_segment_bytes) grown = wal->config.first_segment_bytes;
    return grown < wal->config.segment_bytes ? grown : wal->config.segment_bytes;
}

/* Makes a spare of the regular size, or a small one when the disk has no room for that; at least `need` bytes. */
static int spare_make_fitting(struct wal *wal, uint64_t need, uint64_t reserve) {
    uint64_t free_bytes;
    int rv = wal->disk->ops->free_bytes(wal->disk, &free_bytes);
    if (rv != CO_OK) return rv;
    uint64_t room = free_bytes > reserve ? free_bytes - reserve : 0;
    uint64_t sizes[] = {next_size(wal), wal->config.first_segment_bytes};
    rv = CO_DISKFULL;
    for (size_t i = 0; i < ARRAY_COUNT(sizes) && rv == CO_DISKFULL; i++) {
        uint64_t size = need > sizes[i] ? wal_round_up(need) : sizes[i];
        if (size <= room) rv = spare_make(wal, size);
    }
    return rv;
}

static int spare_enlarge(struct wal *wal, uint64_t need, uint64_t reserve) {
    CHECK(wal->spare >= 0 && wal->spare_size < need);
    uint64_t free_bytes, more = wal_round_up(need) - wal->spare_size;
    int rv = wal->disk->ops->free_bytes(wal->disk, &free_bytes);
    if (rv != CO_OK) return rv;
    if (free_bytes < reserve || free_bytes - reserve < more) return CO_DISKFULL;
    rv = wal->disk->ops->allocate(wal->disk, wal->spare, wal_round_up(need));
    if (rv != CO_OK) {
        spare_discard(wal); /* its size is not known now */
        return rv;
    }
    wal->spare_size = wal_round_up(need);
    spare_publish(wal);
    return CO_OK;
}

/* -- background -- */

uint64_t wal_fuller_than(struct wal *wal, unsigned quarters) {
    pthread_mutex_lock(&wal->lock);
    struct wal_segment *last = wal_segment_last(wal);
    uint64_t segment = last->used > last->size / 4 * quarters ? last->seq : 0;
    pthread_mutex_unlock(&wal->lock);
    return segment;
}

static int prepare_slice(struct wal *wal) {
    int rv;
    if (wal->spare < 0) {
        rv = spare_make_fitting(wal, 0, wal->config.reserve_bytes);
        if (rv != CO_OK) return rv;
    }
    CHECK(wal->spare_zeroed <= wal->spare_size);
    if (wal->spare_zeroed == wal->spare_size) return CO_OK;
    uint64_t to = wal->spare_zeroed + PREPARE_SLICE;
    if (to > wal->spare_size) to = wal->spare_size;
    rv = wal_fill_zeros(wal->disk, wal->spare, wal->spare_zeroed, to);
    if (rv == CO_OK) rv = wal->disk->ops->sync(wal->disk, wal->spare);
    if (rv != CO_OK) {
        spare_discard(wal);
        return rv;
    }
    wal->spare_zeroed = to;
    return to < wal->spare_size ? CO_AGAIN : CO_OK;
}

int wal_prepare(struct wal *wal) {
    if (!wal_fuller_than(wal, WAL_PREPARE_QUARTERS)) return CO_OK;
    pthread_mutex_lock(&wal->spare_lock);
    int rv = prepare_slice(wal);
    pthread_mutex_unlock(&wal->spare_lock);
    return rv;
}

/* -- the segment in use -- */

static int make_named(struct wal *wal, const char *name, uint64_t size, disk_file *file) {
    const struct disk_ops *ops = wal->disk->ops;
    int rv = ops->open(wal->disk, name, 1, file);
    if (rv != CO_OK) return rv;
    rv = ops->allocate(wal->disk, *file, size);
    if (rv == CO_OK) rv = wal_fill_zeros(wal->disk, *file, 0, size);
    if (rv == CO_OK) rv = ops->sync(wal->disk, *file);
    if (rv == CO_OK) rv = ops->sync_folder(wal->disk);
    if (rv == CO_OK) return CO_OK;
    ops->close(wal->disk, *file);
    ops->remove(wal->disk, name);
    return rv;
}

int wal_first_segment(struct wal *wal, uint64_t seq, struct fault *fault) {
    CHECK(wal->segment_count == 0 && wal->file < 0);
    char name[DISK_NAME_MAX];
    wal_segment_name(seq, name);
    uint64_t size = wal->config.first_segment_bytes;
    int rv = make_named(wal, name, size, &wal->file);
    if (rv != CO_OK) {
        wal->file = -1;
        return fault_set(fault, rv, "%s: cannot make a file of %llu bytes: %s", name, (unsigned long long)size,
                         co_strerror(rv));
    }
    wal_segment_add(wal, seq, size);
    return CO_OK;
}

/* Gives the spare the name of the next batch. The folder is synced before that batch is written, so a batch is never
 * durable in a file without a durable name. */
static int spare_take(struct wal *wal, struct fault *fault) {
    CHECK(wal->spare >= 0 && wal->file >= 0);
    const struct disk_ops *ops = wal->disk->ops;
    char name[DISK_NAME_MAX];
    wal_segment_name(wal->next_seq, name);
    int rv = ops->rename(wal->disk, WAL_SPARE, name);
    if (rv == CO_DISKFULL) return rv;
    if (rv != CO_OK) return wal_fail(wal, fault, rv, "cannot rename the next segment");
    rv = ops->sync_folder(wal->disk);
    if (rv != CO_OK) return wal_fail(wal, fault, rv, "cannot sync the folder");
    ops->close(wal->disk, wal->file);
    wal->file = wal->spare;
    wal->spare = -1;
    pthread_mutex_lock(&wal->lock);
    if (wal_segment_last(wal)->seq == wal->next_seq) /* the very first, unused: the new one has its name */
        wal_segment_forget(wal, wal->segment_count - 1);
    wal_segment_add(wal, wal->next_seq, wal->spare_size);
    wal->spare_bytes = 0;
    pthread_mutex_unlock(&wal->lock);
    return CO_OK;
}

int wal_switch_segment(struct wal *wal, uint64_t need, uint64_t reserve, struct fault *fault) {
    pthread_mutex_lock(&wal->spare_lock);
    int rv = CO_OK;
    if (wal->spare < 0) rv = spare_make_fitting(wal, need, reserve);
    else if (wal->spare_size < need) rv = spare_enlarge(wal, need, reserve);
    CHECK(rv != CO_OK || wal->spare_size >= need);
    if (rv == CO_OK) rv = spare_take(wal, fault);
    else if (rv != CO_DISKFULL) rv = wal_fail(wal, fault, rv, "cannot make the next segment");
    pthread_mutex_unlock(&wal->spare_lock);
    if (rv == CO_DISKFULL)
        fault_set(fault, rv, "log: no room for %llu bytes more (%llu are kept in reserve)", (unsigned long long)need,
                  (unsigned long long)reserve);
    return rv;
}

/* -- dropping -- */

/* Removes segments from the front, each removal durable before the next, so that there is never a gap, whatever order
 * the file system keeps. */
int wal_drop_segments(struct wal *wal, size_t count) {
    const struct disk_ops *ops = wal->disk->ops;
    CHECK(count < wal->segment_count); /* the last one stays */
    for (; count > 0; count--) {
        char name[DISK_NAME_MAX];
        wal_segment_name(wal->segments[0].seq, name);
        int rv = ops->remove(wal->disk, name);
        if (rv != CO_OK) return rv;
        pthread_mutex_lock(&wal->lock);
        wal_segment_forget(wal, 0);
        wal->first_index = wal->last_index + 1;
        for (size_t i = wal->segment_count; i-- > 0;)
            if (wal->segments[i].mark_count > 0) wal->first_index = wal->segments[i].marks[0].index;
        pthread_mutex_unlock(&wal->lock);
        rv = ops->sync_folder(wal->disk);
        if (rv != CO_OK) return wal_fail(wal, NULL, rv, "cannot sync the folder");
    }
    return CO_OK;
}

int wal_drop(struct wal *wal, uint64_t index) {
    if (wal->failed) return CO_IO;
    pthread_mutex_lock(&wal->lock);
    size_t count = wal_droppable(wal, index);
    pthread_mutex_unlock(&wal->lock);
    int rv = wal_drop_segments(wal, count > 0);
    return rv == CO_OK && count > 1 ? CO_AGAIN : rv;
}
