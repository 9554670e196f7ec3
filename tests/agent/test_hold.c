/* What `coord lock` decides: when to ask for what, when its command has to end, and with which exit code. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/hold.h"

enum { TTL = 15000 };

static struct hold hold;
static uint64_t now;
static struct hold_order order;

static void begin_as(const struct hold_rules *rules) {
    now = 1000000;
    hold_begin(&hold, rules, now);
}
static void begin(uint64_t wait_ms) {
    begin_as(&(struct hold_rules){.what = "lock \"x\"",
                                  .late = "was not obtained in time",
                                  .not_free = "is taken",
                                  .ttl_ms = TTL,
                                  .wait_ms = wait_ms});
}

/* Looks at who is in the way are passed over, and not answered, unless one is what is wanted. */
static void next_but(enum hold_act wanted) {
    order = hold_next(&hold, now);
    if (order.act == HOLD_PEEK && wanted != HOLD_PEEK) order = hold_next(&hold, now);
}
static void idle(uint64_t until) {
    next_but(HOLD_NOTHING);
    if (order.act != HOLD_NOTHING || order.until_ms >= until || order.until_ms <= now) return;
    uint64_t then = now;
    now = order.until_ms;
    if (hold_next(&hold, now).act == HOLD_PEEK) order = hold_next(&hold, now);
    else now = then;
}

#define NEXT(wanted)                                             \
    do {                                                         \
        next_but(wanted);                                        \
        cr_assert_eq(order.act, (wanted), "%d", (int)order.act); \
    } while (0)
/* Nothing is to be done until then, which comes. */
#define IDLE(until)                                                                          \
    do {                                                                                     \
        idle(until);                                                                         \
        cr_assert_eq(order.act, HOLD_NOTHING, "%d", (int)order.act);                         \
        cr_assert_eq(order.until_ms, (until), "%llu", (unsigned long long)(order.until_ms)); \
        now = (until);                                                                       \
    } while (0)
#define SAYS(text)                                                 \
    do {                                                           \
        cr_assert(strstr(hold.say, (text)), "says: %s", hold.say); \
        hold.say[0] = '\0';                                        \
    } while (0)
#define SAYS_NOTHING() cr_assert_str_empty(hold.say)
#define EXITS(code)                                             \
    do {                                                        \
        NEXT(HOLD_EXIT);                                        \
        cr_assert_eq(order.number, (code), "%d", order.number); \
    } while (0)

static void answer(enum hold_line line, const struct hold_answer *from) { hold_answered(&hold, line, from, now); }
static void fails(enum hold_line line, long status) {
    answer(line, &(struct hold_answer){.status = status, .text = "why"});
}
static void session(void) { answer(HOLD_GRANT, &(struct hold_answer){.status = 200, .session = "s"}); }
static void granted(void) { answer(HOLD_GRANT, &(struct hold_answer){.status = 200, .held = true, .token = 7}); }
static void queued(void) { answer(HOLD_GRANT, &(struct hold_answer){.status = 200}); }
static void renewed(void) {
    answer(HOLD_RENEWAL, &(struct hold_answer){.status = 200, .token = 7, .not_before_ms = TTL});
}
static void ended(int status) { hold_ended(&hold, &(struct supervisor_end){.status = status}, now); }
static void released(void) { answer(HOLD_GRANT, &(struct hold_answer){.status = 200}); }

/* As waitpid gives it. */
static int exited(int code) { return code << 8; }

static void run_it(void) {
    begin(HOLD_FOREVER);
    NEXT(HOLD_ASK);
    now += 5;
    session();
    NEXT(HOLD_WAIT);
    now += 5;
    granted();
    NEXT(HOLD_START);
}

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

/* -- looking at what it holds ------------------------------------------------------------------------------------- */

static void run_watched(bool unbounded) {
    begin_as(&(struct hold_rules){
        .what = "lock \"x\"", .ttl_ms = TTL, .wait_ms = HOLD_FOREVER, .unbounded = unbounded, .watched = true});
    NEXT(HOLD_ASK);
    session();
    NEXT(HOLD_WAIT);
    granted();
    NEXT(HOLD_START);
    NEXT(HOLD_LOOK);
    cr_assert_eq(order.index, 7u, "for what is newer than its grant");
    cr_assert_gt(order.wait_ms, TTL / 4u);
    cr_assert_lt(order.wait_ms + order.wait_ms / 16, TTL / 3u, "the server adds up to a sixteenth; then it renews");
    cr_assert_leq(order.timeout_ms, TTL / 3u);
}
static void looks(bool held, bool shared, uint64_t token, uint64_t index) {
    answer(HOLD_LOOKING,
           &(struct hold_answer){
               .status = 200, .told = true, .held = held, .shared = shared, .token = token, .index = index});
}
static void ends_at_once(void) {
    NEXT(HOLD_KILL);
    SAYS("is lost");
    NEXT(HOLD_NOTHING);
    ended(SIGKILL);
    EXITS(HOLD_EXIT_LOST);
}

Test(hold, kills_at_once_when_it_sees_that_it_is_lost) {
    for (int unbounded = 0; unbounded < 2; unbounded++) {
        run_watched(unbounded);
        now += 300;
        looks(false, false, 0, 9); /* its session has ended, or somebody released it */
        ends_at_once();
    }
}

Test(hold, kills_when_it_was_granted_to_another_in_between) {
    run_watched(false);
    looks(true, false, 12, 12);
    ends_at_once();
}

Test(hold, of_a_shared_lock_may_have_another_token_with_its_session) {
    run_watched(false);
    now += 2000;
    looks(true, true, 12, 12);
    NEXT(HOLD_LOOK);
    cr_assert_eq(order.index, 12u);
}

Test(hold, looks_again_when_nothing_has_changed) {
    run_watched(false);
    uint64_t asked = now;
    now += 10;
    looks(true, false, 7, 7);
    IDLE(asked + 1000); /* it does not spin */
    NEXT(HOLD_LOOK);
    cr_assert_eq(order.index, 7u);
}

/* A holder has one connection. */
Test(hold, never_looks_beside_a_renewal) {
    run_watched(false);
    IDLE(1000000 + TTL / 3); /* the server hangs */
    NEXT(HOLD_RENEW);
    cr_assert(!hold.requests[HOLD_LOOKING].under_way, "the renewal has its place");
    NEXT(HOLD_NOTHING);
    renewed();
    NEXT(HOLD_TELL);
    NEXT(HOLD_LOOK);
    now += TTL / 3 - 50;
    looks(true, false, 7, 7);
    IDLE(1000000 + 2 * (TTL / 3)); /* for so short it is not worth while */
    NEXT(HOLD_RENEW);
}

/* Nothing of that says that it is lost; as long as it is renewed, the command goes on. */
Test(hold, goes_on_without_a_word_that_it_is_lost) {
    static const long statuses[] = {0, 500, 503, 404, 429, 200 /* not of this session, or no JSON */};
    run_watched(false);
    for (int round = 0; round < 200; round++) {
        if (order.act == HOLD_LOOK) fails(HOLD_LOOKING, statuses[(size_t)round % (sizeof statuses / sizeof *statuses)]);
        else if (order.act == HOLD_RENEW) renewed();
        else if (order.act == HOLD_NOTHING) now = order.until_ms;
        else cr_assert_eq(order.act, HOLD_TELL, "%d", (int)order.act);
        order = hold_next(&hold, now);
    }
    SAYS_NOTHING();
    cr_assert_gt(now, 1000000u + TTL, "for longer than its first grant");
}

/* It may be what keeps the agent from taking one more connection. */
Test(hold, does_not_look_while_it_is_not_renewed) {
    run_watched(false);
    IDLE(1000000 + TTL / 3);
    NEXT(HOLD_RENEW);
    fails(HOLD_RENEWAL, 0);
    SAYS("is not renewed yet");
    cr_assert(!hold.requests[HOLD_LOOKING].under_way, "its connection is free");
    for (int i = 0; i < 3; i++) {
        NEXT(HOLD_NOTHING);
        now = order.until_ms;
        NEXT(HOLD_RENEW);
        fails(HOLD_RENEWAL, 500);
    }
    NEXT(HOLD_NOTHING);
    now = order.until_ms;
    NEXT(HOLD_RENEW);
    renewed();
    NEXT(HOLD_TELL);
    NEXT(HOLD_LOOK);
    looks(false, false, 0, 9); /* lost meanwhile */
    ends_at_once();
}

/* And it ends as ever when it is not: looks that succeed prolong nothing. */
Test(hold, is_not_prolonged_by_looks) {
    run_watched(false);
    uint64_t sent = hold.sent_ms;
    for (int round = 0; round < 100; round++) {
        if (order.act == HOLD_LOOK) looks(true, false, 7, 7);
        else if (order.act == HOLD_RENEW) fails(HOLD_RENEWAL, 0);
        else if (order.act == HOLD_NOTHING) now = order.until_ms;
        else cr_assert_fail("%d", (int)order.act);
        order = hold_next(&hold, now);
    }
    cr_assert_eq(hold.sent_ms, sent);
}

Test(hold, takes_no_word_of_what_it_has_released_itself) {
    run_watched(false);
    ended(exited(0));
    NEXT(HOLD_RELEASE);
    looks(false, false, 0, 9);
    released();
    SAYS_NOTHING();
    EXITS(0);
}

/* -- waiting ------------------------------------------------------------------------------------------------------ */

static void wait_for_it(uint64_t wait_ms) {
    begin(wait_ms);
    NEXT(HOLD_ASK);
    session();
    NEXT(HOLD_WAIT);
}

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

/* -- who is in the way -------------------------------------------------------------------------------------------- */

static void peek(long status, bool leaderless, const char *text) {
    answer(HOLD_LOOKING, &(struct hold_answer){.status = status, .leaderless = leaderless, .text = text});
}

Test(hold, says_once_who_is_in_the_way_after_a_second) {
    wait_for_it(HOLD_FOREVER);
    NEXT(HOLD_NOTHING);
    cr_assert_eq(order.until_ms, 1001000u);
    now = order.until_ms;
    NEXT(HOLD_PEEK);
    now += 5;
    peek(200, false, "is held by web1 (backup.sh) for 5m2s, 2 before you");
    SAYS("lock \"x\" is held by web1 (backup.sh) for 5m2s, 2 before you");
    IDLE(1000000 + TTL / 3);
    NEXT(HOLD_RENEW_SESSION);
    renewed();
    for (int i = 0; i < 20; i++) { /* nothing more but renewals */
        order = hold_next(&hold, now);
        if (order.act == HOLD_NOTHING) now = order.until_ms;
        else if (order.act == HOLD_RENEW_SESSION) renewed();
        else cr_assert_fail("%d", (int)order.act);
    }
}

/* Time passes until it looks again. */
static void until_peek(void) {
    while ((order = hold_next(&hold, now)).act != HOLD_PEEK) {
        cr_assert_lt(now, 1100000u);
        if (order.act == HOLD_RENEW_SESSION) renewed();
        else if (order.act == HOLD_NOTHING) now = order.until_ms;
        else cr_assert_eq(order.act, HOLD_WAIT, "%d", (int)order.act);
    }
}

Test(hold, says_once_that_there_is_no_leader_and_then_who_is_in_the_way) {
    begin(HOLD_FOREVER);
    NEXT(HOLD_ASK);
    for (int i = 0; i < 3; i++) {
        until_peek();
        peek(i == 1 ? 500 : 200, true, "no leader");
        if (i == 0) SAYS("no leader");
        else SAYS_NOTHING();
    }
    session();
    until_peek();
    peek(500, false, "an error page"); /* nothing for people */
    SAYS_NOTHING();
    until_peek();
    peek(200, false, "");
    SAYS_NOTHING();
    until_peek();
    peek(200, false, "is held");
    SAYS("is held");
    for (now += 20000; now < 1060000; now += 1000)
        cr_assert_neq(hold_next(&hold, now).act, HOLD_PEEK, "it has said it");
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
