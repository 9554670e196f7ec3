/* What is under way between those who follow a region and those whom they ask, for tests: it goes, it comes back, each by a
 * time of its own. */
#ifndef COORD_TESTS_MULTI_DC_CALLS_H
#define COORD_TESTS_MULTI_DC_CALLS_H

#include <protobuf-c/protobuf-c.h>

#include "base/buffer.h"

#define CALLS_MOST 64

enum call_state { CALL_FREE, CALL_GOES, CALL_COMES };
struct call {
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
struct calls {
    struct call call[CALLS_MOST];
};

struct call *calls_new(struct calls *calls, uint64_t due_ms);      /* it goes. NULL: all are under way */
struct call *calls_due(struct calls *calls, uint64_t now_ms);      /* the earliest that is. NULL: none is */
void call_put(struct call *call, const ProtobufCMessage *message); /* into its bytes */
void calls_free(struct calls *calls);

#endif
