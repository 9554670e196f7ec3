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

/* Whether it was waited for: a second, which a machine that stands still may take. */
static bool waits_for_a_leader(const struct world *world, size_t i) {
    fake_rpc_leader(world_rpc(world), false);
    int fd = web_get(world, asked[i].path);
    bool silent = web_silent(fd, 50);
    fake_rpc_leader(world_rpc(world), true);
    struct web_answer answer = web_hear(fd);
    bool waited = silent && strcmp(answer.body, asked[i].with) == 0;
    cr_expect(answer.status == 200 && (waited || strcmp(answer.body, asked[i].without) == 0), "%s", answer.body);
    web_free(&answer);
    close(fd);
    return waited;
}

Test(status, waits_for_a_leader_that_comes) {
    struct world *world = world_start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) {
        expect(web_get(world, asked[i].path), asked[i].with);
        bool waited = false;
        for (int k = 0; k < 5 && !waited; k++) waited = waits_for_a_leader(world, i);
        cr_expect(waited, "%s", asked[i].path);
    }
    world_stop(world);
}

Test(status, without_a_leader_it_is_answered_in_bounded_time) {
    struct world *world = world_start(NULL);
    fake_rpc_leader(world_rpc(world), false);
    uint64_t took_ms = UINT64_MAX;
    for (int k = 0; k < 3 && took_ms >= 4000; k++) { /* again: the machine stood still */
        int fds[ARRAY_COUNT(asked)];
        uint64_t begun = clock_mono_ms();
        for (size_t i = 0; i < ARRAY_COUNT(asked); i++) fds[i] = web_get(world, asked[i].path);
        for (size_t i = 0; i < ARRAY_COUNT(asked); i++) expect(fds[i], asked[i].without);
        took_ms = clock_mono_ms() - begun;
    }
    cr_expect_lt(took_ms, 4000); /* 1 s each, at once */
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

/* The server has read both requests: that for the peers asks for the status and the peers, the other one for the status. */
static bool both_wait(struct rpc *rpc) {
    uint64_t peers = fake_rpc_peers(rpc);
    return peers > 0 && fake_rpc_statuses(rpc) >= peers + 2; /* one may be of a look at the peers that goes on */
}

/* Returns the time that the stop took. */
static uint64_t stop_with_some_waiting(void) {
    struct world *world = world_start(NULL);
    fake_rpc_leader(world_rpc(world), false);
    int fds[ARRAY_COUNT(asked)];
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) fds[i] = web_get(world, asked[i].path);
    EVENTUALLY(both_wait(world_rpc(world)));
    uint64_t begun = clock_mono_ms();
    world_stop_http(world);
    uint64_t took_ms = clock_mono_ms() - begun;
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) expect(fds[i], asked[i].without);
    world_stop(world);
    return took_ms;
}

Test(status, a_stop_answers_who_waits) {
    uint64_t took_ms = stop_with_some_waiting();
    for (int i = 0; i < 4 && took_ms >= 700; i++) took_ms = stop_with_some_waiting(); /* the machine stood still */
    cr_expect_lt(took_ms, 700);
}
