/* Barriers in the replicated state: who is released when, who is woken, what is kept, and what is refused. */
#include "kv/barrier/barrier.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "base/check.h"

enum { BARRIER_RECORDS = 29, BARRIER_BOUND = 30, SESSIONS = 19 };

static struct fixture world;
static char id[6][UUID_TEXT_SIZE + 1];

static void setup(void) {
    fixture_open(&world);
    cr_assert(node_register(&world, "n1").yes);
    for (unsigned i = 0; i < ARRAY_COUNT(id); i++) {
        session_id(i, id[i]);
        cr_assert(session_make(&world, id[i], &(struct session_plan){.node = "n1"}).yes);
    }
}
static void teardown(void) { fixture_close(&world); }
TestSuite(barrier, .init = setup, .fini = teardown);

/* -- commands ----------------------------------------------------------------------------------------------------- */

struct said {
    int error;
    bool released, gone;
    uint64_t round, index;
    unsigned parties, entered;
    char text[256], session[40];
};

static struct said said_of(const struct outcome *outcome, const ProtobufCMessage *message) {
    const Pb__BarrierAnswer *answer = (const Pb__BarrierAnswer *)message;
    struct said said = {.error = outcome->error, .index = outcome->index};
    memcpy(said.text, outcome->text, sizeof said.text);
    if (!answer) return said;
    said.released = answer->released, said.gone = answer->gone, said.round = answer->round;
    said.parties = answer->parties, said.entered = answer->entered;
    snprintf(said.session, sizeof said.session, "%s", answer->session);
    return said;
}

struct entrance {
    unsigned parties;
    bool doubled, after_given;
    uint64_t after;
    const char *made; /* in place of a session that there is */
};
static struct said enter_by(const char *name, const char *session, struct entrance how) {
    Pb__BarrierEnterCommand command = PB__BARRIER_ENTER_COMMAND__INIT;
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    Pb__Session create = PB__SESSION__INIT;
    const ProtobufCMessage *message;
    if (session) use.id = (char *)(uintptr_t)session;
    create.id = (char *)(uintptr_t)how.made, create.node = (char *)(uintptr_t) "n1", create.ttl_ns = 15000000000;
    if (how.made) use.create = &create;
    command.session = &use, command.name = (char *)(uintptr_t)name;
    command.parties = how.parties, command.doubled = how.doubled;
    command.after = how.after, command.after_given = how.after_given;
    struct outcome outcome = answer_of(&world, BARRIER_ENTER, &command.base, &message);
    return said_of(&outcome, message);
}
#define enter(name, session, ...) enter_by(name, session, (struct entrance){__VA_ARGS__})

static struct said leave(const char *name, const char *session) {
    Pb__BarrierLeaveCommand command = PB__BARRIER_LEAVE_COMMAND__INIT;
    const ProtobufCMessage *message;
    command.name = (char *)(uintptr_t)name, command.session = (char *)(uintptr_t)session;
    struct outcome outcome = answer_of(&world, BARRIER_LEAVE, &command.base, &message);
    return said_of(&outcome, message);
}

/* -- reads -------------------------------------------------------------------------------------------------------- */

static Pb__BarrierWaitRequest *wait_of(const char *name, const char *session, uint64_t round, bool leaves) {
    static Pb__BarrierWaitRequest request;
    static char room[BARRIER_WHO_MOST];
    struct slice who = barrier_who(slice_text(name), slice_text(session), room);
    pb__barrier_wait_request__init(&request);
    request.who = (ProtobufCBinaryData){who.size, (uint8_t *)(uintptr_t)who.data};
    request.round = round, request.parties = 7, request.leave = leaves;
    return &request;
}

static struct said waits(const char *name, const char *session, uint64_t round, bool leaves) {
    struct query_result result = fixture_ask(&world, &query_barrier_wait, &wait_of(name, session, round, leaves)->base);
    cr_assert(result.found);
    return said_of(&(struct outcome){.index = result.index}, result.message);
}

static void watch(struct watcher *watcher, const char *name, const char *session, bool leaves) {
    watcher_begin(watcher, &world, &query_barrier_wait, &wait_of(name, session, 0, leaves)->base);
}

/* "3/1 single: 0 2 | 1 | released 9": the parties and how many have come, who has, who is at work. */
static const char *look(const char *name) {
    static struct buffer text;
    Pb__BarrierRequest request = PB__BARRIER_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name;
    struct query_result result = fixture_ask(&world, &query_barrier, &request.base);
    const Pb__BarrierState *state = (const Pb__BarrierState *)result.message;
    if (!result.found) return "empty";
    buffer_reset(&text);
    buffer_printf(&text, "%u %s:", state->parties, state->doubled ? "double" : "single");
    for (size_t i = 0; i < state->n_entered; i++)
        buffer_printf(&text, " %ld", strtol((char[]){state->entered[i]->session[7], 0}, NULL, 16));
    buffer_append_text(&text, " |");
    for (size_t i = 0; i < state->n_working; i++)
        buffer_printf(&text, " %ld", strtol((char[]){state->working[i]->session[7], 0}, NULL, 16));
    buffer_append_byte(&text, '\0');
    cr_expect(result.index == state->modify_index && result.index > 0);
    return text.data;
}

static uint64_t index_of(const char *name) {
    Pb__BarrierRequest request = PB__BARRIER_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name;
    return fixture_ask(&world, &query_barrier, &request.base).index;
}

/* -- single barriers ---------------------------------------------------------------------------------------------- */

Test(barrier, the_last_party_releases_all_and_the_next_one_begins_a_new_round) {
    struct said first = enter("b", id[0], .parties = 3), second = enter("b", id[1], .parties = 3);
    cr_expect(!first.error && !first.released && first.round == first.index && first.entered == 1 &&
              first.parties == 3);
    cr_expect(!second.released && second.round == first.round && second.entered == 2);
    cr_expect_str_eq(second.session, id[1]);
    cr_expect_str_eq(look("b"), "3 single: 0 1 |");
    struct said last = enter("b", id[2], .parties = 3);
    cr_expect(last.released && last.round == first.round && last.entered == 3);
    cr_expect_str_eq(look("b"), "0 single: |");
    for (int i = 0; i < 3; i++) cr_expect(waits("b", id[i], first.round, false).released);
    struct said next = enter("b", id[0], .parties = 2);
    cr_expect(!next.released && next.round == next.index && next.round > first.round, "and may want other parties");
    cr_expect(waits("b", id[1], first.round, false).released, "who looks late was released all the same");
    cr_expect(waits("b", id[0], first.round, false).released);
    cr_expect(!waits("b", id[0], next.round, false).released);
    cr_expect(enter("alone", id[0], .parties = 1).released);
    cr_expect(enter("alone", id[0], .parties = 1).round > next.round);
}

Test(barrier, who_enters_again_is_told_how_the_round_stands_and_counts_once) {
    struct said first = enter("b", id[0], .parties = 2), again = enter("b", id[0], .parties = 2);
    cr_expect(!again.error && !again.released && again.round == first.round && again.entered == 1);
    cr_expect(enter("b", id[1], .parties = 2).released);
}

Test(barrier, a_lost_answer_is_given_again_to_who_says_what_it_knows) {
    uint64_t round = enter("b", id[0], .parties = 2, .after_given = true).round;
    cr_assert(enter("b", id[1], .parties = 2).released);
    struct said again = enter("b", id[0], .parties = 2, .after_given = true);
    cr_expect(again.released && again.round == round && again.parties == 2 && again.entered == 2);
    cr_expect_str_eq(look("b"), "0 single: |", "it is not in the next round");
    struct said next = enter("b", id[0], .parties = 2, .after = round, .after_given = true);
    cr_expect(!next.released && next.round > round);
    cr_expect_eq(enter("b", id[0], .parties = 2, .after = round, .after_given = true).round, next.round);
    cr_expect(!enter("b", id[0], .parties = 2, .after_given = true).released, "it waits, whatever it knows");
    cr_assert(enter("b", id[1], .parties = 2).released, "without after a released session enters the next round");
    again = enter("b", id[0], .parties = 2, .after = round, .after_given = true);
    cr_expect(again.released && again.round == next.round);
    struct said later =
        enter("b", id[0], .parties = 2, .after = machine_applied(world.machine) + 1, .after_given = true);
    cr_expect(later.error == CO_INVALID && strstr(later.text, "no such round"), "%s", later.text);
}

Test(barrier, who_leaves_before_the_release_makes_room_for_another) {
    uint64_t round = enter("b", id[0], .parties = 3).round;
    (void)enter("b", id[1], .parties = 3);
    struct said left = leave("b", id[0]);
    cr_expect(left.released && left.round == round);
    cr_expect(waits("b", id[0], round, false).gone);
    cr_expect_str_eq(look("b"), "3 single: 1 |");
    cr_expect(!enter("b", id[2], .parties = 3).released);
    cr_expect(enter("b", id[0], .parties = 3).released);
    cr_assert(leave("b", id[2]).index > 0 && !enter("b", id[1], .parties = 2).released);
    struct said alone = leave("b", id[1]);
    cr_expect_eq(waits("b", id[1], round, false).index, alone.index, "that it is gone is a change");
    cr_expect_str_eq(look("b"), "0 single: |", "somebody is bound to it");
    cr_expect(!enter("b", id[3], .parties = 5).error, "nobody gathers any more: it may want other parties");
    struct said gone = leave("b", id[4]);
    cr_expect(gone.error == CO_NOTFOUND && strstr(gone.text, "not in barrier \"b\""), "%s", gone.text);
}

Test(barrier, a_session_that_ends_is_taken_out_and_another_one_takes_its_place) {
    uint64_t round = enter("b", id[0], .parties = 2).round;
    struct watcher its, others;
    watch(&its, "b", id[0], false);
    cr_assert(session_drop(&world, id[0]).yes);
    cr_expect(its.woken == 1 && waits("b", id[0], round, false).gone);
    cr_expect_str_eq(look("b"), "empty");
    watcher_end(&its, &world);
    (void)enter("b", id[1], .parties = 3), (void)enter("b", id[2], .parties = 3);
    watch(&others, "b", id[2], false);
    cr_assert(session_drop(&world, id[1]).yes);
    cr_expect_eq(others.woken, 0, "nobody else is woken by that");
    cr_expect(!enter("b", id[3], .parties = 3).released, "it is waited for again");
    cr_expect(enter("b", id[4], .parties = 3).released && others.woken == 1);
    cr_expect(node_remove(&world, "n1").yes, "sessions fall with their node");
    cr_expect_str_eq(look("b"), "empty");
    cr_expect(records_in(&world, BARRIER_RECORDS) == 0 && records_in(&world, BARRIER_BOUND) == 0);
    watcher_end(&others, &world);
}

Test(barrier, arrivals_wake_nobody_who_waits_and_the_release_wakes_each_once) {
    struct watcher waiting[4], observer, list, other_list;
    Pb__BarrierRequest request = PB__BARRIER_REQUEST__INIT;
    Pb__BarrierListRequest prefix = PB__BARRIER_LIST_REQUEST__INIT, other = PB__BARRIER_LIST_REQUEST__INIT;
    request.name = (char *)(uintptr_t) "b", prefix.prefix = request.name, other.prefix = (char *)(uintptr_t) "c";
    watcher_begin(&observer, &world, &query_barrier, &request.base);
    watcher_begin(&list, &world, &query_barriers, &prefix.base);
    watcher_begin(&other_list, &world, &query_barriers, &other.base);
    uint64_t round = 0, before = 0;
    for (int i = 0; i < 4; i++) {
        round = enter("b", id[i], .parties = 5).round;
        watch(&waiting[i], "b", id[i], false);
        struct said stands = waits("b", id[i], round, false);
        cr_expect(stands.index > before && stands.index == index_of("b"));
        before = stands.index;
    }
    uint64_t index = waits("b", id[0], round, false).index;
    cr_expect_eq(index, round, "others who come are no change for who waits");
    for (int i = 0; i < 4; i++) cr_expect_eq(waiting[i].woken, 0);
    uint64_t released = enter("b", id[4], .parties = 5).index;
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(waiting[i].woken, 1);
        cr_expect_eq(waits("b", id[i], round, false).index, released);
        watcher_end(&waiting[i], &world);
    }
    cr_expect(observer.woken == 5 && list.woken == 5 && other_list.woken == 0);
    watcher_end(&observer, &world), watcher_end(&list, &world), watcher_end(&other_list, &world);
}

/* -- double barriers ---------------------------------------------------------------------------------------------- */

Test(barrier, nobody_leaves_a_double_barrier_before_all_have_left) {
    uint64_t round = enter("d", id[0], .parties = 3, .doubled = true).round;
    (void)enter("d", id[1], .parties = 3, .doubled = true);
    cr_assert(enter("d", id[2], .parties = 3, .doubled = true).released);
    cr_expect_str_eq(look("d"), "0 single: | 0 1 2");
    struct said again = enter("d", id[0], .parties = 3, .doubled = true);
    cr_expect(again.released && again.round == round, "it is inside");
    again = enter("d", id[0], .parties = 3, .doubled = true, .after = round, .after_given = true);
    cr_expect(again.error == CO_CONFLICT && strstr(again.text, "has not left round"), "%s", again.text);
    struct watcher leaving;
    struct said left = leave("d", id[0]);
    watch(&leaving, "d", id[0], true);
    cr_expect(!left.error && !left.released && left.round == round && left.entered == 2 && left.parties == 3);
    cr_expect(!leave("d", id[0]).released, "again: as it stands");
    cr_expect(!leave("d", id[1]).released);
    cr_expect_str_eq(look("d"), "0 single: | 2");
    struct said stands = waits("d", id[0], round, true);
    cr_expect(!stands.released && !stands.gone && stands.entered == 1 && stands.index > 0 && leaving.woken == 0);
    struct said last = leave("d", id[2]);
    cr_expect(last.released && last.entered == 0 && leaving.woken == 1);
    cr_expect(waits("d", id[0], round, true).released && waits("d", id[0], round, true).index == last.index);
    cr_expect(leave("d", id[0]).released, "an answer that was lost");
    cr_expect_str_eq(look("d"), "0 single: |");
    again = enter("d", id[0], .parties = 2, .doubled = true, .after_given = true);
    cr_expect(again.released && again.round == round && !leave("d", id[0]).error);
    cr_expect(enter("d", id[0], .parties = 2, .after = round, .after_given = true).round > round);
    watcher_end(&leaving, &world);
}

/* -1: it is not there. */
static int stands(const char *name, const char *session, uint64_t *index) {
    Pb__BarrierPlaceRequest request = PB__BARRIER_PLACE_REQUEST__INIT;
    char room[BARRIER_WHO_MOST];
    struct slice who = barrier_who(slice_text(name), slice_text(session), room);
    request.who = (ProtobufCBinaryData){who.size, (uint8_t *)(uintptr_t)who.data};
    struct query_result result = fixture_ask(&world, &query_barrier_place, &request.base);
    const Pb__BarrierSeat *seat = (const Pb__BarrierSeat *)result.message;
    *index = result.index;
    cr_expect(!result.found || (strcmp(seat->session, session) == 0 && strcmp(seat->name, name) == 0));
    return result.found ? (int)seat->standing : -1;
}

Test(barrier, a_party_looks_where_it_stands_and_nobody_else_wakes_it) {
    Pb__BarrierPlaceRequest request = PB__BARRIER_PLACE_REQUEST__INIT;
    char room[BARRIER_WHO_MOST];
    uint64_t index = 0, before;
    struct slice who = barrier_who(slice_text("d"), slice_text(id[0]), room);
    request.who = (ProtobufCBinaryData){who.size, (uint8_t *)(uintptr_t)who.data};
    cr_expect_eq(stands("d", id[0], &index), -1);
    (void)enter("d", id[0], .parties = 3, .doubled = true);
    cr_expect_eq(stands("d", id[0], &index), (int)PB__BARRIER_STANDING__BARRIER_WAITING);
    struct watcher own;
    watcher_begin(&own, &world, &query_barrier_place, &request.base);
    (void)enter("d", id[1], .parties = 3, .doubled = true);
    before = index;
    cr_expect(stands("d", id[0], &index) == (int)PB__BARRIER_STANDING__BARRIER_WAITING && index == before &&
              !own.woken);
    uint64_t released = enter("d", id[2], .parties = 3, .doubled = true).index;
    cr_expect(stands("d", id[0], &index) == (int)PB__BARRIER_STANDING__BARRIER_INSIDE && index == released);
    cr_expect_eq(own.woken, 1);
    (void)leave("d", id[1]);
    cr_assert(session_drop(&world, id[2]).yes);
    cr_expect(stands("d", id[0], &index) == (int)PB__BARRIER_STANDING__BARRIER_INSIDE && index == released);
    cr_expect_eq(own.woken, 1, "others come and go");
    cr_expect_eq(stands("d", id[1], &index), (int)PB__BARRIER_STANDING__BARRIER_LEFT);
    cr_assert(session_drop(&world, id[0]).yes);
    cr_expect(stands("d", id[0], &index) == -1 && index > released, "%llu", (unsigned long long)index);
    cr_expect_eq(own.woken, 2);
    watcher_end(&own, &world);
    request.who.len = 10;
    cr_expect(!fixture_ask(&world, &query_barrier_place, &request.base).found, "what another process sent");
}

Test(barrier, a_session_that_ends_inside_is_not_waited_for) {
    uint64_t round = enter("d", id[0], .parties = 3, .doubled = true).round;
    (void)enter("d", id[1], .parties = 3, .doubled = true), (void)enter("d", id[2], .parties = 3, .doubled = true);
    struct watcher leaving, dying;
    (void)leave("d", id[0]), (void)leave("d", id[1]);
    watch(&leaving, "d", id[0], true), watch(&dying, "d", id[1], true);
    cr_assert(session_drop(&world, id[1]).yes);
    cr_expect(dying.woken == 1 && leaving.woken == 0 && waits("d", id[1], round, true).gone);
    cr_expect(!waits("d", id[0], round, true).released);
    cr_assert(session_drop(&world, id[2]).yes);
    cr_expect(leaving.woken == 1 && waits("d", id[0], round, true).released);
    watcher_end(&leaving, &world), watcher_end(&dying, &world);
    cr_assert(session_drop(&world, id[0]).yes);
    cr_expect(records_in(&world, BARRIER_RECORDS) == 0 && records_in(&world, BARRIER_BOUND) == 0);
}

Test(barrier, the_next_round_gathers_while_a_double_one_is_at_work_and_is_released_when_that_is_over) {
    uint64_t first = enter("d", id[0], .parties = 2, .doubled = true).round;
    (void)enter("d", id[1], .parties = 2, .doubled = true);
    uint64_t next = enter("d", id[2], .parties = 2, .doubled = true).round;
    struct watcher waiting;
    watch(&waiting, "d", id[2], false);
    cr_expect(!leave("d", id[0]).released);
    struct said early = enter("d", id[0], .parties = 2, .doubled = true);
    cr_expect(!early.released && early.round == next && early.entered == 2, "who has left may be in it");
    cr_expect_str_eq(look("d"), "2 double: 2 0 | 1");
    struct said full = enter("d", id[3], .parties = 2, .doubled = true);
    cr_expect(full.error == CO_CONFLICT && strstr(full.text, "its 2 parties already"), "%s", full.text);
    cr_expect(waiting.woken == 0 && !waits("d", id[2], next, false).released);
    struct said last = leave("d", id[1]);
    cr_expect(last.released && last.round == first);
    cr_expect(waiting.woken == 1 && waits("d", id[2], next, false).released);
    cr_expect_str_eq(look("d"), "0 single: | 2 0");
    watcher_end(&waiting, &world);
}

/* -- what is refused, what is kept -------------------------------------------------------------------------------- */

Test(barrier, parties_of_one_round_want_the_same) {
    (void)enter("b", id[0], .parties = 3);
    struct said other = enter("b", id[1], .parties = 4), doubled = enter("b", id[1], .parties = 3, .doubled = true);
    cr_expect(other.error == CO_CONFLICT && strstr(other.text, "for 3 parties (single), not for 4 (single)"), "%s",
              other.text);
    cr_expect(doubled.error == CO_CONFLICT && strstr(doubled.text, "(single), not for 3 (double)"), "%s", doubled.text);
    cr_expect_eq(enter("b", id[0], .parties = 2).error, CO_CONFLICT, "nor may one change its mind");
    cr_expect_str_eq(look("b"), "3 single: 0 |");
}

Test(barrier, what_cannot_be_is_refused_and_nothing_is_made) {
    char lengthy[BARRIER_NAME_MOST + 2];
    memset(lengthy, 'x', sizeof lengthy - 1), lengthy[sizeof lengthy - 1] = '\0';
    cr_expect_eq(enter(lengthy, id[0], .parties = 2).error, CO_INVALID);
    cr_expect_eq(enter("", id[0], .parties = 2).error, CO_INVALID);
    cr_expect_eq(leave(lengthy, id[0]).error, CO_INVALID);
    cr_expect_eq(enter("b", id[0], .parties = 0).error, CO_INVALID);
    cr_expect_eq(enter("b", id[0], .parties = BARRIER_PARTIES_MOST + 1).error, CO_INVALID);
    struct said unknown = enter("b", "ffffffff-0000-4000-8000-000000000000", .parties = 2);
    cr_expect(unknown.error == CO_NOTFOUND && strstr(unknown.text, "ffffffff-"), "%s", unknown.text);
    cr_expect_eq(enter("b", NULL, .parties = 2).error, CO_INVALID, "no session");
    cr_expect_eq(leave("b", "ffffffff-0000-4000-8000-000000000000").error, CO_NOTFOUND);
    cr_expect_eq(leave("b", "x").error, CO_NOTFOUND);
    cr_expect_eq(records_in(&world, BARRIER_RECORDS), 0);
    lengthy[BARRIER_NAME_MOST] = '\0';
    cr_expect(!enter(lengthy, id[0], .parties = 2).error && enter(lengthy, id[1], .parties = 2).released,
              "as long as it may be");
    cr_expect(waits(lengthy, id[0], 1, false).released);
}

Test(barrier, a_session_made_for_it_ends_with_it_and_none_is_made_for_a_refused_enter) {
    char made[2][UUID_TEXT_SIZE + 1];
    session_id(100, made[0]), session_id(101, made[1]);
    uint64_t before = records_in(&world, SESSIONS);
    struct said first = enter("b", NULL, .parties = 2, .made = made[0]);
    cr_assert(!first.error && strcmp(first.session, made[0]) == 0, "%s", first.text);
    cr_expect_eq(enter("b", NULL, .parties = 3, .made = made[1]).error, CO_CONFLICT);
    cr_expect_eq(records_in(&world, SESSIONS), before + 1);
    cr_expect(!enter("b", made[0], .parties = 2).released, "it is a session as any other");
    cr_expect(leave("b", made[0]).released);
    cr_expect_eq(records_in(&world, SESSIONS), before);
    (void)enter("b", NULL, .parties = 2, .made = made[0]);
    cr_expect(enter("b", NULL, .parties = 2, .made = made[1]).released);
    cr_expect(leave("b", made[0]).released && leave("b", made[1]).released);
    cr_expect(records_in(&world, SESSIONS) == before && records_in(&world, BARRIER_RECORDS) == 0);
}

Test(barrier, a_session_is_bound_to_so_many_barriers_and_forgets_the_oldest_it_was_released_from) {
    char name[16];
    uint64_t inside = enter("inside", id[0], .parties = 2).round, first = 0;
    for (unsigned i = 0; i < BARRIER_SESSION_MOST - 1; i++) {
        snprintf(name, sizeof name, "b%u", i);
        struct said said = enter(name, id[0], .parties = 1);
        cr_assert(said.released);
        if (i == 0) first = said.round;
    }
    cr_expect(enter("b0", id[0], .parties = 1, .after_given = true).round == first);
    cr_expect(enter("more", id[0], .parties = 1).released);
    cr_expect_eq(records_in(&world, BARRIER_BOUND), BARRIER_SESSION_MOST);
    cr_expect_str_eq(look("b0"), "empty", "its record went with it");
    cr_expect(!waits("inside", id[0], inside, false).gone, "where it waits is not forgotten");
    for (unsigned i = 0; i < BARRIER_SESSION_MOST - 1; i++) {
        snprintf(name, sizeof name, "c%u", i);
        cr_assert(!enter(name, id[0], .parties = 2).error);
    }
    struct said more = enter("one-more", id[0], .parties = 2);
    cr_expect(more.error == CO_BUSY && strstr(more.text, "leave some"), "%s", more.text);
    cr_expect_eq(enter("inside", id[0], .parties = 2).round, inside, "where it is it may ask");
    cr_expect(leave("c7", id[0]).released && !enter("one-more", id[0], .parties = 2).error);
}

Test(barrier, a_list_has_those_below_a_prefix_with_the_newest_change) {
    (void)enter("a/1", id[0], .parties = 2), (void)enter("a/2", id[1], .parties = 2);
    uint64_t newest = enter("b", id[2], .parties = 2).index;
    Pb__BarrierListRequest request = PB__BARRIER_LIST_REQUEST__INIT;
    struct query_result result = fixture_ask(&world, &query_barriers, &request.base);
    const Pb__BarriersResult *all = (const Pb__BarriersResult *)result.message;
    cr_assert(all->n_barriers == 3 && result.index == newest);
    cr_expect_str_eq(all->barriers[2]->name, "b");
    request.prefix = (char *)(uintptr_t) "a/";
    result = fixture_ask(&world, &query_barriers, &request.base);
    all = (const Pb__BarriersResult *)result.message;
    cr_assert(all->n_barriers == 2 && result.index == newest - 1);
    cr_expect(all->barriers[1]->n_entered == 1 && strcmp(all->barriers[1]->entered[0]->session, id[1]) == 0);
    uint64_t removed = leave("a/2", id[1]).index;
    cr_expect_eq(fixture_ask(&world, &query_barriers, &request.base).index, removed);
    cr_expect_eq(index_of("a/2"), removed, "what is empty has an index, too");
}

Test(barrier, a_request_of_another_process_that_names_nobody_finds_nothing) {
    Pb__BarrierWaitRequest request = PB__BARRIER_WAIT_REQUEST__INIT;
    uint8_t bytes[BARRIER_WHO_MOST + 1] = {0};
    for (size_t size = 0; size <= sizeof bytes; size += size < 40 ? 1 : sizeof bytes - 40) {
        request.who = (ProtobufCBinaryData){size, bytes};
        struct query_result result = fixture_ask(&world, &query_barrier_wait, &request.base);
        cr_expect(size > UUID_TEXT_SIZE + 1 && size <= BARRIER_WHO_MOST ? result.found : !result.found, "%zu", size);
    }
}

Test(barrier, as_many_as_may_be_are_released_in_one_entry) {
    char made[UUID_TEXT_SIZE + 1];
    for (unsigned i = 0; i < BARRIER_PARTIES_MOST; i++) {
        session_id(1000 + i, made);
        struct said said = enter("b", NULL, .parties = BARRIER_PARTIES_MOST, .made = made);
        cr_assert(!said.error && said.entered == i + 1 && said.released == (i + 1 == BARRIER_PARTIES_MOST), "%u", i);
    }
    cr_expect_eq(records_in(&world, BARRIER_RECORDS), 1, "nothing of the round is left but that it was");
}
