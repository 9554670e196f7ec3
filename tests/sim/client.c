/* Clients: each writes unique commands and reads, one at a time, through any server; and never sends the same
 * command twice. What they are told is what the checkers hold the cluster to. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "kv/kv.h"
#include "registry/machine.h"
#include "tests/sim/sim.h"

#define STORY UINT32_MAX

struct client {
    uint64_t op;    /* 0: thinking */
    uint32_t guess; /* the server that it takes for the leader */
    uint64_t think_us;
    bool stopped;
    uint32_t seen_key; /* what it read last */
    uint64_t seen_index;
    bool registered;
    uint64_t session; /* the op that made it; 0: none */
    bool lazy;        /* does not renew it */
    uint64_t renewed_us;
    uint32_t lock; /* a key that it holds; 0: none */
    bool raised;
    uint64_t lease; /* the op that made it; 0: none */
    bool lease_lazy;
    uint64_t lease_us; /* renewed */
    bool for_lease;    /* what it does next */
};

/* What an answer means to its client. */
static void client_learns(struct client *client, struct op *op) {
    bool yes = op->state == OP_DONE && op->yes && op->error == CO_OK;
    switch (op->kind) {
        case OP_GET:
        case OP_STALE:
        case OP_WATCH:
            if (op->state != OP_DONE) return;
            client->seen_key = op->key;
            client->seen_index = op->found || op->kind == OP_WATCH ? op->modify_index : 0;
            return;
        case OP_REGISTER:
            client->registered = client->registered || (op->state == OP_DONE && op->error == CO_OK);
            return;
        case OP_SESSION:
            if (yes) client->session = op->id, client->lock = 0, client->renewed_us = op->invoked_us;
            return;
        case OP_RENEW:
            if (op->session == client->lease) {
                if (yes) client->lease_us = op->invoked_us;
                if (op->state == OP_DONE && op->error == CO_NOTFOUND) client->lease = 0;
                return;
            }
            if (yes) client->renewed_us = op->invoked_us;
            if (op->state == OP_DONE && op->error == CO_NOTFOUND) client->session = 0;
            return;
        case OP_LOCK:
            if (yes) client->lock = op->key;
            if (op->state == OP_DONE && op->error != CO_OK) client->session = 0;
            return;
        case OP_UNLOCK:
            if (op->state == OP_DONE) client->lock = 0;
            return;
        case OP_RAISE: client->raised = client->raised || op->state == OP_DONE; return;
        case OP_GRANT:
            if (yes) client->lease = op->id, client->lease_us = op->invoked_us;
            return;
        case OP_LEASED:
            if (op->state == OP_DONE && op->error != CO_OK) client->lease = 0;
            return;
        default: return;
    }
}

/* -- operations -- */

struct op *op_get(struct sim *sim, uint64_t id) {
    CHECK(id >= 1 && id <= sim->op_count);
    return &sim->ops[id - 1];
}

uint64_t op_make(struct sim *sim, uint32_t client, uint32_t server, enum op_kind kind) {
    if (sim->op_count == sim->op_capacity) {
        sim->op_capacity = sim->op_capacity ? 2 * sim->op_capacity : 256;
        sim->ops = mem_realloc(sim->ops, sim->op_capacity * sizeof *sim->ops);
    }
    struct op *op = &sim->ops[sim->op_count++];
    *op = (struct op){.id = sim->op_count,
                      .kind = kind,
                      .read = kind >= OP_GET,
                      .client = client,
                      .server = server,
                      .key = (uint32_t)(sim->op_count % (SIM_KEYS - SIM_LOCKS)),
                      .invoked_us = sim->now_us,
                      .floor = sim->history->floor};
    return op->id;
}

void op_send(struct sim *sim, uint64_t id) {
    sim_schedule(sim, sim_random(sim, 50, 1 * MS), EVENT_REQUEST, op_get(sim, id)->server, id, NULL);
}

uint64_t op_write(struct sim *sim, uint32_t client, uint32_t server, size_t size) {
    uint64_t id = op_make(sim, client, server, OP_PUT);
    op_get(sim, id)->size = (uint32_t)size;
    op_send(sim, id);
    return id;
}

uint64_t op_read(struct sim *sim, uint32_t client, uint32_t server) {
    uint64_t id = op_make(sim, client, server, OP_GET);
    op_send(sim, id);
    return id;
}

void op_done(struct sim *sim, uint64_t id, enum op_state state, uint64_t index) {
    struct op *op = op_get(sim, id);
    if (op->state != OP_WAITING) return; /* its client has given up */
    op->state = state;
    op->done_us = sim->now_us;
    op->index = index;
    sim_mix(sim, id << 2 | state);
    if (state == OP_DONE) {
        if (op->kind == OP_RENEW) check_renewed(sim, op);
        else if (op->read) check_read(sim, op);
        else check_acked(sim, op);
    }
    if (op->client == STORY) return;
    struct client *client = &sim->clients[op->client];
    client_learns(client, op);
    if (state == OP_REFUSED) client->guess = (uint32_t)sim_random(sim, 0, sim->server_count - 1);
    client->op = 0;
    sim_schedule(sim, sim_random(sim, 1, 2 * client->think_us), EVENT_CLIENT, op->client, 0, NULL);
}

/* -- at the server -- */

void op_request(struct server *server, uint64_t id) {
    struct op *op = op_get(server->sim, id);
    if (op->state != OP_WAITING) return;
    if (!op->read) edge_write(server, id);
    else if (op->kind == OP_RENEW) edge_renew(server, id);
    else if (op->stale) op_read_now(server, id);
    else edge_read(server, id);
}

void op_look(struct server *server, struct op *op) {
    char key[16];
    command_key(op->key, key);
    Pb__KvRequest request = PB__KV_REQUEST__INIT;
    request.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
    struct arena arena = {0};
    struct query_result result = {0};
    CHECK(query_kv_get.run(store_read(server->machine.reader), &request.base, &arena, &result) == CO_OK);
    op->found = result.found;
    op->modify_index = result.index;
    op->writer = op->lock_index = op->holder = op->lease = 0;
    if (result.found) {
        const Pb__KvEntry *entry = (const Pb__KvEntry *)result.message;
        op->writer = entry->flags;
        op->lock_index = entry->lock_index;
        op->lease = entry->lease[0] ? command_lease_op(entry->lease) : 0;
        op->holder = entry->session && entry->session[0] ? command_session_op(entry->session) : 0;
    }
    store_read_done(server->machine.reader);
    arena_free(&arena);
}

void op_read_now(struct server *server, uint64_t id) {
    struct op *op = op_get(server->sim, id);
    if (op->kind == OP_WATCH) {
        watch_read(server, id);
        return;
    }
    if (op->state != OP_WAITING) return;
    op_look(server, op);
    op_done(server->sim, id, OP_DONE, server->machine.applied);
}

/* -- clients -- */

#define PATIENCE_US (1500 * MS)

void clients_start(struct sim *sim, uint32_t count, uint64_t think_us) {
    sim->clients = mem_zalloc(count * sizeof *sim->clients);
    sim->client_count = count;
    for (uint32_t i = 0; i < count; i++) {
        sim->clients[i].think_us = think_us;
        sim_schedule(sim, sim_random(sim, 1, 2 * think_us), EVENT_CLIENT, i, 0, NULL);
    }
}

void clients_stop(struct sim *sim) {
    for (uint32_t i = 0; i < sim->client_count; i++) sim->clients[i].stopped = true;
}

bool clients_idle(const struct sim *sim) {
    for (uint32_t i = 0; i < sim->client_count; i++)
        if (sim->clients[i].op != 0) return false;
    return true;
}

static size_t command_size(struct sim *sim) {
    if (sim_chance(sim, 30)) return sim_random(sim, 1000, 6000);
    return sim_random(sim, 8, 200);
}

static uint32_t pick(struct sim *sim, const uint32_t *values, size_t count) {
    return values[sim_random(sim, 0, count - 1)];
}

/* Its session: made, renewed in time (or not), used to lock. True: that is what it does next. */
static bool client_session(struct sim *sim, struct client *client, enum op_kind *kind) {
    uint64_t ttl_us = client->session ? op_get(sim, client->session)->ttl_ms * MS : 0;
    if (!client->session) {
        if (!sim_chance(sim, 150)) return false;
        *kind = client->registered ? OP_SESSION : OP_REGISTER;
        client->lazy = sim_chance(sim, 300);
        return true;
    }
    if (!client->lazy && sim->now_us - client->renewed_us > ttl_us / 3) {
        *kind = OP_RENEW;
        return true;
    }
    if (!client->lazy && sim_chance(sim, 5)) client->lazy = true;
    if (sim->now_us - client->renewed_us > 4 * ttl_us) client->session = 0; /* it has forgotten it */
    if (!client->session || !sim_chance(sim, 250)) return false;
    *kind = client->lock && sim_chance(sim, 600) ? OP_UNLOCK : OP_LOCK;
    return true;
}

/* Its lease likewise: granted, renewed in time (or not), bound to. */
static bool client_lease(struct sim *sim, struct client *client, enum op_kind *kind) {
    if (!client->lease) {
        if (!sim_chance(sim, 120)) return false;
        *kind = client->raised ? OP_GRANT : OP_RAISE;
        client->lease_lazy = sim_chance(sim, 300);
        return true;
    }
    uint64_t ttl_us = op_get(sim, client->lease)->ttl_ms * MS;
    if (!client->lease_lazy && sim->now_us - client->lease_us > ttl_us / 3) {
        *kind = OP_RENEW;
        return true;
    }
    if (!client->lease_lazy && sim_chance(sim, 5)) client->lease_lazy = true;
    if (sim->now_us - client->lease_us > 4 * ttl_us) client->lease = 0;
    if (!client->lease || !sim_chance(sim, 200)) return false;
    *kind = sim_chance(sim, 100) ? OP_GRANT : OP_LEASED; /* started again: another lease, perhaps of the same node */
    return true;
}

static enum op_kind client_chooses(struct sim *sim, struct client *client) {
    enum op_kind kind;
    client->for_lease = client_lease(sim, client, &kind);
    if (client->for_lease || client_session(sim, client, &kind)) return kind;
    uint64_t dice = sim_random(sim, 1, 1000);
    if (dice <= 230) return OP_GET;
    if (dice <= 280) return OP_STALE;
    if (dice <= 380) return client->seen_index ? OP_WATCH : OP_GET;
    if (dice <= 500) return OP_CAS;
    if (dice <= 550) return OP_DELETE;
    if (dice <= 560) return OP_REGISTER;
    return OP_PUT;
}

static void client_fills(struct sim *sim, const struct client *client, struct op *op) {
    static const uint32_t ttls[] = {200, 500, 1000, 2000}, delays[] = {0, 0, 100, 600};
    switch (op->kind) {
        case OP_PUT: op->size = (uint32_t)command_size(sim); break;
        case OP_STALE: op->stale = true; break;
        case OP_CAS:
            op->key = client->seen_key, op->cas = client->seen_index;
            op->size = 20;
            break;
        case OP_WATCH:
            op->key = client->seen_key, op->cas = client->seen_index;
            op->stale = sim_chance(sim, 500);
            op->wait_us = sim_random(sim, 50, 1000) * MS;
            break;
        case OP_SESSION:
            op->ttl_ms = pick(sim, ttls, 4), op->delay_ms = pick(sim, delays, 4);
            op->renewed_us = sim->now_us;
            break;
        case OP_LOCK:
            op->key = (uint32_t)sim_random(sim, SIM_KEYS - SIM_LOCKS, SIM_KEYS - 1);
            op->session = client->session;
            break;
        case OP_UNLOCK: op->key = client->lock, op->session = client->session; break;
        case OP_RENEW: op->session = client->for_lease ? client->lease : client->session; break;
        case OP_GRANT:
            op->ttl_ms = pick(sim, ttls, 4);
            op->renewed_us = sim->now_us;
            op->owner = op->client + 1;
            op->node = sim_chance(sim, 500) ? 1 + op->client % SIM_NODES : 0;
            break;
        case OP_LEASED: op->session = client->lease, op->size = 30; break;
        default: break;
    }
    /* A node each, so that a client finds the one that it has registered. */
    if (op->kind == OP_SESSION || op->kind == OP_REGISTER) op->key = op->client % 3;
}

bool leases_over(const struct sim *sim) {
    for (size_t i = 0; i < sim->op_count; i++)
        if (sim->ops[i].created_index && !sim->ops[i].ended_index) return false;
    for (uint32_t key = 0; key < SIM_KEYS; key++)
        if (sim->history->keys[key].delay_index) return false;
    for (uint32_t node = 1; node <= SIM_NODES; node++)
        if (sim->history->nodes[node].dead_index) return false;
    return true;
}

/* op 0: it has thought enough. Else: if that one is still not answered, it gives up on it. */
void client_wake(struct sim *sim, uint32_t id, uint64_t op) {
    struct client *client = &sim->clients[id];
    if (op != 0) {
        if (client->op == op) op_done(sim, op, OP_UNKNOWN, 0);
        return;
    }
    if (client->op != 0 || client->stopped) return;
    uint32_t server = sim_chance(sim, 250) ? (uint32_t)sim_random(sim, 0, sim->server_count - 1) : client->guess;
    client->op = op_make(sim, id, server, client_chooses(sim, client));
    client_fills(sim, client, op_get(sim, client->op));
    op_send(sim, client->op);
    sim_schedule(sim, PATIENCE_US, EVENT_CLIENT, id, client->op, NULL);
}
