/* Catalog and health answers, byte for byte as Consul 1.8.7 gives them for the same registrations (indexes apart). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "web_world.h"

#define NODE_1                                                                                             \
    "{\"ID\":\"\",\"Node\":\"web1\",\"Address\":\"10.0.0.1\",\"Datacenter\":\"dc1\",\"TaggedAddresses\":{" \
    "\"lan\":\"10.0.0.1\"},"                                                                               \
    "\"Meta\":{\"rack\":\"r1\"},\"CreateIndex\":1,\"ModifyIndex\":1}"
#define NODE_2                                                                                            \
    "{\"ID\":\"\",\"Node\":\"web2\",\"Address\":\"10.0.0.2\",\"Datacenter\":\"dc1\",\"TaggedAddresses\":" \
    "null,\"Meta\":null,"                                                                                 \
    "\"CreateIndex\":2,\"ModifyIndex\":2}"
#define MESH "\"Proxy\":{\"MeshGateway\":{},\"Expose\":{}},\"Connect\":{},"
#define SERVICE_1                                                                                        \
    "{\"ID\":\"w1\",\"Service\":\"web\",\"Tags\":[\"a\",\"b\"],\"Address\":\"\",\"Meta\":{\"v\":\"1\"}," \
    "\"Port\":80,"                                                                                       \
    "\"Weights\":{\"Passing\":5,\"Warning\":2},\"EnableTagOverride\":false," MESH                        \
    "\"CreateIndex\":1,\"ModifyIndex\":1}"
#define SERVICE_2                                                                                 \
    "{\"ID\":\"web\",\"Service\":\"web\",\"Tags\":[],\"Address\":\"\",\"Meta\":null,\"Port\":81," \
    "\"Weights\":{\"Passing\":1,\"Warning\":1},\"EnableTagOverride\":false," MESH                 \
    "\"CreateIndex\":2,\"ModifyIndex\":2}"
#define CHECK_1                                                                                            \
    "{\"Node\":\"web1\",\"CheckID\":\"service:w1\",\"Name\":\"alive\",\"Status\":\"passing\",\"Notes\":"   \
    "\"n\","                                                                                               \
    "\"Output\":\"\\u003cok\\u003e\",\"ServiceID\":\"w1\",\"ServiceName\":\"web\",\"ServiceTags\":[\"a\"," \
    "\"b\"],\"Type\":\"\","                                                                                \
    "\"Definition\":{},\"CreateIndex\":1,\"ModifyIndex\":1}"
#define FLAT_1                                                                                               \
    "{\"ID\":\"\",\"Node\":\"web1\",\"Address\":\"10.0.0.1\",\"Datacenter\":\"dc1\",\"TaggedAddresses\":{"   \
    "\"lan\":\"10.0.0.1\"},"                                                                                 \
    "\"NodeMeta\":{\"rack\":\"r1\"},\"ServiceKind\":\"\",\"ServiceID\":\"w1\",\"ServiceName\":\"web\","      \
    "\"ServiceTags\":[\"a\",\"b\"],\"ServiceAddress\":\"\",\"ServiceWeights\":{\"Passing\":5,\"Warning\":2}" \
    ","                                                                                                      \
    "\"ServiceMeta\":{\"v\":\"1\"},\"ServicePort\":80,\"ServiceEnableTagOverride\":false,"                   \
    "\"ServiceProxy\":{\"MeshGateway\":{},\"Expose\":{}},\"ServiceConnect\":{},\"CreateIndex\":1,"           \
    "\"ModifyIndex\":1}"
#define FLAT_2                                                                                               \
    "{\"ID\":\"\",\"Node\":\"web2\",\"Address\":\"10.0.0.2\",\"Datacenter\":\"dc1\",\"TaggedAddresses\":"    \
    "null,"                                                                                                  \
    "\"NodeMeta\":null,\"ServiceKind\":\"\",\"ServiceID\":\"web\",\"ServiceName\":\"web\",\"ServiceTags\":[" \
    "],"                                                                                                     \
    "\"ServiceAddress\":\"\",\"ServiceWeights\":{\"Passing\":1,\"Warning\":1},\"ServiceMeta\":{},"           \
    "\"ServicePort\":81,"                                                                                    \
    "\"ServiceEnableTagOverride\":false,\"ServiceProxy\":{\"MeshGateway\":{},\"Expose\":{}},"                \
    "\"ServiceConnect\":{},"                                                                                 \
    "\"CreateIndex\":2,\"ModifyIndex\":2}"
#define ENTRY_1 "{\"Node\":" NODE_1 ",\"Service\":" SERVICE_1 ",\"Checks\":[" CHECK_1 "]}"
#define ENTRY_2 "{\"Node\":" NODE_2 ",\"Service\":" SERVICE_2 ",\"Checks\":[]}"

static struct world *two_instances(void) {
    struct world *world = world_start(NULL);
    free(web_want(world, 200, "PUT /v1/catalog/register",
                  "{\"Node\":\"web1\",\"Address\":\"10.0.0.1\",\"TaggedAddresses\":{\"lan\":\"10.0.0.1\"},"
                  "\"NodeMeta\":{\"rack\":\"r1\"},"
                  "\"Service\":{\"ID\":\"w1\",\"Service\":\"web\",\"Port\":80,\"Tags\":[\"a\",\"b\"],"
                  "\"Meta\":{\"v\":\"1\"},"
                  "\"Weights\":{\"Passing\":5,\"Warning\":2}},"
                  "\"Check\":{\"CheckID\":\"service:w1\",\"Name\":\"alive\",\"Status\":\"passing\","
                  "\"ServiceID\":\"w1\","
                  "\"Output\":\"<ok>\",\"Notes\":\"n\"}}"));
    free(web_want(world, 200, "PUT /v1/catalog/register",
                  "{\"Node\":\"web2\",\"Address\":\"10.0.0.2\",\"Service\":{\"Service\":\"web\",\"Port\":81}}"));
    return world;
}

static const struct {
    const char *target, *body;
} answers[] = {
    {"GET /v1/catalog/nodes", "[" NODE_1 "," NODE_2 "]"},
    {"GET /v1/catalog/nodes?near=_agent", "[" NODE_1 "," NODE_2 "]"},
    {"GET /v1/catalog/nodes?node-meta=rack:r1", "[" NODE_1 "]"},
    {"GET /v1/catalog/nodes?node-meta=rack", "[]"},
    {"GET /v1/catalog/services", "{\"web\":[\"a\",\"b\"]}"},
    {"GET /v1/catalog/services?node-meta=rack:r1", "{\"web\":[\"a\",\"b\"]}"},
    {"GET /v1/catalog/service/web", "[" FLAT_1 "," FLAT_2 "]"},
    {"GET /v1/catalog/service/web?tag=a&tag=b", "[" FLAT_1 "]"},
    {"GET /v1/catalog/service/web?tag=a&tag=c", "[]"},
    {"GET /v1/catalog/service/nope", "[]"},
    {"GET /v1/catalog/node/web1", "{\"Node\":" NODE_1 ",\"Services\":{\"w1\":" SERVICE_1 "}}"},
    {"GET /v1/catalog/node/nope", "null"},
    {"GET /v1/catalog/node-services/web1", "{\"Node\":" NODE_1 ",\"Services\":[" SERVICE_1 "]}"},
    {"GET /v1/catalog/node-services/nope", "{\"Node\":null,\"Services\":null}"},
    {"GET /v1/catalog/datacenters", "[\"dc1\"]"},
    {"GET /v1/health/node/web1", "[" CHECK_1 "]"},
    {"GET /v1/health/node/nope", "[]"},
    {"GET /v1/health/checks/web", "[" CHECK_1 "]"},
    {"GET /v1/health/checks/nope", "[]"},
    {"GET /v1/health/service/web", "[" ENTRY_1 "," ENTRY_2 "]"},
    {"GET /v1/health/service/web?passing", "[" ENTRY_1 "," ENTRY_2 "]"},
    {"GET /v1/health/service/web?passing=0", "[" ENTRY_1 "," ENTRY_2 "]"},
    {"GET /v1/health/service/web?tag=b", "[" ENTRY_1 "]"},
    {"GET /v1/health/service/web?cached", "[" ENTRY_1 "," ENTRY_2 "]"},
    {"GET /v1/health/service/a/b", "[]"},
    {"GET /v1/health/service/nope", "[]"},
    {"GET /v1/health/state/passing", "[" CHECK_1 "]"},
    {"GET /v1/health/state/any", "[" CHECK_1 "]"},
    {"GET /v1/health/state/critical", "[]"},
};

Test(catalog, answers) {
    struct world *world = two_instances();
    for (size_t i = 0; i < ARRAY_COUNT(answers); i++) {
        char *body = web_want(world, 200, answers[i].target, NULL);
        cr_expect_str_eq(body, answers[i].body, "%s\ngot:    %s\nwanted: %s", answers[i].target, body, answers[i].body);
        free(body);
    }
    world_stop(world);
}

/* The headers of a read; Consul's order and spelling of them differ, what they say does not. */
Test(catalog, headers) {
    struct world *world = two_instances();
    static const struct {
        const char *target, *consistency, *cache;
    } reads[] = {
        {"GET /v1/health/service/web", "leader", ""},
        {"GET /v1/health/service/web?stale", "stale", ""},
        {"GET /v1/health/service/web?consistent", "consistent", ""},
        {"GET /v1/health/service/web?cached", "leader", "MISS"},
        {"GET /v1/catalog/node/nope", "leader", ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(reads); i++) {
        struct web_answer answer = web_ask(world, reads[i].target, NULL);
        cr_expect_str_eq(web_header(&answer, "Content-Type"), "application/json");
        cr_expect_str_eq(web_header(&answer, "Vary"), "Accept-Encoding");
        cr_expect_str_eq(web_header(&answer, "X-Consul-Effective-Consistency"), reads[i].consistency);
        cr_expect_str_eq(web_header(&answer, "X-Consul-KnownLeader"), "true");
        cr_expect_str_eq(web_header(&answer, "X-Consul-LastContact"), "0");
        cr_expect_str_eq(web_header(&answer, "X-Cache"), reads[i].cache);
        cr_expect(web_index(&answer) >= 1);
        web_free(&answer);
    }
    world_stop(world);
}

Test(catalog, pretty) {
    struct world *world = two_instances();
    char *body = web_want(world, 200, "GET /v1/catalog/service/web?tag=a&pretty", NULL);
    cr_expect_str_eq(
        body,
        "[\n    {\n        \"ID\": \"\",\n        \"Node\": \"web1\",\n        \"Address\": \"10.0.0.1\",\n"
        "        \"Datacenter\": \"dc1\",\n        \"TaggedAddresses\": {\n            \"lan\": "
        "\"10.0.0.1\"\n        },\n"
        "        \"NodeMeta\": {\n            \"rack\": \"r1\"\n        },\n        \"ServiceKind\": \"\",\n"
        "        \"ServiceID\": \"w1\",\n        \"ServiceName\": \"web\",\n        \"ServiceTags\": [\n"
        "            \"a\",\n            \"b\"\n        ],\n        \"ServiceAddress\": \"\",\n"
        "        \"ServiceWeights\": {\n            \"Passing\": 5,\n            \"Warning\": 2\n        },\n"
        "        \"ServiceMeta\": {\n            \"v\": \"1\"\n        },\n        \"ServicePort\": 80,\n"
        "        \"ServiceEnableTagOverride\": false,\n        \"ServiceProxy\": {\n            "
        "\"MeshGateway\": {},\n"
        "            \"Expose\": {}\n        },\n        \"ServiceConnect\": {},\n        \"CreateIndex\": "
        "1,\n"
        "        \"ModifyIndex\": 1\n    }\n]\n");
    free(body);
    world_stop(world);
}

Test(catalog, tagged_addresses_and_override) {
    struct world *world = world_start(NULL);
    free(web_want(world, 200, "PUT /v1/catalog/register",
                  "{\"Node\":\"n\",\"Address\":\"a\",\"Service\":{\"Service\":\"s\",\"Address\":\"1.2.3.4\","
                  "\"Port\":5,\"EnableTagOverride\":true,"
                  "\"TaggedAddresses\":{\"lan\":{\"address\":\"9.9.9.9\",\"port\":4}}}}"));
    char *body = web_want(world, 200, "GET /v1/health/service/s", NULL);
    cr_expect(strstr(body,
                     "\"Address\":\"1.2.3.4\",\"TaggedAddresses\":{\"lan\":{\"Address\":\"9.9.9.9\",\"Port\":"
                     "4}},\"Meta\":null,"
                     "\"Port\":5,"),
              "%s", body);
    cr_expect(strstr(body, "\"EnableTagOverride\":true"));
    free(body);
    body = web_want(world, 200, "GET /v1/catalog/service/s", NULL);
    cr_expect(strstr(body, "\"ServiceTaggedAddresses\":{\"lan\":{\"Address\":\"9.9.9.9\",\"Port\":4}},"), "%s", body);
    free(body);
    world_stop(world);
}

Test(catalog, comes_and_goes) {
    struct world *world = two_instances();
    static const struct {
        const char *body, *target, *after;
    } steps[] = {
        {"{\"Node\":\"web1\",\"CheckID\":\"service:w1\"}", "GET /v1/health/checks/web", "[]"},
        {"{\"Node\":\"web1\",\"CheckID\":\"never\"}", "GET /v1/health/checks/web", "[]"},
        {"{\"Node\":\"web1\",\"ServiceID\":\"w1\"}", "GET /v1/catalog/service/web", "[" FLAT_2 "]"},
        {"{\"Node\":\"web2\"}", "GET /v1/catalog/services", "{}"},
        {"{\"Node\":\"web2\"}", "GET /v1/catalog/nodes?node-meta=rack:r2", "[]"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
        char *done = web_want(world, 200, "PUT /v1/catalog/deregister", steps[i].body);
        cr_expect_str_eq(done, "true");
        char *body = web_want(world, 200, steps[i].target, NULL);
        cr_expect_str_eq(body, steps[i].after, "%s: %s", steps[i].target, body);
        free(done);
        free(body);
    }
    char *refused = web_want(world, 400, "PUT /v1/catalog/deregister", "{\"ServiceID\":\"w1\"}");
    cr_expect_str_eq(refused, "Must provide node");
    free(refused);
    /* Refusals of the store are given in its own words. */
    refused = web_want(world, 400, "PUT /v1/catalog/register",
                       "{\"Node\":\"n\",\"Address\":\"a\",\"Check\":{\"Name\":\"c\",\"ServiceID\":\"nosuch\"}}");
    cr_expect(strstr(refused, "nosuch") || strstr(refused, "service"), "%s", refused);
    free(refused);
    world_stop(world);
}

/* Stored as Consul 1.8 shows it; what a typed client could not read is refused. */
Test(catalog, definition) {
    static const struct {
        const char *in, *out; /* out: NULL, refused */
    } cases[] = {
        {"{\"TTL\":\"15s\",\"http\":\"http://"
         "x\",\"Interval\":\"90s\",\"Timeout\":100000000,\"tls_skip_verify\":true,"
         "\"Header\":{\"b\":[\"1\",\"2\"],\"a\":null},\"OutputMaxSize\":5,\"ScriptArgs\":[\"s\"],\"Unknown\":"
         "1}",
         "{\"Interval\":\"1m30s\",\"OutputMaxSize\":5,\"Timeout\":\"100ms\",\"HTTP\":\"http://"
         "x\",\"TLSSkipVerify\":true,"
         "\"Header\":{\"b\":[\"1\",\"2\"],\"a\":null},\"ScriptArgs\":[\"s\"],\"TTL\":15000000000}"},
        {"{\"Interval\":0,\"HTTP\":\"\",\"Header\":{},\"TLSSkipVerify\":false,\"Body\":null}", "{}"},
        {"{\"HTTP\":5}", NULL},
        {"{\"Interval\":\"nonsense\"}", NULL},
        {"{\"Interval\":[1]}", NULL},
        {"{\"Timeout\":\"10\"}", NULL},
        {"{\"Header\":\"x\"}", NULL},
        {"{\"Header\":{\"a\":\"x\"}}", NULL},
        {"{\"Header\":{\"a\":[1]}}", NULL},
        {"{\"TLSSkipVerify\":\"yes\"}", NULL},
        {"{\"OutputMaxSize\":-1}", NULL},
        {"{\"ScriptArgs\":[null]}", NULL},
    };
    struct world *world = world_start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char body[1024];
        snprintf(body, sizeof body,
                 "{\"Node\":\"d\",\"Address\":\"a\",\"Check\":{\"CheckID\":\"c\",\"Definition\":%s}}", cases[i].in);
        free(web_want(world, cases[i].out ? 200 : 400, "PUT /v1/catalog/register", body));
        if (!cases[i].out) continue;
        char *shown = web_want(world, 200, "GET /v1/health/node/d", NULL);
        snprintf(body, sizeof body, "\"Definition\":%s,", cases[i].out);
        cr_expect(strstr(shown, body), "%s is not in %s", body, shown);
        free(shown);
    }
    world_stop(world);
}

/* A check that says no type has that of its definition, as Consul gives it. */
Test(catalog, types_of_checks) {
    static const struct {
        const char *check, *type;
    } cases[] = {
        {"\"Definition\":{\"HTTP\":\"http://x\",\"Interval\":\"5s\"}", "http"},
        {"\"Definition\":{\"TCP\":\"x:1\",\"Interval\":\"5s\"}", "tcp"},
        {"\"Definition\":{\"TCP\":\"x:1\"}", ""},
        {"\"Definition\":{\"TCP\":\"x:1\",\"HTTP\":\"http://x\",\"GRPC\":\"x\",\"Interval\":\"5s\"}", "grpc"},
        {"\"Definition\":{\"TTL\":\"5s\"}", "ttl"},
        {"\"Definition\":{\"AliasService\":\"x\"}", "alias"},
        {"\"Definition\":{\"AliasNode\":\"x\"}", "alias"},
        {"\"Definition\":{\"ScriptArgs\":[\"x\"],\"DockerContainerID\":\"x\",\"Interval\":\"5s\"}", "docker"},
        {"\"Definition\":{\"ScriptArgs\":[\"x\"],\"DockerContainerID\":\"x\"}", "script"},
        {"\"Definition\":{\"ScriptArgs\":[]}", ""},
        {"\"Type\":\"mine\",\"Definition\":{\"TTL\":\"5s\"}", "mine"},
        {"\"Definition\":null", ""},
    };
    struct world *world = world_start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char body[1024];
        snprintf(body, sizeof body, "{\"Node\":\"d\",\"Address\":\"a\",\"Check\":{\"CheckID\":\"c\",%s}}",
                 cases[i].check);
        free(web_want(world, 200, "PUT /v1/catalog/register", body));
        char *shown = web_want(world, 200, "GET /v1/health/node/d", NULL);
        snprintf(body, sizeof body, "\"Type\":\"%s\",", cases[i].type);
        cr_expect(strstr(shown, body), "%s is not in %s", body, shown);
        free(shown);
    }
    world_stop(world);
}

/* A record that was read from the catalog may be written back; an address that nobody can reach may not. */
Test(catalog, written_back) {
    struct world *world = world_start(NULL);
    free(web_want(world, 200, "PUT /v1/catalog/register",
                  "{\"Node\":\"d\",\"Address\":\"a\",\"CreateIndex\":1,\"ModifyIndex\":2}"));
    for (int i = 0; i < 3; i++) {
        static const char *const addresses[] = {"0.0.0.0", "::", "[::]"};
        char body[256];
        snprintf(body, sizeof body,
                 "{\"Node\":\"d\",\"Address\":\"a\",\"Service\":{\"Service\":\"s\",\"Address\":\"%s\"}}", addresses[i]);
        free(web_want(world, 400, "PUT /v1/catalog/register", body));
    }
    world_stop(world);
}

/* ---- metrics ---- */

Test(catalog, metrics) {
    struct world *world = world_start(NULL);
    char *text = web_want(world, 200, "GET /v1/agent/metrics?format=prometheus", NULL);
    cr_expect(strstr(text, "# TYPE coord_http_requests_total counter\ncoord_http_requests_total{code=\"2xx\"} "), "%s",
              text);
    free(text);
    struct web_answer answer = web_ask(world, "GET /v1/agent/metrics?format=prometheus", NULL);
    cr_expect_str_eq(web_header(&answer, "Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
    web_free(&answer);
    struct fault fault = {0};
    text = web_want(world, 200, "GET /v1/agent/metrics", NULL);
    struct json_object *json = json_parse(slice_text(text), &fault);
    cr_assert(json != NULL, "%s", fault.text);
    struct json_object *gauges = json_get_array(json, "Gauges", &fault),
                       *counters = json_get_array(json, "Counters", &fault);
    cr_expect(json_object_array_length(gauges) >= 5 && json_object_array_length(counters) >= 5);
    bool labelled = false;
    for (size_t i = 0; i < json_object_array_length(counters); i++) {
        struct json_object *labels = json_get_object(json_object_array_get_idx(counters, i), "Labels", &fault);
        const char *code = "";
        json_get_string(labels, "code", &code, &fault);
        labelled = labelled || strcmp(code, "2xx") == 0;
    }
    cr_expect(labelled);
    json_object_put(json);
    free(text);
    world_stop(world);
}
