/* A node's own part: it takes samples, and says when its coordinate is to be reported to the catalog. The same for
 * servers, which measure each other (rpc/server/coordinates.h), and for agents on other hosts, which measure the servers
 * that they speak with.
 *
 * How an agent uses it: whenever it has a round trip to another node and the coordinate that node said it has (a
 * server's: rpc_coordinate_here), it calls coordinate_observe. When coordinate_agent_deadline_ms has come it calls
 * coordinate_report, and takes the record to a server, for rpc_coordinate_put there (or PUT /v1/coordinate/update).
 * Reports that get lost are made up for by the next.
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
#define COORDINATE_REPORTS_PER_S 64 /* of the whole cluster: in large ones each node reports less often */

struct coordinate_agent;
struct coordinate_agent *coordinate_agent_new(const struct coordinate_agent_config *config, uint64_t now_ms);
void coordinate_agent_free(struct coordinate_agent *agent);

/* A sample: the round trip to `node` (any bytes that always name the same one) took `rtt_s` seconds, and it said
 * that it is at `there`. CO_INVALID: refused, see vivaldi_sample. */
int coordinate_observe(struct coordinate_agent *agent, struct slice node, const struct vivaldi_coordinate *there,
                       double rtt_s);
/* `node` left, or is to be reached in another way from now on. */
void coordinate_forget(struct coordinate_agent *agent, struct slice node);
const struct vivaldi_coordinate *coordinate_here(const struct coordinate_agent *agent); /* until the next call */

/* When the next report is due: an interval and a random part of another one after the last, so that nodes which
 * began together spread. */
uint64_t coordinate_agent_deadline_ms(const struct coordinate_agent *agent);
/* False: not yet. Else the record to report, valid until the next call. `nodes`: how many the cluster has, about. */
bool coordinate_report(struct coordinate_agent *agent, size_t nodes, uint64_t now_ms, Pb__Coordinate *record);

#endif
