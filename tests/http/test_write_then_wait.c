/* Requests that write, and then wait until something holds: with changes that come and do not, a leader that goes, and
 * clients that do. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/api/topics.h"
#include "kv/keys/kv.h"
#include "web_world.h"

/* PUT /v1/wait/:key?ms= writes its body to `key`, and waits until the key "go" has the same value. */
static const ProtobufCMessage *ask(struct http_request *request, const struct machine_result *written) {
    if (written->error || slice_is(http_path_value(request, "key"), "at-once")) {
        http_reply_text(request, 200, "wrote error=%d waits=%d", written->error, http_waits(request));
        return NULL;
    }
    Pb__KvRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__kv_request__init(message);
    message->key = (ProtobufCBinaryData){2, (uint8_t *)(uintptr_t) "go"};
    return &message->base;
}

static _Atomic unsigned looked;
static bool holds(struct http_request *request, const struct query_result *result) {
    const Pb__KvEntry *entry = (const Pb__KvEntry *)result->message;
    looked++;
    return result->found && slice_equal(slice_make(entry->value.data, entry->value.len), http_body(request));
}

static void reply(struct http_request *request, const struct query_result *result, bool held) {
    const Pb__KvEntry *entry = (const Pb__KvEntry *)result->message;
    http_reply_text(request, 200, "held=%d go=%.*s", held, result->found ? (int)entry->value.len : 0,
                    result->found ? (const char *)entry->value.data : "");
}

static void put_wait(struct http_request *request) {
    static const struct http_wait wait = {.query = &query_kv_get, .ask = ask, .holds = holds, .reply = reply};
    struct http_wait here = wait;
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    struct slice key = http_path_value(request, "key"), value = http_body(request);
    if (!http_parameter_u64(request, "ms", &here.wait_ms)) return;
    command.key = (ProtobufCBinaryData){key.size, (uint8_t *)(uintptr_t)key.data};
    command.value = (ProtobufCBinaryData){value.size, (uint8_t *)(uintptr_t)value.data};
    http_write_then_wait(request, KV_APPLY, &command.base, &here);
}

/* PUT /v1/only-wait/:key writes nothing, and counts its looks in the request that it asks by. */
static bool holds_counting(struct http_request *request, const struct query_result *result) {
    Pb__KvRequest *asked = (Pb__KvRequest *)(uintptr_t)http_context(request);
    cr_expect_eq(asked->separator.len, looked, "what an earlier look has put there");
    bool held = holds(request, result);
    asked->separator = (ProtobufCBinaryData){looked, (uint8_t *)(uintptr_t) "////////"};
    return held;
}

static void put_only_wait(struct http_request *request) {
    struct http_wait here = {.query = &query_kv_get, .holds = holds_counting, .reply = reply, .wait_ms = 60000};
    Pb__KvRequest *message = arena_alloc(http_arena(request), sizeof *message);
    pb__kv_request__init(message);
    message->key = (ProtobufCBinaryData){2, (uint8_t *)(uintptr_t) "go"};
    http_wait_for(request, &here, &message->base);
}

/* In place of the program's. */
const struct http_route http_routes_status[] = {
    {HTTP_PUT, "/v1/wait/:key", put_wait, "key:write",
     HTTP_PARAMS({":key", HTTP_TEXT, .help = "the key"}, HTTP_DC, {"ms", HTTP_U64, .help = "to wait"}),
     "Writes, and waits", 0, .no_example = "a test"},
    {HTTP_PUT, "/v1/only-wait/:key", put_only_wait, "key:read",
     HTTP_PARAMS({":key", HTTP_TEXT, .help = "any"}, HTTP_DC), "Waits", 0, .no_example = "a test"},
    {0},
};

static struct world *world;
static void setup(void) { world = world_start(NULL); }
static void teardown(void) { world_stop(world); }
TestSuite(write_then_wait, .init = setup, .fini = teardown);

static void put(const char *key, const char *value) {
    char target[64];
    snprintf(target, sizeof target, "PUT /v1/kv/%s", key);
    free(web_want(world, 200, target, value));
}

static void expect_body(int fd, const char *expected) {
    struct web_answer answer = web_hear(fd);
    cr_expect_eq(answer.status, 200, "%s", answer.body);
    cr_expect_str_eq(answer.body, expected);
    web_free(&answer);
}

static bool is_written(const char *key) {
    char target[64];
    snprintf(target, sizeof target, "GET /v1/kv/%s", key);
    struct web_answer answer = web_ask(world, target, NULL);
    bool there = answer.status == 200;
    web_free(&answer);
    return there;
}

/* Sent, written, and waiting. */
static int begin(const char *key, const char *value, unsigned ms) {
    int fd = web_dial(world);
    web_say(fd, "PUT /v1/wait/%s?ms=%u HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s", key, ms, strlen(value),
            value);
    EVENTUALLY(is_written(key));
    return fd;
}

Test(write_then_wait, what_holds_already_is_answered_at_once) {
    put("go", "yes");
    char *body = web_want(world, 200, "PUT /v1/wait/a?ms=60000", "yes");
    cr_expect_str_eq(body, "held=1 go=yes");
    cr_expect(fake_rpc_fetched(world_rpc(world)) == 1 && fake_rpc_uncached(world_rpc(world)) == 1,
              "an answer of before the write does not count");
    free(body);
    body = web_want(world, 200, "PUT /v1/wait/at-once?ms=60000", "no");
    cr_expect_str_eq(body, "wrote error=0 waits=1");
    free(body);
    body = web_want(world, 200, "PUT /v1/wait/at-once?ms=0", "no");
    cr_expect_str_eq(body, "wrote error=0 waits=0");
    free(body);
}

Test(write_then_wait, it_waits_for_the_change_that_makes_it_hold) {
    int fd = begin("a", "yes", 60000);
    EVENTUALLY(looked == 1);
    put("other", "1");
    put("go", "no");
    EVENTUALLY(looked == 2);
    cr_expect(web_silent(fd, 50), "it changed, and does not hold yet");
    put("go", "yes");
    expect_body(fd, "held=1 go=yes");
    cr_expect_eq(looked, 3, "other keys wake nobody");
    close(fd);
}

Test(write_then_wait, when_the_time_is_up_the_last_result_is_the_answer) {
    put("go", "no");
    uint64_t before_ms = clock_mono_ms();
    int fd = begin("a", "yes", 200);
    expect_body(fd, "held=0 go=no");
    cr_expect_geq(clock_mono_ms() - before_ms, 200);
    char *body = web_want(world, 200, "PUT /v1/wait/b?ms=0", "yes");
    cr_expect_str_eq(body, "held=0 go=no", "looked at once");
    free(body);
    close(fd);
}

Test(write_then_wait, what_only_waits_writes_nothing_and_may_change_what_it_asks) {
    put("go", "no");
    int fd = web_dial(world);
    web_say(fd, "PUT /v1/only-wait/a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nyes");
    EVENTUALLY(looked == 1);
    cr_expect_not(is_written("a"));
    put("go", "not yet");
    EVENTUALLY(looked == 2);
    put("go", "yes");
    expect_body(fd, "held=1 go=yes");
    close(fd);
}

Test(write_then_wait, a_leader_that_is_lost_meanwhile_is_waited_for) {
    fake_rpc_alone(world_rpc(world), false);
    int fd = begin("a", "yes", 60000);
    EVENTUALLY(looked == 1);
    fake_rpc_leader(world_rpc(world), false);
    cr_expect(web_silent(fd, 300));
    fake_rpc_leader(world_rpc(world), true);
    put("go", "yes");
    expect_body(fd, "held=1 go=yes");
    close(fd);
}

Test(write_then_wait, a_write_that_fails_is_not_waited_on) {
    fake_rpc_fail(world_rpc(world), CO_UNKNOWN_OUTCOME);
    struct web_answer answer = web_ask(world, "PUT /v1/wait/a?ms=60000", "yes");
    cr_expect_eq(answer.status, 500);
    cr_expect(strstr(answer.body, "outcome unknown"), "%s", answer.body);
    web_free(&answer);
    cr_expect_eq(looked, 0);
}

Test(write_then_wait, who_hangs_up_ends_the_wait_and_what_was_written_stays) {
    int fds[20];
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) fds[i] = begin("a", "yes", 600000);
    EVENTUALLY(looked == ARRAY_COUNT(fds));
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) close(fds[i]);
    EVENTUALLY(web_metric(world, "coord_http_connections") <= 2);
    put("go", "no");
    put("go", "yes");
    cr_expect_eq(looked, ARRAY_COUNT(fds), "nobody looks any more");
    cr_expect(is_written("a"));
}

/* The server has seen it before the request waits, because the connection has waited before and is watched. */
Test(write_then_wait, who_hangs_up_before_it_waits_ends_the_wait) {
    char key[16];
    put("go", "no");
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "k%d", i);
        int fd = begin(key, "yes", 1);
        expect_body(fd, "held=0 go=no");
        web_say(fd, "PUT /v1/wait/%s?ms=600000 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nyes", key);
        close(fd);
        EVENTUALLY(web_metric(world, "coord_http_connections") == 1); /* the one that asks */
    }
    unsigned before = looked;
    put("go", "never");
    (void)web_metric(world, "coord_http_connections");
    cr_expect_eq(looked, before, "nobody looks any more");
}

Test(write_then_wait, a_server_that_stops_waits_for_nobody) {
    int fd = begin("a", "yes", 600000);
    EVENTUALLY(looked == 1);
    uint64_t before_ms = clock_mono_ms();
    world_stop_http(world);
    cr_expect_lt(clock_mono_ms() - before_ms, 5000);
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == 0 || answer.status >= 500, "%d", answer.status);
    web_free(&answer);
    close(fd);
}
