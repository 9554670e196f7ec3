#include "consensus/raft.h"

#include <stdlib.h>

#include "consensus/raft_internal.h"

void *vector_room(void *items, size_t *capacity, size_t count, size_t item_size) {
    CHECK(count <= *capacity);
    if (count < *capacity) return items;
    *capacity = *capacity ? *capacity * 2 : 8;
    return mem_realloc(items, *capacity * item_size);
}

/* -- life --------------------------------------------------------------------------------------------------------- */
struct raft *raft_new(const struct raft_config *config, const struct raft_start *start, uint64_t now_ms) {
    CHECK(config->id != 0 && config->heartbeat_ms > 0 && config->election_ms > config->heartbeat_ms);
    CHECK(config->append_inflight_max > 0 && config->append_bytes_max > 0 && config->snapshot_chunk_bytes > 0);
    CHECK(start->applied >= start->snapshot.index);
    struct raft *raft = mem_zalloc(sizeof *raft);
    raft->config = *config;
    raft->peers = mem_zalloc(RAFT_MEMBERS_MAX * sizeof *raft->peers);
    raft->now_ms = raft->started_ms = now_ms;
    rng_seed(&raft->rng, config->seed);
    raft->term = start->term, raft->vote = start->vote;
    raft->snapshot = start->snapshot;
    raft->log.first = start->snapshot.index + 1;
    raft->log.base_term = start->snapshot.term;
    members_reset(raft, &start->snapshot);
    for (size_t i = 0; i < start->entry_count; i++) {
        log_append(raft, &start->entries[i]);
        raft_data_ref(start->entries[i].data);
    }
    raft->handed = raft->stable = log_last_index(raft);
    CHECK(start->applied <= raft->stable);
    /* Applied entries were committed. */
    raft->commit = raft->applying = raft->applied = start->applied;
    raft->role = RAFT_FOLLOWER;
    log_trim(raft);
    election_reset(raft);
    const struct raft_members *members = members_now(raft);
    if (members_is_voter(raft, config->id) && raft_members_voters(members) == 1) raft->election_deadline_ms = now_ms;
    return raft;
}

void raft_free(struct raft *raft) {
    if (!raft) return;
    raft_effects_done(raft);
    for (size_t i = 0; i < raft->loaned.count; i++) raft_data_unref(raft->loaned.items[i]);
    log_free(raft);
    for (size_t i = 0; i < RAFT_MEMBERS_MAX; i++) free(raft->peers[i].inflight_ends);
    free(raft->peers);
    free(raft->ops.items), free(raft->held.items), free(raft->reads_waiting.items), free(raft->members.items);
    free(raft->out.items), free(raft->reads_done.items), free(raft->loads.items), free(raft->chunk_reads.items);
    free(raft->chunk_writes.items), free(raft->loaned.items);
    arena_free(&raft->arena);
    free(raft);
}

/* -- messages out ------------------------------------------------------------------------------------------------- */
struct raft_message *send_new(struct raft *raft, enum raft_message_type type, uint64_t to) {
    CHECK(to != 0 && to != raft->config.id);
    struct raft_message *m = vector_push(&raft->out);
    *m = (struct raft_message){.type = type, .from = raft->config.id, .to = to, .term = raft->term};
    return m;
}

void send_durable(struct raft *raft, const struct raft_message *message) {
    CHECK(message->entry_count == 0);
    CHECK(message->from == raft->config.id && message->to != raft->config.id);
    uint64_t seq = log_durable_seq(raft);
    if (seq <= raft->seq_done) {
        *vector_push(&raft->out) = *message;
        return;
    }
    *vector_push(&raft->held) = (struct held_message){seq, *message};
}

static void held_release(struct raft *raft) {
    size_t kept = 0;
    for (size_t i = 0; i < raft->held.count; i++) {
        if (raft->held.items[i].seq <= raft->seq_done) *vector_push(&raft->out) = raft->held.items[i].message;
        else raft->held.items[kept++] = raft->held.items[i];
    }
    raft->held.count = kept;
}

/* A new term makes answers of the old one pointless. */
void held_drop(struct raft *raft) { raft->held.count = 0; }

/* -- events ------------------------------------------------------------------------------------------------------- */
static void receive(struct raft *raft, const struct raft_message *m) {
    if (m->from == raft->config.id || m->to != raft->config.id) return;
    switch (m->type) {
        case RAFT_MSG_PREVOTE:
        case RAFT_MSG_VOTE: receive_vote(raft, m); return;
        case RAFT_MSG_PREVOTE_REPLY:
        case RAFT_MSG_VOTE_REPLY: receive_vote_reply(raft, m); return;
        case RAFT_MSG_APPEND: receive_append(raft, m); return;
        case RAFT_MSG_APPEND_REPLY: receive_append_reply(raft, m); return;
        case RAFT_MSG_SNAPSHOT: receive_snapshot(raft, m); return;
        case RAFT_MSG_SNAPSHOT_REPLY: receive_snapshot_reply(raft, m); return;
        case RAFT_MSG_TIMEOUT_NOW: receive_timeout_now(raft, m); return;
    }
}

static int propose(struct raft *raft, struct raft_event *event) {
    if (raft->role != RAFT_LEADER || raft->transfer_target) return CO_NOTLEADER;
    CHECK(raft->leader == raft->config.id);
    event->u.propose.first_index = log_last_index(raft) + 1;
    event->u.propose.term = raft->term;
    for (size_t i = 0; i < event->u.propose.count; i++) {
        struct raft_entry *entry = &event->u.propose.entries[i];
        CHECK(entry->type == RAFT_ENTRY_COMMAND);
        entry->index = log_last_index(raft) + 1;
        entry->term = raft->term;
        entry->unix_ms = event->unix_ms;
        log_append(raft, entry);
    }
    return CO_OK;
}

static void persisted(struct raft *raft, uint64_t seq) {
    log_persisted(raft, seq);
    held_release(raft);
    election_persisted(raft);
    commit_advance(raft);
}

/* The first entry of the first term is the configuration; then an election like any other. */
static int bootstrap(struct raft *raft, const struct raft_members *members, struct raft_data *first, uint64_t unix_ms) {
    if (raft->term > 0 || log_last_index(raft) > 0) return CO_EXISTS;
    struct buffer bytes = {0};
    raft_members_encode(members, &bytes);
    struct raft_entry entry = {
        .index = 1, .term = 1, .type = RAFT_ENTRY_MEMBERS, .data = raft_data_new(bytes.data, bytes.size)};
    buffer_free(&bytes);
    raft->term = 1;
    raft->hard_state_pending = true;
    log_append(raft, &entry);
    struct raft_entry command = {.index = 2, .term = 1, .type = RAFT_ENTRY_COMMAND, .data = first, .unix_ms = unix_ms};
    if (first) log_append(raft, &command);
    raft->election_deadline_ms = raft->now_ms;
    return CO_OK;
}

/* The content of the disk is unknown now, so promise nothing more (raft.h, 5). Another server that may lead is told to
 * campaign at once. */
static void persist_failed(struct raft *raft, uint64_t seq) {
    if (mutated(raft, RAFT_MUTATE_ACK_FAILED_APPEND)) {
        persisted(raft, seq);
        return;
    }
    uint64_t target = raft->role == RAFT_LEADER ? best_target(raft, true) : 0;
    become_failed(raft);
    if (target) send_new(raft, RAFT_MSG_TIMEOUT_NOW, target);
}

static void tick(struct raft *raft) {
    if (raft->role == RAFT_LEADER) leader_tick(raft);
    else election_tick(raft);
}

static void applied(struct raft *raft, uint64_t index) {
    /* it is the snapshot's index, and comes before the word that the snapshot is installed */
    if (raft->receiving.complete && index > raft->applying) return;
    CHECK(index <= raft->applying);
    for (; raft->applied < index; raft->applied++) {
        const struct raft_entry *entry = log_at(raft, raft->applied + 1);
        if (!entry) continue; /* a snapshot came meanwhile */
        CHECK(raft->applying_bytes >= log_bytes_of(entry));
        raft->applying_bytes -= log_bytes_of(entry);
    }
    log_trim(raft);
}

static void unreachable(struct raft *raft, uint64_t id) {
    struct progress *peer = raft->role == RAFT_LEADER ? progress_find(raft, id) : NULL;
    if (!peer) return;
    if (peer->state == PROGRESS_REPLICATE) progress_probe(peer, peer->match + 1);
    /* The peer may come back without entries that it had acknowledged (a damaged end of its log was cut off). So it has
     * to tell its match anew, or its rejections would count as stale for ever. A match that is too low only delays. */
    peer->match = 0;
    peer->probe_sent = true; /* until the next heartbeat */
    peer->snapshot_sent_ms = 0;
}

static int step(struct raft *raft, struct raft_event *event) {
    if (raft->failed) {
        if (event->type == RAFT_ENTRIES_LOADED)
            for (size_t i = 0; i < event->u.loaded.count; i++) raft_data_unref(event->u.loaded.entries[i].data);
        return CO_IO;
    }
    switch (event->type) {
        case RAFT_TICK: tick(raft); return CO_OK;
        case RAFT_RECEIVE: receive(raft, event->u.receive); return CO_OK;
        case RAFT_PROPOSE: return propose(raft, event);
        case RAFT_CHANGE: return members_change(raft, event);
        case RAFT_READ: return read_request(raft, event->u.read.context);
        case RAFT_TRANSFER: return transfer_start(raft, event->u.transfer.target);
        case RAFT_PERSISTED: persisted(raft, event->u.persisted.seq); return CO_OK;
        case RAFT_PERSIST_FAILED: persist_failed(raft, event->u.persisted.seq); return CO_OK;
        case RAFT_APPLIED: applied(raft, event->u.applied.index); return CO_OK;
        case RAFT_ENTRIES_LOADED: entries_loaded(raft, event); return CO_OK;
        case RAFT_SNAPSHOT_TAKEN: snapshot_taken(raft, &event->u.snapshot.meta); return CO_OK;
        case RAFT_CHUNK_READ: chunk_read_done(raft, event); return CO_OK;
        case RAFT_CHUNK_WRITTEN: chunk_written(raft, event); return CO_OK;
        case RAFT_UNREACHABLE: unreachable(raft, event->u.unreachable.peer); return CO_OK;
        case RAFT_DISK: disk_changed(raft, event); return CO_OK;
        case RAFT_BOOTSTRAP: return bootstrap(raft, event->u.bootstrap, event->first_command, event->unix_ms);
        case RAFT_STEP_DOWN:
            raft->quiet_until_ms = raft->now_ms + event->u.step_down.quiet_ms;
            if (raft->role != RAFT_FOLLOWER) become_follower(raft, raft->term, 0);
            return CO_OK;
    }
    UNREACHABLE();
}

int raft_step(struct raft *raft, struct raft_event *event) {
    CHECK(!raft->effects_out);
    uint64_t term = raft->term, vote = raft->vote, commit = raft->commit;
    raft->now_ms = event->now_ms;
    int rv = step(raft, event);
    CHECK(raft->term >= term);
    CHECK(raft->term > term || vote == 0 || raft->vote == vote); /* one vote a term */
    CHECK(raft->commit >= commit);
    return rv;
}

/* -- effects ------------------------------------------------------------------------------------------------------ */
static void check_order(const struct raft *raft) {
    CHECK(raft->snapshot.index <= raft->commit);
    CHECK(raft->applied <= raft->applying && raft->applying <= raft->commit);
    CHECK(raft->commit <= log_last_index(raft));
    CHECK(raft->stable <= raft->handed && raft->handed <= log_last_index(raft));
    CHECK(raft->seq_done <= raft->seq);
    CHECK((raft->role == RAFT_LEADER) == (raft->leader == raft->config.id));
    CHECK(!raft->failed || raft->role == RAFT_FOLLOWER);
}

static void gather_committed(struct raft *raft) {
    uint64_t to = raft->commit < raft->stable ? raft->commit : raft->stable;
    if (raft->failed || to <= raft->applying || raft->receiving.complete) return;
    size_t count = to - raft->applying;
    raft->effects.committed = log_at(raft, raft->applying + 1);
    CHECK(raft->effects.committed != NULL);
    CHECK(raft->effects.committed[0].index == raft->applying + 1 && raft->effects.committed[count - 1].index == to);
    raft->effects.committed_count = count;
    for (size_t i = 0; i < count; i++) raft->applying_bytes += log_bytes_of(&raft->effects.committed[i]);
    raft->applying = to;
}

const struct raft_effects *raft_effects(struct raft *raft) {
    CHECK(!raft->effects_out);
    struct raft_effects *fx = &raft->effects;
    if (raft->role == RAFT_LEADER) replicate(raft);
    log_hand_over(raft);
    gather_committed(raft);
    fx->messages = raft->out.items, fx->message_count = raft->out.count;
    fx->reads = raft->reads_done.items, fx->read_count = raft->reads_done.count;
    fx->loads = raft->loads.items, fx->load_count = raft->loads.count;
    fx->chunk_reads = raft->chunk_reads.items, fx->chunk_read_count = raft->chunk_reads.count;
    fx->chunk_writes = raft->chunk_writes.items, fx->chunk_write_count = raft->chunk_writes.count;
    check_order(raft);
    raft->effects_out = true;
    return fx;
}

void raft_effects_done(struct raft *raft) {
    if (!raft->effects_out) return;
    raft->effects_out = false;
    raft->out.count = raft->reads_done.count = raft->loads.count = raft->chunk_reads.count = raft->chunk_writes.count =
        0;
    for (size_t i = 0; i < raft->loaned.count; i++) raft_data_unref(raft->loaned.items[i]);
    raft->loaned.count = 0;
    raft->effects = (struct raft_effects){0};
    arena_reset(&raft->arena);
}

/* -- views -------------------------------------------------------------------------------------------------------- */
static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t raft_deadline_ms(const struct raft *raft) {
    if (raft->failed) return UINT64_MAX;
    if (raft->role != RAFT_LEADER) return raft->election_deadline_ms;
    uint64_t at = UINT64_MAX;
    if (raft->peer_count > 0) at = sooner(raft->heartbeat_due_ms, raft->quorum_check_ms);
    if (raft->transfer_target) at = sooner(at, raft->transfer_deadline_ms);
    return sooner(at, snapshot_send_due_ms(raft));
}
enum raft_role raft_role(const struct raft *raft) { return raft->role; }
bool raft_failed(const struct raft *raft) { return raft->failed; }
bool raft_transferring(const struct raft *raft) { return raft->role == RAFT_LEADER && raft->transfer_target != 0; }
struct raft_contradiction raft_contradiction(const struct raft *raft) {
    return raft->contradiction;
}
uint64_t raft_id(const struct raft *raft) { return raft->config.id; }
uint64_t raft_term(const struct raft *raft) { return raft->term; }
uint64_t raft_vote(const struct raft *raft) { return raft->vote; }
uint64_t raft_leader(const struct raft *raft) { return raft->leader; }
uint64_t raft_commit_index(const struct raft *raft) { return raft->commit; }
uint64_t raft_applied_index(const struct raft *raft) { return raft->applied; }
uint64_t raft_last_index(const struct raft *raft) { return log_last_index(raft); }
uint64_t raft_last_term(const struct raft *raft) { return log_last_term(raft); }
uint64_t raft_stable_index(const struct raft *raft) { return raft->stable; }
uint64_t raft_snapshot_index(const struct raft *raft) { return raft->snapshot.index; }
uint64_t raft_snapshot_bytes(const struct raft *raft) { return raft->snapshot.index ? raft->snapshot.size : 0; }
bool raft_leader_ready(const struct raft *raft) {
    return raft->role == RAFT_LEADER && !raft->failed && raft->commit >= raft->term_start;
}
bool raft_alone(const struct raft *raft) {
    return raft_leader_ready(raft) && members_now(raft)->count == 1 && members_is_voter(raft, raft->config.id);
}
const struct raft_members *raft_members(const struct raft *raft) { return members_now(raft); }
uint64_t raft_members_index(const struct raft *raft) { return raft->members.items[raft->members.count - 1].index; }
bool raft_members_committed(const struct raft *raft) { return raft_members_index(raft) <= raft->commit; }
uint64_t raft_match_index(const struct raft *raft, uint64_t peer) {
    const struct progress *p = raft->role == RAFT_LEADER ? progress_find((struct raft *)raft, peer) : NULL;
    return p ? p->match : 0;
}
bool raft_peer_heard(const struct raft *raft, uint64_t peer) {
    for (size_t i = 0; i < raft->peer_count; i++)
        if (raft->peers[i].id == peer)
            return raft->peers[i].answered && raft->now_ms - raft->peers[i].contact_ms <= raft->config.election_ms;
    return false;
}

bool raft_peer_full(const struct raft *raft, uint64_t peer) {
    const struct progress *p = raft->role == RAFT_LEADER ? progress_find((struct raft *)raft, peer) : NULL;
    return p && p->full;
}
uint64_t raft_contact_ms(const struct raft *raft) {
    return raft->role == RAFT_LEADER ? raft->now_ms : raft->leader_contact_ms;
}
const struct raft_entry *raft_entry_at(const struct raft *raft, uint64_t index) { return log_at(raft, index); }
bool raft_disk_degraded(const struct raft *raft) { return raft->disk_degraded; }
static bool peer_answers(const struct raft *raft, const struct progress *peer) {
    return raft->now_ms - peer->contact_ms < 2 * (uint64_t)raft->config.election_ms;
}
/* The peer has the last chunk, or is being sent it, and is silent until the snapshot is in place. */
static bool peer_installs(const struct raft *raft, const struct progress *peer) {
    return peer->snapshot_index == raft->snapshot.index && peer->snapshot_offset > 0 &&
           peer->snapshot_offset + raft->config.snapshot_chunk_bytes >= raft->snapshot.size;
}
bool raft_sending_snapshot(const struct raft *raft) {
    if (raft->role != RAFT_LEADER) return false;
    for (size_t i = 0; i < raft->peer_count; i++) {
        const struct progress *peer = &raft->peers[i];
        if (peer->state == PROGRESS_SNAPSHOT && (peer_answers(raft, peer) || peer_installs(raft, peer))) return true;
    }
    return false;
}
bool raft_peer_needs_log(const struct raft *raft) {
    if (raft->role != RAFT_LEADER) return false;
    for (size_t i = 0; i < raft->peer_count; i++)
        if (raft->peers[i].match + 1 < raft->log.first && peer_answers(raft, &raft->peers[i])) return true;
    return false;
}
