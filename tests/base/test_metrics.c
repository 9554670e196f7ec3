#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/metrics.h"

METRIC gets = {.name = "t_requests_total", .help = "Requests.", .labels = "method=\"GET\"", .type = METRIC_COUNTER};
METRIC puts_ = {.name = "t_requests_total", .help = "Requests.", .labels = "method=\"PUT\"", .type = METRIC_COUNTER};
METRIC depth = {.name = "t_depth", .help = "Depth.", .type = METRIC_GAUGE};
METRIC wait = {.name = "t_wait_seconds", .help = "Waits.", .type = METRIC_HISTOGRAM};
METRIC step = {.name = "t_step_seconds", .help = "Steps.", .labels = "k=\"v\"", .type = METRIC_HISTOGRAM};

static struct buffer printed;

static void print(void) {
    buffer_reset(&printed);
    metrics_print(&printed);
    buffer_append_byte(&printed, '\0');
}

static void expect_line(const char *line) { cr_expect_not_null(strstr(printed.data, line), "%s is missing", line); }

Test(metrics, text) {
    metric_register(&gets);
    metric_register(&depth);
    metric_register(&puts_); /* joins its family although another one stands between */
    metric_register(&gets);
    metric_add(&gets, 3);
    metric_add(&puts_, 1);
    metric_add(&gets, 2);
    metric_set(&depth, 9);
    print();
    expect_line(
        "# HELP t_requests_total Requests.\n# TYPE t_requests_total counter\n"
        "t_requests_total{method=\"GET\"} 5\nt_requests_total{method=\"PUT\"} 1\n");
    expect_line("# TYPE t_depth gauge\nt_depth 9\n");
    buffer_free(&printed);
}

Test(metrics, histogram) {
    metric_register(&wait);
    metric_register(&step);
    metric_observe_ns(&wait, 0);
    metric_observe_ns(&wait, 50000);
    metric_observe_ns(&wait, 50001);
    metric_observe_ns(&wait, 1500000000);
    metric_observe_ns(&step, 2000000000);
    print();
    expect_line("t_wait_seconds_bucket{le=\"0.00005\"} 2\nt_wait_seconds_bucket{le=\"0.0001\"} 3\n");
    expect_line(
        "t_wait_seconds_bucket{le=\"0.8192\"} 3\nt_wait_seconds_bucket{le=\"+Inf\"} 4\n"
        "t_wait_seconds_sum 1.500100001\nt_wait_seconds_count 4\n");
    expect_line(
        "t_step_seconds_bucket{k=\"v\",le=\"+Inf\"} 1\nt_step_seconds_sum{k=\"v\"} 2\n"
        "t_step_seconds_count{k=\"v\"} 1\n");
    buffer_free(&printed);
}

METRIC never = {.name = "t_never_registered", .help = "Never", .type = METRIC_GAUGE};

static void count_known(void *data, const struct metric *metric) {
    static const struct metric *const known[] = {&gets, &puts_, &depth, &wait, &step, &never};
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) *(size_t *)data += known[i] == metric;
    cr_expect(metric->name && metric->help && metric->help[0], "%s", metric->name);
}

Test(metrics, all_that_are_declared) {
    size_t count = 0;
    metrics_each(count_known, &count);
    cr_expect_eq(count, 6, "those too that nobody registered: %zu", count);
}

static double value_of(const char *name) {
    const char *at = strstr(printed.data, name);
    cr_assert_not_null(at, "%s is missing", name);
    return strtod(at + strlen(name), NULL);
}

Test(metrics, process) {
    print();
    cr_expect_gt(value_of("\nprocess_resident_memory_bytes "), 100000);
    cr_expect_geq(value_of("\nprocess_open_fds "), 3);
    cr_expect_geq(value_of("\nprocess_cpu_seconds_total "), 0);
    cr_expect_gt(value_of("\nprocess_max_fds "), 3);
    double started = value_of("\nprocess_start_time_seconds ");
    double now = (double)time(NULL);
    cr_expect(started > now - 600 && started < now + 2, "%f, now %f", started, now);
    buffer_free(&printed);
}
