/* Metrics: counters, gauges and latency histograms, declared with METRIC (static storage), registered once, updated from
 * any thread without a lock, printed in Prometheus' text format 0.0.4. */
#ifndef COORD_BASE_METRICS_H
#define COORD_BASE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buffer.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
#define METRIC_BUCKETS 16 /* le 0.00005 s, doubling; the last is +Inf */

struct metric {
    _Alignas(64) const char *name; /* "coord_http_requests_total". A cache line of its own, and no gap between two */
    const char *help;              /* one line, without a period at its end */
    const char *labels;            /* NULL, or `method="GET"`; metrics of one name register one after another */
    enum metric_type type;
    _Atomic uint64_t value; /* counter, gauge; histogram: sum in ns */
    _Atomic uint64_t buckets[METRIC_BUCKETS];
    struct metric *next; /* the registry's */
    _Atomic int registered;
};

/* Declares one, or an array: METRIC sent = {.name = ...}. The linker gathers all of them, so that the reference
 * (docs/reference.md) has those too that this process has not registered. */
#define METRIC static struct metric __attribute__((section("coord_metrics"), used))

void metric_register(struct metric *metric); /* declared with METRIC; idempotent; any thread */
static inline void metric_add(struct metric *m, uint64_t n) {
    atomic_fetch_add_explicit(&m->value, n, memory_order_relaxed);
}
static inline void metric_set(struct metric *m, uint64_t n) {
    atomic_store_explicit(&m->value, n, memory_order_relaxed);
}
void metric_observe_ns(struct metric *metric, uint64_t nanoseconds);
void metrics_print(struct buffer *out); /* everything registered, plus process CPU, RSS, fds, start time */
/* Every metric of the program, registered or not, in no order. */
void metrics_each(void (*see)(void *data, const struct metric *metric), void *data);
extern const char *const metric_type_names[]; /* "counter", by enum metric_type */

#endif
