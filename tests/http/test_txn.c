/* Requests that /v1/txn and /v1/txn/if take, and their answers to others. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "kv/txn/txn.h"
#include "web_world.h"

static struct world *world;
static void setup(void) { world = world_start(NULL); }
static void teardown(void) { world_stop(world); }

TestSuite(txn, .init = setup, .fini = teardown);

static void expect_at(int status, const char *target, const char *body, const char *words, unsigned line) {
    struct web_answer answer = web_ask(world, target, body);
    cr_expect_eq(answer.status, status, "line %u: %d %s", line, answer.status, answer.body);
    cr_expect(strstr(answer.body, words), "line %u: %s: \"%s\" is wanted", line, answer.body, words);
    web_free(&answer);
}
#define TXN(status, body, words) expect_at(status, "PUT /v1/txn", body, words, __LINE__)
#define IF(status, body, words)  expect_at(status, "PUT /v1/txn/if", body, words, __LINE__)

/* -- what cannot be read is refused as a whole ------------------------------------------------------------------------ */

Test(txn, what_is_no_transaction_is_refused_with_its_place) {
    TXN(400, "", "Failed to parse body");
    TXN(400, "{}", "an array is wanted");
    TXN(400, "[{", "Failed to parse body");
    TXN(400, "[] x", "Failed to parse body");
    TXN(400, "null", "Failed to parse body");
    TXN(400, "[7]", "[0]: an object is wanted, not a number");
    TXN(400, "[{\"KV\":{\"Verb\":\"get\",\"Key\":\"a\"}},null]", "[1]: an object is wanted, not null");
    TXN(400, "[{}]", "[0]: one of KV, Node, Service, Check, Session and Fence is wanted");
    TXN(400, "[{\"KV\":null}]", "[0]: one of");
    TXN(400, "[{\"KV\":7}]", "[0]: KV: an object is wanted");
    TXN(400, "[{\"Foo\":{}}]", "[0]: unknown key \"Foo\"");
    TXN(400, "[{\"KV\":{\"Verb\":\"get\",\"Key\":\"a\",\"Foo\":1}}]", "[0]: unknown key \"Foo\"");
    TXN(400, "[{\"KV\":{\"Verb\":\"get\",\"Key\":\"a\"},\"Session\":{\"Verb\":\"delete\"}}]",
        "[0]: it is of two kinds, KV and Session");
    TXN(400, "[{\"KV\":{\"Verb\":7,\"Key\":\"a\"}}]", "[0]: Verb: a string is wanted");
    TXN(400, "[{\"KV\":{\"Verb\":\"set\",\"Key\":7}}]", "[0]: Key: a string is wanted");
    TXN(400, "[{\"KV\":{\"Verb\":\"set\",\"Key\":\"a\",\"Value\":7}}]", "[0]: Value: a string is wanted");
    TXN(400, "[{\"KV\":{\"Verb\":\"set\",\"Key\":\"a\",\"Value\":\"***\"}}]", "[0]: Value: illegal base64");
    TXN(400, "[{\"KV\":{\"Verb\":\"set\",\"Key\":\"a\",\"Flags\":\"5\"}}]", "[0]: Flags:");
    TXN(400, "[{\"KV\":{\"Verb\":\"set\",\"Key\":\"a\",\"Flags\":-5}}]", "[0]: Flags:");
    TXN(400, "[{\"KV\":{\"Verb\":\"cas\",\"Key\":\"a\",\"Index\":1.5}}]", "[0]: Index:");
    TXN(400, "[{\"KV\":{\"Verb\":\"set\",\"Key\":\"a\",\"Fence\":\"l\"}}]", "[0]: Fence:");
    TXN(400, "[{\"KV\":{\"Verb\":\"set\",\"Key\":\"a\",\"Token\":3}}]", "[0]: Fence:");
    TXN(400, "[{\"Node\":{\"Verb\":\"set\",\"Node\":{\"Node\":\"n\",\"Meta\":{\"a\":1}}}}]", "[0]: Meta.a:");
    TXN(400, "[{\"Service\":{\"Verb\":\"set\",\"Node\":\"n\",\"Service\":{\"Service\":\"s\",\"Port\":70000}}}]",
        "[0]: Port:");
    TXN(400, "[{\"Check\":{\"Verb\":\"set\",\"Check\":{\"Node\":\"n\",\"Name\":\"c\",\"Foo\":1}}}]", "unknown key");
    TXN(400, "[{\"Session\":{\"Verb\":\"delete\",\"ID\":\"x\"}}]", "[0]: unknown key \"ID\"");
    TXN(400, "[{\"Fence\":{\"Resource\":\"r\",\"Token\":\"x\"}}]", "[0]: Token:");
    expect_at(400, "PUT /v1/txn?stale&consistent", "[]", "Cannot specify ?stale with ?consistent", __LINE__);
    expect_at(405, "GET /v1/txn", NULL, "method GET not allowed", __LINE__);
    expect_at(500, "PUT /v1/txn?dc=other", "[]", "No path to datacenter", __LINE__);
}

/* -- what can be read, and not be done -------------------------------------------------------------------------------- */

Test(txn, what_can_never_be_done_is_named_by_number) {
    TXN(409, "[{\"KV\":{\"Verb\":\"get\",\"Key\":\"\"}},{\"KV\":{\"Verb\":\"set\"}}]",
        "{\"Results\":null,\"Errors\":[{\"OpIndex\":0,\"What\":\"Must provide key\"},{\"OpIndex\":1,\"What\":\"Must "
        "provide key\"}]");
    TXN(409, "[{\"Node\":{\"Verb\":\"set\"}}]", "\"Must provide node\"");
    TXN(409, "[{\"Node\":{\"Verb\":\"set\",\"Node\":{\"Node\":\"n\",\"ID\":\"zzz\"}}}]", "Bad node ID");
    TXN(409, "[{\"Service\":{\"Verb\":\"set\",\"Node\":\"n\",\"Service\":{\"ID\":\"s\"}}}]",
        "\"Must provide service name with ID\"");
    TXN(409,
        "[{\"Service\":{\"Verb\":\"set\",\"Node\":\"n\",\"Service\":{\"Service\":\"s\",\"Address\":\"0.0.0.0\"}}}]",
        "\"Invalid service address\"");
    TXN(409, "[{\"Service\":{\"Verb\":\"delete\",\"Node\":\"n\"}}]", "\"Must provide service ID\"");
    TXN(409, "[{\"Check\":{\"Verb\":\"delete\",\"Check\":{\"Node\":\"n\"}}}]", "\"Must provide check ID or name\"");
    TXN(409, "[{\"Check\":{\"Verb\":\"set\",\"Check\":{\"Node\":\"n\",\"Name\":\"c\",\"Status\":\"x\"}}}]",
        "Invalid check status");
    TXN(409, "[{\"Session\":{\"Verb\":\"delete\",\"Session\":{\"ID\":\"x\"}}}]", "ID is not that of a session");
    TXN(409, "[{\"KV\":{\"Verb\":\"set\",\"Key\":\"a\",\"Lease\":\"x\"}}]", "not the ID of a lease");
}

/* A service without an ID would be the whole node in a deregistration. */
Test(txn, a_nameless_service_is_not_its_node) {
    TXN(200, "[{\"Node\":{\"Verb\":\"set\",\"Node\":{\"Node\":\"n\",\"Address\":\"10.0.0.1\"}}}]", "\"Node\":\"n\"");
    TXN(409, "[{\"Service\":{\"Verb\":\"delete\",\"Node\":\"n\",\"Service\":{}}}]", "Must provide service ID");
    TXN(409, "[{\"Check\":{\"Verb\":\"delete-cas\",\"Check\":{\"Node\":\"n\"}}}]", "Must provide check ID");
    TXN(200, "[{\"Node\":{\"Verb\":\"get\",\"Node\":{\"Node\":\"n\"}}}]", "10.0.0.1");
}

Test(txn, unknown_verbs_fail_in_their_turn) {
    TXN(409,
        "[{\"KV\":{\"Verb\":\"nope\",\"Key\":\"a\"}},{\"KV\":{\"Verb\":\"get\",\"Key\":\"b\"}},{\"KV\":{\"Key\":\"c\"}}"
        ","
        "{\"Node\":{\"Verb\":\"lock\",\"Node\":{\"Node\":\"n\"}}},{\"KV\":{\"Verb\":\"SET\",\"Key\":\"a\"}}]",
        "[{\"OpIndex\":0,\"What\":\"unknown KV verb \\\"nope\\\"\"},{\"OpIndex\":1,\"What\":\"key \\\"b\\\" doesn't "
        "exist\"},{\"OpIndex\":2,\"What\":\"unknown KV verb \\\"\\\"\"},{\"OpIndex\":3,\"What\":\"unknown Node verb "
        "\\\"lock\\\"\"},{\"OpIndex\":4,\"What\":\"unknown KV verb \\\"SET\\\"\"}]");
}

/* -- limits ----------------------------------------------------------------------------------------------------------- */

static char *many(const char *op, size_t count) {
    size_t size = strlen(op) + 1;
    char *body = mem_alloc(count * size + 3), *at = body;
    *at++ = '[';
    for (size_t i = 0; i < count; i++) at += sprintf(at, "%s%s", i ? "," : "", op);
    *at++ = ']', *at = 0;
    return body;
}

Test(txn, sixty_four_operations_and_no_more) {
    char *body = many("{\"KV\":{\"Verb\":\"set\",\"Key\":\"a\"}}", 64);
    TXN(200, body, "\"Errors\":null");
    free(body);
    body = many("{\"KV\":{\"Verb\":\"set\",\"Key\":\"b\"}}", 65);
    TXN(413, body, "Transaction contains too many operations (65 > 64). See the setting coord.txn_max_operations.");
    free(body);
    expect_at(404, "GET /v1/kv/b", NULL, "", __LINE__);
    body = many("{\"KV\":{\"Key\":\"a\",\"Exists\":true}}", 65);
    char *object = mem_alloc(strlen(body) + 20);
    sprintf(object, "{\"If\":%s}", body);
    IF(413, object, "too many operations (65 > 64)");
    free(object), free(body);
}

Test(txn, a_large_body_is_refused_before_it_is_taken) {
    size_t size = 600 << 10;
    char *body = mem_alloc(size + 1);
    memset(body, ' ', size), body[size] = 0;
    TXN(413, body, "Request body(614400 bytes) too large, max size: 524288 bytes (limits.txn_max_req_len)");
    free(body);
    char *key = mem_alloc(9001);
    memset(key, 'k', 9000), key[9000] = 0;
    body = mem_alloc(9200);
    sprintf(body, "[{\"KV\":{\"Verb\":\"set\",\"Key\":\"%s\"}}]", key);
    TXN(409, body, "[{\"OpIndex\":0,\"What\":\"Key too long, at most 8192 bytes\"}]");
    sprintf(body, "[{\"KV\":{\"Verb\":\"get\",\"Key\":\"%s\"}}]", key);
    TXN(409, body, "doesn't exist");
    free(key), free(body);
}

/* -- answers ---------------------------------------------------------------------------------------------------------- */

Test(txn, answers_have_consuls_shape) {
    TXN(200, "[]",
        "{\"Results\":[],\"Errors\":null,\"Index\":0,\"LastContact\":0,\"KnownLeader\":true,"
        "\"ConsistencyLevel\":\"\"}");
    struct web_answer answer =
        web_ask(world, "PUT /v1/txn", "[{\"kv\":{\"verb\":\"set\",\"key\":\"a\",\"value\":\"aGVsbG8=\",\"flags\":7}}]");
    cr_expect_eq(answer.status, 200);
    cr_expect_str_eq(web_header(&answer, "X-Consul-Index"), "");
    cr_expect(strstr(answer.body, "{\"Results\":[{\"KV\":{\"LockIndex\":0,\"Key\":\"a\",\"Flags\":7,\"Value\":null,"),
              "%s", answer.body);
    web_free(&answer);
    TXN(200, "[{\"KV\":{\"Verb\":\"get\",\"Key\":\"a\"},\"Node\":null,\"Service\":null,\"Check\":null}]",
        "\"Flags\":7,\"Value\":\"aGVsbG8=\",");
    expect_at(200, "PUT /v1/txn?index=1000000&wait=5m", "[{\"KV\":{\"Verb\":\"get\",\"Key\":\"a\"}}]",
              "aGVsbG8=", __LINE__); /* at once */
    expect_at(200, "PUT /v1/txn?stale", "[{\"KV\":{\"Verb\":\"get\",\"Key\":\"a\"}}]", "aGVsbG8=", __LINE__);
    IF(200,
       "{\"If\":[{\"KV\":{\"Key\":\"a\",\"Value\":\"aGVsbG8=\"}}],\"Then\":[{\"KV\":{\"Verb\":\"delete\",\"Key\":\"a\"}"
       "}]}",
       "{\"Succeeded\":true,\"Results\":[],\"Errors\":null}");
    IF(200, "{\"If\":[{\"KV\":{\"Key\":\"a\",\"Exists\":true}}]}",
       "{\"Succeeded\":false,\"Results\":[],\"Errors\":null}");
    IF(200, "{}", "{\"Succeeded\":true,\"Results\":[],\"Errors\":null}");
}

/* Go's client tells no tags from an empty list of them. */
Test(txn, no_tags_are_null) {
#define SET                                                                                        \
    "[{\"Node\":{\"Verb\":\"set\",\"Node\":{\"Node\":\"n\",\"Address\":\"a\"}}},"                  \
    "{\"Service\":{\"Verb\":\"set\",\"Node\":\"n\",\"Service\":{\"Service\":\"s\",\"Tags\":%s}}}," \
    "{\"Check\":{\"Verb\":\"set\",\"Check\":{\"Node\":\"n\",\"CheckID\":\"c\",\"ServiceID\":\"s\"}}}]"
#define GET "[{\"%s\":{\"Verb\":\"get\",%s}}]"
    static const char *const rows[][3] = {{"null", "\"Tags\":null,", "\"ServiceTags\":null,"},
                                          {"[\"v\"]", "\"Tags\":[\"v\"],", "\"ServiceTags\":[\"v\"],"}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char body[512];
        snprintf(body, sizeof body, SET, rows[i][0]);
        TXN(200, body, rows[i][1]);
        TXN(200, body, rows[i][2]);
        snprintf(body, sizeof body, GET, "Service", "\"Node\":\"n\",\"Service\":{\"ID\":\"s\"}");
        TXN(200, body, rows[i][1]);
        snprintf(body, sizeof body, GET, "Check", "\"Check\":{\"Node\":\"n\",\"CheckID\":\"c\"}");
        TXN(200, body, rows[i][2]);
    }
}

Test(txn, comparisons_are_checked) {
    IF(400, "[]", "an object is wanted");
    IF(400, "{\"Iff\":[]}", "unknown key \"Iff\"");
    IF(400, "{\"If\":7}", "If: an array is wanted");
    IF(400, "{\"If\":[{}]}", "If[0]: one of KV, Node, Service, Check, Lock and Election is wanted");
    IF(400, "{\"If\":[{\"KV\":{\"Key\":\"a\"},\"Lock\":{\"Name\":\"l\"}}]}", "If[0]: it is of two kinds");
    IF(400, "{\"If\":[{\"KV\":{\"Exists\":true}}]}", "If[0]: Key is wanted");
    IF(400, "{\"If\":[{\"KV\":{\"Key\":\"a\"}}]}", "If[0]: it compares nothing");
    IF(400, "{\"If\":[{\"KV\":{\"Key\":\"a\",\"Exists\":true,\"ModifyIndex\":1}}]}", "If[0]: it compares both");
    IF(400, "{\"If\":[{\"KV\":{\"Key\":\"a\",\"Version\":1}}]}", "If[0]: unknown key \"Version\"");
    IF(400, "{\"If\":[{\"KV\":{\"Key\":\"a\",\"Value\":\"MQ==\",\"Op\":\"<\"}}]}", "Op: of Value one of = and != is");
    IF(400, "{\"If\":[{\"KV\":{\"Key\":\"a\",\"ModifyIndex\":1,\"Op\":\"~\"}}]}", "one of =, !=, < and > is wanted");
    IF(400, "{\"If\":[{\"KV\":{\"Key\":\"a\",\"Value\":\"*\"}}]}", "Value: illegal base64 data");
    IF(400, "{\"If\":[{\"KV\":{\"Key\":\"a\",\"ModifyIndex\":\"1\"}}]}", "ModifyIndex: a whole number");
    IF(400, "{\"If\":[{\"Lock\":{\"FencingToken\":1}}]}", "If[0]: Name is wanted");
    IF(400, "{\"If\":[{\"Lock\":{\"Name\":\"l\"}}]}", "it compares nothing");
    IF(400, "{\"If\":[{\"Service\":{\"Node\":\"n\",\"Exists\":true}}]}", "If[0]: ID is wanted");
    IF(400, "{\"Else\":[{\"KV\":{\"Verb\":\"set\"}}]}", "Else[0]: Must provide key");
    IF(400, "{\"Then\":[{\"KV\":{\"Verb\":7}}]}", "Then[0]: Verb: a string is wanted");
    expect_at(400, "PUT /v1/txn/if?foo=1", "{}", "foo", __LINE__); /* coord's own: nothing is passed over */
}
