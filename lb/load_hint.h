/* What an instance says of its load, and the forms in which it says so: the parameters of PUT
 * /v1/agent/service/load/:id, a line in the output of a check, the header X-Coord-Load, and ORCA's header
 * endpoint-load-metrics. All are read strictly: where what is used does not make sense as a whole it is refused, with one
 * line that says why.
 *
 * Pure; any number of threads. */
#ifndef COORD_LB_LOAD_HINT_H
#define COORD_LB_LOAD_HINT_H

#include "base/buffer.h"
#include "base/error.h"

#define LOAD_MOST          1e6     /* 1 is as much as the instance can do; more is too much */
#define LOAD_INFLIGHT_MOST 1e9     /* requests */
#define LOAD_LATENCY_MOST  86400e3 /* ms: a day */

/* All at least 0. NAN: not said. A report says the load at least. */
struct load_hint {
    double load;       /* a part of what it can do: 0 idle, 1 busy, above 1 overloaded */
    double inflight;   /* requests that it works on or that wait in it */
    double latency_ms; /* how long a request took lately */
    double errors;     /* part of the requests that failed lately, 0 to 1 */
};
struct load_hint load_unknown(void); /* nothing said */

/* CO_INVALID: no load, or a number that is beyond its bounds or not one. */
int load_check(const struct load_hint *hint, struct fault *fault);

/* "load=0.42 inflight=17 latency_ms=3.5 errors=0.01": `load` and any of the others, in any order, each once, separated
 * by blanks. The load alone may stand without its name, as the first: "0.42". */
int load_parse_line(struct slice line, struct load_hint *hint, struct fault *fault);
/* Of a check's output (a script's, the note of a TTL update): the first line that begins with "load=". CO_NOTFOUND:
 * there is none, and no fault. */
int load_parse_output(struct slice output, struct load_hint *hint, struct fault *fault);

/* The value of endpoint-load-metrics, as Envoy and gRPC's services send it (Open Request Cost Aggregation; the fields
 * are those of xds.data.orca.v3.OrcaLoadReport): "TEXT name=value, name=value" (or name:value) and "JSON {...}".
 * CO_UNSUPPORTED: "BIN ...". What is taken of it: the load is application_utilization, or, where that is 0 or missing,
 * cpu_utilization; errors are eps / rps_fractional; inflight and latency_ms are named_metrics of these names. Other
 * fields are passed over. */
int load_parse_orca(struct slice value, struct load_hint *hint, struct fault *fault);

#endif
