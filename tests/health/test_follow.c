/* Alias checks of other nodes: they follow what the servers say, and only that. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "fake_agent.h"
#include "health/definition.h"
#include "looks.h"
#include "tests/lib/until.h"

#define MS INT64_C(1000000)

static void check(struct agent *agent, const char *text) {
    struct fault fault = {0};
    struct json_object *json = json_parse(slice_text(text), &fault);
    struct check_definition *definition = json ? check_definition_parse(json, &fault) : NULL;
    cr_assert_not_null(definition, "%s", fault.text);
    json_object_put(json);
    cr_assert_eq(local_check_register(agent->local, definition, true, &fault), CO_OK, "%s", fault.text);
}

static bool is(struct agent *agent, const char *id, Pb__Status status, const char *output) {
    struct arena arena = {0};
    Pb__Check **checks;
    bool found = false;
    size_t count = local_checks(agent->local, &arena, &checks);
    for (size_t i = 0; i < count; i++) {
        struct slice text = slice_make(checks[i]->output.data, checks[i]->output.len);
        found = found || (strcmp(checks[i]->check_id, id) == 0 && checks[i]->status == status &&
                          slice_equal(text, slice_text(output)));
    }
    arena_free(&arena);
    return found;
}

static void far_service(struct agent *agent, const char *node_name, Pb__Status status, const char *output) {
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__Service there = PB__SERVICE__INIT;
    Pb__Check one = PB__CHECK__INIT, *checks[] = {&one};
    node.name = there.node = one.node = (char *)node_name;
    node.address = (char *)"10.0.0.2";
    there.id = there.name = one.service_id = one.service_name = (char *)"db";
    there.weight_passing = there.weight_warning = 1;
    one.check_id = one.name = (char *)"dbc";
    one.status = status;
    one.output = (ProtobufCBinaryData){strlen(output), (uint8_t *)output};
    command.node = &node;
    command.service = &there;
    command.checks = checks;
    command.n_checks = 1;
    fake_rpc_apply(agent->rpc, CATALOG_REGISTER, &command.base);
}

static void far_service_goes(struct agent *agent, const char *node) {
    Pb__DeregisterCommand command = PB__DEREGISTER_COMMAND__INIT;
    command.node = (char *)node;
    command.service_id = (char *)"db";
    fake_rpc_apply(agent->rpc, CATALOG_DEREGISTER, &command.base);
}

static const char alias_db[] = "{\"Name\":\"s\",\"AliasNode\":\"n2\",\"AliasService\":\"db\"}";
static const char down[] = "Aliased check \"dbc\" failing: tail";
static const char up[] = "All checks passing.";
static const char gone[] = "Service db could not be found on node n2";

Test(follow, another_node_through_the_catalog) {
    struct agent *agent = agent_new(false);
    check(agent, alias_db);
    check(agent, "{\"Name\":\"m\",\"AliasNode\":\"n2\",\"AliasService\":\"nosuch\"}");
    check(agent, "{\"Name\":\"n\",\"AliasNode\":\"n2\"}");
    UNTIL(is(agent, "s", PB__STATUS__CRITICAL, gone));
    UNTIL(is(agent, "n", PB__STATUS__CRITICAL, "Node n2 could not be found"));
    far_service(agent, "n2", PB__STATUS__PASSING, "");
    UNTIL(is(agent, "s", PB__STATUS__PASSING, up));
    UNTIL(is(agent, "n", PB__STATUS__PASSING, "No checks found.")); /* those of its services do not count */
    far_service(agent, "n2", PB__STATUS__CRITICAL, "tail");
    UNTIL(is(agent, "s", PB__STATUS__CRITICAL, down));
    cr_assert(is(agent, "m", PB__STATUS__CRITICAL, "Service nosuch could not be found on node n2"));
    far_service_goes(agent, "n2");
    UNTIL(is(agent, "s", PB__STATUS__CRITICAL, gone));
    cr_assert(is(agent, "n", PB__STATUS__PASSING, "No checks found."));
    agent_free(agent);
}

/* A service that comes and goes with a failing check never looks as if all was well. */
Test(follow, services_and_checks_are_of_one_moment) {
    struct agent *agent = agent_new(false);
    check(agent, alias_db);
    UNTIL(is(agent, "s", PB__STATUS__CRITICAL, gone));
    fake_rpc_slow(agent->rpc, 3000);
    for (int i = 0; i < 30; i++) {
        uint64_t end = clock_mono_ms() + UNTIL_MS;
        const char *expected = i % 2 ? gone : down;
        if (i % 2) far_service_goes(agent, "n2");
        else far_service(agent, "n2", PB__STATUS__CRITICAL, "tail");
        while (!is(agent, "s", PB__STATUS__CRITICAL, expected)) {
            cr_assert_not(is(agent, "s", PB__STATUS__PASSING, "No checks found."), "turn %d", i);
            cr_assert_lt(clock_mono_ms(), end, "turn %d", i);
            usleep(1000); /* the loop thread wants the lock, too, and a machine under load wakes it late */
        }
    }
    agent_free(agent);
}

Test(follow, has_no_result_before_the_first_answer) {
    struct agent *agent = agent_new(false);
    agent_stop(agent);
    agent->alias_lost_ns = 1 * MS;
    agent_start(agent);
    fake_rpc_fence(agent->rpc, true);
    check(agent, "{\"Name\":\"s\",\"AliasNode\":\"n2\",\"AliasService\":\"db\",\"Status\":\"passing\"}");
    UNTIL(fake_rpc_fenced(agent->rpc) >= 4); /* asked, and asked again */
    cr_assert(is(agent, "s", PB__STATUS__PASSING, ""));
    fake_rpc_fence(agent->rpc, false);
    UNTIL(is(agent, "s", PB__STATUS__CRITICAL, gone));
    agent_free(agent);
}

Test(follow, keeps_its_state_for_a_while_without_answers) {
    struct agent *agent = agent_new(false);
    agent_stop(agent);
    agent->alias_lost_ns = 1000 * MS;
    agent_start(agent);
    far_service(agent, "n2", PB__STATUS__PASSING, "");
    uint64_t begun_ms = clock_mono_ms(); /* the last answer comes later */
    check(agent, alias_db);
    UNTIL(is(agent, "s", PB__STATUS__PASSING, up));
    fake_rpc_fence(agent->rpc, true);
    far_service(agent, "n2", PB__STATUS__WARNING, "tail"); /* what waits is read again, and ends */
    UNTIL(fake_rpc_fenced(agent->rpc) > 0);
    cr_assert(is(agent, "s", PB__STATUS__PASSING, up) || clock_mono_ms() - begun_ms >= 1000);
    static const char lost[] = "Failure checking aliased node or service: ";
    char text[200];
    snprintf(text, sizeof text, "%s%s", lost, co_strerror(CO_FENCED));
    UNTIL(is(agent, "s", PB__STATUS__CRITICAL, text));
    cr_assert_geq(clock_mono_ms() - begun_ms, 990, "not at once");
    fake_rpc_fence(agent->rpc, false);
    UNTIL(is(agent, "s", PB__STATUS__WARNING, down));
    agent_free(agent);
}

/* One follower a node, and none when nobody wants it; what stands still costs nothing. */
Test(follow, asks_once_for_all_aliases_of_a_node) {
    struct agent *agent = agent_new(false);
    far_service(agent, "n2", PB__STATUS__PASSING, "");
    check(agent, alias_db);
    UNTIL(is(agent, "s", PB__STATUS__PASSING, up));
    UNTIL(local_synced(agent->local));
    uint64_t before = fake_rpc_fetched(agent->rpc), let_go = fake_rpc_cancelled(agent->rpc);
    for (int i = 0; i < 20; i++) {
        char text[200], id[20];
        snprintf(id, sizeof id, "s%d", i);
        snprintf(text, sizeof text, "{\"Name\":\"%s\",\"AliasNode\":\"n2\",\"AliasService\":\"db\"}", id);
        check(agent, text);
        UNTIL(is(agent, id, PB__STATUS__PASSING, up));
    }
    cr_assert_eq(fake_rpc_fetched(agent->rpc), before);
    for (int i = 0; i < 20; i++) {
        char id[20];
        snprintf(id, sizeof id, "s%d", i);
        cr_assert_eq(local_check_deregister(agent->local, slice_text(id)), CO_OK);
    }
    UNTIL(local_synced(agent->local));
    far_service(agent, "n2", PB__STATUS__CRITICAL, "tail"); /* one is left */
    UNTIL(is(agent, "s", PB__STATUS__CRITICAL, down));
    cr_assert_eq(local_check_deregister(agent->local, slice_text("s")), CO_OK);
    UNTIL(fake_rpc_cancelled(agent->rpc) >= let_go + 2);
    check(agent, alias_db); /* and a new one begins anew */
    UNTIL(is(agent, "s", PB__STATUS__CRITICAL, down));
    agent_free(agent);
}

/* An alias that is registered again may be of another node. */
Test(follow, may_change_its_node) {
    struct agent *agent = agent_new(false);
    far_service(agent, "n2", PB__STATUS__PASSING, "");
    far_service(agent, "n3", PB__STATUS__CRITICAL, "tail");
    check(agent, alias_db);
    UNTIL(is(agent, "s", PB__STATUS__PASSING, up));
    check(agent, "{\"Name\":\"s\",\"AliasNode\":\"n3\",\"AliasService\":\"db\"}");
    UNTIL(is(agent, "s", PB__STATUS__CRITICAL, down));
    check(agent, "{\"Name\":\"s\",\"TTL\":\"10m\"}");
    check(agent, "{\"Name\":\"here\",\"AliasNode\":\"" FAKE_AGENT_NODE "\"}");
    UNTIL(is(agent, "here", PB__STATUS__CRITICAL, "Aliased check \"s\" failing: Aliased check \"dbc\" failing: tail"));
    agent_free(agent);
}
