/* A server among others: connects peers, forward, cluster and node with each other. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "registry/operator.h"
#include "registry/trust.h"
#include "rpc/agents/agents.h"
#include "rpc/api/regions.h"
#include "rpc/audit/audit.h"
#include "rpc/cluster/bootstrap.h"
#include "rpc/cluster/cluster.h"
#include "rpc/cluster/last_seen.h"
#include "rpc/cluster/waiting.h"
#include "rpc/core/asks_run.h"
#include "rpc/leader/forwarding_run.h"
#include "rpc/reads/apply_lag.h"
#include "rpc/reads/fetch_service.h"
#include "rpc/reads/leader_read.h"
#include "rpc/server/coordinates.h"
#include "rpc/server/server_hints.h"
#include "rpc/server/server_internal.h"
#include "rpc/server/version.h"
#include "rpc/wire/frame_unpack.h"

#define CLUSTER_TICK_MS    100
#define LEADERLESS_TICK_MS 50          /* short, because agents wait */
#define CAMPAIGNS_MS       1000        /* times raft_multiplier: within this time each server asks for votes */
#define CUT_OFF_MS         100         /* times raft_multiplier: answers to a request for votes come within this time */
#define BACKLOG_MAX        (64u << 20) /* beyond it Raft's messages to a peer are dropped; Raft sends them again */

struct server_peers {
    uv_timer_t timer;
    struct bootstrap bootstrap;
    struct apply_lag *behind;
    struct loop_task leader_read_task; /* rpc/reads/leader_read.h */
    uint16_t port;                     /* that this server listens on */
    uint32_t raft_multiplier;
    uint64_t leaderless_ms; /* no leader is known since; 0: there is one */
    bool cut_off;           /* rpc/cluster/cluster.h */
    bool cut_off_said;      /* in the log, since no leader is known */
    struct waiting_clock waiting;
    uint64_t id_told; /* the cluster's id and version that the other servers were told */
    unsigned version_told;
    uint64_t judged; /* of what connections were judged by last (judge_again) */
    void (*stopped)(void *data);
};

/* -- callbacks of the node ---------------------------------------------------------------------------------------- */
static void send_raft(void *data, const struct raft_message *message) {
    struct rpc *rpc = data;
    struct link *link = rpc->others ? peers_link(rpc->others, message->to) : NULL;
    if (!link || link_backlog(link) > BACKLOG_MAX) return;
    raft_message_encode(message, link_frame_begin(link, PEER_RAFT));
    link_frame_end(link);
}

static bool forward_to(void *data, uint64_t leader, struct node_proposal *list) {
    struct rpc *rpc = data;
    return rpc->forwarding && forwarding_run_writes(rpc->forwarding, leader, list);
}

static bool ask_read(void *data, uint64_t leader, uint64_t context, uint64_t term) {
    struct rpc *rpc = data;
    return rpc->forwarding && forwarding_run_read(rpc->forwarding, leader, context, term);
}

static void flush(void *data) {
    struct rpc *rpc = data;
    if (rpc->forwarding) forwarding_run_answers(rpc->forwarding);
    if (rpc->others) peers_flush(rpc->others);
}

void server_peers_callbacks(struct rpc *rpc, struct node_callbacks *callbacks) {
    (void)rpc;
    callbacks->send = send_raft, callbacks->forward = forward_to, callbacks->ask_read = ask_read,
    callbacks->flush = flush;
}

/* -- peers' events ------------------------------------------------------------------------------------------------ */
static bool take_found(struct rpc *rpc, uint64_t from, struct slice payload);
static bool take_found_answer(struct rpc *rpc, uint64_t from, struct slice payload);

static bool take_raft(struct rpc *rpc, uint64_t from, struct slice payload) {
    struct raft_message message;
    if (raft_message_decode(payload, &message) != CO_OK) return false;
    bool own = message.from == from;
    if (own) node_receive(rpc->node, &message);
    raft_message_drop(&message);
    return own;
}

static void tell_caller(const struct caller *caller, uint8_t type, const ProtobufCMessage *message) {
    peers_tell(caller->rpc->others, caller->id, type, message);
}

/* False: servers do not send such frames, or it does not decode. */
static bool take_frame(struct rpc *rpc, uint64_t from, uint8_t type, struct slice payload) {
    if (type == PEER_RAFT) return take_raft(rpc, from, payload);
    if (type == PEER_FOUND) return take_found(rpc, from, payload);
    if (type == PEER_FOUND_ANSWER) return take_found_answer(rpc, from, payload);
    struct caller caller = {.rpc = rpc, .id = from, .tell = tell_caller};
    if (type == PEER_CLUSTER || type == PEER_CHANGE) return operator_serve(&caller, type, payload);
    if (type == PEER_ECHO) return coordinates_echo(&caller, payload);
    if (type == PEER_ACL_KEY) return acl_keys_serve(&caller, payload);
    if (type == PEER_HINTS || type == PEER_KEYS) return server_hints_frame(rpc, type, payload);
    if (type == PEER_AUDIT || type == PEER_COPY_ASK) return audit_frame(rpc, from, type, payload);
    if (type == PEER_FETCH || type == PEER_FETCH_END) return agents_server_frame(rpc->agents, from, type, payload);
    if (asks_run_is_frame(type)) return asks_run_frame(rpc, asks_run_of_server(rpc, from), type, payload);
    if (type == PEER_FETCHED) return leader_read_answered(rpc->server->fetches, from, payload);
    return forwarding_run_frame(rpc->forwarding, from, type, payload) ||
           calls_answered(rpc->calls, from, type, payload, clock_mono_ms());
}

static void on_frame(void *data, uint64_t from, uint8_t type, struct slice payload) {
    struct rpc *rpc = data;
    if (rpc->stopping) return;
    last_seen_heard(rpc->last_seen, from, clock_mono_ms());
    if (!take_frame(rpc, from, type, payload))
        log_warn("peer", "a frame of unknown type, or one that does not decode type=%u node=%s id=%016llx", type,
                 rpc_server_name(rpc, from), (unsigned long long)from);
}

static void note_up(struct rpc *rpc, uint64_t id) {
    struct peer_info peers[PEERS_MAX];
    const struct peer_info *info = NULL;
    for (size_t i = 0, count = peers_list(rpc->others, peers, PEERS_MAX); i < count; i++)
        if (peers[i].id == id) info = &peers[i];
    last_seen_up(rpc->last_seen, id, info, clock_mono_ms());
}

static struct peer_info self_info(struct rpc *rpc) {
    const struct node_view *view = node_view(rpc->node);
    struct peer_info self = {.id = atomic_load(&view->id),
                             .expect = rpc->server->expect,
                             .connected = true,
                             .has_log = atomic_load(&view->last_index) > 0 || node_members(rpc->node)->count > 0};
    snprintf(self.address, sizeof self.address, "%s", rpc->server->address);
    return self;
}

/* The node ends before the connections do. */
static bool ending(void *data) { return ((struct rpc *)data)->stopping; }

static struct peers_self self_said(void *data) {
    struct rpc *rpc = data;
    return (struct peers_self){.has_log = self_info(rpc).has_log,
                               .cluster_id = machine_cluster(rpc->machine),
                               .version = machine_version(rpc->machine),
                               .recovered_index = node_members(rpc->node)->recovered_index};
}

/* Says hello again when its content has changed: this server learned its cluster's id, or the version rose. */
static void tell_changes(struct rpc *rpc) {
    uint64_t id = machine_cluster(rpc->machine);
    unsigned version = machine_version(rpc->machine);
    struct server_peers *own = rpc->server->peers;
    if (id == own->id_told && version == own->version_told) return;
    own->id_told = id, own->version_told = version;
    peers_changed(rpc->others);
}

/* -- without a leader --------------------------------------------------------------------------------------------- */
static bool is_cut_off(const struct rpc *rpc, const struct raft_members *members, uint64_t now_ms) {
    const struct server_peers *own = rpc->server->peers;
    uint64_t last_seen_ms[RAFT_MEMBERS_MAX] = {0}, since_ms = now_ms - CAMPAIGNS_MS * own->raft_multiplier;
    if (since_ms < own->leaderless_ms) since_ms = own->leaderless_ms;
    for (uint32_t i = 0; i < members->count; i++) {
        const struct last_seen *seen = last_seen_find(rpc->last_seen, members->member[i].id);
        if (seen) last_seen_ms[i] = seen->ms;
    }
    return cluster_cut_off(members, atomic_load(&node_view(rpc->node)->id), last_seen_ms, since_ms);
}

static void look_for_leader(struct rpc *rpc, const struct raft_members *members) {
    struct server_peers *own = rpc->server->peers;
    bool leader = atomic_load(&node_view(rpc->node)->leader) != 0;
    uint64_t now_ms = clock_mono_ms();
    if (leader || !own->leaderless_ms) {
        own->leaderless_ms = leader ? 0 : now_ms;
        uv_timer_set_repeat(&own->timer, leader ? CLUSTER_TICK_MS : LEADERLESS_TICK_MS);
    }
    bool waited = !leader && now_ms - own->leaderless_ms >= CUT_OFF_MS * own->raft_multiplier;
    own->cut_off = waited && is_cut_off(rpc, members, now_ms);
    node_cut_off(rpc->node, own->cut_off);
    if (own->cut_off && !own->cut_off_said)
        log_warn("raft", "cut off: no leader is known, and no majority of the servers is heard");
    /* a server that others refuse hears them now and then */
    own->cut_off_said = !leader && (own->cut_off_said || own->cut_off);
}

static const char *region_unwanted(struct rpc *rpc, const Pb__PeerHello *hello) {
    if (!rpc->regions) return "this server has no links to other regions";
    return rpc->regions->unwanted(rpc->regions->data, hello);
}

void rpc_region_end(struct rpc *rpc, const char *region) {
    if (rpc->agents) agents_region_end(rpc->agents, region);
}

static void claimed(void *data, const Pb__PeerHello *hello) {
    struct rpc *rpc = data;
    if (rpc->regions) rpc->regions->claimed(rpc->regions->data, hello);
}

/* The reason to refuse a server that does not know it itself: it was removed while it was away, or this cluster went on
 * without it after a recovery, which notes as removed only servers that the survivor knew. */
static const char *unwanted(void *data, const Pb__PeerHello *hello) {
    struct rpc *rpc = data;
    if (hello->region[0]) return region_unwanted(rpc, hello);
    const struct raft_members *members = node_members(rpc->node);
    if (rpc->stopping || raft_members_find(members, hello->id)) return NULL;
    bool removed = operator_server_removed(store_read(rpc->loop_reader), hello->id);
    store_read_done(rpc->loop_reader);
    if (removed) return "it was removed from this cluster; with an empty data folder it may join as a new server";
    if (!hello->has_log || hello->recovered_index >= members->recovered_index) return NULL;
    return "this cluster was recovered without it, and its log may hold what was lost here; with an empty data folder "
           "it may join as a new server";
}

/* -- client agents ------------------------------------------------------------------------------------------------ */
static void on_agent(void *data, struct link *link, const Pb__PeerHello *hello) {
    struct rpc *rpc = data;
    agents_adopt(rpc->agents, link, hello);
    if (hello->region[0] && rpc->regions) rpc->regions->came(rpc->regions->data, hello);
}

static void tell_agents(struct rpc *rpc, const struct raft_members *members) {
    Pb__PeerServers servers = PB__PEER_SERVERS__INIT;
    Pb__PeerServer server[RAFT_MEMBERS_MAX], *pointers[RAFT_MEMBERS_MAX];
    servers.leader = atomic_load(&node_view(rpc->node)->leader);
    servers.cut_off = rpc->server->peers->cut_off;
    servers.servers = pointers;
    for (uint32_t i = 0; i < members->count; i++) {
        pointers[i] = &server[i];
        server[i] = (Pb__PeerServer)PB__PEER_SERVER__INIT;
        server[i].id = members->member[i].id, server[i].address = (char *)members->member[i].address;
    }
    servers.n_servers = members->count;
    agents_servers(rpc->agents, &servers);
}

/* -- reads that the leader answers, as this server's disk is full ------------------------------------------------- */
static uint64_t leader_now(void *data, bool *here) {
    const struct node_view *view = node_view(((struct rpc *)data)->node);
    uint64_t leader = atomic_load(&view->leader);
    *here = leader != 0 && leader == atomic_load(&view->id);
    return leader;
}

static bool leader_tell(void *data, uint64_t server, uint8_t type, const ProtobufCMessage *message) {
    return peers_tell(((struct rpc *)data)->others, server, type, message);
}

static void leader_read_wanted(struct loop_task *task) { leader_read_turn(task->rpc->server->fetches); }

static void leader_read_wake(void *data) {
    struct rpc *rpc = data;
    rpc_on_loop(rpc, &rpc->server->peers->leader_read_task, leader_read_wanted);
}

/* -- certificates -------------------------------------------------------------------------------------------------- */
static const char *distrusts(void *data, const struct tls_certificate *certificate) {
    struct rpc *rpc = data;
    if (rpc->stopping || certificate->role == TLS_ROLE_NONE) return NULL;
    const char *why = trust_refuses(store_read(rpc->loop_reader), certificate->role == TLS_ROLE_SERVER,
                                    certificate->node, slice_make(certificate->pin, sizeof certificate->pin));
    store_read_done(rpc->loop_reader);
    return why;
}

static void enrol(void *data, struct link *link, uint8_t type, struct slice payload) {
    struct rpc *rpc = data;
    if (rpc->server->enrolment && !rpc->stopping) enrolment_take(rpc->server->enrolment, link, type, payload);
    else link_close(link);
}

static bool may_stay(void *data, struct link *link, const Pb__PeerHello *hello) {
    struct rpc *rpc = data;
    char why[SECURITY_WHY];
    const char *fault = peers_judge_link(rpc->others, link, hello, true, why);
    if (fault) log_warn("agents", "a connection ends node=%s reason=\"%s\"", hello->node, fault);
    return !fault;
}

/* Judges all connections again when certificates, rules, or what the cluster says of its nodes have changed. */
static void judge_again(struct rpc *rpc) {
    struct server_peers *own = rpc->server->peers;
    if (!rpc->server->security) return;
    struct watch_key trust = {SPACE_TRUST, slice_make("", 0)};
    uint64_t now = security_generation(rpc->server->security) + rpc_generation(rpc, trust);
    if (now == own->judged) return;
    own->judged = now;
    peers_changed(rpc->others);
    agents_judge(rpc->agents, may_stay, rpc);
}

/* -- bootstrap ----------------------------------------------------------------------------------------------------- */
static void ask_all(struct rpc *rpc, uint64_t self, bool release) {
    const struct bootstrap *founding = &rpc->server->peers->bootstrap;
    Pb__PeerFound ask = PB__PEER_FOUND__INIT;
    ask.attempt = founding->attempt, ask.release = release;
    for (uint32_t i = 0; i < founding->members.count; i++)
        if (founding->members.member[i].id != self)
            peers_tell(rpc->others, founding->members.member[i].id, PEER_FOUND, &ask.base);
}

static void bootstrap(struct rpc *rpc, const struct raft_members *members, const struct peer_info *peers,
                      size_t count) {
    unsigned version = version_of_founders(members, peers, count, machine_newest(rpc->machine));
    struct buffer first = {0};
    version_first_command(version, &first);
    if (node_bootstrap(rpc->node, members, buffer_slice(&first)) == CO_OK)
        log_info("raft", "founding the cluster servers=%u version=%u", members->count, version);
    buffer_free(&first);
}

static void found_cluster(struct rpc *rpc, const struct peer_info *self, const struct peer_info *peers, size_t count) {
    struct cluster_found found = cluster_may_found(self, peers, count);
    struct bootstrap *founding = &rpc->server->peers->bootstrap;
    switch (bootstrap_next(founding, found.found ? &found.members : NULL, clock_mono_ms(), self->id)) {
        case BOOTSTRAP_WAIT: return;
        case BOOTSTRAP_ASK: ask_all(rpc, self->id, false); return;
        case BOOTSTRAP_RELEASE:
            ask_all(rpc, self->id, true);
            bootstrap_released(founding);
            return;
        case BOOTSTRAP_DONE: bootstrap(rpc, &found.members, peers, count); return;
    }
}

/* Does a connected server belong to a cluster, which will let this server in? */
static bool sees_cluster(struct rpc *rpc) {
    struct peer_info peers[PEERS_MAX];
    size_t count = peers_list(rpc->others, peers, PEERS_MAX);
    for (size_t i = 0; i < count; i++)
        if (peers[i].has_log) return true;
    return false;
}

static bool take_found(struct rpc *rpc, uint64_t from, struct slice payload) {
    Pb__PeerFound *ask = frame_unpack(&pb__peer_found__descriptor, payload, NULL);
    if (!ask) return false;
    bool fresh = !self_info(rpc).has_log && atomic_load(&node_view(rpc->node)->term) == 0 && !sees_cluster(rpc);
    Pb__PeerFoundAnswer answer = PB__PEER_FOUND_ANSWER__INIT;
    answer.attempt = ask->attempt;
    answer.yes = bootstrap_asked(&rpc->server->peers->bootstrap, from, ask->release, fresh, clock_mono_ms());
    if (!ask->release) peers_tell(rpc->others, from, PEER_FOUND_ANSWER, &answer.base);
    frame_drop(ask);
    return true;
}

void server_peers_waiting(struct rpc *rpc, struct buffer *out) {
    struct peer_info peers[PEERS_MAX], self = self_info(rpc);
    struct peers_address addresses[PEERS_MAX];
    struct waiting waiting = {.self = &self,
                              .members = node_members(rpc->node),
                              .peers = peers,
                              .peer_count = peers_list(rpc->others, peers, PEERS_MAX),
                              .addresses = addresses,
                              .address_count = peers_addresses(rpc->others, addresses, PEERS_MAX),
                              .port = rpc->server->peers->port};
    waiting_say(&waiting, out);
}

/* Logs now and then why there is no leader, because nothing else does. */
static void tell_waiting(struct rpc *rpc, const struct peer_info *self) {
    bool waits = atomic_load(&node_view(rpc->node)->leader) == 0;
    if (!waiting_due(&rpc->server->peers->waiting, waits, self->has_log, clock_mono_ms())) return;
    struct buffer line = {0};
    server_peers_waiting(rpc, &line);
    log_warn("raft", "%.*s", (int)line.size, line.data);
    buffer_free(&line);
}

static void manage(struct rpc *rpc) {
    if (rpc->stopping) return;
    struct peer_info peers[PEERS_MAX], self = self_info(rpc);
    tell_changes(rpc);
    judge_again(rpc);
    size_t count = peers_list(rpc->others, peers, PEERS_MAX);
    const struct raft_members *members = node_members(rpc->node);
    server_members_note(rpc);
    look_for_leader(rpc, members);
    tell_agents(rpc, members);
    for (uint32_t i = 0; i < members->count; i++) peers_know(rpc->others, members->member[i].address);
    if (!self.has_log) found_cluster(rpc, &self, peers, count);
    tell_waiting(rpc, &self);
    if (!atomic_load(&node_view(rpc->node)->ready)) return;
    server_changes(rpc, &self, peers, count);
    trust_admin_tick(rpc->server->trust, clock_mono_ms());
    if (rpc->server->enrolment) enrolment_tick(rpc->server->enrolment, clock_mono_ms());
}

static bool take_found_answer(struct rpc *rpc, uint64_t from, struct slice payload) {
    Pb__PeerFoundAnswer *answer = frame_unpack(&pb__peer_found_answer__descriptor, payload, NULL);
    if (!answer) return false;
    bootstrap_answered(&rpc->server->peers->bootstrap, from, answer->attempt, answer->yes);
    frame_drop(answer);
    manage(rpc);
    return true;
}

static void asks_of(struct rpc *rpc, uint64_t id) {
    struct peer_info peers[PEERS_MAX];
    for (size_t i = 0, count = peers_list(rpc->others, peers, PEERS_MAX); i < count; i++)
        if (peers[i].id == id) {
            struct asks_up up = {.server = true, .id = id, .node = peers[i].node};
            (void)asks_run_up(rpc, peers_link(rpc->others, id), &up);
        }
}

static void on_up(void *data, uint64_t id) {
    struct rpc *rpc = data;
    last_seen_heard(rpc->last_seen, id, clock_mono_ms());
    note_up(rpc, id);
    asks_of(rpc, id);
    server_hints_up(rpc, id);
    manage(rpc);
}

static void on_down(void *data, uint64_t id) {
    struct rpc *rpc = data;
    asks_run_down(rpc, asks_run_of_server(rpc, id));
    if (rpc->stopping) return;
    last_seen_down(rpc->last_seen, id, clock_mono_ms());
    server_hints_down(rpc, id);
    bootstrap_lost(&rpc->server->peers->bootstrap, id);
    node_unreachable(rpc->node, id);
    forwarding_run_down(rpc->forwarding, id);
    calls_down(rpc->calls, id, clock_mono_ms());
    audit_down(rpc, id);
    coordinates_down(rpc, id);
    leader_read_down(rpc->server->fetches, id);
    agents_server_down(rpc->agents, id);
}

static void on_moved(void *data, uint64_t id) {
    struct rpc *rpc = data;
    asks_run_down(rpc, asks_run_of_server(rpc, id));
    asks_of(rpc, id);
}

static void on_timer(uv_timer_t *timer) {
    struct rpc *rpc = timer->data;
    manage(rpc);
    if (rpc->stopping) return;
    calls_tick(rpc->calls, clock_mono_ms());
    leader_read_tick(rpc->server->fetches);
    apply_lag_tick(rpc->server->peers->behind);
    forwarding_run_leader(rpc->forwarding, atomic_load(&node_view(rpc->node)->leader), rpc->server->peers->cut_off);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
int server_peers_start(struct rpc *rpc, const struct rpc_server_config *config, struct fault *fault) {
    if (config->port == 0) return CO_OK;
    struct peers_config peers = {.bind = config->bind,
                                 .port = config->port,
                                 .address = config->address,
                                 .cluster = config->cluster,
                                 .node = config->node_name,
                                 .build = rpc->server->build,
                                 .id = atomic_load(&node_view(rpc->node)->id),
                                 .expect = config->expect,
                                 .version_least = MACHINE_VERSION_OLDEST,
                                 .version_most = machine_newest(rpc->machine),
                                 .join = config->join,
                                 .security = config->security};
    struct peers_callbacks callbacks = {.data = rpc,
                                        .frame = on_frame,
                                        .up = on_up,
                                        .down = on_down,
                                        .moved = on_moved,
                                        .self = self_said,
                                        .ending = ending,
                                        .unwanted = unwanted,
                                        .claimed = claimed,
                                        .agent = on_agent,
                                        .distrusts = distrusts,
                                        .enrol = enrol};
    struct leader_read_callbacks reads = {
        .data = rpc, .leader = leader_now, .tell = leader_tell, .wake = leader_read_wake};
    leader_read_over(rpc->server->fetches, &reads);
    rpc->agents = agents_new(rpc, config->folder, config->agents_held_max);
    struct server_peers *own = rpc->server->peers = mem_zalloc(sizeof *own);
    own->port = config->port, own->raft_multiplier = config->raft_multiplier ? config->raft_multiplier : 1;
    own->behind = apply_lag_new(rpc);
    own->id_told = machine_cluster(rpc->machine), own->version_told = machine_version(rpc->machine);
    struct enrolment_config enrolment = {.authority = config->authority,
                                         .security = config->security,
                                         .datacenter = rpc->cluster,
                                         .dns_domain = config->dns_domain,
                                         .life_s = config->certificate_life_s,
                                         .acl_default_policy = config->acl.enabled ? config->acl.default_policy : NULL};
    if (config->authority) rpc->server->enrolment = enrolment_new(rpc, &enrolment);
    int rv = peers_start(rpc->loop, &peers, &callbacks, &rpc->others, fault);
    rpc->forwarding = forwarding_run_new(rpc, rpc->node, rpc->others);
    CHECK(uv_timer_init(rpc->loop, &own->timer) == 0);
    own->timer.data = rpc;
    if (rv == CO_OK) uv_timer_start(&own->timer, on_timer, 0, CLUSTER_TICK_MS);
    return rv;
}

static void stop_done(void *data) {
    struct rpc *rpc = data;
    rpc->others = NULL;
    rpc->server->peers->stopped(rpc);
}

static void enrolment_stopped(void *data) {
    struct rpc *rpc = data;
    rpc->server->enrolment = NULL;
    peers_stop(rpc->others, stop_done, rpc);
}

static void agents_closed(void *data) {
    struct rpc *rpc = data;
    rpc->agents = NULL;
    forwarding_run_free(rpc->forwarding);
    rpc->forwarding = NULL;
    if (rpc->server->enrolment) enrolment_stop(rpc->server->enrolment, enrolment_stopped, rpc);
    else peers_stop(rpc->others, stop_done, rpc);
}

static void timer_closed(uv_handle_t *handle) {
    struct rpc *rpc = handle->data;
    agents_stop(rpc->agents, agents_closed, rpc);
}

void server_peers_stop(struct rpc *rpc, void (*closed)(void *data)) {
    if (!rpc->others) {
        closed(rpc);
        return;
    }
    rpc->server->peers->stopped = closed;
    uv_close((uv_handle_t *)&rpc->server->peers->timer, timer_closed);
}

void server_peers_free(struct rpc *rpc) {
    struct server_peers *own = rpc->server->peers;
    if (own) apply_lag_free(own->behind);
    free(own);
}
