#include "rpc/cluster/waiting.h"

#define REASONS_MAX 8

bool waiting_due(struct waiting_clock *clock, bool waits, bool founded, uint64_t now_ms) {
    if (!waits) *clock = (struct waiting_clock){0};
    else if (!clock->since_ms) clock->since_ms = now_ms;
    if (!waits || now_ms - clock->since_ms < WAITING_TELL_MS) return false;
    uint64_t every_ms = founded ? WAITING_TELL_LOST_MS : WAITING_TELL_MS;
    if (clock->told_ms && now_ms - clock->told_ms < every_ms) return false;
    clock->told_ms = now_ms;
    return true;
}

/* -- founding ----------------------------------------------------------------------------------------------------- */
static bool counts(const struct waiting *waiting, size_t i) {
    return !waiting->peers[i].has_log && waiting->peers[i].expect == waiting->self->expect;
}

static const struct peer_info *of_a_cluster(const struct waiting *waiting) {
    for (size_t i = 0; i < waiting->peer_count; i++)
        if (waiting->peers[i].has_log) return &waiting->peers[i];
    return NULL;
}

static void say_peers(const struct waiting *waiting, struct buffer *out) {
    uint32_t here = waiting->self->expect;
    for (size_t i = 0; i < waiting->peer_count; i++) {
        const struct peer_info *peer = &waiting->peers[i];
        if (peer->has_log || counts(waiting, i)) continue;
        if (peer->expect) buffer_printf(out, "; %s expects %u, here %u", peer->node, peer->expect, here);
        else buffer_printf(out, "; %s expects none (it has no -bootstrap-expect), here %u", peer->node, here);
    }
}

static void say_founding(const struct waiting *waiting, struct buffer *out) {
    const struct peer_info *founder = waiting->self, *self = waiting->self;
    uint32_t seen = 1;
    for (size_t i = 0; i < waiting->peer_count; i++) {
        if (!counts(waiting, i)) continue;
        seen++;
        if (waiting->peers[i].id < founder->id) founder = &waiting->peers[i];
    }
    buffer_printf(out, "waiting for servers: %u of %u seen", seen, self->expect);
    if (seen >= self->expect && founder != self) buffer_printf(out, "; %s is to found the cluster", founder->node);
    else if (seen >= self->expect) buffer_append_text(out, "; this one is to found the cluster");
    if (seen < self->expect && waiting->address_count == 0)
        buffer_append_text(out, "; no other address is known (-retry-join=HOST names one)");
}

static void say_joining(const struct waiting *waiting, struct buffer *out) {
    if (waiting->address_count == 0 && waiting->peer_count == 0) {
        buffer_append_text(
            out,
            "this server has nobody to join, and is not to found a cluster: give it -retry-join=HOST of "
            "a server of its cluster, or -bootstrap-expect=N (on each of N new servers; 1: it is alone)");
        return;
    }
    buffer_append_text(out,
                       "waiting for servers: none of a cluster is seen, and this one founds none (it has no "
                       "-bootstrap-expect)");
    for (size_t i = 0; i < waiting->peer_count; i++)
        if (waiting->peers[i].expect)
            buffer_printf(out, "; %s waits for %u", waiting->peers[i].node, waiting->peers[i].expect);
        else buffer_printf(out, "; %s has no -bootstrap-expect either", waiting->peers[i].node);
}

/* -- of a cluster ------------------------------------------------------------------------------------------------- */
static bool connected(const struct waiting *waiting, uint64_t id) {
    for (size_t i = 0; i < waiting->peer_count; i++)
        if (waiting->peers[i].id == id) return true;
    return id == waiting->self->id;
}

static void say_lost(const struct waiting *waiting, struct buffer *out) {
    uint32_t voters = 0, seen = 0;
    for (uint32_t i = 0; i < waiting->members->count; i++) {
        const struct raft_member *member = &waiting->members->member[i];
        voters += member->voter;
        seen += member->voter && connected(waiting, member->id);
    }
    buffer_append_text(out, "no leader is known");
    if (!raft_members_find(waiting->members, waiting->self->id))
        buffer_append_text(out, ": this server is no member of the cluster (it was removed, or was not taken in yet)");
    else buffer_printf(out, ": %u of %u that vote are connected", seen, voters);
}

/* -- addresses ---------------------------------------------------------------------------------------------------- */
static void say_addresses(const struct waiting *waiting, struct buffer *out) {
    size_t said = 0, more = 0;
    for (size_t i = 0; i < waiting->address_count; i++) {
        const struct peers_address *at = &waiting->addresses[i];
        if (at->connected || at->reach.what == REACH_SELF || at->reach.what == REACH_MET) continue;
        if (waiting->self->has_log && at->reach.what == REACH_UNWANTED) continue; /* mostly because it was removed */
        if (said++ >= REASONS_MAX) {
            more++;
            continue;
        }
        buffer_append_text(out, "; ");
        reach_say(&at->reach, at->name, waiting->port, out);
    }
    if (more) buffer_printf(out, "; and %zu more", more);
}

void waiting_say(const struct waiting *waiting, struct buffer *out) {
    const struct peer_info *taker = of_a_cluster(waiting);
    if (waiting->self->has_log) say_lost(waiting, out);
    else if (taker) buffer_printf(out, "waiting to be taken in by the cluster of %s", taker->node);
    else if (waiting->self->expect) say_founding(waiting, out);
    else say_joining(waiting, out);
    say_addresses(waiting, out);
    if (!waiting->self->has_log && !taker && waiting->self->expect) say_peers(waiting, out);
}
