/* The agent's endpoints, with the agent's own state on a loop of its own and a server that shows it. Bodies and
 * texts are those that Consul 1.8.7 gives. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent_world.h"
#include "base/check.h"
#include "base/clock.h"

#define CHECK_JSON(id, name, status, notes, output, service, tags, type)                                         \
    "{\"Node\":\"n1\",\"CheckID\":\"" id "\",\"Name\":\"" name "\",\"Status\":\"" status "\",\"Notes\":\"" notes \
    "\",\"Output\":\"" output "\"," service ",\"ServiceTags\":" tags ",\"Type\":\"" type                         \
    "\",\"Definition\":{},\"CreateIndex\":0,\"ModifyIndex\":0}"
#define OF_DB   "\"ServiceID\":\"db1\",\"ServiceName\":\"db\""
#define OF_NODE "\"ServiceID\":\"\",\"ServiceName\":\"\""

Test(agent, services_and_checks) {
    static const char no_reason[] =
        "Maintenance mode is enabled for this node, but no reason was provided. This is a default message.";
    static const struct exchange rows[] = {
        {"GET", "/v1/agent/services", NULL, 200, "{}"},
        {"GET", "/v1/agent/checks", NULL, 200, "{}"},
        {"PUT", "/v1/agent/service/register", "{\"Name\":\"web\",\"Port\":80}", 200, ""},
        {"PUT", "/v1/agent/service/register",
         "{\"name\":\"db\",\"id\":\"db1\",\"address\":\"10.0.0.1\",\"port\":5432,\"tags\":[\"a\",\"b\"],"
         "\"meta\":{\"x\":\"1\"},\"check\":{\"ttl\":\"500s\"}}",
         200, ""},
        {"GET", "/v1/agent/services", NULL, 200,
         "{\"db1\":{\"ID\":\"db1\",\"Service\":\"db\",\"Tags\":[\"a\",\"b\"],\"Meta\":{\"x\":\"1\"},\"Port\":"
         "5432,"
         "\"Address\":\"10.0.0.1\",\"TaggedAddresses\":{\"lan_ipv4\":{\"Address\":\"10.0.0.1\",\"Port\":5432}"
         ","
         "\"wan_ipv4\":{\"Address\":\"10.0.0.1\",\"Port\":5432}},\"Weights\":{\"Passing\":1,\"Warning\":1},"
         "\"EnableTagOverride\":false},\"web\":{\"ID\":\"web\",\"Service\":\"web\",\"Tags\":[],\"Meta\":{},"
         "\"Port\":80,"
         "\"Address\":\"\",\"Weights\":{\"Passing\":1,\"Warning\":1},\"EnableTagOverride\":false}}"},
        {"GET", "/v1/agent/checks", NULL, 200,
         "{\"service:db1\":" CHECK_JSON("service:db1", "Service 'db' check", "critical", "", "", OF_DB, "[\"a\",\"b\"]",
                                        "ttl") "}"},
        {"PUT", "/v1/agent/check/pass/service:db1?note=fine%20%3C", NULL, 200, ""},
        {"GET", "/v1/agent/checks", NULL, 200,
         "{\"service:db1\":" CHECK_JSON("service:db1", "Service 'db' check", "passing", "", "fine \\u003c", OF_DB,
                                        "[\"a\",\"b\"]", "ttl") "}"},
        {"PUT", "/v1/agent/check/warn/service:db1", NULL, 200, ""},
        {"PUT", "/v1/agent/check/fail/service:db1", NULL, 200, ""},
        {"PUT", "/v1/agent/check/update/service:db1", "{\"Status\":\"passing\",\"Output\":\"hello\"}", 200, ""},
        {"PUT", "/v1/agent/service/deregister/web", NULL, 200, ""},
        {"PUT", "/v1/agent/service/maintenance/db1?enable=true&reason=fix", NULL, 200, ""},
        {"PUT", "/v1/agent/maintenance?enable=true", NULL, 200, ""},
        {"PUT", "/v1/agent/check/register", "{\"Name\":\"n\",\"TTL\":\"500s\",\"Status\":\"warning\"}", 200, ""},
    };
    struct agent *agent = agent_new();
    agent_talk(agent, rows, ARRAY_COUNT(rows));
    struct buffer want = {0}, answer = {0}, head = {0};
    buffer_printf(&want,
                  "{\"_node_maintenance\":" CHECK_JSON("_node_maintenance", "Node Maintenance Mode", "critical", "%s", "",
                                                       OF_NODE, "[]", "maintenance") ",\"_service_maintenance:db1\":" CHECK_JSON(
                      "_service_maintenance:db1", "Service Maintenance Mode", "critical", "fix", "", OF_DB, "[\"a\",\"b\"]",
                      "maintenance") ",\"n\":" CHECK_JSON("n", "n", "warning", "", "", OF_NODE, "[]",
                                                          "ttl") ",\"service:db1\":" CHECK_JSON("service:db1",
                                                                                                "Service 'db' check",
                                                                                                "passing", "", "hello",
                                                                                                OF_DB, "[\"a\",\"b\"]",
                                                                                                "ttl") "}%c",
                  no_reason, '\0');
    cr_assert_eq(agent_ask(agent, NULL, "GET", "/v1/agent/checks", NULL, &answer, &head), 200);
    cr_assert_str_eq(answer.data, want.data);
    buffer_free(&want);
    buffer_free(&answer);
    buffer_free(&head);
    agent_free(agent);
}

Test(agent, refusals) {
    static const struct exchange rows[] = {
        {"PUT", "/v1/agent/service/register", "{}", 400, "Missing service name"},
        {"PUT", "/v1/agent/service/register", "{\"Name\":\"x\",\"Check\":{\"HTTP\":\"http://x\"}}", 400,
         "Invalid check: Interval must be > 0 for Script, HTTP, or TCP checks"},
        {"PUT", "/v1/agent/service/register", "{\"Name\":\"x\"", 400, NULL},
        {"PUT", "/v1/agent/service/register", "", 400, NULL},
        {"POST", "/v1/agent/service/register", "{}", 405, "method POST not allowed; allowed: GET,PUT"},
        {"PUT", "/v1/agent/service/deregister/nope", NULL, 200, ""},
        {"PUT", "/v1/agent/service/deregister/", NULL, 500, "ServiceID missing"},
        {"GET", "/v1/agent/service/nope", NULL, 404, "unknown service ID: nope"},
        {"PUT", "/v1/agent/service/maintenance/db1", NULL, 400, "Missing value for enable"},
        {"PUT", "/v1/agent/service/maintenance/db1?enable=bogus", NULL, 400, "Invalid value for enable: \"bogus\""},
        {"PUT", "/v1/agent/service/maintenance/nope?enable=true", NULL, 404, "No service registered with ID \"nope\""},
        {"PUT", "/v1/agent/service/maintenance/?enable=true", NULL, 400, "Missing service ID"},
        {"PUT", "/v1/agent/maintenance", NULL, 400, "Missing value for enable"},
        {"PUT", "/v1/agent/check/register", "{}", 400, "Missing check name"},
        {"PUT", "/v1/agent/check/register", "{\"Name\":\"n\"}", 400, "Invalid check: TTL must be > 0 for TTL checks"},
        {"PUT", "/v1/agent/check/register", "{\"Name\":\"n\",\"TTL\":\"5s\",\"Status\":\"x\"}", 400,
         "Bad check status"},
        {"PUT", "/v1/agent/check/register", "{\"Name\":\"n\",\"ServiceID\":\"nope\",\"TTL\":\"5s\"}", 500,
         "ServiceID \"nope\" does not exist"},
        {"PUT", "/v1/agent/check/pass/nope", NULL, 500, "CheckID \"nope\" does not have associated TTL"},
        {"PUT", "/v1/agent/check/pass/", NULL, 500, "CheckID \"\" does not have associated TTL"},
        {"PUT", "/v1/agent/check/update/nope", "{\"Status\":\"passing\"}", 500,
         "CheckID \"nope\" does not have associated TTL"},
        {"PUT", "/v1/agent/check/update/nope", "{\"Status\":\"bogus\"}", 400, "Invalid check status: 'bogus'"},
        {"PUT", "/v1/agent/check/update/nope", "{\"Output\":\"x\"}", 400, "Invalid check status: ''"},
        {"PUT", "/v1/agent/check/deregister/nope", NULL, 200, ""},
        {"PUT", "/v1/agent/check/deregister/", NULL, 500, "CheckID missing"},
        {"GET", "/v1/agent/check/pass/n", NULL, 405, "method GET not allowed; allowed: PUT"},
        {"GET", "/v1/agent/health/service/id/nope", NULL, 404,
         "{\"AggregatedStatus\":\"critical\",\"Service\":null,\"Checks\":null}"},
        {"GET", "/v1/agent/health/service/name/nope", NULL, 404, "[]"},
        {"GET", "/v1/agent/health/service/name/nope?format=text", NULL, 404, "ServiceName nope Not Found"},
    };
    struct agent *agent = agent_new();
    agent_talk(agent, rows, ARRAY_COUNT(rows));
    agent_free(agent);
}

/* A client that registers and then asks the catalog finds the service. */
Test(agent, a_registration_is_in_the_catalog_when_it_is_answered) {
    struct agent *agent = agent_new();
    struct buffer answer = {0}, head = {0};
    for (int i = 0; i < 30; i++) {
        char text[100], target[60];
        snprintf(text, sizeof text, "{\"Name\":\"s%d\",\"Check\":{\"TTL\":\"60s\"}}", i);
        cr_assert_eq(agent_ask(agent, NULL, "PUT", "/v1/agent/service/register", text, &answer, &head), 200);
        snprintf(target, sizeof target, "/v1/agent/check/pass/service:s%d", i);
        cr_assert_eq(agent_ask(agent, NULL, "PUT", target, NULL, &answer, &head), 200);
        snprintf(target, sizeof target, "/v1/health/service/s%d?passing", i);
        cr_assert_eq(agent_ask(agent, NULL, "GET", target, NULL, &answer, &head), 200);
        cr_assert_not_null(strstr(answer.data, "\"serfHealth\""), "%s", answer.data);
        snprintf(target, sizeof target, "/v1/agent/service/deregister/s%d", i);
        cr_assert_eq(agent_ask(agent, NULL, "PUT", target, NULL, &answer, &head), 200);
        snprintf(target, sizeof target, "/v1/catalog/service/s%d", i);
        cr_assert_eq(agent_ask(agent, NULL, "GET", target, NULL, &answer, &head), 200);
        cr_assert_str_eq(answer.data, "[]");
    }
    buffer_free(&answer);
    buffer_free(&head);
    agent_free(agent);
}

Test(agent, registering_without_a_leader_is_answered_soon) {
    struct agent *agent = agent_new();
    struct buffer answer = {0}, head = {0};
    fake_rpc_leader(world_rpc(agent->world), false);
    uint64_t took_ms = UINT64_MAX;
    for (int i = 0; i < 3 && took_ms >= 4000; i++) { /* again: the machine stood still */
        uint64_t begin = clock_mono_ms();
        cr_assert_eq(agent_ask(agent, NULL, "PUT", "/v1/agent/service/register", "{\"Name\":\"web\"}", &answer, &head),
                     200);
        took_ms = clock_mono_ms() - begin;
    }
    cr_assert_lt(took_ms, 4000);
    cr_assert_eq(agent_ask(agent, NULL, "GET", "/v1/agent/service/web", NULL, &answer, &head), 200);
    fake_rpc_leader(world_rpc(agent->world), true);
    EVENTUALLY(agent_ask(agent, NULL, "GET", "/v1/catalog/service/web", NULL, &answer, &head) == 200 &&
               strlen(answer.data) > 2);
    buffer_free(&answer);
    buffer_free(&head);
    agent_free(agent);
}

struct poll {
    struct agent *agent;
    char target[100];
    pthread_t thread;
    struct buffer answer, head;
    long status;
    _Atomic bool ended;
};

static void *poll_main(void *data) {
    struct poll *poll = data;
    poll->status = agent_ask(poll->agent, NULL, "GET", poll->target, NULL, &poll->answer, &poll->head);
    poll->ended = true;
    return NULL;
}

/* Blocks while the hash is the one given; other services and health do not wake it. */
Test(agent, blocks_on_a_services_hash) {
    struct agent *agent = agent_new();
    struct buffer answer = {0}, head = {0};
    struct poll poll = {.agent = agent};
    agent_ask(agent, NULL, "PUT", "/v1/agent/service/register", "{\"Name\":\"web\",\"Check\":{\"TTL\":\"60s\"}}",
              &answer, &head);
    cr_assert_eq(agent_ask(agent, NULL, "GET", "/v1/agent/service/web", NULL, &answer, &head), 200);
    const char *at = strstr(answer.data, "\"ContentHash\":\"");
    cr_assert_not_null(at);
    char hash[20];
    cr_assert_eq(sscanf(at, "\"ContentHash\":\"%16[0-9a-f]\"", hash), 1);
    cr_assert_not_null(strcasestr(head.data, "X-Consul-ContentHash: "));
    snprintf(poll.target, sizeof poll.target, "/v1/agent/service/web?hash=%s&wait=5m", hash);
    CHECK(pthread_create(&poll.thread, NULL, poll_main, &poll) == 0);
    agent_ask(agent, NULL, "PUT", "/v1/agent/service/register", "{\"Name\":\"other\"}", &answer, &head);
    agent_ask(agent, NULL, "PUT", "/v1/agent/check/pass/service:web", NULL, &answer, &head);
    for (uint64_t end = clock_mono_ms() + 50; clock_mono_ms() < end;) cr_assert(!poll.ended);
    agent_ask(agent, NULL, "PUT", "/v1/agent/service/register", "{\"Name\":\"web\",\"Port\":7}", &answer, &head);
    pthread_join(poll.thread, NULL);
    cr_assert_eq(poll.status, 200);
    cr_assert_not_null(strstr(poll.answer.data, "\"Port\":7"), "%s", poll.answer.data);
    cr_assert_null(strstr(poll.answer.data, hash));
    at = strstr(poll.answer.data, "\"ContentHash\":\"");
    cr_assert_eq(sscanf(at, "\"ContentHash\":\"%16[0-9a-f]\"", hash), 1);
    snprintf(poll.target, sizeof poll.target, "/v1/agent/service/web?hash=%s&wait=50ms", hash);
    uint64_t begin = clock_mono_ms();
    cr_assert_eq(agent_ask(agent, NULL, "GET", poll.target, NULL, &answer, &head), 200);
    cr_assert_geq(clock_mono_ms() - begin, 50);
    buffer_free(&answer);
    buffer_free(&head);
    buffer_free(&poll.answer);
    buffer_free(&poll.head);
    agent_free(agent);
}

Test(agent, health_in_the_status_code) {
    static const struct exchange rows[] = {
        {"PUT", "/v1/agent/service/register",
         "{\"Name\":\"hh\",\"ID\":\"h1\",\"Check\":{\"TTL\":\"60s\",\"Status\":\"passing\"}}", 200, ""},
        {"GET", "/v1/agent/health/service/id/h1?format=text", NULL, 200, "passing"},
        {"GET", "/v1/agent/health/service/name/hh?format=text", NULL, 200, "passing"},
        {"PUT", "/v1/agent/service/register",
         "{\"Name\":\"hh\",\"ID\":\"h2\",\"Check\":{\"TTL\":\"60s\",\"Status\":\"warning\"}}", 200, ""},
        {"GET", "/v1/agent/health/service/id/h1?format=text", NULL, 200, "passing"},
        {"GET", "/v1/agent/health/service/id/h2?format=text", NULL, 429, "warning"},
        {"GET", "/v1/agent/health/service/name/hh?format=text", NULL, 429, "warning"},
        {"GET", "/v1/agent/health/service/id/h1", NULL, 200,
         "{\"AggregatedStatus\":\"passing\",\"Service\":{\"ID\":\"h1\",\"Service\":\"hh\",\"Tags\":[],"
         "\"Meta\":{},\"Port\":0,"
         "\"Address\":\"\",\"Weights\":{\"Passing\":1,\"Warning\":1},\"EnableTagOverride\":false},\"Checks\":"
         "[{\"Node\":\"n1\","
         "\"CheckID\":\"service:h1\",\"Name\":\"Service 'hh' "
         "check\",\"Status\":\"passing\",\"Notes\":\"\",\"Output\":\"\","
         "\"ServiceID\":\"h1\",\"ServiceName\":\"hh\",\"ServiceTags\":null,\"Type\":\"\",\"Definition\":{"
         "\"Interval\":\"0s\","
         "\"Timeout\":\"0s\",\"DeregisterCriticalServiceAfter\":\"0s\",\"HTTP\":\"\",\"Header\":null,"
         "\"Method\":\"\",\"Body\":\"\","
         "\"TLSSkipVerify\":false,\"TCP\":\"\"},\"CreateIndex\":0,\"ModifyIndex\":0}]}"},
        {"PUT", "/v1/agent/service/register",
         "{\"Name\":\"tt\",\"ID\":\"t1\",\"Tags\":[\"a\",\"b\"],\"Check\":{\"TTL\":\"60s\",\"Status\":"
         "\"passing\"}}",
         200, ""},
        {"GET", "/v1/agent/health/service/id/t1", NULL, 200,
         "{\"AggregatedStatus\":\"passing\",\"Service\":{\"ID\":\"t1\",\"Service\":\"tt\",\"Tags\":[\"a\","
         "\"b\"],"
         "\"Meta\":{},\"Port\":0,"
         "\"Address\":\"\",\"Weights\":{\"Passing\":1,\"Warning\":1},\"EnableTagOverride\":false},\"Checks\":"
         "[{\"Node\":\"n1\",\"CheckID\":\"service:t1\",\"Name\":\"Service 'tt' "
         "check\",\"Status\":\"passing\","
         "\"Notes\":\"\",\"Output\":\"\",\"ServiceID\":\"t1\",\"ServiceName\":\"tt\",\"ServiceTags\":[\"a\","
         "\"b\"],"
         "\"Type\":\"\",\"Definition\":{\"Interval\":\"0s\",\"Timeout\":\"0s\","
         "\"DeregisterCriticalServiceAfter\":\"0s\","
         "\"HTTP\":\"\",\"Header\":null,\"Method\":\"\",\"Body\":\"\",\"TLSSkipVerify\":false,\"TCP\":\"\"},"
         "\"CreateIndex\":0,\"ModifyIndex\":0}]}"},
        {"PUT", "/v1/agent/maintenance?enable=1", NULL, 200, ""},
        {"GET", "/v1/agent/health/service/id/h1?format=text", NULL, 503, "maintenance"},
        {"PUT", "/v1/agent/maintenance?enable=F", NULL, 200, ""},
        {"PUT", "/v1/agent/check/fail/service:h1", NULL, 200, ""},
        {"GET", "/v1/agent/health/service/name/hh?format=text", NULL, 503, "critical"},
    };
    struct agent *agent = agent_new();
    agent_talk(agent, rows, ARRAY_COUNT(rows));
    agent_free(agent);
}

Test(agent, self_and_members) {
    struct agent *agent = agent_new();
    struct buffer answer = {0}, head = {0};
    static const char *const parts[] = {
        "\"Config\":{\"Datacenter\":\"dc1\",\"NodeName\":\"n1\",\"NodeID\":\"\",\"Revision\":\"\",\"Server\":"
        "true,"
        "\"Version\":\"1.8.7\",\"CoordVersion\":\"1.2.3\"}",
        "\"DebugConfig\":{",
        "\"Coord\":{\"Vec\":[0,0,0,0,0,0,0,0],",
        "\"Member\":{\"Name\":\"n1\",\"Addr\":\"127.0.0.1\",",
        "\"Stats\":{\"agent\":{\"check_monitors\":\"0\",",
        "\"Meta\":{"};
    cr_assert_eq(agent_ask(agent, NULL, "GET", "/v1/agent/self", NULL, &answer, &head), 200);
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
        cr_assert_not_null(strstr(answer.data, parts[i]), "%s in %s", parts[i], answer.data);
    }
    cr_assert_eq(agent_ask(agent, NULL, "GET", "/v1/agent/members?wan=1", NULL, &answer, &head), 200);
    cr_assert_not_null(strstr(answer.data, "\"Status\":1,"), "%s", answer.data);
    cr_assert_not_null(strstr(answer.data, "\"role\":\"consul\""), "%s", answer.data);
    buffer_free(&answer);
    buffer_free(&head);
    agent_free(agent);
}
