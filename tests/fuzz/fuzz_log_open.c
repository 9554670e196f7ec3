/* Opening a log that a small program has written, made up or damaged (log_writer.h): it opens, or is refused with file
 * and offset. The entries that it gives back were written so; they are the same when it is opened again, read, and
 * after one more append. */
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "tests/fuzz/log_writer.h"

#define INSTRUCTIONS_MOST 96

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same_entry(const struct raft_entry *a, const struct raft_entry *b) {
    return a->index == b->index && a->term == b->term && a->type == b->type &&
           slice_equal(raft_entry_bytes(a), raft_entry_bytes(b));
}

static bool was_written(const struct log_writer *writer, const struct raft_entry *entry) {
    for (size_t i = 0; i < writer->written_count; i++) {
        if (same_entry(&writer->written[i], entry)) return true;
    }
    return false;
}

static void check_fault(int rv, const struct fault *fault) {
    CHECK(rv == CO_CORRUPT || rv == CO_UNSUPPORTED);
    CHECK(fault->code == rv && strncmp(fault->text, "log-", 4) == 0 && strstr(fault->text, "offset "));
}

static void check_recovered(const struct log_writer *writer, const struct wal_recovered *recovered) {
    CHECK(recovered->last_index >= recovered->first_index || recovered->entry_count == 0);
    for (size_t i = 0; i < recovered->entry_count; i++) {
        const struct raft_entry *entry = &recovered->entries[i];
        CHECK(was_written(writer, entry));
        CHECK(entry->index == recovered->entries[0].index + i && entry->index > writer->start_after);
        CHECK(entry->term > 0 && (i == 0 || entry->term >= entry[-1].term));
    }
    if (!recovered->entry_count) return;
    CHECK(recovered->entries[recovered->entry_count - 1].index == recovered->last_index);
    CHECK(recovered->entries[0].index == writer->start_after + 1 &&
          recovered->first_index <= recovered->entries[0].index);
}

/* A program without damage: all that was appended is there. */
static void check_complete(const struct log_writer *writer, const struct wal_recovered *recovered) {
    if (writer->made_up || writer->damages || writer->other_snapshot) return;
    CHECK(recovered->last_index == writer->last_index && !recovered->torn_bytes);
    CHECK(recovered->entry_count == writer->last_index - writer->start_after);
}

static void check_same(const struct wal_recovered *a, const struct wal_recovered *b) {
    CHECK(a->term == b->term && a->vote == b->vote && a->first_index == b->first_index &&
          a->last_index == b->last_index);
    CHECK(a->entry_count == b->entry_count);
    for (size_t i = 0; i < a->entry_count; i++) CHECK(same_entry(&a->entries[i], &b->entries[i]));
}

static void check_read(struct wal *wal, const struct wal_recovered *recovered) {
    if (!recovered->entry_count) return;
    struct raft_entry *entries;
    size_t count;
    CHECK(wal_read(wal, recovered->entries[0].index, recovered->last_index, SIZE_MAX, &entries, &count) == CO_OK);
    CHECK(count == recovered->entry_count);
    for (size_t i = 0; i < count; i++) {
        CHECK(same_entry(&entries[i], &recovered->entries[i]));
        raft_data_unref(entries[i].data);
    }
    free(entries);
}

static void append_one(struct wal *wal, const struct wal_recovered *recovered) {
    size_t count = recovered->entry_count;
    struct raft_entry entry = {.index = recovered->last_index + 1, .type = RAFT_ENTRY_EMPTY};
    entry.term = count ? recovered->entries[count - 1].term : 1;
    struct wal_batch batch = {.entries = &entry, .entry_count = 1};
    struct fault fault = {0};
    CHECK(wal_append(wal, &batch, 1, &fault) == CO_OK);
}

static int open_log(const struct log_writer *writer, struct wal **wal, struct wal_recovered *recovered) {
    struct fault fault = {0};
    int rv = wal_open(fake_disk_disk(writer->fake), &writer->config, writer->start_after, wal, recovered, &fault);
    if (rv != CO_OK) check_fault(rv, &fault);
    else CHECK(fault.code == CO_OK);
    return rv;
}

static void check_log(const struct log_writer *writer) {
    struct wal *wal;
    struct wal_recovered first, again;
    int rv = open_log(writer, &wal, &first);
    CHECK(rv != CO_OK || !writer->must_refuse);
    if (rv != CO_OK) {
        CHECK(writer->made_up || writer->damages || writer->other_snapshot);
        CHECK(open_log(writer, &wal, &again) == rv); /* to look at it changes nothing */
        return;
    }
    check_recovered(writer, &first);
    check_complete(writer, &first);
    check_read(wal, &first);
    wal_close(wal);
    CHECK(open_log(writer, &wal, &again) == CO_OK && again.torn_bytes == 0);
    check_same(&first, &again);
    wal_recovered_free(&first);
    append_one(wal, &again);
    wal_close(wal);
    CHECK(open_log(writer, &wal, &first) == CO_OK);
    CHECK(first.entry_count == again.entry_count + 1 && first.last_index == again.last_index + 1 &&
          first.term == again.term);
    check_read(wal, &first);
    wal_recovered_free(&first);
    wal_recovered_free(&again);
    wal_close(wal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct log_writer writer;
    if (size > INSTRUCTIONS_MOST * 4) size = INSTRUCTIONS_MOST * 4;
    log_writer_run(&writer, slice_make(data, size));
    check_log(&writer);
    log_writer_free(&writer);
    return 0;
}
