/* The settings of operators, and restoring a backup through commands. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "catalog_specs.h"
#include "registry/operator.h"
#include "registry/tables.h"

/* A machine's copy, as bytes. */
static void copy_of(struct fixture *f, struct buffer *out) {
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    uint64_t index, term;
    cr_assert(fd >= 0);
    cr_assert_eq(machine_copy(f->machine, fd, &index, &term), CO_OK);
    lseek(fd, 0, SEEK_SET);
    buffer_reset(out);
    for (ssize_t n = 1; n > 0; out->size += (size_t)n) {
        buffer_reserve(out, 65536);
        n = read(fd, out->data + out->size, 65536);
        cr_assert(n >= 0);
    }
    close(fd);
}

static int check_bytes(struct fixture *f, struct slice bytes, uint64_t *index) {
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    struct fault fault = {0};
    cr_assert_eq(write(fd, bytes.data, bytes.size), (ssize_t)bytes.size);
    lseek(fd, 0, SEEK_SET);
    int rv = machine_copy_check(f->machine, fd, bytes.size, index, &fault);
    close(fd);
    cr_assert(rv == CO_OK || fault.text[0]);
    return rv;
}

static struct outcome chunk(struct fixture *f, const char *id, uint64_t offset, struct slice data) {
    Pb__RestoreChunkCommand command = PB__RESTORE_CHUNK_COMMAND__INIT;
    command.id = (ProtobufCBinaryData){OPERATOR_RESTORE_ID, (uint8_t *)(uintptr_t)id};
    command.offset = offset;
    command.data = (ProtobufCBinaryData){data.size, (uint8_t *)(uintptr_t)data.data};
    return fixture_apply(f, OPERATOR_RESTORE_CHUNK, &command.base);
}

static struct outcome end(struct fixture *f, const char *id, uint64_t size, bool give_up) {
    Pb__RestoreEndCommand command = PB__RESTORE_END_COMMAND__INIT;
    command.id = (ProtobufCBinaryData){OPERATOR_RESTORE_ID, (uint8_t *)(uintptr_t)id};
    command.size = size, command.give_up = give_up;
    return fixture_apply(f, OPERATOR_RESTORE_END, &command.base);
}

static const char first_id[] = "0123456789abcdef", second_id[] = "fedcba9876543210";

static void send_all(struct fixture *f, const char *id, struct slice bytes) {
    for (size_t at = 0; at < bytes.size;) {
        size_t part = bytes.size - at < 700 ? bytes.size - at : 700;
        cr_assert_eq(chunk(f, id, at, slice_make(bytes.data + at, part)).error, CO_OK);
        at += part;
    }
}

static bool has_node(struct fixture *f, const char *node) {
    struct store_txn *txn = store_read(f->reader);
    bool found = catalog_node_exists(txn, slice_text(node));
    store_read_done(f->reader);
    return found;
}

static void fill(struct fixture *f, const char *prefix, int count) {
    char spec[96];
    for (int i = 0; i < count; i++) {
        snprintf(spec, sizeof spec, "node=%s%d addr=10.0.0.%d service=web:web:80", prefix, i, i);
        cr_assert_eq(fixture_register(f, spec).error, CO_OK);
    }
}

static void count_wake(struct watch_waiter *waiter) { (void)waiter; }

TestSuite(operate, .timeout = 300);

Test(operator, a_backup_of_a_cluster_that_was_behind) {
    struct fixture from, to;
    struct buffer bytes = {0};
    fixture_open(&from), fixture_open(&to);
    fill(&from, "a", 40);
    fill(&to, "b", 60);
    copy_of(&from, &bytes);
    uint64_t index = 0, before = machine_index(to.machine);
    cr_assert_eq(check_bytes(&to, buffer_slice(&bytes), &index), CO_OK);
    cr_assert_eq(index, machine_index(from.machine));
    struct watch_waiter waiter = {0};
    watch_add(machine_watches(to.machine), &waiter, (struct watch_key){SPACE_NODE, slice_text("nobody")}, count_wake);
    send_all(&to, first_id, buffer_slice(&bytes));
    cr_assert(has_node(&to, "b0") && !has_node(&to, "a0"), "not before the end");
    struct outcome result = end(&to, first_id, bytes.size, false);
    cr_assert_eq(result.error, CO_OK, "%s", result.text);
    cr_assert(!has_node(&to, "b0") && has_node(&to, "a0") && has_node(&to, "a39"));
    cr_assert_gt(result.index, before);
    cr_assert_eq(machine_index(to.machine), machine_applied(to.machine), "it was ahead anyway");
    cr_assert(machine_floor_now(to.machine) == result.index && machine_replacements(to.machine) == 1);
    cr_assert_not(atomic_load(&waiter.armed));
    watch_remove(machine_watches(to.machine), &waiter);
    (void)fixture_sum(&to);
    fixture_close(&from), fixture_close(&to);
    buffer_free(&bytes);
}

Test(operator, a_backup_of_a_cluster_that_was_further_on) {
    struct fixture from, to, third;
    struct buffer bytes = {0}, again = {0};
    fixture_open(&from), fixture_open(&to), fixture_open(&third);
    fill(&from, "a", 200);
    fill(&to, "b", 3);
    copy_of(&from, &bytes);
    send_all(&to, first_id, buffer_slice(&bytes));
    uint64_t applied = machine_applied(to.machine), theirs = machine_index(from.machine);
    cr_assert_lt(applied, theirs);
    struct outcome result = end(&to, first_id, bytes.size, false);
    cr_assert(result.error == CO_OK && result.index == theirs + 1);
    cr_assert(machine_applied(to.machine) == applied + 1 && machine_index(to.machine) == theirs + 1);
    result = fixture_register(&to, "node=next addr=1.2.3.4");
    cr_assert(result.index == theirs + 2 && machine_applied(to.machine) == applied + 2);
    fixture_reopen(&to);
    cr_assert(machine_index(to.machine) == theirs + 2 && machine_applied(to.machine) == applied + 2);
    /* A copy for a follower brings the offset along; and a backup of that copy is as good. */
    copy_of(&to, &again);
    uint64_t index = 0;
    cr_assert(check_bytes(&third, buffer_slice(&again), &index) == CO_OK && index == theirs + 2);
    send_all(&third, first_id, buffer_slice(&again));
    result = end(&third, first_id, again.size, false);
    cr_assert(result.error == CO_OK && result.index == theirs + 3 && has_node(&third, "next"));
    (void)fixture_sum(&to);
    (void)fixture_sum(&third);
    fixture_close(&from), fixture_close(&to), fixture_close(&third);
    buffer_free(&bytes);
    buffer_free(&again);
}

Test(operator, what_is_not_whole_is_refused_and_forgotten) {
    struct fixture f;
    struct buffer bytes = {0};
    signal(SIGPIPE, SIG_IGN);
    fixture_open(&f);
    fill(&f, "a", 50);
    copy_of(&f, &bytes);
    uint64_t sum = fixture_sum(&f), changed;
    cr_assert_eq(end(&f, first_id, bytes.size, false).error, CO_INVALID, "nothing was kept aside");
    cr_assert_eq(chunk(&f, first_id, 100, slice_text("x")).error, CO_CONFLICT, "not the beginning");
    send_all(&f, first_id, slice_make(bytes.data, bytes.size - 10));
    cr_assert_eq(end(&f, first_id, bytes.size, false).error, CO_INVALID, "a piece is missing");
    cr_assert_eq(end(&f, first_id, bytes.size - 10, false).error, CO_INVALID, "forgotten by then");
    send_all(&f, first_id, slice_make(bytes.data, bytes.size - 10));
    struct outcome early = end(&f, first_id, bytes.size - 10, false);
    cr_assert(early.error == CO_INVALID && strstr(early.text, "ends early"), "%s", early.text);
    bytes.data[bytes.size / 2] ^= 1;
    send_all(&f, first_id, buffer_slice(&bytes));
    cr_assert_eq(end(&f, first_id, bytes.size, false).error, CO_INVALID, "damaged");
    bytes.data[bytes.size / 2] ^= 1;
    send_all(&f, first_id, slice_make(bytes.data, 2000));
    send_all(&f, second_id, buffer_slice(&bytes));
    cr_assert_eq(chunk(&f, first_id, 2100, slice_text("x")).error, CO_CONFLICT, "another began meanwhile");
    cr_assert_eq(end(&f, first_id, 2100, false).error, CO_INVALID, "another began meanwhile");
    cr_assert_eq(end(&f, second_id, bytes.size, true).error, CO_OK, "it gives up");
    cr_assert_eq(end(&f, second_id, bytes.size, false).error, CO_INVALID, "so nothing is there");
    cr_assert(has_node(&f, "a0") && machine_replacements(f.machine) == 0);
    changed = fixture_sum(&f);
    cr_assert_neq(sum, changed, "the applied index moves on");
    send_all(&f, second_id, buffer_slice(&bytes));
    struct outcome whole = end(&f, second_id, bytes.size, false);
    cr_assert_eq(whole.error, CO_OK, "%s", whole.text);
    fixture_close(&f);
    buffer_free(&bytes);
}

Test(operator, checking_notices_every_damage) {
    struct fixture f;
    struct buffer bytes = {0};
    uint64_t index;
    fixture_open(&f);
    fill(&f, "a", 3);
    copy_of(&f, &bytes);
    cr_assert_eq(check_bytes(&f, buffer_slice(&bytes), &index), CO_OK);
    for (size_t at = 0; at < bytes.size; at++) {
        bytes.data[at] ^= 4;
        int rv = check_bytes(&f, buffer_slice(&bytes), &index);
        cr_assert(rv == CO_CORRUPT || rv == CO_UNSUPPORTED, "byte %zu: %d", at, rv);
        bytes.data[at] ^= 4;
        cr_assert_eq(check_bytes(&f, slice_make(bytes.data, at), &index), CO_CORRUPT, "cut at %zu", at);
    }
    buffer_append_byte(&bytes, 'x');
    cr_assert_eq(check_bytes(&f, buffer_slice(&bytes), &index), CO_CORRUPT);
    fixture_close(&f);
    buffer_free(&bytes);
}

Test(operator, removed_servers_are_remembered_the_newest_of_them) {
    struct fixture f;
    fixture_open(&f);
    Pb__ServerRemovedCommand command = PB__SERVER_REMOVED_COMMAND__INIT;
    cr_assert_eq(fixture_apply(&f, OPERATOR_SERVER_REMOVED, &command.base).error, CO_INVALID);
    for (command.id = 1; command.id <= 70; command.id++)
        cr_assert(fixture_apply(&f, OPERATOR_SERVER_REMOVED, &command.base).yes);
    command.id = 50;
    cr_assert(fixture_apply(&f, OPERATOR_SERVER_REMOVED, &command.base).yes);
    command.id = 60, command.forget = true;
    cr_assert(fixture_apply(&f, OPERATOR_SERVER_REMOVED, &command.base).yes);
    struct store_txn *txn = store_read(f.reader);
    for (uint64_t id = 1; id <= 71; id++)
        cr_assert_eq(operator_server_removed(txn, id), id > 6 && id != 60 && id != 71, "%d", (int)id);
    store_read_done(f.reader);
    fixture_close(&f);
}

/* A list that nobody can read lets nobody in, and is not replaced by an empty one. */
Test(operator, a_list_of_removed_servers_that_does_not_decode_is_damage) {
    struct fixture f;
    fixture_open(&f);
    Pb__ServerRemovedCommand command = PB__SERVER_REMOVED_COMMAND__INIT;
    command.id = 7;
    cr_assert(fixture_apply(&f, OPERATOR_SERVER_REMOVED, &command.base).yes);
    struct store_txn *txn = store_write(machine_store(f.machine));
    store_put(txn, TABLE_SETTINGS, SLICE_LITERAL("removed-servers"), SLICE_LITERAL("\xff\xff\xff"));
    cr_assert_eq(store_commit(txn), CO_OK);
    txn = store_read(f.reader);
    cr_assert(operator_server_removed(txn, 7) && store_txn_error(txn) == CO_CORRUPT);
    store_read_done(f.reader);
    fixture_close(&f);
}

Test(operator, autopilot_is_set_with_cas) {
    struct fixture f;
    fixture_open(&f);
    Pb__AutopilotRequest request = PB__AUTOPILOT_REQUEST__INIT;
    struct query_result result = fixture_query(&f, &query_autopilot, &request.base);
    const Pb__AutopilotConfig *now = (const Pb__AutopilotConfig *)result.message;
    cr_assert(result.index == 0 && now->cleanup_dead_servers && now->max_trailing_logs == 250);
    Pb__AutopilotSetCommand command = PB__AUTOPILOT_SET_COMMAND__INIT;
    Pb__AutopilotConfig config;
    operator_autopilot_default(&config);
    config.max_trailing_logs = 9;
    cr_assert_eq(fixture_apply(&f, OPERATOR_AUTOPILOT, &command.base).error, CO_INVALID);
    command.config = &config, command.has_cas = true, command.cas = 5;
    cr_assert_not(fixture_apply(&f, OPERATOR_AUTOPILOT, &command.base).yes);
    command.cas = 0;
    uint64_t index = fixture_apply(&f, OPERATOR_AUTOPILOT, &command.base).index;
    cr_assert_not(fixture_apply(&f, OPERATOR_AUTOPILOT, &command.base).yes);
    fixture_forget(&f);
    result = fixture_query(&f, &query_autopilot, &request.base);
    now = (const Pb__AutopilotConfig *)result.message;
    cr_assert(result.index == index && now->modify_index == index && now->max_trailing_logs == 9);
    fixture_close(&f);
}
