/* ?fence= on keys, and the tokens of their locks. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "web_world.h"

static void expect(const struct world *world, int status, const char *method_and_target, const char *word) {
    char *body = web_want(world, status, method_and_target, NULL);
    cr_expect(strstr(body, word), "%s: %s", method_and_target, body);
    free(body);
}

Test(fences, a_token_that_holds_no_lock_writes_nothing) {
    struct world *world = world_start(NULL);
    free(web_want(world, 200, "PUT /v1/kv/a", "1"));
    expect(world, 412, "PUT /v1/kv/a?fence=l&token=1", "nobody does; nothing was written");
    expect(world, 412, "DELETE /v1/kv/?recurse&fence=l&token=1", "nobody does");
    expect(world, 200, "PUT /v1/fence/a?token=1", "{\"Accepted\":true,\"Highest\":1}");
    expect(world, 200, "GET /v1/kv/a?raw", "1");
    world_stop(world);
}

static void make_session(const struct world *world, char id[40]) {
    char *body = web_want(world, 200, "PUT /v1/session/create", "{\"Node\":\"n1\",\"Checks\":[]}");
    cr_assert_eq(sscanf(body, "{\"ID\":\"%36s", id), 1, "%s", body);
    free(body);
}

static const char *token(const struct world *world, const char *how, const char *id) {
    static char text[32];
    char target[80];
    snprintf(target, sizeof target, "PUT /v1/kv/k?%s=%s", how, id);
    struct web_answer answer = web_ask(world, target, "x");
    cr_assert(answer.status == 200 && strcmp(answer.body, "true") == 0, "%s: %s", target, answer.body);
    snprintf(text, sizeof text, "%s", web_header(&answer, "X-Coord-Fencing-Token"));
    web_free(&answer);
    return text;
}

Test(fences, of_a_lock_stay_while_it_is_held) {
    struct world *world = world_start(NULL);
    char id[40], first[32];
    free(web_want(world, 200, "PUT /v1/catalog/register", "{\"Node\":\"n1\",\"Address\":\"10.0.0.1\"}"));
    make_session(world, id);
    snprintf(first, sizeof first, "%s", token(world, "acquire", id));
    cr_expect(atoll(first) > 0);
    cr_expect_str_eq(token(world, "acquire", id), first);
    cr_expect_str_eq(token(world, "release", id), first);
    cr_expect(atoll(token(world, "acquire", id)) > atoll(first));
    struct web_answer answer = web_ask(world, "PUT /v1/kv/k", "y");
    cr_expect_str_empty(web_header(&answer, "X-Coord-Fencing-Token"));
    web_free(&answer);
    world_stop(world);
}
