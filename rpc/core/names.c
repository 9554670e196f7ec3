/* Names and addresses of servers, for people. */
#include "rpc/cluster/last_seen.h"
#include "rpc/core/rpc_internal.h"

const char *rpc_server_name(const struct rpc *rpc, uint64_t id) {
    if (rpc->node && id == atomic_load(&node_view(rpc->node)->id)) return rpc->node_name;
    const struct last_seen *seen = last_seen_find(rpc->last_seen, id);
    return seen && seen->node[0] ? seen->node : "(unknown)";
}

const char *rpc_server_address(const struct rpc *rpc, uint64_t id) {
    const struct raft_member *member = rpc->node ? raft_members_find(node_members(rpc->node), id) : NULL;
    return member ? member->address : "(unknown)";
}
