#include "rpc/server/autopilot.h"

#include "base/clock.h"
#include "registry/operator.h"
#include "rpc/audit/audit.h"
#include "rpc/cluster/last_seen.h"
#include "rpc/server/server_internal.h"

uint64_t autopilot_dead(const struct autopilot_rules *rules, const struct autopilot_server *servers, size_t count) {
    size_t voters = 0, alive = 0;
    const struct autopilot_server *dead = NULL, *learner = NULL;
    if (!rules->cleanup) return 0;
    for (size_t i = 0; i < count; i++) {
        bool settled = servers[i].stable_ms >= rules->stabilization_ms;
        voters += servers[i].voter;
        alive += servers[i].voter && servers[i].connected && settled;
        if (servers[i].connected || !settled) continue;
        if (servers[i].voter && !dead) dead = &servers[i];
        else if (!servers[i].voter && !learner) learner = &servers[i];
    }
    if (learner) return learner->id; /* nothing depends on a learner */
    size_t wanted = rules->servers > 3 ? rules->servers : 3;
    if (!dead || alive < wanted || alive < rules->min_quorum || alive < voters / 2 + 1) return 0;
    return dead->id;
}

bool autopilot_may_go(const struct autopilot_server *servers, size_t count, uint64_t id) {
    size_t voters = 0, alive = 0;
    bool learner = false;
    for (size_t i = 0; i < count; i++) {
        if (servers[i].id == id) {
            learner = !servers[i].voter;
            continue;
        }
        voters += servers[i].voter;
        alive += servers[i].voter && servers[i].connected;
    }
    return learner || alive >= voters / 2 + 1;
}

static struct autopilot_server server_of(struct rpc *rpc, const struct raft_member *member, uint64_t self,
                                         uint64_t now_ms) {
    struct autopilot_server server = {
        .id = member->id,
        .voter = member->voter,
        .connected = member->id == self,
        .stable_ms = member->id == self ? UINT64_MAX : now_ms - rpc->server->lead_since_ms};
    const struct last_seen *seen = last_seen_find(rpc->last_seen, member->id);
    if (seen) server.connected = seen->up, server.stable_ms = now_ms - seen->since_ms;
    return server;
}

static struct autopilot_rules rules_now(struct rpc *rpc) {
    struct arena arena = {0};
    struct query_result result = {0};
    Pb__AutopilotRequest request = PB__AUTOPILOT_REQUEST__INIT;
    struct autopilot_rules rules = {.servers = rpc->server->expect};
    if (query_autopilot.run(store_read(rpc->loop_reader), &request.base, &arena, &result) == CO_OK) {
        const Pb__AutopilotConfig *config = (const Pb__AutopilotConfig *)result.message;
        rules.cleanup = config->cleanup_dead_servers, rules.min_quorum = config->min_quorum;
        rules.stabilization_ms = (uint64_t)config->server_stabilization_ns / 1000000;
    }
    store_read_done(rpc->loop_reader);
    arena_free(&arena);
    return rules;
}

/* A server that was never connected with this one is gone for as long as this one leads. */
static size_t servers_now(struct rpc *rpc, struct autopilot_server servers[RAFT_MEMBERS_MAX]) {
    const struct raft_members *members = node_members(rpc->node);
    uint64_t self = atomic_load(&node_view(rpc->node)->id), now_ms = clock_mono_ms();
    for (uint32_t i = 0; i < members->count; i++) servers[i] = server_of(rpc, &members->member[i], self, now_ms);
    return members->count;
}

uint64_t autopilot_next_dead(struct rpc *rpc) {
    struct autopilot_server servers[RAFT_MEMBERS_MAX];
    size_t count = servers_now(rpc, servers), connected = 0;
    for (size_t i = 0; i < count; i++) connected += servers[i].connected;
    if (connected == count) return 0;
    struct autopilot_rules rules = rules_now(rpc);
    return autopilot_dead(&rules, servers, count);
}

bool autopilot_well(struct rpc *rpc, uint64_t id) {
    return node_peer_heard(rpc->node, id) && !node_peer_full(rpc->node, id) && !audit_damaged(rpc, id);
}

/* Can the server agree to writes, and is it not so far behind that it waits for a snapshot? */
static bool agrees(struct rpc *rpc, uint64_t id) {
    const struct node_view *view = node_view(rpc->node);
    if (id == atomic_load(&view->id)) return !atomic_load(&view->disk_full);
    return autopilot_well(rpc, id) && node_match(rpc->node, id) >= atomic_load(&view->snapshot_index);
}

bool autopilot_can_spare(struct rpc *rpc, uint64_t id) {
    struct autopilot_server servers[RAFT_MEMBERS_MAX];
    size_t count = servers_now(rpc, servers);
    for (size_t i = 0; i < count; i++) servers[i].connected = servers[i].connected && agrees(rpc, servers[i].id);
    return autopilot_may_go(servers, count, id);
}
