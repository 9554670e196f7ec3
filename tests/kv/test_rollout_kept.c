/* Things that rollouts keep: documents, also those that are removed; the pointer; the bounds of it all. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "rollouts.h"

static struct fixture world;

static void setup(void) { rollout_world(&world); }
static void teardown(void) { fixture_close(&world); }
TestSuite(rollout_kept, .init = setup, .fini = teardown);

/* -- documents and the pointer ------------------------------------------------------------------------------------ */

Test(rollout_kept, documents_are_keys_and_do_not_change) {
    struct query_result result = kv_get(&world, "config/web/v2");
    cr_assert(result.found && bytes_are(entry_of(&result)->value, "{\"a\":2}"));
    cr_expect(rollout_publish(&world, "web", "v2", "{\"a\":2}").yes, "the same once more");
    struct outcome other = rollout_publish(&world, "web", "v2", "{}");
    cr_expect(other.error == CO_EXISTS && strstr(other.text, "never change"));
    result = kv_get(&world, "config/web/v2");
    cr_expect(bytes_are(entry_of(&result)->value, "{\"a\":2}"));
    cr_expect_str_eq(rollout_pointer(&world), "v1");
    cr_expect(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 10}).yes);
    cr_expect_str_eq(rollout_pointer(&world), "v1", "a stage does not move the pointer");
    cr_expect(rollout_do(&world, ROLLOUT_PROMOTE, "web").yes);
    cr_expect_str_eq(rollout_pointer(&world), "v2");
}

Test(rollout_kept, a_pointer_written_by_hand_is_adopted_by_the_first_command_and_shown_later) {
    cr_assert(kv_put(&world, "config/old/7", "seven").yes && kv_put(&world, "config/old/8", "eight").yes);
    cr_assert(kv_put(&world, "config/old/current", "7").yes);
    struct caller me = {.id = "me"};
    cr_expect_null(rollout_ask(&world, "old", &me), "there is no rollout yet");
    cr_assert(rollout_set(&world, "old", "8", &(struct stage_plan){.percent = 0}).yes);
    const Pb__RolloutResolution *found = rollout_ask(&world, "old", &me);
    cr_assert(found && strcmp(found->version, "7") == 0 && found->document.len == 5);
    cr_assert(kv_put(&world, "config/old/current", "8").yes);
    cr_expect_str_eq(rollout_look(&world, "old")->pointer, "8", "it is shown");
    cr_expect_str_eq(rollout_version(&world, "old", &me, NULL), "7", "and does not count");
    static const char *const values[] = {"", "a/b", "current"};
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        cr_assert(kv_put(&world, "config/old/current", values[i]).yes);
        cr_expect(strstr(rollout_look(&world, "old")->pointer_fault, "no version's name"), "%s", values[i]);
    }
    cr_assert(kv_del(&world, "config/old/current").yes);
    const Pb__RolloutState *state = rollout_look(&world, "old");
    cr_expect(strstr(state->pointer_fault, "removed it") && !state->pointer[0]);
    cr_assert(rollout_do(&world, ROLLOUT_PROMOTE, "old").yes);
    cr_expect_str_eq(rollout_look(&world, "old")->pointer_fault, "", "it is written anew");
}

Test(rollout_kept, a_document_that_was_removed_or_written_by_hand) {
    uint64_t before, after;
    struct caller me = {.id = "me"};
    (void)rollout_version(&world, "web", &me, &before);
    cr_assert(kv_put(&world, "config/web/v1", "by hand").yes);
    const Pb__RolloutResolution *found = rollout_ask(&world, "web", &me);
    cr_expect(found->document.len == 7 && found->index > before);
    after = found->index;
    cr_assert(kv_del(&world, "config/web/v1").yes);
    found = rollout_ask(&world, "web", &me);
    cr_expect(found->missing && found->index > after);
    cr_expect(rollout_flip(&world, "web", "v1").error == CO_NOTFOUND, "there is nothing to point to");
}

Test(rollout_kept, a_version_whose_document_is_gone_does_not_become_everybodys) {
    struct outcome began = rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "1:60"});
    cr_assert(kv_del(&world, "config/web/v2").yes);
    struct outcome promoted = rollout_do(&world, ROLLOUT_PROMOTE, "web");
    cr_expect(promoted.error == CO_CONFLICT && strstr(promoted.text, "was removed"), "%s", promoted.text);
    cr_expect(rollout_due(&world, ROLLOUT_ADVANCE, "web", began.index).yes);
    const Pb__RolloutState *state = rollout_look(&world, "web");
    cr_assert(state->stage && state->stage->paused, "the step stops, once");
    cr_expect(strstr(state->stage->reason, "was removed"), "%s", state->stage->reason);
    cr_expect_str_eq(rollout_pointer(&world), "v1");
    cr_expect(rollout_publish(&world, "web", "v2", "{\"a\":2}").yes && rollout_do(&world, ROLLOUT_PROMOTE, "web").yes);
    cr_expect_str_eq(rollout_pointer(&world), "v2");
}

Test(rollout_kept, nobody_is_given_a_version_whose_document_is_gone) {
    struct outcome began = rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "1:60 50:60"});
    cr_assert(kv_del(&world, "config/web/v2").yes);
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 20}), CO_NOTFOUND, "no version");
    cr_expect(rollout_due(&world, ROLLOUT_ADVANCE, "web", began.index).yes);
    const Pb__RolloutStageView *stage = rollout_look(&world, "web")->stage;
    cr_expect(stage->paused && stage->percent == 1, "no more callers by a step");
    cr_assert(rollout_publish(&world, "web", "v2", "{\"a\":2}").yes && kv_del(&world, "config/web/v1").yes);
    rollout_refused(rollout_do(&world, ROLLOUT_ROLLBACK, "web"), CO_CONFLICT, "the document of \"v1\" was removed");
    cr_expect(rollout_do(&world, ROLLOUT_PROMOTE, "web").yes, "and forwards out of it");
    rollout_refused(rollout_do(&world, ROLLOUT_ROLLBACK, "web"), CO_CONFLICT, "the document of \"v1\" was removed");
    cr_expect_str_eq(rollout_pointer(&world), "v2");
    cr_assert(rollout_publish(&world, "web", "v1", "{\"a\":1}").yes);
    cr_expect(rollout_do(&world, ROLLOUT_ROLLBACK, "web").yes);
}

Test(rollout_kept, a_version_that_was_removed_comes_back_as_it_was_or_not_at_all) {
    cr_assert(kv_del(&world, "config/web/v2").yes);
    rollout_refused(rollout_publish(&world, "web", "v2", "{\"a\":3}"), CO_EXISTS, "published with other content");
    cr_expect_not(kv_get(&world, "config/web/v2").found);
    cr_expect(rollout_publish(&world, "web", "v2", "{\"a\":2}").yes);
    cr_assert(kv_del(&world, "config/web/v2").yes);
    for (unsigned i = 0; i < ROLLOUT_HISTORY_MOST; i++) {
        if (i == ROLLOUT_HISTORY_MOST - 1)
            rollout_refused(rollout_publish(&world, "web", "v2", "{\"a\":3}"), CO_EXISTS,
                            "published with other content");
        cr_assert(rollout_flip(&world, "web", i % 2 ? "v1" : "v3").yes);
    }
    cr_expect(rollout_publish(&world, "web", "v2", "{\"a\":3}").yes, "it is forgotten with the history");
}

/* -- bounds ------------------------------------------------------------------------------------------------------- */

Test(rollout_kept, the_history_keeps_the_newest_and_their_numbers) {
    for (unsigned i = 0; i < 20; i++) cr_assert(rollout_flip(&world, "web", i % 2 ? "v1" : "v2").yes);
    cr_assert(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 0}).yes);
    for (unsigned i = 0; i < ROLLOUT_HISTORY_MOST; i++)
        cr_assert(rollout_do(&world, i % 2 ? ROLLOUT_RESUME : ROLLOUT_PAUSE, "web").yes);
    Pb__RolloutHistoryRequest request = PB__ROLLOUT_HISTORY_REQUEST__INIT;
    request.name = (char *)(uintptr_t) "web";
    struct query_result result = fixture_ask(&world, &query_rollout_history, &request.base);
    const Pb__RolloutHistory *all = (const Pb__RolloutHistory *)result.message;
    cr_assert_eq(all->n_changes, ROLLOUT_HISTORY_MOST);
    cr_expect_eq(all->changes[0]->number, ROLLOUT_HISTORY_MOST + 25);
    cr_expect_eq(all->changes[ROLLOUT_HISTORY_MOST - 1]->number, 26);
    for (int i = 0; i < 1 + ROLLOUT_BEFORE_MOST; i++) cr_assert(rollout_do(&world, ROLLOUT_ROLLBACK, "web").yes);
    cr_expect_eq(rollout_do(&world, ROLLOUT_ROLLBACK, "web").error, CO_CONFLICT);
}

/* However many stages come and go, who is in none of them has what he has since he has it. */
Test(rollout_kept, stages_that_come_and_go_for_ever) {
    char node[20];
    char *outside = rollout_caller_in(95, 100);
    struct caller caller = {.id = outside}, inside = {.id = outside, .node = "n7"};
    uint64_t before, after;
    (void)rollout_version(&world, "web", &caller, &before);
    for (unsigned i = 0; i < 400; i++) {
        snprintf(node, sizeof node, "n%u", i % 25);
        struct stage_plan plan = {.percent = 1 + i * 37 % 90, .node = i % 3 ? node : NULL};
        static const char *const versions[] = {"v1", "v2", "v3"};
        const char *current = rollout_look(&world, "web")->current;
        cr_assert(rollout_set(&world, "web", versions[(unsigned)(current[1] - '1' + 1 + i % 2) % 3], &plan).yes);
        cr_assert(rollout_do(&world, i % 4 == 1 ? ROLLOUT_PROMOTE : ROLLOUT_ROLLBACK, "web").yes);
        if (i % 4 == 1) (void)rollout_version(&world, "web", &caller, &before);
        (void)rollout_version(&world, "web", &caller, &after);
        cr_assert_eq(after, before, "at stage %u it has what it has since %d, not %d", i, (int)before, (int)after);
        cr_assert_str_eq(rollout_version(&world, "web", &inside, NULL), rollout_look(&world, "web")->current);
    }
    struct outcome flipped = rollout_flip(&world, "web", "v1");
    cr_expect(rollout_version(&world, "web", &caller, &after) && after == flipped.index);
    free(outside);
}

Test(rollout_kept, promotions_make_room_for_stages) {
    char node[20];
    for (unsigned i = 0; i < 200; i++) {
        snprintf(node, sizeof node, "n%u", i);
        struct stage_plan plan = {.percent = -1, .node = node};
        cr_assert(rollout_set(&world, "web", i % 2 ? "v1" : "v2", &plan).yes, "%u", i);
        cr_assert(rollout_do(&world, ROLLOUT_PROMOTE, "web").yes);
    }
}

/* A stage that could not be told apart from others any more is refused, and wakes nobody. */
Test(rollout_kept, a_stage_that_there_is_no_room_for_is_refused) {
    char node[20];
    char *id = rollout_caller_in(99, 100);
    struct caller caller = {.id = id};
    struct outcome outcome;
    uint64_t before, after;
    unsigned stages = 0;
    (void)rollout_version(&world, "web", &caller, &before);
    do {
        snprintf(node, sizeof node, "n%u", stages);
        outcome = rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .node = node});
    } while (outcome.yes && ++stages < 1000);
    cr_expect(stages >= 30, "%u", stages);
    rollout_refused(outcome, CO_CONFLICT, "give a version to everybody first");
    cr_expect(rollout_do(&world, ROLLOUT_ROLLBACK, "web").yes, "back is always possible");
    cr_expect(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 50}).yes, "these are no more");
    for (stages = 0; stages < 1000; stages++) {
        struct stage_plan plan = {.percent = 98 - stages * 0.02};
        if (!rollout_set(&world, "web", stages % 2 ? "v2" : "v3", &plan).yes) break;
        cr_assert(rollout_do(&world, ROLLOUT_ROLLBACK, "web").yes);
    }
    cr_expect(stages >= 60 && stages < 1000, "%u", stages);
    (void)rollout_version(&world, "web", &caller, &after);
    cr_expect_eq(after, before);
    cr_assert(rollout_flip(&world, "web", "v3").yes);
    cr_expect(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 1}).yes);
    free(id);
}
