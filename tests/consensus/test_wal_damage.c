/* A torn end is cut off, damage anywhere else is refused with its place, and what cannot matter does not. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "consensus/wal_format.h"
#include "tests/consensus/wal_help.h"
#include "tests/lib/fake_disk.h"

static struct fake_disk *fake;
static struct model *model, *before_last; /* before_last: without the last batch */
static struct wal_config config;
static struct place places[256];

static void begin(void) {
    fake = fake_disk_new(1);
    model = mem_alloc(sizeof *model);
    before_last = mem_alloc(sizeof *before_last);
    model_init(model);
    config = (struct wal_config){.first_segment_bytes = 4096, .segment_bytes = 8192, .log_id = 11};
}

static void end(void) {
    fake_disk_free(fake);
    free(model);
    free(before_last);
}

TestSuite(wal_damage, .init = begin, .fini = end);

/* Some segments; the last batch has `last_count` entries. */
static void write_log(unsigned batches, size_t last_count, uint32_t last_size) {
    struct wal *wal;
    struct wal_recovered recovered;
    cr_assert_eq(wal_open(fake_disk_disk(fake), &config, 0, &wal, &recovered, NULL), CO_OK);
    wal_recovered_free(&recovered);
    struct wal_batch vote = {.hard_state = true, .term = 1, .vote = 3};
    cr_assert_eq(wal_append(wal, &vote, 1, NULL), CO_OK);
    model->term = 1, model->vote = 3;
    for (unsigned i = 0; i < batches; i++) cr_assert_eq(wal_put(wal, model, 1 + i % 4, 40 + i * 37 % 500, NULL), CO_OK);
    *before_last = *model;
    cr_assert_eq(wal_put(wal, model, last_count, last_size, NULL), CO_OK);
    wal_close(wal);
}

struct opened {
    int rv;
    struct fault fault;
    bool whole, without_last;
    uint64_t torn_bytes;
};

/* Looking finds what opening finds, and changes nothing. */
static void check_look(const struct wal_recovered *looked, int rv, const struct fault *fault,
                       const struct opened *opened, const struct wal_recovered *recovered) {
    if (rv == CO_OK && looked->first_index > 1) { /* whether a snapshot has what is missing is for the caller to say */
        cr_assert(opened->rv == CO_CORRUPT && strstr(opened->fault.text, "segments are missing"));
        return;
    }
    cr_assert_eq(rv, opened->rv, "%s", fault->text);
    cr_assert_str_eq(fault->text, opened->fault.text);
    cr_assert_eq(looked->entry_count, recovered->entry_count);
    for (size_t i = 0; i < looked->entry_count; i++) cr_assert(entry_same(&looked->entries[i], &recovered->entries[i]));
    if (rv != CO_OK) return;
    cr_assert(looked->term == recovered->term && looked->vote == recovered->vote &&
              looked->torn_bytes == recovered->torn_bytes);
    cr_assert(looked->first_index == recovered->first_index && looked->last_index == recovered->last_index);
}

/* Looks at a copy and opens it; when that works the log has to go on, and be found again. */
static struct opened try_open(struct fake_disk *copy) {
    struct opened opened = {0};
    struct wal *wal;
    struct wal_recovered recovered, seen;
    struct wal_looked looked;
    struct fault fault = {0};
    uint64_t operations = fake_disk_stats(copy)->operations;
    int rv = wal_look(fake_disk_disk(copy), &looked, &seen, &fault);
    cr_assert_eq(fake_disk_stats(copy)->operations, operations);
    opened.rv = wal_open(fake_disk_disk(copy), &config, 0, &wal, &recovered, &opened.fault);
    check_look(&seen, rv, &fault, &opened, &recovered);
    wal_recovered_free(&seen);
    if (opened.rv != CO_OK) return opened;
    opened.whole = model_recovered(model, 0, &recovered);
    opened.without_last = model_recovered(before_last, 0, &recovered);
    opened.torn_bytes = recovered.torn_bytes;
    wal_recovered_free(&recovered);
    struct model *now = mem_alloc(sizeof *now);
    *now = opened.whole ? *model : *before_last;
    if (opened.whole || opened.without_last) {
        cr_assert_eq(wal_put(wal, now, 2, 333, NULL), CO_OK);
        fake_disk_crash(copy, FAKE_POWER_LOSS);
        fake_disk_halt_after(copy, 1);
        wal_close(wal);
        fake_disk_crash(copy, FAKE_KILL);
        cr_assert_eq(wal_open(fake_disk_disk(copy), &config, 0, &wal, &recovered, NULL), CO_OK);
        cr_assert(model_recovered(now, 0, &recovered));
        cr_assert_eq(recovered.torn_bytes, 0);
        wal_recovered_free(&recovered);
    }
    wal_close(wal);
    free(now);
    return opened;
}

/* The fault names the file, and an offset: of the batch with the damage. */
static void check_named(const struct fault *fault, const char *name, const struct place *place) {
    char wanted[128];
    snprintf(wanted, sizeof wanted, "%s: damaged at offset %" PRIu64 ": ", name, place->offset);
    cr_assert(strncmp(fault->text, wanted, strlen(wanted)) == 0, "'%s' is not '%s...'", fault->text, wanted);
}

static void flip_one(const char *name, uint64_t offset, uint8_t bits, const struct place *place, bool last) {
    struct fake_disk *copy = fake_disk_clone(fake, offset);
    fake_disk_flip(copy, name, offset, bits);
    struct opened opened = try_open(copy);
    if (opened.rv == CO_OK) {
        cr_assert(opened.whole || (last && opened.without_last), "%s: byte %" PRIu64 ": found less", name, offset);
    } else {
        cr_assert(opened.rv == CO_CORRUPT && place && !last, "%s: byte %" PRIu64 ": %s", name, offset,
                  opened.fault.text);
        check_named(&opened.fault, name, place);
    }
    fake_disk_free(copy);
}

Test(wal_damage, every_flipped_byte_is_noticed_where_it_matters, .timeout = 300) {
    write_log(24, 3, 300);
    const char *name, *last_name = last_segment(fake);
    unsigned refused = 0, tried = 0;
    struct rng rng;
    rng_seed(&rng, 5);
    for (size_t i = 0; (name = fake_disk_name(fake, i)); i++) {
        size_t count = batch_places(fake, name, places, 256), n = 0;
        for (uint64_t offset = 0; offset < fake_disk_size(fake, name); offset++) {
            while (n < count && offset >= places[n].offset + places[n].size) n++;
            struct place *place = n < count ? &places[n] : NULL;
            bool last = strcmp(name, last_name) == 0 && n + 1 == count;
            uint8_t bits = (uint8_t)(1u << rng_below(&rng, 8));
            flip_one(name, offset, bits, place, last);
            tried++;
            if (!place || last) continue;
            refused++;
            struct fake_disk *copy = fake_disk_clone(fake, offset);
            fake_disk_flip(copy, name, offset, bits);
            cr_assert_eq(try_open(copy).rv, CO_CORRUPT, "%s: byte %" PRIu64 " went unnoticed", name, offset);
            fake_disk_free(copy);
        }
    }
    cr_assert(refused > 13000 && tried > 16000, "%u of %u", refused, tried);
}

Test(wal_damage, cut_anywhere_in_the_last_batch_it_opens) {
    write_log(9, 4, 700);
    const char *name = last_segment(fake);
    size_t count = batch_places(fake, name, places, 256);
    struct place last = places[count - 1];
    cr_assert(count > 1 && last.size >= 2048);
    for (uint64_t size = last.offset; size < last.offset + last.size; size++) {
        struct fake_disk *copy = fake_disk_clone(fake, size);
        fake_disk_cut(copy, name, size);
        struct opened opened = try_open(copy);
        cr_assert_eq(opened.rv, CO_OK, "%" PRIu64 ": %s", size, opened.fault.text);
        cr_assert(opened.without_last);
        fake_disk_free(copy);
    }
    fake_disk_cut(fake, name, last.offset + last.size);
    cr_assert(try_open(fake).whole);
}

/* All ways in which a power loss may leave the last batch. */
Test(wal_damage, any_subset_of_the_last_batchs_sectors_opens) {
    write_log(9, 4, 1000);
    const char *name = last_segment(fake);
    size_t count = batch_places(fake, name, places, 256);
    struct place last = places[count - 1];
    unsigned sectors = (unsigned)(last.size / 512);
    cr_assert(sectors >= 8 && sectors <= 10);
    static const char zeros[512];
    for (unsigned subset = 0; subset < 1u << sectors; subset++) {
        struct fake_disk *copy = fake_disk_clone(fake, subset);
        uint64_t lost = 0;
        for (unsigned s = 0; s < sectors; s++) {
            if (subset & 1u << s) continue;
            fake_disk_poke(copy, name, last.offset + s * 512, zeros, 512);
            lost++;
        }
        struct opened opened = try_open(copy);
        cr_assert_eq(opened.rv, CO_OK, "subset %x: %s", subset, opened.fault.text);
        cr_assert(lost == 0 ? opened.whole : opened.without_last || opened.whole);
        cr_assert_eq(opened.torn_bytes > 0, lost > 0 && lost < sectors && !opened.whole);
        fake_disk_free(copy);
    }
}

Test(wal_damage, a_torn_batch_is_not_taken_for_damage_by_what_clients_wrote) {
    write_log(9, 1, 100);
    /* An entry that looks like a batch at its very place, but for the log's id. */
    struct wal_encoder encoder = {0};
    wal_encode_begin(&encoder);
    struct wal_record record = {.type = RAFT_ENTRY_COMMAND, .index = 100, .term = 1, .data = SLICE_LITERAL("boo")};
    wal_encode_record(&encoder, &record);
    const char *name = last_segment(fake);
    size_t count = batch_places(fake, name, places, 256);
    uint64_t end_offset = places[count - 1].offset + places[count - 1].size;
    wal_encode_end(&encoder, config.log_id + 1, 1000, end_offset + 512, 0);
    fake_disk_poke(fake, name, end_offset + 512, encoder.bytes.data, encoder.bytes.size);
    struct fake_disk *copy = fake_disk_clone(fake, 1);
    struct opened opened = try_open(copy);
    cr_assert(opened.rv == CO_OK && opened.whole && opened.torn_bytes > 0);
    fake_disk_free(copy);
    /* With the log's id it is a batch, and the one before it is missing. */
    encoder.bytes.size = 0;
    wal_encode_begin(&encoder);
    wal_encode_record(&encoder, &record);
    wal_encode_end(&encoder, config.log_id, 1000, end_offset + 512, 0);
    fake_disk_poke(fake, name, end_offset + 512, encoder.bytes.data, encoder.bytes.size);
    opened = try_open(fake);
    cr_assert_eq(opened.rv, CO_CORRUPT);
    check_named(&opened.fault, name, &(struct place){end_offset, 0});
    buffer_free(&encoder.bytes);
}

/* A batch that was cut off still lies at its old place. The chain does not fit it, whatever takes the place of the
 * batch before it, even one of the same size with the same indexes and terms. */
Test(wal_damage, records_that_were_cut_off_do_not_come_back) {
    config.first_segment_bytes = 65536;
    write_log(6, 2, 100);
    const char *name = last_segment(fake);
    size_t count = batch_places(fake, name, places, 256);
    struct place old = places[count - 1], torn = places[count - 2];
    char *bytes = mem_alloc(old.size);
    fake_disk_peek(fake, name, old.offset, bytes, old.size);
    static const char zeros[65536];
    fake_disk_poke(fake, name, torn.offset, zeros, torn.size + old.size);
    struct wal *wal;
    struct wal_recovered recovered;
    cr_assert_eq(wal_open(fake_disk_disk(fake), &config, 0, &wal, &recovered, NULL), CO_OK);
    struct raft_entry entries[4];
    struct wal_batch batch = {.entries = entries};
    while (recovered.last_index + batch.entry_count < before_last->last) {
        size_t i = batch.entry_count++;
        entries[i] = model_entry(before_last, recovered.last_index + 1 + i);
        entries[i].data->bytes[0] ^= 1;
    }
    wal_recovered_free(&recovered);
    cr_assert_eq(wal_append(wal, &batch, 1, NULL), CO_OK);
    for (size_t i = 0; i < batch.entry_count; i++) raft_data_unref(entries[i].data);
    wal_close(wal);
    cr_assert(batch_places(fake, name, places, 256) == count - 1 && places[count - 2].size == torn.size);
    fake_disk_poke(fake, name, old.offset, bytes, old.size);
    struct opened opened = try_open(fake);
    cr_assert_eq(opened.rv, CO_CORRUPT);
    check_named(&opened.fault, name, &old);
    cr_assert(strstr(opened.fault.text, "follows another"), "%s", opened.fault.text);
    free(bytes);
}

/* The batch behind it was begun (its head is lost, a sector of it is not), so the damaged one was durable. */
Test(wal_damage, what_was_begun_behind_a_batch_proves_that_it_was_durable) {
    write_log(9, 3, 200);
    const char *name = last_segment(fake);
    size_t count = batch_places(fake, name, places, 256);
    struct place last = places[count - 1];
    struct fake_disk *copy = fake_disk_clone(fake, 1);
    fake_disk_flip(copy, name, last.offset + 100, 1);
    fake_disk_poke(copy, name, last.offset + last.size + 512, "entry", 5);
    struct opened opened = try_open(copy);
    cr_assert_eq(opened.rv, CO_CORRUPT);
    check_named(&opened.fault, name, &last);
    fake_disk_free(copy);
    fake_disk_poke(fake, name, last.offset + last.size + 512, "entry", 5); /* without the damage it is a torn one */
    opened = try_open(fake);
    cr_assert(opened.rv == CO_OK && opened.whole && opened.torn_bytes == 1024);
}

Test(wal_damage, a_missing_segment_is_noticed) {
    write_log(40, 1, 100);
    const char *names[32];
    size_t count = 0;
    while ((names[count] = fake_disk_name(fake, count))) count++;
    cr_assert(count >= 4);
    for (size_t i = 0; i + 1 < count; i++) {
        struct fake_disk *copy = fake_disk_clone(fake, i);
        fake_disk_delete(copy, names[i]);
        struct opened opened = try_open(copy);
        cr_assert_eq(opened.rv, CO_CORRUPT, "without %s: %s", names[i], opened.fault.text);
        cr_assert(strstr(opened.fault.text, "log-") && strstr(opened.fault.text, "offset"), "%s", opened.fault.text);
        fake_disk_free(copy);
    }
}

Test(wal_damage, a_newer_format_is_not_cut_off) {
    write_log(3, 1, 100);
    const char *name = last_segment(fake);
    size_t count = batch_places(fake, name, places, 256);
    char head[64];
    fake_disk_peek(fake, name, places[count - 1].offset, head, sizeof head);
    head[4] = WAL_VERSION + 1;
    put_le32(head + 56, crc32c(0, head, 56));
    fake_disk_poke(fake, name, places[count - 1].offset, head, sizeof head);
    struct opened opened = try_open(fake);
    cr_assert_eq(opened.rv, CO_UNSUPPORTED);
    cr_assert(strstr(opened.fault.text, name) && strstr(opened.fault.text, "offset"), "%s", opened.fault.text);
}

/* Sums that fit do not make sense of numbers that cannot be. */
Test(wal_damage, numbers_that_no_log_holds_are_refused) {
    char begin_data[WAL_SEGMENT_DATA] = {0}, far_data[WAL_SEGMENT_DATA] = {0};
    put_le64(far_data, UINT64_MAX);
    const struct wal_record begin = {WAL_RECORD_SEGMENT, 0, 0, slice_make(begin_data, sizeof begin_data), 0};
    const struct wal_record rows[] = {
        {WAL_RECORD_SEGMENT, UINT64_MAX, 0, slice_make(begin_data, sizeof begin_data), 0},
        {WAL_RECORD_SEGMENT, 0, 0, slice_make(far_data, sizeof far_data), 0},
        {WAL_RECORD_HARD_STATE, 1, UINT64_MAX, slice_make(NULL, 0), 0},
        {WAL_RECORD_RESET, UINT64_MAX, 0, slice_make(NULL, 0), 0},
        {RAFT_ENTRY_EMPTY, 1, UINT64_MAX, slice_make(NULL, 0), 0},
    };
    struct wal_encoder encoder = {0};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        wal_encode_begin(&encoder);
        if (rows[i].type != WAL_RECORD_SEGMENT) wal_encode_record(&encoder, &begin);
        wal_encode_record(&encoder, &rows[i]);
        wal_encode_end(&encoder, config.log_id, 1, 0, 0);
        fake_disk_poke(fake, "log-0000000000000001", 0, encoder.bytes.data, encoder.bytes.size);
        struct opened opened = try_open(fake);
        cr_expect_eq(opened.rv, CO_CORRUPT, "row %zu", i);
        check_named(&opened.fault, "log-0000000000000001", &(struct place){0, 0});
    }
    buffer_free(&encoder.bytes);
}

/* An index stands for one entry of a batch: found by reading again (wal_read.c) it must be the one that recovery
 * gave. */
Test(wal_damage, a_batch_that_takes_back_its_own_entries_is_refused) {
    char begin_data[WAL_SEGMENT_DATA] = {0};
    const struct slice nothing = {NULL, 0};
    const struct wal_record begin = {WAL_RECORD_SEGMENT, 0, 0, slice_make(begin_data, sizeof begin_data), 0},
                            entry = {RAFT_ENTRY_EMPTY, 1, 1, nothing, 0}, other = {RAFT_ENTRY_EMPTY, 1, 2, nothing, 0};
    const struct wal_record rows[] = {{WAL_RECORD_TRUNCATE, 1, 0, nothing, 0}, {WAL_RECORD_RESET, 0, 0, nothing, 0}};
    struct wal_encoder encoder = {0};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        wal_encode_begin(&encoder);
        wal_encode_record(&encoder, &begin);
        wal_encode_record(&encoder, &entry);
        wal_encode_record(&encoder, &rows[i]);
        wal_encode_record(&encoder, &other);
        wal_encode_end(&encoder, config.log_id, 1, 0, 0);
        fake_disk_poke(fake, "log-0000000000000001", 0, encoder.bytes.data, encoder.bytes.size);
        struct opened opened = try_open(fake);
        cr_expect_eq(opened.rv, CO_CORRUPT, "row %zu", i);
        check_named(&opened.fault, "log-0000000000000001", &(struct place){0, 0});
    }
    buffer_free(&encoder.bytes);
}

Test(wal_damage, reading_again_notices_damage) {
    struct wal *wal;
    struct wal_recovered recovered;
    cr_assert_eq(wal_open(fake_disk_disk(fake), &config, 0, &wal, &recovered, NULL), CO_OK);
    cr_assert_eq(wal_put(wal, model, 3, 100, NULL), CO_OK);
    cr_assert_eq(wal_put(wal, model, 3, 100, NULL), CO_OK);
    fake_disk_flip(fake, "log-0000000000000001", 200, 1);
    struct raft_entry *entries;
    size_t count;
    cr_assert_eq(wal_read(wal, 1, 6, SIZE_MAX, &entries, &count), CO_CORRUPT);
    wal_close(wal);
}
