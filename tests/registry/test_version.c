/* The cluster version: its command, and that it stops programs that are too old, wherever they meet it. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <unistd.h>

#include "agent/modules.h"
#include "base/check.h"
#include "catalog_specs.h"
#include "registry/operator.h"
#include "registry/version.h"
#include "tests/lib/later.h"
#include "tests/lib/open_to_all.h"
#include "tests/lib/scratch.h"

static int open_as(const char *folder, unsigned newest, struct machine **out, struct fault *fault) {
    struct machine_config config = {
        .store = scratch_config(folder, NULL, 0), .modules = agent_modules, .version_newest = newest};
    *out = NULL;
    return machine_open(&config, out, fault);
}

static void keep(void *data, void *origin, const struct machine_result *result) {
    (void)origin;
    *(struct machine_result *)data = *result;
}

static int apply(struct machine *machine, uint8_t type, const ProtobufCMessage *message, struct machine_result *result,
                 uint64_t *stopped_at) {
    struct buffer command = {0};
    machine_command(&command, type, message);
    struct machine_input input = {
        .index = machine_applied(machine) + 1, .term = 1, .command = buffer_slice(&command), .is_command = true};
    int rv = machine_apply(machine, &input, 1, keep, result, stopped_at);
    buffer_free(&command);
    return rv;
}

static struct machine_result raise_to(struct machine *machine, unsigned version, uint64_t id) {
    Pb__ClusterVersionCommand command = PB__CLUSTER_VERSION_COMMAND__INIT;
    command.version = version, command.cluster_id = id;
    struct machine_result result = {.error = -1};
    cr_assert_eq(apply(machine, CLUSTER_VERSION, &command.base, &result, NULL), CO_OK);
    return result;
}

Test(version, begins_at_one_and_only_rises) {
    struct fixture f;
    fixture_open(&f);
    cr_assert_eq(machine_version(f.machine), 1);
    cr_assert_eq(machine_cluster(f.machine), 0);
    cr_assert_eq(raise_to(f.machine, 0, 77).error, CO_INVALID);
    cr_assert_eq(raise_to(f.machine, 2, 0).error, CO_INVALID, "a cluster gets an id");
    cr_assert(raise_to(f.machine, 1, 77).yes, "it is founded");
    cr_assert_eq(machine_version(f.machine), 1);
    cr_assert_eq(machine_cluster(f.machine), 77);
    cr_assert_eq(raise_to(f.machine, 1, 78).error, CO_CONFLICT, "once");
    cr_assert_eq(machine_cluster(f.machine), 77);
    uint64_t sum = fixture_sum(&f);
    fixture_reopen(&f);
    cr_assert_eq(machine_version(f.machine), 1);
    cr_assert_eq(machine_cluster(f.machine), 77, "it is kept");
    cr_assert_eq(fixture_sum(&f), sum);
    fixture_close(&f);
}

Test(version, the_id_stays_when_it_rises_again) {
    const char *folder = scratch_folder();
    struct machine *machine;
    struct fault fault = {0};
    cr_assert_eq(open_as(folder, 3, &machine, &fault), CO_OK);
    raise_to(machine, 2, 77);
    cr_assert(raise_to(machine, 3, 78).yes);
    cr_assert_eq(machine_version(machine), 3);
    cr_assert_eq(machine_cluster(machine), 77);
    cr_assert_eq(raise_to(machine, 2, 78).error, CO_CONFLICT, "never down");
    machine_close(machine);
    scratch_remove(folder);
}

Test(version, an_older_program_stops_at_the_command_and_says_where) {
    const char *folder = scratch_folder();
    struct machine *machine;
    struct fault fault = {0};
    cr_assert_eq(open_as(folder, 2, &machine, &fault), CO_OK);
    Pb__ClusterVersionCommand command = PB__CLUSTER_VERSION_COMMAND__INIT;
    command.version = 3, command.cluster_id = 77;
    uint64_t stopped_at = 0;
    struct machine_result result = {.error = -1};
    cr_assert_eq(apply(machine, CLUSTER_VERSION, &command.base, &result, &stopped_at), CO_UNSUPPORTED);
    cr_assert_eq(stopped_at, 1);
    cr_assert_eq(machine_applied(machine), 0);
    cr_assert_eq(machine_version(machine), 1);
    machine_close(machine);
    scratch_remove(folder);
}

Test(version, an_older_program_does_not_open_the_store_nor_take_the_snapshot) {
    const char *folder = scratch_folder(), *other = scratch_folder();
    struct machine *newer, *older;
    struct fault fault = {0};
    cr_assert_eq(open_as(folder, 3, &newer, &fault), CO_OK);
    raise_to(newer, 3, 77);
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    uint64_t index, term;
    cr_assert_eq(machine_copy(newer, fd, &index, &term), CO_OK);
    machine_close(newer);

    cr_assert_eq(open_as(folder, 2, &older, &fault), CO_UNSUPPORTED);
    cr_assert_str_eq(fault.text,
                     "store: the cluster is at version 3, this program supports up to 2: a newer one is needed");
    fault = (struct fault){0};
    cr_assert_eq(open_as(other, 2, &older, &fault), CO_OK);
    uint64_t size = (uint64_t)lseek(fd, 0, SEEK_END);
    lseek(fd, 0, SEEK_SET);
    cr_assert_eq(machine_install(older, fd, size, &fault), CO_UNSUPPORTED);
    cr_assert_str_eq(fault.text, "the cluster is at version 3, this program supports up to 2: a newer one is needed");
    cr_assert_eq(machine_version(older), 1, "the old state stays");
    fault = (struct fault){0};
    lseek(fd, 0, SEEK_SET);
    cr_assert_eq(machine_copy_check(older, fd, size, &index, &fault), CO_INVALID, "nor as a backup");
    cr_assert_str_eq(fault.text, "the backup is of cluster version 3, this cluster is at 1");
    machine_close(older);
    close(fd);
    scratch_remove(folder), scratch_remove(other);
}

/* A command whose effect depends on the version: it answers with what it sees. */
static int tell_apply(struct machine_tx *tx, struct slice payload, struct machine_result *result) {
    (void)payload;
    result->index = machine_tx_version(tx);
    return CO_OK;
}
enum { TELL = 40, UNUSED = 30 };
static const struct module_command tell_commands[] = {
    {.number = TELL, .name = "tell", .may = open_may, .apply_bytes = tell_apply}, {0}};
static const struct module tell = {.name = "tell", .commands = tell_commands};
static const struct module_entry with_tell[] = {{.module = &tell}, {.module = &later_module}, {0}};

Test(version, a_command_names_the_version_that_introduced_it) {
    static const struct {
        uint8_t type;
        unsigned needs;
    } table[] = {{TELL, 1}, {LATER, 2}, {CLUSTER_VERSION, 1}, {UNUSED, 0}, {0, 0}, {LATER - 1, 0}};
    const char *folder = scratch_folder();
    struct machine_config config = {
        .store = scratch_config(folder, NULL, 0), .modules = with_tell, .version_newest = LATER_VERSION};
    struct machine *machine;
    struct fault fault = {0};
    cr_assert_eq(machine_open(&config, &machine, &fault), CO_OK);
    for (size_t i = 0; i < ARRAY_COUNT(table); i++) {
        char bytes[] = {(char)table[i].type, 1};
        cr_expect_eq(machine_needs(machine, slice_make(bytes, 2)), table[i].needs, "type %u", table[i].type);
        bytes[1] = 2;
        cr_expect_eq(machine_needs(machine, slice_make(bytes, 2)), 0, "type %u of a newer format", table[i].type);
    }
    cr_assert_eq(machine_needs(machine, slice_make("", 0)), 1, "refused when it is applied");
    machine_close(machine);
    scratch_remove(folder);
}

static void keep_next(void *data, void *origin, const struct machine_result *result) {
    (void)data;
    *(uint64_t *)origin = result->index;
}

Test(version, commands_see_the_version_of_their_own_place_in_the_log) {
    const char *folder = scratch_folder();
    struct machine_config config = {
        .store = scratch_config(folder, NULL, 0), .modules = with_tell, .version_newest = LATER_VERSION};
    struct machine *machine;
    struct fault fault = {0};
    cr_assert_eq(machine_open(&config, &machine, &fault), CO_OK);
    struct buffer raise = {0};
    Pb__ClusterVersionCommand command = PB__CLUSTER_VERSION_COMMAND__INIT;
    command.version = 2, command.cluster_id = 77;
    machine_command(&raise, CLUSTER_VERSION, &command.base);
    struct slice ask = slice_make("\x28\x01", 2);
    uint64_t seen[4] = {0};
    struct machine_input inputs[4] = {{1, 1, ask, true, &seen[0], 0},
                                      {2, 1, buffer_slice(&raise), true, &seen[1], 0},
                                      {3, 1, ask, true, &seen[2], 0},
                                      {4, 1, ask, true, &seen[3], 0}};
    cr_assert_eq(machine_apply(machine, inputs, 3, keep_next, NULL, NULL), CO_OK);
    cr_assert_eq(machine_apply(machine, inputs + 3, 1, keep_next, NULL, NULL), CO_OK);
    cr_assert(seen[0] == 1 && seen[2] == 2 && seen[3] == 2, "in one batch and in the next");
    buffer_free(&raise);
    machine_close(machine);
    scratch_remove(folder);
}

/* -- backups ------------------------------------------------------------------------------------------------------ */
static const char restore_id[] = "0123456789abcdef";

static struct outcome restore(struct fixture *to, struct fixture *from) {
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    uint64_t index, term;
    cr_assert_eq(machine_copy(from->machine, fd, &index, &term), CO_OK);
    size_t size = (size_t)lseek(fd, 0, SEEK_END);
    uint8_t *bytes = mem_alloc(size);
    cr_assert_eq(pread(fd, bytes, size, 0), (ssize_t)size);
    close(fd);
    Pb__RestoreChunkCommand chunk = PB__RESTORE_CHUNK_COMMAND__INIT;
    chunk.id = (ProtobufCBinaryData){OPERATOR_RESTORE_ID, (uint8_t *)(uintptr_t)restore_id};
    chunk.data = (ProtobufCBinaryData){size, bytes};
    cr_assert_eq(fixture_apply(to, OPERATOR_RESTORE_CHUNK, &chunk.base).error, CO_OK);
    free(bytes);
    Pb__RestoreEndCommand end = PB__RESTORE_END_COMMAND__INIT;
    end.id = chunk.id, end.size = size;
    return fixture_apply(to, OPERATOR_RESTORE_END, &end.base);
}

static void open_newer(struct fixture *f) {
    fixture_open(f);
    f->newest = 2;
    fixture_reopen(f);
}

Test(version, a_restored_cluster_stays_the_one_it_is) {
    struct fixture old, from, to;
    fixture_open(&old), open_newer(&from), open_newer(&to);
    raise_to(old.machine, 1, 33);
    raise_to(from.machine, 2, 55);
    raise_to(to.machine, 2, 77);
    fixture_register(&from, "node=a addr=10.0.0.1");
    cr_assert(restore(&to, &from).yes);
    cr_assert_eq(machine_version(to.machine), 2);
    cr_assert_eq(machine_cluster(to.machine), 77, "not the other cluster's id");
    fixture_register(&old, "node=b addr=10.0.0.2");
    cr_assert(restore(&to, &old).yes, "a backup of version 1");
    cr_assert_eq(machine_version(to.machine), 2);
    cr_assert_eq(machine_cluster(to.machine), 77);
    fixture_sum(&to);
    struct outcome result = restore(&old, &from);
    cr_assert(result.error == CO_INVALID && !result.yes, "a newer cluster's");
    cr_assert_str_eq(result.text, "the backup is of cluster version 2, this cluster is at 1");
    cr_assert_eq(machine_version(old.machine), 1);
    fixture_sum(&old);
    fixture_close(&old), fixture_close(&from), fixture_close(&to);
}

static void remove_server(struct fixture *f, uint64_t id) {
    Pb__ServerRemovedCommand command = PB__SERVER_REMOVED_COMMAND__INIT;
    command.id = id;
    cr_assert(fixture_apply(f, OPERATOR_SERVER_REMOVED, &command.base).yes);
}

static bool removed(struct fixture *f, uint64_t id) {
    bool is = operator_server_removed(store_read(f->reader), id);
    store_read_done(f->reader);
    return is;
}

/* They would come back with their old folders, and vote again. */
Test(version, a_restored_cluster_takes_no_removed_server_back) {
    struct fixture from, to;
    fixture_open(&from), fixture_open(&to);
    raise_to(to.machine, 1, 77);
    remove_server(&to, 5);
    remove_server(&from, 8); /* by another cluster */
    cr_assert(restore(&to, &from).yes);
    cr_assert(removed(&to, 5) && !removed(&to, 8), "this cluster's own");
    fixture_sum(&to);
    fixture_close(&from), fixture_close(&to);
}
