/* Elections, leadership, reads. */
#include "tests/sim/story.h"

/* Nobody hears this server's entries, though it may win votes. */
static void mute_appends(struct sim *s, const struct server *from, bool mute) {
    for (uint32_t i = 0; i < s->server_count; i++) story_mute(s, from, s->servers[i], RAFT_MSG_APPEND, mute);
}

/* a leads and writes A alone, c leads and begins its term alone, a leads again and brings A to b: A is on a
 * majority, but c, whose last entry is of a later term, may still win b's vote. */
void scenario_figure8(struct sim *s) {
    s->raft.append_bytes_max = 1;
    s->raft.append_inflight_max = 1;
    story_begin(s, 3);
    struct server *a = s->servers[0], *b = s->servers[1], *c = s->servers[2];
    EXPECT(s, story_elect(s, a) && story_agree(s));
    mute_appends(s, a, true);
    uint64_t color = put(s, a), last = raft_last_index(a->raft), color_at = last + 1;
    EXPECT(s, WITHIN(s, 1000, log_terms_last(&a->durable) == color_at));
    server_crash(a, CRASH_POWER);

    mute_appends(s, c, true);
    EXPECT(s, story_elect_raw(s, c));
    EXPECT(s, WITHIN(s, 1000, log_terms_last(&c->durable) == color_at));
    server_crash(c, CRASH_POWER);

    server_start(a);
    mute_appends(s, a, false);
    EXPECT(s, story_elect_raw(s, a));
    EXPECT(s, WITHIN(s, 1000, log_terms_last(&b->durable) == color_at));
    mute_appends(s, a, true); /* its own term's entry does not get through any more */
    EXPECT(s, NEVER_IN(s, 50, raft_commit_index(a->raft) >= color_at));
    server_crash(a, CRASH_POWER);

    server_start(c);
    mute_appends(s, c, false);
    EXPECT(s, story_elect(s, c));
    story_all_may(s);
    story_end(s);
    EXPECT(s, !done(s, color));
}

void scenario_old_entries_commit_without_writes(struct sim *s) {
    story_begin(s, 3);
    struct server *a = s->servers[0], *b = s->servers[1];
    EXPECT(s, story_elect(s, a));
    story_mute(s, b, a, RAFT_MSG_APPEND_REPLY, true);
    story_mute(s, s->servers[2], a, RAFT_MSG_APPEND_REPLY, true);
    put(s, a);
    uint64_t at = raft_last_index(a->raft) + 1;
    EXPECT(s, WITHIN(s, 200, log_terms_last(&b->durable) == at && log_terms_last(&s->servers[2]->durable) == at));
    server_crash(a, CRASH_POWER);
    EXPECT(s, story_elect_raw(s, b));
    EXPECT(s, WITHIN(s, 1000, b->machine.applied >= at && s->servers[2]->machine.applied >= at));
    story_end(s);
}

/* c is away, so a needs b's vote, and b's disk stands still. */
void scenario_vote_not_on_disk(struct sim *s) {
    story_begin(s, 3);
    struct server *a = s->servers[0], *b = s->servers[1], *c = s->servers[2];
    story_isolate(s, c);
    story_hold_disk(b, true);
    story_only(s, a);
    EXPECT(s, WITHIN(s, 3000, raft_vote(b->raft) == a->id));
    EXPECT(s, NEVER_IN(s, 1000, sim_leader(s) != NULL));
    story_restart(b, CRASH_KILL); /* what it never wrote it never said */
    EXPECT(s, raft_term(b->raft) == 1 && raft_vote(b->raft) == 0);
    story_hold_disk(b, false);
    EXPECT(s, WITHIN(s, 3000, server_leads(a)));
    story_end(s);
}

void scenario_own_vote_not_on_disk(struct sim *s) {
    story_begin(s, 3);
    struct server *a = s->servers[0];
    story_hold_disk(a, true);
    story_only(s, a);
    EXPECT(s, WITHIN(s, 3000, raft_role(a->raft) == RAFT_CANDIDATE));
    EXPECT(s, NEVER_IN(s, 2000, server_leads(a)));
    story_hold_disk(a, false);
    EXPECT(s, WITHIN(s, 3000, server_leads(a)));
    story_end(s);
}

void scenario_partitioned_server_does_not_disturb(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL);
    struct server *away = story_other(s, leader, NULL);
    uint64_t term = raft_term(leader->raft);
    story_isolate(s, away);
    sim_run(s, 10000 * MS);
    EXPECT(s, raft_term(away->raft) == term); /* it asked, and raised nothing */
    story_join(s, away);
    EXPECT(s, NEVER_IN(s, 3000, !server_leads(leader) || raft_term(leader->raft) != term));

    /* Worse: cut off from the leader alone, with the others at hand to ask for their votes. */
    story_cut(s, leader, away);
    EXPECT(s, NEVER_IN(s, 10000, !server_leads(leader) || raft_term(leader->raft) != term));
    story_end(s);
}

void scenario_prevote_does_not_block_after_leader_death(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL && put_many(s, leader, 5));
    server_crash(leader, CRASH_KILL);
    /* Twice the longest timeout, for a split vote, and a little. */
    EXPECT(s, WITHIN(s, 5 * s->raft.election_ms, sim_leader(s) != NULL && raft_leader_ready(sim_leader(s)->raft)));
    story_end(s);
}

void scenario_deposed_leader_serves_no_read(struct sim *s) {
    story_begin(s, 3);
    struct server *old = story_leader(s);
    EXPECT(s, old != NULL && put_many(s, old, 3));
    story_isolate(s, old);
    uint64_t early = get(s, old); /* before anybody else leads: no majority confirms it */
    EXPECT(s, WITHIN(s, 5000, sim_leader(s) != NULL && sim_leader(s) != old && raft_leader_ready(sim_leader(s)->raft)));
    EXPECT(s, put_many(s, sim_leader(s), 1));
    uint64_t late = get(s, old);
    EXPECT(s, NEVER_IN(s, 2000, done(s, early) || done(s, late)));
    EXPECT(s, !server_leads(old));
    story_end(s); /* it asks the new leader: if they are answered now, then as of now (a checker's) */
}

/* It comes back believing that it leads: reads that reach it before its clock or a message tells otherwise. */
void scenario_paused_leader_serves_no_read(struct sim *s) {
    story_begin(s, 3);
    struct server *old = story_leader(s);
    EXPECT(s, old != NULL && put_many(s, old, 3));
    old->paused_until_us = s->now_us + 4000 * MS;
    EXPECT(s, WITHIN(s, 3500, sim_leader(s) != old && raft_leader_ready(sim_leader(s)->raft)));
    EXPECT(s, put_many(s, sim_leader(s), 2));
    uint64_t fresh = raft_commit_index(sim_leader(s)->raft), read = get(s, old);
    sim_run(s, 5000 * MS); /* answered it may be, by way of the new leader */
    EXPECT(s, !done(s, read) || op_get(s, read)->index >= fresh);
    story_end(s);
}

/* A follower that is cut off with the leader asks it; of three the two were a majority, of five they are none. Their
 * slow clocks keep them waiting for the others, who go on meanwhile. */
void scenario_minority_serves_no_read(struct sim *s) {
    story_begin(s, 5);
    struct server *old = s->servers[0], *with = s->servers[1];
    old->rate = with->rate = 300;
    EXPECT(s, story_elect(s, old));
    story_all_may(s);
    EXPECT(s, put_many(s, with, 3));
    for (uint32_t from = 0; from < 5; from++)
        for (uint32_t to = 0; to < 5; to++) network_cut(s, from, to, (from < 2) != (to < 2));
    uint64_t early = get(s, with);
    EXPECT(s, WITHIN(s, 5000, sim_leader(s) != NULL && sim_leader(s) != old && raft_leader_ready(sim_leader(s)->raft)));
    EXPECT(s, put_many(s, sim_leader(s), 1));
    EXPECT(s, server_leads(old) && raft_leader(with->raft) == old->id);
    uint64_t late = get(s, with);
    EXPECT(s, NEVER_IN(s, 3000, done(s, early) || done(s, late)));
    story_end(s);
}

/* The follower's question says as much as its answer to a heartbeat: a round would take as long again. */
void scenario_follower_read_takes_one_round_trip(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL && put_many(s, leader, 3));
    s->network.delay_us = 20 * MS, s->network.delay_span_us = 0;
    sim_run(s, 500 * MS);
    struct server *follower = story_other(s, leader, NULL);
    for (unsigned i = 0; i < 10; i++) {
        uint64_t read = get(s, follower);
        EXPECT(s, WITHIN(s, 50, done(s, read)));
        sim_run(s, 13 * MS);
    }
    story_end(s);
}

void scenario_one_way_cut(struct sim *s) {
    story_begin(s, 3);
    struct server *dumb = story_leader(s);
    EXPECT(s, dumb != NULL);
    for (uint32_t i = 0; i < 3; i++) network_cut(s, dumb->slot, i, true);
    EXPECT(s, WITHIN(s, 5000, sim_leader(s) != NULL && sim_leader(s) != dumb && !server_leads(dumb)));
    network_heal(s);
    EXPECT(s, put_many(s, story_leader(s), 2));

    struct server *deaf = story_leader(s);
    EXPECT(s, deaf != NULL);
    for (uint32_t i = 0; i < 3; i++) network_cut(s, i, deaf->slot, true);
    EXPECT(s, WITHIN(s, 3 * s->raft.election_ms, !server_leads(deaf)));
    EXPECT(s, WITHIN(s, 5000, sim_leader(s) != NULL && raft_leader_ready(sim_leader(s)->raft)));
    EXPECT(s, put_many(s, sim_leader(s), 2));
    story_end(s);
}

void scenario_ring_cut(struct sim *s) {
    story_begin(s, 5);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL);
    for (uint32_t from = 0; from < 5; from++)
        for (uint32_t to = 0; to < 5; to++) network_cut(s, from, to, (from + 1) % 5 != to && (to + 1) % 5 != from);
    sim_run(s, 3000 * MS);
    leader = story_leader(s);
    EXPECT(s, leader != NULL && put_many(s, leader, 10)); /* it and its two neighbours are a majority */
    uint64_t term = raft_term(leader->raft);
    EXPECT(s, NEVER_IN(s, 5000, !server_leads(leader) || raft_term(leader->raft) != term));
    story_end(s);
}

void scenario_clock_rates(struct sim *s) {
    story_begin(s, 5);
    static const uint64_t rates[] = {700, 850, 1000, 1150, 1300};
    for (uint32_t i = 0; i < 5; i++) s->servers[i]->rate = rates[i];
    EXPECT(s, story_elect(s, s->servers[0])); /* the slowest sends the fewest heartbeats */
    story_all_may(s);
    EXPECT(s, NEVER_IN(s, 10000, !server_leads(s->servers[0])));
    EXPECT(s, put_many(s, s->servers[0], 5));
    story_end(s);
}

void scenario_transfer(struct sim *s) {
    story_begin(s, 3);
    struct server *old = story_leader(s);
    EXPECT(s, old != NULL && put_many(s, old, 5));
    struct server *target = story_other(s, old, NULL);
    EXPECT(s, transfer_to(old, old) == CO_INVALID);
    EXPECT(s, transfer_to(old, target) == CO_OK);
    EXPECT(s, transfer_to(old, target) == CO_BUSY);
    EXPECT(s, WITHIN(s, s->raft.election_ms, server_leads(target) && !server_leads(old)));
    EXPECT(s, WITHIN(s, 1000, raft_leader_ready(target->raft)) && put_many(s, target, 3));
    story_end(s);
}

/* The target acknowledges what its disk has, so it is not told to campaign before. */
void scenario_transfer_waits_for_disk(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    story_all_may(s);
    struct server *old = s->servers[0], *target = s->servers[1];
    story_hold_disk(target, true);
    EXPECT(s, put_many(s, old, 3));
    uint64_t told = s->sent[RAFT_MSG_TIMEOUT_NOW];
    EXPECT(s, transfer_to(old, target) == CO_OK);
    EXPECT(s, NEVER_IN(s, s->raft.election_ms / 2, s->sent[RAFT_MSG_TIMEOUT_NOW] > told));
    story_hold_disk(target, false);
    EXPECT(s, WITHIN(s, s->raft.election_ms, server_leads(target)));
    story_end(s);
}

void scenario_transfer_to_the_dead(struct sim *s) {
    story_begin(s, 3);
    struct server *leader = story_leader(s);
    EXPECT(s, leader != NULL && put_many(s, leader, 2));
    struct server *dead = story_other(s, leader, NULL);
    server_crash(dead, CRASH_KILL);
    EXPECT(s, transfer_to(leader, dead) == CO_OK);
    uint64_t op = put(s, leader);
    EXPECT(s, NEVER_IN(s, 100, done(s, op))); /* while it hands over it takes nothing new */
    EXPECT(s, WITHIN(s, 2 * s->raft.election_ms, done(s, op)));
    EXPECT(s, server_leads(leader) && put_many(s, leader, 2));
    story_end(s);
}

void scenario_lone_voter(struct sim *s) {
    story_begin(s, 1);
    EXPECT(s, WITHIN(s, 50, server_leads(s->servers[0]) && raft_alone(s->servers[0]->raft)));
    EXPECT(s, put_many(s, s->servers[0], 20));
    uint64_t read = get(s, s->servers[0]);
    EXPECT(s, WITHIN(s, 20, done(s, read)));
    story_restart(s->servers[0], CRASH_POWER);
    EXPECT(s, WITHIN(s, 50, server_leads(s->servers[0]) && raft_alone(s->servers[0]->raft)));
    story_end(s);
}
