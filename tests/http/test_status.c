/* /v1/status while the leader of a cluster is not known yet. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "web_world.h"

static const struct {
    const char *path, *with, *without;
} asked[] = {
    {"/v1/status/leader", "\"10.0.0.1:8300\"", "\"\""},
    {"/v1/status/peers", "[\"10.0.0.1:8300\"]", "[]"},
};

static void expect(int fd, const char *body) {
    struct web_answer answer = web_hear(fd);
    cr_expect(answer.status == 200, "%d", answer.status);
    cr_expect_str_eq(answer.body, body);
    web_free(&answer);
    close(fd);
}

Test(status, waits_for_a_leader_that_comes) {
    struct world *world = world_start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) {
        expect(web_get(world, asked[i].path), asked[i].with);
        fake_rpc_leader(world_rpc(world), false);
        int fd = web_get(world, asked[i].path);
        cr_expect(web_silent(fd, 50));
        fake_rpc_leader(world_rpc(world), true);
        expect(fd, asked[i].with);
    }
    world_stop(world);
}

Test(status, without_a_leader_it_is_answered_in_bounded_time) {
    struct world *world = world_start(NULL);
    fake_rpc_leader(world_rpc(world), false);
    int fds[ARRAY_COUNT(asked)];
    uint64_t begun = clock_mono_ms();
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) fds[i] = web_get(world, asked[i].path);
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) expect(fds[i], asked[i].without);
    cr_expect(clock_mono_ms() - begun < 4000); /* 1 s each, at once */
    world_stop(world);
}

/* Before its own answer would come: before that of somebody who asked earlier. */
static bool leave(const struct world *world) {
    int earlier = web_get(world, asked[0].path);
    for (int i = 0; i < 20; i++) close(web_get(world, asked[i % 2].path));
    bool gone = false;
    while (!gone && web_silent(earlier, 1)) gone = web_metric(world, "coord_http_connections") == 2;
    gone = gone && web_silent(earlier, 0);
    expect(earlier, asked[0].without);
    return gone;
}

Test(status, who_waits_may_leave) {
    struct world *world = world_start(NULL);
    fake_rpc_leader(world_rpc(world), false);
    bool gone = false;
    for (int i = 0; i < 5 && !gone; i++) gone = leave(world);
    cr_expect(gone);
    EVENTUALLY(web_metric(world, "coord_http_connections") == 1);
    world_stop(world);
}

Test(status, a_stop_answers_who_waits) {
    struct world *world = world_start(NULL);
    fake_rpc_leader(world_rpc(world), false);
    int fds[ARRAY_COUNT(asked)];
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) fds[i] = web_get(world, asked[i].path);
    cr_expect(web_silent(fds[1], 50));
    uint64_t begun = clock_mono_ms();
    world_stop_http(world);
    cr_expect(clock_mono_ms() - begun < 700);
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) expect(fds[i], asked[i].without);
    world_stop(world);
}
