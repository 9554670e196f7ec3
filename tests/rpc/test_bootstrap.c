#include <criterion/criterion.h>

#include "rpc/cluster/bootstrap.h"

static struct raft_members three(uint64_t a, uint64_t b, uint64_t c) {
    struct raft_members members = {.count = 3};
    members.member[0].id = a, members.member[1].id = b, members.member[2].id = c;
    return members;
}

Test(bootstrap, all_have_to_promise) {
    struct bootstrap f = {0};
    struct raft_members members = three(1, 2, 3);
    cr_assert_eq(bootstrap_next(&f, &members, 1000, 1), BOOTSTRAP_ASK);
    cr_assert_eq(bootstrap_next(&f, &members, 1010, 1), BOOTSTRAP_WAIT);
    bootstrap_answered(&f, 2, f.attempt, true);
    cr_assert_eq(bootstrap_next(&f, &members, 1020, 1), BOOTSTRAP_WAIT);
    bootstrap_answered(&f, 3, f.attempt, true);
    cr_assert_eq(bootstrap_next(&f, &members, 1030, 1), BOOTSTRAP_DONE);
}

Test(bootstrap, promises_are_trusted_for_a_while_only) {
    struct bootstrap f = {0};
    struct raft_members members = three(1, 2, 3);
    cr_assert_eq(bootstrap_next(&f, &members, 1000, 1), BOOTSTRAP_ASK);
    bootstrap_answered(&f, 2, f.attempt, true);
    bootstrap_answered(&f, 3, f.attempt, true);
    cr_assert_eq(bootstrap_next(&f, &members, 1001 + BOOTSTRAP_TRUST_MS, 1), BOOTSTRAP_RELEASE);
    bootstrap_released(&f);
    cr_assert_eq(bootstrap_next(&f, &members, 1002 + BOOTSTRAP_TRUST_MS, 1), BOOTSTRAP_ASK);
    bootstrap_answered(&f, 2, f.attempt - 2, true); /* of the first attempt */
    bootstrap_answered(&f, 3, f.attempt, true);
    cr_assert_eq(bootstrap_next(&f, &members, 1003 + BOOTSTRAP_TRUST_MS, 1), BOOTSTRAP_WAIT);
}

Test(bootstrap, a_promise_is_given_to_one) {
    struct bootstrap f = {0};
    cr_assert(bootstrap_asked(&f, 1, false, true, 1000));
    cr_assert(bootstrap_asked(&f, 1, false, true, 1100));
    cr_assert_not(bootstrap_asked(&f, 2, false, true, 1200));
    bootstrap_asked(&f, 2, true, true, 1250); /* not its to give back */
    cr_assert_not(bootstrap_asked(&f, 2, false, true, 1300));
    bootstrap_asked(&f, 1, true, true, 1400);
    cr_assert(bootstrap_asked(&f, 2, false, true, 1500));
    cr_assert_not(bootstrap_asked(&f, 1, false, true, 1500 + BOOTSTRAP_PROMISE_MS));
    cr_assert(bootstrap_asked(&f, 1, false, true, 1501 + BOOTSTRAP_PROMISE_MS));
    cr_assert_not(bootstrap_asked(&f, 1, false, false, 1600), "a server with a log or a vote promises nothing");
}

Test(bootstrap, who_has_promised_does_not_found) {
    struct bootstrap f = {0};
    struct raft_members members = three(2, 3, 4);
    cr_assert_eq(bootstrap_next(&f, &members, 1000, 2), BOOTSTRAP_ASK);
    bootstrap_answered(&f, 3, f.attempt, true);
    bootstrap_answered(&f, 4, f.attempt, true);
    cr_assert(bootstrap_asked(&f, 1, false, true, 1010));
    cr_assert_eq(bootstrap_next(&f, &members, 1020, 2), BOOTSTRAP_RELEASE);
    bootstrap_released(&f);
    cr_assert_eq(bootstrap_next(&f, &members, 1030, 2), BOOTSTRAP_WAIT);
}

Test(bootstrap, a_refusal_a_lost_server_and_another_choice_begin_anew) {
    struct bootstrap f = {0};
    struct raft_members members = three(1, 2, 3), other = three(1, 2, 4);
    cr_assert_eq(bootstrap_next(&f, &members, 1000, 1), BOOTSTRAP_ASK);
    bootstrap_answered(&f, 2, f.attempt, false);
    cr_assert_eq(bootstrap_next(&f, &members, 1010, 1), BOOTSTRAP_RELEASE);
    bootstrap_released(&f);
    cr_assert_eq(bootstrap_next(&f, &members, 1020, 1), BOOTSTRAP_ASK);
    bootstrap_answered(&f, 2, f.attempt, true);
    bootstrap_answered(&f, 3, f.attempt, true);
    bootstrap_lost(&f, 3);
    cr_assert_eq(bootstrap_next(&f, &members, 1030, 1), BOOTSTRAP_RELEASE);
    bootstrap_released(&f);
    cr_assert_eq(bootstrap_next(&f, &members, 1040, 1), BOOTSTRAP_ASK);
    cr_assert_eq(bootstrap_next(&f, &other, 1050, 1), BOOTSTRAP_RELEASE);
}
