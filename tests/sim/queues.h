/* Shared by the simulated modules of queues (kv/lock/lock_queue.h): locks and elections. Clients hold sessions, or have
 * one made with their wish, and campaign, wait, resign, or are not heard of any more. */
#ifndef COORD_TESTS_SIM_QUEUES_H
#define COORD_TESTS_SIM_QUEUES_H

#include "kv/lock/lock_queue.h"
#include "tests/lib/queue_model.h"
#include "tests/sim/modules.h"

/* The own part of an operation. */
struct queue_own {
    struct session_wish session; /* of the one that an acquire makes */
    uint8_t queue, limit;
    bool by_token, shared, asks;
    bool broken;       /* what a read saw contradicts itself */
    uint32_t priority; /* of an acquire; what an entry read saw: */
    uint32_t position, waiters;
    uint64_t token; /* to release by, or of a term; as an entry read saw it */
    uint64_t sum;   /* of all that a view showed */
};

struct queue_version { /* from `index` on */
    uint64_t index;
    struct model_queue queue;
};
struct queue_history {
    struct queue_version *versions;
    size_t count, capacity;
};
struct queue_delay {
    uint64_t index, began_us, ms;
};
struct queues_model {
    struct model_queue queues[SIM_QUEUES];
    struct queue_history histories[SIM_QUEUES];
    struct queue_delay delays[SIM_QUEUES][MODEL_DELAYS];
};
struct queue_plan {
    unsigned registered; /* times */
    struct keep_plan keep;
    uint32_t queue;  /* that it is mostly after */
    uint32_t wished; /* bits: of queues */
    bool shared;
    uint32_t priority;
};
struct queue_known {
    struct keep_known keep;
    uint64_t token[SIM_QUEUES];
    uint64_t seen[QUEUE_LEADER - QUEUE_ENTRY + 1][SIM_QUEUES]; /* indexes, by kind of read, as they were read last */
};

/* The members that sim_modules of queues have in common; name, module, command and request are their own. */
#define SIM_QUEUE_MODULE                                                                                             \
    .pace = {.clients_least = 2, .clients_most = 5, .think_least_ms = 5, .think_most_ms = 50, .open_most = 3},       \
    .plan_size = sizeof(struct queue_plan), .known_size = sizeof(struct queue_known),                                \
    .model_size = sizeof(struct queues_model), .complete = queue_complete, .learn = queue_learn, .seen = queue_seen, \
    .check_read = queue_check_read, .made_by = queue_made_by, .over_ms = 600

bool queue_generate(struct sim_turn *turn, struct op *op, const struct sim_module *module);
bool queue_complete(void *known, struct op *op);
void queue_learn(void *known, const struct op *op);
void queue_seen(struct op *op, const struct query_result *result);
void queue_check_read(struct sim *sim, const struct op *op);
struct sim_expected queue_apply(struct sim *sim, const struct sim_applied *applied, const struct sim_module *module);
void queue_on_notice(struct sim *sim, const struct sim_notice *notice, const struct sim_module *module);
bool queue_over(struct sim *sim, const struct sim_module *module);
void queue_check_end(struct sim *sim, struct server *server, const struct sim_module *module);
void queue_end(struct sim *sim, const struct sim_module *module);

/* As sim_module.command, made_by and request. The time that a command carries is the operation's number; so is the note. */
const ProtobufCMessage *queue_command(const struct op *op, struct arena *arena);
uint64_t queue_made_by(uint8_t number, const ProtobufCMessage *command);
const ProtobufCMessage *queue_request(const struct op *op, struct arena *arena);

#endif
