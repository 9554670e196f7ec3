/* Blocking queries: who wakes, when, with what, and what happens to those who leave. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "kv/keys/kv.h"
#include "registry/catalog.h"
#include "web_world.h"

#define PARKED(world) watch_count(rpc_watches(world_rpc(world)))

static void put(const struct world *world, const char *key, const char *value) {
    char target[128];
    snprintf(target, sizeof target, "PUT /v1/kv/%s", key);
    free(web_want(world, 200, target, value));
}

static void set_service(const struct world *world, const char *node, const char *service, const char *tag,
                        const char *status) {
    char body[512];
    snprintf(body, sizeof body,
             "{\"Node\":\"%s\",\"Address\":\"10.0.0.1\",\"Service\":{\"Service\":\"%s\",\"Port\":80,\"Tags\":"
             "[\"%s\"]},"
             "\"Check\":{\"Name\":\"alive\",\"ServiceID\":\"%s\",\"Status\":\"%s\"}}",
             node, service, tag, service, status);
    free(web_want(world, 200, "PUT /v1/catalog/register", body));
}

/* Asks and waits until the query is parked. */
static int park(struct world *world, const char *target) {
    size_t before = PARKED(world);
    int fd = web_get(world, target);
    EVENTUALLY(PARKED(world) == before + 1);
    return fd;
}

static uint64_t index_of(const struct world *world, const char *target) {
    struct web_answer answer = web_ask(world, target, NULL);
    uint64_t index = web_index(&answer);
    cr_assert(index > 0);
    web_free(&answer);
    return index;
}

static int park_at(struct world *world, const char *path, const char *more) {
    char target[256], get[256];
    snprintf(get, sizeof get, "GET %s", path);
    uint64_t index = index_of(world, get);
    snprintf(target, sizeof target, "%s%cindex=%llu%s", path, strchr(path, '?') ? '&' : '?', (unsigned long long)index,
             more);
    return park(world, target);
}

static void expect_answer(int fd, int status, const char *holds) {
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == status, "%d", answer.status);
    cr_expect(answer.body && strstr(answer.body, holds), "wanted %s in %s", holds, answer.body);
    web_free(&answer);
}

Test(blocking, answers_when_the_thing_changes) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    set_service(world, "n1", "web", "v1", "passing");
    int key = park_at(world, "/v1/kv/a", ""), prefix = park_at(world, "/v1/kv/?recurse", "");
    int none = park_at(world, "/v1/kv/none/below?keys", ""),
        service = park_at(world, "/v1/health/service/web?passing", "");
    int nodes = park_at(world, "/v1/catalog/nodes", ""), absent = park_at(world, "/v1/catalog/service/absent", "");
    put(world, "b", "2");
    expect_answer(prefix, 200, "\"Key\":\"b\"");
    cr_expect(PARKED(world) == 5, "only the prefix was woken");
    put(world, "a", "3");
    expect_answer(key, 200, "\"Value\":\"Mw==\"");
    EVENTUALLY(PARKED(world) == 4);
    set_service(world, "n1", "web", "v2", "passing");
    expect_answer(service, 200, "\"v2\"");
    EVENTUALLY(PARKED(world) == 3);
    set_service(world, "n2", "other", "x", "passing");
    expect_answer(nodes, 200, "\"n2\"");
    EVENTUALLY(PARKED(world) == 2);
    set_service(world, "n1", "absent", "x", "passing");
    expect_answer(absent, 200, "\"absent\"");
    put(world, "none/below/this", "x");
    expect_answer(none, 200, "none/below/this");
    EVENTUALLY(PARKED(world) == 0);
    EVENTUALLY(web_metric(world, "coord_http_blocking_queries") == 0);
    int fds[] = {key, prefix, none, service, nodes, absent};
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) close(fds[i]);
    world_stop(world);
}

Test(blocking, an_old_index_is_answered_at_once) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    put(world, "a", "2");
    struct web_answer answer = web_ask(world, "GET /v1/kv/a?index=1&wait=5m", NULL);
    cr_expect(answer.status == 200 && web_index(&answer) == 2);
    web_free(&answer);
    world_stop(world);
}

Test(blocking, time_is_up) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    uint64_t begun = clock_mono_ms();
    struct web_answer answer = web_ask(world, "GET /v1/kv/a?index=1&wait=200ms", NULL);
    uint64_t took = clock_mono_ms() - begun;
    cr_expect(answer.status == 200 && web_index(&answer) == 1);
    cr_expect(took >= 200 && took < 4000, "%llu ms", (unsigned long long)took);
    web_free(&answer);
    answer = web_ask(world, "GET /v1/kv/none?index=1&wait=1ms", NULL);
    cr_expect(answer.status == 404 && web_index(&answer) == 1, "never below 1");
    web_free(&answer);
    EVENTUALLY(PARKED(world) == 0);
    world_stop(world);
}

Test(blocking, the_same_answer_is_not_sent_again) {
    struct world *world = world_start(NULL);
    set_service(world, "n1", "web", "v1", "passing");
    set_service(world, "n2", "web", "v1", "critical");
    int passing = park_at(world, "/v1/health/service/web?passing", ""),
        all = park_at(world, "/v1/health/service/web", "");
    set_service(world, "n2", "web", "v2", "critical");
    expect_answer(all, 200, "\"v2\"");
    EVENTUALLY(web_metric(world, "coord_http_unchanged_total") == 1);
    cr_expect(PARKED(world) == 1, "the passing ones are the same");
    cr_expect(web_silent(passing, 50));
    set_service(world, "n2", "web", "v2", "passing");
    expect_answer(passing, 200, "\"n2\"");
    close(passing);
    close(all);
    world_stop(world);
}

/* As on a server that is behind: the client has seen a later state elsewhere. When the thing is as it was again,
 * that is a change. */
Test(blocking, what_is_read_behind_the_client_is_not_what_it_has) {
    struct world *world = world_start(NULL);
    put(world, "other", "1");
    for (int slowly = 0; slowly < 2; slowly++) {
        char target[128];
        uint64_t before = web_metric(world, "coord_http_unchanged_total");
        uint64_t index = index_of(world, "GET /v1/kv/other");
        snprintf(target, sizeof target, "/v1/kv/a?keys&stale&index=%llu&wait=5m", (unsigned long long)index + 1);
        int fd = park(world, target);
        put(world, "a", "what it has seen");
        if (slowly) EVENTUALLY(web_metric(world, "coord_http_unchanged_total") > before);
        free(web_want(world, 200, "DELETE /v1/kv/a", NULL));
        expect_answer(fd, 404, "");
        close(fd);
        put(world, "other", "2");
    }
    world_stop(world);
}

Test(blocking, time_up_after_unchanged_wakes_has_the_newer_index) {
    struct world *world = world_start(NULL);
    set_service(world, "n1", "web", "v1", "passing");
    set_service(world, "n2", "web", "v1", "critical");
    int fd = park_at(world, "/v1/health/service/web?passing", "&wait=1500ms");
    set_service(world, "n2", "web", "v2", "critical");
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == 200 && web_index(&answer) == 3, "%llu", (unsigned long long)web_index(&answer));
    web_free(&answer);
    close(fd);
    world_stop(world);
}

Test(blocking, who_hangs_up_is_freed_at_once) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    int fds[100];
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) fds[i] = web_get(world, "/v1/kv/a?index=1&wait=5m");
    EVENTUALLY(PARKED(world) == ARRAY_COUNT(fds));
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) {
        if (i % 2) shutdown(fds[i], SHUT_WR);
        else close(fds[i]);
    }
    uint64_t begun = clock_mono_ms();
    EVENTUALLY(PARKED(world) == 0);
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1); /* the one that asks for the metric */
    cr_expect(clock_mono_ms() - begun < 3000, "long before their time is up");
    for (size_t i = 1; i < ARRAY_COUNT(fds); i += 2) {
        cr_expect(web_closed(fds[i]));
        close(fds[i]);
    }
    world_stop(world);
}

Test(blocking, a_connection_waits_again_and_again) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    int fd = web_dial(world);
    for (unsigned i = 1; i <= 20; i++) {
        web_say(fd, "GET /v1/kv/a?index=%u&wait=5m HTTP/1.1\r\nHost: x\r\n\r\n", i);
        EVENTUALLY(PARKED(world) == 1);
        put(world, "a", i % 2 ? "x" : "y");
        struct web_answer answer = web_hear(fd);
        cr_assert(answer.status == 200 && web_index(&answer) == i + 1);
        web_free(&answer);
    }
    web_say(fd, "GET /v1/kv/a?index=21&wait=5m HTTP/1.1\r\nHost: x\r\n\r\n");
    EVENTUALLY(PARKED(world) == 1);
    close(fd);
    EVENTUALLY(PARKED(world) == 0);
    world_stop(world);
}

/* Debian starts shells with a soft limit of 1024; both ends of every connection are ours. */
static void need_descriptors(rlim_t count) {
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    if (files.rlim_max < count) cr_skip_test("the limit of open files is %llu", (unsigned long long)files.rlim_max);
    if (files.rlim_cur >= count) return;
    files.rlim_cur = count;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
}

Test(blocking, a_thousand_share_one_answer) {
    enum { WATCHERS = 1000 };
    need_descriptors(2 * WATCHERS + 500);
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    int fds[WATCHERS];
    for (size_t i = 0; i < WATCHERS; i++) fds[i] = web_get(world, "/v1/kv/a?index=1&wait=5m");
    EVENTUALLY(PARKED(world) == WATCHERS);
    uint64_t missed = web_metric(world, "coord_http_cache_misses_total");
    put(world, "a", "2");
    for (size_t i = 0; i < WATCHERS; i++) {
        struct web_answer answer = web_hear(fds[i]);
        cr_assert(answer.status == 200 && web_index(&answer) == 2);
        web_free(&answer);
        close(fds[i]);
    }
    cr_expect(web_metric(world, "coord_http_cache_misses_total") - missed <= 2, "the answer is written once");
    world_stop(world);
}

/* Takes the answer that has come; faster than web_hear. */
static void take_answer(int fd) {
    char bytes[2048];
    size_t size = 0;
    while (size == 0 || !memrchr(bytes, ']', size)) {
        ssize_t got = recv(fd, bytes + size, sizeof bytes - size, 0);
        cr_assert_gt(got, 0);
        size += (size_t)got;
    }
    cr_assert_eq(memcmp(bytes, "HTTP/1.1 200", 12), 0);
}

/* Each is back with a new question as soon as it is woken; the first of them must not keep the last ones waiting.
 * epoll tells of answers in the order of their coming. Nobody is answered before all are woken: the worker cannot
 * know of those who come after it is done. */
enum { WATCHERS = 2000 };
/* How many were served again before the last one was woken. */
static unsigned early_ones(struct world *world, const char *value) {
    static int fds[WATCHERS], heard[WATCHERS];
    memset(heard, 0, sizeof heard);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0);
    char target[64];
    struct web_answer now = web_ask(world, "GET /v1/kv/a", NULL);
    snprintf(target, sizeof target, "/v1/kv/a?index=%llu&wait=5m", (unsigned long long)web_index(&now));
    web_free(&now);
    for (unsigned i = 0; i < WATCHERS; i++) {
        fds[i] = web_get(world, target);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &(struct epoll_event){.events = EPOLLIN, .data.u32 = i}) == 0);
    }
    EVENTUALLY(PARKED(world) == WATCHERS);
    fake_rpc_stand_still(world_rpc(world));
    put(world, "a", value);
    unsigned woken = 0, served = 0, early = 0;
    while (served < WATCHERS) {
        struct epoll_event events[64];
        int count = epoll_wait(epoll, events, ARRAY_COUNT(events), 5000);
        cr_assert_gt(count, 0);
        for (int i = 0; i < count; i++) {
            unsigned watcher = events[i].data.u32;
            bool again = heard[watcher]++ > 0;
            take_answer(fds[watcher]);
            if (!again) web_say(fds[watcher], "GET /v1/kv/a HTTP/1.1\r\nHost: x\r\n\r\n");
            woken += !again, served += again, early += again && woken < WATCHERS;
        }
    }
    for (unsigned i = 0; i < WATCHERS; i++) close(fds[i]);
    close(epoll);
    return early;
}

Test(blocking, all_who_are_woken_are_answered_before_the_first_is_served_again) {
    need_descriptors(2 * WATCHERS + 500);
    struct world *world = world_start(&(struct http_config){.workers = 1, .connections_per_address_max = 2 * WATCHERS});
    put(world, "a", "0");
    unsigned early = WATCHERS;
    for (char value[] = "1"; early > WATCHERS / 10 && value[0] <= '9';
         value[0]++) /* a busy machine may stop the worker in between */
        early = early_ones(world, value);
    cr_expect_leq(early, WATCHERS / 10, "%u were served again before the last one was woken", early);
    world_stop(world);
}

/* ---- indexes (decision 5) ---- */

Test(blocking, below_the_floor_is_answered_at_once) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    for (int i = 0; i < 9; i++) put(world, "b", i % 2 ? "x" : "y");
    fake_rpc_floor(world_rpc(world), 8);
    struct web_answer answer = web_ask(world, "GET /v1/kv/a?index=5&wait=5m", NULL);
    cr_expect(answer.status == 200 && web_index(&answer) == 8);
    web_free(&answer);
    int fd = park(world, "/v1/kv/a?index=8&wait=5m");
    put(world, "a", "2");
    expect_answer(fd, 200, "\"ModifyIndex\":11");
    close(fd);
    world_stop(world);
}

Test(blocking, an_index_of_another_life_is_answered_at_once) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    struct web_answer answer = web_ask(world, "GET /v1/kv/a?index=999&wait=5m", NULL);
    cr_expect(answer.status == 200 && web_index(&answer) == 1, "a default read knows that it has all");
    web_free(&answer);
    int fd = park(world, "/v1/kv/a?index=3&wait=5m&stale");
    put(world, "a", "2");
    put(world, "a", "3");
    EVENTUALLY(web_metric(world, "coord_http_unchanged_total") >= 1);
    cr_expect(PARKED(world) == 1, "a stale one waits for this server to catch up");
    put(world, "a", "4");
    expect_answer(fd, 200, "\"ModifyIndex\":4");
    close(fd);
    world_stop(world);
}

/* ---- confirmation ---- */

Test(blocking, default_reads_wait_for_confirmation) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    fake_rpc_hold_rounds(world_rpc(world), true);
    int fds[20];
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) fds[i] = web_get(world, "/v1/kv/a");
    int stale = web_get(world, "/v1/kv/a?stale");
    expect_answer(stale, 200, "MQ==");
    cr_expect(web_silent(fds[0], 30));
    fake_rpc_hold_rounds(world_rpc(world), false);
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) {
        expect_answer(fds[i], 200, "MQ==");
        close(fds[i]);
    }
    close(stale);
    world_stop(world);
}

Test(blocking, confirms_before_it_parks_and_before_it_answers) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    fake_rpc_alone(world_rpc(world), false);
    int fd = park(world, "/v1/kv/a?index=1&wait=5m");
    unsigned rounds = fake_rpc_rounds(world_rpc(world));
    cr_expect(rounds >= 1);
    fake_rpc_hold_rounds(world_rpc(world), true);
    put(world, "a", "2");
    cr_expect(web_silent(fd, 30));
    fake_rpc_hold_rounds(world_rpc(world), false);
    expect_answer(fd, 200, "Mg==");
    cr_expect(fake_rpc_rounds(world_rpc(world)) > rounds);
    close(fd);
    world_stop(world);
}

Test(blocking, no_leader) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    fake_rpc_leader(world_rpc(world), false);
    fake_rpc_alone(world_rpc(world), false);
    struct web_answer answer = web_ask(world, "GET /v1/kv/a", NULL);
    cr_expect(answer.status == 500);
    cr_expect_str_eq(answer.body, "No cluster leader");
    cr_expect_str_eq(web_header(&answer, "X-Consul-KnownLeader"), "false");
    cr_expect(web_index(&answer) == 1);
    web_free(&answer);
    answer = web_ask(world, "GET /v1/kv/a?stale", NULL);
    cr_expect(answer.status == 200);
    cr_expect_str_eq(web_header(&answer, "X-Consul-KnownLeader"), "false");
    web_free(&answer);
    world_stop(world);
}

/* ---- behind, with a full disk: rpc goes on, which asks the leader ---- */

Test(full, reads_go_on) {
    struct http_config config = {.workers = 1}; /* it has ready bytes after the second time */
    struct world *world = world_start(&config);
    put(world, "a", "1");
    fake_rpc_alone(world_rpc(world), false);
    static const char *const targets[] = {"GET /v1/kv/a", "GET /v1/kv/a?consistent"};
    for (size_t i = 0; i < ARRAY_COUNT(targets); i++) {
        fake_rpc_fail_rounds(world_rpc(world), 1, CO_DISKFULL);
        cr_expect(index_of(world, targets[i]) == index_of(world, "GET /v1/kv/a?stale"), "asked elsewhere");
        for (int twice = 0; twice < 2; twice++) (void)index_of(world, targets[i]);
        for (unsigned rounds = 1; rounds <= 2; rounds++) { /* that of ready bytes; and the read's own */
            fake_rpc_fail_rounds(world_rpc(world), rounds, CO_DISKFULL);
            char *body = web_want(world, 200, targets[i], NULL);
            cr_expect(strstr(body, "MQ=="), "%s", body);
            free(body);
        }
    }
    world_stop(world);
}

Test(full, those_who_wait_go_on) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    fake_rpc_alone(world_rpc(world), false);
    int parked = park_at(world, "/v1/kv/a", "&wait=5m"); /* here */
    fake_rpc_fail_rounds(world_rpc(world), 1, CO_DISKFULL);
    put(world, "a", "2");
    expect_answer(parked, 200, "Mg==");
    close(parked);
    uint64_t index = index_of(world, "GET /v1/kv/a");
    char target[80];
    snprintf(target, sizeof target, "/v1/kv/a?index=%llu&wait=5m", (unsigned long long)index);
    fake_rpc_fail_rounds(world_rpc(world), 1, CO_DISKFULL);
    int far = park(world, target);
    put(world, "a", "3");
    expect_answer(far, 200, "Mw==");
    close(far);
    snprintf(target, sizeof target, "/v1/kv/a?index=%llu&wait=200ms",
             (unsigned long long)index_of(world, "GET /v1/kv/a"));
    fake_rpc_fail_rounds(world_rpc(world), 1, CO_DISKFULL);
    uint64_t begun = clock_mono_ms();
    far = web_get(world, target);
    expect_answer(far, 200, "Mw==");
    cr_expect(clock_mono_ms() - begun >= 200);
    close(far);
    world_stop(world);
}

Test(full, an_error_says_so) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    fake_rpc_alone(world_rpc(world), false);
    fake_rpc_fail_rounds(world_rpc(world), 1000000, CO_DISKFULL);
    static const char *const targets[] = {"GET /v1/kv/a", "GET /v1/kv/a?consistent", "GET /v1/kv/a?index=1&wait=5m",
                                          "GET /v1/health/state/any"};
    for (size_t i = 0; i < ARRAY_COUNT(targets); i++) {
        char *text = web_want(world, 503, targets[i], NULL);
        cr_expect(strstr(text, "disk full: ") == text && !strchr(text, '\n'), "%s", text);
        free(text);
    }
    free(web_want(world, 200, "GET /v1/kv/a?stale", NULL));
    fake_rpc_fail_rounds(world_rpc(world), 0, CO_DISKFULL);
    free(web_want(world, 200, "GET /v1/kv/a", NULL));
    world_stop(world);
}

Test(full, the_end_does_not_wait) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    fake_rpc_alone(world_rpc(world), false);
    uint64_t index = index_of(world, "GET /v1/kv/a");
    char target[80];
    snprintf(target, sizeof target, "/v1/kv/a?index=%llu&wait=5m", (unsigned long long)index);
    fake_rpc_fail_rounds(world_rpc(world), 1, CO_DISKFULL);
    int far = park(world, target);
    uint64_t begun = clock_mono_ms();
    world_stop_http(world);
    cr_expect(clock_mono_ms() - begun < 2000, "long before their time is up");
    close(far);
    world_stop(world);
}

Test(blocking, hanging_up_during_confirmation) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    fake_rpc_alone(world_rpc(world), false);
    int fd = park(world, "/v1/kv/a?index=1&wait=5m");
    fake_rpc_hold_rounds(world_rpc(world), true);
    put(world, "a", "2");
    close(fd);
    EVENTUALLY(PARKED(world) == 0);
    fake_rpc_hold_rounds(world_rpc(world), false);
    fake_rpc_alone(world_rpc(world), true);
    free(web_want(world, 200, "GET /v1/kv/a", NULL));
    world_stop(world);
}

/* The server has seen the client go before the query parks, because the connection has waited before and is watched. */
Test(blocking, hanging_up_before_it_waits) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    for (unsigned i = 1; i <= 20; i++) {
        int fd = web_dial(world);
        web_say(fd, "GET /v1/kv/a?index=%u&wait=5m HTTP/1.1\r\nHost: x\r\n\r\n", i);
        EVENTUALLY(PARKED(world) == 1);
        put(world, "a", i % 2 ? "x" : "y");
        struct web_answer answer = web_hear(fd);
        cr_assert(answer.status == 200 && web_index(&answer) == i + 1);
        web_free(&answer);
        fake_rpc_alone(world_rpc(world), i % 2);
        fake_rpc_hold_rounds(world_rpc(world), true);
        web_say(fd, "GET /v1/kv/a?index=%u&wait=5m HTTP/1.1\r\nHost: x\r\n\r\n", i + 1);
        close(fd);
        for (int ms = 0; ms < 5; ms++) (void)PARKED(world); /* it comes to it meanwhile */
        fake_rpc_hold_rounds(world_rpc(world), false);
        fake_rpc_alone(world_rpc(world), true);
        EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
        cr_assert_eq(PARKED(world), 0);
    }
    world_stop(world);
}

/* ---- limits and the end ---- */

Test(blocking, too_many) {
    struct http_config config = {.watches_max = 3};
    struct world *world = world_start(&config);
    put(world, "a", "1");
    int fds[3];
    for (size_t i = 0; i < 3; i++) fds[i] = park(world, "/v1/kv/a?index=1&wait=5m");
    char *text = web_want(world, 429, "GET /v1/kv/a?index=1&wait=5m", NULL);
    cr_expect_str_eq(text, "too many blocking queries and streams (limit 3)");
    free(text);
    close(fds[0]);
    EVENTUALLY(PARKED(world) == 2);
    fds[0] = park(world, "/v1/kv/a?index=1&wait=5m");
    for (size_t i = 0; i < 3; i++) close(fds[i]);
    world_stop(world);
}

Test(blocking, an_address_has_its_places) {
    struct http_config config = {.parked = {.most[PARKED_ADDRESS] = 3}};
    struct world *world = world_start(&config);
    put(world, "a", "1");
    int fds[3];
    for (size_t i = 0; i < 3; i++) fds[i] = park(world, "/v1/kv/a?index=1&wait=5m");
    struct web_answer answer = web_ask(world, "GET /v1/kv/a?index=1&wait=5m", NULL);
    cr_expect_eq(answer.status, 429);
    cr_expect_str_eq(answer.body, "too many blocking queries and streams: limits.client_parked is 3 for one address");
    cr_expect_str_eq(web_header(&answer, "Retry-After"), "1");
    web_free(&answer);
    free(
        web_want(world, 200, "GET /v1/kv/a", NULL)); /* what is answered at once needs no place: it waits for nothing */
    free(web_want(world, 404, "GET /v1/kv/none?index=0&wait=5m", NULL));
    put(world, "b", "1");
    free(web_want(world, 200, "GET /v1/kv/b?index=1&wait=5m", NULL));
    cr_expect_eq(PARKED(world), 3);
    close(fds[0]); /* the client goes */
    EVENTUALLY(PARKED(world) == 2);
    fds[0] = park(world, "/v1/kv/a?index=1&wait=5m");
    put(world, "a", "2"); /* all are answered */
    for (size_t i = 0; i < 3; i++) expect_answer(fds[i], 200, "Mg=="), close(fds[i]);
    for (size_t i = 0; i < 3; i++) fds[i] = park_at(world, "/v1/kv/a", "&wait=5m");
    char more[64];
    snprintf(more, sizeof more, "GET /v1/kv/a?index=%llu&wait=5m", (unsigned long long)index_of(world, "GET /v1/kv/a"));
    free(web_want(world, 429, more, NULL));
    int late = web_get(world, "/v1/watch?key=a"); /* a stream needs a place, too */
    expect_answer(late, 429, "limits.client_parked");
    close(late);
    for (size_t i = 0; i < 3; i++) close(fds[i]);
    EVENTUALLY(PARKED(world) == 0);
    int stream = web_get(world, "/v1/watch?key=a");
    free(web_want(world, 200, "GET /v1/kv/a", NULL));
    close(stream);
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
    world_stop(world); /* which fails if a place is still taken */
}

Test(blocking, permissive_counts_who_is_above) {
    struct http_config config = {.parked = {.most[PARKED_ADDRESS] = 1, .permissive = true}};
    struct world *world = world_start(&config);
    put(world, "a", "1");
    uint64_t before = web_metric(world, "coord_http_limited_total{limit=\"client_parked\"}");
    int first = park(world, "/v1/kv/a?index=1&wait=5m"), second = park(world, "/v1/kv/a?index=1&wait=5m");
    cr_expect_eq(web_metric(world, "coord_http_limited_total{limit=\"client_parked\"}") - before, 1);
    close(first), close(second);
    EVENTUALLY(PARKED(world) == 0);
    world_stop(world);
}

Test(blocking, stopping_answers_those_who_wait) {
    struct world *world = world_start(NULL);
    put(world, "a", "1");
    int fds[50];
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) fds[i] = web_get(world, "/v1/kv/a?index=1&wait=5m");
    EVENTUALLY(PARKED(world) == ARRAY_COUNT(fds));
    uint64_t begun = clock_mono_ms();
    world_stop_http(world);
    cr_expect(clock_mono_ms() - begun < 2000, "long before their time is up");
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) {
        expect_answer(fds[i], 200, "MQ==");
        cr_expect(web_closed(fds[i]));
        close(fds[i]);
    }
    EVENTUALLY(PARKED(world) == 0);
    world_stop(world);
}

/* Everything that can happen to a waiter, at once. */
static void storm(const struct http_config *config) {
    struct world *world = world_start(config);
    put(world, "a", "1");
    fake_rpc_alone(world_rpc(world), false);
    int fds[64];
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) fds[i] = -1;
    struct rng rng;
    rng_seed(&rng, 7);
    for (int step = 0; step < 3000; step++) {
        int *fd = &fds[rng_below(&rng, ARRAY_COUNT(fds))];
        switch (rng_below(&rng, 4)) {
            case 0: put(world, "a", step % 2 ? "x" : "y"); break;
            case 1:
                if (*fd >= 0) close(*fd);
                *fd = -1;
                break;
            default:
                if (*fd < 0) *fd = web_dial(world);
                web_say(*fd, "GET /v1/kv/a?index=%d&wait=%dms%s HTTP/1.1\r\nHost: x\r\n\r\n", 1 + step / 4,
                        (int)rng_below(&rng, 30) + 1, rng_below(&rng, 2) ? "&stale" : "");
        }
    }
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) {
        if (fds[i] >= 0) close(fds[i]);
    }
    EVENTUALLY(PARKED(world) == 0);
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
    world_stop(world);
}

Test(blocking, storm) { storm(NULL); }

Test(blocking, storm_with_places) { storm(&(struct http_config){.parked = {.most[PARKED_ADDRESS] = 8}}); }
