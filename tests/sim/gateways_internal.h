/* Shared by the files of gateways (tests/sim/gateways.h).
 *
 *     gateways.c         their life, and what their code wants done
 *     gateways_takes.c   what is taken from them
 *     gateways_clients.c clients that obey
 *     gateways_calls.c   what is under way between one and a server, or another one
 *     gateways_judge.c   what must hold */
#ifndef COORD_TESTS_SIM_GATEWAYS_INTERNAL_H
#define COORD_TESTS_SIM_GATEWAYS_INTERNAL_H

#include "tests/sim/gateways.h"

enum gateway_call_kind { CALL_COMMAND, CALL_ASK, CALL_FOLLOW, CALL_TAKE, CALL_MESSAGE };
struct gateway_call {
    struct gateways *all;
    enum gateway_call_kind kind;
    unsigned from, life, to; /* to: a gateway, of the last two kinds */
    uint64_t number;         /* of the call, from 1 */
    uint64_t message;        /* its id at the owner's code */
    uint8_t command;
    struct buffer request, reply;
    bool deaf, over, found; /* deaf: no answer is heard */
    uint64_t index;
    int error; /* of one that is given up: what its sender learns; an enum owner_reach of the last two kinds */
};

/* To the server that it is connected to. CALL_FOLLOW: of a notice that is newer than `index`. */
void call_server(struct gateway *gateway, enum gateway_call_kind kind, uint8_t command, const ProtobufCMessage *message,
                 uint64_t index);
/* To another gateway; its number. */
uint64_t call_gateway(struct gateway *gateway, enum gateway_call_kind kind, const char *node, struct slice request,
                      uint64_t message);
void call_event(struct gateways *all, uint64_t number); /* as gateways_event's */
void gateway_calls_free(struct gateways *all);

/* gateways.c: it is answered, or given up. */
void gateway_answered(struct gateway *gateway, struct gateway_call *call, bool given_up);
void gateway_registered(struct gateway *gateway, int error);
void gateway_serves(struct gateway *gateway, struct gateway_call *call); /* it has arrived there */

/* -- gateways.c, gateways_judge.c -- */
struct owner_now gateway_now(const struct gateway *gateway);
bool gateway_reached(const struct gateway *gateway); /* up, not paused, not cut off */
void gateway_troubled(struct gateway *gateway, uint64_t until_us);
void gateways_trouble(struct gateways *all); /* notes it when something is wrong with the servers now */
/* The checks: gateways_judge.c */
void judge_admitted(struct gateway *gateway, uint64_t n, enum spender_source source);
void judge_lease(struct gateway *gateway, uint64_t lease); /* that it has spent of */
void judge_refused(struct gateway *gateway);
void judge_counted(struct gateway *owner, struct gateway_key *key, uint64_t n);
void judge_undecided(struct gateways *all, struct gateway_key *key);
void judge_beside(struct gateways *all, struct gateway_key *key);

/* -- gateways_clients.c -- */
void clients_begin(struct gateway *gateway);
void clients_go(struct gateway *gateway); /* those whose time it is take */
uint64_t clients_next_us(const struct gateway *gateway);
void client_decided(struct gateway *gateway, struct gateway_client *client, int error, uint64_t retry_ms);

/* -- gateways_takes.c -- */
void gateway_take_of(struct gateway *gateway, struct gateway_client *client);
uint64_t gateway_wait_us(const struct gateway *gateway); /* a take waits for so long */
void gateway_take(struct gateway *gateway);              /* one comes */
uint64_t gateway_next_take_us(const struct gateway *gateway);
void gateway_retry(struct gateway *gateway);     /* those that wait, again */
void gateway_end_waits(struct gateway *gateway); /* of those whose time is over */
void gateway_owner_said(struct gateway *gateway, struct gateway_call *call, enum owner_reach reach);

#endif
