/* The end of rollouts, and since when and until when things are as they are. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/check.h"
#include "rollouts.h"

#define TEXT(literal) ((char *)(uintptr_t)(literal))
enum { ROLLOUT_TABLE = 38 };

static struct fixture world;

static void setup(void) { rollout_world(&world); }
static void teardown(void) { fixture_close(&world); }
TestSuite(rollout_delete, .init = setup, .fini = teardown);

static unsigned rows(void) {
    struct store_cursor cursor;
    unsigned count = 0;
    fixture_forget(&world);
    struct store_txn *txn = store_read(world.reader);
    struct slice all = slice_make("", 0);
    STORE_PREFIX(&cursor, txn, ROLLOUT_TABLE, all) count++;
    store_cursor_close(&cursor);
    store_read_done(world.reader);
    return count;
}

static bool key_is_there(const char *key) {
    struct query_result result = kv_get(&world, key);
    return result.found;
}

static const Pb__RolloutState *list_of_one(uint64_t *index) {
    Pb__RolloutListRequest request = PB__ROLLOUT_LIST_REQUEST__INIT;
    struct query_result result = fixture_ask(&world, &query_rollouts, &request.base);
    const Pb__RolloutsResult *all = (const Pb__RolloutsResult *)result.message;
    *index = result.index;
    return all->n_rollouts ? all->rollouts[0] : NULL;
}

Test(rollout_delete, nothing_is_left_of_it) {
    struct caller me = {.id = "me"};
    struct rollout_watch watch;
    uint64_t before, after;
    Pb__RolloutSchemaCommand schema = PB__ROLLOUT_SCHEMA_COMMAND__INIT;
    schema.name = TEXT("web"), schema.schema.data = (uint8_t *)TEXT("json"), schema.schema.len = 4;
    cr_assert(fixture_apply(&world, ROLLOUT_SCHEMA, &schema.base).yes);
    cr_assert(rollout_ack(&world, "web", "me", "v1", true, "n1").yes);
    cr_assert(rollout_ack(&world, "web", "you", "v2", false, "").yes);
    cr_assert(rollout_publish(&world, "web2", "v1", "1").yes, "its name begins with that of the other one");
    unsigned others = 3; /* record, history, version */
    cr_expect_gt(rows(), others + 10);
    (void)list_of_one(&before);
    rollout_watch_begin(&watch, &world, "web", &me);
    cr_assert(rollout_delete(&world, "web", true).yes);
    cr_expect(rollout_woken(&watch), "who waits for his version is told");
    rollout_watch_end(&watch, &world);
    cr_expect_eq(rows(), others, "%u", rows());
    cr_expect_null(rollout_ask(&world, "web", &me));
    cr_expect(!key_is_there("config/web/v1") && !key_is_there("config/web/current") && key_is_there("config/web2/v1"));
    cr_expect_str_eq(list_of_one(&after)->name, "web2");
    cr_expect_gt(after, before, "whoever waits for the list sees that one has gone");
    cr_expect(rollout_delete(&world, "web", true).yes, "once more");
    cr_assert(rollout_publish(&world, "web", "v1", "another one").yes, "the name is free");
    cr_assert(rollout_flip(&world, "web", "v1").yes);
    uint64_t index;
    cr_expect_str_eq(rollout_version(&world, "web", &me, &index), "v1");
    cr_expect_gt(index, after, "indexes grow, also over the end of it");
    cr_expect_str_eq(rollout_story(&world, "web"), "flip:>v1@100 ");
    cr_expect_eq(rollout_look(&world, "web")->callers, 0);
}

Test(rollout_delete, keys_stay_unless_they_are_to_go) {
    struct caller me = {.id = "me"};
    cr_assert(rollout_delete(&world, "web", false).yes);
    cr_expect(key_is_there("config/web/v1") && key_is_there("config/web/current"));
    cr_expect_null(rollout_ask(&world, "web", &me));
    cr_assert(rollout_publish(&world, "web", "v9", "9").yes);
    cr_expect_str_eq(rollout_version(&world, "web", &me, NULL), "v1", "the pointer that is left is taken over");
}

Test(rollout_delete, not_while_a_stage_is_under_way) {
    Pb__RolloutDeleteCommand command = PB__ROLLOUT_DELETE_COMMAND__INIT;
    command.name = TEXT("web"), command.cas_given = true;
    cr_assert(rollout_set(&world, "web", "v2", &(struct stage_plan){.percent = 10}).yes);
    unsigned before = rows();
    rollout_refused(rollout_delete(&world, "web", true), CO_CONFLICT, "\"v2\" is staged");
    cr_expect(rows() == before && key_is_there("config/web/v1"), "nothing is changed");
    cr_assert(rollout_do(&world, ROLLOUT_ROLLBACK, "web").yes);
    command.cas = rollout_look(&world, "web")->modify_index - 1;
    rollout_refused(fixture_apply(&world, ROLLOUT_DELETE, &command.base), CO_PRECONDITION, "Cas");
    command.cas++;
    cr_expect(fixture_apply(&world, ROLLOUT_DELETE, &command.base).yes);
    rollout_refused(fixture_apply(&world, ROLLOUT_DELETE, &command.base), CO_PRECONDITION, "Cas");
    command.cas = 0;
    cr_expect(fixture_apply(&world, ROLLOUT_DELETE, &command.base).yes, "there is none");
    cr_expect(rollout_due(&world, ROLLOUT_JUDGE, "web", 1).error == CO_OK, "what is still due finds nothing");
}

/* -- times -------------------------------------------------------------------------------------------------------- */
static struct outcome set_at(const char *version, bool steps, int64_t unix_ms) {
    Pb__RolloutSetCommand command = PB__ROLLOUT_SET_COMMAND__INIT;
    Pb__RolloutStep first = PB__ROLLOUT_STEP__INIT, second = PB__ROLLOUT_STEP__INIT, *all[] = {&first, &second};
    first.percent = 10, first.hold_ns = INT64_C(60000000000), second.percent = 50, second.hold_ns = first.hold_ns;
    command.name = TEXT("web"), command.version = TEXT(version), command.now_unix_ms = unix_ms;
    if (steps) command.steps = all, command.n_steps = 2;
    return fixture_apply(&world, ROLLOUT_SET, &command.base);
}

static struct outcome change_at(uint8_t number, int64_t unix_ms) {
    Pb__RolloutChangeCommand command = PB__ROLLOUT_CHANGE_COMMAND__INIT;
    command.name = TEXT("web"), command.now_unix_ms = unix_ms;
    return fixture_apply(&world, number, &command.base);
}

Test(rollout_delete, since_when_and_what_is_next) {
    cr_assert(set_at("v2", false, 1000).yes);
    cr_expect_eq(rollout_look(&world, "web")->current_unix_ms, 1000);
    cr_assert(set_at("v2", false, 1500).yes);
    cr_expect_eq(rollout_look(&world, "web")->current_unix_ms, 1000, "it is the same version");
    struct outcome staged = set_at("v3", true, 2000);
    const Pb__RolloutStageView *stage = rollout_look(&world, "web")->stage;
    cr_assert(staged.yes && stage->next);
    cr_expect(stage->began_unix_ms == 2000 && stage->since_unix_ms == 2000 && stage->paused_unix_ms == 0);
    cr_expect(stage->next->percent == 50 && stage->next->time_unix_ms == 62000);
    cr_assert(change_at(ROLLOUT_PAUSE, 3000).yes);
    stage = rollout_look(&world, "web")->stage;
    cr_expect(!stage->next && stage->paused_unix_ms == 3000 && stage->since_unix_ms == 2000);
    struct outcome resumed = change_at(ROLLOUT_RESUME, 9000);
    stage = rollout_look(&world, "web")->stage;
    cr_assert(resumed.yes && stage->next);
    cr_expect(stage->next->time_unix_ms == 69000 && stage->paused_unix_ms == 0, "a full hold");
    Pb__RolloutDueCommand due = PB__ROLLOUT_DUE_COMMAND__INIT;
    due.name = TEXT("web"), due.index = resumed.index, due.term = world.term, due.now_unix_ms = 70000;
    cr_assert(fixture_apply(&world, ROLLOUT_ADVANCE, &due.base).yes);
    stage = rollout_look(&world, "web")->stage;
    cr_expect(stage->since_unix_ms == 70000 && stage->began_unix_ms == 2000);
    cr_expect(stage->next->percent == 100 && stage->next->time_unix_ms == 130000, "then everybody has it");
    cr_assert(change_at(ROLLOUT_PROMOTE, 80000).yes);
    cr_expect_eq(rollout_look(&world, "web")->current_unix_ms, 80000);
    cr_assert(change_at(ROLLOUT_ROLLBACK, 90000).yes);
    cr_expect_eq(rollout_look(&world, "web")->current_unix_ms, 90000);
}
