/* Operators' questions and changes. They come through a mailbox and are carried out on the loop. */
#include "rpc/api/operator.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "registry/operator.h"
#include "rpc/audit/audit.h"
#include "rpc/cluster/last_seen.h"
#include "rpc/server/autopilot.h"
#include "rpc/server/server_internal.h"

#define CHANGE_MOST_MS 7000
#define HEARD_MOST_MS  500 /* a new leader may not have heard all servers yet */
#define POLL_MS        20

struct operators {
    uv_async_t wake;
    uv_timer_t timer;
    struct change_work *changes; /* under way here */
    void (*stopped)(void *data);
    struct mailbox tasks; /* any thread puts into it */
};

/* -- tasks for the loop ------------------------------------------------------------------------------------------- */
void operator_post(struct rpc *rpc, struct loop_task *task) {
    struct operators *operators = rpc->server->operators;
    if (mailbox_put(&operators->tasks, &task->mail)) uv_async_send(&operators->wake);
}

static void wake_cb(uv_async_t *async) {
    struct rpc *rpc = async->data;
    for (struct mail *mail = mailbox_take(&rpc->server->operators->tasks), *next; mail; mail = next) {
        next = mail->next;
        struct loop_task *task = CONTAINER_OF(mail, struct loop_task, mail);
        task->run(task);
    }
}

void operator_ask(struct rpc *rpc, struct rpc_ask_cluster *ask) {
    if (ask->of_leader) operator_call_ask(rpc, ask);
    else if (rpc->stopping) ask->done(ask, CO_CLOSED, NULL);
    else operator_ask_here(rpc, ask);
}

/* -- the cluster as this server knows it -------------------------------------------------------------------------- */
static void fill_contact(struct rpc *rpc, struct rpc_server_state *server, uint64_t now_ms) {
    server->last_contact_ms = UINT64_MAX;
    const struct last_seen *seen = last_seen_find(rpc->last_seen, server->id);
    if (!seen) return;
    snprintf(server->node, sizeof server->node, "%s", seen->node);
    snprintf(server->build, sizeof server->build, "%s", seen->build);
    server->last_contact_ms = now_ms - seen->ms;
    server->stable_ms = now_ms - seen->since_ms;
}

static void fill_self(struct rpc *rpc, struct rpc_server_state *server) {
    server->connected = true;
    server->unhealthy = atomic_load(&node_view(rpc->node)->disk_full) || rpc_serves(rpc) != CO_OK || audit_split(rpc);
    server->last_index = atomic_load(&node_view(rpc->node)->last_index);
    server->last_term = node_last_term(rpc->node);
    server->match = server->last_index;
    server->stable_ms = UINT64_MAX;
    snprintf(server->node, sizeof server->node, "%s", rpc->node_name);
    snprintf(server->build, sizeof server->build, "%s", rpc->server->build);
}

static void fill_peer(struct rpc *rpc, struct rpc_server_state *server, const struct peer_info *peers, size_t count,
                      bool leads) {
    for (size_t k = 0; k < count; k++)
        if (peers[k].id == server->id) server->connected = peers[k].connected;
    fill_contact(rpc, server, clock_mono_ms());
    if (!leads) return;
    server->unhealthy = !autopilot_well(rpc, server->id);
    server->match = server->last_index = node_match(rpc->node, server->id);
    server->last_term = server->match ? node_last_term(rpc->node) : 0;
}

void operator_ask_here(struct rpc *rpc, struct rpc_ask_cluster *ask) {
    const struct raft_members *members = node_members(rpc->node);
    const struct node_view *view = node_view(rpc->node);
    uint64_t self = atomic_load(&view->id), leader = atomic_load(&view->leader);
    struct peer_info peers[PEERS_MAX];
    size_t count = rpc->others ? peers_list(rpc->others, peers, PEERS_MAX) : 0;
    struct rpc_server_state servers[RAFT_MEMBERS_MAX] = {{0}};
    struct rpc_cluster_state state = {.index = node_members_index(rpc->node),
                                      .committed = node_members_committed(rpc->node),
                                      .here_leads = atomic_load(&view->ready),
                                      .servers = servers,
                                      .count = members->count};
    for (uint32_t i = 0; i < members->count; i++) {
        const struct raft_member *member = &members->member[i];
        servers[i].id = member->id, servers[i].voter = member->voter, servers[i].leader = member->id == leader;
        snprintf(servers[i].address, sizeof servers[i].address, "%s", member->address);
        if (servers[i].leader) snprintf(state.leader_address, sizeof state.leader_address, "%s", member->address);
        if (member->id == self) fill_self(rpc, &servers[i]);
        else fill_peer(rpc, &servers[i], peers, count, state.here_leads);
    }
    struct buffer waiting = {0};
    if (state.count == 0 && rpc->others) {
        server_peers_waiting(rpc, &waiting);
        buffer_append_byte(&waiting, '\0');
        state.waiting = waiting.data;
    }
    ask->done(ask, CO_OK, &state);
    buffer_free(&waiting);
}

/* -- changes ------------------------------------------------------------------------------------------------------- */
/* Removing: first the note that the server was removed goes into the log (so that no leader lets it in again), then the
 * server leaves the configuration. If it cannot, the note is taken back. */
struct change_work {
    struct change_work *next;
    struct rpc_change *change; /* NULL: this server's own decision, with the reason `why` */
    const char *why;
    bool transfers; /* it hands leadership over; else it removes a server */
    struct loop_task noted;
    struct rpc_write write;
    enum { CHANGE_NOTING, CHANGE_WANTED, CHANGE_MADE, CHANGE_TAKING_BACK, CHANGE_OVER } stage;
    int note_error, error; /* of the note; of the whole change */
    uint64_t deadline_ms, target, term;
};
static void change_end(struct change_work *work, int error) {
    struct rpc_change *change = work->change;
    free(work);
    if (change) change->done(change, error);
}

static void note(struct rpc *rpc, struct change_work *work, bool forget) {
    Pb__ServerRemovedCommand command = PB__SERVER_REMOVED_COMMAND__INIT;
    command.id = work->target, command.forget = forget;
    work->stage = forget ? CHANGE_TAKING_BACK : CHANGE_NOTING;
    rpc_submit(rpc, &work->write, OPERATOR_SERVER_REMOVED, &command.base);
}

/* Does the next step; CO_AGAIN: it is not over yet. */
static int remove_step(struct rpc *rpc, struct change_work *work) {
    const struct node_view *view = node_view(rpc->node);
    if (work->stage == CHANGE_NOTING || work->stage == CHANGE_TAKING_BACK) return CO_AGAIN;
    if (work->stage == CHANGE_OVER || work->error != CO_OK) return work->error;
    bool member = raft_members_find(node_members(rpc->node), work->target) != NULL;
    if (work->stage == CHANGE_MADE) {
        if (atomic_load(&view->term) != work->term)
            return !member && node_members_committed(rpc->node) ? CO_OK : CO_UNKNOWN_OUTCOME;
        return node_members_committed(rpc->node) ? CO_OK : CO_AGAIN;
    }
    if (!atomic_load(&view->ready)) return CO_NOTLEADER;
    if (!member) return CO_OK;
    /* another server was lost meanwhile; or this one is back */
    bool spared = work->change ? autopilot_can_spare(rpc, work->target) : !peers_connected(rpc->others, work->target);
    if (!spared) return CO_CONFLICT;
    char address[sizeof((struct raft_member *)0)->address];
    snprintf(address, sizeof address, "%s", rpc_server_address(rpc, work->target));
    int rv = node_change(rpc->node, RAFT_REMOVE, work->target, NULL);
    if (rv == CO_BUSY) return CO_AGAIN;
    if (rv != CO_OK) return rv;
    log_warn("raft",
             "a server is removed, and stays out as long as it has its data folder node=%s address=%s id=%016llx "
             "reason=\"%s\"",
             rpc_server_name(rpc, work->target), address, (unsigned long long)work->target,
             work->change ? "it was asked for" : work->why);
    work->stage = CHANGE_MADE, work->term = atomic_load(&view->term);
    return CO_AGAIN;
}

static bool reachable(struct rpc *rpc, uint64_t id) {
    /* then the core reports the error */
    if (id == atomic_load(&node_view(rpc->node)->id) || !raft_members_find(node_members(rpc->node), id)) return true;
    return peers_connected(rpc->others, id) && node_peer_heard(rpc->node, id);
}

static int transfer_step(struct rpc *rpc, struct change_work *work) {
    const struct node_view *view = node_view(rpc->node);
    uint64_t leader = atomic_load(&view->leader);
    if (work->stage == CHANGE_MADE) {
        if (!leader || node_transferring(rpc->node)) return CO_AGAIN;
        if (leader == atomic_load(&view->id)) return CO_TIMEOUT; /* no server took leadership */
        return work->target == 0 || leader == work->target ? CO_OK : CO_CONFLICT;
    }
    if (!atomic_load(&view->ready)) return CO_NOTLEADER;
    if (work->target && !reachable(rpc, work->target)) /* otherwise writes would pause for a server that is gone */
        return clock_mono_ms() + CHANGE_MOST_MS < work->deadline_ms + HEARD_MOST_MS ? CO_AGAIN : CO_INVALID;
    int rv = node_transfer(rpc->node, work->target);
    if (rv == CO_BUSY) return CO_AGAIN;
    if (rv == CO_OK) log_info("raft", "leadership is handed over for an operator");
    work->stage = CHANGE_MADE;
    return rv == CO_OK ? CO_AGAIN : rv;
}

static int change_step(struct rpc *rpc, struct change_work *work) {
    int rv = work->transfers ? transfer_step(rpc, work) : remove_step(rpc, work);
    bool patient = work->stage == CHANGE_NOTING || work->stage == CHANGE_TAKING_BACK;
    if (rv == CO_AGAIN && !patient && clock_mono_ms() >= work->deadline_ms)
        rv = work->stage == CHANGE_WANTED ? CO_BUSY : CO_TIMEOUT;
    return rv;
}

/* Takes the note back when the server was noted as removed and stays after all: otherwise it would be kept out when
 * something else removes it one day. False: there is nothing to take back. */
static bool take_back(struct rpc *rpc, struct change_work *work, int why) {
    if (work->transfers || work->stage != CHANGE_WANTED || work->error != CO_OK) return false;
    /* another leader may be asked to remove it, and note that */
    if (why == CO_OK || why == CO_NOTLEADER || rpc->stopping) return false;
    for (struct change_work *other = rpc->server->operators->changes; other; other = other->next)
        if (other != work && other->stage < CHANGE_TAKING_BACK && other->target == work->target && !other->transfers)
            return false;
    work->error = why;
    note(rpc, work, true);
    return true;
}

static void poll_cb(uv_timer_t *timer) {
    struct rpc *rpc = timer->data;
    for (struct change_work **at = &rpc->server->operators->changes, *work; (work = *at) != NULL;) {
        int rv = change_step(rpc, work);
        if (rv == CO_AGAIN || take_back(rpc, work, rv)) {
            at = &work->next;
            continue;
        }
        *at = work->next;
        change_end(work, rv);
    }
    calls_tick(rpc->calls, clock_mono_ms());
    if (!rpc->server->operators->changes && calls_idle(rpc->calls)) uv_timer_stop(timer);
}

void operator_poll(struct rpc *rpc) { uv_timer_start(&rpc->server->operators->timer, poll_cb, 0, POLL_MS); }

static void noted_taken(struct loop_task *task) {
    struct change_work *work = CONTAINER_OF(task, struct change_work, noted);
    if (work->stage == CHANGE_TAKING_BACK) {
        if (work->note_error != CO_OK)
            log_warn("raft",
                     "a server that stays is noted as removed, should it ever leave it is not taken in again node=%s "
                     "address=%s id=%016llx",
                     rpc_server_name(work->noted.rpc, work->target), rpc_server_address(work->noted.rpc, work->target),
                     (unsigned long long)work->target);
        work->stage = CHANGE_OVER;
        return;
    }
    work->error = work->note_error;
    work->stage = CHANGE_WANTED;
    /* The cluster's version may be too low for the note, and this very server be the one in the way: once it is
     * gone, nobody is there to be kept out. */
    if (work->error == CO_UNSUPPORTED && !peers_connected(work->noted.rpc->others, work->target)) work->error = CO_OK;
}

/* Another thread. */
static void noted(struct rpc_write *write, int error, const struct machine_result *result) {
    struct change_work *work = CONTAINER_OF(write, struct change_work, write);
    work->note_error = error == CO_OK ? result->error : error;
    rpc_on_loop(work->noted.rpc, &work->noted, noted_taken);
}

static int find_target(struct rpc *rpc, const struct rpc_change *change, uint64_t *target) {
    const struct raft_members *members = node_members(rpc->node);
    *target = change->id;
    if (change->id == 0 && !change->address[0]) return change->type == RPC_REMOVE_SERVER ? CO_INVALID : CO_OK;
    for (uint32_t i = 0; i < members->count; i++) {
        const struct raft_member *member = &members->member[i];
        if (change->id ? member->id != change->id : strcmp(member->address, change->address) != 0) continue;
        *target = member->id;
        bool last = member->voter && raft_members_voters(members) == 1;
        return change->type == RPC_REMOVE_SERVER && last ? CO_INVALID : CO_OK;
    }
    return CO_INVALID;
}

static void change_begin(struct rpc *rpc, struct rpc_change *change, uint64_t target, const char *why) {
    struct change_work *work = mem_zalloc(sizeof *work);
    work->change = change, work->why = why, work->transfers = change && change->type == RPC_TRANSFER_LEADER;
    work->target = target, work->deadline_ms = clock_mono_ms() + CHANGE_MOST_MS;
    work->noted.rpc = rpc, work->write.done = noted, work->stage = CHANGE_WANTED;
    work->next = rpc->server->operators->changes;
    rpc->server->operators->changes = work;
    if (!work->transfers) note(rpc, work, false);
    operator_poll(rpc);
}

void operator_change_here(struct rpc *rpc, struct rpc_change *change) {
    uint64_t target;
    int rv = rpc->stopping                                ? CO_CLOSED
             : !atomic_load(&node_view(rpc->node)->ready) ? CO_NOTLEADER
                                                          : find_target(rpc, change, &target);
    if (rv == CO_OK && change->type == RPC_REMOVE_SERVER && !autopilot_can_spare(rpc, target)) rv = CO_CONFLICT;
    if (rv != CO_OK) {
        change->done(change, rv);
        return;
    }
    change_begin(rpc, change, target, NULL);
}

void operator_remove(struct rpc *rpc, uint64_t id, const char *why) {
    for (struct change_work *work = rpc->server->operators->changes; work; work = work->next)
        if (work->target == id && !work->transfers) return;
    change_begin(rpc, NULL, id, why);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
/* The leader, when it is another server. */
static uint64_t leader_route(void *data, const struct call *call) {
    struct rpc *rpc = data;
    const struct node_view *view = node_view(rpc->node);
    uint64_t leader = atomic_load(&view->leader);
    (void)call;
    if (atomic_load(&view->ready)) return CALLS_HERE;
    return leader == atomic_load(&view->id) ? 0 : leader;
}

static bool leader_tell(void *data, uint64_t peer, uint8_t type, const ProtobufCMessage *message) {
    struct rpc *rpc = data;
    return peers_tell(rpc->others, peer, type, message);
}

void operator_start(struct rpc *rpc) {
    static const struct call_method *const methods[] = {&cluster_method, &change_method,  &copy_method,
                                                        &echo_method,    &acl_key_method, NULL};
    struct calls_callbacks edge = {.data = rpc, .route = leader_route, .tell = leader_tell};
    struct operators *operators = rpc->server->operators = mem_zalloc(sizeof *operators);
    rpc->calls = calls_new(&edge, methods, random_u64() >> 1);
    CHECK(uv_async_init(rpc->loop, &operators->wake, wake_cb) == 0);
    CHECK(uv_timer_init(rpc->loop, &operators->timer) == 0);
    operators->wake.data = operators->timer.data = rpc;
}

static void wake_closed(uv_handle_t *handle) {
    struct rpc *rpc = handle->data;
    wake_cb(&rpc->server->operators->wake); /* the last requests are told that it is over */
    rpc->server->operators->stopped(rpc);
}

static void timer_closed(uv_handle_t *handle) {
    struct rpc *rpc = handle->data;
    uv_close((uv_handle_t *)&rpc->server->operators->wake, wake_closed);
}

static void close_when_idle(struct rpc *rpc) {
    if (!rpc->server->operators->stopped || rpc->jobs > 0) return;
    uv_close((uv_handle_t *)&rpc->server->operators->timer, timer_closed);
}

void operator_stop(struct rpc *rpc, void (*stopped)(void *data)) {
    struct operators *operators = rpc->server->operators;
    uv_timer_stop(&operators->timer);
    wake_cb(&operators->wake); /* the node has answered every write by now */
    for (struct change_work *work; (work = operators->changes) != NULL;) {
        operators->changes = work->next;
        change_end(work, work->stage == CHANGE_MADE ? CO_UNKNOWN_OUTCOME : CO_CLOSED);
    }
    calls_stop(rpc->calls);
    operators->stopped = stopped;
    rpc->jobs_over = close_when_idle;
    close_when_idle(rpc);
}

void operator_free(struct rpc *rpc) {
    calls_free(rpc->calls);
    free(rpc->server->operators);
}
