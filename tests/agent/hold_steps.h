/* For tests of agent/hold.h: one of them, its time, what it orders, and what comes of that. */
#ifndef COORD_TESTS_AGENT_HOLD_STEPS_H
#define COORD_TESTS_AGENT_HOLD_STEPS_H

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/hold.h"

enum { TTL = 15000 };

static struct hold hold;
static uint64_t now;
static struct hold_order order;

static inline void begin_as(const struct hold_rules *rules) {
    now = 1000000;
    hold_begin(&hold, rules, now);
}
static inline void begin(uint64_t wait_ms) {
    begin_as(&(struct hold_rules){.what = "lock \"x\"",
                                  .late = "was not obtained in time",
                                  .not_free = "is taken",
                                  .ttl_ms = TTL,
                                  .wait_ms = wait_ms});
}

/* Looks at who is in the way are passed over, and not answered, unless one is what is wanted. */
static inline void next_but(enum hold_act wanted) {
    order = hold_next(&hold, now);
    if (order.act == HOLD_PEEK && wanted != HOLD_PEEK) order = hold_next(&hold, now);
}
static inline void idle(uint64_t until) {
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

static inline void answer(enum hold_line line, const struct hold_answer *from) {
    hold_answered(&hold, line, from, now);
}
static inline void fails(enum hold_line line, long status) {
    answer(line, &(struct hold_answer){.status = status, .text = "why"});
}
static inline void session(void) { answer(HOLD_GRANT, &(struct hold_answer){.status = 200, .session = "s"}); }
static inline void granted(void) { answer(HOLD_GRANT, &(struct hold_answer){.status = 200, .held = true, .token = 7}); }
static inline void queued(void) { answer(HOLD_GRANT, &(struct hold_answer){.status = 200}); }
static inline void renewed(void) {
    answer(HOLD_RENEWAL, &(struct hold_answer){.status = 200, .token = 7, .not_before_ms = TTL});
}
static inline void ended(int status) { hold_ended(&hold, &(struct supervisor_end){.status = status}, now); }
static inline void released(void) { answer(HOLD_GRANT, &(struct hold_answer){.status = 200}); }

/* As waitpid gives it. */
static inline int exited(int code) { return code << 8; }

static inline void run_it(void) {
    begin(HOLD_FOREVER);
    NEXT(HOLD_ASK);
    now += 5;
    session();
    NEXT(HOLD_WAIT);
    now += 5;
    granted();
    NEXT(HOLD_START);
}

static inline void wait_for_it(uint64_t wait_ms) {
    begin(wait_ms);
    NEXT(HOLD_ASK);
    session();
    NEXT(HOLD_WAIT);
}

#endif
