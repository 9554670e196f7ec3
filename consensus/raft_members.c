/* Configurations and their changes (4.1: one server at a time, so that any two majorities overlap). */
#include "consensus/raft_internal.h"

const struct raft_members *members_now(const struct raft *raft) {
    CHECK(raft->members.count > 0);
    return &raft->members.items[raft->members.count - 1].members;
}

bool members_is_voter(const struct raft *raft, uint64_t id) {
    const struct raft_member *member = raft_members_find(members_now(raft), id);
    return member && member->voter;
}

/* A server that the newest entry of its log removes goes on campaigning until that entry has committed: without it
 * the others may lack the majority to commit it (4.2.2). */
bool members_may_lead(const struct raft *raft) {
    if (members_is_voter(raft, raft->config.id)) return true;
    size_t count = raft->members.count;
    if (count < 2 || raft_members_committed(raft)) return false;
    const struct raft_member *member = raft_members_find(&raft->members.items[count - 2].members, raft->config.id);
    return member && member->voter;
}

unsigned members_quorum(const struct raft *raft) { return raft_members_voters(members_now(raft)) / 2 + 1; }

void members_reset(struct raft *raft, const struct raft_snapshot_meta *meta) {
    raft->members.count = 0;
    struct members_at *at = vector_push(&raft->members);
    at->index = meta->members_index;
    at->members = meta->members;
}

void members_note(struct raft *raft, const struct raft_entry *entry) {
    struct members_at *at = vector_push(&raft->members);
    at->index = entry->index;
    /* The bytes come from us or from a leader, and bytes that do not decode were refused before. */
    CHECK(raft_members_decode(raft_entry_bytes(entry), &at->members) == CO_OK);
    raft->effects.members_changed = true;
    if (raft->role == RAFT_LEADER) progress_sync(raft);
}

void members_cut(struct raft *raft, uint64_t from) {
    while (raft->members.count > 1 && raft->members.items[raft->members.count - 1].index >= from) {
        raft->members.count--;
        raft->effects.members_changed = true;
    }
}

/* Forgets configurations that were replaced at or before `index` (now in a snapshot). */
void members_compact(struct raft *raft, uint64_t index) {
    size_t drop = 0;
    while (drop + 1 < raft->members.count && raft->members.items[drop + 1].index <= index) drop++;
    raft->members.count -= drop;
    memmove(raft->members.items, raft->members.items + drop, raft->members.count * sizeof *raft->members.items);
}

const struct raft_members *raft_members_at(const struct raft *raft, uint64_t index, uint64_t *members_index) {
    CHECK(index >= raft->snapshot.index && index <= log_last_index(raft));
    const struct members_at *at = &raft->members.items[0];
    for (size_t i = 1; i < raft->members.count && raft->members.items[i].index <= index; i++)
        at = &raft->members.items[i];
    *members_index = at->index;
    return &at->members;
}

static bool set_address(struct raft_member *member, const char *address) {
    if (!address || strlen(address) >= RAFT_ADDRESS_MAX) return false;
    memset(member->address, 0, sizeof member->address);
    memcpy(member->address, address, strlen(address));
    return true;
}

static int apply_change(const struct raft *raft, struct raft_members *members, const struct raft_event *event) {
    uint64_t id = event->u.change.id;
    struct raft_member *member = (struct raft_member *)raft_members_find(members, id);
    switch (event->u.change.type) {
        case RAFT_ADD_LEARNER:
            if (member || id == 0 || members->count == RAFT_MEMBERS_MAX) return CO_INVALID;
            member = &members->member[members->count++];
            *member = (struct raft_member){.id = id};
            return set_address(member, event->u.change.address) ? CO_OK : CO_INVALID;
        case RAFT_PROMOTE: {
            if (!member || member->voter || !progress_find((struct raft *)raft, id)) return CO_INVALID;
            if (!raft_caught_up(raft, id)) return CO_AGAIN;
            member->voter = true;
            return CO_OK;
        }
        case RAFT_REMOVE:
            if (!member || (member->voter && raft_members_voters(members) == 1)) return CO_INVALID;
            *member = members->member[--members->count];
            members->member[members->count] = (struct raft_member){0};
            return CO_OK;
        case RAFT_READDRESS: return member && set_address(member, event->u.change.address) ? CO_OK : CO_INVALID;
    }
    return CO_INVALID;
}

/* See 4.2.1. A peer that never acknowledged anything has not caught up, however short the log is: it may only have said
 * hello. */
bool raft_caught_up(const struct raft *raft, uint64_t peer) {
    uint64_t match = raft_match_index(raft, peer);
    return match > 0 && match + raft->config.promote_lag_max >= log_last_index(raft);
}

int members_change(struct raft *raft, struct raft_event *event) {
    if (raft->role != RAFT_LEADER) return CO_NOTLEADER;
    if (!raft_members_committed(raft) || !raft_leader_ready(raft) || raft->transfer_target) return CO_BUSY;
    struct raft_members members = *members_now(raft);
    int rv = apply_change(raft, &members, event);
    if (rv != CO_OK) return rv;
    struct buffer bytes = {0};
    raft_members_encode(&members, &bytes);
    struct raft_entry entry = {.index = log_last_index(raft) + 1,
                               .term = raft->term,
                               .type = RAFT_ENTRY_MEMBERS,
                               .data = raft_data_new(bytes.data, bytes.size)};
    buffer_free(&bytes);
    event->u.change.index = entry.index;
    log_append(raft, &entry);
    CHECK(raft_members_index(raft) == entry.index); /* it counts from now on */
    commit_advance(raft);
    return CO_OK;
}
