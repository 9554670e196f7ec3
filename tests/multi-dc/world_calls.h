/* Calls under way between followers of a region and its servers, for tests: each goes and comes back after a time of
 * its own. */
#ifndef COORD_TESTS_MULTI_DC_WORLD_CALLS_H
#define COORD_TESTS_MULTI_DC_WORLD_CALLS_H

#include <protobuf-c/protobuf-c.h>

#include "base/buffer.h"

#define CALLS_MOST 64

enum call_state { CALL_FREE, CALL_GOES, CALL_COMES };
struct world_call {
    enum call_state state;
    unsigned core;
    bool stray;  /* nobody hears what comes of it */
    bool behind; /* asks the server that is behind */
    int wish;    /* the follower's own enum */
    uint64_t ticket, due_ms, until_ms, index, asked_ms;
    struct buffer bytes; /* request, command, or answer */
    int error, refused;
    bool yes;
    uint64_t result_index;
};
struct world_calls {
    struct world_call call[CALLS_MOST];
};

/* A call that goes. NULL: all are under way. */
struct world_call *world_calls_new(struct world_calls *calls, uint64_t due_ms);
/* The earliest that is due. NULL: none is. */
struct world_call *world_calls_due(struct world_calls *calls, uint64_t now_ms);
void world_call_put(struct world_call *call, const ProtobufCMessage *message); /* into its bytes */
void world_calls_free(struct world_calls *calls);

#endif
