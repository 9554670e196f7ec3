/* Two servers that meet, over real loopback sockets: who stays connected with whom. */
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "rpc/cluster/peers.h"
#include "tests/lib/free_ports.h"
#include "tests/lib/steady_clock.h"

struct side {
    struct peers *peers;
    struct peers_self self;
    unsigned ups, downs;
    const char *unwanted; /* why the other is not; NULL: it is */
    bool stopped;
};
struct world {
    uv_loop_t loop;
    uv_timer_t timer;
    struct side a, b;
    struct link *thin; /* on which bytes come one by one */
    int ticks;
    bool (*done)(struct world *world);
};

static void on_frame(void *data, uint64_t from, uint8_t type, struct slice payload) {
    (void)data, (void)from, (void)type, (void)payload;
}
static void on_up(void *data, uint64_t id) { (void)id, ((struct side *)data)->ups++; }
static void on_down(void *data, uint64_t id) { (void)id, ((struct side *)data)->downs++; }
static struct peers_self on_self(void *data) { return ((struct side *)data)->self; }
static const char *on_judge(void *data, const Pb__PeerHello *hello) {
    return (void)hello, ((struct side *)data)->unwanted;
}
static void on_stopped(void *data) { ((struct side *)data)->stopped = true; }

static void start(struct world *world, struct side *side, uint64_t id, unsigned most, uint16_t port, uint16_t other) {
    char address[32], node[8], join[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    snprintf(join, sizeof join, "127.0.0.1:%u", other);
    snprintf(node, sizeof node, "s%u", (unsigned)id);
    const char *joins[] = {join, NULL};
    struct peers_config config = {.bind = "127.0.0.1",
                                  .port = port,
                                  .address = address,
                                  .cluster = "dc1",
                                  .node = node,
                                  .id = id,
                                  .expect = 2,
                                  .version_least = 1,
                                  .version_most = most,
                                  .join = joins};
    struct peers_callbacks callbacks = {
        .data = side, .frame = on_frame, .up = on_up, .down = on_down, .self = on_self, .unwanted = on_judge};
    struct fault fault = {0};
    cr_assert_eq(peers_start(&world->loop, &config, &callbacks, &side->peers, &fault), CO_OK, "%s", fault.text);
}

static void open_world(struct world *world, struct peers_self a, struct peers_self b, unsigned b_most) {
    *world = (struct world){.a.self = a, .b.self = b};
    uint16_t ports[2];
    free_ports(2, ports);
    steady_clock_begin();
    uv_loop_init(&world->loop);
    uv_timer_init(&world->loop, &world->timer);
    world->timer.data = world;
    start(world, &world->a, 1, 3, ports[0], ports[1]);
    start(world, &world->b, 2, b_most, ports[1], ports[0]);
}

static void tick(uv_timer_t *timer) {
    struct world *world = timer->data;
    world->ticks++;
    if (world->done(world)) uv_stop(&world->loop);
    else cr_assert(world->ticks < 1000, "not within ten seconds");
}

static void run_until(struct world *world, bool (*done)(struct world *world)) {
    world->done = done, world->ticks = 0;
    uv_timer_start(&world->timer, tick, 10, 10);
    uv_run(&world->loop, UV_RUN_DEFAULT);
}

static void close_world(struct world *world) {
    uv_close((uv_handle_t *)&world->timer, NULL);
    peers_stop(world->a.peers, on_stopped, &world->a);
    peers_stop(world->b.peers, on_stopped, &world->b);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    cr_assert(world->a.stopped && world->b.stopped);
    cr_assert_eq(uv_loop_close(&world->loop), 0);
}

static bool connected(struct world *world) {
    struct peer_info info;
    return peers_list(world->a.peers, &info, 1) == 1 && peers_list(world->b.peers, &info, 1) == 1;
}
static bool apart(struct world *world) {
    struct peer_info info;
    return peers_list(world->a.peers, &info, 1) == 0 && peers_list(world->b.peers, &info, 1) == 0;
}
/* Both sides dial several times meanwhile. */
static bool a_second(struct world *world) { return world->ticks == 100; }

static const struct peers_self fresh = {0};

/* A server that is busy for a moment, or has just started, while its agents come back: the kernel keeps their connections
 * for it, so that nobody waits for a second and dials anew. */
Test(peers, hundreds_may_dial_at_once) {
    enum { CALLERS = 400 };
    struct world world;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint16_t port[2];
    int fds[CALLERS], stand = 0;
    struct pollfd polls[CALLERS];
    world = (struct world){0};
    free_ports(2, port);
    uv_loop_init(&world.loop);
    uv_timer_init(&world.loop, &world.timer);
    start(&world, &world.a, 1, 3, port[0], port[1]);
    start(&world, &world.b, 2, 3, port[1], port[0]);
    to.sin_port = htons(port[0]);
    for (int i = 0; i < CALLERS; i++) { /* the loop does not run */
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int rv = connect(fds[i], (struct sockaddr *)&to, sizeof to);
        CHECK(fds[i] >= 0 && (rv == 0 || errno == EINPROGRESS));
        polls[i] = (struct pollfd){.fd = fds[i], .events = POLLOUT};
    }
    CHECK(poll(polls, CALLERS, 0) >= 0);
    for (int i = 0; i < CALLERS; i++) stand += (polls[i].revents & POLLOUT) != 0;
    cr_expect_eq(stand, CALLERS);
    for (int i = 0; i < CALLERS; i++) close(fds[i]);
    close_world(&world);
}

Test(peers, one_learns_where_it_belongs_and_says_so) {
    struct world world;
    open_world(&world, (struct peers_self){true, 77, 2, 0}, fresh, 3);
    run_until(&world, connected);
    struct peer_info info;
    cr_assert_eq(peers_list(world.b.peers, &info, 1), 1);
    cr_assert(info.cluster_id == 77 && info.has_log && info.terms.protocol == HELLO_VERSION_MOST &&
              info.terms.version_least == 1 && info.terms.version_most == 3);
    peers_list(world.a.peers, &info, 1);
    cr_assert(info.cluster_id == 0 && !info.has_log);
    world.b.self = (struct peers_self){true, 77, 2, 0};
    peers_changed(world.b.peers);
    run_until(&world, a_second);
    peers_list(world.a.peers, &info, 1);
    cr_assert(info.cluster_id == 77 && info.has_log);
    cr_assert(connected(&world));
    close_world(&world);
}

Test(peers, another_cluster_of_the_same_name_is_never_let_in) {
    struct world world;
    open_world(&world, (struct peers_self){true, 77, 2, 0}, (struct peers_self){true, 78, 2, 0}, 3);
    run_until(&world, a_second);
    cr_assert_eq(world.a.ups, 0);
    cr_assert_eq(world.b.ups, 0);
    close_world(&world);
}

Test(peers, who_is_not_wanted_is_not_let_in) {
    struct world world;
    open_world(&world, (struct peers_self){true, 77, 2, 0}, (struct peers_self){true, 77, 2, 0}, 3);
    world.b.unwanted = "it was removed";
    run_until(&world, a_second);
    cr_assert(apart(&world) && world.a.ups == world.a.downs && world.b.ups == 0);
    world.b.unwanted = NULL;
    run_until(&world, connected);
    close_world(&world);
}

Test(peers, who_joins_another_cluster_meanwhile_is_let_go) {
    struct world world;
    open_world(&world, (struct peers_self){true, 77, 2, 0}, fresh, 3);
    run_until(&world, connected);
    world.b.self = (struct peers_self){true, 78, 2, 0};
    peers_changed(world.b.peers);
    run_until(&world, apart);
    unsigned ups = world.a.ups;
    run_until(&world, a_second);
    cr_assert(apart(&world));
    cr_assert_eq(world.a.ups, ups, "and stays away");
    close_world(&world);
}

Test(peers, a_program_that_does_not_support_the_version_is_let_go_when_it_rises) {
    struct world world;
    open_world(&world, (struct peers_self){true, 77, 2, 0}, (struct peers_self){true, 77, 2, 0}, 2);
    run_until(&world, connected);
    world.a.self.version = 3;
    peers_changed(world.a.peers);
    run_until(&world, apart);
    run_until(&world, a_second);
    cr_assert(apart(&world));
    close_world(&world);
}

/* -- a large frame on a thin line --------------------------------------------------------------------------------- */
#define LARGE (1u << 20)
#define THIN  9 /* the id of the server on it */

static void thin_connected(void *data, struct link *link) {
    (void)data;
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    hello.protocol = (char *)HELLO_PROTOCOL, hello.version_least = hello.version_most = HELLO_VERSION_MOST;
    hello.cluster = (char *)"dc1", hello.address = (char *)"127.0.0.1:1", hello.node = (char *)"thin", hello.id = THIN;
    hello.cluster_version_least = hello.cluster_version_most = 3;
    link_tell(link, PEER_HELLO, &hello.base);
    link_flush(link);
}
static void thin_frame(void *data, struct link *link, uint8_t type, struct slice payload) {
    (void)data, (void)link, (void)type, (void)payload;
}
static bool thin_is_there(struct world *world) { return peers_connected(world->a.peers, THIN); }

/* Dials `a`, until it is accepted there. */
static struct link *thin_dials(struct world *world) {
    static const struct link_callbacks callbacks = {.frame = thin_frame, .connected = thin_connected};
    struct peer_info info;
    run_until(world, connected);
    peers_list(world->b.peers, &info, 1);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strchr(info.address, ':') + 1));
    struct link *link = link_dial(&world->loop, (struct sockaddr *)&to, NULL, NULL, &callbacks, NULL);
    run_until(world, thin_is_there);
    return link;
}

/* The head of a large frame, and then for ever what may be its payload. */
static void thin_begins(struct link *link) {
    struct buffer *out = link_frame_begin(link, PEER_AUDIT);
    put_le32(out->data + out->size - 5, LARGE);
    link_flush(link);
}
static bool five_seconds(struct world *world) {
    struct buffer *out = link_frame_begin(world->thin, PEER_AUDIT);
    memset(out->data + out->size - 5, 0, 5);
    link_flush(world->thin);
    return world->ticks == 500;
}

Test(peers, bytes_of_a_frame_that_is_not_whole_yet_are_a_sign_of_life) {
    struct world world;
    open_world(&world, fresh, fresh, 3);
    world.thin = thin_dials(&world);
    thin_begins(world.thin);
    run_until(&world, five_seconds);
    cr_expect(thin_is_there(&world), "it is longer than a silent one is waited for");
    link_close(world.thin);
    close_world(&world);
}

/* -- what came of each address ------------------------------------------------------------------------------------ */
struct talker { /* whatever it hears, it says something else */
    uv_tcp_t listener, connections[64];
    uv_write_t writes[64];
    unsigned count;
};

static void said(uv_write_t *write, int status) { (void)write, (void)status; }

static void on_talk(uv_stream_t *listener, int status) {
    struct talker *talker = listener->data;
    static char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    uv_buf_t bytes = uv_buf_init(text, sizeof text - 1);
    cr_assert(status == 0 && talker->count < 64);
    uv_tcp_t *connection = &talker->connections[talker->count];
    uv_tcp_init(listener->loop, connection);
    cr_assert_eq(uv_accept(listener, (uv_stream_t *)connection), 0);
    uv_write(&talker->writes[talker->count++], (uv_stream_t *)connection, &bytes, 1, said);
}

static void listens(uv_loop_t *loop, struct talker *talker, uint16_t port, uv_connection_cb talk) {
    struct sockaddr_in at;
    uv_ip4_addr("127.0.0.1", port, &at);
    uv_tcp_init(loop, &talker->listener);
    talker->listener.data = talker;
    cr_assert(uv_tcp_bind(&talker->listener, (struct sockaddr *)&at, 0) == 0 &&
              uv_listen((uv_stream_t *)&talker->listener, 8, talk) == 0);
}
static void on_silence(uv_stream_t *listener, int status) { (void)listener, (void)status; }

static bool all_tried(struct world *world) {
    struct peers_address addresses[8];
    size_t count = peers_addresses(world->a.peers, addresses, 8), tried = 0;
    for (size_t i = 0; i < count; i++) tried += addresses[i].reach.what != REACH_UNTRIED;
    return count >= 6 && tried == count;
}

Test(peers, each_address_says_what_came_of_it) {
    struct world world;
    struct talker talker = {.count = 0}, silent = {.count = 0};
    uint16_t ports[3];
    char closed[32], stranger[32], mute[32], own[32];
    open_world(&world, fresh, fresh, 3);
    free_ports(3, ports);
    listens(&world.loop, &talker, ports[0], on_talk);
    listens(&world.loop, &silent, ports[1], on_silence);
    struct peers_address found[8];
    cr_assert_eq(peers_addresses(world.b.peers, found, 8), 1);
    snprintf(own, sizeof own, "127.1%s", strrchr(found[0].name, ':'));
    snprintf(stranger, sizeof stranger, "127.0.0.1:%u", ports[0]);
    snprintf(mute, sizeof mute, "127.0.0.1:%u", ports[1]);
    snprintf(closed, sizeof closed, "127.0.0.1:%u", ports[2]);
    world.b.unwanted = "it was removed";
    const char *const names[] = {stranger, mute, closed, own, "no.such.host.invalid:8300"};
    for (size_t i = 0; i < 5; i++) peers_know(world.a.peers, names[i]);
    run_until(&world, all_tried);
    static const enum reach_what whats[] = {REACH_REFUSES, REACH_STRANGER, REACH_SILENT,
                                            REACH_FAILED,  REACH_SELF,     REACH_UNRESOLVED};
    size_t count = peers_addresses(world.a.peers, found, 8);
    cr_assert_eq(count, 6, "b's own, and five more: %zu", count);
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(found[i].reach.what, whats[i], "%zu %s: %d, cause %d", i, found[i].name, (int)found[i].reach.what,
                     found[i].reach.cause);
    cr_expect_str_eq(found[0].reach.why, "it was removed");
    cr_expect_eq(found[3].reach.cause, UV_ECONNREFUSED);
    uv_close((uv_handle_t *)&talker.listener, NULL);
    uv_close((uv_handle_t *)&silent.listener, NULL);
    for (unsigned i = 0; i < talker.count; i++) uv_close((uv_handle_t *)&talker.connections[i], NULL);
    close_world(&world);
}
