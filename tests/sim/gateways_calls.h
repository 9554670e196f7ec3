/* Shared by gateways.c and gateways_calls.c only: what is under way between a gateway and a server, or another gateway. */
#ifndef COORD_TESTS_SIM_GATEWAYS_CALLS_H
#define COORD_TESTS_SIM_GATEWAYS_CALLS_H

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
    int error; /* of one that is given up: what its sender learns; an enum owning_reach of the last two kinds */
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

#endif
