/* The log's contract, point by point. Random lives: test_wal_random.c; damage: test_wal_damage.c. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "consensus/wal_format.h"
#include "tests/consensus/wal_help.h"
#include "tests/lib/fake_disk.h"

static struct fake_disk *fake;
static struct disk *disk;
static struct wal *wal;
static struct model *model;
static struct wal_recovered recovered;
static struct fault fault;
static struct wal_config config;

static void begin(void) {
    fake = fake_disk_new(1);
    disk = fake_disk_disk(fake);
    model = mem_alloc(sizeof *model);
    model_init(model);
    config =
        (struct wal_config){.first_segment_bytes = 16384, .segment_bytes = 32768, .reserve_bytes = 8192, .log_id = 7};
}

static void end(void) {
    wal_close(wal);
    wal = NULL;
    wal_recovered_free(&recovered);
    fake_disk_free(fake);
    free(model);
}

static int open_after(uint64_t start_after) {
    wal_close(wal);
    wal_recovered_free(&recovered);
    fault = (struct fault){0};
    return wal_open(disk, &config, start_after, &wal, &recovered, &fault);
}

static int put(size_t count, uint32_t size) { return wal_put(wal, model, count, size, &fault); }

static int drop(uint64_t index) {
    int rv;
    do rv = wal_drop(wal, index);
    while (rv == CO_AGAIN);
    return rv;
}

static int hard_state(uint64_t term, uint64_t vote) {
    struct wal_batch batch = {.hard_state = true, .term = term, .vote = vote};
    int rv = wal_append(wal, &batch, 1, &fault);
    if (rv == CO_OK) model->term = term, model->vote = vote;
    return rv;
}

static void crash(enum fake_crash how) {
    fake_disk_crash(fake, how);
    fake_disk_halt_after(fake, 1);
    wal_close(wal);
    wal = NULL;
    fake_disk_crash(fake, FAKE_KILL);
}

static size_t segments(void) {
    size_t count = 0;
    const char *name;
    for (size_t i = 0; (name = fake_disk_name(fake, i)); i++) count += strncmp(name, "log-0", 5) == 0;
    return count;
}

TestSuite(wal, .init = begin, .fini = end);

Test(wal, a_new_log_is_empty_and_begins_behind_the_snapshot) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(recovered.first_index, 1);
    cr_assert_eq(recovered.last_index, 0);
    cr_assert_eq(recovered.entry_count, 0);
    cr_assert_eq(fake_disk_size(fake, "log-0000000000000001"), 16384);
    cr_assert_eq(open_after(41), CO_OK); /* no batch yet: a snapshot may have come */
    cr_assert_eq(wal_first_index(wal), 42);
    model_reset(model, 41);
    cr_assert_eq(put(2, 10), CO_OK);
    cr_assert_eq(open_after(41), CO_OK);
    cr_assert(model_recovered(model, 41, &recovered));
}

Test(wal, what_was_appended_is_found_again) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(hard_state(3, 2), CO_OK);
    cr_assert_eq(put(3, 100), CO_OK);
    cr_assert_eq(put(1, 0), CO_OK); /* no bytes at all */
    cr_assert_eq(put(200, 700), CO_OK);
    cr_assert_eq(put(1, 100), CO_OK);
    cr_assert(segments() > 1);
    crash(FAKE_POWER_LOSS);
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(model_recovered(model, 0, &recovered));
    cr_assert_eq(recovered.torn_bytes, 0);
    cr_assert_eq(open_after(100), CO_OK);
    cr_assert(model_recovered(model, 100, &recovered));
    cr_assert_eq(recovered.first_index, 1);
}

Test(wal, one_group_is_one_write_and_one_sync) {
    cr_assert_eq(open_after(0), CO_OK);
    struct raft_entry *entries[8];
    struct wal_batch batches[8] = {{0}};
    for (size_t i = 0; i < 8; i++) {
        model_append(model, 4, 1, 100, NULL, &entries[i]);
        batches[i] =
            (struct wal_batch){.hard_state = i == 3, .term = 5, .vote = 1, .entries = entries[i], .entry_count = 4};
    }
    struct fake_disk_stats before = *fake_disk_stats(fake);
    cr_assert_eq(wal_append(wal, batches, 8, &fault), CO_OK);
    cr_assert_eq(fake_disk_stats(fake)->writes, before.writes + 1);
    cr_assert_eq(fake_disk_stats(fake)->syncs, before.syncs + 1);
    cr_assert_eq(fake_disk_stats(fake)->operations, before.operations + 2);
    model->term = 5, model->vote = 1;
    for (size_t i = 0; i < 8; i++) entries_free(entries[i], 4);
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(model_recovered(model, 0, &recovered));
}

Test(wal, nothing_to_write_is_no_write) {
    cr_assert_eq(open_after(0), CO_OK);
    uint64_t before = fake_disk_stats(fake)->operations;
    struct wal_batch batch = {0};
    cr_assert_eq(wal_append(wal, &batch, 1, &fault), CO_OK);
    cr_assert_eq(wal_append(wal, NULL, 0, &fault), CO_OK);
    cr_assert_eq(fake_disk_stats(fake)->operations, before);
}

Test(wal, batches_have_their_sectors_to_themselves) {
    cr_assert_eq(open_after(0), CO_OK);
    for (int i = 0; i < 5; i++) cr_assert_eq(put(1, (uint32_t)(i * 150)), CO_OK);
    struct place places[8];
    cr_assert_eq(batch_places(fake, "log-0000000000000001", places, 8), 5);
    for (int i = 0; i < 5; i++) cr_assert(places[i].offset % 512 == 0 && places[i].size % 512 == 0);
}

/* One that is written in part has to be read first, when the page cache has dropped it. */
Test(wal, a_page_is_written_to_its_end) {
    cr_assert_eq(open_after(0), CO_OK);
    uint64_t written[8];
    for (int i = 0; i < 8; i++) {
        uint64_t before = fake_disk_stats(fake)->written_bytes;
        cr_assert_eq(put(1, (uint32_t)(i * 300)), CO_OK);
        written[i] = fake_disk_stats(fake)->written_bytes - before;
    }
    struct place places[8];
    cr_assert_eq(batch_places(fake, "log-0000000000000001", places, 8), 8);
    for (int i = 0; i < 8; i++) {
        cr_assert_eq((places[i].offset + written[i]) % 4096, 0);
        cr_assert_lt(written[i] - places[i].size, 4096);
    }
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(model_recovered(model, 0, &recovered));
}

Test(wal, truncation_within_a_group_keeps_its_order) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(put(10, 50), CO_OK);
    struct raft_entry *first, *second;
    model_append(model, 3, 2, 60, NULL, &first);
    model_truncate(model, 12);
    model_append(model, 5, 3, 70, NULL, &second);
    struct wal_batch batches[] = {{.entries = first, .entry_count = 3},
                                  {.truncate_from = 12, .entries = second, .entry_count = 5}};
    cr_assert_eq(wal_append(wal, batches, 2, &fault), CO_OK);
    entries_free(first, 3);
    entries_free(second, 5);
    struct raft_entry *entries;
    size_t count;
    cr_assert_eq(wal_read(wal, 1, 16, SIZE_MAX, &entries, &count), CO_OK);
    cr_assert(model_has(model, 1, entries, count));
    entries_free(entries, count);
    crash(FAKE_KILL);
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(model_recovered(model, 0, &recovered));
}

Test(wal, a_batch_larger_than_a_segment_gets_one_that_fits) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(put(1, 10), CO_OK);
    cr_assert_eq(put(1, 300000), CO_OK);
    cr_assert_eq(put(1, 10), CO_OK);
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(model_recovered(model, 0, &recovered));
}

Test(wal, a_huge_group_is_split_and_whole) {
    cr_assert_eq(open_after(0), CO_OK);
    uint64_t writes = fake_disk_stats(fake)->writes;
    cr_assert_eq(put(30, 400000), CO_OK); /* 12 MB */
    cr_assert_eq(fake_disk_stats(fake)->writes, writes + 3);
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(model_recovered(model, 0, &recovered));
}

Test(wal, the_first_group_may_be_larger_than_the_first_segment) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(put(20, 2000), CO_OK);
    cr_assert_eq(segments(), 1);
    cr_assert_eq(put(20, 2000), CO_OK);
    cr_assert_eq(drop(20), CO_OK);
    cr_assert_eq(open_after(20), CO_OK);
    cr_assert(model_recovered(model, 20, &recovered));
}

/* -- snapshots, reset, drop -- */

Test(wal, whole_segments_below_a_snapshot_are_dropped) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(hard_state(9, 3), CO_OK);
    for (int i = 0; i < 100; i++) cr_assert_eq(put(2, 500), CO_OK);
    size_t before = segments();
    uint64_t bytes = wal_bytes(wal);
    cr_assert(before >= 4);
    uint64_t folder_syncs = fake_disk_stats(fake)->folder_syncs;
    cr_assert_eq(wal_drop(wal, 150), CO_AGAIN, "appends have their turn in between");
    cr_assert(segments() == before - 1 && fake_disk_stats(fake)->folder_syncs == folder_syncs + 1);
    cr_assert_eq(drop(150), CO_OK);
    cr_assert_eq(fake_disk_stats(fake)->folder_syncs - folder_syncs, before - segments(), "one by one");
    cr_assert(segments() < before && wal_bytes(wal) < bytes);
    uint64_t first = wal_first_index(wal);
    cr_assert(first > 1 && first <= 151);
    struct raft_entry *entries;
    size_t count;
    cr_assert_eq(wal_read(wal, first - 1, 200, SIZE_MAX, &entries, &count), CO_NOTFOUND);
    cr_assert_eq(wal_read(wal, first, 200, SIZE_MAX, &entries, &count), CO_OK);
    cr_assert(model_has(model, first, entries, count));
    entries_free(entries, count);
    cr_assert_eq(drop(1000), CO_OK); /* the last one always stays */
    cr_assert_eq(segments(), 1);
    crash(FAKE_POWER_LOSS);
    cr_assert_eq(open_after(200), CO_OK);
    cr_assert(model_recovered(model, 200, &recovered)); /* hard state included: it is repeated in each segment */
    cr_assert_eq(put(1, 5), CO_OK);
}

Test(wal, a_snapshot_older_than_the_log_is_refused) {
    cr_assert_eq(open_after(0), CO_OK);
    for (int i = 0; i < 100; i++) cr_assert_eq(put(2, 500), CO_OK);
    cr_assert_eq(drop(150), CO_OK);
    cr_assert_eq(open_after(10), CO_CORRUPT);
    cr_assert(strstr(fault.text, "the snapshot ends at 10"), "%s", fault.text);
    cr_assert_eq(open_after(150), CO_OK);
}

Test(wal, a_log_that_ends_before_the_snapshot_continues_behind_it) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(hard_state(4, 1), CO_OK);
    cr_assert_eq(put(10, 100), CO_OK);
    cr_assert_eq(open_after(50), CO_OK);
    cr_assert_eq(recovered.term, 4);
    cr_assert_eq(recovered.vote, 1);
    cr_assert_eq(recovered.entry_count, 0);
    cr_assert_eq(wal_last_index(wal), 50);
    model_reset(model, 50);
    cr_assert_eq(put(3, 100), CO_OK);
    crash(FAKE_POWER_LOSS);
    cr_assert_eq(open_after(50), CO_OK);
    cr_assert(model_recovered(model, 50, &recovered));
}

Test(wal, a_log_with_another_history_than_the_snapshot_is_emptied) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(put(10, 100), CO_OK); /* of term 1 */
    config.start_term = 1;
    cr_assert_eq(open_after(5), CO_OK);
    cr_assert_eq(recovered.entry_count, 5);
    config.start_term = 2;
    cr_assert_eq(open_after(5), CO_OK);
    cr_assert_eq(recovered.entry_count, 0);
    cr_assert_eq(recovered.last_index, 5);
    cr_assert_eq(wal_first_index(wal), 6);
}

Test(wal, a_reset_keeps_the_hard_state_and_nothing_else) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(hard_state(7, 2), CO_OK);
    for (int i = 0; i < 60; i++) cr_assert_eq(put(2, 500), CO_OK);
    cr_assert(segments() > 1);
    cr_assert_eq(wal_reset(wal, 30, &fault), CO_OK);
    cr_assert_eq(segments(), 1);
    cr_assert_eq(wal_first_index(wal), 31);
    cr_assert_eq(wal_last_index(wal), 30);
    struct raft_entry *entries;
    size_t count;
    cr_assert_eq(wal_read(wal, 30, 30, 1000, &entries, &count), CO_NOTFOUND);
    crash(FAKE_POWER_LOSS);
    cr_assert_eq(open_after(30), CO_OK);
    model_reset(model, 30);
    cr_assert(model_recovered(model, 30, &recovered));
    cr_assert_eq(put(3, 500), CO_OK);
    cr_assert_eq(wal_read(wal, 31, 33, SIZE_MAX, &entries, &count), CO_OK);
    cr_assert(model_has(model, 31, entries, count));
    entries_free(entries, count);
    cr_assert_eq(wal_reset(wal, 1000, &fault), CO_OK); /* forwards */
    cr_assert_eq(open_after(1000), CO_OK);
    cr_assert_eq(recovered.last_index, 1000);
    cr_assert_eq(recovered.term, 7);
}

/* -- the next segment -- */

Test(wal, the_next_segment_is_made_ready_in_slices) {
    config.first_segment_bytes = 131072;
    config.segment_bytes = 768 << 10;
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(wal_prepare(wal), CO_OK);
    cr_assert(!fake_disk_exists(fake, "log-spare"), "not before half of the first one is used");
    cr_assert_eq(put(20, 4000), CO_OK);
    cr_assert_eq(wal_prepare(wal), CO_AGAIN);
    cr_assert_eq(wal_prepare(wal), CO_AGAIN);
    cr_assert_eq(wal_prepare(wal), CO_OK);
    cr_assert_eq(fake_disk_size(fake, "log-spare"), 768 << 10);
    uint64_t operations = fake_disk_stats(fake)->operations;
    cr_assert_eq(wal_prepare(wal), CO_OK);
    cr_assert_eq(fake_disk_stats(fake)->operations, operations);
    cr_assert_eq(put(20, 4000), CO_OK); /* rename, folder, write, sync */
    cr_assert_eq(fake_disk_stats(fake)->operations, operations + 4);
    cr_assert(!fake_disk_exists(fake, "log-spare"));
    cr_assert_eq(segments(), 2);
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(model_recovered(model, 0, &recovered));
}

Test(wal, segments_grow_step_by_step) {
    config.segment_bytes = 1 << 20;
    cr_assert_eq(open_after(0), CO_OK);
    static const uint64_t sizes[] = {16384, 131072, 1 << 20, 1 << 20};
    for (int i = 0; i < 700; i++) cr_assert_eq(put(1, 4000), CO_OK);
    for (size_t i = 0; i < 4; i++) cr_assert_eq(fake_disk_size(fake, fake_disk_name(fake, i)), sizes[i]);
}

Test(wal, a_spare_left_behind_is_removed) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(put(20, 500), CO_OK);
    wal_prepare(wal);
    cr_assert(fake_disk_exists(fake, "log-spare"));
    crash(FAKE_KILL);
    cr_assert(fake_disk_exists(fake, "log-spare"));
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(!fake_disk_exists(fake, "log-spare"));
    cr_assert(model_recovered(model, 0, &recovered));
}

/* A batch that takes entries back comes into a place of its own behind them. Of one that was not written, nothing is
 * found. */
Test(wal, a_truncation_within_a_group_brings_its_hard_state_along) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(put(10, 50), CO_OK);
    struct raft_entry *first, *second;
    model_append(model, 3, 2, 60, NULL, &first);
    struct model before = *model;
    model_truncate(model, 12);
    model_append(model, 50, 3, 700, NULL, &second);
    struct wal_batch batches[] = {
        {.hard_state = true, .term = 2, .vote = 1, .entries = first, .entry_count = 3},
        {.hard_state = true, .term = 3, .vote = 0, .truncate_from = 12, .entries = second, .entry_count = 50}};
    fake_disk_fail(fake, FAKE_WRITE, 2, CO_IO);
    cr_assert_eq(wal_append(wal, batches, 2, &fault), CO_IO);
    entries_free(first, 3);
    entries_free(second, 50);
    crash(FAKE_KILL);
    cr_assert_eq(open_after(0), CO_OK);
    before.term = 2, before.vote = 1;
    cr_assert(model_recovered(&before, 0, &recovered));
}

/* A batch that would make a place grow beyond 4 MiB goes into the next one as a whole. */
Test(wal, a_large_batch_does_not_part_the_one_behind_it) {
    cr_assert_eq(open_after(0), CO_OK);
    struct raft_entry *first, *second;
    model_append(model, 50, 1, 70000, NULL, &first);
    struct model before = *model;
    model_append(model, 20, 2, 70000, NULL, &second);
    struct wal_batch batches[] = {{.hard_state = true, .term = 1, .vote = 1, .entries = first, .entry_count = 50},
                                  {.hard_state = true, .term = 2, .vote = 3, .entries = second, .entry_count = 20}};
    fake_disk_fail(fake, FAKE_WRITE, 2, CO_IO);
    cr_assert_eq(wal_append(wal, batches, 2, &fault), CO_IO);
    entries_free(first, 50);
    entries_free(second, 20);
    crash(FAKE_KILL);
    cr_assert_eq(open_after(0), CO_OK);
    before.term = 1, before.vote = 1;
    cr_assert(model_recovered(&before, 0, &recovered));
}

/* -- errors -- */

Test(wal, after_a_failed_write_or_sync_nothing_is_appended) {
    static const unsigned ops[] = {FAKE_WRITE, FAKE_SYNC};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(open_after(0), CO_OK);
        cr_assert_eq(put(3, 100), CO_OK);
        fake_disk_fail(fake, ops[i], 1, CO_IO);
        cr_assert_eq(put(3, 2000), CO_IO);
        cr_assert_eq(fault.code, CO_IO);
        cr_assert_eq(wal_last_index(wal), model->last);
        uint64_t operations = fake_disk_stats(fake)->operations;
        cr_assert_eq(put(1, 10), CO_IO);
        cr_assert_eq(wal_reset(wal, 50, NULL), CO_IO);
        cr_assert_eq(wal_drop(wal, 2), CO_IO);
        cr_assert_eq(fake_disk_stats(fake)->operations, operations);
        crash(FAKE_KILL);
        cr_assert_eq(open_after(0), CO_OK);
        cr_assert(recovered.entry_count >= model->last);
        cr_assert_eq(wal_reset(wal, 0, NULL), CO_OK);
        model_reset(model, 0);
    }
}

Test(wal, a_full_disk_refuses_before_anything_is_written) {
    fake_disk_set_capacity(fake, 65536);
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(wal_has_room(wal, 1000));
    int rv;
    while ((rv = put(1, 1000)) == CO_OK) {}
    cr_assert_eq(rv, CO_DISKFULL);
    cr_assert_eq(fault.code, CO_DISKFULL);
    cr_assert(fake_disk_used(fake) <= 65536 - config.reserve_bytes);
    cr_assert(!wal_has_room(wal, 1000));
    for (int i = 0; i < 3; i++) cr_assert_eq(put(1, 1000), CO_DISKFULL);
    fake_disk_set_capacity(fake, 65536 * 4);
    cr_assert(wal_has_room(wal, 1000));
    cr_assert_eq(put(1, 1000), CO_OK);
    crash(FAKE_POWER_LOSS);
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(model_recovered(model, 0, &recovered));
}

Test(wal, a_vote_may_use_the_reserve) {
    config.reserve_bytes = 16384;
    fake_disk_set_capacity(fake, 49152);
    cr_assert_eq(open_after(0), CO_OK);
    while (put(1, 100) == CO_OK) {}
    cr_assert_eq(put(1, 100), CO_DISKFULL);
    for (uint64_t term = 1; term < 20; term++) cr_assert_eq(hard_state(term, 1), CO_OK);
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(model_recovered(model, 0, &recovered));
}

Test(wal, it_says_when_no_vote_fits_any_more) {
    fake_disk_set_capacity(fake, 32768);
    cr_assert_eq(open_after(0), CO_OK);
    while (put(1, 100) == CO_OK) {}
    uint64_t term = 1;
    for (; wal_takes_votes(wal); term++) cr_assert_eq(hard_state(term, 1), CO_OK);
    cr_assert_gt(term, 1);
    cr_assert_eq(hard_state(term, 1), CO_DISKFULL);
    fake_disk_set_capacity(fake, 1 << 20);
    cr_assert(wal_takes_votes(wal));
    cr_assert_eq(hard_state(term, 1), CO_OK);
}

/* Not one more byte is to be had, and yet leaders come and go: their votes and first entries find the margin that
 * commands left. */
Test(wal, elections_go_on_without_a_free_byte) {
    config.first_segment_bytes = config.segment_bytes = 1 << 20;
    fake_disk_set_capacity(fake, 1 << 20);
    cr_assert_eq(open_after(0), CO_OK);
    while (put(1, 100) == CO_OK) {}
    cr_assert_eq(fault.code, CO_DISKFULL);
    cr_assert_eq(fake_disk_used(fake), 1 << 20);
    uint64_t last = model->last, term = 10;
    for (; term < 50; term++, last++) {
        if (term % 8 == 0) {
            crash(FAKE_POWER_LOSS);
            cr_assert_eq(open_after(0), CO_OK);
        }
        struct raft_entry first = {.index = last + 1, .term = term, .type = RAFT_ENTRY_EMPTY};
        struct wal_batch batches[] = {{.hard_state = true, .term = term, .vote = 1},
                                      {.entries = &first, .entry_count = 1}};
        cr_assert_eq(wal_append(wal, batches, 2, &fault), CO_OK, "term %" PRIu64, term);
    }
    struct raft_entry command = {.index = last + 1, .term = term, .type = RAFT_ENTRY_COMMAND};
    struct wal_batch batch = {.entries = &command, .entry_count = 1};
    cr_assert_eq(wal_append(wal, &batch, 1, &fault), CO_DISKFULL, "not for commands");
    crash(FAKE_POWER_LOSS);
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert(recovered.last_index == last && recovered.term == 49);
}

Test(wal, room_that_is_promised_is_there) {
    fake_disk_set_capacity(fake, 200000);
    cr_assert_eq(open_after(0), CO_OK);
    uint32_t sizes[] = {10, 3000, 20000, 700};
    unsigned appended = 0;
    for (unsigned i = 0; i < 2000; i++) {
        uint32_t size = sizes[i % 4];
        if (!wal_has_room(wal, size)) continue;
        cr_assert_eq(put(1, size), CO_OK, "%s", fault.text);
        appended++;
    }
    cr_assert(appended > 20 && !wal_has_room(wal, 20000));
}

Test(wal, reading_stops_at_the_bytes_asked_for) {
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(put(100, 100), CO_OK);
    struct raft_entry *entries;
    size_t count;
    cr_assert_eq(wal_read(wal, 5, 100, 1000, &entries, &count), CO_OK);
    cr_assert_eq(count, 10);
    cr_assert_eq(entries[0].index, 5);
    entries_free(entries, count);
    cr_assert_eq(wal_read(wal, 5, 100, 1, &entries, &count), CO_OK); /* one at least */
    cr_assert_eq(count, 1);
    entries_free(entries, count);
    cr_assert_eq(wal_read(wal, 99, 500, SIZE_MAX, &entries, &count), CO_OK);
    cr_assert_eq(count, 2);
    entries_free(entries, count);
    cr_assert_eq(wal_read(wal, 101, 101, 1000, &entries, &count), CO_NOTFOUND);
}

/* -- the real disk -- */

Test(wal, works_on_a_real_disk) {
    char folder[] = "/tmp/coord-wal-XXXXXX", inner[64];
    cr_assert(mkdtemp(folder));
    snprintf(inner, sizeof inner, "%s/raft", folder);
    struct disk *real, *second;
    cr_assert_eq(disk_posix_open(inner, &real), CO_OK);
    cr_assert_eq(disk_posix_open(inner, &second), CO_BUSY);
    disk = real;
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(open_after(0), CO_OK, "%s", fault.text);
        cr_assert(model_recovered(model, 0, &recovered));
        for (int i = 0; i < 30; i++) {
            cr_assert_eq(put(3, 700), CO_OK, "%s", fault.text);
            while (wal_prepare(wal) == CO_AGAIN) {}
        }
    }
    cr_assert(wal_has_room(wal, 1000));
    struct raft_entry *entries;
    size_t count;
    cr_assert_eq(wal_read(wal, 1, model->last, SIZE_MAX, &entries, &count), CO_OK);
    cr_assert(model_has(model, 1, entries, count));
    entries_free(entries, count);
    cr_assert_eq(drop(model->last), CO_OK);
    wal_close(wal);
    wal = NULL;
    disk_posix_close(real);
    cr_assert_eq(disk_posix_open(inner, &real), CO_OK);
    disk_posix_close(real);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

Test(wal, looking_finds_no_log_and_makes_none) {
    struct wal_looked looked;
    struct wal_recovered seen;
    cr_assert_eq(wal_look(disk, &looked, &seen, &fault), CO_NOTFOUND);
    cr_assert_null(fake_disk_name(fake, 0));
    cr_assert_eq(open_after(0), CO_OK);
    cr_assert_eq(put(300, 200), CO_OK);
    wal_close(wal);
    wal = NULL;
    uint64_t operations = fake_disk_stats(fake)->operations;
    cr_assert_eq(wal_look(disk, &looked, &seen, &fault), CO_OK);
    cr_assert_eq(fake_disk_stats(fake)->operations, operations);
    cr_assert(model_recovered(model, 0, &seen));
    cr_assert_eq(looked.segments, segments());
    cr_assert(looked.bytes > 300 * 200);
    wal_recovered_free(&seen);
}

/* The entries that the leader accepted last still fit here, after this log said that it accepts no more. */
Test(wal, room_for_what_is_on_its_way_is_kept) {
    config.first_segment_bytes = config.segment_bytes = 1 << 20;
    fake_disk_set_capacity(fake, 1 << 20);
    cr_assert_eq(open_after(0), CO_OK);
    while (wal_may_accept(wal, 1000)) cr_assert_eq(put(1, 1000), CO_OK, "%s", fault.text);
    unsigned more = 0;
    for (; wal_has_room(wal, 1000); more++) cr_assert_eq(put(1, 1000), CO_OK, "%s", fault.text);
    cr_assert(more * 1000 >= (1 << 20) / 8 / 2 && more * 1000 <= (1 << 20) / 8, "%u", more);
    cr_assert(!wal_may_accept(wal, 0) && fake_disk_used(fake) == 1 << 20);
}
