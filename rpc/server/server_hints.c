#include "rpc/server/server_hints.h"

#include <stdlib.h>

#include "base/clock.h"
#include "rpc/agents/agents.h"
#include "rpc/server/server_internal.h"

#define KEYS_TURNS   10 /* turns (HINTS_MS each) between two counts of keys */
#define AGENTS_TURNS 2  /* likewise, between two reports of changes to agents */
#define TIDY_TURNS   50 /* likewise, between two removals of old hints */
#define FRAMES_MOST  16 /* for one server in one turn */
#define BACKLOG_MOST (8u << 20)

struct server_hints {
    uv_timer_t timer;
    unsigned turns;
    struct told_server {
        uint64_t id;    /* 0: nobody */
        uint64_t since; /* up to here it has the hints */
    } told[PEERS_MAX];
};

static bool has_room(struct rpc *rpc, uint64_t peer) {
    struct link *link = peers_link(rpc->others, peer);
    return link && link_backlog(link) < BACKLOG_MOST;
}

/* The hints that one server has not got yet. Mostly several servers have got equally much: then `frame` is reused from
 * the one before. */
struct told {
    struct buffer frame;
    uint64_t since, next;
};

static void tell_peer(struct rpc *rpc, struct told_server *server, struct told *told, uint64_t now_ns) {
    uint64_t peer = server->id, *since = &server->since;
    for (int i = 0; i < FRAMES_MOST && *since != hints_sequence(rpc->hints) && has_room(rpc, peer); i++) {
        if (told->since != *since || told->next == 0) {
            buffer_reset(&told->frame);
            told->since = *since;
            told->next = hints_changes(rpc->hints, *since, LOAD_DIRECT, HINTS_FRAME_MOST, now_ns, &told->frame);
        }
        if (told->frame.size && !peers_queue(rpc->others, peer, PEER_HINTS, buffer_slice(&told->frame))) return;
        *since = told->next;
    }
}

static void tell_peers(struct rpc *rpc, uint64_t now_ns) {
    struct server_hints *own = rpc->server->hints;
    struct told told = {0};
    for (size_t i = 0; i < PEERS_MAX; i++)
        if (own->told[i].id) tell_peer(rpc, &own->told[i], &told, now_ns);
    buffer_free(&told.frame);
}

static void tell_keys(struct rpc *rpc) {
    struct server_hints *own = rpc->server->hints;
    struct buffer frame = {0};
    hints_keys_take(rpc->hints, &frame);
    for (size_t i = 0; i < PEERS_MAX && frame.size; i++)
        if (own->told[i].id && has_room(rpc, own->told[i].id))
            (void)peers_queue(rpc->others, own->told[i].id, PEER_KEYS, buffer_slice(&frame));
    buffer_free(&frame);
}

static void turn(uv_timer_t *timer) {
    struct rpc *rpc = timer->data;
    if (rpc->stopping) return;
    uint64_t now_ns = clock_mono_ns();
    unsigned turns = ++rpc->server->hints->turns;
    if (turns % TIDY_TURNS == 0) hints_tick(rpc->hints, now_ns);
    if (turns % KEYS_TURNS == 0) tell_keys(rpc);
    if (!rpc->others) return;
    tell_peers(rpc, now_ns);
    peers_flush(rpc->others);
    if (turns % AGENTS_TURNS == 0) agents_hints_tick(rpc->agents, now_ns);
}

bool server_hints_frame(struct rpc *rpc, uint8_t type, struct slice payload) {
    if (type == PEER_HINTS) return hints_take(rpc->hints, payload, false, slice_text(""), clock_mono_ns()) == CO_OK;
    return hints_keys_merge(rpc->hints, payload, false, clock_mono_ns()) == CO_OK;
}

void server_hints_down(struct rpc *rpc, uint64_t peer) {
    struct server_hints *own = rpc->server->hints;
    for (size_t i = 0; i < PEERS_MAX; i++)
        if (own->told[i].id == peer) own->told[i].id = 0;
}

void server_hints_up(struct rpc *rpc, uint64_t peer) {
    struct server_hints *own = rpc->server->hints;
    server_hints_down(rpc, peer);
    size_t free = 0;
    while (free < PEERS_MAX && own->told[free].id) free++;
    if (free < PEERS_MAX) own->told[free] = (struct told_server){.id = peer};
}

void server_hints_start(struct rpc *rpc) {
    struct server_hints *own = rpc->server->hints = mem_zalloc(sizeof *own);
    CHECK(uv_timer_init(rpc->loop, &own->timer) == 0);
    own->timer.data = rpc;
    uv_timer_start(&own->timer, turn, HINTS_MS, HINTS_MS);
}

void server_hints_close(struct rpc *rpc, uv_close_cb closed) {
    uv_close((uv_handle_t *)&rpc->server->hints->timer, closed);
}

void server_hints_free(struct rpc *rpc) { free(rpc->server->hints); }
