/* Shared by the files of agents (tests/sim/agents.h).
 *
 *     agents.c        their life, and what their code wants done
 *     agents_calls.c  what is under way between one and a server
 *     agents_judge.c  what must hold */
#ifndef COORD_TESTS_SIM_AGENTS_INTERNAL_H
#define COORD_TESTS_SIM_AGENTS_INTERNAL_H

#include "tests/sim/agents.h"

enum agent_call_kind { AGENT_CALL_LEASE, AGENT_CALL_RENEW, AGENT_CALL_WRITE, AGENT_CALL_READ, AGENT_CALL_OTHER };
struct agent_call {
    struct agents *all;
    enum agent_call_kind kind;
    unsigned from, life;
    uint64_t number; /* of the call, from 1 */
    uint64_t op;
    uint8_t command;
    bool lost, over, arrives, found; /* lost: no answer is heard */
    uint64_t after_us, gives_up_us;
    const struct query_type *query;
    struct buffer request, reply;
    int error, refused;
    char text[200];
};

/* A new call, its fate drawn; its operation is there already, so that a lease can be named after it. `owner`: of a
 * renewal. Then it is sent. poisoned: it loses its connection. */
struct agent_call *agent_call_new(struct agent *agent, enum agent_call_kind kind, bool poisoned, uint64_t owner);
void agent_call_send(struct agent_call *call, uint8_t command, const ProtobufCMessage *message);
void agent_call_query(struct agent_call *call, const struct query_type *query);
void agent_call_event(struct agents *all, uint64_t number); /* as agents_event's */
void agent_calls_free(struct agents *all);

void agent_lease_name(uint64_t op, char id[40]);
uint64_t agent_lease_maker(const char *id); /* the operation; 0: not one of theirs */

/* agents.c: it is answered, or given up. */
void agent_answered(struct agent *agent, struct agent_call *call);
struct agent *agent_of(const struct op *op); /* whose it is */
extern const char *const agent_service_ids[AGENT_SERVICES];
unsigned agent_port(const struct agent *agent, unsigned service);
uint64_t agent_now_ms(const struct agent *agent);
bool agent_reached(const struct agent *agent); /* up, not paused, not cut off */
void agent_troubled(struct agent *agent, uint64_t until_us);

/* agents_judge.c */
void agents_judge(struct agents *all);
uint32_t agents_server(struct sim *sim);          /* that an agent connects to: one that is well, if there is one */
void agent_judge_left(const struct agent *agent); /* it says that it has left in order */
bool agent_holds(const struct agent *agent);      /* the lease of its name stands, and is its */

#endif
