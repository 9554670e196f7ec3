#include "consensus/node.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/wakeup_batch.h"
#include "consensus/node_internal.h"

/* -- from other threads ------------------------------------------------------------------------------------------- */
/* The node whose turn this thread's loop is in; the end of the turn looks into the boxes. Likewise for its flush. */
static _Thread_local struct node *in_turn, *in_flush;

static void send_wake(void *node) { uv_async_send(&((struct node *)node)->wake); }

static void wake_loop(struct node *node) {
    if (in_turn != node) wakeup_batch_send(send_wake, node);
}

void node_wake(struct node *node) {
    if (in_flush == node) return;
    if (in_turn == node) node->dirty = true;
    else if (!atomic_exchange(&node->nudged, true)) wakeup_batch_send(send_wake, node);
}

void node_propose(struct node *node, struct node_proposal *proposal) {
    CHECK(proposal->data && proposal->done);
    if (mailbox_put(&node->proposals, &proposal->mail)) wake_loop(node);
}

void node_read(struct node *node, struct node_read *read) {
    CHECK(read->done);
    if (mailbox_put(&node->read_box, &read->mail)) wake_loop(node);
}

struct node_news *node_news_new(enum raft_event_type type) {
    struct node_news *news = mem_zalloc(sizeof *news);
    news->event.type = type;
    news->has_event = true;
    return news;
}

void node_post(struct node *node, struct node_news *news) {
    if (mailbox_put(&node->news, &news->mail)) wake_loop(node);
}

const struct node_view *node_view(const struct node *node) { return &node->view; }
const struct raft_members *node_members(const struct node *node) { return raft_members(node->raft); }
uint64_t node_members_index(const struct node *node) { return raft_members_index(node->raft); }
bool node_members_committed(const struct node *node) { return raft_members_committed(node->raft); }
uint64_t node_last_term(const struct node *node) { return raft_last_term(node->raft); }

/* -- proposals ---------------------------------------------------------------------------------------------------- */
void node_apply_done(struct node_proposal *proposal, const void *result) { requests_answer(proposal, result); }

static void take_proposals(struct node *node) {
    for (struct mail *mail = mailbox_take(&node->proposals), *next; mail; mail = next) {
        next = mail->next;
        node->dirty = true;
        requests_command(&node->requests, CONTAINER_OF(mail, struct node_proposal, mail));
    }
}

/* Asks for a flush. Also called outside of a turn, in a timer's callback or when a handle was closed: so it wakes the
 * loop, because the next turn may be far off. */
static void due(struct node *node) {
    node->dirty = true;
    wake_loop(node);
}

void node_propose_again(struct node *node, struct node_proposal *proposal) {
    requests_command(&node->requests, proposal);
    due(node);
}

/* The bytes on their way to the log, those of this turn included. */
static uint64_t log_waiting(struct node *node) { return atomic_load(&node->write_bytes) + node->taken_bytes; }

static bool fits(struct node *node, uint64_t bytes) {
    return wal_may_accept(node->wal, bytes + log_waiting(node)) &&
           (!node->callbacks.has_room || node->callbacks.has_room(node->callbacks.data));
}

static void note_room(struct node *node, uint64_t now_ms, uint64_t bytes, bool room) {
    if (!disk_health_room(&node->disk_health, now_ms, bytes, room)) return;
    if (room) node_snapshot_soon(node);
    if (room) log_info("raft", "space is back, writes are accepted again");
    else log_error("raft", "disk full: writes are refused until there is space folder=%s", node->folder);
    atomic_store(&node->view.disk_full, !room);
}

bool node_has_room(void *data, uint64_t bytes) {
    struct node *node = data;
    if (!node->wal) return !node->disk_health.full; /* the log is being opened again, so its room is not known */
    uint64_t now_ms = clock_mono_ms(), ask = bytes;
    if (!disk_health_may_ask(&node->disk_health, now_ms, &ask)) return false;
    bool room = fits(node, ask);
    note_room(node, now_ms, bytes, room);
    return room;
}

/* Takes entries of a leader as long as the log itself has room, also while this server refuses commands, because a
 * majority may depend on them. This server tells the leader that its disk is full while there is still room for entries
 * that are on their way. */
static bool takes_in(struct node *node, const struct raft_message *message) {
    uint64_t bytes = raft_message_room(message);
    if (bytes == 0) return true;
    bool full = node->disk_health.full, accepts = !full && fits(node, bytes);
    bool room = accepts || wal_has_room(node->wal, bytes + log_waiting(node));
    if (!room) requests_out_of_space(&node->requests, node->raft);
    if (!room || (!full && !accepts)) note_room(node, clock_mono_ms(), bytes, false);
    if (room) node->taken_bytes += bytes;
    return room;
}

const void *node_judge(void *data, uint64_t leader, const struct node_proposal *proposal) {
    struct node *node = data;
    return node->callbacks.refuse(node->callbacks.data, leader, proposal);
}

/* -- reads -------------------------------------------------------------------------------------------------------- */
static void take_reads(struct node *node) {
    for (struct mail *mail = mailbox_take(&node->read_box), *next; mail; mail = next) {
        next = mail->next;
        node->dirty = true;
        requests_read(&node->requests, CONTAINER_OF(mail, struct node_read, mail));
    }
}

void node_read_answer(struct node *node, uint64_t context, uint64_t index, int error) {
    requests_read_answered(&node->requests, context, index, error);
    due(node);
}

/* -- effects ------------------------------------------------------------------------------------------------------ */
static void hand_to_writer(struct node *node, const struct raft_persist *persist) {
    struct write_job *job = mem_zalloc(sizeof *job + persist->entry_count * sizeof *persist->entries);
    job->type = WRITE_PERSIST;
    job->persist = *persist;
    job->persist.entries = (struct raft_entry *)(job + 1);
    for (size_t i = 0; i < persist->entry_count; i++) {
        job->persist.entries[i] = persist->entries[i];
        raft_data_ref(persist->entries[i].data);
        job->bytes += raft_entry_bytes(&persist->entries[i]).size + RAFT_ENTRY_OVERHEAD;
    }
    atomic_fetch_add(&node->write_bytes, job->bytes);
    jobs_put(&node->write_jobs, &job->job);
}

static void hand_chunk(struct node *node, const struct raft_chunk_write *chunk) {
    struct write_job *job = mem_zalloc(sizeof *job + chunk->size);
    job->type = WRITE_CHUNK;
    job->chunk = *chunk;
    if (chunk->size) memcpy(job + 1, chunk->data, chunk->size);
    job->chunk.data = (char *)(job + 1);
    jobs_put(&node->write_jobs, &job->job);
}

#define APPLY_BATCH_MAX 1024
static void hand_to_applier(struct node *node, const struct raft_entry *entries, size_t count) {
    CHECK(count > 0 && entries[0].index > atomic_load(&node->view.handed));
    for (size_t at = 0; at < count; at += APPLY_BATCH_MAX) {
        size_t n = count - at < APPLY_BATCH_MAX ? count - at : APPLY_BATCH_MAX;
        struct apply_job *job = mem_zalloc(sizeof *job + n * sizeof *job->items);
        job->items = (struct node_apply *)(job + 1);
        job->count = n;
        for (size_t i = 0; i < n; i++) {
            job->items[i].entry = entries[at + i];
            raft_data_ref(entries[at + i].data);
            job->items[i].proposal = requests_committed(&node->requests, entries[at + i].index, entries[at + i].term);
        }
        jobs_put(&node->apply_jobs, &job->job);
    }
    atomic_store(&node->view.handed, entries[count - 1].index);
}

static void tell_role(struct node *node) {
    struct requests *r = &node->requests;
    enum raft_role role_before = r->role;
    uint64_t term_before = r->term, leader_before = r->leader;
    bool ready_before = r->ready;
    if (!requests_role(r, node->raft, node->applied_seen, clock_mono_ms())) return;
    if (r->role == RAFT_LEADER && r->ready && !ready_before)
        log_info("raft", "leading term=%llu index=%llu", (unsigned long long)r->term,
                 (unsigned long long)raft_commit_index(node->raft));
    else if (r->role == RAFT_FOLLOWER && role_before == RAFT_LEADER)
        log_warn("raft", "no longer leader term=%llu", (unsigned long long)r->term);
    if (r->leader != leader_before || r->term != term_before) due(node);
    if (node->callbacks.role) node->callbacks.role(node->callbacks.data, r->role, r->term, r->leader, r->ready);
}

static void update_view(struct node *node) {
    struct node_view *view = &node->view;
    atomic_store_explicit(&view->leader, raft_leader(node->raft), memory_order_relaxed);
    atomic_store_explicit(&view->term, raft_term(node->raft), memory_order_relaxed);
    atomic_store_explicit(&view->commit, raft_commit_index(node->raft), memory_order_relaxed);
    atomic_store_explicit(&view->applied, node->applied_seen, memory_order_relaxed);
    atomic_store_explicit(&view->last_index, raft_last_index(node->raft), memory_order_relaxed);
    atomic_store_explicit(&view->snapshot_index, raft_snapshot_index(node->raft), memory_order_relaxed);
    atomic_store_explicit(&view->last_contact_ms, raft_contact_ms(node->raft), memory_order_relaxed);
    atomic_store_explicit(&view->role, (int)raft_role(node->raft), memory_order_relaxed);
    bool ready = requests_ready(&node->requests, node->raft, node->applied_seen);
    atomic_store_explicit(&view->ready, ready, memory_order_release);
    bool led = raft_leader(node->raft) != 0 && (raft_role(node->raft) != RAFT_LEADER || ready);
    if (led || !atomic_load_explicit(&view->leaderless_ms, memory_order_relaxed))
        atomic_store_explicit(&view->leaderless_ms, led ? 0 : clock_mono_ms(), memory_order_relaxed);
    atomic_store_explicit(&view->alone, requests_alone(&node->requests, node->raft, node->applied_seen),
                          memory_order_release);
    if (node->wal) atomic_store_explicit(&view->log_bytes, wal_bytes(node->wal), memory_order_relaxed);
}

static void send_messages(struct node *node, const struct raft_effects *fx) {
    if (!node->callbacks.send) return;
    for (size_t i = 0; i < fx->message_count; i++) { node->callbacks.send(node->callbacks.data, &fx->messages[i]); }
}

static void rearm(struct node *node) {
    uint64_t at = raft_deadline_ms(node->raft), now = clock_mono_ms();
    uint64_t wanted = requests_deadline_ms(&node->requests);
    if (wanted < at) at = wanted;
    if (node->disk_health.degraded && node->disk_health.degraded_until_ms < at)
        at = node->disk_health.degraded_until_ms;
    if (node->disk_health.full && !node->disk_health.degraded) at = now; /* found after the disk was judged */
    if (at == UINT64_MAX) uv_timer_stop(&node->timer);
    else {
        uv_update_time(node->loop);
        uv_timer_start(&node->timer, node_timer_cb, at > now ? at - now : 0, 0);
    }
}

static void carry_out(struct node *node, const struct raft_effects *fx) {
    for (size_t i = 0; i < fx->persist_count; i++) hand_to_writer(node, &fx->persists[i]);
    node->taken_bytes = 0;
    send_messages(node, fx);
    if (fx->committed_count) hand_to_applier(node, fx->committed, fx->committed_count);
    for (size_t i = 0; i < fx->read_count; i++)
        requests_read_answered(&node->requests, fx->reads[i].context, fx->reads[i].index, fx->reads[i].error);
    for (size_t i = 0; i < fx->load_count; i++) node_load(node, &fx->loads[i]);
    for (size_t i = 0; i < fx->chunk_read_count; i++) node_chunk_read(node, &fx->chunk_reads[i]);
    for (size_t i = 0; i < fx->chunk_write_count; i++) hand_chunk(node, &fx->chunk_writes[i]);
}

METRIC disk_degraded = {.name = "coord_raft_disk_degraded",
                        .type = METRIC_GAUGE,
                        .help = "1 while the log's disk is slow, failing or full"};

void node_metrics_register(void) { metric_register(&disk_degraded); }

static void tell_degraded(struct node *node, bool degraded, bool full) {
    const char *what = full ? "full" : atomic_load(&node->write_failed) ? "failing" : "slow";
    if (degraded) log_warn("raft", "the log's disk is %s: this server does not lead if another can", what);
    else log_info("raft", "the log's disk is well again");
    atomic_store(&node->view.disk_degraded, degraded);
    metric_set(&disk_degraded, degraded);
}

/* Heartbeats keep the loop turning while servers depend on it, so a write that hangs is seen before it ends. */
static void judge_disk(struct node *node, uint64_t now_ms) {
    struct disk_health *health = &node->disk_health;
    /* while the log cannot be opened again its disk stays degraded, also between the tries */
    if (!node->wal) atomic_store(&node->bad_ms, now_ms);
    /* ask for room even if nobody writes, so that a leader with a full disk hands over */
    if (health->full || atomic_load(&node->applier_out_of_space)) (void)node_has_room(node, 0);
    bool changed = disk_health_judge(health, now_ms, atomic_load(&node->write_begun_ms), atomic_load(&node->bad_ms));
    if (changed) tell_degraded(node, health->degraded, health->full);
    bool behind = health->degraded || node->requests.fenced;
    bool spent = node->wal && !wal_takes_votes(node->wal);
    if (behind == node->behind_told && health->full == node->full_told && spent == node->spent_told) return;
    node->behind_told = behind, node->full_told = health->full, node->spent_told = spent;
    struct raft_event event = {.type = RAFT_DISK, .now_ms = now_ms};
    event.u.disk.degraded = behind, event.u.disk.full = health->full, event.u.disk.spent = spent;
    (void)raft_step(node->raft, &event);
}

/* Logs why the core failed when it was not because of the disk. */
static void tell_failed(const struct node *node) {
    struct raft_contradiction what = raft_contradiction(node->raft);
    if (what.index)
        log_error("raft",
                  "the leader's log contradicts what may be committed here: index=%llu term=%llu, there %llu. Somebody "
                  "went on without it (coord operator recover): this server takes no "
                  "part any more; with an empty data folder it may join as a new server",
                  (unsigned long long)what.index, (unsigned long long)what.term_here,
                  (unsigned long long)what.term_there);
    else
        log_error("raft",
                  "another server leads in the same term=%llu: some disk has forgotten a vote. The log is opened "
                  "again; where states differ, the self-audit tells and mends it",
                  (unsigned long long)raft_term(node->raft));
}

void node_flush(struct node *node) {
    if (node->stopping) return;
    uint64_t now_ms = clock_mono_ms();
    node->dirty = false;
    in_flush = node;
    judge_disk(node, now_ms);
    requests_turn(&node->requests, node->raft, now_ms, node_unix_ms());
    carry_out(node, raft_effects(node->raft));
    raft_effects_done(node->raft);
    if (raft_failed(node->raft) && !atomic_load(&node->view.failed)) {
        tell_failed(node);
        node_reopen_later(node);
    }
    requests_out_of_space_applier(&node->requests, atomic_load(&node->applier_out_of_space));
    requests_serve(&node->requests, node->applied_seen);
    tell_role(node);
    requests_give_up(&node->requests, node->raft, now_ms);
    update_view(node);
    node_snapshot(node);
    if (node->callbacks.flush) node->callbacks.flush(node->callbacks.data);
    in_flush = NULL;
    rearm(node);
}

/* -- the loop's callbacks ----------------------------------------------------------------------------------------- */
static void step(struct node *node, struct raft_event *event) {
    event->now_ms = clock_mono_ms();
    (void)raft_step(node->raft, event); /* a failed core answers CO_IO to everything until it is reopened */
    node->dirty = true;
}

static void take_news(struct node *node) {
    for (struct mail *mail = mailbox_take(&node->news), *next; mail; mail = next) {
        next = mail->next;
        struct node_news *news = CONTAINER_OF(mail, struct node_news, mail);
        node->dirty = true;
        if (news->event.type == RAFT_APPLIED && news->has_event) node->applied_seen = news->event.u.applied.index;
        if (news->snapshot_over) node_snapshot_over(node, news->has_event, news->fault.code);
        if (news->has_event && news->event.type == RAFT_CHUNK_READ && news->event.u.chunk_read.error != CO_OK)
            node_chunk_unread(node, news);
        if (news->has_event && news->event.type == RAFT_CHUNK_WRITTEN &&
            news->event.u.chunk_written.error == CO_DISKFULL)
            requests_out_of_space(&node->requests, node->raft);
        if (news->has_event) step(node, &news->event);
        if (news->event.type == RAFT_PERSISTED && raft_applied_index(node->raft) > node->applied_seen)
            node->applied_seen = raft_applied_index(node->raft); /* a snapshot was installed */
        if (news->has_event && news->event.type == RAFT_PERSIST_FAILED) {
            log_error("raft", "the log cannot be written: %s", news->fault.text);
            if (!atomic_load(&node->view.failed)) node_reopen_later(node);
        }
        if (news->has_event && news->event.type == RAFT_SNAPSHOT_TAKEN) {
            struct write_job *job = mem_zalloc(sizeof *job);
            job->type = WRITE_DROP;
            job->drop_index = news->event.u.snapshot.meta.index;
            jobs_put(&node->write_jobs, &job->job);
        }
        free(news->free_after);
        free(news);
    }
}

void node_take(struct node *node) {
    take_news(node);
    take_proposals(node);
    take_reads(node);
}

/* The end of the turn looks into the boxes, so items that come until then are part of it. */
void node_wake_cb(uv_async_t *async) {
    struct node *node = async->data;
    if (atomic_exchange(&node->nudged, false)) node->dirty = true;
}

/* A turn begins: wake-ups of other threads are held back until it is over. */
void node_prepare_cb(uv_prepare_t *prepare) {
    struct node *node = prepare->data;
    in_turn = node;
    wakeup_batch_begin();
    node->holds_wakes = true;
}

static void turn_over(struct node *node) {
    if (in_turn == node) in_turn = NULL;
    if (node->holds_wakes) wakeup_batch_end();
    node->holds_wakes = false;
}

void node_check_cb(uv_check_t *check) {
    struct node *node = check->data;
    if (in_turn == node) in_turn = NULL; /* items that are put from now on are for the next turn */
    node_take(node);
    if (node->dirty) node_flush(node);
    turn_over(node);
}

void node_timer_cb(uv_timer_t *timer) {
    struct node *node = timer->data;
    if (node->stopping) return;
    struct raft_event event = {.type = RAFT_TICK};
    step(node, &event);
    node_flush(node);
}

void node_receive(struct node *node, const struct raft_message *message) {
    if (!node->wal) return; /* it is being opened again, the core is poisoned */
    struct raft_event event = {.type = RAFT_RECEIVE};
    struct raft_message heard = {0};
    if (!takes_in(node, message)) heard = raft_message_heard(message), message = &heard;
    event.u.receive = message;
    step(node, &event);
}

void node_unreachable(struct node *node, uint64_t peer) {
    struct raft_event event = {.type = RAFT_UNREACHABLE};
    event.u.unreachable.peer = peer;
    step(node, &event);
    due(node);
}

int node_bootstrap(struct node *node, const struct raft_members *members, struct slice first_command) {
    struct raft_event event = {.type = RAFT_BOOTSTRAP, .now_ms = clock_mono_ms(), .unix_ms = node_unix_ms()};
    event.u.bootstrap = members;
    if (first_command.size) event.first_command = raft_data_new(first_command.data, first_command.size);
    due(node);
    int rv = raft_step(node->raft, &event);
    if (rv != CO_OK) raft_data_unref(event.first_command);
    return rv;
}

int node_change(struct node *node, enum raft_change_type type, uint64_t id, const char *address) {
    struct raft_event event = {.type = RAFT_CHANGE, .now_ms = clock_mono_ms()};
    event.u.change.type = type, event.u.change.id = id, event.u.change.address = address;
    due(node);
    return raft_step(node->raft, &event);
}

int node_transfer(struct node *node, uint64_t target) {
    struct raft_event event = {.type = RAFT_TRANSFER, .now_ms = clock_mono_ms()};
    event.u.transfer.target = target;
    due(node);
    return raft_step(node->raft, &event);
}

void node_out_of_space(struct node *node, bool starves) {
    if (atomic_exchange(&node->applier_out_of_space, starves) != starves) node_wake(node);
}

void node_fence(struct node *node, bool fenced) {
    if (!fenced && node->requests.fenced) node->snapshot_wanted = true;
    requests_fence(&node->requests, fenced, clock_mono_ms());
    due(node);
}

void node_refuse(struct node *node, bool refused) {
    node->requests.refusing = refused;
    due(node);
}

void node_cut_off(struct node *node, bool cut_off) {
    if (node->requests.cut_off == cut_off) return;
    node->requests.cut_off = cut_off;
    due(node);
}

void node_resume(struct node *node, bool own) {
    struct apply_job *job = mem_zalloc(sizeof *job);
    job->resume = true, job->own = own;
    jobs_put(&node->apply_jobs, &job->job);
}

bool node_peer_full(struct node *node, uint64_t peer) { return raft_peer_full(node->raft, peer); }
uint64_t node_match(struct node *node, uint64_t peer) { return raft_match_index(node->raft, peer); }
bool node_peer_heard(struct node *node, uint64_t peer) { return raft_peer_heard(node->raft, peer); }
bool node_transferring(struct node *node) { return raft_transferring(node->raft); }
bool node_caught_up(struct node *node, uint64_t peer) { return raft_caught_up(node->raft, peer); }

/* -- stopping ----------------------------------------------------------------------------------------------------- */
static void node_free(struct node *node) {
    CHECK(!node->threads_running && node->pool_jobs == 0);
    raft_free(node->raft);
    wal_close(node->wal);
    disk_posix_close(node->disk);
    jobs_free(&node->write_jobs);
    jobs_free(&node->apply_jobs);
    node_preparer_free(&node->preparer);
    uv_mutex_destroy(&node->members_lock);
    free(node->folder);
    free(node->address);
    void (*closed)(void *) = node->closed;
    void *data = node->closed_data;
    free(node);
    closed(data);
}

static void handle_closed(uv_handle_t *handle) {
    struct node *node = handle->data;
    CHECK(node->stopping && node->closing > 0);
    if (--node->closing == 0) node_free(node);
}

/* Frees jobs that were put while no threads ran: a rebuild, a cut of the log. */
static void drop_jobs(struct node *node) {
    for (struct job *list = jobs_take_all(&node->write_jobs), *next; list; list = next) {
        next = list->next;
        write_job_free(CONTAINER_OF(list, struct write_job, job));
    }
    for (struct job *list = jobs_take_all(&node->apply_jobs), *next; list; list = next) {
        next = list->next;
        struct apply_job *job = CONTAINER_OF(list, struct apply_job, job);
        CHECK(job->resume);
        free(job);
    }
}

void node_stop(struct node *node, void (*closed)(void *data), void *data) {
    CHECK(!node->stopping && closed);
    node->stopping = true;
    node->closed = closed, node->closed_data = data;
    turn_over(node); /* the end of this one never comes */
    if (node->threads_running) node_stop_threads(node);
    drop_jobs(node);
    take_proposals(node);
    take_reads(node);
    requests_fail(&node->requests, CO_UNKNOWN_OUTCOME, CO_CLOSED);
    requests_end_reads(&node->requests, CO_CLOSED);
    for (struct mail *mail = mailbox_take(&node->news), *next; mail; mail = next) {
        struct node_news *news = CONTAINER_OF(mail, struct node_news, mail);
        next = mail->next;
        if (news->has_event && news->event.type == RAFT_ENTRIES_LOADED)
            for (size_t i = 0; i < news->event.u.loaded.count; i++)
                raft_data_unref(news->event.u.loaded.entries[i].data);
        free(news->free_after);
        free(news);
    }
    uv_handle_t *handles[] = {(uv_handle_t *)&node->wake, (uv_handle_t *)&node->prepare, (uv_handle_t *)&node->check,
                              (uv_handle_t *)&node->timer, (uv_handle_t *)&node->reopen_timer};
    node->closing = ARRAY_COUNT(handles) + node->pool_jobs; /* node_pool_job_over counts the pool jobs down */
    for (size_t i = 0; i < ARRAY_COUNT(handles); i++) uv_close(handles[i], handle_closed);
}

/* A pool job ended after the stop began. */
void node_pool_job_over(struct node *node) {
    CHECK(node->pool_jobs > 0);
    node->pool_jobs--;
    if (node->stopping && --node->closing == 0) node_free(node);
}
