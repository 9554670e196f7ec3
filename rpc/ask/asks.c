#include "rpc/ask/asks.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/message.h"
#include "rpc/ask/asks_internal.h"
#include "rpc/cluster/peers.h"
#include "rpc/wire/frame_unpack.h"

#define MOVES_MOST 2 /* so often an undelivered ask is sent elsewhere: its node may be moving */

_Static_assert(ASKS_SERVERS_MAX == PEERS_MAX, "as many servers as there may be");

const struct call_method asks_method = {.name = "ask"}, asks_find_method = {.name = "find"};

uint64_t asks_node_hash(const char *node) {
    char folded[HELLO_NODE_MAX + 1];
    size_t size = strlen(node);
    CHECK(size < sizeof folded);
    memcpy(folded, node, size);
    bytes_lower(folded, size);
    return hash64(folded, size);
}

static bool is_client(const struct asks *asks) { return !asks->callbacks.servers; }

unsigned asks_most(const struct asks *asks, const struct asks_peer *peer) {
    return is_client(asks) || !(peer->server || peer == &asks->self) ? RPC_ASKS_MAX : RPC_ASKS_OF_SERVER_MAX;
}

bool asks_is_member(struct asks *asks, uint64_t id) {
    uint64_t ids[ASKS_SERVERS_MAX];
    size_t count = asks->callbacks.servers(asks->callbacks.data, ids);
    for (size_t i = 0; i < count; i++)
        if (ids[i] == id) return true;
    return false;
}

void asks_due(struct asks *asks, uint64_t at_ms) {
    if (at_ms < asks->next_ms) asks->next_ms = at_ms;
}

/* -- how an ask ends ----------------------------------------------------------------------------------------------- */
static void with_nobody(struct asked *asked) {
    if (asked->to) asked->to->to--;
    asked->to = NULL;
}

/* Takes the ask out of all lists; the caller owns its memory. */
static void leave(struct asked *asked) {
    struct asks *asks = asked->asks;
    with_nobody(asked);
    list_remove(&asked->all);
    list_remove(&asked->waits);
    list_remove(&asked->of_peer);
    asks->kept -= asked->kept;
    if (asked->own) asks->own--;
    if (asked->from) asked->from->from--;
}

static void over(struct asked *asked, enum rpc_ask_reach reach, int error, struct slice answer) {
    struct rpc_ask *own = asked->own;
    leave(asked);
    if (own) {
        own->reach = reach;
        own->done(own, error, answer);
        return;
    }
    if (asked->from)
        asks_tell(asked->asks, asked->from, asked->from_number, reach == RPC_ASK_ANSWERED ? CO_OK : error, error,
                  answer);
    free(asked);
}

void asks_end(struct asked *asked, int error) {
    over(asked, error == CO_UNKNOWN_OUTCOME ? RPC_ASK_MAYBE_DELIVERED : RPC_ASK_NOT_DELIVERED, error,
         (struct slice){0});
}

/* Asks of others end without an answer: (4). */
static void expire(struct asked *asked) {
    struct asks *asks = asked->asks;
    struct asks_peer *to = asked->to;
    enum rpc_ask_reach reach = to ? RPC_ASK_MAYBE_DELIVERED : RPC_ASK_NOT_DELIVERED;
    if (to) {
        CHECK(calls_take(asks->calls, &asks_method, asked->call.number, to->key) == &asked->call);
        if (to->server && !is_client(asks)) asks_forget(asks, asked->node, to->id);
        else to->doubted = true;
    }
    if (asked->from) {
        asked->from->from--;
        asked->from = NULL;
    }
    over(asked, reach, to || !is_client(asks) ? CO_TIMEOUT : CO_NOLEADER, (struct slice){0});
}

static void lost(struct call *call, int error, const ProtobufCMessage *answer) {
    (void)answer;
    asks_end(CONTAINER_OF(call, struct asked, call), error);
}

/* -- where it goes ------------------------------------------------------------------------------------------------- */
static void tell_ask(const struct asked *asked, uint64_t number) {
    struct asks *asks = asked->asks;
    Pb__PeerAsk message = PB__PEER_ASK__INIT;
    message.number = number, message.topic = asked->topic;
    if (asked->to->server) message.node = (char *)(uintptr_t)asked->node;
    if (!is_client(asks)) message.from = (char *)(uintptr_t)asked->asker;
    message.payload = (ProtobufCBinaryData){asked->payload.size, (uint8_t *)(uintptr_t)asked->payload.data};
    message.timeout_ms = (uint32_t)(asked->deadline_ms - asks->now_ms);
    asks->callbacks.send(asks->callbacks.data, asked->to->connection, PEER_ASK, &message.base);
}

void asks_send(struct asked *asked, struct asks_peer *to) {
    struct asks *asks = asked->asks;
    bool here = to == &asks->self;
    int error = CO_OK;
    if (asks->now_ms >= asked->deadline_ms) error = CO_TIMEOUT;
    else if (to->to >= asks_most(asks, to)) error = CO_BUSY;
    else if (!here && asks->callbacks.backlog(asks->callbacks.data, to->connection) > ASKS_BACKLOG_MAX) error = CO_BUSY;
    if (error != CO_OK) {
        asks_end(asked, error);
        return;
    }
    uint64_t number = calls_enter(asks->calls, &asked->call, &asks_method, to->key);
    asked->to = to, to->to++;
    if (here) asks_question(asks, to, number, asked->topic, asked->asker, asked->payload); /* `asked` may be gone now */
    else tell_ask(asked, number);
}

struct asks_peer *asks_agent_of(struct asks *asks, const char *node) {
    struct asks_peer *peer = asks->nodes[asks_node_hash(node) % NODE_BUCKETS];
    while (peer && (peer->server || !asks_same_node(peer->node, node))) peer = peer->chain;
    return peer;
}

static struct asks_peer *server_of(struct asks *asks, const char *node) {
    struct asks_peer *peer = asks->nodes[asks_node_hash(node) % NODE_BUCKETS];
    while (peer && (!peer->server || !asks_same_node(peer->node, node))) peer = peer->chain;
    return peer;
}

/* Sends it to another server, or to this server's connection with the node. */
static void go_from_server(struct asked *asked) {
    struct asks *asks = asked->asks;
    struct asks_peer *agent = asks_agent_of(asks, asked->node);
    bool of_server = asked->from && asked->from->server; /* (2) */
    if (agent && (!agent->doubted || of_server)) {
        asks_send(asked, agent);
        return;
    }
    if (of_server) {
        asks_end(asked, CO_NOTFOUND);
        return;
    }
    struct asks_peer *server = server_of(asks, asked->node);
    if (!server) server = asks_place(asks, asked->node);
    if (server) asks_send(asked, server);
    else asks_find(asked);
}

void asks_go(struct asked *asked) {
    struct asks *asks = asked->asks;
    if (asks_same_node(asked->node, asks->node)) asks_send(asked, &asks->self);
    else if (!is_client(asks)) go_from_server(asked);
    else if (asks->route && asks->route->key != asked->refused) asks_send(asked, asks->route);
    else list_append(&asks->waiting, &asked->waits);
}

void asks_enter(struct asked *asked) {
    struct asks *asks = asked->asks;
    asked->call.done = lost;
    list_init(&asked->waits);
    list_init(&asked->of_peer);
    list_append(&asks->all, &asked->all);
    asks->kept += asked->kept;
    if (asked->own) asks->own++;
    if (asked->from) {
        list_append(&asked->from->asking, &asked->of_peer);
        asked->from->from++;
    }
    asks_due(asks, asked->deadline_ms);
}

void asks_begin(struct asks *asks, struct asked *asked, struct rpc_ask *ask, uint64_t now_ms) {
    CHECK(ask->timeout_ms > 0 && ask->timeout_ms <= RPC_ASK_TIMEOUT_MAX_MS && ask->done);
    asks->now_ms = now_ms;
    *asked = (struct asked){.asks = asks,
                            .own = ask,
                            .node = ask->node,
                            .asker = asks->node,
                            .topic = ask->topic,
                            .payload = ask->payload,
                            .deadline_ms = now_ms + ask->timeout_ms};
    bool busy = asks->own >= asks_most(asks, &asks->self);
    asks_enter(asked);
    if (asks->stopping) asks_end(asked, CO_CLOSED);
    else if (ask->payload.size > RPC_ASK_BYTES_MAX) asks_end(asked, CO_TOOLARGE);
    else if (!ask->node[0] || strlen(ask->node) > HELLO_NODE_MAX) asks_end(asked, CO_NOTFOUND);
    else if (busy) asks_end(asked, CO_BUSY);
    else asks_go(asked);
}

/* -- answers ------------------------------------------------------------------------------------------------------- */
/* The receiver says that it surely did not deliver the ask. */
static void refused(struct asked *asked, const struct asks_peer *by, uint32_t outcome) {
    struct asks *asks = asked->asks;
    if (is_client(asks) && outcome == CO_CLOSED) { /* that server stops, another one may carry the ask on */
        asked->refused = by->key;
        asks_go(asked);
    } else if (by->server && !is_client(asks) && outcome == CO_NOTFOUND) { /* it has moved */
        asks_forget(asks, asked->node, by->id);
        if (asked->moves++ < MOVES_MOST && !asks_same_node(by->node, asked->node)) asks_go(asked);
        else asks_end(asked, CO_NOTFOUND);
    } else if (outcome == CO_CLOSED || outcome == CO_AGAIN) { /* the receiver stops */
        asks_end(asked, by->server ? CO_IO : CO_NOTFOUND);
    } else {
        asks_end(asked, (int)outcome);
    }
}

void asks_answered(struct asks *asks, struct asks_peer *from, uint64_t number, uint32_t outcome, uint32_t error,
                   struct slice data) {
    from->doubted = false; /* any answer will do */
    struct call *call = calls_take(asks->calls, &asks_method, number, from->key);
    if (!call) return; /* the ask was given up */
    struct asked *asked = CONTAINER_OF(call, struct asked, call);
    with_nobody(asked);
    bool known = outcome < CO_ERROR_COUNT && outcome != CO_UNKNOWN_OUTCOME;
    if (data.size > RPC_ASK_BYTES_MAX) error = CO_TOOLARGE, data = (struct slice){0};
    if (outcome == CO_OK) over(asked, RPC_ASK_ANSWERED, (int)error, data);
    else if (known) refused(asked, from, outcome);
    else asks_end(asked, CO_UNKNOWN_OUTCOME);
}

static bool take_answer(struct asks *asks, struct asks_peer *from, struct slice payload) {
    const Pb__PeerAskAnswer *answer = frame_unpack(&pb__peer_ask_answer__descriptor, payload, &asks->frame);
    if (answer) asks_answered(asks, from, answer->number, answer->outcome, answer->error, message_slice(answer->data));
    return answer != NULL;
}

bool asks_frame(struct asks *asks, struct asks_peer *from, uint8_t type, struct slice payload, uint64_t now_ms) {
    bool known = false;
    asks->now_ms = now_ms;
    if (type == PEER_ASK) known = asks_take(asks, from, payload);
    else if (type == PEER_ASK_ANSWER) known = take_answer(asks, from, payload);
    else if (is_client(asks) || !from->server) known = false;
    else if (type == PEER_ASK_FIND) known = asks_take_find(asks, from, payload);
    else if (type == PEER_ASK_FOUND) known = asks_take_found(asks, from, payload);
    arena_reset(&asks->frame);
    return known;
}

/* -- connections --------------------------------------------------------------------------------------------------- */
static void peer_init(struct asks *asks, struct asks_peer *peer, const char *node) {
    peer->key = ++asks->last_key;
    list_init(&peer->link);
    list_init(&peer->asking);
    snprintf(peer->node, sizeof peer->node, "%s", node);
}

struct asks_peer *asks_up(struct asks *asks, const struct asks_up *up, uint64_t now_ms) {
    struct asks_peer *peer = mem_zalloc(sizeof *peer);
    peer_init(asks, peer, up->node);
    peer->id = up->id, peer->server = up->server, peer->connection = up->connection;
    peer->since_ms = now_ms;
    list_append(up->server ? &asks->servers : &asks->agents, &peer->link);
    struct asks_peer **bucket = &asks->nodes[asks_node_hash(peer->node) % NODE_BUCKETS];
    peer->chain = *bucket;
    *bucket = peer;
    return peer;
}

static void unlink_peer(struct asks *asks, struct asks_peer *peer) {
    struct asks_peer **at = &asks->nodes[asks_node_hash(peer->node) % NODE_BUCKETS];
    while (*at != peer) at = &(*at)->chain;
    *at = peer->chain;
    list_remove(&peer->link);
    if (asks->route == peer) asks->route = NULL;
    peer->gone = true;
}

/* The asker is gone: drops its asks that were not sent yet, because nobody waits for them. */
static void forget_asker(struct asks_peer *peer) {
    LIST_FOREACH_SAFE(item, next, &peer->asking) {
        struct asked *asked = LIST_ENTRY(item, struct asked, of_peer);
        list_remove(&asked->of_peer);
        asked->from = NULL, peer->from--;
        if (!asked->to) asks_end(asked, CO_CLOSED);
    }
}

void asks_down(struct asks *asks, struct asks_peer *peer, uint64_t now_ms) {
    asks->now_ms = now_ms;
    unlink_peer(asks, peer);
    forget_asker(peer);
    asks_find_without(asks, peer);
    calls_lose(asks->calls, peer->key, 0);
    CHECK(peer->to == 0 && peer->from == 0);
    if (peer->questions == 0) free(peer);
}

void *asks_connection(const struct asks_peer *peer) { return peer->connection; }

struct asks_peer *asks_server(struct asks *asks, uint64_t id) {
    LIST_FOREACH(item, &asks->servers) {
        struct asks_peer *peer = LIST_ENTRY(item, struct asks_peer, link);
        if (peer->id == id) return peer;
    }
    return NULL;
}

bool asks_with(const struct asks_peer *peer) { return peer->to || peer->from || peer->questions; }

void asks_route(struct asks *asks, struct asks_peer *server, uint64_t now_ms) {
    asks->now_ms = now_ms;
    asks->route = server;
    struct list waiting;
    list_init(&waiting);
    list_splice(&waiting, &asks->waiting);
    while (!list_empty(&waiting)) {
        struct asked *asked = LIST_ENTRY(waiting.next, struct asked, waits);
        list_remove(&asked->waits);
        asks_go(asked);
    }
}

/* -- time ---------------------------------------------------------------------------------------------------------- */
uint64_t asks_next_ms(const struct asks *asks) { return asks->next_ms; }

void asks_tick(struct asks *asks, uint64_t now_ms) {
    asks->now_ms = now_ms;
    if (now_ms < asks->next_ms) return;
    asks->next_ms = UINT64_MAX;
    asks_find_tick(asks);
    LIST_FOREACH_SAFE(item, next, &asks->all) {
        struct asked *asked = LIST_ENTRY(item, struct asked, all);
        if (now_ms >= asked->deadline_ms) expire(asked);
        else asks_due(asks, asked->deadline_ms);
    }
}

/* -- life ---------------------------------------------------------------------------------------------------------- */
struct asks *asks_new(const struct asks_callbacks *callbacks, const char *node, uint64_t first_number) {
    struct asks *asks = mem_zalloc(sizeof *asks);
    asks->callbacks = *callbacks;
    asks->calls = calls_new(&(struct calls_callbacks){0}, NULL, first_number);
    asks->next_ms = UINT64_MAX;
    list_init(&asks->servers), list_init(&asks->agents);
    list_init(&asks->all), list_init(&asks->waiting);
    list_init(&asks->known), list_init(&asks->looking);
    snprintf(asks->node, sizeof asks->node, "%s", node);
    peer_init(asks, &asks->self, node);
    return asks;
}

void asks_answerer(struct asks *asks, uint8_t topic, rpc_asked asked, void *data) {
    CHECK(!asked != !asks->topics[topic].asked);
    asks->topics[topic].asked = asked, asks->topics[topic].data = data;
}

void asks_stop(struct asks *asks) {
    asks->stopping = true;
    asks_find_stop(asks);
    calls_stop(asks->calls);
    while (!list_empty(&asks->all)) asks_end(LIST_ENTRY(asks->all.next, struct asked, all), CO_CLOSED);
}

static void forget_peers(struct asks *asks, struct list *peers) {
    while (!list_empty(peers)) asks_down(asks, LIST_ENTRY(peers->next, struct asks_peer, link), asks->now_ms);
}

void asks_free(struct asks *asks) {
    if (!asks) return;
    CHECK(asks->stopping && asks->self.questions == 0);
    forget_peers(asks, &asks->servers);
    forget_peers(asks, &asks->agents);
    calls_free(asks->calls);
    arena_free(&asks->frame);
    free(asks);
}
