/* Rates of requests: nobody gets more than his rate, and whoever stays below it is never refused. */
#include <criterion/criterion.h>

#include "base/random.h"
#include "http/rate_limits.h"

#define SECOND 1000000000ull
#define MS     1000000ull

static uint64_t now = 1000 * SECOND;
static enum limit over;

static bool takes(struct limits *limits, uint64_t address, uint64_t token, bool write) {
    return limits_take(limits, &(struct limit_client){address, token}, write, now, &over) == 0;
}

static unsigned taken(struct limits *limits, uint64_t address, uint64_t token, bool write, unsigned tries) {
    unsigned count = 0;
    for (unsigned i = 0; i < tries; i++) count += takes(limits, address, token, write);
    return count;
}

Test(limits, nothing_is_limited_without_a_rate) {
    cr_assert_null(limits_new(&(struct limits_config){{0}}));
    limits_free(NULL);
}

Test(limits, an_address_gets_a_second_s_worth_at_once_and_then_its_rate) {
    struct limits *limits = limits_new(&(struct limits_config){.rates[LIMIT_ADDRESS_WRITES] = 100});
    cr_assert_eq(taken(limits, 1, 0, true, 1000), 100);
    cr_assert_eq(over, LIMIT_ADDRESS_WRITES);
    cr_assert_eq(taken(limits, 2, 0, true, 1000), 100, "another address has a bucket of its own");
    cr_assert_eq(taken(limits, 1, 0, false, 1000), 1000, "reads are not limited");
    now += 50 * MS;
    cr_assert_eq(taken(limits, 1, 0, true, 1000), 5);
    now += 100 * SECOND;
    cr_assert_eq(taken(limits, 1, 0, true, 1000), 100, "no more than a second's worth is saved");
    limits_free(limits);
}

Test(limits, the_time_that_it_says_is_enough) {
    struct limits *limits = limits_new(&(struct limits_config){.rates[LIMIT_ADDRESS_READS] = 3});
    cr_assert_eq(taken(limits, 1, 0, false, 10), 3);
    uint64_t wait = limits_take(limits, &(struct limit_client){1, 0}, false, now, &over);
    cr_assert(wait > 0 && wait <= SECOND);
    now += wait - 1;
    cr_assert_not(takes(limits, 1, 0, false));
    now += 1;
    cr_assert(takes(limits, 1, 0, false));
    limits_free(limits);
}

Test(limits, a_request_that_one_bucket_refuses_is_taken_from_none) {
    struct limits *limits = limits_new(
        &(struct limits_config){.rates = {[LIMIT_TOKEN_WRITES] = 1, [LIMIT_ADDRESS_WRITES] = 50, [LIMIT_WRITES] = 60}});
    cr_assert_eq(taken(limits, 1, 7, true, 1000), 1);
    cr_assert_eq(over, LIMIT_TOKEN_WRITES);
    cr_assert_eq(taken(limits, 1, 0, true, 1000), 49, "the address lost one request to its token");
    cr_assert_eq(over, LIMIT_ADDRESS_WRITES);
    cr_assert_eq(taken(limits, 2, 0, true, 1000), 10, "and all together have 60");
    cr_assert_eq(over, LIMIT_WRITES);
    limits_free(limits);
}

Test(limits, a_rate_of_one_is_one) {
    struct limits *limits = limits_new(&(struct limits_config){.rates[LIMIT_READS] = 1});
    unsigned count = 0;
    for (int i = 0; i < 1000; i++, now += 10 * MS) count += takes(limits, (uint64_t)i, 0, false);
    cr_assert(count >= 10 && count <= 11, "%u in 10 s", count);
    limits_free(limits);
}

/* More clients than the table has places, and one that asks all the time. */
Test(limits, a_crowd_does_not_free_the_one_that_asks_too_much) {
    struct limits *limits = limits_new(&(struct limits_config){.rates[LIMIT_ADDRESS_READS] = 10});
    struct rng rng;
    rng_seed(&rng, 1);
    unsigned greedy = 0, refused = 0;
    for (int i = 0; i < 200000; i++, now += MS / 20) {
        greedy += takes(limits, 1, 0, false);
        refused += !takes(limits, 2 + rng_below(&rng, 1000000), 0, false);
    }
    cr_assert(greedy >= 100 && greedy <= 111, "%u in 10 s", greedy);
    cr_assert_eq(refused, 0, "each of the crowd asks less than ten times a second");
    limits_free(limits);
}
