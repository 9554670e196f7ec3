/* Locks: exclusive, shared, and one with a limit. */
#include "kv/lock/lock.h"

#include "tests/sim/queues.h"

static bool generate(struct sim_turn *turn, struct op *op) { return queue_generate(turn, op, &sim_lock); }

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    *number = op->kind == QUEUE_ACQUIRE ? LOCK_ACQUIRE : LOCK_RELEASE;
    return queue_command(op, arena);
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    *type = op->kind == QUEUE_ENTRY ? &query_lock_entry : &query_lock;
    return queue_request(op, arena);
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    return queue_apply(sim, applied, &sim_lock);
}
static void on_notice(struct sim *sim, const struct sim_notice *notice) { queue_on_notice(sim, notice, &sim_lock); }
static bool over(struct sim *sim) { return queue_over(sim, &sim_lock); }
static void judge_end(struct sim *sim, struct server *server) { queue_check_end(sim, server, &sim_lock); }
static void end(struct sim *sim) { queue_end(sim, &sim_lock); }

const struct sim_module sim_lock = {.name = "lock",
                                    .module = &lock_module,
                                    SIM_QUEUE_MODULE,
                                    .generate = generate,
                                    .command = command,
                                    .request = request,
                                    .apply = apply,
                                    .on_notice = on_notice,
                                    .over = over,
                                    .check_end = judge_end,
                                    .end = end};
