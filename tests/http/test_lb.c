/* /v1/lb, ?lb= and ?subset=, over a catalog in this process. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "registry/catalog.h"
#include "web_world.h"

static void add(const struct world *world, const char *id, const char *status) {
    char body[256];
    snprintf(body, sizeof body,
             "{\"Node\":\"n%s\",\"Address\":\"10.0.0.1\",\"Service\":{\"Service\":\"api\",\"ID\":\"%s\",\"Port\":80},"
             "\"Check\":{\"Name\":\"alive\",\"ServiceID\":\"%s\",\"Status\":\"%s\"}}",
             id, id, id, status);
    free(web_want(world, 200, "PUT /v1/catalog/register", body));
}

static void say(const struct world *world, const char *id, double load) {
    struct load_hint hint = load_unknown();
    char node[16];
    snprintf(node, sizeof node, "n%s", id);
    hint.load = load;
    struct load_instance instance = {slice_text(node), slice_text(id), SLICE_LITERAL("api")};
    cr_assert_eq(hints_report(rpc_hints(world_rpc(world)), instance, &hint, 0, clock_mono_ns()), CO_OK);
    usleep(30000); /* hints are looked at again after some 10 ms */
}

static bool starts(const char *text, const char *wanted) { return strncmp(text, wanted, strlen(wanted)) == 0; }

static void expect_in(const struct world *world, const char *target, const char *wanted) {
    char *body = web_want(world, 200, target, NULL);
    cr_expect(strstr(body, wanted), "%s: no %s in %s", target, wanted, body);
    free(body);
}

Test(lb, picks_are_of_the_catalog_as_it_is) {
    struct world *world = world_start(NULL);
    char *body = web_want(world, 503, "GET /v1/lb/pick/api", NULL);
    cr_expect_str_eq(body, "no instance of service \"api\" can be picked: there are none");
    free(body);
    add(world, "a", "passing");
    expect_in(world, "GET /v1/lb/pick/api",
              "\"Considered\":[{\"ID\":\"a\",\"Node\":\"na\",\"Load\":null}],\"Policy\":\"p2c\"}");
    say(world, "a", 0.25);
    expect_in(world, "GET /v1/lb/pick/api", "\"Load\":0.25}],\"Policy\":\"p2c\"}");
    body = web_want(world, 200, "GET /v1/lb/pick/api?policy=weighted", NULL);
    cr_expect(starts(body, "{\"Picked\":{\"Node\":{"), "%s", body);
    free(body);
    add(world, "b", "passing");
    say(world, "b", 0.125);
    for (int i = 0; i < 20; i++) expect_in(world, "GET /v1/lb/pick/api", "\"Service\":{\"ID\":\"b\"");
    add(world, "b", "critical"); /* at once: nothing that was kept is given out */
    for (int i = 0; i < 20; i++) expect_in(world, "GET /v1/lb/pick/api", "\"Service\":{\"ID\":\"a\"");
    add(world, "a", "critical");
    static const char *const why[][2] = {
        {"GET /v1/lb/owner/api?key=k", "2 critical"},
        {"GET /v1/lb/pick/api?tag=x", "2 without the tag"},
        {"GET /v1/lb/pick/api?tag=x&tag=y", "2 without the tags"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(why); i++) {
        char line[100];
        body = web_want(world, 503, why[i][0], NULL);
        snprintf(line, sizeof line, "no instance of service \"api\" can be picked: %s", why[i][1]);
        cr_expect_str_eq(body, line);
        free(body);
    }
    world_stop(world);
}

Test(lb, picks_are_confirmed_unless_they_may_be_stale) {
    struct world *world = world_start(NULL);
    add(world, "a", "passing");
    fake_rpc_alone(world_rpc(world), false);
    unsigned rounds = fake_rpc_rounds(world_rpc(world));
    expect_in(world, "GET /v1/lb/pick/api?stale", "\"ID\":\"a\"");
    cr_expect_eq(fake_rpc_rounds(world_rpc(world)), rounds);
    expect_in(world, "GET /v1/lb/pick/api", "\"ID\":\"a\"");
    expect_in(world, "GET /v1/lb/owner/api?key=k", "\"ID\":\"a\"");
    cr_expect_geq(fake_rpc_rounds(world_rpc(world)), rounds + 1);
    fake_rpc_leader(world_rpc(world), false);
    free(web_want(world, 500, "GET /v1/lb/pick/api", NULL));
    expect_in(world, "GET /v1/lb/pick/api?stale", "\"ID\":\"a\"");
    world_stop(world);
}

Test(lb, the_pick_comes_first_in_health_answers) {
    struct world *world = world_start(NULL);
    add(world, "a", "passing"), add(world, "b", "passing"), add(world, "c", "critical");
    say(world, "a", 3), say(world, "b", 1);
    for (int i = 0; i < 20; i++) {
        char *body = web_want(world, 200, "GET /v1/health/service/api?lb=p2c", NULL);
        cr_expect(strstr(body, "\"ID\":\"b\"") < strstr(body, "\"ID\":\"a\"") && strstr(body, "\"ID\":\"c\""), "%s",
                  body);
        cr_expect(strstr(body, "\"LB\":{\"Load\":1,\"Weight\":1,\"Age\":"), "%s", body);
        cr_expect(strstr(body, "\"LB\":{\"Load\":null,\"Weight\":0,\"Age\":null}"), "of the critical one: %s", body);
        free(body);
    }
    expect_in(world, "GET /v1/health/service/api", "\"ID\":\"c\"");
    /* The instances kept for picks and those read anew give the same answer. */
    static const char *const asked[] = {"", "&passing", "&tag=x", "&tag=x&passing", "&stale"};
    static const char *const shown[] = {"abc", "ab", "", "", "abc"};
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) {
        char target[100], slow[140];
        snprintf(target, sizeof target, "GET /v1/health/service/api?lb=p2c%s", asked[i]);
        snprintf(slow, sizeof slow, "%s&near=", target);
        struct web_answer kept = web_ask(world, target, NULL), read = web_ask(world, slow, NULL);
        for (char *age; (age = strstr(kept.body, "\"Age\":")) || (age = strstr(read.body, "\"Age\":"));)
            memmove(age, strchr(age, '}'), strlen(strchr(age, '}')) + 1);
        cr_expect_str_eq(kept.body, read.body, "%s", target);
        for (char c = 'a'; c <= 'c'; c++) {
            char id[12];
            snprintf(id, sizeof id, "\"ID\":\"%c\"", c);
            cr_expect_eq(strstr(kept.body, id) != NULL, strchr(shown[i], c) != NULL, "%s: %s", target, kept.body);
        }
        cr_expect_str_eq(web_header(&kept, "X-Consul-Index"), web_header(&read, "X-Consul-Index"));
        cr_expect_str_eq(web_header(&kept, "X-Consul-Effective-Consistency"),
                         web_header(&read, "X-Consul-Effective-Consistency"));
        web_free(&kept), web_free(&read);
    }
    char *plain = web_want(world, 200, "GET /v1/health/service/api", NULL);
    cr_expect_null(strstr(plain, "\"LB\""), "others get what they always got");
    free(plain);
    world_stop(world);
}

Test(lb, subsets_are_stable_and_kept) {
    struct world *world = world_start(NULL);
    char id[8], *first = NULL;
    for (int i = 0; i < 12; i++) {
        snprintf(id, sizeof id, "i%d", i);
        add(world, id, i == 5 ? "critical" : "passing");
    }
    for (int i = 0; i < 4; i++) {
        char *body = web_want(world, 200, "GET /v1/health/service/api?passing&subset=3&id=web-7", NULL);
        unsigned count = 0;
        for (const char *at = body; (at = strstr(at, "\"Checks\":[")); at++) count++;
        cr_expect_eq(count, 3);
        cr_expect(!first || strcmp(first, body) == 0);
        free(first);
        first = body;
    }
    cr_expect_gt(web_metric(world, "coord_http_cache_hits_total"), 0);
    char *other = web_want(world, 200, "GET /v1/health/service/api?passing&subset=3&id=web-8", NULL);
    cr_expect_str_neq(first, other);
    free(first), free(other);
    free(web_want(world, 400, "GET /v1/health/service/api?subset=3", NULL));
    free(web_want(world, 400, "GET /v1/health/service/api?subset=x&id=a", NULL));
    world_stop(world);
}
