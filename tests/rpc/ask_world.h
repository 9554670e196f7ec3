/* Asks between processes that are made up (rpc/ask/asks.h): frames go through a queue, the time is the test's. Servers
 * s1 to s3, which are connected with each other, client agents a (at s1) and b (at s2). Each answers TOPIC with
 * "NODE:PAYLOAD". */
#ifndef COORD_TESTS_RPC_ASK_WORLD_H
#define COORD_TESTS_RPC_ASK_WORLD_H

#include "base/buffer.h"
#include "rpc/ask/asks.h"
#include "rpc/cluster/peers.h"

enum { S1, S2, S3, A, B, PROCESSES };
#define SERVERS 3
#define TOPIC   7

struct wire;
struct end { /* of a wire */
    struct wire *wire;
    unsigned process;
    struct asks_peer *peer;
    struct end *other;
};
struct wire {
    struct end ends[2];
    bool up, stuck; /* stuck: what is sent stays on its way */
};
struct process {
    struct asks *asks;
    const char *name;
    struct rpc_question *kept[RPC_ASKS_MAX]; /* questions that are answered later */
    unsigned kept_count, asked, questions;
    bool keeps;
    int error; /* that it answers with */
    char from[300];
    size_t answer_size;
};
extern struct process processes[PROCESSES];

extern struct wire *a_s1, *b_s2, *s1_s2, *s1_s3, *s2_s3;
extern unsigned frames_of[256]; /* sent, by type */
extern uint64_t now_ms;
extern size_t queued_bytes; /* as each connection says */
extern size_t members;      /* of the servers: the first so many are */
extern size_t largest;      /* frame */

void open_world(void);
void close_world(void);
struct wire *join(unsigned one, unsigned two);
void cut(struct wire *wire); /* what is on its way is lost */
void run(void);              /* frames arrive until none is on its way; the time stands still */
void pass(uint64_t ms);      /* time, and what it brings */

/* An ask of the test's. */
struct mine {
    struct rpc_ask ask;
    struct asked asked;
    unsigned ends;
    int error;
    enum rpc_ask_reach reach;
    struct buffer answer;
};
void on_done(struct rpc_ask *ask, int error, struct slice answer);
void begin(struct mine *mine, unsigned process, const char *node); /* sent, not carried on yet */
void ask(struct mine *mine, unsigned process, const char *node);   /* and carried on */
/* It is over, once, as said, or this process aborts; what it holds is freed. */
void expect(struct mine *mine, int error, enum rpc_ask_reach reach, const char *answer);
void expect_not_delivered(struct mine *mine, int error);
void expect_maybe(struct mine *mine, int error);
void expect_answer(struct mine *mine, const char *answer);

/* Of a process that keeps its questions: all, the only one. */
void answer_all_kept(unsigned process, const char *text);
void answer_kept(unsigned process, const char *text);

void say(struct end *end, uint8_t type, const ProtobufCMessage *message); /* from this end */
Pb__PeerAsk forged(const char *node);                                     /* it says that it is from "somebody" */

#endif
