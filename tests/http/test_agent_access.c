/* The rights of a token on an agent's services, checks and tokens. */
#include <criterion/criterion.h>
#include <string.h>

#include "agent_world.h"
#include "base/check.h"
#include "tests/lib/with_access.h"

/* -- tokens ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *secret, *rules;
} tokens[] = {
    {"root", "otherwise:write"},
    {"none", "key:write=x"},
    {"web", "service:write=web node:read=n1"},
    {"web-reader", "service:read=web"},
    {"db", "service:write=db"},
    {"node", "node:write=n1"},
    {"agent", "agent:write=n1"},
    {"agent-reader", "agent:read=n1"},
    {"both", "service:write=web service:write=db"},
    {"quota", "quota:write=a"},
};

static int resolve(void *data, struct store_txn *txn, const struct requester *requester, int64_t now_unix_ms,
                   struct access **access, int64_t *until_unix_ms) {
    (void)data, (void)txn, (void)now_unix_ms;
    *until_unix_ms = INT64_MAX;
    for (size_t i = 0; i < ARRAY_COUNT(tokens); i++) {
        if (strcmp(requester->text, tokens[i].secret) != 0) continue;
        *access = access_of(tokens[i].rules);
        return CO_OK;
    }
    bool anonymous = requester->slot == REQUESTER_ANONYMOUS;
    if (anonymous) *access = access_of("key:read=x");
    return anonymous ? CO_OK : CO_NOTOKEN;
}
static const struct rpc_access_control control = {.changes = {1, {"", 0}}, .resolve = resolve};

static struct agent *agent;
static struct buffer answer, head;

static long ask(const char *token, const char *method, const char *target, const char *body) {
    return agent_ask(agent, token, method, target, body, &answer, &head);
}

static void setup(void) {
    agent = agent_new_with(&control);
    static const char *const bodies[] = {
        "{\"Name\":\"web\",\"ID\":\"web1\",\"Check\":{\"TTL\":\"1m\"}}",
        "{\"Name\":\"db\",\"ID\":\"db1\",\"Check\":{\"TTL\":\"1m\"}}",
    };
    for (size_t i = 0; i < ARRAY_COUNT(bodies); i++)
        cr_assert_eq(ask("root", "PUT", "/v1/agent/service/register", bodies[i]), 200, "%s", answer.data);
    cr_assert_eq(ask("root", "PUT", "/v1/agent/check/register", "{\"Name\":\"disk\",\"TTL\":\"1m\"}"), 200);
}

static void teardown(void) {
    agent_free(agent);
    buffer_free(&answer), buffer_free(&head);
}

TestSuite(agent_access, .init = setup, .fini = teardown);

static bool says(const char *text) { return strstr(answer.data, text) != NULL; }

/* -- reading ------------------------------------------------------------------------------------------------------ */

Test(agent_access, lists_have_what_the_token_may_read) {
    cr_expect(ask("web-reader", "GET", "/v1/agent/services", NULL) == 200 && says("web1") && !says("db"), "%s",
              answer.data);
    cr_expect(strstr(head.data, "X-Coord-Filtered: 1\r\n"), "%s", head.data);
    cr_expect(ask("none", "GET", "/v1/agent/services", NULL) == 200 && says("{}"));
    cr_expect(ask(NULL, "GET", "/v1/agent/services", NULL) == 200 && says("{}"));
    cr_expect(ask("web-reader", "GET", "/v1/agent/checks", NULL) == 200 && says("service:web1") && !says("disk") &&
                  !says("db"),
              "%s", answer.data);
    cr_expect(ask("node", "GET", "/v1/agent/checks", NULL) == 200 && says("disk") && !says("web1"), "%s", answer.data);
    cr_expect(ask("root", "GET", "/v1/agent/checks", NULL) == 200 && says("disk") && says("web1") && says("db1"));
    cr_expect_eq(ask("unknown", "GET", "/v1/agent/services", NULL), 403);
    cr_expect(says("ACL not found"), "%s", answer.data);
}

Test(agent_access, members_are_nodes) {
    cr_expect(ask("none", "GET", "/v1/agent/members", NULL) == 200 && says("[]"), "%s", answer.data);
    cr_expect(ask("node", "GET", "/v1/agent/members", NULL) == 200 && says("\"n1\""), "%s", answer.data);
}

Test(agent_access, one_service_is_shown_by_its_name) {
    cr_expect_eq(ask("web-reader", "GET", "/v1/agent/service/web1", NULL), 200);
    cr_expect_eq(ask("web-reader", "GET", "/v1/agent/service/db1", NULL), 403);
    cr_expect(says("service:read on \"db1\""), "the name is not told: %s", answer.data);
    cr_expect_eq(ask("web-reader", "GET", "/v1/agent/service/none", NULL), 404, "clients learn what is not there");
    cr_expect_eq(ask("none", "GET", "/v1/agent/service/none", NULL), 403);
    cr_expect_eq(ask("none", "GET", "/v1/agent/service/web1", NULL), 403);
}

Test(agent_access, health_is_shown_by_the_services_name_and_rows_of_the_node_by_its) {
    cr_expect_eq(ask("web-reader", "GET", "/v1/agent/health/service/id/web1", NULL), 503);
    cr_expect(says("service:web1") && !says("disk"), "%s", answer.data);
    cr_expect_eq(ask("web", "GET", "/v1/agent/health/service/name/web", NULL), 503);
    cr_expect(says("service:web1") && says("disk"), "%s", answer.data);
    cr_expect_eq(ask("web", "GET", "/v1/agent/health/service/id/db1", NULL), 403);
    cr_expect_eq(ask("web", "GET", "/v1/agent/health/service/name/db", NULL), 403);
    cr_expect_eq(ask("web-reader", "GET", "/v1/agent/check/explain/service:web1", NULL), 200);
    cr_expect_eq(ask("agent-reader", "GET", "/v1/agent/check/explain/service:web1", NULL), 403);
    cr_expect_eq(ask("web-reader", "GET", "/v1/agent/check/explain/disk", NULL), 403);
}

Test(agent_access, the_agent_itself_needs_agent_read) {
    static const char *const targets[] = {"/v1/agent/self", "/v1/agent/metrics", "/v1/agent/metrics/certificates"};
    for (size_t i = 0; i < ARRAY_COUNT(targets); i++) {
        cr_expect_eq(ask("agent-reader", "GET", targets[i], NULL), 200, "%s", targets[i]);
        cr_expect_eq(ask("node", "GET", targets[i], NULL), 403, "%s", targets[i]);
    }
    cr_expect_eq(ask("node", "GET", "/v1/agent/monitor", NULL), 403);
}

/* -- writing ------------------------------------------------------------------------------------------------------ */

struct try {
    const char *method, *target, *body;
    const char *may, *may_not; /* a token each */
};

Test(agent_access, each_write_needs_write_of_what_it_changes) {
    static const struct try tries[] = {
        {"PUT", "/v1/agent/service/register", "{\"Name\":\"web\",\"ID\":\"web2\"}", "web", "web-reader"},
        {"PUT", "/v1/agent/service/register", "{\"Name\":\"web\",\"ID\":\"db1\"}", "both", "web"},
        {"PUT", "/v1/agent/service/register", "{\"Name\":\"db\",\"ID\":\"db1\"}", "both", "db"},
        {"PUT", "/v1/agent/service/register",
         "{\"Name\":\"web\",\"Checks\":[{\"CheckID\":\"service:db1\",\"TTL\":\"1m\"}]}", "both", "web"},
        {"PUT", "/v1/agent/check/register", "{\"Name\":\"c\",\"ServiceID\":\"web1\",\"TTL\":\"1m\"}", "web", "db"},
        {"PUT", "/v1/agent/check/register", "{\"Name\":\"m\",\"TTL\":\"1m\"}", "node", "web"},
        {"PUT", "/v1/agent/check/register", "{\"Name\":\"disk\",\"ServiceID\":\"web1\",\"TTL\":\"1m\"}", "root", "web"},
        {"PUT", "/v1/agent/check/register", "{\"Name\":\"alias\",\"ServiceID\":\"web1\",\"AliasService\":\"db1\"}",
         "root", "web"},
        {"PUT", "/v1/agent/check/pass/service:web1", NULL, "web", "web-reader"},
        {"PUT", "/v1/agent/check/warn/service:web1", NULL, "web", "db"},
        {"PUT", "/v1/agent/check/fail/service:web1", NULL, "web", "node"},
        {"PUT", "/v1/agent/check/update/service:web1", "{\"Status\":\"passing\"}", "web", "none"},
        {"PUT", "/v1/agent/check/deregister/service:web1", NULL, "web", "db"},
        {"PUT", "/v1/agent/service/load/web1?load=0.5", NULL, "web", "web-reader"},
        {"PUT", "/v1/agent/service/maintenance/web1?enable=true", NULL, "web", "web-reader"},
        {"PUT", "/v1/agent/service/deregister/web1", NULL, "web", "db"},
        {"PUT", "/v1/agent/service/deregister/gone", NULL, "db", "web-reader"},
        {"PUT", "/v1/agent/check/deregister/gone", NULL, "db", "web-reader"},
        {"PUT", "/v1/agent/maintenance?enable=true", NULL, "node", "agent"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(tries); i++) {
        const struct try *try = &tries[i];
        cr_expect_eq(ask(try->may_not, try->method, try->target, try->body), 403, "%s: %s", try->target, answer.data);
        cr_expect(says("Permission denied: "), "%s: %s", try->target, answer.data);
        cr_expect_eq(ask(try->may, try->method, try->target, try->body), 200, "%s: %s", try->target, answer.data);
    }
}

Test(agent_access, an_unknown_check_is_told_to_who_may_register_it) {
    cr_expect_eq(ask("web", "PUT", "/v1/agent/check/pass/gone", NULL), 500);
    cr_expect(says("does not have associated TTL"), "%s", answer.data);
    cr_expect_eq(ask("none", "PUT", "/v1/agent/check/pass/gone", NULL), 403);
}

Test(agent_access, a_coordinate_needs_node_write) {
    static const char body[] =
        "{\"Node\":\"n2\",\"Coord\":{\"Vec\":[0,0,0,0,0,0,0,0],\"Error\":1.5,\"Adjustment\":0,"
        "\"Height\":0.1}}";
    cr_expect_eq(ask("node", "PUT", "/v1/coordinate/update", body), 403, "%s", answer.data);
    cr_expect_eq(ask("root", "PUT", "/v1/coordinate/update", body), 200, "%s", answer.data);
}

Test(agent_access, each_take_needs_its_own_budget) {
    static const char body[] = "[{\"Name\":\"a\"},{\"Name\":\"b\"}]";
    cr_expect_eq(ask("quota", "PUT", "/v1/agent/quota/take", body), 403);
    cr_expect(says("quota:write on \"b\""), "%s", answer.data);
    cr_expect_eq(ask("quota", "PUT", "/v1/agent/quota/take", "[{\"Name\":\"a\"}]"), 503, "%s", answer.data);
}

/* -- the agent's tokens ------------------------------------------------------------------------------------------- */

Test(agent_access, tokens_are_set_by_agent_write) {
    static const struct {
        const char *name;
        enum http_agent_token token;
    } names[] = {
        {"default", HTTP_AGENT_TOKEN_DEFAULT},
        {"acl_token", HTTP_AGENT_TOKEN_DEFAULT},
        {"agent", HTTP_AGENT_TOKEN_AGENT},
        {"acl_agent_token", HTTP_AGENT_TOKEN_AGENT},
        {"agent_master", HTTP_AGENT_TOKEN_MASTER},
        {"master", HTTP_AGENT_TOKEN_MASTER},
        {"acl_agent_master_token", HTTP_AGENT_TOKEN_MASTER},
    };
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        char target[80];
        snprintf(target, sizeof target, "/v1/agent/token/%s", names[i].name);
        strcpy(agent->set.secret, "untouched");
        cr_expect_eq(ask("agent-reader", "PUT", target, "{\"Token\":\"s\"}"), 403);
        cr_expect_str_eq(agent->set.secret, "untouched");
        cr_expect_eq(ask("agent", "PUT", target, "{\"Token\":\"s\"}"), 200, "%s", answer.data);
        cr_expect(agent->set.token == names[i].token && strcmp(agent->set.secret, "s") == 0, "%s", target);
        cr_expect_eq(ask("agent", "PUT", target, "{\"Token\":\"\"}"), 200);
        cr_expect_str_eq(agent->set.secret, "");
    }
    cr_expect_eq(ask("agent", "PUT", "/v1/agent/token/other", "{\"Token\":\"s\"}"), 404);
    cr_expect_eq(ask("agent", "PUT", "/v1/agent/token/replication", "{\"Token\":\"s\"}"), 400);
    cr_expect_eq(ask("agent", "PUT", "/v1/agent/token/default", "{\"Tokn\":\"s\"}"), 400);
    cr_expect_eq(ask("agent", "PUT", "/v1/agent/token/default", "{\"Token\":\"a\\u0000b\"}"), 400);
}

Test(agent_access_off, tokens_of_the_agent_are_401) {
    agent = agent_new();
    cr_expect_eq(ask("any", "PUT", "/v1/agent/token/default", "{\"Token\":\"s\"}"), 401);
    cr_expect_str_eq(answer.data, "ACL support disabled");
    cr_expect_eq(ask("any", "GET", "/v1/agent/services", NULL), 200);
    agent_free(agent);
    buffer_free(&answer), buffer_free(&head);
}
