/* Checks of a running agent that depend on more than themselves: aliases, scripts that may or may not run, damping. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "fake_agent.h"
#include "health/check_runner.h"
#include "health/definition.h"
#include "looks.h"
#include "tests/lib/until.h"

#define NODE   FAKE_AGENT_NODE
#define SECOND INT64_C(1000000000)

static int put_service(struct agent *agent, const char *text, bool persist, struct fault *fault) {
    struct json_object *json = json_parse(slice_text(text), fault);
    struct service_definition *definition = json ? service_definition_parse(json, fault) : NULL;
    cr_assert_not_null(definition, "%s", fault->text);
    json_object_put(json);
    return local_service_register(agent->local, definition, false, persist, fault);
}
static int put_check(struct agent *agent, const char *text, bool persist, struct fault *fault) {
    struct json_object *json = json_parse(slice_text(text), fault);
    struct check_definition *definition = json ? check_definition_parse(json, fault) : NULL;
    cr_assert_not_null(definition, "%s", fault->text);
    json_object_put(json);
    return local_check_register(agent->local, definition, persist, fault);
}
static void service(struct agent *agent, const char *text) {
    struct fault fault = {0};
    cr_assert_eq(put_service(agent, text, true, &fault), CO_OK, "%s", fault.text);
}
static void check(struct agent *agent, const char *text) {
    struct fault fault = {0};
    cr_assert_eq(put_check(agent, text, true, &fault), CO_OK, "%s", fault.text);
}
static void tell(struct agent *agent, const char *id, Pb__Status status, const char *output) {
    struct fault fault = {0};
    cr_assert_eq(local_check_update(agent->local, slice_text(id), status, slice_text(output), &fault), CO_OK);
}

/* Status and the beginning of the output, here or in the catalog. */
static bool record_is(const Pb__Check *check, Pb__Status status, const char *output) {
    return check && check->status == status &&
           slice_starts(slice_make(check->output.data, check->output.len), slice_text(output));
}
static bool is(struct agent *agent, const char *id, Pb__Status status, const char *output) {
    struct arena arena = {0};
    Pb__Check **checks;
    bool found = false;
    size_t count = local_checks(agent->local, &arena, &checks);
    for (size_t i = 0; i < count; i++)
        found = found || (strcmp(checks[i]->check_id, id) == 0 && record_is(checks[i], status, output));
    arena_free(&arena);
    return found;
}
static bool catalog_is(struct agent *agent, const char *node, const char *id, Pb__Status status, const char *output) {
    struct arena arena = {0};
    bool yes = record_is(look_check(agent->rpc, &arena, node, id), status, output);
    arena_free(&arena);
    return yes;
}

/* -- what an alias makes of its target: pure
 * ------------------------------------------------------------------------ */

Test(kinds_alias, the_worst_counts) {
    static const struct {
        const char *statuses;
        bool found;
        const char *service;
        Pb__Status status;
        const char *text;
    } rows[] = {
        {"", true, "s", PB__STATUS__PASSING, "No checks found."},
        {"p", true, "s", PB__STATUS__PASSING, "All checks passing."},
        {"pwp", true, "s", PB__STATUS__WARNING, "Aliased check \"check 1\" failing: output 1"},
        {"pwcp", true, "s", PB__STATUS__CRITICAL, "Aliased check \"check 2\" failing: output 2"},
        {"cw", true, "s", PB__STATUS__CRITICAL, "Aliased check \"check 0\" failing: output 0"},
        {"p", false, "s", PB__STATUS__CRITICAL, "Service s could not be found on node n"},
        {"", false, "", PB__STATUS__CRITICAL, "Node n could not be found"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        Pb__Check records[4], *list[4];
        char names[4][20], outputs[4][20];
        struct alias_target target = {.node = "n", .found = rows[i].found, .checks = list};
        for (; rows[i].statuses[target.count]; target.count++) {
            size_t at = target.count;
            snprintf(names[at], sizeof names[at], "check %zu", at);
            snprintf(outputs[at], sizeof outputs[at], "output %zu", at);
            pb__check__init(list[at] = &records[at]);
            records[at].name = names[at];
            records[at].output = (ProtobufCBinaryData){strlen(outputs[at]), (uint8_t *)outputs[at]};
            records[at].status = (Pb__Status)(strchr("pwc", rows[i].statuses[at]) - "pwc");
        }
        struct check_definition *d = check_definition_blank("a", "");
        free(d->alias_service);
        d->alias_service = mem_strdup(rows[i].service);
        struct buffer text = {0};
        Pb__Status status;
        alias_judge(d, &target, &status, &text);
        cr_assert_eq(status, rows[i].status, "row %zu", i);
        cr_assert(slice_is(buffer_slice(&text), rows[i].text), "row %zu: %.*s", i, (int)text.size, text.data);
        buffer_free(&text);
        check_definition_free(d);
    }
}

/* -- aliases at work
 * ------------------------------------------------------------------------------------------------ */

Test(kinds_alias, follows_a_local_service_at_once) {
    struct agent *agent = agent_new(false);
    service(agent, "{\"Name\":\"front\",\"Check\":{\"Name\":\"behind\",\"CheckID\":\"a\",\"AliasService\":\"back\"}}");
    UNTIL(is(agent, "a", PB__STATUS__CRITICAL, "Service back could not be found on node " NODE));
    service(agent, "{\"Name\":\"back\"}");
    UNTIL(is(agent, "a", PB__STATUS__PASSING, "No checks found."));
    check(agent, "{\"Name\":\"b\",\"ServiceID\":\"back\",\"TTL\":\"10m\"}");
    UNTIL(is(agent, "a", PB__STATUS__CRITICAL, "Aliased check \"b\" failing: "));
    tell(agent, "b", PB__STATUS__PASSING, "");
    UNTIL(is(agent, "a", PB__STATUS__PASSING, "All checks passing."));
    tell(agent, "b", PB__STATUS__WARNING, "hm");
    UNTIL(is(agent, "a", PB__STATUS__WARNING, "Aliased check \"b\" failing: hm"));
    tell(agent, "b", PB__STATUS__WARNING, "well");
    UNTIL(is(agent, "a", PB__STATUS__WARNING, "Aliased check \"b\" failing: well"));
    tell(agent, "b", PB__STATUS__WARNING, "so so");
    UNTIL(is(agent, "a", PB__STATUS__WARNING, "Aliased check \"b\" failing: so so"));
    UNTIL(catalog_is(agent, NODE, "a", PB__STATUS__WARNING, ""));
    tell(agent, "b", PB__STATUS__PASSING, "");
    check(agent, "{\"Name\":\"other\",\"TTL\":\"10m\"}");
    UNTIL(is(agent, "a", PB__STATUS__CRITICAL, "Aliased check \"other\" failing: ")); /* the node's count */
    tell(agent, "other", PB__STATUS__PASSING, "");
    UNTIL(is(agent, "a", PB__STATUS__PASSING, ""));
    cr_assert_eq(local_service_maintenance(agent->local, slice_text("back"), true, slice_text("why")), CO_OK);
    UNTIL(is(agent, "a", PB__STATUS__CRITICAL, "Aliased check \"Service Maintenance Mode\" failing: "));
    cr_assert_eq(local_service_deregister(agent->local, slice_text("back")), CO_OK);
    UNTIL(is(agent, "a", PB__STATUS__CRITICAL, "Service back could not be found"));
    agent_free(agent);
}

/* Two that look at each other do not keep each other down, and what one of them rests on counts for both. */
Test(kinds_alias, circles_come_up_again) {
    struct agent *agent = agent_new(false);
    service(agent,
            "{\"Name\":\"x\",\"Checks\":[{\"CheckID\":\"ax\",\"AliasService\":\"y\"},{\"CheckID\":\"bx\","
            "\"TTL\":\"10m\"}]}");
    service(agent, "{\"Name\":\"y\",\"Checks\":[{\"CheckID\":\"ay\",\"AliasService\":\"z\"}]}");
    service(agent, "{\"Name\":\"z\",\"Checks\":[{\"CheckID\":\"az\",\"AliasService\":\"x\"}]}");
    service(agent, "{\"Name\":\"self\",\"Checks\":[{\"CheckID\":\"as\",\"AliasService\":\"self\"}]}");
    UNTIL(is(agent, "az", PB__STATUS__CRITICAL, "Aliased check \"Service 'x' check\" failing"));
    UNTIL(is(agent, "as", PB__STATUS__PASSING, "No checks found."));
    tell(agent, "bx", PB__STATUS__PASSING, "");
    UNTIL(is(agent, "az", PB__STATUS__PASSING, ""));
    UNTIL(is(agent, "ay", PB__STATUS__PASSING, ""));
    UNTIL(is(agent, "ax", PB__STATUS__PASSING, ""));
    tell(agent, "bx", PB__STATUS__CRITICAL, "");
    UNTIL(is(agent, "az", PB__STATUS__CRITICAL, ""));
    tell(agent, "bx", PB__STATUS__PASSING, "");
    UNTIL(is(agent, "az", PB__STATUS__PASSING, "") && is(agent, "ax", PB__STATUS__PASSING, ""));
    agent_free(agent);
}

/* A restart is no reason for a fall. */
Test(kinds_alias, keeps_its_state_over_a_restart) {
    struct agent *agent = agent_new(true);
    service(agent, "{\"Name\":\"back\",\"Check\":{\"CheckID\":\"b\",\"TTL\":\"10m\"}}");
    service(agent, "{\"Name\":\"front\",\"Check\":{\"CheckID\":\"a\",\"AliasService\":\"back\"}}");
    tell(agent, "b", PB__STATUS__PASSING, "");
    UNTIL(catalog_is(agent, NODE, "a", PB__STATUS__PASSING, "") &&
          catalog_is(agent, NODE, "b", PB__STATUS__PASSING, ""));
    UNTIL(local_synced(agent->local));
    agent_stop(agent);
    uint64_t writes = fake_rpc_writes(agent->rpc);
    agent_start(agent);
    UNTIL(is(agent, "a", PB__STATUS__PASSING, "All checks passing."));
    UNTIL(local_synced(agent->local));
    cr_assert_eq(fake_rpc_writes(agent->rpc), writes, "nothing had to be said");
    tell(agent, "b", PB__STATUS__CRITICAL, "");
    UNTIL(catalog_is(agent, NODE, "a", PB__STATUS__CRITICAL, ""));
    agent_free(agent);
}

/* -- scripts
 * -------------------------------------------------------------------------------------------------------- */

Test(kinds_script, runs_only_where_it_may) {
    static const char text[] =
        "{\"Name\":\"s\",\"Args\":[\"/bin/sh\",\"-c\",\"echo ran; exit 1\"],\"Interval\":\"1s\"}";
    struct agent *agent = agent_new(true);
    struct fault fault = {0};
    cr_assert_eq(put_check(agent, text, true, &fault), CO_DENIED);
    cr_assert_str_eq(fault.text,
                     "Scripts are disabled on this agent from remote calls; to enable, configure "
                     "'enable_script_checks' to true");
    fault = (struct fault){0};
    cr_assert_eq(
        put_service(agent, "{\"Name\":\"w\",\"Checks\":[{\"TTL\":\"9s\"},{\"Args\":[\"x\"],\"Interval\":\"9s\"}]}",
                    true, &fault),
        CO_DENIED);
    fault = (struct fault){0};
    cr_assert_eq(put_check(agent, text, false, &fault), CO_DENIED);
    agent_stop(agent);
    agent->permission.local_scripts = true;
    agent_start(agent);
    fault = (struct fault){0};
    cr_assert_eq(put_check(agent, text, true, &fault), CO_DENIED);
    fault = (struct fault){0};
    cr_assert_eq(put_check(agent, text, false, &fault), CO_OK, "%s", fault.text);
    UNTIL(is(agent, "s", PB__STATUS__WARNING, "ran\n"));
    agent_stop(agent);
    agent->permission = (struct check_permission){.scripts = true};
    agent_start(agent);
    check(agent, text);
    UNTIL(is(agent, "s", PB__STATUS__WARNING, "ran\n"));
    UNTIL(catalog_is(agent, NODE, "s", PB__STATUS__WARNING, "ran\n"));
    UNTIL(local_synced(agent->local));
    agent_stop(agent); /* saved; and the next time it is not allowed any more */
    agent->permission.scripts = false;
    agent_start(agent);
    UNTIL(is(agent, "s", PB__STATUS__CRITICAL, "Scripts are disabled on this agent from remote calls"));
    agent_stop(agent);
    agent->permission.scripts = true;
    agent_start(agent);
    UNTIL(is(agent, "s", PB__STATUS__WARNING, "ran\n"));
    agent_free(agent);
}

/* Thresholds, the size of the output and the service's end are not a matter of the kind. */
Test(kinds_script, settings_of_all_checks_apply) {
    struct agent *agent = agent_new(false);
    agent_stop(agent);
    agent->permission.scripts = true;
    agent_start(agent);
    check(agent,
          "{\"Name\":\"slow\",\"Args\":[\"/bin/sh\",\"-c\",\"exit "
          "2\"],\"Interval\":\"1s\",\"Status\":\"passing\","
          "\"FailuresBeforeWarning\":1,\"FailuresBeforeCritical\":3}");
    check(agent, "{\"Name\":\"short\",\"Args\":[\"echo\",\"0123456789\"],\"Interval\":\"1s\",\"OutputMaxSize\":4}");
    service(agent,
            "{\"Name\":\"gone\",\"Check\":{\"Args\":[\"false\"],\"Interval\":\"1s\",\"Status\":\"passing\","
            "\"DeregisterCriticalServiceAfter\":\"1s\"}}");
    service(agent,
            "{\"Name\":\"lost\",\"Check\":{\"AliasService\":\"nowhere\",\"DeregisterCriticalServiceAfter\":"
            "\"1500ms\"}}");
    UNTIL(is(agent, "slow", PB__STATUS__WARNING, ""));
    UNTIL(is(agent, "slow", PB__STATUS__CRITICAL, ""));
    UNTIL(is(agent, "short", PB__STATUS__PASSING, "Captured 4 of 11 bytes\n...\n789\n"));
    UNTIL(is(agent, "service:gone", PB__STATUS__WARNING, "")); /* exit 1: not critical, so it stays */
    UNTIL(local_service_hash(agent->local, slice_text("lost")) == 0);
    cr_assert_neq(local_service_hash(agent->local, slice_text("gone")), 0);
    service(agent,
            "{\"Name\":\"gone\",\"Check\":{\"Args\":[\"/bin/sh\",\"-c\",\"exit 2\"],\"Interval\":\"1s\","
            "\"DeregisterCriticalServiceAfter\":\"1s\"}}");
    UNTIL(local_service_hash(agent->local, slice_text("gone")) == 0);
    agent_free(agent);
}

/* -- damping
 * -------------------------------------------------------------------------------------------------------- */

Test(kinds_damping, is_seen_and_ends) {
    struct agent *agent = agent_new(true);
    agent_stop(agent);
    agent->flap_limit = 3;
    agent->flap_window_ns = 2 * SECOND;
    agent_start(agent);
    check(agent, "{\"Name\":\"f\",\"TTL\":\"10m\",\"Status\":\"passing\"}");
    UNTIL(local_synced(agent->local)); /* its timer is set */
    for (int i = 0; i < 6; i++)
        tell(agent, "f", i % 2 ? PB__STATUS__PASSING : PB__STATUS__CRITICAL, i % 2 ? "up" : "down");
    const char *held =
        "Held as critical: more than 3 changes of state within 2s (check_flap_limit). "
        "It is passing now. Output: up";
    cr_assert(is(agent, "f", PB__STATUS__CRITICAL, held));
    UNTIL(catalog_is(agent, NODE, "f", PB__STATUS__CRITICAL, held));
    /* The state that is held is not the check's own: not when the agent starts anew, not when the check is
     * registered again. */
    agent_stop(agent);
    agent_start(agent);
    UNTIL(is(agent, "f", PB__STATUS__PASSING, "up"));
    UNTIL(catalog_is(agent, NODE, "f", PB__STATUS__PASSING, "up"));
    for (int i = 0; i < 6; i++)
        tell(agent, "f", i % 2 ? PB__STATUS__PASSING : PB__STATUS__CRITICAL, i % 2 ? "up" : "down");
    cr_assert(is(agent, "f", PB__STATUS__CRITICAL, held));
    check(agent, "{\"Name\":\"f\",\"TTL\":\"9m\",\"Status\":\"passing\"}");
    cr_assert(is(agent, "f", PB__STATUS__PASSING, "up"));
    for (int i = 0; i < 6; i++)
        tell(agent, "f", i % 2 ? PB__STATUS__PASSING : PB__STATUS__CRITICAL, i % 2 ? "up" : "down");
    cr_assert(is(agent, "f", PB__STATUS__CRITICAL, held));
    UNTIL(is(agent, "f", PB__STATUS__PASSING, "up"));
    UNTIL(catalog_is(agent, NODE, "f", PB__STATUS__PASSING, "up"));
    agent_free(agent);
}
