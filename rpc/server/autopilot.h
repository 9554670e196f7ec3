/* Decides which server may leave the cluster. Automatically: one that is dead and has been replaced. For an operator:
 * any, but never at the cost of the quorum. */
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
    /* the wanted number of servers: -bootstrap-expect; fewer than 3 (one was founded alone, others joined): 3 */
    uint32_t servers;
    uint64_t min_quorum, stabilization_ms;
};
/* Pure. The id of a member that has been gone for the stabilization time: a learner, or a voter while as many voters
 * as the cluster is to have (and as min_quorum) have been connected for as long; 0: none. */
uint64_t autopilot_dead(const struct autopilot_rules *rules, const struct autopilot_server *servers, size_t count);

/* Pure. Without `id`, would the connected voters still be a majority? Otherwise the removal could not even be
 * committed, or it would be the cluster's last entry. */
bool autopilot_may_go(const struct autopilot_server *servers, size_t count, uint64_t id);

/* Loop thread, leader: the same, from this server's own knowledge. */
uint64_t autopilot_next_dead(struct rpc *rpc);
/* Another server: true when its core answers (which a server with a failed log does not do), its disk has room, and its
 * state is sound. */
bool autopilot_well(struct rpc *rpc, uint64_t id);
/* May the cluster lose this server? A connected server that cannot agree to writes (its disk is full or failing, its
 * state damaged, or it needs a snapshot) does not count for the majority. */
bool autopilot_can_spare(struct rpc *rpc, uint64_t id);

#endif
