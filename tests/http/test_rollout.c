/* Rollouts over HTTP: forms of documents, who is answered when, schemas that change meanwhile, OpenFeature's headers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "kv/rollout/rollout.h"
#include "web_world.h"

static void put(const struct world *world, const char *target, const char *body) {
    char line[200];
    snprintf(line, sizeof line, "PUT /v1/rollout/%s", target);
    free(web_want(world, 200, line, body));
}

static void expect(const struct world *world, int status, const char *method_and_target, const char *body,
                   const char *word) {
    char *answer = web_want(world, status, method_and_target, body);
    cr_expect(strstr(answer, word), "%s: %s, not %s", method_and_target, answer, word);
    free(answer);
}

Test(rollout_web, documents_of_any_form) {
    static const struct {
        const char *document, *answer, *flag;
    } rows[] = {
        {" {\"a\" : [1, 2]}\n", "\"Document\":{\"a\" : [1, 2]},\"Format\":\"json\"", "\"value\":{\"a\" : [1, 2]}"},
        {"true", "\"Document\":true,\"Format\":\"json\"", "\"value\":true"},
        {"color = <b>\n", "\"Document\":\"color = \\u003cb\\u003e\\n\",\"Format\":\"text\"",
         "\"value\":\"color = \\u003cb\\u003e\\n\""},
        {"\xff\xfe", "\"Document\":\"//4=\",\"Format\":\"base64\"", "\"errorCode\":\"PARSE_ERROR\""},
        {"", "\"Document\":\"\",\"Format\":\"text\"", "\"value\":\"\""},
        {"null", "\"Document\":null,\"Format\":\"json\"", "\"variant\":\"v4\"}"},
    };
    struct world *world = world_start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char target[60], body[60];
        snprintf(target, sizeof target, "web/versions/v%zu", i), put(world, target, rows[i].document);
        snprintf(body, sizeof body, "{\"Version\":\"v%zu\"}", i), put(world, "web/current", body);
        expect(world, 200, "GET /v1/rollout/web?id=a", NULL, rows[i].answer);
        if (i == 5) continue;
        expect(world, strstr(rows[i].flag, "PARSE") ? 400 : 200, "POST /ofrep/v1/evaluate/flags/web",
               "{\"context\":{\"targetingKey\":\"a\"}}", rows[i].flag);
    }
    char *flag = web_want(world, 200, "POST /ofrep/v1/evaluate/flags/web", "{\"context\":{\"targetingKey\":\"a\"}}");
    cr_expect_str_eq(flag, "{\"key\":\"web\",\"reason\":\"STATIC\",\"variant\":\"v5\"}",
                     "null leaves it to the program");
    free(flag);
    world_stop(world);
}

Test(rollout_web, who_waits_is_answered_by_his_own_change_only) {
    struct world *world = world_start(NULL);
    put(world, "web/versions/v1", "1"), put(world, "web/versions/v2", "2");
    put(world, "web/current", "{\"Version\":\"v1\"}");
    struct web_answer answer = web_ask(world, "GET /v1/rollout/web?id=a&node=n1&tag=x", NULL);
    char target[100];
    snprintf(target, sizeof target, "/v1/rollout/web?id=a&node=n1&tag=x&wait=60s&index=%llu",
             (unsigned long long)web_index(&answer));
    web_free(&answer);
    int fd = web_get(world, target);
    cr_expect(web_silent(fd, 50));
    put(world, "web/current", "{\"Version\":\"v2\",\"Match\":{\"Nodes\":[\"n2\"]}}");
    put(world, "web/current", "{\"Version\":\"v2\",\"Percent\":0}");
    put(world, "web/ack?id=a&version=v1", NULL);
    put(world, "web/versions/v3", "3");
    put(world, "web/current",
        "{\"Version\":\"v2\",\"Match\":{\"Tags\":[\"y\"],\"Nodes\":[\"n1\"]}}"); /* wakes it, and it waits on */
    cr_expect(web_silent(fd, 100));
    put(world, "web/current", "{\"Version\":\"v2\",\"Match\":{\"Tags\":[\"y\",\"x\"],\"Nodes\":[\"N1\"]}}");
    answer = web_hear(fd);
    cr_expect(answer.status == 200 && strstr(answer.body,
                                             "{\"Version\":\"v2\",\"Document\":2,\"Format\":\"json\",\"Stage\":{"
                                             "\"Version\":\"v2\",\"Percent\":100,\"Paused\":false},\"Index\":"),
              "%s", answer.body);
    web_free(&answer);
    close(fd);
    world_stop(world);
}

/* The schema is looked at before the document goes into the log: one that comes in between counts all the same. */
Test(rollout_web, a_schema_that_comes_while_a_document_is_on_its_way) {
    static const char schema[] = "{\"properties\":{\"a\":{\"maximum\":9}}}";
    struct world *world = world_start(NULL);
    put(world, "web/schema", "\"json\"");
    expect(world, 400, "PUT /v1/rollout/web/versions/v1", "{", "JSON: unexpected end");
    expect(world, 400, "PUT /v1/rollout/web/versions/v1", "{\"a\":1,\"a\":2}", "the document does not fit the schema");
    expect(world, 200, "PUT /v1/rollout/web/versions/nothing", "null", "true");
    expect(world, 200, "GET /v1/rollout/web/schema", NULL, "\"json\"");
    fake_rpc_hold(world_rpc(world), true);
    int other = web_dial(world), fd = web_dial(world);
    web_say(other, "PUT /v1/rollout/web/schema HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s", sizeof schema - 1,
            schema);
    EVENTUALLY(fake_rpc_held(world_rpc(world)) == 1); /* it is first */
    uint64_t fetched = fake_rpc_fetched(world_rpc(world));
    web_say(fd, "PUT /v1/rollout/web/versions/v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n{\"a\":10}");
    EVENTUALLY(fake_rpc_fetched(world_rpc(world)) > fetched);
    EVENTUALLY(fake_rpc_held(world_rpc(world)) == 2);
    fake_rpc_hold(world_rpc(world), false);
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == 400 && strstr(answer.body, "/a: a number up to 9 is wanted"), "%d %s", answer.status,
              answer.body);
    web_free(&answer);
    close(fd), close(other);
    expect(world, 200, "PUT /v1/rollout/web/versions/v1", "{\"a\":9}", "true");
    expect(world, 200, "PUT /v1/rollout/web/schema", "{\"type\":\"integer\",\"minimum\":18446744073709551616}", "true");
    expect(world, 400, "PUT /v1/rollout/web/versions/w", "18446744073709551615", "fit the schema");
    expect(world, 400, "PUT /v1/rollout/web/versions/w", "null", "a whole number");
    expect(world, 200, "PUT /v1/rollout/web/versions/w", "18446744073709551617", "true");
    expect(world, 200, "DELETE /v1/rollout/web/schema", NULL, "true");
    expect(world, 404, "GET /v1/rollout/web/schema", NULL, "has no schema");
    expect(world, 200, "PUT /v1/rollout/web/versions/v2", "{", "true");
    world_stop(world);
}

Test(rollout_web, openfeature_has_tags_and_answers_browsers) {
    static const char context[] = "{\"context\":{\"targetingKey\":\"a\"}}";
    struct world *world = world_start(NULL);
    struct web_answer answer =
        web_ask(world, "POST /ofrep/v1/evaluate/flags?flagConfigEtag=x&flagConfigLastModified=1", context);
    cr_expect_str_eq(answer.body,
                     "{\"flags\":[],\"eventStreams\":[{\"type\":\"sse\",\"endpoint\":{\"requestUri\":\"/ofrep/v1/"
                     "events?targetingKey=a\\u0026region=dc1\"}}]}");
    char tag[40];
    snprintf(tag, sizeof tag, "%s", web_header(&answer, "ETag"));
    cr_expect(tag[0] == '"' && strlen(tag) == 18);
    cr_expect_str_eq(web_header(&answer, "Access-Control-Allow-Origin"), "*");
    web_free(&answer);
    int fd = web_dial(world);
    web_say(fd,
            "POST /ofrep/v1/evaluate/flags HTTP/1.1\r\nHost: x\r\nIf-None-Match: %s\r\nContent-Length: %zu\r\n\r\n%s",
            tag, sizeof context - 1, context);
    answer = web_hear_head(fd);
    cr_expect_eq(answer.status, 304);
    cr_expect_str_eq(web_header(&answer, "ETag"), tag);
    web_free(&answer);
    close(fd);
    fd = web_dial(world);
    web_say(fd, "OPTIONS /ofrep/v1/evaluate/flags/web HTTP/1.1\r\nHost: x\r\n\r\n");
    answer = web_hear_head(fd);
    cr_expect(answer.status == 204 && strstr(web_header(&answer, "Access-Control-Allow-Headers"), "Content-Type"));
    web_free(&answer);
    close(fd);
    static const struct {
        int status;
        const char *line;
    } refused[] = {{404, "POST /ofrep/v1/none"},
                   {405, "PUT /ofrep/v1/evaluate/flags"},
                   {404, "POST /ofrep/v1/evaluate/flags/none"},
                   {413, "POST /ofrep/v1/evaluate/flags"}};
    char *large = mem_alloc(3u << 20);
    memset(large, ' ', 3u << 20), large[(3u << 20) - 1] = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++) {
        answer = web_ask(world, refused[i].line, refused[i].status == 413 ? large : context);
        cr_expect_eq(answer.status, refused[i].status, "%s: %d", refused[i].line, answer.status);
        cr_expect_str_eq(web_header(&answer, "Access-Control-Allow-Origin"), "*", "%s", refused[i].line);
        web_free(&answer);
    }
    answer = web_ask(world, "PUT /v1/none", NULL);
    cr_expect_str_eq(web_header(&answer, "Access-Control-Allow-Origin"), "");
    web_free(&answer);
    free(large);
    world_stop(world);
}
