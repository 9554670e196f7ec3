/* Phasers in the replicated state: who is waited for, what an advance wakes and writes, trees, and what is refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "commands.h"
#include "kv/phaser/phaser.h"

#define SIGNAL_WAIT PB__PHASER_MODE__PHASER_SIGNAL_WAIT
#define SIGNAL      PB__PHASER_MODE__PHASER_SIGNAL
#define WAIT        PB__PHASER_MODE__PHASER_WAIT
#define SESSIONS    1100

static struct fixture world;
static char id[SESSIONS][UUID_TEXT_SIZE + 1];
static void setup(void) {
    fixture_open(&world);
    cr_assert(node_register(&world, "n1").yes);
    for (unsigned i = 0; i < SESSIONS; i++) session_id(i, id[i]);
    for (unsigned i = 0; i < 8; i++) cr_assert(session_make(&world, id[i], &(struct session_plan){.node = "n1"}).yes);
}
static void teardown(void) { fixture_close(&world); }
TestSuite(phaser, .init = setup, .fini = teardown);

static char *text(const char *constant) { return (char *)(uintptr_t)constant; }

/* -- commands, with what they answer ------------------------------------------------------------------------------ */

struct answer {
    int error;
    bool yes;
    uint64_t index, phase, now;
    uint32_t arrived, registered;
    bool advanced;
    Pb__PhaserMode mode;
    char text[400];
};

static void take(void *data, void *origin, const struct machine_result *result) {
    struct answer *answer = origin;
    (void)data;
    *answer = (struct answer){.error = result->error, .yes = result->yes, .index = result->index};
    if (result->text) snprintf(answer->text, sizeof answer->text, "%s", result->text);
    if (!result->message) return;
    if (result->message->descriptor == &pb__phaser_arrival__descriptor) {
        const Pb__PhaserArrival *arrival = (const Pb__PhaserArrival *)result->message;
        answer->phase = arrival->phase, answer->now = arrival->now, answer->arrived = arrival->arrived;
        answer->registered = arrival->registered, answer->advanced = arrival->advanced;
    } else {
        const Pb__PhaserRegistration *registration = (const Pb__PhaserRegistration *)result->message;
        answer->phase = registration->phase, answer->mode = registration->mode;
    }
}

static struct answer apply(uint8_t type, const ProtobufCMessage *message) {
    struct buffer bytes = {0};
    struct answer answer = {0};
    machine_command(&bytes, type, message);
    struct machine_input input = {.index = machine_applied(world.machine) + 1,
                                  .term = 1,
                                  .command = buffer_slice(&bytes),
                                  .is_command = true,
                                  .origin = &answer};
    cr_assert_eq(machine_apply(world.machine, &input, 1, take, NULL, NULL), CO_OK);
    buffer_free(&bytes);
    return answer;
}

static struct answer join_with(const char *name, const char *session, const char *made, Pb__PhaserMode mode,
                               const char *parent) {
    Pb__PhaserRegisterCommand command = PB__PHASER_REGISTER_COMMAND__INIT;
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    Pb__Session create = PB__SESSION__INIT;
    use.id = text(session);
    create.id = text(made), create.node = text("n1"), create.ttl_ns = 15000000000;
    if (made) use.create = &create;
    command.name = text(name), command.mode = mode, command.parent = text(parent), command.session = &use;
    return apply(PHASER_REGISTER, &command.base);
}
static struct answer join_as(const char *name, unsigned session, Pb__PhaserMode mode) {
    return join_with(name, id[session], NULL, mode, "");
}
static struct answer join(const char *name, unsigned session) { return join_as(name, session, SIGNAL_WAIT); }
static struct answer join_below(const char *name, unsigned session, const char *parent) {
    return join_with(name, id[session], NULL, SIGNAL_WAIT, parent);
}

static Pb__PhaserArriveCommand arrival(const char *name, unsigned session) {
    Pb__PhaserArriveCommand command = PB__PHASER_ARRIVE_COMMAND__INIT;
    command.name = text(name), command.session = id[session];
    return command;
}
static struct answer arrive(const char *name, unsigned session) {
    Pb__PhaserArriveCommand command = arrival(name, session);
    return apply(PHASER_ARRIVE, &command.base);
}
static struct answer arrive_in(const char *name, unsigned session, uint64_t phase) {
    Pb__PhaserArriveCommand command = arrival(name, session);
    command.phase = phase, command.has_phase = true;
    return apply(PHASER_ARRIVE, &command.base);
}

static struct answer leave(const char *name, unsigned session) {
    Pb__PhaserDeregisterCommand command = PB__PHASER_DEREGISTER_COMMAND__INIT;
    command.name = text(name), command.session = id[session];
    return apply(PHASER_DEREGISTER, &command.base);
}

/* -- what is there ------------------------------------------------------------------------------------------------ */

static struct query_result ask(const char *name) {
    Pb__PhaserRequest request = PB__PHASER_REQUEST__INIT;
    request.name = text(name);
    return fixture_ask(&world, &query_phaser, &request.base);
}
static const Pb__PhaserState *state(const char *name) {
    struct query_result result = ask(name);
    cr_assert(result.found, "%s", name);
    return (const Pb__PhaserState *)result.message;
}
static uint64_t phase(const char *name) { return state(name)->phaser->phase; }
static void expect_counts(const char *name, uint64_t at, uint32_t arrived, uint32_t registered) {
    const Pb__Phaser *phaser = state(name)->phaser;
    cr_expect(phaser->phase == at && phaser->arrived == arrived && phaser->registered == registered,
              "%s: phase %llu, %u of %u; wanted phase %llu, %u of %u", name, (unsigned long long)phaser->phase,
              phaser->arrived, phaser->registered, (unsigned long long)at, arrived, registered);
}

static Pb__PhaserAwaitRequest waiter_of(const char *name, unsigned session) {
    static struct arena arena;
    Pb__PhaserAwaitRequest request = PB__PHASER_AWAIT_REQUEST__INIT;
    arena_reset(&arena);
    request.name = text(name), request.session = id[session];
    phaser_await_key(&request, &arena);
    return request;
}
static struct query_result wait_look(const char *name, unsigned session) {
    Pb__PhaserAwaitRequest request = waiter_of(name, session);
    return fixture_ask(&world, &query_phaser_await, &request.base);
}

struct counter {
    struct watch_waiter waiter;
    unsigned fired;
};
static void count(struct watch_waiter *waiter) {
    CONTAINER_OF(waiter, struct counter, waiter)->fired++;
    watch_arm(waiter);
}
static void watch(struct counter *counter, struct watch_key watched) {
    *counter = (struct counter){0};
    watch_add(machine_watches(world.machine), &counter->waiter, watched, count);
}
static void watch_name(struct counter *counter, uint8_t space, const char *name) {
    watch(counter, (struct watch_key){space, slice_text(name)});
}
static void unwatch(struct counter *counter) { watch_remove(machine_watches(world.machine), &counter->waiter); }

/* -- one phaser --------------------------------------------------------------------------------------------------- */

Test(phaser, a_phase_is_over_when_all_who_signal_have_arrived) {
    cr_expect_eq(join("p", 0).phase, 0);
    cr_expect(join_as("p", 1, SIGNAL).yes && join_as("p", 2, WAIT).yes);
    struct answer first = arrive("p", 0);
    cr_expect(first.phase == 0 && first.arrived == 1 && first.registered == 2 && !first.advanced && first.now == 0);
    struct answer last = arrive("p", 1);
    cr_expect(last.phase == 0 && last.arrived == 2 && last.registered == 2 && last.advanced && last.now == 1);
    expect_counts("p", 1, 0, 2);
    const Pb__PhaserState *seen = state("p");
    cr_assert(seen->n_members == 3 && seen->n_children == 0);
    cr_expect(!seen->members[0]->arrived && !seen->members[1]->arrived && seen->members[2]->mode == WAIT);
    cr_expect_eq(seen->phaser->modify_index, last.index);
    arrive("p", 1);
    seen = state("p");
    cr_expect(!seen->members[0]->arrived && seen->members[1]->arrived, "each phase anew");
}

Test(phaser, who_comes_in_a_phase_is_waited_for_in_it_and_who_leaves_is_not) {
    join("p", 0), join("p", 1);
    arrive("p", 0);
    cr_expect_eq(join("p", 2).phase, 0);
    arrive("p", 1);
    expect_counts("p", 0, 2, 3);
    cr_expect(leave("p", 2).yes, "the only one that was missing");
    expect_counts("p", 1, 0, 2);
    arrive("p", 0);
    cr_expect(leave("p", 0).yes, "it has arrived, and takes that along");
    expect_counts("p", 1, 0, 1);
    cr_expect(arrive("p", 1).advanced);
}

Test(phaser, the_end_of_a_session_is_a_departure_in_the_same_entry) {
    join("p", 0), join("p", 1), join("q", 1), join("q", 2);
    arrive("p", 0), arrive("q", 2);
    uint64_t index = session_drop(&world, id[1]).index;
    expect_counts("p", 1, 0, 1);
    expect_counts("q", 1, 0, 1);
    cr_expect_eq(state("p")->phaser->modify_index, index);
    cr_expect(node_remove(&world, "n1").yes);
    cr_expect(!ask("p").found && !ask("q").found, "with the node all sessions end");
}

Test(phaser, a_repeat_is_answered_and_not_done_twice) {
    join("p", 0), join("p", 1);
    cr_expect(join("p", 0).yes && state("p")->phaser->registered == 2);
    arrive_in("p", 0, 0);
    struct answer again = arrive_in("p", 0, 0);
    cr_expect(again.yes && again.arrived == 1 && !again.advanced);
    cr_expect_eq(arrive("p", 0).arrived, 1, "without a phase: once in a phase");
    cr_expect(arrive_in("p", 1, 0).advanced);
    struct answer late = arrive_in("p", 0, 0);
    cr_expect(late.yes && late.phase == 0 && late.advanced && late.now == 1 && late.arrived == 2,
              "the answer was lost, and the phase is over");
    expect_counts("p", 1, 0, 2);
    cr_expect(leave("p", 0).yes);
    struct answer left = leave("p", 0);
    cr_expect(left.error == CO_OK && !left.yes && state("p")->phaser->registered == 1);
}

Test(phaser, the_last_one_that_signals_ends_the_phase_by_leaving) {
    join_as("p", 0, WAIT), join_as("p", 1, SIGNAL);
    struct counter waiter;
    watch_name(&waiter, SPACE_PHASER_PHASE, "p");
    cr_expect(leave("p", 1).yes);
    expect_counts("p", 1, 0, 0);
    cr_expect_eq(waiter.fired, 1, "it is woken");
    const Pb__PhaserAwait *seen = (const Pb__PhaserAwait *)wait_look("p", 0).message;
    cr_expect(seen->phase == 1 && seen->registered == 0, "and told that nobody signals any more");
    cr_expect_eq(join_as("p", 2, SIGNAL).phase, 1, "the phase waits for who comes");
    cr_expect(arrive("p", 2).advanced);
    cr_expect(leave("p", 0).yes);
    expect_counts("p", 2, 0, 1);
    unwatch(&waiter);
}

Test(phaser, it_ends_with_its_last_member_and_begins_anew_from_0) {
    join("p", 0);
    arrive("p", 0);
    struct query_result before = wait_look("p", 0);
    cr_assert(before.found);
    uint64_t registration = ((const Pb__PhaserAwait *)before.message)->create_index, index = before.index;
    struct counter own, others;
    Pb__PhaserAwaitRequest request = waiter_of("p", 0);
    watch(&own, query_phaser_await.own(&request.base));
    request = waiter_of("p", 1);
    watch(&others, query_phaser_await.own(&request.base));
    uint64_t left = leave("p", 0).index;
    cr_expect(own.fired == 1 && others.fired == 0, "its own wait ends, nobody else's");
    cr_expect(!ask("p").found && ask("p").index == left);
    struct query_result gone = wait_look("p", 0);
    cr_expect(!gone.found && gone.index == left && gone.index > index);
    cr_expect_eq(join("p", 0).phase, 0);
    struct query_result anew = wait_look("p", 0);
    cr_expect(anew.found && anew.index > left);
    cr_expect_neq(((const Pb__PhaserAwait *)anew.message)->create_index, registration, "another registration");
    unwatch(&own), unwatch(&others);
}

Test(phaser, only_the_advance_wakes_who_waits_and_readers_have_their_own_watch_key) {
    struct counter phase_waiter, reader, list;
    join("jobs/p", 0), join("jobs/p", 1);
    watch_name(&phase_waiter, SPACE_PHASER_PHASE, "jobs/p");
    watch_name(&reader, SPACE_PHASER, "jobs/p");
    watch_name(&list, SPACE_PHASER | WATCH_PREFIX_BIT, "jobs/");
    uint64_t index = wait_look("jobs/p", 0).index;
    arrive("jobs/p", 0), join("jobs/p", 2), join("other", 2), leave("jobs/p", 2);
    cr_expect(phase_waiter.fired == 0 && reader.fired == 3 && list.fired == 3, "%u %u %u", phase_waiter.fired,
              reader.fired, list.fired);
    cr_expect_eq(wait_look("jobs/p", 0).index, index);
    uint64_t advanced = arrive("jobs/p", 1).index;
    cr_expect(phase_waiter.fired == 1 && reader.fired == 4);
    cr_expect_eq(wait_look("jobs/p", 0).index, advanced);
    arrive("jobs/p", 1), arrive("jobs/p", 1);
    cr_expect_eq(reader.fired, 5, "a repeat changes nothing");
    unwatch(&phase_waiter), unwatch(&reader), unwatch(&list);
}

Test(phaser, a_session_made_by_registering_ends_with_its_last_registration) {
    struct answer made = join_with("p", "", id[20], SIGNAL_WAIT, "");
    cr_assert(made.yes, "%s", made.text);
    cr_expect(join("q", 20).yes);
    cr_expect(leave("p", 20).yes && session_get_by(&world, id[20]).found);
    cr_expect(leave("q", 20).yes && !session_get_by(&world, id[20]).found);
    join("p", 0), leave("p", 0);
    cr_expect(session_get_by(&world, id[0]).found, "one that a client made stays");
}

/* -- trees -------------------------------------------------------------------------------------------------------- */

Test(phaser, a_child_is_one_party_and_advances_with_its_parent) {
    join("root", 0);
    cr_expect_eq(arrive("root", 0).now, 1);
    cr_expect_eq(join_below("root/a", 1, "root").phase, 1, "the parent's phase");
    join_below("root/a", 2, "root"), join_below("root/b", 3, "root"), join("root/b", 4);
    expect_counts("root", 1, 0, 3);
    arrive("root/a", 1);
    expect_counts("root", 1, 0, 3);
    struct answer last = arrive("root/a", 2);
    cr_expect(last.arrived == 2 && last.registered == 2 && !last.advanced, "it waits for the parent");
    expect_counts("root", 1, 1, 3);
    expect_counts("root/a", 1, 2, 2);
    const Pb__PhaserState *seen = state("root");
    cr_assert(seen->n_children == 2);
    cr_expect(seen->children[0]->arrived && seen->children[0]->signals && !seen->children[1]->arrived);
    arrive("root", 0), arrive("root/b", 3);
    struct counter a, b, root;
    watch_name(&a, SPACE_PHASER_PHASE, "root/a"), watch_name(&b, SPACE_PHASER_PHASE, "root/b");
    watch_name(&root, SPACE_PHASER_PHASE, "root");
    cr_expect(arrive("root/b", 4).advanced);
    expect_counts("root", 2, 0, 3), expect_counts("root/a", 2, 0, 2), expect_counts("root/b", 2, 0, 2);
    cr_expect(a.fired == 1 && b.fired == 1 && root.fired == 1, "in one entry");
    unwatch(&a), unwatch(&b), unwatch(&root);
}

Test(phaser, who_joins_a_child_that_has_arrived_is_still_waited_for) {
    join("root", 0), join_below("mid", 1, "root"), join_below("leaf", 2, "mid");
    arrive("mid", 1), arrive("leaf", 2);
    expect_counts("root", 0, 1, 2);
    join("leaf", 3);
    expect_counts("leaf", 0, 1, 2), expect_counts("mid", 0, 1, 2), expect_counts("root", 0, 0, 2);
    arrive("root", 0);
    expect_counts("root", 0, 1, 2);
    cr_expect(arrive("leaf", 3).advanced);
    expect_counts("leaf", 1, 0, 2), expect_counts("mid", 1, 0, 2), expect_counts("root", 1, 0, 2);
}

Test(phaser, a_child_without_parties_is_none_itself_and_one_without_members_is_gone) {
    join("root", 0), join_below("mid", 1, "root"), join_below("leaf", 2, "mid");
    join_as("leaf", 3, WAIT);
    leave("mid", 1);
    expect_counts("mid", 0, 0, 1);
    arrive("root", 0);
    expect_counts("root", 0, 1, 2);
    leave("leaf", 2);
    expect_counts("root", 1, 0, 1);
    expect_counts("leaf", 1, 0, 0);
    cr_expect_not(state("root")->children[0]->signals);
    cr_expect(arrive("root", 0).advanced && phase("leaf") == 2, "who waits there goes on with the root");
    leave("leaf", 3);
    cr_expect(!ask("leaf").found && !ask("mid").found && state("root")->n_children == 0);
    cr_expect_eq(state("root")->phaser->descendants, 0);
    leave("root", 0);
    cr_expect_not(ask("root").found);
    (void)fixture_sum(&world);
}

Test(phaser, nobody_left_in_a_tree_that_signals_ends_the_phase_of_all) {
    join_below("leaf", 0, "root"), join_as("leaf", 1, WAIT), join_as("root", 2, WAIT);
    session_drop(&world, id[0]);
    expect_counts("root", 1, 0, 0), expect_counts("leaf", 1, 0, 0);
}

Test(phaser, parents_have_to_agree_and_circles_are_named) {
    join_below("b", 0, "a"), join_below("c", 0, "b"), join("single", 0);
    cr_expect(join("c", 1).yes && join_below("c", 2, "b").yes, "it need not be said again");
    struct answer other = join_below("c", 3, "a");
    cr_expect(other.error == CO_CONFLICT && strstr(other.text, "has the parent \"b\""), "%s", other.text);
    struct answer none = join_below("single", 3, "a");
    cr_expect(none.error == CO_CONFLICT && strstr(none.text, "\"single\" has none"), "%s", none.text);
    struct answer circle = join_below("a", 3, "c");
    cr_expect(circle.error == CO_CONFLICT && strstr(circle.text, "own ancestor: a < c < b < a"), "%s", circle.text);
    struct answer self = join_below("new", 3, "new");
    cr_expect(self.error == CO_CONFLICT && strstr(self.text, "own ancestor: new < new"), "%s", self.text);
    cr_expect(!ask("new").found && state("c")->phaser->members == 3 && state("a")->phaser->members == 0);
}

Test(phaser, a_tree_of_1000_wakes_its_root_33_times_at_most_and_an_advance_writes_no_member) {
    enum { CHILDREN = 32, EACH = 31 };
    char name[16];
    for (unsigned i = 8; i < CHILDREN * EACH; i++)
        cr_assert(session_make(&world, id[i], &(struct session_plan){.node = "n1"}).yes);
    for (unsigned i = 0; i < CHILDREN * EACH; i++) {
        snprintf(name, sizeof name, "c%02u", i / EACH);
        cr_assert(join_below(name, i, "root").yes);
    }
    struct counter reader, waiter;
    struct counter *leaves = mem_zalloc(CHILDREN * sizeof *leaves);
    static char names[CHILDREN][16];
    watch_name(&reader, SPACE_PHASER, "root"), watch_name(&waiter, SPACE_PHASER_PHASE, "root");
    for (unsigned i = 0; i < CHILDREN; i++) {
        snprintf(names[i], sizeof names[i], "c%02u", i);
        watch_name(&leaves[i], SPACE_PHASER_PHASE, names[i]);
    }
    uint64_t began = machine_applied(world.machine), last_us = 0;
    for (unsigned i = 0; i < CHILDREN * EACH; i++) {
        uint64_t before_ns = clock_mono_ns();
        struct answer answer = arrive(names[i / EACH], i);
        last_us = (clock_mono_ns() - before_ns) / 1000;
        cr_assert(answer.yes && answer.advanced == (i + 1 == CHILDREN * EACH));
    }
    cr_expect_eq(machine_applied(world.machine) - began, CHILDREN * EACH, "one entry for each arrival, no more");
    cr_expect(reader.fired == CHILDREN && waiter.fired == 1, "the root: read %u times, waited for %u", reader.fired,
              waiter.fired);
    for (unsigned i = 0; i < CHILDREN; i++) cr_expect_eq(leaves[i].fired, 1, "child %u: %u", i, leaves[i].fired);
    printf("the advance of %d phasers with %d members: %llu us\n", CHILDREN + 1, CHILDREN * EACH,
           (unsigned long long)last_us);
    const Pb__PhaserState *seen = state("c07");
    cr_expect(seen->phaser->phase == 1 && seen->n_members == EACH && seen->members[0]->arrived_before == 1 &&
              !seen->members[0]->arrived);
    for (unsigned i = 0; i < CHILDREN; i++) unwatch(&leaves[i]);
    unwatch(&reader), unwatch(&waiter);
    free(leaves);
}

/* -- what is refused ---------------------------------------------------------------------------------------------- */

Test(phaser, what_cannot_be_is_refused_and_nothing_is_changed) {
    static char lengthy[PHASER_NAME_MAX + 2];
    memset(lengthy, 'a', PHASER_NAME_MAX + 1);
    join("p", 0), join_as("p", 1, WAIT), join_as("p", 2, SIGNAL);
    static const char *const gone = "99999999-0000-4000-8000-000000000000";
    cr_expect_eq(join_with("p", gone, NULL, SIGNAL, "").error, CO_NOTFOUND);
    cr_expect_eq(join_with("new", gone, NULL, SIGNAL, "parent").error, CO_NOTFOUND);
    cr_expect_eq(join_with("p", "", NULL, SIGNAL, "").error, CO_INVALID);
    cr_expect_eq(join("", 3).error, CO_INVALID);
    cr_expect_eq(join(lengthy, 3).error, CO_INVALID);
    cr_expect_eq(join_below("new", 3, lengthy).error, CO_INVALID);
    cr_expect_eq(join_as("new", 3, (Pb__PhaserMode)7).error, CO_INVALID);
    cr_expect_eq(join_as("p", 0, WAIT).error, CO_CONFLICT, "in another mode");
    cr_expect_eq(arrive("p", 1).error, CO_CONFLICT, "it only waits");
    cr_expect_eq(arrive_in("p", 0, 1).error, CO_CONFLICT, "ahead");
    Pb__PhaserArriveCommand waits = arrival("p", 2);
    waits.waits = true;
    cr_expect_eq(apply(PHASER_ARRIVE, &waits.base).error, CO_CONFLICT, "it only signals");
    struct answer foreign = arrive("p", 3);
    cr_expect(foreign.error == CO_NOTFOUND && strstr(foreign.text, id[3]) && strstr(foreign.text, "\"p\""), "%s",
              foreign.text);
    cr_expect_eq(arrive("none", 0).error, CO_NOTFOUND);
    cr_expect_eq(arrive(lengthy, 0).error, CO_NOTFOUND);
    cr_expect(!leave("none", 0).yes && !leave("p", 3).yes && leave("", 3).error == CO_INVALID);
    expect_counts("p", 0, 0, 2);
    cr_expect_eq(state("p")->n_members, 3);
    cr_expect(!ask("new").found && !ask("parent").found);
}

Test(phaser, names_of_256_bytes_have_long_children) {
    char parent[PHASER_NAME_MAX + 1], child[2][PHASER_NAME_MAX + 1];
    memset(parent, 'p', PHASER_NAME_MAX), parent[PHASER_NAME_MAX] = '\0';
    for (unsigned i = 0; i < 2; i++) {
        memset(child[i], 'c', PHASER_NAME_MAX), child[i][PHASER_NAME_MAX] = '\0';
        child[i][PHASER_NAME_MAX - 1] = (char)('0' + i);
        cr_assert(join_below(child[i], i, parent).yes);
    }
    const Pb__PhaserState *seen = state(parent);
    cr_assert_eq(seen->n_children, 2);
    cr_expect_neq(strcmp(seen->children[0]->name, seen->children[1]->name), 0);
    arrive(child[0], 0);
    cr_expect(arrive(child[1], 1).advanced && phase(child[0]) == 1);
    leave(child[0], 0);
    seen = state(parent);
    cr_expect(seen->n_children == 1 && strcmp(seen->children[0]->name, child[1]) == 0);
}

static unsigned number_of(const char *session) { return (unsigned)strtoul(session, NULL, 16); }

/* All who are in it arrive; the last one's entry advances all phasers that there are. */
static void expect_a_tree_advances(const char *root, size_t wanted) {
    Pb__PhaserListRequest request = PB__PHASER_LIST_REQUEST__INIT;
    struct query_result result = fixture_ask(&world, &query_phasers, &request.base);
    size_t count = ((const Pb__PhasersResult *)result.message)->n_phasers;
    cr_assert_eq(count, wanted);
    char(*names)[16] = mem_zalloc(count * sizeof *names);
    for (size_t i = 0; i < count; i++)
        snprintf(names[i], sizeof names[i], "%s", ((const Pb__PhasersResult *)result.message)->phasers[i]->name);
    struct answer last = {0};
    uint64_t last_us = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t member = 0; member < state(names[i])->n_members; member++) {
            unsigned session = number_of(state(names[i])->members[member]->session);
            uint64_t before_ns = clock_mono_ns();
            cr_assert(!last.advanced);
            last = arrive(names[i], session);
            last_us = (clock_mono_ns() - before_ns) / 1000;
        }
    }
    cr_expect(last.advanced && phase(root) == 1);
    for (size_t i = 0; i < count; i++) {
        const Pb__Phaser *phaser = state(names[i])->phaser;
        cr_expect(phaser->phase == 1 && phaser->arrived == 0 && phaser->phase_index == last.index, "%s", names[i]);
    }
    printf("the advance of %zu phasers: %llu us\n", count, (unsigned long long)last_us);
    free(names);
}

Test(phaser, depth_and_phasers_of_a_tree_are_bounded) {
    char name[16], parent[16] = "d1";
    for (unsigned depth = 2; depth <= PHASER_DEPTH_MAX; depth++) {
        snprintf(name, sizeof name, "d%u", depth);
        cr_assert(join_below(name, 0, parent).yes, "%s", name);
        memcpy(parent, name, sizeof parent);
    }
    struct answer deep = join_below("d9", 0, parent);
    cr_expect(deep.error == CO_INVALID && strstr(deep.text, "8 levels"), "%s", deep.text);
    cr_expect_eq(state("d1")->phaser->descendants, PHASER_DEPTH_MAX - 1);
    unsigned session = 8;
    for (unsigned i = PHASER_DEPTH_MAX - 1; i < PHASER_TREE_MAX; i++) {
        if (i % (PHASER_SESSION_MAX / 2) == 0)
            cr_assert(session_make(&world, id[++session], &(struct session_plan){.node = "n1"}).yes);
        snprintf(name, sizeof name, "w%u", i);
        cr_assert(join_below(name, session == 8 ? 1 : session, i % 2 ? "d1" : "d4").yes, "%u", i);
    }
    struct answer wide = join_below("one-more", 2, "d4");
    cr_expect(wide.error == CO_BUSY && strstr(wide.text, "below its root \"d1\""), "%s", wide.text);
    cr_expect(join_below("w9", 2, "d1").yes, "in those that are there others may register");
    cr_expect_eq(state("d1")->phaser->descendants, PHASER_TREE_MAX);
    expect_a_tree_advances("d1", 1 + PHASER_TREE_MAX);
}

Test(phaser, phasers_of_a_session_are_bounded) {
    char name[16];
    for (unsigned i = 0; i < PHASER_SESSION_MAX; i++) {
        snprintf(name, sizeof name, "p%u", i);
        cr_assert(join(name, 0).yes);
    }
    struct answer more = join("more", 0);
    cr_expect(more.error == CO_BUSY && !ask("more").found, "%s", more.text);
    cr_expect(join("other", 1).yes && join_with("made", "", id[20], SIGNAL, "").yes, "that is its affair alone");
    cr_expect(leave("other", 1).yes && leave("made", 20).yes);
    cr_expect(join("p5", 0).yes, "a repeat is none more");
    cr_expect(leave("p5", 0).yes && join("more", 0).yes);
    session_drop(&world, id[0]);
    Pb__PhaserListRequest request = PB__PHASER_LIST_REQUEST__INIT;
    struct query_result result = fixture_ask(&world, &query_phasers, &request.base);
    cr_expect_eq(((const Pb__PhasersResult *)result.message)->n_phasers, 0);
}

Test(phaser, lists_are_of_a_prefix_and_as_new_as_what_was_removed_there) {
    join("a/1", 0), join("a/2", 0);
    uint64_t below = join("b", 0).index, left = leave("a/1", 0).index;
    Pb__PhaserListRequest request = PB__PHASER_LIST_REQUEST__INIT;
    struct query_result all = fixture_ask(&world, &query_phasers, &request.base);
    const Pb__PhasersResult *list = (const Pb__PhasersResult *)all.message;
    cr_assert(list->n_phasers == 2 && all.index == left);
    cr_expect(strcmp(list->phasers[0]->name, "a/2") == 0 && list->phasers[0]->members == 1);
    request.prefix = text("b");
    cr_expect_eq(fixture_ask(&world, &query_phasers, &request.base).index, below);
    request.prefix = text("a/");
    cr_expect_eq(fixture_ask(&world, &query_phasers, &request.base).index, left);
}
