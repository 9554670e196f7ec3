#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/random.h"
#include "consensus/snapshot.h"
#include "tests/lib/fake_disk.h"

#define BLOCK 65536u
#define BYTES (BLOCK * 12)

static struct fake_disk *fake;
static struct disk *disk;
static char *content;

static void begin(void) {
    fake = fake_disk_new(4);
    disk = fake_disk_disk(fake);
    content = mem_alloc(BYTES);
    struct rng rng;
    rng_seed(&rng, 9);
    for (size_t i = 0; i < BYTES; i += 8) put_le64(content + i, i % (3 * BLOCK) < BLOCK ? 0 : rng_next(&rng));
}

static void end(void) {
    fake_disk_free(fake);
    free(content);
}

TestSuite(snapshot, .init = begin, .fini = end);

static struct raft_snapshot_meta meta_of(uint64_t index) {
    struct raft_snapshot_meta meta = {.index = index, .term = 3, .members_index = 2};
    meta.members.count = 2;
    meta.members.member[0] = (struct raft_member){.id = 11, .voter = true, .address = "127.0.0.1:8300"};
    meta.members.member[1] = (struct raft_member){.id = 12, .address = "[::1]:8300"};
    return meta;
}

static int take(uint64_t index, size_t size, size_t piece) {
    struct raft_snapshot_meta meta = meta_of(index);
    struct snapshot_writer *writer;
    int rv = snapshot_create(disk, &meta, false, &writer);
    if (rv != CO_OK) return rv;
    for (size_t done = 0; done < size; done += piece) {
        size_t n = size - done < piece ? size - done : piece;
        cr_assert_eq(snapshot_written(writer), done);
        rv = snapshot_write(writer, content + done, n);
        if (rv != CO_OK) {
            snapshot_abort(writer, false);
            return rv;
        }
    }
    rv = snapshot_commit(writer, &meta);
    if (rv == CO_OK) cr_assert_eq(meta.size, size);
    return rv;
}

/* Reads all of it in pieces; CO_OK: it is the content. */
static int read_through(struct snapshot_reader *reader, size_t size, size_t piece, struct fault *fault) {
    char *data = mem_alloc(piece);
    size_t got, done = 0;
    int rv;
    while ((rv = snapshot_read(reader, done, data, piece, &got, fault)) == CO_OK && got > 0) {
        cr_assert(done + got <= size && memcmp(data, content + done, got) == 0, "at %zu", done);
        done += got;
    }
    if (rv == CO_OK) cr_assert_eq(done, size);
    free(data);
    return rv;
}

static void check_newest(uint64_t index, size_t size, size_t piece) {
    struct snapshot_reader *reader;
    struct raft_snapshot_meta meta, wanted = meta_of(index);
    struct fault fault = {0};
    cr_assert_eq(snapshot_open(disk, 0, &reader, &meta, &fault), CO_OK, "%s", fault.text);
    cr_assert(meta.index == index && meta.term == 3 && meta.size == size && meta.members_index == 2);
    cr_assert_eq(meta.members.count, 2);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(meta.members.member[i].id, wanted.members.member[i].id);
        cr_assert_eq(meta.members.member[i].voter, wanted.members.member[i].voter);
        cr_assert_str_eq(meta.members.member[i].address, wanted.members.member[i].address);
    }
    cr_assert_eq(read_through(reader, size, piece, &fault), CO_OK, "%s", fault.text);
    snapshot_close(reader);
}

static size_t file_count(void) {
    size_t count = 0;
    while (fake_disk_name(fake, count)) count++;
    return count;
}

Test(snapshot, none_is_not_found) {
    struct snapshot_reader *reader;
    struct raft_snapshot_meta meta;
    cr_assert_eq(snapshot_open(disk, 0, &reader, &meta, NULL), CO_NOTFOUND);
    cr_assert_eq(snapshot_open(disk, 5, &reader, &meta, NULL), CO_NOTFOUND);
}

Test(snapshot, of_any_size_comes_back) {
    static const size_t sizes[] = {0, 1, 4096, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, BYTES - 5};
    static const size_t pieces[] = {1000, BLOCK, BLOCK * 3, 99999};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        cr_assert_eq(take(i + 1, sizes[i], pieces[i % 4]), CO_OK);
        cr_assert_eq(file_count(), 1, "older ones go");
        fake_disk_crash(fake, FAKE_POWER_LOSS);
        check_newest(i + 1, sizes[i], pieces[(i + 1) % 4]);
    }
}

Test(snapshot, is_read_at_random_places) {
    cr_assert_eq(take(7, BYTES - 77, BLOCK), CO_OK);
    struct snapshot_reader *reader;
    struct raft_snapshot_meta meta;
    cr_assert_eq(snapshot_open(disk, 7, &reader, &meta, NULL), CO_OK);
    struct rng rng;
    rng_seed(&rng, 1);
    char *data = mem_alloc(BYTES);
    for (int i = 0; i < 200; i++) {
        size_t offset = rng_below(&rng, BYTES), size = rng_below(&rng, 200000), got;
        cr_assert_eq(snapshot_read(reader, offset, data, size, &got, NULL), CO_OK);
        size_t left = offset < BYTES - 77 ? BYTES - 77 - offset : 0;
        cr_assert_eq(got, size < left ? size : left);
        cr_assert_eq(memcmp(data, content + offset, got), 0);
    }
    snapshot_close(reader);
    free(data);
}

Test(snapshot, the_older_one_stays_until_the_newer_is_whole) {
    cr_assert_eq(take(10, 5000, 5000), CO_OK);
    struct raft_snapshot_meta meta = meta_of(20);
    struct snapshot_writer *writer;
    cr_assert_eq(snapshot_create(disk, &meta, false, &writer), CO_OK);
    cr_assert_eq(snapshot_write(writer, content, 100000), CO_OK);
    check_newest(10, 5000, 5000);
    snapshot_abort(writer, false);
    cr_assert_eq(file_count(), 1);
    check_newest(10, 5000, 5000);
}

/* -- crashes -- */

/* At each operation of a second snapshot the machine goes down: afterwards there is the first or the second, whole. */
Test(snapshot, a_crash_at_any_operation_leaves_a_whole_one) {
    bool done = false;
    unsigned old_ones = 0, new_ones = 0;
    for (uint64_t n = 1; !done; n++) {
        for (int how = 0; how < 6; how++) {
            fake_disk_free(fake);
            fake = fake_disk_new(n * 10 + (uint64_t)how);
            disk = fake_disk_disk(fake);
            cr_assert_eq(take(1, 3 * BLOCK, 5000), CO_OK);
            fake_disk_halt_after(fake, n);
            int rv = take(2, 5 * BLOCK + 9, 30000);
            done = !fake_disk_halted(fake);
            fake_disk_crash(fake, how == 0 ? FAKE_KILL : FAKE_POWER_LOSS);
            bool newer = fake_disk_exists(fake, "snap-0000000000000002");
            cr_assert(newer || rv != CO_OK, "acknowledged, and gone");
            check_newest(newer ? 2 : 1, newer ? 5 * BLOCK + 9 : 3 * BLOCK, BLOCK);
            *(newer ? &new_ones : &old_ones) += 1;
        }
    }
    cr_assert(old_ones > 20 && new_ones >= 6);
}

Test(snapshot, errors_are_passed_on_and_leave_nothing_behind) {
    static const unsigned ops[] = {FAKE_OPEN, FAKE_WRITE, FAKE_SYNC, FAKE_RENAME, FAKE_SYNC_FOLDER};
    cr_assert_eq(take(1, 1000, 1000), CO_OK);
    for (size_t i = 0; i < ARRAY_COUNT(ops); i++) {
        for (uint64_t n = 1; n < 30; n++) {
            fake_disk_fail(fake, ops[i], n, n % 2 ? CO_IO : CO_DISKFULL);
            int rv = take(2, 8 * BLOCK, BLOCK);
            fake_disk_fail(fake, 0, 0, 0);
            if (rv == CO_OK) break; /* there were no more of these */
            cr_assert_eq(rv, n % 2 ? CO_IO : CO_DISKFULL);
            bool renamed = ops[i] == FAKE_SYNC_FOLDER;
            cr_assert_eq(file_count(), renamed ? 2 : 1);
            check_newest(renamed ? 2 : 1, renamed ? 8 * BLOCK : 1000, BLOCK);
            if (renamed) fake_disk_delete(fake, "snap-0000000000000002");
        }
        if (fake_disk_exists(fake, "snap-0000000000000002")) fake_disk_delete(fake, "snap-0000000000000002");
        cr_assert_eq(take(1, 1000, 1000), CO_OK);
    }
    fake_disk_set_capacity(fake, 200000);
    cr_assert_eq(take(2, 8 * BLOCK, BLOCK), CO_DISKFULL);
    check_newest(1, 1000, 1000);
}

/* -- receiving -- */

static struct snapshot_writer *receive(uint64_t index, uint64_t size, bool resume, uint64_t *from) {
    struct raft_snapshot_meta meta = meta_of(index);
    meta.size = size;
    struct snapshot_writer *writer;
    cr_assert_eq(snapshot_create(disk, &meta, resume, &writer), CO_OK);
    *from = snapshot_written(writer);
    return writer;
}

Test(snapshot, receiving_goes_on_where_it_stopped) {
    for (unsigned round = 0; round < 60; round++) {
        fake_disk_free(fake);
        fake = fake_disk_new(round);
        disk = fake_disk_disk(fake);
        uint64_t from, size = BYTES - 1234;
        size_t first = 1 + round * 12345 % (BYTES - 2000);
        struct snapshot_writer *writer = receive(9, size, true, &from);
        cr_assert_eq(from, 0);
        cr_assert_eq(snapshot_write(writer, content, first), CO_OK);
        if (round % 3 == 0) {
            snapshot_abort(writer, true);
        } else {
            fake_disk_crash(fake, round % 3 == 1 ? FAKE_KILL : FAKE_POWER_LOSS);
            fake_disk_halt_after(fake, 1);
            snapshot_abort(writer, true);
            fake_disk_crash(fake, FAKE_KILL);
        }
        writer = receive(9, size, true, &from);
        cr_assert(from <= first && from % BLOCK == 0);
        if (round % 3 < 2) cr_assert_eq(from, first / BLOCK * BLOCK);
        cr_assert_eq(snapshot_write(writer, content + from, size - from), CO_OK);
        struct raft_snapshot_meta meta = meta_of(9);
        cr_assert_eq(snapshot_commit(writer, &meta), CO_OK);
        cr_assert_eq(file_count(), 1);
        fake_disk_crash(fake, FAKE_POWER_LOSS);
        check_newest(9, size, 100000);
    }
}

Test(snapshot, another_snapshots_part_is_not_continued) {
    uint64_t from;
    struct snapshot_writer *writer = receive(9, 500000, true, &from);
    cr_assert_eq(snapshot_write(writer, content, 300000), CO_OK);
    snapshot_abort(writer, true);
    writer = receive(9, 500001, true, &from);
    cr_assert_eq(from, 0, "another size");
    cr_assert_eq(snapshot_write(writer, content, 300000), CO_OK);
    snapshot_abort(writer, true);
    writer = receive(9, 500001, false, &from);
    cr_assert_eq(from, 0, "not asked to");
    cr_assert_eq(snapshot_write(writer, content, 300000), CO_OK);
    snapshot_abort(writer, true);
    writer = receive(10, 500001, true, &from);
    cr_assert_eq(from, 0, "another index");
    snapshot_abort(writer, false);
    /* Damage in the middle: only what is before it counts. */
    fake_disk_flip(fake, "part-0000000000000009-0000000000000003", 4096 + 2 * (BLOCK + 4) + 77, 4);
    writer = receive(9, 500001, true, &from);
    cr_assert_eq(from, 2 * BLOCK);
    snapshot_abort(writer, false);
    cr_assert_eq(file_count(), 0);
}

Test(snapshot, outdated_parts_go_with_a_newer_snapshot) {
    uint64_t from;
    for (uint64_t index = 5; index <= 25; index += 10) {
        struct snapshot_writer *writer = receive(index, 0, true, &from);
        cr_assert_eq(snapshot_write(writer, content, 100000), CO_OK);
        snapshot_abort(writer, true);
    }
    cr_assert_eq(take(20, 1000, 1000), CO_OK);
    cr_assert_eq(file_count(), 2);
    cr_assert(fake_disk_exists(fake, "part-0000000000000019-0000000000000003"));
}

/* -- damage -- */

static void check_damaged(struct fake_disk *copy, uint64_t offset, size_t size) {
    struct snapshot_reader *reader;
    struct raft_snapshot_meta meta;
    struct fault fault = {0};
    struct disk *before = disk;
    disk = fake_disk_disk(copy);
    int rv = snapshot_open(disk, 0, &reader, &meta, &fault);
    if (rv == CO_OK) {
        rv = read_through(reader, size, 50000, &fault);
        snapshot_close(reader);
    }
    disk = before;
    cr_assert(rv == CO_CORRUPT, "byte %" PRIu64 ": %s", offset, co_strerror(rv));
    cr_assert(strstr(fault.text, "snap-0000000000000003: damaged at offset "), "%s", fault.text);
}

Test(snapshot, a_flipped_byte_is_noticed_anywhere) {
    size_t size = 2 * BLOCK + 500;
    cr_assert_eq(take(3, size, BLOCK), CO_OK);
    uint64_t file_size = fake_disk_size(fake, "snap-0000000000000003");
    for (uint64_t offset = 0; offset < file_size; offset += offset < 5000 || offset > file_size - 700 ? 1 : 97) {
        struct fake_disk *copy = fake_disk_clone(fake, offset);
        fake_disk_flip(copy, "snap-0000000000000003", offset, (uint8_t)(1u << offset % 8));
        check_damaged(copy, offset, size);
        fake_disk_free(copy);
    }
}

Test(snapshot, a_cut_file_is_noticed) {
    size_t size = 2 * BLOCK + 500;
    cr_assert_eq(take(3, size, BLOCK), CO_OK);
    uint64_t file_size = fake_disk_size(fake, "snap-0000000000000003");
    for (uint64_t cut = 0; cut < file_size; cut += 501) {
        struct fake_disk *copy = fake_disk_clone(fake, cut);
        fake_disk_cut(copy, "snap-0000000000000003", cut);
        check_damaged(copy, cut, size);
        fake_disk_free(copy);
    }
}

Test(snapshot, a_newer_format_is_refused_as_such) {
    cr_assert_eq(take(3, 500, 500), CO_OK);
    char head[4096];
    fake_disk_peek(fake, "snap-0000000000000003", 0, head, sizeof head);
    put_le32(head + 8, 2);
    put_le32(head + sizeof head - 4, crc32c(0, head, sizeof head - 4));
    fake_disk_poke(fake, "snap-0000000000000003", 0, head, sizeof head);
    struct snapshot_reader *reader;
    struct raft_snapshot_meta meta;
    struct fault fault = {0};
    cr_assert_eq(snapshot_open(disk, 0, &reader, &meta, &fault), CO_UNSUPPORTED);
    cr_assert_str_eq(fault.text, "snap-0000000000000003: offset 8: written by a newer version of coord");
}
