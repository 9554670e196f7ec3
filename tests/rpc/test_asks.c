/* Asks between processes that are made up: frames go through a queue, the time is the test's. Client agents a (at s1),
 * b (at s2), servers s1 to s3. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/message.h"
#include "rpc/ask/asks.h"
#include "rpc/cluster/peers.h"

enum { S1, S2, S3, A, B, PROCESSES };
#define SERVERS 3
#define WIRES   16
#define TOPIC   7

struct wire;
struct end { /* of a wire */
    struct wire *wire;
    unsigned process;
    struct asks_peer *peer;
    struct end *other;
};
struct wire {
    struct end ends[2];
    bool up, stuck; /* stuck: what is sent stays on its way */
};
struct frame {
    struct list link;
    struct end *to;
    uint8_t type;
    size_t size;
    char bytes[];
};

static struct process {
    struct asks *asks;
    const char *name;
    struct rpc_question *kept[RPC_ASKS_MAX]; /* questions that are answered later */
    unsigned kept_count, asked, questions;
    bool keeps;
    int error; /* that it answers with */
    char from[300];
    size_t answer_size;
} processes[PROCESSES];
static struct wire wires[WIRES];
static unsigned wire_count, frames_of[256];
static struct list queue;
static uint64_t now_ms;
static size_t queued_bytes;
static size_t members, largest; /* largest: frame */

/* -- the world ----------------------------------------------------------------------------------------------------- */
static void send_frame(void *data, void *connection, uint8_t type, const ProtobufCMessage *message) {
    struct end *end = connection;
    (void)data;
    size_t size = protobuf_c_message_get_packed_size(message);
    struct frame *frame = malloc(sizeof *frame + size);
    frame->to = end->other, frame->type = type, frame->size = size;
    protobuf_c_message_pack(message, (uint8_t *)frame->bytes);
    if (size > largest) largest = size;
    cr_assert(end->wire->up);
    frames_of[type]++;
    list_append(&queue, &frame->link);
}
static size_t backlog(void *data, void *connection) {
    (void)data, (void)connection;
    return queued_bytes;
}
static size_t servers_of(void *data, uint64_t ids[ASKS_SERVERS_MAX]) {
    size_t count = 0;
    for (unsigned i = 0; i < members; i++)
        if (data != &processes[i]) ids[count++] = i + 1;
    return count;
}
static void wake(void *data) { (void)data; }
static void question(void *data, bool waits) {
    struct process *process = data;
    process->questions += waits ? 1 : -1;
}

static void on_asked(void *data, const char *from, struct slice payload, struct rpc_question *asked) {
    struct process *process = data;
    process->asked++;
    snprintf(process->from, sizeof process->from, "%s", from);
    if (process->keeps) {
        process->kept[process->kept_count++] = asked;
        return;
    }
    struct buffer answer = {0};
    buffer_printf(&answer, "%s:%.*s", process->name, (int)payload.size, payload.data);
    while (answer.size < process->answer_size) buffer_append_byte(&answer, 'x');
    rpc_ask_answer(asked, process->error, buffer_slice(&answer));
    buffer_free(&answer);
}

/* Between frames the time stands still. */
static void run(void) {
    for (struct list *item = queue.next, *next; item != &queue; item = next) {
        struct frame *frame = LIST_ENTRY(item, struct frame, link);
        next = item->next;
        if (frame->to->wire->stuck) continue;
        list_remove(&frame->link);
        cr_assert(asks_frame(processes[frame->to->process].asks, frame->to->peer, frame->type,
                             slice_make(frame->bytes, frame->size), now_ms));
        free(frame);
        next = queue.next;
    }
}
static void pass(uint64_t ms) {
    now_ms += ms;
    for (unsigned i = 0; i < PROCESSES; i++) {
        asks_woken(processes[i].asks, now_ms);
        asks_tick(processes[i].asks, now_ms);
    }
    run();
}

static struct asks_peer *end_up(struct end *end, unsigned protocol) {
    unsigned there = end->other->process;
    struct asks_up up = {.server = there < SERVERS,
                         .id = there < SERVERS ? there + 1 : 0,
                         .node = processes[there].name,
                         .protocol = protocol,
                         .connection = end};
    return asks_up(processes[end->process].asks, &up, now_ms);
}
static struct wire *connect_as(unsigned one, unsigned two, unsigned protocol) {
    cr_assert(wire_count < WIRES);
    struct wire *wire = &wires[wire_count++];
    *wire = (struct wire){.up = true};
    wire->ends[0] = (struct end){.wire = wire, .process = one, .other = &wire->ends[1]};
    wire->ends[1] = (struct end){.wire = wire, .process = two, .other = &wire->ends[0]};
    for (unsigned i = 0; i < 2; i++) wire->ends[i].peer = end_up(&wire->ends[i], protocol);
    if (one >= SERVERS) asks_route(processes[one].asks, wire->ends[0].peer, now_ms);
    return wire;
}
static struct wire *join(unsigned one, unsigned two) { return connect_as(one, two, HELLO_VERSION_ASK); }

static void end_down(struct end *end) { asks_down(processes[end->process].asks, end->peer, now_ms); }
/* What is on its way is lost. */
static void cut(struct wire *wire) {
    LIST_FOREACH_SAFE(item, next, &queue) {
        struct frame *frame = LIST_ENTRY(item, struct frame, link);
        if (frame->to->wire != wire) continue;
        list_remove(&frame->link);
        free(frame);
    }
    wire->up = false;
    end_down(&wire->ends[0]), end_down(&wire->ends[1]);
    run();
}

static struct wire *a_s1, *b_s2, *s1_s2, *s1_s3, *s2_s3;
static void open_world(void) {
    static const char *const names[] = {"s1", "s2", "s3", "a", "b"};
    list_init(&queue);
    memset(processes, 0, sizeof processes), memset(frames_of, 0, sizeof frames_of);
    wire_count = 0, now_ms = 1000, queued_bytes = largest = 0, members = SERVERS;
    for (unsigned i = 0; i < PROCESSES; i++) {
        struct asks_callbacks callbacks = {.data = &processes[i],
                                           .send = send_frame,
                                           .backlog = backlog,
                                           .servers = i < SERVERS ? servers_of : NULL,
                                           .wake = wake,
                                           .question = question};
        processes[i].name = names[i];
        processes[i].asks = asks_new(&callbacks, names[i], 100 * i);
        asks_answerer(processes[i].asks, TOPIC, on_asked, &processes[i]);
    }
    s1_s2 = join(S1, S2), s1_s3 = join(S1, S3), s2_s3 = join(S2, S3);
    a_s1 = join(A, S1), b_s2 = join(B, S2);
}
static void close_world(void) {
    for (unsigned i = 0; i < PROCESSES; i++) {
        asks_stop(processes[i].asks);
        asks_woken(processes[i].asks, now_ms);
        cr_assert_eq(processes[i].questions, processes[i].kept_count);
        for (unsigned k = 0; k < processes[i].kept_count; k++)
            rpc_ask_answer(processes[i].kept[k], CO_OK, (struct slice){0});
        asks_woken(processes[i].asks, now_ms);
        cr_assert_eq(processes[i].questions, 0);
    }
    for (unsigned i = 0; i < wire_count; i++)
        if (wires[i].up) cut(&wires[i]);
    for (unsigned i = 0; i < PROCESSES; i++) asks_free(processes[i].asks);
    cr_assert(list_empty(&queue));
}
TestSuite(asks, .init = open_world, .fini = close_world);

/* -- an ask of the test's ------------------------------------------------------------------------------------------ */
struct mine {
    struct rpc_ask ask;
    struct asked asked;
    unsigned ends;
    int error;
    enum rpc_ask_reach reach;
    struct buffer answer;
};
static void on_done(struct rpc_ask *ask, int error, struct slice answer) {
    struct mine *mine = CONTAINER_OF(ask, struct mine, ask);
    mine->ends++, mine->error = error, mine->reach = ask->reach;
    buffer_append(&mine->answer, answer.data, answer.size);
}
/* Sent, not carried on yet. */
static void begin(struct mine *mine, unsigned process, const char *node) {
    *mine = (struct mine){
        .ask = {.node = node, .topic = TOPIC, .payload = SLICE_LITERAL("hello"), .timeout_ms = 1000, .done = on_done}};
    asks_begin(processes[process].asks, &mine->asked, &mine->ask, now_ms);
}
static void ask(struct mine *mine, unsigned process, const char *node) {
    begin(mine, process, node);
    run();
}
static void expect(struct mine *mine, int error, enum rpc_ask_reach reach, const char *answer) {
    cr_assert_eq(mine->ends, 1, "%u ends", mine->ends);
    cr_assert_eq(mine->error, error, "%s", co_strerror(mine->error));
    cr_assert_eq(mine->reach, reach, "reach %d", (int)mine->reach);
    cr_assert(slice_is(buffer_slice(&mine->answer), answer), "%.*s", (int)mine->answer.size, mine->answer.data);
    buffer_free(&mine->answer);
}
static void expect_not_delivered(struct mine *mine, int error) { expect(mine, error, RPC_ASK_NOT_DELIVERED, ""); }
static void expect_maybe(struct mine *mine, int error) { expect(mine, error, RPC_ASK_MAYBE_DELIVERED, ""); }
static void expect_answer(struct mine *mine, const char *answer) { expect(mine, CO_OK, RPC_ASK_ANSWERED, answer); }

static void answer_all_kept(unsigned process, const char *text) {
    struct process *at = &processes[process];
    while (at->kept_count) rpc_ask_answer(at->kept[--at->kept_count], CO_OK, slice_text(text));
    pass(0);
}
static void answer_kept(unsigned process, const char *text) {
    cr_assert_eq(processes[process].kept_count, 1);
    answer_all_kept(process, text);
}

/* -- ways ---------------------------------------------------------------------------------------------------------- */
Test(asks, every_process_reaches_every_other_and_itself) {
    struct mine mine;
    for (unsigned from = 0; from < PROCESSES; from++)
        for (unsigned to = 0; to < PROCESSES; to++) {
            char answer[16];
            snprintf(answer, sizeof answer, "%s:hello", processes[to].name);
            ask(&mine, from, processes[to].name);
            expect_answer(&mine, answer);
            cr_assert_str_eq(processes[to].from, processes[from].name);
        }
}

Test(asks, for_itself_nothing_goes_over_a_wire) {
    struct mine mine;
    begin(&mine, A, "A"); /* whatever the case */
    cr_assert(list_empty(&queue));
    expect_answer(&mine, "a:hello");
    cut(a_s1);
    begin(&mine, A, "a");
    expect_answer(&mine, "a:hello");
}

Test(asks, a_server_is_known_by_its_hello) {
    struct mine mine;
    ask(&mine, A, "S3");
    expect_answer(&mine, "s3:hello");
    cr_assert_eq(frames_of[PEER_ASK_FIND], 0);
    cr_assert_eq(frames_of[PEER_ASK], 2);
}

Test(asks, where_a_node_is_is_remembered_for_a_while) {
    struct mine mine;
    for (unsigned i = 0; i < 3; i++) {
        ask(&mine, A, "b");
        expect_answer(&mine, "b:hello");
        cr_assert_eq(frames_of[PEER_ASK_FIND], 2);
    }
    cr_assert_eq(frames_of[PEER_ASK], 9);
    pass(ASKS_PLACES_MS);
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
    cr_assert_eq(frames_of[PEER_ASK_FIND], 4);
}

Test(asks, many_for_a_node_that_is_looked_for_wait_for_one_answer) {
    struct mine mine[20];
    for (unsigned i = 0; i < 20; i++) begin(&mine[i], i % 2 ? A : S1, i % 3 ? "b" : "B");
    run();
    for (unsigned i = 0; i < 20; i++) expect_answer(&mine[i], "b:hello");
    cr_assert_eq(frames_of[PEER_ASK_FIND], 2);
    cr_assert_eq(processes[B].asked, 20);
}

Test(asks, an_error_of_who_answers_is_no_error_of_the_way) {
    struct mine mine;
    processes[B].error = CO_NOTFOUND;
    ask(&mine, A, "b");
    expect(&mine, CO_NOTFOUND, RPC_ASK_ANSWERED, "b:hello");
    ask(&mine, B, "b");
    expect(&mine, CO_NOTFOUND, RPC_ASK_ANSWERED, "b:hello");
    cr_assert_eq(processes[B].asked, 2);
}

/* -- nobody is there ----------------------------------------------------------------------------------------------- */
Test(asks, nobody_has_the_node) {
    struct mine mine;
    ask(&mine, A, "c");
    expect_not_delivered(&mine, CO_NOTFOUND);
    ask(&mine, S1, "c");
    expect_not_delivered(&mine, CO_NOTFOUND);
    ask(&mine, A, "");
    expect_not_delivered(&mine, CO_NOTFOUND);
    char longest[400];
    memset(longest, 'x', sizeof longest), longest[399] = 0;
    ask(&mine, A, longest);
    expect_not_delivered(&mine, CO_NOTFOUND);
    ask(&mine, S1, longest);
    expect_not_delivered(&mine, CO_NOTFOUND);
}

/* It may be there. */
Test(asks, a_server_that_cannot_be_reached_may_have_it) {
    struct mine mine;
    cut(s1_s3);
    ask(&mine, A, "c");
    expect_not_delivered(&mine, CO_IO);
    ask(&mine, A, "b"); /* another one has it */
    expect_answer(&mine, "b:hello");
    s1_s3 = join(S1, S3);
    ask(&mine, A, "c");
    expect_not_delivered(&mine, CO_NOTFOUND);
}

Test(asks, a_server_that_does_not_say_is_not_waited_for_long) {
    struct mine mine, other;
    s1_s3->stuck = true;
    ask(&mine, A, "c");
    ask(&other, A, "b");
    cr_assert_eq(mine.ends + other.ends, 0);
    pass(ASKS_FIND_MS - 1);
    cr_assert_eq(mine.ends + other.ends, 0);
    pass(1);
    expect_not_delivered(&mine, CO_IO);
    expect_answer(&other, "b:hello");
}

Test(asks, no_server_in_time) {
    struct mine mine;
    cut(a_s1);
    begin(&mine, A, "b");
    pass(999);
    cr_assert_eq(mine.ends, 0);
    cr_assert_eq(asks_next_ms(processes[A].asks), now_ms + 1);
    pass(1);
    expect_not_delivered(&mine, CO_NOLEADER);
}

Test(asks, what_waits_for_a_server_goes_to_the_first_that_is_there) {
    struct mine mine;
    cut(a_s1);
    begin(&mine, A, "b");
    pass(500);
    join(A, S3);
    run();
    expect_answer(&mine, "b:hello");
    cr_assert_str_eq(processes[B].from, "a");
}

/* -- what is lost -------------------------------------------------------------------------------------------------- */
Test(asks, lost_before_it_left_the_first_server) {
    struct mine mine;
    s1_s2->stuck = s1_s3->stuck = true;
    ask(&mine, S1, "b"); /* S1 knows that it was not sent yet */
    cut(s1_s2);
    cut(s1_s3);
    expect_not_delivered(&mine, CO_IO);
    ask(&mine, A, "b");
    expect_not_delivered(&mine, CO_IO);
    cr_assert_eq(processes[B].asked, 0);
}

Test(asks, who_has_it_is_lost_while_others_are_asked) {
    struct mine mine;
    s1_s3->stuck = true;
    ask(&mine, A, "b"); /* S2 says that it has it */
    cut(s1_s2);
    cr_assert_eq(mine.ends, 0);
    s1_s3->stuck = false;
    run();
    expect_not_delivered(&mine, CO_IO);
}

Test(asks, lost_on_its_way_to_the_other_server) {
    struct mine warm, mine;
    ask(&warm, A, "b");
    expect_answer(&warm, "b:hello");
    s1_s2->stuck = true;
    ask(&mine, A, "b");
    cut(s1_s2);
    expect_maybe(&mine, CO_UNKNOWN_OUTCOME);
}

Test(asks, lost_on_its_way_to_the_agent) {
    struct mine mine;
    b_s2->stuck = true;
    ask(&mine, A, "b");
    cut(b_s2);
    expect_maybe(&mine, CO_UNKNOWN_OUTCOME);
    ask(&mine, A, "b"); /* it is gone now */
    expect_not_delivered(&mine, CO_NOTFOUND);
    cr_assert_eq(processes[B].asked, 0);
}

Test(asks, lost_after_it_was_delivered) {
    struct mine mine;
    processes[B].keeps = true;
    ask(&mine, A, "b");
    cr_assert_eq(processes[B].asked, 1);
    cut(b_s2);
    expect_maybe(&mine, CO_UNKNOWN_OUTCOME);
    answer_kept(B, "nobody hears this");
    b_s2 = join(B, S2);
    ask(&mine, A, "b");
    answer_kept(B, "again");
    expect_answer(&mine, "again");
}

Test(asks, the_own_connection_is_lost) {
    struct mine mine;
    processes[B].keeps = true;
    ask(&mine, A, "b");
    cut(a_s1);
    expect_maybe(&mine, CO_UNKNOWN_OUTCOME);
    answer_kept(B, "nobody hears this");
}

/* Nobody waits for what has not been sent. */
Test(asks, what_is_looked_for_is_dropped_with_who_asked) {
    struct mine mine;
    s1_s2->stuck = true;
    ask(&mine, A, "b");
    cut(a_s1);
    expect_maybe(&mine, CO_UNKNOWN_OUTCOME);
    s1_s2->stuck = false;
    run();
    cr_assert_eq(processes[B].asked, 0);
}

/* -- time ---------------------------------------------------------------------------------------------------------- */
Test(asks, no_answer_in_time) {
    struct mine mine;
    processes[B].keeps = true;
    ask(&mine, A, "b");
    pass(999);
    cr_assert_eq(mine.ends, 0);
    pass(1);
    expect_maybe(&mine, CO_TIMEOUT);
    answer_kept(B, "too late");
    cr_assert_eq(mine.ends, 1);
}

Test(asks, it_is_not_delivered_after_its_time) {
    struct mine mine;
    a_s1->stuck = true;
    ask(&mine, A, "b");
    s1_s2->stuck = true, a_s1->stuck = false;
    run(); /* S1 looks for it */
    pass(400);
    cr_assert_eq(mine.ends, 0);
    pass(600);
    expect_maybe(&mine, CO_TIMEOUT);
    s1_s2->stuck = false;
    run();
    cr_assert_eq(processes[B].asked, 0);
}

/* Who has the node looked for ends surely. */
Test(asks, time_is_up_while_it_is_looked_for) {
    struct mine mine;
    s1_s2->stuck = true;
    mine = (struct mine){.ask = {.node = "b", .topic = TOPIC, .timeout_ms = 100, .done = on_done}};
    asks_begin(processes[S1].asks, &mine.asked, &mine.ask, now_ms);
    pass(100);
    expect_not_delivered(&mine, CO_TIMEOUT);
    s1_s2->stuck = false;
    run();
    cr_assert_eq(processes[B].asked, 0);
}

/* Whatever comes first, the tick or the frame that says where it is. */
Test(asks, it_is_not_sent_when_its_time_is_up) {
    struct mine mine;
    s1_s3->stuck = true;
    mine = (struct mine){.ask = {.node = "b", .topic = TOPIC, .timeout_ms = ASKS_FIND_MS, .done = on_done}};
    asks_begin(processes[S1].asks, &mine.asked, &mine.ask, now_ms);
    run();
    pass(ASKS_FIND_MS);
    expect_not_delivered(&mine, CO_TIMEOUT);
    ask(&mine, S1, "c");
    now_ms += 1000;
    s1_s3->stuck = false;
    run();
    expect_not_delivered(&mine, CO_NOTFOUND);
    cut(s1_s2);
    s1_s3->stuck = true;
    cut(b_s2);
    join(B, S3);
    ask(&mine, S1, "b");
    now_ms += 1000;
    s1_s3->stuck = false;
    run();
    expect_not_delivered(&mine, CO_TIMEOUT);
    cr_assert_eq(processes[B].asked, 0);
}

Test(asks, an_answer_that_is_given_later) {
    struct mine mine, local;
    processes[B].keeps = true;
    ask(&mine, A, "b");
    pass(900);
    answer_kept(B, "later");
    expect_answer(&mine, "later");
    ask(&local, B, "b");
    pass(900);
    answer_kept(B, "here too");
    expect_answer(&local, "here too");
}

/* -- nodes that move ----------------------------------------------------------------------------------------------- */
Test(asks, an_agent_that_moved_to_another_server) {
    struct mine mine;
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
    cut(b_s2);
    join(B, S3);
    ask(&mine, A, "b"); /* S1 believes that S2 has it */
    expect_answer(&mine, "b:hello");
    cr_assert_eq(frames_of[PEER_ASK_FIND], 4);
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
    cr_assert_eq(frames_of[PEER_ASK_FIND], 4);
    cr_assert_eq(processes[B].asked, 3);
}

Test(asks, an_agent_that_moved_here) {
    struct mine mine;
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
    cut(b_s2);
    join(B, S1);
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
    cr_assert_eq(frames_of[PEER_ASK_FIND], 2);
}

/* The end of the one before was not noticed yet. */
Test(asks, of_several_connections_with_a_node_the_newest_counts) {
    struct mine mine;
    b_s2->stuck = true; /* half a connection */
    join(B, S2);
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
    cr_assert_eq(processes[B].asked, 1);
}

Test(asks, of_several_servers_that_have_it_the_newest_counts) {
    struct mine mine;
    b_s2->stuck = true;
    pass(5000);
    join(B, S3);
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
}

/* The first one cannot know: from the second on it is looked for elsewhere. */
Test(asks, half_a_connection_costs_one_ask) {
    struct mine mine;
    cut(b_s2);
    struct wire *half = join(B, S1);
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
    half->stuck = true;
    pass(5000);
    join(B, S3);
    ask(&mine, A, "b");
    pass(1000);
    expect_maybe(&mine, CO_TIMEOUT);
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
}

Test(asks, half_a_connection_at_another_server_costs_one_ask) {
    struct mine mine;
    ask(&mine, A, "b"); /* S1 remembers that S2 has it */
    expect_answer(&mine, "b:hello");
    b_s2->stuck = true;
    pass(5000);
    join(B, S3);
    ask(&mine, A, "b");
    pass(1000);
    expect_maybe(&mine, CO_TIMEOUT);
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
}

Test(asks, a_slow_agent_is_still_the_newest) {
    struct mine mine;
    cut(b_s2);
    join(B, S1);
    processes[B].keeps = true;
    ask(&mine, A, "b");
    pass(1000);
    expect_maybe(&mine, CO_TIMEOUT);
    processes[B].keeps = false;
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
    cr_assert_eq(frames_of[PEER_ASK_FIND], 2);
    ask(&mine, A, "b");
    expect_answer(&mine, "b:hello");
    cr_assert_eq(frames_of[PEER_ASK_FIND], 2);
    answer_kept(B, "much too late");
}

Test(asks, who_answers_late_is_there) {
    struct mine mine;
    cut(b_s2);
    join(B, S1);
    processes[B].keeps = true;
    ask(&mine, A, "b");
    pass(1000);
    expect_maybe(&mine, CO_TIMEOUT);
    answer_kept(B, "too late");
    ask(&mine, A, "b");
    answer_kept(B, "in time");
    expect_answer(&mine, "in time");
    cr_assert_eq(frames_of[PEER_ASK_FIND], 0);
}

/* -- who is not believed ------------------------------------------------------------------------------------------- */
static void say(struct end *end, uint8_t type, const ProtobufCMessage *message) {
    send_frame(NULL, end, type, message);
    run();
}
static Pb__PeerAsk forged(const char *node) {
    Pb__PeerAsk message = PB__PEER_ASK__INIT;
    message.number = 1, message.topic = TOPIC, message.timeout_ms = 1000;
    message.node = (char *)(uintptr_t)node, message.from = (char *)"somebody";
    return message;
}

Test(asks, an_agent_asks_for_its_own_node_only) {
    Pb__PeerAsk message = forged("b");
    say(&a_s1->ends[0], PEER_ASK, &message.base);
    cr_assert_str_eq(processes[B].from, "a");
    message.node = (char *)"s1";
    say(&a_s1->ends[0], PEER_ASK, &message.base);
    cr_assert_str_eq(processes[S1].from, "a");
}

Test(asks, only_a_member_is_believed_for_whom_it_asks) {
    Pb__PeerAsk message = forged("s1");
    say(&s1_s3->ends[1], PEER_ASK, &message.base);
    cr_assert_str_eq(processes[S1].from, "somebody");
    members = 2; /* s3 is none any more */
    say(&s1_s3->ends[1], PEER_ASK, &message.base);
    cr_assert_eq(processes[S1].asked, 1);
    struct mine mine;
    ask(&mine, S3, "s1");
    expect_not_delivered(&mine, CO_IO);
}

/* No circle. */
Test(asks, what_a_server_sends_goes_to_no_other_server) {
    Pb__PeerAsk message = forged("b");
    say(&s1_s3->ends[1], PEER_ASK, &message.base); /* to s1, which has not b */
    message = forged("s3");
    say(&s1_s2->ends[1], PEER_ASK, &message.base);
    cr_assert_eq(frames_of[PEER_ASK], 2);
    cr_assert_eq(frames_of[PEER_ASK_FIND], 0);
    cr_assert_eq(processes[B].asked + processes[S3].asked, 0);
}

Test(asks, an_answer_counts_only_from_whom_was_asked) {
    struct mine mine;
    processes[B].keeps = true;
    ask(&mine, A, "b");
    Pb__PeerAskAnswer answer = PB__PEER_ASK_ANSWER__INIT;
    for (answer.number = 0; answer.number < 1000; answer.number++) say(&s1_s3->ends[1], PEER_ASK_ANSWER, &answer.base);
    cr_assert_eq(mine.ends, 0);
    answer_kept(B, "mine");
    expect_answer(&mine, "mine");
}

Test(asks, frames_that_are_not_of_their_kind) {
    cr_assert_not(asks_frame(processes[S1].asks, a_s1->ends[1].peer, PEER_ASK, SLICE_LITERAL("\x0a"), now_ms));
    cr_assert_not(asks_frame(processes[S1].asks, a_s1->ends[1].peer, PEER_ASK_ANSWER, SLICE_LITERAL("\x0a"), now_ms));
    cr_assert_not(asks_frame(processes[S1].asks, a_s1->ends[1].peer, PEER_ASK_FIND, (struct slice){0}, now_ms));
    cr_assert_not(asks_frame(processes[A].asks, a_s1->ends[0].peer, PEER_ASK_FIND, (struct slice){0}, now_ms));
    cr_assert_not(asks_frame(processes[S1].asks, s1_s2->ends[0].peer, PEER_ASK_FOUND, SLICE_LITERAL("\x0a"), now_ms));
    cr_assert_not(asks_frame(processes[S1].asks, s1_s2->ends[0].peer, PEER_HELLO, (struct slice){0}, now_ms));
}

/* -- older programs ------------------------------------------------------------------------------------------------ */
Test(asks, who_does_not_know_asks_is_sent_none) {
    struct mine mine;
    cut(a_s1);
    struct wire *old = connect_as(A, S1, HELLO_VERSION_ASK - 1);
    ask(&mine, A, "b"); /* its server */
    expect_not_delivered(&mine, CO_UNSUPPORTED);
    cut(old);
    a_s1 = join(A, S1);
    cut(b_s2);
    connect_as(B, S2, HELLO_VERSION_ASK - 1);
    ask(&mine, A, "b"); /* the agent */
    expect_not_delivered(&mine, CO_UNSUPPORTED);
    cut(s1_s3);
    connect_as(S1, S3, HELLO_VERSION_ASK - 1);
    ask(&mine, A, "s3"); /* the server that is asked */
    expect_not_delivered(&mine, CO_UNSUPPORTED);
    ask(&mine, A, "c"); /* it may be at that server */
    expect_not_delivered(&mine, CO_UNSUPPORTED);
}

Test(asks, a_topic_that_nobody_answers) {
    struct mine mine;
    for (unsigned to = 0; to < PROCESSES; to++) {
        mine =
            (struct mine){.ask = {.node = processes[to].name, .topic = TOPIC + 1, .timeout_ms = 1000, .done = on_done}};
        asks_begin(processes[A].asks, &mine.asked, &mine.ask, now_ms);
        run();
        expect_not_delivered(&mine, CO_UNSUPPORTED);
    }
}

/* -- bounds -------------------------------------------------------------------------------------------------------- */
Test(asks, the_largest_payload_and_answer) {
    static char bytes[RPC_ASK_BYTES_MAX + 1];
    memset(bytes, 'p', sizeof bytes);
    struct mine mine;
    for (unsigned to = 0; to < PROCESSES; to++) {
        processes[to].answer_size = RPC_ASK_BYTES_MAX + 1000;
        for (size_t more = 0; more < 2; more++) {
            mine = (struct mine){.ask = {.node = processes[to].name,
                                         .topic = TOPIC,
                                         .payload = {bytes, RPC_ASK_BYTES_MAX + more},
                                         .timeout_ms = 1000,
                                         .done = on_done}};

            asks_begin(processes[A].asks, &mine.asked, &mine.ask, now_ms);
            run();
            if (more) expect_not_delivered(&mine, CO_TOOLARGE);
            else expect(&mine, CO_TOOLARGE, RPC_ASK_ANSWERED, "");
        }
        processes[to].answer_size = RPC_ASK_BYTES_MAX;
        ask(&mine, A, processes[to].name);
        cr_assert(mine.error == CO_OK && mine.answer.size == RPC_ASK_BYTES_MAX);
        buffer_free(&mine.answer);
    }
    cr_assert_leq(largest, RPC_ASK_BYTES_MAX + 64);
    Pb__PeerAsk message = forged("b");
    message.payload = (ProtobufCBinaryData){RPC_ASK_BYTES_MAX + 1, (uint8_t *)bytes};
    unsigned asked = processes[B].asked;
    say(&a_s1->ends[0], PEER_ASK, &message.base);
    cr_assert_eq(processes[B].asked, asked);
}

Test(asks, no_more_than_so_many_of_an_agent) {
    static struct mine mine[RPC_ASKS_MAX], more;
    s1_s2->stuck = true;
    for (unsigned i = 0; i < RPC_ASKS_MAX; i++) begin(&mine[i], A, "b");
    begin(&more, A, "b");
    expect_not_delivered(&more, CO_BUSY);
    run();
    Pb__PeerAsk message = forged("b"); /* one that does not count itself */
    unsigned answers = frames_of[PEER_ASK_ANSWER];
    say(&a_s1->ends[0], PEER_ASK, &message.base);
    cr_assert_eq(frames_of[PEER_ASK_ANSWER], answers + 1);
    s1_s2->stuck = false;
    run();
    for (unsigned i = 0; i < RPC_ASKS_MAX; i++) expect_answer(&mine[i], "b:hello");
    ask(&more, A, "b");
    expect_answer(&more, "b:hello");
}

Test(asks, no_more_than_so_many_wait_for_a_server) {
    static struct mine mine[RPC_ASKS_MAX], more;
    cut(a_s1);
    for (unsigned i = 0; i < RPC_ASKS_MAX; i++) begin(&mine[i], A, "b");
    begin(&more, A, "b");
    expect_not_delivered(&more, CO_BUSY);
    join(A, S2);
    run();
    for (unsigned i = 0; i < RPC_ASKS_MAX; i++) expect_answer(&mine[i], "b:hello");
}

/* Also when nobody waits for the answers any more. */
Test(asks, no_more_than_so_many_questions_for_one_connection) {
    static struct mine mine[RPC_ASKS_MAX], more;
    processes[B].keeps = true;
    for (unsigned i = 0; i < RPC_ASKS_MAX; i++) begin(&mine[i], A, "b");
    run();
    pass(1000);
    for (unsigned i = 0; i < RPC_ASKS_MAX; i++) expect_maybe(&mine[i], CO_TIMEOUT);
    processes[B].keeps = false;
    ask(&more, A, "b");
    expect_not_delivered(&more, CO_BUSY);
    answer_all_kept(B, "too late");
    ask(&more, A, "b");
    expect_answer(&more, "b:hello");
}

/* Of several that ask. */
Test(asks, no_more_than_so_many_for_an_agent) {
    static struct mine mine[RPC_ASKS_MAX], more;
    b_s2->stuck = true;
    for (unsigned i = 0; i < RPC_ASKS_MAX; i++) begin(&mine[i], i % 2 ? S2 : S1, "b");
    run();
    ask(&more, A, "b");
    expect_not_delivered(&more, CO_BUSY);
    b_s2->stuck = false;
    run();
    for (unsigned i = 0; i < RPC_ASKS_MAX; i++) expect_answer(&mine[i], "b:hello");
}

Test(asks, no_more_than_so_many_bytes_are_queued) {
    struct mine mine;
    queued_bytes = ASKS_BACKLOG_MAX + 1;
    ask(&mine, S2, "b");
    expect_not_delivered(&mine, CO_BUSY);
    queued_bytes = 0;
    b_s2->stuck = true;
    ask(&mine, S2, "b");
    queued_bytes = ASKS_ANSWERS_MAX + 1;
    b_s2->stuck = false;
    run();
    expect_maybe(&mine, CO_UNKNOWN_OUTCOME);
    cr_assert_eq(processes[B].asked, 1);
}

Test(asks, no_more_than_so_many_bytes_are_kept) {
    static char bytes[RPC_ASK_BYTES_MAX];
    static struct mine mine[ASKS_KEPT_MAX / RPC_ASK_BYTES_MAX];
    s1_s2->stuck = true;
    unsigned busy = 0, count = ASKS_KEPT_MAX / RPC_ASK_BYTES_MAX;
    for (unsigned i = 0; i < count; i++) {
        mine[i] = (struct mine){
            .ask = {
                .node = "b", .topic = TOPIC, .payload = {bytes, sizeof bytes}, .timeout_ms = 1000, .done = on_done}};
        asks_begin(processes[A].asks, &mine[i].asked, &mine[i].ask, now_ms);
        run();
        busy += mine[i].ends;
    }
    cr_assert_eq(busy, 1); /* the last: names take some */
    expect_not_delivered(&mine[count - 1], CO_BUSY);
    pass(1000);
    s1_s2->stuck = false;
    run();
    ask(&mine[0], A, "b");
    expect_answer(&mine[0], "b:hello");
}

Test(asks, no_more_than_so_many_nodes_are_looked_for) {
    static struct mine mine[ASKS_LOOKS_MAX], more;
    static char names[ASKS_LOOKS_MAX][16];
    s1_s2->stuck = true;
    for (unsigned i = 0; i < ASKS_LOOKS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "node-%u", i);
        ask(&mine[i], A, names[i]);
    }
    ask(&more, A, "b");
    expect_not_delivered(&more, CO_BUSY);
    s1_s2->stuck = false;
    run();
    for (unsigned i = 0; i < ASKS_LOOKS_MAX; i++) expect_not_delivered(&mine[i], CO_NOTFOUND);
    ask(&more, A, "b");
    expect_answer(&more, "b:hello");
}

/* -- the end ------------------------------------------------------------------------------------------------------- */
Test(asks, who_stops_ends_what_it_asked) {
    struct mine sent, waiting, late;
    processes[B].keeps = true;
    ask(&sent, S1, "b");
    s1_s2->stuck = true;
    ask(&waiting, S1, "c");
    asks_stop(processes[S1].asks);
    expect_maybe(&sent, CO_UNKNOWN_OUTCOME);
    expect_not_delivered(&waiting, CO_CLOSED);
    ask(&late, S1, "b");
    expect_not_delivered(&late, CO_CLOSED);
    s1_s2->stuck = false;
    answer_kept(B, "nobody hears this");
}

Test(asks, a_server_that_stops_says_what_was_sent) {
    struct mine sent, waiting, late;
    processes[B].keeps = true;
    ask(&sent, A, "b");
    s1_s2->stuck = true;
    ask(&waiting, A, "c");
    asks_stop(processes[S1].asks);
    run();
    expect_maybe(&sent, CO_UNKNOWN_OUTCOME);
    cr_assert_eq(waiting.ends, 0); /* for another server */
    ask(&late, A, "s3");
    cr_assert_eq(late.ends, 0);
    ask(&sent, S3, "s1");
    expect_not_delivered(&sent, CO_IO);
    s1_s2->stuck = false;
    cut(a_s1);
    join(A, S3);
    run();
    cr_assert_eq(waiting.ends, 1);
    expect_not_delivered(&waiting, CO_IO); /* the one that stops may have it */
    expect_answer(&late, "s3:hello");
    answer_kept(B, "nobody hears this");
}

Test(asks, an_agent_that_stops_is_not_there_any_more) {
    struct mine mine;
    asks_stop(processes[B].asks);
    ask(&mine, A, "b");
    expect_not_delivered(&mine, CO_NOTFOUND);
    cr_assert_eq(processes[B].asked, 0);
}

Test(asks, a_question_is_answered_after_the_stop) {
    struct mine mine;
    processes[B].keeps = true;
    ask(&mine, A, "b");
    asks_stop(processes[B].asks);
    answer_kept(B, "last");
    expect_answer(&mine, "last");
}
