#include "agent/leaving.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "health/local.h"
#include "rpc/api/operator.h"
#include "rpc/quota/spender_run.h"

struct leaving {
    struct leaving_config config;
    struct rpc_ask_cluster ask;
    struct rpc_change change;
    bool member, forgotten; /* member: the server has to leave Raft's configuration */
    struct fault fault;
};

static void over(struct leaving *leaving, bool stays) {
    const char *note =
        leaving->member && !leaving->fault.code
            ? "This server is no member of the cluster any more. It stays out as long as it has its data "
              "folder; with an empty one it joins as a new server."
            : "";
    if (!leaving->forgotten) leaving->config.done(leaving->config.data, stays, &leaving->fault, note);
}

/* -- out of Raft's configuration ---------------------------------------------------------------------------------- */
static void removed(struct rpc_change *change, int error) {
    struct leaving *leaving = CONTAINER_OF(change, struct leaving, change);
    if (error != CO_OK)
        fault_set(&leaving->fault, error, "this server stops, and stays a member of the cluster: %s",
                  error == CO_CONFLICT ? "without it the others would be no majority" : co_strerror(error));
    over(leaving, false);
}

static void node_left(void *data, int error) {
    struct leaving *leaving = data;
    if (error != CO_OK)
        fault_set(&leaving->fault, error, "this agent stops, and its node may stay in the catalog, as failed: %s",
                  error == CO_TIMEOUT ? "no server answered within 5 s" : co_strerror(error));
    if (leaving->forgotten) return;
    if (!leaving->member) {
        over(leaving, false);
        return;
    }
    leaving->change = (struct rpc_change){.type = RPC_REMOVE_SERVER, .done = removed};
    snprintf(leaving->change.address, sizeof leaving->change.address, "%s", leaving->config.address);
    rpc_change(leaving->config.rpc, &leaving->change);
}

static void gave_back(void *data) {
    struct leaving *leaving = data;
    if (!leaving->forgotten) local_leave(leaving->config.local, node_left, leaving);
}

/* -- may it go? --------------------------------------------------------------------------------------------------- */
/* Can the others spare this server? rpc/server/autopilot.h decides in the end, by the same rule. */
static bool spared(const struct rpc_cluster_state *state, const struct rpc_server_state *self) {
    size_t voters = 0, alive = 0;
    for (size_t i = 0; i < state->count; i++) {
        const struct rpc_server_state *server = &state->servers[i];
        if (server == self || !server->voter) continue;
        voters++;
        alive += (server->connected || server->leader) && !server->unhealthy;
    }
    return !self->voter || alive >= voters / 2 + 1;
}

static void judge(struct leaving *leaving, const struct rpc_cluster_state *state) {
    const struct rpc_server_state *self = NULL;
    size_t others = 0;
    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->servers[i].address, leaving->config.address) == 0) self = &state->servers[i];
        else others += state->servers[i].voter;
    if (!self || others == 0) return; /* a server alone stays a member: its cluster goes on when it is started again */
    leaving->member = spared(state, self);
    if (!leaving->member)
        fault_set(
            &leaving->fault, CO_CONFLICT,
            "this server cannot leave: those of the others that can be reached and are well would be no majority. "
            "Bring them back, or remove one that is down; SIGTERM stops this server without leaving");
}

static void asked(struct rpc_ask_cluster *ask, int error, const struct rpc_cluster_state *state) {
    struct leaving *leaving = CONTAINER_OF(ask, struct leaving, ask);
    if (leaving->forgotten) return;
    if (error == CO_OK) judge(leaving, state);
    else
        fault_set(&leaving->fault, error, "this server cannot leave: %s. SIGTERM stops it without leaving",
                  co_strerror(error));
    if (leaving->fault.code && !leaving->config.must) {
        over(leaving, true);
        return;
    }
    if (leaving->fault.code) log_warn("agent", "%s", leaving->fault.text);
    spender_run_leave(leaving->config.spender_run, gave_back, leaving);
}

struct leaving *leaving_begin(const struct leaving_config *config) {
    struct leaving *leaving = arena_zalloc(config->arena, sizeof *leaving);
    struct rpc_status status;
    leaving->config = *config;
    leaving->ask.done = asked, leaving->ask.of_leader = true;
    rpc_status(config->rpc, &status);
    if (config->address && status.cluster_id) rpc_ask_cluster(config->rpc, &leaving->ask);
    else spender_run_leave(config->spender_run, gave_back, leaving);
    return leaving;
}

void leaving_forget(struct leaving *leaving) {
    if (leaving) leaving->forgotten = true;
}
