/* Opening a log: reads all batches in order, tells a torn end from damage, and leaves everything that it returns
 * durable.
 *
 * The batches end at a place P that does not hold the next one. It is the end of the log (clean, or with a torn batch)
 * unless something proves that the batch at P was durable once; then it is damage. By invariants (1) to (3) of
 * wal_internal.h the proofs are:
 *   - a whole head of this log with a higher sequence number, at its own place, anywhere behind P in the segment;
 *   - bytes other than zero behind the end of the batch at P, when its head is whole and names that end;
 *   - a later segment that is named for another batch than the one at P;
 *   - a whole batch at P that follows another history than the one before it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/random.h"
#include "consensus/wal_internal.h"

#define READ_AHEAD (1u << 20)
/* No index or term gets this far; counting on from a larger one could overflow. */
#define NUMBER_MOST (UINT64_MAX / 2)

struct recovery {
    struct wal *wal;
    struct wal_recovered *out;
    struct fault *fault;
    struct wal_window window;
    uint64_t *names; /* sequence numbers in the names of segments, rising */
    size_t name_count;
    bool spare_found;
    bool look_only;                   /* nothing is changed on disk */
    uint64_t start_after, start_term; /* start_term: of the entry start_after, 0: not in the log */
    size_t capacity;                  /* of out->entries */
    bool any;                         /* a batch was found */
    /* The segment at hand. */
    disk_file file;
    uint64_t file_size;
    char name[DISK_NAME_MAX];
    const char *why;                 /* what is wrong with the batch at its end */
    uint64_t last_offset, last_size; /* its last batch; size 0: none */
    size_t last_padding;
    bool soiled;        /* the padding of the last batch is not zeros */
    uint64_t dirty_end; /* of the bytes other than zero */
};

static int corrupt(struct recovery *r, uint64_t offset, const char *what) {
    return fault_set(r->fault, CO_CORRUPT, "%s: damaged at offset %" PRIu64 ": %s", r->name, offset, what);
}

static int io_fault(struct recovery *r, int code, const char *what) {
    return fault_set(r->fault, code, "%s: cannot %s: %s", r->name[0] ? r->name : "log", what, co_strerror(code));
}

/* -- the state that the records make -- */

static void entries_keep(struct recovery *r, size_t count) {
    struct wal_recovered *out = r->out;
    while (out->entry_count > count) raft_data_unref(out->entries[--out->entry_count].data);
}

static void entry_add(struct recovery *r, const struct wal_record *record) {
    struct wal_recovered *out = r->out;
    if (out->entry_count == r->capacity) {
        r->capacity = r->capacity ? r->capacity * 2 : 256;
        out->entries = mem_realloc(out->entries, r->capacity * sizeof *out->entries);
    }
    out->entries[out->entry_count++] = (struct raft_entry){
        .index = record->index,
        .term = record->term,
        .type = (uint8_t)record->type,
        .data = record->data.size ? raft_data_new(record->data.data, record->data.size) : NULL,
        .unix_ms = record->unix_ms,
    };
}

static const char *replay_entry(struct recovery *r, uint64_t offset, const struct wal_record *record) {
    struct wal_recovered *out = r->out;
    if (record->index != r->wal->last_index + 1) return "an entry does not follow the one before it";
    if (record->term == 0 || record->term > NUMBER_MOST) return "an entry has no sane term";
    wal_note_entries(r->wal, offset, record->index, 1);
    if (record->index == r->start_after) r->start_term = record->term;
    if (record->index <= r->start_after) return NULL;
    if (out->entry_count > 0 && record->term < out->entries[out->entry_count - 1].term)
        return "an entry's term is below that of the one before it";
    entry_add(r, record);
    return NULL;
}

static const char *replay_truncate(struct recovery *r, uint64_t from) {
    if (from == 0 || from > r->wal->last_index + 1) return "a truncation beyond the end of the log";
    wal_note_truncate(r->wal, from);
    if (from <= r->start_after) r->start_term = 0;
    size_t keep = r->out->entry_count;
    while (keep > 0 && r->out->entries[keep - 1].index >= from) keep--;
    entries_keep(r, keep);
    return NULL;
}

static const char *replay_segment(struct recovery *r, const struct wal_record *record) {
    struct wal *wal = r->wal;
    static const char senseless[] = "the beginning of the segment does not make sense";
    if (record->data.size != WAL_SEGMENT_DATA) return senseless;
    uint64_t term = get_le64(record->data.data), vote = get_le64(record->data.data + 8);
    if (record->index > NUMBER_MOST || term > NUMBER_MOST) return senseless;
    if (!r->any) {
        wal_note_reset(wal, record->index);
        wal->term = term;
        wal->vote = vote;
        return NULL;
    }
    if (record->index != wal->last_index || term != wal->term || vote != wal->vote)
        return "the segment does not continue the one before it";
    return NULL;
}

static const char *replay_record(struct recovery *r, uint64_t offset, const struct wal_record *record) {
    struct wal *wal = r->wal;
    switch (record->type) {
        case RAFT_ENTRY_COMMAND:
        case RAFT_ENTRY_EMPTY:
        case RAFT_ENTRY_MEMBERS: return replay_entry(r, offset, record);
        case WAL_RECORD_HARD_STATE:
            if (record->term < wal->term) return "the term goes back";
            if (record->term > NUMBER_MOST) return "the term is none that can be";
            wal->term = record->term;
            wal->vote = record->index;
            return NULL;
        case WAL_RECORD_TRUNCATE: return replay_truncate(r, record->index);
        case WAL_RECORD_RESET:
            if (record->index > NUMBER_MOST) return "a reset to an index that cannot be";
            wal_note_reset(wal, record->index);
            r->start_term = 0;
            entries_keep(r, 0);
            return NULL;
        default: return "a record of a kind that is not known";
    }
}

/* Replays a whole batch. A record that cannot be there is as bad as a wrong checksum. */
static int replay_batch(struct recovery *r, const struct wal_head *head, const char *bytes) {
    struct wal_cursor cursor = wal_cursor_make(head, bytes);
    struct wal_record record;
    bool first = true, entries = false;
    while (wal_cursor_next(&cursor, &record) == 1) {
        const char *what;
        bool cuts = record.type == WAL_RECORD_TRUNCATE || record.type == WAL_RECORD_RESET;
        entries |= record.type < WAL_RECORD_SEGMENT;
        if (cuts && entries) /* never written so: an index stands for one entry of a batch (wal_read.c) */
            what = "a batch takes back its own entries";
        else if ((record.type == WAL_RECORD_SEGMENT) != (first && head->offset == 0))
            what = "a segment's beginning is missing or misplaced";
        else if (first && head->offset == 0) what = replay_segment(r, &record);
        else what = replay_record(r, head->offset, &record);
        if (what) return corrupt(r, head->offset, what);
        first = false;
        r->any = true;
    }
    struct wal *wal = r->wal;
    wal->chain = head->sum;
    wal->next_seq = head->seq + 1;
    r->last_offset = head->offset;
    r->last_size = head->size;
    wal_segment_last(wal)->used = head->offset + head->size;
    return CO_OK;
}

/* -- reading a segment -- */

/* Padding that is not zeros is harmless by itself, but whatever caused it may have damaged more. For the last batch,
 * which may be torn, it is no damage. */
static int padding_damaged(struct recovery *r) {
    return corrupt(r, r->last_offset, "the padding of the batch is not zeros");
}

/* The batch at `offset`: CO_OK and replayed, CO_NOTFOUND (r->why) when it is not whole, or an error. */
static int read_batch(struct recovery *r, uint64_t offset) {
    struct wal *wal = r->wal;
    const char *bytes;
    struct wal_head head;
    r->why = "no whole batch";
    int rv = wal_window_get(&r->window, offset, WAL_HEAD_BYTES, &bytes);
    if (rv != CO_OK) return io_fault(r, rv, "read");
    if (!bytes) return CO_NOTFOUND;
    switch (wal_head_decode(bytes, &head)) {
        case WAL_HEAD_NONE: return CO_NOTFOUND;
        case WAL_HEAD_NEWER:
            return fault_set(r->fault, CO_UNSUPPORTED, "%s: offset %" PRIu64 ": written by a newer version of coord",
                             r->name, offset);
        case WAL_HEAD_OK: break;
    }
    if (wal->log_id == 0) wal->log_id = head.log_id;
    if (head.log_id != wal->log_id || head.offset != offset || head.seq != wal->next_seq) return CO_NOTFOUND;
    rv = wal_window_get(&r->window, offset, head.size, &bytes);
    if (rv != CO_OK) return io_fault(r, rv, "read");
    if (!bytes) return CO_NOTFOUND;
    size_t padding;
    r->why = wal_batch_check(&head, bytes, &padding);
    if (r->why) return CO_NOTFOUND;
    if (r->soiled) return padding_damaged(r);
    r->soiled = !wal_is_zero(bytes + head.size - padding, padding);
    r->last_padding = padding;
    if (r->any && head.chain != wal->chain)
        return corrupt(r, offset, "the batch follows another one than is before it");
    return replay_batch(r, &head, bytes);
}

/* Behind the last whole batch of the last segment, from `offset` on: proof of damage, or how far a torn batch
 * reaches. */
static int examine_tail(struct recovery *r, uint64_t offset) {
    struct wal *wal = r->wal;
    uint64_t torn_until = UINT64_MAX; /* where the batch at `offset` ends, when its head says so */
    r->dirty_end = offset;
    for (uint64_t at = offset; at < r->file_size; at += WAL_SECTOR) {
        size_t size = r->file_size - at < WAL_SECTOR ? (size_t)(r->file_size - at) : WAL_SECTOR;
        const char *bytes;
        int rv = wal_window_get(&r->window, at, size, &bytes);
        if (rv != CO_OK) return io_fault(r, rv, "read");
        if (!bytes || wal_is_zero(bytes, size)) continue;
        r->dirty_end = at + size;
        if (at >= torn_until) return corrupt(r, offset, r->why);
        struct wal_head head;
        if (size < WAL_HEAD_BYTES || wal_head_decode(bytes, &head) != WAL_HEAD_OK) continue;
        if (wal->log_id != 0 && head.log_id != wal->log_id) continue;
        if (head.offset != at || head.seq < wal->next_seq) continue;
        if (head.seq > wal->next_seq) {
            char what[160];
            snprintf(what, sizeof what, "%s, and batch %" PRIu64 " follows at offset %" PRIu64, r->why, head.seq, at);
            return corrupt(r, offset, what);
        }
        if (at == offset) torn_until = at + head.size;
    }
    return CO_OK;
}

static int open_file(struct recovery *r, uint64_t seq) {
    struct disk *disk = r->wal->disk;
    if (r->file >= 0) disk->ops->close(disk, r->file);
    r->file = -1;
    wal_segment_name(seq, r->name);
    int rv = disk->ops->open(disk, r->name, 0, &r->file);
    if (rv != CO_OK) {
        r->file = -1;
        return io_fault(r, rv, "open");
    }
    rv = disk->ops->size(disk, r->file, &r->file_size);
    if (rv != CO_OK) return io_fault(r, rv, "read the size");
    wal_window_move(&r->window, r->file);
    r->window.read_ahead = r->file_size < READ_AHEAD ? (size_t)r->file_size : READ_AHEAD;
    return CO_OK;
}

/* Segment number n. Its end is checked against the next one's name, or examined. */
static int read_segment(struct recovery *r, size_t n) {
    struct wal *wal = r->wal;
    int rv = open_file(r, r->names[n]);
    if (rv != CO_OK) return rv;
    wal_segment_add(wal, r->names[n], r->file_size / WAL_SECTOR * WAL_SECTOR);
    if (n == 0) wal->next_seq = r->names[0];
    r->last_size = 0;
    uint64_t end;
    do {
        end = wal_segment_last(wal)->used;
        rv = read_batch(r, end);
    } while (rv == CO_OK);
    if (rv != CO_NOTFOUND) return rv;
    if (n + 1 == r->name_count) return examine_tail(r, end);
    if (r->soiled) return padding_damaged(r);
    if (r->any && r->names[n + 1] == wal->next_seq) return CO_OK;
    char what[160];
    snprintf(what, sizeof what, "%s (batch %" PRIu64 "), and segment log-%016" PRIx64 " follows", r->why, wal->next_seq,
             r->names[n + 1]);
    return corrupt(r, end, what);
}

/* -- making what was found durable -- */

/* The last batch may be in the page cache only, and after a failed sync not even be written back by another one: so it
 * is written again. Batches before it were durable when it was begun. A torn one is wiped. */
static int settle_file(struct recovery *r) {
    const struct disk_ops *ops = r->wal->disk->ops;
    const char *bytes;
    int rv = CO_OK;
    uint64_t end = wal_segment_last(r->wal)->used;
    if (r->last_size > 0) {
        rv = wal_window_get(&r->window, r->last_offset, r->last_size, &bytes);
        if (rv == CO_OK && !bytes) rv = CO_IO;
        uint64_t size = r->last_size - r->last_padding;
        if (rv == CO_OK) rv = ops->write(r->wal->disk, r->file, r->last_offset, bytes, size);
        if (rv == CO_OK) rv = wal_fill_zeros(r->wal->disk, r->file, r->last_offset + size, end);
    }
    if (rv == CO_OK && r->dirty_end > end) {
        r->out->torn_bytes += r->dirty_end - end;
        rv = wal_fill_zeros(r->wal->disk, r->file, end, r->dirty_end);
    }
    if (rv == CO_OK) rv = ops->sync(r->wal->disk, r->file);
    return rv == CO_OK ? CO_OK : io_fault(r, rv, "write the end again");
}

/* A last segment without a whole batch was begun and not finished: it is removed, and the one before it is the last. */
static int remove_empty(struct recovery *r) {
    struct wal *wal = r->wal;
    if (wal->segment_count == 0 || wal_segment_last(wal)->used > 0) return CO_OK;
    if (!r->any && r->names[0] != 1) return corrupt(r, 0, "no whole batch in the only segment");
    uint64_t torn = r->dirty_end;
    wal->disk->ops->close(wal->disk, r->file);
    r->file = -1;
    int rv = r->look_only ? CO_OK : wal->disk->ops->remove(wal->disk, r->name);
    if (rv != CO_OK) return io_fault(r, rv, "remove");
    wal_segment_forget(wal, wal->segment_count - 1);
    r->out->torn_bytes = torn;
    if (wal->segment_count == 0) return CO_OK;
    rv = open_file(r, wal_segment_last(wal)->seq);
    if (rv != CO_OK) return rv;
    r->last_size = 0; /* durable: another batch was begun behind it */
    return examine_tail(r, wal_segment_last(wal)->used);
}

static int settle(struct recovery *r) {
    struct wal *wal = r->wal;
    int rv = remove_empty(r);
    if (rv != CO_OK) return rv;
    if (wal->segment_count > 0) {
        rv = settle_file(r);
        if (rv != CO_OK) return rv;
    }
    r->name[0] = 0;
    rv = wal->disk->ops->sync_folder(wal->disk);
    if (rv != CO_OK) return io_fault(r, rv, "sync the folder");
    wal->file = r->file; /* -1 without a segment */
    r->file = -1;
    return CO_OK;
}

/* A log without a durable batch begins anew, behind the snapshot. */
static int begin_log(struct recovery *r) {
    struct wal *wal = r->wal;
    wal->next_seq = 1;
    wal->chain = 0;
    wal->log_id = wal->config.log_id;
    while (wal->log_id == 0) wal->log_id = random_u64();
    wal_note_reset(wal, r->start_after);
    return wal_first_segment(wal, 1, r->fault);
}

/* Compares the log with the caller's snapshot, and empties it when they do not fit. */
static int fit_to_snapshot(struct recovery *r) {
    struct wal *wal = r->wal;
    bool other = wal->config.start_term != 0 && r->start_term != 0 && r->start_term != wal->config.start_term;
    if (wal->last_index < r->start_after || other) {
        entries_keep(r, 0);
        return wal_reset(wal, r->start_after, r->fault);
    }
    if (wal->first_index <= r->start_after + 1) return CO_OK;
    return fault_set(r->fault, CO_CORRUPT,
                     "log-%016" PRIx64 ": offset 0: the log begins at entry %" PRIu64
                     ", but the snapshot ends at %" PRIu64 ": a snapshot or segments are missing",
                     wal->segments[0].seq, wal->first_index, r->start_after);
}

/* -- the folder -- */

static void name_found(void *data, const char *name) {
    struct recovery *r = data;
    if (strcmp(name, WAL_SPARE) == 0) r->spare_found = true;
    char *end;
    if (strncmp(name, "log-", 4) != 0 || strlen(name) != 20 || strspn(name + 4, "0123456789abcdef") != 16) return;
    uint64_t seq = strtoull(name + 4, &end, 16);
    r->names = mem_realloc(r->names, (r->name_count + 1) * sizeof *r->names);
    size_t at = r->name_count++;
    for (; at > 0 && r->names[at - 1] > seq; at--) r->names[at] = r->names[at - 1];
    r->names[at] = seq;
}

static int read_segments(struct recovery *r) {
    int rv = r->wal->disk->ops->list(r->wal->disk, name_found, r);
    if (rv != CO_OK) return io_fault(r, rv, "list the folder");
    for (size_t n = 0; n < r->name_count && rv == CO_OK; n++) rv = read_segment(r, n);
    return rv;
}

static int recover(struct recovery *r) {
    struct wal *wal = r->wal;
    int rv = read_segments(r);
    if (rv != CO_OK) return rv;
    if (r->spare_found) {
        rv = wal->disk->ops->remove(wal->disk, WAL_SPARE);
        if (rv != CO_OK) return io_fault(r, rv, "remove " WAL_SPARE);
    }
    rv = settle(r);
    if (rv == CO_OK && wal->segment_count == 0) rv = begin_log(r);
    if (rv != CO_OK) return rv;
    CHECK(wal->segment_count > 0 && wal->file >= 0);
    return fit_to_snapshot(r);
}

/* As recover, but writes nothing. */
static int look(struct recovery *r) {
    int rv = read_segments(r);
    if (rv == CO_OK && r->name_count == 0) return fault_set(r->fault, CO_NOTFOUND, "there is no log");
    if (rv == CO_OK) rv = remove_empty(r);
    if (rv != CO_OK || r->wal->segment_count == 0) return rv;
    uint64_t end = wal_segment_last(r->wal)->used;
    if (r->dirty_end > end) r->out->torn_bytes += r->dirty_end - end;
    return CO_OK;
}

/* -- life -- */

static struct wal *wal_make(struct disk *disk, const struct wal_config *config) {
    struct wal *wal = mem_zalloc(sizeof *wal);
    wal->disk = disk;
    wal->config = *config;
    if (!wal->config.segment_bytes) wal->config.segment_bytes = 64u << 20;
    if (!wal->config.first_segment_bytes) wal->config.first_segment_bytes = 1u << 20;
    wal->config.segment_bytes = wal_round_up(wal->config.segment_bytes);
    wal->config.first_segment_bytes = wal_round_up(wal->config.first_segment_bytes);
    if (!wal->config.reserve_bytes) wal->config.reserve_bytes = wal->config.first_segment_bytes;
    wal->file = wal->spare = -1;
    wal->first_index = 1;
    CHECK(pthread_mutex_init(&wal->lock, NULL) == 0);
    CHECK(pthread_mutex_init(&wal->spare_lock, NULL) == 0);
    return wal;
}

static int run(struct recovery *r, int (*what)(struct recovery *r)) {
    struct wal *wal = r->wal;
    struct wal_recovered *out = r->out;
    *out = (struct wal_recovered){0};
    r->window.disk = wal->disk;
    r->file = -1;
    int rv = what(r);
    if (r->file >= 0) wal->disk->ops->close(wal->disk, r->file);
    wal_window_free(&r->window);
    free(r->names);
    out->term = wal->term, out->vote = wal->vote;
    out->first_index = wal->first_index, out->last_index = wal->last_index;
    if (rv != CO_OK) wal_recovered_free(out);
    return rv;
}

int wal_open(struct disk *disk, const struct wal_config *config, uint64_t start_after, struct wal **out,
             struct wal_recovered *recovered, struct fault *fault) {
    struct wal *wal = wal_make(disk, config);
    struct recovery r = {.wal = wal, .out = recovered, .fault = fault, .start_after = start_after};
    int rv = run(&r, recover);
    size_t count = recovered->entry_count;
    CHECK(count == 0 || recovered->entries[0].index == start_after + 1);
    CHECK(count == 0 || recovered->entries[count - 1].index == wal->last_index);
    if (rv != CO_OK) wal_close(wal);
    *out = rv == CO_OK ? wal : NULL;
    return rv;
}

int wal_look(struct disk *disk, struct wal_looked *looked, struct wal_recovered *recovered, struct fault *fault) {
    struct wal_config config = {0};
    struct wal *wal = wal_make(disk, &config);
    struct recovery r = {.wal = wal, .out = recovered, .fault = fault, .look_only = true};
    int rv = run(&r, look);
    *looked = (struct wal_looked){.segments = wal->segment_count, .bytes = wal_bytes(wal)};
    wal_close(wal);
    return rv;
}

void wal_close(struct wal *wal) {
    if (!wal) return;
    if (wal->file >= 0) wal->disk->ops->close(wal->disk, wal->file);
    if (wal->spare >= 0) {
        wal->disk->ops->close(wal->disk, wal->spare);
        wal->disk->ops->remove(wal->disk, WAL_SPARE);
    }
    while (wal->segment_count > 0) wal_segment_forget(wal, wal->segment_count - 1);
    free(wal->segments);
    buffer_free(&wal->encoder.bytes);
    pthread_mutex_destroy(&wal->lock);
    pthread_mutex_destroy(&wal->spare_lock);
    free(wal);
}

void wal_recovered_free(struct wal_recovered *recovered) {
    for (size_t i = 0; i < recovered->entry_count; i++) raft_data_unref(recovered->entries[i].data);
    free(recovered->entries);
    *recovered = (struct wal_recovered){0};
}
