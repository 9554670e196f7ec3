/* Phasers in the replicated state: who is waited for, who is woken, and what is refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "phasers.h"

TestSuite(phaser, .init = phasers_setup, .fini = phasers_teardown);

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
    watch(&own, query_phaser_await.own(&request.base, 0));
    request = waiter_of("p", 1);
    watch(&others, query_phaser_await.own(&request.base, 0));
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
    cr_expect_eq(phaser_command(PHASER_ARRIVE, &waits.base).error, CO_CONFLICT, "it only signals");
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

Test(phaser, members_of_a_phaser_are_bounded) {
    char session[UUID_TEXT_SIZE + 1];
    for (unsigned i = 0; i < PHASER_MEMBERS_MAX; i++) {
        session_id(SESSIONS + i, session);
        cr_assert(join_with("crowd", "", session, i % 2 ? WAIT : SIGNAL_WAIT, "").yes, "%u", i);
    }
    session_id(SESSIONS + PHASER_MEMBERS_MAX, session);
    struct answer more = join_with("crowd", "", session, WAIT, "");
    cr_expect(more.error == CO_BUSY && strstr(more.text, "at most 10000 members"), "%s", more.text);
    cr_expect_not(session_get_by(&world, session).found, "nor is its session made");
    cr_expect_eq(join("crowd", 0).error, CO_BUSY);
    session_id(SESSIONS, session);
    cr_expect(join_with("crowd", session, NULL, SIGNAL_WAIT, "").yes, "who is in it already is no other one");
    cr_expect_eq(state("crowd")->phaser->members, PHASER_MEMBERS_MAX);
    cr_assert(session_drop(&world, session).yes);
    cr_expect(join("crowd", 0).yes, "one has left");
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
