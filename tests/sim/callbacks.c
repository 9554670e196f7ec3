/* Requests that wait at a server, and the program's code that decides about them: its queue of requests, its forwarding
 * and its lease table, each reached through its callbacks as node.c, rpc/leader/forwarding_run.c and rpc/leader/leases_run.c do,
 * with the simulator's time, connections and clients on the other side. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "registry/machine.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/forward/forwarding.h"
#include "rpc/leader/leases.h"
#include "tests/sim/agents.h"
#include "tests/sim/gateways.h"

/* -- commands -- */

struct write {
    struct node_proposal proposal;
    struct server *server;
    uint64_t op;                 /* a client's, or */
    struct lessor_decision *due; /* the lease table's */
    uint64_t incarnation;
};

struct decided { /* an outcome on its way to the lease table */
    struct decided *next;
    struct lessor_decision *due;
    int error;
};

static void due_decided(struct server *server, struct lessor_decision *due, int error) {
    struct decided *decided = mem_zalloc(sizeof *decided);
    decided->due = due;
    decided->error = error;
    struct decided **end = &server->decided;
    while (*end) end = &(*end)->next;
    *end = decided;
    edge_poke(server);
}

static void take_decided(struct server *server) {
    for (struct decided *decided = server->decided, *next; decided; decided = next) {
        next = decided->next;
        server->decided = next;
        lessor_decided(server->leases, decided->due, decided->error, server_now_ms(server));
        free(decided);
    }
}

/* Tells a client the outcome of its write. A process that dies says nothing. */
static void write_told(struct server *server, uint64_t id, int error, const struct machine_result *result) {
    struct op *op = op_get(server->sim, id);
    bool surely_not = error == CO_NOLEADER || error == CO_DISKFULL || error == CO_BUSY || error == CO_CLOSED;
    if (error == CO_OK && op->state == OP_WAITING) {
        op->yes = result->yes;
        op->error = result->error;
        if (op->client == SIM_GATEWAY) gateways_result(op, result);
        if (op->client == SIM_AGENT) agents_result(op, result);
    }
    TRACE(server->sim, "command %" PRIu64 " at s%u: %s, %" PRIu64, id, server->slot + 1,
          error ? co_strerror(error) : "done", error ? 0 : result->index);
    op_done(server->sim, id,
            error == CO_OK                 ? OP_DONE
            : surely_not && !server->dying ? OP_REFUSED
                                           : OP_UNKNOWN,
            error == CO_OK ? result->index : 0);
}

static void write_done(struct node_proposal *proposal, int error, const void *result) {
    struct write *write = CONTAINER_OF(proposal, struct write, proposal);
    if (write->due) due_decided(write->server, write->due, error);
    else write_told(write->server, write->op, error, result);
    free(write);
}

static void submit(struct server *server, struct write *write, struct raft_data *data) {
    write->server = server;
    write->proposal.done = write_done;
    write->proposal.data = data;
    write->proposal.deadline_ms = server_now_ms(server) + RPC_LEADER_WAIT_MS;
    requests_command(&server->requests, &write->proposal);
    server_turn(server);
}

/* Commands of a later cluster version have been refused before (rpc/server/version.c). */
void edge_write(struct server *server, uint64_t op) {
    struct raft_data *data = op_bytes(op_get(server->sim, op));
    const struct module_command *row =
        machine_command_row(server->machine.machine, slice_make(data->bytes, data->size));
    if (!row->servers_only && row->since > machine_version(server->machine.machine)) {
        raft_data_unref(data);
        op_done(server->sim, op, OP_REFUSED, 0);
        return;
    }
    struct write *write = mem_zalloc(sizeof *write);
    write->op = op;
    submit(server, write, data);
}

void edge_applied(struct server *server, struct node_proposal *proposal, const struct machine_result *result) {
    (void)server;
    requests_answer(proposal, result);
}

void edge_abandon(struct server *server, struct node_proposal *proposal) {
    (void)server;
    requests_end(proposal, CO_UNKNOWN_OUTCOME);
}

static void note_room(struct server *server, uint64_t now_ms, uint64_t bytes, bool room) {
    if (disk_health_room(&server->disk_health, now_ms, bytes, room))
        TRACE(server->sim, "s%u: its disk %s", server->slot + 1, room ? "has room again" : "is full");
}

static bool has_room(void *data, uint64_t bytes) {
    struct server *server = data;
    uint64_t now_ms = server_now_ms(server), ask = bytes;
    if (!disk_health_may_ask(&server->disk_health, now_ms, &ask)) return false;
    bool room = wal_may_accept(server->wal, ask + storage_waiting(server));
    note_room(server, now_ms, bytes, room);
    return room;
}

/* As node.c's. */
bool edge_takes_in(struct server *server, const struct raft_message *message) {
    uint64_t bytes = raft_message_room(message), waiting = storage_waiting(server);
    if (bytes == 0) return true;
    bool full = server->disk_health.full, accepts = !full && wal_may_accept(server->wal, bytes + waiting);
    bool room = accepts || wal_has_room(server->wal, bytes + waiting);
    if (!room) requests_out_of_space(&server->requests, server->raft);
    if (!room || (!full && !accepts)) note_room(server, server_now_ms(server), bytes, false);
    if (room) server->taken_bytes += bytes;
    return room;
}

/* -- reads -- */

struct read {
    struct node_read read;
    struct server *server;
    uint64_t op;             /* a client's, or */
    struct rpc_renew *renew; /* a renewal that wants a round */
};

static void read_done(struct node_read *node_read, int error) {
    struct read *read = CONTAINER_OF(node_read, struct read, read);
    struct server *server = read->server;
    if (read->renew) {
        lessor_confirmed(server->leases, read->renew, error, server_now_ms(server));
    } else if (error != CO_OK) {
        op_done(server->sim, read->op, OP_REFUSED, 0);
        watch_failed(server, read->op);
    } else { /* by its own thread, a little later */
        sim_schedule(server->sim, sim_random(server->sim, 0, 300), EVENT_READ, server->slot, read->op, NULL);
    }
    free(read);
}

static bool alone(struct server *server) {
    return requests_alone(&server->requests, server->raft, server->applied_seen);
}

/* As rpc_read_index. */
static int confirm_round(struct server *server, uint64_t op, struct rpc_renew *renew) {
    if (alone(server)) return CO_OK;
    struct read *read = mem_zalloc(sizeof *read);
    read->server = server;
    read->op = op;
    read->renew = renew;
    read->read.done = read_done;
    read->read.deadline_ms = server_now_ms(server) + RPC_LEADER_WAIT_MS;
    requests_read(&server->requests, &read->read);
    server_turn(server);
    return CO_AGAIN;
}

void edge_read(struct server *server, uint64_t op) {
    if (confirm_round(server, op, NULL) == CO_OK) op_read_now(server, op);
}

static bool forward_commands(void *data, uint64_t leader, struct node_proposal *list) {
    struct server *server = data;
    return forwarding_writes(server->forwarding, leader, list);
}

static bool ask_read(void *data, uint64_t leader, uint64_t context, uint64_t term) {
    struct server *server = data;
    return forwarding_read(server->forwarding, leader, context, term);
}

/* -- forwarding -- */

static bool reach(void *data, uint64_t peer) { return links_up(data, peer); }

static void send_frame(void *data, uint64_t peer, uint8_t type, const ProtobufCMessage *message) {
    size_t size = protobuf_c_message_get_packed_size(message);
    char *bytes = mem_alloc(size + 1);
    protobuf_c_message_pack(message, (uint8_t *)bytes);
    links_send(data, peer, type, bytes, size);
    free(bytes);
}

static void wake(void *data) { edge_poke(data); }

static bool knows(void *data, struct slice command) {
    struct server *server = data;
    return machine_knows(server->machine.machine, command);
}

static void take_command(void *data, struct node_proposal *proposal) {
    struct server *server = data;
    requests_command(&server->requests, proposal);
    server_turn(server);
}

static void take_read(void *data, struct node_read *read) {
    struct server *server = data;
    requests_read(&server->requests, read);
    server_turn(server);
}

static void take_read_answer(void *data, uint64_t context, uint64_t index, int error) {
    struct server *server = data;
    requests_read_answered(&server->requests, context, index, error);
    server_turn(server);
}

static void renew_here(void *data, struct rpc_renew *renew) {
    struct server *server = data;
    lessor_renew(server->leases, renew, true, server_now_ms(server));
    server_turn(server); /* arms its timer: it may wait for others */
}

/* -- leases -- */

struct renew {
    struct rpc_renew renew;
    struct server *server;
    uint64_t op;
};

static void renew_done(struct rpc_renew *renew, int error) {
    struct renew *mine = CONTAINER_OF(renew, struct renew, renew);
    struct server *server = mine->server;
    struct op *op = op_get(server->sim, mine->op);
    if (op->state == OP_WAITING) op->yes = error == CO_OK, op->error = error;
    bool answered = error == CO_OK || error == CO_NOTFOUND;
    op_done(server->sim, mine->op, server->dying ? OP_UNKNOWN : answered ? OP_DONE : OP_REFUSED, 0);
    free(mine);
}

void edge_renew(struct server *server, uint64_t op) {
    struct renew *mine = mem_zalloc(sizeof *mine);
    mine->server = server;
    mine->op = op;
    mine->renew.done = renew_done;
    const struct op *renewal = op_get(server->sim, op);
    mine->renew.kind = renewal->module->expiry->number;
    renewal->module->name_of(renewal->owner, mine->renew.id);
    lessor_renew(server->leases, &mine->renew, false, server_now_ms(server));
    server_turn(server);
}

static struct expiry_update *take_updates(void *data) {
    struct server *server = data;
    return expiry_updates_take(server->machine.updates);
}

static struct store_txn *read_begin(void *data) {
    struct server *server = data;
    return store_read(server->machine.reader);
}

static int64_t unix_ms(void *data) {
    struct server *server = data;
    const struct sim *sim = server->sim;
    if (sim->gateways && sim->gateways->plan.clients) return gateways_unix_ms(sim, server->slot);
    return (int64_t)server_wall_ms(server);
}

static void read_end(void *data) {
    struct server *server = data;
    store_read_done(server->machine.reader);
}

static void propose(void *data, struct lessor_decision *due, uint8_t command, const ProtobufCMessage *message) {
    struct write *write = mem_zalloc(sizeof *write);
    write->due = due;
    struct buffer bytes = {0};
    machine_command(&bytes, command, message);
    TRACE(((struct server *)data)->sim, "s%u ends a lease: command %u", ((struct server *)data)->slot + 1, command);
    submit(data, write, raft_data_new(bytes.data, bytes.size));
    buffer_free(&bytes);
}

static bool elsewhere(void *data, struct rpc_renew *renew) {
    struct server *server = data;
    uint64_t leader = raft_leader(server->raft);
    return leader && leader != server->id && forwarding_renew(server->forwarding, leader, renew);
}

static int confirm(void *data, struct rpc_renew *renew) { return confirm_round(data, 0, renew); }

/* -- the loop -- */

void edge_poke(struct server *server) {
    if (server->dying || server->poke_planned) return;
    server->poke_planned = true;
    sim_schedule(server->sim, sim_random(server->sim, 1, 100), EVENT_POKE, server->slot, 0, NULL);
}

void edge_poked(struct server *server) {
    server->poke_planned = false;
    forwarding_woken(server->forwarding);
    lessor_updates(server->leases, server_now_ms(server));
    if (server->installed) lessor_replaced(server->leases, server_now_ms(server));
    server->installed = false;
    take_decided(server);
    server_turn(server); /* arms its timer */
}

void edge_tick(struct server *server) {
    if (lessor_deadline_ms(server->leases) <= server_now_ms(server)) lessor_tick(server->leases, server_now_ms(server));
}

uint64_t edge_deadline_ms(const struct server *server) {
    uint64_t at = requests_deadline_ms(&server->requests), leases = lessor_deadline_ms(server->leases);
    if (leases < at) at = leases;
    const struct disk_health *disk = &server->disk_health;
    return disk->degraded && disk->degraded_until_ms < at ? disk->degraded_until_ms : at;
}

/* As node.c's judge_disk. */
void edge_judge_disk(struct server *server) {
    struct disk_health *health = &server->disk_health;
    uint64_t now_ms = server_now_ms(server);
    if (health->full) (void)has_room(server, 0);
    bool changed = disk_health_judge(health, now_ms, server->write_begun_ms, server->bad_ms);
    if (changed) TRACE(server->sim, "s%u: its disk is %s", server->slot + 1, health->degraded ? "degraded" : "well");
    bool spent = !wal_takes_votes(server->wal);
    if (!changed && health->full == server->full_told && spent == server->spent_told) return;
    server->full_told = health->full, server->spent_told = spent;
    struct raft_event event = {.type = RAFT_DISK, .now_ms = now_ms};
    event.u.disk.degraded = health->degraded, event.u.disk.full = health->full, event.u.disk.spent = spent;
    (void)raft_step(server->raft, &event);
}

void edge_after_turn(struct server *server) {
    struct requests *r = &server->requests;
    uint64_t now_ms = server_now_ms(server), term = r->term, leader = r->leader;
    requests_serve(r, server->applied_seen);
    if (requests_role(r, server->raft, server->applied_seen, now_ms)) {
        if (r->term != term || r->leader != leader) server_turn(server);
        lessor_role(server->leases, r->term, r->role == RAFT_LEADER && r->ready, now_ms);
    }
    requests_give_up(r, server->raft, now_ms);
}

void edge_open(struct server *server) {
    struct requests_callbacks requests = {
        .data = server, .has_room = has_room, .forward = forward_commands, .ask_read = ask_read};
    requests_init(&server->requests, &requests, server->id, rng_next(&server->sim->rng) >> 1);
    struct forwarding_callbacks forwarding = {.data = server,
                                              .reach = reach,
                                              .send = send_frame,
                                              .wake = wake,
                                              .knows = knows,
                                              .command = take_command,
                                              .read = take_read,
                                              .read_answer = take_read_answer,
                                              .renew = renew_here,
                                              .mutations = server->sim->options.forwarding_mutations};
    server->forwarding = forwarding_new(&forwarding, rng_next(&server->sim->rng) >> 1);
    struct lessor_callbacks leases = {.data = server,
                                      .modules = machine_modules(server->machine.machine),
                                      .updates = take_updates,
                                      .read = read_begin,
                                      .read_done = read_end,
                                      .propose = propose,
                                      .elsewhere = elsewhere,
                                      .confirm = confirm,
                                      .unix_ms = unix_ms,
                                      .mutations = server->sim->options.lease_mutations};
    server->leases = lessor_new(&leases);
    server->disk_health = (struct disk_health){.room_again = 4096};
    server->full_told = server->spent_told = false;
    server->taken_bytes = 0;
    server->write_begun_ms = 0;
    server->poke_planned = server->installed = false;
    sim_schedule(server->sim, sim_random(server->sim, 0, 20) * MS, EVENT_BEAT, server->slot, 0, NULL);
}

/* In the order of the program's own end; what it asks of others meanwhile goes nowhere. */
void edge_close(struct server *server) {
    server->dying = true;
    watches_close(server);
    lessor_stop(server->leases);
    requests_fail(&server->requests, CO_UNKNOWN_OUTCOME, CO_CLOSED);
    requests_end_reads(&server->requests, CO_CLOSED);
    server_drop_applies(server);
    forwarding_stop(server->forwarding);
    forwarding_free(server->forwarding);
    take_decided(server);
    lessor_free(server->leases);
    server->forwarding = NULL;
    server->leases = NULL;
    server->dying = false;
}
