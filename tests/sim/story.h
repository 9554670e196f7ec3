/* Verbs for told scenarios. A story sets the scene, breaks something at the worst moment and says what it expects;
 * the checkers watch as always. Times are virtual milliseconds; who is elected and how long a message takes is the
 * seed's. */
#ifndef COORD_TESTS_SIM_STORY_H
#define COORD_TESTS_SIM_STORY_H

#include "tests/sim/modules.h"

/* Goes on, event by event, until the condition holds (true) or the time is over (false). */
#define WITHIN(s, ms, condition)                                                  \
    ({                                                                            \
        uint64_t end_us_ = (s)->now_us + (uint64_t)(ms)*MS;                       \
        bool holds_now_;                                                          \
        while (!(holds_now_ = (condition)) && story_step((s), end_us_)) continue; \
        holds_now_ && !(s)->failed;                                               \
    })
/* True when it does not come to hold in all that time. */
#define NEVER_IN(s, ms, condition) (!WITHIN(s, ms, condition))
/* Ends the scenario when it fails. */
#define EXPECT(s, condition)                                                              \
    do {                                                                                  \
        bool holds_ = (condition);                                                        \
        if (!holds_) sim_violation((s), RULE_STORY, "line %d: %s", __LINE__, #condition); \
        if ((s)->failed) return;                                                          \
    } while (0)

bool story_step(struct sim *s, uint64_t end_us);

/* -- scene -- */
void story_begin(struct sim *s, uint32_t voters); /* a new cluster on a quiet network */
struct server *story_server(struct sim *s);       /* one more, with an empty disk, started */
struct server *story_leader(struct sim *s);       /* waits for one that is ready; NULL (failed) after 10 s */
/* This one becomes the leader of a new term, and is ready unless `raw`. Others keep from campaigning until
 * story_all_may(). */
bool story_elect(struct sim *s, struct server *server);
bool story_elect_raw(struct sim *s, struct server *server);
bool story_agree(struct sim *s);                             /* waits until all members have everything */
void story_only(struct sim *s, const struct server *server); /* only it campaigns */
void story_all_may(struct sim *s);
struct server *story_other(struct sim *s, const struct server *a,
                           const struct server *b); /* the first one that is neither; b may be NULL */

/* -- breaking things -- */
void story_isolate(struct sim *s, const struct server *server);
void story_join(struct sim *s, const struct server *server);                   /* its links are whole again */
void story_cut(struct sim *s, const struct server *a, const struct server *b); /* both ways */
void story_mute(struct sim *s, const struct server *from, const struct server *to, enum raft_message_type type,
                bool mute);
void story_restart(struct server *server, enum crash how); /* crash and start at once */
void story_hold_disk(struct server *server, bool held);
void story_slow_disk(struct server *server, uint64_t delay_ms);
void story_snapshot(struct sim *s, struct server *server); /* taken and complete, its log dropped */

/* -- clients -- */
uint64_t put(struct sim *s, const struct server *server); /* a write is sent; the operation's number */
uint64_t put_sized(struct sim *s, const struct server *server, uint32_t size);
uint64_t get(struct sim *s, const struct server *server);
uint64_t get_stale(struct sim *s, const struct server *server);
/* Any other request, made by a module's functions. */
uint64_t ask(struct sim *s, const struct server *server, const struct op *op);
bool story_founded(struct sim *s, const struct server *server); /* the cluster, as that server knows too */
bool done(struct sim *s, uint64_t op);
bool refused(struct sim *s, uint64_t op);
bool put_many(struct sim *s, const struct server *server, unsigned count); /* all acknowledged, one after the other */

/* -- the leader is asked -- */
int change(struct server *leader, enum raft_change_type type, const struct server *server);
bool member_added(struct sim *s, struct server *leader,
                  struct server *server); /* as a learner, then promoted, both committed */
int transfer_to(struct server *leader, const struct server *target);
bool is_voter(const struct server *at, const struct server *who);
bool is_member(const struct server *at, const struct server *who);

/* -- the end -- */
void story_end(struct sim *s); /* all healed: everybody agrees, nothing is lost */

#define SCENARIOS(X)                                                                                                   \
    X(figure8, "an entry of an old term is not committed by counting")                                                 \
    X(old_entries_commit_without_writes, "a new leader commits what it found, though nobody writes")                   \
    X(vote_not_on_disk, "a vote counts only once it is on the voter's disk")                                           \
    X(own_vote_not_on_disk, "a candidate whose disk stands still is not elected")                                      \
    X(partitioned_server_does_not_disturb, "a server that was cut off does not unseat the leader when it returns")     \
    X(prevote_does_not_block_after_leader_death, "the death of a leader is followed by an election at once")           \
    X(deposed_leader_serves_no_read, "a leader that was cut off answers no read from the past")                        \
    X(paused_leader_serves_no_read, "a leader that stood still answers no read from the past")                         \
    X(minority_serves_no_read, "a follower that is cut off together with the leader answers no read from the past")    \
    X(follower_read_takes_one_round_trip, "a follower of three asks the leader, and the leader nobody")                \
    X(one_way_cut, "a leader that is not heard, or hears nothing, is replaced")                                        \
    X(ring_cut, "five servers in a ring go on")                                                                        \
    X(clock_rates, "clocks of different rates do not unseat a leader")                                                 \
    X(transfer, "leadership goes where it was sent, without an election timeout")                                      \
    X(transfer_waits_for_disk, "a transfer waits until the target's disk has the whole log")                           \
    X(transfer_to_the_dead, "a transfer that fails leaves a working leader")                                           \
    X(lone_voter, "a cluster of one is ready at once")                                                                 \
    X(leader_counts_durable_only, "a leader counts its own entries once its disk has them")                            \
    X(append_fails_after_send, "a leader whose disk fails gives up, and nothing is lost or doubled")                   \
    X(failing_disk_hands_over, "a leader whose disk fails is followed by another at once")                             \
    X(slow_disk_hands_over, "a leader with a slow disk hands over to a server whose disk is well, once")               \
    X(follower_append_fails, "a follower whose disk failed acknowledges nothing of it")                                \
    X(late_results, "results of an old term's writes do not count in a new one")                                       \
    X(torn_last_record, "a server that dies while it writes starts again, with all it has promised")                   \
    X(power_loss_of_all, "no acknowledged write is lost when all servers lose power at once")                          \
    X(replay_once, "after a restart no entry is applied twice or left out")                                            \
    X(disk_full_leader, "a full disk refuses writes, reads go on, and room brings all back")                           \
    X(disk_full_follower, "a follower with a full disk catches up once there is room")                                 \
    X(disk_full_follower_answers, "with one of two disks full reads go on, and writes are refused")                    \
    X(disk_full_burst, "what is on its way to the log counts before more is accepted")                                 \
    X(disk_full_turn, "much comes at once while the disk is nearly full: no more is taken in than fits")               \
    X(full_disks_leader_lost, "disks full at different entries, the leader lost: reads go on")                         \
    X(votes_need_room, "no room for votes: no elections that nobody can win")                                          \
    X(full_disks_all_killed, "disks full while much is on its way, all killed: reads go on")                           \
    X(capped_appends, "a laggard is sent a bounded number of bounded messages")                                        \
    X(burst, "a burst of writes is kept no longer than it is needed")                                                  \
    X(lost_acknowledgement, "an answer that was lost holds a follower up for a moment only")                           \
    X(truncation_meets_snapshot, "a conflicting end of the log gives way to a snapshot")                               \
    X(snapshot_overtaken, "a snapshot that is replaced while it is sent does no harm")                                 \
    X(snapshot_of_the_known, "a snapshot of what a follower has already does not shorten its log")                     \
    X(log_begins_at_snapshot, "after its snapshot a follower goes on from a log that begins right there")              \
    X(dead_peer_stops_no_snapshots,                                                                                    \
      "a peer that died while it was sent a snapshot does not keep the log from being cut")                            \
    X(late_chunks, "chunks from before an election do no harm after it")                                               \
    X(duplicate_reordered_chunks, "chunks that come twice or out of order are put together rightly")                   \
    X(leader_changes_while_sending, "a snapshot begun by one leader is finished by another")                           \
    X(crash_while_installing, "a server that dies while it installs a snapshot starts again")                          \
    X(slow_follower_no_snapshot_loop, "a slow follower catches up under load with few snapshots")                      \
    X(laggard_needs_the_log, "who catches up from the log is known, so that it is not cut under it")                   \
    X(snapshot_keeps_its_rate, "a snapshot travels no faster than its rate, and heartbeats go on")                     \
    X(change_rolled_back, "an uncommitted change of members is undone with its leader")                                \
    X(snapshot_while_changing, "a snapshot names the members as of its index, not a change to come")                   \
    X(one_change_at_a_time, "a second change waits for the first, and for the leader's term")                          \
    X(removed_server, "a removed server that does not know it disturbs nobody")                                        \
    X(removed_leader, "a leader that removes itself leads until that is committed, and no longer")                     \
    X(removed_leader_is_needed, "a server campaigns until its own removal has committed")                              \
    X(learner_not_counted, "a learner is no part of a majority")                                                       \
    X(learner_shows_first, "a lone voter's reads see what its learner has shown already")                              \
    X(learner_promoted_late, "a learner is promoted only once it has caught up")                                       \
    X(cut_off_leader_answers, "a leader that is cut off answers soon what it had appended")                            \
    X(learner_silent, "a learner that never acknowledged anything is not promoted")                                    \
    X(lost_disk_is_a_new_member, "a server whose disk is lost comes back under a new name")                            \
    X(lease_lives_while_renewed, "a lease that is renewed in time lives, and ends soon when it is not")                \
    X(deposed_leader_ends_no_session, "a leader that was cut off neither renews nor ends a session")                   \
    X(deposed_leader_ends_no_lease, "a leader that was cut off neither renews nor ends a lease")                       \
    X(all_that_hangs_on_a_lease_goes_at_once, "keys of a lease are all there, or all gone")                            \
    X(a_node_name_has_one_owner, "a second agent of a name waits for the first one's lease")                           \
    X(dead_nodes_are_removed_in_time, "a node that stays dead is removed, one that comes back is not")                 \
    X(new_leader_grants_full_period, "a new leader grants every lease a full period")                                  \
    X(standstill_ends_no_lease, "renewals that waited while the loop stood still count first")                         \
    X(forwarded_once, "what was handed to a leader that died is not sent again")                                       \
    X(answer_to_a_former_life, "a restarted server takes no answer that was meant for its former incarnation")         \
    X(deposed_with_full_disk, "a leader deposed while its disk is full recovers")                                      \
    X(snapshot_meets_full_disk, "a follower whose full disk refused a snapshot is sent it again")                      \
    X(watch_between_read_and_apply, "a change between a reader's look and its watch wakes it")                         \
    X(newest_events_are_kept, "the newest events stay, in order, over restarts and snapshots")                         \
    X(hand_over_takes_one_round_trip, "a release grants the next one, who hears of it at once, and nobody else")       \
    X(hand_over_proposed, "a leader that dies with a release that it has just heard of loses or keeps it whole")       \
    X(hand_over_appended, "a leader that dies with a release in its log loses or keeps it whole")                      \
    X(hand_over_committed, "a leader that dies with a committed release has granted the next one")                     \
    X(hand_over_applied, "a leader that dies before it answers a release has granted the next one, once")              \
    X(lock_passes_on_from_who_is_cut_off, "a holder that is cut off loses its lock, and tokens order the two")         \
    X(waiter_gone_before_its_turn, "who took a place and is not heard of again holds nobody up for long")              \
    X(highest_priority_leads_next, "with the leader's session the lead goes to the highest priority, and is seen")     \
    X(gateways_spend_within_the_bound, "agents that spend one budget admit what it has and the bound, no more")        \
    X(clients_that_obey_are_served, "who is refused and comes when it is told is served, or sees others served")       \
    X(owners_count_alone, "each key of a budget is counted by one agent, within its budget")                           \
    X(agents_keep_the_catalog_true, "the catalog says what agents know, whatever fails, soon after it has failed")     \
    X(an_agent_that_lives_keeps_its_lease, "an agent that lives keeps its lease while messages and leaders are lost")  \
    X(a_dead_agent_is_given_up_in_time,                                                                                \
      "an agent that is gone is given up after its TTL, not before, and then removed")                                 \
    X(who_was_cut_off_comes_back_whole, "an agent that was cut off has all that is its own in the catalog again soon") \
    X(two_agents_of_one_name, "of two agents with one name one holds its lease, and the other one follows it")         \
    X(a_late_write_undoes_nothing, "a write whose outcome nobody knows undoes nothing when it arrives late")           \
    X(a_poisonous_record_holds_no_others, "a record whose writes lose their connection is set aside, not the others")  \
    X(many_at_once_stay_in_answers,                                                                                    \
      "when most agents are cut off at once their services stay in answers, single ones go")                           \
    X(copy_outlives_its_leaders, "a copy that its leader has begun is finished by the next, and equals its source")    \
    X(agents_find_the_server_that_works,                                                                               \
      "an agent that loses its server soon has one that works, whatever the others do")                                \
    X(a_silent_connection_is_given_up,                                                                                 \
      "a connection over which nothing comes back is given up within a second, or 6 s")                                \
    X(a_name_is_tried_address_by_address, "all addresses of a name are tried before the name backs off")               \
    X(agents_come_back_spread_over_time,                                                                               \
      "after a restart of all servers agents come back soon, and not at one moment")                                   \
    X(a_restart_of_the_only_server_is_short,                                                                           \
      "agents are back a second after their only server went, or in twice the time")                                   \
    X(agents_leave_a_leaderless_minority, "agents leave servers that know no leader, and stay away")                   \
    X(agents_stay_with_their_cluster,                                                                                  \
      "an agent uses no server of another cluster, and comes home when its own is back")                               \
    X(a_region_that_is_away_says_so_at_once,                                                                           \
      "who reads of a region is told that it is away after hold_ms, no sooner or later")                               \
    X(a_read_without_servers_ends_in_time, "a read waits for a server for 7 s, no less and no longer")                 \
    X(a_healthy_home_is_not_left,                                                                                      \
      "regions answer for each other only while, and for a while after, one has no healthy instances")                 \
    X(copied_keys_are_one_past_state, "keys of another region are what it had at one index, and soon what it has")

#define DECLARE(name, claim) void scenario_##name(struct sim *s);
SCENARIOS(DECLARE)
#undef DECLARE

#endif
