/* The places of entries in the log. One mark for about 64 entries keeps the memory small: each byte of it stands for at
 * least 4 bytes of log, mostly for hundreds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "consensus/wal_internal.h"

#define ENTRIES_PER_MARK 64
#define HEADROOM_MAX     (4u << 20)
_Static_assert(sizeof "log-0123456789abcdef" <= DISK_NAME_MAX, "a segment's name fits");

void wal_segment_name(uint64_t seq, char name[DISK_NAME_MAX]) { snprintf(name, DISK_NAME_MAX, "log-%016" PRIx64, seq); }

struct wal_segment *wal_segment_add(struct wal *wal, uint64_t seq, uint64_t size) {
    CHECK(wal->segment_count == 0 || wal_segment_last(wal)->seq < seq);
    wal->segments = mem_realloc(wal->segments, (wal->segment_count + 1) * sizeof *wal->segments);
    struct wal_segment *segment = &wal->segments[wal->segment_count++];
    *segment = (struct wal_segment){.seq = seq, .size = size};
    return segment;
}

void wal_segment_forget(struct wal *wal, size_t n) {
    CHECK(n < wal->segment_count);
    free(wal->segments[n].marks);
    wal->segment_count--;
    memmove(&wal->segments[n], &wal->segments[n + 1], (wal->segment_count - n) * sizeof *wal->segments);
}

/* -- marks -- */

static void mark_add(struct wal_segment *segment, uint64_t index, uint64_t offset) {
    if (segment->mark_count == segment->mark_capacity) {
        segment->mark_capacity = segment->mark_capacity ? segment->mark_capacity * 2 : 16;
        segment->marks = mem_realloc(segment->marks, segment->mark_capacity * sizeof *segment->marks);
    }
    CHECK(segment->mark_count == 0 || segment->marks[segment->mark_count - 1].index < index);
    segment->marks[segment->mark_count++] = (struct wal_mark){index, offset};
    segment->since_mark = 0;
}

void wal_note_entries(struct wal *wal, uint64_t offset, uint64_t first, uint64_t count) {
    struct wal_segment *segment = wal_segment_last(wal);
    CHECK(first == wal->last_index + 1 && count > 0);
    if (segment->mark_count == 0 || segment->since_mark >= ENTRIES_PER_MARK || wal->mark_next)
        mark_add(segment, first, offset);
    wal->mark_next = false;
    segment->since_mark += count;
    wal->last_index += count;
}

void wal_note_truncate(struct wal *wal, uint64_t from) {
    CHECK(from > 0 && from <= wal->last_index + 1);
    if (from == wal->last_index + 1) return;
    for (size_t i = wal->segment_count; i-- > 0;) {
        struct wal_segment *segment = &wal->segments[i];
        while (segment->mark_count > 0 && segment->marks[segment->mark_count - 1].index >= from) segment->mark_count--;
        if (segment->mark_count > 0) break;
    }
    wal->last_index = from - 1;
    if (wal->first_index > from) wal->first_index = from;
    wal->mark_next = true;
}

void wal_note_reset(struct wal *wal, uint64_t index) {
    for (size_t i = 0; i < wal->segment_count; i++) wal->segments[i].mark_count = 0;
    wal->first_index = index + 1;
    wal->last_index = index;
    wal->mark_next = true;
}

/* The last mark at or before `index`, or mark_count (of a segment with marks only behind it). */
static size_t mark_find(const struct wal_segment *segment, uint64_t index) {
    size_t low = 0, high = segment->mark_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (segment->marks[middle].index <= index) low = middle + 1;
        else high = middle;
    }
    return low > 0 ? low - 1 : segment->mark_count;
}

bool wal_locate(const struct wal *wal, uint64_t index, uint64_t *seq, uint64_t *offset, uint64_t *until) {
    if (index < wal->first_index || index > wal->last_index) return false;
    *until = wal->last_index;
    for (size_t i = wal->segment_count; i-- > 0;) {
        const struct wal_segment *segment = &wal->segments[i];
        size_t n = mark_find(segment, index);
        if (n < segment->mark_count) {
            if (n + 1 < segment->mark_count) *until = segment->marks[n + 1].index - 1;
            CHECK(*until >= index && segment->marks[n].offset < segment->used);
            *seq = segment->seq;
            *offset = segment->marks[n].offset;
            return true;
        }
        if (segment->mark_count > 0) *until = segment->marks[0].index - 1;
    }
    return false;
}

size_t wal_droppable(const struct wal *wal, uint64_t index) {
    CHECK(wal->segment_count > 0);
    size_t count = 0, keep = 1; /* the last one that has a batch holds the hard state */
    if (wal->segments[wal->segment_count - 1].used == 0) keep++;
    while (count + keep < wal->segment_count) {
        uint64_t last = wal->last_index; /* the last entry in segments 0 .. count */
        for (size_t i = wal->segment_count; i-- > count + 1;)
            if (wal->segments[i].mark_count > 0) last = wal->segments[i].marks[0].index - 1;
        if (last > index) break;
        count++;
    }
    return count;
}

/* -- views: any thread -- */

uint64_t wal_first_index(struct wal *wal) {
    pthread_mutex_lock(&wal->lock);
    uint64_t index = wal->first_index;
    pthread_mutex_unlock(&wal->lock);
    return index;
}

uint64_t wal_last_index(struct wal *wal) {
    pthread_mutex_lock(&wal->lock);
    uint64_t index = wal->last_index;
    pthread_mutex_unlock(&wal->lock);
    return index;
}

uint64_t wal_bytes(struct wal *wal) {
    uint64_t bytes = 0;
    pthread_mutex_lock(&wal->lock);
    for (size_t i = 0; i < wal->segment_count; i++) bytes += wal->segments[i].used;
    pthread_mutex_unlock(&wal->lock);
    return bytes;
}

uint64_t wal_droppable_bytes(struct wal *wal, uint64_t index) {
    uint64_t bytes = 0;
    pthread_mutex_lock(&wal->lock);
    for (size_t i = wal_droppable(wal, index); i-- > 0;) bytes += wal->segments[i].used;
    pthread_mutex_unlock(&wal->lock);
    return bytes;
}

/* Heads of records and batches, padding. */
static uint64_t with_heads(uint64_t bytes) { return bytes + bytes / 4 + 4 * WAL_SECTOR; }

static uint64_t headroom(uint64_t segment_bytes) {
    return segment_bytes / 8 < HEADROOM_MAX ? segment_bytes / 8 : HEADROOM_MAX;
}

static bool has_room(struct wal *wal, uint64_t need, bool accept) {
    const struct wal_config *config = &wal->config;
    pthread_mutex_lock(&wal->lock);
    struct wal_segment *last = wal_segment_last(wal);
    CHECK(last->used <= last->size);
    uint64_t left = wal_margin(last) + (accept ? headroom(last->size) : 0),
             spare_left = accept ? headroom(wal->spare_bytes) : 0;
    bool fits = need + left <= last->size - last->used || need + spare_left <= wal->spare_bytes;
    pthread_mutex_unlock(&wal->lock);
    if (fits) return true;
    uint64_t free_bytes;
    if (wal->disk->ops->free_bytes(wal->disk, &free_bytes) != CO_OK) return false;
    if (accept) need += headroom(config->first_segment_bytes);
    uint64_t segment = need > config->first_segment_bytes ? need : config->first_segment_bytes;
    return free_bytes >= config->reserve_bytes && free_bytes - config->reserve_bytes >= segment;
}

bool wal_takes_votes(struct wal *wal) {
    uint64_t need = wal_round_up(2 * WAL_RECORD_BYTES + WAL_SEGMENT_DATA + WAL_HEAD_BYTES + WAL_SECTOR), free_bytes;
    pthread_mutex_lock(&wal->lock);
    struct wal_segment *last = wal_segment_last(wal);
    bool fits = need <= last->size - last->used || need <= wal->spare_bytes;
    pthread_mutex_unlock(&wal->lock);
    if (fits) return true;
    return wal->disk->ops->free_bytes(wal->disk, &free_bytes) == CO_OK && free_bytes >= wal->config.first_segment_bytes;
}

bool wal_has_room(struct wal *wal, uint64_t bytes) { return has_room(wal, with_heads(bytes), false); }
bool wal_may_accept(struct wal *wal, uint64_t bytes) { return has_room(wal, with_heads(bytes), true); }
