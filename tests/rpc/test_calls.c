/* Calls: what becomes of a request whose answer does not come, comes late, or comes from somebody else. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/check.h"
#include "rpc/cluster/peers.h"
#include "rpc/wire/calls.h"

static struct calls *calls;
static uint64_t destination, now_ms;
static uint64_t ended_at, ended_number; /* the last frame that says that an answer is not wanted */
static bool deaf;                       /* the destination's program does not know the frame */
static const char *token;               /* on whose behalf the next calls are */
static struct {
    uint64_t peer, number;
    unsigned count;
    uint8_t bytes[64]; /* as it goes on the wire */
    size_t size;
} sent;

static uint64_t route(void *data, const struct call *call) {
    (void)data, (void)call;
    return destination;
}

static bool tell(void *data, uint64_t peer, uint8_t type, const ProtobufCMessage *message) {
    (void)data;
    if (deaf) return false;
    if (type == PEER_FETCH_END) {
        ended_at = peer, ended_number = ((const Pb__PeerFetchEnd *)message)->number;
        return true;
    }
    sent.peer = peer, sent.count++;
    cr_assert(protobuf_c_message_get_packed_size(message) <= sizeof sent.bytes);
    sent.size = protobuf_c_message_pack(message, sent.bytes);
    const ProtobufCFieldDescriptor *number =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, "number");
    sent.number = *(const uint64_t *)(const void *)((const char *)message + number->offset);
    return true;
}

static ProtobufCMessage *build_question(struct call *call, struct arena *arena) {
    call->token = token;
    Pb__PeerCluster *message = arena_alloc(arena, sizeof *message);
    pb__peer_cluster__init(message);
    return &message->base;
}
static ProtobufCMessage *build_change(struct call *call, struct arena *arena) {
    (void)call;
    Pb__PeerChange *message = arena_alloc(arena, sizeof *message);
    pb__peer_change__init(message);
    return &message->base;
}

static const struct call_method question = {.name = "question",
                                            .request_frame = PEER_CLUSTER,
                                            .answer_frame = PEER_CLUSTER_ANSWER,
                                            .request = &pb__peer_cluster__descriptor,
                                            .answer = &pb__peer_cluster_answer__descriptor,
                                            .repeatable = true,
                                            .answer_ms = 1000,
                                            .build = build_question};
static const struct call_method change = {.name = "change",
                                          .request_frame = PEER_CHANGE,
                                          .answer_frame = PEER_CHANGE_ANSWER,
                                          .request = &pb__peer_change__descriptor,
                                          .answer = &pb__peer_change_answer__descriptor,
                                          .answer_ms = 1000,
                                          .build = build_change};
static ProtobufCMessage *build_read(struct call *call, struct arena *arena);
static const struct call_method read_method = {
    .name = "read", CALL_FETCH_FRAMES, .answer_ms = 1000, .build = build_read};
static ProtobufCMessage *build_copy(struct call *call, struct arena *arena);
static uint64_t route_copy(const struct call *call) {
    (void)call;
    return 7;
}
static const struct call_method copy = {.name = "copy",
                                        .request_frame = PEER_COPY_ASK,
                                        .answer_frame = PEER_COPY_PIECE,
                                        .request = &pb__peer_copy_ask__descriptor,
                                        .answer = &pb__peer_copy_piece__descriptor,
                                        .pulled = true,
                                        .answer_ms = 1000,
                                        .build = build_copy,
                                        .route = route_copy};
static ProtobufCMessage *build_echo(struct call *call, struct arena *arena) {
    (void)call;
    Pb__PeerEcho *message = arena_alloc(arena, sizeof *message);
    pb__peer_echo__init(message);
    return &message->base;
}
static const struct call_method echo = {.name = "echo",
                                        .request_frame = PEER_ECHO,
                                        .answer_frame = PEER_ECHO_ANSWER,
                                        .request = &pb__peer_echo__descriptor,
                                        .answer = &pb__peer_echo_answer__descriptor,
                                        .answer_ms = 1000,
                                        .build = build_echo};
static const struct call_method *const methods[] = {&question, &change, &read_method, &copy, &echo, NULL};

static void setup(void) {
    struct calls_callbacks callbacks = {.route = route, .tell = tell};
    calls = calls_new(&callbacks, methods, 100);
    destination = 1, now_ms = 5000, deaf = false, token = NULL;
    memset(&sent, 0, sizeof sent);
    ended_at = ended_number = 0;
}
static void teardown(void) {
    calls_stop(calls);
    calls_free(calls);
}
TestSuite(calls, .init = setup, .fini = teardown);

/* A call of the tests: how it ended, and how often. */
struct asked {
    struct call call;
    unsigned ends;
    int error;
    uint64_t index;
    struct asked *then; /* begun when this one ends */
};

static void ended(struct call *call, int error, const ProtobufCMessage *answer) {
    struct asked *asked = CONTAINER_OF(call, struct asked, call);
    asked->ends++, asked->error = error;
    if (answer && answer->descriptor == &pb__peer_cluster_answer__descriptor)
        asked->index = ((const Pb__PeerClusterAnswer *)answer)->index;
    if (!asked->then) return;
    asked->then->call.done = ended;
    calls_begin(calls, &asked->then->call, &question, 7000, now_ms);
}

static void begin(struct asked *asked, const struct call_method *method) {
    asked->call.done = ended;
    calls_begin(calls, &asked->call, method, 7000, now_ms);
}

static bool answer(uint64_t from, uint64_t number, uint32_t outcome, uint64_t index) {
    Pb__PeerClusterAnswer message = PB__PEER_CLUSTER_ANSWER__INIT;
    uint8_t bytes[64];
    message.number = number, message.outcome = outcome, message.index = index;
    size_t size = pb__peer_cluster_answer__pack(&message, bytes);
    return calls_answered(calls, from, PEER_CLUSTER_ANSWER, slice_make((char *)bytes, size), now_ms);
}

Test(calls, an_answer_ends_its_call_once) {
    struct asked one = {0};
    begin(&one, &question);
    cr_assert(sent.peer == 1 && sent.number == 101 && one.ends == 0);
    cr_assert(calls_with(calls, 1) && !calls_with(calls, 2) && !calls_idle(calls));
    cr_expect(answer(1, 101, CO_OK, 7));
    cr_expect(answer(1, 101, CO_OK, 8), "a second one is nobody's");
    cr_expect(one.ends == 1 && one.error == CO_OK && one.index == 7);
    cr_expect(calls_idle(calls));
    cr_expect_not(calls_answered(calls, 1, PEER_CLUSTER_ANSWER, SLICE_LITERAL("\xff"), now_ms), "does not decode");
    cr_expect_not(calls_answered(calls, 1, PEER_RENEW_ANSWER, SLICE_LITERAL(""), now_ms), "of no method");
}

Test(calls, a_question_is_asked_again_of_the_next_when_a_connection_ends) {
    struct asked one = {0};
    begin(&one, &question);
    destination = 2;
    calls_down(calls, 1, now_ms);
    cr_assert(sent.count == 2 && sent.peer == 2 && sent.number == 102 && one.ends == 0);
    cr_expect(answer(1, 101, CO_OK, 1), "what the first says now comes too late");
    cr_expect(answer(1, 102, CO_OK, 1), "and it was not asked this");
    cr_expect_eq(one.ends, 0);
    cr_expect(answer(2, 102, CO_OK, 5));
    cr_expect(one.ends == 1 && one.index == 5);
}

Test(calls, a_change_that_may_have_been_made_is_not_repeated) {
    struct asked lost = {0}, late = {0};
    begin(&lost, &change);
    calls_down(calls, 1, now_ms);
    cr_expect(lost.ends == 1 && lost.error == CO_UNKNOWN_OUTCOME);
    begin(&late, &change);
    now_ms += 999;
    calls_tick(calls, now_ms);
    cr_expect_eq(late.ends, 0);
    now_ms += 1;
    calls_tick(calls, now_ms);
    cr_expect(late.ends == 1 && late.error == CO_UNKNOWN_OUTCOME);
    cr_expect_eq(sent.count, 2);
}

Test(calls, who_says_not_i_is_asked_again_a_little_later_or_another) {
    struct asked one = {0};
    begin(&one, &question);
    cr_expect(answer(1, 101, CO_NOTLEADER, 0));
    calls_turn(calls, now_ms);
    cr_expect(one.ends == 0 && sent.count == 1, "not at once");
    destination = 3;
    now_ms += 50;
    calls_turn(calls, now_ms);
    cr_assert(sent.count == 2 && sent.peer == 3);
    cr_expect(answer(3, sent.number, CO_BUSY, 0));
    cr_expect(one.ends == 1 && one.error == CO_OK, "other outcomes are answers");
}

Test(calls, a_late_question_goes_to_whoever_answers_now) {
    struct asked one = {0};
    begin(&one, &question);
    now_ms += 1000, destination = 2;
    calls_tick(calls, now_ms);
    cr_expect(one.ends == 0 && sent.count == 2 && sent.peer == 2);
    for (unsigned i = 0; i < 5; i++) now_ms += 1000, calls_tick(calls, now_ms);
    cr_expect(one.ends == 0 && sent.count == 7);
    now_ms += 1000;
    calls_tick(calls, now_ms);
    cr_expect(one.ends == 1 && one.error == CO_NOLEADER, "but not for ever");
}

Test(calls, without_a_destination_it_waits_and_gives_up_in_time) {
    struct asked waits = {0}, gives_up = {0};
    destination = 0;
    begin(&waits, &question);
    begin(&gives_up, &change);
    cr_expect(sent.count == 0 && !calls_idle(calls));
    destination = 1, deaf = true;
    calls_turn(calls, now_ms);
    cr_expect(sent.count == 0 && waits.ends == 0, "its program does not know the frame: nothing has happened");
    destination = 0, deaf = false;
    now_ms += 6999;
    calls_tick(calls, now_ms);
    cr_expect(waits.ends == 0 && gives_up.ends == 0);
    now_ms += 1;
    calls_tick(calls, now_ms);
    cr_expect(waits.ends == 1 && waits.error == CO_NOLEADER);
    cr_expect(gives_up.ends == 1 && gives_up.error == CO_NOLEADER, "nothing of it was sent");
}

Test(calls, what_is_to_be_done_here_is_handed_back) {
    struct asked at_once = {0}, later = {0};
    destination = CALLS_HERE;
    begin(&at_once, &change);
    cr_expect(at_once.ends == 1 && at_once.error == CO_AGAIN && sent.count == 0);
    destination = 0;
    begin(&later, &change);
    destination = CALLS_HERE;
    calls_turn(calls, now_ms);
    cr_expect(later.ends == 1 && later.error == CO_AGAIN);
}

Test(calls, an_end_may_begin_others) {
    struct asked third = {0}, second = {.then = &third}, first = {.then = &second};
    begin(&first, &question);
    cr_expect(answer(1, sent.number, CO_OK, 1));
    cr_expect(first.ends == 1 && second.ends == 0 && sent.count == 2);
    destination = CALLS_HERE; /* the second ends within the turn, and the third is begun and ends in it too */
    calls_down(calls, 1, now_ms);
    cr_expect(second.ends == 1 && third.ends == 1);
}

Test(calls, stopping_ends_everything_and_what_comes_later) {
    struct asked waiting = {0}, asked = {0}, changed = {0}, after = {0};
    begin(&asked, &question);
    begin(&changed, &change);
    destination = 0;
    begin(&waiting, &change);
    calls_stop(calls);
    cr_expect(waiting.ends == 1 && waiting.error == CO_CLOSED, "nothing of it was sent");
    cr_expect(asked.ends == 1 && asked.error == CO_CLOSED);
    cr_expect(changed.ends == 1 && changed.error == CO_UNKNOWN_OUTCOME);
    begin(&after, &question);
    cr_expect(after.ends == 1 && after.error == CO_CLOSED);
}

Test(calls, entered_by_hand_they_are_taken_or_lost) {
    struct asked one = {.call.done = ended}, two = {.call.done = ended}, three = {.call.done = ended};
    uint64_t number = calls_enter(calls, &one.call, &change, 1);
    calls_enter(calls, &two.call, &change, 2);
    calls_enter(calls, &three.call, &change, 3);
    cr_expect_null(calls_take(calls, &change, number, 2), "with another");
    cr_expect_null(calls_take(calls, &question, number, 1), "the answer of something else");
    cr_expect_eq(calls_take(calls, &change, number, 1), &one.call);
    cr_expect_null(calls_take(calls, &change, number, 1), "taken already");
    calls_lose(calls, 0, 3);
    cr_expect(two.ends == 1 && two.error == CO_UNKNOWN_OUTCOME && three.ends == 0);
    calls_lose(calls, 3, 0);
    cr_expect(three.ends == 1 && one.ends == 0);
}

/* -- answers in pieces -------------------------------------------------------------------------------------------- */
struct read {
    struct asked asked;
    char text[32];
};

static ProtobufCMessage *build_read(struct call *call, struct arena *arena) {
    struct read *read = CONTAINER_OF(call, struct read, asked.call);
    Pb__PeerFetch *message = arena_alloc(arena, sizeof *message);
    pb__peer_fetch__init(message);
    read->text[0] = '\0'; /* another answer begins */
    return &message->base;
}

static bool on_piece(struct call *call, const ProtobufCMessage *message) {
    struct read *read = CONTAINER_OF(call, struct read, asked.call);
    const Pb__PeerFetched *piece = (const Pb__PeerFetched *)message;
    strncat(read->text, (const char *)piece->records.data, piece->records.len);
    if (strlen(read->text) < 12) return true;
    calls_cancel(calls, call);
    return false;
}

static void on_read(struct call *call, int error, const ProtobufCMessage *message) {
    struct read *read = CONTAINER_OF(call, struct read, asked.call);
    const Pb__PeerFetched *piece = (const Pb__PeerFetched *)message;
    if (piece) strncat(read->text, (const char *)piece->records.data, piece->records.len);
    read->asked.ends++, read->asked.error = error;
}

static void begin_read(struct read *read) {
    read->asked.call.done = on_read, read->asked.call.piece = on_piece;
    calls_begin(calls, &read->asked.call, &read_method, 7000, now_ms);
}

static void piece(uint64_t from, uint64_t number, const char *text, bool more) {
    Pb__PeerFetched message = PB__PEER_FETCHED__INIT;
    uint8_t bytes[64];
    message.number = number, message.more = more;
    message.records = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
    size_t size = pb__peer_fetched__pack(&message, bytes);
    cr_assert(calls_answered(calls, from, PEER_FETCHED, slice_make((char *)bytes, size), now_ms));
}

Test(calls, pieces_come_one_after_the_other_and_each_extends_the_deadline) {
    struct read read = {0};
    begin_read(&read);
    for (unsigned i = 0; i < 3; i++) {
        now_ms += 900;
        piece(1, sent.number, "ab", true);
        calls_tick(calls, now_ms);
    }
    cr_expect(read.asked.ends == 0 && sent.count == 1);
    piece(1, sent.number, "c", false);
    cr_expect(read.asked.ends == 1 && read.asked.error == CO_OK);
    cr_expect_str_eq(read.text, "abababc");
}

Test(calls, pieces_of_two_answers_do_not_mix) {
    struct read read = {0};
    begin_read(&read);
    uint64_t first = sent.number;
    piece(1, first, "old", true);
    destination = 2;
    calls_move(calls, &read_method, 1);
    cr_expect(ended_at == 1 && ended_number == first, "it is told that it is not wanted");
    calls_turn(calls, now_ms);
    cr_assert(sent.count == 2 && sent.peer == 2);
    piece(1, first, "er", false);
    cr_expect_eq(read.asked.ends, 0);
    piece(2, sent.number, "new", false);
    cr_expect_eq(read.asked.ends, 1);
    cr_expect_str_eq(read.text, "new");
}

Test(calls, who_gives_up_hears_no_more) {
    struct read read = {0}, large = {0};
    destination = 0;
    begin_read(&read);
    calls_cancel(calls, &read.asked.call);
    cr_expect(calls_idle(calls) && read.asked.ends == 0 && ended_at == 0, "it was with nobody");
    destination = 1;
    begin_read(&large);
    piece(1, sent.number, "012345", true);
    piece(1, sent.number, "6789ab", true);
    cr_expect(calls_idle(calls) && ended_at == 1, "given up in the middle of an answer");
    piece(1, sent.number, "c", false);
    cr_expect_eq(large.asked.ends, 0);
}

Test(calls, who_said_not_i_is_passed_over_for_another_at_once) {
    struct asked one = {0};
    begin(&one, &question);
    cr_expect(answer(1, 101, CO_CLOSED, 0));
    destination = 2;
    calls_turn(calls, now_ms);
    cr_expect(sent.count == 2 && sent.peer == 2);
    calls_cancel(calls, &one.call);
}

/* -- answers whose pieces are asked for --------------------------------------------------------------------------- */
struct copying {
    struct asked asked;
    uint64_t offset; /* of what came */
    unsigned pieces;
    uint32_t outcome;
};

static struct copying *copying_of(struct call *call) { return CONTAINER_OF(call, struct copying, asked.call); }

static ProtobufCMessage *build_copy(struct call *call, struct arena *arena) {
    Pb__PeerCopyAsk *message = arena_alloc(arena, sizeof *message);
    pb__peer_copy_ask__init(message);
    message->offset = copying_of(call)->offset;
    return &message->base;
}

static bool on_copied(struct call *call, const ProtobufCMessage *message) {
    copying_of(call)->offset += ((const Pb__PeerCopyPiece *)message)->data.len;
    copying_of(call)->pieces++;
    return true;
}

static void on_copy(struct call *call, int error, const ProtobufCMessage *message) {
    struct copying *copying = copying_of(call);
    if (message) copying->outcome = ((const Pb__PeerCopyPiece *)message)->outcome;
    copying->asked.ends++, copying->asked.error = error;
}

static void begin_copy(struct copying *copying) {
    copying->asked.call.done = on_copy, copying->asked.call.piece = on_copied;
    calls_begin(calls, &copying->asked.call, &copy, 0, now_ms);
}

static void copied(uint64_t from, uint64_t number, uint32_t outcome) {
    Pb__PeerCopyPiece message = PB__PEER_COPY_PIECE__INIT;
    uint8_t bytes[64];
    message.number = number, message.outcome = outcome, message.data = (ProtobufCBinaryData){3, (uint8_t *)"abc"};
    size_t size = pb__peer_copy_piece__pack(&message, bytes);
    cr_assert(calls_answered(calls, from, PEER_COPY_PIECE, slice_make((char *)bytes, size), now_ms));
}

Test(calls, pieces_that_are_asked_for_come_one_at_a_time_under_one_number) {
    struct copying copying = {0};
    begin_copy(&copying);
    uint64_t number = sent.number;
    cr_assert(sent.peer == 7 && sent.count == 1, "where the method says, not where the others go");
    for (unsigned i = 1; i <= 3; i++) {
        copied(7, number, CO_OK);
        cr_assert(copying.pieces == i && copying.asked.ends == 0);
        copied(7, number, CO_OK);
        copied(7, number, CO_IO);
        cr_assert(copying.pieces == i && copying.asked.ends == 0, "nothing was asked");
        now_ms += 5000;
        calls_tick(calls, now_ms);
        cr_assert(copying.asked.ends == 0 && sent.count == i && calls_with(calls, 7), "the caller takes its time");
        calls_next(calls, &copying.asked.call, now_ms);
        Pb__PeerCopyAsk *next = pb__peer_copy_ask__unpack(NULL, sent.size, sent.bytes);
        cr_assert(next && sent.peer == 7 && next->number == number && next->offset == 3 * i);
        pb__peer_copy_ask__free_unpacked(next, NULL);
    }
    copied(7, number, CO_OK);
    calls_cancel(calls, &copying.asked.call);
    cr_expect(calls_idle(calls) && copying.asked.ends == 0, "it has enough");
}

Test(calls, half_an_answer_is_never_completed_by_another) {
    struct copying refused = {0}, late = {0}, lost = {0}, held = {0}, gone = {0};
    begin_copy(&refused);
    copied(7, sent.number, CO_CLOSED);
    cr_expect(refused.asked.ends == 1 && refused.asked.error == CO_OK && refused.outcome == CO_CLOSED);
    begin_copy(&late);
    copied(7, sent.number, CO_OK);
    calls_next(calls, &late.asked.call, now_ms);
    now_ms += 1000;
    calls_tick(calls, now_ms);
    cr_expect(late.asked.ends == 1 && late.asked.error == CO_UNKNOWN_OUTCOME);
    begin_copy(&lost);
    begin_copy(&held);
    copied(7, sent.number, CO_OK);
    calls_down(calls, 7, now_ms);
    cr_expect(lost.asked.ends == 1 && lost.asked.error == CO_UNKNOWN_OUTCOME);
    cr_expect(held.asked.ends == 1 && held.asked.error == CO_UNKNOWN_OUTCOME, "also while nothing is asked");
    begin_copy(&gone);
    copied(7, sent.number, CO_OK);
    deaf = true;
    calls_next(calls, &gone.asked.call, now_ms);
    cr_expect(gone.asked.ends == 1 && gone.asked.error == CO_UNKNOWN_OUTCOME && calls_idle(calls));
}

/* -- requests and answers on the wire ----------------------------------------------------------------------------- */
Test(calls, an_answer_without_an_outcome_is_one) {
    struct asked one = {0};
    Pb__PeerEchoAnswer message = PB__PEER_ECHO_ANSWER__INIT;
    uint8_t bytes[16];
    begin(&one, &echo);
    message.number = sent.number;
    size_t size = pb__peer_echo_answer__pack(&message, bytes);
    cr_expect(calls_answered(calls, 1, PEER_ECHO_ANSWER, slice_make((char *)bytes, size), now_ms));
    cr_expect(one.ends == 1 && one.error == CO_OK);
}

Test(calls, an_answer_that_does_not_decode_ends_what_is_with_its_sender) {
    struct asked first = {0}, second = {0}, other = {0};
    begin(&first, &change);
    begin(&second, &question);
    destination = 2;
    begin(&other, &change);
    cr_expect_not(calls_answered(calls, 1, PEER_CHANGE_ANSWER, SLICE_LITERAL("\xff"), now_ms));
    cr_expect(first.ends == 1 && first.error == CO_UNKNOWN_OUTCOME && other.ends == 0);
    calls_turn(calls, now_ms);
    cr_expect(second.ends == 0 && sent.peer == 2 && sent.count == 4, "a question is asked of the next");
    calls_stop(calls);
}

Test(calls, a_request_says_on_whose_behalf_it_is) {
    struct asked anybody = {0}, somebody = {0}, later = {0};
    begin(&anybody, &question);
    cr_expect(sent.size == 2 && memcmp(sent.bytes, "\x08\x65", 2) == 0, "nobody's: the number, and not a byte more");
    token = "b1gs33cr3t";
    begin(&somebody, &question);
    Pb__PeerCluster *request = pb__peer_cluster__unpack(NULL, sent.size, sent.bytes);
    cr_assert(request && request->number == sent.number);
    cr_expect_str_eq(request->token, "b1gs33cr3t");
    pb__peer_cluster__free_unpacked(request, NULL);
    token = NULL;
    calls_down(calls, 1, now_ms);
    request = pb__peer_cluster__unpack(NULL, sent.size, sent.bytes);
    cr_expect_str_empty(request->token, "what is sent again is built again");
    pb__peer_cluster__free_unpacked(request, NULL);
    struct asked left_over = {.call.token = "of what the memory was before"};
    begin(&left_over, &change);
    cr_expect_eq(sent.size, 2, "its method sets none");
    /* a program of before takes it for a field that it does not know */
    token = "b1gs33cr3t";
    begin(&later, &question);
    Pb__PeerEcho *before = pb__peer_echo__unpack(NULL, sent.size, sent.bytes);
    cr_expect(before && before->number == sent.number);
    pb__peer_echo__free_unpacked(before, NULL);
    calls_stop(calls);
}
