/* Connections between servers, for what is forwarded: frames arrive in order and once, as long as the connection
 * stands. Each side notices by itself, sooner or later, that it ended; what was on its way then is gone. (Raft's own
 * messages do not rely on that: network_send loses, doubles and reorders them.) */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "rpc/forward/forwarding.h"
#include "tests/sim/sim.h"

struct frame {
    struct frame *next;
    uint64_t epoch, due_us;
    uint8_t type;
    size_t size;
    char bytes[];
};

static struct peer_link *view(struct sim *sim, uint32_t whose, uint32_t with) { return &sim->links[whose][with]; }

static void frames_free(struct peer_link *c) {
    for (struct frame *frame = c->first, *next; frame; frame = next) next = frame->next, free(frame);
    c->first = NULL;
    c->last = &c->first;
}

bool links_up(const struct server *server, uint64_t peer) {
    return server->up && !server->dying && peer >= 1 && peer <= server->sim->server_count &&
           server->sim->links[server->slot][peer - 1].up;
}

void links_send(struct server *server, uint64_t peer, uint8_t type, const char *bytes, size_t size) {
    struct sim *sim = server->sim;
    if (!links_up(server, peer)) return;
    uint32_t from = server->slot, to = (uint32_t)peer - 1;
    struct peer_link *there = view(sim, to, from);
    struct frame *frame = mem_zalloc(sizeof *frame + size);
    frame->epoch = view(sim, from, to)->epoch;
    frame->type = type;
    frame->size = size;
    memcpy(frame->bytes, bytes, size);
    const struct network *w = &sim->network;
    uint64_t delay = w->delay_us + (w->delay_span_us ? sim_random(sim, 0, w->delay_span_us) : 0);
    if (sim_chance(sim, w->tail_permille + w->loss_permille)) delay += sim_random(sim, 1, 200) * MS; /* sent again */
    frame->due_us = sim->now_us + delay > there->due_us ? sim->now_us + delay : there->due_us;
    there->due_us = frame->due_us;
    *there->last = frame;
    there->last = &frame->next;
    sim->frames_sent++;
    sim_mix_bytes(sim, bytes, size);
    TRACE(sim, "s%u -> s%u frame %u, %zu bytes", from + 1, to + 1, type, size);
    sim_schedule(sim, frame->due_us - sim->now_us, EVENT_FRAMES, to, from, NULL);
}

void links_arrive(struct server *server, uint32_t from) {
    struct sim *sim = server->sim;
    struct peer_link *c = view(sim, server->slot, from);
    while (server->up && c->first && c->first->due_us <= sim->now_us) {
        struct frame *frame = c->first;
        bool counts = c->up && frame->epoch == c->epoch;
        if (counts && sim->cut[from][server->slot]) { /* held back until the cut is mended, or noticed */
            sim_schedule(sim, 10 * MS, EVENT_FRAMES, server->slot, from, NULL);
            return;
        }
        c->first = frame->next;
        if (!c->first) c->last = &c->first;
        if (counts)
            CHECK(forwarding_frame(server->forwarding, from + 1, frame->type, slice_make(frame->bytes, frame->size),
                                   server_now_ms(server)));
        free(frame);
        server_turn(server);
    }
}

/* Has it ended, and does this side know by now? */
static bool noticed(struct sim *sim, uint32_t whose, uint32_t with) {
    struct peer_link *c = view(sim, whose, with);
    const struct peer_link *other = view(sim, with, whose);
    if (sim->cut[whose][with] || sim->cut[with][whose]) {
        if (c->cut_since_us == 0) c->cut_since_us = sim->now_us;
        return sim->now_us - c->cut_since_us >= c->patience_us;
    }
    c->cut_since_us = 0;
    bool ended = sim->servers[with]->incarnation != c->peer_incarnation || !other->up || other->epoch != c->epoch;
    return ended && sim_chance(sim, 500);
}

static void ends(struct server *server, uint32_t with) {
    view(server->sim, server->slot, with)->up = false;
    TRACE(server->sim, "s%u: the connection with s%u ended", server->slot + 1, with + 1);
    forwarding_down(server->forwarding, with + 1);
    struct raft_event event = {.type = RAFT_UNREACHABLE, .u.unreachable.peer = with + 1};
    server_step(server, &event);
}

static bool able(const struct server *server) { return server->up && server->paused_until_us <= server->sim->now_us; }

static void begin_view(struct sim *sim, uint32_t whose, uint32_t with) {
    struct peer_link *c = view(sim, whose, with);
    frames_free(c);
    c->up = true;
    c->epoch = sim->link_epoch;
    c->peer_incarnation = sim->servers[with]->incarnation;
    c->cut_since_us = 0;
    c->due_us = 0;
    c->patience_us = sim_random(sim, 300, 3000) * MS;
}

static void connect_with(struct server *server, uint32_t with) {
    struct sim *sim = server->sim;
    uint32_t here = server->slot;
    if (!able(sim->servers[with]) || view(sim, with, here)->up || sim->cut[here][with] || sim->cut[with][here] ||
        !sim_chance(sim, 700))
        return;
    sim->link_epoch++;
    begin_view(sim, here, with);
    begin_view(sim, with, here);
}

/* The program finds it out by hearing nobody. */
static bool cut_off(const struct server *server) {
    const struct sim *sim = server->sim;
    uint32_t heard = 0;
    for (uint32_t from = 0; from < sim->server_count; from++)
        heard += from == server->slot || !sim->cut[from][server->slot];
    return raft_leader(server->raft) == 0 && heard <= sim->server_count / 2;
}

/* Every now and then, as the program's timer of 100 ms. */
void links_beat(struct server *server) {
    struct sim *sim = server->sim;
    for (uint32_t with = 0; with < sim->server_count && server->up; with++) {
        if (with == server->slot) continue;
        if (view(sim, server->slot, with)->up) {
            if (noticed(sim, server->slot, with)) ends(server, with);
        } else {
            connect_with(server, with);
        }
    }
    server->requests.cut_off = cut_off(server);
    forwarding_leader(server->forwarding, raft_leader(server->raft), server->requests.cut_off, server_now_ms(server));
    sim_schedule(sim, sim_random(sim, 20, 100) * MS, EVENT_BEAT, server->slot, 0, NULL);
}

void links_gone(struct server *server) {
    for (uint32_t with = 0; with < SIM_SERVERS_MAX; with++) server->sim->links[server->slot][with].up = false;
}

void links_free(struct sim *sim) {
    for (uint32_t i = 0; i < SIM_SERVERS_MAX; i++)
        for (uint32_t j = 0; j < SIM_SERVERS_MAX; j++) frames_free(&sim->links[i][j]);
}
