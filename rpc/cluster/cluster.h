/* Who belongs to the cluster: founding it once, and bringing servers in. It decides from what
 * peers and node know, a few times a second; the changes themselves are Raft's. Loop thread only. */
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
/* Pure: `self` and what it sees. */
struct cluster_found cluster_may_found(const struct peer_info *self, const struct peer_info *peers, size_t count);

/* What a leader should change next, one at a time: NONE, or a change for raft. Pure.
 * - A connected server that is no member becomes a learner; if a member that is not connected has its address (a new
 *   disk under an old address), that one is removed first.
 * - A connected learner that has caught up (`caught_up`: by member, in their order) is promoted.
 * - A member, this server too, that says another address than the configuration has moved: its address there is
 *   changed, unless that is another member's. */
struct cluster_change {
    bool wanted;
    enum raft_change_type type;
    uint64_t id;
    const char *address;
};
struct cluster_change cluster_next_change(const struct raft_members *members, const bool *caught_up,
                                          const struct peer_info *self, const struct peer_info *peers, size_t count);

/* No leader is known, and fewer voters than a majority, this one counted, were heard since `since_ms`: not an
 * election, in which all speak, but a cut. `last_seen_ms`: when each member was heard last, in their order. Not of a
 * server that does not vote. Pure. */
bool cluster_cut_off(const struct raft_members *members, uint64_t self, const uint64_t *last_seen_ms,
                     uint64_t since_ms);

#endif
