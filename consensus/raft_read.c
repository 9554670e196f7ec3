/* Rounds and read indexes (6.4). A round is a number that heartbeats carry and answers echo. A read waits for a
 * round that began after it came; while one is under way, all that come wait together for the next.
 *
 * A new leader has everything that was committed before it, but need not know how far that goes: 6.4 lets it wait for
 * the first entry of its own term. It knows enough already when everything that it had at its election is committed,
 * except for first entries of leaders, which change nothing. So reads go on also when nothing can be committed because
 * the disks of a majority are full.
 *
 * A server that asks for a read index in this leader's term vouches for the leader: it asked after its reads came, so
 * its question proves as much as its answer to a heartbeat of a round that began after they came. When the two are a
 * majority (of two, of three), no round is needed. */
#include "consensus/raft_internal.h"

static bool commit_known(const struct raft *raft) {
    if (mutated(raft, RAFT_MUTATE_READ_COMMIT_UNKNOWN)) return true;
    for (uint64_t index = raft->commit + 1; index < raft->term_start; index++) {
        const struct raft_entry *entry = log_at(raft, index);
        if (!entry || entry->type != RAFT_ENTRY_EMPTY) return false;
    }
    return true;
}

static void read_done(struct raft *raft, uint64_t context, int error) {
    *vector_push(&raft->reads_done) =
        (struct raft_read_done){.context = context, .index = raft->commit, .error = error};
}

static void round_start(struct raft *raft) {
    CHECK(raft->role == RAFT_LEADER);
    raft->round++;
    announce(raft);
    read_round_acked(raft); /* a leader without peers is confirmed at once */
}

int read_request(struct raft *raft, uint64_t context) {
    if (raft->role != RAFT_LEADER) return CO_NOTLEADER;
    if (mutated(raft, RAFT_MUTATE_READ_WITHOUT_ROUND)) {
        read_done(raft, context, CO_OK);
        return CO_OK;
    }
    *vector_push(&raft->reads_waiting) = (struct pending_read){context, raft->round + 1};
    if (raft->round_confirmed >= raft->round) round_start(raft);
    return CO_OK;
}

bool raft_vouched(const struct raft *raft, uint64_t peer, uint64_t term, uint64_t *index) {
    if (raft->role != RAFT_LEADER || raft->failed || term != raft->term || !commit_known(raft)) return false;
    if (peer == raft->config.id || !members_is_voter(raft, peer)) return false;
    unsigned have = 1 + members_is_voter(raft, raft->config.id);
    if (have < members_quorum(raft) && !mutated(raft, RAFT_MUTATE_READ_VOUCHER_ALONE)) return false;
    *index = raft->commit;
    return true;
}

static uint64_t quorum_round(struct raft *raft) {
    uint64_t best = 0;
    /* Finds the highest round that a majority has acknowledged, by trying each peer's. */
    for (size_t i = 0; i <= raft->peer_count; i++) {
        uint64_t round = i < raft->peer_count ? raft->peers[i].round_acked : raft->round;
        unsigned have = members_is_voter(raft, raft->config.id);
        for (size_t k = 0; k < raft->peer_count; k++)
            if (members_is_voter(raft, raft->peers[k].id) && raft->peers[k].round_acked >= round) have++;
        if (have >= members_quorum(raft) && round > best) best = round;
    }
    return best;
}

void read_round_acked(struct raft *raft) {
    if (raft->role != RAFT_LEADER || raft->reads_waiting.count == 0) {
        if (raft->role == RAFT_LEADER) raft->round_confirmed = raft->round;
        return;
    }
    uint64_t round = quorum_round(raft);
    if (round > raft->round_confirmed) raft->round_confirmed = round;
    if (raft->failed || !commit_known(raft)) return;
    size_t kept = 0;
    for (size_t i = 0; i < raft->reads_waiting.count; i++) {
        struct pending_read *read = &raft->reads_waiting.items[i];
        if (read->round <= raft->round_confirmed) read_done(raft, read->context, CO_OK);
        else raft->reads_waiting.items[kept++] = *read;
    }
    raft->reads_waiting.count = kept;
    if (kept > 0 && raft->round_confirmed >= raft->round) round_start(raft);
}

void read_fail_all(struct raft *raft) {
    for (size_t i = 0; i < raft->reads_waiting.count; i++)
        read_done(raft, raft->reads_waiting.items[i].context, CO_NOTLEADER);
    raft->reads_waiting.count = 0;
}
