/* The state machine with a small module of its own: batches, tombstones and floor, events, unknown commands, snapshots. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "registry/audit.h"
#include "registry/lease.h"
#include "registry/machine.h"
#include "registry/machine_changes.h"
#include "registry/tables.h"
#include "tests/lib/open_to_all.h"
#include "tests/lib/scratch.h"

/* Commands of the toy: type 40 "key=value" sets, 41 "key" removes, 42 emits an event, 43 fails as a store would,
 * 44 has a result that its row does not name. */
enum { SET = 40, REMOVE = 41, EVENT = 42, FAIL = 43, NAMELESS = 44, TOYS = 20, SPACE = 40 };

static const struct expiry_kind toy_expiry;

static int toy_key(struct machine_tx *tx, struct slice payload, struct slice *key, struct machine_result *result) {
    const char *equals = memchr(payload.data, '=', payload.size);
    *key = slice_make(payload.data, equals ? (size_t)(equals - payload.data) : payload.size);
    if (key->size) return CO_OK;
    machine_refuse(result, CO_INVALID, arena_printf(tx->arena, "no key at %llu", (unsigned long long)tx->index));
    return CO_INVALID;
}

static int toy_set(struct machine_tx *tx, struct slice payload, struct machine_result *result) {
    char room[STORE_KEY_MAX];
    struct slice key;
    if (toy_key(tx, payload, &key, result) != CO_OK) return CO_OK;
    store_put(tx->store, TOYS, store_key_long(key, room),
              slice_make(key.data + key.size + 1, payload.size - key.size - 1));
    machine_changed(tx, SPACE, key, false);
    expiry_began_in(tx, &toy_expiry, key, tx->index, 1000000000);
    result->yes = true;
    return CO_OK;
}

static int toy_remove(struct machine_tx *tx, struct slice payload, struct machine_result *result) {
    char room[STORE_KEY_MAX];
    struct slice key;
    if (toy_key(tx, payload, &key, result) != CO_OK) return CO_OK;
    result->yes = store_del(tx->store, TOYS, store_key_long(key, room));
    if (result->yes) machine_changed(tx, SPACE, key, true);
    return CO_OK;
}

static int toy_emit(struct machine_tx *tx, struct slice payload, struct machine_result *result) {
    (void)result;
    machine_emit(tx, MACHINE_NODE_REMOVED, payload, slice_make("", 0));
    return CO_OK;
}

static int toy_fail(struct machine_tx *tx, struct slice payload, struct machine_result *result) {
    (void)tx, (void)payload, (void)result;
    return CO_DISKFULL;
}

static unsigned events;
static void toy_event(struct machine_tx *tx, const struct machine_event *event) {
    events++;
    store_put(tx->store, TOYS, SLICE_LITERAL("last-event"), event->node);
}

static int toy_read(struct store_txn *txn, const struct expiry_leader *leader, struct expiry *expiry) {
    (void)txn, (void)leader, (void)expiry;
    return CO_OK;
}
static void toy_end(const struct expiry_due *due, const struct expiry_leader *leader,
                    void (*propose)(void *data, uint8_t command, const ProtobufCMessage *message), void *data) {
    (void)due, (void)leader, (void)propose, (void)data;
}
static const struct expiry_kind toy_expiry = {.number = 40, .name = "toy", .read = toy_read, .end = toy_end};
static const struct expiry_kind *const toy_expiries[] = {&toy_expiry, NULL};

static int toy_nameless(struct machine_tx *tx, struct slice payload, struct machine_result *result) {
    (void)payload;
    Pb__Lease *lease = arena_alloc(tx->arena, sizeof *lease);
    pb__lease__init(lease);
    result->message = &lease->base, result->yes = true;
    return CO_OK;
}

static const struct module_command toy_commands[] = {
    {.number = SET, .name = "set", .may = open_may, .apply_bytes = toy_set},
    {.number = REMOVE, .name = "remove", .may = open_may, .apply_bytes = toy_remove},
    {.number = EVENT, .name = "event", .may = open_may, .apply_bytes = toy_emit},
    {.number = FAIL, .name = "fail", .may = open_may, .apply_bytes = toy_fail},
    {.number = NAMELESS, .name = "nameless", .may = open_may, .apply_bytes = toy_nameless},
    {0},
};
static const struct store_table toy_tables[] = {{TOYS, "toys"}, {0}};
static const struct module toy = {
    .name = "toy", .commands = toy_commands, .tables = toy_tables, .expiries = toy_expiries, .on_event = toy_event};
static const struct module_entry modules[] = {{.module = &toy}, {0}};
static struct expiry_updates *updates;

static unsigned updates_there(void) {
    unsigned count = 0;
    for (struct expiry_update *update = expiry_updates_take(updates), *next; update; update = next, count++)
        next = update->next, free(update);
    return count;
}

static struct machine *open_at(const char *folder, uint64_t tombstones_max) {
    if (!updates) updates = expiry_updates_new(NULL, NULL);
    events = 0;
    struct machine_config config = {.store = scratch_config(folder, NULL, 0),
                                    .modules = modules,
                                    .updates = updates,
                                    .tombstones_max = tombstones_max};
    struct machine *machine;
    struct fault fault = {0};
    cr_assert_eq(machine_open(&config, &machine, &fault), CO_OK, "%s", fault.text);
    return machine;
}

struct batch {
    struct machine_input inputs[64];
    char bytes[64][1024];
    size_t count;
    struct machine_result results[64];
    size_t done;
};

static void add(struct batch *batch, struct machine *machine, uint8_t type, const char *text) {
    char *bytes = batch->bytes[batch->count];
    bytes[0] = (char)type;
    bytes[1] = 1;
    size_t size = strlen(text);
    memcpy(bytes + 2, text, size);
    batch->inputs[batch->count] = (struct machine_input){.index = machine_applied(machine) + 1 + batch->count,
                                                         .term = 3,
                                                         .command = slice_make(bytes, size + 2),
                                                         .is_command = true,
                                                         .origin = batch->bytes[batch->count]};
    batch->count++;
}

static void note(void *data, void *origin, const struct machine_result *result) {
    struct batch *batch = data;
    cr_assert_eq(origin, batch->bytes[batch->done]);
    batch->results[batch->done++] = *result;
}

static int apply(struct machine *machine, struct batch *batch) {
    uint64_t stopped_at = 0;
    return machine_apply(machine, batch->inputs, batch->count, note, batch, &stopped_at);
}

static struct machine_result apply_one(struct machine *machine, uint8_t type, const char *text) {
    static struct batch batch;
    batch.count = batch.done = 0;
    add(&batch, machine, type, text);
    cr_assert_eq(apply(machine, &batch), CO_OK);
    cr_assert_eq(batch.done, 1);
    return batch.results[0];
}

static uint64_t marked(struct machine *machine, const char *key) {
    struct store_reader *reader = store_reader_new(machine_store(machine));
    uint64_t index = machine_change_index(store_read(reader), SPACE, slice_text(key));
    store_read_done(reader);
    store_reader_free(reader);
    return index;
}

static uint64_t below(struct machine *machine, const char *prefix) {
    struct store_reader *reader = store_reader_new(machine_store(machine));
    uint64_t index = machine_removed_below(store_read(reader), SPACE, slice_text(prefix));
    store_read_done(reader);
    store_reader_free(reader);
    return index;
}

static uint64_t sum_of(struct machine *machine) {
    struct store_reader *reader = store_reader_new(machine_store(machine));
    struct store_txn *txn = store_read(reader);
    uint64_t sum = store_sum(txn);
    cr_assert_eq(sum, store_scrub(txn));
    store_read_done(reader);
    store_reader_free(reader);
    return sum;
}

static bool has(struct machine *machine, const char *key, const char *value) {
    struct store_reader *reader = store_reader_new(machine_store(machine));
    struct slice found;
    bool same = store_get(store_read(reader), TOYS, slice_text(key), &found) == CO_OK && slice_is(found, value);
    store_read_done(reader);
    store_reader_free(reader);
    return same;
}

Test(machine, applies_a_batch_and_answers_each_in_order) {
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 0);
    cr_assert_eq(machine_applied(machine), 0);
    static struct batch batch;
    add(&batch, machine, SET, "a=1");
    add(&batch, machine, SET, "=2");
    add(&batch, machine, REMOVE, "a");
    add(&batch, machine, SET, "a=3");
    cr_assert_eq(apply(machine, &batch), CO_OK);
    cr_assert_eq(batch.done, 4);
    cr_assert(batch.results[0].yes && batch.results[0].index == 1);
    cr_assert(batch.results[1].error == CO_INVALID && !batch.results[1].yes);
    cr_assert(batch.results[2].yes && batch.results[3].yes);
    cr_assert_eq(machine_applied(machine), 4);
    cr_assert_eq(machine_applied_term(machine), 3);
    cr_assert_eq(marked(machine, "a"), 4);
    cr_assert_eq(below(machine, ""), 0); /* it is back: no removal is left */
    cr_assert(has(machine, "a", "3"));
    sum_of(machine);
    machine_close(machine);
    machine = open_at(folder, 0);
    cr_assert_eq(machine_applied(machine), 4);
    cr_assert_eq(machine_applied_term(machine), 3);
    machine_close(machine);
    scratch_remove(folder);
}

Test(machine, entries_without_a_command_move_the_index) {
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 0);
    struct machine_input inputs[2] = {{.index = 1, .term = 1}, {.index = 2, .term = 5}};
    cr_assert_eq(machine_apply(machine, inputs, 2, NULL, NULL, NULL), CO_OK);
    cr_assert_eq(machine_applied(machine), 2);
    cr_assert_eq(machine_applied_term(machine), 5);
    machine_close(machine);
    scratch_remove(folder);
}

Test(machine, stops_before_what_it_does_not_know) {
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 0);
    static struct batch batch;
    add(&batch, machine, SET, "a=1");
    add(&batch, machine, 99, "from the future");
    add(&batch, machine, SET, "a=2");
    uint64_t stopped_at = 0;
    cr_assert_eq(machine_apply(machine, batch.inputs, 3, note, &batch, &stopped_at), CO_UNSUPPORTED);
    cr_assert_eq(stopped_at, 2);
    cr_assert_eq(batch.done, 1);
    cr_assert_eq(machine_applied(machine), 1);
    cr_assert(has(machine, "a", "1"));
    batch.bytes[2][1] = 2; /* a known type in a newer format; and at the head of a batch */
    batch.inputs[2].index = 2;
    cr_assert_eq(machine_apply(machine, batch.inputs + 2, 1, note, &batch, &stopped_at), CO_UNSUPPORTED);
    cr_assert_eq(stopped_at, 2);
    cr_assert_eq(machine_applied(machine), 1);
    struct machine_input tiny = {.index = 2, .term = 1, .is_command = true, .command = slice_make("\x28", 1)};
    cr_assert_eq(machine_apply(machine, &tiny, 1, NULL, NULL, &stopped_at), CO_OK); /* refused alike by every version */
    machine_close(machine);
    scratch_remove(folder);
}

Test(machine, a_failing_store_applies_nothing_of_the_batch) {
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 0);
    apply_one(machine, SET, "a=1");
    uint64_t sum = sum_of(machine);
    static struct batch batch;
    add(&batch, machine, SET, "a=2");
    add(&batch, machine, FAIL, "");
    cr_assert_eq(updates_there(), 1);
    cr_assert_eq(apply(machine, &batch), CO_DISKFULL);
    cr_assert_eq(updates_there(), 0, "nobody hears of what did not happen");
    cr_assert_eq(batch.done, 0);
    cr_assert_eq(machine_applied(machine), 1);
    cr_assert_eq(sum_of(machine), sum);
    cr_assert(has(machine, "a", "1"));
    machine_close(machine);
    scratch_remove(folder);
}

Test(machine, a_full_disk_fails_the_commit) {
    const char *folder = scratch_folder();
    updates = expiry_updates_new(NULL, NULL);
    struct machine_config config = {.store = scratch_config(folder, NULL, 0), .modules = modules, .updates = updates};
    config.store.map_bytes = 2 << 20;
    struct machine *machine;
    struct fault fault = {0};
    cr_assert_eq(machine_open(&config, &machine, &fault), CO_OK, "%s", fault.text);
    static char text[100000];
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "k000=", 5);
    int error = CO_OK;
    uint64_t applied = 0;
    for (int i = 0; i < 100 && error == CO_OK; i++) {
        text[1] = (char)('a' + i / 10);
        text[2] = (char)('a' + i % 10);
        struct buffer command = {0};
        buffer_append(&command, "\x28\x01", 2);
        buffer_append_text(&command, text);
        struct machine_input input = {
            .index = machine_applied(machine) + 1, .term = 1, .is_command = true, .command = buffer_slice(&command)};
        applied = machine_applied(machine);
        error = machine_apply(machine, &input, 1, NULL, NULL, NULL);
        buffer_free(&command);
    }
    cr_assert_eq(error, CO_DISKFULL);
    cr_assert_eq(machine_applied(machine), applied);
    cr_assert_eq(updates_there(), applied, "of what is committed, and of nothing else");
    sum_of(machine);
    machine_close(machine);
    scratch_remove(folder);
}

Test(machine, events_reach_the_modules) {
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 0);
    apply_one(machine, EVENT, "n1");
    cr_assert_eq(events, 1);
    cr_assert(has(machine, "last-event", "n1"));
    machine_close(machine);
    scratch_remove(folder);
}

Test(machine, removals_leave_tombstones_and_the_oldest_raise_the_floor) {
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 3);
    const char *keys[] = {"a/1", "a/2", "b/1", "a/3", "b/2"};
    char text[16];
    for (int i = 0; i < 5; i++) {
        snprintf(text, sizeof text, "%s=v", keys[i]);
        apply_one(machine, SET, text);
    }
    cr_assert_eq(below(machine, ""), 0);
    for (int i = 0; i < 3; i++) apply_one(machine, REMOVE, keys[i]); /* 6, 7, 8 */
    cr_assert_eq(below(machine, "a/"), 7);
    cr_assert_eq(below(machine, "b"), 8);
    cr_assert_eq(below(machine, ""), 8);
    cr_assert_eq(below(machine, "c"), 0);
    cr_assert_eq(machine_floor_now(machine), 0);
    apply_one(machine, REMOVE, keys[3]); /* 9: the tombstone of 6 goes */
    cr_assert_eq(machine_floor_now(machine), 6);
    cr_assert_eq(marked(machine, "a/1"), 0);
    cr_assert_eq(marked(machine, "a/2"), 7);
    apply_one(machine, SET, "a/2=back"); /* 10: its removal is no more */
    apply_one(machine, REMOVE, keys[4]); /* 11: so nothing is dropped */
    cr_assert_eq(machine_floor_now(machine), 6);
    cr_assert_eq(marked(machine, "a/2"), 10);
    sum_of(machine);
    machine_close(machine);
    machine = open_at(folder, 3);
    cr_assert_eq(machine_floor_now(machine), 6);
    machine_close(machine);
    scratch_remove(folder);
}

/* As a backup may have it that was made by hand. */
Test(machine, a_tombstone_that_is_too_long_is_damage) {
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 3);
    char value[2 * STORE_KEY_MAX] = {0};
    struct store_txn *txn = store_write(machine_store(machine));
    store_put(txn, TABLE_TOMBSTONES, SLICE_LITERAL("12345678"), slice_make(value, sizeof value));
    machine_tombstones_limit(txn, 0);
    cr_assert_eq(store_txn_error(txn), CO_CORRUPT);
    store_abort(txn);
    machine_close(machine);
    scratch_remove(folder);
}

/* It would end every server, and each of its starts. */
Test(machine, a_result_that_the_row_does_not_name_is_left_out) {
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 3);
    struct machine_result result = apply_one(machine, NAMELESS, "");
    cr_assert(result.error == CO_OK && result.yes && result.record.size == 0 && !result.record_type);
    machine_close(machine);
    scratch_remove(folder);
}

Test(machine, long_names_keep_their_tombstones_apart) {
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 2);
    char key[3][700], text[2200];
    const size_t sizes[] = {505, 509, 690}; /* too long with the index; with the space alone; at all */
    for (int i = 0; i < 3; i++) {
        memset(key[i], 'k', sizes[i]);
        key[i][sizes[i]] = '\0';
        snprintf(text, sizeof text, "%s=1", key[i]);
        apply_one(machine, SET, text);
    }
    for (int i = 0; i < 3; i++) {
        apply_one(machine, REMOVE, key[i]); /* 4, 5, 6 */
        cr_assert_eq(marked(machine, key[i]), 4 + (uint64_t)i);
        cr_assert_eq(below(machine, key[i]), 4 + (uint64_t)i);
    }
    cr_assert_eq(below(machine, "kkk"), 6);
    key[2][600] = '\0';
    cr_assert_eq(below(machine, key[2]), 6); /* a prefix longer than any plain key */
    key[2][600] = 'x';
    cr_assert_eq(below(machine, key[2]), 0);
    cr_assert_eq(machine_floor_now(machine), 4);
    cr_assert_eq(marked(machine, key[0]), 0);
    sum_of(machine);
    machine_close(machine);
    scratch_remove(folder);
}

/* machine_removed_below against a list of what was removed when. */
Test(machine, removals_below_a_prefix_agree_with_a_model) {
    enum { NAMES = 60 };
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 0);
    char names[NAMES][16];
    uint64_t removed[NAMES] = {0};
    struct rng rng;
    rng_seed(&rng, 9);
    for (int i = 0; i < NAMES; i++) snprintf(names[i], sizeof names[i], "%c%c/%d", "ab"[i % 2], "xyz"[i % 3], i);
    for (int step = 0; step < 2000; step++) {
        size_t i = rng_below(&rng, NAMES);
        char text[32];
        snprintf(text, sizeof text, "%s=1", names[i]);
        if (rng_below(&rng, 3) == 0) {
            if (apply_one(machine, SET, text).yes) removed[i] = 0;
        } else if (apply_one(machine, REMOVE, names[i]).yes) {
            removed[i] = machine_applied(machine);
        }
        const char *prefixes[] = {"", "a", "b", "ax/", "by/", "bz/2", "c"};
        const char *prefix = prefixes[rng_below(&rng, 7)];
        uint64_t expected = 0;
        for (int j = 0; j < NAMES; j++) {
            if (strncmp(names[j], prefix, strlen(prefix)) == 0 && removed[j] > expected) expected = removed[j];
        }
        cr_assert_eq(below(machine, prefix), expected, "step %d prefix %s", step, prefix);
    }
    sum_of(machine);
    machine_close(machine);
    scratch_remove(folder);
}

static void count_wake(struct watch_waiter *waiter) { (void)waiter; }

Test(machine, a_snapshot_brings_everything_and_wakes_everybody) {
    const char *folder = scratch_folder(), *other_folder = scratch_folder();
    struct machine *from = open_at(folder, 2), *to = open_at(other_folder, 2);
    for (int i = 0; i < 200; i++) {
        char text[32];
        snprintf(text, sizeof text, "k%d=%d", i % 50, i);
        if (i % 3 == 0) *strchr(text, '=') = '\0';
        apply_one(from, i % 3 ? SET : REMOVE, text);
    }
    apply_one(to, SET, "other=1");
    struct watch_waiter waiter;
    watch_add(machine_watches(to), &waiter, (struct watch_key){SPACE, slice_text("nobody")}, count_wake);
    uint64_t generation = watch_generation(machine_watches(to), (struct watch_key){SPACE, slice_text("nobody")});
    int pipes[2];
    cr_assert_eq(pipe(pipes), 0);
    pid_t child = fork(); /* carries the bytes, so that the pipe does not fill */
    char path[512];
    snprintf(path, sizeof path, "%s/copy", folder);
    if (child == 0) {
        close(pipes[1]);
        FILE *file = fopen(path, "w");
        char bytes[4096];
        for (ssize_t got; (got = read(pipes[0], bytes, sizeof bytes)) > 0;) fwrite(bytes, 1, (size_t)got, file);
        fclose(file);
        _exit(0);
    }
    close(pipes[0]);
    uint64_t index, term;
    cr_assert_eq(machine_copy(from, pipes[1], &index, &term), CO_OK);
    close(pipes[1]);
    waitpid(child, NULL, 0);
    cr_assert(index == 200 && term == 3);
    int fd = open(path, O_RDONLY);
    struct fault fault = {0};
    cr_assert_eq(machine_install(to, fd, 0, &fault), CO_OK, "%s", fault.text);
    close(fd);
    cr_assert_eq(machine_applied(to), 200);
    cr_assert_eq(machine_applied_term(to), 3);
    cr_assert_eq(machine_floor_now(to), machine_floor_now(from));
    cr_assert_gt(machine_floor_now(to), 0);
    cr_assert_eq(sum_of(to), sum_of(from));
    cr_assert_not(atomic_load(&waiter.armed));
    cr_assert_gt(watch_generation(machine_watches(to), (struct watch_key){SPACE, slice_text("nobody")}), generation);
    apply_one(from, SET, "next=1");
    apply_one(to, SET, "next=1");
    cr_assert_eq(sum_of(to), sum_of(from));
    watch_remove(machine_watches(to), &waiter);
    machine_close(from);
    machine_close(to);
    scratch_remove(folder);
    scratch_remove(other_folder);
}

/* The same log in batches cut differently: the same sum on every server. */
Test(machine, the_sum_does_not_depend_on_how_batches_are_cut) {
    const char *folders[2] = {scratch_folder(), scratch_folder()};
    uint64_t sums[2];
    for (int i = 0; i < 2; i++) {
        struct machine *machine = open_at(folders[i], 5);
        struct rng commands, cuts;
        rng_seed(&commands, 1);
        rng_seed(&cuts, (uint64_t)i + 10);
        for (int left = 600; left > 0;) {
            static struct batch batch;
            batch.count = batch.done = 0;
            size_t size = 1 + rng_below(&cuts, 40);
            for (; batch.count < size && left > 0; left--) {
                char text[32];
                uint64_t key = rng_below(&commands, 40), kind = rng_below(&commands, 2);
                snprintf(text, sizeof text, kind ? "k%llu=%d" : "k%llu", (unsigned long long)key, left);
                add(&batch, machine, kind ? SET : REMOVE, text);
            }
            cr_assert_eq(apply(machine, &batch), CO_OK);
        }
        sums[i] = sum_of(machine);
        machine_close(machine);
        scratch_remove(folders[i]);
    }
    cr_assert_eq(sums[0], sums[1]);
}

/* -- the self-audit's sums ---------------------------------------------------------------------------------------- */

/* Commands up to `last`, in batches of at most `most`; at `wrong` this machine does something else than it should. */
static void apply_log(struct machine *machine, uint64_t last, unsigned most, uint64_t wrong) {
    static struct batch batch;
    struct rng rng;
    while (machine_applied(machine) < last) {
        batch.count = batch.done = 0;
        for (unsigned i = 0; i < most && machine_applied(machine) + batch.count < last; i++) {
            uint64_t index = machine_applied(machine) + batch.count + 1;
            char text[64];
            rng_seed(&rng, index);
            uint64_t key = rng_below(&rng, 300);
            bool removes = rng_below(&rng, 4) == 0;
            snprintf(text, sizeof text, removes ? "k%lu" : "k%lu=%lu", (unsigned long)key,
                     (unsigned long)rng_next(&rng));
            if (index == wrong) snprintf(text, sizeof text, "stray=%lu", (unsigned long)key), removes = false;
            add(&batch, machine, removes ? REMOVE : SET, text);
        }
        cr_assert_eq(apply(machine, &batch), CO_OK);
    }
}

static void sums_equal(struct machine *a, struct machine *b, size_t count) {
    struct audit_ring one, other;
    machine_sums(a, &one);
    machine_sums(b, &other);
    cr_assert_eq(one.count, count);
    cr_assert_eq(other.count, count);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(one.pairs[i].index, other.pairs[i].index);
        cr_assert_eq(one.pairs[i].sum, other.pairs[i].sum, "at %lu", (unsigned long)one.pairs[i].index);
    }
}

Test(machine_audit, sums_do_not_depend_on_batches) {
    const char *folders[] = {scratch_folder(), scratch_folder(), scratch_folder()};
    struct machine *machines[3];
    static const unsigned most[] = {1, 7, 64};
    for (int i = 0; i < 3; i++) {
        machines[i] = open_at(folders[i], 100); /* a floor that rises, too */
        apply_log(machines[i], 3 * AUDIT_EVERY + 10, most[i], 0);
    }
    sums_equal(machines[0], machines[1], 3);
    sums_equal(machines[0], machines[2], 3);
    struct audit_ring ring;
    machine_sums(machines[0], &ring);
    cr_assert_neq(ring.pairs[0].sum, ring.pairs[1].sum);
    for (int i = 0; i < 3; i++) {
        machine_close(machines[i]);
        scratch_remove(folders[i]);
    }
}

static struct audit_judgement judged(struct machine *const *machines, size_t self) {
    struct audit_report reports[3];
    for (size_t i = 0; i < 3; i++) {
        reports[i] = (struct audit_report){.id = i + 1, .voter = true};
        machine_sums(machines[i], &reports[i].ring);
    }
    return audit_judge(self + 1, 3, reports, 3);
}

static void copy_to(struct machine *from, struct machine *to) {
    char path[] = "/tmp/coord-copy-XXXXXX";
    int fd = mkstemp(path);
    uint64_t index, term;
    struct fault fault = {0};
    cr_assert(fd >= 0);
    cr_assert_eq(machine_copy(from, fd, &index, &term), CO_OK);
    uint64_t size = (uint64_t)lseek(fd, 0, SEEK_CUR);
    cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
    cr_assert_eq(machine_install(to, fd, size, &fault), CO_OK, "%s", fault.text);
    close(fd);
    unlink(path);
}

/* One of three applies a command wrongly: it is the minority from the next noted index on; with another's state it
 * is equal again. */
Test(machine_audit, a_wrong_apply_is_found_and_healed) {
    const char *folders[] = {scratch_folder(), scratch_folder(), scratch_folder()};
    struct machine *machines[3];
    for (size_t i = 0; i < 3; i++) {
        machines[i] = open_at(folders[i], 0);
        apply_log(machines[i], AUDIT_EVERY, 50, 0);
    }
    for (size_t i = 0; i < 3; i++) cr_assert_eq(judged(machines, i).verdict, AUDIT_EQUAL);
    uint64_t wrong = AUDIT_EVERY + 100;
    for (size_t i = 0; i < 3; i++) apply_log(machines[i], 2 * AUDIT_EVERY, 50, i == 1 ? wrong : 0);
    cr_assert_eq(judged(machines, 0).verdict, AUDIT_EQUAL);
    struct audit_judgement judgement = judged(machines, 1);
    cr_assert_eq(judgement.verdict, AUDIT_MINORITY);
    cr_assert_eq(judgement.index, 2 * AUDIT_EVERY);
    cr_assert_eq(judged(machines, 2).verdict, AUDIT_EQUAL);
    apply_log(machines[2], 2 * AUDIT_EVERY + 77, 50, 0);
    copy_to(machines[2], machines[1]);
    struct audit_ring ring;
    machine_sums(machines[1], &ring);
    cr_assert_eq(ring.count, 0); /* its own say nothing about this state */
    machine_sums(machines[2], &ring);
    machine_sums_set(machines[1], &ring);
    cr_assert_eq(judged(machines, 1).verdict, AUDIT_EQUAL);
    for (size_t i = 0; i < 3; i++) apply_log(machines[i], 4 * AUDIT_EVERY, 20 + (unsigned)i, 0);
    sums_equal(machines[0], machines[2], 4);
    sums_equal(machines[0], machines[1], 4);
    cr_assert_eq(sum_of(machines[0]), sum_of(machines[1]));
    for (int i = 0; i < 3; i++) {
        machine_close(machines[i]);
        scratch_remove(folders[i]);
    }
}

Test(machine_audit, an_emptied_machine_begins_anew) {
    const char *folder = scratch_folder();
    struct machine *machine = open_at(folder, 0);
    apply_log(machine, AUDIT_EVERY + 3, 50, 0);
    uint64_t sum = sum_of(machine);
    struct fault fault = {0};
    cr_assert_eq(machine_reset(machine, &fault), CO_OK, "%s", fault.text);
    cr_assert_eq(machine_applied(machine), 0);
    cr_assert_eq(sum_of(machine), 0);
    apply_log(machine, AUDIT_EVERY + 3, 50, 0);
    cr_assert_eq(sum_of(machine), sum);
    machine_close(machine);
    scratch_remove(folder);
}
