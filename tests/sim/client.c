/* Clients of the simulated modules, and their operations. The module decides what a client does next
 * (tests/sim/module.h); this file decides when, through which server, and how long it waits. A client never sends the
 * same command twice. The checkers hold the cluster to the answers that clients got. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "tests/sim/agents.h"
#include "tests/sim/gateways.h"
#include "tests/sim/modules.h"

struct client {
    const struct sim_module *module;
    uint32_t number; /* among its module's clients */
    uint64_t stream; /* seed of its turns */
    uint64_t turn;   /* so many so far */
    unsigned open;   /* operations under way */
    uint32_t guess;  /* the server that it takes for the leader */
    uint64_t think_us;
    bool stopped;
    void *plan, *known;
};

uint64_t turn_random(struct sim_turn *turn, uint64_t least, uint64_t most) {
    return rng_between(&turn->rng, least, most);
}

bool turn_chance(struct sim_turn *turn, uint32_t permille) { return rng_below(&turn->rng, 1000) < permille; }

/* -- operations -- */

struct op *op_get(struct sim *sim, uint64_t id) {
    CHECK(id >= 1 && id <= sim->op_count);
    return &sim->ops[id - 1];
}

uint64_t op_new(struct sim *sim, uint32_t client, uint32_t server, const struct op *like) {
    if (sim->op_count == sim->op_capacity) {
        sim->op_capacity = sim->op_capacity ? 2 * sim->op_capacity : 256;
        sim->ops = mem_realloc(sim->ops, sim->op_capacity * sizeof *sim->ops);
    }
    struct op *op = &sim->ops[sim->op_count++];
    *op = *like;
    op->id = sim->op_count;
    op->client = client;
    op->server = server;
    op->invoked_us = op->renewed_us = sim->now_us;
    op->floor = sim->chronicle->floor;
    return op->id;
}

void op_send(struct sim *sim, uint64_t id) {
    sim_schedule(sim, sim_random(sim, 50, 1 * MS), EVENT_REQUEST, op_get(sim, id)->server, id, NULL);
}

void op_done(struct sim *sim, uint64_t id, enum op_state state, uint64_t index) {
    struct op *op = op_get(sim, id);
    if (op->state != OP_WAITING) return; /* its client has given up */
    op->state = state;
    op->done_us = sim->now_us;
    op->index = index;
    sim_mix(sim, id << 2 | state);
    if (state == OP_DONE) {
        if (op->way == OP_RENEW) check_renewed(sim, op);
        else if (op->way == OP_READ) check_read(sim, op);
        else check_acked(sim, op);
    }
    if (op->client == SIM_GATEWAY) gateways_heard(sim, op);
    if (op->client == SIM_AGENT) agents_heard(sim, op);
    if (op->client == SIM_STORY || op->client == SIM_GATEWAY || op->client == SIM_AGENT) return;
    struct client *client = &sim->clients[op->client];
    if (client->module->learn) client->module->learn(client->known, op);
    if (state == OP_REFUSED) client->guess = (uint32_t)sim_random(sim, 0, sim->server_count - 1);
    client->open--;
}

void renew_op(struct op *op, const struct sim_module *module) {
    op->module = module;
    op->way = OP_RENEW;
}

/* -- at the server -- */

void op_request(struct server *server, uint64_t id) {
    struct op *op = op_get(server->sim, id);
    if (op->state != OP_WAITING) return;
    if (op->way == OP_WRITE) edge_write(server, id);
    else if (op->way == OP_RENEW) edge_renew(server, id);
    else if (op->stale) op_read_now(server, id);
    else edge_read(server, id);
}

void op_read_now(struct server *server, uint64_t id) {
    struct op *op = op_get(server->sim, id);
    if (op->wait_us) {
        watch_read(server, id);
        return;
    }
    if (op->state != OP_WAITING) return;
    op_look(server, op);
    op_done(server->sim, id, OP_DONE, server->machine.applied);
}

/* -- clients -- */

#define PATIENCE_US (1500 * MS)

static void client_turn_after(struct sim *sim, uint32_t id, struct rng *rng) {
    sim_schedule(sim, rng_between(rng, 1, 2 * sim->clients[id].think_us), EVENT_CLIENT, id, 0, NULL);
}

static uint32_t count_clients(struct sim *sim, struct rng streams[], uint32_t counts[]) {
    uint32_t all = 0;
    for (size_t i = 0; sim_modules[i]; i++) {
        const struct sim_module *module = sim_modules[i];
        rng_seed(&streams[i], hash64_seed(module->name, strlen(module->name), sim->options.seed));
        bool off = module->pace.clients_most == 0 || (sim->options.modules_off & 1u << i);
        counts[i] = off ? 0 : (uint32_t)rng_between(&streams[i], module->pace.clients_least, module->pace.clients_most);
        all += counts[i];
    }
    return all;
}

void clients_start(struct sim *sim) {
    struct rng streams[SIM_MODULES_MAX];
    uint32_t counts[SIM_MODULES_MAX], next = 0;
    sim->client_count = count_clients(sim, streams, counts);
    sim->clients = mem_zalloc((sim->client_count + 1) * sizeof *sim->clients);
    for (size_t i = 0; sim_modules[i]; i++) {
        const struct sim_pace *pace = &sim_modules[i]->pace;
        uint64_t think_us = rng_between(&streams[i], pace->think_least_ms, pace->think_most_ms) * MS;
        for (uint32_t number = 0; number < counts[i]; number++) {
            sim->clients[next] = (struct client){.module = sim_modules[i],
                                                 .number = number,
                                                 .stream = rng_next(&streams[i]),
                                                 .think_us = think_us,
                                                 .plan = mem_zalloc(sim_modules[i]->plan_size + 1),
                                                 .known = mem_zalloc(sim_modules[i]->known_size + 1)};
            client_turn_after(sim, next++, &streams[i]);
        }
    }
}

void clients_stop(struct sim *sim) {
    for (uint32_t i = 0; i < sim->client_count; i++) sim->clients[i].stopped = true;
}

void clients_free(struct sim *sim) {
    for (uint32_t i = 0; i < sim->client_count; i++) free(sim->clients[i].plan), free(sim->clients[i].known);
    free(sim->clients);
}

bool clients_idle(const struct sim *sim) {
    for (uint32_t i = 0; i < sim->client_count; i++)
        if (sim->clients[i].open) return false;
    return true;
}

/* Adds the generated operation to the digest, before anything in it depends on answers. */
static void digest(struct sim *sim, const struct client *client, const struct op *op) {
    uint64_t *sum = &sim->digests[sim_module_number(client->module)];
    uint64_t what[] = {*sum,
                       client->number,
                       client->turn,
                       sim->now_us,
                       op != NULL,
                       op ? op->kind : 0,
                       op ? op->way : 0,
                       op ? op->ttl_ms : 0,
                       op ? op->wait_us : 0,
                       op && op->stale};
    *sum = hash64(what, sizeof what);
    if (!op) return;
    *sum = hash64_seed(op->own, sizeof op->own, *sum);
    if (op->way != OP_WRITE) return;
    struct raft_data *bytes = op_bytes(op);
    *sum = hash64_seed(bytes->bytes, bytes->size, *sum);
    raft_data_unref(bytes);
}

static void client_turn(struct sim *sim, uint32_t id) {
    struct client *client = &sim->clients[id];
    uint64_t seed[] = {client->stream, client->turn++};
    struct sim_turn turn = {.plan = client->plan, .client = client->number, .now_us = sim->now_us};
    rng_seed(&turn.rng, hash64(seed, sizeof seed));
    client_turn_after(sim, id, &turn.rng);
    struct op op = {0};
    bool acts = client->module->generate(&turn, &op);
    if (sim->options.digests) digest(sim, client, acts ? &op : NULL);
    if (!acts || client->open >= client->module->pace.open_most) return;
    uint32_t server = sim_chance(sim, 250) ? (uint32_t)sim_random(sim, 0, sim->server_count - 1) : client->guess;
    uint64_t made = op_new(sim, id, server, &op);
    if (client->module->complete && !client->module->complete(client->known, op_get(sim, made))) {
        sim->op_count--;
        return;
    }
    client->open++;
    op_send(sim, made);
    sim_schedule(sim, PATIENCE_US, EVENT_CLIENT, id, made, NULL);
}

/* op 0: its next turn. Else: if that one is still not answered, it gives up on it. */
void client_wake(struct sim *sim, uint32_t id, uint64_t op) {
    if (op != 0) op_done(sim, op, OP_UNKNOWN, 0);
    else if (!sim->clients[id].stopped) client_turn(sim, id);
}
