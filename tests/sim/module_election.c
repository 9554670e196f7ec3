/* Elections: campaigns with priorities, proclaimed values, resignations, observers. */
#include "kv/election/election.h"

#include "tests/sim/queues.h"

static bool generate(struct sim_turn *turn, struct op *op) { return queue_generate(turn, op, &sim_election); }

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    *number = op->kind == QUEUE_ACQUIRE   ? ELECTION_CAMPAIGN
              : op->kind == QUEUE_RELEASE ? ELECTION_RESIGN
                                          : ELECTION_PROCLAIM;
    return queue_command(op, arena);
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    *type = op->kind == QUEUE_ENTRY  ? &query_election_entry
            : op->kind == QUEUE_VIEW ? &query_election
                                     : &query_election_leader;
    return queue_request(op, arena);
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    return queue_apply(sim, applied, &sim_election);
}
static void on_notice(struct sim *sim, const struct sim_notice *notice) { queue_on_notice(sim, notice, &sim_election); }
static bool over(struct sim *sim) { return queue_over(sim, &sim_election); }
static void judge_end(struct sim *sim, struct server *server) { queue_check_end(sim, server, &sim_election); }
static void end(struct sim *sim) { queue_end(sim, &sim_election); }

const struct sim_module sim_election = {.name = "election",
                                        .module = &election_module,
                                        SIM_QUEUE_MODULE,
                                        .generate = generate,
                                        .command = command,
                                        .request = request,
                                        .apply = apply,
                                        .on_notice = on_notice,
                                        .over = over,
                                        .check_end = judge_end,
                                        .end = end};
