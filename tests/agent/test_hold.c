/* The decisions of `coord lock`: when to ask for what, when its command has to end, and with which exit code. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "hold_steps.h"

Test(hold, asks_for_a_session_and_then_for_the_lock) {
    run_it();
    cr_assert_eq(hold.token, 7u);
    cr_assert_str_eq(hold.session, "s");
    cr_assert_eq(hold.sent_ms, 1000000u, "it is certain from the sending on");
    cr_assert_eq(hold.not_before_ms, (uint64_t)TTL);
    now += 100;
    ended(exited(3));
    NEXT(HOLD_RELEASE);
    cr_assert_eq(order.wait_ms, 0u);
    released();
    EXITS(3);
    SAYS_NOTHING();
}

Test(hold, renews_at_a_third_of_the_ttl_and_tells_the_supervisor) {
    run_it();
    for (uint64_t sent = 1000000; sent < 1020000; sent += TTL / 3) {
        IDLE(sent + TTL / 3);
        NEXT(HOLD_RENEW);
        cr_assert_leq(order.timeout_ms, TTL / 6 + 1u);
        now += 20;
        renewed();
        NEXT(HOLD_TELL);
        cr_assert_eq(hold.sent_ms, sent + TTL / 3);
        cr_assert_eq(hold.not_before_ms, (uint64_t)TTL);
        now -= 20;
    }
}

Test(hold, renews_again_when_nobody_answers_and_says_it_once) {
    run_it();
    now += TTL / 3;
    NEXT(HOLD_RENEW);
    now += order.timeout_ms;
    fails(HOLD_RENEWAL, 0);
    NEXT(HOLD_NOTHING);
    cr_assert_leq(order.until_ms, now + TTL / 15 + 1);
    SAYS("why");
    now = order.until_ms;
    NEXT(HOLD_RENEW);
    fails(HOLD_RENEWAL, 500);
    SAYS_NOTHING();
    NEXT(HOLD_NOTHING);
    now = order.until_ms;
    NEXT(HOLD_RENEW);
    renewed();
    NEXT(HOLD_TELL);
    hold_ended(&hold, &(struct supervisor_end){.status = SIGTERM, .by_us = true}, now);
    SAYS("could not be renewed");
    NEXT(HOLD_RELEASE);
    released();
    EXITS(HOLD_EXIT_LOST);
}

Test(hold, kills_at_once_when_it_is_lost) {
    run_it();
    now += TTL / 3;
    NEXT(HOLD_RENEW);
    fails(HOLD_RENEWAL, 404);
    NEXT(HOLD_KILL);
    SAYS("is lost");
    NEXT(HOLD_NOTHING);
    ended(SIGKILL);
    EXITS(HOLD_EXIT_LOST);
}

Test(hold, keeps_the_code_of_a_command_that_ended_well_all_the_same) {
    run_it();
    hold_ended(&hold, &(struct supervisor_end){.status = exited(0), .by_us = true}, now);
    NEXT(HOLD_RELEASE);
    released();
    EXITS(0);
}

Test(hold, has_the_codes_of_a_shell) {
    static const struct {
        struct supervisor_end end;
        int code;
    } of[] = {{{.status = 0}, 0},
              {{.status = 0x4d00}, 77},
              {{.status = SIGTERM}, 143},
              {{.exec_errno = ENOENT}, 127},
              {{.exec_errno = EACCES}, 126}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        run_it();
        hold_ended(&hold, &of[i].end, now);
        NEXT(HOLD_RELEASE);
        fails(HOLD_GRANT, 409); /* it had ended meanwhile */
        EXITS(of[i].code);
    }
}

Test(hold, tries_to_release_for_a_while) {
    run_it();
    ended(exited(0));
    uint64_t begun = now;
    for (int tries = 0; tries < 100; tries++) {
        order = hold_next(&hold, now);
        if (order.act == HOLD_EXIT) break;
        if (order.act == HOLD_RELEASE) fails(HOLD_GRANT, 0);
        else now = order.until_ms;
    }
    SAYS("could not be released");
    EXITS(0);
    cr_assert(now > begun + 1000 && now < begun + 10000);
}

/* -- waiting ------------------------------------------------------------------------------------------------------ */

Test(hold, waits_in_rounds_and_renews_its_session) {
    wait_for_it(HOLD_FOREVER);
    cr_assert_eq(order.wait_ms, 600000u);
    IDLE(1000000 + TTL / 3);
    NEXT(HOLD_RENEW_SESSION);
    renewed();
    IDLE(1000000 + 2 * (TTL / 3));
    NEXT(HOLD_RENEW_SESSION);
    now = 1600000;
    queued(); /* the round is over */
    NEXT(HOLD_WAIT);
}

Test(hold, starts_at_once_when_its_session_is_known_to_live) {
    wait_for_it(HOLD_FOREVER);
    now += TTL / 3;
    NEXT(HOLD_RENEW_SESSION);
    renewed();
    now += 100;
    granted();
    NEXT(HOLD_START);
    cr_assert_eq(hold.sent_ms, 1000000u + TTL / 3);
}

/* Its answer says nothing of NotBefore. */
Test(hold, takes_the_renewal_of_its_session_that_was_under_way) {
    wait_for_it(HOLD_FOREVER);
    now += TTL / 3;
    NEXT(HOLD_RENEW_SESSION);
    granted();
    NEXT(HOLD_START);
    answer(HOLD_RENEWAL, &(struct hold_answer){.status = 200});
    NEXT(HOLD_TELL);
    cr_assert_eq(hold.sent_ms, 1000000u + TTL / 3);
    cr_assert_eq(hold.not_before_ms, (uint64_t)TTL);
}

Test(hold, confirms_what_may_be_long_ago) {
    wait_for_it(HOLD_FOREVER);
    now += 40000; /* it was stopped */
    granted();
    NEXT(HOLD_RENEW);
    renewed();
    NEXT(HOLD_START);
    cr_assert_eq(hold.sent_ms, now);
}

Test(hold, does_not_start_on_an_old_grant) {
    wait_for_it(HOLD_FOREVER);
    now += 40000;
    granted();
    NEXT(HOLD_RENEW);
    now += TTL;
    renewed(); /* an answer from long ago */
    NEXT(HOLD_RENEW);
    fails(HOLD_RENEWAL, 404);
    SAYS("anew");
    IDLE(now + 250);
    NEXT(HOLD_ASK);
}

Test(hold, waits_no_longer_than_it_was_told) {
    wait_for_it(2000);
    cr_assert_eq(order.wait_ms, 2000u);
    now += 2000;
    queued();
    NEXT(HOLD_RELEASE);
    SAYS("in time");
    released();
    EXITS(HOLD_EXIT_NOT_OBTAINED);
}

Test(hold, waits_no_longer_for_a_server_that_hangs) {
    wait_for_it(2000);
    IDLE(1003000);
    NEXT(HOLD_RELEASE);
    SAYS("no answer in time");
    IDLE(1004000);
    EXITS(HOLD_EXIT_NOT_OBTAINED);
    SAYS("could not be released");
}

/* No session, because there is no leader: the agent waits for one longer than the command may wait. */
Test(hold, waits_no_longer_for_a_session) {
    static const struct { uint64_t wait_ms, end_ms; } rows[] = {{5000, 5000}, {1000, 1000}, {10, 1000}, {0, 10000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(rows[i].wait_ms);
        NEXT(HOLD_ASK);
        while ((order = hold_next(&hold, now)).act != HOLD_EXIT) {
            cr_assert(order.act == HOLD_NOTHING || order.act == HOLD_PEEK, "%d", (int)order.act);
            if (order.act == HOLD_NOTHING) now = order.until_ms;
        }
        cr_assert_eq(now, 1000000 + rows[i].end_ms, "%zu: %llu", i, (unsigned long long)now);
        cr_assert_eq(order.number, HOLD_EXIT_NOT_OBTAINED);
        SAYS("no answer in time");
    }
}

Test(hold, does_not_wait_when_it_is_told_so) {
    begin(0);
    NEXT(HOLD_ASK);
    NEXT(HOLD_NOTHING);
    cr_assert_gt(order.until_ms, now, "it does not spin");
    now += 100;
    session();
    NEXT(HOLD_WAIT);
    cr_assert_eq(order.wait_ms, 0u);
    NEXT(HOLD_NOTHING);
    cr_assert_gt(order.until_ms, now);
    now += 100;
    queued();
    NEXT(HOLD_RELEASE);
    SAYS("taken");
    fails(HOLD_GRANT, 409); /* it has no place */
    EXITS(HOLD_EXIT_NOT_OBTAINED);
}

Test(hold, takes_its_place_again_when_the_server_is_back) {
    wait_for_it(HOLD_FOREVER);
    fails(HOLD_GRANT, 0);
    SAYS("why");
    IDLE(now + 1000);
    NEXT(HOLD_WAIT);
    fails(HOLD_GRANT, 500);
    SAYS_NOTHING();
    IDLE(now + 1000);
    NEXT(HOLD_WAIT);
    now += TTL;
    fails(HOLD_GRANT, 404); /* its session has ended */
    SAYS("anew");
    IDLE(now + 250);
    NEXT(HOLD_ASK);
}

Test(hold, asks_again_for_as_long_as_it_may_wait) {
    begin(2500);
    NEXT(HOLD_ASK);
    fails(HOLD_GRANT, 500);
    SAYS("no answer yet, trying again: why");
    IDLE(1001000);
    NEXT(HOLD_ASK);
    fails(HOLD_GRANT, 0);
    SAYS_NOTHING();
    IDLE(1002000);
    NEXT(HOLD_ASK);
    fails(HOLD_GRANT, 500);
    IDLE(1002500);
    EXITS(HOLD_EXIT_NOT_OBTAINED);
    begin(2500);
    NEXT(HOLD_ASK);
    fails(HOLD_GRANT, 500);
    IDLE(1001000);
    NEXT(HOLD_ASK);
    session();
    NEXT(HOLD_WAIT);
    cr_assert_eq(order.wait_ms, 1500u, "what is left of its time");
}

Test(hold, does_not_spin_when_its_wait_is_answered_early) {
    wait_for_it(HOLD_FOREVER);
    now += 10;
    queued();
    IDLE(1001000);
    NEXT(HOLD_WAIT);
    now += 1200;
    queued();
    NEXT(HOLD_WAIT);
}

Test(hold, gives_up_what_it_cannot_confirm_in_its_time) {
    wait_for_it(50000);
    now += 40000;
    granted();
    NEXT(HOLD_RENEW);
    fails(HOLD_RENEWAL, 500);
    SAYS("is not renewed yet, trying again: why");
    while ((order = hold_next(&hold, now)).act != HOLD_RELEASE) {
        cr_assert_lt(now, 1050000u, "its time is up");
        if (order.act == HOLD_RENEW) fails(HOLD_RENEWAL, 0);
        else now = order.until_ms;
    }
    cr_assert_geq(now, 1050000u);
    SAYS("in time");
    released();
    EXITS(HOLD_EXIT_NOT_OBTAINED);
}

Test(hold, does_not_wait_for_a_server_that_was_never_there) {
    begin(HOLD_FOREVER);
    NEXT(HOLD_ASK);
    answer(HOLD_GRANT, &(struct hold_answer){.unreachable = true, .text = "refused"});
    EXITS(HOLD_EXIT_NOT_OBTAINED);
    SAYS("refused");
}

Test(hold, gives_up_at_once_what_is_refused) {
    static const struct {
        long status;
        int code;
    } of[] = {
        {400, HOLD_EXIT_ERROR}, {403, HOLD_EXIT_ERROR}, {409, HOLD_EXIT_NOT_OBTAINED}, {429, HOLD_EXIT_NOT_OBTAINED}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        begin(HOLD_FOREVER);
        NEXT(HOLD_ASK);
        fails(HOLD_GRANT, of[i].status);
        EXITS(of[i].code);
        SAYS("why");
    }
    static const long refusals[] = {409 /* a circle */,
                                    404 /* there are no locks, or somebody destroyed the session */};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        wait_for_it(HOLD_FOREVER);
        fails(HOLD_GRANT, refusals[i]);
        NEXT(HOLD_RELEASE);
        released();
        EXITS(HOLD_EXIT_NOT_OBTAINED);
    }
}

/* -- signals ------------------------------------------------------------------------------------------------------ */

Test(hold, passes_signals_on) {
    run_it();
    hold_signalled(&hold, SIGHUP, now);
    NEXT(HOLD_FORWARD);
    cr_assert_eq(order.number, SIGHUP);
    NEXT(HOLD_NOTHING);
    hold_signalled(&hold, SIGTERM, now);
    NEXT(HOLD_FORWARD);
    ended(SIGTERM);
    hold_signalled(&hold, SIGTERM, now); /* to both of them: it is released all the same */
    NEXT(HOLD_RELEASE);
    released();
    EXITS(143);
}

Test(hold, leaves_the_queue_when_it_is_interrupted) {
    wait_for_it(HOLD_FOREVER);
    hold_signalled(&hold, SIGINT, now);
    NEXT(HOLD_RELEASE);
    released();
    EXITS(130);
    wait_for_it(HOLD_FOREVER);
    hold_signalled(&hold, SIGINT, now);
    NEXT(HOLD_RELEASE);
    hold_signalled(&hold, SIGINT, now); /* it is meant */
    EXITS(130);
}

Test(hold, waits_for_the_session_that_is_to_be_released) {
    begin(HOLD_FOREVER);
    NEXT(HOLD_ASK);
    hold_signalled(&hold, SIGINT, now);
    NEXT(HOLD_NOTHING);
    now += 100;
    session();
    NEXT(HOLD_RELEASE);
    released();
    EXITS(130);
    begin(HOLD_FOREVER);
    NEXT(HOLD_ASK);
    hold_signalled(&hold, SIGINT, now);
    IDLE(1002000);
    EXITS(130);
}

/* -- what may outlive it, and waits for others -------------------------------------------------------------------- */

Test(hold, of_a_barrier_has_no_deadline_and_leaves_together) {
    begin_as(&(struct hold_rules){
        .what = "barrier \"x\"", .ttl_ms = TTL, .wait_ms = 60000, .leave_ms = 60000, .unbounded = true});
    NEXT(HOLD_ASK);
    session();
    NEXT(HOLD_WAIT);
    answer(HOLD_GRANT, &(struct hold_answer){.status = 200, .held = true});
    NEXT(HOLD_START);
    cr_assert_eq(hold.not_before_ms, SUPERVISOR_NEVER);
    IDLE(1000000 + TTL / 3);
    NEXT(HOLD_RENEW_SESSION);
    fails(HOLD_RENEWAL, 404);
    NEXT(HOLD_NOTHING); /* the command goes on */
    ended(exited(0));
    NEXT(HOLD_RELEASE);
    cr_assert_eq(order.wait_ms, 60000u);
    now += 30000;
    released(); /* not by all others yet */
    do {
        order = hold_next(&hold, now);
        if (order.act == HOLD_RENEW_SESSION) renewed();
        if (order.act == HOLD_NOTHING) now = order.until_ms;
    } while (order.act != HOLD_RELEASE);
    cr_assert(order.wait_ms > 29000 && order.wait_ms <= 30000);
    answer(HOLD_GRANT, &(struct hold_answer){.status = 200, .held = true});
    EXITS(0);
}

/* At work in a double barrier. */
static void work_together(void) {
    begin_as(&(struct hold_rules){
        .what = "barrier \"x\"", .ttl_ms = TTL, .wait_ms = 60000, .leave_ms = 60000, .unbounded = true});
    NEXT(HOLD_ASK);
    session();
    NEXT(HOLD_WAIT);
    answer(HOLD_GRANT, &(struct hold_answer){.status = 200, .held = true});
    NEXT(HOLD_START);
}

Test(hold, of_a_barrier_says_each_time_that_it_is_not_renewed) {
    work_together();
    for (int times = 0; times < 2; times++) {
        NEXT(HOLD_NOTHING);
        now = order.until_ms;
        NEXT(HOLD_RENEW_SESSION);
        fails(HOLD_RENEWAL, 500);
        SAYS("is not renewed yet");
        NEXT(HOLD_NOTHING);
        now = order.until_ms;
        NEXT(HOLD_RENEW_SESSION);
        fails(HOLD_RENEWAL, 500);
        SAYS_NOTHING();
        NEXT(HOLD_NOTHING);
        now = order.until_ms;
        NEXT(HOLD_RENEW_SESSION);
        renewed();
        SAYS_NOTHING();
    }
}

Test(hold, of_a_barrier_can_be_interrupted_while_it_waits_for_the_others_to_leave) {
    work_together();
    ended(exited(0));
    NEXT(HOLD_RELEASE);
    fails(HOLD_GRANT, 500);
    SAYS("is not left yet, trying again: why");
    IDLE(now + 250);
    NEXT(HOLD_RELEASE);
    hold_signalled(&hold, SIGINT, now);
    EXITS(130);
}

Test(hold, of_a_barrier_does_not_wait_for_others_that_it_never_met) {
    begin_as(&(struct hold_rules){.what = "barrier \"x\"",
                                  .late = "was not released in time",
                                  .ttl_ms = TTL,
                                  .wait_ms = 2000,
                                  .leave_ms = 2000,
                                  .unbounded = true});
    NEXT(HOLD_ASK);
    session();
    NEXT(HOLD_WAIT);
    now += 2000;
    queued();
    NEXT(HOLD_RELEASE);
    cr_assert_eq(order.wait_ms, 0u);
    released();
    EXITS(HOLD_EXIT_NOT_OBTAINED);
}
