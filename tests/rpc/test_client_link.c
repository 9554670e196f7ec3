/* A client agent's rpc and servers that are made up (fake_server.h). When it leaves them: test_connections.c, ./dev sim. */
#include <criterion/criterion.h>
#include <sys/socket.h>

#include "agent/modules.h"
#include "base/clock.h"
#include "fake_server.h"
#include "registry/catalog.h"
#include "rpc/api/ask.h"
#include "rpc/api/operator.h"
#include "rpc/client/client_internal.h"
#include "rpc/wire/hello.h"
#include "tests/lib/steady_clock.h"

#define FAKES    3
#define GRACE_MS 300 /* for some turns of the loop */

struct world {
    uv_loop_t loop;
    uv_timer_t timer;
    struct fake_server fakes[FAKES];
    struct rpc *rpc;
    uint64_t until_ms;
    bool (*done)(struct world *world);
    struct rpc_fetch fetch;
    bool fetched;
    int error;
    struct buffer records;
};

/* -- the world ---------------------------------------------------------------------------------------------------- */
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

/* The agent joins by the first, and learns of the others there. */
static void open_world(struct world *world) {
    memset(world, 0, sizeof *world);
    steady_clock_begin();
    uv_loop_init(&world->loop);
    uv_timer_init(&world->loop, &world->timer);
    world->timer.data = world;
    for (unsigned i = 0; i < FAKES; i++) {
        fake_open(&world->fakes[i], &world->loop, i + 1);
        world->fakes[i].cluster = world->fakes, world->fakes[i].cluster_count = FAKES;
    }
    const char *join[] = {world->fakes[0].address, NULL};
    struct rpc_client_config config = {.cluster = "dc1",
                                       .node_name = "agent",
                                       .address = "127.0.0.1",
                                       .no_coordinates = true,
                                       .node_id = "77777777-0000-4000-8000-000000000000",
                                       .modules = agent_modules,
                                       .port = 8300,
                                       .join = join};
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
    for (unsigned i = 0; i < FAKES; i++) fake_close(&world->fakes[i]);
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
    world->fetch = (struct rpc_fetch){
        .type = &query_node_services, .freshness = RPC_STALE, .index = index, .wait_ms = 60000, .done = on_fetched};
    rpc_fetch(world->rpc, &world->fetch, &request.base);
}

static bool at_first(struct world *world) { return world->fakes[0].agents == 1; }
static bool first_asked(struct world *world) { return world->fakes[0].fetches == 1; }
static bool one_asked(struct world *world) {
    return world->fakes[0].fetches + world->fakes[1].fetches + world->fakes[2].fetches == 1;
}
static bool fetched(struct world *world) { return world->fetched; }
static bool elsewhere(struct world *world) {
    return world->fakes[0].agents == 0 && world->fakes[1].agents + world->fakes[2].agents == 1;
}

/* -- stories ------------------------------------------------------------------------------------------------------ */
static bool told_end(struct world *world) { return world->fakes[0].fetch_ends == 1; }
static bool asked_again(struct world *world) { return world->fakes[1].fetches + world->fakes[2].fetches == 1; }

static bool says(struct world *world, const char *wanted) {
    struct buffer line = {0};
    rpc_client_hurry(world->rpc);
    connections_say(&world->rpc->client->connections, &line);
    buffer_append_byte(&line, 0);
    bool yes = strstr(line.data, wanted) && strncmp(line.data, "127.0.0.1:", 10) == 0;
    buffer_free(&line);
    return yes;
}
static bool says_refused(struct world *world) { return says(world, " refuses this process: it is of yesterday"); }
static bool says_unwanted(struct world *world) {
    return says(world, " is refused here: it belongs to another cluster (datacenter dc9, not dc1)");
}
static bool says_silent(struct world *world) {
    return says(world, " takes connections and says nothing (8300 is the servers' port)");
}
static bool says_ended(struct world *world) {
    return says(world, " closes the connection without a word (8300 is the servers' port)");
}
static bool says_met(struct world *world) { return says(world, " is reached"); }

/* rpc/wire/reach.h; the rest of its words: tests/rpc/test_waiting.c */
Test(client_link, an_agent_knows_why_a_server_is_not_reached) {
    struct world world;
    open_world(&world);
    world.fakes[0].refuses = "it is of yesterday";
    run_until(&world, 5000, says_refused);
    world.fakes[0].refuses = NULL, world.fakes[0].datacenter = "dc9";
    run_until(&world, 10000, says_unwanted);
    world.fakes[0].datacenter = "dc1", world.fakes[0].silent = true;
    run_until(&world, 10000, says_silent);
    world.fakes[0].silent = false, world.fakes[0].resets = true;
    run_until(&world, 10000, says_ended);
    world.fakes[0].resets = false;
    run_until(&world, 10000, says_met);
    close_world(&world);
}

/* Pieces that still come from the server before are not the rest of the answer. */
Test(client_link, an_answer_is_of_one_server) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    fetch(&world, 0);
    run_until(&world, 5000, first_asked);
    fake_answer(&world.fakes[0], "old-1 ", true);
    fake_leads(&world.fakes[0], false);
    run_until(&world, 5000, told_end);
    fake_answer(&world.fakes[0], "old-2", false);
    run_until(&world, 5000, asked_again);
    run_for(&world, 50);
    cr_assert(!world.fetched);
    struct fake_server *now = world.fakes[1].fetches ? &world.fakes[1] : &world.fakes[2];
    fake_answer(now, "new-1 ", true);
    fake_answer(now, "new-2", false);
    run_until(&world, 5000, fetched);
    cr_assert_eq(world.error, CO_OK);
    cr_assert(slice_equal(buffer_slice(&world.records), slice_text("new-1 new-2")), "%.*s", (int)world.records.size,
              world.records.data);
    close_world(&world);
}

Test(client_link, a_server_without_a_leader_is_left_for_one_that_knows_one) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    world.fakes[2].leads = false; /* not for this one, whatever its rank */
    fake_leads(&world.fakes[0], false);
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
    fake_leads(&world.fakes[0], false);
    run_for(&world, 1500);
    cr_assert_eq(world.fakes[0].agents, 1);
    fetch(&world, 0);
    run_until(&world, 5000, first_asked);
    fake_answer(&world.fakes[0], "here", false);
    run_until(&world, 5000, fetched);
    cr_assert(slice_equal(buffer_slice(&world.records), slice_text("here")));
    close_world(&world);
}

/* Not after the time that an election may take. */
Test(client_link, a_server_that_is_cut_off_is_left_at_once) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    fake_cut_off(&world.fakes[0]);
    run_until(&world, 5000, elsewhere);
    close_world(&world);
}

/* The first that is tried has no leader yet: it is waited for, not left for seconds. */
Test(client_link, who_leaves_one_that_is_cut_off_waits_for_the_election_of_the_others) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    world.fakes[1].leads = world.fakes[2].leads = false;
    fake_cut_off(&world.fakes[0]);
    run_for(&world, 500);
    cr_assert_eq(world.fakes[1].agents + world.fakes[2].agents, 1);
    fake_leads(&world.fakes[1], true), fake_leads(&world.fakes[2], true);
    fetch(&world, 0);
    run_until(&world, 5000, asked_again);
    close_world(&world);
}

/* An election is over sooner. */
Test(client_link, a_server_that_soon_knows_a_leader_again_is_kept) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    fake_leads(&world.fakes[0], false);
    run_for(&world, 200);
    fake_leads(&world.fakes[0], true);
    run_for(&world, 800);
    cr_assert_eq(world.fakes[0].agents, 1);
    cr_assert_eq(world.fakes[1].agents + world.fakes[2].agents, 0);
    close_world(&world);
}

/* Nothing is asked that would be answered soon; its kernel acknowledges all the while. (A host that is gone:
 * tests/cluster/test_agent_servers.py.) */
Test(client_link, a_server_that_hangs_is_left_while_something_waits_for_a_change) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    fetch(&world, 5);
    run_until(&world, 5000, first_asked);
    run_for(&world, 1000);
    cr_assert(world.fakes[0].pings > 0 && world.fakes[0].agents == 1);
    world.fakes[0].mute = true;
    run_until(&world, 5000, elsewhere);
    run_until(&world, 5000, asked_again);
    close_world(&world);
}

Test(client_link, a_question_notices_a_server_that_hangs) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    world.fakes[0].mute = true;
    fetch(&world, 0);
    run_until(&world, 5000, asked_again);
    close_world(&world);
}

/* -- slow links --------------------------------------------------------------------------------------------------- */
#define SLOW_BYTES (256u << 10)
static char bulk[SLOW_BYTES + 1];

Test(client_link, a_large_frame_that_takes_long_is_heard) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    fetch(&world, 0);
    run_until(&world, 5000, first_asked);
    world.fakes[0].mute = true; /* answers to pings are behind the bulk */
    memset(bulk, 'x', SLOW_BYTES);
    Pb__PeerFetched answer = PB__PEER_FETCHED__INIT;
    answer.number = world.fakes[0].fetch, answer.index = 7, answer.found = true;
    answer.records = (ProtobufCBinaryData){SLOW_BYTES, (uint8_t *)bulk};
    struct buffer frame = fake_frame(PEER_FETCHED, &answer.base);
    for (size_t at = 0, step = frame.size / 10 + 1; at < frame.size; at += step) {
        fake_send(world.fakes[0].sessions, frame.data + at, frame.size - at < step ? frame.size - at : step);
        run_for(&world, 200);
        cr_assert_eq(world.fakes[0].agents, 1);
    }
    run_until(&world, 1000, fetched);
    cr_assert(world.error == CO_OK && world.records.size == SLOW_BYTES);
    buffer_free(&frame);
    close_world(&world);
}

/* The agent's own commands are taken slowly: its ping waits behind them. */
struct put {
    struct rpc_write write;
};
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
    struct fake_session *session = world.fakes[0].sessions;
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
    for (unsigned i = 0; i < 60; i++) {
        /* a little is read again and again: sooner than the sender's kernel asks whether there is room, later and
         * later */
        char room[65536];
        run_until(&world, 1040, never_read);
        ssize_t size = 0;
        for (unsigned k = 0; k < 4 && size >= 0; k++) size = recv(fd, room, sizeof room, MSG_DONTWAIT);
        cr_assert_eq(world.fakes[0].agents, 1);
    }
    cr_assert_eq(world.fakes[1].agents + world.fakes[2].agents, 0);
    fake_read(session); /* it lost its place: the agent ends anyway */
    fake_end(session);
    close_world(&world);
    cr_assert_eq(puts_done, PUTS);
}

/* -- another cluster ---------------------------------------------------------------------------------------------- */
static void founded_anew(struct world *world, unsigned number) {
    struct fake_server *fake = &world->fakes[number];
    fake->cluster_id = 78;
    while (fake->sessions) fake_end(fake->sessions);
}

Test(client_link, an_agent_goes_with_its_servers_when_all_of_them_were_founded_anew) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    founded_anew(&world, 2);
    founded_anew(&world, 1);
    founded_anew(&world, 0);
    fetch(&world, 1000000); /* beyond what the new ones have */
    run_for(&world, 2000);
    for (unsigned i = 0; i < FAKES; i++) cr_assert_eq(world.fakes[i].agents, 0, "not at once");
    run_until(&world, 8000, one_asked);
    for (unsigned i = 0; i < FAKES; i++) cr_assert_eq(world.fakes[i].fetch_index, 0);
    close_world(&world);
}

Test(client_link, it_does_not_while_one_of_them_says_nothing) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    founded_anew(&world, 1);
    founded_anew(&world, 2);
    world.fakes[0].silent = true;
    while (world.fakes[0].sessions) fake_end(world.fakes[0].sessions);
    run_for(&world, 4500);
    for (unsigned i = 0; i < FAKES; i++) cr_assert_eq(world.fakes[i].agents, 0);
    world.fakes[0].silent = false;
    run_until(&world, 8000, at_first);
    close_world(&world);
}

/* -- what operators want ------------------------------------------------------------------------------------------ */
static int outcome;
static void on_changed(struct rpc_change *change, int error) { (void)change, outcome = error; }
static void on_saved(struct rpc_save *save, int error) { (void)save, outcome = error; }
static bool change_asked(struct world *world) { return world->fakes[0].changes == 1; }
static bool backup_asked(struct world *world) { return world->fakes[0].backups == 1; }
static bool another_current(struct world *world) { return world->fakes[1].agents + world->fakes[2].agents == 1; }
static bool is_over(struct world *world) { return (void)world, outcome >= 0; }

Test(client_link, a_server_that_is_left_answers_what_it_was_asked) {
    struct world world;
    struct rpc_change change = {.type = RPC_TRANSFER_LEADER, .done = on_changed};
    outcome = -1;
    open_world(&world);
    run_until(&world, 5000, at_first);
    rpc_change(world.rpc, &change);
    run_until(&world, 5000, change_asked);
    fake_leads(&world.fakes[0], false);
    run_until(&world, 5000, another_current);
    run_for(&world, 200);
    cr_assert(outcome == -1 && world.fakes[0].agents == 1, "it may be making the change just now");
    Pb__PeerChangeAnswer answer = PB__PEER_CHANGE_ANSWER__INIT;
    answer.number = world.fakes[0].change;
    fake_say(&world.fakes[0], PEER_CHANGE_ANSWER, &answer.base);
    run_until(&world, 5000, is_over);
    cr_expect_eq(outcome, CO_OK);
    cr_expect_eq(world.fakes[1].changes + world.fakes[2].changes, 0);
    run_until(&world, 5000, elsewhere);
    close_world(&world);
}

Test(client_link, a_piece_of_a_backup_that_does_not_decode_ends_it) {
    struct world world;
    struct rpc_save save = {.done = on_saved, .folder = "/tmp"};
    outcome = -1;
    open_world(&world);
    run_until(&world, 5000, at_first);
    rpc_save(world.rpc, &save);
    run_until(&world, 5000, backup_asked);
    Pb__PeerChange other = PB__PEER_CHANGE__INIT; /* its field 4 is a text, a piece's is a number */
    other.address = (char *)"x";
    fake_say(&world.fakes[0], PEER_BACKUP_PIECE, &other.base);
    run_until(&world, 5000, is_over);
    cr_expect_eq(outcome, CO_IO);
    close_world(&world);
}

/* -- asks ---------------------------------------------------------------------------------------------------------- */
#define TOPIC 5
static struct rpc_ask one;
static unsigned ends;
static char heard[64];
static struct rpc_question *asked;

static void on_answer(struct rpc_ask *ask, int error, struct slice answer) {
    cr_assert_eq(ask, &one);
    ends++, outcome = error;
    snprintf(heard, sizeof heard, "%.*s", (int)answer.size, answer.data);
}
static void ask(struct world *world, uint32_t timeout_ms) {
    ends = 0, outcome = -1;
    one = (struct rpc_ask){
        .node = "other", .topic = TOPIC, .payload = SLICE_LITERAL("?"), .timeout_ms = timeout_ms, .done = on_answer};
    rpc_ask(world->rpc, &one);
    cr_assert_eq(ends, 0, "not within the call");
}
static void on_question(void *data, const char *from, struct slice payload, struct rpc_question *question) {
    (void)data;
    snprintf(heard, sizeof heard, "%s %.*s", from, (int)payload.size, payload.data);
    asked = question;
}
static bool first_has_ask(struct world *world) { return world->fakes[0].asks == 1; }
static bool one_is_elsewhere(struct world *world) { return world->fakes[1].agents + world->fakes[2].agents == 1; }
static bool is_asked(struct world *world) { return (void)world, asked != NULL; }
static bool first_has_answer(struct world *world) { return world->fakes[0].answers == 1; }

Test(client_link, an_ask_and_its_answer) {
    struct world world;
    open_world(&world);
    ask(&world, 5000); /* waits for a connection */
    run_until(&world, 5000, first_has_ask);
    Pb__PeerAskAnswer answer = PB__PEER_ASK_ANSWER__INIT;
    answer.number = world.fakes[0].ask, answer.data = (ProtobufCBinaryData){3, (uint8_t *)"yes"};
    fake_say(&world.fakes[0], PEER_ASK_ANSWER, &answer.base);
    run_until(&world, 1000, is_over);
    cr_assert(ends == 1 && outcome == CO_OK && one.reach == RPC_ASK_ANSWERED);
    cr_assert_str_eq(heard, "yes");
    close_world(&world);
}

Test(client_link, an_ask_whose_connection_is_lost) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    ask(&world, 60000);
    run_until(&world, 5000, first_has_ask);
    fake_end(world.fakes[0].sessions);
    run_until(&world, 1000, is_over);
    cr_assert(ends == 1 && outcome == CO_UNKNOWN_OUTCOME && one.reach == RPC_ASK_MAYBE_DELIVERED);
    run_until(&world, 5000, elsewhere);
    cr_assert_eq(world.fakes[1].asks + world.fakes[2].asks, 0, "not sent again");
    close_world(&world);
}

Test(client_link, an_ask_ends_in_time) {
    struct world world;
    open_world(&world);
    run_until(&world, 5000, at_first);
    uint64_t begun_ms = clock_mono_ms();
    ask(&world, 100);
    run_until(&world, 5000, is_over);
    uint64_t ms = clock_mono_ms() - begun_ms;
    cr_assert(ends == 1 && outcome == CO_TIMEOUT && one.reach == RPC_ASK_MAYBE_DELIVERED);
    cr_assert(ms >= 100 && ms < 100 + GRACE_MS, "%llu ms", (unsigned long long)ms);
    close_world(&world);
}

/* The agent that is asked changes its server meanwhile; its answer goes back where the question came from. */
Test(client_link, a_connection_with_an_open_question_is_kept_until_it_is_answered) {
    struct world world;
    asked = NULL;
    open_world(&world);
    rpc_answer_asks(world.rpc, TOPIC, on_question, NULL);
    run_until(&world, 5000, at_first);
    Pb__PeerAsk question = PB__PEER_ASK__INIT;
    question.number = 9, question.from = (char *)"other", question.topic = TOPIC, question.timeout_ms = 60000;
    question.payload = (ProtobufCBinaryData){3, (uint8_t *)"why"};
    fake_say(&world.fakes[0], PEER_ASK, &question.base);
    run_until(&world, 5000, is_asked);
    cr_assert_str_eq(heard, "other why");
    fake_leads(&world.fakes[0], false);
    run_until(&world, 5000, one_is_elsewhere);
    run_for(&world, 300);
    cr_assert_eq(world.fakes[0].agents, 1);
    rpc_ask_answer(asked, CO_OK, SLICE_LITERAL("because"));
    run_until(&world, 1000, first_has_answer);
    cr_assert_str_eq(world.fakes[0].answer, "0 because");
    run_until(&world, 1000, elsewhere);
    close_world(&world);
}
