/* Sessions: their clients make one, renew it or not, and lock keys with it. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kv/session/session.h"
#include "tests/sim/modules.h"

static const char kind[] = "5e550000";

void session_name(uint64_t op, char id[40]) { expiring_name(kind, op, id); }

uint64_t session_maker(const char *id) { return expiring_maker(kind, id); }

bool session_makes(const struct op *op) {
    return (op->module == &sim_session && op->way == OP_WRITE) || queue_makes_session(op);
}

uint64_t session_delay_ms(const struct op *op) { return OP_AS(const struct session_wish, op)->delay_ms; }

void session_op(struct op *op, uint32_t node, uint64_t ttl_ms, uint64_t delay_ms) {
    op->module = &sim_session;
    op->ttl_ms = ttl_ms;
    *OP_AS(struct session_wish, op) = (struct session_wish){node, delay_ms};
}

/* -- clients ---------------------------------------------------------------------------------------------------------- */

struct plan {
    unsigned registered; /* times */
    struct keep_plan keep;
    uint32_t lock; /* a key that it may hold; 0: none */
};

static bool lock_next(struct sim_turn *turn, struct op *op) {
    struct plan *plan = turn->plan;
    if (plan->lock && turn_chance(turn, 600)) {
        kv_op(op, KV_UNLOCK, plan->lock, 0);
        plan->lock = 0;
    } else {
        plan->lock = (uint32_t)turn_random(turn, SIM_KEYS - SIM_LOCKS, SIM_KEYS - 1);
        kv_op(op, KV_LOCK, plan->lock, 0);
    }
    return true;
}

static bool generate(struct sim_turn *turn, struct op *op) {
    static const uint32_t delays_ms[] = {0, 0, 100, 600};
    struct plan *plan = turn->plan;
    uint32_t node = 1 + turn->client % SIM_NODES;
    if (catalog_next(turn, &plan->registered, op)) return true;
    switch (keep_step(turn, &plan->keep, 150, 250)) {
        case KEEP_MAKE:
            plan->lock = 0;
            session_op(op, node_spelled(turn, node), plan->keep.ttl_ms, delays_ms[turn_random(turn, 0, 3)]);
            return true;
        case KEEP_RENEW: renew_op(op, &sim_session); return true;
        case KEEP_USE: return lock_next(turn, op);
        case KEEP_NOTHING: break;
    }
    return false;
}

static bool complete(void *known, struct op *op) { return op->module == &sim_catalog || keep_complete(known, op); }

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    const struct session_wish *own = OP_AS(const struct session_wish, op);
    Pb__SessionCreateCommand *command = arena_alloc(arena, sizeof *command);
    Pb__Session *session = arena_alloc(arena, sizeof *session);
    pb__session_create_command__init(command);
    pb__session__init(session);
    session_name(op->id, session->id = arena_alloc(arena, 40));
    node_name(own->node, session->node = arena_alloc(arena, 8));
    session->ttl_ns = (int64_t)op->ttl_ms * 1000000;
    session->lock_delay_ns = (int64_t)own->delay_ms * 1000000;
    command->session = session;
    *number = SESSION_CREATE;
    return &command->base;
}

static uint64_t made_by(uint8_t number, const ProtobufCMessage *command) {
    if (number != SESSION_CREATE) return 0;
    const Pb__Session *session = ((const Pb__SessionCreateCommand *)command)->session;
    return session ? session_maker(session->id) : 0;
}

/* -- the model -------------------------------------------------------------------------------------------------------- */

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    if (applied->op) {
        if (!catalog_registered(sim, OP_AS(struct session_wish, applied->op)->node)) return expect_error();
        expiring_began(applied->op, applied->index);
        return expect_yes();
    }
    if (applied->number == SESSION_DESTROY && applied->result->yes) {
        uint64_t made = session_maker(((const Pb__SessionDestroyCommand *)applied->command)->id);
        if (expiring_alive(sim, made)) expiring_ended(sim, op_get(sim, made), applied->index, false);
    }
    return expect_any(applied);
}

static void on_notice(struct sim *sim, const struct sim_notice *notice) {
    if (notice->type != SIM_NODE_REMOVED) return;
    for (size_t i = 0; i < sim->op_count; i++) {
        struct op *op = &sim->ops[i];
        if (session_makes(op) && expiring_alive(sim, op->id) &&
            node_same(OP_AS(struct session_wish, op)->node, notice->node))
            expiring_ended(sim, op, notice->index, true);
    }
}

static void sessions_seen(void *data, const struct query_result *result) {
    struct sim *sim = data;
    const Pb__SessionsResult *all = (const Pb__SessionsResult *)result->message;
    bool known = true;
    for (size_t i = 0; i < all->n_sessions; i++)
        known = known && expiring_alive(sim, session_maker(all->sessions[i]->id));
    expiring_judge(sim, &sim_session, session_makes, all->n_sessions, known);
}

static void judge_end(struct sim *sim, struct server *server) {
    Pb__SessionListRequest request = PB__SESSION_LIST_REQUEST__INIT;
    sim_query(server, &query_sessions, &request.base, sessions_seen, sim);
}

const struct sim_module sim_session = {
    .name = "session",
    .module = &session_module,
    .pace = {.clients_least = 1, .clients_most = 2, .think_least_ms = 10, .think_most_ms = 80, .open_most = 4},
    .plan_size = sizeof(struct plan),
    .known_size = sizeof(struct keep_known),
    .generate = generate,
    .complete = complete,
    .learn = keep_learn,
    .command = command,
    .made_by = made_by,
    .apply = apply,
    .on_notice = on_notice,
    .expiry = &session_expiry,
    .name_of = session_name,
    .check_end = judge_end,
};
