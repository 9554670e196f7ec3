#include <criterion/criterion.h>

#include "base/check.h"
#include "health/check.h"

#define SECOND UINT64_C(1000000000)
#define START  (100 * SECOND)

static char nothing[] = "", a_service[] = "web";

static struct check_definition polled(void) {
    return (struct check_definition){.check_id = nothing,
                                     .name = nothing,
                                     .notes = nothing,
                                     .service_id = a_service,
                                     .kind = CHECK_HTTP,
                                     .interval_ns = 10 * (int64_t)SECOND,
                                     .timeout_ns = (int64_t)SECOND,
                                     .initial_status = PB__STATUS__CRITICAL};
}
static struct check_definition ttl(void) {
    struct check_definition d = polled();
    d.kind = CHECK_TTL;
    d.interval_ns = 0;
    d.ttl_ns = 10 * (int64_t)SECOND;
    return d;
}

Test(polled, runs_every_interval_from_start_to_start) {
    struct check_definition d = polled();
    struct check check;
    uint64_t next;
    check_init(&check, &d, START, 3 * SECOND);
    cr_assert_eq(check_step(&check, &d, START, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, START + 3 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 3 * SECOND, &next), CHECK_DO_RUN);
    cr_assert_eq(next, CHECK_NEVER, "nothing is due while it runs");
    cr_assert_eq(check_step(&check, &d, START + 50 * SECOND, &next), CHECK_DO_NOTHING, "never two at once");
    check_result(&check, &d, PB__STATUS__PASSING, START + 5 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 5 * SECOND, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, START + 13 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 13 * SECOND, &next), CHECK_DO_RUN);
    check_result(&check, &d, PB__STATUS__PASSING, START + 40 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 40 * SECOND, &next), CHECK_DO_RUN, "late: at once");
}

Test(polled, first_run_is_spread) {
    struct check_definition d = polled();
    uint64_t most = 0;
    for (uint64_t random = 0; random < 1000; random++) {
        uint64_t fresh = check_first_delay_ns(&d, true, random * 0x9e3779b97f4a7c15u);
        uint64_t old = check_first_delay_ns(&d, false, random * 0x9e3779b97f4a7c15u);
        cr_assert_lt(fresh, SECOND);
        cr_assert_lt(old, 5 * SECOND);
        if (old > most) most = old;
    }
    cr_assert_gt(most, 4 * SECOND);
    d.interval_ns = 0;
    cr_assert_eq(check_first_delay_ns(&d, true, 77), 0);
}

/* A row is a story: results in order (p, w, c), and the status after each. */
Test(polled, thresholds) {
    static const struct {
        uint32_t passing, warning, critical;
        Pb__Status initial;
        const char *results, *statuses;
    } rows[] = {
        {0, 0, 0, PB__STATUS__CRITICAL, "ppcpwc", "ppcpwc"},   {1, 1, 1, PB__STATUS__CRITICAL, "ppcpwc", "ppcpwc"},
        {3, 0, 0, PB__STATUS__CRITICAL, "ppppcpp", "ccppccc"}, {3, 0, 0, PB__STATUS__CRITICAL, "ppcppp", "cccccp"},
        {2, 0, 0, PB__STATUS__CRITICAL, "pwpw", "cwpw"},       {0, 3, 3, PB__STATUS__PASSING, "cccpccc", "ppcpppc"},
        {0, 3, 3, PB__STATUS__PASSING, "ccpcc", "ppppp"},      {0, 1, 3, PB__STATUS__PASSING, "cccp", "wwcp"},
        {0, 2, 4, PB__STATUS__PASSING, "cccccp", "pwwccp"},    {2, 2, 3, PB__STATUS__CRITICAL, "ccpccc", "cccccc"},
        {2, 1, 2, PB__STATUS__PASSING, "cpp", "wwp"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct check_definition d = polled();
        d.success_before_passing = rows[i].passing;
        d.failures_before_warning = rows[i].warning;
        d.failures_before_critical = rows[i].critical;
        d.initial_status = rows[i].initial;
        struct check check;
        uint64_t now = START, next;
        check_init(&check, &d, now, 0);
        for (size_t at = 0; rows[i].results[at]; at++, now += 10 * SECOND) {
            static const char letters[] = "pwc";
            Pb__Status result = (Pb__Status)(strchr(letters, rows[i].results[at]) - letters);
            cr_assert_eq(check_step(&check, &d, now, &next), CHECK_DO_RUN);
            Pb__Status before = check.status;
            bool counts = check_result(&check, &d, result, now);
            cr_assert_eq(letters[check.status], rows[i].statuses[at], "row %zu, result %zu", i, at);
            if (!counts) cr_assert_eq(check.status, before);
        }
    }
}

Test(ttl, expires_once_unless_told) {
    struct check_definition d = ttl();
    struct check check;
    uint64_t next;
    check_init(&check, &d, START, 0);
    cr_assert_eq(check.status, PB__STATUS__CRITICAL);
    check_set(&check, &d, PB__STATUS__PASSING, START + SECOND);
    cr_assert_eq(check_step(&check, &d, START + 10 * SECOND, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, START + 11 * SECOND);
    check_set(&check, &d, PB__STATUS__WARNING, START + 10 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 11 * SECOND, &next), CHECK_DO_NOTHING);
    cr_assert_eq(check.status, PB__STATUS__WARNING);
    cr_assert_eq(check_step(&check, &d, START + 20 * SECOND, &next), CHECK_DO_EXPIRE);
    cr_assert_eq(check.status, PB__STATUS__CRITICAL);
    cr_assert_eq(check_step(&check, &d, START + 99 * SECOND, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, CHECK_NEVER);
    check_set(&check, &d, PB__STATUS__PASSING, START + 100 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 100 * SECOND, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, START + 110 * SECOND);
}

Test(ttl, thresholds_do_not_apply) {
    struct check_definition d = ttl();
    d.success_before_passing = d.failures_before_critical = d.failures_before_warning = 3;
    struct check check;
    check_init(&check, &d, START, 0);
    check_set(&check, &d, PB__STATUS__PASSING, START);
    cr_assert_eq(check.status, PB__STATUS__PASSING);
    check_set(&check, &d, PB__STATUS__CRITICAL, START);
    cr_assert_eq(check.status, PB__STATUS__CRITICAL);
}

Test(deregister, after_being_critical_without_a_break) {
    struct check_definition d = polled();
    d.deregister_after_ns = 30 * (int64_t)SECOND;
    d.interval_ns = 1000 * (int64_t)SECOND;
    struct check check;
    uint64_t next;
    check_init(&check, &d, START, 5 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 5 * SECOND, &next), CHECK_DO_RUN);
    cr_assert_eq(next, START + 30 * SECOND, "the time runs from the start: it has never been healthy");
    check_result(&check, &d, PB__STATUS__PASSING, START + 6 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 100 * SECOND, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, START + 1005 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 1005 * SECOND, &next), CHECK_DO_RUN);
    check_result(&check, &d, PB__STATUS__CRITICAL, START + 1006 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 1006 * SECOND, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, START + 1036 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 1036 * SECOND, &next), CHECK_DO_DEREGISTER);
    cr_assert_eq(check_step(&check, &d, START + 1036 * SECOND, &next), CHECK_DO_NOTHING, "said once");
}

Test(deregister, never_for_node_checks_or_without_a_period) {
    struct check_definition d = ttl();
    struct check check;
    uint64_t next;
    check_init(&check, &d, START, 0);
    (void)check_step(&check, &d, START + 10 * SECOND, &next);
    cr_assert_eq(check_step(&check, &d, START + 1000000 * SECOND, &next), CHECK_DO_NOTHING);
    d.deregister_after_ns = (int64_t)SECOND;
    d.service_id = nothing;
    check_init(&check, &d, START, 0);
    (void)check_step(&check, &d, START + 10 * SECOND, &next);
    cr_assert_eq(check_step(&check, &d, START + 1000000 * SECOND, &next), CHECK_DO_NOTHING);
}

Test(alias, looks_at_once_and_when_something_changed) {
    struct check_definition d = polled();
    d.kind = CHECK_ALIAS;
    d.interval_ns = 0;
    d.alias_node = nothing;
    d.success_before_passing = d.failures_before_critical = d.failures_before_warning = 3;
    struct check check;
    uint64_t next;
    check_init(&check, &d, START, check_first_delay_ns(&d, false, 12345));
    cr_assert_eq(check_step(&check, &d, START, &next), CHECK_DO_RUN);
    cr_assert(check_result(&check, &d, PB__STATUS__PASSING, START), "thresholds do not apply");
    cr_assert_eq(check.status, PB__STATUS__PASSING);
    cr_assert_eq(check_step(&check, &d, START, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, START + 60 * SECOND, "and should it miss a change, once a minute");
    check_hurry(&check, START + SECOND);
    cr_assert_eq(check_step(&check, &d, START + SECOND, &next), CHECK_DO_RUN);
    check_hurry(&check, START + SECOND);
    cr_assert_eq(check_step(&check, &d, START + SECOND, &next), CHECK_DO_NOTHING, "it runs");
    check_result(&check, &d, PB__STATUS__CRITICAL, START + SECOND);
    cr_assert_eq(check.status, PB__STATUS__CRITICAL);
    cr_assert_eq(check_step(&check, &d, START + SECOND, &next), CHECK_DO_RUN, "the change came while it ran");
    check_postpone(&check, START + 2 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + SECOND, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, START + 2 * SECOND);
    char node[] = "n2";
    d.alias_node = node;
    cr_assert_eq(check_step(&check, &d, START + 2 * SECOND, &next), CHECK_DO_RUN);
    check_result(&check, &d, PB__STATUS__PASSING, START + 2 * SECOND);
    (void)check_step(&check, &d, START + 2 * SECOND, &next);
    cr_assert_eq(next, START + 62 * SECOND, "another node is no other matter");
    check_hurry(&check, START + 3 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 3 * SECOND, &next), CHECK_DO_RUN);
    check_postpone(&check, CHECK_NEVER);
    cr_assert_eq(check_step(&check, &d, START + 1000 * SECOND, &next), CHECK_DO_NOTHING, "nothing is known yet");
    cr_assert_eq(next, CHECK_NEVER);
    check_hurry(&check, START + 1001 * SECOND);
    cr_assert_eq(check_step(&check, &d, START + 1001 * SECOND, &next), CHECK_DO_RUN);
}

Test(damping, holds_and_lets_go_by_itself) {
    struct check_definition d = ttl();
    struct check check;
    uint64_t now = START, next;
    d.ttl_ns = 1000 * (int64_t)SECOND;
    check_init(&check, &d, now, 0);
    check_set(&check, &d, PB__STATUS__PASSING, now);
    check_damp(&check, 3, 30 * SECOND);
    static const char said[] = "cpcp";
    for (size_t i = 0; said[i]; i++) {
        check_set(&check, &d, said[i] == 'p' ? PB__STATUS__PASSING : PB__STATUS__CRITICAL, now += SECOND);
    }
    cr_assert(check_held(&check));
    cr_assert_eq(check.status, PB__STATUS__CRITICAL);
    cr_assert_eq(check.flap.said, PB__STATUS__PASSING);
    cr_assert_eq(check_step(&check, &d, now, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, START + 31 * SECOND, "30 s after the first of the four");
    cr_assert_eq(check_step(&check, &d, next, &next), CHECK_DO_SETTLE);
    cr_assert_eq(check.status, PB__STATUS__PASSING);
    cr_assert_not(check_held(&check));
    cr_assert_eq(check_step(&check, &d, START + 31 * SECOND, &next), CHECK_DO_NOTHING, "said once");
    check_end(&check);
}

/* Held as critical is not critical: only without a break does a service go. */
Test(damping, does_not_deregister) {
    struct check_definition d = polled();
    struct check check;
    uint64_t now = START, next;
    d.deregister_after_ns = 5 * (int64_t)SECOND;
    d.interval_ns = (int64_t)SECOND;
    d.initial_status = PB__STATUS__PASSING;
    check_init(&check, &d, now, 0);
    check_damp(&check, 2, 60 * SECOND);
    for (unsigned i = 0; i < 30; i++, now += SECOND) {
        enum check_action action = check_step(&check, &d, now, &next);
        cr_assert_eq(action, CHECK_DO_RUN, "%u", i);
        check_result(&check, &d, i % 2 ? PB__STATUS__PASSING : PB__STATUS__CRITICAL, now);
        cr_assert_eq(check_step(&check, &d, now, &next), CHECK_DO_NOTHING, "%u", i);
    }
    cr_assert_eq(check.status, PB__STATUS__CRITICAL);
    for (unsigned i = 0; i < 5; i++, now += SECOND) {
        cr_assert_eq(check_step(&check, &d, now, &next), CHECK_DO_RUN);
        check_result(&check, &d, PB__STATUS__CRITICAL, now);
    }
    (void)check_step(&check, &d, now, &next);
    check_result(&check, &d, PB__STATUS__CRITICAL, now);
    cr_assert_eq(check_step(&check, &d, now, &next), CHECK_DO_DEREGISTER);
    check_end(&check);
}

Test(times, huge_durations_do_not_wrap) {
    struct check_definition d = ttl();
    d.ttl_ns = INT64_MAX;
    d.deregister_after_ns = INT64_MAX;
    struct check check;
    uint64_t next;
    check_init(&check, &d, UINT64_MAX - 5, 0);
    cr_assert_eq(check_step(&check, &d, UINT64_MAX - 4, &next), CHECK_DO_NOTHING);
    cr_assert_eq(next, CHECK_NEVER - 1);
}
