/* Inside asks.h: asks.c (asks on their way, connections), asks_find.c (the search for a node), asks_serve.c (asks of
 * others, answers). */
#ifndef COORD_RPC_ASKS_INTERNAL_H
#define COORD_RPC_ASKS_INTERNAL_H

#include "base/mailbox.h"
#include "rpc/ask/asks.h"
#include "rpc/wire/hello.h"
#include "rpc/wire/peer.pb-c.h"

#define NODE_BUCKETS  1024
#define PLACE_BUCKETS 1024

struct asks_peer {
    struct list link;        /* of a server: asks->servers; of a client agent: asks->agents */
    struct asks_peer *chain; /* in its bucket of asks->nodes, the newest first */
    struct list asking;      /* struct asked.of_peer */
    uint64_t key;            /* never reused */
    uint64_t id, since_ms;
    void *connection;
    unsigned from, to, questions; /* unfinished: asks of it, asks sent to it; its questions to this agent */
    bool server, gone;
    bool doubted; /* it did not answer in time: there may be a newer connection elsewhere */
    char node[HELLO_NODE_MAX + 1];
};

struct rpc_question {
    struct mail mail;
    struct asks *asks;
    struct asks_peer *from; /* exists until this is answered */
    uint64_t number;
    int error;
    char *answer;
    size_t size;
};

struct asks {
    struct asks_callbacks callbacks;
    char node[HELLO_NODE_MAX + 1];
    struct calls *calls;
    struct asks_peer self; /* asks for this node go there */
    struct asks_peer *route;
    struct asks_peer *nodes[NODE_BUCKETS];
    struct list servers, agents;
    uint64_t last_key;
    struct list all, waiting; /* waiting: client agents', for a connection */
    unsigned own;             /* of them, this process's */
    size_t kept;              /* bytes */
    uint64_t now_ms;          /* as of the present event */
    uint64_t next_ms;         /* no deadline is earlier */
    struct mailbox answered;  /* struct rpc_question */
    struct {
        rpc_asked asked;
        void *data;
    } topics[UINT8_MAX + 1];
    struct place *places[PLACE_BUCKETS];
    struct list known, looking; /* struct place: known ones, the oldest first; those being searched, likewise */
    size_t known_count, looking_count;
    struct arena frame; /* the frame being handled, decoded */
    bool stopping;
};

extern const struct call_method asks_method, asks_find_method; /* names for calls_enter */

static inline bool asks_same_node(const char *a, const char *b) {
    return slice_equal_nocase(slice_text(a), slice_text(b));
}
uint64_t asks_node_hash(const char *node); /* not longer than HELLO_NODE_MAX */

/* -- asks.c -------------------------------------------------------------------------------------------------------- */
struct asks_peer *asks_agent_of(struct asks *asks, const char *node); /* the newest; NULL */
void asks_enter(struct asked *asked);                                 /* it is new */
void asks_go(struct asked *asked);                                    /* sends it on its way, or ends it */
void asks_send(struct asked *asked, struct asks_peer *to);            /* likewise */
/* Ends it without an answer: surely not delivered, unless `error` is CO_UNKNOWN_OUTCOME. */
void asks_end(struct asked *asked, int error);
void asks_due(struct asks *asks, uint64_t at_ms); /* asks_tick has to be called then */
unsigned asks_most(const struct asks *asks, const struct asks_peer *peer);
bool asks_is_member(struct asks *asks, uint64_t id);

/* -- asks_find.c --------------------------------------------------------------------------------------------------- */
/* The server that is known to have the node; NULL: not known, or not connected. */
struct asks_peer *asks_place(struct asks *asks, const char *node);
void asks_forget(struct asks *asks, const char *node, uint64_t server);  /* the server does not have it any more */
void asks_find(struct asked *asked);                                     /* finds its node and sends it there, or ends
                                                                          * it */
void asks_find_without(struct asks *asks, const struct asks_peer *peer); /* its connection ended */
void asks_find_tick(struct asks *asks);
void asks_find_stop(struct asks *asks);
bool asks_take_find(struct asks *asks, struct asks_peer *from, struct slice payload);
bool asks_take_found(struct asks *asks, struct asks_peer *from, struct slice payload);

/* -- asks_serve.c -------------------------------------------------------------------------------------------------- */
bool asks_take(struct asks *asks, struct asks_peer *from, struct slice payload);
/* A question for this agent. `from`: gets the answer; `asker`: the asking node. */
void asks_question(struct asks *asks, struct asks_peer *from, uint64_t number, uint8_t topic, const char *asker,
                   struct slice payload);
void asks_tell(struct asks *asks, struct asks_peer *to, uint64_t number, int outcome, int error, struct slice data);
/* Handles an answer of `from`; asks.c. */
void asks_answered(struct asks *asks, struct asks_peer *from, uint64_t number, uint32_t outcome, uint32_t error,
                   struct slice data);

#endif
