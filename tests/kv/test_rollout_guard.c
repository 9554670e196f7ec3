/* Acknowledgements of rollouts, and the guards that judge by them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "rollouts.h"

static struct fixture world;

static void setup(void) {
    fixture_open(&world);
    fixture_found(&world);
    cr_assert(rollout_publish(&world, "web", "v1", "1").yes && rollout_publish(&world, "web", "v2", "2").yes);
    cr_assert(rollout_flip(&world, "web", "v1").yes);
}
static void teardown(void) { fixture_close(&world); }
TestSuite(rollout_guard, .init = setup, .fini = teardown);

static struct stage_plan guarded(const char *service, double max_failing, uint32_t min_samples, bool rollback) {
    return (struct stage_plan){.percent = -1,
                               .steps = "10:60 50:60",
                               .guard = true,
                               .service = service,
                               .max_failing = max_failing,
                               .min_samples = min_samples,
                               .rollback = rollback};
}
static void begin(const char *version, const char *service, double max_failing, uint32_t min_samples, bool rollback) {
    struct stage_plan plan = guarded(service, max_failing, min_samples, rollback);
    cr_assert(rollout_set(&world, "web", version, &plan).yes);
}

static void acks(unsigned from, unsigned count, const char *version, bool ok, const char *node) {
    for (unsigned i = from; i < from + count; i++) {
        char id[20];
        snprintf(id, sizeof id, "c%u", i);
        cr_assert(rollout_ack(&world, "web", id, version, ok, node).yes);
    }
}

/* An instance of "api" on a node, with a check of this status. */
static void instance(const char *node, Pb__Status status) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node record = PB__NODE__INIT;
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Check check = PB__CHECK__INIT, *checks[] = {&check};
    record.name = check.node = service.node = (char *)(uintptr_t)node, record.address = (char *)(uintptr_t) "10.0.0.1";
    service.id = service.name = check.service_id = (char *)(uintptr_t) "api";
    check.check_id = check.name = (char *)(uintptr_t) "alive", check.status = status;
    command.node = &record, command.service = &service, command.checks = checks, command.n_checks = 1;
    struct outcome outcome = fixture_apply(&world, CATALOG_REGISTER, &command.base);
    cr_assert(outcome.yes, "%s", outcome.text);
}

static bool judge(void) { return rollout_due(&world, ROLLOUT_JUDGE, "web", 1).yes; }
static const Pb__RolloutStageView *stage(void) { return rollout_look(&world, "web")->stage; }

/* -- acknowledgements --------------------------------------------------------------------------------------------- */

static const char *counts(void) {
    static struct buffer text;
    const Pb__RolloutState *state = rollout_look(&world, "web");
    buffer_reset(&text);
    buffer_printf(&text, "%u:", (unsigned)state->callers);
    for (size_t i = 0; i < state->n_versions; i++)
        buffer_printf(&text, " %s %u/%u", state->versions[i]->version, (unsigned)state->versions[i]->ok,
                      (unsigned)state->versions[i]->refused);
    buffer_append_byte(&text, '\0');
    return text.data;
}

Test(rollout_guard, who_has_what) {
    cr_expect_str_eq(counts(), "0:");
    acks(0, 5, "v1", true, "n1");
    begin("v2", NULL, 1, 0, false);
    acks(0, 2, "v2", true, "n1"), acks(2, 1, "v2", false, "n2");
    cr_expect_str_eq(counts(), "5: v1 2/0 v2 2/1");
    acks(2, 1, "v2", true, "n3");
    cr_expect_str_eq(counts(), "5: v1 2/0 v2 3/0", "it has changed its mind, and its node");
    acks(2, 1, "v1", true, NULL);
    cr_assert(rollout_do(&world, ROLLOUT_PROMOTE, "web").yes);
    acks(2, 3, "v2", true, NULL);
    cr_expect_str_eq(counts(), "5: v2 5/0", "with those of the stage");
    acks(9, 2, "v2", false, "n9");
    const Pb__RolloutState *state = rollout_look(&world, "web");
    cr_assert_eq(state->n_refusals, 2);
    cr_expect(strcmp(state->refusals[0]->reason, "cannot") == 0 && strcmp(state->refusals[0]->node, "n9") == 0);
}

Test(rollout_guard, nodes_that_never_asked) {
    instance("n1", PB__STATUS__PASSING), instance("n2", PB__STATUS__PASSING), instance("N3", PB__STATUS__PASSING);
    begin("v2", "api", 0.5, 0, false);
    acks(0, 1, "v1", true, "N1"), acks(1, 1, "v2", true, "n3");
    const Pb__RolloutState *state = rollout_look(&world, "web");
    cr_expect(state->silent == 1 && strcmp(state->silent_nodes[0], "n2") == 0, "without regard to case");
    cr_assert(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = -1, .node = "n7"}).yes);
    state = rollout_look(&world, "web");
    cr_expect(state->silent == 1 && strcmp(state->silent_nodes[0], "n7") == 0, "those of the match");
}

Test(rollout_guard, the_oldest_acknowledgement_makes_room) {
    Pb__RolloutAckCommand command = PB__ROLLOUT_ACK_COMMAND__INIT;
    struct command batch[1000];
    Pb__RolloutAckCommand commands[1000];
    static char ids[1000][20];
    static struct outcome outcomes[1000];
    command.name = (char *)(uintptr_t) "web", command.version = (char *)(uintptr_t) "v1";
    for (unsigned i = 0; i < ROLLOUT_CALLERS_MOST; i += 1000) {
        for (unsigned j = 0; j < 1000; j++) {
            commands[j] = command;
            snprintf(ids[j], sizeof ids[j], "c%u", i + j);
            commands[j].id = ids[j];
            batch[j] = (struct command){ROLLOUT_ACK, &commands[j].base};
        }
        fixture_apply_all(&world, batch, 1000, outcomes);
    }
    cr_expect_str_eq(counts(), "100000: v1 100000/0");
    acks(0, 1, "v1", true, NULL); /* is now the newest */
    cr_assert(rollout_ack(&world, "web", "one more", "v2", true, "n1").yes);
    cr_expect_str_eq(counts(), "100000: v1 99999/0 v2 1/0");
    acks(0, 1, "v2", true, NULL);
    cr_expect_str_eq(counts(), "100000: v1 99998/0 v2 2/0", "c0 was there, c1 had to go");
}

/* -- judging ------------------------------------------------------------------------------------------------------ */

Test(rollout_guard, more_than_the_limit_pauses_it_once) {
    begin("v2", NULL, 0.02, 50, false);
    acks(0, 98, "v2", true, NULL), acks(98, 2, "v2", false, NULL);
    cr_expect(!judge() && !stage()->paused, "2 %% of 100 are not more than 2 %%");
    acks(100, 1, "v2", false, NULL);
    cr_expect(judge() && stage()->paused);
    cr_expect(strstr(stage()->reason, "of 101 callers that acknowledged it 3 refused it"), "%s", stage()->reason);
    cr_expect(!judge(), "it has acted");
    cr_expect_str_eq(rollout_story(&world, "web"), "flip:>v1@100 stage:v1>v2@10 guard-pause:v1>v2@10 ");
    cr_assert(rollout_do(&world, ROLLOUT_RESUME, "web").yes);
    cr_expect(judge() && stage()->paused, "it looks again after a resume");
}

Test(rollout_guard, it_goes_back_by_itself) {
    begin("v2", NULL, 0, 1, true);
    acks(0, 1, "v2", true, NULL);
    cr_expect(!judge());
    acks(1, 1, "v2", false, NULL);
    cr_expect(judge());
    cr_expect_null(stage());
    cr_expect_str_eq(rollout_story(&world, "web"), "flip:>v1@100 stage:v1>v2@10 guard-rollback:v2>v1@100 ");
    cr_expect(!judge(), "there is nothing to look at");
}

Test(rollout_guard, it_pauses_where_there_is_nothing_to_go_back_to) {
    begin("v2", NULL, 0, 1, true);
    acks(0, 1, "v2", false, NULL);
    cr_assert(kv_del(&world, "config/web/v1").yes);
    cr_expect(judge() && stage()->paused);
    cr_expect(strstr(stage()->reason, "1 refused it") && strstr(stage()->reason, "the document of \"v1\" was removed"),
              "%s", stage()->reason);
}

Test(rollout_guard, few_samples_say_nothing_until_the_hold_is_over) {
    begin("v2", NULL, 0.02, 50, true);
    acks(0, 49, "v2", false, NULL);
    cr_expect(!judge(), "inconclusive, and there is time");
    cr_expect(rollout_due(&world, ROLLOUT_ADVANCE, "web", 0).yes);
    cr_expect(stage()->paused && stage()->percent == 10, "it does not go on, and not back either");
    cr_expect(strstr(stage()->reason, "inconclusive: 49 of at least 50"), "%s", stage()->reason);
    acks(0, 49, "v2", true, NULL), acks(49, 1, "v2", true, NULL);
    cr_assert(rollout_do(&world, ROLLOUT_RESUME, "web").yes);
    cr_expect(rollout_due(&world, ROLLOUT_ADVANCE, "web", 0).yes && stage()->percent == 50);
}

Test(rollout_guard, a_hold_that_ends_is_judged_first) {
    begin("v2", NULL, 0, 1, true);
    acks(0, 1, "v2", false, NULL);
    cr_expect(rollout_due(&world, ROLLOUT_ADVANCE, "web", 0).yes);
    cr_expect_null(stage());
    cr_expect_str_eq(rollout_look(&world, "web")->current, "v1");
}

Test(rollout_guard, callers_on_nodes_where_an_instance_turned_critical_fail) {
    instance("n1", PB__STATUS__PASSING), instance("n2", PB__STATUS__PASSING), instance("n3", PB__STATUS__WARNING);
    begin("v2", "api", 0.4, 1, false);
    instance("n2", PB__STATUS__CRITICAL);
    acks(0, 3, "v2", true, "n1"), acks(3, 2, "v2", true, "N2"), acks(5, 1, "v1", true, "n2");
    cr_expect(!judge(), "2 of 5 are not more than 40 %%; who still has v1 does not count");
    Pb__RolloutJudgement what = *rollout_look(&world, "web")->judgement;
    cr_expect(what.samples == 5 && what.critical == 2 && what.refused == 0);
    instance("n1", PB__STATUS__CRITICAL);
    cr_expect(judge() && stage()->paused && strstr(stage()->reason, "5 run on a node where an instance of"));
    cr_assert(rollout_do(&world, ROLLOUT_RESUME, "web").yes);
    instance("n1", PB__STATUS__PASSING), instance("n2", PB__STATUS__PASSING);
    cr_expect(!judge() && !stage()->paused, "they are well again");
}

Test(rollout_guard, what_was_critical_before_does_not_count_until_it_was_well) {
    instance("n1", PB__STATUS__CRITICAL), instance("n2", PB__STATUS__CRITICAL);
    begin("v2", "api", 0, 1, false);
    acks(0, 3, "v2", true, "n1"), acks(3, 2, "v2", true, "n2");
    cr_expect(!judge());
    struct stage_plan more = guarded("api", 0, 1, false);
    more.percent = 20;
    cr_assert(rollout_set(&world, "web", "v2", &more).yes);
    cr_expect(!judge(), "the same stage goes on");
    instance("n2", PB__STATUS__PASSING);
    cr_expect(!judge());
    instance("n2", PB__STATUS__CRITICAL);
    cr_expect_eq(rollout_look(&world, "web")->judgement->critical, 2);
    cr_expect(judge() && stage()->paused);
    cr_assert(rollout_do(&world, ROLLOUT_ROLLBACK, "web").yes);
    uint64_t records = records_in(&world, 38);
    begin("v2", "api", 0, 1, false);
    acks(0, 3, "v2", true, "n1"), acks(3, 2, "v2", true, "n2");
    cr_expect(!judge(), "of the next stage both were so before");
    cr_assert(rollout_do(&world, ROLLOUT_ROLLBACK, "web").yes);
    cr_expect_eq(records_in(&world, 38), records + 2, "two rows of the history, and nothing else");
}

Test(rollout_guard, what_was_said_of_an_earlier_attempt_does_not_count) {
    begin("v2", NULL, 0, 1, true);
    acks(0, 3, "v2", false, NULL);
    cr_assert(judge());
    begin("v2", NULL, 0, 1, true);
    cr_expect(!judge() && stage(), "three refused it the last time");
    cr_expect_eq(rollout_look(&world, "web")->judgement->samples, 0);
    acks(5, 1, "v2", true, NULL);
    struct stage_plan more = guarded(NULL, 0, 1, true);
    more.percent = 20;
    cr_assert(rollout_set(&world, "web", "v2", &more).yes);
    cr_expect_eq(rollout_look(&world, "web")->judgement->samples, 1, "the same stage goes on");
}

Test(rollout_guard, an_operators_pause_does_not_blind_it) {
    begin("v2", NULL, 0, 1, true);
    cr_assert(rollout_do(&world, ROLLOUT_PAUSE, "web").yes);
    acks(0, 1, "v2", false, NULL);
    cr_expect(judge());
    cr_expect_null(stage());
}

Test(rollout_guard, a_quiet_look_writes_nothing_and_looks_again) {
    struct buffer news = {0};
    begin("v2", NULL, 0, 1, true);
    acks(0, 1, "v2", true, NULL);
    fixture_updates(&world, 1000000000, &news);
    uint64_t index = rollout_look(&world, "web")->modify_index, records = records_in(&world, 38);
    cr_expect(!judge());
    cr_expect(rollout_look(&world, "web")->modify_index == index && records_in(&world, 38) == records);
    buffer_reset(&news);
    fixture_updates(&world, 1000000000, &news);
    cr_expect_str_eq(news.data, "rollout guard began web 5; ");
    buffer_free(&news);
}
