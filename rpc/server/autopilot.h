/* Which server may leave the cluster. By itself: one that is dead and has been replaced. By an
 * operator: any, but never at the cost of the quorum. */
#ifndef COORD_RPC_AUTOPILOT_H
#define COORD_RPC_AUTOPILOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rpc;

struct autopilot_server {
    uint64_t id;
    bool voter, connected; /* connected with the leader; the leader itself: true */
    uint64_t stable_ms;    /* since it has been so */
};
struct autopilot_rules {
    bool cleanup;
    /* how many the cluster is to have: -bootstrap-expect; fewer than 3 (one was founded alone, others joined): 3 */
    uint32_t servers;
    uint64_t min_quorum, stabilization_ms;
};
/* Pure. The id of a member that has been gone for the stabilization time: a learner, or a voter while as many voters
 * as the cluster is to have (and as min_quorum) have been connected for as long; 0: none. */
uint64_t autopilot_dead(const struct autopilot_rules *rules, const struct autopilot_server *servers, size_t count);

/* Pure. Without `id`, would those that are connected still be a majority of who votes? Else the removal could not
 * even be committed, or it would be the cluster's last deed. */
bool autopilot_may_go(const struct autopilot_server *servers, size_t count, uint64_t id);

/* Loop thread, leader: the same, of what this server knows. */
uint64_t autopilot_next_dead(struct rpc *rpc);
/* Another server: its core answers (its log may be down), its disk has room, its state is sound. */
bool autopilot_well(struct rpc *rpc, uint64_t id);
/* Who is connected and yet cannot agree to writes (disk full or failing, state damaged, a snapshot needed) is no
 * part of the majority here. */
bool autopilot_can_spare(struct rpc *rpc, uint64_t id);

#endif
