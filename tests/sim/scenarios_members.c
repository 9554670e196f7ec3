/* Membership. */
#include "tests/sim/story.h"

void scenario_change_rolled_back(struct sim *s) {
    story_begin(s, 3);
    struct server *old = s->servers[0], *next = s->servers[1];
    EXPECT(s, story_elect(s, old));
    EXPECT(s, put_many(s, old, 3) && story_agree(s));
    struct server *guest = story_server(s);
    story_isolate(s, old);
    EXPECT(s, change(old, RAFT_ADD_LEARNER, guest) == CO_OK);
    EXPECT(s, is_member(old, guest) && !raft_members_committed(old->raft));
    EXPECT(s, WITHIN(s, 1000, log_terms_last(&old->durable) == raft_last_index(old->raft)));
    if (sim_chance(s, 500)) story_restart(old, CRASH_POWER); /* it counts as long as it is in the log, and no longer */
    EXPECT(s, is_member(old, guest));
    EXPECT(s, story_elect(s, next));
    EXPECT(s, put_many(s, next, 3));
    EXPECT(s, !is_member(next, guest));
    story_join(s, old);
    EXPECT(s, WITHIN(s, 5000, !is_member(old, guest) && old->machine.applied == next->machine.applied));
    story_all_may(s);
    story_end(s);
}

/* The change is in the log behind the snapshot, and goes with the end of that log. */
void scenario_snapshot_while_changing(struct sim *s) {
    story_begin(s, 3);
    struct server *old = s->servers[0], *next = s->servers[1];
    EXPECT(s, story_elect(s, old));
    EXPECT(s, put_many(s, old, 10) && story_agree(s));
    struct server *guest = story_server(s);
    story_isolate(s, old);
    EXPECT(s, change(old, RAFT_ADD_LEARNER, guest) == CO_OK);
    story_snapshot(s, old);
    EXPECT(s, WITHIN(s, 1000, log_terms_last(&old->durable) == raft_last_index(old->raft)));
    story_restart(old, CRASH_POWER);
    EXPECT(s, raft_snapshot_index(old->raft) > 0 && is_member(old, guest));
    EXPECT(s, story_elect(s, next) && put_many(s, next, 3));
    story_join(s, old);
    EXPECT(s, WITHIN(s, 5000, !is_member(old, guest) && old->machine.applied == next->machine.applied));
    story_all_may(s);
    story_end(s);
}

void scenario_one_change_at_a_time(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *fourth = story_server(s), *fifth = story_server(s);
    story_isolate(s, s->servers[1]);
    story_isolate(s, s->servers[2]);
    EXPECT(s, change(leader, RAFT_ADD_LEARNER, fourth) == CO_OK);
    EXPECT(s, change(leader, RAFT_ADD_LEARNER, fifth) == CO_BUSY);
    EXPECT(s, change(leader, RAFT_REMOVE, s->servers[2]) == CO_BUSY);
    network_heal(s);
    EXPECT(s, WITHIN(s, 5000,
                     sim_leader(s) && raft_leader_ready(sim_leader(s)->raft) &&
                         raft_members_committed(sim_leader(s)->raft)));

    /* A new leader that has committed nothing of its own yet. */
    EXPECT(s, story_agree(s));
    for (uint32_t i = 0; i < s->server_count; i++)
        story_mute(s, s->servers[i], s->servers[1], RAFT_MSG_APPEND_REPLY, true);
    EXPECT(s, story_elect_raw(s, s->servers[1]));
    EXPECT(s, change(s->servers[1], RAFT_REMOVE, s->servers[0]) == CO_BUSY);
    story_all_may(s);
    story_end(s);
}

void scenario_removed_server(struct sim *s) {
    story_begin(s, 4);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *gone = s->servers[3];
    story_all_may(s);
    story_isolate(s, gone);
    EXPECT(s, change(leader, RAFT_REMOVE, gone) == CO_OK);
    EXPECT(s, WITHIN(s, 2000, raft_members_committed(leader->raft)));
    uint64_t term = raft_term(leader->raft);
    sim_run(s, 3000 * MS);
    story_join(s, gone);
    EXPECT(s, is_member(gone, gone)); /* nobody has told it */
    EXPECT(s, NEVER_IN(s, 5000, !server_leads(leader) || raft_term(leader->raft) != term));
    story_end(s);
}

void scenario_removed_leader(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *b = s->servers[1], *c = s->servers[2];
    EXPECT(s, put_many(s, leader, 3));
    story_mute(s, b, leader, RAFT_MSG_APPEND_REPLY, true);
    EXPECT(s, change(leader, RAFT_REMOVE, leader) == CO_OK);
    /* Two voters are left; it counts neither itself nor one of them for a majority. */
    EXPECT(s, NEVER_IN(s, s->raft.election_ms / 2, raft_members_committed(leader->raft) || !server_leads(leader)));
    story_mute(s, b, leader, RAFT_MSG_APPEND_REPLY, false);
    EXPECT(s, WITHIN(s, 2000, !server_leads(leader)));
    story_all_may(s);
    EXPECT(s,
           WITHIN(s, 5000,
                  (server_leads(b) && raft_leader_ready(b->raft)) || (server_leads(c) && raft_leader_ready(c->raft))));
    struct server *next = sim_leader(s);
    EXPECT(s, !is_member(next, leader) && put_many(s, next, 3));
    uint64_t term = raft_term(next->raft);
    EXPECT(s, NEVER_IN(s, 3000, server_leads(leader) || raft_term(next->raft) != term));
    story_end(s);
}

/* Only its log has the entry that removes it, so the one who stays cannot win against it. */
void scenario_removed_leader_is_needed(struct sim *s) {
    story_begin(s, 2);
    struct server *leader = s->servers[0], *stays = s->servers[1];
    EXPECT(s, story_elect(s, leader) && story_agree(s));
    story_all_may(s);
    story_mute(s, leader, stays, RAFT_MSG_APPEND, true);
    EXPECT(s, change(leader, RAFT_REMOVE, leader) == CO_OK);
    EXPECT(s, WITHIN(s, 1000, log_terms_last(&leader->durable) == raft_last_index(leader->raft)));
    story_restart(leader, sim_chance(s, 500) ? CRASH_KILL : CRASH_POWER);
    story_mute(s, leader, stays, RAFT_MSG_APPEND, false);
    EXPECT(s, WITHIN(s, 10000, server_leads(stays) && raft_leader_ready(stays->raft) && !is_member(stays, leader)));
    EXPECT(s, put_many(s, stays, 3));
    story_end(s);
}

void scenario_learner_not_counted(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *learner = story_server(s);
    EXPECT(s, change(leader, RAFT_ADD_LEARNER, learner) == CO_OK);
    EXPECT(s, WITHIN(s, 5000, raft_match_index(leader->raft, learner->id) == raft_last_index(leader->raft)));
    story_isolate(s, s->servers[1]);
    story_isolate(s, s->servers[2]);
    uint64_t op = put(s, leader);
    EXPECT(s, NEVER_IN(s, 5000, done(s, op)));
    EXPECT(s, !server_leads(leader)); /* and not for its quorum check either */
    EXPECT(s, raft_role(learner->raft) == RAFT_FOLLOWER && raft_vote(learner->raft) != learner->id);
    story_end(s);
}

/* The one voter hands entries to its applier, and says to its learner that they are committed: that one may be the
 * first to show them. */
void scenario_learner_shows_first(struct sim *s) {
    story_begin(s, 1);
    struct server *leader = story_leader(s), *learner = story_server(s);
    EXPECT(s, leader != NULL && change(leader, RAFT_ADD_LEARNER, learner) == CO_OK);
    EXPECT(s, WITHIN(s, 5000, raft_match_index(leader->raft, learner->id) == raft_last_index(leader->raft)));
    leader->apply_delay_us = 20 * MS;
    for (unsigned i = 0; i < 20; i++) { /* a read that was confirmed just before the write, and is answered behind it */
        uint64_t op = put(s, leader), first, then;
        sim_run(s, sim_random(s, 0, 3 * MS));
        first = get(s, learner);
        EXPECT(s, WITHIN(s, 2000, done(s, first)));
        then = get(s, leader);
        EXPECT(s, WITHIN(s, 2000, done(s, then) && done(s, op)));
    }
    leader->apply_delay_us = 0;
    story_end(s);
}

void scenario_learner_promoted_late(struct sim *s) {
    s->raft.promote_lag_max = 5;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *learner = story_server(s);
    EXPECT(s, put_many(s, leader, 50));
    story_isolate(s, learner);
    EXPECT(s, change(leader, RAFT_ADD_LEARNER, learner) == CO_OK);
    EXPECT(s, WITHIN(s, 1000, raft_members_committed(leader->raft)));
    EXPECT(s, change(leader, RAFT_PROMOTE, learner) == CO_AGAIN);
    story_join(s, learner);
    EXPECT(s, WITHIN(s, 5000, raft_match_index(leader->raft, learner->id) == raft_last_index(leader->raft)));
    EXPECT(s, change(leader, RAFT_PROMOTE, learner) == CO_OK);
    EXPECT(s, WITHIN(s, 2000, is_voter(learner, learner) && raft_members_committed(leader->raft)));
    story_all_may(s);
    story_end(s);
}

/* The leader answers for its appended entries as soon as it knows that it is cut off, and not a second later, as it
 * does where it may yet hear of them. */
void scenario_cut_off_leader_answers(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0];
    story_isolate(s, leader);
    uint64_t op = put(s, leader);
    EXPECT(s, WITHIN(s, 3000, !server_leads(leader)));
    EXPECT(s, WITHIN(s, 900, op_get(s, op)->state == OP_UNKNOWN));
    story_end(s);
}

/* It only said hello, and the log is short: nothing says that it could count for a majority. */
void scenario_learner_silent(struct sim *s) {
    s->raft.promote_lag_max = 1024;
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *learner = story_server(s);
    story_isolate(s, learner);
    EXPECT(s, change(leader, RAFT_ADD_LEARNER, learner) == CO_OK);
    EXPECT(s, WITHIN(s, 1000, raft_members_committed(leader->raft)));
    EXPECT(s, change(leader, RAFT_PROMOTE, learner) == CO_AGAIN);
    story_join(s, learner);
    EXPECT(s, WITHIN(s, 5000, raft_match_index(leader->raft, learner->id) > 0));
    EXPECT(s, change(leader, RAFT_PROMOTE, learner) == CO_OK);
    EXPECT(s, WITHIN(s, 2000, is_voter(learner, learner) && raft_members_committed(leader->raft)));
    story_end(s);
}

/* It has forgotten its votes and what it acknowledged: under its old name it would break both promises. */
void scenario_lost_disk_is_a_new_member(struct sim *s) {
    story_begin(s, 3);
    EXPECT(s, story_elect(s, s->servers[0]));
    struct server *leader = s->servers[0], *lost = s->servers[2];
    EXPECT(s, put_many(s, leader, 20));
    server_crash(lost, CRASH_POWER);
    lost->retired = true;
    struct server *fresh = story_server(s);
    EXPECT(s, member_added(s, leader, fresh));
    EXPECT(s, change(leader, RAFT_REMOVE, lost) == CO_OK);
    EXPECT(s, WITHIN(s, 2000, raft_members_committed(leader->raft)));
    story_isolate(s, s->servers[1]); /* the new one makes the majority */
    EXPECT(s, put_many(s, leader, 5));
    story_all_may(s);
    story_end(s);
}
