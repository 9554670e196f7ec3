#include "rpc/cluster/cluster.h"

#include <stdio.h>

struct cluster_found cluster_may_found(const struct peer_info *self, const struct peer_info *peers, size_t count) {
    struct cluster_found found = {0};
    const struct peer_info *all[PEERS_MAX + 1] = {self};
    size_t seen = 1;
    if (self->has_log || self->expect == 0 || self->expect > RAFT_MEMBERS_MAX) return found;
    for (size_t i = 0; i < count; i++) {
        if (peers[i].has_log) return found; /* there is a cluster: wait until it lets this server in */
        if (!peers[i].connected || peers[i].expect != self->expect) continue;
        size_t at = seen++; /* by rising id */
        for (; at > 0 && all[at - 1]->id > peers[i].id; at--) all[at] = all[at - 1];
        all[at] = &peers[i];
    }
    if (seen < self->expect || all[0] != self) return found;
    found.found = true;
    for (size_t i = 0; i < self->expect; i++) {
        struct raft_member *member = &found.members.member[found.members.count++];
        *member = (struct raft_member){.id = all[i]->id, .voter = true};
        snprintf(member->address, sizeof member->address, "%s", all[i]->address);
    }
    return found;
}

static const struct peer_info *peer_of(const struct peer_info *peers, size_t count, uint64_t id) {
    for (size_t i = 0; i < count; i++)
        if (peers[i].id == id && peers[i].connected) return &peers[i];
    return NULL;
}

static bool is_somebodys(const struct raft_members *members, const char *address) {
    for (uint32_t i = 0; i < members->count; i++)
        if (strcmp(members->member[i].address, address) == 0) return true;
    return false;
}

static bool has_moved(const struct raft_members *members, const struct peer_info *peer) {
    const struct raft_member *member = raft_members_find(members, peer->id);
    return member && peer->connected && strcmp(member->address, peer->address) != 0 &&
           !is_somebodys(members, peer->address);
}

static struct cluster_change next_move(const struct raft_members *members, const struct peer_info *self,
                                       const struct peer_info *peers, size_t count) {
    const struct peer_info *moved = has_moved(members, self) ? self : NULL;
    for (size_t i = 0; i < count && !moved; i++)
        if (has_moved(members, &peers[i])) moved = &peers[i];
    if (!moved) return (struct cluster_change){0};
    return (struct cluster_change){true, RAFT_READDRESS, moved->id, moved->address};
}

struct cluster_change cluster_next_change(const struct raft_members *members, const bool *caught_up,
                                          const struct peer_info *self, const struct peer_info *peers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!peers[i].connected || raft_members_find(members, peers[i].id)) continue;
        for (uint32_t k = 0; k < members->count; k++) {
            const struct raft_member *member = &members->member[k];
            if (member->id != self->id && strcmp(member->address, peers[i].address) == 0 &&
                !peer_of(peers, count, member->id))
                return (struct cluster_change){true, RAFT_REMOVE, member->id, NULL};
        }
        return (struct cluster_change){true, RAFT_ADD_LEARNER, peers[i].id, peers[i].address};
    }
    for (uint32_t k = 0; k < members->count; k++) {
        const struct raft_member *member = &members->member[k];
        if (!member->voter && caught_up[k] && peer_of(peers, count, member->id))
            return (struct cluster_change){true, RAFT_PROMOTE, member->id, NULL};
    }
    return next_move(members, self, peers, count);
}

bool cluster_cut_off(const struct raft_members *members, uint64_t self, const uint64_t *last_seen_ms,
                     uint64_t since_ms) {
    uint32_t voters = 0, heard = 0;
    bool votes = false;
    for (uint32_t i = 0; i < members->count; i++) {
        if (!members->member[i].voter) continue;
        bool here = members->member[i].id == self;
        votes |= here;
        voters++, heard += here || last_seen_ms[i] >= since_ms;
    }
    return votes && heard <= voters / 2;
}
