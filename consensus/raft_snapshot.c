/* Snapshots in chunks, both ways. One chunk is on its way to a peer at a time; the answer says how much is stored,
 * so an interrupted transfer goes on where it was, and a lost, repeated or reordered chunk does no harm. */
#include "consensus/raft_internal.h"

/* -- leader ------------------------------------------------------------------------------------------------------- */
static void request_chunk(struct raft *raft, struct progress *peer) {
    CHECK(peer->state == PROGRESS_SNAPSHOT);
    CHECK(peer->snapshot_index > 0 && peer->snapshot_index <= raft->snapshot.index);
    peer->chunk_pending = true;
    peer->chunk_waits = false;
    peer->snapshot_sent_ms = raft->now_ms;
    *vector_push(&raft->chunk_reads) = (struct raft_chunk_read){.peer = peer->id,
                                                                .snapshot_index = peer->snapshot_index,
                                                                .offset = peer->snapshot_offset,
                                                                .size_max = raft->config.snapshot_chunk_bytes};
}

/* Sets the time of the next chunk, so that the transfer is no faster than the rate. Time lost by a slow answer is made
 * up for by one chunk at most. */
static void next_chunk(struct raft *raft, struct progress *peer) {
    uint64_t now_us = raft->now_ms * 1000, step_us = 0;
    if (raft->config.snapshot_rate)
        step_us = (uint64_t)raft->config.snapshot_chunk_bytes * 1000000 / raft->config.snapshot_rate;
    if (peer->chunk_due_us + step_us < now_us) peer->chunk_due_us = now_us - step_us;
    peer->chunk_due_us += step_us;
    peer->chunk_waits = peer->chunk_due_us > now_us;
    if (peer->chunk_waits) peer->chunk_pending = false;
    else request_chunk(raft, peer);
}

void snapshot_send_due(struct raft *raft) {
    for (size_t i = 0; i < raft->peer_count; i++) {
        struct progress *peer = &raft->peers[i];
        if (peer->state == PROGRESS_SNAPSHOT && peer->chunk_waits && peer->chunk_due_us <= raft->now_ms * 1000)
            request_chunk(raft, peer);
    }
}

uint64_t snapshot_send_due_ms(const struct raft *raft) {
    uint64_t at = UINT64_MAX;
    for (size_t i = 0; i < raft->peer_count; i++) {
        const struct progress *peer = &raft->peers[i];
        if (peer->state != PROGRESS_SNAPSHOT || !peer->chunk_waits) continue;
        uint64_t due = (peer->chunk_due_us + 999) / 1000;
        if (due < at) at = due;
    }
    return at;
}

void snapshot_start_sending(struct raft *raft, struct progress *peer) {
    if (raft->snapshot.index == 0) {
        peer->probe_sent = true;
        return;
    } /* nothing to send: try the log again later */
    peer->state = PROGRESS_SNAPSHOT;
    peer->inflight = 0;
    peer->snapshot_index = raft->snapshot.index;
    peer->snapshot_offset = 0;
    request_chunk(raft, peer);
}

void snapshot_send_tick(struct raft *raft, struct progress *peer) {
    if (peer->chunk_waits) return;
    bool late = raft->now_ms - peer->snapshot_sent_ms >= 2 * (uint64_t)raft->config.election_ms;
    if (!peer->chunk_pending || late) request_chunk(raft, peer);
}

void chunk_read_done(struct raft *raft, const struct raft_event *event) {
    struct progress *peer = raft->role == RAFT_LEADER ? progress_find(raft, event->u.chunk_read.peer) : NULL;
    if (!peer || peer->state != PROGRESS_SNAPSHOT || !peer->chunk_pending) return;
    if (event->u.chunk_read.snapshot_index != peer->snapshot_index ||
        event->u.chunk_read.offset != peer->snapshot_offset)
        return;
    /* replaced meanwhile */
    if (peer->snapshot_index != raft->snapshot.index) {
        snapshot_start_sending(raft, peer);
        return;
    }
    if (event->u.chunk_read.error != CO_OK) {
        peer->chunk_pending = false;
        return;
    } /* again at the next tick */
    CHECK(event->u.chunk_read.size <= raft->config.snapshot_chunk_bytes);
    char *data = arena_alloc(&raft->arena, event->u.chunk_read.size);
    if (event->u.chunk_read.size) memcpy(data, event->u.chunk_read.data, event->u.chunk_read.size);
    peer->snapshot_sent_ms = raft->now_ms;
    struct raft_message *m = send_new(raft, RAFT_MSG_SNAPSHOT, peer->id);
    m->snapshot = raft->snapshot;
    m->round = raft->round;
    m->recoveries = members_now(raft)->recoveries, m->recoveries_told = true;
    m->offset = event->u.chunk_read.offset;
    m->data = slice_make(data, event->u.chunk_read.size);
    m->last = event->u.chunk_read.last;
}

void receive_snapshot_reply(struct raft *raft, const struct raft_message *m) {
    if (m->term > raft->term) {
        become_follower(raft, m->term, 0);
        return;
    }
    if (raft->role != RAFT_LEADER || m->term != raft->term) return;
    struct progress *peer = progress_find(raft, m->from);
    if (!peer) return;
    peer->contact_ms = raft->now_ms;
    if (peer->state != PROGRESS_SNAPSHOT || m->snapshot.index != peer->snapshot_index) return;
    bool asked = peer->chunk_pending || peer->chunk_waits;
    if (m->hint_index == peer->snapshot_offset && asked) return; /* an echo; the tick repeats lost chunks */
    peer->snapshot_offset = m->hint_index;
    next_chunk(raft, peer);
}

void snapshot_taken(struct raft *raft, const struct raft_snapshot_meta *meta) {
    if (meta->index <= raft->snapshot.index) return;
    /* it is the received snapshot, and the word that it is installed comes next */
    if (raft->receiving.complete && meta->index > raft->applying) return;
    CHECK(meta->index <= raft->applying);
    raft->snapshot = *meta;
    members_compact(raft, meta->index);
}

/* -- follower ----------------------------------------------------------------------------------------------------- */
static void reply_stored(struct raft *raft, uint64_t to, const struct raft_snapshot_meta *meta, uint64_t stored) {
    struct raft_message reply = {
        .type = RAFT_MSG_SNAPSHOT_REPLY, .from = raft->config.id, .to = to, .term = raft->term, .hint_index = stored};
    reply.snapshot.index = meta->index, reply.snapshot.term = meta->term;
    send_durable(raft, &reply);
}

static void reply_match(struct raft *raft, uint64_t to, uint64_t index) {
    struct raft_message reply = {.type = RAFT_MSG_APPEND_REPLY,
                                 .from = raft->config.id,
                                 .to = to,
                                 .term = raft->term,
                                 .match = index < raft->stable ? index : raft->stable,
                                 .degraded = raft->disk_degraded,
                                 .full = raft->disk_full};
    send_durable(raft, &reply);
}

/* Does our log reach the snapshot already? Installing it would throw away entries that we may have acknowledged. */
static bool not_needed(struct raft *raft, const struct raft_snapshot_meta *meta) {
    uint64_t term;
    if (meta->index <= raft->commit) return true;
    if (meta->index > log_last_index(raft) || !log_term_at(raft, meta->index, &term) || term != meta->term)
        return false;
    commit_to(raft, meta->index);
    return true;
}

static void write_chunk(struct raft *raft, const struct raft_message *m) {
    CHECK(!raft->receiving.writing && !raft->receiving.complete);
    char *data = arena_alloc(&raft->arena, m->data.size);
    if (m->data.size) memcpy(data, m->data.data, m->data.size);
    raft->receiving.writing = true;
    *vector_push(&raft->chunk_writes) = (struct raft_chunk_write){.from = m->from,
                                                                  .meta = raft->receiving.meta,
                                                                  .offset = m->offset,
                                                                  .data = data,
                                                                  .size = m->data.size,
                                                                  .first = m->offset == 0,
                                                                  .last = m->last};
    raft->receiving.end = m->last ? m->offset + m->data.size : UINT64_MAX;
}

void receive_snapshot(struct raft *raft, const struct raft_message *m) {
    if (!follow(raft, m) || raft->receiving.complete) return;
    if (log_contradicts(raft, m->snapshot.index, m->snapshot.term)) {
        become_failed(raft);
        return;
    }
    if (not_needed(raft, &m->snapshot)) {
        reply_match(raft, m->from, m->snapshot.index);
        return;
    }
    if (m->recoveries_told && log_forsaken(raft, &m->recoveries)) {
        become_failed(raft);
        return;
    }
    bool same = raft->receiving.active && raft->receiving.meta.index == m->snapshot.index &&
                raft->receiving.meta.term == m->snapshot.term;
    if (raft->receiving.writing) return;
    if (!same) {
        if (m->offset != 0) {
            reply_stored(raft, m->from, &m->snapshot, 0);
            return;
        }
        raft->receiving.active = true;
        raft->receiving.meta = m->snapshot;
        raft->receiving.recoveries = m->recoveries, raft->receiving.recoveries_told = m->recoveries_told;
        raft->receiving.stored = 0;
    }
    raft->receiving.from = m->from;
    if (m->offset != raft->receiving.stored) {
        reply_stored(raft, m->from, &m->snapshot, raft->receiving.stored);
        return;
    }
    write_chunk(raft, m);
}

static void install(struct raft *raft) {
    const struct raft_snapshot_meta *meta = &raft->receiving.meta;
    CHECK(raft->receiving.active && !raft->receiving.complete);
    if (not_needed(raft, meta)) {
        raft->receiving.active = false;
        reply_match(raft, raft->receiving.from, meta->index);
        return;
    }
    if (raft->receiving.recoveries_told && log_forsaken(raft, &raft->receiving.recoveries)) {
        /* the log has grown since it began, and its entries contradict the snapshot */
        become_failed(raft);
        return;
    }
    campaign_end(raft); /* its votes are counted by the old members */
    log_reset(raft, meta->index, meta->term);
    members_reset(raft, meta);
    raft->commit = meta->index;
    raft->receiving.complete = true;
    raft->install_pending = true;
    raft->effects.members_changed = true;
}

void chunk_written(struct raft *raft, const struct raft_event *event) {
    if (!raft->receiving.writing || raft->receiving.meta.index != event->u.chunk_written.snapshot_index) return;
    raft->receiving.writing = false;
    if (!raft->receiving.active) return; /* given up meanwhile */
    if (event->u.chunk_written.error != CO_OK) {
        raft->receiving.active = false;
        return;
    }
    raft->receiving.stored = event->u.chunk_written.offset;
    if (raft->receiving.stored >= raft->receiving.end) install(raft);
    else reply_stored(raft, raft->receiving.from, &raft->receiving.meta, raft->receiving.stored);
}

/* The received snapshot is durable, and installed in the state machine. */
void snapshot_installed(struct raft *raft) {
    CHECK(raft->receiving.complete);
    CHECK(raft->stable >= raft->receiving.meta.index && raft->commit >= raft->receiving.meta.index);
    raft->receiving.active = raft->receiving.complete = false;
    raft->snapshot = raft->receiving.meta;
    raft->applying = raft->applied = raft->snapshot.index;
    if (raft->leader && raft->leader != raft->config.id) reply_match(raft, raft->leader, raft->snapshot.index);
}
