/* Asks that are not answered: what is lost, late, too much, or meets the end of a process. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "ask_world.h"

TestSuite(ask_ends, .init = open_world, .fini = close_world);

/* -- what is lost -------------------------------------------------------------------------------------------------- */
Test(ask_ends, lost_before_it_left_the_first_server) {
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

Test(ask_ends, who_has_it_is_lost_while_others_are_asked) {
    struct mine mine;
    s1_s3->stuck = true;
    ask(&mine, A, "b"); /* S2 says that it has it */
    cut(s1_s2);
    cr_assert_eq(mine.ends, 0);
    s1_s3->stuck = false;
    run();
    expect_not_delivered(&mine, CO_IO);
}

Test(ask_ends, lost_on_its_way_to_the_other_server) {
    struct mine warm, mine;
    ask(&warm, A, "b");
    expect_answer(&warm, "b:hello");
    s1_s2->stuck = true;
    ask(&mine, A, "b");
    cut(s1_s2);
    expect_maybe(&mine, CO_UNKNOWN_OUTCOME);
}

Test(ask_ends, lost_on_its_way_to_the_agent) {
    struct mine mine;
    b_s2->stuck = true;
    ask(&mine, A, "b");
    cut(b_s2);
    expect_maybe(&mine, CO_UNKNOWN_OUTCOME);
    ask(&mine, A, "b"); /* it is gone now */
    expect_not_delivered(&mine, CO_NOTFOUND);
    cr_assert_eq(processes[B].asked, 0);
}

Test(ask_ends, lost_after_it_was_delivered) {
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

Test(ask_ends, the_own_connection_is_lost) {
    struct mine mine;
    processes[B].keeps = true;
    ask(&mine, A, "b");
    cut(a_s1);
    expect_maybe(&mine, CO_UNKNOWN_OUTCOME);
    answer_kept(B, "nobody hears this");
}

/* Nobody waits for what has not been sent. */
Test(ask_ends, what_is_looked_for_is_dropped_with_who_asked) {
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
Test(ask_ends, no_answer_in_time) {
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

Test(ask_ends, it_is_not_delivered_after_its_time) {
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

/* An ask whose node is still looked for surely ends. */
Test(ask_ends, time_is_up_while_it_is_looked_for) {
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
Test(ask_ends, it_is_not_sent_when_its_time_is_up) {
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

Test(ask_ends, an_answer_that_is_given_later) {
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

/* -- bounds -------------------------------------------------------------------------------------------------------- */
Test(ask_ends, the_largest_payload_and_answer) {
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

Test(ask_ends, no_more_than_so_many_of_an_agent) {
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

Test(ask_ends, no_more_than_so_many_wait_for_a_server) {
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
Test(ask_ends, no_more_than_so_many_questions_for_one_connection) {
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
Test(ask_ends, no_more_than_so_many_for_an_agent) {
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

Test(ask_ends, no_more_than_so_many_bytes_are_queued) {
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

Test(ask_ends, no_more_than_so_many_bytes_are_kept) {
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

Test(ask_ends, no_more_than_so_many_nodes_are_looked_for) {
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
Test(ask_ends, who_stops_ends_what_it_asked) {
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

Test(ask_ends, a_server_that_stops_says_what_was_sent) {
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

Test(ask_ends, an_agent_that_stops_is_not_there_any_more) {
    struct mine mine;
    asks_stop(processes[B].asks);
    ask(&mine, A, "b");
    expect_not_delivered(&mine, CO_NOTFOUND);
    cr_assert_eq(processes[B].asked, 0);
}

Test(ask_ends, a_question_is_answered_after_the_stop) {
    struct mine mine;
    processes[B].keeps = true;
    ask(&mine, A, "b");
    asks_stop(processes[B].asks);
    answer_kept(B, "last");
    expect_answer(&mine, "last");
}
