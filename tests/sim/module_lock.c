/* Locks: exclusive, shared, and one with a limit. */
#include "kv/lock/lock.h"

#include "base/memory.h"
#include "tests/sim/queues.h"

static bool generate(struct sim_turn *turn, struct op *op) { return queue_generate(turn, op, &sim_lock); }

static const ProtobufCMessage *acquire(const struct op *op, struct arena *arena) {
    const struct queue_own *own = OP_AS(const struct queue_own, op);
    Pb__LockAcquireCommand *command = arena_alloc(arena, sizeof *command);
    pb__lock_acquire_command__init(command);
    command->name = queue_name(op, arena);
    command->mode = own->shared ? PB__QUEUE_MODE__QUEUE_SHARED : PB__QUEUE_MODE__QUEUE_EXCLUSIVE;
    command->limit = own->limit, command->enqueue = !own->asks;
    command->note = queue_note(op, arena);
    command->now_unix_ms = (int64_t)op->id;
    if (own->by_token) command->token = own->token;
    else command->session = queue_session_use(op, arena);
    return &command->base;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    *number = op->kind == QUEUE_ACQUIRE ? LOCK_ACQUIRE : LOCK_RELEASE;
    if (op->kind == QUEUE_ACQUIRE) return acquire(op, arena);
    Pb__LockReleaseCommand *command = arena_alloc(arena, sizeof *command);
    pb__lock_release_command__init(command);
    command->name = queue_name(op, arena);
    command->session = queue_session(op, arena);
    command->token = OP_AS(const struct queue_own, op)->token;
    command->now_unix_ms = (int64_t)op->id;
    return &command->base;
}

static uint64_t made_by(uint8_t number, const ProtobufCMessage *command) {
    if (number == LOCK_ACQUIRE) return (uint64_t)((const Pb__LockAcquireCommand *)command)->now_unix_ms;
    return number == LOCK_RELEASE ? (uint64_t)((const Pb__LockReleaseCommand *)command)->now_unix_ms : 0;
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    *type = op->kind == QUEUE_ENTRY ? &query_lock_entry : &query_lock;
    return queue_request(op, arena);
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    if (applied->number != LOCK_DELAY_OVER) return queue_apply(sim, applied);
    const Pb__LockDelayOverCommand *command = (const Pb__LockDelayOverCommand *)applied->command;
    return queue_delay_over_applied(sim, applied, &sim_lock, command->name, command->index);
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
                                    .made_by = made_by,
                                    .request = request,
                                    .apply = apply,
                                    .on_notice = on_notice,
                                    .over = over,
                                    .check_end = judge_end,
                                    .end = end};
