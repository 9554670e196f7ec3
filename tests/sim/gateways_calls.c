/* Calls of gateways. One to a server is an operation of the simulator, so that what holds of any client's holds of it. One to
 * another gateway goes over the servers that the two are connected to. */
#include "tests/sim/gateways_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/message.h"
#include "registry/catalog.h"
#include "registry/machine.h"

enum step { STEP_ARRIVES = 1, STEP_ANSWERED, STEP_GIVEN_UP };

static void step_after(struct gateway_call *call, enum step step, uint64_t us) {
    unsigned where = step == STEP_ARRIVES ? call->to : call->from;
    sim_schedule(call->all->sim, us, EVENT_GATEWAY, where, call->number << 2 | step, NULL);
}

static uint64_t latency(struct sim *sim) { return sim_random(sim, 200, 5 * MS); }

static struct gateway_call *call_new(struct gateway *gateway, enum gateway_call_kind kind) {
    struct gateways *all = gateway->all;
    if (all->call_count == all->call_capacity) {
        all->call_capacity = all->call_capacity ? 2 * all->call_capacity : 256;
        all->calls = mem_realloc(all->calls, all->call_capacity * sizeof(struct gateway_call *));
    }
    struct gateway_call *call = all->calls[all->call_count++] = mem_zalloc(sizeof *call);
    call->all = all;
    call->kind = kind;
    call->from = gateway->number, call->life = gateway->life;
    call->number = all->call_count;
    return call;
}

void gateway_calls_free(struct gateways *all) {
    for (size_t i = 0; i < all->call_count; i++) {
        buffer_free(&all->calls[i]->request);
        buffer_free(&all->calls[i]->reply);
        free(all->calls[i]);
    }
    free(all->calls);
}

/* -- to servers ---------------------------------------------------------------------------------------------------------- */

struct own {
    struct gateway_call *call;
};
static struct gateway_call *call_of(const struct op *op) { return OP_AS(const struct own, op)->call; }

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    struct gateway_call *call = call_of(op);
    bool node = call->command == CATALOG_REGISTER;
    const ProtobufCMessageDescriptor *type = node                         ? &pb__register_command__descriptor
                                             : call->command == QUOTA_PUT ? &pb__quota_put_command__descriptor
                                                                          : &pb__quota_ask_command__descriptor;
    ProtobufCMessage *message = message_unpack(arena, type, buffer_slice(&call->request));
    CHECK(message);
    if (node) ((Pb__RegisterCommand *)message)->service->port = (uint32_t)op->id; /* whose it is (module_catalog.c) */
    else op_label(message, op->id, arena);
    *number = call->command;
    return message;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    Pb__QuotaNoticeRequest *follow = arena_alloc(arena, sizeof *follow);
    pb__quota_notice_request__init(follow);
    follow->name = call_of(op)->all->definition.name;
    *type = &query_quota_notice;
    return &follow->base;
}

static void append(struct buffer *buffer, const ProtobufCMessage *message) {
    struct arena arena = {0};
    struct slice bytes = message_pack(&arena, message);
    buffer_append(buffer, bytes.data, bytes.size);
    arena_free(&arena);
}

static void seen(struct op *op, const struct query_result *result) {
    struct gateway_call *call = call_of(op);
    buffer_reset(&call->reply);
    call->found = result->found;
    call->index = result->index;
    if (result->found) append(&call->reply, result->message);
}

static const struct sim_module sim_gateway = {
    .name = "gateway", .module = &quota_module, .command = command, .request = request, .seen = seen};

/* The call is lost on the way, late, or answered in vain. call->error has what its sender learns. */
static uint64_t misfortune(struct gateway *gateway, struct gateway_call *call, uint64_t *after_us) {
    struct sim *sim = gateway->all->sim;
    bool cut = gateway->cut_us > sim->now_us;
    call->error = CO_UNKNOWN_OUTCOME;
    *after_us = latency(sim);
    if (call->kind == CALL_COMMAND) return 0; /* may be another one's */
    if (!cut && !sim_chance(sim, gateway->all->plan.lost_permille)) return 0;
    call->deaf = true;
    uint64_t gives_up_us = sim_random(sim, 200, 3000) * MS;
    gateway_troubled(gateway, sim->now_us + gives_up_us);
    switch (sim_random(sim, 0, cut ? 2 : 3)) {
        case 0:
            call->error = CO_NOLEADER;
            *after_us = NEVER;
            break;
        case 1: *after_us = NEVER; break;
        case 2: *after_us = sim_random(sim, 100, 5000) * MS; break;
        default: break;
    }
    return gives_up_us;
}

void call_server(struct gateway *gateway, enum gateway_call_kind kind, uint8_t command_number,
                 const ProtobufCMessage *message, uint64_t index) {
    struct gateways *all = gateway->all;
    struct gateway_call *call = call_new(gateway, kind);
    uint64_t after_us, gives_up_us = misfortune(gateway, call, &after_us);
    struct op op = {.module = &sim_gateway, .way = kind == CALL_FOLLOW ? OP_READ : OP_WRITE};
    OP_AS(struct own, &op)->call = call;
    call->command = command_number;
    if (message) append(&call->request, message);
    if (kind == CALL_FOLLOW && index) op.known_index = index, op.wait_us = 3000 * MS;
    if (after_us != NEVER) {
        uint64_t id = op_new(all->sim, SIM_GATEWAY, gateway->server, &op);
        sim_schedule(all->sim, after_us, EVENT_REQUEST, gateway->server, id, NULL);
    }
    step_after(call, STEP_GIVEN_UP, gives_up_us ? gives_up_us : op.wait_us + 3000 * MS);
}

void gateways_result(struct op *op, const struct machine_result *result) {
    struct gateway_call *call = call_of(op);
    buffer_reset(&call->reply);
    buffer_append(&call->reply, result->record.data, result->record.size);
}

void gateways_heard(struct sim *sim, const struct op *op) {
    struct gateway_call *call = call_of(op);
    struct gateway *gateway = &call->all->gateways[call->from];
    bool late = call->over && call->command == CATALOG_REGISTER && op->state == OP_DONE;
    if (late && !call->all->stopped) gateway_registered(gateway, CO_CONFLICT); /* it may have undone a newer one */
    if (call->over || call->deaf || (gateway->cut_us > sim->now_us && call->kind != CALL_COMMAND)) return;
    call->error = op->state == OP_DONE ? op->error : op->state == OP_REFUSED ? CO_NOLEADER : CO_UNKNOWN_OUTCOME;
    step_after(call, STEP_ANSWERED, latency(sim));
}

/* -- to gateways --------------------------------------------------------------------------------------------------------- */

static bool stands(const struct sim *sim, uint32_t server) {
    return sim->servers[server]->up && sim->servers[server]->paused_until_us <= sim->now_us;
}

static bool reach(const struct gateway *from, const struct gateway *to) {
    const struct sim *sim = from->all->sim;
    return to->up && from->cut_us <= sim->now_us && to->cut_us <= sim->now_us && stands(sim, from->server) &&
           stands(sim, to->server) && !sim->cut[from->server][to->server] && !sim->cut[to->server][from->server];
}

uint64_t call_gateway(struct gateway *gateway, enum gateway_call_kind kind, const char *node,
                      struct slice request_bytes, uint64_t message) {
    struct gateways *all = gateway->all;
    struct sim *sim = all->sim;
    struct gateway_call *call = call_new(gateway, kind);
    uint64_t after_us = latency(sim), gives_up_us = OWNER_MESSAGE_MS * MS;
    while (call->to < all->plan.gateways && strcmp(all->gateways[call->to].node, node) != 0) call->to++;
    CHECK(call->to < all->plan.gateways && call->to != gateway->number);
    call->message = message;
    call->error = OWNER_MAYBE_DELIVERED;
    buffer_append(&call->request, request_bytes.data, request_bytes.size);
    if (!reach(gateway, &all->gateways[call->to])) {
        after_us = NEVER;
        if (sim_chance(sim, 500)) call->error = OWNER_NOT_DELIVERED, gives_up_us = latency(sim);
    } else if (sim_chance(sim, all->plan.lost_permille)) {
        call->deaf = sim_chance(sim, 600);
        if (sim_chance(sim, 500)) after_us = sim_chance(sim, 500) ? NEVER : sim_random(sim, 100, 1500) * MS;
    }
    if (call->deaf || after_us > gives_up_us) gateway_troubled(gateway, sim->now_us + gives_up_us);
    if (after_us != NEVER) step_after(call, STEP_ARRIVES, after_us);
    step_after(call, STEP_GIVEN_UP, gives_up_us);
    return call->number;
}

static void arrives(struct gateway_call *call) {
    struct gateway *from = &call->all->gateways[call->from], *to = &call->all->gateways[call->to];
    if (!reach(from, to)) return;
    gateway_serves(to, call);
    if (!call->deaf && !call->over) step_after(call, STEP_ANSWERED, latency(call->all->sim));
}

/* -- steps --------------------------------------------------------------------------------------------------------------- */

void call_event(struct gateways *all, uint64_t number) {
    struct gateway_call *call = all->calls[(number >> 2) - 1];
    struct gateway *from = &all->gateways[call->from];
    enum step step = (enum step)(number & 3);
    if (step == STEP_ARRIVES) {
        arrives(call);
        return;
    }
    if (call->over) return;
    bool heard = step == STEP_GIVEN_UP || call->kind == CALL_COMMAND || from->cut_us <= all->sim->now_us;
    if (!heard) { /* the answer is lost, and it learns nothing */
        if (call->kind < CALL_TAKE) call->error = CO_UNKNOWN_OUTCOME;
        return;
    }
    call->over = true;
    if (step == STEP_GIVEN_UP && call->kind < CALL_TAKE && call->error != CO_NOLEADER) call->error = CO_UNKNOWN_OUTCOME;
    if (call->kind == CALL_COMMAND && call->command == CATALOG_REGISTER) gateway_registered(from, call->error);
    else if (from->up && from->life == call->life) gateway_answered(from, call, step == STEP_GIVEN_UP);
}
