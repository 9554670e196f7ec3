/* Reads and watches of locks: who is woken by what, indexes that never go back, transitions, free names that are
 * forgotten, copies and backups. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "queues.h"
#include "registry/operator.h"

static struct fixture world;
static void setup(void) { queues_open(&world, 8); }
static void teardown(void) { fixture_close(&world); }
TestSuite(lock_reads, .init = setup, .fini = teardown, .timeout = 300);

#define STATE(name, expected) cr_expect_str_eq(lock_state(&world, name), expected, "%s", lock_state(&world, name))

/* -- watches ------------------------------------------------------------------------------------------------------ */

enum { PARTIES = 7 };
static struct watcher entries[PARTIES], name_watcher, prefix_watcher, other_name, other_prefix;

static void watch_all(void) {
    for (unsigned i = 0; i < PARTIES; i++)
        watcher_begin_entry(&entries[i], &world, SPACE_LOCK_ENTRY, "dir/l", (char)('a' + i));
    watcher_begin_at(&name_watcher, &world, (struct watch_key){SPACE_LOCK, SLICE_LITERAL("dir/l")});
    watcher_begin_at(&prefix_watcher, &world, (struct watch_key){SPACE_LOCK | WATCH_PREFIX_BIT, SLICE_LITERAL("dir/")});
    watcher_begin_at(&other_name, &world, (struct watch_key){SPACE_LOCK, SLICE_LITERAL("dir/")});
    watcher_begin_at(&other_prefix, &world, (struct watch_key){SPACE_LOCK | WATCH_PREFIX_BIT, SLICE_LITERAL("dir/l/")});
}

static void unwatch_all(void) {
    struct watcher *others[] = {&name_watcher, &prefix_watcher, &other_name, &other_prefix};
    for (unsigned i = 0; i < PARTIES; i++) watcher_end(&entries[i], &world);
    for (unsigned i = 0; i < ARRAY_COUNT(others); i++) watcher_end(others[i], &world);
}

/* The sessions whose entries woke somebody since the last call, and '*' when the lock's own watchers were. */
static const char *woken(void) {
    static char text[PARTIES + 2];
    size_t size = 0;
    unsigned name = watcher_woken(&name_watcher), prefix = watcher_woken(&prefix_watcher);
    for (unsigned i = 0; i < PARTIES; i++) {
        unsigned times = watcher_woken(&entries[i]);
        cr_expect_leq(times, 1, "%c", 'a' + i);
        if (times) text[size++] = (char)('a' + i);
    }
    cr_expect(name == prefix && name <= 1 && !watcher_woken(&other_name) && !watcher_woken(&other_prefix));
    if (name) text[size++] = '*';
    text[size] = '\0';
    return text;
}
static void forget_woken(void) {
    (void)watcher_woken(&name_watcher), (void)watcher_woken(&prefix_watcher);
    for (unsigned i = 0; i < PARTIES; i++) (void)watcher_woken(&entries[i]);
}
#define WOKEN(expected)                                   \
    do {                                                  \
        const char *woken_ = woken();                     \
        cr_expect_str_eq(woken_, expected, "%s", woken_); \
    } while (0)

Test(lock_reads, a_hand_over_wakes_who_is_granted_and_who_left_and_nobody_else) {
    watch_all();
    LOCK(&world, "dir/l", 'a');
    WOKEN("a*");
    LOCK(&world, "dir/l", 'b');
    WOKEN("b*");
    LOCK(&world, "dir/l", 'c', .shared = true);
    LOCK(&world, "dir/l", 'd', .shared = true);
    LOCK(&world, "dir/l", 'e');
    LOCK(&world, "dir/l", 'f');
    STATE("dir/l", "A|BcdEF");
    forget_woken();
    lock_release(&world, "dir/l", 'a');
    WOKEN("ab*");
    lock_release(&world, "dir/l", 'b');
    WOKEN("bcd*");
    lock_release(&world, "dir/l", 'c');
    WOKEN("c*");
    lock_release(&world, "dir/l", 'e');
    WOKEN("e*");
    session_drop(&world, session_of('d'));
    WOKEN("df*");
    LOCK(&world, "dir/l", 'f');
    LOCK(&world, "dir/l", 'g', .asks = true);
    lock_release(&world, "dir/l", 'g');
    LOCK(&world, "dir/l", 'g', .limit = 3);
    LOCK(&world, "dir/m", 'f');
    lock_release(&world, "dir/m", 'f');
    (void)watcher_woken(&prefix_watcher);
    WOKEN("");
    unwatch_all();
}

Test(lock_reads, a_lock_delay_wakes_nobody_until_it_is_over) {
    cr_assert(session_on(&world, 'y', "n1", 5000000000).yes);
    LOCK(&world, "dir/l", 'y');
    LOCK(&world, "dir/l", 'b');
    LOCK(&world, "dir/l", 'c');
    watch_all();
    uint64_t index = session_drop(&world, session_of('y')).index;
    WOKEN("*");
    lock_delay_over(&world, "dir/l", index - 1, world.term);
    WOKEN("");
    lock_delay_over(&world, "dir/l", index, world.term);
    WOKEN("b*");
    unwatch_all();
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static uint64_t index_of(const char *name) {
    Pb__QueueRequest request = PB__QUEUE_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name;
    return fixture_ask(&world, &query_lock, &request.base).index;
}

static const Pb__QueueListResult *list(const char *prefix, uint64_t *index) {
    Pb__QueueListRequest request = PB__QUEUE_LIST_REQUEST__INIT;
    request.prefix = (char *)(uintptr_t)prefix;
    struct query_result result = fixture_ask(&world, &query_locks, &request.base);
    cr_assert(result.found);
    *index = result.index;
    return (const Pb__QueueListResult *)result.message;
}

static uint64_t list_index(const char *prefix) {
    uint64_t index;
    (void)list(prefix, &index);
    return index;
}

static struct answer holder(const char *name, uint64_t token) {
    Pb__QueueRequest request = PB__QUEUE_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name, request.token = token;
    struct query_result result = fixture_ask(&world, &query_lock_holder, &request.base);
    struct answer answer = {.yes = result.found, .index = result.index, .who = '-'};
    if (result.found) answer.who = letter_of(((const Pb__QueueAnswer *)result.message)->session);
    return answer;
}

Test(lock_reads, an_entry_has_the_index_of_its_last_change_also_when_it_is_gone) {
    cr_expect(!lock_entry(&world, "l", 'a').yes && lock_entry(&world, "l", 'a').index == 0);
    uint64_t held = LOCK(&world, "l", 'b').index, place = LOCK(&world, "l", 'a').index;
    struct answer waits = lock_entry(&world, "l", 'a');
    cr_expect(waits.yes && !waits.held && waits.position == 1 && waits.waiters == 1 && waits.index == place);
    cr_expect_eq(lock_entry(&world, "l", 'b').index, held);
    LOCK(&world, "l", 'c');
    cr_expect_eq(lock_entry(&world, "l", 'a').index, place, "others come, that changes nothing of it");
    uint64_t released = lock_release(&world, "l", 'b').index;
    struct answer granted = lock_entry(&world, "l", 'a');
    cr_expect(granted.held && granted.position == 0 && granted.token == released && granted.index == released);
    cr_expect(!lock_entry(&world, "l", 'b').yes && lock_entry(&world, "l", 'b').index == released);
    uint64_t left = lock_release(&world, "l", 'a').index;
    cr_expect(!lock_entry(&world, "l", 'a').yes && lock_entry(&world, "l", 'a').index == left);
    uint64_t again = LOCK(&world, "l", 'a').index;
    cr_expect(lock_entry(&world, "l", 'a').index == again && again > left);
}

Test(lock_reads, a_holder_is_found_by_its_token) {
    uint64_t token = LOCK(&world, "l", 'a').token;
    struct answer found = holder("l", token);
    cr_expect(found.yes && found.who == 'a');
    cr_expect(!holder("l", token + 1).yes && !holder("l", 0).yes && !holder("l", UINT64_MAX).yes);
    cr_expect(!holder("none", token).yes);
    LOCK(&world, "l", 'b', .shared = true);
    LOCK(&world, "l", 'c', .shared = true);
    cr_expect_not(holder("l", UINT64_MAX).yes, "those who wait hold nothing");
    uint64_t shared = lock_release(&world, "l", 'a').index;
    cr_expect(!holder("l", token).yes && holder("l", token).index == shared);
    cr_expect(holder("l", shared).yes && holder("l", shared).who == '-', "several have it: it names nobody");
    fixture_forget(&world);
    struct store_txn *txn = store_read(world.reader);
    cr_expect_eq(queue_holds(txn, &lock_family, SLICE_LITERAL("l"), shared, &world.arena), CO_NOTFOUND,
                 "it is no fence");
    cr_expect_eq(queue_holds(txn, &lock_family, SLICE_LITERAL("l"), token, &world.arena), CO_NOTFOUND);
    lock_release(&world, "l", 'b');
    cr_expect_eq(holder("l", shared).who, '-', "nor when the others have left");
    uint64_t own = LOCK(&world, "l", 'c', .shared = true).token;
    cr_expect(own > shared && holder("l", own).who == 'c' && !holder("l", shared).yes);
    txn = (fixture_forget(&world), store_read(world.reader));
    cr_expect_eq(queue_holds(txn, &lock_family, SLICE_LITERAL("l"), own, &world.arena), CO_OK);
    lock_release(&world, "l", 'c');
    cr_expect_not(holder("l", shared).yes);
}

Test(lock_reads, the_list_has_what_somebody_is_in) {
    uint64_t index, before;
    cr_expect(list("", &index)->n_queues == 0 && index == 0);
    LOCK(&world, "b/1", 'a');
    LOCK(&world, "a/2", 'a', .shared = true);
    LOCK(&world, "a/1", 'a');
    uint64_t last_in_a = LOCK(&world, "a/1", 'b').index, last = LOCK(&world, "b/2", 'a').index;
    const Pb__QueueListResult *locks = list("a/", &index);
    cr_assert_eq(locks->n_queues, 2);
    cr_expect(strcmp(locks->queues[0]->name, "a/1") == 0 && strcmp(locks->queues[1]->name, "a/2") == 0);
    cr_expect(locks->queues[0]->n_holders == 1 && locks->queues[0]->n_waiters == 1 && locks->queues[1]->n_holders == 1);
    cr_expect_eq(index, last_in_a);
    cr_expect(list("", &before)->n_queues == 4 && before == last);
    uint64_t freed = lock_release(&world, "a/2", 'a').index;
    cr_expect(list("a/", &index)->n_queues == 1 && index == freed);
    cr_expect(list("b/", &index)->n_queues == 2 && index == last);
    cr_expect(list("a/1", &index)->n_queues == 1 && list("c", &index)->n_queues == 0);
}

Test(lock_reads, a_view_shows_the_first_of_those_that_wait) {
    char id[UUID_TEXT_SIZE + 1];
    LOCK(&world, "l", 'a');
    for (unsigned i = 0; i < 1005; i++) {
        Pb__QueueAcquireCommand command = PB__QUEUE_ACQUIRE_COMMAND__INIT;
        Pb__SessionUse use = PB__SESSION_USE__INIT;
        session_id(100 + i, id);
        cr_assert(session_make(&world, id, &(struct session_plan){.node = "n1"}).yes);
        use.id = id, command.session = &use, command.name = (char *)(uintptr_t) "l", command.enqueue = true;
        cr_assert_eq(queues_apply(&world, LOCK_ACQUIRE, &command.base).position, i + 1);
    }
    Pb__QueueRequest request = PB__QUEUE_REQUEST__INIT;
    request.name = (char *)(uintptr_t) "l";
    struct query_result result = fixture_ask(&world, &query_lock, &request.base);
    const Pb__QueueView *view = (const Pb__QueueView *)result.message;
    cr_expect(view->queue->waiters == 1005 && view->n_waiters == 1000 && view->n_holders == 1);
    session_id(100, id);
    cr_expect_str_eq(view->waiters[0]->session, id);
}

/* -- transitions -------------------------------------------------------------------------------------------------- */

Test(lock_reads, transitions_tell_what_happened_and_why) {
    cr_assert(session_on(&world, 'y', "n1", 5000000000).yes);
    LOCK(&world, "l", 'y');
    LOCK(&world, "l", 'a');
    LOCK(&world, "l", 'b');
    LOCK(&world, "l", 'c');
    lock_release(&world, "l", 'b');
    session_drop(&world, session_of('c'));
    uint64_t index = session_drop(&world, session_of('y')).index;
    lock_delay_over(&world, "l", index, world.term);
    lock_release(&world, "l", 'a');
    static const char expected[] =
        "taken y, queued a, queued b, queued c, left-the-queue b, waiter-ended c, ended y, "
        "delay-over -, passed-on a, released a";
    cr_expect_str_eq(lock_transitions(&world, "l"), expected, "%s", lock_transitions(&world, "l"));
    fixture_reopen(&world);
    LOCK(&world, "l", 'd');
    const char *after = lock_transitions(&world, "l");
    cr_expect(strlen(after) == sizeof expected - 1 + 9 && strcmp(after + sizeof expected - 1, ", taken d") == 0,
              "remembered while it was free: %s", after);
}

Test(lock_reads, the_newest_transitions_are_kept) {
    for (unsigned i = 0; i < 15; i++) {
        LOCK(&world, "l", 'a');
        lock_release(&world, "l", 'a');
    }
    LOCK(&world, "l", 'b');
    const char *text = lock_transitions(&world, "l");
    unsigned count = 1;
    for (const char *at = text; (at = strchr(at, ',')) != NULL; at++) count++;
    cr_expect_eq(count, 20);
    cr_expect(strncmp(text, "released a, taken a", 19) == 0 && strcmp(text + strlen(text) - 7, "taken b") == 0, "%s",
              text);
}

/* -- free names --------------------------------------------------------------------------------------------------- */

/* Acquires and releases so many new names, in batches. */
static void use_names(unsigned count) {
    enum { BATCH = 100 };
    static Pb__QueueAcquireCommand acquires[BATCH];
    static Pb__QueueReleaseCommand releases[BATCH];
    static char names[BATCH][16];
    static struct outcome answers[2 * BATCH];
    static unsigned next;
    struct command commands[2 * BATCH];
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    char id[UUID_TEXT_SIZE + 1];
    session_id(1, use.id = id);
    for (unsigned end = next + count; next < end; next += BATCH) {
        for (unsigned i = 0; i < BATCH; i++) {
            snprintf(names[i], sizeof names[i], "n/%05u", next + i);
            pb__queue_acquire_command__init(&acquires[i]);
            pb__queue_release_command__init(&releases[i]);
            acquires[i].name = releases[i].name = names[i];
            acquires[i].session = &use, releases[i].session = id;
            commands[2 * i] = (struct command){LOCK_ACQUIRE, &acquires[i].base};
            commands[2 * i + 1] = (struct command){LOCK_RELEASE, &releases[i].base};
        }
        fixture_apply_all(&world, commands, 2 * BATCH, answers);
        for (unsigned i = 0; i < 2 * BATCH; i++) cr_assert(answers[i].yes, "%s", answers[i].text);
    }
}

Test(lock_reads, names_that_are_free_for_long_are_forgotten_and_nothing_goes_back) {
    struct watcher first, later;
    uint64_t token = LOCK(&world, "first", 'a').token;
    uint64_t freed = lock_release(&world, "first", 'a').index;
    LOCK(&world, "held", 'a');
    use_names(QUEUE_FREE_KEPT - 100);
    LOCK(&world, "n/later", 'a');
    lock_release(&world, "n/later", 'a');
    watcher_begin_at(&first, &world, (struct watch_key){SPACE_LOCK, SLICE_LITERAL("first")});
    watcher_begin_at(&later, &world, (struct watch_key){SPACE_LOCK, SLICE_LITERAL("n/later")});
    cr_expect(index_of("first") == freed && lock_transitions(&world, "first")[0]);
    uint64_t entry = lock_entry(&world, "first", 'a').index, first_list = list_index("f"), by_token;
    by_token = holder("first", token).index;
    use_names(200);
    cr_expect_str_eq(lock_transitions(&world, "first"), "", "forgotten");
    cr_expect_str_eq(lock_transitions(&world, "n/later"), "taken a, released a", "not yet");
    cr_expect_eq(watcher_woken(&first), 1);
    cr_expect_eq(watcher_woken(&later), 0);
    uint64_t forgotten = index_of("first");
    cr_expect_gt(forgotten, freed);
    cr_expect(list_index("f") == forgotten && first_list == freed);
    cr_expect(lock_entry(&world, "first", 'a').index >= entry && holder("first", token).index >= by_token);
    STATE("held", "A|");
    struct answer again = LOCK(&world, "first", 'b');
    cr_expect(again.held && again.token > token && again.token > forgotten);
    cr_expect(index_of("first") == again.index && list_index("f") == again.index);
    fixture_forget(&world);
    cr_expect_eq(store_count(store_read(world.reader), lock_family.aside), QUEUE_FREE_KEPT);
    store_read_done(world.reader);
    watcher_end(&first, &world);
    watcher_end(&later, &world);
    (void)fixture_sum(&world);
}

/* -- copies ------------------------------------------------------------------------------------------------------- */

static int copy_of(struct fixture *from, uint64_t *size) {
    uint64_t index, term;
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    cr_assert(fd >= 0);
    cr_assert_eq(machine_copy(from->machine, fd, &index, &term), CO_OK);
    *size = (uint64_t)lseek(fd, 0, SEEK_END);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

Test(lock_reads, a_copy_goes_on_where_the_original_stood) {
    struct fixture copy;
    struct fault fault = {0};
    uint64_t size, token = LOCK(&world, "l", 'a').token, freed;
    LOCK(&world, "free", 'a');
    freed = lock_release(&world, "free", 'a').index;
    LOCK(&world, "l", 'b', .shared = true);
    LOCK(&world, "l", 'c', .shared = true);
    fixture_open(&copy);
    int fd = copy_of(&world, &size);
    cr_assert_eq(machine_install(copy.machine, fd, size, &fault), CO_OK, "%s", fault.text);
    close(fd);
    cr_expect_eq(fixture_sum(&copy), fixture_sum(&world));
    cr_expect_str_eq(lock_state(&copy, "l"), "A|bc");
    struct answer original = lock_release(&world, "l", 'a'), copied = lock_release(&copy, "l", 'a');
    cr_expect(original.yes && copied.yes && copied.index == original.index && copied.index > token);
    cr_expect_str_eq(lock_state(&copy, "l"), "bc|");
    cr_expect_gt(LOCK(&copy, "free", 'd').token, freed);
    LOCK(&world, "free", 'd');
    cr_expect_eq(fixture_sum(&copy), fixture_sum(&world));
    fixture_close(&copy);
}

/* As an operator restores a backup. */
static uint64_t restore(struct fixture *to, int fd, uint64_t size) {
    static char id[] = "0123456789abcdef", part[600];
    fixture_forget(to); /* it waits for reads */
    for (uint64_t offset = 0; offset < size;) {
        Pb__RestoreChunkCommand command = PB__RESTORE_CHUNK_COMMAND__INIT;
        ssize_t got = read(fd, part, sizeof part);
        cr_assert(got > 0);
        command.id = (ProtobufCBinaryData){OPERATOR_RESTORE_ID, (uint8_t *)id};
        command.offset = offset, command.data = (ProtobufCBinaryData){(size_t)got, (uint8_t *)part};
        cr_assert_eq(fixture_apply(to, OPERATOR_RESTORE_CHUNK, &command.base).error, CO_OK);
        offset += (uint64_t)got;
    }
    Pb__RestoreEndCommand command = PB__RESTORE_END_COMMAND__INIT;
    command.id = (ProtobufCBinaryData){OPERATOR_RESTORE_ID, (uint8_t *)id}, command.size = size;
    struct outcome end = fixture_apply(to, OPERATOR_RESTORE_END, &command.base);
    cr_assert_eq(end.error, CO_OK, "%s", end.text);
    return end.index;
}

Test(lock_reads, after_a_backup_of_before_tokens_grow_beyond_those_of_after) {
    uint64_t size, token = LOCK(&world, "l", 'a').token;
    LOCK(&world, "l", 'b');
    int fd = copy_of(&world, &size);
    for (char who = 'c'; who < 'h'; who++) LOCK(&world, "l", who);
    for (char who = 'a'; who < 'g'; who++) lock_release(&world, "l", who);
    uint64_t newest = lock_entry(&world, "l", 'g').token, restored = restore(&world, fd, size);
    close(fd);
    STATE("l", "A|B");
    cr_expect(newest > token && restored > newest && !lock_entry(&world, "l", 'a').held);
    cr_expect(index_of("l") <= restored && machine_floor_now(world.machine) == restored);
    cr_expect_not(holder("l", token).yes, "others have had a higher one");
    cr_expect_gt(LOCK(&world, "l", 'a').token, restored);
    STATE("l", "A|B");
    cr_assert(lock_release(&world, "l", 'a').yes);
    cr_expect_gt(lock_entry(&world, "l", 'b').token, newest);
    (void)fixture_sum(&world);
}

Test(lock_reads, after_a_backup_of_a_cluster_that_was_further_on_tokens_go_on_from_there) {
    struct fixture young;
    uint64_t size;
    use_names(1000);
    uint64_t token = LOCK(&world, "l", 'a').token;
    LOCK(&world, "l", 'b');
    int fd = copy_of(&world, &size);
    queues_open(&young, 3);
    uint64_t own = LOCK(&young, "l", 'c').token;
    uint64_t restored = restore(&young, fd, size);
    close(fd);
    cr_expect(own < token && restored > token);
    cr_expect_str_eq(lock_state(&young, "l"), "A|B");
    cr_assert(lock_release(&young, "l", 'a').yes);
    cr_expect_gt(lock_entry(&young, "l", 'b').token, restored);
    fixture_close(&young);
}
