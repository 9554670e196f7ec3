/* A survivor that goes on alone: what is shown, what is written, and that looking leaves the disk as it is. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "consensus/node_internal.h"
#include "consensus/recover.h"
#include "tests/consensus/wal_help.h"
#include "tests/lib/fake_disk.h"

static struct fake_disk *fake;
static struct disk *disk;
static struct fault fault;
static struct recover_report report;
static uint64_t self;

static void begin(void) {
    fake = fake_disk_new(1);
    disk = fake_disk_disk(fake);
    fault = (struct fault){0};
}
static void end(void) { fake_disk_free(fake); }
TestSuite(recover, .init = begin, .fini = end);

static struct raft_entry entry(uint64_t index, uint64_t term, uint8_t type, const char *bytes, size_t size) {
    return (struct raft_entry){.index = index, .term = term, .type = type, .data = raft_data_new(bytes, size)};
}

static void put(struct wal *wal, uint64_t term, uint64_t vote, struct raft_entry entry_made) {
    struct wal_batch batch = {.hard_state = true, .term = term, .vote = vote, .entries = &entry_made, .entry_count = 1};
    cr_assert_eq(wal_append(wal, &batch, 1, &fault), CO_OK, "%s", fault.text);
    raft_data_unref(entry_made.data);
}

/* Three voters (`with_self`: this one among them), then two commands; the last term is 4, the hard state's 5. */
static void server(bool with_self) {
    struct wal *wal;
    struct wal_recovered found;
    struct buffer bytes = {0};
    self = 0x1234;
    fake_disk_poke(fake, "server-id", 0, "0000000000001234\n", 17);
    struct raft_members members = {
        .count = 3,
        .member = {{self, true, "10.0.0.1:8300"}, {22, true, "10.0.0.2:8300"}, {33, true, "10.0.0.3:8300"}}};
    if (!with_self) members.member[0].id = 11;
    raft_members_encode(&members, &bytes);
    struct wal_config config = {.first_segment_bytes = 16384, .segment_bytes = 32768, .reserve_bytes = 8192};
    cr_assert_eq(wal_open(disk, &config, 0, &wal, &found, &fault), CO_OK, "%s", fault.text);
    put(wal, 1, 0, entry(1, 1, RAFT_ENTRY_MEMBERS, bytes.data, bytes.size));
    put(wal, 4, 22, entry(2, 4, RAFT_ENTRY_COMMAND, "one", 3));
    put(wal, 5, 33, entry(3, 4, RAFT_ENTRY_COMMAND, "two", 3));
    wal_close(wal);
    wal_recovered_free(&found);
    buffer_free(&bytes);
}

static void reopened(struct wal_recovered *found) {
    struct wal *wal;
    cr_assert_eq(wal_open(disk, &(struct wal_config){0}, 0, &wal, found, &fault), CO_OK, "%s", fault.text);
    wal_close(wal);
}

Test(recover, shows_what_a_survivor_has) {
    server(true);
    cr_assert_eq(recover_look(disk, &report, &fault), CO_OK, "%s", fault.text);
    cr_assert(report.id == self && report.term == 5 && report.vote == 33 && report.last_index == 3 &&
              report.last_term == 4);
    cr_assert(report.members.count == 3 && report.members_index == 1 && report.members.recovered_index == 0);
    cr_assert(report.snapshot_index == 0 && report.torn_bytes == 0);
}

/* The log was cut behind a snapshot, which alone knows the members. */
Test(recover, goes_on_from_a_snapshot) {
    struct wal *wal;
    struct wal_recovered found;
    struct snapshot_writer *writer;
    self = 0x1234;
    fake_disk_poke(fake, "server-id", 0, "0000000000001234\n", 17);
    struct raft_snapshot_meta meta = {
        .index = 40,
        .term = 7,
        .members_index = 30,
        .members = {.count = 2, .member = {{self, true, "10.0.0.1:8300"}, {22, true, "10.0.0.2:8300"}}}};
    cr_assert_eq(snapshot_create(disk, &meta, false, &writer), CO_OK);
    cr_assert_eq(snapshot_write(writer, "state", 5), CO_OK);
    cr_assert_eq(snapshot_commit(writer, &meta), CO_OK);
    struct wal_config config = {
        .first_segment_bytes = 16384, .segment_bytes = 32768, .reserve_bytes = 8192, .start_term = 7};
    cr_assert_eq(wal_open(disk, &config, 40, &wal, &found, &fault), CO_OK, "%s", fault.text);
    put(wal, 8, 22, entry(41, 8, RAFT_ENTRY_COMMAND, "one", 3));
    wal_close(wal);
    wal_recovered_free(&found);
    cr_assert_eq(recover_look(disk, &report, &fault), CO_OK, "%s", fault.text);
    cr_assert(report.snapshot_index == 40 && report.snapshot_term == 7 && report.last_index == 41 &&
              report.last_term == 8);
    cr_assert(report.members.count == 2 && report.members_index == 30);
    cr_assert_eq(recover_write(disk, &(struct recover_plan){0}, &report, &fault), CO_OK, "%s", fault.text);
    cr_assert_eq(recover_look(disk, &report, &fault), CO_OK, "%s", fault.text);
    cr_assert(report.last_index == 42 && report.last_term == 8 + RECOVER_TERMS(self) && report.members.count == 1 &&
              report.members.recovered_index == 42);
}

Test(recover, damage_is_refused) {
    server(true);
    struct place places[8];
    size_t count = batch_places(fake, last_segment(fake), places, 8);
    cr_assert(count >= 3);
    disk_file file;
    char byte;
    size_t got;
    cr_assert_eq(disk->ops->open(disk, last_segment(fake), 0, &file), CO_OK);
    cr_assert_eq(disk->ops->read(disk, file, places[1].offset + 100, &byte, 1, &got), CO_OK);
    byte = (char)(byte ^ 1);
    cr_assert_eq(disk->ops->write(disk, file, places[1].offset + 100, &byte, 1), CO_OK);
    disk->ops->close(disk, file);
    cr_assert_eq(recover_look(disk, &report, &fault), CO_CORRUPT);
    cr_assert(strstr(fault.text, "log-") && strstr(fault.text, "offset"), "%s", fault.text);
    fault = (struct fault){0};
    cr_assert_eq(recover_write(disk, &(struct recover_plan){0}, &report, &fault), CO_CORRUPT);
}

Test(recover, looking_writes_nothing) {
    server(true);
    fake_disk_halt_after(fake, 1); /* the next write, sync, rename, ... fails, and all after it */
    cr_assert_eq(recover_look(disk, &report, &fault), CO_OK, "%s", fault.text);
    cr_assert_not(fake_disk_halted(fake));
}

Test(recover, goes_on_alone_in_a_term_far_above) {
    server(true);
    struct raft_data *command = raft_data_new("gone", 4);
    struct recover_plan plan = {.commands = &command, .command_count = 1};
    cr_assert_eq(recover_write(disk, &plan, &report, &fault), CO_OK, "%s", fault.text);
    raft_data_unref(command);
    fake_disk_crash(fake, FAKE_POWER_LOSS); /* it is durable */
    struct wal_recovered found;
    reopened(&found);
    cr_assert(found.entry_count == 5 && found.term == 5 + RECOVER_TERMS(self) && found.vote == self);
    cr_assert(memcmp(found.entries[2].data->bytes, "two", 3) == 0);
    struct raft_members members;
    cr_assert(found.entries[3].type == RAFT_ENTRY_MEMBERS && found.entries[3].term == found.term);
    cr_assert_eq(raft_members_decode(raft_entry_bytes(&found.entries[3]), &members), CO_OK);
    cr_assert(members.count == 1 && members.member[0].id == self && members.member[0].voter &&
              members.recovered_index == 4);
    cr_assert_str_eq(members.member[0].address, "10.0.0.1:8300");
    cr_assert(found.entries[4].type == RAFT_ENTRY_COMMAND && memcmp(found.entries[4].data->bytes, "gone", 4) == 0);
    wal_recovered_free(&found);
    cr_assert_eq(recover_look(disk, &report, &fault), CO_OK);
    cr_assert(report.members.recovered_index == 4 && report.last_index == 5);
}

/* A server that knows none of them has to be compared with the log of the first survivor. */
Test(recover, each_recovery_is_remembered) {
    server(true);
    for (uint32_t i = 1; i <= RAFT_RECOVERIES_MAX + 1; i++) {
        cr_assert_eq(recover_write(disk, &(struct recover_plan){0}, &report, &fault), CO_OK, "%s", fault.text);
        cr_assert_eq(recover_look(disk, &report, &fault), CO_OK, "%s", fault.text);
        const struct raft_recoveries *all = &report.members.recoveries;
        uint32_t kept = i < RAFT_RECOVERIES_MAX ? i : RAFT_RECOVERIES_MAX;
        cr_assert_eq(all->count, kept);
        for (uint32_t k = 0; k < kept; k++) {
            uint64_t number = i - kept + k; /* of those before it */
            cr_assert_eq(all->item[k].index, 4 + number);
            cr_assert_eq(all->item[k].term, 5 + (number + 1) * RECOVER_TERMS(self));
            cr_assert_eq(all->item[k].survivor, self);
            cr_assert_eq(all->item[k].before_term, number ? 5 + number * RECOVER_TERMS(self) : 4);
        }
        cr_assert_eq(report.members.recovered_index, 3 + i);
    }
}

Test(recover, other_survivors_may_go_on_with_it) {
    server(true);
    struct raft_member other = {.id = 33, .address = "10.0.0.9:8300"};
    struct recover_plan plan = {.voters = &other, .voter_count = 1};
    cr_assert_eq(recover_write(disk, &plan, &report, &fault), CO_OK, "%s", fault.text);
    cr_assert_eq(recover_look(disk, &report, &fault), CO_OK);
    cr_assert(report.members.count == 2 && raft_members_voters(&report.members) == 2 &&
              raft_members_find(&report.members, 33));
    cr_assert_str_eq(raft_members_find(&report.members, 33)->address, "10.0.0.9:8300");
}

Test(recover, refuses_what_makes_no_sense) {
    struct raft_member self_again = {0}, twice[2] = {{.id = 33, .address = "a:1"}, {.id = 33, .address = "b:1"}};
    struct recover_plan plan = {0};
    cr_assert_eq(recover_look(disk, &report, &fault), CO_NOTFOUND, "an empty folder");
    server(true);
    self_again.id = self;
    plan.voters = &self_again, plan.voter_count = 1;
    cr_assert_eq(recover_write(disk, &plan, &report, &fault), CO_INVALID);
    plan.voters = twice, plan.voter_count = 2;
    cr_assert_eq(recover_write(disk, &plan, &report, &fault), CO_INVALID);
    cr_assert_eq(recover_look(disk, &report, &fault), CO_OK);
    cr_assert_eq(report.last_index, 3, "nothing was written");
}

Test(recover, a_removed_server_does_not_go_on) {
    server(false);
    cr_assert_eq(recover_look(disk, &report, &fault), CO_OK);
    cr_assert_eq(recover_write(disk, &(struct recover_plan){0}, &report, &fault), CO_INVALID);
}

Test(recover, a_failing_disk_leaves_the_log_as_it_was) {
    server(true);
    for (uint64_t n = 1; n < 20; n++) {
        struct fake_disk *copy = fake_disk_clone(fake, n);
        struct disk *at = fake_disk_disk(copy);
        fake_disk_halt_after(copy, n);
        int rv = recover_write(at, &(struct recover_plan){0}, &report, &fault);
        fake_disk_crash(copy, FAKE_POWER_LOSS);
        cr_assert_eq(recover_look(at, &report, &fault), CO_OK, "%s", fault.text);
        cr_assert(rv != CO_OK || report.members.recovered_index == 4);
        cr_assert(report.last_index == 3 || report.last_index == 4);
        cr_assert((report.last_index == 4) == (report.members.count == 1));
        fake_disk_free(copy);
        if (rv == CO_OK) return;
    }
    cr_assert_fail("it never succeeds");
}
