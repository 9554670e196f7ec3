/* Calls of agents: operations of the simulator, so that what holds of any client's holds of theirs. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/message.h"
#include "registry/catalog.h"
#include "registry/lease.h"
#include "registry/machine.h"
#include "tests/sim/agents_internal.h"

#define PATIENCE_US (1500 * MS) /* with a server that does not answer */
#define SILENCE_US  (1000 * MS) /* of the network, at most, until a lost connection is noticed */

enum step { STEP_ANSWERED = 1, STEP_GIVEN_UP };

static const char kind[] = "a9e00000";
void agent_lease_name(uint64_t op, char id[40]) { expiring_name(kind, op, id); }
uint64_t agent_lease_maker(const char *id) { return expiring_maker(kind, id); }

static void step_after(struct agent_call *call, enum step step, uint64_t us) {
    sim_schedule(call->all->sim, us, EVENT_AGENT, call->from, call->number << 2 | step, NULL);
}

static uint64_t latency(struct sim *sim) { return sim_random(sim, 200, 5 * MS); }

/* -- what a server is asked -------------------------------------------------------------------------------------------- */

struct own {
    struct agent_call *call;
};
static struct agent_call *call_of(const struct op *op) { return OP_AS(const struct own, op)->call; }

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    static const ProtobufCMessageDescriptor *const types[] = {
        [CATALOG_REGISTER] = &pb__register_command__descriptor,
        [CATALOG_DEREGISTER] = &pb__deregister_command__descriptor,
        [CATALOG_BATCH] = &pb__catalog_batch_command__descriptor,
        [LEASE_GRANT] = &pb__lease_grant_command__descriptor,
        [LEASE_END] = &pb__lease_end_command__descriptor,
    };
    struct agent_call *call = call_of(op);
    ProtobufCMessage *message = message_unpack(arena, types[call->command], buffer_slice(&call->request));
    CHECK(message);
    op_label(message, op->id, arena);
    *number = call->command;
    return message;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    struct agent_call *call = call_of(op);
    Pb__NodeRequest *asked = arena_alloc(arena, sizeof *asked);
    pb__node_request__init(asked);
    asked->node = call->all->agents[call->from].node;
    *type = call->query;
    return &asked->base;
}

static void append(struct buffer *buffer, const ProtobufCMessage *message) {
    struct arena arena = {0};
    struct slice bytes = message_pack(&arena, message);
    buffer_append(buffer, bytes.data, bytes.size);
    arena_free(&arena);
}

static void seen(struct op *op, const struct query_result *result) {
    struct agent_call *call = call_of(op);
    buffer_reset(&call->reply);
    call->found = result->found;
    if (result->message) append(&call->reply, result->message);
}

static const struct sim_module sim_agent = {.name = "agent",
                                            .module = &lease_module,
                                            .command = command,
                                            .request = request,
                                            .seen = seen,
                                            .expiry = &lease_expiry,
                                            .name_of = agent_lease_name};

/* -- the way there ------------------------------------------------------------------------------------------------------ */

/* It arrives after its sender gave it up; of one that is cut off, not before that is over. */
static void late(struct agent *agent, struct agent_call *call) {
    struct sim *sim = agent->all->sim;
    uint64_t cut_us = agent->cut_us > sim->now_us ? agent->cut_us - sim->now_us : 0;
    call->arrives = agent->all->plan.late_ms > 0;
    call->after_us = cut_us + sim_random(sim, 50 * MS, agent->all->plan.late_ms * MS + 50 * MS);
    uint64_t arrives_us = sim->now_us + call->after_us;
    if (call->arrives && arrives_us > agent->late_us) agent->late_us = arrives_us;
}

/* It is lost on the way, late, or answered in vain. call->error has what its sender learns. */
static void draw_fate(struct agent *agent, struct agent_call *call, bool poisoned) {
    struct sim *sim = agent->all->sim;
    bool cut = agent->cut_us > sim->now_us;
    call->arrives = true;
    call->error = CO_UNKNOWN_OUTCOME;
    call->after_us = latency(sim);
    call->gives_up_us = PATIENCE_US;
    if (call->kind == AGENT_CALL_OTHER) return;
    if (!cut && !poisoned && !sim_chance(sim, agent->all->plan.lost_permille)) return;
    call->lost = true;
    call->gives_up_us = sim_random(sim, 100 * MS, SILENCE_US);
    uint64_t way = poisoned ? 1 : sim_random(sim, 0, cut ? 2 : 3);
    if (way == 0) call->error = CO_NOLEADER;
    if (way < 2) call->arrives = false;
    if (way == 2) late(agent, call);
    agent->all->lost++;
    agent->server = agents_server(sim); /* it connects anew */
}

struct agent_call *agent_call_new(struct agent *agent, enum agent_call_kind of_kind, bool poisoned, uint64_t owner) {
    struct agents *all = agent->all;
    if (all->call_count == all->call_capacity) {
        all->call_capacity = all->call_capacity ? 2 * all->call_capacity : 256;
        all->calls = mem_realloc(all->calls, all->call_capacity * sizeof(struct agent_call *));
    }
    struct agent_call *call = all->calls[all->call_count++] = mem_zalloc(sizeof *call);
    call->all = all;
    call->kind = of_kind;
    call->from = agent->number, call->life = agent->life;
    call->number = all->call_count;
    struct sim *sim = all->sim;
    if (!sim->servers[agent->server]->up) agent->server = agents_server(sim);
    uint32_t server = agent->server;
    draw_fate(agent, call, poisoned);
    struct op op = {.module = &sim_agent,
                    .way = of_kind == AGENT_CALL_RENEW  ? OP_RENEW
                           : of_kind == AGENT_CALL_READ ? OP_READ
                                                        : OP_WRITE,
                    .owner = owner};
    OP_AS(struct own, &op)->call = call;
    call->op = op_new(sim, SIM_AGENT, server, &op);
    return call;
}

static void leave(struct agent_call *call) {
    struct sim *sim = call->all->sim;
    if (call->arrives) sim_schedule(sim, call->after_us, EVENT_REQUEST, op_get(sim, call->op)->server, call->op, NULL);
    step_after(call, STEP_GIVEN_UP, call->gives_up_us);
}

void agent_call_send(struct agent_call *call, uint8_t number, const ProtobufCMessage *message) {
    call->command = number;
    if (message) append(&call->request, message);
    leave(call);
}

void agent_call_query(struct agent_call *call, const struct query_type *query) {
    call->query = query;
    leave(call);
}

void agent_calls_free(struct agents *all) {
    for (size_t i = 0; i < all->call_count; i++) {
        buffer_free(&all->calls[i]->request);
        buffer_free(&all->calls[i]->reply);
        free(all->calls[i]);
    }
    free(all->calls);
}

struct agent *agent_of(const struct op *op) {
    const struct agent_call *call = call_of(op);
    return &call->all->agents[call->from];
}

/* -- and back ----------------------------------------------------------------------------------------------------------- */

void agents_result(struct op *op, const struct machine_result *result) {
    struct agent_call *call = call_of(op);
    snprintf(call->text, sizeof call->text, "%s", result->text ? result->text : "");
}

static int told(const struct op *op) {
    if (op->state == OP_DONE) return op->way == OP_RENEW ? op->error : CO_OK;
    return op->state == OP_REFUSED ? CO_NOLEADER : CO_UNKNOWN_OUTCOME;
}

void agents_heard(struct sim *sim, const struct op *op) {
    struct agent_call *call = call_of(op);
    if (call->over || call->lost || call->all->agents[call->from].cut_us > sim->now_us) return;
    call->error = told(op);
    call->refused = op->way == OP_WRITE && op->state == OP_DONE ? op->error : CO_OK;
    step_after(call, STEP_ANSWERED, latency(sim));
}

void agent_call_event(struct agents *all, uint64_t number) {
    struct agent_call *call = all->calls[(number >> 2) - 1];
    struct agent *from = &all->agents[call->from];
    if (call->over) return;
    if ((number & 3) == STEP_GIVEN_UP) {
        if (call->error != CO_NOLEADER || !call->lost) call->error = CO_UNKNOWN_OUTCOME;
        from->server = agents_server(all->sim);
    } else if (from->cut_us > all->sim->now_us) { /* the answer is lost, and it learns nothing */
        call->lost = true;
        return;
    }
    call->over = true;
    if (from->up && from->life == call->life) agent_answered(from, call);
}
