/* The verdict of coord verify on folders that no agent leaves: newer versions, parts that do not belong together.
 * Damage to real ones: tests/e2e/test_verify.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "consensus/snapshot.h"
#include "consensus/wal.h"
#include "registry/catalog.h"
#include "rpc/offline/verify.h"

static char folder[64], lines[4096];
static struct fault fault;
static struct disk *disk;
static struct wal *wal;
static uint64_t next = 1;

static void path_of(char *room, size_t size, const char *name) { snprintf(room, size, "%s/%s", folder, name); }

static void begin(void) {
    char path[128];
    snprintf(folder, sizeof folder, "/dev/shm/coord-verify-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    path_of(path, sizeof path, "raft");
    cr_assert_eq(disk_posix_open(path, &disk), CO_OK);
    path_of(path, sizeof path, "raft/server-id");
    FILE *file = fopen(path, "w");
    fputs("0000000000000007\n", file);
    fclose(file);
}

static void end(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}
TestSuite(verify, .init = begin, .fini = end);

static void on_line(void *data, const char *part, const char *text) {
    (void)data;
    size_t size = strlen(lines);
    snprintf(lines + size, sizeof lines - size, "%s: %s\n", part, text);
}

/* Closes what is open first: it is a stopped server's. */
static int verify(void) {
    wal_close(wal);
    wal = NULL;
    if (disk) disk_posix_close(disk);
    disk = NULL;
    lines[0] = '\0';
    fault = (struct fault){0};
    struct verify_config config = {.folder = folder, .modules = agent_modules, .line = on_line};
    return verify_run(&config, &fault);
}

static void open_log(uint64_t after) {
    struct wal_config config = {.first_segment_bytes = 8192, .segment_bytes = 8192};
    struct wal_recovered recovered;
    cr_assert_eq(wal_open(disk, &config, after, &wal, &recovered, NULL), CO_OK);
    wal_recovered_free(&recovered);
    next = after + 1;
}

static void append(uint8_t type, const void *bytes, size_t size, uint64_t term) {
    struct raft_entry entry = {.index = next++, .term = term, .type = type, .data = raft_data_new(bytes, size)};
    struct wal_batch batch = {.hard_state = true, .term = 3, .entries = &entry, .entry_count = 1};
    cr_assert_eq(wal_append(wal, &batch, 1, NULL), CO_OK);
    raft_data_unref(entry.data);
}

static struct raft_members members_of(uint32_t count) {
    struct raft_members members = {.count = count};
    for (uint32_t i = 0; i < count; i++) {
        members.member[i] = (struct raft_member){.id = 7 + i, .voter = true};
        snprintf(members.member[i].address, RAFT_ADDRESS_MAX, "127.0.0.%u:8300", 1 + (unsigned)i);
    }
    return members;
}

static void append_members(uint32_t count) {
    struct raft_members members = members_of(count);
    struct buffer bytes = {0};
    raft_members_encode(&members, &bytes);
    append(RAFT_ENTRY_MEMBERS, bytes.data, bytes.size, 1);
    buffer_free(&bytes);
}

/* A machine's state as of some index, in the store or in a snapshot. */
static struct machine *machine_at(uint64_t index, const char *name) {
    char path[128];
    path_of(path, sizeof path, name);
    struct machine_config config = {.store = {.folder = path, .map_bytes = 1 << 28, .reserve_step_bytes = 1 << 20},
                                    .modules = agent_modules};
    struct machine *machine;
    cr_assert_eq(machine_open(&config, &machine, &fault), CO_OK, "%s", fault.text);
    for (uint64_t i = 1; i <= index; i++) {
        struct machine_input input = {.index = i, .term = 1};
        cr_assert_eq(machine_apply(machine, &input, 1, NULL, NULL, NULL), CO_OK);
    }
    return machine;
}

static void snapshot_at(uint64_t index, uint64_t says, uint32_t members) {
    struct machine *machine = machine_at(index, "other");
    FILE *copy = tmpfile();
    uint64_t as_of, term;
    cr_assert_eq(machine_copy(machine, fileno(copy), &as_of, &term), CO_OK);
    machine_close(machine);
    struct raft_snapshot_meta meta = {.index = says, .term = 1, .members_index = 1, .members = members_of(members)};
    struct snapshot_writer *writer;
    cr_assert_eq(snapshot_create(disk, &meta, false, &writer), CO_OK);
    static char bytes[1 << 16];
    rewind(copy);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, copy)) > 0;)
        cr_assert_eq(snapshot_write(writer, bytes, n), CO_OK);
    cr_assert_eq(snapshot_commit(writer, &meta), CO_OK);
    fclose(copy);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s/other", folder);
    cr_assert_eq(system(command), 0);
}

#define SAYS(what)  cr_assert(strstr(lines, what), "%s not in:\n%s", what, lines)
#define FAULT(what) cr_assert(strstr(fault.text, what), "%s is not: %s\n%s", what, fault.text, lines)

Test(verify, a_whole_one) {
    open_log(0);
    append_members(1);
    for (int i = 0; i < 5; i++) append(RAFT_ENTRY_EMPTY, "", 0, 1);
    machine_close(machine_at(6, "store"));
    cr_assert_eq(verify(), CO_OK, "%s", fault.text);
    SAYS("snapshot: none");
    SAYS("entries 1 to 6, chain and checksums right");
    SAYS("hard state: term 3");
    SAYS("server: 0000000000000007 at 127.0.0.1:8300, a voter of 1 member");
    SAYS("store: applied entry 6, term 1");
}

Test(verify, nothing_yet) {
    cr_assert_eq(verify(), CO_OK, "%s", fault.text);
    SAYS("log: none");
    SAYS("store: none");
}

Test(verify, in_use) {
    struct disk *open = disk;
    disk = NULL;
    cr_assert_eq(verify(), CO_BUSY);
    disk_posix_close(open);
}

Test(verify, a_command_of_a_newer_version) {
    static const char *const commands[] = {"\xfa\x01payload", "\x01\x02payload"};
    open_log(0);
    append_members(1);
    append(RAFT_ENTRY_COMMAND, commands[0], 9, 1);
    cr_assert_eq(verify(), CO_UNSUPPORTED);
    FAULT("entry 2 of the log is a command of type 250, version 1");
    end();
    begin();
    open_log(0);
    append_members(1);
    append(RAFT_ENTRY_COMMAND, commands[1], 9, 1);
    cr_assert_eq(verify(), CO_UNSUPPORTED);
    FAULT("written by a newer version of coord: entry 2 of the log is a command of type 1, version 2");
}

Test(verify, the_store_against_the_log) {
    open_log(0);
    append_members(1);
    for (int i = 0; i < 3; i++) append(RAFT_ENTRY_EMPTY, "", 0, 2);
    machine_close(machine_at(1, "store"));
    cr_assert_eq(verify(), CO_OK, "%s", fault.text);
    machine_close(machine_at(2, "other"));
    char command[300];
    snprintf(command, sizeof command, "rm -r %s/store && mv %s/other %s/store", folder, folder, folder);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(verify(), CO_CORRUPT);
    FAULT("has applied entry 2 of term 1, which has term 2 in the log");
    machine_close(machine_at(5, "other"));
    cr_assert_eq(system(command), 0);
    cr_assert_eq(verify(), CO_CORRUPT);
    FAULT("has applied entry 5, but the log ends at 4");
}

/* A server alone takes its snapshots from its own store; one of several may have been given one a moment ago. */
Test(verify, the_store_against_the_snapshot) {
    for (uint32_t members = 1; members <= 3; members += 2) {
        snapshot_at(5, 5, members);
        open_log(5);
        machine_close(machine_at(3, "store"));
        int rv = verify();
        cr_assert_eq(rv, members == 1 ? CO_CORRUPT : CO_OK, "%s", fault.text);
        if (members == 1) FAULT("has applied entry 3 only, although the snapshot, which was taken from it, has 5");
        else SAYS("behind the snapshot, which will replace it");
        end();
        begin();
    }
}

Test(verify, a_snapshot_of_another_index) {
    snapshot_at(5, 6, 1);
    open_log(6);
    cr_assert_eq(verify(), CO_CORRUPT);
    FAULT("raft/snap-0000000000000006: it holds the state as of entry 5");
}

Test(verify, a_gap_behind_the_snapshot) {
    snapshot_at(5, 5, 1);
    open_log(8);
    append(RAFT_ENTRY_EMPTY, "", 0, 1);
    cr_assert_eq(verify(), CO_CORRUPT);
    FAULT("entries 9 to 9: it begins behind the snapshot's end");
}
