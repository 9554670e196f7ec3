/* Appends both ways, commit, progress of peers. */
#include "consensus/raft_internal.h"

#include <stdlib.h>

/* -- progress ----------------------------------------------------------------------------------------------------- */
struct progress *progress_find(struct raft *raft, uint64_t id) {
    for (size_t i = 0; i < raft->peer_count; i++)
        if (raft->peers[i].id == id) return &raft->peers[i];
    return NULL;
}

static void progress_init(struct raft *raft, struct progress *peer, uint64_t id) {
    uint64_t *ends = peer->inflight_ends;
    *peer = (struct progress){.id = id,
                              .state = PROGRESS_PROBE,
                              .next = log_last_index(raft) + 1,
                              .inflight_ends = ends,
                              .contact_ms = raft->now_ms,
                              .heartbeat_due = true};
    if (!ends) peer->inflight_ends = mem_alloc(raft->config.append_inflight_max * sizeof *ends);
}

/* Slots of departed peers keep their memory for the next ones. */
void progress_sync(struct raft *raft) {
    const struct raft_members *members = members_now(raft);
    for (size_t i = 0; i < raft->peer_count;) {
        if (raft_members_find(members, raft->peers[i].id)) {
            i++;
            continue;
        }
        struct progress gone = raft->peers[i];
        raft->peers[i] = raft->peers[--raft->peer_count];
        raft->peers[raft->peer_count] = gone;
    }
    for (uint32_t i = 0; i < members->count; i++) {
        uint64_t id = members->member[i].id;
        if (id == raft->config.id || progress_find(raft, id)) continue;
        CHECK(raft->peer_count < RAFT_MEMBERS_MAX);
        progress_init(raft, &raft->peers[raft->peer_count++], id);
    }
}

void progress_probe(struct progress *peer, uint64_t next) {
    CHECK(next > peer->match);
    peer->state = PROGRESS_PROBE;
    peer->next = next;
    peer->inflight = 0;
    peer->probe_sent = false;
    peer->load_pending = false;
}

static void inflight_ack(struct progress *peer, uint64_t match) {
    uint32_t done = 0;
    while (done < peer->inflight && peer->inflight_ends[done] <= match) done++;
    peer->inflight -= done;
    memmove(peer->inflight_ends, peer->inflight_ends + done, peer->inflight * sizeof *peer->inflight_ends);
}

/* -- leader: sending ---------------------------------------------------------------------------------------------- */
static struct raft_message *append_new(struct raft *raft, struct progress *peer, uint64_t prev, uint64_t prev_term) {
    struct raft_message *m = send_new(raft, RAFT_MSG_APPEND, peer->id);
    m->last_index = prev, m->last_term = prev_term;
    m->commit = raft->commit;
    m->round = raft->round;
    m->recoveries = members_now(raft)->recoveries, m->recoveries_told = true;
    return m;
}

static void sent_entries(struct raft *raft, struct progress *peer, const struct raft_entry *last) {
    peer->heartbeat_due = false;
    peer->prev_index = last->index, peer->prev_term = last->term;
    if (peer->state == PROGRESS_PROBE) {
        peer->probe_sent = true;
        return;
    }
    peer->next = last->index + 1;
    CHECK(peer->inflight < raft->config.append_inflight_max);
    CHECK(peer->inflight == 0 || peer->inflight_ends[peer->inflight - 1] < last->index);
    peer->inflight_ends[peer->inflight++] = last->index;
}

/* The number of entries to send: as many as the cap allows, at least one. */
static size_t capped_count(const struct raft *raft, const struct raft_entry *entries, size_t most) {
    size_t count = 0;
    uint64_t bytes = 0;
    while (count < most) {
        bytes += log_bytes_of(&entries[count]);
        if (count > 0 && bytes > raft->config.append_bytes_max) break;
        count++;
    }
    return count;
}

/* Loads from the entry before `next`, unless the term of that is known. */
static uint64_t load_start(const struct progress *peer) {
    return peer->next == 1 || (peer->prev_index == peer->next - 1 && peer->prev_term) ? peer->next : peer->next - 1;
}

static void load_from_disk(struct raft *raft, struct progress *peer) {
    CHECK(peer->next < raft->log.first && peer->next > 0);
    CHECK(!peer->load_pending);
    uint64_t term;
    if (log_term_at(raft, peer->next - 1, &term)) peer->prev_index = peer->next - 1, peer->prev_term = term;
    peer->load_pending = true;
    peer->load_from = load_start(peer);
    *vector_push(&raft->loads) = (struct raft_load){.peer = peer->id,
                                                    .from = peer->load_from,
                                                    .to = raft->log.first - 1,
                                                    .bytes_max = raft->config.append_bytes_max};
}

/* Sends one append, if there is something to send and the peer may be sent it. */
static bool send_append(struct raft *raft, struct progress *peer) {
    if (peer->state == PROGRESS_SNAPSHOT || peer->load_pending) return false;
    if (peer->state == PROGRESS_PROBE ? peer->probe_sent : peer->inflight >= raft->config.append_inflight_max)
        return false;
    if (peer->next > log_last_index(raft)) return false;
    uint64_t prev_term;
    struct raft_entry *entries = log_at(raft, peer->next);
    if (!entries || !log_term_at(raft, peer->next - 1, &prev_term)) {
        load_from_disk(raft, peer);
        return false;
    }
    struct raft_message *m = append_new(raft, peer, peer->next - 1, prev_term);
    m->entries = entries;
    m->entry_count = capped_count(raft, entries, log_last_index(raft) - peer->next + 1);
    sent_entries(raft, peer, &m->entries[m->entry_count - 1]);
    return true;
}

/* An empty append. It tells who leads and what is committed, and asks for the round and whether everything that was
 * sent arrived. When the term before `next` is not known, it refers to the beginning of the log, where every log
 * matches, so the answer proves nothing about the log. */
static void send_heartbeat(struct raft *raft, struct progress *peer) {
    uint64_t prev = peer->next - 1, prev_term = 0;
    if (peer->prev_index == prev) prev_term = peer->prev_term;
    else if (!log_term_at(raft, prev, &prev_term)) prev = 0;
    if (peer->state == PROGRESS_SNAPSHOT) prev = prev_term = 0;
    append_new(raft, peer, prev, prev_term);
    peer->heartbeat_due = false;
}

void replicate(struct raft *raft) {
    for (size_t i = 0; i < raft->peer_count; i++) {
        struct progress *peer = &raft->peers[i];
        while (send_append(raft, peer)) {}
        if (peer->heartbeat_due) send_heartbeat(raft, peer);
    }
}

void announce(struct raft *raft) {
    for (size_t i = 0; i < raft->peer_count; i++) raft->peers[i].heartbeat_due = true;
}

void entries_loaded(struct raft *raft, struct raft_event *event) {
    struct raft_entry *entries = event->u.loaded.entries;
    size_t count = event->u.loaded.count;
    for (size_t i = 0; i < count; i++)
        if (entries[i].data) *vector_push(&raft->loaned) = entries[i].data;
    struct progress *peer = raft->role == RAFT_LEADER ? progress_find(raft, event->u.loaded.peer) : NULL;
    if (!peer || !peer->load_pending || peer->load_from != event->u.loaded.from) return;
    peer->load_pending = false;
    if (peer->state == PROGRESS_SNAPSHOT || load_start(peer) != peer->load_from) return; /* the peer has moved on */
    if (event->u.loaded.error != CO_OK || count == 0) {
        snapshot_start_sending(raft, peer);
        return;
    }
    CHECK(entries[0].index == peer->load_from);
    if (peer->load_from < peer->next) {
        peer->prev_index = entries[0].index, peer->prev_term = entries[0].term;
        entries++, count--;
    }
    if (count == 0 || (peer->state == PROGRESS_PROBE && peer->probe_sent)) return; /* the rest goes out later */
    count = capped_count(raft, entries, count);
    struct raft_message *m = append_new(raft, peer, peer->next - 1, peer->next == 1 ? 0 : peer->prev_term);
    m->entries = arena_alloc(&raft->arena, count * sizeof *entries);
    memcpy(m->entries, entries, count * sizeof *entries);
    m->entry_count = count;
    sent_entries(raft, peer, &m->entries[count - 1]);
}

static bool voter_heard(const struct raft *raft, const struct progress *peer) {
    return members_is_voter(raft, peer->id) && raft->now_ms - peer->contact_ms <= raft->config.election_ms;
}

static bool quorum_heard(const struct raft *raft) {
    unsigned heard = members_is_voter(raft, raft->config.id);
    for (size_t i = 0; i < raft->peer_count; i++) heard += voter_heard(raft, &raft->peers[i]);
    return heard >= members_quorum(raft);
}

bool raft_quorum_has_room(const struct raft *raft) {
    unsigned room = members_is_voter(raft, raft->config.id);
    bool full = false;
    for (size_t i = 0; i < raft->peer_count; i++) {
        if (!voter_heard(raft, &raft->peers[i])) continue;
        if (raft->peers[i].full) full = true;
        else room++;
    }
    return !full || room >= members_quorum(raft);
}

void leader_tick(struct raft *raft) {
    if (raft->peer_count == 0) return;
    if (raft->now_ms >= raft->quorum_check_ms) {
        raft->quorum_check_ms = raft->now_ms + raft->config.election_ms / 2;
        if (!quorum_heard(raft)) {
            become_follower(raft, raft->term, 0);
            return;
        }
    }
    if (raft->transfer_target && raft->now_ms >= raft->transfer_deadline_ms) transfer_expire(raft);
    snapshot_send_due(raft);
    if (raft->now_ms < raft->heartbeat_due_ms) return;
    raft->heartbeat_due_ms = raft->now_ms + raft->config.heartbeat_ms;
    announce(raft);
    disk_handover(raft);
    for (size_t i = 0; i < raft->peer_count; i++) {
        struct progress *peer = &raft->peers[i];
        peer->probe_sent = false;
        if (peer->state == PROGRESS_SNAPSHOT) snapshot_send_tick(raft, peer);
    }
}

/* -- leader: answers ---------------------------------------------------------------------------------------------- */
/* Goes back past the whole conflicting term when the terms of both sides are known (raft.pdf 5.3, the optimisation). */
static void append_rejected(struct raft *raft, struct progress *peer, const struct raft_message *m) {
    if (m->match <= peer->match && peer->state != PROGRESS_PROBE) return; /* stale */
    if (peer->state == PROGRESS_PROBE && m->match != peer->next - 1) return;
    uint64_t next = m->hint_index + 1 < m->match ? m->hint_index + 1 : m->match, term;
    while (next > peer->match + 1 && log_term_at(raft, next - 1, &term) && term > m->hint_term) next--;
    if (next <= peer->match) next = peer->match + 1;
    if (next == 0) next = 1;
    progress_probe(peer, next);
}

void receive_append_reply(struct raft *raft, const struct raft_message *m) {
    if (m->term > raft->term) {
        become_follower(raft, m->term, 0);
        return;
    }
    if (raft->role != RAFT_LEADER || m->term != raft->term) return;
    struct progress *peer = progress_find(raft, m->from);
    if (!peer) return;
    peer->contact_ms = raft->now_ms;
    peer->answered = true;
    peer->degraded = m->degraded, peer->full = m->full;
    if (m->round > peer->round_acked) {
        peer->round_acked = m->round;
        read_round_acked(raft);
    }
    if (m->rejected) {
        append_rejected(raft, peer, m);
        return;
    }
    if (m->match > log_last_index(raft)) return; /* not from this log */
    bool advanced = m->match > peer->match;
    if (advanced) peer->match = m->match;
    if (peer->state == PROGRESS_SNAPSHOT) {
        if (peer->match < peer->snapshot_index) return;
        progress_probe(peer, peer->match + 1);
    }
    if (peer->state == PROGRESS_PROBE && m->match > 0 && m->match + 1 >= peer->next) {
        peer->state = PROGRESS_REPLICATE;
        peer->inflight = 0;
        peer->next = peer->match + 1;
    } else if (peer->state == PROGRESS_PROBE && m->match == 0 && peer->next == 1) {
        peer->state = PROGRESS_REPLICATE; /* an empty log matched at its beginning */
        peer->inflight = 0;
    }
    if (peer->state == PROGRESS_REPLICATE) {
        inflight_ack(peer, peer->match);
        if (peer->next <= peer->match) peer->next = peer->match + 1;
    }
    if (advanced) {
        commit_advance(raft);
        if (raft->role == RAFT_LEADER) transfer_advance(raft);
    }
}

/* -- commit ------------------------------------------------------------------------------------------------------- */
void commit_to(struct raft *raft, uint64_t index) {
    CHECK(index <= log_last_index(raft));
    if (index > raft->commit) raft->commit = index;
}

static int compare_down(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static uint64_t quorum_match(struct raft *raft) {
    const struct raft_members *members = members_now(raft);
    uint64_t matches[RAFT_MEMBERS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < members->count; i++) {
        if (!members->member[i].voter) continue;
        const struct progress *peer = progress_find(raft, members->member[i].id);
        CHECK(peer || members->member[i].id == raft->config.id);
        matches[count++] = peer ? peer->match : raft->stable;
        CHECK(matches[count - 1] <= log_last_index(raft));
    }
    if (count == 0) return 0;
    qsort(matches, count, sizeof *matches, compare_down);
    return matches[members_quorum(raft) - 1];
}

/* A removed leader leads until its removal is committed (4.2.2), then hands over. */
static void leave_if_removed(struct raft *raft) {
    if (raft_members_find(members_now(raft), raft->config.id) || !raft_members_committed(raft)) return;
    struct progress *best = NULL;
    for (size_t i = 0; i < raft->peer_count; i++)
        if (members_is_voter(raft, raft->peers[i].id) && (!best || raft->peers[i].match > best->match))
            best = &raft->peers[i];
    if (best) {
        announce(raft);
        replicate(raft); /* the others learn of the commit */
        if (best->match == log_last_index(raft)) send_new(raft, RAFT_MSG_TIMEOUT_NOW, best->id);
    }
    become_follower(raft, raft->term, 0);
}

void commit_advance(struct raft *raft) {
    if (raft->role != RAFT_LEADER) return;
    uint64_t index = mutated(raft, RAFT_MUTATE_ACK_BEFORE_MAJORITY) ? raft->stable : quorum_match(raft), term;
    if (index <= raft->commit) return;
    CHECK(log_term_at(raft, index, &term));
    if (term != raft->term && !mutated(raft, RAFT_MUTATE_COUNT_OLD_TERMS)) return; /* figure 8 */
    commit_to(raft, index);
    announce(raft); /* followers apply, and waiting reads there, without delay */
    read_round_acked(raft);
    leave_if_removed(raft);
}

/* -- follower ----------------------------------------------------------------------------------------------------- */
static void reject(struct raft *raft, const struct raft_message *m) {
    struct raft_message reply = {.type = RAFT_MSG_APPEND_REPLY,
                                 .from = raft->config.id,
                                 .to = m->from,
                                 .term = raft->term,
                                 .round = m->round,
                                 .rejected = true,
                                 .match = m->last_index,
                                 .degraded = raft->disk_degraded,
                                 .full = raft->disk_full};
    uint64_t hint = m->last_index < log_last_index(raft) ? m->last_index : log_last_index(raft), term = 0;
    while (hint > raft->commit && log_term_at(raft, hint, &term) && term > m->last_term) hint--;
    if (!log_term_at(raft, hint, &term)) term = 0;
    reply.hint_index = hint, reply.hint_term = term;
    send_durable(raft, &reply);
}

/* Does our log hold the entry before the first one sent? Committed entries are the same there: contradicts() has
 * checked that. */
static bool prev_matches(const struct raft *raft, const struct raft_message *m) {
    if (m->last_index <= raft->commit) return true;
    uint64_t term;
    return m->last_index <= log_last_index(raft) && log_term_at(raft, m->last_index, &term) && term == m->last_term;
}

static bool well_formed(const struct raft_message *m) {
    for (size_t i = 0; i < m->entry_count; i++) {
        if (m->entries[i].index != m->last_index + 1 + i || m->entries[i].term > m->term || m->entries[i].term == 0)
            return false;
        if (m->entries[i].term < (i ? m->entries[i - 1].term : m->last_term)) return false;
        struct raft_members members;
        if (m->entries[i].type == RAFT_ENTRY_MEMBERS &&
            raft_members_decode(raft_entry_bytes(&m->entries[i]), &members) != CO_OK)
            return false;
    }
    return true;
}

/* See raft.h (6). */
static bool contradicts(struct raft *raft, const struct raft_message *m) {
    if (log_contradicts(raft, m->last_index, m->last_term)) return true;
    for (size_t i = 0; i < m->entry_count && m->entries[i].index <= raft->commit; i++)
        if (log_contradicts(raft, m->entries[i].index, m->entries[i].term)) return true;
    return false;
}

/* Takes the entries into the log. False: entries that would have to give way may be committed, see raft.h (6). */
static bool take_entries(struct raft *raft, const struct raft_message *m) {
    for (size_t i = 0; i < m->entry_count; i++) {
        const struct raft_entry *entry = &m->entries[i];
        uint64_t term;
        if (entry->index <= raft->commit) continue;
        if (entry->index <= log_last_index(raft)) {
            CHECK(log_term_at(raft, entry->index, &term));
            if (term == entry->term) continue;
            if (m->recoveries_told && log_forsaken(raft, &m->recoveries)) return false;
            log_truncate(raft, entry->index);
        }
        raft_data_ref(entry->data);
        log_append(raft, entry);
    }
    return true;
}

bool follow(struct raft *raft, const struct raft_message *m) {
    if (m->term < raft->term) {
        struct raft_message reply = {
            .type = RAFT_MSG_APPEND_REPLY, .from = raft->config.id, .to = m->from, .term = raft->term};
        send_durable(raft, &reply);
        return false;
    }
    if (raft->role == RAFT_LEADER && m->term == raft->term) {
        /* two leaders in one term: a promise was broken somewhere */
        become_failed(raft);
        return false;
    }
    if (m->term > raft->term || raft->role != RAFT_FOLLOWER || raft->leader != m->from)
        become_follower(raft, m->term, m->from);
    raft->leader_contact_ms = raft->now_ms;
    raft->leader_heard = true;
    election_reset(raft);
    return true;
}

/* A state machine that falls behind must not fill this server's memory: this server acknowledges less than it could,
 * which is always safe, and the leader's window closes. When it has caught up, it acknowledges the rest with the next
 * heartbeat. Entries that are not committed yet do not count as a backlog: they may wait for this very
 * acknowledgement. */
static uint64_t acknowledged(const struct raft *raft, uint64_t match) {
    bool behind = raft->config.apply_bytes_max && raft->applying_bytes > raft->config.apply_bytes_max;
    return behind && match > raft->applied ? raft->applied : match;
}

void receive_append(struct raft *raft, const struct raft_message *m) {
    if (!well_formed(m) || !follow(raft, m)) return;
    if (raft->receiving.complete) return; /* a snapshot is being installed */
    if (contradicts(raft, m)) {
        become_failed(raft);
        return;
    }
    if (!prev_matches(raft, m)) {
        reject(raft, m);
        return;
    }
    if (!take_entries(raft, m)) {
        become_failed(raft);
        return;
    }
    uint64_t match = m->last_index + m->entry_count;
    CHECK(match <= log_last_index(raft));
    uint64_t known = m->commit < match ? m->commit : match; /* only what this message verified */
    commit_to(raft, known);
    struct raft_message reply = {.type = RAFT_MSG_APPEND_REPLY,
                                 .from = raft->config.id,
                                 .to = m->from,
                                 .term = raft->term,
                                 .round = m->round,
                                 .match = acknowledged(raft, match),
                                 .degraded = raft->disk_degraded,
                                 .full = raft->disk_full};
    if (m->entry_count == 0 && log_hard_state_durable(raft)) {
        /* this answer goes out at once, so it promises only what is durable */
        if (reply.match > raft->stable) reply.match = raft->stable;
        *vector_push(&raft->out) = reply;
        return;
    }
    send_durable(raft, &reply);
}
