/* Asks (rpc/api/ask.h) in one process: its own, those that it carries on for others, and those that it answers. The
 * same on a client agent and on a server, except for the way of an ask for another node:
 *
 *     of a client agent   to the server that it is connected with; while there is none it waits
 *     of a server         to its newest connection with that node; else to the server that is known to have it (for
 *                         PLACES_MS, until that server says no, is lost, or does not answer in time); else it asks all
 *                         others which of them has it (PEER_ASK_FIND), and the ask goes to the one that has had it for
 *                         the shortest time
 *
 * (1) An ask is sent to one receiver at a time, and to another only when the first surely did not deliver it. When the
 *     connection over which it was sent ends, it may have been delivered: its outcome is unknown.
 * (2) An ask from a server goes only to this server's own agent or its client agents, never to another server. So there
 *     are at most two servers on the way, and no circles.
 * (3) Only a server of this cluster's configuration may ask in the name of another node; a client agent asks for its
 *     own node.
 * (4) The asker ends its ask by its own clock. A server on the way drops it no earlier than that, and tells nobody.
 * (5) An ask ends once, as a question is answered once. An answer counts only if it comes from the receiver of the ask,
 *     with its number.
 *
 * Bounds: unfinished asks of one connection (RPC_ASKS_MAX), unanswered asks sent to one connection (likewise), bytes
 * queued for one (ASKS_BACKLOG_MAX), bytes kept while nodes are searched (ASKS_KEPT_MAX).
 *
 * Pure: connections are reached through the callbacks, the time is an argument (milliseconds of any clock that only
 * rises). One thread, except for rpc_ask_answer. */
#ifndef COORD_RPC_ASKS_H
#define COORD_RPC_ASKS_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "base/list.h"
#include "base/memory.h"
#include "rpc/api/ask.h"
#include "rpc/wire/calls.h"

#define ASKS_SERVERS_MAX 32
#define ASKS_BACKLOG_MAX (2u << 20) /* asks for a connection with more are CO_BUSY */
/* Beyond, an answer is lost: its outcome is unknown. Raft's messages wait behind it: 64 ms at 1 Gbit/s */
#define ASKS_ANSWERS_MAX (8u << 20)
#define ASKS_KEPT_MAX    (64u << 20)
#define ASKS_PLACES_MAX  16384
#define ASKS_LOOKS_MAX   1024 /* nodes that are searched at a time; more: CO_BUSY */
#define ASKS_PLACES_MS   60000
#define ASKS_FIND_MS     500 /* a server that has not answered by then counts as unreachable */

struct asks;
struct asks_peer; /* a connection */

struct asks_callbacks {
    void *data;
    /* Queues a frame (enum peer_frame) on a connection, as asks_up was told of it. */
    void (*send)(void *data, void *connection, uint8_t type, const ProtobufCMessage *message);
    size_t (*backlog)(void *data, void *connection); /* bytes that are queued there */
    /* The other servers of the cluster's configuration: their ids. NULL: this is a client agent. */
    size_t (*servers)(void *data, uint64_t ids[ASKS_SERVERS_MAX]);
    void (*wake)(void *data); /* any thread: asks for a call of asks_woken */
    /* A question begins to wait for its answer, or has it; asks_free has to wait for that. */
    void (*question)(void *data, bool waits);
};

/* `node`: this agent's. Numbers begin above `first_number`; no two lives of a process may share them. */
struct asks *asks_new(const struct asks_callbacks *callbacks, const char *node, uint64_t first_number);
void asks_answerer(struct asks *asks, uint8_t topic, rpc_asked asked, void *data); /* as rpc_answer_asks */
/* Ends all asks: those that were sent with CO_UNKNOWN_OUTCOME, others and later ones at once with CO_CLOSED; tells the
 * other processes. Questions may still be answered. */
void asks_stop(struct asks *asks);
void asks_free(struct asks *asks); /* stopped, and no question waits; forgets the connections that are left */

/* -- connections --------------------------------------------------------------------------------------------------- */
struct asks_up {
    bool server;      /* else a client agent */
    uint64_t id;      /* of a server */
    const char *node; /* as its hello says */
    void *connection; /* for `send` and `backlog` */
};
struct asks_peer *asks_up(struct asks *asks, const struct asks_up *up, uint64_t now_ms);
void asks_down(struct asks *asks, struct asks_peer *peer, uint64_t now_ms); /* it ended */
void *asks_connection(const struct asks_peer *peer);
struct asks_peer *asks_server(struct asks *asks, uint64_t id); /* NULL: there is no connection with it */
/* Is an ask over it, in either direction, still unanswered? */
bool asks_with(const struct asks_peer *peer);
/* Client agents: asks go there from now on; NULL: nowhere yet. */
void asks_route(struct asks *asks, struct asks_peer *server, uint64_t now_ms);

/* PEER_ASK and its like. False: it does not decode, or this peer may not send it. */
bool asks_frame(struct asks *asks, struct asks_peer *from, uint8_t type, struct slice payload, uint64_t now_ms);

/* -- own asks ------------------------------------------------------------------------------------------------------ */
/* An ask on its way. In rpc_ask.impl when it is this process's own. */
struct asked {
    struct call call;  /* when it was sent to `to` */
    struct list all;   /* asks->all */
    struct list waits; /* in the list of those that wait for a connection, or for their node to be found; else alone */
    struct asks *asks;
    struct asks_peer *to;
    struct rpc_ask *own;    /* or */
    struct asks_peer *from; /* NULL: gone */
    struct list of_peer;    /* from->asking */
    uint64_t from_number;
    const char *node, *asker;
    struct slice payload;
    uint64_t deadline_ms, refused; /* refused: by which connection */
    uint32_t kept;                 /* bytes */
    uint8_t topic, moves;          /* moves: how often it was sent elsewhere */
};
/* Its `done` may be called before this returns. */
void asks_begin(struct asks *asks, struct asked *asked, struct rpc_ask *ask, uint64_t now_ms);

void asks_woken(struct asks *asks, uint64_t now_ms);
/* When asks_tick is due at the latest; UINT64_MAX: it is not. */
uint64_t asks_next_ms(const struct asks *asks);
void asks_tick(struct asks *asks, uint64_t now_ms);

#endif
