/* A leader's changes of the cluster's configuration, one at a time (rpc/cluster/cluster.h decides which). */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "registry/operator.h"
#include "rpc/cluster/cluster.h"
#include "rpc/cluster/last_seen.h"
#include "rpc/server/autopilot.h"
#include "rpc/server/server_internal.h"
#include "rpc/server/version.h"

#define MOVED_MS             2000 /* a server that is connected for so long stays where it is */
#define INCOMPATIBLE_TELL_MS 60000

/* Leaves out servers that an operator removed, although they run. */
static size_t without_removed(struct rpc *rpc, const struct raft_members *members, struct peer_info *peers,
                              size_t count) {
    size_t kept = 0, strangers = 0;
    for (size_t i = 0; i < count; i++) strangers += !raft_members_find(members, peers[i].id);
    if (strangers == 0) return count;
    struct store_txn *txn = store_read(rpc->loop_reader);
    for (size_t i = 0; i < count; i++)
        if (raft_members_find(members, peers[i].id) || !operator_server_removed(txn, peers[i].id))
            peers[kept++] = peers[i];
    store_read_done(rpc->loop_reader);
    return kept;
}

static void tell_incompatible(struct rpc *rpc, const struct peer_info *peer, const char *why) {
    uint64_t now_ms = clock_mono_ms();
    if (rpc->server->incompatible_id == peer->id && now_ms - rpc->server->incompatible_ms < INCOMPATIBLE_TELL_MS)
        return;
    rpc->server->incompatible_id = peer->id, rpc->server->incompatible_ms = now_ms;
    log_warn("raft", "a server is not taken in node=%s address=%s reason=\"%s\"", peer->node, peer->address, why);
}

static size_t without_incompatible(struct rpc *rpc, const struct raft_members *members, struct peer_info *peers,
                                   size_t count) {
    uint64_t cluster_id = machine_cluster(rpc->machine);
    unsigned version = version_to_be(rpc);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const char *why = version_incompatible(&peers[i], version, cluster_id, members);
        if (!why) peers[kept++] = peers[i];
        else tell_incompatible(rpc, &peers[i], why);
    }
    return kept;
}

/* Has the server been at its new address for long enough? Two processes with copies of one folder replace each other's
 * connection again and again, which is no move. */
static bool stays(struct rpc *rpc, uint64_t id, uint64_t self) {
    const struct last_seen *seen = last_seen_find(rpc->last_seen, id);
    return seen && seen->up ? clock_mono_ms() - seen->since_ms >= MOVED_MS : id == self;
}

/* A voter is noted as removed first, so that it cannot come back with its old votes and entries. A server that never
 * voted has none. */
static void remove_gone(struct rpc *rpc, uint64_t id, const char *why) {
    const struct raft_member *member = raft_members_find(node_members(rpc->node), id);
    if (member && member->voter) {
        operator_remove(rpc, id, why);
        return;
    }
    char address[sizeof((struct raft_member *)0)->address];
    snprintf(address, sizeof address, "%s", rpc_server_address(rpc, id));
    if (node_change(rpc->node, RAFT_REMOVE, id, NULL) == CO_OK)
        log_info("raft", "a server that did not vote is removed, it is gone node=%s address=%s id=%016llx",
                 rpc_server_name(rpc, id), address, (unsigned long long)id);
}

static void make_change(struct rpc *rpc, const struct cluster_change *change) {
    static const char *const names[] = {[RAFT_ADD_LEARNER] = "is taken in as a learner",
                                        [RAFT_PROMOTE] = "is promoted to voter",
                                        [RAFT_READDRESS] = "has moved"};
    char address[sizeof((struct raft_member *)0)->address];
    snprintf(address, sizeof address, "%s", change->address ? change->address : rpc_server_address(rpc, change->id));
    if (node_change(rpc->node, change->type, change->id, change->address) != CO_OK) return;
    log_info("raft", "a server %s node=%s address=%s id=%016llx", names[change->type], rpc_server_name(rpc, change->id),
             address, (unsigned long long)change->id);
}

void server_changes(struct rpc *rpc, const struct peer_info *self, struct peer_info *peers, size_t count) {
    const struct raft_members *members = node_members(rpc->node);
    count = without_removed(rpc, members, peers, count);
    count = without_incompatible(rpc, members, peers, count);
    bool caught_up[RAFT_MEMBERS_MAX];
    for (uint32_t i = 0; i < members->count; i++) caught_up[i] = node_caught_up(rpc->node, members->member[i].id);
    struct cluster_change change = cluster_next_change(members, caught_up, self, peers, count);
    if (change.wanted && change.type == RAFT_READDRESS && !stays(rpc, change.id, self->id)) change.wanted = false;
    uint64_t dead = change.wanted ? 0 : autopilot_next_dead(rpc);
    if (dead) remove_gone(rpc, dead, "it is dead, and others have taken its place");
    else if (change.wanted && change.type == RAFT_REMOVE)
        remove_gone(rpc, change.id, "it is gone, and another server has its address");
    else if (change.wanted) make_change(rpc, &change);
}
