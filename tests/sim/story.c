#include "tests/sim/story.h"

#include "base/check.h"
#include "registry/machine.h"

bool story_step(struct sim *s, uint64_t end_us) {
    if (s->failed) return false;
    if (s->heap_count == 0 || s->heap[0].at_us > end_us) {
        s->now_us = end_us;
        return false;
    }
    return sim_step(s);
}

/* -- scene -- */

void story_begin(struct sim *s, uint32_t voters) { cluster_found(s, voters, true); }

struct server *story_server(struct sim *s) {
    struct server *server = server_new(s);
    server_start(server);
    return server;
}

struct server *story_leader(struct sim *s) {
    struct server *leader = NULL;
    if (WITHIN(s, 10000, (leader = sim_leader(s)) != NULL && raft_leader_ready(leader->raft))) return leader;
    sim_violation(s, RULE_STORY, "no leader within 10 s");
    return NULL;
}

void story_only(struct sim *s, const struct server *server) {
    uint32_t votes = 1u << RAFT_MSG_PREVOTE | 1u << RAFT_MSG_VOTE;
    for (uint32_t from = 0; from < s->server_count; from++)
        for (uint32_t to = 0; to < s->server_count; to++)
            if (!server || from == server->slot) s->mute[from][to] &= ~votes;
            else s->mute[from][to] |= votes;
}

void story_all_may(struct sim *s) { story_only(s, NULL); }

bool story_elect_raw(struct sim *s, struct server *server) {
    story_only(s, server);
    for (uint32_t i = 0; i < s->server_count; i++) {
        struct server *other = s->servers[i];
        if (other == server || !server_leads(other)) continue;
        struct raft_event event = {.type = RAFT_STEP_DOWN, .u.step_down.quiet_ms = 500};
        server_step(other, &event);
    }
    return WITHIN(s, 20000, server_leads(server) && sim_leader(s) == server);
}

bool story_elect(struct sim *s, struct server *server) {
    return story_elect_raw(s, server) && WITHIN(s, 10000, server_leads(server) && raft_leader_ready(server->raft));
}

bool story_agree(struct sim *s) { return WITHIN(s, 5000, cluster_converged(s)); }

struct server *story_other(struct sim *s, const struct server *a, const struct server *b) {
    for (uint32_t i = 0; i < s->server_count; i++)
        if (s->servers[i] != a && s->servers[i] != b) return s->servers[i];
    UNREACHABLE();
}

/* -- breaking things -- */

static void links(struct sim *s, const struct server *server, bool cut) {
    for (uint32_t i = 0; i < s->server_count; i++) {
        network_cut(s, server->slot, i, cut);
        network_cut(s, i, server->slot, cut);
    }
}

void story_isolate(struct sim *s, const struct server *server) { links(s, server, true); }
void story_join(struct sim *s, const struct server *server) { links(s, server, false); }

void story_cut(struct sim *s, const struct server *a, const struct server *b) {
    network_cut(s, a->slot, b->slot, true);
    network_cut(s, b->slot, a->slot, true);
}

void story_mute(struct sim *s, const struct server *from, const struct server *to, enum raft_message_type type,
                bool mute) {
    uint32_t *bits = &s->mute[from->slot][to->slot];
    *bits = mute ? *bits | 1u << type : *bits & ~(1u << type);
}

void story_restart(struct server *server, enum crash how) {
    server_crash(server, how);
    server_start(server);
}

void story_hold_disk(struct server *server, bool held) {
    server->mood.held = held;
    if (!held && server->up) storage_kick(server);
}

void story_slow_disk(struct server *server, uint64_t delay_ms) {
    server->mood.delay_us = delay_ms * MS;
    server->mood.delay_span_us = delay_ms * MS / 2;
}

void story_snapshot(struct sim *s, struct server *server) {
    uint64_t before = server->snapshots_taken;
    EXPECT(s, WITHIN(s, 5000, server->machine.applied == raft_applied_index(server->raft)));
    EXPECT(s, server->machine.applied > raft_snapshot_index(server->raft));
    storage_copy_begin(server);
    EXPECT(s, WITHIN(s, 5000, server->snapshots_taken > before));
}

/* -- clients -- */

uint64_t ask(struct sim *s, const struct server *server, const struct op *op) {
    uint64_t id = op_new(s, SIM_STORY, server->slot, op);
    op_send(s, id);
    return id;
}

static uint64_t on_a_key(struct sim *s, const struct server *server, enum kv_kind kind, uint32_t size, bool stale) {
    struct op op = {.stale = stale};
    kv_op(&op, kind, (uint32_t)(s->op_count + 1) % (SIM_KEYS - SIM_LOCKS), size);
    return ask(s, server, &op);
}

uint64_t put_sized(struct sim *s, const struct server *server, uint32_t size) {
    return on_a_key(s, server, KV_PUT, size, false);
}
uint64_t put(struct sim *s, const struct server *server) { return put_sized(s, server, 40); }
uint64_t get(struct sim *s, const struct server *server) { return on_a_key(s, server, KV_GET, 0, false); }
uint64_t get_stale(struct sim *s, const struct server *server) { return on_a_key(s, server, KV_GET, 0, true); }
bool story_founded(struct sim *s, const struct server *server) {
    struct op op = {0};
    version_op(&op);
    if (!version_founded(s)) ask(s, server, &op);
    return WITHIN(s, 5000, machine_cluster(server->machine.machine) != 0);
}

bool done(struct sim *s, uint64_t op) { return op_get(s, op)->state == OP_DONE; }
bool refused(struct sim *s, uint64_t op) { return op_get(s, op)->state == OP_REFUSED; }

bool put_many(struct sim *s, const struct server *server, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        uint64_t op = put_sized(s, server, 100 + i % 100);
        if (!WITHIN(s, 5000, done(s, op))) return false;
    }
    return true;
}

/* -- the leader is asked -- */

int change(struct server *leader, enum raft_change_type type, const struct server *server) {
    struct raft_event event = {.type = RAFT_CHANGE,
                               .u.change = {.type = type, .id = server->id, .address = "10.0.0.9:8300"}};
    server_flush(leader);
    int rv = server_step(leader, &event);
    server_flush(leader);
    return rv;
}

bool is_member(const struct server *at, const struct server *who) {
    return raft_members_find(raft_members(at->raft), who->id);
}

bool is_voter(const struct server *at, const struct server *who) {
    const struct raft_member *member = raft_members_find(raft_members(at->raft), who->id);
    return member && member->voter;
}

bool member_added(struct sim *s, struct server *leader, struct server *server) {
    if (change(leader, RAFT_ADD_LEARNER, server) != CO_OK) return false;
    if (!WITHIN(s, 5000, raft_members_committed(leader->raft))) return false;
    if (!WITHIN(s, 5000, raft_match_index(leader->raft, server->id) == raft_last_index(leader->raft))) return false;
    if (change(leader, RAFT_PROMOTE, server) != CO_OK) return false;
    return WITHIN(s, 5000, raft_members_committed(leader->raft));
}

int transfer_to(struct server *leader, const struct server *target) {
    struct raft_event event = {.type = RAFT_TRANSFER, .u.transfer.target = target->id};
    return server_step(leader, &event);
}

/* -- the end -- */

void story_end(struct sim *s) {
    if (s->failed) return;
    cluster_settle(s);
    if (!s->failed) check_at_end(s);
}
