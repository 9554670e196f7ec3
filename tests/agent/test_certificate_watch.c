/* How near its end is a certificate? */
#include <criterion/criterion.h>

#include "agent/certificate_watch.h"

#define DAY 86400
static const struct certificate_thresholds thresholds = {.info_days = 90, .warning_days = 30, .critical_days = 7};

static enum http_certificate_severity of(bool renews, int64_t life_s, int64_t left_s) {
    struct http_certificate one = {.from_s = 1000, .to_s = 1000 + life_s, .renews = renews};
    return certificate_severity(&thresholds, &one, one.to_s - left_s);
}

Test(certificate_watch, days_left_count_for_certificates_of_others) {
    cr_expect_eq(of(false, 365 * DAY, 90 * DAY + 1), HTTP_CERTIFICATE_OK);
    cr_expect_eq(of(false, 365 * DAY, 90 * DAY), HTTP_CERTIFICATE_INFO);
    cr_expect_eq(of(false, 365 * DAY, 30 * DAY + 1), HTTP_CERTIFICATE_INFO);
    cr_expect_eq(of(false, 365 * DAY, 30 * DAY), HTTP_CERTIFICATE_WARNING);
    cr_expect_eq(of(false, 365 * DAY, 7 * DAY + 1), HTTP_CERTIFICATE_WARNING);
    cr_expect_eq(of(false, 365 * DAY, 7 * DAY), HTTP_CERTIFICATE_CRITICAL);
    cr_expect_eq(of(false, 365 * DAY, -5), HTTP_CERTIFICATE_CRITICAL);
}

Test(certificate_watch, a_renewal_that_is_overdue_counts_for_what_renews_itself) {
    cr_expect_eq(of(true, 7 * DAY, 7 * DAY), HTTP_CERTIFICATE_OK, "seven days are its whole life");
    cr_expect_eq(of(true, 9 * DAY, 3 * DAY), HTTP_CERTIFICATE_OK);
    cr_expect_eq(of(true, 9 * DAY, 3 * DAY - 1), HTTP_CERTIFICATE_WARNING);
    cr_expect_eq(of(true, 10 * DAY, DAY), HTTP_CERTIFICATE_WARNING);
    cr_expect_eq(of(true, 10 * DAY, DAY - 1), HTTP_CERTIFICATE_CRITICAL);
    cr_expect_eq(of(true, 10 * DAY, 0), HTTP_CERTIFICATE_CRITICAL);
    struct http_certificate stuck = {.to_s = 7 * DAY, .renews = true, .stuck = true};
    cr_expect_eq(certificate_severity(&thresholds, &stuck, 10), HTTP_CERTIFICATE_CRITICAL,
                 "the cluster refuses to renew it");
}
