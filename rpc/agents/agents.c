#include "rpc/agents/agents_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "lb/coordinate.h"
#include "rpc/agents/agents.h"
#include "rpc/backup/backup_transfer.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/forward/forwarding.h"
#include "rpc/leader/forwarding_run.h"
#include "rpc/leader/leases_run.h"
#include "rpc/wire/frame_unpack.h"
#include "rpc/wire/reach.h"

#define TICK_MS              1000
#define COORDINATE_FRAME_MAX (16u << 10) /* a node's name and eleven numbers */

METRIC connected = {
    .name = "coord_rpc_agents", .type = METRIC_GAUGE, .help = "Client agents connected with this server"};

struct agent **agent_find(struct agents *agents, uint64_t number) {
    struct agent **at = &agents->buckets[number % AGENTS_BUCKETS];
    while (*at && (*at)->reader.number != number) at = &(*at)->chain;
    return at;
}

void agent_tell(struct agent *agent, uint8_t type, const ProtobufCMessage *message) {
    link_tell(agent->wire, type, message);
    if (list_empty(&agent->unsent)) list_append(&agent->agents->unsent, &agent->unsent);
}

void agent_send(struct agent *agent, uint8_t type, struct slice payload) {
    link_send(agent->wire, type, payload);
    if (list_empty(&agent->unsent)) list_append(&agent->agents->unsent, &agent->unsent);
}

void agents_flush(struct agents *agents) {
    LIST_FOREACH_SAFE(item, next, &agents->unsent) {
        struct agent *agent = LIST_ENTRY(item, struct agent, unsent);
        list_remove(&agent->unsent);
        link_flush(agent->wire);
        if (link_backlog(agent->wire) <= AGENTS_BACKLOG_MAX) continue;
        log_warn("agents", "a client agent does not take its answers, its connection ends node=%s", agent->node);
        link_close(agent->wire);
    }
}

/* -- the callbacks of forwarding.h --------------------------------------------------------------------------------- */
static bool reach(void *data, uint64_t number) { return *agent_find(data, number) != NULL; }

static void send_message(void *data, uint64_t number, uint8_t type, const ProtobufCMessage *message) {
    struct agent *agent = *agent_find(data, number);
    if (agent) agent_tell(agent, type, message);
}

void agents_tell(struct agents *agents, uint64_t number, uint8_t type, const ProtobufCMessage *message) {
    send_message(agents, number, type, message);
    agents_flush(agents);
}

/* The agents whose frame this thread is handling: answers that come meanwhile need no wake-up. */
static _Thread_local struct agents *in_frame;

static void wake(void *data) {
    struct agents *agents = data;
    if (in_frame == agents) agents->done_in_frame = true;
    else uv_async_send(&agents->wake);
}

/* Client agents may not send commands that only servers propose: versions, removed servers, restores. */
static bool knows(void *data, struct slice command) {
    struct agents *agents = data;
    const struct module_command *row = machine_command_row(agents->rpc->machine, command);
    return row && !row->servers_only && machine_knows(agents->rpc->machine, command);
}

static void command(void *data, struct node_proposal *proposal) {
    struct agents *agents = data;
    if (agents->rpc->stopping) { /* the node does not answer any more, and may be gone */
        raft_data_unref(proposal->data);
        proposal->data = NULL;
        proposal->done(proposal, CO_NOLEADER, NULL);
        return;
    }
    node_propose(agents->rpc->node, proposal);
}

static void command_in(void *data, const char *region, struct node_proposal *proposal) {
    struct agents *agents = data;
    struct rpc *there = agents->rpc->stopping ? NULL : region_find(agents->rpc, region);
    if (there == agents->rpc) {
        command(data, proposal);
    } else if (there) {
        there->role->propose(there, proposal);
    } else {
        raft_data_unref(proposal->data);
        proposal->data = NULL;
        proposal->done(proposal, agents->rpc->stopping ? CO_CLOSED : CO_NOREGION, NULL);
    }
}

static void renew(void *data, struct rpc_renew *renew) {
    struct agents *agents = data;
    if (renew->region[0]) rpc_renew(agents->rpc, renew);
    else lessor_run_renew_now(agents->rpc, renew);
}

/* -- connections -------------------------------------------------------------------------------------------------- */
static void tell_caller(const struct caller *caller, uint8_t type, const ProtobufCMessage *message) {
    agents_tell(caller->rpc->agents, caller->id, type, message);
}

static void take_coordinate(struct agent *agent, const Pb__PeerCoordinate *report) {
    struct access_want want = {ACCESS_NODE, slice_text(report->coordinate->node), ACCESS_WRITE};
    struct requester *requester = NULL;
    if (agent_may(agent, report->token, &want, &requester) == CO_OK)
        (void)rpc_coordinate_put(agent->agents->rpc, report->coordinate);
    requester_release(requester);
}

/* False: client agents do not send such frames. */
static bool take_frame(struct agent *agent, uint8_t type, struct slice payload) {
    struct agents *agents = agent->agents;
    struct caller caller = {.rpc = agents->rpc,
                            .id = agent->reader.number,
                            .is_agent = true,
                            .may = agents_may,
                            .proven = agents_proven,
                            .tell = tell_caller};
    if (type == PEER_FETCH) {
        Pb__PeerFetch *ask = frame_unpack(&pb__peer_fetch__descriptor, payload, NULL);
        if (!ask) return false;
        agents_read(&agent->reader, ask);
        frame_drop(ask);
    } else if (type == PEER_FETCH_END) {
        Pb__PeerFetchEnd *end = frame_unpack(&pb__peer_fetch_end__descriptor, payload, NULL);
        if (!end) return false;
        agents_read_end(&agent->reader, end->number);
        frame_drop(end);
    } else if (asks_run_is_frame(type)) {
        return asks_run_frame(agents->rpc, agent->asks, type, payload);
    } else if (type == PEER_REGIONS) {
        return regions_serve(&caller, payload);
    } else if (type == PEER_TRUST) {
        return !agent->is_link && trust_serve(&caller, payload);
    } else if (type == PEER_ACL) {
        return acl_serve(&caller, payload);
    } else if (type == PEER_ECHO) {
        return echo_serve(&caller, payload);
    } else if (type == PEER_COORDINATE) {
        Pb__PeerCoordinate *report =
            payload.size <= COORDINATE_FRAME_MAX ? frame_unpack(&pb__peer_coordinate__descriptor, payload, NULL) : NULL;
        if (!report) return false;
        if (report->coordinate) take_coordinate(agent, report);
        frame_drop(report);
    } else if (type == PEER_PING && payload.size == 0) {
        agent_send(agent, PEER_PING, (struct slice){0});
    } else if (type == PEER_HOT) {
        return hot_serve(&caller, payload);
    } else if (type == PEER_HINTS || type == PEER_HINTS_FOLLOW || type == PEER_KEYS) {
        return agents_hints_frame(agent, type, payload);
    } else if (type == PEER_WRITES || type == PEER_RENEW) {
        return forwarding_frame(agents->forwarding, agent->reader.number, type, payload, agent->last_seen_ms);
    } else {
        return operator_serve(&caller, type, payload) || agents_backup_frame(agent, type, payload);
    }
    return true;
}

static void on_frame(void *data, struct link *wire, uint8_t type, struct slice payload) {
    struct agent *agent = data;
    struct agents *agents = agent->agents;
    (void)wire;
    agent->last_seen_ms = clock_mono_ms();
    if (agents->stopping) return;
    in_frame = agents;
    bool known = take_frame(agent, type, payload);
    in_frame = NULL;
    if (!known) {
        log_warn("agents", "a frame that client agents do not send type=%u node=%s", type, agent->node);
        link_close(agent->wire);
    }
    if (agents->done_in_frame) {
        agents->done_in_frame = false;
        forwarding_woken(agents->forwarding);
    }
    agents_flush(agents);
}

static void finish_stop(struct agents *agents);

static void on_closed(void *data, struct link *wire, int error) {
    struct agent *agent = data;
    struct agents *agents = agent->agents;
    if (!agents->stopping && !agent->asks_only)
        log_info("agents", "%s went node=%s reason=\"%s\"",
                 agent->is_link ? "a link from another region" : "a client agent", agent->node,
                 reach_end_text(error, link_cause(wire)));
    agents_read_down(&agent->reader);
    agents_backup_down(agent);
    asks_run_down(agents->rpc, agent->asks);
    agents_hints_down(agent);
    *agent_find(agents, agent->reader.number) = agent->chain;
    list_remove(&agent->link);
    list_remove(&agent->unsent);
    requester_release(agent->self);
    if (!agent->is_link) metric_set(&connected, (int64_t)--agents->count);
    free(agent);
    finish_stop(agents);
}

static void on_drained(void *data, struct link *wire) {
    struct agent *agent = data;
    (void)wire;
    if (agent->agents->stopping || list_empty(&agent->reader.held)) return;
    agents_read_pieces(&agent->reader);
    agents_flush(agent->agents);
}

static const struct link_callbacks wire_callbacks = {.frame = on_frame, .closed = on_closed, .drained = on_drained};

void agents_adopt(struct agents *agents, struct link *wire, const Pb__PeerHello *hello) {
    struct agent *agent = mem_zalloc(sizeof *agent);
    agent->agents = agents, agent->wire = wire, agent->last_seen_ms = clock_mono_ms();
    snprintf(agent->node, sizeof agent->node, "%s", hello->node);
    remote_reader_init(&agent->reader, agents);
    list_init(&agent->unsent);
    list_init(&agent->follows);
    list_append(&agents->all, &agent->link);
    *agent_find(agents, agent->reader.number) = agent;
    agent->is_link = hello->region[0];
    agent->asks_only = agent->is_link && !hello->cluster[0]; /* hello_of_region */
    if (agent->is_link) snprintf(agent->region, sizeof agent->region, "%s", hello->region);
    struct asks_up asks = {.node = agent->node};
    if (!agent->is_link) {
        agent->asks = asks_run_up(agents->rpc, wire, &asks);
        metric_set(&connected, (int64_t)++agents->count);
    }
    link_adopt(wire, &wire_callbacks, agent);
    link_keep_short(wire);
    if (agent->asks_only)
        log_debug("agents", "another region asks who is here region=%s node=%s", hello->region, agent->node);
    else if (agent->is_link)
        log_info("agents", "a link from another region came region=%s node=%s address=%s", hello->region, agent->node,
                 hello->address);
    else log_info("agents", "a client agent came node=%s address=%s", agent->node, hello->address);
    if (agents->stopping) {
        link_close(wire);
        return;
    }
    if (agents->servers.size) {
        link_send(wire, PEER_SERVERS, buffer_slice(&agents->servers));
        link_flush(wire);
    }
}

void agents_servers(struct agents *agents, const Pb__PeerServers *servers) {
    forwarding_leader(agents->forwarding, servers->leader, servers->cut_off, clock_mono_ms());
    size_t size = pb__peer_servers__get_packed_size(servers);
    struct buffer packed = {0};
    buffer_reserve(&packed, size + 1);
    packed.size = pb__peer_servers__pack(servers, (uint8_t *)packed.data);
    if (slice_equal(buffer_slice(&packed), buffer_slice(&agents->servers))) {
        buffer_free(&packed);
        return;
    }
    buffer_free(&agents->servers);
    agents->servers = packed;
    LIST_FOREACH(item, &agents->all) {
        struct agent *agent = LIST_ENTRY(item, struct agent, link);
        agent_send(agent, PEER_SERVERS, buffer_slice(&packed));
    }
    agents_flush(agents);
}

/* Has the agent been silent for too long, or has it not taken its answers? */
static bool is_gone(struct agent *agent, uint64_t now_ms) {
    if (link_heard(agent->wire, &agent->received)) agent->last_seen_ms = now_ms;
    if (list_empty(&agent->reader.held)) return now_ms - agent->last_seen_ms > AGENTS_QUIET_MS;
    uint64_t delivered = link_delivered(agent->wire);
    if (delivered != agent->delivered) agent->delivered = delivered, agent->reader.taken_ms = now_ms;
    return now_ms - agent->last_seen_ms > AGENTS_QUIET_MS || now_ms - agent->reader.taken_ms > AGENTS_QUIET_MS;
}

static void tick(uv_timer_t *timer) {
    struct agents *agents = timer->data;
    uint64_t now_ms = clock_mono_ms();
    bool stood_still = now_ms - agents->ticked_ms > 2 * TICK_MS;
    LIST_FOREACH_SAFE(item, next, &agents->all) {
        struct agent *agent = LIST_ENTRY(item, struct agent, link);
        /* this process stood still: their bytes wait to be read */
        if (stood_still) agent->last_seen_ms = agent->reader.taken_ms = now_ms;
        else if (is_gone(agent, now_ms)) link_close(agent->wire);
    }
    agents_backup_tick(agents, now_ms);
    agents->ticked_ms = now_ms;
}

static void woken(uv_async_t *async) {
    struct agents *agents = async->data;
    agents_read_answered(agents);
    forwarding_woken(agents->forwarding);
    agents_flush(agents);
    finish_stop(agents);
}

void agents_region_end(struct agents *agents, const char *region) {
    LIST_FOREACH_SAFE(item, next, &agents->all) {
        struct agent *agent = LIST_ENTRY(item, struct agent, link);
        if (agent->is_link && strcmp(agent->region, region) == 0) link_close(agent->wire);
    }
}

void agents_judge(struct agents *agents, bool (*may_stay)(void *data, struct link *link, const Pb__PeerHello *hello),
                  void *data) {
    LIST_FOREACH_SAFE(item, next, &agents->all) {
        struct agent *agent = LIST_ENTRY(item, struct agent, link);
        Pb__PeerHello hello = PB__PEER_HELLO__INIT;
        hello.agent = true, hello.node = agent->node, hello.region = agent->region;
        if (!may_stay(data, agent->wire, &hello)) link_close(agent->wire);
    }
}

size_t agents_count(const struct agents *agents) { return agents->count; }

/* -- life --------------------------------------------------------------------------------------------------------- */
struct agents *agents_new(struct rpc *rpc, const char *folder, size_t held_max) {
    metric_register(&connected);
    agents_read_init();
    struct agents *agents = mem_zalloc(sizeof *agents);
    agents->rpc = rpc, agents->folder = mem_strdup(folder);
    agents->held_max = held_max ? held_max : AGENTS_HELD_MAX;
    agents->hints = agents_hints_new(agents);
    agents->reader = rpc_reader_new(rpc);
    list_init(&agents->all);
    list_init(&agents->unsent);
    list_init(&agents->peer_readers);
    struct forwarding_callbacks callbacks = {.data = agents,
                                             .reach = reach,
                                             .send = send_message,
                                             .wake = wake,
                                             .knows = knows,
                                             .command = command,
                                             .may_write = agents_may_write,
                                             .may_renew = agents_may_renew,
                                             .renew = renew,
                                             .command_in = command_in,
                                             .onward = true};
    agents->forwarding = forwarding_new(&callbacks, 0);
    CHECK(uv_async_init(rpc->loop, &agents->wake, woken) == 0 && uv_timer_init(rpc->loop, &agents->timer) == 0);
    CHECK(uv_timer_init(rpc->loop, &agents->room_timer) == 0);
    agents->wake.data = agents->timer.data = agents->room_timer.data = agents;
    agents->ticked_ms = clock_mono_ms();
    uv_timer_start(&agents->timer, tick, TICK_MS, TICK_MS);
    return agents;
}

static void handle_closed(uv_handle_t *handle) {
    struct agents *agents = handle->data;
    if (--agents->closing > 0) return;
    forwarding_free(agents->forwarding);
    agents_hints_free(agents->hints);
    rpc_reader_free(agents->reader);
    buffer_free(&agents->servers);
    free(agents->folder);
    void (*closed)(void *) = agents->closed;
    void *data = agents->closed_data;
    free(agents);
    closed(data);
}

static void finish_stop(struct agents *agents) {
    if (!agents->stopping || agents->closing || agents->asked_count || !list_empty(&agents->all)) return;
    agents->closing = 3;
    uv_close((uv_handle_t *)&agents->wake, handle_closed);
    uv_close((uv_handle_t *)&agents->timer, handle_closed);
    uv_close((uv_handle_t *)&agents->room_timer, handle_closed);
}

void agents_stop(struct agents *agents, void (*closed)(void *data), void *data) {
    agents->closed = closed, agents->closed_data = data;
    agents->stopping = true;
    forwarding_stop(agents->forwarding);
    peer_readers_stop(agents);
    agents_read_answered(agents);
    LIST_FOREACH_SAFE(item, next, &agents->all) link_close(LIST_ENTRY(item, struct agent, link)->wire);
    finish_stop(agents);
}
