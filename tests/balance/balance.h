/* A simulation of load balancing: servers with queues, clients that choose among them by what they have been told, and
 * how long requests take. Everything follows from a seed.
 *
 * Assumed: requests come at random moments (Poisson), each from a random client. A server works on `workers` requests
 * at once, the others wait in order. Work is spread log-normally, so a few requests are much longer than most. Some
 * servers are slower than the others, which nobody knows: all have the same weight. At times a neighbour on a server's
 * machine takes a part of its speed away (the antagonist). The network takes no time.
 *
 * Each server reports every `hint_ms`, at moments of its own, and half a period later the report is known to all
 * clients at once: so hints are between a half and one and a half periods old, one on average. 0: clients know the
 * present. A report has the requests in flight at that moment, as such and as the load, and the latency, averaged over
 * about the last 10 requests that found about as many. A client adds the requests that it has in flight itself, as pick.h says;
 * with hints of the present it does not, because they are in the hint. */
#ifndef COORD_TESTS_BALANCE_H
#define COORD_TESTS_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"

enum policy { RANDOM, ROUND_ROBIN, LEAST_LOADED, P2C, HCL, POLICIES };
extern const char *const policy_names[POLICIES];

struct fleet {
    const char *name;
    size_t servers, workers, clients;
    double work_ms;    /* of a request, on average, at full speed */
    double spread;     /* sigma of its logarithm; the longest hundredth is exp(2.33 sigma - sigma^2/2) times that */
    double slow_part;  /* of the servers ... */
    double slow_speed; /* ... work at this part of the speed */
    double antagonist_part;  /* of the time ... */
    double antagonist_speed; /* ... each one works at this part of its speed */
    double antagonist_ms;    /* for so long at a time, on average */
    size_t requests;         /* to be measured: queues at 90 % load need long to show how long they get */
};

struct run {
    struct fleet fleet;
    enum policy policy;
    double hint_ms;
    double load;     /* requests, as a part of what the fleet can do at most */
    size_t requests; /* measured; a fifth of so many come before, to fill the queues */
    uint64_t seed;
    /* NULL, or what is called every `watch_ms`, with the requests in flight on each server. */
    void (*watch)(void *data, double now_ms, const uint32_t *inflight, size_t servers);
    void *data;
    double watch_ms;
};

struct outcome {
    double mean_ms, p50_ms, p90_ms, p99_ms, p999_ms;
    /* The most requests that one server got within HERD_MS, as a multiple of its fair part. */
    double herd;
    double fullest; /* the most requests that were in flight on one server */
};
#define HERD_MS 100

void balance_run(const struct run *run, struct outcome *outcome);

/* -- plots: plot.c ------------------------------------------------------------------------------------------------ */
enum { SERIES_MAX = 8 };
struct series {
    const char *name;
    const double *y; /* NAN: no point */
};
struct plot {
    const char *title, *x_label, *y_label;
    const double *x;
    size_t points;
    const struct series *series;
    size_t series_count;
    bool log_x, log_y;
    double y_most; /* 0: what the series have */
};
void plot_svg(const struct plot *plot, struct buffer *out);
/* plot_text.c: of a text with a title, what x is, what y is, and the names of the series, a line each; then a line for each
 * x with the series' values. Fields are between tabs; one that is no number is no point. Both axes are logarithmic. 1: that
 * is less than two points. */
int plot_text(FILE *from, struct buffer *out);

/* -- what is shown in docs/load-balancing.md: report.c ------------------------------------------------------------ */
extern const struct fleet mixed_fleet, equal_fleet;
/* Rewrites the tables in DOCS/load-balancing.md and the plots in DOCS/load-balancing/. 0, or 1 after a message. */
int report_write(const char *docs);

#endif
