/* Which dead server may leave the cluster (design, decision 7): one that has been replaced, and never at the cost of the quorum. */
#ifndef COORD_RPC_AUTOPILOT_H
#define COORD_RPC_AUTOPILOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rpc;

struct autopilot_server {
    uint64_t id;
    bool voter, connected;         /* connected with the leader; the leader itself: true */
    uint64_t stable_ms;            /* since it has been so */
};
struct autopilot_rules {
    bool cleanup;
    uint32_t servers;              /* how many the cluster is to have: -bootstrap-expect; 0: 3 */
    uint64_t min_quorum, stabilization_ms;
};
/* Pure. The id of a member that has been gone for the stabilization time: a learner, or a voter while as many voters as the cluster is to have
 * (and as min_quorum) have been connected for as long; 0: none. */
uint64_t autopilot_dead(const struct autopilot_rules *rules, const struct autopilot_server *servers, size_t count);

/* Loop thread, leader: the same, of what this server knows. */
uint64_t autopilot_next_dead(struct rpc *rpc);

#endif
