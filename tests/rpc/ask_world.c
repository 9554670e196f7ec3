#include "ask_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

#define WIRES 16

struct frame {
    struct list link;
    struct end *to;
    uint8_t type;
    size_t size;
    char bytes[];
};

struct process processes[PROCESSES];
static struct wire wires[WIRES];
static unsigned wire_count;
unsigned frames_of[256];
static struct list queue;
uint64_t now_ms;
size_t queued_bytes, members, largest;

/* -- the world ----------------------------------------------------------------------------------------------------- */
static void send_frame(void *data, void *connection, uint8_t type, const ProtobufCMessage *message) {
    struct end *end = connection;
    (void)data;
    size_t size = protobuf_c_message_get_packed_size(message);
    struct frame *frame = malloc(sizeof *frame + size);
    frame->to = end->other, frame->type = type, frame->size = size;
    protobuf_c_message_pack(message, (uint8_t *)frame->bytes);
    if (size > largest) largest = size;
    CHECK(end->wire->up);
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

void run(void) {
    for (struct list *item = queue.next, *next; item != &queue; item = next) {
        struct frame *frame = LIST_ENTRY(item, struct frame, link);
        next = item->next;
        if (frame->to->wire->stuck) continue;
        list_remove(&frame->link);
        CHECK(asks_frame(processes[frame->to->process].asks, frame->to->peer, frame->type,
                         slice_make(frame->bytes, frame->size), now_ms));
        free(frame);
        next = queue.next;
    }
}
void pass(uint64_t ms) {
    now_ms += ms;
    for (unsigned i = 0; i < PROCESSES; i++) {
        asks_woken(processes[i].asks, now_ms);
        asks_tick(processes[i].asks, now_ms);
    }
    run();
}

static struct asks_peer *end_up(struct end *end) {
    unsigned there = end->other->process;
    struct asks_up up = {.server = there < SERVERS,
                         .id = there < SERVERS ? there + 1 : 0,
                         .node = processes[there].name,
                         .connection = end};
    return asks_up(processes[end->process].asks, &up, now_ms);
}
struct wire *join(unsigned one, unsigned two) {
    CHECK(wire_count < WIRES);
    struct wire *wire = &wires[wire_count++];
    *wire = (struct wire){.up = true};
    wire->ends[0] = (struct end){.wire = wire, .process = one, .other = &wire->ends[1]};
    wire->ends[1] = (struct end){.wire = wire, .process = two, .other = &wire->ends[0]};
    for (unsigned i = 0; i < 2; i++) wire->ends[i].peer = end_up(&wire->ends[i]);
    if (one >= SERVERS) asks_route(processes[one].asks, wire->ends[0].peer, now_ms);
    return wire;
}
static void end_down(struct end *end) { asks_down(processes[end->process].asks, end->peer, now_ms); }
void cut(struct wire *wire) {
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

struct wire *a_s1, *b_s2, *s1_s2, *s1_s3, *s2_s3;
void open_world(void) {
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
void close_world(void) {
    for (unsigned i = 0; i < PROCESSES; i++) {
        asks_stop(processes[i].asks);
        asks_woken(processes[i].asks, now_ms);
        CHECK(processes[i].questions == processes[i].kept_count);
        for (unsigned k = 0; k < processes[i].kept_count; k++)
            rpc_ask_answer(processes[i].kept[k], CO_OK, (struct slice){0});
        asks_woken(processes[i].asks, now_ms);
        CHECK(processes[i].questions == 0);
    }
    for (unsigned i = 0; i < wire_count; i++)
        if (wires[i].up) cut(&wires[i]);
    for (unsigned i = 0; i < PROCESSES; i++) asks_free(processes[i].asks);
    CHECK(list_empty(&queue));
}

/* -- an ask of the test's ------------------------------------------------------------------------------------------ */
void on_done(struct rpc_ask *ask, int error, struct slice answer) {
    struct mine *mine = CONTAINER_OF(ask, struct mine, ask);
    mine->ends++, mine->error = error, mine->reach = ask->reach;
    buffer_append(&mine->answer, answer.data, answer.size);
}
void begin(struct mine *mine, unsigned process, const char *node) {
    *mine = (struct mine){
        .ask = {.node = node, .topic = TOPIC, .payload = SLICE_LITERAL("hello"), .timeout_ms = 1000, .done = on_done}};
    asks_begin(processes[process].asks, &mine->asked, &mine->ask, now_ms);
}
void ask(struct mine *mine, unsigned process, const char *node) {
    begin(mine, process, node);
    run();
}
void expect(struct mine *mine, int error, enum rpc_ask_reach reach, const char *answer) {
    bool as_said = mine->ends == 1 && mine->error == error && mine->reach == reach &&
                   slice_is(buffer_slice(&mine->answer), answer);
    if (!as_said)
        fprintf(stderr, "an ask of %s: %u ends, %s, reach %d, %.*s\n", mine->ask.node, mine->ends,
                co_strerror(mine->error), (int)mine->reach, (int)mine->answer.size, mine->answer.data);
    CHECK(as_said);
    buffer_free(&mine->answer);
}
void expect_not_delivered(struct mine *mine, int error) { expect(mine, error, RPC_ASK_NOT_DELIVERED, ""); }
void expect_maybe(struct mine *mine, int error) { expect(mine, error, RPC_ASK_MAYBE_DELIVERED, ""); }
void expect_answer(struct mine *mine, const char *answer) { expect(mine, CO_OK, RPC_ASK_ANSWERED, answer); }

void answer_all_kept(unsigned process, const char *text) {
    struct process *at = &processes[process];
    while (at->kept_count) rpc_ask_answer(at->kept[--at->kept_count], CO_OK, slice_text(text));
    pass(0);
}
void answer_kept(unsigned process, const char *text) {
    CHECK(processes[process].kept_count == 1);
    answer_all_kept(process, text);
}

void say(struct end *end, uint8_t type, const ProtobufCMessage *message) {
    send_frame(NULL, end, type, message);
    run();
}
Pb__PeerAsk forged(const char *node) {
    Pb__PeerAsk message = PB__PEER_ASK__INIT;
    message.number = 1, message.topic = TOPIC, message.timeout_ms = 1000;
    message.node = (char *)(uintptr_t)node, message.from = (char *)"somebody";
    return message;
}
