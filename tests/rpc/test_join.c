/* The message to a person who names an address to join by, on a client agent that knows of no server yet
 * (rpc/core/join.c); the servers are made up. */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>

#include "agent/modules.h"
#include "base/clock.h"
#include "fake_server.h"
#include "rpc/client/client.h"
#include "tests/lib/steady_clock.h"

struct world {
    uv_loop_t loop;
    uv_timer_t timer;
    uv_tcp_t deaf; /* has a port and does not listen */
    struct fake_server fake, other;
    struct rpc *rpc;
    uint64_t until_ms;
    bool (*done)(struct world *world);
    struct rpc_join join;
    unsigned answers;
    int error;
    uint64_t took_ms;
};

static void tick(uv_timer_t *timer) {
    struct world *world = timer->data;
    if (world->done(world)) uv_stop(&world->loop);
    else cr_assert(clock_mono_ms() < world->until_ms, "not in time");
}
static void run_until(struct world *world, uint64_t ms, bool (*done)(struct world *world)) {
    world->done = done, world->until_ms = clock_mono_ms() + ms;
    uv_timer_start(&world->timer, tick, 0, 5);
    uv_run(&world->loop, UV_RUN_DEFAULT);
}
static bool never(struct world *world) { return clock_mono_ms() + 1000 > world->until_ms; }
static void run_for(struct world *world, uint64_t ms) { run_until(world, ms + 1000, never); }

static void open_world(struct world *world) {
    memset(world, 0, sizeof *world);
    steady_clock_begin();
    uv_loop_init(&world->loop);
    uv_timer_init(&world->loop, &world->timer);
    world->timer.data = world;
    fake_open(&world->fake, &world->loop, 1);
    fake_open(&world->other, &world->loop, 2);
    struct rpc_client_config config = {.cluster = "dc1",
                                       .node_name = "agent",
                                       .address = "127.0.0.1",
                                       .no_coordinates = true,
                                       .node_id = "77777777-0000-4000-8000-000000000000",
                                       .modules = agent_modules,
                                       .port = 8300};
    world->rpc = rpc_client_start(&world->loop, &config);
}
static void agent_closed(void *data) { ((struct world *)data)->rpc = NULL; }
static bool stopped(struct world *world) { return !world->rpc && !world->fake.sessions && !world->other.sessions; }
static void close_world(struct world *world) {
    rpc_client_stop(world->rpc, agent_closed, world);
    run_until(world, 5000, stopped);
    fake_close(&world->fake);
    fake_close(&world->other);
    uv_close((uv_handle_t *)&world->timer, NULL);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&world->loop), 0);
}

static void on_joined(struct rpc_join *join, int error) {
    struct world *world = CONTAINER_OF(join, struct world, join);
    world->answers++, world->error = error;
}
static bool answered(struct world *world) { return world->answers > 0; }
static bool connected(struct world *world) { return world->fake.agents == 1; }

/* Until it is answered. */
static void join(struct world *world, const char *address) {
    world->join = (struct rpc_join){.done = on_joined};
    snprintf(world->join.address, sizeof world->join.address, "%s", address);
    world->answers = 0;
    uint64_t begun = clock_mono_ms();
    rpc_join(world->rpc, &world->join);
    if (!world->answers) run_until(world, 10000, answered);
    world->took_ms = clock_mono_ms() - begun;
    cr_assert_eq(world->answers, 1);
}
static void is_answered(const struct world *world, int error, const char *text) {
    cr_assert_eq(world->error, error, "%s: %s", co_strerror(world->error), world->join.fault.text);
    cr_assert_eq(world->join.fault.code, error);
    cr_assert_str_eq(world->join.fault.text, text);
}
/* An address that was of no use is not tried again. */
static void is_left_alone(struct world *world) {
    run_for(world, 400);
    cr_assert_eq(world->fake.connections, 1);
    cr_assert_eq(world->fake.agents, 0);
    close_world(world);
}

Test(join, a_server_that_accepts_is_the_agents_from_then_on) {
    struct world world;
    open_world(&world);
    run_for(&world, 200);
    cr_assert_eq(world.fake.connections, 0);
    join(&world, world.fake.address);
    is_answered(&world, CO_OK, "");
    run_until(&world, 5000, connected);
    cr_assert_eq(world.fake.hellos, 2, "one to join by, one to stay");
    close_world(&world);
}

/* Where it is ::1 as well, that one refuses. */
Test(join, a_name_is_resolved) {
    struct world world;
    char name[32];
    open_world(&world);
    snprintf(name, sizeof name, "localhost%s", strchr(world.fake.address, ':'));
    join(&world, name);
    cr_assert_eq(world.error, CO_OK, "%s", world.join.fault.text);
    run_until(&world, 5000, connected);
    close_world(&world);
}

Test(join, a_refusal_is_told_as_it_was_said) {
    struct world world;
    open_world(&world);
    world.fake.refuses = "it belongs to another cluster (datacenter dc1, not dc2)";
    join(&world, world.fake.address);
    is_answered(&world, CO_DENIED, "it refuses this agent: it belongs to another cluster (datacenter dc1, not dc2)");
    is_left_alone(&world);
}

/* Of whatever length, and whatever is in it. */
Test(join, a_refusal_is_one_line) {
    struct world world;
    char line[1000];
    open_world(&world);
    memset(line, 'x', sizeof line);
    line[1] = '\n', line[2] = '\033', line[sizeof line - 1] = 0;
    world.fake.refuses = line;
    join(&world, world.fake.address);
    cr_assert_eq(world.error, CO_DENIED);
    cr_assert_eq(strncmp(world.join.fault.text, "it refuses this agent: x??xxx", 29), 0, "%s", world.join.fault.text);
    cr_assert(strlen(world.join.fault.text) > 200);
    is_left_alone(&world);
}

Test(join, another_datacenter_is_not_joined) {
    struct world world;
    open_world(&world);
    world.fake.datacenter = "dc2";
    join(&world, world.fake.address);
    is_answered(&world, CO_DENIED, "it belongs to another cluster (datacenter dc2, not dc1)");
    is_left_alone(&world);
}

Test(join, another_cluster_of_the_same_name_is_not_joined) {
    struct world world;
    open_world(&world);
    join(&world, world.fake.address);
    run_until(&world, 5000, connected);
    world.other.cluster_id = 78;
    join(&world, world.other.address);
    is_answered(
        &world, CO_DENIED,
        "it belongs to another cluster of the same name (its cluster id 000000000000004e, here 000000000000004d)");
    run_for(&world, 400);
    cr_assert(world.other.connections == 1 && world.fake.agents == 1);
    close_world(&world);
}

Test(join, a_server_that_ends_the_connection_is_not_joined) {
    struct world world;
    open_world(&world);
    world.fake.ends = true;
    join(&world, world.fake.address);
    is_answered(&world, CO_IO, "closed by the other side");
    cr_assert_eq(world.fake.hellos, 1);
    is_left_alone(&world);
}

Test(join, nor_one_that_ends_it_at_once) {
    struct world world;
    open_world(&world);
    world.fake.resets = true;
    join(&world, world.fake.address);
    is_answered(&world, CO_IO, "connection reset by peer");
    is_left_alone(&world);
}

Test(join, a_silent_server_is_waited_for_two_seconds) {
    struct world world;
    open_world(&world);
    world.fake.silent = true;
    join(&world, world.fake.address);
    is_answered(&world, CO_TIMEOUT, "no answer");
    cr_assert(world.took_ms >= 1990 && world.took_ms < 4000, "%llu ms", (unsigned long long)world.took_ms);
    is_left_alone(&world);
}

Test(join, nobody_listens_there) {
    struct world world;
    struct sockaddr_in at;
    int size = sizeof at;
    char address[32];
    open_world(&world);
    uv_tcp_init(&world.loop, &world.deaf);
    uv_ip4_addr("127.0.0.1", 0, &at);
    cr_assert_eq(uv_tcp_bind(&world.deaf, (struct sockaddr *)&at, 0), 0);
    cr_assert_eq(uv_tcp_getsockname(&world.deaf, (struct sockaddr *)&at, &size), 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    join(&world, address);
    is_answered(&world, CO_IO, "connection refused");
    uv_close((uv_handle_t *)&world.deaf, NULL);
    close_world(&world);
}

/* Of a label too long to be asked for: nobody is asked. */
Test(join, a_name_that_does_not_resolve) {
    struct world world;
    char name[96];
    open_world(&world);
    memset(name, 'a', 64);
    snprintf(name + 64, sizeof name - 64, ":8300");
    join(&world, name);
    is_answered(&world, CO_IO, "unknown node or service");
    close_world(&world);
}

Test(join, what_is_not_an_address_is_refused_at_once) {
    static const char *const texts[] = {"", "127.0.0.1", ":8300", "127.0.0.1:123456789"};
    struct world world;
    open_world(&world);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        join(&world, texts[i]);
        is_answered(&world, CO_INVALID, "not an address");
    }
    close_world(&world);
}
