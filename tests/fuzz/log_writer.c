#include "tests/fuzz/log_writer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "consensus/wal_format.h"

#define FIRST_SEQ 1
#define LOG_ID    11

struct run {
    struct log_writer *writer;
    struct wal *wal; /* the log that is appended to; NULL: none yet */
    bool closed;     /* only damage is to come */
    /* Made up. */
    struct wal_encoder encoder;
    struct buffer file;
    uint64_t file_seq, seq, log_id;
    uint32_t chain;
};

static uint64_t operand(uint8_t byte) {
    static const uint64_t large[] = {UINT64_MAX / 2, UINT64_MAX / 2 + 1, UINT64_MAX - 1, UINT64_MAX};
    return byte >= 0xfc ? large[byte - 0xfc] : (uint8_t)(byte - '0');
}

/* Told by its index, term and size. */
static struct raft_entry *entry_new(struct run *run, uint64_t index, uint64_t term, uint8_t type, size_t size) {
    struct log_writer *writer = run->writer;
    if (writer->written_count == LOG_ENTRIES_MOST) return NULL;
    struct raft_entry *entry = &writer->written[writer->written_count++];
    *entry = (struct raft_entry){
        .index = index, .term = term, .type = type, .data = size ? raft_data_new(NULL, size) : NULL};
    for (size_t i = 0; i < size; i++) entry->data->bytes[i] = (char)(index * 31 + term * 7 + i);
    return entry;
}

/* ---- by wal_append ---- */

static bool wal_ready(struct run *run) {
    struct log_writer *writer = run->writer;
    if (writer->made_up || run->closed) return false;
    if (run->wal) return true;
    struct wal_recovered recovered;
    CHECK(wal_open(fake_disk_disk(writer->fake), &writer->config, 0, &run->wal, &recovered, NULL) == CO_OK);
    wal_recovered_free(&recovered);
    writer->term = 1;
    return true;
}

static void append(struct run *run, struct wal_batch *batch, size_t count) {
    struct log_writer *writer = run->writer;
    for (size_t i = 0; i < count; i++) {
        uint64_t index = writer->last_index + 1;
        struct raft_entry *entry = entry_new(run, index, writer->term, (uint8_t)(index % 3), index * 37 % 200);
        if (!entry) break;
        if (i == 0) batch->entries = entry;
        batch->entry_count++;
        writer->last_index = index;
    }
    CHECK(wal_append(run->wal, batch, 1, NULL) == CO_OK);
}

static void reset(struct run *run, uint64_t ahead) {
    struct log_writer *writer = run->writer;
    writer->last_index += ahead;
    writer->start_after = writer->last_index; /* it is there because of a snapshot */
    CHECK(wal_reset(run->wal, writer->last_index, NULL) == CO_OK);
}

static void append_instruction(struct run *run, const uint8_t *code) {
    struct log_writer *writer = run->writer;
    uint64_t a = operand(code[1]), b = operand(code[2]), held = writer->last_index - writer->start_after;
    if (!wal_ready(run)) return;
    struct wal_batch batch = {0};
    switch (code[0]) {
        case 'a':
            writer->term += b % 4;
            append(run, &batch, a % 8 + 1);
            break;
        case 'h':
            batch.hard_state = true;
            batch.term = writer->term += a % 4;
            batch.vote = b;
            append(run, &batch, 0);
            break;
        case 't':
            writer->last_index -= a % (held + 1);
            batch.truncate_from = writer->last_index + 1;
            append(run, &batch, b % 8);
            break;
        case 'r': reset(run, a % 16); break;
        case 'd':
            writer->start_after += a % (held + 1);
            int rv;
            while ((rv = wal_drop(run->wal, writer->start_after)) == CO_AGAIN) continue;
            CHECK(rv == CO_OK);
            break;
        case 'p':
            while (wal_prepare(run->wal) == CO_AGAIN) continue;
            break;
        default: break;
    }
}

/* ---- made up ---- */

static void record(struct run *run, uint32_t type, uint64_t index, uint64_t term, struct slice data) {
    struct wal_record made = {.type = type, .index = index, .term = term, .data = data};
    if (run->encoder.record_count == 0) wal_encode_begin(&run->encoder);
    wal_encode_record(&run->encoder, &made);
}

static void batch_end(struct run *run, uint64_t seq_off, uint64_t chain_off, uint64_t offset_off) {
    if (run->encoder.record_count == 0) return;
    uint32_t chain = run->chain ^ (uint32_t)chain_off;
    run->chain =
        wal_encode_end(&run->encoder, run->log_id, run->seq + seq_off, run->file.size + offset_off * WAL_SECTOR, chain);
    run->seq += seq_off + 1;
    buffer_append(&run->file, run->encoder.bytes.data, run->encoder.bytes.size);
    run->encoder.record_count = 0;
}

static void file_end(struct run *run, uint64_t name_off, uint64_t padding) {
    static const char zeros[WAL_SECTOR];
    batch_end(run, 0, 0, 0);
    struct buffer *file = &run->file;
    for (uint64_t i = 0; i < padding % 8 && i < file->size; i++) file->data[file->size - 1 - i] ^= (char)0x55;
    if (file->size) {
        char name[DISK_NAME_MAX];
        snprintf(name, sizeof name, "log-%016llx", (unsigned long long)run->file_seq);
        buffer_append(file, zeros, sizeof zeros);
        fake_disk_poke(run->writer->fake, name, 0, file->data, file->size);
    }
    buffer_reset(file);
    run->file_seq = run->seq + name_off;
}

static void make_up(struct run *run, const uint8_t *code) {
    uint64_t a = operand(code[1]), b = operand(code[2]), c = operand(code[3]);
    struct slice nothing = {NULL, 0};
    char data[WAL_SEGMENT_DATA];
    if (run->wal || run->closed) return;
    run->writer->made_up = true;
    switch (code[0]) {
        case 'E':
        case 'N':
        case 'M': {
            uint8_t type = code[0] == 'E' ? RAFT_ENTRY_COMMAND : code[0] == 'N' ? RAFT_ENTRY_EMPTY : RAFT_ENTRY_MEMBERS;
            struct raft_entry *entry = entry_new(run, a, b, type, c % 256 * 5);
            if (entry) record(run, type, a, b, raft_entry_bytes(entry));
            break;
        }
        case 'S':
            put_le64(data, b);
            put_le64(data + 8, c);
            record(run, WAL_RECORD_SEGMENT, a, 0, slice_make(data, sizeof data));
            break;
        case 'H': record(run, WAL_RECORD_HARD_STATE, b, a, nothing); break;
        case 'T': record(run, WAL_RECORD_TRUNCATE, a, 0, nothing); break;
        case 'R': record(run, WAL_RECORD_RESET, a, 0, nothing); break;
        case 'U':
            if ((uint16_t)a > RAFT_ENTRY_MEMBERS) record(run, (uint16_t)a, b, c, nothing);
            break;
        case '|': batch_end(run, a, b, c); break;
        case '+': file_end(run, a, b); break;
        case 'I': run->log_id = a; break;
        default: break;
    }
}

/* ---- damage ---- */

static void close_log(struct run *run) {
    if (run->wal) wal_close(run->wal);
    run->wal = NULL;
    run->closed = true;
    file_end(run, 0, 0);
}

/* Is the byte in a batch behind which another one of the log lies? */
static bool in_earlier_batch(struct fake_disk *fake, size_t file, uint64_t offset) {
    char bytes[WAL_HEAD_BYTES];
    struct wal_head head;
    bool inside = false, later = false;
    const char *name;
    for (size_t i = file; (name = fake_disk_name(fake, i)); i++) {
        for (uint64_t at = 0; fake_disk_peek(fake, name, at, bytes, sizeof bytes) == sizeof bytes; at += head.size) {
            if (strlen(name) != 20 || wal_head_decode(bytes, &head) != WAL_HEAD_OK) break;
            if (inside) later = true;
            if (i == file && offset >= at && offset < at + head.size) inside = true;
        }
    }
    return inside && later;
}

static void damage(struct run *run, const uint8_t *code) {
    struct log_writer *writer = run->writer;
    uint64_t offset = code[1] + 256u * code[2];
    size_t files = 0;
    close_log(run);
    while (fake_disk_name(writer->fake, files)) files++;
    if (!files) return;
    size_t file = code[3] / 8 % files;
    const char *name = fake_disk_name(writer->fake, file);
    uint64_t size = fake_disk_size(writer->fake, name);
    if (code[0] == 'Z') offset = operand(code[1]) * WAL_SECTOR;
    if (offset >= size) return;
    writer->damages++;
    if (code[0] == 'F') {
        writer->must_refuse = writer->damages == 1 && !writer->made_up && in_earlier_batch(writer->fake, file, offset);
        fake_disk_flip(writer->fake, name, offset, (uint8_t)(1u << code[3] % 8));
    } else if (code[0] == 'C') {
        fake_disk_cut(writer->fake, name, offset);
    } else {
        static const char zeros[WAL_SECTOR];
        fake_disk_poke(writer->fake, name, offset, zeros, size - offset < WAL_SECTOR ? size - offset : WAL_SECTOR);
    }
    if (writer->damages > 1) writer->must_refuse = false;
}

/* ---- the whole ---- */

void log_writer_run(struct log_writer *writer, struct slice program) {
    *writer = (struct log_writer){.fake = fake_disk_new(1)};
    writer->config = (struct wal_config){.first_segment_bytes = 2048, .segment_bytes = 8192, .log_id = LOG_ID};
    struct run run = {.writer = writer, .file_seq = FIRST_SEQ, .seq = FIRST_SEQ, .log_id = LOG_ID};
    for (; program.size >= 4; program = slice_make(program.data + 4, program.size - 4)) {
        const uint8_t *code = (const uint8_t *)program.data;
        if (strchr("ahtrdp", code[0]) && code[0]) {
            append_instruction(&run, code);
        } else if (strchr("FCZ", code[0]) && code[0]) {
            damage(&run, code);
        } else if (code[0] == 'A') {
            close_log(&run);
            writer->other_snapshot = true;
            writer->start_after = (uint8_t)(code[1] - '0');
            writer->config.start_term = (uint8_t)(code[2] - '0');
        } else {
            make_up(&run, code);
        }
    }
    close_log(&run);
    buffer_free(&run.file);
    buffer_free(&run.encoder.bytes);
}

void log_writer_free(struct log_writer *writer) {
    for (size_t i = 0; i < writer->written_count; i++) raft_data_unref(writer->written[i].data);
    fake_disk_free(writer->fake);
}
