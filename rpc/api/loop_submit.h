/* A write whose outcome comes on the loop thread (rpc_submit tells it on some thread), for modules of that thread. */
#ifndef COORD_RPC_LOOP_SUBMIT_H
#define COORD_RPC_LOOP_SUBMIT_H

#include "rpc/api/rpc.h"

struct loop_submitted {
    int error;   /* as rpc_write's; CO_OK: the other members count */
    int refused; /* the result's error */
    bool yes;
    uint64_t index;
    const char *text; /* the reason of the refusal, or the error's text; valid during the call */
};
/* Loop thread, once, also at the end of the process: a write cannot be taken back. */
typedef void (*loop_submit_done)(void *data, const struct loop_submitted *submitted);
/* Loop thread. `rpc` is that of this process, on whose loop all of this runs, and outlives the outcome. */
void loop_submit(struct rpc *rpc, uint8_t command, const ProtobufCMessage *message, loop_submit_done done, void *data);

#endif
