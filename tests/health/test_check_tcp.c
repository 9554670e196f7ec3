#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "health/check_runner.h"
#include "health/definition.h"
#include "web.h"

struct outcome {
    bool ended;
    Pb__Status status;
    char output[400];
};

static void on_done(void *data, Pb__Status status, struct slice output) {
    struct outcome *outcome = data;
    cr_assert(!outcome->ended, "once");
    outcome->ended = true;
    outcome->status = status;
    snprintf(outcome->output, sizeof outcome->output, "%.*s", (int)output.size, output.data);
}

static bool all_closed;
static void on_closed(struct runners *runners) {
    (void)runners;
    all_closed = true;
}

static struct outcome run(const char *target, bool give_up) {
    uv_loop_t loop;
    struct runners runners;
    struct outcome outcome = {0};
    uv_loop_init(&loop);
    runners_init(&runners, &loop);
    struct check_definition *d = check_definition_blank("c", "");
    d->kind = CHECK_TCP;
    free(d->tcp);
    d->tcp = mem_strdup(target);
    d->timeout_ns = INT64_C(60000000000);
    struct run *one = run_start(&runners, d, 4096, on_done, &outcome);
    check_definition_free(d);
    cr_assert(!outcome.ended, "never from within the start");
    if (give_up) run_cancel(one);
    while (!outcome.ended && !give_up) uv_run(&loop, UV_RUN_ONCE);
    all_closed = false;
    runners_close(&runners, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(all_closed);
    cr_assert_eq(uv_loop_close(&loop), 0);
    cr_assert_eq(outcome.ended, !give_up);
    return outcome;
}

Test(tcp, somebody_listens) {
    static const char *const hosts[] = {"127.0.0.1", "localhost", ""};
    struct web *web = web_start(false);
    for (size_t i = 0; i < ARRAY_COUNT(hosts); i++) {
        char target[80], want[160];
        snprintf(target, sizeof target, "%s:%u", hosts[i], web_port(web));
        snprintf(want, sizeof want, "TCP connect %s: Success", target);
        struct outcome outcome = run(target, false);
        cr_assert_eq(outcome.status, PB__STATUS__PASSING, "%s: %s", target, outcome.output);
        cr_assert_str_eq(outcome.output, want);
        (void)run(target, true);
    }
    web_stop(web);
}

Test(tcp, nobody_listens) {
    uint16_t port = web_free_port();
    char target[80], want[160];
    snprintf(target, sizeof target, "127.0.0.1:%u", port);
    snprintf(want, sizeof want, "dial tcp %s: connect: connection refused", target);
    struct outcome outcome = run(target, false);
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
    cr_assert_str_eq(outcome.output, want);
    snprintf(target, sizeof target, "[::1]:%u", port);
    outcome = run(target, false);
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
    cr_assert_not_null(strstr(outcome.output, "dial tcp [::1]:"), "%s", outcome.output);
}

Test(tcp, addresses_that_are_none) {
    static const struct {
        const char *target, *says;
    } rows[] = {
        {"127.0.0.1", "missing port"},
        {"127.0.0.1:", "invalid port"},
        {"127.0.0.1:99999", "invalid port"},
        {"::1:80", "too many colons"},
        {"[::1]", "missing port"},
        {"[::1:80", "missing port"},
        {"nowhere.invalid:80", "dial tcp: lookup nowhere.invalid: "},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct outcome outcome = run(rows[i].target, false);
        cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
        cr_assert_not_null(strstr(outcome.output, rows[i].says), "%s: %s", rows[i].target, outcome.output);
        (void)run(rows[i].target, true);
    }
}

/* A full backlog on Linux drops the handshake: nobody answers. */
Test(tcp, silence_is_critical_after_the_timeout) {
    uv_loop_t loop;
    struct runners runners;
    struct outcome outcome = {0};
    int fd = socket(AF_INET, SOCK_STREAM, 0), fillers[8];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    cr_assert(bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 0) == 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    for (size_t i = 0; i < ARRAY_COUNT(fillers); i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(fillers[i], (struct sockaddr *)&address, size);
    }
    uv_loop_init(&loop);
    runners_init(&runners, &loop);
    struct check_definition *d = check_definition_blank("c", "");
    char target[40];
    snprintf(target, sizeof target, "127.0.0.1:%u", ntohs(address.sin_port));
    d->kind = CHECK_TCP;
    free(d->tcp);
    d->tcp = mem_strdup(target);
    d->timeout_ns = INT64_C(300000000);
    uint64_t begin = clock_mono_ms();
    (void)run_start(&runners, d, 4096, on_done, &outcome);
    check_definition_free(d);
    runners_close(&runners, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(outcome.ended);
    cr_assert_eq(outcome.status, PB__STATUS__CRITICAL);
    cr_assert_not_null(strstr(outcome.output, "no connection within 300 ms"), "%s", outcome.output);
    cr_assert_geq(clock_mono_ms() - begin, 290);
    uv_loop_close(&loop);
    close(fd);
    for (size_t i = 0; i < ARRAY_COUNT(fillers); i++) close(fillers[i]);
}
