/* A client agent's rpc and servers that are made up: each says and answers just what a story needs, over real loopback sockets. */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "registry/catalog.h"
#include "rpc/client.h"
#include "rpc/hello.h"
#include "rpc/peer.pb-c.h"
#include "rpc/peers.h"

#define FAKES 3

struct fake;
struct session {
    uv_tcp_t tcp;
    struct fake *fake;
    struct session *next;
    struct buffer in;
    bool greeted;
};
struct fake {
    uv_tcp_t listener;
    struct world *world;
    struct session *sessions;
    char address[32];
    uint64_t id, cluster_id;
    bool leads, mute, silent;          /* leads: it knows a leader; mute: it answers no pings; silent: nor hellos */
    unsigned agents, pings, touches, fetches, ends;
    uint64_t fetch;                    /* number of the last one */
};
struct world {
    uv_loop_t loop;
    uv_timer_t timer;
    struct fake fakes[FAKES];
    struct rpc *rpc;
    uint64_t until_ms;
    bool (*done)(struct world *world);
    struct rpc_fetch fetch;
    bool fetched;
    int error;
    struct buffer records;
};

/* -- a server ------------------------------------------------------------------------------------------------------- */
struct sent { uv_write_t write; char bytes[]; };
static void on_written(uv_write_t *write, int status) { (void)status, free(CONTAINER_OF(write, struct sent, write)); }

static void send_bytes(struct session *session, const char *bytes, size_t size) {
    struct sent *sent = malloc(sizeof *sent + size);
    memcpy(sent->bytes, bytes, size);
    uv_buf_t room = uv_buf_init(sent->bytes, (unsigned)size);
    if (uv_write(&sent->write, (uv_stream_t *)&session->tcp, &room, 1, on_written) != 0) free(sent);
}

static struct buffer frame_of(uint8_t type, const ProtobufCMessage *message) {
    struct buffer frame = {0};
    size_t size = message ? protobuf_c_message_get_packed_size(message) : 0;
    buffer_reserve(&frame, size + 5);
    put_le32(frame.data, (uint32_t)size);
    frame.data[4] = (char)type;
    if (message) protobuf_c_message_pack(message, (uint8_t *)frame.data + 5);
    frame.size = size + 5;
    return frame;
}

static void say(struct session *session, uint8_t type, const ProtobufCMessage *message) {
    struct buffer frame = frame_of(type, message);
    send_bytes(session, frame.data, frame.size);
    buffer_free(&frame);
}

static void say_hello(struct session *session) {
    Pb__PeerHello hello = PB__PEER_HELLO__INIT;
    hello.protocol = HELLO_PROTOCOL, hello.version_least = HELLO_VERSION_LEAST, hello.version_most = HELLO_VERSION_MOST;
    hello.cluster = "dc1", hello.cluster_id = session->fake->cluster_id, hello.id = session->fake->id;
    hello.address = session->fake->address, hello.node = "s", hello.has_log = true;
    hello.cluster_version_least = 1, hello.cluster_version_most = hello.cluster_version = 1;
    say(session, PEER_HELLO, &hello.base);
}

static void say_servers(struct session *session) {
    struct world *world = session->fake->world;
    Pb__PeerServers servers = PB__PEER_SERVERS__INIT;
    Pb__PeerServer server[FAKES], *pointers[FAKES];
    for (unsigned i = 0; i < FAKES; i++) {
        pointers[i] = &server[i];
        server[i] = (Pb__PeerServer)PB__PEER_SERVER__INIT;
        server[i].id = world->fakes[i].id, server[i].address = world->fakes[i].address;
    }
    servers.servers = pointers, servers.n_servers = FAKES, servers.leader = session->fake->leads ? world->fakes[1].id : 0;
    say(session, PEER_SERVERS, &servers.base);
}

static void leads(struct fake *fake, bool yes) {
    fake->leads = yes;
    for (struct session *session = fake->sessions; session; session = session->next)
        if (session->greeted) say_servers(session);
}

static void piece(struct fake *fake, const char *text, bool more) {
    Pb__PeerFetched answer = PB__PEER_FETCHED__INIT;
    answer.number = fake->fetch, answer.index = 7, answer.found = true, answer.more = more;
    answer.records = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
    for (struct session *session = fake->sessions; session; session = session->next) say(session, PEER_FETCHED, &answer.base);
}

static void take_hello(struct session *session, const uint8_t *payload, size_t size) {
    struct fake *fake = session->fake;
    Pb__PeerHello *hello = pb__peer_hello__unpack(NULL, size, payload);
    cr_assert(hello && hello->agent);
    if (!fake->silent) say_hello(session);
    if (hello->cluster_id && hello->cluster_id != fake->cluster_id) {
        struct buffer frame = frame_of(PEER_REFUSED, NULL);
        send_bytes(session, frame.data, frame.size);
        buffer_free(&frame);
    } else if (!fake->silent) {
        say_servers(session);
        session->greeted = true, fake->agents++;
    }
    pb__peer_hello__free_unpacked(hello, NULL);
}

static uint64_t last_index;

static void take_frame(struct session *session, uint8_t type, const uint8_t *payload, size_t size) {
    struct fake *fake = session->fake;
    if (type == PEER_HELLO) {
        take_hello(session, payload, size);
    } else if (type == PEER_PING) {
        if (size) fake->touches++;
        else fake->pings++;
        if (!fake->mute && !size) say(session, PEER_PING, NULL);
    } else if (type == PEER_FETCH) {
        Pb__PeerFetch *ask = pb__peer_fetch__unpack(NULL, size, payload);
        cr_assert_not_null(ask);
        fake->fetches++, fake->fetch = ask->number, last_index = ask->index;
        pb__peer_fetch__free_unpacked(ask, NULL);
    } else if (type == PEER_FETCH_END) {
        fake->ends++;
    }
}

static void session_closed(uv_handle_t *handle) {
    struct session *session = handle->data;
    buffer_free(&session->in);
    free(session);
}
static void session_close(struct session *session) {
    struct session **at = &session->fake->sessions;
    while (*at != session) at = &(*at)->next;
    *at = session->next;
    if (session->greeted) session->fake->agents--;
    uv_close((uv_handle_t *)&session->tcp, session_closed);
}

static void allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *room) {
    struct session *session = handle->data;
    buffer_reserve(&session->in, suggested);
    *room = uv_buf_init(session->in.data + session->in.size, (unsigned)(session->in.capacity - session->in.size));
}
static void arrived(uv_stream_t *stream, ssize_t size, const uv_buf_t *room) {
    struct session *session = stream->data;
    (void)room;
    if (size < 0) { session_close(session); return; }
    session->in.size += (size_t)size;
    size_t at = 0;
    while (session->in.size - at >= 5 && session->in.size - at >= 5 + (size_t)get_le32(session->in.data + at)) {
        uint32_t length = get_le32(session->in.data + at);
        take_frame(session, (uint8_t)session->in.data[at + 4], (uint8_t *)session->in.data + at + 5, length);
        at += 5 + length;
    }
    memmove(session->in.data, session->in.data + at, session->in.size - at);
    session->in.size -= at;
}
static void connection(uv_stream_t *server, int status) {
    struct fake *fake = server->data;
    cr_assert_eq(status, 0);
    struct session *session = calloc(1, sizeof *session);
    session->fake = fake, session->tcp.data = session, session->next = fake->sessions;
    fake->sessions = session;
    uv_tcp_init(&fake->world->loop, &session->tcp);
    cr_assert_eq(uv_accept(server, (uv_stream_t *)&session->tcp), 0);
    uv_read_start((uv_stream_t *)&session->tcp, allocate, arrived);
}

/* -- the world -------------------------------------------------------------------------------------------------------- */
static void fake_open(struct world *world, unsigned number) {
    struct fake *fake = &world->fakes[number];
    *fake = (struct fake){.world = world, .id = number + 1, .cluster_id = 77, .leads = true};
    struct sockaddr_in at;
    int size = sizeof at;
    uv_tcp_init(&world->loop, &fake->listener);
    fake->listener.data = fake;
    uv_ip4_addr("127.0.0.1", 0, &at);
    cr_assert_eq(uv_tcp_bind(&fake->listener, (struct sockaddr *)&at, 0), 0);
    cr_assert_eq(uv_listen((uv_stream_t *)&fake->listener, 16, connection), 0);
    uv_tcp_getsockname(&fake->listener, (struct sockaddr *)&at, &size);
    snprintf(fake->address, sizeof fake->address, "127.0.0.1:%u", ntohs(at.sin_port));
}

static void tick(uv_timer_t *timer) {
    struct world *world = timer->data;
    if (world->done(world)) uv_stop(&world->loop);
    cr_assert(clock_mono_ms() < world->until_ms, "not in time");
}
static void run_until(struct world *world, uint64_t ms, bool (*done)(struct world *world)) {
    world->done = done, world->until_ms = clock_mono_ms() + ms;
    uv_timer_start(&world->timer, tick, 0, 5);
    uv_run(&world->loop, UV_RUN_DEFAULT);
}
static bool never(struct world *world) { return clock_mono_ms() + 1000 > world->until_ms; }
static void run_for(struct world *world, uint64_t ms) { run_until(world, ms + 1000, never); }

/* The agent joins by the first, and learns of the others there. */
static void open_world(struct world *world) {
    memset(world, 0, sizeof *world);
    uv_loop_init(&world->loop);
    uv_timer_init(&world->loop, &world->timer);
    world->timer.data = world;
    for (unsigned i = 0; i < FAKES; i++) fake_open(world, i);
    const char *join[] = {world->fakes[0].address, NULL};
    struct rpc_client_config config = {.cluster = "dc1", .node_name = "agent", .address = "127.0.0.1", .no_coordinates = true,
                                       .node_id = "77777777-0000-4000-8000-000000000000", .port = 8300, .join = join};
    world->rpc = rpc_client_start(&world->loop, &config);
}
static void agent_closed(void *data) { ((struct world *)data)->rpc = NULL; }
static bool stopped(struct world *world) {
    for (unsigned i = 0; i < FAKES; i++)
        if (world->fakes[i].sessions) return false;
    return !world->rpc;
}
static void close_world(struct world *world) {
    rpc_client_stop(world->rpc, agent_closed, world);
    run_until(world, 5000, stopped);
    for (unsigned i = 0; i < FAKES; i++) uv_close((uv_handle_t *)&world->fakes[i].listener, NULL);
    uv_close((uv_handle_t *)&world->timer, NULL);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&world->loop), 0);
    buffer_free(&world->records);
}

static void on_fetched(struct rpc_fetch *fetch, int error, const struct rpc_fetched *fetched) {
    struct world *world = CONTAINER_OF(fetch, struct world, fetch);
    cr_assert(!world->fetched);
    world->fetched = true, world->error = error;
    if (fetched) buffer_append(&world->records, fetched->records.data, fetched->records.size);
}
static void fetch(struct world *world, uint64_t index) {
    Pb__NodeRequest request = PB__NODE_REQUEST__INIT;
    request.node = "n";
    world->fetch = (struct rpc_fetch){.type = &query_node_services, .freshness = RPC_STALE, .index = index, .wait_ms = 60000, .done = on_fetched};
    rpc_fetch(world->rpc, &world->fetch, &request.base);
}

static bool at_first(struct world *world) { return world->fakes[0].agents == 1; }
static bool first_asked(struct world *world) { return world->fakes[0].fetches == 1; }
static bool one_asked(struct world *world) { return world->fakes[0].fetches + world->fakes[1].fetches + world->fakes[2].fetches == 1; }
static bool fetched(struct world *world) { return world->fetched; }
static bool elsewhere(struct world *world) { return world->fakes[0].agents == 0 && world->fakes[1].agents + world->fakes[2].agents == 1; }

/* -- stories ------------------------------------------------------------------------------------------------------------- */
static bool told_end(struct world *world) { return world->fakes[0].ends == 1; }
static bool asked_again(struct world *world) { return world->fakes[1].fetches + world->fakes[2].fetches == 1; }

/* What comes of it still from the server before is not the rest of it. */
Test(client_link, an_answer_is_of_one_server) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    fetch(&world, 0);
    run_until(&world, 5000, first_asked);
    piece(&world.fakes[0], "old-1 ", true);
    leads(&world.fakes[0], false);
    run_until(&world, 5000, told_end);
    piece(&world.fakes[0], "old-2", false);
    run_until(&world, 5000, asked_again);
    run_for(&world, 50);
    cr_assert(!world.fetched);
    struct fake *now = world.fakes[1].fetches ? &world.fakes[1] : &world.fakes[2];
    piece(now, "new-1 ", true);
    piece(now, "new-2", false);
    run_until(&world, 5000, fetched);
    cr_assert_eq(world.error, CO_OK);
    cr_assert(slice_equal(buffer_slice(&world.records), slice_text("new-1 new-2")), "%.*s", (int)world.records.size, world.records.data);
    close_world(&world);
}

Test(client_link, a_server_without_a_leader_is_left_for_one_that_knows_one) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    world.fakes[2].leads = false;      /* not for this one, whatever its rank */
    leads(&world.fakes[0], false);
    run_until(&world, 5000, elsewhere);
    run_for(&world, 500);
    cr_assert_eq(world.fakes[1].agents, 1);
    cr_assert_eq(world.fakes[2].agents, 0);
    close_world(&world);
}

Test(client_link, it_is_not_left_for_others_without_a_leader) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    world.fakes[1].leads = world.fakes[2].leads = false;
    leads(&world.fakes[0], false);
    run_for(&world, 1500);
    cr_assert_eq(world.fakes[0].agents, 1);
    fetch(&world, 0);
    run_until(&world, 5000, first_asked);
    piece(&world.fakes[0], "here", false);
    run_until(&world, 5000, fetched);
    cr_assert(slice_equal(buffer_slice(&world.records), slice_text("here")));
    close_world(&world);
}

/* An election is over sooner. */
Test(client_link, a_server_that_soon_knows_a_leader_again_is_kept) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    leads(&world.fakes[0], false);
    run_for(&world, 200);
    leads(&world.fakes[0], true);
    run_for(&world, 800);
    cr_assert_eq(world.fakes[0].agents, 1);
    cr_assert_eq(world.fakes[1].agents + world.fakes[2].agents, 0);
    close_world(&world);
}

/* Nothing is asked that would be answered soon. Its kernel acknowledges all the while: only pings show it, and these are rare. (A host that is gone:
 * tests/cluster/test_agent_servers.py.) */
Test(client_link, a_server_that_hangs_is_noticed_while_something_waits_for_a_change) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    fetch(&world, 5);
    run_until(&world, 5000, first_asked);
    run_for(&world, 1500);
    cr_assert(world.fakes[0].touches >= 2 && world.fakes[0].touches <= 4 && world.fakes[0].pings == 0 && world.fakes[0].agents == 1);
    run_for(&world, 5500);
    cr_assert(world.fakes[0].pings >= 1 && world.fakes[0].pings <= 3 && world.fakes[0].agents == 1);
    world.fakes[0].mute = true;
    run_until(&world, 5500, elsewhere);
    run_until(&world, 500, asked_again);
    close_world(&world);
}

/* -- slow links ---------------------------------------------------------------------------------------------------------- */
#define SLOW_BYTES (256u << 10)
static char bulk[SLOW_BYTES + 1];

Test(client_link, a_large_frame_that_takes_long_is_heard) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    fetch(&world, 0);
    run_until(&world, 5000, first_asked);
    world.fakes[0].mute = true;        /* answers to pings are behind the bulk */
    memset(bulk, 'x', SLOW_BYTES);
    Pb__PeerFetched answer = PB__PEER_FETCHED__INIT;
    answer.number = world.fakes[0].fetch, answer.index = 7, answer.found = true;
    answer.records = (ProtobufCBinaryData){SLOW_BYTES, (uint8_t *)bulk};
    struct buffer frame = frame_of(PEER_FETCHED, &answer.base);
    for (size_t at = 0, step = frame.size / 10 + 1; at < frame.size; at += step) {
        send_bytes(world.fakes[0].sessions, frame.data + at, frame.size - at < step ? frame.size - at : step);
        run_for(&world, 200);
        cr_assert_eq(world.fakes[0].agents, 1);
    }
    run_until(&world, 1000, fetched);
    cr_assert(world.error == CO_OK && world.records.size == SLOW_BYTES);
    buffer_free(&frame);
    close_world(&world);
}

/* The agent's own commands are taken slowly: its ping waits behind them. */
struct put { struct rpc_write write; };
static unsigned puts_done;
static void on_put(struct rpc_write *write, int error, const struct machine_result *result) {
    (void)write, (void)error, (void)result;
    puts_done++;
}
static bool never_read(struct world *world) { return world->fakes[0].sessions && never(world); }

Test(client_link, a_ping_behind_slow_writes_is_not_unanswered) {
    enum { PUTS = 40 };
    struct world world;
    static struct put puts[PUTS];
    open_world(&world);
    run_until(&world, 5000, at_first);
    struct session *session = world.fakes[0].sessions;
    int small = 4096, fd;
    cr_assert_eq(uv_fileno((uv_handle_t *)&session->tcp, &fd), 0);
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    uv_read_stop((uv_stream_t *)&session->tcp);
    memset(bulk, 'x', SLOW_BYTES);
    Pb__Service service = PB__SERVICE__INIT;
    Pb__Node node = PB__NODE__INIT;
    Pb__RegisterCommand command = PB__REGISTER_COMMAND__INIT;
    service.id = bulk, service.name = "s", node.name = "n", command.node = &node, command.service = &service;
    for (unsigned i = 0; i < PUTS; i++) {
        puts[i].write.done = on_put;
        rpc_submit(world.rpc, &puts[i].write, CATALOG_REGISTER, &command.base);
    }
    for (unsigned i = 0; i < 12; i++) {      /* a little is read every 200 ms */
        char room[65536];
        run_until(&world, 1200, never_read);
        ssize_t size = 0;
        for (unsigned k = 0; k < 4 && size >= 0; k++) size = recv(fd, room, sizeof room, MSG_DONTWAIT);
        cr_assert_eq(world.fakes[0].agents, 1);
    }
    cr_assert_eq(world.fakes[1].agents + world.fakes[2].agents, 0);
    uv_read_start((uv_stream_t *)&session->tcp, allocate, arrived);      /* it lost its place: the agent ends anyway */
    session_close(session);
    close_world(&world);
    cr_assert_eq(puts_done, PUTS);
}

/* -- another cluster ------------------------------------------------------------------------------------------------------ */
static void founded_anew(struct world *world, unsigned number) {
    struct fake *fake = &world->fakes[number];
    fake->cluster_id = 78;
    while (fake->sessions) session_close(fake->sessions);
}

Test(client_link, an_agent_goes_with_its_servers_when_all_of_them_were_founded_anew) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    founded_anew(&world, 2);
    founded_anew(&world, 1);
    founded_anew(&world, 0);
    fetch(&world, 1000000);            /* beyond what the new ones have */
    run_for(&world, 2000);
    for (unsigned i = 0; i < FAKES; i++) cr_assert_eq(world.fakes[i].agents, 0, "not at once");
    run_until(&world, 8000, one_asked);
    cr_assert_eq(last_index, 0);
    close_world(&world);
}

Test(client_link, it_does_not_while_one_of_them_says_nothing) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    founded_anew(&world, 1);
    founded_anew(&world, 2);
    world.fakes[0].silent = true;
    while (world.fakes[0].sessions) session_close(world.fakes[0].sessions);
    run_for(&world, 4500);
    for (unsigned i = 0; i < FAKES; i++) cr_assert_eq(world.fakes[i].agents, 0);
    world.fakes[0].silent = false;
    run_until(&world, 8000, at_first);
    close_world(&world);
}
