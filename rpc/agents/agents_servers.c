/* Reads of another server whose disk is full and which is behind (rpc/reads/leader_read.h). They are answered like
 * those of client agents, but here or not at all, so that no read goes in a circle.
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

struct peer_reader {
    struct remote_reader reader;
    struct list link; /* in agents->peer_readers */
};

static struct peer_reader *asking_find(struct agents *agents, uint64_t id) {
    LIST_FOREACH(item, &agents->peer_readers) {
        struct peer_reader *server = LIST_ENTRY(item, struct peer_reader, link);
        if (server->reader.server == id) return server;
    }
    return NULL;
}

static struct peer_reader *asking_new(struct agents *agents, uint64_t id) {
    struct peer_reader *server = mem_zalloc(sizeof *server);
    remote_reader_init(&server->reader, agents);
    server->reader.server = id;
    list_append(&agents->peer_readers, &server->link);
    log_info("agents", "another server asks for reads, its disk is full node=%s id=%016llx",
             rpc_server_name(agents->rpc, id), (unsigned long long)id);
    return server;
}

bool peer_reader_has_room(const struct remote_reader *reader) {
    struct peers *others = reader->agents->rpc->others;
    struct link *link = others ? peers_link(others, reader->server) : NULL;
    return link && link_queued(link) - link_delivered(link) < SERVER_AHEAD;
}

static void look(uv_timer_t *timer) {
    struct agents *agents = timer->data;
    bool held = false;
    LIST_FOREACH(item, &agents->peer_readers) {
        struct peer_reader *server = LIST_ENTRY(item, struct peer_reader, link);
        agents_read_pieces(&server->reader);
        held = held || !list_empty(&server->reader.held);
    }
    if (!held) uv_timer_stop(timer);
}

void peer_reader_waits(struct agents *agents) {
    if (!uv_is_active((uv_handle_t *)&agents->room_timer)) uv_timer_start(&agents->room_timer, look, LOOK_MS, LOOK_MS);
}

bool agents_server_frame(struct agents *agents, uint64_t id, uint8_t type, struct slice payload) {
    struct peer_reader *server = asking_find(agents, id);
    if (agents->stopping) return true;
    if (type == PEER_FETCH) {
        Pb__PeerFetch *ask = frame_unpack(&pb__peer_fetch__descriptor, payload, NULL);
        if (!ask) return false;
        agents_read(server ? &server->reader : &asking_new(agents, id)->reader, ask);
        frame_drop(ask);
    } else if (server) {
        Pb__PeerFetchEnd *end = frame_unpack(&pb__peer_fetch_end__descriptor, payload, NULL);
        if (!end) return false;
        agents_read_end(&server->reader, end->number);
        frame_drop(end);
    }
    return true;
}

static void peer_reader_free(struct peer_reader *server) {
    agents_read_down(&server->reader);
    list_remove(&server->link);
    free(server);
}

void agents_server_down(struct agents *agents, uint64_t id) {
    struct peer_reader *server = asking_find(agents, id);
    if (server) peer_reader_free(server);
}

void peer_readers_stop(struct agents *agents) {
    LIST_FOREACH_SAFE(item, next, &agents->peer_readers) peer_reader_free(LIST_ENTRY(item, struct peer_reader, link));
}
