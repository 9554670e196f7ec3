/* Each command of this folder needs its rules, and none of its commands and queries was forgotten. Further: the policy of
 * key lists; and changes of hidden things, which are no changes of an answer. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "access_kv.h"
#include "base/check.h"
#include "base/message.h"
#include "kv/barrier/barrier.h"
#include "kv/event/event.h"
#include "kv/fence/fence.h"
#include "kv/hazard/hazard.h"
#include "kv/phaser/phaser.h"
#include "kv/txn/txn.h"
#include "queues.h"
#include "quotas.h"
#include "rollouts.h"

static struct fixture world;
static char one[UUID_TEXT_SIZE + 1];

static void setup(void) {
    quotas_open(&world);
    session_id(1, one);
    cr_assert(session_make(&world, one, &(struct session_plan){.node = "n1"}).yes);
}
static void teardown(void) { fixture_close(&world); }
TestSuite(access_kv, .init = setup, .fini = teardown);

static ProtobufCBinaryData binary(const char *of) { return message_bytes(slice_text(of)); }

/* -- none was forgotten ------------------------------------------------------------------------------------------- */

Test(access_kv, every_command_and_every_query_asks) {
    const struct modules *modules = machine_modules(world.machine);
    size_t commands = 0, queries = 0;
    for (size_t i = 0; i < modules_count(modules); i++) {
        const struct module *module = modules_at(modules, i);
        for (const struct module_command *row = module->commands; row && row->number; row++) {
            bool here = (row->number >= 32 && row->number < 64) || (row->number >= 128 && row->number < 208);
            commands += here;
            cr_expect(!here || row->may || row->servers_only, "%s", row->name);
        }
        for (const struct query_type *const *query = module->queries; query && *query; query++) {
            bool here = ((*query)->number >= 32 && (*query)->number < 64) ||
                        ((*query)->number >= 128 && (*query)->number < 208);
            queries += here;
            cr_expect(!here || (*query)->show, "%s", (*query)->name);
        }
    }
    cr_expect(commands >= 40 && queries >= 38, "%zu %zu", commands, queries);
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

static bool may(const char *rules, uint8_t type, const ProtobufCMessage *message, char missing[256]) {
    struct access *access = access_of(rules);
    int error = fixture_may(&world, access, type, message, missing);
    access_release(access);
    return error == CO_OK;
}

/* "kind:level=name" -> "kind_prefix:level=" with its first letter, and "kind:deny=name". */
static void by_prefix_denied(const char *rule, char out[300]) {
    size_t kind = strcspn(rule, ":_"), to_name = strcspn(rule, "=");
    const char *level = strchr(rule, ':') + 1, *name = rule + to_name + 1;
    snprintf(out, 300, "%.*s_prefix:%.*s= %.*s:deny=%s%s", (int)kind, rule, (int)(rule + to_name - level), level,
             (int)kind, rule, name, rule[kind] == '_' ? "x" : "");
}

/* With all rules it may; without one of them, with less, or with that name denied it may not. `rules` ends with NULL. */
static void needs(uint8_t type, const ProtobufCMessage *message, const char *const *rules) {
    char all[1000] = "", missing[256];
    for (size_t i = 0; rules[i]; i++) snprintf(all + strlen(all), sizeof all - strlen(all), "%s ", rules[i]);
    cr_expect(may(all, type, message, missing), "%u with %s lacks %s", type, all, missing);
    for (size_t left = 0; rules[left]; left++) {
        char rest[1000] = "", denied[300], less[300];
        for (size_t i = 0; rules[i]; i++)
            if (i != left) snprintf(rest + strlen(rest), sizeof rest - strlen(rest), "%s ", rules[i]);
        size_t end = strlen(rest);
        cr_expect_not(may(rest, type, message, missing), "%u without %s", type, rules[left]);
        by_prefix_denied(rules[left], denied);
        snprintf(rest + end, sizeof rest - end, "%s", denied);
        cr_expect_not(may(rest, type, message, missing), "%u with %s", type, rest);
        const char *write = strstr(rules[left], ":write");
        if (!write) continue;
        snprintf(less, sizeof less, "%.*s:list%s", (int)(write - rules[left]), rules[left], write + 6);
        snprintf(rest + end, sizeof rest - end, "%s", less);
        cr_expect_not(may(rest, type, message, missing), "%u with %s", type, rest);
    }
}
#define NEEDS(type, command, ...) needs(type, &(command).base, (const char *const[]){__VA_ARGS__, NULL})

Test(access_kv, keys) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.key = binary("a/b");
    for (unsigned verb = 0; verb <= PB__KV_VERB__KV_DELETE_CAS; verb++) {
        command.verb = verb;
        command.session = verb == PB__KV_VERB__KV_LOCK ? one : text("");
        NEEDS(KV_APPLY, command, "key:write=a/b");
    }
    command.fence = text("l");
    NEEDS(KV_APPLY_FENCED, command, "key:write=a/b", "lock:read=l");
    command.fence = text(""), command.verb = PB__KV_VERB__KV_DELETE_TREE;
    NEEDS(KV_APPLY, command, "key_prefix:write=a/b");
    cr_expect_not(may("key_prefix:write= key_prefix:read=a/bc/d", KV_APPLY, &command.base, NULL));
    cr_expect(may("key_prefix:write= key_prefix:read=a/cc/d", KV_APPLY, &command.base, NULL));
    Pb__KvRestoreCommand restore = PB__KV_RESTORE_COMMAND__INIT;
    restore.key = binary("a/b"), restore.dry_run = true;
    NEEDS(KV_RESTORE, restore, "key:write=a/b");
    restore.recurse = true;
    NEEDS(KV_RESTORE, restore, "key_prefix:write=a/b");
}

Test(access_kv, sessions) {
    Pb__SessionCreateCommand create = PB__SESSION_CREATE_COMMAND__INIT;
    Pb__Session session = PB__SESSION__INIT;
    session.node = text("n2"), create.session = &session;
    NEEDS(SESSION_CREATE, create, "session:write=n2");
    Pb__SessionDestroyCommand destroy = PB__SESSION_DESTROY_COMMAND__INIT;
    Pb__SessionTtlCommand ttl = PB__SESSION_TTL_COMMAND__INIT;
    destroy.id = ttl.id = one;
    NEEDS(SESSION_DESTROY, destroy, "session:write=n1");
    NEEDS(SESSION_TTL, ttl, "session:write=n1");
    destroy.id = text("00000000-0000-4000-8000-00000000ffff"); /* it is not there */
    cr_expect(may("", SESSION_DESTROY, &destroy.base, NULL));
}

/* A command for a session, and one that makes it. */
#define NEEDS_SESSION(type, command, ...)                      \
    do {                                                       \
        Pb__SessionUse use_ = PB__SESSION_USE__INIT;           \
        Pb__Session made_ = PB__SESSION__INIT;                 \
        made_.node = text("n2"), use_.id = one;                \
        (command).session = &use_;                             \
        NEEDS(type, command, __VA_ARGS__);                     \
        use_.id = text(""), use_.create = &made_;              \
        NEEDS(type, command, __VA_ARGS__, "session:write=n2"); \
    } while (0)

Test(access_kv, locks_and_elections) {
    Pb__QueueAcquireCommand acquire = PB__QUEUE_ACQUIRE_COMMAND__INIT;
    Pb__QueueReleaseCommand release = PB__QUEUE_RELEASE_COMMAND__INIT;
    Pb__QueueNoteCommand note = PB__QUEUE_NOTE_COMMAND__INIT;
    acquire.name = release.name = note.name = text("l/1");
    NEEDS_SESSION(LOCK_ACQUIRE, acquire, "lock:write=l/1");
    NEEDS_SESSION(ELECTION_CAMPAIGN, acquire, "lock:write=l/1");
    NEEDS(LOCK_RELEASE, release, "lock:write=l/1");
    NEEDS(ELECTION_RESIGN, release, "lock:write=l/1");
    NEEDS(ELECTION_PROCLAIM, note, "lock:write=l/1");
}

Test(access_kv, barriers_phasers_hazards_fences) {
    Pb__BarrierEnterCommand enter = PB__BARRIER_ENTER_COMMAND__INIT;
    Pb__BarrierLeaveCommand leave = PB__BARRIER_LEAVE_COMMAND__INIT;
    enter.name = leave.name = text("b");
    NEEDS_SESSION(BARRIER_ENTER, enter, "lock:write=b");
    NEEDS(BARRIER_LEAVE, leave, "lock:write=b");
    Pb__PhaserRegisterCommand join = PB__PHASER_REGISTER_COMMAND__INIT;
    Pb__PhaserArriveCommand arrive = PB__PHASER_ARRIVE_COMMAND__INIT;
    Pb__PhaserDeregisterCommand part = PB__PHASER_DEREGISTER_COMMAND__INIT;
    join.name = arrive.name = part.name = text("p");
    NEEDS_SESSION(PHASER_REGISTER, join, "lock:write=p");
    join.parent = text("q");
    NEEDS_SESSION(PHASER_REGISTER, join, "lock:write=p", "lock:write=q");
    NEEDS(PHASER_ARRIVE, arrive, "lock:write=p");
    NEEDS(PHASER_DEREGISTER, part, "lock:write=p");
    Pb__HazardProtectCommand protect = PB__HAZARD_PROTECT_COMMAND__INIT;
    Pb__HazardClearCommand clear = PB__HAZARD_CLEAR_COMMAND__INIT;
    Pb__HazardRetireCommand retire = PB__HAZARD_RETIRE_COMMAND__INIT;
    protect.object = clear.object = retire.object = text("h");
    NEEDS_SESSION(HAZARD_PROTECT, protect, "lock:write=h");
    NEEDS(HAZARD_CLEAR, clear, "lock:write=h");
    NEEDS(HAZARD_RETIRE, retire, "lock:write=h");
    Pb__FenceCheckCommand fence = PB__FENCE_CHECK_COMMAND__INIT;
    fence.resource = text("f");
    NEEDS(FENCE_CHECK, fence, "lock:write=f");
    fence.lock = text("l");
    NEEDS(FENCE_CHECK, fence, "lock:write=f", "lock:read=l");
}

Test(access_kv, events_budgets_rollouts) {
    Pb__EventFireCommand fire = PB__EVENT_FIRE_COMMAND__INIT;
    Pb__Event event = PB__EVENT__INIT;
    event.name = text("deploy"), fire.event = &event;
    NEEDS(EVENT_FIRE, fire, "event:write=deploy");
    Pb__QuotaPutCommand put = PB__QUOTA_PUT_COMMAND__INIT;
    Pb__QuotaDeleteCommand delete = PB__QUOTA_DELETE_COMMAND__INIT;
    Pb__QuotaSettleCommand settle = PB__QUOTA_SETTLE_COMMAND__INIT;
    Pb__QuotaDefinition plain = quota_plain("q", PB__QUOTA_MODE__QUOTA_LEASE),
                        owned = quota_plain("q", PB__QUOTA_MODE__QUOTA_OWNER);
    put.definition = &plain, delete.name = settle.name = text("q");
    NEEDS(QUOTA_PUT, put, "quota:write=q");
    put.definition = &owned;
    NEEDS(QUOTA_PUT, put, "quota:write=q", "service:read=api");
    NEEDS(QUOTA_DELETE, delete, "quota:write=q");
    NEEDS(QUOTA_SETTLE, settle, "quota:write=q");
    Pb__RolloutSetCommand set = PB__ROLLOUT_SET_COMMAND__INIT;
    Pb__RolloutGuard guard = PB__ROLLOUT_GUARD__INIT;
    Pb__RolloutPublishCommand publish = PB__ROLLOUT_PUBLISH_COMMAND__INIT;
    Pb__RolloutChangeCommand change = PB__ROLLOUT_CHANGE_COMMAND__INIT;
    Pb__RolloutAckCommand ack = PB__ROLLOUT_ACK_COMMAND__INIT;
    Pb__RolloutSchemaCommand schema = PB__ROLLOUT_SCHEMA_COMMAND__INIT;
    Pb__RolloutDeleteCommand end = PB__ROLLOUT_DELETE_COMMAND__INIT;
    set.name = publish.name = change.name = ack.name = schema.name = end.name = text("r");
    NEEDS(ROLLOUT_SET, set, "rollout:write=r");
    set.guard = &guard, guard.service = text("web");
    NEEDS(ROLLOUT_SET, set, "rollout:write=r", "service:read=web");
    NEEDS(ROLLOUT_PUBLISH, publish, "rollout:write=r");
    NEEDS(ROLLOUT_SCHEMA, schema, "rollout:write=r");
    NEEDS(ROLLOUT_ACK, ack, "rollout:read=r");
    for (uint8_t type = ROLLOUT_PROMOTE; type <= ROLLOUT_RESUME; type++) NEEDS(type, change, "rollout:write=r");
    NEEDS(ROLLOUT_DELETE, end, "rollout:write=r");
    end.with_keys = true;
    NEEDS(ROLLOUT_DELETE, end, "rollout:write=r", "key_prefix:write=config/r/");
}

/* An agent asks for parts of many budgets at once. */
Test(access_kv, an_ask_is_denied_by_itself) {
    Pb__QuotaAskCommand command = PB__QUOTA_ASK_COMMAND__INIT;
    Pb__QuotaAsk mine = PB__QUOTA_ASK__INIT, other = PB__QUOTA_ASK__INIT;
    Pb__QuotaAsk *asks[] = {&other, &mine};
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    const ProtobufCMessage *message;
    struct arena arena = {0};
    mine.name = text("mine"), other.name = text("other"), mine.want = other.want = 10;
    quota_define(&world, "mine", PB__QUOTA_MODE__QUOTA_LEASE);
    quota_define(&world, "other", PB__QUOTA_MODE__QUOTA_LEASE);
    use.id = one, command.session = &use, command.asks = asks, command.n_asks = 2;
    struct access *access = access_of("quota:write=mine");
    struct access_check check = {.access = access, .arena = &world.arena};
    const struct module_command *row = modules_command(machine_modules(world.machine), QUOTA_ASK);
    cr_assert_eq(row->may(&check, store_read(world.reader), &command.base), CO_OK);
    ProtobufCMessage *marked = message_copy(&arena, &command.base);
    store_read_done(world.reader);
    cr_assert(answer_of(&world, QUOTA_ASK, marked, &message).yes);
    const Pb__QuotaGrants *grants = (const Pb__QuotaGrants *)message;
    cr_expect_eq(grants->grants[0]->error, CO_DENIED);
    cr_expect_str_eq(grants->grants[0]->text, "Permission denied: quota:write on \"other\" is needed");
    cr_expect(grants->grants[1]->error == 0 && grants->grants[1]->granted == 10);
    cr_expect_eq(quota_look(&world, "other")->n_leases, 0);
    arena_free(&arena);
    access_release(access);
}

/* The text of the refusal, for a token with these rules. */
static const char *refusal(const char *rules, uint8_t type, const ProtobufCMessage *command) {
    static char text[1024];
    cr_assert(may(rules, type, command, NULL));
    struct outcome outcome = fixture_apply(&world, type, command);
    cr_assert_eq(outcome.error, CO_CONFLICT, "%s", outcome.text);
    snprintf(text, sizeof text, "%s", outcome.text);
    return text;
}

Test(access_kv, a_refusal_names_nothing_that_is_hidden) {
    char two[UUID_TEXT_SIZE + 1];
    Pb__SessionUse use = PB__SESSION_USE__INIT;
    Pb__QueueAcquireCommand acquire = PB__QUEUE_ACQUIRE_COMMAND__INIT;
    session_id(2, two);
    cr_assert(session_make(&world, two, &(struct session_plan){.node = "n1"}).yes);
    cr_assert(lock_take(&world, "mine", one, PB__QUEUE_MODE__QUEUE_EXCLUSIVE).token);
    cr_assert(lock_take(&world, "hidden", one, PB__QUEUE_MODE__QUEUE_EXCLUSIVE).token);
    cr_assert(lock_take(&world, "other", two, PB__QUEUE_MODE__QUEUE_EXCLUSIVE).token);
    cr_assert_eq(lock_take(&world, "hidden", two, PB__QUEUE_MODE__QUEUE_EXCLUSIVE).error, CO_OK); /* it waits */
    use.id = one, acquire.session = &use, acquire.name = text("other"), acquire.enqueue = true;
    cr_expect(strstr(refusal("lock_prefix:write=", LOCK_ACQUIRE, &acquire.base), "hidden"));
    const char *short_text = refusal("lock:write=other", LOCK_ACQUIRE, &acquire.base);
    cr_expect_str_eq(short_text, "the wait would close a circle");

    Pb__PhaserRegisterCommand join = PB__PHASER_REGISTER_COMMAND__INIT;
    join.session = &use, join.name = text("p"), join.parent = text("hidden");
    cr_assert_eq(fixture_apply(&world, PHASER_REGISTER, &join.base).error, CO_OK);
    join.parent = text("q");
    cr_expect(strstr(refusal("lock_prefix:write=", PHASER_REGISTER, &join.base), "hidden"));
    short_text = refusal("lock:write=p lock:write=q", PHASER_REGISTER, &join.base);
    cr_expect_str_eq(short_text, "parent: the phaser has another parent, or none");
    join.name = text("hidden"), join.parent = text("p");
    cr_expect(strstr(refusal("lock_prefix:write=", PHASER_REGISTER, &join.base), "p < hidden"));
    short_text = refusal("lock:write=p lock:write=hidden", PHASER_REGISTER, &join.base);
    cr_expect_str_eq(short_text, "parent: the phaser would be its own ancestor");
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static int ask_keys(const char *rules, const struct query_type *type, const char *key, const char *separator,
                    struct query_result *result) {
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    struct access_check check;
    request.key = binary(key), request.separator = binary(separator);
    struct access *access = access_of(rules);
    int error = fixture_ask_as(&world, access, type, &request.base, result, &check);
    access_release(access);
    return error;
}

Test(access_kv, the_list_policy_asks_for_a_rule_of_the_prefix) {
    struct query_result result;
    const char *reader = "key_prefix:read=a/", *lister = "key_prefix:list=a/ key:deny=a/1";
    cr_assert(kv_put(&world, "a/1", "v").yes && kv_put(&world, "a/2", "v").yes);
    const struct query_type *const types[] = {&query_kv_list, &query_kv_keys};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++) {
        kv_key_list_policy = false;
        cr_expect_eq(ask_keys(reader, types[i], "a/", "", &result), CO_OK);
        cr_expect(result.found);
        kv_key_list_policy = true;
        cr_expect_eq(ask_keys(reader, types[i], "a/", "", &result), CO_DENIED);
        cr_expect_eq(ask_keys(reader, types[i], "none/", "", &result), CO_DENIED);
        cr_expect_eq(ask_keys(lister, types[i], "a/", "", &result), CO_OK);
        cr_expect(result.found);
        cr_expect_eq(ask_keys(lister, types[i], "", "", &result), CO_DENIED);
    }
    cr_expect_eq(ask_keys(reader, &query_kv_get, "a/1", "", &result), CO_OK);
    kv_key_list_policy = false;
}

/* As Consul: 404 of a tree of which nothing may be read. */
Test(access_kv, a_tree_that_is_hidden_is_not_there) {
    struct query_result result;
    cr_assert(kv_put(&world, "a/1", "v").yes);
    cr_expect_eq(ask_keys("", &query_kv_list, "a/", "", &result), CO_OK);
    cr_expect(!result.found && !result.message);
    cr_expect_eq(ask_keys("", &query_kv_keys, "", "/", &result), CO_OK);
    cr_expect_not(result.found);
}

/* The read engine does not send an answer with the same bytes again (rpc/reads/read.h). */
Test(access_kv, a_hidden_change_leaves_the_same_bytes) {
    struct arena arena = {0};
    struct query_result result;
    const char *rules = "key_prefix:read= key_prefix:deny=a/secret";
    cr_assert(kv_put(&world, "a/1", "v").yes && kv_put(&world, "a/secret/1", "v").yes);
    cr_assert_eq(ask_keys(rules, &query_kv_list, "a/", "", &result), CO_OK);
    struct slice before = slice_copy(&arena, message_pack(&world.arena, result.message));
    cr_assert(kv_put(&world, "a/secret/2", "v").yes && kv_del(&world, "a/secret/1").yes);
    cr_assert_eq(ask_keys(rules, &query_kv_list, "a/", "", &result), CO_OK);
    cr_expect(slice_equal(before, message_pack(&world.arena, result.message)));
    cr_assert(kv_put(&world, "a/2", "v").yes);
    cr_assert_eq(ask_keys(rules, &query_kv_list, "a/", "", &result), CO_OK);
    cr_expect_not(slice_equal(before, message_pack(&world.arena, result.message)));
    arena_free(&arena);
}
