/* Jobs in libuv's pool: reading the disk for peers that lag behind, and taking a snapshot. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "consensus/node_internal.h"

struct pool_job {
    uv_work_t work;
    struct node *node;
    struct node_news *news;
    uint64_t log_bytes;
    union {
        struct raft_load load;
        struct raft_chunk_read chunk;
    } u;
};

static void job_over(uv_work_t *work, int status) {
    (void)status;
    struct pool_job *job = work->data;
    struct node *node = job->node;
    if (!node->stopping) node_post(node, job->news);
    else {
        if (job->news->has_event && job->news->event.type == RAFT_ENTRIES_LOADED)
            for (size_t i = 0; i < job->news->event.u.loaded.count; i++)
                raft_data_unref(job->news->event.u.loaded.entries[i].data);
        free(job->news->free_after);
        free(job->news);
    }
    free(job);
    node_pool_job_over(node);
}

static struct pool_job *job_new(struct node *node, enum raft_event_type type) {
    struct pool_job *job = mem_zalloc(sizeof *job);
    job->node = node;
    job->work.data = job;
    job->news = node_news_new(type);
    node->pool_jobs++;
    return job;
}

static void job_start(struct pool_job *job, void (*work)(uv_work_t *)) {
    CHECK(uv_queue_work(job->node->loop, &job->work, work, job_over) == 0);
}

/* -- old entries for a peer --------------------------------------------------------------------------------------- */
static void load_work(uv_work_t *work) {
    struct pool_job *job = work->data;
    struct raft_event *event = &job->news->event;
    event->u.loaded.peer = job->u.load.peer;
    event->u.loaded.from = job->u.load.from;
    event->u.loaded.error = wal_read(job->node->wal, job->u.load.from, job->u.load.to, job->u.load.bytes_max,
                                     &event->u.loaded.entries, &event->u.loaded.count);
    if (event->u.loaded.error != CO_OK) event->u.loaded.entries = NULL, event->u.loaded.count = 0;
    job->news->free_after = event->u.loaded.entries;
}

void node_load(struct node *node, const struct raft_load *load) {
    struct pool_job *job = job_new(node, RAFT_ENTRIES_LOADED);
    job->u.load = *load;
    job_start(job, load_work);
}

/* -- a chunk of our snapshot for a peer --------------------------------------------------------------------------- */
static void chunk_work(uv_work_t *work) {
    struct pool_job *job = work->data;
    const struct raft_chunk_read *want = &job->u.chunk;
    struct raft_event *event = &job->news->event;
    event->u.chunk_read.peer = want->peer;
    event->u.chunk_read.snapshot_index = want->snapshot_index;
    event->u.chunk_read.offset = want->offset;
    struct snapshot_reader *reader;
    struct raft_snapshot_meta meta;
    struct fault fault = {0};
    int rv = snapshot_open(job->node->disk, want->snapshot_index, &reader, &meta, &fault);
    if (rv == CO_OK) {
        char *data = mem_alloc(want->size_max);
        rv = snapshot_read(reader, want->offset, data, want->size_max, &event->u.chunk_read.size, &fault);
        event->u.chunk_read.data = data;
        event->u.chunk_read.last = want->offset + event->u.chunk_read.size >= meta.size;
        job->news->free_after = data;
        snapshot_close(reader);
    }
    event->u.chunk_read.error = rv;
    job->news->fault = fault;
}

/* Our snapshot could not be read for a peer. When it was replaced meanwhile there is a newer one, so that is no
 * fault. */
void node_chunk_unread(struct node *node, const struct node_news *news) {
    if (news->event.u.chunk_read.snapshot_index != raft_snapshot_index(node->raft) || node->snapshot_unreadable) return;
    if (news->event.u.chunk_read.error == CO_NOTFOUND && node->snapshot_running) return; /* that one has replaced it */
    log_error("raft", "this server's snapshot cannot be sent, another is taken: %s",
              news->fault.code ? news->fault.text : co_strerror(news->event.u.chunk_read.error));
    node->snapshot_unreadable = true;
}

void node_chunk_read(struct node *node, const struct raft_chunk_read *chunk) {
    struct pool_job *job = job_new(node, RAFT_CHUNK_READ);
    job->u.chunk = *chunk;
    job_start(job, chunk_work);
}

/* -- our own snapshot --------------------------------------------------------------------------------------------- */
struct copier {
    struct node *node;
    int fd, result;
    uint64_t index, term;
};

static void copy_main(void *arg) {
    struct copier *copier = arg;
    background_thread("snapshot");
    copier->result =
        copier->node->callbacks.snapshot_copy(copier->node->callbacks.data, copier->fd, &copier->index, &copier->term);
    close(copier->fd);
}

static void members_as_of(struct node *node, uint64_t index, struct raft_snapshot_meta *meta) {
    uv_mutex_lock(&node->members_lock);
    for (size_t i = 0; i < node->members_count && node->members[i].index <= index; i++)
        meta->members_index = node->members[i].index, meta->members = node->members[i].members;
    uv_mutex_unlock(&node->members_lock);
}

uint64_t node_snapshot_rate(const struct node *node) {
    return node->config.snapshot_rate ? node->config.snapshot_rate : NODE_SNAPSHOT_RATE;
}

/* The last free space is reserved for the log: a snapshot that does not fit must stop before it takes that. When
 * cutting the log frees more than the snapshot took, it must only leave enough for the log to go on meanwhile. */
#define ROOM_LOOK_BYTES  (1 << 20)
#define ROOM_LEFT_BYTES  (32 << 20)
#define ROOM_LEAST_BYTES (4 << 20)
_Static_assert(ROOM_LOOK_BYTES <= ROOM_LEAST_BYTES && ROOM_LEAST_BYTES < ROOM_LEFT_BYTES,
               "a look comes before the last room is taken");
static bool leaves_room(struct node *node, uint64_t log_bytes, uint64_t *written, size_t more) {
    uint64_t room, looks = *written / ROOM_LOOK_BYTES;
    *written += more;
    if (*written / ROOM_LOOK_BYTES == looks) return true;
    return node->disk->ops->free_bytes(node->disk, &room) != CO_OK ||
           room >= (*written <= log_bytes ? ROOM_LEAST_BYTES : ROOM_LEFT_BYTES);
}

/* Copies the pipe into the file, no faster than the configured rate. */
static int drain(struct node *node, uint64_t log_bytes, int fd, struct snapshot_writer *writer, char *block,
                 size_t have, size_t room) {
    uint64_t rate = node_snapshot_rate(node), due = clock_mono_ns(), written = 0;
    while (have > 0) {
        if (!leaves_room(node, log_bytes, &written, have)) return CO_DISKFULL;
        if (atomic_load(&node->view.failed)) return CO_CLOSED; /* the log is opened again once this is over */
        int rv = snapshot_write(writer, block, have);
        if (rv != CO_OK) return rv;
        uint64_t now = clock_mono_ns();
        due += (uint64_t)((double)have * 1e9 / (double)rate);
        if (due < now) due = now; /* time that a slow disk took is not made up for */
        if (due > now) {
            struct timespec pause = {(time_t)((due - now) / 1000000000), (long)((due - now) % 1000000000)};
            nanosleep(&pause, NULL);
        }
        ssize_t n = read(fd, block, room);
        if (n < 0) return CO_IO;
        have = (size_t)n;
    }
    return CO_OK;
}

int node_take_snapshot(struct node *node, uint64_t log_bytes, struct raft_snapshot_meta *meta) {
    int ends[2];
    if (pipe(ends) != 0) return CO_IO;
    struct copier copier = {.node = node, .fd = ends[1]};
    uv_thread_t thread;
    CHECK(uv_thread_create(&thread, copy_main, &copier) == 0);
    size_t room = 64 * 1024;
    char *block = mem_alloc(room);
    ssize_t first = read(ends[0], block, room); /* once there is a byte, index and term are known */
    struct snapshot_writer *writer = NULL;
    int rv = first > 0 ? CO_OK : CO_IO;
    if (rv == CO_OK) {
        meta->index = copier.index, meta->term = copier.term;
        members_as_of(node, meta->index, meta);
        rv = snapshot_create(node->disk, meta, false, &writer);
    }
    if (rv == CO_OK) rv = drain(node, log_bytes, ends[0], writer, block, (size_t)first, room);
    close(ends[0]); /* a copier that still writes gets EPIPE */
    uv_thread_join(&thread);
    free(block);
    if (rv == CO_OK) rv = copier.result;
    if (!writer) return rv;
    if (rv == CO_OK) return snapshot_commit(writer, meta);
    snapshot_abort(writer, false);
    return rv;
}

static void snapshot_work(uv_work_t *work) {
    struct pool_job *job = work->data;
    struct raft_snapshot_meta *meta = &job->news->event.u.snapshot.meta;
    uint64_t begun = clock_mono_ms();
    int rv = node_take_snapshot(job->node, job->log_bytes, meta);
    job->news->has_event = rv == CO_OK;
    if (rv == CO_OK)
        log_info("raft", "snapshot taken index=%llu bytes=%llu ms=%llu", (unsigned long long)meta->index,
                 (unsigned long long)meta->size, (unsigned long long)(clock_mono_ms() - begun));
    else log_warn("raft", "snapshot failed, tried again later: %s", co_strerror(rv));
    job->news->fault.code = rv;
}

/* The pause after a failure; a snapshot that failed for lack of space had taken all that was free. */
#define PAUSE_FIRST_MS 10000
#define PAUSE_MOST_MS  600000
_Static_assert(PAUSE_FIRST_MS < PAUSE_MOST_MS, "a pause may grow");
void node_snapshot_over(struct node *node, bool taken, int error) {
    CHECK(node->snapshot_running && taken == (error == CO_OK));
    node->snapshot_running = false;
    if (error != CO_CLOSED) node->snapshot_unfit = taken || error != CO_DISKFULL ? 0 : node->snapshot_unfit + 1;
    if (taken) node->snapshot_pause_ms = 0;
    else if (node->snapshot_pause_ms == 0) node->snapshot_pause_ms = PAUSE_FIRST_MS;
    else if (error != CO_CLOSED)
        node->snapshot_pause_ms =
            2 * node->snapshot_pause_ms < PAUSE_MOST_MS ? 2 * node->snapshot_pause_ms : PAUSE_MOST_MS;
    if (taken) node->snapshot_unreadable = false, node->snapshot_log_mark = wal_bytes(node->wal);
    else node->snapshot_wanted = true, node->snapshot_not_before_ms = clock_mono_ms() + node->snapshot_pause_ms;
}

/* There is space again, for which a failed snapshot waited. It is not tried at once, because the log comes first. */
void node_snapshot_soon(struct node *node) {
    uint64_t soon = clock_mono_ms() + PAUSE_FIRST_MS;
    if (node->snapshot_not_before_ms > soon) node->snapshot_not_before_ms = soon;
}

/* While a peer is being sent the snapshot, or reads the log behind it, no new one is taken, until the log is so many
 * times as long: otherwise a peer whose disk is full would keep the log from being cut for ever. */
#define LIMITS_WAITED 3
static bool peers_need_it(const struct node *node, uint64_t bytes, uint64_t limit) {
    if (bytes >= node->snapshot_log_mark + LIMITS_WAITED * limit || node->snapshot_unreadable || node->disk_health.full)
        return false;
    return raft_sending_snapshot(node->raft) || raft_peer_needs_log(node->raft);
}

/* After a snapshot failed for lack of space, the pause ends early when there clearly is space: during the whole pause a
 * log that grows fast could fill the disk again. Each further failure asks for twice as much space. */
#define UNFIT_LOOK_MS 250
#define UNFIT_MOST    5 /* it may be a quota, which the free space does not show */
static bool fits_now(struct node *node, uint64_t now_ms) {
    if (node->snapshot_unfit == 0 || node->snapshot_unfit > UNFIT_MOST || now_ms < node->snapshot_look_ms) return false;
    node->snapshot_look_ms = now_ms + UNFIT_LOOK_MS;
    uint64_t size = raft_snapshot_bytes(node->raft), room, wanted = size + size / 4;
    wanted += wal_droppable_bytes(node->wal, node->applied_seen) > size ? 2 * ROOM_LEAST_BYTES : 2 * ROOM_LEFT_BYTES;
    return node->disk->ops->free_bytes(node->disk, &room) == CO_OK && room >= wanted << (node->snapshot_unfit - 1);
}

static bool pauses(struct node *node, uint64_t now_ms) {
    return now_ms < node->snapshot_not_before_ms && !fits_now(node, now_ms);
}

/* Takes a snapshot when the log has grown enough since the last one: by as much as that one took, so that a large state
 * is not written again and again for a little change (a byte of log costs a byte of snapshot at most). */
void node_snapshot(struct node *node) {
    if (atomic_load(&node->view.failed)) return;
    uint64_t limit = node->config.snapshot_log_bytes ? node->config.snapshot_log_bytes : NODE_SNAPSHOT_LOG_BYTES;
    if (raft_snapshot_bytes(node->raft) > limit) limit = raft_snapshot_bytes(node->raft);
    uint64_t bytes = wal_bytes(node->wal);
    if (bytes < node->snapshot_log_mark) node->snapshot_log_mark = bytes; /* the log in the snapshot was dropped */
    bool due = node->snapshot_wanted || node->snapshot_unreadable || bytes >= node->snapshot_log_mark + limit;
    if (node->snapshot_running || node->requests.fenced || atomic_load(&node->installing) || !due ||
        peers_need_it(node, bytes, limit))
        return;
    if (!node->callbacks.snapshot_copy || node->applied_seen <= raft_snapshot_index(node->raft)) return;
    if (node->snapshot_pause_ms && pauses(node, clock_mono_ms())) return;
    node->snapshot_running = true, node->snapshot_wanted = false;
    struct pool_job *job = job_new(node, RAFT_SNAPSHOT_TAKEN);
    job->news->snapshot_over = true;
    job->log_bytes = wal_droppable_bytes(node->wal, node->applied_seen);
    job_start(job, snapshot_work);
}
