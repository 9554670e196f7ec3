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
static struct {
    uint64_t peer, number;
    unsigned count;
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
    if (type == PEER_CLUSTER) sent.number = ((const Pb__PeerCluster *)message)->number;
    else if (type == PEER_CHANGE) sent.number = ((const Pb__PeerChange *)message)->number;
    else sent.number = ((const Pb__PeerFetch *)message)->number;
    return true;
}

static ProtobufCMessage *build_question(struct call *call, struct arena *arena) {
    (void)call;
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
static const struct call_method *const methods[] = {&question, &change, &read_method, NULL};

static void setup(void) {
    struct calls_edge edge = {.route = route, .tell = tell};
    calls = calls_new(&edge, methods, 100);
    destination = 1, now_ms = 5000, deaf = false;
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
    uint64_t number = calls_enter(calls, &one.call, 1);
    calls_enter(calls, &two.call, 2);
    calls_enter(calls, &three.call, 3);
    cr_expect_null(calls_take(calls, number, 2), "with another");
    cr_expect_eq(calls_take(calls, number, 1), &one.call);
    cr_expect_null(calls_take(calls, number, 1), "taken already");
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
