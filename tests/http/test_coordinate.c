/* /v1/coordinate, and ?near=: the order of answers, which of them may be ready bytes, and who is not woken. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "registry/catalog.h"
#include "web_world.h"

#define HITS(world)   web_metric(world, "coord_http_cache_hits_total")
#define MISSES(world) web_metric(world, "coord_http_cache_misses_total")
#define PARKED(world) watch_count(rpc_watches(world_rpc(world)))

static void add_node(const struct world *world, const char *node) {
    char body[256];
    snprintf(body, sizeof body,
             "{\"Node\":\"%s\",\"Address\":\"10.0.0.1\",\"Service\":{\"Service\":\"web\",\"Port\":80},\"Check\":{"
             "\"Name\":\"alive\","
             "\"ServiceID\":\"web\",\"Status\":\"passing\"}}",
             node);
    free(web_want(world, 200, "PUT /v1/catalog/register", body));
}

static void set_place(const struct world *world, const char *node, const char *segment, const char *seconds) {
    char body[256];
    snprintf(body, sizeof body,
             "{\"Node\":\"%s\",\"Segment\":\"%s\",\"Coord\":{\"Vec\":[%s,0,0,0,0,0,0,0],\"Error\":1.5,\"Adjustment\":0,"
             "\"Height\":0.00001}}",
             node, segment, seconds);
    char *answer = web_want(world, 200, "PUT /v1/coordinate/update", body);
    cr_assert_str_eq(answer, "");
    free(answer);
}

static struct world *three_nodes(void) {
    struct world *world = world_start(NULL);
    add_node(world, "x1"), add_node(world, "x2"), add_node(world, "x3");
    set_place(world, "x1", "", "0.3"), set_place(world, "x2", "", "0.1"), set_place(world, "x3", "", "0");
    return world;
}

/* The digits of "x1" to "x3" in the order in which an answer first names them; static. */
static const char *order_in(const char *body) {
    static char text[8];
    size_t size = 0;
    for (const char *at = body; (at = strstr(at, "\"Node\":\"x")); at++)
        if (!memchr(text, at[9], size) && size < 3) text[size++] = at[9];
    text[size] = '\0';
    return text;
}

static const char *order(const struct world *world, const char *method_and_target) {
    char *body = web_want(world, 200, method_and_target, NULL);
    const char *text = order_in(body);
    free(body);
    return text;
}

#define COORD(seconds) "{\"Vec\":[" seconds ",0,0,0,0,0,0,0],\"Error\":1.5,\"Adjustment\":0,\"Height\":0.00001}"
#define RECORD(node, segment, seconds) \
    "{\"Node\":\"" node "\",\"Segment\":\"" segment "\",\"Coord\":" COORD(seconds) "}"

Test(coordinate, answers) {
    struct world *world = three_nodes();
    set_place(world, "x1", "west", "7");
    static const struct {
        int status;
        const char *target, *body;
    } rows[] = {
        {200, "GET /v1/coordinate/nodes",
         "[" RECORD("x1", "", "0.3") "," RECORD("x1", "west", "7") "," RECORD("x2", "", "0.1") "," RECORD("x3", "",
                                                                                                          "0") "]"},
        {200, "GET /v1/coordinate/nodes?segment=west", "[" RECORD("x1", "west", "7") "]"},
        {200, "GET /v1/coordinate/nodes?segment=none", "[]"},
        {200, "GET /v1/coordinate/node/x1", "[" RECORD("x1", "", "0.3") "," RECORD("x1", "west", "7") "]"},
        {200, "GET /v1/coordinate/node/x1?segment=", "[" RECORD("x1", "", "0.3") "]"},
        {404, "GET /v1/coordinate/node/x1?segment=none", ""},
        {404, "GET /v1/coordinate/node/nobody", ""},
        {404, "GET /v1/coordinate/node/", ""},
        {200, "GET /v1/coordinate/datacenters", "[{\"Datacenter\":\"dc1\",\"AreaID\":\"wan\",\"Coordinates\":[]}]"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char *body = web_want(world, rows[i].status, rows[i].target, NULL);
        cr_expect_str_eq(body, rows[i].body, "%s: %s", rows[i].target, body);
        free(body);
    }
    world_stop(world);
}

Test(coordinate, bad_updates_say_what_is_wrong) {
    struct world *world = three_nodes();
    static const struct {
        int status;
        const char *body, *text;
    } rows[] = {
        {500, "{\"Node\":\"x1\",\"Coord\":{\"Vec\":[1,2,3],\"Error\":1,\"Height\":1}}", "incompatible coordinate"},
        {500, "{\"Node\":\"x1\",\"Coord\":{\"Vec\":[]}}", "incompatible coordinate"},
        {500, "{\"Node\":\"x1\",\"Coord\":{\"Vec\":[0,0,0,0,0,0,0,0],\"Error\":-1}}", "invalid coordinate"},
        {500, "{\"Node\":\"x1\",\"Coord\":{\"Vec\":[0,0,0,0,0,0,0,1e9]}}", "invalid coordinate"},
        {400, "{\"Node\":\"x1\",\"Coord\":{\"Vec\":[0,0,0,0,0,0,0,1e999]}}",
         "Request decode failed: Vec: a number is too large"},
        {400, "{\"Node\":\"x1\",\"Coord\":{\"Vec\":[0,0,0,0,0,0,0,null]}}",
         "Request decode failed: Vec: a number is wanted"},
        {400, "{\"Node\":\"x1\",\"Coord\":{\"Vec\":7}}",
         "Request decode failed: Vec: an array is wanted, not a number"},
        {400, "{\"Node\":\"x1\",\"Coord\":7}", "Request decode failed: Coord: an object is wanted, not a number"},
        {400, "{\"Node\":\"x1\"}", "Request decode failed: Coord is missing"},
        {400, "{\"Coord\":" COORD("1") "}", "Request decode failed: Node is missing"},
        {400, "{\"Node\":\"x1\",\"Cord\":" COORD("1") "}",
         "Request decode failed: unknown key \"Cord\" (nearest: \"Coord\")"},
        {400, "{\"Node\":\"x1\",\"Coord\":{\"Vec\":[],\"Hight\":1}}",
         "Request decode failed: unknown key \"Hight\" (nearest: \"Height\")"},
        {400, "[]", "Request decode failed: JSON: an object is wanted"},
        {400,
         "{\"Node\":\"x1\",\"Segment\":\"0123456789012345678901234567890123456789012345678901234567890123456789\","
         "\"Coord\":" COORD("1") "}",
         "Segment: longer than 64 bytes"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char *body = web_want(world, rows[i].status, "PUT /v1/coordinate/update", rows[i].body);
        cr_expect_str_eq(body, rows[i].text, "%s: %s", rows[i].body, body);
        free(body);
    }
    world_stop(world);
}

Test(near, order_of_every_endpoint) {
    struct world *world = three_nodes();
    static const char *const targets[] = {"GET /v1/catalog/nodes",      "GET /v1/catalog/service/web",
                                          "GET /v1/health/service/web", "GET /v1/health/checks/web",
                                          "GET /v1/health/state/any",   "GET /v1/health/state/passing"};
    static const struct {
        const char *near, *order;
    } rows[] = {{"x3", "321"}, {"x1", "123"},         {"x2", "231"},    {"nobody", "123"},
                {"", "123"},   {"x3&near=x1", "321"}, {"_agent", "123"}};
    for (size_t i = 0; i < ARRAY_COUNT(targets); i++)
        for (size_t k = 0; k < ARRAY_COUNT(rows); k++) {
            char target[128];
            snprintf(target, sizeof target, "%s?near=%s", targets[i], rows[k].near);
            cr_expect_str_eq(order(world, target), rows[k].order, "%s", target);
        }
    world_stop(world);
}

/* The agent of this world is called n1. */
Test(near, agent_is_the_agents_own_node) {
    struct world *world = three_nodes();
    add_node(world, "n1");
    set_place(world, "n1", "", "0.09");
    cr_expect_str_eq(order(world, "GET /v1/catalog/nodes?near=_agent"), "231");
    world_stop(world);
}

Test(near, ready_bytes_are_sorted_anew_when_a_coordinate_changes) {
    struct world *world = three_nodes();
    for (int i = 0; i < 5; i++) cr_expect_str_eq(order(world, "GET /v1/health/service/web?near=x3"), "321");
    cr_expect(HITS(world) == 3 && MISSES(world) == 2, "the third read and later ones are ready");
    set_place(world, "x1", "", "0.05");
    cr_expect_str_eq(order(world, "GET /v1/health/service/web?near=x3"), "312");
    cr_expect_eq(MISSES(world), 3);
    uint64_t misses = MISSES(world);
    for (int i = 0; i < 3; i++) free(web_want(world, 200, "GET /v1/health/service/web", NULL));
    set_place(world, "x1", "", "0.5");
    uint64_t hits = HITS(world);
    free(web_want(world, 200, "GET /v1/health/service/web", NULL));
    cr_expect(HITS(world) == hits + 1 && MISSES(world) == misses + 2, "what is not sorted stays ready");
    cr_expect_str_eq(order(world, "GET /v1/health/service/web?near=x3"), "321");
    world_stop(world);
}

static int park(struct world *world, const char *target) {
    size_t before = PARKED(world);
    int fd = web_get(world, target);
    EVENTUALLY(PARKED(world) == before + 1);
    return fd;
}

Test(near, who_waits_for_a_service_is_not_woken_by_coordinates) {
    struct world *world = three_nodes();
    struct web_answer now = web_ask(world, "GET /v1/health/service/web?near=x3", NULL),
                      plain = web_ask(world, "GET /v1/health/service/web", NULL),
                      coordinates = web_ask(world, "GET /v1/coordinate/nodes", NULL);
    cr_expect_eq(web_index(&now), web_index(&plain), "the index is the service's");
    char target[128];
    snprintf(target, sizeof target, "/v1/health/service/web?near=x3&index=%llu&wait=5m",
             (unsigned long long)web_index(&now));
    int fd = park(world, target);
    snprintf(target, sizeof target, "/v1/coordinate/nodes?index=%llu&wait=5m",
             (unsigned long long)web_index(&coordinates));
    int watcher = park(world, target);
    set_place(world, "x1", "", "0.05");
    struct web_answer woken = web_hear(watcher);
    cr_expect(woken.status == 200 && web_index(&woken) > web_index(&coordinates));
    cr_expect(web_silent(fd, 50));
    cr_expect_eq(web_metric(world, "coord_http_unchanged_total"), 0, "it did not even look");
    add_node(world, "x4");
    struct web_answer answer = web_hear(fd);
    cr_expect_eq(answer.status, 200);
    cr_expect_str_eq(order_in(answer.body), "312", "sorted by what is known by then");
    close(fd), close(watcher);
    web_free(&now), web_free(&plain), web_free(&coordinates), web_free(&woken), web_free(&answer);
    world_stop(world);
}
