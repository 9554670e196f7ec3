/* Reads entries again, for peers that lag behind. Any thread: it has its own file handles, and takes the lock only to
 * look places up. */
#include <stdlib.h>

#include "base/check.h"
#include "base/memory.h"
#include "consensus/wal_internal.h"

#define READ_AHEAD (64u << 10)

/* -- windows -- */

int wal_window_get(struct wal_window *window, uint64_t offset, size_t size, const char **out) {
    bool inside = offset >= window->start && offset - window->start <= window->got &&
                  size <= window->got - (offset - window->start);
    if (!inside) {
        size_t want = size > window->read_ahead ? size : window->read_ahead;
        if (want > window->capacity) {
            free(window->data);
            window->data = mem_alloc(want);
            window->capacity = want;
        }
        window->start = offset;
        window->got = 0;
        int rv = window->disk->ops->read(window->disk, window->file, offset, window->data, want, &window->got);
        if (rv != CO_OK) {
            window->got = 0;
            return rv;
        }
    }
    size_t in = (size_t)(offset - window->start);
    *out = size <= window->got - in ? window->data + in : NULL;
    return CO_OK;
}

void wal_window_move(struct wal_window *window, disk_file file) {
    window->file = file;
    window->got = 0;
    window->start = 0;
}

void wal_window_free(struct wal_window *window) {
    free(window->data);
    window->data = NULL;
    window->capacity = window->got = 0;
}

/* -- reading -- */

struct reading {
    struct wal *wal;
    struct wal_window window;
    disk_file file; /* -1: none */
    uint64_t file_seq;
    uint64_t next, to; /* the entries that are still wanted */
    size_t bytes, bytes_max;
    struct raft_entry *entries;
    size_t count, capacity;
};

static bool wants_more(const struct reading *reading) {
    return reading->next <= reading->to && (reading->count == 0 || reading->bytes < reading->bytes_max);
}

static void take(struct reading *reading, const struct wal_record *record) {
    if (reading->count == reading->capacity) {
        reading->capacity = reading->capacity ? reading->capacity * 2 : 64;
        reading->entries = mem_realloc(reading->entries, reading->capacity * sizeof *reading->entries);
    }
    reading->entries[reading->count++] = (struct raft_entry){
        .index = record->index,
        .term = record->term,
        .type = (uint8_t)record->type,
        .data = record->data.size ? raft_data_new(record->data.data, record->data.size) : NULL,
        .unix_ms = record->unix_ms,
    };
    reading->bytes += record->data.size;
    reading->next++;
}

static int open_segment(struct reading *reading, uint64_t seq) {
    struct disk *disk = reading->wal->disk;
    if (reading->file >= 0 && reading->file_seq == seq) return CO_OK;
    if (reading->file >= 0) disk->ops->close(disk, reading->file);
    reading->file = -1;
    char name[DISK_NAME_MAX];
    wal_segment_name(seq, name);
    int rv = disk->ops->open(disk, name, 0, &reading->file); /* CO_NOTFOUND: dropped meanwhile */
    if (rv != CO_OK) {
        reading->file = -1;
        return rv;
    }
    reading->file_seq = seq;
    wal_window_move(&reading->window, reading->file);
    return CO_OK;
}

/* Reads the batch at *offset, and moves *offset behind it. */
static int read_batch(struct reading *reading, uint64_t *offset, uint64_t until) {
    const char *bytes;
    struct wal_head head;
    int rv = wal_window_get(&reading->window, *offset, WAL_HEAD_BYTES, &bytes);
    if (rv != CO_OK) return rv;
    if (!bytes || wal_head_decode(bytes, &head) != WAL_HEAD_OK) return CO_CORRUPT;
    if (head.log_id != reading->wal->log_id || head.offset != *offset) return CO_CORRUPT;
    rv = wal_window_get(&reading->window, *offset, head.size, &bytes);
    if (rv != CO_OK) return rv;
    if (!bytes) return CO_CORRUPT;
    struct wal_cursor cursor = wal_cursor_make(&head, bytes);
    struct wal_record record;
    int more = 1;
    while (reading->next <= until && wants_more(reading) && (more = wal_cursor_next(&cursor, &record)) == 1) {
        if (record.type >= WAL_RECORD_SEGMENT || record.index < reading->next) continue;
        if (record.index > reading->next) return CO_CORRUPT;
        if (reading->count > 0 && reading->bytes + record.data.size > reading->bytes_max) {
            reading->to = reading->next - 1; /* full */
            break;
        }
        take(reading, &record);
    }
    *offset += head.size;
    return more < 0 ? CO_CORRUPT : CO_OK;
}

static int read_all(struct reading *reading) {
    while (wants_more(reading)) {
        uint64_t seq, offset, until;
        pthread_mutex_lock(&reading->wal->lock);
        bool found = wal_locate(reading->wal, reading->next, &seq, &offset, &until);
        pthread_mutex_unlock(&reading->wal->lock);
        if (!found) return CO_NOTFOUND;
        int rv = open_segment(reading, seq);
        while (rv == CO_OK && reading->next <= until && wants_more(reading)) rv = read_batch(reading, &offset, until);
        if (rv != CO_OK) return rv;
    }
    return CO_OK;
}

int wal_read(struct wal *wal, uint64_t from, uint64_t to, size_t bytes_max, struct raft_entry **entries,
             size_t *count) {
    *entries = NULL;
    *count = 0;
    uint64_t last = wal_last_index(wal);
    struct reading reading = {
        .wal = wal,
        .window = {.disk = wal->disk, .read_ahead = READ_AHEAD},
        .file = -1,
        .next = from,
        .to = to < last ? to : last,
        .bytes_max = bytes_max,
    };
    int rv = from > reading.to ? CO_NOTFOUND : read_all(&reading);
    if (reading.file >= 0) wal->disk->ops->close(wal->disk, reading.file);
    wal_window_free(&reading.window);
    if (rv != CO_OK && reading.count > 0 && rv != CO_CORRUPT) rv = CO_OK; /* the entries before the error are good */
    if (rv != CO_OK) {
        for (size_t i = 0; i < reading.count; i++) raft_data_unref(reading.entries[i].data);
        free(reading.entries);
        return rv;
    }
    CHECK(reading.count > 0 && reading.entries[0].index == from);
    *entries = reading.entries;
    *count = reading.count;
    return CO_OK;
}
