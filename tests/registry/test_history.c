/* The history: its rows, its floor, and what it keeps. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "catalog_specs.h"
#include "history_rows.h"
#include "registry/history_internal.h"
#include "registry/version.h"

static struct fixture f;

static void setup(void) {
    fixture_open(&f);
    fixture_found(&f);
}
static void teardown(void) { fixture_close(&f); }

static uint64_t cas_fails(struct fixture *to, const char *key) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = PB__KV_VERB__KV_CAS, command.index = 1000000;
    command.key = binary_text(key);
    struct outcome outcome = fixture_apply(to, KV_APPLY, &command.base);
    cr_assert_not(outcome.yes);
    return outcome.index;
}

/* The updates about the history that the leader got since the last call: "began 25; ended 0; ", in milliseconds. */
static const char *updates(void) {
    static char text[256];
    size_t size = 0;
    text[0] = '\0';
    for (struct expiry_update *update = expiry_updates_take(f.updates), *next; update; update = next) {
        next = update->next;
        if (update->kind == &history_expiry)
            size += (size_t)snprintf(text + size, sizeof text - size, "%s %lld; ", update->ended ? "ended" : "began",
                                     (long long)(update->period_ns / 1000000));
        free(update);
    }
    return text;
}

/* -- rows --------------------------------------------------------------------------------------------------------- */

Test(history, it_begins_when_the_cluster_is_founded) {
    fixture_open(&f);
    put(&f, "a", "1");
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), UINT64_MAX);
    struct outcome early = mark_limits(&f, 1000, 10, 1000, 1000);
    cr_assert_eq(early.error, CO_CONFLICT);
    cr_assert_str_eq(early.text, "no history yet");
    (void)updates();
    fixture_found(&f);
    uint64_t began = machine_index(f.machine);
    cr_assert_str_eq(updates(), "began 0; ", "the leader says its settings at once");
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), began);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 0);
    uint64_t index = put(&f, "a", "2");
    cr_assert_str_eq(row_text(&f, HISTORY_KEYS, index), "32: a was <32>a");
    struct seen_rows rows = rows_of(&f, HISTORY_KEYS);
    cr_assert(rows.count == 1 && rows.first == index);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), began);
    fixture_close(&f);
}

/* In one batch with what comes before and after. */
Test(history, it_begins_in_the_midst_of_a_batch) {
    fixture_open(&f);
    Pb__ClusterVersionCommand raise = PB__CLUSTER_VERSION_COMMAND__INIT;
    raise.version = MACHINE_VERSION_NEWEST, raise.cluster_id = 7;
    Pb__KvCommand kv = PB__KV_COMMAND__INIT;
    kv.key = binary_text("a"), kv.value = binary_text("1");
    Pb__KvCommand next = kv;
    next.value = binary_text("2");
    struct command commands[] = {{KV_APPLY, &kv.base}, {CLUSTER_VERSION, &raise.base}, {KV_APPLY, &next.base}};
    struct outcome outcomes[3];
    fixture_apply_all(&f, commands, 3, outcomes);
    struct seen_rows rows = rows_of(&f, HISTORY_KEYS);
    cr_assert(rows.count == 1 && rows.first == outcomes[2].index);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), outcomes[1].index);
    fixture_close(&f);
}

Test(history, rows_say_what_an_entry_changed, .init = setup, .fini = teardown) {
    uint64_t first = put(&f, "a", "1"), none = cas_fails(&f, "a"), second = put(&f, "a", "2");
    cr_assert_str_eq(row_text(&f, HISTORY_KEYS, first), "32: a <32>a");
    cr_assert_str_eq(row_text(&f, HISTORY_KEYS, none), "-", "an entry that changes nothing has no row");
    cr_assert_str_eq(row_text(&f, HISTORY_KEYS, second), "32: a was <32>a");
    cr_assert_eq(rows_of(&f, HISTORY_CATALOG).count, 0, "each topic has its own");
    put(&f, "b/1", ""), put(&f, "b/2", ""), put(&f, "c", "");
    Pb__KvCommand tree = PB__KV_COMMAND__INIT;
    tree.verb = PB__KV_VERB__KV_DELETE_TREE, tree.key = binary_text("b/");
    uint64_t deleted = fixture_apply(&f, KV_APPLY, &tree.base).index;
    cr_assert_str_eq(row_text(&f, HISTORY_KEYS, deleted), "32: b/1 was b/2 was <32>b/1 <32>b/2");
    uint64_t node = fixture_register(&f, "node=n1 addr=10.0.0.1").index;
    cr_assert_eq(rows_of(&f, HISTORY_CATALOG).first, node);
    cr_assert_str_eq(row_text(&f, HISTORY_KEYS, node), "-");
    Pb__HistoryMarkCommand odd = PB__HISTORY_MARK_COMMAND__INIT;
    odd.term = 1;
    uint64_t marked = fixture_apply(&f, HISTORY_MARK, &odd.base).index;
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).last, deleted, "a mark has none: %lu", marked);
}

Test(history, a_walk_begins_after_any_index, .init = setup, .fini = teardown) {
    uint64_t indexes[20];
    for (size_t i = 0; i < ARRAY_COUNT(indexes); i++) {
        indexes[i] = change(&f);
        if (i % 3 == 0) cas_fails(&f, "a");
    }
    for (uint64_t after = 0; after <= indexes[19] + 2; after++) {
        size_t next = 0;
        while (next < 20 && indexes[next] <= after) next++;
        struct history_walk walk;
        history_walk_open(&walk, store_read(f.reader), HISTORY_KEYS, after);
        cr_assert_eq(walk.valid, next < 20);
        if (walk.valid) cr_assert_eq(walk.row.index, indexes[next]);
        history_walk_close(&walk);
        store_read_done(f.reader);
    }
    struct history_walk walk;
    history_walk_open(&walk, store_read(f.reader), HISTORY_KEYS, UINT64_MAX);
    cr_assert_not(walk.valid);
    history_walk_close(&walk);
    store_read_done(f.reader);
}

Test(history, the_past_has_bounds, .init = setup, .fini = teardown) {
    uint64_t floor = floor_of(&f, HISTORY_KEYS), last = put(&f, "a", "1");
    for (uint64_t at = 0; at <= last + 1; at++) {
        struct store_past *past;
        struct store_txn *txn = store_read(f.reader);
        int error = history_read_past(txn, HISTORY_KEYS, at, &past);
        cr_assert_eq(error, at < floor ? CO_GONE : at > last ? CO_INVALID : CO_OK, "at %lu", at);
        if (error == CO_OK) history_past_end(txn, past);
        store_read_done(f.reader);
    }
}

/* -- times -------------------------------------------------------------------------------------------------------- */

static uint64_t put_at(uint64_t unix_ms, const char *key) {
    f.unix_ms = unix_ms;
    return put(&f, key, key);
}

static struct history_place row_place(uint64_t index, uint64_t *previous_ms) {
    struct history_walk walk;
    struct history_place place = {0};
    history_walk_open(&walk, store_read(f.reader), HISTORY_KEYS, index - 1);
    if (walk.valid) place = (struct history_place){walk.row.index, walk.row.unix_ms};
    if (walk.valid) *previous_ms = walk.row.previous.unix_ms;
    history_walk_close(&walk);
    store_read_done(f.reader);
    return place;
}

/* The verdict on a time; *index: what it means. */
static int moment_of(uint64_t unix_ms, uint64_t now_ms, uint64_t *index) {
    struct store_txn *txn = store_read(f.reader);
    struct history_moment moment = {.unix_ms = unix_ms, .now_ms = now_ms};
    struct history_place present = {machine_index_in(txn), machine_unix_ms_in(txn)};
    int rv = history_moment(txn, HISTORY_KEYS, &moment, present, index);
    store_read_done(f.reader);
    return rv;
}

/* A leader whose clock is behind: its entries have the time of the one before, until its clock has caught up. So it stays
 * over a restart, for entries that have no time, and for those that change nothing. */
Test(history, time_never_goes_back, .init = setup, .fini = teardown) {
    static const uint64_t clocks[] = {5000, 5500, 1000, 0, 5400, 5500, 5501, 2, 9000};
    uint64_t highest = 0, before = 0, index, previous_ms;
    for (size_t i = 0; i < ARRAY_COUNT(clocks); i++) {
        char key[] = {(char)('a' + i), '\0'};
        uint64_t at = put_at(clocks[i], key);
        if (clocks[i] > highest) highest = clocks[i];
        struct history_place row = row_place(at, &previous_ms);
        cr_assert(row.index == at && row.unix_ms == highest, "%zu: %lu", i, row.unix_ms);
        cr_assert_eq(previous_ms, before, "%zu", i);
        before = highest;
        if (i % 3 == 2) fixture_reopen(&f);
    }
    cr_assert_eq(moment_of(9000, 0, &index), CO_OK);
    cr_assert_eq(index, machine_index(f.machine));
    cas_fails(&f, "a");
    f.unix_ms = 12000;
    cas_fails(&f, "a"); /* it has no row, but it is the present */
    cr_assert_eq(moment_of(12000, 0, &index), CO_OK);
    cr_assert_eq(index, machine_index(f.machine) - 2);
    cr_assert_eq(moment_of(12001, 0, &index), CO_INVALID);
    cr_assert_eq(moment_of(12001, 12001, &index), CO_OK, "the agent's clock is further on: nothing has changed since");
}

Test(history, a_time_is_the_newest_change_that_is_not_after_it, .init = setup, .fini = teardown) {
    uint64_t indexes[6], index;
    limit(&f, 1000, 1 << 20, 1000000); /* which turns nothing on or off */
    for (size_t i = 0; i < 6; i++) indexes[i] = put_at(1000 + 100 * (i / 2), (char[]){(char)('a' + i), '\0'});
    for (uint64_t unix_ms = 1000; unix_ms < 1300; unix_ms += 25) {
        cr_assert_eq(moment_of(unix_ms, 9999, &index), CO_OK);
        cr_assert_eq(index, indexes[(unix_ms - 1000) / 100 * 2 + 1], "%lu",
                     unix_ms); /* of two of a millisecond the later */
    }
    cr_assert_eq(moment_of(999, 9999, &index), CO_OK, "the history began before there were times");
    cr_assert_lt(index, indexes[0]);
    limit(&f, 4, 1 << 20, 1000000);
    put_at(1300, "g");
    cr_assert_eq(moment_of(1000, 9999, &index), CO_GONE);
    cr_assert_eq(moment_of(1099, 9999, &index), CO_GONE);
    cr_assert_eq(moment_of(1100, 9999, &index), CO_OK);
    cr_assert_eq(index, indexes[3]);
}

/* Rows that go by age, by a break or because history is off leave a floor with a time, too. */
Test(history, a_floor_has_a_time, .init = setup, .fini = teardown) {
    uint64_t index;
    put_at(2000, "a");
    limit(&f, 0, 1 << 20, 1000000);
    f.unix_ms = 3000;
    limit(&f, 1000, 1 << 20, 1000);
    put_at(3500, "b");
    cr_assert_eq(moment_of(2999, 9999, &index), CO_GONE);
    cr_assert_eq(moment_of(3000, 9999, &index), CO_OK);
    f.unix_ms = 4000;
    mark(&f, 5000);
    put_at(4500, "c");
    mark(&f, 7000); /* the one of 4000 is old enough */
    cr_assert_eq(moment_of(3999, 9999, &index), CO_GONE);
    cr_assert_eq(moment_of(4000, 9999, &index), CO_OK);
    limit(&f, 1000, 1000, 1000000);
    char large[3000];
    memset(large, 'x', sizeof large - 1), large[sizeof large - 1] = '\0';
    f.unix_ms = 5000;
    put(&f, "c", large);
    f.unix_ms = 6000;
    put(&f, "c", "small"); /* what it takes away is more than a row may hold */
    cr_assert_eq(moment_of(5999, 9999, &index), CO_GONE);
    cr_assert_eq(moment_of(6000, 9999, &index), CO_OK);
    cr_assert_eq(index, machine_index(f.machine));
}

/* -- limits ------------------------------------------------------------------------------------------------------- */

Test(history, so_many_changes_are_kept, .init = setup, .fini = teardown) {
    limit(&f, 10, 1 << 20, 1000000);
    uint64_t floor = floor_of(&f, HISTORY_KEYS), catalog = floor_of(&f, HISTORY_CATALOG), indexes[40];
    for (size_t i = 0; i < 40; i++) {
        indexes[i] = change(&f);
        struct seen_rows rows = rows_of(&f, HISTORY_KEYS);
        cr_assert_eq(rows.count, i < 10 ? i + 1 : 10);
        if (i >= 10) floor = indexes[i - 10]; /* the one that went last */
        cr_assert_eq(floor_of(&f, HISTORY_KEYS), floor);
    }
    cr_assert_eq(floor_of(&f, HISTORY_CATALOG), catalog, "another topic keeps what it has");
    limit(&f, 3, 1 << 20, 1000000);
    change(&f);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 3, "fewer from the next change on");
    limit(&f, 100, 1 << 20, 1000000);
    floor = floor_of(&f, HISTORY_KEYS);
    for (size_t i = 0; i < 20; i++) change(&f);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 23);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), floor, "what is gone stays gone");
}

/* Of many some more go at once, so that not each entry looks for the oldest. */
Test(history, of_many_changes_some_go_at_once, .init = setup, .fini = teardown) {
    limit(&f, 1200, 1 << 30, 1000000);
    size_t least = 1200;
    for (size_t i = 0; i < 1400; i++) {
        change(&f);
        if (i < 1200 || i % 10) continue;
        size_t count = rows_of(&f, HISTORY_KEYS).count;
        cr_assert(count <= 1200 && count >= 1200 - 64, "%zu", count);
        if (count < least) least = count;
    }
    cr_assert_lt(least, 1190);
}

Test(history, so_many_bytes_are_kept, .init = setup, .fini = teardown) {
    char value[3000];
    memset(value, 'x', sizeof value - 1), value[sizeof value - 1] = '\0';
    limit(&f, 1000, 2000, 1000000);
    change(&f);
    for (size_t i = 0; i < 60; i++) {
        value[i * 3] = '\0'; /* what was there before is what the next row has */
        uint64_t floor = floor_of(&f, HISTORY_KEYS);
        put(&f, "a", value);
        value[i * 3] = 'x';
        struct seen_rows rows = rows_of(&f, HISTORY_KEYS);
        cr_assert(rows.count > 1 && rows.bytes <= 2000, "%zu rows, %lu bytes", rows.count, rows.bytes);
        cr_assert_geq(floor_of(&f, HISTORY_KEYS), floor);
    }
    put(&f, "a", value);
    uint64_t large = put(&f, "a", "small"); /* its row alone would be too large */
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 0);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), large);
    uint64_t next = put(&f, "a", "smaller");
    struct seen_rows rows = rows_of(&f, HISTORY_KEYS);
    cr_assert(rows.count == 1 && rows.first == next, "it goes on behind the break");
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), large);
}

static uint64_t delete_tree(struct fixture *to, const char *prefix) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = PB__KV_VERB__KV_DELETE_TREE, command.key = binary_text(prefix);
    return fixture_apply(to, KV_APPLY, &command.base).index;
}

/* An entry that is too large for a row breaks the history of its topic, and writes no more than it would without. The
 * older rows go in steps; other topics keep theirs; a process that was started again knows of the break. */
Test(history, an_entry_that_is_too_large_breaks_it, .init = setup, .fini = teardown) {
    char value[200], key[32];
    memset(value, 'x', sizeof value - 1), value[sizeof value - 1] = '\0';
    limit(&f, 100000, 100000, 1000000);
    for (size_t i = 0; i < 900; i++) snprintf(key, sizeof key, "t/%03zu", i), put(&f, key, value);
    for (size_t i = 0; i < 200; i++) change(&f);
    uint64_t before = floor_of(&f, HISTORY_KEYS), catalog = floor_of(&f, HISTORY_CATALOG), records;
    uint64_t gone = delete_tree(&f, "t/");
    cr_assert_gt(gone, before);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), gone);
    cr_assert_eq(floor_of(&f, HISTORY_CATALOG), catalog);
    cr_assert_str_eq(row_text(&f, HISTORY_KEYS, gone), "-");
    mark(&f, 1001), mark(&f, 1002);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 0);
    records = store_count(store_read(f.reader), 49);
    store_read_done(f.reader);
    cr_assert_eq(records, 1, "but the state's own");
    fixture_reopen(&f);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), gone);
    uint64_t next = change(&f);
    struct seen_rows rows = rows_of(&f, HISTORY_KEYS);
    cr_assert(rows.count == 1 && rows.first == next);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), gone);
}

Test(history, what_is_older_than_the_age_goes, .init = setup, .fini = teardown) {
    limit(&f, 1000, 1 << 20, 100);
    uint64_t marks[12], begin = floor_of(&f, HISTORY_KEYS);
    for (size_t i = 0; i < 12; i++) {
        change(&f);
        marks[i] = mark(&f, 2000 + (int64_t)i * 10);
    }
    cr_assert_geq(marks[0], begin);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), marks[1], "of 2010 when it is 2110");
    change(&f);
    mark(&f, 2129);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), marks[2], "of 2020: that of 2030 is 99 ms old");
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 10);
    cr_assert_gt(rows_of(&f, HISTORY_KEYS).first, marks[2]);
    (void)updates();
    uint64_t last = mark(&f, 5000);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 0);
    cr_assert_str_eq(updates(), "ended 0; ", "no row is left: no more marks");
    cr_assert_leq(floor_of(&f, HISTORY_KEYS), last);
    change(&f);
    cr_assert_str_eq(updates(), "began 10; ", "until there is one again");
    change(&f);
    cr_assert_str_eq(updates(), "", "one is enough");
}

/* A leader's clock may be ahead: what the next one says counts then, and nothing goes too early. */
Test(history, clocks_that_jump_back_keep_more_not_less, .init = setup, .fini = teardown) {
    limit(&f, 1000, 1 << 20, 100);
    change(&f);
    mark(&f, 900000);
    uint64_t floor = floor_of(&f, HISTORY_KEYS), kept = put(&f, "a", "y");
    uint64_t back = mark(&f, 2000);
    put(&f, "a", "z");
    mark(&f, 2050);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), floor);
    mark(&f, 2099);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), floor, "99 ms by the new clock");
    mark(&f, 2100);
    cr_assert_gt(floor_of(&f, HISTORY_KEYS), floor);
    cr_assert(floor_of(&f, HISTORY_KEYS) < kept || floor_of(&f, HISTORY_KEYS) <= back);
    mark(&f, 3000);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 0);
}

Test(history, clocks_may_say_anything, .init = setup, .fini = teardown) {
    limit(&f, 1000, 1 << 20, 100);
    static const int64_t times[] = {INT64_MAX, INT64_MIN, 0, INT64_MIN + 1, INT64_MAX};
    for (size_t i = 0; i < ARRAY_COUNT(times); i++) change(&f), mark(&f, times[i]);
    mark(&f, INT64_MAX);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 2, "those since the mark of 0, which is old in the end");
}

/* However often marks come: what is kept is not much older than the age. */
Test(history, frequent_marks_do_not_push_out_the_older_ones, .init = setup, .fini = teardown) {
    enum { AGE = 10000, STEPS = 3000, STEP = 25 };
    static uint64_t indexes[STEPS];
    limit(&f, 100000, 1 << 30, AGE);
    for (size_t i = 0; i < STEPS; i++) {
        indexes[i] = change(&f);
        mark(&f, 2000 + (int64_t)i * STEP);
        uint64_t floor = floor_of(&f, HISTORY_KEYS);
        size_t age = AGE / STEP, tenth = age / 10;
        if (i > age) cr_assert_lt(floor, indexes[i - age + 1], "what is younger is there at step %zu", i);
        if (i > age + tenth) cr_assert_gt(floor, indexes[i - age - tenth], "what is older is not at step %zu", i);
    }
}

Test(history, an_entry_removes_so_many_rows_at_most, .init = setup, .fini = teardown) {
    limit(&f, 100000, 1 << 30, 100);
    enum { ROWS = 2 * HISTORY_STEP + 500 };
    for (size_t i = 0; i < ROWS; i++) change(&f);
    uint64_t floor = mark(&f, 2000);
    for (size_t i = 0; i < 3; i++) fixture_register(&f, i % 2 ? "node=n1 addr=10.0.0.1" : "node=n1 addr=10.0.0.2");
    (void)updates();
    mark(&f, 3000);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, ROWS - HISTORY_STEP);
    cr_assert_str_eq(updates(), "began 25; ", "the next step soon");
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), floor, "it is not read even where it is still there");
    mark(&f, 3050);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, ROWS - 2 * HISTORY_STEP);
    (void)updates();
    mark(&f, 3099);
    cr_assert(rows_of(&f, HISTORY_KEYS).count == 0 && rows_of(&f, HISTORY_CATALOG).count > 0);
    cr_assert_str_eq(updates(), "began 10; ");
}

Test(history, off_and_on_again, .init = setup, .fini = teardown) {
    put(&f, "a", "1");
    cr_assert(mark_limits(&f, 1000, 0, 1000, 1000).yes);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), UINT64_MAX);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 0, "nothing is kept");
    put(&f, "a", "2");
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 0);
    mark(&f, 1100);
    struct outcome on = mark_limits(&f, 2000, 50, 100000, 1000);
    cr_assert(on.yes && rows_of(&f, HISTORY_KEYS).count == 0);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), on.index);
    uint64_t index = put(&f, "a", "3");
    cr_assert_str_eq(row_text(&f, HISTORY_KEYS, index), "32: a was <32>a");
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), on.index);
}

/* Whatever was in one batch: what happened while it was off is in no row. */
Test(history, off_and_on_in_one_batch, .init = setup, .fini = teardown) {
    Pb__HistoryMarkCommand off = PB__HISTORY_MARK_COMMAND__INIT, on = off;
    Pb__HistoryLimits nothing = PB__HISTORY_LIMITS__INIT, much = nothing;
    nothing.bytes = nothing.age_ms = 1000;
    much.changes = much.bytes = much.age_ms = 100000;
    off.term = on.term = 1, off.now_unix_ms = on.now_unix_ms = 1000, off.limits = &nothing, on.limits = &much;
    Pb__KvCommand kv = PB__KV_COMMAND__INIT;
    kv.key = binary_text("a"), kv.value = binary_text("1");
    Pb__KvCommand next = kv;
    next.value = binary_text("2");
    struct command commands[] = {{KV_APPLY, &kv.base},
                                 {HISTORY_MARK, &off.base},
                                 {KV_APPLY, &next.base},
                                 {HISTORY_MARK, &on.base},
                                 {KV_APPLY, &kv.base}};
    struct outcome outcomes[5];
    fixture_apply_all(&f, commands, 5, outcomes);
    struct seen_rows rows = rows_of(&f, HISTORY_KEYS);
    cr_assert(rows.count == 1 && rows.first == outcomes[4].index, "%zu rows", rows.count);
    cr_assert_eq(floor_of(&f, HISTORY_KEYS), outcomes[3].index);
    fixture_apply_all(&f, commands, 3, outcomes);
    struct outcome last[1];
    fixture_apply_all(&f, commands + 3, 1, last);
    cr_assert_eq(rows_of(&f, HISTORY_KEYS).count, 0, "nor what was in another one");
}

Test(history, marks_that_make_no_sense_are_refused, .init = setup, .fini = teardown) {
    put(&f, "a", "1");
    Pb__HistoryMarkCommand command = PB__HISTORY_MARK_COMMAND__INIT;
    command.term = 2, command.now_unix_ms = 1000;
    struct outcome outcome = fixture_apply(&f, HISTORY_MARK, &command.base);
    cr_assert_eq(outcome.error, CO_CONFLICT);
    cr_assert_str_eq(outcome.text, "proposed in another term");
    static const uint64_t bad[][3] = {{10, 0, 1000}, {10, 1000, 0}, {10, 1000, UINT64_MAX}, {0, 0, 0}};
    uint64_t sum = 0;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        outcome = mark_limits(&f, 1000, bad[i][0], bad[i][1], bad[i][2]);
        cr_assert_eq(outcome.error, CO_INVALID, "row %zu", i);
        struct seen_rows rows = rows_of(&f, HISTORY_KEYS);
        cr_assert(rows.count == 1 && (i == 0 || rows.bytes == sum));
        sum = rows.bytes;
    }
    cr_assert_neq(floor_of(&f, HISTORY_KEYS), UINT64_MAX);
}
