/* Hazards in the replicated state: what a retire waits for, who is woken, what is kept, and what is refused. */
#include "kv/hazard/hazard.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "base/check.h"

enum { HAZARD_RECORDS = 34, HAZARD_BOUND = 35, SESSIONS = 19 };

static struct fixture world;
static char id[5][UUID_TEXT_SIZE + 1];

static void setup(void) {
    fixture_open(&world);
    cr_assert(node_register(&world, "n1").yes);
    for (unsigned i = 0; i < ARRAY_COUNT(id); i++) {
        session_id(i, id[i]);
        cr_assert(session_make(&world, id[i], &(struct session_plan){.node = "n1"}).yes);
    }
}
static void teardown(void) { fixture_close(&world); }
TestSuite(hazard, .init = setup, .fini = teardown);

static struct outcome protect_by(const char *object, const char *session, const char *made, uint64_t *epoch) {
    Pb__HazardProtectCommand command = PB__HAZARD_PROTECT_COMMAND__INIT;
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    Pb__Session create = PB__SESSION__INIT;
    const ProtobufCMessage *message;
    if (session) use.id = (char *)(uintptr_t)session;
    create.id = (char *)(uintptr_t)made, create.node = (char *)(uintptr_t) "n1", create.ttl_ns = 15000000000;
    if (made) use.create = &create;
    command.session = &use, command.object = (char *)(uintptr_t)object;
    struct outcome outcome = answer_of(&world, HAZARD_PROTECT, &command.base, &message);
    *epoch = message ? ((const Pb__HazardProtection *)message)->epoch : 0;
    if (message) cr_expect_str_eq(((const Pb__HazardProtection *)message)->session, made ? made : session);
    return outcome;
}

static uint64_t protect(const char *object, const char *session) {
    uint64_t epoch;
    struct outcome outcome = protect_by(object, session, NULL, &epoch);
    cr_assert(outcome.yes && epoch > 0, "%s", outcome.text);
    return epoch;
}

static struct outcome clear(const char *object, const char *session) {
    Pb__HazardClearCommand command = PB__HAZARD_CLEAR_COMMAND__INIT;
    command.object = (char *)(uintptr_t)object, command.session = (char *)(uintptr_t)session;
    return fixture_apply(&world, HAZARD_CLEAR, &command.base);
}

struct stands {
    int error;
    bool retired;
    uint64_t waiting, epoch, index;
    char text[256];
};
static struct stands stands_of(const struct outcome *outcome, const ProtobufCMessage *message) {
    const Pb__HazardRetirement *stands = (const Pb__HazardRetirement *)message;
    struct stands out = {.error = outcome->error, .index = outcome->index};
    memcpy(out.text, outcome->text, sizeof out.text);
    if (stands) out.retired = stands->retired, out.waiting = stands->waiting, out.epoch = stands->epoch;
    return out;
}

/* epoch 0: a new one. */
static struct stands retire(const char *object, uint64_t epoch) {
    Pb__HazardRetireCommand command = PB__HAZARD_RETIRE_COMMAND__INIT;
    const ProtobufCMessage *message;
    command.object = (char *)(uintptr_t)object, command.epoch = epoch, command.epoch_given = epoch != 0;
    struct outcome outcome = answer_of(&world, HAZARD_RETIRE, &command.base, &message);
    return stands_of(&outcome, message);
}

static struct stands waits(const char *object, uint64_t epoch) {
    Pb__HazardRetireRequest request = PB__HAZARD_RETIRE_REQUEST__INIT;
    request.object = (char *)(uintptr_t)object, request.epoch = epoch;
    struct query_result result = fixture_ask(&world, &query_hazard_retire, &request.base);
    cr_assert(result.found);
    return stands_of(&(struct outcome){.index = result.index}, result.message);
}

static void watch(struct watcher *watcher, const char *object) {
    Pb__HazardRetireRequest request = PB__HAZARD_RETIRE_REQUEST__INIT;
    request.object = (char *)(uintptr_t)object;
    watcher_begin(watcher, &world, &query_hazard_retire, &request.base);
}

/* "0@12 3@15": the sessions and their epochs. */
static const char *look(const char *object, uint64_t *index) {
    static struct buffer text;
    Pb__HazardRequest request = PB__HAZARD_REQUEST__INIT;
    request.object = (char *)(uintptr_t)object;
    struct query_result result = fixture_ask(&world, &query_hazard, &request.base);
    const Pb__HazardState *state = (const Pb__HazardState *)result.message;
    if (index) *index = result.index;
    if (!result.found) return "none";
    buffer_reset(&text);
    for (size_t i = 0; i < state->n_protections; i++)
        buffer_printf(&text, "%s%c", i ? " " : "", state->protections[i]->session[7]);
    buffer_append_byte(&text, '\0');
    cr_expect(state->count == state->n_protections && state->oldest == state->protections[0]->epoch);
    return text.data;
}

/* -- what a retire waits for -------------------------------------------------------------------------------------- */

Test(hazard, a_retire_waits_for_the_protections_that_were_there_before_it_and_for_no_others) {
    cr_expect(retire("o", 0).retired, "nobody protects it");
    (void)protect("o", id[0]), (void)protect("o", id[1]), (void)protect("other", id[3]);
    struct stands first = retire("o", 0);
    cr_expect(!first.retired && first.waiting == 2 && first.epoch == first.index);
    uint64_t later = protect("o", id[2]);
    cr_expect(later > first.epoch);
    struct stands second = retire("o", 0);
    cr_expect_eq(second.waiting, 3);
    cr_expect(clear("o", id[0]).yes);
    cr_expect(!retire("o", first.epoch).retired && waits("o", first.epoch).waiting == 1);
    cr_expect(clear("o", id[1]).yes);
    struct stands stands = retire("o", first.epoch);
    cr_expect(stands.retired && stands.waiting == 0 && stands.epoch == first.epoch,
              "the later one does not hold it up");
    uint64_t last = protect("o", id[4]);
    cr_expect(waits("o", last).waiting == 1 && clear("o", id[4]).yes, "a protection does not hold up its own epoch");
    cr_expect(waits("o", first.epoch).retired && waits("o", later).retired && !waits("o", later + 1).retired);
    cr_expect(!retire("o", second.epoch).retired, "but the retire that came after it");
    cr_expect(clear("o", id[2]).yes && retire("o", second.epoch).retired);
    cr_expect_str_eq(look("o", NULL), "none");
}

Test(hazard, an_index_of_any_write_is_an_epoch) {
    (void)protect("o", id[0]);
    uint64_t unreachable = kv_put(&world, "current", "v43").index;
    (void)protect("o", id[1]);
    cr_expect_eq(retire("o", unreachable).waiting, 1);
    cr_expect(clear("o", id[0]).yes && retire("o", unreachable).retired);
    struct stands above = retire("o", machine_applied(world.machine) + 2);
    cr_expect(above.error == CO_INVALID && strstr(above.text, "above every index"), "%s", above.text);
}

Test(hazard, protecting_again_keeps_the_older_epoch_and_one_clear_ends_it) {
    uint64_t epoch = protect("o", id[0]);
    uint64_t retired = retire("o", 0).epoch;
    cr_expect_eq(protect("o", id[0]), epoch);
    cr_expect(!waits("o", retired).retired && waits("o", retired).waiting == 1);
    cr_expect(clear("o", id[0]).yes && waits("o", retired).retired);
    cr_expect(protect("o", id[0]) > retired, "after that it is a new one");
    cr_expect(waits("o", retired).retired);
}

Test(hazard, the_end_of_a_session_clears_what_it_protects) {
    (void)protect("a", id[0]), (void)protect("b", id[0]), (void)protect("b", id[1]);
    uint64_t a = retire("a", 0).epoch, b = retire("b", 0).epoch;
    struct watcher waiting;
    watch(&waiting, "a");
    struct outcome end = session_drop(&world, id[0]);
    cr_expect(end.yes && waits("a", a).retired && waits("a", a).index == end.index && waiting.woken == 1);
    cr_expect(!waits("b", b).retired && waits("b", b).waiting == 1);
    cr_expect(node_remove(&world, "n1").yes && waits("b", b).retired);
    cr_expect(records_in(&world, HAZARD_RECORDS) == 0 && records_in(&world, HAZARD_BOUND) == 0, "nothing is kept");
    watcher_end(&waiting, &world);
}

Test(hazard, only_the_oldest_protection_wakes_who_waits) {
    struct watcher waiting, observer, list;
    Pb__HazardRequest request = PB__HAZARD_REQUEST__INIT;
    Pb__HazardListRequest prefix = PB__HAZARD_LIST_REQUEST__INIT;
    request.object = prefix.prefix = (char *)(uintptr_t) "o";
    for (int i = 0; i < 3; i++) (void)protect("o", id[i]);
    uint64_t epoch = retire("o", 0).epoch, index = waits("o", epoch).index;
    watch(&waiting, "o");
    watcher_begin(&observer, &world, &query_hazard, &request.base);
    watcher_begin(&list, &world, &query_hazards, &prefix.base);
    (void)protect("o", id[3]), (void)clear("o", id[1]), (void)retire("o", 0), (void)protect("o", id[0]);
    cr_expect(waiting.woken == 0 && observer.woken == 2 && list.woken == 2);
    cr_expect(waits("o", epoch).index == index && waits("o", epoch).waiting == 2);
    uint64_t gone = clear("o", id[0]).index;
    cr_expect(waiting.woken == 1 && !waits("o", epoch).retired && waits("o", epoch).index == gone);
    gone = clear("o", id[2]).index;
    cr_expect(waiting.woken == 2 && waits("o", epoch).retired && waits("o", epoch).index == gone);
    watcher_end(&waiting, &world), watcher_end(&observer, &world), watcher_end(&list, &world);
}

/* -- what is refused, what is kept -------------------------------------------------------------------------------- */

Test(hazard, what_cannot_be_is_refused_and_nothing_is_made) {
    char lengthy[HAZARD_OBJECT_MOST + 2];
    const char *unknown = "ffffffff-0000-4000-8000-000000000000";
    uint64_t epoch;
    memset(lengthy, 'x', sizeof lengthy - 1), lengthy[sizeof lengthy - 1] = '\0';
    cr_expect_eq(protect_by(lengthy, id[0], NULL, &epoch).error, CO_INVALID);
    cr_expect_eq(protect_by("", id[0], NULL, &epoch).error, CO_INVALID);
    cr_expect_eq(clear(lengthy, id[0]).error, CO_INVALID);
    cr_expect_eq(retire(lengthy, 0).error, CO_INVALID);
    cr_expect_eq(protect_by("o", NULL, NULL, &epoch).error, CO_INVALID, "no session");
    struct outcome refused = protect_by("o", unknown, NULL, &epoch);
    cr_expect(refused.error == CO_NOTFOUND && strstr(refused.text, "ffffffff-"), "%s", refused.text);
    cr_expect(clear("o", unknown).error == CO_NOTFOUND && clear("o", "x").error == CO_NOTFOUND);
    (void)protect("o", id[0]);
    refused = clear("o", id[1]);
    cr_expect(refused.error == CO_NOTFOUND && strstr(refused.text, "does not protect \"o\""), "%s", refused.text);
    cr_expect_str_eq(look("o", NULL), "0", "another session's is not cleared");
    lengthy[HAZARD_OBJECT_MOST] = '\0';
    (void)protect(lengthy, id[0]);
    cr_expect(!waits(lengthy, retire(lengthy, 0).epoch).retired && clear(lengthy, id[0]).yes, "as long as it may be");
}

Test(hazard, a_session_made_for_it_ends_with_its_last_protection) {
    char made[UUID_TEXT_SIZE + 1];
    uint64_t before = records_in(&world, SESSIONS), epoch;
    session_id(100, made);
    cr_assert(protect_by("a", NULL, made, &epoch).yes);
    (void)protect("b", made);
    cr_expect(clear("a", made).yes && records_in(&world, SESSIONS) == before + 1);
    cr_expect(clear("b", made).yes && records_in(&world, SESSIONS) == before);
    cr_expect_eq(records_in(&world, HAZARD_RECORDS), 0);
}

Test(hazard, a_list_has_those_below_a_prefix_with_the_newest_change) {
    (void)protect("a/1", id[0]), (void)protect("a/2", id[0]), (void)protect("a/2", id[1]);
    uint64_t newest = protect("b", id[2]), index;
    Pb__HazardListRequest request = PB__HAZARD_LIST_REQUEST__INIT;
    struct query_result result = fixture_ask(&world, &query_hazards, &request.base);
    const Pb__HazardsResult *all = (const Pb__HazardsResult *)result.message;
    cr_assert(all->n_hazards == 3 && result.index == newest);
    request.prefix = (char *)(uintptr_t) "a/";
    result = fixture_ask(&world, &query_hazards, &request.base);
    all = (const Pb__HazardsResult *)result.message;
    cr_assert(all->n_hazards == 2 && result.index == newest - 1);
    cr_expect(all->hazards[1]->count == 2 && strcmp(all->hazards[1]->object, "a/2") == 0);
    uint64_t removed = clear("a/1", id[0]).index;
    cr_expect_eq(fixture_ask(&world, &query_hazards, &request.base).index, removed);
    cr_expect_str_eq(look("a/1", &index), "none");
    cr_expect_eq(index, removed, "what nobody protects has an index, too");
    cr_expect_str_eq(look("a/2", NULL), "0 1");
}

Test(hazard, an_object_and_a_session_have_so_many_and_then_ask_to_clear_some) {
    enum { AT_ONCE = 1000 };
    static char ids[AT_ONCE][UUID_TEXT_SIZE + 1], names[AT_ONCE][16];
    static Pb__HazardProtectCommand commands[AT_ONCE];
    static Pb__SessionUse uses[AT_ONCE];
    static Pb__Session sessions[AT_ONCE];
    static struct command batch[AT_ONCE];
    static struct outcome outcomes[AT_ONCE];
    uint64_t epoch;
    for (unsigned done = 0; done < HAZARD_PROTECTIONS_MOST + HAZARD_SESSION_MOST; done += AT_ONCE) {
        for (unsigned i = 0; i < AT_ONCE; i++) {
            bool of_object = done < HAZARD_PROTECTIONS_MOST;
            pb__hazard_protect_command__init(&commands[i]), pb__session_use__init(&uses[i]);
            pb__session__init(&sessions[i]);
            session_id(1000 + done + i, ids[i]);
            snprintf(names[i], sizeof names[i], "s%u", done + i);
            sessions[i].id = ids[i], sessions[i].node = (char *)(uintptr_t) "n1";
            if (of_object) uses[i].create = &sessions[i];
            else uses[i].id = id[0];
            commands[i].session = &uses[i];
            commands[i].object = of_object ? (char *)(uintptr_t) "o" : names[i];
            batch[i] = (struct command){HAZARD_PROTECT, &commands[i].base};
        }
        fixture_apply_all(&world, batch, AT_ONCE, outcomes);
        for (unsigned i = 0; i < AT_ONCE; i++) cr_assert(outcomes[i].yes, "%u: %s", done + i, outcomes[i].text);
    }
    struct outcome more = protect_by("o", id[1], NULL, &epoch);
    cr_expect(more.error == CO_BUSY && strstr(more.text, "100000 protections"), "%s", more.text);
    uint64_t made = records_in(&world, SESSIONS);
    session_id(1, ids[0]), ids[0][0] = 'a';
    cr_expect(protect_by("o", NULL, ids[0], &epoch).error == CO_BUSY && records_in(&world, SESSIONS) == made);
    cr_expect_eq(retire("o", 0).waiting, HAZARD_COUNTED_MOST, "they are not counted further");
    session_id(1000, ids[0]);
    cr_expect(clear("o", ids[0]).yes && protect("o", id[1]) > 0);
    more = protect_by("one-more", id[0], NULL, &epoch);
    cr_expect(more.error == CO_BUSY && strstr(more.text, "10000 objects"), "%s", more.text);
    cr_expect(session_drop(&world, id[0]).yes && protect("one-more", id[2]) > 0);
}
