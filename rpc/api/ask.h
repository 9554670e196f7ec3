/* Asking the agent of another node: a small question goes from the agent of this node (client agent or server) to the
 * agent that runs on node N, over the connections that are there anyway, and its answer comes back. Nothing of it is in
 * the log, nothing is kept: who asks decides what to do when no answer comes.
 *
 *     client agent A --> its server S1 --> client agent B, or S1's own agent
 *                                     '--> server S2 (it is asked for B, or is B) --> client agent B
 *
 * The agent of a node is whoever said hello with that name last; names are compared without regard to the case of
 * ASCII letters. Who is asked hears the asker's name as the connection says that it came over, not as the asker says.
 * Order is not kept between asks. How it goes: rpc/ask/asks.h. */
#ifndef COORD_RPC_API_ASK_H
#define COORD_RPC_API_ASK_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

struct rpc;

/* Who answers: never given twice. */
enum rpc_ask_topic {
    RPC_TOPIC_QUOTA = 1, /* rpc/quota/spender_run.h */
};

#define RPC_ASK_BYTES_MAX      (64u << 10) /* of a payload, and of an answer */
#define RPC_ASK_TIMEOUT_MAX_MS 60000u
/* Not answered yet, of one client agent: asked by it, or to be answered by it. Of a server: RPC_ASKS_OF_SERVER_MAX. */
#define RPC_ASKS_MAX           4096
#define RPC_ASKS_OF_SERVER_MAX 32768

enum rpc_ask_reach {
    RPC_ASK_NOT_DELIVERED,   /* surely: nobody was asked */
    RPC_ASK_MAYBE_DELIVERED, /* it may have been, or be about to be until timeout_ms is over; nobody knows */
    RPC_ASK_ANSWERED,        /* error and answer are those of who answered */
};

/* The caller keeps the struct, the name and the payload until `done`. */
struct rpc_ask {
    const char *node;
    uint8_t topic; /* who answers there: enum rpc_ask_topic */
    struct slice payload;
    uint32_t timeout_ms; /* 1 to RPC_ASK_TIMEOUT_MAX_MS */
    /* Once, on another thread, or later on the loop when rpc_ask was called there; short. `answer` is valid during the
     * call. What was answered: RPC_ASK_ANSWERED, and the error that was given with it. Else:
     *   surely not delivered
     *     CO_NOTFOUND      no server has a connection with an agent of that node
     *     CO_UNSUPPORTED   nobody answers that topic there; or that agent, or a server on the way, or one that could
     *                      not be asked for the node, runs a program that knows no asks
     *     CO_IO            no server that could be reached has that agent, and one could not be reached, or stops, or
     *                      does not know yet that this one's server is a member
     *     CO_NOLEADER      client agents: no server in time
     *     CO_BUSY          too many are under way, or too much
     *     CO_TOOLARGE      the payload
     *     CO_TIMEOUT       the node was still looked for
     *     CO_CLOSED        this agent stops
     *   maybe delivered
     *     CO_TIMEOUT       no answer in time
     *     CO_UNKNOWN_OUTCOME  a connection on its way was lost, or this agent or a server on the way stops; or the
     *                      answer was too large for who carries it at that moment */
    void (*done)(struct rpc_ask *ask, int error, struct slice answer);
    enum rpc_ask_reach reach;    /* out, valid in `done` */
    _Alignas(16) char impl[384]; /* rpc's own */
};
void rpc_ask(struct rpc *rpc, struct rpc_ask *ask); /* any thread */

/* One that waits for this agent's answer. */
struct rpc_question;
/* On the loop, short; `from` and `payload` are valid during the call. Answers with rpc_ask_answer, within the call or
 * later. Whoever asked may have given up by then, which nobody hears of. */
typedef void (*rpc_asked)(void *data, const char *from, struct slice payload, struct rpc_question *question);
/* Who answers a topic on this agent. Loop thread, once for each topic, right after the start: until then it is
 * CO_UNSUPPORTED, as from the moment on at which it ends (`asked` is NULL). */
void rpc_answer_asks(struct rpc *rpc, uint8_t topic, rpc_asked asked, void *data);
/* Any thread; exactly once for each question: the rpc does not end before. `answer` is copied; more than
 * RPC_ASK_BYTES_MAX: who asked hears CO_TOOLARGE instead, with nothing. `error`: CO_OK, or one that topic means. */
void rpc_ask_answer(struct rpc_question *question, int error, struct slice answer);

#endif
