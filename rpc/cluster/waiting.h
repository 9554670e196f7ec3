/* Describes why a server without a leader waits, in a line of its log: the servers that it sees, and the outcome of
 * each address that it tries. Pure: the knowledge and the time are arguments. */
#ifndef COORD_RPC_WAITING_H
#define COORD_RPC_WAITING_H

#include "consensus/raft.h"
#include "rpc/cluster/peers.h"

#define WAITING_TELL_MS      10000 /* how often, and the delay of the first line */
#define WAITING_TELL_LOST_MS 60000 /* a server that belongs to a cluster: how often after the first line */

struct waiting {
    const struct peer_info *self;
    const struct raft_members *members; /* as its log has them */
    const struct peer_info *peers;      /* those that are connected */
    size_t peer_count;
    const struct peers_address *addresses;
    size_t address_count;
    uint16_t port; /* the servers' */
};
void waiting_say(const struct waiting *waiting, struct buffer *out); /* no NUL */

/* Zero at first. */
struct waiting_clock {
    uint64_t since_ms, told_ms; /* 0: it does not wait; it has said nothing since */
};
/* Is a line due? `waits`: no leader is known. `founded`: it belongs to a cluster. */
bool waiting_due(struct waiting_clock *clock, bool waits, bool founded, uint64_t now_ms);

#endif
