/* Encrypted links, plain ones, and ports that take one of them or both. Time is the test's: clock_gettime stands in for the
 * C library's, and jumps. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "link_pair.h"

#define REFUSED 32

static int64_t skipped_s;

int clock_gettime(clockid_t id, struct timespec *now) {
    int rv = (int)syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE) now->tv_sec += skipped_s;
    return rv;
}

static struct link_world world;
static void begin(void) { link_world_make(&world); }
static void over(void) { link_world_free(&world); }
TestSuite(link_secure, .init = begin, .fini = over);

static void send_to_accepted(struct pair *pair, const char *text) {
    link_send(pair->dialled, PAIR_FRAME, slice_text(text));
    link_flush(pair->dialled);
}

/* -- who is there --------------------------------------------------------------------------------------------------- */
Test(link_secure, both_sides_know_each_other) {
    struct pair pair;
    pair_open(&pair, &world.dial, &world.accept);
    cr_assert(!link_encrypted(pair.dialled));
    cr_assert_null(link_peer(pair.dialled));
    while (!pair.told_accepted || !pair.told_dialled) uv_run(&pair.loop, UV_RUN_ONCE);
    cr_assert(link_encrypted(pair.dialled) && link_encrypted(pair.accepted));
    cr_assert_str_eq(link_peer(pair.dialled)->node, "s1");
    cr_assert_str_eq(link_peer(pair.accepted)->node, "web-1");
    cr_assert_eq(link_peer(pair.accepted)->role, TLS_ROLE_AGENT);
    cr_assert_str_eq(link_protocol(pair.accepted), "coord/1");
    cr_assert_str_eq(link_why(pair.accepted), "");
    link_close(pair.dialled);
    pair_run(&pair);
    cr_assert_eq(pair.error, CO_IO);
    cr_assert_str_eq(pair.why, "");
    pair_close(&pair);
}

Test(link_secure, a_slot_gives_the_context_of_the_moment) {
    struct tls_slot *slot = tls_slot_new();
    struct link_security dial = world.dial, accepted = world.accept;
    dial.slot = accepted.slot = slot;
    dial.context = accepted.context = NULL;
    struct pair pair;
    pair_open(&pair, &dial, NULL);
    pair_run(&pair);
    cr_assert_eq(pair.dialled_error, CO_DENIED);
    cr_assert_str_eq(pair.dialled_why, "this side has no certificate or key yet");
    pair_close(&pair);

    pair_open(&pair, &world.dial, &accepted);
    pair_run(&pair);
    cr_assert_eq(pair.error, CO_DENIED);
    cr_assert_str_eq(pair.why, "this side has no certificate or key yet");
    pair_close(&pair);

    tls_slot_set(slot, tls_context_ref(world.server_context));
    pair_open(&pair, &dial, &accepted);
    pair.frames_wanted = 1;
    send_to_accepted(&pair, "hello");
    pair_run(&pair);
    cr_assert_eq(pair.frames, 1);
    pair_close(&pair);
    tls_slot_free(slot);
}

Test(link_secure, a_stranger_is_refused_and_both_sides_can_say_why) {
    struct test_ca other = {0};
    struct identity stranger = {0};
    test_ca_make(&other);
    identity_make(&other, TLS_ROLE_AGENT, "web-9", -DAY_S, DAY_S, &stranger);
    struct tls_context *context =
        context_of(&stranger, &world.authority, (struct tls_context_config){.only_tls13 = true});
    struct link_security dial = world.dial;
    dial.context = context;
    struct pair pair;
    pair_open(&pair, &dial, &world.accept);
    send_to_accepted(&pair, "let me in");
    pair_run(&pair);
    cr_assert_eq(pair.frames, 0);
    cr_assert(!pair.told_accepted);
    cr_assert_eq(pair.error, CO_DENIED);
    cr_assert(strstr(pair.why, "CA that is not trusted here"), "%s", pair.why);
    cr_assert_eq(pair.dialled_error, CO_DENIED);
    cr_assert(strstr(pair.dialled_why, "it refuses this side: "), "%s", pair.dialled_why);
    pair_close(&pair);

    dial = world.dial; /* and the other way round: this side does not trust the server */
    struct tls_context *distrust = context_of(&world.agent, &other, (struct tls_context_config){.only_tls13 = true});
    dial.context = distrust;
    pair_open(&pair, &dial, &world.accept);
    send_to_accepted(&pair, "let me in");
    pair_run(&pair);
    cr_assert_eq(pair.frames, 0);
    cr_assert(!pair.told_accepted && !pair.told_dialled);
    cr_assert_eq(pair.dialled_error, CO_DENIED);
    cr_assert(strstr(pair.dialled_why, "CA that is not trusted here"), "%s", pair.dialled_why);
    cr_assert_eq(pair.error, CO_DENIED);
    cr_assert(strstr(pair.why, "it refuses this side: "), "%s", pair.why);
    pair_close(&pair);
    tls_context_unref(context);
    tls_context_unref(distrust);
    identity_free(&stranger);
    test_ca_free(&other);
}

/* -- plain and encrypted meet ------------------------------------------------------------------------------------------ */
Test(link_secure, a_plain_side_is_told_that_encryption_is_wanted) {
    struct link_security accepted = world.accept;
    accepted.refusal_type = REFUSED, accepted.refusal = "this cluster takes encrypted connections only";
    struct pair pair;
    pair_open(&pair, NULL, &accepted);
    static char many[50000]; /* more than is read at once: the answer gets there all the same */
    for (int i = 0; i < 3; i++) link_send(pair.dialled, PAIR_FRAME, slice_make(many, sizeof many));
    link_flush(pair.dialled);
    pair_run(&pair);
    cr_assert(slice_is(buffer_slice(&pair.refusal), accepted.refusal));
    cr_assert_eq(pair.frames, 0);
    cr_assert(!pair.told_accepted);
    cr_assert_eq(pair.error, CO_DENIED);
    cr_assert_str_eq(pair.why, "it does not encrypt, and encrypted connections only are taken here");
    pair_close(&pair);
}

Test(link_secure, an_encrypting_side_learns_that_a_port_is_plain) {
    struct pair pair;
    pair_open(&pair, &world.dial, NULL);
    pair.limit = 64 * 1024; /* as before the hellos of processes (rpc/cluster/peers.c) */
    send_to_accepted(&pair, "secret");
    pair_run(&pair);
    cr_assert_eq(pair.frames, 0);
    cr_assert_eq(pair.error, CO_TOOLARGE);
    cr_assert_str_eq(pair.why, "it wants an encrypted connection, and plain ones only are taken here");
    cr_assert_eq(pair.dialled_error, CO_IO);
    cr_assert_str_eq(pair.dialled_why, "it closed the connection in the handshake; it may take plain connections only");
    pair_close(&pair);
}

Test(link_secure, a_port_may_take_both) {
    struct link_security accepted = world.accept;
    accepted.allow_plain = true;
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        struct pair pair;
        pair_open(&pair, encrypts ? &world.dial : NULL, &accepted);
        pair.frames_wanted = 2;
        send_to_accepted(&pair, "hello");
        send_to_accepted(&pair, ", world");
        pair_run(&pair);
        cr_assert(slice_is(buffer_slice(&pair.got), "hello, world"));
        cr_assert_eq(pair.encrypted, encrypts);
        cr_assert(pair.told_accepted);
        pair_close(&pair);
    }
}

/* -- many at once ------------------------------------------------------------------------------------------------------ */
enum { CROWD = 100 };

struct crowd {
    uv_loop_t loop;
    uv_tcp_t listener;
    struct sockaddr_in at;
    struct link_security accept;
    struct link *links[2 * CROWD];
    size_t count, told, told_at_turn, closed, timed_out;
    char why[256];
};

static void crowd_connected(void *data, struct link *link) {
    (void)link;
    ((struct crowd *)data)->told++;
}
static void crowd_closed(void *data, struct link *link, int error) {
    struct crowd *crowd = data;
    crowd->closed++;
    if (error == CO_TIMEOUT) crowd->timed_out++, snprintf(crowd->why, sizeof crowd->why, "%s", link_why(link));
    for (size_t i = 0; i < crowd->count; i++)
        if (crowd->links[i] == link) crowd->links[i] = NULL;
}
static const struct link_callbacks crowd_callbacks = {.connected = crowd_connected, .closed = crowd_closed};

static void crowd_connection(uv_stream_t *server, int status) {
    struct crowd *crowd = server->data;
    cr_assert_eq(status, 0);
    cr_assert_lt(crowd->count, sizeof crowd->links / sizeof *crowd->links);
    crowd->links[crowd->count++] = link_accept(server, &crowd->accept, &crowd_callbacks, crowd);
}

static void crowd_open(struct crowd *crowd) {
    *crowd = (struct crowd){.accept = world.accept};
    uv_loop_init(&crowd->loop);
    crowd->accept.handshakes = handshakes_run_new(&crowd->loop, HANDSHAKES_PER_TURN);
    uv_tcp_init(&crowd->loop, &crowd->listener);
    crowd->listener.data = crowd;
    uv_ip4_addr("127.0.0.1", 0, &crowd->at);
    cr_assert_eq(uv_tcp_bind(&crowd->listener, (struct sockaddr *)&crowd->at, 0), 0);
    cr_assert_eq(uv_listen((uv_stream_t *)&crowd->listener, 2 * CROWD, crowd_connection), 0);
    int size = sizeof crowd->at;
    uv_tcp_getsockname(&crowd->listener, (struct sockaddr *)&crowd->at, &size);
}

static void crowd_close(struct crowd *crowd) {
    for (size_t i = 0; i < crowd->count; i++)
        if (crowd->links[i]) link_close(crowd->links[i]);
    handshakes_run_free(crowd->accept.handshakes);
    uv_close((uv_handle_t *)&crowd->listener, NULL);
    uv_run(&crowd->loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&crowd->loop), 0);
}

/* A connection of the kernel's, whose handshake goes no further than these bytes. */
static int stopped(const struct crowd *crowd, struct slice bytes) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&crowd->at, sizeof crowd->at), 0);
    if (bytes.size > 0) cr_assert_eq(send(fd, bytes.data, bytes.size, 0), (ssize_t)bytes.size);
    return fd;
}

Test(link_secure, those_that_stop_halfway_hold_nobody_up_and_end) {
    struct crowd crowd;
    int fds[CROWD];
    uint64_t begun_ms = clock_mono_ms();
    crowd_open(&crowd);
    struct tls_session *hello = tls_session_new(world.agent_context, &world.dial.session);
    struct slice whole = buffer_slice(tls_session_out(hello));
    /* nothing; a byte; half of a hello; a whole one, whose answer is never read */
    size_t sizes[] = {0, 1, whole.size / 2, whole.size};
    for (size_t i = 0; i < CROWD; i++) fds[i] = stopped(&crowd, slice_make(whole.data, sizes[i % 4]));
    while (crowd.count < CROWD) uv_run(&crowd.loop, UV_RUN_ONCE);
    while (handshakes_run_waiting(crowd.accept.handshakes) > 0) uv_run(&crowd.loop, UV_RUN_ONCE);

    struct crowd good = {0};
    struct link *link =
        link_dial(&crowd.loop, (struct sockaddr *)&crowd.at, NULL, &world.dial, &crowd_callbacks, &good);
    for (int turns = 0; good.told == 0; turns++) {
        uv_run(&crowd.loop, UV_RUN_ONCE);
        cr_assert_lt(turns, 20);
    }
    while (crowd.told == 0) uv_run(&crowd.loop, UV_RUN_ONCE);
    cr_assert_eq(crowd.told, 1);

    /* So much is left of their time, but for two seconds. A machine that stood still for longer has nothing to show here. */
    int64_t left_s = (LINK_HANDSHAKE_MS - 2000 - (int64_t)(clock_mono_ms() - begun_ms)) / 1000;
    if (left_s > 0) {
        cr_assert_eq(crowd.closed, 0);
        skipped_s += left_s;
        for (int i = 0; i < 5; i++) uv_run(&crowd.loop, UV_RUN_NOWAIT);
        cr_assert_eq(crowd.closed, 0);
    }
    skipped_s += LINK_HANDSHAKE_MS / 1000;
    while (crowd.closed < CROWD) uv_run(&crowd.loop, UV_RUN_NOWAIT);
    cr_assert_eq(crowd.timed_out, CROWD);
    cr_assert(strstr(crowd.why, "in time"), "%s", crowd.why);
    cr_assert_eq(good.closed, 0, "a link whose handshake is over has no such end");
    link_close(link);
    for (size_t i = 0; i < CROWD; i++) close(fds[i]);
    tls_session_free(hello);
    crowd_close(&crowd);
}

/* Bytes that come one by one are no work until they are a hello. */
Test(link_secure, a_hello_in_pieces_begins_when_it_is_whole) {
    struct crowd crowd;
    crowd_open(&crowd);
    struct tls_session *hello = tls_session_new(world.agent_context, &world.dial.session);
    struct slice whole = buffer_slice(tls_session_out(hello));
    int fd = stopped(&crowd, (struct slice){0});
    while (crowd.count < 1) uv_run(&crowd.loop, UV_RUN_ONCE);
    uint64_t heard = 0;
    for (size_t i = 0; i < whole.size; i++) {
        cr_assert_null(link_session(crowd.links[0]), "after %zu bytes", i);
        cr_assert_eq(send(fd, whole.data + i, 1, 0), 1);
        while (!link_heard(crowd.links[0], &heard)) uv_run(&crowd.loop, UV_RUN_ONCE);
    }
    cr_assert_eq(heard, whole.size);
    cr_assert_not_null(link_session(crowd.links[0]));
    cr_assert_eq(tls_session_state(link_session(crowd.links[0])), TLS_HANDSHAKE);
    close(fd);
    while (crowd.closed < 1) uv_run(&crowd.loop, UV_RUN_ONCE);
    tls_session_free(hello);
    crowd_close(&crowd);
}

/* A server that sends nothing after it has taken the connection. */
Test(link_secure, a_dialled_side_does_not_wait_for_ever) {
    struct crowd crowd, good = {0};
    crowd_open(&crowd);
    uv_close((uv_handle_t *)&crowd.listener, NULL);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    cr_assert_eq(bind(listener, (struct sockaddr *)&at, size), 0);
    cr_assert_eq(listen(listener, 1), 0);
    getsockname(listener, (struct sockaddr *)&at, &size);
    link_dial(&crowd.loop, (struct sockaddr *)&at, NULL, &world.dial, &crowd_callbacks, &good);
    for (int i = 0; i < 20; i++) uv_run(&crowd.loop, UV_RUN_NOWAIT);
    skipped_s += LINK_HANDSHAKE_MS / 1000 + 1;
    while (good.closed == 0) uv_run(&crowd.loop, UV_RUN_ONCE);
    cr_assert_eq(good.timed_out, 1);
    cr_assert_str_eq(good.why, "its handshake was not over in time");
    close(listener);
    handshakes_run_free(crowd.accept.handshakes);
    uv_run(&crowd.loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&crowd.loop), 0);
}

Test(link_secure, a_turn_of_the_loop_has_few_handshakes) {
    struct crowd crowd, good = {0};
    crowd_open(&crowd);
    for (size_t i = 0; i < CROWD / 2; i++)
        link_dial(&crowd.loop, (struct sockaddr *)&crowd.at, NULL, &world.dial, &crowd_callbacks, &good);
    size_t waited = 0, turns = 0;
    while (crowd.told < CROWD / 2) {
        size_t before = crowd.told;
        uv_run(&crowd.loop, UV_RUN_ONCE);
        turns++;
        cr_assert_leq(crowd.told - before, HANDSHAKES_PER_TURN);
        size_t now = handshakes_run_waiting(crowd.accept.handshakes);
        if (now > waited) waited = now;
    }
    cr_assert_gt(waited, HANDSHAKES_PER_TURN, "they came at once");
    cr_assert_geq(turns * HANDSHAKES_PER_TURN, CROWD / 2 * 2, "two turns each");
    crowd_close(&crowd);
    cr_assert_eq(good.closed, CROWD / 2);
}

Test(link_secure, waiting_for_ones_turn_is_not_held_against_one) {
    struct crowd crowd;
    int fds[CROWD];
    crowd_open(&crowd);
    struct tls_session *hello = tls_session_new(world.agent_context, &world.dial.session);
    for (size_t i = 0; i < CROWD; i++) fds[i] = stopped(&crowd, buffer_slice(tls_session_out(hello)));
    while (handshakes_run_waiting(crowd.accept.handshakes) < CROWD / 2) uv_run(&crowd.loop, UV_RUN_NOWAIT);
    size_t waiting = handshakes_run_waiting(crowd.accept.handshakes);
    skipped_s += LINK_HANDSHAKE_MS / 1000 + 1; /* too late for those that have been answered */
    uv_run(&crowd.loop, UV_RUN_NOWAIT);
    cr_assert_geq(handshakes_run_waiting(crowd.accept.handshakes), waiting - HANDSHAKES_PER_TURN);
    while (handshakes_run_waiting(crowd.accept.handshakes) > 0) uv_run(&crowd.loop, UV_RUN_NOWAIT);
    cr_assert_leq(crowd.timed_out, CROWD - waiting);
    skipped_s += 2 * LINK_HANDSHAKE_MS / 1000 + 1;
    while (crowd.closed < CROWD) uv_run(&crowd.loop, UV_RUN_NOWAIT);
    cr_assert_eq(crowd.timed_out, CROWD);
    for (size_t i = 0; i < CROWD; i++) close(fds[i]);
    tls_session_free(hello);
    crowd_close(&crowd);
}

Test(link_secure, one_that_goes_away_while_it_waits_waits_no_more) {
    struct crowd crowd, good = {0};
    struct link *links[CROWD];
    crowd_open(&crowd);
    for (size_t i = 0; i < CROWD; i++)
        links[i] = link_dial(&crowd.loop, (struct sockaddr *)&crowd.at, NULL, &world.dial, &crowd_callbacks, &good);
    while (handshakes_run_waiting(crowd.accept.handshakes) < CROWD / 2) uv_run(&crowd.loop, UV_RUN_ONCE);
    size_t waiting = handshakes_run_waiting(crowd.accept.handshakes);
    for (size_t i = CROWD - 10; i < CROWD; i++) link_close(links[i]);
    while (crowd.closed < 10 && handshakes_run_waiting(crowd.accept.handshakes) > 0) uv_run(&crowd.loop, UV_RUN_ONCE);
    cr_assert_geq(crowd.closed, 1);
    cr_assert_lt(handshakes_run_waiting(crowd.accept.handshakes), waiting);
    while (crowd.told < CROWD - 10) uv_run(&crowd.loop, UV_RUN_ONCE);
    cr_assert_eq(crowd.told, CROWD - 10);
    crowd_close(&crowd);
}
