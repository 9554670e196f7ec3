/* Elections: campaigns with priorities, proclaimed values, resignations, observers. */
#include "kv/election/election.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/sim/queues.h"

static bool generate(struct sim_turn *turn, struct op *op) { return queue_generate(turn, op, &sim_election); }

static const ProtobufCMessage *campaign(const struct op *op, struct arena *arena) {
    const struct queue_own *own = OP_AS(const struct queue_own, op);
    Pb__ElectionCampaignCommand *command = arena_alloc(arena, sizeof *command);
    pb__election_campaign_command__init(command);
    command->name = queue_name(op, arena);
    command->priority = own->priority, command->enqueue = !own->asks;
    command->value = queue_note(op, arena);
    command->now_unix_ms = (int64_t)op->id;
    if (own->by_token) command->term = own->token;
    else command->session = queue_session_use(op, arena);
    return &command->base;
}

static const ProtobufCMessage *resign(const struct op *op, struct arena *arena) {
    Pb__ElectionResignCommand *command = arena_alloc(arena, sizeof *command);
    pb__election_resign_command__init(command);
    command->name = queue_name(op, arena);
    command->session = queue_session(op, arena);
    command->term = OP_AS(const struct queue_own, op)->token;
    command->now_unix_ms = (int64_t)op->id;
    return &command->base;
}

static const ProtobufCMessage *proclaim(const struct op *op, struct arena *arena) {
    Pb__ElectionProclaimCommand *command = arena_alloc(arena, sizeof *command);
    pb__election_proclaim_command__init(command);
    command->name = queue_name(op, arena);
    command->term = OP_AS(const struct queue_own, op)->token;
    command->value = queue_note(op, arena);
    return &command->base;
}

static const ProtobufCMessage *command(const struct op *op, struct arena *arena, uint8_t *number) {
    *number = op->kind == QUEUE_ACQUIRE   ? ELECTION_CAMPAIGN
              : op->kind == QUEUE_RELEASE ? ELECTION_RESIGN
                                          : ELECTION_PROCLAIM;
    return op->kind == QUEUE_ACQUIRE   ? campaign(op, arena)
           : op->kind == QUEUE_RELEASE ? resign(op, arena)
                                       : proclaim(op, arena);
}

static uint64_t made_by(uint8_t number, const ProtobufCMessage *command) {
    char text[24] = "";
    if (number == ELECTION_CAMPAIGN) return (uint64_t)((const Pb__ElectionCampaignCommand *)command)->now_unix_ms;
    if (number == ELECTION_RESIGN) return (uint64_t)((const Pb__ElectionResignCommand *)command)->now_unix_ms;
    if (number != ELECTION_PROCLAIM) return 0;
    const ProtobufCBinaryData *value = &((const Pb__ElectionProclaimCommand *)command)->value;
    if (value->len < sizeof text) memcpy(text, value->data, value->len);
    return strtoull(text, NULL, 10);
}

static const ProtobufCMessage *request(const struct op *op, struct arena *arena, const struct query_type **type) {
    *type = op->kind == QUEUE_ENTRY  ? &query_election_entry
            : op->kind == QUEUE_VIEW ? &query_election
                                     : &query_election_leader;
    return queue_request(op, arena);
}

static struct sim_expected apply(struct sim *sim, const struct sim_applied *applied) {
    if (applied->number != ELECTION_DELAY_OVER) return queue_apply(sim, applied);
    const Pb__ElectionDelayOverCommand *command = (const Pb__ElectionDelayOverCommand *)applied->command;
    return queue_delay_over_applied(sim, applied, &sim_election, command->name, command->index);
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
                                        .made_by = made_by,
                                        .request = request,
                                        .apply = apply,
                                        .on_notice = on_notice,
                                        .over = over,
                                        .check_end = judge_end,
                                        .end = end};
