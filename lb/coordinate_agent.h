/* A node's own part in network coordinates: takes samples, and decides when the node reports its coordinate to the
 * catalog. Servers use it, which measure each other (rpc/server/coordinates.h), and agents on other hosts, which
 * measure the servers that they speak with.
 *
 * How an agent uses it: whenever it has measured a round trip to another node and has got that node's coordinate (from
 * a server: rpc_coordinate_here), it calls coordinate_observe. When coordinate_agent_deadline_ms has come it calls
 * coordinate_report, and sends the record to a server, for rpc_coordinate_put there (or PUT /v1/coordinate/update). The
 * next report makes up for one that gets lost.
 *
 * Pure: time is an argument. Not thread-safe. */
#ifndef COORD_LB_COORDINATE_AGENT_H
#define COORD_LB_COORDINATE_AGENT_H

#include "lb/coordinate.h"

#define COORDINATE_INTERVAL_MS 15000

struct coordinate_agent_config {
    const char *node;     /* this one's name; copied */
    uint64_t interval_ms; /* between two reports, at least; 0: COORDINATE_INTERVAL_MS */
    uint64_t seed;
};
#define COORDINATE_REPORTS_PER_S 64 /* of the whole cluster: in a large cluster each node reports less often */

struct coordinate_agent;
struct coordinate_agent *coordinate_agent_new(const struct coordinate_agent_config *config, uint64_t now_ms);
void coordinate_agent_free(struct coordinate_agent *agent);

/* A sample: the round trip to `node` (any bytes that always name the same one) took `rtt_s` seconds, and it said
 * that it is at `there`. CO_INVALID: refused, see vivaldi_sample. */
int coordinate_observe(struct coordinate_agent *agent, struct slice node, const struct vivaldi_coordinate *there,
                       double rtt_s);
/* `node` has left, or is reached by another path from now on. */
void coordinate_forget(struct coordinate_agent *agent, struct slice node);
const struct vivaldi_coordinate *coordinate_here(const struct coordinate_agent *agent); /* until the next call */

/* When the next report is due: an interval and a random part of another one after the last report, so that nodes that
 * began at the same time spread. */
uint64_t coordinate_agent_deadline_ms(const struct coordinate_agent *agent);
/* False: no report is due. Else *record is the report, valid until the next call. `nodes`: the approximate number of
 * nodes of the cluster. */
bool coordinate_report(struct coordinate_agent *agent, size_t nodes, uint64_t now_ms, Pb__Coordinate *record);

#endif
