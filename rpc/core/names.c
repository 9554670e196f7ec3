/* Names and addresses of servers, for people. */
#include "rpc/core/rpc_internal.h"

const char *rpc_server_name(const struct rpc *rpc, uint64_t id) {
    if (rpc->node && id == atomic_load(&node_view(rpc->node)->id)) return rpc->node_name;
    for (size_t i = 0; i < ARRAY_COUNT(rpc->last_seen); i++)
        if (rpc->last_seen[i].id == id && rpc->last_seen[i].node[0]) return rpc->last_seen[i].node;
    return "(unknown)";
}

const char *rpc_server_address(const struct rpc *rpc, uint64_t id) {
    const struct raft_member *member = rpc->node ? raft_members_find(node_members(rpc->node), id) : NULL;
    return member ? member->address : "(unknown)";
}
