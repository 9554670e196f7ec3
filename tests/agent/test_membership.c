/* When a node renews its certificate. */
#include <criterion/criterion.h>
#include <string.h>

#include "agent/membership.h"
#include "rpc/wire/security.h"

#define DAY      INT64_C(86400)
#define WEEK     (7 * DAY)
#define SPREAD_S 60
static const uint8_t ca_1[TLS_PIN_SIZE] = "one", ca_2[TLS_PIN_SIZE] = "two";

static struct membership of_week(uint64_t seed, int64_t from_s) {
    struct membership membership;
    membership_begin(&membership, seed, SPREAD_S);
    membership_ca(&membership, ca_1, false, from_s);
    cr_assert_eq(membership_state(&membership, from_s), MEMBERSHIP_NONE);
    cr_assert_eq(membership_next_s(&membership, from_s), INT64_MAX);
    membership_certificate(&membership, (struct tls_life){from_s, from_s + WEEK}, ca_1, from_s);
    return membership;
}

Test(membership, it_renews_from_half_of_its_life_on_and_not_all_at_once) {
    int64_t least = INT64_MAX, most = 0;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct membership membership = of_week(seed, 1000);
        int64_t at = membership_next_s(&membership, 1000);
        cr_assert(at >= 1000 + WEEK / 2 && at <= 1000 + WEEK * 6 / 10);
        cr_assert_eq(membership_state(&membership, at - 1), MEMBERSHIP_GOOD);
        cr_assert_eq(membership_state(&membership, at), MEMBERSHIP_DUE);
        if (at < least) least = at;
        if (at > most) most = at;
    }
    cr_expect_gt(most - least, WEEK / 20);
}

/* Three years, a renewal each time, from servers that are away for two days now and then. */
Test(membership, three_years_without_a_gap) {
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct membership membership = of_week(seed, 0);
        unsigned renewals = 0;
        for (int64_t now = 0; now<3 * 365 * DAY; now = membership_next_s(&membership, now)> now
                                  ? membership_next_s(&membership, now)
                                  : now + 1) {
            cr_assert_leq(now, membership.life.to_s, "seed %llu: expired", (unsigned long long)seed);
            if (membership_state(&membership, now) != MEMBERSHIP_DUE) continue;
            if (now / DAY % 30 < 2) membership_failed(&membership, false, now);
            else membership_certificate(&membership, (struct tls_life){now, now + WEEK}, ca_1, now), renewals++;
        }
        cr_assert(renewals > 230 && renewals < 330, "%u", renewals);
    }
}

Test(membership, another_ca_signs_now) {
    struct membership membership = of_week(1, 1000);
    membership_ca(&membership, ca_2, false, 2000);
    int64_t at = membership_next_s(&membership, 2000);
    cr_expect(at >= 2000 && at <= 2000 + SPREAD_S);
    membership_ca(&membership, ca_2, false, 2001);
    cr_expect_eq(membership_next_s(&membership, 2001), at < 2001 ? 2001 : at, "told once more, it does not draw anew");
    membership_certificate(&membership, (struct tls_life){at, at + WEEK}, ca_2, at);
    cr_expect_gt(membership_next_s(&membership, at), at + WEEK / 2 - 1);
    membership_ca(&membership, ca_2, true, at + 5);
    cr_expect_eq(membership_state(&membership, at + 5), MEMBERSHIP_DUE, "a server without the key comes for it");
    membership_ca(&membership, ca_2, false, at + 6);
    cr_expect_eq(membership_state(&membership, at + 6), MEMBERSHIP_GOOD);
}

Test(membership, failures_are_repeated_ever_more_rarely) {
    struct membership membership = of_week(3, 0);
    int64_t now = membership_next_s(&membership, 0), last = 0;
    unsigned attempts = 0;
    for (int64_t end = now + 3600; now < end; attempts++) {
        cr_assert_eq(membership_state(&membership, now), MEMBERSHIP_DUE);
        membership_failed(&membership, false, now);
        int64_t next = membership_next_s(&membership, now);
        cr_assert(next > now && next <= now + MEMBERSHIP_RETRY_MOST_S);
        last = next - now, now = next;
    }
    cr_expect(attempts < 30 && last >= MEMBERSHIP_RETRY_MOST_S * 3 / 4, "%u attempts, last wait %lld", attempts,
              (long long)last);
    membership_failed(&membership, false, now);
    cr_expect_eq(membership_state(&membership, now - 2 * DAY), MEMBERSHIP_GOOD,
                 "the clock was set back: it is not due");
    membership_failed(&membership, false, now + 10 * DAY);
    cr_expect_eq(membership_state(&membership, now), MEMBERSHIP_DUE,
                 "a failure of a time that is not yet does not count");
}

/* A server that lacks the new key signs by the old CA: nobody asks it every second for ever. */
Test(membership, a_renewal_that_does_not_bring_the_new_ca_counts_as_failed) {
    for (int server = 0; server < 2; server++) {
        struct membership membership = of_week(5, 0);
        cr_expect_not(membership_insists(&membership, 0));
        membership_ca(&membership, ca_2, server, 0);
        unsigned attempts = 0;
        for (int64_t now = 0; now < 3600; now = membership_next_s(&membership, now)) {
            if (membership_state(&membership, now) != MEMBERSHIP_DUE) continue;
            cr_assert(membership_insists(&membership, now));
            membership_certificate(&membership, (struct tls_life){now, now + WEEK}, ca_1, now);
            membership_renewed(&membership, now);
            cr_assert_lt(++attempts, 60, "every second");
        }
        cr_expect_gt(attempts, 3);
        membership_certificate(&membership, (struct tls_life){3600, 3600 + WEEK}, ca_2, 3600);
        if (server) cr_expect(membership_insists(&membership, 3600), "it has no key yet");
        membership_ca(&membership, ca_2, false, 3600);
        membership_renewed(&membership, 3600);
        cr_expect_not(membership_insists(&membership, 3600));
        cr_expect_geq(membership_next_s(&membership, 3600), 3600 + WEEK / 2);
    }
}

Test(membership, when_its_time_has_come_any_certificate_is_better_than_none) {
    struct membership membership = of_week(6, 0);
    membership_ca(&membership, ca_2, false, 0);
    cr_expect(membership_insists(&membership, WEEK / 2 - 1));
    cr_expect_not(membership_insists(&membership, WEEK / 2));
}

Test(membership, the_key_of_an_old_ca_replaces_none) {
    struct membership membership = of_week(7, 0);
    cr_expect(membership_takes_key(&membership, false, ca_2), "it has none");
    cr_expect(membership_takes_key(&membership, true, ca_1));
    membership_ca(&membership, ca_2, true, 0);
    cr_expect(membership_takes_key(&membership, true, ca_2));
    cr_expect_not(membership_takes_key(&membership, true, ca_1));
    membership_begin(&membership, 7, SPREAD_S);
    cr_expect_not(membership_takes_key(&membership, true, ca_2), "it is not known yet which one signs");
}

Test(membership, it_ends) {
    struct membership membership = of_week(4, 0);
    cr_expect_eq(membership_state(&membership, WEEK + SECURITY_GRACE_S), MEMBERSHIP_DUE);
    cr_expect_eq(membership_state(&membership, WEEK + SECURITY_GRACE_S + 1), MEMBERSHIP_EXPIRED);
    cr_expect_eq(membership_next_s(&membership, WEEK + SECURITY_GRACE_S + 1), INT64_MAX);
    membership_failed(&membership, true, WEEK);
    cr_expect_eq(membership_state(&membership, WEEK), MEMBERSHIP_REFUSED);
    cr_expect_eq(membership_next_s(&membership, WEEK), WEEK + MEMBERSHIP_REFUSED_S);
    cr_expect_eq(membership_state(&membership, WEEK + MEMBERSHIP_REFUSED_S), MEMBERSHIP_DUE,
                 "once a day it asks again");
    cr_expect_eq(membership_state(&membership, WEEK - 3 * DAY), MEMBERSHIP_DUE, "the clock was set back");
}
