/* The history when something fails or a backup is restored, on servers that come and go, and as the leader sees it. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "catalog_specs.h"
#include "history_rows.h"
#include "registry/operator.h"
#include "tests/lib/open_to_all.h"

/* A command that writes a key and then fails, as a full disk would have it. */
enum { FAIL = 200, KEYS_TABLE = 16 };
static int fail_apply(struct machine_tx *tx, struct slice payload, struct machine_result *result) {
    (void)payload, (void)result;
    store_put(tx->store, KEYS_TABLE, SLICE_LITERAL("failed"), SLICE_LITERAL("never"));
    machine_touch(tx, SPACE_KEY, SLICE_LITERAL("failed"));
    return CO_DISKFULL;
}
static const struct module_command fail_commands[] = {
    {.number = FAIL, .name = "fail", .may = open_may, .apply_bytes = fail_apply}, {0}};
static const struct module failing = {.name = "failing", .commands = fail_commands};

static struct fixture f;

static void setup(void) {
    fixture_open_with(&f, &failing);
    fixture_found(&f);
}
static void teardown(void) { fixture_close(&f); }

/* -- failures and restores ---------------------------------------------------------------------------------------- */

Test(history_servers, an_entry_that_fails_in_the_store_leaves_nothing, .init = setup, .fini = teardown) {
    put(&f, "a", "1");
    uint64_t sum = fixture_sum(&f), floor = floor_of(&f, HISTORY_KEYS);
    Pb__KvCommand kv = PB__KV_COMMAND__INIT;
    kv.key = binary_text("a"), kv.value = binary_text("2");
    struct buffer bytes = {0};
    machine_command(&bytes, KV_APPLY, &kv.base);
    struct machine_input inputs[] = {
        {.index = machine_applied(f.machine) + 1, .term = 1, .command = buffer_slice(&bytes), .is_command = true},
        {.index = machine_applied(f.machine) + 2, .term = 1, .command = slice_make("\xc8\x01", 2), .is_command = true}};
    for (size_t i = 0; i < 3; i++) cr_assert_eq(machine_apply(f.machine, inputs, 2, NULL, NULL, NULL), CO_DISKFULL);
    cr_assert_eq(fixture_sum(&f), sum);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 1);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), floor);
    cr_assert_eq(machine_apply(f.machine, inputs, 1, NULL, NULL, NULL), CO_OK);
    struct seen_rows rows = rows_of(&f, HISTORY_KEYS);
    cr_assert(rows.count == 2 && rows.last == machine_index(f.machine));
    cr_assert_str_eq(row_text(&f, HISTORY_KEYS, rows.last), "32: a was <32>a");
    buffer_free(&bytes);
}

static int copy_of(struct fixture *from) {
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    uint64_t index, term;
    cr_assert_eq(machine_copy(from->machine, fd, &index, &term), CO_OK);
    return fd;
}

static uint64_t restore_backup(struct fixture *to, struct fixture *from) {
    int fd = copy_of(from);
    size_t size = (size_t)lseek(fd, 0, SEEK_END);
    uint8_t *bytes = mem_alloc(size), id[] = "0123456789abcdef";
    cr_assert_eq(pread(fd, bytes, size, 0), (ssize_t)size);
    close(fd);
    Pb__RestoreChunkCommand chunk = PB__RESTORE_CHUNK_COMMAND__INIT;
    chunk.id = (ProtobufCBinaryData){OPERATOR_RESTORE_ID, id};
    chunk.data = (ProtobufCBinaryData){size, bytes};
    cr_assert_eq(fixture_apply(to, OPERATOR_RESTORE_CHUNK, &chunk.base).error, CO_OK);
    free(bytes);
    Pb__RestoreEndCommand end = PB__RESTORE_END_COMMAND__INIT;
    end.id = chunk.id, end.size = size;
    struct outcome outcome = fixture_apply(to, OPERATOR_RESTORE_END, &end.base);
    cr_assert(outcome.yes, "%s", outcome.text);
    return outcome.index;
}

static void check_after_restore(struct fixture *to, uint64_t restored) {
    cr_assert_eq(floor_of(to, HISTORY_KEYS), restored);
    cr_assert_eq(floor_of(to, HISTORY_LOCKS), restored);
    uint64_t index = put(to, "a", "after");
    cr_assert_str_eq(row_text(to, HISTORY_KEYS, index), "32: a was <32>a");
    cr_assert_eq(floor_of(to, HISTORY_KEYS), restored, "the row before it is that of the restore");
    mark(to, 900000), mark(to, 5000000);
    struct seen_rows rows = rows_of(to, HISTORY_KEYS);
    cr_assert_eq(rows.count, 0, "the backup's own rows go as any others: %lu", rows.first);
    (void)fixture_sum(to);
}

Test(history_servers, a_backup_raises_the_floor, .init = setup, .fini = teardown) {
    struct fixture to;
    fixture_open(&to);
    fixture_found(&to);
    for (size_t i = 0; i < 30; i++) change(&f);
    for (size_t i = 0; i < 10; i++) change(&to);
    check_after_restore(&to, restore_backup(&to, &f));
    for (size_t i = 0; i < 100; i++) change(&to);
    check_after_restore(&to, restore_backup(&to, &f)); /* of one that is behind */
    fixture_close(&to);
}

/* Of a cluster whose clocks are ahead, or behind: time goes on from the later of the two. */
Test(history_servers, a_backup_does_not_turn_time_back, .init = setup, .fini = teardown) {
    for (int ahead = 0; ahead < 2; ahead++) {
        struct fixture to;
        fixture_open(&to);
        fixture_found(&to);
        f.unix_ms = ahead ? 90000 : 50000, to.unix_ms = 70000;
        change(&f), change(&to);
        check_after_restore(&to, restore_backup(&to, &f));
        struct store_txn *txn = store_read(to.reader);
        struct history_place floor = history_floor_place(txn, HISTORY_KEYS);
        uint64_t now = machine_unix_ms_in(txn);
        store_read_done(to.reader);
        cr_assert(floor.unix_ms == (ahead ? 90000 : 70000) && now >= floor.unix_ms, "%lu %lu", floor.unix_ms, now);
        to.unix_ms = 60000;
        change(&to);
        fixture_close(&to);
    }
}

/* -- the same on every server ------------------------------------------------------------------------------------- */

#define ENTRIES 700
static struct {
    struct buffer bytes;
    uint64_t term, unix_ms;
} entries[ENTRIES];

static void random_kv(struct rng *rng, struct buffer *out) {
    char key[16], value[600];
    Pb__KvCommand kv = PB__KV_COMMAND__INIT;
    static const Pb__KvVerb verbs[] = {PB__KV_VERB__KV_SET, PB__KV_VERB__KV_SET, PB__KV_VERB__KV_SET,
                                       PB__KV_VERB__KV_DELETE, PB__KV_VERB__KV_DELETE_TREE};
    kv.verb = verbs[rng_below(rng, ARRAY_COUNT(verbs))];
    snprintf(key, sizeof key, "%.*s%lu", kv.verb == PB__KV_VERB__KV_DELETE_TREE ? 2 : 1, "kk", rng_below(rng, 9));
    memset(value, 'v', sizeof value), value[rng_below(rng, sizeof value)] = '\0', value[sizeof value - 1] = '\0';
    kv.key = binary_text(key), kv.value = binary_text(value);
    machine_command(out, KV_APPLY, &kv.base);
}

/* Clocks of leaders differ, limits change, and now and then it is off. */
static void random_mark(struct rng *rng, struct buffer *out, uint64_t term, int64_t now_unix_ms) {
    Pb__HistoryMarkCommand command = PB__HISTORY_MARK_COMMAND__INIT;
    Pb__HistoryLimits limits = PB__HISTORY_LIMITS__INIT;
    command.term = rng_below(rng, 10) ? term : term + 1;
    command.now_unix_ms = now_unix_ms + (rng_below(rng, 4) ? 0 : (int64_t)rng_below(rng, 400) - 200);
    limits.changes = rng_below(rng, 4) ? rng_between(rng, 1, 60) : 0;
    limits.bytes = rng_between(rng, 500, 20000);
    limits.age_ms = rng_between(rng, 20, 2000);
    if (rng_below(rng, 3) == 0) command.limits = &limits;
    machine_command(out, HISTORY_MARK, &command.base);
}

/* To an index or a time around the present, which may not be there yet; what it finds must not depend on what else is in
 * the batch. */
static void random_restore(struct rng *rng, struct buffer *out, uint64_t index, uint64_t unix_ms) {
    Pb__KvRestoreCommand command = PB__KV_RESTORE_COMMAND__INIT;
    Pb__KvMoment moment = PB__KV_MOMENT__INIT;
    static const char *const keys[] = {"", "k", "kk", "k3", "k7"};
    command.key = binary_text(keys[rng_below(rng, ARRAY_COUNT(keys))]);
    command.recurse = command.key.len < 2 || rng_below(rng, 2), command.remove = rng_below(rng, 2);
    command.dry_run = rng_below(rng, 8) == 0;
    if (rng_below(rng, 2)) moment.index = index + 2 - rng_below(rng, 20);
    else moment.unix_ms = unix_ms + 100 - rng_below(rng, 400);
    moment.now_unix_ms = rng_below(rng, 2) ? moment.unix_ms : 0;
    command.at = &moment;
    machine_command(out, KV_RESTORE, &command.base);
}

static void random_node(struct rng *rng, struct buffer *out) {
    char name[8], address[16], datacenter[] = "dc1";
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    snprintf(name, sizeof name, "n%lu", rng_below(rng, 3));
    snprintf(address, sizeof address, "10.0.0.%lu", rng_below(rng, 9));
    node.name = name, node.address = address, node.datacenter = datacenter;
    command.node = &node;
    machine_command(out, CATALOG_REGISTER, &command.base);
}

static void make_entries(struct rng *rng) {
    int64_t now = 1000;
    uint64_t term = 1;
    for (size_t i = 0; i < ENTRIES; i++) {
        buffer_reset(&entries[i].bytes);
        now += (int64_t)rng_below(rng, 20);
        term += rng_below(rng, 50) == 0;
        entries[i].term = term;
        entries[i].unix_ms = (uint64_t)now + 1000 + term * 7919 % 300; /* each leader has a clock of its own */
        uint64_t dice = rng_below(rng, 11);
        if (dice == 10 && i > 20) random_restore(rng, &entries[i].bytes, i, entries[i].unix_ms);
        else if (dice < 6) random_kv(rng, &entries[i].bytes);
        else if (dice < 8) random_mark(rng, &entries[i].bytes, term, now);
        else random_node(rng, &entries[i].bytes);
    }
}

/* Entries [from, to) in batches of random sizes. */
static void apply_range(struct fixture *to, struct rng *rng, size_t from, size_t end) {
    while (from < end) {
        struct machine_input inputs[16];
        size_t count = (size_t)rng_between(rng, 1, 16);
        if (count > end - from) count = end - from;
        for (size_t i = 0; i < count; i++)
            inputs[i] = (struct machine_input){.index = machine_applied(to->machine) + 1 + i,
                                               .term = entries[from + i].term,
                                               .command = buffer_slice(&entries[from + i].bytes),
                                               .is_command = true,
                                               .unix_ms = entries[from + i].unix_ms};
        cr_assert_eq(machine_apply(to->machine, inputs, count, NULL, NULL, NULL), CO_OK);
        from += count;
    }
}

static void install_copy(struct fixture *to, struct fixture *from) {
    int fd = copy_of(from);
    uint64_t size = (uint64_t)lseek(fd, 0, SEEK_END);
    lseek(fd, 0, SEEK_SET);
    struct fault fault = {0};
    store_read_done(to->reader);
    cr_assert_eq(machine_install(to->machine, fd, size, &fault), CO_OK, "%s", fault.text);
    close(fd);
}

/* The effect of an entry must not depend on the memory of a process, nor on the other entries in its batch. One applies
 * all in one go; one is restarted now and then; one gets a copy of another's state in between, as a server that was
 * away. */
static void three_servers(uint64_t seed) {
    struct rng rng;
    struct fixture steady, restarted, behind;
    rng_seed(&rng, seed);
    make_entries(&rng);
    fixture_open(&steady), fixture_open(&restarted), fixture_open(&behind);
    fixture_found(&steady), fixture_found(&restarted), fixture_found(&behind);
    for (size_t at = 0, next; at < ENTRIES; at = next) {
        next = at + (size_t)rng_between(&rng, 1, 60);
        if (next > ENTRIES) next = ENTRIES;
        apply_range(&steady, &rng, at, next);
        apply_range(&restarted, &rng, at, next);
        if (rng_below(&rng, 3)) apply_range(&behind, &rng, at, next);
        else install_copy(&behind, &steady);
        uint64_t sum = fixture_sum(&steady);
        cr_assert_eq(fixture_sum(&restarted), sum, "seed %lu: restarted, up to entry %zu", seed, next);
        cr_assert_eq(fixture_sum(&behind), sum, "seed %lu: restored, up to entry %zu", seed, next);
        if (rng_below(&rng, 2)) fixture_reopen(&restarted);
    }
    fixture_close(&steady), fixture_close(&restarted), fixture_close(&behind);
}

Test(history_servers, it_is_the_same_on_every_server) {
    for (uint64_t seed = 1; seed <= 12; seed++) three_servers(seed);
    for (size_t i = 0; i < ENTRIES; i++) buffer_free(&entries[i].bytes);
}

/* -- the leader --------------------------------------------------------------------------------------------------- */

static struct {
    unsigned count;
    bool with_limits;
    uint64_t term, changes;
    int64_t now_unix_ms;
} proposed;

static void propose(void *data, uint8_t number, const ProtobufCMessage *message) {
    (void)data;
    const Pb__HistoryMarkCommand *command = (const Pb__HistoryMarkCommand *)message;
    cr_assert_eq(number, HISTORY_MARK);
    proposed.count++;
    proposed.with_limits = command->limits != NULL;
    proposed.changes = command->limits ? command->limits->changes : 0;
    proposed.term = command->term, proposed.now_unix_ms = command->now_unix_ms;
}

static struct expiry_leader leader;

static void on_due(void *data, const struct expiry_due *due) {
    (void)data;
    due->kind->end(due, &leader, propose, NULL);
}

/* A leader begins, and `for_ms` go by; how many it proposes. */
static unsigned lead(const struct history_settings *settings, uint64_t for_ms) {
    struct expiry *expiry = expiry_new();
    leader = (struct expiry_leader){.term = 9, .now_ms = 5000, .unix_ms = 777, .settings = settings};
    proposed.count = 0;
    expiry_lead(expiry, leader.term, leader.now_ms);
    cr_assert_eq(history_expiry.read(store_read(f.reader), &leader, expiry), CO_OK);
    store_read_done(f.reader);
    uint64_t end = leader.now_ms + for_ms;
    for (uint64_t at; (at = expiry_deadline_ms(expiry)) <= end;) {
        if (at > leader.now_ms) leader.now_ms = at;
        expiry_tick(expiry, leader.now_ms, on_due, NULL);
    }
    expiry_free(expiry);
    return proposed.count;
}

Test(history_servers, a_leader_marks_while_there_are_rows, .init = setup, .fini = teardown) {
    struct history_settings settings = {HISTORY_CHANGES, HISTORY_BYTES, 60000};
    limit(&f, settings.changes, settings.bytes, settings.age_ms);
    cr_assert_eq(lead(&settings, 1000000), 0, "nothing happens on an idle cluster");
    cr_assert_eq(lead(NULL, 1000000), 0);
    put(&f, "a", "1");
    cr_assert_eq(lead(&settings, 5900), 0);
    cr_assert_eq(lead(&settings, 6100), 1, "at the end of each tenth");
    cr_assert(proposed.term == 9 && proposed.now_unix_ms == 777 && proposed.with_limits);
    cr_assert_eq(lead(NULL, 6100), 1);
    cr_assert_not(proposed.with_limits, "who has no settings leaves them");
    mark(&f, 7000), mark(&f, 200000);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 0);
    cr_assert_eq(lead(&settings, 1000000), 0, "and again when all are gone");
    settings.changes = 0;
    cr_assert_eq(lead(&settings, 10), 1, "other settings at once");
    cr_assert_eq(proposed.changes, 0);
    limit(&f, 0, settings.bytes, settings.age_ms);
    cr_assert_eq(lead(&settings, 1000000), 0);
}

/* A row that comes at once begins a period too: it must not put off what was due. */
Test(history_servers, other_settings_are_not_put_off_by_a_first_row, .init = setup, .fini = teardown) {
    struct history_settings settings = {5, 70000, 60000};
    struct expiry_update row = {.kind = &history_expiry, .period_ns = 60000000000};
    leader = (struct expiry_leader){.term = 9, .settings = &settings};
    put(&f, "a", "1");
    cr_assert_leq(history_expiry.period_ns(store_read(f.reader), &row, &leader), 1000000);
    store_read_done(f.reader);
    limit(&f, settings.changes, settings.bytes, settings.age_ms);
    cr_assert_eq(history_expiry.period_ns(store_read(f.reader), &row, &leader), row.period_ns);
    store_read_done(f.reader);
}

/* The leader may propose its first mark at once: who counts is told when the cluster is known. */
static uint64_t cluster_told;
static void note_cluster(void) { cluster_told = machine_cluster(f.machine); }

Test(history_servers, the_leader_hears_of_it_when_the_cluster_is_there) {
    fixture_open(&f);
    f.on_wake = note_cluster;
    fixture_found(&f);
    cr_assert_eq(cluster_told, 7);
    fixture_close(&f);
}
