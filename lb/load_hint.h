/* An instance's report of its load, and the forms that it may have: the parameters of PUT /v1/agent/service/load/:id, a
 * line in the output of a check, the header X-Coord-Load, and ORCA's header endpoint-load-metrics. All are read
 * strictly: a report with an invalid field that is used is refused as a whole, with one line that has the reason.
 *
 * Pure; any number of threads. */
#ifndef COORD_LB_LOAD_HINT_H
#define COORD_LB_LOAD_HINT_H

#include "base/buffer.h"
#include "base/error.h"

#define LOAD_MOST          1e6     /* 1 is the capacity of the instance; more is overload */
#define LOAD_INFLIGHT_MOST 1e9     /* requests */
#define LOAD_LATENCY_MOST  86400e3 /* ms: a day */

/* All are at least 0. NAN: not reported. A report has at least the load. */
struct load_hint {
    double load;       /* part of the capacity: 0 idle, 1 busy, above 1 overloaded */
    double inflight;   /* requests that it works on, or that wait in it */
    double latency_ms; /* duration of recent requests */
    double errors;     /* part of recent requests that failed, 0 to 1 */
};
struct load_hint load_unknown(void); /* nothing is reported */

/* CO_INVALID: no load, or a number that is beyond its bounds or not one. */
int load_check(const struct load_hint *hint, struct fault *fault);

/* "load=0.42 inflight=17 latency_ms=3.5 errors=0.01": `load` and any of the others, in any order, each once, separated
 * by blanks. The load alone may stand without its name, as the first: "0.42". */
int load_parse_line(struct slice line, struct load_hint *hint, struct fault *fault);
/* Reads the first line of a check's output (of a script, or the note of a TTL update) that begins with "load=".
 * CO_NOTFOUND: there is no such line, and no fault. */
int load_parse_output(struct slice output, struct load_hint *hint, struct fault *fault);

/* The value of endpoint-load-metrics, as Envoy and gRPC's services send it (Open Request Cost Aggregation; the fields
 * are those of xds.data.orca.v3.OrcaLoadReport): "TEXT name=value, name=value" (or name:value) and "JSON {...}".
 * CO_UNSUPPORTED: "BIN ...". The load is application_utilization, or, if that is 0 or missing, cpu_utilization. Errors
 * are eps / rps_fractional. inflight and latency_ms are the named_metrics of these names. Other fields are ignored. */
int load_parse_orca(struct slice value, struct load_hint *hint, struct fault *fault);

#endif
