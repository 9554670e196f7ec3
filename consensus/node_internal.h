/* Inside node: its parts, one thread a file.
 *   node.c           the loop: boxes in, core, effects out
 *   node_start.c     recovery, bootstrap, identity, reopening after a failed disk
 *   node_writer.c    the log writer thread
 *   node_preparer.c  the thread that makes the log's next segment ready
 *   node_applier.c   the applier thread
 *   node_pool.c      jobs in libuv's pool: snapshots, reads for laggards */
#ifndef COORD_CONSENSUS_NODE_INTERNAL_H
#define COORD_CONSENSUS_NODE_INTERNAL_H

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "consensus/disk_health.h"
#include "consensus/node.h"
#include "consensus/requests.h"
#include "consensus/snapshot.h"
#include "consensus/wal.h"

/* A queue that one thread sleeps on. */
struct job {
    struct job *next;
};
struct jobs {
    uv_mutex_t lock;
    uv_cond_t more;
    struct job *first, **last;
    bool stop;
};
void jobs_init(struct jobs *jobs);
void jobs_free(struct jobs *jobs);
void jobs_put(struct jobs *jobs, struct job *job);
struct job *jobs_take_all(struct jobs *jobs); /* blocks; NULL: stop, and nothing is left */
bool jobs_waiting(struct jobs *jobs);
void jobs_stop(struct jobs *jobs);
bool jobs_stopped(struct jobs *jobs);

/* For the writer: a persist operation (with references of its own), a chunk to store, or segments to drop. */
struct write_job {
    struct job job;
    enum { WRITE_PERSIST, WRITE_CHUNK, WRITE_DROP } type;
    struct raft_persist persist;
    uint64_t bytes;                /* about the size of its entries in the log */
    struct raft_chunk_write chunk; /* data copied behind the struct */
    uint64_t drop_index;
};
/* For the applier: entries, or a snapshot to install (the writer waits for that). */
struct apply_job {
    struct job job;
    struct node_apply *items;
    size_t count;
    bool install;
    struct raft_snapshot_meta meta;
    uv_sem_t *installed;
    int *result;
    bool resume, own; /* node_resume */
};

/* News for the loop, from the other threads. */
struct node_news {
    struct mail mail;
    struct raft_event event; /* handed to the core; entries and data inside are freed afterwards */
    void *free_after;
    struct fault fault; /* of a failed persist; of a snapshot that was not taken, the code */
    bool snapshot_over; /* the snapshot job ended, with event (type SNAPSHOT_TAKEN) or without */
    bool has_event;
};

struct preparer {
    uv_thread_t thread;
    uint64_t asked;  /* the log writer's: the segment for which a next one is wanted */
    uv_mutex_t lock; /* for those below */
    uv_cond_t more;
    bool wanted, stop;
};

struct members_record {
    uint64_t index;
    struct raft_members members;
};
#define MEMBERS_RECORDS 8

struct node {
    /* Set before the threads start, constant afterwards. */
    uv_loop_t *loop;
    struct node_callbacks callbacks;
    struct node_config config;
    char *folder, *address;
    uint64_t id;
    struct disk *disk;

    /* Loop thread. */
    struct raft *raft;
    uv_async_t wake;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_timer_t timer, reopen_timer;
    bool dirty, stopping, holds_wakes; /* dirty: a flush is due */
    _Atomic bool nudged;               /* node_wake */
    bool raft_opened;                  /* once: what comes later is a reopening */
    uint64_t reopen_pause_ms;          /* before the next try, while the log cannot be opened again */
    struct requests requests;          /* commands and reads of clients that wait for Raft */
    struct disk_health disk_health;
    uint64_t applied_seen;
    bool snapshot_running;
    uint64_t snapshot_pause_ms, snapshot_not_before_ms; /* after failures; 0 */
    unsigned snapshot_unfit;                            /* how many failed for lack of space, in a row */
    uint64_t snapshot_look_ms;                          /* when to ask the disk again whether one fits */
    bool snapshot_unreadable;                           /* our snapshot could not be read for a peer */
    uint64_t snapshot_log_mark;                         /* wal_bytes behind the last snapshot's cut */
    unsigned pool_jobs;
    void (*closed)(void *data);
    void *closed_data;
    unsigned closing;
    uint64_t taken_bytes; /* of entries received in this turn, not with the log writer yet */
    /* the core was told that others should lead; that there is no room for commands; nor for votes */
    bool behind_told, full_told, spent_told;
    bool snapshot_wanted; /* take one whatever the log's size, because the old one may have the damage */

    /* Shared: the log writer appends; pool jobs read. NULL while a log that failed cannot be opened again (core
     * poisoned, no threads, no jobs). */
    struct wal *wal;
    uint64_t drop_index; /* the log writer's, while it runs: the log up to here is to be dropped; 0: nothing is */
    _Atomic uint64_t write_begun_ms;   /* the log writer waits for the disk since; 0: it does not */
    _Atomic uint64_t bad_ms;           /* when a write ended that had taken too long, or failed */
    _Atomic bool write_failed;         /* the last one */
    _Atomic uint64_t write_bytes;      /* of entries that the log writer has yet to write */
    _Atomic bool installing;           /* the applier puts a snapshot in place, or waits for room to */
    _Atomic bool applier_out_of_space; /* node_out_of_space */
    _Atomic bool applier_busy;         /* it works on jobs that it took */

    /* Any thread puts. */
    struct mailbox proposals, read_box, news;

    /* Threads and their queues. */
    uv_thread_t writer, applier;
    struct preparer preparer;
    bool threads_running; /* loop thread's */
    struct jobs write_jobs, apply_jobs;
    /* Writer thread. */
    struct snapshot_writer *receiving;
    struct raft_snapshot_meta receiving_meta;
    uint64_t no_room_told_ms;
    /* Applier thread (the loop's while that does not run). */
    uint64_t applier_at;      /* applied */
    uint64_t applier_stopped; /* a command of a newer version: nothing more is applied; 0 */
    bool holding;
    struct job *held, **held_last; /* jobs that wait for node_resume */
    /* Applier thread writes, snapshot job reads; under members_lock. */
    uv_mutex_t members_lock;
    struct members_record members[MEMBERS_RECORDS];
    size_t members_count;

    struct node_view view;
};

/* node.c */
void node_post(struct node *node, struct node_news *news); /* any thread; takes it */
struct node_news *node_news_new(enum raft_event_type type);
void node_flush(struct node *node);
void node_take(struct node *node); /* takes all items out of the boxes */
void node_wake_cb(uv_async_t *async);
void node_prepare_cb(uv_prepare_t *prepare);
void node_check_cb(uv_check_t *check);
void node_timer_cb(uv_timer_t *timer);
void node_metrics_register(void);
void node_pool_job_over(struct node *node);
bool node_has_room(void *data, uint64_t bytes);
const void *node_judge(void *data, uint64_t leader, const struct node_proposal *proposal);
/* node_start.c */
#define NODE_ID_FILE "server-id"
int node_open_log(struct node *node, uint64_t applied, struct fault *fault);
void node_reopen_later(struct node *node);
/* The wall clock, as entries have it. */
static inline uint64_t node_unix_ms(void) {
    int64_t unix_ms = clock_wall_ns() / 1000000;
    return unix_ms < 0 ? 0 : (uint64_t)unix_ms < RAFT_UNIX_MS_MAX ? (uint64_t)unix_ms : RAFT_UNIX_MS_MAX;
}
void node_start_threads(struct node *node);
void node_stop_threads(struct node *node);
/* node_preparer.c */
void node_preparer_init(struct preparer *preparer);
void node_preparer_free(struct preparer *preparer);
void node_preparer_start(struct preparer *preparer, struct node *node);
void node_preparer_stop(struct preparer *preparer);
void node_preparer_ask(struct preparer *preparer, struct wal *wal); /* log writer, after each group; cheap */
/* node_writer.c, node_applier.c */
void node_writer_main(void *arg);
void node_applier_main(void *arg);
void node_applier_note(struct node *node, uint64_t index, const struct raft_members *members);
int node_install_snapshot(struct node *node, uint64_t index, struct raft_snapshot_meta *meta, struct fault *fault);
/* When there is no room for a second state beside the present one, it tries again when there is more, until `over`
 * (asked each second) is true. */
int node_install_with_room(struct node *node, struct raft_snapshot_meta *meta, bool (*over)(struct node *node),
                           struct fault *fault);
void write_job_free(struct write_job *job);
/* node_pool.c */
void node_load(struct node *node, const struct raft_load *load);
void node_chunk_read(struct node *node, const struct raft_chunk_read *chunk);
void node_snapshot(struct node *node);
void node_snapshot_over(struct node *node, bool taken, int error);
void node_snapshot_soon(struct node *node); /* space is back */
void node_chunk_unread(struct node *node, const struct node_news *news);
uint64_t node_snapshot_rate(const struct node *node); /* bytes a second */
/* blocks; pool, or at start. log_bytes: how much log may be dropped after it */
int node_take_snapshot(struct node *node, uint64_t log_bytes, struct raft_snapshot_meta *meta);

#endif
