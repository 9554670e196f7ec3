/* Finds the server that has a node's agent: it is remembered for a while, else all servers are asked. */
#include <stdlib.h>

#include "base/check.h"
#include "rpc/ask/asks_internal.h"
#include "rpc/cluster/peers.h"
#include "rpc/wire/frame_unpack.h"

/* A question to one server. */
struct leg {
    struct call call;
    struct look *look;
};

struct look {
    struct asks *asks;
    struct place *place;
    struct list asks_waiting; /* struct asked */
    uint64_t until_ms, best_ms;
    struct asks_peer *best; /* has had it for best_ms, the shortest time; NULL: nobody yet */
    bool unreachable;       /* one of the others */
    unsigned open, count;
    struct leg legs[ASKS_SERVERS_MAX];
};

/* The place of a node. */
struct place {
    struct place *chain;             /* in its bucket */
    struct list link;                /* asks->known, or asks->looking */
    uint64_t hash, server, until_ms; /* server: its id, unless it is being searched */
    struct look *look;               /* NULL: it is known */
    char node[HELLO_NODE_MAX + 1];
};

/* -- known places -------------------------------------------------------------------------------------------------- */
static struct place **place_at(struct asks *asks, const char *node, uint64_t hash) {
    struct place **at = &asks->places[hash % PLACE_BUCKETS];
    while (*at && ((*at)->hash != hash || !asks_same_node((*at)->node, node))) at = &(*at)->chain;
    return at;
}

static void place_drop(struct asks *asks, struct place *place) {
    struct place **at = place_at(asks, place->node, place->hash);
    *at = place->chain;
    if (place->look) asks->looking_count--;
    else asks->known_count--;
    list_remove(&place->link);
    free(place);
}

static struct place *place_new(struct asks *asks, const char *node) {
    struct place *place = mem_zalloc(sizeof *place);
    place->hash = asks_node_hash(node);
    memcpy(place->node, node, strlen(node) + 1);
    struct place **bucket = &asks->places[place->hash % PLACE_BUCKETS];
    place->chain = *bucket;
    *bucket = place;
    list_init(&place->link);
    return place;
}

/* Remembers the place; the oldest one makes room. */
static void place_known(struct asks *asks, struct place *place, uint64_t server) {
    list_remove(&place->link);
    if (asks->known_count == ASKS_PLACES_MAX) place_drop(asks, LIST_ENTRY(asks->known.next, struct place, link));
    asks->looking_count--;
    place->look = NULL, place->server = server, place->until_ms = asks->now_ms + ASKS_PLACES_MS;
    list_append(&asks->known, &place->link);
    asks->known_count++;
}

struct asks_peer *asks_place(struct asks *asks, const char *node) {
    struct place *place = *place_at(asks, node, asks_node_hash(node));
    if (!place || place->look) return NULL;
    struct asks_peer *peer = asks->now_ms < place->until_ms ? asks_server(asks, place->server) : NULL;
    if (!peer) place_drop(asks, place);
    return peer;
}

void asks_forget(struct asks *asks, const char *node, uint64_t server) {
    struct place *place = *place_at(asks, node, asks_node_hash(node));
    if (place && !place->look && place->server == server) place_drop(asks, place);
}

/* -- looking ------------------------------------------------------------------------------------------------------- */
static struct asked *next_of(struct look *look) {
    struct asked *asked = LIST_ENTRY(look->asks_waiting.next, struct asked, waits);
    list_remove(&asked->waits);
    return asked;
}

static void close_legs(struct look *look) {
    for (unsigned i = 0; look->open && i < look->count; i++)
        if (look->legs[i].call.peer) {
            struct call *call = &look->legs[i].call;
            CHECK(calls_take(look->asks->calls, &asks_find_method, call->number, call->peer) == call);
            look->open--;
        }
}

/* Ends the search: all have answered, or the time is over. */
static void decide(struct look *look) {
    struct asks *asks = look->asks;
    struct place *place = look->place;
    struct asks_peer *best = look->best;
    int error = look->unreachable || look->open ? CO_IO : CO_NOTFOUND;
    close_legs(look);
    if (best && best->server) {
        place_known(asks, place, best->id);
    } else {
        place_drop(asks, place);
        if (best) best->doubted = false;
    }
    while (!list_empty(&look->asks_waiting)) {
        if (best) asks_send(next_of(look), best);
        else asks_end(next_of(look), error);
    }
    free(look);
}

static void note(struct look *look, struct asks_peer *peer, uint64_t age_ms) {
    if (!look->best || age_ms < look->best_ms) look->best = peer, look->best_ms = age_ms;
}

static void leg_over(struct look *look) {
    if (--look->open == 0) decide(look);
}

static void leg_lost(struct call *call, int error, const ProtobufCMessage *answer) {
    struct look *look = CONTAINER_OF(call, struct leg, call)->look;
    (void)error, (void)answer;
    look->unreachable = true;
    leg_over(look);
}

static void ask_server(struct look *look, uint64_t id) {
    struct asks *asks = look->asks;
    struct asks_peer *peer = asks_server(asks, id);
    if (!peer) {
        look->unreachable = true;
        return;
    }
    struct leg *leg = &look->legs[look->count++];
    leg->look = look, leg->call.done = leg_lost;
    Pb__PeerAskFind message = PB__PEER_ASK_FIND__INIT;
    message.number = calls_enter(asks->calls, &leg->call, &asks_find_method, peer->key);
    message.node = look->place->node;
    asks->callbacks.send(asks->callbacks.data, peer->connection, PEER_ASK_FIND, &message.base);
    look->open++;
}

static struct look *look_new(struct asks *asks, const char *node) {
    struct look *look = mem_zalloc(sizeof *look);
    look->asks = asks, look->until_ms = asks->now_ms + ASKS_FIND_MS;
    list_init(&look->asks_waiting);
    look->place = place_new(asks, node);
    look->place->look = look;
    list_append(&asks->looking, &look->place->link);
    asks->looking_count++;
    asks_due(asks, look->until_ms);
    uint64_t ids[ASKS_SERVERS_MAX];
    size_t count = asks->callbacks.servers(asks->callbacks.data, ids);
    for (size_t i = 0; i < count; i++) ask_server(look, ids[i]);
    struct asks_peer *here = asks_agent_of(asks, node);
    if (here) note(look, here, asks->now_ms - here->since_ms);
    return look;
}

void asks_find(struct asked *asked) {
    struct asks *asks = asked->asks;
    struct place *place = *place_at(asks, asked->node, asks_node_hash(asked->node));
    if (!place && asks->looking_count == ASKS_LOOKS_MAX) {
        asks_end(asked, CO_BUSY);
        return;
    }
    struct look *look = place ? place->look : look_new(asks, asked->node);
    list_append(&look->asks_waiting, &asked->waits);
    if (look->open == 0) decide(look);
}

void asks_find_without(struct asks *asks, const struct asks_peer *peer) {
    LIST_FOREACH(item, &asks->looking) {
        struct look *look = LIST_ENTRY(item, struct place, link)->look;
        if (look->best == peer) look->best = NULL, look->unreachable = true;
    }
}

void asks_find_tick(struct asks *asks) {
    LIST_FOREACH_SAFE(item, next, &asks->looking) {
        struct look *look = LIST_ENTRY(item, struct place, link)->look;
        if (asks->now_ms >= look->until_ms) decide(look);
        else asks_due(asks, look->until_ms);
    }
}

void asks_find_stop(struct asks *asks) {
    while (!list_empty(&asks->looking)) {
        struct place *place = LIST_ENTRY(asks->looking.next, struct place, link);
        struct look *look = place->look;
        close_legs(look);
        while (!list_empty(&look->asks_waiting)) asks_end(next_of(look), CO_CLOSED);
        place_drop(asks, place);
        free(look);
    }
    while (!list_empty(&asks->known)) place_drop(asks, LIST_ENTRY(asks->known.next, struct place, link));
}

/* -- frames -------------------------------------------------------------------------------------------------------- */
bool asks_take_found(struct asks *asks, struct asks_peer *from, struct slice payload) {
    const Pb__PeerAskFound *found = frame_unpack(&pb__peer_ask_found__descriptor, payload, &asks->frame);
    if (!found) return false;
    struct call *call = calls_take(asks->calls, &asks_find_method, found->number, from->key);
    if (!call) return true;
    struct look *look = CONTAINER_OF(call, struct leg, call)->look;
    if (found->outcome != CO_OK) look->unreachable = true;
    else if (found->here) note(look, from, found->age_ms);
    leg_over(look);
    return true;
}

bool asks_take_find(struct asks *asks, struct asks_peer *from, struct slice payload) {
    const Pb__PeerAskFind *find = frame_unpack(&pb__peer_ask_find__descriptor, payload, &asks->frame);
    if (!find) return false;
    Pb__PeerAskFound answer = PB__PEER_ASK_FOUND__INIT;
    answer.number = find->number;
    if (asks->stopping) answer.outcome = CO_CLOSED;
    else if (!asks_is_member(asks, from->id)) answer.outcome = CO_AGAIN;
    else if (asks_same_node(find->node, asks->node)) answer.here = true;
    else if (strlen(find->node) <= HELLO_NODE_MAX) {
        const struct asks_peer *agent = asks_agent_of(asks, find->node);
        answer.here = agent != NULL;
        if (agent) answer.age_ms = asks->now_ms - agent->since_ms;
    }
    asks->callbacks.send(asks->callbacks.data, from->connection, PEER_ASK_FOUND, &answer.base);
    return true;
}
