/* Rollouts in the replicated state: who gets which version, who is woken, what follows by itself, and what is refused. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "rollouts.h"

static struct fixture world;

static void setup(void) {
    fixture_open(&world);
    fixture_raise(&world);
    cr_assert(rollout_publish(&world, "web", "v1", "{\"a\":1}").yes);
    cr_assert(rollout_publish(&world, "web", "v2", "{\"a\":2}").yes);
    cr_assert(rollout_publish(&world, "web", "v3", "{\"a\":3}").yes);
    cr_assert(rollout_flip(&world, "web", "v1").yes);
}
static void teardown(void) { fixture_close(&world); }
TestSuite(rollout, .init = setup, .fini = teardown);

static const struct stage_plan plain = {.percent = -1};
static struct stage_plan share(double percent) { return (struct stage_plan){.percent = percent}; }

static const char *pointer(void) {
    static char text[200];
    struct query_result result = kv_get(&world, "config/web/current");
    cr_assert(result.found);
    ProtobufCBinaryData value = entry_of(&result)->value;
    snprintf(text, sizeof text, "%.*s", (int)value.len, (const char *)value.data);
    return text;
}

static const char *version(const char *id) { return rollout_version(&world, "web", &(struct caller){.id = id}, NULL); }

/* Ids of callers that are in a stage of `percent`, or are not. */
static char *caller_in(double from, double to) {
    for (unsigned i = 0;; i++) {
        char *id = NULL;
        cr_assert(asprintf(&id, "caller-%u", i) > 0);
        uint32_t bucket = rollout_bucket(SLICE_LITERAL("web"), slice_text(id));
        if (bucket >= from * 100 && bucket < to * 100) return id;
        free(id);
    }
}

static unsigned count_on(const char *wanted) {
    unsigned count = 0;
    for (unsigned i = 0; i < 1000; i++) {
        char id[20];
        snprintf(id, sizeof id, "c%u", i);
        count += strcmp(version(id), wanted) == 0;
    }
    return count;
}

/* -- documents and the pointer ------------------------------------------------------------------------------------ */

Test(rollout, documents_are_keys_and_do_not_change) {
    struct query_result result = kv_get(&world, "config/web/v2");
    cr_assert(result.found && bytes_are(entry_of(&result)->value, "{\"a\":2}"));
    cr_expect(rollout_publish(&world, "web", "v2", "{\"a\":2}").yes, "the same once more");
    struct outcome other = rollout_publish(&world, "web", "v2", "{}");
    cr_expect(other.error == CO_EXISTS && strstr(other.text, "never change"));
    result = kv_get(&world, "config/web/v2");
    cr_expect(bytes_are(entry_of(&result)->value, "{\"a\":2}"));
    cr_expect_str_eq(pointer(), "v1");
    cr_expect(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 10}).yes);
    cr_expect_str_eq(pointer(), "v1", "a stage does not move the pointer");
    cr_expect(rollout_do(&world, ROLLOUT_PROMOTE, "web").yes);
    cr_expect_str_eq(pointer(), "v2");
}

Test(rollout, a_pointer_written_by_hand_is_adopted_by_the_first_command_and_shown_later) {
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

Test(rollout, a_document_that_was_removed_or_written_by_hand) {
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

/* -- stages ------------------------------------------------------------------------------------------------------- */

Test(rollout, buckets_stay_what_they_are) {
    /* Of any release: who changes sides with an upgrade would have its configuration changed by that. */
    static const struct {
        const char *name, *id;
        uint32_t bucket;
    } rows[] = {{"web", "web-17", 6431}, {"web", "a", 9782}, {"api", "a", 9220}, {"web", "", 3508}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        cr_expect_eq(rollout_bucket(slice_text(rows[i].name), slice_text(rows[i].id)), rows[i].bucket, "%s %s: %u",
                     rows[i].name, rows[i].id, rollout_bucket(slice_text(rows[i].name), slice_text(rows[i].id)));
}

Test(rollout, a_higher_percentage_only_adds_callers) {
    static const double percents[] = {0, 0.5, 10, 10.01, 50, 99.99, 100};
    bool had[500] = {false};
    for (size_t p = 0; p < ARRAY_COUNT(percents); p++) {
        unsigned count = 0;
        struct stage_plan plan = {.percent = percents[p], .guard = true}; /* a stage also at 100 % */
        cr_assert(rollout_set(&world, "web", "v2", &plan).yes);
        for (unsigned i = 0; i < 500; i++) {
            char id[20];
            snprintf(id, sizeof id, "c%u", i);
            bool has = strcmp(version(id), "v2") == 0;
            cr_expect(!had[i] || has, "%s is thrown out at %g %%", id, percents[p]);
            had[i] = has, count += has;
        }
        cr_expect(fabs(count / 5.0 - percents[p]) < 6, "%u of 500 at %g %%", count, percents[p]);
    }
}

Test(rollout, only_those_whose_version_changes_are_woken_and_only_their_index_rises) {
    static const double borders[] = {0, 1, 50, 100};
    struct rollout_watch watches[3];
    char *ids[3];
    uint64_t index[3], now;
    for (size_t i = 0; i < 3; i++) {
        ids[i] = caller_in(borders[i], borders[i + 1]);
        rollout_watch_begin(&watches[i], &world, "web", &(struct caller){.id = ids[i]});
        (void)rollout_version(&world, "web", &(struct caller){.id = ids[i]}, &index[i]);
    }
    for (size_t step = 1; step < 3; step++) {
        struct stage_plan plan = share(borders[step]);
        struct outcome outcome = rollout_set(&world, "web", "v2", &plan);
        for (size_t i = 0; i < 3; i++) {
            bool moved = i + 1 == step;
            cr_expect_eq(rollout_woken(&watches[i]) > 0, moved, "%s at %g %%", ids[i], borders[step]);
            (void)rollout_version(&world, "web", &(struct caller){.id = ids[i]}, &now);
            cr_expect_eq(now, moved ? outcome.index : index[i]);
            index[i] = now;
        }
    }
    struct outcome promoted = rollout_do(&world, ROLLOUT_PROMOTE, "web");
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(rollout_woken(&watches[i]) > 0, i == 2, "%s by promotion", ids[i]);
        (void)rollout_version(&world, "web", &(struct caller){.id = ids[i]}, &now);
        cr_expect_eq(now, i == 2 ? promoted.index : index[i]);
        rollout_watch_end(&watches[i], &world);
        free(ids[i]);
    }
    cr_expect_eq(count_on("v2"), 1000);
}

Test(rollout, a_match_and_a_percentage_have_to_hold_both) {
    struct caller here = {.id = "a", .node = "N1", .tag = "canary", .region = "eu"}, there = here;
    there.node = "n2";
    cr_assert(
        rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 100, .node = "n1", .tag = "canary"}).yes);
    cr_expect_str_eq(rollout_version(&world, "web", &here, NULL), "v2", "nodes have no case");
    cr_expect_str_eq(rollout_version(&world, "web", &there, NULL), "v1");
    there = here, there.tag = "other";
    cr_expect_str_eq(rollout_version(&world, "web", &there, NULL), "v1");
    cr_assert(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 0, .node = "n1"}).yes);
    cr_expect_str_eq(rollout_version(&world, "web", &here, NULL), "v1");
    cr_assert(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .region = "eu"}).yes);
    cr_expect_str_eq(rollout_version(&world, "web", &here, NULL), "v2", "100 % unless it is said");
    cr_expect_eq(rollout_ask(&world, "web", &here)->reason, PB__ROLLOUT_REASON__ROLLOUT_REASON_MATCH);
    here.region = "us";
    cr_expect_eq(rollout_ask(&world, "web", &here)->reason, PB__ROLLOUT_REASON__ROLLOUT_REASON_STATIC);
}

Test(rollout, a_match_wakes_nobody_outside_of_it) {
    struct rollout_watch inside, outside;
    struct caller here = {.id = "a", .node = "n1"}, there = {.id = "b", .node = "n2"};
    rollout_watch_begin(&inside, &world, "web", &here), rollout_watch_begin(&outside, &world, "web", &there);
    cr_assert(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .node = "N1"}).yes);
    cr_expect(rollout_woken(&inside) > 0 && rollout_woken(&outside) == 0);
    cr_assert(rollout_do(&world, ROLLOUT_ROLLBACK, "web").yes);
    cr_expect(rollout_woken(&inside) > 0 && rollout_woken(&outside) == 0);
    cr_assert(rollout_ack(&world, "web", "a", "v1", true, "n1").yes);
    cr_assert(rollout_publish(&world, "web", "v9", "9").yes);
    cr_expect(rollout_woken(&inside) == 0 && rollout_woken(&outside) == 0, "what is said of it wakes nobody");
    rollout_watch_end(&inside, &world), rollout_watch_end(&outside, &world);
}

/* -- steps -------------------------------------------------------------------------------------------------------- */

static void expect_news(const char *expected, unsigned line) {
    struct buffer text = {0};
    fixture_updates(&world, 1000000000, &text);
    cr_expect_str_eq(text.data, expected, "line %u: %s", line, text.data);
    buffer_free(&text);
}

Test(rollout, steps_follow_one_another_each_once) {
    expect_news("", __LINE__);
    struct outcome began = rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "1:60 50:90"});
    expect_news("rollout hold began web 60; rollout guard ended web 0; ", __LINE__);
    cr_expect(!rollout_due(&world, ROLLOUT_ADVANCE, "web", began.index + 1).yes, "of another hold");
    world.term = 2;
    struct outcome first = rollout_due(&world, ROLLOUT_ADVANCE, "web", began.index);
    cr_expect(first.yes, "a new leader goes on");
    expect_news("rollout hold began web 90; ", __LINE__);
    cr_expect(!rollout_due(&world, ROLLOUT_ADVANCE, "web", began.index).yes, "two leaders propose it: it happens once");
    cr_expect_eq(rollout_look(&world, "web")->stage->percent, 50);
    Pb__RolloutDueCommand old = PB__ROLLOUT_DUE_COMMAND__INIT;
    old.name = (char *)(uintptr_t) "web", old.index = first.index, old.term = 1;
    cr_expect_eq(fixture_apply(&world, ROLLOUT_ADVANCE, &old.base).error, CO_CONFLICT, "of a deposed one");
    cr_expect(rollout_due(&world, ROLLOUT_ADVANCE, "web", first.index).yes);
    cr_expect_null(rollout_look(&world, "web")->stage, "after the last step everybody has it");
    cr_expect_str_eq(pointer(), "v2");
    cr_expect_str_eq(rollout_story(&world, "web"),
                     "flip:>v1@100 stage:v1>v2@1 step-advance:v1>v2@50 step-promote:v1>v2@100 ");
}

Test(rollout, a_version_whose_document_is_gone_does_not_become_everybodys) {
    struct outcome began = rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "1:60"});
    cr_assert(kv_del(&world, "config/web/v2").yes);
    struct outcome promoted = rollout_do(&world, ROLLOUT_PROMOTE, "web");
    cr_expect(promoted.error == CO_CONFLICT && strstr(promoted.text, "was removed"), "%s", promoted.text);
    cr_expect(rollout_due(&world, ROLLOUT_ADVANCE, "web", began.index).yes);
    const Pb__RolloutState *state = rollout_look(&world, "web");
    cr_assert(state->stage && state->stage->paused, "the step stops, once");
    cr_expect(strstr(state->stage->reason, "was removed"), "%s", state->stage->reason);
    cr_expect_str_eq(pointer(), "v1");
    cr_expect(rollout_publish(&world, "web", "v2", "{\"a\":2}").yes && rollout_do(&world, ROLLOUT_PROMOTE, "web").yes);
    cr_expect_str_eq(pointer(), "v2");
}

static void refused(struct outcome outcome, int error, const char *word) {
    cr_expect(outcome.error == error && strstr(outcome.text, word), "%s: %d %s", word, outcome.error, outcome.text);
}

Test(rollout, nobody_is_given_a_version_whose_document_is_gone) {
    struct outcome began = rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "1:60 50:60"});
    cr_assert(kv_del(&world, "config/web/v2").yes);
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 20}), CO_NOTFOUND, "no version");
    cr_expect(rollout_due(&world, ROLLOUT_ADVANCE, "web", began.index).yes);
    const Pb__RolloutStageView *stage = rollout_look(&world, "web")->stage;
    cr_expect(stage->paused && stage->percent == 1, "no more callers by a step");
    cr_assert(rollout_publish(&world, "web", "v2", "{\"a\":2}").yes && kv_del(&world, "config/web/v1").yes);
    refused(rollout_do(&world, ROLLOUT_ROLLBACK, "web"), CO_CONFLICT, "the document of \"v1\" was removed");
    cr_expect(rollout_do(&world, ROLLOUT_PROMOTE, "web").yes, "and forwards out of it");
    refused(rollout_do(&world, ROLLOUT_ROLLBACK, "web"), CO_CONFLICT, "the document of \"v1\" was removed");
    cr_expect_str_eq(pointer(), "v2");
    cr_assert(rollout_publish(&world, "web", "v1", "{\"a\":1}").yes);
    cr_expect(rollout_do(&world, ROLLOUT_ROLLBACK, "web").yes);
}

Test(rollout, a_version_that_was_removed_comes_back_as_it_was_or_not_at_all) {
    cr_assert(kv_del(&world, "config/web/v2").yes);
    refused(rollout_publish(&world, "web", "v2", "{\"a\":3}"), CO_EXISTS, "published with other content");
    cr_expect_not(kv_get(&world, "config/web/v2").found);
    cr_expect(rollout_publish(&world, "web", "v2", "{\"a\":2}").yes);
    cr_assert(kv_del(&world, "config/web/v2").yes);
    for (unsigned i = 0; i < ROLLOUT_HISTORY_MOST; i++) {
        if (i == ROLLOUT_HISTORY_MOST - 1)
            refused(rollout_publish(&world, "web", "v2", "{\"a\":3}"), CO_EXISTS, "published with other content");
        cr_assert(rollout_flip(&world, "web", i % 2 ? "v1" : "v3").yes);
    }
    cr_expect(rollout_publish(&world, "web", "v2", "{\"a\":3}").yes, "it is forgotten with the history");
}

Test(rollout, a_step_without_hold_waits_and_pause_stops_the_clock) {
    cr_assert(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "1 50:90"}).yes);
    expect_news("rollout hold ended web 0; rollout guard ended web 0; ", __LINE__);
    struct outcome began = rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "1:60"});
    cr_assert(rollout_do(&world, ROLLOUT_PAUSE, "web").yes);
    cr_expect(!rollout_due(&world, ROLLOUT_ADVANCE, "web", began.index).yes,
              "the end of a hold that was proposed before");
    cr_expect_eq(rollout_do(&world, ROLLOUT_PAUSE, "web").error, CO_CONFLICT);
    struct outcome resumed = rollout_do(&world, ROLLOUT_RESUME, "web");
    cr_assert(resumed.yes);
    expect_news(
        "rollout hold began web 60; rollout guard ended web 0; rollout hold ended web 0; rollout guard ended web 0; "
        "rollout hold began web 60; rollout guard ended web 0; ",
        __LINE__);
    cr_expect(rollout_due(&world, ROLLOUT_ADVANCE, "web", resumed.index).yes, "it counts from there");
    cr_expect_eq(rollout_do(&world, ROLLOUT_RESUME, "web").error, CO_CONFLICT, "no stage");
}

/* "1:60 50:90": of the stage. */
static const char *steps(void) {
    static char text[200];
    const Pb__RolloutStageView *stage = rollout_look(&world, "web")->stage;
    text[0] = '\0';
    for (size_t i = 0; i < stage->n_steps; i++)
        sprintf(text + strlen(text), "%g:%d ", stage->steps[i]->percent, (int)(stage->steps[i]->hold_ns / 1000000000));
    return text;
}

Test(rollout, percent_beside_steps_is_where_it_begins) {
    static const struct {
        double percent;
        const char *steps, *wanted;
    } rows[] = {
        {10, "1:60 50:90", "10:60 50:90 "}, {50, "1:60 50:90", "50:90 "},        {60, "1:60 50:90", "60:90 "},
        {1, "1:60 50:90", "1:60 50:90 "},   {5, "50:60 70", "5:60 50:60 70:0 "},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct stage_plan plan = {.percent = rows[i].percent, .steps = rows[i].steps};
        cr_assert(rollout_set(&world, "web", "v2", &plan).yes);
        cr_expect_str_eq(steps(), rows[i].wanted);
        cr_expect_eq(rollout_look(&world, "web")->stage->percent, rows[i].percent);
    }
    cr_assert(rollout_due(&world, ROLLOUT_ADVANCE, "web", 0).yes);
    cr_expect_eq(rollout_look(&world, "web")->stage->percent, 50, "no step above it is passed over");
}

static int64_t held_ns;

Test(rollout, a_new_leader_finds_the_holds_and_guards_in_the_store) {
    struct expiry_leader leader = {.term = 3, .now_ms = 1000};
    struct expiry *expiry = expiry_new();
    struct stage_plan plan = {.percent = -1, .steps = "1:60", .guard = true, .max_failing = 0.1};
    cr_assert(rollout_set(&world, "web", "v2", &plan).yes);
    expiry_lead(expiry, 3, 1000);
    struct store_txn *txn = store_read(world.reader);
    cr_expect_eq(rollout_hold_expiry.read(txn, &leader, expiry), CO_OK);
    cr_expect_eq(rollout_judge_expiry.read(txn, &leader, expiry), CO_OK);
    store_read_done(world.reader);
    uint64_t left_ms;
    cr_expect_eq(expiry_left(expiry, &rollout_hold_expiry, SLICE_LITERAL("web"), 1000, &left_ms, &held_ns), CO_OK);
    cr_expect(left_ms >= 60000, "a full hold: %d", (int)left_ms);
    cr_expect_eq(expiry_left(expiry, &rollout_judge_expiry, SLICE_LITERAL("web"), 1000, &left_ms, &held_ns), CO_OK);
    cr_assert(rollout_do(&world, ROLLOUT_PAUSE, "web").yes);
    expiry_lead(expiry, 4, 1000);
    txn = store_read(world.reader);
    (void)rollout_hold_expiry.read(txn, &leader, expiry), (void)rollout_judge_expiry.read(txn, &leader, expiry);
    store_read_done(world.reader);
    cr_expect_eq(expiry_count(expiry, &rollout_hold_expiry), 0, "paused: no hold counts");
    cr_expect_eq(expiry_count(expiry, &rollout_judge_expiry), 1, "the guard looks on");
    expiry_free(expiry);
}

/* -- back --------------------------------------------------------------------------------------------------------- */

Test(rollout, rollback_undoes_one_by_one) {
    cr_assert(rollout_flip(&world, "web", "v2").yes && rollout_flip(&world, "web", "v3").yes);
    cr_assert(rollout_set(&world, "web", "v1", &(struct stage_plan){.percent = 50}).yes);
    static const char *const after[] = {"v3", "v2", "v1"};
    for (size_t i = 0; i < 3; i++) {
        cr_assert(rollout_do(&world, ROLLOUT_ROLLBACK, "web").yes);
        cr_expect_str_eq(rollout_look(&world, "web")->current, after[i]);
        cr_expect_str_eq(pointer(), after[i]);
        cr_expect_eq(count_on(after[i]), 1000);
    }
    struct outcome none = rollout_do(&world, ROLLOUT_ROLLBACK, "web");
    cr_expect(none.error == CO_CONFLICT && strstr(none.text, "no version before"));
}

Test(rollout, a_flip_ends_the_stage) {
    cr_assert(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 50, .steps = NULL}).yes);
    cr_assert(rollout_flip(&world, "web", "v1").yes);
    cr_expect_null(rollout_look(&world, "web")->stage);
    cr_expect_eq(count_on("v1"), 1000);
    cr_expect_str_eq(rollout_look(&world, "web")->previous, "", "it was v1 all the time");
}

/* -- what is refused ---------------------------------------------------------------------------------------------- */

Test(rollout, what_makes_no_sense_is_refused_and_changes_nothing) {
    char *longer = mem_zalloc(200), *many = mem_zalloc(2000);
    memset(longer, 'x', 129);
    for (int i = 0; i <= ROLLOUT_STEPS_MOST; i++) sprintf(many + strlen(many), "%d:1 ", i + 1);
    uint64_t records = records_in(&world, 38), keys = records_in(&world, 16),
             index = rollout_look(&world, "web")->modify_index;
    refused(rollout_set(&world, "web", "v9", &plain), CO_NOTFOUND, "no version");
    refused(rollout_set(&world, "none", "v1", &plain), CO_NOTFOUND, "no version");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 101}), CO_INVALID, "Percent");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = NAN}), CO_INVALID, "Percent");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 0.001}), CO_INVALID, "steps of 0.01");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "99.999"}), CO_INVALID,
            "steps of 0.01");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "5:1 5:1"}), CO_INVALID,
            "Steps");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "101"}), CO_INVALID, "Steps");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "1:99999999"}), CO_INVALID,
            "Hold");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = many}), CO_INVALID,
            "at most 32");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 1, .node = ""}), CO_INVALID, "Match");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 1, .guard = true, .max_failing = 2}),
            CO_INVALID, "MaxFailing");
    refused(rollout_set(&world, "web", "v1", &(struct stage_plan){.percent = 1}), CO_CONFLICT, "already");
    refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 1, .cas_given = true, .cas = 1}),
            CO_PRECONDITION, "Cas");
    refused(rollout_set(&world, "a/b", "v1", &plain), CO_INVALID, "name");
    refused(rollout_publish(&world, longer, "v1", ""), CO_INVALID, "name");
    refused(rollout_publish(&world, "web", "current", ""), CO_INVALID, "current");
    refused(rollout_publish(&world, "web", "a/b", ""), CO_INVALID, "version");
    refused(rollout_do(&world, ROLLOUT_PROMOTE, "web"), CO_CONFLICT, "no stage");
    refused(rollout_do(&world, ROLLOUT_PAUSE, "none"), CO_NOTFOUND, "no rollout");
    refused(rollout_ack(&world, "web", "a", "v9", true, ""), CO_NOTFOUND, "no version");
    refused(rollout_ack(&world, "web", "", "v1", true, ""), CO_INVALID, "id");
    refused(rollout_ack(&world, "none", "a", "v1", true, ""), CO_NOTFOUND, "no rollout");
    cr_expect(records_in(&world, 38) == records && records_in(&world, 16) == keys, "nothing was written");
    cr_expect_eq(rollout_look(&world, "web")->modify_index, index);
    free(longer), free(many);
}

Test(rollout, the_first_version_is_for_everybody) {
    cr_assert(rollout_publish(&world, "new", "v1", "1").yes);
    refused(rollout_set(&world, "new", "v1", &(struct stage_plan){.percent = 10}), CO_CONFLICT, "no current version");
    cr_expect(rollout_set(&world, "new", "v1", &(struct stage_plan){.percent = -1, .cas_given = true, .cas = 0}).error,
              "it is there");
    cr_expect(rollout_set(&world, "new", "v1", &(struct stage_plan){.percent = 100}).yes, "all of it is no stage");
}

Test(rollout, of_two_operators_with_cas_one_wins) {
    uint64_t index = rollout_look(&world, "web")->modify_index;
    struct stage_plan plan = {.percent = 10, .cas_given = true, .cas = index};
    cr_assert(rollout_ack(&world, "web", "a", "v1", true, NULL).yes && rollout_publish(&world, "web", "v4", "").yes);
    cr_expect(rollout_set(&world, "web", "v2", &plan).yes, "acknowledgements and documents do not count");
    cr_expect_eq(rollout_set(&world, "web", "v3", &plan).error, CO_PRECONDITION);
}

Test(rollout, the_schema_that_a_document_was_checked_against_has_to_be_the_present_one) {
    Pb__RolloutSchemaCommand schema = PB__ROLLOUT_SCHEMA_COMMAND__INIT;
    schema.name = (char *)(uintptr_t) "web", schema.by = schema.name;
    schema.schema = (ProtobufCBinaryData){4, (uint8_t *)(uintptr_t) "json"};
    struct outcome set = fixture_apply(&world, ROLLOUT_SCHEMA, &schema.base);
    cr_assert(set.yes);
    cr_expect_eq(rollout_publish(&world, "web", "v5", "x").error, CO_AGAIN);
    Pb__RolloutPublishCommand command = PB__ROLLOUT_PUBLISH_COMMAND__INIT;
    command.name = schema.name, command.version = (char *)(uintptr_t) "v5", command.schema_index = set.index;
    cr_expect(fixture_apply(&world, ROLLOUT_PUBLISH, &command.base).yes);
    schema.schema.len = 0;
    cr_assert(fixture_apply(&world, ROLLOUT_SCHEMA, &schema.base).yes);
    cr_expect(rollout_publish(&world, "web", "v6", "x").yes);
}

/* -- bounds ------------------------------------------------------------------------------------------------------- */

Test(rollout, the_history_keeps_the_newest_and_their_numbers) {
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
Test(rollout, stages_that_come_and_go_for_ever) {
    char node[20];
    char *outside = caller_in(95, 100);
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

Test(rollout, promotions_make_room_for_stages) {
    char node[20];
    for (unsigned i = 0; i < 200; i++) {
        snprintf(node, sizeof node, "n%u", i);
        struct stage_plan plan = {.percent = -1, .node = node};
        cr_assert(rollout_set(&world, "web", i % 2 ? "v1" : "v2", &plan).yes, "%u", i);
        cr_assert(rollout_do(&world, ROLLOUT_PROMOTE, "web").yes);
    }
}

/* What cannot be told apart any more is refused, and nobody is woken for it. */
Test(rollout, a_stage_that_there_is_no_room_for_is_refused) {
    char node[20];
    char *id = caller_in(99, 100);
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
    refused(outcome, CO_CONFLICT, "give a version to everybody first");
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
