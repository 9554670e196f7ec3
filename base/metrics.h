/* Metrics: counters, gauges and latency histograms, registered once (static storage), updated from any thread
 * without a lock, printed in Prometheus' text format 0.0.4. */
#ifndef COORD_BASE_METRICS_H
#define COORD_BASE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buffer.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
#define METRIC_BUCKETS 16 /* le 0.00005 s, doubling; the last is +Inf */

struct metric {
    const char *name, *help; /* "coord_http_requests_total" */
    const char *labels;      /* NULL, or `method="GET"`; metrics of one name register one after another */
    enum metric_type type;
    _Atomic uint64_t value; /* counter, gauge; histogram: sum in ns */
    _Atomic uint64_t buckets[METRIC_BUCKETS];
    struct metric *next; /* the registry's */
    _Atomic int registered;
};

void metric_register(struct metric *metric); /* idempotent; any thread */
static inline void metric_add(struct metric *m, uint64_t n) {
    atomic_fetch_add_explicit(&m->value, n, memory_order_relaxed);
}
static inline void metric_set(struct metric *m, uint64_t n) {
    atomic_store_explicit(&m->value, n, memory_order_relaxed);
}
void metric_observe_ns(struct metric *metric, uint64_t nanoseconds);
void metrics_print(struct buffer *out); /* everything registered, plus process CPU, RSS, fds, start time */

#endif
