/* Writing: a group of the core's batches becomes one batch on disk, one write and one sync. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "consensus/wal_internal.h"

#define BATCH_BYTES  (4u << 20) /* a batch that would grow beyond this is written, the group goes on in the next */
#define BUFFER_BYTES (8u << 20) /* a larger buffer is not kept */
#define PAGE_BYTES   4096u      /* of the page cache and of file systems' blocks, mostly */
_Static_assert(BATCH_BYTES < WAL_BATCH_BYTES_MAX && BATCH_BYTES < BUFFER_BYTES, "what is divided at all can be read");
_Static_assert(PAGE_BYTES % WAL_SECTOR == 0, "a page ends where a sector does");
_Static_assert((int)RAFT_ENTRY_MEMBERS < (int)WAL_RECORD_SEGMENT, "types of entries and of other records are apart");

/* The batch that is being put together, and the changes that count once it is durable. */
struct group {
    struct wal *wal;
    struct fault *fault;
    bool open; /* the encoder has records that are not written */
    uint64_t term, vote;
    uint64_t last_index;    /* as of the records encoded so far */
    uint64_t truncate_from; /* 0: none */
    uint64_t first, count;  /* entries */
    bool reset;
    uint64_t reset_index;
};

static void put_record(struct group *group, uint32_t type, uint64_t index, uint64_t term, struct slice data) {
    struct wal_record record = {.type = type, .index = index, .term = term, .data = data};
    wal_encode_record(&group->wal->encoder, &record);
}

static void put_entry(struct group *group, const struct raft_entry *entry) {
    struct wal_record record = {.type = entry->type,
                                .index = entry->index,
                                .term = entry->term,
                                .data = raft_entry_bytes(entry),
                                .unix_ms = entry->unix_ms};
    wal_encode_record(&group->wal->encoder, &record);
}

/* Begins a batch. The first batch of a segment repeats the state that a reader needs to begin there. */
static void group_open(struct group *group) {
    if (group->open) return;
    group->open = true;
    wal_encode_begin(&group->wal->encoder);
    if (wal_segment_last(group->wal)->used > 0) return;
    char data[WAL_SEGMENT_DATA];
    put_le64(data, group->term);
    put_le64(data + 8, group->vote);
    put_record(group, WAL_RECORD_SEGMENT, group->last_index, 0, slice_make(data, sizeof data));
}

static void publish(struct group *group, uint64_t offset, size_t size) {
    struct wal *wal = group->wal;
    CHECK(group->open && group->term >= wal->term);
    pthread_mutex_lock(&wal->lock);
    if (group->reset) wal_note_reset(wal, group->reset_index);
    if (group->truncate_from) wal_note_truncate(wal, group->truncate_from);
    if (group->count) wal_note_entries(wal, offset, group->first, group->count);
    wal_segment_last(wal)->used += size;
    CHECK(group->reset || wal->last_index == group->last_index);
    pthread_mutex_unlock(&wal->lock);
    wal->term = group->term;
    wal->vote = group->vote;
    group->open = false;
    group->truncate_from = group->count = 0;
}

/* Writes up to the end of a page, with the zeros that are there anyway. If only part of a page were written, and the
 * page cache had dropped it, the kernel would have to read the page first, and the append would wait for the disk
 * twice. */
static int write_pages(struct wal *wal, uint64_t offset, struct buffer *bytes) {
    uint64_t end = offset + bytes->size, left = wal_segment_last(wal)->size - end;
    size_t rest = (size_t)((PAGE_BYTES - end % PAGE_BYTES) % PAGE_BYTES);
    if (rest > left) rest = (size_t)left;
    buffer_reserve(bytes, rest);
    memset(bytes->data + bytes->size, 0, rest);
    return wal->disk->ops->write(wal->disk, wal->file, offset, bytes->data, bytes->size + rest);
}

static int group_flush(struct group *group) {
    if (!group->open) return CO_OK;
    struct wal *wal = group->wal;
    uint64_t offset = wal_segment_last(wal)->used;
    CHECK(wal->file >= 0 && !wal->failed);
    uint32_t sum = wal_encode_end(&wal->encoder, wal->log_id, wal->next_seq, offset, wal->chain);
    struct buffer *bytes = &wal->encoder.bytes;
    CHECK(offset + bytes->size <= wal_segment_last(wal)->size);
    int rv = write_pages(wal, offset, bytes);
    if (rv != CO_OK) return wal_fail(wal, group->fault, rv, "cannot write");
    rv = wal->disk->ops->sync(wal->disk, wal->file);
    if (rv != CO_OK) return wal_fail(wal, group->fault, rv, "cannot sync");
    wal->next_seq++;
    wal->chain = sum;
    publish(group, offset, bytes->size);
    return CO_OK;
}

static void put_truncation(struct group *group, uint64_t from) {
    CHECK(from <= group->last_index + 1 && group->count == 0);
    group_open(group);
    put_record(group, WAL_RECORD_TRUNCATE, from, 0, slice_make(NULL, 0));
    if (group->truncate_from == 0 || from < group->truncate_from) group->truncate_from = from;
    group->last_index = from - 1;
}

static int put_entries(struct group *group, const struct raft_entry *entries, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct raft_entry *entry = &entries[i];
        CHECK(entry->index == group->last_index + 1 && entry->term > 0 && entry->type < WAL_RECORD_SEGMENT);
        if (group->open && group->wal->encoder.bytes.size >= BATCH_BYTES) {
            int rv = group_flush(group);
            if (rv != CO_OK) return rv;
        }
        group_open(group);
        put_entry(group, entry);
        if (group->count++ == 0) group->first = entry->index;
        group->last_index++;
    }
    return CO_OK;
}

/* Records with their heads. */
static uint64_t batch_bytes(const struct wal_batch *batch) {
    uint64_t bytes = (batch->entry_count + batch->hard_state + (batch->truncate_from != 0)) * WAL_RECORD_BYTES;
    for (size_t i = 0; i < batch->entry_count; i++) bytes += raft_entry_bytes(&batch->entries[i]).size;
    return bytes;
}

/* Must the batch begin a new batch on disk? One batch is not divided among two on disk, so that no part of it is found
 * alone. (Truncation comes before entries.) */
static bool needs_its_own(const struct group *group, const struct wal_batch *batch) {
    if (!group->open) return false;
    if (batch->truncate_from && group->count > 0) return true;
    return group->wal->encoder.bytes.size + batch_bytes(batch) > BATCH_BYTES;
}

static int put_batch(struct group *group, const struct wal_batch *batch) {
    int rv = needs_its_own(group, batch) ? group_flush(group) : CO_OK;
    if (rv != CO_OK) return rv;
    if (batch->hard_state) {
        CHECK(batch->term >= group->term);
        group_open(group);
        put_record(group, WAL_RECORD_HARD_STATE, batch->vote, batch->term, slice_make(NULL, 0));
        group->term = batch->term;
        group->vote = batch->vote;
    }
    if (batch->truncate_from) put_truncation(group, batch->truncate_from);
    return put_entries(group, batch->entries, batch->entry_count);
}

/* The most that the group takes on disk; 0: it is empty. */
static uint64_t group_bytes_max(const struct wal_batch *batches, size_t count, bool *has_commands) {
    uint64_t bytes = 0, parts = 1;
    *has_commands = false;
    for (size_t i = 0; i < count; i++) {
        const struct wal_batch *batch = &batches[i];
        bytes += batch_bytes(batch);
        for (size_t k = 0; k < batch->entry_count; k++) *has_commands |= batch->entries[k].type == RAFT_ENTRY_COMMAND;
        parts += batch->truncate_from != 0;
    }
    if (bytes == 0) return 0;
    bytes += WAL_RECORD_BYTES + WAL_SEGMENT_DATA;
    /* two parts that follow each other did not fit into one */
    parts += 2 * bytes / (BATCH_BYTES - WAL_SECTOR);
    return wal_round_up(bytes + parts * (WAL_HEAD_BYTES + WAL_SECTOR));
}

/* Makes room for the whole group in one segment, before anything is written. Votes and the like may use the margin and
 * the reserve. */
static int ensure_room(struct wal *wal, uint64_t bytes, bool has_commands, struct fault *fault) {
    struct wal_segment *last = wal_segment_last(wal);
    CHECK(last->used <= last->size);
    if (bytes + (has_commands ? wal_margin(last) : 0) <= last->size - last->used) return CO_OK;
    return wal_switch_segment(wal, bytes, has_commands ? wal->config.reserve_bytes : 0, fault);
}

static struct group group_make(struct wal *wal, struct fault *fault) {
    return (struct group){
        .wal = wal, .fault = fault, .term = wal->term, .vote = wal->vote, .last_index = wal->last_index};
}

static int refuse(struct fault *fault) {
    return fault_set(fault, CO_IO, "log: a write failed before; it has to be opened again");
}

int wal_append(struct wal *wal, const struct wal_batch *batches, size_t count, struct fault *fault) {
    if (wal->failed) return refuse(fault);
    bool has_commands;
    uint64_t bytes = group_bytes_max(batches, count, &has_commands);
    int rv = bytes > 0 ? ensure_room(wal, bytes, has_commands, fault) : CO_OK;
    if (rv != CO_OK) return rv;
    struct group group = group_make(wal, fault);
    for (size_t i = 0; i < count && rv == CO_OK; i++) rv = put_batch(&group, &batches[i]);
    if (rv == CO_OK) rv = group_flush(&group);
    if (wal->encoder.bytes.capacity > BUFFER_BYTES) buffer_free(&wal->encoder.bytes);
    return rv;
}

int wal_reset(struct wal *wal, uint64_t index, struct fault *fault) {
    if (wal->failed) return refuse(fault);
    int rv = ensure_room(wal, 2 * WAL_SECTOR, false, fault);
    if (rv != CO_OK) return rv;
    struct group group = group_make(wal, fault);
    group_open(&group);
    put_record(&group, WAL_RECORD_RESET, index, 0, slice_make(NULL, 0));
    group.reset = true;
    group.reset_index = index;
    rv = group_flush(&group);
    if (rv != CO_OK) return rv;
    wal_drop_segments(wal, wal->segment_count - 1); /* wal_drop() removes those that stay after an error */
    return CO_OK;
}
