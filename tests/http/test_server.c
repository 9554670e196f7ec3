/* Connections, limits, slow clients, writes and tickets, the end. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/api/topics.h"
#include "kv/keys/kv.h"
#include "kv/session/session.h"
#include "web_world.h"

/* ---- endpoints of our own, in place of /v1/status ---- */

static struct http_ticket *_Atomic ticket;
static _Atomic unsigned hurt;

static void ticket_view(struct http_request *request, int error) { http_reply_text(request, 200, "error %d", error); }
static void ticket_get(struct http_request *request) {
    uint64_t wait_ms = 60000;
    if (http_parameter_u64(request, "ms", &wait_ms)) ticket = http_defer(request, wait_ms, ticket_view);
}

static void renew_view(struct http_request *request, int error, const struct rpc_renew *renew) {
    (void)renew;
    http_reply_text(request, 200, "%s", co_strerror(error));
}
static void renew_put(struct http_request *request) {
    http_renew(request, &session_expiry, false, http_path_value(request, "id"), renew_view);
}

/* Two writes, one after the other. */
static void twice_again(struct http_request *request, const struct machine_result *result) {
    http_reply_text(request, 200, "error=%d yes=%d index=%d", result->error, result->yes, (int)result->index);
}
static void twice_view(struct http_request *request, const struct machine_result *result) {
    hurt += result->error != CO_OK || !result->yes;
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = PB__KV_VERB__KV_DELETE;
    command.key = (ProtobufCBinaryData){3, (uint8_t *)"two"};
    http_write(request, KV_APPLY, &command.base, twice_again);
}
static void twice_put(struct http_request *request) {
    Pb__KvCommand command = PB__KV_COMMAND__INIT;
    command.verb = PB__KV_VERB__KV_SET;
    command.key = (ProtobufCBinaryData){3, (uint8_t *)"two"};
    command.value = (ProtobufCBinaryData){http_body(request).size, (uint8_t *)http_body(request).data};
    http_write(request, KV_APPLY, &command.base, twice_view);
}

static void values_get(struct http_request *request) {
    struct slice *values;
    size_t count = http_parameters(request, "v", &values);
    struct buffer *out = http_raw(request);
    buffer_printf(out, "a=%s rest=%s", http_path_value(request, "a").data, http_path_value(request, "rest").data);
    for (size_t i = 0; i < count; i++) buffer_printf(out, " v=%s", values[i].data);
    http_header(request, "X-One", "1");
    http_header(request, "X-Bad", "line\nbreak");
    http_reply_raw(request, 201, "text/x-test");
}

static void large_get(struct http_request *request) {
    struct buffer *out = http_raw(request);
    buffer_reserve(out, 20 << 20);
    memset(out->data, 'z', 20 << 20);
    out->size = 20 << 20;
    http_reply_raw(request, 200, "text/plain");
}

#define VALUES                                                                                           \
    HTTP_PARAMS(HTTP_DC, {":a", HTTP_TEXT, .help = "one segment"}, {"*rest", HTTP_TEXT, .help = "more"}, \
                {"v", HTTP_TEXT, .help = "several", .repeats = true})
#define TEST .no_example = "for tests"
const struct http_route http_routes_status[] = {
    {HTTP_GET, "/v1/test/ticket", ticket_get, "none", HTTP_PARAMS(HTTP_DC, {"ms", HTTP_U64, .help = "to wait"}), "", 0,
     TEST},
    {HTTP_PUT, "/v1/test/renew/:id", renew_put, "none", HTTP_PARAMS(HTTP_DC, {":id", HTTP_TEXT, .help = "any"}), "", 0,
     TEST},
    {HTTP_PUT, "/v1/test/twice", twice_put, "none", HTTP_PARAMS(HTTP_DC), "", 0, TEST},
    {HTTP_GET, "/v1/test/values/:a/fixed/*rest", values_get, "none", VALUES, "", 0, TEST},
    {HTTP_PUT | HTTP_POST, "/v1/test/values/:a/fixed/*rest", twice_put, "none", VALUES, "", 0, TEST},
    {HTTP_GET, "/v1/test/large", large_get, "none", HTTP_PARAMS(HTTP_DC), "", 0, TEST},
    {0},
};

static struct web_answer say(int fd, const char *request) {
    web_say(fd, "%s HTTP/1.1\r\nHost: x\r\n\r\n", request);
    return web_hear(fd);
}

#define EXPECT_BODY(world, wanted_status, request, text)                    \
    do {                                                                    \
        struct web_answer answer_ = web_ask((world), (request), NULL);      \
        cr_expect(answer_.status == (wanted_status), "%d", answer_.status); \
        cr_expect_str_eq(answer_.body, (text));                             \
        web_free(&answer_);                                                 \
    } while (0)

/* ---- routes ---- */

Test(server, routes_and_values) {
    struct world *world = world_start(NULL);
    EXPECT_BODY(world, 201, "GET /v1/test/values/x/fixed/y?v=1&w=2&v=+%2B&v", "a=x rest=y v=1 v= + v=");
    EXPECT_BODY(world, 201, "GET /v1/test/values/a%2Fb/fixed/c/d%2fe//f%20", "a=a/b rest=c/d/e//f ");
    EXPECT_BODY(world, 201, "GET /v1/test/values/x/fixed/", "a=x rest=");
    EXPECT_BODY(world, 201, "GET /v1/test/values/x/fixed", "a=x rest=");
    EXPECT_BODY(world, 404, "GET /v1/test/values/x/other/y", "Invalid path: there is no such endpoint");
    EXPECT_BODY(world, 404, "GET /v1/test/values//fixed/y", "Invalid path: there is no such endpoint");
    EXPECT_BODY(world, 404, "GET /v1/test",
                "Invalid path: there is no such endpoint: GET /v1/test/ticket is the nearest");
    struct web_answer answer = web_ask(world, "DELETE /v1/test/values/x/fixed/y", NULL);
    cr_expect(answer.status == 405);
    cr_expect_str_eq(web_header(&answer, "Allow"), "OPTIONS,GET,PUT,POST");
    web_free(&answer);
    answer = web_ask(world, "GET /v1/test/values/x/fixed/y", NULL);
    cr_expect_str_eq(web_header(&answer, "Content-Type"), "text/x-test");
    cr_expect_str_eq(web_header(&answer, "X-One"), "1");
    cr_expect_str_eq(web_header(&answer, "X-Bad"), "", "a value cannot become a header of its own");
    web_free(&answer);
    world_stop(world);
}

/* ---- writes ---- */

#define SESSION "5e551000-0000-4000-8000-000000000001"

static void make_session(const struct world *world) {
    Pb__SessionCreateCommand command = PB__SESSION_CREATE_COMMAND__INIT;
    Pb__Session session = PB__SESSION__INIT;
    free(web_want(world, 200, "PUT /v1/catalog/register", "{\"Node\":\"n1\",\"Address\":\"10.0.0.1\"}"));
    session.id = SESSION, session.node = "n1";
    command.session = &session;
    fake_rpc_apply(world_rpc(world), SESSION_CREATE, &command.base);
}

Test(server, writes_and_what_comes_of_them) {
    struct world *world = world_start(NULL);
    EXPECT_BODY(world, 200, "PUT /v1/test/twice", "error=0 yes=1 index=2");
    cr_expect(hurt == 0);
    static const struct {
        int error, status;
        const char *text;
    } failures[] = {
        {CO_NOLEADER, 500, "No cluster leader"},
        {CO_UNKNOWN_OUTCOME, 500, "outcome unknown: the write may or may not have been applied"},
        {CO_DISKFULL, 503, "disk full"},
        {CO_CLOSED, 503, "closed"},
        {CO_BUSY, 429, "too many requests"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(failures); i++) {
        fake_rpc_fail(world_rpc(world), failures[i].error);
        EXPECT_BODY(world, failures[i].status, "PUT /v1/kv/a", failures[i].text);
    }
    fake_rpc_fail(world_rpc(world), CO_OK);
    EXPECT_BODY(world, 200, "PUT /v1/kv/a", "true");
    EXPECT_BODY(world, 200, "PUT /v1/kv/a?cas=99", "false");
    EXPECT_BODY(world, 200, "PUT /v1/kv/a?cas=99&pretty", "false\n");
    EXPECT_BODY(world, 200, "PUT /v1/test/renew/" SESSION, "no such record");
    make_session(world);
    EXPECT_BODY(world, 200, "PUT /v1/test/renew/" SESSION, co_strerror(CO_OK));
    EXPECT_BODY(world, 200, "PUT /v1/test/renew/0123456789012345678901234567890123456789012345", "no such record");
    world_stop(world);
}

Test(server, a_client_that_leaves_during_its_write) {
    struct world *world = world_start(NULL);
    fake_rpc_hold(world_rpc(world), true);
    for (int i = 0; i < 10; i++) {
        int fd = web_dial(world);
        web_say(fd, "PUT /v1/kv/left%d HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", i);
        EVENTUALLY(fake_rpc_held(world_rpc(world)) == (unsigned)i + 1);
        close(fd);
    }
    fake_rpc_hold(world_rpc(world), false);
    for (int i = 0; i < 10; i++) {
        char target[64];
        snprintf(target, sizeof target, "GET /v1/kv/left%d?raw", i);
        struct web_answer answer = {0};
        EVENTUALLY((web_free(&answer), answer = web_ask(world, target, NULL), answer.status) == 200);
        web_free(&answer);
    }
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
    world_stop(world);
}

/* ---- tickets ---- */

Test(server, tickets) {
    struct world *world = world_start(NULL);
    char wanted[32];
    snprintf(wanted, sizeof wanted, "error %d", CO_TIMEOUT);
    EXPECT_BODY(world, 200, "GET /v1/test/ticket?ms=20", wanted);
    http_deferred(ticket, CO_OK); /* nobody waits for it any more */
    ticket = NULL;
    int fd = web_dial(world);
    web_say(fd, "GET /v1/test/ticket HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(ticket != NULL);
    http_deferred(ticket, CO_EXISTS);
    struct web_answer answer = web_hear(fd);
    snprintf(wanted, sizeof wanted, "error %d", CO_EXISTS);
    cr_expect_str_eq(answer.body, wanted);
    web_free(&answer);
    ticket = NULL;
    web_say(fd, "GET /v1/test/ticket HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(ticket != NULL);
    close(fd);
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
    http_deferred(ticket, CO_OK);
    world_stop(world);
}

/* ---- limits ---- */

Test(server, connections_per_address) {
    struct http_config config = {.connections_per_address_max = 3};
    struct world *world = world_start(&config);
    int fds[3];
    for (size_t i = 0; i < 3; i++) {
        fds[i] = web_dial(world);
        struct web_answer answer = say(fds[i], "GET /v1/catalog/datacenters");
        cr_expect(answer.status == 200);
        web_free(&answer);
    }
    int fourth = web_dial(world);
    struct web_answer answer = say(fourth, "GET /v1/catalog/datacenters");
    cr_expect(answer.status == 429, "%d", answer.status);
    cr_expect_str_eq(answer.body, "too many connections from this address (limit 3, limits.http_max_conns_per_client)");
    cr_expect(web_closed(fourth));
    web_free(&answer);
    close(fourth);
    close(fds[0]);
    struct web_answer again = {0};
    EVENTUALLY((web_free(&again), again = web_ask(world, "GET /v1/catalog/datacenters", NULL), again.status) == 200);
    web_free(&again);
    close(fds[1]);
    close(fds[2]);
    world_stop(world);
}

Test(server, connections_of_all) {
    struct http_config config = {.connections_max = 2};
    struct world *world = world_start(&config);
    int one = web_dial(world), two = web_dial(world);
    struct web_answer answer = say(one, "GET /v1/catalog/datacenters");
    web_free(&answer);
    answer = say(two, "GET /v1/catalog/datacenters");
    web_free(&answer);
    int three = web_dial(world);
    answer = web_hear(three); /* it need not ask */
    cr_expect(answer.status == 429);
    cr_expect_str_eq(answer.body, "too many connections (limit 2)");
    web_free(&answer);
    close(one), close(two), close(three);
    world_stop(world);
}

/* ---- slow ones ---- */

Test(server, slow_and_idle_clients) {
    struct http_config config = {.idle_timeout_ms = 1000};
    struct world *world = world_start(&config);
    int silent = web_dial(world), idle = web_dial(world); /* each says soon what it says */
    struct web_answer answer = say(idle, "GET /v1/catalog/datacenters");
    web_free(&answer);
    int second = web_dial(world);
    answer = say(second, "GET /v1/catalog/datacenters");
    web_free(&answer);
    int header = web_dial(world);
    web_say(header, "GET /v1/catalog/data");
    int body = web_dial(world);
    web_say(body, "PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    int parked = web_dial(world);
    web_say(parked, "GET /v1/kv/none?index=1&wait=4500ms HTTP/1.1\r\nHost: x\r\n\r\n");
    uint64_t begun = clock_mono_ms();
    answer = web_hear(header);
    cr_expect(answer.status == 408, "%d", answer.status);
    cr_expect_str_eq(answer.body, "Request timeout: the header did not come in time");
    web_free(&answer);
    answer = web_hear(body);
    cr_expect(answer.status == 408, "%d", answer.status);
    cr_expect_str_eq(answer.body, "Request timeout: the body did not come in time");
    web_free(&answer);
    cr_expect(web_closed(header) && web_closed(body) && web_closed(idle) && web_closed(silent) && web_closed(second));
    cr_expect(clock_mono_ms() - begun < 4000);
    answer = web_hear(parked);
    cr_expect(answer.status == 404, "who waits for a change is not slow");
    web_free(&answer);
    int fds[] = {header, body, idle, silent, parked, second};
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) close(fds[i]);
    world_stop(world);
}

Test(server, dripping_bytes_do_not_buy_time) {
    struct http_config config = {.idle_timeout_ms = 600};
    struct world *world = world_start(&config);
    int fd = web_dial(world);
    web_say(fd, "GET /v1/catalog/datacenters HTTP/1.1\r\n");
    uint64_t begun = clock_mono_ms();
    while (web_silent(fd, 20) && clock_mono_ms() - begun < 5000) web_say(fd, "X-Drip: x\r\n");
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == 408, "%d", answer.status);
    cr_expect(clock_mono_ms() - begun < 4000);
    web_free(&answer);
    close(fd);
    world_stop(world);
}

Test(server, a_reader_that_does_not_read_holds_nobody_up) {
    struct world *world = world_start(NULL);
    int slow = web_dial(world);
    web_say(slow, "GET /v1/test/large HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 20; i++) EXPECT_BODY(world, 200, "GET /v1/catalog/datacenters", "[\"dc1\"]");
    struct web_answer answer = web_hear(slow);
    cr_expect(answer.status == 200 && answer.size == 20 << 20);
    web_free(&answer);
    close(slow);
    slow = web_dial(world);
    web_say(slow, "GET /v1/test/large HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_BODY(world, 200, "GET /v1/catalog/datacenters", "[\"dc1\"]");
    close(slow);
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
    world_stop(world);
}

/* ---- many, on several workers ---- */

static void *hammer(void *data) {
    struct world *world = data;
    int fd = web_dial(world);
    uintptr_t failed = 0;
    for (int i = 0; i < 300; i++) {
        struct web_answer put = {0}, get = {0};
        web_say(fd, "PUT /v1/kv/h%d HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", i % 10);
        put = web_hear(fd);
        get = say(fd, "GET /v1/kv/?recurse");
        failed += put.status != 200 || get.status != 200;
        web_free(&put);
        web_free(&get);
        if (i % 50 == 49) {
            close(fd);
            fd = web_dial(world);
        }
    }
    close(fd);
    return (void *)failed;
}

Test(server, several_workers) {
    struct http_config config = {.workers = 3, .shards = 2};
    struct world *world = world_start(&config);
    pthread_t threads[6];
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++) pthread_create(&threads[i], NULL, hammer, world);
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        cr_expect(failed == NULL);
    }
    world_stop(world);
}

/* ---- the end ---- */

Test(server, stops_with_all_kinds_of_connections) {
    struct world *world = world_start(NULL);
    int idle = web_dial(world), half = web_dial(world), writing = web_dial(world), waiting = web_dial(world);
    struct web_answer answer = say(idle, "GET /v1/catalog/datacenters");
    web_free(&answer);
    web_say(half, "GET /v1/cat");
    ticket = NULL;
    web_say(waiting, "GET /v1/test/ticket HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(ticket != NULL);
    fake_rpc_hold(world_rpc(world), true);
    web_say(writing, "PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx");
    cr_expect(web_silent(writing, 20));
    uint64_t begun = clock_mono_ms();
    world_stop_http(world); /* the write never ends: after a while it goes without it */
    cr_expect(clock_mono_ms() - begun < 2000);
    answer = web_hear(waiting);
    cr_expect(answer.status == 200);
    web_free(&answer);
    cr_expect(web_closed(idle) && web_closed(half) && web_closed(writing));
    fake_rpc_hold(world_rpc(world), false);
    http_deferred(ticket, CO_OK);
    int fds[] = {idle, half, writing, waiting};
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) close(fds[i]);
    world_stop(world);
}

/* Returns the time that it took. */
static uint64_t stop_with_nothing_due(void) {
    struct world *world = world_start(NULL);
    int fds[50];
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) fds[i] = web_dial(world);
    EVENTUALLY(web_metric(world, "coord_http_connections") == ARRAY_COUNT(fds) + 1);
    uint64_t begun = clock_mono_ms();
    world_stop_http(world);
    uint64_t took_ms = clock_mono_ms() - begun;
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) close(fds[i]);
    world_stop(world);
    return took_ms;
}

Test(server, stops_quickly_when_nothing_is_due) {
    uint64_t took_ms = stop_with_nothing_due();
    for (int i = 0; i < 4 && took_ms >= 700; i++) took_ms = stop_with_nothing_due(); /* the machine stood still */
    cr_expect_lt(took_ms, 700);
}

Test(server, addresses_that_are_none_or_taken) {
    struct world *world = world_start(NULL);
    struct http_env env = {.rpc = world_rpc(world), .datacenter = "dc1"};
    struct http_server *server = NULL;
    struct fault fault = {0};
    const char *none[] = {"localhost", NULL}, *taken[] = {"127.0.0.1", NULL};
    struct http_config config = {.addresses = none};
    cr_expect(http_start(&config, &env, &server, &fault) == CO_INVALID);
    cr_expect_str_eq(fault.text, "http: \"localhost\" is not an IP address");
    fault = (struct fault){0};
    config = (struct http_config){.addresses = taken, .port = world_port(world)};
    cr_expect(http_start(&config, &env, &server, &fault) == CO_EXISTS);
    cr_expect(strstr(fault.text, "cannot listen on 127.0.0.1 port"), "%s", fault.text);
    const char *six[] = {"127.0.0.1", "::1", NULL};
    fault = (struct fault){0};
    config = (struct http_config){.addresses = six};
    cr_expect(http_start(&config, &env, &server, &fault) == CO_OK, "%s", fault.text);
    http_stop(server);
    world_stop(world);
}
