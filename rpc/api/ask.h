/* Asking the agent of another node: a small question goes from the agent of this node (client agent or server) to the
 * agent that runs on node N, over the connections that are there anyway, and its answer comes back. Nothing of it is in
 * the log, and nothing is kept: the asker decides what to do when no answer comes.
 *
 *     client agent A --> its server S1 --> client agent B, or S1's own agent
 *                                     '--> server S2 (it is asked for B, or is B) --> client agent B
 *
 * The agent of a node is the one that last said hello with that name; names are compared without regard to the case of
 * ASCII letters. The answering agent gets the asker's name from the asker's connection, not from the asker's message.
 * Asks may overtake each other. The rules: rpc/ask/asks.h. */
#ifndef COORD_RPC_API_ASK_H
#define COORD_RPC_API_ASK_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

struct rpc;

/* The module that answers. Numbers are never reused. */
enum rpc_ask_topic {
    RPC_TOPIC_QUOTA = 1, /* rpc/quota/spender_run.h */
    RPC_TOPIC_KEYRING,   /* agent/keyring_run.h */
};

#define RPC_ASK_BYTES_MAX      (64u << 10) /* of a payload, and of an answer */
#define RPC_ASK_TIMEOUT_MAX_MS 60000u
/* Unanswered asks of one client agent: those that it asked, and likewise those that it is to answer. Of a server:
 * RPC_ASKS_OF_SERVER_MAX. */
#define RPC_ASKS_MAX           4096
#define RPC_ASKS_OF_SERVER_MAX 32768

enum rpc_ask_reach {
    RPC_ASK_NOT_DELIVERED,   /* surely nobody got the question */
    RPC_ASK_MAYBE_DELIVERED, /* it may have been delivered, or may be until timeout_ms is over; nobody knows */
    RPC_ASK_ANSWERED,        /* error and answer are those of the answering agent */
};

/* The caller keeps the struct, the name and the payload until `done`. */
struct rpc_ask {
    const char *node;
    uint8_t topic; /* enum rpc_ask_topic */
    struct slice payload;
    uint32_t timeout_ms; /* 1 to RPC_ASK_TIMEOUT_MAX_MS */
    /* Once, on another thread, or later on the loop when rpc_ask was called there; short. `answer` is valid during the
     * call. An answer: RPC_ASK_ANSWERED, with the error that the answering agent gave. Otherwise:
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
     *                      answer was too large for the process that carries it at that moment */
    void (*done)(struct rpc_ask *ask, int error, struct slice answer);
    enum rpc_ask_reach reach;    /* out, valid in `done` */
    _Alignas(16) char impl[384]; /* rpc's own */
};
void rpc_ask(struct rpc *rpc, struct rpc_ask *ask); /* any thread */

/* A question that waits for this agent's answer. */
struct rpc_question;
/* On the loop, short; `from` and `payload` are valid during the call. Answers with rpc_ask_answer, within the call or
 * later. The asker may have given up by then; nobody is told. */
typedef void (*rpc_asked)(void *data, const char *from, struct slice payload, struct rpc_question *question);
/* Sets the function that answers a topic on this agent. Loop thread, once for each topic, right after the start, and
 * again with `asked` NULL at the end: before and after, questions get CO_UNSUPPORTED. */
void rpc_answer_asks(struct rpc *rpc, uint8_t topic, rpc_asked asked, void *data);
/* Any thread; exactly once for each question: the rpc does not end before. `answer` is copied; more than
 * RPC_ASK_BYTES_MAX: the asker gets CO_TOOLARGE instead, without an answer. `error`: CO_OK, or an error of that
 * topic. */
void rpc_ask_answer(struct rpc_question *question, int error, struct slice answer);

#endif
