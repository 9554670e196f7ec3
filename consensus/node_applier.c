/* The applier: hands committed entries to the state machine in order, and installs snapshots in it. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/wakeup_batch.h"
#include "consensus/node_internal.h"

/* Remembers which configuration counts from which applied index on: a snapshot's meta needs it. */
void node_applier_note(struct node *node, uint64_t index, const struct raft_members *members) {
    uv_mutex_lock(&node->members_lock);
    /* The server's own snapshot is installed again, so the configuration is not new. */
    if (node->members_count && node->members[node->members_count - 1].index > index) {
        uv_mutex_unlock(&node->members_lock);
        return;
    }
    if (node->members_count == MEMBERS_RECORDS) {
        memmove(node->members, node->members + 1, (MEMBERS_RECORDS - 1) * sizeof *node->members);
        node->members_count--;
    }
    node->members[node->members_count++] = (struct members_record){index, *members};
    uv_mutex_unlock(&node->members_lock);
}

static void note_members(struct node *node, const struct apply_job *job) {
    struct raft_members members;
    for (size_t i = 0; i < job->count; i++) {
        const struct raft_entry *entry = &job->items[i].entry;
        if (entry->type == RAFT_ENTRY_MEMBERS && raft_members_decode(raft_entry_bytes(entry), &members) == CO_OK)
            node_applier_note(node, entry->index, &members);
    }
}

/* -- installing: the snapshot file's bytes go through a pipe to the state machine ---------------------------------- */
struct feeder {
    struct snapshot_reader *reader;
    int fd, result;
    struct fault fault;
};

static void feed(void *arg) {
    struct feeder *f = arg;
    background_thread("install-feed");
    size_t room = 64 * 1024, got = 0;
    char *block = mem_alloc(room);
    for (uint64_t offset = 0; f->result == CO_OK; offset += got) {
        f->result = snapshot_read(f->reader, offset, block, room, &got, &f->fault);
        if (f->result != CO_OK || got == 0) break;
        for (size_t at = 0; at < got;) {
            ssize_t n = write(f->fd, block + at, got - at);
            if (n < 0) {
                f->result = CO_IO;
                break;
            }
            at += (size_t)n;
        }
    }
    close(f->fd);
    free(block);
}

int node_install_snapshot(struct node *node, uint64_t index, struct raft_snapshot_meta *meta, struct fault *fault) {
    struct feeder feeder = {0};
    int rv = snapshot_open(node->disk, index, &feeder.reader, meta, fault);
    if (rv != CO_OK) return rv;
    int ends[2];
    if (pipe(ends) != 0) {
        snapshot_close(feeder.reader);
        return fault_set(fault, CO_IO, "no pipe for a snapshot");
    }
    feeder.fd = ends[1];
    uv_thread_t thread;
    CHECK(uv_thread_create(&thread, feed, &feeder) == 0);
    /* note the configuration first: a copy of the new state may begin as soon as it is in place */
    node_applier_note(node, meta->members_index, &meta->members);
    rv = node->callbacks.snapshot_install(node->callbacks.data, ends[0], meta, fault);
    close(ends[0]);
    uv_thread_join(&thread);
    snapshot_close(feeder.reader);
    /* Report the fault of the file: the state machine only saw that the bytes ended. */
    if (feeder.fault.code) {
        if (fault) *fault = feeder.fault;
        rv = feeder.fault.code;
    } else if (rv == CO_OK) {
        rv = feeder.result;
    }
    return rv;
}

/* Loading may take long, and fill the disk, before it turns out that there is too little room. */
#define ATTEMPT_SHORT_MS 100
#define ATTEMPT_PAUSE_MS 30000
/* after this time it is tried in any case: during the attempt somebody else may have taken the room */
#define ATTEMPT_WAITS_MS 600000
static bool wait_for_room(struct node *node, const struct raft_snapshot_meta *meta, uint64_t before, uint64_t took_ms,
                          bool (*over)(struct node *node)) {
    uint64_t room = 0, failed_ms = clock_mono_ms(),
             at_ms = failed_ms + (took_ms > ATTEMPT_SHORT_MS ? ATTEMPT_PAUSE_MS : 0);
    bool more;
    do {
        if (over(node)) return false;
        (void)node->disk->ops->free_bytes(node->disk, &room);
        more = room > before + before / 16 || clock_mono_ms() - failed_ms >= ATTEMPT_WAITS_MS;
    } while (room < meta->size || !more || clock_mono_ms() < at_ms);
    return true;
}

int node_install_with_room(struct node *node, struct raft_snapshot_meta *meta, bool (*over)(struct node *node),
                           struct fault *fault) {
    uint64_t most = 0, room = 0; /* `most`: so much was too little, without the part that the attempt took itself */
    for (bool told = false;; told = true) {
        uint64_t begun = clock_mono_ms();
        *fault = (struct fault){0};
        if (node->disk->ops->free_bytes(node->disk, &room) == CO_OK && room > most) most = room;
        int rv = node_install_snapshot(node, meta->index, meta, fault);
        if (rv != CO_DISKFULL) return rv;
        if (!told)
            log_error("raft",
                      "disk full: the state waits for space to be rebuilt from the snapshot index=%llu bytes=%llu: %s",
                      (unsigned long long)meta->index, (unsigned long long)meta->size, fault->text);
        if (!wait_for_room(node, meta, most, clock_mono_ms() - begun, over)) return rv;
    }
}

/* -- entries ------------------------------------------------------------------------------------------------------ */
/* Answers entries as unknown that are committed, but have no result here: the state machine has stopped, or has them
 * from another server's state. */
static void unknown(struct apply_job *job, uint64_t upto) {
    for (size_t i = 0; i < job->count && job->items[i].entry.index <= upto; i++) {
        struct node_proposal *proposal = job->items[i].proposal;
        if (!proposal) continue;
        job->items[i].proposal = NULL;
        raft_data_unref(proposal->data);
        proposal->data = NULL;
        proposal->done(proposal, CO_UNKNOWN_OUTCOME, NULL);
    }
}

static void entries_free(struct apply_job *job) {
    for (size_t i = 0; i < job->count; i++) raft_data_unref(job->items[i].entry.data);
    free(job);
}

static void tell_applied(struct node *node, uint64_t index) {
    struct node_news *news = node_news_new(RAFT_APPLIED);
    news->event.u.applied.index = index;
    node_post(node, news);
}

/* Applies the entries that are not applied yet; the others have been answered by then. */
static void call_apply(struct node *node, struct apply_job *job) {
    size_t done = 0;
    while (done < job->count && job->items[done].entry.index <= node->applier_at) done++;
    if (done == job->count) return;
    uint64_t applied = node->callbacks.apply(node->callbacks.data, job->items + done, job->count - done);
    CHECK(applied <= job->items[job->count - 1].entry.index);
    if (applied > node->applier_at) node->applier_at = applied;
    for (size_t i = done; i < job->count && job->items[i].entry.index <= applied; i++) job->items[i].proposal = NULL;
}

/* True: the job is finished. False: it is held and waits. */
static bool apply_entries(struct node *node, struct apply_job *job) {
    CHECK(job->count > 0);
    uint64_t last = job->items[job->count - 1].entry.index;
    wakeup_batch_begin();
    if (!node->applier_stopped) call_apply(node, job);
    if (node->applier_at < last && !node->applier_stopped) {
        node->holding = node->callbacks.held && node->callbacks.held(node->callbacks.data);
        if (!node->holding) node->applier_stopped = node->applier_at;
    }
    tell_applied(node, node->applier_at);
    wakeup_batch_end();
    if (node->holding) return false;
    unknown(job, last);
    entries_free(job);
    return true;
}

static void hold(struct node *node, struct apply_job *job) {
    CHECK(*node->held_last == NULL);
    job->job.next = NULL;
    *node->held_last = &job->job;
    node->held_last = &job->job.next;
}

static void take_entries(struct node *node, struct apply_job *job) {
    note_members(node, job);
    if (node->holding || !apply_entries(node, job)) hold(node, job);
}

/* The state machine works again: the held jobs go on. */
static void release(struct node *node) {
    struct job *list = node->held;
    node->held = NULL, node->held_last = &node->held;
    node->holding = false;
    for (struct job *next; list; list = next) {
        next = list->next;
        struct apply_job *job = CONTAINER_OF(list, struct apply_job, job);
        unknown(job, node->applier_at);
        if (node->holding || !apply_entries(node, job)) hold(node, job);
    }
}

/* -- rebuilding --------------------------------------------------------------------------------------------------- */
static int apply_again(struct node *node, uint64_t from, uint64_t to, struct fault *fault) {
    int rv = CO_OK;
    while (from <= to && rv == CO_OK) {
        struct raft_entry *entries;
        size_t count;
        rv = wal_read(node->wal, from, to, 1 << 20, &entries, &count);
        if (rv != CO_OK)
            return fault_set(fault, rv, "entry %llu of the log cannot be read: %s", (unsigned long long)from,
                             co_strerror(rv));
        for (size_t at = 0; at < count && rv == CO_OK;) {
            struct node_apply items[256];
            size_t n = 0;
            for (; n < sizeof items / sizeof *items && at + n < count; n++)
                items[n] = (struct node_apply){.entry = entries[at + n]};
            uint64_t last = items[n - 1].entry.index;
            if (node->callbacks.apply(node->callbacks.data, items, n) < last)
                rv = fault_set(fault, CO_CORRUPT, "entry %llu of the log cannot be applied again",
                               (unsigned long long)last);
            at += n;
        }
        from += count;
        for (size_t i = 0; i < count; i++) raft_data_unref(entries[i].data);
        free(entries);
    }
    return rv;
}

/* Rebuilds the state from this server's own snapshot and log, up to where it was. */
static int rebuild_own(struct node *node, struct fault *fault) {
    struct raft_snapshot_meta meta = {0};
    int rv = node_install_snapshot(node, 0, &meta, fault);
    if (rv == CO_NOTFOUND) *fault = (struct fault){0}, rv = CO_OK;
    if (rv == CO_OK && meta.index > node->applier_at)
        return fault_set(fault, CO_CONFLICT, "the snapshot is ahead of what was applied");
    return rv == CO_OK ? apply_again(node, meta.index + 1, node->applier_at, fault) : rv;
}

static void resume(struct node *node, bool own) {
    struct fault fault = {0};
    uint64_t applied = node->applier_at;
    int rv = node->callbacks.rebuild(node->callbacks.data, own, &applied, &fault);
    if (rv == CO_OK && own) rv = rebuild_own(node, &fault);
    CHECK(rv != CO_OK || own || applied <= atomic_load(&node->view.handed));
    if (rv == CO_OK && !own && applied > node->applier_at) node->applier_at = applied;
    node->callbacks.rebuilt(node->callbacks.data, rv, &fault);
    if (rv != CO_OK) return;
    tell_applied(node, node->applier_at);
    release(node);
}

/* Waits a second for room to install the snapshot. There is no way back, because the log begins behind the snapshot
 * already. */
static bool stopped_meanwhile(struct node *node) {
    node_out_of_space(node, true);
    sleep(1);
    return jobs_stopped(&node->write_jobs);
}

/* Restores a snapshot that was received, or found. */
static void install(struct node *node, struct apply_job *job) {
    struct fault fault = {0};
    CHECK(job->meta.index >= node->applier_at && job->installed && job->result);
    atomic_store(&node->installing, true);
    int rv = node_install_with_room(node, &job->meta, stopped_meanwhile, &fault);
    atomic_store(&node->installing, false);
    node_out_of_space(node, false);
    *job->result = rv;
    if (rv != CO_OK) log_error("raft", "snapshot cannot be installed: %s", fault.text);
    else node->applier_at = job->meta.index;
    uv_sem_post(job->installed);
    free(job);
    if (rv == CO_OK && node->holding) release(node);
}

void node_applier_main(void *arg) {
    struct node *node = arg;
    struct job *list;
    pthread_setname_np(pthread_self(), "applier");
    while ((list = jobs_take_all(&node->apply_jobs)) != NULL) {
        atomic_store(&node->applier_busy, true);
        for (struct job *next; list; list = next) {
            next = list->next;
            struct apply_job *job = CONTAINER_OF(list, struct apply_job, job);
            if (job->install) {
                install(node, job);
            } else if (job->resume) {
                resume(node, job->own);
                free(job);
            } else {
                take_entries(node, job);
            }
        }
        atomic_store(&node->applier_busy, false);
    }
    for (struct job *next; node->held; node->held = next) { /* stopping, or the log is opened again */
        next = node->held->next;
        struct apply_job *job = CONTAINER_OF(node->held, struct apply_job, job);
        unknown(job, UINT64_MAX);
        entries_free(job);
    }
    node->held_last = &node->held;
    node->holding = false;
}
