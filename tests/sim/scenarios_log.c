/* Log and disk. */
#include "tests/sim/story.h"

void scenario_leader_counts_durable_only(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *away = s->servers[2];
    story_hold_disk(leader, true);
    story_isolate(s, away);
    uint64_t before = raft_commit_index(leader->raft), op = put(s, leader);
    /* One follower's disk has it, and the leader's memory: that is one of three. */
    EXPECT(s, NEVER_IN(s, 150, raft_commit_index(leader->raft) > before));
    story_join(s, away);
    EXPECT(s, WITHIN(s, 1000, raft_commit_index(leader->raft) > before)); /* two followers will do */
    EXPECT(s, NEVER_IN(s, 100, done(s, op)));                             /* applied is only what is durable here */
    story_hold_disk(leader, false);
    EXPECT(s, WITHIN(s, 1000, done(s, op)));
    story_all_may(s);
    story_end(s);
}

/* The followers get the entry, the leader's own disk refuses it: whoever leads next decides what becomes of it. */
void scenario_append_fails_after_send(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL && put_many(s, leader, 3));
    uint64_t lives = leader->restarts;
    story_slow_disk(leader, 30);
    fake_disk_fail(leader->disk, sim_chance(s, 500) ? FAKE_SYNC : FAKE_WRITE, 1, CO_IO);
    uint64_t first = put(s, leader), second = put(s, leader);
    EXPECT(s, WITHIN(s, 500, !server_leads(leader)));
    EXPECT(s, !done(s, first) && !done(s, second));
    EXPECT(s, WITHIN(s, 3000, leader->restarts > lives));
    leader = story_leader(s);
    EXPECT(s, leader != NULL && put_many(s, leader, 3));
    story_end(s);
}

/* No election timeout is waited for, and whose disk failed does not lead again soon. */
void scenario_failing_disk_hands_over(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]) && story_agree(s));
    struct server *leader = s->servers[0];
    EXPECT(s, put_many(s, leader, 3) && story_agree(s));
    story_all_may(s);
    fake_disk_fail(leader->disk, FAKE_SYNC, 1, CO_IO);
    put(s, leader);
    EXPECT(s, WITHIN(s, s->raft.election_ms / 2, server_leads(s->servers[1]) || server_leads(s->servers[2])));
    EXPECT(s, WITHIN(s, 1000, leader->up && leader->disk_health.degraded));
    struct server *next = sim_leader(s);
    EXPECT(s, next != NULL && put_many(s, next, 3));
    server_crash(next, CRASH_KILL);
    EXPECT(s, NEVER_IN(s, s->raft.election_ms, server_leads(leader)));
    story_all_may(s);
    story_end(s);
}

/* Not to the one whose disk has failed; nor on to anybody when the next disk is slow as well. */
void scenario_slow_disk_hands_over(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]) && story_agree(s));
    struct server *leader = s->servers[0], *well = s->servers[1], *failed = s->servers[2];
    EXPECT(s, put_many(s, leader, 3));
    story_all_may(s);
    uint64_t lives = failed->restarts;
    fake_disk_fail(failed->disk, FAKE_SYNC, 1, CO_IO);
    put(s, leader);
    EXPECT(s, WITHIN(s, 2000, failed->restarts > lives && failed->machine.applied == leader->machine.applied));
    story_slow_disk(leader, 2 * DISK_SLOW_MS);
    put(s, leader);
    EXPECT(s, WITHIN(s, 3 * DISK_SLOW_MS, server_leads(well)));
    EXPECT(s, !server_leads(failed) && WITHIN(s, 1000, !server_leads(leader)));
    story_slow_disk(well, 2 * DISK_SLOW_MS);
    put(s, well);
    EXPECT(s, WITHIN(s, 3 * DISK_SLOW_MS, well->disk_health.degraded));
    EXPECT(s, NEVER_IN(s, 5000, !server_leads(well)));
    story_slow_disk(leader, 0);
    story_slow_disk(well, 0);
    story_all_may(s);
    story_end(s);
}

void scenario_follower_append_fails(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *degraded = s->servers[1];
    story_isolate(s, s->servers[2]);
    EXPECT(s, put_many(s, leader, 3));
    uint64_t lives = degraded->restarts, before = raft_commit_index(leader->raft);
    fake_disk_fail(degraded->disk, sim_chance(s, 500) ? FAKE_SYNC : FAKE_WRITE, 1, CO_IO);
    uint64_t op = put(s, leader);
    EXPECT(s, WITHIN(s, 500, !degraded->up));
    EXPECT(s, raft_commit_index(leader->raft) == before && !done(s, op));
    EXPECT(s, WITHIN(s, 2000, degraded->restarts > lives));
    EXPECT(s, WITHIN(s, 5000, log_terms_last(&degraded->durable) > before));
    story_all_may(s);
    story_end(s);
}

/* The write of an entry of term t is still under way when the server follows the leader of t + 1, who has another
 * one. */
void scenario_late_results(struct sim *s) {
    story_begin(s, 3);
    struct server *a = s->servers[0], *b = s->servers[1];
    EXPECT(s, story_elect(s, a) && story_agree(s));
    story_isolate(s, a);
    story_slow_disk(a, 1500);
    uint64_t lost = put(s, a);
    EXPECT(s, WITHIN(s, 100, a->group != NULL));
    EXPECT(s, story_elect(s, b));
    EXPECT(s, put_many(s, b, 3));
    story_join(s, a);
    EXPECT(s, WITHIN(s, 1000, raft_term(a->raft) == raft_term(b->raft)));
    EXPECT(s, NEVER_IN(s, 3000, done(s, lost)));
    story_all_may(s);
    story_end(s);
    EXPECT(s, !done(s, lost));
}

/* Dies at each of its disk's operations in turn, with the machine or without. */
void scenario_torn_last_record(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *victim = s->servers[1];
    for (unsigned round = 0; round < 24; round++) {
        uint64_t lives = victim->restarts;
        fake_disk_halt_after(victim->disk, 1 + round % 6);
        while (!s->failed && victim->restarts == lives) EXPECT(s, put_many(s, leader, 1));
        EXPECT(s, WITHIN(s, 3000, victim->machine.applied == leader->machine.applied));
        if (round % 8 == 0) story_snapshot(s, victim);
    }
    story_all_may(s);
    story_end(s);
}

void scenario_power_loss_of_all(struct sim *s) {
    story_begin(s, 3);
    for (unsigned round = 0; round < 10; round++) {
        struct server *leader = story_leader(s);
        EXPECT(s, leader != NULL && put_many(s, leader, 5));
        for (unsigned i = 0; i < 5; i++) put(s, leader);
        sim_run(s, sim_random(s, 0, 6 * MS));
        for (uint32_t i = 0; i < 3; i++) server_crash(s->servers[i], CRASH_POWER);
        for (uint32_t i = 0; i < 3; i++) server_restart_after(s->servers[i], sim_random(s, 0, 400 * MS));
    }
    story_end(s);
}

/* The state machine's store survives a kill at whatever index it had reached. */
void scenario_replay_once(struct sim *s) {
    story_begin(s, 3);
    for (uint32_t i = 0; i < 3; i++) s->servers[i]->apply_delay_us = 20 * MS;
    for (unsigned round = 0; round < 12; round++) {
        struct server *leader = story_leader(s);
        EXPECT(s, leader != NULL);
        for (unsigned i = 0; i < 20; i++) put(s, leader);
        sim_run(s, sim_random(s, 1, 40) * MS);
        story_restart(s->servers[round % 3], CRASH_KILL);
        if (round == 6) story_snapshot(s, s->servers[round % 3]);
    }
    story_end(s);
}

void scenario_disk_full_leader(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL && put_many(s, leader, 5));
    fake_disk_set_capacity(leader->disk, fake_disk_used(leader->disk));
    uint64_t last = 0;
    for (unsigned i = 0; i < 2000 && !(last && refused(s, last)); i++) { /* what is reserved may still be used */
        last = put(s, leader);
        EXPECT(s, WITHIN(s, 1000, done(s, last) || refused(s, last)));
    }
    EXPECT(s, refused(s, last) && server_leads(leader));
    uint64_t stale = get_stale(s, leader), read = get(s, story_other(s, leader, NULL));
    EXPECT(s, WITHIN(s, 3000, done(s, stale) && done(s, read))); /* it may hand over meanwhile */
    fake_disk_set_capacity(leader->disk, 0);
    sim_run(s, 2 * ROOM_LOOK_MS * MS); /* it asks by itself */
    EXPECT(s, put_many(s, leader, 5));
    story_end(s);
}

void scenario_disk_full_follower(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *full = s->servers[1];
    fake_disk_set_capacity(full->disk, fake_disk_used(full->disk));
    EXPECT(s, put_many(s, leader, 400));
    EXPECT(s, full->machine.applied < leader->machine.applied);
    EXPECT(s, raft_leader(full->raft) == leader->id); /* it still follows, and can vote */
    fake_disk_set_capacity(full->disk, 0);
    EXPECT(s, WITHIN(s, 10000, full->machine.applied == leader->machine.applied));
    story_all_may(s);
    story_end(s);
}

/* The third server is away: without the answers of the one that takes nothing in, nobody would lead. */
void scenario_disk_full_follower_answers(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *full = s->servers[1], *third = s->servers[2];
    fake_disk_set_capacity(full->disk, fake_disk_used(full->disk));
    EXPECT(s, put_many(s, leader, 400));
    EXPECT(s, full->machine.applied < leader->machine.applied);
    unsigned restarts = full->restarts;
    uint64_t begun = s->sent_with_entries[leader->slot][full->slot];
    story_isolate(s, third);
    uint64_t early = put(s, leader); /* it does not know yet, and cannot say what becomes of this */
    EXPECT(s, WITHIN(s, 3000, op_get(s, early)->state != OP_WAITING) && !done(s, early));
    for (unsigned i = 0; i < 30; i++) {
        uint64_t read = get(s, leader);
        EXPECT(s, WITHIN(s, 1000, done(s, read)));
        sim_run(s, 100 * MS);
    }
    EXPECT(s, server_leads(leader) && full->restarts == restarts && full->disk_health.degraded);
    /* The leader sends entries that the follower cannot take again with heartbeats only. */
    EXPECT(s, s->sent_with_entries[leader->slot][full->slot] - begun <= 3000 / s->raft.heartbeat_ms + 40);
    uint64_t write = put(s, leader); /* there is room, but on no majority */
    EXPECT(s, WITHIN(s, 500, refused(s, write)));
    fake_disk_set_capacity(full->disk, 0);
    EXPECT(s, WITHIN(s, 2000, full->machine.applied == leader->machine.applied));
    sim_run(s, 2 * ROOM_LOOK_MS * MS); /* it asks, and the leader hears of it */
    EXPECT(s, put_many(s, leader, 5));
    story_join(s, third);
    story_all_may(s);
    story_end(s);
}

/* More than there is room for, while the disk has not yet written the first of it. */
void scenario_disk_full_burst(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0];
    EXPECT(s, put_many(s, leader, 5));
    unsigned restarts = leader->restarts;
    fake_disk_set_capacity(leader->disk, fake_disk_used(leader->disk));
    story_hold_disk(leader, true);
    uint64_t first = put(s, leader), last = first;
    for (unsigned i = 0; i < 500; i++) {
        last = put(s, leader);
        sim_run(s, 200);
    }
    story_hold_disk(leader, false);
    EXPECT(s, WITHIN(s, 3000, done(s, first) && refused(s, last)));
    sim_run(s, 1000 * MS);
    EXPECT(s, leader->restarts == restarts);
    fake_disk_set_capacity(leader->disk, 0);
    story_all_may(s);
    story_end(s);
}

/* A server that stands still for a moment takes in all that came meanwhile in one turn: the leader makes one append of
 * it, the follower gets several appends. */
static void appends_at_once(struct sim *s, struct server *follower, struct server *leader) {
    follower->paused_until_us = s->now_us + 40 * MS;
    for (unsigned append = 0; append < 8; append++) {
        leader->paused_until_us = s->now_us + 4 * MS;
        for (unsigned i = 0; i < 20; i++) put(s, leader);
        sim_run(s, 5 * MS);
    }
}

/* Each append that comes fits, all that come in one turn do not: some are taken in, and none of them in vain. */
void scenario_disk_full_turn(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *full = s->servers[1];
    for (unsigned round = 0; round < 5; round++) {
        unsigned restarts = full->restarts;
        fake_disk_set_capacity(full->disk, fake_disk_used(full->disk));
        for (unsigned i = 0; i < 50 && !full->disk_health.full; i++) {
            appends_at_once(s, full, leader);
            sim_run(s, 50 * MS);
        }
        EXPECT(s, full->disk_health.full);
        sim_run(s, 300 * MS);
        EXPECT(s, full->restarts == restarts);
        fake_disk_set_capacity(full->disk, 0);
        EXPECT(s, WITHIN(s, 5000, full->machine.applied == leader->machine.applied && !full->disk_health.full));
    }
    story_all_may(s);
    story_end(s);
}

/* Reserved space may still be used, but for the part that is kept for appends on their way. */
static bool put_until_refused(struct sim *s, const struct server *leader, uint32_t size) {
    uint64_t last = 0;
    for (unsigned i = 0; i < 2000 && !(last && refused(s, last)); i++) {
        last = put_sized(s, leader, size);
        if (!WITHIN(s, 3000, op_get(s, last)->state != OP_WAITING)) return false;
    }
    return refused(s, last);
}

#define LARGE 4000

/* One server is far behind, and has the only other vote: nothing can be committed, yet the new leader knows that it
 * has all that was. */
void scenario_full_disks_leader_lost(struct sim *s) {
    s->wal.segment_bytes = s->wal.first_segment_bytes = 1 << 20; /* of smaller ones nothing is left for votes */
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *behind = s->servers[1], *heir = s->servers[2];
    fake_disk_set_capacity(behind->disk, fake_disk_used(behind->disk));
    for (unsigned i = 0; i < 400 && leader->machine.applied < behind->machine.applied + 50; i++) {
        uint64_t op = put_sized(s, leader, LARGE);
        EXPECT(s, WITHIN(s, 5000, done(s, op)));
    }
    EXPECT(s, leader->machine.applied >= behind->machine.applied + 50);
    uint64_t read = get(s, behind); /* at once, for the leader can answer it */
    EXPECT(s, WITHIN(s, 1000, refused(s, read)));
    fake_disk_set_capacity(leader->disk, fake_disk_used(leader->disk));
    fake_disk_set_capacity(heir->disk, fake_disk_used(heir->disk));
    EXPECT(s, put_until_refused(s, leader, LARGE));
    EXPECT(s, WITHIN(s, 3000, heir->machine.applied == raft_last_index(leader->raft)));
    server_crash(leader, CRASH_KILL);
    story_all_may(s);
    EXPECT(s, WITHIN(s, 10000, server_leads(heir)));
    read = get(s, heir);
    EXPECT(s, WITHIN(s, 2000, done(s, read)));
    EXPECT(s, !raft_leader_ready(heir->raft));
    sim_run(s, 2 * s->raft.election_ms * MS); /* it counts on the lost one for so long */
    uint64_t write = put(s, heir);
    EXPECT(s, WITHIN(s, 2000, refused(s, write)));
    story_isolate(s, behind); /* what it has then is more than it knows to be committed, but the rest changes nothing */
    EXPECT(s, WITHIN(s, 5000, !server_leads(heir)));
    story_join(s, behind);
    EXPECT(s, WITHIN(s, 10000, server_leads(heir)));
    read = get(s, heir);
    EXPECT(s, WITHIN(s, 2000, done(s, read)));
    story_restart(heir, CRASH_KILL);
    EXPECT(s, WITHIN(s, 10000, server_leads(heir)));
    read = get(s, heir);
    EXPECT(s, WITHIN(s, 2000, done(s, read)));
    EXPECT(s, !raft_leader_ready(heir->raft));
    fake_disk_set_capacity(behind->disk, 0);
    EXPECT(s, WITHIN(s, 10000, raft_leader_ready(heir->raft) && behind->machine.applied == heir->machine.applied));
    fake_disk_set_capacity(leader->disk, 0);
    fake_disk_set_capacity(heir->disk, 0);
    server_restart_after(leader, 0);
    story_end(s);
}

/* A server that has no room for a vote any more does not make another one use up its own in elections that nobody can
 * win: when it has room again, that one leads. */
void scenario_votes_need_room(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *behind = s->servers[1], *heir = s->servers[2];
    fake_disk_set_capacity(behind->disk, fake_disk_used(behind->disk));
    EXPECT(s, put_many(s, leader, 400));
    EXPECT(s, behind->machine.applied < leader->machine.applied);
    fake_disk_set_capacity(heir->disk, fake_disk_used(heir->disk));
    server_crash(leader, CRASH_KILL);
    story_all_may(s);
    for (unsigned i = 0; i < 12 && WITHIN(s, 10000, server_leads(heir)); i++) story_restart(heir, CRASH_KILL);
    EXPECT(s, !server_leads(heir));
    sim_run(s, 30000 * MS);
    fake_disk_set_capacity(behind->disk, 0);
    EXPECT(s, WITHIN(s, 10000, server_leads(heir) && raft_leader_ready(heir->raft)));
    fake_disk_set_capacity(heir->disk, 0);
    server_restart_after(leader, 0);
    story_end(s);
}

/* The last writes are on some disks and not on others when all are killed: who has room for them takes them in, so
 * reads go on. */
void scenario_full_disks_all_killed(struct sim *s) {
    s->wal.segment_bytes = s->wal.first_segment_bytes = 1 << 20;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0];
    for (uint32_t i = 1; i < 3; i++) {
        EXPECT(s, put_many(s, leader, (unsigned)sim_random(s, 0, 30)));
        fake_disk_set_capacity(s->servers[i]->disk, fake_disk_used(s->servers[i]->disk));
    }
    for (unsigned i = 0; i < 10000 && raft_quorum_has_room(leader->raft); i++) {
        put(s, leader);
        sim_run(s, 200);
    }
    EXPECT(s, !raft_quorum_has_room(leader->raft));
    fake_disk_set_capacity(leader->disk, fake_disk_used(leader->disk));
    for (unsigned round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 3; i++) server_crash(s->servers[i], CRASH_KILL);
        for (uint32_t i = 0; i < 3; i++) server_restart_after(s->servers[i], sim_random(s, 0, 100 * MS));
        story_all_may(s);
        EXPECT(s, WITHIN(s, 10000, sim_leader(s) != NULL));
        uint64_t read = 0;
        EXPECT(s, WITHIN(s, 10000,
                         (read && done(s, read)) ||
                             ((!read || refused(s, read)) && sim_leader(s) && (read = get(s, sim_leader(s)), false))));
    }
    for (uint32_t i = 0; i < 3; i++) fake_disk_set_capacity(s->servers[i]->disk, 0);
    story_end(s);
}

void scenario_capped_appends(struct sim *s) {
    s->raft.append_bytes_max = 2000;
    s->raft.append_inflight_max = 4;
    s->raft.heartbeat_ms = 100;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *lag = s->servers[1];
    EXPECT(s, put_many(s, leader, 5));
    story_mute(s, lag, leader, RAFT_MSG_APPEND_REPLY, true);
    uint64_t before = s->sent_with_entries[leader->slot][lag->slot];
    EXPECT(s, put_many(s, leader, 40));
    /* Without answers: so many, and then one with each heartbeat at most (the size is a checker's). */
    uint64_t sent = s->sent_with_entries[leader->slot][lag->slot] - before;
    EXPECT(s, sent <= s->raft.append_inflight_max + 40 * 20 / s->raft.heartbeat_ms);
    story_mute(s, lag, leader, RAFT_MSG_APPEND_REPLY, false);
    EXPECT(s, WITHIN(s, 3000, lag->machine.applied == leader->machine.applied));
    story_all_may(s);
    story_end(s);
}

void scenario_burst(struct sim *s) {
    s->raft.cache_bytes_max = 10000;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *lag = s->servers[2];
    story_isolate(s, lag);
    uint64_t first = put(s, leader), last = first;
    while (last < first + 5000) last = put(s, leader);
    EXPECT(s, WITHIN(s, 5000,
                     done(s, first) && done(s, last) && leader->machine.applied == raft_last_index(leader->raft)));
    EXPECT(s, raft_entry_at(leader->raft, leader->machine.applied / 2) == NULL);
    story_join(s, lag); /* what is not in memory any more comes from the log */
    EXPECT(s, WITHIN(s, 5000, lag->machine.applied == leader->machine.applied) && lag->snapshots_installed == 0);
    story_all_may(s);
    story_end(s);
}

/* The leader knows what it sent last, although the entries are not in its memory any more. */
void scenario_lost_acknowledgement(struct sim *s) {
    s->raft.cache_bytes_max = 0;
    s->raft.append_inflight_max = 1;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *lag = s->servers[2];
    story_isolate(s, lag);
    EXPECT(s, put_many(s, leader, 20));
    story_join(s, lag);
    EXPECT(s, WITHIN(s, 5000, log_terms_last(&lag->durable) > 5));
    story_mute(s, lag, leader, RAFT_MSG_APPEND_REPLY, true);
    sim_run(s, 50 * MS);
    story_mute(s, lag, leader, RAFT_MSG_APPEND_REPLY, false);
    EXPECT(s, WITHIN(s, 20 * s->raft.heartbeat_ms, lag->machine.applied == leader->machine.applied));
    story_all_may(s);
    story_end(s);
}
