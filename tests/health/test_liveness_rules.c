/* The orders of the node lease's deciding part, with answers and times made up. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/error.h"
#include "health/liveness.h"

#define ID     "0c8b5fd8-2166-4a20-a1b1-516072ab0001"
#define OTHER  "0c8b5fd8-2166-4a20-a1b1-516072ab0002"
#define TTL_MS 9000

static struct liveness liveness;
static uint64_t now_ms;

static void begin(void) {
    struct liveness_rules rules = {.node = "n1", .ttl_ns = INT64_C(1000000) * TTL_MS, .seed = 7};
    now_ms = 100000;
    liveness_begin(&liveness, &rules, now_ms);
}

static struct liveness_order next(void) { return liveness_next(&liveness, true, now_ms); }
static void expect(enum liveness_act act) { cr_assert_eq(next().act, act); }

static void answer(int error, int refused, const char *id) {
    liveness_answered(&liveness, &(struct liveness_answer){.error = error, .refused = refused, .text = "why", .id = id},
                      now_ms);
}

/* Until it is to look again. */
static void wait(void) {
    struct liveness_order order = next();
    cr_assert(order.act == LIVENESS_REST && order.until_ms != LIVENESS_NEVER && order.until_ms > now_ms);
    now_ms = order.until_ms;
}

static void hold(void) {
    begin();
    expect(LIVENESS_GRANT);
    cr_assert(!liveness_may_write(&liveness));
    answer(CO_OK, CO_OK, ID);
    expect(LIVENESS_CHANGED);
    cr_assert_str_eq(liveness_lease(&liveness), ID);
}

Test(liveness_rules, one_question_at_a_time) {
    begin();
    expect(LIVENESS_GRANT);
    cr_assert(next().act == LIVENESS_REST && next().until_ms == LIVENESS_NEVER);
    now_ms += 3600000;
    expect(LIVENESS_REST);
}

Test(liveness_rules, it_renews_within_a_third_of_the_ttl_and_soon_again_after_a_lost_answer) {
    hold();
    uint64_t granted_ms = now_ms;
    wait();
    cr_assert(now_ms - granted_ms <= TTL_MS / 3 && now_ms - granted_ms >= TTL_MS * 3 / 10);
    expect(LIVENESS_RENEW);
    for (int i = 0; i < 10; i++) {
        uint64_t lost_ms = now_ms;
        answer(CO_NOLEADER, CO_OK, NULL);
        cr_assert(liveness_may_write(&liveness), "nobody says that it has ended");
        wait();
        cr_assert_leq(now_ms - lost_ms, 3000);
        expect(LIVENESS_RENEW);
    }
    answer(CO_OK, CO_OK, NULL);
    wait();
    expect(LIVENESS_RENEW);
}

Test(liveness_rules, a_lease_that_has_ended_is_asked_for_anew_at_once) {
    hold();
    wait();
    expect(LIVENESS_RENEW);
    answer(CO_NOTFOUND, CO_OK, NULL);
    expect(LIVENESS_CHANGED);
    cr_assert(!liveness_may_write(&liveness));
    expect(LIVENESS_GRANT);
}

Test(liveness_rules, it_waits_while_another_has_the_name) {
    begin();
    expect(LIVENESS_GRANT);
    for (int i = 0; i < 8; i++) {
        uint64_t refused_ms = now_ms;
        answer(CO_OK, CO_EXISTS, NULL);
        if (i == 0) expect(LIVENESS_CHANGED);
        cr_assert(!liveness_may_write(&liveness));
        wait();
        cr_assert(now_ms - refused_ms >= 1000 && now_ms - refused_ms <= 3000);
        expect(LIVENESS_GRANT);
    }
    answer(CO_OK, CO_OK, ID);
    expect(LIVENESS_CHANGED);
    cr_assert(liveness_may_write(&liveness));
}

Test(liveness_rules, a_void_lease_is_replaced_and_only_that_one) {
    hold();
    liveness_replace(&liveness, OTHER);
    cr_assert(liveness_may_write(&liveness));
    liveness_replace(&liveness, ID);
    cr_assert(!liveness_may_write(&liveness) && !liveness_lease(&liveness));
    expect(LIVENESS_CHANGED);
    expect(LIVENESS_GRANT);
    answer(CO_OK, CO_OK, OTHER);
    expect(LIVENESS_CHANGED);
    cr_assert_str_eq(liveness_lease(&liveness), OTHER);
}

Test(liveness_rules, a_backup_is_compared_once) {
    hold();
    wait();
    for (int i = 0; i < 3; i++) {
        expect(LIVENESS_RENEW);
        liveness_answered(&liveness, &(struct liveness_answer){.text = "", .restored = 41}, now_ms);
        if (i == 0) expect(LIVENESS_COMPARE);
        wait();
    }
}

Test(liveness_rules, it_leaves_once_and_asks_for_nothing_afterwards) {
    hold();
    liveness_leave(&liveness, now_ms);
    struct liveness_order order = next();
    cr_assert(order.act == LIVENESS_END);
    cr_assert_str_eq(order.lease, ID);
    wait();
    order = next();
    cr_assert(order.act == LIVENESS_LEFT && order.error == CO_TIMEOUT);
    answer(CO_OK, CO_OK, NULL); /* too late */
    cr_assert(next().act == LIVENESS_REST && next().until_ms == LIVENESS_NEVER);
}

Test(liveness_rules, a_grant_that_comes_after_it_has_left_holds_nothing) {
    begin();
    expect(LIVENESS_GRANT);
    liveness_leave(&liveness, now_ms);
    wait();
    expect(LIVENESS_LEFT);
    answer(CO_OK, CO_OK, ID);
    cr_assert(!liveness_may_write(&liveness) && next().act == LIVENESS_REST);
}
