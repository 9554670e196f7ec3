/* The rate of clients' writes in the cluster: what is above it is refused, and coord's own work never is. */
#include <criterion/criterion.h>

#include "rpc/forward/forwarding.h"
#include "rpc/leader/write_limit.h"

#define SECOND 1000000000ull

static uint64_t now = 1000 * SECOND;

static unsigned verdicts(struct write_limit *limit, uint64_t term, unsigned tries, enum write_verdict wanted) {
    unsigned count = 0;
    for (unsigned i = 0; i < tries; i++) {
        struct judged write = {.client = true};
        count += write_limit_judge(limit, &write, term, now) == wanted;
    }
    return count;
}

Test(write_limit, without_a_rate_all_are_taken) {
    struct write_limit limit = {0};
    cr_assert_eq(verdicts(&limit, 1, 10000, WRITE_TAKEN), 10000);
}

Test(write_limit, clients_get_their_rate_and_no_more) {
    struct write_limit limit = {.config.rate = 20};
    cr_assert_eq(verdicts(&limit, 1, 1000, WRITE_TAKEN), 20);
    cr_assert_eq(verdicts(&limit, 1, 1000, WRITE_REFUSED), 1000);
    now += SECOND / 2;
    cr_assert_eq(verdicts(&limit, 1, 1000, WRITE_TAKEN), 10);
    unsigned refused = 0;
    for (int i = 0; i < 1000; i++) now += SECOND / 20, refused += verdicts(&limit, 1, 1, WRITE_REFUSED);
    cr_assert_eq(refused, 0, "at the rate nobody is refused");
}

Test(write_limit, coord_s_own_work_takes_nothing_and_is_never_refused) {
    struct write_limit limit = {.config.rate = 5};
    for (int i = 0; i < 1000; i++) {
        struct judged own = {.client = false};
        cr_assert_eq(write_limit_judge(&limit, &own, 1, now), WRITE_TAKEN);
        cr_assert_eq(write_limit_judge(&limit, NULL, 1, now), WRITE_TAKEN);
    }
    cr_assert_eq(verdicts(&limit, 1, 1000, WRITE_TAKEN), 5, "it has taken nothing");
    struct judged own = {.client = false};
    cr_assert_eq(write_limit_judge(&limit, &own, 1, now), WRITE_TAKEN, "also from an empty bucket");
}

Test(write_limit, a_write_counts_once) {
    struct write_limit limit = {.config.rate = 3};
    struct judged write = {.client = true};
    for (int i = 0; i < 100; i++) cr_assert_eq(write_limit_judge(&limit, &write, 1, now), WRITE_TAKEN);
    cr_assert_eq(verdicts(&limit, 1, 100, WRITE_TAKEN), 2);
    struct judged late = {.client = true};
    cr_assert_eq(write_limit_judge(&limit, &late, 1, now), WRITE_REFUSED);
    now += SECOND;
    cr_assert_eq(write_limit_judge(&limit, &late, 1, now), WRITE_TAKEN, "what was refused has not counted");
}

Test(write_limit, a_new_leadership_begins_with_a_full_bucket) {
    struct write_limit limit = {.config.rate = 7};
    cr_assert_eq(verdicts(&limit, 4, 100, WRITE_TAKEN), 7);
    cr_assert_eq(verdicts(&limit, 5, 100, WRITE_TAKEN), 7);
    cr_assert_eq(verdicts(&limit, 5, 100, WRITE_TAKEN), 0);
}

Test(write_limit, permissive_only_tells) {
    struct write_limit limit = {.config = {.rate = 7, .permissive = true}};
    cr_assert_eq(verdicts(&limit, 1, 100, WRITE_ABOVE), 93);
    struct judged write = {.client = true};
    cr_assert_eq(write_limit_judge(&limit, &write, 1, now), WRITE_ABOVE);
    cr_assert_eq(write_limit_judge(&limit, &write, 1, now), WRITE_TAKEN, "it is told once");
}
