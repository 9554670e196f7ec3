/* A bucket gives a second's worth at once, and then its rate; the time that it says is enough, and not too much. */
#include <criterion/criterion.h>

#include "base/rate_bucket.h"

#define SECOND 1000000000ull

static unsigned taken(uint64_t *full_ns, uint64_t rate, uint64_t now_ns, unsigned tries) {
    unsigned count = 0;
    for (unsigned i = 0; i < tries; i++) count += rate_bucket_wait(*full_ns, rate, now_ns, full_ns) == 0;
    return count;
}

Test(rate_bucket, it_holds_a_second_s_worth) {
    const uint64_t rates[] = {1, 3, 7, 1000, 999999};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        uint64_t full_ns = 0, now_ns = 5 * SECOND;
        cr_expect_eq(taken(&full_ns, rates[i], now_ns, 1000001), rates[i]);
        uint64_t before_ns = full_ns, wait_ns = rate_bucket_wait(full_ns, rates[i], now_ns, &full_ns);
        cr_expect(wait_ns > 0 && wait_ns <= SECOND);
        cr_expect_eq(full_ns, before_ns, "a take that is refused takes nothing");
        cr_expect_eq(taken(&full_ns, rates[i], now_ns + wait_ns - 1, 1), 0);
        cr_expect_eq(taken(&full_ns, rates[i], now_ns + wait_ns, 2), 1);
        cr_expect_eq(taken(&full_ns, rates[i], now_ns + 1000 * SECOND, 1000001), rates[i], "no more is saved");
    }
}

Test(rate_bucket, who_stays_below_is_never_refused) {
    uint64_t full_ns = 0, now_ns = SECOND;
    for (int i = 0; i < 100000; i++, now_ns += SECOND / 50) cr_assert_eq(taken(&full_ns, 50, now_ns, 1), 1);
}
