/* When a node renews its certificate. */
#include <criterion/criterion.h>
#include <string.h>

#include "agent/certificate_renewal.h"
#include "rpc/wire/security.h"

#define DAY      INT64_C(86400)
#define WEEK     (7 * DAY)
#define SPREAD_S 60
static const uint8_t ca_1[TLS_PIN_SIZE] = "one", ca_2[TLS_PIN_SIZE] = "two";

static struct certificate_renewal of_week(uint64_t seed, int64_t from_s) {
    struct certificate_renewal renewal;
    certificate_renewal_begin(&renewal, seed, SPREAD_S);
    certificate_renewal_ca(&renewal, ca_1, false, from_s);
    cr_assert_eq(certificate_renewal_state(&renewal, from_s), CERTIFICATE_RENEWAL_NONE);
    cr_assert_eq(certificate_renewal_next_s(&renewal, from_s), INT64_MAX);
    certificate_renewal_certificate(&renewal, (struct tls_life){from_s, from_s + WEEK}, ca_1, from_s);
    return renewal;
}

Test(certificate_renewal, it_renews_from_half_of_its_life_on_and_not_all_at_once) {
    int64_t least = INT64_MAX, most = 0;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct certificate_renewal renewal = of_week(seed, 1000);
        int64_t at = certificate_renewal_next_s(&renewal, 1000);
        cr_assert(at >= 1000 + WEEK / 2 && at <= 1000 + WEEK * 6 / 10);
        cr_assert_eq(certificate_renewal_state(&renewal, at - 1), CERTIFICATE_RENEWAL_GOOD);
        cr_assert_eq(certificate_renewal_state(&renewal, at), CERTIFICATE_RENEWAL_DUE);
        if (at < least) least = at;
        if (at > most) most = at;
    }
    cr_expect_gt(most - least, WEEK / 20);
}

/* Three years, a renewal each time, from servers that are away for two days now and then. */
Test(certificate_renewal, three_years_without_a_gap) {
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct certificate_renewal renewal = of_week(seed, 0);
        unsigned renewals = 0;
        for (int64_t now = 0; now<3 * 365 * DAY; now = certificate_renewal_next_s(&renewal, now)> now
                                  ? certificate_renewal_next_s(&renewal, now)
                                  : now + 1) {
            cr_assert_leq(now, renewal.life.to_s, "seed %llu: expired", (unsigned long long)seed);
            if (certificate_renewal_state(&renewal, now) != CERTIFICATE_RENEWAL_DUE) continue;
            if (now / DAY % 30 < 2) certificate_renewal_failed(&renewal, false, now);
            else certificate_renewal_certificate(&renewal, (struct tls_life){now, now + WEEK}, ca_1, now), renewals++;
        }
        cr_assert(renewals > 230 && renewals < 330, "%u", renewals);
    }
}

Test(certificate_renewal, another_ca_signs_now) {
    struct certificate_renewal renewal = of_week(1, 1000);
    certificate_renewal_ca(&renewal, ca_2, false, 2000);
    int64_t at = certificate_renewal_next_s(&renewal, 2000);
    cr_expect(at >= 2000 && at <= 2000 + SPREAD_S);
    certificate_renewal_ca(&renewal, ca_2, false, 2001);
    cr_expect_eq(certificate_renewal_next_s(&renewal, 2001), at < 2001 ? 2001 : at,
                 "told once more, it does not draw anew");
    certificate_renewal_certificate(&renewal, (struct tls_life){at, at + WEEK}, ca_2, at);
    cr_expect_gt(certificate_renewal_next_s(&renewal, at), at + WEEK / 2 - 1);
    certificate_renewal_ca(&renewal, ca_2, true, at + 5);
    cr_expect_eq(certificate_renewal_state(&renewal, at + 5), CERTIFICATE_RENEWAL_DUE,
                 "a server without the key comes for it");
    certificate_renewal_ca(&renewal, ca_2, false, at + 6);
    cr_expect_eq(certificate_renewal_state(&renewal, at + 6), CERTIFICATE_RENEWAL_GOOD);
}

Test(certificate_renewal, failures_are_repeated_ever_more_rarely) {
    struct certificate_renewal renewal = of_week(3, 0);
    int64_t now = certificate_renewal_next_s(&renewal, 0), last = 0;
    unsigned attempts = 0;
    for (int64_t end = now + 3600; now < end; attempts++) {
        cr_assert_eq(certificate_renewal_state(&renewal, now), CERTIFICATE_RENEWAL_DUE);
        certificate_renewal_failed(&renewal, false, now);
        int64_t next = certificate_renewal_next_s(&renewal, now);
        cr_assert(next > now && next <= now + CERTIFICATE_RENEWAL_RETRY_MOST_S);
        last = next - now, now = next;
    }
    cr_expect(attempts < 30 && last >= CERTIFICATE_RENEWAL_RETRY_MOST_S * 3 / 4, "%u attempts, last wait %lld",
              attempts, (long long)last);
    certificate_renewal_failed(&renewal, false, now);
    cr_expect_eq(certificate_renewal_state(&renewal, now - 2 * DAY), CERTIFICATE_RENEWAL_GOOD,
                 "the clock was set back: it is not due");
    certificate_renewal_failed(&renewal, false, now + 10 * DAY);
    cr_expect_eq(certificate_renewal_state(&renewal, now), CERTIFICATE_RENEWAL_DUE,
                 "a failure of a time that is not yet does not count");
}

/* A server that lacks the new key signs by the old CA: nobody asks it every second for ever. */
Test(certificate_renewal, a_renewal_that_does_not_bring_the_new_ca_counts_as_failed) {
    for (int server = 0; server < 2; server++) {
        struct certificate_renewal renewal = of_week(5, 0);
        cr_expect_not(certificate_renewal_insists(&renewal, 0));
        certificate_renewal_ca(&renewal, ca_2, server, 0);
        unsigned attempts = 0;
        for (int64_t now = 0; now < 3600; now = certificate_renewal_next_s(&renewal, now)) {
            if (certificate_renewal_state(&renewal, now) != CERTIFICATE_RENEWAL_DUE) continue;
            cr_assert(certificate_renewal_insists(&renewal, now));
            certificate_renewal_certificate(&renewal, (struct tls_life){now, now + WEEK}, ca_1, now);
            certificate_renewal_succeeded(&renewal, now);
            cr_assert_lt(++attempts, 60, "every second");
        }
        cr_expect_gt(attempts, 3);
        certificate_renewal_certificate(&renewal, (struct tls_life){3600, 3600 + WEEK}, ca_2, 3600);
        if (server) cr_expect(certificate_renewal_insists(&renewal, 3600), "it has no key yet");
        certificate_renewal_ca(&renewal, ca_2, false, 3600);
        certificate_renewal_succeeded(&renewal, 3600);
        cr_expect_not(certificate_renewal_insists(&renewal, 3600));
        cr_expect_geq(certificate_renewal_next_s(&renewal, 3600), 3600 + WEEK / 2);
    }
}

Test(certificate_renewal, when_its_time_has_come_any_certificate_is_better_than_none) {
    struct certificate_renewal renewal = of_week(6, 0);
    certificate_renewal_ca(&renewal, ca_2, false, 0);
    cr_expect(certificate_renewal_insists(&renewal, WEEK / 2 - 1));
    cr_expect_not(certificate_renewal_insists(&renewal, WEEK / 2));
}

Test(certificate_renewal, the_key_of_an_old_ca_replaces_none) {
    struct certificate_renewal renewal = of_week(7, 0);
    cr_expect(certificate_renewal_takes_key(&renewal, false, ca_2), "it has none");
    cr_expect(certificate_renewal_takes_key(&renewal, true, ca_1));
    certificate_renewal_ca(&renewal, ca_2, true, 0);
    cr_expect(certificate_renewal_takes_key(&renewal, true, ca_2));
    cr_expect_not(certificate_renewal_takes_key(&renewal, true, ca_1));
    certificate_renewal_begin(&renewal, 7, SPREAD_S);
    cr_expect_not(certificate_renewal_takes_key(&renewal, true, ca_2), "it is not known yet which one signs");
}

Test(certificate_renewal, it_ends) {
    struct certificate_renewal renewal = of_week(4, 0);
    cr_expect_eq(certificate_renewal_state(&renewal, WEEK + SECURITY_GRACE_S), CERTIFICATE_RENEWAL_DUE);
    cr_expect_eq(certificate_renewal_state(&renewal, WEEK + SECURITY_GRACE_S + 1), CERTIFICATE_RENEWAL_EXPIRED);
    cr_expect_eq(certificate_renewal_next_s(&renewal, WEEK + SECURITY_GRACE_S + 1), INT64_MAX);
    certificate_renewal_failed(&renewal, true, WEEK);
    cr_expect_eq(certificate_renewal_state(&renewal, WEEK), CERTIFICATE_RENEWAL_REFUSED);
    cr_expect_eq(certificate_renewal_next_s(&renewal, WEEK), WEEK + CERTIFICATE_RENEWAL_REFUSED_S);
    cr_expect_eq(certificate_renewal_state(&renewal, WEEK + CERTIFICATE_RENEWAL_REFUSED_S), CERTIFICATE_RENEWAL_DUE,
                 "once a day it asks again");
    cr_expect_eq(certificate_renewal_state(&renewal, WEEK - 3 * DAY), CERTIFICATE_RENEWAL_DUE,
                 "the clock was set back");
}
