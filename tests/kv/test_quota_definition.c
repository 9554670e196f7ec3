/* Consequences of a budget's definition: defaults, refusals, parts, refills, windows, the bound. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/random.h"
#include "quotas.h"

static const char *refusal(const Pb__QuotaDefinition *definition) {
    static struct fault fault;
    Pb__QuotaDefinition copy = *definition;
    fault = (struct fault){0};
    int rv = quota_definition_check(&copy, &fault);
    cr_assert(rv == CO_OK || (rv == CO_INVALID && fault.text[0] && !strchr(fault.text, '\n')));
    return rv == CO_OK ? "" : fault.text;
}

Test(quota_definition, what_is_left_out_gets_its_default) {
    Pb__QuotaDefinition d = PB__QUOTA_DEFINITION__INIT;
    d.name = (char *)(uintptr_t) "x", d.budget = 500, d.tokens = 10, d.every_ms = 1000;
    cr_assert_eq(quota_definition_check(&d, NULL), CO_OK);
    cr_expect(d.burst == 500 && d.lease_ttl_ms == QUOTA_TTL_MS && d.max_lease == QUOTA_MAX_LEASE);
    cr_expect(d.drift == QUOTA_DRIFT && d.low_watermark == QUOTA_LOW_WATERMARK && d.last_for_ms == QUOTA_LAST_FOR_MS);
    cr_expect(quota_capacity(&d) == 500 && quota_lease_most(&d) == 25);
    Pb__QuotaDefinition again = d;
    cr_assert_eq(quota_definition_check(&again, NULL), CO_OK, "what was filled in is taken again");
    cr_expect_eq(memcmp(&again, &d, sizeof d), 0);
    d.burst = 2000;
    cr_expect_eq(quota_capacity(&d), 2000);
    d.tokens = d.every_ms = d.burst = 0, d.window = PB__QUOTA_WINDOW__QUOTA_DAY;
    cr_assert_eq(quota_definition_check(&d, NULL), CO_OK);
    cr_expect(quota_capacity(&d) == 500 && d.burst == 0);
    d.budget = 3, d.max_lease = 1;
    cr_expect_eq(quota_lease_most(&d), 1, "at least one");
}

#define REFUSED(part, ...)                                                             \
    ({                                                                                 \
        Pb__QuotaDefinition other = d;                                                 \
        __VA_ARGS__;                                                                   \
        cr_expect(strstr(refusal(&other), part), "%s: \"%s\"", part, refusal(&other)); \
    })
#define TAKEN(...)                             \
    ({                                         \
        Pb__QuotaDefinition other = d;         \
        __VA_ARGS__;                           \
        cr_expect_str_eq(refusal(&other), ""); \
    })
Test(quota_definition, what_makes_no_sense_is_refused_with_a_line_that_says_where) {
    static char long_name[QUOTA_NAME_MOST + 2], long_service[QUOTA_SERVICE_MOST + 2];
    memset(long_name, 'n', sizeof long_name - 1), memset(long_service, 's', sizeof long_service - 1);
    Pb__QuotaDefinition d = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    TAKEN(other.budget = QUOTA_AMOUNT_MOST, other.tokens = QUOTA_AMOUNT_MOST, other.burst = QUOTA_AMOUNT_MOST);
    TAKEN(other.name = long_name + 1), TAKEN(other.name = (char *)(uintptr_t) "a b/c:d");
    REFUSED("name", other.name = (char *)(uintptr_t) ""), REFUSED("name", other.name = long_name);
    REFUSED("name", other.name = (char *)(uintptr_t) "a\"b"), REFUSED("name", other.name = (char *)(uintptr_t) "a\nb");
    REFUSED("name", other.name = (char *)(uintptr_t) "gr\xc3\xb6\xc3\x9f");
    REFUSED("Budget", other.budget = 0), REFUSED("Budget", other.budget = QUOTA_AMOUNT_MOST + 1);
    REFUSED("Budget", other.budget = UINT64_C(1000000000000000000)), REFUSED("Budget", other.budget = UINT64_MAX);
    REFUSED("Tokens", other.tokens = 0), REFUSED("Tokens", other.tokens = QUOTA_AMOUNT_MOST + 1);
    REFUSED("Every", other.every_ms = 99), REFUSED("Every", other.every_ms = QUOTA_EVERY_MAX_MS + 1);
    REFUSED("Refill: missing", other.tokens = other.every_ms = 0);
    REFUSED("not both", other.window = PB__QUOTA_WINDOW__QUOTA_DAY);
    REFUSED("Offset", other.offset_minutes = 60);
    REFUSED("Burst", other.burst = UINT64_MAX);
    REFUSED("Mode", other.mode = (Pb__QuotaMode)3), REFUSED("OnLoss", other.on_loss = (Pb__QuotaLoss)3);
    REFUSED("Window", other.window = (Pb__QuotaWindow)5, other.tokens = other.every_ms = 0);
    REFUSED("Mode", other.mode = (Pb__QuotaMode)-1);
    REFUSED("MaxLeaseFraction", other.max_lease = QUOTA_WHOLE + 1), REFUSED("Drift", other.drift = QUOTA_WHOLE + 1);
    REFUSED("LowWatermark", other.low_watermark = UINT32_MAX), REFUSED("UnknownSlack", other.unknown_slack = 1000001);
    REFUSED("LeaseTTL", other.lease_ttl_ms = 999), REFUSED("LeaseTTL", other.lease_ttl_ms = 600001);
    REFUSED("LocalCap", other.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN);
    REFUSED("LocalCap", other.local_cap = UINT64_MAX);
    TAKEN(other.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN, other.local_cap = 5);
    REFUSED("LastFor", other.last_for_ms = QUOTA_LAST_FOR_MOST_MS + 1);
    REFUSED("Service", other.service = (char *)(uintptr_t) "api"), REFUSED("Split", other.split = 2);
    d = quota_plain("b", PB__QUOTA_MODE__QUOTA_OWNER);
    TAKEN(other.split = QUOTA_PARTS_MOST), TAKEN(other.service = long_service + 1);
    REFUSED("Service", other.service = (char *)(uintptr_t) ""), REFUSED("Service", other.service = long_service);
    REFUSED("Split", other.split = QUOTA_PARTS_MOST + 1), REFUSED("Split", other.budget = 5, other.split = 6);
    d.tokens = d.every_ms = 0, d.window = PB__QUOTA_WINDOW__QUOTA_MONTH;
    TAKEN(other.offset_minutes = -1439), TAKEN(other.offset_minutes = 1439);
    REFUSED("Offset", other.offset_minutes = 1440), REFUSED("Offset", other.offset_minutes = INT32_MIN);
    REFUSED("Burst", other.burst = 5);
}

/* -- parts -------------------------------------------------------------------------------------------------------- */

Test(quota_definition, parts_are_exact_up_to_the_largest_amounts) {
    struct rng rng;
    rng_seed(&rng, 1);
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t whole = i == 0 ? QUOTA_AMOUNT_MOST : rng_below(&rng, QUOTA_AMOUNT_MOST + 1);
        uint32_t part = i == 0 ? QUOTA_WHOLE : (uint32_t)rng_below(&rng, QUOTA_WHOLE + 1);
        cr_assert_eq(quota_part(whole, part), (uint64_t)((unsigned __int128)whole * part / QUOTA_WHOLE));
        uint32_t parts = 1 + (uint32_t)rng_below(&rng, QUOTA_PARTS_MOST);
        uint64_t sum = 0, least = UINT64_MAX, most = 0;
        for (uint32_t j = 0; j < parts; j++) {
            uint64_t share = quota_split_part(whole, parts, j);
            sum += share;
            least = share < least ? share : least, most = share > most ? share : most;
        }
        cr_assert(sum == whole && most - least <= 1, "%lu in %u parts", whole, parts);
    }
}

/* All steps of a period give the tokens, and take no less than the period. */
static void refill_check(uint64_t tokens, uint64_t every_ms) {
    Pb__QuotaDefinition d = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    d.tokens = tokens, d.every_ms = every_ms;
    uint32_t step = 0, count = 0;
    uint64_t sum = 0, period = quota_refill_period_ms(&d);
    do {
        uint64_t part = quota_refill_part(&d, step, &step);
        cr_assert(part > 0);
        sum += part, count++;
    } while (step != 0);
    cr_assert(sum == tokens && count <= 100 && count * period >= every_ms && count * period < every_ms + count,
              "%lu each %lu ms: %u steps of %lu ms give %lu", tokens, every_ms, count, period, sum);
    cr_assert(count == 1 || period >= 1000);
    cr_assert(count == 100 || count == tokens || every_ms < 2000 || period < 2000, "as often as may be");
    (void)quota_refill_part(&d, UINT32_MAX, &step); /* of a definition that had more steps */
    cr_assert(step < count);
}

Test(quota_definition, tokens_come_in_equal_parts_that_add_up) {
    struct rng rng;
    rng_seed(&rng, 2);
    refill_check(1, QUOTA_EVERY_MAX_MS), refill_check(1, 100), refill_check(7, 60000), refill_check(1000, 1000);
    refill_check(QUOTA_AMOUNT_MOST, QUOTA_EVERY_MAX_MS), refill_check(QUOTA_AMOUNT_MOST, 100),
        refill_check(3, 86400000);
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t most = rng_below(&rng, 2) ? 300 : QUOTA_AMOUNT_MOST;
        uint64_t longest = rng_below(&rng, 2) ? 5000 : QUOTA_EVERY_MAX_MS;
        refill_check(1 + rng_below(&rng, most), 100 + rng_below(&rng, longest - 99));
    }
}

/* -- windows ------------------------------------------------------------------------------------------------------ */

/* The same by the C library's calendar. */
static int64_t start_by_calendar(Pb__QuotaWindow window, int offset_minutes, int64_t unix_s, int later) {
    time_t local = unix_s + offset_minutes * 60;
    struct tm tm;
    gmtime_r(&local, &tm);
    tm.tm_sec = 0;
    if (window >= PB__QUOTA_WINDOW__QUOTA_HOUR) tm.tm_min = 0;
    if (window >= PB__QUOTA_WINDOW__QUOTA_DAY) tm.tm_hour = 0;
    if (window >= PB__QUOTA_WINDOW__QUOTA_MONTH) tm.tm_mday = 1;
    int *field = window == PB__QUOTA_WINDOW__QUOTA_MINUTE ? &tm.tm_min
                 : window == PB__QUOTA_WINDOW__QUOTA_HOUR ? &tm.tm_hour
                 : window == PB__QUOTA_WINDOW__QUOTA_DAY  ? &tm.tm_mday
                                                          : &tm.tm_mon;
    *field += later;
    return timegm(&tm) - offset_minutes * 60;
}

Test(quota_definition, windows_begin_with_the_minute_hour_day_or_month_of_their_offset) {
    struct rng rng;
    rng_seed(&rng, 3);
    for (unsigned i = 0; i < 40000; i++) {
        Pb__QuotaDefinition d = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
        int64_t range = INT64_C(20000000000), at = (int64_t)rng_below(&rng, 2 * (uint64_t)range) - range;
        d.tokens = d.every_ms = 0, d.window = PB__QUOTA_WINDOW__QUOTA_MINUTE + rng_below(&rng, 4);
        d.offset_minutes = (int)rng_below(&rng, 2879) - 1439;
        if (rng_below(&rng, 4) == 0) at = quota_window_start(&d, at); /* the very beginning of one */
        int64_t start = quota_window_start(&d, at), end = quota_window_end(&d, at);
        cr_assert_eq(start, start_by_calendar(d.window, d.offset_minutes, at, 0));
        cr_assert_eq(end, start_by_calendar(d.window, d.offset_minutes, at, 1));
        cr_assert(start <= at && at < end && quota_window_start(&d, end) == end &&
                  quota_window_start(&d, end - 1) == start);
    }
    Pb__QuotaDefinition d = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    d.window = PB__QUOTA_WINDOW__QUOTA_MONTH, d.offset_minutes = 60;
    cr_expect_eq(quota_window_start(&d, 1709251199), 1709247600, "2024-02-29T23:59:59Z is in March at +01:00");
    cr_expect_eq(quota_window_end(&d, 1709247599), 1709247600);
    for (unsigned window = 0; window <= PB__QUOTA_WINDOW__QUOTA_MONTH; window++) {
        d.window = (Pb__QuotaWindow)window;
        (void)quota_window_end(&d, INT64_MAX), (void)quota_window_start(&d, INT64_MIN); /* a clock beyond all sense */
    }
}

/* -- the bound ---------------------------------------------------------------------------------------------------- */

static uint64_t bound_of(const Pb__QuotaDefinition *d, uint64_t agents, const char *parts) {
    struct quota_bound bound = quota_bound_of(d, agents);
    char line[200];
    snprintf(line, sizeof line, "%lu %lu %lu %lu %lu", bound.leases, bound.drift, bound.local_caps, bound.last,
             bound.hand_over);
    cr_expect_str_eq(line, parts);
    return bound.sum;
}

Test(quota_definition, the_bound_is_the_sum_of_its_parts) {
    Pb__QuotaDefinition d = quota_plain("b", PB__QUOTA_MODE__QUOTA_LEASE);
    cr_expect_eq(bound_of(&d, 10, "0 0 0 0 0"), 0);
    d.drift = 10000, d.mode = PB__QUOTA_MODE__QUOTA_BOUNDED;
    cr_expect_eq(bound_of(&d, 10, "0 10 0 0 0"), 10);
    d.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN, d.local_cap = 7;
    cr_expect_eq(bound_of(&d, 20, "0 10 140 0 0"), 150);
    d.on_loss = PB__QUOTA_LOSS__QUOTA_LAST, d.lease_ttl_ms = 10000, d.last_for_ms = 60001, d.max_lease = 50000;
    cr_expect_eq(bound_of(&d, 20, "0 10 0 7000 0"), 7010, "50 each, 20 agents, 7 times");
    d.on_loss = PB__QUOTA_LOSS__QUOTA_CLOSED, d.mode = PB__QUOTA_MODE__QUOTA_OWNER;
    cr_expect_eq(bound_of(&d, 20, "0 0 0 0 0"), 0, "a new owner begins with an empty bucket");
    d.tokens = d.every_ms = 0, d.window = PB__QUOTA_WINDOW__QUOTA_HOUR;
    cr_expect_eq(bound_of(&d, 20, "0 0 0 0 1000"), 1000);
    d.on_loss = PB__QUOTA_LOSS__QUOTA_OPEN, d.local_cap = QUOTA_AMOUNT_MOST;
    cr_expect_eq(quota_bound_of(&d, 100000).sum, INT64_MAX, "it does not run over");
    d.on_loss = PB__QUOTA_LOSS__QUOTA_LAST, d.budget = QUOTA_AMOUNT_MOST, d.last_for_ms = QUOTA_LAST_FOR_MOST_MS;
    cr_expect_eq(quota_bound_of(&d, UINT64_MAX).last, INT64_MAX);
}
