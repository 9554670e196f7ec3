/* Recovery, bootstrap, identity, reopening. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "consensus/node_internal.h"

/* -- identity ------------------------------------------------------------------------------------------------------ */
/* A number that is chosen once and kept in the folder: 16 hexadecimal digits and a newline. A later format begins with
 * the file's name and its number. */
#define ID_FILE     NODE_ID_FILE
#define ROOM_AGAIN  (1u << 20) /* of log */
#define ID_FILE_NEW "server-id.new"

static int id_write(struct disk *disk, uint64_t id) {
    char text[32];
    int size = snprintf(text, sizeof text, "%016llx\n", (unsigned long long)id);
    disk_file file;
    (void)disk->ops->remove(disk, ID_FILE_NEW);
    int rv = disk->ops->open(disk, ID_FILE_NEW, 1, &file);
    if (rv != CO_OK) return rv;
    rv = disk->ops->write(disk, file, 0, text, (size_t)size);
    if (rv == CO_OK) rv = disk->ops->sync(disk, file);
    disk->ops->close(disk, file);
    if (rv == CO_OK) rv = disk->ops->rename(disk, ID_FILE_NEW, ID_FILE);
    if (rv == CO_OK) rv = disk->ops->sync_folder(disk);
    return rv;
}

static void history_found(void *data, const char *name) {
    if (strncmp(name, "log-0", 5) == 0 || strncmp(name, "snap-", 5) == 0) *(bool *)data = true;
}

/* The configuration that counts at the end of the log that was found; count 0: there is none. */
static struct raft_members members_found(const struct raft_snapshot_meta *snapshot, const struct wal_recovered *found) {
    struct raft_members members = snapshot->members, newer;
    for (size_t i = 0; i < found->entry_count; i++)
        if (found->entries[i].type == RAFT_ENTRY_MEMBERS &&
            raft_members_decode(raft_entry_bytes(&found->entries[i]), &newer) == CO_OK)
            members = newer;
    return members;
}

/* The id that the log and the snapshot imply; 0: none. */
static uint64_t id_known(struct node *node) {
    struct raft_snapshot_meta snapshot = {0};
    struct snapshot_reader *reader = NULL;
    if (snapshot_open(node->disk, 0, &reader, &snapshot, NULL) == CO_OK) snapshot_close(reader);
    struct wal_looked looked;
    struct wal_recovered found;
    struct raft_members members = snapshot.members;
    if (wal_look(node->disk, &looked, &found, NULL) == CO_OK) members = members_found(&snapshot, &found);
    wal_recovered_free(&found);
    for (uint32_t i = 0; i < members.count; i++)
        if (members.count == 1 || strcmp(members.member[i].address, node->address) == 0) return members.member[i].id;
    return 0;
}

/* Makes an id, but only in a folder without history: under another id, its own cluster would not know the server. */
static int id_make(struct node *node, struct fault *fault) {
    bool history = node->config.applied > 0;
    int rv = node->disk->ops->list(node->disk, history_found, &history);
    uint64_t known = rv == CO_OK && history ? id_known(node) : 0;
    if (known)
        return fault_set(
            fault, CO_CORRUPT,
            "%s/%s is missing, but this server's log is there: put the file back; by the log it held %016llx",
            node->folder, ID_FILE, (unsigned long long)known);
    if (rv == CO_OK && history)
        return fault_set(
            fault, CO_CORRUPT,
            "%s/%s is missing, but this server's log, snapshot or store is there: put the file back from a backup, or "
            "write the id into it by which its cluster knows this server",
            node->folder, ID_FILE);
    do node->id = random_u64();
    while (node->id == 0);
    if (rv == CO_OK) rv = id_write(node->disk, node->id);
    return rv == CO_OK ? rv : fault_set(fault, rv, "%s cannot be written: %s", ID_FILE, co_strerror(rv));
}

int node_id_read(struct disk *disk, uint64_t *id, struct fault *fault) {
    disk_file file;
    int rv = disk->ops->open(disk, ID_FILE, 0, &file);
    if (rv == CO_NOTFOUND) return rv;
    if (rv != CO_OK) return fault_set(fault, rv, "%s cannot be opened: %s", ID_FILE, co_strerror(rv));
    char text[32] = {0}, *end;
    size_t got;
    rv = disk->ops->read(disk, file, 0, text, sizeof text - 1, &got);
    disk->ops->close(disk, file);
    if (rv != CO_OK) return fault_set(fault, rv, "%s cannot be read: %s", ID_FILE, co_strerror(rv));
    *id = strtoull(text, &end, 16);
    if (strncmp(text, ID_FILE " ", sizeof ID_FILE) == 0) /* a newer format begins so */
        return fault_set(fault, CO_UNSUPPORTED, "%s: written by a newer version of coord", ID_FILE);
    if (got != 17 || *end != '\n' || *id == 0) return fault_set(fault, CO_CORRUPT, "%s holds no server id", ID_FILE);
    return CO_OK;
}

static int id_load(struct node *node, struct fault *fault) {
    int rv = node_id_read(node->disk, &node->id, fault);
    return rv == CO_NOTFOUND ? id_make(node, fault) : rv;
}

/* -- the log ------------------------------------------------------------------------------------------------------ */
/* A new cluster of one: its first entry is its configuration, the second its first command. */
static int bootstrap(struct node *node, struct wal_recovered *found, struct fault *fault) {
    struct raft_members members = {.count = 1};
    members.member[0] = (struct raft_member){.id = node->id, .voter = true};
    snprintf(members.member[0].address, RAFT_ADDRESS_MAX, "%s", node->address);
    struct buffer bytes = {0};
    raft_members_encode(&members, &bytes);
    struct slice first = node->config.first_command;
    size_t count = first.size ? 2 : 1;
    struct raft_entry *entries = mem_zalloc(count * sizeof *entries);
    entries[0] = (struct raft_entry){
        .index = 1, .term = 1, .type = RAFT_ENTRY_MEMBERS, .data = raft_data_new(bytes.data, bytes.size)};
    if (first.size)
        entries[1] = (struct raft_entry){.index = 2,
                                         .term = 1,
                                         .type = RAFT_ENTRY_COMMAND,
                                         .data = raft_data_new(first.data, first.size),
                                         .unix_ms = node_unix_ms()};
    buffer_free(&bytes);
    struct wal_batch batch = {.hard_state = true, .term = 1, .entries = entries, .entry_count = count};
    found->entries = entries, found->entry_count = count;
    found->term = 1, found->first_index = 1, found->last_index = count;
    return wal_append(node->wal, &batch, 1, fault);
}

static uint32_t scaled(const struct node *node, uint32_t ms) {
    return ms * (node->config.raft_multiplier ? node->config.raft_multiplier : 1);
}

/* Longer election timeouts do not make heartbeats rarer, because an idle follower would be called unhealthy, which
 * begins at 200 ms of silence. */
#define HEARTBEAT_MOST_MS 100
#define ELECTION_MS       300
#define APPEND_BYTES_MOST (256u << 10)
_Static_assert(HEARTBEAT_MOST_MS < ELECTION_MS, "several heartbeats go into an election timeout");
_Static_assert(APPEND_BYTES_MOST / sizeof(struct raft_entry) <= RAFT_MESSAGE_ENTRIES_MAX,
               "entries without data too: what the core sends at once is decoded");
static uint32_t heartbeat_ms(const struct node *node) {
    uint32_t ms = scaled(node, 50);
    return ms < HEARTBEAT_MOST_MS ? ms : HEARTBEAT_MOST_MS;
}

/* The size of the log at the last snapshot: the log behind the snapshot counts as growth, so that a server that never
 * runs for long takes one, too. */
static uint64_t log_mark(struct node *node, const struct raft_snapshot_meta *snapshot,
                         const struct wal_recovered *found) {
    uint64_t all = wal_bytes(node->wal), since = 0;
    for (size_t i = 0; i < found->entry_count; i++)
        if (found->entries[i].index > snapshot->index)
            since += raft_entry_bytes(&found->entries[i]).size + RAFT_ENTRY_OVERHEAD;
    return snapshot->index && since < all ? all - since : 0;
}

static void start_core(struct node *node, const struct raft_snapshot_meta *snapshot, struct wal_recovered *found,
                       uint64_t applied) {
    struct raft_config config = {.id = node->id,
                                 .seed = random_u64(),
                                 .election_ms = scaled(node, ELECTION_MS),
                                 .heartbeat_ms = heartbeat_ms(node),
                                 .append_bytes_max = APPEND_BYTES_MOST,
                                 .append_inflight_max = 64,
                                 .cache_bytes_max = 4 << 20,
                                 .apply_bytes_max = 8 << 20,
                                 .snapshot_chunk_bytes = 256 << 10,
                                 .snapshot_rate = node_snapshot_rate(node),
                                 .promote_lag_max = 1024};
    CHECK(!node->threads_running && node->wal);
    uint64_t mark = log_mark(node, snapshot, found); /* before the core takes the entries */
    struct raft_start start = {.term = found->term,
                               .vote = found->vote,
                               .snapshot = *snapshot,
                               .entries = found->entries,
                               .entry_count = found->entry_count,
                               .applied = applied};
    node->raft_opened = true;
    node->raft = raft_new(&config, &start, clock_mono_ms());
    node->applied_seen = node->applier_at = applied;
    node->applier_stopped = 0;
    atomic_store(&node->view.handed, applied);
    node->behind_told = node->full_told = node->spent_told = false;
    uint64_t members_index;
    const struct raft_members *members = raft_members_at(node->raft, applied, &members_index);
    node_applier_note(node, members_index, members);
    node->drop_index = snapshot->index; /* a writer that failed, or was stopped, may not have dropped all of it */
    node->snapshot_log_mark = mark;
}

/* Makes a snapshot of the state, behind which the log begins anew, so that nothing that was acknowledged is lost. */
static int go_on_from_state(struct node *node, const struct raft_members *members, struct raft_snapshot_meta *snapshot,
                            struct wal_recovered *found, struct fault *fault) {
    uint64_t index = node->config.applied, term = node->config.applied_term;
    if (found->term > term) term = found->term;
    node_applier_note(node, index, members);
    struct raft_snapshot_meta meta = {0};
    int rv = node_take_snapshot(node, UINT64_MAX, &meta);
    if (rv == CO_OK && meta.index != index) rv = CO_CORRUPT;
    if (rv != CO_OK) return fault_set(fault, rv, "%s: the state cannot be saved: %s", node->folder, co_strerror(rv));
    rv = wal_reset(node->wal, index, fault);
    struct wal_batch batch = {.hard_state = true, .term = term};
    if (rv == CO_OK) rv = wal_append(node->wal, &batch, 1, fault);
    if (rv != CO_OK) return rv;
    wal_recovered_free(found);
    *found = (struct wal_recovered){.term = term, .first_index = index + 1, .last_index = index};
    *snapshot = meta;
    return CO_OK;
}

/* Only durable entries are applied, so a state beyond the end of the log shows that the log has lost its end. */
static int log_ends_early(struct node *node, struct raft_snapshot_meta *snapshot, struct wal_recovered *found,
                          uint64_t last, struct fault *fault) {
    struct raft_members members = members_found(snapshot, found);
    unsigned long long applied = node->config.applied;
    if (members.count == 0)
        return fault_set(fault, CO_CORRUPT,
                         "%s: log files are missing: the store has applied entry %llu, and there is no log",
                         node->folder, applied);
    if (members.count > 1 || members.member[0].id != node->id || node->raft_opened)
        return fault_set(fault, CO_CONFLICT, "%s: the store has applied entry %llu but the log ends at %llu",
                         node->folder, applied, (unsigned long long)last);
    log_error("raft",
              "the log has lost its end, going on from the store, which has it: log_end=%llu store=%llu folder=%s",
              (unsigned long long)last, applied, node->folder);
    return go_on_from_state(node, &members, snapshot, found, fault);
}

/* Warns of a recovery as long as its entry is in the log. */
static void tell_recovery(const struct node *node, uint64_t snapshot_index) {
    uint64_t index = raft_members(node->raft)->recovered_index;
    if (index > snapshot_index) log_warn("raft", "recovered by an operator at index %llu", (unsigned long long)index);
}

/* Waits a second for room. At the start nobody needs this thread, so it sleeps, and a signal ends the waiting; later it
 * must not wait at all. */
static bool interrupted(struct node *node) {
    struct timespec pause = {.tv_sec = 1};
    return node->raft_opened || nanosleep(&pause, NULL) != 0;
}

/* Opens the snapshot, then the log, then brings the state machine to where the log can take over. */
int node_open_log(struct node *node, uint64_t applied, struct fault *fault) {
    CHECK(!node->wal && !node->threads_running);
    struct raft_snapshot_meta snapshot = {0};
    struct snapshot_reader *reader;
    int rv = snapshot_open(node->disk, 0, &reader, &snapshot, fault);
    if (rv == CO_OK) snapshot_close(reader);
    else if (rv == CO_NOTFOUND) *fault = (struct fault){0}, snapshot = (struct raft_snapshot_meta){0};
    else return rv;
    struct wal_config config = {.start_term = snapshot.term};
    struct wal_recovered found = {0};
    rv = wal_open(node->disk, &config, snapshot.index, &node->wal, &found, fault);
    if (rv != CO_OK) return rv;
    if (found.torn_bytes)
        log_warn("raft", "the log's last record was torn and is cut off bytes=%llu",
                 (unsigned long long)found.torn_bytes);
    if (node->config.bootstrap && found.entry_count == 0 && snapshot.index == 0 && found.term == 0 && applied == 0) {
        rv = bootstrap(node, &found, fault);
        if (rv == CO_OK)
            log_info("raft", "new cluster, founded by this server id=%016llx", (unsigned long long)node->id);
    }
    uint64_t last = found.entry_count ? found.entries[found.entry_count - 1].index : snapshot.index;
    if (rv == CO_OK && applied < snapshot.index) {
        log_info("raft", "the state is rebuilt from the snapshot index=%llu", (unsigned long long)snapshot.index);
        rv = node_install_with_room(node, &snapshot, interrupted, fault);
        applied = snapshot.index;
    }
    if (rv == CO_OK && applied > last) rv = log_ends_early(node, &snapshot, &found, last, fault);
    if (rv == CO_OK) start_core(node, &snapshot, &found, applied);
    if (rv == CO_OK) tell_recovery(node, snapshot.index);
    else wal_close(node->wal), node->wal = NULL;
    wal_recovered_free(&found);
    return rv;
}

/* -- start -------------------------------------------------------------------------------------------------------- */
static void init_handles(struct node *node) {
    uv_loop_t *loop = node->loop;
    CHECK(uv_async_init(loop, &node->wake, node_wake_cb) == 0);
    CHECK(uv_prepare_init(loop, &node->prepare) == 0);
    CHECK(uv_check_init(loop, &node->check) == 0);
    CHECK(uv_timer_init(loop, &node->timer) == 0);
    CHECK(uv_timer_init(loop, &node->reopen_timer) == 0);
    node->wake.data = node->prepare.data = node->check.data = node->timer.data = node->reopen_timer.data = node;
    uv_prepare_start(&node->prepare, node_prepare_cb);
    uv_check_start(&node->check, node_check_cb);
}

static bool forward(void *data, uint64_t leader, struct node_proposal *list) {
    struct node *node = data;
    return node->callbacks.forward(node->callbacks.data, leader, list);
}

static bool ask_read(void *data, uint64_t leader, uint64_t context, uint64_t term) {
    struct node *node = data;
    return node->callbacks.ask_read(node->callbacks.data, leader, context, term);
}

int node_start(uv_loop_t *loop, const struct node_config *config, const struct node_callbacks *callbacks,
               struct node **out, struct fault *fault) {
    CHECK(config->folder && config->address && callbacks->apply);
    CHECK(!callbacks->held == !callbacks->rebuild && !callbacks->rebuild == !callbacks->rebuilt);
    struct node *node = mem_zalloc(sizeof *node);
    node->loop = loop, node->config = *config, node->callbacks = *callbacks;
    node->folder = mem_strdup(config->folder), node->address = mem_strdup(config->address);
    node->held_last = &node->held;
    CHECK(uv_mutex_init(&node->members_lock) == 0);
    int rv = disk_posix_open(config->folder, &node->disk);
    if (rv != CO_OK) {
        fault_set(fault, rv, "%s: %s", config->folder, co_strerror(rv));
        goto err_disk;
    }
    node->id = config->id;
    if (node->id == 0 && (rv = id_load(node, fault)) != CO_OK) goto err_log;
    struct requests_callbacks reach = {.data = node,
                                       .has_room = node_has_room,
                                       .forward = callbacks->forward ? forward : NULL,
                                       .ask_read = callbacks->ask_read ? ask_read : NULL,
                                       .refuse = callbacks->refuse ? node_judge : NULL};
    node->disk_health.room_again = ROOM_AGAIN;
    requests_init(&node->requests, &reach, node->id, random_u64() >> 1);
    rv = node_open_log(node, config->applied, fault);
    node->config.first_command = (struct slice){0};
    if (rv != CO_OK) goto err_log;
    atomic_store(&node->view.id, node->id);
    jobs_init(&node->write_jobs);
    jobs_init(&node->apply_jobs);
    node_preparer_init(&node->preparer);
    init_handles(node);
    node_metrics_register();
    node_start_threads(node);
    uv_timer_start(&node->timer, node_timer_cb, 0, 0);
    *out = node;
    return CO_OK;
err_log:
    disk_posix_close(node->disk);
err_disk:
    uv_mutex_destroy(&node->members_lock);
    free(node->folder), free(node->address), free(node);
    return rv;
}

void node_start_threads(struct node *node) {
    CHECK(!node->threads_running && node->wal && node->raft);
    node->write_jobs.stop = node->apply_jobs.stop = false;
    node_preparer_start(&node->preparer, node);
    CHECK(uv_thread_create(&node->writer, node_writer_main, node) == 0);
    CHECK(uv_thread_create(&node->applier, node_applier_main, node) == 0);
    node->threads_running = true;
}

void node_stop_threads(struct node *node) {
    CHECK(node->threads_running);
    jobs_stop(&node->write_jobs);
    uv_thread_join(&node->writer);
    node_preparer_stop(&node->preparer);
    jobs_stop(&node->apply_jobs);
    uv_thread_join(&node->applier);
    node->threads_running = false;
}

/* -- after a failed write: the log is read again, as after a crash ------------------------------------------------- */
#define REOPEN_FIRST_MS 1000
#define CONTRADICTED_MS 60000
#define REOPEN_MOST_MS  4000 /* less than DISK_WELL_MS, so that the disk stays degraded */
_Static_assert(REOPEN_FIRST_MS <= REOPEN_MOST_MS && REOPEN_MOST_MS < DISK_WELL_MS, "well again means opened again");
#define NO_ROOM_MOST_MS 30000 /* a snapshot may have to be installed first, and each try takes all the room there is */

/* Stops the threads when they have finished their jobs; nothing new comes while the core is poisoned. False: not yet.
 * The applier may wait for space itself, or rebuild the state, and this thread must not wait for it. */
static bool close_log(struct node *node) {
    if (node->pool_jobs > 0 || jobs_waiting(&node->apply_jobs) || atomic_load(&node->applier_busy)) return false;
    node_stop_threads(node);
    uint64_t applied = atomic_load(&node->view.applied);
    node_take(node); /* the last news of both */
    if (node->applied_seen < applied) node->applied_seen = applied;
    requests_fail(&node->requests, CO_UNKNOWN_OUTCOME, CO_NOLEADER);
    atomic_store(&node->view.handed, node->applied_seen); /* entries that were handed out behind that were dropped */
    wal_close(node->wal);
    node->wal = NULL;
    return true;
}

static void reopen_cb(uv_timer_t *timer);

static void reopen_failed(struct node *node, int error, const struct fault *fault) {
    uint64_t most = error == CO_DISKFULL ? NO_ROOM_MOST_MS : REOPEN_MOST_MS;
    atomic_store(&node->write_failed, true);
    atomic_store(&node->bad_ms, clock_mono_ms());
    log_error("raft", "the log cannot be opened again, tried again later: %s",
              fault->code ? fault->text : co_strerror(error));
    node->reopen_pause_ms = 2 * node->reopen_pause_ms < most ? 2 * node->reopen_pause_ms : most;
    uv_timer_start(&node->reopen_timer, reopen_cb, node->reopen_pause_ms, 0);
    node_flush(node);
}

/* Is the error permanent: does the log hold something that it must not, or lack something? A disk that fails, or is
 * full, may be well again later. Until then the poisoned core stays silent, and this server answers requests that need
 * no log. */
static bool lasts(int error) { return error == CO_CORRUPT || error == CO_CONFLICT || error == CO_UNSUPPORTED; }

static void reopen_cb(uv_timer_t *timer) {
    struct node *node = timer->data;
    if (node->stopping) return;
    if (node->wal && !close_log(node)) {
        uv_timer_start(timer, reopen_cb, REOPEN_FIRST_MS, 0);
        return;
    }
    struct raft *poisoned = node->raft;
    struct fault fault = {0};
    int rv = node_open_log(node, node->applied_seen, &fault);
    if (rv != CO_OK && !lasts(rv)) {
        reopen_failed(node, rv, &fault);
        return;
    }
    if (rv != CO_OK) {
        log_error("raft", "the log cannot be opened again, stopping: %s", fault.text);
        abort();
    }
    raft_free(poisoned);
    node_start_threads(node);
    atomic_store(&node->view.failed, false);
    log_info("raft", "the log was opened again index=%llu", (unsigned long long)raft_last_index(node->raft));
    node_flush(node);
}

void node_reopen_later(struct node *node) {
    CHECK(!atomic_load(&node->view.failed) && node->wal);
    atomic_store(&node->view.failed, true);
    /* with another leader it may go better, but most likely nothing changes soon */
    bool foreign = raft_contradiction(node->raft).index != 0;
    node->reopen_pause_ms = foreign ? CONTRADICTED_MS : REOPEN_FIRST_MS;
    uv_timer_start(&node->reopen_timer, reopen_cb, node->reopen_pause_ms, 0);
}
