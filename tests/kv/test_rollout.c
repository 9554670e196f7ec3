/* Rollouts in the replicated state: who gets which version, who is woken, what follows by itself, and what is refused. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "rollouts.h"

static struct fixture world;

static void setup(void) { rollout_world(&world); }
static void teardown(void) { fixture_close(&world); }
TestSuite(rollout, .init = setup, .fini = teardown);

static const struct stage_plan plain = {.percent = -1};
static struct stage_plan share(double percent) { return (struct stage_plan){.percent = percent}; }

static const char *version(const char *id) { return rollout_version(&world, "web", &(struct caller){.id = id}, NULL); }

static unsigned count_on(const char *wanted) {
    unsigned count = 0;
    for (unsigned i = 0; i < 1000; i++) {
        char id[20];
        snprintf(id, sizeof id, "c%u", i);
        count += strcmp(version(id), wanted) == 0;
    }
    return count;
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
        ids[i] = rollout_caller_in(borders[i], borders[i + 1]);
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
    cr_expect_str_eq(rollout_version(&world, "web", &here, NULL), "v2", "all of them unless it is said");
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
    cr_expect_str_eq(rollout_pointer(&world), "v2");
    cr_expect_str_eq(rollout_story(&world, "web"),
                     "flip:>v1@100 stage:v1>v2@1 step-advance:v1>v2@50 step-promote:v1>v2@100 ");
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
        cr_expect_str_eq(rollout_pointer(&world), after[i]);
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
    rollout_refused(rollout_set(&world, "web", "v9", &plain), CO_NOTFOUND, "no version");
    rollout_refused(rollout_set(&world, "none", "v1", &plain), CO_NOTFOUND, "no version");
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 101}), CO_INVALID, "Percent");
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = NAN}), CO_INVALID, "Percent");
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 0.001}), CO_INVALID,
                    "steps of 0.01");
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "99.999"}),
                    CO_INVALID, "steps of 0.01");
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "5:1 5:1"}),
                    CO_INVALID, "Steps");
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "101"}), CO_INVALID,
                    "Steps");
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = "1:99999999"}),
                    CO_INVALID, "Hold");
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .steps = many}), CO_INVALID,
                    "at most 32");
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 1, .node = ""}), CO_INVALID,
                    "Match");
    rollout_refused(
        rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 1, .guard = true, .max_failing = 2}),
        CO_INVALID, "MaxFailing");
    rollout_refused(rollout_set(&world, "web", "v1", &(struct stage_plan){.percent = 1}), CO_CONFLICT, "already");
    rollout_refused(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 1, .cas_given = true, .cas = 1}),
                    CO_PRECONDITION, "Cas");
    rollout_refused(rollout_set(&world, "a/b", "v1", &plain), CO_INVALID, "name");
    rollout_refused(rollout_publish(&world, longer, "v1", ""), CO_INVALID, "name");
    rollout_refused(rollout_publish(&world, "web", "current", ""), CO_INVALID, "current");
    rollout_refused(rollout_publish(&world, "web", "a/b", ""), CO_INVALID, "version");
    rollout_refused(rollout_do(&world, ROLLOUT_PROMOTE, "web"), CO_CONFLICT, "no stage");
    rollout_refused(rollout_do(&world, ROLLOUT_PAUSE, "none"), CO_NOTFOUND, "no rollout");
    rollout_refused(rollout_ack(&world, "web", "a", "v9", true, ""), CO_NOTFOUND, "no version");
    rollout_refused(rollout_ack(&world, "web", "", "v1", true, ""), CO_INVALID, "id");
    rollout_refused(rollout_ack(&world, "none", "a", "v1", true, ""), CO_NOTFOUND, "no rollout");
    cr_expect(records_in(&world, 38) == records && records_in(&world, 16) == keys, "nothing was written");
    cr_expect_eq(rollout_look(&world, "web")->modify_index, index);
    free(longer), free(many);
}

Test(rollout, the_first_version_is_for_everybody) {
    cr_assert(rollout_publish(&world, "new", "v1", "1").yes);
    rollout_refused(rollout_set(&world, "new", "v1", &(struct stage_plan){.percent = 10}), CO_CONFLICT,
                    "no current version");
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
