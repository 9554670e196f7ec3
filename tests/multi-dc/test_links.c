/* When a region is asked what, and what is told how often. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "multi-dc/links.h"

#define STEP_MS 200 /* multi-dc/links_run.c */

Test(links, a_region_is_asked_by_the_leader_while_it_can_be_reached) {
    struct link_schedule link = {.asked = {false}};
    unsigned asked[LINK_QUESTIONS] = {0};
    for (uint64_t now_ms = 1000; now_ms < 61000; now_ms += STEP_MS)
        for (enum link_question q = 0; q < LINK_QUESTIONS; q++) {
            cr_assert(!link_asks(&link, q, false, true, now_ms) && !link_asks(&link, q, true, false, now_ms));
            if (link_asks(&link, q, true, true, now_ms)) asked[q]++, link_answered(&link, q);
        }
    cr_expect_eq(asked[LINK_KNOWN], 60000 / LINKS_KNOWN_MS);
    cr_expect_eq(asked[LINK_SERVERS], 60000 / LINKS_SERVERS_MS);
}

Test(links, a_question_waits_for_the_answer_to_the_one_before) {
    struct link_schedule link = {.asked = {false}};
    cr_assert(link_asks(&link, LINK_KNOWN, true, true, 1000));
    cr_assert(!link_asks(&link, LINK_KNOWN, true, true, 1000000));
    cr_assert(link_asks(&link, LINK_SERVERS, true, true, 1000));
    link_answered(&link, LINK_KNOWN);
    cr_assert(link_asks(&link, LINK_KNOWN, true, true, 1000000));
}

Test(links, servers_that_were_held_back_are_asked_for_again_soon) {
    struct link_schedule link = {.asked = {false}};
    cr_assert(link_asks(&link, LINK_SERVERS, true, true, 1000));
    link_answered(&link, LINK_SERVERS);
    link_held_back(&link, 1100);
    cr_assert(!link_asks(&link, LINK_SERVERS, true, true, 1100 + LINKS_TELL_MS - 1));
    cr_assert(link_asks(&link, LINK_SERVERS, true, true, 1100 + LINKS_TELL_MS));
}

Test(links, how_far_a_region_is_is_told_when_it_is_news_and_not_often) {
    struct link_schedule link = {.asked = {false}};
    cr_assert(!link_tells_seen(&link, false, 1000));
    cr_assert(link_tells_seen(&link, true, 1000));
    cr_assert(!link_tells_seen(&link, true, 1000 + LINKS_SEEN_MS - 1));
    cr_assert(link_tells_seen(&link, true, 1000 + LINKS_SEEN_MS));
}

Test(links, the_same_is_not_proposed_again_before_it_can_be_applied) {
    struct links_told told[LINKS_TOLD] = {{.at_ms = 0}};
    char name[REGION_NAME_MAX + 1] = "r0";
    cr_assert(links_may_tell(told, "eu", 10000) && links_may_tell(told, "us", 10000));
    cr_assert(!links_may_tell(told, "eu", 10000 + LINKS_TELL_MS - 1));
    cr_assert(links_may_tell(told, "eu", 10000 + LINKS_TELL_MS));
    for (unsigned i = 0; i < LINKS_TOLD; i++) { /* the oldest makes room */
        snprintf(name, sizeof name, "r%u", i);
        cr_assert(links_may_tell(told, name, 20000 + i));
        cr_assert(!links_may_tell(told, name, 20000 + i));
    }
    cr_assert(!links_may_tell(told, "r0", 20001));
}

Test(links, an_address_that_does_not_work_is_asked_less_and_less) {
    struct link_join join = {.joining = false};
    uint64_t waits_ms[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000}, now_ms = 1000;
    for (unsigned i = 0; i < 7; i++) {
        cr_assert(link_join_begins(&join, now_ms) && !link_join_begins(&join, now_ms + 100000), "%u", i);
        enum link_joined said = link_join_ended(&join, false, LINKS_JOIN_MS, now_ms);
        cr_expect_eq(said, i < 2 ? LINK_JOIN_FAILS : LINK_JOIN_SAID, "%u", i);
        cr_expect(!link_join_begins(&join, now_ms + waits_ms[i] - 1), "%u", i);
        now_ms += waits_ms[i];
    }
    cr_assert(link_join_begins(&join, now_ms));
    cr_expect_eq(link_join_ended(&join, true, LINKS_JOIN_MS, now_ms), LINK_JOIN_WORKS);
    cr_expect(!link_join_begins(&join, now_ms + LINKS_JOIN_MS - 1));
    cr_assert(link_join_begins(&join, now_ms + LINKS_JOIN_MS));
    cr_expect_eq(link_join_ended(&join, true, LINKS_JOIN_MS, now_ms), LINK_JOIN_SAID);
}

Test(links, a_look_that_takes_long_rests_for_long) {
    struct links_look look = {.under_way = false};
    cr_assert(links_look_begins(&look, 500, 1000));
    look.under_way = true;
    cr_assert(!links_look_begins(&look, 500, 100000));
    links_look_ended(&look, 500, 1010); /* 10 ms: the interval is long enough */
    cr_assert(!links_look_begins(&look, 500, 1499) && links_look_begins(&look, 500, 1500));
    look.under_way = true;
    links_look_ended(&look, 500, 1600);
    cr_assert(!links_look_begins(&look, 500, 1600 + 100 * LINKS_LOOK_REST - 1));
    cr_assert(links_look_begins(&look, 500, 1600 + 100 * LINKS_LOOK_REST));
}

Test(links, a_claim_is_shown_while_it_is_made) {
    struct links_claim claims[LINKS_CLAIMS] = {{.at_ms = 0}};
    cr_assert_null(links_claim_of(claims, "eu", 1000));
    links_claimed(claims, "eu", "10.0.0.1:8300", 7, 1000);
    links_claimed(claims, "us", "10.0.0.2:8300", 8, 1000);
    links_claimed(claims, "eu", "10.0.0.1:8300", 7, 50000);
    cr_assert_str_eq(links_claim_of(claims, "eu", 50000 + LINKS_CLAIM_MS)->address, "10.0.0.1:8300");
    cr_assert_null(links_claim_of(claims, "eu", 50001 + LINKS_CLAIM_MS));
    cr_assert_null(links_claim_of(claims, "us", 1001 + LINKS_CLAIM_MS));
    for (unsigned i = 0; i < LINKS_CLAIMS; i++) links_claimed(claims, "ap", "10.0.0.3:8300", 100 + i, 60000 + i);
    cr_assert_null(links_claim_of(claims, "eu", 60010)); /* the oldest made room */
}
