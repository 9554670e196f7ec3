/* The decisions of rpc/client/connections.h, one rule after the other; together, over time: ./dev sim, scenarios of links. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <uv.h>

#include "base/error.h"
#include "rpc/client/connections.h"
#include "rpc/wire/hello.h"

#define TICK_MS 50
#define CLUSTER 77

struct world {
    struct connections c;
    struct connection conns[64];
    unsigned dialled; /* of `conns` */
    struct connection *closed, *pinged;
    unsigned pings;
    uint64_t now_ms;
    struct connection_seen seen; /* of every connection, at each tick */
};

static struct connection *last(struct world *world) { return &world->conns[world->dialled - 1]; }

static void carry_out(struct world *world) {
    for (struct connections_order order; (order = connections_next(&world->c)).act != CONNECTIONS_NOTHING;) {
        if (order.act == CONNECTIONS_DIAL) {
            cr_assert_lt(world->dialled, 64);
            connections_dialled(&world->c, &world->conns[world->dialled++], order.server, world->now_ms);
        } else if (order.act == CONNECTIONS_CLOSE) {
            world->closed = order.connection;
        } else if (order.act == CONNECTIONS_PING) {
            world->pinged = order.connection, world->pings++;
            connection_pinged(order.connection, 100, 0, world->now_ms);
        }
    }
}

static void open_world(struct world *world, unsigned servers) {
    static const char *const addresses[] = {"10.0.0.1:8300", "10.0.0.2:8300", "10.0.0.3:8300", "10.0.0.4:8300"};
    struct connections_config config = {.cluster = "dc1", .hold_ms = 7000, .rank_seed = 5, .seed = 6, .port = 8300};
    *world = (struct world){.now_ms = 100000};
    connections_begin(&world->c, &config, world->now_ms);
    for (unsigned i = 0; i < servers; i++) connections_know(&world->c, addresses[i]);
}

static void close_world(struct world *world) {
    list_init(&world->c.all);
    connections_end(&world->c);
}

static void run_for(struct world *world, uint64_t ms) {
    for (uint64_t end_ms = world->now_ms + ms; world->now_ms < end_ms;) {
        world->now_ms += TICK_MS;
        LIST_FOREACH(item, &world->c.all)
            connection_tick(&world->c, LIST_ENTRY(item, struct connection, link), &world->seen, world->now_ms);
        connections_tick(&world->c, world->now_ms);
        carry_out(world);
    }
}

static void fails(struct world *world) {
    connection_closed(&world->c, last(world), CO_IO, UV_ECONNREFUSED, world->now_ms);
    carry_out(world);
}

static void says_hello(struct world *world, struct connection *conn, uint64_t cluster_id) {
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    hello.protocol = (char *)(uintptr_t)HELLO_PROTOCOL;
    hello.version_least = HELLO_VERSION_LEAST, hello.version_most = HELLO_VERSION_MOST;
    hello.cluster = (char *)(uintptr_t) "dc1", hello.cluster_id = cluster_id, hello.id = 1;
    hello.address = conn->at, hello.node = (char *)(uintptr_t) "s";
    connection_hello(&world->c, conn, &hello, world->now_ms);
    carry_out(world);
}

/* Of all that the world knows. */
static void says_servers(struct world *world, struct connection *conn, bool leads) {
    Pb__PeerServers servers = PB__PEER_SERVERS__INIT;
    Pb__PeerServer server[8], *pointers[8];
    char addresses[8][128];
    servers.servers = pointers;
    LIST_FOREACH(item, &world->c.servers) {
        size_t at = servers.n_servers++;
        snprintf(addresses[at], sizeof addresses[at], "%s", LIST_ENTRY(item, struct client_server, link)->address);
        server[at] = (Pb__PeerServer)PB__PEER_SERVER__INIT;
        server[at].id = at + 1, server[at].address = addresses[at], pointers[at] = &server[at];
    }
    servers.leader = leads ? 1 : 0;
    connection_servers(&world->c, conn, &servers, world->now_ms);
    carry_out(world);
}

static void meet(struct world *world) {
    run_for(world, TICK_MS);
    connection_stands(last(world), false, world->now_ms);
    says_hello(world, last(world), CLUSTER);
    says_servers(world, last(world), true);
    cr_assert_eq(world->c.current, last(world));
}

Test(connections, all_servers_are_tried_once_before_one_is_tried_twice) {
    struct world world;
    const struct client_server *tried[4];
    open_world(&world, 4);
    for (unsigned i = 0; i < 4; i++) { /* each hangs */
        run_for(&world, TICK_MS);
        tried[i] = last(&world)->server;
        for (unsigned k = 0; k < i; k++) cr_assert_neq(tried[k], tried[i], "%u", i);
        for (world.closed = NULL; !world.closed;) run_for(&world, TICK_MS);
        connection_closed(&world.c, last(&world), CO_CLOSED, 0, world.now_ms);
    }
    for (unsigned i = 0; i < 3; i++) cr_assert_gt(tried[i]->rank, tried[i + 1]->rank);
    close_world(&world);
}

Test(connections, a_server_that_fails_is_dialled_less_and_less) {
    struct world world;
    uint64_t least_ms[] = {50, 100, 200, 400, 800, 1600, 2500, 2500}, before_ms = 0;
    open_world(&world, 1);
    for (unsigned i = 0; i < 8; i++) {
        unsigned dialled = world.dialled;
        while (world.dialled == dialled) run_for(&world, TICK_MS);
        uint64_t waited_ms = world.now_ms - before_ms;
        if (i)
            cr_expect(waited_ms >= least_ms[i - 1] && waited_ms <= 2 * least_ms[i - 1] + TICK_MS, "%u: %u", i,
                      (unsigned)waited_ms);
        before_ms = world.now_ms;
        fails(&world);
    }
    close_world(&world);
}

Test(connections, a_silent_server_is_asked_and_left) {
    struct world world;
    open_world(&world, 1);
    meet(&world);
    run_for(&world, 4900);
    cr_assert_eq(world.pings, 0, "nobody waits");
    run_for(&world, 150);
    cr_assert(world.pings == 1 && !world.closed);
    run_for(&world, 1050);
    cr_assert(world.pings == 1 && world.closed == world.c.current);
    close_world(&world);
}

Test(connections, a_server_that_answers_pings_is_kept_while_somebody_waits) {
    struct world world;
    open_world(&world, 1);
    meet(&world);
    world.seen.awaited = true;
    for (unsigned i = 0; i < 80; i++) {
        run_for(&world, TICK_MS);
        if (world.pinged) connection_heard(world.pinged, world.now_ms), world.pinged = NULL;
    }
    cr_assert(world.pings >= 8 && world.pings <= 10 && !world.closed, "%u pings", world.pings);
    run_for(&world, 1000); /* nothing comes back any more */
    cr_assert_eq(world.closed, world.c.current);
    close_world(&world);
}

Test(connections, a_ping_behind_own_bytes_is_not_missed) {
    struct world world;
    open_world(&world, 1);
    meet(&world);
    world.seen.awaited = true;
    for (unsigned i = 0; i < 90; i++) { /* 100 bytes before the ping are taken one by one */
        run_for(&world, TICK_MS);
        world.seen.delivered++;
    }
    cr_assert(world.pings == 1 && !world.closed);
    run_for(&world, 500);
    cr_assert_eq(world.closed, world.c.current);
    close_world(&world);
}

Test(connections, nobody_else_is_to_blame_when_this_process_stood_still) {
    struct world world;
    open_world(&world, 1);
    meet(&world);
    world.seen.awaited = true;
    run_for(&world, 500);
    cr_assert_eq(world.pings, 1);
    world.now_ms += 5000;
    run_for(&world, 400);
    cr_assert_null(world.closed);
    run_for(&world, 200);
    cr_assert_eq(world.closed, world.c.current);
    close_world(&world);
}

Test(connections, a_connection_that_is_left_lasts_while_something_is_under_way) {
    struct world world;
    open_world(&world, 2);
    meet(&world);
    struct connection *before = world.c.current;
    says_servers(&world, before, false);
    while (world.dialled == 1) run_for(&world, TICK_MS);
    world.seen.sent = true;
    says_hello(&world, last(&world), CLUSTER);
    cr_assert_eq(world.c.current, before, "not before it knows a leader");
    says_servers(&world, last(&world), true);
    cr_assert(world.c.current == last(&world) && before->draining);
    connection_heard(before, world.now_ms);
    run_for(&world, 3000);
    cr_assert_null(world.closed);
    world.seen.sent = false, world.seen.calls = true;
    run_for(&world, 1000);
    cr_assert_null(world.closed);
    world.seen.calls = false;
    run_for(&world, TICK_MS);
    cr_assert_eq(world.closed, before);
    close_world(&world);
}

Test(connections, what_servers_said_before_a_connection_does_not_count) {
    struct world world;
    open_world(&world, 2);
    for (unsigned i = 0; i < 2; i++) { /* the first says another cluster, the second is ours */
        run_for(&world, TICK_MS);
        says_hello(&world, last(&world), i ? CLUSTER : CLUSTER + 1);
        if (!i) world.c.cluster_id = CLUSTER;
        if (!i) fails(&world);
    }
    says_servers(&world, last(&world), true);
    cr_assert_eq(connections_elsewhere(&world.c), 0);
    close_world(&world);
}

/* The open cluster is being closed: the plain connection goes on until an encrypted one to the same server stands. */
Test(connections, a_plain_connection_is_replaced_by_an_encrypted_one) {
    struct world world;
    open_world(&world, 2);
    meet(&world);
    struct connection *plain = last(&world);
    run_for(&world, 25000);
    cr_assert_eq(world.dialled, 1, "not as long as the cluster is open");
    connections_mixed(&world.c, true);
    run_for(&world, TICK_MS);
    cr_assert_eq(world.dialled, 2);
    cr_assert_eq(last(&world)->server, plain->server);
    cr_expect_not(last(&world)->server->plain, "an encrypted one is tried first");
    fails(&world); /* the server cannot do it yet */
    cr_assert_eq(world.c.current, plain, "nothing is lost");
    run_for(&world, 5000);
    cr_assert_eq(world.dialled, 3);
    cr_expect_not(last(&world)->server->plain);
    connection_stands(last(&world), true, world.now_ms);
    says_hello(&world, last(&world), CLUSTER);
    says_servers(&world, last(&world), true);
    cr_assert_eq(world.c.current, last(&world));
    cr_assert(plain->draining, "what is under way on it ends well");
    run_for(&world, 20000);
    cr_assert_eq(world.dialled, 3, "it stays with that");
    close_world(&world);
}

Test(connections, a_server_that_does_not_encrypt_yet_is_dialled_plain_in_turn) {
    struct world world;
    bool plain[4];
    open_world(&world, 1);
    connections_mixed(&world.c, true);
    for (unsigned i = 0; i < 4; i++) {
        unsigned dialled = world.dialled;
        while (world.dialled == dialled) run_for(&world, TICK_MS);
        plain[i] = last(&world)->server->plain;
        fails(&world);
    }
    cr_assert(!plain[0] && plain[1] && !plain[2] && plain[3]);
    close_world(&world);
}

/* Thousands that come back at once shake hands one after the other: to begin anew would only add to the server's work. */
Test(connections, a_handshake_that_waits_for_its_turn_is_not_begun_anew) {
    struct world world;
    open_world(&world, 2);
    run_for(&world, TICK_MS);
    world.seen.shakes = true;
    run_for(&world, 5000);
    cr_assert(!world.closed && world.dialled == 1);
    world.seen.shakes = false;
    run_for(&world, TICK_MS);
    cr_assert_eq(world.closed, last(&world), "without one it is dead");
    close_world(&world);
}

/* Its hello waits behind the handshakes of others, too. */
Test(connections, after_a_long_handshake_there_is_time_for_the_hello) {
    struct world world;
    open_world(&world, 2);
    run_for(&world, TICK_MS);
    world.seen.shakes = true;
    run_for(&world, 5000);
    world.seen.shakes = false;
    connection_stands(last(&world), true, world.now_ms);
    run_for(&world, 2900);
    cr_assert(!world.closed && world.dialled == 1);
    run_for(&world, 200);
    cr_assert_eq(world.closed, last(&world), "it says nothing");
    close_world(&world);
}

Test(connections, a_plain_one_has_less_time) {
    struct world world;
    open_world(&world, 2);
    run_for(&world, TICK_MS);
    connection_stands(last(&world), false, world.now_ms);
    run_for(&world, 700);
    cr_assert_null(world.closed);
    run_for(&world, 200);
    cr_assert_eq(world.closed, last(&world));
    close_world(&world);
}

/* This process stood still: what came meanwhile is not read yet. */
Test(connections, who_stood_still_does_not_blame_the_other_side) {
    struct world world;
    open_world(&world, 2);
    run_for(&world, TICK_MS);
    connection_stands(last(&world), false, world.now_ms);
    world.now_ms += 2000;
    run_for(&world, 700);
    cr_assert_null(world.closed);
    run_for(&world, 200);
    cr_assert_eq(world.closed, last(&world));
    close_world(&world);
}

Test(connections, none_while_it_is_paused) {
    struct world world;
    open_world(&world, 2);
    meet(&world);
    connections_pause(&world.c, true);
    carry_out(&world);
    cr_assert_eq(world.closed, world.c.current);
    fails(&world);
    run_for(&world, 60000);
    cr_assert_eq(world.dialled, 1);
    connections_pause(&world.c, false);
    run_for(&world, TICK_MS);
    cr_assert_eq(world.dialled, 2);
    close_world(&world);
}

Test(connections, hurry_forgets_every_back_off) {
    struct world world;
    open_world(&world, 1);
    for (unsigned i = 0; i < 6; i++) {
        unsigned dialled = world.dialled;
        while (world.dialled == dialled) run_for(&world, TICK_MS);
        fails(&world);
    }
    connections_hurry(&world.c);
    run_for(&world, TICK_MS);
    cr_assert_eq(world.dialled, 7);
    close_world(&world);
}
