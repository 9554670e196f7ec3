#include "rpc/api/operator_frames.h"

#include <stdio.h>
#include <string.h>

#include "consensus/raft.h"

void operator_state_pack(const struct rpc_cluster_state *state, struct arena *arena, Pb__PeerClusterAnswer *answer) {
    answer->index = state->index, answer->committed = state->committed, answer->follows = !state->here_leads;
    answer->leader_address = (char *)(uintptr_t)state->leader_address;
    if (state->waiting) answer->waiting = (char *)(uintptr_t)state->waiting;
    answer->servers = arena_alloc(arena, (state->count + 1) * sizeof *answer->servers);
    for (; answer->n_servers < state->count; answer->n_servers++) {
        const struct rpc_server_state *from = &state->servers[answer->n_servers];
        Pb__PeerClusterServer *to = answer->servers[answer->n_servers] = arena_alloc(arena, sizeof *to);
        *to = (Pb__PeerClusterServer)PB__PEER_CLUSTER_SERVER__INIT;
        to->id = from->id, to->address = (char *)(uintptr_t)from->address, to->node = (char *)(uintptr_t)from->node;
        to->build = (char *)(uintptr_t)from->build;
        to->leader = from->leader, to->voter = from->voter, to->connected = from->connected,
        to->unhealthy = from->unhealthy;
        to->match = from->match, to->last_index = from->last_index, to->last_term = from->last_term;
        to->last_contact_ms = from->last_contact_ms, to->stable_ms = from->stable_ms;
    }
}

static void server_of(const Pb__PeerClusterServer *from, struct rpc_server_state *to) {
    *to = (struct rpc_server_state){.id = from->id,
                                    .leader = from->leader,
                                    .voter = from->voter,
                                    .connected = from->connected,
                                    .unhealthy = from->unhealthy,
                                    .match = from->match,
                                    .last_index = from->last_index,
                                    .last_term = from->last_term,
                                    .last_contact_ms = from->last_contact_ms,
                                    .stable_ms = from->stable_ms};
    snprintf(to->address, sizeof to->address, "%s", from->address);
    snprintf(to->node, sizeof to->node, "%s", from->node);
    snprintf(to->build, sizeof to->build, "%s", from->build);
}

void operator_state_unpack(const Pb__PeerClusterAnswer *answer, struct arena *arena, struct rpc_cluster_state *state) {
    size_t count = answer->n_servers < RAFT_MEMBERS_MAX ? answer->n_servers : RAFT_MEMBERS_MAX;
    *state = (struct rpc_cluster_state){
        .index = answer->index, .committed = answer->committed, .here_leads = !answer->follows, .count = count};
    snprintf(state->leader_address, sizeof state->leader_address, "%s", answer->leader_address);
    if (answer->waiting[0]) state->waiting = arena_strndup(arena, answer->waiting, strlen(answer->waiting));
    state->servers = arena_alloc(arena, (count + 1) * sizeof *state->servers);
    for (size_t i = 0; i < count; i++) server_of(answer->servers[i], &state->servers[i]);
}

int operator_change_unpack(const Pb__PeerChange *wanted, struct rpc_change *change) {
    size_t size = strlen(wanted->address);
    if (wanted->type > RPC_TRANSFER_LEADER || size >= sizeof change->address) return CO_INVALID;
    change->type = wanted->type == RPC_TRANSFER_LEADER ? RPC_TRANSFER_LEADER : RPC_REMOVE_SERVER;
    change->id = wanted->id;
    memcpy(change->address, wanted->address, size + 1);
    return CO_OK;
}
