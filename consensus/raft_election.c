/* Roles, votes, timeouts, transfer. */
#include "consensus/raft_internal.h"

void election_reset(struct raft *raft) {
    raft->election_deadline_ms =
        raft->now_ms + rng_between(&raft->rng, raft->config.election_ms, 2 * (uint64_t)raft->config.election_ms);
}

static void set_role(struct raft *raft, enum raft_role role) {
    raft->role = role;
    raft->effects.role_changed = true;
}

void become_follower(struct raft *raft, uint64_t term, uint64_t leader) {
    CHECK(term >= raft->term);
    CHECK(leader != raft->config.id);
    if (term > raft->term) {
        raft->term = term;
        raft->vote = 0;
        raft->hard_state_pending = true;
        held_drop(raft);
        raft->leader_heard = false;
    }
    read_fail_all(raft);
    raft->transfer_target = 0;
    raft->transfer_campaign = false;
    raft->leader = leader;
    if (raft->receiving.active && !raft->receiving.complete && raft->receiving.from != leader)
        raft->receiving.active = false;
    set_role(raft, RAFT_FOLLOWER);
    election_reset(raft);
}

void campaign_end(struct raft *raft) {
    if (raft->role != RAFT_PRECANDIDATE && raft->role != RAFT_CANDIDATE) return;
    set_role(raft, RAFT_FOLLOWER);
    election_reset(raft);
}

void become_failed(struct raft *raft) {
    become_follower(raft, raft->term, 0);
    held_drop(raft);
    raft->out.count = 0;
    raft->failed = true;
}

void become_leader(struct raft *raft) {
    CHECK(raft->role == RAFT_CANDIDATE && raft->vote == raft->config.id);
    CHECK(!raft->failed && !raft->receiving.complete);
    raft->leader = raft->config.id;
    raft->leader_contact_ms = raft->now_ms;
    raft->round_confirmed = raft->round;
    raft->heartbeat_due_ms = raft->now_ms;
    raft->quorum_check_ms = raft->now_ms + raft->config.election_ms;
    raft->transfer_target = 0;
    if (raft->transfer_campaign) raft->handover_ms = raft->now_ms; /* the pause counts for the whole cluster */
    raft->receiving.active = raft->receiving.complete = false;
    set_role(raft, RAFT_LEADER);
    raft->peer_count = 0; /* progress of an earlier term means nothing now */
    progress_sync(raft);
    raft->term_start = log_last_index(raft) + 1;
    if (!mutated(raft, RAFT_MUTATE_NO_EMPTY_ENTRY)) {
        struct raft_entry empty = {.index = raft->term_start, .term = raft->term, .type = RAFT_ENTRY_EMPTY};
        log_append(raft, &empty);
    }
    commit_advance(raft);
}

/* -- campaigns ---------------------------------------------------------------------------------------------------- */
static void count_votes(struct raft *raft) {
    const struct raft_members *members = members_now(raft);
    unsigned granted = 0, refused = 0, quorum = members_quorum(raft), voters = raft_members_voters(members);
    for (uint32_t i = 0; i < members->count; i++) {
        if (!members->member[i].voter || !raft->votes_answered[i]) continue;
        if (!raft->votes_granted[i]) {
            refused++;
            continue;
        }
        /* a server's vote for itself is a promise, too: it counts once it is on disk */
        bool durable = members->member[i].id != raft->config.id || raft->self_vote_seq <= raft->seq_done;
        if (durable || mutated(raft, RAFT_MUTATE_VOTE_BEFORE_DISK)) granted++;
    }
    if (granted >= quorum) {
        if (raft->role == RAFT_PRECANDIDATE) campaign(raft, false);
        else become_leader(raft);
    } else if (refused > voters - quorum) {
        become_follower(raft, raft->term, 0);
    }
}

static void ask_votes(struct raft *raft, bool prevote, bool transfer) {
    const struct raft_members *members = members_now(raft);
    for (uint32_t i = 0; i < members->count; i++) {
        raft->votes_answered[i] = raft->votes_granted[i] = members->member[i].id == raft->config.id;
        if (!members->member[i].voter || members->member[i].id == raft->config.id) continue;
        struct raft_message m = {.type = prevote ? RAFT_MSG_PREVOTE : RAFT_MSG_VOTE,
                                 .from = raft->config.id,
                                 .to = members->member[i].id,
                                 .term = prevote ? raft->term + 1 : raft->term,
                                 .last_index = log_last_index(raft),
                                 .last_term = log_last_term(raft),
                                 .transfer = transfer};
        if (prevote) *vector_push(&raft->out) = m;
        else send_durable(raft, &m);
    }
}

/* A follower asks for pre-votes first (PreVote). A precandidate that won, or a server that the leader told to
 * (transfer), begins a real election. */
void campaign(struct raft *raft, bool transfer) {
    CHECK(raft->role == RAFT_FOLLOWER || raft->role == RAFT_PRECANDIDATE);
    CHECK(!raft->failed && !raft->receiving.complete);
    bool prevote = raft->role != RAFT_PRECANDIDATE && !transfer;
    raft->leader = 0;
    raft->leader_heard = false;
    if (prevote) {
        set_role(raft, RAFT_PRECANDIDATE);
        raft->self_vote_seq = 0;
    } else {
        held_drop(raft);
        raft->term++;
        raft->vote = raft->config.id;
        raft->hard_state_pending = true;
        raft->self_vote_seq = log_durable_seq(raft);
        set_role(raft, RAFT_CANDIDATE);
    }
    raft->transfer_campaign = transfer;
    election_reset(raft);
    ask_votes(raft, prevote, transfer);
    count_votes(raft);
}

/* A server with a degraded disk lets others go first; but its log may be the longest that is left, and then nobody else
 * can be elected. */
#define SICK_PATIENCE 4 /* election timeouts without a leader */
static bool may_campaign(const struct raft *raft) {
    uint64_t waited =
        raft->now_ms - (raft->leader_contact_ms > raft->started_ms ? raft->leader_contact_ms : raft->started_ms);
    bool others = raft_members_voters(members_now(raft)) > 1;
    if (raft->disk_degraded && others && waited < SICK_PATIENCE * raft->config.election_ms) return false;
    return members_may_lead(raft) && !raft->disk_spent && !raft->receiving.complete &&
           raft->now_ms >= raft->quiet_until_ms;
}

void election_tick(struct raft *raft) {
    if (raft->now_ms < raft->election_deadline_ms) return;
    if (!may_campaign(raft)) {
        election_reset(raft);
        return;
    }
    if (raft->role != RAFT_FOLLOWER) set_role(raft, RAFT_FOLLOWER); /* a split vote: it asks again */
    campaign(raft, false);
}

void election_persisted(struct raft *raft) {
    if (raft->role == RAFT_CANDIDATE && raft->self_vote_seq <= raft->seq_done) count_votes(raft);
}

/* -- votes -------------------------------------------------------------------------------------------------------- */
static bool up_to_date(const struct raft *raft, const struct raft_message *m) {
    uint64_t last_term = log_last_term(raft);
    return m->last_term > last_term || (m->last_term == last_term && m->last_index >= log_last_index(raft));
}

/* Was a leader heard within the shortest election timeout? Then a server that did not hear it must not unseat it. */
static bool leader_alive(const struct raft *raft) {
    if (raft->role == RAFT_LEADER) return true; /* its quorum check ends its leadership */
    return raft->leader_heard && raft->now_ms - raft->leader_contact_ms < raft->config.election_ms;
}

void receive_vote(struct raft *raft, const struct raft_message *m) {
    bool prevote = m->type == RAFT_MSG_PREVOTE;
    /* do not answer, and do not take the candidate's term */
    if (m->term > raft->term && leader_alive(raft) && !m->transfer) return;
    if (!prevote && m->term > raft->term) become_follower(raft, m->term, 0);
    struct raft_message reply = {.type = prevote ? RAFT_MSG_PREVOTE_REPLY : RAFT_MSG_VOTE_REPLY,
                                 .from = raft->config.id,
                                 .to = m->from,
                                 .term = raft->term};
    if (prevote) {
        reply.granted = m->term > raft->term && up_to_date(raft, m) && !raft->disk_spent;
        if (reply.granted) reply.term = m->term;
    } else {
        reply.granted = m->term == raft->term && (raft->vote == 0 || raft->vote == m->from) && up_to_date(raft, m) &&
                        !raft->receiving.complete;
        if (reply.granted) {
            CHECK(raft->role == RAFT_FOLLOWER || raft->role == RAFT_PRECANDIDATE); /* others voted for themselves */
            if (raft->role == RAFT_PRECANDIDATE) set_role(raft, RAFT_FOLLOWER);
            if (raft->vote == 0) raft->vote = m->from, raft->hard_state_pending = true;
            election_reset(raft);
        }
    }
    if (prevote || mutated(raft, RAFT_MUTATE_VOTE_BEFORE_DISK)) *vector_push(&raft->out) = reply;
    else send_durable(raft, &reply);
}

void receive_vote_reply(struct raft *raft, const struct raft_message *m) {
    bool prevote = m->type == RAFT_MSG_PREVOTE_REPLY;
    if (m->term > raft->term && !(prevote && m->granted)) {
        become_follower(raft, m->term, 0);
        return;
    }
    if (prevote ? raft->role != RAFT_PRECANDIDATE : raft->role != RAFT_CANDIDATE) return;
    if (m->term != (prevote && m->granted ? raft->term + 1 : raft->term)) return;
    const struct raft_members *members = members_now(raft);
    for (uint32_t i = 0; i < members->count; i++) {
        if (members->member[i].id != m->from || raft->votes_answered[i]) continue;
        raft->votes_answered[i] = true;
        raft->votes_granted[i] = m->granted;
        count_votes(raft);
        return;
    }
}

/* -- transfer ----------------------------------------------------------------------------------------------------- */
#define HANDOVER_PAUSE_MS 10000 /* servers on one machine share its disk: leadership must not go round among them */

uint64_t best_target(const struct raft *raft, bool again) {
    CHECK(raft->role == RAFT_LEADER);
    uint64_t best = 0, target = 0;
    bool fresh = false;
    for (size_t i = 0; i < raft->peer_count; i++) {
        const struct progress *peer = &raft->peers[i];
        bool alive = peer->answered && raft->now_ms - peer->contact_ms < raft->config.election_ms;
        bool passed = peer->passed_ms && raft->now_ms - peer->passed_ms < HANDOVER_PAUSE_MS;
        if (!alive || peer->degraded || !members_is_voter(raft, peer->id) || (passed && (!again || fresh))) continue;
        if ((passed || fresh) && peer->match < best) continue;
        best = peer->match, target = peer->id, fresh = !passed;
    }
    return target;
}

int transfer_start(struct raft *raft, uint64_t target) {
    if (raft->role != RAFT_LEADER) return CO_NOTLEADER;
    if (raft->transfer_target) return CO_BUSY;
    if (target == 0) target = best_target(raft, true);
    if (target == 0 || target == raft->config.id || !members_is_voter(raft, target) || !progress_find(raft, target))
        return CO_INVALID;
    raft->transfer_target = target;
    raft->transfer_deadline_ms = raft->now_ms + raft->config.election_ms;
    raft->transfer_sent = raft->transfer_degraded = false;
    transfer_advance(raft);
    return CO_OK;
}

/* The target did not take over in time. The pause is between changes of leadership, and there was none: the next server
 * is asked, if there is one. */
void transfer_expire(struct raft *raft) {
    CHECK(raft->role == RAFT_LEADER && raft->transfer_target != 0);
    struct progress *peer = progress_find(raft, raft->transfer_target);
    if (peer) peer->passed_ms = raft->now_ms;
    if (raft->transfer_degraded) raft->handover_ms = 0;
    raft->transfer_target = 0;
}

/* -- a degraded disk ----------------------------------------------------------------------------------------------- */
void disk_handover(struct raft *raft) {
    if (!raft->disk_degraded || raft->role != RAFT_LEADER || raft->transfer_target) return;
    if (raft->handover_ms && raft->now_ms - raft->handover_ms < HANDOVER_PAUSE_MS) return;
    uint64_t target = best_target(raft, false);
    if (target == 0 || transfer_start(raft, target) != CO_OK) return; /* nobody is healthy: lead on, and serve reads */
    raft->transfer_degraded = true;
    raft->handover_ms = raft->now_ms;
}

void disk_changed(struct raft *raft, const struct raft_event *event) {
    raft->disk_degraded = event->u.disk.degraded, raft->disk_full = event->u.disk.full;
    raft->disk_spent = event->u.disk.spent;
    disk_handover(raft);
}

/* The target campaigns only when its disk has all of our log: match is the end of the entries that it reported as
 * durable. */
void transfer_advance(struct raft *raft) {
    CHECK(raft->role == RAFT_LEADER);
    if (!raft->transfer_target || raft->transfer_sent) return;
    const struct progress *peer = progress_find(raft, raft->transfer_target);
    if (!peer) {
        raft->transfer_target = 0;
        return;
    }
    if (peer->match < log_last_index(raft)) return;
    send_new(raft, RAFT_MSG_TIMEOUT_NOW, peer->id);
    raft->transfer_sent = true;
}

void receive_timeout_now(struct raft *raft, const struct raft_message *m) {
    if (m->term != raft->term || raft->role == RAFT_LEADER || !may_campaign(raft)) return;
    set_role(raft, RAFT_FOLLOWER);
    campaign(raft, true);
}
