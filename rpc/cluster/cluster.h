/* The members of the cluster: founding it once, and letting servers in. This module decides a few times a second, from
 * the knowledge of peers and node; Raft makes the changes. Loop thread only. */
#ifndef COORD_RPC_CLUSTER_H
#define COORD_RPC_CLUSTER_H

#include "consensus/node.h"
#include "rpc/cluster/peers.h"

/* The first `expect` servers that see each other found the cluster: the one with the lowest id does it, and only
 * while none of those it sees has a log. Their data folders remember it. */
struct cluster_found {
    bool found;
    struct raft_members members;
};
/* Pure. `peers`: the servers that `self` sees. */
struct cluster_found cluster_may_found(const struct peer_info *self, const struct peer_info *peers, size_t count);

/* The next change that a leader should make, one at a time: none, or a change for Raft. Pure.
 * - A connected server that is no member becomes a learner; if a member that is not connected has its address (a new
 *   disk under an old address), that one is removed first.
 * - A connected learner that has caught up (`caught_up`: by member, in their order) is promoted.
 * - A member, this server included, whose own address differs from the configuration has moved: its address there is
 *   changed, unless another member has the new one. */
struct cluster_change {
    bool wanted;
    enum raft_change_type type;
    uint64_t id;
    const char *address;
};
struct cluster_change cluster_next_change(const struct raft_members *members, const bool *caught_up,
                                          const struct peer_info *self, const struct peer_info *peers, size_t count);

/* Is this server cut off: no leader is known, and fewer voters than a majority, this one included, were heard since
 * `since_ms`? (In an election all would speak.) False for a server that does not vote. `last_seen_ms`: when each member
 * was heard last, in their order. Pure. */
bool cluster_cut_off(const struct raft_members *members, uint64_t self, const uint64_t *last_seen_ms,
                     uint64_t since_ms);

#endif
