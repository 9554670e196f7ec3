/* The log writer: it writes everything that waits as one group, with one write and one sync. Also stores received
 * chunks and drops old segments, so that the log's files have one writer. */
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "consensus/node_internal.h"

METRIC fsync_seconds = {.name = "coord_raft_log_write_seconds",
                        .type = METRIC_HISTOGRAM,
                        .help = "Time to write and sync one group of the log"};
METRIC entries_total = {
    .name = "coord_raft_log_entries_total", .type = METRIC_COUNTER, .help = "Entries written to the log"};

void write_job_free(struct write_job *job) {
    if (job->type == WRITE_PERSIST)
        for (size_t i = 0; i < job->persist.entry_count; i++) raft_data_unref(job->persist.entries[i].data);
    free(job);
}

static void report(struct node *node, uint64_t seq, int error, const struct fault *fault) {
    struct node_news *news = node_news_new(error == CO_OK ? RAFT_PERSISTED : RAFT_PERSIST_FAILED);
    news->event.u.persisted.seq = seq;
    if (fault) news->fault = *fault;
    node_post(node, news);
}

#define GROUP_MAX 64
static bool write_group(struct node *node, struct write_job **jobs, size_t count) {
    CHECK(count > 0 && count <= GROUP_MAX);
    struct wal_batch batches[GROUP_MAX];
    uint64_t entry_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct raft_persist *p = &jobs[i]->persist;
        batches[i] = (struct wal_batch){.hard_state = p->hard_state,
                                        .term = p->term,
                                        .vote = p->vote,
                                        .truncate_from = p->truncate_from,
                                        .entries = p->entries,
                                        .entry_count = p->entry_count};
        entry_count += p->entry_count;
    }
    struct fault fault = {0};
    uint64_t begun = clock_mono_ns();
    atomic_store(&node->write_begun_ms, begun / 1000000);
    int rv = wal_append(node->wal, batches, count, &fault);
    uint64_t took = clock_mono_ns() - begun;
    atomic_store(&node->write_begun_ms, 0);
    atomic_store(&node->write_failed, rv != CO_OK);
    if (rv != CO_OK || took / 1000000 >= DISK_SLOW_MS) atomic_store(&node->bad_ms, clock_mono_ms());
    metric_observe_ns(&fsync_seconds, took);
    metric_add(&entries_total, entry_count);
    report(node, jobs[count - 1]->persist.seq, rv, &fault);
    return rv == CO_OK;
}

/* A received snapshot becomes ours: whole file first, then the log begins after it, then the state is replaced. A
 * crash in between leaves a snapshot newer than the log, which recovery understands. */
static bool install(struct node *node, const struct raft_persist *persist) {
    struct fault fault = {0};
    struct raft_snapshot_meta meta = persist->snapshot;
    CHECK(persist->install_snapshot && meta.index > 0);
    int rv = CO_IO;
    if (node->receiving && node->receiving_meta.index == meta.index) {
        rv = snapshot_commit(node->receiving, &meta);
        node->receiving = NULL;
    }
    if (rv == CO_OK) rv = wal_reset(node->wal, meta.index, &fault);
    if (rv == CO_OK) {
        uv_sem_t installed;
        CHECK(uv_sem_init(&installed, 0) == 0);
        struct apply_job *job = mem_zalloc(sizeof *job);
        job->install = true, job->meta = meta, job->installed = &installed, job->result = &rv;
        jobs_put(&node->apply_jobs, &job->job);
        uv_sem_wait(&installed);
        uv_sem_destroy(&installed);
    }
    if (rv == CO_OK)
        log_info("raft", "the leader's snapshot is in place index=%llu bytes=%llu", (unsigned long long)meta.index,
                 (unsigned long long)meta.size);
    if (rv != CO_OK) fault_set(&fault, rv, "snapshot index=%llu: %s", (unsigned long long)meta.index, co_strerror(rv));
    report(node, persist->seq, rv, &fault);
    return rv == CO_OK;
}

#define NO_ROOM_AGAIN_MS 600000
static void stop_receiving(struct node *node) {
    if (node->receiving) snapshot_abort(node->receiving, false);
    node->receiving = NULL;
}

static void tell_no_room(struct node *node, uint64_t bytes) {
    uint64_t now = clock_mono_ms();
    if (node->no_room_told_ms && now - node->no_room_told_ms < NO_ROOM_AGAIN_MS) return;
    node->no_room_told_ms = now;
    log_error("raft", "disk full: the leader's snapshot waits for space, %llu MiB are needed folder=%s",
              (unsigned long long)(bytes >> 20) + 1, node->folder);
}

/* Is there room for the rest of the file, and for its state beside the present one, which takes up to twice as much? A
 * snapshot that would not fit is not begun, because the leader would send it again and again. */
static int room_for_snapshot(struct node *node, const struct raft_snapshot_meta *meta) {
    uint64_t room, have;
    int rv = node->disk->ops->free_bytes(node->disk, &room);
    if (rv != CO_OK || room / 3 >= meta->size) return rv;
    snapshot_parts_keep(node->disk, meta->index, meta->term, atomic_load(&node->view.applied), &have);
    rv = node->disk->ops->free_bytes(node->disk, &room);
    if (rv != CO_OK || (room + have) / 3 >= meta->size) return rv;
    tell_no_room(node, 3 * meta->size - have);
    return CO_DISKFULL;
}

static bool same_snapshot(const struct raft_snapshot_meta *a, const struct raft_snapshot_meta *b) {
    return a->index == b->index && a->term == b->term && a->size == b->size;
}

/* Goes on with the part of the snapshot that is there, also when the leader, or this server's core, has begun anew
 * meanwhile. */
static int begin_receiving(struct node *node, const struct raft_snapshot_meta *meta) {
    if (node->receiving && same_snapshot(&node->receiving_meta, meta)) return CO_OK;
    stop_receiving(node);
    int rv = room_for_snapshot(node, meta);
    if (rv == CO_OK) rv = snapshot_create(node->disk, meta, true, &node->receiving);
    node->receiving_meta = *meta;
    return rv;
}

static void store_chunk(struct node *node, const struct raft_chunk_write *chunk) {
    int rv = chunk->first ? begin_receiving(node, &chunk->meta) : CO_OK;
    if (rv == CO_OK && (!node->receiving || node->receiving_meta.index != chunk->meta.index)) rv = CO_IO;
    if (rv == CO_OK && snapshot_written(node->receiving) == chunk->offset)
        rv = snapshot_write(node->receiving, chunk->data, chunk->size);
    if (rv != CO_OK) stop_receiving(node);
    struct node_news *news = node_news_new(RAFT_CHUNK_WRITTEN);
    news->event.u.chunk_written.from = chunk->from;
    news->event.u.chunk_written.snapshot_index = chunk->meta.index;
    news->event.u.chunk_written.offset = rv == CO_OK ? snapshot_written(node->receiving) : 0;
    news->event.u.chunk_written.error = rv;
    node_post(node, news);
}

/* Removes one segment, with a sync of the folder; between groups, and when there is nothing else to do. False: nothing
 * is left. */
static bool drop_some(struct node *node) {
    if (node->drop_index == 0) return false;
    int rv = wal_drop(node->wal, node->drop_index);
    if (rv != CO_OK && rv != CO_AGAIN) log_warn("raft", "old log segments could not be removed");
    if (rv != CO_AGAIN) node->drop_index = 0;
    return true;
}

static bool do_job(struct node *node, struct write_job *job) {
    switch (job->type) {
        case WRITE_PERSIST: return install(node, &job->persist);
        case WRITE_CHUNK: store_chunk(node, &job->chunk); break;
        case WRITE_DROP:
            if (job->drop_index > node->drop_index) node->drop_index = job->drop_index;
            /* the snapshot was given up, because the log caught up */
            if (node->receiving && node->receiving_meta.index <= job->drop_index) stop_receiving(node);
            break;
    }
    return true;
}

static bool groups(const struct write_job *job) { return job->type == WRITE_PERSIST && !job->persist.install_snapshot; }

void node_writer_main(void *arg) {
    struct node *node = arg;
    pthread_setname_np(pthread_self(), "log-writer");
    metric_register(&fsync_seconds);
    metric_register(&entries_total);
    /* Jobs that came after one that failed, before the loop heard of it, would build on entries that are not there.
     * They are dropped; the log is opened again as after a crash, and this thread begins anew. */
    bool well = true;
    CHECK(node->receiving == NULL);
    drop_some(node); /* this may free the room that was missing */
    while (!jobs_waiting(&node->write_jobs) && drop_some(node)) {}
    struct job *list;
    while ((list = jobs_take_all(&node->write_jobs)) != NULL) {
        while (list) {
            struct write_job *group[GROUP_MAX];
            size_t count = 0;
            while (list && count < GROUP_MAX && groups(CONTAINER_OF(list, struct write_job, job))) {
                group[count++] = CONTAINER_OF(list, struct write_job, job);
                list = list->next;
            }
            if (count > 0 && well) well = write_group(node, group, count);
            for (size_t i = 0; i < count; i++) {
                uint64_t waited = atomic_fetch_sub(&node->write_bytes, group[i]->bytes);
                CHECK(waited >= group[i]->bytes);
                write_job_free(group[i]);
            }
            if (list && !groups(CONTAINER_OF(list, struct write_job, job))) {
                struct write_job *job = CONTAINER_OF(list, struct write_job, job);
                list = list->next;
                if (well) well = do_job(node, job);
                write_job_free(job);
            }
        }
        if (well) node_preparer_ask(&node->preparer, node->wal);
        while (well && drop_some(node) && !jobs_waiting(&node->write_jobs)) {}
    }
    if (node->receiving) snapshot_abort(node->receiving, true);
    node->receiving = NULL; /* another writer may follow */
}
