#include "rpc/server/version.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/random.h"
#include "registry/version.h"
#include "rpc/server/server_internal.h"

#define TICK_MS       100
#define HELD_TELL_MS  60000
#define TELL_AGAIN_MS 10000

METRIC version_gauge = {.name = "coord_cluster_version",
                        .type = METRIC_GAUGE,
                        .help = "Commands up to this version may be used in the cluster"};

struct version {
    /* Loop thread. */
    uv_timer_t timer;       /* while the version can rise */
    struct rpc_write write; /* the raise */
    unsigned raising;       /* to; 0: none is under way */
    _Atomic bool over;      /* it came to an end; another thread sets it */
    uint64_t refused_ms;    /* when a refusal was logged last */
    uint64_t held_ms;       /* when it was logged last that the version cannot rise */
    struct machine_result refusal;
    char text[VERSION_WHY + 96];

    /* Applier thread, and at start. */
    unsigned seen;
};

/* -- decisions ---------------------------------------------------------------------------------------------------- */
static const struct peer_info *peer_of(const struct peer_info *peers, size_t count, uint64_t id) {
    for (size_t i = 0; i < count; i++)
        if (peers[i].id == id && peers[i].connected) return &peers[i];
    return NULL;
}

struct version_raise version_next(unsigned now, unsigned newest, const struct raft_members *members, uint64_t self,
                                  const struct peer_info *peers, size_t count) {
    struct version_raise raise = {.to = newest};
    for (uint32_t i = 0; i < members->count && raise.to > now; i++) {
        const struct raft_member *member = &members->member[i];
        if (member->id == self) continue;
        const struct peer_info *peer = peer_of(peers, count, member->id);
        if (!peer) {
            raise.to = 0;
            snprintf(raise.why, sizeof raise.why, "server %.64s is not connected", member->address);
        } else if (peer->terms.version_most < raise.to) {
            raise.to = peer->terms.version_most;
            snprintf(raise.why, sizeof raise.why, "server %.64s supports only %u", peer->node, raise.to);
        }
    }
    if (raise.to <= now) raise.to = 0;
    if (raise.to != 0 || now >= newest) raise.why[0] = 0;
    return raise;
}

unsigned version_of_founders(const struct raft_members *members, const struct peer_info *peers, size_t count,
                             unsigned newest) {
    unsigned version = newest;
    for (uint32_t i = 0; i < members->count; i++) {
        const struct peer_info *peer = peer_of(peers, count, members->member[i].id);
        if (peer && peer->terms.version_most < version) version = peer->terms.version_most;
    }
    return version;
}

const char *version_incompatible(const struct peer_info *peer, unsigned version, uint64_t cluster_id,
                                 const struct raft_members *members) {
    if (peer->terms.version_least > version || peer->terms.version_most < version)
        return "its program does not support the cluster's version";
    if (cluster_id == 0 || !peer->has_log || peer->cluster_id == cluster_id || raft_members_find(members, peer->id))
        return NULL;
    return "it has a log and does not say of which cluster; with an empty data folder it is welcome";
}

static Pb__ClusterVersionCommand command_for(unsigned version) {
    Pb__ClusterVersionCommand command = PB__CLUSTER_VERSION_COMMAND__INIT;
    command.version = version;
    do command.cluster_id = random_u64();
    while (command.cluster_id == 0);
    return command;
}

void version_first_command(unsigned version, struct buffer *out) {
    Pb__ClusterVersionCommand command = command_for(version);
    machine_command(out, CLUSTER_VERSION, &command.base);
}

/* -- raising ------------------------------------------------------------------------------------------------------- */
static struct version_raise next_now(struct rpc *rpc) {
    struct peer_info peers[PEERS_MAX];
    size_t count = rpc->others ? peers_list(rpc->others, peers, PEERS_MAX) : 0;
    return version_next(machine_version(rpc->machine), machine_newest(rpc->machine), node_members(rpc->node),
                        atomic_load(&node_view(rpc->node)->id), peers, count);
}

/* Another thread. The outcome shows in the applied state. */
static void raised(struct rpc_write *write, int error, const struct machine_result *result) {
    struct version *version = CONTAINER_OF(write, struct version, write);
    (void)error, (void)result;
    atomic_store(&version->over, true);
}

static void tell_held(struct version *version, unsigned now, const char *why) {
    uint64_t now_ms = clock_mono_ms();
    if (!why[0] || (version->held_ms && now_ms - version->held_ms < HELD_TELL_MS)) return;
    version->held_ms = now_ms;
    log_info("raft", "the cluster version stays at %u until every server supports more: %s", now, why);
}

static void step(struct rpc *rpc) {
    struct version *version = rpc->server->version;
    if (rpc->stopping) return;
    if (version->raising && atomic_load(&version->over)) version->raising = 0;
    if (version->raising || !atomic_load(&node_view(rpc->node)->ready)) return;
    unsigned now = machine_version(rpc->machine);
    struct version_raise raise = next_now(rpc);
    if (raise.to == 0) {
        tell_held(version, now, raise.why);
        return;
    }
    log_info("raft", "every server supports it: the cluster version is to rise from=%u to=%u", now, raise.to);
    version->raising = raise.to;
    atomic_store(&version->over, false);
    version->write.done = raised;
    Pb__ClusterVersionCommand command = command_for(raise.to);
    rpc_submit(rpc, &version->write, CLUSTER_VERSION, &command.base);
}

static void timer_cb(uv_timer_t *timer) {
    struct rpc *rpc = timer->data;
    step(rpc);
    if (machine_version(rpc->machine) >= machine_newest(rpc->machine) && !rpc->server->version->raising)
        uv_timer_stop(timer);
}

void version_start(struct rpc *rpc) {
    uv_timer_t *timer = &rpc->server->version->timer;
    CHECK(uv_timer_init(rpc->loop, timer) == 0);
    timer->data = rpc;
    uv_timer_start(timer, timer_cb, 0, TICK_MS);
}

void version_role(struct rpc *rpc) {
    if (rpc->node) step(rpc);
}

unsigned version_to_be(struct rpc *rpc) {
    unsigned now = machine_version(rpc->machine), raising = rpc->server->version->raising;
    return raising > now ? raising : now;
}

/* -- refusing ------------------------------------------------------------------------------------------------------ */
static const void *refuse_with(struct rpc *rpc, unsigned needs, const char *why) {
    struct version *version = rpc->server->version;
    uint64_t now_ms = clock_mono_ms();
    unsigned now = machine_version(rpc->machine);
    snprintf(version->text, sizeof version->text, "needs cluster version %u, the cluster is at %u: %s", needs, now,
             why[0] ? why : "it is about to rise");
    if (!why[0]) {
        log_debug("raft", "a command is refused, it %s", version->text); /* asked again in a moment */
    } else if (version->refused_ms == 0 || now_ms - version->refused_ms > TELL_AGAIN_MS) {
        version->refused_ms = now_ms;
        log_warn("raft", "a command is refused, it %s", version->text);
    }
    version->refusal =
        (struct machine_result){.error = CO_UNSUPPORTED, .index = machine_index(rpc->machine), .text = version->text};
    return &version->refusal;
}

/* The leader may be of an older program, which does not know the command. */
static const void *refuse_for(struct rpc *rpc, uint64_t leader, unsigned needs) {
    struct peer_info peers[PEERS_MAX];
    size_t count = rpc->others ? peers_list(rpc->others, peers, PEERS_MAX) : 0;
    const struct peer_info *peer = peer_of(peers, count, leader);
    if (!peer || peer->terms.version_most >= needs) return NULL;
    char why[VERSION_WHY];
    snprintf(why, sizeof why, "server %.64s supports only %u", peer->node, peer->terms.version_most);
    return refuse_with(rpc, needs, why);
}

const void *version_refuse(void *data, uint64_t leader, const struct node_proposal *proposal) {
    struct rpc *rpc = data;
    struct slice command = slice_make(proposal->data->bytes, proposal->data->size);
    unsigned needs = machine_needs(rpc->machine, command), now = machine_version(rpc->machine);
    bool here = leader == atomic_load(&node_view(rpc->node)->id);
    if (command.size > 0 && (uint8_t)command.data[0] == CLUSTER_VERSION) /* only the leader decides about it */
        return here && !proposal->here_only ? NULL : refuse_with(rpc, needs, "only the leader raises it");
    if (needs <= now) return NULL;
    if (!here) return refuse_for(rpc, leader, needs);
    return refuse_with(rpc, needs, next_now(rpc).why);
}

/* -- the applied version ------------------------------------------------------------------------------------------- */
void version_applied(struct rpc *rpc) {
    unsigned version = machine_version(rpc->machine), *seen = &rpc->server->version->seen;
    if (version == *seen) return;
    if (*seen)
        log_info("raft", "the cluster version has changed from=%u to=%u cluster_id=%016llx", *seen, version,
                 (unsigned long long)machine_cluster(rpc->machine));
    *seen = version;
    metric_register(&version_gauge);
    metric_set(&version_gauge, version);
}

/* -- life ---------------------------------------------------------------------------------------------------------- */
void version_new(struct rpc *rpc) { rpc->server->version = mem_zalloc(sizeof *rpc->server->version); }

void version_close(struct rpc *rpc, uv_close_cb closed) {
    uv_close((uv_handle_t *)&rpc->server->version->timer, closed);
}

void version_free(struct rpc *rpc) { free(rpc->server->version); }
