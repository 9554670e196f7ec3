/* Reads that another server asks for, as its disk is full and it is behind (rpc/reads/leader_read.h): answered as those of
 * client agents are, but here or not at all, so that no read goes round.
 *
 * Its connection is Raft's too: answers wait here while more than SERVER_AHEAD is on the way to it, so that a
 * heartbeat is never far behind. */
#include <stdlib.h>

#include "base/log.h"
#include "rpc/agents/agents.h"
#include "rpc/agents/agents_internal.h"
#include "rpc/core/rpc_internal.h"
#include "rpc/wire/frame_unpack.h"

#define SERVER_AHEAD ((uint64_t)256 * 1024) /* bytes: two milliseconds at 1 Gbit/s */
#define LOOK_MS      2                      /* for room, while something waits for it */

struct asking_server {
    struct asker asker;
    struct list link; /* in agents->servers_asking */
};

static struct asking_server *asking_find(struct agents *agents, uint64_t id) {
    LIST_FOREACH(item, &agents->servers_asking) {
        struct asking_server *server = LIST_ENTRY(item, struct asking_server, link);
        if (server->asker.server == id) return server;
    }
    return NULL;
}

static struct asking_server *asking_new(struct agents *agents, uint64_t id) {
    struct asking_server *server = mem_zalloc(sizeof *server);
    asker_init(&server->asker, agents);
    server->asker.server = id;
    list_append(&agents->servers_asking, &server->link);
    log_info("agents", "another server asks for reads, its disk is full id=%016llx", (unsigned long long)id);
    return server;
}

bool asking_server_has_room(const struct asker *asker) {
    struct peers *others = asker->agents->rpc->others;
    struct link *link = others ? peers_link(others, asker->server) : NULL;
    return link && link_queued(link) - link_delivered(link) < SERVER_AHEAD;
}

static void look(uv_timer_t *timer) {
    struct agents *agents = timer->data;
    bool held = false;
    LIST_FOREACH(item, &agents->servers_asking) {
        struct asking_server *server = LIST_ENTRY(item, struct asking_server, link);
        agents_fetch_pieces(&server->asker);
        held = held || !list_empty(&server->asker.held);
    }
    if (!held) uv_timer_stop(timer);
}

void asking_server_waits(struct agents *agents) {
    if (!uv_is_active((uv_handle_t *)&agents->room_timer)) uv_timer_start(&agents->room_timer, look, LOOK_MS, LOOK_MS);
}

bool agents_server_frame(struct agents *agents, uint64_t id, uint8_t type, struct slice payload) {
    struct asking_server *server = asking_find(agents, id);
    if (agents->stopping) return true;
    if (type == PEER_FETCH) {
        Pb__PeerFetch *ask = frame_unpack(&pb__peer_fetch__descriptor, payload, NULL);
        if (!ask) return false;
        agents_fetch(server ? &server->asker : &asking_new(agents, id)->asker, ask);
        frame_drop(ask);
    } else if (server) {
        Pb__PeerFetchEnd *end = frame_unpack(&pb__peer_fetch_end__descriptor, payload, NULL);
        if (!end) return false;
        agents_fetch_end(&server->asker, end->number);
        frame_drop(end);
    }
    return true;
}

static void asking_free(struct asking_server *server) {
    agents_fetch_down(&server->asker);
    list_remove(&server->link);
    free(server);
}

void agents_server_down(struct agents *agents, uint64_t id) {
    struct asking_server *server = asking_find(agents, id);
    if (server) asking_free(server);
}

void asking_servers_stop(struct agents *agents) {
    LIST_FOREACH_SAFE(item, next, &agents->servers_asking) asking_free(LIST_ENTRY(item, struct asking_server, link));
}
