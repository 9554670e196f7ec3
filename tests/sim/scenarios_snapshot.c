/* Snapshots and catching up. */
#include "tests/sim/story.h"

/* A snapshot is the only way to catch up: no cache, no log behind it. */
static void no_way_back(struct sim *s) {
    s->raft.cache_bytes_max = 0;
    s->keep_entries = 0;
    s->wal.segment_bytes = s->wal.first_segment_bytes = 8 << 10;
    s->raft.snapshot_chunk_bytes = 500;
    s->snapshot_filler = 30000;
}

/* Far enough for the log to have been dropped behind the snapshot. */
static bool leave_behind(struct sim *s, struct server *leader) {
    if (!put_many(s, leader, 120)) return false;
    story_snapshot(s, leader);
    return put_many(s, leader, 5);
}

void scenario_truncation_meets_snapshot(struct sim *s) {
    no_way_back(s);
    story_begin(s, 3);
    struct server *a = s->servers[0], *b = s->servers[1];
    EXPECT(s, story_elect(s, a));
    EXPECT(s, put_many(s, a, 3) && story_agree(s));
    story_isolate(s, a);
    for (unsigned i = 0; i < 30; i++) put(s, a); /* a long end that nobody else will have */
    EXPECT(s, WITHIN(s, 1000, log_terms_last(&a->durable) >= 30));
    story_slow_disk(a, 60); /* and more of it on its way to the disk */
    for (unsigned i = 0; i < 10; i++) put(s, a);
    EXPECT(s, story_elect(s, b));
    EXPECT(s, leave_behind(s, b));
    story_join(s, a);
    EXPECT(s, WITHIN(s, 10000, a->snapshots_installed > 0));
    story_all_may(s);
    story_end(s);
}

void scenario_snapshot_overtaken(struct sim *s) {
    no_way_back(s);
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *lag = s->servers[2];
    story_isolate(s, lag);
    EXPECT(s, leave_behind(s, leader));
    story_join(s, lag);
    for (unsigned i = 0; i < 4; i++) {
        EXPECT(s, WITHIN(s, 5000, lag->receiver != NULL || lag->machine.applied == leader->machine.applied));
        EXPECT(s, put_many(s, leader, 20));
        storage_copy_begin(leader); /* a server need not wait for a peer that is being sent one */
        sim_run(s, 20 * MS);
    }
    EXPECT(s, WITHIN(s, 20000, lag->machine.applied == leader->machine.applied));
    story_all_may(s);
    story_end(s);
}

/* A snapshot of every second entry, until one is also where a segment of the log ends. */
void scenario_log_begins_at_snapshot(struct sim *s) {
    no_way_back(s);
    s->snapshot_filler = 1000;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *lag = s->servers[2];
    server_crash(lag, CRASH_KILL);
    bool met = false;
    for (unsigned i = 0; i < 300 && !met; i++) {
        uint64_t taken = leader->snapshots_taken;
        EXPECT(s, put_many(s, leader, 1));
        EXPECT(s, WITHIN(s, 5000, !raft_sending_snapshot(leader->raft)));
        storage_copy_begin(leader);
        EXPECT(s, put_many(s, leader, 1));
        EXPECT(s, WITHIN(s, 1000, leader->snapshots_taken > taken));
        met = wal_first_index(leader->wal) == raft_snapshot_index(leader->raft) + 1;
    }
    EXPECT(s, met && put_many(s, leader, 5));
    server_start(lag);
    EXPECT(s, WITHIN(s, 5000, lag->machine.applied == leader->machine.applied));
    EXPECT(s, lag->snapshots_installed == 1);
    story_all_may(s);
    story_end(s);
}

void scenario_dead_peer_stops_no_snapshots(struct sim *s) {
    no_way_back(s);
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *dead = s->servers[2];
    story_isolate(s, dead);
    EXPECT(s, leave_behind(s, leader));
    story_join(s, dead);
    EXPECT(s, WITHIN(s, 5000, dead->receiver != NULL && raft_sending_snapshot(leader->raft)));
    server_crash(dead, CRASH_POWER);
    sim_run(s, 20 * MS); /* its last words arrive */
    EXPECT(s, WITHIN(s, 5 * s->raft.election_ms, !raft_sending_snapshot(leader->raft)));
    EXPECT(s, leave_behind(s, leader) && wal_first_index(leader->wal) > 120);
    story_all_may(s);
    story_end(s);
}

/* Chunks that arrive after the follower got the same entries from the log, and more. */
void scenario_late_chunks(struct sim *s) {
    no_way_back(s);
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *a = s->servers[0], *b = s->servers[1], *lag = s->servers[2];
    story_isolate(s, lag);
    EXPECT(s, put_many(s, a, 60));
    story_snapshot(s, a);
    EXPECT(s, put_many(s, a, 60));
    story_join(s, lag);
    s->network.ordered = false;
    s->network.late = true;
    EXPECT(s, WITHIN(s, 10000, s->sent[RAFT_MSG_SNAPSHOT] > 0));
    s->network.delay_us = 1500 * MS; /* the next chunks take their time */
    s->network.delay_span_us = 100 * MS;
    sim_run(s, 20 * MS);
    s->network.delay_us = 200;
    s->network.delay_span_us = 2 * MS;
    EXPECT(s, WITHIN(s, 1000, log_terms_last(&b->durable) == raft_last_index(a->raft)));
    EXPECT(s, story_elect(s, b)); /* its log goes back to the beginning: no snapshot needed */
    EXPECT(s, WITHIN(s, 10000, lag->machine.applied >= 120));
    EXPECT(s, put_many(s, b, 10));
    sim_run(s, 3000 * MS);
    EXPECT(s, lag->machine.applied == b->machine.applied);
    story_all_may(s);
    story_end(s);
}

/* The leader takes a follower for far behind, whose slow disk has only not yet acknowledged what it has received. */
void scenario_snapshot_of_the_known(struct sim *s) {
    no_way_back(s);
    s->raft.append_inflight_max = 256;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]) && story_agree(s));
    struct server *leader = s->servers[0], *slow = s->servers[2];
    story_hold_disk(slow, true);
    EXPECT(s, put_many(s, leader, 120));
    uint64_t last = raft_last_index(leader->raft);
    EXPECT(s, WITHIN(s, 100, raft_last_index(slow->raft) == last));
    story_snapshot(s, leader);
    struct raft_event lost = {.type = RAFT_UNREACHABLE, .u.unreachable.peer = slow->id};
    server_step(leader, &lost);
    uint64_t chunks = s->sent[RAFT_MSG_SNAPSHOT];
    EXPECT(s, WITHIN(s, 1000, s->sent[RAFT_MSG_SNAPSHOT] > chunks));
    sim_run(s, 100 * MS);
    EXPECT(s, raft_last_index(slow->raft) == last && slow->receiver == NULL);
    story_hold_disk(slow, false);
    EXPECT(s, WITHIN(s, 3000, slow->machine.applied == leader->machine.applied));
    EXPECT(s, slow->snapshots_installed == 0 && put_many(s, leader, 3));
    story_all_may(s);
    story_end(s);
}

void scenario_duplicate_reordered_chunks(struct sim *s) {
    no_way_back(s);
    s->raft.snapshot_chunk_bytes = 200;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *lag = s->servers[2];
    story_isolate(s, lag);
    EXPECT(s, leave_behind(s, leader));
    s->network = (struct network){.delay_us = 200,
                                  .delay_span_us = 20 * MS,
                                  .twice_permille = 500,
                                  .tail_permille = 100,
                                  .tail_us = 100 * MS,
                                  .loss_permille = 50};
    story_join(s, lag);
    EXPECT(s, WITHIN(s, 60000, lag->snapshots_installed > 0 && lag->machine.applied == leader->machine.applied));
    story_all_may(s);
    story_end(s);
}

void scenario_leader_changes_while_sending(struct sim *s) {
    no_way_back(s);
    s->snapshot_filler = 60000;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *a = s->servers[0], *b = s->servers[1], *lag = s->servers[2];
    story_isolate(s, lag);
    EXPECT(s, leave_behind(s, a));
    EXPECT(s, WITHIN(s, 1000, b->machine.applied == a->machine.applied));
    if (sim_chance(s, 500)) story_snapshot(s, b); /* the same one, or another */
    story_join(s, lag);
    EXPECT(s, WITHIN(s, 5000, lag->receiver != NULL && snapshot_written(lag->receiver) > 0));
    server_crash(a, CRASH_KILL);
    EXPECT(s, story_elect_raw(s, b));
    EXPECT(s, WITHIN(s, 20000, lag->machine.applied == b->machine.applied && raft_leader_ready(b->raft)));
    story_all_may(s);
    story_end(s);
}

void scenario_crash_while_installing(struct sim *s) {
    no_way_back(s);
    s->snapshot_filler = 3000;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *lag = s->servers[2];
    for (unsigned round = 0; round < 12; round++) {
        server_crash(lag, CRASH_KILL);
        EXPECT(s, leave_behind(s, leader));
        uint64_t before = lag->snapshots_installed;
        server_start(lag);
        fake_disk_halt_after(lag->disk, 1 + sim_random(s, 0, 25));
        EXPECT(s, WITHIN(s, 10000, !lag->up || lag->snapshots_installed > before));
        EXPECT(s, WITHIN(s, 20000, lag->up && lag->machine.applied == leader->machine.applied));
    }
    story_all_may(s);
    story_end(s);
}

void scenario_laggard_needs_the_log(struct sim *s) {
    s->raft.cache_bytes_max = 0;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *lag = s->servers[2];
    EXPECT(s, put_many(s, leader, 3) && story_agree(s));
    EXPECT(s, WITHIN(s, 1000, !raft_peer_needs_log(leader->raft)));
    story_isolate(s, lag);
    EXPECT(s, put_many(s, leader, 120));
    sim_run(s, 3 * s->raft.election_ms * MS);
    EXPECT(s, !raft_peer_needs_log(leader->raft)); /* one that does not answer may be gone for good */
    story_slow_disk(lag, 50);
    story_join(s, lag);
    EXPECT(s, WITHIN(s, 5000, raft_peer_needs_log(leader->raft)));
    EXPECT(s, WITHIN(s, 20000, !raft_peer_needs_log(leader->raft)));
    EXPECT(s, WITHIN(s, 1000, lag->machine.applied == leader->machine.applied) && lag->snapshots_installed == 0);
    story_all_may(s);
    story_end(s);
}

/* Snapshots are taken faster than the follower takes them in. */
void scenario_slow_follower_no_snapshot_loop(struct sim *s) {
    no_way_back(s);
    s->keep_entries = 20;
    s->raft.snapshot_chunk_bytes = 2000;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *slow = s->servers[2];
    story_isolate(s, slow);
    EXPECT(s, leave_behind(s, leader));
    story_join(s, slow);
    story_slow_disk(slow, 10);
    for (unsigned round = 0; round < 30; round++) {
        EXPECT(s, put_many(s, leader, 20));
        storage_copy_begin(leader);
    }
    /* Under load all along, it never stays far behind for long. */
    EXPECT(s, WITHIN(s, 3000, slow->machine.applied + 100 > leader->machine.applied));
    EXPECT(s, slow->snapshots_installed >= 1 && slow->snapshots_installed <= 4);
    story_all_may(s);
    story_end(s);
}

/* Some 10,000 bytes at 20,000 a second, whatever the chunks; who writes meanwhile does not notice. */
void scenario_snapshot_keeps_its_rate(struct sim *s) {
    no_way_back(s);
    s->raft.snapshot_chunk_bytes = (uint32_t)sim_random(s, 300, 1500);
    s->raft.snapshot_rate = 20000;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *lag = s->servers[2];
    story_isolate(s, lag);
    EXPECT(s, leave_behind(s, leader));
    story_join(s, lag);
    EXPECT(s, WITHIN(s, 5000, lag->receiver != NULL));
    uint64_t least_ms = leader->reader_meta.size * 1000 / s->raft.snapshot_rate;
    sim_run(s, least_ms * 6 / 10 * MS);
    if (least_ms > 300) EXPECT(s, lag->snapshots_installed == 0); /* a chunk is up to 75 ms */
    EXPECT(s, put_many(s, leader, 5));
    EXPECT(s, WITHIN(s, least_ms + 1200, lag->snapshots_installed == 1));
    story_all_may(s);
    story_end(s);
}
