/* The cluster as a whole: its founding, its healing, and whether all agree in the end. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tests/sim/module.h"
#include "tests/sim/story.h"

#define SETTLE_US (30 * 1000 * (uint64_t)MS)

void cluster_found(struct sim *sim, uint32_t voters, bool on_disk) {
    struct raft_members members = {.count = voters};
    CHECK(voters >= 1 && voters <= SIM_SERVERS_MAX);
    for (uint32_t i = 0; i < voters; i++) {
        members.member[i].id = i + 1;
        members.member[i].voter = true;
        snprintf(members.member[i].address, sizeof members.member[i].address, "10.0.0.%u:8300", i + 1);
    }
    for (uint32_t i = 0; i < voters; i++) {
        struct server *server = server_new(sim);
        if (on_disk) server_found(server, &members);
        else server->founders = members;
    }
    for (uint32_t i = 0; i < voters; i++) server_start(sim->servers[i]);
}

void cluster_heal(struct sim *sim) {
    TRACE(sim, "all is healed");
    network_heal(sim);
    sim->network = (struct network){.delay_us = 200, .delay_span_us = 2 * MS, .ordered = true};
    for (uint32_t i = 0; i < sim->server_count; i++) {
        struct server *server = sim->servers[i];
        server->paused_until_us = 0;
        server->mood = (struct disk_mood){.delay_us = 100, .delay_span_us = 2 * MS};
        fake_disk_set_capacity(server->disk, 0);
        fake_disk_fail(server->disk, 0, 0, 0);
        fake_disk_halt_after(server->disk, 0);
        if (!server->up) server_restart_after(server, sim_random(sim, 0, 100) * MS);
        else storage_kick(server);
    }
}

void cluster_print(struct sim *sim, FILE *out) {
    static const char *const roles[] = {"follower", "precandidate", "candidate", "leader"};
    const struct server *leader = sim_leader(sim);
    for (uint32_t i = 0; i < sim->server_count; i++) {
        const struct server *server = sim->servers[i];
        fprintf(out, "sim:   s%u ", i + 1);
        if (!server->up) {
            fprintf(out, "down; disk: term %" PRIu64 " vote %" PRIu64 " snapshot %" PRIu64 " log ..%" PRIu64 "\n",
                    server->durable_term, server->durable_vote, server->snapshot_index,
                    log_terms_last(&server->durable));
            continue;
        }
        const struct raft *raft = server->raft;
        fprintf(out,
                "%s term %" PRIu64 " of s%" PRIu64 ", log ..%" PRIu64 "/%" PRIu64 " on disk ..%" PRIu64
                " commit %" PRIu64 " applied %" PRIu64 " snapshot %" PRIu64,
                roles[raft_role(raft)], raft_term(raft), raft_leader(raft), raft_last_index(raft), raft_last_term(raft),
                raft_stable_index(raft), raft_commit_index(raft), server->machine.applied, raft_snapshot_index(raft));
        const struct raft_member *member = leader ? raft_members_find(raft_members(leader->raft), server->id) : NULL;
        if (leader && leader != server)
            fprintf(out, " known to have ..%" PRIu64, raft_match_index(leader->raft, server->id));
        fprintf(out, "%s\n", !leader ? "" : !member ? ", no member" : !member->voter ? ", learner" : "");
    }
}

static bool server_settled(const struct server *server, const struct server *leader) {
    return server->up && server->machine.applied == raft_last_index(leader->raft) &&
           raft_commit_index(server->raft) == raft_last_index(leader->raft) &&
           raft_leader(server->raft) == leader->id && raft_term(server->raft) == raft_term(leader->raft);
}

bool cluster_converged(struct sim *sim) {
    const struct server *leader = sim_leader(sim);
    if (!leader || !raft_leader_ready(leader->raft) || !raft_members_committed(leader->raft)) return false;
    const struct raft_members *members = raft_members(leader->raft);
    for (uint32_t i = 0; i < members->count; i++)
        if (!server_settled(sim->servers[members->member[i].id - 1], leader)) return false;
    for (uint32_t i = 0; i < members->count; i++) {
        const struct replica *machine = &sim->servers[members->member[i].id - 1]->machine;
        if (machine->sum != leader->machine.sum)
            sim_violation(sim, RULE_STATE, "s%" PRIu64 " and s%u differ at %" PRIu64, members->member[i].id,
                          leader->slot + 1, machine->applied);
    }
    return true;
}

static void wait_converged(struct sim *sim, const char *when) {
    uint64_t end = sim->now_us + SETTLE_US;
    while (!sim->failed && sim->now_us < end && !(clients_idle(sim) && cluster_converged(sim))) sim_run(sim, 10 * MS);
    if (sim->failed || sim->now_us < end) return;
    const struct server *leader = sim_leader(sim);
    sim_violation(sim, RULE_CONVERGE, "no agreement within %u s %s; leader: s%u%s", (unsigned)(SETTLE_US / 1000 / MS),
                  when, leader ? leader->slot + 1 : 0, leader && !raft_leader_ready(leader->raft) ? ", not ready" : "");
}

/* Nobody renews any more: everything that ends by itself does, by the slowest clock a little after its time. */
static void wait_expiring(struct sim *sim) {
    uint64_t longest_ms = expiring_longest_ms(sim);
    uint64_t wait_us = longest_ms * 1200 + 2000 * 1000, end = sim->now_us + wait_us, last = sim->now_us + 4 * wait_us,
             term = 0;
    while (!sim->failed && sim->now_us < end && !expiring_over(sim)) {
        const struct server *leader = sim_leader(sim);
        uint64_t now_term = leader ? raft_term(leader->raft) : 0;
        /* a degraded disk hands over, and a new leader grants a full period */
        if (now_term != term) term = now_term, end = sim->now_us + wait_us;
        if (end > last) end = last;
        sim_run(sim, 10 * MS);
    }
    if (!sim->failed && !expiring_over(sim))
        sim_violation(sim, RULE_LEASE,
                      "all is well, nobody renews, and something that ends by itself has not for %" PRIu64 " ms",
                      longest_ms * 1200 / 1000 + 2000);
}

/* One write or read gets through, to whoever leads; a hand-over that is under way may refuse the first ones. */
static void last_word(struct sim *sim, bool read) {
    uint64_t end = sim->now_us + SETTLE_US, op = 0;
    while (!sim->failed && sim->now_us < end) {
        const struct server *leader = sim_leader(sim);
        if (op != 0 && op_get(sim, op)->state == OP_DONE) return;
        if (leader && (op == 0 || op_get(sim, op)->state != OP_WAITING))
            op = read ? get(sim, leader) : put(sim, leader);
        sim_run(sim, 10 * MS);
    }
    sim_violation(sim, RULE_CONVERGE, "after all was healed a %s is not answered", read ? "read" : "write");
}

void cluster_settle(struct sim *sim) {
    if (sim->failed) return;
    clients_stop(sim);
    cluster_heal(sim);
    wait_converged(sim, "of healing");
    if (sim->failed) return;
    wait_expiring(sim);
    last_word(sim, false);
    last_word(sim, true);
    wait_converged(sim, "of the last write");
}
