/* Asks: which way they go, and whom is believed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "ask_world.h"

TestSuite(asks, .init = open_world, .fini = close_world);

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
    cr_assert_eq(frames_of[PEER_ASK], 0);
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
